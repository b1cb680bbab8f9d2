/* Linear recurrences on the CPU: what their files share.
 *
 * Sequences and channels are columns side by side, [batch * channels] of them. A call visits the steps in one direction: a
 * forward call of a reverse scan, and a backward call of one that is not, from the last to the first. What is carried from
 * step to step is the state, or backwards what the steps behind hand to dL/dh. A boundary is a reset, between two steps: what
 * comes behind it starts anew. */
#ifndef RCVI_CPU_SCAN_H
#define RCVI_CPU_SCAN_H

#include "device/cpu/engine/team.h"
#include "device/cpu/kernels/kernels.h"
#include "device/device.h"

/* Of the carry before a chunk: does it reach the end? NONE: a boundary is in between; ALL: there was no step. */
enum { RCVI_REACH_NONE, RCVI_REACH_SOME, RCVI_REACH_ALL };

/* A chunk of time that others compute beside. */
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
    const rcvi_scan_kernels *inner;
    rcvi_team *team;
    int members;
    int64_t columns;       /* batch * channels */
    int64_t size, carry;   /* bytes of an element, and of a carry */
    int64_t line;          /* columns of a cache line */
    int64_t row;           /* bytes from one row of scratch to the next */
    int64_t tile;          /* steps that are taken for some columns before the next ones */
    int64_t chunk, chunks; /* steps of a chunk of time, and how many there are */
    bool large;            /* an array is more than the caches hold */
    bool streams;          /* what is written goes past them */
    char *memory;
    char *zeros, *state, *sum; /* [columns] carries each: nothing, what is carried, and of dinitial */
    char *sink;                /* [members, columns] where gradients go that nobody wants */
    rcvi_scan_chunk *parts;    /* [members] for "chained", [chunks] for "three" */
    char *sums;                /* [chunks, columns] of dinitial, where time is cut and there may be boundaries */
    char *ends;                /* [chunks, columns] what is carried behind each chunk, for "guessed" */
    atomic_uint linked;        /* chunks whose carry is known */

    /* of the call in progress */
    const rcv_scan_data *data;
    const rcv_scan_gradients *gradients; /* NULL: forward */
    bool ascending;
};

/* One of a row of carries. */
static inline double rcvi_scan_carry(const rcvi_scan *scan, const void *row, int64_t column) {
    return scan->carry == sizeof(double) ? ((const double *)row)[column] : (double)((const float *)row)[column];
}

static inline void rcvi_scan_set_carry(const rcvi_scan *scan, void *row, int64_t column, double value) {
    if (scan->carry == sizeof(double))
        ((double *)row)[column] = value;
    else
        ((float *)row)[column] = (float)value;
}

/* to += from, rounded once: what a double holds of a sum of two floats rounds as that sum does. */
static inline void rcvi_scan_add_carry(const rcvi_scan *scan, void *to, const void *from, int64_t column) {
    rcvi_scan_set_carry(scan, to, column, rcvi_scan_carry(scan, to, column) + rcvi_scan_carry(scan, from, column));
}

/* What a sweep is for: the recurrence itself from a carry, or a chunk's composition. */
typedef struct {
    char *carry; /* [columns] left as it is behind the last step */
    char *sum;   /* [columns] to which what boundaries hand to the initial state is added; NULL where there are none */
    const rcvi_scan_chunk *chunk; /* NULL: the recurrence */
    int member;
} rcvi_scan_goal;

/* Steps first .. end - 1 of columns `column` .. column_end - 1. */
void rcvi_scan_sweep(const rcvi_scan *scan, int64_t first, int64_t end, int64_t column, int64_t column_end,
                     const rcvi_scan_goal *goal);

/* The index-th chunk in the order of the visit. */
void rcvi_scan_bounds(const rcvi_scan *scan, int64_t index, int64_t *first, int64_t *end);
/* The columns of a member where they are shared out among the first `members`, by cache lines; false: none. */
bool rcvi_scan_share(const rcvi_scan *scan, int member, int64_t members, int64_t *column, int64_t *column_end);
/* Members among which columns are shared out: each has a cache line, and more of each row where that comes from memory. */
int64_t rcvi_scan_sharers(const rcvi_scan *scan);
/* Adds to dinitial what boundaries gave. */
void rcvi_scan_add_sums(const rcvi_scan *scan, int64_t column, int64_t column_end);

/* The forms "guessed", "chained" and "three", of all members. */
void rcvi_scan_guessed(rcvi_scan *scan, int member);
void rcvi_scan_chained(rcvi_scan *scan, int member);
void rcvi_scan_three(rcvi_scan *scan, int member);

/* The columns of one sequence, or of all where they are alike. */
typedef struct {
    int64_t sequence, column, column_end;
    int64_t length;
} rcvi_scan_strip;

/* The strip that begins at `column`. */
rcvi_scan_strip rcvi_scan_strip_at(const rcvi_scan *scan, int64_t column, int64_t column_end);
/* What is carried before anything was: the initial state, or dL/dfinal. */
const char *rcvi_scan_origin(const rcvi_scan *scan);

extern const rcvi_scan_table rcvi_cpu_scan;

#endif
