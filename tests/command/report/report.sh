#!/usr/bin/env bash
# The page of recurve bench --report: whole, fetches nothing, and a browser draws it without an error.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
complain() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

# page NAME ARGUMENTS...: recurve bench writes the page NAME.html
page() {
    local name=$1
    shift
    "$RECURVE" bench "$@" --report "$name.html" >out 2>err </dev/null || { cat err; exit 1; }
}
# One thread where the number of threads does not matter: threads that wait for each other poll.
page page --hidden 16 --layers 3 --steps 6 --batch 3 --pass train --seconds 0.01 --threads 1 --ladder --gemm --streaming --planner --ranks 8,4 \
    --anchors --no-torch
[ ! -e page.html.part ] || complain "a half-written file is left"
page threads --hidden 8 --layers 2 --steps 4 --batch 2 --threads 2 --seconds 0 --effort estimate
page scan --scan --elements 65536 --seconds 0 --threads 1
page lengths --lengths 32,64,256 --cells sru,mingru --hidden 8 --longest 0 --seconds 0 --threads 1
page refused --lengths 32,16384 --cells sru --hidden 8 --memory 1 --seconds 0 --threads 1
page one --lengths 32 --cells sru --hidden 8 --seconds 0 --threads 1

# Sections, each with shapes in its plots; well-formed; nothing that a browser would fetch; no script.
export PYTHONPATH="$SOURCE_DIR/tests/command/report" PYTHONDONTWRITEBYTECODE=1
cat >read.py <<'PYTHON'
import json, re, sys
from page import Page

class Bench(Page):
    shapes = {}
    def shown(self): # a title may say that there is no number
        return re.sub(r"<title>.*?</title>", "", self.text)
    def start(self, tag, attributes):
        if tag == "section":
            self.shapes[self.section] = 0
        if tag in ("rect", "circle") and attributes.get("class") != "lane":
            self.shapes[self.section] += 1
            numbers = [float(attributes[k]) for k in ("x", "y", "width", "height", "cx", "cy", "r") if k in attributes]
            if min(numbers) < 0 or max(numbers) > 4000:
                self.wrong.append("a shape lies outside: %s" % attributes)

page = Bench(sys.argv[1]).read()
for section, shapes in json.loads(sys.argv[2]).items():
    if page.shapes.get(section, -1) < shapes:
        page.wrong.append("section %s has %s shapes, fewer than %d" % (section, page.shapes.get(section), shapes))
page.report()
PYTHON
python3 read.py page.html '{"comparison": 1, "ladder": 4, "batches": 1, "bytes": 2, "timeline": 20, "gemm": 27, "ranks": 0,
    "streaming": 0, "planner": 0, "facts": 0}' || failures=$((failures + 1))
python3 read.py threads.html '{"comparison": 1, "ladder": 4, "batches": 1, "bytes": 1, "timeline": 4, "facts": 0}' || failures=$((failures + 1))
grep -q 'worker 1</text>' threads.html || complain "the timeline of two threads has one"
python3 read.py scan.html '{"scan": 60, "facts": 0}' || failures=$((failures + 1)) # 4 plots
python3 read.py lengths.html '{"lengths": 30, "facts": 0}' || failures=$((failures + 1)) # 4 plots: 2 or 3 lines of 3 points
python3 read.py refused.html '{"lengths": 6, "facts": 0}' || failures=$((failures + 1))
python3 read.py one.html '{"lengths": 6, "facts": 0}' || failures=$((failures + 1)) # one point a line
# of the LSTM's line, and of the 2 lines of each of the 2 plots against it, the last 2 points are guessed
guesses=$(grep -o '<circle class="guess ' lengths.html | wc -l)
[ "$guesses" = 12 ] || complain "the page has $guesses extrapolated points, not 12"
grep -q '<path class="ln guess"' lengths.html || complain "the LSTM's line is not dashed where it is extrapolated"
grep -q 'but 1.0 MiB are allowed' refused.html || complain "the page does not say why a length is missing"

browser=
for name in chromium chromium-browser google-chrome; do
    command -v $name >/dev/null && browser=$name && break
done
if [ -z "$browser" ]; then
    [ $failures = 0 ] || exit 1
    echo "no Chromium: the page was read, not drawn"
    exit 77
fi

# draw NAME OPTIONS...: a picture NAME.png, and what the browser's console says in console
draw() {
    local name=$1
    shift
    timeout 120 $browser --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars --user-data-dir="$folder/profile" \
        --enable-logging=stderr --window-size=1200,3000 --force-device-scale-factor=0.5 --screenshot="$folder/$name.png" "$@" "file://$folder/page.html" \
        >console 2>&1 </dev/null || complain "the browser gave $?: $(tail -2 console)"
    [ -s "$name.png" ] || complain "no picture $name.png"
    ! grep -q 'CONSOLE' console || complain "the console says: $(grep CONSOLE console | head -3)"
}
draw day
draw night --blink-settings=preferredColorScheme=0

# The pictures show something: many colours, ink from top to bottom, and dark mode is darker than light mode. They are drawn at half the size,
# since Python takes seconds to decode a large PNG.
python3 - <<'PYTHON' || failures=$((failures + 1))
import struct, sys, zlib

def pixels(path):
    data, at, parts = open(path, "rb").read(), 8, []
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at:at + 8])
        if kind == b"IHDR":
            width, height, depth, colour = struct.unpack(">IIBB", data[at + 8:at + 18])
        if kind == b"IDAT":
            parts.append(data[at + 8:at + 8 + length])
        at += 12 + length
    size, raw = {2: 3, 6: 4}[colour], zlib.decompress(b"".join(parts))
    rows, before, at = [], bytearray(width * size), 0
    for _ in range(height):
        kind, row = raw[at], bytearray(raw[at + 1:at + 1 + width * size])
        at += 1 + width * size
        for i in range(len(row)):
            left = row[i - size] if i >= size else 0
            up, corner = before[i], before[i - size] if i >= size else 0
            if kind == 1:
                row[i] = (row[i] + left) & 255
            elif kind == 2:
                row[i] = (row[i] + up) & 255
            elif kind == 3:
                row[i] = (row[i] + (left + up) // 2) & 255
            elif kind == 4:
                p = left + up - corner
                a, b, c = abs(p - left), abs(p - up), abs(p - corner)
                row[i] = (row[i] + (left if a <= b and a <= c else up if b <= c else corner)) & 255
        rows.append(row)
        before = row
    return rows, size

light = {}
for name in ("day", "night"):
    rows, size = pixels(name + ".png")
    colours = {bytes(row[i:i + 3]) for row in rows[::4] for i in range(0, len(row), size * 2)}
    inked = sum(len(set(bytes(row[i:i + 3]) for i in range(0, len(row), size * 4))) > 1 for row in rows[::10])
    light[name] = sum(rows[5][:300]) / 300
    if len(colours) < 30 or inked < len(rows[::10]) / 3:
        print("FAILED: the picture %s is nearly blank: %d colours, %d rows with ink" % (name, len(colours), inked))
        sys.exit(1)
if light["day"] < light["night"] + 50:
    print("FAILED: the page does not turn dark: %s" % light)
    sys.exit(1)
PYTHON

[ $failures = 0 ] || exit 1
