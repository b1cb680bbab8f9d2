#include "planned.h"

#include <math.h>

static double *draw(random_source *source, int64_t count, double from, double to) {
    double *values = malloc((size_t)(count + 1) * sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < count; i++) values[i] = (float)random_between(source, from, to); /* exact in float */
    return values;
}

void open_problem(problem *p, const config *c, int64_t threads) { open_problem_of(p, c, NULL, threads); }

void open_problem_of(problem *p, const config *c, const char *text, int64_t threads) {
    memset(p, 0, sizeof *p);
    p->c = *c;
    test_allocator_init(&p->allocator);
    check_ok(rcv_context_new(&RCV_INIT(rcv_context_options, .allocator = &p->allocator.allocator, .threads = threads),
                             &p->context));
    if (text)
        check_ok(rcv_cell_parse(p->context, text, strlen(text), c->cell, &p->cell));
    else
        check_ok(rcv_cell_open(p->context, c->cell, &p->cell));
    rcv_net_options net = c->net; /* tables of tests leave the size out */
    net.size = sizeof net;
    check_ok(rcv_net_new(p->cell, &net, &p->net));
    const char *folder = strrchr(c->cell, '/'); /* which may have another name the next time */
    random_source source = {random_seed_of(folder ? folder + 1 : c->cell) + (uint64_t)c->steps};
    int64_t rows = c->steps * c->batch;
    p->x_count = rows * c->net.input;
    p->y_count = rows * rcv_net_output(p->net);
    p->parameter_count = rcv_net_parameter_elements(p->net);
    p->x = draw(&source, p->x_count, -1, 1);
    p->dy = draw(&source, p->y_count, -1, 1);
    double spread = fmin(0.4, 1.7 / sqrt((double)c->net.hidden)); /* sums neither grow nor vanish */
    p->parameters = draw(&source, p->parameter_count, -spread, spread);
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
    for (size_t s = 0; s < p->states; s++) p->again[s] = draw(&source, p->state_counts[s], 0.1, 0.9);
}

void close_problem(problem *p) {
    for (size_t s = 0; s < p->states; s++) {
        free(p->initial[s]);
        free(p->dfinal[s]);
        free(p->again[s]);
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
    return RCV_INIT(rcv_plan_options, .steps = p->c.steps, .batch = p->c.batch, .dtype = dtype, .training = training,
                    .lengths = p->c.lengths, .resets = p->c.resets, .schedule = schedule, .device = p->device);
}

/* ---- data ---- */

enum { GUARD = 512, GUARD_BYTE = 0xa5 }; /* bytes behind a tensor in a GPU's memory */

static size_t guard_of(const problem *p) { return p->device ? GUARD : 0; } /* of the CPU's, a sanitizer takes care */
static size_t size_of(rcv_dtype dtype) { return dtype == RCV_FLOAT64 ? sizeof(double) : sizeof(float); }

static void *new_bytes(size_t bytes) {
    void *memory = malloc(bytes ? bytes : 1);
    assert_non_null(memory);
    return memory;
}

/* These bytes, and a guard, in the device's memory. */
static void *put_bytes(const problem *p, const void *bytes, size_t count) {
    void *memory = NULL;
    check_ok(rcv_memory_new(p->context, p->device, count + guard_of(p), &memory));
    check_ok(rcv_memory_write(p->device, memory, bytes, count));
    unsigned char guard[GUARD];
    memset(guard, GUARD_BYTE, sizeof guard);
    check_ok(rcv_memory_write(p->device, (char *)memory + count, guard, guard_of(p)));
    return memory;
}

/* Frees the memory; what it held, to be freed. */
static void *take_bytes(const problem *p, void *memory, size_t count, const char *what) {
    unsigned char *bytes = new_bytes(count + guard_of(p));
    check_ok(rcv_memory_read(p->device, bytes, memory, count + guard_of(p)));
    for (size_t i = count; i < count + guard_of(p); i++) {
        if (bytes[i] != GUARD_BYTE) fail_msg("something was written %zu bytes behind %s", i - count, what);
    }
    rcv_memory_free(p->context, p->device, memory);
    return bytes;
}

/* The values in the type in which a plan of this type takes them; of none, poison. */
static void *as_type(rcv_dtype dtype, const double *values, int64_t count) {
    void *copy = new_bytes((size_t)count * size_of(dtype));
    for (int64_t i = 0; i < count; i++) {
        double value = values ? values[i] : NAN;
        if (dtype == RCV_FLOAT64)
            ((double *)copy)[i] = value;
        else
            ((float *)copy)[i] = (float)value;
    }
    return copy;
}

static void *put(const data *d, const double *values, int64_t count) {
    void *copy = as_type(d->dtype, values, count);
    void *memory = put_bytes(d->p, copy, (size_t)count * size_of(d->dtype));
    free(copy);
    return memory;
}

static void take_input(const data *d, void *memory, const double *values, int64_t count, const char *what) {
    size_t bytes = (size_t)count * size_of(d->dtype);
    void *was = as_type(d->dtype, values, count), *is = take_bytes(d->p, memory, bytes, what);
    if (memcmp(was, is, bytes)) fail_msg("a call wrote to its input %s", what);
    free(was);
    free(is);
}

static void take_output(const data *d, void *memory, int64_t count, const char *what, results *r) {
    void *values = take_bytes(d->p, memory, (size_t)count * size_of(d->dtype), what);
    if (r) {
        double *wide = new_bytes((size_t)count * sizeof *wide);
        for (int64_t i = 0; i < count; i++)
            wide[i] = d->dtype == RCV_FLOAT64 ? ((double *)values)[i] : (double)((float *)values)[i];
        r->names[r->count] = what;
        r->values[r->count] = wide;
        r->counts[r->count++] = count;
    }
    free(values);
}

void drop(results *r) {
    for (int i = 0; i < r->count; i++) free(r->values[i]);
    r->count = 0;
}

void open_data(data *d, const problem *p, rcv_dtype dtype) {
    *d = (data){.p = p, .dtype = dtype};
    d->parameters = put(d, p->parameters, p->parameter_count);
    d->x = put(d, p->x, p->x_count);
    d->dy = put(d, p->dy, p->y_count);
    d->y = put(d, NULL, p->y_count);
    d->dx = put(d, NULL, p->x_count);
    d->dparameters = put(d, NULL, p->parameter_count);
    for (size_t s = 0; s < p->states; s++) {
        d->initial[s] = put(d, p->initial[s], p->state_counts[s]);
        d->dfinal[s] = put(d, p->dfinal[s], p->state_counts[s]);
        d->final[s] = put(d, NULL, p->state_counts[s]);
        d->dinitial[s] = put(d, NULL, p->state_counts[s]);
        d->again[s] = put(d, p->again[s], p->state_counts[s]);
        d->dagain[s] = put(d, NULL, p->state_counts[s]);
    }
    d->resets = put_bytes(p, p->resets, (size_t)(p->c.steps * p->c.batch));
    d->forward = RCV_INIT(rcv_forward, .parameters = d->parameters, .x = d->x, .y = d->y,
                          .lengths = p->c.lengths ? p->lengths : NULL, .resets = p->c.resets ? d->resets : NULL,
                          .initial = p->c.initial ? (const void *const *)d->initial : NULL,
                          .restart = p->restart ? (const void *const *)d->again : NULL, .final = d->final, .seed = 5);
    d->backward =
        RCV_INIT(rcv_backward, .dy = d->dy, .dfinal = (const void *const *)d->dfinal, .dx = d->dx,
                 .dinitial = d->dinitial, .drestart = p->restart ? d->dagain : NULL, .dparameters = d->dparameters);
}

void close_data(data *d, bool training, results *r) {
    const problem *p = d->p;
    results *gradients = training ? r : NULL;
    if (r) r->count = 0;
    take_output(d, d->y, p->y_count, "y", r);
    for (size_t s = 0; s < p->states; s++) {
        take_output(d, d->final[s], p->state_counts[s], "a final state", r);
        take_output(d, d->dinitial[s], p->state_counts[s], "an initial state's gradient", gradients);
        take_output(d, d->dagain[s], p->state_counts[s], "a restart state's gradient", p->restart ? gradients : NULL);
        take_input(d, d->initial[s], p->initial[s], p->state_counts[s], "an initial state");
        take_input(d, d->again[s], p->again[s], p->state_counts[s], "a restart state");
        take_input(d, d->dfinal[s], p->dfinal[s], p->state_counts[s], "a final state's gradient");
    }
    take_output(d, d->dx, p->x_count, "dx", gradients);
    take_output(d, d->dparameters, p->parameter_count, "dparameters", gradients);
    take_input(d, d->parameters, p->parameters, p->parameter_count, "parameters");
    take_input(d, d->x, p->x, p->x_count, "x");
    take_input(d, d->dy, p->dy, p->y_count, "dy");
    free(take_bytes(p, d->resets, (size_t)(p->c.steps * p->c.batch), "resets"));
}

/* ---- runs ---- */

void run_plan(const problem *p, const rcv_plan *plan, rcv_dtype dtype, bool training, results *r) {
    rcv_run *run = NULL;
    data d;
    open_data(&d, p, dtype);
    check_ok(rcv_run_new(plan, &run));
    assert_int_equal(rcv_run_bytes(run), rcv_plan_bytes(plan));
    for (int call = 0; call < 2; call++) {
        d.forward.same_parameters = call;
        check_ok(rcv_run_forward(run, &d.forward));
        if (training) check_ok(rcv_run_backward(run, &d.backward));
    }
    check_ok(rcv_run_wait(run));
    rcv_run_free(run);
    close_data(&d, training, r);
}

void run_pinned(const problem *p, rcv_dtype dtype, bool training, const char *schedule, results *r) {
    rcv_plan_options options = options_of(p, dtype, training, schedule);
    rcv_plan *plan = NULL;
    check_ok(rcv_plan_new(p->net, &options, &plan));
    assert_string_equal(rcv_plan_string(plan), schedule);
    run_plan(p, plan, dtype, training, r);
    rcv_plan_free(plan);
}

void run_oracle(const problem *p, bool training, results *r) {
    problem own = *p;
    own.device = NULL;
    run_pinned(&own, RCV_FLOAT64, training, "naive", r);
}

/* ---- comparing ---- */

/* Errors relative to the largest element of a tensor. Double: some 60 terms a sum and 12 steps behind one another, each
 * rounded at 1e-16, and as much again for gradients: 1e-11 leaves a margin of a hundred. Float: the same sums at 6e-8
 * give 4e-5; four times that. bfloat16: operands of products and activations are rounded at 2^-9, and that error goes
 * through every step as through a sum of independent ones; where gradients cancel, it is what is left. tfloat32 and
 * float16 have three bits more, so an eighth of that; twice as much is allowed, since a GPU may cut a float32 operand off
 * to tfloat32 instead of rounding it. */
static double tolerance(rcv_dtype dtype) {
    switch (dtype) {
    case RCV_FLOAT64: return 1e-11;
    case RCV_FLOAT32: return 1.6e-4;
    case RCV_TFLOAT32:
    case RCV_FLOAT16: return 0.01;
    default: return 0.04;
    }
}

/* Where an operand falls on the other side of a kink once it is rounded, elements of the gradients jump. Their share grows
 * with the rounding, and the norm of all errors as its root. */
static bool has_kinks(const problem *p) {
    static const char *const operations[] = {"relu(", "max(", "min(", "abs("};
    bool found = false;
    for (int i = 0; i < 4; i++) found |= strstr(rcv_cell_source(p->cell), operations[i]) != NULL;
    return found;
}

typedef struct {
    double scale, error; /* largest element, and largest error */
    double norm;         /* of the errors, against that of the elements */
} distance;

/* A tensor that is next to nothing, where terms cancel, is as exact as these: `least` is the scale then. */
static distance measure(const double *got, const double *want, int64_t count, double least) {
    distance d = {.scale = least};
    double errors = 0, squares = 1e-30;
    for (int64_t k = 0; k < count; k++) {
        double error = isfinite(got[k]) ? fabs(got[k] - want[k]) : INFINITY;
        d.scale = fmax(d.scale, fabs(want[k]));
        d.error = fmax(d.error, error);
        errors += error * error;
        squares += want[k] * want[k];
    }
    d.norm = sqrt(errors / squares);
    return d;
}

/* What the terms of a tensor may be as large as, where they cancel. Gradients of x and of states are made of the same adjoints, which begin
 * with dy and dfinal, drawn in [-1, 1]. */
static double scale_of_terms(const results *want, int tensor) {
    static const char *const adjoints[] = {"dx", "an initial state's gradient", "a restart state's gradient"};
    double largest = 0;
    bool found = false;
    for (int k = 0; k < 3; k++) found |= !strcmp(want->names[tensor], adjoints[k]);
    for (int i = 0; found && i < want->count; i++) {
        for (int k = 0; k < 3; k++) {
            if (!strcmp(want->names[i], adjoints[k]))
                largest = fmax(largest, measure(want->values[i], want->values[i], want->counts[i], 1).scale);
        }
    }
    return largest;
}

/* How many elements are further off than allowed, and the first of them. */
static int64_t count_off(const double *got, const double *want, int64_t count, double allowed, int64_t *first) {
    int64_t off = 0;
    for (int64_t k = count - 1; k >= 0; k--) {
        if (fabs(got[k] - want[k]) <= allowed) continue;
        off++;
        *first = k;
    }
    return off;
}

bool is_near_shaken(const problem *p, rcv_dtype dtype, const char *schedule, const results *got, const results *want,
                    const results *shaken, double *worst, char *sentence, size_t room) {
    bool kinks = dtype != RCV_FLOAT64 && has_kinks(p), exact = dtype == RCV_FLOAT64 || dtype == RCV_FLOAT32;
    assert_int_equal(got->count, want->count);
    for (int i = 0; i < got->count; i++) {
        distance d = measure(got->values[i], want->values[i], want->counts[i], exact ? 1e-3 : 0.02);
        double allowed = tolerance(dtype) * d.scale;
        if (shaken) {
            double moved = measure(shaken->values[i], want->values[i], want->counts[i], 0).error;
            allowed = fmax(fmax(allowed, tolerance(dtype) * scale_of_terms(want, i)), SHAKEN * moved);
        }
        bool near = d.error <= allowed;
        if (near || !kinks) *worst = fmax(*worst, d.error / d.scale);
        if (near || (kinks && d.norm <= 0.6 * sqrt(tolerance(dtype)))) continue;
        int64_t first = 0, off = count_off(got->values[i], want->values[i], want->counts[i], allowed, &first);
        snprintf(
            sentence, room,
            "%s, %ld layers of %ld, %ld steps of %ld: %s of %s in %s is off by %g of %g, in norm by %g; %ld of %ld "
            "elements, first %ld",
            p->c.cell, (long)p->c.net.layers, (long)p->c.net.hidden, (long)p->c.steps, (long)p->c.batch, got->names[i],
            schedule, rcv_dtype_name(dtype), d.error, d.scale, d.norm, (long)off, (long)want->counts[i], (long)first);
        return false;
    }
    return true;
}

bool is_near(const problem *p, rcv_dtype dtype, const char *schedule, const results *got, const results *want,
             double *worst, char *sentence, size_t room) {
    return is_near_shaken(p, dtype, schedule, got, want, NULL, worst, sentence, room);
}

void compare(const problem *p, rcv_dtype dtype, const char *schedule, const results *got, const results *want,
             double *worst) {
    char sentence[512];
    if (!is_near(p, dtype, schedule, got, want, worst, sentence, sizeof sentence)) fail_msg("%s", sentence);
}

bool has_same_bits(const char *schedule, const results *a, const results *b, char *sentence, size_t room) {
    for (int i = 0; i < a->count; i++) {
        if (!memcmp(a->values[i], b->values[i], (size_t)a->counts[i] * sizeof(double))) continue;
        snprintf(sentence, room, "%s: %s differs from run to run", schedule, a->names[i]);
        return false;
    }
    return true;
}

void check_same_bits(const char *schedule, const results *a, const results *b) {
    char sentence[512];
    if (!has_same_bits(schedule, a, b, sentence, sizeof sentence)) fail_msg("%s", sentence);
}
