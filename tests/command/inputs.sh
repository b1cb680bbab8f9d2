#!/usr/bin/env bash
# Files from elsewhere: what a crafted one may not do to the tool, to other files and to the terminal.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
export HOME=$folder/home XDG_CACHE_HOME=$folder/home/caches
mkdir home
failures=0

complain() {
    echo "FAILED: $*"
    head -c 2000 out err
    failures=$((failures + 1))
}

# good ARGUMENTS...: exit status 0
good() { timeout -k 5 60 "$RECURVE" "$@" >out 2>err || complain "recurve $*"; }

# bad FRAGMENT ARGUMENTS...: exit status 1, one sentence with the fragment, no control character in it
bad() {
    local fragment=$1
    shift
    timeout -k 5 60 "$RECURVE" "$@" >out 2>err
    [ $? = 1 ] || complain "recurve $* does not give 1"
    [ "$(wc -l <err)" = 1 ] && grep -qF -- "$fragment" err || complain "recurve $* does not say '$fragment'"
    LC_ALL=C grep -q '[^ -~]' err && complain "recurve $* says a control character"
}

for i in $(seq 200); do echo "line $i of a text that has words"; done >text
small=(--level word --hidden 4 --batch 2 --length 5 --schedule naive --threads 1)
good train text "${small[@]}" --steps 3 --output model.safetensors

# ---- nothing has no end ----
# Under a limit of memory, so that what takes in all of it fails at once. The sanitizers need more addresses than there are.
if ! grep -q fsanitize <<<"$CFLAGS"; then ulimit -v 4000000; fi
bad "a pipe or a device" eval /dev/zero text
bad "a pipe or a device" eval model.safetensors /dev/zero
bad "a pipe or a device" generate /dev/zero
bad "a pipe or a device" run model.safetensors --input /dev/zero --output out.safetensors
bad "bytes allowed" cell /dev/zero
bad "a pipe or a device" train /dev/zero --output other.safetensors
bad "bytes allowed" train text --level word --vocabulary /dev/zero --output other.safetensors
bad "not a regular file" report /dev/zero --output page.html
bad "bytes allowed" generate model.safetensors --prompt - </dev/zero
timeout -k 5 60 "$RECURVE" train text --config /dev/zero --output other.safetensors >out 2>err
[ $? = 2 ] && grep -q "1048576 bytes allowed" err || complain "a file of settings without an end"
mkfifo pipe # no process writes to it
bad "a pipe or a device" eval pipe text
bad "a pipe or a device" eval model.safetensors pipe
[ ! -e other.safetensors ] && [ ! -e other.jsonl ] || complain "a run that was refused has written"

# ---- checkpoints ----
# craft KEY VALUE: crafted.safetensors with this setting, and a checksum that is right
craft() {
    python3 - "$1" "$2" <<'END' || complain "crafting"
import json, struct, sys
raw = open("model.safetensors", "rb").read()
(length,) = struct.unpack("<Q", raw[:8])
header, data = json.loads(raw[8 : 8 + length]), raw[8 + length :]
settings = json.loads(header["__metadata__"]["recurve.settings"])
assert sys.argv[1] in settings, settings
settings[sys.argv[1]] = sys.argv[2]
header["__metadata__"]["recurve.settings"] = json.dumps(settings)
header["__metadata__"]["recurve.format"] = "1"  # of files that have no sum
header["__metadata__"].pop("recurve.checksum", None)
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
open("crafted.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data)
END
}
echo 'alias ls=ls' >home/.bashrc
cp home/.bashrc before
for key in log wisdom; do
    craft $key "$folder/home/.bashrc"
    good train --resume crafted.safetensors --steps 5 --output resumed.safetensors
    cmp -s home/.bashrc before || complain "a checkpoint's $key was written"
    [ -s resumed.jsonl ] || complain "the log does not lie beside the model"
    grep -qF "the data is the one named in crafted.safetensors: text" err || complain "the data is not named"
    rm -f resumed*
done
craft cache "$folder/home/chosen"
rm -f text.recurve-tokens
good train --resume crafted.safetensors --steps 5 --output resumed.safetensors
[ ! -e home/chosen ] || complain "a checkpoint's cache was written"
[ ! -e text.recurve-tokens ] || complain "tokens were written beside a text that a checkpoint names"
[ -n "$(ls home/caches/recurve)" ] || complain "the tokens are not in the user's folder"
rm -rf resumed* home/caches
good train text --resume crafted.safetensors --steps 5 --output resumed.safetensors --log own.jsonl
[ -s own.jsonl ] && [ -e text.recurve-tokens ] || complain "the command line's paths are not taken"
rm -f resumed*
craft log $'a\e]0;b\a'
timeout -k 5 60 "$RECURVE" train --resume crafted.safetensors --steps 5 --output resumed.safetensors >out 2>err
[ $? = 2 ] && grep -qF 'without control characters' err && ! grep -q $'\e' err || complain "a path with controls"
python3 - <<'END' || complain "flipping"
raw = bytearray(open("model.safetensors", "rb").read())
raw[-100] ^= 64
open("flipped.safetensors", "wb").write(raw)
END
bad "it is damaged" eval flipped.safetensors text
bad "it is damaged" generate flipped.safetensors
timeout -k 5 60 "$RECURVE" train --resume flipped.safetensors --output resumed.safetensors >out 2>err
[ $? != 0 ] && grep -q "it is damaged" err || complain "a run goes on from a damaged checkpoint"

# ---- caches ----
chmod 666 text.recurve-tokens
number=$(stat -c %i text.recurve-tokens)
good train text "${small[@]}" --steps 1 --output again.safetensors
grep -qF "is not used: others than its owner can write it" err || complain "a cache that all can write is believed"
[ "$(stat -c %i text.recurve-tokens)" != "$number" ] || complain "it was not made again"
umask 000
rm -f text.recurve-tokens
good data stats text --level word --quiet
[ "$(stat -c %a text.recurve-tokens)" = 644 ] || complain "a new cache can be written by others"
umask 022
rm -f text.recurve-tokens
mkfifo text.recurve-tokens
good data stats text --level word --quiet

# ---- texts that change ----
# cut or edited while a run reads them: a sentence, and the checkpoint before it stays
for change in 'truncate -s 1000 bytes' 'printf XX | dd of=bytes bs=1 seek=5000 conv=notrunc status=none'; do
    head -c 100000 /dev/zero | tr '\0' 'a' >bytes
    timeout 100 "$RECURVE" train bytes --hidden 4 --batch 2 --length 5 --schedule naive --threads 1 --checkpoint-every 10 \
        --seconds 60 --output changing.safetensors >out 2>err &
    run=$!
    for _ in $(seq 300); do [ -e changing.safetensors ] && break || sleep 0.1; done
    sh -c "$change"
    wait $run
    status=$?
    [ $status = 1 ] || complain "a text changed by '$change': status $status"
    grep -qE "bytes (changed|became shorter) while it was read" err || complain "'$change' is not said"
    good eval changing.safetensors text
    rm -f changing*
done

# ---- terminals ----
name=$(printf 'no\033[31m\302\233\233such')
bad 'no\x1b[31m\u{9b}\x9bsuch' eval "$name" text
printf 'cell a(x) {\n \033]0;title\007\n}\n' >bad.cell
timeout -k 5 60 "$RECURVE" cell ./bad.cell >out 2>err && complain "a cell of controls"
LC_ALL=C grep -q $'[\e\a]' err && complain "a message shows controls of a cell"
printf '{"text": "a", "y": "\302\233\\u001b"}\n{"text": 1, "y": "b"}\n' >examples
timeout -k 5 60 "$RECURVE" data stats examples --kind classes >out 2>err && complain "bad examples are read"
printf '{"event":"start"}\n\033]0;x\007{\n{}\n' >bad.jsonl
bad 'bad.jsonl:2' report bad.jsonl --output page.html
# A model that writes nothing but controls: to a terminal not one gets through, to a pipe all do.
printf '\033[31m\233\302\205\007%.0s' $(seq 400) >controls
good train controls --hidden 16 --batch 4 --length 8 --schedule naive --threads 1 --steps 40 --output controls.safetensors
good generate controls.safetensors --tokens 200
LC_ALL=C grep -q $'\e' out || complain "a pipe gets other bytes than the model writes"
python3 - "$RECURVE" <<'END' || complain "controls reach a terminal"
import os, pty, sys
heard = []
def read(fd):
    data = os.read(fd, 4096)
    heard.append(data)
    return data
pty.spawn([sys.argv[1], "generate", "controls.safetensors", "--tokens", "200"], read)
text = b"".join(heard)
assert b"\\x1b" in text and len(text) > 200, text
text = text.decode("utf-8")
assert not any(c < " " and c not in "\r\n\t" or "\x7f" <= c <= "\x9f" for c in text), text
END

[ $failures = 0 ] && echo "all good"
exit $((failures > 0))
