/* The planner: what it chooses, what it refuses and why, what it remembers. */
#include "plan/wisdom.h"
#include "planned.h"
#include "scratch.h"

#include <math.h>
#include <unistd.h>

static const rcv_size proj[] = {{"proj", 5}};

/* ---- the choice ---- */

static const config small = {"gru", {.input = 6, .hidden = 8, .layers = 2}, 8, 4, false, false, false};

static size_t count_chosen(const rcv_plan *plan) {
    size_t chosen = 0;
    for (size_t i = 0; i < rcv_plan_candidate_count(plan); i++) {
        const rcv_candidate *c = rcv_plan_candidate(plan, i);
        chosen += c->chosen;
        if (!c->chosen) continue;
        assert_string_equal(c->schedule, rcv_plan_string(plan));
        assert_int_equal(c->bytes, rcv_plan_bytes(plan));
        assert_int_equal(c->status, RCV_OK);
    }
    assert_null(rcv_plan_candidate(plan, rcv_plan_candidate_count(plan)));
    return chosen;
}

static void test_efforts(void **state) {
    (void)state;
    problem p;
    open_problem(&p, &small, 2);
    static const rcv_effort efforts[] = {RCV_ESTIMATE, RCV_MEASURE, RCV_EXHAUSTIVE};
    for (int e = 0; e < 3; e++) {
        for (int training = 0; training < 2; training++) {
            rcv_plan *plan = NULL;
            rcv_plan_options options = options_of(&p, RCV_FLOAT32, training, NULL);
            options.effort = efforts[e];
            check_ok(rcv_plan_new(p.net, &options, &plan));
            assert_int_equal(count_chosen(plan), 1);
            assert_false(rcv_plan_from_wisdom(plan));
            assert_true(rcv_plan_seconds(plan) > 0);
            size_t timed = 0, good = 0;
            double least = INFINITY, own = INFINITY;
            for (size_t i = 0; i < rcv_plan_candidate_count(plan); i++) {
                const rcv_candidate *c = rcv_plan_candidate(plan, i);
                for (size_t k = 0; k < i; k++)
                    assert_string_not_equal(c->schedule, rcv_plan_candidate(plan, k)->schedule);
                good += c->status == RCV_OK;
                timed += c->seconds > 0;
                if (c->seconds > 0) least = fmin(least, c->seconds);
                if (c->chosen) own = c->seconds;
            }
            assert_true(good > 4);
            if (efforts[e] == RCV_ESTIMATE) assert_int_equal(timed, 0);
            if (efforts[e] == RCV_EXHAUSTIVE) {
                assert_int_equal(timed, good);
                assert_true(own <= 1.02 * least);
            }
            rcv_plan_free(plan);
        }
    }
    close_problem(&p);
}

/* The model prefers what this library is for over the baseline, and more steps cost more. */
static void test_model(void **state) {
    (void)state;
    static const config middle = {"lstm", {.input = 128, .hidden = 128, .layers = 2}, 20, 16, false, false, false};
    problem p;
    open_problem(&p, &middle, 1);
    double naive = 0, packed = 0, longer = 0, *const estimates[] = {&naive, &packed, &longer};
    static const char *const strings[] = {"naive", "combine+fuse+pack", "combine+fuse+pack"};
    for (int i = 0; i < 3; i++) {
        rcv_plan *plan = NULL;
        rcv_plan_options options = options_of(&p, RCV_FLOAT32, true, strings[i]);
        if (i == 2) options.steps *= 10;
        check_ok(rcv_plan_new(p.net, &options, &plan));
        assert_int_equal(rcv_plan_candidate_count(plan), 1);
        assert_int_equal(count_chosen(plan), 1);
        *estimates[i] = rcv_plan_candidate(plan, 0)->estimate;
        rcv_plan_free(plan);
    }
    assert_true(packed > 0 && naive > 2 * packed);
    assert_true(longer > 5 * packed && longer < 15 * packed);
    close_problem(&p);
}

static double estimate_of(const problem *p, bool training, const char *string) {
    rcv_plan *plan = NULL;
    rcv_plan_options options = options_of(p, RCV_FLOAT32, training, string);
    check_ok(rcv_plan_new(p->net, &options, &plan));
    double estimate = rcv_plan_candidate(plan, 0)->estimate;
    rcv_plan_free(plan);
    return estimate;
}

/* What each rung costs and gains, by the model: threads pay where there is work for them and cost where there is none,
 * weights that are not packed and states that are computed twice cost, training costs about three times as much. */
static void test_model_of_rungs(void **state) {
    (void)state;
    static const config wide = {"lstm", {.input = 256, .hidden = 256, .layers = 2}, 32, 32, false, false, false},
                        tiny = {"lstm", {.input = 4, .hidden = 4, .layers = 2}, 32, 2, false, false, false};
    problem p;
    open_problem(&p, &wide, 2);
    double one = estimate_of(&p, false, "combine+fuse+pack");
    double train = estimate_of(&p, true, "combine(steps=4)+fuse+pack");
    assert_true(estimate_of(&p, false, "combine+fuse+pack+threads(2)") < 0.6 * one);
    assert_true(estimate_of(&p, false, "combine+fuse+pack+threads(2,split=rows)") < 0.6 * one);
    assert_true(estimate_of(&p, false, "combine+fuse+transpose") > 1.05 * one);
    assert_true(estimate_of(&p, false, "fuse+pack") >= one);
    assert_true(train > 2 * one && train < 6 * one);
    assert_true(estimate_of(&p, true, "combine(steps=4)+fuse+pack+recompute(every=4)") > 1.1 * train);
    close_problem(&p);
    open_problem(&p, &tiny, 2);
    one = estimate_of(&p, false, "combine+fuse+pack");
    double features = estimate_of(&p, false, "combine+fuse+pack+threads(2)");
    assert_true(features > 1.2 * one);
    assert_true(estimate_of(&p, false, "combine+fuse+pack+wavefront+threads(2)") < features);
    assert_true(estimate_of(&p, false, "combine+fuse+pack+threads(2,split=rows)") < features);
    close_problem(&p);
}

/* ---- refusals ---- */

static void check_refused(const problem *p, rcv_plan_options options, rcv_status status, const char *fragment) {
    rcv_plan *plan = (rcv_plan *)p;
    check_fails(rcv_plan_new(p->net, &options, &plan), status, fragment);
    assert_null(plan);
}

static void test_refusals(void **state) {
    (void)state;
    static const config one = {"lstm", {.input = 3, .hidden = 4, .layers = 1}, 6, 2, false, false, false};
    problem p;
    open_problem(&p, &one, 2);
    rcv_plan_options options = options_of(&p, RCV_FLOAT32, false, NULL);
#define PINNED(STRING) (options.schedule = STRING, options)
    check_refused(&p, PINNED(""), RCV_INVALID, "missing");
    check_refused(&p, PINNED("fuze"), RCV_INVALID, "did you mean 'fuse'");
    check_refused(&p, PINNED("naive+threads(0)"), RCV_INVALID, "1 to 1024");
    check_refused(&p, PINNED("fuse+fuse"), RCV_INVALID, "twice");
    check_refused(&p, PINNED("combine+fuse+pack+wavefront"), RCV_UNSUPPORTED, "two layers");
    check_refused(&p, PINNED("combine(steps=2)+fuse+pack+recompute(every=2)"), RCV_UNSUPPORTED, "training");
    check_refused(&p, PINNED("fuse+pack+threads(3,split=rows)"), RCV_UNSUPPORTED, "batch of 2");
    check_refused(&p, PINNED("combine(steps=2,forward=1)+fuse+pack"), RCV_UNSUPPORTED, "this is inference");
    check_refused(&p, PINNED("combine+fuse+pack+wavefront(forward)"), RCV_UNSUPPORTED, "write wavefront");
    check_refused(&p, PINNED("combine+fuse+pack+scan(newton)"), RCV_UNSUPPORTED, "newton of scan is for a GPU");
    check_refused(&p, PINNED("combine+fuse+pack+scan(secant)"), RCV_INVALID, "scan or scan(newton)");
    options.training = true;
    check_refused(&p, PINNED("combine(steps=2,forward=1)+fuse+pack+recompute(every=2)"), RCV_UNSUPPORTED,
                  "leave forward out");
    check_refused(&p, PINNED("combine(steps=all,forward=1)+fuse+pack+wavefront(forward)"), RCV_UNSUPPORTED,
                  "two layers");
    options.training = false;
    options.threads = 2;
    check_refused(&p, PINNED("naive+threads(3)"), RCV_INVALID, "at most 2");
    options.schedule = NULL;
    options.threads = -1;
    check_refused(&p, options, RCV_INVALID, "-1 threads");
    options.threads = 1025;
    check_refused(&p, options, RCV_INVALID, "1025 threads");
    options.threads = 0;
    options.effort = (rcv_effort)7;
    check_refused(&p, options, RCV_INVALID, "effort 7");
    close_problem(&p);
}

/* At most as many threads as the plan's options say, or else the context. */
static void test_thread_limit(void **state) {
    (void)state;
    problem p;
    open_problem(&p, &small, 3);
    assert_int_equal(rcv_context_threads(p.context), 3);
    for (int64_t limit = 0; limit < 5; limit++) {
        rcv_plan *plan = NULL;
        rcv_plan_options options = options_of(&p, RCV_FLOAT32, false, NULL);
        options.effort = RCV_ESTIMATE;
        options.threads = limit;
        check_ok(rcv_plan_new(p.net, &options, &plan));
        int64_t most = 1;
        for (size_t i = 0; i < rcv_plan_candidate_count(plan); i++) {
            rcvi_rungs rungs;
            check_ok(rcvi_rungs_read(rcv_plan_candidate(plan, i)->schedule, &rungs));
            if (rungs.threads > most) most = rungs.threads;
        }
        assert_int_equal(most, limit ? limit : 3);
        rcv_plan_free(plan);
    }
    close_problem(&p);
}

/* More threads than any machine of today has cores: right, and the log says a word. */
static void keep_lines(void *user, const char *line) {
    char *lines = user;
    size_t length = strlen(lines);
    snprintf(lines + length, 4096 - length, "%s\n", line);
}

static void test_many_threads(void **state) {
    (void)state;
    problem p;
    open_problem(&p, &small, 1);
    results want, got;
    char string[64], lines[4096] = "";
    snprintf(string, sizeof string, "combine+fuse+pack+threads(%ld)", sysconf(_SC_NPROCESSORS_ONLN) + 3);
    run_pinned(&p, RCV_FLOAT64, true, "naive", &want);
    run_pinned(&p, RCV_FLOAT64, true, string, &got);
    compare(&p, RCV_FLOAT64, string, &got, &want, &(double){0});
    drop(&want);
    drop(&got);
    p.context->log = keep_lines;
    p.context->log_user = lines;
    rcv_plan *plan = NULL;
    rcv_plan_options options = options_of(&p, RCV_FLOAT64, true, string);
    check_ok(rcv_plan_new(p.net, &options, &plan));
    assert_non_null(strstr(lines, "cores: results are correct"));
    assert_non_null(strstr(lines, string));
    assert_non_null(strstr(lines, "pinned"));
    rcv_plan_free(plan);
    close_problem(&p);
}

static void test_memory(void **state) {
    (void)state;
    static const config long_one = {"lstm", {.input = 8, .hidden = 8, .layers = 2}, 64, 4, false, false, false};
    problem p;
    open_problem(&p, &long_one, 1);
    rcv_plan *plan = NULL;
    rcv_plan_options options = options_of(&p, RCV_FLOAT32, true, NULL);
    options.effort = RCV_ESTIMATE;
    check_ok(rcv_plan_new(p.net, &options, &plan));
    size_t least = SIZE_MAX, most = 0;
    char smallest[128] = "", number[32];
    for (size_t i = 0; i < rcv_plan_candidate_count(plan); i++) {
        const rcv_candidate *c = rcv_plan_candidate(plan, i);
        if (c->status) continue;
        if (c->bytes > most) most = c->bytes;
        if (c->bytes >= least) continue;
        least = c->bytes;
        snprintf(smallest, sizeof smallest, "%s", c->schedule);
    }
    rcv_plan_free(plan);
    assert_true(least < most);

    options.memory = least; /* just enough for one */
    static const rcv_effort efforts[] = {RCV_ESTIMATE, RCV_MEASURE, RCV_EXHAUSTIVE};
    for (int e = 0; e < 3; e++) {
        options.effort = efforts[e];
        check_ok(rcv_plan_new(p.net, &options, &plan));
        assert_true(rcv_plan_bytes(plan) <= least);
        size_t refused = 0;
        for (size_t i = 0; i < rcv_plan_candidate_count(plan); i++) {
            const rcv_candidate *c = rcv_plan_candidate(plan, i);
            if (c->bytes <= least) continue;
            snprintf(number, sizeof number, "%zu", c->bytes);
            assert_true(c->status == RCV_UNSUPPORTED && strstr(c->reason, number) && c->seconds == 0);
            refused++;
        }
        assert_true(refused > 0);
        rcv_plan_free(plan);
        assert_int_equal(rcv_wisdom_count(p.context), 0); /* it would be wrong where there is more memory */
    }
    options.memory = most - 1; /* enough for all but the largest */
    options.effort = RCV_MEASURE;
    check_ok(rcv_plan_new(p.net, &options, &plan));
    rcv_plan_free(plan);
    assert_int_equal(rcv_wisdom_count(p.context), 0);
    options.memory = least - 1;
    check_refused(&p, options, RCV_UNSUPPORTED, smallest);
    snprintf(number, sizeof number, "%zu", least);
    assert_non_null(strstr(rcv_message(), number));
    options.schedule = smallest;
    check_refused(&p, options, RCV_UNSUPPORTED, number);
    options.memory = least;
    check_ok(rcv_plan_new(p.net, &options, &plan));
    rcv_plan_free(plan);
    close_problem(&p);
}

/* A problem that no machine can run is still planned, without a trial. */
static void test_too_large(void **state) {
    (void)state;
    problem p;
    open_problem(&p, &small, 2);
    rcv_plan *plan = NULL;
    rcv_plan_options options = options_of(&p, RCV_FLOAT32, true, NULL);
    options.batch = INT64_C(1) << 40;
    static const rcv_effort efforts[] = {RCV_MEASURE, RCV_EXHAUSTIVE};
    for (int e = 0; e < 2; e++) {
        options.effort = efforts[e];
        check_ok(rcv_plan_new(p.net, &options, &plan));
        assert_true(rcv_plan_bytes(plan) > (size_t)1 << 44);
        for (size_t i = 0; i < rcv_plan_candidate_count(plan); i++)
            assert_true(rcv_plan_candidate(plan, i)->seconds == 0);
        rcv_plan_free(plan);
    }
    assert_int_equal(rcv_wisdom_count(p.context), 0);
    close_problem(&p);
}

/* ---- wisdom ---- */

static void new_plan(const problem *p, rcv_plan_options options, rcv_effort effort, bool expected, char *string) {
    rcv_plan *plan = NULL;
    options.effort = effort;
    check_ok(rcv_plan_new(p->net, &options, &plan));
    assert_int_equal(rcv_plan_from_wisdom(plan), expected);
    assert_int_equal(count_chosen(plan), 1);
    if (expected) {
        assert_int_equal(rcv_plan_candidate_count(plan), 1);
        assert_true(rcv_plan_candidate(plan, 0)->seconds > 0);
    }
    if (string) snprintf(string, 128, "%s", rcv_plan_string(plan));
    rcv_plan_free(plan);
}

static void test_wisdom(void **state) {
    (void)state;
    problem p, q;
    open_problem(&p, &small, 1);
    open_problem(&q, &small, 1);
    rcv_plan_options options = options_of(&p, RCV_FLOAT32, true, NULL), other = options;
    char first[128], second[128], path[256];
    new_plan(&p, options, RCV_ESTIMATE, false, NULL);
    assert_int_equal(rcv_wisdom_count(p.context), 0);
    new_plan(&p, options, RCV_MEASURE, false, first);
    assert_int_equal(rcv_wisdom_count(p.context), 1);
    new_plan(&p, options, RCV_MEASURE, true, second);
    assert_string_equal(first, second);
    new_plan(&p, options, RCV_ESTIMATE, true, second);
    assert_string_equal(first, second);
    options.schedule = "naive";
    new_plan(&p, options, RCV_MEASURE, false, second); /* what is pinned is pinned */
    assert_string_equal(second, "naive");
    options.schedule = NULL;
    new_plan(&p, options, RCV_EXHAUSTIVE, false, first); /* more effort than was made */
    new_plan(&p, options, RCV_EXHAUSTIVE, true, second);
    assert_string_equal(first, second);
    new_plan(&p, options, RCV_MEASURE, true, second);
    assert_string_equal(first, second);
    assert_int_equal(rcv_wisdom_count(p.context), 1);

    /* Another problem is another line. */
    other.steps++;
    new_plan(&p, other, RCV_ESTIMATE, false, NULL);
    other = options, other.batch++;
    new_plan(&p, other, RCV_ESTIMATE, false, NULL);
    other = options, other.dtype = RCV_FLOAT64;
    new_plan(&p, other, RCV_ESTIMATE, false, NULL);
    other = options, other.training = false;
    new_plan(&p, other, RCV_ESTIMATE, false, NULL);
    other = options, other.lengths = true;
    new_plan(&p, other, RCV_ESTIMATE, false, NULL);
    other = options, other.resets = true;
    new_plan(&p, other, RCV_ESTIMATE, false, NULL);
    other = options, other.threads = 2;
    new_plan(&p, other, RCV_ESTIMATE, false, NULL);

    /* It survives in a file. */
    snprintf(path, sizeof path, "%s", path_in("wisdom"));
    check_ok(rcv_wisdom_save(p.context, path));
    new_plan(&q, options, RCV_ESTIMATE, false, NULL);
    check_ok(rcv_wisdom_load(q.context, path));
    new_plan(&q, options, RCV_EXHAUSTIVE, true, second);
    assert_string_equal(first, second);
    unlink(path);
    close_problem(&p);
    close_problem(&q);
}

/* Another cell, size or option of the network, other kernels, another GPU, driver or library: another key. */
static void test_keys(void **state) {
    (void)state;
    static const config nets[] = {
        {"lstm", {.input = 4, .hidden = 6, .layers = 1}, 3, 2, false, false, false},
        {"gru", {.input = 4, .hidden = 6, .layers = 1}, 3, 2, false, false, false},
        {"lstm", {.input = 5, .hidden = 6, .layers = 1}, 3, 2, false, false, false},
        {"lstm", {.input = 4, .hidden = 7, .layers = 1}, 3, 2, false, false, false},
        {"lstm", {.input = 4, .hidden = 6, .layers = 2}, 3, 2, false, false, false},
        {"lstm", {.input = 4, .hidden = 6, .layers = 1, .bidirectional = true}, 3, 2, false, false, false},
        {"lstm", {.input = 4, .hidden = 6, .layers = 1, .no_bias = true}, 3, 2, false, false, false},
        {"lstm", {.input = 4, .hidden = 6, .layers = 1, .rank = 2}, 3, 2, false, false, false},
        {"lstm", {.input = 4, .hidden = 6, .layers = 2, .dropout = 0.5}, 3, 2, false, false, false},
        {"lstm", {.input = 4, .hidden = 6, .layers = 2, .dropout = 0.5, .variational = true}, 3, 2, 0, 0, 0},
        {"lstm", {.input = 4, .hidden = 6, .layers = 2, .zoneout = 0.5}, 3, 2, false, false, false},
        {"lstm", {.input = 4, .hidden = 6, .layers = 2, .zoneout = 0.25}, 3, 2, false, false, false},
        {"lstm_proj",
         {.input = 4, .hidden = 6, .layers = 1, .sizes = proj, .size_count = 1},
         3,
         2,
         false,
         false,
         false},
        {"lstm_proj", {.input = 4, .hidden = 6, .layers = 1}, 3, 2, false, false, false},
    };
    /* The machine of the last ones differs in one member, by the end of a text that may be long. */
    enum { NETS = sizeof nets / sizeof *nets, KEYS = NETS + 10 };
    char *keys[KEYS];
    static const rcvi_machine machine = {.threads = 2, .kernels = "portable"};
    static const char *const processors[] = {"NVIDIA H200 132 multiprocessors", "NVIDIA H200 66 multiprocessors"};
    static const char *const libraries[] = {
        "driver 13.0 580.65.06 runtime 13.0 cuBLASLt 13.0.2 NVRTC 13.0 and a text of more than one hundred characters",
        "driver 13.0 580.95.05 runtime 13.0 cuBLASLt 13.0.2 NVRTC 13.0 and a text of more than one hundred characters",
        "driver 13.0 580.65.06 runtime 13.0 cuBLASLt 13.0.2 NVRTC 13.0 and a text of more than one hundred character"};
    for (int i = 0; i < KEYS; i++) {
        problem p;
        rcvi_machine own = machine;
        if (i == NETS) own.kernels = "other";
        if (i == NETS + 1) own.vendor = "oneDNN 3.5";
        if (i == NETS + 2) own.threads = 1;
        if (i == NETS + 3 || i == NETS + 4) own.processor = processors[i - NETS - 3];
        if (i >= NETS + 5 && i < NETS + 8) own.libraries = libraries[i - NETS - 5];
        open_problem(&p, &nets[i % NETS], 1);
        rcv_plan_options options = options_of(&p, RCV_FLOAT32, true, NULL);
        options.signals = i == NETS + 8;
        options.separate_parameters = i == NETS + 9;
        rcvi_problem described = {.net = p.net, .options = &options, .device = rcvi_devices[0], .machine = own};
        char *key = NULL;
        check_ok(rcvi_problem_key(&described, &key));
        assert_null(strstr(key, " : "));
        for (const char *c = key; *c; c++) assert_true(*c >= ' ' && *c <= '~');
        keys[i] = strdup(key);
        rcv_text_free(p.context, key);
        close_problem(&p);
        for (int k = 0; k < i; k++) assert_string_not_equal(keys[i], keys[k]);
    }
    for (int i = 0; i < KEYS; i++) free(keys[i]);
}

/* Wisdom that does not fit the problem (any more) is left alone, and the log says so. */
static void test_wrong_wisdom(void **state) {
    (void)state;
    static const config one = {"lstm", {.input = 3, .hidden = 4, .layers = 1}, 40, 2, false, false, false};
    static const char *const wrong[] = {"combine+fuse+pack+wavefront", "naive+threads(64)",
                                        "combine(steps=all)+fuse+pack"};
    for (int i = 0; i < 3; i++) {
        problem p;
        char lines[4096] = "";
        open_problem(&p, &one, 1);
        rcv_plan_options options = options_of(&p, RCV_FLOAT32, true, NULL);
        rcvi_problem described = {.net = p.net, .options = &options, .device = rcvi_devices[0]};
        check_ok(described.device->describe(p.context, 0, RCV_FLOAT32, 1, &described.machine));
        described.device->describe_libraries(0, &described.machine);
        char *key = NULL;
        check_ok(rcvi_problem_key(&described, &key));
        rcvi_lesson lesson = {.seconds = 1, .exhaustive = true};
        check_ok(rcvi_rungs_read(wrong[i], &lesson.rungs));
        check_ok(rcvi_wisdom_remember(p.context, key, &lesson));
        rcv_text_free(p.context, key);
        if (i == 2) { /* it fits, but not into the memory that is left */
            rcv_plan *plan = NULL;
            new_plan(&p, options, RCV_ESTIMATE, true, NULL);
            options.schedule = wrong[i];
            check_ok(rcv_plan_new(p.net, &options, &plan));
            options.schedule = NULL;
            options.memory = rcv_plan_bytes(plan) - 1;
            rcv_plan_free(plan);
        }
        p.context->log = keep_lines;
        p.context->log_user = lines;
        new_plan(&p, options, RCV_ESTIMATE, false, NULL);
        assert_non_null(strstr(lines, "not used"));
        close_problem(&p);
    }
}

/* ---- the context ---- */

static void test_context_options(void **state) {
    (void)state;
    rcv_context *context = NULL;
    check_fails(rcv_context_new(&RCV_INIT(rcv_context_options, .threads = -1), &context), RCV_INVALID, "-1 threads");
    check_fails(rcv_context_new(&RCV_INIT(rcv_context_options, .threads = 1025), &context), RCV_INVALID, "1 to 1024");
    assert_null(context);
    check_ok(rcv_context_new(NULL, &context));
    assert_int_equal(rcv_context_threads(context), sysconf(_SC_NPROCESSORS_ONLN));
    rcv_context_free(context);
    check_ok(rcv_context_new(&RCV_INIT(rcv_context_options, .threads = 1024), &context));
    assert_int_equal(rcv_context_threads(context), 1024);
    rcv_context_free(context);
}

static rcv_status plan_with(const char *kernels, char *used) {
    rcv_context *context = NULL;
    rcv_cell *cell = NULL;
    rcv_net *net = NULL;
    rcv_plan *plan = NULL;
    check_ok(rcv_context_new(&RCV_INIT(rcv_context_options, .kernels = kernels, .threads = 1), &context));
    check_ok(rcv_cell_open(context, "gru", &cell));
    check_ok(rcv_net_new(cell, &RCV_INIT(rcv_net_options, .input = 3, .hidden = 4), &net));
    rcv_status status = rcv_plan_new(net, &RCV_INIT(rcv_plan_options, .steps = 2, .batch = 2), &plan);
    if (!status) snprintf(used, 64, "%s", rcv_context_kernels(context));
    rcv_plan_free(plan);
    rcv_net_free(net);
    rcv_cell_free(cell);
    rcv_context_free(context);
    return status;
}

static void test_kernels(void **state) {
    (void)state;
    char used[64];
    size_t count = rcv_kernels_count();
    assert_true(count >= 1);
    assert_null(rcv_kernels_name(count));
    assert_string_equal(rcv_kernels_name(0), "portable");
    unsetenv("RECURVE_KERNELS");
    check_ok(plan_with(NULL, used));
    assert_string_equal(used, rcv_kernels_name(count - 1));
    for (size_t i = 0; i < count; i++) {
        check_ok(plan_with(rcv_kernels_name(i), used));
        assert_string_equal(used, rcv_kernels_name(i));
        setenv("RECURVE_KERNELS", rcv_kernels_name(i), 1);
        check_ok(plan_with(NULL, used));
        assert_string_equal(used, rcv_kernels_name(i));
    }
    setenv("RECURVE_KERNELS", "sparc", 1);
    check_fails(plan_with(NULL, used), RCV_INVALID, "'sparc' of RECURVE_KERNELS");
    for (size_t i = 0; i < count; i++) assert_non_null(strstr(rcv_message(), rcv_kernels_name(i)));
    check_ok(plan_with("portable", used)); /* the context's own word comes first */
    assert_string_equal(used, "portable");
    setenv("RECURVE_KERNELS", "", 1);
    check_ok(plan_with(NULL, used));
    unsetenv("RECURVE_KERNELS");
    check_fails(plan_with("avx1024", used), RCV_INVALID, "no kernels 'avx1024'; it has portable");
}

/* Every allocation of the planner fails once. */
static void check_allocations(rcv_effort effort) {
    size_t fired = 0;
    for (size_t nth = 1;; nth++) {
        static const config tiny = {"rnn_tanh", {.input = 2, .hidden = 2, .layers = 1}, 1, 1, false, false, false};
        problem p;
        open_problem(&p, &tiny, 1);
        size_t live = p.allocator.live;
        rcv_plan *plan = NULL;
        rcv_plan_options options = options_of(&p, RCV_FLOAT32, true, NULL);
        options.effort = effort;
        p.allocator.fail_at = nth;
        rcv_status status = rcv_plan_new(p.net, &options, &plan);
        p.allocator.fail_at = 0;
        if (status && status != RCV_NO_MEMORY) fail_msg("allocation %zu gave %s", nth, rcv_message());
        assert_int_equal(status != RCV_OK, p.allocator.failed);
        assert_int_equal(plan == NULL, status != RCV_OK);
        rcv_plan_free(plan);
        if (status)
            assert_true(p.allocator.live <= live + 3); /* wisdom may have been begun: it ends with the context */
        fired += p.allocator.failed;
        bool last = p.allocator.failed == 0;
        close_problem(&p);
        if (last) break;
    }
    print_message("%zu allocations failed\n", fired);
    assert_true(fired > 20);
}

static void test_allocations(void **state) {
    (void)state;
    check_allocations(RCV_ESTIMATE);
    check_allocations(RCV_EXHAUSTIVE);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_efforts),  cmocka_unit_test(test_model),        cmocka_unit_test(test_model_of_rungs),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_thread_limit), cmocka_unit_test(test_many_threads),
        cmocka_unit_test(test_memory),   cmocka_unit_test(test_too_large),    cmocka_unit_test(test_wisdom),
        cmocka_unit_test(test_keys),     cmocka_unit_test(test_wrong_wisdom), cmocka_unit_test(test_context_options),
        cmocka_unit_test(test_kernels),  cmocka_unit_test(test_allocations)};
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}
