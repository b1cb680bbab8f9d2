/* Shared memory of a persistent kernel, what threads do with it, and the threads that copy into it. Stands behind the texts of the
 * seats and before persistent.cuh, which says what a class of seats has. */

enum {
    SIZE = TILE_BYTES,           /* of an element of the operands */
    PIECE = 16 / SIZE,           /* elements of 16 bytes */
    CHUNK = 128 / SIZE,          /* of depth */
    MULTIPLIERS = 256,           /* threads of both lanes that multiply */
    MAPPERS = THIRD ? 128 : 256, /* threads that take elements of maps: the same ones, or those of a third warpgroup, */
    FIRST_MAPPER = THIRD ? MULTIPLIERS : 0,
    FIRST_LOADER = FIRST_MAPPER + MAPPERS, /* and those that copy and tell */
    THREADS = CLUSTER ? 256 : 512,
    LOADER_REGISTERS = 40,
    MAPPER_REGISTERS = 512 - 2 * MULTIPLIER_REGISTERS - LOADER_REGISTERS, /* four warpgroups have 512 a thread in all */
    LANE_FOLDS = CLUSTER && FOLD > 1 ? FOLD / 2 : FOLD,                   /* whose rows of weights a lane has */
    LANE_N = LANE_FOLDS * TILE_ROWS,                                      /* columns that it multiplies */
    CHUNK_BYTES = TILE_N * 128,
    WEIGHT_BYTES = 64 * 128,                                                  /* of a chunk of weights */
    SLOT_BYTES = GROUP * (TILE_N * 128 + (STREAM_CHUNKS > 0 ? 64 * 128 : 0)), /* of a group of chunks in the ring */
    SUM_BYTES = LANE_N * 64 * 4                                               /* of a lane */
};

INLINE unsigned shared_address(const void *at) { return (unsigned)__cvta_generic_to_shared(at); }
INLINE unsigned swizzled(int row, int piece) { return (unsigned)(row * 128 + ((piece ^ (row & 7)) << 4)); }

INLINE void barrier_make(unsigned at, int count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
}
INLINE void barrier_arrive(unsigned at) {
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(at) : "memory");
}
/* This thread, and so many bytes of copies. */
INLINE void barrier_expect(unsigned at, int bytes) {
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.expect_tx.shared.b64 state, [%0], %1;\n}" ::"r"(at), "r"(bytes)
                 : "memory");
}
INLINE bool barrier_passed(unsigned at, unsigned parity) {
    unsigned passed;
    asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\nselp.b32 %0, 1, 0, p;\n}"
                 : "=r"(passed)
                 : "r"(at), "r"(parity)
                 : "memory");
    return passed;
}
INLINE void barrier_wait(unsigned at, unsigned parity) {
    unsigned passed;
    do {
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared.b64 p, [%1], %2;\nselp.b32 %0, 1, 0, p;\n}"
                     : "=r"(passed)
                     : "r"(at), "r"(parity)
                     : "memory");
    } while (!passed);
}
INLINE void copy_async(unsigned to, unsigned long long from, int bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
INLINE void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int PENDING> INLINE void copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory"); }
INLINE void read_piece(unsigned at, unsigned (&x)[4]) {
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(at)
                 : "memory");
}
INLINE void write_piece(unsigned at, const unsigned (&x)[4]) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                 : "memory");
}
/* Where it is looked at; without a branch, which would let sums lie in memory. */
INLINE void write_sum(unsigned at, float x, bool there) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\n@p st.shared.f32 [%0], %1;\n}" ::"r"(at), "f"(x),
                 "r"((int)there)
                 : "memory");
}
/* Four matrices of 8 rows of 16 bytes: thread n has the address of row n % 8 of matrix n / 8, and gets word n % 4 of row n / 4 of
 * each. */
INLINE void load_matrices(unsigned at, unsigned (&x)[4]) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(at)
                 : "memory");
}
/* sums[16, 8] += a[16, 32 bytes] b[8, 32 bytes]^T of a warp, which has them as wgmma does. */
INLINE void multiply_rows(float *sums, const unsigned (&a)[4], unsigned low, unsigned high) {
#if TILE_TF32
#define FEW_ROWS "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
#elif TILE_BF16
#define FEW_ROWS "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
#else
#define FEW_ROWS "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
#endif
    asm volatile(FEW_ROWS " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(low), "r"(high));
}
INLINE void meet_mappers() { asm volatile("bar.sync 1, %0;" ::"n"((int)MAPPERS) : "memory"); }
INLINE void publish_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

INLINE void warpgroup_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
INLINE void warpgroup_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING> INLINE void warpgroup_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

/* ---- shared memory ---- */

struct Shared {
    unsigned base;
    INLINE Shared() : base(shared_address(shared_memory)) {}
    static constexpr int WEIGHTS = 2 * LANE_BYTES, SUMS = WEIGHTS + WEIGHT_CHUNKS * WEIGHT_BYTES,
                         ROW_ROOM = SUMS + SUM_BUFFERS * 2 * SUM_BYTES,
                         BARRIERS = ROW_ROOM + 2 * ROW_SUMS * (MULTIPLIERS / 32) * 4,
                         PLACES = BARRIERS + (2 * MOST_RING + 4) * 16, ADDRESSES = PLACES + MOST_PLACES * 32;
    /* Before the loop: through it weights come to registers. */
    INLINE unsigned stage(int lane) const { return base + (unsigned)(STAGE + lane * STAGE_BYTES); }
    /* Of a cluster, which has all chunks of an operand in a slot. */
    INLINE unsigned slot(int n) const { return base + (unsigned)(n * SLOT_BYTES); }
    /* A chunk of group n of a lane's ring. */
    INLINE unsigned chunk(int lane, int n, int c) const {
        return base + (unsigned)(lane * LANE_BYTES + n * SLOT_BYTES + c * CHUNK_BYTES);
    }
    INLINE unsigned copied_weights(int lane, int n, int c) const {
        return chunk(lane, n, GROUP) + (unsigned)(c * WEIGHT_BYTES);
    }
    static_assert(ROW_ROOM == ROW_SUMS_AT, "where kernel/rows.cuh has them");
    INLINE unsigned weights(int n) const { return base + (unsigned)(WEIGHTS + n * WEIGHT_BYTES); }
    INLINE unsigned sums(int buffer, int lane) const {
        return base + (unsigned)(SUMS + (buffer * 2 + lane) * SUM_BYTES);
    }
    INLINE unsigned full(int lane, int n) const { return base + (unsigned)(BARRIERS + (lane * MOST_RING + n) * 16); }
    INLINE unsigned empty(int lane, int n) const { return full(lane, n) + 8; }
    INLINE unsigned telling(int n) const { return base + (unsigned)(BARRIERS + (2 * MOST_RING + n) * 16); }
    /* Both lanes have given the sums of a buffer; the next one: they have been taken. */
    INLINE unsigned giving(int n) const { return base + (unsigned)(BARRIERS + (2 * MOST_RING + 2 + n) * 16); }
    /* Of rows of 128 bytes in the swizzle of 128 bytes that lie there, 32 j bytes of each on, as wgmma takes it: the base's own, which is
     * found once, and a constant. */
    INLINE unsigned long long descriptor(unsigned at, int j) const {
        const unsigned low = (1u << 16) + ((base & 0x3ffff) >> 4) + ((at - base) >> 4) + (unsigned)(2 * j);
        return (unsigned long long)(1u << 30 | 1024 >> 4) << 32 | low;
    }
    static INLINE Place *places() { return (Place *)(shared_memory + PLACES); }
    /* Addresses at an iteration: those of three lie there at once. */
    static INLINE unsigned long long *addresses(int turn) {
        return (unsigned long long *)(shared_memory + ADDRESSES) + turn * MOST_PLACES;
    }
};

/* Of two, or of one: who it is, and the phase of its barrier. */
template <int COUNT> struct Turn {
    int n = 0;
    unsigned parity = 0;
    INLINE void move() {
        if (COUNT == 2) n ^= 1;
        parity ^= n == 0;
    }
};

/* Where the groups of a lane's tile lie: the ring goes into them evenly, or has room for those of two tiles. */
template <class S, int LANE> struct Ring {
    static constexpr int GROUPS = S::GROUPS(LANE), RING = S::RING(LANE);
    static constexpr bool TWO = RING > GROUPS;
    unsigned phase = 0;
    int turn = 0; /* of two tiles */
    INLINE int slot(int g) const { return TWO ? turn * GROUPS + g : g % RING; }
    INLINE unsigned parity(int g) const { return phase + (unsigned)(g / RING) & 1; }
    INLINE void move() {
        if (TWO) turn ^= 1;
        if (!TWO || turn == 0) phase += TWO ? 1u : (unsigned)(GROUPS / RING);
    }
};

/* Weights of this block that are copied every time, in the order of shared memory: lane 0's, then lane 1's. */
template <class S> INLINE unsigned long long streamed_at(const Words &c, int lane) {
    int before = lane ? S::CHUNKS(0) - S::HELD(0) - S::KEPT(0) : 0;
    return c.w[3] + (unsigned long long)((long long)blockIdx.x * STREAM_CHUNKS + before) * WEIGHT_BYTES;
}

/* Rows and columns of a block. */
struct Block {
    const Words &c;
    int seat; /* where its words begin */
    int column, row, rows;
    INLINE int step_at(int k) const { return (int)(unsigned)c.w[seat + 2 + k]; }
    int slice;
    INLINE int tile(int n) const { return slice * TILES + n; } /* of all tiles */
    INLINE int tile_rows(int tile) const { return min(TILE_ROWS, rows - tile * TILE_ROWS); }
    INLINE int tile_row(int tile) const { return row + tile * TILE_ROWS; } /* of the batch */
};

#if CLUSTER

/* The slot of a tile, whose two take turns, and the phase of its barrier. */
struct Slots {
    int tile, turn;
    INLINE int slot() const { return 2 * tile + (turn & 1); }
    INLINE unsigned parity() const { return (unsigned)(turn >> 1) & 1; }
    INLINE void move(const Block &block) {
        if (TILES > 1 && ++tile < TILES && block.tile_rows(tile) > 0) return;
        tile = 0;
        turn++;
    }
};

#endif

/* How many rows of the batch go on, the first ones of it. */
INLINE int rows_going(unsigned long long counted) { return (int)*(const long long *)counted; }
template <class S> INLINE int find_going(int k, int i) {
    return rows_going(Shared::places()[S::first_place(k) + S::row_place(k)].slot(i));
}

INLINE void wait_for_place(const Block &block, const Place &counter, int i, int tile) {
    if (counter.is_fresh(i))
        wait_for(block.c, counter.slot(i) + (unsigned long long)(tile * 4), (unsigned)counter.blocks, []() {});
}

/* ---- loading ---- */

INLINE void copy_bulk(unsigned to, unsigned long long from, int bytes, unsigned barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

/* One thread of a lane: copies what has been written, a group of chunks at once, as far ahead as there is room. It is on the way of
 * every step, so what it has to find out is constants, or found before it waits. */
template <class S, int LANE> struct Loader {
    static constexpr int GROUPS = S::GROUPS(LANE), RING = S::RING(LANE), RESIDENT = S::HELD(LANE) + S::KEPT(LANE);
    static constexpr int UNROLLED = GROUPS > 0 && GROUPS <= 8 ? GROUPS : 1;
    const Block &block;
    Shared shared;
    Ring<S, LANE> ring;
    int i;
    int opened;              /* groups of the tile that room has been made for */
    unsigned long long seen; /* the counter of the tile that was waited for last */

    INLINE Loader(const Block &block) : block(block) {}

    /* Room for a group: its copies are expected, and its weights come if they live elsewhere. */
    INLINE void open(int g) {
        const int n = ring.slot(g), chunks = S::group_chunks(LANE, g), before = S::group_before(LANE, g);
        const int first = max(0, RESIDENT - before); /* chunk whose weights are copied */
        const int weights = STREAM_CHUNKS > 0 ? max(0, chunks - first) * WEIGHT_BYTES : 0;
        const unsigned full = shared.full(LANE, n);
        barrier_expect(full, chunks * CHUNK_BYTES + weights);
        if (weights > 0)
            copy_bulk(shared.copied_weights(LANE, n, first),
                      streamed_at<S>(block.c, LANE) + (unsigned long long)(before + first - RESIDENT) * WEIGHT_BYTES,
                      weights, full);
    }

    /* The next group, h, while g is to be copied: false where that would have to wait for no need. */
    INLINE bool open_next(int g, int h) {
        const unsigned empty = shared.empty(LANE, ring.slot(h)), before = ring.parity(h) ^ 1;
        if (h <= g)
            barrier_wait(empty, before);
        else if (!barrier_passed(empty, before))
            return false;
        open(h);
        opened = h + 1;
        return true;
    }

    /* Makes room for group g and, where that needs no waiting, for those behind it. */
    INLINE void open_ahead(int g) {
        bool more = true;
#pragma unroll
        for (int h = 0; h < UNROLLED && UNROLLED == GROUPS; h++)
            if (h == opened && h < g + RING) open_next(g, h);
        while (UNROLLED != GROUPS && more && opened < GROUPS && opened < g + RING) more = open_next(g, opened);
    }

    INLINE void wait_for_place(const Place &counter, int tile, int g) {
        const unsigned long long at = counter.slot(i) + (unsigned long long)(tile * 4);
        if (!counter.is_fresh(i) || at == seen) return;
        wait_for(block.c, at, (unsigned)counter.blocks, [&]() { open_ahead(g); });
        asm volatile("fence.proxy.async.global;" ::: "memory");
        seen = at;
    }

    /* The first group of its pass. */
    static INLINE constexpr int first_of(int g) {
        while (g > 0 && S::group_pass(LANE, g - 1) == S::group_pass(LANE, g)) g--;
        return g;
    }

    /* Where a group lies in memory. */
    INLINE unsigned long long find_group(const Place *places, int k, int tile, int g) const {
        const int pass = S::group_pass(LANE, g), chunk = tile * S::pass_chunks(pass) + S::group_first(LANE, g);
        return places[S::channel(k, pass)].slot(i) + (unsigned long long)(chunk * CHUNK_BYTES);
    }

    /* Group g, which lies there. */
    INLINE void load_group(const Place *places, int k, int tile, int g, unsigned long long at) {
        const int pass = S::group_pass(LANE, g), n = ring.slot(g);
        open_ahead(g);
        if (g == 0 || pass != S::group_pass(LANE, g - 1)) wait_for_place(places[S::channel(k, pass) + 1], tile, g);
        copy_bulk(shared.chunk(LANE, n, 0), at, S::group_chunks(LANE, g) * CHUNK_BYTES, shared.full(LANE, n));
    }
    /* From G on, by where the first ones of passes lie. */
    template <int G>
    INLINE void load_groups(const Place *places, int k, int tile, const unsigned long long (&from)[UNROLLED]) {
        if constexpr (G < GROUPS) {
            constexpr int first = first_of(G), before = S::group_first(LANE, G) - S::group_first(LANE, first);
            load_group(places, k, tile, G, from[first] + (unsigned long long)(before * CHUNK_BYTES));
            load_groups<G + 1>(places, k, tile, from);
        }
    }

    INLINE void load_tile(int k, int tile) {
        const Place *places = Shared::places() + S::first_place(k);
        unsigned long long from[UNROLLED]; /* of first groups of passes */
#pragma unroll
        for (int g = 0; g < UNROLLED; g++) from[g] = first_of(g) == g ? find_group(places, k, tile, g) : 0;
        opened = 0;
        seen = 0;
        for (int n = 0; n < S::waits(k) && !THIRD; n++) wait_for_place(places[S::wait_place(k, n)], tile, -1);
        if constexpr (UNROLLED == GROUPS) {
            load_groups<0>(places, k, tile, from);
        } else {
            for (int g = 0; g < GROUPS; g++) load_group(places, k, tile, g, find_group(places, k, tile, g));
        }
        ring.move();
    }

    /* Of this number, a constant. */
    template <class T> INLINE void step(int k) {
        if (!T::TILED || GROUPS == 0) return;
        Due due(block.c, block.step_at(k));
        if (!due.is_due(i)) return;
        const int going = S::leaves(k) ? find_going<S>(k, i) : BATCH_OF(block.c);
#pragma unroll 1
        for (int tile = 0; tile < TILES && block.tile_rows(tile) > 0 && block.tile_row(tile) < going; tile++)
            load_tile(k, block.tile(tile));
    }

    INLINE void run() {
#pragma unroll 1
        for (i = 0; i < ITERATIONS_OF(block.c); i++) S::each(*this);
    }
};
