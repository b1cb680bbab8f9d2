/* The inner loops of the CPU, in sets: portable C, and what overlays it where the CPU has more. A set is complete: what
 * it does not provide itself it takes from the set below.
 *
 * A packed matrix stands for b[depth, columns] of a product a b. It is cut into panels of `panel` columns, the last one
 * filled up with zeros; a panel is contiguous, and inside it the layout is the kernels' own business, except that a
 * range of its columns that begins at a multiple of `grain` can be used on its own. Kernels never read the caller's
 * matrices outside their extent; packed memory may be read up to its end.
 *
 * Bits. An element's sum starts at zero, or where `start` says, and runs over k in order, in every kernel of a set: it
 * depends neither on the number of rows or columns around it nor on how a product is cut over threads. (bfloat16: the
 * order inside a group of a few k is the hardware's, the same for every element.) */
#ifndef RCVI_KERNELS_H
#define RCVI_KERNELS_H

#include "cell/operation.h"

#include <stdint.h>

typedef enum { RCVI_KERNEL_FLOAT, RCVI_KERNEL_DOUBLE, RCVI_KERNEL_BFLOAT16, RCVI_KERNEL_TYPES } rcvi_kernel_type;

enum { RCVI_ARRANGED = -1 }; /* instead of a_row */

/* a[rows, depth], a_row elements from row to row, and one packed panel of the same depth. */
typedef struct {
    int64_t depth;
    const void *a;
    int64_t a_row;
    const void *panel;
} rcvi_factors;

/* Operand types: float (a, b, c), double (a, b, c), bfloat16 (a and packed b; c is float). Strides are in elements. */
typedef struct {
    int64_t panel; /* columns of a panel */
    int64_t grain; /* columns at whose multiples a panel may be cut; divides panel */
    int64_t group; /* k is packed in groups of this many, filled up with zeros; 1 but for bfloat16 */

    /* Packs b[depth, columns], element (k, j) at from[k * step + j * column], float for bfloat16. One of the two
     * strides is usually 1. Packs panels first .. end - 1 only, so that threads can share the work; `to` is the whole
     * packed matrix. */
    void (*pack)(int64_t columns, int64_t depth, const void *from, int64_t step, int64_t column, int64_t first,
                 int64_t end, void *to);

    /* c[rows, columns] = start + a[rows, depth] b. Rows of start are start_row elements apart (0: one row for all);
     * NULL: zeros; it may be c itself. a is row-major with `a_row` elements from row to row (bfloat16: depth filled up
     * with zeros to a multiple of group, rows 64-byte aligned). `panel` is one packed panel of the same depth; columns
     * first .. first + columns - 1 of it are used, first a multiple of grain, 1 <= columns <= panel - first; rows >= 1. `next` is
     * what will be read of the packed matrices after that, as many bytes as a panel has, to be brought near meanwhile;
     * it need not be readable; NULL: nothing. With a_row RCVI_ARRANGED, a is what `arrange` or `arrange_transposed`
     * made of it. */
    void (*product)(int64_t rows, int64_t columns, int64_t depth, const void *a, int64_t a_row, const void *panel,
                    int64_t first, const void *start, int64_t start_row, void *c, int64_t c_row, const void *next);
    /* The same with a transposed: element (i, k) at a[k * a_step + i]. NULL for bfloat16. */
    void (*product_transposed)(int64_t rows, int64_t columns, int64_t depth, const void *a, int64_t a_step,
                               const void *panel, int64_t first, const void *start, int64_t start_row, void *c,
                               int64_t c_row, const void *next);
    /* The same with b as it lies in memory, element (k, j) at b[k * b_step + j], and c += where `accumulate`; any number
     * of columns. NULL for bfloat16. */
    void (*product_plain)(int64_t rows, int64_t columns, int64_t depth, const void *a, int64_t a_row, const void *b,
                          int64_t b_step, bool accumulate, void *c, int64_t c_row);
    /* The same rows of a in the order in which products over them read them, `to` being of rows times depth filled up to
     * a multiple of 4: for a that meets many panels. NULL where nothing is gained by it. */
    void (*arrange)(int64_t rows, int64_t depth, const void *a, int64_t a_row, void *to);
    /* The same of a transposed: element (i, k) at a[k * a_step + i]. */
    void (*arrange_transposed)(int64_t rows, int64_t depth, const void *a, int64_t a_step, void *to);
    /* c = start + the sum of all terms' products, one after another, with the bits that as many `product`s give. NULL
     * where nothing is gained by it. */
    void (*chain)(int64_t rows, int64_t columns, const rcvi_factors *terms, int term_count, int64_t first,
                  const void *start, int64_t start_row, void *c, int64_t c_row);
} rcvi_product_kernels;

/* out[i] = operation(a[i], b[i]) for n contiguous elements; out may be a or b. */
typedef void (*rcvi_map_kernel)(int64_t n, const void *a, const void *b, void *out);

/* out[i] = exp(a[i] - less) for n contiguous elements, none of them larger than `less`; gives their sum, of a few
 * hundred at a time, since it is made in their own type. out may be a. */
typedef double rcvi_exp_sum_kernel(int64_t n, double less, const void *a, void *out);

typedef enum {
    RCVI_SCAN_FLOAT,
    RCVI_SCAN_DOUBLE,
    RCVI_SCAN_BFLOAT16,
    RCVI_SCAN_FLOAT16,
    RCVI_SCAN_TYPES
} rcvi_scan_type;

/* A stretch of a linear recurrence, for columns side by side: pointers are to the first step that is visited, strides are
 * elements from there to the next one visited and may be negative. Carries are [columns], double for double, else float. */
typedef struct {
    int64_t steps, columns; /* at least 1 each */
    int64_t step;           /* of a, h and states */
    const void *a, *b;      /* b: dh where it goes backwards */
    int64_t b_step;
    void *h;
    const void *states; /* backwards: h as it was left */
    const void *before; /* backwards: the state before the step visited last, [columns] carries; NULL: states tell */
    void *da, *db;
    int64_t da_step, db_step;
    int64_t tile;  /* steps to be taken for some columns before the next ones, where registers do not hold all */
    bool streamed; /* what is written goes past the caches */
} rcvi_scan_stretch;

/* Every column's values are the same whatever columns stand beside it, and however many steps are done in a call. */
typedef struct {
    /* carry = h[t] = a[t] carry + b[t] */
    void (*forward)(const rcvi_scan_stretch *stretch, void *carry);
    /* db[t] = g = dh[t] + carry, da[t] = g h[t - 1], carry = a[t] g */
    void (*backward)(const rcvi_scan_stretch *stretch, void *carry);
    /* What the stretch makes of any carry: product * carry + carried. All three [columns], and go on from what they are:
     * product *= a[t], flushed to zero every few steps and at the end where it is no normal number; carried as the carry of `forward`, or
     * of `backward`; largest = max(largest, |a[t]|), which passes NaN over. */
    void (*compose_forward)(const rcvi_scan_stretch *stretch, void *product, void *carried, void *largest);
    void (*compose_backward)(const rcvi_scan_stretch *stretch, void *product, void *carried, void *largest);
} rcvi_scan_kernels;

typedef struct {
    const char *name; /* portable, neon, neon-bf16; avx2, avx512, avx512-bf16, amx */
    const char *what; /* one line: what of the CPU it uses */
    rcvi_product_kernels products[RCVI_KERNEL_TYPES];
    rcvi_map_kernel map_float[RCVI_OPERATION_COUNT]; /* NULL for what is not elementwise */
    rcvi_map_kernel map_double[RCVI_OPERATION_COUNT];
    rcvi_exp_sum_kernel *exp_sum_float, *exp_sum_double;
    void (*narrow)(int64_t n, const float *from, uint16_t *to); /* to bfloat16, nearest even; NaN stays NaN */
    /* to[i * to_row + k] = from[k * from_row + i], narrowed; each row of `to` is filled up with zeros to a multiple of 32
     * k, and rows of it begin at multiples of 4 bytes. */
    void (*narrow_transposed)(int64_t rows, int64_t depth, const float *from, int64_t from_row, uint16_t *to,
                              int64_t to_row);
    /* The same of what is narrow already. */
    void (*turn_narrow)(int64_t rows, int64_t depth, const uint16_t *from, int64_t from_row, uint16_t *to,
                        int64_t to_row);
    void (*widen)(int64_t n, const uint16_t *from, float *to);
    rcvi_scan_kernels scans[RCVI_SCAN_TYPES];
    /* c = a + b, or a where b is NULL, past the caches where that can be; all begin at multiples of 64 bytes. */
    void (*stream_sum)(int64_t n, const float *a, const float *b, float *c);
    /* Independent multiply-adds from registers; the number of operations done (a multiply-add is two). For bfloat16
     * with the instructions `products` uses. */
    double (*peak[RCVI_KERNEL_TYPES])(int64_t repeats);
    /* To be called by each thread before and after it uses the set; NULL where nothing is to be done (AMX: tile
     * configuration; the operating system's permission is asked for when sets are listed). */
    void (*begin)(void);
    void (*end)(void);
} rcvi_kernels;

/* Sets that this CPU (and operating system) can run, lowest first; always at least the portable one. */
size_t rcvi_kernels_count(void);
const rcvi_kernels *rcvi_kernels_at(size_t index);       /* NULL past the end */
const rcvi_kernels *rcvi_kernels_find(const char *name); /* NULL: no such set on this machine */

/* Elements of a packed matrix, of the type's operand. */
int64_t rcvi_packed_elements(const rcvi_product_kernels *kernels, int64_t columns, int64_t depth);

#endif
