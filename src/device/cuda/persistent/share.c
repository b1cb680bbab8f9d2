/* Equal values that a step gives to several channels, such as h to the layer itself and to the one above it, pass through one. */
#include "device/cuda/persistent/parts.h"

typedef rcvi_persistent_step hosted_step;

static bool is_one_value(const hosted_step *s, int a, int b) {
    int source = rcvi_persistent_source_of(s->shape.map, a);
    return source != RCVI_NONE && source == rcvi_persistent_source_of(s->shape.map, b) &&
           s->is_short[a] == s->is_short[b];
}

static int count_writes(const rcvi_persistent *p, int channel) {
    int count = 0;
    for (int i = 0; i < p->step_count; i++) {
        for (int n = 0; n < p->steps[i].write_count; n++)
            count += p->steps[i].uses[p->steps[i].writes[n]].channel == channel;
    }
    return count;
}

/* Is nothing of it read that was there before the loop? */
static bool is_always_fresh(const rcvi_persistent *p, int channel) {
    for (int i = 0; i < p->step_count; i++) {
        const hosted_step *s = &p->steps[i];
        for (int q = 0; q < s->pass_count; q++) {
            if (s->read_of[q] == RCVI_NONE || s->uses[s->read_of[q]].channel != channel) continue;
            const rcvi_channel_use *use = &s->uses[s->read_of[q]];
            if (use->low > s->low || use->high < s->high || use->low >= use->high) return false;
        }
    }
    return true;
}

/* May what goes by the write `drop` of a step go by its write `keep`? */
static bool may_share(const rcvi_persistent *p, const hosted_step *s, int keep, int drop) {
    const rcvi_channel_use *a = &s->uses[s->writes[keep]], *b = &s->uses[s->writes[drop]];
    if (a->channel == b->channel || a->step != b->step || !a->step) return false;
    const rcvi_channel *x = &p->channels[a->channel], *y = &p->channels[b->channel];
    return x->operand && y->operand && x->columns == y->columns &&
           is_one_value(s, s->write_views[keep], s->write_views[drop]) && count_writes(p, a->channel) == 1 &&
           count_writes(p, b->channel) == 1 && is_always_fresh(p, b->channel);
}

/* Slots of the channel that is left are those of the other one, so many further on. */
static void redirect(rcvi_persistent *p, int from, int to, int64_t slots) {
    for (int i = 0; i < p->step_count; i++) {
        hosted_step *s = &p->steps[i];
        for (int u = 0; u < s->use_count; u++) {
            rcvi_channel_use *use = &s->uses[u];
            if (use->channel != from) continue;
            use->channel = to;
            use->slot += slots;
            rcvi_persistent_cover(&p->channels[to], s, use);
        }
    }
}

static void remove_channel(rcvi_persistent *p, int channel) {
    for (int c = channel + 1; c < p->channel_count; c++) p->channels[c - 1] = p->channels[c];
    p->channel_count--;
    for (int i = 0; i < p->step_count; i++) {
        for (int u = 0; u < p->steps[i].use_count; u++) {
            if (p->steps[i].uses[u].channel > channel) p->steps[i].uses[u].channel--;
        }
    }
}

static void share(rcvi_persistent *p, hosted_step *s, int keep, int drop) {
    const rcvi_channel_use a = s->uses[s->writes[keep]], b = s->uses[s->writes[drop]];
    s->write_count--;
    for (int n = drop; n < s->write_count; n++) {
        s->writes[n] = s->writes[n + 1];
        s->write_views[n] = s->write_views[n + 1];
    }
    redirect(p, b.channel, a.channel, a.slot - b.slot);
    remove_channel(p, b.channel);
}

void rcvi_persistent_share(rcvi_persistent *p) {
    for (int i = 0; i < p->step_count; i++) {
        hosted_step *s = &p->steps[i];
        for (int keep = 0; keep < s->write_count; keep++) {
            for (int drop = s->write_count - 1; drop >= 0; drop--) {
                if (drop == keep || !may_share(p, s, keep, drop)) continue;
                share(p, s, keep, drop);
                keep -= drop < keep;
            }
        }
    }
}
