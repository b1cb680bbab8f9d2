/* Values that pass from columns to rows without counters: every word says itself whether it has come.
 *
 * Such a value has one step's room of words, [batch, columns], zeros before the loop. Its last bit is a tag that alternates from
 * step to step, beginning with 1; the one thread that reads an element looks until all its words have the tag of the step. So
 * neither a release nor a counter stands between the two. The writer must be held back until the reader has read, which what it
 * multiplies with does: it comes from the reader. Where rows leave the batch there are no tags: a step writes nothing in a row that
 * has ended, whose tag would never come. */
#include "device/cuda/persistent/parts.h"

typedef rcvi_persistent_step hosted_step;

static bool is_real(const hosted_step *s, int v) { return s->shape.types[v] == RCVI_F32 && s->views[v]->column == 1; }

/* The view that this wait is for. */
static int waited_view(const hosted_step *s, int wait) {
    int v = 0;
    for (int late = 0;; v++) {
        late += s->is_late[v];
        if (late == wait + 1) return v;
    }
}

/* One step writes it, by columns, and one reads it, by rows, before it is written again. */
static bool may_be_tagged(const rcvi_persistent *p, int c) {
    int writers = 0, readers = 0;
    bool good = !p->channels[c].operand && p->channels[c].written > 0;
    for (int i = 0; i < p->step_count && good; i++) {
        const hosted_step *s = &p->steps[i];
        for (int n = 0; n < s->write_count; n++) {
            if (s->uses[s->writes[n]].channel != c) continue;
            writers++;
            good &= s->pass_count > 0 && is_real(s, s->write_views[n]);
        }
        for (int n = 0; n < s->wait_count; n++) {
            if (s->uses[s->waits[n]].channel != c) continue;
            readers++;
            good &=
                s->by_rows && is_real(s, waited_view(s, n)) && rcvi_persistent_keeps(p, i, &s->uses[s->waits[n]], 1);
        }
    }
    return good && writers == 1 && readers == 1;
}

/* Does nobody else in the program read the memory where the value lies without tags? */
static bool is_read_with_tags_alone(const rcvi_engine *e, const rcvi_persistent *p, int c) {
    const rcvi_program *program = e->program;
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    for (size_t i = 0; i < program->step_count; i++) {
        int count = rcvi_step_accesses(&program->steps[i], accesses), read = 0, tagged = 0;
        for (int a = 0; a < count; a++) read += accesses[a].read && accesses[a].view->buffer == p->channels[c].buffer;
        for (int k = 0; read && k < p->step_count; k++) {
            const hosted_step *s = &p->steps[k];
            for (int n = 0; rcvi_persistent_has_part(s, (int)i) && n < s->wait_count; n++) {
                const rcvi_channel_use *use = &s->uses[s->waits[n]];
                tagged += use->channel == c && use->low == s->low && use->high == s->high;
            }
        }
        if (read != tagged) return false;
    }
    return true;
}

/* Peers have one text: what is not so in all of them is not so. Answers whether something has changed. */
static bool agree(const rcvi_persistent *p, const hosted_step *a, const hosted_step *b, bool *is) {
    bool changed = false;
    for (int n = 0; n < a->wait_count + a->write_count; n++) {
        int wait = n - a->write_count;
        int x = a->uses[wait < 0 ? a->writes[n] : a->waits[wait]].channel;
        int y = b->uses[wait < 0 ? b->writes[n] : b->waits[wait]].channel;
        if (x == RCVI_NONE || y == RCVI_NONE || is[x] == is[y] || p->channels[x].operand) continue;
        is[x] = is[y] = false;
        changed = true;
    }
    return changed;
}

static void let_peers_agree(const rcvi_persistent *p, bool *is) {
    bool changed;
    do {
        changed = false;
        for (int s = 0; s < p->seat_count; s++) {
            for (int o = 0; o < s; o++) {
                const rcvi_seat *a = &p->seats[s], *b = &p->seats[o];
                if (!rcvi_persistent_are_peers(p, a, b)) continue;
                for (int k = 0; k < a->hosted_count; k++)
                    changed |= agree(p, &p->steps[a->hosted[k]], &p->steps[b->hosted[k]], is);
            }
        }
    } while (changed);
}

/* Tells a step what of its own and its peers' is tagged. */
static void mark(const rcvi_persistent *p, hosted_step *s, const hosted_step *peer, const bool *spare) {
    for (int n = 0; n < s->write_count; n++) {
        int channel = peer->uses[peer->writes[n]].channel, view = s->write_views[n];
        if (s->write_operand[n]) continue;
        if (channel == RCVI_NONE) {
            s->is_spare[view] = false;
        } else if (p->channels[channel].tagged) {
            s->write_tagged[n] = true;
            s->is_early[view] = false;
            s->is_spare[view] &= spare[channel];
        }
    }
    for (int n = 0; n < s->wait_count; n++) {
        int channel = peer->uses[peer->waits[n]].channel;
        if (channel != RCVI_NONE && p->channels[channel].tagged) s->is_tagged[waited_view(s, n)] = true;
    }
}

rcv_status rcvi_persistent_tag(rcvi_engine *e, rcvi_persistent *p) {
    bool *tagged = rcvi_pool_new(&e->pool, (size_t)p->channel_count, sizeof *tagged);
    bool *spare = rcvi_pool_new(&e->pool, (size_t)p->channel_count, sizeof *spare);
    if (e->pool.failed) return RCV_NO_MEMORY;
    for (int c = 0; c < p->channel_count; c++) tagged[c] = !e->sorts && may_be_tagged(p, c);
    let_peers_agree(p, tagged);
    for (int c = 0; c < p->channel_count; c++) {
        p->channels[c].tagged = tagged[c];
        spare[c] = tagged[c] && is_read_with_tags_alone(e, p, c);
    }
    for (int i = 0; i < p->step_count; i++) {
        hosted_step *s = &p->steps[i];
        s->is_tagged = rcvi_pool_new(&e->pool, (size_t)s->view_count, sizeof *s->is_tagged);
        s->is_spare = rcvi_pool_new(&e->pool, (size_t)s->view_count, sizeof *s->is_spare);
        if (e->pool.failed) return RCV_NO_MEMORY;
        for (int n = 0; n < s->write_count; n++) s->is_spare[s->write_views[n]] = !s->write_operand[n];
    }
    for (int s = 0; s < p->seat_count; s++) {
        for (int o = 0; o < p->seat_count; o++) {
            const rcvi_seat *a = &p->seats[s], *b = &p->seats[o];
            for (int k = 0; k < a->hosted_count && rcvi_persistent_are_peers(p, a, b); k++)
                mark(p, &p->steps[a->hosted[k]], &p->steps[b->hosted[k]], spare);
        }
    }
    for (int i = 0; i < p->step_count; i++) {
        hosted_step *s = &p->steps[i];
        for (int n = 0; n < s->write_count; n++) s->is_spare[s->write_views[n]] &= s->write_tagged[n];
    }
    return RCV_OK;
}

/* The writer's first tag is 1; a reader has that of the step in which its slot was written. */
int rcvi_persistent_tag_phase(const rcvi_persistent *p, const hosted_step *s, int use) {
    const rcvi_channel_use *own = &s->uses[use];
    for (int i = 0; i < p->step_count; i++) {
        const hosted_step *w = &p->steps[i];
        const rcvi_time *time = &w->step->time, *mine = &s->step->time;
        for (int n = 0; n < w->write_count; n++) {
            const rcvi_channel_use *write = &w->uses[w->writes[n]];
            if (write->channel != own->channel) continue;
            int64_t phase = 1 + time->base + w->low * time->inner;
            if (write != own) phase += time->base - mine->base + (write->slot - own->slot) / own->step;
            return (int)(phase & 1);
        }
    }
    return 0;
}
