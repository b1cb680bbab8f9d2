/* Kernels with products: sums of products in a tile, then the epilogue apply() on every element of it. This text has what all of them
 * share; tile_fma.cuh, tile_mma.cuh or tile_wgmma.cuh multiply, and tile.cuh is the kernel. They follow in this order.
 *
 * The text of a map precedes this one and defines
 *   REAL                     what sums are in: float, or double with TILE_F64
 *   one of TILE_BF16, TILE_F16, TILE_TF32 (tensor cores), TILE_F32, TILE_F64 (FMA): operands of the products
 *   PRODUCTS, PASSES, VIEWS, ROUNDED_COPIES, MEMBERS, WORDS, struct Words (see source.h)
 *   TILE_ROWS, TILE_UNITS    of a block: rows, and columns of every product
 *   STAGES                   of the pipeline, 4 or more
 *   ALIGNED                  1: rows and depths of left operands are multiples of 16 bytes, 0: of any length
 *   VECTOR                   elements of a row for one call of apply; the number of columns is a multiple of it
 *   PASS_A[PASSES]           view of the left operand; PASS_B[PASSES][PRODUCTS] of the right one, or -1 for none
 *   apply(words, member, row, column, sums[PRODUCTS][VECTOR])
 * and may define
 *   CONSUMERS, PRODUCERS     warps that multiply (4, 8 or 16) and that copy (2, 4 or 8)
 *   RIGHT_ROUNDED            1: right operands of TILE_TF32 have been rounded to it
 *   WITHOUT_WGMMA            1: no instructions of sm_90a
 *   RESIDENT                 blocks that must fit a multiprocessor's registers; 0 leaves it to the compiler
 *
 * product p [row, column] = sum over passes q with PASS_B[q][p] >= 0 and k < depth q of a_q[row, k] b_qp[column, k].
 * Rows of b begin at multiples of 16 bytes and have zeros up to a multiple of 8 elements.
 *
 * Launch: (CONSUMERS + PRODUCERS) * 32 threads, (ceil(columns / TILE_UNITS), ceil(rows / TILE_ROWS), members) blocks,
 * and STAGES * ((TILE_ROWS + PRODUCTS * TILE_UNITS) * 128 + 16) bytes of dynamic shared memory.
 *
 * A stage of shared memory is a chunk of depth, 128 bytes of every row: TILE_ROWS rows of a, then SPAN = PRODUCTS *
 * TILE_UNITS rows of b, product after product. Within a row, piece i (16 bytes) lies at piece i ^ (row & 7), so that
 * eight rows of one piece are in different banks. Rows past the end keep what was in memory, and their sums are not used. The chunks of all passes are one sequence;
 * warps that copy (producers) run ahead of warps that multiply (consumers). The order of every sum depends on the macros and the depths
 * alone. */

#define TILE_FUNCTION __device__ __forceinline__
#ifndef RIGHT_ROUNDED
#define RIGHT_ROUNDED 0
#endif
#ifndef CONSUMERS
#define CONSUMERS 8
#endif
#ifndef PRODUCERS
#define PRODUCERS 4
#endif
#ifndef RESIDENT
#if defined(TILE_F64) || (defined(TILE_F32) && TILE_ROWS * PRODUCTS * TILE_UNITS >= 2048)
#define RESIDENT 1 /* a thread has many sums, and needs registers to load ahead */
#elif defined(TILE_F32)
#define RESIDENT 0
#else
#define RESIDENT (CONSUMERS + PRODUCERS <= 12 && PRODUCTS * TILE_UNITS <= 64 ? 2 : 1)
#endif
#endif
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) && TILE_ROWS == 64 && !defined(WITHOUT_WGMMA) &&                                \
    (defined(TILE_BF16) || defined(TILE_F16) || (defined(TILE_TF32) && RIGHT_ROUNDED))
#define TILE_WGMMA 1
#else
#define TILE_WGMMA 0
#endif

namespace tile {

/* ---- instructions */

/* Copies `bytes` of ROOM bytes, with zeros after them; reads nothing where bytes is 0. */
template <int ROOM> TILE_FUNCTION void copy_async(unsigned to, const void *from, int bytes) {
    if (ROOM == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(to), "l"(from), "r"(bytes), "n"(ROOM)
                     : "memory");
}

TILE_FUNCTION void copy_piece(unsigned to, const void *from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

TILE_FUNCTION void store_piece(unsigned to, const unsigned (&from)[4]) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(from[0]), "r"(from[1]), "r"(from[2]),
                 "r"(from[3])
                 : "memory");
}

/* Barriers in shared memory (mbarrier): a phase ends when as many threads have arrived as the barrier was initialised for. */
TILE_FUNCTION void barrier_make(unsigned at, int count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
}

TILE_FUNCTION void barrier_arrive(unsigned at) {
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(at) : "memory");
}

/* Arrives when the copies that this thread has started are complete. */
TILE_FUNCTION void barrier_arrive_copied(unsigned at) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(at) : "memory");
}

/* Waits for the end of the phase of this parity; the phase before the first has parity 1. */
TILE_FUNCTION void barrier_wait(unsigned at, unsigned parity) {
#if __CUDA_ARCH__ >= 900
#define TILE_TEST "mbarrier.try_wait.parity.shared.b64"
#else
#define TILE_TEST "mbarrier.test_wait.parity.shared.b64"
#endif
    unsigned passed;
    do {
        asm volatile("{\n.reg .pred p;\n" TILE_TEST " p, [%1], %2;\nselp.b32 %0, 1, 0, p;\n}"
                     : "=r"(passed)
                     : "r"(at), "r"(parity)
                     : "memory");
    } while (!passed);
}

TILE_FUNCTION void block_barrier() { asm volatile("bar.sync 0;" ::: "memory"); }

/* Makes stores to shared memory visible, to wgmma as well. */
TILE_FUNCTION void publish_stores() {
    asm volatile("fence.acq_rel.cta;" ::: "memory");
#if TILE_WGMMA
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/* Four 8 x 16 byte matrices; lanes 8 i .. 8 i + 7 give the rows of matrix i. */
TILE_FUNCTION void load_matrices(unsigned (&to)[4], unsigned from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}

TILE_FUNCTION unsigned round_tf32(unsigned bits) {
    unsigned rounded;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(__uint_as_float(bits)));
    return rounded;
}

/* sums[16, 8] += a[16, 32 bytes] b[8, 32 bytes]^T */
TILE_FUNCTION void multiply_add(float (&sums)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
#if defined(TILE_BF16)
#define TILE_MMA "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
#elif defined(TILE_F16)
#define TILE_MMA "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
#else
#define TILE_MMA "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
#endif
    asm(TILE_MMA " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

TILE_FUNCTION unsigned shared_address(const void *at) { return (unsigned)__cvta_generic_to_shared(at); }

/* ---- shapes */

#if defined(TILE_BF16) || defined(TILE_F16)
constexpr int SIZE = 2; /* bytes of an operand's element */
#else
constexpr int SIZE = sizeof(REAL);
#endif
constexpr int THREADS = (CONSUMERS + PRODUCERS) * 32;
constexpr int SPAN = PRODUCTS * TILE_UNITS; /* columns of a block */
constexpr int GROUPS = SPAN / 8;            /* columns go in groups of 8; one product has a group */
constexpr int PIECE = 16 / SIZE;            /* elements of a piece, and of a chunk */
constexpr int CHUNK = 128 / SIZE;
constexpr int STAGE = (TILE_ROWS + SPAN) * 128; /* bytes */
constexpr int PITCH = (GROUPS | 1) * 8;         /* from row to row of sums in shared memory: 8 mod 16 spreads banks */

static_assert(TILE_ROWS == 16 || TILE_ROWS == 32 || TILE_ROWS == 64, "rows of a tile");
static_assert(TILE_UNITS % 8 == 0 && SPAN <= 128 && TILE_UNITS % VECTOR == 0, "columns of a tile");
static_assert(STAGES >= 4, "stages hold the sums in the end");
static_assert(CONSUMERS % 4 == 0 && PRODUCERS % 2 == 0, "warps of a block");

/* Bit g: group g of columns has a term in this pass. */
__device__ constexpr unsigned pass_groups(int pass) {
    unsigned groups = 0;
    for (int group = 0; group < GROUPS; ++group)
        if (PASS_B[pass][group * 8 / TILE_UNITS] >= 0) groups |= 1u << group;
    return groups;
}

__device__ constexpr bool all_groups() {
    for (int pass = 0; pass < PASSES; ++pass)
        if (pass_groups(pass) != (1u << GROUPS) - 1) return false;
    return true;
}

/* Tables by a run-time index: choices among constants, since a table in memory would be waited for. */
template <int Q = 0> TILE_FUNCTION int left_view(int pass) {
    constexpr int VIEW = PASS_A[Q];
    if constexpr (Q + 1 < PASSES) {
        int later = left_view<Q + 1>(pass);
        return pass == Q ? VIEW : later;
    }
    return VIEW;
}

template <int I = 0> TILE_FUNCTION int right_view(int index) { /* pass * PRODUCTS + product */
    constexpr int VIEW = PASS_B[I / PRODUCTS][I % PRODUCTS];
    if constexpr (I + 1 < PASSES * PRODUCTS) {
        int later = right_view<I + 1>(index);
        return index == I ? VIEW : later;
    }
    return VIEW;
}

/* A block's part of the arguments. */
struct Block {
    const Words &words;
    int member; /* index of its first word */
    long long row;
    int column;
    int high, wide; /* rows and columns of the tile that are there */

    TILE_FUNCTION Block(const Words &c)
        : words(c), member(1 + VIEWS + PASSES + (int)blockIdx.z * (1 + VIEWS + ROUNDED_COPIES)),
          row((long long)blockIdx.y * TILE_ROWS), column((int)blockIdx.x * TILE_UNITS) {
        long long below = ROWS_OF(c, (int)blockIdx.z) - row;
        high = below <= 0 ? 0 : below < TILE_ROWS ? (int)below : TILE_ROWS;
        wide = min((int)c.w[0] - column, TILE_UNITS);
    }
    TILE_FUNCTION const char *at(int view) const { return (const char *)words.w[member + 1 + view]; }
    TILE_FUNCTION long long row_bytes(int view) const { return (long long)words.w[1 + view] * SIZE; }
    TILE_FUNCTION int depth(int pass) const { return (int)words.w[1 + VIEWS + pass]; }
    TILE_FUNCTION int chunks(int pass) const { return (depth(pass) + CHUNK - 1) / CHUNK; }
    TILE_FUNCTION int chunks() const {
        int count = 0;
#pragma unroll
        for (int q = 0; q < PASSES; ++q) count += chunks(q);
        return count;
    }
    /* Groups with a term in the pass of a chunk. */
    template <int Q = 0> TILE_FUNCTION unsigned groups(int chunk) const {
        constexpr unsigned BITS = pass_groups(Q);
        if constexpr (Q + 1 < PASSES && !all_groups())
            return chunk < chunks(Q) ? BITS : groups<Q + 1>(chunk - chunks(Q));
        return BITS;
    }
};

/* ---- the pipeline: stages, and for each of them a barrier that signals that it is full, and one that it is free */

TILE_FUNCTION unsigned swizzled(int row, int piece) { return row * 128 + ((piece ^ (row & 7)) << 4); }

struct Pipeline {
    unsigned stages; /* address of the first */
    int stage;
    unsigned parity; /* of the times that the stage has been used */

    TILE_FUNCTION Pipeline(unsigned at, int first) : stages(at), stage(first), parity(0) {}
    TILE_FUNCTION void make(int arrivals) const { /* of consumers for a stage; one thread does this */
        for (int i = 0; i < STAGES; ++i) {
            barrier_make(full(i), PRODUCERS * 32);
            barrier_make(free(i), arrivals);
        }
    }
    TILE_FUNCTION unsigned at() const { return stages + stage * STAGE; }
    TILE_FUNCTION unsigned full(int i) const { return stages + STAGES * STAGE + i * 8; }
    TILE_FUNCTION unsigned free(int i) const { return full(i) + STAGES * 8; }
    TILE_FUNCTION void move(int by) { /* STAGES at most */
        stage += by;
        if (stage < STAGES) return;
        stage -= STAGES;
        parity ^= 1;
    }
};

/* ---- from global memory to a stage: thread i of the producers copies piece i % 8 of rows i / 8, i / 8 + STEP, ... */

/* Copies a piece of a left operand, of which `bytes` (0 .. 16) exist, in words of its alignment. */
TILE_FUNCTION void copy_left(unsigned to, const char *from, int bytes) {
    if (ALIGNED && bytes == 16) return copy_piece(to, from);
    constexpr int WORD = ALIGNED ? 16 : SIZE == 8 ? 8 : 4;
    if (WORD <= SIZE || ALIGNED || ((unsigned long long)from & 3) == 0) {
#pragma unroll
        for (int i = 0; i < 16; i += WORD) {
            int there = max(0, min(WORD, bytes - i));
            copy_async<WORD>(to + i, from + (there > 0 ? i : 0), there);
        }
    } else {
        unsigned words[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            unsigned low = 4 * i < bytes ? *(const unsigned short *)(from + 4 * i) : 0;
            unsigned high = 4 * i + 2 < bytes ? *(const unsigned short *)(from + 4 * i + 2) : 0;
            words[i] = low | high << 16;
        }
        store_piece(to, words);
        publish_stores();
    }
}

struct Producer {
    static constexpr int STEP = PRODUCERS * 4;
    static constexpr int LEFTS = (TILE_ROWS + STEP - 1) / STEP, RIGHTS = (SPAN + STEP - 1) / STEP;
    const char *left[LEFTS], *right[RIGHTS]; /* this thread's pieces of the next chunk */
    unsigned lefts, rights;                  /* bit i: row i exists */
    int row, piece;
    unsigned to; /* offset in a stage */

    TILE_FUNCTION Producer(const Block &block) : lefts(0), rights(0) {
        int thread = (int)threadIdx.x - CONSUMERS * 32;
        row = thread / 8;
        piece = thread % 8;
        to = swizzled(row, piece);
#pragma unroll
        for (int i = 0; i < LEFTS; ++i) lefts |= (unsigned)(row + STEP * i < block.high) << i;
    }

    /* Rows past the end have addresses too, which are not used. */
    TILE_FUNCTION void begin(const Block &block, int pass) {
        constexpr bool FIXED = TILE_UNITS % STEP == 0; /* then all rows of a step belong to one product */
        int view = left_view(pass);
        long long stride = block.row_bytes(view);
        left[0] = block.at(view) + (block.row + row) * stride + piece * 16;
#pragma unroll
        for (int i = 1; i < LEFTS; ++i) left[i] = left[i - 1] + STEP * stride;
        rights = 0;
#pragma unroll
        for (int i = 0; i < RIGHTS; ++i) {
            int product = FIXED ? STEP * i / TILE_UNITS : (STEP * i + row) / TILE_UNITS;
            int unit = STEP * i + row - product * TILE_UNITS;
            int view = right_view(pass * PRODUCTS + (FIXED ? product : min(product, PRODUCTS - 1)));
            rights |= (unsigned)(product < PRODUCTS && unit < block.wide && view >= 0) << i;
            view = max(view, 0);
            right[i] = block.at(view) + (block.column + unit) * block.row_bytes(view) + piece * 16;
        }
    }

    /* Pieces of a whole chunk; ALL: every row exists. */
    template <bool ALL> TILE_FUNCTION void copy_lefts(unsigned stage) const {
        unsigned at = stage + to;
#pragma unroll
        for (int i = 0; i < LEFTS; ++i)
            if (ALL ? TILE_ROWS % STEP == 0 || row + STEP * i < TILE_ROWS : lefts >> i & 1)
                copy_left(at + i * STEP * 128, left[i], 16);
    }
    template <bool ALL> TILE_FUNCTION void copy_rights(unsigned stage) const {
        unsigned at = stage + TILE_ROWS * 128 + to;
#pragma unroll
        for (int i = 0; i < RIGHTS; ++i)
            if (ALL ? SPAN % STEP == 0 || row + STEP * i < SPAN : rights >> i & 1)
                copy_piece(at + i * STEP * 128, right[i]);
    }

    template <bool ALL> TILE_FUNCTION void copy_whole(Pipeline &pipeline, int chunks) {
#pragma unroll 2
        for (int i = 0; i < chunks; ++i) {
            barrier_wait(pipeline.free(pipeline.stage), pipeline.parity ^ 1);
            copy_rights<ALL>(pipeline.at());
            copy_lefts<ALL>(pipeline.at());
            barrier_arrive_copied(pipeline.full(pipeline.stage));
            move(1);
            pipeline.move(1);
        }
    }

    /* The last, partial chunk at k of a depth, with zeros after the depth, for which 0 bytes are read from the row's beginning. */
    TILE_FUNCTION void copy_rest(unsigned stage, int k, int depth) const {
        int from = k + piece * PIECE, bytes = max(0, min(PIECE, depth - from)) * SIZE, back = bytes ? 0 : from * SIZE;
#pragma unroll
        for (int i = 0; i < LEFTS; ++i)
            if (lefts >> i & 1) copy_left(stage + to + i * STEP * 128, left[i] - back, bytes);
        bool there = from < ((depth + 7) & ~7);
#pragma unroll
        for (int i = 0; i < RIGHTS; ++i)
            if (rights >> i & 1)
                copy_async<16>(stage + TILE_ROWS * 128 + to + i * STEP * 128, right[i] - (there ? 0 : from * SIZE),
                               there ? 16 : 0);
    }

    TILE_FUNCTION void move(int chunks) {
#pragma unroll
        for (int i = 0; i < LEFTS; ++i) left[i] += chunks * 128;
#pragma unroll
        for (int i = 0; i < RIGHTS; ++i) right[i] += chunks * 128;
    }

    TILE_FUNCTION void run(const Block &block, Pipeline pipeline) {
        begin(block, 0);
        block_barrier(); /* the pipeline is initialised */
#pragma unroll 1
        for (int pass = 0; pass < PASSES; ++pass) {
            int depth = block.depth(pass), whole = depth / CHUNK;
            if (pass > 0) begin(block, pass);
            if (all_groups() && block.high == TILE_ROWS && block.wide == TILE_UNITS)
                copy_whole<true>(pipeline, whole);
            else
                copy_whole<false>(pipeline, whole);
            if (depth % CHUNK > 0) {
                barrier_wait(pipeline.free(pipeline.stage), pipeline.parity ^ 1);
                copy_rest(pipeline.at(), whole * CHUNK, depth);
                barrier_arrive_copied(pipeline.full(pipeline.stage));
                pipeline.move(1);
            }
        }
    }
};

/* ---- the interface of a multiplier: the consumers are SPLIT teams, each with sums of the whole tile. Chunk i is for the teams with
 * turn == i % TURNS, which divide its depth. multiply() adds a chunk of the groups of columns that have a term, end() waits for
 * what it has started, store() writes [SPLIT, TILE_ROWS, PITCH] sums. DEFERRED: a stage is read until the next multiply() returns. */

__device__ constexpr int turns_of(int split) { return split <= 2 ? split : split <= 8 ? 2 : split / 4; }

} /* namespace tile */
