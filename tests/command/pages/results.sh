#!/usr/bin/env bash
# The pages in docs/results, the tables of docs/SPEED.md and the chart of README.md are what scripts/results.py writes from bench/results; and the check
# that says so can fail.
set -u
script=$SOURCE_DIR/scripts/results.py
command -v python3 >/dev/null || exit 77
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
status=0

# expect pass|fail TITLE [NAME]: the check of the tree passes, or fails and names the page
expect() {
    if python3 "$script" --check --root "$tree" >"$tree/said" 2>&1; then got=pass; else got=fail; fi
    if [ $got != "$1" ]; then
        echo "$2: expected $1, got $got"
        cat "$tree/said"
        status=1
    elif [ $got = fail ] && ! grep -q "$3" "$tree/said"; then
        echo "$2: the message does not name $3"
        cat "$tree/said"
        status=1
    fi
}

python3 "$script" --check || status=1

mkdir -p "$tree/bench" "$tree/docs"
cp -r "$SOURCE_DIR/bench/results" "$tree/bench/"
cp -r "$SOURCE_DIR/docs/results" "$tree/docs/"
cp "$SOURCE_DIR/docs/SPEED.md" "$SOURCE_DIR"/docs/speed-*.svg "$tree/docs/"
chmod -R u+w "$tree"
expect pass "a copy of the pages"
for file in "$tree"/bench/results/*.json; do
    cp "$file" "$tree/kept"
    # Another value for the fractions of every line, some of which every page shows.
    sed -E 's/([0-9]+\.[0-9]{2,}([eE][-+]?[0-9]+)?)/12\1/' "$tree/kept" >"$file"
    expect fail "other numbers in ${file##*/}" "$(basename "$file" .json).md"
    cp "$tree/kept" "$file"
done
expect pass "the numbers as they were"
sed -i 's/; cuDNN 4/; cuDNN 5/' "$tree/docs/SPEED.md"
expect fail "another number in docs/SPEED.md" "docs/SPEED.md differs"
cp "$SOURCE_DIR/docs/SPEED.md" "$tree/docs/"
sed -i '/end of gpu/d' "$tree/docs/SPEED.md"
expect fail "a table of docs/SPEED.md without its end" "end of gpu"
cp "$SOURCE_DIR/docs/SPEED.md" "$tree/docs/"
sed -i 's/3.33x/4.33x/' "$tree/docs/speed-dark.svg"
expect fail "another number in a chart" "docs/speed-dark.svg differs"
cp "$SOURCE_DIR/docs/speed-dark.svg" "$tree/docs/"
echo >>"$tree/docs/results/README.md"
expect fail "a page that was edited" README.md
python3 "$script" --root "$tree" >/dev/null || status=1
expect pass "pages written again"
cp "$tree/docs/results/README.md" "$tree/docs/results/other.md"
expect fail "a page without a file" other.md
rm "$tree/docs/results/other.md" "$tree/docs/results/core-aarch64.md"
expect fail "a page that is missing" core-aarch64.md
echo '{}' >"$tree/bench/results/unknown-machine.json"
expect fail "a file of unknown kind" unknown-machine
exit $status
