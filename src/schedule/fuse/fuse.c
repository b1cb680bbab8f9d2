/* Tables of a fusion, and what its values are read by, stored in and viewed as. */
#include "schedule/fuse/internal.h"

bool rcvi_fusion_init(rcvi_fusion *f, rcvi_program *program, const rcvi_graph *graph, const rcvi_param_layout *params,
                      const char *label, rcvi_time_map time_map) {
    size_t count = graph->value_count;
    rcvi_pool *pool = &program->pool;
    *f = (rcvi_fusion){.rungs = &program->rungs, .time_map = time_map};
    bool ok = rcvi_emitter_init(&f->emitter, program, graph, params, label);
    f->storage = rcvi_pool_new(pool, count, sizeof *f->storage);
    f->chunk_copy = rcvi_pool_new(pool, count, sizeof *f->chunk_copy);
    f->given = rcvi_pool_new(pool, count, sizeof *f->given);
    f->needed = rcvi_pool_new(pool, count, sizeof *f->needed);
    f->kept = rcvi_pool_new(pool, count, sizeof *f->kept);
    f->known = rcvi_pool_new(pool, graph->state_count, sizeof *f->known);
    f->skipped = rcvi_pool_new(pool, graph->gradient_count, sizeof *f->skipped);
    f->method = rcvi_pool_new(pool, count, 1);
    f->phase = rcvi_pool_new(pool, count, 1);
    f->level = rcvi_pool_new(pool, count, sizeof *f->level);
    f->form_of = rcvi_pool_new(pool, count, sizeof *f->form_of);
    f->group = rcvi_pool_new(pool, count, sizeof *f->group);
    f->packed = rcvi_pool_new(pool, count, sizeof *f->packed);
    f->forms = rcvi_pool_new(pool, count, sizeof *f->forms);
    if (!ok || pool->failed) program->failed = true;
    for (size_t v = 0; !program->failed && v < count; v++) f->group[v] = f->packed[v] = RCVI_NONE;
    return !program->failed;
}

void rcvi_fusion_free(rcvi_fusion *f) {
    if (!f->emitter.program) return;
    rcvi_free(f->emitter.program->pool.context, f->stores);
    rcvi_emitter_free(&f->emitter);
}

bool rcvi_fusion_computes(const rcvi_fusion *f, int v) {
    return f->method[v] != RCVI_GIVEN && f->method[v] != RCVI_ABSORBED;
}

bool rcvi_fusion_is_factor(const rcvi_graph *graph, int v) {
    for (size_t g = 0; g < graph->gradient_count; g++) {
        if (graph->gradients[g].left == v || graph->gradients[g].right == v) return true;
    }
    return false;
}

int rcvi_fusion_resolve_alias(const rcvi_fusion *f, int v) {
    while (f->method[v] == RCVI_ALIAS) v = rcvi_fusion_value(f, v)->arguments[0];
    return v;
}

bool rcvi_fusion_is_in_register(const rcvi_fusion *f, int v, int c) {
    bool mapped = f->method[v] == RCVI_MAPPED || f->method[v] == RCVI_AFFINE;
    return mapped && f->method[c] == RCVI_MAPPED && f->phase[c] == f->phase[v] && f->level[c] == f->level[v] &&
           rcvi_fusion_columns(f, c) == rcvi_fusion_columns(f, v);
}

bool rcvi_fusion_is_read(const rcvi_fusion *f, int v, bool exactly) {
    for (int c = v + 1; c < rcvi_fusion_value_count(f); c++) {
        if (f->method[c] == RCVI_GIVEN || !f->emitter.live[c]) continue;
        rcvi_operation operation = rcvi_fusion_value(f, c)->operation;
        if (exactly && (operation == RCVI_MATRIX || operation == RCVI_MATRIX_TRANSPOSE)) continue;
        for (int a = 0; a < rcvi_fusion_argument_count(f, c); a++) {
            if (rcvi_fusion_value(f, c)->arguments[a] != v) continue;
            if (f->method[c] == RCVI_ALIAS) {
                if (rcvi_fusion_is_read(f, c, exactly)) return true;
                continue;
            }
            if (f->method[v] == RCVI_ALIAS
                    ? !f->scalar_columns || !rcvi_fusion_is_in_register(f, rcvi_fusion_resolve_alias(f, v), c)
                    : !rcvi_fusion_is_in_register(f, v, c))
                return true;
        }
    }
    return f->needed[v] || (!exactly && rcvi_fusion_is_factor(f->emitter.graph, v));
}

static bool is_read_outside(const rcvi_fusion *f, int v, unsigned char phase) {
    for (int c = v + 1; c < rcvi_fusion_value_count(f); c++) {
        if (f->method[c] == RCVI_GIVEN) continue;
        for (int a = 0; a < rcvi_fusion_argument_count(f, c); a++) {
            if (rcvi_fusion_value(f, c)->arguments[a] != v) continue;
            if (f->method[c] == RCVI_ALIAS ? is_read_outside(f, c, phase) : f->phase[c] != phase) return true;
        }
    }
    return false;
}

bool rcvi_fusion_crosses_phases(const rcvi_fusion *f, int v) {
    if ((f->time_map.chunk > 1 || f->defers_gradients) && rcvi_fusion_is_factor(f->emitter.graph, v)) return true;
    return is_read_outside(f, v, f->phase[v]);
}

void rcvi_fusion_store(rcvi_fusion *f, int v, rcvi_storage storage) {
    rcvi_program *program = f->emitter.program;
    if (program->failed) return;
    bool rounds =
        rcvi_dtype_is_narrow(program->options.dtype) && program->buffers[storage.buffer].rounding == RCVI_ROUNDED;
    bool alone = f->method[v] == RCVI_OWN_STEP || (f->method[v] == RCVI_AFFINE && rcvi_fusion_has_library_only(f));
    bool shows = rounds && !rcvi_fusion_is_scan_product(f, v) && (alone || rcvi_fusion_is_read(f, v, true));
    if (!rcvi_fusion_has_storage(f, v) && !shows) {
        f->storage[v] = storage;
    } else if (rcvi_grow(program->pool.context, &f->stores, &f->store_capacity, f->store_count + 1,
                         sizeof *f->stores)) {
        f->stores[f->store_count++] = (rcvi_store){v, storage};
    } else {
        program->failed = true;
    }
}

rcvi_view rcvi_fusion_view_of(const rcvi_fusion *f, const rcvi_storage *storage, bool over_chunk) {
    return over_chunk ? rcvi_storage_over_chunk(&f->time_map, storage) : rcvi_storage_at_step(&f->time_map, storage);
}

rcvi_view rcvi_fusion_view(const rcvi_fusion *f, int v, bool over_chunk) {
    if (over_chunk && f->chunk_copy[v].kind != RCVI_NOT_STORED) return rcvi_fusion_view_of(f, &f->chunk_copy[v], true);
    if (!rcvi_fusion_has_storage(f, v)) return f->emitter.views[v];
    return rcvi_fusion_view_of(f, &f->storage[v], over_chunk);
}

int rcvi_fusion_buffer(rcvi_fusion *f, int64_t slots, int64_t columns, const char *name, int v) {
    rcvi_program *program = f->emitter.program;
    int64_t count = rcvi_program_product(program, slots, f->time_map.batch, columns);
    const char *own = rcvi_fusion_value(f, v)->name, *label = f->emitter.label;
    int buffer = own ? rcvi_program_buffer(program, RCVI_ARENA, 0, RCVI_REAL, count, "%s%s.%s", label, name, own)
                     : rcvi_program_buffer(program, RCVI_ARENA, 0, RCVI_REAL, count, "%s%s.v%d", label, name, v);
    if (!program->failed) program->buffers[buffer].rounding = RCVI_ROUNDED_AS_OPERAND;
    return buffer;
}

void rcvi_fusion_clear_each_step(rcvi_fusion *f, rcvi_storage storage, int64_t columns) {
    rcvi_pool *pool = &f->emitter.program->pool;
    size_t most = f->emitter.graph->state_count;
    if (!f->zeros) {
        f->zeros = rcvi_pool_new(pool, most, sizeof *f->zeros);
        f->zero_columns = rcvi_pool_new(pool, most, sizeof *f->zero_columns);
    }
    if (!f->zeros || !f->zero_columns) {
        f->emitter.program->failed = true;
        return;
    }
    f->zeros[f->zero_count] = storage;
    f->zero_columns[f->zero_count++] = columns;
}
