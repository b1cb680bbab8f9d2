/* The CPU's inner loops (microkernels), in sets: portable C, and sets that override it where the CPU has better instructions. A set
 * is complete: what it does not define it inherits from the set below.
 *
 * A packed matrix stands for b[depth, columns] of a product a b. It is divided into panels of `panel` columns, the last one padded
 * with zeros. A panel is contiguous. Its inner layout belongs to the set, except that a range of columns that begins at a multiple
 * of `grain` can be used by itself. Kernels never read the caller's matrices outside their extent; packed memory may be read up
 * to its end.
 *
 * Bits. The sum of an element starts at zero, or at the value in `start`, and runs over k in order, in every kernel of a set: it
 * depends neither on the number of rows or columns of the call nor on how threads divide a product. (bfloat16: the hardware
 * determines the order within a group of a few k; it is the same for every element.) */
#ifndef RCVI_KERNELS_H
#define RCVI_KERNELS_H

#include "cell/operation.h"

#include <stdint.h>

typedef enum { RCVI_KERNEL_FLOAT, RCVI_KERNEL_DOUBLE, RCVI_KERNEL_BFLOAT16, RCVI_KERNEL_TYPES } rcvi_kernel_type;

enum { RCVI_PACKED_A = -1 }; /* as a_row: a is packed by pack_a or pack_a_transposed */

/* One term of a sum of products: a[rows, depth] with leading dimension a_row, and one packed panel of the same depth. */
typedef struct {
    int64_t depth;
    const void *a;
    int64_t a_row;
    const void *panel;
} rcvi_product_term;

/* Products of one type. Operands: float (a, b, c), double (a, b, c), bfloat16 (a and packed b; c is float). All strides and leading
 * dimensions are in elements. */
typedef struct {
    int64_t panel; /* columns of a panel */
    int64_t grain; /* a panel may be divided at multiples of so many columns; divides panel */
    int64_t group; /* k is packed in groups of this size, padded with zeros; 1 except for bfloat16 */

    /* Packs b[depth, columns], element (k, j) at from[k * step + j * column], float for bfloat16. One of the two
     * strides is usually 1. Packs only panels first .. end - 1, so that threads can share the work; `to` is the whole
     * packed matrix. */
    void (*pack)(int64_t columns, int64_t depth, const void *from, int64_t step, int64_t column, int64_t first,
                 int64_t end, void *to);

    /* The microkernel: c[rows, columns] = start + a[rows, depth] b.
     * start: rows are start_row elements apart (0: one row for all rows of c); NULL: zeros; it may be c itself.
     * a: row-major with leading dimension a_row (bfloat16: depth padded with zeros to a multiple of group, rows aligned to 64
     * bytes), or packed by pack_a or pack_a_transposed where a_row is RCVI_PACKED_A.
     * panel: one packed panel of the same depth. Columns first .. first + columns - 1 of it are used; first is a multiple of
     * grain, 1 <= columns <= panel - first; rows >= 1.
     * next: the address that is read from packed matrices after this call, a panel's bytes, to be prefetched; it need not be
     * readable; NULL: no prefetch. */
    void (*product)(int64_t rows, int64_t columns, int64_t depth, const void *a, int64_t a_row, const void *panel,
                    int64_t first, const void *start, int64_t start_row, void *c, int64_t c_row, const void *next);
    /* As product, with a transposed: element (i, k) is a[k * a_step + i]. NULL for bfloat16. */
    void (*product_transposed)(int64_t rows, int64_t columns, int64_t depth, const void *a, int64_t a_step,
                               const void *panel, int64_t first, const void *start, int64_t start_row, void *c,
                               int64_t c_row, const void *next);
    /* As product, with unpacked b: element (k, j) is b[k * b_step + j]; c += a b where `accumulate`; any number of
     * columns. NULL for bfloat16. */
    void (*product_unpacked)(int64_t rows, int64_t columns, int64_t depth, const void *a, int64_t a_row, const void *b,
                             int64_t b_step, bool accumulate, void *c, int64_t c_row);
    /* Packs rows of a in the order in which `product` reads them; `to` has rows * depth elements, depth rounded up to a
     * multiple of 4. It pays where a is multiplied with many panels. NULL where it never pays. */
    void (*pack_a)(int64_t rows, int64_t depth, const void *a, int64_t a_row, void *to);
    /* As pack_a, with a transposed: element (i, k) is a[k * a_step + i]. */
    void (*pack_a_transposed)(int64_t rows, int64_t depth, const void *a, int64_t a_step, void *to);
    /* c = start + the sum of the products of all terms, with the bits that one call of `product` for each term gives. NULL where
     * it is not faster than that. */
    void (*product_terms)(int64_t rows, int64_t columns, const rcvi_product_term *terms, int term_count, int64_t first,
                          const void *start, int64_t start_row, void *c, int64_t c_row);
} rcvi_product_kernels;

/* out[i] = operation(a[i], b[i]) for n contiguous elements; out may be a or b. */
typedef void (*rcvi_map_kernel)(int64_t n, const void *a, const void *b, void *out);

/* out[i] = exp(a[i] - less) for n contiguous elements, none of them larger than `less`; returns the sum of out. The sum is
 * accumulated in the type of the elements, so n should be a few hundred. out may be a. */
typedef double rcvi_exp_sum_kernel(int64_t n, double less, const void *a, void *out);

typedef enum {
    RCVI_SCAN_FLOAT,
    RCVI_SCAN_DOUBLE,
    RCVI_SCAN_BFLOAT16,
    RCVI_SCAN_FLOAT16,
    RCVI_SCAN_TYPES
} rcvi_scan_type;

/* A range of time steps of a linear recurrence without a boundary inside, for adjacent columns. Pointers are to the step that is
 * visited first; strides, in elements, lead to the step visited next and may be negative. Carries are [columns], double for
 * double, else float. */
typedef struct {
    int64_t steps, columns; /* at least 1 each */
    int64_t step;           /* of a, h and states */
    const void *a, *b;      /* b: dh in a backward pass */
    int64_t b_step;
    void *h;
    const void *states; /* backward pass: h of the forward pass */
    const void
        *before; /* backward pass: the state before the step visited last, [columns] carries; NULL: it is in states */
    void *da, *db;
    int64_t da_step, db_step;
    int64_t tile;  /* steps of a tile, where registers do not hold the carries of all columns */
    bool streamed; /* results are written with non-temporal stores */
} rcvi_scan_segment;

/* The values of a column depend neither on the other columns nor on how many steps a call has. */
typedef struct {
    /* carry = h[t] = a[t] carry + b[t] */
    void (*forward)(const rcvi_scan_segment *stretch, void *carry);
    /* db[t] = g = dh[t] + carry, da[t] = g h[t - 1], carry = a[t] g */
    void (*backward)(const rcvi_scan_segment *stretch, void *carry);
    /* Composes the steps into an affine function of the incoming carry: product * carry + carried. All three are [columns] and are
     * updated: product *= a[t], flushed to zero every few steps and at the end where it is not a normal number; carried as the
     * carry of `forward` or `backward`; largest = max(largest, |a[t]|), which ignores NaN. */
    void (*compose_forward)(const rcvi_scan_segment *stretch, void *product, void *carried, void *largest);
    void (*compose_backward)(const rcvi_scan_segment *stretch, void *product, void *carried, void *largest);
} rcvi_scan_kernels;

typedef struct {
    const char *name; /* portable, neon, neon-bf16; avx2, avx512, avx512-bf16, amx */
    const char *what; /* one line: the instructions that it uses */
    rcvi_product_kernels products[RCVI_KERNEL_TYPES];
    rcvi_map_kernel map_float[RCVI_OPERATION_COUNT]; /* NULL for operations that are not elementwise */
    rcvi_map_kernel map_double[RCVI_OPERATION_COUNT];
    rcvi_exp_sum_kernel *exp_sum_float, *exp_sum_double;
    void (*narrow)(int64_t n, const float *from, uint16_t *to); /* float to bfloat16, to nearest even; NaN stays NaN */
    /* to[i * to_row + k] = from[k * from_row + i], rounded to bfloat16: a transposition. Each row of `to` is padded with zeros to
     * a multiple of 32 k, and begins at a multiple of 4 bytes. */
    void (*narrow_transposed)(int64_t rows, int64_t depth, const float *from, int64_t from_row, uint16_t *to,
                              int64_t to_row);
    /* As narrow_transposed, from bfloat16. */
    void (*transpose_narrow)(int64_t rows, int64_t depth, const uint16_t *from, int64_t from_row, uint16_t *to,
                             int64_t to_row);
    void (*widen)(int64_t n, const uint16_t *from, float *to);
    rcvi_scan_kernels scans[RCVI_SCAN_TYPES];
    /* c = a + b, or a where b is NULL, with non-temporal stores where the CPU has them; all begin at multiples of 64 bytes. */
    void (*stream_sum)(int64_t n, const float *a, const float *b, float *c);
    /* Runs independent multiply-adds on registers; returns the number of operations (a multiply-add is two). bfloat16 uses the
     * instructions of `products`. */
    double (*peak[RCVI_KERNEL_TYPES])(int64_t repeats);
    /* Each thread calls these before and after it uses the set; NULL where nothing is to be done. (AMX: tile configuration; the
     * operating system's permission is requested when sets are listed.) */
    void (*begin)(void);
    void (*end)(void);
} rcvi_kernels;

/* Sets that this CPU and operating system can run, the portable set first, the best set last. */
size_t rcvi_kernels_count(void);
const rcvi_kernels *rcvi_kernels_at(size_t index);       /* NULL past the end */
const rcvi_kernels *rcvi_kernels_find(const char *name); /* NULL: this machine has no such set */

/* Number of elements of a packed matrix b[depth, columns], with padding. */
int64_t rcvi_packed_elements(const rcvi_product_kernels *kernels, int64_t columns, int64_t depth);

#endif
