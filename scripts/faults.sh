#!/usr/bin/env bash
# Builds the tool as released and runs one of the programs that fail its calls or kill it; the exit status is the verdict.
#   scripts/faults.sh JOBS faults.py|kills.py [OPTIONS...]
set -u
cd "$(dirname "$0")/.." || exit 1
jobs=$1 program=$2
shift 2
build=build/faults
mkdir -p build
cmake -G Ninja -S . -B $build -DRCV_TESTS=ON -DRCV_BENCH=OFF -DRCV_CUDA=OFF -DRCV_SANITIZE=OFF -DCMAKE_BUILD_TYPE=Release \
    >$build.log 2>&1 || { cat $build.log; exit 1; }
cmake --build $build -j "$jobs" --target tool fault_inject || exit 1
export RECURVE=$PWD/$build/recurve FAULTS=$PWD/$build/tests/libfault_inject.so SOURCE_DIR=$PWD
exec python3 -B "tests/faults/$program" --jobs "$jobs" "$@"
