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

/* The offset of so many bytes, which follow those reserved before. */
static size_t reserve(size_t *at, size_t bytes) {
    size_t offset = *at;
    *at += rcvi_cuda_align(bytes);
    return offset;
}

void rcvi_cuda_lay_out_scratch(rcvi_engine *e) {
    const rcvi_program *program = e->program;
    size_t at = 0;
    find_sums_bytes(e);
    e->seed = reserve(&e->kept, sizeof(uint64_t));
    e->lengths = reserve(&e->kept, (size_t)program->options.batch * sizeof(int64_t));
    e->rows_order = reserve(&e->kept, (size_t)program->options.batch * sizeof(int64_t));
    e->alive = reserve(&e->kept, e->has_alive ? (size_t)program->options.steps * sizeof(int64_t) : 0);
    for (size_t b = 0; b < program->buffer_count; b++) {
        const rcvi_buffer *buffer = &program->buffers[b];
        e->rounded_is_kept[b] = buffer->kept || (buffer->role == RCVI_X && program->options.training);
        if (e->rounded[b] != SIZE_MAX)
            e->rounded[b] =
                reserve(e->rounded_is_kept[b] ? &e->kept : &at, (size_t)buffer->count * rcvi_cuda_bytes(e->narrow));
    }
    e->workspace =
        reserve(&at, rcvi_cuda_align(e->workspace_bytes) + (size_t)(e->streams - 1) * rcvi_cuda_align(e->beside_bytes));
    e->sums = reserve(&at, (size_t)e->streams * rcvi_cuda_align(e->sums_bytes));
    e->split_a = reserve(&at, (size_t)e->streams * rcvi_cuda_align(e->split_a_bytes));
    e->split_b = reserve(&at, (size_t)e->streams * rcvi_cuda_align(e->split_b_bytes));
    e->exchange = reserve(&at, e->exchange_bytes);
    e->counters = reserve(&at, e->counters_bytes);
    e->scans = reserve(&at, e->scans_bytes);
    e->scan_sums = reserve(&at, e->scan_sums_bytes);
    e->scratch = at;
}
