"""Compares `recurve train` with PyTorch: torch_train.py RECURVE FOLDER

The same models from the same first parameters on the same text: the loss of every update in double to 1e-9, over 20 updates that pass
the end of an epoch. Exit status 77: no torch.
"""
import json
import os
import random
import struct
import subprocess
import sys

try:
    import torch
except ImportError:
    print("skipped: this python has no torch")
    sys.exit(77)

TOLERANCE = 1e-9
UPDATES = 20
HIDDEN, LAYERS, BATCH, LENGTH = 6, 2, 3, 7
TYPES = {"F64": torch.float64, "F32": torch.float32, "U8": torch.uint8}
CELLS = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}


class Case:
    """What recurve is told, and how PyTorch does the same. Where there is a clip, some norm must pass it."""

    def __init__(self, name, options, optimiser, cell="lstm", clip=0.0, sequence=False, tied=False, lines=False):
        self.name, self.options, self.optimiser, self.cell = name, options, optimiser, cell
        self.clip, self.sequence, self.tied, self.lines = clip, sequence, tied, lines

    def arguments(self):
        arguments = ["--cell", self.cell, "--clip", str(self.clip), *self.options]
        if self.sequence:
            arguments += ["--loss", "sequence"]
        if self.tied:
            arguments += ["--tied"]
        if self.lines:
            arguments += ["--kind", "lines", "--no-shuffle", "--buckets", "none"]
        return arguments


def sgd(**options):
    return lambda parameters: torch.optim.SGD(parameters, **options)


def adam(**options):
    return lambda parameters: torch.optim.Adam(parameters, betas=(0.9, 0.999), eps=1e-8, **options)


def adamw(**options):
    return lambda parameters: torch.optim.AdamW(parameters, betas=(0.9, 0.999), eps=1e-8, **options)


CASES = [
    Case("sgd", ["--optimiser", "sgd", "--learning-rate", "1"], sgd(lr=1.0), clip=0.5),
    Case("adam", ["--optimiser", "adam", "--learning-rate", "0.01"], adam(lr=0.01)),
    Case("gru", ["--optimiser", "adam", "--learning-rate", "0.01"], adam(lr=0.01), cell="gru", clip=0.25),
    Case("sequence", ["--optimiser", "sgd", "--learning-rate", "0.1"], sgd(lr=0.1), clip=2.0, sequence=True),
    Case(
        "momentum",
        ["--optimiser", "momentum", "--momentum", "0.8", "--learning-rate", "0.2", "--weight-decay", "0.001"],
        sgd(lr=0.2, momentum=0.8, weight_decay=0.001),
    ),
    Case(
        "adamw",
        ["--optimiser", "adamw", "--learning-rate", "0.01", "--weight-decay", "0.1"],
        adamw(lr=0.01, weight_decay=0.1),
        cell="gru",
    ),
    Case("tied", ["--optimiser", "sgd", "--learning-rate", "1"], sgd(lr=1.0), clip=0.1, tied=True),
    Case("lines", ["--optimiser", "sgd", "--learning-rate", "1"], sgd(lr=1.0), clip=0.1, lines=True),
]


def write_text(path):
    random.seed(5)
    words = "the cat dog mat log sat lay on a ran saw and then big red".split()
    weights = [1 / (rank + 1) ** 2 for rank in range(len(words))]  # there is something to learn
    with open(path, "w") as text:
        for _ in range(30):
            print(*random.choices(words, weights, k=random.randrange(2, 9)), file=text)


def read_tensors(path):
    """The tensors, and the words of the vocabulary."""
    with open(path, "rb") as file:
        content = file.read()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    vocabulary = json.loads(header.pop("__metadata__")["recurve.vocabulary"])
    tensors = {}
    for name, entry in header.items():
        start, end = entry["data_offsets"]
        data = bytearray(content[8 + length + start : 8 + length + end])
        tensors[name] = torch.frombuffer(data, dtype=TYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors, vocabulary["tokens"]


def read_lines(path, vocabulary):
    """The lines of the text as numbers, without their ends."""
    numbers = {word: number for number, word in enumerate(vocabulary)}
    with open(path) as text:
        return [[numbers[word] for word in line.split()] for line in text]


def stream_batches(lines, eos):
    """Windows of columns, (x, targets, begins) one after the other: those of an epoch."""
    tokens = [token for line in lines for token in line + [eos]]
    column = len(tokens) // BATCH
    columns = torch.tensor(tokens[: column * BATCH]).view(BATCH, column).t()
    return [
        (columns[at : at + LENGTH], columns[at + 1 : at + LENGTH + 1], at == 0)
        for at in range(0, (column - 1) // LENGTH * LENGTH, LENGTH)
    ]


def line_batches(lines, eos):
    """Lines as they follow one another: <eos> and the words in, the words and <eos> out; -1 does not count."""
    steps = max(len(line) for line in lines) + 1
    batches = []
    for first in range(0, len(lines), BATCH):
        some = lines[first : first + BATCH]
        x = torch.zeros(steps, len(some), dtype=torch.int64)
        targets = torch.full((steps, len(some)), -1)
        for row, line in enumerate(some):
            x[: len(line) + 1, row] = torch.tensor([eos] + line)
            targets[: len(line) + 1, row] = torch.tensor(line + [eos])
        batches.append((x, targets, True))
    return batches


class Model(torch.nn.Module):
    def __init__(self, case, tokens):
        super().__init__()
        self.embedding = torch.nn.Embedding(tokens, HIDDEN)
        self.rnn = CELLS[case.cell](HIDDEN, HIDDEN, LAYERS)
        self.decoder = torch.nn.Linear(HIDDEN, tokens)
        if case.tied:
            self.decoder.weight = self.embedding.weight

    def forward(self, x, state):
        y, state = self.rnn(self.embedding(x), state)
        return self.decoder(y), state


def load(model, case, tensors):
    """Every parameter from the file, and nothing in the file that is no parameter."""
    wanted = dict(model.named_parameters())  # names a tied matrix once
    given = tensors
    rest = {name for name in given if not name.startswith(("first.", "second.", "state."))}
    if rest != set(wanted):
        raise SystemExit(f"{case.name}: the file has {sorted(rest)}, the module {sorted(wanted)}")
    with torch.no_grad():
        for name, parameter in wanted.items():
            if given[name].shape != parameter.shape or given[name].dtype != torch.float64:
                raise SystemExit(f"{case.name}: {name} is {given[name].dtype} {tuple(given[name].shape)}")
            parameter.copy_(given[name])


def torch_losses(case, tensors, vocabulary, text):
    """Loss a token of every update; whether the clip acted."""
    model = Model(case, len(vocabulary)).double()
    load(model, case, tensors)
    lines, eos = read_lines(text, vocabulary), vocabulary.index("<eos>")
    batches = line_batches(lines, eos) if case.lines else stream_batches(lines, eos)
    if not 3 < len(batches) < UPDATES:
        raise SystemExit(f"{case.name}: an epoch of {len(batches)} updates does not end within {UPDATES}")
    optimiser = case.optimiser(model.parameters())
    state, losses, clipped = None, [], 0
    for update in range(UPDATES):
        x, targets, begins = batches[update % len(batches)]
        if begins:
            state = None
        elif isinstance(state, tuple):
            state = tuple(part.detach() for part in state)
        else:
            state = state.detach()
        optimiser.zero_grad()
        logits, state = model(x, state)
        total = torch.nn.functional.cross_entropy(
            logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=-1, reduction="sum"
        )
        counted = int((targets >= 0).sum())
        (total / (x.shape[1] if case.sequence else counted)).backward()
        if case.clip:
            clipped += float(torch.nn.utils.clip_grad_norm_(model.parameters(), case.clip)) > case.clip
        optimiser.step()
        losses.append(float(total.detach()) / counted)
    return losses, clipped


def run_recurve(recurve, case, text, output, steps):
    command = [
        recurve, "train", text, "--output", output, "--level", "word", "--dtype", "float64", "--hidden", str(HIDDEN),
        "--layers", str(LAYERS), "--batch", str(BATCH), "--length", str(LENGTH), "--steps", str(steps),
        "--log-every", "1", "--threads", "1", "--effort", "estimate", "--seed", "11", "--overwrite", *case.arguments(),
    ]  # fmt: skip
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{case.name}: recurve train gave {done.returncode}: {done.stderr}")


def recurve_losses(log):
    with open(log) as lines:
        events = [json.loads(line) for line in lines]
    progress = [event for event in events if event["event"] == "progress"]
    if [event["step"] for event in progress] != list(range(1, UPDATES + 1)):
        raise SystemExit(f"{log} does not have the updates from 1 to {UPDATES}")
    return [event["update_loss"] for event in progress]


def check_export(recurve, folder, case, model):
    """PyTorch loads an export strictly: it has the module's tensors and no others. A tied matrix is in the file once."""
    path = os.path.join(folder, case.name + "-export.safetensors")
    subprocess.run([recurve, "export", model, path], check=True)
    tensors, vocabulary = read_tensors(path)
    if case.tied:
        tensors["decoder.weight"] = tensors["embedding.weight"]
    Model(case, len(vocabulary)).load_state_dict(tensors, strict=True)


def compare(recurve, folder, text, case):
    first = os.path.join(folder, case.name + "-first.safetensors")
    last = os.path.join(folder, case.name + "-last.safetensors")
    run_recurve(recurve, case, text, first, 0)
    run_recurve(recurve, case, text, last, UPDATES)
    check_export(recurve, folder, case, last)
    ours = recurve_losses(os.path.join(folder, case.name + "-last.jsonl"))
    theirs, clipped = torch_losses(case, *read_tensors(first), text)
    differences = [abs(a - b) / abs(b) for a, b in zip(ours, theirs)]
    worst = max(differences)
    print(f"{case.name:10} {ours[0]:.6f} to {ours[-1]:.6f}, clipped {clipped:2}, largest relative difference {worst:.2g}")
    good = True
    if not worst <= TOLERANCE:
        update = next(i for i, difference in enumerate(differences) if not difference <= TOLERANCE)
        print(f"FAILED: {case.name}: update {update + 1} has {ours[update]:.12g}, in PyTorch {theirs[update]:.12g}")
        good = False
    if case.clip and not clipped:
        print(f"FAILED: {case.name}: the norm never passes the clip of {case.clip}, so that is not compared")
        good = False
    if not ours[-1] < ours[0]:
        print(f"FAILED: {case.name}: nothing was learnt")
        good = False
    return good


def main():
    recurve, folder = sys.argv[1:]
    torch.set_num_threads(1)
    text = os.path.join(folder, "text")
    write_text(text)
    results = [compare(recurve, folder, text, case) for case in CASES]
    sys.exit(0 if all(results) else 1)


if __name__ == "__main__":
    main()
