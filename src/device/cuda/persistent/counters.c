/* Counters of channels, and memory for the operands and flagged words that they carry.
 *
 * A counter belongs to a slot and a tile of rows: every block that writes the slot increments it once, and a reader waits until it is the
 * number of these blocks. Channels that the same steps write together share their counters. */
#include "device/cuda/persistent/internal.h"

/* Do the same steps write both channels, always together? Then one counter is enough. */
static bool can_share_counters(const rcvi_persistent *p, int a, int b) {
    const rcvi_channel *x = &p->channels[a], *y = &p->channels[b];
    if (x->task != y->task || x->flagged != y->flagged || !x->written || !y->written ||
        x->last - x->first != y->last - y->first)
        return false;
    for (int i = 0; i < p->step_count; i++) {
        const rcvi_kernel_step *s = &p->steps[i];
        const rcvi_port *u = NULL, *w = NULL;
        for (int n = 0; n < s->write_count; n++) {
            if (s->ports[s->writes[n]].channel == a) u = &s->ports[s->writes[n]];
            if (s->ports[s->writes[n]].channel == b) w = &s->ports[s->writes[n]];
        }
        if (!u != !w) return false;
        if (u && (u->slot - x->first != w->slot - y->first || u->step != w->step)) return false;
    }
    return true;
}

static void assign_counter_sets(rcvi_persistent *p) {
    for (int c = 0; c < p->channel_count; c++) {
        int other = 0;
        while (other < c && !can_share_counters(p, other, c)) other++;
        p->channels[c].counter_set = other < c ? p->channels[other].counter_set : p->counter_set_count++;
    }
    for (int i = 0; i < p->step_count; i++) {
        rcvi_kernel_step *s = &p->steps[i];
        for (int n = 0; n < s->write_count; n++) {
            int channel = s->ports[s->writes[n]].channel;
            bool signaled = channel != RCVI_NONE && !p->channels[channel].flagged;
            for (int k = 0; k < n && signaled; k++) {
                int other = s->ports[s->writes[k]].channel;
                signaled = other == RCVI_NONE ||
                           p->channels[other].counter_set != p->channels[s->ports[s->writes[n]].channel].counter_set;
            }
            s->is_signaled[s->writes[n]] = signaled;
        }
    }
    for (int s = 0; s < p->task_count; s++) {
        for (int k = 0; k < p->tasks[s].step_count; k++) {
            rcvi_kernel_step *own = &p->steps[p->tasks[s].steps[k]];
            for (int u = 0; u < own->port_count; u++) {
                bool signaled = false;
                for (int o = 0; o < p->task_count; o++)
                    signaled |= rcvi_persistent_are_similar(p, &p->tasks[s], &p->tasks[o]) &&
                                p->steps[p->tasks[o].steps[k]].is_signaled[u];
                if (signaled) own->signals[own->signal_count++] = u;
            }
        }
    }
}

rcv_status rcvi_persistent_lay_out_exchange(rcvi_engine *e, rcvi_persistent *p) {
    int64_t tiles = (int64_t)p->slices * p->tiles;
    assign_counter_sets(p);
    p->first_counter = rcvi_pool_new(&e->pool, (size_t)p->counter_set_count + 1, sizeof *p->first_counter);
    if (e->pool.failed) return RCV_NO_MEMORY;
    for (int c = 0; c < p->channel_count; c++) {
        rcvi_channel *channel = &p->channels[c];
        int64_t slots = channel->written ? channel->last - channel->first + 1 : 0;
        bool first = true;
        for (int k = 0; k < c; k++) first &= p->channels[k].counter_set != channel->counter_set;
        if (first) {
            p->first_counter[channel->counter_set] = p->counters;
            p->counters += slots * tiles;
        }
        if (!channel->operand || channel->base > channel->top) continue;
        slots = channel->top - channel->base + 1;
        if (channel->view->wrap && slots - channel->written > 2)
            return rcvi_persistent_refuse("a persistent kernel cannot bring so many steps of a ring");
        channel->chunks = rcvi_persistent_chunks(p, channel->columns);
        channel->offset = p->exchange;
        p->exchange += (size_t)(slots * rcvi_persistent_slot(p, channel));
    }
    for (int c = 0; c < p->channel_count; c++) {
        rcvi_channel *channel = &p->channels[c];
        if (!channel->flagged) continue;
        channel->flag_words = p->counters = rcvi_round_up(p->counters, RCVI_ALIGNED_WORDS);
        p->counters += e->program->options.batch * channel->columns;
    }
    p->streamed_offset = p->exchange;
    p->exchange += (size_t)p->blocks * (size_t)p->streamed_chunks * RCVI_WEIGHT_ROWS * RCVI_DEPTH_CHUNK_BYTES;
    return RCV_OK;
}
