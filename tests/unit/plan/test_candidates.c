/* Every candidate that the planner considers computes what the naive schedule computes in double, and the same bits
 * whenever it is pinned; and what is offered for a GPU. */
#include "planned.h"
#include "sample.h"
#include "schedule/stepwise/stepwise.h"
#include "scratch.h"

static const rcv_size proj[] = {{"proj", 5}}, heads[] = {{"heads", 2}};
static double worst[RCV_BOOL + 1]; /* largest error, by type */

static const config configs[] = {
    {"lstm", {.input = 5, .hidden = 7, .layers = 1}, 9, 3, false, false, true},
    {"lstm", {.input = 19, .hidden = 33, .layers = 3}, 11, 5, false, false, true},
    {"lstm", {.input = 3, .hidden = 6, .layers = 2, .bidirectional = true}, 7, 2, true, true, true},
    {"lstm", {.input = 4, .hidden = 5, .layers = 2, .dropout = 0.4}, 6, 3, false, true, false},
    {"lstm", {.input = 4, .hidden = 5, .layers = 2, .dropout = 0.4, .variational = true}, 6, 3, true, false, true},
    {"lstm", {.input = 4, .hidden = 17, .layers = 2, .zoneout = 0.3}, 7, 3, false, false, true},
    {"gru",
     {.input = 3, .hidden = 6, .layers = 2, .bidirectional = true, .dropout = 0.2, .zoneout = 0.3},
     7,
     4,
     true,
     true,
     true},
    {"qrnn_fo_w2", {.input = 5, .hidden = 8, .layers = 2, .zoneout = 0.3}, 8, 3, false, false, true},
    {"lstm", {.input = 40, .hidden = 48, .layers = 2, .rank = 6}, 5, 1, false, false, false},
    {"gru", {.input = 6, .hidden = 17, .layers = 2}, 10, 4, true, false, true},
    {"gru", {.input = 3, .hidden = 4, .layers = 1, .bidirectional = true, .no_bias = true}, 6, 3, false, false, true},
    {"rnn_tanh", {.input = 8, .hidden = 16, .layers = 3}, 9, 2, false, true, true},
    {"lstm_layernorm", {.input = 5, .hidden = 9, .layers = 2}, 6, 3, false, false, true},
    {"qrnn_fo", {.input = 7, .hidden = 8, .layers = 2}, 8, 3, true, false, true},
    {"slstm", {.input = 4, .hidden = 6, .layers = 2, .sizes = heads, .size_count = 1}, 6, 3, false, false, false},
    {"lstm_proj", {.input = 6, .hidden = 11, .layers = 2, .sizes = proj, .size_count = 1}, 7, 2, false, false, true},
    {"lstm", {.input = 3, .hidden = 4, .layers = 1}, 1, 1, false, false, true},
};

/* What the planner lists for a problem: those that apply are run and compared, the others say why. */
static size_t check_candidates(const problem *p, rcv_dtype dtype, bool training) {
    static size_t index; /* over all problems */
    rcv_plan_options options = options_of(p, dtype, training, NULL);
    options.effort = RCV_ESTIMATE;
    rcv_plan *plan = NULL;
    check_ok(rcv_plan_new(p->net, &options, &plan));
    results want, got, again;
    run_pinned(p, RCV_FLOAT64, training, "naive", &want);
    size_t run = 0;
    for (size_t i = 0; i < rcv_plan_candidate_count(plan); i++) {
        const rcv_candidate *c = rcv_plan_candidate(plan, i);
        if (c->status) {
            rcv_plan *none = NULL;
            rcv_plan_options pinned = options_of(p, dtype, training, c->schedule);
            if (c->status != RCV_UNSUPPORTED) fail_msg("%s is no refusal: %s", c->schedule, c->reason);
            assert_true(c->reason && strlen(c->reason) > 10 && c->bytes == 0 && !c->chosen);
            check_fails(rcv_plan_new(p->net, &pinned, &none), c->status, c->reason);
            continue;
        }
        assert_true(c->bytes > 0 && c->estimate > 0 && c->seconds == 0 && !c->reason);
        if (!sample_takes(index++)) continue;
        run_pinned(p, dtype, training, c->schedule, &got);
        run_pinned(p, dtype, training, c->schedule, &again);
        compare(p, dtype, c->schedule, &got, &want, &worst[dtype]);
        check_same_bits(c->schedule, &got, &again);
        drop(&got);
        drop(&again);
        run++;
    }
    drop(&want);
    rcv_plan_free(plan);
    return run;
}

static void test_candidates(void **state) {
    (void)state;
    static const rcv_dtype dtypes[] = {RCV_FLOAT64, RCV_FLOAT32, RCV_BFLOAT16};
    size_t run = 0;
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        for (int64_t threads = 1; threads <= 2; threads++) {
            problem p;
            open_problem(&p, &configs[i], threads);
            for (int d = 0; d < 3; d++) {
                /* All of it in double; the other types on two threads, where the list is the longest. */
                if (d > 0 && threads == 1) continue;
                run += check_candidates(&p, dtypes[d], true) + check_candidates(&p, dtypes[d], false);
            }
            close_problem(&p);
        }
    }
    print_message("%zu candidates; largest relative error in double %.1e, float %.1e, bfloat16 %.1e\n", run,
                  worst[RCV_FLOAT64], worst[RCV_FLOAT32], worst[RCV_BFLOAT16]);
    assert_true(run > sample_least(500));
}

/* A user's cell with a product that two sums share, which no built-in cell has. */
static void test_shared_product(void **state) {
    (void)state;
    static const char text[] = "cell shared(x) {\n    state h\n    a = U h\n    p = tanh(W x + a + b)\n"
                               "    q = sigmoid(W x + a)\n    h' = p * q + 0.5 * a\n    return h'\n}\n";
    char path[512];
    snprintf(path, sizeof path, "%s", path_in("shared.cell"));
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    problem p;
    open_problem(&p, &(config){path, {.input = 5, .hidden = 7, .layers = 2}, 6, 3, false, false, true}, 2);
    assert_true(check_candidates(&p, RCV_FLOAT64, true) > sample_least(10));
    assert_true(check_candidates(&p, RCV_FLOAT64, false) > sample_least(5));
    close_problem(&p);
    assert_int_equal(remove(path), 0);
}

static const char spread[] = "cell spread(x) {\n    state h\n    matrix M\n    e[hidden] = sigmoid(mean(h))\n"
                             "    h' = tanh(W x + M e)\n    return h'\n}\n";
static const char learned[] = "cell learned(x) {\n    state h\n    vector v\n    matrix M\n"
                              "    h' = tanh(W x + U h + M v)\n    return h'\n}\n";

/* Matrices times operands that are not stored as a row for each sequence: a number that is repeated over columns, and a learned vector, which
 * is one row for all. Also with single rungs, which the planner does not offer. */
static void test_repeated_operands(void **state) {
    (void)state;
    static const char *const texts[] = {spread, learned}, *const names[] = {"spread", "learned"};
    static const char *const plans[] = {"kernels",
                                        "combine",
                                        "combine(steps=all)+blas",
                                        "combine(steps=3)+fuse",
                                        "pack",
                                        "transpose",
                                        "combine(steps=2)+fuse+pack+wavefront",
                                        "combine(steps=2)+fuse+transpose+recompute(every=2)",
                                        "combine(steps=3)+fuse+pack+scan"};
    for (int i = 0; i < 4; i++) {
        problem p;
        results want, got;
        config small = {names[i / 2], {.input = 5, .hidden = 7, .layers = 2}, 7, 3, false, i % 2, true};
        open_problem_of(&p, &small, texts[i / 2], 2);
        run_pinned(&p, RCV_FLOAT64, true, "naive", &want);
        for (size_t k = 0; k < sizeof plans / sizeof *plans; k++) {
            if (lacks_openblas(plans[k])) continue;
            run_pinned(&p, RCV_FLOAT64, true, plans[k], &got);
            compare(&p, RCV_FLOAT64, plans[k], &got, &want, &worst[RCV_FLOAT64]);
            drop(&got);
        }
        drop(&want);
        assert_true(check_candidates(&p, RCV_FLOAT64, true) > sample_least(10));
        assert_true(check_candidates(&p, RCV_BFLOAT16, false) > sample_least(5));
        close_problem(&p);
    }
    if (lacks_openblas("blas")) return;
    problem p; /* so large that products are OpenBLAS's */
    open_problem_of(&p, &(config){"learned", {.input = 64, .hidden = 64, .layers = 1}, 64, 8, 0, 0, true}, learned, 2);
    results want, got;
    run_pinned(&p, RCV_FLOAT64, true, "naive", &want);
    run_pinned(&p, RCV_FLOAT64, true, "combine(steps=all)+fuse+pack+blas", &got);
    compare(&p, RCV_FLOAT64, "blas", &got, &want, &worst[RCV_FLOAT64]);
    drop(&got);
    drop(&want);
    close_problem(&p);
}

/* On the CPU the planner does not offer a wavefront in the forward pass alone; pinned, it works on threads as the others. */
static void test_forward_wave(void **state) {
    (void)state;
    static const char *const plans[] = {"combine(steps=all,forward=1)+fuse+pack+wavefront(forward)+threads(2)",
                                        "combine(steps=4,forward=2)+fuse+pack+wavefront(forward)+threads(2)",
                                        "combine+fuse+transpose+wavefront(forward)+threads(2,split=rows)"};
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        const config *c = &configs[i];
        if (c->net.layers < 2 || c->net.bidirectional || c->net.dropout > 0 || c->batch < 2) continue;
        problem p;
        results want, got, again;
        open_problem(&p, c, 2);
        run_pinned(&p, RCV_FLOAT64, true, "naive", &want);
        for (size_t k = 0; k < sizeof plans / sizeof *plans; k++) {
            run_pinned(&p, RCV_FLOAT64, true, plans[k], &got);
            run_pinned(&p, RCV_FLOAT64, true, plans[k], &again);
            compare(&p, RCV_FLOAT64, plans[k], &got, &want, &worst[RCV_FLOAT64]);
            check_same_bits(plans[k], &got, &again);
            drop(&got);
            drop(&again);
        }
        drop(&want);
        close_problem(&p);
    }
}

/* ---- what is offered for a GPU ---- */

enum { MOST_OFFERS = 64 };
typedef struct {
    rcv_context *context;
    char *plans[MOST_OFFERS];
    int count;
} offers;

static void take_offer(void *user, const rcvi_rungs *rungs) {
    offers *all = user;
    rcvi_text text;
    assert_true(all->count < MOST_OFFERS);
    rcvi_text_init(&text, all->context);
    rcvi_rungs_print(rungs, &text);
    check_ok(rcvi_text_take(&text, &all->plans[all->count]));
    for (int i = 0; i < all->count; i++) {
        if (!strcmp(all->plans[i], all->plans[all->count])) fail_msg("%s is offered twice", all->plans[i]);
    }
    all->count++;
}

static bool is_offered(const offers *all, const char *plan) {
    int i = 0;
    while (i < all->count && strcmp(all->plans[i], plan)) i++;
    return i < all->count;
}

/* No plan twice; passes that differ where one pays forwards and another backwards, and streams around all kinds of loops in training
 * alone. */
static void test_offers(void **state) {
    (void)state;
    static const struct {
        int64_t layers;
        const char *plan;
        bool wanted[2]; /* in inference, in training */
        const char *cell;
    } cases[] = {
        {1, "combine(steps=all)+fuse+pack+scan+graph", {true, true}, "sru"},
        {1, "combine(steps=all)+fuse+pack+scan(newton)+graph", {false, false}, "sru"},
        {1, "combine(steps=all)+fuse+pack+scan(newton)+graph", {true, true}, "gru_diagonal"},
        {1,
         "combine(steps=all)+fuse+pack+scan+persistent+graph",
         {true, true},
         RCV_SOURCE_DIR "/tests/support/cells/mixed.cell"},
        {1, "combine(steps=all)+fuse+pack+scan+persistent+graph", {false, false}, "sru"},
        {1, "combine(steps=all)+fuse+pack+scan+graph", {false, false}, "lstm"},
        {1, "combine+fuse+pack+merge+persistent+graph", {true, true}, "lstm"},
        {1, "combine(steps=all,forward=1)+fuse+pack+merge+persistent+graph", {false, true}, "lstm"},
        {1, "combine(steps=all,forward=1)+fuse+pack+merge+persistent+streams(2)+graph", {false, true}, "lstm"},
        {1, "combine(steps=all)+fuse+pack+merge+persistent+cluster+graph", {true, true}, "lstm"},
        {1, "combine(steps=all)+fuse+pack+merge+persistent+cluster+streams(2)+graph", {false, true}, "lstm"},
        {2, "combine+fuse+pack+wavefront+merge+persistent+graph", {true, true}, "lstm"},
        {2, "combine+fuse+pack+wavefront+merge+persistent+streams(4)+graph", {false, true}, "lstm"},
        {2, "combine(steps=all)+fuse+pack+merge+persistent+streams(2)+graph", {false, true}, "lstm"},
        {2, "combine(steps=all,forward=1)+fuse+pack+wavefront(forward)+merge+persistent+graph", {false, true}, "lstm"},
        {2, "combine(steps=all,forward=1)+fuse+pack+merge+persistent+graph", {false, false}, "lstm"},
    };
    const rcvi_machine machine = {.gpu = true, .threads = 1};
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        bool training = i % 2;
        problem p;
        const char *cell = cases[i / 2].cell;
        open_problem(&p, &(config){cell, {.input = 8, .hidden = 8, .layers = cases[i / 2].layers}, 6, 3, 0, 0, true},
                     1);
        rcv_plan_options options = options_of(&p, RCV_BFLOAT16, training, NULL);
        offers all = {.context = p.context};
        rcvi_stepwise_variants(p.net, &options, &machine, take_offer, &all);
        if (is_offered(&all, cases[i / 2].plan) != cases[i / 2].wanted[training])
            fail_msg("%s, %s, %d layers, training %d", cell, cases[i / 2].plan, (int)cases[i / 2].layers, training);
        for (int k = 0; k < all.count; k++) rcv_text_free(p.context, all.plans[k]);
        close_problem(&p);
    }
}

/* In float32 and tfloat32 training no candidate has both passes as persistent wavefronts, which compile slowly; an exhaustive search has
 * some, and such a plan string applies. */
static void test_slow_to_compile(void **state) {
    (void)state;
    static const rcv_dtype dtypes[] = {RCV_FLOAT32, RCV_TFLOAT32, RCV_BFLOAT16, RCV_FLOAT16};
    const rcvi_machine machine = {.gpu = true, .threads = 1};
    for (int i = 0; i < 32; i++) {
        bool training = i / 4 % 2, narrow = i % 4 >= 2, exhaustive = i >= 16;
        int both = 0, forward = 0;
        problem p;
        rcvi_rungs rungs;
        open_problem(&p, &(config){"lstm", {.input = 8, .hidden = 8, .layers = 2}, 6, i / 8 % 2 ? 3 : 64, 0, 0, true},
                     1);
        rcv_plan_options options = options_of(&p, dtypes[i % 4], training, NULL);
        options.effort = exhaustive ? RCV_EXHAUSTIVE : RCV_MEASURE;
        offers all = {.context = p.context};
        rcvi_stepwise_variants(p.net, &options, &machine, take_offer, &all);
        for (int k = 0; k < all.count; k++) {
            check_ok(rcvi_rungs_read(all.plans[k], &rungs));
            both += rungs.persistent && rungs.wavefront && !rungs.forward_wave;
            forward += rungs.persistent && rungs.wavefront && rungs.forward_wave;
            rcv_text_free(p.context, all.plans[k]);
        }
        assert_int_equal(both > 0, !training || narrow || exhaustive);
        assert_int_equal(forward > 0, training);
        check_ok(rcvi_rungs_read("combine+fuse+pack+wavefront+merge+persistent+graph", &rungs));
        check_ok(rcvi_stepwise_applies(p.net, &options, &rungs, &machine));
        close_problem(&p);
    }
}

/* Every set of kernels that this CPU has, forced through the environment, from the portable one on. */
static void test_kernel_sets(void **state) {
    (void)state;
    static const char *const plans[] = {"kernels+threads(2)", "combine+fuse+pack",
                                        "combine(steps=3)+fuse+pack+threads(2)", "combine(steps=2)+fuse+transpose"};
    static const rcv_dtype dtypes[] = {RCV_FLOAT64, RCV_FLOAT32, RCV_BFLOAT16};
    size_t index = 0;
    for (size_t set = 0; set < rcv_kernels_count(); set++) {
        assert_int_equal(setenv("RECURVE_KERNELS", rcv_kernels_name(set), 1), 0);
        for (size_t i = 1; i < sizeof configs / sizeof *configs; i += 2) {
            problem p;
            results want, got;
            open_problem(&p, &configs[i], 2);
            assert_string_equal(rcv_context_kernels(p.context), rcv_kernels_name(set));
            run_pinned(&p, RCV_FLOAT64, true, "naive", &want);
            for (size_t k = 0; k < 3 * sizeof plans / sizeof *plans; k++) {
                const char *plan = plans[k / 3];
                if (!sample_takes(index++)) continue;
                if (dtypes[k % 3] == RCV_BFLOAT16 && !strstr(plan, "pack")) continue;
                run_pinned(&p, dtypes[k % 3], true, plan, &got);
                compare(&p, dtypes[k % 3], plan, &got, &want, &worst[dtypes[k % 3]]);
                drop(&got);
            }
            drop(&want);
            close_problem(&p);
        }
    }
    assert_int_equal(unsetenv("RECURVE_KERNELS"), 0);
}

/* What the campaign's comparison lets pass that the strict one does not, tensor by tensor, and what it does not. */
static void test_comparison(void **state) {
    (void)state;
    problem p;
    open_problem(&p, &(config){"lstm", {.input = 3, .hidden = 4, .layers = 1}, 2, 2, false, false, true}, 1);
    double y[] = {0.5, 0}, none[] = {0, 0}, moved[] = {0.5, 0.2}, off[] = {0.5, 0.3}, far[] = {0.5, 0.5},
           little[] = {0.003, 0}, much[] = {0.3, 0};
    const struct {
        double *y, *dinitial, *shaken;
        bool strictly, near;
    } cases[] = {
        {y, none, y, true, true},        /* equal */
        {off, none, y, false, false},    /* y is off, and roundings do not move it */
        {off, none, moved, false, true}, /* they do, to the other side of a kink, say */
        {far, none, moved, false, false},
        {y, little, y, false, true}, /* terms of a gradient that cancel, by bfloat16's roundings of them */
        {y, much, y, false, false},
        {off, little, y, false, false}, /* one tensor does not excuse another */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        results all[] = {
            {.values = {y, none}}, {.values = {cases[i].y, cases[i].dinitial}}, {.values = {cases[i].shaken, none}}};
        for (int k = 0; k < 3; k++) {
            all[k].count = 2;
            all[k].names[0] = "y";
            all[k].names[1] = "an initial state's gradient";
            all[k].counts[0] = all[k].counts[1] = 2;
        }
        char sentence[512];
        double error = 0;
        bool strictly = is_near(&p, RCV_BFLOAT16, "x", &all[1], &all[0], &error, sentence, sizeof sentence);
        bool near = is_near_shaken(&p, RCV_BFLOAT16, "x", &all[1], &all[0], &all[2], &error, sentence, sizeof sentence);
        if (strictly != cases[i].strictly || near != cases[i].near) fail_msg("case %zu: %d %d", i, strictly, near);
    }
    close_problem(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_candidates),        cmocka_unit_test(test_shared_product),
                                       cmocka_unit_test(test_repeated_operands), cmocka_unit_test(test_comparison),
                                       cmocka_unit_test(test_forward_wave),      cmocka_unit_test(test_offers),
                                       cmocka_unit_test(test_slow_to_compile),   cmocka_unit_test(test_kernel_sets)};
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}
