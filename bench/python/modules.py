#!/usr/bin/env python3
"""What recurve's modules take, beside PyTorch's own in the same run.

    bench/python/modules.py [--device cpu|cuda] [--parts PART,...] [--data PTB] [--tool RECURVE] [--json FOLDER] [--seconds S]

Parts: overhead, headline, compiled, ragged, own, ppo, import. PTB is a folder with ptb.train.txt, for `ragged`. With --tool the headline's time by
`recurve bench` is measured, too. What is compared runs in turns; times are medians of turns. --json writes python-MACHINE.json there after each
part. Set RECURVE_LIBRARY_FOLDER and PYTHONPATH to measure a build that is not installed.
"""
import argparse
import ctypes
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import recurve
import recurve.nn
from recurve.nn import _operators


# ---- timing ----


class Clock:
    def __init__(self, device):
        self.wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)

    def seconds(self, run, count):
        """Of a call, in a row of so many; a GPU is waited for at the end alone."""
        self.wait()
        begin = time.perf_counter()
        for _ in range(count):
            run()
        self.wait()
        return (time.perf_counter() - begin) / count


    def enqueue_seconds(self, run, count):
        """The same of a call's host part: what it takes to enqueue a few calls on a GPU that has nothing to do."""
        few, taken = min(20, count), 0.0
        for _ in range(max(1, count // few)):
            self.wait()
            begin = time.perf_counter()
            for _ in range(few):
                run()
            taken += (time.perf_counter() - begin) / few
        return taken / max(1, count // few)


def settle(clock, runs):
    """Calls all of them until plans have been found and are used."""
    for _ in range(3):
        for run in runs.values():
            for _ in range(6):
                run()
        clock.wait()
        recurve.nn.wait_for_plans()


def in_turns(clock, runs, seconds, measure=None):
    """Medians by name. Each has turns of about a thirtieth of its share."""
    measure = measure or clock.seconds
    counts = {}
    for name, run in runs.items():
        one = min(clock.seconds(run, 1) for _ in range(3))
        counts[name] = max(1, min(2000, int(seconds / len(runs) / 30 / max(one, 1e-7))))
    found = {name: [] for name in runs}
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(found[next(iter(runs))]) < 5:
        for name, run in runs.items():
            found[name].append(measure(run, counts[name]))
    return {name: statistics.median(times) for name, times in found.items()}


# ---- parts: each yields rows ----


def row(part, name, what, unit, value, target=None, anchor=None, anchor_name=None, **details):
    return {"part": part, "id": f"{part}.{name}", "what": what, "unit": unit, "value": value, "target": target, "anchor": anchor,
            "anchor_name": anchor_name, "details": details}


class CCall:
    """The same forward call by rcv_run_forward: what a program in C pays, and the cost of ctypes, which is not part of it."""

    def __init__(self, module, x):
        raw = ctypes.CDLL(recurve._native.loader.path("librecurve.so"))  # without exceptions
        self.forward, self.empty = raw.rcv_run_forward, raw.rcv_version
        self.forward.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self.empty.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        api = recurve._native.api
        kind = _operators.array_type(x.dtype)
        device = "cpu" if x.device.type == "cpu" else f"cuda:{x.device.index or 0}"
        options = {"data": kind, "states": kind, "parameters": kind, "gradients": kind, "separate_parameters": True}
        from recurve.plans import make_plan

        net = _operators.shapes(module._net).pointer
        self.plan = make_plan(net, recurve._native.loader.context(), "measure", steps=x.shape[0], batch=x.shape[1], device=device.encode(),
                              dtype=_operators.products(x.dtype, x.is_cuda), threads=torch.get_num_threads(), no_vendor=True, **options)
        self.run = recurve._native.loader.make("rcv_run_new", self.plan, free="rcv_run_free", parents=(self.plan,))
        weights = module._weights()
        y, *final = _operators._forward(module._net, x, weights, [], [], [], [], [], _operators.products(x.dtype, x.is_cuda) | 1 << 8, 0)
        self.kept = [x, weights, y, final]
        tensors = (ctypes.c_void_p * len(weights))(*(w.data_ptr() for w in weights))
        ends = (ctypes.c_void_p * len(final))(*(f.data_ptr() for f in final))
        self.struct = api.Forward(tensors=tensors, x=x.data_ptr(), y=y.data_ptr(), final=ends, steps=x.shape[0], batch=x.shape[1])
        self.kept += [tensors, ends]
        self.at = ctypes.addressof(self.struct)
        self.pointer = self.run.pointer

    def __call__(self):
        if self.forward(self.pointer, self.at):
            raise RuntimeError("the C call failed")

    def nothing(self):
        self.empty(self.pointer, self.at)


def measure_overhead(arguments, clock):
    """Calls of a module of 8 units, beyond the same call in C, with one thread: that is faster for so few units. On a GPU: their host part."""
    hidden, threads = 8, torch.get_num_threads()
    torch.set_num_threads(1)
    for batch, steps in ((2, 5), (1, 1)):
        ours, theirs = recurve.nn.LSTM(hidden, hidden).to(arguments.device), torch.nn.LSTM(hidden, hidden).to(arguments.device)
        x = torch.randn(steps, batch, hidden, device=arguments.device)
        with torch.no_grad():
            c = CCall(ours, x)  # its plan is measured now, and the module takes it from the cache
            runs = {"module": lambda: ours(x), "torch": lambda: theirs(x), "c": c, "ctypes": c.nothing}
            settle(clock, runs)
            t = in_turns(clock, runs, arguments.seconds, clock.enqueue_seconds)
        beyond = t["module"] - t["c"] + t["ctypes"]
        yield row("overhead", f"inference.{steps}x{batch}", f"call of a module of {hidden} units, {steps} steps of {batch}, beyond the C call", "us",
                  1e6 * beyond, {"most": 10}, 1e6 * t["torch"], "torch.nn.LSTM, a whole call", module=1e6 * t["module"],
                  c=1e6 * (t["c"] - t["ctypes"]))
    x.requires_grad_()
    runs = {"module": lambda: ours(x)[0].sum().backward(), "torch": lambda: theirs(x)[0].sum().backward()}
    settle(clock, runs)
    t = in_turns(clock, runs, arguments.seconds)
    torch.set_num_threads(threads)
    yield row("overhead", "training", f"training step of the same module through autograd, {steps} steps of {batch}", "us", 1e6 * t["module"], None,
              1e6 * t["torch"], "torch.nn.LSTM")


def training_step(module, x, dy, **options):
    parameters = list(module.parameters())

    def step():
        y = module(x, **options)[0]
        torch.autograd.backward(y, dy)
        x.grad = None
        for p in parameters:
            p.grad = None

    return step


def shape_of(arguments):
    """T, B, H, layers and dtype of the headline; on a CPU a smaller one."""
    return (100, 64, 512, 4, torch.bfloat16) if arguments.device == "cuda" else (35, 20, 200, 2, torch.float32)


def measure_headline(arguments, clock):
    """A training step through autograd."""
    steps, batch, hidden, layers, dtype = shape_of(arguments)
    make = {"device": arguments.device, "dtype": dtype}
    ours, theirs = recurve.nn.LSTM(hidden, hidden, layers, **make), torch.nn.LSTM(hidden, hidden, layers, **make)
    x, dy = torch.randn(steps, batch, hidden, requires_grad=True, **make), torch.randn(steps, batch, hidden, **make)
    runs = {"ours": training_step(ours, x, dy), "torch": training_step(theirs, x, dy)}
    settle(clock, runs)
    t = in_turns(clock, runs, arguments.seconds)
    shape = f"{steps},{batch},{hidden},{hidden},{layers} {str(dtype)[6:]}"
    cuda = arguments.device == "cuda"
    yield row("headline", "training", f"LSTM training step, {shape}", "ms", 1e3 * t["ours"], {"least_times": 12} if cuda else None,
              1e3 * t["torch"], "torch.nn.LSTM as called")
    with torch.no_grad():
        runs = {"ours": lambda: ours(x), "torch": lambda: theirs(x)}
        settle(clock, runs)
        f = in_turns(clock, runs, arguments.seconds)
    yield row("headline", "forward", f"LSTM forward, {shape}", "ms", 1e3 * f["ours"], None, 1e3 * f["torch"], "torch.nn.LSTM as called")
    if arguments.tool:
        command = [arguments.tool, "bench", "--device", arguments.device, "--layers", layers, "--steps", steps, "--batch", batch, "--input", hidden, "--hidden",
                   hidden, "--dtype", str(dtype)[6:], "--pass", "train", "--no-torch", "--seconds", arguments.seconds]
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([*map(str, command), "--json", f"{folder}/bench.json"], capture_output=True, text=True)
            if done.returncode:
                raise RuntimeError(done.stderr)
            own = next(e["median"] for e in json.loads(Path(folder, "bench.json").read_text())["entries"] if e["name"] == "recurve")
        yield row("headline", "bench", f"the same training step by recurve bench, {shape}", "ms", 1e3 * own, {"most_slower": 1.10}, 1e3 * t["ours"],
                  "recurve.nn.LSTM through autograd (a row above)", command=" ".join(map(str, command)))


class Model(torch.nn.Module):
    """A network between two other layers."""

    def __init__(self, kind, hidden, layers):
        super().__init__()
        self.first, self.network, self.last = torch.nn.Linear(hidden, hidden), kind(hidden, hidden, layers), torch.nn.Linear(hidden, hidden)

    def forward(self, x):
        return (torch.tanh(self.last(self.network(torch.relu(self.first(x)))[0])),)


def measure_compiled(arguments, clock):
    """The network in a compiled model."""
    steps, batch, hidden, layers, dtype = shape_of(arguments)
    models = {"eager": Model(recurve.nn.LSTM, hidden, layers), "torch": Model(torch.nn.LSTM, hidden, layers)}
    models = {name: m.to(device=arguments.device, dtype=dtype) for name, m in models.items()}
    x, dy = (torch.randn(steps, batch, hidden, device=arguments.device, dtype=dtype) for _ in range(2))
    x.requires_grad_()
    models["compiled"] = torch.compile(models["eager"], fullgraph=True)
    models["graphs"] = torch.compile(models["eager"], fullgraph=True, mode="reduce-overhead")
    runs = {name: training_step(m, x, dy) for name, m in models.items()}
    settle(clock, runs)
    t = in_turns(clock, runs, arguments.seconds)
    try:
        torch.compile(Model(torch.nn.LSTM, hidden, layers).to(x.device, x.dtype), fullgraph=True)(x)
        refused = "compiled"
    except Exception as error:  # noqa: BLE001: whatever Dynamo says
        refused = type(error).__name__
    yield row("compiled", "training", "training step of a model with our LSTM in torch.compile(fullgraph=True)", "ms", 1e3 * t["compiled"],
              {"most_slower": 1.0}, 1e3 * t["eager"], "the same model in eager mode", torch_eager=1e3 * t["torch"], torch_lstm_with_fullgraph=refused)
    yield row("compiled", "graphs", "the same with mode='reduce-overhead', which captures CUDA graphs", "ms", 1e3 * t["graphs"], {"most_slower": 1.0},
              1e3 * t["eager"], "the same model in eager mode", torch_eager=1e3 * t["torch"])


def sentences(arguments, batch, count):
    """Lengths of batches of sentences in their order."""
    lines = (Path(arguments.data) / "ptb.train.txt").read_text().splitlines()
    lengths = [len(line.split()) + 1 for line in lines]
    return [lengths[i * batch : (i + 1) * batch] for i in range(count)]


def measure_ragged(arguments, clock):
    """Batches of sentences, packed."""
    cuda = arguments.device == "cuda"
    for hidden, dtype in ((650, torch.bfloat16), (650, torch.float32), (200, torch.float32)) if cuda else ((200, torch.float32),):
        yield from compare_sentences(arguments, clock, hidden, dtype)


def compare_sentences(arguments, clock, hidden, dtype):
    batch, layers = 64, 2
    batches = sentences(arguments, batch, 24 if arguments.device == "cuda" else 8)
    make = {"device": arguments.device, "dtype": dtype}
    ours, theirs = recurve.nn.LSTM(hidden, hidden, layers, **make), torch.nn.LSTM(hidden, hidden, layers, **make)
    packed, padded = [], []
    for lengths in batches:
        x = torch.randn(max(lengths), batch, hidden, **make)
        packed.append(torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor(lengths), enforce_sorted=False))
        padded.append((x, torch.tensor(lengths)))

    def epoch_packed(module):
        def run():
            for p in packed:
                module(p)[0].data.sum().backward()
            module.zero_grad()

        return run

    def epoch_lengths():
        for x, lengths in padded:
            ours(x, lengths=lengths)[0].sum().backward()
        ours.zero_grad()

    runs = {"packed": epoch_packed(ours), "lengths": epoch_lengths, "torch": epoch_packed(theirs)}
    settle(clock, runs)
    t = in_turns(clock, runs, arguments.seconds)
    name = str(dtype)[6:]
    what = f"training step of a batch of {batch} PTB sentences, {layers} x {hidden} {name}"
    n = len(batches)
    for kind, how in (("packed", "PackedSequence"), ("lengths", "padded with lengths=")):
        yield row("ragged", f"{kind}.{hidden}.{name}", f"{what}, {how}", "ms", 1e3 * t[kind] / n, {"least_times": 5}, 1e3 * t["torch"] / n,
                  "torch.nn.LSTM, packed")


class NormalisedLayer(torch.nn.Module):
    """A layer-normalised LSTM as one writes it: a loop over time."""

    def __init__(self, size, step):
        super().__init__()
        self.w, self.u = torch.nn.Linear(size, 4 * size), torch.nn.Linear(size, 4 * size, bias=False)
        self.norms = torch.nn.ModuleList(torch.nn.LayerNorm(size, bias=False) for _ in range(8))
        self.norm_c = torch.nn.LayerNorm(size)
        self.step = step

    def forward(self, x):
        h = c = x.new_zeros(x.shape[1], x.shape[2])
        outputs = []
        wx = self.w(x)
        for t in range(x.shape[0]):
            h, c = self.step(self, wx[t], h, c)
            outputs.append(h)
        return torch.stack(outputs)


def normalised_step(layer, wx, h, c):
    gates = [n(a) + m(b) for n, m, a, b in zip(layer.norms[:4], layer.norms[4:], wx.chunk(4, -1), layer.u(h).chunk(4, -1))]
    i, f, g, o = torch.sigmoid(gates[0]), torch.sigmoid(gates[1]), torch.tanh(gates[2]), torch.sigmoid(gates[3])
    c = f * c + i * g
    return o * torch.tanh(layer.norm_c(c)), c


def measure_own(arguments, clock):
    """An own cell against a loop over time."""
    steps, batch, hidden, layers, dtype = shape_of(arguments)
    make = {"device": arguments.device, "dtype": dtype}
    ours = recurve.nn.Cell("lstm_layernorm", hidden, hidden, layers, **make)
    loop = torch.nn.Sequential(*(NormalisedLayer(hidden, normalised_step) for _ in range(layers))).to(**make)
    compiled_step = torch.compile(normalised_step)
    compiled = torch.nn.Sequential(*(NormalisedLayer(hidden, compiled_step) for _ in range(layers))).to(**make)
    x, dy = torch.randn(steps, batch, hidden, requires_grad=True, **make), torch.randn(steps, batch, hidden, **make)
    shape = f"{steps},{batch},{hidden},{hidden},{layers} {str(dtype)[6:]}"

    class Wrapped(torch.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return (self.inner(x),)

    for kind in ("forward", "training"):
        if kind == "training":
            runs = {"ours": training_step(ours, x, dy), "loop": training_step(Wrapped(loop), x, dy), "compiled": training_step(Wrapped(compiled), x, dy)}
        else:
            runs = {"ours": lambda: ours(x), "loop": lambda: loop(x), "compiled": lambda: compiled(x)}
        with torch.set_grad_enabled(kind == "training"):
            settle(clock, runs)
            t = in_turns(clock, runs, arguments.seconds)
        yield row("own", kind, f"layer-normalised LSTM, {kind}, {shape}", "ms", 1e3 * t["ours"], {"least_times": 20}, 1e3 * t["loop"], "a loop in PyTorch")
        yield row("own", f"{kind}.compiled", f"layer-normalised LSTM, {kind}, {shape}", "ms", 1e3 * t["ours"], {"least_times": 3}, 1e3 * t["compiled"],
                  "the loop with its step compiled by torch.compile")


def measure_ppo(arguments, clock):
    """The recurrent part of an update of recurrent PPO: episodes end at any step."""
    steps, batch, hidden = 128, 8, 256
    ours, theirs = recurve.nn.LSTM(hidden, hidden).to(arguments.device), torch.nn.LSTM(hidden, hidden).to(arguments.device)
    x = torch.randn(steps, batch, hidden, device=arguments.device)
    resets = torch.rand(steps, batch, device=arguments.device) < 1 / 50
    dy = torch.randn(steps, batch, hidden, device=arguments.device)
    keep = (~resets).float().unsqueeze(-1)

    def loop():
        h = c = x.new_zeros(1, batch, hidden)
        outputs = []
        for t in range(steps):
            y, (h, c) = theirs(x[t : t + 1], (h * keep[t], c * keep[t]))
            outputs.append(y)
        torch.autograd.backward(torch.cat(outputs), dy)
        theirs.zero_grad()

    def whole():
        torch.autograd.backward(ours(x, resets=resets)[0], dy)
        ours.zero_grad()

    runs = {"ours": whole, "loop": loop}
    settle(clock, runs)
    t = in_turns(clock, runs, 2 * arguments.seconds)
    yield row("ppo", "step", f"recurrent PPO, forward and backward over {steps} steps of {batch} with resets, {hidden} units", "ms", 1e3 * t["ours"],
              {"least_times": 15} if arguments.device == "cpu" else None, 1e3 * t["loop"], "torch.nn.LSTM step by step, states masked")


def measure_import(arguments, clock):
    """Seconds of `import recurve` and `import recurve.nn` after torch."""
    text = ("import time, torch; b = time.perf_counter(); import recurve; m = time.perf_counter(); import recurve.nn; e = time.perf_counter(); "
            "print(m - b, e - m)")
    found = []
    for _ in range(7):
        out = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True).stdout.split()
        found.append([float(v) for v in out])
    yield row("import", "recurve", "import recurve, after torch", "ms", 1e3 * statistics.median(f[0] for f in found), {"most": 60})
    yield row("import", "nn", "import recurve.nn, after torch and recurve", "ms", 1e3 * statistics.median(f[1] for f in found), {"most": 60})


PARTS = {name[len("measure_") :]: value for name, value in list(globals().items()) if name.startswith("measure_")}


# ---- the file ----


def ratio(r):
    return r["anchor"] / r["value"] if r["anchor"] else None


def reached(r):
    target = r["target"] or {}
    if "most" in target:
        return r["value"] <= target["most"]
    if "least_times" in target:
        return ratio(r) >= target["least_times"]
    if "most_slower" in target:  # ours and what it is compared with; `bench` rows have ours as the anchor
        slower = r["anchor"] / r["value"] if r["id"].endswith(".bench") else r["value"] / r["anchor"]
        return slower <= target["most_slower"]
    return None


def machine(arguments):
    names = [line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")] if os.path.exists("/proc/cpuinfo") else []
    gpu = torch.cuda.get_device_name() if arguments.device == "cuda" else None
    return {"device": gpu, "cpu": names[0] if names else platform.processor(), "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            "cores": os.cpu_count(), "threads": torch.get_num_threads(), "architecture": platform.machine()}


def write(arguments, rows, begin, status):
    name = (torch.cuda.get_device_name() if arguments.device == "cuda" else platform.machine()).replace(" ", "-")
    path = Path(arguments.json) / f"python-{name}.json"
    commit = subprocess.run(["git", "rev-parse", "--short=7", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent).stdout.strip()
    data = {"command": "bench/python/modules.py " + " ".join(arguments.shown), "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            "version": recurve.__version__, "commit": os.environ.get("RECURVE_COMMIT", commit), "torch": torch.__version__,
            "python": platform.python_version(), "seconds": round(time.perf_counter() - begin, 1), "failed": status, "machine": machine(arguments)}
    members = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in data.items()]
    text = ",\n".join(json.dumps(r) for r in rows)
    beside = path.with_suffix(".json.new")
    beside.write_text("{\n" + ",\n".join([*members, f'"rows": [\n{text}\n]']) + "\n}\n")
    beside.replace(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--data")
    parser.add_argument("--tool")
    parser.add_argument("--json")
    parser.add_argument("--seconds", type=float, default=3.0, help="of measuring, for each comparison")
    arguments = parser.parse_args()
    arguments.shown = [f"--device {arguments.device}"] + (["--data PTB"] if arguments.data else []) + (["--tool RECURVE"] if arguments.tool else [])
    begin, rows, failed = time.perf_counter(), [], {}
    for part in arguments.parts.split(","):
        if part == "ragged" and not arguments.data:
            print("ragged: left out, since there is no --data", file=sys.stderr)
            continue
        try:
            for r in PARTS[part](arguments, Clock(arguments.device)):
                rows.append(r)
                times = f", {ratio(r):.3g} times as fast as {r['anchor_name']}: {r['anchor']:.4g} {r['unit']}" if r["anchor"] else ""
                print(f"{r['what']}: {r['value']:.4g} {r['unit']}{times}; target {r['target']}: {reached(r)} {r['details']}", flush=True)
        except Exception as error:  # noqa: BLE001: the other parts are measured all the same
            failed[part] = f"{type(error).__name__}: {error}"
            print(f"{part}: {failed[part]}", file=sys.stderr, flush=True)
        if arguments.json:
            write(arguments, rows, begin, failed)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
