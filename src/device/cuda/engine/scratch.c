/* The scratch of a run: one block of device memory, and the offsets of its parts. */
#include "device/cuda/engine/engine.h"
#include "device/cuda/kernels/kernels.h"

/* The largest scratch of a launch that sums over rows. */
static void find_sums_bytes(rcvi_engine *e) {
    for (size_t g = 0; g < e->group_count; g++) {
        const rcvi_step *step = &e->program->steps[e->order[e->groups[g].first]];
        if (step->kind != RCVI_STEP_REDUCE || !step->reduce.over_rows) continue;
        int64_t each = rcvi_cuda_reduce_rows_scratch(step->rows, step->columns);
        size_t bytes = (size_t)(e->groups[g].count * each) * rcvi_cuda_bytes(e->real);
        if (bytes > e->sums_bytes) e->sums_bytes = bytes;
    }
}

/* The offset of so many bytes, which follow those placed before. */
static size_t place(size_t *at, size_t bytes) {
    size_t offset = *at;
    *at += rcvi_cuda_align(bytes);
    return offset;
}

void rcvi_cuda_lay_out_scratch(rcvi_engine *e) {
    const rcvi_program *program = e->program;
    size_t at = 0;
    find_sums_bytes(e);
    e->seed = place(&at, sizeof(uint64_t));
    e->lengths = place(&at, (size_t)program->options.batch * sizeof(int64_t));
    e->rows_order = place(&at, (size_t)program->options.batch * sizeof(int64_t));
    e->alive = place(&at, e->has_alive ? (size_t)program->options.steps * sizeof(int64_t) : 0);
    for (size_t b = 0; b < program->buffer_count; b++) {
        if (e->rounded[b] != SIZE_MAX)
            e->rounded[b] = place(&at, (size_t)program->buffers[b].count * rcvi_cuda_bytes(e->narrow));
    }
    e->workspace =
        place(&at, rcvi_cuda_align(e->workspace_bytes) + (size_t)(e->streams - 1) * rcvi_cuda_align(e->beside_bytes));
    e->sums = place(&at, (size_t)e->streams * rcvi_cuda_align(e->sums_bytes));
    e->split_a = place(&at, (size_t)e->streams * rcvi_cuda_align(e->split_a_bytes));
    e->split_b = place(&at, (size_t)e->streams * rcvi_cuda_align(e->split_b_bytes));
    e->exchange = place(&at, e->exchange_bytes);
    e->counters = place(&at, e->counters_bytes);
    e->scans = place(&at, e->scans_bytes);
    e->scan_sums = place(&at, e->scan_sums_bytes);
    e->scratch = at;
}
