#!/usr/bin/env bash
# Builds and runs every test twice; the exit status is the verdict.
#   plain     as released, with none of the optional dependencies: CUDA, NCCL, MPI and oneDNN are off, as on a machine without them
#   sanitize  under the address and undefined behaviour sanitizers, with every optional dependency that is there
# So both kinds of machine are tested, whichever this one is, and the sanitizers see all code.
#   scripts/check.sh [JOBS [plain|sanitize|all [CTEST OPTIONS...]]]
# Long sweeps are whole in the first and a part of them in the second (tests/support/sample.h): part K of N, where K follows the commit, so that
# successive commits check all of it. RECURVE_TEST_PART=K/N chooses another part, 0/1 everything.
set -u
cd "$(dirname "$0")/.."
jobs=${1:-2}
which=${2:-all}
shift $(($# < 2 ? $# : 2))
case $which in plain | sanitize | all) ;; *) echo "check.sh: '$which' is none of plain, sanitize, all" >&2; exit 2 ;; esac
status=0
parts=4 # of a sweep

# one NAME TITLE CMAKE-OPTIONS -- CTEST-OPTIONS: configures and builds build/NAME and runs its tests
one() {
    local name=$1 title=$2 options=()
    shift 2
    while [ "$1" != -- ]; do options+=("$1"); shift; done
    shift
    printf '\n== %s: build (build/%s)\n' "$title" "$name"
    mkdir -p build
    cmake -G Ninja -S . -B "build/$name" -DRCV_TESTS=ON "${options[@]}" >"build/$name.log" 2>&1 ||
        { cat "build/$name.log"; return 1; }
    cmake --build "build/$name" -j "$jobs" || return 1
    printf '\n== %s: tests\n' "$title"
    ctest --test-dir "build/$name" -j "$jobs" --output-on-failure --no-tests=error "$@"
}

if [ "$which" != sanitize ]; then
    one plain "release, without optional dependencies" -DCMAKE_BUILD_TYPE=Release -DRCV_SANITIZE=OFF \
        -DRCV_CUDA=OFF -DRCV_MPI=OFF -DRCV_ONEDNN=OFF -- "$@" || status=1
fi
if [ "$which" != plain ]; then
    commit=$(git rev-parse --short=7 HEAD 2>/dev/null || echo 0)
    export RECURVE_TEST_PART=${RECURVE_TEST_PART:-$((16#$commit % parts))/$parts}
    printf '\n== long sweeps under the sanitizers: RECURVE_TEST_PART=%s\n' "$RECURVE_TEST_PART"
    one sanitize "address and undefined behaviour sanitizers" -DRCV_SANITIZE=ON -- "$@" || status=1
fi

[ $status = 0 ] && printf '\n== all tests passed\n' || printf '\n== FAILED\n'
exit $status
