/* What the steps of a persistent kernel use: arguments, values that pass from block to block, instructions. Stands behind
 * map_element.cuh and before the texts of the seats; see persistent.h for the arguments.
 *
 * What a block gives to others lies in memory that is all ones before the kernel begins, and every element is written
 * once: whoever reads ones reads again. No number is stored as that pattern (results of arithmetic never are it; what
 * is moved is changed to another NaN). So data is its own flag, and there is no fence, counter or barrier between
 * blocks. */

struct Words {
    unsigned long long w[WORDS];
};

enum { HEADER_WORDS = 4, SEAT_WORDS = 8, STEP_WORDS = 4, PLACE_WORDS = 4, PATIENCE = 1 << 23 };
#define ITERATIONS_OF(C) ((int)(C).w[0])
#define BATCH_OF(C) ((int)(C).w[1])
#define FAULT_OF(C) ((volatile unsigned *)(C).w[2])

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
    long long row, stride;
    unsigned long long ring; /* or window */

    /* A view's address at an iteration and time: 0 where the caller left it out. */
    INLINE unsigned long long view(int i, int t) const {
        if (!address) return 0;
        unsigned long long at = address + (unsigned long long)(i * stride);
        return ring & 1 ? at + ((unsigned)t + (unsigned)(ring >> 1 & 1) & 1u) * (ring >> 2) : at;
    }
    /* A channel's, with a last bit that tells whether it is read. */
    INLINE unsigned long long channel(int i) const {
        if (!address) return 0;
        return address + (unsigned long long)(i * stride) + (i >= (int)(unsigned)ring && i < (int)(ring >> 32));
    }
};

/* A step at an iteration, as the map sees it: the addresses of its places lie in shared memory. */
struct Frame {
    const Words &c;
    const unsigned long long *places;
    bool there; /* else nothing is stored */

    INLINE unsigned long long place(int p) const { return places[p]; }
    INLINE unsigned long long channel(int p) const { return places[p] & ~1ull; }
    INLINE bool is_fresh(int p) const { return places[p] & 1; }
};
#define ADDRESS_OF(C, MEMBER, VIEW) (C).place(VIEW)
#define TWIN_OF(C, MEMBER, TWIN) (C).place(VIEWS + (TWIN))

/* ---- patience: what never comes is an error, not a hang ---- */

INLINE bool give_up(const Words &c, int &spins) {
    if (++spins % 1024) return false;
    if (*FAULT_OF(c)) return true;
    if (spins < PATIENCE) return false;
    *FAULT_OF(c) = 1;
    __threadfence_system();
    return true;
}

/* ---- channels ---- */

INLINE void read_fresh(unsigned long long at, unsigned (&x)[1]) {
    asm volatile("ld.relaxed.gpu.global.b32 %0, [%1];" : "=r"(x[0]) : "l"(at) : "memory");
}
INLINE void read_fresh(unsigned long long at, unsigned (&x)[2]) {
    asm volatile("ld.relaxed.gpu.global.v2.b32 {%0, %1}, [%2];" : "=r"(x[0]), "=r"(x[1]) : "l"(at) : "memory");
}
INLINE void read_fresh(unsigned long long at, unsigned (&x)[4]) {
    asm volatile("ld.relaxed.gpu.global.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "l"(at)
                 : "memory");
}
INLINE void read_fresh(unsigned long long at, unsigned short &x) {
    asm volatile("ld.relaxed.gpu.global.b16 %0, [%1];" : "=h"(x) : "l"(at) : "memory");
}
INLINE void write_fresh(unsigned long long at, const unsigned (&x)[1]) {
    asm volatile("st.relaxed.gpu.global.b32 [%0], %1;" ::"l"(at), "r"(x[0]) : "memory");
}
INLINE void write_fresh(unsigned long long at, const unsigned (&x)[2]) {
    asm volatile("st.relaxed.gpu.global.v2.b32 [%0], {%1, %2};" ::"l"(at), "r"(x[0]), "r"(x[1]) : "memory");
}
INLINE void write_fresh(unsigned long long at, const unsigned (&x)[4]) {
    asm volatile("st.relaxed.gpu.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(x[0]), "r"(x[1]), "r"(x[2]),
                 "r"(x[3])
                 : "memory");
}
INLINE void write_fresh(unsigned long long at, unsigned short x) {
    asm volatile("st.relaxed.gpu.global.b16 [%0], %1;" ::"l"(at), "h"(x) : "memory");
}

/* Has an element of SIZE bytes in this word not come yet? Writers store whole words unless VECTOR is 1. */
template <int SIZE> INLINE bool is_missing(unsigned word) {
    if (SIZE == 2 && VECTOR == 1) return ((~word - 0x00010001u) & word & 0x80008000u) != 0;
    return word == 0xffffffffu;
}

INLINE unsigned known(float x) { return __float_as_uint(x) == 0xffffffffu ? 0x7fffffffu : __float_as_uint(x); }
INLINE unsigned short known(BFloat16 x) { return x.bits; }
INLINE unsigned short known(Float16 x) { return x.bits; }

/* In a channel of products of tf32, numbers are rounded to it. */
#if TILE_TF32
INLINE float rounded(float x) {
    unsigned y;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(y) : "f"(x));
    return __uint_as_float(y);
}
#endif

template <typename T, bool OPERAND>
INLINE void publish(const Frame &c, int place, long long element, const REAL (&x)[VECTOR]) {
    constexpr int SIZE = (int)sizeof(T);
    unsigned long long at = c.channel(place);
    if (!at || !c.there) return;
    at += (unsigned long long)(element * SIZE);
    T y[VECTOR];
#pragma unroll
    for (int i = 0; i < VECTOR; i++) {
        narrow(x[i], y[i]);
#if TILE_TF32
        if (OPERAND) narrow(rounded(x[i]), y[i]);
#endif
    }
    if constexpr (SIZE * VECTOR == 2) {
        write_fresh(at, known(y[0]));
    } else if constexpr (SIZE == 2) {
        unsigned words[VECTOR / 2 > 0 ? VECTOR / 2 : 1];
#pragma unroll
        for (int i = 0; i < VECTOR / 2; i++) words[i] = known(y[2 * i]) | (unsigned)known(y[2 * i + 1]) << 16;
        write_fresh(at, words);
    } else {
        unsigned words[VECTOR];
#pragma unroll
        for (int i = 0; i < VECTOR; i++) words[i] = known(y[i]);
        write_fresh(at, words);
    }
}

template <typename T> INLINE void fetch_group(unsigned long long address, long long element, Group<T> &x) {
    x = *(const Group<T> *)((const T *)address + element);
}
template <typename T> INLINE void fetch_repeated(unsigned long long address, long long element, Group<T> &x) {
#pragma unroll
    for (int i = 0; i < VECTOR; i++) x.at[i] = ((const T *)address)[element];
}
template <typename T> INLINE void widen_group(const Group<T> &x, REAL (&out)[VECTOR]) {
#pragma unroll
    for (int i = 0; i < VECTOR; i++) out[i] = (REAL)widen(x.at[i]);
}

/* The same of a channel, when it has come. */
template <typename T> INLINE void load_fresh(const Frame &c, int place, long long element, Group<T> &out) {
    constexpr int SIZE = (int)sizeof(T), COUNT = SIZE * VECTOR / 4;
    unsigned long long at = c.channel(place) + (unsigned long long)(element * SIZE);
    int spins = 0;
    if constexpr (COUNT == 0) {
        unsigned short x;
        do read_fresh(at, x);
        while (x == 0xffffu && !give_up(c.c, spins));
        out.at[0] = T{x};
    } else {
        union {
            unsigned x[COUNT];
            Group<T> group;
        } both;
        bool missing;
        do {
            read_fresh(at, both.x);
            missing = false;
#pragma unroll
            for (int i = 0; i < COUNT; i++) missing |= is_missing<SIZE>(both.x[i]);
        } while (missing && !give_up(c.c, spins));
        out = both.group;
    }
}
