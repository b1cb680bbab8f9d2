#!/usr/bin/env bash
# Ranks that MPI starts: what they exchange, and how they end together. comm_ranks.c checks on every rank; its exit status is the verdict.
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
    cat "$folder/said"
    failures=$((failures + 1))
}

# ranks N ARGUMENTS...: leaves the exit status in `status`, what was said in $folder/said, and how long it took in `seconds`
ranks() {
    local number=$1 begun=$SECONDS
    shift
    timeout -k 5 300 mpirun $more -n "$number" "$program" "$@" >"$folder/said" 2>&1 </dev/null
    status=$?
    seconds=$((SECONDS - begun))
}

# says FRAGMENT TIMES: so many lines have it
says() { [ "$(grep -cF -- "$1" "$folder/said")" = "$2" ] || complain "'$1' is not said $2 times"; }

ranks 1 speed # a world of one, by MPI
[ $status = 0 ] || complain "one rank: status $status"
for number in 2 3 4; do
    ranks $number all
    [ $status = 0 ] || complain "$number ranks: status $status"
    says "comm_ranks: all: ok, $number ranks" 1
done

# A child of fork() is no rank, and says so; its parent goes on.
ranks 2 fork
[ $status = 0 ] || complain "children of fork(): status $status"
says "comm_ranks: fork: ok, 2 ranks" 1

# Whoever ends badly is named, by one rank or by mpirun, and nobody is left waiting.
# ends HOW N FRAGMENT TIMES
ends() {
    ranks "$2" "$1"
    [ $status != 0 ] && [ $status != 3 ] && [ $status != 124 ] || complain "$1 with $2 ranks: status $status"
    [ $seconds -le 20 ] || complain "$1 with $2 ranks takes $seconds seconds"
    says "$3" "$4"
    says ", line " 0
}
for number in 2 4; do
    last=$((number - 1))
    ends fail $number "comm_ranks: rank $last says: its disk is full" 1
    ends stop $number "comm_ranks: rank $last has made no progress for 2 seconds (--timeout)" 1
    ends hang $number "comm_ranks: rank $last has made no progress for 2 seconds (--timeout): others wait for it" 1
    ends stuck $number "comm_ranks: rank $last has made no progress for 2 seconds (--timeout): others wait for it" 1
    ends stuck-first $number "comm_ranks: rank 0 has made no progress for 2 seconds (--timeout): others wait for it" 1
    ends stop-first $number "comm_ranks: rank 0 has made no progress for 2 seconds (--timeout)" 1
    ends hang-first $number "comm_ranks: rank 0 has made no progress for 2 seconds (--timeout): others wait for it" 1
    ranks $number kill
    [ $status != 0 ] && [ $seconds -le 20 ] || complain "kill with $number ranks: status $status, $seconds seconds"
    grep -qE "rank $last|\[$last\]" "$folder/said" || complain "nobody names rank $last"
done
ranks 3 slow # but it says that it moves
[ $status = 0 ] || complain "a rank that moves is given up"

# not started by mpirun
"$program" >"$folder/said" 2>&1
[ $? = 2 ] || complain "without mpirun it does not fail"
says "comm_ranks: this process was not started by mpirun, which the transport mpi needs" 1
RECURVE_MPI=/nowhere/module ranks 2 all
[ $status = 2 ] || complain "without its module the status is $status"
says "comm_ranks: MPI is not available: /nowhere/module" 2

[ $failures = 0 ] || exit 1
