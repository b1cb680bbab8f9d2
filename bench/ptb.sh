#!/usr/bin/env bash
# Language models on Penn Treebank and WikiText-2: speed and memory compared with the same model in PyTorch, timed in turns; perplexity
# of complete training runs; the speed-up by buckets. Writes summaries of the logs, with machine, versions, date and commit, to
# bench/results/training-NAME-OF-THE-GPU.json.
#   bench/ptb.sh DATA [BUILD-DIRECTORY [PARTS]]
# DATA: a folder with ptb/ and wikitext-2/. PARTS: some of `speed quality beside buckets cpu`, by default all but cpu. `beside` compares the
# perplexity after one epoch with PyTorch's. Environment: RECURVE_RESULTS, another folder for the file; DEVICE, cuda by default; TURNS, 2 by default; MODELS, those of
# `speed` and `quality`; PYTHON, one that has PyTorch.
set -eu
data=$(cd "${1:?usage: bench/ptb.sh DATA [BUILD-DIRECTORY [PARTS]]}" && pwd)
cd "$(dirname "$0")/.."
recurve=$(cd "${2:-build/release}" && pwd)/recurve
parts=${3:-speed quality beside buckets}
export RECURVE_WISDOM=off # plans of other builds
results=${RECURVE_RESULTS:-bench/results}
device=${DEVICE:-cuda}
turns=${TURNS:-2}
models=${MODELS:-ptb:small ptb:medium ptb:large wikitext-2:medium}
room=build/bench-ptb
mkdir -p "$room" "$results"
rm -f "$room"/*.jsonl "$room"/*.safetensors

# train NAME CORPUS OPTIONS...: the log is $room/NAME.jsonl
train() {
    local name=$1 corpus=$2
    shift 2
    echo "== $name: recurve train $corpus $*"
    "$recurve" train "$data/$corpus" --cache "$room" --device "$on" --output "$room/$name.safetensors" \
        --wisdom "$room/wisdom" --overwrite "$@" 2>"$room/$name.txt" || { tail -n 3 "$room/$name.txt"; return 1; }
    grep -E '"event":"(end|test)"' "$room/$name.jsonl"
}
torch() { # NAME CORPUS OPTIONS...
    local name=$1 corpus=$2
    shift 2
    echo "== $name: lm_torch.py $corpus $*"
    ${PYTHON:-python3} bench/lm_torch.py "$data/$corpus" --device "$on" "$@" | tee "$room/$name.jsonl"
}

for part in $parts; do
    on=$device
    case $part in
    speed)
        for which in $models; do
            IFS=: read -r corpus size <<<"$which"
            for turn in $(seq "$turns"); do
                for type in tf32 bf16 fp32; do
                    torch "torch-$corpus-$size-$type-$turn" "$corpus" --preset "zaremba-$size" --dtype $type --steps 150
                done
                train "speed-$corpus-$size-$turn" "$corpus" --preset "zaremba-$size" --dtype bfloat16 --steps 1500 \
                    --epochs 0 --keep 1 --checkpoint-seconds 0 --test none
            done
        done
        ;;
    quality)
        for which in $models; do
            IFS=: read -r corpus size <<<"$which"
            train "quality-$corpus-$size" "$corpus" --preset "zaremba-$size" --dtype bfloat16 --keep 1
        done
        ;;
    beside)
        for which in ptb:medium wikitext-2:medium; do
            IFS=: read -r corpus size <<<"$which"
            torch "torch-beside-$corpus-$size" "$corpus" --preset "zaremba-$size" --dtype tf32 --epochs 1
            train "beside-$corpus-$size" "$corpus" --preset "zaremba-$size" --dtype bfloat16 --epochs 1 --keep 1 --test none
        done
        ;;
    buckets)
        for turn in $(seq "$turns"); do
            for buckets in none auto:8 auto; do
                train "buckets-$buckets-$turn" ptb --kind lines --level word --layers 8 --hidden 512 --batch 256 \
                    --optimiser sgd --learning-rate 0.5 --dtype bfloat16 --buckets "$buckets" --steps 3000 --keep 1 --test none
            done
        done
        ;;
    cpu)
        on=cpu
        for turn in $(seq "$turns"); do
            for type in fp32 bf16; do
                torch "torch-cpu-small-$type-$turn" ptb --preset zaremba-small --dtype $type --steps 60 --warm 10 --threads 2
            done
            for type in float32 bfloat16; do
                train "cpu-small-$type-$turn" ptb --preset zaremba-small --dtype $type --threads 2 --steps 150 --epochs 0 --keep 1 --test none
            done
        done
        ;;
    esac
done

cpu=$(LC_ALL=C lscpu 2>/dev/null | sed -n 's/^Model name: *//p' | head -n 1)
python3 - "$room" "$results" "$device" "$(git rev-parse --short HEAD 2>/dev/null || echo unknown)" "$("$recurve" --version)" \
    "${cpu:-unknown}, $(nproc) cores" <<'END'
import glob, json, os, platform, subprocess, sys, time
room, results, device, commit, version, cpu = sys.argv[1:]
rows = {}


def settled(lines):
    """Tokens a second in the second half of the run."""
    seen = [(p["seconds"], p["tokens_per_second"] * p["seconds"]) for p in lines if p.get("event") == "progress"]
    late = [p for p in seen if p[0] >= seen[-1][0] / 2] if seen else []
    return (late[-1][1] - late[0][1]) / (late[-1][0] - late[0][0]) if len(late) > 1 else None


for path in sorted(glob.glob(f"{room}/*.jsonl")):
    name = os.path.basename(path)[:-6]
    lines = [json.loads(line) for line in open(path) if line.strip()]
    if name.startswith("torch"):
        rows[name] = {**lines[-1], "commit": commit}
        continue
    first, last = {}, {}
    validations = []
    for line in lines:
        event = line.get("event")
        if event == "start":
            first = {k: line[k] for k in ("parameters", "tokens", "bytes", "shapes", "plans")}
            first["settings"] = {k: v for k, v in line["settings"].items() if k not in ("data", "cache", "wisdom", "log")}
        elif event == "validation":
            validations.append(line.get("perplexity"))
        elif event == "test":
            last["test_perplexity"] = line["perplexity"]
        elif event == "end":
            last["settled_tokens_per_second"] = settled(lines)
            last.update({k: line[k] for k in ("reason", "step", "epoch", "seconds", "tokens_per_second", "loss")})
    rows[name] = {**first, **last, "validation_perplexities": validations, "commit": commit}
try:
    gpu = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True).stdout
except OSError:
    gpu = ""
name = (gpu.split("\n")[0].strip() if device.startswith("cuda") else platform.machine()).replace(" ", "-") or "GPU"
path = f"{results}/training-{name}.json"
kept = json.load(open(path))["runs"] if os.path.exists(path) else {}
kept.update(rows)
with open(path, "w") as out:
    json.dump({"date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), "commit": commit, "version": version,
               "machine": {"device": name, "cpu": f"{platform.machine()}, {cpu}"}, "runs": kept}, out, indent=1)
best = lambda prefix: max((r.get("settled_tokens_per_second") or r["tokens_per_second"] for n, r in rows.items() if n.startswith(prefix)), default=None)
for which in ("ptb-small", "ptb-medium", "ptb-large", "wikitext-2-medium"):
    ours, theirs = best(f"speed-{which}-"), best(f"torch-{which}-")
    if ours and theirs:
        mine = next(r["bytes"] for n, r in rows.items() if n.startswith(f"speed-{which}-"))
        other = min(r["bytes"] for n, r in rows.items() if n.startswith(f"torch-{which}-tf32"))
        print(f"{which:18} {ours:10.0f} tokens/s, PyTorch's best {theirs:8.0f}: {ours / theirs:5.2f}x; "
              f"{mine / 2**20:6.0f} MiB, PyTorch {other / 2**20:6.0f}: {mine / other:4.2f}")
for n, r in rows.items():
    if n.startswith("quality"):
        print(f"{n[8:]:18} test perplexity {r.get('test_perplexity', 0):7.2f}, {r['seconds']:6.1f} s, {r['tokens_per_second']:9.0f} tokens/s")
for which in ("ptb-medium", "wikitext-2-medium"):
    ours, theirs = rows.get(f"beside-{which}"), rows.get(f"torch-beside-{which}")
    if ours and theirs:
        print(f"{which:18} validation perplexity after one epoch {ours['validation_perplexities'][-1]:.1f}, PyTorch {theirs['validation_perplexity']:.1f}")
none = best("buckets-none")
for which in ("auto:8", "auto"):
    chosen = best(f"buckets-{which}-")
    if none and chosen:
        shapes = next(r for n, r in rows.items() if n.startswith(f"buckets-{which}-"))
        padded = sum(s["steps"] * s["batch"] * s["batches"] for s in shapes["shapes"])
        print(f"buckets {which:7} {chosen:10.0f} tokens/s, none {none:8.0f}: {chosen / none:4.2f}x; padded/ideal {padded / shapes['tokens']:.4f}")
for ours, theirs in (("float32", "fp32"), ("bfloat16", "bf16")):
    mine, other = best(f"cpu-small-{ours}"), best(f"torch-cpu-small-{theirs}")
    if mine and other:
        print(f"small on 2 threads of a CPU, {ours}: {mine:.0f} tokens/s, PyTorch {other:.0f}: {mine / other:.2f}x")
print(f"wrote {path}")
END
