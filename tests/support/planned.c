#include "planned.h"

#include "recurve_bench.h"

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
    return RCV_INIT(rcv_plan_options, .steps = p->most_steps ? p->most_steps : p->c.steps,
                    .batch = p->most_batch ? p->most_batch : p->c.batch, .dtype = dtype, .training = training,
                    .lengths = p->c.lengths, .resets = p->c.resets, .schedule = schedule, .device = p->device,
                    .data = p->data_type, .states = p->state_type, .batch_major = p->batch_major,
                    .separate_parameters = p->separate, .device_lengths = p->device_lengths,
                    .parameters = p->parameter_type, .gradients = p->gradient_type);
}

/* ---- data ---- */

enum { GUARD = 512, GUARD_BYTE = 0xa5 }; /* bytes behind a tensor in a GPU's memory */

static size_t guard_of(const problem *p) { return p->device ? GUARD : 0; } /* of the CPU's, a sanitizer takes care */
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

/* The type of arrays of parameters in a plan of this type, and of others that declare none. */
static rcv_dtype plain_type(rcv_dtype dtype) { return dtype == RCV_FLOAT64 ? RCV_FLOAT64 : RCV_FLOAT32; }

static rcv_dtype declared_type(rcv_array_type declared, rcv_dtype dtype) {
    return declared ? (rcv_dtype)(declared - 1) : plain_type(dtype);
}

static float float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

double round_to(rcv_dtype dtype, double value) {
    float single = (float)value;
    if (dtype == RCV_FLOAT64 || !isfinite(single)) return value;
    if (dtype == RCV_FLOAT32) return (double)single;
    int exponent, bits = dtype == RCV_BFLOAT16 ? 8 : dtype == RCV_FLOAT16 ? 11 : 24;
    frexp(value, &exponent);
    if (dtype == RCV_FLOAT16 && exponent < -13) exponent = -13; /* subnormal numbers are multiples of 2^-24 */
    return ldexp(rint(ldexp(value, bits - exponent)), exponent - bits);
}

/* Of numbers that the type has. */
static uint16_t half_of(rcv_dtype dtype, double value) {
    uint32_t bits;
    float single = (float)value;
    memcpy(&bits, &single, sizeof bits);
    if (dtype == RCV_BFLOAT16) return (uint16_t)(bits >> 16);
    if (isnan(value)) return 0x7e00;
    if (fabs(value) < 0x1p-14) return (uint16_t)((bits >> 16 & 0x8000) | (uint32_t)ldexp(fabs(value), 24));
    return (uint16_t)((bits >> 16 & 0x8000) | ((bits & 0x7fffffff) - (112u << 23)) >> 13);
}

static double value_of(rcv_dtype dtype, uint16_t half) {
    if (dtype == RCV_BFLOAT16) return (double)float_of((uint32_t)half << 16);
    int exponent = half >> 10 & 31, fraction = half & 1023;
    double magnitude = exponent == 31  ? (fraction ? NAN : INFINITY)
                       : exponent == 0 ? ldexp(fraction, -24)
                                       : ldexp(1024 + fraction, exponent - 25);
    return half & 0x8000 ? -magnitude : magnitude;
}

/* Where row t * batch + b of batch-major data lies; rows: 0 for what has no order of steps. */
static int64_t row_at(const problem *p, bool by_step, int64_t row) {
    int64_t batch = p->c.batch;
    return by_step && p->batch_major ? row % batch * p->c.steps + row / batch : row;
}

/* An array of the caller: its elements, their type, and those of a row of data, which has an order of steps; 0: of what has none. */
typedef struct {
    int64_t count;
    rcv_dtype dtype;
    int64_t row;
} layout;

/* The values as the caller's array has them; of none, poison. */
static void *as_array(const problem *p, layout l, const double *values) {
    char *copy = new_bytes((size_t)l.count * rcv_dtype_bytes(l.dtype));
    for (int64_t i = 0; i < l.count; i++) {
        double value = values ? round_to(l.dtype, values[i]) : NAN;
        int64_t at = l.row ? row_at(p, true, i / l.row) * l.row + i % l.row : i;
        if (l.dtype == RCV_FLOAT64)
            ((double *)(void *)copy)[at] = value;
        else if (l.dtype == RCV_FLOAT32)
            ((float *)(void *)copy)[at] = (float)value;
        else
            ((uint16_t *)(void *)copy)[at] = half_of(l.dtype, value);
    }
    return copy;
}

static void *put(const data *d, layout l, const double *values) {
    void *copy = as_array(d->p, l, values);
    void *memory = put_bytes(d->p, copy, (size_t)l.count * rcv_dtype_bytes(l.dtype));
    free(copy);
    return memory;
}

static void take_input(const data *d, void *memory, layout l, const double *values, const char *what) {
    size_t bytes = (size_t)l.count * rcv_dtype_bytes(l.dtype);
    void *was = as_array(d->p, l, values), *is = take_bytes(d->p, memory, bytes, what);
    if (memcmp(was, is, bytes)) fail_msg("a call wrote to its input %s", what);
    free(was);
    free(is);
}

static void take_output(const data *d, void *memory, layout l, const char *what, results *r) {
    void *values = take_bytes(d->p, memory, (size_t)l.count * rcv_dtype_bytes(l.dtype), what);
    if (r) {
        double *wide = new_bytes((size_t)l.count * sizeof *wide);
        for (int64_t i = 0; i < l.count; i++) {
            int64_t at = l.row ? row_at(d->p, true, i / l.row) * l.row + i % l.row : i;
            wide[i] = l.dtype == RCV_FLOAT64   ? ((double *)values)[at]
                      : l.dtype == RCV_FLOAT32 ? (double)((float *)values)[at]
                                               : value_of(l.dtype, ((uint16_t *)values)[at]);
        }
        r->names[r->count] = what;
        r->values[r->count] = wide;
        r->counts[r->count++] = l.count;
    }
    free(values);
}

static layout of_parameters(const data *d) { return (layout){d->p->parameter_count, d->parameter_dtype, 0}; }
static layout of_gradients(const data *d) { return (layout){d->p->parameter_count, d->gradient_dtype, 0}; }
static layout of_x(const data *d) { return (layout){d->p->x_count, d->data_dtype, d->p->c.net.input}; }
static layout of_y(const data *d) { return (layout){d->p->y_count, d->data_dtype, rcv_net_output(d->p->net)}; }
static layout of_state(const data *d, size_t s) { return (layout){d->p->state_counts[s], d->state_dtype, 0}; }

static uint8_t *put_resets(const problem *p) {
    int64_t rows = p->c.steps * p->c.batch;
    uint8_t *copy = new_bytes((size_t)rows);
    for (int64_t i = 0; i < rows; i++) copy[row_at(p, true, i)] = p->resets[i];
    void *memory = put_bytes(p, copy, (size_t)rows);
    free(copy);
    return memory;
}

/* The lengths as a plan takes them that does not check them: those that are the most, or the least, may lie outside. */
static int64_t *unchecked_lengths(const problem *p) {
    int64_t *lengths = new_bytes((size_t)p->c.batch * sizeof *lengths);
    for (int64_t b = 0; b < p->c.batch; b++) {
        lengths[b] = p->lengths[b];
        if (lengths[b] == p->c.steps) lengths[b] += b % 3 == 2 ? INT64_MAX / 2 : b % 3;
        if (lengths[b] == 1 && p->c.steps > 1) lengths[b] -= b % 3 == 2 ? INT64_MAX / 2 : b % 3;
    }
    return lengths;
}

static void put_lengths(data *d) {
    const problem *p = d->p;
    if (!p->device_lengths) return;
    int64_t *lengths = unchecked_lengths(p);
    d->lengths = put_bytes(p, lengths, (size_t)p->c.batch * sizeof *lengths);
    free(lengths);
}

static void take_lengths(data *d) {
    size_t bytes = (size_t)d->p->c.batch * sizeof *d->lengths;
    if (!d->lengths) return;
    int64_t *was = unchecked_lengths(d->p), *is = take_bytes(d->p, d->lengths, bytes, "lengths");
    if (memcmp(was, is, bytes)) fail_msg("a call wrote to its lengths");
    free(was);
    free(is);
}

void drop(results *r) {
    for (int i = 0; i < r->count; i++) free(r->values[i]);
    r->count = 0;
}

/* ---- separate tensors ---- */

/* Elements before a tensor in its block: on the CPU tensors begin at any element, on a GPU at any 16 bytes. */
static int64_t shift_of(const data *d, size_t tensor, rcv_dtype dtype) {
    return (int64_t)(tensor % 3) * (d->p->device ? 16 / (int64_t)rcv_dtype_bytes(dtype) : 1);
}

static layout of_block(const data *d, size_t tensor, rcv_dtype dtype) {
    return (layout){shift_of(d, tensor, dtype) + rcv_net_parameter(d->p->net, tensor)->count, dtype, 0};
}

/* Zeros, then the values of a tensor (NULL: poison). */
static double *shifted(const data *d, size_t tensor, rcv_dtype dtype, const double *values) {
    int64_t shift = shift_of(d, tensor, dtype), count = rcv_net_parameter(d->p->net, tensor)->count;
    double *block = new_bytes((size_t)(shift + count) * sizeof *block);
    for (int64_t i = 0; i < shift + count; i++) block[i] = i < shift ? 0 : values ? values[i - shift] : NAN;
    return block;
}

static void *put_tensor(const data *d, size_t tensor, rcv_dtype dtype, const double *values, void **block) {
    double *wide = shifted(d, tensor, dtype, values);
    *block = put(d, of_block(d, tensor, dtype), wide);
    free(wide);
    return (char *)*block + (size_t)shift_of(d, tensor, dtype) * rcv_dtype_bytes(dtype);
}

static void open_tensors(data *d) {
    const problem *p = d->p;
    size_t count = rcv_net_parameter_count(p->net);
    void **tables = new_bytes(4 * count * sizeof *tables);
    d->tensors = tables;
    d->dtensors = tables + count;
    d->blocks = tables + 2 * count;
    d->dblocks = tables + 3 * count;
    for (size_t i = 0; i < count; i++) {
        const double *values = p->parameters + rcv_net_parameter(p->net, i)->offset;
        d->tensors[i] = put_tensor(d, i, d->parameter_dtype, values, &d->blocks[i]);
        d->dtensors[i] = put_tensor(d, i, d->gradient_dtype, NULL, &d->dblocks[i]);
    }
}

static void close_tensors(data *d, results *r) {
    const problem *p = d->p;
    double *all = new_bytes((size_t)(p->parameter_count + 1) * sizeof *all);
    for (size_t i = 0; i < rcv_net_parameter_count(p->net); i++) {
        const rcv_parameter *parameter = rcv_net_parameter(p->net, i);
        int64_t shift = shift_of(d, i, d->gradient_dtype);
        double *was = shifted(d, i, d->parameter_dtype, p->parameters + parameter->offset);
        take_input(d, d->blocks[i], of_block(d, i, d->parameter_dtype), was, parameter->name);
        free(was);
        results one = {.count = 0};
        take_output(d, d->dblocks[i], of_block(d, i, d->gradient_dtype), parameter->name, &one);
        for (int64_t k = 0; k < shift; k++) assert_true(one.values[0][k] == 0); /* nothing is written before it */
        memcpy(all + parameter->offset, one.values[0] + shift, (size_t)parameter->count * sizeof *all);
        drop(&one);
    }
    free(d->tensors);
    if (r) {
        r->names[r->count] = "dparameters";
        r->values[r->count] = all;
        r->counts[r->count++] = p->parameter_count;
    } else {
        free(all);
    }
}

void open_data(data *d, const problem *p, rcv_dtype dtype) {
    *d = (data){.p = p,
                .dtype = dtype,
                .data_dtype = declared_type(p->data_type, dtype),
                .state_dtype = declared_type(p->state_type, dtype),
                .parameter_dtype = declared_type(p->parameter_type, dtype),
                .gradient_dtype = declared_type(p->gradient_type, dtype)};
    if (p->separate)
        open_tensors(d);
    else
        d->parameters = put(d, of_parameters(d), p->parameters);
    d->x = put(d, of_x(d), p->x);
    d->dy = put(d, of_y(d), p->dy);
    d->y = put(d, of_y(d), NULL);
    d->dx = put(d, of_x(d), NULL);
    if (!p->separate) d->dparameters = put(d, of_gradients(d), NULL);
    for (size_t s = 0; s < p->states; s++) {
        d->initial[s] = put(d, of_state(d, s), p->initial[s]);
        d->dfinal[s] = put(d, of_state(d, s), p->dfinal[s]);
        d->final[s] = put(d, of_state(d, s), NULL);
        d->dinitial[s] = put(d, of_state(d, s), NULL);
        d->again[s] = put(d, of_state(d, s), p->again[s]);
        d->dagain[s] = put(d, of_state(d, s), NULL);
    }
    d->resets = put_resets(p);
    put_lengths(d);
    d->forward = RCV_INIT(rcv_forward, .parameters = d->parameters, .x = d->x, .y = d->y,
                          .lengths = !p->c.lengths ? NULL
                                     : d->lengths  ? d->lengths
                                                   : p->lengths,
                          .resets = p->c.resets ? d->resets : NULL,
                          .initial = p->c.initial ? (const void *const *)d->initial : NULL,
                          .restart = p->restart ? (const void *const *)d->again : NULL, .final = d->final, .seed = 5,
                          .steps = p->c.steps, .batch = p->c.batch, .tensors = (const void *const *)d->tensors);
    d->backward = RCV_INIT(rcv_backward, .dy = d->dy, .dfinal = (const void *const *)d->dfinal, .dx = d->dx,
                           .dinitial = d->dinitial, .drestart = p->restart ? d->dagain : NULL,
                           .dparameters = d->dparameters, .dtensors = d->dtensors);
}

void close_data(data *d, bool training, results *r) {
    const problem *p = d->p;
    results *gradients = training ? r : NULL;
    if (r) r->count = 0;
    take_output(d, d->y, of_y(d), "y", r);
    for (size_t s = 0; s < p->states; s++) {
        take_output(d, d->final[s], of_state(d, s), "a final state", r);
        take_output(d, d->dinitial[s], of_state(d, s), "an initial state's gradient", gradients);
        take_output(d, d->dagain[s], of_state(d, s), "a restart state's gradient", p->restart ? gradients : NULL);
        take_input(d, d->initial[s], of_state(d, s), p->initial[s], "an initial state");
        take_input(d, d->again[s], of_state(d, s), p->again[s], "a restart state");
        take_input(d, d->dfinal[s], of_state(d, s), p->dfinal[s], "a final state's gradient");
    }
    take_output(d, d->dx, of_x(d), "dx", gradients);
    if (p->separate) {
        close_tensors(d, gradients);
    } else {
        take_output(d, d->dparameters, of_gradients(d), "dparameters", gradients);
        take_input(d, d->parameters, of_parameters(d), p->parameters, "parameters");
    }
    take_input(d, d->x, of_x(d), p->x, "x");
    take_input(d, d->dy, of_y(d), p->dy, "dy");
    take_lengths(d);
    free(take_bytes(p, d->resets, (size_t)(p->c.steps * p->c.batch), "resets"));
}

/* ---- runs ---- */

rcv_status call_at(data *d, rcv_run *run, bool training, int64_t steps, int64_t batch) {
    const rcv_forward whole = d->forward;
    int64_t *lengths = new_bytes((size_t)batch * sizeof *lengths);
    assert_true(steps <= whole.steps && batch <= whole.batch);
    for (int64_t b = 0; b < batch; b++) lengths[b] = d->p->lengths[b] < steps ? d->p->lengths[b] : steps;
    d->forward.steps = steps;
    d->forward.batch = batch;
    if (whole.lengths && !d->lengths) d->forward.lengths = lengths;
    rcv_status status = rcv_run_forward(run, &d->forward);
    if (!status && training) status = rcv_run_backward(run, &d->backward);
    if (!status) status = rcv_run_wait(run);
    d->forward = whole;
    free(lengths);
    return status;
}

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

bool lacks_openblas(const char *schedule) {
    return strstr(schedule, "blas") && rcv_openblas_open(&RCV_INIT(rcv_openblas));
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
    own.data_type = own.state_type = own.parameter_type = own.gradient_type = RCV_AS_PLAN;
    own.batch_major = false;
    own.separate = own.device_lengths = false;
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

/* The type with the fewest bits of the plan's and those of its arrays. */
static rcv_dtype coarsest(const problem *p, rcv_dtype dtype) {
    rcv_dtype types[] = {dtype, declared_type(p->data_type, dtype), declared_type(p->state_type, dtype),
                         declared_type(p->parameter_type, dtype), declared_type(p->gradient_type, dtype)};
    for (int i = 1; i < 5; i++) {
        if (tolerance(types[i]) > tolerance(types[0])) types[0] = types[i];
    }
    return types[0];
}

bool is_near_shaken(const problem *p, rcv_dtype plan_dtype, const char *schedule, const results *got,
                    const results *want, const results *shaken, double *worst, char *sentence, size_t room) {
    rcv_dtype dtype = coarsest(p, plan_dtype);
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
            schedule, rcv_dtype_name(plan_dtype), d.error, d.scale, d.norm, (long)off, (long)want->counts[i],
            (long)first);
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
