/* Linear recurrences by themselves on a GPU. */
#ifndef RCVI_CUDA_SCAN_H
#define RCVI_CUDA_SCAN_H

#include "device/cuda/cuda.h"

extern const rcvi_scans rcvi_cuda_scans;

/* How a scan is cut: scan.cuh. */
typedef enum {
    RCVI_SCAN_SERIAL,
    RCVI_SCAN_CHANNELS,
    RCVI_SCAN_CHAINED,
    RCVI_SCAN_THREE,
    RCVI_SCAN_FORMS,
    RCVI_SCAN_NEWTON /* of recurrences that are not affine: recurrence.h */
} rcvi_scan_form;

typedef struct {
    rcvi_scan_form form;
    int vector, lanes, steps, threads;
    int window, blocks; /* of chained */
    bool many;          /* of chained */
    int64_t chains, tiles;
} rcvi_scan_cut;

/* The cut of `channels` of all sequences of `row` channels each, over so many steps; `bytes` of an element, on a GPU of so many
 * processors. form: RCVI_SCAN_FORMS: what is fastest. */
rcvi_scan_cut rcvi_scan_find_cut(rcvi_scan_form form, bool is_double, int64_t steps, int64_t channels, int64_t row,
                                 int bytes, int processors);
enum { RCVI_SCAN_HEAD = 64 }; /* bytes, with which that of chained begins */
/* Bytes that it needs beside the data. */
size_t rcvi_scan_scratch(const rcvi_scan_cut *cut, size_t real_bytes);

/* The text of its kernels for the linear recurrence. */
typedef struct {
    rcvi_scan_cut cut;
    rcvi_cuda_type data;
    bool backward, reverse, lengths, resets;
    bool streamed; /* the arrays are larger than the GPU's cache */
} rcvi_scan_shape;
rcv_status rcvi_scan_source(rcv_context *context, const rcvi_scan_shape *shape, char **text);

#endif
