/* Streams, predictions and rcv_model_run on a GPU, against the CPU: chunks, rows, states, frames in the GPU's memory, other streams of CUDA. */
#include "gpu.h"
#include "scratch.h"
#include "train_fixture.h"

#include <cuda_runtime_api.h>
#include <math.h>

enum { STEPS = 9, BATCH = 3, INPUT = 5, HIDDEN = 32, OUT = BATCH * HIDDEN, FRAME = BATCH * INPUT };

typedef struct {
    test_allocator counting;
    rcv_context *context;
    rcv_cell *cell;
    rcv_net *net;
    rcv_model *model;
    float x[STEPS * FRAME], want[STEPS * OUT], y[STEPS * OUT]; /* want: by a stream of the CPU */
} subject;

static void open_subject(subject *self, const char *cell) {
    rcv_stream *stream = NULL;
    self->context = test_context(&self->counting);
    check_ok(rcv_cell_open(self->context, cell, &self->cell));
    check_ok(
        rcv_net_new(self->cell, &RCV_INIT(rcv_net_options, .input = INPUT, .hidden = HIDDEN, .layers = 2), &self->net));
    assert_int_equal(rcv_net_output(self->net), HIDDEN);
    check_ok(rcv_model_new(self->net, RCV_FLOAT32, 5, &self->model));
    for (int i = 0; i < STEPS * FRAME; i++) self->x[i] = (float)sin(0.2 + 1.3 * i);
    check_ok(rcv_stream_new_model(
        self->model, &RCV_INIT(rcv_stream_options, .batch = BATCH, .most = STEPS, .schedule = "naive"), &stream));
    check_ok(rcv_stream_step(stream, self->x, STEPS, self->want));
    rcv_stream_free(stream);
}

static void close_subject(subject *self) {
    rcv_model_free(self->model);
    rcv_net_free(self->net);
    rcv_cell_free(self->cell);
    test_context_end(&self->counting, self->context);
}

static void check_near(const float *got, const float *want, size_t count, const char *what) {
    for (size_t i = 0; i < count; i++)
        if (!(fabsf(got[i] - want[i]) < 1e-5f))
            fail_msg("%s, element %zu: %g, not %g", what, i, (double)got[i], (double)want[i]);
}

static rcv_stream *open_stream(const subject *s, rcv_stream_options options) {
    rcv_stream *stream = NULL;
    options.device = "cuda";
    options.batch = BATCH;
    options.most = STEPS;
    options.effort = RCV_ESTIMATE;
    check_ok(rcv_stream_new_model(s->model, &options, &stream));
    return stream;
}

/* Steps one by one and in chunks: near the CPU, and bits of each other. */
static void test_chunks(void **state) {
    (void)state;
    static const char *const cells[] = {"lstm", "gru", "sru", "indrnn"};
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        static subject s;
        static float first[STEPS * OUT];
        open_subject(&s, cells[i]);
        rcv_stream *stream = open_stream(&s, RCV_INIT(rcv_stream_options, .batch = BATCH));
        for (int t = 0; t < STEPS; t++) check_ok(rcv_stream_step(stream, s.x + t * FRAME, 1, s.y + t * OUT));
        check_near(s.y, s.want, STEPS * OUT, cells[i]);
        memcpy(first, s.y, sizeof first);
        for (int chunk = 2; chunk <= STEPS; chunk += 7) {
            memset(s.y, 0xff, sizeof s.y);
            check_ok(rcv_stream_reset(stream, NULL));
            for (int t = 0; t < STEPS; t += chunk) {
                int steps = STEPS - t < chunk ? STEPS - t : chunk;
                check_ok(rcv_stream_step(stream, s.x + t * FRAME, steps, s.y + t * OUT));
            }
            assert_memory_equal(s.y, first, sizeof first);
        }
        rcv_stream_free(stream);
        close_subject(&s);
    }
}

/* A row that is reset, states out and in, changed parameters. */
static void test_rows(void **state) {
    (void)state;
    static subject s;
    open_subject(&s, "lstm");
    rcv_stream *stream = open_stream(&s, RCV_INIT(rcv_stream_options, .batch = BATCH));
    float states[BATCH * 4 * HIDDEN], *parameters = rcv_model_parameters(s.model);
    assert_int_equal(rcv_stream_state_elements(stream), 4 * HIDDEN);
    check_ok(rcv_stream_step(stream, s.x, 4, NULL));
    check_ok(rcv_stream_get_states(stream, -1, states));
    check_ok(rcv_stream_reset(stream, (const uint8_t[BATCH]){0, 1, 0}));
    memcpy(s.x + 4 * FRAME + INPUT, s.x + INPUT, INPUT * sizeof *s.x); /* row 1 begins again */
    check_ok(rcv_stream_step(stream, s.x + 4 * FRAME, 1, s.y));
    check_near(s.y, s.want + 4 * OUT, HIDDEN, "row 0");
    check_near(s.y + HIDDEN, s.want + HIDDEN, HIDDEN, "row 1");
    check_near(s.y + 2 * HIDDEN, s.want + 4 * OUT + 2 * HIDDEN, HIDDEN, "row 2");
    check_ok(rcv_stream_set_states(stream, -1, states));
    check_ok(rcv_stream_step(stream, s.x + 4 * FRAME, 1, NULL));
    check_ok(rcv_stream_step(stream, s.x + 5 * FRAME, 1, s.y));
    check_near(s.y, s.want + 5 * OUT, HIDDEN, "row 0 after its states were set");
    check_near(s.y + 2 * HIDDEN, s.want + 5 * OUT + 2 * HIDDEN, HIDDEN, "row 2 after its states were set");
    for (int64_t i = 0; i < rcv_net_parameter_elements(s.net); i++) parameters[i] = 0;
    check_ok(rcv_stream_reload(stream));
    check_ok(rcv_stream_reset(stream, NULL));
    check_ok(rcv_stream_step(stream, s.x, 1, s.y));
    for (int i = 0; i < OUT; i++) assert_true(s.y[i] == 0);
    rcv_stream_free(stream);
    close_subject(&s);
}

/* Frames in the GPU's memory, enqueued on a stream of CUDA that waits for no other. */
static void test_on_device(void **state) {
    (void)state;
    static subject s;
    open_subject(&s, "lstm");
    cudaStream_t queue = NULL;
    assert_int_equal(cudaStreamCreateWithFlags(&queue, cudaStreamNonBlocking), cudaSuccess);
    void *x = NULL, *y = NULL;
    check_ok(rcv_memory_new(s.context, "cuda", sizeof s.x, &x));
    check_ok(rcv_memory_new(s.context, "cuda", sizeof s.y, &y));
    for (int own = 0; own < 2; own++) {
        rcv_stream *stream =
            open_stream(&s, RCV_INIT(rcv_stream_options, .on_device = true, .cuda_stream = own ? queue : NULL));
        for (int t = 0; t < STEPS; t += 3) { /* arrays of a GPU begin at multiples of 16 bytes */
            check_ok(rcv_memory_write("cuda", x, s.x + t * FRAME, 3 * FRAME * sizeof(float)));
            check_ok(rcv_stream_step(stream, x, 3, y));
            check_ok(rcv_stream_wait(stream));
            check_ok(rcv_memory_read("cuda", s.y + t * OUT, y, 3 * OUT * sizeof(float)));
        }
        check_near(s.y, s.want, STEPS * OUT, own ? "a stream of its own" : "the default stream");
        rcv_stream_free(stream);
    }
    rcv_memory_free(s.context, "cuda", x);
    rcv_memory_free(s.context, "cuda", y);
    assert_int_equal(cudaStreamDestroy(queue), cudaSuccess);
    close_subject(&s);
}

/* rcv_model_run with gradients: every tensor near that of the CPU. */
static void test_tensors(void **state) {
    (void)state;
    static subject s;
    static float dy[STEPS * OUT];
    rcv_tensors *in, *here, *there;
    open_subject(&s, "lstm");
    for (int i = 0; i < STEPS * OUT; i++) dy[i] = (float)cos(0.7 * i);
    const int64_t lengths[BATCH] = {9, 3, 6};
    check_ok(rcv_tensors_new(s.context, &in));
    const rcv_tensor inputs[] = {
        {"x", RCV_FLOAT32, 3, {STEPS, BATCH, INPUT}, s.x, sizeof s.x},
        {"dy", RCV_FLOAT32, 3, {STEPS, BATCH, HIDDEN}, dy, sizeof dy},
        {"lengths", RCV_INT64, 1, {BATCH}, lengths, sizeof lengths},
        {"h", RCV_FLOAT32, 3, {2, BATCH, HIDDEN}, dy, 2 * OUT * sizeof(float)},
    };
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) check_ok(rcv_tensors_add(in, &inputs[i]));
    rcv_model_run_options options = RCV_INIT(rcv_model_run_options, .gradients = true);
    check_ok(rcv_model_run(s.model, in, &options, &here));
    options.device = "cuda";
    check_ok(rcv_model_run(s.model, in, &options, &there));
    assert_int_equal(rcv_tensors_count(here), rcv_tensors_count(there));
    for (size_t i = 0; i < rcv_tensors_count(here); i++) {
        const rcv_tensor *a = rcv_tensors_at(here, i), *b = rcv_tensors_at(there, i);
        const float *want = a->data, *got = b->data;
        assert_string_equal(a->name, b->name);
        assert_int_equal(a->bytes, b->bytes);
        float largest = 0;
        for (size_t k = 0; k < a->bytes / sizeof *want; k++)
            largest = fabsf(want[k]) > largest ? fabsf(want[k]) : largest;
        assert_true(largest > 0);
        for (size_t k = 0; k < a->bytes / sizeof *want; k++)
            if (!(fabsf(want[k] - got[k]) < 1e-4f * largest))
                fail_msg("%s, element %zu: %g, not %g", a->name, k, (double)got[k], (double)want[k]);
    }
    rcv_tensors_free(there);
    rcv_tensors_free(here);
    rcv_tensors_free(in);
    close_subject(&s);
}

/* ---- learners ---- */

enum { SEQUENCES = 70, LENGTH = 140 };

static rcv_learner *learner_on(train_fixture *f, const char *device, const char *line, const rcv_data *data) {
    char all[256];
    rcv_learner *learner = NULL;
    snprintf(all, sizeof all, "device=%s hidden=24 init=0.3 %s", device, line);
    rcv_settings *settings = train_fixture_settings(f, all);
    check_ok(rcv_learner_new(f->context, settings, data, &learner));
    rcv_settings_free(settings);
    return learner;
}

/* Predictions of all steps and of last ones, then steps of a stream, as floats; gives their number. */
static size_t use_learner(rcv_learner *l, float *out) {
    static int64_t tokens[LENGTH * SEQUENCES], lengths[SEQUENCES];
    static float x[LENGTH * SEQUENCES * 2];
    bool numbers = rcv_learner_features(l) > 0, each = rcvi_predicts_steps(l);
    size_t row = (size_t)rcv_learner_outputs(l), used = 0;
    for (int i = 0; i < LENGTH * SEQUENCES; i++) {
        tokens[i] = i * 3 % 7;
        x[2 * i] = (float)sin(i);
        x[2 * i + 1] = (float)cos(i);
    }
    for (int i = 0; i < SEQUENCES; i++) lengths[i] = 1 + i * 17 % LENGTH;
    for (int last = 0; last < 2; last++) {
        check_ok(rcv_learner_predict(l, &RCV_INIT(rcv_prediction, .steps = LENGTH, .batch = SEQUENCES,
                                                  .x = numbers ? x : NULL, .tokens = numbers ? NULL : tokens,
                                                  .lengths = lengths, .last = last == 1, .out = out + used)));
        used += row * SEQUENCES * (each && !last ? LENGTH : 1);
    }
    if (rcv_net_get_options(rcv_learner_net(l))->bidirectional) return used;
    rcv_stream *stream = NULL;
    check_ok(rcv_stream_new_learner(l, &RCV_INIT(rcv_stream_options, .batch = 2, .most = 3, .effort = RCV_ESTIMATE),
                                    &stream));
    for (int t = 0; t < 4; t++) {
        int steps = t % 3 + 1;
        const void *frames = numbers ? (const void *)(x + 4 * t) : (const void *)(tokens + 2 * t);
        check_ok(rcv_stream_step(stream, frames, steps, t == 1 ? NULL : out + used));
        if (t != 1) used += row * 2 * (size_t)steps;
    }
    rcv_stream_free(stream);
    return used;
}

static bool count_text(void *user, const char *text, size_t length) {
    (void)text;
    *(size_t *)user += length;
    return true;
}

static void test_learners(void **state) {
    (void)state;
    static const struct {
        rcv_data_kind kind;
        const char *settings;
    } models[] = {{RCV_DATA_STREAM, "kind=stream cell=lstm layers=2"},
                  {RCV_DATA_CLASSES, "kind=classes cell=lstm bidirectional=true"},
                  {RCV_DATA_CLASSES, "kind=classes cell=gru"},
                  {RCV_DATA_VALUES, "kind=values cell=sru"},
                  {RCV_DATA_STEP_CLASSES, "kind=step-classes cell=lstm layers=2"},
                  {RCV_DATA_STEP_VALUES, "kind=step-values cell=gru bidirectional=true"}};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        train_fixture f;
        train_fixture_open(&f);
        rcv_data_kind kind = models[i].kind;
        const rcv_data *data = train_fixture_data(&f, "train", kind, train_fixture_text(kind), NULL);
        rcv_learner *here = learner_on(&f, "cpu", models[i].settings, data),
                    *there = learner_on(&f, "cuda", models[i].settings, data);
        size_t room = (size_t)(rcv_learner_outputs(here) * (SEQUENCES + 20) * (LENGTH + 2));
        float *a = malloc(room * sizeof *a), *b = malloc(room * sizeof *b);
        size_t used = use_learner(here, a);
        assert_true(used <= room);
        assert_int_equal(use_learner(there, b), used);
        check_near(b, a, used, models[i].settings);
        if (kind == RCV_DATA_STREAM) {
            size_t written = 0;
            check_ok(rcv_learner_generate(there, &RCV_INIT(rcv_generation, .count = 20), count_text, &written));
            assert_true(written >= 20);
        }
        free(a);
        free(b);
        rcv_learner_free(there);
        rcv_learner_free(here);
        train_fixture_close(&f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_chunks), cmocka_unit_test(test_rows),
                                       cmocka_unit_test(test_on_device), cmocka_unit_test(test_tensors),
                                       cmocka_unit_test(test_learners)};
    return has_gpu() ? cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down) : SKIPPED;
}
