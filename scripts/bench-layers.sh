#!/usr/bin/env bash
# Times training steps of layers whose recurrences are scans, and compares them with a lower bound (`count`): the time of their matrix products
# alone, plus the bytes that everything else must move (see docs/SCAN.md) at the bandwidth of a copy. Writes the results, with machine,
# versions, date and commit, to bench/results/layers-NAME-OF-THE-GPU.json.
#   scripts/bench-layers.sh [SECONDS [BUILD-DIRECTORY]]
# Environment: RECURVE_RESULTS, another folder for the file.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-2}
recurve=${2:-build/release}/recurve
results=${RECURVE_RESULTS:-bench/results}
room=build/bench-layers
steps=16384 batch=8 hidden=512
mkdir -p "$room" "$results"

# cell, bytes moved for each element of [steps, batch, hidden]
layers='
sru       60
qrnn_fo   52
gilr_lstm 88
'

"$recurve" bench --scan --device cuda --elements 134217728 --seconds 2 --json "$room/scan.json" >"$room/scan.txt"
while read -r cell bytes; do
    [ "$cell" ] || continue
    measure() { # NAME OPTIONS...
        local name=$1
        shift
        "$recurve" bench --cell "$cell" --steps $steps --batch $batch --hidden $hidden --dtype bfloat16 --pass train \
            --device cuda --seconds "$seconds" --json "$room/$cell-$name.json" "$@" >"$room/$cell-$name.txt"
    }
    measure whole
    plan=$(sed -n 's/^Plan: *//p' "$room/$cell-whole.txt")
    RECURVE_ONLY=products measure products --schedule "$plan"
    measure again --schedule "$plan"
    echo "$cell $bytes"
done <<<"$layers" >"$room/cells.txt"

python3 - "$room" "$results" "$((steps * batch * hidden))" <<'END'
import json, sys
room, results, elements = sys.argv[1], sys.argv[2], int(sys.argv[3])
load = lambda name: json.load(open(f"{room}/{name}.json"))
median = lambda j: next(c for c in j["entries"] if c["name"] == "recurve")["median"]
scan = load("scan")
large = [p for p in scan["scan"]["points"] if p["steps"] * p["batch"] * p["channels"] >= 64 << 20 and p["copy"]]
copy = max(p["copy"] for p in large)  # of arrays larger than the caches
rows = []
print(f"a copy: {copy / 1e12:.2f} TB/s")
print(f"{'cell':10} {'products':>9} {'bytes':>9} {'count':>9} {'step':>9}   of the count")
for line in open(f"{room}/cells.txt"):
    cell, each = line.split()[0], int(line.split()[1])
    whole, products, again = (load(f"{cell}-{n}") for n in ("whole", "products", "again"))
    moved, step, alone = each * elements / copy, min(median(whole), median(again)), median(products)
    rows.append({"cell": cell, "bytes_an_element": each, "products": alone, "bytes": moved, "count": alone + moved,
                 "step": step, "of_the_count": step / (alone + moved), "runs": {"whole": whole, "products": products}})
    print(f"{cell:10} {alone * 1e3:7.3f} ms {moved * 1e3:6.3f} ms {(alone + moved) * 1e3:6.3f} ms {step * 1e3:6.3f} ms"
          f"   {step / (alone + moved):.2f}")
name = (scan["machine"]["device"] or "GPU").split(",")[0].strip().replace(" ", "-")
with open(f"{results}/layers-{name}.json", "w") as out:
    json.dump({"copy": copy, "layers": rows}, out, indent=1)
    out.write("\n")
END
