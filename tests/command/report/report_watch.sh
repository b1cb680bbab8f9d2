#!/usr/bin/env bash
# recurve report --watch: the page follows logs that grow, reloads itself until the runs are over, and is whole when a signal ends the watch.
set -u
folder=$(mktemp -d)
watch=
trap '[ -z "$watch" ] || kill -9 "$watch" 2>/dev/null; rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
complain() {
    echo "FAILED: $*"
    sed 's/^/    said: /' err | tail -3
    failures=$((failures + 1))
}
progress() { printf '{"event":"progress","step":%d,"epoch":1,"loss":%s,"tokens_per_second":100,"seconds":%d}\n' "$1" "$2" "$1"; }
validation() { printf '{"event":"validation","step":%d,"loss":%s,"best":true,"seconds":%d}\n' "$1" "$2" "$1"; }
start() { printf '{"event":"start","device":"cpu","settings":{"hidden":%d%s}}\n' "$1" "${2:-}"; }
end() { printf '{"event":"end","reason":"%s","step":%d,"seconds":%d,"tokens_per_second":100,"loss":1}\n' "$1" "$2" "$2"; }
reloads() { grep -q 'http-equiv="refresh"' "$1"; }

# begin ARGUMENTS...: starts the watch, with signals as a shell in the foreground has them
begin() {
    python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$RECURVE" report --watch "$@" >out 2>err &
    watch=$!
}
# until_true SENTENCE COMMAND...: waits until the command holds, 30 seconds at most
until_true() {
    local sentence=$1
    shift
    for _ in $(seq 150); do
        "$@" 2>/dev/null && return 0
        sleep 0.2
    done
    complain "$sentence"
    return 1
}
# over STATUS: the watch ends by itself, with this status
over() {
    local status=0
    until_true "the watch does not end" bash -c "! kill -0 $watch" || kill -9 "$watch"
    wait "$watch" || status=$?
    watch=
    [ $status = "$1" ] || complain "the watch ended with $status, not $1"
}

# ---- one log, which does not exist yet, and is tested in the end ----
begin one.jsonl
until_true "no page of a log that does not exist yet" grep -q 'The log does not exist yet' one.html
reloads one.html || complain "a page that waits does not reload itself"
{ start 8 ',"test":"text"' && progress 1 5.5; } >one.jsonl
until_true "the first line is not shown" grep -q '<b>5.5000</b>' one.html
printf '{"event":"progress","step":2,"lo' >>one.jsonl # half of a line
sleep 1.5
kill -0 "$watch" || complain "half of a line ends the watch"
printf 'ss":4.25}\n' >>one.jsonl
until_true "a line that is completed is not shown" grep -q '<b>4.2500</b>' one.html
validation 2 4.125 >>one.jsonl
until_true "a validation is not shown" grep -q 'best validation, after 2 updates' one.html
reloads one.html || complain "a page of a run that goes on does not reload itself"
end steps 2 >>one.jsonl
sleep 2.5
kill -0 "$watch" 2>/dev/null || complain "the watch ends before the test"
echo '{"event":"test","loss":3.875}' >>one.jsonl
over 0
grep -q '<b>3.8750</b>' one.html || complain "the test is not shown"
! reloads one.html || complain "the last version of the page reloads itself"
tail -c 20 one.html | grep -q '</html>' || complain "the last version is not whole"

# ---- two logs; one is replaced while it is watched ----
{ start 8 && progress 1 5.5 && progress 2 5.25 && progress 3 5; } >a.jsonl
begin a.jsonl b.jsonl --output two.html --json two.json
until_true "a run that has not begun is not shown" grep -q 'has not begun' two.html
{ start 16 && progress 1 7.5; } >b.jsonl
until_true "the second run is not shown" grep -q '7.5000' two.html
{ start 8 && progress 1 6.75; } >a.jsonl # another training into the same log
until_true "a log that was replaced is not read again" grep -q '6.7500' two.html
! grep -q '5.0000' two.html || complain "what a log had before it was replaced is shown"
[ ! -e two.json ] || complain "the summary is written before the end"
end steps 1 >>a.jsonl
end steps 1 >>b.jsonl
over 0
! reloads two.html || complain "the last version of two runs reloads itself"
grep -q '"ended": true' two.json || complain "no summary at the end: $(head -3 two.json)"

# ---- signals ----
for signal in INT:130 TERM:143; do
    { start 8 && progress 1 5.5; } >c.jsonl
    rm -f c.html
    begin c.jsonl
    until_true "no page before the signal" test -s c.html
    progress 2 4.75 >>c.jsonl
    until_true "the page does not follow" grep -q '<b>4.7500</b>' c.html
    kill -"${signal%:*}" "$watch"
    over "${signal#*:}"
    ! reloads c.html || complain "the page reloads itself after SIG${signal%:*}"
    grep -q '<b>4.7500</b>' c.html && tail -c 20 c.html | grep -q '</html>' || complain "the page is not whole after SIG${signal%:*}"
done

# ---- a log that is over when the watch begins; one that is wrong ----
{ start 8 && progress 1 5.5 && end steps 1; } >d.jsonl
begin d.jsonl
over 0
grep -q '<b>5.5000</b>' d.html && ! reloads d.html || complain "the page of a run that is over"
{ start 8 && progress 1 5.5; } >e.jsonl
begin e.jsonl
until_true "no page" test -s e.html
{ echo '{"event":"progress"}' && progress 2 4; } >>e.jsonl
over 1
grep -q 'e.jsonl:3: not a line of a training log: the event has no step' err || complain "the line that is wrong is not named"
! reloads e.html || complain "the page of a log that is wrong reloads itself"

# ---- a training ----
for i in $(seq 40); do echo "the cat $i sat on the mat and saw the dog number $i"; done >text
begin run.jsonl
"$RECURVE" train text --output run --log run.jsonl --hidden 8 --batch 2 --length 8 --threads 1 --effort estimate --steps 300 --log-every 1 \
    --valid text --test text --validate-every 100 >train.out 2>train.err || complain "train: $(cat train.err)"
over 0
grep -q 'bits a byte, test' run.html && ! reloads run.html || complain "the page of a training that was watched lacks the test"
[ $failures = 0 ]
