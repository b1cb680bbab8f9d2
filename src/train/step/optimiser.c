/* Moments and averages of the parameters: see optimiser.h. */
#include "train/step/optimiser.h"

#include "train/config/settings.h"
#include "train/parallel/gradient_segments.h"
#include "train/step/exchange.h"

/* In the order of the setting's choices: sgd, momentum, adam, adamw, asgd. */
static const rcvi_update_kind kinds[] = {RCVI_SGD, RCVI_MOMENTUM, RCVI_ADAM, RCVI_ADAMW, RCVI_SGD};

rcvi_optimiser rcvi_optimiser_of(const rcv_settings *s) {
    return (rcvi_optimiser){.kind = kinds[rcvi_settings_choice(s, "optimiser")],
                            .averages = rcvi_settings_is(s, "optimiser", "asgd")};
}

rcv_status rcvi_optimiser_allocate(rcvi_optimiser *o, const rcv_learner *l, int64_t elements) {
    size_t real = rcvi_real_bytes(l);
    if (o->kind != RCVI_SGD) RCVI_TRY(rcvi_device_new(l, elements, real, &o->first));
    if (o->kind == RCVI_ADAM || o->kind == RCVI_ADAMW) RCVI_TRY(rcvi_device_new(l, elements, real, &o->second));
    return o->averages ? rcvi_device_new(l, elements, real, &o->average) : RCV_OK;
}

void rcvi_optimiser_free(rcvi_optimiser *o, const rcv_learner *l) {
    rcvi_device_free(l, o->first);
    rcvi_device_free(l, o->second);
    rcvi_device_free(l, o->average);
    rcvi_free(l->context, o->parts);
    *o = (rcvi_optimiser){0};
}

size_t rcvi_optimiser_array_count(const rcvi_optimiser *o) {
    size_t count = o->first != NULL;
    if (o->second) count++;
    return o->average ? count + 1 : count;
}

/* ---- parts ---- */

/* Elements first .. first + count - 1 of the parameters, whose moments begin at element `at` of their arrays. */
static rcvi_update_part part_of(const rcvi_optimiser *o, const rcvi_work *w, int64_t first, int64_t count, int64_t at) {
    const rcv_learner *l = w->learner;
    return (rcvi_update_part){.count = count,
                              .parameters = rcvi_local_element_at(l, l->parameters, first),
                              .gradient = rcvi_gradient_at(w, first),
                              .first = o->first ? rcvi_element_at(l, o->first, at) : NULL,
                              .second = o->second ? rcvi_element_at(l, o->second, at) : NULL,
                              .average = o->average ? rcvi_element_at(l, o->average, at) : NULL};
}

/* This replica's share of every segment of the gradient. */
static rcv_status make_share_parts(rcvi_optimiser *o, const rcvi_work *w) {
    const rcvi_topology *topology = w->options.topology;
    rcv_context *context = w->learner->context;
    size_t count;
    int64_t at = 0;
    rcvi_gradient_segment *segments = rcvi_gradient_segments_new(w->learner, false, &count);
    o->parts = rcvi_new(context, count, sizeof *o->parts);
    for (size_t i = 0; segments && o->parts && i < count; i++) {
        int64_t start = rcvi_share_start(segments[i].count, topology->replica, topology->replica_count);
        int64_t end = rcvi_share_start(segments[i].count, topology->replica + 1, topology->replica_count);
        o->parts[o->part_count++] = part_of(o, w, segments[i].first + start, end - start, at);
        at += end - start;
    }
    rcv_status status = segments && o->parts ? RCV_OK : RCV_NO_MEMORY;
    rcvi_free(context, segments);
    return status;
}

/* One part: all parameters that are here whose gradient is stored. That leaves out an embedding that is fixed or whose gradient is
 * sparse, and the output layer where its gradient is never stored (lean). */
static rcv_status make_parts(rcvi_optimiser *o, const rcvi_work *w) {
    if (o->parts) return RCV_OK;
    if (w->options.topology && w->options.topology->shares_optimiser) return make_share_parts(o, w);
    int64_t start = rcvi_work_gradient_start(w);
    o->parts = rcvi_new(w->learner->context, 1, sizeof *o->parts);
    if (!o->parts) return RCV_NO_MEMORY;
    o->parts[o->part_count++] = part_of(o, w, start, rcvi_work_gradient_count(w), start - w->learner->first_element);
    return RCV_OK;
}

rcv_status rcvi_optimiser_update(rcvi_optimiser *o, const rcvi_work *w, rcvi_update *update) {
    const rcv_learner *l = w->learner;
    RCVI_TRY(make_parts(o, w));
    *update = (rcvi_update){.kind = o->kind, .parts = o->parts, .part_count = o->part_count};
    if (!w->options.sparse || !l->has_embedding) return RCV_OK;
    bool merges = rcvi_work_merges(w);
    update->sparse = (rcvi_sparse_part){.groups = merges ? rcvi_feed_merged(w) : rcvi_feed_groups(w),
                                        .rows = w->options.rows * (merges ? w->options.topology->replica_count : 1),
                                        .columns = l->shape.embedding,
                                        .table = l->parameters,
                                        .gradient = merges ? rcvi_exchange_merged(w->exchange) : w->x};
    return RCV_OK;
}
