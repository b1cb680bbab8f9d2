#!/usr/bin/env bash
# examples/memory: it learns, its numbers as JSON, the same seed gives the same losses, refusals, Ctrl-C.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
program=$BUILD_DIR/examples/memory_task
failures=0
complain() {
    echo "FAILED: $*"
    sed 's/^/    stdout: /' out | head -5
    sed 's/^/    stderr: /' err | head -5
    failures=$((failures + 1))
}
# good ARGUMENTS...: the task is learnt
good() {
    "$program" "$@" >out 2>err </dev/null || complain "memory_task $* gave $?"
    grep -qE '^Learnt: +yes$' out || complain "memory_task $* does not learn"
}
# bad STATUS FRAGMENT ARGUMENTS...: that status, and the fragment on standard error
bad() {
    local wanted=$1 fragment=$2
    shift 2
    "$program" "$@" >out 2>err </dev/null
    local status=$?
    [ $status = "$wanted" ] || complain "memory_task $* gave $status, not $wanted"
    grep -q "^memory_task: .*$fragment" err || complain "memory_task $* does not say '$fragment'"
}

tiny=(--length 16 --hidden 16 --layers 1 --threads 1 --schedule combine+fuse)
for cell in gilr_lstm lstm; do
    good --cell $cell "${tiny[@]}" --seed 1 --json memory.json
    grep -qE '^Iterations: +[0-9]+$' out || complain "the iterations are not printed"
    grep -qE '^iteration [0-9]+  loss [0-9.]+ nats  8 of 8 correct  [0-9.]+ ms  [0-9.]+ s$' err || complain "no progress line"
    cp memory.json first
    good --cell $cell "${tiny[@]}" --seed 1 --json memory.json
    python3 -c 'import json
j = json.load(open("memory.json"))
assert j["learnt"] and j["iterations"] == len(j["losses"]) == len(j["right"]) and j["right"][-5:] == [8] * 5
assert j["losses"][-1] < j["losses"][0] and j["bytes"] > 0 and j["iteration_seconds"] > 0
assert json.load(open("first"))["losses"] == j["losses"]' || complain "the numbers of --json are wrong, or differ with the same seed"
done
for initial in chrono usual; do
    good --length 2 --hidden 8 --layers 1 --threads 1 --initial $initial --learning-rate 0.03
done
good --cell gru --length 2 --hidden 8 --layers 1 --batch 3 --dtype float64 --learning-rate 0.03

bad 1 'not learnt within 2 iterations' "${tiny[@]}" --iterations 2 --json memory.json
grep -qE '^Learnt: +no$' out || complain "a task that is not learnt is not printed as such"
grep -q '"learnt": false' memory.json || complain "a task that is not learnt is written as learnt"
bad 1 'is not finite' --cell rnn_relu --learning-rate 1e6 --clip 0 --iterations 500 --length 64 --hidden 16 --threads 1 --schedule combine+fuse
bad 1 'missing/new' "${tiny[@]}" --iterations 1 --json missing/new
bad 2 '--initial does not accept' --initial other
bad 2 '--length does not accept' --length 1
bad 2 '--hidden does not accept' --hidden 1.5
bad 2 '--seed does not accept' --seed -1
bad 2 '--length needs a value' --length
bad 2 "no option '--nosuch'" --nosuch
bad 1 'tpu' --device tpu
bad 1 'nosuchcell' --cell nosuchcell

python3 - "$program" "${tiny[@]}" --learning-rate 1e-9 --iterations 0 >out 2>err <<'PYTHON'
import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
process = subprocess.Popen(sys.argv[1:], stderr=subprocess.PIPE)
said = process.stderr.readline()  # the first line of progress: training has begun
process.send_signal(signal.SIGINT)
said += process.stderr.read()
sys.stderr.buffer.write(said)
sys.exit(process.wait() % 256)
PYTHON
[ $? = 130 ] || complain "SIGINT does not end memory_task with 130"
grep -qE '^memory_task: stopped after [0-9]+ iterations, before' err || complain "memory_task does not say that it was stopped"

[ $failures = 0 ] || exit 1
