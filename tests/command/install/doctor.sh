#!/usr/bin/env bash
# recurve doctor: what it finds, what is missing, and what it calls broken.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
complain() {
    echo "FAILED: $*"
    sed 's/^/    stdout: /' out | head -60
    sed 's/^/    stderr: /' err | head -5
    failures=$((failures + 1))
}

. "$SOURCE_DIR/tests/support/leaks.bash"

# doctor STATUS [OPTIONS...]: gives that status and says nothing on stderr
doctor() {
    local wanted=$1
    shift
    leakless "$RECURVE" doctor "$@" >out 2>err </dev/null
    local status=$?
    [ $status = "$wanted" ] || complain "doctor $* gave $status, not $wanted"
    local said
    mapfile -t said <err # no command: PATH may be empty
    [ ${#said[@]} = "$wanted" ] || complain "doctor $* does not say a line for what is broken, or one without"
}
has() { grep -qF -- "$1" out || complain "no '$1' in what came out"; }
# holds CODE: a Python expression about the JSON in `d`, with its libraries by name in `l`
holds() {
    python3 - "$1" <<'PYTHON' || complain "not so: $1"
import json, sys
d = json.load(open("out"))
l = {library["name"]: library for library in d["libraries"]}
def whats(key):
    return [item["what"] for item in d[key]]
sys.exit(not eval(sys.argv[1]))
PYTHON
}

# a machine as it is; Python's packages from a program that stands for it
mkdir bin cache
cat >bin/python3 <<'SH'
#!/bin/sh
echo '{"python3": "9.8.7", "numpy": "6.5.4", "torch": null}'
SH
chmod +x bin/python3
real=$PATH
export PATH=$folder/bin:$PATH RECURVE_OPENBLAS=off RECURVE_CACHE=$folder/cache
doctor 0
awk 'length > 80 { exit 1 }' out || complain "the text is wider than 80 columns"
has "$("$RECURVE" --version | awk '{ print $2 }')"
has "(available: portable"
grep -qE "^  numpy +6\.5\.4$" out || complain "the version of a package is not shown"
has "=> pip install torch"
has "=> sudo apt install libopenblas0"
has "trusted, writable"
has "Nothing is broken."
! grep -q 'pyarrow\|pip install numpy' out || complain "a package that is there is missing"
doctor 0 --json
PATH=$real
holds '(d["python"], d["broken"]) == ({"python3": "9.8.7", "numpy": "6.5.4", "torch": None}, [])'
holds 'l["OpenBLAS"]["state"] == "missing" and "off" in l["OpenBLAS"]["reason"] and "OpenBLAS" in whats("missing") and "torch" in whats("missing")'
holds 'd["cpu"]["kernels"] == d["cpu"]["available"][-1] and d["cpu"]["cores"] > 0 and d["memory"]["bytes"] > 1e8'
holds 'd["cache"]["folder"].endswith("/cache") and d["cache"]["writable"] and d["cache"]["files"] == 0'
holds 'len(l) == 7 and all(library["state"] in ("found", "missing", "broken") for library in l.values())'
holds '(len(d["gpus"]) > 0) == ("gpu_absence" not in d)'

# the kernels of the environment, and a name that no set has
RECURVE_KERNELS=portable doctor 0 --json
holds 'd["cpu"]["kernels"] == "portable"'
RECURVE_KERNELS=none doctor 1 --json
holds 'whats("broken") == ["kernels"] and d["broken"][0]["command"] == "unset RECURVE_KERNELS"'

# a library that is there and cannot be opened
echo "no library" >libopenblas.so.0
RECURVE_OPENBLAS=$folder/libopenblas.so.0 doctor 1
has "Broken"
grep -qx 'recurve: this is broken: OpenBLAS; recurve doctor says how to mend it' err || complain "what is broken is not said"
has "broken (matrix products on the CPU)"
RECURVE_OPENBLAS=$folder/libopenblas.so.0 doctor 1 --json
holds 'l["OpenBLAS"]["state"] == "broken" and "cannot be loaded" in l["OpenBLAS"]["reason"] and whats("broken") == ["OpenBLAS"]'
RECURVE_OPENBLAS=$folder/nothing.so doctor 0 --json
holds 'l["OpenBLAS"]["state"] == "missing" and "was not found" in l["OpenBLAS"]["reason"]'

# the cache: files that others can write, no cache, a folder that is none
echo x >cache/0123456789abcdef0123456789abcdef
chmod 644 cache/*
doctor 0 --json
holds '(d["cache"]["files"], d["cache"]["bytes"], d["cache"]["untrusted"]) == (1, 2, 0)'
chmod 666 cache/*
doctor 1
has "not trusted"
has "=> chmod -R go-w '$folder/cache'"
doctor 1 --json
holds 'd["cache"]["untrusted"] == 1 and whats("broken") == ["cache"]'
rm cache/*
RECURVE_CACHE=off doctor 0 --json
holds 'd["cache"]["folder"] is None'
RECURVE_CACHE=$folder/not/yet/there doctor 0 --json
holds 'd["cache"]["writable"]'
[ ! -e not ] || complain "doctor makes the cache's folder"
if [ "$(id -u)" != 0 ]; then
    chmod 555 cache
    doctor 1 --json
    holds 'not d["cache"]["writable"] and "RECURVE_CACHE" in d["broken"][0]["command"]'
    chmod 755 cache
fi

# no Python
doctor 0 --json --no-python
holds 'd["python"] == {} and "torch" not in whats("missing")'
PATH=$folder/cache doctor 0 --json
holds 'd["python"] == {"python3": None} and "python3" in whats("missing")'

[ $failures = 0 ] || echo "$failures checks failed"
[ $failures = 0 ]
