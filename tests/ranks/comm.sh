#!/usr/bin/env bash
# Ranks that MPI starts: what they transfer, and how all end after a failure. comm_ranks.c checks on every rank; its exit status is the verdict.
set -u
program=$BUILD_DIR/tests/comm_ranks
command -v mpirun >/dev/null || { echo "comm: no mpirun"; exit 77; }
[ -x "$program" ] || { echo "comm: this build has no MPI"; exit 77; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failures=0
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 # MPI's own
more=
mpirun --version 2>&1 | grep -q 'Open MPI' && more=--oversubscribe

complain() {
    echo "FAILED: $*"
    cat "$output"
    failures=$((failures + 1))
}

# run_ranks N ARGUMENTS...: writes what was printed to N-ARGUMENTS.out, the exit status and the seconds that it took to N-ARGUMENTS.status
run_ranks() {
    local number=$1 name=$folder/${1}-$2 begun=$SECONDS
    shift
    timeout -k 5 300 mpirun $more -n "$number" "$program" "$@" >"$name.out" 2>&1 </dev/null
    echo $? $((SECONDS - begun)) >"$name.status"
}

# load_result N HOW: `status`, `seconds` and `output` of that launch
load_result() {
    output=$folder/$1-$2.out
    read -r status seconds <"$folder/$1-$2.status"
}

# expect_lines FRAGMENT COUNT: so many lines have it
expect_lines() { [ "$(grep -cF -- "$1" "$output")" = "$2" ] || complain "'$1' is not printed $2 times"; }

# expect_success N HOW TITLE
expect_success() {
    load_result "$1" "$2"
    [ $status = 0 ] || complain "$3: status $status"
}

# Every kind of transfer. One launch at a time: one of the checks measures how much of a core the progress thread takes.
for number in 1 2 3 4; do
    how=all
    [ $number != 1 ] || how=speed # a world of one rank, by MPI
    run_ranks $number $how
    expect_success $number $how "$number ranks"
    expect_lines "comm_ranks: $how: ok, $number ranks" 1
done

# Failures, a child of fork(), and a slow rank that reports progress. Ranks mostly wait for timeouts here: four launches at a time.
hows="fail stop hang stuck stuck-first stop-first hang-first kill collective"
running=0
for launch in "2 fork" "3 slow" $(for number in 2 4; do for how in $hows; do echo "$number:$how"; done; done); do
    run_ranks ${launch/:/ } &
    running=$((running + 1))
    [ $running -lt 4 ] || { wait -n; running=$((running - 1)); }
done
wait
expect_success 2 fork "children of fork()"
expect_lines "comm_ranks: fork: ok, 2 ranks" 1
expect_success 3 slow "a slow rank that reports progress"

# expect_failure HOW N FRAGMENT COUNT: the failed rank is named, by one rank or by mpirun, and no rank is left waiting
expect_failure() {
    load_result "$2" "$1"
    [ $status != 0 ] && [ $status != 3 ] && [ $status != 124 ] || complain "$1 with $2 ranks: status $status"
    [ $seconds -le 20 ] || complain "$1 with $2 ranks takes $seconds seconds"
    expect_lines "$3" "$4"
    expect_lines ", line " 0
}
for number in 2 4; do
    last=$((number - 1)) still="has made no progress for 2 seconds (--timeout)"
    expect_failure fail $number "comm_ranks: rank $last says: its disk is full" 1
    expect_failure stop $number "comm_ranks: rank $last $still" 1
    expect_failure hang $number "comm_ranks: rank $last $still: others wait for it" 1
    expect_failure stuck $number "comm_ranks: rank $last $still: others wait for it" 1
    expect_failure stuck-first $number "comm_ranks: rank 0 $still: others wait for it" 1
    expect_failure stop-first $number "comm_ranks: rank 0 $still" 1
    expect_failure hang-first $number "comm_ranks: rank 0 $still: others wait for it" 1
    expect_failure collective $number "comm_ranks: rank $last: its collective failed" 1
    load_result $number kill
    [ $status != 0 ] && [ $seconds -le 20 ] || complain "kill with $number ranks: status $status, $seconds seconds"
    grep -qE "rank $last|\[$last\]" "$output" || complain "nothing names rank $last"
done

# Not started by mpirun; and without the module.
output=$folder/alone.out
"$program" >"$output" 2>&1
[ $? = 2 ] || complain "without mpirun it does not fail"
expect_lines "comm_ranks: this process was not started by mpirun, which the transport mpi needs" 1
RECURVE_MPI=/nowhere/module run_ranks 2 all
load_result 2 all
[ $status = 2 ] || complain "without its module the status is $status"
expect_lines "comm_ranks: MPI is not available: /nowhere/module" 2

[ $failures = 0 ] || exit 1
