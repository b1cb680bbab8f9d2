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
# measure ARGUMENTS...: recurve bench gives 0 and writes numbers
measure() {
    rm -f numbers
    "$RECURVE" bench "$@" --json numbers >out 2>err </dev/null || complain "recurve bench $* gave $?"
    [ -s numbers ] || complain "recurve bench $* writes no JSON"
    keep "recurve bench $*"
}
# good ARGUMENTS...: the same of a tiny network
good() { measure $shape $limits "$@"; }
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
# keep COMMAND: keeps the numbers of this command for the checks
runs=0
keep() {
    runs=$((runs + 1))
    cp numbers "numbers.$runs" 2>/dev/null
    command=$1
}
# check EXPRESSION: true of the latest JSON, as Python sees it. One Python process evaluates all of them at the end.
check() { printf '%s\0%s\0%s\0' "numbers.$runs" "$command" "$1" >>checks; }
evaluate_checks() {
    python3 - <<'PYTHON'
import json, sys, traceback
fields = open("checks").read().split("\0")[:-1]
files, wrong = {}, 0
for path, command, expression in zip(*[iter(fields)] * 3):
    try:
        if path not in files:
            files[path] = json.load(open(path))
        j = files[path]
        ran = {c["name"]: c for c in j.get("entries", []) if c["median"]}
        no_openblas = any("there is no OpenBLAS" in (c["reason"] or "") for c in j.get("entries", []))
        good = eval(expression, {"j": j, "ran": ran, "no_openblas": no_openblas})
    except Exception:
        traceback.print_exc(file=sys.stdout)
        good = False
    if not good:
        print("FAILED: %s: not so: %s" % (command, expression))
        wrong += 1
print("%d checks of numbers" % (len(fields) // 3))
sys.exit(wrong > 0)
PYTHON
}

good
has '^Limit: +[0-9.]+ GFLOP/s .*, measured once'
check 'len(j["peak"]["samples"]) == 1' # more would take longer than the benchmark
has '^recurve +[0-9.]+ +[0-9.]+'
check 'j["problem"]["hidden"] == 16 and j["problem"]["input"] == 12 and j["problem"]["pass"] == "forward"'
# 2 a matrix element, step and sequence: layer 0 has 64 x (12 + 16), layer 1 64 x (16 + 16)
check 'j["problem"]["operations"] == 2 * 5 * 3 * 64 * (28 + 32)'
check 'j["peak"]["best"] == max(j["peak"]["samples"]) > 0'
check 'abs(ran["recurve"]["of_peak"] * j["peak"]["best"] / ran["recurve"]["speed"] - 1) < 1e-6'
check 'j["machine"]["cpu"] and j["date"] and "--hidden 16" in j["command"]'
check 'ran["recurve"]["minimum"] <= ran["recurve"]["median"] and len(ran["recurve"]["samples"]) >= 5'
check 'sum(c["chosen"] for c in j["planning"]["candidates"]) == 1'
limits="--seconds 0.5 --threads 1" good
has '^Limit: +[0-9.]+ GFLOP/s .*, the best of [0-9]+ measurements'
check 'len(j["peak"]["samples"]) > 5 and j["peak"]["best"] == max(j["peak"]["samples"]) > min(j["peak"]["samples"])'

# anchors compute the same, or say why they do not take part. A start of PyTorch takes longer than all the rest: it takes part where it adds
# something, which is each module, both types and both passes.
agree='all(c["median"] or c["reason"] for c in j["entries"]) and all(c["difference"] < (1e-11 if j["problem"]["dtype"] == "float64" else 2e-5)
    for n, c in ran.items() if n != "recurve")'
limits="--seconds 0 --threads 2" good --anchors --pass train --bidirectional --dtype float64
check "$agree"' and j["machine"]["threads"] == 2 and ("OpenBLAS by hand" in ran or no_openblas)'
for network in "--pass train --bidirectional --no-torch" "--cell gru --no-bias" "--cell rnn_tanh --dtype float64 --no-torch" "--cell rnn_relu"; do
    good --anchors $network
    check "$agree"' and ("OpenBLAS by hand" in ran or no_openblas)'
done
good --anchors --dtype bfloat16
check 'all(c["difference"] < 0.05 for n, c in ran.items() if n != "recurve")'
check 'no_openblas or ran["OpenBLAS by hand"]["difference"] > 1e-5' # of bfloat16 from float32: not nothing
good --anchors --cell mingru
check 'list(ran) == ["recurve"] and all(c["reason"] for c in j["entries"][1:])'
good --anchors --no-torch
check '[c["name"] for c in j["entries"]] == ["recurve", "oneDNN", "OpenBLAS by hand"]'
check 'all(c["family"] is None for c in j["entries"]) and j["machine"]["device"] is None and j["problem"]["device"] == "cpu"'

good --ladder
check '[r["name"] for r in j["ladder"]][0] == "naive" and {r["group"] for r in j["ladder"]} == {"naive", "alone", "cumulative"}'
check 'all(r["speedup"] or r["reason"] for r in j["ladder"])'
check 'all(r["difference"] < 1e-5 for r in j["ladder"][1:] if r["speedup"])'
good --batches
check 'j["batches"][0]["batch"] == 1 and len(j["batches"]) > 3 and all(p["speed"] > 0 for p in j["batches"])'
good --gemm
check 'len(j["gemm"]["points"]) == 27 and (j["gemm"]["difference"] or 0) < 1e-5'
check 'all(p["float32"] > 0 and (p["OpenBLAS float32"] or "there is no OpenBLAS" in (j["gemm"]["reason"] or "")) for p in j["gemm"]["points"])'
good --streaming --chunk 2
check 'j["streaming"]["calls"] >= 2000 and 0 < j["streaming"]["p50"] <= j["streaming"]["p99"] <= j["streaming"]["worst"]'
check 'j["streaming"]["chunk"] == 2 and j["streaming"]["whole_step"] > 0 and j["streaming"]["object_step"] > 0 and j["streaming"]["object_ratio"] > 0'
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
# nor is the cache: planning is measured
export RECURVE_WISDOM= RECURVE_CACHE=$PWD/cache
good
good
check 'not j["planning"]["from_wisdom"] and len(j["planning"]["candidates"]) > 4'
[ "$(find cache -name '*.wisdom' | wc -l)" = 1 ] || complain "bench does not keep what it measured"
export RECURVE_WISDOM=off RECURVE_CACHE=off
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
bad 2 '--elements must be' --scan --elements 63

# cells over the number of steps, in turns with the LSTM
long() { measure --hidden "${hidden:-16}" $limits "$@"; }
passes='[p[which] for p in j["lengths"]["points"] for which in ("forward", "train")]'
long --lengths 64,128 --cells sru,gilr_lstm
has '^sru +64( +[0-9.]+ +[0-9.]+ +[0-9.]+x){2}$'
has '^lstm +128( +[0-9.]+ +[0-9.]+ +-){2}$'
has '^gilr_lstm +training step +[0-9 to]+ +combine'
check '[(p["cell"], p["steps"]) for p in j["lengths"]["points"]] == [("sru", 64), ("sru", 128), ("gilr_lstm", 64), ("gilr_lstm", 128)]'
check '[(p["cell"], p["steps"]) for p in j["lengths"]["lstm"]] == [("lstm", 64), ("lstm", 128)]'
check '"problem" not in j and j["machine"]["cpu"] and j["date"] and j["version"] and "--lengths" in j["command"]'
check 'j["lengths"]["hidden"] == j["lengths"]["input"] == 16 and j["lengths"]["batch"] == 1 and j["lengths"]["dtype"] == "float32"'
check 'all(p["plan"] and p["rounds"] >= 5 and 0 < p["minimum"] <= p["median"] and not p["reason"] and not p["extrapolated"]
    and not p["estimated"] and p["bytes"] > 0 for p in '"$passes"')'
check 'all(abs(p["speedup"] * p["median"] / p["lstm"] - 1) < 1e-6 for p in '"$passes"')'
check 'all(p[w]["planned_at"] == p["steps"] and abs(p[w]["steps_per_second"] * p[w]["median"] / p["steps"] - 1) < 1e-6
    for p in j["lengths"]["points"] + j["lengths"]["lstm"] for w in ("forward", "train"))'
# the median of the turns with two cells lies between them
check 'all(min(s) * (1 - 1e-6) <= l[w]["median"] <= max(s) * (1 + 1e-6) and not l[w]["extrapolated"] and l[w]["lstm"] is None
    for w in ("forward", "train") for l in j["lengths"]["lstm"]
    for s in [[p[w]["lstm"] for p in j["lengths"]["points"] if p["steps"] == l["steps"]]])'
# an LSTM that takes too long is measured once, and then follows in proportion
long --lengths 32,64,96 --cells mingru --longest 0
has '^mingru +32( +[0-9.]+ +[0-9.]+ +[0-9.]+x){2}$'
has '^mingru +96( +[0-9.]+ +[0-9.]+ +~[0-9.]+x){2}$'
has '^lstm, 96 steps, forward: extrapolated: a call should take at least .* --longest'
check 'all(l[w]["extrapolated"] == (i > 0) and abs(l[w]["median"] / j["lengths"]["lstm"][0][w]["median"] - i - 1) < 1e-6
    and (l[w]["plan"] is None) == (i > 0) for w in ("forward", "train") for i, l in enumerate(j["lengths"]["lstm"]))'
check 'all(p[w]["extrapolated"] == (i > 0) and abs(p[w]["lstm"] / j["lengths"]["lstm"][i][w]["median"] - 1) < 1e-6
    and abs(p[w]["speedup"] * p[w]["median"] / p[w]["lstm"] - 1) < 1e-6
    for w in ("forward", "train") for i, p in enumerate(j["lengths"]["points"]))'
# what does not fit is refused, and the others go on
long --lengths 64,8192 --cells sru,mingru --memory 1
check 'all((p["median"] is None) == (i % 4 > 1) for i, p in enumerate('"$passes"'))'
check 'all("need 1.5 MiB, but 1.0 MiB are allowed" in p["forward"]["reason"] and p["train"]["speedup"] is None
    for p in j["lengths"]["points"] if p["steps"] == 8192)'
has '^mingru +8192 +- +- +- +- +- +-$'
has '^mingru, 8192 steps, training step: input, output and their gradients need 2.0 MiB, but 1.0 MiB are allowed'
# a plan of fewer steps serves more of them; where it needs too much memory another is chosen
hidden=4 long --lengths 16384,32768 --cells mingru --effort estimate --longest 0
check 'all(p["planned_at"] == 16384 and p["plan"] == q["plan"] for p, q in zip('"$passes"', 2 * '"$passes"'[:2]))'
has '\(chosen for 16384 steps, by the model alone\)$'
long --lengths 16384,32768 --cells mingru --effort estimate --memory 16
check '[(p["planned_at"], p["median"] > 0) for p in '"$passes"'] == [(16384, True)] * 3 + [(32768, True)]'
check 'j["lengths"]["points"][0]["train"]["plan"] != j["lengths"]["points"][1]["train"]["plan"]'
hidden=4 long --lengths 20000 --cells indrnn --effort estimate # planned for fewer steps than any that is measured
check 'all(p["planned_at"] == 16384 and p["median"] > 0 and not p["extrapolated"] for p in '"$passes"')'
# --schedule pins the cells' plans, not that of the LSTM beside them; a cell that refuses it says so
long --lengths 64 --cells sru,lstm --schedule naive --effort estimate
check 'all(p["plan"] == "naive" and p["planned_at"] is None and p["speedup"] > 0 for p in '"$passes"')'
check 'all(l[w]["plan"] != "naive" and l[w]["planned_at"] == 64 for l in j["lengths"]["lstm"] for w in ("forward", "train"))'
long --lengths 64 --cells sru --schedule vendor
check 'all(p["reason"] and not p["median"] for p in '"$passes"')'
# the usual cells, of which none is left out in silence
hidden=4 long --lengths 8 --effort estimate
usual='["sru", "qrnn_fo", "gilr_lstm", "mingru", "minlstm", "indrnn", "sru2", "gru_diagonal"]'
check '[c for c in '"$usual"' if c not in (j["lengths"]["left_out"] or "").split(", ")] == [p["cell"] for p in j["lengths"]["points"]]'
known=$("$RECURVE" list | sed 's/ .*//' | tr '\n' ' ')
check '"sru" in "'"$known"'".split() and not set((j["lengths"]["left_out"] or "").split(", ")) & set("'"$known"'".split())'
sed 's/mingru/mine/' "$SOURCE_DIR/cells/mingru.cell" >other.cell
long --lengths 8 --cells ./other.cell
check 'j["lengths"]["points"][0]["cell"] == "mine" and j["lengths"]["left_out"] is None'
bad 2 'increasing whole numbers' --lengths 64,32
bad 2 'increasing whole numbers' --lengths 0
bad 2 'increasing whole numbers' --lengths 64,
bad 2 'increasing whole numbers' --lengths 1,2,3,4,5,6,7,8,9,10,11
bad 2 'different cells' --lengths 64 --cells sru,,mingru
bad 2 'different cells' --lengths 64 --cells sru,mingru,sru
bad 2 'different cells' --lengths 64 --cells a,b,c,d,e,f,g,h,i
bad 2 'is not given' --cells sru
bad 2 'leave out --steps' --lengths 64 --steps 100
bad 2 'leave out --cell' --lengths 64 --cell gru
bad 2 'leave out --pass' --lengths 64 --pass train
bad 2 'leave out --scan' --lengths 64 --scan
bad 2 'leave out --ladder' --lengths 64 --ladder
bad 2 '--longest must be' --lengths 64 --longest -1
bad 1 'nosuch' --lengths 64 --cells sru,nosuch
bad 1 'nonsense' --lengths 64 --cells sru --schedule nonsense
bad 1 'need a GPU' --lengths 64 --dtype float16

# on a GPU, where there is one
if "$RECURVE" bench $shape --device cuda --seconds 0 --schedule naive >out 2>err </dev/null; then
    for pass in forward train; do
        good --device cuda --pass $pass --anchors --ladder --batches --ranks 8
        has '^Limit: +[0-9.]+ TFLOP/s'
        check 'j["machine"]["device"] and j["problem"]["device"] == "cuda" and len(j["peak"]["samples"]) == 1'
        check 'sum(c["family"] == "cuDNN" for c in j["entries"]) == 4'
        check 'all(c["difference"] < 1e-4 for n, c in ran.items() if n != "recurve")'
        check 'all(c["median"] or c["reason"] for c in j["entries"] + j["ladder"])'
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
    long --device cuda --lengths 64,32768 --cells sru,indrnn
    check 'all(p["median"] > 0 and p["speedup"] > 0 for p in '"$passes"') and j["lengths"]["device"] == "cuda"'
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
    NO_COLOR=1 python3 - "$1" "$2" "$RECURVE" bench "${@:3}" --json numbers >out 2>err <<'PYTHON'
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
    keep "recurve bench ${*:3}, stopped at '$1'"
}

# what was measured so far is printed and written
stopped 'comparison: round 2' SIGTERM $shape --seconds 600
grep -q 'stopped' err || complain "a stopped bench does not say so"
[ -s numbers ] || complain "a stopped bench writes no numbers"
check 'ran["recurve"]["median"] > 0'

stopped 'mingru, 128 steps' SIGTERM --lengths 64,128 --cells mingru --hidden 16 --seconds 0 --threads 1
check 'j["lengths"]["points"][0]["train"]["median"] > 0 and j["lengths"]["points"][1]["train"]["median"] is None'
has '^mingru, 128 steps, training step: not measured'

# Ctrl-C while planning
large="--layers 2 --hidden 64 --steps 200 --batch 16 --pass train --seconds 0" # exhaustive planning takes about a second
case ${CFLAGS:-} in *sanitize*) large="--layers 2 --hidden 32 --steps 50 --batch 8 --pass train --seconds 0" ;; esac
stopped 'planning' SIGINT $large --effort exhaustive
grep -qE 'recurve: planning was stopped after [0-9]+ trials?, ' err || complain "Ctrl-C while planning is not answered"
[ ! -e numbers ] || complain "a bench that measured nothing writes numbers"
stopped 'exhaustive: planning: round 1' SIGINT $large --planner
has '^  exhaustive +planning was stopped after [0-9]+ trials?, '
grep -q 'recurve: stopped: what is printed and written' err || complain "Ctrl-C in --planner is not answered"
check 'ran["recurve"]["median"] > 0 and [c["effort"] for c in j["planner"]] == ["estimate", "measure", "exhaustive"]'
check 'all(c["plan"] and c["choosing_seconds"] > 0 for c in j["planner"][:2])'
check 'not j["planner"][2]["plan"] and "planning was stopped" in j["planner"][2]["reason"]'

evaluate_checks || failures=$((failures + 1))
[ $failures = 0 ] || exit 1
