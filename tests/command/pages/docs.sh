#!/usr/bin/env bash
# The pages name files that are there: every path in backticks, every link from page to page. The walk of docs/DESIGN.md has ten files, none twice.
# No folder of src/ or tool/ is crowded. And the check of paths can fail.
set -u
status=0
complain() {
    echo "$1"
    status=1
}

# missing_paths PAGES...: paths in backticks, and linked pages, that do not exist; FOLDER/{a,b}.c and FOLDER/NAME_*.c are patterns
missing_paths() {
    local page path
    for page in "$@"; do
        while read -r path; do
            case $path in *NAME* | *'...'* | build/*) continue ;; esac
            compgen -G "$path" >/dev/null || (eval "ls -d $path" >/dev/null 2>&1) || echo "$page: $path is not there"
        done < <(grep -oE '`(src|tool|tests|scripts|include|bench|examples|cells|docs|cmake|bindings|python)/[][A-Za-z0-9_./{},*-]+`' "$page" | tr -d '`' | sort -u)
        while read -r path; do
            [ -e "$(dirname "$page")/$path" ] || echo "$page: the linked $path is not there"
        done < <(grep -oE '\]\([^)#: ]+\)' "$page" | sed -E 's/^\]\(//; s/\)$//' | sort -u)
    done
}

cd "$SOURCE_DIR" || exit 2
found=$(missing_paths README.md CONTRIBUTING.md docs/*.md docs/tutorial/*.md)
[ -z "$found" ] || complain "$found"

page=$(mktemp)
trap 'rm -f "$page"' EXIT
printf 'See `src/base/base.h` and `src/base/none.h`.\n' >"$page"
[ "$(missing_paths "$page")" = "$page: src/base/none.h is not there" ] || complain "the check of paths finds $(missing_paths "$page")"

walk=$(sed -nE 's/^\| [0-9]+ \| `([^`]+)` .*/\1/p' docs/DESIGN.md)
[ "$(wc -l <<<"$walk")" = 10 ] || complain "the walk of docs/DESIGN.md does not have ten files"
[ "$(sort -u <<<"$walk" | wc -l)" = 10 ] || complain "the walk of docs/DESIGN.md has a file twice"

while read -r folder; do
    files=$(find "$folder" -maxdepth 1 -type f | wc -l)
    [ "$files" -le 27 ] || complain "$folder has $files files; divide it by subject"
done < <(find src tool tests -type d)
exit $status
