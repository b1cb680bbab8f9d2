#!/usr/bin/env bash
# recurve report of runs of several ranks: one update rank by rank, scaling, and data against pipeline, number by number.
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

def start(ranks=None, event="start", **settings):
    line = {"event": event, "step": 0, "device": "cpu", "settings": {"hidden": 32, "layers": 2, "learning-rate": 0.003, **settings}}
    if ranks:
        replicas, stages, micro, chunks, split = ranks
        line["ranks"] = {"replicas": replicas, "stages": stages, "micro_batches": micro, "time_chunks": chunks, "split": split,
                         "bfloat16": False, "shares": False, "transport": "mpi (<MPI> & more)"}
    return line

def progress(losses):
    return [{"event": "progress", "step": i + 1, "loss": loss, "seconds": seconds, "tokens_per_second": 7}
            for i, (seconds, loss) in enumerate(losses)]

def timeline(step, rank, replica, stage, spans): # milliseconds
    return {"event": "timeline", "step": step, "rank": rank, "replica": replica, "stage": stage,
            "spans": [[kind, unit, begin / 1e3, end / 1e3] for kind, unit, begin, end in spans]}

def end(speed, seconds, loss, sent=None):
    line = {"event": "end", "reason": "steps", "step": 3, "seconds": seconds, "tokens_per_second": speed, "loss": loss}
    return {**line, "sent_most": sent[0], "sent_all": sent[1]} if sent else line

def write(name, *lines):
    with open(name, "w") as file:
        for line in lines:
            file.write(json.dumps(line) + "\n")

# rank 0: of the exchanges 5..9, with 6..7 in it, 5..8 is hidden. rank 1: 2..3 is, and of 4..8 the first millisecond.
zero = [("forward", 0, 0, 4), ("backward", 0, 4, 8), ("exchange", -1, 6, 7), ("wait", -1, 8, 9), ("exchange", -1, 5, 9), ("other", -1, 9, 10)]
one = [("forward", 0, 0, 3), ("exchange", -1, 2, 3), ("backward", 0, 3, 5), ("exchange", -1, 4, 8), ("other", -1, 9, 10)]
traced = [timeline(24, 1, 1, 0, one), timeline(24, 0, 0, 0, zero)]
units = [("forward", u, 2 * u, 2 * u + 2) for u in range(3)] + [("backward", u, 6 + 2 * u, 8 + 2 * u) for u in range(3)]
write("one.jsonl", start(threads=2), *progress([(10, 4), (20, 3), (30, 2)]), end(1000, 30, 2))
slow = start() # the default of a setting that a log leaves out is as good
del slow["settings"]["learning-rate"]
write("slow.jsonl", slow, *progress([(20, 4), (40, 3), (60, 2)]), end(500, 60, 2))
write("data.jsonl", start((2, 1, 1, 1, ""), parallel="data", steps=3), timeline(8, 0, 0, 0, [("forward", 0, 0, 77)]), *traced,
      *progress([(6, 4), (12, 3), (18, 2.5)]), end(1600, 18, 2.5, (1536, 3072)))
# its end is the first to say that it is below 2.5
write("pipeline.jsonl", start((1, 2, 2, 4, "1,1"), parallel="pipeline", device="cuda"), timeline(24, 0, 0, 0, units),
      timeline(24, 1, 0, 1, units[:3]), *progress([(8, 4), (16, 2.625)]), end(1500, 17, 2.375, (512, 512)))
write("both.jsonl", start((2, 2, 1, 8, "1,1"), parallel="data:2,pipeline:2"), *progress([(4, 4), (8, 2)]), end(2500, 9, 2, (100, 400)))
write("wide.jsonl", start((2, 1, 1, 1, ""), parallel="data", hidden=64), *progress([(1, 5)]), end(300, 1, 5))
write("wider.jsonl", start((4, 1, 1, 1, ""), parallel="data", hidden=64), *progress([(1, 5)]), end(500, 1, 5))
write("resumed.jsonl", start((1, 4, 1, 1, "")), timeline(24, 0, 0, 0, units), *progress([(6, 4)]),
      {**start((2, 1, 1, 1, ""), "resume"), "step": 1}, *progress([(6, 4), (12, 1)])[1:])
write("begun.jsonl", start())
write("spanless.jsonl", start(), timeline(8, 0, 0, 0, []), *progress([(1, 1)]))
write("kindless.jsonl", start(), timeline(8, 0, 0, 0, [("sleep", 0, 0, 1)]), *progress([(1, 1)]))
write("backwards.jsonl", start(), timeline(8, 0, 0, 0, [("wait", 0, 2, 1)]), *progress([(1, 1)]))
write("rankless.jsonl", start(), {"event": "timeline", "step": 8, "spans": []}, *progress([(1, 1)]))
write("nobody.jsonl", start((0, 1, 1, 1, "")), *progress([(1, 1)]))
write("stageless.jsonl", start((2, 0, 1, 1, "")), *progress([(1, 1)]))
PYTHON

# page.tables: section -> rows of cells; page.titles: what shapes say; page.words: all text
export PYTHONPATH="$SOURCE_DIR/tests/command/report" PYTHONDONTWRITEBYTECODE=1
cat >read.py <<'PYTHON'
import re, sys
from collections import defaultdict
from page import Page, path_points

class Ranks(Page):
    titles, best, tables, rects = [], [], defaultdict(list), defaultdict(list)
    def start(self, tag, attributes):
        if tag == "tr":
            self.tables[self.section].append([])
            self.best += [(self.section, len(self.tables[self.section]))] if attributes.get("class") == "best" else []
        if tag in ("td", "th"):
            self.tables[self.section][-1].append("")
        if tag == "rect" and attributes["class"] != "lane":
            place = [float(attributes[key].rstrip("%")) for key in ("x", "y", "width", "height")]
            self.rects[(self.section, attributes["class"])].append(place)
            if place[0] < 0 or place[0] + place[2] > 100.05:
                self.wrong.append("a span leaves its lane: %s" % attributes)
    def data(self, data):
        if "td" in self.open or "th" in self.open:
            self.tables[self.section][-1][-1] += data
        if self.open and self.open[-1] == "title":
            self.titles.append(data)

page = Ranks(sys.argv[1]).read()
text, wrong = page.text, page.wrong

def want(what, is_now, wanted):
    if is_now != wanted:
        wrong.append("%s: %s, not %s" % (what, is_now, wanted))
PYTHON

# check NAME: the rest of the input, after read.py, holds for the page NAME.html
check() {
    cat read.py - <(echo 'page.report()') >check.py
    python3 check.py "$1.html" || failures=$((failures + 1))
}

"$RECURVE" report data.jsonl >out 2>err || { cat err; exit 1; }
check data <<'PYTHON'
want("ranks", page.tables["ranks"][1:], [["0", "0", "0", "9.000", "4.000", "1.000", "75.0%"], ["1", "1", "0", "6.000", "5.000", "4.000", "40.0%"]])
want("the sentence", "Update 24 took 10.000 ms; its ranks were idle for 25.0% of that." in page.words, True)
want("lanes", [word for word in page.words if re.match("rank [0-9]|replica [0-9]", word)],
     ["rank 0", "replica 0, stage 0", "rank 1", "replica 1, stage 0"])
places = {kind: [[round(x), round(width)] for x, _, width, _ in page.rects[("ranks", kind)]] for kind in ("c0", "c1", "c2", "c7")}
want("spans", places, {"c0": [[0, 40], [0, 30]], "c1": [[40, 40], [30, 20]], "c2": [[90, 10], [90, 10]],
                       "c7": [[50, 40], [20, 10], [40, 40]]})
lows = {kind: [round(y + height) for _, y, _, height in page.rects[("ranks", kind)]] for kind in ("c0", "c7")}
want("the strips lie under", [strip > span for strip, span in zip(lows["c7"], lows["c0"])], [True, True])
want("units of one", [title for title in page.titles if "unit" in title], [])
want("facts", {"2: 2 x 1, replicas x stages", "mpi (<MPI> & more)", "3,072", "1,536"} <= set(page.words), True)
want("tables of runs", "arrangements" in page.tables, False)
PYTHON

"$RECURVE" report one.jsonl slow.jsonl data.jsonl pipeline.jsonl both.jsonl --output all.html >out 2>err || complain "several logs: $(cat err)"
check all <<'PYTHON'
rows = page.tables["arrangements"]
want("the loss", rows[0][-1], "seconds to loss 2.5")
want("runs", rows[1:], [
    ["one.jsonl", "1", "1 x 1", "1 x 1", "", "1,000", "1.00x", "", "", "", "", "30.0"],
    ["slow.jsonl", "1", "1 x 1", "1 x 1", "", "500", "0.50x", "", "", "", "", "60.0"],
    ["data.jsonl", "2", "2 x 1", "1 x 1", "", "1,600", "1.60x", "1.5 KiB", "3.0 KiB", "1.20", "25.0%", "18.0"],
    ["pipeline.jsonl", "2", "1 x 2", "2 x 4", "1,1", "1,500", "1.50x", "512 B", "512 B", "1.33", "25.0%", "17.0"],
    ["both.jsonl", "4", "2 x 2", "1 x 8", "1,1", "2,500", "2.50x", "100 B", "400 B", "", "", "8.00"]])
want("the first at the loss", page.best, [("arrangements", 6)])
points = [title for title in page.titles if "ranks" in title]
want("points", sorted(points), ["{}, ranks {}: {:,} tokens a second".format(*point) for point in
    [("data and pipeline", 1, 1000), ("data and pipeline", 4, 2500), ("data", 1, 1000), ("data", 2, 1600),
     ("one rank", 1, 1000), ("pipeline", 1, 1000), ("pipeline", 2, 1500)]])
ideal = re.search('<path class="ln d1" d="([^"]+)"><title>ideal', text)
heights = [3000 - y for _, y in path_points(ideal.group(1))[0]] if ideal else [1, 0] # 3000: the axis, which is at zero
want("the ideal grows with the ranks", abs(heights[1] / heights[0] - 4) < 0.01, True)
want("the sentence", "Speed-up over one.jsonl, the fastest run of one rank. Not all runs have the same device. Not all runs have the same threads.\n" in re.sub("<[^>]*>", "", text), True)
want("traces", [row[3:] for row in page.tables["ranks"] if row[0] != "rank"],
     [["9.000", "4.000", "1.000", "75.0%"], ["6.000", "5.000", "4.000", "40.0%"], ["12.000", "0.000", "0.000", ""], ["6.000", "0.000", "6.000", ""]])
want("units", "backward of unit 2, 10.0000 to 12.0000 ms" in page.titles, True)
want("settings", page.tables["settings"][:6], [["run", "threads", "parallel", "steps", "device"], ["one.jsonl", "2", "", "0", "cpu"],
    ["slow.jsonl", "0", "", "0", "cpu"], ["data.jsonl", "0", "data", "3", "cpu"], ["pipeline.jsonl", "0", "pipeline", "0", "cuda"],
    ["both.jsonl", "0", "data:2,pipeline:2", "0", "cpu"]])
PYTHON

"$RECURVE" report one.jsonl data.jsonl --loss 3 --output three.html >out 2>err || complain "--loss 3: $(cat err)"
check three <<'PYTHON'
want("seconds to 3", [row[-1] for row in page.tables["arrangements"]], ["seconds to loss 3", "20.0", "12.0"])
PYTHON
"$RECURVE" report one.jsonl data.jsonl --loss 2.25 --output less.html >out 2>err || complain "--loss 2.25: $(cat err)"
check less <<'PYTHON'
want("seconds to 2.25", [row[-1] for row in page.tables["arrangements"][1:]], ["30.0", "not reached"])
PYTHON

# Another model is compared apart, and has no run of one rank.
"$RECURVE" report one.jsonl wide.jsonl data.jsonl >out 2>err || complain "two models: $(cat err)"
check one <<'PYTHON'
want("unlike", re.findall("rank[.] Not all runs have the same ([a-z]*)", text), ["threads"])
want("the first model", [row[0] for row in page.tables["arrangements"][1:]], ["one.jsonl", "data.jsonl"])
want("a model with one run", "arrangements-2" in page.tables, False)
PYTHON
"$RECURVE" report one.jsonl wide.jsonl data.jsonl wider.jsonl --output models.html >out 2>err || complain "two models, two runs: $(cat err)"
check models <<'PYTHON'
want("the other", [row[:1] + row[5:7] + row[-1:] for row in page.tables["arrangements-2"][1:]],
     [["wide.jsonl", "300", "", "1.00"], ["wider.jsonl", "500", "", "1.00"]])
want("why", "These runs are compared separately: they differ from the first in hidden (64, not 32)." in text, True)
PYTHON
"$RECURVE" report slow.jsonl one.jsonl --output same.html >out 2>err || complain "one number of ranks: $(cat err)"
check same <<'PYTHON'
want("sections", {"scaling", "arrangements"} & set(page.tables) | {s for s in ("scaling", "arrangements") if 'id="%s"' % s in text}, set())
PYTHON
"$RECURVE" report data.jsonl both.jsonl --output none.html >out 2>err || complain "no run of one rank: $(cat err)"
check none <<'PYTHON'
want("why", "There is no run with one rank, so no ideal and no speed-up are shown." in page.words, True)
want("likeness", "Not all runs" in text, False)
want("speed-ups", [row[6] for row in page.tables["arrangements"][1:]], ["", ""])
want("the ideal", "<title>ideal" in text, False)
PYTHON

# Another arrangement went on from the checkpoint: what was traced before is not of it.
"$RECURVE" report resumed.jsonl data.jsonl one.jsonl --output later.html >out 2>err || complain "a resumed run: $(cat err)"
check later <<'PYTHON'
want("who went on", page.tables["arrangements"][1][1:4] + page.tables["arrangements"][1][9:], ["2", "2 x 1", "1 x 1", "", "", "12.0"])
want("traces", len(page.tables["ranks"]), 3)
PYTHON

# refused STATUS SENTENCE ARGUMENTS...: this is said, and no page is written
refused() {
    local wanted=$1 sentence=$2 status=0
    shift 2
    "$RECURVE" report "$@" --output refused.html >out 2>err || status=$?
    [ $status = "$wanted" ] || complain "$*: exit status $status"
    grep -qF -- "$sentence" err || complain "$*: said '$(cat err)', not '$sentence'"
    [ "$(wc -l <err)" = 1 ] || complain "$*: more than one sentence: $(cat err)"
    [ ! -e refused.html ] || complain "$*: a page was written"
}
echo 'no log' >text.jsonl
echo '' >>text.jsonl
echo '{"event": "other"}' >>text.jsonl
refused 1 "text.jsonl:1: not a line of a training log" one.jsonl text.jsonl
refused 1 "begun.jsonl has no progress lines: there is nothing to compare" one.jsonl begun.jsonl
refused 1 "missing.jsonl" one.jsonl missing.jsonl
refused 1 "spanless.jsonl:2: not a line of a training log: a timeline needs spans" spanless.jsonl
refused 1 "kindless.jsonl:2: not a line of a training log: a span of a timeline is [kind, unit, begin, end]" kindless.jsonl
refused 1 "backwards.jsonl:2: not a line of a training log: a span of a timeline is" one.jsonl backwards.jsonl
refused 1 "rankless.jsonl:2: not a line of a training log: a timeline needs a rank, a replica and a stage" rankless.jsonl
refused 1 "nobody.jsonl:1: not a line of a training log: its ranks have no replicas or no stages" nobody.jsonl
refused 1 "stageless.jsonl:1: not a line of a training log: its ranks have no replicas or no stages" one.jsonl stageless.jsonl
refused 2 "--loss must be a number of at least 0, not 'low'" one.jsonl data.jsonl --loss low
refused 2 "--loss needs several logs, and there is one" one.jsonl --loss 3
[ $failures = 0 ]
