/* Tests of the vendor's library: plans pinned to `vendor` against `naive` in double, and the networks that it refuses. */
#include "device/cpu/onednn/vendor.h"
#include "probe.h"
#include "schedule/schedule.h"

#include <math.h>

enum { MAX_STATES = 2 };

typedef struct {
    const char *label;
    rcv_net_options net;
    int64_t steps, batch;
    rcv_dtype dtype;
    const char *schedule;
    bool inference;
    bool bare;       /* every optional pointer but one or two is NULL */
    bool accumulate; /* in a second backward call */
} scenario;

/* Every array of a run, in double. */
typedef struct {
    double *parameters, *x, *dy, *initial[MAX_STATES], *dfinal[MAX_STATES];
    double *y, *dx, *dparameters, *final[MAX_STATES], *dinitial[MAX_STATES];
} arrays;

static const char *const cells[] = {"lstm", "gru", "rnn_tanh", "rnn_relu"};
enum { CELLS = sizeof cells / sizeof *cells };

static bool is_there(void) {
    if (!rcvi_vendor_name()) print_message("skipped: this build has no oneDNN\n");
    return rcvi_vendor_name();
}

/* ---- arrays of either type ---- */

static double *draw(random_source *source, int64_t count, double scale) {
    double *values = malloc((size_t)count * sizeof *values + 1);
    assert_non_null(values);
    for (int64_t i = 0; i < count; i++) values[i] = (float)random_between(source, -scale, scale);
    return values;
}

/* A copy in the plan's type; NULL stays NULL. */
static void *typed(const double *values, int64_t count, rcv_dtype dtype) {
    if (!values) return NULL;
    void *copy = malloc((size_t)count * sizeof(double) + 1);
    assert_non_null(copy);
    for (int64_t i = 0; i < count; i++) {
        if (dtype == RCV_FLOAT64) {
            ((double *)copy)[i] = values[i];
        } else {
            ((float *)copy)[i] = (float)values[i];
        }
    }
    return copy;
}

static void poison(void *values, int64_t count, rcv_dtype dtype) {
    if (values) memset(values, 0xff, (size_t)count * (dtype == RCV_FLOAT64 ? sizeof(double) : sizeof(float)));
}

static void *poisoned(int64_t count, rcv_dtype dtype) {
    void *values = malloc((size_t)count * sizeof(double) + 1);
    assert_non_null(values);
    poison(values, count, dtype);
    return values;
}

static double *widened(const void *values, int64_t count, rcv_dtype dtype) {
    if (!values) return NULL;
    double *wide = malloc((size_t)count * sizeof *wide + 1);
    assert_non_null(wide);
    for (int64_t i = 0; i < count; i++)
        wide[i] = dtype == RCV_FLOAT64 ? ((const double *)values)[i] : ((const float *)values)[i];
    return wide;
}

/* ---- a run ---- */

typedef struct {
    const rcv_net *net;
    rcv_run *run;
    rcv_forward forward;
    rcv_backward backward;
    void *initial[MAX_STATES], *final[MAX_STATES], *dfinal[MAX_STATES], *dinitial[MAX_STATES];
    int64_t rows, input, output, parameters, state[MAX_STATES];
    size_t states;
    rcv_dtype dtype;
} session;

static void bind(session *s, const scenario *k, const arrays *in) {
    rcv_dtype dtype = s->dtype;
    bool training = !k->inference;
    for (size_t i = 0; i < s->states; i++) {
        s->state[i] = rcv_net_state(s->net, i)->total * k->batch;
        s->initial[i] = k->bare && i == 0 ? NULL : typed(in->initial[i], s->state[i], dtype);
        s->final[i] = k->bare ? NULL : poisoned(s->state[i], dtype);
        s->dfinal[i] = k->bare || !training ? NULL : typed(in->dfinal[i], s->state[i], dtype);
        s->dinitial[i] = (k->bare && i == 0) || !training ? NULL : poisoned(s->state[i], dtype);
    }
    s->forward = RCV_INIT(rcv_forward, .parameters = typed(in->parameters, s->parameters, dtype),
                          .x = typed(in->x, s->rows * s->input, dtype), .initial = (const void *const *)s->initial,
                          .y = poisoned(s->rows * s->output, dtype), .final = s->final);
    s->backward = RCV_INIT(rcv_backward, .dy = typed(in->dy, s->rows * s->output, dtype),
                           .dfinal = (const void *const *)s->dfinal, .dinitial = s->dinitial);
    if (!k->bare) s->backward.dx = poisoned(s->rows * s->input, dtype);
    if (!k->bare || k->accumulate) s->backward.dparameters = poisoned(s->parameters, dtype);
}

static void release(session *s) {
    for (size_t i = 0; i < s->states; i++) {
        free(s->initial[i]);
        free(s->final[i]);
        free(s->dfinal[i]);
        free(s->dinitial[i]);
    }
    free((void *)s->forward.parameters);
    free((void *)s->forward.x);
    free(s->forward.y);
    free((void *)s->backward.dy);
    free(s->backward.dx);
    free(s->backward.dparameters);
}

static void collect_forward(const session *s, arrays *out) {
    out->y = widened(s->forward.y, s->rows * s->output, s->dtype);
    for (size_t i = 0; i < s->states; i++) out->final[i] = widened(s->final[i], s->state[i], s->dtype);
}

static void collect_backward(const session *s, arrays *out) {
    out->dx = widened(s->backward.dx, s->rows * s->input, s->dtype);
    out->dparameters = widened(s->backward.dparameters, s->parameters, s->dtype);
    for (size_t i = 0; i < s->states; i++) out->dinitial[i] = widened(s->dinitial[i], s->state[i], s->dtype);
}

/* Runs the passes with other parameters, then with the true ones, then again with the same. Arrays that the backward pass does not read
 * are overwritten before it. */
static void run_passes(session *s, const scenario *k, arrays *out) {
    const void *parameters = s->forward.parameters;
    double *zeros = calloc((size_t)s->parameters, sizeof *zeros);
    assert_non_null(zeros);
    s->forward.parameters = zeros;
    check_ok(rcv_run_forward(s->run, &s->forward));
    if (!k->inference) check_ok(rcv_run_backward(s->run, &s->backward));
    free(zeros);
    s->forward.parameters = parameters;
    check_ok(rcv_run_forward(s->run, &s->forward));
    if (!k->inference) check_ok(rcv_run_backward(s->run, &s->backward));
    s->forward.same_parameters = true;
    poison(s->forward.y, s->rows * s->output, s->dtype);
    check_ok(rcv_run_forward(s->run, &s->forward));
    collect_forward(s, out);
    if (k->inference) return;
    poison(s->forward.y, s->rows * s->output, s->dtype);
    for (size_t i = 0; i < s->states; i++) poison(s->final[i], s->state[i], s->dtype);
    s->backward.accumulate = k->accumulate;
    if (!k->accumulate) poison(s->backward.dparameters, s->parameters, s->dtype);
    check_ok(rcv_run_backward(s->run, &s->backward));
    collect_backward(s, out);
}

/* False, with the reason in rcv_message(), if the plan is refused. */
static bool run(const rcv_net *net, const char *schedule, rcv_dtype dtype, const scenario *k, const arrays *in,
                arrays *out) {
    rcv_plan_options options = RCV_INIT(rcv_plan_options, .steps = k->steps, .batch = k->batch, .dtype = dtype,
                                        .training = !k->inference, .schedule = schedule, .threads = 3);
    rcv_plan *plan = NULL;
    rcv_status status = rcv_plan_new(net, &options, &plan);
    if (status == RCV_UNSUPPORTED) return false;
    check_ok(status);
    assert_string_equal(rcv_plan_string(plan), schedule);
    session s = {.net = net,
                 .rows = k->steps * k->batch,
                 .input = k->net.input,
                 .output = rcv_net_output(net),
                 .parameters = rcv_net_parameter_elements(net),
                 .states = rcv_net_state_count(net),
                 .dtype = dtype};
    assert_true(s.states <= MAX_STATES);
    check_ok(rcv_run_new(plan, &s.run));
    assert_int_equal(rcv_run_bytes(s.run), rcv_plan_bytes(plan));
    bind(&s, k, in);
    run_passes(&s, k, out);
    release(&s);
    rcv_run_free(s.run);
    rcv_plan_free(plan);
    return true;
}

/* ---- comparison ---- */

/* The result is compared with the oracle's and freed. In float32, see test_device.c: 1.6e-4 of the largest element. In
 * bfloat16 weights, inputs and states keep 8 bits, so each rounding is off by up to 2^-9; some 6 steps times 3 layers of
 * them follow one another, which makes 18 * 2^-9 = 0.035, and what is summed up anew in the derivative as much again.
 * Not so for the gradients of relu: a rounding that carries a value over its kink gives another derivative. */
static void compare(const scenario *k, const char *cell, const char *what, double *values, double *expected,
                    int64_t count) {
    double scale = 1e-3, worst = 0, tolerance = k->dtype == RCV_BFLOAT16 ? 0.07 : 1.6e-4;
    if (!values || !expected) {
        assert_true(!values && !expected);
        return;
    }
    for (int64_t i = 0; i < count; i++) scale = fmax(scale, fabs(expected[i]));
    for (int64_t i = 0; i < count; i++)
        worst = fmax(worst, isfinite(values[i]) ? fabs(values[i] - expected[i]) : INFINITY);
    bool forward = !strcmp(what, "y") || !strcmp(what, "a final state");
    bool kinked = k->dtype == RCV_BFLOAT16 && !strcmp(cell, "rnn_relu") && !forward;
    if (worst > tolerance * scale && (!kinked || !isfinite(worst)))
        fail_msg("%s, %s: %s is off by %g of %g", cell, k->label, what, worst, scale);
    free(values);
    free(expected);
}

static void compare_all(const scenario *k, const char *cell, const rcv_net *net, arrays *got, arrays *expected) {
    int64_t rows = k->steps * k->batch, parameters = rcv_net_parameter_elements(net);
    compare(k, cell, "y", got->y, expected->y, rows * rcv_net_output(net));
    compare(k, cell, "dx", got->dx, expected->dx, rows * k->net.input);
    compare(k, cell, "dparameters", got->dparameters, expected->dparameters, parameters);
    for (size_t i = 0; i < rcv_net_state_count(net); i++) {
        int64_t count = rcv_net_state(net, i)->total * k->batch;
        compare(k, cell, "a final state", got->final[i], expected->final[i], count);
        compare(k, cell, "an initial state's gradient", got->dinitial[i], expected->dinitial[i], count);
    }
}

static bool check(const char *name, const scenario *k) {
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    rcv_cell *cell = NULL;
    rcv_net *net = NULL;
    check_ok(rcv_cell_open(context, name, &cell));
    rcv_net_options net_options = k->net; /* tables leave the size out */
    net_options.size = sizeof net_options;
    check_ok(rcv_net_new(cell, &net_options, &net));
    random_source source = {random_seed_of(name)};
    int64_t rows = k->steps * k->batch;
    arrays in = {.parameters = draw(&source, rcv_net_parameter_elements(net), 1 / sqrt((double)k->net.hidden)),
                 .x = draw(&source, rows * k->net.input, 1),
                 .dy = k->bare && k->accumulate ? NULL : draw(&source, rows * rcv_net_output(net), 1)};
    size_t states = rcv_net_state_count(net);
    assert_true(states <= MAX_STATES);
    for (size_t i = 0; i < MAX_STATES && i < states; i++) {
        in.initial[i] = draw(&source, rcv_net_state(net, i)->total * k->batch, 1);
        in.dfinal[i] = draw(&source, rcv_net_state(net, i)->total * k->batch, 1);
    }
    arrays got = {0}, expected = {0};
    bool ran = run(net, k->schedule, k->dtype, k, &in, &got);
    if (ran) {
        assert_true(run(net, "naive", RCV_FLOAT64, k, &in, &expected));
        compare_all(k, name, net, &got, &expected);
    }
    free(in.parameters);
    free(in.x);
    free(in.dy);
    for (size_t i = 0; i < MAX_STATES; i++) {
        free(in.initial[i]);
        free(in.dfinal[i]);
    }
    rcv_net_free(net);
    rcv_cell_free(cell);
    test_context_end(&allocator, context);
    return ran;
}

/* ---- tests ---- */

static const scenario scenarios[] = {
    {.label = "one layer", .net = {.input = 19, .hidden = 24, .layers = 1}, .schedule = "vendor"},
    {.label = "one layer, inference",
     .net = {.input = 19, .hidden = 24, .layers = 1},
     .inference = true,
     .schedule = "vendor"},
    {.label = "three layers", .net = {.input = 24, .hidden = 24, .layers = 3}, .schedule = "vendor+threads(2)"},
    {.label = "three layers, another input",
     .net = {.input = 19, .hidden = 24, .layers = 3},
     .accumulate = true,
     .schedule = "vendor+threads(3)"},
    {.label = "three layers, inference",
     .net = {.input = 19, .hidden = 24, .layers = 3},
     .inference = true,
     .schedule = "vendor+threads(2)"},
    {.label = "both directions",
     .net = {.input = 19, .hidden = 24, .layers = 1, .bidirectional = true},
     .schedule = "vendor"},
    {.label = "both directions, three layers",
     .net = {.input = 24, .hidden = 24, .layers = 3, .bidirectional = true},
     .accumulate = true,
     .schedule = "vendor+threads(2)"},
    {.label = "both directions, inference",
     .net = {.input = 19, .hidden = 24, .layers = 2, .bidirectional = true},
     .inference = true,
     .schedule = "vendor"},
    {.label = "no bias", .net = {.input = 19, .hidden = 24, .layers = 2, .no_bias = true}, .schedule = "vendor"},
    {.label = "nothing optional", .net = {.input = 19, .hidden = 24, .layers = 3}, .bare = true, .schedule = "vendor"},
    {.label = "nothing optional but dparameters",
     .net = {.input = 19, .hidden = 24, .layers = 2},
     .bare = true,
     .accumulate = true,
     .schedule = "vendor"},
    {.label = "nothing optional, inference",
     .net = {.input = 24, .hidden = 24, .layers = 2},
     .bare = true,
     .inference = true,
     .schedule = "vendor"},
};
enum { SCENARIOS = sizeof scenarios / sizeof *scenarios };

static void test_float(void **state) {
    (void)state;
    if (!is_there()) skip();
    for (int c = 0; c < CELLS; c++) {
        for (int i = 0; i < SCENARIOS; i++) {
            scenario k = scenarios[i];
            k.steps = 6, k.batch = 5;
            if (!check(cells[c], &k)) fail_msg("%s, %s: %s", cells[c], k.label, rcv_message());
        }
        scenario smallest = {
            .label = "one step, one sequence", .net = {.input = 1, .hidden = 1, .layers = 2}, .steps = 1, .batch = 1};
        smallest.schedule = "vendor+threads(2)";
        assert_true(check(cells[c], &smallest));
    }
}

/* Not every CPU supports bfloat16, or supports it in every pass. */
static void test_bfloat16(void **state) {
    (void)state;
    if (!is_there()) skip();
    int ran = 0;
    for (int c = 0; c < CELLS; c++) {
        for (int i = 0; i < SCENARIOS; i++) {
            scenario k = scenarios[i];
            k.steps = 6, k.batch = 5;
            k.dtype = RCV_BFLOAT16;
            if (check(cells[c], &k)) {
                ran++;
            } else {
                assert_non_null(strstr(rcv_message(), "in bfloat16 for this CPU"));
            }
        }
    }
    print_message("bfloat16: %d of %d by %s\n", ran, CELLS * SCENARIOS, rcvi_vendor_name());
}

static const char lookalike[] = "cell lstm(x) {\n"
                                "    state h, c\n"
                                "    vector d as bias_hh\n"
                                "    i = sigmoid(W x + b + U h + d)\n"
                                "    f = sigmoid(W x + b + U h + d)\n"
                                "    g = tanh(W x + b + U h + d)\n"
                                "    o = sigmoid(W x + b + U h + d)\n"
                                "    c' = f * c + (1 - f) * g + 0 * i\n"
                                "    h' = o * tanh(c')\n"
                                "    return h'\n"
                                "}\n";
static const char renamed[] = "# a comment\n"
                              "cell elman(x) {\n"
                              "    state h\n"
                              "    vector d as bias_hh\n"
                              "    h' = tanh((W x + b) + U h + d)\n"
                              "    return h'\n"
                              "}\n";

typedef struct {
    const char *cell, *text; /* a built-in, or a text */
    rcv_net_options net;
    rcv_plan_options plan;
    const char *sentence; /* part of the message of the refusal; NULL: the schedule applies */
} request;

static const request requests[] = {
    {.cell = "lstm"},
    {.text = renamed},
    {.text = lookalike, .sentence = "the equations of lstm are others"},
    {.cell = "gru_original", .sentence = "the equations of gru_original are others"},
    {.cell = "lstm_proj", .sentence = "the equations of lstm_proj are others"},
    {.cell = "lstm", .plan = {.dtype = RCV_FLOAT64}, .sentence = "not in float64"},
    {.cell = "lstm", .plan = {.lengths = true}, .sentence = "sequences of one length"},
    {.cell = "lstm", .plan = {.resets = true}, .sentence = "no resets"},
    {.cell = "lstm", .net = {.rank = 2}, .sentence = "no low-rank weights"},
    {.cell = "lstm", .net = {.dropout = 0.5, .layers = 2}, .plan = {.training = true}, .sentence = "no dropout"},
    {.cell = "lstm", .net = {.dropout = 0.5, .layers = 2}},
    {.cell = "lstm", .net = {.dropout = 0.5}, .plan = {.training = true}},
    {.cell = "lstm", .net = {.zoneout = 0.5}, .plan = {.training = true}, .sentence = "does not zone out"},
    {.cell = "lstm", .net = {.zoneout = 0.5}, .sentence = "does not zone out"},
    {.cell = "lstm", .plan = {.steps = 1 << 20, .batch = 1 << 12}, .sentence = "in 32 bits"},
    {.cell = "lstm", .plan = {.schedule = "vendor+fuse"}, .sentence = "but not fuse"},
    {.cell = "lstm", .plan = {.schedule = "vendor+combine"}, .sentence = "but not combine"},
    {.cell = "lstm", .plan = {.schedule = "vendor+pack"}, .sentence = "but not pack"},
    {.cell = "lstm", .plan = {.schedule = "vendor+transpose"}, .sentence = "but not transpose"},
    {.cell = "lstm", .plan = {.schedule = "vendor+graph"}, .sentence = "it takes threads, but not graph"},
    {.cell = "lstm", .plan = {.schedule = "vendor(algorithm=1)"}, .sentence = "no algorithms to choose from"},
    {.cell = "lstm",
     .plan = {.schedule = "vendor+recompute(every=2)", .training = true},
     .sentence = "but not recompute"},
};

static void test_refusals(void **state) {
    (void)state;
    if (!is_there()) skip();
    for (size_t i = 0; i < sizeof requests / sizeof *requests; i++) {
        test_allocator allocator;
        rcv_context *context = test_context(&allocator);
        rcv_cell *cell = NULL;
        rcv_net *net = NULL;
        rcv_plan *plan = NULL;
        const request *r = &requests[i];
        if (r->cell) check_ok(rcv_cell_open(context, r->cell, &cell));
        if (r->text) check_ok(rcv_cell_parse(context, r->text, strlen(r->text), NULL, &cell));
        rcv_net_options net_options = r->net;
        net_options.size = sizeof net_options;
        net_options.input = 3, net_options.hidden = 4;
        check_ok(rcv_net_new(cell, &net_options, &net));
        rcv_plan_options options = r->plan;
        options.size = sizeof options;
        if (!options.steps) options.steps = 2, options.batch = 2;
        if (!options.schedule) options.schedule = "vendor";
        if (r->sentence) {
            check_fails(rcv_plan_new(net, &options, &plan), RCV_UNSUPPORTED, r->sentence);
            assert_null(plan);
        } else {
            check_ok(rcv_plan_new(net, &options, &plan));
        }
        rcv_plan_free(plan);
        rcv_net_free(net);
        rcv_cell_free(cell);
        test_context_end(&allocator, context);
    }
}

/* Refusals of the schedule where the library is cuDNN; they need no GPU. */
static const request gpu_requests[] = {
    {.cell = "lstm"},
    {.cell = "gru", .net = {.bidirectional = true, .no_bias = true}, .plan = {.training = true}},
    {.text = renamed, .plan = {.dtype = RCV_TFLOAT32, .schedule = "vendor+graph"}},
    {.cell = "rnn_relu", .plan = {.dtype = RCV_FLOAT16, .schedule = "vendor(algorithm=3)+graph"}},
    {.cell = "lstm", .plan = {.dtype = RCV_BFLOAT16, .schedule = "vendor(algorithm=2)"}},
    {.cell = "gru_original", .sentence = "cuDNN knows lstm, gru"},
    {.cell = "lstm", .plan = {.dtype = RCV_FLOAT64}, .sentence = "float16, not in float64"},
    {.cell = "lstm", .plan = {.lengths = true}, .sentence = "cuDNN is used for sequences of one length"},
    {.cell = "lstm", .plan = {.resets = true}, .sentence = "cuDNN has no resets"},
    {.cell = "lstm", .net = {.rank = 2}, .sentence = "cuDNN has no low-rank weights"},
    {.cell = "lstm", .net = {.dropout = 0.5, .layers = 2}, .plan = {.training = true}, .sentence = "the same numbers"},
    {.cell = "lstm", .net = {.zoneout = 0.5}, .sentence = "cuDNN does not zone out"},
    {.cell = "lstm", .plan = {.steps = 1 << 20, .batch = 1 << 7}, .sentence = "more than cuDNN counts in 32 bits"},
    {.cell = "lstm", .plan = {.schedule = "vendor+threads(2)"}, .sentence = "it takes graph, but not threads"},
    {.cell = "lstm", .plan = {.schedule = "vendor+streams(2)"}, .sentence = "it takes graph, but not streams"},
    {.cell = "lstm", .plan = {.schedule = "vendor+merge"}, .sentence = "it takes graph, but not merge"},
};

static void check_gpu_request(const request *r, const rcvi_machine *machine) {
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    rcv_cell *cell = NULL;
    rcv_net *net = NULL;
    rcvi_rungs rungs = {0};
    if (r->cell) check_ok(rcv_cell_open(context, r->cell, &cell));
    if (r->text) check_ok(rcv_cell_parse(context, r->text, strlen(r->text), NULL, &cell));
    rcv_net_options net_options = r->net;
    net_options.size = sizeof net_options;
    net_options.input = 3, net_options.hidden = 4;
    check_ok(rcv_net_new(cell, &net_options, &net));
    rcv_plan_options options = r->plan;
    if (!options.steps) options.steps = 2, options.batch = 2;
    check_ok(rcvi_rungs_read(options.schedule ? options.schedule : "vendor", &rungs));
    rcv_status status = rcvi_schedule_vendor.applies(net, &options, &rungs, machine);
    if (r->sentence) {
        check_fails(status, RCV_UNSUPPORTED, r->sentence);
    } else {
        check_ok(status);
    }
    rcv_net_free(net);
    rcv_cell_free(cell);
    test_context_end(&allocator, context);
}

static void test_gpu_refusals(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof gpu_requests / sizeof *gpu_requests; i++)
        check_gpu_request(&gpu_requests[i], &(rcvi_machine){.gpu = true, .vendor = "cuDNN 9.0.0"});
    const request absent = {.cell = "lstm", .sentence = "no library here"};
    check_gpu_request(&absent, &(rcvi_machine){.gpu = true, .no_vendor = "there is no library here"});
}

static void count_offer(void *user, const rcvi_rungs *rungs) {
    int *offers = user;
    assert_true(rungs->vendor);
    assert_int_equal(rungs->threads, 1);
    offers[rungs->algorithm * 2 + rungs->graph]++;
}

static void test_gpu_variants(void **state) {
    (void)state;
    static const struct {
        rcv_dtype dtype;
        int64_t batch, hidden;
        rcv_effort effort;
        int expected[8]; /* of every algorithm, without a graph and with it */
    } cases[] = {
        {RCV_FLOAT32, 4, 128, RCV_MEASURE, {0, 1, 0, 1, 0, 1, 0, 1}},
        {RCV_FLOAT32, 4, 1024, RCV_MEASURE, {0, 1, 0, 1, 0, 1, 0, 0}},
        {RCV_FLOAT32, 16, 1024, RCV_MEASURE, {0, 1, 0, 0, 0, 1, 0, 0}},
        {RCV_FLOAT16, 64, 128, RCV_MEASURE, {0, 1, 0, 0, 0, 0, 0, 1}},
        {RCV_TFLOAT32, 64, 512, RCV_MEASURE, {0, 1, 0, 0, 0, 0, 0, 0}},
        {RCV_BFLOAT16, 4, 128, RCV_MEASURE, {0, 1, 0, 0, 0, 0, 0, 0}},
        {RCV_BFLOAT16, 64, 1024, RCV_EXHAUSTIVE, {0, 1, 0, 1, 0, 1, 0, 1}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int offers[8] = {0};
        rcv_net net = {.options = {.hidden = cases[i].hidden}};
        rcv_plan_options options =
            RCV_INIT(rcv_plan_options, .dtype = cases[i].dtype, .batch = cases[i].batch, .effort = cases[i].effort);
        rcvi_schedule_vendor.variants(&net, &options, &(rcvi_machine){.gpu = true, .threads = 8}, count_offer, offers);
        assert_memory_equal(offers, cases[i].expected, sizeof offers);
    }
}

static void test_absence(void **state) {
    (void)state;
    if (rcvi_vendor_name()) skip();
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    rcv_cell *cell = NULL;
    rcv_net *net = NULL;
    rcv_plan *plan = NULL;
    check_ok(rcv_cell_open(context, "lstm", &cell));
    rcv_net_options net_options = RCV_INIT(rcv_net_options, .input = 3, .hidden = 4);
    check_ok(rcv_net_new(cell, &net_options, &net));
    rcv_plan_options options = RCV_INIT(rcv_plan_options, .steps = 2, .batch = 2, .schedule = "vendor");
    check_fails(rcv_plan_new(net, &options, &plan), RCV_UNSUPPORTED, "this build has no oneDNN");
    options.no_vendor = true;
    check_fails(rcv_plan_new(net, &options, &plan), RCV_UNSUPPORTED, "is to do without oneDNN");
    rcv_net_free(net);
    rcv_cell_free(cell);
    test_context_end(&allocator, context);
}

/* Every allocation of planning and of a run fails once; nothing leaks. */
static void test_no_memory(void **state) {
    (void)state;
    if (!is_there()) skip();
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    rcv_cell *cell = NULL;
    rcv_net *net = NULL;
    check_ok(rcv_cell_open(context, "gru", &cell));
    rcv_net_options net_options = RCV_INIT(rcv_net_options, .input = 3, .hidden = 4, .layers = 2);
    check_ok(rcv_net_new(cell, &net_options, &net));
    rcv_plan_options options =
        RCV_INIT(rcv_plan_options, .steps = 2, .batch = 2, .training = true, .schedule = "vendor");
    size_t live = allocator.live, failures = 0;
    for (size_t nth = 1;; nth++) {
        rcv_plan *plan = NULL;
        rcv_run *run = NULL;
        allocator.fail_at = nth;
        allocator.failed = 0;
        rcv_status status = rcv_plan_new(net, &options, &plan);
        if (!status) status = rcv_run_new(plan, &run);
        bool fired = allocator.failed != 0;
        allocator.fail_at = 0;
        rcv_run_free(run);
        rcv_plan_free(plan);
        assert_int_equal(allocator.live, live);
        if (!fired) {
            check_ok(status);
            break;
        }
        assert_int_equal(status, RCV_NO_MEMORY);
        failures++;
    }
    assert_true(failures > 20);
    rcv_net_free(net);
    rcv_cell_free(cell);
    test_context_end(&allocator, context);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_float),        cmocka_unit_test(test_bfloat16),
                                       cmocka_unit_test(test_refusals),     cmocka_unit_test(test_gpu_refusals),
                                       cmocka_unit_test(test_gpu_variants), cmocka_unit_test(test_absence),
                                       cmocka_unit_test(test_no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
