#!/bin/bash
# lstm, gru, rnn_tanh, rnn_relu and lstm_proj against PyTorch run here and now, and training against the same training there.
# Status 77: PyTorch is not installed.
set -eu
python=/usr/bin/python3
"$python" -c 'import torch, numpy' 2>/dev/null || { echo "skipped: $python has no torch (python3-torch)"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for script in torch_compare torch_train; do
    OMP_NUM_THREADS=1 "$python" "$SOURCE_DIR/tests/command/torch/$script.py" "$RECURVE" "$folder"
done
