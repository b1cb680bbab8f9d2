/* Loop distribution (rung `scan`): every recurrence of a cell in its own loop, compared with naive in double; products with results of earlier
 * loops are outside of loops. */
#include "cell/distribute.h"
#include "generator.h"
#include "net/net.h"
#include "planned.h"
#include "scratch.h"

#include <stdio.h>

static const char *const plans[] = {
    "combine(steps=all)+fuse+pack+scan",
    "scan",
    "combine(steps=3)+fuse+pack+scan",
    "combine(steps=all,forward=3)+fuse+pack+scan+threads(2)",
    "combine+fuse+scan",
    "combine(steps=3)+fuse+pack+scan+recompute(every=3)",
    "combine(steps=all)+fuse+transpose+scan+threads(2,split=rows)",
};
enum { PLANS = sizeof plans / sizeof *plans };

static void check_plan(const problem *p, rcv_dtype dtype, bool training, const char *schedule, const results *want) {
    results got;
    double worst = 0;
    run_pinned(p, dtype, training, schedule, &got);
    compare(p, dtype, schedule, &got, want, &worst);
    drop(&got);
}

static void check_problem(const config *c, int first, int count) {
    problem p;
    open_problem(&p, c, 2);
    results inference, training;
    run_oracle(&p, false, &inference);
    run_oracle(&p, true, &training);
    for (int i = first; i < first + count; i++) {
        const char *schedule = plans[i % PLANS];
        bool packs = strstr(schedule, "pack"),
             inferring = !strstr(schedule, "recompute") && !strstr(schedule, "forward");
        check_plan(&p, RCV_FLOAT64, true, schedule, &training);
        check_plan(&p, RCV_FLOAT32, true, schedule, &training);
        if (packs) check_plan(&p, RCV_BFLOAT16, true, schedule, &training);
        if (inferring) check_plan(&p, RCV_FLOAT64, false, schedule, &inference);
    }
    drop(&inference);
    drop(&training);
    close_problem(&p);
}

static void every_cell(void **state) {
    (void)state;
    for (size_t i = 0; i < rcv_builtin_count(); i++) {
        config c = {.cell = rcv_builtin_name(i),
                    .net = {.input = 5, .hidden = 6, .layers = 1 + (int64_t)(i % 2), .bidirectional = i % 3 == 0},
                    .steps = 8,
                    .batch = 3,
                    .initial = true};
        check_problem(&c, 0, PLANS);
    }
}

static void every_option(void **state) {
    (void)state;
    static const char *const cells[] = {"gilr_lstm", "qrnn_ifo_w2", "sru", "lstm", "minlstm", "sru2"};
    for (int i = 0; i < 6 * 8; i++) {
        config c = {.cell = cells[i / 8],
                    .net = {.input = 4, .hidden = 5, .layers = 2, .bidirectional = i & 4},
                    .steps = 7,
                    .batch = 3,
                    .lengths = i & 1,
                    .resets = i & 2,
                    .initial = i % 3 > 0};
        check_problem(&c, i, 3);
    }
}

/* Random cells. */
static void random_cells(void **state) {
    (void)state;
    for (uint64_t seed = 0; seed < 80; seed++) {
        char path[512];
        snprintf(path, sizeof path, "%s", path_in("random.cell"));
        generate_cell_file(seed, path);
        config c = {.cell = path,
                    .net = {.input = 3, .hidden = 4, .layers = 1 + (int64_t)(seed % 2), .bidirectional = seed % 3 == 0},
                    .steps = 7,
                    .batch = 2,
                    .lengths = seed % 5 == 0,
                    .resets = seed % 4 == 0,
                    .initial = true};
        problem p;
        open_problem(&p, &c, 2);
        results want;
        run_oracle(&p, true, &want);
        check_plan(&p, RCV_FLOAT64, true, plans[seed % PLANS], &want);
        drop(&want);
        close_problem(&p);
        remove(path);
    }
}

/* ---- parts ---- */

static void check_parts(const char *cell, bool backward, int count, const rcvi_class *classes) {
    config c = {.cell = cell, .net = {.input = 4, .hidden = 5}, .steps = 3, .batch = 2};
    problem p;
    open_problem(&p, &c, 1);
    rcvi_pool pool;
    rcvi_pool_init(&pool, p.context);
    const rcvi_layer *layer = &p.net->layers[0];
    rcvi_distribution parts;
    assert_true(rcvi_distribute(&pool, backward ? &layer->adjoint : &layer->forward, true, &parts));
    if (parts.count != count) fail_msg("%s has %d parts, not %d", cell, parts.count, count);
    for (int i = 0; i < count; i++) {
        if (parts.classes[i] != classes[i])
            fail_msg("part %d of %s is of class %s", i, cell, rcvi_class_names[parts.classes[i]]);
    }
    rcvi_pool_free(&pool);
    close_problem(&p);
}

static void parts_of_cells(void **state) {
    (void)state;
    for (int backward = 0; backward < 2; backward++) {
        check_parts("lstm", backward, 1, (rcvi_class[]){RCVI_DENSE});
        check_parts("sru", backward, 1, (rcvi_class[]){RCVI_SCAN});
        check_parts("gilr_lstm", backward, 2, (rcvi_class[]){RCVI_SCAN, RCVI_SCAN});
    }
    check_parts("indrnn", false, 1, (rcvi_class[]){RCVI_DIAGONAL});
    check_parts("indrnn", true, 1, (rcvi_class[]){RCVI_SCAN});
    check_parts("qrnn_fo_w2", false, 2, (rcvi_class[]){RCVI_MAP, RCVI_SCAN});
    check_parts("qrnn_fo_w2", true, 2, (rcvi_class[]){RCVI_SCAN, RCVI_MAP});
}

/* Loops of the plan's program, and those of them in which something is multiplied. */
static int count_loops(const problem *p, const char *schedule, bool products) {
    rcv_plan *plan = NULL;
    rcv_plan_options options = options_of(p, RCV_FLOAT32, true, schedule);
    char *text = NULL;
    check_ok(rcv_plan_new(p->net, &options, &plan));
    check_ok(rcv_plan_print(plan, &text));
    int loops = 0, multiplying = 0;
    bool multiplies = false;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        if (strstr(line, " loop ")) {
            loops++;
            multiplies = false;
        } else if (strstr(line, "   map ") && strstr(line, "*i") && strstr(line, " depth ") && !strstr(line, "..+")) {
            multiplying += !multiplies;
            multiplies = true;
        }
    }
    rcv_text_free(p->context, text);
    rcv_plan_free(plan);
    return products ? multiplying : loops;
}

/* With distributed recurrences, a GILR-LSTM has no product inside a loop. */
static void products_stand_outside(void **state) {
    (void)state;
    config c = {.cell = "gilr_lstm", .net = {.input = 4, .hidden = 5}, .steps = 9, .batch = 2};
    problem p;
    open_problem(&p, &c, 1);
    assert_int_equal(count_loops(&p, "combine(steps=all)+fuse+pack", true), 2);
    assert_int_equal(count_loops(&p, "combine(steps=all)+fuse+pack+scan", false), 4);
    assert_int_equal(count_loops(&p, "combine(steps=all)+fuse+pack+scan", true), 0);
    close_problem(&p);
}

static void what_does_not_go_together(void **state) {
    (void)state;
    config c = {.cell = "gilr_lstm", .net = {.input = 4, .hidden = 5, .layers = 2}, .steps = 9, .batch = 2};
    problem p;
    open_problem(&p, &c, 1);
    rcv_plan *plan = NULL;
    rcv_plan_options options = options_of(&p, RCV_FLOAT32, false, "combine+fuse+pack+wavefront+scan");
    assert_int_equal(rcv_plan_new(p.net, &options, &plan), RCV_UNSUPPORTED);
    assert_non_null(strstr(rcv_message(), "choose one"));
    close_problem(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(parts_of_cells),
                                       cmocka_unit_test(products_stand_outside),
                                       cmocka_unit_test(what_does_not_go_together),
                                       cmocka_unit_test(every_cell),
                                       cmocka_unit_test(every_option),
                                       cmocka_unit_test(random_cells)};
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}
