/* Running models on tensors: outputs, gradients, and invalid inputs. */
#define _XOPEN_SOURCE 700

#include "memory_faults.h"
#include "model_fixture.h"
#include "sample.h"

static const rcv_model_run_options with_gradients = {.size = sizeof(rcv_model_run_options), .gradients = true};

/* A rank that no matrix exceeds changes nothing in what is computed. */
static void full_rank_is_exact(void **state) {
    (void)state;
    for (size_t i = 0; i < rcv_builtin_count(); i++) {
        model_fixture self;
        rcv_net_options options = RCV_INIT(rcv_net_options, .input = 4, .hidden = 8, .layers = 2);
        model_fixture_open(&self, rcv_builtin_name(i), &options, RCV_FLOAT64);
        rcv_tensors *in, *y, *z;
        rcv_model *approximation;
        int64_t shape[3] = {3, 2, 4};
        check_ok(rcv_tensors_new(self.context, &in));
        add_wave(in, "x", 3, shape, 0.3);
        check_ok(rcv_model_low_rank(self.model, 1000, &approximation));
        check_ok(rcv_model_run(self.model, in, NULL, &y));
        check_ok(rcv_model_run(approximation, in, NULL, &z));
        const rcv_tensor *left = rcv_tensors_find(y, "y"), *right = rcv_tensors_find(z, "y");
        assert_int_equal(left->bytes, right->bytes);
        for (size_t k = 0; k < left->bytes / sizeof(double); k++)
            assert_true(fabs(((const double *)left->data)[k] - ((const double *)right->data)[k]) < 1e-12);
        rcv_tensors_free(z);
        rcv_tensors_free(y);
        rcv_model_free(approximation);
        rcv_tensors_free(in);
        model_fixture_close(&self);
    }
}

static const int64_t x_shape[3] = {4, 2, 3}, h_shape[3] = {2, 2, 5}, y_shape[3] = {4, 2, 10}, mask_shape[2] = {4, 2};

/* x, lengths, resets, both states and their restarts, dy and a final state's gradient for the network of `run`. */
static rcv_tensors *full_input(rcv_context *context) {
    static const int64_t lengths[2] = {4, 3}, batch[1] = {2};
    static const uint8_t resets[8] = {0, 0, 0, 1, 1, 0, 0, 0};
    rcv_tensors *in;
    check_ok(rcv_tensors_new(context, &in));
    add_wave(in, "x", 3, x_shape, 0.1);
    add_tensor(in, "lengths", RCV_INT64, 1, batch, lengths);
    add_tensor(in, "resets", RCV_UINT8, 2, mask_shape, resets);
    add_wave(in, "h", 3, h_shape, 0.2);
    add_wave(in, "c", 3, h_shape, 0.4);
    add_wave(in, "h.restart", 3, h_shape, 0.5);
    add_wave(in, "c.restart", 3, h_shape, 0.6);
    add_wave(in, "dy", 3, y_shape, 0.7);
    add_wave(in, "c.final.grad", 3, h_shape, 0.8);
    return in;
}

static void begin_run(model_fixture *self) {
    rcv_net_options options = RCV_INIT(rcv_net_options, .input = 3, .hidden = 5, .bidirectional = true);
    model_fixture_open(self, "lstm", &options, RCV_FLOAT64);
}

/* The loss whose gradients dy and c.final.grad are. */
static double loss_of(model_fixture *self, const rcv_tensors *in) {
    rcv_tensors *out;
    check_ok(rcv_model_run(self->model, in, NULL, &out));
    static const char *const values[] = {"y", "c.final"}, *const weights[] = {"dy", "c.final.grad"};
    double loss = 0;
    for (int i = 0; i < 2; i++) {
        const rcv_tensor *value = rcv_tensors_find(out, values[i]), *weight = rcv_tensors_find(in, weights[i]);
        assert_int_equal(value->bytes, weight->bytes);
        for (size_t k = 0; k < value->bytes / sizeof(double); k++)
            loss += ((const double *)value->data)[k] * ((const double *)weight->data)[k];
    }
    rcv_tensors_free(out);
    return loss;
}

/* Central differences at every element of `values`, which the loss reads. */
static void check_gradient(model_fixture *self, const rcv_tensors *in, double *values, const rcv_tensor *gradient) {
    const double step = 1e-5;
    double largest = 0;
    assert_non_null(gradient);
    for (size_t i = 0; i < gradient->bytes / sizeof(double); i++) {
        double kept = values[i], expected = ((const double *)gradient->data)[i];
        values[i] = kept + step;
        double above = loss_of(self, in);
        values[i] = kept - step;
        double below = loss_of(self, in);
        values[i] = kept;
        double got = (above - below) / (2 * step);
        if (fabs(got - expected) > 1e-7 * fmax(1, fabs(expected)))
            fail_msg("%s[%zu] is %.12g, differences say %.12g", gradient->name, i, expected, got);
        largest = fmax(largest, fabs(expected));
    }
    assert_true(largest > 1e-4);
}

static void gradients(void **state) {
    (void)state;
    model_fixture self;
    begin_run(&self);
    rcv_tensors *in = full_input(self.context), *out;
    check_ok(rcv_model_run(self.model, in, &with_gradients, &out));
    static const char *const pairs[][2] = {{"x", "dx"},
                                           {"h", "h.grad"},
                                           {"c", "c.grad"},
                                           {"h.restart", "h.restart.grad"},
                                           {"c.restart", "c.restart.grad"}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        check_gradient(&self, in, (double *)rcv_tensors_find(in, pairs[i][0])->data,
                       rcv_tensors_find(out, pairs[i][1]));
    for (size_t i = 0; i < rcv_net_parameter_count(self.net); i++) {
        const rcv_parameter *parameter = rcv_net_parameter(self.net, i);
        char name[128];
        snprintf(name, sizeof name, "grad.%s", parameter->name);
        check_gradient(&self, in, (double *)rcv_model_parameters(self.model) + parameter->offset,
                       rcv_tensors_find(out, name));
    }
    assert_int_equal(rcv_tensors_count(out), 1 + 2 + 5 + rcv_net_parameter_count(self.net));
    rcv_tensors_free(out);
    rcv_tensors_free(in);
    model_fixture_close(&self);
}

/* y is the same with and without gradients, also for networks with dropout or zoneout. */
static void check_chance(rcv_net_options options) {
    model_fixture self;
    model_fixture_open(&self, "gru", &options, RCV_FLOAT64);
    rcv_tensors *in, *plain, *graded;
    const int64_t shape[3] = {4, 2, 5};
    check_ok(rcv_tensors_new(self.context, &in));
    add_wave(in, "x", 3, x_shape, 0.1);
    add_wave(in, "dy", 3, shape, 0.1);
    check_ok(rcv_model_run(self.model, in, NULL, &plain));
    check_ok(rcv_model_run(self.model, in, &with_gradients, &graded));
    assert_memory_equal(rcv_tensors_find(plain, "y")->data, rcv_tensors_find(graded, "y")->data, 4 * 2 * 5 * 8);
    assert_true(fabs(*(const double *)rcv_tensors_find(plain, "y")->data) > 1e-6);
    rcv_tensors_free(graded);
    rcv_tensors_free(plain);
    rcv_tensors_free(in);
    model_fixture_close(&self);
}

static void dropout_does_not_act(void **state) {
    (void)state;
    check_chance(RCV_INIT(rcv_net_options, .input = 3, .hidden = 5, .layers = 2, .dropout = 0.5));
    check_chance(RCV_INIT(rcv_net_options, .input = 3, .hidden = 5, .layers = 2, .zoneout = 0.5));
    check_chance(RCV_INIT(rcv_net_options, .input = 3, .hidden = 5, .layers = 2, .dropout = 0.5, .zoneout = 0.25));
}

/* The full input with one tensor left out and another (or none) in its place. */
static rcv_tensors *replaced(rcv_context *context, const char *without, const rcv_tensor *instead) {
    rcv_tensors *full = full_input(context), *made;
    check_ok(rcv_tensors_new(context, &made));
    for (size_t i = 0; i < rcv_tensors_count(full); i++)
        if (strcmp(rcv_tensors_at(full, i)->name, without) != 0)
            check_ok(rcv_tensors_add(made, rcv_tensors_at(full, i)));
    if (instead) check_ok(rcv_tensors_add(made, instead));
    rcv_tensors_free(full);
    return made;
}

static void bad_inputs(void **state) {
    (void)state;
    static const double zeros[64] = {0};
    static const double strange[2] = {NAN, 3};
    static const int64_t short_lengths[2] = {0, 3}, long_lengths[2] = {4, 5}, negative[2] = {-1, 1};
    static const struct {
        const char *without;
        rcv_tensor instead;
        const char *fragment;
    } cases[] = {
        {"x", {.name = NULL}, "there is no tensor x"},
        {"x", {"x", RCV_FLOAT64, 3, {0, 2, 3}, NULL, 0}, "0 steps"},
        {"x", {"x", RCV_FLOAT64, 3, {4, 0, 3}, NULL, 0}, "batch of 0"},
        {"x",
         {"x", RCV_FLOAT64, 3, {4, 2, 4}, zeros, 256},
         "x must be a float tensor [steps, batch, input] = [4, 2, 3]"},
        {"x", {"x", RCV_FLOAT64, 2, {4, 2}, zeros, 64}, "not float64 [4, 2]"},
        {"x", {"x", RCV_INT64, 3, {4, 2, 3}, zeros, 192}, "not int64"},
        {"lengths", {"lengths", RCV_FLOAT64, 1, {2}, strange, 16}, "lengths must be int64 [batch]"},
        {"lengths", {"lengths", RCV_INT64, 1, {3}, zeros, 24}, "lengths must be int64 [batch] = [2], not int64 [3]"},
        {"lengths", {"lengths", RCV_INT64, 1, {2}, short_lengths, 16}, "lengths[0] is 0, a length must be in 1..4"},
        {"lengths", {"lengths", RCV_INT64, 1, {2}, long_lengths, 16}, "lengths[1] is 5, a length must be in 1..4"},
        {"lengths", {"lengths", RCV_INT64, 1, {2}, negative, 16}, "lengths[0] is -1"},
        {"resets", {"resets", RCV_INT64, 2, {4, 2}, zeros, 64}, "resets must be uint8 or bool"},
        {"resets", {"resets", RCV_UINT8, 2, {2, 4}, zeros, 8}, "resets must be uint8 or bool [steps, batch] = [4, 2]"},
        {"h", {"h", RCV_FLOAT64, 3, {1, 2, 5}, zeros, 80}, "h must be a float tensor"},
        {"c.restart", {"c.restart", RCV_FLOAT64, 2, {2, 5}, zeros, 80}, "c.restart must be a float tensor"},
        {"dy", {.name = NULL}, "gradients need the tensor dy [steps, batch, output] = [4, 2, 10]"},
        {"dy", {"dy", RCV_FLOAT64, 3, {4, 2, 5}, zeros, 320}, "dy must be a float tensor"},
        {"c.final.grad", {"c.final.grad", RCV_FLOAT64, 1, {5}, zeros, 40}, "c.final.grad must be a float tensor"},
        {"lengths",
         {"lenghts", RCV_INT64, 1, {2}, long_lengths, 16},
         "lenghts is not an input of the model; did you mean lengths"},
        {"", {"h.finl.grad", RCV_FLOAT64, 3, {2, 2, 5}, zeros, 160}, "did you mean h.final.grad"},
        {"", {"something", RCV_FLOAT64, 1, {1}, zeros, 8}, "the tensor something is not an input of the model"},
    };
    model_fixture self;
    begin_run(&self);
    size_t live = self.counting.live;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rcv_tensors *in = replaced(self.context, cases[i].without, cases[i].instead.name ? &cases[i].instead : NULL),
                    *out;
        check_fails(rcv_model_run(self.model, in, &with_gradients, &out), RCV_INVALID, cases[i].fragment);
        assert_null(out);
        rcv_tensors_free(in);
        assert_int_equal(self.counting.live, live);
    }
    model_fixture_close(&self);
}

/* A state of different sizes has a tensor per layer, and what comes out goes in again: two halves are the whole. */
static void states_by_layer(void **state) {
    (void)state;
    model_fixture self;
    rcv_net_options options = RCV_INIT(rcv_net_options, .input = 3, .hidden = 5, .layers = 2);
    model_fixture_open(&self, "qrnn_fo_w2", &options, RCV_FLOAT64);
    rcv_tensors *in, *whole, *part = NULL;
    int layered = 0;
    check_ok(rcv_tensors_new(self.context, &in));
    add_wave(in, "x", 3, x_shape, 0.1);
    check_ok(rcv_model_run(self.model, in, NULL, &whole));
    const double *x = rcv_tensors_find(in, "x")->data, *y = rcv_tensors_find(whole, "y")->data;
    const int64_t shape[3] = {2, 2, 3};
    assert_true(fabs(y[0]) > 1e-6);
    for (int half = 0; half < 2; half++) {
        rcv_tensors *next, *out;
        check_ok(rcv_tensors_new(self.context, &next));
        add_tensor(next, "x", RCV_FLOAT64, 3, shape, x + half * 12);
        for (size_t i = 0; part && i < rcv_tensors_count(part); i++) {
            const rcv_tensor *tensor = rcv_tensors_at(part, i);
            char name[128];
            snprintf(name, sizeof name, "%s", tensor->name);
            char *ending = strstr(name, ".final");
            if (!ending) continue;
            *ending = '\0';
            layered += strstr(name, ".l1") != NULL;
            add_tensor(next, name, RCV_FLOAT64, tensor->dims, tensor->shape, tensor->data);
        }
        check_ok(rcv_model_run(self.model, next, NULL, &out));
        assert_memory_equal(rcv_tensors_find(out, "y")->data, y + half * 20, 20 * sizeof *y);
        rcv_tensors_free(part);
        rcv_tensors_free(next);
        part = out;
    }
    assert_true(layered > 0);
    rcv_tensors_free(part);
    rcv_tensors_free(whole);
    rcv_tensors_free(in);
    model_fixture_close(&self);
}

/* Every allocation fails once, on the way through load, approximation and run. */
static void no_memory(void **state) {
    (void)state;
    model_fixture self;
    begin_run(&self);
    check_ok(rcv_model_save(self.model, path_in("model")));
    rcv_tensors *in = full_input(self.context), *out = NULL;
    rcv_model *loaded = NULL, *approximation = NULL;
    size_t live = self.counting.live, calls = self.counting.calls;
    rcv_model_options load = RCV_INIT(rcv_model_options, .dtype = RCV_FLOAT64);
    self.counting.sparse = true;
    memory_faults_begin(&self.counting);
    rcv_status status = rcv_model_load(self.context, path_in("model"), &load, &loaded);
    if (status == RCV_OK) status = rcv_model_low_rank(loaded, 2, &approximation);
    if (status == RCV_OK) status = rcv_model_run(approximation, in, &with_gradients, &out);
    memory_faults_stop(&self.counting);
    assert_int_equal(status, self.counting.failed ? RCV_NO_MEMORY : RCV_OK);
    calls = self.counting.calls - calls;
    rcv_tensors_free(out);
    rcv_model_free(approximation);
    rcv_model_free(loaded);
    assert_int_equal(self.counting.live, live);
    if (self.counting.failed && self.counting.points % 64 == 0) { /* the context is as good as before */
        check_ok(rcv_model_load(self.context, path_in("model"), &load, &loaded));
        check_ok(rcv_model_run(loaded, in, &with_gradients, &out));
        rcv_tensors_free(out);
        rcv_model_free(loaded);
        assert_int_equal(self.counting.live, live);
    }
    size_t failed = memory_faults_end(&self.counting);
    assert_int_equal(self.counting.points, calls); /* none was left out */
    assert_true(failed > sample_least(100));
    rcv_tensors_free(in);
    unlink(path_in("model"));
    model_fixture_close(&self);
}

int main(void) {
    if (!scratch_begin()) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(full_rank_is_exact), cmocka_unit_test(gradients),       cmocka_unit_test(dropout_does_not_act),
        cmocka_unit_test(bad_inputs),         cmocka_unit_test(states_by_layer), cmocka_unit_test(no_memory),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return !scratch_end() || failed != 0;
}
