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

/* ---- serial, channels: a thread has all of time ---- */

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
        for (int v = 0; v < VECTOR; v++) cell.put_sum(0, (int)(number % LANES) * VECTOR + v, cell.sum[v]);
    }
}

#endif

#if FORM_CHANNELS

/* STEPS positions are on their way while those before them are computed. */
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
        cell.marks(ahead);
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
        for (int v = 0; v < VECTOR; v++) cell.put_sum(0, (int)(number % LANES) * VECTOR + v, cell.sum[v]);
    }
}

#endif

/* ---- chained: a tile a block, in one pass over memory ---- */

#if FORM_CHAINED || FORM_WAVES

/* Of a channel of a tile: its effect and the limit of that (in h), then the state behind it, with a mark that says which of them is
 * there. In one word of 16 bytes, so that who sees the mark sees the rest. */
struct Word {
    float a, b, h;
    unsigned mark;
};

#ifdef __CUDACC__
INLINE void put_word(Word *to, float a, float b, float h, unsigned mark) {
    asm volatile(
        "{ .reg .b128 q; .reg .b64 low, high; mov.b64 low, {%1, %2}; mov.b64 high, {%3, %4}; mov.b128 q, {low, high};\n"
        "st.relaxed.gpu.global.b128 [%0], q; }" ::"l"(to),
        "r"(__float_as_uint(a)), "r"(__float_as_uint(b)), "r"(__float_as_uint(h)), "r"(mark)
        : "memory");
}
INLINE Word get_word(const Word *from) {
    unsigned a, b, h, mark;
    asm volatile("{ .reg .b128 q; .reg .b64 low, high; ld.relaxed.gpu.global.b128 q, [%4]; mov.b128 {low, high}, q;\n"
                 "mov.b64 {%0, %1}, low; mov.b64 {%2, %3}, high; }"
                 : "=r"(a), "=r"(b), "=r"(h), "=r"(mark)
                 : "l"(from)
                 : "memory");
    return {__uint_as_float(a), __uint_as_float(b), __uint_as_float(h), mark};
}
#endif

/* Before the words. Blocks take tiles in order, so that those before a tile are always somewhere under way; the last one to end makes
 * the next call's marks others than this call's. */
struct Head {
    unsigned ticket, ended, call, unused[13];
};

#endif

#if FORM_CHAINED

/* The state before this tile, of channel c, from the WINDOW tiles before it, [WINDOW, CHANNELS], nearest first; answers whether it
 * follows. From the nearest tile behind which it is known, the effects of those nearer are applied, oldest first: the same sums as those
 * by which it became known behind each of them. */
INLINE bool resolve(const Word (*look)[CHANNELS], int c, unsigned effect, unsigned state, REAL &h) {
    unsigned long long known = 0, there = 0;
#pragma unroll
    for (int d = 0; d < WINDOW; d++) {
        unsigned mark = look[d][c].mark;
        known |= (unsigned long long)(mark == state) << d;
        there |= (unsigned long long)(mark == effect) << d;
    }
    unsigned long long nearer = (known & (~known + 1)) - 1;
    if (!known || (there & nearer) != nearer) return false;
    int d = __popcll(nearer);
    h = look[d][c].h;
    bool sound = true;
#pragma unroll 4
    while (d-- > 0) {
        Word word = look[d][c];
        sound = sound && holds(word.h, h);
        h = word.a * h + word.b;
    }
    return sound;
}

/* What a tile does, of each channel, with the state before it. */
struct Whole {
    REAL a, b, limit, before;
};

/* The state before a tile is known: the one behind it follows, or does not. */
INLINE void go_on(Whole &whole, bool &broken, int *any_broken, Word *own, unsigned state, REAL h) {
    whole.before = h;
    broken = !holds(whole.limit, h);
    if (broken)
        *any_broken = 1;
    else
        put_word(own, whole.a, whole.b, whole.a * h + whole.b, state);
}

/* Looks until the state before the tile is known. All threads. `own`: the tile's first word. */
INLINE void look_back(Word *own, long long tile, unsigned effect, unsigned state, Whole *whole, bool *broken,
                      int *any_broken) {
    __shared__ Word look[WINDOW ? WINDOW : 1][CHANNELS];
    __shared__ int found[2];
    constexpr int EACH = (WINDOW * CHANNELS + THREADS - 1) / THREADS;
    for (int turn = 0;; turn ^= 1) {
        Word seen[EACH ? EACH : 1];
#pragma unroll
        for (int n = 0; n < EACH; n++) {
            int i = (int)threadIdx.x + n * THREADS, distance = i / CHANNELS + 1;
            seen[n].mark = 0;
            if (i < WINDOW * CHANNELS && tile >= distance)
                seen[n] = get_word(own - (long long)distance * CHANNELS + i % CHANNELS);
        }
#pragma unroll
        for (int n = 0; n < EACH; n++) {
            int i = (int)threadIdx.x + n * THREADS;
            if (i < WINDOW * CHANNELS) look[i / CHANNELS][i % CHANNELS] = seen[n];
        }
        __syncthreads();
        if (threadIdx.x < 32) {
            constexpr int PARTS = (CHANNELS + 31) / 32;
            REAL h[PARTS];
            bool all = true;
#pragma unroll
            for (int part = 0; part < PARTS; part++) {
                int c = (int)threadIdx.x + part * 32;
                if (c < CHANNELS) all = resolve(look, c, effect, state, h[part]) && all;
            }
            all = __all_sync(~0u, all);
#pragma unroll
            for (int part = 0; part < PARTS; part++) {
                int c = (int)threadIdx.x + part * 32;
                if (all && c < CHANNELS) go_on(whole[c], broken[c], any_broken, own + c, state, h[part]);
            }
            if (threadIdx.x == 0) found[turn] = all;
        }
        __syncthreads();
        if (found[turn]) return;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    scan_kernel(const __grid_constant__ Cell::Args args, long long steps, int chains, long long tiles, Head *head,
                Word *words) {
    begin_kernel();
    __shared__ Effect totals[WARPS][CHANNELS];
    __shared__ Whole whole[CHANNELS];
    __shared__ REAL carry[CHANNELS];
    __shared__ unsigned tickets[2];
    __shared__ bool broken[CHANNELS];
    __shared__ int any_broken;
    const int thread = (int)threadIdx.x, lane = thread % LANES, segment = thread / LANES, warp = thread / 32;
    const unsigned call = *(volatile unsigned *)&head->call, effect = 2 * call + 1, state = 2 * call + 2;
    const unsigned count = (unsigned)(chains * tiles);
    if (thread == 0) tickets[0] = atomicAdd(&head->ticket, 1), any_broken = 0;
    __syncthreads();
    unsigned ticket = tickets[0];
    for (int n = 1; ticket < count; n++) {
        const long long tile = ticket / chains;
        const int chain = (int)(ticket % chains);
        unsigned next = ~0u;
        if (MANY && thread == 0) next = atomicAdd(&head->ticket, 1);
        Word *own = words + (chain * tiles + tile) * CHANNELS;
        Cell cell(args, chain, lane);
        const Tile t = tile_at(tile, segment, steps);
        Cell::Kept kept[STEPS];
        Effect effects[VECTOR], here[VECTOR];
        Word came = {0, 0, 0, 0};
        if (WINDOW == 0 && thread < CHANNELS && tile) came = get_word(own - CHANNELS + thread);
        take_in(cell, t, kept, effects);
        compose_in_warp(effects, here);
        put_totals(totals, effects);
        __syncthreads();
        if (thread < CHANNELS) { /* of which there are at most THREADS */
            Effect all = NO_EFFECT;
#pragma unroll
            for (int w = 0; w < WARPS; w++) {
                Effect one = totals[w][thread];
                totals[w][thread] = all; /* what comes before the warp */
                all = then(all, one);
            }
            Whole &mine = whole[thread];
            mine.a = all.a, mine.b = all.b, mine.limit = limit_of(all);
            if (tile == 0) {
                go_on(mine, broken[thread], &any_broken, own + thread, state, Cell::initial_of(args, chain, thread));
            } else if (WINDOW == 0) {
                while (came.mark != state) came = get_word(own - CHANNELS + thread);
                go_on(mine, broken[thread], &any_broken, own + thread, state, came.h);
            } else if (mine.limit >= 0) {
                put_word(own + thread, mine.a, mine.b, mine.limit, effect);
            }
        }
        if (thread == 0) tickets[n & 1] = next;
        if (WINDOW && tile)
            look_back(own, tile, effect, state, whole, broken, &any_broken); /* it waits for all threads first */
        else
            __syncthreads();
        REAL h[VECTOR];
#pragma unroll
        for (int v = 0; v < VECTOR; v++) {
            const int c = lane * VECTOR + v;
            h[v] = here[v].a * (totals[warp][c].a * whole[c].before + totals[warp][c].b) + here[v].b;
        }
        if (any_broken) {
            if (thread < CHANNELS) carry[thread] = whole[thread].before;
            take_in_turns(cell, t, kept, carry, broken, h);
            if (thread < CHANNELS && broken[thread]) put_word(own + thread, 0, 0, carry[thread], state);
        }
        give_out(cell, t, kept, h);
        put_sums(cell, tile);
        ticket = tickets[n & 1];
        __syncthreads();
        if (thread == 0) any_broken = 0;
    }
    if (thread == 0) {
        if (atomicAdd(&head->ended, 1) == gridDim.x - 1) {
            head->ticket = 0;
            head->ended = 0;
            __threadfence();
            head->call = call + 1;
        }
    }
}

#endif

/* ---- three: effects of all tiles, then states before them, then the rest ---- */

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
    take_in(cell, tile_at(tile, segment, steps), kept, own);
    compose_in_warp(own, here);
    put_totals(totals, own);
    __syncthreads();
    for (int c = thread; c < CHANNELS; c += THREADS) {
        Effect all = NO_EFFECT;
        for (int w = 0; w < WARPS; w++) all = then(all, totals[w][c]);
        effects[(tile * chains + chain) * CHANNELS + c] = all;
    }
}

/* Effects become states before the tiles (in b). Where these do not follow from effects, step by step. */
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
    take_in(cell, t, kept, own);
    compose_in_warp(own, here);
    put_totals(totals, own);
    __syncthreads();
    for (int c = thread; c < CHANNELS; c += THREADS) {
        Effect all = NO_EFFECT;
        for (int w = 0; w < WARPS; w++) all = then(all, totals[w][c]);
        carry[c] = states[(tile * chains + chain) * CHANNELS + c].b;
        broken[c] = !holds(limit_of(all), carry[c]);
        if (broken[c]) any_broken = 1;
    }
    __syncthreads();
    REAL h[VECTOR];
#pragma unroll
    for (int v = 0; v < VECTOR; v++) {
        Effect all = NO_EFFECT;
        for (int w = 0; w < warp; w++) all = then(all, totals[w][lane * VECTOR + v]);
        all = then(all, here[v]);
        h[v] = all.a * carry[lane * VECTOR + v] + all.b;
    }
    if (any_broken) take_in_turns(cell, t, kept, carry, broken, h);
    give_out(cell, t, kept, h);
    put_sums(cell, tile);
}

#endif

/* ---- newton: where the next state is no affine function of the state ---- */

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

/* Sums of tiles, [tiles, channels], added up in order. */
#if FORM_SUM
extern "C" __global__ void sum_kernel(const REAL *parts, long long tiles, long long channels, REAL *sum) {
    begin_kernel();
    long long c = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= channels) return;
    REAL x = sum[c];
    for (long long tile = 0; tile < tiles; tile++) x += parts[tile * channels + c];
    sum[c] = x;
}
#endif
