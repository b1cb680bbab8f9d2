/* Linear recurrences h[t] = a[t] h[t-1] + b[t] on the CPU: what the files of this folder share.
 *
 * Sequences and channels are adjacent columns, batch * channels of them. A call visits the steps in one direction: a forward call of
 * a reverse scan and a backward call of a forward scan visit the last step first. The carry is what one step passes to the step
 * visited next: the state, or in a backward call the gradient that later steps contribute to dL/dh. A boundary is a reset between
 * two steps: the steps after it start again from the initial state. */
#ifndef RCVI_CPU_SCAN_H
#define RCVI_CPU_SCAN_H

#include "device/cpu/engine/team.h"
#include "device/cpu/kernels/kernels.h"
#include "device/device.h"

/* Whether the carry before a chunk reaches its end. NONE: no, a boundary is in between; SOME: yes, through steps; ALL: the sequence
 * has no step in the chunk, so the carry is unchanged. */
enum { RCVI_REACH_NONE, RCVI_REACH_SOME, RCVI_REACH_ALL };

/* The composition of a chunk of time: carry after = product * carry before + carried. */
typedef struct {
    char *product, *carried, *largest; /* [columns] carries: rcvi_scan_kernels.compose_forward */
    char *incoming;                    /* [columns] the carry before the chunk's first step */
    uint8_t *reach;                    /* [batch] */
} rcvi_scan_chunk;

struct rcvi_scan {
    rcv_context *context;
    rcv_scan_options options;
    const char *form;
    const rcvi_kernels *kernels;
    const rcvi_scan_kernels *scan_kernels;
    rcvi_team *team;
    int members;
    int64_t columns;       /* batch * channels */
    int64_t size, carry;   /* bytes of an element, and of a carry */
    int64_t line;          /* columns in a cache line */
    int64_t row;           /* bytes from one row of scratch to the next */
    int64_t tile;          /* steps of a tile */
    int64_t chunk, chunks; /* steps of a chunk of time, and how many there are */
    bool large;            /* an array exceeds the caches */
    bool streams;          /* results are written with non-temporal stores */
    char *memory;
    char *zeros, *state, *sum;     /* [columns] carries each: zeros, the current carry, a sum for dinitial */
    char *sink;                    /* [members, columns] receives gradients that the caller did not ask for */
    rcvi_scan_chunk *compositions; /* [members] for "chained", [chunks] for "three" */
    char *sums;          /* [chunks, columns] sums for dinitial, where time is divided and there may be boundaries */
    char *chunk_carries; /* [chunks, columns] carry after each chunk, for "guessed" */
    atomic_uint carries_known; /* number of chunks whose incoming carry is known */

    /* Arguments of the call in progress. */
    const rcv_scan_data *data;
    const rcv_scan_gradients *gradients; /* NULL: forward */
    bool ascending;
};

/* Reads or writes one element of a row of carries. */
static inline double rcvi_scan_carry(const rcvi_scan *scan, const void *row, int64_t column) {
    return scan->carry == sizeof(double) ? ((const double *)row)[column] : (double)((const float *)row)[column];
}

static inline void rcvi_scan_set_carry(const rcvi_scan *scan, void *row, int64_t column, double value) {
    if (scan->carry == sizeof(double))
        ((double *)row)[column] = value;
    else
        ((float *)row)[column] = (float)value;
}

/* to += from, rounded once: a sum of two floats computed in double rounds to the same float as the exact sum. */
static inline void rcvi_scan_add_carry(const rcvi_scan *scan, void *to, const void *from, int64_t column) {
    rcvi_scan_set_carry(scan, to, column, rcvi_scan_carry(scan, to, column) + rcvi_scan_carry(scan, from, column));
}

/* What a sweep computes: the recurrence from a carry, or the composition of a chunk. */
typedef struct {
    char *carry; /* [columns] carry before the first step; updated to the carry after the last */
    char *sum;   /* [columns] the gradient that boundaries pass to the initial state is added; NULL: no boundaries */
    const rcvi_scan_chunk *chunk; /* NULL: the recurrence */
    int member;
} rcvi_scan_sweep_args;

/* Computes steps first .. end - 1 of columns column .. column_end - 1. */
void rcvi_scan_sweep(const rcvi_scan *scan, int64_t first, int64_t end, int64_t column, int64_t column_end,
                     const rcvi_scan_sweep_args *args);

/* The steps first .. end - 1 of the index-th chunk in the order of the visit. */
void rcvi_scan_bounds(const rcvi_scan *scan, int64_t index, int64_t *first, int64_t *end);
/* The columns of a member where they are divided among the first `members` members, by cache lines; false: the member has none. */
bool rcvi_scan_member_columns(const rcvi_scan *scan, int member, int64_t members, int64_t *column, int64_t *column_end);
/* The most members among which columns are divided: each has at least a cache line of every row, or SHARE_BYTES where arrays
 * exceed the caches. */
int64_t rcvi_scan_column_threads(const rcvi_scan *scan);
/* Adds the gradients that boundaries passed to the initial state (sums) to dinitial. */
void rcvi_scan_add_sums(const rcvi_scan *scan, int64_t column, int64_t column_end);

/* The forms "guessed", "chained" and "three"; every member of the team calls them. */
void rcvi_scan_guessed(rcvi_scan *scan, int member);
void rcvi_scan_chained(rcvi_scan *scan, int member);
void rcvi_scan_three_passes(rcvi_scan *scan, int member);

/* The columns of one sequence; or of all sequences, where there are neither lengths nor resets. */
typedef struct {
    int64_t sequence, column, column_end;
    int64_t length;
} rcvi_scan_strip;

/* The strip that begins at `column`. */
rcvi_scan_strip rcvi_scan_strip_at(const rcvi_scan *scan, int64_t column, int64_t column_end);
/* The carry before the first step: the initial state, or dL/dfinal. */
const char *rcvi_scan_initial_carry(const rcvi_scan *scan);

extern const rcvi_scan_table rcvi_cpu_scan;

#endif
