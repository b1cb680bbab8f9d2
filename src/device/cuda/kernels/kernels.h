/* Kernels that do not depend on a cell, as C functions that enqueue them on a stream. Views are matrices of
 * [rows, columns] elements with `row` elements from row to row and contiguous columns (column 0: one element repeated).
 * Every sum has a fixed order, so results are the same every time. Counts and offsets are 64 bits. */
#ifndef RCVI_CUDA_KERNELS_H
#define RCVI_CUDA_KERNELS_H

#include "base/random.h"
#include "device/cuda/kernels/sort_lengths.h"
#include "device/cuda/kernels/split.h"
#include "device/cuda/kernels/types.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sequence b of every `batch` rows is number of[b] in memory; `of` NULL: b. Its rows of all `steps` steps lie one after the other; 0: each
 * step has `batch` rows. */
typedef struct {
    const int64_t *of;
    int64_t batch;
    int64_t steps;
} rcvi_order;

typedef struct {
    void *at;            /* NULL: absent: reads as zeros, is not written */
    int64_t row, column; /* elements; column is 0 or 1 */
    rcvi_cuda_type type;
    void *rounded;               /* the rounded copy, which is written too, or NULL */
    rcvi_cuda_type rounded_type; /* of it */
    rcvi_order order;            /* of its rows */
    /* Of an output of copy, select or dropout: elements of a row that are written, with zeros after its columns; 0: only its columns. */
    int64_t wide;
} rcvi_matrix;

/* out = a, converted; rows may coincide with a's where they are the same view. */
cudaError_t rcvi_cuda_copy(cudaStream_t stream, int64_t rows, int64_t columns, rcvi_matrix out, rcvi_matrix a);
/* out = out + a, in double where one of them is, else in float. */
cudaError_t rcvi_cuda_add(cudaStream_t stream, int64_t rows, int64_t columns, rcvi_matrix out, rcvi_matrix a);
/* out (+)= a, [rows, columns] floats with so many from row to row; they do not overlap. */
cudaError_t rcvi_cuda_store_or_add(cudaStream_t stream, int64_t rows, int64_t columns, bool accumulate, float *out,
                                   int64_t row_out, const float *a, int64_t row_a);
/* out = a, [rows, columns] floats, with zeros after its rows up to the length of out's rows. */
cudaError_t rcvi_cuda_pad_rows(cudaStream_t stream, int64_t rows, int64_t columns, float *out, int64_t row_out,
                               const float *a, int64_t row_a);
cudaError_t rcvi_cuda_fill(cudaStream_t stream, int64_t rows, int64_t columns, rcvi_matrix out, double number);
/* out[r] = mask[r * mask_row] ? a[r] : b[r]. */
cudaError_t rcvi_cuda_select(cudaStream_t stream, int64_t rows, int64_t columns, const uint8_t *mask, int64_t mask_row,
                             rcvi_matrix out, rcvi_matrix a, rcvi_matrix b);
/* out = a / (1 - p), or 1 where a is absent, or 0 with probability p, decided by
 * rcvi_hash_uniform(*seed + salt * 0x9e3779b97f4a7c15, element): the same numbers as the CPU, whose elements are in the order of
 * the caller's rows, those of row r % period where period is not 0; of a shard, which has `batch` sequences, in that of the whole. `seed` is
 * in device memory. */
cudaError_t rcvi_cuda_dropout(cudaStream_t stream, int64_t rows, int64_t columns, double probability, uint64_t salt,
                              int64_t period, int64_t batch, const rcvi_shard *shard, const uint64_t *seed,
                              rcvi_order order, rcvi_matrix out, rcvi_matrix a);
/* out[t * batch + b] = t < lengths[b]; lengths is never NULL. */
cudaError_t rcvi_cuda_mark_live(cudaStream_t stream, int64_t steps, int64_t batch, const int64_t *lengths,
                                uint8_t *out);
/* [steps + 1, batch]: resets[t, order.of[b]] != 0 and t < lengths[b] (lengths may be NULL); the last row is 0. */
cudaError_t rcvi_cuda_mark_boundaries(cudaStream_t stream, int64_t steps, int64_t batch, const uint8_t *resets,
                                      rcvi_order order, const int64_t *lengths, uint8_t *out);
/* out[r] (+)= sum over columns of a[r, .]; of the first *counted rows where that, in device memory, is not NULL. */
cudaError_t rcvi_cuda_reduce_columns(cudaStream_t stream, int64_t rows, const int64_t *counted, int64_t columns,
                                     bool accumulate, rcvi_matrix out, rcvi_matrix a);
/* out[., c] (+)= sum over rows of a[., c], for several matrices of one type by two launches, over fixed slices of rows;
 * `scratch` holds rcvi_cuda_reduce_rows_scratch elements of the sum's type (F64 for F64, else F32) for each of them. */
enum { RCVI_MAX_SUMS = 24 };
typedef struct {
    rcvi_matrix out, a;
} rcvi_sum;
int64_t rcvi_cuda_reduce_rows_scratch(int64_t rows, int64_t columns);
cudaError_t rcvi_cuda_reduce_rows(cudaStream_t stream, int64_t rows, int64_t columns, bool accumulate,
                                  const rcvi_sum *sums, int count, void *scratch);
/* c = a + b, or c = a where b is NULL, over so many bytes of floats, a multiple of 16, past the caches. */
cudaError_t rcvi_cuda_stream_copy(cudaStream_t stream, size_t bytes, const void *a, const void *b, void *c);
/* Writes values of the host as kernel arguments: unlike a copy it needs no pinned memory and does not wait. */
cudaError_t rcvi_cuda_send_values(cudaStream_t stream, const int64_t *values, int64_t count, int64_t *to);
/* Clamps lengths in device memory and sorts sequences by them, where there is an order; the host waits for nothing. */
cudaError_t rcvi_cuda_sort_lengths(cudaStream_t stream, const rcvi_sorting *sorting);
/* out[rows, wide] = a[rows, columns], or a[columns, rows]^T, zeros from columns on: several in one launch. All that have an order have the same one, without steps. */
enum { RCVI_MAX_MOVES = 48 };
typedef struct {
    int64_t rows, columns, wide;
    bool transposed;
    rcvi_matrix out, a;
} rcvi_move;
cudaError_t rcvi_cuda_move(cudaStream_t stream, const rcvi_move *moves, int count);
/* Operands of persistent kernels: `slots` steps of [rows, columns], each as tiles of `tile` rows, `tiles` of them for every
 * `slice` rows, of `chunks` of 128 bytes a row, whose 16-byte pieces lie at piece ^ (row & 7); zeros from columns on. In parts:
 * the first chunk's numbers rounded, then what that leaves of them rounded, and so on; then the next ones. */
enum { RCVI_MAX_TILINGS = 24 };
typedef struct {
    const void *from;
    rcvi_cuda_type from_type, type;
    bool tensor;                          /* rounded to tfloat32 */
    int parts;                            /* of a number, each of `type` */
    int by;                               /* elements of an access, set by the call */
    int64_t row, slot, to_slot;           /* elements from row to row and from step to step; bytes from step to step */
    int64_t slots, rows, columns, chunks; /* chunks of a fold, of all parts */
    int64_t tile, tiles, slice, fold;
    void *to;
} rcvi_tiling;
/* Clears so many words too. */
cudaError_t rcvi_cuda_tile(cudaStream_t stream, const rcvi_tiling *tilings, int count, unsigned *clear, int64_t words);
/* Splits a matrix of float32 into bfloat16 parts. */
cudaError_t rcvi_cuda_split(cudaStream_t stream, const rcvi_split *split);

#ifdef __cplusplus
}
#endif

#endif
