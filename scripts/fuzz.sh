#!/usr/bin/env bash
# Fuzzes every format that is read, under the sanitizers: by libFuzzer where clang has it, else by the programs' own mutations.
#   scripts/fuzz.sh [JOBS]
# RUNS: inputs a format (100000). MINUTES: at most, a format. SEED. ONLY: formats, such as "cell log".
set -u
cd "$(dirname "$0")/.."
jobs=${1:-2} runs=${RUNS:-100000} seed=${SEED:-1} status=0
formats=${ONLY:-$(cd tests/fuzz && ls fuzz_*.c | sed 's/^fuzz_//; s/\.c$//')}
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:allocator_may_return_null=1:intercept_tls_get_addr=0

has_libfuzzer() {
    echo 'int LLVMFuzzerTestOneInput(const char *b, unsigned long n) { return b && n ? 0 : 0; }' |
        clang -fsanitize=fuzzer,address -x c - -o build/libfuzzer.probe 2>/dev/null
}

# compile FOLDER OPTIONS...: then the targets are in $targets
compile() {
    local folder=$1
    shift
    cmake -G Ninja -S . -B "$folder" -DRCV_TESTS=ON -DRCV_SANITIZE=ON -DRCV_CUDA=OFF -DRCV_MPI=OFF -DRCV_BENCH=OFF "$@" \
        >"$folder.log" 2>&1 || { cat "$folder.log"; exit 1; }
    cmake --build "$folder" -j "$jobs" --target $targets || exit 1
}

mkdir -p build
if has_libfuzzer; then
    rm -f build/libfuzzer.probe
    targets=$(printf 'fuzz_%s libfuzz_%s ' $(for f in $formats; do echo "$f $f"; done))
    compile build/fuzz -DCMAKE_C_COMPILER=clang -DCMAKE_COMPILE_WARNING_AS_ERROR=OFF -DRCV_ONEDNN=OFF -DRCV_FUZZ=ON
else
    targets=$(printf 'fuzz_%s ' $formats)
    compile build/sanitize
fi

for format in $formats; do
    printf '\n== %s\n' "$format"
    if [ -x "build/fuzz/tests/libfuzz_$format" ]; then
        mkdir -p "build/fuzz/corpus/$format"
        "build/fuzz/tests/fuzz_$format" --seeds "build/fuzz/corpus/$format" &&
            "build/fuzz/tests/libfuzz_$format" -runs="$runs" -seed="$seed" -max_total_time=$((${MINUTES:-0} * 60)) \
                -max_len=65536 -timeout=60 -rss_limit_mb=4096 -print_final_stats=1 -verbosity=0 \
                -artifact_prefix="build/fuzz/$format-" "build/fuzz/corpus/$format" || status=1
    else
        timeout --foreground $((${MINUTES:-600} * 60)) "build/sanitize/tests/fuzz_$format" "$runs" "$seed" || status=1
    fi
done
[ $status = 0 ] && printf '\n== no failures\n' || printf '\n== FAILED\n'
exit $status
