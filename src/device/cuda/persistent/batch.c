/* Columns and rows of a block: a task's columns are cut into blocks of `units` columns, the batch into slices, one for every set of blocks
 * that the GPU has processors for, and a slice into tiles. */
#include "device/cuda/persistent/internal.h"
#include "device/cuda/persistent/tuning.h"

static int find_units(const rcvi_persistent *p, const rcvi_task *task) {
    int units = RCVI_WEIGHT_ROWS / (task->products * p->depth_splits);
    return units / p->vector * p->vector;
}

rcv_status rcvi_persistent_cut_columns(rcvi_persistent *p) {
    int least = RCVI_WEIGHT_ROWS;
    for (int i = 0; i < p->step_count; i++) {
        const rcvi_map_shape *shape = &p->steps[i].shape;
        int vector = p->steps[i].by_rows ? shape->widest : shape->vector;
        if (i == 0 || vector < p->vector) p->vector = vector;
    }
    for (int s = 0; s < p->task_count; s++) {
        int units = RCVI_WEIGHT_ROWS / (p->tasks[s].products * p->depth_splits);
        if (units < least) least = units;
    }
    if (least < 1) return rcvi_persistent_refuse("a persistent kernel takes 64 products of a map at most");
    while (p->vector > least) p->vector /= 2;
    for (int s = 0; s < p->task_count; s++) {
        rcvi_task *task = &p->tasks[s];
        task->units = find_units(p, task);
        task->blocks = (int)((task->columns + task->units - 1) / task->units);
    }
    return RCV_OK;
}

rcv_status rcvi_persistent_cut_batch(const rcvi_engine *e, rcvi_persistent *p, int alternating_rows) {
    int64_t batch = e->program->options.batch, blocks = 0;
    for (int s = 0; s < p->task_count; s++) blocks += p->tasks[s].blocks;
    if (blocks < 1) return rcvi_persistent_refuse("a persistent kernel needs a time loop with products");
    if (blocks > e->processors)
        return rcvi_fail(RCV_UNSUPPORTED,
                         "a persistent kernel of this loop needs %lld processors at once; this GPU has %d: leave "
                         "wavefront out, so that a layer has them all",
                         (long long)blocks, e->processors);
    int64_t slices = e->processors / blocks, most = (batch + 7) / 8;
    if (slices > most) slices = most;
    p->slice = (int)rcvi_round_up((batch + slices - 1) / slices, 8);
    p->slices = (int)((batch + p->slice - 1) / p->slice);
    int rows = p->exact ? RCVI_MAX_EXACT_ROWS : RCVI_TUNED_TILE_ROWS;
    p->tiles = (p->slice + rows - 1) / rows;
    if (alternating_rows == RCVI_WARP_MMA_ROWS) p->tiles = p->slice / RCVI_WARP_MMA_ROWS;
    if (alternating_rows > RCVI_WARP_MMA_ROWS && p->tiles < 2 && p->slice >= 2 * alternating_rows) p->tiles = 2;
    p->tile = (int)rcvi_round_up((p->slice + p->tiles - 1) / p->tiles, 8);
    p->blocks = (int)blocks * p->slices;
    return RCV_OK;
}

void rcvi_persistent_narrow_vector(rcvi_persistent *p) {
    int elements = 0; /* of a block's tile, of the largest task */
    for (int s = 0; s < p->task_count; s++) {
        int own = p->tile * p->tasks[s].units;
        if (own > elements) elements = own;
    }
    while (p->vector > 1 && elements / p->vector < rcvi_persistent_map_threads(p)) p->vector /= 2;
}
