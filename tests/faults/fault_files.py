"""Files for faults.py and kills.py: small inputs, and what of an output must not change from run to run."""
import json
import os
import random
import struct

# Of a log: times, and the bytes of a run, which may keep less where memory lacks.
TIMES = {"seconds", "tokens_per_second", "date", "expected", "bytes"}


def read_tensors(content):
    """(header, data) of safetensors, or None where it is not complete."""
    if len(content) < 8:
        return None
    length = struct.unpack("<Q", content[:8])[0]
    try:
        header = json.loads(content[8 : 8 + length])
    except ValueError:
        return None
    data = content[8 + length :]
    end = max([0] + [t["data_offsets"][1] for name, t in header.items() if name != "__metadata__"])
    return (header, data) if end == len(data) else None


def write_tensors(path, tensors):
    """tensors: {name: (dtype, shape, bytes)}"""
    header, data = {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def normal(path, content):
    """The content without what is other in every run."""
    if path.endswith(".safetensors"):
        read = read_tensors(content)
        if read is None:
            return None
        header, data = read
        metadata = dict(header.pop("__metadata__", {}))
        training = json.loads(metadata.get("recurve.training", "{}"))
        training.pop("seconds", None)
        training.pop("validation_seconds", None)
        metadata["recurve.training"] = training
        # The name of a run is random, and a checksum follows from all.
        for key in [key for key in metadata if "checksum" in key or key == "recurve.run"]:
            del metadata[key]
        return metadata, header, data
    if path.endswith(".jsonl"):
        lines = []
        for line in content.splitlines():
            object = json.loads(line)
            lines.append({key: value for key, value in object.items() if key not in TIMES})
        return lines
    return content


def complete(path, content):
    """Not cut short, and readable."""
    try:
        if path.endswith(".safetensors"):
            return normal(path, content) is not None
        if path.endswith(".jsonl"):
            return not content or (normal(path, content) is not None and content.endswith(b"\n"))
        if path.endswith(".json"):
            return isinstance(json.loads(content), (dict, list))
    except ValueError:
        return False
    if path.endswith(".html"):
        return content.rstrip().endswith(b"</html>")
    return len(content) > 0


def make_inputs(folder):
    choose = random.Random(1)
    words = "the cat dog mat log sat lay on a ran saw and then big red".split()
    for name, count in (("text", 60), ("valid", 12)):
        with open(os.path.join(folder, name), "w") as file:
            for _ in range(count):
                print(*choose.choices(words, k=choose.randrange(2, 9)), file=file)
    with open(os.path.join(folder, "examples"), "w") as file:
        for _ in range(30):
            values = [round(choose.uniform(-1, 1), 3) for _ in range(choose.randrange(1, 7))]
            print('{"x": %s, "y": "%s"}' % (values, "up" if values[-1] > values[0] else "down"), file=file)
    with open(os.path.join(os.environ["SOURCE_DIR"], "cells", "gru.cell")) as file:
        own = file.read()
    with open(os.path.join(folder, "own.cell"), "w") as file:
        file.write(own)
    floats = lambda count: struct.pack("<%df" % count, *(choose.uniform(-1, 1) for _ in range(count)))
    write_tensors(os.path.join(folder, "x.safetensors"),
                  {"x": ("F32", [3, 2, 3], floats(18)), "dy": ("F32", [3, 2, 4], floats(24))})
