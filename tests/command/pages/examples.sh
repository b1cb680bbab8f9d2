#!/usr/bin/env bash
# The commands in the section EXAMPLES of docs/recurve.1 run as they are written.
set -u
. "$SOURCE_DIR/tests/command/pages/pages.bash"
begin_pages
for i in $(seq 60); do cat "$SOURCE_DIR/LICENSE"; done >book.txt
python3 examples/waves.py waves.csv new.csv --sequences 200 || exit 1
commands=$(awk '/^\.S[HS]/ { inside = $2 == "EXAMPLES" } inside && !/^\./ && NF' "$SOURCE_DIR/docs/recurve.1" | sed 's/\\-/-/g; s/\\e/\\/g')
[ "$(wc -l <<<"$commands")" -ge 6 ] || { echo "EXAMPLES has no commands: $commands"; exit 1; }
run_commands manual <<<"$commands"
