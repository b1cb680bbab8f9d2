#!/usr/bin/env bash
# Everything that a change must pass; the exit status is the verdict.
#   clang     a build by clang, where it is installed, and the tests of the CPU device by it (check-clang.sh)
#   plain     as released, with none of the optional dependencies: CUDA, NCCL, MPI, oneDNN and OpenBLAS are off, as on a machine without them. Every test
#             runs in full
#   python    the wheel, and the tests of the Python package with the newest and the oldest PyTorch that it supports (check-python.sh)
#   sanitize  under the address and undefined behaviour sanitizers, with every optional dependency that is there
# So both kinds of machine are tested, whichever this one is, and the sanitizers see all code.
#   scripts/check.sh [JOBS [clang|plain|python|sanitize|all [CTEST OPTIONS...]]]
# Under the sanitizers, where the same work takes four times as long, long sweeps run in part (tests/support/sample.h) and so do the scripts of
# tests/command: part K of N, where K follows the commit, so that successive commits cover all of them. RECURVE_TEST_PART=K/N chooses another
# part, RECURVE_TEST_PART=0/1 everything.
#   scripts/check.sh --left-out K N    prints which scripts part K of N leaves out, as ctest -E takes it
set -u
cd "$(dirname "$0")/.."

# The scripts of tests/command that are not in part $1 of $2, as a regular expression for ctest -E.
scripts_left_out() {
    ls tests/command/*.sh tests/command/*/*.sh | awk -F/ -v part="$1" -v parts="$2" '
        (NR - 1) % parts != part { sub(/\.sh$/, "", $NF); names = names (names ? "|" : "") $NF }
        END { print names ? "^(" names ")$" : "^$" }'
}

if [ "${1:-}" = --left-out ]; then
    scripts_left_out "$2" "$3"
    exit
fi
jobs=${1:-2}
which=${2:-all}
shift $(($# < 2 ? $# : 2))
case $which in clang | plain | python | sanitize | all) ;; *) echo "check.sh: '$which' is none of clang, plain, python, sanitize, all" >&2; exit 2 ;; esac
status=0
parts=8 # N

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

if [ "$which" = clang ] || [ "$which" = all ]; then
    printf '\n== clang\n'
    bash scripts/check-clang.sh "$jobs" || status=1
fi
if [ "$which" = plain ] || [ "$which" = all ]; then
    RECURVE_OPENBLAS=off one plain "release, without optional dependencies" -DCMAKE_BUILD_TYPE=Release -DRCV_SANITIZE=OFF \
        -DRCV_CUDA=OFF -DRCV_MPI=OFF -DRCV_ONEDNN=OFF -- "$@" || status=1
fi
if [ "$which" = python ] || { [ "$which" = all ] && [ $# = 0 ]; }; then
    bash scripts/check-python.sh "$jobs" "$@" || status=1
fi
if [ "$which" = sanitize ] || [ "$which" = all ]; then
    commit=$(git rev-parse --short=7 HEAD 2>/dev/null || echo 0)
    export RECURVE_TEST_PART=${RECURVE_TEST_PART:-$((16#$commit % parts))/$parts}
    part=${RECURVE_TEST_PART%/*} parts=${RECURVE_TEST_PART#*/}
    printf '\n== under the sanitizers: RECURVE_TEST_PART=%s\n' "$RECURVE_TEST_PART"
    left_out=()
    [ "$which" = all ] && [ $# = 0 ] && left_out=(-E "$(scripts_left_out "$part" "$parts")")
    one sanitize "address and undefined behaviour sanitizers" -DRCV_SANITIZE=ON -- "${left_out[@]}" "$@" || status=1
fi

[ $status = 0 ] && printf '\n== all tests passed\n' || printf '\n== FAILED\n'
exit $status
