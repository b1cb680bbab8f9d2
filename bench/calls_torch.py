#!/usr/bin/env python3
"""Measures in PyTorch what bench_calls measured, and adds the numbers to its file.

    bench/calls_torch.py FILE [--device cpu|cuda] [--seconds S]

FILE is one that bench_calls --json wrote; its shapes and its batches of sentences are used. Every part is a process of its own, so that a first
step is one of a new process. The file gets the members `torch` (the version), `anchors` (by the ids of the rows, in their units),
`anchors_about` (how they were measured, by the beginnings of ids) and `anchors_failed` (why a part has no numbers), after each part. The exit status is 1 if a part failed.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path


def write(path, data):
    """A line for each row, as bench_calls writes them."""
    members = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in data.items() if key != "rows"]
    rows = ",\n".join(json.dumps(row) for row in data["rows"])
    beside = path.with_suffix(".json.new")
    beside.write_text("{\n" + ",\n".join(members + [f'"rows": [\n{rows}\n]']) + "\n}\n")
    beside.replace(path)


def row_of(data, name):
    return next((row for row in data["rows"] if row["id"] == name), None)


def shape_of(data, name, default):
    """T, B, H and layers of a row."""
    row = row_of(data, name)
    return [size for pair in row["details"]["T_B_H_layers"] for size in pair] if row and "T_B_H_layers" in row["details"] else default


# ---- parts: each returns {id: value} ----


class Network:
    """A layer of torch.nn with x and dy; step() is a training step, or a forward call."""

    def __init__(self, torch, device, steps, batch, hidden, layers, dtype, inputs=None, kind="LSTM", bidirectional=False, training=True, autocast=False):
        self.torch, self.device, self.training, self.autocast = torch, device, training, autocast
        storage = torch.float32 if autocast else dtype
        inputs = inputs or hidden
        self.module = getattr(torch.nn, kind)(inputs, hidden, layers, bidirectional=bidirectional).to(device=device, dtype=storage)
        self.x = torch.rand(steps, batch, inputs, device=device, dtype=storage, requires_grad=training)
        self.dy = torch.rand(steps, batch, hidden * (2 if bidirectional else 1), device=device, dtype=dtype)
        self.wait = torch.cuda.synchronize if device.startswith("cuda") else lambda: None

    def forward(self, steps=None, batch=None):
        torch = self.torch
        x, dy = self.x, self.dy
        if steps is not None:  # contiguous, as ours
            x, dy = (whole.detach().view(-1)[:steps * batch * whole.shape[2]].view(steps, batch, -1) for whole in (x, dy))
            x.requires_grad_(self.training)
        for parameter in self.module.parameters():
            parameter.grad = None
        x.grad = None
        with torch.set_grad_enabled(self.training), torch.autocast(self.device.split(":")[0], dtype=torch.bfloat16, enabled=self.autocast):
            self.y, self.now_dy = self.module(x)[0], dy

    def backward(self):
        self.y.backward(self.now_dy.to(self.y.dtype))

    def enqueue(self, steps=None, batch=None):
        self.forward(steps, batch)
        if self.training:
            self.backward()

    def time(self, call):
        """Seconds until the call returned, and until it was done."""
        begin = time.perf_counter()
        call()
        returned = time.perf_counter()
        self.wait()
        return returned - begin, time.perf_counter() - begin

    def step(self, steps=None, batch=None):
        return self.time(lambda: self.enqueue(steps, batch))

    def step_apart(self, steps, batch):
        """The forward call and the backward call, each waited for."""
        return [self.time(lambda: self.forward(steps, batch)), self.time(self.backward)]


def warm_device(torch, device):
    """The driver and its context, but no kernels of a layer."""
    torch.ones(1 << 18, device=device).cpu()


def libraries(torch, device, data):
    """Loads what a layer needs, and reads the files of all loaded libraries, so that later parts find them in the page cache, as bench_calls does."""
    Network(torch, device, 4, 16, 64, 1, torch.float32).step()
    for path in {line.split(maxsplit=5)[5].strip() for line in open("/proc/self/maps") if "/" in line and ".so" in line}:
        try:
            with open(path, "rb") as file:
                while file.read(1 << 20):
                    pass
        except OSError:
            pass
    return {}


def first(torch, device, data, name, dtype):
    steps, batch, hidden, layers = shape_of(data, f"first.{name}.step", [100, 64, 512, 2])
    warm_device(torch, device)
    network = Network(torch, device, steps, batch, hidden, layers, dtype)
    found = {f"first.{name}.step": 1e3 * network.step()[1]}
    found[f"again.{name}.step"] = found[f"first.{name}.step"]  # it keeps nothing on disk
    changes = {"hidden": dict(hidden=hidden // 4 * 3), "layers": dict(layers=layers + 1), "both": dict(bidirectional=True), "gru": dict(kind="GRU"),
               "smaller": dict(steps=(steps + 1) // 2, batch=(batch + 1) // 2)}
    for change, values in changes.items():
        sizes = {**dict(steps=steps, batch=batch, hidden=hidden, layers=layers), **values}
        found[f"next.{name}.{change}"] = 1e3 * Network(torch, device, dtype=dtype, inputs=hidden, **sizes).step()[1]
    times = [network.step()[1] for _ in range(3)]
    found[f"first.{name}.tuned_step"] = 1e3 * statistics.median(times + [network.step()[1] for _ in range(20 if max(times) < 0.1 else 3)])
    return found


def sizes(torch, device, data):
    """As bench_calls: calls with sizes that are new, and calls with the same sizes again, of which the first does not count."""
    cuda = device.startswith("cuda")
    steps, batch, hidden, layers = shape_of(data, "sizes.forward.new.host", [100, 64, 512, 2] if cuda else [20, 16, 32, 2])
    found = {}
    for training in (False, True):
        network = Network(torch, device, steps, batch, hidden, layers, torch.bfloat16 if cuda else torch.float32, training=training)
        for _ in range(5):
            network.step()
        draw = random.Random(7)
        pairs = []
        while len(pairs) < 80:
            pair = draw.randint(1, steps), draw.randint(1, batch)
            pairs += [pair] if pair not in pairs and pair != (steps, batch) else []
        # Of each call: seconds until it returned, and until it was done; {name: [[host, ...], [done, ...]]}.
        beyond = {name: ([], []) for name in (("training.forward", "training.backward", "training.both") if training else ("forward",))}
        for at, pair in enumerate(pairs):
            apart = training and at % 2 == 0
            calls = [network.step_apart(*pair) if apart else [network.step(*pair)] for _ in range(5)]
            names = ("training.forward", "training.backward") if apart else ("training.both",) if training else ("forward",)
            for k, name in enumerate(names):
                for i in range(2):
                    beyond[name][i].append(calls[0][k][i] - statistics.median(call[k][i] for call in calls[2:]))
        for name, both in beyond.items():
            for i, until in enumerate(("host", "done")):
                found[f"sizes.{name}.new.{until}"] = 1e6 * statistics.median(both[i])
    return found


def types(torch, device, data):
    """Parameters, x and dy in bfloat16, of float32 ones under autocast."""
    steps, batch, hidden, layers = shape_of(data, "types.data", [100, 64, 512, 4])
    networks = [Network(torch, device, steps, batch, hidden, layers, torch.bfloat16, autocast=autocast) for autocast in (True, False)]
    times = [[], []]
    for turn in range(12):
        for i, network in enumerate(networks):
            seconds = network.step()[1]
            if turn >= 2:
                times[i].append(seconds)
    return {"types.parameters": statistics.median(times[1]) / statistics.median(times[0])}


def sentences(torch, device, data):
    """The batches of the file, padded, under autocast."""
    row = row_of(data, "sentences.epoch")
    if not row or row["measured"] is None:
        return {}
    hidden = 16 if data.get("tiny") else 650
    pairs = row["details"]["sizes"][:int(row["details"]["batches"])]
    network = Network(torch, device, 82, 64, hidden, 2, torch.bfloat16, autocast=True)
    for pair in pairs[:3]:
        network.step(*pair)
    begin = time.perf_counter()
    for at, pair in enumerate(pairs):
        network.enqueue(*pair)
        if at % 64 == 63:
            network.wait()
    network.wait()
    return {"sentences.epoch": time.perf_counter() - begin}


PARTS = {  # name: function, share of the time
    "libraries": (libraries, 4),
    "float32": (lambda torch, device, data: first(torch, device, data, "float32", torch.float32), 2),
    "bfloat16": (lambda torch, device, data: first(torch, device, data, "bfloat16", torch.bfloat16), 2),
    "sizes": (sizes, 2),
    "types": (types, 2),
    "sentences": (sentences, 3),
}
LEAST_SECONDS = 12
# How an anchor was measured, by the beginnings of ids.
ABOUT = {
    "first.": "the first training step in a new process, after the GPU was used once. `import torch` had loaded PyTorch's libraries before, and the module and "
              "its arrays were made; `tuned_step`: the median of later steps. float32 without tf32",
    "again.": "its first step in a new process: it keeps nothing on disk",
    "next.": "the first step of the next module in that process, which had been made before",
    "sizes.": "the same calls with the same ranges of sizes; medians",
    "types.": "all in bfloat16, of float32 parameters under autocast; timed in turns",
    "sentences.": "the same batches padded, under autocast, after three batches to warm up",
}


def run_part(name, device, path):
    import torch
    if device.startswith("cuda"):
        torch.cuda.set_device(device if ":" in device else "cuda:0")
    torch.backends.cudnn.allow_tf32 = False  # float32 is float32
    print(json.dumps({"torch": torch.__version__, "anchors": PARTS[name][0](torch, device, json.loads(path.read_text()))}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--device", help="default: that of the file")
    parser.add_argument("--seconds", type=float, default=100, help="of all parts together, at most (default: 100)")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    data = json.loads(options.file.read_text())
    device = options.device or ("cuda" if (data.get("machine") or {}).get("device") else "cpu")
    if options.part:
        return run_part(options.part, device, options.file)
    end = time.monotonic() + options.seconds
    data["anchors"], data["anchors_failed"], data["anchors_about"] = {}, {}, ABOUT
    names = list(PARTS)
    for at, name in enumerate(names):
        # Each may take its share of the time that is left, so that a slow one leaves the others theirs; but what `import torch` alone may take.
        left = end - time.monotonic()
        left = min(left, max(LEAST_SECONDS, left * PARTS[name][1] / sum(PARTS[other][1] for other in names[at:])))
        print(f"calls_torch: {name}: at most {max(left, 0):.0f} s", file=sys.stderr, flush=True)
        try:
            done = subprocess.run([sys.executable, os.path.abspath(__file__), str(options.file), "--device", device, "--part", name],
                                  capture_output=True, text=True, timeout=max(left, 1))
            if done.returncode:
                raise RuntimeError((done.stderr.strip().splitlines() or ["no message"])[-1])
            result = json.loads(done.stdout.strip().splitlines()[-1])
            data["torch"] = result["torch"]
            data["anchors"].update(result["anchors"])
        except subprocess.TimeoutExpired:
            data["anchors_failed"][name] = "no time was left"
        except (RuntimeError, ValueError, OSError, IndexError) as error:
            data["anchors_failed"][name] = str(error)
        if name in data["anchors_failed"]:
            print(f"calls_torch: {name}: {data['anchors_failed'][name]}", file=sys.stderr, flush=True)
        write(options.file, data)
    for name, value in data["anchors"].items():
        row = row_of(data, name)
        print(f"{row['what'] if row else name:92} {value:12.4g} {row['unit'] if row else ''}")
    return 1 if data["anchors_failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
