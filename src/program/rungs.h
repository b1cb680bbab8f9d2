/* A plan is a set of rungs, and a plan string is its text.
 *
 *   plan     = rung { "+" rung }
 *   rung     = name [ "(" argument { "," argument } ")" ]
 *   argument = name "=" value | value | word
 *
 * Rungs are read in any order and printed in one. The table in rungs.c says all that is known of a rung: its name, its
 * arguments with their limits, the devices that have it, and the rungs that it needs or excludes. A new rung is a member of
 * rcvi_rungs and a line of that table. */
#ifndef RCVI_RUNGS_H
#define RCVI_RUNGS_H

#include "base/base.h"

/* Members are bool or int64_t. All off is naive. */
typedef struct {
    bool kernels;      /* naive, but by the kernels of the CPU; implied by every other rung but threads */
    bool combine;      /* the products of a cell's gates as one */
    int64_t steps;     /* with combine: input products of this many time steps as one; 1; 0 means all steps */
    int64_t forward;   /* the same in the forward pass of training; 0: as steps */
    bool fuse;         /* pointwise operations as one map; with packed products, as their epilogue */
    bool pack;         /* Y = X W^T, the weights packed once into panels */
    bool transpose;    /* Y^T = W X^T, the weights as they are in memory, the other operand packed */
    bool wavefront;    /* layers in a skewed order: each a step (or chunk) after the one below, all in one loop */
    bool forward_wave; /* with wavefront: in the forward pass of training only; the backward pass goes layer by layer */
    bool scan;         /* loop distribution: each recurrence of a cell in a loop of its own over a chunk */
    bool newton;       /* with scan, on a GPU: recurrences that are not affine by Newton iterations */
    bool blas;         /* large products by OpenBLAS */
    int64_t recompute; /* checkpointing in training: keep the states of every n-th step only; 0: keep all */
    bool vendor;       /* the whole network by the vendor's library */
    int64_t algorithm; /* with vendor: the library's algorithm; 0 is its standard one */
    bool merge;        /* on a GPU: independent steps of one kind as one launch */
    int64_t streams;   /* on a GPU: independent steps on so many streams; 0: one */
    int64_t choice;    /* on a GPU: index into the algorithms that the library proposes for a product */
    bool persistent;   /* on a GPU: a time loop is one kernel that keeps its weights on the chip */
    int64_t parts;   /* with persistent: bfloat16 terms of a split float32 operand; 1: not split; 0: RCVI_USUAL_PARTS */
    bool cluster;    /* with persistent: blocks of a cluster hold a layer's weights and exchange by shared memory */
    bool interpret;  /* on a GPU: maps by a kernel of the library that reads their operations: none is compiled */
    bool graph;      /* on a GPU: a pass is captured once and launched as a CUDA graph */
    int64_t threads; /* at least 1 */
    bool split_rows; /* threads split the batch, else features */
} rcvi_rungs;

enum { RCVI_USUAL_PARTS = 3 };

/* RCV_INVALID with a sentence; then *rungs is as it was. */
rcv_status rcvi_rungs_read(const char *text, rcvi_rungs *rungs);
void rcvi_rungs_print(const rcvi_rungs *rungs, rcvi_text *out);

bool rcvi_rungs_equal(const rcvi_rungs *a, const rcvi_rungs *b);

/* No rung that changes the naive program. Rungs that only change how it is run (threads, streams, graph ...) do not count. */
bool rcvi_rungs_are_naive(const rcvi_rungs *rungs);

/* RCV_UNSUPPORTED where the device lacks a rung or an argument of one. */
rcv_status rcvi_rungs_check_device(const rcvi_rungs *rungs, bool gpu);

/* RCV_UNSUPPORTED where a rung lacks another one that it needs, or is combined with one that it excludes. */
rcv_status rcvi_rungs_check_combination(const rcvi_rungs *rungs);

/* Is anything set that `allowed` has not? Then `name` is the first such rung or argument, as messages call it. */
enum { RCVI_RUNG_NAME = 32 };
bool rcvi_rungs_exceed(const rcvi_rungs *rungs, const rcvi_rungs *allowed, char name[RCVI_RUNG_NAME]);

#endif
