#!/usr/bin/env bash
# Times the CPU and other libraries on the shapes of the table below, one run of `recurve bench` each. Prints the tables, and writes the
# results, with machine, versions, date and commit, to bench/results/cpu-ARCHITECTURE.json.
#   scripts/bench-cpu.sh [PATTERN [SECONDS [BUILD-DIRECTORY]]]     PATTERN: rows whose name it matches; all by default
# Rows that are not run keep their results. The exhaustive planning of planner-* takes up to some minutes, so those with the headline's shape
# have 20 steps.
set -eu
cd "$(dirname "$0")/.."
pattern=${1:-.}
seconds=${2:-10}
build=${3:-build/release}
out=bench/results/cpu-$(uname -m).json
room=build/bench-cpu
rm -rf "$room"
mkdir -p bench/results "$room"

# name | T B I H L | options
rows='
headline-forward    | 100 64 512 512 4   | --pass forward
headline-train      | 100 64 512 512 4   | --pass train
headline-bf16       | 100 64 512 512 4   | --pass forward --dtype bfloat16
headline-bf16-train | 100 64 512 512 4   | --pass train --dtype bfloat16
medium-train        | 35 20 650 650 2    | --pass train
small-train         | 35 20 200 200 2    | --pass train
single-forward      | 100 1 256 256 1    | --pass forward
single-train        | 100 1 256 256 1    | --pass train
wide-forward        | 100 1 1024 1024 1  | --pass forward
wide-bf16           | 100 1 1024 1024 1  | --pass forward --dtype bfloat16
ladder              | 100 64 512 512 4   | --pass forward --ladder
rank                | 100 1 256 256 1    | --pass forward --rank 32
streaming           | 100 1 256 256 1    | --pass forward --streaming
planner-headline-forward    | 20 64 512 512 4    | --pass forward --planner
planner-headline-train      | 20 64 512 512 4    | --pass train --planner
planner-headline-bf16       | 20 64 512 512 4    | --pass forward --dtype bfloat16 --planner
planner-headline-bf16-train | 20 64 512 512 4    | --pass train --dtype bfloat16 --planner
planner-medium-train        | 35 20 650 650 2    | --pass train --planner
planner-small-train         | 35 20 200 200 2    | --pass train --planner
planner-single-forward      | 100 1 256 256 1    | --pass forward --planner
planner-single-train        | 100 1 256 256 1    | --pass train --planner
planner-wide-forward        | 100 1 1024 1024 1  | --pass forward --planner
planner-wide-bf16           | 100 1 1024 1024 1  | --pass forward --dtype bfloat16 --planner
'
most=$(nproc)
[ "$most" -lt 2 ] || most=2
for threads in $(seq 1 "$most"); do
    while IFS='|' read -r name shape options; do
        name=$(echo $name)
        [ -n "$name" ] && [[ $name-$threads =~ $pattern ]] || continue
        set -- $shape
        anchors=--anchors
        case $name in ladder | rank | streaming | planner-*) anchors= ;; esac
        printf '\n== %s, %d thread(s)\n' "$name" "$threads"
        "$build/recurve" bench --cell lstm --steps "$1" --batch "$2" --input "$3" --hidden "$4" --layers "$5" $options $anchors \
            --threads "$threads" --seconds "$seconds" --json "$room/$name-$threads.json"
    done <<<"$rows"
done
/usr/bin/python3 - "$out" "$room" <<'END'
import glob, json, os, sys
out, room = sys.argv[1:]
runs = json.load(open(out)) if os.path.exists(out) else {}
for path in sorted(glob.glob(room + "/*.json")):
    runs[os.path.basename(path)[:-5]] = json.load(open(path))
json.dump(runs, open(out, "w"), indent=1, sort_keys=True)
open(out, "a").write("\n")
END
echo
echo "wrote $out"
