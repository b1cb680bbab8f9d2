/* Write-after-read hazards: memory that is written again in the loop (a ring of two steps, or room for one step) must have been read by
 * the other tasks before.
 *
 * There is no back-pressure in a channel: a writer does not wait for its readers. So the dependences of the loop itself must hold it back:
 * before it writes again, the writer has waited for something that the reader's blocks wrote after they had read. A loop without such a
 * chain is refused. */
#include "device/cuda/persistent/internal.h"

/* Iterations between the writing of a slot and its reading. */
static int64_t lag_of(const rcvi_port *write, const rcvi_port *read) { return (write->slot - read->slot) / read->step; }

static const rcvi_port *find_write(const rcvi_kernel_step *s, int channel) {
    for (int n = 0; n < s->write_count; n++) {
        if (s->ports[s->writes[n]].channel == channel) return &s->ports[s->writes[n]];
    }
    return NULL;
}

/* Is the channel written only in rows that have not ended? Then a step that skips a tile writes nothing to it. */
static bool is_for_active_rows(const rcvi_persistent *p, int channel) {
    for (int i = 0; i < p->step_count; i++) {
        const rcvi_kernel_step *s = &p->steps[i];
        for (int n = 0; n < s->write_count; n++) {
            if (s->ports[s->writes[n]].channel == channel && !s->is_short[s->write_views[n]]) return false;
        }
    }
    return true;
}

/* Do both steps skip the same tiles, the reader at iteration i, the other at iteration i + at? Then nothing was read where it does not wait. */
static bool skip_together(const rcvi_kernel_step *reader, int64_t i, const rcvi_kernel_step *waiting, int64_t at) {
    const rcvi_time *x = &reader->step->time, *y = &waiting->step->time;
    return reader->skips_ended && waiting->skips_ended && reader->step->direction == waiting->step->direction &&
           x->base + i * x->inner == y->base + (i + at) * y->inner;
}

/* Is what `wait` waits for at iteration i + at written by the reader's blocks after they have done the reader's step of iteration i? A block
 * does all steps of its task in the order of the program. */
static bool waits_for(const rcvi_persistent *p, const rcvi_port *wait, int64_t at, int reader, int64_t i) {
    if (wait->channel == RCVI_NONE || !wait->step || i + at < wait->low || i + at >= wait->high) return false;
    for (int q = 0; q < p->step_count; q++) {
        const rcvi_port *write = find_write(&p->steps[q], wait->channel);
        if (!write || write->step != wait->step || p->steps[q].task != p->steps[reader].task) continue;
        int64_t done = at - lag_of(write, wait);
        if (done > 0 || (done == 0 && q >= reader)) return true;
    }
    return false;
}

/* Does step s wait, at iteration i + at, for what the reader's blocks write after the read of iteration i? Where it skips tiles it does not
 * wait, which is safe if nothing is written there or nothing was read. */
static bool holds_back(const rcvi_persistent *p, const rcvi_kernel_step *s, int64_t at, int channel, int reader,
                       int64_t i) {
    if (s->skips_ended && !is_for_active_rows(p, channel) && !skip_together(&p->steps[reader], i, s, at)) return false;
    for (int n = 0; n < s->pass_count + s->wait_count; n++) {
        int port = n < s->pass_count ? s->operand_ports[n] : s->waits[n - s->pass_count];
        if (port != RCVI_NONE && waits_for(p, &s->ports[port], at, reader, i)) return true;
    }
    return false;
}

/* Before the writer writes to the channel at iteration i + later: has it waited until the reader has read at iteration i? Any earlier step
 * of its task may have waited. */
static bool is_held_back(const rcvi_persistent *p, int writer, int channel, int64_t later, int reader, int64_t i) {
    for (int h = 0; h < p->step_count; h++) {
        if (p->steps[h].task != p->steps[writer].task) continue;
        for (int64_t at = 0; at <= (h > writer ? later - 1 : later); at++) {
            if (holds_back(p, &p->steps[h], at, channel, reader, i)) return true;
        }
    }
    return false;
}

bool rcvi_persistent_outlives(const rcvi_persistent *p, int reader, const rcvi_port *port, int64_t slots) {
    for (int w = 0; w < p->step_count; w++) {
        const rcvi_kernel_step *s = &p->steps[w];
        const rcvi_port *write = find_write(s, port->channel);
        if (!write) continue;
        if (!port->step || write->step != port->step) return false;
        int64_t later = slots - lag_of(write, port), ends[] = {port->low, port->high - 1};
        for (int k = 0; k < 2 && port->low < port->high; k++) {
            if (ends[k] + later < s->high && !is_held_back(p, w, port->channel, later, reader, ends[k])) return false;
        }
    }
    return true;
}

rcv_status rcvi_persistent_check_hazards(const rcvi_persistent *p) {
    for (int i = 0; i < p->step_count; i++) {
        const rcvi_kernel_step *s = &p->steps[i];
        for (int n = 0; n < s->wait_count; n++) {
            const rcvi_port *port = &s->ports[s->waits[n]];
            const rcvi_channel *channel = &p->channels[port->channel];
            bool wraps = false;
            for (int v = 0; v < s->view_count; v++)
                wraps |= s->views[v]->buffer == channel->buffer && s->views[v]->wrap;
            if ((wraps || channel->single_step) && !rcvi_persistent_outlives(p, i, port, channel->single_step ? 1 : 2))
                return rcvi_persistent_refuse(
                    "a persistent kernel cannot pass on a value that may be overwritten before it is read");
        }
    }
    return RCV_OK;
}
