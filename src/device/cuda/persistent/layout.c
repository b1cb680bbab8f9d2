/* Layout of a persistent kernel on the chip: the depth split, alternating tiles and the map warpgroup are chosen here; columns and batch
 * (batch.c), pipes (pipes.c), weights (weights.c) and shared memory (shared_memory.c) follow from them. */
#include "device/cuda/persistent/internal.h"
#include "device/cuda/persistent/tuning.h"

enum { EXACT_WEIGHT_ROWS = 4 }; /* of a thread that multiplies by FMA; they must be of one depth split */

/* The whole layout for one depth split. `alternating_rows`: least rows of tiles that alternate; 0: tiles do not alternate. */
static rcv_status lay_out(const rcvi_engine *e, rcvi_persistent *p, int splits, int alternating_rows) {
    p->depth_splits = splits;
    /* adding the sums of depth splits makes maps longer than the products of a tile */
    p->has_map_warpgroup = alternating_rows > 0 && splits > 1 && !p->exact;
    RCVI_TRY(rcvi_persistent_cut_columns(p));
    RCVI_TRY(rcvi_persistent_cut_batch(e, p, alternating_rows));
    if (splits > 1 && rcvi_persistent_mma_columns(p) > RCVI_TUNED_SPLIT_COLUMNS)
        return rcvi_persistent_refuse("depth is not split where a tile has many rows");
    for (int s = 0; s < p->task_count; s++) {
        if (splits > 1 && p->exact && p->tasks[s].units * p->tasks[s].products % EXACT_WEIGHT_ROWS)
            return rcvi_persistent_refuse("depth is not split where a thread would have weights of several splits");
    }
    if (!p->by_rows) rcvi_persistent_narrow_vector(p);
    for (int i = 0; i < p->step_count; i++) {
        if (p->steps[i].by_rows && rcvi_persistent_thread_vectors(p, &p->steps[i]) * p->vector > RCVI_TUNED_ROW_SPAN)
            return rcvi_persistent_refuse("a persistent kernel does not sum over so many features");
    }
    for (int s = 0; s < p->task_count; s++)
        rcvi_persistent_assign_chunks(p, s, rcvi_persistent_register_chunks(e, p, &p->tasks[s]));
    return rcvi_persistent_share_memory(e, p);
}

/* Two tiles alternate where a task reads only its own operands: while those of one tile are on their way, the other is multiplied. (With
 * other operands, products of these fill that time.) Where depth is split, tiles of 8 rows alternate, too, since a warp multiplies only its
 * own split. They do not alternate where weights are streamed, which would be copied for every tile, or where rings are small. */
static rcv_status lay_out_split(const rcvi_engine *e, rcvi_persistent *p, int splits) {
    const bool alternates = rcvi_persistent_has_only_own_operands(p) && !p->by_rows;
    const int least = splits > 1 ? RCVI_WARP_MMA_ROWS : RCVI_TUNED_ALTERNATING_ROWS,
              most = splits > 1 ? RCVI_TUNED_ALTERNATING_SPLIT_ROWS : RCVI_TUNED_ALTERNATING_ROWS;
    for (int rows = least; alternates && rows <= most; rows += RCVI_WARP_MMA_ROWS) {
        rcv_status status = lay_out(e, p, splits, rows);
        bool is_cut = p->tiles > 1 && (rows > RCVI_WARP_MMA_ROWS || p->slice <= RCVI_TUNED_WARP_MMA_SLICE);
        if (!status && is_cut && !p->streamed_chunks &&
            (rcvi_persistent_rings_hold(p, 1) || p->pipe_bytes >= RCVI_TUNED_ALTERNATING_RING_BYTES))
            return RCV_OK;
    }
    return lay_out(e, p, splits, 0);
}

/* Cycles of an iteration, as far as they depend on the depth split: MMA instructions, bytes that all blocks copy through the L2 cache,
 * counters that they increment, and streamed weights, whose small groups have a latency each. */
static double estimate_cycles(const rcvi_persistent *p) {
    int columns = rcvi_persistent_mma_columns(p), most = 0, blocks = 0;
    bool warp_mma = rcvi_persistent_uses_warp_mma(p);
    double bytes = 0;
    for (int s = 0; s < p->task_count; s++) {
        const rcvi_task *task = &p->tasks[s];
        int chunks = task->chunks[0] + task->chunks[1],
            streamed = chunks - task->in_registers[0] - task->in_registers[1] - task->in_shared[0] - task->in_shared[1];
        if (chunks > most) most = chunks;
        if (task->blocks > blocks) blocks = task->blocks;
        bytes += (double)(task->blocks * p->slices * p->tiles) *
                 ((double)chunks * columns * RCVI_DEPTH_CHUNK_BYTES + (double)streamed * RCVI_WEIGHT_BYTES);
    }
    double cache = warp_mma && !p->streamed_chunks ? RCVI_TUNED_COST_SMALL_L2_BYTES : RCVI_TUNED_COST_L2_BYTES;
    double instruction = warp_mma       ? RCVI_TUNED_COST_WARP_MMA
                         : columns > 16 ? RCVI_TUNED_COST_WGMMA_COLUMN * columns
                                        : RCVI_TUNED_COST_LEAST_WGMMA;
    return p->tiles * (4.0 * most * instruction + RCVI_TUNED_COST_STREAMED_CHUNK * p->streamed_chunks) + bytes / cache +
           RCVI_TUNED_COST_BLOCK * blocks;
}

rcv_status rcvi_persistent_choose_layout(rcvi_engine *e, rcvi_persistent *p) {
    int best = 1;
    double least = 0;
    for (int splits = 1; splits <= RCVI_TUNED_DEPTH_SPLITS; splits *= 2) {
        if (lay_out_split(e, p, splits)) continue;
        double cycles = estimate_cycles(p);
        if (least > 0 && cycles >= least) continue;
        least = cycles;
        best = splits;
    }
    RCVI_TRY(lay_out_split(e, p, best));
    p->defers_stores = rcvi_persistent_has_only_own_operands(p) && p->tiles == 1 && !p->by_rows;
    return RCV_OK;
}
