/* What the steps of a persistent kernel use: arguments, operands and values for other blocks, counters. Follows map_element.cuh; persistent.h
 * describes the arguments.
 *
 * Operands in a channel lie in memory as products want them in shared memory: tiles of TILE_ROWS rows; below each other the depth splits of
 * these rows; chunks of 128 bytes of depth; the 16-byte segment s of row n at s ^ (n & 7) (the 128-byte swizzle). Where a float32 is PARTS
 * bfloat16, a chunk of the first parts is followed by one of the second parts, and so on. Every time step has its own slot, so nothing is
 * overwritten. A block that has written its columns increments a counter (release); a reader waits until all blocks have (acquire), then
 * copies. */

struct Words {
    unsigned long long w[WORDS];
};

enum { HEADER_WORDS = 5, TASK_WORDS = 8, STEP_WORDS = 4, ARGUMENT_WORDS = 4, TIMEOUT_SPINS = 1 << 23 };
#define ITERATIONS_OF(C) ((int)(C).w[0])
#define BATCH_OF(C) ((int)(C).w[1])
#define FAULT_OF(C) ((volatile unsigned *)(C).w[2])
#define TASKS_OF(C) ((int)(C).w[4])

extern __shared__ __align__(1024) unsigned char shared_memory[];

/* ---- arguments ---- */

/* The iterations at which a step is due, and its time at an iteration. */
struct Schedule {
    int base, inner, low, high;
    INLINE Schedule(const Words &c, int at)
        : base((int)c.w[at]), inner((int)c.w[at + 1]), low((int)c.w[at + 2]), high((int)c.w[at + 3]) {}
    INLINE bool is_due(int i) const { return i >= low && i < high; }
    INLINE int time(int i) const { return base + i * inner; }
};

/* An argument, in shared memory: a view, an operand in a channel, or a counter. */
struct Argument {
    unsigned long long address;
    long long blocks,
        stride; /* counter: blocks that increment it, view: first iteration that is stored; bytes per iteration */
    unsigned long long ring; /* view: ring; counter: the iterations at which it is awaited */

    /* Address of a view at an iteration and time: 0 where the caller left the view out or the store is dead. All words are read at once: the
     * latency is on the critical path of a step. */
    INLINE unsigned long long view(int i, int t) const {
        const unsigned long long first = address, windows = ring;
        const long long from = blocks, each = stride;
        const unsigned long long window = ((unsigned)t + (unsigned)(windows >> 1 & 1) & 1u) * (windows >> 2),
                                 at = first + (unsigned long long)(i * each) + (windows & 1 ? window : 0);
        return first != 0 & i >= (int)from ? at : 0;
    }
    /* Address of a slot of a channel, or of its counter. */
    INLINE unsigned long long slot(int i) const { return address ? address + (unsigned long long)(i * stride) : 0; }
    INLINE bool is_awaited(int i) const { return i >= (int)(unsigned)ring && i < (int)(ring >> 32); }
};

/* A row of a step at an iteration, as its map sees it. The addresses of all arguments are in shared memory. */
struct Frame {
    const unsigned long long *arguments;
    int tile, n;    /* number among all tiles; row of the tile */
    bool there;     /* the row and the column exist; else nothing is stored */
    bool is_active; /* the row's sequence has not ended */
    bool begins;    /* this is the step's first iteration */
#if CLUSTER
    bool sent;            /* its segment has columns that exist */
    unsigned to, barrier; /* address of the slot in every block, or 0; mbarrier of the slot */
#endif

    INLINE unsigned long long address(int p) const { return arguments[p]; }
};
#define ADDRESS_OF(C, MEMBER, VIEW) (C).address(VIEW)
#define ROUNDED_OF(C, MEMBER, COPY) (C).address(VIEWS + (COPY))

/* ---- operands for other blocks ---- */

INLINE unsigned bits_of(float x) {
#if TILE_TF32
    unsigned y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return y;
#else
    return __float_as_uint(x);
#endif
}
INLINE unsigned bits_of(BFloat16 x) { return x.bits; }
INLINE unsigned bits_of(Float16 x) { return x.bits; }

template <typename T> INLINE void store_operand(unsigned long long at, const T (&y)[VECTOR]) {
    constexpr int SIZE = (int)sizeof(T), COUNT = SIZE * VECTOR / 4;
    if constexpr (COUNT == 0) {
        *(unsigned short *)at = (unsigned short)bits_of(y[0]);
    } else {
        unsigned words[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; i++)
            words[i] = SIZE == 4 ? bits_of(y[i % VECTOR])
                                 : bits_of(y[2 * i % VECTOR]) | bits_of(y[(2 * i + 1) % VECTOR]) << 16;
        if constexpr (COUNT == 1) *(unsigned *)at = words[0];
        if constexpr (COUNT == 2) *(uint2 *)at = make_uint2(words[0], words[1 % COUNT]);
        if constexpr (COUNT == 4)
            *(uint4 *)at = make_uint4(words[0], words[1 % COUNT], words[2 % COUNT], words[3 % COUNT]);
    }
}

/* Takes the next part of a number: rounds it, and leaves the rest in x. */
template <typename T> INLINE T take_part(float &x) {
    T y;
    narrow(x, y);
    x -= widen(y);
    return y;
}

/* Writes an operand to its channel. CHUNKS: chunks of one depth split of the operand, of all parts. */
template <typename T, int CHUNKS>
INLINE void publish(const Frame &c, int argument, int column, const REAL (&x)[VECTOR]);

#if !CLUSTER /* else kernel/send.cuh has it */
template <typename T, int CHUNKS>
INLINE void publish(const Frame &c, int argument, int column, const REAL (&x)[VECTOR]) {
    constexpr int SIZE = (int)sizeof(T), SEGMENTS = 16 / SIZE, DEPTH = CHUNKS / PARTS;
    unsigned long long at = c.address(argument);
    if (!at || !c.there) return;
    int chunk = column / (8 * SEGMENTS) % DEPTH * PARTS, depth_splits = column / (8 * SEGMENTS * DEPTH),
        segment = column / SEGMENTS % 8;
    at += (unsigned long long)((c.tile * CHUNKS + chunk) * (TILE_N * 128) + (depth_splits * TILE_ROWS + c.n) * 128 +
                               ((segment ^ (c.n & 7)) << 4) + column % SEGMENTS * SIZE);
    REAL rest[VECTOR];
#pragma unroll
    for (int i = 0; i < VECTOR; i++) rest[i] = x[i];
#pragma unroll
    for (int part = 0; part < PARTS; part++) {
        T y[VECTOR];
#pragma unroll
        for (int i = 0; i < VECTOR; i++) y[i] = take_part<T>(rest[i]);
        store_operand(at + part * (TILE_N * 128), y);
    }
}
#endif

/* As publish, for a step that skips rows that have ended: these are zero for readers of all rows. */
template <typename T, int CHUNKS>
INLINE void publish_active(const Frame &c, int argument, int column, const REAL (&x)[VECTOR]) {
    REAL y[VECTOR];
#pragma unroll
    for (int i = 0; i < VECTOR; i++) y[i] = c.is_active ? x[i] : (REAL)0;
    publish<T, CHUNKS>(c, argument, column, y);
}

/* ---- values with flags: the last bit of every word, and of the address ---- */

INLINE void store_words(unsigned long long at, const unsigned (&words)[VECTOR]) {
    if constexpr (VECTOR == 1) asm volatile("st.relaxed.gpu.global.b32 [%0], %1;" ::"l"(at), "r"(words[0]) : "memory");
    if constexpr (VECTOR == 2)
        asm volatile("st.relaxed.gpu.global.v2.b32 [%0], {%1, %2};" ::"l"(at), "r"(words[0]), "r"(words[1 % VECTOR])
                     : "memory");
    if constexpr (VECTOR == 4)
        asm volatile("st.relaxed.gpu.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(words[0]),
                     "r"(words[1 % VECTOR]), "r"(words[2 % VECTOR]), "r"(words[3 % VECTOR])
                     : "memory");
}

INLINE void store_flagged(unsigned long long at, long long element, const REAL (&x)[VECTOR]) {
    unsigned words[VECTOR];
    if (!at) return;
#pragma unroll
    for (int i = 0; i < VECTOR; i++) words[i] = (__float_as_uint(x[i]) & ~1u) | (unsigned)at & 1u;
    store_words((at & ~1ull) + (unsigned long long)(element * 4), words);
}

/* Loads words where wanted, whether they are new or not. */
INLINE void load_relaxed(unsigned long long at, int wanted, Group<float> &x) {
    float *y = x.at;
    if constexpr (VECTOR == 1)
        asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %2, 0;\n@p ld.relaxed.gpu.global.f32 %0, [%1];\n}"
                     : "+f"(y[0])
                     : "l"(at), "r"(wanted)
                     : "memory");
    if constexpr (VECTOR == 2)
        asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %3, 0;\n@p ld.relaxed.gpu.global.v2.f32 {%0, %1}, [%2];\n}"
                     : "+f"(y[0]), "+f"(y[1 % VECTOR])
                     : "l"(at), "r"(wanted)
                     : "memory");
    if constexpr (VECTOR == 4)
        asm volatile(
            "{\n.reg .pred p;\nsetp.ne.s32 p, %5, 0;\n@p ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];\n}"
            : "+f"(y[0]), "+f"(y[1 % VECTOR]), "+f"(y[2 % VECTOR]), "+f"(y[3 % VECTOR])
            : "l"(at), "r"(wanted)
            : "memory");
}

/* ---- what a map reads, loaded before it is needed ---- */

/* The caller's row of a row, where there is an order. */
INLINE int ordered(unsigned long long order, long long row) {
    return order ? (int)((const long long *)order)[row] : (int)row;
}

template <typename T> INLINE void fetch_group(unsigned long long address, long long element, Group<T> &x) {
    x = *(const Group<T> *)((const T *)address + element);
}
template <typename T> INLINE void fetch_repeated(unsigned long long address, long long element, Group<T> &x) {
#pragma unroll
    for (int i = 0; i < VECTOR; i++) x.at[i] = ((const T *)address)[element];
}
/* Keeps a value that the thread reads in the next iteration. */
INLINE void keep_group(const REAL (&from)[VECTOR], Group<REAL> &x) {
#pragma unroll
    for (int i = 0; i < VECTOR; i++) x.at[i] = from[i];
}
template <typename T> INLINE void widen_group(const Group<T> &x, REAL (&out)[VECTOR]) {
#pragma unroll
    for (int i = 0; i < VECTOR; i++) out[i] = (REAL)widen(x.at[i]);
}

/* ---- counters ---- */

/* Polls a counter until it has reached `target`, and calls `meanwhile` in between. After some seconds it sets the fault word and returns,
 * so that a lost signal is an error and not a hang. */
template <class F> INLINE void wait_for(const Words &c, unsigned long long counter, unsigned target, F meanwhile) {
    int spins = 0;
    while (true) {
        unsigned x;
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(counter) : "memory");
        if (x >= target) return;
        meanwhile();
        if (++spins % 1024) continue;
        if (*FAULT_OF(c)) return;
        if (spins < TIMEOUT_SPINS) continue;
        *FAULT_OF(c) = 1;
        __threadfence_system();
        return;
    }
}

/* The same for a warp that polls values. */
struct Timeout {
    const Words &c;
    int spins = 0;
    INLINE Timeout(const Words &c) : c(c) {}
    INLINE bool is_over() {
        if (++spins % 1024) return false;
        if (*FAULT_OF(c)) return true;
        if (spins < TIMEOUT_SPINS / 2) return false;
        *FAULT_OF(c) = 1;
        __threadfence_system();
        return true;
    }
    /* The same for all lanes of the warp: false when none has something left, or on a timeout. */
    INLINE bool keep_waiting(bool left) { return __any_sync(0xffffffffu, left) && !__any_sync(0xffffffffu, is_over()); }
};

INLINE void increment_counter(unsigned long long counter) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
