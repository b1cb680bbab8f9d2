/* A program made ready for the CPU: which thread takes which part of a step, where threads wait for each other, and
 * maps compiled to the calls of kernels.
 *
 * Steps are taken in groups. Steps of one group do not touch what another one of it writes; their work is laid end to
 * end and cut into equal shares, one a member of the team, and a barrier follows. In a private loop every step touches,
 * for one row of the batch, nothing of another row, or for one column nothing of another column: each member takes its rows, or
 * columns, through the whole loop, and the only barrier is behind it. */
#ifndef RCVI_ENGINE_H
#define RCVI_ENGINE_H

#include "device/cpu/engine/team.h"
#include "device/cpu/gemm/matmul.h"
#include "device/cpu/kernels/kernels.h"
#include "device/cpu/onednn/vendor.h"
#include "device/device.h"

/* Along what a step is cut. */
typedef enum {
    RCVI_CUT_ROWS,
    RCVI_CUT_COLUMNS, /* at multiples of the kernels' grain */
    RCVI_CUT_PANELS,  /* of a packed matrix */
    RCVI_CUT_MATMUL,  /* as rcvi_matmul cuts */
    RCVI_CUT_NOT      /* the first member takes it */
} rcvi_cut;

/* What an instruction computes with: a slot is a block of scratch. */
typedef struct {
    enum { RCVI_IN_SLOT, RCVI_IN_VIEW, RCVI_IN_PRODUCT } kind;
    int index;
} rcvi_source;

typedef struct {
    rcvi_map_kernel kernel;
    rcvi_source a, b;
    int slot;                     /* of the result */
    int first_store, store_count; /* views it goes to */
} rcvi_op;

typedef struct {
    double number;
    int slot;
} rcvi_constant;

/* A map's instructions with scratch slots for what they hand on. */
typedef struct {
    rcvi_op *ops;
    int op_count;
    int *stores;                               /* views, of ops and then of products */
    int *product_stores, *product_store_count; /* [products] first in stores, and how many */
    bool *product_is_used;                     /* [products] by an instruction */
    int *view_slot;                            /* [operands] or RCVI_NONE */
    bool *is_narrow;                           /* [operands] activations in bfloat16 */
    rcvi_constant *constants;
    int constant_count;
    int slot_count;
    int64_t block;         /* elements of a slot */
    rcvi_view *operands_a; /* distinct left operands of products, for bfloat16 and transposed layouts */
    int *operand_of;       /* [products * RCVI_MAX_TERMS] */
    int operand_a_count;
    int64_t operand_a_depth; /* of all of them together, each filled up */
    int64_t depth;           /* of all terms together */
} rcvi_compiled;

typedef struct {
    rcvi_cut cut;
    int group_end;   /* first step behind its group */
    bool is_private; /* member's rows or columns only, no barrier; of a loop: its body is */
    double cost;     /* of one row or column */
    rcvi_compiled *compiled;
} rcvi_ready;

struct rcvi_engine {
    const rcvi_program *program;
    const rcvi_kernels *kernels;
    rcvi_kernel_type type;
    int members;
    rcvi_pool pool;
    rcvi_ready *ready; /* [steps] */
    size_t scratch;    /* bytes of one member */
    bool has_vendor;
    size_t vendor_bytes;
    bool is_reference; /* naive: products and maps by the reference code, not by kernels */
    bool streams;      /* distant buffers are written past the caches, which would not keep them */
};

rcv_status rcvi_engine_new(const rcvi_program *program, const rcvi_kernels *kernels, rcvi_engine **engine);
void rcvi_engine_free(rcvi_engine *engine);

/* Groups, private loops and cuts, from what the steps touch. */
void rcvi_engine_group(rcvi_engine *engine);
/* A map for the kernels; NULL without memory. */
rcvi_compiled *rcvi_engine_compile(rcvi_engine *engine, const rcvi_step *step);

/* Where and when a step is taken. */
typedef struct {
    const rcvi_engine *engine;
    const rcvi_binding *binding;
    const rcvi_step *step;
    const rcvi_ready *ready;
    int64_t inner, outer, time;
    int64_t rows;               /* of the step, with the span that is due */
    int64_t depth;              /* of a gemm, likewise */
    int64_t row, row_end;       /* the member's */
    int64_t column, column_end; /* the member's */
    int member, members;
    char *scratch;
} rcvi_call;

/* Whether it sums contiguous rows, which kernels can do. */
bool rcvi_step_sums_rows(const rcvi_step *step);

/* Does a view show activations in bfloat16? */
static inline bool rcvi_view_is_narrow(const rcvi_engine *engine, const rcvi_view *view) {
    return engine->type == RCVI_KERNEL_BFLOAT16 && engine->program->buffers[view->buffer].element == RCVI_ACTIVATION;
}
/* Bytes of an element of a view's buffer. */
static inline int64_t rcvi_view_bytes(const rcvi_engine *engine, const rcvi_view *view) {
    const rcvi_program *program = engine->program;
    return (int64_t)rcvi_element_bytes(program, program->buffers[view->buffer].element);
}

/* Where a view begins in this call; NULL for what the caller left out. */
void *rcvi_call_locate(const rcvi_call *call, const rcvi_view *view);

void rcvi_take_map(const rcvi_call *call);
void rcvi_take_gemm(const rcvi_call *call);
void rcvi_take_pack(const rcvi_call *call);
void rcvi_take_reduce(const rcvi_call *call); /* of steps that rcvi_step_sums_rows */
/* All other kinds; in naive programs, maps and gemms too: the reference. */
void rcvi_take_float(const rcvi_call *call);
void rcvi_take_double(const rcvi_call *call);

size_t rcvi_map_scratch(const rcvi_engine *engine, const rcvi_step *step, const rcvi_compiled *compiled);
size_t rcvi_gemm_scratch(const rcvi_engine *engine, const rcvi_step *step);

/* Elements from row to row of an operand narrowed to bfloat16: whole lines of 64 bytes, and not a power of two of them,
 * which would bring the rows of a tile to the same few places of a cache. */
static inline int64_t rcvi_narrow_row(int64_t depth, int64_t group) {
    int64_t multiple = group > 32 ? group : 32, row = (depth + multiple - 1) / multiple * multiple;
    return row % 256 ? row : row + 32;
}

#endif
