/* rcv_trainer_forecast: of the ranks that are here, or of machines that are not. */
#include "train/run/trainer.h"

#include <stdio.h>
#include <string.h>

static void write_split(const int *counts, int stages, char *text, size_t room) {
    size_t length = 0;
    text[0] = '\0';
    for (int s = 0; s < stages && length < room; s++)
        length += (size_t)snprintf(text + length, room - length, "%s%d", s ? "," : "", counts[s]);
}

static void fill_forecast(const rcvi_batcher *batcher, const rcvi_arrangement *a, const rcvi_pipeline_result *r,
                          rcv_forecast *out) {
    int64_t steps, batch;
    rcvi_batcher_shape(batcher, rcvi_heaviest_bucket(batcher), &steps, &batch, NULL);
    *out = RCV_INIT(
        rcv_forecast, .replicas = a->replicas, .stages = a->stages, .micro_batches = a->micro, .time_chunks = a->chunks,
        .latency = a->links.latency, .bandwidth = a->links.bandwidth, .seconds = r->seconds,
        .tokens_per_second = r->seconds > 0 ? (double)(steps * batch) / r->seconds : 0, .busy = rcvi_pipeline_busy(r),
        .bubble = r->bubble, .exposed = r->exposed, .exchange = r->exchange, .sent = r->sent);
    write_split(a->counts, a->stages, out->split, sizeof out->split);
}

static rcv_status forecast_arrangement(const rcv_trainer *t, rcvi_arrangement *a, int *counts, rcv_forecast *out) {
    int layers = (int)rcv_net_get_options(t->learner->net)->layers;
    const char *split = rcvi_settings_text(t->settings, "split");
    const rcvi_workload workload = rcvi_trainer_workload(t);
    rcvi_pipeline_result result;
    counts[0] = layers;
    if (a->stages > 1)
        RCVI_TRY(split ? rcvi_read_split(split, layers, a->stages, counts)
                       : rcvi_costs_split(&workload, a->replicas, a->stages, counts));
    RCVI_TRY(rcvi_units_find(&workload, a, &result, NULL));
    fill_forecast(t->batcher, a, &result, out);
    return RCV_OK;
}

/* The arrangement that the options describe, with given links; or that of this run, with measured ones. */
static rcv_status arrange(const rcv_trainer *t, const rcv_forecast_options *o, rcvi_arrangement *a) {
    int layers = (int)rcv_net_get_options(t->learner->net)->layers;
    if (o->devices > 0) {
        RCVI_TRY(rcvi_topology_parse(o->parallel ? o->parallel : "data", o->devices, &a->replicas, &a->stages));
        a->links.latency = o->latency;
        a->links.bandwidth = o->bandwidth;
    } else if (t->topology.world) {
        a->replicas = t->topology.replica_count;
        a->stages = t->topology.stage_count;
        RCVI_TRY(rcvi_measure_links(t->learner, &t->topology, &a->links));
    } else {
        a->replicas = a->stages = 1;
        a->links.bandwidth = 1;
    }
    if (!(a->links.bandwidth > 0) || a->links.latency < 0)
        return rcvi_fail(RCV_INVALID, "a link has a bandwidth above 0 and a latency of 0 or more, not %g and %g",
                         a->links.bandwidth, a->links.latency);
    RCVI_TRY(rcvi_check_stages(layers, a->stages));
    return rcvi_units_check(t->settings, a->replicas, a->stages);
}

rcv_status rcv_trainer_forecast(rcv_trainer *t, const rcv_forecast_options *options, rcv_forecast *forecast) {
    RCVI_NEED(t, "trainer");
    RCVI_NEED(forecast, "forecast");
    rcvi_arrangement a = {.micro = 1, .chunks = 1};
    RCVI_READ(rcv_forecast_options, options, "options");
    RCVI_TRY(rcvi_struct_check(__func__, "forecast", "rcv_forecast", forecast));
    rcv_forecast found = RCV_INIT(rcv_forecast);
    rcvi_struct_write(forecast, &found, sizeof found);
    RCVI_TRY(arrange(t, options, &a));
    int *counts = rcvi_new(t->context, (size_t)a.stages, sizeof *counts);
    if (!counts) return RCV_NO_MEMORY;
    a.counts = counts;
    rcv_status status = forecast_arrangement(t, &a, counts, &found);
    if (!status) rcvi_struct_write(forecast, &found, sizeof found);
    rcvi_free(t->context, counts);
    return status;
}
