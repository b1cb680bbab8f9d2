#include "plan/plan.h"
#include "plan/run.h"

#include <string.h>

/* The largest number of features of any value, so that one product bounds every buffer. */
static int64_t widest(const rcv_net *net) {
    int64_t most = rcv_net_output(net);
    for (int64_t l = 0; l < net->options.layers; l++) {
        const rcvi_graph *graph = &net->layers[l].forward;
        if (net->layers[l].input > most) most = net->layers[l].input;
        for (size_t i = 0; i < graph->value_count; i++) {
            int64_t features = rcvi_features(graph, graph->values[i].size);
            if (features > most) most = features;
        }
    }
    for (size_t s = 0; s < net->state_count; s++) {
        if (net->states[s].total > most) most = net->states[s].total;
    }
    return most;
}

static rcv_status check_options(const rcv_net *net, const rcv_plan_options *o) {
    if (o->steps < 1)
        return rcvi_fail(RCV_INVALID, "steps is %lld; a plan needs at least one time step", (long long)o->steps);
    if (o->batch < 1)
        return rcvi_fail(RCV_INVALID, "batch is %lld; a plan needs at least one sequence", (long long)o->batch);
    if (o->dtype != RCV_FLOAT32 && o->dtype != RCV_FLOAT64) {
        return rcvi_fail(RCV_INVALID, "a plan computes in float32 or float64, not %s", rcv_dtype_name(o->dtype));
    }
    int64_t elements = 0;
    if (o->steps > INT64_MAX / 1024 || !rcvi_multiply(o->steps + 1, o->batch, &elements) ||
        !rcvi_multiply(elements, widest(net), &elements) || elements > INT64_MAX / 1024) {
        return rcvi_fail(RCV_INVALID,
                         "%lld steps of %lld sequences of up to %lld features are more elements than 64 bits can count",
                         (long long)o->steps, (long long)o->batch, (long long)widest(net));
    }
    return RCV_OK;
}

/* The schedule pinned by name, or the first that applies. */
static rcv_status choose(const rcv_net *net, const rcv_plan_options *options, const rcvi_schedule **chosen) {
    const char *names[16];
    size_t count = 0;
    for (size_t i = 0; i < rcvi_schedule_count; i++) {
        if (count < 16) names[count++] = rcvi_schedules[i]->name;
        if (options->schedule && strcmp(options->schedule, rcvi_schedules[i]->name)) continue;
        rcv_status status = rcvi_schedules[i]->applies(net, options);
        if (status && options->schedule) return status;
        if (status) continue;
        *chosen = rcvi_schedules[i];
        return RCV_OK;
    }
    if (!options->schedule) return rcvi_fail(RCV_UNSUPPORTED, "no schedule applies to this network");
    const char *near = rcvi_nearest(options->schedule, names, count);
    return rcvi_fail(RCV_INVALID, "there is no schedule '%s'; %s '%s'%s", options->schedule,
                     near ? "did you mean" : "there is", near ? near : names[0], near ? "?" : "");
}

static rcv_status build(rcv_plan *plan, const rcv_plan_options *options) {
    RCVI_TRY(choose(plan->net, options, &plan->schedule));
    rcvi_program *program = &plan->program;
    program->options.schedule = plan->schedule->name;
    plan->schedule->write(program);
    if (program->oversized)
        return rcvi_fail(RCV_INVALID, "the plan's buffers have more elements than 64 bits can count");
    if (program->failed) return RCV_NO_MEMORY;
    RCVI_TRY(rcvi_program_lay_out(program));
    RCVI_TRY(rcvi_program_verify(program));
    plan->device = rcvi_devices[0];
    plan->run_bytes = rcvi_run_bytes(plan);
    rcvi_log(plan->context, "plan of %s, %lld steps of %lld in %s%s: schedule %s on device %s, %zu bytes",
             rcv_cell_name(plan->net->cell), (long long)options->steps, (long long)options->batch,
             rcv_dtype_name(options->dtype), options->training ? ", training" : "", plan->schedule->name,
             plan->device->name, plan->run_bytes);
    return RCV_OK;
}

rcv_status rcv_plan_new(const rcv_net *net, const rcv_plan_options *options, rcv_plan **out) {
    if (!out) return rcvi_fail(RCV_INVALID, "the place for the plan is NULL");
    *out = NULL;
    if (!net || !options) return rcvi_fail(RCV_INVALID, "a plan needs a network and options");
    RCVI_TRY(check_options(net, options));
    rcv_plan *plan = rcvi_new(net->context, 1, sizeof *plan);
    if (!plan) return RCV_NO_MEMORY;
    plan->context = net->context;
    plan->net = net;
    rcvi_program_init(&plan->program, net, options);
    rcv_status status = build(plan, options);
    if (status) {
        rcv_plan_free(plan);
        return status;
    }
    *out = plan;
    return RCV_OK;
}

void rcv_plan_free(rcv_plan *plan) {
    if (!plan) return;
    rcvi_program_free(&plan->program);
    rcvi_free(plan->context, plan);
}

const char *rcv_plan_string(const rcv_plan *plan) { return plan->schedule->name; }
size_t rcv_plan_bytes(const rcv_plan *plan) { return plan->run_bytes; }

rcv_status rcv_plan_print(const rcv_plan *plan, char **text) {
    if (!plan || !text) return rcvi_fail(RCV_INVALID, "printing a plan needs a plan and a place for the text");
    rcvi_text out;
    rcvi_text_init(&out, plan->context);
    rcvi_program_print(&plan->program, &out);
    return rcvi_text_take(&out, text);
}
