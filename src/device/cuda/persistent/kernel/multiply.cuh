/* Products of a persistent kernel: the weights that a lane of a block keeps, what they are multiplied with, and the sums. Stands
 * behind kernel/load.cuh (in clusters, kernel/send.cuh) and before persistent.cuh, which says how rows of weights and folds
 * of depth lie. */

/* Sums of a tile in shared memory: of the products, as who takes elements of the map reads them. */
template <class S> struct SumReader {
    const Block &block;
    const int thread; /* of a warp */
    Shared shared;
    Turn<SUM_BUFFERS> buffer;

    INLINE SumReader(const Block &block) : block(block), thread((int)threadIdx.x % 32) {}

    /* Sums of row n of the tile and row m of the weights lie at n * 64 + (m ^ turn(n)): neither those who write them nor
     * those who read them meet in banks. */
    static INLINE int turn(int n) { return (n & 1) << 4 ^ (n >> 1 & 3) << 3; }

    INLINE void add_sums(int lane, int n, int m, REAL (&x)[VECTOR], bool more) const {
        if (S::CHUNKS(lane) == 0) return;
        const float *from = (const float *)(shared_memory + (shared.sums(buffer.n, lane) - shared.base));
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
            const float *from = (const float *)(shared_memory + (shared.sums(buffer.n, lane) - shared.base));
#pragma unroll
            for (int v = 0; v < VECTOR; v++) x[v] = (q > 0 ? x[v] : 0) + from[at + v];
        }
    }
#else
    /* The sums of a product: of both lanes, or of the one that has it. */
    INLINE void find_sums(int p, int n, int unit, REAL (&x)[VECTOR]) const {
        const int m = S::product_row(p) * S::UNITS + unit, lane = S::product_lane(p);
        if (lane != 1) add_sums(0, n, m, x, false);
        if (lane != 0) add_sums(1, n, m, x, lane < 0 && S::CHUNKS(0) > 0);
    }
#endif
};

template <class S, int LANE> struct Products : SumReader<S> {
    using Base = SumReader<S>;
    using Base::block, Base::shared, Base::thread, Base::buffer, Base::turn;
    static constexpr int GROUPS = S::GROUPS(LANE), RING = S::RING(LANE);
    static constexpr int CHUNKS = S::CHUNKS(LANE), HELD = S::HELD(LANE), KEPT = S::KEPT(LANE),
                         BEFORE = LANE ? S::KEPT(0) : 0;
    /* Where all weights stay, those in shared memory are of the first chunks: what comes last meets registers. */
    static constexpr int FIRST_HELD = HELD + KEPT == CHUNKS ? KEPT : 0, FIRST_KEPT = FIRST_HELD ? 0 : HELD;
    static INLINE constexpr bool is_held(int c) { return c >= FIRST_HELD && c < FIRST_HELD + HELD; }
    static constexpr bool STARTED = S::IS_STARTED && (CLUSTER || LANE == (S::CHUNKS(0) == 0));
    static constexpr int FIRST_ROW = CLUSTER && FOLD == 1 ? LANE * 64 : 0,
                         FIRST_FOLD = FOLD > LANE_FOLDS ? LANE *LANE_FOLDS : 0;
    static constexpr int ROWS = EXACT ? 4 : 2; /* of the weights that a thread has */
    const int warp;
    Ring<S, LANE> ring;
    unsigned a[HELD > 0 ? HELD * 4 : 1][4];
    float starts[ROWS];
#if CLUSTER
    Slots received = {0, 0};
#endif

    INLINE Products(const Block &block) : Base(block), warp((int)threadIdx.x / 32 % 4) {}

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

    /* Nobody fills the lane's memory, through which they may come, before all have. */
    INLINE void keep_weights() {
        constexpr int BATCH = STAGE_BYTES / WEIGHT_BYTES;
        static_assert(BATCH > 0, "room for a chunk of each lane");
        const unsigned room = shared.stage(LANE);
#pragma unroll 1
        for (int c = 0; c < KEPT; c++) bring_weights(FIRST_KEPT + c, shared.weights(BEFORE + c));
#pragma unroll
        for (int first = 0; first < HELD; first += BATCH) {
#pragma unroll 1
            for (int c = first; c < HELD && c < first + BATCH; c++)
                bring_weights(FIRST_HELD + c, room + (c - first) * WEIGHT_BYTES);
            copies_commit();
            copies_wait<0>();
            asm volatile("bar.sync %0, 128;" ::"n"(2 + LANE) : "memory");
#pragma unroll
            for (int c = first; c < HELD && c < first + BATCH; c++)
                hold(c, room + (unsigned)((c - first) * WEIGHT_BYTES));
            asm volatile("bar.sync %0, 128;" ::"n"(2 + LANE) : "memory");
        }
        copies_commit(); /* where none are held, nobody has yet */
        copies_wait<0>();
#if TILE_TF32
#pragma unroll 1
        for (int c = 0; c < KEPT; c++) {
#pragma unroll
            for (int r = 0; r < 4; r++) {
                unsigned x[4], at = shared.weights(BEFORE + c) +
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
    INLINE void release(int) {} /* see kernel/send.cuh */

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
            const unsigned stored = CHUNK < HELD + KEPT ? shared.weights(BEFORE + CHUNK - FIRST_KEPT)
                                                        : shared.copied_weights(LANE, ring.slot(G), C);
            float w[4][4];
#pragma unroll
            for (int r = 0; r < 4; r++) {
                if constexpr (is_held(CHUNK)) {
#pragma unroll
                    for (int k = 0; k < 4; k++) w[r][k] = __uint_as_float(a[(CHUNK - FIRST_HELD) * 4 + r][k]);
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
        if constexpr (FEW && is_held(CHUNK)) {
            multiply_few(sums, chunk_at(G, C), [&](int j, unsigned(&w)[4]) {
#pragma unroll
                for (int r = 0; r < 4; r++) w[r] = a[(CHUNK - FIRST_HELD) * 4 + j][r];
            });
            return;
        } else if constexpr (FEW) {
            multiply_stored(sums, chunk_at(G, C),
                            CHUNK < HELD + KEPT ? shared.weights(BEFORE + CHUNK - FIRST_KEPT)
                                                : shared.copied_weights(LANE, ring.slot(G), W));
            return;
        } else {
            const unsigned chunk = chunk_at(G, C);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int more = begun || j > 0;
                const unsigned long long b = shared.descriptor(chunk, j);
                if constexpr (is_held(CHUNK))
                    multiply(sums, a[(CHUNK - FIRST_HELD) * 4 + j], b, more);
                else if constexpr (CHUNK < HELD + KEPT)
                    multiply(sums, shared.descriptor(shared.weights(BEFORE + CHUNK - FIRST_KEPT), j), b, more);
                else
                    multiply(sums, shared.descriptor(shared.copied_weights(LANE, ring.slot(G), W), j), b, more);
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
                    const unsigned long long w = shared.descriptor(stored, j), b = shared.descriptor(chunk, j);
                    if constexpr (PARTS > 2 && PART + P > 0)
                        multiply(sums.small, w, b, 1);
                    else
                        multiply(sums.all, w, b, 1);
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

    INLINE void begin_loop() {
        keep_weights();
        if (STARTED) find_starts();
    }

    /* Products of a tile: of this lane's depth, or its rows of weights. */
    template <class F> INLINE void find_products(Sums &sums, F fetch_late) {
        wait_for_group(0);
        fetch_late();
        begin(sums);
        multiply_group<0>(sums);
        end(sums);
        end_tile();
    }

    /* Nobody reads sums of the tile before, where their place is the same. */
    static INLINE void end_reading() {
        if (SUM_BUFFERS == 1) asm volatile("bar.sync 4, 256;" ::: "memory");
    }

    /* Sums of both lanes, in shared memory. What the map reads of other seats has come with the first chunk. */
    template <class F> INLINE void bring_sums(F fetch_late) {
        if constexpr (CHUNKS > 0) {
            Sums sums;
            find_products(sums, fetch_late);
            end_reading();
            write_sums(shared.sums(buffer.n, LANE), sums);
        } else {
            end_reading();
        }
        meet_mappers();
        if (CHUNKS == 0) fetch_late(); /* it has come with the other lane's */
    }
    INLINE void leave_sums() {}

    /* For those who wait in GivenSums. */
    INLINE void give_sums() {
        const unsigned given = shared.giving(buffer.n), taken = given + 8, before = buffer.parity ^ 1;
        if constexpr (CHUNKS > 0) {
            Sums sums;
            find_products(sums, []() {});
            barrier_wait(taken, before);
            write_sums(shared.sums(buffer.n, LANE), sums);
        } else {
            barrier_wait(taken, before);
        }
        __syncwarp();
        if (thread == 0) barrier_arrive(given);
        buffer.move();
    }
};

/* Sums that others have found. */
template <class S> struct GivenSums : SumReader<S> {
    using Base = SumReader<S>;
    using Base::shared, Base::thread, Base::buffer;
    INLINE GivenSums(const Block &block) : Base(block) {}
    INLINE void begin_loop() { asm volatile("bar.sync 0;" ::: "memory"); }
    template <class F> INLINE void bring_sums(F) { barrier_wait(shared.giving(buffer.n), buffer.parity); }
    INLINE void leave_sums() {
        __syncwarp();
        if (thread == 0) barrier_arrive(shared.giving(buffer.n) + 8);
    }
};
