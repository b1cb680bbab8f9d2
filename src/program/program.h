/* The narrow waist: a schedule writes a program, a device runs one.
 *
 * A program is a flat list of steps over named buffers. A LOOP step repeats the steps behind it; inside, a view moves
 * by `stride` elements an iteration, so that a program is as long as one time step, not as the sequence. Loops do not
 * nest. The first `forward_count` steps are the forward pass; the rest is the backward pass, run later over the same
 * buffers. From what steps read and write follow the buffers' lifetimes, and from these their places in one arena. */
#ifndef RCVI_PROGRAM_H
#define RCVI_PROGRAM_H

#include "net/net.h"

typedef enum { RCVI_REAL, RCVI_BYTE, RCVI_INDEX } rcvi_element; /* the plan's float type; uint8; int64 */

/* Who owns a buffer's memory. Everything but the arena comes from the caller; those marked optional may be absent: then
 * a copy from it reads zeros, and a step that writes to it is left out. */
typedef enum {
    RCVI_ARENA,
    RCVI_PARAMETERS,
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
    RCVI_DPARAMETERS, /* optional */
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
    int64_t count;   /* elements */
    int first, last; /* steps of its life; first > last: unused */
    size_t place;    /* bytes from the start of the arena */
} rcvi_buffer;

/* A matrix inside a buffer: element (r, c) at offset + iteration * stride + r * row + c * column. */
typedef struct {
    int buffer;
    int64_t offset, stride;
    int64_t row, column; /* 0 repeats one row (a bias) or one column (a value of size one) */
} rcvi_view;

typedef enum {
    RCVI_STEP_LOOP,    /* repeat the next `body` steps `count` times */
    RCVI_STEP_GEMM,    /* out[rows, columns] (+)= op(a) op(b), `batch` times */
    RCVI_STEP_MAP,     /* out = operations on operands, element by element */
    RCVI_STEP_REDUCE,  /* out (+)= a summed over rows or over columns */
    RCVI_STEP_COPY,    /* out = a */
    RCVI_STEP_FILL,    /* out = number */
    RCVI_STEP_SELECT,  /* out[r] = mask[r] ? a[r] : b[r], a missing operand being zero */
    RCVI_STEP_DROPOUT, /* out = a scaled by 1 / (1 - p), or zero with probability p */
    RCVI_STEP_LIVE,    /* mask[t, b] = t < lengths[b] */
    RCVI_STEP_BOUNDARY /* mask[t, b] = a reset at t within the sequence; one more row of zeros at t = steps */
} rcvi_step_kind;

enum { RCVI_MAX_OPERANDS = 8, RCVI_MAX_INSTRUCTIONS = 32 };

/* Instruction i computes register i from registers before it, views of the map, and numbers. */
typedef struct {
    rcvi_operation operation;
    enum { RCVI_FROM_REGISTER, RCVI_FROM_VIEW, RCVI_FROM_NUMBER } from[2];
    int source[2];
    double number[2];
    int out; /* view it is stored to, or RCVI_NONE */
} rcvi_instruction;

typedef struct {
    rcvi_instruction *instructions;
    int instruction_count;
    rcvi_view operands[RCVI_MAX_OPERANDS]; /* read and written views of the map */
    int operand_count;
} rcvi_map;

typedef struct {
    rcvi_step_kind kind;
    enum { RCVI_ALWAYS, RCVI_WHEN_OVERWRITING, RCVI_WHEN_RESTART_IS_INITIAL } when;
    size_t state; /* of RCVI_WHEN_RESTART_IS_INITIAL */
    int64_t rows, columns;
    rcvi_view out, a, b, mask; /* buffer is RCVI_NONE where there is none */
    bool accumulate;
    union {
        struct {
            int64_t count;
            int body;
        } loop;
        struct {
            int64_t depth;
            bool transpose_a, transpose_b;
            int64_t batch, step_out, step_a, step_b;
        } gemm;
        struct {
            bool over_rows;
        } reduce;
        struct {
            double number;
        } fill;
        struct {
            double probability;
            uint64_t salt;
        } dropout; /* salt keeps two layers' masks apart */
        rcvi_map *map;
    };
} rcvi_step;

typedef struct {
    rcvi_pool pool;
    const rcv_net *net;
    rcv_plan_options options; /* schedule: the name of the one that wrote it */
    rcvi_buffer *buffers;
    size_t buffer_count, buffer_capacity;
    int *externals; /* those of them that are the caller's */
    size_t external_count, external_capacity;
    rcvi_step *steps;
    size_t step_count, step_capacity;
    size_t forward_count;
    int open_loop; /* step index of the loop being written, or RCVI_NONE */
    size_t arena_bytes;
    bool failed; /* out of memory, or a size past 64 bits; see `oversized` */
    bool oversized;
} rcvi_program;

void rcvi_program_init(rcvi_program *program, const rcv_net *net, const rcv_plan_options *options);
void rcvi_program_free(rcvi_program *program);

/* ---- writing ---- */

int rcvi_program_buffer(rcvi_program *program, rcvi_role role, size_t index, rcvi_element element, int64_t count,
                        const char *format, ...) __attribute__((format(printf, 6, 7)));
/* The buffer of a role that comes from the caller, made when first asked for. */
int rcvi_program_external(rcvi_program *program, rcvi_role role, size_t index);
/* a * b * c elements; past 64 bits the program has failed and is oversized. */
int64_t rcvi_program_product(rcvi_program *program, int64_t a, int64_t b, int64_t c);
void rcvi_program_step(rcvi_program *program, const rcvi_step *step);
void rcvi_program_loop(rcvi_program *program, int64_t count);
void rcvi_program_end_loop(rcvi_program *program);

static inline rcvi_view rcvi_no_view(void) { return (rcvi_view){.buffer = RCVI_NONE}; }

/* ---- after writing ---- */

/* Lifetimes and places; sets arena_bytes. */
rcv_status rcvi_program_lay_out(rcvi_program *program);
/* That no two buffers of the arena share bytes while both live: part of verification. */
rcv_status rcvi_program_check_arena(const rcvi_program *program);
/* Whether a device may run it: every view inside its buffer in every iteration, nothing read before it is written,
 * nothing of the caller's inputs written, buffers that live at once apart in the arena. The sentence names the step. */
rcv_status rcvi_program_verify(const rcvi_program *program);
void rcvi_program_print(const rcvi_program *program, rcvi_text *out);

/* The views of a step, each with its extent and whether it is written and read; answers how many. */
typedef struct {
    const rcvi_view *view;
    int64_t rows, columns;
    bool written, read;
} rcvi_access;
enum { RCVI_MAX_ACCESSES = RCVI_MAX_OPERANDS + 4 };
int rcvi_step_accesses(const rcvi_step *step, rcvi_access *accesses);

extern const char *const rcvi_step_names[];
size_t rcvi_element_bytes(const rcvi_program *program, rcvi_element element);
size_t rcvi_buffer_end(const rcvi_program *program, const rcvi_buffer *buffer); /* bytes from the arena's start */

#endif
