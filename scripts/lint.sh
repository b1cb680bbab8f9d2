#!/usr/bin/env bash
# Formatting over every C and CUDA file of the project, cppcheck and clang-tidy over every C file.
#   scripts/lint.sh [JOBS]             fails on any finding
#   scripts/lint.sh --changed [JOBS]   formatting of all files; clang-tidy over the C files that changed since the branch left main, or in the
#                                      last commit where HEAD is main; at most MOST of them (24). A tool that is not installed is skipped.
#   scripts/lint.sh --format           formats in place instead
set -u
cd "$(dirname "$0")/.."
mapfile -t files < <(find include src bindings tool tests bench examples -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort)
if [ "${1:-}" = --format ]; then
    exec clang-format -i "${files[@]}"
fi
changed=false
if [ "${1:-}" = --changed ]; then
    changed=true
    shift
fi
jobs=${1:-2}
status=0

# has TOOL: without --changed a tool that is missing is a failure of its own
has() {
    command -v "$1" >/dev/null && return 0
    $changed && echo "skipped: no $1" && return 1
    return 0
}

# C files outside of tests/ that differ from where this branch left main, one a line
list_changed() {
    local base
    base=$(git merge-base HEAD origin/main 2>/dev/null || git merge-base HEAD main 2>/dev/null) || base=
    [ -n "$base" ] && [ "$base" != "$(git rev-parse HEAD)" ] || base=$(git rev-parse HEAD~1 2>/dev/null) || return 0
    git diff --name-only --diff-filter=d "$base" -- '*.c' | grep -v '^tests/'
}

echo "== clang-format"
if has clang-format; then
    clang-format --dry-run -Werror "${files[@]}" || status=1
fi

if $changed; then
    most=${MOST:-24}
    mapfile -t sources < <(list_changed)
    if [ ${#sources[@]} -gt "$most" ]; then
        echo "== ${#sources[@]} files changed; clang-tidy reads $most of them, make lint all"
        commit=$(git rev-parse HEAD) # another choice for another commit
        mapfile -t sources < <(for file in "${sources[@]}"; do
            printf '%s %s\n' "$(printf '%s' "$commit$file" | cksum | cut -d' ' -f1)" "$file"
        done | sort -n | head -n "$most" | cut -d' ' -f2)
    fi
    [ ${#sources[@]} -gt 0 ] || echo "== no C file changed"
fi
if ! $changed || { [ ${#sources[@]} -gt 0 ] && command -v clang-tidy >/dev/null; }; then
    mkdir -p build
    cmake -G Ninja -S . -B build/lint -DRCV_TESTS=ON -DRCV_PYTHON=ON >build/lint.log 2>&1 || { cat build/lint.log; exit 1; }
    cmake --build build/lint --target generated/builtin_cells.c >/dev/null || exit 1
    mapfile -t known < <(sed -n 's/^ *"file": "\(.*\)",\{0,1\}$/\1/p' build/lint/compile_commands.json |
        grep '\.c$' | grep -v '/generated/' | sort -u)
fi

if $changed; then # what this build compiles of them
    mapfile -t sources < <(for file in "${sources[@]}"; do printf '%s\n' "${known[@]:-}" | grep -Fx "$PWD/$file"; done)
else
    echo "== cppcheck"
    cppcheck --quiet --error-exitcode=1 --std=c11 --enable=warning,portability --inline-suppr -j "$jobs" \
        --suppress=missingIncludeSystem --suppress=normalCheckLevelMaxBranches --suppress=duplicateAssignExpression -I include -I src -I tool -I tests/support -I tests/fuzz \
        --template='{file}:{line}: {severity}: {message} [{id}]' "${known[@]}" || status=1
    mapfile -t sources < <(printf '%s\n' "${known[@]}" | grep -v '/tests/')
fi

echo "== clang-tidy" # not over the tests: it cannot follow an assertion that jumps out
if [ ${#sources[@]} -gt 0 ] && has clang-tidy; then
    printf '%s\0' "${sources[@]}" | xargs -0 -n 4 -P "$jobs" clang-tidy --quiet -p build/lint \
        --extra-arg=-Wno-ignored-optimization-argument 2>/dev/null || status=1
fi

[ $status = 0 ] && echo "== lint: clean" || echo "== lint: FAILED"
exit $status
