/* Form `waves` of a scan. Follows scan.cuh. Macros:
 *   PIECES, LATE_PIECES  pieces of the rings in shared memory: of what is loaded early, and late (0: nothing)
 *   PIECE_WARPS          warps that read a piece
 *   AHEAD                waves from the effect of a tile to its steps
 *   SLOTS                waves whose words are kept: blocks are never further apart
 *   LOOK                 words that are requested at once
 *   HELPERS              threads after those that compute: three warps
 * and `struct Cell` reads its rows from the rings: Cell::rows, Cell::late_rows.
 *
 * One block a multiprocessor, all of them on the GPU at once. The blocks of a chain are its members; in a wave each has a tile, next to
 * those of the others. Every block computes the effect of the whole wave from the effects of all members, and so knows the state before
 * the next wave. No state passes from block to block, only effects do, and these depend on the data alone. A tile's effect is published
 * AHEAD waves before its steps are computed, which hides its latency.
 *
 * THREADS threads compute. The first helper warp has pieces copied by the tensor memory accelerator, no more at once than keep memory
 * busy: words of effects queue behind them. The second composes the effects of the members of a group, and one member publishes the
 * result. The third follows the state over all groups.
 *
 * Where a wave's effects do not hold for a channel, all members find that. Such a broken channel is computed one tile after the other:
 * each member publishes the state after its tile. */

static_assert(CHANNELS == 32, "a lane of a warp has a channel");

enum {
    QUEUE = 4, /* states that may be known before they are used: at most AHEAD + 1 are */
    LATE_SLOTS = LATE_PIECES ? LATE_PIECES : 1
};
static_assert(QUEUE > AHEAD + 1 && SLOTS > 3 * AHEAD && HELPERS == 96,
              "states and words in use are not overwritten, and three warps help");

/* ---- barriers and copies ---- */

INLINE unsigned shared_address(const void *at) { return (unsigned)__cvta_generic_to_shared(at); }

struct Barrier {
    unsigned long long word;
    INLINE void open(int arrivals) {
        asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(this)), "r"(arrivals) : "memory");
    }
    INLINE void arrive() { asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(this)) : "memory"); }
    INLINE void expect(int bytes) {
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(this)), "r"(bytes)
                     : "memory");
    }
    /* Waits for phase n, from 0 on, to end. */
    INLINE void wait(int n) const {
        asm volatile("{ .reg .pred passed;\nlook: mbarrier.try_wait.parity.shared.b64 passed, [%0], %1;\n"
                     "@passed bra seen;\nbra look;\nseen: }" ::"r"(shared_address(this)),
                     "r"(n & 1)
                     : "memory");
    }
};

/* The tensor map of an array [steps, all channels]. */
struct alignas(64) Map {
    unsigned long long words[16];
};
struct Maps {
    Map early[2], late;
};

/* PIECE steps from `step` on, of CHANNELS channels from `channel` on; what lies outside of the array is zero. */
INLINE void copy_piece(unsigned to, const Map &map, int channel, int step, const Barrier &full) {
#if STREAMED
    unsigned long long once;
    asm("createpolicy.fractional.L2::evict_first.b64 %0;" : "=l"(once));
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
        "[%1, {%2, %3}], [%4], %5;" ::"r"(to),
        "l"(&map), "r"(channel), "r"(step), "r"(shared_address(&full)), "l"(once)
        : "memory");
#else
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], "
        "[%4];" ::"r"(to),
        "l"(&map), "r"(channel), "r"(step), "r"(shared_address(&full))
        : "memory");
#endif
}

/* ---- effects of several tiles ---- */

/* h' = a h + b, which holds for |h| up to the limit. */
struct Span {
    REAL a, b, limit;
};

/* `second` must hold for the result of `first`, at most |a| |h| + |b|. The limit never grows: where a composition holds, so do all that
 * it begins with. */
INLINE Span compose(const Span &first, const Span &second) {
    const REAL room = (REAL)0.999 * (second.limit - magnitude(first.b));
    Span both = {product(first.a, second.a), second.a * first.b + second.b, first.limit};
    if (!(first.limit >= 0))
        both.limit = -1;
    else if (!(magnitude(first.a) * first.limit <= room))
        both.limit = room / magnitude(first.a);
    if (both.a == 0 && both.limit > 1048576) both.limit = 1048576; /* as limit_of */
    return both;
}

/* Waits for `count` neighbouring words, at most LOOK. Called by a warp, a channel a lane; all are requested again until the last has come. */
INLINE void gather(const Word *from, int count, unsigned mark, Word (&got)[LOOK]) {
#pragma unroll
    for (int i = 0; i < LOOK; i++) got[i].mark = i < count ? ~mark : mark;
    for (bool all = false; !all;) {
#pragma unroll
        for (int i = 0; i < LOOK; i++) {
            if (got[i].mark != mark) got[i] = read_word(from + i * CHANNELS);
        }
        all = true;
#pragma unroll
        for (int i = 0; i < LOOK; i++) all = all && got[i].mark == mark;
        all = __all_sync(~0u, all);
    }
}

/* ---- the kernel ---- */

struct Waves {
    Barrier full[PIECES], empty[PIECES], late_full[LATE_SLOTS], late_empty[LATE_SLOTS];
    Barrier ready[QUEUE], grouped[QUEUE];
    Effect totals[2][WARPS][CHANNELS];
    Span before[QUEUE][CHANNELS]; /* the effect of the members of the group before this one */
    REAL state[QUEUE][CHANNELS];  /* before the tile */
    bool broken[QUEUE][CHANNELS];
    int any_broken[QUEUE];
    REAL carry[CHANNELS];
};

/* A block's chain, member and wave, and the chain's words: of every wave those of all members, of all groups, and for broken channels the
 * states after all members. */
struct Place {
    long long steps;
    int chains, chain, members, member, group, groups, waves;
    unsigned first_mark;
    Word *words;

    INLINE Word *row(int wave, int from) const {
        const long long a_chain = 2 * members + groups;
        return words + (((wave % SLOTS) * (long long)chains + chain) * a_chain + from) * CHANNELS;
    }
    INLINE Word *effects(int wave) const { return row(wave, 0); }
    INLINE Word *states(int wave) const { return row(wave, members); }
    INLINE Word *of_groups(int wave) const { return row(wave, 2 * members); }
    INLINE unsigned mark(int wave) const { return first_mark + (unsigned)wave; }
    INLINE long long tile(int wave) const { return (long long)wave * members + member; }
    INLINE int piece_begin(int piece) const {
        return (int)(tile(piece / TILE_PIECES) * TILE) + piece % TILE_PIECES * PIECE;
    }
    /* The first time step of a piece. */
    INLINE int piece_step(int piece) const {
        return DOWN ? (int)steps - piece_begin(piece) - PIECE : piece_begin(piece);
    }
};

/* Called by one thread. `depth`: most pieces in flight. */
INLINE void copy_pieces(Waves &shared, const Place &at, const Maps &maps, unsigned data, bool both, bool late,
                        int depth) {
    const int count = at.waves * TILE_PIECES, lag = AHEAD * TILE_PIECES, channel = at.chain * CHANNELS;
    for (int n = 0; n < count + (late ? lag : 0); n++) {
        if (n < count) {
            const int slot = n % PIECES;
            const unsigned to = data + slot * 2 * PIECE_BYTES;
            if (n >= PIECES) shared.empty[slot].wait(n / PIECES - 1);
            if (n >= depth) shared.full[(n - depth) % PIECES].wait((n - depth) / PIECES);
            shared.full[slot].expect(both ? 2 * PIECE_BYTES : PIECE_BYTES);
            copy_piece(to, maps.early[0], channel, at.piece_step(n), shared.full[slot]);
            if (both) copy_piece(to + PIECE_BYTES, maps.early[1], channel, at.piece_step(n), shared.full[slot]);
        }
        if (late && n >= lag) {
            const int m = n - lag, slot = m % LATE_SLOTS;
            if (m >= LATE_PIECES) shared.late_empty[slot].wait(m / LATE_SLOTS - 1);
            shared.late_full[slot].expect(PIECE_BYTES);
            copy_piece(data + PIECES * 2 * PIECE_BYTES + slot * PIECE_BYTES, maps.late, channel,
                       at.piece_step(m) + Cell::LATE_SHIFT, shared.late_full[slot]);
        }
    }
}

/* Called by a warp: composes the effects of the members of this one's group. */
INLINE void join_group(Waves &shared, const Place &at) {
    const int c = (int)threadIdx.x % 32, group = at.member / at.group, first = group * at.group;
    const int count = at.members - first < at.group ? at.members - first : at.group;
    for (int wave = 0; wave < at.waves; wave++) {
        Span all = {1, 0, infinity()}, before = all;
        for (int i = 0; i < count; i += LOOK) {
            Word got[LOOK];
            gather(at.effects(wave) + (first + i) * CHANNELS + c, count - i, at.mark(wave), got);
#pragma unroll
            for (int j = 0; j < LOOK; j++) {
                if (i + j >= count) continue;
                if (first + i + j == at.member) before = all;
                all = compose(all, Span{got[j].a, got[j].b, got[j].h});
            }
        }
        if (at.member == first)
            publish_word(at.of_groups(wave) + group * CHANNELS + c, all.a, all.b, all.limit, at.mark(wave));
        shared.before[wave % QUEUE][c] = before;
        __syncwarp();
        if (c == 0) shared.grouped[wave % QUEUE].arrive();
    }
}

/* The word of a broken channel, which is published when its tile is done. */
INLINE REAL await_state(const Word *from, unsigned mark) {
    Word word = read_word(from);
    while (word.mark != mark) word = read_word(from);
    return word.h;
}

/* Called by a warp: the state before this member's tile in every wave, from the initial state on. */
INLINE void follow_states(Waves &shared, const Place &at, REAL h) {
    const int c = (int)threadIdx.x % 32, group = at.member / at.group;
    for (int wave = 0; wave < at.waves; wave++) {
        const Word *from = (at.group > 1 ? at.of_groups(wave) : at.effects(wave)) + c;
        const unsigned mark = at.mark(wave);
        const int q = wave % QUEUE;
        const REAL start = h;
        REAL before = h;
        bool sound = true;
        for (int i = 0; i < at.groups; i += LOOK) {
            Word got[LOOK];
            gather(from + i * CHANNELS, at.groups - i, mark, got);
#pragma unroll
            for (int j = 0; j < LOOK; j++) {
                if (i + j >= at.groups) continue;
                if (i + j == group) before = h;
                sound = sound && holds(got[j].h, h);
                h = got[j].a * h + got[j].b;
            }
        }
        if (at.group > 1) {
            shared.grouped[q].wait(wave / QUEUE);
            before = shared.before[q][c].a * before + shared.before[q][c].b;
        }
        if (!sound) before = at.member ? await_state(at.states(wave) + (at.member - 1) * CHANNELS + c, mark) : start;
        const bool any = __any_sync(~0u, !sound);
        shared.state[q][c] = before;
        shared.broken[q][c] = !sound;
        if (c == 0) shared.any_broken[q] = any;
        __syncwarp();
        if (c == 0) shared.ready[q].arrive();
        if (!sound) h = await_state(at.states(wave) + (at.members - 1) * CHANNELS + c, mark);
    }
}

/* What a thread keeps of a tile until it computes its steps: the effect of the warps before its own on channel threadIdx.x % 32, and the
 * effect of the threads before it in its warp on its own channels. */
struct Known {
    REAL warps_a, warps_b, a[VECTOR], b[VECTOR];
};

/* Computes and publishes the effect of a tile; returns what is kept of it. */
INLINE Known find_effect(Cell &cell, Waves &shared, const Place &at, int wave, unsigned data) {
    const int thread = (int)threadIdx.x, segment = thread / LANES, warp = thread / 32, c = thread % 32;
    const int piece = wave * TILE_PIECES + warp / PIECE_WARPS;
    Cell::Kept kept[STEPS];
    Effect effects[VECTOR], here[VECTOR], all = NO_EFFECT;
    Known known;
    shared.full[piece % PIECES].wait(piece / PIECES);
    cell.rows = Cell::rows_of(data + piece % PIECES * 2 * PIECE_BYTES, at.piece_begin(piece));
    load_positions(cell, tile_at(at.tile(wave), segment, at.steps), kept, effects);
    compose_in_warp(effects, here);
#pragma unroll
    for (int v = 0; v < VECTOR; v++) known.a[v] = here[v].a, known.b[v] = here[v].b;
    store_totals(shared.totals[wave & 1], effects);
    sync_compute_threads();
#pragma unroll
    for (int w = 0; w < WARPS - 1; w++) {
        if (w < warp) all = compose(all, shared.totals[wave & 1][w][c]);
    }
    known.warps_a = all.a, known.warps_b = all.b;
    if (warp == WARPS - 1) {
        all = compose(all, shared.totals[wave & 1][warp][c]);
        publish_word(at.effects(wave) + at.member * CHANNELS + c, all.a, all.b, limit_of(all), at.mark(wave));
    }
    return known;
}

/* Loads a tile into registers, which frees its piece of the ring. */
INLINE void load_tile(Cell &cell, Waves &shared, const Place &at, int wave, unsigned data, Cell::Kept (&kept)[STEPS]) {
    const int thread = (int)threadIdx.x, piece = wave * TILE_PIECES + thread / 32 / PIECE_WARPS;
    Effect effects[VECTOR];
    cell.rows = Cell::rows_of(data + piece % PIECES * 2 * PIECE_BYTES, at.piece_begin(piece));
    load_positions(cell, tile_at(at.tile(wave), thread / LANES, at.steps), kept, effects);
    __syncwarp();
    if (thread % 32 == 0) shared.empty[piece % PIECES].arrive();
}

INLINE void compute_steps(Cell &cell, Waves &shared, const Place &at, int wave, const Known &known, unsigned late_data,
                          bool late, long long tiles, const Cell::Kept (&kept)[STEPS]) {
    const int thread = (int)threadIdx.x, lane = thread % LANES, c = thread % 32, q = wave % QUEUE;
    const int piece = wave * TILE_PIECES + thread / 32 / PIECE_WARPS, slot = piece % LATE_SLOTS;
    const Tile t = tile_at(at.tile(wave), thread / LANES, at.steps);
    REAL h[VECTOR];
    shared.ready[q].wait(wave / QUEUE);
    const REAL before = known.warps_a * shared.state[q][c] + known.warps_b;
#pragma unroll
    for (int v = 0; v < VECTOR; v++) h[v] = known.a[v] * __shfl_sync(~0u, before, lane * VECTOR + v) + known.b[v];
    if (shared.any_broken[q]) {
        if (thread < CHANNELS) shared.carry[thread] = shared.state[q][thread];
        run_segments_serially(cell, t, kept, shared.carry, shared.broken[q], h);
        if (thread < CHANNELS && shared.broken[q][thread])
            publish_word(at.states(wave) + at.member * CHANNELS + thread, 0, 0, shared.carry[thread], at.mark(wave));
    }
    if (late) {
        shared.late_full[slot].wait(piece / LATE_SLOTS);
        cell.late_rows = Cell::rows_of(late_data + slot * PIECE_BYTES, at.piece_begin(piece));
    }
    finish_positions(cell, t, kept, h);
    if (late) {
        __syncwarp();
        if (c == 0) shared.late_empty[slot].arrive();
    }
    if (at.tile(wave) < tiles) store_sums(cell, at.tile(wave));
    cell.begin_sum();
}

/* `depth`: see copy_pieces. */
extern "C" __global__ void __launch_bounds__(THREADS + HELPERS, 1)
    scan_kernel(const __grid_constant__ Cell::Args args, const __grid_constant__ Maps maps, long long steps, int chains,
                long long tiles, int members, int group, int depth, Head *head, Word *words) {
    begin_kernel();
    extern __shared__ __align__(128) char pieces[];
    __shared__ Waves shared;
    const int thread = (int)threadIdx.x, warp = thread / 32;
    const unsigned call = *(volatile unsigned *)&head->call, data = shared_address(pieces);
    Place at;
    at.steps = steps;
    at.chains = chains, at.chain = (int)blockIdx.x % chains;
    at.members = members, at.member = (int)blockIdx.x / chains;
    at.group = group, at.groups = (members + group - 1) / group;
    at.waves = (int)((tiles + members - 1) / members);
    at.first_mark = call + 1;
    at.words = words;
    if (thread == 0) {
        for (int i = 0; i < PIECES; i++) shared.full[i].open(1), shared.empty[i].open(PIECE_WARPS);
        for (int i = 0; i < LATE_PIECES; i++) shared.late_full[i].open(1), shared.late_empty[i].open(PIECE_WARPS);
        for (int i = 0; i < QUEUE; i++) shared.ready[i].open(1), shared.grouped[i].open(1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    const bool both = Cell::has_both(args), late = Cell::has_late(args);
    if (warp == WARPS) {
        if (thread % 32 == 0) copy_pieces(shared, at, maps, data, both, late, depth);
    } else if (warp == WARPS + 1) {
        if (group > 1) join_group(shared, at);
    } else if (warp == WARPS + 2) {
        follow_states(shared, at, Cell::initial_of(args, at.chain, thread % 32));
    } else {
        Cell ahead(args, at.chain, thread % LANES), cell(args, at.chain, thread % LANES);
        Cell::Kept kept[STEPS];
        Known known[AHEAD + 1];
        for (int wave = -AHEAD; wave < at.waves; wave++) {
#pragma unroll
            for (int i = AHEAD; i > 0; i--) known[i] = known[i - 1];
            if (wave + AHEAD < at.waves) known[0] = find_effect(ahead, shared, at, wave + AHEAD, data);
            if (wave >= 0)
                compute_steps(cell, shared, at, wave, known[AHEAD], data + PIECES * 2 * PIECE_BYTES, late, tiles, kept);
            if (wave + 1 >= 0 && wave + 1 < at.waves) load_tile(cell, shared, at, wave + 1, data, kept);
        }
        if (thread == 0 && atomicAdd(&head->ended, 1) == gridDim.x - 1) {
            head->ended = 0;
            __threadfence();
            head->call = call + (unsigned)at.waves;
        }
    }
}
