/* The lengths that sequences of a run are padded to: see buckets.h. */
#include "train/run/buckets.h"

#include "train/config/settings.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* LENGTHS: rising numbers separated by commas. The length of the longest sequence is added where the last one is shorter. */
static rcv_status read_lengths(const char *text, int64_t longest, int64_t *lengths, size_t *count) {
    *count = 0;
    for (const char *at = text; *at;) {
        char *end;
        long long length = strtoll(at, &end, 10);
        if (end == at || (*end && *end != ',') || length < 1 || (*count && length <= lengths[*count - 1]) ||
            *count + 1 >= RCV_MOST_BUCKETS)
            return rcvi_fail(RCV_INVALID,
                             "buckets '%s' is none of: none, auto, auto:K, or up to %d rising lengths such as 10,20,40",
                             text, RCV_MOST_BUCKETS - 1);
        lengths[(*count)++] = length;
        at = *end ? end + 1 : end;
    }
    if (!*count || lengths[*count - 1] < longest) lengths[(*count)++] = longest;
    return RCV_OK;
}

/* Seconds of a batch by its steps: a straight line through two lengths that the planner measured. */
typedef struct {
    double fixed, each;
} batch_seconds;

/* What a choice reads. */
typedef struct {
    const rcv_settings *settings;
    const rcv_learner *learner;
    const rcvi_topology *topology;
    const rcv_data *data;
} problem;

static double cost_of(void *user, int64_t steps, int64_t batch) {
    const batch_seconds *s = user;
    (void)batch; /* the same in all buckets */
    return s->fixed + s->each * (double)steps;
}

/* Seconds of the plan that the planner chooses; 0: it was not timed. */
static rcv_status measure(const problem *p, int64_t steps, int64_t batch, double *seconds) {
    const rcv_settings *s = p->settings;
    const rcv_plan_options options = RCV_INIT(
        rcv_plan_options, .steps = steps, .batch = batch, .dtype = p->learner->dtype, .training = true, .lengths = true,
        .effort = (rcv_effort)rcvi_settings_choice(s, "effort"),
        .threads = rcvi_topology_threads(p->topology, p->learner->context, s), .device = p->learner->device_name);
    rcv_plan *plan = NULL;
    RCVI_TRY(rcv_plan_new(p->learner->net, &options, &plan));
    *seconds = 0;
    for (size_t i = 0; i < rcv_plan_candidate_count(plan); i++) {
        const rcv_candidate *candidate = rcv_plan_candidate(plan, i);
        if (candidate->chosen) *seconds = candidate->seconds;
    }
    rcv_plan_free(plan);
    return RCV_OK;
}

/* *known false: seconds were not measured, and buckets are chosen by padding alone. */
static rcv_status find_cost(const problem *p, const rcvi_histogram *histogram, int64_t batch, batch_seconds *cost,
                            bool *known) {
    int64_t shorter = histogram->tokens / histogram->sequences, longer = histogram->longest;
    double low = 0, high = 0;
    const rcv_settings *s = p->settings;
    bool measures = rcvi_settings_choice(s, "effort") != RCV_ESTIMATE && !rcvi_settings_text(s, "schedule") &&
                    !rcvi_settings_integer(s, "tokens");
    *known = false;
    if (!measures || shorter >= longer) return RCV_OK;
    RCVI_TRY(measure(p, longer, batch, &high));
    RCVI_TRY(measure(p, shorter, batch, &low));
    if (!(low > 0 && high > low)) return RCV_OK;
    cost->each = (high - low) / (double)(longer - shorter);
    cost->fixed = fmax(low - cost->each * (double)shorter, 0);
    *known = true;
    return RCV_OK;
}

static rcv_status choose_automatically(const problem *p, const char *text, int64_t *lengths, size_t *count) {
    rcv_context *context = p->learner->context;
    int64_t batch = rcvi_settings_integer(p->settings, "batch"), tokens = rcvi_settings_integer(p->settings, "tokens");
    char *end = NULL;
    long long most = text[4] == ':' ? strtoll(text + 5, &end, 10) : RCV_AUTO_BUCKETS;
    if ((text[4] && (text[4] != ':' || end == text + 5 || *end)) || most < 1 || most > RCV_MOST_BUCKETS)
        return rcvi_fail(RCV_INVALID, "buckets '%s' is none of: none, auto, auto:K with K from 1 to %d, or lengths",
                         text, RCV_MOST_BUCKETS);
    rcvi_histogram histogram;
    batch_seconds cost = {0};
    bool known = false;
    RCVI_TRY(rcvi_histogram_new(p->data, &histogram));
    rcv_status status = find_cost(p, &histogram, batch, &cost, &known);
    const rcvi_bucket_options options = {
        .most = (size_t)most, .batch = batch, .tokens = tokens, .cost = known ? cost_of : NULL, .user = &cost};
    if (!status) status = rcvi_buckets_best(context, &histogram, &options, lengths, count);
    rcvi_histogram_free(context, &histogram);
    return status;
}

/* Rank 0 chooses, and broadcasts its choice. */
static rcv_status choose_together(const problem *p, const char *text, int64_t *lengths, size_t *count) {
    int64_t chosen[RCV_MOST_BUCKETS + 1] = {0};
    rcv_status status = RCV_OK;
    if (rcvi_topology_is_leader(p->topology)) status = choose_automatically(p, text, lengths, count);
    if (!p->topology) return status;
    RCVI_TRY(rcvi_comm_agree(p->topology->world, status));
    if (rcvi_topology_is_leader(p->topology)) {
        chosen[0] = (int64_t)*count;
        memcpy(chosen + 1, lengths, *count * sizeof *lengths);
    }
    RCVI_TRY(rcvi_comm_transfer_bytes(p->topology->world, RCVI_BROADCAST, 0, chosen, sizeof chosen));
    *count = (size_t)chosen[0];
    memcpy(lengths, chosen + 1, *count * sizeof *lengths);
    return RCV_OK;
}

rcv_status rcvi_choose_buckets(const rcv_settings *settings, const rcv_learner *learner, const rcvi_topology *topology,
                               const rcv_data *data, int64_t *lengths, size_t *count) {
    const problem p = {settings, learner, topology, data};
    const char *text = rcvi_settings_text(settings, "buckets");
    int64_t longest = rcv_data_longest(data);
    if (text && !strncmp(text, "auto", 4)) return choose_together(&p, text, lengths, count);
    if (text && strcmp(text, "none") != 0) return read_lengths(text, longest, lengths, count);
    *lengths = longest;
    *count = 1;
    return RCV_OK;
}

rcv_status rcvi_keep_buckets(rcv_settings *settings, const int64_t *lengths, size_t count) {
    rcv_context *context = rcvi_settings_context(settings);
    rcvi_text text;
    char *list = NULL;
    rcvi_text_init(&text, context);
    for (size_t i = 0; i < count; i++) rcvi_text_add(&text, "%s%lld", i ? "," : "", (long long)lengths[i]);
    RCVI_TRY(rcvi_text_take(&text, &list));
    rcv_status status = rcv_settings_set(settings, "buckets", list);
    rcvi_free(context, list);
    return status;
}
