/* A time loop as one kernel (rung `persistent`): weights stay on the chip for the whole sequence, and thread blocks exchange what they
 * compute.
 *
 * A schedule writes the loop as maps and selections, which are launched step by step otherwise. Here they are merged into fewer maps,
 * kernel steps, and grouped into tasks: a task has the steps that multiply by the same weights (a layer's step) and the maps without products
 * that go with them. The blocks of a task run it from the first iteration to the last. Every element of a task's columns belongs to one
 * thread in all iterations, so what goes only from element to element (a cell state) is in the program's memory as before, or stays in the
 * thread's registers. What other blocks read goes through channels. An operand of products has memory of the kernel's own, in the order in
 * which it is copied to shared memory, with a slot for every time step, so that nothing is overwritten. A value of another task is read
 * where the program has it. A channel has a counter for every slot and tile of rows, which the blocks that write increment.
 *
 * A map that sums over features, and the maps without products of its task, are computed by rows: a block of the task has whole rows of a
 * tile, the same ones in all iterations, and computes all sums inside of the block. So elements have two owners, one by columns for steps
 * with products and one by rows. A value that goes from one to the other goes through a channel, as if it came from another task.
 *
 * Residency: a task has ceil(columns / units) blocks of 64 rows of weights (units x products), and each slice of the batch has its own
 * blocks. All blocks run at once, one on a processor, by a cooperative launch, or there is no launch.
 *
 * Arguments are 64-bit words. Header: [0] iterations, [1] batch, [2] address of the fault word, [3] address of streamed weights,
 * [4] tasks. For every task RCVI_TASK_WORDS: its first block, its variant, then for each step where its words begin (and, << 32, how many arguments it has). For
 * every step RCVI_STEP_WORDS: time at iteration 0, time per iteration, the first iteration at which it is due and the one after the last.
 * Then RCVI_ARGUMENT_WORDS for every argument:
 *
 *     word   view                                    operand in a channel      counter
 *     0      address at iteration 0                  the same                  the same
 *     1      first iteration that is stored          -                         blocks that increment it
 *     2      bytes per iteration                     the same                  the same
 *     3      ring: slot bytes << 2 | phase << 1 | 1  -                         awaited at iterations: from | up to << 32
 *
 * A step's arguments are the views of its map, their rounded copies, then for every port an operand and a counter, then, of a step that skips
 * rows that have ended or writes in the caller's order, the number of rows that have not ended, and that order (0: none). Memory of flagged
 * values is a ring whose slots are one byte apart: the last bit of its address is the flag.
 *
 * Clusters: with the rung `cluster` the blocks of a task and slice form one, and send each other operands through shared memory
 * (kernel/send.cuh). The address of an operand that is written is then its offset in a slot.
 *
 * Sequences that end: they are sorted, the longest first (ragged.h), so where the first row of a tile has ended, all have. A step whose
 * products and values of other tasks are all for rows that have not ended then neither waits nor multiplies, in all blocks alike. It still
 * computes its map, which keeps states, and increments its counters, so that readers do not wait for ever. */
#ifndef RCVI_CUDA_PERSISTENT_H
#define RCVI_CUDA_PERSISTENT_H

#include "device/cuda/engine/engine.h"

enum {
    RCVI_PIPES = 2,
    RCVI_MAX_RING = 8, /* slots of a pipe's ring */
    RCVI_HEADER_WORDS = 5,
    RCVI_TASK_WORDS = 8,
    RCVI_STEP_WORDS = 4,
    RCVI_ARGUMENT_WORDS = 4,
    RCVI_PERSISTENT_THREADS = 512,
    RCVI_CLUSTER_THREADS = 256,
    RCVI_MAX_TASK_STEPS = 6,
    RCVI_MAX_STEP_MEMBERS = 24,
    RCVI_ROW_ARGUMENTS = 2,
    RCVI_MAX_GROUPS = 256, /* of a pipe */
    RCVI_MAX_PERSISTENT_WORDS = 4000
};

/* What goes between tasks: columns of a buffer, a slot for every time step. */
typedef struct {
    int buffer;
    int64_t column, columns;
    bool operand;     /* an operand of products, which has memory; else a value, read where the program has it */
    bool single_step; /* the buffer holds one time step: slots are iterations */
    int task;         /* that writes it; RCVI_NONE: it is in memory before the loop */
    bool by_rows;     /* written by rows */
    int64_t first, last, written; /* slots that are written in the loop; written 0: none */
    int64_t base, top;            /* slots of an operand that are written or read */
    const rcvi_view *view;        /* of an operand: where it is before the loop */
    int counter_set;              /* its counters */
    bool flagged;                 /* a value with flags, without counters (flags.c) */
    int64_t flag_words;           /* then: the first of its words, [batch, columns], after the counters */
    int64_t chunks;               /* of an operand, of all its parts */
    size_t offset;                /* bytes in the exchange memory */
} rcvi_channel;

/* A step's end of a channel: slot + i * step at iteration i. Awaited at iterations low <= i < high. Channel RCVI_NONE: a similar task has this
 * port, this one does not. */
typedef struct {
    int channel;
    int64_t slot, step, low, high;
} rcvi_port;

enum { RCVI_MAX_PORTS = 64 };

/* Steps of the program, merged into one map. */
typedef struct {
    /* Steps of the program, in its order; but one with products comes first, also where `before` selections come before it. */
    int members[RCVI_MAX_STEP_MEMBERS], member_count, before;
    const rcvi_step *step; /* the merged map */
    int product_step;      /* the kernel step with products that it goes with, or itself */
    int task;
    int second_product; /* paired: products from this one on are pipe 1's, in the rows of weights of those before; 0: not paired */
    bool by_rows;      /* a block has whole rows, else columns of all rows */
    int64_t low, high; /* due at iterations low <= i < high */
    const rcvi_view **views;
    int view_count, rounded_count;
    rcvi_pass *passes;
    int pass_count;
    rcvi_map_shape shape;
    /* Port u has arguments view_count + rounded_count + 2 u (operand) and the next one (counter). */
    rcvi_port ports[RCVI_MAX_PORTS];
    int port_count;
    int operand_ports[RCVI_MAX_PASSES];      /* [passes] port of the operand, or RCVI_NONE */
    int waits[RCVI_MAX_PORTS], wait_count;   /* ports of values that are read */
    int writes[RCVI_MAX_PORTS], write_count; /* ports that are written, and their views */
    int write_views[RCVI_MAX_PORTS];
    bool write_operand[RCVI_MAX_PORTS];
    int signals[RCVI_MAX_PORTS],
        signal_count;                   /* ports whose counter is incremented, by this step or in a similar task */
    bool is_signaled[RCVI_MAX_PORTS];   /* [ports] by this step */
    bool write_flagged[RCVI_MAX_PORTS]; /* [writes] with flags, by this step or in a similar task */
    bool *is_flagged;                   /* [views] read with flags */
    bool *is_flagged_only;              /* [operands] only read with flags: not stored where the program has it */
    bool *is_remote;                    /* [views] a value of another task */
    bool *is_exported;                  /* [operands] another task reads it where the program has it */
    bool *is_short;                     /* [operands] written only in rows that have not ended */
    bool *is_read_for_all_rows;         /* [operands] read, as before this step, also in rows that have ended */
    bool *is_in_caller_order;           /* [operands] written in the caller's order of rows */
    bool has_row_arguments;             /* number of active rows, and their order */
    bool has_row_order;                 /* some operand is in the caller's order */
    bool skips_ended;                   /* neither waits nor multiplies in a tile all of whose rows have ended */
    size_t words;                       /* where its words begin */
} rcvi_kernel_step;

static inline int rcvi_kernel_step_arguments(const rcvi_kernel_step *s) {
    return s->view_count + s->rounded_count + 2 * s->port_count + (s->has_row_arguments ? RCVI_ROW_ARGUMENTS : 0);
}
/* Argument with the number of active rows; the next one is their order. */
static inline int rcvi_kernel_step_row_argument(const rcvi_kernel_step *s) {
    return s->view_count + s->rounded_count + 2 * s->port_count;
}

/* Chunks of a pass that one bulk copy brings. */
typedef struct {
    int pass, first, count;
} rcvi_chunk_group;

typedef struct {
    int steps[RCVI_MAX_TASK_STEPS], step_count; /* kernel steps, in the order of the program */
    int product_step;                           /* the first of these with products */
    int layer, direction;
    int64_t columns;
    int products, units,
        blocks; /* products with rows of weights of their own; columns of a block; blocks of one slice */
    int pipe_split[RCVI_MAX_PASSES]; /* [passes] chunks from this one on are pipe 1's */
    rcvi_chunk_group groups[RCVI_PIPES][RCVI_MAX_GROUPS];
    int group_count[RCVI_PIPES], ring[RCVI_PIPES];       /* groups, and slots of the ring */
    int chunks[RCVI_PIPES];                              /* of depth, of all parts */
    int in_registers[RCVI_PIPES], in_shared[RCVI_PIPES]; /* chunks with weights there; others are streamed */
    int sender, ahead; /* in a cluster: the step (of `steps`) that sends, and iterations until that is read */
    bool from_memory;  /* in a cluster: the first operand is in memory before the loop */
    int variant;
    char *text; /* of the namespace of its variant */
} rcvi_task;

struct rcvi_persistent {
    int loop; /* step of the program */
    int64_t iterations;
    /* Operands of products are of this type; a float32 may be `parts` bfloat16, whose sum is nearly that number. */
    rcvi_cuda_type operand;
    int parts;
    bool exact; /* float32 products by FMA */
    rcvi_kernel_step *steps;
    rcvi_step *merged; /* [steps] */
    int step_count;
    rcvi_task *tasks;
    int task_count, variant_count;
    rcvi_channel *channels;
    int channel_count;
    size_t streamed_offset;           /* of streamed weights in the exchange memory */
    size_t exchange, exchange_offset; /* bytes of the exchange memory, and where it begins among those of all loops */
    int counter_set_count;
    int64_t counters;               /* of all counter sets, and flagged words */
    int64_t *first_counter;         /* [counter sets] */
    int slices, slice, tile, tiles; /* slices of the batch, rows of a slice, rows of a tile, tiles of a slice */
    bool defers_stores;             /* a block writes what no other block waits for after it has signalled */
    bool has_map_warpgroup;         /* a third warpgroup computes the maps, else those that multiply do */
    int depth_splits;               /* parts of depth that lie side by side in one MMA */
    int cluster;                    /* blocks of a cluster; 0: no clusters */
    int streamed_chunks;            /* chunks of weights of a block that are copied in every time step */
    int vector, group, shared_weight_chunks, sum_buffers, blocks, arguments; /* group: most chunks of a group */
    bool by_rows, paired;  /* some steps are by rows; some products are paired */
    bool pairs;            /* it was built with pairs where they are possible */
    bool *unread;          /* [buffers] nothing reads what the loop stores there, */
    bool *rounded_unread;  /* nor in its rounded copy */
    bool *transient;       /* or only products of the loop do before it ends */
    size_t pipe_bytes;     /* of a pipe's ring */
    size_t staging_offset; /* in shared memory, of the area through which weights come to registers */
    size_t staging_bytes;  /* of a pipe */
    size_t shared_bytes, words;
    char *source;
    cudaLibrary_t code;
    cudaKernel_t kernel;
};

/* Makes the loop at this step one kernel, with its text; or a sentence that says why it cannot be one. */
rcv_status rcvi_persistent_new(rcvi_engine *engine, size_t loop, rcvi_persistent **out);
void rcvi_persistent_free(rcv_context *context, rcvi_persistent *persistent);

/* ---- calls of other sizes: resize.c ---- */

/* Builds the loop of `like` in the same way, without its text, at the sizes of the engine's program. */
rcv_status rcvi_persistent_sample(rcvi_engine *engine, const rcvi_persistent *like, rcvi_persistent **out);
/* Calls `number` for every number of it that depends on the sizes of a call, always in the same order. */
void rcvi_persistent_numbers(rcvi_persistent *persistent, void (*number)(void *user, int64_t *at), void *user);
/* A copy whose numbers can be changed, in the pool; all else is shared. NULL without memory. */
rcvi_persistent *rcvi_persistent_copy(rcvi_pool *pool, const rcvi_persistent *persistent);

/* Words of the kernel's parameter: those in use, rounded up so that loops with more or fewer layers have one kernel. */
size_t rcvi_persistent_parameter_words(const rcvi_persistent *persistent);
rcv_status rcvi_persistent_source(rcv_context *context, const rcvi_engine *engine, rcvi_persistent *persistent);
typedef struct rcvi_worker rcvi_worker;
/* Launches it on this stream; `scratch` is laid out by the engine, the worker's buffers are bound. The event is recorded right before the
 * kernel. */
rcv_status rcvi_persistent_launch(const rcvi_worker *worker, const rcvi_persistent *persistent, char *scratch,
                                  cudaEvent_t begun, cudaStream_t stream);
/* Does the GPU run clusters of this size? */
rcv_status rcvi_cluster_check(const rcvi_persistent *persistent);
/* Adds where the weights are, for `recurve plan`. */
void rcvi_persistent_describe(const rcvi_engine *engine, const rcvi_persistent *persistent, rcvi_text *text);

#endif
