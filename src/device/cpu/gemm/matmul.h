/* Large products by packed kernels: c[m, n] = op(a) op(b), or += where `accumulate`, row-major.
 *
 * A product is divided into shares, one for each member of a team; a share is a rectangle of c, and writes nothing else. Shares need
 * no barrier among themselves: all inputs must be complete before the first share starts, and c is complete when the last one has
 * ended. Each member passes its own scratch, whose size is known in advance; nothing is allocated.
 *
 * Bits. An element's sum is divided into blocks of k that depend only on the type and k, and runs in order within and over them: it
 * depends neither on m, n and the leading dimensions, nor on the number of members, nor on whether b was packed before. Transposing
 * an operand (with the same elements) does not change it either. For bfloat16 this holds as far as it holds for the kernels.
 *
 * Where the set of kernels has begin and end, a member calls them before and after its shares. */
#ifndef RCVI_MATMUL_H
#define RCVI_MATMUL_H

#include "device/cpu/kernels/kernels.h"

typedef struct {
    rcvi_kernel_type type;   /* bfloat16: a, b and c are float, a and b are rounded to bfloat16 */
    bool narrow_a, narrow_b; /* for bfloat16: a or b is stored in bfloat16; such a b cannot be packed before */
    bool transpose_a;        /* a is [k, m] instead of [m, k] */
    bool transpose_b;        /* b is [n, k] instead of [k, n] */
    bool accumulate;
    int64_t m, n, k;       /* each at least 0; with k = 0 the product is zero */
    int64_t lda, ldb, ldc; /* leading dimensions, in elements, of the matrices as stored */
} rcvi_matmul;

enum { RCVI_MATMUL_ALIGN = 128 }; /* bytes: alignment of scratch and of packed memory */

/* Bytes of scratch of each member; also enough for shares with packed b, and for products of fewer rows or less k. */
int64_t rcvi_matmul_scratch(const rcvi_kernels *kernels, const rcvi_matmul *matmul, int members);
void rcvi_matmul_share(const rcvi_kernels *kernels, const rcvi_matmul *matmul, const void *a, const void *b, void *c,
                       int member, int members, void *scratch);

/* Shares with b packed before, by the same kernels for the same type, n and k. Packing is divided into shares too; all of them must
 * end before the first packed share starts. */
int64_t rcvi_matmul_packed_bytes(const rcvi_kernels *kernels, const rcvi_matmul *matmul);
void rcvi_matmul_pack_share(const rcvi_kernels *kernels, const rcvi_matmul *matmul, const void *b, int member,
                            int members, void *packed);
void rcvi_matmul_packed_share(const rcvi_kernels *kernels, const rcvi_matmul *matmul, const void *a, const void *packed,
                              void *c, int member, int members, void *scratch);

/* A share by OpenBLAS, for products that rcvi_matmul_blas_fits: where OpenBLAS was found, not bfloat16, extents that fit an int, and leading
 * dimensions that CBLAS accepts (it has no status to report others). The bits are OpenBLAS's, and may depend on the number of members. OpenBLAS
 * must run with one thread meanwhile: rcvi_blas_begin sets that for the process, and the rcvi_blas_end of the last of several users restores the
 * number. One thread calls both, before the shares start and after they end. Without OpenBLAS both do nothing. */
bool rcvi_matmul_blas_fits(const rcvi_matmul *matmul);
void rcvi_matmul_blas_share(const rcvi_matmul *matmul, const void *a, const void *b, void *c, int member, int members);
void rcvi_blas_begin(void);
void rcvi_blas_end(void);

/* A member's rectangle of c; columns begin at a multiple of `grain`. */
typedef struct {
    int64_t row, rows, column, columns;
} rcvi_matmul_part;
rcvi_matmul_part rcvi_matmul_cut(const rcvi_matmul *matmul, int64_t grain, int member, int members);

#endif
