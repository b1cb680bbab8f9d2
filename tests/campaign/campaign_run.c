#include "campaign.h"

#include <math.h>
#include <unistd.h>

enum { MOST_PLANS = 256, EXTRAS = 4, PLAN_ROOM = 160, SENTENCE = 1024, MOST_SHAKES = 16 };
static const char MEASURED[] = "measured"; /* stands for the plan that the planner chooses by timing */

/* Beside what the planner lists: rungs alone and in combinations that it does not offer. */
static const char *const cpu_extras[] = {"kernels",
                                         "combine",
                                         "combine(steps=all)",
                                         "fuse",
                                         "combine(steps=3)+fuse",
                                         "pack",
                                         "transpose",
                                         "wavefront",
                                         "scan",
                                         "naive+threads(2)",
                                         "kernels+threads(2)",
                                         "combine(steps=all)+blas",
                                         "combine(steps=4)+fuse+blas+threads(2)",
                                         "combine(steps=all)+fuse+pack+blas",
                                         "combine(steps=all)+fuse+pack+blas+threads(2)",
                                         "combine(steps=3)+fuse+transpose+blas",
                                         "combine(steps=2)+fuse+pack+wavefront",
                                         "combine(steps=3)+fuse+transpose+wavefront+threads(2)",
                                         "combine(steps=4)+fuse+pack+wavefront+threads(2,split=rows)",
                                         "combine(steps=all,forward=1)+fuse+pack+wavefront(forward)+threads(2)",
                                         "combine(steps=2)+fuse+pack+recompute(every=2)",
                                         "combine(steps=3)+fuse+transpose+recompute(every=3)+threads(2)",
                                         "recompute(every=3)",
                                         "combine(steps=all)+fuse+pack+scan+threads(2)",
                                         "combine(steps=3)+fuse+transpose+scan",
                                         "pack+threads(2,split=rows)",
                                         "vendor"};
static const char *const gpu_extras[] = {"naive",
                                         "naive+graph",
                                         "combine",
                                         "combine+fuse",
                                         "combine+fuse+pack",
                                         "combine(steps=3)+fuse+pack+graph",
                                         "combine(steps=all)+fuse+pack+graph",
                                         "combine+fuse+transpose+graph",
                                         "combine(steps=3)+fuse+transpose+gemm(choice=1)",
                                         "combine+fuse+streams(4)+graph",
                                         "combine(steps=2)+fuse+pack+wavefront+merge+graph",
                                         "combine(steps=2)+fuse+wavefront+streams(3)+graph",
                                         "combine(steps=2)+fuse+pack+recompute(every=2)+graph",
                                         "combine(steps=all,forward=1)+fuse+pack+wavefront(forward)+merge+streams(4)",
                                         "combine+fuse+pack+persistent",
                                         "combine(steps=all)+fuse+pack+merge+persistent+graph",
                                         "combine+fuse+pack+wavefront+merge+persistent+graph",
                                         "combine+fuse+pack+persistent(parts=2)+graph",
                                         "combine(steps=all)+fuse+pack+merge+persistent+cluster+graph",
                                         "combine(steps=all)+fuse+pack+persistent(parts=1)+cluster",
                                         "combine(steps=all)+fuse+pack+scan+graph",
                                         "naive+interpret",
                                         "combine(steps=all)+fuse+interpret+graph",
                                         "combine(steps=all)+fuse+merge+interpret+streams(4)",
                                         "combine+fuse+wavefront+merge+interpret+streams(4)+graph",
                                         "combine(steps=3)+fuse+transpose+interpret+graph",
                                         "combine(steps=2)+fuse+recompute(every=2)+interpret",
                                         "vendor+graph"};

typedef struct {
    campaign_case *k;
    const campaign_options *options;
    problem p;
    results want, shaken;
    int shakes; /* draws that `shaken` is of */
    char plans[MOST_PLANS][PLAN_ROOM];
    bool listed[MOST_PLANS]; /* the planner says that it can be used */
    int count, failed;
    char sentence[SENTENCE];
} session;

static bool is_gpu(const session *s) { return strcmp(s->k->device, "cpu") != 0; }

/* ---- lines ---- */

static void say(const char *kind, const char *sentence) {
    printf("%s", kind);
    if (sentence) putchar(' ');
    for (const char *c = sentence ? sentence : ""; *c; c++) putchar(*c == '\n' ? ' ' : *c);
    putchar('\n');
    fflush(stdout);
}

static bool say_failed(session *s) {
    say("failed", s->sentence);
    s->failed++;
    return false;
}

/* ---- one plan ---- */

static const void *unless(bool left_out, const void *given) { return left_out ? NULL : given; }

static bool is_left_out(const omission *o, size_t tensor) { return o->tensors >> tensor % 64 & 1; }

/* Leaves arguments out, of which nothing is then compared. */
static void leave_out(data *d, const omission *o) {
    if (o->final) d->forward.final = NULL;
    d->backward.dy = unless(o->dy, d->backward.dy);
    if (o->dfinal) d->backward.dfinal = NULL;
    if (o->dx) d->backward.dx = NULL;
    if (o->dinitial) d->backward.dinitial = NULL;
    if (o->dparameters) d->backward.dparameters = NULL;
    if (o->dparameters) d->backward.dtensors = NULL;
    for (size_t i = 0; d->p->separate && i < rcv_net_parameter_count(d->p->net); i++)
        if (is_left_out(o, i)) d->dtensors[i] = NULL;
}

/* Gradients of tensors that were left out are still poison; they become zeros, so that the others can be compared. */
static void forget_tensors(const problem *p, double *gradients, const omission *o) {
    for (size_t i = 0; i < rcv_net_parameter_count(p->net); i++) {
        const rcv_parameter *parameter = rcv_net_parameter(p->net, i);
        for (int64_t k = parameter->offset; is_left_out(o, i) && k < parameter->offset + parameter->count; k++) {
            if (p->separate && !isnan(gradients[k])) fail_msg("%s was written, but left out", parameter->name);
            gradients[k] = 0;
        }
    }
}

static void forget_left_out(const problem *p, results *r, const omission *o) {
    for (int i = 0; i < r->count; i++) {
        if (!strcmp(r->names[i], "dparameters")) forget_tensors(p, r->values[i], o);
        const char *name = r->names[i];
        bool absent = (o->final && !strcmp(name, "a final state")) || (o->dx && !strcmp(name, "dx")) ||
                      (o->dinitial && !strcmp(name, "an initial state's gradient")) ||
                      (o->dparameters && !strcmp(name, "dparameters"));
        if (absent) r->counts[i] = 0;
    }
}

/* Two calls of one run, the second with parameters that have not changed, and one of other sizes between them. False where a call failed. */
static bool run_calls(session *s, const problem *p, const rcv_plan *plan, rcv_dtype dtype, results *r) {
    bool training = s->k->training;
    rcv_run *run = NULL;
    data d;
    open_data(&d, p, dtype);
    leave_out(&d, &s->k->left_out);
    rcv_status status = rcv_run_new(plan, &run);
    for (int call = 0; call < 2 && !status; call++) {
        d.forward.same_parameters = call;
        d.backward.accumulate = false;
        if (call && s->k->between_steps) status = call_at(&d, run, training, s->k->between_steps, s->k->between_batch);
        if (status) break;
        d.backward.accumulate = call && s->k->left_out.accumulate;
        status = rcv_run_forward(run, &d.forward);
        if (!status && training) status = rcv_run_backward(run, &d.backward);
    }
    if (!status) status = rcv_run_wait(run);
    if (status) snprintf(s->sentence, sizeof s->sentence, "%s: %s", rcv_status_name(status), rcv_message());
    if (status && is_gpu(s)) { /* nothing more can be asked of a GPU that failed */
        say_failed(s);
        _exit(CAMPAIGN_FAILED);
    }
    rcv_run_free(run);
    close_data(&d, training, r);
    forget_left_out(p, r, &s->k->left_out);
    if (status) drop(r);
    return !status;
}

static void run_naive(session *s, const problem *p, results *r) {
    problem own = *p;
    rcv_plan *plan = NULL;
    own.device = NULL;
    own.data_type = own.state_type = own.parameter_type = own.gradient_type = RCV_AS_PLAN;
    own.batch_major = false;
    own.separate = own.device_lengths = false;
    rcv_plan_options options = options_of(&own, RCV_FLOAT64, s->k->training, "naive");
    check_ok(rcv_plan_new(p->net, &options, &plan));
    if (!run_calls(s, &own, plan, RCV_FLOAT64, r)) fail_msg("naive: %s", s->sentence);
    rcv_plan_free(plan);
}

/* Whether the types of the arrays hold the results. */
static bool is_finite(const campaign_case *k, const results *r) {
    bool halves =
        k->data_type == RCV_AS_FLOAT16 || k->state_type == RCV_AS_FLOAT16 || k->gradient_type == RCV_AS_FLOAT16;
    double most = halves ? 6e4 : 1e12;
    for (int i = 0; i < r->count; i++) {
        for (int64_t n = 0; n < r->counts[i]; n++) {
            if (!isfinite(r->values[i][n]) || fabs(r->values[i][n]) > most) return false;
        }
    }
    return true;
}

static double rounding(rcv_dtype dtype) {
    switch (dtype) {
    case RCV_FLOAT64: return 0x1p-53;
    case RCV_FLOAT32: return 0x1p-24;
    case RCV_BFLOAT16: return 0x1p-9;
    default: return 0x1p-11;
    }
}

static double *shake(const double *values, int64_t count, double by, random_source *source) {
    double *moved = malloc((size_t)(count + 1) * sizeof *moved);
    assert_non_null(moved);
    for (int64_t i = 0; i < count; i++) moved[i] = values[i] * (1 + random_between(source, -by, by));
    return moved;
}

/* One draw of how the roundings of the type alone move the results; of each element, the draw that moved it the furthest is kept. */
static void shake_results(session *s) {
    const problem *p = &s->p;
    problem own = *p;
    results moved;
    random_source source = {s->k->seed + (uint64_t)s->shakes++};
    rcv_array_type declared[] = {s->k->data_type, s->k->state_type, s->k->parameter_type, s->k->gradient_type};
    double by = rounding(s->k->dtype);
    for (int i = 0; i < 4; i++) {
        if (declared[i]) by = fmax(by, rounding((rcv_dtype)(declared[i] - 1)));
    }
    by *= 4;
    own.x = shake(p->x, p->x_count, by, &source);
    own.dy = shake(p->dy, p->y_count, by, &source);
    own.parameters = shake(p->parameters, p->parameter_count, by, &source);
    for (size_t i = 0; i < p->states; i++) {
        own.initial[i] = shake(p->initial[i], p->state_counts[i], by, &source);
        own.dfinal[i] = shake(p->dfinal[i], p->state_counts[i], by, &source);
        own.again[i] = shake(p->again[i], p->state_counts[i], by, &source);
    }
    run_naive(s, &own, &moved);
    for (size_t i = 0; i < p->states; i++) {
        free(own.initial[i]);
        free(own.dfinal[i]);
        free(own.again[i]);
    }
    free(own.x);
    free(own.dy);
    free(own.parameters);
    for (int i = 0; i < s->shaken.count; i++) {
        for (int64_t k = 0; k < moved.counts[i]; k++) {
            double want = s->want.values[i][k], kept = s->shaken.values[i][k];
            if (fabs(kept - want) > fabs(moved.values[i][k] - want)) moved.values[i][k] = kept;
        }
    }
    drop(&s->shaken);
    s->shaken = moved;
}

static bool is_fault(const session *s, const char *kind, const char *plan) {
    const char *fault = s->options->fault;
    size_t length = strlen(kind);
    return fault && !strncmp(fault, kind, length) && fault[length] == '=' && strstr(plan, fault + length + 1);
}

/* OpenBLAS and the vendors' libraries keep their own order. */
static bool has_fixed_bits(const char *plan) { return !strstr(plan, "vendor") && !strstr(plan, "blas"); }

/* Of a plan that is further off than usual: no more than roundings explain? Several draws, since one of them need not show what happens on
 * the other side of a kink. */
static bool is_explained(session *s, const char *plan, const results *got) {
    double worst = 0;
    for (;;) {
        if (s->shaken.count && is_near_shaken(&s->p, s->k->dtype, plan, got, &s->want, &s->shaken, &worst, s->sentence,
                                              sizeof s->sentence))
            return true;
        if (s->shakes == MOST_SHAKES) return false;
        shake_results(s);
    }
}

static bool compare_plan(session *s, const char *plan, const results *got, const results *again) {
    double worst = 0;
    bool near = is_near(&s->p, s->k->dtype, plan, got, &s->want, &worst, s->sentence, sizeof s->sentence);
    if (!near && !is_explained(s, plan, got)) return say_failed(s);
    if (has_fixed_bits(plan) && !has_same_bits(plan, got, again, s->sentence, sizeof s->sentence)) return say_failed(s);
    say(near ? "passed" : "conditioned", NULL);
    return true;
}

static bool run_made_plan(session *s, const rcv_plan *plan) {
    const char *string = rcv_plan_string(plan);
    results got = {.count = 0}, again = {.count = 0};
    bool ran = run_calls(s, &s->p, plan, s->k->dtype, &got) && run_calls(s, &s->p, plan, s->k->dtype, &again);
    if (!ran) {
        say_failed(s);
    } else {
        if (is_fault(s, "result", string)) got.values[0][got.counts[0] - 1] += 1;
        ran = compare_plan(s, string, &got, &again);
    }
    drop(&got);
    drop(&again);
    return ran;
}

static bool run_plan_at(session *s, int index) {
    const char *string = s->plans[index];
    bool measured = !strcmp(string, MEASURED);
    char line[PLAN_ROOM + 32];
    snprintf(line, sizeof line, "%d %s", index, string);
    say("plan", line);
    if (is_fault(s, "crash", string)) abort();
    while (is_fault(s, "hang", string)) pause();
    rcv_plan_options options = options_of(&s->p, s->k->dtype, s->k->training, measured ? NULL : string);
    rcv_plan *plan = NULL;
    rcv_status status = rcv_plan_new(s->p.net, &options, &plan);
    bool passed = true;
    if (status) {
        /* what the planner lists as usable must be usable; on a GPU kernels are compiled only now, and may not fit */
        bool refused =
            status == RCV_UNSUPPORTED && strlen(rcv_message()) > 10 && !measured && (!s->listed[index] || is_gpu(s));
        snprintf(s->sentence, sizeof s->sentence, "%s: %s", rcv_status_name(status), rcv_message());
        if (refused)
            say("refused", s->sentence);
        else
            passed = say_failed(s);
    } else {
        passed = run_made_plan(s, plan);
    }
    rcv_plan_free(plan);
    return passed;
}

/* ---- which plans ---- */

static void add_plan(session *s, const char *plan, bool listed) {
    for (int i = 0; i < s->count; i++) {
        if (!strcmp(s->plans[i], plan)) return;
    }
    assert_true(s->count < MOST_PLANS && strlen(plan) < PLAN_ROOM);
    s->listed[s->count] = listed;
    snprintf(s->plans[s->count++], PLAN_ROOM, "%s", plan);
}

/* All that the planner lists, whose refusals must be refusals; some more; the choice by timing. */
static bool list_plans(session *s) {
    rcv_plan_options options = options_of(&s->p, s->k->dtype, s->k->training, NULL);
    options.effort = RCV_ESTIMATE;
    rcv_plan *plan = NULL;
    rcv_status status = rcv_plan_new(s->p.net, &options, &plan);
    if (status) {
        snprintf(s->sentence, sizeof s->sentence, "no plan: %s: %s", rcv_status_name(status), rcv_message());
        say("plan", "0 estimate");
        return say_failed(s);
    }
    for (size_t i = 0; i < rcv_plan_candidate_count(plan); i++) {
        const rcv_candidate *c = rcv_plan_candidate(plan, i);
        add_plan(s, c->schedule, !c->status);
    }
    rcv_plan_free(plan);
    size_t extras = is_gpu(s) ? sizeof gpu_extras / sizeof *gpu_extras : sizeof cpu_extras / sizeof *cpu_extras;
    for (int i = 0; i < EXTRAS; i++) {
        size_t drawn = (size_t)random_below(&s->k->source, (int)extras);
        add_plan(s, is_gpu(s) ? gpu_extras[drawn] : cpu_extras[drawn], false);
    }
    if (s->k->measured) add_plan(s, MEASURED, true);
    return true;
}

/* Every plan, or some of them, or the one that is asked for. */
static void run_plans(session *s) {
    const campaign_options *o = s->options;
    if (o->plan) {
        s->count = 0;
        add_plan(s, o->plan, false);
    }
    int64_t left = o->plans > 0 ? o->plans : s->count;
    for (int i = 0; i < s->count; i++) {
        bool drawn = random_below(&s->k->source, s->count - i) < left;
        left -= drawn;
        if (!drawn || i < o->from) continue;
        bool passed = run_plan_at(s, i);
        if (!passed && is_gpu(s)) _exit(CAMPAIGN_FAILED);
    }
}

int run_case(campaign_case *k, const campaign_options *options) {
    session *s = calloc(1, sizeof *s);
    assert_non_null(s);
    char description[512], line[600];
    s->k = k;
    s->options = options;
    describe_case(k, description, sizeof description);
    snprintf(line, sizeof line, "%lld %s", (long long)k->number, description);
    say("case", line);
    open_problem_of(&s->p, &k->c, k->text, k->threads);
    s->p.device = is_gpu(s) ? k->device : NULL;
    s->p.restart = k->restart;
    s->p.separate = k->separate;
    s->p.most_steps = k->most_steps;
    s->p.most_batch = k->most_batch;
    s->p.data_type = k->data_type;
    s->p.state_type = k->state_type;
    s->p.parameter_type = k->parameter_type;
    s->p.gradient_type = k->gradient_type;
    s->p.device_lengths = k->device_lengths;
    s->p.batch_major = k->batch_major;
    run_naive(s, &s->p, &s->want);
    if (!is_finite(k, &s->want)) {
        say("plan", "0 naive");
        say("uncompared", "the results are not finite");
    } else if (list_plans(s)) {
        run_plans(s);
    }
    drop(&s->want);
    drop(&s->shaken);
    close_problem(&s->p);
    int failed = s->failed;
    free(s);
    say("done", NULL);
    return failed;
}
