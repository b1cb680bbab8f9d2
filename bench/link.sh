#!/usr/bin/env bash
# Measures which share of the all-reduce of gradients is hidden by the backward pass, over a link of a known bandwidth. Two ranks run in two
# network namespaces, connected by a pair of virtual interfaces that is limited by a token bucket in each direction; mpirun uses a second pair.
# For comparison: one rank, and two ranks without a limit. Writes bench/results/link-MACHINE.json, with machine, versions, date and commit.
#   bench/link.sh BUILD-DIRECTORY [BANDWIDTH...]
# Bandwidths are in Mbit/s. Needs root, iproute2 and Open MPI.
# Environment: RECURVE_RESULTS, another folder for the file; TURNS, 3 by default; STEPS, updates of a run, 60 by default; MODEL, options of
# the trained model.
set -eu
recurve=$(cd "${1:?usage: bench/link.sh BUILD-DIRECTORY [BANDWIDTH...]}" && pwd)/recurve
shift
bandwidths=${*:-500 1000 2000}
cd "$(dirname "$0")/.."
export RECURVE_WISDOM=off # plans of other builds
results=${RECURVE_RESULTS:-bench/results}
turns=${TURNS:-3}
steps=${STEPS:-60}
model=${MODEL:---hidden 256 --layers 4 --length 64 --optimiser adam}
batch=16 # of a rank
[ "$(id -u)" = 0 ] && command -v tc >/dev/null && command -v mpirun >/dev/null ||
    { echo "bench/link.sh needs root, iproute2 and Open MPI" >&2; exit 77; }
mkdir -p "$results"
room=$(mktemp -d)
here=link-a-$$ there=link-b-$$
trap 'ip netns del $here 2>/dev/null; ip netns del $there 2>/dev/null; rm -rf "$room"' EXIT
trap 'exit 130' INT TERM
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# ---- the link ----

ip netns add $here
ip netns add $there
for pair in control:10.77.0 wire:10.77.1; do
    ip link add ${pair%:*} netns $here type veth peer name ${pair%:*} netns $there
    ip -n $here address add ${pair#*:}.1/24 dev ${pair%:*}
    ip -n $there address add ${pair#*:}.2/24 dev ${pair%:*}
done
for space in $here $there; do
    for device in lo control wire; do ip -n $space link set $device up mtu 9000; done
done
# The launch agent of mpirun: starts ranks of the other host in the other namespace, with another host name.
printf '#!/bin/sh\nshift\nexec ip netns exec %s unshare --uts sh -c "hostname %s; $*"\n' $there $there >"$room/agent"
# Every rank is bound to one core, which its progress thread shares, as if the ranks were on two machines.
printf '#!/bin/sh\nexec taskset -c "${OMPI_COMM_WORLD_RANK:-0}" "$@"\n' >"$room/pinned"
chmod +x "$room/agent" "$room/pinned"

limit() { # Mbit/s, or none
    for space in $here $there; do
        tc -n $space qdisc del dev wire root 2>/dev/null || true
        [ "$1" = none ] || tc -n $space qdisc add dev wire root tbf rate "$1mbit" burst 64kb limit 16mb
    done
}

# Bytes sent, with all headers: the queue counts every segment of a large packet.
sent() { tc -n $here -s -j qdisc show dev wire | python3 -c 'import json, sys; print(json.load(sys.stdin)[0].get("bytes", 0))'; }

# ---- runs ----

awk 'BEGIN { srand(7); for (i = 0; i < 40000; i++) { s = ""; for (k = 0; k < 8; k++) s = s " " int(rand() * rand() * 1000); print s } }' >"$room/text"
options="--level byte --valid none --epochs 0 --checkpoint-seconds 0 --keep 1 --log-every 1 --threads 1 --seed 1 --wisdom $room/wisdom --overwrite $model"

one() { # NAME
    "$room/pinned" "$recurve" train "$room/text" --output "$room/$1.safetensors" --batch $batch --steps "$steps" $options >"$room/said" 2>&1 ||
        { tail -n 3 "$room/said"; return 1; }
}
two() { # NAME STEPS
    local before
    before=$(sent)
    ip netns exec $here mpirun --mca plm_rsh_agent "$room/agent" --mca oob_tcp_if_include control --mca btl tcp,self \
        --mca btl_tcp_if_include wire --bind-to none --host localhost:1,10.77.0.2:1 -n 2 \
        "$room/pinned" "$recurve" train "$room/text" --output "$room/$1.safetensors" --batch $((2 * batch)) --steps "$2" --parallel data \
        $options >"$room/said" 2>&1 || { tail -n 3 "$room/said"; return 1; }
    echo $(($(sent) - before)) >"$room/$1.bytes"
}

one warm # plans are chosen here
two warm 1
for turn in $(seq "$turns"); do
    echo "== turn $turn of $turns"
    one one-$turn
    for bandwidth in none $bandwidths; do
        limit "$bandwidth"
        two "two-$bandwidth-$turn" "$steps"
        [ "$turn" != 1 ] || two "first-$bandwidth" 1
    done
done

# ---- results ----

cpu=$(LC_ALL=C lscpu 2>/dev/null | sed -n 's/^Model name: *//p' | head -n 1)
python3 - "$room" "$results" "$(git rev-parse --short HEAD 2>/dev/null || echo unknown)" "$("$recurve" --version)" \
    "${cpu:-unknown}, $(nproc) cores" "$batch" "$turns" none $bandwidths <<'END'
import json, platform, statistics, sys, time

room, results, commit, version, cpu, batch, turns, *bandwidths = sys.argv[1:]
median = lambda values: statistics.median(values) if values else 0


def read(name):
    with open(f"{room}/{name}.jsonl") as log:
        events = [json.loads(line) for line in log]
    return {kind: [e for e in events if e["event"] == kind] for kind in ("start", "progress", "timeline", "end")}


def step_ms(runs):
    """Median milliseconds of an update, without the first ten, from one line of the log to the next."""
    pairs = [zip(run["progress"][10:], run["progress"][11:]) for run in runs]
    return median([1e3 * (b["seconds"] - a["seconds"]) / (b["step"] - a["step"]) for all in pairs for a, b in all])


def union(spans):
    total, until = 0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0, end - max(begin, until))
        until = max(until, end)
    return total


def measure(timeline):
    """Milliseconds of a rank's update: backward pass; all-reduces in flight; waiting for them, which is a wait span directly before an exchange
    span in the log."""
    spans = timeline["spans"]
    of = lambda kind: [(begin, end) for name, _, begin, end in spans if name == kind]
    waits = [b[3] - b[2] for b, x in zip(spans, spans[1:]) if b[0] == "wait" and x[0] == "exchange"]
    return [1e3 * union(of("backward")), 1e3 * union(of("exchange")), 1e3 * sum(waits)]


alone = [read(f"one-{turn}") for turn in range(1, int(turns) + 1)]
one = step_ms(alone)
rows, start = [], None
for bandwidth in bandwidths:
    runs = [read(f"two-{bandwidth}-{turn}") for turn in range(1, int(turns) + 1)]
    start, end = runs[0]["start"][0], runs[0]["end"][0]
    seen = [measure(t) for run in runs for t in run["timeline"]]
    backward, exchange, wait = (median(column) for column in zip(*seen))
    row = {"mbit_per_second": None if bandwidth == "none" else float(bandwidth), "step_ms": step_ms(runs),
           "backward_ms": backward, "exchange_ms": exchange, "wait_ms": wait,
           "hidden": median([1 - w / x for _, x, w in seen if x > 0]), "traces": len(seen),
           "bytes_sent": end["sent_most"], "bytes_least": start["parameters"] * 4 + 32, "plans": start["plans"]}
    if bandwidth != "none":
        first = int(open(f"{room}/first-{bandwidth}.bytes").read())
        all = median([int(open(f"{room}/two-{bandwidth}-{turn}.bytes").read()) for turn in range(1, int(turns) + 1)])
        row["bytes_on_wire"] = (all - first) / (end["step"] - 1)
        row["link_ms"] = row["bytes_on_wire"] * 8e-3 / float(bandwidth)
    rows.append(row)
free = rows[0]["step_ms"]
for row in rows[1:]:  # from the time that an update takes longer than without a limit; this includes the cost of the link for the cores
    row["hidden_by_step"] = 1 - (row["step_ms"] - free) / row["link_ms"]
settings = {k: start["settings"][k] for k in ("cell", "hidden", "layers", "length", "level", "optimiser", "dtype", "threads")}
settings["batch of a rank"] = int(batch)
with open(f"{results}/link-{platform.machine()}.json", "w") as out:
    json.dump({"date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), "commit": commit, "version": version,
               "machine": {"cpu": f"{platform.machine()}, {cpu}", "transport": start["ranks"]["transport"]},
               "settings": settings, "parameters": start["parameters"], "ranks": 2,
               "one_rank": {"step_ms": one, "plans": alone[0]["start"][0]["plans"]}, "runs": rows}, out, indent=1)
print(f"one rank: {one:.1f} ms an update; plan of two {start['plans'][0]}")
print("  Mbit/s  update ms  of no limit  backward ms  exchange ms  waits ms  hidden  by update   bytes sent  of least  on the wire  of sent")
for row in rows:
    wire = row.get("bytes_on_wire")
    print(f"{row['mbit_per_second'] or 'none':>8}  {row['step_ms']:9.1f}  {row['step_ms'] / free:11.3f}  {row['backward_ms']:11.1f}  "
          f"{row['exchange_ms']:11.1f}  {row['wait_ms']:8.1f}  {100 * row['hidden']:5.1f}%  "
          + (f"{100 * row['hidden_by_step']:8.1f}%" if wire else 9 * " ") + f"  {row['bytes_sent']:11.0f}  "
          f"{row['bytes_sent'] / row['bytes_least']:8.6f}" + (f"  {wire:11.0f}  {wire / row['bytes_sent']:7.4f}" if wire else ""))
print(f"wrote {results}/link-{platform.machine()}.json")
END
