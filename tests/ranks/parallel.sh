#!/usr/bin/env bash
# Several ranks make the updates of one process, with every arrangement: losses, parameters, moments and carried states of float64 agree to the
# rounding of sums. A run continues from a checkpoint with any other arrangement. An error is printed once, by the rank that found it. A rank that
# is killed or makes no progress ends all ranks.
set -u
command -v mpirun >/dev/null || { echo "no mpirun here"; exit 77; }
program=$BUILD_DIR/tests/train_ranks
[ -x "$program" ] || { echo "this build has no MPI"; exit 77; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0 # MPI's own
folder=$(mktemp -d)
trap 'pkill -9 -f "recurve train $folder" 2>/dev/null; rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
complain() {
    echo "FAILED: $1"
    failures=$((failures + 1))
}

# A text, examples of two features, and validation.
awk 'BEGIN { srand(7); for (i = 0; i < 900; i++) { n = 1 + int(rand() * 9); s = ""
    for (k = 0; k < n; k++) s = s (k ? " " : "") "w" int(rand() * rand() * 40); print s } }' >text.txt
head -60 text.txt >valid.txt
awk 'BEGIN { srand(3); for (i = 0; i < 96; i++) { n = 1 + int(rand() * 6); s = ""
    for (k = 0; k < n; k++) s = s (k ? ", " : "") "[" rand() - 0.5 ", " rand() - 0.5 "]"
    print "{\"x\": [" s "], \"y\": " (i % 3) "}" } }' >examples.jsonl
# The same with a target at every time step, of which one of five is missing.
awk 'BEGIN { srand(4); for (i = 0; i < 96; i++) { n = 1 + int(rand() * 6); s = y = ""
    for (k = 0; k < n; k++) { s = s (k ? ", " : "") "[" rand() - 0.5 ", " rand() - 0.5 "]"
        y = y (k ? ", " : "") ((i + k) % 5 == 0 ? "null" : (i + 2 * k) % 3) }
    print "{\"x\": [" s "], \"y\": [" y "]}" } }' >steps.jsonl

usual="--hidden 12 --layers 3 --embedding 10 --batch 8 --length 12 --steps 6 --log-every 1 --dtype float64 --effort estimate --threads 1 --learning-rate 0.05 --checkpoint-seconds 0"

# ---- every arrangement makes the updates of one process ----

# Runs are collected in lists, one for each number of ranks. train_ranks runs a whole list in one launch: starting processes would take most of the time.

# add_run RANKS NAME DATA OPTIONS
add_run() {
    local count=$1 name=$2 data=$3
    shift 3
    echo "$name $folder/$data $usual $*" >>"runs$count"
}

# add_comparison TITLE TOLERANCE ONE OTHERS...: of runs, once they were made
comparisons=()
add_comparison() {
    local title=$1
    shift
    comparisons+=("$title:$*")
}

# add_case TITLE DATA stages|no OPTIONS: every arrangement
cases=0
add_case() {
    local title=$1 data=$2 stages=$3
    shift 3
    cases=$((cases + 1))
    add_run 1 one$cases "$data" "$@"
    add_run 2 data2-$cases "$data" --parallel data "$@"
    add_run 4 data4-$cases "$data" --parallel data "$@"
    local names="data2-$cases data4-$cases"
    if [ "$stages" = stages ]; then
        add_run 2 pipe2-$cases "$data" --parallel pipeline --split 2,1 "$@"
        add_run 3 pipe3-$cases "$data" --parallel pipeline:3 --micro-batches 2 "$@"
        add_run 4 both-$cases "$data" --parallel data:2,pipeline:2 --micro-batches 2 "$@"
        names="$names pipe2-$cases pipe3-$cases both-$cases"
    fi
    add_comparison "$title" 1e-11 one$cases $names
}

masks="--dropout 0.3 --dropout-input 0.2 --dropout-output 0.2 --dropout-embedding 0.1 --zoneout 0.1 --weight-drop 0.2"
add_case "a stream, sparse gradient of the embedding" text.txt stages --level word --optimiser sgd --valid none
add_case "masks of all kinds" text.txt stages --level word --optimiser sgd --valid none $masks
add_case "masks over time, and accumulation" text.txt stages --level byte --optimiser momentum --valid none --accumulate 2 --variational $masks
add_case "lines in buckets, with validation" text.txt stages --level word --kind lines --buckets 4,7 --optimiser adam --valid valid.txt --validate-every 3
add_case "buckets by tokens" text.txt stages --level word --kind lines --buckets 4,7 --tokens 40 --optimiser sgd --valid none
add_case "a stream with validation and an average" text.txt stages --level word --optimiser asgd --nonmono 1 --valid valid.txt --validate-every 2 --eval-batch 3
add_case "classes, bidirectional" examples.jsonl stages --kind classes --buckets none --cell gru --bidirectional --optimiser adamw --weight-decay 0.1 --valid none
add_case "values of a projected cell" examples.jsonl stages --kind values --buckets 3,6 --cell lstm_proj --sizes proj=7 --optimiser adam --valid none
add_case "classes of steps" steps.jsonl stages --kind step-classes --buckets 3,6 --cell gru --bidirectional --optimiser adam --valid steps.jsonl --validate-every 3
add_case "values of steps" steps.jsonl stages --kind step-values --buckets none --optimiser adam --valid none --loss sequence
usual=${usual/--embedding 10/--embedding 12}
add_case "an output layer tied to the embedding" text.txt no --level word --tied --optimiser adam --valid none
usual=${usual/--embedding 12/--embedding 10}
add_case "a fixed embedding" text.txt stages --level word --embedding-kind fixed --optimiser sgd --valid none

# Units, shares of the optimiser, and gradients sent as bfloat16.
stream="--level word --optimiser adam --valid none"
add_run 1 one text.txt $stream
add_run 2 chunks text.txt $stream --parallel pipeline --time-chunks 6 --micro-batches 4
add_run 2 single text.txt $stream --parallel pipeline --time-chunks 1 --micro-batches 1
add_run 2 shares text.txt $stream --parallel data --share-optimiser
add_run 4 sharing text.txt $stream --parallel data:2,pipeline:2 --share-optimiser --time-chunks 3
add_comparison "units and shares" 1e-11 one chunks single shares sharing
usual=${usual/float64/float32}
add_run 1 exact text.txt $stream
add_run 2 rounded text.txt $stream --parallel data --wire bfloat16
add_comparison "gradients as bfloat16" 2e-3 exact rounded
usual=${usual/float32/float64}

for count in 1 2 3 4; do
    launch="mpirun -n $count"
    [ $count != 1 ] || launch=
    timeout 600 $launch "$program" runs$count >printed 2>&1 || complain "runs of $count ranks: $(grep train_ranks: printed | tail -1)"
done

# compare TOLERANCE ONE OTHERS...: status 0 when they agree; prints what does not
compare() { python3 "$SOURCE_DIR/tests/ranks/parallel.py" "$@" >compared 2>&1; }

for comparison in "${comparisons[@]}"; do
    compare ${comparison#*:} || complain "${comparison%%:*}: $(cat compared)"
done
grep -q '"first\.rnn' one.safetensors || complain "the checkpoint has no moments to compare"
compare 1e-7 exact rounded && complain "gradients as bfloat16 were not rounded"

# ---- the command ----

usual="$usual --overwrite"

# train_one NAME DATA OPTIONS
train_one() {
    local name=$1 data=$2
    shift 2
    "$RECURVE" train "$folder/$data" --output "$name.safetensors" $usual "$@" >"$name.txt" 2>&1 ||
        { complain "$name: $(tail -1 "$name.txt")"; return 1; }
}

# train_ranks NAME RANKS DATA OPTIONS
train_ranks() {
    local name=$1 count=$2 data=$3
    shift 3
    timeout 300 mpirun -n "$count" "$RECURVE" train "$folder/$data" --output "$name.safetensors" $usual "$@" >"$name.txt" 2>&1 ||
        { complain "$name: $(grep recurve: "$name.txt" | tail -1)"; return 1; }
}

# ---- checkpoints ----

usual=${usual/--steps 6/}
train_one one text.txt $stream --steps 12
train_ranks chain 2 text.txt $stream --steps 3 --parallel data
for step in "4 5 data:2,pipeline:2" "1 7 none" "2 9 pipeline" "4 12 data"; do
    set -- $step
    launch="mpirun -n $1" parallel="--parallel $3"
    [ "$3" != none ] || { launch="" parallel=""; }
    timeout 300 $launch "$RECURVE" train --resume chain.safetensors --steps "$2" $parallel >chain.txt 2>&1 ||
        complain "continuing with $3: $(grep recurve: chain.txt | tail -1)"
done
compare 1e-11 one chain || complain "a chain of arrangements: $(cat compared)"
# The same arrangement continues bit for bit.
train_ranks whole 4 text.txt $stream --steps 8 --parallel data:2,pipeline:2
train_ranks part 4 text.txt $stream --steps 5 --parallel data:2,pipeline:2
timeout 300 mpirun -n 4 "$RECURVE" train --resume part.safetensors --steps 8 --parallel data:2,pipeline:2 >part.txt 2>&1 ||
    complain "continuing: $(tail -1 part.txt)"
compare 0 whole part || complain "bit for bit: $(cat compared)"

# ---- an error is printed once ----

# expect_error TITLE FRAGMENT COMMAND...: the command fails, and prints this in one line. Three commands at a time.
errors=0 running=0
expect_error() {
    local title=$1 fragment=$2
    shift 2
    errors=$((errors + 1))
    set -- "${@//wrong.safetensors/wrong$errors.safetensors}" # no two write the same model
    check_error error$errors "$title" "$fragment" "$@" &
    running=$((running + 1))
    [ $running -lt 3 ] || { wait -n; running=$((running - 1)); }
}

# check_error NAME TITLE FRAGMENT COMMAND...: complaints go to NAME.failed
check_error() {
    local name=$1 title=$2 fragment=$3 count
    shift 3
    timeout 120 "$@" >"$name.txt" 2>&1 && echo "$title: it should have failed" >>"$name.failed"
    count=$(grep -c "^recurve: .*$fragment" "$name.txt")
    [ "$count" = 1 ] || echo "$title: it is printed $count times: $(grep recurve: "$name.txt" | head -3)" >>"$name.failed"
    [ "$(grep -c '^recurve: ' "$name.txt")" -le 2 ] || echo "$title: more is printed: $(grep '^recurve: ' "$name.txt")" >>"$name.failed"
}
cp valid.txt other.txt
train="$RECURVE train $folder/text.txt --output wrong.safetensors $usual $stream --steps 2"
expect_error "a batch that does not divide" "does not divide among 3 replicas" mpirun -n 3 $train --parallel data
expect_error "fewer layers than stages" "3 layers cannot be divided among 4 stages" mpirun -n 4 $train --parallel pipeline
expect_error "other ranks than asked for" "needs 6 ranks, but 2 were started" mpirun -n 2 $train --parallel data:3,pipeline:2
expect_error "no arrangement at all" "is none of: data" mpirun -n 2 $train --parallel date
expect_error "a tied output layer in stages" "tied to the embedding" mpirun -n 2 ${train/--embedding 10/--embedding 12} --tied --parallel pipeline
expect_error "micro-batches" "do not divide into 3 micro-batches" mpirun -n 2 $train --parallel pipeline --micro-batches 3
expect_error "chunks of time" "does not divide into 5 chunks" mpirun -n 2 $train --parallel pipeline --time-chunks 5
expect_error "a split" "split '2,2'" mpirun -n 2 $train --parallel pipeline --split 2,2
expect_error "shares of nothing" "nothing to share of sgd" mpirun -n 2 ${train/adam/sgd} --parallel data --share-optimiser
there=${train/wrong.safetensors/one.safetensors}
expect_error "a model that is there" "one.safetensors is there already" mpirun -n 2 ${there/ --overwrite/} --parallel data
expect_error "started alone" "start them with mpirun" $train --parallel data
expect_error "started together" "2 processes were started together" mpirun -n 2 $train
expect_error "NCCL without a GPU" "the transport nccl needs a GPU" mpirun -n 2 $train --parallel data --transport nccl
expect_error "no MPI" "MPI is not available" env RECURVE_MPI=/nowhere/librecurve-mpi.so mpirun -n 2 $train --parallel data
expect_error "other settings" "rank 1 differs from rank 0: its hidden is '13', not '12'" \
    mpirun -n 1 $train --parallel data : -n 1 ${train/--hidden 12/--hidden 13} --parallel data
expect_error "other kernels" "rank 1 differs from rank 0: its set of kernels is 'portable'" \
    mpirun -n 1 $train --parallel data : -n 1 env RECURVE_KERNELS=portable $train --parallel data
expect_error "other data" "rank 1: \(the data has\|rank 1 differs from rank 0: its training data\)" \
    mpirun -n 1 $train --parallel data : -n 1 ${train/text.txt/other.txt} --parallel data
expect_error "data that one rank does not have" "rank 1: .*nowhere.txt" \
    mpirun -n 1 $train --parallel data : -n 1 ${train/text.txt/nowhere.txt} --parallel data
wait
[ "$(ls error*.txt | wc -l)" = $errors ] || complain "not all $errors commands were run"
for failed in error*.failed; do
    [ ! -e "$failed" ] || complain "$(cat "$failed")"
done

# ---- ranks that are killed, make no progress, or are asked to stop ----

# begin NAME OPTIONS: starts a run of two ranks in the background, and waits for some updates; its rank 1 is $second
begin() {
    local name=$1
    shift
    mpirun -n 2 "$RECURVE" train "$folder/text.txt" --output "$name.safetensors" $usual $stream --steps 1000000 "$@" >"$name.txt" 2>&1 &
    launcher=$!
    for _ in $(seq 300); do
        sleep 0.1
        [ ! -e "$name.jsonl" ] || [ "$(grep -c progress "$name.jsonl")" -lt 3 ] || break
    done
    second=$(for p in $(pgrep -f "recurve train $folder/text.txt --output $name.safetensors"); do
        tr '\0' '\n' <"/proc/$p/environ" 2>/dev/null | grep -q '^OMPI_COMM_WORLD_RANK=1$' && echo "$p"
    done)
    [ -n "$second" ] || complain "$name: there is no second rank"
}

# wait_end NAME SECONDS: the run ends within this time, with status $result
wait_end() {
    for _ in $(seq $(($2 * 10))); do
        sleep 0.1
        kill -0 $launcher 2>/dev/null || { wait $launcher; result=$?; return; }
    done
    result=
    complain "$1: it still runs after $2 seconds"
    kill -9 $launcher
}

begin killed --parallel pipeline --checkpoint-every 2
kill -9 $second
wait_end killed 30
[ "$result" != 0 ] || complain "killed: the run succeeded"
grep -q "rank 1 .*signal 9" killed.txt || complain "killed: nothing names rank 1: $(tail -3 killed.txt)"
timeout 120 "$RECURVE" train --resume killed.safetensors --steps 1 >printed 2>&1 || complain "killed: its checkpoint is not good"

begin still --parallel data --timeout 2
kill -STOP $second
wait_end still 60
[ "$result" != 0 ] || complain "still: the run succeeded"
[ "$(grep -c 'recurve: .*rank 1 has made no progress for 2 seconds' still.txt)" = 1 ] || complain "still: $(tail -3 still.txt)"
kill -9 $second 2>/dev/null

begin asked --parallel data
kill -TERM $second
wait_end asked 30
grep -q "wrote asked.safetensors" asked.txt || complain "asked to stop: $(tail -3 asked.txt)"
timeout 120 "$RECURVE" train --resume asked.safetensors --steps 1 >printed 2>&1 || complain "asked: its checkpoint is not good"

pgrep -f "recurve train $folder" >printed && complain "something still runs: $(cat printed)"
[ $failures = 0 ]
