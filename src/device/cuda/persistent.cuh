/* Skeleton of a kernel that goes through a whole time loop: stands behind persistent_base.cuh and the texts of the seats.
 *
 * A seat is the work that shares one set of weights, such as a layer: its columns are cut into blocks of UNITS, the batch
 * into slices, and every block keeps the weights of its columns, in registers first, then in shared memory. There are
 * enough processors for all blocks at once. In every iteration a block takes the steps of its seat that are due, tile of rows
 * after tile: products of its weights with what other blocks have written, then the map of every element.
 *
 * Weights are the left operand of wgmma: row p * UNITS + u of 64 is unit u of product p. The right operand is a tile of
 * TILE_N rows of the batch. Depth is cut into chunks of 128 bytes, and these between two lanes, each with one thread that
 * waits for counters and copies groups of chunks into a ring in shared memory, and a warpgroup that multiplies. Lane 0 has
 * what comes from elsewhere, lane 1 what this seat itself gave at the step before; where there is only one of these, both
 * share it. Sums of both lanes meet in shared memory, where both warpgroups take elements for the map. One more warp, the
 * teller, raises the counters of what the block has written.
 *
 * A class of seats, struct Seat, has
 *   STEPS, PRODUCTS, UNITS, COLUMNS, TILED_STEP (the first with products)
 *   CHUNKS, HELD, KEPT(lane)    chunks, those in registers, those in shared memory; others are copied every time
 *   GROUPS(lane), RING(lane)    groups of chunks, and those that there is room for, which go into them evenly
 *   group_pass, group_first, group_chunks, group_before(lane, group)   pass, first chunk of it, chunks, those of groups before
 *   depth(pass), pass_chunks(pass), chunk_pass(lane, chunk), chunk_first(lane, chunk)
 *   channel(step, pass)         place of the operand; the next one is its counter
 *   places(step), views(step), first_place(step)   of a step: places, those that are views or twins, those of steps before
 *   ROWS                        of weights that a unit has in a lane
 *   product_lane(product)       the lane that has it, or -1: both
 *   product_row(product)        of its unit
 *   right(pass, row)            place of the weights, or -1; right_any(pass): of some row
 *   IS_STARTED, start(product)  place of what all rows of a product begin with, or -1, where the steps leave it to the sums
 *   waits(step), wait_place(step, n)        counters of what the map reads of other seats
 *   raises(step), raise_place(step, n)      counters of what others read
 *   each(f)                     calls f.step<Step0>(0), f.step<Step1>(1), ...
 * and a step TILED, RAISES, Values, fetch(frame, row, column, values), fetch_late() of what comes from other seats,
 * apply(frame, row, column, sums, values, tell), which calls tell() when all that others read is written. A step that is taken
 * by rows (BY_ROWS) has Row, of persistent_rows.cuh, and no sums of products: the rows of a tile are shared out between the
 * blocks of the seat, and every thread meets the others before it reads what these wrote. fetch_tagged() reads what comes
 * with tags, before. */

enum {
    SIZE = TILE_BYTES,  /* of an element of the operands */
    PIECE = 16 / SIZE,  /* elements of 16 bytes */
    CHUNK = 128 / SIZE, /* of depth */
    MULTIPLIERS = 256,  /* threads of both lanes that multiply */
    CHUNK_BYTES = TILE_N * 128,
    WEIGHT_BYTES = 64 * 128,                                                  /* of a chunk of weights */
    SLOT_BYTES = GROUP * (TILE_N * 128 + (STREAM_CHUNKS > 0 ? 64 * 128 : 0)), /* of a group of chunks in the ring */
    SUM_BYTES = TILE_N * 64 * 4                                               /* of a lane */
};

INLINE unsigned shared_address(const void *at) { return (unsigned)__cvta_generic_to_shared(at); }
INLINE unsigned swizzled(int row, int piece) { return (unsigned)(row * 128 + ((piece ^ (row & 7)) << 4)); }

INLINE void barrier_make(unsigned at, int count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
}
INLINE void barrier_arrive(unsigned at) {
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(at) : "memory");
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
INLINE void publish_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

INLINE void warpgroup_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
INLINE void warpgroup_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int PENDING> INLINE void warpgroup_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}
/* Rows of 128 bytes in the swizzle of 128 bytes. */
INLINE unsigned long long descriptor(unsigned at) {
    return (unsigned long long)(1u << 30 | 1024 >> 4) << 32 | 1u << 16 | (at & 0x3ffff) >> 4;
}

/* ---- shared memory ---- */

struct Shared {
    unsigned base;
    INLINE Shared() : base(shared_address(shared_memory)) {}
    static constexpr int WEIGHTS = 2 * LANE_BYTES, SUMS = WEIGHTS + WEIGHT_CHUNKS * WEIGHT_BYTES,
                         ROW_PARTS = SUMS + SUM_BUFFERS * 2 * SUM_BYTES,
                         BARRIERS = ROW_PARTS + 2 * ROW_SUMS * (MULTIPLIERS / 32) * 4,
                         PLACES = BARRIERS + (2 * MOST_RING + 2) * 16, ADDRESSES = PLACES + MOST_PLACES * 32;
    /* A chunk of group n of a lane's ring. */
    INLINE unsigned chunk(int lane, int n, int c) const {
        return base + (unsigned)(lane * LANE_BYTES + n * SLOT_BYTES + c * CHUNK_BYTES);
    }
    INLINE unsigned copied_weights(int lane, int n, int c) const {
        return chunk(lane, n, GROUP) + (unsigned)(c * WEIGHT_BYTES);
    }
    static_assert(ROW_PARTS == ROW_PLACE, "where persistent_rows.cuh has them");
    INLINE unsigned weights(int n) const { return base + (unsigned)(WEIGHTS + n * WEIGHT_BYTES); }
    INLINE unsigned sums(int buffer, int lane) const {
        return base + (unsigned)(SUMS + (buffer * 2 + lane) * SUM_BYTES);
    }
    INLINE unsigned full(int lane, int n) const { return base + (unsigned)(BARRIERS + (lane * MOST_RING + n) * 16); }
    INLINE unsigned empty(int lane, int n) const { return full(lane, n) + 8; }
    INLINE unsigned telling(int n) const { return base + (unsigned)(BARRIERS + (2 * MOST_RING + n) * 16); }
    static INLINE Place *places() { return (Place *)(shared_memory + PLACES); }
    /* Addresses at an iteration: those of three lie there at once. */
    static INLINE unsigned long long *addresses(int turn) {
        return (unsigned long long *)(shared_memory + ADDRESSES) + turn * MOST_PLACES;
    }
};

/* Of two. */
struct Turn {
    int n = 0;
    unsigned parity = 0;
    INLINE void move() {
        n ^= 1;
        parity ^= n == 0;
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
    INLINE int tile_rows(int tile) const { return min(TILE_N, rows - tile * TILE_N); }
};

/* ---- loading ---- */

INLINE void copy_bulk(unsigned to, unsigned long long from, int bytes, unsigned barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier)
                 : "memory");
}

/* One thread of a lane: waits until what is copied has been written, and copies it, a group of chunks at once. */
template <class S> INLINE void load_lane(const Block &block, int lane) {
    const Shared shared;
    const int groups = S::GROUPS(lane), ring = S::RING(lane), resident = S::HELD(lane) + S::KEPT(lane);
    unsigned phase = 0;
    auto wait_for_place = [&](const Place &counter, int i, int tile) {
        if (counter.is_fresh(i))
            wait_for(block.c, counter.slot(i) + (unsigned long long)(tile * 4), (unsigned)counter.blocks);
    };
    auto load_tile = [&](int i, int k, int tile) {
        const Place *places = Shared::places() + S::first_place(k);
        for (int n = 0; n < S::waits(k); n++) wait_for_place(places[S::wait_place(k, n)], i, tile);
        int last = -1;
#pragma unroll 1
        for (int g = 0, n = 0; g < groups; g++) {
            const int pass = S::group_pass(lane, g), chunks = S::group_chunks(lane, g), bytes = chunks * CHUNK_BYTES;
            const int first = max(0, resident - S::group_before(lane, g)); /* chunk whose weights are copied */
            const int weights = STREAM_CHUNKS > 0 ? max(0, chunks - first) * WEIGHT_BYTES : 0;
            const Place *place = places + S::channel(k, pass);
            unsigned full = shared.full(lane, n);
            unsigned long long at =
                place->slot(i) +
                (unsigned long long)((tile * S::pass_chunks(pass) + S::group_first(lane, g)) * CHUNK_BYTES);
            barrier_wait(shared.empty(lane, n), (phase ^ 1) & 1);
            asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.expect_tx.shared.b64 state, [%0], %1;\n}" ::"r"(full),
                         "r"(bytes + weights)
                         : "memory");
            if (weights > 0)
                copy_bulk(shared.copied_weights(lane, n, first),
                          streamed_at<S>(block.c, lane) +
                              (unsigned long long)(S::group_before(lane, g) + first - resident) * WEIGHT_BYTES,
                          weights, full);
            if (pass != last) wait_for_place(place[1], i, tile);
            last = pass;
            asm volatile("fence.proxy.async.global;" ::: "memory");
            copy_bulk(shared.chunk(lane, n, 0), at, bytes, full);
            if (++n == ring) {
                n = 0;
                phase++;
            }
        }
    };
#pragma unroll 1
    for (int i = 0; i < ITERATIONS_OF(block.c); i++) {
#pragma unroll 1
        for (int k = 0; k < S::STEPS; k++) {
            Due due(block.c, block.step_at(k));
            if (!S::is_tiled(k) || !due.is_due(i)) continue;
#pragma unroll 1
            for (int tile = 0; tile < TILES && block.tile_rows(tile) > 0; tile++) load_tile(i, k, block.tile(tile));
        }
    }
}

/* ---- multiplying ---- */

template <class S, int LANE> struct Multiplier {
    static constexpr int GROUPS = S::GROUPS(LANE), RING = S::RING(LANE);
    static constexpr int CHUNKS = S::CHUNKS(LANE), HELD = S::HELD(LANE), KEPT = S::KEPT(LANE),
                         BEFORE = LANE ? S::KEPT(0) : 0;
    static constexpr int VECTORS = TILE_N * S::UNITS / VECTOR, EACH = (VECTORS + MULTIPLIERS - 1) / MULTIPLIERS;
    static constexpr int ACROSS = S::UNITS / VECTOR;
    static constexpr bool STARTED = S::IS_STARTED && LANE == (S::CHUNKS(0) == 0);
    const Block &block;
    const int warp, thread;
    Shared shared;
    unsigned phase; /* of the lane's ring */
    unsigned a[HELD > 0 ? HELD * 4 : 1][4];
    float starts[2];
    Turn told;
    int i, buffer;

    INLINE Multiplier(const Block &block)
        : block(block), warp((int)threadIdx.x / 32 % 4), thread((int)threadIdx.x % 32), phase(0), i(0), buffer(0) {}

    /* A chunk of the weights as 64 rows of 128 bytes; it has come when the thread's copies have. */
    INLINE void bring_weights(int c, unsigned to) const {
        const int pass = S::chunk_pass(LANE, c), from = S::chunk_first(LANE, c) * CHUNK,
                  depth = (S::depth(pass) + 7) / 8 * 8;
        const Place *places = Shared::places() + S::first_place(S::TILED_STEP);
        const int piece = (int)threadIdx.x % 8, k = from + piece * PIECE;
#pragma unroll
        for (int r = 0; r < 4; r++) {
            int m = (int)threadIdx.x % 128 / 8 + r * 16, p = m / S::UNITS, unit = block.column + m % S::UNITS;
            int place = p < S::ROWS ? S::right(pass, p) : -1;
            bool there = place >= 0 && unit < S::COLUMNS && k < depth;
            unsigned long long at = places[place >= 0 ? place : 0].address;
            if (there) at += (unsigned long long)((unit * (long long)depth + k) * SIZE);
            copy_async(to + swizzled(m, piece), there ? at : places[S::right_any(pass)].address, there ? 16 : 0);
        }
    }

    static INLINE unsigned as_operand(unsigned x) {
#if TILE_TF32
        x = bits_of(__uint_as_float(x));
#endif
        return x;
    }

    /* Weights for which there is no room, in memory as they are copied. */
    INLINE void lay_out_streamed(unsigned room) const {
        const int row = (int)threadIdx.x % 128 / 8, piece = (int)threadIdx.x % 8;
#pragma unroll 1
        for (int c = HELD + KEPT; c < CHUNKS; c++) {
            bring_weights(c, room);
            copies_commit();
            copies_wait<0>();
#pragma unroll
            for (int r = 0; r < 4; r++) { /* a thread reads what it has copied */
                const unsigned at = swizzled(row + r * 16, piece);
                unsigned x[4];
                read_piece(room + at, x);
                *(uint4 *)(streamed_at<S>(block.c, LANE) + (unsigned long long)(c - HELD - KEPT) * WEIGHT_BYTES + at) =
                    make_uint4(as_operand(x[0]), as_operand(x[1]), as_operand(x[2]), as_operand(x[3]));
            }
        }
        if (HELD + KEPT < CHUNKS) asm volatile("fence.proxy.async.global;" ::: "memory");
    }

    /* Through the lane's memory, which nobody fills before all have come. */
    INLINE void keep_weights() {
        constexpr int BATCH = LANE_BYTES / WEIGHT_BYTES;
        static_assert(BATCH > 0, "room for a chunk of each lane");
        const unsigned room = shared.chunk(LANE, 0, 0);
        const int m = warp * 16 + thread / 4;
#pragma unroll 1
        for (int c = HELD; c < HELD + KEPT; c++) bring_weights(c, shared.weights(BEFORE + c - HELD));
#pragma unroll
        for (int first = 0; first < HELD; first += BATCH) {
#pragma unroll 1
            for (int c = first; c < HELD && c < first + BATCH; c++) bring_weights(c, room + (c - first) * WEIGHT_BYTES);
            copies_commit();
            copies_wait<0>();
            asm volatile("bar.sync %0, 128;" ::"n"(2 + LANE) : "memory");
#pragma unroll
            for (int c = first; c < HELD && c < first + BATCH; c++) {
#pragma unroll
                for (int n = 0; n < 16; n++) {
                    int j = n / 4, r = n % 4;
                    unsigned at = room + (unsigned)((c - first) * WEIGHT_BYTES) +
                                  swizzled(m + r % 2 * 8, j * 2 + r / 2) + (unsigned)(thread % 4 * 4);
                    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(a[c * 4 + j][r]) : "r"(at) : "memory");
                    a[c * 4 + j][r] = as_operand(a[c * 4 + j][r]);
                }
            }
            asm volatile("bar.sync %0, 128;" ::"n"(2 + LANE) : "memory");
        }
        copies_wait<0>();
#if TILE_TF32
#pragma unroll 1
        for (int c = HELD; c < HELD + KEPT; c++) {
#pragma unroll
            for (int r = 0; r < 4; r++) {
                unsigned x[4], at = shared.weights(BEFORE + c - HELD) +
                                    swizzled((int)threadIdx.x % 128 / 8 + r * 16, (int)threadIdx.x % 8);
                read_piece(at, x);
                for (int w = 0; w < 4; w++) x[w] = as_operand(x[w]);
                write_piece(at, x);
            }
        }
#endif
        lay_out_streamed(room);
        publish_shared();
        asm volatile("bar.sync 0;" ::: "memory"); /* loaders may begin */
    }

    /* What all rows begin with: a thread has two rows of the weights. */
    INLINE void find_starts() {
        const Place *places = Shared::places() + S::first_place(S::TILED_STEP);
#pragma unroll
        for (int r = 0; r < 2; r++) {
            int m = warp * 16 + thread / 4 + r * 8, p = m / S::UNITS, unit = block.column + m % S::UNITS;
            int place = p < S::PRODUCTS ? S::start(p) : -1;
            starts[r] = place >= 0 && unit < S::COLUMNS ? ((const float *)places[place].address)[unit] : 0;
        }
    }

    INLINE void release(int n) {
        if (thread == 0) barrier_arrive(shared.empty(LANE, n));
    }

    using Sums = float[TILE_N / 2];

    template <int G, int C> INLINE void multiply_chunk(Sums &sums) {
        if constexpr (C < S::group_chunks(LANE, G)) {
            constexpr int CHUNK = S::group_before(LANE, G) + C;
            const unsigned long long b = descriptor(shared.chunk(LANE, G % RING, C));
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int more = STARTED || CHUNK > 0 || j > 0;
                if constexpr (CHUNK < HELD)
                    multiply(sums, a[CHUNK * 4 + j], b + j * 2, more);
                else if constexpr (CHUNK < HELD + KEPT)
                    multiply(sums, descriptor(shared.weights(BEFORE + CHUNK - HELD)) + j * 2, b + j * 2, more);
                else
                    multiply(sums, descriptor(shared.copied_weights(LANE, G % RING, C)) + j * 2, b + j * 2, more);
            }
            multiply_chunk<G, C + 1>(sums);
        }
    }

    template <int G> INLINE void multiply_group(Sums &sums) {
        if constexpr (G < GROUPS) {
            if (G > 0) barrier_wait(shared.full(LANE, G % RING), phase + G / RING & 1);
            warpgroup_fence();
            multiply_chunk<G, 0>(sums);
            warpgroup_commit();
            if constexpr (G > 0) {
                warpgroup_wait<1>();
                release((G - 1) % RING);
            }
            multiply_group<G + 1>(sums);
        }
    }

    /* Sums of row n of the tile and row m of the weights lie at n * 64 + (m ^ turn(n)): neither those who write them nor
     * those who read them meet in banks. */
    static INLINE int turn(int n) { return (n & 1) << 4 ^ (n >> 1 & 3) << 3; }

    /* Sums of both lanes, in shared memory. What the map reads of other seats has come with the first chunk. */
    template <class F> INLINE void multiply_all(F fetch_late) {
        if constexpr (CHUNKS > 0) {
            Sums sums;
            barrier_wait(shared.full(LANE, 0), phase & 1);
            fetch_late();
#pragma unroll
            for (int n = 0; n < TILE_N / 2; n++) sums[n] = STARTED ? starts[n / 2 % 2] : 0;
            multiply_group<0>(sums);
            warpgroup_wait<0>();
            release((GROUPS - 1) % RING);
            phase += GROUPS / RING;
#pragma unroll
            for (int n = 0; n < TILE_N / 2; n++) asm volatile("" : "+f"(sums[n])::"memory");
            if (SUM_BUFFERS == 1) asm volatile("bar.sync 4, 256;" ::: "memory");
            unsigned to = shared.sums(buffer, LANE);
            int m = warp * 16 + thread / 4;
#pragma unroll
            for (int j = 0; j < TILE_N / 8; j++) {
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    int n = 8 * j + thread % 4 * 2 + e % 2;
                    unsigned at = to + (unsigned)((n * 64 + ((m + e / 2 * 8) ^ turn(n))) * 4);
                    asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(sums[j * 4 + e]) : "memory");
                }
            }
        } else if (SUM_BUFFERS == 1) {
            asm volatile("bar.sync 4, 256;" ::: "memory");
        }
        asm volatile("bar.sync 1, 256;" ::: "memory");
        if (CHUNKS == 0) fetch_late(); /* it has come with the other lane's */
    }

    INLINE void add_sums(int lane, int n, int m, REAL (&x)[VECTOR], bool more) const {
        if (S::CHUNKS(lane) == 0) return;
        const float *from =
            (const float *)(shared_memory + (shared.sums(buffer, lane) - shared.base)) + n * 64 + (m ^ turn(n));
#pragma unroll
        for (int v = 0; v < VECTOR; v++) x[v] = (more ? x[v] : 0) + from[v];
    }

    /* The sums of a product: of both lanes, or of the one that has it. */
    INLINE void find_sums(int p, int n, int unit, REAL (&x)[VECTOR]) const {
        const int m = S::product_row(p) * S::UNITS + unit, lane = S::product_lane(p);
        if (lane != 1) add_sums(0, n, m, x, false);
        if (lane != 0) add_sums(1, n, m, x, lane < 0 && S::CHUNKS(0) > 0);
    }

    /* Addresses of a step's places at an iteration. */
    INLINE void find_addresses(const Due &due, int k, int i) const {
        const int first = S::first_place(k);
#pragma unroll 1
        for (int p = (int)threadIdx.x; p < S::places(k); p += MULTIPLIERS) {
            const Place &place = Shared::places()[first + p];
            unsigned long long at = p < S::views(k) ? place.view(i, due.time(i)) : place.slot(i);
#if ROW_SUMS
            if (p >= S::views(k) && (p - S::views(k)) % 2 == 0 && place.ring & 1) /* values with tags */
                at = (&place)[1].is_fresh(i) ? place.view(i, due.time(i)) : 0;
#endif
            Shared::addresses(i % 3)[first + p] = at;
        }
    }

    /* What this thread gives is written: the teller waits for all threads, and raises counters. */
    INLINE void tell() {
        asm volatile("fence.proxy.async.global;" ::: "memory");
        barrier_wait(shared.telling(told.n) + 8, told.parity ^ 1);
        __syncwarp();
        if (thread == 0) barrier_arrive(shared.telling(told.n));
        told.move();
    }

    /* Addresses of an iteration are found in the one before, while those of the one before that may still be read: threads meet
     * at least once a step. */
    template <class T> INLINE void step(int k) {
        Due due(block.c, block.step_at(k));
        if (!due.is_due(i)) return;
        if (i == due.low) {
            find_addresses(due, k, i);
            asm volatile("bar.sync 1, 256;" ::: "memory");
        }
        find_addresses(due, k, i + 1);
        Frame f = {Shared::addresses(i % 3) + S::first_place(k), 0, 0, true};
        if constexpr (T::BY_ROWS)
            take_rows<T>(k, f);
        else
            take_columns<T>(f);
    }

    /* All rows of the block's columns. */
    template <class T> INLINE void take_columns(Frame &f) {
#pragma unroll 1
        for (int tile = 0; tile < TILES && block.tile_rows(tile) > 0; tile++) {
            const int high = block.tile_rows(tile), row = block.row + tile * TILE_N;
            typename T::Values values[EACH];
            auto fetch = [&](bool late) {
#pragma unroll
                for (int e = 0; e < EACH; e++) {
                    int v = (int)threadIdx.x + e * MULTIPLIERS, n = min(v / ACROSS, high - 1), u = v % ACROSS * VECTOR;
                    int column = min(block.column + u, S::COLUMNS - VECTOR);
                    if (late)
                        T::fetch_late(f, row + n, column, values[e]);
                    else
                        T::fetch(f, row + n, column, values[e]);
                }
            };
            fetch(false);
            if constexpr (T::TILED)
                multiply_all([&]() { fetch(true); });
            else
                asm volatile("bar.sync 1, 256;" ::: "memory");
            f.tile = block.tile(tile);
#pragma unroll
            for (int e = 0; e < EACH; e++) {
                int v = (int)threadIdx.x + e * MULTIPLIERS, u = v % ACROSS * VECTOR;
                f.n = v / ACROSS;
                f.there = f.n < high && block.column + u < S::COLUMNS;
                REAL sums[S::PRODUCTS][VECTOR];
                if constexpr (T::TILED) {
#pragma unroll
                    for (int p = 0; p < S::PRODUCTS; p++) find_sums(p, min(f.n, TILE_N - 1), u, sums[p]);
                }
                T::apply(f, row + f.n, block.column + u, sums, values[e], [&]() {
                    if (e == EACH - 1 && T::RAISES > 0) tell();
                });
            }
            if (T::TILED && SUM_BUFFERS == 2) buffer ^= 1;
        }
    }

    /* Waits for what other blocks have written of a tile; all threads may read it when they have met. */
    INLINE void wait_for_values(int k, int tile) const {
        const Place *places = Shared::places() + S::first_place(k);
        if (threadIdx.x >= 32) return;
#pragma unroll 1
        for (int first = 0; first < S::waits(k); first += 32) {
            const int n = first + thread;
            const Place &counter = places[S::wait_place(k, n)];
            const bool fresh = n < S::waits(k) && counter.is_fresh(i);
            const unsigned same = __match_any_sync(0xffffffffu, fresh ? counter.address : 0ull);
            if (fresh && (same & (1u << thread) - 1) == 0) /* once for all that have one counter */
                wait_for(block.c, counter.slot(i) + (unsigned long long)(tile * 4), (unsigned)counter.blocks);
            __syncwarp();
        }
    }

    /* The block's rows of every tile, all columns: PER of a tile, AT_ONCE side by side. */
    template <class T> INLINE void take_rows(int k, Frame &f) {
        using Row = typename T::Row;
        constexpr int BLOCKS = (S::COLUMNS + S::UNITS - 1) / S::UNITS, PER = (TILE_N + BLOCKS - 1) / BLOCKS;
        constexpr int AT_ONCE = MULTIPLIERS / Row::ACROSS;
        const int first = block.column / S::UNITS * PER, column = (int)threadIdx.x % Row::ACROSS * VECTOR;
#pragma unroll 1
        for (int tile = 0; tile < TILES && block.tile_rows(tile) > 0; tile++) {
            const int end = min(block.tile_rows(tile), first + PER);
            f.tile = block.tile(tile);
#pragma unroll 1
            for (int n = first; n < end; n += AT_ONCE) {
                typename T::Values values;
                f.n = n + (int)threadIdx.x / Row::ACROSS;
                f.there = f.n < end;
                const long long row = block.row + tile * TILE_N + min(f.n, end - 1);
                T::fetch(f, row, column, values);
                if (n == first) wait_for_values(k, f.tile);
                T::fetch_tagged(block.c, f, row, column, values);
                asm volatile("bar.sync 1, 256;" ::: "memory"); /* nobody reads sums of rows before */
                T::fetch_late(f, row, column, values);
                T::apply(f, row, column, values, [&]() {
                    if (n + AT_ONCE >= end && T::RAISES > 0) tell();
                });
            }
            if (first >= end) { /* it has none, and says so */
                asm volatile("bar.sync 1, 256;" ::: "memory");
                if (T::RAISES > 0) tell();
            }
        }
    }

    INLINE void run() {
        keep_weights();
        if (STARTED) find_starts();
#pragma unroll 1
        for (i = 0; i < ITERATIONS_OF(block.c); i++) S::each(*this);
    }
};

/* ---- telling ---- */

/* One warp raises the counters of what the block has written: that takes as long as the writing, and nobody else waits for it. */
template <class S> INLINE void tell_all(const Block &block) {
    const int thread = (int)threadIdx.x % 32;
    Shared shared;
    Turn told;
#pragma unroll 1
    for (int i = 0; i < ITERATIONS_OF(block.c); i++) {
#pragma unroll 1
        for (int k = 0; k < S::STEPS; k++) {
            Due due(block.c, block.step_at(k));
            if (S::raises(k) == 0 || !due.is_due(i)) continue;
            const Place &place = Shared::places()[S::first_place(k) + S::raise_place(k, thread)];
            unsigned long long counter = thread < S::raises(k) ? place.slot(i) : 0;
#pragma unroll 1
            for (int tile = 0; tile < TILES && block.tile_rows(tile) > 0; tile++) {
                barrier_wait(shared.telling(told.n), told.parity);
                if (counter) raise(counter + (unsigned long long)(block.tile(tile) * 4));
                __syncwarp();
                if (thread == 0) barrier_arrive(shared.telling(told.n) + 8);
                told.move();
            }
        }
    }
}

/* ---- roles ---- */

template <class S> INLINE Block find_block(const Words &c, int seat) {
    int n = (int)blockIdx.x - (int)c.w[seat], across = (S::COLUMNS + S::UNITS - 1) / S::UNITS;
    int row = n / across * SLICE;
    return Block{c, seat, n % across * S::UNITS, row, min(SLICE, BATCH_OF(c) - row), n / across};
}

template <class S> INLINE void load_all(const Words &c, int seat) {
    Block block = find_block<S>(c, seat);
    asm volatile("bar.sync 0;" ::: "memory");
    int warp = (int)threadIdx.x / 32 - MULTIPLIERS / 32;
    if (warp < 2 && threadIdx.x % 32 == 0) load_lane<S>(block, warp);
    if (warp == 2) tell_all<S>(block);
}

template <class S> INLINE void multiply_all(const Words &c, int seat) {
    Block block = find_block<S>(c, seat);
    if (threadIdx.x < 128)
        Multiplier<S, 0>(block).run();
    else
        Multiplier<S, 1>(block).run();
}

/* Written behind this text: calls multiply_all or load_all for the class of this number. */
template <bool MULTIPLIES> INLINE void for_class(const Words &c, int seat, int index);

extern "C" __global__ void __launch_bounds__(512, 1) persistent_kernel(const __grid_constant__ Words c) {
    int seat = HEADER_WORDS;
    for (int s = 1; s < SEATS; s++)
        if ((int)blockIdx.x >= (int)c.w[HEADER_WORDS + s * SEAT_WORDS]) seat = HEADER_WORDS + s * SEAT_WORDS;
    for (int k = 0, n = 0; k < SEAT_WORDS - 2; k++) {
        int at = (int)c.w[seat + 2 + k], count = (int)(c.w[seat + 2 + k] >> 32);
        for (int w = (int)threadIdx.x; w < count * PLACE_WORDS; w += 512)
            ((unsigned long long *)(Shared::places() + n))[w] = c.w[at + STEP_WORDS + w];
        n += count;
    }
    if (threadIdx.x == 0) {
        Shared shared;
        for (int n = 0; n < 2 * MOST_RING; n++) {
            barrier_make(shared.full(0, n), 1);
            barrier_make(shared.empty(0, n), 4);
        }
        for (int n = 0; n < 2; n++) {
            barrier_make(shared.telling(n), MULTIPLIERS / 32);
            barrier_make(shared.telling(n) + 8, 1);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x < MULTIPLIERS) {
        asm volatile("setmaxnreg.inc.sync.aligned.u32 216;");
        for_class<true>(c, seat, (int)c.w[seat + 1]);
    } else {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        for_class<false>(c, seat, (int)c.w[seat + 1]);
    }
}
