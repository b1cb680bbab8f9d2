/* Plan, runs and states of one shape of batches. */
#include "train/step/work.h"

#include "plan/run.h"

#include <math.h>
#include <string.h>

static rcv_plan_options plan_options(const rcvi_work *w, const rcvi_window_options *o) {
    const rcv_learner *l = w->learner;
    const rcvi_topology *topology = w->options.topology;
    return RCV_INIT(rcv_plan_options, .steps = o->steps / (o->chunks ? o->chunks : 1),
                    .batch = o->batch / (o->micro ? o->micro : 1), .dtype = l->dtype, .training = o->training,
                    .lengths = o->lengths,
                    .signals = o->signals || (o->training && topology && topology->reduces_gradients),
                    .schedule = o->schedule, .effort = w->options.effort, .threads = w->options.threads,
                    .device = l->device_name, .go_on = w->options.go_on, .user = w->options.user);
}

/* ---- one plan for all ranks with the same layers ---- */

/* Measured or estimated seconds of a candidate on this rank; infinite: it was not timed, or cannot be used. */
static double seconds_of(const rcv_plan *plan, const char *schedule, bool timed) {
    for (size_t i = 0; i < rcv_plan_candidate_count(plan); i++) {
        const rcv_candidate *c = rcv_plan_candidate(plan, i);
        if (strcmp(c->schedule, schedule) != 0 || c->status) continue;
        double seconds = timed ? c->seconds : c->estimate;
        return seconds > 0 ? seconds : INFINITY;
    }
    return INFINITY;
}

/* The candidates of rank 0, one per line, its choice first. For rcvi_free. */
static rcv_status list_candidates(const rcvi_work *w, const rcv_plan *plan, char **list) {
    rcvi_comm *peers = w->options.peers;
    rcvi_text text;
    int64_t bytes = 0;
    *list = NULL;
    if (rcvi_comm_rank(peers) == 0) {
        rcvi_text_init(&text, w->learner->context);
        rcvi_text_add(&text, "%s\n", rcv_plan_string(plan));
        for (size_t i = 0; i < rcv_plan_candidate_count(plan); i++) {
            const rcv_candidate *c = rcv_plan_candidate(plan, i);
            if (!c->status && !c->chosen) rcvi_text_add(&text, "%s\n", c->schedule);
        }
        RCVI_TRY(rcvi_text_take(&text, list));
        bytes = (int64_t)strlen(*list) + 1;
    }
    RCVI_TRY(rcvi_comm_transfer_bytes(peers, RCVI_BROADCAST, 0, &bytes, sizeof bytes));
    if (!*list) *list = rcvi_new(w->learner->context, (size_t)bytes, 1);
    if (!*list) return RCV_NO_MEMORY;
    return rcvi_comm_transfer_bytes(peers, RCVI_BROADCAST, 0, *list, (size_t)bytes);
}

/* The candidate whose slowest rank is the fastest; where none was timed by all ranks, the choice of rank 0. *chosen points into `list`. */
static rcv_status choose_candidate(const rcvi_work *w, const rcv_plan *plan, char *list, const char **chosen) {
    size_t count = 0, best = 0;
    bool timed = w->options.effort != RCV_ESTIMATE;
    for (char *at = list; *at; at++) count += *at == '\n';
    double *seconds = rcvi_new(w->learner->context, count, sizeof *seconds);
    const char **names = rcvi_new(w->learner->context, count, sizeof *names);
    rcv_status status = seconds && names ? RCV_OK : RCV_NO_MEMORY;
    char *at = list;
    for (size_t i = 0; i < count && !status; i++) {
        char *end = strchr(at, '\n');
        *end = '\0';
        names[i] = at;
        seconds[i] = seconds_of(plan, at, timed);
        at = end + 1;
    }
    if (!status) status = rcvi_comm_all_reduce(w->options.peers, RCVI_ALL_REDUCE_MAX, seconds, (int64_t)count);
    for (size_t i = 1; i < count && !status; i++)
        if (seconds[i] < seconds[best]) best = i;
    if (!status) *chosen = names[best];
    rcvi_free(w->learner->context, seconds);
    rcvi_free(w->learner->context, (void *)names);
    return status;
}

/* All ranks have timed their candidates at the same time; all take the same one. */
static rcv_status agree_on(const rcvi_work *w, const rcv_plan_options *options, rcv_plan **plan) {
    char *list = NULL;
    const char *chosen = NULL;
    rcv_status status = list_candidates(w, *plan, &list);
    if (!status) status = choose_candidate(w, *plan, list, &chosen);
    if (!status && strcmp(chosen, rcv_plan_string(*plan)) != 0) {
        rcv_plan_options pinned = *options;
        pinned.schedule = chosen;
        rcv_plan_free(*plan);
        *plan = NULL;
        status = rcv_plan_new(w->learner->slice, &pinned, plan);
    }
    rcvi_free(w->learner->context, list);
    return status;
}

rcv_status rcvi_window_plan(const rcvi_work *w, const rcvi_window_options *o, rcv_plan **plan) {
    const rcv_plan_options options = plan_options(w, o);
    rcv_status status = rcv_plan_new(w->learner->slice, &options, plan);
    if (!w->options.peers || o->schedule) return status;
    RCVI_TRY(rcvi_comm_agree(w->options.peers, status));
    return agree_on(w, &options, plan);
}

/* ---- runs ---- */

static size_t count_runs(const rcvi_window *v) { return (size_t)(v->in_flight * v->chunks); }

/* Uses the memory of the first window's run with the same number, where there is one. */
static rcv_status make_run(const rcvi_work *w, const rcvi_window *v, size_t index) {
    const rcvi_window *first = w->windows;
    bool shares = v != first && first->runs && index < count_runs(first);
    RCVI_TRY(rcvi_run_new_sharing_arena(v->plan, shares ? first->runs[index] : NULL, &v->runs[index]));
    if (v->training) rcvi_run_set_seed_at(v->runs[index], &rcvi_feed_control(w)->seed);
    void *stream = w->ops->stream(w->learn);
    return stream ? rcv_run_set_stream(v->runs[index], stream) : RCV_OK;
}

rcv_status rcvi_window_open(const rcvi_work *w, rcvi_window *v) {
    bool separate = !rcvi_predicts_steps(w->learner) || (v->training && w->options.drops.output > 0);
    v->head_features = separate ? w->head_features : w->y;
    v->dhead_features = rcvi_predicts_steps(w->learner) ? w->dy : w->dhead_features;
    v->runs = rcvi_new(w->learner->context, count_runs(v), sizeof *v->runs);
    if (!v->runs) return RCV_NO_MEMORY;
    for (size_t i = 0; i < count_runs(v); i++) RCVI_TRY(make_run(w, v, i));
    v->packs_once = true;
    for (size_t i = 1; i < count_runs(v); i++) v->packs_once &= rcvi_run_share_packed(v->runs[i], v->runs[0]);
    return RCV_OK;
}

void rcvi_window_close(const rcvi_work *w, rcvi_window *v) {
    for (size_t i = count_runs(v); v->runs && i > 0; i--) rcv_run_free(v->runs[i - 1]);
    rcvi_free(w->learner->context, v->runs);
    v->runs = NULL;
}

/* ---- states ---- */

size_t rcvi_window_state_bytes(const rcvi_work *w, const rcvi_window *v, size_t state) {
    return (size_t)(rcv_net_state(w->learner->slice, state)->total * v->batch) * rcvi_real_bytes(w->learner);
}

static rcv_status make_states(const rcvi_work *w, const rcvi_window *v, int64_t sets, void ***states) {
    const rcv_learner *l = w->learner;
    size_t count = rcv_net_state_count(l->slice);
    *states = rcvi_new(l->context, (size_t)sets * count, sizeof **states);
    if (!*states) return RCV_NO_MEMORY;
    for (size_t i = 0; i < (size_t)sets * count; i++) {
        int64_t elements;
        if (!rcvi_multiply(rcv_net_state(l->slice, i % count)->total, v->batch, &elements))
            return rcvi_fail(RCV_INVALID, "a batch of %lld is too large for this network's states",
                             (long long)v->batch);
        RCVI_TRY(rcvi_device_new(l, elements, rcvi_real_bytes(l), &(*states)[i]));
    }
    return RCV_OK;
}

static void free_states(const rcvi_work *w, int64_t sets, void **states) {
    size_t count = (size_t)sets * rcv_net_state_count(w->learner->slice);
    for (size_t i = 0; states && i < count; i++) rcvi_device_free(w->learner, states[i]);
    rcvi_free(w->learner->context, states);
}

static int64_t state_sets(const rcvi_window *v) { return v->micro * (v->chunks + 1); }
enum { GRADIENT_SETS = 2 };

/* ---- making and freeing ---- */

int64_t rcvi_window_options_rows(const rcvi_window_options *o) {
    int64_t micro = o->micro ? o->micro : 1, chunks = o->chunks ? o->chunks : 1;
    int64_t rows = rcvi_pitch(o->steps / chunks * (o->batch / micro), micro * chunks),
            targets = rcvi_pitch(o->batch / micro, micro);
    return micro * chunks * rows > micro * targets ? micro * chunks * rows : micro * targets;
}

/* The order of units on this rank's stage, and how many micro-batches are in flight in that order. */
static rcv_status plan_tasks(const rcvi_work *w, rcvi_window *v) {
    const rcvi_topology *topology = w->options.topology;
    const rcvi_pipeline pipeline = {
        .stages = topology ? topology->stage_count : 1, .micro = (int)v->micro, .chunks = (int)v->chunks};
    int stage = topology ? topology->stage : 0;
    v->in_flight = v->training ? rcvi_pipeline_in_flight(&pipeline, stage) : v->micro;
    if (!v->training) return RCV_OK;
    v->tasks = rcvi_new(w->learner->context, 2 * (size_t)rcvi_window_units(v), sizeof *v->tasks);
    if (!v->tasks) return RCV_NO_MEMORY;
    rcvi_pipeline_order(&pipeline, stage, v->tasks);
    return RCV_OK;
}

rcv_status rcvi_window_new(rcvi_work *w, const rcvi_window_options *o, rcvi_window *v) {
    int64_t micro = o->micro ? o->micro : 1, chunks = o->chunks ? o->chunks : 1;
    *v = (rcvi_window){.steps = o->steps / chunks,
                       .batch = o->batch / micro,
                       .micro = micro,
                       .chunks = chunks,
                       .first = o->first,
                       .whole = o->whole ? o->whole : o->batch,
                       .training = o->training,
                       .lengths = o->lengths,
                       .carries = o->carries};
    v->pitch = rcvi_pitch(v->steps * v->batch, micro * chunks);
    v->target_pitch = rcvi_predicts_steps(w->learner) ? v->pitch : rcvi_pitch(v->batch, micro);
    RCVI_TRY(plan_tasks(w, v));
    RCVI_TRY(rcvi_window_plan(w, o, &v->plan));
    if (v->carries) RCVI_TRY(make_states(w, v, state_sets(v), &v->states));
    if (v->training && chunks > 1) RCVI_TRY(make_states(w, v, GRADIENT_SETS, &v->dstates));
    return rcvi_window_open(w, v);
}

void rcvi_window_free(const rcvi_work *w, rcvi_window *v) {
    rcvi_window_close(w, v);
    free_states(w, state_sets(v), v->states);
    free_states(w, GRADIENT_SETS, v->dstates);
    rcvi_free(w->learner->context, v->tasks);
    rcv_plan_free(v->plan);
    *v = (rcvi_window){0};
}
