/* How far may a value be from the loop in double? Let M[t] = |a[t]| M[t-1] + |b[t]|, which is at least |h[t]|. A step rounds
 * a product and a sum, each by u = half an epsilon of values of at most M[t]; where time is cut, the chunk's product is
 * rounded once a step too, which counts as one more. So the error grows as e[t] = |a[t]| e[t-1] + 3 u M[t] + q, q being the
 * distance of the smallest numbers. Cut time may also lose a product that is no normal number, 2^20 of the least of them at
 * most, of any state before. What is stored is rounded once more, by half an epsilon of its own type. The same holds
 * backwards for what is carried there. */
#include "scan_cases.h"

#include <float.h>
#include <math.h>

/* ---- numbers ---- */

typedef struct {
    int digits, least; /* of a mantissa, with the leading one; the exponent of the last digit of the smallest numbers */
    double most;
} number_type;

static number_type type_of(rcv_dtype dtype) {
    switch (dtype) {
    case RCV_FLOAT64: return (number_type){53, -1074, DBL_MAX};
    case RCV_FLOAT32: return (number_type){24, -149, (double)FLT_MAX};
    case RCV_BFLOAT16: return (number_type){8, -133, 0x1.fep127};
    default: return (number_type){11, -24, 65504};
    }
}

static bool is_half(rcv_dtype dtype) { return dtype == RCV_BFLOAT16 || dtype == RCV_FLOAT16; }

/* As frexp says it, of a number that is normal in double: all numbers of 16-bit types are. */
static int exponent_of(uint64_t word) { return (int)(word >> 52 & 0x7ff) - 1022; }

static double epsilon(rcv_dtype dtype) { return ldexp(1, 1 - type_of(dtype).digits); }

static inline double rounded_to_half(double value, number_type type) {
    if (value == 0 || !isfinite(value)) return value;
    uint64_t word;
    memcpy(&word, &value, sizeof word);
    int exponent = exponent_of(word), unit = exponent - type.digits > type.least ? exponent - type.digits : type.least;
    double rounded;
    if (unit >
        type.least) { /* to nearest, ties to even, in the bits behind its last digit; a carry raises the exponent */
        int behind = 53 - type.digits;
        word += ((uint64_t)1 << (behind - 1)) - 1 + (word >> behind & 1);
        word = word >> behind << behind;
        memcpy(&rounded, &word, sizeof rounded);
    } else {
        rounded = ldexp(nearbyint(ldexp(value, -unit)), unit);
    }
    return fabs(rounded) > type.most ? copysign(INFINITY, value) : rounded;
}

double scan_rounded(double value, rcv_dtype dtype) {
    if (dtype == RCV_FLOAT64) return value;
    return dtype == RCV_FLOAT32 ? (double)(float)value : rounded_to_half(value, type_of(dtype));
}

static inline uint16_t half_of(double value, number_type type) {
    int bits = type.digits - 1, exponent;
    unsigned sign = signbit(value) ? 0x8000 : 0, ones = (0x7fffu >> bits) << bits;
    if (isnan(value)) return (uint16_t)(ones | 1u << (bits - 1));
    if (isinf(value)) return (uint16_t)(sign | ones);
    if (value == 0) return (uint16_t)sign;
    uint64_t word;
    memcpy(&word, &value, sizeof word);
    exponent = exponent_of(word);
    int unit = exponent - type.digits > type.least ? exponent - type.digits : type.least;
    if (unit > type.least) /* normal in its own type too: the mantissa's first digits as they are */
        return (uint16_t)(sign | ((unsigned)(unit - type.least + 1) << bits) | (unsigned)(word << 12 >> (64 - bits)));
    unsigned digits = (unsigned)ldexp(fabs(value), -unit);
    return (uint16_t)(sign | (digits + ((unsigned)(unit - type.least) << bits)));
}

static double of_half(uint16_t word, rcv_dtype dtype) {
    number_type type = type_of(dtype);
    int bits = type.digits - 1, exponent = (word & 0x7fff) >> bits;
    double value = word & ((1 << bits) - 1);
    if (exponent == 0x7fff >> bits)
        value = value != 0 ? NAN : INFINITY;
    else
        value = exponent ? ldexp(value + (1 << bits), type.least + exponent - 1) : ldexp(value, type.least);
    return word & 0x8000 ? -value : value;
}

/* All numbers of a 16-bit type, by their bits. */
static const double *half_table(rcv_dtype dtype) {
    static double tables[2][1 << 16];
    static bool made[2];
    int which = dtype == RCV_BFLOAT16;
    for (int i = 0; !made[which] && i < 1 << 16; i++) tables[which][i] = of_half((uint16_t)i, dtype);
    made[which] = true;
    return tables[which];
}

double scan_number(const void *array, size_t index, rcv_dtype dtype) {
    if (dtype == RCV_FLOAT64) return ((const double *)array)[index];
    if (dtype == RCV_FLOAT32) return (double)((const float *)array)[index];
    return half_table(dtype)[((const uint16_t *)array)[index]];
}

static void set_numbers(void *array, const double *from, size_t count, rcv_dtype dtype) {
    const number_type type = type_of(dtype);
    if (dtype == RCV_FLOAT64) memcpy(array, from, count * sizeof *from);
    for (size_t i = 0; dtype == RCV_FLOAT32 && i < count; i++) ((float *)array)[i] = (float)from[i];
    for (size_t i = 0; is_half(dtype) && i < count; i++) ((uint16_t *)array)[i] = half_of(from[i], type);
}

rcv_dtype scan_carry_dtype(rcv_dtype dtype) { return dtype == RCV_FLOAT64 ? RCV_FLOAT64 : RCV_FLOAT32; }

/* ---- cases ---- */

static uint64_t seed;

static double draw(void) { /* in [0, 1) */
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 11) * 0x1p-53;
}

static double draw_gate(scan_gates gates, int64_t step) {
    switch (gates) {
    case GATES_INSIDE: return 0.01 + 0.98 * draw();
    case GATES_NEAR_ONE: return 1 - draw() * 0x1p-6;
    case GATES_ONE: return 1;
    case GATES_ZERO: return draw() < 1.0 / 3 ? 0 : draw();
    case GATES_NEGATIVE: return 2 * draw() - 1;
    case GATES_ABOVE: return (draw() < 0.3 ? -1 : 1) * (1 + draw());
    case GATES_SINK: return 0x1p-12 * (0.5 + draw());
    default: return step / 600 % 2 ? 4 : 0.25;
    }
}

static double *draw_array(size_t count) {
    double *made = malloc(count * sizeof *made);
    assert_non_null(made);
    for (size_t i = 0; i < count; i++) made[i] = 2 * draw() - 1;
    return made;
}

static void round_array(double *array, size_t count, rcv_dtype dtype) {
    const number_type type = type_of(dtype);
    if (!array || dtype == RCV_FLOAT64) return;
    for (size_t i = 0; i < count; i++)
        array[i] = dtype == RCV_FLOAT32 ? (double)(float)array[i] : rounded_to_half(array[i], type);
}

/* Of a sequence's steps that there are none of, nothing may be used. */
static void poison_padding(const scan_case *self) {
    const rcv_scan_options *o = &self->options;
    for (int64_t t = 0; self->lengths && t < o->steps; t++) {
        for (int64_t s = 0; s < o->batch; s++) {
            for (int64_t i = (t * o->batch + s) * o->channels;
                 t >= self->lengths[s] && i < (t * o->batch + s + 1) * o->channels; i++)
                self->a[i] = self->b[i] = self->dh[i] = NAN;
        }
    }
}

scan_case scan_case_new(const rcv_scan_options *options, scan_gates gates, bool initial, uint64_t from) {
    scan_case made = {.options = *options};
    if (made.options.batch == 0) made.options.batch = 1;
    int64_t steps = options->steps, batch = made.options.batch;
    size_t states = (size_t)(batch * options->channels), elements = (size_t)steps * states;
    seed = from;
    made.a = draw_array(elements);
    made.b = draw_array(elements);
    made.dh = draw_array(elements);
    for (size_t i = 0; i < elements; i++) made.a[i] = draw_gate(gates, (int64_t)(i / states));
    for (size_t i = 0; gates == GATES_SINK && i < elements; i++) made.b[i] *= ldexp(1, -(int)(160 * draw()));
    made.dfinal = draw_array(states);
    if (initial) made.initial = draw_array(states);
    if (options->lengths) {
        made.lengths = malloc((size_t)batch * sizeof *made.lengths);
        assert_non_null(made.lengths);
        for (int64_t s = 0; s < batch; s++) made.lengths[s] = 1 + (int64_t)(draw() * (double)steps);
    }
    if (options->resets) {
        made.resets = malloc((size_t)(steps * batch));
        assert_non_null(made.resets);
        for (int64_t i = 0; i < steps * batch; i++) made.resets[i] = draw() < 0.02 ? 1 : 0;
    }
    round_array(made.a, elements, options->dtype);
    round_array(made.b, elements, options->dtype);
    round_array(made.dh, elements, options->dtype);
    round_array(made.initial, states, scan_carry_dtype(options->dtype));
    round_array(made.dfinal, states, scan_carry_dtype(options->dtype));
    poison_padding(&made);
    return made;
}

void scan_case_free(scan_case *self) {
    free(self->a);
    free(self->b);
    free(self->dh);
    free(self->initial);
    free(self->dfinal);
    free(self->lengths);
    free(self->resets);
}

/* ---- on a device ---- */

static void *upload(rcv_context *context, const char *device, const double *from, size_t count, rcv_dtype dtype) {
    size_t bytes = count * rcv_dtype_bytes(dtype);
    void *made = NULL;
    unsigned char *host = malloc(bytes);
    assert_non_null(host);
    if (!from) memset(host, 0x7b, bytes); /* to be overwritten */
    if (from) set_numbers(host, from, count, dtype);
    check_ok(rcv_memory_new(context, device, bytes, &made));
    check_ok(rcv_memory_write(device, made, host, bytes));
    free(host);
    return made;
}

static unsigned char *download(rcv_context *context, const char *device, void *from, size_t bytes) {
    unsigned char *made = malloc(bytes);
    assert_non_null(made);
    check_ok(rcv_memory_read(device, made, from, bytes));
    rcv_memory_free(context, device, from);
    return made;
}

scan_outcome scan_case_call(rcv_context *context, const scan_case *self, rcv_scan *scan) {
    const rcv_scan_options *o = &self->options;
    const char *device = o->device;
    rcv_dtype dtype = o->dtype, carry = scan_carry_dtype(dtype);
    size_t states = (size_t)(o->batch * o->channels), elements = (size_t)o->steps * states;
    void *a = upload(context, device, self->a, elements, dtype), *b = upload(context, device, self->b, elements, dtype);
    void *dh = upload(context, device, self->dh, elements, dtype);
    void *initial = self->initial ? upload(context, device, self->initial, states, carry) : NULL;
    void *dfinal = self->dfinal ? upload(context, device, self->dfinal, states, carry) : NULL;
    void *h = upload(context, device, NULL, elements, dtype), *da = upload(context, device, NULL, elements, dtype);
    void *db = upload(context, device, NULL, elements, dtype), *final = upload(context, device, NULL, states, carry);
    void *dinitial = upload(context, device, NULL, states, carry), *resets = NULL;
    if (self->resets) {
        check_ok(rcv_memory_new(context, device, (size_t)(o->steps * o->batch), &resets));
        check_ok(rcv_memory_write(device, resets, self->resets, (size_t)(o->steps * o->batch)));
    }
    rcv_scan_data data = RCV_INIT(rcv_scan_data, .a = a, .b = b, .initial = initial, .lengths = self->lengths,
                                  .resets = resets, .h = h, .final = final);
    rcv_scan_gradients gradients =
        RCV_INIT(rcv_scan_gradients, .dh = self->without_dh ? NULL : dh, .dfinal = dfinal,
                 .da = self->without_da ? NULL : da, .db = self->without_db ? NULL : db, .dinitial = dinitial);
    check_ok(rcv_scan_forward(scan, &data));
    check_ok(rcv_scan_backward(scan, &data, &gradients));
    check_ok(rcv_scan_wait(scan));
    size_t size = rcv_dtype_bytes(dtype), carry_size = rcv_dtype_bytes(carry);
    scan_outcome made = {.elements = elements, .states = states, .size = size, .carry = carry_size};
    made.h = download(context, device, h, elements * size);
    made.da = download(context, device, da, elements * size);
    made.db = download(context, device, db, elements * size);
    made.final = download(context, device, final, states * carry_size);
    made.dinitial = download(context, device, dinitial, states * carry_size);
    void *inputs[] = {a, b, dh, initial, dfinal, resets};
    for (size_t i = 0; i < sizeof inputs / sizeof *inputs; i++) rcv_memory_free(context, device, inputs[i]);
    return made;
}

scan_outcome scan_case_run(rcv_context *context, const scan_case *self, int64_t threads) {
    rcv_scan_options options = self->options;
    options.threads = threads;
    rcv_scan *scan = NULL;
    check_ok(rcv_scan_new(context, &options, &scan));
    if (options.form) assert_string_equal(rcv_scan_form(scan), options.form);
    scan_outcome made = scan_case_call(context, self, scan);
    rcv_scan_free(scan);
    return made;
}

void scan_outcome_free(scan_outcome *self) {
    free(self->h);
    free(self->da);
    free(self->db);
    free(self->final);
    free(self->dinitial);
}

bool scan_outcomes_equal(const scan_outcome *a, const scan_outcome *b) {
    return !memcmp(a->h, b->h, a->elements * a->size) && !memcmp(a->da, b->da, a->elements * a->size) &&
           !memcmp(a->db, b->db, a->elements * a->size) && !memcmp(a->final, b->final, a->states * a->carry) &&
           !memcmp(a->dinitial, b->dinitial, a->states * a->carry);
}

/* ---- against the loop in double ---- */

typedef struct {
    double value, error, sum; /* the number, what it may be off by, and M */
} bounded;

typedef struct {
    const scan_case *self;
    const scan_outcome *outcome;
    const char *what;
    rcv_dtype carry;
    bool cuts;            /* time is cut */
    double unit, quantum; /* u and q of the carries */
    double lost;          /* of M, what cut time may lose; 0 where it is not cut */
    double half_epsilon;  /* of the type that is stored, where that is not the carries' */
    double half_least;    /* half of the distance of its smallest numbers */
    double most;          /* the largest M so far */
    double carry_most;    /* the carries' largest number */
    const double *halves; /* numbers of the type that is stored, by their bits; NULL where it has more than 16 */
    int64_t step, sequence, channel;
} check;

static inline double bound_of(const check *at, bounded expected, rcv_dtype dtype) {
    double bound = expected.error + (at->cuts ? at->most * at->lost : 0);
    if (dtype != at->carry) bound += at->half_epsilon * (fabs(expected.value) + bound) + at->half_least;
    return bound;
}

/* Infinity, NaN, numbers beyond the largest one, and numbers that are wrong. */
static void compare_rare(const check *at, const char *name, double value, bounded expected, rcv_dtype dtype) {
    double reference = expected.value, most = type_of(dtype).most, bound = bound_of(at, expected, dtype);
    bool good = fabs(value - reference) <= bound;
    if (isnan(reference)) good = isnan(value);
    if (isinf(reference)) good = value == reference;
    if (isfinite(reference) && fabs(reference) + bound > most && value == copysign(INFINITY, reference)) good = true;
    if (good) return;
    const rcv_scan_options *o = &at->self->options;
    fail_msg("%s: %s of step %lld, sequence %lld, channel %lld is %.17g, not %.17g within %.3g (%s, %s, %lld x %lld x "
             "%lld%s%s%s%s)",
             at->what, name, (long long)at->step, (long long)at->sequence, (long long)at->channel, value, reference,
             bound, o->form ? o->form : "any form", rcv_dtype_name(o->dtype), (long long)o->steps, (long long)o->batch,
             (long long)o->channels, o->reverse ? ", reverse" : "", o->lengths ? ", lengths" : "",
             o->resets ? ", resets" : "", at->self->initial ? ", initial" : "");
}

static inline void compare(const check *at, const char *name, double value, bounded expected, rcv_dtype dtype) {
    if (isfinite(expected.value) && fabs(value - expected.value) <= bound_of(at, expected, dtype)) return;
    compare_rare(at, name, value, expected, dtype);
}

/* The index-th number of an array of the type that is stored. */
static inline double stored(const check *at, const void *array, size_t index) {
    return at->halves ? at->halves[((const uint16_t *)array)[index]]
                      : scan_number(array, index, at->self->options.dtype);
}

/* Carries that pass the largest number become infinite, as they do in their own type. */
static inline double saturated(const check *at, double value) {
    return fabs(value) > at->carry_most ? copysign(INFINITY, value) : value;
}

/* a c + b, rounded to the carries' type somehow. */
static inline bounded step(const check *at, double a, bounded c, double b) {
    bounded next = {.value = saturated(at, a * c.value + b), .sum = fabs(a) * c.sum + fabs(b)};
    next.error = fabs(a) * c.error + 3 * at->unit * next.sum + at->quantum;
    return next;
}

static inline size_t element(const check *at, int64_t t) {
    const rcv_scan_options *o = &at->self->options;
    return (size_t)((t * o->batch + at->sequence) * o->channels + at->channel);
}

static bounded exactly(double value) { return (bounded){.value = value, .sum = fabs(value)}; }

/* What is carried of one channel, and the largest M of it so far. */
typedef struct {
    bounded carry, sum;
    double most;
} column;

/* One sequence, step by step as its data lie in memory. Boundaries are between t - 1 and t. */
static bool boundary(const check *at, int64_t t, int64_t length) {
    const scan_case *self = at->self;
    return self->resets && t > 0 && t < length && self->resets[t * self->options.batch + at->sequence];
}

static bounded initial_of(const check *at, size_t state) {
    return exactly(at->self->initial ? at->self->initial[state] : 0);
}

static void check_final(check *at, const bounded *h, size_t state, int64_t last_step) {
    rcv_dtype dtype = at->self->options.dtype;
    compare(at, "final", scan_number(at->outcome->final, state, at->carry), *h, at->carry);
    if (dtype != at->carry) return;
    /* it is the very state of the last step */
    double last = scan_number(at->outcome->h, element(at, last_step), dtype);
    double final = scan_number(at->outcome->final, state, dtype);
    if (last != final && !(isnan(last) && isnan(final))) fail_msg("%s: final is %a, not %a", at->what, final, last);
}

static void check_forward(check *at, int64_t length, column *columns) {
    const scan_case *self = at->self;
    rcv_dtype dtype = self->options.dtype;
    bool reverse = self->options.reverse;
    int64_t channels = self->options.channels, t = 0;
    at->channel = 0;
    const size_t state = element(at, 0); /* of the first channel */
    for (int64_t c = 0; c < channels; c++) columns[c] = (column){.carry = initial_of(at, state + (size_t)c)};
    for (int64_t i = 0; i < length; i++) {
        t = at->step = reverse ? length - 1 - i : i;
        bool restarts = boundary(at, reverse ? t + 1 : t, length);
        at->channel = 0;
        for (size_t e = element(at, t); at->channel < channels; at->channel++, e++) {
            column *k = &columns[at->channel];
            if (restarts) k->carry = initial_of(at, state + (size_t)at->channel);
            k->carry = step(at, self->a[e], k->carry, self->b[e]);
            if (k->carry.sum > k->most) k->most = k->carry.sum;
            at->most = k->most;
            compare(at, "h", stored(at, at->outcome->h, e), k->carry, dtype);
        }
    }
    for (at->channel = 0; at->channel < channels; at->channel++) {
        at->most = columns[at->channel].most;
        check_final(at, &columns[at->channel].carry, state + (size_t)at->channel, t);
    }
}

/* With h as the forward call left it. */
static void check_backward(check *at, int64_t length, column *columns) {
    const scan_case *self = at->self;
    rcv_dtype dtype = self->options.dtype;
    bool reverse = self->options.reverse;
    int64_t channels = self->options.channels;
    at->channel = 0;
    const size_t state = element(at, 0);
    for (int64_t c = 0; c < channels; c++)
        columns[c] = (column){.carry = exactly(self->dfinal ? self->dfinal[state + (size_t)c] : 0), .sum = exactly(0)};
    for (int64_t i = 0; i < length; i++) {
        int64_t t = at->step = reverse ? i : length - 1 - i;
        bool ends = boundary(at, reverse ? t : t + 1, length); /* the boundaries around the step */
        bool starts = i == length - 1 || boundary(at, reverse ? t + 1 : t, length);
        at->channel = 0;
        size_t behind = starts ? 0 : element(at, reverse ? t + 1 : t - 1);
        for (size_t e = element(at, t); at->channel < channels; at->channel++, e++, behind++) {
            column *k = &columns[at->channel];
            if (ends) {
                k->sum = step(at, 1, k->sum, k->carry.value);
                k->sum.error += k->carry.error;
                k->carry = exactly(0);
            }
            bounded g = step(at, 1, k->carry, self->without_dh ? 0 : self->dh[e]);
            double before =
                starts ? initial_of(at, state + (size_t)at->channel).value : stored(at, at->outcome->h, behind);
            bounded da = step(at, before, g, 0);
            at->most = k->most;
            if (!self->without_db) compare(at, "db", stored(at, at->outcome->db, e), g, dtype);
            if (!self->without_da) compare(at, "da", stored(at, at->outcome->da, e), da, dtype);
            k->carry = step(at, self->a[e], g, 0);
            if (g.sum > k->most) k->most = g.sum;
        }
    }
    for (at->channel = 0; at->channel < channels; at->channel++) {
        column *k = &columns[at->channel];
        size_t channel_state = state + (size_t)at->channel;
        double last = k->carry.error;
        k->carry = step(at, 1, k->sum, k->carry.value);
        k->carry.error += last;
        at->most = k->most;
        compare(at, "dinitial", scan_number(at->outcome->dinitial, channel_state, at->carry), k->carry, at->carry);
    }
}

static void check_zeros(check *at, int64_t length) {
    const unsigned char *arrays[] = {at->outcome->h, at->self->without_da ? NULL : at->outcome->da,
                                     at->self->without_db ? NULL : at->outcome->db};
    const char *names[] = {"h", "da", "db"};
    for (at->step = length; at->step < at->self->options.steps; at->step++) {
        for (int i = 0; i < 3; i++) {
            double value = arrays[i] ? scan_number(arrays[i], element(at, at->step), at->self->options.dtype) : 0;
            if (value != 0) fail_msg("%s: %s past the end is %g", at->what, names[i], value);
        }
    }
}

void scan_case_check(const scan_case *self, const scan_outcome *outcome, const char *what) {
    const rcv_scan_options *o = &self->options;
    rcv_dtype carry = scan_carry_dtype(o->dtype);
    check at = {.self = self,
                .outcome = outcome,
                .what = what,
                .carry = carry,
                .cuts =
                    !o->form || !strcmp(o->form, "chained") || !strcmp(o->form, "three") || !strcmp(o->form, "waves"),
                .unit = epsilon(carry) / 2,
                .quantum = ldexp(1, type_of(carry).least),
                .lost = ldexp(1, carry == RCV_FLOAT64 ? -1002 : -106),
                .half_epsilon = epsilon(o->dtype) / 2,
                .half_least = ldexp(1, type_of(o->dtype).least - 1),
                .carry_most = type_of(carry).most,
                .halves = is_half(o->dtype) ? half_table(o->dtype) : NULL};
    column *columns = malloc((size_t)o->channels * sizeof *columns);
    assert_non_null(columns);
    for (at.sequence = 0; at.sequence < o->batch; at.sequence++) {
        int64_t length = self->lengths ? self->lengths[at.sequence] : o->steps;
        check_forward(&at, length, columns);
        check_backward(&at, length, columns);
        for (at.channel = 0; at.channel < o->channels; at.channel++) check_zeros(&at, length);
    }
    free(columns);
}

/* ---- overflow on the way ---- */

void scan_check_overflow(rcv_context *context, const rcv_scan_options *options, int64_t at, int64_t threads) {
    static const double first[] = {0x1p120, 0, INFINITY, INFINITY, 0x1p100};
    static const double expected[] = {INFINITY, 0, NAN, INFINITY, 0x1p-80};
    const char *form = options->form ? options->form : "any form";
    const int64_t n = options->channels;
    for (int kind = 0; kind < 5; kind++) {
        scan_case made = scan_case_new(options, GATES_ONE, true, 5);
        double *a = made.a + n * at;
        for (int64_t i = 0; i < options->steps * n; i++) made.b[i] = 0;
        made.initial[0] = first[kind];
        if (kind == 0) a[0] = 0x1p20, a[n] = 0x1p-20; /* infinite, and stays so */
        if (kind == 1) a[0] = a[2 * n] = 0x1p120;     /* an infinite product times zero */
        if (kind == 2) a[0] = 0;                      /* NaN from there on */
        if (kind == 3) a[0] = a[10 * n] = 0x1p-100;   /* a product of zero times infinity */
        if (kind == 4) a[0] = a[10 * n] = 0x1p-90;    /* a small product times a large state */
        scan_outcome outcome = scan_case_run(context, &made, threads);
        for (int64_t t = 0; t < options->steps; t++) {
            double h = scan_number(outcome.h, (size_t)(n * t), RCV_FLOAT32);
            double beside = scan_number(outcome.h, (size_t)(n * t + 1), RCV_FLOAT32);
            if (beside != made.initial[1])
                fail_msg("%s, kind %d, step %lld: %a beside", form, kind, (long long)t, beside);
            bool good = isnan(expected[kind]) ? isnan(h) : h == expected[kind];
            if (t > at + 10 && !good)
                fail_msg("%s, kind %d: h of step %lld is %a, not %a", form, kind, (long long)t, h, expected[kind]);
        }
        scan_outcome_free(&outcome);
        scan_case_free(&made);
    }
}
