/* Every built-in cell in every network option: gradients against central differences in double. */
#include "probe.h"
#include "sample.h"

#include <math.h>

enum { MAX_SIZES = 4 };

typedef struct {
    rcv_size sizes[MAX_SIZES];
    char names[MAX_SIZES][65];
    size_t count;
} small_sizes;

/* Every size a cell declares gets a small value: 3 for a projection, else 2, which divides hidden. */
static void shrink_sizes(const rcv_cell *cell, small_sizes *small) {
    rcv_net *net = NULL;
    check_ok(rcv_net_new(cell, &RCV_INIT(rcv_net_options, .input = 3, .hidden = 4), &net));
    const rcv_net_options *options = rcv_net_get_options(net);
    small->count = options->size_count;
    assert_true(small->count <= MAX_SIZES);
    for (size_t i = 0; i < small->count; i++) {
        snprintf(small->names[i], sizeof small->names[i], "%s", options->sizes[i].name);
        small->sizes[i] = (rcv_size){small->names[i], strcmp(small->names[i], "proj") == 0 ? 3 : 2};
    }
    rcv_net_free(net);
}

enum { ELEMENTS = 4 }; /* of a tensor, checked one by one; a direction along all of them sees the others */

/* One bit per option, and which states are given. A cell runs half of the combinations, those with an even number of options or those with an odd
 * one: any four options have all their values in either half. The halves take turns from cell to cell and from states to states. */
enum { LAYERS = 1, BOTH_WAYS = 2, RAGGED = 4, RESETS = 8, LOW_RANK = 16, ALL_OPTIONS = 32 };

static void check_configuration(const rcv_cell *cell, unsigned options, probe_states states, probe_tally *tally) {
    static const char *const given[] = {"zero states", "initial", "restart", "initial and restart"};
    char label[160];
    snprintf(label, sizeof label, "%s (%s, %s, %s, %s, %s, %s)", rcv_cell_name(cell),
             options & LAYERS ? "3 layers" : "1 layer", options & BOTH_WAYS ? "both directions" : "one direction",
             options & RAGGED ? "ragged" : "full", options & RESETS ? "resets" : "no resets", given[states],
             options & LOW_RANK ? "rank 2" : "full matrices");
    small_sizes small;
    shrink_sizes(cell, &small);
    probe_config config = {.net = {.input = 3,
                                   .hidden = 4,
                                   .layers = options & LAYERS ? 3 : 1,
                                   .bidirectional = options & BOTH_WAYS,
                                   .rank = options & LOW_RANK ? 2 : 0,
                                   .sizes = small.sizes,
                                   .size_count = small.count},
                           .steps = 3 + (options & RESETS ? 1 : 0),
                           .batch = 2 + (options & RAGGED ? 1 : 0),
                           .lengths = options & RAGGED,
                           .resets = options & RESETS,
                           .states = states,
                           .seed = random_seed_of(label)};
    probe self;
    probe_open(&self, cell, &config);
    probe_check(&self, ELEMENTS, label, tally);
    probe_close(&self);
}

static void test_cell(void **state) {
    const char *name = *state;
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    rcv_cell *cell = NULL;
    check_ok(rcv_cell_open(context, name, &cell));
    probe_tally tally = {0};
    static size_t index, cells; /* index: over all cells */
    for (unsigned options = 0; options < ALL_OPTIONS; options++) {
        unsigned count = 0; /* of options */
        for (unsigned rest = options; rest; rest &= rest - 1) count++;
        for (int states = STATES_ZERO; states <= (options & RESETS ? STATES_BOTH : STATES_INITIAL); states++) {
            if ((count + (unsigned)states + cells) % 2 != 0 || !sample_takes(index++)) continue;
            check_configuration(cell, options, (probe_states)states, &tally);
        }
    }
    cells++;
    assert_true(tally.checked > sample_least(1000));
    assert_true(tally.skipped * 100 < tally.checked);
    print_message("%s: %zu derivatives, worst relative error %.1e, %zu at a kink\n", name, tally.checked, tally.worst,
                  tally.skipped);
    rcv_cell_free(cell);
    test_context_end(&allocator, context);
}

/* The mask is a function of the seed alone, so a network with dropout has differences like any other. */
static void test_dropout_gradients(void **state) {
    (void)state;
    static const char *const names[] = {"lstm", "sru", "gru"};
    probe_tally tally = {0};
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        rcv_cell *cell = NULL;
        check_ok(rcv_cell_open(context, names[i], &cell));
        probe_config config = {.net = {.input = 3, .hidden = 5, .layers = 3, .bidirectional = i > 0, .dropout = 0.4},
                               .steps = 3,
                               .batch = 3,
                               .lengths = true,
                               .resets = true,
                               .states = STATES_BOTH,
                               .seed = 17 + i};
        probe self;
        probe_open(&self, cell, &config);
        probe_check(&self, 12, names[i], &tally);
        probe_close(&self);
        rcv_cell_free(cell);
    }
    assert_true(tally.checked > 500);
    test_context_end(&allocator, context);
}

static const char copy_text[] = "# Returns its input\n"
                                "cell copy(x) {\n"
                                "    state h\n"
                                "    vector v = 1\n"
                                "    h' = v * shortcut(x)\n"
                                "    return h'\n"
                                "}\n";

enum { DROP_STEPS = 20, DROP_BATCH = 10, DROP_SIZE = 16, DROP_COUNT = DROP_STEPS * DROP_BATCH * DROP_SIZE };

static rcv_run *copy_run(rcv_net *net, bool training, rcv_plan **plan) {
    rcv_run *run = NULL;
    rcv_plan_options options = RCV_INIT(rcv_plan_options, .steps = DROP_STEPS, .batch = DROP_BATCH,
                                        .dtype = RCV_FLOAT64, .training = training, .schedule = "naive");
    check_ok(rcv_plan_new(net, &options, plan));
    check_ok(rcv_run_new(*plan, &run));
    return run;
}

/* Two layers that copy their input: y is the dropout mask between them, 0 or x / (1 - p). */
static void test_dropout_mask(void **state) {
    (void)state;
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    rcv_cell *cell = NULL;
    rcv_net *net = NULL;
    check_ok(rcv_cell_parse(context, copy_text, strlen(copy_text), "copy.cell", &cell));
    rcv_net_options options =
        RCV_INIT(rcv_net_options, .input = DROP_SIZE, .hidden = DROP_SIZE, .layers = 2, .dropout = 0.25);
    check_ok(rcv_net_new(cell, &options, &net));
    double *parameters = calloc((size_t)rcv_net_parameter_elements(net) + 1, sizeof(double));
    double *x = calloc(DROP_COUNT, sizeof(double)), *y = calloc(DROP_COUNT, sizeof(double));
    double *again = calloc(DROP_COUNT, sizeof(double));
    assert_true(parameters && x && y && again);
    check_ok(rcv_net_initialize(net, 1, RCV_FLOAT64, parameters));
    for (int i = 0; i < DROP_COUNT; i++) x[i] = 1 + i;

    rcv_plan *plan = NULL;
    rcv_run *run = copy_run(net, true, &plan);
    rcv_forward data = RCV_INIT(rcv_forward, .parameters = parameters, .x = x, .y = y, .seed = 3);
    check_ok(rcv_run_forward(run, &data));
    int dropped = 0;
    for (int i = 0; i < DROP_COUNT; i++) {
        if (y[i] == 0)
            dropped++;
        else if (fabs(y[i] - x[i] / 0.75) > 1e-12 * x[i])
            fail_msg("y[%d] is %g", i, y[i]);
    }
    assert_true(dropped > DROP_COUNT * 0.22 && dropped < DROP_COUNT * 0.28);
    data.y = again;
    check_ok(rcv_run_forward(run, &data));
    assert_memory_equal(y, again, DROP_COUNT * sizeof(double)); /* the same seed, the same mask */
    data.seed = 4;
    check_ok(rcv_run_forward(run, &data));
    assert_memory_not_equal(y, again, DROP_COUNT * sizeof(double));
    rcv_run_free(run);
    rcv_plan_free(plan);

    run = copy_run(net, false, &plan);
    check_ok(rcv_run_forward(run, &data));
    assert_memory_equal(x, again, DROP_COUNT * sizeof(double)); /* dropout acts in training only */
    rcv_run_free(run);
    rcv_plan_free(plan);
    free(parameters);
    free(x);
    free(y);
    free(again);
    rcv_net_free(net);
    rcv_cell_free(cell);
    test_context_end(&allocator, context);
}

/* accumulate adds to dparameters; outputs that are not wanted may be left out, missing dy and dfinal count as zeros. */
static void test_accumulate(void **state) {
    (void)state;
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    rcv_cell *cell = NULL;
    check_ok(rcv_cell_open(context, "lstm", &cell));
    probe_config config = {.net = {.input = 3, .hidden = 4, .layers = 2}, .steps = 4, .batch = 2, .seed = 23};
    probe self;
    probe_open(&self, cell, &config);
    probe_gradients(&self);
    double *sum = malloc((size_t)self.parameter_count * sizeof(double));
    assert_non_null(sum);
    for (int64_t i = 0; i < self.parameter_count; i++) sum[i] = (double)i;
    rcv_backward only_y = RCV_INIT(rcv_backward, .dy = self.dy, .dparameters = sum, .accumulate = true);
    rcv_backward only_final =
        RCV_INIT(rcv_backward, .dfinal = (const void *const *)self.dfinal, .dparameters = sum, .accumulate = true);
    probe_loss(&self);
    check_ok(rcv_run_backward(self.run, &only_y));
    probe_loss(&self);
    check_ok(rcv_run_backward(self.run, &only_final));
    for (int64_t i = 0; i < self.parameter_count; i++) {
        assert_true(fabs(sum[i] - (double)i - self.dparameters[i]) < 1e-9);
    }
    probe_loss(&self);
    check_ok(rcv_run_backward(self.run, &RCV_INIT(rcv_backward, .dparameters = sum)));
    for (int64_t i = 0; i < self.parameter_count; i++) assert_true(sum[i] == 0);
    free(sum);
    probe_close(&self);
    rcv_cell_free(cell);
    test_context_end(&allocator, context);
}

int main(void) {
    size_t cells = rcv_builtin_count();
    struct CMUnitTest *tests = calloc(cells + 3, sizeof *tests);
    if (!tests || cells < 19) return 1;
    for (size_t i = 0; i < cells; i++) {
        tests[i] = (struct CMUnitTest){
            .name = rcv_builtin_name(i), .test_func = test_cell, .initial_state = (void *)rcv_builtin_name(i)};
    }
    tests[cells] = (struct CMUnitTest)cmocka_unit_test(test_dropout_gradients);
    tests[cells + 1] = (struct CMUnitTest)cmocka_unit_test(test_dropout_mask);
    tests[cells + 2] = (struct CMUnitTest)cmocka_unit_test(test_accumulate);
    int failed = _cmocka_run_group_tests("gradients", tests, cells + 3, NULL, NULL);
    free(tests);
    return failed;
}
