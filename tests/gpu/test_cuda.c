/* The device `cuda` against the naive schedule in double on the CPU: every cell, by every rung, in every type. Where there
 * is no GPU, what must hold without one.
 *
 * Most of the time goes into the compiling of kernels, so the work is shared out to processes, as many as there are
 * cores. In the environment: RECURVE_TEST_SMALL=N, N small ones, in this process; RECURVE_TEST_ONLY=PATTERN, tests of such names. */
#include "planned.h"
#include "recurve_bench.h"
#include "schedule/schedule.h"
#include "scratch.h"

#include <sys/wait.h>
#include <unistd.h>

enum { SKIPPED = 77, MOST_PARTS = 16, MOST_LINES = 30 };

static size_t part, parts = 1; /* this process does every `parts`-th of what there is to do */
static bool is_small;
static size_t small_count;

static struct {
    size_t turns, run, refused, failed;
    double worst[RCV_TFLOAT32 + 1]; /* error seen, by type */
} tally;

static bool is_mine(void) { return tally.turns++ % parts == part; }

/* Says what went wrong and goes on: on a GPU it is worth knowing what else does. */
static void report(const char *sentence) {
    if (++tally.failed <= MOST_LINES) print_error("FAILED: %s\n", sentence);
}

static const rcv_size proj[] = {{"proj", 24}}, heads[] = {{"heads", 2}};

static const char *const plans[] = {
    "combine+fuse+pack",
    "naive",
    "naive+graph",
    "combine",
    "combine+fuse",
    "combine+fuse+graph",
    "combine(steps=3)+fuse+pack+graph",
    "combine(steps=all)+fuse+pack+graph",
    "combine+fuse+transpose+graph",
    "combine(steps=3)+fuse+transpose+gemm(choice=1)",
    "combine+fuse+streams(4)",
    "combine+fuse+streams(4)+graph",
    "combine+fuse+pack+wavefront+merge+graph",
    "combine(steps=2)+fuse+pack+wavefront+merge+graph",
    "combine(steps=2)+fuse+wavefront+streams(3)+graph",
    "combine(steps=2)+fuse+pack+recompute(every=2)+graph",
    "combine(steps=all,forward=1)+fuse+pack+wavefront(forward)+merge+streams(4)",
    "combine+fuse+pack+persistent",
    "combine(steps=all)+fuse+pack+merge+persistent+graph",
    "combine+fuse+pack+wavefront+merge+persistent+graph",
    "combine+fuse+pack+wavefront+merge+persistent+streams(3)",
    "combine(steps=all,forward=1)+fuse+pack+wavefront(forward)+merge+persistent+graph",
    "combine+fuse+pack+wavefront+merge+persistent(parts=1)+graph",
    "combine+fuse+pack+persistent(parts=2)+graph",
    "combine(steps=all)+fuse+pack+merge+persistent+cluster+graph",
    "combine(steps=all)+fuse+pack+persistent(parts=1)+cluster",
    "naive+interpret",
    "combine+fuse+interpret",
    "combine(steps=all)+fuse+interpret+graph",
    "combine(steps=3)+fuse+transpose+interpret",
    "combine(steps=all)+fuse+transpose+interpret+graph",
    "combine+fuse+wavefront+merge+interpret+streams(4)+graph",
    "combine(steps=2)+fuse+recompute(every=2)+interpret+graph",
};
enum { PLANS = sizeof plans / sizeof *plans };

static const rcv_dtype dtypes[] = {RCV_BFLOAT16, RCV_FLOAT32, RCV_FLOAT64, RCV_TFLOAT32, RCV_FLOAT16};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

/* ---- everywhere ---- */

static void check_refused(rcv_net *net, rcv_plan_options options, rcv_status status, const char *fragment) {
    rcv_plan *plan = (rcv_plan *)net;
    check_fails(rcv_plan_new(net, &options, &plan), status, fragment);
    assert_null(plan);
}

static void test_names(void **state) {
    (void)state;
    static const char *const wrong[] = {"gpu", "cuda:x", "cuda:-1", "cuda:", "cuda:1x", "cuda1", "CUDA", "cpu:1", ""};
    problem p;
    open_problem(&p, &(config){"lstm", {.input = 3, .hidden = 4, .layers = 2}, 3, 2, false, false, true}, 1);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        rcv_plan_options options = options_of(&p, RCV_FLOAT32, false, "naive");
        char *text = (char *)&p;
        void *memory = &p;
        rcv_status status = rcv_device_describe(p.context, wrong[i], &text);
        if (status != RCV_INVALID && status != RCV_UNSUPPORTED) fail_msg("'%s' is a device", wrong[i]);
        bool cuda = !strncmp(wrong[i], "cuda:", 5); /* a build without CUDA says that first */
        if (!cuda) assert_non_null(strstr(rcv_message(), "there is no device '"));
        assert_null(text);
        options.device = wrong[i];
        check_refused(p.net, options, status, "device");
        assert_int_equal(rcv_memory_new(p.context, wrong[i], 8, &memory), status);
        assert_null(memory);
        rcv_memory_free(p.context, wrong[i], &p); /* nothing */
    }
    close_problem(&p);
}

static void test_cpu(void **state) {
    (void)state;
    static const char *const strings[] = {"naive+graph",
                                          "combine+fuse+merge",
                                          "combine+fuse+streams(4)",
                                          "combine+fuse+pack+wavefront+merge+graph",
                                          "combine+fuse+pack+persistent",
                                          "combine+fuse+interpret"};
    problem p;
    open_problem(&p, &(config){"lstm", {.input = 3, .hidden = 4, .layers = 2}, 3, 2, false, false, true}, 1);
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++)
        check_refused(p.net, options_of(&p, RCV_FLOAT32, true, strings[i]), RCV_UNSUPPORTED, "is for a GPU");
    check_refused(p.net, options_of(&p, RCV_TFLOAT32, true, "naive"), RCV_UNSUPPORTED, "tfloat32");
    check_refused(p.net, options_of(&p, RCV_FLOAT16, true, NULL), RCV_UNSUPPORTED, "float16");
    close_problem(&p);
}

/* They are what they are printed as; run_plan relies on it. */
static void test_strings(void **state) {
    (void)state;
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    for (int i = 0; i < PLANS; i++) {
        rcvi_rungs rungs;
        rcvi_text text;
        char *printed = NULL;
        check_ok(rcvi_rungs_read(plans[i], &rungs));
        rcvi_text_init(&text, context);
        rcvi_rungs_print(&rungs, &text);
        check_ok(rcvi_text_take(&text, &printed));
        assert_string_equal(printed, plans[i]);
        rcv_text_free(context, printed);
    }
    test_context_end(&allocator, context);
}

/* Without a GPU every call fails with one sentence that says why; nothing leaks, and the CPU works as before. */
static void test_absent(void **state) {
    (void)state;
    problem p;
    char sentence[512];
    void *memory = NULL;
    open_problem(&p, &(config){"gru", {.input = 3, .hidden = 4, .layers = 1}, 3, 2, false, false, true}, 1);
    if (!rcv_device_describe(p.context, "cuda", NULL)) {
        close_problem(&p);
        return;
    }
    snprintf(sentence, sizeof sentence, "%s", rcv_message());
    if (!strstr(sentence, "GPU") && !strstr(sentence, "no device cuda") && !strstr(sentence, "driver"))
        fail_msg("this does not say what is missing: %s", sentence);
    size_t live = p.allocator.live;
    rcv_plan_options options = options_of(&p, RCV_BFLOAT16, true, NULL);
    options.device = "cuda";
    check_refused(p.net, options, RCV_UNSUPPORTED, sentence);
    options.schedule = "combine+fuse+pack+graph";
    check_refused(p.net, options, RCV_UNSUPPORTED, sentence);
    check_fails(rcv_memory_new(p.context, "cuda", 8, &memory), RCV_UNSUPPORTED, sentence);
    double peak = 0;
    check_fails(rcv_measure_device(p.context, "cuda", RCV_FLOAT32, &peak), RCV_UNSUPPORTED, "");
    assert_int_equal(p.allocator.live, live);
    results got;
    run_oracle(&p, true, &got);
    drop(&got);
    close_problem(&p);
}

/* ---- every cell, rung and type ---- */

static const config shapes[] = {
    {NULL, {.input = 32, .hidden = 40, .layers = 3}, 7, 20, false, false, true}, /* the one for all plans */
    {NULL, {.input = 32, .hidden = 64, .layers = 3}, 5, 20, false, false, true},
    {NULL, {.input = 8, .hidden = 40, .layers = 2}, 6, 70, true, false, true},
    {NULL, {.input = 19, .hidden = 34, .layers = 3}, 9, 5, false, true, true},
    {NULL, {.input = 3, .hidden = 26, .layers = 2, .bidirectional = true}, 7, 2, true, true, true},
    {NULL, {.input = 4, .hidden = 24, .layers = 2, .dropout = 0.4}, 6, 3, false, true, false},
    {NULL, {.input = 4, .hidden = 24, .layers = 2, .dropout = 0.4, .variational = true}, 6, 5, true, false, true},
    {NULL, {.input = 32, .hidden = 40, .layers = 2, .zoneout = 0.3}, 7, 20, false, false, true},
    {NULL, {.input = 8, .hidden = 24, .layers = 2, .bidirectional = true, .zoneout = 0.3}, 6, 5, true, true, true},
    {NULL, {.input = 40, .hidden = 48, .layers = 2, .rank = 6}, 5, 1, false, false, false},
    {NULL, {.input = 3, .hidden = 24, .layers = 1, .bidirectional = true, .no_bias = true}, 6, 3, false, false, true},
    {NULL, {.input = 3, .hidden = 28, .layers = 2}, 1, 1, false, false, true},
    {NULL, {.input = 8, .hidden = 40, .layers = 3, .reverse = true}, 7, 20, false, false, true},
    {NULL, {.input = 8, .hidden = 24, .layers = 2, .dropout = 1, .reverse = true}, 6, 5, true, true, true},
};
enum { SHAPES = sizeof shapes / sizeof *shapes };

typedef struct {
    problem p;
    results want[2]; /* of inference, of training; computed when first asked for */
} case_of;

static void open_case(case_of *k, const char *cell, const config *shape, bool restart) {
    config c = *shape;
    c.cell = cell;
    bool has_proj = !strcmp(cell, "lstm_proj"), has_heads = !strcmp(cell, "slstm");
    c.net.sizes = has_proj ? proj : has_heads ? heads : NULL;
    c.net.size_count = has_proj || has_heads;
    memset(k, 0, sizeof *k);
    open_problem(&k->p, &c, 1);
    k->p.device = "cuda";
    k->p.restart = restart && c.resets;
}

static void close_case(case_of *k) {
    for (int i = 0; i < 2; i++) drop(&k->want[i]);
    close_problem(&k->p);
}

/* A plan is made once and run twice, for the same bits; what a library computes may differ in the last ones. */
static void check_plan(case_of *k, const rcv_plan *plan, rcv_dtype dtype, bool training) {
    const char *schedule = rcv_plan_string(plan);
    results got, again, *want = &k->want[training];
    char sentence[512];
    if (!want->count) run_oracle(&k->p, training, want);
    run_plan(&k->p, plan, dtype, training, &got);
    run_plan(&k->p, plan, dtype, training, &again);
    if (!is_near(&k->p, dtype, schedule, &got, want, &tally.worst[dtype], sentence, sizeof sentence))
        report(sentence);
    else if (!strstr(schedule, "vendor") && !has_same_bits(schedule, &got, &again, sentence, sizeof sentence))
        report(sentence);
    drop(&got);
    drop(&again);
    tally.run++;
}

/* A refusal of these is none that a cell or a kernel causes. */
static bool is_refusal(rcv_status status, const char *sentence) {
    static const char *const known[] = {"wavefront",           "recompute",  "leave pack out",   "a persistent kernel ",
                                        "parts of persistent", "a cluster ", "this is inference"};
    bool found = false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) found |= strstr(sentence, known[i]) != NULL;
    return status == RCV_UNSUPPORTED && found;
}

static void check_pinned(case_of *k, const char *schedule, rcv_dtype dtype, bool training) {
    rcv_plan_options options = options_of(&k->p, dtype, training, schedule);
    rcv_plan *plan = NULL;
    rcv_status status = rcv_plan_new(k->p.net, &options, &plan);
    if (!status) {
        check_plan(k, plan, dtype, training);
    } else if (is_refusal(status, rcv_message())) {
        tally.refused++;
        if (strstr(rcv_message(), "leave pack out")) print_message("refused: %s\n", rcv_message());
    } else {
        char sentence[512];
        snprintf(sentence, sizeof sentence, "%s by %s in %s: %s", k->p.c.cell, schedule, rcv_dtype_name(dtype),
                 rcv_message());
        report(sentence);
    }
    rcv_plan_free(plan);
}

static void end_tally(const char *what) {
    print_message("%s, part %zu of %zu: %zu plans, %zu refused, %zu failed; largest relative error in double %.1e, "
                  "float %.1e, tfloat32 %.1e, float16 %.1e, bfloat16 %.1e\n",
                  what, part + 1, parts, tally.run, tally.refused, tally.failed, tally.worst[RCV_FLOAT64],
                  tally.worst[RCV_FLOAT32], tally.worst[RCV_TFLOAT32], tally.worst[RCV_FLOAT16],
                  tally.worst[RCV_BFLOAT16]);
    size_t failed = tally.failed;
    memset(&tally, 0, sizeof tally);
    if (failed) fail_msg("%zu failed", failed);
}

/* The built-in cells, then those of the tests. */
static const char *const own_cells[] = {RCV_SOURCE_DIR "/tests/support/cells/normal.cell",
                                        RCV_SOURCE_DIR "/tests/support/cells/constants.cell",
                                        RCV_SOURCE_DIR "/tests/support/cells/quotient.cell"};

static const char *cell_name(size_t c, size_t first_own) {
    return c < rcv_builtin_count() ? rcv_builtin_name(c) : own_cells[first_own + c - rcv_builtin_count()];
}

static void test_plans(void **state) {
    (void)state;
    for (size_t n = 0; n < (rcv_builtin_count() + 2) * PLANS && !is_small; n++) {
        size_t c = n / PLANS, i = n % PLANS;
        const char *cell = cell_name(c, 0);
        if (!is_mine()) continue;
        case_of k;
        open_case(&k, cell, &shapes[0], false);
        check_pinned(&k, plans[i], RCV_BFLOAT16, true);
        check_pinned(&k, plans[i], RCV_FLOAT32, true);
        check_pinned(&k, plans[i], dtypes[2 + (c + i) % 3], true);
        if ((c + i) % 3 == 0) check_pinned(&k, plans[i], dtypes[(c + i) % DTYPES], false);
        close_case(&k);
    }
    end_tally("plans");
}

/* Every other shape with two of the plans, chosen so that each plan is tested with all types and shapes. */
static void test_shapes(void **state) {
    (void)state;
    for (size_t c = 0; c < rcv_builtin_count() && !is_small; c++) {
        for (size_t s = 1; s < SHAPES; s++) {
            if (!is_mine()) continue;
            case_of k;
            open_case(&k, rcv_builtin_name(c), &shapes[s], (c + s) % 2);
            for (size_t i = 0; i < 2; i++) {
                size_t plan = (5 * c + 3 * s + 7 * i) % PLANS, dtype = (c + s + i) % DTYPES;
                check_pinned(&k, plans[plan], dtypes[dtype], (c + 2 * s + i) % 4 != 0);
            }
            close_case(&k);
        }
    }
    end_tally("shapes");
}

/* Sequences of different lengths by every plan, with and without resets, or these alone, and a cell that divides by what ended ones do
 * not compute. */
static void test_ragged(void **state) {
    (void)state;
    static const int ragged[] = {4, 2, 3};
    for (size_t c = 0; c < rcv_builtin_count() + 2 && !is_small; c++) {
        const char *cell = cell_name(c, 1);
        for (size_t i = 0; i < PLANS; i++) {
            if (!is_mine()) continue;
            case_of k;
            open_case(&k, cell, &shapes[ragged[(c + i) % 3]], c / 2 % 2);
            check_pinned(&k, plans[i], dtypes[(c + 2 * i) % DTYPES], true);
            close_case(&k);
        }
    }
    end_tally("ragged");
}

/* So many sequences that a block of a persistent kernel has several tiles of them, of which some end before others. */
static void test_ragged_tiles(void **state) {
    (void)state;
    static const config many = {NULL, {.input = 8, .hidden = 40, .layers = 2}, 6, 2200, true, false, true};
    static const char *const cells[] = {"lstm", "gru"};
    for (size_t i = 0; i < 2 * PLANS && !is_small; i++) {
        const char *plan = plans[i / 2];
        if (!strstr(plan, "persistent") || !is_mine()) continue;
        case_of k;
        open_case(&k, cells[i % 2], &many, false);
        check_pinned(&k, plan, RCV_BFLOAT16, true);
        check_pinned(&k, plan, RCV_TFLOAT32, i / 2 % 2);
        close_case(&k);
    }
    end_tally("tiles of ragged sequences");
}

/* So large that products of the whole sequence are the library's, from biases and over all gates' adjoints, those of float32 around
 * persistent kernels in parts; rows of x, or of all, do not begin at multiples of 16 bytes. */
static void test_library(void **state) {
    (void)state;
    static const config large[] = {{NULL, {.input = 477, .hidden = 480, .layers = 1}, 20, 60, false, false, true},
                                   {NULL, {.input = 480, .hidden = 480, .layers = 1}, 20, 60, true, false, true},
                                   {NULL, {.input = 478, .hidden = 486, .layers = 1}, 20, 60, false, false, true}};
    static const char *const cells[] = {"lstm", "gru"};
    for (size_t i = 0; i < 6 && !is_small; i++) {
        if (!is_mine()) continue;
        case_of k;
        open_case(&k, cells[i % 2], &large[i / 2], false);
        for (size_t d = 0; d < DTYPES; d++) {
            check_pinned(&k, "combine(steps=all)+fuse+pack+merge+persistent+graph", dtypes[d], true);
            check_pinned(&k, "combine(steps=all)+fuse+pack+graph", dtypes[d], d % 2);
        }
        check_pinned(&k, "combine(steps=all)+fuse+pack+persistent(parts=2)+streams(4)", RCV_FLOAT32, true);
        close_case(&k);
    }
    static const config odd = {NULL, {.input = 478, .hidden = 486, .layers = 3, .dropout = 0.3}, 20, 60, false, false,
                               true};
    static const char *const beside[] = {"combine(steps=all)+fuse+pack+merge+persistent+streams(2)+graph",
                                         "combine(steps=all)+fuse+pack+merge+persistent+streams(4)",
                                         "combine(steps=all)+fuse+pack+persistent+streams(3)+graph"};
    for (size_t i = 0; i < 2 && !is_small; i++) { /* gradients of a layer beside the loop of another */
        if (!is_mine()) continue;
        case_of k;
        open_case(&k, cells[i], &odd, false);
        for (size_t w = 0; w < sizeof beside / sizeof *beside; w++) {
            check_pinned(&k, beside[w], RCV_BFLOAT16, true);
            check_pinned(&k, beside[w], dtypes[w % DTYPES], true);
        }
        close_case(&k);
    }
    static const config deep = {NULL, {.input = 256, .hidden = 264, .layers = 3}, 20, 60, false, false, true};
    static const char *const waves[] = {
        "combine(steps=all,forward=1)+fuse+pack+wavefront(forward)+merge+persistent+graph",
        "combine(steps=all,forward=1)+fuse+pack+wavefront(forward)+merge+persistent+streams(4)+graph",
        "combine+fuse+pack+wavefront+merge+persistent+streams(4)"};
    for (size_t i = 0; i < 2 && !is_small; i++) {
        if (!is_mine()) continue;
        case_of k;
        open_case(&k, cells[i], &deep, false);
        for (size_t w = 0; w < sizeof waves / sizeof *waves; w++) check_pinned(&k, waves[w], RCV_FLOAT32, true);
        close_case(&k);
    }
    end_tally("products by the library");
}

static void test_small(void **state) {
    (void)state;
    static const config few[] = {{NULL, {.input = 8, .hidden = 16, .layers = 2}, 4, 3, false, false, true},
                                 {NULL, {.input = 3, .hidden = 6, .layers = 2}, 3, 2, true, true, true}};
    static const char *const cells[] = {"lstm", "gru", "lstm_layernorm", "qrnn_fo"};
    static const int some[] = {0, 1, 6, 9, 11};
    for (size_t n = 0; n < small_count; n++) {
        size_t i = n * 40 / small_count; /* of 40 */
        case_of k;
        open_case(&k, cells[i / 2 % 4], &few[i % 2], true);
        print_message("%s, %s, %s\n", cells[i / 2 % 4], plans[some[i / 8]], rcv_dtype_name(dtypes[i / 8 % 2]));
        check_pinned(&k, plans[some[i / 8]], dtypes[i / 8 % 2], true);
        close_case(&k);
    }
    end_tally("small");
}

/* Persistent kernels, where all of the small ones run: not under racecheck, which takes a bulk copy for a race with what reads it behind
 * its barrier. Clusters have two blocks at least: memcheck takes a store to the only one's own memory for an error. */
static void test_small_loops(void **state) {
    (void)state;
    static const config few[] = {{NULL, {.input = 8, .hidden = 136, .layers = 2}, 4, 9, false, false, true},
                                 {NULL, {.input = 5, .hidden = 129, .layers = 2}, 3, 20, true, true, true}};
    static const char *const cells[] = {"lstm", "gru"};
    static const char *const loops[] = {"combine+fuse+pack+wavefront+merge+persistent+graph",
                                        "combine(steps=all)+fuse+pack+merge+persistent",
                                        "combine(steps=all)+fuse+pack+merge+persistent+cluster"};
    for (size_t i = 0; i < 12 && small_count >= 40; i++) {
        case_of k;
        rcv_dtype dtype = i < 6 ? RCV_BFLOAT16 : RCV_FLOAT32;
        open_case(&k, cells[i % 2], &few[i / 6], true);
        print_message("%s, %s, %s\n", cells[i % 2], loops[i / 2 % 3], rcv_dtype_name(dtype));
        check_pinned(&k, loops[i / 2 % 3], dtype, true);
        close_case(&k);
    }
    end_tally("small loops");
}

/* ---- what the planner lists ---- */

static const config listed[] = {
    {"lstm", {.input = 32, .hidden = 40, .layers = 2}, 8, 6, false, false, true},
    {"lstm", {.input = 19, .hidden = 33, .layers = 3}, 11, 5, false, false, false},
    {"lstm", {.input = 3, .hidden = 16, .layers = 2, .bidirectional = true}, 7, 2, true, true, true},
    {"gru", {.input = 8, .hidden = 24, .layers = 2}, 19, 9, false, false, true},
    {"gru", {.input = 3, .hidden = 20, .layers = 1, .bidirectional = true, .no_bias = true}, 6, 3, false, false, true},
    {"rnn_tanh", {.input = 8, .hidden = 16, .layers = 3}, 9, 2, false, false, true},
    {"rnn_relu", {.input = 16, .hidden = 24, .layers = 1, .bidirectional = true}, 5, 4, false, false, false},
    {"lstm_layernorm", {.input = 24, .hidden = 32, .layers = 2}, 18, 3, false, false, true},
    {"lstm", {.input = 3, .hidden = 4, .layers = 1}, 1, 1, false, false, true},
    {"lstm", {.input = 8, .hidden = 24, .layers = 2, .reverse = true}, 9, 7, false, false, true},
    {"gru", {.input = 8, .hidden = 24, .layers = 2, .reverse = true}, 9, 7, true, false, true},
};

static void check_listed(case_of *k, rcv_dtype dtype, bool training) {
    rcv_plan_options options = options_of(&k->p, dtype, training, NULL);
    options.effort = RCV_ESTIMATE;
    rcv_plan *plan = NULL;
    check_ok(rcv_plan_new(k->p.net, &options, &plan));
    for (size_t i = 0; i < rcv_plan_candidate_count(plan); i++) {
        const rcv_candidate *c = rcv_plan_candidate(plan, i);
        if (c->status) {
            bool vendor = strstr(c->schedule, "vendor") && c->status == RCV_UNSUPPORTED;
            if (!vendor && !is_refusal(c->status, c->reason)) report(c->reason);
            tally.refused++;
            continue;
        }
        assert_true(c->bytes > 0 && c->estimate > 0 && c->seconds == 0 && !c->reason);
        options.schedule = c->schedule;
        rcv_plan *pinned = NULL;
        check_ok(rcv_plan_new(k->p.net, &options, &pinned));
        assert_int_equal(rcv_plan_bytes(pinned), c->bytes);
        check_plan(k, pinned, dtype, training);
        rcv_plan_free(pinned);
    }
    rcv_plan_free(plan);
}

static void test_candidates(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof listed / sizeof *listed && !is_small; i++) {
        for (size_t d = 0; d < DTYPES; d++) {
            bool some = d < 2 || (i + d) % 3 == 0;
            if (!some || !is_mine()) continue;
            case_of k;
            open_case(&k, listed[i].cell, &listed[i], false);
            check_listed(&k, dtypes[d], true);
            if ((i + d) % 2) check_listed(&k, dtypes[d], false);
            close_case(&k);
        }
    }
    end_tally("candidates");
}

/* Arrays in declared types and in the batch-major order, by plans of every kind. */
static void test_arrays(void **state) {
    (void)state;
    static const config small[] = {
        {"lstm", {.input = 16, .hidden = 40, .layers = 2}, 7, 9, false, false, true},
        {"gru", {.input = 19, .hidden = 24, .layers = 2, .bidirectional = true}, 6, 5, true, true, true},
        {"sru", {.input = 24, .hidden = 24, .layers = 2}, 9, 6, false, false, true},
        {"lstm", {.input = 8, .hidden = 34, .layers = 2, .reverse = true}, 8, 20, true, false, true},
    };
    static const char *const kinds[] = {"naive+graph",
                                        "combine+fuse+transpose+graph",
                                        "combine(steps=all)+fuse+streams(4)+graph",
                                        "combine(steps=all)+fuse+pack",
                                        "combine+fuse+pack+wavefront+merge+graph",
                                        "combine+fuse+pack+wavefront+merge+persistent+graph",
                                        "combine(steps=all)+fuse+pack+merge+persistent+streams(2)+graph",
                                        "combine(steps=all)+fuse+pack+scan+graph",
                                        "combine(steps=all)+fuse+interpret+graph"};
    enum { ARRAYS = RCV_AS_BFLOAT16 + 1, KINDS = sizeof kinds / sizeof *kinds };
    for (size_t i = 0; i < sizeof small / sizeof *small * DTYPES * ARRAYS * 2 && !is_small; i++) {
        case_of k;
        if (!is_mine()) continue;
        const config *c = &small[i / (DTYPES * ARRAYS * 2)];
        open_case(&k, c->cell, c, false);
        k.p.data_type = (rcv_array_type)(i / 2 % ARRAYS);
        k.p.state_type = (rcv_array_type)((i / 2 + i / (ARRAYS * 2)) % ARRAYS);
        k.p.batch_major = i % 2;
        k.p.parameter_type = (rcv_array_type)((i / 2 + i / 7) % ARRAYS);
        k.p.gradient_type = (rcv_array_type)((i / 2 + i / 3) % ARRAYS);
        k.p.separate = i / 2 % 3 == 0;
        k.p.device_lengths = c->lengths && i / 2 % 2;
        for (size_t n = 0; n < KINDS; n++) {
            rcv_dtype dtype = dtypes[i / (ARRAYS * 2) % DTYPES];
            bool persistent = strstr(kinds[n], "persistent"), waves = strstr(kinds[n], "wavefront");
            if ((i + n) % 2 || (persistent && dtype == RCV_FLOAT64) || (waves && c->net.bidirectional)) continue;
            check_pinned(&k, kinds[n], dtype, i % 3 > 0);
        }
        close_case(&k);
    }
    end_tally("arrays");
}

/* Times what it lists, remembers what won, and recalls it from a file. */
static void test_measured(void **state) {
    (void)state;
    if (part != 0 || is_small) return;
    case_of k;
    open_case(&k, "lstm", &(config){NULL, {.input = 64, .hidden = 64, .layers = 2}, 20, 16, false, false, true}, false);
    rcv_plan_options options = options_of(&k.p, RCV_BFLOAT16, true, NULL);
    rcv_plan *plan = NULL, *again = NULL;
    check_ok(rcv_plan_new(k.p.net, &options, &plan));
    print_message("measured in %.2f s: %s\n", rcv_plan_seconds(plan), rcv_plan_string(plan));
    assert_false(rcv_plan_from_wisdom(plan));
    size_t timed = 0;
    for (size_t i = 0; i < rcv_plan_candidate_count(plan); i++) timed += rcv_plan_candidate(plan, i)->seconds > 0;
    assert_true(timed > 1);
    check_plan(&k, plan, RCV_BFLOAT16, true);
    char path[512];
    snprintf(path, sizeof path, "%s", path_in("wisdom"));
    check_ok(rcv_wisdom_save(k.p.context, path));
    case_of other;
    open_case(&other, "lstm", &k.p.c, false);
    check_ok(rcv_wisdom_load(other.p.context, path));
    check_ok(rcv_plan_new(other.p.net, &options, &again));
    assert_true(rcv_plan_from_wisdom(again));
    assert_string_equal(rcv_plan_string(again), rcv_plan_string(plan));
    rcv_plan_free(again);
    rcv_plan_free(plan);
    close_case(&other);
    close_case(&k);
    assert_int_equal(remove(path), 0);
    end_tally("measured");
}

static void test_peak(void **state) {
    (void)state;
    if (part != 0 || is_small) return;
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    double peaks[DTYPES];
    char *text = NULL;
    check_ok(rcv_device_describe(context, "cuda", &text));
    print_message("%s\n", text);
    rcv_text_free(context, text);
    for (int d = 0; d < DTYPES; d++) {
        check_ok(rcv_measure_device(context, "cuda", dtypes[d], &peaks[d]));
        print_message("%s: %.1f TFLOP/s\n", rcv_dtype_name(dtypes[d]), peaks[d] / 1e12);
        assert_true(peaks[d] > 1e10);
    }
    assert_true(peaks[0] > peaks[1]);
    test_context_end(&allocator, context);
}

/* ---- processes ---- */

static int run_everywhere(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names), cmocka_unit_test(test_cpu),
                                       cmocka_unit_test(test_strings), cmocka_unit_test(test_absent)};
    if (cmocka_run_group_tests(tests, NULL, NULL)) return 1;
#ifdef __SANITIZE_ADDRESS__
    print_message("skipped: what needs a GPU is not run under the address sanitizer, but by make check-cuda\n");
    return SKIPPED;
#else
    rcv_context *context = NULL;
    if (rcv_context_new(NULL, &context)) return 1;
    rcv_status status = rcv_device_describe(context, "cuda", NULL);
    if (status) print_message("skipped: what needs a GPU: %s\n", rcv_message());
    rcv_context_free(context);
    return status ? SKIPPED : 0;
#endif
}

static int run_part(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans),        cmocka_unit_test(test_shapes),     cmocka_unit_test(test_ragged),
        cmocka_unit_test(test_ragged_tiles), cmocka_unit_test(test_library),    cmocka_unit_test(test_small),
        cmocka_unit_test(test_small_loops),  cmocka_unit_test(test_candidates), cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_measured),     cmocka_unit_test(test_peak)};
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down) != 0;
}

/* CUDA does not survive a fork, so the parent never uses it. */
static pid_t start(int (*work)(void)) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        int status = work();
        fflush(NULL);
        _exit(status);
    }
    return child;
}

static int status_of(pid_t child) {
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) < 0) return 1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

int main(void) {
    const char *small = getenv("RECURVE_TEST_SMALL"), *only = getenv("RECURVE_TEST_ONLY");
    if (only) cmocka_set_test_filter(only);
    is_small = small != NULL;
    small_count = small ? (size_t)strtoul(small, NULL, 10) : 0;
    int status = is_small ? run_everywhere() : status_of(start(run_everywhere));
    if (status) return status;
    if (is_small) return run_part();
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    pid_t children[MOST_PARTS];
    parts = cores < 2 ? 1 : cores < MOST_PARTS ? (size_t)cores : MOST_PARTS;
    for (part = 0; part < parts; part++) children[part] = start(run_part);
    for (size_t i = 0; i < parts; i++) status |= status_of(children[i]);
    print_message(status ? "test_cuda: FAILED\n" : "test_cuda: all passed\n");
    return status;
}
