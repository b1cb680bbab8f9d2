#!/usr/bin/env bash
# Files that are written: never one that is read or another that is written, never a file of another program, and a run that is refused has changed
# nothing.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder" "$folder.out" "$folder.err"' EXIT
cd "$folder" || exit 1
failures=0
. "$SOURCE_DIR/tests/support/leaks.bash"
export XDG_CACHE_HOME=$folder/home

complain() {
    echo "FAILED: $*"
    [ -e "$folder.err" ] && sed 's/^/    said: /' "$folder.err" | tail -5
    failures=$((failures + 1))
}
# good ARGUMENTS...: exit status 0
good() {
    "$RECURVE" "$@" >"$folder.out" 2>"$folder.err" </dev/null || complain "recurve $* gave $?"
}
# state: every file with its content, and what a link leads to; but for times
state() { find . -printf '%p %y %l %n\n' | sort && find . -type f -print0 | sort -z | xargs -0 cksum; }
# refused FRAGMENT,FRAGMENT ARGUMENTS...: status 1, one sentence with the fragments, and nothing has changed
refused() {
    local fragments before status=0
    IFS=, read -ra fragments <<<"$1"
    shift
    before=$(state)
    "$RECURVE" "$@" >"$folder.out" 2>"$folder.err" </dev/null || status=$?
    [ $status = 1 ] || complain "recurve $* gave $status, not 1"
    [ "$(wc -l <"$folder.err")" = 1 ] || complain "recurve $* does not say one line"
    for fragment in "${fragments[@]}"; do
        grep -qF -- "$fragment" "$folder.err" || complain "recurve $* does not say '$fragment'"
    done
    [ "$before" = "$(state)" ] || complain "recurve $* was refused and has changed: $(diff <(echo "$before") <(state))"
}

for i in $(seq 40); do echo "{\"x\": [0.$i, -0.$i], \"y\": \"$((i % 2))\"}"; done >examples.jsonl
for i in $(seq 60); do echo "the cat sat on a mat and saw $((i % 7)) dogs"; done >text
cp text valid
printf '0\nthe\ncat\n' >words
cat >own.cell <<'CELL'
cell own
input x[input]
state h[hidden]
param W[hidden, input], U[hidden, hidden]
h' = tanh(W x + U h)
output h
CELL
"$RECURVE" cell own.cell >/dev/null 2>&1 || cp "$SOURCE_DIR/tests/support/cells/bent.cell" own.cell
echo '{"hidden": 4}' >config.json
small=(--hidden 4 --batch 2 --length 4 --steps 2 --threads 1 --effort estimate)

# ---- one file under two names ----
refused "examples.jsonl,the log,the data" train examples.jsonl --kind classes --output examples.safetensors "${small[@]}"
refused "--output text,the data text" train text --output text "${small[@]}"
refused "--output ./text,the data text" train text --output ./text "${small[@]}"
mkdir home
refused "--output,the data text" train text --output "$folder/home/../text" "${small[@]}"
ln -s text soft
ln text hard
refused "--output soft,the data text" train text --output soft "${small[@]}" --overwrite
refused "--output hard,the data text" train text --output hard "${small[@]}" --overwrite
refused "--log text,the data" train text --output new "${small[@]}" --log text
refused "--log hard,the data" train text --output new "${small[@]}" --log hard --overwrite
refused "--log valid,validation" train text --valid valid --output new "${small[@]}" --log valid
refused "--log valid,the test" train text --test valid --output new "${small[@]}" --log valid
refused "--log own.cell,--cell" train text --output new "${small[@]}" --cell own.cell --log own.cell
refused "--output own.cell,--cell" train text --cell own.cell --output own.cell "${small[@]}" --overwrite
refused "--log config.json,--config" train text --output new "${small[@]}" --config config.json --log config.json
refused "--wisdom words,--vocabulary" train text --level word --vocabulary words --output new "${small[@]}" --wisdom words
refused "--wisdom text,the data" train text --output new "${small[@]}" --wisdom text
refused "--log new,--output" train text --output new "${small[@]}" --log new
refused "--log ./new,--output" train text --output new "${small[@]}" --log ./new
refused "--wisdom home/../new,--output new" train text --output new "${small[@]}" --wisdom home/../new
refused "--wisdom new.jsonl,the log" train text --output new "${small[@]}" --wisdom new.jsonl
refused "--log new.1,the checkpoint new.1" train text --output new "${small[@]}" --log new.1
refused "--log new.best,the best model" train text --output new "${small[@]}" --log new.best
refused "--log new.lock,the lock" train text --output new "${small[@]}" --log new.lock
refused "--cache new,--output" train text --output new "${small[@]}" --cache new
refused "--cache new/x,--output" train text --output new "${small[@]}" --cache new/x
refused "--cache valid,not a folder" train text --output new "${small[@]}" --cache valid
refused "the checkpoint a.1.txt,the validation" train text --valid ./a.1.txt --output a.txt "${small[@]}" --overwrite
refused ".recurve-tokens" train text --output text.recurve-tokens "${small[@]}"
ln -s new dangling # a log behind it would be the model
refused "--log dangling,--output new" train text --output new "${small[@]}" --log dangling
rm dangling

# ---- the other verbs ----
good init model --cell lstm --input 3 --hidden 4
python3 - <<'PYTHON'
import json, struct
header = json.dumps({"x": {"dtype": "F32", "shape": [2, 1, 3], "data_offsets": [0, 24]}}).encode()
header += b" " * (-len(header) % 8)
open("in", "wb").write(struct.pack("<Q", len(header)) + header + bytes(24))
PYTHON
leakless refused "--output in,--input" run model --input in --output in
refused "--output ./model,MODEL" run model --input in --output ./model
refused "own.cell,--cell" init own.cell --cell own.cell --input 3 --hidden 4 --overwrite
refused "--json own.cell,--cell" bench --cell own.cell --json own.cell
refused "--report x,--json x" bench --json x --report x
refused "--json x,--wisdom" bench --json x --wisdom ./x
refused "--wisdom own.cell,--cell" plan --cell own.cell --wisdom own.cell
refused "--json text,FILE" data stats text --json text
refused "--json x,--cache x" data stats text --json x --cache x
refused ".recurve-tokens" eval text.recurve-tokens text

# ---- what is there is not replaced unasked ----
refused "model,--overwrite" init model --cell lstm --input 3 --hidden 4
good init model --cell lstm --input 3 --hidden 4 --seed 2 --overwrite
refused "text,not tensors" run model --input in --output text
good run model --input in --output y
good run model --input in --output y
good init other --cell lstm --input 3 --hidden 4
refused "other,not tensors" run model --input in --output other
refused "text,not numbers" data stats valid --json text
good data stats valid --json numbers
good data stats valid --json numbers
mkdir train
leakless good train text --output train/a "${small[@]}"
refused "LOG train/a.jsonl,the page" report train/a.jsonl --output train/a.jsonl
cp train/a.jsonl train/b.jsonl
refused "train/b.jsonl,not a page" report --output train/b.jsonl train/a.jsonl
good report train/a.jsonl
good report train/a.jsonl
good export train/a train/only
refused "train/only,--overwrite" export train/a train/only
refused "FILE train/a,MODEL" export train/a train/a --overwrite
good export train/a train/only --overwrite
echo mine >page.html.part
echo mine >numbers.part
good report train/a.jsonl --output page.html
good data stats valid --json numbers
[ "$(cat page.html.part numbers.part)" = $'mine\nmine' ] || complain "a file PATH.part of the user's was replaced"

# ---- a new training over what is there ----
leakless refused "train/a,resume,--overwrite" train text --output train/a "${small[@]}"
good train --resume train/a --steps 4
cp train/a.jsonl train/c.jsonl
refused "the log train/c.jsonl,--overwrite" train text --output train/c "${small[@]}"
cp text train/d.jsonl
refused "train/d.jsonl,not a log" train text --output train/d "${small[@]}" --overwrite
refused "train/d.jsonl,not a log" train --resume train/a --output train/e --log train/d.jsonl --steps 6
cp text train/e.1
refused "train/e.1,no model" train text --output train/e "${small[@]}"
refused "train/e.1,no model" train text --output train/e "${small[@]}" --overwrite
cp train/a train/e.1
refused "train/e.1,another run" train text --output train/e "${small[@]}"
good train text --output train/e "${small[@]}" --overwrite --checkpoint-every 1
cmp -s train/a train/e.1 && complain "with --overwrite the checkpoint of another run is not replaced"
cp train/a train/f.best
refused "train/f.best,another run" train text --output train/f "${small[@]}"
good train text --output train/a "${small[@]}" --overwrite
[ "$(grep -c '"event":"start"' train/a.jsonl)" = 1 ] || complain "--overwrite does not begin a new log"

# ---- refused for other reasons, and nothing is touched: no log, no tokens ----
rm -f text.recurve-tokens
cp train/a.jsonl g.jsonl
cosine=(--decay cosine --epochs 0 --steps 0 --seconds 3)
refused "cosine" train text --output g --hidden 4 "${cosine[@]}" --overwrite
refused "lean" train text --output g "${small[@]}" --lean yes --optimiser adam --overwrite
[ -e text.recurve-tokens ] && complain "settings that cannot be used were found behind the reading of the text"
refused "cell" train text --output g "${small[@]}" --cell nothing.cell --overwrite

# ---- the test is of this run's best model ----
mkdir corpus
for part in train valid test; do cp text corpus/$part.txt; done
good train corpus --output train/t "${small[@]}" --validate-every 1
good train corpus --output train/u --hidden 4 --batch 2 --length 4 --steps 40 --learning-rate 1 --validate-every 40
good train corpus --output train/v "${small[@]}" --validate-every 2
cp train/u.best train/v.best # by hand, behind the run's back
good train --resume train/v --steps 3 --validate-every 100 --learning-rate 10 --overwrite # the validation at the end is not the best one
grep -q "test of train/v:" "$folder.err" || complain "the test is not of the last model, where the best is another run's"
grep -q "this run has no best model" "$folder.err" || complain "it is not said that the best model is not there"
cp train/t train/w
cp train/t.best train/w.best
good train --resume train/w --steps 3 --validate-every 100
grep -q "test of train/w.best:" "$folder.err" || complain "the test is not of the run's best model"

# ---- two trainings at once, and one that was killed ----
long=(train text --output train/two --hidden 8 --batch 2 --length 4 --steps 100000000 --threads 1 --effort estimate
    --checkpoint-every 100)
"$RECURVE" "${long[@]}" 2>"$folder.two" &
first=$!
for _ in $(seq 600); do [ -e train/two ] && break || sleep 0.05; done
status=0
"$RECURVE" "${long[@]}" --overwrite >/dev/null 2>"$folder.err" || status=$?
[ $status = 1 ] && grep -q "another process writes train/two" "$folder.err" || complain "a second training gave $status"
ln -s two train/second
"$RECURVE" train text --output train/second --hidden 4 --steps 1 --overwrite 2>"$folder.err" &&
    complain "a second training by another name began"
[ "$(grep -c '"event":"start"' train/two.jsonl)" = 1 ] || complain "the second training has written into the log of the first"
kill -9 $first
{ wait $first; } 2>/dev/null
[ -e train/two.lock ] || complain "a killed training has no lock to leave"
good "${long[@]/100000000/2}" --overwrite
[ -e train/two.lock ] && complain "the lock was left"
rm -f "$folder.two"

# ---- what killed processes left ----
# a number that no process has: beyond the largest
gone=$(($(cat /proc/sys/kernel/pid_max 2>/dev/null || echo 4194304) + 7))
mkdir left
cp text left/text
touch "left/m.tmp-$gone-0" "left/m.tmp-$$-0" left/m.tmp-x-0 "left/other.tmp-$gone-0" "left/text.recurve-tokens.tmp-$gone-3"
good train left/text --level word --output left/m "${small[@]}"
[ -e "left/m.tmp-$gone-0" ] && complain "what a dead process left of the model is still there"
[ -e "left/text.recurve-tokens.tmp-$gone-3" ] && complain "what a dead process left of the tokens is still there"
for kept in "m.tmp-$$-0" m.tmp-x-0 "other.tmp-$gone-0"; do [ -e "left/$kept" ] || complain "left/$kept was removed"; done
python3 - "left/n.tmp-$gone-0" <<'PYTHON' &
import fcntl, sys, time
file = open(sys.argv[1], "w")
fcntl.flock(file, fcntl.LOCK_EX)
open("left/ready", "w").close()
time.sleep(60)
PYTHON
holder=$!
for _ in $(seq 100); do [ -e left/ready ] && break || sleep 0.05; done
good train left/text --output left/n "${small[@]}"
[ -e "left/n.tmp-$gone-0" ] || complain "a file that a process of another machine still writes was removed"
kill $holder
wait $holder 2>/dev/null

# ---- full disks ----
# The log may not grow: the training goes on, says so once, and the status tells.
cat >limit.py <<'PYTHON'
import resource, signal, subprocess, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
sys.exit(subprocess.call(sys.argv[2:], restore_signals=False))
PYTHON
good train text --output train/h "${small[@]}"
size=$(stat -c %s train/h)
rm train/h train/h.jsonl
status=0
more=(--hidden 4 --batch 2 --length 4 --steps 400 --threads 1 --effort estimate --log-every 1)
python3 limit.py $((size + 4096)) "$RECURVE" train text --output train/h "${more[@]}" 2>"$folder.err" || status=$?
[ $status = 1 ] || complain "a log that cannot be written gave $status"
[ "$(grep -c "cannot write the log train/h.jsonl" "$folder.err")" = 1 ] || complain "it is not said once that the log cannot be written"
grep -q "wrote train/h after 400 updates" "$folder.err" || complain "training did not go on without its log"
python3 -c 'import json, sys; [json.loads(line) for line in open("train/h.jsonl")]' || complain "a part of a line is left in the log"
before=$(cksum <train/h)
status=0
python3 limit.py $((size / 2)) "$RECURVE" train --resume train/h --steps 500 2>"$folder.err" || status=$?
[ $status = 1 ] && grep -q "cannot write .*train/h" "$folder.err" || complain "a model that cannot be written gave $status"
[ "$before" = "$(cksum <train/h)" ] || complain "a full disk has changed the model"
ls train | grep -q tmp && complain "a full disk has left: $(ls train)"

# ---- asked to stop before the first update ----
cat >early.py <<'PYTHON'
import os, signal, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stderr=subprocess.PIPE)
while process.poll() is None:
    try:
        if int([l.split()[1] for l in open("/proc/%d/status" % process.pid) if l.startswith("SigCgt")][0], 16) & 2:
            process.send_signal(signal.SIGINT)
            break
    except (FileNotFoundError, IndexError):
        pass
sys.stderr.buffer.write(process.stderr.read())
sys.exit(process.wait() % 256)
PYTHON
before=$(state)
python3 early.py "$RECURVE" train text --output train/early --hidden 512 --layers 8 --batch 32 --length 64 --effort exhaustive \
    2>"$folder.err"
status=$?
rm -f text.recurve-tokens
[ $status = 130 ] || complain "Ctrl-C at once gave $status"
grep -q "nothing was written" "$folder.err" || complain "Ctrl-C before the first update does not say that nothing was written"
[ -e train/early ] && complain "Ctrl-C before the first update has written a model"
[ "$before" = "$(state)" ] || complain "Ctrl-C before the first update has changed: $(diff <(echo "$before") <(state))"

[ $failures = 0 ] || echo "$failures checks failed"
[ $failures = 0 ]
