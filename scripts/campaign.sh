#!/usr/bin/env bash
# Builds the campaign and runs it: random problems, each by every plan, against the naive schedule in double. The exit status is the verdict.
#   scripts/campaign.sh cpu|cuda [--seed N] [--problems N] [--minutes M] [--jobs N] [--plans N] [--limit S] [--case N [--plan PLAN]]
# A failure is one line that ends in the command that repeats it. Where there is no toolkit or no GPU it says so, and that is no failure.
set -u
cd "$(dirname "$0")/.." || exit 1
device=${1:-cpu}
shift $(($# < 1 ? $# : 1))
case $device in
cpu)
    build=build/release
    options=(-DRCV_SANITIZE=OFF -DCMAKE_BUILD_TYPE=Release)
    ;;
cuda)
    build=build/cuda
    options=(-DRCV_CUDA=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo)
    ;;
*)
    printf 'campaign: there is no device %s: name cpu or cuda\n' "$device" >&2
    exit 2
    ;;
esac

mkdir -p build
if ! cmake -G Ninja -S . -B $build -DRCV_TESTS=ON "${options[@]}" >$build.log 2>&1; then
    grep -q 'CUDA 12.8 or later' $build.log && printf 'campaign: SKIPPED: no CUDA toolkit; see %s\n' $build.log && exit 0
    cat $build.log
    exit 1
fi
cmake --build $build -j "$(nproc 2>/dev/null || echo 2)" --target campaign >$build.log || {
    cat $build.log
    exit 1
}

# The kernels that are compiled on the way are kept; of threads, a plan has its own alone.
export RECURVE_CACHE=$PWD/$build/kernels RECURVE_WISDOM=off OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
$build/tests/campaign --device "$device" "$@"
status=$?
[ $status = 77 ] && exit 0
exit $status
