#!/usr/bin/env bash
# Builds and runs every test, as released and again under the sanitizers; the exit status is the verdict.
#   scripts/check.sh [JOBS [release|sanitize|all [CTEST OPTIONS...]]]
set -u
cd "$(dirname "$0")/.."
jobs=${1:-2}
which=${2:-all}
shift $(($# < 2 ? $# : 2))
status=0

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
    one release "release" -DCMAKE_BUILD_TYPE=Release -DRCV_SANITIZE=OFF -- "$@" || status=1
fi
if [ "$which" != release ]; then
    one sanitize "address and undefined behaviour sanitizers" -DRCV_SANITIZE=ON -- "$@" || status=1
fi

[ $status = 0 ] && printf '\n== all tests passed\n' || printf '\n== FAILED\n'
exit $status
