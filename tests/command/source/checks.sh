#!/usr/bin/env bash
# scripts/check.sh: the parts of the scripts that run under the sanitizers are all scripts together, each once; scripts/lint.sh --changed
# without the tools says so and is no failure.
set -u
fail() {
    echo "checks: $*" >&2
    exit 1
}
for parts in 1 4 7; do
    declare -A times=()
    for ((part = 0; part < parts; part++)); do
        left_out=$(bash "$SOURCE_DIR/scripts/check.sh" --left-out $part $parts) || fail "--left-out $part $parts"
        for script in "$SOURCE_DIR"/tests/command/*.sh "$SOURCE_DIR"/tests/command/*/*.sh; do
            name=$(basename "$script" .sh)
            [[ $name =~ $left_out ]] || times[$name]=$((${times[$name]:-0} + 1))
        done
    done
    for script in "$SOURCE_DIR"/tests/command/*.sh "$SOURCE_DIR"/tests/command/*/*.sh; do
        name=$(basename "$script" .sh)
        [ "${times[$name]:-0}" = 1 ] || fail "$name is in ${times[$name]:-0} of $parts parts"
    done
    unset times
done
bash "$SOURCE_DIR/scripts/check.sh" 2 everything >/dev/null 2>&1 && fail "check.sh takes 'everything'"

folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
for tool in bash cat cut dirname find git grep mkdir sed sort; do ln -s "$(command -v $tool)" "$folder/$tool"; done
said=$(PATH=$folder MOST=0 bash "$SOURCE_DIR/scripts/lint.sh" --changed 2>&1) || fail "lint.sh without tools: $said"
[[ $said == *"skipped: no clang-format"* ]] || fail "lint.sh does not say what it skips: $said"
