#!/usr/bin/env bash
# docs/FORMATS.md names what files of real runs contain: every key of metadata, every kind of tensor, every event and every key of a log.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
python3 "$SOURCE_DIR/examples/waves.py" waves.csv new.csv --sequences 60 || exit 1
for i in $(seq 20); do cat "$SOURCE_DIR/LICENSE"; done >book.txt
train() {
    "$RECURVE" train "$@" --hidden 8 --effort estimate --steps 12 --log-every 3 --validate-every 6 >said 2>&1 </dev/null || { cat said; exit 1; }
}
train waves.csv --target label --valid 20% --test 20% --output classes.safetensors
train waves.csv --target x --features x --horizon 2 --normalise --valid 20% --output forecast.safetensors
train book.txt --valid 20% --optimiser asgd --nonmono 1 --output bytes.safetensors
train book.txt --level word --valid 20% --test 10% --output words.safetensors
train book.txt --level character --output characters.safetensors
"$RECURVE" train --resume words.safetensors --steps 14 >said 2>&1 || { cat said; exit 1; }
"$RECURVE" init network.safetensors --cell gru --input 3 --hidden 4 --layers 2 --bidirectional || exit 1
"$RECURVE" export bytes.safetensors exported.safetensors >/dev/null || exit 1

python3 - "$SOURCE_DIR/docs/FORMATS.md" *.safetensors *.jsonl <<'PYTHON'
import json, re, struct, sys
page, *files = sys.argv[1:]
named = set(re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", open(page).read(), flags=re.MULTILINE | re.DOTALL)))
wrong = []


def need(what, name, file):
    if name not in named:
        wrong.append(f"docs/FORMATS.md does not name the {what} `{name}` of {file}")


def kind_of(tensor):
    tensor = re.sub(r"^(first|second|average|state)\..*", r"\1.NAME", tensor)
    return re.sub(r"(^|rnn\.)(weight|bias)_(ih|hh)_l\d+(_reverse)?$", r"rnn.\2_\3_l0", tensor)


events = set()
for file in files:
    if file.endswith(".jsonl"):
        for line in map(json.loads, open(file)):
            events.add(line["event"])
            need("event", line.pop("event"), file)
            for key in [*line, *line.get("metrics", {})]:
                need("key", key, file)
        continue
    with open(file, "rb") as data:
        header = json.loads(data.read(struct.unpack("<Q", data.read(8))[0]))
    for key in header["__metadata__"]:
        need("metadata", key, file)
    for name in ("recurve.learner", "recurve.data"):
        keys = json.loads(header["__metadata__"].get(name, "{}"))
        for key in [*keys, *(inner for value in keys.values() if isinstance(value, dict) for inner in value)]:
            need(f"key of {name}", key, file)
    for tensor in header:
        if tensor != "__metadata__":
            need("tensor", kind_of(tensor), file)
missed = {"start", "resume", "progress", "validation", "checkpoint", "end"} - events
if missed:
    wrong.append(f"the runs have no events {missed}")
print("\n".join(sorted(set(wrong))))
sys.exit(bool(wrong))
PYTHON
