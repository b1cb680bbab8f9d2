/* Programs: a schedule writes one, a device runs it.
 *
 * A program is a flat list of steps over named buffers. A LOOP step repeats the steps that follow it; inside, a view moves by `stride`
 * elements an iteration, so that a program is as long as one time step, not as the sequence. A loop may contain loops, which contain none:
 * the outer one then goes over chunks of time steps, the inner ones over the steps of a chunk. The first `forward_count` steps are the
 * forward pass; the others are the backward pass, which runs later over the same buffers. The buffers' lifetimes follow from what steps
 * read and write, and their offsets in one arena follow from the lifetimes. */
#ifndef RCVI_PROGRAM_H
#define RCVI_PROGRAM_H

#include "net/net.h"
#include "program/rungs.h"

/* Element types. RCVI_REAL: the plan's float type (float for the 16-bit types and tfloat32). RCVI_BYTE: uint8. RCVI_INDEX: int64.
 * RCVI_PACKED: of packed matrices (16 bits for a 16-bit type). RCVI_ACTIVATION: values that a plan of a 16-bit type stores in that type
 * (else the same as RCVI_REAL). The last ones: of the caller's arrays that are declared in another type; only copies, selections and fills
 * touch them. A copy that accumulates adds in the wider of its two types. */
typedef enum {
    RCVI_REAL,
    RCVI_BYTE,
    RCVI_INDEX,
    RCVI_PACKED,
    RCVI_ACTIVATION,
    RCVI_AS_FLOAT32,
    RCVI_AS_FLOAT64,
    RCVI_AS_FLOAT16,
    RCVI_AS_BFLOAT16
} rcvi_element;

/* May a plan of a 16-bit type round what a buffer holds? States, accumulators and the caller's arrays stay exact. Products round their
 * operands anyway: where a buffer is read only as an operand of products and as a factor of gradients, storing it rounded changes no
 * result. */
typedef enum { RCVI_EXACT, RCVI_ROUNDED_AS_OPERAND, RCVI_ROUNDED } rcvi_rounding;

/* A device's properties, as far as schedules and the planner need them. */
typedef struct {
    int64_t threads;         /* that the plan may use */
    int64_t cache;           /* bytes of cache private to a thread's core */
    int64_t shared;          /* bytes of the last-level cache that threads share; 0: none, or unknown */
    int64_t panel;           /* columns of a panel of a packed matrix of the plan's type */
    int64_t grain;           /* threads split columns at multiples of this */
    int64_t group;           /* the depth of packed matrices is padded to a multiple of this */
    const char *vendor;      /* the vendor library's name and version, or NULL where there is none */
    const char *no_vendor;   /* then: a sentence that says why, or NULL where the build has none */
    const char *no_blas;     /* why there is no OpenBLAS; NULL: there is, or none is needed */
    const char *no_compiler; /* why no kernels can be compiled for a cell; NULL: they can, or need not be */
    const char *kernels;     /* name of the kernel set in use; on a GPU its architecture */
    const char *processor;   /* a GPU's name, with the parts in use; NULL: the CPU */
    const char *libraries;   /* versions of the driver and of libraries that a plan's speed depends on; NULL: none */
    bool gpu;                /* steps are launches, not shared by threads; operands of products have the plan's type */
    int64_t max_sum_columns; /* a map with at most so many columns may hold sums over them; 0: no map may */
    /* A product outside of loops of at least so many multiply-adds is better a gemm step, by the library, than part of a
     * map of packed matrices; 0: none is. */
    int64_t min_library_product;
    bool gemm_writes_activations; /* such a gemm step may write activations, and start its sums from them */
    int ordinal;                  /* of the GPU */
} rcvi_machine;

/* What a buffer is. All but RCVI_ARENA are the caller's arrays. Optional ones may be absent: then a copy from one reads zeros, and a step
 * that writes to one is skipped. */
typedef enum {
    RCVI_ARENA,
    RCVI_PARAMETERS, /* `index`: 0, the flat array; or the tensor, where the options separate parameters */
    RCVI_X,
    RCVI_LENGTHS,
    RCVI_RESETS,
    RCVI_Y,
    RCVI_INITIAL,     /* optional; `index` is the state, here and below */
    RCVI_RESTART,     /* optional; the initial state where the caller gives none */
    RCVI_FINAL,       /* optional */
    RCVI_DY,          /* optional */
    RCVI_DFINAL,      /* optional */
    RCVI_DX,          /* optional */
    RCVI_DINITIAL,    /* optional */
    RCVI_DRESTART,    /* optional */
    RCVI_DPARAMETERS, /* optional; `index` as of the parameters */
    RCVI_ROLE_COUNT
} rcvi_role;

typedef struct {
    const char *name;
    bool optional, written; /* may be absent; is an output */
} rcvi_role_info;
extern const rcvi_role_info rcvi_roles[RCVI_ROLE_COUNT];

typedef struct {
    const char *name;
    rcvi_role role;
    size_t index;
    rcvi_element element;
    rcvi_rounding rounding;
    int64_t count; /* elements */
    bool
        is_batch_major; /* of the caller's: row t * batch + b lies at b * steps + t; only copies and selections of all rows, and
                            RCVI_STEP_BOUNDARY, touch it */
    rcvi_role replaces;  /* of the arena: it holds these, in the plan's type (convert.c); else RCVI_ARENA */
    int theirs;          /* then: the caller's buffer */
    bool lasting;        /* computed from the parameters, and kept from call to call */
    bool kept;           /* written in the forward pass and read in the backward pass: it lies in the reserve */
    bool distant;        /* read long after it is written: it stays in cache only if all such buffers fit */
    int first, last;     /* lifetime, in steps; first > last: unused */
    size_t arena_offset; /* bytes */
    size_t arena_bytes;  /* reserved for it, for the largest call; 0: it has no place yet */
} rcvi_buffer;

/* A matrix inside a buffer: element (r, c) at offset + i * stride + o * outer + ((t + phase) mod wrap) * slot +
 * r * row + c * column, in iteration i of the innermost loop and o of the one around it, at the step's time t. */
typedef struct {
    int buffer;
    int64_t offset, stride, outer;
    int64_t row, column; /* 0 repeats one row (a bias) or one column (a value of size one) */
    int64_t slot;
    int64_t phase; /* >= 0 */
    int wrap;      /* 0: no slots */
} rcvi_view;

typedef enum {
    RCVI_STEP_LOOP,     /* repeat the next `body` steps `count` times */
    RCVI_STEP_GEMM,     /* out[rows, columns] (+)= op(a) op(b), `batch` times */
    RCVI_STEP_MAP,      /* out = operations on operands, element by element */
    RCVI_STEP_REDUCE,   /* out (+)= a summed over rows or over columns */
    RCVI_STEP_COPY,     /* out = a */
    RCVI_STEP_FILL,     /* out = number */
    RCVI_STEP_SELECT,   /* out[r] = mask[r] ? a[r] : b[r], a missing operand being zero */
    RCVI_STEP_DROPOUT,  /* out = a scaled by 1 / (1 - p), or zero with probability p; without a: one, or zero */
    RCVI_STEP_LIVE,     /* mask[t, b] = t < lengths[b] */
    RCVI_STEP_BOUNDARY, /* mask[t, b] = a reset at t within the sequence; one more row of zeros at t = steps */
    RCVI_STEP_PACK,     /* out = a[rows, columns] packed, for products with its transpose (with it, where transposed) */
    RCVI_STEP_VENDOR,   /* a whole pass by the vendor's library */
    RCVI_STEP_COMMUNICATE /* signal: out, the gradients of a layer's parameters, is complete; their exchange may begin */
} rcvi_step_kind;

enum {
    RCVI_MAX_OPERANDS = 320,
    RCVI_MAX_INSTRUCTIONS = 96,       /* of a map */
    RCVI_MAX_LONG_INSTRUCTIONS = 480, /* where maps may hold sums */
    RCVI_MAX_PRODUCTS = 16,
    RCVI_MAX_TERMS = 8
};

/* Instruction i computes register i from registers before it, views and products of the map, and numbers. RCVI_SUM, where
 * the machine allows it and the map has no products, is a register summed over the columns of its row: the same number
 * in all of them. Such numbers may be stored once a row, to a view whose column is 0. */
typedef struct {
    rcvi_operation operation;
    enum { RCVI_FROM_REGISTER, RCVI_FROM_VIEW, RCVI_FROM_NUMBER, RCVI_FROM_PRODUCT } from[3];
    int source[3];
    double number[3];
    int out; /* view it is stored to, or RCVI_NONE */
} rcvi_instruction;

/* start + the sum of a_i[rows, depth_i] b_i, with b_i packed, or the weights themselves: [columns, depth_i], or
 * [depth_i, columns] where transposed. */
typedef struct {
    rcvi_view start; /* RCVI_NONE: zeros */
    struct {
        rcvi_view a, b; /* b: the packed matrix, one row of all its elements; or the weights */
        int64_t depth;
        bool plain, transposed; /* the weights themselves; these as they are multiplied with in a derivative */
    } terms[RCVI_MAX_TERMS];
    int term_count;
    int out; /* view it is stored to, or RCVI_NONE */
} rcvi_product;

/* A further store of a value of a map. */
typedef struct {
    bool product; /* product `source`, else register `source` */
    int source;
    int out;
} rcvi_map_store;

/* Products first, then instructions; no instruction reads a view that an earlier one, or a product, is stored to. */
typedef struct {
    rcvi_product *products;
    int product_count;
    rcvi_instruction *instructions;
    int instruction_count;
    rcvi_map_store *stores;
    int store_count;
    rcvi_view *operands; /* read and written views of the map */
    int operand_count;
} rcvi_map;

/* When a step inside of loops is taken: at time t = base + i * inner + o * outer it is left out unless
 * 0 <= t < steps. With `span` > 1 it stands for the steps t .. t + span - 1 at once, so far as they exist, and has that
 * many times the batch as rows (or as depth, a gemm of transposed a). */
typedef struct {
    bool timed;
    int64_t base, inner, outer;
    int64_t span;
} rcvi_time;

typedef struct {
    rcvi_step_kind kind;
    enum {
        RCVI_ALWAYS,
        RCVI_WHEN_OVERWRITING,
        RCVI_WHEN_ADDING, /* a fill with zeros to which later steps add; not where a device stores what they would add */
        RCVI_WHEN_RESTART_IS_INITIAL,
        RCVI_WHEN_PARAMETERS_CHANGED
    } when;
    size_t state; /* of RCVI_WHEN_RESTART_IS_INITIAL */
    rcvi_time time;
    int layer, direction; /* that it belongs to; layer RCVI_NONE: to none */
    int64_t rows, columns;
    rcvi_view out, a, b, mask; /* buffer is RCVI_NONE where there is none */
    bool accumulate;           /* add to out; a copy of gradients: unless the call overwrites them */
    union {
        struct {
            int64_t count;
            int body;
        } loop;
        struct {
            int64_t depth;
            bool transpose_a, transpose_b;
            int64_t batch, step_out, step_a, step_b;
            const rcvi_view
                *start; /* one row from which all sums start, of one product that does not accumulate; or NULL */
        } gemm;
        struct {
            bool over_rows;
        } reduce;
        struct {
            double number;
        } fill;
        struct {
            double probability;
            uint64_t salt;  /* different for every mask */
            int64_t period; /* rows after which the mask is the same again; 0: never */
        } dropout;
        struct {
            bool transposed;
        } pack;
        struct {
            bool backward;
        } vendor;
        struct {
            int64_t signal; /* the layer; or the number of layers: the lead of the first one */
        } communicate;
        rcvi_map *map;
    };
} rcvi_step;

/* Time steps and sequences. */
typedef struct {
    int64_t steps, batch;
} rcvi_sizes;

typedef struct {
    rcvi_pool pool;
    const rcv_net *net;
    rcv_plan_options options; /* schedule: the plan string; steps and batch: the most that a call may have */
    rcvi_sizes
        sizes; /* that its numbers are for: those of a call (sizes.h). What a schedule decides depends on the options alone */
    int64_t chunks[2]; /* time steps of a chunk, in each pass, where loops go over chunks; else 0 */
    rcvi_rungs rungs;
    rcvi_machine machine;
    rcvi_buffer *buffers;
    size_t buffer_count, buffer_capacity;
    int *externals; /* those of them that are the caller's */
    size_t external_count, external_capacity;
    rcvi_step *steps;
    size_t step_count, step_capacity;
    size_t forward_count;
    int open_loops[2]; /* step indices of the loops being written */
    int open_loop_count;
    int layer, direction; /* marked on the steps that are written */
    rcvi_time time;       /* the same */
    size_t arena_bytes;   /* the reserve comes first */
    size_t reserve_bytes; /* of kept buffers */
    bool failed;          /* out of memory, or a size past 64 bits; see `oversized` */
    bool oversized;
} rcvi_program;

void rcvi_program_init(rcvi_program *program, const rcv_net *net, const rcv_plan_options *options,
                       const rcvi_rungs *rungs, const rcvi_machine *machine);
void rcvi_program_free(rcvi_program *program);

/* ---- writing ---- */

int rcvi_program_buffer(rcvi_program *program, rcvi_role role, size_t index, rcvi_element element, int64_t count,
                        const char *format, ...) __attribute__((format(printf, 6, 7)));
/* The buffer of one of the caller's arrays; made by the first call. */
int rcvi_program_external(rcvi_program *program, rcvi_role role, size_t index);
/* The element type of the caller's arrays that are declared so. */
rcvi_element rcvi_program_declared(const rcvi_program *program, rcv_array_type declared);
/* A matrix of so many columns in the parameters or in their gradients (role), from this element of the flat array on: in that array or, where
 * the options separate parameters, in the tensor that has the element. The matrix lies in one tensor. */
rcvi_view rcvi_program_parameters(rcvi_program *program, rcvi_role role, int64_t offset, int64_t columns);
/* Are these elements of the flat array in one array of the caller? Only then can one step use matrices that begin there as one matrix. */
bool rcvi_program_is_one_array(const rcvi_program *program, int64_t offset, int64_t other);
/* a * b * c elements; past 64 bits the program has failed and is oversized. */
int64_t rcvi_program_product(rcvi_program *program, int64_t a, int64_t b, int64_t c);
void rcvi_program_step(rcvi_program *program, const rcvi_step *step);
void rcvi_program_loop(rcvi_program *program, int64_t count);
void rcvi_program_end_loop(rcvi_program *program);

static inline rcvi_view rcvi_no_view(void) { return (rcvi_view){.buffer = RCVI_NONE}; }
static inline bool rcvi_view_equal(const rcvi_view *a, const rcvi_view *b) {
    return a->buffer == b->buffer && a->offset == b->offset && a->stride == b->stride && a->outer == b->outer &&
           a->row == b->row && a->column == b->column && a->slot == b->slot && a->wrap == b->wrap &&
           a->phase == b->phase;
}

/* Products of 16-bit operands, sums in float. */
static inline bool rcvi_dtype_is_narrow(rcv_dtype dtype) { return dtype == RCV_BFLOAT16 || dtype == RCV_FLOAT16; }

static inline int rcvi_most_instructions(const rcvi_machine *machine) {
    return machine->max_sum_columns ? RCVI_MAX_LONG_INSTRUCTIONS : RCVI_MAX_INSTRUCTIONS;
}

/* Elements of a packed matrix of this many columns (rows of the weights that are multiplied with transposed). */
int64_t rcvi_program_packed(rcvi_program *program, int64_t columns, int64_t depth);

/* Elements from row to row of what products read: on a GPU rows begin at multiples of 16 bytes, without which its library has no fast
 * products. */
int64_t rcvi_program_row(const rcvi_program *program, int64_t columns);

/* A step outside of loops: may it run later in the pass, up to the first step that reads what it writes? Gradients of the parameters, and
 * steps that depend on the parameters only. */
bool rcvi_step_is_deferrable(const rcvi_program *program, const rcvi_step *step);

/* ---- after writing ---- */

struct rcvi_access;

/* Does the buffer hold gradients of parameters: the caller's, or the sums in place of them? */
static inline bool rcvi_buffer_is_gradient(const rcvi_buffer *buffer) {
    return buffer->role == RCVI_DPARAMETERS || buffer->replaces == RCVI_DPARAMETERS;
}
/* Is every element of the gradients written by exactly one step, which adds, outside of loops? Where a call overwrites the gradients it may
 * then store them, without zeros first. */
bool rcvi_program_covers_gradients(const rcvi_program *program);
/* Where parameters or their gradients are declared in another type: gives the steps that cannot use the caller's arrays buffers of the plan's
 * own type, which copies fill, or are copied from. */
void rcvi_program_convert(rcvi_program *program);

/* Where the options have signals: inserts a signal step after the last step that writes to the gradients of a layer's parameters; and one for
 * the first parameters of the first layer (rcvi_first_layer_split). */
void rcvi_program_communicate(rcvi_program *program);

/* In plans of a 16-bit type, makes activations of the buffers of reals that may be rounded, where every step that touches them
 * can take them so. Before they are laid out. */
void rcvi_program_narrow(rcvi_program *program);
/* May this sum of a product end in activations, or start from them? Those that scans read, where the machine rounds them. */
bool rcvi_program_rounds_sum(const rcvi_program *program, const rcvi_step *step, const struct rcvi_access *access);
/* Computes lifetimes and arena offsets; sets arena_bytes and reserve_bytes. */
rcv_status rcvi_program_lay_out(rcvi_program *program);
/* Part of verification: no two buffers of the arena with overlapping lifetimes share bytes. */
rcv_status rcvi_program_check_arena(const rcvi_program *program);
/* May a device run it? Every view is inside its buffer in every iteration, nothing is read before it is written, no input of the caller
 * is written, and rcvi_program_check_arena holds. The message names the step. */
rcv_status rcvi_program_verify(const rcvi_program *program);
void rcvi_program_print(const rcvi_program *program, rcvi_text *out);

/* How a step uses a view. Only values and operands may be activations. */
typedef enum {
    RCVI_USE_VALUE,   /* element by element */
    RCVI_USE_OPERAND, /* of a product, or a term of a gradient that is summed over rows */
    RCVI_USE_OTHER    /* sums that start or end there; masks, packed matrices, arrays of a vendor's library */
} rcvi_use;

/* The views of a step, each with its extent and whether it is written and read; returns their number. */
typedef struct rcvi_access {
    const rcvi_view *view;
    int64_t rows, columns;
    bool written, read;
    bool spans; /* its rows are time steps times the batch where the step's time has a span */
    rcvi_use use;
} rcvi_access;
enum { RCVI_MAX_ACCESSES = RCVI_MAX_OPERANDS + RCVI_MAX_PRODUCTS * (2 * RCVI_MAX_TERMS + 1) + 4 };
int rcvi_step_accesses(const rcvi_step *step, rcvi_access *accesses);

/* Dead-step elimination over one pass, the steps first .. end - 1. A step outside of loops is dead where every buffer that it writes is
 * either absent (an optional output of the caller, NULL in `buffers`) or read by dead steps only. Reads of later passes keep a step
 * alive. Scratch: `needed`, [buffers]. Output: `dead`, [steps]. */
void rcvi_program_find_dead_steps(const rcvi_program *program, void *const *buffers, size_t first, size_t end,
                                  bool *needed, bool *dead);

/* Is this step a loop that a persistent plan runs as one kernel? One with products, and without a loop in it. */
bool rcvi_program_is_persistent(const rcvi_program *program, size_t loop);

/* Is it a loop of maps only, without a loop in it, in a plan that scans on a GPU? Then it runs as a few kernels, if it is a recurrence. */
bool rcvi_program_is_scan(const rcvi_program *program, size_t loop);

/* May both access an element, in the same iteration, that one of them writes? */
bool rcvi_accesses_conflict(const rcvi_program *program, const rcvi_access *a, const rcvi_access *b);
bool rcvi_steps_conflict(const rcvi_program *program, const rcvi_step *x, const rcvi_step *y);

/* Does a step run at these iterations? Sets its time, and how many times the batch it has as rows or depth. */
bool rcvi_step_is_due(const rcvi_program *program, const rcvi_step *step, int64_t inner, int64_t outer, int64_t *time,
                      int64_t *span);
/* The element where a view begins at these iterations and this time. */
static inline int64_t rcvi_view_start(const rcvi_view *view, int64_t inner, int64_t outer, int64_t time) {
    int64_t start = view->offset + inner * view->stride + outer * view->outer;
    return view->wrap ? start + (time + view->phase) % view->wrap * view->slot : start;
}

extern const char *const rcvi_step_names[];
size_t rcvi_element_bytes(const rcvi_program *program, rcvi_element element);
size_t rcvi_buffer_end(const rcvi_program *program, const rcvi_buffer *buffer); /* bytes from the arena's start */

#endif
