/* A time loop as one kernel: weights stay on the chip for the whole sequence, and blocks hand each other what they compute.
 *
 * A loop of maps and selections, as a schedule wrote it for launches, is joined to fewer maps and cut into seats: the steps that
 * multiply with the same weights, and the maps without products that go with them. Every element of a seat's columns is one thread's
 * from the first iteration to the last, so what only passes from element to element lies in memory as before, or stays with the
 * thread. What other blocks read passes through channels: an operand of products has memory of the kernel's own, in the order in
 * which it is copied to shared memory, with a slot for every step, so that nothing is overwritten; a value of another seat is read
 * where it lies. A channel has a counter for every slot and tile of rows, which the blocks that write raise.
 *
 * A map that sums over features, and every map without products of a seat that has one, is taken by rows: a block of the seat
 * has whole rows of a tile, in all iterations the same ones, and finds all sums inside of itself, however many there are. So
 * elements have two owners, one by columns for steps with products and one by rows; a value that goes from one to the other
 * passes through a channel, as if it came from another seat.
 *
 * Residency: a seat has ceil(columns / units) blocks of 64 rows of weights (units of all products), and each slice of the
 * batch has its own. All blocks are on the chip at once, one a processor, by a cooperative launch, or there is no launch.
 *
 * Arguments are words: [0] iterations, [1] batch, [2] address of the fault word, [3] of weights that are copied every time; for
 * every seat RCVI_SEAT_WORDS: its
 * first block, its class, where the words of its steps begin (and, << 32, how many places they have); for every step: time at
 * iteration 0, time an iteration, the iterations at which it is due (from, up to), then RCVI_PLACE_WORDS for every place: address
 * at iteration 0; of a counter, how many blocks raise it, of a view, the iteration before which it is nowhere; bytes an iteration; of a view, its ring (bytes of a slot << 2 |
 * phase << 1 | 1, or 0), of a counter, the iterations at which it is waited for (from | up to << 32). Places are the views of the
 * map, its twins, then for every use of a channel its operand and its counter, then, of a step whose rows leave the batch or are
 * written in the caller's order, how many go on, and that order (0: their own). Memory of values with tags is a ring whose slots
 * are one byte apart: the last bit of its address is the tag.
 *
 * Clusters: with the rung `cluster` the blocks of a seat and slice are one, and hand each other operands through shared memory
 * (kernel/send.cuh). A slice is then a whole by itself. Of the place of an operand that is written, the address is that in a slot.
 *
 * Rows leave: sequences lie sorted, the longest first (ragged.h), so where a tile's first row has ended, all have. A step all of
 * whose products and values of other seats are for rows that go on then neither waits nor multiplies, in all blocks alike; it
 * still applies its map, which keeps states, and raises its counters, so nobody waits in vain. */
#ifndef RCVI_CUDA_PERSISTENT_H
#define RCVI_CUDA_PERSISTENT_H

#include "device/cuda/engine/engine.h"

enum {
    RCVI_LANES = 2,
    RCVI_MOST_RING = 8, /* groups of chunks that a lane has at once */
    RCVI_HEADER_WORDS = 4,
    RCVI_SEAT_WORDS = 8,
    RCVI_STEP_WORDS = 4,
    RCVI_PLACE_WORDS = 4,
    RCVI_PERSISTENT_THREADS = 512,
    RCVI_CLUSTER_THREADS = 256,
    RCVI_MAX_HOSTED = 6,
    RCVI_MAX_PARTS = 24,
    RCVI_ROW_PLACES = 2,
    RCVI_MAX_GROUPS = 256, /* of chunks of a lane */
    RCVI_MAX_PERSISTENT_WORDS = 4000
};

/* What passes between blocks: columns of a buffer, a slot for every step. */
typedef struct {
    int buffer;
    int64_t column, columns;
    bool operand;                 /* of products: it has memory; else a value, read where it lies */
    bool still;                   /* the buffer holds one step: slots are iterations */
    int seat;                     /* that writes it; RCVI_NONE: nobody, it lies in memory before the loop */
    bool by_rows;                 /* the same */
    int64_t first, last, written; /* slots that are written in the loop; written 0: none */
    int64_t base, top;            /* slots of an operand that are written or read */
    const rcvi_view *view;        /* of an operand: where it lies before the loop */
    int signal;                   /* its counters */
    bool tagged;                  /* of a value: passes without counters, see persistent/tag.c */
    int64_t tags;                 /* then: words of [batch, columns] from this one on, behind the counters */
    int64_t chunks;               /* of an operand, of all its parts */
    size_t place;                 /* bytes in the exchange */
} rcvi_channel;

/* A channel as a step sees it: at iteration i slot + i * step. Read where low <= i < high. RCVI_NONE: leads nowhere. */
typedef struct {
    int channel;
    int64_t slot, step, low, high;
} rcvi_channel_use;

enum { RCVI_MAX_USES = 64 };

typedef struct {
    int parts[RCVI_MAX_PARTS], part_count; /* steps of the program, in its order */
    const rcvi_step *step;                 /* these as one map */
    int center;                            /* the step with products that it goes with, or itself */
    int seat;
    int apart;         /* products from this one on are lane 1's, in the rows of weights of those before; 0: none */
    bool by_rows;      /* a block has whole rows, else columns of all */
    int64_t low, high; /* iterations at which it is due */
    const rcvi_view **views;
    int view_count, twin_count;
    rcvi_pass *passes;
    int pass_count;
    rcvi_map_shape shape;
    /* Uses of channels; use u has places view_count + twin_count + 2 u and the next one. */
    rcvi_channel_use uses[RCVI_MAX_USES];
    int use_count;
    int read_of[RCVI_MAX_PASSES];           /* [passes] use of an operand, or RCVI_NONE */
    int waits[RCVI_MAX_USES], wait_count;   /* uses of values */
    int writes[RCVI_MAX_USES], write_count; /* uses of what is written, and the view that is */
    int write_views[RCVI_MAX_USES];
    bool write_operand[RCVI_MAX_USES];
    int raises[RCVI_MAX_USES], raise_count; /* uses whose counter is raised, by this step or a peer's */
    bool is_raised[RCVI_MAX_USES];          /* [uses] by this one */
    bool write_tagged[RCVI_MAX_USES];       /* [writes] with tags, by this step or a peer's */
    bool *is_tagged;                        /* [views] read so */
    bool *is_spare;                         /* [operands] only read so: not stored where the program has it */
    bool *is_late;                          /* [views] a value of another seat */
    bool *is_early;                         /* [operands] another seat reads it where it lies */
    bool *is_short;                         /* [operands] written for the rows that go on alone */
    bool *is_read_whole;                    /* [operands] read, as it was before, for all rows */
    bool *is_ordered;                       /* [operands] written in the caller's order of rows */
    bool has_rows, orders, leaves;          /* has row places; an order; rests where no row of a tile goes on */
    size_t words;                           /* where they begin */
} rcvi_persistent_step;

static inline int rcvi_persistent_places(const rcvi_persistent_step *s) {
    return s->view_count + s->twin_count + 2 * s->use_count + (s->has_rows ? RCVI_ROW_PLACES : 0);
}
/* How many rows go on; the next one is their order. */
static inline int rcvi_persistent_row_place(const rcvi_persistent_step *s) {
    return s->view_count + s->twin_count + 2 * s->use_count;
}

/* Chunks of a pass that are copied at once. */
typedef struct {
    int pass, first, count;
} rcvi_group_of_chunks;

typedef struct {
    int hosted[RCVI_MAX_HOSTED], hosted_count; /* of the loop's steps */
    int tiled;                                 /* the first of these with products */
    int layer, direction;
    int64_t columns;
    int products, units, blocks;  /* of one slice; products: those that have rows of weights of their own */
    int lane_of[RCVI_MAX_PASSES]; /* chunks of a pass from this one on are lane 1's */
    rcvi_group_of_chunks groups[RCVI_LANES][RCVI_MAX_GROUPS];
    int group_count[RCVI_LANES], ring[RCVI_LANES]; /* of these groups, so many have room at once */
    int chunks[RCVI_LANES];                        /* of depth, of all parts */
    int held[RCVI_LANES], kept[RCVI_LANES];        /* in registers, in shared memory; others are copied every time */
    int sender, ahead; /* in a cluster: of the hosted steps the one that sends, and iterations until that is read */
    bool from_memory;  /* the first operand lies there before the loop */
    int class, first_block;
    char *text; /* what stands in the namespace of its class */
} rcvi_seat;

struct rcvi_persistent {
    int loop; /* of the program's steps */
    int64_t iterations;
    /* What is multiplied: numbers of this type, of a float32 so many, whose sum it is nearly; chunks are of one part. */
    rcvi_cuda_type operand;
    int parts;
    bool exact; /* float32 as they are, by multiply-adds */
    rcvi_persistent_step *steps;
    rcvi_step *joined; /* [steps] */
    int step_count;
    rcvi_seat *seats;
    int seat_count, class_count;
    rcvi_channel *channels;
    int channel_count;
    size_t streamed;                 /* where those begin among the exchange's bytes */
    size_t exchange, exchange_place; /* bytes of operands, and where they begin among those of all loops */
    int signal_count;
    int64_t counters;               /* of all signals */
    int64_t *first_counter;         /* [signals] */
    int slices, slice, tile, tiles; /* of the batch; rows of one, of a tile, and tiles of a slice */
    bool holds;                     /* a block writes what others do not read when they have what they do */
    bool third;                     /* a third warpgroup takes the maps, else those that multiply do */
    int fold;                       /* parts of depth that lie side by side */
    int cluster;                    /* blocks of one, which pass operands without memory; 0: there are none */
    int stream_chunks;              /* of weights of a block that are copied every time */
    int vector, group, weight_chunks, sum_buffers, blocks, places; /* group: chunks that are copied at once */
    bool by_rows, paired; /* some steps are taken by rows; some are of two that multiply */
    bool *unread;         /* [buffers] nobody reads what the loop stores there, */
    bool *untwinned;      /* nor in its twin */
    bool *passing;        /* or only products of the loop do before it ends */
    size_t lane_bytes;    /* for copies of a lane */
    size_t stage, staged; /* through which its weights come to registers: where that lies, and bytes of a lane */
    size_t shared, words;
    char *source;
    cudaLibrary_t code;
    cudaKernel_t kernel;
};

/* The loop cut into seats, and its kernel's text; or a sentence that says what stands against it. */
rcv_status rcvi_persistent_new(rcvi_engine *engine, size_t loop, rcvi_persistent **out);
void rcvi_persistent_free(rcv_context *context, rcvi_persistent *persistent);
rcv_status rcvi_persistent_source(rcv_context *context, const rcvi_engine *engine, rcvi_persistent *persistent);
/* Its launch on this stream; `scratch` as laid out by the engine, the worker's buffers bound. */
typedef struct rcvi_worker rcvi_worker;
/* The event is recorded right before the kernel. */
rcv_status rcvi_persistent_launch(const rcvi_worker *worker, const rcvi_persistent *persistent, char *scratch,
                                  cudaEvent_t begun, cudaStream_t stream);
/* Is there room for a cluster on the GPU? */
rcv_status rcvi_cluster_check(const rcvi_persistent *persistent);
/* Where weights live, in words. */
void rcvi_persistent_tell(const rcvi_engine *engine, const rcvi_persistent *persistent, rcvi_text *text);

#endif
