/* Streams of models: bits of whole sequences, rows of their own, states out and in, no allocation in a step. */
#define _XOPEN_SOURCE 700

#include "memory_faults.h"
#include "model_fixture.h"

enum { STEPS = 6, INPUT = 3, HIDDEN = 8 };

/* Frames of a batch of sequences, and their outputs by rcv_model_run. */
typedef struct {
    size_t bytes; /* of an element */
    int64_t batch, input, output;
    char *x, *y; /* [STEPS, batch, input], [STEPS, batch, output] */
    char *out;   /* room for the outputs of a stream */
    size_t frame, outputs;
} sequence;

static void sequence_open(sequence *self, const rcv_net *net, rcv_dtype dtype, int64_t batch) {
    *self = (sequence){.bytes = rcv_dtype_bytes(dtype), .batch = batch, .input = INPUT, .output = rcv_net_output(net)};
    self->frame = (size_t)(batch * self->input) * self->bytes;
    self->outputs = (size_t)(batch * self->output) * self->bytes;
    self->x = malloc(STEPS * self->frame);
    self->y = malloc(STEPS * self->outputs);
    self->out = malloc(STEPS * self->outputs);
    for (int64_t i = 0; i < STEPS * batch * self->input; i++) {
        double value = 0.9 * sin(0.4 + 1.7 * (double)i);
        if (dtype == RCV_FLOAT64)
            ((double *)(void *)self->x)[i] = value;
        else
            ((float *)(void *)self->x)[i] = (float)value;
    }
}

static void sequence_close(sequence *self) {
    free(self->x);
    free(self->y);
    free(self->out);
}

/* y by rcv_model_run. */
static void run_whole(const model_fixture *f, sequence *self, rcv_tensors **out) {
    rcv_tensors *in;
    const int64_t shape[3] = {STEPS, self->batch, self->input};
    check_ok(rcv_tensors_new(f->context, &in));
    add_tensor(in, "x", rcv_model_dtype(f->model), 3, shape, self->x);
    check_ok(rcv_model_run(f->model, in, &RCV_INIT(rcv_model_run_options, .threads = 1), out));
    const rcv_tensor *y = rcv_tensors_find(*out, "y");
    assert_int_equal(y->bytes, STEPS * self->outputs);
    memcpy(self->y, y->data, y->bytes);
    rcv_tensors_free(in);
}

/* Steps first .. end - 1, `chunk` a call. */
static void stream_steps(rcv_stream *stream, sequence *s, int64_t first, int64_t end, int64_t chunk) {
    for (int64_t t = first; t < end; t += chunk) {
        int64_t steps = end - t < chunk ? end - t : chunk;
        check_ok(rcv_stream_step(stream, s->x + (size_t)t * s->frame, steps, s->out + (size_t)t * s->outputs));
    }
}

static rcv_stream *open_stream(const model_fixture *f, int64_t batch, int64_t most, const char *schedule) {
    rcv_stream *stream = NULL;
    check_ok(rcv_stream_new_model(f->model,
                                  &RCV_INIT(rcv_stream_options, .batch = batch, .most = most, .threads = 1,
                                            .schedule = schedule, .effort = RCV_ESTIMATE),
                                  &stream));
    return stream;
}

static void clear_output(sequence *s) { memset(s->out, 0xff, STEPS * s->outputs); }

static void check_output(const sequence *s, const char *cell, const char *what) {
    if (memcmp(s->out, s->y, STEPS * s->outputs) != 0) fail_msg("%s: %s has other bits", cell, what);
}

/* The states after the last step: those of rcv_model_run, whose tensors are [layers, batch, size] or one a layer. */
static void check_final_states(const model_fixture *f, sequence *s, rcv_stream *stream, const rcv_tensors *whole) {
    size_t count = (size_t)rcv_stream_state_elements(stream), at = 0;
    char *rows = malloc((size_t)s->batch * count * s->bytes + 1);
    stream_steps(stream, s, 0, STEPS, 2);
    check_ok(rcv_stream_get_states(stream, -1, rows));
    for (size_t i = 0; i < rcv_net_state_count(f->net); i++) {
        const rcv_state *info = rcv_net_state(f->net, i);
        for (int64_t layer = 0; layer < 2; layer++) {
            char name[128];
            size_t size = (size_t)rcv_net_state_size(f->net, i, layer, false) * s->bytes;
            snprintf(name, sizeof name, info->size ? "%s.final" : "%s.l%d.final", info->name, (int)layer);
            const rcv_tensor *tensor = rcv_tensors_find(whole, name);
            assert_non_null(tensor);
            for (size_t row = 0; row < (size_t)s->batch; row++) {
                const char *want = (const char *)tensor->data + row * size;
                if (info->size) want += (size_t)layer * (size_t)s->batch * size;
                assert_memory_equal(rows + row * count * s->bytes + at, want, size);
            }
            at += size;
        }
    }
    assert_int_equal(at, count * s->bytes);
    free(rows);
}

/* The stream pinned to the plan of rcv_model_run for the whole sequence; the planner's own choice for one step may be another. */
static void check_cell(const char *cell, rcv_dtype dtype, int64_t batch) {
    model_fixture f;
    sequence s;
    rcv_tensors *whole;
    rcv_plan *plan;
    rcv_net_options options = RCV_INIT(rcv_net_options, .input = INPUT, .hidden = HIDDEN, .layers = 2);
    model_fixture_open(&f, cell, &options, dtype);
    sequence_open(&s, f.net, dtype, batch);
    run_whole(&f, &s, &whole);
    check_ok(rcv_plan_new(f.net,
                          &RCV_INIT(rcv_plan_options, .steps = STEPS, .batch = batch, .dtype = dtype, .threads = 1,
                                    .effort = RCV_ESTIMATE),
                          &plan));
    rcv_stream *stream = open_stream(&f, batch, STEPS, rcv_plan_string(plan));
    for (int64_t chunk = 1; chunk <= STEPS; chunk += chunk == 1 ? 3 : 2) {
        clear_output(&s);
        stream_steps(stream, &s, 0, STEPS, chunk);
        check_output(&s, cell, rcv_plan_string(plan));
        check_ok(rcv_stream_reset(stream, NULL));
    }
    check_final_states(&f, &s, stream, whole);
    rcv_stream_free(stream);
    rcv_plan_free(plan);
    rcv_tensors_free(whole);
    sequence_close(&s);
    model_fixture_close(&f);
}

/* Steps of a stream, in chunks of any size, have the bits of rcv_model_run by the same plan, for every cell. */
static void every_cell(void **state) {
    (void)state;
    for (size_t i = 0; i < rcv_builtin_count(); i++) {
        check_cell(rcv_builtin_name(i), RCV_FLOAT32, 1);
        check_cell(rcv_builtin_name(i), RCV_FLOAT32, 3);
        check_cell(rcv_builtin_name(i), RCV_FLOAT64, 5);
    }
}

/* ---- an LSTM of two layers, three rows ---- */

enum { BATCH = 3 };

static const rcv_net_options lstm = {.size = sizeof(rcv_net_options), .input = INPUT, .hidden = HIDDEN, .layers = 2};

static const char *const pinned = "combine+fuse+pack"; /* plans of all tests below: the same bits */

/* With the outputs of a whole sequence by a run. */
static void open_lstm(model_fixture *f, sequence *s) {
    rcv_plan *plan;
    rcv_run *run;
    model_fixture_open(f, "lstm", &lstm, RCV_FLOAT32);
    sequence_open(s, f->net, RCV_FLOAT32, BATCH);
    check_ok(
        rcv_plan_new(f->net, &RCV_INIT(rcv_plan_options, .steps = STEPS, .batch = BATCH, .schedule = pinned), &plan));
    check_ok(rcv_run_new(plan, &run));
    check_ok(rcv_run_forward(
        run, &RCV_INIT(rcv_forward, .parameters = rcv_model_parameters(f->model), .x = s->x, .y = s->y)));
    rcv_run_free(run);
    rcv_plan_free(plan);
}

static void close_lstm(model_fixture *f, sequence *s) {
    sequence_close(s);
    model_fixture_close(f);
}

/* The output of one row at one step. */
static const void *row_of(const sequence *s, const char *outputs, int64_t step, int64_t row) {
    return outputs + (size_t)step * s->outputs + (size_t)(row * s->output) * s->bytes;
}

static void check_row(const sequence *s, int64_t step, int64_t row, int64_t like) {
    assert_memory_equal(row_of(s, s->out, step, row), row_of(s, s->y, like, row), (size_t)s->output * s->bytes);
}

/* A row that is reset starts again; the others go on. */
static void reset_of_rows(void **state) {
    (void)state;
    model_fixture f;
    sequence s;
    open_lstm(&f, &s);
    rcv_stream *stream = open_stream(&f, BATCH, STEPS, pinned);
    stream_steps(stream, &s, 0, 3, 1);
    check_ok(rcv_stream_reset(stream, (const uint8_t[BATCH]){0, 1, 0}));
    /* Row 1 is given its first frames again. */
    for (int64_t t = 3; t < STEPS; t++)
        memcpy(s.x + (size_t)t * s.frame + INPUT * s.bytes, s.x + (size_t)(t - 3) * s.frame + INPUT * s.bytes,
               INPUT * s.bytes);
    stream_steps(stream, &s, 3, STEPS, 2);
    for (int64_t t = 3; t < STEPS; t++) {
        check_row(&s, t, 0, t);
        check_row(&s, t, 1, t - 3);
        check_row(&s, t, 2, t);
    }
    rcv_stream_free(stream);
    close_lstm(&f, &s);
}

/* States out and in: a row continues in another row of another stream, and all rows in a third stream. */
static void states_out_and_in(void **state) {
    (void)state;
    model_fixture f;
    sequence s;
    open_lstm(&f, &s);
    rcv_stream *stream = open_stream(&f, BATCH, 1, pinned), *one = open_stream(&f, 1, 1, pinned),
               *other = open_stream(&f, BATCH, STEPS, pinned);
    size_t count = (size_t)rcv_stream_state_elements(stream);
    assert_int_equal(count, 2 * 2 * HIDDEN); /* h and c, two layers */
    float *row = calloc(count, sizeof *row), *all = calloc(BATCH * count, sizeof *all), y[HIDDEN];
    stream_steps(stream, &s, 0, 3, 1);
    check_ok(rcv_stream_get_states(stream, 2, row));
    check_ok(rcv_stream_get_states(stream, -1, all));
    assert_memory_equal(row, all + 2 * count, count * sizeof *row);
    check_ok(rcv_stream_set_states(one, 0, row));
    for (int64_t t = 3; t < STEPS; t++) {
        check_ok(rcv_stream_step(one, s.x + (size_t)t * s.frame + 2 * INPUT * s.bytes, 1, y));
        assert_memory_equal(y, row_of(&s, s.y, t, 2), sizeof y);
    }
    check_ok(rcv_stream_set_states(other, -1, all));
    clear_output(&s);
    stream_steps(other, &s, 3, STEPS, 3);
    assert_memory_equal(s.out + 3 * s.outputs, s.y + 3 * s.outputs, 3 * s.outputs);
    /* One row of the first stream is set to where it was; the other rows stay. */
    stream_steps(stream, &s, 3, 4, 1);
    check_ok(rcv_stream_set_states(stream, 2, row));
    memcpy(s.x + 4 * s.frame + 2 * INPUT * s.bytes, s.x + 3 * s.frame + 2 * INPUT * s.bytes, INPUT * s.bytes);
    stream_steps(stream, &s, 4, 5, 1);
    check_row(&s, 4, 0, 4);
    check_row(&s, 4, 1, 4);
    check_row(&s, 4, 2, 3);
    free(row);
    free(all);
    rcv_stream_free(other);
    rcv_stream_free(one);
    rcv_stream_free(stream);
    close_lstm(&f, &s);
}

/* Nothing is allocated after opening, whatever is called. Without `out` the states move on alike. */
static void steps_allocate_nothing(void **state) {
    (void)state;
    model_fixture f;
    sequence s;
    open_lstm(&f, &s);
    for (int64_t threads = 1; threads <= 2; threads++) {
        rcv_stream *stream = NULL;
        check_ok(rcv_stream_new_model(f.model,
                                      &RCV_INIT(rcv_stream_options, .batch = BATCH, .most = 2, .threads = threads,
                                                .schedule = threads == 1 ? pinned : "combine+fuse+pack+threads(2)"),
                                      &stream));
        float *all = calloc((size_t)(BATCH * rcv_stream_state_elements(stream)), sizeof *all);
        size_t calls = f.counting.calls;
        clear_output(&s);
        check_ok(rcv_stream_step(stream, s.x, 2, NULL));
        stream_steps(stream, &s, 2, 4, 1);
        check_ok(rcv_stream_get_states(stream, -1, all));
        check_ok(rcv_stream_reset(stream, NULL));
        check_ok(rcv_stream_set_states(stream, -1, all));
        check_ok(rcv_stream_reload(stream));
        stream_steps(stream, &s, 4, STEPS, 2);
        check_ok(rcv_stream_wait(stream));
        assert_int_equal(f.counting.calls, calls);
        assert_memory_equal(s.out + 2 * s.outputs, s.y + 2 * s.outputs, 4 * s.outputs);
        free(all);
        rcv_stream_free(stream);
    }
    close_lstm(&f, &s);
}

/* New parameters count after rcv_stream_reload. */
static void reloading(void **state) {
    (void)state;
    model_fixture f;
    sequence s;
    open_lstm(&f, &s);
    rcv_stream *stream = open_stream(&f, BATCH, STEPS, pinned);
    stream_steps(stream, &s, 0, STEPS, 1);
    float *parameters = rcv_model_parameters(f.model);
    for (int64_t i = 0; i < rcv_net_parameter_elements(f.net); i++) parameters[i] *= -1.25f;
    check_ok(rcv_stream_reload(stream));
    check_ok(rcv_stream_reset(stream, NULL));
    stream_steps(stream, &s, 0, STEPS, 1);
    rcv_stream *fresh = open_stream(&f, BATCH, STEPS, pinned);
    assert_memory_not_equal(s.out, s.y, STEPS * s.outputs);
    memcpy(s.y, s.out, STEPS * s.outputs);
    clear_output(&s);
    stream_steps(fresh, &s, 0, STEPS, 1);
    check_output(&s, "lstm", "a stream with new parameters");
    rcv_stream_free(fresh);
    rcv_stream_free(stream);
    close_lstm(&f, &s);
}

/* Types of products other than that of the parameters, and the planner's wisdom. */
static void types_and_wisdom(void **state) {
    (void)state;
    model_fixture f;
    sequence s;
    rcv_plan *plan;
    rcv_run *run;
    open_lstm(&f, &s);
    check_ok(rcv_plan_new(
        f.net, &RCV_INIT(rcv_plan_options, .steps = STEPS, .batch = BATCH, .dtype = RCV_BFLOAT16, .schedule = pinned),
        &plan));
    check_ok(rcv_run_new(plan, &run));
    memcpy(s.out, s.y, STEPS * s.outputs);
    check_ok(
        rcv_run_forward(run, &RCV_INIT(rcv_forward, .parameters = rcv_model_parameters(f.model), .x = s.x, .y = s.y)));
    assert_memory_not_equal(s.out, s.y, STEPS * s.outputs);
    rcv_stream *stream = NULL, *again = NULL;
    check_ok(rcv_stream_new_model(
        f.model, &RCV_INIT(rcv_stream_options, .batch = BATCH, .dtype = RCV_BFLOAT16, .schedule = pinned), &stream));
    stream_steps(stream, &s, 0, STEPS, 1);
    check_output(&s, "lstm", "a stream in bfloat16");
    rcv_stream_free(stream);
    rcv_run_free(run);
    rcv_plan_free(plan);
    /* By default the planner measures, and remembers. */
    check_ok(rcv_stream_new_model(f.model, &RCV_INIT(rcv_stream_options, .threads = 1), &stream));
    check_ok(rcv_stream_new_model(f.model, &RCV_INIT(rcv_stream_options, .threads = 1), &again));
    assert_int_equal(rcv_wisdom_count(f.context), 1);
    assert_false(rcv_plan_from_wisdom(rcv_stream_plan(stream)));
    assert_true(rcv_plan_from_wisdom(rcv_stream_plan(again)));
    assert_string_equal(rcv_plan_string(rcv_stream_plan(stream)), rcv_plan_string(rcv_stream_plan(again)));
    rcv_stream_free(again);
    rcv_stream_free(stream);
    close_lstm(&f, &s);
}

static void refusals(void **state) {
    (void)state;
    model_fixture f, both, reverse;
    sequence s;
    rcv_stream *stream = (rcv_stream *)&f;
    open_lstm(&f, &s);
    rcv_net_options options = lstm;
    options.bidirectional = true;
    model_fixture_open(&both, "gru", &options, RCV_FLOAT64);
    options.bidirectional = false;
    options.reverse = true;
    model_fixture_open(&reverse, "gru", &options, RCV_FLOAT64);
    check_fails(rcv_stream_new_model(reverse.model, NULL, &stream), RCV_UNSUPPORTED, "reverse direction");
    model_fixture_close(&reverse);
    check_fails(rcv_stream_new_model(both.model, NULL, &stream), RCV_UNSUPPORTED, "reverse direction");
    rcv_stream_options background = RCV_INIT(rcv_stream_options, .effort = RCV_BACKGROUND);
    check_fails(rcv_stream_new_model(f.model, &background, &stream), RCV_UNSUPPORTED, "RCV_ESTIMATE");
    assert_null(stream);
    const struct {
        rcv_stream_options options;
        rcv_status status;
        const char *fragment;
    } wrong[] = {
        {RCV_INIT(rcv_stream_options, .batch = -1), RCV_INVALID, "at least 1 row"},
        {RCV_INIT(rcv_stream_options, .most = -2), RCV_INVALID, "not 0 and -2"},
        {RCV_INIT(rcv_stream_options, .batch = INT64_MAX / 2, .schedule = "naive"), RCV_INVALID, ""},
        {RCV_INIT(rcv_stream_options, .most = INT64_MAX / 2, .schedule = "naive"), RCV_INVALID, "64 bits can count"},
        {RCV_INIT(rcv_stream_options, .dtype = RCV_FLOAT64), RCV_INVALID, "parameters are float32"},
        {RCV_INIT(rcv_stream_options, .device = "tpu"), RCV_INVALID, "tpu"},
        {RCV_INIT(rcv_stream_options, .output = RCV_OUTPUT_LOGITS), RCV_INVALID, "output layer"},
        {RCV_INIT(rcv_stream_options, .cuda_stream = &s), RCV_INVALID, "on_device"},
        {RCV_INIT(rcv_stream_options, .schedule = "fast"), RCV_INVALID, "fast"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        stream = (rcv_stream *)&f;
        check_fails(rcv_stream_new_model(f.model, &wrong[i].options, &stream), wrong[i].status, wrong[i].fragment);
        assert_null(stream);
    }
    /* What a call refuses changes nothing. */
    stream = open_stream(&f, BATCH, 2, pinned);
    float states[BATCH * 4 * HIDDEN];
    clear_output(&s);
    stream_steps(stream, &s, 0, 2, 1);
    check_fails(rcv_stream_step(stream, s.x, 0, s.out), RCV_INVALID, "takes 1 to 2");
    check_fails(rcv_stream_step(stream, s.x, 3, s.out), RCV_INVALID, "takes 1 to 2");
    check_fails(rcv_stream_step(stream, s.x, 2, s.x + s.frame), RCV_INVALID, "out overlaps frames");
    check_fails(rcv_stream_get_states(stream, BATCH, states), RCV_INVALID, "row 3 is not in 0 to 2");
    check_fails(rcv_stream_set_states(stream, -2, states), RCV_INVALID, "row -2");
    stream_steps(stream, &s, 2, STEPS, 2);
    check_output(&s, "lstm", "the stream after refused calls");
    rcv_stream_free(stream);
    model_fixture_close(&both);
    close_lstm(&f, &s);
}

/* Every allocation of opening a stream fails once. */
static void failing_memory(void **state) {
    (void)state;
    model_fixture f;
    model_fixture_open(&f, "lstm", &lstm, RCV_FLOAT32);
    size_t live = f.counting.live;
    rcv_stream *stream = NULL;
    memory_faults_begin(&f.counting);
    rcv_status status = rcv_stream_new_model(
        f.model, &RCV_INIT(rcv_stream_options, .batch = BATCH, .most = 2, .threads = 1, .schedule = pinned), &stream);
    memory_faults_stop(&f.counting);
    assert_int_equal(status, f.counting.failed ? RCV_NO_MEMORY : RCV_OK);
    assert_true((stream == NULL) == (f.counting.failed > 0));
    rcv_stream_free(stream);
    assert_int_equal(f.counting.live, live);
    model_fixture_close(&f);
    assert_true(memory_faults_end(&f.counting) > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_cell),        cmocka_unit_test(reset_of_rows),
        cmocka_unit_test(states_out_and_in), cmocka_unit_test(steps_allocate_nothing),
        cmocka_unit_test(reloading),         cmocka_unit_test(types_and_wisdom),
        cmocka_unit_test(refusals),          cmocka_unit_test(failing_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
