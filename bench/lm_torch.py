"""The language model of bench/ptb.sh in PyTorch (cuDNN): the same model, the same data, the same updates.

    python3 bench/lm_torch.py DATA --preset zaremba-small [--device cuda] [--dtype tf32] [--steps 300]
prints one JSON object: tokens a second, peak memory, the loss of the last updates. With --epochs N it makes N passes over the data,
and adds the perplexity of the validation file.
"""
import argparse
import json
import math
import os
import time

import torch

PRESETS = {  # hidden, length, dropout, init, clip
    "zaremba-small": (200, 20, 0.0, 0.1, 5),
    "zaremba-medium": (650, 35, 0.5, 0.05, 5),
    "zaremba-large": (1500, 35, 0.65, 0.04, 10),
}
BATCH, LAYERS = 20, 2


def read_tokens(folder, part, words):
    """Tokens of a part of the data. `words` maps words to numbers; new words are added."""
    for name in (f"ptb.{part}.txt", f"wiki.{part}.tokens", f"{part}.txt"):
        path = os.path.join(folder, name)
        if os.path.exists(path):
            break
    tokens = []
    with open(path, encoding="utf-8") as text:
        for line in text:
            for word in line.split() + ["<eos>"]:
                tokens.append(words.setdefault(word, len(words)))
    return torch.tensor(tokens)


def columns_of(tokens, batch, device):
    return tokens[: len(tokens) // batch * batch].view(batch, -1).t().contiguous().to(device)


class Model(torch.nn.Module):
    def __init__(self, vocabulary, hidden, dropout):
        super().__init__()
        self.drop = torch.nn.Dropout(dropout)
        self.embedding = torch.nn.Embedding(vocabulary, hidden)
        self.rnn = torch.nn.LSTM(hidden, hidden, LAYERS, dropout=dropout)
        self.decoder = torch.nn.Linear(hidden, vocabulary)

    def forward(self, x, state):
        y, state = self.rnn(self.drop(self.embedding(x)), state)
        return self.decoder(self.drop(y)), state


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--preset", default="zaremba-small")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", default="tf32", choices=["fp32", "tf32", "bf16"])
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--epochs", type=int, default=0)
    parser.add_argument("--warm", type=int, default=30)
    parser.add_argument("--threads", type=int, default=0)
    options = parser.parse_args()
    hidden, length, dropout, init, clip = PRESETS[options.preset]
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = options.dtype == "tf32"
    torch.manual_seed(1)
    words = {}
    columns = columns_of(read_tokens(options.data, "train", words), BATCH, options.device)
    valid = columns_of(read_tokens(options.data, "valid", words), 10, options.device) if options.epochs else None
    vocabulary = len(words)
    model = Model(vocabulary, hidden, dropout).to(options.device)
    for parameter in model.parameters():
        torch.nn.init.uniform_(parameter, -init, init)
    optimiser = torch.optim.SGD(model.parameters(), lr=1.0)
    loss_of = torch.nn.CrossEntropyLoss(reduction="sum")
    state, losses, windows = None, [], (len(columns) - 1) // length
    cuda = options.device.startswith("cuda")

    def update(step):
        nonlocal state
        at = step % windows * length
        if at == 0:
            state = None
        x, target = columns[at : at + length], columns[at + 1 : at + 1 + length]
        if state is not None:
            state = tuple(s.detach() for s in state)
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast(options.device.split(":")[0], dtype=torch.bfloat16, enabled=options.dtype == "bf16"):
            y, state = model(x, state)
            loss = loss_of(y.view(-1, vocabulary), target.reshape(-1)) / BATCH
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimiser.step()
        losses.append(loss.detach())

    def validate():
        model.eval()
        carried, total = None, 0.0
        with torch.no_grad():
            for at in range(0, len(valid) - 1, length):
                target = valid[at + 1 : at + 1 + length]
                y, carried = model(valid[at : at + len(target)], carried)
                total += float(loss_of(y.view(-1, vocabulary), target.reshape(-1)))
        return math.exp(total / (len(valid) - 1) / valid.shape[1])

    if options.epochs:
        options.steps, options.warm = options.epochs * windows, 0
    for step in range(options.warm):
        update(step)
    if cuda:
        torch.cuda.synchronize()
    began = time.perf_counter()
    for step in range(options.warm, options.warm + options.steps):
        update(step)
    if cuda:
        torch.cuda.synchronize()
    seconds = time.perf_counter() - began
    print(json.dumps({
        "preset": options.preset, "dtype": options.dtype, "device": options.device, "torch": torch.__version__,
        "tokens_per_second": options.steps * length * BATCH / seconds,
        "step_milliseconds": 1e3 * seconds / options.steps,
        "bytes": torch.cuda.max_memory_allocated() if cuda else None,
        "loss": float(torch.stack(losses[-50:]).mean()) / length,
        "epochs": options.epochs, "validation_perplexity": validate() if options.epochs else None,
    }))


if __name__ == "__main__":
    main()
