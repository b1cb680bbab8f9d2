/* A time step of a graph as few large steps: which of its values are computed before the time loop (over a chunk of
 * time steps at once), in it, or behind it, and how they are gathered into products and maps.
 *
 * Before the loop go products that depend on no state, behind it products on which no state depends. With packed
 * weights a sum of products and learned vectors is one product (an affine form); what of it does not depend on a state
 * is computed before the loop and is what the sum starts from.
 *
 * In each phase values are gathered by level: a level needs only what lies in memory once the levels below are done.
 * All values of one level and size are one map.
 *
 * Where the device has a library for products, those of the whole sequence that are large are its: by rows of stacked parameters side
 * by side, or over all of what stacked parameters are multiplied with in a derivative.
 *
 * Where maps may hold sums over their columns, and all values that are not of size one have one size, those of size one
 * (the sums, and what is computed of them) are computed in the same maps, in every column. A level has products or sums, not
 * both. */
#ifndef RCVI_FUSE_H
#define RCVI_FUSE_H

#include "schedule/emit.h"
#include "schedule/timing.h"

typedef enum { RCVI_BEFORE, RCVI_INSIDE, RCVI_BEHIND } rcvi_phase;

/* How a value is computed. */
typedef enum {
    RCVI_GIVEN,    /* at hand, or not needed */
    RCVI_ABSORBED, /* part of an affine form, not a value of its own */
    RCVI_FORMED,   /* an affine form with packed matrices */
    RCVI_MAPPED,   /* an instruction of a map */
    RCVI_ALIAS,    /* a value of size one, repeated: no step */
    RCVI_ALONE     /* a step of its own */
} rcvi_part;

typedef struct {
    int value;                                  /* the sum */
    int matrices[RCVI_MAX_TERMS], matrix_count; /* values */
    int vectors[RCVI_MAX_TERMS], vector_count;  /* values */
    bool early[RCVI_MAX_TERMS];                 /* matrices that do not wait for the loop */
    bool split;                                 /* some are early, some are not */
    int early_level;                            /* of the early part, before the loop */
    rcvi_place early_place;                     /* of the early part */
    rcvi_view bias;                             /* sum of the vectors, one row */
    bool large;     /* what of it is computed outside of the loop is a step of its own, by the device's library */
    int stack;      /* then: the first of the forms that are one step with it, side by side */
    int64_t column; /* where its sums begin among the stack's */
} rcvi_form;

typedef struct {
    int value;
    rcvi_place place;
} rcvi_store;

typedef struct {
    rcvi_emitter emitter;
    const rcvi_rungs *rungs;
    rcvi_clock clock;
    rcvi_place *places;          /* [values] of values at hand, and of those that must be stored */
    rcvi_place *wide;            /* [values] copies over a chunk of what is at hand at one step only */
    bool *at_hand;               /* [values] given, not computed here */
    bool *needed;                /* [values] asked for from outside, beside next states, outputs and gradients */
    bool *kept;                  /* [values] asked for by the derivative only, which may round it */
    bool *settled;               /* [states] known at all steps of the chunk before the loop begins */
    bool *left_out;              /* [gradients] that are summed elsewhere */
    unsigned char *part, *phase; /* [values] */
    int *level;                  /* [values] inside of its phase */
    int *form_of;                /* [values] the affine form whose sum it is, or RCVI_NONE */
    int *group;                  /* [values] first of the matrices that are one product with it, or RCVI_NONE */
    int *packed;                 /* [values] buffers of matrices, packed */
    rcvi_form *forms;
    int form_count;
    int64_t joined; /* values of size one are computed in maps of this many columns; 0: in their own */
    const int
        *late; /* [late_count] values whose place holds one step more, of zeros: states from late_first on are what */
    int late_count; /* they were at the step before */
    size_t late_first;
    rcvi_place *zeros; /* [zero_count] places that are cleared at every step, of zero_columns */
    int64_t *zero_columns;
    int zero_count;
    bool gathers;       /* gradients are summed over the whole sequence, behind all loops: their factors are kept */
    rcvi_store *stores; /* second places of values */
    size_t store_count, store_capacity;
} rcvi_fusion;

/* Tables for a graph. The caller then says what is at hand and where and what is needed, calls rcvi_fusion_analyse,
 * gives places to what must be stored, (for a backward sweep) whether it gathers, calls rcvi_fusion_prepare outside of loops, and emits the phases where they belong. */
bool rcvi_fusion_init(rcvi_fusion *fusion, rcvi_program *program, const rcvi_graph *graph,
                      const rcvi_param_place *params, const char *label, rcvi_clock clock);
void rcvi_fusion_free(rcvi_fusion *fusion);

void rcvi_fusion_analyse(rcvi_fusion *fusion);
bool rcvi_fusion_computes(const rcvi_fusion *fusion, int value); /* as a value of its own */
/* Columns of the map in which a value is computed. */
static inline int64_t rcvi_fusion_columns(const rcvi_fusion *f, int v) {
    int64_t features = rcvi_features(f->emitter.graph, f->emitter.graph->values[v].size);
    return f->joined && features == 1 && f->part[v] == RCVI_MAPPED ? f->joined : features;
}
/* Stores a value that is computed here at this place. The first becomes the value's own, from where others here read it,
 * but for one that is rounded where they would see that. */
void rcvi_fusion_store(rcvi_fusion *fusion, int value, rcvi_place place);
/* Buffers of what crosses phases; matrices to pack, biases to sum. Steps that depend on the parameters alone. */
void rcvi_fusion_prepare(rcvi_fusion *fusion);

/* ---- of the files that are the fusion ---- */

rcvi_view rcvi_fusion_vector(const rcvi_fusion *fusion, int value); /* a learned vector */
int rcvi_fusion_buffer(rcvi_fusion *fusion, int64_t slots, int64_t columns, const char *name, int value);
void rcvi_fusion_give_buffer(rcvi_fusion *fusion, int value); /* where it has no place */
void rcvi_fusion_mark_prepared(rcvi_program *program,
                               int buffer); /* the last step, which depends on the parameters alone */
bool rcvi_fusion_crosses(const rcvi_fusion *fusion, int value); /* does a step of another phase read it? */
bool rcvi_fusion_is_factor(const rcvi_graph *graph, int value); /* of a gradient */
/* Is the loop to be one kernel, as a recurrence on a GPU? */
bool rcvi_fusion_scans(const rcvi_fusion *fusion);
/* Is this a form of the whole sequence that is a step of its own there, whoever reads it? */
bool rcvi_fusion_is_heavy(const rcvi_fusion *fusion, int value);
bool rcvi_fusion_is_bare(const rcvi_fusion *fusion, int value); /* a form that no instruction of its map uses */
/* Which forms are large and stacked, and where stacks lie: before other values get places. */
void rcvi_fusion_find_large(rcvi_fusion *fusion);
/* The bias and the weights of a large form. */
void rcvi_fusion_prepare_large(rcvi_fusion *fusion, int form);
void rcvi_fusion_emit_large(rcvi_fusion *fusion, rcvi_phase phase, int level);

/* A place of so many columns that is cleared at every step. */
void rcvi_fusion_clear(rcvi_fusion *fusion, rcvi_place place, int64_t columns);
void rcvi_fusion_emit(rcvi_fusion *fusion, rcvi_phase phase);
/* Gradients of the parameters: of one step, inside the time loop, or of a whole chunk, behind it; of the whole sequence,
 * behind all loops, where the fusion gathers. */
void rcvi_fusion_emit_gradients(rcvi_fusion *fusion, bool over_chunk);
/* A value at the step or over the chunk: at its place, or in the buffer that the phase emitted last gave it. */
rcvi_view rcvi_fusion_view(const rcvi_fusion *fusion, int value, bool over_chunk);

#endif
