/* Forms `serial` and `channels`: a thread has all positions of its channels. Follows scan.cuh. */

#if FORM_SERIAL

extern "C" __global__ void __launch_bounds__(THREADS)
    scan_kernel(const __grid_constant__ Cell::Args args, long long steps, int chains) {
    begin_kernel();
    long long number = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (number / LANES >= chains) return;
    Cell cell(args, (int)(number / LANES), (int)(number % LANES));
    if (!cell.there) return;
    REAL h[VECTOR];
    cell.initial(h);
    for (long long p = 0; p < steps; p++) {
        Cell::Raw raw;
        Cell::Kept kept;
        Cell::Late late;
        REAL a[VECTOR], b[VECTOR];
        cell.load(p, 0, raw);
        cell.early(p, 0, true, raw, a, b, kept);
        cell.load_late(p, late);
        cell.late(p, 0, kept, late, h);
    }
    if constexpr (Cell::HAS_SUM) {
        for (int v = 0; v < VECTOR; v++) cell.store_sum(0, (int)(number % LANES) * VECTOR + v, cell.sum[v]);
    }
}

#endif

#if FORM_CHANNELS

/* STEPS positions are being loaded while those before them are computed. */
extern "C" __global__ void __launch_bounds__(THREADS)
    scan_kernel(const __grid_constant__ Cell::Args args, long long steps, int chains) {
    begin_kernel();
    long long number = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (number / LANES >= chains) return;
    Cell cell(args, (int)(number / LANES), (int)(number % LANES)),
        ahead(args, (int)(number / LANES), (int)(number % LANES));
    if (!cell.there) return;
    REAL h[VECTOR];
    cell.initial(h);
    Cell::Raw raw[STEPS];
    Cell::Late late[STEPS];
#pragma unroll
    for (int k = 0; k < STEPS; k++) {
        if (k < steps) ahead.load(k, k, raw[k]), ahead.load_late(k, late[k]);
    }
    for (long long p = 0; p < steps; p += STEPS) {
        Cell::Kept kept[STEPS];
        Cell::Late now[STEPS];
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            REAL a[VECTOR], b[VECTOR];
            if (p + k < steps) ahead.early(p + k, k, true, raw[k], a, b, kept[k]);
            now[k] = late[k];
        }
        cell.copy_marks(ahead);
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            if (p + STEPS + k < steps) ahead.load(p + STEPS + k, k, raw[k]), ahead.load_late(p + STEPS + k, late[k]);
        }
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            if (p + k < steps) cell.late(p + k, k, kept[k], now[k], h);
        }
    }
    if constexpr (Cell::HAS_SUM) {
        for (int v = 0; v < VECTOR; v++) cell.store_sum(0, (int)(number % LANES) * VECTOR + v, cell.sum[v]);
    }
}

#endif
