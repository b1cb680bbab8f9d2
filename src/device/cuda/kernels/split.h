/* float32 as a sum of bfloat16 parts: each is the rounding of what the parts before it leave. Plain C and C++. */
#ifndef RCVI_CUDA_SPLIT_H
#define RCVI_CUDA_SPLIT_H

#include <stdbool.h>
#include <stdint.h>

enum { RCVI_MAX_SPLIT = 3, RCVI_SPLIT_PIECE = 8 /* numbers of 16 bytes */ };

/* from: [rows, columns]; to: `parts` matrices of [high, wide], zeros from rows and from columns on. `to` begins at a multiple of
 * 16 bytes; wide, to_row and to_part are multiples of a piece. */
typedef struct {
    const float *from;
    uint16_t *to;
    int64_t rows, columns, row;          /* elements from row to row */
    int64_t high, wide, to_row, to_part; /* elements from row to row and from part to part */
    int parts;
    bool reversed; /* the last part first */
    bool by_four;  /* set by the call: four elements are read in an access */
} rcvi_split;

#endif
