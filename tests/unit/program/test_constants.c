/* Values that depend on the parameters alone (constants): they are computed once for all steps and sequences, where the parameters have
 * changed, and the chain rule through them is applied once. Plans of such cells are compared with the naive schedule in double, which
 * computes them at every step. */
#include "cuda_programs.h"
#include "generator.h"
#include "plan/plan.h"
#include "planned.h"

#include <jansson.h>
#include <math.h>

#define CELLS_FOLDER RCV_SOURCE_DIR "/tests/support/cells/"

static const char lru[] = CELLS_FOLDER "lru.cell", mixture[] = CELLS_FOLDER "constants.cell",
                  decay[] = CELLS_FOLDER "decay.cell";

static const config configs[] = {
    {NULL, {.input = 5, .hidden = 6, .layers = 2}, 7, 3, false, false, true},
    {NULL, {.input = 4, .hidden = 17, .layers = 2, .bidirectional = true}, 6, 2, true, true, true},
    {NULL, {.input = 3, .hidden = 4, .layers = 2, .zoneout = 0.3}, 7, 5, true, false, false},
    {NULL, {.input = 6, .hidden = 5, .layers = 1, .rank = 2, .no_bias = true}, 8, 3, false, true, true},
    {NULL, {.input = 2, .hidden = 1, .layers = 3}, 1, 1, false, false, true},
};
enum { CONFIGS = sizeof configs / sizeof *configs };

static const char *const plans[] = {
    "kernels",
    "fuse",
    "pack",
    "transpose",
    "scan",
    "combine",
    "combine+fuse+pack",
    "combine(steps=3)+fuse",
    "combine(steps=3)+fuse+pack",
    "combine(steps=all)+fuse+pack",
    "combine(steps=all)+blas",
    "combine(steps=all)+fuse+pack+scan",
    "combine+fuse+pack+wavefront",
    "combine(steps=2)+fuse+pack+wavefront+threads(2)",
    "combine(steps=2)+fuse+transpose+recompute(every=2)",
    "combine(steps=3)+fuse+pack+scan+recompute(every=3)",
    "combine(steps=all,forward=3)+fuse+pack+threads(2)",
};
enum { PLANS = sizeof plans / sizeof *plans };

typedef enum { AS_CPU, AS_GPU, MACHINES } machine_kind;

/* A plan for the CPU, or one that is written as for a GPU and runs on the CPU. */
static rcv_status make(const problem *p, const rcv_plan_options *options, machine_kind kind, rcv_plan **plan) {
    rcvi_problem asked = {.net = p->net, .options = options, .device = &rcvi_device_cpu};
    rcvi_rungs rungs;
    check_ok(rcvi_rungs_read(options->schedule, &rungs));
    check_ok(rcvi_device_cpu.describe(p->context, 0, options->dtype, 2, &asked.machine));
    rcvi_device_cpu.describe_libraries(0, &asked.machine);
    asked.machine.gpu = kind == AS_GPU;
    asked.machine.min_library_product = kind == AS_GPU;
    rcv_status status = rcvi_plan_make(&asked, &rungs, plan);
    if (!status) check_ok(rcvi_plan_serve_sizes(*plan));
    return status;
}

/* ---- the split of a graph ---- */

static void check_split(const rcvi_layer *layer, const char *text) {
    const rcvi_graph *forward = &layer->forward, *constants = &layer->constants, *step = rcvi_layer_step(layer);
    bool *left = calloc(step->value_count + 1, sizeof *left);
    assert_non_null(left);
    rcvi_find_constants(step, left);
    for (size_t v = 0; v < step->value_count; v++) {
        bool stored = rcvi_graph_state_of_next(step, (int)v) != RCVI_NONE || step->outputs[0].value == (int)v;
        if (left[v] && !stored) fail_msg("value %zu of a step depends on the parameters alone\n%s", v, text);
    }
    free(left);
    for (size_t v = 0; v < constants->value_count; v++) {
        rcvi_operation operation = constants->values[v].operation;
        assert_true(operation != RCVI_INPUT && operation != RCVI_STATE);
    }
    if (!constants->output_count) return;
    assert_int_equal(constants->param_count, forward->param_count);
    assert_int_equal(step->param_count, forward->param_count + constants->output_count);
    assert_int_equal(step->state_count, forward->state_count);
    assert_int_equal(step->input_count, forward->input_count);
    assert_true(constants->state_count == 0 && constants->input_count == 0);
    for (size_t i = 0; i < forward->state_count; i++) { /* a map stores it, as it would without constants */
        rcvi_operation operation = forward->values[forward->states[i].next].operation;
        if (rcvi_operations[operation].elementwise)
            assert_int_equal(step->values[step->states[i].next].operation, operation);
    }
}

static void graphs_are_split(void **state) {
    (void)state;
    enum { CELLS = 100 };
    int with_constants = 0;
    for (uint64_t seed = 0; seed < CELLS; seed++) {
        random_source source = {seed};
        char *text = seed % 2 ? generate_cell(&source) : generate_wide_cell(&source);
        problem p;
        config c = {
            "random.cell", {.input = 3, .hidden = 4, .layers = 2, .zoneout = seed % 3 ? 0 : 0.2}, 2, 1, 0, 0, 0};
        c.net.no_bias = seed % 5 == 0;
        open_problem_of(&p, &c, text, 1);
        for (int64_t l = 0; l < c.net.layers; l++) check_split(&p.net->layers[l], text);
        with_constants += p.net->layers[0].constants.output_count > 0;
        close_problem(&p);
        free(text);
    }
    problem p;
    config c = configs[0];
    c.cell = mixture;
    open_problem(&p, &c, 1);
    check_split(&p.net->layers[0], c.cell);
    /* d, u * v, sigmoid(g), 1 + g, 1 + u * u, m, exp(m), sum(u), max(g, w), log(1 + w * w) */
    assert_int_equal(p.net->layers[0].constants.output_count, 10);
    close_problem(&p);
    open_problem_of(&p, &c, "cell number(x) {\n    state h\n    h' = 0.5\n    return h * W x\n}\n", 1);
    assert_int_equal(p.net->layers[0].constants.output_count, 0);
    close_problem(&p);
    print_message("%d of %d random cells have constants\n", with_constants, CELLS);
    assert_true(with_constants > CELLS / 10 && with_constants < CELLS);
}

/* Plain vectors are read where they are. */
static void builtin_cells_have_none(void **state) {
    (void)state;
    for (size_t i = 0; i < rcv_builtin_count() * CONFIGS; i++) {
        problem p;
        config c = configs[i % CONFIGS];
        c.cell = rcv_builtin_name(i / CONFIGS);
        open_problem(&p, &c, 1);
        const rcvi_layer *layer = &p.net->layers[0];
        assert_int_equal(layer->constants.output_count, 0);
        assert_ptr_equal(rcvi_layer_step(layer), &layer->forward);
        assert_ptr_equal(rcvi_layer_step_adjoint(layer), &layer->adjoint);
        close_problem(&p);
    }
}

/* ---- programs ---- */

static int count_operations(const rcvi_step *step) {
    int count = 0;
    for (int k = 0; step->kind == RCVI_STEP_MAP && k < step->map->instruction_count; k++) {
        rcvi_operation operation = step->map->instructions[k].operation;
        count += operation == RCVI_EXP || operation == RCVI_SQRT || operation == RCVI_SOFTPLUS ||
                 operation == RCVI_SIGMOID || operation == RCVI_DIVIDE;
    }
    return count;
}

/* No function of the LRU is of anything but its vectors: all of them are in maps of one row outside of loops, forwards in steps for changed
 * parameters. What these write is not larger than the rows that hold it. */
static void check_program(const rcvi_program *program, int64_t hidden) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    int forward = 0, backward = 0;
    for (size_t i = 0, inside = 0; i < program->step_count; i++) {
        const rcvi_step *step = &program->steps[i];
        if (step->kind == RCVI_STEP_LOOP && i >= inside) inside = i + 1 + (size_t)step->loop.body;
        int operations = count_operations(step);
        if (!operations) continue;
        if (step->rows != 1 || i < inside)
            fail_msg("%s: step %zu computes constants of %lld rows%s", program->options.schedule, i,
                     (long long)step->rows, i < inside ? " in a loop" : "");
        (i < program->forward_count ? &forward : &backward)[0] += operations;
        if (i >= program->forward_count) continue;
        assert_int_equal(step->when, RCVI_WHEN_PARAMETERS_CHANGED);
        int count = rcvi_step_accesses(step, accesses);
        for (int k = 0; k < count; k++) {
            const rcvi_buffer *buffer = &program->buffers[accesses[k].view->buffer];
            if (!accesses[k].written) continue;
            assert_true(buffer->lasting);
            assert_true(buffer->count <= 3 * (hidden + RCVI_CONSTANT_ALIGNMENT));
        }
    }
    int64_t layers = program->net->options.layers * program->net->directions;
    assert_int_equal(forward, 4 * layers); /* exp, exp, sqrt, softplus */
    assert_true(!program->options.training || backward > 0);
}

static void programs_compute_once(void **state) {
    (void)state;
    size_t checked = 0;
    for (int i = 0; i < CONFIGS * PLANS * MACHINES * 2; i++) {
        config c = configs[i / (PLANS * MACHINES * 2)];
        const char *schedule = plans[i / (MACHINES * 2) % PLANS];
        c.cell = lru;
        problem p;
        open_problem(&p, &c, 2);
        rcv_plan_options options = options_of(&p, RCV_FLOAT32, i % 2, schedule);
        rcv_plan *plan = NULL;
        rcv_status status = make(&p, &options, (machine_kind)(i / 2 % MACHINES), &plan);
        if (!status) check_program(&plan->program, c.net.hidden);
        checked += !status;
        assert_true(!status || status == RCV_UNSUPPORTED);
        rcv_plan_free(plan);
        close_problem(&p);
    }
    assert_true(checked > 150);
    for (size_t i = 0; i < 4 * (size_t)GPU_PLANS; i++) {
        rcvi_program program;
        config c = configs[0];
        c.cell = lru;
        problem p;
        open_problem(&p, &c, 1);
        rcv_plan_options options = options_of(&p, i & 2 ? RCV_BFLOAT16 : RCV_FLOAT32, i & 1, gpu_plans[i / 4]);
        if (!strstr(gpu_plans[i / 4], "naive") && write_with(p.net, &options, &program)) {
            check_program(&program, c.net.hidden);
            rcvi_program_free(&program);
            checked++;
        }
        close_problem(&p);
    }
    print_message("%zu programs\n", checked);
    assert_true(checked > 200);
}

/* ---- results ---- */

static void check_results(const config *c, double *worst, size_t *run) {
    static const rcv_dtype dtypes[] = {RCV_FLOAT64, RCV_FLOAT32, RCV_BFLOAT16};
    problem p;
    results want[2], got;
    open_problem(&p, c, 2);
    for (int training = 0; training < 2; training++) run_oracle(&p, training, &want[training]);
    for (int i = 0; i < PLANS * MACHINES * 3 * 2; i++) {
        const char *schedule = plans[i / (MACHINES * 6)];
        rcv_dtype dtype = dtypes[i / 2 % 3];
        bool is_larger = i / 2 % 2; /* a plan for more than it is called with */
        p.most_steps = c->steps + (is_larger ? 4 : 0);
        p.most_batch = c->batch + (is_larger ? 2 : 0);
        rcv_plan_options options = options_of(&p, dtype, i % 2, schedule);
        rcv_plan *plan = NULL;
        if (dtype == RCV_BFLOAT16 && !strstr(schedule, "pack")) continue; /* the CPU has no such product */
        rcv_status status = make(&p, &options, (machine_kind)(i / 6 % MACHINES), &plan);
        if (status == RCV_UNSUPPORTED) continue;
        check_ok(status);
        run_plan(&p, plan, dtype, i % 2, &got);
        compare(&p, dtype, schedule, &got, &want[i % 2], &worst[i / 2 % 3]);
        drop(&got);
        rcv_plan_free(plan);
        ++*run;
    }
    drop(&want[0]);
    drop(&want[1]);
    close_problem(&p);
}

static void plans_agree(void **state) {
    (void)state;
    double worst[3] = {0};
    size_t run = 0;
    for (int i = 0; i < 3 * CONFIGS; i++) {
        config c = configs[i % CONFIGS];
        c.cell = (const char *[]){lru, mixture, decay}[i / CONFIGS];
        check_results(&c, worst, &run);
    }
    print_message("%zu plans; largest relative error in double %.1e, float %.1e, bfloat16 %.1e\n", run, worst[0],
                  worst[1], worst[2]);
    assert_true(run > 800);
}

/* ---- calls ---- */

/* The first vector of the LRU, of which every value is a constant. */
static double *find_vector(const data *d) {
    const rcv_net *net = d->p->net;
    for (size_t i = 0; i < rcv_net_parameter_count(net); i++) {
        const rcv_parameter *parameter = rcv_net_parameter(net, i);
        if (!strcmp(parameter->name, "nu_l0")) return (double *)d->parameters + parameter->offset;
    }
    fail_msg("the network has no vector nu");
    return NULL;
}

static void call(rcv_run *run, data *d, bool same_parameters, double *y, double *gradient) {
    d->forward.same_parameters = same_parameters;
    check_ok(rcv_run_forward(run, &d->forward));
    check_ok(rcv_run_backward(run, &d->backward));
    memcpy(y, d->y, (size_t)d->p->y_count * sizeof *y);
    memcpy(gradient, d->dparameters, (size_t)d->p->parameter_count * sizeof *gradient);
}

/* Constants follow the parameters, and are kept where the caller says that these have not changed. Gradients may be added to. */
static void constants_follow_parameters(void **state) {
    (void)state;
    config c = configs[0];
    c.cell = lru;
    problem p;
    data d;
    rcv_plan *plan = NULL;
    rcv_run *run = NULL;
    open_problem(&p, &c, 1);
    open_data(&d, &p, RCV_FLOAT64);
    rcv_plan_options options = options_of(&p, RCV_FLOAT64, true, "combine(steps=3)+fuse+pack");
    check_ok(rcv_plan_new(p.net, &options, &plan));
    check_ok(rcv_run_new(plan, &run));
    size_t outputs = (size_t)p.y_count * sizeof(double), gradients = (size_t)p.parameter_count * sizeof(double);
    double *y[3], *g[3], *nu = find_vector(&d), before = *nu;
    for (int i = 0; i < 3; i++) y[i] = malloc(outputs), g[i] = malloc(gradients);
    call(run, &d, false, y[0], g[0]);
    *nu = before + 0.25;
    call(run, &d, true, y[1], g[1]); /* which is not so: only this shows that nothing is computed again */
    assert_memory_equal(y[0], y[1], outputs);
    call(run, &d, false, y[1], g[1]);
    assert_memory_not_equal(y[0], y[1], outputs);
    assert_memory_not_equal(g[0], g[1], gradients);
    *nu = before;
    call(run, &d, false, y[1], g[1]);
    assert_memory_equal(y[0], y[1], outputs);
    assert_memory_equal(g[0], g[1], gradients);
    d.backward.accumulate = true;
    call(run, &d, false, y[2], g[2]);
    for (int64_t i = 0; i < p.parameter_count; i++) {
        if (!(fabs(g[2][i] - 2 * g[0][i]) <= 1e-12 * (1 + fabs(g[0][i]))))
            fail_msg("gradient %lld is %g, not twice %g", (long long)i, g[2][i], g[0][i]);
    }
    for (int i = 0; i < 3; i++) free(y[i]), free(g[i]);
    rcv_run_free(run);
    rcv_plan_free(plan);
    close_data(&d, true, NULL);
    close_problem(&p);
}

/* ---- the description ---- */

static void descriptions_name_the_class(void **state) {
    (void)state;
    config c = configs[0];
    c.cell = lru;
    problem p;
    char *text = NULL;
    open_problem(&p, &c, 1);
    check_ok(rcv_cell_describe(p.cell, RCV_DESCRIBE_JSON, &text));
    json_t *description = json_loads(text, 0, NULL);
    assert_non_null(description);
    json_t *stages = json_object_get(description, "stages"), *first = json_array_get(stages, 0);
    assert_string_equal(json_string_value(json_object_get(first, "class")), "constant");
    assert_string_equal(json_string_value(json_object_get(first, "reason")),
                        "depends on the parameters alone: the same at every step");
    json_t *values = json_object_get(first, "values");
    assert_int_equal(json_array_size(values), 3);
    assert_string_equal(json_string_value(json_array_get(values, 0)), "a");
    assert_string_equal(json_string_value(json_array_get(values, 1)), "sqrt(1 - a * a)");
    assert_string_equal(json_string_value(json_array_get(values, 2)), "softplus(return.gain)");
    json_t *derivative = json_object_get(description, "derivative");
    assert_int_equal(json_array_size(json_object_get(derivative, "saved")), 1); /* W x */
    for (size_t i = 1; i < json_array_size(stages); i++) {
        const char *class = json_string_value(json_object_get(json_array_get(stages, i), "class"));
        assert_string_not_equal(class, "constant");
    }
    json_decref(description);
    rcv_text_free(p.context, text);
    check_ok(rcv_cell_describe(p.cell, 0, &text));
    assert_non_null(strstr(text, "  1 constant a, sqrt(1 - a * a), softplus(return.gain)\n"
                                 "              depends on the parameters alone: the same at every step\n"));
    rcv_text_free(p.context, text);
    close_problem(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(graphs_are_split),
                                       cmocka_unit_test(builtin_cells_have_none),
                                       cmocka_unit_test(programs_compute_once),
                                       cmocka_unit_test(plans_agree),
                                       cmocka_unit_test(constants_follow_parameters),
                                       cmocka_unit_test(descriptions_name_the_class)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
