#!/usr/bin/env bash
# Training that is killed at any moment, or asked to stop, goes on as if nothing had happened; and what it refuses to begin with.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
. "$SOURCE_DIR/tests/support/leaks.bash"

complain() {
    echo "FAILED: $*"
    sed 's/^/    said: /' err | tail -5
    failures=$((failures + 1))
}
# good ARGUMENTS...: exit status 0
good() {
    "$RECURVE" "$@" >out 2>err </dev/null || complain "recurve $* gave $?"
}
# bad STATUS FRAGMENT ARGUMENTS...: that exit status, one sentence with the fragment
bad() {
    local wanted=$1 fragment=$2 status=0
    shift 2
    "$RECURVE" "$@" >out 2>err </dev/null || status=$?
    [ $status = "$wanted" ] || complain "recurve $* gave $status, not $wanted"
    [ "$(wc -l <err)" = 1 ] || complain "recurve $* does not say one line"
    grep -qF -- "$fragment" err || complain "recurve $* does not say '$fragment'"
}
# same A B: the models of two runs have the same bits
same() {
    good export "$1" a.only --overwrite
    good export "$2" b.only --overwrite
    cmp -s a.only b.only
}

python3 - <<'PYTHON'
import random
random.seed(1)
words = "the cat dog mat log sat lay on a ran saw and then big red".split()
with open("text", "w") as text:
    for i in range(150):
        print(*random.choices(words, k=random.randrange(2, 9)), file=text)
with open("examples", "w") as examples:
    for i in range(60):
        values = [round(random.uniform(-1, 1), 3) for _ in range(random.randrange(1, 7))]
        print('{"x": %s, "y": "%s"}' % (values, "up" if values[-1] > values[0] else "down"), file=examples)
PYTHON

# kill.py TARGETS MODEL ARGUMENTS...: begins with the arguments; kills as soon as the log says so many updates more, and goes on from the
# file, if there is one yet; at last without a kill.
cat >kill.py <<'PYTHON'
import os, random, signal, subprocess, sys
kills, model, begin = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
recurve = os.environ["RECURVE"]
log = os.path.splitext(model)[0] + ".jsonl"
random.seed(kills)


def updates(start):
    try:
        with open(log, "rb") as file:
            file.seek(start)
            return file.read().count(b'"progress"')
    except FileNotFoundError:
        return 0


in_time = 0
for kill in range(kills + 1):
    resumes = os.path.exists(model)
    start = os.path.getsize(log) if resumes else 0
    command = [recurve, "train", "--resume", model] if resumes else [recurve, "train", *begin, "--output", model, "--overwrite"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    if kill < kills:
        target = random.randrange(0, 40)
        while process.poll() is None and updates(start) < target:
            pass
        process.kill()
        in_time += process.wait() == -signal.SIGKILL
        process.stderr.close()
    else:
        said = process.stderr.read().decode()
        if process.wait() != 0:
            sys.exit("the last part failed: " + said)
print("killed %d of %d times" % (in_time, kills))
sys.exit(0 if in_time == kills else "not killed in time: %d of %d" % (in_time, kills))
PYTHON

# check_log LOG: every line is an object, there is a start and an end, and a page can be made of it
check_log() {
    python3 - "$1" <<'PYTHON' || complain "the log $1 is not whole"
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
assert lines[0]["event"] == "start" and lines[-1]["event"] == "end"
assert open(sys.argv[1]).read().endswith("\n")
PYTHON
    good report "$1" --output page.html
    grep -q '<svg' page.html || complain "the report of $1 has no picture"
}

# check_losses WHOLE KILLED: every update has the same loss in both, in the end; a kill between a checkpoint and its line loses one
check_losses() {
    python3 - "$1" "$2" <<'PYTHON' || complain "the losses in $1 and $2 differ"
import json, sys
def losses(path):
    lines = map(json.loads, open(path))
    return {line["step"]: line["update_loss"] for line in lines if line["event"] == "progress"}
whole, killed = losses(sys.argv[1]), losses(sys.argv[2])
assert all(whole[step] == loss for step, loss in killed.items())
assert len(whole) >= 500 and len(whole) - len(killed) <= 20
PYTHON
}

# ---- killed ----
machine=(--threads 1 --effort estimate --log-every 1)
stream=(text --level word --hidden 8 --layers 2 --batch 3 --length 6 --dropout 0.2 --dropout-input 0.1 --zoneout 0.1 --optimiser adam
    --valid text "${machine[@]}")
lines=(text --level word --kind lines --hidden 6 --batch 4 --accumulate 2 --dropout-output 0.2 --optimiser momentum
    --variational --learning-rate 0.1 "${machine[@]}")
classes=(examples --kind classes --hidden 6 --batch 4 --optimiser sgd --learning-rate 0.1 "${machine[@]}")
for how in stream:20:2000 lines:6:800 classes:6:800; do
    IFS=: read -r name kills steps <<<"$how"
    declare -n arguments=$name
    run=("${arguments[@]}" --steps "$steps" --checkpoint-every 3)
    [ "$name" = stream ] && run+=(--validate-every 50)
    good train "${run[@]}" --output "$name-whole.safetensors"
    python3 kill.py "$kills" "$name-killed.safetensors" "${run[@]}" >out 2>err || complain "$name, killed: $(cat err)"
    same "$name"-{whole,killed}.safetensors || complain "$name: what was killed $kills times is another model"
    check_losses "$name"-{whole,killed}.jsonl
    check_log "$name-killed.jsonl"
done
same stream-{whole,killed}.best.safetensors || complain "the best model is another"

# ---- asked to stop ----
cat >stop.py <<'PYTHON'
import os, signal, subprocess, sys
number, log = getattr(signal, sys.argv[1]), sys.argv[2]
signal.signal(number, signal.SIG_DFL)
process = subprocess.Popen(sys.argv[3:], stderr=subprocess.PIPE)
while process.poll() is None and not (os.path.exists(log) and open(log).read().count('"progress"') >= 20):
    pass
process.send_signal(number)
sys.stderr.buffer.write(process.stderr.read())
sys.exit(process.wait() % 256)
PYTHON
for how in SIGINT:130 SIGTERM:143; do
    rm -f asked* unasked*
    python3 stop.py "${how%:*}" asked.jsonl "$RECURVE" train "${stream[@]}" --output asked --steps 1000000 >out 2>err
    status=$?
    [ $status = "${how#*:}" ] || complain "${how%:*} gives $status"
    step=$(sed -nE 's/^recurve: stopped: wrote asked after ([0-9]+) updates?;.*/\1/p' err)
    [ "${step:-0}" -ge 20 ] || complain "${how%:*} is not answered"
    printf '{"event": "progr' >>asked.jsonl # as a kill might leave it
    good train --resume asked --steps $((step + 40))
    good train "${stream[@]}" --output unasked --steps $((step + 40))
    same asked unasked || complain "what goes on after ${how%:*} is another model"
    check_log asked.jsonl
done

# ---- a folder's files ----
mkdir corpus
for part in train valid test; do head -40 text >corpus/$part.txt; done
for kept in both valid test; do
    none=()
    [ $kept = test ] && none+=(--valid none)
    [ $kept = valid ] && none+=(--test none)
    good train corpus --output parts --hidden 4 --batch 2 --length 4 --steps 4 --validate-every 2 "${none[@]}"
    for part in valid test; do
        case $part in valid) event=validation ;; test) event=test ;; esac
        wanted=$([ $kept = both ] || [ $kept = $part ] && echo yes || echo no)
        found=$(grep -q "\"event\":\"$event\"" parts.jsonl && echo yes || echo no)
        [ "$wanted" = "$found" ] || complain "with $kept kept, whether $part is read: $found"
    done
    rm -f parts parts.*
done

# ---- what is refused ----
small=(--output new --hidden 4 --batch 2 --length 4 --steps 2)
: >empty
printf 'x' >one
printf 'one two \xff\xfe three\n' >wrong
mkdir folder
echo '{"hidden": 4, "lerning-rate": 1}' >config.json
bad 1 "empty" train empty "${small[@]}"
bad 1 "one token" train one "${small[@]}"
bad 1 "tokens" train one "${small[@]}" --level word
bad 1 "UTF-8" train wrong "${small[@]}" --level word
bad 1 "directory without a training file" train folder "${small[@]}"
bad 1 "nothing.txt" train nothing.txt "${small[@]}"
bad 2 "did you mean learning-rate?" train text --output new --config config.json
[ ! -e new ] || complain "what was refused has written a model"
head -c 3000 stream-whole.safetensors >./cut
bad 2 "cut" train --resume cut
cp stream-whole.safetensors mine
bad 2 "--hidden cannot be changed" train --resume mine --hidden 9
bad 2 "no settings" train --resume a.only
cp classes-whole.safetensors mine
bad 1 "mine" train text --resume mine --kind stream
cmp -s classes-whole.safetensors mine || complain "a checkpoint that was refused has changed"
leakless bad 1 "cut" eval cut text
leakless good train --resume stream-whole.safetensors --steps 2003

[ $failures = 0 ] || echo "$failures checks failed"
[ $failures = 0 ]
