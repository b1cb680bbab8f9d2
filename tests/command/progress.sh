#!/usr/bin/env bash
# The progress of training: on a terminal of any width one line that fits it; in a file few plain lines; with --quiet nothing.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0

complain() {
    echo "FAILED: $*"
    sed 's/^/    said: /' err 2>/dev/null | tail -12
    failures=$((failures + 1))
}
for ((i = 0; i < 2000; i++)); do echo "line $i of a text that repeats itself, line after line"; done >text
head -1500 text >valid
for ((i = 0; i < 40; i++)); do echo "{\"x\": [$((i % 7)), 1, $((i % 3))], \"y\": \"$([ $((i % 3)) = 0 ] && echo up || echo down)\"}"; done >examples
small=(--hidden 16 --batch 4 --length 16 --threads 1 --effort estimate)

# ---- a file: a long run meanwhile ----
"$RECURVE" train text --output piped --seconds 11 "${small[@]}" >piped.out 2>piped.err &
piped=$!

# ---- a terminal ----
# terminal.py COLUMNS LATER ARGUMENTS...: runs the command on a terminal of so many columns, which is resized to LATER after a second
cat >terminal.py <<'PYTHON'
import fcntl, os, pty, struct, sys, termios, time
columns, later, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]

def resize(fd, count):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, count, 0, 0))

master, slave = pty.openpty()
resize(slave, columns)
process = os.fork()
if process == 0:
    os.dup2(slave, 2)
    os.close(master)
    os.execvp(command[0], command)
os.close(slave)
began, said, resized_at = time.monotonic(), b"", None
while True:
    try:
        more = os.read(master, 65536)
    except OSError:
        break
    if not more:
        break
    said += more
    if later != columns and resized_at is None and time.monotonic() - began > 1:
        resize(master, later)
        resized_at = len(said)
open("typescript", "wb").write(said)
open("resized", "w").write(str(resized_at or 0))
sys.exit(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) % 256)
PYTHON
# look.py COLUMNS LATER CODE: all lines that are rewritten fit; CODE sees them as `lines`, and the text without escape codes as `text`
cat >look.py <<'PYTHON'
import re, sys
columns, later, code = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
said, resized = open("typescript", "rb").read(), int(open("resized").read())
plain = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")

def rewritten(part):
    """What follows a carriage return and ends with 'erase to the end of the line'."""
    return [plain.sub("", line) for line in re.findall(r"\r([^\r\n]*\x1b\[K)", part)]

text = said.decode()
lines = [line for line in rewritten(text) if line]
wide = [line for line in lines if len(line) > max(columns, later) - 1]
assert not wide, wide[:3]
if later != columns:
    # the line that was on its way when the window changed
    after = [line for line in rewritten(said[resized:].decode()) if line][1:]
    assert after and all(len(line) <= later - 1 for line in after), max(after, key=len)
assert lines, text
text = plain.sub("", text)
exec(code)
PYTHON
# shown COLUMNS LATER CODE ARGUMENTS...
shown() {
    local columns=$1 later=$2 code=$3
    shift 3
    python3 terminal.py "$columns" "$later" env TERM=xterm "$@" >out 2>err </dev/null || complain "$* gave $?"
    python3 look.py "$columns" "$later" "$code" 2>err || complain "$columns to $later columns: $*"
}
train=("$RECURVE" train text --valid valid --output m --overwrite --seconds 1.2 --validate-every 150 "${small[@]}")
has_all='
line = [line for line in lines if "left" in line][-1]
for part in "loss ", "bits/byte ", " bytes/s", " left", "%":
    assert part in line, line
last = text.split("\r\n")
at = [i for i, line in enumerate(last) if "100%" in line and "in 0:0" in line]
assert at, text[-400:]
assert any(line.startswith("recurve: wrote m after ") for line in last[at[-1]:]), text[-400:]
'
shown 100 100 "$has_all"'
assert any("█" in line for line in lines) and not any("#" in line for line in lines)
assert any(line.startswith("validating ...") and "%" in line for line in lines), lines[:20]
assert "validation  update 150  epoch " in text and "  best" in text' LC_ALL=C.UTF-8 "${train[@]}"
shown 100 100 "$has_all"'
assert text.isascii() and any("[#" in line for line in lines)' LC_ALL=C "${train[@]}"
# the longest line is the whole width but one column, so that what is left out is left out for a reason
shown 80 80 "$has_all"'
assert max(len(line) for line in lines) == 79' LC_ALL=C.UTF-8 "${train[@]}"
shown 40 40 '
line = [line for line in lines if "left" in line][-1]
assert "loss " in line and "%" in line and "bytes/s" not in line, line
assert "validation  " in text and "  best" in text
heads = [line.split("\r")[-1] for line in text.split("\r\n")]
assert all(len(line) <= 40 for line in heads if not line.startswith("recurve:")), heads' LC_ALL=C.UTF-8 "${train[@]}"
shown 26 26 'assert "%" in lines[-1] and "left" not in lines[-1], lines[-1]' LC_ALL=C.UTF-8 "${train[@]}"
shown 120 50 'pass' LC_ALL=C.UTF-8 "$RECURVE" train text --output m --overwrite --seconds 2 "${small[@]}"
shown 80 80 'assert "accuracy" in text and "class " in text' "$RECURVE" train examples --kind classes --valid examples --test examples \
    --output m --overwrite --epochs 30 --hidden 4 --threads 1
shown 80 80 'assert "2/2 gru:" in text and all(line.startswith(("1/2 lstm:", "2/2 gru:")) for line in lines), lines' \
    "$RECURVE" compare lstm gru text --valid none --output folder --steps 60 "${small[@]}"
# colours are for those who want them
grep -q $'\033\[32m' typescript && complain "a comparison without validation has a best one"
python3 terminal.py 80 80 env TERM=xterm LC_ALL=C "${train[@]}" >out 2>err
grep -q $'\033\[32m' typescript || complain "the best validation has no colour"
python3 terminal.py 80 80 env TERM=xterm NO_COLOR=1 LC_ALL=C "${train[@]}" >out 2>err
grep -q $'\033\[[0-9;]*m' typescript && complain "NO_COLOR is not respected"
python3 terminal.py 80 80 env TERM=dumb "${train[@]}" >out 2>err
grep -q $'\033' typescript && complain "a terminal that cannot rewrite lines gets escape codes"
# Ctrl-C leaves a whole last line
cat >interrupt.py <<'PYTHON'
import os, pty, signal, subprocess, sys
master, slave = pty.openpty()
process = subprocess.Popen(sys.argv[1:], stderr=slave)
os.close(slave)
said, sent = b"", False
while True:
    try:
        more = os.read(master, 4096)
    except OSError:
        break
    said += more
    if b" left" in said and not sent:
        process.send_signal(signal.SIGINT)
        sent = True
lines = said.decode().split("\r\n")
at = [i for i, line in enumerate(lines) if line.startswith("recurve: stopped: wrote m after ")]
assert process.wait() == 130 and at and " in 0:" in lines[at[0] - 1] and lines[-1] == "", lines[-4:]
PYTHON
TERM=xterm python3 interrupt.py "$RECURVE" train text --output m --overwrite --seconds 60 "${small[@]}" 2>err || complain "Ctrl-C on a terminal"

# ---- a file ----
"$RECURVE" train text --valid valid --output quiet --steps 30 "${small[@]}" --quiet >out 2>err
[ ! -s out ] && [ ! -s err ] || complain "--quiet prints"
head -20 text >brief
"$RECURVE" train text --valid brief --output few --seconds 1.5 --validate-every 1 "${small[@]}" >out 2>err
LC_ALL=C grep -q $'[\033\r]' err && complain "a file has escape codes"
checked=$(grep -c '"validation"' few.jsonl)
printed=$(grep -c '^validation  ' err)
[ "$checked" -ge 10 ] && [ "$printed" -ge 1 ] && [ "$printed" -le 4 ] || complain "of $checked validations in a second and a half $printed are printed"
[ "$(tail -1 few.jsonl | grep -c '"end"')" = 1 ] || complain "the log has no end"
last=$(grep '"validation"' few.jsonl | tail -1 | sed -E 's/.*"step":([0-9]+).*/\1/')
tr -d , <err | grep -q "^validation  update $last " ||
    complain "the last validation is not printed"
[ "$(wc -l <err)" -le 20 ] || complain "a short run prints $(wc -l <err) lines"
for part in '^data      text: [0-9,]+ bytes$' '^validate  [0-9,]+ bytes \(brief\)$' '^model     lstm, 1 layer of 16, [0-9,]+ parameters$' \
    '^device    cpu, 1 thread, float32$' '^output    few, log few.jsonl$' '^training  1\.5 s; [0-9,]+ updates an epoch$' \
    '^recurve: next: recurve generate few.best; recurve report few.jsonl$'; do
    grep -qE "$part" err || complain "no line $part"
done
grep -q 'plan of' err && complain "plans are printed unasked"
"$RECURVE" train text --output plans --steps 3 "${small[@]}" --verbose >out 2>err
grep -q 'plan of' err || complain "--verbose prints no plans"

wait $piped || complain "the long run fails"
cp piped.err err
[ "$(grep -cE '^ ?[0-9]+%  .* left$' err)" = 1 ] || complain "a run of 11 s prints not one line of progress in a file"
LC_ALL=C grep -q $'[\033\r]' err && complain "a file of a long run has escape codes"

[ $failures = 0 ] || echo "$failures checks failed"
[ $failures = 0 ]
