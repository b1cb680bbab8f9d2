/* Form `three`: a kernel for the effects of all tiles, one for the states before them, one for the rest. Follows scan.cuh. */

#if FORM_THREE

/* Effects: [tiles, chains, CHANNELS]. */
extern "C" __global__ void __launch_bounds__(THREADS)
    reduce_kernel(const __grid_constant__ Cell::Args args, long long steps, int chains, long long tiles,
                  Effect *effects) {
    begin_kernel();
    __shared__ Effect totals[WARPS][CHANNELS];
    const int thread = (int)threadIdx.x, lane = thread % LANES, segment = thread / LANES;
    const long long tile = blockIdx.x / chains;
    const int chain = (int)(blockIdx.x % chains);
    Cell cell(args, chain, lane);
    Cell::Kept kept[STEPS];
    Effect own[VECTOR], here[VECTOR];
    load_positions(cell, tile_at(tile, segment, steps), kept, own);
    compose_in_warp(own, here);
    store_totals(totals, own);
    __syncthreads();
    for (int c = thread; c < CHANNELS; c += THREADS) {
        Effect all = NO_EFFECT;
        for (int w = 0; w < WARPS; w++) all = compose(all, totals[w][c]);
        effects[(tile * chains + chain) * CHANNELS + c] = all;
    }
}

/* Replaces effects by the states before the tiles (in b). Broken channels are computed step by step. */
extern "C" __global__ void __launch_bounds__(THREADS)
    carry_kernel(const __grid_constant__ Cell::Args args, long long steps, int chains, long long tiles,
                 Effect *effects) {
    begin_kernel();
    long long number = (long long)blockIdx.x * THREADS + threadIdx.x;
    if (number / LANES >= chains) return;
    const int chain = (int)(number / LANES), lane = (int)(number % LANES);
    Cell cell(args, chain, lane);
    if (!cell.there) return;
    REAL h[VECTOR];
    cell.initial(h);
    for (long long tile = 0; tile < tiles; tile++) {
        Effect *at = effects + (tile * chains + chain) * CHANNELS + lane * VECTOR;
        bool sound = true;
        REAL step[VECTOR];
#pragma unroll
        for (int v = 0; v < VECTOR; v++) {
            sound = sound && holds(limit_of(at[v]), h[v]);
            step[v] = h[v];
        }
        for (long long p = tile * TILE; !sound && p < steps && p < (tile + 1) * TILE; p++) {
            Cell::Raw raw;
            Cell::Kept kept;
            REAL a[VECTOR], b[VECTOR];
            cell.load(p, 0, raw);
            cell.early(p, 0, true, raw, a, b, kept);
            cell.advance(p, 0, kept, step);
        }
#pragma unroll
        for (int v = 0; v < VECTOR; v++) {
            Effect e = at[v];
            bool own = holds(limit_of(e), h[v]);
            at[v].b = h[v];
            h[v] = own ? e.a * h[v] + e.b : step[v];
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    expand_kernel(const __grid_constant__ Cell::Args args, long long steps, int chains, long long tiles,
                  const Effect *states) {
    begin_kernel();
    __shared__ Effect totals[WARPS][CHANNELS];
    __shared__ REAL carry[CHANNELS];
    __shared__ bool broken[CHANNELS];
    __shared__ int any_broken;
    const int thread = (int)threadIdx.x, lane = thread % LANES, segment = thread / LANES, warp = thread / 32;
    const long long tile = blockIdx.x / chains;
    const int chain = (int)(blockIdx.x % chains);
    Cell cell(args, chain, lane);
    const Tile t = tile_at(tile, segment, steps);
    Cell::Kept kept[STEPS];
    Effect own[VECTOR], here[VECTOR];
    if (thread == 0) any_broken = 0;
    load_positions(cell, t, kept, own);
    compose_in_warp(own, here);
    store_totals(totals, own);
    __syncthreads();
    for (int c = thread; c < CHANNELS; c += THREADS) {
        Effect all = NO_EFFECT;
        for (int w = 0; w < WARPS; w++) all = compose(all, totals[w][c]);
        carry[c] = states[(tile * chains + chain) * CHANNELS + c].b;
        broken[c] = !holds(limit_of(all), carry[c]);
        if (broken[c]) any_broken = 1;
    }
    __syncthreads();
    REAL h[VECTOR];
#pragma unroll
    for (int v = 0; v < VECTOR; v++) {
        Effect all = NO_EFFECT;
        for (int w = 0; w < warp; w++) all = compose(all, totals[w][lane * VECTOR + v]);
        all = compose(all, here[v]);
        h[v] = all.a * carry[lane * VECTOR + v] + all.b;
    }
    if (any_broken) run_segments_serially(cell, t, kept, carry, broken, h);
    finish_positions(cell, t, kept, h);
    store_sums(cell, tile);
}

#endif
