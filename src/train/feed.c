/* What a batch sends to the device, in one block: control, ids, targets, rows by id, numbers. */
#include "train/work.h"

#include <math.h>
#include <string.h>

enum { ALIGNMENT = 256 };

static size_t reserve(size_t *bytes, size_t count, size_t size) {
    size_t at = (*bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    *bytes = at + count * size;
    return at;
}

/* Of rows by id: the count and three arrays. */
static size_t group_words(size_t rows) { return 4 + rows + rows + 1 + rows; }

void rcvi_feed_lay_out(const rcvi_work *w, rcvi_feed *feed) {
    const rcv_learner *l = w->learner;
    size_t rows = (size_t)w->options.rows, bytes = 2 * sizeof(rcvi_control);
    size_t told = rows; /* there is at most one example a row */
    feed->ids = reserve(&bytes, l->shape.tokens ? rows : 0, sizeof(int32_t));
    feed->targets = reserve(&bytes, l->shape.kind == RCV_DATA_VALUES ? 0 : told, sizeof(int32_t));
    feed->groups = reserve(&bytes, l->shape.tokens && w->options.training ? group_words(rows) : 0, sizeof(int32_t));
    feed->last = reserve(&bytes, rcvi_tells_next(l) ? 0 : told, sizeof(int32_t));
    feed->last_groups = reserve(&bytes, rcvi_tells_next(l) ? 0 : group_words(told), sizeof(int32_t));
    feed->x = reserve(&bytes, l->shape.tokens ? 0 : rows * (size_t)l->shape.features, rcvi_real_bytes(l));
    feed->values =
        reserve(&bytes, l->shape.kind == RCV_DATA_VALUES ? told * (size_t)l->shape.outputs : 0, rcvi_real_bytes(l));
    feed->bytes = reserve(&bytes, 0, 1);
}

static rcvi_groups groups_at(const rcvi_work *w, const char *block, size_t at) {
    const int32_t *words = (const int32_t *)(const void *)(block + at);
    size_t rows = (size_t)w->options.rows;
    return (rcvi_groups){.count = words, .ids = words + 4, .starts = words + 4 + rows, .order = words + 5 + 2 * rows};
}

rcvi_groups rcvi_feed_groups(const rcvi_work *w, bool last) {
    return groups_at(w, w->there, last ? w->feed.last_groups : w->feed.groups);
}

/* Rows by id: groups in the order in which their ids first appear, rows rising. `slots` is all -1, before and after. */
static void group(const int32_t *ids, int64_t rows, int32_t *slots, int32_t *words, int64_t room) {
    int32_t *count = words, *group_ids = words + 4, *starts = group_ids + room, *order = starts + room + 1;
    int32_t groups = 0;
    for (int64_t r = 0; r < rows; r++) {
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
    for (int64_t r = 0; r < rows; r++) order[starts[slots[ids[r]]]++] = (int32_t)r;
    for (int32_t g = groups; g > 0; g--) starts[g] = starts[g - 1]; /* each had moved to the next one's start */
    starts[0] = 0;
    for (int32_t g = 0; g < groups; g++) slots[group_ids[g]] = -1;
    *count = groups;
}

static void put_reals(const rcv_learner *l, const float *from, int64_t count, void *to) {
    for (int64_t i = 0; i < count && l->real == RCV_FLOAT64; i++) ((double *)to)[i] = (double)from[i];
    if (l->real != RCV_FLOAT64) memcpy(to, from, (size_t)count * sizeof *from);
}

/* The rows of y that are read: each sequence's last. */
static void put_last(const rcvi_work *w, const rcvi_batch *batch) {
    int32_t *last = (int32_t *)(void *)(w->here + w->feed.last);
    int32_t *words = (int32_t *)(void *)(w->here + w->feed.last_groups);
    int64_t room = w->options.rows;
    int32_t *ids = words + 4, *starts = ids + room, *order = starts + room + 1;
    for (int64_t b = 0; b < batch->batch; b++) {
        int64_t length = batch->lengths ? batch->lengths[b] : batch->steps;
        last[b] = ids[b] = (int32_t)((length - 1) * batch->batch + b);
        starts[b] = order[b] = (int32_t)b;
    }
    starts[batch->batch] = (int32_t)batch->batch;
    *words = (int32_t)batch->batch;
}

rcv_status rcvi_feed_send(rcvi_work *w, const rcvi_batch *batch, const rcvi_control *control, uint64_t update_seed) {
    const rcv_learner *l = w->learner;
    int64_t rows = batch->steps * batch->batch, told = rcvi_tells_next(l) ? rows : batch->batch;
    rcvi_control controls[2] = {*control, *control};
    controls[1].seed = update_seed;
    memcpy(w->here, controls, sizeof controls);
    if (batch->inputs) memcpy(w->here + w->feed.ids, batch->inputs, (size_t)rows * sizeof(int32_t));
    if (batch->inputs && w->options.training)
        group(batch->inputs, rows, w->slots, (int32_t *)(void *)(w->here + w->feed.groups), w->options.rows);
    if (batch->x) put_reals(l, batch->x, rows * l->shape.features, w->here + w->feed.x);
    if (batch->targets) memcpy(w->here + w->feed.targets, batch->targets, (size_t)told * sizeof(int32_t));
    if (batch->values) put_reals(l, batch->values, told * l->shape.outputs, w->here + w->feed.values);
    if (!rcvi_tells_next(l)) put_last(w, batch);
    return w->ops->send(w->learn, w->there, w->here, w->feed.bytes);
}
