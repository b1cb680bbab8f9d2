/* Linear recurrences on a GPU: every form and type against a plain loop in double, the same bits every time. */
#include "scan_cases.h"

#include <math.h>

static const char *const forms[] = {"serial", "channels", "chained", "three", NULL};
static const rcv_dtype dtypes[] = {RCV_FLOAT32, RCV_FLOAT64, RCV_BFLOAT16, RCV_FLOAT16};
enum { FORMS = 5, TYPES = 4, CUTS_TIME = 2 /* and those behind it */ };

typedef struct {
    int64_t steps, batch, channels;
} shape;

static rcv_scan_options options_of(shape shape, const char *form, rcv_dtype dtype) {
    if (form && !strcmp(form, "chained") && dtype == RCV_FLOAT64) form = "three";
    return RCV_INIT(rcv_scan_options, .steps = shape.steps, .batch = shape.batch, .channels = shape.channels,
                    .form = form, .dtype = dtype, .device = "cuda");
}

/* Six kinds, of which each option has a half. */
static void add_kind(rcv_scan_options *options, int kind) {
    options->reverse = kind & 1;
    options->lengths = kind & 2;
    options->resets = kind == 0 || kind == 3 || kind == 4;
}

/* Twice by one scan: the values, and the same bits. */
static void check_case(rcv_context *context, const scan_case *made, const char *what) {
    rcv_scan *scan = NULL;
    check_ok(rcv_scan_new(context, &made->options, &scan));
    scan_outcome first = scan_case_call(context, made, scan), second = scan_case_call(context, made, scan);
    scan_case_check(made, &first, what);
    if (!scan_outcomes_equal(&first, &second))
        fail_msg("%s: %s has other bits the second time", what, rcv_scan_form(scan));
    scan_outcome_free(&first);
    scan_outcome_free(&second);
    rcv_scan_free(scan);
}

static void check_options(rcv_context *context, const rcv_scan_options *options, scan_gates gates, bool initial,
                          uint64_t seed, const char *what) {
    scan_case made = scan_case_new(options, gates, initial, seed);
    check_case(context, &made, what);
    scan_case_free(&made);
}

/* Every form and type with every option, in pairs of which each has a half; shapes of many tiles, of several chains, of less than a
 * tile, with channels that are no multiple of anything. */
static void every_option(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    static const shape shapes[] = {{20011, 1, 3}, {611, 5, 36}, {701, 1, 1000}, {61, 70, 1}, {5003, 3, 32}, {2, 3, 5}};
    uint64_t seed = 1;
    for (int i = 0; i < FORMS * TYPES * 3; i++, seed++) {
        rcv_scan_options options = options_of(shapes[seed % 6], forms[i % FORMS], dtypes[i / FORMS % TYPES]);
        int kind = i / FORMS / TYPES + i % 2 * 3;
        add_kind(&options, kind);
        check_options(context, &options, GATES_INSIDE, kind > 0, seed, "options");
    }
    test_context_end(&counter, context);
}

static void every_gate(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    static const shape shapes[] = {{9500, 1, 3}, {7600, 2, 40}, {600, 1, 4400}};
    for (int form = CUTS_TIME; form < CUTS_TIME + 2; form++) {
        for (int i = 0; i < 3 * GATES_COUNT; i++) {
            rcv_scan_options options = options_of(shapes[i % 3], forms[form], RCV_FLOAT32);
            check_options(context, &options, (scan_gates)(i / 3), true, (uint64_t)(100 + i), "gates");
        }
    }
    test_context_end(&counter, context);
}

/* An overflow within a tile, a zero after it, products that are too large or too small to be composed. */
static void overflow_on_the_way(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    for (int form = 0; form < FORMS; form++) {
        rcv_scan_options options = options_of((shape){9000, 1, 2}, forms[form], RCV_FLOAT32);
        scan_check_overflow(context, &options, 3500, 1);
    }
    test_context_end(&counter, context);
}

/* ---- in waves ---- */

static bool has_waves(rcv_context *context) {
    rcv_scan *scan = NULL;
    rcv_scan_options options = options_of((shape){9, 1, 32}, "waves", RCV_FLOAT32);
    if (rcv_scan_new(context, &options, &scan) == RCV_OK) {
        rcv_scan_free(scan);
        return true;
    }
    print_message("skipped: %s\n", rcv_message());
    return false;
}

/* One wave and less, several of one member, of few, of groups of them; chains that are not full; every option. */
static void waves_of_every_option(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    static const shape shapes[] = {{60001, 1, 64}, {7, 1, 32},      {2311, 1, 4000},
                                   {9000, 3, 44},  {20011, 1, 128}, {4099, 5, 200}};
    for (int i = 0; i < 18 && has_waves(context); i++) {
        rcv_scan_options options = options_of(shapes[i % 6], "waves", RCV_FLOAT32);
        int kind = (i + i / 6) % 6;
        add_kind(&options, kind);
        check_options(context, &options, GATES_INSIDE, kind > 0, (uint64_t)(900 + i), "waves");
    }
    test_context_end(&counter, context);
}

static void waves_of_every_gate(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    static const shape shapes[] = {{70001, 1, 64}, {6007, 1, 520}};
    for (int i = 0; i < 2 * GATES_COUNT && has_waves(context); i++) {
        rcv_scan_options options = options_of(shapes[i % 2], "waves", RCV_FLOAT32);
        check_options(context, &options, (scan_gates)(i / 2), true, (uint64_t)(950 + i), "gates in waves");
    }
    test_context_end(&counter, context);
}

/* In the second wave of two; what is broken there is taken tile by tile, from the member before. */
static void overflow_in_waves(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    rcv_scan_options options = options_of((shape){60000, 1, 64}, "waves", RCV_FLOAT32);
    if (has_waves(context)) scan_check_overflow(context, &options, 25000, 1);
    options.channels = 1028;
    options.steps = 4000;
    if (has_waves(context)) scan_check_overflow(context, &options, 2500, 1);
    test_context_end(&counter, context);
}

/* NaN in a channel of a sequence stays there, and all others have the bits that they have without it. */
static void not_a_number_stays(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    for (int form = 0; form < FORMS + 1; form++) {
        const bool waves = form == FORMS;
        if (waves && !has_waves(context)) continue;
        const int64_t steps = waves ? 45000 : 6500, batch = 3, channels = waves ? 24 : 8, columns = batch * channels;
        const int64_t at = 1700, column = 9;
        rcv_scan_options options =
            options_of((shape){steps, batch, channels}, waves ? "waves" : forms[form], RCV_FLOAT32);
        scan_case made = scan_case_new(&options, GATES_INSIDE, true, 7);
        scan_outcome clean = scan_case_run(context, &made, 1);
        (form & 1 ? made.a : made.b)[at * columns + column] = NAN;
        scan_outcome outcome = scan_case_run(context, &made, 1);
        const float *h = (const float *)(const void *)outcome.h, *da = (const float *)(const void *)outcome.da;
        for (int64_t e = 0; e < steps * columns; e++) {
            bool is_nan = e % columns == column && e / columns >= at;
            if (is_nan ? !isnan(h[e]) : e % columns != column && h[e] != ((const float *)(const void *)clean.h)[e])
                fail_msg("h of step %lld, column %lld is %g", (long long)(e / columns), (long long)(e % columns),
                         (double)h[e]);
            if (e % columns != column) assert_true(da[e] == ((const float *)(const void *)clean.da)[e]);
        }
        scan_case_check(&made, &outcome, "NaN");
        scan_outcome_free(&clean);
        scan_outcome_free(&outcome);
        scan_case_free(&made);
    }
    test_context_end(&counter, context);
}

/* More tiles than are under way at once, in few chains and in many. */
static void long_ones(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    static const shape shapes[] = {{90001, 1, 64}, {300007, 1, 1}, {1501, 2, 2200}, {65, 1, 20001}};
    for (int i = 0; i < 4 * 2; i++) {
        rcv_scan_options options = options_of(shapes[i % 4], NULL, i / 4 ? RCV_BFLOAT16 : RCV_FLOAT32);
        check_options(context, &options, GATES_NEAR_ONE, true, (uint64_t)(500 + i), "long");
    }
    test_context_end(&counter, context);
}

static void wrong_calls(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    rcv_scan *scan = NULL;
    rcv_scan_options options = RCV_INIT(rcv_scan_options, .steps = 10, .channels = 4, .dtype = RCV_FLOAT64,
                                        .form = "chained", .device = "cuda");
    assert_int_equal(rcv_scan_new(context, &options, &scan), RCV_UNSUPPORTED);
    assert_non_null(strstr(rcv_message(), "three"));
    options.dtype = RCV_FLOAT32;
    check_ok(rcv_scan_new(context, &options, &scan));
    void *memory = NULL;
    check_ok(rcv_memory_new(context, "cuda", 4096, &memory));
    char *at = memory;
    rcv_scan_data data = RCV_INIT(rcv_scan_data, .a = at, .b = at + 512, .h = at + 1028);
    assert_int_equal(rcv_scan_forward(scan, &data), RCV_INVALID);
    assert_non_null(strstr(rcv_message(), "16 bytes"));
    rcv_memory_free(context, "cuda", memory);
    rcv_scan_free(scan);
    options.form = "waves"; /* of four channels there are none */
    assert_int_equal(rcv_scan_new(context, &options, &scan), RCV_UNSUPPORTED);
    assert_non_null(strstr(rcv_message(), "channels"));
    options.form = "guessed";
    assert_int_equal(rcv_scan_new(context, &options, &scan), RCV_INVALID);
    assert_non_null(strstr(rcv_message(), "no form 'guessed'"));
    test_context_end(&counter, context);
}

int main(void) {
    rcv_context *context = NULL;
    check_ok(rcv_context_new(NULL, &context));
    bool there = rcv_device_describe(context, "cuda", NULL) == RCV_OK;
    rcv_context_free(context);
    if (!there) {
        printf("skipped: no GPU\n");
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_option),        cmocka_unit_test(every_gate),
        cmocka_unit_test(overflow_on_the_way), cmocka_unit_test(waves_of_every_option),
        cmocka_unit_test(waves_of_every_gate), cmocka_unit_test(overflow_in_waves),
        cmocka_unit_test(not_a_number_stays),  cmocka_unit_test(long_ones),
        cmocka_unit_test(wrong_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
