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
 *   right(pass, product)        place of the weights, or -1
 *   each(f)                     calls f.step<Step0>(0), f.step<Step1>(1), ...
 * and a step TILED, Values, fetch(frame, row, column, values), apply(frame, row, column, sums, values). */

enum {
    SIZE = TILE_BYTES,   /* of an element of the operands */
    PIECE = 16 / SIZE,   /* elements that are copied at once */
    CHUNK = 128 / SIZE,  /* of depth */
    LOADERS = 128,       /* threads of a lane that copy */
    MULTIPLIERS = 256,   /* threads of both lanes that multiply */
    STAGE_BYTES = TILE_N * 128,
    WEIGHT_BYTES = 64 * 128, /* of a chunk in shared memory */
    SUM_BYTES = TILE_N * 64 * 4, /* of a lane */
    WINDOW = STAGES < 8 ? STAGES : 8 /* chunks under way */
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

extern __shared__ __align__(1024) unsigned char shared_memory[];

struct Shared {
    unsigned base;
    INLINE Shared() : base(shared_address(shared_memory)) {}
    INLINE unsigned stage(int lane, int n) const { return base + (unsigned)((lane * STAGES + n) * STAGE_BYTES); }
    INLINE unsigned weights(int n) const { return base + (unsigned)(2 * STAGES * STAGE_BYTES + n * WEIGHT_BYTES); }
    INLINE unsigned sums(int buffer, int lane) const {
        return base + (unsigned)(2 * STAGES * STAGE_BYTES + WEIGHT_CHUNKS * WEIGHT_BYTES +
                                 (buffer * 2 + lane) * SUM_BYTES);
    }
    INLINE unsigned barriers() const { return sums(SUM_BUFFERS, 0); }
    INLINE unsigned full(int lane, int n) const { return barriers() + (unsigned)((lane * STAGES + n) * 16); }
    INLINE unsigned empty(int lane, int n) const { return full(lane, n) + 8; }
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
    INLINE int step_at(int k) const { return (int)c.w[seat + 2 + k]; }
    INLINE int tile_rows(int tile) const { return min(TILE_N, rows - tile * TILE_N); }
};

/* ---- loading ---- */

template <class S> struct Loader {
    const Block &block;
    const int lane, thread, piece, first; /* rows first, first + 16, ... */
    Shared shared;
    Stage ahead, behind; /* the next to be filled; the next to be handed on */
    unsigned long long from; /* this thread's first piece of the segment's first chunk */
    long long pitch;         /* bytes */
    int bytes;               /* of a row, from the segment's begin */
    int high;                /* rows */
    bool fresh, whole;       /* from other blocks; else, in pieces of 16 bytes */

    INLINE Loader(const Block &block, int lane)
        : block(block), lane(lane), thread((int)threadIdx.x % LOADERS), piece(thread % 8), first(thread / 8) {}

    INLINE int there(int chunk) const { return max(0, min(16, bytes - chunk * 128 - piece * 16)); }

    /* Samples of what is waited for, one a lane, all along the depth: while these are missing the rest is as well. */
    INLINE void wait_for_sample(int chunks) const {
        int units = min(chunks * 128, bytes) / 4, word = (int)(threadIdx.x % 32) * units / 32;
        int row = thread / 32 * 4;
        if (row >= high) row = 0;
        unsigned long long at =
            from - (unsigned long long)(piece * 16) + (unsigned long long)((row - first) * pitch) + word * 4;
        unsigned x[1];
        int spins = 0;
        if (bytes < 4) return;
        do read_fresh(at, x);
        while (is_missing<SIZE>(x[0]) && !give_up(block.c, spins));
    }

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

    INLINE void fill(int chunk) {
        barrier_wait(shared.empty(lane, ahead.n), ahead.parity ^ 1);
        unsigned to = shared.stage(lane, ahead.n) + swizzled(first, piece);
        unsigned long long at = from + (unsigned long long)(chunk * 128);
        int bytes = there(chunk);
#pragma unroll
        for (int r = 0; r < (TILE_N + 15) / 16; r++) {
            if (first + 16 * r >= high) break;
            unsigned long long source = at + (unsigned long long)(16 * r * pitch);
            if (whole)
                copy_async(to + (unsigned)(r * 16 * 128), bytes ? source : from, bytes);
            else
                copy_slowly(to + (unsigned)(r * 16 * 128), source, bytes);
        }
        ahead.move();
    }

    static INLINE bool is_incomplete(const unsigned (&x)[4]) {
        return is_missing<SIZE>(x[0]) | is_missing<SIZE>(x[1]) | is_missing<SIZE>(x[2]) | is_missing<SIZE>(x[3]);
    }

    INLINE void hand_on(int chunk) {
        unsigned to = shared.stage(lane, behind.n) + swizzled(first, piece);
        unsigned long long at = from + (unsigned long long)(chunk * 128);
        int bytes = there(chunk);
        if (fresh || TILE_TF32) {
#pragma unroll
            for (int r = 0; r < (TILE_N + 15) / 16; r++) {
                if (first + 16 * r >= high) break;
                unsigned x[4], place = to + (unsigned)(r * 16 * 128);
                read_piece(place, x);
                int spins = 0;
                while (fresh && is_incomplete(x) && !give_up(block.c, spins)) {
                    copy_async(place, bytes ? at + (unsigned long long)(16 * r * pitch) : from, bytes);
                    copies_commit();
                    copies_wait<0>();
                    read_piece(place, x);
                }
#if TILE_TF32
                if (fresh) continue;
#pragma unroll
                for (int i = 0; i < 4; i++) x[i] = __float_as_uint(rounded(__uint_as_float(x[i])));
                write_piece(place, x);
#endif
            }
        }
        publish_shared();
        __syncwarp();
        if (threadIdx.x % 32 == 0) barrier_arrive(shared.full(lane, behind.n));
        behind.move();
    }

    INLINE void load_segment(const Frame &f, int k, int n, int tile) {
        int pass = S::segment(lane, n, 0), skip = S::segment(lane, n, 1), chunks = S::segment(lane, n, 2);
        int channel = S::channel(k, pass), place = S::left(k, pass);
        fresh = channel >= 0 && f.is_fresh(channel);
        unsigned long long at = fresh ? f.channel(channel) : f.place(place);
        pitch = (fresh ? f.row(channel) : f.row(place)) * SIZE;
        whole = fresh || ((at | (unsigned long long)pitch) & 15) == 0;
        bytes = S::depth(pass) * SIZE - skip * 128;
        high = block.tile_rows(tile);
        from = at + (unsigned long long)((block.row + tile * TILE_N + first) * pitch + skip * 128 + piece * 16);
        if (fresh) wait_for_sample(chunks);
#pragma unroll 1
        for (int i = 0; i < chunks + WINDOW - 1; i++) {
            if (i < chunks) fill(i);
            copies_commit();
            if (i < WINDOW - 1) continue;
            copies_wait<WINDOW - 1>();
            hand_on(i - (WINDOW - 1));
        }
    }

    INLINE void run() {
#pragma unroll 1
        for (int i = 0; i < ITERATIONS_OF(block.c); i++) {
#pragma unroll 1
            for (int k = 0; k < S::STEPS; k++) {
                Frame f(block.c, block.step_at(k), i);
                if (!S::is_tiled(k) || !f.due()) continue;
#pragma unroll 1
                for (int tile = 0; tile < TILES && block.tile_rows(tile) > 0; tile++) {
#pragma unroll 1
                    for (int n = 0; n < S::SEGMENTS(lane); n++) load_segment(f, k, n, tile);
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
    const Block &block;
    const int warp, thread;
    Shared shared;
    Stage stage;
    unsigned a[HELD > 0 ? HELD * 4 : 1][4];
    int i, buffer;

    INLINE Multiplier(const Block &block)
        : block(block), warp((int)threadIdx.x / 32 % 4), thread((int)threadIdx.x % 32), i(0), buffer(0) {}

    /* Elements k and behind of a row of the weights, as many as a word holds. */
    INLINE unsigned weight(int pass, int k, int m) const {
        int p = m / S::UNITS, unit = block.column + m % S::UNITS;
        int depth = (S::depth(pass) + 7) / 8 * 8;
        if (p >= S::PRODUCTS || unit >= S::COLUMNS || k >= depth) return 0;
        int place = S::right(pass, p);
        if (place < 0) return 0;
        Frame f(block.c, block.step_at(S::TILED_STEP), 0);
        unsigned x = *(const unsigned *)(f.place(place) + (unsigned long long)((unit * f.row(place) + k) * SIZE));
#if TILE_TF32
        x = __float_as_uint(rounded(__uint_as_float(x)));
#endif
        return x;
    }

    INLINE void keep_weights() {
        constexpr int PAIR = 4 / SIZE; /* elements of a word */
        int m = warp * 16 + thread / 4, k = thread % 4 * PAIR;
#pragma unroll
        for (int c = 0; c < HELD; c++) {
            int pass = S::chunk_pass(LANE, c), from = S::chunk_first(LANE, c) * CHUNK;
#pragma unroll
            for (int j = 0; j < 4; j++) {
#pragma unroll
                for (int r = 0; r < 4; r++)
                    a[c * 4 + j][r] = weight(pass, from + j * (CHUNK / 4) + r / 2 * (CHUNK / 8) + k, m + r % 2 * 8);
            }
        }
#pragma unroll
        for (int c = 0; c < HELD * 4; c++)
            asm volatile("" : "+r"(a[c][0]), "+r"(a[c][1]), "+r"(a[c][2]), "+r"(a[c][3]));
#pragma unroll 1
        for (int c = HELD; c < CHUNKS; c++) {
            int pass = S::chunk_pass(LANE, c), from = S::chunk_first(LANE, c) * CHUNK;
            unsigned to = shared.weights(BEFORE + c - HELD);
#pragma unroll 1
            for (int n = (int)threadIdx.x % 128; n < 64 * 8; n += 128) {
                unsigned x[4];
#pragma unroll
                for (int w = 0; w < 4; w++) x[w] = weight(pass, from + n % 8 * PIECE + w * PAIR, n / 8);
                write_piece(to + swizzled(n / 8, n % 8), x);
            }
        }
        publish_shared();
        asm volatile("bar.sync %0, 128;" ::"n"(2 + LANE) : "memory");
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
                    multiply(sums, a[C * 4 + j], b + j * 2, C + j);
                else
                    multiply(sums, descriptor(shared.weights(BEFORE + C - HELD)) + j * 2, b + j * 2, C + j);
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

    INLINE void multiply_all() {
        if constexpr (CHUNKS > 0) {
            float sums[TILE_N / 2];
#pragma unroll
            for (int n = 0; n < TILE_N / 2; n++) sums[n] = 0;
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

    template <class T> INLINE void step(int k) {
        Frame f(block.c, block.step_at(k), i);
        if (!f.due()) return;
#pragma unroll 1
        for (int tile = 0; tile < TILES && block.tile_rows(tile) > 0; tile++) {
            const int high = block.tile_rows(tile), row = block.row + tile * TILE_N;
            typename T::Values values[EACH];
            bool there[EACH];
#pragma unroll
            for (int e = 0; e < EACH; e++) {
                int v = (int)threadIdx.x + e * MULTIPLIERS, n = v / ACROSS, u = v % ACROSS * VECTOR;
                there[e] = n < high && block.column + u < S::COLUMNS;
                if (there[e]) T::fetch(f, row + n, block.column + u, values[e]);
            }
            if constexpr (T::TILED) multiply_all();
#pragma unroll
            for (int e = 0; e < EACH; e++) {
                if (!there[e]) continue;
                int v = (int)threadIdx.x + e * MULTIPLIERS, n = v / ACROSS, u = v % ACROSS * VECTOR;
                REAL sums[S::PRODUCTS][VECTOR];
                if constexpr (T::TILED) {
#pragma unroll
                    for (int p = 0; p < S::PRODUCTS; p++) {
                        add_sums<0>(n, p * S::UNITS + u, sums[p], false);
                        add_sums<1>(n, p * S::UNITS + u, sums[p], S::CHUNKS(0) > 0);
                    }
                }
                T::apply(f, row + n, block.column + u, sums, values[e]);
            }
            if (T::TILED && SUM_BUFFERS == 2) buffer ^= 1;
        }
    }

    INLINE void run() {
        keep_weights();
#pragma unroll 1
        for (i = 0; i < ITERATIONS_OF(block.c); i++) S::each(*this);
    }
};

/* ---- roles ---- */

template <class S> INLINE Block find_block(const Words &c, int seat) {
    int n = (int)blockIdx.x - (int)c.w[seat], across = (S::COLUMNS + S::UNITS - 1) / S::UNITS;
    int row = n / across * SLICE;
    return Block{c, seat, n % across * S::UNITS, row, min(SLICE, BATCH_OF(c) - row)};
}

template <class S> INLINE void load_all(const Words &c, int seat) {
    Block block = find_block<S>(c, seat);
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
