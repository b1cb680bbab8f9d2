#!/usr/bin/env bash
# recurve predict against the same forward passes by recurve bench, in turns: an LSTM of 128 features, 100,000 sequences of 50 steps, 1 and 8 features, 5 classes.
#   bench/predict.sh [RECURVE]
# The data is an array (.npy) whose token cache is there; the answers are written into a table. Environment: SEQUENCES, 100000 by default; TURNS, 5; THREADS, 2.
set -eu
recurve=$(realpath "${1:-build/release/recurve}")
sequences=${SEQUENCES:-100000} turns=${TURNS:-5} threads=${THREADS:-2}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

python3 - "$sequences" <<'END'
import array, json, random, sys
count, steps = int(sys.argv[1]), 50
random.seed(1)
for features in (1, 8):
    some = [array.array("f", (random.gauss(0, 1) for _ in range(steps * features))) for _ in range(500)]
    with open(f"data{features}.npy", "wb") as file:
        header = str({"descr": "<f4", "fortran_order": False, "shape": (count, steps, features)}).encode()
        header += b" " * (-(len(header) + 11) % 64) + b"\n"
        file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
        for _ in range(count):
            file.write(random.choice(some).tobytes())
    with open(f"train{features}.jsonl", "w") as file:
        for i in range(50):
            x = [list(some[i][features * t : features * t + features]) for t in range(steps)]
            print(json.dumps({"x": x, "y": f"class {i % 5}"}), file=file)
END
for features in 1 8; do
    "$recurve" train train$features.jsonl --kind classes --hidden 128 --steps 2 --effort estimate --output model$features --quiet
    "$recurve" predict model$features data$features.npy --threads "$threads" --output first$features.csv # writes the cache
done
for ((turn = 0; turn < turns; turn++)); do
    for features in 1 8; do
        begin=$(date +%s.%N)
        "$recurve" predict model$features data$features.npy --threads "$threads" --output new$features.csv --overwrite
        end=$(date +%s.%N)
        "$recurve" bench --cell lstm --hidden 128 --input $features --steps 50 --batch 256 --threads "$threads" --seconds 3 --json bench.json >/dev/null
        python3 - "$features" "$begin" "$end" "$sequences" >>turns <<'END'
import json, sys
features, begin, end, sequences = sys.argv[1:]
found = json.load(open("bench.json"))
seconds = next(i["median"] for i in found["entries"] if i["name"] == "recurve")
print(features, float(end) - float(begin), seconds * int(sequences) / 256)
END
    done
done
python3 - "$sequences" <<'END'
import statistics, sys
rows = [list(map(float, line.split())) for line in open("turns")]
print(f"{sys.argv[1]} sequences of 50 steps, LSTM 128, 5 classes; medians of the turns")
print(f"{'features':>8} {'predict s':>10} {'forward s':>10} {'ratio':>7}")
for features in (1, 8):
    own = [row for row in rows if row[0] == features]
    predict, forward = (statistics.median(row[i] for row in own) for i in (1, 2))
    print(f"{features:8} {predict:10.3f} {forward:10.3f} {predict / forward:7.3f}")
END
