/* Linear recurrences by themselves on a GPU. */
#ifndef RCVI_CUDA_SCAN_H
#define RCVI_CUDA_SCAN_H

#include "device/cuda/cuda.h"

extern const rcvi_scan_table rcvi_cuda_scan;

/* How a scan is cut: scan.cuh. */
typedef enum {
    RCVI_SCAN_SERIAL,
    RCVI_SCAN_CHANNELS,
    RCVI_SCAN_CHAINED,
    RCVI_SCAN_THREE,
    RCVI_SCAN_WAVES, /* scan_waves.cuh */
    RCVI_SCAN_FORMS,
    RCVI_SCAN_NEWTON /* of recurrences that are not affine: recurrence.h */
} rcvi_scan_form;

typedef struct {
    rcvi_scan_form form;
    int vector, lanes, steps, threads;
    int window, blocks; /* of chained */
    bool many;          /* of chained */
    int members, group; /* of waves: blocks of a chain, and of a group of these */
    int64_t chains, tiles;
} rcvi_scan_cut;

/* The cut of `channels` of all sequences of `row` channels each, over so many steps; `bytes` of an element, on a GPU of so many
 * processors. form: RCVI_SCAN_FORMS: what is fastest, but for waves, which not every GPU can take; RCVI_SCAN_WAVES where the shape does
 * not allow it: the same. */
rcvi_scan_cut rcvi_scan_find_cut(rcvi_scan_form form, bool is_double, int64_t steps, int64_t channels, int64_t row,
                                 int bytes, int processors);
enum { RCVI_SCAN_HEAD = 64 }; /* bytes, with which that of chained begins */
/* Bytes that it needs beside the data. */
size_t rcvi_scan_scratch(const rcvi_scan_cut *cut, size_t real_bytes);

/* Whether a GPU can take waves, and whether a cut that is one is faster than others. */
bool rcvi_scan_has_waves(int major, size_t shared_bytes);
bool rcvi_scan_waves_pay(const rcvi_scan_cut *cut, int processors);

/* Of waves: as the macros of scan_waves.cuh. */
enum { RCVI_WAVES_AHEAD = 2, RCVI_WAVES_SLOTS = 8, RCVI_WAVES_LOOK = 12, RCVI_WAVES_HELPERS = 96 };

/* Pieces of shared memory that a pass in waves has: of what it loads early, and late. */
typedef struct {
    int warps, steps; /* that a piece is for */
    int early, late;
    int flight; /* early ones that are on their way at once where all processors are busy: enough for memory to be busy too, few enough
                  * for words to get by */
    int crowded;  /* the same where very many members read each other's words */
    size_t bytes; /* of all */
} rcvi_scan_pieces;
rcvi_scan_pieces rcvi_scan_find_pieces(const rcvi_scan_cut *cut, bool backward);

/* The text of its kernels for the linear recurrence. */
typedef struct {
    rcvi_scan_cut cut;
    rcvi_cuda_type data;
    bool backward, reverse, lengths, resets;
    bool streamed; /* the arrays are larger than the GPU's cache */
} rcvi_scan_shape;
rcv_status rcvi_scan_source(rcv_context *context, const rcvi_scan_shape *shape, char **text);

/* The kernels of scan.cuh, after `struct Cell`: macros FORM_... say which of them the text keeps. */
void rcvi_scan_add_kernels(rcvi_text *text);

/* One pass in waves over arrays of floats, [steps, channels]: those that are loaded early, and one late; NULL where there is none.
 * `arguments`: as the text's Cell::Args. */
typedef struct {
    const rcvi_scan_cut *cut;
    int64_t steps, channels;
    int processors;
    bool backward;
    const void *early[2], *late;
    void *arguments;
    char *scratch;
} rcvi_scan_wave_pass;
rcv_status rcvi_scan_launch_waves(cudaKernel_t kernel, rcvi_scan_wave_pass *pass, cudaStream_t stream);

#endif
