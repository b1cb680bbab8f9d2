/* The block that is sent to the device with every batch: controls, ids, targets, rows by id, numbers. It has the sequences of the batch
 * that are here, in the order of units. */
#include "train/step/work.h"

#include <math.h>
#include <string.h>

enum { ALIGNMENT = 256 };

static size_t reserve(size_t *bytes, size_t count, size_t size) {
    size_t at = (*bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    *bytes = at + count * size;
    return at;
}

/* Words of an rcvi_groups of so many rows: the count, padded to 4, and three arrays. */
static size_t group_words(size_t rows) { return 4 + rows + rows + 1 + rows; }

bool rcvi_work_merges(const rcvi_work *w) {
    const rcvi_topology *topology = w->options.topology;
    return w->options.training && w->options.sparse && w->learner->has_embedding && topology &&
           topology->reduces_gradients;
}

static size_t merged_rows(const rcvi_work *w) {
    return rcvi_work_merges(w) ? (size_t)w->options.rows * (size_t)w->options.topology->replica_count : 0;
}

void rcvi_feed_lay_out(const rcvi_work *w, rcvi_feed *feed) {
    const rcv_learner *l = w->learner;
    size_t rows = (size_t)w->options.rows, bytes = 2 * sizeof(rcvi_control);
    size_t targets = rows; /* a sequence with one target has at least one row */
    bool values = rcvi_kind_has_values(l->shape.kind);
    bool tokens = l->shape.tokens > 0 && l->has_embedding, grouped = tokens && w->options.training;
    feed->ids = reserve(&bytes, tokens ? rows : 0, sizeof(int32_t));
    feed->targets = reserve(&bytes, values ? 0 : targets, sizeof(int32_t));
    feed->groups = reserve(&bytes, grouped ? group_words(rows) : 0, sizeof(int32_t));
    feed->merged = reserve(&bytes, rcvi_work_merges(w) ? group_words(merged_rows(w)) : 0, sizeof(int32_t));
    feed->last = reserve(&bytes, rcvi_predicts_steps(l) ? 0 : targets, sizeof(int32_t));
    feed->last_groups = reserve(&bytes, rcvi_predicts_steps(l) ? 0 : group_words(targets), sizeof(int32_t));
    feed->x = reserve(&bytes, l->shape.tokens || !l->has_embedding ? 0 : rows * (size_t)l->shape.features,
                      rcvi_real_bytes(l));
    feed->values = reserve(&bytes, values ? targets * (size_t)l->shape.outputs : 0, rcvi_real_bytes(l));
    feed->bytes = reserve(&bytes, 0, 1);
}

static rcvi_groups groups_at(const rcvi_work *w, size_t at, size_t rows) {
    const int32_t *words = (const int32_t *)(const void *)(w->device_block + at);
    return (rcvi_groups){.count = words, .ids = words + 4, .starts = words + 4 + rows, .order = words + 5 + 2 * rows};
}

rcvi_groups rcvi_feed_groups(const rcvi_work *w) { return groups_at(w, w->feed.groups, (size_t)w->options.rows); }
rcvi_groups rcvi_feed_merged(const rcvi_work *w) { return groups_at(w, w->feed.merged, merged_rows(w)); }

/* A micro-batch has its own ids; starts and order are the same for all. */
rcvi_groups rcvi_feed_last(const rcvi_work *w, const rcvi_window *v, int64_t micro) {
    rcvi_groups groups = groups_at(w, w->feed.last_groups, (size_t)w->options.rows);
    groups.ids += micro * v->target_pitch;
    return groups;
}

/* Groups rows by id; rows of id -1 are in no group. Groups are in the order in which their ids first appear, rows within a group rise. `slots`,
 * one per id, is all -1 before and after. */
static void group_rows(const int32_t *ids, int64_t rows, int32_t *slots, int32_t *words, int64_t room) {
    int32_t *count = words, *group_ids = words + 4, *starts = group_ids + room, *order = starts + room + 1;
    int32_t groups = 0;
    for (int64_t r = 0; r < rows; r++) {
        if (ids[r] < 0) continue;
        if (slots[ids[r]] < 0) {
            slots[ids[r]] = groups;
            group_ids[groups] = ids[r];
            starts[groups++] = 0;
        }
        starts[slots[ids[r]]]++;
    }
    int32_t sum = 0;
    for (int32_t g = 0; g < groups; g++) {
        int32_t size = starts[g];
        starts[g] = sum;
        sum += size;
    }
    for (int64_t r = 0; r < rows; r++)
        if (ids[r] >= 0) order[starts[slots[ids[r]]]++] = (int32_t)r;
    for (int32_t g = groups; g > 0; g--)
        starts[g] = starts[g - 1]; /* the loop above moved each to the start of the next */
    starts[0] = 0;
    for (int32_t g = 0; g < groups; g++) slots[group_ids[g]] = -1;
    *count = groups;
}

/* ---- rows of the batch ---- */

static void put_reals(const rcv_learner *l, const float *from, int64_t count, void *to) {
    for (int64_t i = 0; i < count && l->real == RCV_FLOAT64; i++) ((double *)to)[i] = (double)from[i];
    if (l->real != RCV_FLOAT64) memcpy(to, from, (size_t)count * sizeof *from);
}

/* Rows of one time step of a unit, contiguous in the window and in the batch: `count` sequences, of which the batch has the first `there`. */
typedef struct {
    int64_t row;  /* of the window */
    int64_t from; /* of the batch */
    int64_t count, there;
} row_block;

/* Block `index` of a window: one per step of a unit, unit after unit; or, of targets that a sequence has once, one per micro-batch. `first`:
 * first sequence of the replica. */
static row_block block_at(const rcvi_window *v, const rcvi_batch *batch, int64_t first, bool once, int64_t index) {
    int64_t steps = once ? 1 : v->steps, chunks = once ? 1 : v->chunks, pitch = once ? v->target_pitch : v->pitch;
    int64_t unit = index / steps, time = unit % chunks * steps + index % steps;
    int64_t sequence = first + unit / chunks * v->batch, there = batch->batch - sequence;
    there = there < 0 ? 0 : there > v->batch ? v->batch : there;
    return (row_block){unit * pitch + index % steps * v->batch, (once ? 0 : time * batch->batch) + sequence, v->batch,
                       there};
}

static int64_t count_blocks(const rcvi_window *v, bool once) {
    return once ? v->micro : rcvi_window_units(v) * v->steps;
}

/* Rows beyond the batch become `empty`, padding between units -1. */
static void put_ids(const rcvi_window *v, const rcvi_batch *batch, int64_t first, bool once, const int32_t *from,
                    int32_t empty, int32_t *to) {
    int64_t rows = once ? v->micro * v->target_pitch : rcvi_window_rows(v);
    if (rows > count_blocks(v, once) * v->batch) memset(to, 0xff, (size_t)rows * sizeof *to);
    for (int64_t i = 0; i < count_blocks(v, once); i++) {
        const row_block s = block_at(v, batch, first, once, i);
        if (s.there) memcpy(to + s.row, from + s.from, (size_t)s.there * sizeof *to);
        for (int64_t k = s.there; k < s.count; k++) to[s.row + k] = empty;
    }
}

static void put_features(const rcvi_work *w, const rcvi_window *v, const rcvi_batch *batch, bool once,
                         const float *from, int64_t features, float empty, char *to) {
    const rcv_learner *l = w->learner;
    for (int64_t i = 0; i < count_blocks(v, once); i++) {
        const row_block s = block_at(v, batch, v->first, once, i);
        put_reals(l, from + s.from * features, s.there * features, rcvi_element_at(l, to, s.row * features));
        for (int64_t k = s.there * features; k < s.count * features; k++)
            put_reals(l, &empty, 1, rcvi_element_at(l, to, s.row * features + k));
    }
}

static void put_lengths(const rcvi_work *w, const rcvi_window *v, const rcvi_batch *batch) {
    for (int64_t i = 0; i < v->micro * v->batch; i++) {
        int64_t sequence = v->first + i;
        w->lengths[i] = sequence < batch->batch && batch->lengths ? batch->lengths[sequence] : 1;
    }
}

/* The rows of y that the output layer reads: the last step of each sequence. */
static void put_last(const rcvi_work *w, const rcvi_window *v) {
    int32_t *last = (int32_t *)(void *)(w->host_block + w->feed.last);
    int32_t *words = (int32_t *)(void *)(w->host_block + w->feed.last_groups);
    int64_t room = w->options.rows;
    int32_t *ids = words + 4, *starts = ids + room, *order = starts + room + 1;
    for (int64_t i = 0; i < v->micro * v->batch; i++) {
        int64_t length = v->lengths ? w->lengths[i] : v->steps, m = i / v->batch, b = i % v->batch;
        last[m * v->target_pitch + b] = ids[m * v->target_pitch + b] =
            (int32_t)(m * v->pitch + (length - 1) * v->batch + b);
    }
    for (int64_t b = 0; b < v->batch; b++) starts[b] = order[b] = (int32_t)b;
    starts[v->batch] = (int32_t)v->batch;
    *words = (int32_t)v->batch;
}

/* ---- rows of the embedding ---- */

/* The tokens that each replica read, each once, in the order of their first appearance, and their grouping over all replicas: replicas gather
 * the gradient rows of these tokens. */
static void put_merged(rcvi_work *w, const rcvi_window *v, const rcvi_batch *batch) {
    int64_t rows = rcvi_window_rows(v), total = 0, here = v->micro * v->batch, room = (int64_t)merged_rows(w);
    int32_t *own = w->read_rows + room; /* rows of one replica at a time */
    for (int r = 0; r < w->options.topology->replica_count; r++) {
        int64_t before = total;
        put_ids(v, batch, r * here, false, batch->inputs, 0, own);
        for (int64_t i = 0; i < rows; i++) {
            if (own[i] < 0 || w->slots[own[i]] >= 0) continue;
            w->slots[own[i]] = 0;
            w->read_rows[total++] = own[i];
        }
        for (int64_t i = before; i < total; i++) w->slots[w->read_rows[i]] = -1;
        w->row_starts[r + 1] = total * w->learner->shape.embedding;
    }
    group_rows(w->read_rows, total, w->slots, (int32_t *)(void *)(w->host_block + w->feed.merged), room);
}

static void put_inputs(rcvi_work *w, const rcvi_window *v, const rcvi_batch *batch) {
    const rcv_learner *l = w->learner;
    int32_t *ids = (int32_t *)(void *)(w->host_block + w->feed.ids);
    if (!l->has_embedding) return;
    if (batch->x) put_features(w, v, batch, false, batch->x, l->shape.features, 0, w->host_block + w->feed.x);
    if (!batch->inputs) return;
    put_ids(v, batch, v->first, false, batch->inputs, 0, ids);
    if (w->options.training)
        group_rows(ids, rcvi_window_rows(v), w->slots, (int32_t *)(void *)(w->host_block + w->feed.groups),
                   w->options.rows);
    if (v->training && rcvi_work_merges(w)) put_merged(w, v, batch);
}

rcv_status rcvi_feed_send(rcvi_work *w, const rcvi_window *v, const rcvi_batch *batch, const rcvi_control *control,
                          uint64_t update_seed) {
    const rcv_learner *l = w->learner;
    bool once = !rcvi_predicts_steps(l);
    rcvi_control controls[2] = {*control, *control};
    controls[1].seed = update_seed;
    memcpy(w->host_block, controls, sizeof controls);
    put_lengths(w, v, batch);
    put_inputs(w, v, batch);
    if (batch->targets)
        put_ids(v, batch, v->first, once, batch->targets, -1, (int32_t *)(void *)(w->host_block + w->feed.targets));
    if (batch->values)
        put_features(w, v, batch, once, batch->values, l->shape.outputs, NAN, w->host_block + w->feed.values);
    if (once) put_last(w, v);
    return w->ops->send(w->learn, w->device_block, w->host_block, w->feed.bytes);
}
