"""Compares runs of several ranks with one process: parallel.py TOLERANCE ONE OTHER... compares the losses of OTHER.jsonl with those of ONE.jsonl,
and the tensors of their checkpoints. Prints what differs by more than the tolerance; status 1 then."""

import array
import json
import struct
import sys


def losses(name):
    with open(name + ".jsonl") as log:
        events = [json.loads(line) for line in log]
    values = [(e["step"], e["update_loss"]) for e in events if e["event"] == "progress"]
    return values + [(e["step"], e["loss"]) for e in events if e["event"] == "validation"]


def tensors(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    found = {}
    for name, entry in header.items():
        if name != "__metadata__" and entry["dtype"] in ("F64", "F32"):
            first, end = entry["data_offsets"]
            found[name] = array.array("d" if entry["dtype"] == "F64" else "f", data[first:end])
    return found


def apart(a, b, scale):
    return max((abs(x - y) for x, y in zip(a, b)), default=0) / scale


def compare(one, other, tolerance):
    a, b = losses(one), losses(other)
    if [step for step, _ in a] != [step for step, _ in b] or not a:
        return f"{other} has updates {[s for s, _ in b]}, one rank {[s for s, _ in a]}"
    far = max(abs(x - y) / abs(x) for (_, x), (_, y) in zip(a, b))
    if not far <= tolerance:
        return f"a loss of {other} is {far:.3g} from that of one rank"
    x, y = tensors(one + ".safetensors"), tensors(other + ".safetensors")
    if x.keys() != y.keys():
        return f"the checkpoint of {other} has other tensors: {sorted(x.keys() ^ y.keys())}"
    for name in x:
        scale = max(max((abs(v) for v in x[name]), default=0), 1e-30)
        if len(x[name]) != len(y[name]) or not apart(x[name], y[name], scale) <= 1000 * tolerance:
            return f"{name} of {other} is {apart(x[name], y[name], scale):.3g} from that of one rank"
    return None


def main():
    tolerance, one = float(sys.argv[1]), sys.argv[2]
    complaints = [c for c in (compare(one, other, tolerance) for other in sys.argv[3:]) if c]
    for complaint in complaints:
        print(complaint)
    sys.exit(1 if complaints else 0)


main()
