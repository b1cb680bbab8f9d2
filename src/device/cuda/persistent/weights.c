/* Placement of weights: how many chunks a thread's registers hold, how many shared memory holds; the rest is streamed, that is, copied
 * from memory in every time step. */
#include "device/cuda/persistent/internal.h"
#include "device/cuda/persistent/tuning.h"

enum { CHUNK_REGISTERS = 16 }; /* 64 rows of 128 bytes in 128 threads */

/* ---- registers ---- */

/* Vectors that a thread computes of one tile, or, by rows, of one row. */
int rcvi_persistent_thread_vectors(const rcvi_persistent *p, const rcvi_kernel_step *s) {
    const rcvi_task *task = &p->tasks[s->task];
    int threads = rcvi_persistent_map_threads(p);
    if (!s->by_rows) return (p->tile * task->units / p->vector + threads - 1) / threads;
    int64_t at_once = (int64_t)rcvi_persistent_row_threads(p, task->columns) * p->vector;
    return (int)((task->columns + at_once - 1) / at_once);
}

static int count_sum_registers(const rcvi_engine *e, const rcvi_persistent *p) {
    int columns = rcvi_persistent_pipe_columns(p);
    if (p->exact) return 4 * rcvi_persistent_rows(e, p) + RCVI_TUNED_EXACT_REGISTERS;
    if (p->cluster ? rcvi_persistent_uses_warp_mma(p) : p->tile == RCVI_WARP_MMA_ROWS)
        return p->parts > 2 ? RCVI_TUNED_WARP_MMA_PART_REGISTERS : RCVI_TUNED_WARP_MMA_REGISTERS;
    return p->parts > 2 ? columns : columns / 2;
}

/* Registers for what a map reads. A map by columns fetches it before the products, so it has registers besides the sums; a map by rows has
 * registers for what all rows share. */
static int count_map_registers(const rcvi_engine *e, const rcvi_persistent *p, const rcvi_kernel_step *s) {
    int words = s->has_row_arguments && !s->by_rows; /* the order of rows */
    for (int v = 0; v < s->view_count; v++) {
        if (s->views[v]->buffer == RCVI_NONE || !rcvi_persistent_is_value(s, v)) continue;
        if (s->views[v]->row)
            words += ((int)rcvi_cuda_bytes((rcvi_cuda_type)s->shape.types[v]) * p->vector + 3) / 4;
        else if (s->by_rows)
            words += p->vector;
    }
    return rcvi_persistent_thread_vectors(p, s) * words + (s->by_rows ? 0 : count_sum_registers(e, p));
}

int rcvi_persistent_mma_registers(const rcvi_persistent *p) {
    return p->has_map_warpgroup ? RCVI_TUNED_MMA_ONLY_REGISTERS : RCVI_TUNED_MMA_REGISTERS;
}

int rcvi_persistent_register_chunks(const rcvi_engine *e, const rcvi_persistent *p, const rcvi_task *task) {
    int most = count_sum_registers(e, p);
    if (p->has_map_warpgroup)
        return (rcvi_persistent_mma_registers(p) - RCVI_TUNED_MMA_ONLY_OTHER_REGISTERS - most) / CHUNK_REGISTERS;
    for (int k = 0; k < task->step_count; k++) {
        int own = count_map_registers(e, p, &p->steps[task->steps[k]]);
        if (own > most) most = own;
    }
    int all = !p->cluster ? rcvi_persistent_mma_registers(p)
              : p->exact  ? RCVI_TUNED_CLUSTER_EXACT_REGISTERS
                          : RCVI_TUNED_CLUSTER_REGISTERS;
    int chunks = (all - RCVI_TUNED_OTHER_REGISTERS - most) / CHUNK_REGISTERS;
    return chunks > 0 ? chunks : 0;
}

/* ---- shared memory ---- */

void rcvi_persistent_place_in_shared(rcvi_persistent *p, int most) {
    p->shared_weight_chunks = p->streamed_chunks = 0;
    for (int s = 0; s < p->task_count; s++) {
        rcvi_task *task = &p->tasks[s];
        int left[RCVI_PIPES], streamed = 0, *in_shared = task->in_shared;
        for (int pipe = 0; pipe < RCVI_PIPES; pipe++) left[pipe] = task->chunks[pipe] - task->in_registers[pipe];
        /* half for pipe 0, then what it leaves for pipe 1, then what pipe 1 leaves for pipe 0 */
        in_shared[0] = left[0] < most / 2 ? left[0] : most / 2;
        in_shared[1] = left[1] < most - in_shared[0] ? left[1] : most - in_shared[0];
        in_shared[0] = left[0] < most - in_shared[1] ? left[0] : most - in_shared[1];
        for (int pipe = 0; pipe < RCVI_PIPES; pipe++) streamed += left[pipe] - in_shared[pipe];
        if (in_shared[0] + in_shared[1] > p->shared_weight_chunks)
            p->shared_weight_chunks = in_shared[0] + in_shared[1];
        if (streamed > p->streamed_chunks) p->streamed_chunks = streamed;
    }
}

/* ---- the way to registers ---- */

/* Before the loop weights come to registers through shared memory: through the rings, or through what is left of shared memory if that is
 * more, so that all chunks come at once. */
void rcvi_persistent_find_staging(const rcvi_engine *e, rcvi_persistent *p) {
    int most = 0;
    for (int s = 0; s < p->task_count; s++) {
        for (int pipe = 0; pipe < RCVI_PIPES; pipe++) {
            if (p->tasks[s].in_registers[pipe] > most) most = p->tasks[s].in_registers[pipe];
        }
    }
    size_t at = (size_t)rcvi_round_up((int64_t)p->shared_bytes, RCVI_DEPTH_CHUNK_BYTES);
    size_t left = at < (size_t)e->shared ? ((size_t)e->shared - at) / RCVI_PIPES / RCVI_WEIGHT_BYTES : 0;
    size_t chunks = left < (size_t)most ? left : (size_t)most, in_ring = p->pipe_bytes / RCVI_WEIGHT_BYTES;
    p->staging_offset = 0;
    p->staging_bytes = p->pipe_bytes;
    if (chunks <= in_ring) return;
    p->staging_offset = at;
    p->staging_bytes = chunks * RCVI_WEIGHT_BYTES;
    p->shared_bytes = at + RCVI_PIPES * p->staging_bytes;
}
