/* Form `chained`: one pass over memory, a tile a block. A block publishes its tile's effect, finds the state before the tile from what the
 * tiles before it have published, and publishes the state after it. Follows scan.cuh. */

#if FORM_CHAINED || FORM_WAVES

/* A channel of a tile: its effect and the limit of that (in h), later the state after it (in h); the mark says which. One access of 16
 * bytes: a thread that reads the mark reads the rest of the same store, without a fence. */
struct Word {
    float a, b, h;
    unsigned mark;
};

#ifdef __CUDACC__
INLINE void publish_word(Word *to, float a, float b, float h, unsigned mark) {
    asm volatile(
        "{ .reg .b128 q; .reg .b64 low, high; mov.b64 low, {%1, %2}; mov.b64 high, {%3, %4}; mov.b128 q, {low, high};\n"
        "st.relaxed.gpu.global.b128 [%0], q; }" ::"l"(to),
        "r"(__float_as_uint(a)), "r"(__float_as_uint(b)), "r"(__float_as_uint(h)), "r"(mark)
        : "memory");
}
INLINE Word read_word(const Word *from) {
    unsigned a, b, h, mark;
    asm volatile("{ .reg .b128 q; .reg .b64 low, high; ld.relaxed.gpu.global.b128 q, [%4]; mov.b128 {low, high}, q;\n"
                 "mov.b64 {%0, %1}, low; mov.b64 {%2, %3}, high; }"
                 : "=r"(a), "=r"(b), "=r"(h), "=r"(mark)
                 : "l"(from)
                 : "memory");
    return {__uint_as_float(a), __uint_as_float(b), __uint_as_float(h), mark};
}
#endif

/* Counters before the words. Blocks take tiles in order by the ticket, so that all tiles before one are done or in progress. The last
 * block of a call increments `call`, from which marks follow: so those of the next call differ and nothing has to be cleared. */
struct Head {
    unsigned ticket, ended, call, unused[13];
};

#endif

#if FORM_CHAINED

/* The state before this tile, of channel c, from the words of the WINDOW tiles before it, [WINDOW, CHANNELS], nearest first; returns
 * whether it is known. It starts from the nearest tile whose state is known and applies the effects of the tiles after that, in order:
 * the same operations by which those tiles find their own states, so the bits do not depend on the distance. */
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

/* The effect of a tile on a channel, and the state before the tile. */
struct Whole {
    REAL a, b, limit, before;
};

/* The state before a tile is known: publishes the state after it, or marks the channel as broken. */
INLINE void publish_state(Whole &whole, bool &broken, int *any_broken, Word *own, unsigned state, REAL h) {
    whole.before = h;
    broken = !holds(whole.limit, h);
    if (broken)
        *any_broken = 1;
    else
        publish_word(own, whole.a, whole.b, whole.a * h + whole.b, state);
}

/* Reads words of earlier tiles until the state before the tile is known. All threads call it. `own`: the tile's first word. */
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
                seen[n] = read_word(own - (long long)distance * CHANNELS + i % CHANNELS);
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
                if (all && c < CHANNELS) publish_state(whole[c], broken[c], any_broken, own + c, state, h[part]);
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
        if (WINDOW == 0 && thread < CHANNELS && tile) came = read_word(own - CHANNELS + thread);
        load_positions(cell, t, kept, effects);
        compose_in_warp(effects, here);
        store_totals(totals, effects);
        __syncthreads();
        if (thread < CHANNELS) { /* CHANNELS <= THREADS */
            Effect all = NO_EFFECT;
#pragma unroll
            for (int w = 0; w < WARPS; w++) {
                Effect one = totals[w][thread];
                totals[w][thread] = all; /* of the warps before this one */
                all = compose(all, one);
            }
            Whole &mine = whole[thread];
            mine.a = all.a, mine.b = all.b, mine.limit = limit_of(all);
            if (tile == 0) {
                publish_state(mine, broken[thread], &any_broken, own + thread, state,
                              Cell::initial_of(args, chain, thread));
            } else if (WINDOW == 0) {
                while (came.mark != state) came = read_word(own - CHANNELS + thread);
                publish_state(mine, broken[thread], &any_broken, own + thread, state, came.h);
            } else if (mine.limit >= 0) {
                publish_word(own + thread, mine.a, mine.b, mine.limit, effect);
            }
        }
        if (thread == 0) tickets[n & 1] = next;
        if (WINDOW && tile)
            look_back(own, tile, effect, state, whole, broken, &any_broken); /* begins with a barrier */
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
            run_segments_serially(cell, t, kept, carry, broken, h);
            if (thread < CHANNELS && broken[thread]) publish_word(own + thread, 0, 0, carry[thread], state);
        }
        finish_positions(cell, t, kept, h);
        store_sums(cell, tile);
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
