#!/usr/bin/env bash
# Builds the device `cuda` and runs every test that needs a GPU, then a small part of them under compute-sanitizer; the exit
# status is the verdict. Where there is no toolkit or no GPU it says so in one line, and that is no failure.
#   scripts/check-cuda.sh [JOBS [CTEST OPTIONS...]]
# In the environment: RECURVE_TEST_LARGE=1 for tensors of more than 2^31 elements (40 GB of GPU memory);
# RECURVE_SANITIZE=0 leaves compute-sanitizer out.
set -u
cd "$(dirname "$0")/.." || exit 1
jobs=${1:-2}
shift $(($# < 1 ? $# : 1))
build=build/cuda
status=0

skip() {
    printf 'check-cuda: SKIPPED: %s\n' "$1"
    exit 0
}

mkdir -p build
if ! cmake -G Ninja -S . -B $build -DRCV_TESTS=ON -DRCV_CUDA=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo >$build.log 2>&1; then
    reason=$(tr -s '\n ' ' ' <$build.log | sed -n 's/.*was not found: \(.*[a-zA-Z0-9]\) Call Stack.*/\1/p')
    grep -q 'CUDA 12.8 or later' $build.log && skip "no CUDA toolkit: ${reason:-see $build.log}"
    cat $build.log
    exit 1
fi
programs=()
for source in tests/gpu/test_*.c tests/unit/cuda/test_*.c; do programs+=("$(basename "$source" .c)"); done
programs+=(tool) # for the script
grep -q "RCV_MPI" $build/CMakeCache.txt && cmake --build $build --target help | grep -q "^recurve-mpi" && programs+=(recurve-mpi)
printf '== build (%s)\n' $build
cmake --build $build -j "$jobs" --target "${programs[@]}" || exit 1

export RECURVE_CACHE=$PWD/$build/kernels RECURVE_WISDOM=off # kernels are compiled once, plans measured every time
RECURVE_TEST_SMALL=40 $build/tests/test_cuda >$build/small.log 2>&1
case $? in
0) ;;
77) skip "no GPU: $(sed -n 's/^skipped: what needs a GPU: //p' $build/small.log)" ;;
*)
    cat $build/small.log
    status=1
    ;;
esac

printf '\n== tests\n'
ctest --test-dir $build -R '^test_cuda|^parallel_cuda$' --output-on-failure --no-tests=error "$@" || status=1
grep -hE '^(plans|shapes|ragged|candidates|measured|[a-z]*float[0-9]*: )' $build/Testing/Temporary/LastTest.log

sanitizer=$(command -v compute-sanitizer || command -v /usr/local/cuda/bin/compute-sanitizer)
if [ "${RECURVE_SANITIZE:-1}" = 0 ]; then
    printf '\n== compute-sanitizer: left out\n'
elif [ -z "$sanitizer" ]; then
    printf '\n== compute-sanitizer: SKIPPED: it is not installed\n'
else
    for tool in memcheck racecheck; do
        small=40
        [ $tool = memcheck ] || small=8 # it takes ten times as long
        for program in test_cuda test_cuda_kernels; do
            printf '\n== compute-sanitizer %s: %s\n' $tool "$program"
            RECURVE_TEST_SMALL=$small "$sanitizer" --tool $tool --error-exitcode 9 --print-limit 20 \
                $build/tests/"$program" >"$build/$tool-$program.log" 2>&1
            verdict=$?
            tail -n 3 "$build/$tool-$program.log"
            [ $verdict = 0 ] && continue
            grep -A 12 '^=========' "$build/$tool-$program.log" | head -n 60
            status=1
        done
    done
fi

[ $status = 0 ] && printf '\n== check-cuda: all passed\n' || printf '\n== check-cuda: FAILED\n'
exit $status
