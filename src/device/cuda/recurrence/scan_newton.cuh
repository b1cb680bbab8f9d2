/* Form `newton`: Newton iterations, where the next state is no affine function of the state. Follows scan.cuh. */

#if FORM_NEWTON

/* A block has a chain and goes through its tiles. Every segment of a tile is computed from a guess of the state before it, to the state
 * after it and the derivative of that with respect to the guess: an effect. The composed effects give better guesses; after as many
 * rounds as there are segments they are exact, mostly after a few. Where they do not converge, segments are computed one after the
 * other. struct Cell has, in addition, follow(raw, h, slope): the state after a position, and slope times its derivative. */
enum { MOST_ROUNDS = 12 };

/* Whether a guess has converged, within the rounding errors of a tile that begins with `start`; false for NaN. */
INLINE bool has_converged(REAL before, REAL now, REAL start) {
    const REAL relative = sizeof(REAL) == 8 ? (REAL)1e-15 : (REAL)5e-7;
    return magnitude(now - before) <= relative * (magnitude(now) + magnitude(start)) || now == before;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    scan_kernel(const __grid_constant__ Cell::Args args, long long steps, int, long long tiles) {
    begin_kernel();
    __shared__ Effect totals[WARPS][CHANNELS];
    __shared__ REAL carry[CHANNELS];
    __shared__ bool all_broken[CHANNELS];
    const int thread = (int)threadIdx.x, lane = thread % LANES, segment = thread / LANES, warp = thread / 32;
    const int chain = (int)blockIdx.x;
    Cell cell(args, chain, lane);
    for (int c = thread; c < CHANNELS; c += THREADS) {
        carry[c] = Cell::initial_of(args, chain, c);
        all_broken[c] = true;
    }
    __syncthreads();
    for (long long tile = 0; tile < tiles; tile++) {
        const Tile t = tile_at(tile, segment, steps);
        Cell::Raw raw[STEPS];
        Cell::Kept kept[STEPS];
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            if (k < t.due && cell.there) cell.load(t.first + k, k, raw[k]);
        }
        REAL h[VECTOR], start[VECTOR];
#pragma unroll
        for (int v = 0; v < VECTOR; v++) h[v] = start[v] = carry[lane * VECTOR + v];
        bool converged = false;
        for (int round = 0; round < MOST_ROUNDS && !converged; round++) {
            REAL x[VECTOR], slope[VECTOR];
            Effect own[VECTOR], before[VECTOR];
#pragma unroll
            for (int v = 0; v < VECTOR; v++) x[v] = h[v], slope[v] = 1;
#pragma unroll
            for (int k = 0; k < STEPS; k++) {
                if (k < t.due && cell.there) cell.follow(raw[k], x, slope);
            }
#pragma unroll
            for (int v = 0; v < VECTOR; v++) own[v] = {slope[v], x[v] - slope[v] * h[v], 1, 0};
            compose_in_warp(own, before);
            store_totals(totals, own);
            __syncthreads();
            bool all = true;
#pragma unroll
            for (int v = 0; v < VECTOR; v++) {
                REAL now = start[v];
                for (int w = 0; w < warp; w++) {
                    const Effect &e = totals[w][lane * VECTOR + v];
                    now = e.a * now + e.b;
                }
                now = before[v].a * now + before[v].b;
                if (segment == 0) now = start[v];
                all = all && (has_converged(h[v], now, start[v]) || !cell.there);
                h[v] = now;
            }
            converged = __syncthreads_and(all);
        }
        if (!converged) {
            run_segments_serially(cell, t, kept, carry, all_broken, h);
            finish_positions(cell, t, kept, h);
            __syncthreads();
        } else {
            finish_positions(cell, t, kept, h);
            const bool is_last =
                t.due > 0 && t.first + t.due == ((tile + 1) * TILE < steps ? (tile + 1) * TILE : steps);
#pragma unroll
            for (int v = 0; v < VECTOR; v++) {
                if (is_last) carry[lane * VECTOR + v] = h[v];
            }
            __syncthreads();
        }
        store_sums(cell, tile);
    }
}

#endif
