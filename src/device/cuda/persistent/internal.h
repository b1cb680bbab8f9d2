/* What the files of a persistent kernel share; persistent.h has the data structures and says how they belong together.
 *
 * The functions are called in this order, each for the whole loop: merge_steps (with pair_products), tasks (persistent.c), connect,
 * share_channels, unify_tasks, find_flagged, choose_layout (or that of clusters), find_staging, find_dead_stores, lay_out_exchange,
 * source. Each answers a status: RCV_UNSUPPORTED with a sentence where a loop cannot be one kernel. */
#ifndef RCVI_CUDA_PERSISTENT_INTERNAL_H
#define RCVI_CUDA_PERSISTENT_INTERNAL_H

#include "device/cuda/persistent/persistent.h"

enum {
    RCVI_WEIGHT_ROWS = 64,                                         /* rows of weights of a pipe: M of wgmma */
    RCVI_WARP_ROWS = 16,                                           /* rows of weights of a warp */
    RCVI_WARP_MMA_ROWS = 8,                                        /* rows of a tile that is multiplied by mma.sync */
    RCVI_DEPTH_CHUNK_BYTES = 128,                                  /* a row of a chunk: the swizzle of 128 bytes */
    RCVI_WEIGHT_BYTES = RCVI_WEIGHT_ROWS * RCVI_DEPTH_CHUNK_BYTES, /* a chunk of weights */
    RCVI_BARRIERS = RCVI_PIPES * RCVI_MAX_RING + 4,                /* pairs of mbarriers in shared memory */
    RCVI_BARRIER_BYTES = 16,                                       /* a pair */
    RCVI_ARGUMENT_BYTES = 56, /* an argument, and its address at three iterations */
    RCVI_MAX_EXACT_ROWS = 8,  /* rows of a tile that is multiplied by FMA */
    RCVI_ALIGNED_WORDS = 32,  /* words with flags begin at a cache line */
    RCVI_MAP_THREADS = 256    /* threads that compute maps; half of them where there is a map warpgroup */
};

/* ---- merge_steps.c, pair_products.c ---- */

/* Merges the loop's steps: every kernel step then has members and is one map. `pairs`: products that are needed apart, too. */
rcv_status rcvi_persistent_merge_steps(rcvi_engine *engine, rcvi_persistent *persistent, bool pairs);
/* Makes one kernel step of two steps that only multiply, where some map of the loop sums over features. */
void rcvi_persistent_pair_products(const rcvi_engine *engine, rcvi_persistent *persistent);

/* ---- channels.c, hazards.c ---- */

/* Finds what every step reads of others and adds the channels and ports for it. Steps have tasks. */
rcv_status rcvi_persistent_connect(rcvi_engine *engine, rcvi_persistent *persistent);
/* Refuses a loop in which memory of one time step, or a ring, is overwritten before another task has read it. */
rcv_status rcvi_persistent_check_hazards(const rcvi_persistent *persistent);
/* Has the reader always read a slot when the writer writes it again, if memory has this many slots? */
bool rcvi_persistent_outlives(const rcvi_persistent *persistent, int reader, const rcvi_port *port, int64_t slots);
/* What a map stores in a view: a product, or an instruction, counted after all products; or RCVI_NONE. */
int rcvi_persistent_source_of(const rcvi_map *map, int view);
/* The operand of the step's map in which it stored, one iteration before, what it reads of this view, so that the thread still has it in a
 * register; or RCVI_NONE. The layout is chosen. */
int rcvi_persistent_carried(const rcvi_engine *engine, const rcvi_persistent *persistent, int step, int view);
/* Is the view read element by element? */
bool rcvi_persistent_is_value(const rcvi_kernel_step *step, int view);
/* Extends a channel's slots to those of a port. */
void rcvi_channel_cover(rcvi_channel *channel, const rcvi_kernel_step *step, const rcvi_port *port);
rcv_status rcvi_persistent_add_port(rcvi_kernel_step *step, rcvi_port port, int *index);

/* ---- share_channels.c, unify_tasks.c, flags.c, dead_stores.c ---- */

/* Lets equal values go through one channel. */
void rcvi_persistent_share_channels(rcvi_persistent *persistent);
/* Gives similar tasks the same arguments. */
rcv_status rcvi_persistent_unify_tasks(rcvi_engine *engine, rcvi_persistent *persistent);
/* Are tasks of equal structure? */
bool rcvi_persistent_are_similar(const rcvi_persistent *persistent, const rcvi_task *a, const rcvi_task *b);
/* Finds values that go with flags and need no counters. */
rcv_status rcvi_persistent_find_flagged(rcvi_engine *engine, rcvi_persistent *persistent);
/* Of a port of a channel with flags: at time t the flag is (t + phase) & 1. */
int rcvi_persistent_flag_phase(const rcvi_persistent *persistent, const rcvi_kernel_step *step, int port);
/* Finds stores that no step reads. */
rcv_status rcvi_persistent_find_dead_stores(rcvi_engine *engine, rcvi_persistent *persistent);

/* ---- layout.c, cluster.c: how the loop lies on the chip ---- */

rcv_status rcvi_persistent_choose_layout(rcvi_engine *engine, rcvi_persistent *persistent);
rcv_status rcvi_cluster_choose_layout(rcvi_engine *engine, rcvi_persistent *persistent);

/* batch.c. The vector of all maps, and the blocks of every task. */
rcv_status rcvi_persistent_cut_columns(rcvi_persistent *persistent);
/* Slices and tiles; two tiles of `alternating_rows` or more alternate, or all tiles if it is 8; 0: as few tiles as possible. */
rcv_status rcvi_persistent_cut_batch(const rcvi_engine *engine, rcvi_persistent *persistent, int alternating_rows);
/* Halves the vector until every map thread has elements. */
void rcvi_persistent_narrow_vector(rcvi_persistent *persistent);

/* pipes.c. Is the operand of this pass written by the task itself? Are all? */
bool rcvi_persistent_is_own_operand(const rcvi_persistent *persistent, int task, int pass);
bool rcvi_persistent_has_only_own_operands(const rcvi_persistent *persistent);
/* Shares out a task's chunks to its pipes; so many of each pipe stay in registers. */
void rcvi_persistent_assign_chunks(rcvi_persistent *persistent, int task, int in_registers);
/* Cuts a pipe's chunks into groups of `size` or fewer, of one pass each, other operands before own ones. False: too many groups. */
bool rcvi_persistent_group_chunks(rcvi_persistent *persistent, int task, int pipe, int size);

/* weights.c. Chunks of weights that a task's threads have registers for, in each pipe. */
int rcvi_persistent_register_chunks(const rcvi_engine *engine, const rcvi_persistent *persistent,
                                    const rcvi_task *task);
/* Places up to `most` chunks of every block in shared memory; the rest is streamed. */
void rcvi_persistent_place_in_shared(rcvi_persistent *persistent, int most);
/* Registers of a thread that multiplies. */
int rcvi_persistent_mma_registers(const rcvi_persistent *persistent);
int rcvi_persistent_thread_vectors(const rcvi_persistent *persistent, const rcvi_kernel_step *step);
/* Finds shared memory through which weights come to registers before the loop. All else has its place. */
void rcvi_persistent_find_staging(const rcvi_engine *engine, rcvi_persistent *persistent);

/* shared_memory.c. Weights, rings and sums in shared memory. */
rcv_status rcvi_persistent_share_memory(const rcvi_engine *engine, rcvi_persistent *persistent);
/* Do the rings have slots for all groups of so many tiles? */
bool rcvi_persistent_rings_hold(const rcvi_persistent *persistent, int tiles);

/* ---- counters.c, task_text.c ---- */

/* Writes what is in the namespace of the task's variant to task->text. */
rcv_status rcvi_persistent_task_text(rcv_context *context, const rcvi_engine *engine, const rcvi_persistent *persistent,
                                     rcvi_task *task);
/* Counters of channels, and memory of operands. The layout is chosen. */
rcv_status rcvi_persistent_lay_out_exchange(rcvi_engine *engine, rcvi_persistent *persistent);

/* ---- cluster.c ---- */

/* Reduces channels to what clusters need: memory for the first operand. */
void rcvi_cluster_find_channels(rcvi_persistent *persistent);
/* Where the operand of a channel begins in a slot. */
int64_t rcvi_cluster_offset(const rcvi_persistent *persistent, const rcvi_channel *channel);
/* Bytes that are sent of a row of the batch, to each block of the cluster. */
int64_t rcvi_cluster_row_bytes(const rcvi_persistent *persistent, const rcvi_task *task);

/* ---- small functions ---- */

static inline bool rcvi_kernel_step_contains(const rcvi_kernel_step *s, int step) {
    int n = 0;
    while (n < s->member_count && s->members[n] != step) n++;
    return n < s->member_count;
}
static inline int rcvi_persistent_map_threads(const rcvi_persistent *p) {
    return p->has_map_warpgroup ? RCVI_MAP_THREADS / 2 : RCVI_MAP_THREADS;
}
/* Threads of a row of a step by rows: a power of two. */
static inline int rcvi_persistent_row_threads(const rcvi_persistent *p, int64_t columns) {
    int threads = 32;
    while (threads < RCVI_MAP_THREADS && (int64_t)threads * p->vector < columns) threads *= 2;
    return threads;
}
/* Columns (N) of an MMA: a tile's rows, once for every depth split. */
static inline int rcvi_persistent_mma_columns(const rcvi_persistent *p) { return p->tile * p->depth_splits; }
/* Those of a pipe: in a cluster it has half of the depth splits. */
static inline int rcvi_persistent_pipe_columns(const rcvi_persistent *p) {
    return p->cluster && p->depth_splits > 1 ? rcvi_persistent_mma_columns(p) / 2 : rcvi_persistent_mma_columns(p);
}
/* Is mma.sync used instead of wgmma? Tiles have 8 rows, and all rows of weights of a warp are of one depth split. */
static inline bool rcvi_persistent_uses_warp_mma(const rcvi_persistent *p) {
    int columns = rcvi_persistent_pipe_columns(p);
    bool warp_mma = p->tile == RCVI_WARP_MMA_ROWS;
    for (int s = 0; s < p->task_count && columns > p->tile; s++)
        warp_mma &= p->tasks[s].units * p->tasks[s].products % RCVI_WARP_ROWS == 0;
    return warp_mma;
}
/* Chunks of one depth split of this depth, of all parts: part after part of the first numbers, then of the next ones. */
static inline int rcvi_persistent_chunks(const rcvi_persistent *p, int64_t depth) {
    int64_t bytes = depth * (int64_t)rcvi_cuda_bytes(p->operand), each = RCVI_DEPTH_CHUNK_BYTES * p->depth_splits;
    return p->parts * (int)(rcvi_round_up(bytes, each) / each);
}
/* Bytes of a slot of an operand: all tiles of the batch. */
static inline int64_t rcvi_persistent_slot(const rcvi_persistent *p, const rcvi_channel *channel) {
    return (int64_t)p->slices * p->tiles * channel->chunks * rcvi_persistent_mma_columns(p) * RCVI_DEPTH_CHUNK_BYTES;
}
/* Rows of a tile that a slice has: the next power of two, or the whole tile. */
static inline int rcvi_persistent_rows(const rcvi_engine *e, const rcvi_persistent *p) {
    int rows = 1;
    while (rows < p->tile && rows < p->slice && rows < e->program->options.batch) rows *= 2;
    return rows < p->tile ? rows : p->tile;
}
static inline rcv_status rcvi_persistent_refuse(const char *sentence) {
    return rcvi_fail(RCV_UNSUPPORTED, "%s", sentence);
}

#endif
