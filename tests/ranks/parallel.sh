#!/usr/bin/env bash
# Several ranks make the updates of one, however they are arranged: losses, parameters, moments and carried states of float64 agree to
# the rounding of sums. Checkpoints go on with any other arrangement. What is wrong is said once, by the rank that knows; whoever dies or
# stands still ends all.
set -u
command -v mpirun >/dev/null || { echo "no mpirun here"; exit 77; }
[ -e "$BUILD_DIR/librecurve-mpi.so" ] || { echo "this build has no MPI"; exit 77; }
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

usual="--hidden 12 --layers 3 --embedding 10 --batch 8 --length 12 --steps 6 --log-every 1 --dtype float64 --effort estimate --threads 1 --learning-rate 0.05 --checkpoint-seconds 0 --overwrite"

# one NAME DATA OPTIONS: what all others are held against
one() {
    local name=$1 data=$2
    shift 2
    "$RECURVE" train "$folder/$data" --output "$name.safetensors" $usual "$@" >"$name.txt" 2>&1 ||
        { complain "$name: $(tail -1 "$name.txt")"; return 1; }
}

# ranks NAME COUNT DATA OPTIONS
ranks() {
    local name=$1 count=$2 data=$3
    shift 3
    timeout 300 mpirun -n "$count" "$RECURVE" train "$folder/$data" --output "$name.safetensors" $usual "$@" >"$name.txt" 2>&1 ||
        { complain "$name: $(grep recurve: "$name.txt" | tail -1)"; return 1; }
}

# same TITLE DATA OPTIONS: every arrangement
same() {
    local title=$1 data=$2 stages=$3
    shift 3
    one one "$data" "$@" || return
    ranks data2 2 "$data" --parallel data "$@"
    ranks data4 4 "$data" --parallel data "$@"
    local names="data2 data4"
    if [ "$stages" = stages ]; then
        ranks pipe2 2 "$data" --parallel pipeline --split 2,1 "$@"
        ranks pipe3 3 "$data" --parallel pipeline:3 --micro-batches 2 "$@"
        ranks both 4 "$data" --parallel data:2,pipeline:2 --micro-batches 2 "$@"
        names="$names pipe2 pipe3 both"
    fi
    python3 "$SOURCE_DIR/tests/ranks/parallel.py" 1e-11 one $names >said || complain "$title: $(cat said)"
}

chance="--dropout 0.3 --dropout-input 0.2 --dropout-output 0.2 --dropout-embedding 0.1 --zoneout 0.1 --weight-drop 0.2"
same "a stream, rows of the embedding" text.txt stages --level word --optimiser sgd --valid none
same "masks of all kinds" text.txt stages --level word --optimiser sgd --valid none $chance
same "masks over time, and accumulation" text.txt stages --level byte --optimiser momentum --valid none --accumulate 2 --variational $chance
same "lines in buckets, with validation" text.txt stages --level word --kind lines --buckets 4,7 --optimiser adam --valid valid.txt --validate-every 3
same "buckets by tokens" text.txt stages --level word --kind lines --buckets 4,7 --tokens 40 --optimiser sgd --valid none
same "a stream with validation and an average" text.txt stages --level word --optimiser asgd --nonmono 1 --valid valid.txt --validate-every 2 --eval-batch 3
same "classes, both ways" examples.jsonl stages --kind classes --buckets none --cell gru --bidirectional --optimiser adamw --weight-decay 0.1 --valid none
same "values of a projected cell" examples.jsonl stages --kind values --buckets 3,6 --cell lstm_proj --sizes proj=7 --optimiser adam --valid none
usual=${usual/--embedding 10/--embedding 12}
same "an output layer tied to the embedding" text.txt no --level word --tied --optimiser adam --valid none
usual=${usual/--embedding 12/--embedding 10}
same "a fixed embedding" text.txt stages --level word --embedding-kind fixed --optimiser sgd --valid none

# ---- how units, shares and the wire are arranged does not matter either ----

stream="--level word --optimiser adam --valid none"
one one text.txt $stream
ranks chunks 2 text.txt $stream --parallel pipeline --time-chunks 6 --micro-batches 4
ranks single 2 text.txt $stream --parallel pipeline --time-chunks 1 --micro-batches 1
ranks shares 2 text.txt $stream --parallel data --share-optimiser
ranks sharing 4 text.txt $stream --parallel data:2,pipeline:2 --share-optimiser --time-chunks 3
python3 "$SOURCE_DIR/tests/ranks/parallel.py" 1e-11 one chunks single shares sharing >said || complain "arrangements: $(cat said)"
grep -q '"first\.rnn' one.safetensors || complain "the checkpoint has no moments to compare"
usual=${usual/float64/float32}
one exact text.txt $stream
ranks narrow 2 text.txt $stream --parallel data --wire bfloat16
python3 "$SOURCE_DIR/tests/ranks/parallel.py" 2e-3 exact narrow >said || complain "gradients as bfloat16: $(cat said)"
python3 "$SOURCE_DIR/tests/ranks/parallel.py" 1e-7 exact narrow >said && complain "gradients as bfloat16 were not rounded"
usual=${usual/float32/float64}

# ---- checkpoints ----

usual=${usual/--steps 6/}
one one text.txt $stream --steps 12
ranks chain 2 text.txt $stream --steps 3 --parallel data
for step in "4 5 data:2,pipeline:2" "1 7 none" "2 9 pipeline" "4 12 data"; do
    set -- $step
    launch="mpirun -n $1" parallel="--parallel $3"
    [ "$3" != none ] || { launch="" parallel=""; }
    timeout 300 $launch "$RECURVE" train --resume chain.safetensors --steps "$2" $parallel >chain.txt 2>&1 ||
        complain "going on with $3: $(grep recurve: chain.txt | tail -1)"
done
python3 "$SOURCE_DIR/tests/ranks/parallel.py" 1e-11 one chain >said || complain "a chain of arrangements: $(cat said)"
# The same arrangement goes on bit for bit.
ranks whole 4 text.txt $stream --steps 8 --parallel data:2,pipeline:2
ranks part 4 text.txt $stream --steps 5 --parallel data:2,pipeline:2
timeout 300 mpirun -n 4 "$RECURVE" train --resume part.safetensors --steps 8 --parallel data:2,pipeline:2 >part.txt 2>&1 ||
    complain "going on: $(tail -1 part.txt)"
python3 "$SOURCE_DIR/tests/ranks/parallel.py" 0 whole part >said || complain "bit for bit: $(cat said)"

# ---- what is wrong is said once ----

# wrong TITLE SENTENCE COMMAND...: it fails, and says this in one line
wrong() {
    local title=$1 sentence=$2
    shift 2
    if timeout 120 "$@" >said 2>&1; then complain "$title: it should have failed"; fi
    local count
    count=$(grep -c "^recurve: .*$sentence" said)
    [ "$count" = 1 ] || complain "$title: it says so $count times: $(grep recurve: said | head -3)"
    [ "$(grep -c '^recurve: ' said)" -le 2 ] || complain "$title: it says more: $(grep '^recurve: ' said)"
}
train="$RECURVE train $folder/text.txt --output wrong.safetensors $usual $stream --steps 2"
wrong "a batch that does not divide" "does not divide among 3 replicas" mpirun -n 3 $train --parallel data
wrong "fewer layers than stages" "3 layers cannot be shared out among 4 stages" mpirun -n 4 $train --parallel pipeline
wrong "other ranks than asked for" "wants 6 ranks, and 2 were started" mpirun -n 2 $train --parallel data:3,pipeline:2
wrong "no arrangement at all" "is none of: data" mpirun -n 2 $train --parallel date
wrong "a tied output layer in stages" "tied to the embedding" mpirun -n 2 ${train/--embedding 10/--embedding 12} --tied --parallel pipeline
wrong "micro-batches" "do not divide into 3 micro-batches" mpirun -n 2 $train --parallel pipeline --micro-batches 3
wrong "chunks of time" "does not divide into 5 chunks" mpirun -n 2 $train --parallel pipeline --time-chunks 5
wrong "a split" "split '2,2'" mpirun -n 2 $train --parallel pipeline --split 2,2
wrong "shares of nothing" "nothing to share of sgd" mpirun -n 2 ${train/adam/sgd} --parallel data --share-optimiser
there=${train/wrong.safetensors/one.safetensors}
wrong "a model that is there" "one.safetensors is there already" mpirun -n 2 ${there/ --overwrite/} --parallel data
wrong "started alone" "start them with mpirun" $train --parallel data
wrong "started together" "2 processes were started together" mpirun -n 2 $train
wrong "NCCL without a GPU" "the transport nccl needs a GPU" mpirun -n 2 $train --parallel data --transport nccl
wrong "no MPI" "MPI is not available" env RECURVE_MPI=/nowhere/librecurve-mpi.so mpirun -n 2 $train --parallel data
wrong "other settings" "rank 1 differs from rank 0: its hidden is '13', not '12'" \
    mpirun -n 1 $train --parallel data : -n 1 ${train/--hidden 12/--hidden 13} --parallel data
wrong "other kernels" "rank 1 differs from rank 0: its set of kernels is 'portable'" \
    mpirun -n 1 $train --parallel data : -n 1 env RECURVE_KERNELS=portable $train --parallel data
cp valid.txt other.txt
wrong "other data" "rank 1: \(the data has\|rank 1 differs from rank 0: its training data\)" \
    mpirun -n 1 $train --parallel data : -n 1 ${train/text.txt/other.txt} --parallel data
wrong "data that one rank does not have" "rank 1: .*nowhere.txt" \
    mpirun -n 1 $train --parallel data : -n 1 ${train/text.txt/nowhere.txt} --parallel data

# ---- ranks that die, stand still, or are told to stop ----

# begin NAME OPTIONS: a run of two ranks in the background that has made some updates; its rank 1 is $second
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

# ended NAME SECONDS: it does so within this time, with status $result
ended() {
    for _ in $(seq $(($2 * 10))); do
        sleep 0.1
        kill -0 $launcher 2>/dev/null || { wait $launcher; result=$?; return; }
    done
    result=
    complain "$1: it goes on after $2 seconds"
    kill -9 $launcher
}

begin killed --parallel pipeline --checkpoint-every 2
kill -9 $second
ended killed 30
[ "$result" != 0 ] || complain "killed: the run ended well"
grep -q "rank 1 .*signal 9" killed.txt || complain "killed: nobody names rank 1: $(tail -3 killed.txt)"
timeout 120 "$RECURVE" train --resume killed.safetensors --steps 1 >said 2>&1 || complain "killed: its checkpoint is not good"

begin still --parallel data --timeout 2
kill -STOP $second
ended still 60
[ "$result" != 0 ] || complain "still: the run ended well"
[ "$(grep -c 'recurve: .*rank 1 has made no progress for 2 seconds' still.txt)" = 1 ] || complain "still: $(tail -3 still.txt)"
kill -9 $second 2>/dev/null

begin asked --parallel data
kill -TERM $second
ended asked 30
grep -q "wrote asked.safetensors" asked.txt || complain "asked to stop: $(tail -3 asked.txt)"
timeout 120 "$RECURVE" train --resume asked.safetensors --steps 1 >said 2>&1 || complain "asked: its checkpoint is not good"

pgrep -f "recurve train $folder" >said && complain "something still runs: $(cat said)"
[ $failures = 0 ]
