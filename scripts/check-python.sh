#!/usr/bin/env bash
# Builds the wheel without CUDA, installs it beside each environment of python-env.sh, and runs tests/python with each. What is left out, and
# why, is said at the end; it is no failure.
#   scripts/check-python.sh [JOBS [PYTEST OPTIONS...]]
# Tests that are marked slow are left out; -m "" runs them, too. The environments stay as they are: the wheel lies in a folder of its own below build/python.
set -u
cd "$(dirname "$0")/.." || exit 1
jobs=${1:-2}
shift $(($# < 1 ? $# : 1))

printf '\n== Python: wheel\n'
if [ -z "$(bash scripts/python-env.sh wheel)" ]; then
    echo "check-python: SKIPPED: the wheel cannot be built without its tools"
    exit 0
fi
bash scripts/wheel.sh OFF "$jobs" build/python || exit 1
wheel=$(ls "$PWD"/build/python/*.whl) || exit 1

# run_tests NAME ENVIRONMENT OTHER OPTIONS...: installs the wheel into build/python/with-NAME and tests it there. OTHER is an environment with
# another version of PyTorch, for files that one writes and the other reads; empty: there is none.
run_tests() {
    local name=$1 environment=$2 other=$3 folder=$PWD/build/python/with-$1
    shift 3
    rm -rf "$folder"
    "$environment/bin/python" -m pip --disable-pip-version-check install -q --no-deps --no-index --target "$folder" "$wheel" || return 1
    env -u RECURVE_LIBRARY_FOLDER PYTHONPATH="$folder" PYTHONDONTWRITEBYTECODE=1 RECURVE_WHEEL="$wheel" OMP_NUM_THREADS=1 \
        ${other:+RECURVE_OTHER_PYTHON="$other/bin/python"} \
        "$environment/bin/python" -m pytest -q -p no:cacheprovider -m "not slow" tests/python "$@"
}

status=0 left_out=() started=()
newest=$(bash scripts/python-env.sh newest)
oldest=$(bash scripts/python-env.sh oldest)
for name in newest oldest; do
    environment=${!name}
    [ "$name" = newest ] && other=$oldest || other=$newest
    if [ -z "$environment" ]; then
        left_out+=("$name")
        continue
    fi
    run_tests "$name" "$environment" "$other" "$@" >"build/python/$name.log" 2>&1 &
    started+=("$name:$!")
    [ "$jobs" -gt 1 ] || wait "$!"
done
for one in "${started[@]}"; do
    wait "${one#*:}"
    result=$?
    printf '\n== Python: tests with the environment %s (%s)\n' "${one%:*}" "$([ $result = 0 ] && echo passed || echo FAILED)"
    cat "build/python/${one%:*}.log"
    [ $result = 0 ] || status=1
done
[ ${#left_out[@]} = 0 ] || printf '\ncheck-python: LEFT OUT: %s; python-env.sh says above why\n' "${left_out[*]}"
exit $status
