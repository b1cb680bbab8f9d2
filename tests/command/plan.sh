#!/usr/bin/env bash
# recurve plan: candidates in order, the winner, refusals in words, pinned plans, wisdom, what it refuses, and Ctrl-C.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
complain() {
    echo "FAILED: $*"
    sed 's/^/    stdout: /' out | head -8
    sed 's/^/    stderr: /' err | head -5
    failures=$((failures + 1))
}
# good ARGUMENTS...: recurve plan of a small network gives 0
good() {
    "$RECURVE" plan --hidden 24 --steps 6 --batch 4 "$@" >out 2>err </dev/null || complain "recurve plan $* gave $?"
}
# bad STATUS FRAGMENT ARGUMENTS...: that status and one sentence with the fragment
bad() {
    local wanted=$1 fragment=$2
    shift 2
    "$RECURVE" plan --hidden 24 --steps 6 --batch 4 "$@" >out 2>err </dev/null
    local status=$?
    [ $status = "$wanted" ] || complain "recurve plan $* gave $status, not $wanted"
    [ "$(wc -l <err)" = 1 ] || complain "recurve plan $* does not say one line"
    grep -qF -- "$fragment" err || complain "recurve plan $* does not say '$fragment'"
}
has() { grep -qE -- "$1" out || complain "no '$1' in what came out"; }

good --layers 2
has '^lstm, 2 layers, input 24, hidden 24, 6 steps, batch 4, float32, forward$'
[ "$(grep -c '^\*' out)" = 1 ] || complain "not one candidate is marked as chosen"
[ "$(grep '^\*' out | awk '{ print $NF }')" = "$(awk '/^Plan:/ { print $2 }' out)" ] || complain "the marked candidate is not the plan"
awk '/measured ms/ { table = 1; next } /^$/ { table = 0 }
     table { time = substr($0, 3, 11) } table && time !~ /-/ { if (time + 0 < last + 0) exit 1; last = time }' out ||
    complain "measured times do not ascend"
has '  naive$'

good --schedule naive
has '^Plan: +naive \(pinned\)$'
good --schedule 'combine+fuse'
has '^Plan: +combine\+fuse \(pinned\)$'
good --print --schedule naive
has 'gemm'
good --effort estimate
[ "$(awk '/measured ms/ { table = 1; next } /^$/ { table = 0 } table && substr($0, 3, 11) !~ /-/' out | wc -l)" = 0 ] ||
    complain "an estimate has measured times"
good --pass train --dtype bfloat16 --cell gru --bidirectional
has 'gru in both directions, .*bfloat16, training step'
"$RECURVE" plan --hidden 24 --batch 4 --pass train --steps 40 --effort estimate >out 2>err || complain "planning a training step gave $?"
has 'recompute\(every='

good --wisdom memory --threads 1 # other load on the machine disturbs the timing of one thread least
[ -s memory ] || complain "no wisdom was written"
chosen=$(awk '/^Plan:/ { print $2 }' out)
good --wisdom memory --threads 1
has 'from wisdom'
has "^Plan: +$(sed 's/[()+]/\\&/g' <<<"$chosen")\$"
# The cache on disk: a second process plans from it, unless it is told not to.
export RECURVE_WISDOM= RECURVE_CACHE=$PWD/cache
good --threads 1
has '^Planned: in .* s, measure$'
[ "$(find cache -name '*.wisdom' | wc -l)" = 1 ] || complain "the cache has no wisdom"
chosen=$(awk '/^Plan:/ { print $2 }' out)
good --threads 1
has '^Planned: in .* s, from wisdom$'
has "^Plan: +$(sed 's/[()+]/\\&/g' <<<"$chosen")\$"
good --threads 1 --replan
has '^Planned: in .* s, measure$'
RECURVE_CACHE=off good --threads 1
has '^Planned: in .* s, measure$'
RECURVE_WISDOM=off good --threads 1
has '^Planned: in .* s, measure$'
RECURVE_CACHE=/dev/null/none good --threads 1
has '^Planned: in .* s, measure$'
[ "$(find cache -type f | wc -l)" = 1 ] || complain "the cache has $(find cache -type f | wc -l) files"
export RECURVE_WISDOM=off RECURVE_CACHE=off
head -c 20 memory >cut
bad 1 'cut' --wisdom cut
bad 1 'folder' --wisdom none/memory

bad 1 'oneDNN' --schedule vendor --cell mingru
bad 1 'nonsense' --schedule nonsense
bad 1 '' --schedule naive --device cuda:99999
bad 2 'float32, float64 or bfloat16' --dtype int8
bad 1 'need a GPU' --dtype float16
bad 1 'need a GPU' --dtype tfloat32
bad 1 'is for a GPU' --schedule combine+graph
bad 2 'measure, estimate or exhaustive' --effort hard
bad 2 'forward or train' --pass backward
for wrong in gpu cuda: cuda:x cuda1 cpu:-1 ''; do
    bad 2 'cpu or a GPU' --device "$wrong"
done
# with a GPU its plans, without one sentence
if "$RECURVE" plan --hidden 24 --steps 6 --batch 4 --device cuda --dtype bfloat16 >out 2>err </dev/null; then
    has '^lstm, .*bfloat16, forward, on cuda$'
    has '^Device: .*compute capability'
    [ "$(grep -c '^\*' out)" = 1 ] || complain "not one candidate for the GPU is marked as chosen"
    good --device cuda --schedule naive --dtype tfloat32
    has '^Plan: +naive \(pinned\)$'
    bad 1 'is for the CPU' --device cuda --schedule 'combine+threads(2)'
else
    bad 1 '' --device cuda --dtype bfloat16
fi
bad 2 'portable' --kernels nosuch
bad 2 'did you mean --schedule' --schedul naive

# Ctrl-C: planning that would take long ends with one sentence, no plan, and wisdom as it was
cp memory before
large="--hidden 128 --steps 400 --batch 32"
case ${CFLAGS:-} in *sanitize*) large="--hidden 64 --steps 200 --batch 16" ;; esac # where a trial is slower
python3 - "$RECURVE" plan --layers 2 $large --pass train --effort exhaustive \
    --wisdom memory >out 2>err <<'PYTHON'
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
process = subprocess.Popen(sys.argv[1:])
time.sleep(2)
process.send_signal(signal.SIGINT)
try:
    sys.exit(process.wait(300) % 256)
finally:
    process.kill()
PYTHON
status=$?
[ $status = 130 ] || complain "Ctrl-C while planning gives $status, not 130"
[ "$(wc -l <err)" = 1 ] || complain "Ctrl-C while planning does not say one line"
grep -qE '^recurve: planning was stopped after [0-9]+ trials?, ' err || complain "Ctrl-C while planning is not answered"
[ ! -s out ] || complain "Ctrl-C while planning prints a plan"
cmp -s memory before || complain "Ctrl-C while planning changes wisdom"

[ $failures = 0 ] || exit 1
