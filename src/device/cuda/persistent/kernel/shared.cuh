/* Layout of a block: its threads, its shared memory, and its rows and columns. Follows kernel/primitives.cuh and the texts of the tasks.
 * shared_memory.c on the host computes the same layout. */

enum {
    SIZE = TILE_BYTES,                       /* bytes of an element of the operands */
    SEGMENT = 16 / SIZE,                     /* elements of a segment of 16 bytes */
    CHUNK = 128 / SIZE,                      /* elements of depth in a chunk */
    MMA_THREADS = 256,                       /* threads of both MMA warpgroups */
    MAP_THREADS = MAP_WARPGROUP ? 128 : 256, /* threads that compute maps: the same, or those of a third warpgroup */
    FIRST_MAP_THREAD = MAP_WARPGROUP ? MMA_THREADS : 0,
    FIRST_COPY_THREAD =
        FIRST_MAP_THREAD + MAP_THREADS, /* then the warpgroup with the copy threads and the signal warp */
    THREADS = CLUSTER ? 256 : 512,
    COPY_REGISTERS = 40,
    MAP_REGISTERS =
        512 - 2 * MMA_REGISTERS - COPY_REGISTERS, /* 64 K registers are 512 for a thread of each of four warpgroups */
    PIPE_SPLITS = CLUSTER && SPLITS > 1 ? SPLITS / 2 : SPLITS, /* depth splits of a pipe */
    PIPE_N = PIPE_SPLITS * TILE_ROWS,                          /* columns (N) of its MMA */
    CHUNK_BYTES = TILE_N * 128,
    WEIGHT_BYTES = 64 * 128, /* of a chunk of weights */
    SLOT_BYTES = GROUP * (TILE_N * 128 + (STREAMED_CHUNKS > 0
                                              ? 64 * 128
                                              : 0)), /* a group of chunks, with its weights where some are streamed */
    SUM_BYTES = PIPE_N * 64 * 4                      /* of a pipe */
};

/* Barrier of all map threads. */
INLINE void sync_map_threads() { asm volatile("bar.sync 1, %0;" ::"n"((int)MAP_THREADS) : "memory"); }

/* ---- shared memory ---- */

struct Shared {
    unsigned base;
    INLINE Shared() : base(shared_address(shared_memory)) {}
    static constexpr int WEIGHTS = 2 * PIPE_BYTES, SUMS = WEIGHTS + SHARED_WEIGHT_CHUNKS * WEIGHT_BYTES,
                         ROW_ROOM = SUMS + SUM_BUFFERS * 2 * SUM_BYTES,
                         BARRIERS = ROW_ROOM + 2 * ROW_SUMS * (MMA_THREADS / 32) * 4,
                         ARGUMENTS = BARRIERS + (2 * MAX_RING + 4) * 16, ADDRESSES = ARGUMENTS + MAX_ARGUMENTS * 32;
    /* Where weights are staged on their way to registers, before the loop. */
    INLINE unsigned staging_offset(int pipe) const { return base + (unsigned)(STAGING + pipe * STAGING_BYTES); }
    /* In a cluster: slot n, with all chunks of an operand. */
    INLINE unsigned slot(int n) const { return base + (unsigned)(n * SLOT_BYTES); }
    /* Chunk c of slot n of a pipe's ring. */
    INLINE unsigned chunk(int pipe, int n, int c) const {
        return base + (unsigned)(pipe * PIPE_BYTES + n * SLOT_BYTES + c * CHUNK_BYTES);
    }
    INLINE unsigned copied_weights(int pipe, int n, int c) const {
        return chunk(pipe, n, GROUP) + (unsigned)(c * WEIGHT_BYTES);
    }
    static_assert(ROW_ROOM == ROW_SUMS_AT, "where kernel/rows.cuh has them");
    INLINE unsigned weights(int n) const { return base + (unsigned)(WEIGHTS + n * WEIGHT_BYTES); }
    INLINE unsigned sums(int buffer, int pipe) const {
        return base + (unsigned)(SUMS + (buffer * 2 + pipe) * SUM_BYTES);
    }
    INLINE unsigned full(int pipe, int n) const { return base + (unsigned)(BARRIERS + (pipe * MAX_RING + n) * 16); }
    INLINE unsigned empty(int pipe, int n) const { return full(pipe, n) + 8; }
    INLINE unsigned stores_done(int n) const { return base + (unsigned)(BARRIERS + (2 * MAX_RING + n) * 16); }
    /* mbarriers of a sum buffer: both pipes have written it; 8 bytes further: it has been read. */
    INLINE unsigned sums_written(int n) const { return base + (unsigned)(BARRIERS + (2 * MAX_RING + 2 + n) * 16); }
    /* wgmma descriptor of rows of 128 bytes at `at` with the 128-byte swizzle, from byte 32 j of each row on: the part of the base is computed
     * once, the rest is constant. */
    INLINE unsigned long long descriptor(unsigned at, int j) const {
        const unsigned low = (1u << 16) + ((base & 0x3ffff) >> 4) + ((at - base) >> 4) + (unsigned)(2 * j);
        return (unsigned long long)(1u << 30 | 1024 >> 4) << 32 | low;
    }
    static INLINE Argument *arguments() { return (Argument *)(shared_memory + ARGUMENTS); }
    /* Addresses of the arguments at an iteration; those of three iterations are there at once. */
    static INLINE unsigned long long *addresses(int turn) {
        return (unsigned long long *)(shared_memory + ADDRESSES) + turn * MAX_ARGUMENTS;
    }
};

/* Index of one of COUNT buffers that alternate, and the parity of its mbarrier. */
template <int COUNT> struct BufferIndex {
    int n = 0;
    unsigned parity = 0;
    INLINE void advance() {
        if (COUNT == 2) n ^= 1;
        parity ^= n == 0;
    }
};

/* Slots of a ring: its size divides the groups of a tile, or it has room for the groups of two tiles. */
template <class Task, int PIPE> struct Ring {
    static constexpr int GROUPS = Task::GROUPS(PIPE), RING = Task::RING(PIPE);
    static constexpr bool TWO = RING > GROUPS;
    unsigned phase = 0;
    int tile = 0; /* of the two tiles */
    INLINE int slot(int g) const { return TWO ? tile * GROUPS + g : g % RING; }
    INLINE unsigned parity(int g) const { return phase + (unsigned)(g / RING) & 1; }
    INLINE void advance() {
        if (TWO) tile ^= 1;
        if (!TWO || tile == 0) phase += TWO ? 1u : (unsigned)(GROUPS / RING);
    }
};

/* Streamed weights of this block, in the order of shared memory: those of pipe 0, then those of pipe 1. */
template <class Task> INLINE unsigned long long streamed_at(const Words &c, int pipe) {
    int before = pipe ? Task::CHUNKS(0) - Task::IN_REGISTERS(0) - Task::IN_SHARED(0) : 0;
    return c.w[3] + (unsigned long long)((long long)blockIdx.x * STREAMED_CHUNKS + before) * WEIGHT_BYTES;
}

/* Rows and columns of a block. */
struct Block {
    const Words &c;
    int task; /* index of the task's words */
    int column, row, rows;
    INLINE int step_at(int k) const { return (int)(unsigned)c.w[task + 2 + k]; }
    int slice;
    INLINE int tile(int n) const { return slice * TILES + n; } /* number among all tiles */
    INLINE int tile_rows(int tile) const { return min(TILE_ROWS, rows - tile * TILE_ROWS); }
    INLINE int tile_row(int tile) const { return row + tile * TILE_ROWS; } /* row of the batch */
};

#if CLUSTER

/* Slot of a tile, of two that alternate, and the parity of its mbarrier. */
struct Slots {
    int tile, turn;
    INLINE int slot() const { return 2 * tile + (turn & 1); }
    INLINE unsigned parity() const { return (unsigned)(turn >> 1) & 1; }
    INLINE void advance(const Block &block) {
        if (TILES > 1 && ++tile < TILES && block.tile_rows(tile) > 0) return;
        tile = 0;
        turn++;
    }
};

#endif

/* How many rows of the batch have not ended; they are the first ones. */
INLINE int read_active_rows(unsigned long long counted) { return (int)*(const long long *)counted; }
template <class Task> INLINE int find_active_rows(int k, int i) {
    return read_active_rows(Shared::arguments()[Task::first_argument(k) + Task::row_argument(k)].slot(i));
}

INLINE void wait_for_counter(const Block &block, const Argument &counter, int i, int tile) {
    if (counter.is_awaited(i))
        wait_for(block.c, counter.slot(i) + (unsigned long long)(tile * 4), (unsigned)counter.blocks, []() {});
}
