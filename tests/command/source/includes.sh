#!/usr/bin/env bash
# The includes follow the direction of docs/DESIGN.md; and the check that says so can fail.
set -u
check=$SOURCE_DIR/scripts/check-includes.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
status=0

# expect pass|fail TITLE FILE INCLUDE: a tree with that one include passes or fails
expect() {
    rm -rf "${tree:?}"/*
    mkdir -p "$tree/$(dirname "$3")"
    printf '#include %s\nint x;\n' "$4" >"$tree/$3"
    if bash "$check" "$tree" >"$tree/said" 2>&1; then got=pass; else got=fail; fi
    if [ $got != "$1" ]; then
        echo "$2: expected $1, got $got"
        cat "$tree/said"
        status=1
    elif [ $got = fail ] && ! grep -q "$(cut -d/ -f1-2 <<<"$3")" "$tree/said"; then
        echo "$2: the message does not name $3"
        status=1
    fi
}

expect pass "a module includes what stands before it" src/net/a.c '"cell/cell.h"'
expect pass "a module includes itself" src/net/a.c '"net/net.h"'
expect pass "a system header in a folder" src/base/a.c '<sys/stat.h>'
expect pass "everything may include the public header" src/base/a.c '"recurve.h"'
expect fail "a module includes what stands after it" src/cell/a.c '"net/net.h"'
expect fail "a header does" src/cell/a.h '"plan/plan.h"'
expect fail "a folder inside a module does" src/device/cpu/a.c '"plan/plan.h"'
expect fail "schedule includes device" src/schedule/a.c '"device/device.h"'
expect fail "device includes schedule" src/device/cpu/a.c '"schedule/schedule.h"'
expect fail "angle brackets hide nothing" src/base/a.c '<cell/cell.h>'
expect fail "a path that climbs" src/cell/a.c '"../net/net.h"'
expect fail "a module that the table does not know" src/other/a.c '"base/base.h"'
expect fail "a file in no module" src/a.c '"base/base.h"'
expect fail "a CUDA file does" src/device/cuda/a.cu '"plan/plan.h"'
expect fail "a CUDA header does" src/device/cuda/a.cuh '"plan/plan.h"'
expect fail "a C++ file does" src/device/cpu/a.cpp '"plan/plan.h"'
expect pass "a device includes its own folder" src/device/cuda/engine/a.c '"device/cuda/cuda.h"'
expect fail "another module includes the inside of a device" src/comm/a.c '"device/cuda/cuda.h"'
expect fail "a device includes the inside of another" src/device/cpu/a.c '"device/cuda/cuda.h"'
expect fail "the list of devices includes the inside of one" src/device/device.c '"device/cuda/cuda.h"'
expect pass "a folder of training includes one before it" src/train/step/a.c '"train/learner/learner.h"'
expect pass "a folder of training includes itself" src/train/step/a.c '"train/step/work.h"'
expect fail "a folder of training includes one after it" src/train/learner/a.c '"train/step/work.h"'
expect fail "forecast and inference do not include each other" src/train/forecast/a.c '"train/inference/evaluate.h"'
expect fail "a folder of training that the table does not know" src/train/other/a.c '"base/base.h"'
expect fail "a file of training in no folder" src/train/a.c '"base/base.h"'
expect pass "the tool on its own header" tool/a.c '"options.h"'
expect pass "the tool on the public header" tool/a.c '"recurve.h"'
expect fail "the tool on the inside" tool/a.c '"base/base.h"'
expect fail "the tool on the inside, by a path" tool/a.c '"../src/base/base.h"'
expect fail "a benchmark on the inside" bench/a.c '"plan/plan.h"'
expect fail "an example on the inside" examples/a.c '"cell/cell.h"'

# expect_call pass|fail TITLE FILE LINE: the public function rcv_plan_take is of src/plan; a file with that line passes or fails
expect_call() {
    rm -rf "${tree:?}"/*
    mkdir -p "$tree/src/plan" "$tree/$(dirname "$3")"
    printf 'rcv_status rcv_plan_take(int x) {\n    return x;\n}\n' >"$tree/src/plan/plan.c"
    printf '%s\n' "$4" >"$tree/$3"
    if bash "$check" "$tree" >"$tree/said" 2>&1; then got=pass; else got=fail; fi
    if [ $got != "$1" ]; then
        echo "$2: expected $1, got $got"
        cat "$tree/said"
        status=1
    elif [ $got = fail ] && ! grep -q "^$3:1: .*rcv_plan_take() of plan" "$tree/said"; then
        echo "$2: the message does not name the call"
        cat "$tree/said"
        status=1
    fi
}
expect_call pass "a module calls a public function of one before it" src/model/a.c 'int f(void) { return rcv_plan_take(1); }'
expect_call pass "of itself" src/plan/a.c 'int f(void) { return rcv_plan_take(1); }'
expect_call fail "of one behind it" src/cell/a.c 'int f(void) { return rcv_plan_take(1); }'
expect_call fail "in a macro of a header" src/cell/a.h '#define TAKE(x) (rcv_plan_take(x))'
expect_call fail "in a CUDA file" src/device/cuda/a.cu 'int f(void) { return rcv_plan_take(1); }'
expect_call pass "a comment is no call" src/cell/a.c '/* see rcv_plan_take() */ int x;'
expect_call pass "a text is no call" src/cell/a.c 'const char *f(void) { return "rcv_plan_take(1)"; }'

bash "$check" "$SOURCE_DIR" || status=1
exit $status
