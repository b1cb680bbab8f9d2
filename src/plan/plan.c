/* Plans: checks the options, writes and verifies the program, prepares it on the device; pinned, or chosen by the planner (search.c). */
#include "plan/plan.h"
#include "plan/background.h"
#include "plan/cost.h"
#include "plan/first.h"
#include "plan/run.h"
#include "plan/search.h"

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

static rcv_status check_shape(const rcv_net *net, const rcv_plan_options *o) {
    if (o->steps < 1)
        return rcvi_fail(RCV_INVALID, "steps is %lld; a plan needs at least one time step", (long long)o->steps);
    if (o->batch < 1)
        return rcvi_fail(RCV_INVALID, "batch is %lld; a plan needs at least one sequence", (long long)o->batch);
    int64_t elements = 0;
    if (o->steps > INT64_MAX / 1024 || !rcvi_multiply(o->steps + 1, o->batch, &elements) ||
        !rcvi_multiply(elements, widest(net), &elements) || elements > INT64_MAX / 1024) {
        return rcvi_fail(RCV_INVALID,
                         "%lld steps of %lld sequences of up to %lld features are more elements than 64 bits can count",
                         (long long)o->steps, (long long)o->batch, (long long)widest(net));
    }
    return RCV_OK;
}

static bool is_array_type(rcv_array_type type) { return (int)type >= 0 && type <= RCV_AS_BFLOAT16; }

static rcv_status check_array_types(const rcv_plan_options *o) {
    const struct {
        const char *name;
        rcv_array_type type;
    } declared[] = {
        {"data", o->data}, {"states", o->states}, {"parameters", o->parameters}, {"gradients", o->gradients}};
    for (size_t i = 0; i < sizeof declared / sizeof *declared; i++) {
        if (!is_array_type(declared[i].type))
            return rcvi_fail(RCV_INVALID, "%s %d is no type of arrays: rcv_array_type lists them", declared[i].name,
                             (int)declared[i].type);
    }
    bool as_plan = !o->gradients || o->gradients == (o->dtype == RCV_FLOAT64 ? RCV_AS_FLOAT64 : RCV_AS_FLOAT32);
    if (o->signals && !as_plan)
        return rcvi_fail(RCV_INVALID,
                         "signals are for gradients in the plan's own type; make the plan without a type of "
                         "gradients, or without signals");
    return RCV_OK;
}

static rcv_status check_options(const rcv_net *net, const rcv_plan_options *o) {
    if (o->dtype != RCV_FLOAT32 && o->dtype != RCV_FLOAT64 && !rcvi_dtype_is_narrow(o->dtype) &&
        o->dtype != RCV_TFLOAT32) {
        return rcvi_fail(
            RCV_INVALID,
            "a plan computes in float32, float64 or bfloat16, on a GPU also in tfloat32 or float16, not %s",
            rcv_dtype_name(o->dtype));
    }
    RCVI_TRY(check_array_types(o));
    if ((int)o->effort < 0 || o->effort > RCV_FIRST)
        return rcvi_fail(RCV_INVALID, "effort %d is none of measure, estimate, exhaustive, background and first",
                         (int)o->effort);
    if (o->threads < 0 || o->threads > RCVI_MAX_THREADS) {
        return rcvi_fail(RCV_INVALID, "%lld threads are not 1 to %d, or 0 for what the context says",
                         (long long)o->threads, RCVI_MAX_THREADS);
    }
    if (o->reserve && !o->training)
        return rcvi_fail(RCV_INVALID, "a reserve is what a backward pass needs: set training, too");
    if (o->device_lengths && !o->lengths)
        return rcvi_fail(RCV_INVALID, "device_lengths says where lengths lie: set lengths, too");
    if (o->signals && o->separate_parameters)
        return rcvi_fail(RCV_INVALID, "signals are for gradients in one flat array; make the plan without "
                                      "separate_parameters, or without signals");
    if (o->small_batch < 0 || (o->small_batch > 0 && o->small_batch >= o->batch))
        return rcvi_fail(RCV_INVALID, "small_batch is %lld, which is not 1 to batch - 1 = %lld, or 0 for none",
                         (long long)o->small_batch, (long long)o->batch - 1);
    if (o->small_batch && o->signals)
        return rcvi_fail(RCV_INVALID,
                         "signals are raised by one plan; make it without small_batch, or without signals");
    if (o->small_schedule && !(o->schedule && o->small_batch))
        return rcvi_fail(RCV_INVALID, "small_schedule is for plans with schedule and small_batch");
    return check_shape(net, o);
}

/* ---- one plan ---- */

static rcv_status write_program(rcv_plan *plan) {
    rcvi_program *program = &plan->program;
    plan->schedule->write(program);
    if (program->oversized)
        return rcvi_fail(RCV_INVALID, "the plan's buffers have more elements than 64 bits can count");
    rcvi_program_convert(program);
    rcvi_program_communicate(program);
    if (program->failed) return RCV_NO_MEMORY;
    rcvi_program_narrow(program);
    RCVI_TRY(rcvi_program_lay_out(program));
    return rcvi_program_verify(program);
}

static rcv_status build(rcv_plan *plan, const rcvi_problem *problem, const rcvi_rungs *rungs) {
    rcvi_text text;
    rcvi_text_init(&text, plan->context);
    rcvi_rungs_print(rungs, &text);
    RCVI_TRY(rcvi_text_take(&text, &plan->string));
    plan->program.options.schedule = plan->string;
    plan->program.options.go_on = NULL; /* the caller's, valid during planning only */
    plan->program.options.user = NULL;
    plan->program.options.device = NULL; /* the caller's text; plan->device and plan->ordinal say it */
    plan->program.options.small_schedule = NULL;
    plan->schedule = rcvi_schedule_for(rungs);
    RCVI_TRY(plan->schedule->applies(problem->net, &plan->program.options, rungs, &problem->machine));
    RCVI_TRY(write_program(plan));
    plan->device = problem->device;
    plan->ordinal = problem->ordinal;
    RCVI_TRY(plan->device->prepare(&plan->program, &plan->engine));
    plan->run_bytes = rcvi_run_bytes(plan);
    return RCV_OK;
}

rcv_status rcvi_plan_write(const rcvi_problem *problem, const rcvi_rungs *rungs, rcv_plan **out) {
    *out = NULL;
    rcv_context *context = problem->net->context;
    rcv_plan *plan = rcvi_new(context, 1, sizeof *plan);
    if (!plan) return RCV_NO_MEMORY;
    plan->context = context;
    plan->net = problem->net;
    rcvi_pool_init(&plan->notes, context);
    rcvi_program_init(&plan->program, problem->net, problem->options, rungs, &problem->machine);
    rcv_status status = build(plan, problem, rungs);
    if (status || !plan) {
        rcv_plan_free(plan);
        return status;
    }
    *out = plan;
    return RCV_OK;
}

rcv_status rcvi_plan_load(rcv_plan *plan) {
    if (plan->device->load && !plan->loaded) RCVI_TRY(plan->device->load(plan->engine));
    plan->loaded = true;
    return RCV_OK;
}

rcv_status rcvi_plan_make(const rcvi_problem *problem, const rcvi_rungs *rungs, rcv_plan **plan) {
    RCVI_TRY(rcvi_plan_write(problem, rungs, plan));
    rcv_status status = rcvi_plan_load(*plan);
    if (!status) return RCV_OK;
    rcv_plan_free(*plan);
    *plan = NULL;
    return status;
}

rcv_status rcvi_plan_serve_sizes(rcv_plan *plan) {
    RCVI_TRY(rcvi_program_sizing(&plan->notes, &plan->program, plan->schedule->write, &plan->sizing));
    if (plan->device->serve_sizes) RCVI_TRY(plan->device->serve_sizes(plan->engine, &plan->sizing));
    plan->packs_by_size = rcvi_program_packs_by_size(&plan->program, &plan->sizing);
    plan->serves_sizes = true;
    return RCV_OK;
}

rcv_status rcvi_check_memory(const rcv_plan *plan, size_t limit) {
    if (limit == 0 || plan->run_bytes <= limit) return RCV_OK;
    return rcvi_fail(RCV_UNSUPPORTED, "a run of %s needs %zu bytes, but %zu are allowed", plan->string, plan->run_bytes,
                     limit);
}

rcv_status rcvi_plan_note_alone(rcv_plan *plan, double seconds) {
    rcv_candidate *only = rcvi_pool_new(&plan->notes, 1, sizeof *only);
    if (!only) return RCV_NO_MEMORY;
    *only = (rcv_candidate){.schedule = plan->string,
                            .estimate = rcvi_estimate(&plan->program),
                            .seconds = seconds,
                            .bytes = plan->run_bytes,
                            .chosen = true};
    plan->candidates = only;
    plan->candidate_count = 1;
    return RCV_OK;
}

/* ---- pinned plans ---- */

static void describe_libraries(rcvi_problem *problem) {
    if (problem->device->describe_libraries) problem->device->describe_libraries(problem->ordinal, &problem->machine);
}

static rcv_status pin(rcvi_problem *problem, rcv_plan **plan) {
    const rcv_plan_options *o = problem->options;
    rcvi_rungs rungs;
    RCVI_TRY(rcvi_rungs_read(o->schedule, &rungs));
    if (o->threads && rungs.threads > o->threads) {
        return rcvi_fail(RCV_INVALID, "the plan string asks for %lld threads, but at most %lld are allowed",
                         (long long)rungs.threads, (long long)o->threads);
    }
    RCVI_TRY(
        problem->device->describe(problem->net->context, problem->ordinal, o->dtype, rungs.threads, &problem->machine));
    if (rungs.vendor || rungs.blas) describe_libraries(problem);
    RCVI_TRY(rcvi_plan_make(problem, &rungs, plan));
    RCVI_TRY(rcvi_check_memory(*plan, o->memory));
    return rcvi_plan_note_alone(*plan, 0);
}

/* ---- plans that the planner chooses ---- */

static rcv_status describe_machine(rcvi_problem *problem) {
    const rcv_plan_options *o = problem->options;
    rcv_context *context = problem->net->context;
    int64_t threads = o->threads ? o->threads : rcv_context_threads(context);
    RCVI_TRY(problem->device->describe(context, problem->ordinal, o->dtype, threads, &problem->machine));
    describe_libraries(problem);
    return RCV_OK;
}

/* A plan at once: from wisdom where nothing has to be compiled, else one that needs no search; `is_first` then. Where no such plan applies
 * the estimate chooses one. */
static rcv_status plan_at_once(rcvi_problem *problem, rcv_plan **plan, bool *is_first) {
    RCVI_TRY(rcvi_plan_recall_compiled(problem, plan));
    *is_first = !*plan;
    if (*plan) return RCV_OK;
    RCVI_TRY(rcvi_plan_first(problem, plan));
    if (*plan) return rcvi_plan_note_alone(*plan, 0);
    rcv_plan_options estimated = *problem->options;
    rcvi_problem without_trials = *problem;
    estimated.effort = RCV_ESTIMATE;
    without_trials.options = &estimated;
    return rcvi_plan_search(&without_trials, plan);
}

static rcv_status make(rcvi_problem *problem, rcv_plan **plan) {
    bool is_first = false;
    if (problem->options->schedule) {
        RCVI_TRY(pin(problem, plan));
    } else {
        RCVI_TRY(describe_machine(problem));
        bool at_once = problem->options->effort == RCV_BACKGROUND || problem->options->effort == RCV_FIRST;
        RCVI_TRY(at_once ? plan_at_once(problem, plan, &is_first) : rcvi_plan_search(problem, plan));
    }
    if (!*plan) return rcvi_fail(RCV_UNSUPPORTED, "no schedule applies to this network"); /* for a checker */
    RCVI_TRY(rcvi_plan_serve_sizes(*plan));
    bool searches = is_first && problem->options->effort == RCV_BACKGROUND;
    return searches ? rcvi_background_start(problem, *plan) : RCV_OK;
}

/* ---- public ---- */

static void log_plan(const rcv_plan *plan, const rcv_plan_options *o) {
    static const char *const efforts[] = {[RCV_MEASURE] = "measured",
                                          [RCV_ESTIMATE] = "estimated",
                                          [RCV_EXHAUSTIVE] = "exhaustive",
                                          [RCV_BACKGROUND] = "the first one, while a thread looks for a better one",
                                          [RCV_FIRST] = "the first one"};
    const char *how = o->schedule ? "pinned" : plan->from_wisdom ? "from wisdom" : efforts[o->effort];
    rcvi_log(plan->context,
             "plan of %s, %lld steps of %lld in %s%s: schedule %s on device %s, %zu bytes; %s, of %zu candidates in "
             "%.3g s",
             rcv_cell_name(plan->net->cell), (long long)o->steps, (long long)o->batch, rcv_dtype_name(o->dtype),
             o->training ? ", training" : "", plan->string, plan->device->name, plan->run_bytes, how,
             plan->candidate_count, plan->seconds);
    if (plan->program.rungs.threads > rcvi_cores()) {
        rcvi_log(plan->context, "%lld threads share %lld cores: results are correct, but the plan is slow",
                 (long long)plan->program.rungs.threads, (long long)rcvi_cores());
    }
}

static rcv_status make_and_log(const rcv_net *net, const rcv_plan_options *options, rcv_plan **plan) {
    double begin = rcvi_now();
    rcvi_problem problem = {.net = net, .options = options};
    RCVI_TRY(rcvi_device_find(options->device, &problem.device, &problem.ordinal));
    rcv_status status = make(&problem, plan);
    if (status || !*plan) return status;
    (*plan)->seconds = rcvi_now() - begin;
    log_plan(*plan, options);
    return RCV_OK;
}

/* The plan for calls of few sequences. A limit of memory holds for both. */
static rcv_status make_small(rcv_plan *plan, const rcv_plan_options *o) {
    rcv_plan_options own = *o;
    if (o->memory && plan->run_bytes >= o->memory)
        return rcvi_fail(RCV_UNSUPPORTED,
                         "a run of %s needs %zu bytes, which leaves none of %zu for calls of few "
                         "sequences: leave small_batch out",
                         plan->string, plan->run_bytes, o->memory);
    if (o->memory) own.memory -= plan->run_bytes;
    if (o->small_schedule) own.schedule = o->small_schedule;
    own.batch = o->small_batch;
    own.small_batch = 0;
    own.small_schedule = NULL;
    return make_and_log(plan->net, &own, &plan->small);
}

rcv_status rcv_plan_new(const rcv_net *net, const rcv_plan_options *options, rcv_plan **out) {
    RCVI_NEED(out, "plan");
    *out = NULL;
    RCVI_NEED(net, "net");
    RCVI_NEED(options, "options");
    RCVI_READ(rcv_plan_options, options, "options");
    RCVI_TRY(check_options(net, options));
    rcv_plan *plan = NULL;
    rcv_status status = make_and_log(net, options, &plan);
    if (!status && plan && options->small_batch) status = make_small(plan, options);
    if (status || !plan) {
        rcv_plan_free(plan);
        return status;
    }
    *out = plan;
    return RCV_OK;
}

void rcv_plan_free(rcv_plan *plan) {
    if (!plan) return;
    rcv_plan_free(plan->small);
    rcvi_background_free(plan->background);
    if (plan->engine) plan->device->release(plan->engine);
    rcvi_program_free(&plan->program);
    rcvi_pool_free(&plan->notes);
    rcvi_free(plan->context, plan->string);
    rcvi_free(plan->context, plan);
}

const char *rcv_plan_string(const rcv_plan *plan) { return rcvi_plan_newest(plan)->string; }
const rcv_plan *rcv_plan_small(const rcv_plan *plan) { return plan->small; }

size_t rcv_plan_bytes(const rcv_plan *plan) {
    return rcvi_plan_newest(plan)->run_bytes + (plan->small ? rcv_plan_bytes(plan->small) : 0);
}

size_t rcv_plan_candidate_count(const rcv_plan *plan) { return rcvi_plan_newest(plan)->candidate_count; }
double rcv_plan_seconds(const rcv_plan *plan) { return rcvi_plan_newest(plan)->seconds; }
bool rcv_plan_from_wisdom(const rcv_plan *plan) { return rcvi_plan_newest(plan)->from_wisdom; }

const rcv_candidate *rcv_plan_candidate(const rcv_plan *plan, size_t index) {
    plan = rcvi_plan_newest(plan);
    return index < plan->candidate_count ? &plan->candidates[index] : NULL;
}

rcv_status rcv_plan_print(const rcv_plan *plan, char **text) {
    RCVI_NEED(plan, "plan");
    RCVI_NEED(text, "text");
    rcvi_text out;
    rcvi_text_init(&out, plan->context);
    rcvi_program_print(&rcvi_plan_newest(plan)->program, &out);
    return rcvi_text_take(&out, text);
}

rcv_status rcv_plan_explain(const rcv_plan *plan, char **text) {
    RCVI_NEED(plan, "plan");
    RCVI_NEED(text, "text");
    rcvi_text out;
    rcvi_text_init(&out, plan->context);
    rcvi_text_add(&out, "%s", "");
    plan = rcvi_plan_newest(plan);
    if (plan->device->explain) plan->device->explain(plan->engine, &out);
    return rcvi_text_take(&out, text);
}
