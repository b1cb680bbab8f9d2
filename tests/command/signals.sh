#!/usr/bin/env bash
# What the system tells the tool: a terminal that closes, a file that may not grow any further, a reader that is gone. Training keeps what it has.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0

complain() {
    echo "FAILED: $*"
    sed 's/^/    said: /' err | tail -5
    failures=$((failures + 1))
}
good() { "$RECURVE" "$@" >out 2>err </dev/null || complain "recurve $* gave $?"; }
# same A B: the models of two runs have the same bits
same() {
    rm -f a.only b.only
    good export "$1" a.only
    good export "$2" b.only
    cmp -s a.only b.only
}

for i in $(seq 40); do echo "the cat $i sat on the mat and saw the dog number $i"; done >text
small=(text --hidden 8 --batch 2 --length 8 --threads 1 --effort estimate --seed 3)

# ---- SIGHUP ----
# hang_up.py TIMES ARGUMENTS...: sends SIGHUP so many times in a row when the log has 20 updates
cat >hang_up.py <<'PYTHON'
import os, signal, subprocess, sys
times, command = int(sys.argv[1]), sys.argv[2:]
signal.signal(signal.SIGHUP, signal.SIG_DFL if times > 0 else signal.SIG_IGN)
process = subprocess.Popen(command, stderr=subprocess.PIPE)
while process.poll() is None and not (os.path.exists("run.jsonl") and open("run.jsonl").read().count('"progress"') >= 20):
    pass
for _ in range(abs(times)):
    process.send_signal(signal.SIGHUP)
sys.stderr.buffer.write(process.stderr.read())
sys.exit(process.wait() % 256)
PYTHON
for times in 1 3; do # the system's, and the shell's
    rm -f run run.*
    timeout 120 python3 hang_up.py $times "$RECURVE" train "${small[@]}" --output run --steps 1000000 --log-every 1 >out 2>err
    status=$?
    [ $status = 129 ] || complain "$times SIGHUP give $status, not 129"
    step=$(sed -nE 's/^recurve: stopped: wrote run after ([0-9]+) updates?;.*/\1/p' err)
    [ "${step:-0}" -ge 20 ] || complain "SIGHUP is not answered with a checkpoint"
done
good train --resume run --steps $((step + 30))
good train "${small[@]}" --output whole --steps $((step + 30)) --log-every 1
same run whole || complain "what goes on after SIGHUP is another model"
# ignored, as under nohup: the run goes on to its end
rm -f run run.*
timeout 120 python3 hang_up.py -1 "$RECURVE" train "${small[@]}" --output run --steps 60 --log-every 1 >out 2>err
status=$?
[ $status = 0 ] || complain "an ignored SIGHUP gives $status"

# ---- a limit on the size of files ----
# limited BLOCKS ARGUMENTS...: with files of at most so many kilobytes
limited() {
    local blocks=$1
    shift
    (ulimit -f "$blocks" && exec "$RECURVE" "$@") >out 2>err </dev/null
    status=$?
}
good train "${small[@]}" --output kept --steps 20
cp kept before
bytes=$(wc -c <kept)
limited $((bytes / 1024 / 2)) train --resume kept --steps 40
[ $status = 1 ] || complain "a checkpoint over the limit gives $status, not 1"
grep -q 'File too large' err || complain "a checkpoint over the limit is not said"
cmp -s kept before || complain "a checkpoint over the limit changes the one that was there"
[ -z "$(find . -name '*tmp*')" ] || complain "files are left: $(find . -name '*tmp*')"
good train --resume kept --steps 40
rm -f whole whole.*
good train "${small[@]}" --output whole --steps 40
same kept whole || complain "what goes on after a limit is another model"
limited 1 export kept copy.safetensors
[ $status = 1 ] && grep -q 'File too large' err || complain "an export over the limit gives $status"
[ ! -e copy.safetensors ] || complain "an export over the limit leaves a file"
yes 'a text of many words that is longer than the limit' | head -c 300000 >long
limited 4 train long --output long.safetensors --hidden 4 --steps 1 --threads 1 --effort estimate
[ $status -lt 128 ] || complain "a token cache over the limit gives $status"

# ---- a reader that is gone ----
timeout 60 "$RECURVE" train "${small[@]}" --output piped --steps 60 2>err | true
status=${PIPESTATUS[0]}
[ $status = 0 ] || complain "a reader that is gone ends training with $status"
rm -f whole whole.*
good train "${small[@]}" --output whole --steps 60
same piped whole || complain "a reader that is gone makes another model"
(sleep 0.3; timeout 60 "$RECURVE" train "${small[@]}" --output deaf --steps 60) 2>&1 >/dev/null | true
[ -e deaf ] || complain "training without a reader of its messages writes no model"
begun=$SECONDS
timeout 60 "$RECURVE" generate kept --tokens 100000000 2>err | head -c 20 >out
[ $((SECONDS - begun)) -lt 30 ] || complain "generate goes on without a reader"

[ $failures = 0 ] || echo "$failures checks failed"
[ $failures = 0 ]
