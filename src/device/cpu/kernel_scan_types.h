/* Linear recurrences of all four types: the template with what it expects, and stores that go past the caches. Included
 * once a set. */
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "device/cpu/kernel_half.h"

/* A whole vector of `bytes`, a constant, at a multiple of them. 64-bit ARM needs no hint: a core that sees whole lines
 * written does not fetch them. */
static inline __attribute__((always_inline)) void stream_vector(void *to, const void *from, const int bytes) {
#if defined(__AVX512F__) && VECTOR_BYTES == 64
    if (bytes == 64) {
        _mm512_stream_si512((__m512i *)to, _mm512_loadu_si512(from));
        return;
    }
#endif
#if defined(__AVX2__)
    if (bytes == 32) {
        _mm256_stream_si256((__m256i *)to, _mm256_loadu_si256((const __m256i *)from));
        return;
    }
#endif
#if defined(__SSE2__)
    if (bytes == 16) {
        _mm_stream_si128((__m128i *)to, _mm_loadu_si128((const __m128i *)from));
        return;
    }
#endif
    memcpy(to, from, (size_t)bytes);
}

/* What was streamed is seen by others after this. */
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
        _Pragma("GCC unroll 4") for (int v = 0; v < 4; v++) {
            floats sum = *(const floats *)(a + i + v * lanes);
            if (b) sum += *(const floats *)(b + i + v * lanes);
            stream_vector(c + i + v * lanes, &sum, VECTOR_BYTES);
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
#define FUSED(sum, x, y) FUSED_FLOATS(sum, x, y)
#include "device/cpu/kernel_scan.h"
#undef TYPE
#undef ELEMENT
#undef WIDEN
#undef NARROW

#define TYPE bfloat16
#define ELEMENT uint16_t
#define WIDEN(x) from_bfloat16(x)
#define NARROW(x) to_bfloat16(x)
#include "device/cpu/kernel_scan.h"
#undef TYPE
#undef WIDEN
#undef NARROW

#define TYPE float16
#define WIDEN(x) from_float16(x)
#define NARROW(x) to_float16(x)
#include "device/cpu/kernel_scan.h"
#undef TYPE
#undef CARRY
#undef ELEMENT
#undef BITS
#undef LEAST_NORMAL
#undef WIDEN
#undef NARROW
#undef FUSED

#define TYPE double
#define CARRY double
#define ELEMENT double
#define BITS int64_t
#define LEAST_NORMAL 0x1p-1022
#define WIDEN(x) (x)
#define NARROW(x) (x)
#define FUSED(sum, x, y) FUSED_DOUBLES(sum, x, y)
#include "device/cpu/kernel_scan.h"
#undef TYPE
#undef CARRY
#undef ELEMENT
#undef BITS
#undef LEAST_NORMAL
#undef WIDEN
#undef NARROW
#undef FUSED
