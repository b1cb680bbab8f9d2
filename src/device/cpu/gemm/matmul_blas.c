/* Shares of a product computed by OpenBLAS. */
#include "base/base.h"
#include "device/cpu/gemm/matmul.h"
#include "device/cpu/gemm/openblas.h"

#include <limits.h>

enum { GRAIN = 16, MAX_EXTENT = INT_MAX / 2 }; /* OpenBLAS has int extents */

/* Guarded by the global lock. A child of fork() has none of the threads that used OpenBLAS, and the number that they had set. */
static struct {
    int count;        /* of users now */
    int threads;      /* of OpenBLAS without users */
    unsigned process; /* rcvi_fork_generation() of the users */
} users;

void rcvi_blas_begin(void) {
    const rcv_openblas *blas = rcvi_openblas();
    if (!blas) return;
    unsigned process = rcvi_fork_generation();
    rcvi_global_lock();
    if (users.count == 0) users.threads = blas->get_threads();
    if (users.process != process) users.count = 0;
    users.process = process;
    if (users.count++ == 0 && blas->get_threads() != 1) blas->set_threads(1);
    rcvi_global_unlock();
}

void rcvi_blas_end(void) {
    const rcv_openblas *blas = rcvi_openblas();
    if (!blas) return;
    rcvi_global_lock();
    if (--users.count == 0 && users.threads != 1) blas->set_threads(users.threads);
    rcvi_global_unlock();
}

/* True if CBLAS accepts this leading dimension; for others it prints a message and does not compute. */
static bool is_leading_dimension(int64_t leading, int64_t columns) {
    return leading >= 1 && leading >= columns && leading <= MAX_EXTENT;
}

bool rcvi_matmul_blas_fits(const rcvi_matmul *matmul) {
    int64_t m = matmul->m, n = matmul->n, k = matmul->k;
    bool counts = m >= 0 && n >= 0 && k >= 0 && m <= MAX_EXTENT && n <= MAX_EXTENT && k <= MAX_EXTENT;
    return rcvi_openblas() && matmul->type != RCVI_KERNEL_BFLOAT16 && counts &&
           is_leading_dimension(matmul->lda, matmul->transpose_a ? m : k) &&
           is_leading_dimension(matmul->ldb, matmul->transpose_b ? k : n) && is_leading_dimension(matmul->ldc, n);
}

void rcvi_matmul_blas_share(const rcvi_matmul *matmul, const void *a, const void *b, void *c, int member, int members) {
    rcvi_matmul_part part = rcvi_matmul_cut(matmul, GRAIN, member, members);
    if (part.rows == 0 || part.columns == 0) return;
    int64_t a_first = part.row * (matmul->transpose_a ? 1 : matmul->lda);
    int64_t b_first = part.column * (matmul->transpose_b ? matmul->ldb : 1);
    int64_t c_first = part.row * matmul->ldc + part.column;
    rcv_blas_operation op_a = matmul->transpose_a ? RCV_BLAS_TRANSPOSED : RCV_BLAS_AS_STORED;
    rcv_blas_operation op_b = matmul->transpose_b ? RCV_BLAS_TRANSPOSED : RCV_BLAS_AS_STORED;
    int m = (int)part.rows, n = (int)part.columns, k = (int)matmul->k;
    int lda = (int)matmul->lda, ldb = (int)matmul->ldb, ldc = (int)matmul->ldc;
    if (matmul->type == RCVI_KERNEL_DOUBLE) {
        rcvi_openblas()->dgemm(RCV_BLAS_ROW_MAJOR, op_a, op_b, m, n, k, 1, (const double *)a + a_first, lda,
                               (const double *)b + b_first, ldb, matmul->accumulate, (double *)c + c_first, ldc);
    } else {
        rcvi_openblas()->sgemm(RCV_BLAS_ROW_MAJOR, op_a, op_b, m, n, k, 1, (const float *)a + a_first, lda,
                               (const float *)b + b_first, ldb, matmul->accumulate, (float *)c + c_first, ldc);
    }
}
