/* Shares of a product computed by OpenBLAS. */
#include "base/base.h"
#include "device/cpu/gemm/matmul.h"

#include <cblas.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#ifndef OPENBLAS_VERSION /* another library's cblas.h, which does not declare these */
void openblas_set_num_threads(int threads);
int openblas_get_num_threads(void);
char *openblas_get_config(void);
#endif

enum { GRAIN = 16, MAX_EXTENT = INT_MAX / 2 }; /* OpenBLAS has int extents */

/* Written once: OpenBLAS writes its text anew at every call, into memory that all threads share. */
static char blas_name[256];

static void copy_blas_name(void) { snprintf(blas_name, sizeof blas_name, "%s", openblas_get_config()); }

const char *rcvi_blas_name(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, copy_blas_name);
    return blas_name;
}

/* Guarded by the global lock. A child of fork() has none of the threads that used OpenBLAS, and the number that they had set. */
static struct {
    int count;        /* of users now */
    int threads;      /* of OpenBLAS without users */
    unsigned process; /* rcvi_fork_generation() of the users */
} users;

void rcvi_blas_begin(void) {
    unsigned process = rcvi_fork_generation();
    rcvi_global_lock();
    if (users.count == 0) users.threads = openblas_get_num_threads();
    if (users.process != process) users.count = 0;
    users.process = process;
    if (users.count++ == 0 && openblas_get_num_threads() != 1) openblas_set_num_threads(1);
    rcvi_global_unlock();
}

void rcvi_blas_end(void) {
    rcvi_global_lock();
    if (--users.count == 0 && users.threads != 1) openblas_set_num_threads(users.threads);
    rcvi_global_unlock();
}

/* True if CBLAS accepts this leading dimension; for others it prints a message and does not compute. */
static bool is_leading_dimension(int64_t leading, int64_t columns) {
    return leading >= 1 && leading >= columns && leading <= MAX_EXTENT;
}

bool rcvi_matmul_blas_fits(const rcvi_matmul *matmul) {
    int64_t m = matmul->m, n = matmul->n, k = matmul->k;
    bool counts = m >= 0 && n >= 0 && k >= 0 && m <= MAX_EXTENT && n <= MAX_EXTENT && k <= MAX_EXTENT;
    return matmul->type != RCVI_KERNEL_BFLOAT16 && counts &&
           is_leading_dimension(matmul->lda, matmul->transpose_a ? m : k) &&
           is_leading_dimension(matmul->ldb, matmul->transpose_b ? k : n) && is_leading_dimension(matmul->ldc, n);
}

void rcvi_matmul_blas_share(const rcvi_matmul *matmul, const void *a, const void *b, void *c, int member, int members) {
    rcvi_matmul_part part = rcvi_matmul_cut(matmul, GRAIN, member, members);
    if (part.rows == 0 || part.columns == 0) return;
    int64_t a_first = part.row * (matmul->transpose_a ? 1 : matmul->lda);
    int64_t b_first = part.column * (matmul->transpose_b ? matmul->ldb : 1);
    int64_t c_first = part.row * matmul->ldc + part.column;
    enum CBLAS_TRANSPOSE op_a = matmul->transpose_a ? CblasTrans : CblasNoTrans;
    enum CBLAS_TRANSPOSE op_b = matmul->transpose_b ? CblasTrans : CblasNoTrans;
    int m = (int)part.rows, n = (int)part.columns, k = (int)matmul->k;
    int lda = (int)matmul->lda, ldb = (int)matmul->ldb, ldc = (int)matmul->ldc;
    if (matmul->type == RCVI_KERNEL_DOUBLE) {
        cblas_dgemm(CblasRowMajor, op_a, op_b, m, n, k, 1, (const double *)a + a_first, lda,
                    (const double *)b + b_first, ldb, matmul->accumulate, (double *)c + c_first, ldc);
    } else {
        cblas_sgemm(CblasRowMajor, op_a, op_b, m, n, k, 1, (const float *)a + a_first, lda, (const float *)b + b_first,
                    ldb, matmul->accumulate, (float *)c + c_first, ldc);
    }
}
