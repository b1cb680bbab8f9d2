/* A time loop as one kernel: weights stay on the chip for the whole sequence, and blocks hand each other what they compute.
 *
 * A loop of maps, as a schedule wrote it for launches, is cut into seats: the steps that multiply with the same weights, and
 * the maps without products that go with them. Every element of a seat's columns is one thread's from the first iteration to
 * the last, so what only passes from element to element lies in memory as before. What others read (operands of products,
 * and values of other seats) passes through channels: memory of the kernel's own with a slot for every step, so that nothing
 * is written twice, filled with ones before the kernel starts, which tell what has not come yet.
 *
 * Residency: a seat has ceil(columns / units) blocks of 64 rows of weights (units of all products), and each slice of the
 * batch has its own. All blocks are on the chip at once, one a processor, by a cooperative launch, or there is no launch.
 *
 * Arguments are words: [0] iterations, [1] batch, [2] address of the fault word, [3] unused; for every seat SEAT_WORDS: its
 * first block, its class, where the words of its steps begin (and, << 32, how many places they have); for every step: time at iteration 0, time an iteration, the
 * iterations at which it is due (from, up to), then PLACE_WORDS for every place: address at iteration 0, elements from row
 * to row, bytes an iteration, and a ring (bytes of a slot << 2 | phase << 1 | 1, or 0) or, in a channel, the iterations at
 * which it is read (from | up to << 32). Places are the views of the map, its twins, then channels. */
#ifndef RCVI_CUDA_PERSISTENT_H
#define RCVI_CUDA_PERSISTENT_H

#include "device/cuda/engine.h"

enum {
    RCVI_LANES = 2,
    RCVI_PERSISTENT_THREADS = 512,
    RCVI_MAX_HOSTED = 6,
    RCVI_MAX_SEGMENTS = RCVI_MAX_PASSES + 1,
    RCVI_MAX_CHUNKS = 512, /* of a lane */
    RCVI_MAX_PERSISTENT_WORDS = 4000
};

/* What passes between blocks: columns of a buffer, a slot for every step. */
typedef struct {
    int buffer;
    int64_t column, columns;
    rcvi_cuda_type type;
    bool operand; /* of products */
    bool still;   /* the buffer holds one step: slots are iterations */
    int64_t first, last, written;
    int64_t pitch; /* elements of a row */
    size_t place;  /* bytes in the exchange */
} rcvi_channel;

/* A channel as a step sees it: at iteration i slot + i * step. Read where low <= i < high. RCVI_NONE: leads nowhere. */
typedef struct {
    int channel;
    int64_t slot, step, low, high;
} rcvi_channel_use;

typedef struct {
    int index, seat;   /* of the program's step */
    int64_t low, high; /* iterations at which it is due */
    const rcvi_view **views;
    int view_count, twin_count;
    rcvi_pass *passes;
    int pass_count;
    rcvi_map_shape shape;
    int *read;                                /* [views] place that comes from a channel, or RCVI_NONE */
    int places[RCVI_MAX_VIEWS];               /* the same while peers are matched */
    rcvi_map_link writes[RCVI_MAX_OPERANDS];  /* their places are those of `uses` */
    rcvi_channel_use uses[RCVI_MAX_OPERANDS]; /* behind views and twins */
    int write_count, use_count;
    size_t words; /* where they begin */
} rcvi_persistent_step;

static inline int rcvi_persistent_places(const rcvi_persistent_step *s) {
    return s->view_count + s->twin_count + s->use_count;
}

typedef struct {
    int pass, first, count; /* chunks */
} rcvi_segment;

typedef struct {
    int hosted[RCVI_MAX_HOSTED], hosted_count; /* of the loop's steps */
    int tiled;                                 /* the first of these with products */
    int layer, direction;
    int64_t columns;
    int products, units, blocks; /* of one slice */
    rcvi_segment segments[RCVI_LANES][RCVI_MAX_SEGMENTS];
    int segment_count[RCVI_LANES];
    int chunks[RCVI_LANES], held[RCVI_LANES]; /* in registers of these */
    int class, first_block;
    char *text; /* of its class, the first of it alone */
} rcvi_seat;

struct rcvi_persistent {
    int loop; /* of the program's steps */
    int64_t iterations;
    rcvi_persistent_step *steps;
    int step_count;
    rcvi_seat *seats;
    int seat_count, class_count;
    rcvi_channel *channels;
    int channel_count;
    size_t exchange; /* bytes */
    int slices, slice, tile, tiles; /* of the batch; rows of one, of a tile, and tiles of a slice */
    int vector, stages, weight_chunks, sum_buffers, blocks, places;
    size_t shared, words;
    char *source;
    cudaLibrary_t code;
    cudaKernel_t kernel;
};

/* Is this loop to be one kernel? */
bool rcvi_persistent_is_for(const rcvi_engine *engine, size_t loop);
/* The loop cut into seats, and its kernel's text; or a sentence that says what stands against it. */
rcv_status rcvi_persistent_new(rcvi_engine *engine, size_t loop, rcvi_persistent **out);
void rcvi_persistent_free(rcv_context *context, rcvi_persistent *persistent);
rcv_status rcvi_persistent_source(rcv_context *context, const rcvi_engine *engine, rcvi_persistent *persistent);
/* Its launch on this stream; `scratch` as laid out by the engine, the worker's buffers bound. */
typedef struct rcvi_worker rcvi_worker;
rcv_status rcvi_persistent_launch(const rcvi_worker *worker, const rcvi_persistent *persistent, char *scratch,
                                  cudaStream_t stream);
/* Where weights live, in words. */
void rcvi_persistent_tell(const rcvi_persistent *persistent, rcvi_text *text);

#endif
