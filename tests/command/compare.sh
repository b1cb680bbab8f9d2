#!/usr/bin/env bash
# recurve compare: each cell is trained as recurve train does it, the table and the record agree with the logs, what has finished is kept, and
# nothing of others is replaced.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
. "$SOURCE_DIR/tests/support/leaks.bash"

complain() {
    echo "FAILED: $*"
    sed 's/^/    stdout: /' out | head -8
    sed 's/^/    stderr: /' err | tail -8
    failures=$((failures + 1))
}
good() { "$RECURVE" "$@" >out 2>err </dev/null || complain "recurve $* gave $?"; }
# bad STATUS FRAGMENT ARGUMENTS...: that exit status, one sentence with the fragment, nothing on standard output
bad() {
    local wanted=$1 fragment=$2 status=0
    shift 2
    "$RECURVE" "$@" >out 2>err </dev/null || status=$?
    [ $status = "$wanted" ] || complain "recurve $* gave $status, not $wanted"
    [ "$(wc -l <err)" = 1 ] || complain "recurve $* does not say one line"
    grep -qF -- "$fragment" err || complain "recurve $* does not say '$fragment'"
    [ ! -s out ] || complain "recurve $* writes to standard output"
}
# check CODE: Python sees `json.load` of FOLDER/comparison.json as record(FOLDER), the events of a log as events(LOG, NAME)
check() {
    python3 - "$1" 2>>err <<'PYTHON' || complain "$1"
import json, os, sys
def record(folder):
    return json.load(open(folder + "/comparison.json"))
def events(log, name):
    return [line for line in map(json.loads, open(log)) if line["event"] == name]
exec(sys.argv[1])
PYTHON
}
# same A B: the models of two runs have the same bits
same() {
    rm -f a.only b.only
    "$RECURVE" export "$1" a.only >/dev/null 2>>err && "$RECURVE" export "$2" b.only >/dev/null 2>>err && cmp -s a.only b.only
}
# all files of a folder with their contents
contents() { (cd "$1" && find . -type f | sort | xargs sha256sum); }

for ((i = 0; i < 300; i++)); do echo "line $i of a text that repeats itself, line after line"; done >text
head -60 text >valid
python3 - <<'PYTHON'
import random
random.seed(1)
with open("examples", "w") as examples:
    for i in range(80):
        values = [round(random.uniform(-1, 1), 3) for _ in range(random.randrange(1, 30))]
        print('{"x": %s, "y": "%s"}' % (values, "up" if values[-1] > 0 else "down"), file=examples)
PYTHON
small=(--valid valid --hidden 12 --batch 4 --length 16 --threads 1 --effort estimate)
run=(text "${small[@]}" --steps 40 --validate-every 20 --learning-rate 0.01)

# ---- two cells, two seeds ----
leakless good compare lstm gru "${run[@]}" --seeds 2 --output both
cp out table
awk 'length > 80 { exit 1 }' out || complain "the table is wider than 80 columns"
[ "$(cd both && ls -- *.jsonl | xargs)" = "gru-seed1.jsonl gru.jsonl lstm-seed1.jsonl lstm.jsonl" ] || complain "the logs: $(ls both)"
grep -q 'lstm-seed1' both/comparison.html && grep -q '<svg' both/comparison.html || complain "the page has no runs"
good train "${run[@]}" --cell gru --seed 1 --keep 1 --output alone.safetensors
same alone.safetensors both/gru-seed1.safetensors || complain "a run of a comparison is another model than recurve train makes"
check '
import math, statistics
cells, runs = record("both")["cells"], record("both")["runs"]
assert [cell["best"] for cell in cells] == sorted(cell["best"] for cell in cells) and len(cells) == 2 and len(runs) == 4
for name, run in runs.items():
    end, checks = events("both/%s.jsonl" % name, "end")[-1], events("both/%s.jsonl" % name, "validation")
    assert run["state"] == "finished" and run["step"] == end["step"] == 40 and len(checks) >= 2, run
    assert abs(run["validation"] - checks[-1]["loss"]) < 1e-6 and abs(run["best"] - min(c["loss"] for c in checks)) < 1e-6
    assert abs(run["metric"] - run["best"] / math.log(2)) < 1e-6
    assert run["parameters"] == events("both/%s.jsonl" % name, "start")[0]["parameters"]
for cell in cells:
    metrics = [run["metric"] for run in runs.values() if run["cell"] == cell["cell"]]
    assert len(metrics) == 2 and metrics[0] != metrics[1] and cell["finished"] == 2
    assert abs(cell["metric"] - statistics.mean(metrics)) < 1e-6 and abs(cell["metric_deviation"] - statistics.stdev(metrics)) < 1e-6
rows = [line.split() for line in open("table")][1:3]
assert [row[0] for row in rows] == [cell["cell"] for cell in cells], rows
for row, cell in zip(rows, cells):
    assert row[1] == "{:,}".format(cell["parameters"]) and row[2] == "40" and row[6] == "%.4f" % cell["best"] and row[7] == "%.4f" % cell["metric"], row
    assert row[8] == "+-%.2g" % cell["metric_deviation"], row'
check 'assert len({json.dumps(events("both/%s.jsonl" % name, "start")[0]["shapes"]) for name in record("both")["runs"]}) == 1, "batches differ"'

# ---- again, and with more ----
before=$(sha256sum both/*.jsonl both/*.safetensors)
good compare lstm gru "${run[@]}" --seeds 2 --output both
[ "$before" = "$(sha256sum both/*.jsonl both/*.safetensors)" ] || complain "what has finished is trained again"
cmp -s out table || complain "the table of runs that were kept is another"
grep -q '; 4 finished before' err || complain "runs that were kept are not named"
printf 'cell mine(x) {\n    state h\n    h'"'"' = tanh(W x + U h + b)\n    return h'"'"'\n}\n' >mine.cell
good compare lstm gru ./mine.cell "${run[@]}" --seeds 2 --output both --quiet
[ ! -s err ] || complain "--quiet says something"
[ "$before" = "$(sha256sum both/gru*.jsonl both/lstm*.jsonl both/gru*.safetensors both/lstm*.safetensors)" ] || complain "with a third cell others are trained again"
check 'assert len(record("both")["cells"]) == 3 and len(record("both")["runs"]) == 6'
grep -q '^mine ' out || complain "the table has no row of a cell from a file"

# ---- other settings, other equations, other data: refused, and nothing changes ----
contents both >before
bad 1 "has steps 40, not 50" compare lstm gru "${run[@]/40/50}" --output both
bad 1 "has hidden 12, not 13" compare gru "${run[@]/12/13}" --output both
sed -i 's/tanh/sigmoid/' mine.cell
bad 1 "the run mine in both has other equations of the cell" compare lstm ./mine.cell "${run[@]}" --output both
cp text copy
echo more >>text
bad 1 "has other data" compare lstm gru "${run[@]}" --output both
contents both | cmp -s - before || complain "a comparison that was refused has changed files"
mv copy text
good compare lstm "${run[@]/40/10}" --output both --overwrite
check 'assert record("both")["runs"]["lstm"]["step"] == 10 and record("both")["runs"]["gru"]["step"] == 40'

# ---- interrupted ----
cat >interrupt.py <<'PYTHON'
import os, signal, subprocess, sys
number, log = getattr(signal, sys.argv[1]), sys.argv[2]
process = subprocess.Popen(sys.argv[3:], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
while process.poll() is None and not (os.path.exists(log) and open(log).read().count('"progress"') >= 20):
    pass
process.send_signal(number)
sys.stderr.buffer.write(process.stderr.read())
sys.exit(process.wait() % 256)
PYTHON
long=(text "${small[@]}" --steps 400 --log-every 1 --checkpoint-every 50)
good compare lstm gru "${long[@]}" --output whole
for how in SIGINT:130 SIGKILL:247; do
    rm -rf cut
    python3 interrupt.py "${how%:*}" cut/gru.jsonl "$RECURVE" compare lstm gru "${long[@]}" --output cut >out 2>err
    status=$?
    [ $status = "${how#*:}" ] || complain "${how%:*} gives $status"
    [ "${how%:*}" = SIGKILL ] || grep -q 'the same command continues the comparison in cut' err || complain "${how%:*} is not answered"
    check 'runs = record("cut")["runs"]; assert runs["lstm"]["state"] == "finished" and runs["gru"]["state"] != "finished", runs'
    finished=$(sha256sum cut/lstm.jsonl)
    good compare lstm gru "${long[@]}" --output cut
    [ "$finished" = "$(sha256sum cut/lstm.jsonl)" ] || complain "after ${how%:*} a finished run is trained again"
    same cut/gru.safetensors whole/gru.safetensors || complain "what goes on after ${how%:*} is another model"
    check 'assert record("cut")["runs"]["gru"]["step"] == 400 and len(events("cut/gru.jsonl", "resume")) == '"$([ "${how%:*}" = SIGINT ] && echo 1 || echo 0)"
done

# ---- the same number of parameters ----
good compare lstm gru sru text --valid valid --output sized --parameters 20000 --steps 5 --batch 4 --length 16 --threads 1 --effort estimate
check '
import subprocess
for name, run in record("sized")["runs"].items():
    hidden = run["task"]["settings"]["hidden"]
    for other in (hidden - 1, hidden + 1):
        subprocess.run([os.environ["RECURVE"], "train", "text", "--cell", name, "--hidden", str(other), "--steps", "0", "--output", "other", "--overwrite",
                        "--threads", "1", "--effort", "estimate", "--batch", "4", "--length", "16"], check=True, stderr=subprocess.DEVNULL)
        parameters = events("other.jsonl", "start")[0]["parameters"]
        assert abs(parameters - 20000) >= abs(run["parameters"] - 20000), (name, hidden, run["parameters"], other, parameters)'

# ---- sequences: padded lengths are the same for all ----
good compare lstm gru examples --kind classes --valid examples --output classes --hidden 8 --epochs 3 --threads 1 --json
check 'assert json.load(open("out")) == record("classes")'
check '
runs = [events("classes/%s.jsonl" % name, "start")[0] for name in ("lstm", "gru")]
assert runs[0]["settings"]["buckets"] == runs[1]["settings"]["buckets"] and "," in runs[0]["settings"]["buckets"], runs[0]["settings"]["buckets"]
assert runs[0]["shapes"] == runs[1]["shapes"]
# the comparison gave them to the run, which did not choose them by its own speed
assert all(run["task"]["settings"]["buckets"] == runs[0]["settings"]["buckets"] for run in record("classes")["runs"].values())'

# ---- a limit of time; a cell that diverges ----
good compare lstm gru text "${small[@]}" --seconds 0.5 --output timed
check 'assert all(0.4 < run["seconds"] < 3 for run in record("timed")["runs"].values())'
"$RECURVE" compare rnn_relu gru text "${small[@]}" --steps 300 --learning-rate 1e6 --clip 0 --output diverged >out 2>err
[ $? = 1 ] || complain "a cell that diverges is no failure"
grep -q 'not a number' err && grep -qE '^rnn_relu .*no run has finished' out || complain "a cell that diverges is not named"
check 'runs = record("diverged")["runs"]; assert runs["rnn_relu"]["state"] == "failed" and runs["gru"]["state"] == "finished"'

# ---- what is refused before anything is written ----
printf 'cell c(x) {\n    state h\n    h'"'"' = tanh(W x + U hh)\n    return h'"'"'\n}\n' >wrong.cell
"$RECURVE" compare lstm wrong.cell nothing.cell text --output new >out 2>err
[ $? = 1 ] && grep -q '^wrong.cell:3:' err && grep -q 'nothing.cell' err || complain "not every bad cell is named"
[ ! -e new ] || complain "bad cells leave a folder"
bad 1 "given twice" compare lstm lstm text --output new
bad 2 "needs cells and DATA" compare lstm --output new
bad 2 "needs CELL" compare
bad 2 "--cell is not for compare" compare lstm text --cell gru
bad 2 "--log is not for compare" compare lstm text --log x
bad 2 "--test is not for compare" compare lstm text --test valid
bad 2 "--parallel is not for compare" compare lstm text --parallel data
bad 2 "exclude each other" compare lstm text --hidden 3 --parameters 5
bad 2 "--seeds must be a whole number" compare lstm text --seeds 0
bad 1 "no-such-file" compare lstm gru no-such-file --output new
bad 1 "proj" compare lstm_proj gru text --sizes proj=4 --output new
[ ! -e new ] || complain "what was refused leaves a folder"
bad 1 "cannot make the folder text" compare lstm gru text --output text --steps 1
bad 1 "cannot make the folder no/where" compare lstm gru text --output no/where --steps 1
# files of others
mkdir others
for name in gru.jsonl gru.safetensors comparison.html comparison.json lstm.jsonl; do
    echo "somebody's own" >others/$name
    contents others >before
    bad 1 "$name" compare lstm gru "${run[@]}" --output others
    contents others | cmp -s - before || complain "$name of somebody has changed files"
    rm others/$name
done
cp both/gru.jsonl others/gru.jsonl
bad 1 "others/gru.jsonl exists and is not a run of a comparison" compare gru "${run[@]}" --output others
rm others/gru.jsonl
echo '{"runs": 3}' | sed 's/{/{\n/' >others/comparison.json
bad 1 "is not the record of a comparison" compare gru "${run[@]}" --output others
rm others/comparison.json
ln -s ../text others/gru.safetensors
bad 1 "the same file as the data" compare gru "${run[@]}" --output others
cmp -s text copy 2>/dev/null || [ "$(wc -l <text)" = 300 ] || complain "the data has changed"

[ $failures = 0 ] || echo "$failures checks failed"
[ $failures = 0 ]
