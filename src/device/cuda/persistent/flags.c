/* Values that go from a step by columns to a step by rows with in-band flags instead of counters.
 *
 * Such a value has memory for one time step, words of [batch, columns], zeros before the loop. The last bit of a word is a flag that
 * alternates from step to step, beginning with 1. The one thread that reads an element polls its words until all have the flag of the step.
 * So neither a release nor a counter is between writing and reading. The writer must not overwrite a word before it is read: what it
 * multiplies with next must depend on the reader (hazards.c). Where sequences end there are no flags: a step writes nothing in a row that
 * has ended, so its flag would never change. */
#include "device/cuda/persistent/internal.h"

static bool is_real(const rcvi_kernel_step *s, int v) {
    return s->shape.types[v] == RCVI_F32 && s->views[v]->column == 1;
}

/* The view of the step's wait port number `wait`. */
static int waited_view(const rcvi_kernel_step *s, int wait) {
    int v = 0;
    for (int remote = 0;; v++) {
        remote += s->is_remote[v];
        if (remote == wait + 1) return v;
    }
}

/* One step writes it, by columns, and one reads it, by rows, before it is written again. */
static bool may_be_flagged(const rcvi_persistent *p, int c) {
    int writers = 0, readers = 0;
    bool good = !p->channels[c].operand && p->channels[c].written > 0;
    for (int i = 0; i < p->step_count && good; i++) {
        const rcvi_kernel_step *s = &p->steps[i];
        for (int n = 0; n < s->write_count; n++) {
            if (s->ports[s->writes[n]].channel != c) continue;
            writers++;
            good &= s->pass_count > 0 && is_real(s, s->write_views[n]);
        }
        for (int n = 0; n < s->wait_count; n++) {
            if (s->ports[s->waits[n]].channel != c) continue;
            readers++;
            good &= s->by_rows && is_real(s, waited_view(s, n)) &&
                    rcvi_persistent_outlives(p, i, &s->ports[s->waits[n]], 1);
        }
    }
    return good && writers == 1 && readers == 1;
}

/* Does the program read the buffer only through these flagged words? */
static bool is_read_only_flagged(const rcvi_engine *e, const rcvi_persistent *p, int c) {
    const rcvi_program *program = e->program;
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    for (size_t i = 0; i < program->step_count; i++) {
        int count = rcvi_step_accesses(&program->steps[i], accesses), read = 0, flagged = 0;
        for (int a = 0; a < count; a++) read += accesses[a].read && accesses[a].view->buffer == p->channels[c].buffer;
        for (int k = 0; read && k < p->step_count; k++) {
            const rcvi_kernel_step *s = &p->steps[k];
            for (int n = 0; rcvi_kernel_step_contains(s, (int)i) && n < s->wait_count; n++) {
                const rcvi_port *port = &s->ports[s->waits[n]];
                flagged += port->channel == c && port->low == s->low && port->high == s->high;
            }
        }
        if (read != flagged) return false;
    }
    return true;
}

/* Similar tasks have one text: a channel is flagged only if it is in all of them. Answers whether something has changed. */
static bool agree(const rcvi_persistent *p, const rcvi_kernel_step *a, const rcvi_kernel_step *b, bool *is) {
    bool changed = false;
    for (int n = 0; n < a->wait_count + a->write_count; n++) {
        int wait = n - a->write_count;
        int x = a->ports[wait < 0 ? a->writes[n] : a->waits[wait]].channel;
        int y = b->ports[wait < 0 ? b->writes[n] : b->waits[wait]].channel;
        if (x == RCVI_NONE || y == RCVI_NONE || is[x] == is[y] || p->channels[x].operand) continue;
        is[x] = is[y] = false;
        changed = true;
    }
    return changed;
}

static void let_similar_tasks_agree(const rcvi_persistent *p, bool *is) {
    bool changed;
    do {
        changed = false;
        for (int s = 0; s < p->task_count; s++) {
            for (int o = 0; o < s; o++) {
                const rcvi_task *a = &p->tasks[s], *b = &p->tasks[o];
                if (!rcvi_persistent_are_similar(p, a, b)) continue;
                for (int k = 0; k < a->step_count; k++)
                    changed |= agree(p, &p->steps[a->steps[k]], &p->steps[b->steps[k]], is);
            }
        }
    } while (changed);
}

/* Marks what is flagged in a step, also where it is only in a similar task. */
static void mark(const rcvi_persistent *p, rcvi_kernel_step *s, const rcvi_kernel_step *similar,
                 const bool *flagged_only) {
    for (int n = 0; n < s->write_count; n++) {
        int channel = similar->ports[similar->writes[n]].channel, view = s->write_views[n];
        if (s->write_operand[n]) continue;
        if (channel == RCVI_NONE) {
            s->is_flagged_only[view] = false;
        } else if (p->channels[channel].flagged) {
            s->write_flagged[n] = true;
            s->is_exported[view] = false;
            s->is_flagged_only[view] &= flagged_only[channel];
        }
    }
    for (int n = 0; n < s->wait_count; n++) {
        int channel = similar->ports[similar->waits[n]].channel;
        if (channel != RCVI_NONE && p->channels[channel].flagged) s->is_flagged[waited_view(s, n)] = true;
    }
}

rcv_status rcvi_persistent_find_flagged(rcvi_engine *e, rcvi_persistent *p) {
    bool *flagged = rcvi_pool_new(&e->pool, (size_t)p->channel_count, sizeof *flagged);
    bool *flagged_only = rcvi_pool_new(&e->pool, (size_t)p->channel_count, sizeof *flagged_only);
    if (e->pool.failed) return RCV_NO_MEMORY;
    for (int c = 0; c < p->channel_count; c++) flagged[c] = !e->sorts && may_be_flagged(p, c);
    let_similar_tasks_agree(p, flagged);
    for (int c = 0; c < p->channel_count; c++) {
        p->channels[c].flagged = flagged[c];
        flagged_only[c] = flagged[c] && is_read_only_flagged(e, p, c);
    }
    for (int i = 0; i < p->step_count; i++) {
        rcvi_kernel_step *s = &p->steps[i];
        s->is_flagged = rcvi_pool_new(&e->pool, (size_t)s->view_count, sizeof *s->is_flagged);
        s->is_flagged_only = rcvi_pool_new(&e->pool, (size_t)s->view_count, sizeof *s->is_flagged_only);
        if (e->pool.failed) return RCV_NO_MEMORY;
        for (int n = 0; n < s->write_count; n++) s->is_flagged_only[s->write_views[n]] = !s->write_operand[n];
    }
    for (int s = 0; s < p->task_count; s++) {
        for (int o = 0; o < p->task_count; o++) {
            const rcvi_task *a = &p->tasks[s], *b = &p->tasks[o];
            for (int k = 0; k < a->step_count && rcvi_persistent_are_similar(p, a, b); k++)
                mark(p, &p->steps[a->steps[k]], &p->steps[b->steps[k]], flagged_only);
        }
    }
    for (int i = 0; i < p->step_count; i++) {
        rcvi_kernel_step *s = &p->steps[i];
        for (int n = 0; n < s->write_count; n++) s->is_flagged_only[s->write_views[n]] &= s->write_flagged[n];
    }
    return RCV_OK;
}

/* The writer's first flag is 1; a reader has the flag of the step in which its slot was written. */
int rcvi_persistent_flag_phase(const rcvi_persistent *p, const rcvi_kernel_step *s, int port) {
    const rcvi_port *own = &s->ports[port];
    for (int i = 0; i < p->step_count; i++) {
        const rcvi_kernel_step *w = &p->steps[i];
        const rcvi_time *time = &w->step->time, *mine = &s->step->time;
        for (int n = 0; n < w->write_count; n++) {
            const rcvi_port *write = &w->ports[w->writes[n]];
            if (write->channel != own->channel) continue;
            int64_t phase = 1 + time->base + w->low * time->inner;
            if (write != own) phase += time->base - mine->base + (write->slot - own->slot) / own->step;
            return (int)(phase & 1);
        }
    }
    return 0;
}
