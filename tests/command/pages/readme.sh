#!/usr/bin/env bash
# README.md: every command runs as it is written, the program in C compiles and predicts with the model that was trained, the terminal of 80 columns
# shows every line. (The block in Python is run by tests/python/test_tutorial.py.)
set -u
. "$SOURCE_DIR/tests/command/pages/pages.bash"
page=$SOURCE_DIR/README.md
status=0
complain() {
    echo "FAILED: $*"
    status=1
}

begin_pages
# The files of a reader: a text, and a table with a rhythm of 24 rows.
for i in $(seq 60); do cat "$SOURCE_DIR/LICENSE"; done >book.txt
awk 'BEGIN { print "hour,temperature,load"; srand(1)
    for (t = 0; t < 1000; t++) printf "%d,%.2f,%.3f\n", t, 10 + 5 * sin(t / 100), 3 + sin(t * 6.2832 / 24) + rand() / 5 }' >power.csv
run_page "$page" || status=1

if [ $status = 0 ]; then
    out=$pages_folder/README.out
    recurve predict waves.safetensors new.csv >predictions 2>err || complain "predict: $(cat err)"
    [ "$(grep -cE 'sine|square|saw' predictions)" -ge 5 ] || complain "not five predictions: $(cat predictions)"
    # What the reader is told to expect.
    [ -n "$PAGES_SLOW" ] || recurve eval waves.best.safetensors waves.csv 2>&1 | awk '/^accuracy/ { good = $2 > 0.95 || $2 > 95 } END { exit !good }' ||
        complain "the accuracy of the first training: $(recurve eval waves.best.safetensors waves.csv 2>&1)"
    for file in waves.html keeper.cell power.safetensors book.safetensors large.safetensors; do
        [ -s $file ] || complain "there is no $file"
    done
    [ -s two.safetensors ] || grep -q '^pages: skipped, no MPI' "$out" || complain "mpirun trained no model"

    fence c "$page" >program.c
    [ -s program.c ] || complain "no program in C"
    # shellcheck disable=SC2086
    $CC -std=c11 -Wall -Wextra -Werror $CFLAGS -I "$SOURCE_DIR/include" program.c -L "$BUILD_DIR" -lrecurve $LDFLAGS -o program || complain "cc"
    LD_LIBRARY_PATH=$BUILD_DIR ./program >said 2>&1 || complain "the program: $(cat said)"
    awk 'NF == 3 { sum = $1 + $2 + $3; good = sum > 0.99 && sum < 1.01 } END { exit !good }' said || complain "the program prints no probabilities: $(cat said)"
fi

[ "$(wc -l <"$page")" -le 160 ] || complain "README.md has $(wc -l <"$page") lines"
wide=$(grep -v '<img ' "$page" | awk 'length($0) > 80')
[ -z "$wide" ] || complain "lines of more than 80 letters: $wide"
exit $status
