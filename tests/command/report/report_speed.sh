#!/usr/bin/env bash
# recurve report of 20 logs that are large enough to be read in several threads: the page is small, and the same whatever the number of threads.
# Prints the time, which only a machine at rest can judge: bench/report_speed.py checks it with 100,000 lines a log.
set -u
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
export PYTHONDONTWRITEBYTECODE=1
python3 "$SOURCE_DIR/bench/report_speed.py" "$RECURVE" --lines 3000 --most-seconds 100 --most-megabytes 2 --keep logs || { echo "FAILED: the page is too large"; exit 1; }
"$RECURVE" report logs/run-*.jsonl --output many.html 2>err || { cat err; exit 1; }
if command -v taskset >/dev/null; then
    taskset -c "$(taskset -cp $$ | sed 's/.*: *//; s/[-,].*//')" "$RECURVE" report logs/run-*.jsonl --output one.html 2>err || { cat err; exit 1; }
    cmp -s many.html one.html || { echo "FAILED: another page on one core"; exit 1; }
fi
# A line that is wrong in the middle of a large log is found, in the first of the logs that have one.
sed '2000s/"step"/"stop"/' logs/run-05.jsonl >a.jsonl
sed '100s/}$//' logs/run-06.jsonl >b.jsonl
for order in "a.jsonl b.jsonl a.jsonl:2000: not a line of a training log: the event has no step" "b.jsonl a.jsonl b.jsonl:100: not a line of a training log"; do
    read -r first second sentence <<<"$order"
    "$RECURVE" report logs/run-0[0-4].jsonl "$first" "$second" logs/run-1*.jsonl --output wrong.html >out 2>err && { echo "FAILED: $first is accepted"; exit 1; }
    grep -qF "$sentence" err && [ ! -e wrong.html ] || { echo "FAILED: said '$(cat err)', not '$sentence'"; exit 1; }
done
