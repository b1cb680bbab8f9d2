/* A program made ready for a GPU: kernels compiled, algorithms chosen, steps put in order.
 *
 * Types. What is computed in is `real` (float, or double); what products read is `narrow` (16 bits in plans of such a type,
 * else the same). A buffer of reals that products read in a plan of a 16-bit type has a rounded copy at the same element
 * offsets in the run's scratch. Whoever writes the buffer writes the rounded copy; rounded copies of what is the caller's are
 * made at the beginning of the forward pass.
 *
 * In place. A buffer that is a copy of the caller's dy as it is, or that is only copied to the caller's dx, is the caller's memory
 * where the call has it, and the copy is left out: a stand-in.
 *
 * Layout. Where the plan transposes, what products of their own leave and maps alone read is stored transposed.
 *
 * Order. The steps between two loops, or of a loop's body, are a segment. A step's level in it is one more than the
 * highest of the steps before it that it must wait for, so steps of a level may be taken in any order, or at once. Steps
 * are taken by level; where the plan merges, those of a level with the same kernel and strides are one launch, a group. */
#ifndef RCVI_CUDA_ENGINE_H
#define RCVI_CUDA_ENGINE_H

#include "device/cuda/codegen/source.h"
#include "device/cuda/cuda.h"
#include "device/cuda/cudnn/vendor.h"
#include "device/cuda/gemm/parts.h"

#include <stdatomic.h>

enum { RCVI_MAX_MEMBERS = 24, RCVI_MAX_STREAMS = 16, RCVI_MAX_WORDS = 500 };

typedef struct {
    cudaLibrary_t code;
    cudaKernel_t kernel;
    rcvi_map_shape shape; /* its tables in the engine's pool */
    char *source;
    size_t shared;
} rcvi_cuda_kernel;

/* What a step needs beside itself. */
typedef struct {
    int kernel;     /* of a map, in the engine's list */
    int view_count; /* of a map */
    const rcvi_view **views;
    rcvi_pass *passes;
    int pass_count;
    rcvi_cuda_gemm *gemm, *last_gemm; /* of the whole span; of the last chunk, where that is shorter */
    bool owns_gemm, owns_last;
    bool adds_start;        /* the library does not: the row is copied to all rows before, and the product added */
    int operand;            /* of a product in parts: number of its `a`, from 1 on; 0: it is not in parts */
    rcvi_cuda_parts *parts; /* then in the place of gemm */
    bool owns_parts;
} rcvi_cuda_ready;

typedef struct {
    int first, count; /* steps in the engine's order */
    int place;        /* among the groups of its level */
} rcvi_cuda_group;

/* A time loop that is one kernel: persistent.h. */
typedef struct rcvi_persistent rcvi_persistent;
/* One of maps alone: recurrence.h. */
typedef struct rcvi_cuda_recurrences rcvi_cuda_recurrences;

struct rcvi_engine {
    const rcvi_program *program;
    rcv_context *context;
    rcvi_pool pool;
    int ordinal;
    int major, minor, processors; /* of the device */
    int shared;                   /* bytes of its shared memory that a block may have */
    rcvi_cuda_type real, narrow;
    bool tensor;            /* tf32 */
    rcvi_cuda_ready *ready; /* [steps] */
    rcvi_cuda_kernel *kernels;
    size_t kernel_count, kernel_capacity;
    rcvi_cuda_blas *blas;
    int *order; /* [steps] by segment and level; a loop keeps its place */
    rcvi_cuda_group *groups;
    int *group_of; /* [steps] the group that begins at this place of the order, or RCVI_NONE */
    size_t group_count;
    int64_t launches; /* of both passes, about */
    /* Scratch: bytes from its start. */
    size_t *rounded; /* [buffers] or SIZE_MAX */
    int64_t *
        transposed; /* [buffers] rows of a buffer that is stored feature after feature (Y^T = W X^T); 0: row after row */
    bool *padded;   /* [buffers] whoever writes rows writes zeros behind them, up to the next row: see find_padded */
    int *stand_ins; /* [buffers] the caller's, of which it is a mere copy: may be taken in its place; or RCVI_NONE */
    bool covers;    /* gradients of parameters: each is one step's, outside of loops, and none is left out */
    size_t lengths, rows_order, alive, seed, workspace, sums;
    size_t workspace_bytes, sums_bytes;                    /* of one stream; of the first */
    size_t beside_bytes;                                   /* workspace of every other one */
    size_t split_a, split_b, split_a_bytes, split_b_bytes; /* parts of operands: a slot and a place for every stream */
    int operand_count;
    size_t scratch;
    int streams;
    bool sorts;       /* sequences by their lengths: see ragged.c */
    bool counts;      /* kernels of short steps read how many rows there are: alive, [steps], in the scratch */
    bool has_alive;   /* it is there, for these or for persistent kernels */
    bool *is_short;   /* [steps] takes the rows that go on alone */
    bool *is_cleared; /* [buffers] before the loop with which its life begins */
    rcvi_persistent **persistent;        /* [steps] of loops that are one kernel; NULL: launched step by step */
    rcvi_cuda_recurrences **recurrences; /* [steps] of loops of maps, likewise, where the plan scans */
    const char *not_scanned;             /* why the first of those is launched step by step, or NULL */
    const char *not_persistent;          /* why the first of those that are not, or NULL */
    const char *not_clustered; /* the same of those whose blocks do not meet in clusters, where the plan asks for it */
    size_t exchange, counters; /* where their blocks pass operands to each other, and count */
    size_t exchange_bytes, counters_bytes;
    size_t scans, scans_bytes, scan_sums, scan_sums_bytes; /* where tiles of scans pass states on, and leave sums */
    _Atomic(rcvi_cudnn *) *vendor; /* one that no run has, or NULL; itself NULL where the program needs none */
    size_t vendor_bytes;
};

rcv_status rcvi_cuda_engine_new(const rcvi_program *program, rcvi_engine **engine);
rcv_status rcvi_cuda_engine_load(rcvi_engine *engine); /* compiles its kernels, and takes them to the GPU */
void rcvi_cuda_engine_free(rcvi_engine *engine);

/* Types, rounded copies, what is stored transposed, rows that are left out: all that follows from the program alone. */
rcv_status rcvi_cuda_find_layout(rcvi_engine *engine);

/* The library's product of a step, at so many time steps. */
rcvi_cuda_gemm_shape rcvi_cuda_shape_gemm(const rcvi_engine *engine, const rcvi_step *step, int64_t span);
bool rcvi_cuda_same_shape(const rcvi_cuda_gemm_shape *a, const rcvi_cuda_gemm_shape *b);
/* Gives numbers to the operands of products that are taken in parts. The layout is found. */
void rcvi_cuda_find_parts(rcvi_engine *engine);
/* Whether it is taken on another stream than the first, if it is launched by itself: see pass.c. */
bool rcvi_cuda_goes_beside(const rcvi_engine *engine, const rcvi_step *step);
/* One of these products. */
rcv_status rcvi_cuda_prepare_parts(rcvi_engine *engine, size_t index);

/* Levels and groups. Kernels are known. */
rcv_status rcvi_cuda_order(rcvi_engine *engine);

/* What of a map goes into its kernel, and its views and passes. It may share the kernel with others of these steps. */
rcv_status rcvi_cuda_shape_map(rcvi_engine *engine, const rcvi_step *step, const rcvi_step *steps, size_t step_count,
                               rcvi_cuda_ready *ready, rcvi_map_shape *shape);

/* Does the step's kernel read how many rows there are? */
static inline bool rcvi_cuda_is_counted(const rcvi_engine *engine, const rcvi_step *step) {
    return engine->counts && engine->is_short[step - engine->program->steps];
}

static inline bool rcvi_cuda_has_rounded(const rcvi_engine *engine, int buffer) {
    return engine->rounded[buffer] != SIZE_MAX;
}
/* What a view's elements are where they are not read as a rounded copy. */
rcvi_cuda_type rcvi_cuda_type_of(const rcvi_engine *engine, const rcvi_view *view);

/* Elements at multiples of `each`, whatever the iteration. */
static inline bool rcvi_cuda_is_multiple(const rcvi_view *v, int64_t each) {
    return v->row % each == 0 && v->offset % each == 0 && v->stride % each == 0 && v->outer % each == 0 &&
           v->slot % each == 0;
}

/* Does the view hold activations where the kernel has a real and its rounded copy? Then the rounded copy is the view. */
static inline bool rcvi_cuda_is_narrowed(const rcvi_engine *engine, const rcvi_map_shape *shape, int v,
                                         const rcvi_view *view) {
    return v < shape->map->operand_count && shape->has_rounded[v] &&
           (rcvi_cuda_type)shape->types[v] != rcvi_cuda_type_of(engine, view);
}

/* Makes the engine's device the current one; gives back the one before for rcvi_cuda_leave. */
rcv_status rcvi_cuda_enter(int ordinal, int *before);
void rcvi_cuda_leave(int before);

#endif
