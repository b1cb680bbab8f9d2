#!/usr/bin/env bash
# On a GPU, which ranks may share: several make the updates of one, by MPI; and one rank does by NCCL.
set -u
command -v mpirun >/dev/null || { echo "no mpirun here"; exit 77; }
[ -e "$BUILD_DIR/librecurve-mpi.so" ] || { echo "this build has no MPI"; exit 77; }
"$RECURVE" plan --device cuda --effort estimate --hidden 8 --steps 2 --batch 1 >/dev/null 2>&1 || { echo "no GPU here"; exit 77; }
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder" || exit 1
failures=0
complain() {
    echo "FAILED: $1"
    failures=$((failures + 1))
}
awk 'BEGIN { srand(7); for (i = 0; i < 900; i++) { n = 1 + int(rand() * 9); s = ""
    for (k = 0; k < n; k++) s = s (k ? " " : "") "w" int(rand() * rand() * 40); print s } }' >text.txt
usual="--layers 3 --length 12 --steps 6 --log-every 1 --device cuda --level word --valid none --effort estimate --learning-rate 0.05 --checkpoint-seconds 0"

# same TITLE TOLERANCE OPTIONS
same() {
    local title=$1 tolerance=$2
    shift 2
    "$RECURVE" train text.txt --output one.safetensors --overwrite $usual "$@" >one.txt 2>&1 || { complain "$title: $(tail -1 one.txt)"; return; }
    local names="" count how
    for arrangement in "2 data" "4 data" "2 pipeline" "4 data:2,pipeline:2"; do
        set -- $arrangement "$@"
        count=$1 how=$2
        shift 2
        timeout 300 mpirun -n "$count" "$RECURVE" train text.txt --output "$count-$how.safetensors" --overwrite --parallel "$how" $usual "$@" >other.txt 2>&1 ||
            complain "$title, $how: $(grep recurve: other.txt | tail -1)"
        names="$names $count-$how"
    done
    grep -q "share a GPU" other.txt || complain "$title: it does not say that ranks share a GPU: $(head -1 other.txt)"
    python3 "$SOURCE_DIR/tests/ranks/parallel.py" "$tolerance" one $names >said || complain "$title: $(cat said)"
}
same "a stream, rows of the embedding, masks" 1e-11 --hidden 32 --batch 8 --optimiser sgd --dtype float64 --dropout 0.3 --dropout-output 0.2 --zoneout 0.1
same "lines in buckets" 1e-11 --hidden 32 --batch 8 --optimiser adam --dtype float64 --kind lines --buckets 4,7
same "float32" 1e-5 --hidden 32 --batch 8 --optimiser sgd --dtype float32
same "bfloat16, units of odd sizes" 3e-3 --optimiser sgd --dtype bfloat16 --hidden 30 --batch 12 --micro-batches 2

"$RECURVE" train text.txt --output one.safetensors --overwrite $usual --hidden 32 --batch 8 --optimiser adam --dtype float64 >one.txt 2>&1 || complain "$(tail -1 one.txt)"
timeout 300 mpirun -n 1 "$RECURVE" train text.txt --output nccl.safetensors $usual --hidden 32 --batch 8 --optimiser adam --dtype float64 --parallel data --transport nccl >nccl.txt 2>&1 ||
    complain "NCCL: $(grep recurve: nccl.txt | tail -1)"
grep -q "ranks over .*GPU memory by NCCL" nccl.txt || complain "NCCL: it does not say so: $(head -1 nccl.txt)"
python3 "$SOURCE_DIR/tests/ranks/parallel.py" 1e-11 one nccl >said || complain "NCCL: $(cat said)"
timeout 300 mpirun -n 2 "$RECURVE" train text.txt --output two.safetensors $usual --hidden 32 --batch 8 --optimiser adam --parallel data --transport nccl >two.txt 2>&1 &&
    complain "NCCL with two ranks on one GPU: it should have been refused"
[ "$(grep -c 'recurve: rank' two.txt)" = 1 ] || complain "NCCL with two ranks on one GPU: $(grep recurve: two.txt)"
[ $failures = 0 ]
