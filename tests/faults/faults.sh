#!/usr/bin/env bash
# A seeded part of `make faults`: calls of the tool that fail, in every verb and of every kind.
set -u
[ -n "$FAULTS" ] || { echo "skipped: the library that fails calls is not built here (sanitizers, or no Linux)"; exit 77; }
RECURVE_FAULT=count LD_PRELOAD=$FAULTS "$RECURVE" --version >/dev/null 2>&1
[ $? != 125 ] || { echo "skipped: this system has no filter of system calls"; exit 77; }
python3 -B "$SOURCE_DIR/tests/faults/faults.py" --sample 120 --seed 1
