/* Models: saving and loading, state dicts, low-rank approximation. */
#define _XOPEN_SOURCE 700

#include "model_fixture.h"

#include "model/model.h"

static void assert_same_models(rcv_model *a, rcv_model *b) {
    const rcv_net *left = rcv_model_net(a), *right = rcv_model_net(b);
    const rcv_net_options *one = rcv_net_get_options(left), *two = rcv_net_get_options(right);
    assert_int_equal(one->input, two->input);
    assert_int_equal(one->hidden, two->hidden);
    assert_int_equal(one->layers, two->layers);
    assert_int_equal(one->bidirectional, two->bidirectional);
    assert_int_equal(one->reverse, two->reverse);
    assert_int_equal(one->no_bias, two->no_bias);
    assert_int_equal(one->rank, two->rank);
    assert_true(one->dropout == two->dropout);
    assert_int_equal(one->variational, two->variational);
    assert_true(one->zoneout == two->zoneout);
    assert_int_equal(one->size_count, two->size_count);
    for (size_t i = 0; i < one->size_count; i++) {
        assert_string_equal(one->sizes[i].name, two->sizes[i].name);
        assert_int_equal(one->sizes[i].value, two->sizes[i].value);
    }
    assert_int_equal(rcv_net_parameter_count(left), rcv_net_parameter_count(right));
    assert_int_equal(rcv_model_dtype(a), rcv_model_dtype(b));
    assert_int_equal(rcv_net_parameter_elements(left), rcv_net_parameter_elements(right));
    assert_memory_equal(rcv_model_parameters(a), rcv_model_parameters(b),
                        (size_t)rcv_net_parameter_elements(left) * rcv_dtype_bytes(rcv_model_dtype(a)));
}

/* Saving and loading every built-in cell, in both types and with every option, gives the same model. */
static void round_trip(void **state) {
    (void)state;
    for (size_t i = 0; i < rcv_builtin_count(); i++) {
        for (int variant = 0; variant < 3; variant++) {
            model_fixture self;
            rcv_net_options options =
                RCV_INIT(rcv_net_options, .input = 6, .hidden = 8, .layers = 1 + variant, .bidirectional = variant == 1,
                         .no_bias = variant == 2, .dropout = variant * 0.1, .variational = variant == 2,
                         .zoneout = variant * 0.15, .rank = variant == 2 ? 2 : 0, .reverse = variant == 2);
            model_fixture_open(&self, rcv_builtin_name(i), &options, variant ? RCV_FLOAT64 : RCV_FLOAT32);
            rcv_model_options load = RCV_INIT(rcv_model_options, .dtype = rcv_model_dtype(self.model));
            rcv_model *loaded;
            check_ok(rcv_model_save(self.model, path_in("model")));
            check_ok(rcv_model_load(self.context, path_in("model"), &load, &loaded));
            assert_same_models(self.model, loaded);
            assert_string_equal(rcv_cell_source(rcv_net_cell(rcv_model_net(loaded))), rcv_cell_source(self.cell));
            rcv_model_free(loaded);
            model_fixture_close(&self);
        }
    }
    unlink(path_in("model"));
}

static void sizes_are_kept(void **state) {
    (void)state;
    model_fixture self;
    rcv_size proj = {"proj", 3};
    rcv_net_options options =
        RCV_INIT(rcv_net_options, .input = 4, .hidden = 6, .layers = 2, .sizes = &proj, .size_count = 1);
    model_fixture_open(&self, "lstm_proj", &options, RCV_FLOAT32);
    rcv_model *loaded;
    check_ok(rcv_model_save(self.model, path_in("model")));
    check_ok(rcv_model_load(self.context, path_in("model"), NULL, &loaded));
    assert_same_models(self.model, loaded);
    assert_int_equal(rcv_net_get_options(rcv_model_net(loaded))->sizes[0].value, 3);
    rcv_model_free(loaded);
    unlink(path_in("model"));
    model_fixture_close(&self);
}

/* The model's parameters as a state dict under a prefix, with a tensor that is not the network's. */
static void save_state_dict(model_fixture *self, const char *prefix, const char *path) {
    rcv_tensors *tensors;
    int64_t shape[2] = {2, 2};
    check_ok(rcv_tensors_new(self->context, &tensors));
    check_ok(rcvi_parameters_to_tensors(self->net, prefix, rcv_model_dtype(self->model),
                                        rcv_model_parameters(self->model), tensors));
    if (prefix[0]) add_wave(tensors, "head.weight", 2, shape, 0);
    check_ok(rcv_tensors_save(tensors, path));
    rcv_tensors_free(tensors);
}

static void state_dicts(void **state) {
    (void)state;
    static const rcv_size proj = {"proj", 2};
    static const struct {
        const char *cell, *prefix;
        rcv_net_options options;
    } cases[] = {
        {"lstm", "", {.input = 5, .hidden = 4}},
        {"lstm", "rnn.", {.input = 5, .hidden = 4, .layers = 3, .bidirectional = true}},
        {"gru", "encoder.gru.", {.input = 2, .hidden = 7, .layers = 2, .no_bias = true}},
        {"rnn_tanh", "", {.input = 3, .hidden = 3, .bidirectional = true}},
        {"rnn_relu", "m.", {.input = 1, .hidden = 1, .layers = 11}},
        {"lstm_proj", "", {.input = 5, .hidden = 6, .sizes = &proj, .size_count = 1}},
        {"mingru", "", {.input = 5, .hidden = 4, .layers = 2}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        model_fixture self;
        rcv_model *found, *with_prefix;
        model_fixture_open(&self, cases[i].cell, &cases[i].options, RCV_FLOAT64);
        save_state_dict(&self, cases[i].prefix, path_in("dict"));
        rcv_model_options load = RCV_INIT(rcv_model_options, .dtype = RCV_FLOAT64, .cell = cases[i].cell);
        check_ok(rcv_model_load(self.context, path_in("dict"), &load, &found));
        assert_same_models(self.model, found);
        load.prefix = cases[i].prefix;
        check_ok(rcv_model_load(self.context, path_in("dict"), &load, &with_prefix));
        assert_same_models(self.model, with_prefix);
        rcv_model_free(with_prefix);
        rcv_model_free(found);
        model_fixture_close(&self);
    }
    unlink(path_in("dict"));
}

static void bad_state_dicts(void **state) {
    (void)state;
    model_fixture self;
    rcv_net_options options = RCV_INIT(rcv_net_options, .input = 5, .hidden = 4);
    model_fixture_open(&self, "lstm", &options, RCV_FLOAT32);
    rcv_model *loaded;
    char path[512];
    snprintf(path, sizeof path, "%s", path_in("dict"));
    rcv_model_options load = RCV_INIT(rcv_model_options, .cell = "gru");
    save_state_dict(&self, "", path);
    check_fails(rcv_model_load(self.context, path, &load, &loaded), RCV_FORMAT,
                "tensor weight_ih_l0 has shape [16, 5]; the network needs [12, 5]");
    assert_null(loaded);
    check_fails(rcv_model_load(self.context, path, NULL, &loaded), RCV_FORMAT, "recurve.format");
    load.cell = "lstm";
    load.prefix = "rnn.";
    check_fails(rcv_model_load(self.context, path, &load, &loaded), RCV_FORMAT, "no matrix rnn.weight_ih_l0");
    load.prefix = NULL;
    load.cell = "lstn";
    assert_int_not_equal(rcv_model_load(self.context, path, &load, &loaded), RCV_OK);
    assert_null(loaded);

    rcv_tensors *tensors;
    check_ok(rcv_tensors_new(self.context, &tensors));
    check_ok(rcvi_parameters_to_tensors(self.net, "a.", RCV_FLOAT32, rcv_model_parameters(self.model), tensors));
    check_ok(rcvi_parameters_to_tensors(self.net, "b.", RCV_FLOAT32, rcv_model_parameters(self.model), tensors));
    check_ok(rcv_tensors_save(tensors, path));
    load.cell = "lstm";
    check_fails(rcv_model_load(self.context, path, &load, &loaded), RCV_INVALID, "give the prefix");
    load.prefix = "b.";
    check_ok(rcv_model_load(self.context, path, &load, &loaded));
    rcv_model_free(loaded);
    rcv_tensors_free(tensors);
    unlink(path);
    model_fixture_close(&self);
}

/* A saved model with one thing changed. */
static rcv_tensors *saved(model_fixture *self) {
    rcv_tensors *tensors;
    check_ok(rcv_model_save(self->model, path_in("model")));
    check_ok(rcv_tensors_load(self->context, path_in("model"), &tensors));
    return tensors;
}

static rcv_status reload(model_fixture *self, const rcv_tensors *tensors) {
    rcv_model *loaded;
    check_ok(rcv_tensors_save(tensors, path_in("model")));
    rcv_status status = rcv_model_load(self->context, path_in("model"), NULL, &loaded);
    assert_true((status == RCV_OK) == (loaded != NULL));
    rcv_model_free(loaded);
    unlink(path_in("model"));
    return status;
}

static void bad_metadata(void **state) {
    (void)state;
    static const struct {
        const char *key, *value;
        rcv_status status;
        const char *fragment;
    } cases[] = {
        {"recurve.format", "3", RCV_FORMAT, "this version reads 1 and 2"},
        {"recurve.cell", "cell broken(x) {", RCV_SYNTAX, ""},
        {"recurve.network", "", RCV_FORMAT, "not a JSON object"},
        {"recurve.network", "[1]", RCV_FORMAT, "not a JSON object"},
        {"recurve.network", "{\"input\":5}", RCV_FORMAT, "needs the key hidden"},
        {"recurve.network",
         "{\"input\":5,\"hidden\":4,\"layers\":1,\"bidirectional\":0,\"no_bias\":false,\"dropout\":0,\"rank\":0,"
         "\"sizes\":{}}",
         RCV_FORMAT, "the key bidirectional with true or false"},
        {"recurve.network",
         "{\"input\":5,\"hidden\":4,\"layers\":1,\"bidirectional\":false,\"no_bias\":false,\"dropout\":0,\"rank\":0,"
         "\"sizes\":{},\"colour\":1}",
         RCV_FORMAT, "unknown key colour"},
        {"recurve.network",
         "{\"input\":5,\"hidden\":4,\"layers\":1,\"bidirectional\":false,\"no_bias\":false,\"dropout\":0,\"rank\":0,"
         "\"sizes\":{\"proj\":\"3\"}}",
         RCV_FORMAT, "size proj"},
        {"recurve.network",
         "{\"input\":5,\"hidden\":4,\"layers\":1,\"bidirectional\":false,\"no_bias\":false,\"dropout\":0,\"rank\":0,"
         "\"sizes\":{},\"zoneout\":true}",
         RCV_FORMAT, "the key zoneout with a number"},
        {"recurve.network",
         "{\"input\":5,\"hidden\":4,\"layers\":1,\"bidirectional\":false,\"no_bias\":false,\"dropout\":0,\"rank\":0,"
         "\"sizes\":{},\"zoneout\":1.5}",
         RCV_FORMAT, "zoneout 1.5 is not in [0, 1)"},
        {"recurve.network",
         "{\"input\":5,\"hidden\":4,\"layers\":1,\"bidirectional\":false,\"no_bias\":false,\"dropout\":0,\"rank\":0,"
         "\"sizes\":{},\"variational\":1}",
         RCV_FORMAT, "the key variational with true or false"},
        {"recurve.network",
         "{\"input\":5,\"hidden\":4,\"layers\":1,\"bidirectional\":false,\"no_bias\":false,\"dropout\":0,\"rank\":0,"
         "\"sizes\":{\"nothing\":3}}",
         RCV_FORMAT, "nothing"},
        {"recurve.network",
         "{\"input\":5,\"hidden\":0,\"layers\":1,\"bidirectional\":false,\"no_bias\":false,\"dropout\":0,\"rank\":0,"
         "\"sizes\":{}}",
         RCV_FORMAT, "hidden"},
        {"recurve.network",
         "{\"input\":5,\"hidden\":8,\"layers\":1,\"bidirectional\":false,\"no_bias\":false,\"dropout\":0,\"rank\":0,"
         "\"sizes\":{}}",
         RCV_FORMAT, "tensor weight_ih_l0 has shape [16, 5]; the network needs [32, 5]"},
        {"recurve.network",
         "{\"input\":5,\"hidden\":4,\"layers\":2,\"bidirectional\":false,\"no_bias\":false,\"dropout\":0,\"rank\":0,"
         "\"sizes\":{}}",
         RCV_FORMAT, "no tensor weight_ih_l1"},
        {"recurve.network",
         "{\"input\":5,\"hidden\":4,\"layers\":1,\"bidirectional\":false,\"no_bias\":true,\"dropout\":0,\"rank\":0,"
         "\"sizes\":{}}",
         RCV_FORMAT, "tensor bias_ih_l0 is not a parameter"},
        {"recurve.network",
         "{\"input\":5,\"hidden\":4,\"layers\":1000000000,\"bidirectional\":false,\"no_bias\":false,\"dropout\":0,"
         "\"rank\":0,"
         "\"sizes\":{}}",
         RCV_FORMAT, "1000000000 layers"},
        {"recurve.network",
         "{\"input\":5,\"hidden\":4611686018427387904,\"layers\":1,\"bidirectional\":false,\"no_bias\":false,"
         "\"dropout\":0,"
         "\"rank\":0,\"sizes\":{}}",
         RCV_FORMAT, ""},
    };
    model_fixture self;
    rcv_net_options options = RCV_INIT(rcv_net_options, .input = 5, .hidden = 4);
    model_fixture_open(&self, "lstm", &options, RCV_FLOAT32);
    size_t live = self.counting.live;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rcv_tensors *tensors = saved(&self);
        check_ok(rcv_tensors_set_metadata(tensors, cases[i].key, cases[i].value));
        check_fails(reload(&self, tensors), cases[i].status, cases[i].fragment);
        rcv_tensors_free(tensors);
        assert_int_equal(self.counting.live, live);
    }
    model_fixture_close(&self);
}

static void bad_tensors(void **state) {
    (void)state;
    model_fixture self;
    rcv_net_options options = RCV_INIT(rcv_net_options, .input = 5, .hidden = 4);
    model_fixture_open(&self, "gru", &options, RCV_FLOAT32);
    rcv_tensors *whole = saved(&self), *changed;
    int64_t flat[1] = {60};
    float *values = calloc(64, sizeof *values);
    /* Each tensor missing, flat, and of an integer type. */
    for (size_t i = 0; i < rcv_tensors_count(whole); i++) {
        for (int kind = 0; kind < 3; kind++) {
            check_ok(rcv_tensors_new(self.context, &changed));
            check_ok(rcvi_network_to_tensors(self.net, changed));
            for (size_t k = 0; k < rcv_tensors_count(whole); k++) {
                rcv_tensor tensor = *rcv_tensors_at(whole, k);
                if (k != i)
                    check_ok(rcv_tensors_add(changed, &tensor));
                else if (kind == 1)
                    add_tensor(changed, tensor.name, RCV_FLOAT32, 1, flat, values);
                else if (kind == 2)
                    add_tensor(changed, tensor.name, RCV_INT32, tensor.dims, tensor.shape, values);
            }
            static const char *const fragments[] = {"there is no tensor", "has shape [60]", "is int32"};
            check_fails(reload(&self, changed), RCV_FORMAT, fragments[kind]);
            rcv_tensors_free(changed);
        }
    }
    add_tensor(whole, "other", RCV_FLOAT32, 1, flat, values);
    check_fails(reload(&self, whole), RCV_FORMAT, "tensor other is not a parameter of the network");
    rcv_tensors_free(whole);
    free(values);
    model_fixture_close(&self);
}

/* Element (i, j) of the product A B, and of the full matrix. */
static double product_at(const double *a, const double *b, int64_t rank, int64_t cols, int64_t i, int64_t j) {
    double sum = 0;
    for (int64_t k = 0; k < rank; k++) sum += a[i * rank + k] * b[k * cols + j];
    return sum;
}

static const rcv_parameter *named(const rcv_net *net, const char *name) {
    for (size_t i = 0; i < rcv_net_parameter_count(net); i++)
        if (strcmp(rcv_net_parameter(net, i)->name, name) == 0) return rcv_net_parameter(net, i);
    return NULL;
}

/* A matrix made of `rank` outer products is approximated exactly at that rank, and worse below it. */
static void low_rank(void **state) {
    (void)state;
    model_fixture self;
    rcv_net_options options = RCV_INIT(rcv_net_options, .input = 5, .hidden = 6);
    model_fixture_open(&self, "lstm", &options, RCV_FLOAT64);
    double *values = rcv_model_parameters(self.model);
    const rcv_parameter *full = named(self.net, "weight_hh_l0");
    int64_t rows = full->shape[0], cols = full->shape[1];
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            values[full->offset + i * cols + j] =
                sin((double)i) * cos((double)j) + 0.1 * cos(2.0 * (double)i) * sin(3.0 * (double)j + 1);
    for (int64_t rank = 1; rank <= 2; rank++) {
        rcv_model *approximation, *again;
        check_ok(rcv_model_low_rank(self.model, rank, &approximation));
        const rcv_net *net = rcv_model_net(approximation);
        const double *factors = rcv_model_parameters(approximation);
        const rcv_parameter *a = named(net, "weight_hh_l0.A"), *b = named(net, "weight_hh_l0.B");
        assert_non_null(a);
        assert_non_null(b);
        assert_int_equal(a->shape[1], rank);
        double worst = 0;
        for (int64_t i = 0; i < rows; i++)
            for (int64_t j = 0; j < cols; j++)
                worst = fmax(worst, fabs(product_at(factors + a->offset, factors + b->offset, rank, cols, i, j) -
                                         values[full->offset + i * cols + j]));
        assert_true(rank == 2 ? worst < 1e-12 : worst > 1e-3 && worst < 0.2);
        const rcv_parameter *bias = named(net, "bias_ih_l0"), *old = named(self.net, "bias_ih_l0");
        assert_memory_equal(factors + bias->offset, values + old->offset, (size_t)bias->count * sizeof *values);
        check_fails(rcv_model_low_rank(approximation, 1, &again), RCV_UNSUPPORTED, "only a full model");
        rcv_model_free(approximation);
    }
    rcv_model *none;
    check_fails(rcv_model_low_rank(self.model, 0, &none), RCV_INVALID, "at least 1");
    check_fails(rcv_model_low_rank(self.model, -3, &none), RCV_INVALID, "at least 1");
    values[full->offset] = NAN;
    check_fails(rcv_model_low_rank(self.model, 1, &none), RCV_INVALID, "not finite");
    assert_null(none);
    model_fixture_close(&self);
}

int main(void) {
    if (!scratch_begin()) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),      cmocka_unit_test(sizes_are_kept), cmocka_unit_test(state_dicts),
        cmocka_unit_test(bad_state_dicts), cmocka_unit_test(bad_metadata),   cmocka_unit_test(bad_tensors),
        cmocka_unit_test(low_rank),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return !scratch_end() || failed != 0;
}
