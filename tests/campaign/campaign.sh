#!/usr/bin/env bash
# Some problems of the campaign; and that it finds a wrong number, a crash and a hang, each with a line that repeats it.
set -u
campaign=$BUILD_DIR/tests/campaign
failed=0

fail() {
    printf 'FAILED: %s\n' "$1"
    failed=1
}

# The command behind "repeat with: " in the first line of a log that names this kind of failure.
repeating() { grep -m 1 "^FAILED: .*$2.*; repeat with: " "$1" | sed 's/.*; repeat with: //'; }

# Plans that were run or refused, by a log's totals.
plans() { echo $(($(sed -n 's/^campaign: 1 problems, \([0-9]*\) plans, \([0-9]*\) refused.*/\1 + \2/p' "$1"))); }

log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Where sweeps run in part (tests/support/sample.h), part K has problems of its own, and fewer of them.
part=${RECURVE_TEST_PART:-0/1}
problems=16 seed=33
[ "${part#*/}" = 1 ] || problems=4 seed=$((33 + ${part%/*}))
"$campaign" --seed $seed --problems $problems --jobs 2 >"$log" 2>&1 || { fail "problems of seed $seed"; cat "$log"; }
grep -q "^campaign: $problems problems, [0-9]* plans, [0-9]* refused, 0 failures;.* cpu, seed $seed" "$log" || fail "no totals"
grep -q "^$problems passed, 0 failed\$" "$log" || fail "not all passed"
cat "$log"

# A wrong number: the line repeats it, and without the fault the same plan passes.
"$campaign" --seed 33 --problems 1 --break result=pack >"$log" 2>&1
[ $? = 1 ] || fail "a wrong number is no failure"
grep -q '^0 passed, 1 failed$' "$log" || fail "a wrong number is not counted"
command=$(repeating "$log" "is off by")
[ -n "$command" ] || fail "no line repeats a wrong number"
bash -c "$command" >"$log" 2>&1
[ $? = 1 ] && grep -q '^failed .* is off by' "$log" || fail "the line does not repeat the wrong number: $command"
bash -c "${command% --break *}" >"$log" 2>&1
[ $? = 0 ] && grep -q '^passed' "$log" || fail "the plan fails without the fault: $command"

# A crash costs the plan, not the case.
plan=$(sed -n "s/.*--plan '\(.*\)' --break.*/\1/p" <<<"$command")
"$campaign" --seed 33 --problems 1 >"$log" 2>&1
all=$(plans "$log")
"$campaign" --seed 33 --problems 1 --break "crash=$plan" >"$log" 2>&1
[ $? = 1 ] || fail "a crash is no failure"
[ "$(plans "$log")" = "$all" ] && [ "$all" -gt 5 ] || fail "a crash ends the case: not $all plans"
command=$(repeating "$log" "it ended by signal 6")
[ -n "$command" ] || fail "no line repeats a crash"
{ bash -c "$command" >"$log" 2>&1; } 2>/dev/null
[ $? = 134 ] || fail "the line does not repeat the crash: $command"

# So does a hang.
"$campaign" --seed 33 --problems 1 --limit 3 --break "hang=$plan" >"$log" 2>&1
[ $? = 1 ] || fail "a hang is no failure"
[ "$(plans "$log")" = "$all" ] || fail "a hang ends the case"
[ -n "$(repeating "$log" "it said nothing for 3 s")" ] || fail "no line repeats a hang"

"$campaign" --seed 33 --case 0 --plan naive --dtype float64 >"$log" 2>&1 || fail "a case does not run in another type"
grep -q '^case 0 .* float64,' "$log" || fail "the case has not the type that was asked for"

for options in "--seed x" "--problems" "--plan naive" "--device gpu" "--jobs 0" "--frob 1" \
    "--case 1 --dtype float32" "--case 1 --plan naive --dtype float3"; do
    # shellcheck disable=SC2086 # options are words
    "$campaign" $options >"$log" 2>&1
    [ $? = 2 ] && grep -q '^usage: ' "$log" || fail "these are no options: $options"
done
exit $failed
