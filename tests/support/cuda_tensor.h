/* Matrices in device memory with what is expected of every byte: shared by the tests of the GPU's kernels. */
#ifndef RECURVE_CUDA_TENSOR_H
#define RECURVE_CUDA_TENSOR_H

#include "test.h"

#include "device/cuda/kernels/kernels.h"
#include "probe.h"

#include <math.h>

enum { TENSOR_GUARD = 64, SKIPPED = 77 }; /* elements behind a tensor; exit status */

#define check_cuda(call)                                                                                               \
    do {                                                                                                               \
        cudaError_t check_error_ = (call);                                                                             \
        if (check_error_ != cudaSuccess) fail_msg("%s gave %s", #call, cudaGetErrorString(check_error_));              \
    } while (0)

/* Done when it returns: a small copy may not be, and a stream of its own does not wait for it. */
static inline void send_bytes(void *device, const void *host, size_t bytes) {
    check_cuda(cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice));
    check_cuda(cudaDeviceSynchronize());
}

static inline bool has_gpu(void) {
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

/* ---- numbers of every type, to the nearest and to even ---- */

static const char *const number_names[] = {"f32", "f64", "bf16", "f16"};

static inline size_t number_size(rcvi_cuda_type type) { return type == RCVI_F64 ? 8 : type == RCVI_F32 ? 4 : 2; }

/* Of a number of 16 bits, so many of them the fraction's. */
static inline uint16_t to_16_bits(double x, int fraction_bits) {
    int exponent_bits = 15 - fraction_bits, least = 2 - (1 << (exponent_bits - 1));
    uint32_t sign = signbit(x) ? 0x8000u : 0, infinite = ((1u << exponent_bits) - 1) << fraction_bits;
    if (isnan(x)) return (uint16_t)(infinite | 1);
    if (isinf(x)) return (uint16_t)(sign | infinite);
    if (x == 0) return (uint16_t)sign;
    int exponent = ilogb(x) > least ? ilogb(x) : least;
    double digits = nearbyint(ldexp(fabs(x), fraction_bits - exponent)), whole = ldexp(1, fraction_bits);
    uint64_t bits = digits < whole ? (uint64_t)digits
                                   : ((uint64_t)(exponent - least + 1) << fraction_bits) + (uint64_t)(digits - whole);
    return (uint16_t)(sign | (bits < infinite ? (uint32_t)bits : infinite));
}

static inline double of_16_bits(uint16_t bits, int fraction_bits) {
    int exponent_bits = 15 - fraction_bits, least = 2 - (1 << (exponent_bits - 1));
    int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1), fraction = bits & ((1 << fraction_bits) - 1);
    double sign = bits >> 15 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1) return fraction ? NAN : sign * INFINITY;
    if (!exponent) return sign * ldexp(fraction, least - fraction_bits);
    return sign * ldexp(fraction + (1 << fraction_bits), exponent + least - 1 - fraction_bits);
}

static inline void put_number(void *base, rcvi_cuda_type type, int64_t i, double x) {
    switch (type) {
    case RCVI_F32: ((float *)base)[i] = (float)x; break;
    case RCVI_F64: ((double *)base)[i] = x; break;
    default: ((uint16_t *)base)[i] = to_16_bits(x, type == RCVI_BF16 ? 7 : 10); break;
    }
}

static inline double get_number(const void *base, rcvi_cuda_type type, int64_t i) {
    switch (type) {
    case RCVI_F32: return (double)((const float *)base)[i];
    case RCVI_F64: return ((const double *)base)[i];
    default: return of_16_bits(((const uint16_t *)base)[i], type == RCVI_BF16 ? 7 : 10);
    }
}

/* What half a unit in the last place can be, for a number of this size. */
static inline double rounding(rcvi_cuda_type type, double x) {
    static const double unit[] = {0x1p-24, 0x1p-53, 0x1p-8, 0x1p-11};
    return fabs(x) * unit[type] + (type == RCVI_F16 ? 0x1p-24 : 0);
}

/* ---- tensors ---- */

typedef struct {
    rcvi_cuda_type type;
    int64_t rows, columns, row, column, first; /* `first` element of the memory is [0, 0] */
    size_t bytes;
    void *host, *device; /* the host has what was sent, then what is expected */
} tensor;

static inline int64_t tensor_index(const tensor *t, int64_t r, int64_t c) {
    return t->first + r * t->row + c * t->column;
}
static inline double tensor_get(const tensor *t, int64_t r, int64_t c) {
    return get_number(t->host, t->type, tensor_index(t, r, c));
}
static inline void tensor_set(tensor *t, int64_t r, int64_t c, double x) {
    put_number(t->host, t->type, tensor_index(t, r, c), x);
}

/* All of it is poisoned with NaN; `random` numbers in [-1, 1] stand in the matrix itself then. */
static inline tensor tensor_new(rcvi_cuda_type type, int64_t rows, int64_t columns, int64_t row, int64_t column,
                                int64_t first, random_source *random) {
    tensor t = {type, rows, columns, row, column, first, 0, NULL, NULL};
    t.bytes = (size_t)(first + (rows - 1) * row + (columns - 1) * column + 1 + TENSOR_GUARD) * number_size(type);
    t.host = malloc(t.bytes);
    assert_non_null(t.host);
    memset(t.host, 0xff, t.bytes);
    for (int64_t r = 0; random && r < rows; r++) {
        for (int64_t c = 0; c < columns; c++) tensor_set(&t, r, c, random_between(random, -1, 1));
    }
    check_cuda(cudaMalloc(&t.device, t.bytes));
    send_bytes(t.device, t.host, t.bytes);
    return t;
}

static inline void *tensor_at(const tensor *t) { return (char *)t->device + (size_t)t->first * number_size(t->type); }

static inline rcvi_matrix tensor_matrix(const tensor *t, const tensor *rounded) {
    if (!t) return (rcvi_matrix){.at = NULL, .column = 1};
    return (rcvi_matrix){.at = tensor_at(t),
                         .row = t->row,
                         .column = t->column,
                         .type = t->type,
                         .rounded = rounded ? tensor_at(rounded) : NULL,
                         .rounded_type = rounded ? rounded->type : RCVI_F32,
                         .order = {NULL, 1, 0}};
}

/* What the device has now; free it. */
static inline void *tensor_read(const tensor *t) {
    void *got = malloc(t->bytes);
    assert_non_null(got);
    check_cuda(cudaMemcpy(got, t->device, t->bytes, cudaMemcpyDeviceToHost));
    return got;
}

/* Every byte is as expected. */
static inline void tensor_check(const tensor *t, const char *label) {
    void *got = tensor_read(t);
    size_t size = number_size(t->type);
    for (size_t i = 0; i < t->bytes / size; i++) {
        if (!memcmp((char *)got + i * size, (char *)t->host + i * size, size)) continue;
        int64_t place = (int64_t)i - t->first;
        fail_msg("%s: element %lld of a %s [%lld, %lld] with rows of %lld is %.17g, not %.17g", label, (long long)place,
                 number_names[t->type], (long long)t->rows, (long long)t->columns, (long long)t->row,
                 get_number(got, t->type, (int64_t)i), get_number(t->host, t->type, (int64_t)i));
    }
    free(got);
}

/* [r, c] is `want` within `error`. From here on what the device has is what is expected there. */
static inline void tensor_accept(tensor *t, const void *got, int64_t r, int64_t c, double want, double error,
                                 const char *label) {
    int64_t i = tensor_index(t, r, c);
    double x = get_number(got, t->type, i);
    if (!(fabs(x - want) <= error + rounding(t->type, want)))
        fail_msg("%s: [%lld, %lld] of %s [%lld, %lld] is %.17g, not %.17g (error %g)", label, (long long)r,
                 (long long)c, number_names[t->type], (long long)t->rows, (long long)t->columns, x, want, error);
    memcpy((char *)t->host + (size_t)i * number_size(t->type), (const char *)got + (size_t)i * number_size(t->type),
           number_size(t->type));
}

static inline void tensor_free(tensor *t) {
    cudaFree(t->device);
    free(t->host);
}

#endif
