/* Skeleton of the kernels with products: sums of products in a tile, then apply() on every element of it.
 *
 * The text of a map stands before this one and defines
 *   REAL                     what sums are in: float, or double with TILE_F64
 *   one of TILE_BF16, TILE_F16, TILE_TF32 (tensor cores), TILE_F32, TILE_F64 (FMA): operands of the products
 *   PRODUCTS, PASSES, VIEWS, TWINS, MEMBERS, WORDS, struct Words (see source.h)
 *   TILE_ROWS, TILE_UNITS    of a block: rows, and columns of every product
 *   STAGES                   of the pipeline, 4 or more
 *   ALIGNED                  1: rows of left operands begin at multiples of 16 bytes, 0: anywhere
 *   VECTOR                   elements of a row for one call of apply; the number of columns is a multiple of it
 *   PASS_A[PASSES]           view of the left operand; PASS_B[PASSES][PRODUCTS] of the right one, or -1 for none
 *   apply(words, member, row, column, sums[PRODUCTS][VECTOR])
 *   DEPENDENT_LAUNCH         1: launched with programmatic stream serialization; 0 if not defined
 *   RESIDENT                 blocks that a multiprocessor's registers must have room for; 0 leaves it to the compiler
 *
 * product p [row, column] = sum over passes q with PASS_B[q][p] >= 0 and k < depth q of a_q[row, k] b_qp[column, k].
 * Rows of b begin at multiples of 16 bytes and have zeros up to a multiple of 8 elements.
 *
 * Launch: 256 threads, (ceil(columns / TILE_UNITS), ceil(rows / TILE_ROWS), members) blocks, and
 * STAGES * (TILE_ROWS + PRODUCTS * TILE_UNITS) * 128 bytes of dynamic shared memory.
 *
 * A stage of shared memory is a chunk of depth, 128 bytes of every row: TILE_ROWS rows of a, then SPAN = PRODUCTS *
 * TILE_UNITS rows of b, product after product. Within a row, piece i (16 bytes) lies at piece i ^ (row & 7), so that
 * eight rows of one piece are in different banks. Chunks of all passes are one sequence; the order of every sum
 * depends on the macros and the depths alone. */

#define TILE_FUNCTION __device__ __forceinline__
#ifndef DEPENDENT_LAUNCH
#define DEPENDENT_LAUNCH 0
#endif
#ifndef RESIDENT
#if defined(TILE_F32) && TILE_ROWS * PRODUCTS * TILE_UNITS >= 4096
#define RESIDENT 1 /* a thread has many sums, and loads ahead only if it has registers */
#else
#define RESIDENT 0
#endif
#endif

namespace tile {

/* ---- instructions */

/* Up to ROOM bytes, zeros behind `bytes` of them; nothing is read where bytes is 0. */
template <int ROOM> TILE_FUNCTION void copy_async(unsigned to, const void *from, int bytes) {
    if (ROOM == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(to), "l"(from), "r"(bytes), "n"(ROOM)
                     : "memory");
}

TILE_FUNCTION void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/* Until all but the last PENDING groups of this thread have come. */
template <int PENDING> TILE_FUNCTION void copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

TILE_FUNCTION void store_piece(unsigned to, const unsigned (&from)[4]) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(from[0]), "r"(from[1]), "r"(from[2]),
                 "r"(from[3])
                 : "memory");
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

#if DEPENDENT_LAUNCH && __CUDA_ARCH__ >= 900 /* earlier and later kernels of the stream */
TILE_FUNCTION void wait_for_earlier() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
TILE_FUNCTION void let_later_begin() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
#else
TILE_FUNCTION void wait_for_earlier() {}
TILE_FUNCTION void let_later_begin() {}
#endif

/* ---- shapes */

#if defined(TILE_BF16) || defined(TILE_F16)
constexpr int SIZE = 2; /* bytes of an operand's element */
#else
constexpr int SIZE = sizeof(REAL);
#endif
constexpr int THREADS = 256;
constexpr int SPAN = PRODUCTS * TILE_UNITS; /* columns of a block */
constexpr int GROUPS = SPAN / 8;            /* columns go in groups of 8; one product has a group */
constexpr int PIECE = 16 / SIZE;            /* elements of a piece, and of a chunk */
constexpr int CHUNK = 128 / SIZE;
constexpr int STAGE = (TILE_ROWS + SPAN) * 128; /* bytes */
constexpr int PITCH = (GROUPS | 1) * 8;         /* from row to row of sums in shared memory: 8 mod 16 spreads banks */

static_assert(TILE_ROWS == 16 || TILE_ROWS == 32 || TILE_ROWS == 64, "rows of a tile");
static_assert(TILE_UNITS % 8 == 0 && SPAN <= 128 && TILE_UNITS % VECTOR == 0, "columns of a tile");
static_assert(STAGES >= 4, "stages hold the sums in the end");

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

template <int Q = 0> TILE_FUNCTION unsigned groups_of(int pass) {
    constexpr unsigned BITS = pass_groups(Q);
    if constexpr (Q + 1 < PASSES) {
        unsigned later = groups_of<Q + 1>(pass);
        return pass == Q ? BITS : later;
    }
    return BITS;
}

/* A block's part of the arguments. */
struct Block {
    const Words &words;
    int member; /* index of its first word */
    long long row;
    int column;
    int high, wide; /* rows and columns of the tile that are there */

    TILE_FUNCTION Block(const Words &c)
        : words(c), member(1 + VIEWS + PASSES + (int)blockIdx.z * (1 + VIEWS + TWINS)),
          row((long long)blockIdx.y * TILE_ROWS), column((int)blockIdx.x * TILE_UNITS) {
        long long below = (long long)c.w[member] - row;
        high = below <= 0 ? 0 : below < TILE_ROWS ? (int)below : TILE_ROWS;
        wide = min((int)c.w[0] - column, TILE_UNITS);
    }
    TILE_FUNCTION const char *at(int view) const { return (const char *)words.w[member + 1 + view]; }
    TILE_FUNCTION long long row_bytes(int view) const { return (long long)words.w[1 + view] * SIZE; }
    TILE_FUNCTION int depth(int pass) const { return (int)words.w[1 + VIEWS + pass]; }
    TILE_FUNCTION int chunks() const {
        int count = 0;
#pragma unroll
        for (int q = 0; q < PASSES; ++q) count += (depth(q) + CHUNK - 1) / CHUNK;
        return count;
    }
};

/* Where a walk along the depths of all passes has come to: k elements into a pass. */
struct Walk {
    int pass = 0, k = 0, depth = 0;

    TILE_FUNCTION bool enter(const Block &block) {
        if (k == 0) depth = block.depth(pass);
        return k == 0;
    }
    TILE_FUNCTION void leave() {
        k += CHUNK;
        if (k < depth) return;
        k = 0;
        ++pass;
    }
};

/* ---- from global memory to a stage: thread i copies piece i % 8 of rows i / 8, i / 8 + 32, ... */

TILE_FUNCTION unsigned swizzled(int row, int piece) { return row * 128 + ((piece ^ (row & 7)) << 4); }

/* A piece of a left operand, of which `bytes` (0 .. 16) are there, in words that are as aligned as it is. */
TILE_FUNCTION void copy_left(unsigned to, const char *from, int bytes) {
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
    }
}

struct Left {
    static constexpr int COUNT = (TILE_ROWS + 31) / 32;
    Walk walk;
    const char *at[COUNT]; /* where the rows begin; the block's first where one is not there */

    TILE_FUNCTION void load(const Block &block, unsigned stage) {
        int row = (int)(threadIdx.x / 8), piece = (int)(threadIdx.x % 8);
        if (walk.enter(block)) {
            int view = left_view(walk.pass);
#pragma unroll
            for (int i = 0; i < COUNT; ++i) {
                int r = row + 32 * i < block.high ? row + 32 * i : 0;
                at[i] = block.at(view) + (block.row + r) * block.row_bytes(view);
            }
        }
        unsigned to = stage + swizzled(row, piece);
        int k = walk.k + piece * PIECE;
        bool mine = TILE_ROWS % 32 == 0 || row < TILE_ROWS;
        if (ALIGNED && walk.k + CHUNK <= walk.depth) { /* whole pieces, the common case */
#pragma unroll
            for (int i = 0; i < COUNT; ++i)
                if (mine) copy_async<16>(to + i * 32 * 128, at[i] + k * SIZE, row + 32 * i < block.high ? 16 : 0);
        } else {
            int bytes = max(0, min(PIECE, walk.depth - k)) * SIZE, offset = bytes > 0 ? k * SIZE : 0;
#pragma unroll
            for (int i = 0; i < COUNT; ++i)
                if (mine) copy_left(to + i * 32 * 128, at[i] + offset, row + 32 * i < block.high ? bytes : 0);
        }
        walk.leave();
    }
};

struct Right {
    static constexpr int COUNT = (SPAN + 31) / 32;
    Walk walk;
    const char *at[COUNT]; /* the same, of b's rows, which are columns; 0: no term */

    TILE_FUNCTION void load(const Block &block, unsigned stage) {
        int row = (int)(threadIdx.x / 8), piece = (int)(threadIdx.x % 8);
        if (walk.enter(block)) {
#pragma unroll
            for (int i = 0; i < COUNT; ++i) {
                int unit = (row + 32 * i) % TILE_UNITS;
                int view = right_view(walk.pass * PRODUCTS + min((row + 32 * i) / TILE_UNITS, PRODUCTS - 1));
                at[i] = 0;
                if (all_groups() || view >= 0)
                    at[i] = block.at(view) + (block.column + (unit < block.wide ? unit : 0)) * block.row_bytes(view);
            }
        }
        int k = walk.k + piece * PIECE;
        bool there = k < ((walk.depth + 7) & ~7);
        unsigned to = stage + TILE_ROWS * 128 + swizzled(row, piece), offset = there ? k * SIZE : 0;
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            bool inside = (row + 32 * i) % TILE_UNITS < block.wide;
            if ((32 * (i + 1) <= SPAN || row + 32 * i < SPAN) && (all_groups() || at[i]))
                copy_async<16>(to + i * 32 * 128, at[i] + offset, there && inside ? 16 : 0);
        }
        walk.leave();
    }
};

/* ---- products of a stage. The depth of a chunk is dealt to SPLIT teams of threads, each with sums of the whole tile;
 * multiply() adds a chunk, of the groups of columns that have a term; store() writes [SPLIT, TILE_ROWS, PITCH] sums. */

#if defined(TILE_F32) || defined(TILE_F64)

/* A team is R x C threads; one takes rows r + i R and columns c + j C, 16 bytes of depth at a time. A warp is 8 x 4 of
 * them, with lanes so placed that neighbours share what they read. */
struct Multiplier {
    static constexpr bool NARROW = SPAN <= 64 && SIZE == 4 && 4 * TILE_ROWS * PITCH * SIZE <= STAGES * STAGE;
    static constexpr int R = SIZE == 8 ? 16 : 8, C = NARROW || SPAN == 8 ? 8 : 16;
    static constexpr int SPLIT = THREADS / (R * C), HIGH = TILE_ROWS / R, WIDE = (SPAN + C - 1) / C;
    struct __align__(16) Piece {
        REAL at[PIECE];
    };
    REAL sums[HIGH][WIDE];
    int r, c, team;

    TILE_FUNCTION Multiplier() : sums() {
        int lane = (int)(threadIdx.x % 32), warp = (int)(threadIdx.x / 32);
        r = (lane >> 1 & 1) + (lane >> 3 & 1) * 2 + (lane >> 4) * 4 + warp % (R / 8) * 8;
        c = (lane & 1) + (lane >> 2 & 1) * 2 + warp / (R / 8) % (C / 4) * 4;
        team = warp / (R / 8) / (C / 4);
    }

    TILE_FUNCTION bool has(unsigned groups, int j) const { /* alike in a warp */
        constexpr bool SURE = all_groups() && SPAN % C == 0;
        return SURE || (groups >> (c / 8 + j * (C / 8)) & 1);
    }

    TILE_FUNCTION void multiply(const unsigned char *stage, int, unsigned groups) {
#pragma unroll
        for (int i = 0; i < 8 / SPLIT; ++i) {
            int piece = team + i * SPLIT;
            const unsigned char *left = stage + swizzled(r, piece);
            const unsigned char *right = stage + TILE_ROWS * 128 + swizzled(c, piece);
            Piece a[HIGH];
#pragma unroll
            for (int y = 0; y < HIGH; ++y) a[y] = *(const Piece *)(left + y * R * 128);
#pragma unroll
            for (int x = 0; x < WIDE; ++x) {
                if (!has(groups, x)) continue;
                Piece b = *(const Piece *)(right + x * C * 128);
#pragma unroll
                for (int k = 0; k < PIECE; ++k)
#pragma unroll
                    for (int y = 0; y < HIGH; ++y) sums[y][x] = fma(a[y].at[k], b.at[k], sums[y][x]);
            }
        }
    }

    TILE_FUNCTION void store(REAL *to) const {
#pragma unroll
        for (int y = 0; y < HIGH; ++y)
#pragma unroll
            for (int x = 0; x < WIDE; ++x)
                if (c + x * C < SPAN) to[(team * TILE_ROWS + r + y * R) * PITCH + c + x * C] = sums[y][x];
    }
};

#else

/* A team is DOWN x ACROSS warps; one takes HIGH x WIDE mma tiles of 16 rows x 8 columns. A step of depth is 32 bytes,
 * and a chunk has four: 16-bit and 32-bit operands lie in registers alike. */
struct Multiplier {
    static constexpr int DOWN = TILE_ROWS == 64 || (TILE_ROWS == 32 && SPAN >= 32) ? 2 : 1;
    static constexpr int ACROSS = GROUPS <= 5 ? 1 : GROUPS <= 10 ? 2 : 4;
    static constexpr int SPLIT = 8 / (DOWN * ACROSS);
    static constexpr int HIGH = TILE_ROWS / 16 / DOWN, WIDE = (GROUPS + ACROSS - 1) / ACROSS, PAIRS = (WIDE + 1) / 2;
    float sums[HIGH][WIDE][4];
    unsigned left, right[PAIRS]; /* what the lane points ldmatrix to, in a stage, at step 0 */
    int tile_row, group, team;   /* first row and group of columns of the warp */

    TILE_FUNCTION Multiplier() : sums() {
        int lane = (int)(threadIdx.x % 32), warp = (int)(threadIdx.x / 32);
        tile_row = warp % DOWN * HIGH * 16;
        group = warp / DOWN % ACROSS * WIDE;
        team = warp / DOWN / ACROSS;
        left = swizzled(tile_row + lane % 16, lane / 16);
#pragma unroll
        for (int j = 0; j < PAIRS; ++j) /* a last pair may have one group of its own only */
            right[j] =
                TILE_ROWS * 128 + swizzled(min(group + 2 * j + lane / 16, GROUPS - 1) * 8 + lane % 8, lane / 8 % 2);
    }

    TILE_FUNCTION bool has(unsigned groups, int j) const { /* alike in a warp */
        constexpr bool SURE = all_groups() && GROUPS % ACROSS == 0;
        return SURE || (groups >> (group + j) & 1);
    }

    TILE_FUNCTION static void round(unsigned (&bits)[4]) {
#if defined(TILE_TF32)
#pragma unroll
        for (int i = 0; i < 4; ++i) bits[i] = round_tf32(bits[i]);
#endif
    }

    TILE_FUNCTION void multiply(const unsigned char *stage_at, int chunk, unsigned groups) {
        unsigned stage = shared_address(stage_at);
        if (SPLIT == 8 && (chunk & 1) != team / 4) return; /* eight teams: four take even chunks, four odd ones */
#pragma unroll
        for (int i = 0; i < (SPLIT < 4 ? 4 / SPLIT : 1); ++i) {
            unsigned step = (team + i * SPLIT) % 4 * 32;
            unsigned a[HIGH][4], b[PAIRS][4];
#pragma unroll
            for (int y = 0; y < HIGH; ++y) load_matrices(a[y], stage + (left ^ step) + y * 16 * 128);
#pragma unroll
            for (int j = 0; j < PAIRS; ++j) load_matrices(b[j], stage + (right[j] ^ step));
#pragma unroll
            for (int y = 0; y < HIGH; ++y) round(a[y]);
#pragma unroll
            for (int j = 0; j < PAIRS; ++j) round(b[j]);
#pragma unroll
            for (int x = 0; x < WIDE; ++x) {
                if (!has(groups, x)) continue;
#pragma unroll
                for (int y = 0; y < HIGH; ++y)
                    multiply_add(sums[y][x], a[y], b[x / 2][x % 2 * 2], b[x / 2][x % 2 * 2 + 1]);
            }
        }
    }

    TILE_FUNCTION void store(REAL *to) const {
        int lane = (int)(threadIdx.x % 32);
        to += (team * TILE_ROWS + tile_row + lane / 4) * PITCH + group * 8 + lane % 4 * 2;
#pragma unroll
        for (int y = 0; y < HIGH; ++y)
#pragma unroll
            for (int x = 0; x < WIDE; ++x) {
                if (group + x >= GROUPS) continue;
                *(float2 *)(to + y * 16 * PITCH + x * 8) = make_float2(sums[y][x][0], sums[y][x][1]);
                *(float2 *)(to + (y * 16 + 8) * PITCH + x * 8) = make_float2(sums[y][x][2], sums[y][x][3]);
            }
    }
};

#endif

static_assert(Multiplier::SPLIT * TILE_ROWS * PITCH * sizeof(REAL) <= STAGES * STAGE, "room for the sums");

/* ---- behind the products */

struct __align__(VECTOR * sizeof(REAL)) Run {
    REAL at[VECTOR];
};

/* Adds the teams' sums and applies; neighbouring threads take neighbouring columns. */
TILE_FUNCTION void finish(const Block &block, const REAL *from) {
    constexpr int RUNS = TILE_UNITS / VECTOR;
#pragma unroll 1
    for (int i = threadIdx.x; i < TILE_ROWS * RUNS; i += THREADS) {
        int row = i / RUNS, unit = i % RUNS * VECTOR;
        if (row >= block.high || unit >= block.wide) continue;
        REAL sums[PRODUCTS][VECTOR];
#pragma unroll
        for (int p = 0; p < PRODUCTS; ++p) {
            const REAL *at = from + row * PITCH + p * TILE_UNITS + unit;
            Run run = *(const Run *)at;
#pragma unroll
            for (int team = 1; team < Multiplier::SPLIT; ++team) {
                Run more = *(const Run *)(at + team * TILE_ROWS * PITCH);
#pragma unroll
                for (int v = 0; v < VECTOR; ++v) run.at[v] += more.at[v];
            }
#pragma unroll
            for (int v = 0; v < VECTOR; ++v) sums[p][v] = run.at[v];
        }
        apply(block.words, (int)blockIdx.z, block.row + row, block.column + unit, sums);
    }
}

TILE_FUNCTION void run(const Words &c) {
    extern __shared__ __align__(128) unsigned char memory[]; /* [STAGES][STAGE], in the end sums */
    Block block(c);
    if (block.high <= 0) {
        wait_for_earlier();
        return;
    }
    int chunks = block.chunks();
    unsigned stages = shared_address(memory);
    Left left;
    Right right;
    /* Right operands do not change while kernels run: they need not wait for those before this one. */
#pragma unroll 1
    for (int i = 0; i < STAGES - 1; ++i) {
        if (i < chunks) right.load(block, stages + i * STAGE);
        if (!DEPENDENT_LAUNCH && i < chunks) left.load(block, stages + i * STAGE);
        if (!DEPENDENT_LAUNCH) copy_commit();
    }
    wait_for_earlier();
#pragma unroll 1
    for (int i = 0; DEPENDENT_LAUNCH && i < STAGES - 1; ++i) {
        if (i < chunks) left.load(block, stages + i * STAGE);
        copy_commit();
    }

    /* Behind the barrier chunk i is there, and every thread is done with chunk i - 1, whose stage is filled next. */
    Multiplier multiplier;
    Walk walk;
    int stage = 0, before = STAGES - 1;
#pragma unroll 1
    for (int i = 0; i < chunks; ++i) {
        copy_wait<STAGES - 2>();
        __syncthreads();
        if (i + STAGES - 1 < chunks) {
            right.load(block, stages + before * STAGE);
            left.load(block, stages + before * STAGE);
        }
        copy_commit();
        walk.enter(block);
        multiplier.multiply(memory + stage * STAGE, i, groups_of(walk.pass));
        walk.leave();
        before = stage;
        if (++stage == STAGES) stage = 0;
    }
    let_later_begin();

    __syncthreads();
    multiplier.store((REAL *)memory);
    __syncthreads();
    finish(block, (const REAL *)memory);
}

} /* namespace tile */

extern "C" __global__ void __launch_bounds__(256, RESIDENT) map_kernel(const __grid_constant__ Words c) {
    tile::run(c);
}
