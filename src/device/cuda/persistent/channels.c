/* Channels between the tasks of a persistent kernel: for everything that a step reads and another task (or the same one by rows instead of
 * columns) writes in the loop, which step writes it, in which slot, and at which iterations the reader must wait for it.
 *
 * Operands of products always go through channels, also those that were in memory before the loop. Values go through a channel only if
 * another owner writes them. */
#include "device/cuda/persistent/internal.h"

/* Position of a view in its buffer, which is cut into slots of [batch, row], one time step each. */
typedef struct {
    int64_t slot, step; /* slot at iteration 0, and slots per iteration */
    int64_t column;
} position;

static bool locate(const rcvi_engine *e, const rcvi_kernel_step *s, const rcvi_view *view, position *out) {
    const rcvi_step *step = s->step;
    int64_t block = e->program->sizes.batch * view->row;
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

static bool is_written(const rcvi_kernel_step *s, int view) {
    return rcvi_persistent_source_of(s->shape.map, view) != RCVI_NONE;
}

enum { MAX_WRITES = 64 };

/* A write of a view by a step of the loop. */
typedef struct {
    int step, view;
    position at;
    bool single_step;
} view_write;

/* Finds all writes to the columns of a view. Answers how many, or -1 with a message. */
static int find_writes(const rcvi_engine *e, const rcvi_persistent *p, const rcvi_kernel_step *reader,
                       const rcvi_view *view, int64_t columns, view_write *found) {
    int count = 0;
    position at;
    bool located = locate(e, reader, view, &at);
    for (int i = 0; i < p->step_count; i++) {
        const rcvi_kernel_step *s = &p->steps[i];
        for (int v = 0; v < s->shape.map->operand_count; v++) {
            const rcvi_view *other = s->views[v];
            if (other->buffer != view->buffer || !is_written(s, v)) continue;
            view_write w = {.step = i, .view = v};
            if (!located || !locate(e, s, other, &w.at) || other->row != view->row) {
                rcvi_persistent_refuse("a persistent kernel cannot determine when a value of this plan is written");
                return -1;
            }
            int64_t wide = s->step->columns, second_product = w.at.column - at.column;
            if (second_product >= columns || -second_product >= wide) continue;
            if (second_product || wide != columns) {
                rcvi_persistent_refuse("a persistent kernel cannot pass on a value in parts");
                return -1;
            }
            w.single_step = w.at.step == 0 && s->high - s->low > 1;
            if (count == MAX_WRITES) {
                rcvi_persistent_refuse("a persistent kernel cannot follow a value that so many steps write");
                return -1;
            }
            found[count++] = w;
        }
    }
    return count;
}

/* The iterations of a reader at which this write is one that it may read; `ahead`: the writer's iteration minus the reader's; `before`: the
 * write comes before the read. */
typedef struct {
    int64_t low, high, ahead;
    bool before;
} reach;

static reach find_reach(const rcvi_persistent *p, int reader, const position *at, const view_write *w) {
    const rcvi_kernel_step *s = &p->steps[reader], *writer = &p->steps[w->step];
    if (w->single_step || !at->step || w->at.step != at->step || (at->slot - w->at.slot) % at->step) return (reach){0};
    int64_t ahead = (at->slot - w->at.slot) / at->step;
    reach r = {.low = s->low, .high = s->high, .ahead = ahead};
    if (writer->low - ahead > r.low) r.low = writer->low - ahead;
    if (writer->high - ahead < r.high) r.high = writer->high - ahead;
    r.before = ahead < 0 || (ahead == 0 && w->step < reader);
    return r;
}

/* Drops writes that another one always replaces before the reader reads, such as a state that is reset. Answers how many are left. */
static int drop_replaced(const rcvi_persistent *p, int reader, const position *at, view_write *w, int count) {
    bool replaced[MAX_WRITES] = {false};
    int in_shared = 0;
    for (int i = 0; i < count; i++) {
        reach x = find_reach(p, reader, at, &w[i]);
        for (int k = 0; k < count && x.before; k++) {
            reach y = find_reach(p, reader, at, &w[k]);
            bool later = y.ahead > x.ahead || (y.ahead == x.ahead && w[k].step > w[i].step);
            replaced[i] |= y.before && later && y.low <= x.low && y.high >= x.high;
        }
    }
    for (int i = 0; i < count; i++) {
        if (!replaced[i]) w[in_shared++] = w[i];
    }
    return in_shared;
}

static rcv_status find_channel(rcvi_persistent *p, const rcvi_channel *wanted, int *found) {
    for (*found = 0; *found < p->channel_count; ++*found) {
        const rcvi_channel *o = &p->channels[*found];
        if (o->buffer == wanted->buffer && o->column == wanted->column && o->operand == wanted->operand) return RCV_OK;
    }
    p->channels[p->channel_count++] = *wanted;
    return RCV_OK;
}

rcv_status rcvi_persistent_add_port(rcvi_kernel_step *s, rcvi_port port, int *index) {
    if (s->port_count == RCVI_MAX_PORTS)
        return rcvi_fail(RCV_UNSUPPORTED, "a persistent kernel passes on %d values of a step at most", RCVI_MAX_PORTS);
    *index = s->port_count;
    s->ports[s->port_count++] = port;
    return RCV_OK;
}

void rcvi_channel_cover(rcvi_channel *channel, const rcvi_kernel_step *s, const rcvi_port *port) {
    int64_t a = port->slot + s->low * port->step, b = port->slot + (s->high - 1) * port->step;
    int64_t first = a < b ? a : b, last = a < b ? b : a;
    if (s->low >= s->high) return;
    if (first < channel->base) channel->base = first;
    if (last > channel->top) channel->top = last;
}

/* Adds a write port to a step, unless it has that port. */
static rcv_status add_write_port(rcvi_persistent *p, int c, const view_write *w) {
    rcvi_kernel_step *s = &p->steps[w->step];
    rcvi_channel *channel = &p->channels[c];
    rcvi_port port = {.channel = c, .slot = w->at.slot, .step = w->at.step};
    if (w->single_step) port = (rcvi_port){.channel = c, .slot = 0, .step = 1};
    for (int i = 0; i < s->write_count; i++) {
        if (s->write_views[i] == w->view && s->ports[s->writes[i]].channel == c) return RCV_OK;
    }
    int64_t a = port.slot + s->low * port.step, b = port.slot + (s->high - 1) * port.step;
    int64_t first = a < b ? a : b, last = a < b ? b : a;
    if (s->low < s->high) {
        channel->first = channel->written && channel->first < first ? channel->first : first;
        channel->last = channel->written && channel->last > last ? channel->last : last;
        channel->written += port.step ? last - first + 1 : 1;
    }
    rcvi_channel_cover(channel, s, &port);
    if (!channel->operand) s->is_exported[w->view] = true;
    RCVI_TRY(rcvi_persistent_add_port(s, port, &s->writes[s->write_count]));
    s->write_views[s->write_count++] = w->view;
    return RCV_OK;
}

/* Is a slot written before it is read, at the reader's iteration i? */
static bool comes_before(const rcvi_persistent *p, int writer, const rcvi_port *w, int reader, const rcvi_port *r,
                         int64_t i) {
    const rcvi_kernel_step *s = &p->steps[writer];
    int64_t slot = r->slot + i * r->step, j = w->step ? (slot - w->slot) / w->step : s->low;
    if (w->slot + j * w->step != slot || j < s->low || j >= s->high) return true; /* not this writer's slot */
    return j < i || (j == i && writer < reader);
}

/* The iterations at which what a reader reads is written in the loop, so that it must wait. */
static rcv_status find_awaited(const rcvi_engine *e, const rcvi_persistent *p, int reader, const rcvi_view *view,
                               const view_write *w, int count, rcvi_port *port) {
    const rcvi_kernel_step *s = &p->steps[reader];
    const rcvi_channel *channel = &p->channels[port->channel];
    position at;
    locate(e, s, view, &at);
    port->slot = at.slot;
    port->step = at.step;
    if (count == 0) return RCV_OK;
    if (channel->single_step) {
        const rcvi_time *a = &s->step->time, *b = &p->steps[w[0].step].step->time;
        if (a->base != b->base || a->inner != b->inner || at.step)
            return rcvi_persistent_refuse("a persistent kernel cannot determine when a value of this plan is written");
        if (w[0].step >= reader)
            return rcvi_persistent_refuse(
                "a persistent kernel cannot pass on a value that is read before it is written");
        port->slot = 0;
        port->step = 1;
    }
    if (channel->written != channel->last - channel->first + 1)
        return rcvi_persistent_refuse("a persistent kernel cannot pass on a value that is written twice, or with gaps");
    int64_t low = s->low, high = s->high;
    if (port->step) {
        int64_t a = (channel->first - port->slot) / port->step, b = (channel->last - port->slot) / port->step;
        int64_t least = a < b ? a : b, most = (a < b ? b : a) + 1;
        if (least > low) low = least;
        if (most < high) high = most;
    } else if (port->slot < channel->first || port->slot > channel->last) {
        high = low;
    }
    port->low = low;
    port->high = high > low ? high : low;
    for (int i = 0; i < count && low < high; i++) {
        const rcvi_kernel_step *writer = &p->steps[w[i].step];
        for (int k = 0; k < writer->write_count; k++) {
            const rcvi_port *u = &writer->ports[writer->writes[k]];
            if (u->channel != port->channel) continue;
            if (!comes_before(p, w[i].step, u, reader, port, low) ||
                !comes_before(p, w[i].step, u, reader, port, high - 1))
                return rcvi_persistent_refuse(
                    "a persistent kernel cannot pass on a value that is read before it is written");
        }
    }
    return RCV_OK;
}

/* Finds where the values of a view come from. Memory before the loop, or elements of the same owner: `port_index` is RCVI_NONE. A channel:
 * it is added if it is new, its writers and this reader get ports, and `port_index` is the reader's. */
static rcv_status connect_view(rcvi_engine *e, rcvi_persistent *p, int reader, int v, int64_t columns, bool operand,
                               int *port_index) {
    rcvi_kernel_step *s = &p->steps[reader];
    const rcvi_view *view = s->views[v];
    view_write found[MAX_WRITES];
    *port_index = RCVI_NONE;
    int count = view->buffer == RCVI_NONE ? 0 : find_writes(e, p, s, view, columns, found), own = 0;
    if (count < 0) return RCV_UNSUPPORTED;
    for (int i = 0; i < count; i++) {
        const rcvi_kernel_step *writer = &p->steps[found[i].step], *first = &p->steps[found[0].step];
        own += writer->task == s->task && writer->by_rows == s->by_rows;
        if (writer->task != first->task || writer->by_rows != first->by_rows)
            return rcvi_persistent_refuse("a persistent kernel cannot read a value that several layers write");
    }
    if (!operand && (count == 0 || own)) return RCV_OK;
    position at;
    if (!locate(e, s, view, &at))
        return rcvi_persistent_refuse("a persistent kernel cannot determine where an operand of this plan lies");
    count = drop_replaced(p, reader, &at, found, count);
    rcvi_channel wanted = {.buffer = view->buffer,
                           .column = at.column,
                           .columns = columns,
                           .operand = operand,
                           .single_step = count > 0 && found[0].single_step,
                           .base = INT64_MAX,
                           .top = INT64_MIN,
                           .view = view,
                           .task = count > 0 ? p->steps[found[0].step].task : RCVI_NONE,
                           .by_rows = count > 0 && p->steps[found[0].step].by_rows};
    rcvi_port port = {.channel = RCVI_NONE};
    RCVI_TRY(find_channel(p, &wanted, &port.channel));
    for (int i = 0; i < count; i++) {
        if (found[i].single_step != wanted.single_step)
            return rcvi_persistent_refuse(
                "a persistent kernel cannot pass on a value that is written twice, or with gaps");
        RCVI_TRY(add_write_port(p, port.channel, &found[i]));
    }
    RCVI_TRY(find_awaited(e, p, reader, view, found, count, &port));
    rcvi_channel_cover(&p->channels[port.channel], s, &port);
    return rcvi_persistent_add_port(s, port, port_index);
}

bool rcvi_persistent_is_value(const rcvi_kernel_step *s, int v) {
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

/* Only where a thread has one tile, whose rows are all computed in every iteration. */
int rcvi_persistent_carried(const rcvi_engine *e, const rcvi_persistent *p, int step, int v) {
    const rcvi_kernel_step *s = &p->steps[step];
    view_write found[MAX_WRITES];
    position at;
    if (p->tiles > 1 || p->tasks[s->task].product_step != step || s->has_row_arguments || s->by_rows ||
        s->is_remote[v] || s->shape.types[v] != RCVI_F32 || !rcvi_persistent_is_value(s, v) ||
        !locate(e, s, s->views[v], &at) || find_writes(e, p, s, s->views[v], s->step->columns, found) != 1)
        return RCVI_NONE;
    bool from_before =
        found->step == step && at.step && found->at.step == at.step && found->at.slot - at.slot == at.step;
    return from_before && !found->single_step && s->shape.types[found->view] == RCVI_F32 ? found->view : RCVI_NONE;
}

static rcv_status connect_step(rcvi_engine *e, rcvi_persistent *p, int index) {
    rcvi_kernel_step *s = &p->steps[index];
    int64_t columns = s->step->columns;
    for (int v = 0, port; v < s->view_count; v++) {
        if (!rcvi_persistent_is_value(s, v)) continue;
        RCVI_TRY(connect_view(e, p, index, v, columns, false, &port));
        if (port == RCVI_NONE) continue;
        s->is_remote[v] = true;
        s->waits[s->wait_count++] = port;
    }
    for (int q = 0; q < s->pass_count; q++)
        RCVI_TRY(connect_view(e, p, index, s->passes[q].a, s->passes[q].depth, true, &s->operand_ports[q]));
    return RCV_OK;
}

/* May the step skip a tile all of whose rows have ended? Yes, if its products and what it reads of other tasks are only for rows that have
 * not ended. */
static bool may_skip_ended(const rcvi_engine *e, const rcvi_kernel_step *s) {
    bool skips_ended = s->has_row_arguments;
    if (s->pass_count) skips_ended &= e->is_short[s->members[0]];
    for (int v = 0; v < s->shape.map->operand_count; v++)
        skips_ended &= !(s->is_remote[v] && s->is_read_for_all_rows[v]);
    return skips_ended;
}

rcv_status rcvi_persistent_connect(rcvi_engine *e, rcvi_persistent *p) {
    for (int i = 0; i < p->step_count; i++) RCVI_TRY(connect_step(e, p, i));
    for (int i = 0; i < p->step_count; i++) p->steps[i].skips_ended = may_skip_ended(e, &p->steps[i]);
    return rcvi_persistent_check_hazards(p);
}
