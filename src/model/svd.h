/* Singular value decomposition in double. */
#ifndef RCVI_SVD_H
#define RCVI_SVD_H

#include "recurve.h"

/* A = U S V^T by one thread, with the same bits every time. With least = min(rows, cols):
 * matrix: A [rows, cols]; s: [least], falling; u: [rows, least]; v: V^T [least, cols]. The columns of U and the rows of V^T are orthonormal,
 * also those of singular values that are zero. `name` is the matrix's in messages. RCV_INVALID where a value is not finite. */
rcv_status rcvi_svd(rcv_context *context, const char *name, int64_t rows, int64_t cols, const double *matrix, double *s,
                    double *u, double *v);

#endif
