/* What the files of persistent.h share. */
#ifndef RCVI_CUDA_PERSISTENT_PARTS_H
#define RCVI_CUDA_PERSISTENT_PARTS_H

#include "device/cuda/persistent/persistent.h"

enum {
    RCVI_WEIGHT_ROWS = 64,                                         /* of weights in a block */
    RCVI_WARP_ROWS = 16,                                           /* the same of a warp */
    RCVI_FEW_ROWS = 8,                                             /* of a tile that warps multiply by themselves */
    RCVI_DEPTH_CHUNK_BYTES = 128,                                  /* of depth in a chunk */
    RCVI_WEIGHT_BYTES = RCVI_WEIGHT_ROWS * RCVI_DEPTH_CHUNK_BYTES, /* of a chunk of weights */
    RCVI_BARRIERS = RCVI_LANES * RCVI_MOST_RING + 4,               /* pairs of barriers in shared memory */
    RCVI_BARRIER_BYTES = 16,                                       /* of a pair */
    RCVI_PLACE_BYTES = 56,    /* words of a place there, and its address at three iterations */
    RCVI_MOST_EXACT_ROWS = 8, /* of a tile where threads multiply */
    RCVI_ALIGNED_WORDS = 32,
    RCVI_MAP_THREADS = 256 /* that take elements of maps; half of them where they do nothing else */
};

/* Joins the loop's steps; they have parts then, and are one map each. With `pairs` products that are needed apart, too. */
rcv_status rcvi_persistent_join(rcvi_engine *engine, rcvi_persistent *persistent, bool pairs);
/* Lets two steps that only multiply be parts of one, side by side, where rows of the batch are summed. */
void rcvi_persistent_pair(const rcvi_engine *engine, rcvi_persistent *persistent);
/* Finds what every step reads of others, and lets these write it to channels. Steps have seats. */
rcv_status rcvi_persistent_link(rcvi_engine *engine, rcvi_persistent *persistent);
/* Gives seats of one structure the same places. */
rcv_status rcvi_persistent_match(rcvi_engine *engine, rcvi_persistent *persistent);
/* Finds values that need no counters. */
rcv_status rcvi_persistent_tag(rcvi_engine *engine, rcvi_persistent *persistent);
/* Of a use of a channel with tags: at time t the tag is (t + phase) & 1. */
int rcvi_persistent_tag_phase(const rcvi_persistent *persistent, const rcvi_persistent_step *step, int use);
/* What of a map is stored in a view: a product, or an instruction, counted behind all products; or RCVI_NONE. */
int rcvi_persistent_source_of(const rcvi_map *map, int view);
/* The operand of the step's map in which it stored, an iteration before, what it reads of this one, so that a thread has it still;
 * or RCVI_NONE. The batch is cut. */
int rcvi_persistent_carried(const rcvi_engine *engine, const rcvi_persistent *persistent, int step, int view);
/* Gives a channel room for the slots of a use. */
void rcvi_persistent_cover(rcvi_channel *channel, const rcvi_persistent_step *step, const rcvi_channel_use *use);
/* Lets equal values pass through one channel. */
void rcvi_persistent_share(rcvi_persistent *persistent);
/* Finds what need not be stored. */
rcv_status rcvi_persistent_find_unread(rcvi_engine *engine, rcvi_persistent *persistent);
/* Cuts the batch, and shares out registers and shared memory. */
rcv_status rcvi_persistent_make_room(rcvi_engine *engine, rcvi_persistent *persistent);
/* The same for blocks that meet in clusters, or a sentence that says why they cannot. */
rcv_status rcvi_cluster_make_room(rcvi_engine *engine, rcvi_persistent *persistent);
/* Finds room through which weights come to registers before the loop, all at once where there is so much. Memory is shared out. */
void rcvi_persistent_find_stage(const rcvi_engine *engine, rcvi_persistent *persistent);
/* Leaves of channels what clusters need. */
void rcvi_cluster_find_channels(rcvi_persistent *persistent);
int64_t rcvi_cluster_offset(const rcvi_persistent *persistent, const rcvi_channel *channel);
/* Bytes that are sent of a row of the batch, to each block of the cluster. */
int64_t rcvi_cluster_row_bytes(const rcvi_persistent *persistent, const rcvi_seat *seat);
/* Chunks of weights that a seat's threads have registers for, in each lane. */
int rcvi_persistent_held_chunks(const rcvi_engine *engine, const rcvi_persistent *persistent, const rcvi_seat *seat);
/* Counters of channels, and memory of operands. The batch is cut. */
rcv_status rcvi_persistent_lay_out(rcvi_engine *engine, rcvi_persistent *persistent);

/* One more use of a channel by a step. */
rcv_status rcvi_persistent_add_use(rcvi_persistent_step *step, rcvi_channel_use use, int *index);

/* Is what this use reads there until it has been, where memory has so many slots? */
bool rcvi_persistent_keeps(const rcvi_persistent *persistent, int reader, const rcvi_channel_use *use, int64_t slots);

/* Are seats of one structure? */
bool rcvi_persistent_are_peers(const rcvi_persistent *persistent, const rcvi_seat *a, const rcvi_seat *b);

/* Is the view read element by element? */
bool rcvi_persistent_is_value(const rcvi_persistent_step *step, int view);

static inline bool rcvi_persistent_has_part(const rcvi_persistent_step *s, int step) {
    int n = 0;
    while (n < s->part_count && s->parts[n] != step) n++;
    return n < s->part_count;
}
/* Of a thread that multiplies: fewer where others take the maps. */
static inline int rcvi_persistent_registers(const rcvi_persistent *p) { return p->third ? 184 : 216; }
/* Threads of a row of a step by rows: a power of two. */
static inline int rcvi_persistent_across(const rcvi_persistent *p, int64_t columns) {
    int across = 32;
    while (across < RCVI_MAP_THREADS && (int64_t)across * p->vector < columns) across *= 2;
    return across;
}
static inline int64_t rcvi_round_up(int64_t count, int64_t each) { return (count + each - 1) / each * each; }
/* Columns of a multiplication: a tile's rows, once for every fold of depth. */
static inline int rcvi_persistent_wide(const rcvi_persistent *p) { return p->tile * p->fold; }
/* Those of a lane: in a cluster it has half of the folds. */
static inline int rcvi_persistent_lane_wide(const rcvi_persistent *p) {
    return p->cluster && p->fold > 1 ? rcvi_persistent_wide(p) / 2 : rcvi_persistent_wide(p);
}
/* Do warps multiply by themselves, where tensor cores do it? A tile has eight rows, and all of a warp's rows of weights are of one
 * fold. */
static inline bool rcvi_persistent_is_few(const rcvi_persistent *p) {
    int wide = rcvi_persistent_lane_wide(p);
    bool few = p->tile == RCVI_FEW_ROWS;
    for (int s = 0; s < p->seat_count && wide > p->tile; s++)
        few &= p->seats[s].units * p->seats[s].products % RCVI_WARP_ROWS == 0;
    return few;
}
/* Chunks of a fold of this depth: part after part of the first numbers, then of the next ones. */
static inline int rcvi_persistent_chunks(const rcvi_persistent *p, int64_t depth) {
    int64_t bytes = depth * (int64_t)rcvi_cuda_bytes(p->operand), each = RCVI_DEPTH_CHUNK_BYTES * p->fold;
    return p->parts * (int)(rcvi_round_up(bytes, each) / each);
}
/* Bytes of a slot of an operand: all tiles of the batch. */
static inline int64_t rcvi_persistent_slot(const rcvi_persistent *p, const rcvi_channel *channel) {
    return (int64_t)p->slices * p->tiles * channel->chunks * rcvi_persistent_wide(p) * RCVI_DEPTH_CHUNK_BYTES;
}
/* Rows of a tile that a slice has, as a power of two, or all of them. */
static inline int rcvi_persistent_rows(const rcvi_engine *e, const rcvi_persistent *p) {
    int rows = 1;
    while (rows < p->tile && rows < p->slice && rows < e->program->options.batch) rows *= 2;
    return rows < p->tile ? rows : p->tile;
}
static inline rcv_status rcvi_persistent_refuse(const char *sentence) {
    return rcvi_fail(RCV_UNSUPPORTED, "%s", sentence);
}

#endif
