#!/usr/bin/env bash
# The command: its help, what it does, what it refuses, and how it stops.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0

. "$SOURCE_DIR/tests/support/leaks.bash"

complain() {
    echo "FAILED: $*"
    sed 's/^/    stdout: /' out | head -5
    sed 's/^/    stderr: /' err | head -5
    failures=$((failures + 1))
}

# good ARGUMENTS...: exit status 0
good() {
    "$RECURVE" "$@" >out 2>err </dev/null
    local status=$?
    [ $status = 0 ] || complain "recurve $* gave $status"
}

# bad STATUS FRAGMENT ARGUMENTS...: that exit status, one sentence with the fragment on stderr, nothing on stdout, no
# file "new"
bad() {
    local wanted=$1 fragment=$2
    shift 2
    rm -f new
    "$RECURVE" "$@" >out 2>err </dev/null
    local status=$?
    [ $status = "$wanted" ] || complain "recurve $* gave $status, not $wanted"
    [ "$(wc -l <err)" = 1 ] || complain "recurve $* does not say one line"
    grep -q '^recurve: ' err || complain "recurve $* does not say 'recurve: '"
    grep -qF -- "$fragment" err || complain "recurve $* does not say '$fragment'"
    [ ! -s out ] || complain "recurve $* writes to stdout"
    [ ! -e new ] || complain "recurve $* leaves a file"
}

has() { grep -qE -- "$1" out || complain "no '$1' in what came out"; }

# python CODE...: what the shell cannot say
python() { python3 -c "$@"; }

# ---- help ----
"$RECURVE" >out 2>err
[ $? = 2 ] || complain "recurve alone is no usage mistake"
grep -q '^Usage' err || complain "recurve alone shows no usage"
good --version
has '^recurve [0-9]+\.[0-9]+\.[0-9]+$'
good --help
awk 'length > 80 { exit 1 }' out || complain "the overview is wider than 80 columns"
verbs=$(sed -nE 's/^  ([a-z]+) .*/\1/p' out)
[ "$(wc -w <<<"$verbs")" -ge 7 ] || complain "the overview does not list the verbs"
for verb in $verbs; do
    good "$verb" --help
    has "^Usage: recurve $verb"
    long=$(awk 'length > 80' out)
    [ -z "$long" ] || complain "the help of $verb is wider than 80 columns: $long"
    cp out first
    good help "$verb"
    cmp -s first out || complain "help $verb and $verb --help differ"
done

# ---- mistakes in the command line ----
bad 2 "did you mean train?" trian
bad 2 "recurve --help" xyzzyxyzzy
bad 2 "recurve cell lstm describes it" lstm
echo a text >book.txt
bad 2 "'book.txt' is a file and no verb" book.txt
bad 2 "takes no operand: remove 'lstm'" list lstm
bad 2 "one operand too many for cell" cell lstm gru
bad 2 "data has no 'book.txt'; use data stats FILE" data book.txt
bad 2 "no option" --frobnicate
bad 2 "one verb" help list list
bad 2 "did you mean --hidden?" train text --hiden 3
bad 2 "did you mean --help?" train --hlep
bad 2 "train has no option -x; see recurve train --help" train -x
bad 2 "did you mean --output?" train -output new
bad 2 "no option -x" train -qx
bad 2 "takes no value" list -q=yes
bad 2 "--output needs a value" train text -o
bad 2 "bash, zsh or fish, not 'tcsh'" completion tcsh
bad 2 "needs --output" train
bad 2 "needs --output" train text
bad 2 "needs a value" train text --output
bad 2 "takes no value" cell lstm --json=yes
bad 2 "twice" train text --output new --steps 1 --steps 2
bad 2 "'list'" list list
for wrong in 0 -3 1.5 1e3 0x10 ten '' ' 4' 4x 99999999999999999999; do
    bad 2 "--hidden must be a whole number" train text --output new --steps 1 --hidden "$wrong"
done
for wrong in 1 -0.1 nan inf 0.5x ''; do
    bad 2 "--dropout must be a number" train text --output new --steps 1 --dropout "$wrong"
done
bad 2 "--seed must be" train text --output new --steps 1 --seed -1
bad 2 "float32 or float64" run model --input in --output new --dtype float16
for wrong in proj proj= =3 proj=0 proj=x; do
    bad 2 "--size must be NAME=VALUE" init new --cell lstm --input 2 --hidden 3 --size "$wrong"
done

# ---- short names, and what all verbs have ----
good --version
cp out first
good -V
cmp -s first out || complain "-V is not --version"
good --help
cp out first
good -h
cmp -s first out || complain "-h is not --help"
has '^Exit status: 0 done, 1 failed, 2 wrong usage'
good train -h
has '^  --learning-rate, --lr X '
has '^  -o, --output MODEL '
has '^  -q, --quiet '
good train --lr 0.25 --batch-size=3 -j2 --print-config
python 'import json; s = json.load(open("out")); assert (s["learning-rate"], s["batch"], s["threads"]) == (0.25, 3, 2), s' || complain "short names set other settings"
bad 2 "--learning-rate is given twice" train --lr 0.25 --learning-rate 1
escape=$(printf '\033')
good list --help
! grep -q "$escape" out || complain "there is colour in a file"
good --color always list --help
has "$escape\\[1mCommon options"
"$RECURVE" --color=always lst 2>err
grep -q "$escape" err || complain "no colour in an error"
"$RECURVE" --color=never lst 2>err
! grep -q "$escape" err || complain "colour in an error"
# a terminal: coloured, but not with NO_COLOR
cat >terminal.py <<'PYTHON'
import os, pty, sys
os.environ["TERM"] = "xterm"
if sys.argv[1] == "plain":
    os.environ["NO_COLOR"] = "1"
shown = []
def read(descriptor):
    shown.append(os.read(descriptor, 1 << 16))
    return shown[-1]
pty.spawn(sys.argv[2:], read, lambda descriptor: b"")
sys.exit((b"\x1b[1m" in b"".join(shown)) != (sys.argv[1] == "coloured"))
PYTHON
python3 terminal.py coloured "$RECURVE" list --help >out </dev/null || complain "no colour on a terminal"
python3 terminal.py plain "$RECURVE" list --help >out </dev/null || complain "colour in spite of NO_COLOR"

# ---- cells ----
leakless good list
has '^lstm '
has '^slstm '
good cell lstm
has 'weight_ih'
leakless good cell lstm --backward
good cell lstm --json
python 'import json, sys; json.load(open("out"))' || complain "cell --json is no JSON"
leakless bad 1 "lstm" cell lstmm
bad 1 "nothing.cell" cell ./nothing.cell
printf 'cell c(x) {\n    state h\n    h'"'"' = tanh(W x + U hh)\n    return h'"'"'\n}\n' >wrong.cell
"$RECURVE" cell wrong.cell >out 2>err
[ $? = 1 ] || complain "a wrong cell does not fail"
grep -q '^wrong.cell:3:' err || complain "a wrong cell's place is not named"
grep -q '\^' err || complain "a wrong cell's place has no caret"

printf 'cell c(x) {\n    state h, c\n    vector v\n    h'"'"' = tanh(W x + v)\n    c'"'"' = v * h\n    return c'"'"'\n}\n' >own.cell
good cell own.cell
has "note: the vector v is 2 parameters, one for each equation that names it: h\.v, c\.v"
good cell own.cell --json
python 'import json; assert len(json.load(open("out"))["notes"]) == 1' || complain "cell --json has no note"
sed -i 's/v \* h$/h/' own.cell
good cell own.cell
! grep -q 'note:' out || complain "a vector that one equation names has a note"

# ---- init, run ----
good init model --cell lstm --input 3 --hidden 4 --layers 2 --bidirectional --seed 1
[ -s model ] || complain "init writes nothing"
cp model same
leakless good init model --cell lstm --input=3 --hidden=4 --layers=2 --bidirectional --seed=1 --overwrite
cmp -s model same || complain "the same init differs"
bad 1 "none" init new --cell none --input 3 --hidden 4
leakless bad 1 "missing" init missing/new --cell lstm --input 3 --hidden 4
bad 1 "directory" init . --cell lstm --input 3 --hidden 4
bad 1 "not a regular file" init /dev/null --cell lstm --input 3 --hidden 4
[ -c /dev/null ] || complain "/dev/null is gone"

cat >make.py <<'PYTHON'
import json, random, struct, sys
def save(path, tensors):
    header, data = {}, b''
    for name, (kind, shape, values) in tensors.items():
        raw = struct.pack('<%d%s' % (len(values), {'F32': 'f', 'F64': 'd', 'I64': 'q', 'U8': 'B'}[kind]), *values)
        header[name] = {'dtype': kind, 'shape': shape, 'data_offsets': [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    open(path, 'wb').write(struct.pack('<Q', len(text)) + text + data)
random.seed(1)
def noise(count):
    return [random.uniform(-1, 1) for _ in range(count)]
x = ('F32', [5, 2, 3], noise(30))
dy = ('F32', [5, 2, 8], noise(80))
save('in', {'x': x, 'dy': dy, 'lengths': ('I64', [2], [5, 3])})
save('in_dtype', {'x': ('I64', [5, 2, 3], [1] * 30)})
save('in_shape', {'x': ('F32', [5, 2, 4], noise(40))})
save('in_missing', {'lengths': ('I64', [2], [5, 3])})
save('in_dy', {'x': x})
save('in_lengths', {'x': x, 'lengths': ('I64', [2], [5, 6])})
save('in_empty', {'x': ('F32', [0, 2, 3], [])})
PYTHON
python3 make.py || complain "no input files"
names() {
    python 'import json, struct
data = open("new", "rb").read()
length, = struct.unpack("<Q", data[:8])
print(*json.loads(data[8:8 + length]))' >out
}
good run model --input in --output new
cp new plain
good run model --input in --output new --device cpu --threads 1
cmp -s new plain || complain "run on one thread differs"
names
has '\by\b'
has 'h\.final'
has 'c\.final'
leakless good run model --input in --output new --grad --dtype float64
names
has '\bdx\b'
has 'h\.grad'
has 'grad\.weight_ih_l1_reverse'
leakless good run model --input in --output new --rank 2
bad 1 'tpu' run model --input in --output new --device tpu
bad 1 '' run model --input in --output new --device cuda:99999
bad 1 "in_nothing" run model --input in_nothing --output new
bad 1 "model_nothing" run model_nothing --input in --output new
bad 1 "x" run model --input in_dtype --output new
bad 1 "x" run model --input in_shape --output new
bad 1 "x" run model --input in_missing --output new
leakless bad 1 "dy" run model --input in_dy --output new --grad
bad 1 "length" run model --input in_lengths --output new
bad 1 "recurve" run model --input in_empty --output new
bad 1 "missing" run model --input in --output missing/new
bad 1 "directory" run model --input in --output .
bad 1 "recurve" run . --input in --output new
bad 1 "recurve" run in --input in --output new
printf 'PK\003\004................lstm/data.pkl' >lstm.pt
bad 1 'lstm.pt is a PyTorch pickle, not safetensors: write it in Python by safetensors.torch.save_file(module.state_dict(), "lstm.safetensors")' run lstm.pt --input in --output new
head -c 100 model >cut
leakless bad 1 "cut" run cut --input in --output new

# ---- train, eval, generate ----
for ((i = 0; i < 100; i++)); do echo "line $i of a text that repeats itself, line after line"; done >text
small=(--hidden 16 --embedding 8 --batch 4 --length 16 --effort estimate)
good train text --output lm --steps 30 "${small[@]}"
grep -qE '^100%  30/30  epoch [0-9.]+  loss [0-9.]+  bits/byte [0-9.]+  [0-9.]+k? bytes/s  in 0:[0-9]{2}$' err || complain "no progress line"
grep -q 'wrote lm after 30 updates' err || complain "train does not say what it wrote"
! grep -q 'plan of' err || complain "train prints plans without --verbose"
good train text --quiet -o quiet --steps 2 "${small[@]}"
[ ! -s err ] && [ -s quiet ] || complain "train --quiet is not quiet"
good train text -vo verbose --steps 2 "${small[@]}"
grep -q 'plan of' err || complain "train --verbose prints no plan"
leakless good train --output lm2 --resume lm --steps 40
grep -q 'wrote lm2 after 40 updates' err || complain "--resume does not go on"
good train text --output whole --steps 40 "${small[@]}"
good export lm2 lm2.only
good export whole whole.only
cmp -s lm2.only whole.only || complain "30 and 10 updates are not 40"
good train text --output fresh --steps 0 "${small[@]}"
good eval fresh text
before=$(sed -n 's/^loss *\([0-9.]*\) .*$/\1/p' out)
leakless good eval lm2 text
after=$(sed -n 's/^loss *\([0-9.]*\) .*$/\1/p' out)
has '^bytes +[0-9,]+$'
has '^bits/byte +[0-9.]+$'
cp out first
good eval lm2 text --json found.json
cmp -s first out || complain "eval --json prints something else"
python "
import json, math
found, printed = json.load(open('found.json')), dict(line.split()[:2] for line in open('out'))
assert found['counted'] == int(printed['bytes'].replace(',', '')) and abs(found['loss'] - $after) < 1e-5
assert abs(found['bits_per_byte'] - found['loss'] / math.log(2)) < 1e-6 and 'confusion' not in found and 'mae' not in found
" || complain "eval's JSON is not what it prints"
mkdir folder && cp text folder/test.txt
good eval lm2 folder
cmp -s first out || complain "eval of a folder does not read its test file"
rm -r folder && mkdir folder && bad 1 "without a test file" eval lm2 folder
python "assert 5 < $before < 8 and $after < $before - 0.5" || complain "training goes from $before to $after"
bad 1 'tpu' generate lm --tokens 5 --device tpu
bad 1 '' generate lm --tokens 5 --device cuda:99999
good generate lm --tokens 50 --prompt line --seed 3
[ "$(wc -c <out)" = 50 ] || complain "generate does not write 50 bytes"
cp out first
good generate lm --tokens 50 --prompt line --seed 3
cmp -s first out || complain "the same seed writes another text"
leakless good generate lm --tokens 0
[ ! -s out ] || complain "no bytes are some bytes"
"$RECURVE" generate lm --tokens 100000 2>err | head -c 10 >out
[ "${PIPESTATUS[0]}" = 0 ] && [ ! -s err ] || complain "a reader that leaves is a failure"
if [ -c /dev/full ]; then
    "$RECURVE" generate lm --tokens 10 >/dev/full 2>err
    [ $? = 1 ] && grep -q '^recurve: cannot write' err || complain "a full device is no failure"
fi

# classes and values
for ((i = 0; i < 90; i++)); do echo "{\"x\": [$((i % 3)), $((i % 3 * 2)), 1], \"y\": \"c$((i % 3))\"}"; done >classes.jsonl
good train classes.jsonl --kind classes --output c.model --hidden 8 --batch 6 --epochs 20 --effort estimate --quiet
good eval c.model classes.jsonl --json found.json
has '^accuracy +1\.000000$'
has '^F1 +1\.000000$'
has '^AUC +1\.000000 '
has '^c1 +1\.000 +1\.000 +1\.000 +30$'
has '^c2 +0 +0 +30$'
cp out first
good eval c.model classes.jsonl --batch 7
sed '/^loss/d' first >a && sed '/^loss/d' out >b && cmp -s a b || complain "a batch of 7 gives other metrics"
python "
import json
found = json.load(open('found.json'))
assert found['confusion'] == [[30, 0, 0], [0, 30, 0], [0, 0, 30]] and found['classes'] == ['c0', 'c1', 'c2'] and found['accuracy'] == 1, found
" || complain "the confusion matrix in JSON"
sed 's/"c0"/"c3"/' classes.jsonl >unknown.jsonl
bad 1 "c3" eval c.model unknown.jsonl
for ((i = 0; i < 40; i++)); do echo "{\"x\": [$i, 1, 2], \"y\": $((2 * i))}"; done >values.jsonl
good train values.jsonl --kind values --output v.model --hidden 4 --steps 2 --effort estimate --quiet
good eval v.model values.jsonl
has '^MAE +[0-9.]+  mean absolute error$'
has '^RMSE +[0-9.]+  '
has '^R2 +-?[0-9.]+  '
! grep -qE 'naive|accuracy|perplexity' out || complain "metrics that do not apply"

: >empty
bad 1 "empty" train empty --output new --steps 1
bad 1 "nothing" train nothing --output new --steps 1
bad 1 "directory" train . --output new --steps 1
bad 1 "/dev/null" train /dev/null --output new --steps 1
bad 1 "missing" train text --output missing/new --steps 1
bad 1 "directory" train text --output . --steps 1
leakless bad 1 "window" train text --kind stream --output new --steps 1 --batch 1000 --length 1000
bad 1 "nosuchcell" train text --output new --steps 1 --cell nosuchcell
bad 2 "settings" train text --output new --steps 1 --resume model
bad 2 "--resume" train text --output new --steps 1 --resume lm --hidden 3
leakless bad 1 "no model that was trained" generate model
bad 1 "nothing" generate nothing
bad 1 "text" generate text
bad 1 "nothing" eval lm nothing
printf x >one
leakless bad 1 "one" eval lm one
"$RECURVE" train text --output new --steps 200 --learning-rate 1e6 --clip 0 --cell rnn_relu "${small[@]}" >out 2>err
[ $? = 1 ] || complain "a loss that is no number is no failure"
grep -q '^recurve: .*not a number' err || complain "a loss that is no number is not named"
[ ! -e new ] || complain "a loss that is no number is written"

# a validation that overflows is reported, and the run goes on
printf '{"x": [[%s, 1], [2, %s]], "y": [1, 0.5]}\n' 0.5 -1 1 2 >values
printf '{"x": [[3e38, 3e38], [3e38, -3e38], [%s, -3e38], [3e38, %s]], "y": [1, 2]}\n' 3e38 -3e38 -3e38 3e38 >huge
good train values --output over.safetensors --kind values --valid huge --test huge --cell rnn_relu --hidden 8 --init 0.9 --batch 2 --steps 3 \
    --validate-every 1 --threads 1 --effort estimate --log-every 1
[ "$(grep -c '^validation .*the loss is not a number' err)" -ge 1 ] || complain "a validation that overflows is not reported"
grep -q '^recurve: test of .*: the loss is not a number' err || complain "a test that overflows is not reported"
python3 - <<'PYTHON' || complain "the log of losses that are not numbers"
import json
lines = [json.loads(line) for line in open("over.jsonl")]
losses = [line["loss"] for line in lines if line["event"] in ("validation", "test")]
assert losses == [None] * 4, losses
PYTHON
good report over.jsonl --output over.html
grep -q 'Validations' over.html && ! grep -qi '>-\{0,1\}nan\|>inf' over.html || complain "the page of losses that are not numbers"
rm -f over.* values huge

# ---- stopping ----
cat >stop.py <<'PYTHON'
import signal, subprocess, sys, time
number = getattr(signal, sys.argv[1])
signal.signal(number, signal.SIG_DFL)
process = subprocess.Popen(sys.argv[2:], stderr=subprocess.PIPE)
said = b""
while not said.endswith(b"an epoch\n"):  # the last line of the summary: training has begun
    said += process.stderr.readline()
process.send_signal(number)
said += process.stderr.read()
sys.stderr.buffer.write(said)
sys.exit(process.wait() % 256)
PYTHON
for how in SIGINT:130 SIGTERM:143; do
    rm -f new new.*
    python3 stop.py "${how%:*}" "$RECURVE" train text --output new --seconds 600 "${small[@]}" >out 2>err
    status=$?
    [ $status = "${how#*:}" ] || complain "${how%:*} gives $status"
    grep -qE '^recurve: stopped: wrote new after [0-9]+ updates?;' err || complain "${how%:*} is not answered"
    good generate new --tokens 20
    [ "$(wc -c <out)" = 20 ] || complain "the model after ${how%:*} writes nothing"
    good train text --output new --resume new --steps 1
done
leftovers=$(find . -name '*tmp*' -o -name '.*' -type f)
[ -z "$leftovers" ] || complain "files are left: $leftovers"

[ $failures = 0 ] || echo "$failures checks failed"
[ $failures = 0 ]
