#!/usr/bin/env bash
# The programs of examples/ that need a file or a device: a classifier in C predicts what it was trained on; PyTorch's weights in C give what
# the LSTM's equations give; without a GPU a program says so; and the C++ wrappers work. install.sh runs the others.
set -u
programs=$BUILD_DIR/examples
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
complain() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}
for program in classify load_torch gpu_memory; do
    [ -x "$programs/$program" ] || { echo "embedding: $programs/$program is not built"; exit 1; }
done

# ---- classify ----
python3 "$SOURCE_DIR/examples/waves.py" waves.csv new.csv --sequences 400 || exit 1
"$RECURVE" train waves.csv --target label --cell gru --hidden 32 --epochs 40 --learning-rate 0.01 --effort estimate \
    --output waves.safetensors >out 2>&1 || complain "training: $(cat out)"
"$programs/classify" waves.safetensors >out 2>&1 || complain "classify: status $?, $(cat out)"
[ "$(grep '^sequence' out | tr '\n' ' ')" = "sequence 0: sine sequence 1: square sequence 2: saw " ] || complain "classify says: $(cat out)"
awk '/^sequence/ { if (NR > 1 && (sum < 0.999 || sum > 1.001)) wrong = 1; sum = 0 } /^ / { sum += $2 } END { exit wrong || NR != 12 }' out ||
    complain "probabilities that do not sum to 1: $(cat out)"
"$programs/classify" waves.csv >out 2>&1 && complain "classify takes a table for a model"
grep -q '^classify: waves.csv' out || complain "classify does not name the file: $(cat out)"
"$programs/classify" >out 2>&1 && complain "classify runs without a model"

# ---- load_torch: a state dict as PyTorch writes it, and an LSTM written out step by step ----
python3 - >wanted <<'PYTHON'
import json, math, struct
INPUT, HIDDEN, STEPS, BATCH = 3, 4, 5, 2
shapes = {"weight_ih_l0": [4 * HIDDEN, INPUT], "weight_hh_l0": [4 * HIDDEN, HIDDEN], "bias_ih_l0": [4 * HIDDEN], "bias_hh_l0": [4 * HIDDEN]}
state, header, data = {}, {}, b""
for number, (name, shape) in enumerate(shapes.items()):
    state[name] = [math.sin(1 + 7 * number + 0.9 * i) / 2 for i in range(math.prod(shape))]
    begin = len(data)
    data += struct.pack(f"<{len(state[name])}f", *state[name])
    header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, len(data)]}
text = json.dumps(header).encode()
with open("weights.safetensors", "wb") as file:
    file.write(struct.pack("<Q", len(text)) + text + data)

sigmoid = lambda value: 1 / (1 + math.exp(-value))
print(f"lstm: {INPUT} features, 1 layers of {HIDDEN}")
rows = []
for row in range(BATCH):
    h, c = [0.0] * HIDDEN, [0.0] * HIDDEN
    for step in range(STEPS):
        x = [((step * BATCH + row) * INPUT + i) % 7 / 7 - 0.5 for i in range(INPUT)]
        gates = [state["bias_ih_l0"][k] + state["bias_hh_l0"][k] + sum(state["weight_ih_l0"][k * INPUT + i] * x[i] for i in range(INPUT))
                 + sum(state["weight_hh_l0"][k * HIDDEN + i] * h[i] for i in range(HIDDEN)) for k in range(4 * HIDDEN)]
        i, f, g, o = (gates[k * HIDDEN:(k + 1) * HIDDEN] for k in range(4))
        c = [sigmoid(f[k]) * c[k] + sigmoid(i[k]) * math.tanh(g[k]) for k in range(HIDDEN)]
        h = [sigmoid(o[k]) * math.tanh(c[k]) for k in range(HIDDEN)]
    print(f"sequence {row}, last step: " + " ".join(f"{value:.6f}" for value in h))
PYTHON
"$programs/load_torch" weights.safetensors lstm >out 2>&1 || complain "load_torch: status $?, $(cat out)"
python3 - out wanted <<'PYTHON' || complain "load_torch says $(cat out), and the equations $(cat wanted)"
import sys
got, wanted = (open(name).read().split() for name in sys.argv[1:])
numeric = lambda word: word.lstrip("-").replace(".", "", 1).isdigit()
same = lambda a, b: abs(float(a) - float(b)) < 1e-5 if numeric(a) and numeric(b) else a == b
sys.exit(len(got) != len(wanted) or not all(map(same, got, wanted)))
PYTHON
"$programs/load_torch" weights.safetensors gru >out 2>&1 && complain "load_torch takes an LSTM's weights for a GRU's"
grep -q '^load_torch: weights.safetensors' out || complain "load_torch does not name the file: $(cat out)"

# ---- gpu_memory: with a GPU finite sums, without one a sentence ----
status=0
"$programs/gpu_memory" >out 2>err || status=$?
if [ $status = 0 ]; then
    grep -qE '^sum of outputs -?[0-9]+\.[0-9]+, of gradients -?[0-9]+\.[0-9]+$' out || complain "gpu_memory says: $(cat out)"
else
    [ $status = 1 ] && [ "$(wc -l <err)" = 1 ] && grep -q '^gpu_memory: .*(unsupported)$' err || complain "gpu_memory: status $status, $(cat err)"
fi
"$programs/gpu_memory" cpu >out 2>err || complain "gpu_memory cpu: $(cat err)" # the calls are the same for every device

# ---- C++ ----
if [ -x "$programs/cplusplus" ]; then
    "$programs/cplusplus" >out 2>&1 || complain "cplusplus: status $?, $(cat out)"
    [ "$(grep -c '^step' out)" = 8 ] && grep -q "^expected: .*no such cell" out || complain "cplusplus says: $(cat out)"
else
    echo "embedding: no C++ compiler, so cplusplus.cpp is not tested"
fi

# ---- docs/EMBEDDING.md: its blocks in C compile, between declarations of what they use ----
{
    cat <<'C'
#include <recurve.h>
static bool print_progress(void *user, const rcv_progress *progress) { return user != progress; }
void blocks(rcv_context *context, rcv_net *net, float *parameters, float *x, float *y, float *dy, float *gradient);
void blocks(rcv_context *context, rcv_net *net, float *parameters, float *x, float *y, float *dy, float *gradient) {
    rcv_plan *plan;
    rcv_run *run;
    rcv_settings *settings;
    rcv_trainer *trainer;
C
    awk 'inside && /^```$/ { inside = 0 } inside { print } $0 == "```c" { inside = 1 }' "$SOURCE_DIR/docs/EMBEDDING.md"
    echo '}'
} >blocks.c
[ "$(grep -c rcv_ blocks.c)" -gt 15 ] || complain "docs/EMBEDDING.md has hardly any C"
$CC -std=c11 -Wall -Wextra -Werror -fsyntax-only -I "$SOURCE_DIR/include" blocks.c || complain "the blocks of docs/EMBEDDING.md do not compile"
[ $failures = 0 ]
