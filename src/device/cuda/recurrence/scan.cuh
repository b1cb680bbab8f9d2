/* A recurrence h' = a h + b over time, channel by channel, in several forms. Stands behind map_element.cuh and macros:
 *   VECTOR    channels of a thread, side by side
 *   LANES     threads side by side: a power of two, at most 32
 *   STEPS     positions in time that a thread has
 *   FETCH     of these, that are loaded at once, and BATCH: once more when the state is known; they divide STEPS
 *   THREADS   of a block
 *   FORM_...  which of the kernels below, or of scan_waves.cuh
 *   WINDOW    of chained: tiles that a block looks back at; 0: it waits for the one before it
 *   MANY      of chained: a block takes tile after tile
 *   BLOCKS    of chained: of a processor
 *   STARTS_EARLY  a launch may not wait for the kernel before it: begin_kernel does
 * and behind `struct Cell`, which says what a and b are and what becomes of h.
 *
 * A tile is SEGMENTS * STEPS positions of CHANNELS channels, a chain all tiles of the same channels. What a tile does to the state
 * before it, h' = A h + B, is its effect; it is known as soon as the tile is loaded. Inside of a tile and between tiles effects are
 * composed in a fixed order, so results are the same every time. Where numbers overflow, or a product sinks to zero and the state is
 * large, an effect does not give what the steps give: such channels are taken one segment after the other.
 *
 * struct Cell has
 *   Args; Cell(args, chain, lane)           one thread's channels
 *   bool there                              whether it has any
 *   Raw, Kept, Late                         what is loaded for a position, kept of it until the state is known, and loaded then
 *   load(p, k, raw), load_late(p, late)     position p, the thread's k-th; nothing(k, raw): none
 *   early(p, k, due, raw, a, b, kept)       the position's own effect; none where it is not due
 *   advance(p, k, kept, h)                  h behind the position, exactly as late has it
 *   late(p, k, kept, late, h)               the same, and stores; the state behind the last position too
 *   marks(cell)                             what load has noted of positions, from another object of the same thread
 *   initial(h), initial_of(args, chain, c)  the state before the first position
 *   HAS_SUM, sum, put_sum(tile, c, x)       a sum over all positions that late adds to */

enum { SEGMENTS = THREADS / LANES, TILE = SEGMENTS * STEPS, WARPS = THREADS / 32 };

INLINE bool is_finite(float x) { return fabsf(x) <= 3.402823466e38f; }
INLINE bool is_finite(double x) { return fabs(x) <= 1.7976931348623157e308; }

/* h' = a h + b. No |b| on the way from the first step to the last is more than `most`, nor does |h| grow by more than `growth`. */
struct Effect {
    REAL a, b, growth, most;
};

#define NO_EFFECT                                                                                                      \
    { 1, 0, 1, 0 }

INLINE REAL size_of(REAL x) { return x < 0 ? -x : x; }

/* What sinks below the normal numbers becomes zero, and so says that it is not exact. */
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
INLINE Effect then(const Effect &first, const Effect &second) {
    return {product(first.a, second.a), second.a * first.b + second.b, first.growth * second.growth,
            second.growth * first.most + second.most};
}
/* Of one step. */
INLINE Effect effect_of(REAL a, REAL b) { return {a, b, size_of(a) > 1 ? size_of(a) : (REAL)1, size_of(b)}; }

/* The largest state for which an effect gives what its steps would, one after the other, but for roundings: none overflows on the way,
 * and a product that became zero loses at most 2^-126 (of double 2^-1022) of 2^20. Less than zero: none. */
INLINE REAL limit_of(const Effect &e) {
    const REAL half = sizeof(REAL) == 8 ? (REAL)8.98846567431158e307 : (REAL)1.7014118e38;
    if (!is_finite(e.a) || !is_finite(e.b)) return -1;
    REAL limit = (half - e.most) / e.growth;
    return e.a != 0 || limit < 1048576 ? limit : (REAL)1048576;
}
INLINE bool holds(REAL limit, REAL h) { return size_of(h) <= limit; } /* not for NaN */

/* ---- a tile ---- */

struct Tile {
    long long first; /* position of this thread's first step */
    int due;         /* steps that it has */
    bool whole;      /* all threads have all steps */
};
INLINE Tile tile_at(long long tile, int segment, long long steps) {
    long long first = tile * TILE + (long long)segment * STEPS, left = steps - first;
    return {first, left >= STEPS ? STEPS : left > 0 ? (int)left : 0, (tile + 1) * TILE <= steps};
}

/* A kernel that starts early is started while the one before it ends. From here on there is what that one wrote, and the next one may be
 * started: when all blocks of this one have come here, so that none of them is without a place while others wait for it. */
INLINE void begin_kernel() {
#if STARTS_EARLY && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* The threads that compute. */
INLINE void sync_team() {
#if FORM_WAVES
    asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
#else
    __syncthreads();
#endif
}

#if !FORM_NEWTON

/* Loads a thread's positions; answers their effect. What is left over past the end has none. */
INLINE void take_in(Cell &cell, const Tile &t, Cell::Kept (&kept)[STEPS], Effect (&own)[VECTOR]) {
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
                    cell.nothing(from + k, raw[k]);
            }
        }
#pragma unroll
        for (int k = 0; k < FETCH; k++) {
            REAL a[VECTOR], b[VECTOR];
            bool due = cell.there && (t.whole || from + k < t.due);
            cell.early(t.first + from + k, from + k, due, raw[k], a, b, kept[from + k]);
#pragma unroll
            for (int v = 0; v < VECTOR; v++) own[v] = then(own[v], effect_of(a[v], b[v]));
        }
    }
}

#endif

INLINE Effect from_lane_before(const Effect &e, int apart) {
    return {__shfl_up_sync(~0u, e.a, apart), __shfl_up_sync(~0u, e.b, apart), __shfl_up_sync(~0u, e.growth, apart),
            __shfl_up_sync(~0u, e.most, apart)};
}

/* Of the threads of a warp that have the same channels: what those before this one do (a and b alone). The last ones answer for all of
 * them. */
INLINE void compose_in_warp(Effect (&own)[VECTOR], Effect (&before)[VECTOR]) {
    const int lane = (int)threadIdx.x % 32;
#pragma unroll
    for (int v = 0; v < VECTOR; v++) {
#pragma unroll
        for (int apart = LANES; apart < 32; apart *= 2) {
            Effect other = from_lane_before(own[v], apart);
            if (lane >= apart) own[v] = then(other, own[v]);
        }
        before[v] = NO_EFFECT;
        if (LANES < 32) {
            REAL a = __shfl_up_sync(~0u, own[v].a, LANES % 32), b = __shfl_up_sync(~0u, own[v].b, LANES % 32);
            if (lane >= LANES) before[v].a = a, before[v].b = b;
        }
    }
}

INLINE void put_totals(Effect (*totals)[CHANNELS], const Effect (&own)[VECTOR]) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    if (lane < 32 - LANES) return;
#pragma unroll
    for (int v = 0; v < VECTOR; v++) totals[warp][lane % LANES * VECTOR + v] = own[v];
}

/* One segment after the other, from `carry` on, [CHANNELS], which ends as the state behind the tile; h of the channels that are broken.
 * All threads. */
INLINE void take_in_turns(Cell &cell, const Tile &t, const Cell::Kept (&kept)[STEPS], REAL *carry, const bool *broken,
                          REAL (&h)[VECTOR]) {
    const int lane = (int)threadIdx.x % LANES, segment = (int)threadIdx.x / LANES;
    sync_team();
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
        sync_team();
    }
}

/* From the state before the thread's first step: all that depends on it. */
INLINE void give_out(Cell &cell, const Tile &t, const Cell::Kept (&kept)[STEPS], REAL (&h)[VECTOR]) {
    long long first = t.first;
#ifdef __CUDACC__
    asm volatile("" : "+l"(first)); /* addresses are computed anew: they need not live since they were loaded from */
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

/* What late has added up, over the tile's segments in order. All threads. */
INLINE void put_sums(Cell &cell, long long tile) {
    if constexpr (Cell::HAS_SUM) {
        __shared__ REAL sums[SEGMENTS][CHANNELS];
        const int lane = (int)threadIdx.x % LANES, segment = (int)threadIdx.x / LANES;
#pragma unroll
        for (int v = 0; v < VECTOR; v++) sums[segment][lane * VECTOR + v] = cell.sum[v];
        sync_team();
        for (int c = (int)threadIdx.x; c < CHANNELS; c += THREADS) {
            REAL x = 0;
            for (int s = 0; s < SEGMENTS; s++) x += sums[s][c];
            cell.put_sum(tile, c, x);
        }
        sync_team();
    }
}
