#!/usr/bin/env bash
# recurve report: the page has the numbers of the log, is well-formed and fetches nothing; broken logs are refused by line.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
complain() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# A run of 3000 updates that was killed at 1500 and went on from its checkpoint at 1200.
python3 - <<'PYTHON'
import json, math

def progress(step, before):
    loss = 4 + 3 * math.exp(-step / 500) + (0.5 if before else 0)
    return {"event": "progress", "step": step, "epoch": step / 1000, "loss": loss, "perplexity": math.exp(loss),
            "rate": 1.0 if step < 2000 else 0.5, "norm": 3.25, "tokens_per_second": 410000 + step, "seconds": step / 100}

def validation(step, loss):
    return {"event": "validation", "step": step, "epoch": step / 1000, "loss": loss, "perplexity": math.exp(loss),
            "best": True, "seconds": step / 100}

start = {"event": "start", "version": "0.1.0", "date": "2026-11-17 01:02 UTC", "parameters": 4653200, "bytes": 123456789,
         "shapes": [{"steps": 10, "batch": 64, "batches": 750}, {"steps": 40, "batch": 64, "batches": 250}],
         "plans": ["combine(steps=8)+fuse+pack"], "device": "a <device> & more", "tokens": 929589,
         "settings": {"hidden": 200, "layers": 1, "learning-rate": 1.0, "weight-decay": 1.2e-06, "optimiser": "sgd",
                      "data": "<ptb>", "shuffle": True, "of-later": 7.5}}
killed = [progress(s, s > 1200) for s in range(10, 1501, 10)] + [validation(1000, 4.80001), validation(1500, 4.1)]
resumed = [progress(s, False) for s in range(1210, 3001, 10)] + [validation(2000, 4.7), validation(3000, 4.75)]
in_order = lambda lines: sorted(lines, key=lambda line: line["step"])
lines = [start] + in_order(killed) + [{"event": "checkpoint", "step": 1200, "path": "a.ckpt"}, {"event": "resume", "step": 1200}]
lines += in_order(resumed)
end = {"event": "end", "reason": "epochs", "step": 3000, "seconds": 77.5, "tokens_per_second": 398765}
test = {"event": "test", "loss": 4.6868, "perplexity": math.exp(4.6868), "counted": 82429}
with open("run.jsonl", "w") as file:
    for line in lines + [{"event": "nobody knows"}, end, test]:
        file.write(json.dumps(line) + "\n")
PYTHON

"$RECURVE" report run.jsonl >out 2>err || { cat err; exit 1; }
[ -s run.html ] || { echo "no page run.html"; exit 1; }
[ ! -e run.html.part ] || complain "a half-written page is left"

export PYTHONPATH="$SOURCE_DIR/tests/command/report" PYTHONDONTWRITEBYTECODE=1
cat >read.py <<'PYTHON'
import sys
from page import ReportPage

page = ReportPage(sys.argv[1]).read()
text, wrong = page.text, page.wrong
PYTHON

cat read.py - >whole.py <<'PYTHON'
import math
wanted = {
    "%.2f" % math.exp(4.7): "the best validation's perplexity", "%.2f" % math.exp(4.6868): "the test's perplexity",
    "perplexity, best validation, after 2,000 updates; loss 4.7000": "where it was", "398,765": "tokens a second",
    "4,653,200": "parameters", "4.8000": "the first validation", "4.7500": "the last validation", "77.5 s": "seconds",
    "perplexity, training, after 3,000 updates; loss %.4f" % (4 + 3 * math.exp(-6)): "the last loss",
    "a <device> & more": "the device", "929,589": "tokens", "1.2e-06": "weight decay", "200": "hidden", "<ptb>": "data",
    "sgd": "optimiser", "of-later": "a setting not known", "combine(steps=8)+": "a plan", "epochs": "why it ended",
    "resumed at 1,200": "the mark", "resumed at update": "the resume", "75.0%": "a bucket's share",
    "Lengths to which sequences are padded: %.4f time steps with padding for each time step of the data." % (64 * (10 * 750 + 40 * 250) / 929589): "padding"}
for word, meaning in wanted.items():
    if word not in page.words:
        wrong.append("the page does not show %s: %s" % (meaning, word))
for word, meaning in {"layers": "a setting at its default", "shuffle": "another", "4.1000": "a validation that was undone"}.items():
    if word in page.words:
        wrong.append("the page shows %s: %s" % (meaning, word))
counts = {name: [len(path) for path in paths] for name, paths in page.paths.items()}
for axis in ("x0", "x1", "x2"): # updates, time, epochs
    got = {section: counts.get((section, axis)) for section in ("loss", "rate", "speed", "norm")}
    if got != {"loss": [300, 3], "rate": [300], "speed": [300], "norm": [300]}:
        wrong.append("the plots over %s have so many points: %s" % (axis, got))
    if page.dots.get(("loss", axis)) != 3:
        wrong.append("%s validations are marked, not 3" % page.dots)
    # The training line falls: what was undone lay higher.
    heights = [y for _, y in page.paths.get(("loss", axis), [[]])[0]]
    if heights != sorted(heights):
        wrong.append("the training curve rises somewhere")
    left = [x for x, _ in page.paths.get(("rate", axis), [[]])[0]]
    if left != sorted(left) or left[0] > 100 or left[-1] < 9900:
        wrong.append("the learning rate does not go from left to right")
if [a.get("http-equiv") for a in page.metas if "http-equiv" in a]:
    wrong.append("the page of a run that is over reloads itself")
page.report()
PYTHON
python3 whole.py run.html || failures=$((failures + 1))

# A killed process leaves a line cut short: the page is made of the others. It has not ended.
grep -v '"end"' run.jsonl >killed.jsonl
printf '{"event": "progr' >>killed.jsonl
"$RECURVE" report killed.jsonl --output killed.page >out 2>err || complain "a log cut short: $(cat err)"
grep -q 'it has not ended' killed.page || complain "the page of a log without an end does not say so"
[ ! -e killed.html ] || complain "--output is not where the page went"

# The end is a point of the curves if it is later than the last progress line.
{ cat run.jsonl && echo '{"event": "end", "reason": "steps", "step": 3007, "loss": 2.5, "perplexity": 12.5, "seconds": 31, "tokens_per_second": 1}'; } >later.jsonl
"$RECURVE" report later.jsonl >out 2>err || complain "an end between progress lines: $(cat err)"
cat read.py - >later.py <<'PYTHON'
if len(page.paths["loss", "x0"][0]) != 301 or "perplexity, training, after 3,007 updates; loss 2.5000" not in page.words:
    wrong.append("the end is no point of the curve")
page.report()
PYTHON
python3 later.py later.html || failures=$((failures + 1))
for time in "119.6 119.6 s" "723.6 12 min 4 s" "7199.7 120 min 0 s" "12010 3 h 20 min"; do
    sed "s/\"seconds\": 77.5/\"seconds\": ${time%% *}/" run.jsonl >time.jsonl
    "$RECURVE" report time.jsonl >out 2>err && grep -q "<b>${time#* }</b><span>total time" time.html || complain "no total time of $time"
done

# 5000 lines are drawn as at most 500 points, means of neighbours with a band of their range; a loss that is no number leaves a gap.
python3 - <<'PYTHON'
import json
with open("long.jsonl", "w") as file:
    for step in range(1, 5001):
        loss = None if 2000 < step <= 3000 else 2.5
        file.write(json.dumps({"event": "progress", "step": step, "loss": loss, "rate": 0.001}) + "\n")
PYTHON
"$RECURVE" report long.jsonl >out 2>err || complain "a long log: $(cat err)"
cat read.py - >long.py <<'PYTHON'
if [len(p) for p in page.paths.get(("loss", "x0"), [])] != [400] or [len(p) for p in page.paths.get(("rate", "x0"), [])] != [500]:
    wrong.append("5000 points became %s" % {k: list(map(len, v)) for k, v in page.paths.items()})
if page.bands != {("loss", "x0"): 1}:
    wrong.append("bands: %s" % page.bands)
if "x1" in [axis for _, axis in page.paths]:
    wrong.append("there is a plot over time, and the log has no times")
if "validations" in text.split("</style>")[1]:
    wrong.append("there are validations")
page.report()
PYTHON
python3 long.py long.html || failures=$((failures + 1))

# refused SENTENCE FILE: exit status 1, this is said, and no page is written
refused() {
    local status=0
    "$RECURVE" report "$2" --output refused.html >out 2>err || status=$?
    [ $status = 1 ] || complain "$2: exit status $status"
    grep -qF -- "$1" err || complain "$2: said '$(cat err)', not '$1'"
    [ ! -e refused.html ] || complain "$2: a page was written"
}
sed '3s/}$/,}/' run.jsonl >broken.jsonl
refused "broken.jsonl:3: not a line of a training log" broken.jsonl
sed '5s/"step"/"stop"/' run.jsonl >stepless.jsonl
refused "stepless.jsonl:5: not a line of a training log: the event has no step" stepless.jsonl
{ cat run.jsonl && echo '[1]'; } >array.jsonl
refused "array.jsonl:$(wc -l <array.jsonl): not a line of a training log: it is not an object with an event" array.jsonl
echo '{"event": "other"}' >other.jsonl
refused "other.jsonl has no start, no progress and no validation" other.jsonl
refused "none.jsonl" none.jsonl
: >empty.jsonl
refused "empty.jsonl is empty" empty.jsonl
"$RECURVE" report >out 2>err
[ $? = 2 ] || complain "no log: exit status not 2"
[ $failures = 0 ]
