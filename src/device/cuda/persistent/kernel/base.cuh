/* What the steps of a persistent kernel use: arguments, values that pass from block to block. Stands behind map_element.cuh and
 * before the texts of the seats; see persistent.h for the arguments.
 *
 * An operand that others read lies in memory as they want it in shared memory: tiles of TILE_ROWS rows, FOLD folds of their
 * depth one below the other, chunks of 128 bytes, the 16-byte pieces of row n at piece ^ (n & 7). Of a float32 that is multiplied
 * in PARTS numbers of bfloat16, a chunk of the first ones is followed by one of the second ones, and so on. Every step has its own slot, so nothing is overwritten. A block that has
 * written raises a counter (release); who reads waits until all blocks have (acquire), then copies. */

struct Words {
    unsigned long long w[WORDS];
};

enum { HEADER_WORDS = 4, SEAT_WORDS = 8, STEP_WORDS = 4, PLACE_WORDS = 4, PATIENCE = 1 << 23 };
#define ITERATIONS_OF(C) ((int)(C).w[0])
#define BATCH_OF(C) ((int)(C).w[1])
#define FAULT_OF(C) ((volatile unsigned *)(C).w[2])

extern __shared__ __align__(1024) unsigned char shared_memory[];

/* ---- places ---- */

/* When a step is taken. */
struct Due {
    int base, inner, low, high;
    INLINE Due(const Words &c, int at)
        : base((int)c.w[at]), inner((int)c.w[at + 1]), low((int)c.w[at + 2]), high((int)c.w[at + 3]) {}
    INLINE bool is_due(int i) const { return i >= low && i < high; }
    INLINE int time(int i) const { return base + i * inner; }
};

/* The words of a place, in shared memory. */
struct Place {
    unsigned long long address;
    long long blocks, stride; /* that raise a counter, or where a view begins to be somewhere; bytes an iteration */
    unsigned long long ring;  /* or window */

    /* A view's address at an iteration and time: 0 where the caller left it out, or nobody reads what is stored then. All words are
     * read at once: this is on the way of a step. */
    INLINE unsigned long long view(int i, int t) const {
        const unsigned long long first = address, windows = ring;
        const long long from = blocks, each = stride;
        const unsigned long long window = ((unsigned)t + (unsigned)(windows >> 1 & 1) & 1u) * (windows >> 2),
                                 at = first + (unsigned long long)(i * each) + (windows & 1 ? window : 0);
        return first != 0 & i >= (int)from ? at : 0;
    }
    /* What passes between blocks, and counters. */
    INLINE unsigned long long slot(int i) const { return address ? address + (unsigned long long)(i * stride) : 0; }
    INLINE bool is_fresh(int i) const { return i >= (int)(unsigned)ring && i < (int)(ring >> 32); }
};

/* A step at an iteration, as the map sees it: the addresses of its places lie in shared memory. */
struct Frame {
    const unsigned long long *places;
    int tile, n;  /* of all tiles; row in it */
    bool there;   /* else nothing is stored */
    bool goes_on; /* the row's sequence has not ended */
    bool begins;  /* it is the step's first iteration */
#if CLUSTER
    bool sent;            /* some of its piece is there */
    unsigned to, barrier; /* the slot that it is sent to, in all blocks, or 0, and who is told */
#endif

    INLINE unsigned long long place(int p) const { return places[p]; }
};
#define ADDRESS_OF(C, MEMBER, VIEW) (C).place(VIEW)
#define ROUNDED_OF(C, MEMBER, COPY) (C).place(VIEWS + (COPY))

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

/* The next part of a number, and what it leaves of it. */
template <typename T> INLINE T take_part(float &x) {
    T y;
    narrow(x, y);
    x -= widen(y);
    return y;
}

/* CHUNKS: of a fold of the operand, of all its parts. */
template <typename T, int CHUNKS> INLINE void publish(const Frame &c, int place, int column, const REAL (&x)[VECTOR]);

#if !CLUSTER /* else kernel/send.cuh has it */
template <typename T, int CHUNKS> INLINE void publish(const Frame &c, int place, int column, const REAL (&x)[VECTOR]) {
    constexpr int SIZE = (int)sizeof(T), PIECES = 16 / SIZE, DEPTH = CHUNKS / PARTS;
    unsigned long long at = c.place(place);
    if (!at || !c.there) return;
    int chunk = column / (8 * PIECES) % DEPTH * PARTS, fold = column / (8 * PIECES * DEPTH),
        piece = column / PIECES % 8;
    at += (unsigned long long)((c.tile * CHUNKS + chunk) * (TILE_N * 128) + (fold * TILE_ROWS + c.n) * 128 +
                               ((piece ^ (c.n & 7)) << 4) + column % PIECES * SIZE);
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

/* What steps leave out in rows that have ended is zero to those who read all rows. */
template <typename T, int CHUNKS>
INLINE void publish_short(const Frame &c, int place, int column, const REAL (&x)[VECTOR]) {
    REAL y[VECTOR];
#pragma unroll
    for (int i = 0; i < VECTOR; i++) y[i] = c.goes_on ? x[i] : (REAL)0;
    publish<T, CHUNKS>(c, place, column, y);
}

/* ---- values with tags: the last bit of every word, and of the address ---- */

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

INLINE void store_tagged(unsigned long long at, long long element, const REAL (&x)[VECTOR]) {
    unsigned words[VECTOR];
    if (!at) return;
#pragma unroll
    for (int i = 0; i < VECTOR; i++) words[i] = (__float_as_uint(x[i]) & ~1u) | (unsigned)at & 1u;
    store_words((at & ~1ull) + (unsigned long long)(element * 4), words);
}

/* Loads where wanted, whether it has come or not. */
INLINE void peek(unsigned long long at, int wanted, Group<float> &x) {
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

/* ---- what a map reads, fetched before it is needed ---- */

/* The caller's row, where there is an order. */
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
/* What the thread itself reads in the next iteration. */
INLINE void keep_group(const REAL (&from)[VECTOR], Group<REAL> &x) {
#pragma unroll
    for (int i = 0; i < VECTOR; i++) x.at[i] = from[i];
}
template <typename T> INLINE void widen_group(const Group<T> &x, REAL (&out)[VECTOR]) {
#pragma unroll
    for (int i = 0; i < VECTOR; i++) out[i] = (REAL)widen(x.at[i]);
}

/* ---- counters ---- */

/* Waits until a counter has reached this, and does something else meanwhile; what never comes is an error, not a hang. */
template <class F> INLINE void wait_for(const Words &c, unsigned long long counter, unsigned target, F meanwhile) {
    int spins = 0;
    while (true) {
        unsigned x;
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(counter) : "memory");
        if (x >= target) return;
        meanwhile();
        if (++spins % 1024) continue;
        if (*FAULT_OF(c)) return;
        if (spins < PATIENCE) continue;
        *FAULT_OF(c) = 1;
        __threadfence_system();
        return;
    }
}

/* The same of a warp that looks at values itself. */
struct Patience {
    const Words &c;
    int spins = 0;
    INLINE Patience(const Words &c) : c(c) {}
    INLINE bool is_over() {
        if (++spins % 1024) return false;
        if (*FAULT_OF(c)) return true;
        if (spins < PATIENCE / 2) return false;
        *FAULT_OF(c) = 1;
        __threadfence_system();
        return true;
    }
    /* For all lanes, while something is left for one of them. */
    INLINE bool goes_on(bool left) { return __any_sync(0xffffffffu, left) && !__any_sync(0xffffffffu, is_over()); }
};

INLINE void raise(unsigned long long counter) {
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
