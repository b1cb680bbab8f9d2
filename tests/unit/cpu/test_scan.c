/* Tests of linear recurrences: every form and type against a plain loop, the same bits with any number of threads, and overflow and NaN
 * as in that loop. */
#include "recurve_bench.h"
#include "sample.h"
#include "scan_cases.h"

#include <math.h>

static const char *const forms[] = {"serial", "channels", "guessed", "chained", "three", NULL};
static const rcv_dtype dtypes[] = {RCV_FLOAT32, RCV_FLOAT64, RCV_BFLOAT16, RCV_FLOAT16};
enum { FORMS = 6, TYPES = 4, COMPOSES = 3 /* and the form after it */ };

/* Builds with a sanitizer run every n-th case of a loop, because the thread sanitizer is a hundred times slower. n has no divisor in
 * common with the numbers of forms, types, shapes and options, so that the cases are spread over all of these. */
#if defined __SANITIZE_THREAD__
enum { EVERY = 23 };
#elif defined __SANITIZE_ADDRESS__
enum { EVERY = 7 };
#else
enum { EVERY = 1 };
#endif
static bool is_left_out(uint64_t number) { return number % EVERY != 0; }

typedef struct {
    int64_t steps, batch, channels;
} shape;

static rcv_scan_options options_of(shape shape, const char *form, rcv_dtype dtype) {
    return RCV_INIT(rcv_scan_options, .steps = shape.steps, .batch = shape.batch, .channels = shape.channels,
                    .form = form, .dtype = dtype);
}

static void check_case(rcv_context *context, const rcv_scan_options *options, scan_gates gates, bool initial,
                       uint64_t seed, const char *what) {
    scan_case made = scan_case_new(options, gates, initial, seed);
    scan_outcome outcome = scan_case_run(context, &made, 1 + (int64_t)(seed % 3));
    scan_case_check(&made, &outcome, what);
    scan_outcome_free(&outcome);
    scan_case_free(&made);
}

/* ---- values ---- */

static void every_option(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    static const shape shapes[] = {{2311, 1, 3}, {37, 5, 17}, {150, 1, 1000}, {61, 70, 1}, {301, 3, 32}, {2, 3, 5}};
    uint64_t seed = 1;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        for (int form = 0; form < FORMS; form++) {
            for (int bits = 0; bits < TYPES * 16; bits++, seed++) {
                if (is_left_out(seed)) continue;
                rcv_scan_options options = options_of(shapes[s], forms[form], dtypes[bits / 16]);
                options.reverse = bits & 1;
                options.lengths = bits & 2;
                options.resets = bits & 4;
                check_case(context, &options, GATES_INSIDE, bits & 8, seed, "options");
            }
        }
    }
    test_context_end(&counter, context);
}

static void every_shape(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    static const int64_t steps[] = {1, 2, 3, 7, 64, 131}, channels[] = {1, 3, 17, 32, 128, 1000};
    uint64_t seed = 1000;
    for (int i = 0; i < 6 * 6 * FORMS * TYPES; i++, seed++) {
        if (is_left_out(seed)) continue;
        shape shape = {steps[i % 6], seed % 3, channels[i / 6 % 6]};
        rcv_scan_options options = options_of(shape, forms[i / 36 % FORMS], dtypes[i / 36 / FORMS]);
        options.reverse = i & 1;
        check_case(context, &options, GATES_NEGATIVE, i & 2, seed, "shape");
    }
    /* Many chunks of time, and more than one vector of registers. */
    static const shape long_ones[] = {{20011, 1, 1}, {5003, 2, 7}, {3001, 1, 128}, {700, 1, 1000}};
    for (int i = 0; i < 4 * FORMS * TYPES; i++, seed++) {
        if (is_left_out(seed)) continue;
        rcv_scan_options options = options_of(long_ones[i % 4], forms[i / 4 % FORMS], dtypes[i / 4 / FORMS]);
        options.reverse = i & 1;
        check_case(context, &options, GATES_NEAR_ONE, true, seed, "long");
    }
    test_context_end(&counter, context);
}

/* Overflow, zeros, products that become subnormal: every form gives the values of the loop. */
static void every_gate(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    static const shape shapes[] = {{3500, 1, 3}, {2600, 2, 9}, {3100, 1, 40}, {300, 1, 700}};
    uint64_t seed = 2000;
    for (int gates = 0; gates < GATES_COUNT; gates++) {
        for (int i = 0; i < 4 * FORMS * TYPES; i++, seed++) {
            if (is_left_out(seed)) continue;
            rcv_scan_options options = options_of(shapes[i % 4], forms[i / 4 % FORMS], dtypes[i / 4 / FORMS]);
            options.reverse = seed & 1;
            options.resets = i % 5 == 0;
            check_case(context, &options, (scan_gates)gates, true, seed, "gates");
        }
    }
    test_context_end(&counter, context);
}

/* States before and after an overflow in one step, or with a zero gate after it, where a composition would be wrong. */
static void overflow_within_a_chunk(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    for (int form = 0; form < FORMS; form++) {
        rcv_scan_options options = options_of((shape){4000, 1, 2}, forms[form], RCV_FLOAT32);
        scan_check_overflow(context, &options, 1500, 2);
    }
    test_context_end(&counter, context);
}

/* Subnormal states are kept: the sequential forms flush nothing. */
static void subnormal_states_are_kept(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    for (int form = 0; form < COMPOSES; form++) {
        rcv_scan_options options = options_of((shape){148, 1, 20}, forms[form], RCV_FLOAT32);
        scan_case made = scan_case_new(&options, GATES_ONE, true, 6);
        for (int i = 0; i < 148 * 20; i++) made.a[i] = 0.5, made.b[i] = 0;
        for (int c = 0; c < 20; c++) made.initial[c] = 1;
        scan_outcome outcome = scan_case_run(context, &made, 1);
        for (int t = 0; t < 148; t++)
            assert_true(scan_number(outcome.h, (size_t)t * 20, RCV_FLOAT32) == ldexp(1, -t - 1));
        scan_outcome_free(&outcome);
        scan_case_free(&made);
    }
    test_context_end(&counter, context);
}

/* NaN in a channel of a sequence: from there on that channel is NaN, and all others have the same bits as without it. */
static void nan_stays_in_its_channel(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    const int64_t steps = 2500, batch = 3, channels = 5, columns = batch * channels, at = 700, column = 7;
    for (int i = 0; i < FORMS * TYPES * 2; i++) {
        rcv_scan_options options =
            options_of((shape){steps, batch, channels}, forms[i % FORMS], dtypes[i / FORMS % TYPES]);
        options.reverse = i >= FORMS * TYPES;
        scan_case made = scan_case_new(&options, GATES_INSIDE, true, 7);
        scan_outcome clean = scan_case_run(context, &made, 2);
        (i & 1 ? made.a : made.b)[at * columns + column] = NAN;
        scan_outcome outcome = scan_case_run(context, &made, 2);
        for (int64_t e = 0; e < steps * columns; e++) {
            bool behind = options.reverse ? e / columns <= at : e / columns >= at;
            double h = scan_number(outcome.h, (size_t)e, options.dtype);
            if (e % columns == column && behind) {
                if (!isnan(h)) fail_msg("h of step %lld is %g", (long long)(e / columns), h);
            } else if (h != scan_number(clean.h, (size_t)e, options.dtype)) {
                fail_msg("h of step %lld, column %lld is %g", (long long)(e / columns), (long long)(e % columns), h);
            }
            if (e % columns != column)
                assert_true(scan_number(outcome.da, (size_t)e, options.dtype) ==
                            scan_number(clean.da, (size_t)e, options.dtype));
        }
        scan_case_check(&made, &outcome, "NaN");
        scan_outcome_free(&clean);
        scan_outcome_free(&outcome);
        scan_case_free(&made);
    }
    test_context_end(&counter, context);
}

/* ---- bits ---- */

static void bits_do_not_depend_on_threads(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    static const shape shapes[] = {{9001, 1, 5}, {700, 3, 33}, {60, 2, 1000}, {17, 1, 3}};
    for (int i = 0; i < 4 * TYPES * 4 * (FORMS - 1); i++) {
        if (is_left_out((uint64_t)i)) continue;
        rcv_scan_options options = options_of(shapes[i % 4], forms[i / 64], dtypes[i / 4 % TYPES]);
        options.resets = i & 16;
        options.reverse = options.lengths = i & 32;
        scan_case made = scan_case_new(&options, GATES_NEGATIVE, true, (uint64_t)i);
        scan_outcome one = scan_case_run(context, &made, 1);
        for (int64_t threads = 2; threads <= 3; threads++) {
            rcv_scan *scan = NULL;
            options.threads = threads;
            check_ok(rcv_scan_new(context, &options, &scan));
            for (int call = 0; call < 2; call++) {
                scan_outcome many = scan_case_call(context, &made, scan);
                if (!scan_outcomes_equal(&one, &many))
                    fail_msg("%s, %s: other bits by %d threads, call %d", options.form, rcv_dtype_name(options.dtype),
                             (int)threads, call);
                scan_outcome_free(&many);
            }
            rcv_scan_free(scan);
        }
        scan_outcome_free(&one);
        scan_case_free(&made);
    }
    test_context_end(&counter, context);
}

/* All sequential forms give the same bits, and so do all forms that compose. */
static void forms_agree(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    const shape wide = {61, 4, 37}, deep = {2301, 2, 3};
    for (int i = 0; i < 2 * TYPES * 2; i++) {
        int first = i / 2 / TYPES ? COMPOSES : 0;
        scan_outcome outcomes[2];
        for (int form = first; form < first + 2; form++) {
            rcv_scan_options options = options_of(i & 1 ? wide : deep, forms[form], dtypes[i / 2 % TYPES]);
            options.resets = i & 1;
            scan_case made = scan_case_new(&options, i & 1 ? GATES_NEGATIVE : GATES_NEAR_ONE, true, 9);
            outcomes[form - first] = scan_case_run(context, &made, 2);
            scan_case_free(&made);
        }
        assert_true(scan_outcomes_equal(&outcomes[0], &outcomes[1]));
        scan_outcome_free(&outcomes[0]);
        scan_outcome_free(&outcomes[1]);
    }
    test_context_end(&counter, context);
}

/* The form "guessed" gives the bits of the sequential recurrence, whether gates forget the guess soon, late or never, except for what
 * resets add to dinitial. */
static void guessed_form_gives_serial_bits(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    static const shape shapes[] = {{9001, 1, 5}, {2311, 3, 17}, {317, 1, 331}, {1203, 41, 1}};
    for (int i = 0; i < 4 * GATES_COUNT * TYPES * 2; i++) {
        if (is_left_out((uint64_t)i)) continue;
        rcv_scan_options options = options_of(shapes[i % 4], "channels", dtypes[i / 4 % TYPES]);
        int mixed = i / 4 / TYPES + i; /* so that every shape and type is tested with all of them */
        options.reverse = mixed & 1;
        options.lengths = mixed & 2;
        options.resets = mixed & 4;
        scan_case made = scan_case_new(&options, (scan_gates)(i / 8 / TYPES), i & 1, (uint64_t)i);
        scan_outcome loop = scan_case_run(context, &made, 1);
        made.options.form = "guessed";
        for (int64_t threads = 2; threads <= 4; threads++) {
            scan_outcome guessed = scan_case_run(context, &made, threads);
            if (threads == 2) scan_case_check(&made, &guessed, "guessed");
            if (options.resets) memcpy(guessed.dinitial, loop.dinitial, loop.states * loop.carry);
            if (!scan_outcomes_equal(&loop, &guessed))
                fail_msg("case %d: other bits where %d threads guess", i, (int)threads);
            scan_outcome_free(&guessed);
        }
        scan_outcome_free(&loop);
        scan_case_free(&made);
    }
    test_context_end(&counter, context);
}

/* One channel that never forgets, one of another sequence that has ended, and all others, which forget at once. */
static void guesses_are_corrected_where_needed(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    const int64_t steps = 1501, batch = 2, channels = 37, columns = batch * channels;
    for (int64_t column = 0; column < columns; column += 9) {
        for (int reverse = 0; reverse < 2; reverse++) {
            rcv_scan_options options = options_of((shape){steps, batch, channels}, "channels", RCV_FLOAT32);
            options.reverse = reverse;
            options.lengths = true;
            scan_case made = scan_case_new(&options, GATES_ZERO, true, (uint64_t)column);
            made.lengths[column / channels] = steps;
            made.lengths[1 - column / channels] = 1 + column * 20;
            for (int64_t i = 0; i < steps * columns; i++) {
                bool inside = i / columns < made.lengths[i % columns / channels];
                made.a[i] = inside ? (i % columns == column ? 1 : i / columns % 3 == 0 ? 0 : 0.5) : NAN;
                made.b[i] = made.dh[i] = inside ? (double)(i % 7) : NAN;
            }
            scan_outcome loop = scan_case_run(context, &made, 1);
            made.options.form = "guessed";
            scan_outcome guessed = scan_case_run(context, &made, 3);
            assert_true(scan_outcomes_equal(&loop, &guessed));
            scan_outcome_free(&loop);
            scan_outcome_free(&guessed);
            scan_case_free(&made);
        }
    }
    test_context_end(&counter, context);
}

/* A case of steps first .. end - 1 alone, with these initial and final states. */
static scan_case part_of(const scan_case *whole, int64_t first, int64_t end) {
    rcv_scan_options options = whole->options;
    options.steps = end - first;
    scan_case made = scan_case_new(&options, GATES_ONE, true, 1);
    size_t states = (size_t)(options.batch * options.channels), count = (size_t)options.steps * states;
    double *to[] = {made.a, made.b, made.dh};
    const double *from[] = {whole->a, whole->b, whole->dh};
    for (int i = 0; i < 3; i++) memcpy(to[i], from[i] + (size_t)first * states, count * sizeof(double));
    memcpy(made.initial, whole->initial, states * sizeof(double));
    memcpy(made.dfinal, whole->dfinal, states * sizeof(double));
    if (made.resets)
        memcpy(made.resets, whole->resets + first * options.batch, (size_t)(options.steps * options.batch));
    return made;
}

/* Two calls, the second from the final state of the first, have the bits of one call. */
static void calls_can_be_split(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    for (int i = 0; i < COMPOSES * TYPES * 2; i++) {
        rcv_scan_options options = options_of((shape){301, 2, 23}, forms[i / 2 / TYPES], dtypes[i / 2 % TYPES]);
        options.reverse = i & 1;
        rcv_dtype dtype = options.dtype, carry = scan_carry_dtype(dtype);
        const int64_t cut = 133;
        size_t states = 46;
        scan_case whole = scan_case_new(&options, GATES_NEGATIVE, true, 11);
        scan_outcome all = scan_case_run(context, &whole, 2);
        scan_case low = part_of(&whole, 0, cut), high = part_of(&whole, cut, 301);
        scan_case *first = options.reverse ? &high : &low, *second = options.reverse ? &low : &high;
        scan_outcome one = scan_case_run(context, first, 2);
        for (size_t s = 0; s < states; s++) second->initial[s] = scan_number(one.final, s, carry);
        scan_outcome two = scan_case_run(context, second, 2);
        scan_outcome_free(&one);
        for (size_t s = 0; s < states; s++) first->dfinal[s] = scan_number(two.dinitial, s, carry);
        one = scan_case_run(context, first, 2);
        size_t at = (size_t)cut * states * all.size, rest = (301 - (size_t)cut) * states * all.size;
        const scan_outcome *early = options.reverse ? &two : &one, *late = options.reverse ? &one : &two;
        assert_memory_equal(all.h, early->h, at);
        assert_memory_equal(all.h + at, late->h, rest);
        assert_memory_equal(all.db, early->db, at);
        assert_memory_equal(all.db + at, late->db, rest);
        assert_memory_equal(all.final, two.final, states * all.carry);
        assert_memory_equal(all.dinitial, one.dinitial, states * all.carry);
        if (dtype == carry) { /* otherwise the single call reads the rounded state at the division */
            assert_memory_equal(all.da, early->da, at);
            assert_memory_equal(all.da + at, late->da, rest);
        }
        scan_outcome_free(&all);
        scan_outcome_free(&one);
        scan_outcome_free(&two);
        scan_case_free(&whole);
        scan_case_free(&low);
        scan_case_free(&high);
    }
    test_context_end(&counter, context);
}

/* ---- gradients ---- */

/* The loss sum(dh h) + sum(dfinal final), and the sum of its terms' magnitudes. */
static double loss_of(rcv_context *context, const scan_case *self, double *magnitude) {
    scan_outcome outcome = scan_case_run(context, self, 1);
    double loss = *magnitude = 0;
    for (size_t i = 0; i < outcome.elements; i++) {
        double h = scan_number(outcome.h, i, RCV_FLOAT64);
        if (h == 0) continue; /* past the end dh is NaN */
        loss += self->dh[i] * h;
        *magnitude += fabs(self->dh[i] * h);
    }
    for (size_t i = 0; i < outcome.states; i++) {
        loss += self->dfinal[i] * scan_number(outcome.final, i, RCV_FLOAT64);
        *magnitude += fabs(self->dfinal[i] * scan_number(outcome.final, i, RCV_FLOAT64));
    }
    scan_outcome_free(&outcome);
    return loss;
}

/* The loss is linear in each number, so differences are exact up to the rounding errors of a few hundred operations on terms of this
 * magnitude, divided by the distance. */
static void check_difference(rcv_context *context, const scan_case *self, double *number, double gradient) {
    const double distance = 0x1p-4, kept = *number;
    double above_sum, below_sum;
    *number = kept + distance;
    double above = loss_of(context, self, &above_sum);
    *number = kept - distance;
    double below = loss_of(context, self, &below_sum);
    *number = kept;
    double difference = (above - below) / (2 * distance), bound = 300 * 0x1p-53 * (above_sum + below_sum) / distance;
    if (!(fabs(difference - gradient) <= bound)) fail_msg("%.17g, not %.17g within %g", gradient, difference, bound);
}

static void gradients_are_differences(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    for (int i = 0; i < FORMS * 8; i++) {
        rcv_scan_options options = options_of((shape){19, 2, 2}, forms[i % FORMS], RCV_FLOAT64);
        options.reverse = i / FORMS & 1;
        options.lengths = i / FORMS & 2;
        options.resets = i / FORMS & 4;
        scan_case made = scan_case_new(&options, GATES_NEGATIVE, true, 13);
        for (int t = 0; made.resets && t < 19 * 2; t++) made.resets[t] = t % 7 == 3;
        scan_outcome outcome = scan_case_run(context, &made, 1);
        for (size_t e = 0; e < outcome.elements; e++) {
            if (isnan(made.a[e])) continue;
            check_difference(context, &made, &made.a[e], scan_number(outcome.da, e, RCV_FLOAT64));
            check_difference(context, &made, &made.b[e], scan_number(outcome.db, e, RCV_FLOAT64));
        }
        for (size_t s = 0; s < outcome.states; s++)
            check_difference(context, &made, &made.initial[s], scan_number(outcome.dinitial, s, RCV_FLOAT64));
        scan_outcome_free(&outcome);
        scan_case_free(&made);
    }
    test_context_end(&counter, context);
}

/* Inputs that are not given count as zeros, outputs that are not given are not written; all others keep their bits. */
static void gradients_may_be_left_out(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    for (int i = 0; i < FORMS * TYPES; i++) {
        rcv_scan_options options = options_of((shape){2100, 2, 9}, forms[i % FORMS], dtypes[i / FORMS]);
        options.resets = i & 1;
        scan_case made = scan_case_new(&options, GATES_INSIDE, true, 15);
        scan_outcome all = scan_case_run(context, &made, 2);
        made.without_da = true;
        scan_outcome without_da = scan_case_run(context, &made, 2);
        made.without_da = false;
        made.without_db = true;
        scan_outcome without_db = scan_case_run(context, &made, 2);
        assert_memory_equal(all.db, without_da.db, all.elements * all.size);
        assert_memory_equal(all.da, without_db.da, all.elements * all.size);
        assert_memory_equal(all.dinitial, without_da.dinitial, all.states * all.carry);
        for (size_t e = 0; e < all.elements * all.size; e++)
            assert_true(without_da.da[e] == 0x7b && without_db.db[e] == 0x7b);
        scan_outcome_free(&all);
        scan_outcome_free(&without_da);
        scan_outcome_free(&without_db);
        made.without_db = false;
        made.without_dh = true;
        scan_outcome without_dh = scan_case_run(context, &made, 2);
        scan_case_check(&made, &without_dh, "without dh");
        scan_outcome_free(&without_dh);
        made.without_dh = false;
        free(made.dfinal);
        made.dfinal = NULL;
        scan_outcome without_dfinal = scan_case_run(context, &made, 2);
        scan_case_check(&made, &without_dfinal, "without dfinal");
        scan_outcome_free(&without_dfinal);
        scan_case_free(&made);
    }
    test_context_end(&counter, context);
}

/* ---- kernels ---- */

static void every_set_of_kernels(void **state) {
    (void)state;
    for (size_t k = 0; k < rcv_kernels_count(); k++) {
        rcv_context_options choice = RCV_INIT(rcv_context_options, .kernels = rcv_kernels_name(k));
        rcv_context *context = NULL;
        check_ok(rcv_context_new(&choice, &context));
        for (int i = 0; i < 4 * TYPES * (FORMS - 1); i++) {
            if (is_left_out((uint64_t)i)) continue;
            bool wide = i / TYPES & 1;
            rcv_scan_options options =
                options_of((shape){wide ? 150 : 1500, 2, wide ? 331 : 11}, forms[i / TYPES / 4], dtypes[i % TYPES]);
            options.resets = i / TYPES & 2;
            check_case(context, &options, i & 1 ? GATES_SINK : GATES_NEGATIVE, true, (uint64_t)i, rcv_kernels_name(k));
        }
        rcv_context_free(context);
    }
}

/* Arrays that exceed the caches of most machines, in each type: results are written with non-temporal stores. */
static void non_temporal_stores(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    for (int i = 0; i < TYPES + 2; i++) {
        if (sample_is_partial() ? !sample_takes((size_t)i) : EVERY > 1 && i % 3) continue;
        const bool guessed = i >= TYPES;
        const rcv_dtype dtype = guessed ? dtypes[2 * (i - TYPES)] : dtypes[i];
        const int64_t channels = i & 1 ? 1000 : 128, bytes = (int64_t)34 << 20;
        const int64_t steps = bytes / (int64_t)rcv_dtype_bytes(dtype) / channels;
        const char *form = guessed ? "guessed" : i & 2 ? "chained" : NULL;
        rcv_scan_options options = options_of((shape){steps, 1, channels}, form, dtype);
        options.reverse = i & 1;
        check_case(context, &options, GATES_INSIDE, true, (uint64_t)(guessed ? 3 * i + 1 : i), "streamed");
    }
    test_context_end(&counter, context);
}

/* ---- errors ---- */

static void wrong_options(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    rcv_scan *scan = NULL;
    const rcv_scan_options good =
        RCV_INIT(rcv_scan_options, .steps = 3000, .channels = 4, .threads = 2, .form = "three", .resets = true);
    struct {
        rcv_scan_options options;
        const char *fragment;
    } wrong[] = {
        {{.steps = 0, .channels = 4}, "not 0 and 4"},
        {{.steps = -1, .channels = 4}, "not -1 and 4"},
        {{.steps = 3, .channels = 0}, "not 3 and 0"},
        {{.steps = 3, .channels = 4, .batch = -2}, "at least 0, not -2"},
        {{.steps = (int64_t)1 << 40, .channels = (int64_t)1 << 30}, "too large to be counted"},
        {{.steps = 1, .channels = (int64_t)1 << 40, .batch = (int64_t)1 << 40}, "too large to be counted"},
        {{.steps = (int64_t)1 << 60, .channels = 4}, "too large to be counted"},
        {{.steps = 3, .channels = 4, .dtype = RCV_INT32}, "not of int32"},
        {{.steps = 3, .channels = 4, .dtype = RCV_TFLOAT32}, "not of tfloat32"},
        {{.steps = 3, .channels = 4, .form = "parallel"},
         "no form 'parallel' of a scan; there are serial, channels, guessed, chained and three"},
        {{.steps = 3, .channels = 4, .threads = -1}, "1 to 1024, not -1"},
        {{.steps = 3, .channels = 4, .threads = 1025}, "1 to 1024, not 1025"},
        {{.steps = 3, .channels = 4, .device = "abacus"}, "abacus"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        wrong[i].options.size = sizeof wrong[i].options;
        check_fails(rcv_scan_new(context, &wrong[i].options, &scan), RCV_INVALID, wrong[i].fragment);
        assert_null(scan);
    }
    check_fails(rcv_scan_new(NULL, &good, &scan), RCV_INVALID, "not NULL");
    check_fails(rcv_scan_new(context, NULL, &scan), RCV_INVALID, "not NULL");
    check_fails(rcv_scan_new(context, &good, NULL), RCV_INVALID, "not NULL");
    size_t fired = 0;
    for (size_t at = 1;; at++) {
        counter.fail_at = at;
        rcv_status status = rcv_scan_new(context, &good, &scan);
        if (status == RCV_OK) break;
        assert_int_equal(status, RCV_NO_MEMORY);
        fired++;
        assert_null(scan);
        assert_non_null(strstr(rcv_message(), "no memory"));
        assert_int_equal(counter.live, 1);
    }
    assert_int_equal(counter.failed, fired);
    assert_int_equal(fired, 5);
    counter.fail_at = 0;
    assert_string_equal(rcv_scan_form(scan), "three");
    rcv_scan_free(scan);
    rcv_scan_free(NULL);
    assert_null(rcv_scan_form(NULL));
    test_context_end(&counter, context);
}

static void wrong_calls(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    rcv_scan *plain = NULL, *full = NULL;
    float a[12] = {0}, b[12] = {0}, h[12], da[12];
    int64_t lengths[2] = {3, 1};
    uint8_t resets[6] = {0};
    rcv_scan_options options = RCV_INIT(rcv_scan_options, .steps = 3, .batch = 2, .channels = 2);
    check_ok(rcv_scan_new(context, &options, &plain));
    options.lengths = options.resets = true;
    check_ok(rcv_scan_new(context, &options, &full));
    rcv_scan_data data = RCV_INIT(rcv_scan_data, .a = a, .b = b, .h = h),
                  ragged = RCV_INIT(rcv_scan_data, .a = a, .b = b, .h = h, .lengths = lengths, .resets = resets);
    rcv_scan_gradients gradients = RCV_INIT(rcv_scan_gradients, .da = da);
    check_ok(rcv_scan_forward(plain, &data));
    check_ok(rcv_scan_forward(full, &ragged));
    check_ok(rcv_scan_backward(full, &ragged, &gradients));
    check_fails(rcv_scan_forward(NULL, &data), RCV_INVALID, "not NULL");
    check_fails(rcv_scan_forward(plain, NULL), RCV_INVALID, "not NULL");
    check_fails(rcv_scan_backward(NULL, &data, &gradients), RCV_INVALID, "not NULL");
    check_fails(rcv_scan_backward(plain, NULL, &gradients), RCV_INVALID, "not NULL");
    check_fails(rcv_scan_backward(plain, &data, NULL), RCV_INVALID, "not NULL");
    const void **inputs[] = {&data.a, &data.b};
    static const char *const sentences[] = {"rcv_scan_forward needs data->a, not NULL",
                                            "rcv_scan_forward needs data->b, not NULL"};
    for (int i = 0; i < 2; i++) {
        const void *kept = *inputs[i];
        *inputs[i] = NULL;
        check_fails(rcv_scan_forward(plain, &data), RCV_INVALID, sentences[i]);
        *inputs[i] = kept;
    }
    data.h = NULL;
    check_fails(rcv_scan_forward(plain, &data), RCV_INVALID, "rcv_scan_forward needs data->h, not NULL");
    check_fails(rcv_scan_backward(plain, &data, &gradients), RCV_INVALID, "rcv_scan_backward needs data->h, not NULL");
    data.h = h;
    check_fails(rcv_scan_forward(full, &data), RCV_INVALID, "made for lengths, but none");
    check_fails(rcv_scan_forward(plain, &ragged), RCV_INVALID, "lengths are given, but");
    data.lengths = lengths;
    check_fails(rcv_scan_forward(full, &data), RCV_INVALID, "made for resets, but none");
    check_fails(rcv_scan_backward(full, &data, &gradients), RCV_INVALID, "made for resets, but none");
    data.lengths = NULL;
    data.resets = resets;
    check_fails(rcv_scan_forward(plain, &data), RCV_INVALID, "resets are given, but");
    const int64_t wrong[] = {0, -1, 4};
    for (int i = 0; i < 3; i++) {
        lengths[1] = wrong[i];
        check_fails(rcv_scan_forward(full, &ragged), RCV_INVALID, "of sequence 1 is not in 1 to 3");
        check_fails(rcv_scan_backward(full, &ragged, &gradients), RCV_INVALID, "of sequence 1 is not in 1 to 3");
    }
    check_ok(rcv_scan_set_stream(plain, NULL));
    check_fails(rcv_scan_set_stream(plain, h), RCV_UNSUPPORTED, "cpu has no streams");
    check_fails(rcv_scan_set_stream(NULL, NULL), RCV_INVALID, "needs scan");
    check_fails(rcv_scan_wait(NULL), RCV_INVALID, "needs scan");
    check_ok(rcv_scan_wait(plain));
    rcv_scan_free(plain);
    rcv_scan_free(full);
    test_context_end(&counter, context);
}

static void memory_is_measured(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    double bandwidth = 0;
    for (int64_t threads = 0; threads <= 3; threads++) {
        for (int reads = 1; reads <= 2; reads++) {
            bandwidth = 0;
            check_ok(rcv_measure_memory(context, NULL, threads, reads, 1000003, &bandwidth));
            assert_true(bandwidth > 1e6 && bandwidth < 1e13);
        }
    }
    check_ok(rcv_measure_memory(context, "cpu", 3, 2, 4, &bandwidth));
    check_fails(rcv_measure_memory(NULL, NULL, 1, 1, 4096, &bandwidth), RCV_INVALID, "not NULL");
    check_fails(rcv_measure_memory(context, NULL, 1, 1, 4096, NULL), RCV_INVALID, "not NULL");
    check_fails(rcv_measure_memory(context, NULL, 1, 3, 4096, &bandwidth), RCV_INVALID, "1 or 2 reads, not 3");
    check_fails(rcv_measure_memory(context, NULL, 1, 0, 4096, &bandwidth), RCV_INVALID, "1 or 2 reads, not 0");
    check_fails(rcv_measure_memory(context, NULL, 1, 1, 3, &bandwidth), RCV_INVALID, "3 bytes cannot be measured");
    check_fails(rcv_measure_memory(context, NULL, 1, 1, SIZE_MAX, &bandwidth), RCV_INVALID, "cannot be measured");
    check_fails(rcv_measure_memory(context, NULL, -1, 1, 4096, &bandwidth), RCV_INVALID, "1 to 1024, not -1");
    check_fails(rcv_measure_memory(context, "abacus", 1, 1, 4096, &bandwidth), RCV_INVALID, "abacus");
    for (size_t at = 1; at <= 2; at++) {
        counter.fail_at = at;
        check_fails(rcv_measure_memory(context, NULL, 2, 2, 4096, &bandwidth), RCV_NO_MEMORY, "no memory");
        assert_int_equal(counter.live, 1);
    }
    assert_int_equal(counter.failed, 2);
    test_context_end(&counter, context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_option),
        cmocka_unit_test(every_shape),
        cmocka_unit_test(every_gate),
        cmocka_unit_test(overflow_within_a_chunk),
        cmocka_unit_test(subnormal_states_are_kept),
        cmocka_unit_test(nan_stays_in_its_channel),
        cmocka_unit_test(bits_do_not_depend_on_threads),
        cmocka_unit_test(forms_agree),
        cmocka_unit_test(guessed_form_gives_serial_bits),
        cmocka_unit_test(guesses_are_corrected_where_needed),
        cmocka_unit_test(calls_can_be_split),
        cmocka_unit_test(gradients_are_differences),
        cmocka_unit_test(gradients_may_be_left_out),
        cmocka_unit_test(every_set_of_kernels),
        cmocka_unit_test(non_temporal_stores),
        cmocka_unit_test(wrong_options),
        cmocka_unit_test(wrong_calls),
        cmocka_unit_test(memory_is_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
