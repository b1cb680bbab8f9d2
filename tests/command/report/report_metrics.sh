#!/usr/bin/env bash
# recurve report of logs with metrics: cards, the curve of the metric, classes and confusion matrix, forecasts beside the naive forecast.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
complain() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

python3 - <<'PYTHON'
import json

def write(name, metrics, test, shift=0.0):
    lines = [{"event": "start", "device": "cpu", "parameters": 99, "data": {"description": "waves.csv: 3 <classes> & more", "kind": "classes", "sequences": 600},
              "settings": {"hidden": 32}}]
    for step in range(10, 101, 10):
        lines.append({"event": "progress", "step": step, "epoch": step / 50, "loss": 2 - step / 100, "seconds": step, "tokens_per_second": 5000})
        if step % 50 == 0:
            lines.append({"event": "validation", "step": step, "epoch": step / 50, "loss": 1 + 1 / step + shift, "seconds": step,
                          "metrics": {key: value + shift + step / 1000 for key, value in metrics.items()}})
    lines += [{"event": "end", "reason": "steps", "step": 100, "seconds": 100, "tokens_per_second": 5000, "loss": 1}]
    if test:
        lines.append({"event": "test", "loss": 0.75, "counted": 600, **test})
    with open(name, "w") as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines))

classes = {"accuracy": 0.7, "precision": 0.65, "recall": 0.6, "f1": 0.62, "auc": 0.8}
# sine: 90 of 100 are right, and 90 of 120 guesses; saw is never guessed right, and nothing is a "none"
confusion = [[90, 10, 0, 0], [20, 1180, 0, 0], [10, 40, 0, 0], [0, 0, 0, 0]]
tested = {"metrics": {"accuracy": 0.9407, "f1": 0.5, "of-later": 3}, "classes": ["sine", "sq<u>are", 7, "none"], "confusion": confusion}
write("classes.jsonl", classes, tested)
write("better.jsonl", classes, {"metrics": {"accuracy": 0.96}}, 0.05)
write("untested.jsonl", classes, None)
forecast = {"mae": 0.5, "rmse": 0.7, "r2": 0.4, "naive_mae": 1.25, "naive_rmse": 1.5}
write("forecast.jsonl", forecast, {"metrics": {"mae": 0.4321, "rmse": 0.6, "r2": 0.45, "naive_mae": 1.2345}})
write("worse.jsonl", forecast, {"metrics": {"mae": 0.5321}}, 0.2)
n = 60
write("many.jsonl", classes, {"classes": ["c%d" % i for i in range(n)],
                              "confusion": [[1000 if i == j else 5 + i if j == i + 1 else 0 for j in range(n)] for i in range(n)]})

# Every text of a log is somebody's.
def evil(value):
    if isinstance(value, dict):
        return {(key if key in keys else bad + key): evil(item) for key, item in value.items()}
    return [evil(item) for item in value] if isinstance(value, list) else bad if value == "" else value
bad = '"><script>alert(1)</script>&<b>'
keys = ("event step epoch loss seconds tokens_per_second metrics device date version commit parameters plans settings ranks replicas stages "
        "micro_batches time_chunks split transport reason classes confusion data description accuracy rank replica stage spans").split()
for name, ranks in ("evil", 1), ("evil-two", 2):
    lines = [{"event": "start", "device": "", "date": "", "version": "", "commit": "", "parameters": 3, "plans": [""], "data": {"description": ""},
              "settings": {"cell": "", "of-later": "", "hidden": 1},
              "ranks": {"replicas": ranks, "stages": 1, "split": "", "transport": ""}},
             {"event": "progress", "step": 1, "loss": 1, "seconds": 1, "tokens_per_second": 5},
             {"event": "validation", "step": 1, "loss": 1, "metrics": {"accuracy": 0.5, "": 1}},
             {"event": "timeline", "step": 1, "rank": 0, "replica": 0, "stage": 0, "spans": [["forward", 0, 0, 1]]},
             {"event": "end", "reason": ""}, {"event": "test", "loss": 1, "classes": ["", "a"], "confusion": [[1, 2], [3, 4]]}]
    with open(name + ".jsonl", "w") as file:
        file.write("".join(json.dumps(evil(line)) + "\n" for line in lines))
for name, broken in {"ragged": [[1, 2], [3]], "negative": [[1, -2], [3, 4]], "words": [[1, "2"], [3, 4]], "small": [[1, 2]]}.items():
    write(name + ".jsonl", classes, {"metrics": {"accuracy": 0.5}, "classes": ["a", "b"], "confusion": broken})
PYTHON

export PYTHONPATH="$SOURCE_DIR/tests/command/report" PYTHONDONTWRITEBYTECODE=1
cat >read.py <<'PYTHON'
import re, sys
from page import ReportPage
page = ReportPage(sys.argv[1]).read()
text = page.text
cards = dict(zip(page.cards[1::2], page.cards[::2]))

def want(what, is_now, wanted):
    if is_now != wanted:
        page.wrong.append("%s: %s, not %s" % (what, is_now, wanted))
PYTHON
check() { # check NAME: the rest of the input, after read.py, holds for the page NAME.html
    cat read.py - <(echo 'page.report()') >check.py
    python3 check.py "$1.html" || failures=$((failures + 1))
}
report() { "$RECURVE" report "$@" >out 2>err || complain "report $*: $(cat err)"; }

report classes.jsonl
check classes <<'PYTHON'
want("the cards of the test", [cards.get(k) for k in ("accuracy, test", "F1, test", "loss, test", "AUC, test")], ["0.9407", "0.5000", "0.7500", None])
want("the curve", [len(line) for line in page.paths["metric", "x0"]], [2])
want("its points", [t for t in page.titles if "accuracy" in t and "updates" in t], ["accuracy, updates 50: 0.75 accuracy", "accuracy, updates 100: 0.8 accuracy"])
want("the classes", page.tables["classes"][:5], [["class", "precision", "recall", "F1", "count"],
     ["sine", "0.7500", "0.9000", "0.8182", "100"], ["sq<u>are", "0.9593", "0.9833", "0.9712", "1,200"], ["7", "", "0.0000", "0.0000", "50"],
     ["none", "", "", "", "0"]])
want("the matrix", page.tables["classes"][5:], [["", "sine", "sq<u>are", "7", "none"], ["sine", "90", "10", "0", "0"], ["sq<u>are", "20", "1,180", "0", "0"],
     ["7", "10", "40", "0", "0"], ["none", "0", "0", "0", "0"]])
want("the shades", re.findall(r'<td class="(right|wrong)" style="--s:([0-9.]+)"', text)[:4], [("right", "0.900"), ("wrong", "0.100"), ("wrong", "0.000"), ("wrong", "0.000")])
want("the validations", page.tables["validations"], [["updates", "epoch", "loss", "accuracy", "precision", "recall", "F1", "AUC", "seconds"],
     ["50", "1", "1.0200", "0.7500", "0.7000", "0.6500", "0.6700", "0.8500", "50.0"], ["100", "2", "1.0100", "0.8000", "0.7500", "0.7000", "0.7200", "0.9000", "100.0"]])
want("the data", "waves.csv: 3 <classes> & more" in page.words, True)
want("no perplexity", "erplexity" in text, False)
want("what is counted", [cards.get("sequences a second"), "tokens a second" in text], ["5,000", False])
PYTHON
report untested.jsonl
check untested <<'PYTHON'
want("the cards of the validation", [cards.get(k) for k in ("accuracy, best validation", "AUC, best validation", "loss, test")], ["0.8000", "0.9000", None])
want("no classes", 'id="classes"' in text, False)
PYTHON
report forecast.jsonl
check forecast <<'PYTHON'
want("the error beside the naive forecast's", [v for k, v in cards.items() if k == "MAE, test; the naive forecast has 1.234" or k == "MAE, test; the naive forecast has 1.235"], ["0.4321"])
want("an error without a naive forecast", cards.get("RMSE, test"), "0.6000")
want("two lines", [len(line) for line in page.paths["metric", "x0"]], [2, 2])
want("the naive forecast is above", page.paths["metric", "x0"][1][0][1] < page.paths["metric", "x0"][0][0][1], True)
want("legend", "naive forecast" in page.words, True)
PYTHON
report many.jsonl
check many <<'PYTHON'
want("no matrix of 60 classes", "Confusion matrix" in text, False)
want("the mistakes", page.tables["classes"][61:], [["true class", "predicted class", "count"]] +
     [["c%d" % i, "c%d" % (i + 1), str(5 + i)] for i in range(58, 38, -1)])
PYTHON
for name in ragged negative words small; do
    report $name.jsonl
    check $name <<'PYTHON'
want("a matrix that is none", 'id="classes"' in text, False)
want("the rest", cards.get("accuracy, test"), "0.5000")
PYTHON
done

report classes.jsonl better.jsonl untested.jsonl --output all.html --json all.json
check all <<'PYTHON'
want("the table", [row[1:2] + row[3:7] for row in page.tables["runs"]], [
    ["updates", "best validation loss", "test loss", "best validation accuracy", "test accuracy"],
    ["100", "1.0100", "0.7500", "0.8000", "0.9407"], ["100", "1.0600", "0.7500", "0.8500", "0.9600"], ["100", "1.0100", "", "0.8000", ""]])
want("the best", [place[1:] for place in page.best], [(1, 3), (2, 5), (2, 6)])
want("what is counted", page.tables["runs"][0][9:10] + page.words.count("tokens a second") * [""], ["sequences a second"])
want("the curves", [len(page.paths["metric", axis]) for axis in ("x0", "x1", "x2")], [3, 3, 3])
want("the title", "Validation accuracy" in page.words, True)
want("the cards", [cards.get("best accuracy, test: better.jsonl"), cards.get("best accuracy, validation: better.jsonl")], ["0.9600", "0.8500"])
PYTHON
python3 - <<'PYTHON' || failures=$((failures + 1))
import json, sys
runs = json.load(open("all.json"))["runs"]
good = (runs[0]["test"]["confusion"][1] == [20, 1180, 0, 0] and runs[0]["test"]["metrics"]["accuracy"] == 0.9407 and "event" not in runs[0]["test"]
        and abs(runs[1]["best_validation"]["metrics"]["accuracy"] - 0.85) < 1e-9 and runs[0]["data"]["sequences"] == 600)
print("" if good else "FAILED: the summary has other metrics: %s" % runs)
sys.exit(not good)
PYTHON
for name in evil evil-two; do
    report $name.jsonl
    check $name <<'PYTHON'
want("the texts", page.words.count('"><script>alert(1)</script>&<b>') >= 8, True)
PYTHON
done
report evil.jsonl evil-two.jsonl --output evils.html
check evils <<'PYTHON'
want("scaling", 'id="arrangements"' in text, True)
want("the texts", text.count("&quot;&gt;&lt;script&gt;alert(1)&lt;/script&gt;&amp;&lt;b&gt;") >= 8, True)
PYTHON
report forecast.jsonl worse.jsonl --output errors.html
check errors <<'PYTHON'
rows = page.tables["runs"]
want("errors", [rows[0][5:8], rows[1][5:8], rows[2][5:8]], [["best validation MAE", "test MAE", "naive forecast's MAE"], ["0.5500", "0.4321", "1.2345"], ["0.7500", "0.5321", "1.5500"]])
want("the lowest is the best", [place[1:] for place in page.best if place[2] in (5, 6)], [(1, 5), (1, 6)])
PYTHON
[ $failures = 0 ]
