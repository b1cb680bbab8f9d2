/* Template of a complete set of kernels, from the vector templates. Included once by each set, which defines
 *
 *   SET, SET_NAME, SET_WHAT      name of the table, and its name and what strings
 *   VECTOR_BYTES                 bytes of a vector
 *   MAP_BYTES                    bytes that an elementwise kernel handles at a time (kernels/map.h)
 *   ROWS, STRIP, STRIPS, WIDE    shape of the register tiles (kernels/product.h)
 *   SUMS, REGISTER               accumulators and register constraint of the peak measurement (kernels/peak.h)
 *   FUSED_FLOAT, FUSED_DOUBLE    (sum, number, vector): a fused multiply-add. It is explicit because a compiler that contracts
 *                                expressions by itself may round differently depending on the surrounding code.
 *   FUSED_FLOATS, FUSED_DOUBLES  (sum, vector, vector)
 *   SCAN_VECTORS                 vectors of carries that scan/kernel_scan.h keeps in registers */
#include "device/cpu/kernels/kernels.h"

#include <math.h>
#include <string.h>

/* On ARM a multiply-add takes one operand from a lane of a vector register; to broadcast it first would use an issue slot of the
 * multiply-add units. */
#if defined(__aarch64__)
#define IN_VECTOR_REGISTER(x) __asm__("" : "+w"(x))
#else
#define IN_VECTOR_REGISTER(x) (void)0
#endif

#include "device/cpu/kernels/bfloat16.h"
#include "device/cpu/kernels/functions.h"
#if defined(SET_HAS_NEON)
#include "device/cpu/kernels/functions_neon.h"
#endif

/* ---- float ------------------------------------------------------------------------------------------------------- */

#define TYPE float
#define SCALAR float
#define SOURCE float
#define OPERAND float
#define ELEMENT float
#define GROUP 1
#define FILL 1
#define UNIT_BYTES 4
#define BITS int32_t
#define BYTES VECTOR_BYTES
#define ROUND(x) (x)
#define MULTIPLY_ADD(sum, x, y) FUSED_FLOAT(sum, x, y)
#define MATH(f) vector_##f
#if defined(SET_HAS_NEON)
#define MANY_MATH(f) many_##f
#endif
#define SMALL 0x1p-12f
#include "device/cpu/kernels/product.h"

#include "device/cpu/kernels/peak.h"

#include "device/cpu/kernels/map.h"

#include "device/cpu/kernels/exp_sum.h"

#include "device/cpu/kernels/undefine.h"

/* ---- double: elementary functions by the C library ----------------------------------------------------------------- */

typedef double wide_vector __attribute__((vector_size(MAP_BYTES)));

#define EACH_LANE(name, VALUE)                                                                                         \
    static inline wide_vector each_##name(wide_vector vector) {                                                        \
        for (size_t lane = 0; lane < MAP_BYTES / sizeof(double); lane++) {                                             \
            double x = vector[lane];                                                                                   \
            vector[lane] = VALUE;                                                                                      \
        }                                                                                                              \
        return vector;                                                                                                 \
    }
EACH_LANE(exp, exp(x))
EACH_LANE(sigmoid, 1 / (1 + exp(-x)))
EACH_LANE(tanh, tanh(x))
EACH_LANE(log, log(x))
EACH_LANE(softplus, x > 0 ? x + log1p(exp(-x)) : log1p(exp(x)))
EACH_LANE(sqrt, sqrt(x))
#undef EACH_LANE

#define TYPE double
#define SCALAR double
#define SOURCE double
#define OPERAND double
#define ELEMENT double
#define GROUP 1
#define FILL 1
#define UNIT_BYTES 8
#define BITS int64_t
#define BYTES VECTOR_BYTES
#define ROUND(x) (x)
#define MULTIPLY_ADD(sum, x, y) FUSED_DOUBLE(sum, x, y)
#define MATH(f) each_##f
#define SMALL 0x1p-30
#include "device/cpu/kernels/product.h"

#include "device/cpu/kernels/peak.h"

#include "device/cpu/kernels/map.h"

#include "device/cpu/kernels/exp_sum.h"

#include "device/cpu/kernels/undefine.h"

/* ---- bfloat16: operands are widened to float ------------------------------------------------------------------------- */

#define TYPE bfloat16
#define SCALAR float
#define SOURCE float
#define OPERAND uint32_t
#define ELEMENT uint16_t
#define GROUP 2
#define FILL 2
#define UNIT_BYTES 4
#define BYTES VECTOR_BYTES
#define ROUND(x) round_bfloat16(x)
#define MULTIPLY_ADD(sum, x, y)                                                                                        \
    FUSED_FLOAT(FUSED_FLOAT(sum, float_of_bits((x) << 16), (vector_bfloat16)((y) << 16)),                              \
                float_of_bits((x)&0xffff0000u), (vector_bfloat16)((y)&0xffff0000u))
#include "device/cpu/kernels/product.h"

#include "device/cpu/kernels/transpose_narrow.h"

#include "device/cpu/kernels/undefine.h"

/* ---- linear recurrences -------------------------------------------------------------------------------------------- */

#include "device/cpu/scan/kernel_scan_types.h"

/* ---- the table ----------------------------------------------------------------------------------------------------- */

#define MAPS(type)                                                                                                     \
    {                                                                                                                  \
        [RCVI_ADD] = map_add_##type, [RCVI_SUBTRACT] = map_subtract_##type, [RCVI_MULTIPLY] = map_multiply_##type,     \
        [RCVI_DIVIDE] = map_divide_##type, [RCVI_NEGATE] = map_negate_##type, [RCVI_SIGMOID] = map_sigmoid_##type,     \
        [RCVI_TANH] = map_tanh_##type, [RCVI_RELU] = map_relu_##type, [RCVI_EXP] = map_exp_##type,                     \
        [RCVI_LOG] = map_log_##type, [RCVI_SOFTPLUS] = map_softplus_##type, [RCVI_ABS] = map_abs_##type,               \
        [RCVI_SQRT] = map_sqrt_##type, [RCVI_MIN] = map_min_##type, [RCVI_MAX] = map_max_##type,                       \
        [RCVI_STEP] = map_step_##type, [RCVI_SIGN] = map_sign_##type                                                   \
    }
#define COLUMNS(size) .panel = STRIPS * STRIP * (VECTOR_BYTES / (size)), .grain = VECTOR_BYTES / (size)
#if defined(SET_HAS_NEON)
#define PACK_A(type) pack_a_##type
#else
#define PACK_A(type) NULL
#endif
#define PRODUCTS(type, size)                                                                                           \
    {                                                                                                                  \
        COLUMNS(size), .group = 1, .pack = pack_##type, .product = product_##type,                                     \
                       .product_transposed = product_transposed_##type, .product_unpacked = product_unpacked_##type,   \
                       .pack_a = PACK_A(type), .pack_a_transposed = pack_a_transposed_##type                           \
    }

#define SCANS(type)                                                                                                    \
    { scan_forward_##type, scan_backward_##type, compose_forward_##type, compose_backward_##type }

const rcvi_kernels SET = {
    .name = SET_NAME,
    .what = SET_WHAT,
    .products = {[RCVI_KERNEL_FLOAT] = PRODUCTS(float, 4),
                 [RCVI_KERNEL_DOUBLE] = PRODUCTS(double, 8),
                 [RCVI_KERNEL_BFLOAT16] = {COLUMNS(4), .group = 2, .pack = pack_bfloat16, .product = product_bfloat16}},
    .map_float = MAPS(float),
    .map_double = MAPS(double),
    .exp_sum_float = exp_sum_float,
    .exp_sum_double = exp_sum_double,
    .scans = {SCANS(float), SCANS(double), SCANS(bfloat16), SCANS(float16)},
    .stream_sum = stream_sum,
    .narrow = narrow,
    .narrow_transposed = narrow_transposed,
    .transpose_narrow = transpose_narrow,
    .widen = widen,
    .peak = {peak_float, peak_double, peak_float},
};
