/* Seats of one structure, such as layers, get the same places, so that they share their text; then counters, and memory. */
#include "device/cuda/persistent/parts.h"

typedef rcvi_persistent_step hosted_step;

/* ---- peers ---- */

bool rcvi_persistent_are_peers(const rcvi_persistent *p, const rcvi_seat *a, const rcvi_seat *b) {
    if (a->hosted_count != b->hosted_count || a->columns != b->columns) return false;
    for (int k = 0; k < a->hosted_count; k++) {
        const hosted_step *x = &p->steps[a->hosted[k]], *y = &p->steps[b->hosted[k]];
        if (x->view_count != y->view_count || x->twin_count != y->twin_count || x->pass_count != y->pass_count ||
            x->by_rows != y->by_rows || x->apart != y->apart)
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

/* Finds which views of step k any peer reads late, or writes early or in the caller's order: one that has no such order writes them
 * in its own, but has a place for it, too. */
static void join_flags(const rcvi_persistent *p, const rcvi_seat *seat, int k, hosted_step *to) {
    for (int s = 0; s < p->seat_count; s++) {
        if (!rcvi_persistent_are_peers(p, seat, &p->seats[s])) continue;
        const hosted_step *peer = &p->steps[p->seats[s].hosted[k]], *own = &p->steps[seat->hosted[k]];
        for (int v = 0; v < own->view_count; v++) {
            to->is_late[v] |= peer->is_late[v];
            to->is_early[v] |= peer->is_early[v];
        }
        for (int v = 0; v < own->shape.map->operand_count; v++)
            to->is_ordered[v] |= own->orders ? own->is_ordered[v] : peer->is_ordered[v];
        to->has_rows |= peer->has_rows;
    }
}

/* Gives `to` the uses that step k of any peer has, in one order; those that are not its own lead nowhere. */
static rcv_status order_uses(const rcvi_persistent *p, const rcvi_seat *seat, int k, hosted_step *to) {
    const hosted_step *own = &p->steps[seat->hosted[k]];
    const bool *is_late = to->is_late;
    to->use_count = to->write_count = to->wait_count = 0;
    for (int q = 0; q < own->pass_count; q++) {
        bool read = false;
        for (int s = 0; s < p->seat_count; s++)
            read |= rcvi_persistent_are_peers(p, seat, &p->seats[s]) &&
                    p->steps[p->seats[s].hosted[k]].read_of[q] != RCVI_NONE;
        to->read_of[q] = RCVI_NONE;
        if (read)
            RCVI_TRY(rcvi_persistent_add_use(to, own->read_of[q] == RCVI_NONE ? nowhere : own->uses[own->read_of[q]],
                                             &to->read_of[q]));
    }
    for (int v = 0; v < own->view_count; v++) {
        if (is_late[v]) RCVI_TRY(rcvi_persistent_add_use(to, wait_of(own, v), &to->waits[to->wait_count++]));
    }
    for (int v = 0; v < own->view_count; v++) {
        for (int operand = 0; operand < 2; operand++) {
            bool written = false;
            for (int s = 0; s < p->seat_count; s++)
                written |= rcvi_persistent_are_peers(p, seat, &p->seats[s]) &&
                           find_write(p, &p->steps[p->seats[s].hosted[k]], v, operand) != RCVI_NONE;
            if (!written) continue;
            int mine = find_write(p, own, v, operand);
            RCVI_TRY(rcvi_persistent_add_use(to, mine == RCVI_NONE ? nowhere : own->uses[own->writes[mine]],
                                             &to->writes[to->write_count]));
            to->write_operand[to->write_count] = operand;
            to->write_views[to->write_count++] = v;
        }
    }
    return RCV_OK;
}

rcv_status rcvi_persistent_match(rcvi_engine *e, rcvi_persistent *p) {
    hosted_step *matched = rcvi_pool_new(&e->pool, (size_t)p->step_count, sizeof *matched);
    if (e->pool.failed) return RCV_NO_MEMORY;
    for (int s = 0; s < p->seat_count; s++) {
        for (int k = 0; k < p->seats[s].hosted_count; k++) {
            hosted_step *to = &matched[p->seats[s].hosted[k]];
            size_t views = (size_t)p->steps[p->seats[s].hosted[k]].view_count;
            bool *flags = rcvi_pool_new(&e->pool, 3 * views, sizeof *flags);
            if (e->pool.failed) return RCV_NO_MEMORY;
            *to = p->steps[p->seats[s].hosted[k]];
            to->is_late = flags;
            to->is_early = flags + views;
            to->is_ordered = flags + 2 * views;
            join_flags(p, &p->seats[s], k, to);
            RCVI_TRY(order_uses(p, &p->seats[s], k, to));
        }
    }
    p->steps = matched;
    return RCV_OK;
}

/* ---- counters ---- */

/* Do the same steps write both, always at once? */
static bool share_counters(const rcvi_persistent *p, int a, int b) {
    const rcvi_channel *x = &p->channels[a], *y = &p->channels[b];
    if (x->seat != y->seat || x->tagged != y->tagged || !x->written || !y->written ||
        x->last - x->first != y->last - y->first)
        return false;
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
            int channel = s->uses[s->writes[n]].channel;
            bool raised = channel != RCVI_NONE && !p->channels[channel].tagged;
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
                    raised |= rcvi_persistent_are_peers(p, &p->seats[s], &p->seats[o]) &&
                              p->steps[p->seats[o].hosted[k]].is_raised[u];
                if (raised) own->raises[own->raise_count++] = u;
            }
        }
    }
}

rcv_status rcvi_persistent_lay_out(rcvi_engine *e, rcvi_persistent *p) {
    int64_t tiles = (int64_t)p->slices * p->tiles;
    find_signals(p);
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
            return rcvi_persistent_refuse("a persistent kernel cannot bring so many steps of a ring");
        channel->chunks = rcvi_persistent_chunks(p, channel->columns);
        channel->place = p->exchange;
        p->exchange += (size_t)(slots * rcvi_persistent_slot(p, channel));
    }
    for (int c = 0; c < p->channel_count; c++) {
        rcvi_channel *channel = &p->channels[c];
        if (!channel->tagged) continue;
        channel->tags = p->counters = rcvi_round_up(p->counters, RCVI_ALIGNED_WORDS);
        p->counters += e->program->options.batch * channel->columns;
    }
    p->streamed = p->exchange;
    p->exchange += (size_t)p->blocks * (size_t)p->stream_chunks * RCVI_WEIGHT_ROWS * RCVI_DEPTH_CHUNK_BYTES;
    return RCV_OK;
}
