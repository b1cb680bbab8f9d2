/* Streams of learners: what is predicted after every frame, in every form; rows, refusals, memory. */
#define _XOPEN_SOURCE 700

#include "memory_faults.h"
#include "scratch.h"
#include "train_fixture.h"

#include <math.h>

enum { STEPS = 7, BATCH = 3, MOST_OUTPUTS = 64 };

static const struct {
    rcv_data_kind kind;
    const char *settings;
} models[] = {
    {RCV_DATA_STREAM, "kind=stream cell=lstm layers=2 tied=true"}, {RCV_DATA_LINES, "kind=lines cell=qrnn_fo_w2"},
    {RCV_DATA_CLASSES, "kind=classes cell=gru layers=2"},          {RCV_DATA_VALUES, "kind=values cell=sru"},
    {RCV_DATA_STEP_CLASSES, "kind=step-classes cell=lstm"},        {RCV_DATA_STEP_VALUES, "kind=step-values cell=gru"},
};
enum { MODELS = sizeof models / sizeof *models };

typedef struct {
    train_fixture fixture;
    rcv_learner *learner;
    size_t real;     /* bytes of an output */
    int64_t outputs; /* of a row */
    int64_t tokens[STEPS * BATCH];
    float x[STEPS * BATCH * 2];
    const char *frames; /* one of them */
    size_t frame;       /* bytes of a step */
    char out[STEPS * BATCH * MOST_OUTPUTS * 8] /* [STEPS, BATCH, outputs] */;
} subject;

static void open_subject(subject *self, size_t model, const char *more) {
    char line[256];
    train_fixture_open(&self->fixture);
    rcv_data_kind kind = models[model].kind;
    const rcv_data *data = train_fixture_data(&self->fixture, "train", kind, train_fixture_text(kind), NULL);
    snprintf(line, sizeof line, "%s %s init=0.5 hidden=6", models[model].settings, more);
    rcv_settings *settings = train_fixture_settings(&self->fixture, line);
    check_ok(rcv_learner_new(self->fixture.context, settings, data, &self->learner));
    rcv_settings_free(settings);
    self->real = rcv_dtype_bytes(rcv_learner_dtype(self->learner));
    self->outputs = rcv_learner_outputs(self->learner);
    assert_true(self->outputs <= MOST_OUTPUTS && rcv_learner_features(self->learner) <= 2);
    for (int i = 0; i < STEPS * BATCH; i++) self->tokens[i] = i * 5 % 9;
    for (int i = 0; i < STEPS * BATCH * 2; i++) self->x[i] = (float)sin(0.3 + 1.1 * i);
    bool numbers = rcv_learner_features(self->learner) > 0;
    self->frames = numbers ? (const char *)self->x : (const char *)self->tokens;
    self->frame = BATCH * (numbers ? 2 * sizeof *self->x : sizeof *self->tokens);
}

static void close_subject(subject *self) {
    rcv_learner_free(self->learner);
    train_fixture_close(&self->fixture);
}

static size_t out_bytes(const subject *self) { return (size_t)(BATCH * self->outputs) * self->real; }

static rcv_stream *open_stream(subject *self, rcv_output output) {
    rcv_stream *stream = NULL;
    check_ok(rcv_stream_new_learner(self->learner,
                                    &RCV_INIT(rcv_stream_options, .batch = BATCH, .most = STEPS, .threads = 1,
                                              .effort = RCV_ESTIMATE, .output = output),
                                    &stream));
    return stream;
}

/* Steps first .. end - 1, `chunk` a call, into `out`. */
static void stream_steps(subject *self, rcv_stream *stream, int64_t first, int64_t end, int64_t chunk) {
    for (int64_t t = first; t < end; t += chunk) {
        int64_t steps = end - t < chunk ? end - t : chunk;
        check_ok(rcv_stream_step(stream, self->frames + (size_t)t * self->frame, steps,
                                 self->out + (size_t)t * out_bytes(self)));
    }
}

static double at(const subject *self, const void *out, int64_t index) {
    return self->real == 8 ? ((const double *)out)[index] : (double)((const float *)out)[index];
}

/* After step t a stream gives what rcv_learner_predict says of the first t + 1 frames. */
static void check_predictions(subject *self, rcv_output output) {
    static double want[BATCH * MOST_OUTPUTS];
    bool numbers = rcv_learner_features(self->learner) > 0;
    for (int64_t t = 0; t < STEPS; t++) {
        const rcv_prediction p = RCV_INIT(rcv_prediction, .steps = t + 1, .batch = BATCH, .x = numbers ? self->x : NULL,
                                          .tokens = numbers ? NULL : self->tokens, .output = output, .last = true,
                                          .out = want, .threads = 1);
        check_ok(rcv_learner_predict(self->learner, &p));
        for (int64_t i = 0; i < BATCH * self->outputs; i++) {
            double got = at(self, self->out + (size_t)t * out_bytes(self), i);
            if (!(fabs(got - at(self, want, i)) < (self->real == 8 ? 1e-12 : 2e-6)))
                fail_msg("step %d, element %d: %.17g, predicted %.17g", (int)t, (int)i, got, at(self, want, i));
        }
    }
}

static void predictions(void **state) {
    (void)state;
    static subject s;
    for (size_t i = 0; i < 2 * MODELS; i++) {
        open_subject(&s, i / 2, i % 2 ? "dtype=float64" : "dtype=float32");
        bool values = rcvi_kind_has_values(models[i / 2].kind);
        for (int output = 0; output <= (values ? 0 : RCV_OUTPUT_LOG_PROBABILITIES); output++) {
            rcv_stream *stream = open_stream(&s, (rcv_output)output);
            static char first[sizeof s.out];
            stream_steps(&s, stream, 0, STEPS, 1);
            memcpy(first, s.out, sizeof first);
            check_predictions(&s, (rcv_output)output);
            for (int64_t chunk = 2; chunk <= STEPS; chunk += 5) { /* bits do not depend on the chunk */
                memset(s.out, 0xff, STEPS * out_bytes(&s));
                check_ok(rcv_stream_reset(stream, NULL));
                stream_steps(&s, stream, 0, STEPS, chunk);
                assert_memory_equal(s.out, first, STEPS * out_bytes(&s));
            }
            rcv_stream_free(stream);
        }
        close_subject(&s);
    }
}

/* A row that is reset, and rows that go on; states that are put back; nothing allocated. */
static void rows_and_states(void **state) {
    (void)state;
    static subject s;
    for (size_t i = 0; i < MODELS; i++) {
        open_subject(&s, i, "");
        rcv_stream *stream = open_stream(&s, RCV_OUTPUT_DEFAULT);
        static char first[sizeof s.out];
        float states[BATCH * 64];
        assert_true(rcv_stream_state_elements(stream) <= 64);
        size_t calls = s.fixture.allocator.calls, row = (size_t)s.outputs * s.real, part = s.frame / BATCH;
        stream_steps(&s, stream, 0, STEPS, 1);
        memcpy(first, s.out, sizeof first);
        check_ok(rcv_stream_reset(stream, NULL));
        check_ok(rcv_stream_step(stream, s.frames, 2, NULL)); /* without outputs */
        check_ok(rcv_stream_get_states(stream, -1, states));
        stream_steps(&s, stream, 2, 4, 1);
        check_ok(rcv_stream_set_states(stream, -1, states));
        memset(s.out, 0xff, sizeof s.out);
        stream_steps(&s, stream, 2, 4, 2);
        assert_memory_equal(s.out + 2 * out_bytes(&s), first + 2 * out_bytes(&s), 2 * out_bytes(&s));
        check_ok(rcv_stream_reset(stream, (const uint8_t[BATCH]){0, 0, 7}));
        char *writable = s.frames == (const char *)s.x ? (char *)s.x : (char *)s.tokens;
        memcpy(writable + 4 * s.frame + 2 * part, writable + 2 * part, part); /* row 2 begins again */
        stream_steps(&s, stream, 4, 5, 1);
        assert_int_equal(s.fixture.allocator.calls, calls);
        assert_memory_equal(s.out + 4 * out_bytes(&s), first + 4 * out_bytes(&s), 2 * row);
        assert_memory_equal(s.out + 4 * out_bytes(&s) + 2 * row, first + 2 * row, row);
        rcv_stream_free(stream);
        close_subject(&s);
    }
}

static void refusals(void **state) {
    (void)state;
    static subject s;
    rcv_stream *stream = NULL;
    open_subject(&s, 2, "bidirectional=true");
    check_fails(rcv_stream_new_learner(s.learner, NULL, &stream), RCV_UNSUPPORTED, "reverse direction");
    close_subject(&s);
    open_subject(&s, 3, "");
    check_fails(
        rcv_stream_new_learner(s.learner, &RCV_INIT(rcv_stream_options, .output = RCV_OUTPUT_PROBABILITIES), &stream),
        RCV_INVALID, "predicts values");
    close_subject(&s);
    open_subject(&s, 0, "");
    const struct {
        rcv_stream_options options;
        rcv_status status;
        const char *fragment;
    } wrong[] = {
        {RCV_INIT(rcv_stream_options, .device = "cuda"), RCV_INVALID, "the learner is on device cpu"},
        {RCV_INIT(rcv_stream_options, .dtype = RCV_FLOAT64), RCV_INVALID, "of type float32"},
        {RCV_INIT(rcv_stream_options, .on_device = true), RCV_UNSUPPORTED, "lie on the host"},
        {RCV_INIT(rcv_stream_options, .cuda_stream = &s), RCV_UNSUPPORTED, "lie on the host"},
        {RCV_INIT(rcv_stream_options, .batch = -1), RCV_INVALID, "at least 1 row"},
        {RCV_INIT(rcv_stream_options, .most = INT64_MAX / 2, .schedule = "naive"), RCV_INVALID, "memory can address"},
        {RCV_INIT(rcv_stream_options, .most = (int64_t)1 << 33, .schedule = "naive"), RCV_INVALID,
         "memory can address"},
        {RCV_INIT(rcv_stream_options, .output = (rcv_output)4), RCV_INVALID, "rcv_output"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        stream = (rcv_stream *)&s;
        check_fails(rcv_stream_new_learner(s.learner, &wrong[i].options, &stream), wrong[i].status, wrong[i].fragment);
        assert_null(stream);
    }
    /* A token that the vocabulary does not have changes nothing, also where others of the chunk are good. */
    static char first[sizeof s.out];
    stream = open_stream(&s, RCV_OUTPUT_DEFAULT);
    stream_steps(&s, stream, 0, STEPS, STEPS);
    memcpy(first, s.out, sizeof first);
    check_ok(rcv_stream_reset(stream, NULL));
    stream_steps(&s, stream, 0, 3, 1);
    int64_t bad[2 * BATCH] = {1, 2, 3, 4, 5, s.learner->shape.tokens};
    check_fails(rcv_stream_step(stream, bad, 2, s.out), RCV_INVALID, "at step 1 of row 2 is not in 0 to");
    check_fails(rcv_stream_step(stream, s.tokens, 1, s.tokens), RCV_INVALID, "out overlaps frames");
    stream_steps(&s, stream, 3, STEPS, 1);
    assert_memory_equal(s.out, first, STEPS * out_bytes(&s));
    rcv_stream_free(stream);
    close_subject(&s);
}

/* Every allocation of opening a stream fails once. */
static void failing_memory(void **state) {
    (void)state;
    static subject s;
    for (size_t i = 0; i < 2; i++) {
        open_subject(&s, i ? 2 : 0, "dtype=float64");
        test_allocator *allocator = &s.fixture.allocator;
        size_t live = allocator->live;
        rcv_stream *stream = NULL;
        memory_faults_begin(allocator);
        rcv_status status = rcv_stream_new_learner(
            s.learner, &RCV_INIT(rcv_stream_options, .threads = 1, .schedule = "combine+fuse+pack"), &stream);
        memory_faults_stop(allocator);
        assert_int_equal(status, allocator->failed ? RCV_NO_MEMORY : RCV_OK);
        assert_true((stream == NULL) == (allocator->failed > 0));
        rcv_stream_free(stream);
        assert_int_equal(allocator->live, live);
        rcv_learner_free(s.learner);
        if (!allocator->in_child) train_fixture_close(&s.fixture);
        assert_true(memory_faults_end(allocator) > 15);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(predictions),
        cmocka_unit_test(rows_and_states),
        cmocka_unit_test(refusals),
        cmocka_unit_test(failing_memory),
    };
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}
