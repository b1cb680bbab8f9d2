/* A recurrence, iteration after iteration: a thread has VECTOR channels. Follows recurrence.cuh and `struct Cell`. Macros:
 *   STEPS    positions that are loaded while those before them are computed
 *   THREADS  of a block
 *   CARRIES  iterations depend on each other; else they are divided among blocks, too
 * struct Cell has
 *   Cell(args, number)       one thread's channels; there: whether it has any
 *   Raw, load(position, raw) loads what a position reads
 *   step(position, raw)      computes a position */

extern "C" __global__ void __launch_bounds__(THREADS) loop_kernel(const __grid_constant__ RecurrenceArgs args) {
    Cell cell(args, (long long)blockIdx.x * THREADS + threadIdx.x);
    if (!cell.there) return;
    const long long part = CARRIES ? args.steps : (args.steps + gridDim.y - 1) / gridDim.y, first = part * blockIdx.y;
    const long long end = first + part < args.steps ? first + part : args.steps;
    Cell::Raw raw[STEPS];
#pragma unroll
    for (int k = 0; k < STEPS; k++) {
        if (first + k < end) cell.load(first + k, raw[k]);
    }
    for (long long p = first; p < end; p += STEPS) {
        Cell::Raw now[STEPS];
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            now[k] = raw[k];
            if (p + STEPS + k < end) cell.load(p + STEPS + k, raw[k]);
        }
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            if (p + k < end) cell.step(p + k, now[k]);
        }
    }
}
