#!/usr/bin/env bash
# recurve bench: every experiment on a tiny network, its numbers as JSON, anchors that agree, refusals, and Ctrl-C.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
complain() {
    echo "FAILED: $*"
    sed 's/^/    stdout: /' out | head -12
    sed 's/^/    stderr: /' err | head -5
    failures=$((failures + 1))
}
shape="--hidden 16 --input 12 --layers 2 --steps 5 --batch 3"
limits="--seconds 0 --threads 1"
# good ARGUMENTS...: recurve bench of a tiny network gives 0 and writes numbers
good() {
    rm -f numbers
    "$RECURVE" bench $shape $limits "$@" --json numbers >out 2>err </dev/null || complain "recurve bench $* gave $?"
    [ -s numbers ] || complain "recurve bench $* writes no JSON"
}
# bad STATUS FRAGMENT ARGUMENTS...: that status, one sentence with the fragment, no file
bad() {
    local wanted=$1 fragment=$2
    shift 2
    rm -f numbers
    "$RECURVE" bench "$@" --json numbers >out 2>err </dev/null
    local status=$?
    [ $status = "$wanted" ] || complain "recurve bench $* gave $status, not $wanted"
    [ "$(wc -l <err)" = 1 ] || complain "recurve bench $* does not say one line"
    grep -qF -- "$fragment" err || complain "recurve bench $* does not say '$fragment'"
    [ ! -e numbers ] || complain "recurve bench $* leaves a file"
}
has() { grep -qE -- "$1" out || complain "no '$1' in what came out"; }
# check EXPRESSION: true of the JSON, as Python sees it
check() {
    python3 - "$1" <<'PYTHON' || complain "not so: $1"
import json, sys
j = json.load(open("numbers"))
ran = {c["name"]: c for c in j.get("contestants", []) if c["median"]}
sys.exit(not eval(sys.argv[1]))
PYTHON
}

good
has '^Limit: +[0-9.]+ GFLOP/s'
has '^recurve +[0-9.]+ +[0-9.]+'
check 'j["problem"]["hidden"] == 16 and j["problem"]["input"] == 12 and j["problem"]["pass"] == "forward"'
# 2 a matrix element, step and sequence: layer 0 has 64 x (12 + 16), layer 1 64 x (16 + 16)
check 'j["problem"]["operations"] == 2 * 5 * 3 * 64 * (28 + 32)'
check 'j["peak"]["best"] == max(j["peak"]["samples"]) > 0'
check 'abs(ran["recurve"]["of_peak"] * j["peak"]["best"] / ran["recurve"]["speed"] - 1) < 1e-6'
check 'j["machine"]["cpu"] and j["date"] and "--hidden 16" in j["command"]'
check 'ran["recurve"]["minimum"] <= ran["recurve"]["median"] and len(ran["recurve"]["samples"]) >= 5'
check 'sum(c["chosen"] for c in j["planning"]["candidates"]) == 1'

# anchors compute the same, or say why they do not take part
for network in "--pass train --bidirectional" "--cell gru --no-bias" "--cell rnn_tanh --dtype float64" "--cell rnn_relu"; do
    good --anchors $network
    check 'all(c["median"] or c["reason"] for c in j["contestants"])'
    check 'all(c["difference"] < (1e-11 if j["problem"]["dtype"] == "float64" else 2e-5) for n, c in ran.items() if n != "recurve")'
done
check '"OpenBLAS by hand" in ran'
limits="--seconds 0 --threads 2" good --anchors --pass train --dtype float64
check 'all(c["difference"] < 1e-11 for n, c in ran.items() if n != "recurve") and j["machine"]["threads"] == 2'
good --anchors --dtype bfloat16
check 'all(c["difference"] < 0.05 for n, c in ran.items() if n != "recurve")'
check 'ran["OpenBLAS by hand"]["difference"] > 1e-5' # of bfloat16 from float32: not nothing
good --anchors --cell mingru
check 'list(ran) == ["recurve"] and all(c["reason"] for c in j["contestants"][1:])'
good --anchors --no-torch
check '[c["name"] for c in j["contestants"]] == ["recurve", "oneDNN", "OpenBLAS by hand"]'
check 'all(c["family"] is None for c in j["contestants"]) and j["machine"]["device"] is None and j["problem"]["device"] == "cpu"'

good --ladder
check '[r["name"] for r in j["ladder"]][0] == "naive" and {r["group"] for r in j["ladder"]} == {"naive", "alone", "cumulative"}'
check 'all(r["speedup"] or r["reason"] for r in j["ladder"])'
check 'all(r["difference"] < 1e-5 for r in j["ladder"][1:] if r["speedup"])'
good --batches
check 'j["batches"][0]["batch"] == 1 and len(j["batches"]) > 3 and all(p["speed"] > 0 for p in j["batches"])'
good --gemm
check 'len(j["gemm"]["points"]) == 27 and j["gemm"]["difference"] < 1e-5'
check 'all(p["float32"] > 0 and p["OpenBLAS float32"] > 0 for p in j["gemm"]["points"])'
good --streaming --chunk 2
check 'j["streaming"]["calls"] >= 2000 and 0 < j["streaming"]["p50"] <= j["streaming"]["p99"] <= j["streaming"]["worst"]'
check 'j["streaming"]["chunk"] == 2 and j["streaming"]["whole_step"] > 0'
good --ranks 8,2
check '[r["rank"] for r in j["ranks"]] == [0, 8, 2] and j["ranks"][1]["parameters"] > j["ranks"][2]["parameters"]'
check 'j["ranks"][1]["error_decaying"] < j["ranks"][2]["error_decaying"] < 1'
check 'j["ranks"][1]["error_decaying"] < j["ranks"][1]["error_fresh"]'
good --rank 4 --pass train
check '[r["rank"] for r in j["ranks"]] == [0, 4] and j["problem"]["rank"] == 4 and j["ranks"][1]["seconds"] > 0'
good --planner --pass train
check '[c["effort"] for c in j["planner"]] == ["estimate", "measure", "exhaustive"]'
check 'all(c["plan"] and c["choosing_seconds"] > 0 and c["seconds"] > 0 and not c["reason"] for c in j["planner"])'
check 'j["planner"][2]["ratio"] == 1'
check 'all(abs(c["seconds"] / j["planner"][2]["seconds"] - c["ratio"]) < 1e-6 for c in j["planner"])'
check 'all(c["seconds"] == d["seconds"] for c in j["planner"] for d in j["planner"] if c["plan"] == d["plan"])'
# wisdom that knows the answer is not asked
good --wisdom memory --effort exhaustive
good --planner --wisdom memory
check 'j["planning"]["from_wisdom"] and all(c["candidates"] > 4 for c in j["planner"])'
good --schedule naive
check 'ran["recurve"]["plan"] == "naive" and j["machine"]["threads"] == 1'
good --kernels portable
check 'j["machine"]["kernels"] == "portable"'
limits="--seconds 0 --threads 7" good # more than there are cores
check 'j["machine"]["threads"] == 7'

# linear recurrences
for dtype in float32 float64 bfloat16; do
    good --scan --elements 4096 --dtype $dtype
    has '^Copy: +[0-9.]+ to [0-9.]+ GB/s'
    has '^\[64, 64\] +[a-z]+ +[0-9.]+ +[0-9.]+ +[0-9.]+% +[0-9.]+x +[0-9.]+ +[0-9.]+ +[0-9.]+% +[0-9.]+x$'
    check 'j["scan"]["dtype"] == "'$dtype'" and "problem" not in j and j["machine"]["cpu"] and j["date"]'
    check '[(p["steps"], p["channels"]) for p in j["scan"]["points"]] == [
        (64, 1), (256, 1), (1024, 1), (4096, 1), (64, 8), (256, 8), (64, 32), (64, 64)]'
    check 'all(p["form"] and p["copy"] > 0 and p["forward"]["serial"] > 0 and p["backward"]["serial"] > 0
        for p in j["scan"]["points"])'
    check 'all(abs(p["forward"]["bandwidth"] * p["forward"]["median"]
        / (3 * p["steps"] * p["channels"] * {"float32": 4, "float64": 8, "bfloat16": 2}["'$dtype'"]) - 1) < 1e-6
        and abs(p["backward"]["speedup"] * p["backward"]["median"] / p["backward"]["serial"] - 1) < 1e-6
        for p in j["scan"]["points"])'
done
good --scan --elements 64 --report page.html
grep -q 'id="scan"' page.html || complain "the page has no linear recurrences"
bad 2 'leave out --ladder' --scan --ladder
bad 2 '--elements wants' --scan --elements 63

# on a GPU, where there is one
if "$RECURVE" bench $shape --device cuda --seconds 0 --schedule naive >out 2>err </dev/null; then
    for pass in forward train; do
        good --device cuda --pass $pass --anchors --ladder --batches --ranks 8
        has '^Limit: +[0-9.]+ TFLOP/s'
        check 'j["machine"]["device"] and j["problem"]["device"] == "cuda" and len(j["peak"]["samples"]) == 1'
        check 'sum(c["family"] == "cuDNN" for c in j["contestants"]) == 4'
        check 'all(c["difference"] < 1e-4 for n, c in ran.items() if n != "recurve")'
        check 'all(c["median"] or c["reason"] for c in j["contestants"] + j["ladder"])'
        check 'all(r["difference"] < 1e-4 for r in j["ladder"][1:] if r["speedup"])'
        check '[p["batch"] for p in j["batches"]] == [2 ** i for i in range(10)] and all(p["speed"] > 0 for p in j["batches"])'
        check '[r["rank"] for r in j["ranks"]] == [0, 8] and j["ranks"][1]["error_decaying"] < 1'
    done
    for dtype in float32 bfloat16 float16; do
        good --device cuda --scan --elements 67108864 --dtype $dtype
        has '^Copy: +[0-9.]+ GB/s'
        has '^Targets'
        check 'all(p["form"] and p["forward"]["median"] > 0 and p["backward"]["median"] > 0 for p in j["scan"]["points"])'
        check 'all(t["measured"] > 0 for t in j["scan"]["targets"])'
    done
else
    bad 1 '' $shape --device cuda
fi
bad 2 "the CPU's kernels" $shape --device cuda --gemm
bad 2 'on the CPU' $shape --device cuda:1 --streaming
bad 2 'cpu or a GPU' $shape --device gpu
bad 1 'need a GPU' $shape --dtype float16

bad 2 'auto' $shape --ranks 4,,2
bad 2 'auto' $shape --ranks -3
bad 2 'exclude' $shape --streaming --bidirectional
bad 2 'steps of a sequence' $shape --streaming --chunk 6
bad 2 'portable' $shape --kernels nosuch
bad 2 'has no option --anchor' $shape --anchor
bad 2 'from 1 to' --steps 0
bad 1 'nonsense' $shape --schedule nonsense
bad 1 'nosuch' $shape --cell nosuch
bad 1 'folder' $shape --report none/page.html
"$RECURVE" bench $shape --json none/numbers >out 2>err && complain "a folder that is not there is written to"

# stopped WORD SIGNAL ARGUMENTS...: a terminal shows the progress, and gets the signal to recurve bench at the word
stopped() {
    rm -f numbers
    python3 - "$1" "$2" "$RECURVE" bench "${@:3}" --json numbers >out 2>err <<'PYTHON'
import os, pty, signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
word, number = sys.argv[1].encode(), signal.Signals[sys.argv[2]]
ours, theirs = pty.openpty()
process = subprocess.Popen(sys.argv[3:], stderr=theirs)
os.close(theirs)
said, sent = b"", False
while True:
    try:
        said += os.read(ours, 4096)
    except OSError:  # the other side is closed
        break
    if not sent and word in said:
        process.send_signal(number)
        sent = True
sys.stderr.buffer.write(said)
sys.exit(0 if process.wait() == 128 + number else 1)
PYTHON
    [ $? = 0 ] || complain "$2 to recurve bench ${*:3} did not end it with 128 and its number"
}

# what was measured so far is printed and written
stopped 'contest: round 2' SIGTERM $shape --seconds 600
grep -q 'stopped' err || complain "a stopped bench does not say so"
[ -s numbers ] || complain "a stopped bench writes no numbers"
check 'ran["recurve"]["median"] > 0'

# Ctrl-C while planning
large="--layers 2 --hidden 128 --steps 400 --batch 32 --pass train --seconds 0"
stopped 'planning' SIGINT $large --effort exhaustive
grep -qE 'recurve: planning was stopped after [0-9]+ trials?, ' err || complain "Ctrl-C while planning is not answered"
[ ! -e numbers ] || complain "a bench that measured nothing writes numbers"
stopped 'exhaustive: planning: round 1' SIGINT $large --planner
has '^  exhaustive +planning was stopped after [0-9]+ trials?, '
grep -q 'recurve: stopped: what is printed and written' err || complain "Ctrl-C in --planner is not answered"
check 'ran["recurve"]["median"] > 0 and [c["effort"] for c in j["planner"]] == ["estimate", "measure", "exhaustive"]'
check 'all(c["plan"] and c["choosing_seconds"] > 0 for c in j["planner"][:2])'
check 'not j["planner"][2]["plan"] and "planning was stopped" in j["planner"][2]["reason"]'

[ $failures = 0 ] || exit 1
