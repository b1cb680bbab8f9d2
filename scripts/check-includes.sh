#!/usr/bin/env bash
# Fails when an #include, or a call through the public header, goes against the direction of docs/DESIGN.md.
#   scripts/check-includes.sh [ROOT]
# A module includes itself, the modules that its line names, system headers and recurve*.h. It calls public functions (rcv_NAME) only of itself and
# of those modules. Folders within a module may have an order of their own (`inner`). The folder of a device (src/device/NAME/) is included by files of that folder alone. Folders outside src/ include
# recurve*.h, their own headers and system headers. C, C++ and CUDA files are checked.
set -u
cd "${1:-$(dirname "$0")/..}" || exit 2

# module: the modules before it
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
'
# MODULE/FOLDER: the folders of the same module before it. A module with such lines has its files in these folders alone.
inner='
train/config:
train/learner:   config
train/parallel:  config learner
train/step:      config learner parallel
train/inference: config learner parallel step
train/forecast:  config learner parallel step
train/run:       config learner parallel step inference forecast
'
outside='tool bench examples bindings'
kinds=(--include='*.[ch]' --include='*.cpp' --include='*.cu' --include='*.cuh')

status=0
complain() {
    echo "$1: $2"
    status=1
}

# quoted FOLDER: "file:line:included name" for every #include below the folder, whether its name is in quotes or in angle brackets
quoted() {
    grep -rnE "${kinds[@]}" '^[[:space:]]*#[[:space:]]*include' "$1" 2>/dev/null |
        sed -nE 's/^([^:]*:[0-9]+):[[:space:]]*#[[:space:]]*include[[:space:]]*["<]([^">]*)[">].*$/\1:\2/p'
}

# allowed_of MODULE: its line of the table, empty when it has none
allowed_of() { sed -nE "s/^$1:(.*)$/\1/p" <<<"$order"; }
inner_of() { sed -nE "s#^$1:(.*)\$#\1#p" <<<"$inner"; }
has_inner() { grep -q "^$1/" <<<"$inner"; }
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
            device/*/*)
                device=$(cut -d/ -f2 <<<"$name")
                case $file in
                    src/device/"$device"/*) ;;
                    *) complain "$file:$line" "includes \"$name\"; what is inside of a device is reached through device/device.h" ;;
                esac
                ;;
            */*)
                target=${name%%/*}
                case " $modules $outside tests " in *" $target "*) ;; *) continue ;; esac # a system header as <sys/stat.h>
                case $allowed in
                    *" $target "*) ;;
                    *) complain "$file:$line" "$module includes \"$name\", but only$allowed stand before it" ;;
                esac
                if [ "$target" = "$module" ] && has_inner "$module"; then
                    folder_from=$(cut -d/ -f3 <<<"$file") folder_to=$(cut -d/ -f2 <<<"$name")
                    case " $folder_from $(inner_of "$module/$folder_from") " in
                        *" $folder_to "*) ;;
                        *) complain "$file:$line" "$module/$folder_from includes \"$name\", which does not stand before it" ;;
                    esac
                fi
                ;;
        esac
    done < <(quoted "$folder")
done

for path in src/*/*; do
    [ -e "$path" ] || continue
    module=$(cut -d/ -f2 <<<"$path")
    if has_inner "$module" && ! grep -q "^${path#src/}:" <<<"$inner"; then
        complain "$path" "is not in the table \`inner\` of scripts/check-includes.sh; add it with what it may include"
    fi
done

for file in src/*.[ch] src/*.cpp src/*.cu src/*.cuh; do
    [ -e "$file" ] && complain "$file" "lies in no module; move it into a folder of src/"
done

# A public function is defined at the beginning of a line, and belongs to the module of its file. Comments and texts do not count as calls.
calls=$(find src -name '*.[ch]' -o -name '*.cpp' -o -name '*.cu' 2>/dev/null | sort | xargs -r awk -v order="$order" '
    BEGIN {
        count = split(order, lines, "\n")
        for (i = 1; i <= count; i++) {
            n = split(lines[i], words, /[: ]+/)
            for (j = 1; j <= n; j++) if (words[1] != "" && words[j] != "") before[words[1], words[j]] = 1
        }
    }
    FNR == 1 { split(FILENAME, path, "/"); module = path[2]; comment = 0 }
    {
        line = $0
        gsub(/"([^"\\]|\\.)*"/, "", line)
        if (comment) { if (!sub(/^.*\*\//, "", line)) next; comment = 0 }
        gsub(/\/\*([^*]|\*[^\/])*\*\//, "", line)
        sub(/\/\/.*$/, "", line)
        if (sub(/\/\*.*$/, "", line)) comment = 1
        if (line ~ /^[a-z][a-z0-9_ ]*[ *]rcv_[a-z0-9_]+\(/ && line !~ /;[ \t]*$/ && line !~ /^(return|else|typedef) /) {
            name = line; sub(/\(.*$/, "", name); sub(/^.*[ *]/, "", name)
            owner[name] = module
            sub(/^[^(]*\(/, "", line)
        }
        while (match(line, /(^|[^a-zA-Z0-9_])rcv_[a-z0-9_]+\(/)) {
            name = substr(line, RSTART, RLENGTH - 1); sub(/^[^a-z]/, "", name)
            used[++uses] = FILENAME ":" FNR ":" module ":" name
            line = substr(line, RSTART + RLENGTH)
        }
    }
    END {
        for (i = 1; i <= uses; i++) {
            split(used[i], at, ":")
            of = owner[at[4]]
            if (of != "" && !((at[3], of) in before))
                print at[1] ":" at[2] ": " at[3] " calls " at[4] "() of " of ", which does not stand before it"
        }
    }')
if [ -n "$calls" ]; then
    echo "$calls"
    status=1
fi

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
