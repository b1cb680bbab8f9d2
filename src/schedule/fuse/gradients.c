/* Gradients of the parameters, as products of kept factors; stacked parameters with adjacent factors are one product. */
#include "schedule/fuse/internal.h"

static bool is_next_to(const rcvi_view *a, const rcvi_view *b, int64_t columns) {
    rcvi_view moved = *a;
    moved.offset += columns;
    return rcvi_view_equal(&moved, b);
}

static rcvi_view factor(const rcvi_fusion *f, int v, bool over_chunk) {
    if (v == RCVI_NONE) return rcvi_no_view();
    if (f->defers_gradients)
        return rcvi_storage_over_all(f->chunk_copy[v].kind != RCVI_NOT_STORED ? &f->chunk_copy[v] : &f->storage[v]);
    return rcvi_fusion_view(f, v, over_chunk);
}

static bool comes_before(const rcvi_param_layout *a, const rcvi_param_layout *b) {
    return a->constant != b->constant ? b->constant : a->offset < b->offset;
}

/* The gradient not done yet whose parameter comes first, constants last, or the count of gradients. */
static size_t first_gradient(const rcvi_fusion *f, const bool *done) {
    const rcvi_graph *graph = f->emitter.graph;
    size_t first = graph->gradient_count;
    for (size_t g = 0; g < graph->gradient_count; g++) {
        if (done[g]) continue;
        if (first == graph->gradient_count || comes_before(&f->emitter.params[graph->gradients[g].param],
                                                           &f->emitter.params[graph->gradients[first].param]))
            first = g;
    }
    return first;
}

void rcvi_fusion_emit_gradients(rcvi_fusion *f, bool over_chunk) {
    rcvi_program *program = f->emitter.program;
    const rcvi_graph *graph = f->emitter.graph;
    rcvi_time before = program->time;
    program->time = over_chunk ? f->time_map.span : f->time_map.step;
    if (f->defers_gradients) program->time = (rcvi_time){.span = 1};
    int64_t steps = f->defers_gradients ? f->time_map.steps
                    : over_chunk        ? f->time_map.chunk
                                        : 1,
            depth = steps * f->time_map.batch;
    bool *done = rcvi_new(program->pool.context, graph->gradient_count, sizeof *done);
    if (!done) program->failed = true;
    for (size_t g = 0; done && g < graph->gradient_count; g++) done[g] = f->skipped[g];
    for (size_t g; !program->failed && (g = first_gradient(f, done)) < graph->gradient_count;) {
        const rcvi_gradient *gradient = &graph->gradients[g];
        const rcvi_param_layout *param = &f->emitter.params[gradient->param];
        int64_t rows = param->rows;
        rcvi_view left = factor(f, gradient->left, over_chunk), right = factor(f, gradient->right, over_chunk);
        done[g] = true;
        for (size_t n; f->rungs->combine && (n = first_gradient(f, done)) < graph->gradient_count;) {
            const rcvi_gradient *next = &graph->gradients[n];
            const rcvi_param_layout *other = &f->emitter.params[next->param];
            rcvi_view beside = factor(f, next->left, over_chunk);
            bool stacked = other->constant == param->constant &&
                           other->offset == param->offset + rows * param->columns && param->blocks == 1 &&
                           other->blocks == 1 && other->columns == param->columns &&
                           (param->constant || rcvi_program_is_one_array(program, param->offset, other->offset));
            if (!stacked || next->right != gradient->right || !is_next_to(&left, &beside, rows)) break;
            done[n] = true;
            rows += other->rows;
        }
        rcvi_emit_gradient(&f->emitter, param, rows, left, right, depth);
    }
    rcvi_free(program->pool.context, done);
    program->time = before;
}
