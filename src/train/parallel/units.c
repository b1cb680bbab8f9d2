/* How a batch is cut into units that flow through a pipeline: as somebody said, or as the forecast is best. */
#include "train/parallel/costs.h"

#include <math.h>
#include <stdio.h>

/* Stages that a batch flows through; one rank alone, or replicas, take it whole. */
static int stages_of(const rcv_trainer *t) { return t->topology.world ? t->topology.stage_count : 1; }

static int64_t wanted(const rcv_trainer *t, int stages, const char *name) {
    return stages > 1 ? rcvi_settings_integer(t->settings, name) : 1;
}

/* The largest number of parts, at most `most`, into which it divides. */
static int64_t divide(int64_t whole, int64_t most) {
    int64_t parts = most < whole ? most : whole;
    while (parts > 1 && whole % parts) parts--;
    return parts < 1 ? 1 : parts;
}

/* Time is cut where states go on from window to window; sequences in a batch end at different times. */
static bool cuts_time(const rcv_trainer *t) { return t->learner->shape.kind == RCV_DATA_STREAM; }

rcv_status rcvi_units_check(const rcv_trainer *t, int replicas, int stages) {
    int64_t micro = wanted(t, stages, "micro-batches"), chunks = wanted(t, stages, "time-chunks");
    int64_t whole = rcvi_settings_integer(t->settings, "batch"), batch = whole / replicas;
    int64_t steps = rcvi_settings_integer(t->settings, "length");
    if ((cuts_time(t) || !rcvi_settings_integer(t->settings, "tokens")) && whole % replicas)
        return rcvi_fail(RCV_INVALID,
                         "a global batch of %lld sequences does not divide among %d replicas: use a multiple of %d",
                         (long long)whole, replicas, replicas);
    if (micro > 0 && batch % micro)
        return rcvi_fail(RCV_INVALID, "a replica's %lld sequences do not divide into %lld micro-batches",
                         (long long)batch, (long long)micro);
    if (chunks > 1 && !cuts_time(t))
        return rcvi_fail(RCV_INVALID,
                         "sequences of different lengths are not cut into chunks of time: use micro-batches");
    if (chunks > 0 && cuts_time(t) && steps % chunks)
        return rcvi_fail(RCV_INVALID, "a window of %lld steps does not divide into %lld chunks of time",
                         (long long)steps, (long long)chunks);
    return RCV_OK;
}

enum { USUAL_CHUNKS = 8, USUAL_MICRO = 4 };

static int64_t micro_of(const rcv_trainer *t, int stages, int64_t batch) {
    int64_t asked = wanted(t, stages, "micro-batches");
    if (asked) return divide(batch, asked);
    return cuts_time(t) ? 1 : divide(batch, USUAL_MICRO);
}

static int64_t chunks_of(const rcv_trainer *t, int stages, int64_t steps) {
    int64_t asked = wanted(t, stages, "time-chunks");
    if (!cuts_time(t)) return 1;
    return divide(steps, asked ? asked : USUAL_CHUNKS);
}

int64_t rcvi_units_micro(const rcv_trainer *t, int64_t batch) { return micro_of(t, stages_of(t), batch); }
int64_t rcvi_units_chunks(const rcv_trainer *t, int64_t steps) { return chunks_of(t, stages_of(t), steps); }

/* ---- choosing ---- */

typedef struct {
    rcvi_arrangement a;
    int64_t steps, batch;
    rcvi_pipeline_result best;
    int64_t micro, chunks; /* of the best */
    char *plan;            /* the same */
} chooser;

static rcv_status consider(const rcv_trainer *t, chooser *c, int64_t micro, int64_t chunks, bool *better) {
    rcvi_pipeline_result result;
    char *plan = NULL;
    *better = false;
    if ((micro == c->micro && chunks == c->chunks) || c->batch % micro || c->steps % chunks) return RCV_OK;
    c->a.micro = micro;
    c->a.chunks = chunks;
    rcv_status status = rcvi_forecast(t, &c->a, &result, &plan);
    *better = !status && result.seconds < c->best.seconds;
    if (*better) {
        c->best = result;
        c->micro = micro;
        c->chunks = chunks;
    }
    rcvi_free(t->context, *better ? c->plan : plan);
    if (*better) c->plan = plan;
    return status;
}

/* Twice as many, as long as that gains. */
static rcv_status climb(const rcv_trainer *t, chooser *c, bool micro) {
    enum { MOST_PARTS = 64 };
    bool better = true;
    while (better) {
        int64_t whole = micro ? c->batch : c->steps, parts = 2 * (micro ? c->micro : c->chunks);
        while (parts < whole && whole % parts) parts++;
        if (parts > whole || parts > MOST_PARTS) return RCV_OK;
        RCVI_TRY(consider(t, c, micro ? parts : c->micro, micro ? c->chunks : parts, &better));
    }
    return RCV_OK;
}

static rcv_status search(const rcv_trainer *t, chooser *c) {
    int stages = c->a.stages;
    bool better, free_micro = !wanted(t, stages, "micro-batches");
    bool free_chunks = !wanted(t, stages, "time-chunks") && cuts_time(t);
    RCVI_TRY(consider(t, c, micro_of(t, stages, c->batch), chunks_of(t, stages, c->steps), &better));
    int64_t first = c->chunks;
    if (free_chunks) RCVI_TRY(climb(t, c, false));
    if (free_chunks && c->chunks == first && first > 2)
        RCVI_TRY(consider(t, c, c->micro, divide(c->steps, first / 2), &better));
    return free_micro ? climb(t, c, true) : RCV_OK;
}

rcv_status rcvi_units_find(const rcv_trainer *t, rcvi_arrangement *a, rcvi_pipeline_result *result, char **plan) {
    int64_t whole;
    chooser c = {.a = *a, .best = {.seconds = INFINITY}};
    rcvi_batcher_shape(t->batcher, rcvi_heaviest_bucket(t->batcher), &c.steps, &whole, NULL);
    c.batch = (whole + c.a.replicas - 1) / c.a.replicas;
    rcv_status status = search(t, &c);
    a->micro = c.micro;
    a->chunks = c.chunks;
    *result = c.best;
    if (plan && !status)
        *plan = c.plan;
    else
        rcvi_free(t->context, c.plan);
    return status;
}

static rcv_status keep(rcv_trainer *t, const char *name, int64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    return rcv_settings_set(t->settings, name, text);
}

/* What was chosen is what the run has from here on, and its checkpoints. */
static rcv_status keep_units(rcv_trainer *t, const rcvi_arrangement *a) {
    if (a->stages < 2) return RCV_OK;
    RCVI_TRY(keep(t, "micro-batches", a->micro));
    return cuts_time(t) ? keep(t, "time-chunks", a->chunks) : RCV_OK;
}

rcv_status rcvi_units_choose(rcv_trainer *t) {
    int64_t layers = rcv_net_get_options(t->learner->net)->layers;
    char *plan = NULL;
    if (!t->topology.world || rcvi_settings_is(t->settings, "effort", "estimate")) return RCV_OK;
    int *counts = rcvi_new(t->context, (size_t)layers, sizeof *counts);
    rcv_status status = rcvi_comm_agree(t->topology.world, counts ? rcvi_ranks_counts(t, counts) : RCV_NO_MEMORY);
    rcvi_arrangement a = {.replicas = t->topology.replica_count, .stages = t->topology.stage_count, .counts = counts};
    if (!status) status = rcvi_measure_links(t, &a.links);
    if (!status) status = rcvi_units_find(t, &a, &t->forecast, &plan);
    if (!status) status = keep_units(t, &a);
    rcvi_free(t->context, counts);
    bool pinned = t->plans || rcvi_settings_text(t->settings, "schedule");
    rcvi_free(t->context, status || pinned ? plan : t->agreed);
    if (!status && !pinned) t->agreed = plan;
    return status;
}
