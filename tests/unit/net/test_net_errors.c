/* Invalid networks, plans and runs: each fails with a message. Every allocation may fail. */
#include "memory_faults.h"
#include "probe.h"

#include <math.h>

typedef struct {
    test_allocator allocator;
    rcv_context *context;
    rcv_cell *cell;
    rcv_net *net;
} fixture;

static void set_up(fixture *self, const char *cell, const rcv_net_options *options) {
    self->context = test_context(&self->allocator);
    self->net = NULL;
    check_ok(rcv_cell_open(self->context, cell, &self->cell));
    if (options) check_ok(rcv_net_new(self->cell, options, &self->net));
}

static void tear_down(fixture *self) {
    rcv_net_free(self->net);
    rcv_cell_free(self->cell);
    test_context_end(&self->allocator, self->context);
}

static void check_net(const char *cell, rcv_net_options options, const char *fragment) {
    fixture self;
    set_up(&self, cell, NULL);
    rcv_net *net = (rcv_net *)&self;
    size_t live = self.allocator.live;
    check_fails(rcv_net_new(self.cell, &options, &net), RCV_INVALID, fragment);
    assert_null(net);
    assert_int_equal(self.allocator.live, live);
    tear_down(&self);
}

static void test_nets(void **state) {
    (void)state;
    const int64_t huge = INT64_C(1) << 40;
    check_net("lstm", RCV_INIT(rcv_net_options, .input = 3, .hidden = 0), "hidden");
    check_net("lstm", RCV_INIT(rcv_net_options, .input = 3, .hidden = -4), "hidden");
    check_net("lstm", RCV_INIT(rcv_net_options, .input = 0, .hidden = 4), "input");
    check_net("lstm", RCV_INIT(rcv_net_options, .input = -1, .hidden = 4), "input");
    check_net("lstm", RCV_INIT(rcv_net_options, .input = 3, .hidden = 4, .layers = -1), "layers");
    check_net("lstm", RCV_INIT(rcv_net_options, .input = 3, .hidden = 4, .rank = -1), "rank");
    check_net("lstm", RCV_INIT(rcv_net_options, .input = 3, .hidden = 4, .dropout = 1.001), "dropout");
    check_net("lstm", RCV_INIT(rcv_net_options, .input = 3, .hidden = 4, .dropout = -0.1), "dropout");
    check_net("lstm", RCV_INIT(rcv_net_options, .input = 3, .hidden = 4, .zoneout = 1), "zoneout 1 is not in [0, 1)");
    check_net("lstm", RCV_INIT(rcv_net_options, .input = 3, .hidden = 4, .zoneout = -0.1), "zoneout");
    check_net("lstm", RCV_INIT(rcv_net_options, .input = 3, .hidden = 4, .zoneout = (double)NAN), "zoneout");
    check_net("lstm", RCV_INIT(rcv_net_options, .input = 3, .hidden = 4, .dropout = (double)NAN), "dropout");
    check_net("lstm", RCV_INIT(rcv_net_options, .input = huge, .hidden = huge), "");
    check_net("lstm", RCV_INIT(rcv_net_options, .input = INT64_MAX, .hidden = INT64_MAX), "");
    check_net("lstm", RCV_INIT(rcv_net_options, .input = 3, .hidden = 4, .layers = INT64_MAX), "layers");
    rcv_size sizes[] = {{"hads", 2}, {"heads", 3}, {"heads", 0}, {"heads", -2}, {NULL, 2}, {"heads", INT64_MAX}};
    check_net("slstm", RCV_INIT(rcv_net_options, .input = 3, .hidden = 4, .sizes = sizes, .size_count = 1), "heads");
    check_net("slstm", RCV_INIT(rcv_net_options, .input = 3, .hidden = 4, .sizes = sizes + 1, .size_count = 1),
              "heads");
    check_net("slstm", RCV_INIT(rcv_net_options, .input = 3, .hidden = 4, .sizes = sizes + 2, .size_count = 1),
              "heads");
    check_net("slstm", RCV_INIT(rcv_net_options, .input = 3, .hidden = 4, .sizes = sizes + 3, .size_count = 1),
              "heads");
    check_net("slstm", RCV_INIT(rcv_net_options, .input = 3, .hidden = 4, .sizes = sizes + 4, .size_count = 1), "");
    check_net("slstm", RCV_INIT(rcv_net_options, .input = 3, .hidden = 4, .sizes = sizes + 5, .size_count = 1),
              "heads");
    check_net("lstm", RCV_INIT(rcv_net_options, .input = 3, .hidden = 4, .sizes = sizes + 1, .size_count = 1), "heads");
    check_net("slstm", RCV_INIT(rcv_net_options, .input = 3, .hidden = 4, .size_count = 1), "");
}

static void check_plan(rcv_plan_options options, rcv_status status, const char *fragment) {
    fixture self;
    set_up(&self, "lstm", &RCV_INIT(rcv_net_options, .input = 3, .hidden = 4));
    rcv_plan *plan = (rcv_plan *)&self;
    size_t live = self.allocator.live;
    check_fails(rcv_plan_new(self.net, &options, &plan), status, fragment);
    assert_null(plan);
    assert_int_equal(self.allocator.live, live);
    tear_down(&self);
}

static void test_plans(void **state) {
    (void)state;
    const int64_t huge = INT64_C(1) << 60;
    check_plan(RCV_INIT(rcv_plan_options, .steps = 0, .batch = 2), RCV_INVALID, "step");
    check_plan(RCV_INIT(rcv_plan_options, .steps = -1, .batch = 2), RCV_INVALID, "step");
    check_plan(RCV_INIT(rcv_plan_options, .steps = 2, .batch = 0), RCV_INVALID, "batch");
    check_plan(RCV_INIT(rcv_plan_options, .steps = 2, .batch = -3), RCV_INVALID, "batch");
    check_plan(RCV_INIT(rcv_plan_options, .steps = 2, .batch = 2, .dtype = RCV_INT64), RCV_INVALID, "int64");
    check_plan(RCV_INIT(rcv_plan_options, .steps = 2, .batch = 2, .dtype = RCV_FLOAT16), RCV_UNSUPPORTED,
               "float16 need a GPU");
    check_plan(RCV_INIT(rcv_plan_options, .steps = 2, .batch = 2, .dtype = RCV_TFLOAT32), RCV_UNSUPPORTED,
               "need a GPU");
    check_plan(RCV_INIT(rcv_plan_options, .steps = 2, .batch = 2, .device = "gpu"), RCV_INVALID, "no device 'gpu'");
    check_plan(RCV_INIT(rcv_plan_options, .steps = 2, .batch = 2, .dtype = (rcv_dtype)99), RCV_INVALID, "");
    check_plan(RCV_INIT(rcv_plan_options, .steps = 2, .batch = 2, .schedule = "naiv"), RCV_INVALID, "naive");
    check_plan(RCV_INIT(rcv_plan_options, .steps = 2, .batch = 2, .schedule = ""), RCV_INVALID, "");
    check_plan(RCV_INIT(rcv_plan_options, .steps = huge, .batch = 2), RCV_INVALID, "");
    check_plan(RCV_INIT(rcv_plan_options, .steps = huge, .batch = huge), RCV_INVALID, "");
    check_plan(RCV_INIT(rcv_plan_options, .steps = INT64_MAX, .batch = INT64_MAX), RCV_INVALID, "");
    check_plan(RCV_INIT(rcv_plan_options, .steps = INT64_C(1) << 31, .batch = INT64_C(1) << 31), RCV_INVALID, "");
}

/* A plan may need more memory than there is: it reports the bytes, and only the run fails. */
static void test_memory(void **state) {
    (void)state;
    fixture self;
    set_up(&self, "lstm", &RCV_INIT(rcv_net_options, .input = 3, .hidden = 4));
    rcv_plan *plan = NULL;
    rcv_run *run = (rcv_run *)&self;
    check_ok(rcv_plan_new(
        self.net, &RCV_INIT(rcv_plan_options, .steps = 2, .batch = INT64_C(1) << 42, .schedule = "naive"), &plan));
    assert_true(rcv_plan_bytes(plan) > (size_t)1 << 45);
    check_fails(rcv_run_new(plan, &run), RCV_NO_MEMORY, "");
    assert_null(run);
    rcv_plan_free(plan);
    tear_down(&self);
}

enum { T = 3, B = 2, INPUT = 3, HIDDEN = 4, COUNT = 400 };

typedef struct {
    fixture base;
    rcv_plan *plan;
    rcv_run *run;
    float parameters[COUNT], x[T * B * INPUT], y[T * B * HIDDEN];
    int64_t lengths[B];
    uint8_t resets[T * B];
    rcv_forward data; /* complete and right */
} run_fixture;

static void open_run(run_fixture *self, bool training, bool lengths, bool resets) {
    memset(self, 0, sizeof *self);
    set_up(&self->base, "lstm", &RCV_INIT(rcv_net_options, .input = INPUT, .hidden = HIDDEN));
    assert_true(rcv_net_parameter_elements(self->base.net) <= COUNT);
    check_ok(rcv_net_initialize(self->base.net, 1, RCV_FLOAT32, self->parameters));
    rcv_plan_options options =
        RCV_INIT(rcv_plan_options, .steps = T, .batch = B, .training = training, .lengths = lengths, .resets = resets);
    check_ok(rcv_plan_new(self->base.net, &options, &self->plan));
    check_ok(rcv_run_new(self->plan, &self->run));
    for (int b = 0; b < B; b++) self->lengths[b] = T;
    self->data = RCV_INIT(rcv_forward, .parameters = self->parameters, .x = self->x, .y = self->y,
                          .lengths = lengths ? self->lengths : NULL, .resets = resets ? self->resets : NULL);
}

static void close_run(run_fixture *self) {
    rcv_run_free(self->run);
    rcv_plan_free(self->plan);
    tear_down(&self->base);
}

static void test_forward(void **state) {
    (void)state;
    run_fixture self;
    open_run(&self, false, true, true);
    rcv_forward bad = self.data;
    bad.lengths = NULL;
    check_fails(rcv_run_forward(self.run, &bad), RCV_INVALID, "lengths");
    bad = self.data;
    bad.resets = NULL;
    check_fails(rcv_run_forward(self.run, &bad), RCV_INVALID, "resets");
    bad = self.data;
    bad.parameters = NULL;
    check_fails(rcv_run_forward(self.run, &bad), RCV_INVALID, "parameters");
    bad = self.data;
    bad.x = NULL;
    check_fails(rcv_run_forward(self.run, &bad), RCV_INVALID, "x");
    const int64_t wrong[] = {0, -1, T + 1, INT64_MIN, INT64_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        memset(self.y, 0x55, sizeof self.y);
        self.lengths[1] = wrong[i];
        check_fails(rcv_run_forward(self.run, &self.data), RCV_INVALID, "length");
        for (size_t k = 0; k < sizeof self.y; k++) assert_int_equal(((unsigned char *)self.y)[k], 0x55);
    }
    self.lengths[1] = 1;
    check_ok(rcv_run_forward(self.run, &self.data));
    close_run(&self);

    open_run(&self, false, false, false); /* arguments that the plan does not have are refused */
    bad = self.data;
    bad.lengths = self.lengths;
    check_fails(rcv_run_forward(self.run, &bad), RCV_INVALID, "lengths");
    bad = self.data;
    bad.resets = self.resets;
    check_fails(rcv_run_forward(self.run, &bad), RCV_INVALID, "resets");
    close_run(&self);
}

static void test_backward(void **state) {
    (void)state;
    run_fixture self;
    float dx[T * B * INPUT];
    rcv_backward backward = RCV_INIT(rcv_backward, .dy = self.y, .dx = dx);
    open_run(&self, false, false, false);
    check_ok(rcv_run_forward(self.run, &self.data));
    check_fails(rcv_run_backward(self.run, &backward), RCV_INVALID, "training");
    close_run(&self);
    open_run(&self, true, false, false);
    check_fails(rcv_run_backward(self.run, &backward), RCV_INVALID, "forward");
    check_ok(rcv_run_forward(self.run, &self.data));
    check_ok(rcv_run_backward(self.run, &backward));
    float first[T * B * INPUT]; /* a backward call may be repeated */
    memcpy(first, dx, sizeof first);
    memset(dx, 0, sizeof dx);
    check_ok(rcv_run_backward(self.run, &backward));
    assert_memory_equal(first, dx, sizeof first);
    close_run(&self);
}

static void test_arguments(void **state) {
    (void)state;
    fixture self;
    set_up(&self, "slstm", &RCV_INIT(rcv_net_options, .input = 3, .hidden = 4));
    double parameters[1];
    check_fails(rcv_net_initialize(self.net, 1, RCV_INT32, parameters), RCV_INVALID, "int32");
    assert_null(rcv_net_parameter(self.net, rcv_net_parameter_count(self.net)));
    assert_null(rcv_net_state(self.net, rcv_net_state_count(self.net)));
    assert_int_equal(rcv_net_get_options(self.net)->size_count, 1);
    assert_string_equal(rcv_net_get_options(self.net)->sizes[0].name, "heads");
    assert_int_equal(rcv_net_get_options(self.net)->sizes[0].value, 1);
    rcv_net_free(NULL);
    rcv_plan_free(NULL);
    rcv_run_free(NULL);
    tear_down(&self);
}

/* ---- every allocation fails once --------------------------------------------------------------------------------- */

typedef struct {
    rcv_context *context;
    rcv_cell *cell;
    rcv_net *net;
    rcv_plan *plan;
    rcv_run *run;
    char *texts[4];
    double *data; /* zeros: parameters, x, y, gradients are all here */
} scene;

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        rcv_status try_status = (call);                                                                                \
        if (try_status) return try_status;                                                                             \
    } while (0)

static rcv_status play(scene *s, const rcv_context_options *options, const char *cell) {
    TRY(rcv_context_new(options, &s->context));
    TRY(rcv_cell_open(s->context, cell, &s->cell));
    TRY(rcv_cell_print(s->cell, &s->texts[0]));
    TRY(rcv_cell_describe(s->cell, RCV_DESCRIBE_BACKWARD, &s->texts[1]));
    TRY(rcv_cell_describe(s->cell, RCV_DESCRIBE_BACKWARD | RCV_DESCRIBE_JSON, &s->texts[2]));
    rcv_net_options net = RCV_INIT(rcv_net_options, .input = 3, .hidden = 4, .layers = 2, .bidirectional = true,
                                   .dropout = 0.5, .zoneout = 0.2, .rank = 2);
    TRY(rcv_net_new(s->cell, &net, &s->net));
    TRY(rcv_net_initialize(s->net, 3, RCV_FLOAT64, s->data));
    rcv_plan_options plan = RCV_INIT(rcv_plan_options, .steps = T, .batch = B, .dtype = RCV_FLOAT64, .training = true,
                                     .lengths = true, .resets = true);
    plan.schedule = "combine(steps=2)+fuse+pack+recompute(every=2)+threads(2)";
    TRY(rcv_plan_new(s->net, &plan, &s->plan));
    TRY(rcv_plan_print(s->plan, &s->texts[3]));
    TRY(rcv_run_new(s->plan, &s->run));
    const int64_t lengths[B] = {T, 1};
    const uint8_t resets[T * B] = {0, 0, 1, 0};
    double x[T * B * 3] = {0}, dx[T * B * 3], y[T * B * 64] = {0};
    rcv_forward forward =
        RCV_INIT(rcv_forward, .parameters = s->data, .x = x, .y = y, .lengths = lengths, .resets = resets);
    TRY(rcv_run_forward(s->run, &forward));
    return rcv_run_backward(s->run, &RCV_INIT(rcv_backward, .dy = y, .dx = dx));
}

static void clear(scene *s) {
    rcv_run_free(s->run);
    rcv_plan_free(s->plan);
    rcv_net_free(s->net);
    for (int i = 0; i < 4; i++) {
        if (s->texts[i]) rcv_text_free(s->context, s->texts[i]);
    }
    rcv_cell_free(s->cell);
    rcv_context_free(s->context);
    free(s->data);
}

static void check_failures(const char *cell) {
    test_allocator allocator;
    test_allocator_init(&allocator);
    allocator.sparse = true;
    rcv_context_options options = RCV_INIT(rcv_context_options, .allocator = &allocator.allocator);
    scene s = {.data = calloc(20000, sizeof(double))};
    assert_non_null(s.data);
    memory_faults_begin(&allocator);
    rcv_status status = play(&s, &options, cell);
    memory_faults_stop(&allocator);
    if (status != (allocator.failed ? RCV_NO_MEMORY : RCV_OK)) {
        fail_msg("%s: failing allocation %zu gave %s: %s", cell, allocator.calls, rcv_status_name(status),
                 rcv_message());
    }
    if (status == RCV_NO_MEMORY) assert_true(strlen(rcv_message()) > 0);
    clear(&s);
    if (allocator.live != 0)
        fail_msg("%s: failing allocation %zu leaks %zu blocks", cell, allocator.calls, allocator.live);
    size_t fired = memory_faults_end(&allocator);
    assert_int_equal(allocator.points, allocator.calls); /* none was left out */
    print_message("%s: %zu of %zu allocations failed\n", cell, fired, allocator.calls);
    assert_true(fired > sample_least(1000) / (sample_is_partial() ? 4 : 1));
}

static void test_allocations(void **state) {
    (void)state;
    check_failures("lstm_layernorm");
    check_failures("qrnn_fo_w2");
    check_failures("slstm");
    check_failures(RCV_SOURCE_DIR "/tests/support/cells/decay.cell");
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nets),       cmocka_unit_test(test_plans),
                                       cmocka_unit_test(test_memory),     cmocka_unit_test(test_forward),
                                       cmocka_unit_test(test_backward),   cmocka_unit_test(test_arguments),
                                       cmocka_unit_test(test_allocations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
