/* What steps of a persistent kernel read of each other: who writes it, in which slot of a channel, and from when to when. */
#include "device/cuda/persistent/parts.h"

typedef rcvi_persistent_step hosted_step;

/* Where a view stands in its buffer: slots are steps of [batch, row]. */
typedef struct {
    int64_t slot, step; /* at iteration 0, and an iteration */
    int64_t column;
} position;

static bool locate(const rcvi_engine *e, const hosted_step *s, const rcvi_view *view, position *out) {
    const rcvi_step *step = s->step;
    int64_t block = e->program->options.batch * view->row;
    if (view->row <= 0 || view->outer || view->column != 1) return false;
    out->column = (view->offset % view->row + view->row) % view->row;
    if (view->wrap) {
        *out = (position){step->time.base + view->phase, step->time.inner, out->column};
        return view->wrap == 2 && view->slot == block && !view->stride && view->offset == out->column;
    }
    if ((view->offset - out->column) % block || view->stride % block) return false;
    out->slot = (view->offset - out->column) / block;
    out->step = view->stride / block;
    return true;
}

int rcvi_persistent_source_of(const rcvi_map *map, int view) {
    for (int q = 0; q < map->product_count; q++) {
        if (map->products[q].out == view) return q;
    }
    for (int k = 0; k < map->instruction_count; k++) {
        if (map->instructions[k].out == view) return map->product_count + k;
    }
    for (int i = 0; i < map->store_count; i++) {
        const rcvi_map_store *store = &map->stores[i];
        if (store->out == view) return store->product ? store->source : map->product_count + store->source;
    }
    return RCVI_NONE;
}

static bool is_written(const hosted_step *s, int view) {
    return rcvi_persistent_source_of(s->shape.map, view) != RCVI_NONE;
}

enum { MOST_WRITINGS = 64 };

/* A view that some step of the loop writes. */
typedef struct {
    int step, view;
    position at;
    bool still;
} writing;

/* Writings to the columns of a view; answers how many, or -1 with a sentence. */
static int find_writings(const rcvi_engine *e, const rcvi_persistent *p, const hosted_step *reader,
                         const rcvi_view *view, int64_t columns, writing *found) {
    int count = 0;
    position at;
    bool located = locate(e, reader, view, &at);
    for (int i = 0; i < p->step_count; i++) {
        const hosted_step *s = &p->steps[i];
        for (int v = 0; v < s->shape.map->operand_count; v++) {
            const rcvi_view *other = s->views[v];
            if (other->buffer != view->buffer || !is_written(s, v)) continue;
            writing w = {.step = i, .view = v};
            if (!located || !locate(e, s, other, &w.at) || other->row != view->row) {
                rcvi_persistent_refuse("a persistent kernel cannot tell when a value of this plan is written");
                return -1;
            }
            int64_t wide = s->step->columns, apart = w.at.column - at.column;
            if (apart >= columns || -apart >= wide) continue;
            if (apart || wide != columns) {
                rcvi_persistent_refuse("a persistent kernel cannot pass on a value in parts");
                return -1;
            }
            w.still = w.at.step == 0 && s->high - s->low > 1;
            if (count == MOST_WRITINGS) {
                rcvi_persistent_refuse("a persistent kernel cannot follow a value that so many steps write");
                return -1;
            }
            found[count++] = w;
        }
    }
    return count;
}

/* The iterations of a reader at which a writing has given what it reads, if no other has since; `ahead`: the writer's iteration, less
 * the reader's. */
typedef struct {
    int64_t low, high, ahead;
    bool before;
} reach;

static reach find_reach(const rcvi_persistent *p, int reader, const position *at, const writing *w) {
    const hosted_step *s = &p->steps[reader], *writer = &p->steps[w->step];
    if (w->still || !at->step || w->at.step != at->step || (at->slot - w->at.slot) % at->step) return (reach){0};
    int64_t ahead = (at->slot - w->at.slot) / at->step;
    reach r = {.low = s->low, .high = s->high, .ahead = ahead};
    if (writer->low - ahead > r.low) r.low = writer->low - ahead;
    if (writer->high - ahead < r.high) r.high = writer->high - ahead;
    r.before = ahead < 0 || (ahead == 0 && w->step < reader);
    return r;
}

/* Leaves out what is always written anew before the reader comes, such as a state that is taken back to its beginning. Answers how
 * many are left. */
static int drop_replaced(const rcvi_persistent *p, int reader, const position *at, writing *w, int count) {
    bool replaced[MOST_WRITINGS] = {false};
    int kept = 0;
    for (int i = 0; i < count; i++) {
        reach x = find_reach(p, reader, at, &w[i]);
        for (int k = 0; k < count && x.before; k++) {
            reach y = find_reach(p, reader, at, &w[k]);
            bool later = y.ahead > x.ahead || (y.ahead == x.ahead && w[k].step > w[i].step);
            replaced[i] |= y.before && later && y.low <= x.low && y.high >= x.high;
        }
    }
    for (int i = 0; i < count; i++) {
        if (!replaced[i]) w[kept++] = w[i];
    }
    return kept;
}

static rcv_status find_channel(rcvi_persistent *p, const rcvi_channel *wanted, int *found) {
    for (*found = 0; *found < p->channel_count; ++*found) {
        const rcvi_channel *o = &p->channels[*found];
        if (o->buffer == wanted->buffer && o->column == wanted->column && o->operand == wanted->operand) return RCV_OK;
    }
    p->channels[p->channel_count++] = *wanted;
    return RCV_OK;
}

rcv_status rcvi_persistent_add_use(hosted_step *s, rcvi_channel_use use, int *index) {
    if (s->use_count == RCVI_MAX_USES)
        return rcvi_fail(RCV_UNSUPPORTED, "a persistent kernel passes on %d values of a step at most", RCVI_MAX_USES);
    *index = s->use_count;
    s->uses[s->use_count++] = use;
    return RCV_OK;
}

void rcvi_persistent_cover(rcvi_channel *channel, const hosted_step *s, const rcvi_channel_use *use) {
    int64_t a = use->slot + s->low * use->step, b = use->slot + (s->high - 1) * use->step;
    int64_t first = a < b ? a : b, last = a < b ? b : a;
    if (s->low >= s->high) return;
    if (first < channel->base) channel->base = first;
    if (last > channel->top) channel->top = last;
}

/* Lets a step write to a channel, once. */
static rcv_status add_writing(rcvi_persistent *p, int c, const writing *w) {
    hosted_step *s = &p->steps[w->step];
    rcvi_channel *channel = &p->channels[c];
    rcvi_channel_use use = {.channel = c, .slot = w->at.slot, .step = w->at.step};
    if (w->still) use = (rcvi_channel_use){.channel = c, .slot = 0, .step = 1};
    for (int i = 0; i < s->write_count; i++) {
        if (s->write_views[i] == w->view && s->uses[s->writes[i]].channel == c) return RCV_OK;
    }
    int64_t a = use.slot + s->low * use.step, b = use.slot + (s->high - 1) * use.step;
    int64_t first = a < b ? a : b, last = a < b ? b : a;
    if (s->low < s->high) {
        channel->first = channel->written && channel->first < first ? channel->first : first;
        channel->last = channel->written && channel->last > last ? channel->last : last;
        channel->written += use.step ? last - first + 1 : 1;
    }
    rcvi_persistent_cover(channel, s, &use);
    if (!channel->operand) s->is_early[w->view] = true;
    RCVI_TRY(rcvi_persistent_add_use(s, use, &s->writes[s->write_count]));
    s->write_views[s->write_count++] = w->view;
    return RCV_OK;
}

/* Does the writer come before the reader where both look at the same slot? */
static bool comes_before(const rcvi_persistent *p, int writer, const rcvi_channel_use *w, int reader,
                         const rcvi_channel_use *r, int64_t i) {
    const hosted_step *s = &p->steps[writer];
    int64_t slot = r->slot + i * r->step, j = w->step ? (slot - w->slot) / w->step : s->low;
    if (w->slot + j * w->step != slot || j < s->low || j >= s->high) return true; /* another one's */
    return j < i || (j == i && writer < reader);
}

/* The iterations at which a reader finds what it reads in the channel. */
static rcv_status find_window(const rcvi_engine *e, const rcvi_persistent *p, int reader, const rcvi_view *view,
                              const writing *w, int count, rcvi_channel_use *use) {
    const hosted_step *s = &p->steps[reader];
    const rcvi_channel *channel = &p->channels[use->channel];
    position at;
    locate(e, s, view, &at);
    use->slot = at.slot;
    use->step = at.step;
    if (count == 0) return RCV_OK;
    if (channel->still) {
        const rcvi_time *a = &s->step->time, *b = &p->steps[w[0].step].step->time;
        if (a->base != b->base || a->inner != b->inner || at.step)
            return rcvi_persistent_refuse("a persistent kernel cannot tell when a value of this plan is written");
        if (w[0].step >= reader)
            return rcvi_persistent_refuse(
                "a persistent kernel cannot pass on a value that is read before it is written");
        use->slot = 0;
        use->step = 1;
    }
    if (channel->written != channel->last - channel->first + 1)
        return rcvi_persistent_refuse("a persistent kernel cannot pass on a value that is written twice, or with gaps");
    int64_t low = s->low, high = s->high;
    if (use->step) {
        int64_t a = (channel->first - use->slot) / use->step, b = (channel->last - use->slot) / use->step;
        int64_t least = a < b ? a : b, most = (a < b ? b : a) + 1;
        if (least > low) low = least;
        if (most < high) high = most;
    } else if (use->slot < channel->first || use->slot > channel->last) {
        high = low;
    }
    use->low = low;
    use->high = high > low ? high : low;
    for (int i = 0; i < count && low < high; i++) {
        const hosted_step *writer = &p->steps[w[i].step];
        for (int k = 0; k < writer->write_count; k++) {
            const rcvi_channel_use *u = &writer->uses[writer->writes[k]];
            if (u->channel != use->channel) continue;
            if (!comes_before(p, w[i].step, u, reader, use, low) ||
                !comes_before(p, w[i].step, u, reader, use, high - 1))
                return rcvi_persistent_refuse(
                    "a persistent kernel cannot pass on a value that is read before it is written");
        }
    }
    return RCV_OK;
}

/* The iterations by which a reader comes behind the writing of its slot. */
static int64_t lag_of(const rcvi_channel_use *write, const rcvi_channel_use *read) {
    return (write->slot - read->slot) / read->step;
}

static const rcvi_channel_use *find_write(const hosted_step *s, int channel) {
    for (int n = 0; n < s->write_count; n++) {
        if (s->uses[s->writes[n]].channel == channel) return &s->uses[s->writes[n]];
    }
    return NULL;
}

/* Is the channel written for rows that go on alone? Then a step that rests writes nothing to it. */
static bool is_short(const rcvi_persistent *p, int channel) {
    for (int i = 0; i < p->step_count; i++) {
        const hosted_step *s = &p->steps[i];
        for (int n = 0; n < s->write_count; n++) {
            if (s->uses[s->writes[n]].channel == channel && !s->is_short[s->write_views[n]]) return false;
        }
    }
    return true;
}

/* Do both rest at once, the one at iteration i, the other at iteration i + at? Then nothing has been read where it does not wait. */
static bool rest_at_once(const hosted_step *reader, int64_t i, const hosted_step *waiting, int64_t at) {
    const rcvi_time *x = &reader->step->time, *y = &waiting->step->time;
    return reader->leaves && waiting->leaves && reader->step->direction == waiting->step->direction &&
           x->base + i * x->inner == y->base + (i + at) * y->inner;
}

/* Does what `wait` waits for at iteration i + at come from the reader's blocks when these have taken its step of iteration i? They
 * take all steps of their seat in the order of the program. */
static bool waits_for(const rcvi_persistent *p, const rcvi_channel_use *wait, int64_t at, int reader, int64_t i) {
    if (wait->channel == RCVI_NONE || !wait->step || i + at < wait->low || i + at >= wait->high) return false;
    for (int q = 0; q < p->step_count; q++) {
        const rcvi_channel_use *write = find_write(&p->steps[q], wait->channel);
        if (!write || write->step != wait->step || p->steps[q].seat != p->steps[reader].seat) continue;
        int64_t done = at - lag_of(write, wait);
        if (done > 0 || (done == 0 && q >= reader)) return true;
    }
    return false;
}

/* Does the step wait, at iteration i + at, for what the reader gives when it has read at iteration i? Where it rests it does not
 * wait, which is good if nothing is written there, or nothing was read. */
static bool holds_back(const rcvi_persistent *p, const hosted_step *s, int64_t at, int channel, int reader, int64_t i) {
    if (s->leaves && !is_short(p, channel) && !rest_at_once(&p->steps[reader], i, s, at)) return false;
    for (int n = 0; n < s->pass_count + s->wait_count; n++) {
        int use = n < s->pass_count ? s->read_of[n] : s->waits[n - s->pass_count];
        if (use != RCVI_NONE && waits_for(p, &s->uses[use], at, reader, i)) return true;
    }
    return false;
}

/* Has the writer, before it writes to the channel at iteration i + behind, waited until the reader has read at iteration i? Any
 * step of its seat that comes before in the order of the program may have. */
static bool is_held_back(const rcvi_persistent *p, int writer, int channel, int64_t behind, int reader, int64_t i) {
    for (int h = 0; h < p->step_count; h++) {
        if (p->steps[h].seat != p->steps[writer].seat) continue;
        for (int64_t at = 0; at <= (h > writer ? behind - 1 : behind); at++) {
            if (holds_back(p, &p->steps[h], at, channel, reader, i)) return true;
        }
    }
    return false;
}

bool rcvi_persistent_keeps(const rcvi_persistent *p, int reader, const rcvi_channel_use *use, int64_t slots) {
    for (int w = 0; w < p->step_count; w++) {
        const hosted_step *s = &p->steps[w];
        const rcvi_channel_use *write = find_write(s, use->channel);
        if (!write) continue;
        if (!use->step || write->step != use->step) return false;
        int64_t behind = slots - lag_of(write, use), ends[] = {use->low, use->high - 1};
        for (int k = 0; k < 2 && use->low < use->high; k++) {
            if (ends[k] + behind < s->high && !is_held_back(p, w, use->channel, behind, reader, ends[k])) return false;
        }
    }
    return true;
}

/* Memory that several steps share (a ring, or one step's room) and that another owner reads: the writer must be held back until
 * it has. Checked when all channels are known. */
static rcv_status check_overwriting(const rcvi_persistent *p) {
    for (int i = 0; i < p->step_count; i++) {
        const hosted_step *s = &p->steps[i];
        for (int n = 0; n < s->wait_count; n++) {
            const rcvi_channel_use *use = &s->uses[s->waits[n]];
            const rcvi_channel *channel = &p->channels[use->channel];
            bool wraps = false;
            for (int v = 0; v < s->view_count; v++)
                wraps |= s->views[v]->buffer == channel->buffer && s->views[v]->wrap;
            if ((wraps || channel->still) && !rcvi_persistent_keeps(p, i, use, channel->still ? 1 : 2))
                return rcvi_persistent_refuse(
                    "a persistent kernel cannot pass on a value that may be overwritten before it is read");
        }
    }
    return RCV_OK;
}

/* Finds where a view's values come from: memory as it was before the loop, the seat's own elements, or a channel, of which `use`
 * then is the place, else RCVI_NONE. */
static rcv_status link_view(rcvi_engine *e, rcvi_persistent *p, int reader, int v, int64_t columns, bool operand,
                            int *use_index) {
    hosted_step *s = &p->steps[reader];
    const rcvi_view *view = s->views[v];
    writing found[MOST_WRITINGS];
    *use_index = RCVI_NONE;
    int count = view->buffer == RCVI_NONE ? 0 : find_writings(e, p, s, view, columns, found), own = 0;
    if (count < 0) return RCV_UNSUPPORTED;
    for (int i = 0; i < count; i++) {
        const hosted_step *writer = &p->steps[found[i].step], *first = &p->steps[found[0].step];
        own += writer->seat == s->seat && writer->by_rows == s->by_rows;
        if (writer->seat != first->seat || writer->by_rows != first->by_rows)
            return rcvi_persistent_refuse("a persistent kernel cannot read a value that several layers write");
    }
    if (!operand && (count == 0 || own)) return RCV_OK;
    position at;
    if (!locate(e, s, view, &at))
        return rcvi_persistent_refuse("a persistent kernel cannot tell where an operand of this plan lies");
    count = drop_replaced(p, reader, &at, found, count);
    rcvi_channel wanted = {.buffer = view->buffer,
                           .column = at.column,
                           .columns = columns,
                           .operand = operand,
                           .still = count > 0 && found[0].still,
                           .base = INT64_MAX,
                           .top = INT64_MIN,
                           .view = view,
                           .seat = count > 0 ? p->steps[found[0].step].seat : RCVI_NONE,
                           .by_rows = count > 0 && p->steps[found[0].step].by_rows};
    rcvi_channel_use use = {.channel = RCVI_NONE};
    RCVI_TRY(find_channel(p, &wanted, &use.channel));
    for (int i = 0; i < count; i++) {
        if (found[i].still != wanted.still)
            return rcvi_persistent_refuse(
                "a persistent kernel cannot pass on a value that is written twice, or with gaps");
        RCVI_TRY(add_writing(p, use.channel, &found[i]));
    }
    RCVI_TRY(find_window(e, p, reader, view, found, count, &use));
    rcvi_persistent_cover(&p->channels[use.channel], s, &use);
    return rcvi_persistent_add_use(s, use, use_index);
}

bool rcvi_persistent_is_value(const hosted_step *s, int v) {
    const rcvi_map *map = s->shape.map;
    for (int k = 0; k < map->instruction_count; k++) {
        for (int a = 0; a < rcvi_operations[map->instructions[k].operation].arguments; a++) {
            if (map->instructions[k].from[a] == RCVI_FROM_VIEW && map->instructions[k].source[a] == v) return true;
        }
    }
    for (int q = 0; q < map->product_count; q++) {
        if (s->views[v] == &map->products[q].start) return true;
    }
    return false;
}

/* A thread has but one tile, whose rows are there in all iterations. */
int rcvi_persistent_carried(const rcvi_engine *e, const rcvi_persistent *p, int step, int v) {
    const hosted_step *s = &p->steps[step];
    writing found[MOST_WRITINGS];
    position at;
    if (p->tiles > 1 || p->seats[s->seat].tiled != step || s->has_rows || s->by_rows || s->is_late[v] ||
        s->shape.types[v] != RCVI_F32 || !rcvi_persistent_is_value(s, v) || !locate(e, s, s->views[v], &at) ||
        find_writings(e, p, s, s->views[v], s->step->columns, found) != 1)
        return RCVI_NONE;
    bool behind = found->step == step && at.step && found->at.step == at.step && found->at.slot - at.slot == at.step;
    return behind && !found->still && s->shape.types[found->view] == RCVI_F32 ? found->view : RCVI_NONE;
}

static rcv_status link_step(rcvi_engine *e, rcvi_persistent *p, int index) {
    hosted_step *s = &p->steps[index];
    int64_t columns = s->step->columns;
    for (int v = 0, use; v < s->view_count; v++) {
        if (!rcvi_persistent_is_value(s, v)) continue;
        RCVI_TRY(link_view(e, p, index, v, columns, false, &use));
        if (use == RCVI_NONE) continue;
        s->is_late[v] = true;
        s->waits[s->wait_count++] = use;
    }
    for (int q = 0; q < s->pass_count; q++)
        RCVI_TRY(link_view(e, p, index, s->passes[q].a, s->passes[q].depth, true, &s->read_of[q]));
    return RCV_OK;
}

/* May the step rest where no row of a tile goes on? If its products, and what it reads of other seats, are for such rows alone. */
static bool find_leaves(const rcvi_engine *e, const hosted_step *s) {
    bool leaves = s->has_rows;
    if (s->pass_count) leaves &= e->is_short[s->parts[0]];
    for (int v = 0; v < s->shape.map->operand_count; v++) leaves &= !(s->is_late[v] && s->is_read_whole[v]);
    return leaves;
}

rcv_status rcvi_persistent_link(rcvi_engine *e, rcvi_persistent *p) {
    for (int i = 0; i < p->step_count; i++) RCVI_TRY(link_step(e, p, i));
    for (int i = 0; i < p->step_count; i++) p->steps[i].leaves = find_leaves(e, &p->steps[i]);
    return check_overwriting(p);
}
