/* Language models: loss, gradients and Adam against independent computations in double; learning; going on from a
 * file. */
#include "test.h"

#include "base/random.h"
#include "train/lm.h"

#include <math.h>
#include <unistd.h>

static const char VERSE[] = "pack my box with five dozen liquor jugs\n";

typedef struct {
    test_allocator allocator;
    rcv_context *context;
    rcv_cell *cell;
    char path[64];
} fixture;

static void open_fixture(fixture *fixture, const char *cell) {
    fixture->context = test_context(&fixture->allocator);
    check_ok(rcv_cell_open(fixture->context, cell, &fixture->cell));
    snprintf(fixture->path, sizeof fixture->path, "/tmp/recurve-test-lm-%ld.safetensors", (long)getpid());
}

static void close_fixture(fixture *fixture) {
    unlink(fixture->path);
    rcv_cell_free(fixture->cell);
    test_context_end(&fixture->allocator, fixture->context);
}

static rcv_lm *new_lm(const fixture *fixture, int64_t embedding, int64_t hidden, int64_t layers, double dropout) {
    const rcv_lm_options options = {.embedding = embedding,
                                    .net = {.hidden = hidden, .layers = layers, .dropout = dropout}};
    rcv_lm *lm = NULL;
    check_ok(rcv_lm_new(fixture->cell, &options, 7, &lm));
    return lm;
}

/* The verse again and again. */
static uint8_t *make_text(size_t bytes) {
    uint8_t *text = malloc(bytes);
    assert_non_null(text);
    for (size_t i = 0; i < bytes; i++) {
        text[i] = (uint8_t)VERSE[i % (sizeof VERSE - 1)];
    }
    return text;
}

/* Any bytes, so that most values differ. */
static uint8_t *make_noise(size_t bytes) {
    uint8_t *text = malloc(bytes);
    assert_non_null(text);
    for (size_t i = 0; i < bytes; i++) {
        text[i] = (uint8_t)(256 * rcvi_hash_uniform(3, i));
    }
    return text;
}

/* ---- the softmax layer ---- */

/* Sum over rows of -log softmax(W y + b)[target], in double and the long way. */
static double softmax_loss(int64_t rows, int64_t features, const double *y, const double *weight, const double *bias,
                           const uint8_t *targets) {
    double loss = 0;
    for (int64_t r = 0; r < rows; r++) {
        double logits[256], sum = 0;
        for (int s = 0; s < 256; s++) {
            logits[s] = bias[s];
            for (int64_t f = 0; f < features; f++) {
                logits[s] += weight[s * features + f] * y[r * features + f];
            }
            sum += exp(logits[s]);
        }
        loss += log(sum) - logits[targets[r]];
    }
    return loss;
}

enum { ROWS = RCVI_LOSS_ROWS + 6, FEATURES = 5 }; /* more than one chunk, the last one not full */

typedef struct {
    float values[ROWS * FEATURES + 256 * FEATURES + 256]; /* y, weight, bias */
    double exact[ROWS * FEATURES + 256 * FEATURES + 256];
    float gradient[ROWS * FEATURES + 256 * FEATURES + 256];
    uint8_t targets[ROWS];
    float logits[RCVI_LOSS_ROWS * 256];
} softmax_case;

enum { WEIGHT_AT = ROWS * FEATURES, BIAS_AT = WEIGHT_AT + 256 * FEATURES, SOFTMAX_ALL = BIAS_AT + 256 };

static double exact_softmax(const softmax_case *data) {
    return softmax_loss(ROWS, FEATURES, data->exact, data->exact + WEIGHT_AT, data->exact + BIAS_AT, data->targets);
}

static void test_softmax_gradient(void **unused) {
    (void)unused;
    softmax_case *data = calloc(1, sizeof *data);
    assert_non_null(data);
    for (int i = 0; i < SOFTMAX_ALL; i++) {
        data->values[i] = (float)(2 * rcvi_hash_uniform(1, (uint64_t)i) - 1);
        data->exact[i] = (double)data->values[i];
    }
    for (int r = 0; r < ROWS; r++) {
        data->targets[r] = (uint8_t)(256 * rcvi_hash_uniform(2, (uint64_t)r));
    }
    const rcvi_decoder decoder = {FEATURES, data->values + WEIGHT_AT, data->values + BIAS_AT,
                                  data->gradient + WEIGHT_AT, data->gradient + BIAS_AT};
    const double loss =
        rcvi_decoder_loss(&decoder, data->values, data->targets, ROWS, 0.5, data->logits, data->gradient);
    assert_true(fabs(loss - exact_softmax(data)) < 1e-5 * loss);
    for (int i = 0; i < SOFTMAX_ALL; i += i < WEIGHT_AT ? 1 : 7) {
        const double at = data->exact[i], step = 1e-5;
        data->exact[i] = at + step;
        const double above = exact_softmax(data);
        data->exact[i] = at - step;
        const double below = exact_softmax(data);
        data->exact[i] = at;
        const double difference = 0.5 * (above - below) / (2 * step);
        if (!(fabs(difference - (double)data->gradient[i]) < 2e-6)) {
            fail_msg("gradient %d is %g, the difference quotient %g", i, (double)data->gradient[i], difference);
        }
    }
    free(data);
}

static void test_softmax_is_steady(void **unused) {
    (void)unused;
    float weight[256] = {0}, bias[256] = {0}, logits[RCVI_LOSS_ROWS * 256], y = 1;
    const rcvi_decoder decoder = {1, weight, bias, NULL, NULL};
    const uint8_t target = 9;
    bias[9] = 1000;
    assert_true(rcvi_decoder_loss(&decoder, &y, &target, 1, 1, logits, NULL) == 0);
    bias[9] = -1000;
    assert_true(fabs(rcvi_decoder_loss(&decoder, &y, &target, 1, 1, logits, NULL) - (1000 + log(255))) < 1e-3);
}

/* ---- the whole model ---- */

/* Mean nats a byte of a model with these parameters, by one plan in double over the whole text. */
static double model_loss(const rcv_lm *lm, const double *parameters, const uint8_t *text, int64_t steps, int64_t batch,
                         int64_t stride) {
    const int64_t rows = steps * batch, features = lm->embedding;
    const rcv_plan_options options = {.steps = steps, .batch = batch, .dtype = RCV_FLOAT64, .schedule = "naive"};
    rcv_plan *plan;
    rcv_run *run;
    check_ok(rcv_plan_new(lm->net, &options, &plan));
    check_ok(rcv_run_new(plan, &run));
    double *x = calloc((size_t)(rows * features), sizeof *x), *y = calloc((size_t)(rows * lm->output), sizeof *y);
    uint8_t *targets = calloc((size_t)rows, 1);
    assert_true(x != NULL && y != NULL && targets != NULL);
    for (int64_t r = 0; r < rows; r++) {
        const uint8_t *at = text + (r % batch) * stride + r / batch;
        memcpy(x + r * features, parameters + at[0] * features, (size_t)features * sizeof *x);
        targets[r] = at[1];
    }
    const rcv_forward data = {.parameters = parameters + lm->at_net, .x = x, .y = y};
    check_ok(rcv_run_forward(run, &data));
    const double loss =
        softmax_loss(rows, lm->output, y, parameters + lm->at_weight, parameters + lm->at_bias, targets);
    free(x);
    free(y);
    free(targets);
    rcv_run_free(run);
    rcv_plan_free(plan);
    return loss / (double)rows;
}

static double *widened(const rcv_lm *lm) {
    double *parameters = calloc((size_t)lm->elements, sizeof *parameters);
    assert_non_null(parameters);
    for (int64_t i = 0; i < lm->elements; i++) {
        parameters[i] = (double)lm->parameters[i];
    }
    return parameters;
}

static void test_model_gradient(void **unused) {
    (void)unused;
    enum { STEPS = 5, BATCH = 3, STRIDE = 11 };
    fixture fixture;
    open_fixture(&fixture, "lstm");
    rcv_lm *lm = new_lm(&fixture, 3, 4, 2, 0);
    uint8_t *text = make_text(BATCH * STRIDE + 1);
    float *gradient = calloc((size_t)lm->elements, sizeof *gradient);
    double *parameters = widened(lm), loss;
    rcvi_window window;
    check_ok(rcvi_window_new(lm, STEPS, BATCH, true, &window));
    check_ok(rcvi_window_gradient(&window, text, STRIDE, 0, gradient, &loss));
    assert_true(fabs(loss - model_loss(lm, parameters, text, STEPS, BATCH, STRIDE)) < 1e-5);
    int moved = 0;
    for (int64_t i = 0; i < lm->elements; i++) {
        const bool embedding = i < lm->at_net && strchr(VERSE, (int)(i / lm->embedding)) != NULL;
        if (!embedding && i % 13 != 0) {
            continue;
        }
        const double at = parameters[i], step = 1e-5;
        parameters[i] = at + step;
        const double above = model_loss(lm, parameters, text, STEPS, BATCH, STRIDE);
        parameters[i] = at - step;
        const double below = model_loss(lm, parameters, text, STEPS, BATCH, STRIDE);
        parameters[i] = at;
        const double difference = (above - below) / (2 * step);
        if (!(fabs(difference - (double)gradient[i]) < 1e-6)) {
            fail_msg("gradient %lld is %g, the difference quotient %g", (long long)i, (double)gradient[i], difference);
        }
        moved += embedding && fabs(difference) > 1e-5;
    }
    assert_true(moved >= 20);
    rcvi_window_free(&window);
    rcv_lm_free(lm);
    free(text);
    free(gradient);
    free(parameters);
    close_fixture(&fixture);
}

static void test_evaluate(void **unused) {
    (void)unused;
    const size_t lengths[] = {2, 100, 257, 600}; /* one byte, less than a window, a whole one, some and a rest */
    fixture fixture;
    open_fixture(&fixture, "gru");
    rcv_lm *lm = new_lm(&fixture, 4, 6, 1, 0);
    double *parameters = widened(lm);
    uint8_t *text = make_noise(600);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        double loss;
        int64_t predictions;
        check_ok(rcv_lm_evaluate(lm, text, lengths[i], &loss, &predictions));
        assert_int_equal(predictions, lengths[i] - 1);
        assert_true(fabs(loss - model_loss(lm, parameters, text, (int64_t)lengths[i] - 1, 1, 0)) < 1e-5);
    }
    free(text);
    free(parameters);
    rcv_lm_free(lm);
    close_fixture(&fixture);
}

/* ---- Adam ---- */

static void test_adam(void **unused) {
    (void)unused;
    /* From 1 with rate 0.1 and the gradients 1, -0.5, 2; worked out by hand from Kingma and Ba's algorithm 1. */
    const float gradients[] = {1, -0.5f, 2};
    const double expected[] = {0.9, 0.8733662974, 0.8075551378};
    float parameter = 1, first = 0, second = 0;
    float scaled = 1, scaled_first = 0, scaled_second = 0;
    for (int t = 0; t < 3; t++) {
        rcvi_adam(t + 1, 0.1, 1, 1, &gradients[t], &first, &second, &parameter);
        assert_true(fabs((double)parameter - expected[t]) < 3e-7);
        const float large = gradients[t] * 8;
        rcvi_adam(t + 1, 0.1, 0.125, 1, &large, &scaled_first, &scaled_second, &scaled);
    }
    assert_true(fabs((double)first - 0.236) < 1e-7);
    assert_true(fabs((double)second - 0.005247751) < 1e-8);
    assert_true(scaled == parameter && scaled_first == first && scaled_second == second);
    assert_true(rcvi_norm((const float[]){3, -4, 12}, 3) == 13);
}

static void test_clipping(void **unused) {
    (void)unused;
    fixture fixture;
    open_fixture(&fixture, "gru");
    uint8_t *text = make_text(200);
    for (int i = 0; i < 2; i++) {
        rcv_lm *lm = new_lm(&fixture, 4, 4, 1, 0);
        const rcv_lm_training options = {
            .batch = 2, .length = 10, .steps = 1, .learning_rate = 0.01, .clip = i == 0 ? 0.001 : 1000};
        check_ok(rcv_lm_train(lm, text, 200, &options));
        /* After one update the first moment is a tenth of the clipped gradient. */
        const double norm = 10 * rcvi_norm(lm->first, lm->elements);
        assert_true(i == 0 ? fabs(norm - 0.001) < 1e-8 : norm > 0.01 && norm < 1000);
        rcv_lm_free(lm);
    }
    free(text);
    close_fixture(&fixture);
}

/* ---- training ---- */

typedef struct {
    int64_t calls, stop_at;
    rcv_lm_progress last;
} watcher;

static bool watch(void *user, const rcv_lm_progress *progress) {
    watcher *watcher = user;
    watcher->calls++;
    watcher->last = *progress;
    return watcher->calls != watcher->stop_at;
}

typedef struct {
    uint8_t bytes[256];
    size_t count, stop_at;
} collector;

static bool collect(void *user, uint8_t byte) {
    collector *collector = user;
    if (collector->count == collector->stop_at) {
        return false;
    }
    collector->bytes[collector->count++] = byte;
    return true;
}

static void test_memorising(void **unused) {
    (void)unused;
    fixture fixture;
    open_fixture(&fixture, "lstm");
    rcv_lm *lm = new_lm(&fixture, 8, 32, 1, 0);
    uint8_t *text = make_text(1000);
    watcher watcher = {0};
    const rcv_lm_training options = {
        .batch = 4, .length = 20, .steps = 400, .learning_rate = 0.01, .clip = 1, .progress = watch, .user = &watcher};
    double before, after;
    check_ok(rcv_lm_evaluate(lm, text, 1000, &before, NULL));
    assert_true(before > 5);
    check_ok(rcv_lm_train(lm, text, 1000, &options));
    check_ok(rcv_lm_evaluate(lm, text, 1000, &after, NULL));
    /* The letters' frequencies leave 3.11 nats, the letter before still 0.57. */
    assert_true(after < 0.15);
    assert_true(watcher.last.loss < 0.15 && watcher.last.gradient_norm > 0);
    assert_int_equal(watcher.calls, 400);
    assert_int_equal(watcher.last.step, 400);
    assert_int_equal(rcv_lm_steps(lm), 400);

    const size_t period = sizeof VERSE - 1;
    collector collector = {.stop_at = 256};
    check_ok(rcv_lm_generate(lm, text, period + 10, 2 * period, 0, 1, collect, &collector));
    assert_int_equal(collector.count, 2 * period);
    assert_memory_equal(collector.bytes, text + 10, 2 * period);
    rcv_lm_free(lm);
    free(text);
    close_fixture(&fixture);
}

static void check_same(const rcv_lm *a, const rcv_lm *b) {
    const size_t bytes = (size_t)a->elements * sizeof(float);
    assert_int_equal(a->step, b->step);
    assert_int_equal(a->elements, b->elements);
    assert_memory_equal(a->parameters, b->parameters, bytes);
    assert_memory_equal(a->first, b->first, bytes);
    assert_memory_equal(a->second, b->second, bytes);
}

/* Saved with carried states in the middle of an epoch; both before and after that point a new epoch begins. */
static void test_going_on(void **unused) {
    (void)unused;
    enum { BYTES = 331, TOTAL = 17 }; /* 3 columns of 110 bytes: 5 windows of 20 an epoch */
    fixture fixture;
    open_fixture(&fixture, "lstm");
    uint8_t *text = make_noise(BYTES);
    rcv_lm_training options = {.batch = 3, .length = 20, .steps = TOTAL, .learning_rate = 0.01, .clip = 1, .seed = 5};
    rcv_lm *whole = new_lm(&fixture, 4, 6, 2, 0.3), *part = new_lm(&fixture, 4, 6, 2, 0.3), *rest;
    check_ok(rcv_lm_train(whole, text, BYTES, &options));
    options.steps = 8;
    check_ok(rcv_lm_train(part, text, BYTES, &options));
    assert_int_equal(part->place.position, 60);
    check_ok(rcv_lm_save(part, fixture.path));
    check_ok(rcv_lm_load(fixture.context, fixture.path, &rest));
    check_same(part, rest);
    options.steps = TOTAL - 8;
    check_ok(rcv_lm_train(rest, text, BYTES, &options));
    check_same(whole, rest);
    check_ok(rcv_lm_train(part, text, BYTES, &options)); /* without a file in between */
    check_same(whole, part);

    text[0] ^= 1; /* another text is read from its start */
    options.steps = 1;
    check_ok(rcv_lm_train(part, text, BYTES, &options));
    assert_int_equal(part->place.position, 20);
    rcv_lm_free(whole);
    rcv_lm_free(part);
    rcv_lm_free(rest);
    free(text);
    close_fixture(&fixture);
}

static void test_untrained_file(void **unused) {
    (void)unused;
    fixture fixture;
    open_fixture(&fixture, "gru");
    rcv_lm *lm = new_lm(&fixture, 4, 6, 1, 0), *loaded;
    check_ok(rcv_lm_save(lm, fixture.path));
    check_ok(rcv_lm_load(fixture.context, fixture.path, &loaded));
    assert_int_equal(rcv_lm_steps(loaded), 0);
    assert_int_equal(rcv_lm_parameter_elements(loaded), 256 * 4 + 3 * 6 * (4 + 6 + 2) + 256 * 6 + 256);
    assert_memory_equal(lm->parameters, loaded->parameters, (size_t)lm->elements * sizeof(float));
    rcv_lm_free(loaded);
    rcv_lm_free(lm);
    close_fixture(&fixture);
}

static void test_stopping(void **unused) {
    (void)unused;
    fixture fixture;
    open_fixture(&fixture, "rnn_tanh");
    rcv_lm *stopped = new_lm(&fixture, 4, 4, 1, 0), *plain = new_lm(&fixture, 4, 4, 1, 0);
    uint8_t *text = make_text(200);
    watcher watcher = {.stop_at = 3};
    rcv_lm_training options = {.batch = 2, .length = 10, .steps = 100, .learning_rate = 0.01};
    options.progress = watch;
    options.user = &watcher;
    check_fails(rcv_lm_train(stopped, text, 200, &options), RCV_STOPPED, "3 updates");
    options.steps = 3;
    options.progress = NULL;
    check_ok(rcv_lm_train(plain, text, 200, &options));
    check_same(stopped, plain);
    rcv_lm_free(stopped);
    rcv_lm_free(plain);
    free(text);
    close_fixture(&fixture);
}

static void test_no_number(void **unused) {
    (void)unused;
    fixture fixture;
    open_fixture(&fixture, "gru");
    rcv_lm *lm = new_lm(&fixture, 4, 4, 1, 0);
    uint8_t *text = make_text(200);
    const rcv_lm_training options = {.batch = 2, .length = 10, .steps = 5, .learning_rate = 0.01};
    check_ok(rcv_lm_train(lm, text, 200, &options));
    lm->parameters[lm->at_bias] = NAN;
    float *before = malloc((size_t)lm->elements * sizeof *before);
    memcpy(before, lm->parameters, (size_t)lm->elements * sizeof *before);
    check_fails(rcv_lm_train(lm, text, 200, &options), RCV_INVALID, "no longer finite after 5 updates");
    assert_memory_equal(before, lm->parameters, (size_t)lm->elements * sizeof *before);
    assert_int_equal(rcv_lm_steps(lm), 5);
    collector collector = {.stop_at = 256};
    check_fails(rcv_lm_generate(lm, "a", 1, 5, 1, 0, collect, &collector), RCV_INVALID, "finite");
    free(before);
    free(text);
    rcv_lm_free(lm);
    close_fixture(&fixture);
}

/* ---- generating ---- */

static void test_generating(void **unused) {
    (void)unused;
    fixture fixture;
    open_fixture(&fixture, "gru");
    rcv_lm *lm = new_lm(&fixture, 4, 6, 1, 0);
    collector one = {.stop_at = 200}, same = {.stop_at = 200}, other = {.stop_at = 200}, cut = {.stop_at = 10};
    check_ok(rcv_lm_generate(lm, NULL, 0, 100, 1, 1, collect, &one));
    check_ok(rcv_lm_generate(lm, "", 0, 100, 1, 1, collect, &same));
    check_ok(rcv_lm_generate(lm, "", 0, 100, 1, 2, collect, &other));
    assert_int_equal(one.count, 100);
    assert_int_equal(other.count, 100);
    assert_memory_equal(one.bytes, same.bytes, 100);
    assert_memory_not_equal(one.bytes, other.bytes, 100);
    check_fails(rcv_lm_generate(lm, "", 0, 100, 1, 1, collect, &cut), RCV_STOPPED, "10 bytes");
    assert_memory_equal(one.bytes, cut.bytes, 10);
    check_ok(rcv_lm_generate(lm, "x", 1, 0, 1, 1, collect, &cut));
    check_fails(rcv_lm_generate(lm, "", 0, 1, -1, 1, collect, &one), RCV_INVALID, "temperature");
    check_fails(rcv_lm_generate(lm, "", 0, 1, NAN, 1, collect, &one), RCV_INVALID, "temperature");
    check_fails(rcv_lm_generate(lm, NULL, 1, 1, 1, 1, collect, &one), RCV_INVALID, "prompt");
    rcv_lm_free(lm);
    close_fixture(&fixture);
}

/* The draw follows softmax(logits / temperature): a model whose output layer is its bias alone. */
static void test_temperature(void **unused) {
    (void)unused;
    fixture fixture;
    open_fixture(&fixture, "gru");
    rcv_lm *lm = new_lm(&fixture, 2, 2, 1, 0);
    for (int64_t i = lm->at_weight; i < lm->elements; i++) {
        lm->parameters[i] = i < lm->at_bias ? 0 : -1000;
    }
    lm->parameters[lm->at_bias + 'a'] = 0;
    lm->parameters[lm->at_bias + 'b'] = (float)log(3);
    for (int half = 0; half < 2; half++) {
        size_t seen = 0;
        for (uint64_t seed = 0; seed < 40; seed++) {
            collector collector = {.stop_at = 256};
            check_ok(rcv_lm_generate(lm, "", 0, 100, half ? 0.5 : 1, seed, collect, &collector));
            for (size_t i = 0; i < 100; i++) {
                assert_true(collector.bytes[i] == 'a' || collector.bytes[i] == 'b');
                seen += collector.bytes[i] == 'b';
            }
        }
        const double expected = half ? 0.9 : 0.75; /* 3 : 1, and its square */
        assert_true(fabs((double)seen / 4000 - expected) < 0.03);
    }
    rcv_lm_free(lm);
    close_fixture(&fixture);
}

/* ---- refusals ---- */

static void test_refusals(void **unused) {
    (void)unused;
    fixture fixture;
    open_fixture(&fixture, "gru");
    rcv_lm_options shape = {.embedding = 4, .net = {.hidden = 4, .bidirectional = true}};
    rcv_lm *lm = (rcv_lm *)&shape;
    check_fails(rcv_lm_new(fixture.cell, &shape, 0, &lm), RCV_INVALID, "bidirectional");
    assert_null(lm);
    shape.net.bidirectional = false;
    shape.embedding = 0;
    check_fails(rcv_lm_new(fixture.cell, &shape, 0, &lm), RCV_INVALID, "embedding");
    shape.embedding = 4;
    check_ok(rcv_lm_new(fixture.cell, &shape, 0, &lm));
    uint8_t *text = make_text(200);
    const rcv_lm_training good = {.batch = 4, .length = 10, .steps = 1, .learning_rate = 0.01};
    rcv_lm_training options = good;
    check_fails(rcv_lm_train(lm, text, 40, &options), RCV_INVALID, "at least 41");
    check_ok(rcv_lm_train(lm, text, 41, &options));
    options.steps = 0;
    check_fails(rcv_lm_train(lm, text, 200, &options), RCV_INVALID, "limit");
    options = good, options.batch = 0;
    check_fails(rcv_lm_train(lm, text, 200, &options), RCV_INVALID, "batch");
    options = good, options.length = INT64_MAX / 2;
    check_fails(rcv_lm_train(lm, text, 200, &options), RCV_INVALID, "too large");
    options = good, options.learning_rate = NAN;
    check_fails(rcv_lm_train(lm, text, 200, &options), RCV_INVALID, "learning rate");
    options = good, options.clip = -1;
    check_fails(rcv_lm_train(lm, text, 200, &options), RCV_INVALID, "clip");
    options = good, options.seconds = NAN;
    check_fails(rcv_lm_train(lm, text, 200, &options), RCV_INVALID, "limit");
    assert_int_equal(rcv_lm_steps(lm), 1);
    double loss;
    check_fails(rcv_lm_evaluate(lm, text, 1, &loss, NULL), RCV_INVALID, "at least 2");
    check_fails(rcv_lm_save(lm, "/nonexistent/folder/model"), RCV_IO, "/nonexistent");
    rcv_lm_free(lm);
    free(text);
    close_fixture(&fixture);
}

/* Writes the file again without one tensor, or with one of another shape or type. */
static void spoil(const fixture *fixture, const rcv_tensors *good, const char *name, const rcv_tensor *replacement) {
    rcv_tensors *bad;
    check_ok(rcv_tensors_new(fixture->context, &bad));
    const char *const keys[] = {"recurve.format", "recurve.cell", "recurve.network", "recurve.lm"};
    for (size_t i = 0; i < 4; i++) {
        check_ok(rcv_tensors_set_metadata(bad, keys[i], rcv_tensors_metadata(good, keys[i])));
    }
    for (size_t i = 0; i < rcv_tensors_count(good); i++) {
        const rcv_tensor *tensor = rcv_tensors_at(good, i);
        if (strcmp(tensor->name, name) != 0) {
            check_ok(rcv_tensors_add(bad, tensor));
        }
    }
    if (replacement != NULL) {
        check_ok(rcv_tensors_add(bad, replacement));
    }
    check_ok(rcv_tensors_save(bad, fixture->path));
    rcv_tensors_free(bad);
}

static void test_spoiled_files(void **unused) {
    (void)unused;
    const char *const wanted[] = {"embedding.weight",      "decoder.weight",      "decoder.bias", "rnn.weight_hh_l0",
                                  "adam.m.rnn.bias_ih_l0", "adam.v.decoder.bias", "train.h"};
    fixture fixture;
    open_fixture(&fixture, "gru");
    rcv_lm *lm = new_lm(&fixture, 4, 6, 1, 0), *loaded;
    uint8_t *text = make_text(200);
    const rcv_lm_training options = {.batch = 2, .length = 10, .steps = 1, .learning_rate = 0.01};
    check_ok(rcv_lm_train(lm, text, 200, &options));
    check_ok(rcv_lm_save(lm, fixture.path));
    rcv_tensors *good;
    check_ok(rcv_tensors_load(fixture.context, fixture.path, &good));
    const float zeros[4] = {0};
    const double doubles[256] = {0};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        spoil(&fixture, good, wanted[i], NULL);
        check_fails(rcv_lm_load(fixture.context, fixture.path, &loaded), RCV_FORMAT, wanted[i]);
        assert_null(loaded);
        const rcv_tensor small = {wanted[i], RCV_FLOAT32, 2, {2, 2}, zeros, sizeof zeros};
        spoil(&fixture, good, wanted[i], &small);
        check_fails(rcv_lm_load(fixture.context, fixture.path, &loaded), RCV_FORMAT, "[2, 2]");
    }
    const rcv_tensor wide = {"decoder.bias", RCV_FLOAT64, 1, {256}, doubles, sizeof doubles};
    spoil(&fixture, good, "decoder.bias", &wide);
    check_fails(rcv_lm_load(fixture.context, fixture.path, &loaded), RCV_FORMAT, "float64");
    const char *const descriptions[] = {
        "",
        "[]",
        "{\"step\": 1}",
        "{\"step\": -1, \"batch\": 2, \"position\": 10, \"bytes\": 200, \"hash\": \"0123456789abcdef\"}",
        "{\"step\": 1, \"batch\": 2, \"position\": 10, \"bytes\": 200, \"hash\": \"0123456789abcdeX\"}",
        "{\"step\": 1, \"batch\": 9000000000000000000, \"position\": 10, \"bytes\": 200, \"hash\": "
        "\"0123456789abcdef\"}"};
    for (size_t i = 0; i < sizeof descriptions / sizeof *descriptions; i++) {
        check_ok(rcv_tensors_set_metadata(good, "recurve.lm", descriptions[i]));
        check_ok(rcv_tensors_save(good, fixture.path));
        check_fails(rcv_lm_load(fixture.context, fixture.path, &loaded), RCV_FORMAT, "recurve.lm");
    }
    rcv_tensors_free(good);
    rcv_lm_free(lm);
    free(text);
    close_fixture(&fixture);
}

/* Every allocation fails once: nothing is left behind, and the status says so. */
static void test_no_memory(void **unused) {
    (void)unused;
    fixture fixture;
    open_fixture(&fixture, "gru");
    uint8_t *text = make_text(200);
    const rcv_lm_options shape = {.embedding = 2, .net = {.hidden = 2}};
    const rcv_lm_training options = {.batch = 2, .length = 3, .steps = 2, .learning_rate = 0.01};
    rcv_status status = RCV_NO_MEMORY;
    size_t tried = 0;
    while (status != RCV_OK) {
        const size_t live = fixture.allocator.live, failed = fixture.allocator.failed;
        rcv_lm *lm = NULL, *loaded = NULL;
        fixture.allocator.fail_at = ++tried;
        status = rcv_lm_new(fixture.cell, &shape, 1, &lm);
        if (status == RCV_OK) {
            status = rcv_lm_train(lm, text, 200, &options);
        }
        if (status == RCV_OK) {
            status = rcv_lm_save(lm, fixture.path);
        }
        if (status == RCV_OK) {
            status = rcv_lm_load(fixture.context, fixture.path, &loaded);
        }
        const bool fired = fixture.allocator.failed > failed;
        fixture.allocator.fail_at = 0;
        rcv_lm_free(loaded);
        rcv_lm_free(lm);
        assert_int_equal(fixture.allocator.live, live);
        assert_int_equal(status, fired ? RCV_NO_MEMORY : RCV_OK);
    }
    assert_true(tried > 20);
    free(text);
    close_fixture(&fixture);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_softmax_gradient),
        cmocka_unit_test(test_softmax_is_steady),
        cmocka_unit_test(test_model_gradient),
        cmocka_unit_test(test_evaluate),
        cmocka_unit_test(test_adam),
        cmocka_unit_test(test_clipping),
        cmocka_unit_test(test_memorising),
        cmocka_unit_test(test_going_on),
        cmocka_unit_test(test_untrained_file),
        cmocka_unit_test(test_stopping),
        cmocka_unit_test(test_no_number),
        cmocka_unit_test(test_generating),
        cmocka_unit_test(test_temperature),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_spoiled_files),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
