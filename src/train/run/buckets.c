/* The lengths that sequences of a run are padded to. */
#include "train/run/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* LENGTHS: rising numbers separated by commas; the longest sequence is added where it is not among them. */
static rcv_status read_bounds(const char *text, int64_t longest, int64_t *bounds, size_t *count) {
    *count = 0;
    for (const char *at = text; *at;) {
        char *end;
        long long length = strtoll(at, &end, 10);
        if (end == at || (*end && *end != ',') || length < 1 || (*count && length <= bounds[*count - 1]) ||
            *count + 1 >= RCV_MOST_BUCKETS)
            return rcvi_fail(RCV_INVALID,
                             "buckets '%s' is none of: none, auto, auto:K, or up to %d rising lengths such as 10,20,40",
                             text, RCV_MOST_BUCKETS - 1);
        bounds[(*count)++] = length;
        at = *end ? end + 1 : end;
    }
    if (!*count || bounds[*count - 1] < longest) bounds[(*count)++] = longest;
    return RCV_OK;
}

/* Seconds of a batch of so many steps: a line through what the planner measured at two lengths. */
typedef struct {
    double fixed, each;
} batch_seconds;

static double cost_of(void *user, int64_t steps, int64_t batch) {
    const batch_seconds *s = user;
    (void)batch; /* the same in all buckets */
    return s->fixed + s->each * (double)steps;
}

/* What the planner's choice took; 0: it was not timed. */
static rcv_status measure(const rcv_trainer *t, int64_t steps, int64_t batch, double *seconds) {
    const rcv_settings *s = t->settings;
    const rcv_plan_options options = {.steps = steps,
                                      .batch = batch,
                                      .dtype = t->learner->dtype,
                                      .training = true,
                                      .lengths = true,
                                      .effort = (rcv_effort)rcvi_settings_choice(s, "effort"),
                                      .threads = rcvi_ranks_threads(t),
                                      .device = t->learner->device_name};
    rcv_plan *plan = NULL;
    RCVI_TRY(rcv_plan_new(t->learner->net, &options, &plan));
    *seconds = 0;
    for (size_t i = 0; i < rcv_plan_candidate_count(plan); i++) {
        const rcv_candidate *candidate = rcv_plan_candidate(plan, i);
        if (candidate->chosen) *seconds = candidate->seconds;
    }
    rcv_plan_free(plan);
    return RCV_OK;
}

/* False: the device's cost is not known, and padding counts. */
static rcv_status find_cost(const rcv_trainer *t, const rcvi_histogram *histogram, int64_t batch, batch_seconds *cost,
                            bool *known) {
    int64_t shorter = histogram->tokens / histogram->sequences, longer = histogram->longest;
    double low = 0, high = 0;
    bool asks = rcvi_settings_choice(t->settings, "effort") != RCV_ESTIMATE &&
                !rcvi_settings_text(t->settings, "schedule") && !rcvi_settings_integer(t->settings, "tokens");
    *known = false;
    if (!asks || shorter >= longer) return RCV_OK;
    RCVI_TRY(measure(t, longer, batch, &high));
    RCVI_TRY(measure(t, shorter, batch, &low));
    if (!(low > 0 && high > low)) return RCV_OK;
    cost->each = (high - low) / (double)(longer - shorter);
    cost->fixed = fmax(low - cost->each * (double)shorter, 0);
    *known = true;
    return RCV_OK;
}

static rcv_status choose_automatically(const rcv_trainer *t, const rcv_data *data, const char *text, int64_t *bounds,
                                       size_t *count) {
    int64_t batch = rcvi_settings_integer(t->settings, "batch"), tokens = rcvi_settings_integer(t->settings, "tokens");
    char *end = NULL;
    long long most = text[4] == ':' ? strtoll(text + 5, &end, 10) : RCV_AUTO_BUCKETS;
    if ((text[4] && (text[4] != ':' || end == text + 5 || *end)) || most < 1 || most > RCV_MOST_BUCKETS)
        return rcvi_fail(RCV_INVALID, "buckets '%s' is none of: none, auto, auto:K with K from 1 to %d, or lengths",
                         text, RCV_MOST_BUCKETS);
    rcvi_histogram histogram;
    batch_seconds cost = {0};
    bool known = false;
    RCVI_TRY(rcvi_histogram_new(data, &histogram));
    rcv_status status = find_cost(t, &histogram, batch, &cost, &known);
    const rcvi_bucket_options options = {
        .most = (size_t)most, .batch = batch, .tokens = tokens, .cost = known ? cost_of : NULL, .user = &cost};
    if (!status) status = rcvi_buckets_best(t->context, &histogram, &options, bounds, count);
    rcvi_histogram_free(t->context, &histogram);
    return status;
}

/* Rank 0 measures, and all have its choice. */
static rcv_status choose_together(const rcv_trainer *t, const rcv_data *data, const char *text, int64_t *bounds,
                                  size_t *count) {
    int64_t chosen[RCV_MOST_BUCKETS + 1] = {0};
    rcv_status status = RCV_OK;
    if (rcvi_topology_is_leader(rcvi_trainer_topology(t))) status = choose_automatically(t, data, text, bounds, count);
    if (!t->topology.world) return status;
    RCVI_TRY(rcvi_comm_agree(t->topology.world, status));
    if (rcvi_topology_is_leader(&t->topology)) {
        chosen[0] = (int64_t)*count;
        memcpy(chosen + 1, bounds, *count * sizeof *bounds);
    }
    RCVI_TRY(rcvi_comm_pass(t->topology.world, RCVI_BROADCAST, 0, chosen, sizeof chosen));
    *count = (size_t)chosen[0];
    memcpy(bounds, chosen + 1, *count * sizeof *bounds);
    return RCV_OK;
}

/* What was chosen is what the run has from here on, and its checkpoints: batches follow from it. */
static rcv_status keep_bounds(rcv_trainer *t, const int64_t *bounds, size_t count) {
    rcvi_text text;
    char *lengths = NULL;
    rcvi_text_init(&text, t->context);
    for (size_t i = 0; i < count; i++) rcvi_text_add(&text, "%s%lld", i ? "," : "", (long long)bounds[i]);
    RCVI_TRY(rcvi_text_take(&text, &lengths));
    rcv_status status = rcv_settings_set(t->settings, "buckets", lengths);
    rcvi_free(t->context, lengths);
    return status;
}

rcv_status rcvi_choose_bounds(rcv_trainer *t, const rcv_data *data, bool keep, int64_t *bounds, size_t *count) {
    const char *text = rcvi_settings_text(t->settings, "buckets");
    int64_t longest = rcv_data_longest(data);
    if (!text || !strcmp(text, "none")) {
        *bounds = longest;
        *count = 1;
    } else if (strncmp(text, "auto", 4)) {
        RCVI_TRY(read_bounds(text, longest, bounds, count));
    } else {
        RCVI_TRY(choose_together(t, data, text, bounds, count));
    }
    return keep ? keep_bounds(t, bounds, *count) : RCV_OK;
}
