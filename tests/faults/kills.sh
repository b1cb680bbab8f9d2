#!/usr/bin/env bash
# A part of `make kills`: a training run that is killed at its writes goes on as if nothing had happened.
set -u
[ -n "$FAULTS" ] || { echo "skipped: the library that kills is not built here (sanitizers, or no Linux)"; exit 77; }
RECURVE_FAULT=count LD_PRELOAD=$FAULTS "$RECURVE" --version >/dev/null 2>&1
[ $? != 125 ] || { echo "skipped: this system has no filter of system calls"; exit 77; }
python3 -B "$SOURCE_DIR/tests/faults/kills.py" --count 8
