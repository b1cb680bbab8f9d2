#!/usr/bin/env bash
# Builds under the thread sanitizer and runs the tests with threads and ranks; the exit status is the verdict.
#   scripts/check-thread.sh [JOBS [CTEST OPTIONS...]]
# Open MPI, OpenBLAS and oneDNN are not instrumented: OpenBLAS and OpenMP have one thread, oneDNN is left out, and what is reported
# of Open MPI is in tests/ranks/thread.suppressions, line by line with the reason.
set -u
cd "$(dirname "$0")/.." || exit 1
jobs=${1:-2}
shift $(($# < 1 ? $# : 1))
build=build/thread
tests='test_(background|background_search|team|threads|scan|comm|ranks|trainer|trainer_run|learn|shares|split|data|batches|matmul)|comm|parallel'
mkdir -p build
cmake -G Ninja -S . -B $build -DRCV_TESTS=ON -DRCV_BENCH=OFF -DRCV_CUDA=OFF -DRCV_ONEDNN=OFF -DRCV_SANITIZE=thread \
    -DCMAKE_BUILD_TYPE=RelWithDebInfo >$build.log 2>&1 || { cat $build.log; exit 1; }
cmake --build $build -j "$jobs" || exit 1
export TSAN_OPTIONS="suppressions=$PWD/tests/ranks/thread.suppressions halt_on_error=1 second_deadlock_stack=1"
# Threads that wait for each other take turns on the cores; tests side by side would only make that slower.
ctest --test-dir $build --output-on-failure --no-tests=error -R "^($tests)\$" "$@" || { echo "== FAILED"; exit 1; }
echo "== no data race reported"
