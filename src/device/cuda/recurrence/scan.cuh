/* A recurrence h' = a h + b over time, channel by channel: effects, tiles, and what the forms of the kernel share. The files scan_serial,
 * scan_chained, scan_three, scan_newton, scan_sum and scan_waves follow. Precedes: map_element.cuh, macros, and `struct Cell`, which
 * says what a and b are and what is computed from h. Macros:
 *   VECTOR    neighbouring channels of a thread
 *   LANES     threads along a row: a power of two, at most 32
 *   STEPS     positions in time of a thread
 *   FETCH     positions that are loaded at once, and BATCH: again when the state is known; they divide STEPS
 *   THREADS   of a block
 *   FORM_...  which of the kernels
 *   WINDOW    of chained: tiles that a block looks back at; 0: it waits for the tile before its own
 *   MANY      of chained: a block takes tile after tile
 *   BLOCKS    of chained: of a multiprocessor
 *   STARTS_EARLY  the launch does not wait for the kernel before it: begin_kernel does
 *
 * A tile is SEGMENTS * STEPS positions of CHANNELS channels, a chain all tiles of the same channels. The effect of a tile is the map
 * h' = A h + B from the state before it to the state after it; it is known as soon as the tile is loaded. Effects are composed in a
 * fixed order, inside of a tile and between tiles, so results are always the same. Where numbers overflow, or a product underflows
 * and the state is large, an effect differs from the steps themselves: such channels are broken, and are computed segment after segment.
 *
 * struct Cell has
 *   Args; Cell(args, chain, lane)           one thread's channels
 *   bool there                              whether it has any
 *   Raw, Kept, Late                         what is loaded for a position, kept until the state is known, and loaded then
 *   load(p, k, raw), load_late(p, late)     position p, the thread's k-th; load_none(k, raw): no position
 *   early(p, k, due, raw, a, b, kept)       the position's effect; the identity where it is not due
 *   advance(p, k, kept, h)                  h after the position, exactly as late computes it
 *   late(p, k, kept, late, h)               the same, with stores; after the last position the final state too
 *   copy_marks(cell)                        copies what load noted of positions, from another object of the same thread
 *   initial(h), initial_of(args, chain, c)  the state before the first position
 *   HAS_SUM, sum, store_sum(tile, c, x)     a sum over all positions that late adds to */

enum { SEGMENTS = THREADS / LANES, TILE = SEGMENTS * STEPS, WARPS = THREADS / 32 };

INLINE bool is_finite(float x) { return fabsf(x) <= 3.402823466e38f; }
INLINE bool is_finite(double x) { return fabs(x) <= 1.7976931348623157e308; }

/* h' = a h + b. Between the first step and the last, no |b| exceeds `most`, and |h| grows at most by the factor `growth`. */
struct Effect {
    REAL a, b, growth, most;
};

#define NO_EFFECT                                                                                                      \
    { 1, 0, 1, 0 }

INLINE REAL magnitude(REAL x) { return x < 0 ? -x : x; }

/* A product that underflows becomes zero, which marks it as inexact. */
#ifdef __CUDACC__
INLINE float product(float a, float b) {
    float c;
    asm("mul.ftz.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
    return c;
}
INLINE double product(double a, double b) {
    double c = a * b;
    return fabs(c) < 2.2250738585072014e-308 ? 0.0 : c;
}
#endif
INLINE Effect compose(const Effect &first, const Effect &second) {
    return {product(first.a, second.a), second.a * first.b + second.b, first.growth * second.growth,
            second.growth * first.most + second.most};
}
/* The effect of one step. */
INLINE Effect effect_of(REAL a, REAL b) { return {a, b, magnitude(a) > 1 ? magnitude(a) : (REAL)1, magnitude(b)}; }

/* The largest |h| for which an effect equals its steps one after the other, but for rounding: no intermediate result overflows, and a
 * product that underflowed loses at most 2^-126 (in double 2^-1022) of 2^20. Negative: no state. */
INLINE REAL limit_of(const Effect &e) {
    const REAL half = sizeof(REAL) == 8 ? (REAL)8.98846567431158e307 : (REAL)1.7014118e38;
    if (!is_finite(e.a) || !is_finite(e.b)) return -1;
    REAL limit = (half - e.most) / e.growth;
    return e.a != 0 || limit < 1048576 ? limit : (REAL)1048576;
}
INLINE bool holds(REAL limit, REAL h) { return magnitude(h) <= limit; } /* not for NaN */

/* ---- a tile ---- */

struct Tile {
    long long first; /* this thread's first position */
    int due;         /* positions that it has */
    bool whole;      /* all threads have all positions */
};
INLINE Tile tile_at(long long tile, int segment, long long steps) {
    long long first = tile * TILE + (long long)segment * STEPS, left = steps - first;
    return {first, left >= STEPS ? STEPS : left > 0 ? (int)left : 0, (tile + 1) * TILE <= steps};
}

/* A kernel that starts early runs while the one before it ends (programmatic dependent launch). After this call the results of that one
 * are visible. The next kernel may start when all blocks of this one are here: so none of them lacks a multiprocessor while others wait
 * for it. */
INLINE void begin_kernel() {
#if STARTS_EARLY && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* A barrier of the threads that compute. */
INLINE void sync_compute_threads() {
#if FORM_WAVES
    asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
#else
    __syncthreads();
#endif
}

#if !FORM_NEWTON

/* Loads a thread's positions; `own` becomes their effect. Positions past the end have none. */
INLINE void load_positions(Cell &cell, const Tile &t, Cell::Kept (&kept)[STEPS], Effect (&own)[VECTOR]) {
#pragma unroll
    for (int v = 0; v < VECTOR; v++) own[v] = NO_EFFECT;
#pragma unroll
    for (int from = 0; from < STEPS; from += FETCH) {
        Cell::Raw raw[FETCH];
        if (t.whole && cell.there) {
#pragma unroll
            for (int k = 0; k < FETCH; k++) cell.load(t.first + from + k, from + k, raw[k]);
        } else {
#pragma unroll
            for (int k = 0; k < FETCH; k++) {
                if (from + k < t.due && cell.there)
                    cell.load(t.first + from + k, from + k, raw[k]);
                else
                    cell.load_none(from + k, raw[k]);
            }
        }
#pragma unroll
        for (int k = 0; k < FETCH; k++) {
            REAL a[VECTOR], b[VECTOR];
            bool due = cell.there && (t.whole || from + k < t.due);
            cell.early(t.first + from + k, from + k, due, raw[k], a, b, kept[from + k]);
#pragma unroll
            for (int v = 0; v < VECTOR; v++) own[v] = compose(own[v], effect_of(a[v], b[v]));
        }
    }
}

#endif

INLINE Effect shuffle_up(const Effect &e, int offset) {
    return {__shfl_up_sync(~0u, e.a, offset), __shfl_up_sync(~0u, e.b, offset), __shfl_up_sync(~0u, e.growth, offset),
            __shfl_up_sync(~0u, e.most, offset)};
}

/* Over the threads of a warp that have the same channels: `before` becomes the effect of those before this one (a and b alone), `own`
 * that of all up to this one. */
INLINE void compose_in_warp(Effect (&own)[VECTOR], Effect (&before)[VECTOR]) {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int v = 0; v < VECTOR; v++) {
#pragma unroll
        for (int offset = LANES; offset < 32; offset *= 2) {
            Effect other = shuffle_up(own[v], offset);
            if (lane >= offset) own[v] = compose(other, own[v]);
        }
        before[v] = NO_EFFECT;
        if (LANES < 32) {
            REAL a = __shfl_up_sync(~0u, own[v].a, LANES % 32), b = __shfl_up_sync(~0u, own[v].b, LANES % 32);
            if (lane >= LANES) before[v].a = a, before[v].b = b;
        }
    }
}

INLINE void store_totals(Effect (*totals)[CHANNELS], const Effect (&own)[VECTOR]) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    if (lane < 32 - LANES) return;
#pragma unroll
    for (int v = 0; v < VECTOR; v++) totals[warp][lane % LANES * VECTOR + v] = own[v];
}

/* Computes one segment after the other, from `carry` [CHANNELS], which becomes the state after the tile; sets h of broken channels. All
 * threads call it. */
INLINE void run_segments_serially(Cell &cell, const Tile &t, const Cell::Kept (&kept)[STEPS], REAL *carry,
                                  const bool *broken, REAL (&h)[VECTOR]) {
    const int lane = (int)threadIdx.x % LANES, segment = (int)threadIdx.x / LANES;
    sync_compute_threads();
    for (int s = 0; s < SEGMENTS; s++) {
        if (segment == s) {
            REAL x[VECTOR];
#pragma unroll
            for (int v = 0; v < VECTOR; v++) {
                x[v] = carry[lane * VECTOR + v];
                if (broken[lane * VECTOR + v]) h[v] = x[v];
            }
#pragma unroll
            for (int k = 0; k < STEPS; k++) {
                if (k < t.due) cell.advance(t.first + k, k, kept[k], x);
            }
#pragma unroll
            for (int v = 0; v < VECTOR; v++) carry[lane * VECTOR + v] = x[v];
        }
        sync_compute_threads();
    }
}

/* Computes and stores all that depends on the state, from the state before the thread's first position. */
INLINE void finish_positions(Cell &cell, const Tile &t, const Cell::Kept (&kept)[STEPS], REAL (&h)[VECTOR]) {
    long long first = t.first;
#ifdef __CUDACC__
    asm volatile("" : "+l"(first)); /* addresses are computed again, so that they need no registers since the loads */
#endif
    if (!cell.there) return;
    if (t.whole) {
#pragma unroll
        for (int from = 0; from < STEPS; from += BATCH) {
            Cell::Late late[BATCH];
#pragma unroll
            for (int k = 0; k < BATCH; k++) cell.load_late(first + from + k, late[k]);
#pragma unroll
            for (int k = 0; k < BATCH; k++) cell.late(first + from + k, from + k, kept[from + k], late[k], h);
        }
    } else {
#pragma unroll
        for (int k = 0; k < STEPS; k++) {
            Cell::Late late;
            if (k < t.due) {
                cell.load_late(first + k, late);
                cell.late(first + k, k, kept[k], late, h);
            }
        }
    }
}

/* Stores the sums of `late`, added up over the tile's segments in order. All threads call it. */
INLINE void store_sums(Cell &cell, long long tile) {
    if constexpr (Cell::HAS_SUM) {
        __shared__ REAL sums[SEGMENTS][CHANNELS];
        const int lane = (int)threadIdx.x % LANES, segment = (int)threadIdx.x / LANES;
#pragma unroll
        for (int v = 0; v < VECTOR; v++) sums[segment][lane * VECTOR + v] = cell.sum[v];
        sync_compute_threads();
        for (int c = (int)threadIdx.x; c < CHANNELS; c += THREADS) {
            REAL x = 0;
            for (int s = 0; s < SEGMENTS; s++) x += sums[s][c];
            cell.store_sum(tile, c, x);
        }
        sync_compute_threads();
    }
}
