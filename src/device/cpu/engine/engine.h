/* A program prepared for the CPU: how each step is divided among the threads of a team, where the threads synchronise, and
 * maps compiled to calls of kernels.
 *
 * Steps run in groups. No step of a group reads or writes what another step of the group writes. The work of a group is divided
 * into equal shares, one for each member (thread) of the team, and a barrier follows. In a private loop no step reads, for one
 * row of the batch, anything of another row (or for one column anything of another column): each member runs the whole loop for
 * its rows or columns, and the only barrier is the one after the loop. */
#ifndef RCVI_ENGINE_H
#define RCVI_ENGINE_H

#include "device/cpu/engine/team.h"
#include "device/cpu/gemm/matmul.h"
#include "device/cpu/kernels/kernels.h"
#include "device/cpu/onednn/vendor.h"
#include "device/device.h"

/* How a step is divided among the members of the team. */
typedef enum {
    RCVI_PARTITION_ROWS,
    RCVI_PARTITION_COLUMNS, /* at multiples of the kernels' grain */
    RCVI_PARTITION_PANELS,  /* of a packed matrix */
    RCVI_PARTITION_MATMUL,  /* as rcvi_matmul_cut divides c */
    RCVI_PARTITION_NONE     /* member 0 runs the whole step */
} rcvi_partition;

/* An input of a compiled operation: a scratch slot, a view of the map or a product of the map, by its index. */
typedef struct {
    enum { RCVI_IN_SLOT, RCVI_IN_VIEW, RCVI_IN_PRODUCT } kind;
    int index;
} rcvi_op_input;

typedef struct {
    rcvi_map_kernel kernel;
    rcvi_op_input a, b;
    int slot;                     /* scratch slot of the result */
    int first_store, store_count; /* the result is stored to views stores[first_store ..] */
} rcvi_compiled_op;

typedef struct {
    double number;
    int slot;
} rcvi_constant;

/* A map as calls of elementwise kernels. A slot is a block of `block` elements of scratch; slots hold intermediate results. */
typedef struct {
    rcvi_compiled_op *ops;
    int op_count;
    int *stores; /* indices of views that are written: first those of ops, then of products */
    int *product_stores, *product_store_count; /* [products] first index into stores, and count */
    bool *product_is_used;                     /* [products] an operation reads the product */
    int *view_slot;                            /* [operands] slot into which the view is gathered, or RCVI_NONE */
    bool *is_narrow;                           /* [operands] the view shows activations stored in bfloat16 */
    rcvi_constant *constants;
    int constant_count;
    int slot_count;
    int64_t block;         /* elements of a slot */
    rcvi_view *operands_a; /* [operand_a_count] the distinct left operands of all products */
    int *operand_of;       /* [products * RCVI_MAX_TERMS] index into operands_a */
    int operand_a_count;
    int64_t operand_a_depth; /* sum of their depths, each rounded up by rcvi_narrow_row */
    int64_t depth;           /* sum of the depths of all terms */
} rcvi_compiled_map;

typedef struct {
    rcvi_partition partition;
    int group_end;   /* index of the first step after the group */
    bool is_private; /* each member runs its own rows or columns, no barrier; for a loop: this holds for its body */
    bool by_rows_or_columns; /* by rows where there are enough of them for all members, else by columns */
    double cost;             /* of one element, in multiply-adds */
    rcvi_compiled_map *compiled;
} rcvi_prepared_step;

struct rcvi_engine {
    const rcvi_program *program;
    const rcvi_kernels *kernels;
    rcvi_kernel_type type;
    int members;
    rcvi_pool pool;
    rcvi_prepared_step *prepared; /* [steps] */
    size_t scratch;               /* bytes of scratch of one member */
    bool has_vendor;
    size_t vendor_bytes;
    bool is_reference; /* the naive schedule: products and maps run by step_real.h, not by kernels */
    bool streams;      /* in the largest calls distant buffers exceed the caches */
};

/* True if the distant buffers (written now, read much later) exceed half of the shared cache. */
bool rcvi_distant_buffers_exceed_cache(const rcvi_program *program);

rcv_status rcvi_engine_new(const rcvi_program *program, const rcvi_kernels *kernels, rcvi_engine **engine);
void rcvi_engine_free(rcvi_engine *engine);

/* Finds groups, private loops and partitions from the views that the steps access. */
void rcvi_engine_group(rcvi_engine *engine);
/* Compiles a map into kernel calls, in the engine's pool; NULL where memory is exhausted. */
rcvi_compiled_map *rcvi_engine_compile(rcvi_engine *engine, const rcvi_step *step);

/* One execution of a step by one member of the team. */
typedef struct {
    const rcvi_engine *engine;
    const rcvi_binding *binding;
    const rcvi_step *step;
    const rcvi_prepared_step *prepared;
    int64_t inner, outer;       /* iteration of the innermost loop, and of the loop around it */
    int64_t time;               /* time step */
    int64_t rows;               /* rows of the step, for the time steps that are due */
    int64_t depth;              /* k of a gemm, for the time steps that are due */
    int64_t row, row_end;       /* the member computes rows row .. row_end - 1 */
    int64_t column, column_end; /* and columns column .. column_end - 1 */
    int member, members;
    bool streams;  /* distant buffers are written with non-temporal stores */
    char *scratch; /* the member's, engine->scratch bytes */
} rcvi_step_call;

/* True for a reduce step over rows whose columns are contiguous: rcvi_run_reduce runs it with kernels. */
bool rcvi_step_sums_rows(const rcvi_step *step);

/* True if the view shows activations that are stored in bfloat16. */
static inline bool rcvi_view_is_narrow(const rcvi_engine *engine, const rcvi_view *view) {
    return engine->type == RCVI_KERNEL_BFLOAT16 && engine->program->buffers[view->buffer].element == RCVI_ACTIVATION;
}
/* Element types of arrays of numbers, as portable code reads and writes them. */
typedef enum { RCVI_NUMBER_FLOAT, RCVI_NUMBER_DOUBLE, RCVI_NUMBER_FLOAT16, RCVI_NUMBER_BFLOAT16 } rcvi_number_type;
static const size_t rcvi_number_bytes[] = {4, 8, 2, 2};

static inline rcvi_number_type rcvi_view_type(const rcvi_engine *engine, const rcvi_view *view) {
    switch (engine->program->buffers[view->buffer].element) {
    case RCVI_AS_FLOAT32: return RCVI_NUMBER_FLOAT;
    case RCVI_AS_FLOAT64: return RCVI_NUMBER_DOUBLE;
    case RCVI_AS_FLOAT16: return RCVI_NUMBER_FLOAT16;
    case RCVI_AS_BFLOAT16: return RCVI_NUMBER_BFLOAT16;
    default:
        if (rcvi_view_is_narrow(engine, view)) return RCVI_NUMBER_BFLOAT16;
        return engine->type == RCVI_KERNEL_DOUBLE ? RCVI_NUMBER_DOUBLE : RCVI_NUMBER_FLOAT;
    }
}
/* Bytes of an element of a view's buffer. */
static inline int64_t rcvi_view_bytes(const rcvi_engine *engine, const rcvi_view *view) {
    const rcvi_program *program = engine->program;
    return (int64_t)rcvi_element_bytes(program, program->buffers[view->buffer].element);
}

/* Address of the first element of a view in this call; NULL for an optional array that the caller did not give. */
void *rcvi_locate_view(const rcvi_step_call *call, const rcvi_view *view);

/* Each runs the member's part of a step. */
void rcvi_run_map(const rcvi_step_call *call);
void rcvi_run_gemm(const rcvi_step_call *call);
void rcvi_run_pack(const rcvi_step_call *call);
void rcvi_run_reduce(const rcvi_step_call *call); /* only where rcvi_step_sums_rows */
/* The reference code, in portable C: all other kinds of steps; in naive programs also maps and gemms. */
void rcvi_run_step_float(const rcvi_step_call *call);
void rcvi_run_step_double(const rcvi_step_call *call);

/* Bytes of scratch that one member needs for the step. */
size_t rcvi_map_scratch(const rcvi_engine *engine, const rcvi_step *step, const rcvi_compiled_map *compiled);
size_t rcvi_gemm_scratch(const rcvi_engine *engine, const rcvi_step *step);

/* Leading dimension, in elements, of a left operand rounded to bfloat16: whole cache lines of 64 bytes, never a multiple of
 * 512 bytes, so that the rows of a tile do not map to the same few cache sets. */
static inline int64_t rcvi_narrow_row(int64_t depth, int64_t group) {
    int64_t multiple = group > 32 ? group : 32, row = (depth + multiple - 1) / multiple * multiple;
    return row % 256 ? row : row + 32;
}

#endif
