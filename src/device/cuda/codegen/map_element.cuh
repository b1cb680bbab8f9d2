/* Elements of views: their types, loads and stores of VECTOR elements, operations, sums over a row. Follows the macros and precedes the
 * function that are written from a map (source.c); is compiled without any header. */

#define INLINE __device__ __forceinline__

/* ---- types ---- */

struct BFloat16 {
    unsigned short bits;
};
struct Float16 {
    unsigned short bits;
};

#ifdef __CUDACC__ /* else a test compiles this text for the host, with its own definitions of these */

INLINE REAL infinity() { return (REAL)__longlong_as_double(0x7ff0000000000000ll); }
INLINE float bits_as_float(unsigned bits) { return __uint_as_float(bits); }
INLINE float reciprocal(float x) { /* within one unit in the last place; 0 above 2^126, infinite below 2^-126 */
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
INLINE float widen(Float16 x) {
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
}
INLINE void narrow(float x, Float16 &y) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); }
INLINE void narrow(float x, BFloat16 &y) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x)); }

#endif

INLINE float widen(BFloat16 x) { return bits_as_float((unsigned)x.bits << 16); }
INLINE float widen(float x) { return x; }
INLINE double widen(double x) { return x; }
INLINE REAL widen(unsigned char x) { return (REAL)x; }
INLINE REAL widen(long long x) { return (REAL)x; }
INLINE void narrow(REAL x, float &y) { y = (float)x; }
INLINE void narrow(REAL x, double &y) { y = (double)x; }
INLINE void narrow(REAL x, unsigned char &y) { y = (unsigned char)x; }
INLINE void narrow(REAL x, long long &y) { y = (long long)x; }

/* ---- VECTOR neighbouring elements ---- */

/* Rows begin at multiples of VECTOR elements, so that this is one access, or a few of 16 bytes. */
template <typename T> struct alignas(sizeof(T) * VECTOR) Group { T at[VECTOR]; };

template <typename T> INLINE void load(unsigned long long address, long long element, REAL (&out)[VECTOR]) {
    Group<T> group = *(const Group<T> *)((const T *)address + element);
#pragma unroll
    for (int i = 0; i < VECTOR; i++) out[i] = (REAL)widen(group.at[i]);
}

/* Of a view that is stored transposed, feature after feature. */
template <typename T>
INLINE void load_transposed(unsigned long long address, long long row, long long column, long long stride,
                            REAL (&out)[VECTOR]) {
#pragma unroll
    for (int i = 0; i < VECTOR; i++) out[i] = (REAL)widen(((const T *)address)[(column + i) * stride + row]);
}

/* One element, repeated. */
template <typename T> INLINE void load_repeated(unsigned long long address, long long element, REAL (&out)[VECTOR]) {
    REAL x = (REAL)widen(((const T *)address)[element]);
#pragma unroll
    for (int i = 0; i < VECTOR; i++) out[i] = x;
}

/* Nothing is stored at address 0. */
template <typename T> INLINE void store(unsigned long long address, long long element, const REAL (&x)[VECTOR]) {
    if (!address) return;
    Group<T> group;
#pragma unroll
    for (int i = 0; i < VECTOR; i++) narrow(x[i], group.at[i]);
    *(Group<T> *)((T *)address + element) = group;
}

/* The first of VECTOR equal numbers. */
template <typename T> INLINE void store_once(unsigned long long address, long long element, const REAL (&x)[VECTOR]) {
    T first;
    narrow(x[0], first);
    if (address) ((T *)address)[element] = first;
}

/* ---- operations; for NaN and infinities as in src/cell/operation.c ---- */

#if REAL_IS_DOUBLE

INLINE REAL op_exp(REAL x) { return exp(x); }
INLINE REAL op_log(REAL x) { return log(x); }
INLINE REAL op_log1p(REAL x) { return log1p(x); }
INLINE REAL op_abs(REAL x) { return fabs(x); }
INLINE REAL op_sqrt(REAL x) { return sqrt(x); }
INLINE REAL op_sigmoid(REAL x) { return 1 / (1 + exp(-x)); }
INLINE REAL op_tanh(REAL x) { return tanh(x); }

#else

INLINE REAL op_exp(REAL x) { return expf(x); }
INLINE REAL op_log(REAL x) { return logf(x); }
INLINE REAL op_log1p(REAL x) { return log1pf(x); }
INLINE REAL op_abs(REAL x) { return fabsf(x); }
INLINE REAL op_sqrt(REAL x) { return sqrtf(x); }
/* A block of a persistent kernel has few threads for many elements, and a scan should be limited by memory alone. Where operands are
 * rounded, both use the hardware's approximations: for bfloat16, whose own steps are 2^-8, of tanh, within 2^-11; else of exp. */
#if (defined(PERSISTENT) || defined(RECURRENCE)) && ROUNDED
#if TILE_BF16
INLINE REAL op_tanh(REAL x) {
    float y;
    asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
INLINE REAL op_sigmoid(REAL x) { return fmaf(0.5f, op_tanh(0.5f * x), 0.5f); }
#else
INLINE REAL op_sigmoid(REAL x) { return reciprocal(1.0f + __expf(-x)); }
INLINE REAL op_tanh(REAL x) { return fmaf(-2.0f, reciprocal(1.0f + __expf(2.0f * x)), 1.0f); }
#endif
#else
INLINE REAL op_sigmoid(REAL x) { return reciprocal(1.0f + expf(-x)); }
/* Far from 0 by the exponential; near 0, where that cancels, x + x^3 p(x^2), within 0.7 * 2^-24. */
INLINE REAL op_tanh(REAL x) {
    float size = fabsf(x), z = x * x;
    float p = 0.016437580808997154f;
    p = fmaf(p, z, -0.05267181247472763f);
    p = fmaf(p, z, 0.13320724666118622f);
    p = fmaf(p, z, -0.3333294689655304f);
    float small = fmaf(p * z, x, x);
    float large = fmaf(-2.0f, reciprocal(expf(2.0f * size) + 1.0f), 1.0f);
    return size < 0.55f ? small : copysignf(large, x);
}
#endif

#endif

INLINE REAL op_relu(REAL x) { return x > 0 ? x : (REAL)0; }
INLINE REAL op_softplus(REAL x) { return (x > 0 ? x : (REAL)0) + op_log1p(op_exp(-op_abs(x))); }
INLINE REAL op_min(REAL a, REAL b) { return a < b ? a : b; }
INLINE REAL op_max(REAL a, REAL b) { return a > b ? a : b; }
INLINE REAL op_step(REAL x) { return x > 0 ? (REAL)1 : (REAL)0; }
INLINE REAL op_select(REAL mask, REAL a, REAL b) { return mask != 0 ? a : b; }
INLINE REAL op_sign(REAL x) { return (REAL)((x > 0) - (x < 0)); }

#ifndef PERSISTENT /* else persistent/kernel/base.cuh has them */

/* ---- arguments ---- */

struct Words {
    unsigned long long w[WORDS];
};

/* A member's words: its rows, addresses of its views, addresses of its rounded copies. */
#define MEMBER_WORD(MEMBER) (1 + VIEWS + PASSES + (MEMBER) * (1 + VIEWS + ROUNDED_COPIES))
#define COLUMNS_OF(C) ((long long)(C).w[0])
#define STRIDE_OF(C, VIEW) ((long long)(C).w[1 + (VIEW)])
#if COUNTED
#define ROWS_OF(C, MEMBER) (*(const long long *)(C).w[MEMBER_WORD(MEMBER)])
#else
#define ROWS_OF(C, MEMBER) ((long long)(C).w[MEMBER_WORD(MEMBER)])
#endif
#define ADDRESS_OF(C, MEMBER, VIEW) ((C).w[MEMBER_WORD(MEMBER) + 1 + (VIEW)])
#define ROUNDED_OF(C, MEMBER, COPY) ((C).w[MEMBER_WORD(MEMBER) + 1 + VIEWS + (COPY)])

#endif

#if ROW_THREADS || ROW_SUMS
/* COUNT sums over the lanes of a warp at once: at each step a half of the lanes takes on a half of the numbers, until every
 * lane has one of them. Returns which one this lane has in x[0], or -1. */
template <int COUNT, int OFFSET = 16> INLINE int warp_sums(REAL *x, int lane, int there) {
    if constexpr (OFFSET == 0) {
        return there > 0 ? 0 : -1;
    } else if constexpr (COUNT == 1) {
        x[0] += __shfl_xor_sync(0xffffffffu, x[0], OFFSET);
        int which = warp_sums<1, OFFSET / 2>(x, lane, there);
        return lane & OFFSET ? -1 : which;
    } else {
        constexpr int HALF = (COUNT + 1) / 2;
        const bool upper = lane & OFFSET;
#pragma unroll
        for (int i = 0; i < HALF; i++) {
            REAL later = HALF + i < COUNT ? x[HALF + i < COUNT ? HALF + i : 0] : (REAL)0;
            REAL mine = upper ? later : x[i], other = upper ? x[i] : later;
            x[i] = mine + __shfl_xor_sync(0xffffffffu, other, OFFSET);
        }
        int which = warp_sums<HALF, OFFSET / 2>(x, lane, upper ? there - HALF : there < HALF ? there : HALF);
        return which < 0 ? -1 : upper ? HALF + which : which;
    }
}

#endif

#if ROW_THREADS
/* COUNT sums over all threads' numbers at once, each in a fixed order: over the lanes of a warp, then over the warps. `turn`
 * alternates between two buffers: the next call waits for a thread that is slow to read. */
template <int COUNT> INLINE void block_sums(REAL (&x)[COUNT], int turn) {
    constexpr int WARPS = ROW_THREADS / 32, GROUPS = 32 / WARPS; /* sums that a warp adds up at once */
    __shared__ REAL parts[2][SUMS * WARPS];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, which = warp_sums<COUNT>(x, lane, COUNT);
    if (which >= 0) parts[turn][which * WARPS + warp] = x[0];
    __syncthreads();
#pragma unroll
    for (int first = 0; first < COUNT; first += GROUPS) {
        int index = first * WARPS + lane;
        REAL sum = index < COUNT * WARPS ? parts[turn][index] : (REAL)0;
#pragma unroll
        for (int step = WARPS / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
#pragma unroll
        for (int n = first; n < COUNT && n < first + GROUPS; n++)
            x[n] = __shfl_sync(0xffffffffu, sum, (n - first) * WARPS);
    }
}
#endif
