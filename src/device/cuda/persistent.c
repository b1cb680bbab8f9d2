/* A loop cut into seats, channels and residency; see persistent.h. */
#include "device/cuda/persistent.h"

#include <string.h>

enum {
    ROWS = 64,             /* of weights in a block */
    CHUNK_BYTES = 128,     /* of depth */
    MOST_ROWS = 64,        /* of the batch in a tile */
    REGISTERS = 216,       /* of a thread that multiplies */
    OTHER_REGISTERS = 44,  /* beside weights, sums and what maps read */
    MULTIPLIERS = 256,     /* threads */
    CHUNK_REGISTERS = 16,  /* of weights */
    MUCH_ROOM = 48 << 10,  /* for copies of a lane */
    MOST_RING = 8,         /* groups of chunks that a lane has at once */
    BARRIER_BYTES = 16,    /* of one of these */
    PLACE_BYTES = 56,   /* words of a place, and its address at three iterations */
    HEADER_WORDS = 4,   /* here and below as persistent_base.cuh has it */
    SEAT_WORDS = 8,
    STEP_WORDS = 4,
    PLACE_WORDS = 4
};

typedef rcvi_persistent_step hosted_step;

static rcv_status refuse(const char *sentence) { return rcvi_fail(RCV_UNSUPPORTED, "%s", sentence); }

static const rcvi_step *step_of(const rcvi_engine *e, const hosted_step *s) { return &e->program->steps[s->index]; }
static int64_t round_up(int64_t count, int64_t each) { return (count + each - 1) / each * each; }

/* ---- which loops ---- */

bool rcvi_persistent_is_for(const rcvi_engine *e, size_t loop) {
    const rcvi_program *program = e->program;
    bool products = false;
    if (!program->rungs.persistent || program->steps[loop].kind != RCVI_STEP_LOOP) return false;
    for (size_t i = loop + 1; i <= loop + (size_t)program->steps[loop].loop.body; i++) {
        if (program->steps[i].kind == RCVI_STEP_LOOP) return false;
        products |= program->steps[i].kind == RCVI_STEP_MAP && program->steps[i].map->product_count > 0;
    }
    return products;
}

static bool has_sums(const rcvi_map *map) {
    for (int i = 0; i < map->instruction_count; i++) {
        if (map->instructions[i].operation == RCVI_SUM) return true;
    }
    return false;
}

static rcv_status check_type(const rcvi_engine *e) {
    if (e->narrow == e->real && !e->tensor)
        return refuse("a persistent kernel multiplies on tensor cores: bfloat16, float16 or tfloat32");
    if (e->major != 9)
        return rcvi_fail(RCV_UNSUPPORTED, "a persistent kernel needs compute capability 9.0; this GPU has %d.%d",
                         e->major, e->minor);
    return RCV_OK;
}

static rcv_status check_step(const rcvi_engine *e, const rcvi_step *step) {
    if (step->kind != RCVI_STEP_MAP)
        return rcvi_fail(RCV_UNSUPPORTED, "a persistent kernel takes maps, but this plan's time loop has a %s",
                         rcvi_step_names[step->kind]);
    if (has_sums(step->map)) return refuse("a persistent kernel does not sum over features yet");
    bool timed = step->time.timed && step->time.span == 1 && step->time.inner;
    if (!timed || step->time.outer || step->rows != e->program->options.batch)
        return refuse("a persistent kernel goes through time step by step: give combine steps=1 or all steps");
    for (int p = 0; p < step->map->product_count; p++) {
        for (int t = 0; t < step->map->products[p].term_count; t++) {
            if (step->map->products[p].terms[t].plain) return refuse("a persistent kernel keeps packed weights: add pack");
        }
    }
    return RCV_OK;
}

/* Iterations at which 0 <= time < steps. */
static void find_due(const rcvi_engine *e, const rcvi_step *step, int64_t iterations, hosted_step *s) {
    int64_t steps = e->program->options.steps, base = step->time.base, inner = step->time.inner;
    int64_t first = inner > 0 ? -base : base - steps + 1, each = inner > 0 ? inner : -inner;
    s->low = first > 0 ? (first + each - 1) / each : 0;
    s->high = first + steps > 0 ? (first + steps + each - 1) / each : 0;
    if (s->high > iterations) s->high = iterations;
    if (s->low > s->high) s->low = s->high;
}

static rcv_status open_step(rcvi_engine *e, int index, int64_t iterations, hosted_step *s) {
    const rcvi_step *step = &e->program->steps[index];
    rcvi_cuda_ready ready = {.kernel = RCVI_NONE};
    RCVI_TRY(check_step(e, step));
    RCVI_TRY(rcvi_cuda_shape_map(e, step, &ready, &s->shape));
    s->index = index;
    s->seat = RCVI_NONE;
    s->views = ready.views;
    s->view_count = ready.view_count;
    s->passes = ready.passes;
    s->pass_count = ready.pass_count;
    for (int v = 0; v < step->map->operand_count; v++) s->twin_count += s->shape.has_twin[v];
    s->is_late = rcvi_pool_new(&e->pool, (size_t)s->view_count, sizeof *s->is_late);
    s->is_early = rcvi_pool_new(&e->pool, (size_t)s->view_count, sizeof *s->is_early);
    if (e->pool.failed) return RCV_NO_MEMORY;
    for (int q = 0; q < s->pass_count; q++) s->read_of[q] = RCVI_NONE;
    find_due(e, step, iterations, s);
    return RCV_OK;
}

/* ---- seats ---- */

static bool same_weights(const hosted_step *a, const hosted_step *b) {
    int products = a->shape.map->product_count;
    if (products != b->shape.map->product_count || a->pass_count != b->pass_count) return false;
    for (int q = 0; q < a->pass_count; q++) {
        if (a->passes[q].depth != b->passes[q].depth) return false;
        for (int p = 0; p < products; p++) {
            int x = a->passes[q].b[p], y = b->passes[q].b[p];
            if ((x == RCVI_NONE) != (y == RCVI_NONE)) return false;
            if (x != RCVI_NONE && !rcvi_view_equal(a->views[x], b->views[y])) return false;
        }
    }
    return true;
}

static rcv_status sit(rcvi_persistent *p, int step, int seat) {
    rcvi_seat *s = &p->seats[seat];
    if (s->hosted_count == RCVI_MAX_HOSTED)
        return rcvi_fail(RCV_UNSUPPORTED, "a persistent kernel takes %d steps of one layer at most", RCVI_MAX_HOSTED);
    s->hosted[s->hosted_count++] = step;
    p->steps[step].seat = seat;
    return RCV_OK;
}

static rcv_status seat_products(const rcvi_engine *e, rcvi_persistent *p) {
    for (int i = 0; i < p->step_count; i++) {
        const rcvi_step *step = step_of(e, &p->steps[i]);
        if (!step->map->product_count) continue;
        int seat = 0;
        while (seat < p->seat_count && !(same_weights(&p->steps[p->seats[seat].tiled], &p->steps[i]) &&
                                         p->seats[seat].columns == step->columns))
            seat++;
        if (seat == p->seat_count) {
            p->seats[p->seat_count++] = (rcvi_seat){.tiled = i,
                                                    .layer = step->layer,
                                                    .direction = step->direction,
                                                    .columns = step->columns,
                                                    .products = step->map->product_count};
        }
        RCVI_TRY(sit(p, i, seat));
    }
    return RCV_OK;
}

/* Values that one of the steps writes and the other one reads, element by element. */
static int count_shared(const rcvi_step *x, const rcvi_step *y) {
    rcvi_access a[RCVI_MAX_ACCESSES], b[RCVI_MAX_ACCESSES];
    int m = rcvi_step_accesses(x, a), n = rcvi_step_accesses(y, b), shared = 0;
    for (int i = 0; i < m; i++) {
        for (int k = 0; k < n; k++) {
            bool values = a[i].use == RCVI_USE_VALUE && b[k].use == RCVI_USE_VALUE;
            shared += values && a[i].view->buffer == b[k].view->buffer && a[i].written != b[k].written;
        }
    }
    return shared;
}

/* A map without products goes where most of its values come from or go to. */
static rcv_status seat_maps(const rcvi_engine *e, rcvi_persistent *p) {
    for (int i = 0; i < p->step_count; i++) {
        const rcvi_step *step = step_of(e, &p->steps[i]);
        int best = RCVI_NONE, most = -1;
        if (step->map->product_count) continue;
        for (int seat = 0; seat < p->seat_count; seat++) {
            const rcvi_seat *s = &p->seats[seat];
            if (s->columns != step->columns || s->layer != step->layer || s->direction != step->direction) continue;
            int shared = 0;
            for (int k = 0; k < s->hosted_count; k++)
                shared += count_shared(step, step_of(e, &p->steps[s->hosted[k]]));
            if (shared > most) most = shared, best = seat;
        }
        if (best == RCVI_NONE)
            return rcvi_fail(RCV_UNSUPPORTED,
                             "a persistent kernel has no place for a map of %lld columns: no product has as many",
                             (long long)step->columns);
        RCVI_TRY(sit(p, i, best));
    }
    return RCV_OK;
}

/* A seat's steps in the order of the program. */
static void sort_seats(rcvi_persistent *p) {
    for (int s = 0; s < p->seat_count; s++) {
        int *h = p->seats[s].hosted;
        for (int i = 1; i < p->seats[s].hosted_count; i++) {
            for (int k = i; k > 0 && h[k] < h[k - 1]; k--) {
                int step = h[k];
                h[k] = h[k - 1];
                h[k - 1] = step;
            }
        }
    }
}

/* ---- channels ---- */

/* Where a view stands in its buffer: slots are steps of [batch, row]. */
typedef struct {
    int64_t slot, step; /* at iteration 0, and an iteration */
    int64_t column;
} position;

static bool locate(const rcvi_engine *e, const hosted_step *s, const rcvi_view *view, position *out) {
    const rcvi_step *step = step_of(e, s);
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

static bool is_written(const hosted_step *s, int view) {
    const rcvi_map *map = s->shape.map;
    for (int p = 0; p < map->product_count; p++) {
        if (map->products[p].out == view) return true;
    }
    for (int k = 0; k < map->instruction_count; k++) {
        if (map->instructions[k].out == view) return true;
    }
    for (int i = 0; i < map->store_count; i++) {
        if (map->stores[i].out == view) return true;
    }
    return false;
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
                refuse("a persistent kernel cannot tell when a value of this plan is written");
                return -1;
            }
            int64_t wide = step_of(e, s)->columns, apart = w.at.column - at.column;
            if (apart >= columns || -apart >= wide) continue;
            if (apart || wide != columns) {
                refuse("a persistent kernel cannot pass on a value in parts");
                return -1;
            }
            w.still = w.at.step == 0 && s->high - s->low > 1;
            if (count == MOST_WRITINGS) {
                refuse("a persistent kernel cannot follow a value that so many steps write");
                return -1;
            }
            found[count++] = w;
        }
    }
    return count;
}

static rcv_status find_channel(rcvi_persistent *p, const rcvi_channel *wanted, int *found) {
    for (*found = 0; *found < p->channel_count; ++*found) {
        const rcvi_channel *o = &p->channels[*found];
        if (o->buffer == wanted->buffer && o->column == wanted->column && o->operand == wanted->operand) return RCV_OK;
    }
    p->channels[p->channel_count++] = *wanted;
    return RCV_OK;
}

static rcv_status add_use(hosted_step *s, rcvi_channel_use use, int *index) {
    if (s->use_count == RCVI_MAX_USES)
        return rcvi_fail(RCV_UNSUPPORTED, "a persistent kernel passes on %d values of a step at most", RCVI_MAX_USES);
    *index = s->use_count;
    s->uses[s->use_count++] = use;
    return RCV_OK;
}

/* Gives a channel room for the slots of a use. */
static void cover(rcvi_channel *channel, const hosted_step *s, const rcvi_channel_use *use) {
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
    cover(channel, s, &use);
    if (!channel->operand) s->is_early[w->view] = true;
    RCVI_TRY(add_use(s, use, &s->writes[s->write_count]));
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
    if (channel->still) {
        const rcvi_time *a = &step_of(e, s)->time, *b = &step_of(e, &p->steps[w[0].step])->time;
        if (a->base != b->base || a->inner != b->inner || at.step)
            return refuse("a persistent kernel cannot tell when a value of this plan is written");
        use->slot = w[0].step < reader ? 0 : -1;
        use->step = 1;
    }
    if (count == 0) return RCV_OK;
    if (channel->written != channel->last - channel->first + 1)
        return refuse("a persistent kernel cannot pass on a value that is written twice, or with gaps");
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
            if (!comes_before(p, w[i].step, u, reader, use, low) || !comes_before(p, w[i].step, u, reader, use, high - 1))
                return refuse("a persistent kernel cannot pass on a value that is read before it is written");
        }
    }
    return RCV_OK;
}

/* Does every block of seat `later` wait, at each iteration, for all of seat `earlier`'s? Then nothing that `earlier` read before is
 * still needed when `later` goes on. */
static bool waits_for(const rcvi_persistent *p, int later, int earlier) {
    for (int i = 0; i < p->step_count; i++) {
        const hosted_step *s = &p->steps[i];
        for (int q = 0; s->seat == later && q < s->pass_count; q++) {
            if (s->read_of[q] != RCVI_NONE && p->channels[s->uses[s->read_of[q]].channel].seat == earlier) return true;
        }
    }
    return false;
}

/* Memory that several steps share (a ring, or one step's room) and that another seat reads: the writer must be held back until it
 * has. Checked when all channels are known. */
static rcv_status check_overwriting(const rcvi_persistent *p) {
    for (int i = 0; i < p->step_count; i++) {
        const hosted_step *s = &p->steps[i];
        for (int n = 0; n < s->use_count; n++) {
            const rcvi_channel *channel = &p->channels[s->uses[n].channel];
            bool read = false, wraps = channel->still;
            for (int k = 0; k < s->wait_count; k++) read |= s->waits[k] == n;
            for (int v = 0; v < s->view_count; v++)
                wraps |= s->views[v]->buffer == channel->buffer && s->views[v]->wrap;
            if (channel->operand || channel->seat == s->seat || !read || !wraps) continue;
            if (!waits_for(p, channel->seat, s->seat))
                return refuse("a persistent kernel cannot pass on a value that may be overwritten before it is read");
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
        own += p->steps[found[i].step].seat == s->seat;
        if (p->steps[found[i].step].seat != p->steps[found[0].step].seat)
            return refuse("a persistent kernel cannot read a value that several layers write");
    }
    if (!operand && (count == 0 || own)) return RCV_OK;
    position at;
    if (!locate(e, s, view, &at)) return refuse("a persistent kernel cannot tell where an operand of this plan lies");
    rcvi_channel wanted = {.buffer = view->buffer,
                           .column = at.column,
                           .columns = columns,
                           .operand = operand,
                           .still = count > 0 && found[0].still,
                           .base = INT64_MAX,
                           .top = INT64_MIN,
                           .view = view,
                           .seat = count > 0 ? p->steps[found[0].step].seat : RCVI_NONE};
    rcvi_channel_use use = {.channel = RCVI_NONE};
    RCVI_TRY(find_channel(p, &wanted, &use.channel));
    for (int i = 0; i < count; i++) {
        if (found[i].still != wanted.still)
            return refuse("a persistent kernel cannot pass on a value that is written twice, or with gaps");
        RCVI_TRY(add_writing(p, use.channel, &found[i]));
    }
    RCVI_TRY(find_window(e, p, reader, view, found, count, &use));
    cover(&p->channels[use.channel], s, &use);
    return add_use(s, use, use_index);
}

/* Is the view read element by element? */
static bool is_value(const hosted_step *s, int v) {
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

static rcv_status link_step(rcvi_engine *e, rcvi_persistent *p, int index) {
    hosted_step *s = &p->steps[index];
    int64_t columns = step_of(e, s)->columns;
    for (int v = 0, use; v < s->view_count; v++) {
        if (!is_value(s, v)) continue;
        RCVI_TRY(link_view(e, p, index, v, columns, false, &use));
        if (use == RCVI_NONE) continue;
        if (!s->pass_count) return refuse("a persistent kernel cannot pass a value to a map without products");
        s->is_late[v] = true;
        s->waits[s->wait_count++] = use;
    }
    for (int q = 0; q < s->pass_count; q++)
        RCVI_TRY(link_view(e, p, index, s->passes[q].a, s->passes[q].depth, true, &s->read_of[q]));
    return RCV_OK;
}

/* ---- peers: seats of one structure, such as layers, get the same places, so that they share their text ---- */

static bool are_peers(const rcvi_persistent *p, const rcvi_seat *a, const rcvi_seat *b) {
    if (a->hosted_count != b->hosted_count || a->columns != b->columns) return false;
    for (int k = 0; k < a->hosted_count; k++) {
        const hosted_step *x = &p->steps[a->hosted[k]], *y = &p->steps[b->hosted[k]];
        if (x->view_count != y->view_count || x->twin_count != y->twin_count || x->pass_count != y->pass_count)
            return false;
        for (int q = 0; q < x->pass_count; q++) {
            if (x->passes[q].depth != y->passes[q].depth || x->passes[q].a != y->passes[q].a) return false;
        }
    }
    return true;
}

static const rcvi_channel_use nowhere = {.channel = RCVI_NONE};

/* The use of a value by this step, or one that leads nowhere. */
static rcvi_channel_use wait_of(const hosted_step *s, int v) {
    for (int n = 0, late = 0; n <= v; n++) {
        if (s->is_late[n] && n == v) return s->uses[s->waits[late]];
        late += s->is_late[n];
    }
    return nowhere;
}

static int find_write(const rcvi_persistent *p, const hosted_step *s, int view, bool operand) {
    for (int i = 0; i < s->write_count; i++) {
        int channel = s->uses[s->writes[i]].channel;
        bool same = channel == RCVI_NONE || p->channels[channel].operand == operand;
        if (s->write_views[i] == view && same) return i;
    }
    return RCVI_NONE;
}

/* Gives `to` the uses that step k of any peer has, in one order; those that are not its own lead nowhere. */
static rcv_status order_uses(const rcvi_persistent *p, const rcvi_seat *seat, int k, hosted_step *to, bool *is_late,
                             bool *is_early) {
    const hosted_step *own = &p->steps[seat->hosted[k]];
    *to = *own;
    to->use_count = to->write_count = to->wait_count = 0;
    for (int s = 0; s < p->seat_count; s++) {
        if (!are_peers(p, seat, &p->seats[s])) continue;
        const hosted_step *peer = &p->steps[p->seats[s].hosted[k]];
        for (int v = 0; v < own->view_count; v++) {
            is_late[v] |= peer->is_late[v];
            is_early[v] |= peer->is_early[v];
        }
    }
    for (int q = 0; q < own->pass_count; q++) {
        bool read = false;
        for (int s = 0; s < p->seat_count; s++)
            read |= are_peers(p, seat, &p->seats[s]) && p->steps[p->seats[s].hosted[k]].read_of[q] != RCVI_NONE;
        to->read_of[q] = RCVI_NONE;
        if (read) RCVI_TRY(add_use(to, own->read_of[q] == RCVI_NONE ? nowhere : own->uses[own->read_of[q]], &to->read_of[q]));
    }
    for (int v = 0; v < own->view_count; v++) {
        if (is_late[v]) RCVI_TRY(add_use(to, wait_of(own, v), &to->waits[to->wait_count++]));
    }
    for (int v = 0; v < own->view_count; v++) {
        for (int operand = 0; operand < 2; operand++) {
            bool written = false;
            for (int s = 0; s < p->seat_count; s++)
                written |= are_peers(p, seat, &p->seats[s]) &&
                           find_write(p, &p->steps[p->seats[s].hosted[k]], v, operand) != RCVI_NONE;
            if (!written) continue;
            int mine = find_write(p, own, v, operand);
            RCVI_TRY(add_use(to, mine == RCVI_NONE ? nowhere : own->uses[own->writes[mine]], &to->writes[to->write_count]));
            to->write_operand[to->write_count] = operand;
            to->write_views[to->write_count++] = v;
        }
    }
    return RCV_OK;
}

static rcv_status match_peers(rcvi_engine *e, rcvi_persistent *p) {
    hosted_step *matched = rcvi_pool_new(&e->pool, (size_t)p->step_count, sizeof *matched);
    if (e->pool.failed) return RCV_NO_MEMORY;
    for (int s = 0; s < p->seat_count; s++) {
        for (int k = 0; k < p->seats[s].hosted_count; k++) {
            hosted_step *to = &matched[p->seats[s].hosted[k]];
            size_t views = (size_t)p->steps[p->seats[s].hosted[k]].view_count;
            bool *flags = rcvi_pool_new(&e->pool, 2 * views, sizeof *flags);
            if (e->pool.failed) return RCV_NO_MEMORY;
            RCVI_TRY(order_uses(p, &p->seats[s], k, to, flags, flags + views));
            to->is_late = flags;
            to->is_early = flags + views;
        }
    }
    p->steps = matched;
    return RCV_OK;
}

/* ---- counters ---- */

/* Do the same steps write both, always at once? */
static bool share_counters(const rcvi_persistent *p, int a, int b) {
    const rcvi_channel *x = &p->channels[a], *y = &p->channels[b];
    if (x->seat != y->seat || !x->written || !y->written || x->last - x->first != y->last - y->first) return false;
    for (int i = 0; i < p->step_count; i++) {
        const hosted_step *s = &p->steps[i];
        const rcvi_channel_use *u = NULL, *w = NULL;
        for (int n = 0; n < s->write_count; n++) {
            if (s->uses[s->writes[n]].channel == a) u = &s->uses[s->writes[n]];
            if (s->uses[s->writes[n]].channel == b) w = &s->uses[s->writes[n]];
        }
        if (!u != !w) return false;
        if (u && (u->slot - x->first != w->slot - y->first || u->step != w->step)) return false;
    }
    return true;
}

static void find_signals(rcvi_persistent *p) {
    for (int c = 0; c < p->channel_count; c++) {
        int other = 0;
        while (other < c && !share_counters(p, other, c)) other++;
        p->channels[c].signal = other < c ? p->channels[other].signal : p->signal_count++;
    }
    for (int i = 0; i < p->step_count; i++) {
        hosted_step *s = &p->steps[i];
        for (int n = 0; n < s->write_count; n++) {
            bool raised = s->uses[s->writes[n]].channel != RCVI_NONE;
            for (int k = 0; k < n && raised; k++) {
                int other = s->uses[s->writes[k]].channel;
                raised = other == RCVI_NONE ||
                         p->channels[other].signal != p->channels[s->uses[s->writes[n]].channel].signal;
            }
            s->is_raised[s->writes[n]] = raised;
        }
    }
    for (int s = 0; s < p->seat_count; s++) {
        for (int k = 0; k < p->seats[s].hosted_count; k++) {
            hosted_step *own = &p->steps[p->seats[s].hosted[k]];
            for (int u = 0; u < own->use_count; u++) {
                bool raised = false;
                for (int o = 0; o < p->seat_count; o++)
                    raised |= are_peers(p, &p->seats[s], &p->seats[o]) &&
                              p->steps[p->seats[o].hosted[k]].is_raised[u];
                if (raised) own->raises[own->raise_count++] = u;
            }
        }
    }
}

static int chunks_of(const rcvi_engine *e, int64_t depth) {
    return (int)(round_up(depth * (int64_t)rcvi_cuda_bytes(e->narrow), CHUNK_BYTES) / CHUNK_BYTES);
}

/* Memory of operands, and counters; the batch is cut. */
static rcv_status lay_out_exchange(rcvi_engine *e, rcvi_persistent *p) {
    int64_t tiles = (int64_t)p->slices * p->tiles;
    p->first_counter = rcvi_pool_new(&e->pool, (size_t)p->signal_count + 1, sizeof *p->first_counter);
    if (e->pool.failed) return RCV_NO_MEMORY;
    for (int c = 0; c < p->channel_count; c++) {
        rcvi_channel *channel = &p->channels[c];
        int64_t slots = channel->written ? channel->last - channel->first + 1 : 0;
        bool first = true;
        for (int k = 0; k < c; k++) first &= p->channels[k].signal != channel->signal;
        if (first) {
            p->first_counter[channel->signal] = p->counters;
            p->counters += slots * tiles;
        }
        if (!channel->operand || channel->base > channel->top) continue;
        slots = channel->top - channel->base + 1;
        if (channel->view->wrap && slots - channel->written > 2)
            return refuse("a persistent kernel cannot bring so many steps of a ring");
        channel->chunks = chunks_of(e, channel->columns);
        channel->place = p->exchange;
        p->exchange += (size_t)(slots * tiles * channel->chunks * p->tile * CHUNK_BYTES);
    }
    return RCV_OK;
}

/* ---- residency ---- */

/* Is the operand of this pass what the seat itself gives? */
static bool is_own(const rcvi_persistent *p, int seat, int pass) {
    const hosted_step *s = &p->steps[p->seats[seat].tiled];
    int channel = s->read_of[pass] == RCVI_NONE ? RCVI_NONE : s->uses[s->read_of[pass]].channel;
    return channel != RCVI_NONE && p->channels[channel].seat == seat;
}

/* Chunks of what comes from elsewhere to lane 0, of the seat's own to lane 1; where one has far more, half of all to each. */
static void share_chunks(const rcvi_engine *e, rcvi_persistent *p, int seat, int held) {
    rcvi_seat *s = &p->seats[seat];
    const hosted_step *tiled = &p->steps[s->tiled];
    int total[RCVI_LANES] = {0, 0};
    for (int q = 0; q < tiled->pass_count; q++) total[is_own(p, seat, q)] += chunks_of(e, tiled->passes[q].depth);
    int all = total[0] + total[1], most = total[0] > total[1] ? total[0] : total[1];
    bool apart = total[0] && total[1] && (most <= held || all - most + 2 >= most);
    int room = apart ? total[0] : (all + 1) / 2;
    for (int own = 0; own < 2; own++) {
        for (int q = 0; q < tiled->pass_count; q++) {
            if (is_own(p, seat, q) != own) continue;
            int chunks = chunks_of(e, tiled->passes[q].depth);
            s->lane_of[q] = chunks < room ? chunks : room;
            s->chunks[0] += s->lane_of[q];
            s->chunks[1] += chunks - s->lane_of[q];
            room -= s->lane_of[q];
        }
    }
    for (int lane = 0; lane < RCVI_LANES; lane++) s->held[lane] = s->chunks[lane] < held ? s->chunks[lane] : held;
}

/* Cuts a lane's chunks into groups of this many at most, none of two passes: lane 0's operands of other seats first. */
static bool group_chunks(const rcvi_engine *e, rcvi_persistent *p, int seat, int lane, int size) {
    rcvi_seat *s = &p->seats[seat];
    const hosted_step *tiled = &p->steps[s->tiled];
    s->group_count[lane] = 0;
    for (int own = 0; own < 2; own++) {
        for (int q = 0; q < tiled->pass_count; q++) {
            int first = lane ? s->lane_of[q] : 0, end = lane ? chunks_of(e, tiled->passes[q].depth) : s->lane_of[q];
            if (is_own(p, seat, q) != own) continue;
            for (int c = first; c < end; c += size) {
                if (s->group_count[lane] == RCVI_MAX_GROUPS) return false;
                s->groups[lane][s->group_count[lane]++] =
                    (rcvi_group_of_chunks){q, c, end - c < size ? end - c : size};
            }
        }
    }
    return true;
}

static int least_units(int products, int vector) {
    int units = ROWS / products;
    return units / vector * vector;
}

/* Slices of the batch, rows of a tile. */
static rcv_status cut_batch(const rcvi_engine *e, rcvi_persistent *p) {
    int64_t batch = e->program->options.batch, columns = 0;
    for (int s = 0; s < p->seat_count; s++) columns += p->seats[s].blocks;
    if (columns > e->processors)
        return rcvi_fail(RCV_UNSUPPORTED,
                         "a persistent kernel of this loop needs %lld processors at once; this GPU has %d: leave "
                         "wavefront out, so that a layer has them all",
                         (long long)columns, e->processors);
    int64_t slices = e->processors / columns, most = (batch + 7) / 8;
    if (slices > most) slices = most;
    p->slice = (int)round_up((batch + slices - 1) / slices, 8);
    p->slices = (int)((batch + p->slice - 1) / p->slice);
    p->tiles = (p->slice + MOST_ROWS - 1) / MOST_ROWS;
    p->tile = (int)round_up((p->slice + p->tiles - 1) / p->tiles, 8);
    int block = 0;
    for (int s = 0; s < p->seat_count; s++) {
        p->seats[s].first_block = block;
        block += p->seats[s].blocks * p->slices;
    }
    p->blocks = block;
    return RCV_OK;
}

static size_t other_bytes(const rcvi_persistent *p) {
    return (size_t)(RCVI_LANES * MOST_RING + 2) * BARRIER_BYTES + (size_t)p->places * PLACE_BYTES +
           (size_t)p->weight_chunks * ROWS * CHUNK_BYTES +
           (size_t)p->sum_buffers * RCVI_LANES * (size_t)p->tile * ROWS * 4;
}

/* The ring of every lane, in so many bytes; a ring goes evenly into the lane's groups. Answers the least of groups that a
 * lane with several has at once. */
static int find_rings(const rcvi_engine *e, rcvi_persistent *p, int size, size_t bytes) {
    int room = (int)(bytes / ((size_t)size * (size_t)p->tile * CHUNK_BYTES)), least = MOST_RING, widest = 0;
    if (room > MOST_RING) room = MOST_RING;
    for (int s = 0; s < p->seat_count; s++) {
        for (int lane = 0; lane < RCVI_LANES; lane++) {
            rcvi_seat *seat = &p->seats[s];
            if (!group_chunks(e, p, s, lane, size)) return 0;
            int count = seat->group_count[lane], ring = count < room ? count : room;
            while (ring > 1 && count % ring) ring--;
            if (count && ring < 1) return 0;
            seat->ring[lane] = count ? ring : 1;
            if (count > 1 && ring < least) least = ring;
            if (ring > widest) widest = ring;
        }
    }
    p->group = size;
    p->lane_bytes = (size_t)(widest * size * p->tile) * CHUNK_BYTES;
    if (p->lane_bytes < (size_t)ROWS * CHUNK_BYTES) p->lane_bytes = (size_t)ROWS * CHUNK_BYTES; /* weights come through it */
    return p->lane_bytes <= bytes ? least : 0;
}

/* Bytes for copies of a lane. */
static size_t lane_room(size_t room, size_t others) { return (room - others) / RCVI_LANES / 1024 * 1024; }

/* Copies and buffers of sums in what shared memory weights leave. */
static rcv_status share_memory(const rcvi_engine *e, rcvi_persistent *p) {
    static const int sizes[] = {4, 2, 1};
    size_t room = (size_t)e->shared;
    for (int s = 0; s < p->seat_count; s++) {
        int left = 0, places = 0;
        for (int k = 0; k < p->seats[s].hosted_count; k++)
            places += rcvi_persistent_places(&p->steps[p->seats[s].hosted[k]]);
        if (places > p->places) p->places = places;
        for (int lane = 0; lane < RCVI_LANES; lane++) left += p->seats[s].chunks[lane] - p->seats[s].held[lane];
        if (left > p->weight_chunks) p->weight_chunks = left;
    }
    /* Much room for copies hides their way; two buffers for sums save a meeting of threads. */
    size_t best = 0;
    int best_buffers = 0, best_size = 0;
    for (p->sum_buffers = 2; p->sum_buffers > 0; p->sum_buffers--) {
        size_t others = other_bytes(p);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes && others < room; i++) {
            int least = find_rings(e, p, sizes[i], lane_room(room, others));
            size_t value = (least > 1 ? (size_t)1 << 20 : 0) + (p->lane_bytes < MUCH_ROOM ? p->lane_bytes : MUCH_ROOM) +
                           (p->sum_buffers == 2 ? MUCH_ROOM / 8 : 0);
            if (least < 1 || value <= best) continue;
            best = value;
            best_buffers = p->sum_buffers;
            best_size = sizes[i];
        }
    }
    if (best) {
        p->sum_buffers = best_buffers;
        find_rings(e, p, best_size, lane_room(room, other_bytes(p)));
        p->shared = other_bytes(p) + RCVI_LANES * p->lane_bytes;
        return RCV_OK;
    }
    p->sum_buffers = 1;
    return rcvi_fail(RCV_UNSUPPORTED,
                     "a persistent kernel of this loop needs more than %zu bytes of shared memory a processor behind %d KB "
                     "of weights in registers; this GPU has %zu",
                     other_bytes(p), (int)(RCVI_LANES * (size_t)p->seats[0].held[0] * ROWS * CHUNK_BYTES / 1024), room);
}

/* Registers for what a map reads, which is fetched while products are waited for. */
static int fetched_registers(const rcvi_persistent *p) {
    int most = 0;
    for (int i = 0; i < p->step_count; i++) {
        const hosted_step *s = &p->steps[i];
        const rcvi_seat *seat = &p->seats[s->seat];
        int each = (p->tile * seat->units / p->vector + MULTIPLIERS - 1) / MULTIPLIERS, words = 0;
        for (int v = 0; v < s->view_count; v++) {
            bool value = s->views[v]->buffer != RCVI_NONE && s->views[v]->row && is_value(s, v);
            if (value) words += ((int)rcvi_cuda_bytes((rcvi_cuda_type)s->shape.types[v]) * p->vector + 3) / 4;
        }
        if (each * words > most) most = each * words;
    }
    return most;
}

static rcv_status find_residency(const rcvi_engine *e, rcvi_persistent *p) {
    for (int i = 0; i < p->step_count; i++) {
        if (i == 0 || p->steps[i].shape.vector < p->vector) p->vector = p->steps[i].shape.vector;
    }
    for (int s = 0; s < p->seat_count; s++) {
        rcvi_seat *seat = &p->seats[s];
        seat->units = least_units(seat->products, p->vector);
        if (seat->units < 1) return refuse("a persistent kernel takes 64 products of a map at most");
        seat->blocks = (int)((seat->columns + seat->units - 1) / seat->units);
    }
    RCVI_TRY(cut_batch(e, p));
    int elements = 0; /* of a block's tile: every thread should have some */
    for (int s = 0; s < p->seat_count; s++) {
        int own = p->tile * p->seats[s].units;
        if (own > elements) elements = own;
    }
    while (p->vector > 1 && elements / p->vector < MULTIPLIERS) p->vector /= 2;
    int held = (REGISTERS - OTHER_REGISTERS - p->tile / 2 - fetched_registers(p)) / CHUNK_REGISTERS;
    if (held < 0) held = 0;
    for (int s = 0; s < p->seat_count; s++) share_chunks(e, p, s, held);
    return share_memory(e, p);
}

/* ---- the whole ---- */

static rcv_status count_words(rcvi_persistent *p) {
    p->words = HEADER_WORDS + (size_t)p->seat_count * SEAT_WORDS;
    for (int i = 0; i < p->step_count; i++) {
        hosted_step *s = &p->steps[i];
        s->words = p->words;
        p->words += STEP_WORDS + PLACE_WORDS * (size_t)rcvi_persistent_places(s);
    }
    if (p->words > RCVI_MAX_PERSISTENT_WORDS)
        return rcvi_fail(RCV_UNSUPPORTED, "a persistent kernel of this loop has %zu arguments, more than %d", p->words,
                         RCVI_MAX_PERSISTENT_WORDS);
    return RCV_OK;
}

static rcv_status build(rcvi_engine *e, rcvi_persistent *p) {
    const rcvi_step *loop = &e->program->steps[p->loop];
    size_t count = (size_t)loop->loop.body;
    p->iterations = loop->loop.count;
    p->steps = rcvi_pool_new(&e->pool, count, sizeof *p->steps);
    p->seats = rcvi_pool_new(&e->pool, count, sizeof *p->seats);
    p->channels = rcvi_pool_new(&e->pool, count * (RCVI_MAX_PASSES + 16), sizeof *p->channels);
    if (e->pool.failed) return RCV_NO_MEMORY;
    RCVI_TRY(check_type(e));
    if (p->iterations > INT32_MAX / 2) return refuse("a persistent kernel takes a billion steps at most");
    for (size_t i = 0; i < count; i++) {
        RCVI_TRY(open_step(e, p->loop + 1 + (int)i, p->iterations, &p->steps[i]));
        p->step_count++;
    }
    RCVI_TRY(seat_products(e, p));
    RCVI_TRY(seat_maps(e, p));
    sort_seats(p);
    for (int i = 0; i < p->step_count; i++) RCVI_TRY(link_step(e, p, i));
    RCVI_TRY(check_overwriting(p));
    RCVI_TRY(match_peers(e, p));
    find_signals(p);
    RCVI_TRY(find_residency(e, p));
    RCVI_TRY(lay_out_exchange(e, p));
    RCVI_TRY(count_words(p));
    return rcvi_persistent_source(e->context, e, p);
}

void rcvi_persistent_tell(const rcvi_engine *e, const rcvi_persistent *p, rcvi_text *text) {
    int held = 0, shared = 0;
    for (int s = 0; s < p->seat_count; s++) {
        int own = p->seats[s].held[0] + p->seats[s].held[1], all = p->seats[s].chunks[0] + p->seats[s].chunks[1];
        if (own > held) held = own;
        if (all - own > shared) shared = all - own;
    }
    rcvi_text_add(text,
                  "persistent kernel of %lld steps on %d of %d processors: %d set%s of weights, each for %d slice%s of %d "
                  "sequences; a processor keeps %d KB in registers and %d KB in shared memory, of which it uses %zu of %d KB; "
                  "%.1f MB pass between processors\n",
                  (long long)p->iterations, p->blocks, e->processors, p->seat_count, p->seat_count == 1 ? "" : "s",
                  p->slices, p->slices == 1 ? "" : "s", p->slice, held * ROWS * CHUNK_BYTES / 1024,
                  shared * ROWS * CHUNK_BYTES / 1024, p->shared / 1024, e->shared / 1024, (double)p->exchange / 1e6);
}

rcv_status rcvi_persistent_new(rcvi_engine *e, size_t loop, rcvi_persistent **out) {
    rcvi_persistent *p = rcvi_new(e->context, 1, sizeof *p);
    *out = NULL;
    if (!p) return RCV_NO_MEMORY;
    p->loop = (int)loop;
    rcv_status status = build(e, p);
    if (status)
        rcvi_persistent_free(e->context, p);
    else
        *out = p;
    return status;
}

void rcvi_persistent_free(rcv_context *context, rcvi_persistent *p) {
    if (!p) return;
    if (p->code) cudaLibraryUnload(p->code);
    for (int s = 0; s < p->seat_count; s++) rcvi_free(context, p->seats[s].text);
    rcvi_free(context, p->source);
    rcvi_free(context, p);
}
