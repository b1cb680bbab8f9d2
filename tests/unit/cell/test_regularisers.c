/* Variational dropout (one mask for all steps) and zoneout: their masks, inference, and gradients against central differences. test_candidates and
 * test_deferred_gradients compare the schedules. */
#include "probe.h"
#include "sample.h"
#include "scratch.h"

#include <math.h>

enum { STEPS = 12, BATCH = 5, SIZE = 16, ROW = BATCH * SIZE, COUNT = STEPS * ROW };

static const char copy_text[] = "# Returns its input\n"
                                "cell copy(x) {\n"
                                "    state h\n"
                                "    vector v = 1\n"
                                "    h' = v * shortcut(x)\n"
                                "    return h'\n"
                                "}\n";

static const char twice_text[] = "# Returns twice its state, and keeps what came before\n"
                                 "cell twice(x) {\n"
                                 "    state h\n"
                                 "    vector v = 1\n"
                                 "    h' = v * shortcut(x) + 0 * mean(x[t-1])\n"
                                 "    return 2 * h'\n"
                                 "}\n";

typedef struct {
    test_allocator allocator;
    rcv_context *context;
    rcv_cell *cell;
} world;

static void open_world(world *w, const char *name, const char *text) {
    w->context = test_context(&w->allocator);
    w->cell = NULL;
    check_ok(text ? rcv_cell_parse(w->context, text, strlen(text), name, &w->cell)
                  : rcv_cell_open(w->context, name, &w->cell));
}

static void close_world(world *w) {
    rcv_cell_free(w->cell);
    test_context_end(&w->allocator, w->context);
}

/* One forward call of a plan of its own in double; parameters are the first values of seed 1. */
typedef struct {
    rcv_net_options net;
    int64_t steps, batch;
    bool training;
    const char *schedule;
    uint64_t seed;
    const int64_t *lengths;
    const double *x;
    const double *initial[2];
    double *y, *final[2];
} call;

static void forward(const world *w, const call *c) {
    rcv_net *net = NULL;
    rcv_plan *plan = NULL;
    rcv_run *run = NULL;
    check_ok(rcv_net_new(w->cell, &c->net, &net));
    assert_true(rcv_net_state_count(net) <= 2);
    rcv_plan_options options =
        RCV_INIT(rcv_plan_options, .steps = c->steps, .batch = c->batch, .dtype = RCV_FLOAT64, .training = c->training,
                 .lengths = c->lengths != NULL, .schedule = c->schedule ? c->schedule : "naive");
    check_ok(rcv_plan_new(net, &options, &plan));
    check_ok(rcv_run_new(plan, &run));
    double *parameters = calloc((size_t)rcv_net_parameter_elements(net) + 1, sizeof *parameters);
    assert_non_null(parameters);
    check_ok(rcv_net_initialize(net, 1, RCV_FLOAT64, parameters));
    const void *initial[2] = {c->initial[0], c->initial[1]};
    void *final[2] = {c->final[0], c->final[1]};
    rcv_forward data = RCV_INIT(rcv_forward, .parameters = parameters, .x = c->x, .lengths = c->lengths,
                                .initial = initial, .y = c->y, .final = final, .seed = c->seed);
    check_ok(rcv_run_forward(run, &data));
    free(parameters);
    rcv_run_free(run);
    rcv_plan_free(plan);
    rcv_net_free(net);
}

static void count_up(double *x, int count) {
    for (int i = 0; i < count; i++) x[i] = 1 + i;
}

/* ---- dropout over time ---- */

static bool are_zeros_alike(const double *a, const double *b, int count) {
    for (int i = 0; i < count; i++) {
        if ((a[i] == 0) != (b[i] == 0)) return false;
    }
    return true;
}

static bool is_alike_over_time(const double *y) {
    for (int t = 1; t < STEPS; t++) {
        if (!are_zeros_alike(y, y + t * ROW, ROW)) return false;
    }
    return true;
}

/* Layers that copy their input: y is the product of the masks between them. */
static void test_variational_masks(void **state) {
    (void)state;
    world w;
    open_world(&w, "copy.cell", copy_text);
    static double x[COUNT], y[COUNT], other[COUNT];
    count_up(x, COUNT);
    static const char *const plans[] = {"naive", "combine(steps=3)+fuse+pack", "fuse+transpose+threads(2)",
                                        "combine(steps=2)+fuse+pack+recompute(every=2)"};
    call c = {.net = {.size = sizeof(rcv_net_options),
                      .input = SIZE,
                      .hidden = SIZE,
                      .layers = 2,
                      .dropout = 0.25,
                      .variational = true},
              .steps = STEPS,
              .batch = BATCH,
              .training = true,
              .seed = 3,
              .x = x,
              .y = y};
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        c.schedule = plans[i];
        forward(&w, &c);
        int dropped = 0;
        for (int k = 0; k < COUNT; k++) {
            dropped += y[k] == 0;
            if (y[k] != 0 && fabs(y[k] - x[k] / 0.75) > 1e-12 * x[k]) fail_msg("%s: y[%d] is %g", plans[i], k, y[k]);
        }
        assert_true(dropped > COUNT * 0.1 && dropped < COUNT * 0.4);
        assert_true(is_alike_over_time(y));
        for (int b = 1; b < BATCH; b++) assert_false(are_zeros_alike(y, y + b * SIZE, SIZE));
        if (i) assert_true(are_zeros_alike(y, other, COUNT)); /* what naive left */
        memcpy(other, y, sizeof y);
    }
    c.y = other;
    c.seed = 4;
    forward(&w, &c);
    assert_true(is_alike_over_time(other) && !are_zeros_alike(y, other, ROW)); /* another seed */
    c.seed = 3;
    c.net.layers = 3;
    forward(&w, &c);
    assert_true(is_alike_over_time(other) && !are_zeros_alike(y, other, ROW)); /* a mask of its own on top */
    for (int k = 0; k < COUNT; k++) assert_true(y[k] != 0 || other[k] == 0);
    c.net.layers = 2;
    c.net.variational = false;
    forward(&w, &c);
    assert_true(are_zeros_alike(y, other, ROW) && !is_alike_over_time(other));
    c.training = false;
    c.net.variational = true;
    c.schedule = NULL;
    forward(&w, &c);
    assert_memory_equal(x, other, sizeof x);
    close_world(&w);
}

/* Everything is dropped: layers above the first read zeros, whatever the first computes, and its gradients are zeros. */
static void test_dropout_of_all(void **state) {
    (void)state;
    world w;
    open_world(&w, "copy.cell", copy_text);
    static double x[COUNT], y[COUNT], dy[COUNT], dx[COUNT], parameters[2 * SIZE], gradients[2 * SIZE];
    static const char *const plans[] = {"naive", "combine(steps=3)+fuse+pack", "fuse+transpose+threads(2)",
                                        "combine(steps=2)+fuse+pack+recompute(every=2)"};
    count_up(x, COUNT);
    count_up(dy, COUNT);
    x[3] = INFINITY;
    x[ROW] = 0;
    rcv_net_options options = RCV_INIT(rcv_net_options, .input = SIZE, .hidden = SIZE, .layers = 2, .dropout = 1);
    for (size_t i = 0; i < 2 * sizeof plans / sizeof *plans; i++) {
        rcv_net *net = NULL;
        rcv_plan *plan = NULL;
        rcv_run *run = NULL;
        options.variational = i % 2;
        check_ok(rcv_net_new(w.cell, &options, &net));
        assert_int_equal(rcv_net_parameter_elements(net), 2 * SIZE);
        check_ok(rcv_net_initialize(net, 1, RCV_FLOAT64, parameters));
        rcv_plan_options planned = RCV_INIT(rcv_plan_options, .steps = STEPS, .batch = BATCH, .dtype = RCV_FLOAT64,
                                            .training = true, .schedule = plans[i / 2]);
        check_ok(rcv_plan_new(net, &planned, &plan));
        check_ok(rcv_run_new(plan, &run));
        memset(y, -1, sizeof y);
        memset(dx, -1, sizeof dx);
        memset(gradients, -1, sizeof gradients);
        rcv_forward data = RCV_INIT(rcv_forward, .parameters = parameters, .x = x, .y = y, .seed = 3);
        rcv_backward back = RCV_INIT(rcv_backward, .dy = dy, .dx = dx, .dparameters = gradients);
        check_ok(rcv_run_forward(run, &data));
        for (int k = 0; k < COUNT; k++) assert_true(y[k] == 0);
        x[3] = 4; /* 0 * inf is a NaN in any network's gradients */
        check_ok(rcv_run_forward(run, &data));
        check_ok(rcv_run_backward(run, &back));
        for (int k = 0; k < COUNT; k++) assert_true(dx[k] == 0);
        for (int k = 0; k < 2 * SIZE; k++) assert_true(gradients[k] == 0);
        x[3] = INFINITY;
        rcv_run_free(run);
        rcv_plan_free(plan);
        rcv_net_free(net);
    }
    close_world(&w);
}

/* ---- zoneout ---- */

/* A state that copies its input: in training it is the input, or its previous value. */
static void test_zoneout_masks(void **state) {
    (void)state;
    world w;
    open_world(&w, "copy.cell", copy_text);
    static double x[COUNT], y[COUNT], first[COUNT], before[ROW], last[ROW];
    count_up(x, COUNT);
    for (int i = 0; i < ROW; i++) before[i] = -1 - i;
    static const char *const plans[] = {"naive", "combine(steps=3)+fuse+pack", "fuse+transpose+threads(2)", "scan+fuse",
                                        "combine(steps=2)+fuse+pack+recompute(every=2)"};
    call c = {.net = {.size = sizeof(rcv_net_options), .input = SIZE, .hidden = SIZE, .layers = 1, .zoneout = 0.25},
              .steps = STEPS,
              .batch = BATCH,
              .training = true,
              .seed = 3,
              .x = x,
              .initial = {before},
              .y = y,
              .final = {last}};
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        c.schedule = plans[i];
        forward(&w, &c);
        int kept = 0;
        for (int k = 0; k < COUNT; k++) {
            double was = k < ROW ? before[k] : y[k - ROW];
            kept += y[k] == was;
            if (y[k] != was && y[k] != x[k]) fail_msg("%s: y[%d] is %g", plans[i], k, y[k]);
        }
        assert_true(kept > COUNT * 0.2 && kept < COUNT * 0.3);
        assert_memory_equal(last, y + COUNT - ROW, sizeof last);
        if (!i) memcpy(first, y, sizeof y);
        assert_memory_equal(first, y, sizeof y);
    }
    c.seed = 4;
    forward(&w, &c);
    assert_memory_not_equal(first, y, sizeof y);
    close_world(&w);
}

/* A row past its end keeps its state, whatever the mask says. */
static void test_zoneout_lengths(void **state) {
    (void)state;
    world w;
    open_world(&w, "copy.cell", copy_text);
    static double x[COUNT], y[COUNT], whole[COUNT], last[ROW];
    static const int64_t lengths[BATCH] = {STEPS, 1, 7, STEPS, 4};
    count_up(x, COUNT);
    call c = {.net = {.size = sizeof(rcv_net_options), .input = SIZE, .hidden = SIZE, .layers = 1, .zoneout = 0.25},
              .steps = STEPS,
              .batch = BATCH,
              .seed = 3,
              .x = x,
              .y = whole};
    for (int training = 0; training < 2; training++) {
        c.training = training;
        c.lengths = NULL;
        c.y = whole;
        c.final[0] = NULL;
        forward(&w, &c);
        c.lengths = lengths;
        c.y = y;
        c.final[0] = last;
        forward(&w, &c);
        for (int b = 0; b < BATCH; b++) {
            for (int i = 0; i < SIZE; i++) {
                int64_t at = b * SIZE + i;
                for (int t = 0; t < STEPS; t++)
                    assert_true(y[t * ROW + at] == (t < lengths[b] ? whole[t * ROW + at] : 0));
                assert_true(last[at] == whole[(lengths[b] - 1) * ROW + at]);
            }
        }
    }
    close_world(&w);
}

/* y is computed from the state after zoneout. A lag has no zoneout: it is the value of the previous step. */
static void test_zoneout_of_output(void **state) {
    (void)state;
    world w;
    open_world(&w, "twice.cell", twice_text);
    static double x[COUNT], y[COUNT], states[2][ROW];
    count_up(x, COUNT);
    for (int training = 0; training < 2; training++) {
        call c = {.net = {.size = sizeof(rcv_net_options), .input = SIZE, .hidden = SIZE, .layers = 1, .zoneout = 0.5},
                  .steps = STEPS,
                  .batch = BATCH,
                  .training = training,
                  .x = x,
                  .y = y,
                  .final = {states[0], states[1]}};
        forward(&w, &c);
        rcv_net *net = NULL;
        check_ok(rcv_net_new(w.cell, &c.net, &net));
        assert_int_equal(rcv_net_state_count(net), 2);
        int lag = !strcmp(rcv_net_state(net, 1)->name, "x[t-1]");
        assert_string_equal(rcv_net_state(net, (size_t)lag)->name, "x[t-1]");
        assert_memory_equal(states[lag], x + COUNT - ROW, sizeof states[lag]);
        assert_memory_not_equal(states[!lag], states[lag], sizeof states[lag]);
        for (int i = 0; i < ROW; i++) assert_true(y[COUNT - ROW + i] == 2 * states[!lag][i]);
        rcv_net_free(net);
    }
    close_world(&w);
}

/* One step of an LSTM in training: each of its states is what it was or what it would have become, by a mask of its own; h
 * becomes what the cell makes of a memory that did not zone out. */
static void test_zoneout_of_states(void **state) {
    (void)state;
    enum { MANY = 40 };
    world w;
    open_world(&w, "lstm", NULL);
    static double x[MANY * 3], y[MANY * 3], before[2][MANY * 3], plain[2][MANY * 3], zoned[2][MANY * 3];
    random_source source = {5};
    for (int i = 0; i < MANY * 3; i++) {
        x[i] = random_between(&source, -1, 1);
        before[0][i] = random_between(&source, -1, 1);
        before[1][i] = random_between(&source, -1, 1);
    }
    call c = {.net = {.size = sizeof(rcv_net_options), .input = 3, .hidden = 3, .layers = 1},
              .steps = 1,
              .batch = MANY,
              .training = true,
              .x = x,
              .y = y,
              .initial = {before[0], before[1]},
              .final = {plain[0], plain[1]}};
    forward(&w, &c);
    c.net.zoneout = 0.5;
    c.final[0] = zoned[0], c.final[1] = zoned[1];
    forward(&w, &c);
    int seen[4] = {0}; /* by which of the states are new */
    for (int i = 0; i < MANY * 3; i++) {
        int fresh = 0;
        for (int s = 0; s < 2; s++) {
            fresh += (zoned[s][i] != before[s][i]) << s;
            if (zoned[s][i] != before[s][i] && zoned[s][i] != plain[s][i]) fail_msg("state %d of %d", s, i);
        }
        seen[fresh]++;
    }
    for (int k = 0; k < 4; k++) assert_true(seen[k] > MANY * 3 / 10);
    assert_memory_equal(y, zoned[0], sizeof y);
    close_world(&w);
}

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* An LSTM of one unit in inference, by hand: the means of what its states may become. */
static void test_zoneout_mean(void **state) {
    (void)state;
    enum { LONG = 6 };
    world w;
    open_world(&w, "lstm", NULL);
    static const char *const plans[] = {"naive", "kernels", "combine(steps=4)+fuse+pack", "combine+fuse+transpose"};
    const double keep = 0.3, x[LONG] = {0.5, -1, 2, 0.25, -0.75, 1}, h0 = 0.4, c0 = -0.6;
    double y[LONG], p[16] = {0}, last[2], part[LONG];
    rcv_net *net = NULL;
    call c = {.net = {.size = sizeof(rcv_net_options), .input = 1, .hidden = 1, .layers = 1, .zoneout = keep},
              .steps = LONG,
              .batch = 1,
              .x = x,
              .initial = {&h0, &c0},
              .y = y,
              .final = {&last[0], &last[1]}};
    check_ok(rcv_net_new(w.cell, &c.net, &net));
    assert_int_equal(rcv_net_parameter_elements(net), 16); /* weights of x, of h, two biases; i, f, g, o */
    check_ok(rcv_net_initialize(net, 1, RCV_FLOAT64, p));
    rcv_net_free(net);
    for (size_t k = 0; k < sizeof plans / sizeof *plans; k++) {
        c.schedule = plans[k];
        forward(&w, &c);
        double h = h0, m = c0;
        for (int t = 0; t < LONG; t++) {
            double gate[4];
            for (int g = 0; g < 4; g++) gate[g] = p[g] * x[t] + p[4 + g] * h + p[8 + g] + p[12 + g];
            double fresh = sigmoid(gate[1]) * m + sigmoid(gate[0]) * tanh(gate[2]);
            h = keep * h + (1 - keep) * sigmoid(gate[3]) * tanh(fresh);
            m = keep * m + (1 - keep) * fresh;
            if (fabs(y[t] - h) > 1e-12) fail_msg("%s: y[%d] is %.17g, not %.17g", plans[k], t, y[t], h);
        }
        assert_true(last[0] == y[LONG - 1] && fabs(last[1] - m) < 1e-12);
        double carried[2]; /* two calls with states handed on are one */
        call one = c, two = c;
        one.steps = 2, two.steps = LONG - 2;
        one.y = part, two.y = part + 2;
        one.final[0] = &carried[0], one.final[1] = &carried[1];
        two.x = x + 2;
        two.initial[0] = &carried[0], two.initial[1] = &carried[1];
        forward(&w, &one);
        forward(&w, &two);
        assert_memory_equal(part, y, sizeof y);
    }
    close_world(&w);
}

/* ---- gradients ---- */

/* Masks are a function of the seed alone, so differences are those of any network. */
static void test_gradients(void **state) {
    (void)state;
    static const char *const cells[] = {"lstm", "gru", "sru", "qrnn_fo_w2", "lstm_layernorm"};
    static const char *const plans[] = {"naive",
                                        "combine+fuse+transpose",
                                        "combine(steps=2)+fuse+pack",
                                        "combine(steps=2)+fuse+pack+scan",
                                        "combine(steps=2)+fuse+pack+recompute(every=2)",
                                        "combine(steps=all,forward=2)+fuse+pack+threads(2)"};
    enum { CELLS = sizeof cells / sizeof *cells, PLANS = sizeof plans / sizeof *plans };
    probe_tally tally = {0};
    for (size_t i = 0; i < CELLS; i++) {
        world w;
        open_world(&w, cells[i], NULL);
        for (size_t k = 0; k < 4 * PLANS; k++) {
            if (!sample_takes(4 * PLANS * i + k)) continue;
            char label[160];
            bool variational = k & 1, lengths = k & 2;
            probe_config config = {.net = {.size = sizeof(rcv_net_options),
                                           .input = 3,
                                           .hidden = 4,
                                           .layers = 2,
                                           .bidirectional = i == 1,
                                           .dropout = variational ? 0.4 : 0,
                                           .variational = variational,
                                           .zoneout = variational && lengths ? 0 : 0.4},
                                   .steps = 4,
                                   .batch = 3,
                                   .lengths = lengths,
                                   .resets = lengths,
                                   .states = lengths ? STATES_BOTH : STATES_INITIAL,
                                   .seed = 17 + k,
                                   .schedule = plans[k / 4]};
            snprintf(label, sizeof label, "%s, %s, dropout %g, zoneout %g%s", cells[i], plans[k / 4],
                     config.net.dropout, config.net.zoneout, lengths ? ", lengths" : "");
            probe self;
            probe_open(&self, w.cell, &config);
            probe_check(&self, 6, label, &tally);
            probe_close(&self);
        }
        close_world(&w);
    }
    assert_true(tally.checked > sample_least(5000));
    assert_true(tally.skipped * 100 < tally.checked);
    print_message("%zu derivatives, worst relative error %.1e, %zu at a kink\n", tally.checked, tally.worst,
                  tally.skipped);
}

/* ---- settings of a run ---- */

static void test_settings(void **state) {
    (void)state;
    static const char *const chosen[][2] = {
        {"hidden", "4"}, {"layers", "2"}, {"dropout", "0.25"}, {"variational", "true"}, {"zoneout", "0.125"}};
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    rcv_settings *settings = NULL;
    rcv_data *data = NULL;
    rcv_learner *learner = NULL;
    char path[512];
    snprintf(path, sizeof path, "%s", path_in("text"));
    FILE *file = fopen(path, "w");
    assert_true(file && fputs("to be or not to be\n", file) >= 0 && fclose(file) == 0);
    check_ok(rcv_settings_new(context, &settings));
    for (size_t i = 0; i < sizeof chosen / sizeof *chosen; i++)
        check_ok(rcv_settings_set(settings, chosen[i][0], chosen[i][1]));
    /* a cache that is not a folder: nothing is stored */
    check_ok(rcv_data_open(context, path, &RCV_INIT(rcv_data_options, .cache = path), &data));
    check_ok(rcv_learner_new(context, settings, data, &learner));
    const rcv_net_options *net = rcv_net_get_options(rcv_learner_net(learner));
    assert_true(net->dropout == 0.25 && net->variational && net->zoneout == 0.125);
    rcv_learner_free(learner);
    rcv_data_free(data);
    rcv_settings_free(settings);
    test_context_end(&allocator, context);
    assert_int_equal(remove(path), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_variational_masks), cmocka_unit_test(test_dropout_of_all),
        cmocka_unit_test(test_zoneout_masks),     cmocka_unit_test(test_zoneout_lengths),
        cmocka_unit_test(test_zoneout_of_output), cmocka_unit_test(test_zoneout_of_states),
        cmocka_unit_test(test_zoneout_mean),      cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_settings)};
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}
