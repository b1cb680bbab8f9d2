/* Maps as CUDA source.
 *
 * A kernel is written from a map's structure: operations, types, which views repeat a row or a column. Sizes, strides
 * and addresses are arguments, so one kernel serves every shape. Arguments are words of 8 bytes, passed by value:
 *
 *   words[0]                  columns
 *   words[1 .. V]             elements from row to row of view 0 .. V-1
 *   words[1+V .. V+D]         depth of pass 0 .. D-1 (products only)
 *   then, for each member:    rows (or, counted, the address of that number), then the addresses of views 0 .. V-1, then
 *                             those of rounded copies 0 .. R-1
 *
 * Views are the map's operands, then for every product its start and, for every term, a and b; a product without a
 * start has words for it too, which are not read. A rounded copy is a second, 16-bit place of a view that is written, with the same
 * strides, which products read. An address of 0 is a view that the caller left out: nothing is stored there.
 *
 * Members are steps of the same structure and strides, several of which are one launch: blockIdx.z is the member.
 *
 * Products are computed in tiles (tile_pipeline.cuh) by passes: a pass goes along the depth of one left operand and multiplies it with
 * the right operands of all products that have a term with it. */
#ifndef RCVI_CUDA_SOURCE_H
#define RCVI_CUDA_SOURCE_H

#include "device/cuda/cuda.h"

enum {
    RCVI_MAX_PASSES = 16,
    RCVI_ROW_SUMS = 16, /* of a row that are computed together */
    RCVI_MAX_VIEWS = RCVI_MAX_OPERANDS + RCVI_MAX_PRODUCTS * (2 * RCVI_MAX_TERMS + 1)
};

/* All that the text of a map's kernel depends on. Pointers stay the caller's. */
typedef struct {
    const rcvi_map *map;
    const unsigned char *types; /* [views] rcvi_cuda_type */
    const bool *has_rounded;    /* [operands] written to a second place, of type `narrow` */
    const bool
        *transposed;       /* [operands] read feature after feature: the stride is from column to column; may be NULL */
    rcvi_cuda_type real;   /* what is computed in: RCVI_F32 or RCVI_F64 */
    rcvi_cuda_type narrow; /* of rounded copies, and of operands of products: BF16, F16, or as real */
    bool tensor;           /* products of F32 operands on the tensor cores (tf32) */
    int vector;            /* elements of a row that a thread takes at once: 4, 2 or 1; columns, and strides and
                                   addresses of views with columns (in elements), are multiples of it */
    int widest;   /* the largest vector that the map allows: persistent kernels, which have few threads, use it */
    int members;  /* at most, in one launch */
    bool counted; /* a member's number of rows is read from memory */
    int row_threads; /* of a map with sums over its columns: a block a row, of so many threads (a power of 2, 32 to 1024); else 0 */
    /* products only */
    bool aligned;              /* rows and depths of left operands are multiples of 16 bytes */
    int tile_rows, tile_units; /* of a block: rows (16, 32 or 64), and columns of every product (a multiple of 8; 128 of
                                 all products at most) */
    int stages;                /* of the pipeline, at least 4 */
} rcvi_map_shape;

/* One pass over a depth: the left operand's view, and the right operand's view of every product, or RCVI_NONE. */
typedef struct {
    int a;
    int b[RCVI_MAX_PRODUCTS];
    int64_t depth;
} rcvi_pass;

/* In a persistent kernel: an operand that is written for other blocks. */
typedef struct {
    int view;     /* an operand of the map */
    int argument; /* among the step's arguments */
    int chunks;   /* chunks of 128 bytes of the operand that others read, of all its parts; 0: a value with flags */
} rcvi_map_link;

typedef struct {
    const bool *is_remote;          /* [views] written by other blocks in this iteration: loaded after the wait */
    const bool *is_exported;        /* [operands] read by other blocks: stored before the signal */
    const bool *is_short;           /* [operands] written only in rows that have not ended */
    const bool *is_in_caller_order; /* [operands] written in the order of the caller's rows */
    const bool *is_flagged_only;    /* [operands] stored only with flags */
    const int *flags;               /* [views] argument of what is read with flags, or RCVI_NONE */
    const int *carried; /* [operands] the one that had, an iteration before, what this one reads, or RCVI_NONE */
    const rcvi_map_link *writes;
    int write_count, signal_count; /* operands of products elsewhere; counters that are incremented */
    int wait_count;                /* counters of values of other tasks */
    int row_argument;              /* number of rows that have not ended; the next one is their order; or RCVI_NONE */
    rcvi_cuda_type operand;        /* element type of what other blocks multiply */
    bool started;                  /* sums already include what products start from */
    int row_threads;               /* by rows: threads of a row, else 0 */
    int64_t columns;               /* of a row */
} rcvi_map_links;

/* Views of a map in the order of the arguments: `views` gets pointers into the map. Returns how many there are. */
int rcvi_map_views(const rcvi_map *map, const rcvi_view **views);
/* The view from which a product's sum starts; its terms' operands follow it. */
int rcvi_map_start_view(const rcvi_map *map, int product);
/* Whether it sums over columns. */
bool rcvi_map_has_sums(const rcvi_map *map);
/* The passes of a map. Returns how many there are, 0 without products, or -1 where there are more than RCVI_MAX_PASSES. */
int rcvi_map_passes(const rcvi_map *map, rcvi_pass *passes);

/* The kernel `map_kernel` as text. Launch: 256 threads in x; without products (ceil(columns / (32 * vector)),
 * ceil(rows / 8), members) blocks, of which there may be fewer in y; with sums over columns (rows, 1, members) blocks of
 * row_threads, as many as there are times `vector` columns, or more; with products (ceil(columns / tile_units),
 * ceil(rows / tile_rows), members) blocks of rcvi_tile_threads and rcvi_tile_shared bytes of dynamic shared memory. */
rcv_status rcvi_map_source(rcv_context *context, const rcvi_map_shape *shape, char **text);
/* The map as `struct StepNUMBER` of a persistent kernel: see persistent.cuh. */
rcv_status rcvi_map_step_text(rcv_context *context, const rcvi_map_shape *shape, const rcvi_map_links *links,
                              int number, char **text);
extern const char *const rcvi_source_types[]; /* [rcvi_cuda_type] */
/* A number of type `real`; an instruction, and the end of a statement, whose operands `add` names. An operation that is named by letters
 * is the function op_NAME of map_element.cuh, another one an operator. */
typedef void (*rcvi_add_operand)(void *self, const rcvi_instruction *instruction, int argument);
void rcvi_source_add_number(rcvi_text *text, rcvi_cuda_type real, double number);
void rcvi_source_add_operation(rcvi_text *text, const rcvi_instruction *instruction, rcvi_add_operand add, void *self);
int rcvi_tile_threads(const rcvi_map_shape *shape);
size_t rcvi_tile_shared(const rcvi_map_shape *shape); /* bytes */
int rcvi_map_words(const rcvi_map_shape *shape);      /* of the arguments */
/* Rounded copies of the views before this one. */
int rcvi_map_count_rounded(const rcvi_map_shape *shape, int before);

#endif
