#!/usr/bin/env bash
# Fails when an #include goes against the direction of docs/DESIGN.md.
#   scripts/check-includes.sh [ROOT]
# A module includes itself, the modules that its line names, system headers and recurve.h. Folders outside src/ include
# recurve.h, their own headers and system headers.
set -u
cd "${1:-$(dirname "$0")/..}" || exit 2

# module: what stands before it
order='
base:
data:     base
cell:     base
net:      base cell
program:  base cell net
schedule: base cell net program
device:   base cell net program
comm:     base cell net program device
plan:     base cell net program schedule device
model:    base cell net program schedule device plan
train:    base data cell net program schedule device comm plan model
api:      base data cell net program schedule device comm plan model train
'
outside='tool bench examples'

status=0
complain() {
    echo "$1: $2"
    status=1
}

# quoted FOLDER: "file:line:included name" for every #include "..." below the folder; <recurve.h> and <module/...> count too
quoted() {
    grep -rnE --include='*.[ch]' '^[[:space:]]*#[[:space:]]*include' "$1" 2>/dev/null |
        sed -nE 's/^([^:]*:[0-9]+):[[:space:]]*#[[:space:]]*include[[:space:]]*["<]([^">]*)[">].*$/\1:\2/p'
}

# allowed_of MODULE: its line of the table, empty when it has none
allowed_of() { sed -nE "s/^$1:(.*)$/\1/p" <<<"$order"; }
modules=$(sed -nE 's/^([a-z]+):.*$/\1/p' <<<"$order" | tr '\n' ' ')

for folder in src/*/; do
    [ -d "$folder" ] || continue
    module=$(basename "$folder")
    case " $modules " in
        *" $module "*) ;;
        *) complain "src/$module" "is not in the table of scripts/check-includes.sh; add it with what it may include" && continue ;;
    esac
    allowed=" $module $(allowed_of "$module") "
    while IFS=: read -r file line name; do
        case $name in
            */../* | ../*) complain "$file:$line" "includes \"$name\"; write it from src/, as \"base/base.h\"" ;;
            */*)
                target=${name%%/*}
                case " $modules $outside tests " in *" $target "*) ;; *) continue ;; esac # a system header as <sys/stat.h>
                case $allowed in
                    *" $target "*) ;;
                    *) complain "$file:$line" "$module includes \"$name\", but only$allowed stand before it" ;;
                esac
                ;;
        esac
    done < <(quoted "$folder")
done

for file in src/*.[ch]; do
    [ -e "$file" ] && complain "$file" "lies in no module; move it into a folder of src/"
done

for folder in $outside; do
    while IFS=: read -r file line name; do
        case $name in
            ../* | */../*) complain "$file:$line" "includes \"$name\"; $folder/ lives on recurve.h alone" ;;
            */*)
                case " $modules src tests " in
                    *" ${name%%/*} "*) complain "$file:$line" "includes \"$name\"; $folder/ lives on recurve.h alone" ;;
                esac
                ;;
        esac
    done < <(quoted "$folder")
done

exit $status
