/* Fusion: a time step of a graph as few large steps.
 *
 * Applies to every graph of the stepwise schedule, forward and adjoint. It decides which values are computed before the time loop (over
 * a chunk of time steps at once), in it, or after it, and gathers them into products and maps.
 *
 * Phases. Before the loop go products that depend on no state, after it products on which no state depends. With packed weights a sum
 * of products and learned vectors is one product (an affine form). The terms of it that depend on no state are computed before the
 * loop, and the sum in the loop starts from them.
 *
 * Levels. In each phase values are gathered by level: a level reads from memory only what lower levels have written. All values of one
 * level and size are one map.
 *
 * Library products. Where the device has a library for products (machine.min_library_product), large products of the whole sequence are
 * gemm steps: see fuse_library.c. Where maps are interpreted, all products are: a form in the loop is added to the sums of its early terms,
 * and what depends on no state is computed in the map that reads it.
 *
 * Sums over columns. Where maps may hold sums over their columns, and all values that are not of size one have one size, values of size
 * one (the sums, and what is computed from them) are computed in the same maps, in every column. A level has products or sums, not
 * both.
 *
 * Files: fuse.c (tables, stores, views), fuse_analyse.c (method, phase and level of every value), fuse_prepare.c (buffers, packed
 * weights, biases), fuse_library.c (products by the library), fuse_emit.c (steps of a phase), fuse_gradients.c (gradients of the
 * parameters). */
#ifndef RCVI_FUSE_H
#define RCVI_FUSE_H

#include "schedule/emit.h"
#include "schedule/storage.h"

typedef enum { RCVI_BEFORE_LOOP, RCVI_IN_LOOP, RCVI_AFTER_LOOP } rcvi_phase;

/* How a value is computed. */
typedef enum {
    RCVI_GIVEN,    /* not here: given, or not needed */
    RCVI_ABSORBED, /* as a term of an affine form, without a value of its own */
    RCVI_AFFINE,   /* as an affine form with packed matrices */
    RCVI_MAPPED,   /* by an instruction of a map */
    RCVI_ALIAS,    /* by no step: a value of size one, repeated over columns */
    RCVI_OWN_STEP  /* by a step of its own */
} rcvi_method;

/* An affine form: the sum of matrices times values, and of learned vectors. */
typedef struct {
    int value;                                  /* the sum */
    int matrices[RCVI_MAX_TERMS], matrix_count; /* values */
    int vectors[RCVI_MAX_TERMS], vector_count;  /* values */
    bool early[RCVI_MAX_TERMS];                 /* [matrices] that are computed before the loop */
    bool split;                                 /* some are early, some are not */
    int early_level;                            /* of the early terms, before the loop */
    rcvi_storage early_storage;                 /* of the early terms' sum */
    rcvi_view bias;                             /* sum of the vectors, one row */
    bool by_library; /* what of it is computed outside of the loop is a gemm step, by the device's library */
    int stack;       /* then: the first of the forms that share one gemm step, side by side */
    int64_t column;  /* where its sums begin among the stack's */
} rcvi_form;

/* A value is also stored here. */
typedef struct {
    int value;
    rcvi_storage storage;
} rcvi_store;

typedef struct {
    rcvi_emitter emitter;
    const rcvi_rungs *rungs;
    rcvi_time_map time_map;
    rcvi_storage *storage;         /* [values] of given values, and of those that are stored */
    rcvi_storage *chunk_copy;      /* [values] copies over a chunk of values whose own storage has one step only */
    bool *given;                   /* [values] not computed here */
    bool *needed;                  /* [values] read from outside, in addition to next states, outputs and gradients */
    bool *kept;                    /* [values] read by the derivative only, which may round them */
    bool *known;                   /* [states] at all steps of the chunk before the loop begins */
    bool *skipped;                 /* [gradients] that are summed elsewhere */
    unsigned char *method, *phase; /* [values] rcvi_method, rcvi_phase */
    int *level;                    /* [values] in its phase */
    int *form_of;                  /* [values] the affine form whose sum it is, or RCVI_NONE */
    int *group;                    /* [values] first of the matrices that are one product with it, or RCVI_NONE */
    int *packed;                   /* [values] buffers of packed matrices */
    rcvi_form *forms;
    int form_count;
    int64_t scalar_columns; /* values of size one are computed in maps of this many columns; 0: in maps of one column */
    /* Retiming: states from late_first on are these values one step before. Their storage has one slot more, of zeros. */
    const int *late; /* [late_count] values */
    int late_count;
    size_t late_first;
    rcvi_storage *zeros; /* [zero_count] storage that is cleared at every step, of zero_columns */
    int64_t *zero_columns;
    int zero_count;
    bool defers_gradients; /* gradients are summed over the whole sequence, after all loops: their factors are kept */
    rcvi_store *stores;    /* further storage of values */
    size_t store_count, store_capacity;
} rcvi_fusion;

/* Tables for a graph. Order of calls: the caller marks given and needed values and sets the storage of given ones;
 * rcvi_fusion_analyse; rcvi_fusion_store for what must be stored; rcvi_fusion_prepare, outside of loops; rcvi_fusion_emit, once a phase
 * and at its place in the program. `defers_gradients` is set before rcvi_fusion_analyse. */
bool rcvi_fusion_init(rcvi_fusion *fusion, rcvi_program *program, const rcvi_graph *graph,
                      const rcvi_param_layout *params, const char *label, rcvi_time_map time_map);
void rcvi_fusion_free(rcvi_fusion *fusion);

/* Chooses the method, phase and level of every value. */
void rcvi_fusion_analyse(rcvi_fusion *fusion);
bool rcvi_fusion_computes(const rcvi_fusion *fusion, int value); /* as a value of its own */
/* Columns of the map in which a value is computed. */
static inline int64_t rcvi_fusion_columns(const rcvi_fusion *f, int v) {
    int64_t features = rcvi_features(f->emitter.graph, f->emitter.graph->values[v].size);
    return f->scalar_columns && features == 1 && f->method[v] == RCVI_MAPPED ? f->scalar_columns : features;
}
/* Stores a value that is computed here. The first storage becomes the value's own, from where steps here read it, unless it is rounded
 * and they read the value exactly. */
void rcvi_fusion_store(rcvi_fusion *fusion, int value, rcvi_storage storage);
/* Clears so many columns of this storage at every step. */
void rcvi_fusion_clear_each_step(rcvi_fusion *fusion, rcvi_storage storage, int64_t columns);
/* Buffers of values that cross phases, packed matrices, sums of biases. Its steps depend on the parameters only. */
void rcvi_fusion_prepare(rcvi_fusion *fusion);
void rcvi_fusion_emit(rcvi_fusion *fusion, rcvi_phase phase);
/* Gradients of the parameters: of one step, in the time loop; of a chunk, after it; or, where they are deferred, of the whole sequence,
 * after all loops. */
void rcvi_fusion_emit_gradients(rcvi_fusion *fusion, bool over_chunk);
/* A value at the step or over the chunk: in its storage, or in the buffer that the phase emitted last gave it. */
rcvi_view rcvi_fusion_view(const rcvi_fusion *fusion, int value, bool over_chunk);

bool rcvi_fusion_crosses_phases(const rcvi_fusion *fusion, int value); /* does a step of another phase read it? */
bool rcvi_fusion_is_factor(const rcvi_graph *graph, int value);        /* of a gradient */
int rcvi_fusion_buffer(rcvi_fusion *fusion, int64_t slots, int64_t columns, const char *name, int value);

#endif
