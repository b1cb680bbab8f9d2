/* The scan kernels of all four types: the template with the macros that it expects, and non-temporal stores. Included once by each
 * set. */
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "device/cpu/kernels/half.h"

/* Non-temporal stores of two adjacent vectors, or half vectors, aligned to their size. 64-bit ARM has them for pairs only; with
 * single stores half a line is often written to memory long before the rest. They are volatile, so that they keep their order, for
 * the same reason. */
typedef struct {
    char bytes[2 * VECTOR_BYTES];
} whole_pair;
typedef struct {
    char bytes[VECTOR_BYTES];
} half_pair;
#if defined(__aarch64__)
#define STREAM_WHOLE(to, x, y) __asm__ volatile("stnp %q1, %q2, %0" : "=Q"(*(whole_pair *)(to)) : "w"(x), "w"(y))
#define STREAM_HALF(to, x, y) __asm__ volatile("stnp %d1, %d2, %0" : "=Q"(*(half_pair *)(to)) : "w"(x), "w"(y))
#elif defined(__AVX512F__) && VECTOR_BYTES == 64
#define STREAM_WHOLE(to, x, y)                                                                                         \
    (_mm512_stream_si512((void *)(to), (__m512i)(x)), _mm512_stream_si512((void *)((char *)(to) + 64), (__m512i)(y)))
#define STREAM_HALF(to, x, y)                                                                                          \
    (_mm256_stream_si256((void *)(to), (__m256i)(x)), _mm256_stream_si256((void *)((char *)(to) + 32), (__m256i)(y)))
#elif defined(__AVX2__) && VECTOR_BYTES == 32
#define STREAM_WHOLE(to, x, y)                                                                                         \
    (_mm256_stream_si256((void *)(to), (__m256i)(x)), _mm256_stream_si256((void *)((char *)(to) + 32), (__m256i)(y)))
#define STREAM_HALF(to, x, y)                                                                                          \
    (_mm_stream_si128((void *)(to), (__m128i)(x)), _mm_stream_si128((void *)((char *)(to) + 16), (__m128i)(y)))
#elif defined(__SSE2__) && VECTOR_BYTES == 16
#define STREAM_WHOLE(to, x, y)                                                                                         \
    (_mm_stream_si128((void *)(to), (__m128i)(x)), _mm_stream_si128((void *)((char *)(to) + 16), (__m128i)(y)))
#define STREAM_HALF(to, x, y) (memcpy(to, &(x), 8), memcpy((char *)(to) + 8, &(y), 8))
#else
#define STREAM_WHOLE(to, x, y) (memcpy(to, &(x), VECTOR_BYTES), memcpy((char *)(to) + VECTOR_BYTES, &(y), VECTOR_BYTES))
#define STREAM_HALF(to, x, y)                                                                                          \
    (memcpy(to, &(x), VECTOR_BYTES / 2), memcpy((char *)(to) + VECTOR_BYTES / 2, &(y), VECTOR_BYTES / 2))
#endif

/* Orders non-temporal stores before all later stores. */
static inline void end_stream(void) {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

static void stream_sum(int64_t n, const float *a, const float *b, float *c) {
    typedef float floats __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
    const int64_t lanes = VECTOR_BYTES / 4;
    int64_t i = 0;
    for (; i + 4 * lanes <= n; i += 4 * lanes) {
        _Pragma("GCC unroll 2") for (int64_t at = i; at < i + 4 * lanes; at += 2 * lanes) {
            floats x = *(const floats *)(a + at), y = *(const floats *)(a + at + lanes);
            if (b) x += *(const floats *)(b + at);
            if (b) y += *(const floats *)(b + at + lanes);
            STREAM_WHOLE(c + at, x, y);
        }
    }
    for (; i < n; i++) c[i] = b ? a[i] + b[i] : a[i];
    end_stream();
}

#define TYPE float
#define CARRY float
#define ELEMENT float
#define BITS int32_t
#define LEAST_NORMAL 0x1p-126f
#define WIDEN(x) (x)
#define NARROW(x) (x)
#define STREAM STREAM_WHOLE
#define FUSED(sum, x, y) FUSED_FLOATS(sum, x, y)
#include "device/cpu/scan/kernel_scan.h"
#undef TYPE
#undef ELEMENT
#undef WIDEN
#undef NARROW
#undef STREAM

#define TYPE bfloat16
#define ELEMENT uint16_t
#define WIDEN(x) from_bfloat16(x)
#define NARROW(x) to_bfloat16(x)
#define STREAM STREAM_HALF
#include "device/cpu/scan/kernel_scan.h"
#undef TYPE
#undef WIDEN
#undef NARROW
#undef STREAM

#define TYPE float16
#define WIDEN(x) from_float16(x)
#define NARROW(x) to_float16(x)
#define STREAM STREAM_HALF
#include "device/cpu/scan/kernel_scan.h"
#undef TYPE
#undef CARRY
#undef ELEMENT
#undef BITS
#undef LEAST_NORMAL
#undef WIDEN
#undef NARROW
#undef STREAM
#undef FUSED

#define TYPE double
#define CARRY double
#define ELEMENT double
#define BITS int64_t
#define LEAST_NORMAL 0x1p-1022
#define WIDEN(x) (x)
#define NARROW(x) (x)
#define STREAM STREAM_WHOLE
#define FUSED(sum, x, y) FUSED_DOUBLES(sum, x, y)
#include "device/cpu/scan/kernel_scan.h"
#undef TYPE
#undef CARRY
#undef ELEMENT
#undef BITS
#undef LEAST_NORMAL
#undef WIDEN
#undef NARROW
#undef STREAM
#undef FUSED
