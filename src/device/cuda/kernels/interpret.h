/* Maps as data: the table that the kernels of interpret.cu read in place of generated source. Plain C and C++.
 *
 * A table lies in the GPU's memory:
 *
 *   instructions   [instruction_count], those of all phases; in each phase first loads, or loads before their first use
 *   phases         [phase_count]
 *   row views      [row_view_count] instructions that load a view with one number a row; of maps with sums alone
 *   constants      [constant_count] doubles
 *
 * Values. A thread computes RCVI_INTERPRET_BYTES of neighbouring elements of a row at once: 4 floats or 2 doubles, however wide its
 * accesses are. It keeps values in slots of shared memory, [slot][thread]. An operand is a slot or, with RCVI_INTERPRET_UNIFORM, a
 * number that all threads share: constants, row views and sums, in this order.
 *
 * Phases. A map without sums over its columns is one phase. Else a block has a row: every phase goes through the columns, computes what some
 * sums need, and adds these up; the last one computes all that is stored. Values are computed again in every phase that needs them.
 * A sum's order depends on the columns and the table alone.
 *
 * Addresses and strides are arguments, as of generated kernels: codegen/source.h. */
#ifndef RCVI_CUDA_INTERPRET_H
#define RCVI_CUDA_INTERPRET_H

#include "cell/operation.h"
#include "device/cuda/kernels/types.h"

#include <stdint.h>

enum {
    RCVI_INTERPRET_BYTES = 16,        /* of a slot, for one thread */
    RCVI_INTERPRET_UNIFORM = 1 << 15, /* in an operand */
    RCVI_INTERPRET_SHARED = 48 << 10, /* bytes of shared memory that a block may have, at most */
    RCVI_INTERPRET_COPIED =
        512, /* instructions that are copied to shared memory; a longer table is read where it lies */
    RCVI_INTERPRET_FEW_WORDS = 128, /* arguments of the smaller kernel; the larger one takes RCVI_INTERPRET_WORDS */
    RCVI_INTERPRET_WORDS = 500,
    RCVI_INTERPRET_THREADS = 128,     /* of a block, at most */
    RCVI_INTERPRET_ROW_THREADS = 256, /* of a block with a row, at most */
    RCVI_INTERPRET_LANES = 32,        /* threads of a block along a row, at most */
};

/* After those of rcvi_operation. `view` counts the map's operands; of a rounded copy, the rounded copies. */
enum {
    RCVI_INTERPRET_LOAD = RCVI_OPERATION_COUNT,
    RCVI_INTERPRET_LOAD_REPEATED,   /* one number, in all elements */
    RCVI_INTERPRET_LOAD_TRANSPOSED, /* of a view that is stored feature after feature */
    RCVI_INTERPRET_BEGIN_LOAD,      /* starts to copy the elements into the slot as they are stored */
    RCVI_INTERPRET_WAIT,            /* until these copies have come */
    RCVI_INTERPRET_WIDEN,           /* the elements of a copy, in place */
    RCVI_INTERPRET_STORE,           /* operand 0 */
    RCVI_INTERPRET_STORE_ONCE,      /* its first element, by the thread of the first column */
    RCVI_INTERPRET_STORE_ROUNDED,   /* the same to a rounded copy */
    RCVI_INTERPRET_STORE_ROUNDED_ONCE,
    RCVI_INTERPRET_ADD_UP /* adds operand 0 to the thread's part of sum `out` of the phase */
};

typedef struct {
    uint16_t operation, type; /* rcvi_operation or one of the above; rcvi_cuda_type of the view */
    uint16_t out;             /* slot */
    uint16_t view;
    uint16_t operands[3];
    uint16_t unused;
} rcvi_interpret_instruction;

typedef struct {
    int32_t first, end;           /* instructions */
    int32_t first_sum, sum_count; /* sums that this phase computes */
} rcvi_interpret_phase;

typedef struct {
    const void *table; /* in the GPU's memory */
    int32_t instruction_count, phase_count, row_view_count, constant_count, sum_count;
    int32_t slot_count, part_count; /* slots; sums of one phase, at most */
    int32_t view_count, rounded_count;
    int32_t counted; /* a member's number of rows is read from memory */
    int32_t wide;    /* columns, strides and addresses are multiples of the elements of a slot */
    int32_t is_double;
} rcvi_interpreted;

/* Bytes of a block's shared memory: numbers that all threads share; instructions; slots and parts of sums. */
static inline int rcvi_interpret_uniform_bytes(const rcvi_interpreted *m) {
    return ((m->constant_count + m->row_view_count + m->sum_count) * (m->is_double ? 8 : 4) + 15) / 16 * 16;
}
static inline int rcvi_interpret_code_bytes(const rcvi_interpreted *m) {
    return m->instruction_count <= RCVI_INTERPRET_COPIED ? m->instruction_count * 16 : 0;
}
static inline int rcvi_interpret_thread_bytes(const rcvi_interpreted *m) {
    return m->slot_count * RCVI_INTERPRET_BYTES + m->part_count * (m->is_double ? 8 : 4);
}

#ifdef __cplusplus
extern "C" {
#endif

/* The kernel for tables of this type, with or without sums over columns, and with so many words of arguments, for cudaLaunchKernel.
 * Arguments: the words, of which RCVI_INTERPRET_FEW_WORDS or RCVI_INTERPRET_WORDS are copied; then rcvi_interpreted. Without sums blocks are
 * [lanes, rows] threads, as are the grid's blocks of a member; with sums [threads], a power of 2, a block a row. */
const void *rcvi_interpret_kernel(int is_double, int has_sums, int words);

#ifdef __cplusplus
}
#endif

#endif
