#!/usr/bin/env bash
# Every internal name has one definition in src/; the check of it can fail.
set -u
check=$SOURCE_DIR/scripts/check-names.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
status=0

# expect pass|fail TITLE NAME FILE TEXT FILE TEXT ...: a tree of these files passes or fails; a failure names NAME and the last two files
expect() {
    local wanted=$1 title=$2 name=$3 got first='' last=''
    shift 3
    rm -rf "${tree:?}"/*
    while [ $# -gt 0 ]; do
        mkdir -p "$tree/$(dirname "$1")"
        printf '%s\n' "$2" >"$tree/$1"
        first=$last last=$1
        shift 2
    done
    if bash "$check" "$tree" >"$tree/said" 2>&1; then got=pass; else got=fail; fi
    if [ $got != "$wanted" ]; then
        echo "$title: expected $wanted, got $got"
        cat "$tree/said"
        status=1
    elif [ $got = fail ] && ! grep -q "^$last:[0-9]*: $name is already defined at $first:[0-9]*;" "$tree/said"; then
        echo "$title: the message does not name $name of $first and $last"
        cat "$tree/said"
        status=1
    fi
}

expect fail "a type" rcvi_a src/a/a.h 'typedef struct { int x; } rcvi_a;' src/b/b.h 'typedef struct { int y; } rcvi_a;'
expect fail "a struct and a typedef" rcvi_a src/a/a.h 'struct rcvi_a { int x; };' src/b/b.c 'typedef int rcvi_a;'
expect fail "a type of functions" rcvi_a src/a/a.h 'typedef int rcvi_a(int x);' src/b/b.h 'typedef int (*rcvi_a)(int x);'
expect fail "an enum constant" RCVI_A src/a/a.h 'enum { RCVI_B = 1, RCVI_A };' src/b/b.h 'typedef enum { RCVI_A = 2 } rcvi_x;'
expect fail "a constant after a call" RCVI_A src/a/a.h 'enum { RCVI_B = F(1, 2), RCVI_A };' src/b/b.c 'enum { RCVI_A };'
expect fail "a macro" RCVI_A src/a/a.h '#define RCVI_A 1' src/b/b.c '#define RCVI_A(x) (x)'
expect fail "a macro and an enum constant" RCVI_A src/a/a.h 'enum { RCVI_A };' src/b/b.h '#define RCVI_A 1'
expect fail "a function" rcvi_f src/a/a.c 'int rcvi_f(int x) { return x; }' src/b/b.c 'int rcvi_f(void) { return 1; }'
expect fail "an inline function of a header" rcvi_f src/a/a.h 'static inline int rcvi_f(void) { return 1; }' \
    src/b/b.h 'static inline int rcvi_f(void) { return 1; }'
expect fail "a variable" rcvi_v src/a/a.c 'const int rcvi_v[] = {1, 2};' src/b/b.c 'int rcvi_v = 1;'
expect fail "a CUDA file" rcvi_a src/a/a.cuh 'struct rcvi_a { int x; };' src/b/b.cu 'struct rcvi_a { int x; };'
expect fail "after a multi-line type" rcvi_b src/a/a.h $'typedef struct {\n    enum { RCVI_X } kind;\n    int x;\n} rcvi_a;\ntypedef int rcvi_b;' \
    src/b/b.h 'typedef long rcvi_b;'
expect fail "a device defines its own type twice" rcvi_a src/device/device.h 'typedef struct rcvi_a rcvi_a;' \
    src/device/cpu/a.h 'struct rcvi_a { int x; };' src/device/cpu/b.h 'struct rcvi_a { int y; };'
expect fail "devices share no other type" rcvi_a src/device/cpu/a.h 'struct rcvi_a { int x; };' src/device/cuda/a.h 'struct rcvi_a { int y; };'
expect pass "each device defines the type that device.h declares" '' src/device/device.h 'typedef struct rcvi_a rcvi_a;' \
    src/device/cpu/a.h 'struct rcvi_a { int x; };' src/device/cuda/a.h 'struct rcvi_a { int y; };'
expect pass "declarations" '' src/a/a.h 'typedef struct rcvi_a rcvi_a; int rcvi_f(int x); extern int rcvi_v;' \
    src/b/b.h 'typedef struct rcvi_a rcvi_a; int rcvi_f(int x); extern int rcvi_v;' src/c/c.c 'struct rcvi_a { int x; }; int rcvi_v = 1;'
expect pass "include guards" '' src/a/a.h $'#ifndef RCVI_A_H\n#define RCVI_A_H\n#endif' src/b/a.h $'/* other */\n#ifndef RCVI_A_H\n#define RCVI_A_H\n#endif'
expect pass "macros that are undefined again" '' src/a/a.c $'#define RCVI_T float\n#include "t.h"\n#undef RCVI_T' src/b/b.c $'#define RCVI_T double\n#undef RCVI_T'
expect pass "alternatives of one file" '' src/a/a.h $'#ifdef X\n#define RCVI_A 1\n#else\n#define RCVI_A 2\n#endif'
expect pass "static functions" '' src/a/a.c 'static int rcvi_f(void) { return 1; }' src/b/b.c 'static int rcvi_f(void) { return 2; }'
expect pass "a file for builds without a library" '' src/a/a.c 'int rcvi_f(void) { return 1; }' src/a/none.c 'int rcvi_f(void) { return 0; }'
expect pass "comments and strings" '' src/a/a.c '/* enum { RCVI_A } */ const char *x = "enum { RCVI_A };"; enum { RCVI_A };' src/b/b.c '// enum { RCVI_A };'
expect pass "uses" '' src/a/a.h 'typedef struct { int x; } rcvi_a;' src/b/b.c 'static rcvi_a a = {1}; int f(rcvi_a *x) { rcvi_a b = *x; return b.x; }'

expect pass "a length of an array" '' src/a/a.h 'enum { RCVI_N = 2 };' src/b/b.c 'const int rcvi_v[RCVI_N] = {1, 2};'

bash "$check" "$SOURCE_DIR" || status=1
exit $status
