/* A program made ready for a GPU: kernels compiled, algorithms chosen, steps put in order. An engine is made once for a plan and
 * shared by all of its runs; it does not change after rcvi_cuda_engine_load.
 *
 * Types. Arithmetic is in `real` (float, or double). Products read `narrow`: 16 bits in plans of such a type, else real. A buffer of
 * reals that a product reads in a plan of a 16-bit type has a rounded copy at the same element offsets in the run's scratch. Every step
 * that writes the buffer writes the rounded copy too; those of the caller's arrays are made at the beginning of the forward pass.
 *
 * In place. A buffer that is a plain copy of the caller's dy, or that is only copied to the caller's dx, is the caller's array itself
 * where the call has one, and the copy is left out (`stand_ins`).
 *
 * Layout. Where the plan transposes, a buffer that cuBLASLt writes and only maps read is stored transposed.
 *
 * Order. The steps between two loops, or of a loop's body, are a segment. A step's level is one more than the highest level of the
 * earlier steps of its segment that it depends on; so steps of a level may run in any order, or at the same time. Steps are launched
 * by level. Where the plan merges, steps of a level with the same kernel and strides are one launch, a group; they are its members. */
#ifndef RCVI_CUDA_ENGINE_H
#define RCVI_CUDA_ENGINE_H

#include "device/cuda/codegen/map_table.h"
#include "device/cuda/codegen/source.h"
#include "device/cuda/cuda.h"
#include "device/cuda/cudnn/vendor.h"
#include "device/cuda/gemm/split_gemm.h"

#include <stdatomic.h>

enum { RCVI_MAX_MEMBERS = 24, RCVI_MAX_STREAMS = 16, RCVI_MAX_WORDS = 500, RCVI_LENGTH_CLASSES = 4 };

/* The kernel of a map: compiled from source, or the interpreter's. */
typedef struct {
    cudaLibrary_t code;
    cudaKernel_t kernel;
    rcvi_map_shape shape; /* its tables are in the engine's pool */
    char *source;         /* NULL: the map is interpreted */
    rcvi_map_table table; /* then */
    size_t shared;        /* bytes of dynamic shared memory, of a compiled kernel */
} rcvi_cuda_kernel;

/* What is prepared for a step. */
typedef struct {
    int kernel;     /* of a map: index in the engine's list */
    int view_count; /* of a map, as are views and passes */
    const rcvi_view **views;
    rcvi_pass *passes;
    int pass_count;
    /* Of a gemm: algorithms for its rows (its depth, where a is transposed), for a quarter of them, and so on: a call takes the last one
     * that is enough. NULL: there is none. */
    rcvi_cuda_gemm *gemms[RCVI_LENGTH_CLASSES];
    bool owns_gemm[RCVI_LENGTH_CLASSES]; /* else it belongs to an earlier step of the same shape */
    bool adds_start; /* the library cannot start from the row: it is copied to all rows, and the product is added */
    int operand;     /* split-bf16 emulation: number of the left operand, from 1 on; 0: the product is not split */
    rcvi_split_gemm *split; /* of such a product, instead of gemm */
    bool owns_split;
} rcvi_cuda_ready;

/* Steps of one launch. */
typedef struct {
    int first, count; /* in the engine's order */
    int place;        /* among the groups of its level */
} rcvi_cuda_group;

typedef struct rcvi_persistent rcvi_persistent;             /* a time loop that is one kernel: persistent.h */
typedef struct rcvi_cuda_recurrences rcvi_cuda_recurrences; /* a loop of maps alone: recurrence.h */

struct rcvi_engine {
    const rcvi_program *program;
    rcv_context *context;
    rcvi_pool pool;
    int ordinal;
    int major, minor, processors; /* of the device: compute capability, multiprocessors */
    int shared;                   /* bytes of shared memory that a block may have */
    rcvi_cuda_type real, narrow;
    bool tensor;            /* products of float32 operands as tf32 */
    rcvi_cuda_ready *ready; /* [steps] */
    rcvi_cuda_kernel *kernels;
    size_t kernel_count, kernel_capacity;
    void *tables; /* of interpreted maps, in the GPU's memory */
    rcvi_cuda_blas *blas;
    int *order; /* [steps] by segment and level; a loop keeps its place */
    rcvi_cuda_group *groups;
    int *group_of; /* [steps] the group that begins at this place of the order, or RCVI_NONE */
    size_t group_count;
    int64_t launches; /* of both passes, an estimate */

    /* Layout of buffers: layout.c. */
    size_t
        *rounded; /* [buffers] offset of the rounded copy in the scratch, or in what is kept; SIZE_MAX: there is none */
    bool *rounded_is_kept; /* [buffers] the backward pass reads the rounded copy */
    int64_t *
        transposed; /* [buffers] rows of a buffer that is stored feature after feature (Y^T = W X^T); 0: row after row */
    bool *padded;   /* [buffers] every step that writes rows writes zeros after them, up to the next row */
    int *stand_ins; /* [buffers] the caller's buffer that may be used in its place, or RCVI_NONE */
    bool covers;    /* every gradient of a parameter is written by exactly one step, outside of loops */

    /* Scratch of a run: offsets in bytes, and sizes. scratch.c. The first four are in what is kept. */
    size_t lengths, rows_order, alive, seed, workspace, sums;
    size_t workspace_bytes, sums_bytes;                    /* workspace of the first stream; sums of every stream */
    size_t beside_bytes;                                   /* workspace of every other stream */
    size_t split_a, split_b, split_a_bytes, split_b_bytes; /* split operands: a slot of each for every stream */
    int operand_count;                                     /* of split left operands */
    size_t exchange, counters, exchange_bytes,
        counters_bytes; /* of persistent kernels: operands passed between blocks, counters */
    size_t scans, scans_bytes, scan_sums,
        scan_sums_bytes; /* of scans: states passed between tiles, and sums of tiles */
    size_t scratch;      /* all of it */
    size_t kept; /* bytes kept from a forward to its backward pass: seed, lengths, order, alive, rounded copies */
    int streams;

    /* Sequences of different lengths: ragged.c. */
    bool sorts;          /* runs sort sequences by length */
    bool counts;         /* kernels of short steps read the number of rows from `alive`, [steps] in the scratch */
    bool has_alive;      /* it is there, for these or for persistent kernels */
    bool *is_short;      /* [steps] computes only the rows whose sequences have not ended */
    int *cleared_before; /* [buffers] the loop before which it is cleared, or RCVI_NONE */

    /* Loops that are one kernel, or a few. */
    rcvi_persistent **persistent;        /* [steps] of loops that are one kernel, else NULL */
    rcvi_cuda_recurrences **recurrences; /* [steps] of loops of maps, where the plan scans, else NULL */
    rcvi_sizing *loop_sizings;           /* [steps] of these loops, where calls may have other sizes; else NULL */
    const char *not_scanned;             /* why the first loop of maps that is launched step by step is, or NULL */
    const char *not_persistent;          /* the same for loops with products */
    const char *not_clustered; /* why the first persistent loop has no clusters where the plan asks for them, or NULL */

    _Atomic(rcvi_cudnn *)
        *vendor; /* one that no run uses now, or NULL; the pointer itself is NULL without a vendor step */
    size_t vendor_bytes;

    struct rcvi_jit_unit
        *compiled; /* [compiled_count] code of all kernels, until it is loaded; NULL: not compiled yet */
    size_t compiled_count;
};

rcv_status rcvi_cuda_engine_new(const rcvi_program *program, rcvi_engine **engine);
/* Compiles the kernels, and loads them into the GPU. */
rcv_status rcvi_cuda_engine_load(rcvi_engine *engine);
/* Compiles the kernels of several engines at once, ahead of rcvi_cuda_engine_load; see `compile` of a device. */
bool rcvi_cuda_engines_compile(rcvi_engine *const *engines, size_t count, bool (*go_on)(void *user), void *user);
/* Are all kernels in the cache on disk? */
bool rcvi_cuda_engine_is_compiled(const rcvi_engine *engine);
void rcvi_cuda_engine_drop_compiled(rcvi_engine *engine);
void rcvi_cuda_engine_free(rcvi_engine *engine);

/* ---- steps of making one, in this order ---- */

/* layout.c: types, rounded copies, transposed buffers, rows that are left out: all that follows from the program alone. */
rcv_status rcvi_cuda_find_layout(rcvi_engine *engine);
/* layout.c: after loops are prepared, drops the rounded copies of inputs that only persistent kernels multiply. */
void rcvi_cuda_drop_rounded(rcvi_engine *engine);

/* map_kernels.c: the shape of a map's kernel, its views and passes. The kernel may be shared with others of these steps. */
rcv_status rcvi_cuda_shape_map(rcvi_engine *engine, const rcvi_step *step, const rcvi_step *steps, size_t step_count,
                               rcvi_cuda_ready *ready, rcvi_map_shape *shape);
rcv_status rcvi_cuda_prepare_map(rcvi_engine *engine, const rcvi_step *step, rcvi_cuda_ready *ready);

/* products.c: the library's product of a step over `span` time steps. */
rcvi_cuda_gemm_shape rcvi_cuda_shape_gemm(const rcvi_engine *engine, const rcvi_step *step, int64_t span);
bool rcvi_cuda_same_shape(const rcvi_cuda_gemm_shape *a, const rcvi_cuda_gemm_shape *b);
rcv_status rcvi_cuda_prepare_gemm(rcvi_engine *engine, size_t index);
/* Algorithms for calls with fewer rows, or less depth. */
rcv_status rcvi_cuda_prepare_short_gemms(rcvi_engine *engine);
/* The algorithm of a step for so many rows, or so much depth where a is transposed. */
const rcvi_cuda_gemm *rcvi_cuda_gemm_for(const rcvi_cuda_ready *ready, const rcvi_step *planned, int64_t length);
/* Whether the step, launched alone, goes to another stream than the first: see pass.c. */
bool rcvi_cuda_goes_beside(const rcvi_engine *engine, size_t step);

/* split_products.c: numbers the left operands of products by split-bf16 emulation; after the layout. */
void rcvi_cuda_find_split_products(rcvi_engine *engine);
rcv_status rcvi_cuda_prepare_split(rcvi_engine *engine, size_t index);

/* order.c: levels and groups; kernels are known. */
rcv_status rcvi_cuda_order(rcvi_engine *engine);

/* scratch.c: offsets of the scratch; all sizes are known. */
void rcvi_cuda_lay_out_scratch(rcvi_engine *engine);

/* sizes.c: prepares for calls of other sizes than the program's own. */
rcv_status rcvi_cuda_serve_sizes(rcvi_engine *engine, const rcvi_sizing *sizing);
/* The part of it that needs no GPU: how numbers of loops that are one kernel, or a few, follow from the sizes. */
rcv_status rcvi_cuda_fit_loops(rcvi_engine *engine, const rcvi_sizing *sizing);

/* ---- small questions ---- */

/* Whether the step's kernel reads the number of rows from memory. */
static inline bool rcvi_cuda_is_counted(const rcvi_engine *engine, size_t step) {
    return engine->counts && engine->is_short[step];
}

static inline bool rcvi_cuda_has_rounded(const rcvi_engine *engine, int buffer) {
    return engine->rounded[buffer] != SIZE_MAX;
}

/* The element type of a view's buffer; that of its rounded copy is `narrow`. */
rcvi_cuda_type rcvi_cuda_type_of(const rcvi_engine *engine, const rcvi_view *view);

/* Whether every row begins at a multiple of `each` elements, in every iteration. */
static inline bool rcvi_cuda_is_multiple(const rcvi_view *v, int64_t each) {
    return v->row % each == 0 && v->offset % each == 0 && v->stride % each == 0 && v->outer % each == 0 &&
           v->slot % each == 0;
}

/* Whether the view's buffer holds activations where the kernel writes a real and its rounded copy: then the buffer takes the place of
 * the rounded copy, and the real is absent. */
static inline bool rcvi_cuda_is_narrowed(const rcvi_engine *engine, const rcvi_map_shape *shape, int v,
                                         const rcvi_view *view) {
    return v < shape->map->operand_count && shape->has_rounded[v] &&
           (rcvi_cuda_type)shape->types[v] != rcvi_cuda_type_of(engine, view);
}

/* Bytes, rounded up to the alignment of parts of the scratch. */
static inline size_t rcvi_cuda_align(size_t bytes) { return (bytes + 255) / 256 * 256; }

#endif
