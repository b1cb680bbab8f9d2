#!/usr/bin/env bash
# Measures the speed-up of two ranks (data or pipeline parallel, one core each) over one rank on one core, in turns; the forecast of an update and its
# measured time; the bytes sent. Writes bench/results/parallel-MACHINE.json, with machine, versions, date and commit.
#   bench/parallel.sh BUILD-DIRECTORY
# Environment: RECURVE_RESULTS, another folder for the file; TURNS, 3 by default; SECONDS_EACH, of a run, 8 by default.
set -eu
recurve=$(cd "${1:?usage: bench/parallel.sh BUILD-DIRECTORY}" && pwd)/recurve
cd "$(dirname "$0")/.."
export RECURVE_WISDOM=off # plans of other builds
results=${RECURVE_RESULTS:-bench/results}
turns=${TURNS:-3}
each=${SECONDS_EACH:-8}
command -v mpirun >/dev/null || { echo "bench/parallel.sh needs mpirun" >&2; exit 77; }
mkdir -p "$results"
room=$(mktemp -d)
trap 'rm -rf "$room"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

awk 'BEGIN { srand(7); for (i = 0; i < 40000; i++) { s = ""; n = 4 + int(rand() * 24)
    for (k = 0; k < n; k++) s = s (k ? " " : "") "w" int(rand() * rand() * 8000); print s } }' >"$room/text"
names=(equal words lines)
models=("--level byte --hidden 256 --layers 4 --batch 32 --length 64 --optimiser sgd --learning-rate 0.5"
    "--level word --hidden 200 --layers 2 --batch 20 --length 20 --optimiser sgd --learning-rate 1"
    "--level word --kind lines --buckets none --hidden 128 --layers 4 --batch 32 --optimiser adam --embedding 64")
options="--valid none --threads 1 --seed 1 --seconds $each --log-every 1 --checkpoint-seconds 0 --keep 1 --cache $room --overwrite"

# train NAME LAUNCH OPTIONS
train() {
    local name=$1 launch=$2
    shift 2
    $launch "$recurve" train "$room/text" --output "$room/$name.safetensors" $options "$@" >"$room/said" 2>&1 || { tail -n 3 "$room/said"; return 1; }
}

for turn in $(seq "$turns"); do
    for i in "${!names[@]}"; do
        echo "== turn $turn of $turns: ${names[i]}"
        train "${names[i]}-one-$turn" "taskset -c 0" ${models[i]} --wisdom "$room/wisdom"
        train "${names[i]}-data-$turn" "mpirun -n 2" ${models[i]} --parallel data
        train "${names[i]}-pipeline-$turn" "mpirun -n 2" ${models[i]} --parallel pipeline
    done
done

cpu=$(LC_ALL=C lscpu 2>/dev/null | sed -n 's/^Model name: *//p' | head -n 1)
python3 - "$room" "$results" "$(git rev-parse --short HEAD 2>/dev/null || echo unknown)" "$("$recurve" --version)" \
    "${cpu:-unknown}, $(nproc) cores" "$turns" "${names[@]}" <<'END'
import json, platform, statistics, sys, time

room, results, commit, version, cpu, turns, *names = sys.argv[1:]


def read(name):
    with open(f"{room}/{name}.jsonl") as log:
        events = [json.loads(line) for line in log]
    return {kind: [e for e in events if e["event"] == kind] for kind in ("start", "progress", "end")}


def step_ms(run):
    """Mean milliseconds of an update, without the first two lines of the log."""
    lines = run["progress"][2:]
    return 1e3 * (lines[-1]["seconds"] - lines[0]["seconds"]) / (lines[-1]["step"] - lines[0]["step"])


rows = []
print("model   arrangement   update ms  of one  forecast ms  of real  bytes sent  units  layers")
for name in names:
    one = statistics.median(step_ms(read(f"{name}-one-{t}")) for t in range(1, int(turns) + 1))
    rows.append({"model": name, "how": "one", "step_ms": one})
    print(f"{name:7} one           {one:9.1f}")
    for how in ("data", "pipeline"):
        runs = [read(f"{name}-{how}-{t}") for t in range(1, int(turns) + 1)]
        real = [step_ms(run) for run in runs]
        ranks = [run["start"][0]["ranks"] for run in runs]
        expected = [1e3 * r["expected"]["seconds"] for r in ranks]
        ratio = statistics.median(e / r for e, r in zip(expected, real))
        step, end = statistics.median(real), runs[0]["end"][0]
        rows.append({"model": name, "how": how, "step_ms": step, "speed_up": one / step, "forecast_ms": expected, "each_ms": real,
                     "forecast_of_real": ratio, "bytes_sent": end["sent_most"], "ranks": ranks[0],
                     "parameters": runs[0]["start"][0]["parameters"]})
        print(f"{name:7} {how:12}  {step:9.1f}  {one / step:5.2f}x  {statistics.median(expected):11.1f}  {ratio:7.3f}  "
              f"{end['sent_most']:10.0f}  {ranks[0]['micro_batches']}x{ranks[0]['time_chunks']:<4}  {ranks[0]['split']}")
with open(f"{results}/parallel-{platform.machine()}.json", "w") as out:
    json.dump({"date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), "commit": commit, "version": version,
               "machine": f"{platform.machine()}, {cpu}", "turns": int(turns), "runs": rows}, out, indent=1)
END
