/* Skeleton of a kernel that goes through a whole time loop: stands behind persistent_base.cuh and the texts of the seats.
 *
 * A seat is the work that shares one set of weights, such as a layer: its columns are cut into blocks of UNITS, the batch
 * into slices, and every block keeps the weights of its columns, in registers first, then in shared memory. There are
 * enough processors for all blocks at once. In every iteration a block takes the steps of its seat that are due, tile of rows
 * after tile: products of its weights with what other blocks have written, then the map of every element.
 *
 * Weights are the left operand of wgmma, a tile of TILE_ROWS rows of the batch is the right one. Where there are few rows, depth
 * is folded: row (q * UNIT_ROWS + p) * UNITS + u of 64 is fold q of unit u of product p, and column q * TILE_ROWS + n of TILE_N
 * is fold q of row n. Sums of equal folds are added, others are not looked at: the instruction takes no longer for them, and
 * a block has fewer units, so that more blocks keep a matrix. Of a tile of 8 rows, warps multiply by themselves (mma.sync), each with
 * its own fold alone. A fold's depth is cut into chunks of 128 bytes, of numbers in
 * PARTS one chunk for each of these, and shared out to two lanes, each with one thread that waits for counters and copies
 * groups of chunks into a ring in shared memory, and a warpgroup that multiplies. Lane 0 has
 * what comes from elsewhere, lane 1 what this seat itself gave at the step before; where there is only one of these, both
 * share it. Sums of both lanes meet in shared memory, where both warpgroups take elements for the map. One more warp, the
 * teller, raises the counters of what the block has written.
 * Where CLUSTER is not 0, blocks are cut otherwise and send each other operands: see persistent_cluster.cuh.
 *
 * A class of seats, struct Seat, has
 *   STEPS, PRODUCTS, UNITS, BLOCKS (of a slice), COLUMNS, TILED_STEP (the first with products)
 *   CHUNKS, HELD, KEPT(lane)    chunks of all parts, those in registers, those in shared memory; others are copied every time
 *   GROUPS(lane), RING(lane)    groups of chunks, and those that there is room for, which go into them evenly
 *   group_pass, group_first, group_chunks, group_before(lane, group)   pass, first chunk of it, chunks, those of groups before
 *   depth(pass), pass_chunks(pass), chunk_pass(lane, chunk), chunk_first(lane, chunk)
 *   channel(step, pass)         place of the operand; the next one is its counter
 *   places(step), views(step), first_place(step)   of a step: places, those that are views or twins, those of steps before
 *   row_place(step), leaves(step)   place of how many rows go on, or -1; whether it rests where none does
 *   UNIT_ROWS                   of weights that a unit has in a lane: its products, or, where these are paired, those of a lane
 *   product_lane(product)       the lane that has it, or -1: both
 *   product_row(product)        of its unit
 *   right(pass, row)            place of the weights, or -1; right_any(pass): of some row
 *   IS_STARTED, start(product)  place of what all rows of a product begin with, or -1, where the steps leave it to the sums
 *   waits(step), wait_place(step, n)        counters of what the map reads of other seats
 *   raises(step), raise_place(step, n)      counters of what others read
 *   each(f)                     calls f.step<Step0>(0), f.step<Step1>(1), ...
 * and a step TILED, RAISES, WAITS, COUNTED (row_place), Values, fetch(frame, row, column, values), fetch_late() of what comes from
 * other seats, apply(frame, row, column, sums, values, tell), which calls tell() when all that others read is written. A step that
 * is taken by rows (BY_ROWS) has Row, of persistent_rows.cuh, and no sums of products: the rows of a tile are shared out between
 * the blocks of the seat, and every thread meets the others before it reads what these wrote. fetch_tagged() reads what comes
 * with tags, before. */

/* ---- multiplying ---- */

template <class S, int LANE> struct Multiplier {
    static constexpr int GROUPS = S::GROUPS(LANE), RING = S::RING(LANE);
    static constexpr int CHUNKS = S::CHUNKS(LANE), HELD = S::HELD(LANE), KEPT = S::KEPT(LANE),
                         BEFORE = LANE ? S::KEPT(0) : 0;
    static constexpr int VECTORS = TILE_ROWS * S::UNITS / VECTOR, EACH = (VECTORS + MULTIPLIERS - 1) / MULTIPLIERS;
    static constexpr int ACROSS = S::UNITS / VECTOR;
    static constexpr bool STARTED = S::IS_STARTED && (CLUSTER || LANE == (S::CHUNKS(0) == 0));
    static constexpr int FIRST_ROW = CLUSTER && FOLD == 1 ? LANE * 64 : 0,
                         FIRST_FOLD = FOLD > LANE_FOLDS ? LANE *LANE_FOLDS : 0;
    static constexpr int ROWS = EXACT ? 4 : 2; /* of the weights that a thread has */
    const Block &block;
    const int warp, thread;
    Shared shared;
    Ring<S, LANE> ring;
    unsigned a[HELD > 0 ? HELD * 4 : 1][4];
    float starts[ROWS];
    Turn told;
    int i, buffer;
#if CLUSTER
    Slots received = {0, 0}, sent = {0, S::FROM_MEMORY};
#endif

    INLINE Multiplier(const Block &block)
        : block(block), warp((int)threadIdx.x / 32 % 4), thread((int)threadIdx.x % 32), i(0), buffer(0) {}

    /* Row m of the lane's weights. */
    struct Weight {
        int m, unit, row, fold; /* row: of the unit's; fold: of the lane's, or behind these */
        INLINE Weight(int m)
            : m(m), unit((FIRST_ROW + m) % S::UNITS), row((FIRST_ROW + m) / S::UNITS % S::UNIT_ROWS),
              fold((FIRST_ROW + m) / (S::UNITS * S::UNIT_ROWS)) {}
        INLINE bool is_there() const { return fold < LANE_FOLDS; }
    };

    INLINE int row_of(int r) const { return warp * 16 + (EXACT ? thread / 8 * 4 + r : thread / 4 + r * 8); }

    /* A part of eight weights, from memory to shared memory. */
    static INLINE void bring_part(unsigned to, const float *from, bool there, int part) {
        const float4 none = make_float4(0, 0, 0, 0), low = there ? ((const float4 *)from)[0] : none,
                     high = there ? ((const float4 *)from)[1] : none;
        float x[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
        unsigned y[4];
#pragma unroll 1
        for (int p = 0; p <= part; p++) {
#pragma unroll
            for (int i = 0; i < 4; i++) {
                y[i] = bits_of(take_part<BFloat16>(x[2 * i]));
                y[i] |= bits_of(take_part<BFloat16>(x[2 * i + 1])) << 16;
            }
        }
        write_piece(to, y);
    }

    /* A chunk of the weights as 64 rows of 128 bytes; it has come when the thread's copies have. */
    INLINE void bring_weights(int c, unsigned to) const {
        const int pass = S::chunk_pass(LANE, c), first = S::chunk_first(LANE, c), from = first / PARTS * CHUNK,
                  depth = (S::depth(pass) + 7) / 8 * 8;
        constexpr int BYTES = PARTS > 1 ? 4 : SIZE; /* of a weight in memory */
        const Place *places = Shared::places() + S::first_place(S::TILED_STEP);
        const int piece = (int)threadIdx.x % 8;
#pragma unroll
        for (int r = 0; r < 4; r++) {
            const Weight w((int)threadIdx.x % 128 / 8 + r * 16);
            const int unit = block.column + w.unit,
                      k = (FIRST_FOLD + w.fold) * (S::pass_chunks(pass) / PARTS) * CHUNK + from + piece * PIECE;
            int place = w.is_there() ? S::right(pass, w.row) : -1;
            bool there = place >= 0 && unit < S::COLUMNS && k < depth;
            unsigned long long at = places[place >= 0 ? place : 0].address;
            if (there) at += (unsigned long long)((unit * (long long)depth + k) * BYTES);
            if constexpr (PARTS > 1)
                bring_part(to + swizzled(w.m, piece), (const float *)at, there, first % PARTS);
            else
                copy_async(to + swizzled(w.m, piece), there ? at : places[S::right_any(pass)].address, there ? 16 : 0);
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

    /* Chunk c of the weights, which lies there, in registers. */
    INLINE void hold(int c, unsigned from) {
#pragma unroll
        for (int j = 0; j < 4; j++) {
#if EXACT
            read_piece(from + swizzled(row_of(j), thread % 8), a[c * 4 + j]);
#else
#pragma unroll
            for (int r = 0; r < 4; r++) {
                unsigned at = from + swizzled(row_of(r % 2), j * 2 + r / 2) + (unsigned)(thread % 4 * 4);
                asm volatile("ld.shared.b32 %0, [%1];" : "=r"(a[c * 4 + j][r]) : "r"(at) : "memory");
                a[c * 4 + j][r] = as_operand(a[c * 4 + j][r]);
            }
#endif
        }
    }

    /* Through the lane's memory, which nobody fills before all have come. */
    INLINE void keep_weights() {
        constexpr int BATCH = LANE_BYTES / WEIGHT_BYTES;
        static_assert(BATCH > 0, "room for a chunk of each lane");
        const unsigned room = shared.room(LANE);
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
            for (int c = first; c < HELD && c < first + BATCH; c++)
                hold(c, room + (unsigned)((c - first) * WEIGHT_BYTES));
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

    /* What all rows begin with. */
    INLINE void find_starts() {
        const Place *places = Shared::places() + S::first_place(S::TILED_STEP);
#pragma unroll
        for (int r = 0; r < ROWS; r++) {
            const Weight w(row_of(r));
            const int unit = block.column + w.unit, place = FIRST_FOLD + w.fold == 0 ? S::start(w.row) : -1;
            starts[r] = place >= 0 && unit < S::COLUMNS ? ((const float *)places[place].address)[unit] : 0;
        }
    }

    /* Products of parts have many addresses: found anew for every group, they need no registers in between. */
    INLINE void forget_addresses() {
        if (PARTS > 1) asm volatile("" : "+r"(shared.base));
    }

#if CLUSTER
    INLINE void release(int) {} /* see persistent_send.cuh */

    INLINE unsigned chunk_at(int g, int c) const {
        return shared.slot(received.slot()) +
               (unsigned)((S::group_before(LANE, g) + c) * CHUNK_BYTES + FIRST_FOLD * (TILE_ROWS * 128));
    }

    /* All of the operand has come; its barrier begins to wait for the one that takes its place. */
    INLINE void wait_for_group(int g) {
        if (g > 0) return;
        const unsigned full = shared.full(0, received.slot());
        wait_for_peers(block.c, full, received.parity());
        if (threadIdx.x == 0) barrier_expect(full, block.tile_rows(received.tile) * S::ROW_BYTES);
        __syncwarp(); /* warps multiply as one */
    }
    INLINE void end_tile() { received.move(block); }
#else
    INLINE void release(int n) {
        if (thread == 0) barrier_arrive(shared.empty(LANE, n));
    }

    INLINE unsigned chunk_at(int g, int c) const { return shared.chunk(LANE, ring.slot(g), c); }
    INLINE void wait_for_group(int g) const { barrier_wait(shared.full(LANE, ring.slot(g)), ring.parity(g)); }
    INLINE void end_tile() { ring.move(); }
#endif

    /* Sums of row n of the tile and row m of the weights lie at n * 64 + (m ^ turn(n)): neither those who write them nor
     * those who read them meet in banks. */
    static INLINE int turn(int n) { return (n & 1) << 4 ^ (n >> 1 & 3) << 3; }

    /* The lane's fold that all of a thread's rows of weights are of, where they are; rows behind all folds are with the last. */
    INLINE int own_fold() const {
        constexpr bool FULL = S::UNITS * S::UNIT_ROWS * LANE_FOLDS >= 64;
        const int fold = LANE_FOLDS > 1 ? Weight(EXACT ? row_of(0) : warp * 16).fold : 0;
        return FULL ? fold : min(fold, LANE_FOLDS - 1);
    }

#if EXACT

    using Sums = float[4 * EXACT_ROWS];

    INLINE void begin(Sums &sums) const {
#pragma unroll
        for (int n = 0; n < 4 * EXACT_ROWS; n++) sums[n] = 0;
    }

    template <int G, int C> INLINE void multiply_chunk(Sums &sums) {
        if constexpr (C < S::group_chunks(LANE, G)) {
            constexpr int CHUNK = S::group_before(LANE, G) + C;
            const unsigned stored = CHUNK < HELD + KEPT ? shared.weights(BEFORE + CHUNK - HELD)
                                                        : shared.copied_weights(LANE, ring.slot(G), C);
            float w[4][4];
#pragma unroll
            for (int r = 0; r < 4; r++) {
                if constexpr (CHUNK < HELD) {
#pragma unroll
                    for (int k = 0; k < 4; k++) w[r][k] = __uint_as_float(a[CHUNK * 4 + r][k]);
                } else {
                    read_four(stored + swizzled(row_of(r), thread % 8), w[r]);
                }
            }
            multiply_add<EXACT_ROWS>(sums, w, chunk_at(G, C) + (unsigned)(own_fold() * TILE_ROWS * 128), thread % 8);
            multiply_chunk<G, C + 1>(sums);
        }
    }

    template <int G> INLINE void multiply_group(Sums &sums) {
        if constexpr (G < GROUPS) {
            if (G > 0) wait_for_group(G);
            multiply_chunk<G, 0>(sums);
            __syncwarp();
            release(ring.slot(G));
            multiply_group<G + 1>(sums);
        }
    }

    INLINE void end(Sums &) const {}

    INLINE void write_sums(unsigned to, Sums &sums) const {
        constexpr int COUNT = EXACT_ROWS > 2 ? EXACT_ROWS / 2 : 1;
        const int first = add_up<4 * EXACT_ROWS>(sums, thread % 8);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const int n = (first + i) / 4, r = (first + i) % 4;
            const float start = r == 0 ? starts[0] : r == 1 ? starts[1] : r == 2 ? starts[2] : starts[3];
            const int row = own_fold() * TILE_ROWS + n;
            const unsigned at = to + (unsigned)((row * 64 + (row_of(r) ^ turn(row))) * 4);
            if (first < 0) continue;
            asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(STARTED ? sums[i] + start : sums[i]) : "memory");
        }
    }

#else

    /* Tiles of 8 rows, by warps, all of whose rows of weights are of one fold: four sums for every element, so that they do not
     * wait for each other, which are added at the end. */
    static constexpr bool FEW = TILE_ROWS == 8 && (LANE_FOLDS == 1 || S::UNITS * S::UNIT_ROWS % 16 == 0);
    static constexpr int SUMS = FEW ? 16 : LANE_N / 2;

    /* The tensor cores cut sums off instead of rounding them, each time that something is added. So where numbers have three parts,
     * what is small is added up by itself. */
    struct Sums {
        float all[SUMS], small[PARTS > 2 ? SUMS : 1];
    };

    INLINE void begin(Sums &sums) const {
#pragma unroll
        for (int n = 0; n < SUMS; n++) {
            sums.all[n] = STARTED && (!FEW || n < 4) ? starts[n / 2 % 2] : 0;
            if constexpr (FEW && PARTS > 2) sums.small[n] = 0;
        }
    }

    /* A chunk of the operand that lies there, with rows of weights of this warp: `weights` gets those of 32 bytes of depth. */
    template <class F> INLINE void multiply_few(float (&sums)[SUMS], unsigned chunk, F weights) const {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            unsigned b[4];
            load_matrices(
                chunk + (unsigned)(own_fold() * TILE_ROWS * 128) + swizzled(thread % 8, half * 4 + thread / 8), b);
#pragma unroll
            for (int j = half * 2; j < half * 2 + 2; j++) {
                unsigned w[4];
                weights(j, w);
                multiply_rows(sums + 4 * j % SUMS, w, b[j % 2 * 2], b[j % 2 * 2 + 1]);
            }
        }
    }

    /* The same, with weights that lie in shared memory. */
    INLINE void multiply_stored(float (&sums)[SUMS], unsigned chunk, unsigned stored) const {
        const int row = warp * 16 + thread / 8 % 2 * 8 + thread % 8;
        multiply_few(sums, chunk,
                     [&](int j, unsigned(&w)[4]) { load_matrices(stored + swizzled(row, j * 2 + thread / 16), w); });
    }

    /* Chunk C of the group with chunk W of the weights, counted as the group's: added to sums that have begun, or not. */
    template <int G, int C, int W> INLINE void multiply_with(float (&sums)[SUMS], bool begun) {
        constexpr int CHUNK = S::group_before(LANE, G) + W;
        if constexpr (FEW && CHUNK < HELD) {
            multiply_few(sums, chunk_at(G, C), [&](int j, unsigned(&w)[4]) {
#pragma unroll
                for (int r = 0; r < 4; r++) w[r] = a[CHUNK * 4 + j][r];
            });
            return;
        } else if constexpr (FEW) {
            multiply_stored(sums, chunk_at(G, C),
                            CHUNK < HELD + KEPT ? shared.weights(BEFORE + CHUNK - HELD)
                                                : shared.copied_weights(LANE, ring.slot(G), W));
            return;
        } else {
            const unsigned long long b = descriptor(chunk_at(G, C));
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int more = begun || j > 0;
                if constexpr (CHUNK < HELD)
                    multiply(sums, a[CHUNK * 4 + j], b + j * 2, more);
                else if constexpr (CHUNK < HELD + KEPT)
                    multiply(sums, descriptor(shared.weights(BEFORE + CHUNK - HELD)) + j * 2, b + j * 2, more);
                else
                    multiply(sums, descriptor(shared.copied_weights(LANE, ring.slot(G), W)) + j * 2, b + j * 2, more);
            }
        }
    }

    /* Part p of an operand with the first PARTS - p of the weights; products of later ones are next to nothing. A group has all
     * parts. */
    template <int G, int C, int P = 0> INLINE void multiply_chunk(Sums &sums) {
        if constexpr (C < S::group_chunks(LANE, G)) {
            constexpr int BEFORE_GROUP = S::group_before(LANE, G), PART = C % PARTS;
            static_assert(BEFORE_GROUP % PARTS == 0 && S::group_chunks(LANE, G) % PARTS == 0, "whole parts");
            if constexpr (PARTS > 2 && PART + P > 0)
                multiply_with<G, C, C - PART + P>(sums.small, BEFORE_GROUP + C > 0 || P > 1);
            else
                multiply_with<G, C, C - PART + P>(sums.all, STARTED || BEFORE_GROUP + C > 0 || P > 0);
            if constexpr (PART + P + 1 < PARTS)
                multiply_chunk<G, C, P + 1>(sums);
            else
                multiply_chunk<G, C + 1>(sums);
        }
    }

    /* The first group behind which all weights are copied every time: one text serves these, and takes less time to compile. */
    static INLINE constexpr int first_copied() {
        int g = 1;
        while (g < GROUPS && S::group_before(LANE, g) < HELD + KEPT) g++;
        return g;
    }
    static INLINE constexpr bool are_even() {
        for (int g = first_copied(); g < GROUPS; g++)
            if (S::group_chunks(LANE, g) != GROUP) return false;
        return true;
    }

    /* As multiply_chunk, for a group of so many chunks that lies there. */
    template <int C, int P = 0> INLINE void multiply_copied(Sums &sums, int n, int chunks) {
        if constexpr (C < GROUP) {
            constexpr int PART = C % PARTS;
            if (PART + P == 0 && C >= chunks) return;
            const unsigned chunk = shared.chunk(LANE, n, C), stored = shared.copied_weights(LANE, n, C - PART + P);
            if constexpr (FEW && PARTS > 2 && PART + P > 0) {
                multiply_stored(sums.small, chunk, stored);
            } else if constexpr (FEW) {
                multiply_stored(sums.all, chunk, stored);
            } else {
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    if constexpr (PARTS > 2 && PART + P > 0)
                        multiply(sums.small, descriptor(stored) + j * 2, descriptor(chunk) + j * 2, 1);
                    else
                        multiply(sums.all, descriptor(stored) + j * 2, descriptor(chunk) + j * 2, 1);
                }
            }
            if constexpr (PART + P + 1 < PARTS)
                multiply_copied<C, P + 1>(sums, n, chunks);
            else
                multiply_copied<C + 1>(sums, n, chunks);
        }
    }

    INLINE void multiply_rest(Sums &sums) {
#pragma unroll 1
        for (int g = first_copied(); g < GROUPS; g++) {
            const int n = ring.slot(g);
            barrier_wait(shared.full(LANE, n), ring.parity(g));
            if (!FEW) warpgroup_fence();
            multiply_copied<0>(sums, n, are_even() ? GROUP : S::group_chunks(LANE, g));
            if (FEW) {
                __syncwarp();
                release(n);
                continue;
            }
            warpgroup_commit();
            if (RING > 1) {
                warpgroup_wait<1>();
                release(ring.slot(g - 1));
            } else if (g + 1 < GROUPS) {
                warpgroup_wait<0>();
                release(0);
            }
        }
    }

    template <int G> INLINE void multiply_group(Sums &sums) {
        if constexpr (G < GROUPS && G >= first_copied()) {
            multiply_rest(sums);
        } else if constexpr (G < GROUPS) {
            forget_addresses();
            if (G > 0) wait_for_group(G);
            if (!FEW) warpgroup_fence();
            multiply_chunk<G, 0>(sums);
            if (!FEW) warpgroup_commit();
            if constexpr (CLUSTER) {
                /* all groups have come, and room */
            } else if constexpr (FEW) {
                __syncwarp();
                release(ring.slot(G));
            } else if constexpr (RING == 1 && G + 1 < GROUPS) { /* the next one needs this one's room */
                warpgroup_wait<0>();
                release(0);
            } else if constexpr (RING > 1 && G > 0) {
                warpgroup_wait<1>();
                release(ring.slot(G - 1));
            }
            multiply_group<G + 1>(sums);
        }
    }

    INLINE void end(Sums &sums) {
        if constexpr (FEW) {
#pragma unroll
            for (int n = 0; n < 4; n++) {
                sums.all[n] = (sums.all[n] + sums.all[n + 4]) + (sums.all[n + 8] + sums.all[n + 12]);
                if constexpr (PARTS > 2)
                    sums.all[n] += (sums.small[n] + sums.small[n + 4]) + (sums.small[n + 8] + sums.small[n + 12]);
            }
            return;
        }
        warpgroup_wait<0>();
        release(ring.slot(GROUPS - 1));
#pragma unroll
        for (int n = 0; n < SUMS; n++) {
            asm volatile("" : "+f"(sums.all[n])::"memory");
            if constexpr (PARTS > 2) {
                asm volatile("" : "+f"(sums.small[n])::"memory");
                sums.all[n] += sums.small[n];
            }
        }
    }

    INLINE void write_sums(unsigned to, const Sums &sums) const {
        if (FEW) to += (unsigned)(own_fold() * 2048);
#pragma unroll
        for (int j = 0; j < (FEW ? 1 : LANE_N / 8); j++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int n = thread % 4 * 2 + e % 2; /* and 8 j: turns repeat after eight rows */
                unsigned at = to + (unsigned)((n * 64 + (row_of(e / 2) ^ turn(n))) * 4) + (unsigned)(j * 2048);
                write_sum(at, sums.all[j * 4 + e],
                          LANE_FOLDS == 1 || FEW || Weight(row_of(e / 2)).fold == 8 * j / TILE_ROWS);
            }
        }
    }

#endif

    /* Sums of both lanes, in shared memory. What the map reads of other seats has come with the first chunk. */
    template <class F> INLINE void multiply_all(F fetch_late) {
        if constexpr (CHUNKS > 0) {
            Sums sums;
            wait_for_group(0);
            fetch_late();
            begin(sums);
            multiply_group<0>(sums);
            end(sums);
            end_tile();
            if (SUM_BUFFERS == 1) asm volatile("bar.sync 4, 256;" ::: "memory");
            write_sums(shared.sums(buffer, LANE), sums);
        } else if (SUM_BUFFERS == 1) {
            asm volatile("bar.sync 4, 256;" ::: "memory");
        }
        asm volatile("bar.sync 1, 256;" ::: "memory");
        if (CHUNKS == 0) fetch_late(); /* it has come with the other lane's */
    }

    INLINE void add_sums(int lane, int n, int m, REAL (&x)[VECTOR], bool more) const {
        if (S::CHUNKS(lane) == 0) return;
        const float *from = (const float *)(shared_memory + (shared.sums(buffer, lane) - shared.base));
#pragma unroll
        for (int q = 0; q < FOLD; q++) {
            const int row = q * TILE_ROWS + n, at = row * 64 + ((q * S::UNIT_ROWS * S::UNITS + m) ^ turn(row));
#pragma unroll
            for (int v = 0; v < VECTOR; v++) x[v] = (more || q > 0 ? x[v] : 0) + from[at + v];
        }
    }

#if CLUSTER
    /* The sums of a product, of all folds of its row. */
    INLINE void find_sums(int p, int n, int unit, REAL (&x)[VECTOR]) const {
        const int m = S::product_row(p) * S::UNITS + unit;
#pragma unroll
        for (int q = 0; q < FOLD; q++) {
            const int lane = FOLD > 1 ? q / LANE_FOLDS : m / 64, fold = q % LANE_FOLDS, row = fold * TILE_ROWS + n,
                      at = row * 64 + ((FOLD > 1 ? fold * S::UNIT_ROWS * S::UNITS + m : m % 64) ^ turn(row));
            const float *from = (const float *)(shared_memory + (shared.sums(buffer, lane) - shared.base));
#pragma unroll
            for (int v = 0; v < VECTOR; v++) x[v] = (q > 0 ? x[v] : 0) + from[at + v];
        }
    }

    /* Lets what the map publishes of a tile go to its slot in all blocks, if somebody reads it. */
    INLINE void send_to_slot(Frame &f) {
        const Place *places = Shared::places() + S::first_place(S::TILED_STEP);
        const bool read = places[S::channel(S::TILED_STEP, 0) + 1].is_fresh(i + S::AHEAD);
        f.to = read ? shared.slot(sent.slot()) : 0;
        f.barrier = shared.full(0, sent.slot());
        sent.move(block);
    }
#else
    /* The sums of a product: of both lanes, or of the one that has it. */
    INLINE void find_sums(int p, int n, int unit, REAL (&x)[VECTOR]) const {
        const int m = S::product_row(p) * S::UNITS + unit, lane = S::product_lane(p);
        if (lane != 1) add_sums(0, n, m, x, false);
        if (lane != 0) add_sums(1, n, m, x, lane < 0 && S::CHUNKS(0) > 0);
    }
#endif

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

    /* What this thread gives is written: the teller waits for all threads, and raises counters. That takes until all that the block
     * has written is there; so who has nothing else to do meanwhile (HOLDS) writes nothing more before. */
    INLINE void tell() {
        if (!HOLDS) barrier_wait(shared.telling(told.n) + 8, told.parity ^ 1);
        __syncwarp();
        if (thread == 0) barrier_arrive(shared.telling(told.n));
        if (HOLDS) barrier_wait(shared.telling(told.n) + 8, told.parity);
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
        Frame f = {Shared::addresses(i % 3) + S::first_place(k), 0, 0, true, true};
        int going = BATCH_OF(block.c);
        if constexpr (T::COUNTED >= 0) going = rows_going(f.place(T::COUNTED));
        if constexpr (T::BY_ROWS)
            take_rows<T>(k, f, going);
        else
            take_columns<T>(k, f, going);
    }

    /* All rows of the block's columns. */
    template <class T> INLINE void take_columns(int k, Frame &f, int going) {
#pragma unroll 1
        for (int tile = 0; tile < TILES && block.tile_rows(tile) > 0; tile++) {
            const int high = block.tile_rows(tile), row = block.tile_row(tile);
            const bool works = CLUSTER || !S::leaves(k) || row < going; /* else it rests */
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
            if (T::TILED && works) {
                multiply_all([&]() { fetch(true); });
            } else {
                const bool waits = !T::TILED && T::WAITS > 0 && works;
                if (waits) wait_for_values(k, block.tile(tile));
                asm volatile("bar.sync 1, 256;" ::: "memory");
                if (waits) fetch(true);
            }
            f.tile = block.tile(tile);
#if CLUSTER
            if (k == S::SENDER) send_to_slot(f);
#endif
#pragma unroll
            for (int e = 0; e < EACH; e++) {
                int v = (int)threadIdx.x + e * MULTIPLIERS, u = v % ACROSS * VECTOR;
                f.n = v / ACROSS;
                f.there = f.n < high && block.column + u < S::COLUMNS;
#if CLUSTER
                f.sent = f.n < high && block.column + u / PIECE * PIECE < S::COLUMNS;
#endif
                f.goes_on = row + f.n < going;
                REAL sums[S::PRODUCTS][VECTOR] = {};
                if (T::TILED && works) {
#pragma unroll
                    for (int p = 0; p < S::PRODUCTS; p++) find_sums(p, min(f.n, TILE_ROWS - 1), u, sums[p]);
                }
                T::apply(f, row + f.n, block.column + u, sums, values[e], [&]() {
                    if (e == EACH - 1 && T::RAISES > 0) tell();
                });
            }
            if (T::TILED && works && SUM_BUFFERS == 2) buffer ^= 1;
        }
    }

    /* Of a step without products: waits for what other blocks have written of a tile; all threads may read it when they have
     * met. */
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
                wait_for_place(block, counter, i, tile);
            __syncwarp();
        }
    }

    /* The block's rows of every tile, all columns: PER of a tile, AT_ONCE side by side. */
    template <class T> INLINE void take_rows(int k, Frame &f, int going) {
        using Row = typename T::Row;
        constexpr int PER = (TILE_ROWS + S::BLOCKS - 1) / S::BLOCKS, AT_ONCE = MULTIPLIERS / Row::ACROSS;
        const int first = block.column / S::UNITS * PER, column = (int)threadIdx.x % Row::ACROSS * VECTOR;
#pragma unroll 1
        for (int tile = 0; tile < TILES && block.tile_rows(tile) > 0; tile++) {
            const int end = min(block.tile_rows(tile), first + PER);
            const bool works = !S::leaves(k) || block.tile_row(tile) < going; /* else it rests */
            f.tile = block.tile(tile);
#pragma unroll 1
            for (int n = first; n < end; n += AT_ONCE) {
                typename T::Values values;
                f.n = n + (int)threadIdx.x / Row::ACROSS;
                f.there = f.n < end;
                const long long row = block.tile_row(tile) + min(f.n, end - 1);
                f.goes_on = row < going;
                T::fetch(f, row, column, values);
                if (n == first && works) wait_for_values(k, f.tile);
                T::fetch_tagged(block.c, f, row, column, values);
                asm volatile("bar.sync 1, 256;" ::: "memory"); /* nobody reads sums of rows before */
                if (works) T::fetch_late(f, row, column, values);
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

/* ---- blocks ---- */

template <class S> INLINE Block find_block(const Words &c, int seat) {
    int n = (int)blockIdx.x - (int)c.w[seat], across = S::BLOCKS;
    int row = n / across * SLICE;
    return Block{c, seat, n % across * S::UNITS, row, min(SLICE, BATCH_OF(c) - row), n / across};
}

/* Where the words of the block's seat begin. */
INLINE int find_seat(const Words &c) {
    int seat = HEADER_WORDS;
    for (int s = 1; s < SEATS; s++)
        if ((int)blockIdx.x >= (int)c.w[HEADER_WORDS + s * SEAT_WORDS]) seat = HEADER_WORDS + s * SEAT_WORDS;
    return seat;
}

INLINE void bring_places(const Words &c, int seat) {
    for (int k = 0, n = 0; k < SEAT_WORDS - 2; k++) {
        int at = (int)c.w[seat + 2 + k], count = (int)(c.w[seat + 2 + k] >> 32);
        for (int w = (int)threadIdx.x; w < count * PLACE_WORDS; w += THREADS)
            ((unsigned long long *)(Shared::places() + n))[w] = c.w[at + STEP_WORDS + w];
        n += count;
    }
}

#if !CLUSTER /* else persistent_cluster.cuh has the rest */

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

template <class S> INLINE void load_all(const Words &c, int seat) {
    Block block = find_block<S>(c, seat);
    asm volatile("bar.sync 0;" ::: "memory");
    int warp = (int)threadIdx.x / 32 - MULTIPLIERS / 32;
    if (warp == 0 && threadIdx.x % 32 == 0) Loader<S, 0>(block).run();
    if (warp == 1 && threadIdx.x % 32 == 0) Loader<S, 1>(block).run();
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
    const int seat = find_seat(c);
    bring_places(c, seat);
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

#endif
