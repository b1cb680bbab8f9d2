/* Copy threads: one of each pipe waits for operands that other blocks write and copies them to the ring. Follows kernel/shared.cuh. Not in
 * clusters, where blocks send operands (kernel/send.cuh). */

/* One thread of a pipe: waits until a group of chunks has been written, and copies it, as far ahead as the ring has free slots. Its latency is on
 * the critical path of every time step, so what it needs is constant or computed before it waits. */
template <class Task, int PIPE> struct CopyThread {
    static constexpr int GROUPS = Task::GROUPS(PIPE), RING = Task::RING(PIPE),
                         RESIDENT = Task::IN_REGISTERS(PIPE) + Task::IN_SHARED(PIPE);
    static constexpr int UNROLLED = GROUPS > 0 && GROUPS <= 8 ? GROUPS : 1;
    const Block &block;
    Shared shared;
    Ring<Task, PIPE> ring;
    int i;
    int expected;            /* groups of the tile whose copies are expected (slots are free) */
    unsigned long long seen; /* address of the counter that was seen last */

    INLINE CopyThread(const Block &block) : block(block) {}

    /* Expects the bytes of group g at its slot's mbarrier, and copies its streamed weights. */
    INLINE void expect_group(int g) {
        const int n = ring.slot(g), chunks = Task::group_chunks(PIPE, g), before = Task::group_before(PIPE, g);
        const int first = max(0, RESIDENT - before); /* first chunk with streamed weights */
        const int weights = STREAMED_CHUNKS > 0 ? max(0, chunks - first) * WEIGHT_BYTES : 0;
        const unsigned full = shared.full(PIPE, n);
        barrier_expect(full, chunks * CHUNK_BYTES + weights);
        if (weights > 0)
            copy_bulk(shared.copied_weights(PIPE, n, first),
                      streamed_at<Task>(block.c, PIPE) + (unsigned long long)(before + first - RESIDENT) * WEIGHT_BYTES,
                      weights, full);
    }

    /* Expects group h while group g is to be copied: waits for a free slot if h <= g; else answers false if there is none yet. */
    INLINE bool expect_next(int g, int h) {
        const unsigned empty = shared.empty(PIPE, ring.slot(h)), before = ring.parity(h) ^ 1;
        if (h <= g)
            barrier_wait(empty, before);
        else if (!barrier_passed(empty, before))
            return false;
        expect_group(h);
        expected = h + 1;
        return true;
    }

    /* Expects group g and, as far as slots are free, the following ones. */
    INLINE void expect_ahead(int g) {
        bool more = true;
#pragma unroll
        for (int h = 0; h < UNROLLED && UNROLLED == GROUPS; h++)
            if (h == expected && h < g + RING) expect_next(g, h);
        while (UNROLLED != GROUPS && more && expected < GROUPS && expected < g + RING) more = expect_next(g, expected);
    }

    INLINE void wait_for_counter(const Argument &counter, int tile, int g) {
        const unsigned long long at = counter.slot(i) + (unsigned long long)(tile * 4);
        if (!counter.is_awaited(i) || at == seen) return;
        wait_for(block.c, at, (unsigned)counter.blocks, [&]() { expect_ahead(g); });
        asm volatile("fence.proxy.async.global;" ::: "memory");
        seen = at;
    }

    /* The first group of the pass of group g. */
    static INLINE constexpr int first_of(int g) {
        while (g > 0 && Task::group_pass(PIPE, g - 1) == Task::group_pass(PIPE, g)) g--;
        return g;
    }

    /* Address of a group in its channel. */
    INLINE unsigned long long find_group(const Argument *arguments, int k, int tile, int g) const {
        const int pass = Task::group_pass(PIPE, g), chunk = tile * Task::pass_chunks(pass) + Task::group_first(PIPE, g);
        return arguments[Task::channel(k, pass)].slot(i) + (unsigned long long)(chunk * CHUNK_BYTES);
    }

    /* Copies group g from address `at`. */
    INLINE void load_group(const Argument *arguments, int k, int tile, int g, unsigned long long at) {
        const int pass = Task::group_pass(PIPE, g), n = ring.slot(g);
        expect_ahead(g);
        if (g == 0 || pass != Task::group_pass(PIPE, g - 1))
            wait_for_counter(arguments[Task::channel(k, pass) + 1], tile, g);
        copy_bulk(shared.chunk(PIPE, n, 0), at, Task::group_chunks(PIPE, g) * CHUNK_BYTES, shared.full(PIPE, n));
    }
    /* Copies groups G and following, given the addresses of the first groups of passes. */
    template <int G>
    INLINE void load_groups(const Argument *arguments, int k, int tile, const unsigned long long (&from)[UNROLLED]) {
        if constexpr (G < GROUPS) {
            constexpr int first = first_of(G), before = Task::group_first(PIPE, G) - Task::group_first(PIPE, first);
            load_group(arguments, k, tile, G, from[first] + (unsigned long long)(before * CHUNK_BYTES));
            load_groups<G + 1>(arguments, k, tile, from);
        }
    }

    INLINE void load_tile(int k, int tile) {
        const Argument *arguments = Shared::arguments() + Task::first_argument(k);
        unsigned long long from[UNROLLED]; /* addresses of the first groups of passes */
#pragma unroll
        for (int g = 0; g < UNROLLED; g++) from[g] = first_of(g) == g ? find_group(arguments, k, tile, g) : 0;
        expected = 0;
        seen = 0;
        for (int n = 0; n < Task::waits(k) && !MAP_WARPGROUP; n++)
            wait_for_counter(arguments[Task::wait_argument(k, n)], tile, -1);
        if constexpr (UNROLLED == GROUPS) {
            load_groups<0>(arguments, k, tile, from);
        } else {
            for (int g = 0; g < GROUPS; g++) load_group(arguments, k, tile, g, find_group(arguments, k, tile, g));
        }
        ring.advance();
    }

    /* k is a compile-time constant. */
    template <class T> INLINE void step(int k) {
        if (!T::HAS_PRODUCTS || GROUPS == 0) return;
        Schedule due(block.c, block.step_at(k));
        if (!due.is_due(i)) return;
        const int active_rows = Task::skips_ended(k) ? find_active_rows<Task>(k, i) : BATCH_OF(block.c);
#pragma unroll 1
        for (int tile = 0; tile < TILES && block.tile_rows(tile) > 0 && block.tile_row(tile) < active_rows; tile++)
            load_tile(k, block.tile(tile));
    }

    INLINE void run() {
#pragma unroll 1
        for (i = 0; i < ITERATIONS_OF(block.c); i++) Task::each(*this);
    }
};
