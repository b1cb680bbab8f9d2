/* Random cells: parsing a printed cell gives the same cell, gradients agree with differences, and classes over time agree with measured
 * dependences. The classes of the built-in cells are listed here. */
#include "generator.h"
#include "sample.h"

#include <jansson.h>
#include <math.h>

enum { CELLS = 240, INPUT = 3, HIDDEN = 4, MAX_STATES = 64, MAX_CHANNELS = 256, DRAWS = 10 };

static rcv_cell *parse(rcv_context *context, const char *text) {
    rcv_cell *cell = NULL;
    if (rcv_cell_parse(context, text, strlen(text), "random.cell", &cell) != RCV_OK) {
        fail_msg("a random cell was refused: %s\n%s", rcv_message(), text);
    }
    return cell;
}

static char *described(const rcv_cell *cell, unsigned flags) {
    char *text = NULL;
    check_ok(rcv_cell_describe(cell, flags, &text));
    return text;
}

/* ---- parse, print, parse ----------------------------------------------------------------------------------------- */

static void check_printing(rcv_context *context, const char *text) {
    rcv_cell *cell = parse(context, text);
    char *printed = NULL, *again = NULL;
    check_ok(rcv_cell_print(cell, &printed));
    rcv_cell *second = parse(context, printed);
    check_ok(rcv_cell_print(second, &again));
    assert_string_equal(printed, again);
    assert_string_equal(rcv_cell_source(cell), text);
    assert_string_equal(rcv_cell_name(cell), rcv_cell_name(second));
    unsigned flags = RCV_DESCRIBE_BACKWARD | RCV_DESCRIBE_JSON;
    char *first_described = described(cell, flags), *second_described = described(second, flags);
    assert_string_equal(first_described, second_described);
    rcv_text_free(context, first_described);
    rcv_text_free(context, second_described);
    rcv_text_free(context, printed);
    rcv_text_free(context, again);
    rcv_cell_free(cell);
    rcv_cell_free(second);
}

static void test_printing(void **state) {
    (void)state;
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    for (uint64_t seed = 0; seed < CELLS; seed++) {
        random_source source = {seed};
        char *text = generate_cell(&source);
        check_printing(context, text);
        free(text);
    }
    for (size_t i = 0; i < rcv_builtin_count(); i++) {
        rcv_cell *cell = NULL;
        check_ok(rcv_cell_open(context, rcv_builtin_name(i), &cell));
        check_printing(context, rcv_cell_source(cell));
        rcv_cell_free(cell);
    }
    test_context_end(&allocator, context);
}

/* ---- gradients --------------------------------------------------------------------------------------------------- */

static void test_gradients(void **state) {
    (void)state;
    probe_tally tally = {0};
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    for (uint64_t seed = 0; seed < CELLS; seed++) {
        if (!sample_takes(seed)) continue;
        random_source source = {seed};
        char *text = generate_cell(&source);
        rcv_cell *cell = parse(context, text);
        probe_config config = {
            .net = {.input = INPUT, .hidden = HIDDEN, .layers = 1 + seed % 2, .bidirectional = seed % 3 == 0},
            .steps = 3,
            .batch = 2,
            .lengths = seed % 5 == 0,
            .resets = seed % 4 == 0,
            .states = seed % 4 == 0 ? STATES_BOTH : STATES_INITIAL,
            .seed = seed};
        probe self;
        probe_open(&self, cell, &config);
        char *label = malloc(strlen(text) + 40);
        assert_non_null(label);
        sprintf(label, "seed %d, cell\n%s", (int)seed, text);
        probe_check(&self, 4, label, &tally);
        probe_close(&self);
        free(label);
        rcv_cell_free(cell);
        free(text);
    }
    print_message("%zu derivatives, worst relative error %.1e, %zu at a kink\n", tally.checked, tally.worst,
                  tally.skipped);
    assert_true(tally.checked > sample_least(10000));
    assert_true(tally.skipped * 100 < tally.checked);
    test_context_end(&allocator, context);
}

/* Forms that the generator seldom makes: delays, aliases, constants, no state, a result of size one. */
static const char *const bare_texts[] = {
    "cell delay(x) {\n    state h, c\n    h' = tanh(W x + U c)\n    c' = h\n    return c\n}\n",
    "cell keep(x) {\n    state h\n    h' = h\n    return h' + W x\n}\n",
    "cell learned(x) {\n    state h\n    vector v\n    h' = v\n    return h * h' + W x\n}\n",
    "cell number(x) {\n    state h\n    h' = 0.5\n    return h * W x\n}\n",
    "cell none(x) {\n    return tanh(W x + b)\n}\n",
    "cell lag(x) {\n    z = x[t-5]\n    return W z + U x[t-2]\n}\n",
    "cell same(x) {\n    state h, c\n    h' = W x + U h\n    c' = h'\n    return c'\n}\n",
    "cell one(x) {\n    state h\n    h' = tanh(W x + U h)\n    return sum(h' * h')\n}\n",
    "cell spread(x) {\n    state h\n    h' = tanh(mean(W x) + U h)\n    s = sum(h)\n    return h' * s\n}\n",
    "cell previous(x) {\n    state h\n    h' = tanh(W x + U h)\n    return h\n}\n",
    "cell swap(x) {\n    state p, q\n    p' = q\n    q' = p\n    return tanh(W x) * p' + q\n}\n",
    "cell input(x) {\n    state h[input]\n    vector v\n    h' = v * h + x\n    return h'\n}\n",
    "cell copy(x) {\n    return x\n}\n",
    "cell echo(x) {\n    z = tanh(W x + U z[t-1])\n    return z[t-2] + z\n}\n",
    "cell shared(x) {\n    state h\n    h' = tanh(U h + U tanh(U h) + W x + b * W x + b)\n    return h'\n}\n",
    "cell powers(x) {\n    state h\n    a = h * h\n    q = a * a\n    h' = sigmoid(q - q / (1 + a) + W x)\n"
    "    return h' / 2 - -h\n}\n",
    /* of the two projection shortcuts, which share a stored matrix, one is the identity where proj = input */
    "cell shortcuts(x) {\n    size proj = 3\n    a = shortcut(x) + U m\n    m[proj] = tanh(shortcut(x))\n"
    "    return a\n}\n",
};

static void test_bare(void **state) {
    (void)state;
    probe_tally tally = {0};
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    for (size_t i = 0; i < sizeof bare_texts / sizeof *bare_texts; i++) {
        check_printing(context, bare_texts[i]);
        rcv_cell *cell = parse(context, bare_texts[i]);
        for (unsigned options = 0; options < 32; options++) {
            if (!sample_takes(32 * i + options)) continue;
            probe_config config = {.net = {.input = INPUT,
                                           .hidden = HIDDEN,
                                           .layers = options & 1 ? 2 : 1,
                                           .bidirectional = options & 2,
                                           .rank = options & 16 ? 2 : 0},
                                   .steps = 4,
                                   .batch = 2,
                                   .lengths = options & 4,
                                   .resets = options & 8,
                                   .states = options & 8 ? STATES_BOTH : STATES_INITIAL,
                                   .seed = i + 100 * options};
            probe self;
            probe_open(&self, cell, &config);
            probe_check(&self, 8, rcv_cell_name(cell), &tally);
            probe_close(&self);
        }
        rcv_cell_free(cell);
    }
    assert_true(tally.skipped == 0);
    test_context_end(&allocator, context);
}

/* ---- classes ----------------------------------------------------------------------------------------------------- */

/* One step of a cell as a function from all states to all next states; channels of all states in a row. */
typedef struct {
    rcv_net *net;
    rcv_plan *plan;
    rcv_run *run;
    size_t states, channels;
    size_t start[MAX_STATES + 1];
    double *parameters, x[INPUT], y[64];
    bool moves[MAX_CHANNELS][MAX_CHANNELS]; /* [next][previous] */
    bool reaches[MAX_STATES][MAX_STATES];   /* [from][to], over any number of steps */
} step_function;

static void step_open(step_function *f, const rcv_cell *cell) {
    memset(f, 0, sizeof *f);
    check_ok(rcv_net_new(cell, &RCV_INIT(rcv_net_options, .input = INPUT, .hidden = HIDDEN), &f->net));
    check_ok(rcv_plan_new(
        f->net, &RCV_INIT(rcv_plan_options, .steps = 1, .batch = 1, .dtype = RCV_FLOAT64, .schedule = "naive"),
        &f->plan));
    check_ok(rcv_run_new(f->plan, &f->run));
    f->states = rcv_net_state_count(f->net);
    assert_true(f->states <= MAX_STATES && rcv_net_output(f->net) <= 64);
    for (size_t s = 0; s < f->states; s++) {
        f->start[s] = f->channels;
        f->channels += (size_t)rcv_net_state(f->net, s)->total;
    }
    f->start[f->states] = f->channels;
    assert_true(f->channels <= MAX_CHANNELS);
    f->parameters = calloc((size_t)rcv_net_parameter_elements(f->net) + 1, sizeof(double));
    assert_non_null(f->parameters);
}

static void step_close(step_function *f) {
    free(f->parameters);
    rcv_run_free(f->run);
    rcv_plan_free(f->plan);
    rcv_net_free(f->net);
}

static void step_evaluate(step_function *f, const double *states, double *next) {
    const void *initial[MAX_STATES];
    void *final[MAX_STATES];
    for (size_t s = 0; s < f->states; s++) {
        initial[s] = states + f->start[s];
        final[s] = next + f->start[s];
    }
    memset(next, 0xff, f->channels * sizeof *next);
    rcv_forward data =
        RCV_INIT(rcv_forward, .parameters = f->parameters, .x = f->x, .initial = initial, .y = f->y, .final = final);
    check_ok(rcv_run_forward(f->run, &data));
}

static void step_draw(step_function *f, random_source *source, double *states) {
    for (int64_t i = 0; i < rcv_net_parameter_elements(f->net); i++) {
        double size = random_between(source, 0.3, 1.2);
        f->parameters[i] = random_below(source, 2) ? size : -size;
    }
    for (int i = 0; i < INPUT; i++) f->x[i] = random_between(source, -1, 1);
    for (size_t i = 0; i < f->channels; i++) states[i] = random_between(source, -1.5, 1.5);
}

/* Which channel depends on which: any change of bits at any of the points. */
static void measure_dependence(step_function *f, random_source *source) {
    double states[MAX_CHANNELS], base[MAX_CHANNELS], moved[MAX_CHANNELS];
    for (int draw = 0; draw < DRAWS; draw++) {
        step_draw(f, source, states);
        step_evaluate(f, states, base);
        for (size_t j = 0; j < f->channels; j++) {
            double kept = states[j];
            states[j] += random_between(source, 0.3, 0.9);
            step_evaluate(f, states, moved);
            states[j] = kept;
            for (size_t i = 0; i < f->channels; i++) {
                if (memcmp(&base[i], &moved[i], sizeof *base) != 0) f->moves[i][j] = true;
            }
        }
    }
    for (size_t to = 0; to < f->states; to++) {
        for (size_t from = 0; from < f->states; from++) {
            for (size_t i = f->start[to]; i < f->start[to + 1]; i++) {
                for (size_t j = f->start[from]; j < f->start[from + 1]; j++) f->reaches[from][to] |= f->moves[i][j];
            }
        }
    }
    for (size_t via = 0; via < f->states; via++) {
        for (size_t from = 0; from < f->states; from++) {
            for (size_t to = 0; to < f->states; to++) {
                if (f->reaches[from][via] && f->reaches[via][to]) f->reaches[from][to] = true;
            }
        }
    }
}

static bool together(const step_function *f, size_t a, size_t b) { return f->reaches[a][b] && f->reaches[b][a]; }

static bool mixes_channels(const step_function *f, size_t state) {
    for (size_t to = 0; to < f->states; to++) {
        for (size_t from = 0; from < f->states; from++) {
            if (!together(f, state, to) || !together(f, state, from)) continue;
            for (size_t i = f->start[to]; i < f->start[to + 1]; i++) {
                for (size_t j = f->start[from]; j < f->start[from + 1]; j++) {
                    if (f->moves[i][j] && i - f->start[to] != j - f->start[from]) return true;
                }
            }
        }
    }
    return false;
}

/* Whether f(p + q) - f(p) - f(q) + f(0) vanishes over the group's own states, all else fixed. */
static bool is_affine(step_function *f, size_t state, random_source *source) {
    double point[4][MAX_CHANNELS], next[4][MAX_CHANNELS];
    for (int draw = 0; draw < 2 * DRAWS; draw++) {
        for (int k = 0; k < 4; k++) step_draw(f, source, point[k]);
        for (size_t s = 0; s < f->states; s++) {
            for (size_t i = f->start[s]; i < f->start[s + 1]; i++) {
                bool own = together(f, state, s);
                point[0][i] = own ? point[1][i] + point[2][i] : point[3][i];
                point[1][i] = own ? point[1][i] : point[3][i];
                point[2][i] = own ? point[2][i] : point[3][i];
                point[3][i] = own ? 0 : point[3][i];
            }
        }
        for (int k = 0; k < 4; k++) step_evaluate(f, point[k], next[k]);
        for (size_t s = 0; s < f->states; s++) {
            if (!together(f, state, s)) continue;
            for (size_t i = f->start[s]; i < f->start[s + 1]; i++) {
                double size = fabs(next[0][i]) + fabs(next[1][i]) + fabs(next[2][i]) + fabs(next[3][i]);
                if (fabs(next[0][i] - next[1][i] - next[2][i] + next[3][i]) > 1e-11 * size) return false;
            }
        }
    }
    return true;
}

static const char *measured_class(step_function *f, size_t state, random_source *source) {
    if (!f->reaches[state][state]) return "map";
    if (mixes_channels(f, state)) return "dense";
    return is_affine(f, state, source) ? "scan" : "diagonal";
}

/* The stage that has this state, or NULL. */
static json_t *find_stage(json_t *description, const char *state) {
    size_t i, j;
    json_t *stage, *name;
    json_array_foreach(json_object_get(description, "stages"), i, stage) {
        json_array_foreach(json_object_get(stage, "states"), j, name) {
            if (strcmp(json_string_value(name), state) == 0) return stage;
        }
    }
    return NULL;
}

static size_t find_state(const step_function *f, const char *name) {
    for (size_t s = 0; s < f->states; s++) {
        if (strcmp(rcv_net_state(f->net, s)->name, name) == 0) return s;
    }
    fail_msg("the network has no state %s", name);
    return 0;
}

static json_t *describe_json(rcv_context *context, const rcv_cell *cell) {
    char *text = described(cell, RCV_DESCRIBE_BACKWARD | RCV_DESCRIBE_JSON);
    json_error_t error;
    json_t *description = json_loads(text, 0, &error);
    if (!description) fail_msg("the description is not JSON: %s\n%s", error.text, text);
    rcv_text_free(context, text);
    return description;
}

/* Compares classes and groups of states; counts the classes seen. */
static void check_classes(rcv_context *context, const char *text, uint64_t seed, size_t counts[4]) {
    static const char *const names[] = {"map", "scan", "diagonal", "dense"};
    rcv_cell *cell = parse(context, text);
    json_t *description = describe_json(context, cell), *name, *other;
    step_function *f = malloc(sizeof *f);
    assert_non_null(f);
    random_source source = {seed + 1000};
    step_open(f, cell);
    measure_dependence(f, &source);
    json_t *states = json_object_get(description, "states");
    assert_true(json_array_size(states) > 0);
    size_t i, k;
    json_array_foreach(states, i, name) {
        const char *state_name = json_string_value(json_object_get(name, "name"));
        size_t state = find_state(f, state_name);
        json_t *stage = find_stage(description, state_name);
        const char *claimed = stage ? json_string_value(json_object_get(stage, "class")) : "map";
        const char *measured = measured_class(f, state, &source);
        if (strcmp(claimed, measured) != 0) {
            fail_msg("seed %d: state %s is said to be %s (%s), and is %s\n%s", (int)seed, state_name, claimed,
                     stage ? json_string_value(json_object_get(stage, "reason")) : "no stage", measured, text);
        }
        for (int c = 0; c < 4; c++) counts[c] += strcmp(claimed, names[c]) == 0;
        if (!stage || strcmp(claimed, "map") == 0) continue;
        json_array_foreach(states, k, other) {
            const char *other_name = json_string_value(json_object_get(other, "name"));
            bool claimed_together = find_stage(description, other_name) == stage;
            if (claimed_together != together(f, state, find_state(f, other_name))) {
                fail_msg("seed %d: %s and %s are %sin one stage\n%s", (int)seed, state_name, other_name,
                         claimed_together ? "" : "not ", text);
            }
        }
    }
    step_close(f);
    free(f);
    json_decref(description);
    rcv_cell_free(cell);
}

static void test_classes(void **state) {
    (void)state;
    size_t counts[4] = {0};
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    for (uint64_t seed = 0; seed < CELLS; seed++) {
        if (!sample_takes(seed)) continue;
        random_source source = {seed};
        char *text = generate_cell(&source);
        check_classes(context, text, seed, counts);
        free(text);
    }
    print_message("states: %zu map, %zu scan, %zu diagonal, %zu dense\n", counts[0], counts[1], counts[2], counts[3]);
    for (int i = 0; i < 4; i++) assert_true(counts[i] >= sample_least(10));
    test_context_end(&allocator, context);
}

/* ---- classes of the built-in cells ------------------------------------------------------------------------------- */

static const struct {
    const char *cell, *state, *class;
} expected[] = {
    {"gilr_lstm", "s", "scan"},
    {"gilr_lstm", "c", "scan"},
    {"gru", "h", "dense"},
    {"gru_diagonal", "h", "diagonal"},
    {"gru_original", "h", "dense"},
    {"indrnn", "h", "diagonal"},
    {"lstm", "h", "dense"},
    {"lstm", "c", "dense"},
    {"lstm_cifg", "h", "dense"},
    {"lstm_layernorm", "h", "dense"},
    {"lstm_peephole", "c", "dense"},
    {"lstm_proj", "h", "dense"},
    {"mingru", "h", "scan"},
    {"minlstm", "h", "scan"},
    {"qrnn_f", "h", "scan"},
    {"qrnn_f_w2", "h", "scan"},
    {"qrnn_fo", "c", "scan"},
    {"qrnn_fo_w2", "c", "scan"},
    {"qrnn_ifo", "c", "scan"},
    {"qrnn_ifo_w2", "c", "scan"},
    {"rnn_relu", "h", "dense"},
    {"rnn_tanh", "h", "dense"},
    {"slstm", "m", "dense"},
    {"slstm", "h", "dense"},
    {"sru", "c", "scan"},
    {"sru2", "c", "diagonal"},
};

/* The adjoint is linear in its own states: no stage of it is diagonal, and it is dense only where forward is. */
static void check_backward(const rcv_cell *cell, json_t *description) {
    bool dense = false;
    size_t i;
    json_t *stage, *stages = json_object_get(json_object_get(description, "backward"), "stages");
    json_array_foreach(json_object_get(description, "stages"), i, stage) {
        dense |= strcmp(json_string_value(json_object_get(stage, "class")), "dense") == 0;
    }
    assert_true(json_array_size(stages) > 0);
    json_array_foreach(stages, i, stage) {
        const char *class = json_string_value(json_object_get(stage, "class"));
        if (strcmp(class, "diagonal") == 0 || (strcmp(class, "dense") == 0 && !dense)) {
            fail_msg("%s: a backward stage is %s", rcv_cell_name(cell), class);
        }
    }
}

static void test_builtin_classes(void **state) {
    (void)state;
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    for (size_t i = 0; i < rcv_builtin_count(); i++) {
        rcv_cell *cell = NULL;
        check_ok(rcv_cell_open(context, rcv_builtin_name(i), &cell));
        json_t *description = describe_json(context, cell);
        check_backward(cell, description);
        for (size_t k = 0; k < sizeof expected / sizeof *expected; k++) {
            if (strcmp(expected[k].cell, rcv_cell_name(cell)) != 0) continue;
            json_t *stage = find_stage(description, expected[k].state);
            assert_non_null(stage);
            if (strcmp(json_string_value(json_object_get(stage, "class")), expected[k].class) != 0) {
                fail_msg("%s of %s is %s, not %s", expected[k].state, expected[k].cell,
                         json_string_value(json_object_get(stage, "class")), expected[k].class);
            }
        }
        json_decref(description);
        rcv_cell_free(cell);
    }
    test_context_end(&allocator, context);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_printing), cmocka_unit_test(test_gradients),
                                       cmocka_unit_test(test_bare), cmocka_unit_test(test_classes),
                                       cmocka_unit_test(test_builtin_classes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
