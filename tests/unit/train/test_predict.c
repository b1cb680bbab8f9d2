/* Predictions without targets: the loss that rcv_learner_evaluate gives, any number of sequences and lengths, plans used again, refusals. */
#define _XOPEN_SOURCE 700

#include "memory_faults.h"
#include "scratch.h"
#include "train_fixture.h"

#include <math.h>

/* All sequences of some data, as a caller has them. */
typedef struct {
    int64_t steps, batch, outputs;
    int64_t *tokens, *lengths; /* NULL where there are none */
    float *x;
    int32_t *targets; /* [steps, batch] next tokens, or [batch] classes; NULL: values */
    float *values;    /* [batch, outputs], or [steps, batch, outputs] */
    size_t real;      /* bytes of an output */
    void *out;        /* room for [steps, batch, outputs] */
} sequences;

static void *copy_of(const void *from, size_t bytes) {
    void *copy = malloc(bytes + 1);
    assert_non_null(copy);
    if (from) memcpy(copy, from, bytes);
    return from ? copy : (free(copy), NULL);
}

static void read_sequences(const rcv_learner *l, const rcv_data *data, sequences *s) {
    int64_t longest = rcv_data_longest(data);
    bool stream = rcv_learner_kind(l) == RCV_DATA_STREAM;
    const rcvi_batcher_options options = {.how = stream ? RCVI_ALL : RCVI_SEQUENCES,
                                          .batch = stream ? 1 : rcv_data_sequences(data),
                                          .steps = rcv_data_tokens(data) - 1,
                                          .bounds = &longest,
                                          .bound_count = 1};
    rcvi_batcher *batcher = NULL;
    rcvi_batch batch;
    check_ok(rcvi_batcher_new(data, &options, &batcher));
    assert_int_equal(rcvi_batcher_count(batcher), 1);
    check_ok(rcvi_batcher_next(batcher, &batch));
    size_t rows = (size_t)(batch.steps * batch.batch), sequence_count = (size_t)batch.batch;
    bool each = rcvi_predicts_steps(l);
    *s = (sequences){.steps = batch.steps,
                     .batch = batch.batch,
                     .outputs = rcv_learner_outputs(l),
                     .lengths = copy_of(batch.lengths, sequence_count * sizeof(int64_t)),
                     .x = copy_of(batch.x, rows * (size_t)rcv_learner_features(l) * sizeof(float)),
                     .targets = copy_of(batch.targets, (each ? rows : sequence_count) * sizeof(int32_t)),
                     .values = copy_of(batch.values,
                                       (each ? rows : sequence_count) * (size_t)rcv_learner_outputs(l) * sizeof(float)),
                     .real = rcv_dtype_bytes(rcv_learner_dtype(l))};
    if (batch.inputs) {
        s->tokens = malloc(rows * sizeof *s->tokens);
        for (size_t i = 0; i < rows; i++) s->tokens[i] = batch.inputs[i];
    }
    s->out = malloc(rows * (size_t)s->outputs * s->real);
    rcvi_batcher_free(batcher);
}

static void free_sequences(sequences *s) {
    void *const arrays[] = {s->tokens, s->lengths, s->x, s->targets, s->values, s->out};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) free(arrays[i]);
}

static rcv_prediction prediction_of(const sequences *s, rcv_output output) {
    return RCV_INIT(rcv_prediction, .steps = s->steps, .batch = s->batch, .x = s->x, .tokens = s->tokens,
                    .lengths = s->lengths, .output = output, .out = s->out, .threads = 1);
}

static double out_at(const sequences *s, const void *out, int64_t at) {
    return s->real == 8 ? ((const double *)out)[at] : (double)((const float *)out)[at];
}

/* The mean loss of what was predicted, as rcv_learner_evaluate defines it; `output` is the form of `out`. */
static double loss_of(const sequences *s, bool each, rcv_output output) {
    double sum = 0;
    int64_t counted = 0;
    for (int64_t row = 0; row < (each ? s->steps * s->batch : s->batch); row++) {
        bool ended = each && s->lengths && row / s->batch >= s->lengths[row % s->batch];
        for (int64_t i = 0; ended && i < s->outputs; i++) assert_true(out_at(s, s->out, row * s->outputs + i) == 0);
        if (ended || (s->targets ? s->targets[row] < 0 : isnan(s->values[row * s->outputs]))) continue;
        counted++;
        for (int64_t i = 0; s->values && i < s->outputs; i++) {
            double difference = out_at(s, s->out, row * s->outputs + i) - (double)s->values[row * s->outputs + i];
            sum += difference * difference / (double)s->outputs;
        }
        if (s->values) continue;
        double total = 0, own = out_at(s, s->out, row * s->outputs + s->targets[row]);
        for (int64_t i = 0; i < s->outputs; i++) total += exp(out_at(s, s->out, row * s->outputs + i));
        sum -= output == RCV_OUTPUT_LOGITS ? own - log(total) : output == RCV_OUTPUT_PROBABILITIES ? log(own) : own;
    }
    assert_true(counted > 0);
    return sum / (double)counted;
}

static const struct {
    rcv_data_kind kind;
    const char *settings;
} models[] = {
    {RCV_DATA_STREAM, "kind=stream cell=lstm layers=2 tied=true"},
    {RCV_DATA_STREAM, "kind=stream cell=gru embedding=5"},
    {RCV_DATA_LINES, "kind=lines cell=sru layers=2"},
    {RCV_DATA_CLASSES, "kind=classes cell=lstm layers=2"},
    {RCV_DATA_CLASSES, "kind=classes cell=gru bidirectional=true"},
    {RCV_DATA_VALUES, "kind=values cell=rnn_tanh"},
    {RCV_DATA_VALUES, "kind=values cell=lstm bidirectional=true layers=2"},
    {RCV_DATA_STEP_CLASSES, "kind=step-classes cell=gru layers=2"},
    {RCV_DATA_STEP_CLASSES, "kind=step-classes cell=lstm bidirectional=true"},
    {RCV_DATA_STEP_VALUES, "kind=step-values cell=lstm layers=2"},
};
enum { MODELS = sizeof models / sizeof *models };

static const rcv_data *data_of(train_fixture *f, rcv_data_kind kind) {
    char name[16];
    snprintf(name, sizeof name, "%zu", f->count);
    return train_fixture_data(f, name, kind, train_fixture_text(kind), NULL);
}

static rcv_learner *learner_of(train_fixture *f, const char *settings, const char *more, const rcv_data *data) {
    char line[256];
    rcv_learner *learner = NULL;
    snprintf(line, sizeof line, "%s %s init=0.5 hidden=6", settings, more);
    rcv_settings *made = train_fixture_settings(f, line);
    check_ok(rcv_learner_new(f->context, made, data, &learner));
    rcv_settings_free(made);
    return learner;
}

/* The loss of predictions is that of rcv_learner_evaluate, in every form, for every kind of model. */
static void same_loss(void **state) {
    (void)state;
    for (size_t i = 0; i < 2 * MODELS; i++) {
        bool wide = i % 2;
        train_fixture f;
        train_fixture_open(&f);
        const rcv_data *data = data_of(&f, models[i / 2].kind);
        rcv_learner *l = learner_of(&f, models[i / 2].settings, wide ? "dtype=float64" : "dtype=float32", data);
        sequences s;
        rcv_evaluation evaluation = RCV_INIT(rcv_evaluation);
        read_sequences(l, data, &s);
        check_ok(rcv_learner_evaluate(l, data, NULL, &evaluation));
        bool values = rcvi_kind_has_values(models[i / 2].kind);
        for (int output = RCV_OUTPUT_DEFAULT; output <= (values ? 0 : RCV_OUTPUT_LOG_PROBABILITIES); output++) {
            rcv_prediction p = prediction_of(&s, (rcv_output)output);
            memset(s.out, 0xff, (size_t)(s.steps * s.batch * s.outputs) * s.real);
            check_ok(rcv_learner_predict(l, &p));
            rcv_output form = output                                      ? (rcv_output)output
                              : rcvi_kind_has_classes(models[i / 2].kind) ? RCV_OUTPUT_PROBABILITIES
                                                                          : RCV_OUTPUT_LOGITS;
            double loss = loss_of(&s, rcvi_predicts_steps(l), form);
            if (!(fabs(loss - evaluation.loss) < (wide ? 1e-13 : 1e-6) * evaluation.loss))
                fail_msg("%s, output %d: %.17g, evaluated %.17g", models[i / 2].settings, output, loss,
                         evaluation.loss);
        }
        free_sequences(&s);
        rcv_learner_free(l);
        train_fixture_close(&f);
    }
}

/* ---- many sequences, long ones ---- */

enum { MANY = 300, LONG = 300, WORDS = 11 };

static void make_sequences(const rcv_learner *l, int64_t steps, int64_t batch, sequences *s) {
    int64_t features = rcv_learner_features(l);
    *s = (sequences){.steps = steps,
                     .batch = batch,
                     .outputs = rcv_learner_outputs(l),
                     .real = rcv_dtype_bytes(rcv_learner_dtype(l))};
    s->lengths = malloc((size_t)batch * sizeof *s->lengths);
    for (int64_t b = 0; b < batch; b++) s->lengths[b] = b == 3 ? steps : 1 + b * b * 37 % steps;
    s->tokens = features ? NULL : malloc((size_t)(steps * batch) * sizeof *s->tokens);
    s->x = features ? malloc((size_t)(steps * batch * features) * sizeof *s->x) : NULL;
    for (int64_t i = 0; i < steps * batch; i++) {
        bool ended = i / batch >= s->lengths[i % batch];
        if (s->tokens) s->tokens[i] = ended ? -7 : i * 31 / 7 % WORDS; /* what is past the end is not read */
        for (int64_t k = 0; k < features; k++) s->x[i * features + k] = ended ? NAN : (float)sin((double)(i + 3 * k));
    }
    s->out = malloc((size_t)(steps * batch * s->outputs) * s->real);
}

static void check_row(const sequences *s, int64_t to, const sequences *one, int64_t from, const char *what) {
    for (int64_t i = 0; i < s->outputs; i++) {
        double want = out_at(one, one->out, from * s->outputs + i), got = out_at(s, s->out, to * s->outputs + i);
        if (!(fabs(want - got) < 1e-12)) fail_msg("row %d: %.17g, %s %.17g", (int)to, got, what, want);
    }
}

/* One sequence alone, of its own length, is predicted as in the batch; and so by a stream, which knows no windows. */
static void check_alone(rcv_learner *l, const sequences *s, int64_t b) {
    int64_t features = rcv_learner_features(l), length = s->lengths[b];
    bool each = rcvi_predicts_steps(l);
    sequences one;
    make_sequences(l, length, 1, &one);
    for (int64_t t = 0; t < length; t++) {
        if (one.tokens) one.tokens[t] = s->tokens[t * s->batch + b];
        for (int64_t k = 0; k < features; k++) one.x[t * features + k] = s->x[(t * s->batch + b) * features + k];
    }
    rcv_prediction p = prediction_of(&one, RCV_OUTPUT_DEFAULT);
    p.lengths = NULL;
    check_ok(rcv_learner_predict(l, &p));
    for (int64_t t = 0; t < (each ? length : 1); t++) check_row(s, t * s->batch + b, &one, t, "alone");
    if (!rcv_net_get_options(rcv_learner_net(l))->bidirectional) {
        rcv_stream *stream = NULL;
        const void *frames = one.x ? (const void *)one.x : one.tokens;
        check_ok(rcv_stream_new_learner(
            l, &RCV_INIT(rcv_stream_options, .most = length, .threads = 1, .effort = RCV_ESTIMATE), &stream));
        check_ok(rcv_stream_step(stream, frames, length, one.out));
        for (int64_t t = 0; t < length && each; t++) check_row(s, t * s->batch + b, &one, t, "by a stream");
        if (!each) check_row(s, b, &one, length - 1, "by a stream");
        rcv_stream_free(stream);
    }
    free_sequences(&one);
}

static void any_number_any_length(void **state) {
    (void)state;
    for (size_t i = 1; i < MODELS; i++) {
        train_fixture f;
        train_fixture_open(&f);
        const rcv_data *data = data_of(&f, models[i].kind);
        rcv_learner *l = learner_of(&f, models[i].settings, "dtype=float64", data);
        sequences s;
        make_sequences(l, LONG, MANY, &s);
        assert_true(l->shape.features || l->shape.tokens >= WORDS);
        rcv_prediction p = prediction_of(&s, RCV_OUTPUT_DEFAULT);
        check_ok(rcv_learner_predict(l, &p));
        double *all = copy_of(s.out, (size_t)(LONG * MANY * s.outputs) * s.real);
        for (int64_t b = 0; b < MANY; b += 29) check_alone(l, &s, b);
        check_alone(l, &s, 3);
        check_alone(l, &s, MANY - 1);
        /* The same again needs no new memory: plans and arrays are kept. */
        size_t calls = f.allocator.calls;
        memset(s.out, 0xff, (size_t)(LONG * MANY * s.outputs) * s.real);
        check_ok(rcv_learner_predict(l, &p));
        assert_int_equal(f.allocator.calls, calls);
        bool each = rcvi_predicts_steps(l);
        assert_memory_equal(s.out, all, (size_t)((each ? LONG : 1) * MANY * s.outputs) * s.real);
        /* The last steps alone. */
        p.last = true;
        memset(s.out, 0xff, (size_t)(LONG * MANY * s.outputs) * s.real);
        check_ok(rcv_learner_predict(l, &p));
        for (int64_t b = 0; b < MANY; b++) {
            int64_t row = each ? (s.lengths[b] - 1) * MANY + b : b;
            for (int64_t k = 0; k < s.outputs; k++)
                assert_true(fabs(out_at(&s, s.out, b * s.outputs + k) - all[row * s.outputs + k]) < 1e-12);
        }
        free(all);
        free_sequences(&s);
        rcv_learner_free(l);
        train_fixture_close(&f);
    }
}

/* Predictions are those of the parameters that the learner has at the call. */
static void after_training(void **state) {
    (void)state;
    train_fixture f;
    train_fixture_open(&f);
    const rcv_data *data = data_of(&f, RCV_DATA_CLASSES);
    rcv_trainer *t = train_fixture_trainer(&f, "kind=classes batch=3 learning-rate=0.05 hidden=8 steps=150",
                                           "dtype=float64", data, NULL);
    rcv_learner *l = rcv_trainer_learner(t);
    rcv_evaluation evaluation = RCV_INIT(rcv_evaluation);
    sequences s;
    read_sequences(l, data, &s);
    rcv_prediction p = prediction_of(&s, RCV_OUTPUT_DEFAULT);
    check_ok(rcv_learner_predict(l, &p));
    double before = loss_of(&s, false, RCV_OUTPUT_PROBABILITIES);
    check_ok(rcv_trainer_run(t, NULL));
    check_ok(rcv_learner_predict(l, &p));
    check_ok(rcv_learner_evaluate(l, data, NULL, &evaluation));
    double after = loss_of(&s, false, RCV_OUTPUT_PROBABILITIES);
    assert_true(before > 0.9 && after < 0.1 && fabs(after - evaluation.loss) < 1e-12);
    free_sequences(&s);
    rcv_trainer_free(t);
    train_fixture_close(&f);
}

/* ---- refusals and memory ---- */

static bool never(void *user) {
    (void)user;
    return false;
}

static void refusals(void **state) {
    (void)state;
    train_fixture f;
    train_fixture_open(&f);
    const rcv_data *text = data_of(&f, RCV_DATA_STREAM), *numbers = data_of(&f, RCV_DATA_VALUES);
    rcv_learner *l = learner_of(&f, "kind=stream", "", text), *m = learner_of(&f, "kind=values", "", numbers);
    int64_t tokens[6] = {0, 1, 2, 3, 4, 5}, lengths[2] = {3, 1};
    float x[12] = {0}, out[6 * 64];
    memset(out, 0x11, sizeof out);
    const rcv_prediction good =
        RCV_INIT(rcv_prediction, .steps = 3, .batch = 2, .tokens = tokens, .lengths = lengths, .out = out);
    const struct {
        rcv_prediction data;
        const char *fragment;
    } wrong[] = {
        {RCV_INIT(rcv_prediction, .steps = 3, .batch = 2, .out = out), "needs data->tokens"},
        {RCV_INIT(rcv_prediction, .steps = 3, .batch = 2, .tokens = tokens), "needs data->out"},
        {RCV_INIT(rcv_prediction, .steps = 3, .batch = 2, .tokens = tokens, .x = x, .out = out), "leave data->x NULL"},
        {RCV_INIT(rcv_prediction, .steps = 0, .batch = 2, .tokens = tokens, .out = out), "at least 1 step"},
        {RCV_INIT(rcv_prediction, .steps = 3, .batch = -1, .tokens = tokens, .out = out), "at least 1 step"},
        {RCV_INIT(rcv_prediction, .steps = INT64_MAX, .batch = 2, .tokens = tokens, .out = out), "memory can address"},
        {RCV_INIT(rcv_prediction, .steps = 3, .batch = 2, .tokens = tokens, .lengths = lengths, .out = tokens),
         "out overlaps tokens"},
        {RCV_INIT(rcv_prediction, .steps = 3, .batch = 2, .tokens = tokens, .lengths = (int64_t[]){3, 4}, .out = out),
         "length 4 of sequence 1"},
        {RCV_INIT(rcv_prediction, .steps = 3, .batch = 2, .tokens = tokens, .lengths = (int64_t[]){0, 3}, .out = out),
         "length 0 of sequence 0"},
        {RCV_INIT(rcv_prediction, .steps = 2, .batch = 1, .tokens = (int64_t[]){1, 99}, .out = out),
         "token 99 at step 1 of row 0"},
        {RCV_INIT(rcv_prediction, .steps = 1, .batch = 2, .tokens = (int64_t[]){1, -1}, .out = out), "token -1"},
        {RCV_INIT(rcv_prediction, .steps = 3, .batch = 2, .tokens = tokens, .output = (rcv_output)9, .out = out),
         "rcv_output"},
    };
    assert_true(rcv_learner_outputs(l) < 64);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        check_fails(rcv_learner_predict(l, &wrong[i].data), RCV_INVALID, wrong[i].fragment);
    check_fails(rcv_learner_predict(m, &good), RCV_INVALID, "2 numbers a step");
    check_fails(rcv_learner_predict(m, &RCV_INIT(rcv_prediction, .steps = 1, .batch = 1, .out = out)), RCV_INVALID,
                "needs data->x");
    check_fails(rcv_learner_predict(m, &RCV_INIT(rcv_prediction, .steps = 1, .batch = 1, .x = x, .out = out,
                                                 .output = RCV_OUTPUT_LOGITS)),
                RCV_INVALID, "predicts values");
    check_fails(
        rcv_learner_predict(m, &RCV_INIT(rcv_prediction, .steps = 1, .batch = 1, .x = x, .features = 3, .out = out)),
        RCV_INVALID, "have 3 features a time step, the model reads 2");
    for (size_t i = 0; i < sizeof out; i++) assert_int_equal(((const char *)out)[i], 0x11);
    check_ok(rcv_learner_predict(l, &RCV_INIT(rcv_prediction, .steps = 3, .batch = 0)));
    rcv_prediction stopped = good;
    stopped.go_on = never;
    check_fails(rcv_learner_predict(l, &stopped), RCV_STOPPED, "prediction was stopped");
    check_ok(rcv_learner_predict(l, &good));
    assert_true(out[0] != 0 && out[0] == out[0] && out[3 * rcv_learner_outputs(l)] == 0);
    rcv_learner_free(m);
    rcv_learner_free(l);
    train_fixture_close(&f);
}

/* Every allocation of a call fails once; the call after it succeeds. */
static void failing_memory(void **state) {
    (void)state;
    train_fixture f;
    train_fixture_open(&f);
    const rcv_data *data = data_of(&f, RCV_DATA_STREAM);
    rcv_learner *l = learner_of(&f, "kind=stream", "", data);
    const int64_t tokens[4] = {0, 1, 2, 3};
    float out[4 * 64], again[4 * 64];
    const rcv_prediction small =
        RCV_INIT(rcv_prediction, .steps = 1, .batch = 2, .tokens = tokens, .out = out, .threads = 1);
    rcv_prediction p = RCV_INIT(rcv_prediction, .steps = 2, .batch = 2, .tokens = tokens, .out = out, .threads = 1);
    check_ok(rcv_learner_predict(l, &small)); /* so that the next call makes a larger predictor in place of it */
    memory_faults_begin(&f.allocator);
    rcv_status status = rcv_learner_predict(l, &p);
    memory_faults_stop(&f.allocator);
    assert_int_equal(status, f.allocator.failed ? RCV_NO_MEMORY : RCV_OK);
    p.out = again;
    check_ok(rcv_learner_predict(l, &p));
    if (!status) assert_memory_equal(out, again, (size_t)(4 * rcv_learner_outputs(l)) * sizeof *out);
    rcv_learner_free(l);
    if (!f.allocator.in_child) train_fixture_close(&f);
    assert_true(memory_faults_end(&f.allocator) > 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_loss), cmocka_unit_test(any_number_any_length), cmocka_unit_test(after_training),
        cmocka_unit_test(refusals),  cmocka_unit_test(failing_memory),
    };
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}
