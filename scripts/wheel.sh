#!/usr/bin/env bash
# Builds the wheel, gives it the tag of the oldest Linux that it runs on, checks it and prints its size.
#   scripts/wheel.sh [AUTO|ON|OFF [JOBS [FOLDER [ARCHITECTURE]]]]
# AUTO, ON or OFF: with CUDA, by default where nvcc is found. FOLDER: by default build/wheel. ARCHITECTURE: another one than that of this machine,
# such as aarch64, which has no CUDA; it needs the compiler ARCHITECTURE-linux-gnu-gcc, and jansson for that architecture.
# It links the C library alone: jansson is part of it where a static one is installed, else auditwheel copies it into the wheel.
set -eu
cd "$(dirname "$0")/.."
cuda=${1:-AUTO}
jobs=${2:-2}
folder=${3:-build/wheel}
architecture=${4:-}
case $cuda in AUTO | ON | OFF) ;; *) echo "usage: wheel.sh [AUTO|ON|OFF [JOBS [FOLDER [ARCHITECTURE]]]]" >&2; exit 2 ;; esac
target=() tag=()
if [ -n "$architecture" ]; then
    compiler=$architecture-linux-gnu-gcc
    command -v "$compiler" >/dev/null || { echo "wheel.sh: $compiler is missing (Debian: gcc-${architecture//_/-}-linux-gnu)" >&2; exit 1; }
    [ "$cuda" != ON ] || { echo "wheel.sh: a wheel for another architecture is built without CUDA: give OFF" >&2; exit 2; }
    cuda=OFF
    target=(-C cmake.define.CMAKE_SYSTEM_NAME=Linux -C cmake.define.CMAKE_SYSTEM_PROCESSOR="$architecture" -C cmake.define.CMAKE_C_COMPILER="$compiler")
    tag=(_PYTHON_HOST_PLATFORM="linux-$architecture") # which gives the wheel its tag
fi
tools=$(bash scripts/python-env.sh wheel)
[ -n "$tools" ] || exit 1

work=$folder/cuda-$cuda${architecture:+-$architecture}
mkdir -p "$work"
rm -rf "$work/raw" "$folder"/*.whl
env "${tag[@]}" CMAKE_BUILD_PARALLEL_LEVEL="$jobs" PATH="$tools/bin:$PATH" "$tools/bin/python" -m pip --disable-pip-version-check wheel . -q --no-deps --no-build-isolation \
    -w "$work/raw" -C build-dir="$work/cmake" -C cmake.define.RCV_CUDA="$cuda" -C cmake.define.CMAKE_COMPILE_WARNING_AS_ERROR=ON "${target[@]}" -C cmake.args=-GNinja >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
PATH="$tools/bin:$PATH" "$tools/bin/auditwheel" repair -w "$folder" "$work"/raw/*.whl >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
exec "$tools/bin/python" scripts/check_wheel.py "$folder"/*.whl
