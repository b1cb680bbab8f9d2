#!/usr/bin/env bash
# Builds the wheel into build/wheel, gives it the tag of the oldest Linux that it runs on, checks it and prints its size.
#   scripts/wheel.sh [AUTO|ON|OFF [JOBS]]     CUDA; by default where nvcc is found
# It links the C library alone: jansson is part of it where a static one is installed, else auditwheel copies it into the wheel.
set -eu
cd "$(dirname "$0")/.."
cuda=${1:-AUTO}
jobs=${2:-2}
case $cuda in AUTO | ON | OFF) ;; *) echo "usage: wheel.sh [AUTO|ON|OFF [JOBS]]" >&2; exit 2 ;; esac
tools=$(bash scripts/python-env.sh wheel)
[ -n "$tools" ] || exit 1

folder=build/wheel/cuda-$cuda
mkdir -p build/wheel
rm -rf "$folder/raw" build/wheel/*.whl
mkdir -p "$folder"
CMAKE_BUILD_PARALLEL_LEVEL=$jobs PATH="$tools/bin:$PATH" "$tools/bin/python" -m pip --disable-pip-version-check wheel . -q --no-deps --no-build-isolation \
    -w "$folder/raw" -C build-dir="$folder/cmake" -C cmake.define.RCV_CUDA="$cuda" -C cmake.args=-GNinja >"$folder/log" 2>&1 || { cat "$folder/log" >&2; exit 1; }
PATH="$tools/bin:$PATH" "$tools/bin/auditwheel" repair -w build/wheel "$folder"/raw/*.whl >"$folder/log" 2>&1 || { cat "$folder/log" >&2; exit 1; }
exec "$tools/bin/python" scripts/check_wheel.py build/wheel/*.whl
