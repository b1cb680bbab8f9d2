/* Linear recurrences h[t] = a[t] h[t-1] + b[t] on a GPU, channel by channel: docs/SCAN.md. */
#ifndef RCVI_CUDA_SCAN_H
#define RCVI_CUDA_SCAN_H

#include "device/cuda/cuda.h"

extern const rcvi_scan_table rcvi_cuda_scan;

/* The kernel of a scan: scan.cuh and the files of the forms. */
typedef enum {
    RCVI_SCAN_SERIAL,
    RCVI_SCAN_CHANNELS,
    RCVI_SCAN_CHAINED,
    RCVI_SCAN_THREE,
    RCVI_SCAN_WAVES, /* scan_waves.cuh */
    RCVI_SCAN_FORMS,
    RCVI_SCAN_NEWTON /* for recurrences that are not affine: recurrence.h */
} rcvi_scan_form;

/* How a scan is divided. A tile is (threads / lanes) * steps positions of vector * lanes channels; a chain is all tiles of the same
 * channels. */
typedef struct {
    rcvi_scan_form form;
    int vector, lanes, steps,
        threads;        /* channels of a thread, threads along a row, positions of a thread, threads of a block */
    int window, blocks; /* of chained: tiles to look back at, blocks of a multiprocessor */
    bool many;          /* of chained: a block takes tile after tile */
    int members, group; /* of waves: blocks of a chain, and of a group of its blocks */
    int64_t chains, tiles;
} rcvi_scan_cut;

/* Divides a scan of `steps` steps and `channels` channels, of which each sequence has `row`; elements have `bytes` bytes, the GPU
 * `processors` multiprocessors. form RCVI_SCAN_FORMS: the fastest one without waves, which not every GPU supports; so too for
 * RCVI_SCAN_WAVES where the shape does not allow waves. */
rcvi_scan_cut rcvi_scan_find_cut(rcvi_scan_form form, bool is_double, int64_t steps, int64_t channels, int64_t row,
                                 int bytes, int processors);
enum { RCVI_SCAN_HEAD = 64 }; /* bytes of counters at its beginning, of chained and waves */
/* Bytes of device memory that a scan needs beside its data. */
size_t rcvi_scan_scratch(const rcvi_scan_cut *cut, size_t real_bytes);

/* Whether a GPU supports waves, and whether waves are faster than the other forms. */
bool rcvi_scan_has_waves(int major, size_t shared_bytes);
bool rcvi_scan_waves_pay(const rcvi_scan_cut *cut, int processors);

enum { RCVI_WAVES_HELPERS = 96 }; /* threads of a block that do not compute: three warps */

/* Pieces of shared memory of a pass in waves: rings of what it loads early, and late. A piece is `steps` rows of 32 channels. */
typedef struct {
    int warps, steps; /* that read a piece; rows of a piece */
    int early, late;  /* pieces of the rings */
    int flight; /* early pieces in flight where all multiprocessors are busy: enough to keep memory busy, few enough not to delay
                 * words */
    int crowded;  /* the same where very many members read each other's words */
    size_t bytes; /* of all */
} rcvi_scan_pieces;
rcvi_scan_pieces rcvi_scan_find_pieces(const rcvi_scan_cut *cut, bool backward);

/* What the source of a linear scan depends on. */
typedef struct {
    rcvi_scan_cut cut;
    rcvi_cuda_type data;
    bool backward, reverse, lengths, resets;
    bool streamed; /* the arrays are larger than the GPU's L2 cache: they are read and written past it */
} rcvi_scan_shape;
rcv_status rcvi_scan_source(rcv_context *context, const rcvi_scan_shape *shape, char **text);

/* The kernels of scan.cuh, after `struct Cell`: macros FORM_... say which of them the text keeps. */
void rcvi_scan_add_kernels(rcvi_text *text);

/* One pass in waves over arrays of floats [steps, channels]: two that are loaded early, and one late; NULL where there is none.
 * `arguments`: Cell::Args of the source. */
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
