/* Skeleton of a kernel that goes through a whole time loop: stands behind persistent_base.cuh and the texts of the seats.
 *
 * A seat is the work that shares one set of weights, such as a layer: its columns are cut into blocks of UNITS, the batch
 * into slices, and every block keeps the weights of its columns, in registers first, then in shared memory. There are
 * enough processors for all blocks at once. In every iteration a block takes the steps of its seat that are due: products
 * of its weights with what other blocks have published, then the map of every element.
 *
 * Weights are the left operand of wgmma: row p * UNITS + u of 64 is unit u of product p. The right operand is a tile of
 * TILE_N rows of the batch. Depth is cut into chunks of 128 bytes, and these between two lanes: loading warps that copy a
 * chunk of the tile into a stage of shared memory and look whether all of it has come, and a warpgroup that multiplies.
 * Lane 0 has what comes from elsewhere, lane 1 what this seat itself gave at the step before; where there is only one of
 * these, both share it. Sums of both lanes meet in shared memory, where both warpgroups take elements for the map.
 *
 * A class of seats, struct Seat, has
 *   STEPS, PRODUCTS, UNITS, COLUMNS, CHUNKS(lane), HELD(lane) (chunks in registers), SEGMENTS(lane)
 *   segment(lane, n, field)     pass, its first chunk here, chunks
 *   depth(pass), chunk_pass(lane, chunk), chunk_first(lane, chunk)
 *   left(step, pass), channel(step, pass)   places of the operand in memory and between blocks (or -1)
 *   left_row(step, pass), channel_row(pass) elements from row to row there
 *   places(step), views(step), first_place(step), PLACES    of a step: all, those that are views or twins, those of steps before
 *   right(pass, product)        place of the weights, or -1; right_any(pass): of some product
 *   IS_STARTED, start(product)  place of what all rows of a product begin with, or -1, where the steps leave it to the sums
 *   pass_chunks(pass)           of an operand
 *   waits(step), wait_place(step, n)        counters of what the map reads of other seats
 *   raise_place(step, n)        counters of what others read
 *   each(f)                     calls f.step<Step0>(0), f.step<Step1>(1), ...
 * and a step TILED, RAISES, Values, fetch(frame, row, column, values), fetch_late() of what comes from other seats,
 * apply(frame, row, column, sums, values, tell), which calls tell() when all that others read is written. */

enum {
    SIZE = TILE_BYTES,   /* of an element of the operands */
    PIECE = 16 / SIZE,   /* elements that are copied at once */
    CHUNK = 128 / SIZE,  /* of depth */
    LOADERS = 128,       /* threads of a lane that copy */
    MULTIPLIERS = 256,   /* threads of both lanes that multiply */
    STAGE_BYTES = TILE_N * 128,
    WEIGHT_BYTES = 64 * 128, /* of a chunk in shared memory */
    SUM_BYTES = TILE_N * 64 * 4, /* of a lane */
    WINDOW = STAGES <= 8 ? STAGES - 1 : 8 /* chunks under way; the last that was multiplied is not free yet */
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
INLINE void copy_whole(unsigned to, unsigned long long from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
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

extern __shared__ __align__(1024) unsigned char shared_memory[];

struct Shared {
    unsigned base;
    INLINE Shared() : base(shared_address(shared_memory)) {}
    static constexpr int WEIGHTS = 2 * STAGES * STAGE_BYTES, SUMS = WEIGHTS + WEIGHT_CHUNKS * WEIGHT_BYTES,
                         BARRIERS = SUMS + SUM_BUFFERS * 2 * SUM_BYTES, PLACES = BARRIERS + 2 * STAGES * 16,
                         ADDRESSES = PLACES + MOST_PLACES * 32;
    INLINE unsigned stage(int lane, int n) const { return base + (unsigned)((lane * STAGES + n) * STAGE_BYTES); }
    INLINE unsigned weights(int n) const { return base + (unsigned)(WEIGHTS + n * WEIGHT_BYTES); }
    INLINE unsigned sums(int buffer, int lane) const { return base + (unsigned)(SUMS + (buffer * 2 + lane) * SUM_BYTES); }
    INLINE unsigned full(int lane, int n) const { return base + (unsigned)(BARRIERS + (lane * STAGES + n) * 16); }
    INLINE unsigned empty(int lane, int n) const { return full(lane, n) + 8; }
    static INLINE Place *places() { return (Place *)(shared_memory + PLACES); }
    /* Addresses at an iteration: those of three lie there at once. */
    static INLINE unsigned long long *addresses(int turn) {
        return (unsigned long long *)(shared_memory + ADDRESSES) + turn * MOST_PLACES;
    }
};

/* A place in the ring of stages. */
struct Stage {
    int n = 0;
    unsigned parity = 0;
    INLINE void move() {
        if (++n == STAGES) {
            n = 0;
            parity ^= 1;
        }
    }
};

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

template <class S> struct Loader {
    static constexpr int HIGH = (TILE_N + 3) / 4, ROUNDS = (HIGH + 3) / 4; /* rows of a warp, and of its threads */
    const Block &block;
    const int lane, piece, first; /* rows first, first + 4, ... */
    Shared shared;
    Stage ahead, behind; /* the next to be filled; the next to be handed on */

    INLINE Loader(const Block &block, int lane)
        : block(block), lane(lane), piece((int)threadIdx.x % 8),
          first((int)threadIdx.x % 128 / 32 * HIGH + (int)threadIdx.x % 32 / 8) {}

    /* Of a tile of so many rows, those that are this thread's. */
    INLINE int rounds_of(int high) const {
        int end = min(high, (int)threadIdx.x % 128 / 32 * HIGH + HIGH);
        return max(0, (end - first + 3) / 4);
    }

    INLINE void wait_for_stage() const {
        barrier_wait(shared.empty(lane, ahead.n), ahead.parity ^ 1);
        __syncwarp();
    }
    INLINE void arrive() {
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(shared.full(lane, behind.n));
        behind.move();
    }

    /* ---- what other blocks give: a chunk is one copy */

    INLINE void load_fresh(unsigned long long at, int chunks) {
#pragma unroll 1
        for (int c = 0; c < chunks; c++) {
            wait_for_stage();
            if (threadIdx.x % 128 == 0) {
                unsigned full = shared.full(lane, ahead.n);
                asm volatile("mbarrier.expect_tx.relaxed.cta.shared.b64 [%0], %1;" ::"r"(full), "r"((int)STAGE_BYTES)
                             : "memory");
                asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
                                 "r"(shared.stage(lane, ahead.n)),
                             "l"(at + (unsigned long long)(c * STAGE_BYTES)), "r"((int)STAGE_BYTES), "r"(full)
                             : "memory");
            }
            ahead.move();
            arrive();
        }
    }

    /* ---- what lies in memory since before: row by row, in pieces of 16 bytes where it lies at multiples of that */

    INLINE void copy_slowly(unsigned to, unsigned long long from, int there) const {
        unsigned words[4] = {};
#pragma unroll 1
        for (int e = 0; e < there / SIZE; e++) {
            unsigned x;
            if (SIZE == 2)
                x = (unsigned)*(const unsigned short *)(from + 2 * e);
            else
                x = *(const unsigned *)(from + 4 * e);
#pragma unroll
            for (int w = 0; w < 4; w++)
                if (w == e * SIZE / 4) words[w] |= x << e * SIZE % 4 * 8;
        }
        write_piece(to, words);
    }

    INLINE void fill(unsigned long long at, long long pitch, int there, int rounds, bool whole) {
        unsigned to = shared.stage(lane, ahead.n);
#pragma unroll 1
        for (int r = 0; r < rounds; r++, at += (unsigned long long)(4 * pitch)) {
            unsigned place = to + swizzled(first + 4 * r, piece);
            if (whole)
                copy_async(place, at, there);
            else
                copy_slowly(place, at, there);
        }
    }

#if TILE_TF32
    INLINE void round_all(int rounds) const {
        unsigned x[4];
#pragma unroll 1
        for (int r = 0; r < rounds; r++) {
            unsigned place = shared.stage(lane, behind.n) + swizzled(first + 4 * r, piece);
            read_piece(place, x);
#pragma unroll
            for (int i = 0; i < 4; i++) x[i] = bits_of(__uint_as_float(x[i]));
            write_piece(place, x);
        }
    }
#endif

    INLINE void load_given(unsigned long long at, long long pitch, int bytes, int chunks, int rounds) {
        const bool whole = ((at | (unsigned long long)pitch) & 15) == 0;
        at += (unsigned long long)(first * pitch + piece * 16);
#pragma unroll 1
        for (int c = 0; c < chunks + WINDOW - 1; c++) {
            if (c < chunks) {
                int there = max(0, min(16, bytes - c * 128 - piece * 16));
                wait_for_stage();
                fill(there ? at + (unsigned long long)(c * 128) : at - (unsigned long long)(piece * 16), pitch, there, rounds,
                     whole);
                ahead.move();
            }
            copies_commit();
            if (c < WINDOW - 1) continue;
            copies_wait<WINDOW - 1>();
#if TILE_TF32
            round_all(rounds);
#endif
            publish_shared();
            arrive();
        }
    }

    /* ---- */

    INLINE void wait_for_place(const Place &counter, int i, int tile) const {
        if (threadIdx.x % 128 == 0 && counter.is_fresh(i))
            wait_for(block.c, counter.slot(i) + (unsigned long long)(tile * 4), (unsigned)counter.row);
    }

    INLINE void load_segment(int i, int t, int k, int n, int tile) {
        int pass = S::segment(lane, n, 0), skip = S::segment(lane, n, 1), chunks = S::segment(lane, n, 2);
        int channel = S::channel(k, pass);
        const Place *places = Shared::places() + S::first_place(k);
        if (channel >= 0 && places[channel].is_fresh(i)) {
            wait_for_place(places[channel + 1], i, block.tile(tile));
            if (threadIdx.x % 128 == 0) asm volatile("fence.proxy.async.global;" ::: "memory");
            load_fresh(places[channel].slot(i) + (unsigned long long)((block.tile(tile) * S::pass_chunks(pass) + skip) *
                                                                     STAGE_BYTES),
                       chunks);
        } else {
            long long pitch = (long long)S::left_row(k, pass) * SIZE;
            unsigned long long at = places[S::left(k, pass)].view(i, t);
            load_given(at + (unsigned long long)((block.row + tile * TILE_N) * pitch + skip * 128), pitch,
                       S::depth(pass) * SIZE - skip * 128, chunks, rounds_of(block.tile_rows(tile)));
        }
    }

    INLINE void run() {
#pragma unroll 1
        for (int i = 0; i < ITERATIONS_OF(block.c); i++) {
#pragma unroll 1
            for (int k = 0; k < S::STEPS; k++) {
                Due due(block.c, block.step_at(k));
                if (!S::is_tiled(k) || !due.is_due(i)) continue;
#pragma unroll 1
                for (int tile = 0; tile < TILES && block.tile_rows(tile) > 0; tile++) {
                    for (int n = 0; n < S::waits(k); n++)
                        wait_for_place(Shared::places()[S::first_place(k) + S::wait_place(k, n)], i, block.tile(tile));
#pragma unroll 1
                    for (int n = 0; n < S::SEGMENTS(lane); n++) load_segment(i, due.time(i), k, n, tile);
                }
            }
        }
    }
};

/* ---- multiplying ---- */

template <class S, int LANE> struct Multiplier {
    static constexpr int CHUNKS = S::CHUNKS(LANE), HELD = S::HELD(LANE), BEFORE = LANE ? S::CHUNKS(0) - S::HELD(0) : 0;
    static constexpr int VECTORS = TILE_N * S::UNITS / VECTOR, EACH = (VECTORS + MULTIPLIERS - 1) / MULTIPLIERS;
    static constexpr int ACROSS = S::UNITS / VECTOR;
    static constexpr bool STARTED = S::IS_STARTED && LANE == (S::CHUNKS(0) == 0);
    const Block &block;
    const int warp, thread;
    Shared shared;
    Stage stage;
    unsigned a[HELD > 0 ? HELD * 4 : 1][4];
    float starts[2];
    int i, buffer;

    INLINE Multiplier(const Block &block)
        : block(block), warp((int)threadIdx.x / 32 % 4), thread((int)threadIdx.x % 32), i(0), buffer(0) {}

    /* A chunk of the weights as 64 rows of 128 bytes; it has come when the thread's copies have. */
    INLINE void bring_weights(int c, unsigned to) const {
        const int pass = S::chunk_pass(LANE, c), from = S::chunk_first(LANE, c) * CHUNK, depth = (S::depth(pass) + 7) / 8 * 8;
        const Place *places = Shared::places() + S::first_place(S::TILED_STEP);
        const int piece = (int)threadIdx.x % 8, k = from + piece * PIECE;
#pragma unroll
        for (int r = 0; r < 4; r++) {
            int m = (int)threadIdx.x % 128 / 8 + r * 16, p = m / S::UNITS, unit = block.column + m % S::UNITS;
            int place = p < S::PRODUCTS ? S::right(pass, p) : -1;
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

    /* Through the stages' memory, which nobody fills before all have come. */
    INLINE void keep_weights() {
        constexpr int BATCH = STAGES * STAGE_BYTES / WEIGHT_BYTES;
        static_assert(BATCH > 0, "room for a chunk of each lane");
        const unsigned room = shared.stage(LANE, 0);
        const int m = warp * 16 + thread / 4;
#pragma unroll 1
        for (int c = HELD; c < CHUNKS; c++) bring_weights(c, shared.weights(BEFORE + c - HELD));
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
        for (int c = HELD; c < CHUNKS; c++) {
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

    template <int C> INLINE void chunk(float (&sums)[TILE_N / 2], int &last) {
        if constexpr (C < CHUNKS) {
            barrier_wait(shared.full(LANE, stage.n), stage.parity);
            unsigned long long b = descriptor(shared.stage(LANE, stage.n));
            warpgroup_fence();
#pragma unroll
            for (int j = 0; j < 4; j++) {
                if constexpr (C < HELD)
                    multiply(sums, a[C * 4 + j], b + j * 2, STARTED + C + j);
                else
                    multiply(sums, descriptor(shared.weights(BEFORE + C - HELD)) + j * 2, b + j * 2, STARTED + C + j);
            }
            warpgroup_commit();
            if constexpr (C > 0) {
                warpgroup_wait<1>();
                release(last);
            }
            last = stage.n;
            stage.move();
            chunk<C + 1>(sums, last);
        }
    }

    /* Sums of row n of the tile and row m of the weights lie at n * 64 + (m ^ turn(n)): neither those who write them nor
     * those who read them meet in banks. */
    static INLINE int turn(int n) { return (n & 1) << 4 ^ (n >> 1 & 3) << 3; }

    /* Sums of both lanes, in shared memory. What the map reads of other seats has come with the first chunk. */
    template <class F> INLINE void multiply_all(F fetch_late) {
        if constexpr (CHUNKS > 0) {
            float sums[TILE_N / 2];
            barrier_wait(shared.full(LANE, stage.n), stage.parity);
            fetch_late();
#pragma unroll
            for (int n = 0; n < TILE_N / 2; n++) sums[n] = STARTED ? starts[n / 2 % 2] : 0;
            int last = 0;
            chunk<0>(sums, last);
            warpgroup_wait<0>();
            release(last);
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
    }

    template <int L> INLINE void add_sums(int n, int m, REAL (&x)[VECTOR], bool more) const {
        if constexpr (S::CHUNKS(L) > 0) {
            const float *from = (const float *)(shared_memory + (shared.sums(buffer, L) - shared.base)) + n * 64 +
                                (m ^ turn(n));
#pragma unroll
            for (int v = 0; v < VECTOR; v++) x[v] = (more ? x[v] : 0) + from[v];
        }
    }

    /* Addresses of a step's places at an iteration. */
    INLINE void find_addresses(const Due &due, int k, int i) const {
        const int first = S::first_place(k);
#pragma unroll 1
        for (int p = (int)threadIdx.x; p < S::places(k); p += MULTIPLIERS) {
            const Place &place = Shared::places()[first + p];
            Shared::addresses(i % 3)[first + p] = p < S::views(k) ? place.view(i, due.time(i)) : place.slot(i);
        }
    }

    /* What this block gives has been written by all its threads: one warp waits for them, and tells. */
    template <int RAISES> INLINE void tell(const Frame &f, int k) const {
        if constexpr (RAISES > 0) {
            asm volatile("fence.proxy.async.global;" ::: "memory");
            if (LANE == 1 || warp > 0) {
                asm volatile("bar.arrive 5, 256;" ::: "memory");
                return;
            }
            asm volatile("bar.sync 5, 256;" ::: "memory");
            unsigned long long counter = thread < RAISES ? f.place(S::raise_place(k, thread)) : 0;
            if (counter) raise(counter + (unsigned long long)(f.tile * 4));
        }
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
                    for (int p = 0; p < S::PRODUCTS; p++) {
                        add_sums<0>(min(f.n, TILE_N - 1), p * S::UNITS + u, sums[p], false);
                        add_sums<1>(min(f.n, TILE_N - 1), p * S::UNITS + u, sums[p], S::CHUNKS(0) > 0);
                    }
                }
                T::apply(f, row + f.n, block.column + u, sums, values[e], [&]() {
                    if (e == EACH - 1) tell<T::RAISES>(f, k);
                });
            }
            if (T::TILED && SUM_BUFFERS == 2) buffer ^= 1;
        }
    }

    INLINE void run() {
        keep_weights();
        if (STARTED) find_starts();
#pragma unroll 1
        for (i = 0; i < ITERATIONS_OF(block.c); i++) S::each(*this);
    }
};

/* ---- roles ---- */

template <class S> INLINE Block find_block(const Words &c, int seat) {
    int n = (int)blockIdx.x - (int)c.w[seat], across = (S::COLUMNS + S::UNITS - 1) / S::UNITS;
    int row = n / across * SLICE;
    return Block{c, seat, n % across * S::UNITS, row, min(SLICE, BATCH_OF(c) - row), n / across};
}

template <class S> INLINE void load_all(const Words &c, int seat) {
    Block block = find_block<S>(c, seat);
    asm volatile("bar.sync 0;" ::: "memory");
    Loader<S>(block, (int)threadIdx.x / 128 - 2).run();
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
        for (int n = 0; n < 2 * STAGES; n++) {
            barrier_make(shared.full(0, n), LOADERS / 32);
            barrier_make(shared.empty(0, n), 4);
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
