/* The plan, the run and the arrays of one shape of batches. */
#include "train/work.h"

#include "plan/run.h"

rcv_status rcvi_window_plan(const rcvi_work *w, const rcvi_window_options *o, rcv_plan **plan) {
    const rcv_learner *l = w->learner;
    const rcv_plan_options options = {.steps = o->steps,
                                      .batch = o->batch,
                                      .dtype = l->dtype,
                                      .training = o->training,
                                      .lengths = o->lengths,
                                      .schedule = o->schedule,
                                      .effort = w->options.effort,
                                      .threads = w->options.threads,
                                      .device = l->device_name,
                                      .go_on = w->options.go_on,
                                      .user = w->options.user};
    return rcv_plan_new(l->net, &options, plan);
}

static rcv_status make_run(const rcvi_work *w, rcvi_window *v) {
    const rcv_run *first = v != w->windows ? w->windows[0].run : NULL;
    RCVI_TRY(rcvi_run_new_within(v->plan, first, &v->run));
    if (v->training) rcvi_run_set_seed_at(v->run, &rcvi_feed_control(w)->seed);
    void *stream = w->ops->stream(w->learn);
    return stream ? rcv_run_set_stream(v->run, stream) : RCV_OK;
}

size_t rcvi_window_state_bytes(const rcvi_work *w, const rcvi_window *v, size_t state) {
    return (size_t)(rcv_net_state(w->learner->net, state)->total * v->batch) * rcvi_real_bytes(w->learner);
}

static rcv_status make_states(const rcvi_work *w, const rcvi_window *v, void ***states) {
    const rcv_learner *l = w->learner;
    size_t count = rcv_net_state_count(l->net);
    *states = rcvi_new(l->context, count, sizeof **states);
    if (!*states) return RCV_NO_MEMORY;
    for (size_t s = 0; s < count; s++) {
        int64_t elements;
        if (!rcvi_multiply(rcv_net_state(l->net, s)->total, v->batch, &elements))
            return rcvi_fail(RCV_INVALID, "a batch of %lld is too large for this network's states",
                             (long long)v->batch);
        RCVI_TRY(rcvi_device_new(l, elements, rcvi_real_bytes(l), &(*states)[s]));
    }
    return RCV_OK;
}

static void free_states(const rcvi_work *w, void **states) {
    for (size_t s = 0; states && s < rcv_net_state_count(w->learner->net); s++) rcvi_device_free(w->learner, states[s]);
    rcvi_free(w->learner->context, states);
}

rcv_status rcvi_window_open(const rcvi_work *w, rcvi_window *v) {
    bool apart = !rcvi_tells_next(w->learner) || (v->training && w->options.drops.output > 0);
    v->seen = apart ? w->apart : w->y;
    v->dseen = rcvi_tells_next(w->learner) ? w->dy : w->dapart;
    return make_run(w, v);
}

rcv_status rcvi_window_new(rcvi_work *w, const rcvi_window_options *o, rcvi_window *v) {
    *v = (rcvi_window){
        .steps = o->steps, .batch = o->batch, .training = o->training, .lengths = o->lengths, .carries = o->carries};
    RCVI_TRY(rcvi_window_plan(w, o, &v->plan));
    if (v->carries) {
        RCVI_TRY(make_states(w, v, &v->initial));
        RCVI_TRY(make_states(w, v, &v->final));
    }
    return rcvi_window_open(w, v);
}

void rcvi_window_close(rcvi_window *v) {
    rcv_run_free(v->run);
    v->run = NULL;
}

void rcvi_window_free(const rcvi_work *w, rcvi_window *v) {
    rcvi_window_close(v);
    free_states(w, v->initial);
    free_states(w, v->final);
    rcv_plan_free(v->plan);
    *v = (rcvi_window){0};
}
