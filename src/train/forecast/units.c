/* Into how many units a batch is cut for a pipeline: as settings say, or as the forecast is shortest. */
#include "train/forecast/costs.h"

#include <math.h>

/* 0: left open. Without a pipeline a batch is one unit. */
static int64_t wanted(const rcv_settings *s, int stages, const char *name) {
    return stages > 1 ? rcvi_settings_integer(s, name) : 1;
}

/* The largest number of equal parts, at most `most`, into which `whole` divides. */
static int64_t divide(int64_t whole, int64_t most) {
    int64_t parts = most < whole ? most : whole;
    while (parts > 1 && whole % parts) parts--;
    return parts < 1 ? 1 : parts;
}

bool rcvi_units_cut_time(const rcv_settings *s) { return rcvi_settings_choice(s, "kind") == RCV_DATA_STREAM; }

rcv_status rcvi_units_check(const rcv_settings *s, int replicas, int stages) {
    int64_t micro = wanted(s, stages, "micro-batches"), chunks = wanted(s, stages, "time-chunks");
    int64_t whole = rcvi_settings_integer(s, "batch"), batch = whole / replicas;
    int64_t steps = rcvi_settings_integer(s, "length");
    bool cuts_time = rcvi_units_cut_time(s);
    if ((cuts_time || !rcvi_settings_integer(s, "tokens")) && whole % replicas)
        return rcvi_fail(RCV_INVALID,
                         "a global batch of %lld sequences does not divide among %d replicas: use a multiple of %d",
                         (long long)whole, replicas, replicas);
    if (micro > 0 && batch % micro)
        return rcvi_fail(RCV_INVALID, "a replica's %lld sequences do not divide into %lld micro-batches",
                         (long long)batch, (long long)micro);
    if (chunks > 1 && !cuts_time)
        return rcvi_fail(RCV_INVALID,
                         "sequences of different lengths are not cut into chunks of time: use micro-batches");
    if (chunks > 0 && cuts_time && steps % chunks)
        return rcvi_fail(RCV_INVALID, "a window of %lld steps does not divide into %lld chunks of time",
                         (long long)steps, (long long)chunks);
    return RCV_OK;
}

enum { USUAL_CHUNKS = 8, USUAL_MICRO = 4 };

int64_t rcvi_units_micro(const rcv_settings *s, int stages, int64_t batch) {
    int64_t asked = wanted(s, stages, "micro-batches");
    if (asked) return divide(batch, asked);
    return rcvi_units_cut_time(s) ? 1 : divide(batch, USUAL_MICRO);
}

int64_t rcvi_units_chunks(const rcv_settings *s, int stages, int64_t steps) {
    int64_t asked = wanted(s, stages, "time-chunks");
    if (!rcvi_units_cut_time(s)) return 1;
    return divide(steps, asked ? asked : USUAL_CHUNKS);
}

/* ---- choosing ---- */

typedef struct {
    rcvi_arrangement a;
    int64_t steps, batch;
    rcvi_pipeline_result best;
    int64_t micro, chunks; /* of the best */
    char *plan;            /* of the best */
} search;

/* Forecasts so many units, and keeps them if they are faster than the best so far. */
static rcv_status try_units(const rcvi_workload *w, search *c, int64_t micro, int64_t chunks, bool *better) {
    rcvi_pipeline_result result;
    char *plan = NULL;
    *better = false;
    if ((micro == c->micro && chunks == c->chunks) || c->batch % micro || c->steps % chunks) return RCV_OK;
    c->a.micro = micro;
    c->a.chunks = chunks;
    rcv_status status = rcvi_forecast(w, &c->a, &result, &plan);
    *better = !status && result.seconds < c->best.seconds;
    if (*better) {
        c->best = result;
        c->micro = micro;
        c->chunks = chunks;
    }
    rcvi_free(w->context, *better ? c->plan : plan);
    if (*better) c->plan = plan;
    return status;
}

typedef enum { MICRO_BATCHES, TIME_CHUNKS } unit_kind;

/* Doubles the number of micro-batches or chunks as long as the forecast gets shorter. */
static rcv_status double_units(const rcvi_workload *w, search *c, unit_kind kind) {
    enum { MOST_PARTS = 64 };
    bool better = true, micro = kind == MICRO_BATCHES;
    while (better) {
        int64_t whole = micro ? c->batch : c->steps, parts = 2 * (micro ? c->micro : c->chunks);
        while (parts < whole && whole % parts) parts++;
        if (parts > whole || parts > MOST_PARTS) return RCV_OK;
        RCVI_TRY(try_units(w, c, micro ? parts : c->micro, micro ? c->chunks : parts, &better));
    }
    return RCV_OK;
}

static rcv_status search_units(const rcvi_workload *w, search *c) {
    const rcv_settings *s = w->settings;
    int stages = c->a.stages;
    bool better, free_micro = !wanted(s, stages, "micro-batches");
    bool free_chunks = !wanted(s, stages, "time-chunks") && rcvi_units_cut_time(s);
    RCVI_TRY(try_units(w, c, rcvi_units_micro(s, stages, c->batch), rcvi_units_chunks(s, stages, c->steps), &better));
    int64_t first = c->chunks;
    if (free_chunks) RCVI_TRY(double_units(w, c, TIME_CHUNKS));
    if (free_chunks && c->chunks == first && first > 2)
        RCVI_TRY(try_units(w, c, c->micro, divide(c->steps, first / 2), &better));
    return free_micro ? double_units(w, c, MICRO_BATCHES) : RCV_OK;
}

rcv_status rcvi_units_find(const rcvi_workload *w, rcvi_arrangement *a, rcvi_pipeline_result *result, char **plan) {
    int64_t whole;
    search c = {.a = *a, .best = {.seconds = INFINITY}};
    rcvi_batcher_shape(w->batcher, rcvi_heaviest_bucket(w->batcher), &c.steps, &whole, NULL);
    c.batch = (whole + c.a.replicas - 1) / c.a.replicas;
    rcv_status status = search_units(w, &c);
    a->micro = c.micro;
    a->chunks = c.chunks;
    *result = c.best;
    if (plan && !status)
        *plan = c.plan;
    else
        rcvi_free(w->context, c.plan);
    return status;
}
