/* Form `newton`: Newton iterations, where the next state is no affine function of the state. Follows scan.cuh. */

#if FORM_NEWTON

/* A block has a chain, and goes through its tiles. Every segment of a tile is taken from a guess of the state that it begins with, to
 * the state behind it and the derivative of that by the guess: an effect. Composed, these give better guesses, and after as many rounds
 * as there are segments the right ones; mostly after a few. Where they do not come to rest, segments are taken one after the other.
 * struct Cell has, beside the above, follow(raw, h, slope): the state behind a position, and slope times its derivative. */
enum { MOST_ROUNDS = 12 };

/* Has a guess come to rest, beside the roundings of a tile that began with `start`? Not where it is no number. */
INLINE bool rests(REAL before, REAL now, REAL start) {
    const REAL relative = sizeof(REAL) == 8 ? (REAL)1e-15 : (REAL)5e-7;
    return size_of(now - before) <= relative * (size_of(now) + size_of(start)) || now == before;
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
        bool rest = false;
        for (int round = 0; round < MOST_ROUNDS && !rest; round++) {
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
            put_totals(totals, own);
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
                all = all && (rests(h[v], now, start[v]) || !cell.there);
                h[v] = now;
            }
            rest = __syncthreads_and(all);
        }
        if (!rest) {
            take_in_turns(cell, t, kept, carry, all_broken, h);
            give_out(cell, t, kept, h);
            __syncthreads();
        } else {
            give_out(cell, t, kept, h);
            const bool is_last =
                t.due > 0 && t.first + t.due == ((tile + 1) * TILE < steps ? (tile + 1) * TILE : steps);
#pragma unroll
            for (int v = 0; v < VECTOR; v++) {
                if (is_last) carry[lane * VECTOR + v] = h[v];
            }
            __syncthreads();
        }
        put_sums(cell, tile);
    }
}

#endif
