#!/usr/bin/env bash
# Times a GPU and other libraries on the shapes of the table below, one run of `recurve bench` and one line each. Writes the results, with
# machine, versions, date and commit, to bench/results/cuda-NAME-OF-THE-GPU.json.
#   scripts/bench-cuda.sh [PATTERN [SECONDS [BUILD-DIRECTORY]]]     PATTERN: rows whose name it matches; all by default
# Rows that are not run, or that fail, keep their results. The file is written after each row; the output of each row is in
# build/bench-cuda/. Environment:
#   RECURVE_DEVICE   cuda by default; cuda:1, or cpu to try the script
#   RECURVE_RESULTS  another folder for the file; it starts with the rows of the file in bench/results
#   RECURVE_LIMIT    seconds of a row at most, 120 by default
set -u
cd "$(dirname "$0")/.." || exit 1
pattern=${1:-.}
seconds=${2:-2}
build=${3:-build/release}
device=${RECURVE_DEVICE:-cuda}
results=${RECURVE_RESULTS:-bench/results}
limit=${RECURVE_LIMIT:-120}
room=build/bench-cuda

# name | cell T B I H L, or - for no network | options (starting PyTorch takes seconds: two rows have it)
rows='
headline-bf16-forward    | lstm 100 64 512 512 4   | --dtype bfloat16 --pass forward
headline-bf16-train      | lstm 100 64 512 512 4   | --dtype bfloat16 --pass train
headline-tf32-forward    | lstm 100 64 512 512 4   | --dtype tfloat32 --pass forward --no-torch
headline-tf32-train      | lstm 100 64 512 512 4   | --dtype tfloat32 --pass train --no-torch
headline-fp16-forward    | lstm 100 64 512 512 4   | --dtype float16 --pass forward --no-torch
headline-fp16-train      | lstm 100 64 512 512 4   | --dtype float16 --pass train --no-torch
headline-fp32-forward    | lstm 100 64 512 512 4   | --dtype float32 --pass forward --no-torch
headline-fp32-train      | lstm 100 64 512 512 4   | --dtype float32 --pass train --no-torch
ladder-fp32              | lstm 100 64 512 512 4   | --dtype float32 --pass forward --ladder --no-torch
ladder-bf16              | lstm 100 64 512 512 4   | --dtype bfloat16 --pass forward --ladder --no-torch
medium-bf16-train        | lstm 35 20 650 650 2    | --dtype bfloat16 --pass train --no-torch
medium-tf32-train        | lstm 35 20 650 650 2    | --dtype tfloat32 --pass train --no-torch
medium-fp32-train        | lstm 35 20 650 650 2    | --dtype float32 --pass train --no-torch
medium-bf16-forward      | lstm 35 20 650 650 2    | --dtype bfloat16 --pass forward --no-torch
medium-fp32-forward      | lstm 35 20 650 650 2    | --dtype float32 --pass forward --no-torch
large-bf16-train         | lstm 35 20 1500 1500 2  | --dtype bfloat16 --pass train --no-torch
large-tf32-train         | lstm 35 20 1500 1500 2  | --dtype tfloat32 --pass train --no-torch
large-fp32-train         | lstm 35 20 1500 1500 2  | --dtype float32 --pass train --no-torch
large-bf16-forward       | lstm 35 20 1500 1500 2  | --dtype bfloat16 --pass forward --no-torch
large-fp32-forward       | lstm 35 20 1500 1500 2  | --dtype float32 --pass forward --no-torch
gru-bf16-forward         | gru 100 64 512 512 4    | --dtype bfloat16 --pass forward --no-torch
gru-bf16-train           | gru 100 64 512 512 4    | --dtype bfloat16 --pass train --no-torch
peephole-bf16-forward    | lstm_peephole 100 64 512 512 4  | --dtype bfloat16 --pass forward --no-torch
peephole-bf16-train      | lstm_peephole 100 64 512 512 4  | --dtype bfloat16 --pass train --no-torch
layernorm-bf16-forward   | lstm_layernorm 100 64 512 512 4 | --dtype bfloat16 --pass forward --no-torch
layernorm-bf16-train     | lstm_layernorm 100 64 512 512 4 | --dtype bfloat16 --pass train --no-torch
batches-bf16-forward     | lstm 100 64 512 512 4   | --dtype bfloat16 --pass forward --batches --no-torch
one-layer-bf16-forward   | lstm 100 64 512 512 1   | --dtype bfloat16 --pass forward --no-torch
one-layer-bf16-train     | lstm 100 64 512 512 1   | --dtype bfloat16 --pass train --no-torch
one-layer-fp32-forward   | lstm 100 64 512 512 1   | --dtype float32 --pass forward --no-torch
one-layer-fp32-train     | lstm 100 64 512 512 1   | --dtype float32 --pass train --no-torch
single-bf16-forward      | lstm 100 1 512 512 1    | --dtype bfloat16 --pass forward --no-torch
single-bf16-train        | lstm 100 1 512 512 1    | --dtype bfloat16 --pass train --no-torch
single-fp32-forward      | lstm 100 1 512 512 1    | --dtype float32 --pass forward --no-torch
single-fp32-train        | lstm 100 1 512 512 1    | --dtype float32 --pass train --no-torch
wide-bf16-forward        | lstm 512 8 1024 1024 1  | --dtype bfloat16 --pass forward --no-torch
wide-bf16-train          | lstm 512 8 1024 1024 1  | --dtype bfloat16 --pass train --no-torch
wide-fp32-forward        | lstm 512 8 1024 1024 1  | --dtype float32 --pass forward --no-torch
wide-fp32-train          | lstm 512 8 1024 1024 1  | --dtype float32 --pass train --no-torch
long-bf16-forward        | lstm 1024 16 768 768 1  | --dtype bfloat16 --pass forward --no-torch
long-bf16-train          | lstm 1024 16 768 768 1  | --dtype bfloat16 --pass train --no-torch
long-fp32-forward        | lstm 1024 16 768 768 1  | --dtype float32 --pass forward --no-torch
long-fp32-train          | lstm 1024 16 768 768 1  | --dtype float32 --pass train --no-torch
big-bf16-forward         | lstm 256 128 1024 1024 2 | --dtype bfloat16 --pass forward --no-torch
big-bf16-train           | lstm 256 128 1024 1024 2 | --dtype bfloat16 --pass train --no-torch
big-fp32-forward         | lstm 256 128 1024 1024 2 | --dtype float32 --pass forward --no-torch
big-fp32-train           | lstm 256 128 1024 1024 2 | --dtype float32 --pass train --no-torch
small-bf16-forward       | lstm 100 64 128 128 2   | --dtype bfloat16 --pass forward --no-torch
small-bf16-train         | lstm 100 64 128 128 2   | --dtype bfloat16 --pass train --no-torch
small-fp32-forward       | lstm 100 64 128 128 2   | --dtype float32 --pass forward --no-torch
small-fp32-train         | lstm 100 64 128 128 2   | --dtype float32 --pass train --no-torch
scan-fp32                | -                       | --scan --dtype float32
scan-bf16                | -                       | --scan --dtype bfloat16
lengths-fp32             | -                       | --lengths auto --dtype float32
lengths-bf16             | -                       | --lengths auto --dtype bfloat16
'

mkdir -p "$results" "$room"
description=$("$build/recurve" plan --device "$device" --hidden 16 --steps 2 --batch 2 --effort estimate) || exit 1
name=$(sed -n 's/^Device: *\([^,]*\),.*/\1/p' <<<"$description" | tr -cs 'A-Za-z0-9\n' -)
out=$results/cuda-${name:-$device}.json
echo "$(sed -n 's/^Device: *//p' <<<"$description")"

# keep NAME: adds the row's numbers to the file; without Python, writes them to a file of their own
keep() {
    command -v python3 >/dev/null || { cp "$room/$1.json" "${out%.json}.$1.json"; return; }
    python3 - "$out" "bench/results/${out##*/}" "$room/$1.json" "$1" <<'END'
import json, os, sys
out, before, path, name = sys.argv[1:]
known = next((p for p in (out, before) if os.path.exists(p)), None)
runs = json.load(open(known)) if known else {}
runs[name] = json.load(open(path))
with open(out + ".part", "w") as file:
    json.dump(runs, file, indent=1, sort_keys=True)
    file.write("\n")
os.replace(out + ".part", out)
END
}

# line FILE: a summary of a row's output
line() {
    awk '/^Plan:/ { plan = $2 } /^Planned:/ { planned = $3 }
         $1 ~ /^(recurve|cuDNN|oneDNN|PyTorch)$/ && $2 ~ /^[0-9.]+$/ {
             who = who sprintf("  %s %s ms", $1, $2)
             if ($1 == "recurve") who = who " " $5; else who = who sprintf(" (%sx)", $6)
             if ($NF == "differ") who = who " RESULTS DIFFER" }
         END { printf "%s  planned in %s s: %s\n", who, planned, plan }' "$1"
}

failed=
count=0
begin=$(date +%s)
while IFS='|' read -r row shape options; do
    row=$(echo $row)
    [ -n "$row" ] && [[ $row =~ $pattern ]] || continue
    set -- $shape
    count=$((count + 1))
    rm -f "$room/$row.json"
    network=
    [ "$1" = - ] || network="--cell $1 --steps $2 --batch $3 --input $4 --hidden $5 --layers $6 --anchors"
    timeout -k 10 "$limit" "$build/recurve" bench --device "$device" $network $options --seconds "$seconds" --json "$room/$row.json" >"$room/$row.txt" 2>&1 </dev/null
    status=$?
    if [ $status = 0 ] && keep "$row"; then
        [ -z "$network" ] && echo "$row" || printf '%-24s%s\n' "$row" "$(line "$room/$row.txt")"
        case $row in lengths*) sed -n '/^cell /,$p' "$room/$row.txt" ;; esac
        case $row in scan*) sed -n '/^Copy:/p; /^Targets$/,$p' "$room/$row.txt" ;; esac
        case $row in ladder* | batches*) sed -n '/^\(Ladder\|Batch sizes\)$/,/^$/p' "$room/$row.txt" ;; esac
    else
        failed="$failed $row"
        [ $status = 124 ] || [ $status = 137 ] && echo "more than $limit seconds" >>"$room/$row.txt"
        printf '%-24s  FAILED (%d): %s\n' "$row" "$status" "$(tail -n 1 "$room/$row.txt")"
    fi
done <<<"$rows"
echo "$count rows in $(($(date +%s) - begin)) s"
for file in "$out" "${out%.json}".*.json; do
    [ ! -e "$file" ] || echo "wrote $file"
done
[ -z "$failed" ] || { echo "failed:$failed"; exit 1; }
