/* Large products by the packed kernels: c[m, n] = op(a) op(b), or += where `accumulate`, row-major.
 *
 * A product is made of shares, one a member of a team; a share is a rectangle of c, and writes nothing else. Shares need
 * no barrier among themselves: all inputs must be in place before the first one starts, and c is whole when the last
 * one has ended. Each member brings scratch of its own, whose size is known before; nothing is allocated.
 *
 * Bits. An element's sum is cut into blocks of k that follow from the type and k alone, and runs in order within and
 * over them: it depends neither on m, n and the leading dimensions, nor on the number of members, nor on whether b was
 * packed before. Transposing an operand (with the same elements) does not change it either. For bfloat16 this holds as
 * far as it holds for the kernels.
 *
 * Where the set of kernels has begin and end, a member calls them around its shares. */
#ifndef RCVI_MATMUL_H
#define RCVI_MATMUL_H

#include "device/cpu/kernels/kernels.h"

typedef struct {
    rcvi_kernel_type type;   /* bfloat16: a, b and c are float, a and b are rounded to bfloat16 */
    bool narrow_a, narrow_b; /* for bfloat16: they lie in memory so already; b then cannot be packed before */
    bool transpose_a;        /* a is [k, m] instead of [m, k] */
    bool transpose_b;        /* b is [n, k] instead of [k, n] */
    bool accumulate;
    int64_t m, n, k;       /* each at least 0; with k = 0 the product is zero */
    int64_t lda, ldb, ldc; /* elements from row to row, as the matrices lie in memory */
} rcvi_matmul;

enum { RCVI_MATMUL_ALIGN = 128 }; /* bytes: of scratch and of packed memory */

/* Bytes of scratch for each of `members` members; enough for packed shares too, and for products of fewer rows or less depth. */
int64_t rcvi_matmul_scratch(const rcvi_kernels *kernels, const rcvi_matmul *matmul, int members);
void rcvi_matmul_share(const rcvi_kernels *kernels, const rcvi_matmul *matmul, const void *a, const void *b, void *c,
                       int member, int members, void *scratch);

/* With b packed before, by the same kernels for the same type, n and k. Packing is shared too, and must be over before
 * the first packed share starts. */
int64_t rcvi_matmul_packed_bytes(const rcvi_kernels *kernels, const rcvi_matmul *matmul);
void rcvi_matmul_pack_share(const rcvi_kernels *kernels, const rcvi_matmul *matmul, const void *b, int member,
                            int members, void *packed);
void rcvi_matmul_packed_share(const rcvi_kernels *kernels, const rcvi_matmul *matmul, const void *a, const void *packed,
                              void *c, int member, int members, void *scratch);

/* The same share by OpenBLAS, where the product fits it: not for bfloat16, extents that its int holds, and rows that do not overlap, all
 * that CBLAS checks, which has no status to say so. Its bits are its own, and may differ with the cut. OpenBLAS must be set to one thread meanwhile, which rcvi_blas_begin does for the
 * process; it returns what rcvi_blas_end takes. One thread calls both, before the shares start and after they end. */
bool rcvi_matmul_blas_fits(const rcvi_matmul *matmul);
void rcvi_matmul_blas_share(const rcvi_matmul *matmul, const void *a, const void *b, void *c, int member, int members);
int rcvi_blas_begin(void);
void rcvi_blas_end(int before);

/* A member's rectangle of c; columns begin at multiples of `grain`. */
typedef struct {
    int64_t row, rows, column, columns;
} rcvi_matmul_part;
rcvi_matmul_part rcvi_matmul_cut(const rcvi_matmul *matmul, int64_t grain, int member, int members);

#endif
