"""Compares `recurve run` and `recurve init` with PyTorch: torch_compare.py RECURVE FOLDER

Every number in double to 1e-10, forward and every gradient; initial parameters bit for bit. Exit status 77: no torch.
"""
import itertools
import json
import os
import struct
import subprocess
import sys

try:
    import numpy
    import torch
    from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
except ImportError:
    print("skipped: this python has no torch")
    sys.exit(77)

TOLERANCE = 1e-10
TYPES = {"F64": "<f8", "F32": "<f4", "I64": "<i8", "U8": "|u1"}
CELLS = {
    "lstm": lambda **options: torch.nn.LSTM(**options),
    "gru": lambda **options: torch.nn.GRU(**options),
    "rnn_tanh": lambda **options: torch.nn.RNN(nonlinearity="tanh", **options),
    "rnn_relu": lambda **options: torch.nn.RNN(nonlinearity="relu", **options),
    "lstm_proj": lambda **options: torch.nn.LSTM(proj_size=3, **options),
}
SIZES = [(3, 5), (6, 4), (4, 4)]  # input, hidden
STEPS, BATCH = 5, 3


def write_tensors(path, tensors):
    header, offset, blobs = {}, 0, []
    for name, tensor in tensors.items():
        array = tensor.detach().numpy() if isinstance(tensor, torch.Tensor) else tensor
        kind = next(kind for kind, code in TYPES.items() if numpy.dtype(code) == array.dtype)
        blob = numpy.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def read_tensors(path):
    with open(path, "rb") as file:
        content = file.read()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        start, end = entry["data_offsets"]
        data = content[8 + length + start : 8 + length + end]
        array = numpy.frombuffer(data, TYPES[entry["dtype"]]).reshape(entry["shape"])
        tensors[name] = torch.from_numpy(array.copy())
    return tensors


class Comparison:
    def __init__(self, recurve, folder):
        self.recurve = recurve
        self.folder = folder
        self.compared = 0
        self.worst = 0.0
        self.failures = []
        self.verbs = set()

    def path(self, name):
        return os.path.join(self.folder, name)

    def call(self, label, *arguments):
        # Under a sanitizer the search for leaks takes seconds at the end of a process: once for each verb will do.
        environment = dict(os.environ)
        if arguments[0] in self.verbs:
            environment["ASAN_OPTIONS"] = environment.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
        self.verbs.add(arguments[0])
        result = subprocess.run([self.recurve, *arguments], capture_output=True, text=True, env=environment)
        if result.returncode != 0:
            self.failures.append(f"{label}: status {result.returncode}: {result.stderr.strip()}")
        return result.returncode == 0

    def equal(self, label, ours, name, theirs):
        self.compared += 1
        if name not in ours:
            self.failures.append(f"{label}: {name} is missing")
        elif tuple(ours[name].shape) != tuple(theirs.shape):
            self.failures.append(f"{label}: {name} is {tuple(ours[name].shape)}, torch has {tuple(theirs.shape)}")
        else:
            error = (ours[name] - theirs).abs().max().item()
            self.worst = max(self.worst, error)
            if not error <= TOLERANCE:
                self.failures.append(f"{label}: {name} differs by {error:g}")


def make_module(cell, index, layers, bidirectional, bias, dtype):
    inputs, hidden = SIZES[index % len(SIZES)]
    return CELLS[cell](
        input_size=inputs, hidden_size=hidden, num_layers=layers, bidirectional=bidirectional, bias=bias, dtype=dtype
    )


def run_torch(module, x, states, lengths):
    """y, final states; the states are a list of one or two tensors."""
    hx = tuple(states) if len(states) == 2 else states[0]
    if lengths is None:
        y, final = module(x, hx)
    else:
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        packed_y, final = module(packed, hx)
        y, _ = pad_packed_sequence(packed_y, total_length=x.shape[0])
    return y, list(final) if len(states) == 2 else [final]


def compare_one(comparison, cell, index, layers, bidirectional, bias, given, ragged, prefix=""):
    label = f"{cell} layers={layers} bidirectional={bidirectional} bias={bias} given={given} ragged={ragged}"
    torch.manual_seed(1000 + index)
    module = make_module(cell, index, layers, bidirectional, bias, torch.float64)
    lengths = torch.tensor([2, STEPS, 3]) if ragged else None
    x = torch.randn(STEPS, BATCH, module.input_size, dtype=torch.float64, requires_grad=True)
    names = ["h", "c"] if cell.startswith("lstm") else ["h"]
    blocks = layers * (2 if bidirectional else 1)
    sizes = [module.proj_size or module.hidden_size, module.hidden_size]
    make = torch.randn if given else torch.zeros
    states = [make(blocks, BATCH, size, dtype=torch.float64).requires_grad_() for _, size in zip(names, sizes)]
    y, final = run_torch(module, x, states, lengths)
    dy = torch.randn_like(y)
    dfinal = [torch.randn_like(state) for state in final]
    loss = (y * dy).sum() + sum((state * weight).sum() for state, weight in zip(final, dfinal))
    loss.backward()

    given_tensors = {"x": x, "dy": dy}
    if ragged:
        given_tensors["lengths"] = lengths
    for name, state, weight in zip(names, states, dfinal):
        given_tensors[name + ".final.grad"] = weight
        if given:
            given_tensors[name] = state
    write_tensors(comparison.path("in.safetensors"), given_tensors)
    write_tensors(comparison.path("model.safetensors"), {prefix + k: v for k, v in module.state_dict().items()})
    arguments = ["run", comparison.path("model.safetensors"), "--cell", cell, "--dtype", "float64", "--grad"]
    arguments += ["--input", comparison.path("in.safetensors"), "--output", comparison.path("out.safetensors")]
    if not comparison.call(label, *arguments):
        return
    ours = read_tensors(comparison.path("out.safetensors"))
    comparison.equal(label, ours, "y", y)
    comparison.equal(label, ours, "dx", x.grad)
    for name, state, end in zip(names, states, final):
        comparison.equal(label, ours, name + ".final", end)
        comparison.equal(label, ours, name + ".grad", state.grad)
    for name, parameter in module.named_parameters():
        comparison.equal(label, ours, "grad." + name, parameter.grad)
    known = 2 + 2 * len(names) + len(list(module.named_parameters()))
    if len(ours) != known:
        comparison.failures.append(f"{label}: {len(ours)} tensors came out, not {known}")


def compare_initial(comparison, cell, index, layers, bidirectional, bias, dtype):
    label = f"init {cell} layers={layers} bidirectional={bidirectional} bias={bias} {dtype}"
    seed = 7 + 13 * index
    torch.manual_seed(seed)
    module = make_module(cell, index, layers, bidirectional, bias, dtype)
    path = comparison.path("init.safetensors")
    arguments = ["init", path, "--overwrite", "--cell", cell, "--seed", str(seed), "--layers", str(layers)]
    arguments += ["--input", str(module.input_size), "--hidden", str(module.hidden_size)]
    arguments += ["--dtype", "float64" if dtype == torch.float64 else "float32"]
    arguments += ["--bidirectional"] * bidirectional + ["--no-bias"] * (not bias)
    arguments += ["--size", f"proj={module.proj_size}"] * (module.proj_size > 0)
    if not comparison.call(label, *arguments):
        return
    ours = read_tensors(path)
    theirs = dict(module.named_parameters())
    if list(ours) != list(theirs):
        comparison.failures.append(f"{label}: parameters {list(ours)}, torch has {list(theirs)}")
        return
    for name, parameter in theirs.items():
        comparison.compared += 1
        if ours[name].dtype != parameter.dtype or not torch.equal(ours[name], parameter):
            comparison.failures.append(f"{label}: {name} is not torch's")


def main():
    comparison = Comparison(sys.argv[1], sys.argv[2])
    torch.set_num_threads(1)
    index = 0
    for cell in CELLS:
        for options in itertools.product([1, 2, 3], [False, True], [True, False], [False, True], [False, True]):
            compare_one(comparison, cell, index, *options, prefix="encoder.rnn." if index % 16 == 5 else "")
            index += 1
        for options in itertools.product([1, 3], [False, True], [True, False], [torch.float32, torch.float64]):
            compare_initial(comparison, cell, index, *options)
            index += 1
    for failure in comparison.failures[:40]:
        print(failure)
    print(f"{comparison.compared} tensors compared, largest difference {comparison.worst:.2g}, "
          f"{len(comparison.failures)} failures")
    sys.exit(1 if comparison.failures or comparison.compared < 3000 else 0)


main()
