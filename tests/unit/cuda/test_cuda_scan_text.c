/* Scans as text, without a GPU: how shapes are cut, and that the text of every form compiles for the architectures of the build. */
#include "cuda_programs.h"
#include "device/cuda/codegen/jit.h"
#include "device/cuda/recurrence/recurrence.h"
#include "device/cuda/recurrence/scan.h"
#include "sample.h"

enum { PROCESSORS = 132 };

static rcvi_scan_cut cut_of(rcvi_scan_form form, int64_t steps, int64_t channels, int bytes) {
    return rcvi_scan_find_cut(form, bytes == 8, steps, channels, channels, bytes, PROCESSORS);
}

/* Tiles cover all steps of all channels, in vectors that a row is made of, and a block has room for them. */
static void cuts_cover(void **state) {
    (void)state;
    static const int64_t steps[] = {1, 17, 1000, 1 << 20}, channels[] = {1, 3, 30, 32, 128, 1000, 4096, 100001};
    static const int bytes[] = {2, 4, 8};
    for (int i = 0; i < 4 * 8 * 3 * (RCVI_SCAN_FORMS + 1); i++) {
        int64_t t = steps[i % 4], c = channels[i / 4 % 8];
        rcvi_scan_form form = (rcvi_scan_form)(i / 96);
        rcvi_scan_cut cut = cut_of(form, t, c, bytes[i / 32 % 3]);
        assert_true(cut.lanes >= 1 && cut.lanes <= 32 && (cut.lanes & (cut.lanes - 1)) == 0);
        int64_t tile = (int64_t)(cut.threads / cut.lanes) * cut.steps, across = (int64_t)cut.lanes * cut.vector;
        assert_int_equal(c % cut.vector, 0);
        assert_true(cut.chains * across >= c && (cut.chains - 1) * across < c);
        assert_true(cut.tiles * tile >= t && (cut.tiles - 1) * tile < t);
        assert_true(cut.steps >= 1 && cut.steps <= 32); /* a bit each */
        if (cut.form == RCVI_SCAN_WAVES) {
            assert_true(form == RCVI_SCAN_WAVES && bytes[i / 32 % 3] == 4 && across == 32);
            assert_true(cut.members >= 1 && cut.chains * cut.members <= PROCESSORS && cut.members <= cut.tiles);
            assert_true(cut.group >= 1 && (cut.members + cut.group - 1) / cut.group <= 12 && cut.group <= 12);
        }
        if (cut.form != RCVI_SCAN_CHAINED) continue;
        assert_true(across <= cut.threads && cut.window <= 64);
        assert_true(cut.window * across * 16 <= 32 << 10); /* bytes of shared memory */
        assert_int_equal(cut.many, cut.window == 0);
    }
    assert_int_equal(cut_of(RCVI_SCAN_FORMS, 1 << 20, 128, 4).form, RCVI_SCAN_CHAINED);
    assert_int_equal(cut_of(RCVI_SCAN_FORMS, 1 << 20, 128, 8).form, RCVI_SCAN_THREE);
    assert_int_equal(cut_of(RCVI_SCAN_FORMS, 64, 1 << 20, 4).form, RCVI_SCAN_CHANNELS);
    assert_true(cut_of(RCVI_SCAN_FORMS, 4096, 12288, 4).many);
    assert_false(cut_of(RCVI_SCAN_FORMS, 1 << 19, 128, 4).many);
}

static void texts_compile(void **state) {
    (void)state;
    static const rcvi_cuda_type types[] = {RCVI_F32, RCVI_F64, RCVI_BF16, RCVI_F16};
    static const int bytes[] = {4, 8, 2, 2};
    static const int64_t channels[] = {128, 31, 8192};
    if (!rcvi_jit_name()) {
        print_message("skipped: %s\n", rcv_message());
        return;
    }
    enum { UNITS = 24 };
    rcvi_jit_unit units[UNITS];
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    for (int i = 0; i < UNITS; i++) {
        int type = i / 2 % 4;
        rcvi_scan_form form = (rcvi_scan_form)(i / 2 % RCVI_SCAN_WAVES);
        if (i >= 8) form = types[type] == RCVI_F64 ? RCVI_SCAN_THREE : RCVI_SCAN_CHAINED;
        rcvi_scan_shape shape = {.cut = cut_of(form, 5000, channels[i / 8], bytes[type]),
                                 .data = types[type],
                                 .backward = i & 1,
                                 .reverse = i % 3 == 0,
                                 .lengths = i / 8 != 1,
                                 .resets = i / 8 != 1,
                                 .streamed = i / 8 == 1};
        char *text = NULL;
        check_ok(rcvi_scan_source(context, &shape, &text));
        units[i].source = text;
    }
    for (int major = 8; major <= 9; major++) {
        rcvi_jit_unit taken[UNITS];
        size_t count = 0;
        for (int i = 0; i < UNITS; i++)
            if (sample_takes((size_t)(UNITS * major + i))) taken[count++].source = units[i].source;
        assert_true(count > 0);
        check_ok(rcvi_jit_compile(context, taken, count, major, 0));
        for (size_t i = 0; i < count; i++) rcvi_free(context, taken[i].code);
    }
    for (int i = 0; i < UNITS; i++) rcv_text_free(context, (char *)(uintptr_t)units[i].source);
    test_context_end(&counter, context);
}

/* Waves, for the GPUs that can take them; the shapes for which they are taken. */
static void waves_compile(void **state) {
    (void)state;
    enum { UNITS = 8 };
    rcvi_jit_unit units[UNITS];
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    if (!rcvi_jit_name()) {
        print_message("skipped: %s\n", rcv_message());
        test_context_end(&counter, context);
        return;
    }
    for (int i = 0; i < UNITS; i++) {
        rcvi_scan_shape shape = {.cut = cut_of(RCVI_SCAN_WAVES, 500000, i & 4 ? 128 : 4000, 4),
                                 .data = RCVI_F32,
                                 .backward = i & 1,
                                 .reverse = i & 2,
                                 .lengths = i & 2,
                                 .resets = i & 2,
                                 .streamed = i & 4};
        char *text = NULL;
        assert_int_equal(shape.cut.form, RCVI_SCAN_WAVES);
        check_ok(rcvi_scan_source(context, &shape, &text));
        units[i].source = text;
    }
    rcvi_jit_unit taken[UNITS];
    size_t count = 0;
    for (int i = 0; i < UNITS; i++)
        if (sample_takes((size_t)i)) taken[count++].source = units[i].source;
    assert_true(count > 0);
    check_ok(rcvi_jit_compile(context, taken, count, 9, 0));
    for (size_t i = 0; i < count; i++) rcvi_free(context, taken[i].code);
    for (int i = 0; i < UNITS; i++) rcv_text_free(context, (char *)(uintptr_t)units[i].source);
    test_context_end(&counter, context);
}

static void waves_where_they_pay(void **state) {
    (void)state;
    rcvi_scan_cut few = cut_of(RCVI_SCAN_WAVES, 1 << 19, 128, 4), many = cut_of(RCVI_SCAN_WAVES, 1 << 14, 2400, 4);
    assert_int_equal(few.members, 33);
    assert_true(rcvi_scan_waves_pay(&few, PROCESSORS));
    assert_int_equal(many.form, RCVI_SCAN_WAVES); /* but 75 of the processors would be busy */
    assert_false(rcvi_scan_waves_pay(&many, PROCESSORS));
    rcvi_scan_cut wide = cut_of(RCVI_SCAN_WAVES, 1 << 12, 1 << 14, 4), odd = cut_of(RCVI_SCAN_WAVES, 1 << 19, 130, 4);
    assert_int_equal(wide.form, RCVI_SCAN_CHAINED);
    assert_int_equal(odd.form, RCVI_SCAN_CHAINED);
    assert_int_equal(cut_of(RCVI_SCAN_WAVES, 1 << 19, 128, 2).form, RCVI_SCAN_CHAINED);
    assert_true(rcvi_scan_has_waves(9, 232448));
    assert_false(rcvi_scan_has_waves(8, 232448));
    assert_false(rcvi_scan_has_waves(12, 101376));
}

/* ---- recurrences of cells ---- */

enum { MOST_TEXTS = 40 };

static const struct {
    const char *cell, *schedule;
    rcv_dtype dtype;
    bool lengths, resets;
    int64_t hidden;
} written[] = {
    {"sru", "combine(steps=all)+fuse+pack+scan", RCV_BFLOAT16, true, true, 64},
    {"gilr_lstm", "combine(steps=all)+fuse+pack+scan", RCV_FLOAT32, false, false, 7},
    {"sru2", "combine(steps=all)+fuse+pack+scan(newton)", RCV_FLOAT64, false, true, 8},
    {"gru_diagonal", "combine(steps=all)+fuse+pack+scan(newton)", RCV_FLOAT16, true, true, 64},
    {"indrnn", "combine(steps=40)+fuse+pack+scan", RCV_FLOAT32, false, true, 6},
    {RCV_SOURCE_DIR "/tests/support/cells/lru.cell", "combine(steps=all)+fuse+pack+scan", RCV_BFLOAT16, true, false,
     64},
};
enum { WRITTEN = sizeof written / sizeof *written };

/* Texts of all loops that are recurrences, into units; counts them by form. */
static size_t write_texts(const problem *p, const rcv_plan_options *options, rcvi_jit_unit *units, int *forms) {
    rcvi_program program;
    size_t count = 0;
    assert_true(write_with(p->net, options, &program));
    rcvi_engine e = {
        .program = &program, .context = p->context, .major = 9, .processors = PROCESSORS, .shared = 232448};
    rcvi_pool_init(&e.pool, p->context);
    check_ok(rcvi_cuda_find_layout(&e));
    for (size_t i = 0; i < program.step_count; i++) {
        rcvi_cuda_recurrences *list = NULL;
        if (!rcvi_program_is_scan(&program, i)) continue;
        check_ok(rcvi_cuda_recurrences_new(&e, i, &list));
        for (int n = 0; n < list->count && count < MOST_TEXTS; n++) {
            forms[list->all[n].cut.form]++;
            units[count++].source = list->all[n].source; /* is ours now */
            list->all[n].source = NULL;
        }
        rcvi_cuda_recurrences_free(p->context, list);
    }
    rcvi_pool_free(&e.pool);
    rcvi_program_free(&program);
    return count;
}

static void recurrences_compile(void **state) {
    (void)state;
    int forms[RCVI_SCAN_NEWTON + 1] = {0};
    if (!rcvi_jit_name()) {
        print_message("skipped: %s\n", rcv_message());
        return;
    }
    size_t index = 0;
    for (int i = 0; i < WRITTEN; i++) {
        config c = {.cell = written[i].cell,
                    .net = {.input = 8, .hidden = written[i].hidden, .layers = 1},
                    .steps = 300,
                    .batch = 2,
                    .lengths = written[i].lengths,
                    .resets = written[i].resets,
                    .initial = true};
        problem p;
        rcvi_jit_unit units[MOST_TEXTS];
        open_problem(&p, &c, 1);
        rcv_plan_options options = options_of(&p, written[i].dtype, true, written[i].schedule);
        size_t count = write_texts(&p, &options, units, forms);
        assert_true(count >= 2);
        rcvi_jit_unit taken[MOST_TEXTS];
        size_t compiled = 0;
        for (size_t k = 0; k < count; k++)
            if (sample_takes(index++)) taken[compiled++].source = units[k].source;
        if (compiled) check_ok(rcvi_jit_compile(p.context, taken, compiled, 9, 0));
        for (size_t k = 0; k < compiled; k++) rcvi_free(p.context, taken[k].code);
        for (size_t k = 0; k < count; k++) rcvi_free(p.context, (char *)(uintptr_t)units[k].source);
        close_problem(&p);
    }
    assert_true(forms[RCVI_SCAN_CHAINED] && forms[RCVI_SCAN_THREE] && forms[RCVI_SCAN_CHANNELS] &&
                forms[RCVI_SCAN_NEWTON]);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(cuts_cover), cmocka_unit_test(texts_compile),
                                       cmocka_unit_test(waves_compile), cmocka_unit_test(waves_where_they_pay),
                                       cmocka_unit_test(recurrences_compile)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
