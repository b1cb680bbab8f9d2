#!/usr/bin/env bash
# Formatting over every C and CUDA file of the project, cppcheck and clang-tidy over every C file.
#   scripts/lint.sh [JOBS]     fails on any finding
#   scripts/lint.sh --format   formats in place instead
set -u
cd "$(dirname "$0")/.."
mapfile -t files < <(find include src tool tests bench examples -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort)
if [ "${1:-}" = --format ]; then
    exec clang-format -i "${files[@]}"
fi
jobs=${1:-2}
status=0

echo "== clang-format"
clang-format --dry-run -Werror "${files[@]}" || status=1

mkdir -p build
cmake -G Ninja -S . -B build/lint -DRCV_TESTS=ON >build/lint.log 2>&1 || { cat build/lint.log; exit 1; }
cmake --build build/lint --target generated/builtin_cells.c >/dev/null || exit 1
mapfile -t sources < <(sed -n 's/^ *"file": "\(.*\)",\{0,1\}$/\1/p' build/lint/compile_commands.json |
    grep '\.c$' | grep -v '/generated/' | sort -u)

echo "== cppcheck"
cppcheck --quiet --error-exitcode=1 --std=c11 --enable=warning,portability --inline-suppr -j "$jobs" \
    --suppress=missingIncludeSystem --suppress=normalCheckLevelMaxBranches --suppress=duplicateAssignExpression -I include -I src -I tool -I tests/support -I tests/fuzz \
    --template='{file}:{line}: {severity}: {message} [{id}]' "${sources[@]}" || status=1

echo "== clang-tidy" # not over the tests: it cannot follow an assertion that jumps out
mapfile -t sources < <(printf '%s\n' "${sources[@]}" | grep -v '/tests/')
printf '%s\0' "${sources[@]}" | xargs -0 -n 4 -P "$jobs" clang-tidy --quiet -p build/lint \
    --extra-arg=-Wno-ignored-optimization-argument 2>/dev/null || status=1

[ $status = 0 ] && echo "== lint: clean" || echo "== lint: FAILED"
exit $status
