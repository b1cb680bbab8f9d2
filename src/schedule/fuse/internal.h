/* What the files of the fusion share. */
#ifndef RCVI_FUSE_INTERNAL_H
#define RCVI_FUSE_INTERNAL_H

#include "schedule/fuse/fuse.h"

static inline const rcvi_value *rcvi_fusion_value(const rcvi_fusion *f, int v) { return &f->emitter.graph->values[v]; }
static inline int rcvi_fusion_value_count(const rcvi_fusion *f) { return (int)f->emitter.graph->value_count; }
static inline int64_t rcvi_fusion_features(const rcvi_fusion *f, int v) {
    return rcvi_features(f->emitter.graph, rcvi_fusion_value(f, v)->size);
}
static inline int rcvi_fusion_argument_count(const rcvi_fusion *f, int v) {
    return rcvi_operations[rcvi_fusion_value(f, v)->operation].arguments;
}
static inline bool rcvi_fusion_has_storage(const rcvi_fusion *f, int v) {
    return f->storage[v].kind != RCVI_NOT_STORED;
}

/* The value that an alias repeats; any other value is its own. */
int rcvi_fusion_resolve_alias(const rcvi_fusion *fusion, int value);
/* Does the consumer, or one of an alias, read the value from a register of its own map? */
bool rcvi_fusion_is_in_register(const rcvi_fusion *fusion, int value, int consumer);
/* Does a step here read it from memory? With `exactly`, reads by products and gradients do not count: they round it anyway. */
bool rcvi_fusion_is_read(const rcvi_fusion *fusion, int value, bool exactly);
rcvi_view rcvi_fusion_view_of(const rcvi_fusion *fusion, const rcvi_storage *storage, bool over_chunk);

rcvi_view rcvi_fusion_vector(const rcvi_fusion *fusion, int value); /* a learned vector */
void rcvi_fusion_allocate(rcvi_fusion *fusion, int value); /* a buffer, where the value has no storage in this phase */
/* The last step depends on the parameters only, and so does this buffer, which it writes. */
void rcvi_fusion_mark_prepared(rcvi_program *program, int buffer);

/* Are all products gemm steps by the library, in the loop too? So where maps are interpreted. */
static inline bool rcvi_fusion_has_library_only(const rcvi_fusion *f) {
    return f->rungs->interpret && f->rungs->combine && f->rungs->fuse;
}

/* Is the loop to be one kernel, as a recurrence on a GPU? */
bool rcvi_fusion_is_scan(const rcvi_fusion *fusion);
/* Then: is it a form of the whole sequence that is a gemm step of its own, whatever reads it? */
bool rcvi_fusion_is_scan_product(const rcvi_fusion *fusion, int value);
bool rcvi_fusion_is_unfused(const rcvi_fusion *fusion, int value); /* a form that no instruction of its map uses */

/* ---- products by the library ---- */

/* Which forms the library computes, their stacks and the stacks' storage: before other values get storage. */
void rcvi_fusion_find_library_products(rcvi_fusion *fusion);
/* The bias and the weights of such a form. */
void rcvi_fusion_prepare_library_product(rcvi_fusion *fusion, int form);
void rcvi_fusion_emit_library_products(rcvi_fusion *fusion, rcvi_phase phase, int level);

#endif
