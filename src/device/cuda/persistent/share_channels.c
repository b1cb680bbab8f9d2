/* Common channels: equal values that a step writes to several channels, such as h for its own layer and for the one above it, go through one
 * channel. */
#include "device/cuda/persistent/internal.h"

static bool is_one_value(const rcvi_kernel_step *s, int a, int b) {
    int source = rcvi_persistent_source_of(s->shape.map, a);
    return source != RCVI_NONE && source == rcvi_persistent_source_of(s->shape.map, b) &&
           s->is_short[a] == s->is_short[b];
}

static int count_writes(const rcvi_persistent *p, int channel) {
    int count = 0;
    for (int i = 0; i < p->step_count; i++) {
        for (int n = 0; n < p->steps[i].write_count; n++)
            count += p->steps[i].ports[p->steps[i].writes[n]].channel == channel;
    }
    return count;
}

/* Do all readers read only what is written in the loop, nothing that was there before? */
static bool is_always_fresh(const rcvi_persistent *p, int channel) {
    for (int i = 0; i < p->step_count; i++) {
        const rcvi_kernel_step *s = &p->steps[i];
        for (int q = 0; q < s->pass_count; q++) {
            if (s->operand_ports[q] == RCVI_NONE || s->ports[s->operand_ports[q]].channel != channel) continue;
            const rcvi_port *port = &s->ports[s->operand_ports[q]];
            if (port->low > s->low || port->high < s->high || port->low >= port->high) return false;
        }
    }
    return true;
}

/* May the readers of write port `drop` read write port `keep` instead? */
static bool may_share(const rcvi_persistent *p, const rcvi_kernel_step *s, int keep, int drop) {
    const rcvi_port *a = &s->ports[s->writes[keep]], *b = &s->ports[s->writes[drop]];
    if (a->channel == b->channel || a->step != b->step || !a->step) return false;
    const rcvi_channel *x = &p->channels[a->channel], *y = &p->channels[b->channel];
    return x->operand && y->operand && x->columns == y->columns &&
           is_one_value(s, s->write_views[keep], s->write_views[drop]) && count_writes(p, a->channel) == 1 &&
           count_writes(p, b->channel) == 1 && is_always_fresh(p, b->channel);
}

/* Moves all ports of a channel to another one, whose slots are shifted by `slots`. */
static void redirect(rcvi_persistent *p, int from, int to, int64_t slots) {
    for (int i = 0; i < p->step_count; i++) {
        rcvi_kernel_step *s = &p->steps[i];
        for (int u = 0; u < s->port_count; u++) {
            rcvi_port *port = &s->ports[u];
            if (port->channel != from) continue;
            port->channel = to;
            port->slot += slots;
            rcvi_channel_cover(&p->channels[to], s, port);
        }
    }
}

static void remove_channel(rcvi_persistent *p, int channel) {
    for (int c = channel + 1; c < p->channel_count; c++) p->channels[c - 1] = p->channels[c];
    p->channel_count--;
    for (int i = 0; i < p->step_count; i++) {
        for (int u = 0; u < p->steps[i].port_count; u++) {
            if (p->steps[i].ports[u].channel > channel) p->steps[i].ports[u].channel--;
        }
    }
}

static void share_write(rcvi_persistent *p, rcvi_kernel_step *s, int keep, int drop) {
    const rcvi_port a = s->ports[s->writes[keep]], b = s->ports[s->writes[drop]];
    s->write_count--;
    for (int n = drop; n < s->write_count; n++) {
        s->writes[n] = s->writes[n + 1];
        s->write_views[n] = s->write_views[n + 1];
    }
    redirect(p, b.channel, a.channel, a.slot - b.slot);
    remove_channel(p, b.channel);
}

void rcvi_persistent_share_channels(rcvi_persistent *p) {
    for (int i = 0; i < p->step_count; i++) {
        rcvi_kernel_step *s = &p->steps[i];
        for (int keep = 0; keep < s->write_count; keep++) {
            for (int drop = s->write_count - 1; drop >= 0; drop--) {
                if (drop == keep || !may_share(p, s, keep, drop)) continue;
                share_write(p, s, keep, drop);
                keep -= drop < keep;
            }
        }
    }
}
