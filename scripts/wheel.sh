#!/usr/bin/env bash
# Builds the wheel, gives it the tag of the oldest Linux that it runs on, checks it and prints its size.
#   scripts/wheel.sh [AUTO|ON|OFF [JOBS [FOLDER]]]     with CUDA: by default where nvcc is found; into this folder, by default build/wheel
# It links the C library alone: jansson is part of it where a static one is installed, else auditwheel copies it into the wheel.
set -eu
cd "$(dirname "$0")/.."
cuda=${1:-AUTO}
jobs=${2:-2}
folder=${3:-build/wheel}
case $cuda in AUTO | ON | OFF) ;; *) echo "usage: wheel.sh [AUTO|ON|OFF [JOBS [FOLDER]]]" >&2; exit 2 ;; esac
tools=$(bash scripts/python-env.sh wheel)
[ -n "$tools" ] || exit 1

work=$folder/cuda-$cuda
mkdir -p "$work"
rm -rf "$work/raw" "$folder"/*.whl
CMAKE_BUILD_PARALLEL_LEVEL=$jobs PATH="$tools/bin:$PATH" "$tools/bin/python" -m pip --disable-pip-version-check wheel . -q --no-deps --no-build-isolation \
    -w "$work/raw" -C build-dir="$work/cmake" -C cmake.define.RCV_CUDA="$cuda" -C cmake.args=-GNinja >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
PATH="$tools/bin:$PATH" "$tools/bin/auditwheel" repair -w "$folder" "$work"/raw/*.whl >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
exec "$tools/bin/python" scripts/check_wheel.py "$folder"/*.whl
