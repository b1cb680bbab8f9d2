#include "planned.h"

#include <math.h>

static double *draw(random_source *source, int64_t count, double from, double to) {
    double *values = malloc((size_t)(count + 1) * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < count; i++) values[i] = (float)random_between(source, from, to); /* exact in float */
    return values;
}

void open_problem(problem *p, const config *c, int64_t threads) {
    memset(p, 0, sizeof *p);
    p->c = *c;
    test_allocator_init(&p->allocator);
    check_ok(
        rcv_context_new(&(rcv_context_options){.allocator = &p->allocator.allocator, .threads = threads}, &p->context));
    check_ok(rcv_cell_open(p->context, c->cell, &p->cell));
    check_ok(rcv_net_new(p->cell, &c->net, &p->net));
    random_source source = {random_seed_of(c->cell) + (uint64_t)c->steps};
    int64_t rows = c->steps * c->batch;
    p->x_count = rows * c->net.input;
    p->y_count = rows * rcv_net_output(p->net);
    p->parameter_count = rcv_net_parameter_elements(p->net);
    p->x = draw(&source, p->x_count, -1, 1);
    p->dy = draw(&source, p->y_count, -1, 1);
    p->parameters = draw(&source, p->parameter_count, -0.4, 0.4);
    p->states = rcv_net_state_count(p->net);
    assert_true(p->states <= MAX_STATES);
    for (size_t s = 0; s < p->states; s++) {
        p->state_counts[s] = rcv_net_state(p->net, s)->total * c->batch;
        p->initial[s] = draw(&source, p->state_counts[s], 0.1, 0.9); /* positive, as a normaliser must be */
        p->dfinal[s] = draw(&source, p->state_counts[s], -1, 1);
    }
    p->lengths = malloc((size_t)c->batch * sizeof *p->lengths);
    p->resets = malloc((size_t)rows);
    assert_true(p->lengths && p->resets);
    for (int64_t b = 0; b < c->batch; b++) p->lengths[b] = b ? 1 + random_below(&source, (int)c->steps) : c->steps;
    for (int64_t i = 0; i < rows; i++) p->resets[i] = random_below(&source, 4) == 0;
}

void close_problem(problem *p) {
    for (size_t s = 0; s < p->states; s++) {
        free(p->initial[s]);
        free(p->dfinal[s]);
    }
    free(p->x);
    free(p->dy);
    free(p->parameters);
    free(p->lengths);
    free(p->resets);
    rcv_net_free(p->net);
    rcv_cell_free(p->cell);
    test_context_end(&p->allocator, p->context);
}

rcv_plan_options options_of(const problem *p, rcv_dtype dtype, bool training, const char *schedule) {
    return (rcv_plan_options){.steps = p->c.steps,
                              .batch = p->c.batch,
                              .dtype = dtype,
                              .training = training,
                              .lengths = p->c.lengths,
                              .resets = p->c.resets,
                              .schedule = schedule};
}

/* The values in the type in which a plan of this type takes them; NULL stays NULL. */
static void *as_type(rcv_dtype dtype, const double *values, int64_t count) {
    size_t bytes = dtype == RCV_FLOAT64 ? sizeof(double) : sizeof(float);
    char *copy = malloc((size_t)(count + 1) * bytes);
    assert_non_null(copy);
    for (int64_t i = 0; i < count; i++) {
        double value = values ? values[i] : NAN;
        if (dtype == RCV_FLOAT64)
            ((double *)(void *)copy)[i] = value;
        else
            ((float *)(void *)copy)[i] = (float)value;
    }
    return copy;
}

static void collect(results *r, const char *name, rcv_dtype dtype, void *values, int64_t count) {
    double *wide = malloc((size_t)(count + 1) * sizeof *wide);
    assert_non_null(wide);
    for (int64_t i = 0; i < count; i++) {
        wide[i] = dtype == RCV_FLOAT64 ? ((double *)values)[i] : (double)((float *)values)[i];
    }
    r->names[r->count] = name;
    r->values[r->count] = wide;
    r->counts[r->count++] = count;
    free(values);
}

void drop(results *r) {
    for (int i = 0; i < r->count; i++) free(r->values[i]);
    r->count = 0;
}

void run_pinned(const problem *p, rcv_dtype dtype, bool training, const char *schedule, results *r) {
    rcv_plan_options options = options_of(p, dtype, training, schedule);
    rcv_plan *plan = NULL;
    rcv_run *run = NULL;
    check_ok(rcv_plan_new(p->net, &options, &plan));
    assert_string_equal(rcv_plan_string(plan), schedule);
    check_ok(rcv_run_new(plan, &run));
    assert_int_equal(rcv_run_bytes(run), rcv_plan_bytes(plan));
    void *parameters = as_type(dtype, p->parameters, p->parameter_count), *x = as_type(dtype, p->x, p->x_count);
    void *dy = as_type(dtype, p->dy, p->y_count), *y = as_type(dtype, NULL, p->y_count);
    void *dx = as_type(dtype, NULL, p->x_count), *dparameters = as_type(dtype, NULL, p->parameter_count);
    void *initial[MAX_STATES], *final[MAX_STATES], *dfinal[MAX_STATES], *dinitial[MAX_STATES];
    for (size_t s = 0; s < p->states; s++) {
        initial[s] = as_type(dtype, p->initial[s], p->state_counts[s]);
        dfinal[s] = as_type(dtype, p->dfinal[s], p->state_counts[s]);
        final[s] = as_type(dtype, NULL, p->state_counts[s]);
        dinitial[s] = as_type(dtype, NULL, p->state_counts[s]);
    }
    rcv_forward forward = {.parameters = parameters,
                           .x = x,
                           .y = y,
                           .lengths = p->c.lengths ? p->lengths : NULL,
                           .resets = p->c.resets ? p->resets : NULL,
                           .initial = p->c.initial ? (const void *const *)initial : NULL,
                           .final = final,
                           .seed = 5};
    rcv_backward backward = {
        .dy = dy, .dfinal = (const void *const *)dfinal, .dx = dx, .dinitial = dinitial, .dparameters = dparameters};
    for (int call = 0; call < 2; call++) {
        forward.same_parameters = call;
        check_ok(rcv_run_forward(run, &forward));
        if (training) check_ok(rcv_run_backward(run, &backward));
    }
    rcv_run_free(run);
    rcv_plan_free(plan);
    r->count = 0;
    collect(r, "y", dtype, y, p->y_count);
    for (size_t s = 0; s < p->states; s++) {
        collect(r, "a final state", dtype, final[s], p->state_counts[s]);
        if (training) collect(r, "an initial state's gradient", dtype, dinitial[s], p->state_counts[s]);
        if (!training) free(dinitial[s]);
        free(initial[s]);
        free(dfinal[s]);
    }
    if (training) collect(r, "dx", dtype, dx, p->x_count);
    if (training) collect(r, "dparameters", dtype, dparameters, p->parameter_count);
    if (!training) {
        free(dx);
        free(dparameters);
    }
    free(parameters);
    free(x);
    free(dy);
}

/* Errors relative to the largest element of a tensor. Double: some 60 terms a sum and 12 steps behind one another, each
 * rounded at 1e-16, and as much again for gradients: 1e-11 leaves a margin of a hundred. Float: the same sums at 6e-8
 * give 4e-5; four times that. bfloat16: operands of products and activations are rounded at 2^-9, and that error goes
 * through every step as through a sum of independent ones; where gradients cancel, it is what is left. */
static double tolerance(rcv_dtype dtype) { return dtype == RCV_FLOAT64 ? 1e-11 : dtype == RCV_FLOAT32 ? 1.6e-4 : 0.04; }

void compare(const problem *p, rcv_dtype dtype, const char *schedule, const results *got, const results *want,
             double *worst) {
    assert_int_equal(got->count, want->count);
    for (int i = 0; i < got->count; i++) {
        double scale = 1e-3, error = 0;
        for (int64_t k = 0; k < want->counts[i]; k++) scale = fmax(scale, fabs(want->values[i][k]));
        for (int64_t k = 0; k < want->counts[i]; k++) {
            double one = fabs(got->values[i][k] - want->values[i][k]);
            error = fmax(error, isfinite(got->values[i][k]) ? one : INFINITY);
        }
        *worst = fmax(*worst, error / scale);
        if (!(error <= tolerance(dtype) * scale)) {
            fail_msg("%s, %ld layers of %ld: %s of %s in %s is off by %g of %g", p->c.cell, (long)p->c.net.layers,
                     (long)p->c.net.hidden, got->names[i], schedule, rcv_dtype_name(dtype), error, scale);
        }
    }
}

void check_same_bits(const char *schedule, const results *a, const results *b) {
    for (int i = 0; i < a->count; i++) {
        if (memcmp(a->values[i], b->values[i], (size_t)a->counts[i] * sizeof(double)))
            fail_msg("%s: %s differs from run to run", schedule, a->names[i]);
    }
}
