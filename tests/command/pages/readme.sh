#!/usr/bin/env bash
# The program in README.md compiles, runs, and writes the model it says; the cell in README.md is the one in cells/.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
block() { awk -v open='```'"$1" 'inside && /^```$/ { exit } inside { print } $0 == open { inside = 1 }' "$SOURCE_DIR/README.md"; }

diff <(block "") "$SOURCE_DIR/cells/lstm.cell"
block c >"$work/program.c"
[ -s "$work/program.c" ]
cd "$work"
$CC -std=c11 -Wall -Wextra -Werror $CFLAGS -I "$SOURCE_DIR/include" program.c -L "$BUILD_DIR" -lrecurve $LDFLAGS -o program
LD_LIBRARY_PATH=$BUILD_DIR ./program
[ -s small.safetensors ]
