#!/usr/bin/env bash
# Which OpenBLAS is taken: the one that RECURVE_OPENBLAS names, if it has 32-bit integers and all functions; otherwise a sentence, and plans without it.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
complain() {
    echo "FAILED: $*"
    sed 's/^/    stdout: /' out | head -8
    sed 's/^/    stderr: /' err | head -5
    failures=$((failures + 1))
}
plan() { "$RECURVE" plan --hidden 24 --steps 6 --batch 4 --pass train "$@" >out 2>err </dev/null; }
pinned="combine(steps=all)+fuse+pack+blas"
# refused OPENBLAS FRAGMENT: a pinned plan fails with one sentence; the planner finds a plan without OpenBLAS
refused() {
    export RECURVE_OPENBLAS=$1
    plan --schedule "$pinned" && complain "a plan by $1"
    [ "$(wc -l <err)" = 1 ] && grep -qF -- "there is no OpenBLAS: " err && grep -qF -- "$2" err || complain "$1 does not say '$2'"
    plan --replan || complain "no plan without OpenBLAS"
    grep -qE '^ +[0-9].*blas' out && complain "$1 is used"
}

# imitate NAME CONFIG FUNCTION: a library in which all functions of OpenBLAS are, but this one; its name for CONFIG
imitate() {
    local name
    for name in cblas_sgemm cblas_dgemm openblas_set_num_threads openblas_get_num_threads openblas_get_corename; do
        [ "$name" = "$3" ] || echo "void $name(void); void $name(void) {}"
    done >"$1.c"
    echo "const char *openblas_get_config(void); const char *openblas_get_config(void) { return \"$2\"; }" >>"$1.c"
    $CC -shared -fPIC "$1.c" -o "$1" 2>err || complain "$CC -shared fails"
}
imitate wide.so "OpenBLAS 9.9.9 USE64BITINT DYNAMIC_ARCH" none
imitate old.so "OpenBLAS 0.0.1" openblas_get_corename
echo "no library" >broken.so

refused off "RECURVE_OPENBLAS of the environment is off"
refused "$folder/wide.so" "64-bit integers"
refused "$folder/old.so" "has no openblas_get_corename"
refused "$folder/broken.so" "broken.so"
refused "$folder/absent.so" "absent.so"

[ $failures = 0 ] && echo "openblas: passed"
[ $failures = 0 ]
