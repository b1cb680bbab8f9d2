#!/usr/bin/env bash
# What calls cost besides their computation (bench/calls.c), and the same in PyTorch where python3 has it. Writes
# bench/results/calls-NAME-OF-THE-MACHINE.json; it is there from the first minute on and grows.
#   scripts/bench-calls.sh [DEVICE [DATA [BUILD-DIRECTORY]]]     DATA has ptb.train.txt; - : without sentences
# The build directory is configured as `make build` does where it is not. Environment: RECURVE_RESULTS, another folder for the file; SECONDS_OURS and
# SECONDS_TORCH, at most that long (300 and 100); PYTHON, the interpreter with torch.
set -u
cd "$(dirname "$0")/.." || exit 1
device=${1:-cpu}
data=${2:--}
build=${3:-build/release}
results=${RECURVE_RESULTS:-bench/results}
python=${PYTHON:-python3}
mkdir -p "$results" "$build" || exit 1
log=$build/bench-calls.log
if { [ -f "$build/build.ninja" ] || [ -f "$build/Makefile" ] || cmake -G Ninja -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DRCV_TESTS=OFF; } >"$log" 2>&1 &&
    cmake --build "$build" --target bench_calls >>"$log" 2>&1; then
    :
else
    tail -n 40 "$log" >&2
    echo "bench-calls.sh: $build cannot be built; all of the output is in $log" >&2
    exit 1
fi
arguments=(--device "$device" --seconds "${SECONDS_OURS:-300}" --json "$results")
[ "$data" = - ] || arguments+=(--data "$data")
began=$(mktemp)
trap 'rm -f "$began"' EXIT
"$build/bench/bench_calls" "${arguments[@]}"
status=$?
file=$(find "$results" -name 'calls-*.json' -newer "$began" | head -n 1)
if [ -z "$file" ]; then
    echo "bench-calls.sh: bench_calls wrote no file" >&2
    exit 1
fi
if "$python" -c 'import torch' 2>/dev/null; then
    "$python" bench/calls_torch.py "$file" --device "$device" --seconds "${SECONDS_TORCH:-100}" || status=1
else
    echo "bench-calls.sh: $python has no torch; the file has no anchors" >&2
fi
echo "wrote $file" >&2
exit $status
