#!/usr/bin/env bash
# recurve report of several logs: curves over each other and over three axes, tables of the runs and of their differences, and the JSON summary.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
complain() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

mkdir x y
python3 - <<'PYTHON'
import json, math

def log(name, loss, updates=1000, form="perplexity", end=True, valid=True, **settings):
    lines = [{"event": "start", "version": "0.1.0", "date": "2026-11-19 20:00 UTC", "device": "cpu <%s> & more" % name, "parameters": 12345,
              "settings": {"cell": "lstm", "hidden": 32, "clip": 0.25, "log": name, "layers": 1, **settings}}]
    def losses(value):
        return {"loss": value, **({form: math.exp(value) if form == "perplexity" else value / math.log(2)} if form else {})}
    for step in range(10, updates + 1, 10):
        value = loss + 3 * math.exp(-step / 200)
        lines.append({"event": "progress", "step": step, "epoch": step / 100, "rate": 0.1, "norm": 1, "seconds": step / 2,
                      "tokens_per_second": 1000 * loss, **losses(value)})
        if valid and step % 250 == 0:
            lines.append({"event": "validation", "step": step, "epoch": step / 100, "seconds": step / 2, "best": True, **losses(value + 0.5)})
    if end:
        lines.append({"event": "end", "reason": "steps", "step": updates, "seconds": updates / 2, "tokens_per_second": 12000 * loss, **losses(loss)})
    with open(name, "w") as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines))

log("one.jsonl", 2.0)
log("<two>.jsonl", 1.5, cell="gru", seed=3)
log("three.jsonl", 1.0, 500, end=False, hidden=64)
log("bits.jsonl", 1.25, form="bits_per_byte")
log("plain.jsonl", 1.25, form=None, valid=False)
log("x/run.jsonl", 1.0)
log("y/run.jsonl", 2.0)
log("huge.jsonl", 1e6, 30, form=None)
for i in range(24):
    log("many-%02d.jsonl" % i, 1 + i / 10, 200)
PYTHON

export PYTHONPATH="$SOURCE_DIR/tests/command/report" PYTHONDONTWRITEBYTECODE=1
cat >read.py <<'PYTHON'
import math, re, sys
from page import ReportPage
page = ReportPage(sys.argv[1]).read()
text = page.text

def want(what, is_now, wanted):
    if is_now != wanted:
        page.wrong.append("%s: %s, not %s" % (what, is_now, wanted))
PYTHON
check() { # check NAME: the rest of the input, after read.py, holds for the page NAME.html
    cat read.py - <(echo 'page.report()') >check.py
    python3 check.py "$1.html" || failures=$((failures + 1))
}

"$RECURVE" report one.jsonl '<two>.jsonl' three.jsonl --output all.html >out 2>err || { cat err; exit 1; }
check all <<'PYTHON'
counts = {place: [len(path) for path in paths] for place, paths in page.paths.items()}
wanted = {}
for axis in ("x0", "x1", "x2"):
    wanted.update({("loss", axis): [100, 100, 50], ("validation", axis): [4, 4, 2], ("speed", axis): [100, 100, 50]})
want("the lines", counts, wanted)
want("the marks", page.dots, {("validation", axis): 10 for axis in ("x0", "x1", "x2")})
# 500 of 1000 updates are half of the axis, which begins at 0
want("where the short run ends", {axis: page.paths["loss", axis][2][-1][0] for axis in ("x0", "x1", "x2")}, {"x0": 5000, "x1": 5000, "x2": 5000})
want("the lowest line is the last", [min(y for _, y in line) == min(y for l in page.paths["loss", "x0"] for _, y in l) for line in
     page.paths["loss", "x0"]], [True, False, False])
want("the axes", [a["id"] for a in page.inputs if a["type"] == "radio"], ["x0", "x1", "x2"])
want("one is chosen", ["checked" in a for a in page.inputs if a["type"] == "radio"], [True, False, False])
want("the axis of time", "minutes" in page.words, True) # 500 s
want("boxes", [a["id"] for a in page.inputs if a["type"] == "checkbox"], ["i0", "i1", "i2"])
want("rules", [rule in text for rule in ("#i2:not(:checked)~section .r2{display:none}", "#x1:checked~section .x0")], [True, True])
want("labels", len(re.findall('<label for="i1">', text)), 3)
want("names of lines", [title for title in page.titles if title == "<two>.jsonl"], ["<two>.jsonl"] * 9)
p = math.exp
want("the runs", [row[:-2] for row in page.tables["runs"]], [
    ["run", "updates", "last training perplexity", "best validation perplexity", "minutes", "parameters", "tokens a second"],
    ["one.jsonl", "1,000", "%.2f" % p(2), "%.2f" % p(2.5 + 3 * p(-5)), "8.33", "12,345", "24,000"],
    ["<two>.jsonl", "1,000", "%.2f" % p(1.5), "%.2f" % p(2 + 3 * p(-5)), "8.33", "12,345", "18,000"],
    ["three.jsonl", "500", "%.2f" % p(1 + 3 * p(-2.5)), "%.2f" % p(1.5 + 3 * p(-2.5)), "4.17", "12,345", "1,000"]])
want("states", [row[-2:] for row in page.tables["runs"][1:]], [["steps", "cpu <one.jsonl> & more"], ["steps", "cpu <<two>.jsonl> & more"],
                                                                ["has not ended", "cpu <three.jsonl> & more"]])
want("the best", page.best, [("runs", 1, 6), ("runs", 3, 2), ("runs", 3, 3)])
want("the cards", page.cards, ["%.2f" % p(1.5 + 3 * p(-2.5)), "best perplexity, validation: three.jsonl", "%.2f" % p(1 + 3 * p(-2.5)),
                               "lowest training perplexity at the end: three.jsonl", "24,000", "most tokens a second: one.jsonl"])
want("the differences", page.tables["settings"][:4], [["run", "cell", "hidden", "seed"], ["one.jsonl", "lstm", "32", "0"], ["<two>.jsonl", "gru", "32", "3"],
                                                       ["three.jsonl", "lstm", "64", "0"]])
want("what is shared", page.tables["settings"][4:], [["setting", "value", "default"], ["clip", "0.25", "1"]])
want("folded", text.count("<details>"), 1)
PYTHON

"$RECURVE" report one.jsonl bits.jsonl plain.jsonl --output mixed.html >out 2>err || complain "other losses: $(cat err)"
check mixed <<'PYTHON'
want("the losses of all", page.tables["runs"][0][2:4], ["last training loss", "best validation loss"])
want("the title", "Training loss" in page.words, True)
want("no validation", page.tables["runs"][3][3], "")
want("two validated", len(page.paths["validation", "x0"]), 2)
PYTHON
"$RECURVE" report bits.jsonl bits.jsonl --output bits.html >out 2>err || complain "bits a byte: $(cat err)"
check bits <<'PYTHON'
want("bits", page.tables["runs"][1][2], "%.4f" % (1.25 / math.log(2)))
want("the title", "Training bits a byte" in page.words, True)
want("nothing differs", "All runs have the same settings." in page.words, True)
PYTHON
"$RECURVE" report x/run.jsonl y/run.jsonl --output folders.html --loss 2.25 >out 2>err || complain "folders: $(cat err)"
check folders <<'PYTHON'
want("names", [row[0] for row in page.tables["runs"][1:]], ["x/run.jsonl", "y/run.jsonl"])
# 1 + 3 exp(-s / 200) <= 2.25 at 180 updates, 90 s; 2 + ... at 500, 250 s
want("the time to a loss", [page.tables["runs"][i][-3] for i in range(3)], ["minutes to loss 2.25", "1.50", "4.17"])
PYTHON
"$RECURVE" report one.jsonl huge.jsonl --output huge.html >out 2>err || complain "a loss of a million: $(cat err)"
check huge <<'PYTHON'
heights = [y for line in page.paths["loss", "x0"] for _, y in line]
want("a logarithmic axis tells small losses apart", max(page.paths["loss", "x0"][0], key=lambda p: p[1])[1] - min(page.paths["loss", "x0"][0], key=lambda p: p[1])[1] > 100, True)
want("digits in groups", "1,000,000.0000" in [cell for row in page.tables["runs"] for cell in row], True)
PYTHON
"$RECURVE" report many-*.jsonl --output many.html >out 2>err || complain "24 runs: $(cat err)"
check many <<'PYTHON'
looks = re.findall(r'<svg class="sample"[^>]*><path class="(l\d d\d)"', text.split('id="runs"')[1])
want("looks of 24 lines", [len(looks), len(set(looks))], [24, 24])
want("their lines", sorted(set(re.findall(r'<path class="(l[^"]*)" d="[^"]*"><title>many', text))), sorted({look.replace(" d0", "") for look in looks}))
PYTHON

# ---- the summary as JSON ----
"$RECURVE" report one.jsonl '<two>.jsonl' three.jsonl --output all.html --json all.json >out 2>err || complain "--json: $(cat err)"
"$RECURVE" report one.jsonl '<two>.jsonl' three.jsonl --output all.html --json - >printed.json 2>err || complain "--json -: $(cat err)"
cmp -s all.json printed.json || complain "--json - prints something else than --json FILE writes"
"$RECURVE" report plain.jsonl --json one.json 2>err || complain "--json of one log: $(cat err)"
python3 - <<'PYTHON' || failures=$((failures + 1))
import json, math, sys
summary, single = json.load(open("all.json")), json.load(open("one.json"))
wrong = []
def want(what, is_now, wanted):
    if is_now != wanted:
        wrong.append("%s: %s, not %s" % (what, is_now, wanted))
one, two, three = summary["runs"]
want("names", [run["name"] for run in summary["runs"]], ["one.jsonl", "<two>.jsonl", "three.jsonl"])
want("ends", [(run["ended"], run["reason"], run["final"]["step"]) for run in summary["runs"]],
     [(True, "steps", 1000), (True, "steps", 1000), (False, None, 500)])
want("losses", [run["final"]["loss"] for run in summary["runs"][:2]], [2.0, 1.5])
want("perplexity", round(one["final"]["perplexity"], 6), round(math.exp(2), 6))
want("the best validation", (three["best_validation"]["step"], round(three["best_validation"]["loss"], 6)), (500, round(1.5 + 3 * math.exp(-2.5), 6)))
want("the last", three["last_validation"], three["best_validation"])
want("counts are whole", [type(one["final"]["step"]), type(three["best_validation"]["step"]), one["ranks"]], [int, int, 1])
want("no test", one["test"], None)
want("differences", [{k: v for k, v in run["settings"].items() if k != "log"} for run in summary["runs"]],
     [{"cell": "lstm", "hidden": 32, "seed": "0"}, {"cell": "gru", "hidden": 32, "seed": 3}, {"cell": "lstm", "hidden": 64, "seed": "0"}])
want("shared", summary["shared_settings"], {"clip": 0.25, "layers": 1})
want("speed", one["tokens_per_second"], 24000.0)
want("one run has all its settings", (single["runs"][0]["settings"]["cell"], single["runs"][0]["best_validation"], "shared_settings" in single),
     ("lstm", None, False))
for sentence in wrong:
    print("FAILED: the summary:", sentence)
sys.exit(bool(wrong))
PYTHON
# refused SENTENCE ARGUMENTS...: this is said, and nothing is written
refused() {
    local sentence=$1 status=0
    shift
    "$RECURVE" report "$@" >out 2>err || status=$?
    [ $status = 1 ] || complain "$*: exit status $status"
    grep -qF -- "$sentence" err || complain "$*: said '$(cat err)', not '$sentence'"
}
echo 'my notes' >notes.txt
refused "notes.txt exists and is not numbers that recurve wrote" one.jsonl --output new.html --json notes.txt
[ "$(cat notes.txt)" = 'my notes' ] && [ ! -e new.html ] || complain "notes.txt or a page was written"
refused "is the same file" one.jsonl --output same.html --json same.html
refused "is the same file" one.jsonl --json one.jsonl
refused "cannot open missing.jsonl" one.jsonl missing.jsonl '<two>.jsonl' --output new.html
{ echo nonsense; cat one.jsonl; } >"<two>.jsonl.bad"
cp "<two>.jsonl.bad" worse.jsonl
refused "<two>.jsonl.bad:1: not a line" one.jsonl '<two>.jsonl.bad' worse.jsonl --output new.html
[ ! -e new.html ] || complain "a page of a missing log was written"
[ $failures = 0 ]
