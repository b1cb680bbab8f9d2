#!/usr/bin/env bash
# The pages of recurve report in a browser, on a phone of 390 px and on a desk: nothing leaves the page, ticks can be read and do not touch, the
# choice of an axis and of runs works without scripts, light and dark.
set -u
browser=
for name in chromium chromium-browser google-chrome; do
    command -v $name >/dev/null && browser=$name && break
done
[ -n "$browser" ] || { echo "no Chromium: the pages are not drawn"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
complain() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

python3 - <<'PYTHON'
import json, math
def log(name, run, ranks=1):
    lines = [{"event": "start", "device": "cpu, a processor with a long name, 2 threads", "date": "2026-11-19 20:00 UTC", "parameters": 12345678,
              "data": {"description": "waves.csv: 3 classes"}, "settings": {"hidden": 32 if ranks > 1 else 32 + run, "learning-rate": 0.001 / (run + 1)}}]
    if ranks > 1:
        lines[0]["ranks"] = {"replicas": ranks, "stages": 1}
        lines[0]["settings"] = {"hidden": 31}
        for rank in range(2):
            lines.append({"event": "timeline", "step": 100, "rank": rank, "replica": rank, "stage": 0,
                          "spans": [["forward", u, 0.01 * u, 0.01 * u + 0.009] for u in range(4)] + [["exchange", -1, 0.02, 0.05]]})
    for step in range(500, 1500001, 500):
        loss = 0.5 + run / 10 + math.exp(-step / 300000)
        lines.append({"event": "progress", "step": step, "epoch": step / 1000, "rate": 0.001, "norm": 1 + run, "seconds": step / 20,
                      "tokens_per_second": 1234567 + 10000 * run, "loss": loss})
        if step % 100000 == 0:
            lines.append({"event": "validation", "step": step, "epoch": step / 1000, "seconds": step / 20, "loss": loss + 0.1,
                          "metrics": {"accuracy": 1 - loss / 3, "f1": 1 - loss / 2}})
    lines.append({"event": "end", "reason": "steps", "step": 1500000, "seconds": 75000, "tokens_per_second": 1234567, "loss": 0.5})
    lines.append({"event": "test", "loss": 0.5, "metrics": {"accuracy": 0.93}, "classes": ["sine", "square", "sawtooth"],
                  "confusion": [[1900, 80, 20], [100, 1850, 50], [0, 10, 1990]]})
    with open(name, "w") as file:
        file.write("".join(json.dumps(line) + "\n" for line in lines))
for run in range(20):
    log("a-run-with-a-name-%02d.jsonl" % run, run)
log("two-ranks.jsonl", 0, 2)
log("four-ranks.jsonl", 1, 4)
PYTHON
"$RECURVE" report a-run-with-a-name-00.jsonl --output one.html 2>err || { cat err; exit 1; }
"$RECURVE" report a-run-*.jsonl --output many.html 2>err || { cat err; exit 1; }
"$RECURVE" report two-ranks.jsonl four-ranks.jsonl --output ranks.html 2>err || { cat err; exit 1; }

# The page in a frame, and what a script outside of it measures there.
measure() { # measure PAGE WIDTH
    cat >frame.html <<HTML
<!DOCTYPE html><html><body style="margin:0"><iframe id="f" src="$1" style="width:$2px;height:900px;border:0"></iframe><pre id="result"></pre><script>
function visible(item) { const box = item.getBoundingClientRect(); return box.width > 0 || box.height > 0; }
function scrolls(item) { for (let i = item; i; i = i.parentElement) if (i.className === "table") return true; return false; }
document.getElementById("f").onload = function () {
    const page = this.contentDocument, wide = page.documentElement.clientWidth, all = [...page.querySelectorAll("svg text")].filter(visible);
    const shown = name => [...page.querySelectorAll("." + name)].filter(visible).length;
    const result = {scroll: page.documentElement.scrollWidth, wide: wide, texts: all.length, small: [], outside: [], touching: []};
    for (const text of all)
        if (parseFloat(getComputedStyle(text).fontSize) * (text.ownerSVGElement.viewBox.baseVal.width > 100 ? text.getScreenCTM().a : 1) < 11)
            result.small.push(text.textContent);
    for (const item of page.querySelectorAll("main *")) {
        const box = item.getBoundingClientRect();
        if (!scrolls(item) && box.width > 0 && (box.right > wide + 1 || box.left < -1)) result.outside.push(item.tagName + " " + item.textContent.slice(0, 20));
    }
    for (const plot of page.querySelectorAll("svg.area")) {
        const ticks = [...plot.querySelectorAll("text.tick")].filter(visible).map(t => [t.getBoundingClientRect(), t.textContent]);
        for (let i = 0; i < ticks.length; i++)
            for (let j = 0; j < i; j++) {
                const a = ticks[i][0], b = ticks[j][0];
                if (a.left < b.right + 2 && b.left < a.right + 2 && a.top < b.bottom - 2 && b.top < a.bottom - 2)
                    result.touching.push(ticks[i][1] + " and " + ticks[j][1]);
            }
    }
    result.before = [shown("x0"), shown("x1"), shown("x2")];
    const label = page.querySelector("label[for=x1]"), run = page.querySelector("label[for=i3]");
    if (label) label.click();
    result.after = [shown("x0"), shown("x1"), shown("x2")];
    result.lines = shown("r3");
    if (run) run.click();
    result.hidden = shown("r3");
    result.ticks = [...page.querySelectorAll("svg.area")].filter(visible).map(p => [...p.querySelectorAll("text.tick")].filter(visible).length);
    result.paper = getComputedStyle(page.body).backgroundColor;
    document.getElementById("result").textContent = JSON.stringify(result);
};
</script></body></html>
HTML
    shift 2
    timeout 120 $browser --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --allow-file-access-from-files --virtual-time-budget=5000 \
        --user-data-dir="$folder/profile" --window-size=1400,1000 --dump-dom "$@" "file://$folder/frame.html" 2>console </dev/null |
        python3 -c 'import html, re, sys; print(html.unescape(re.search("(?s)<pre id=\"result\">(.*?)</pre>", sys.stdin.read()).group(1)))' >result.json
}
# holds NAME PLOTS RUNS PAPER: what must hold of result.json; PLOTS are seen at a time
holds() {
    python3 - "$@" <<'PYTHON' || failures=$((failures + 1))
import json, sys
name, plots, runs, paper = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
found, wrong = json.load(open("result.json")), []
if found["scroll"] > found["wide"]:
    wrong.append("it is %d px wide, and the screen %d" % (found["scroll"], found["wide"]))
for key in ("small", "outside", "touching"):
    if found[key]:
        wrong.append("%s: %s" % (key, found[key][:5]))
if found["texts"] < 6 * plots:
    wrong.append("only %d texts are seen" % found["texts"])
if found["before"] != [plots, 0, 0] or found["after"] != [0, plots, 0]:
    wrong.append("plots over updates, time and epochs: %s, and after a click on time: %s" % (found["before"], found["after"]))
if runs and not (found["lines"] >= plots and found["hidden"] == 0):
    wrong.append("the lines of a run: %d, and after a click on its name %d" % (found["lines"], found["hidden"]))
if min(found["ticks"], default=0) < 5:
    wrong.append("a plot with few ticks: %s" % found["ticks"])
if found["paper"] != paper:
    wrong.append("the paper is %s, not %s" % (found["paper"], paper))
for sentence in wrong:
    print("FAILED: %s: %s" % (name, sentence))
sys.exit(bool(wrong))
PYTHON
}
light='rgb(255, 255, 255)' dark='rgb(20, 24, 28)'
for width in 390 1280; do
    measure one.html $width && holds "one at $width px" 5 0 "$light"
    measure many.html $width && holds "many at $width px" 4 20 "$light"
    measure ranks.html $width && holds "ranks at $width px" 4 0 "$light"
done
measure one.html 390 --blink-settings=preferredColorScheme=0 && holds "one in the dark" 5 0 "$dark"
[ $failures = 0 ]
