/* Loops that are recurrences, in calls of other sizes than the plan's, without a GPU: their numbers are those of the same loop in a program
 * that was written for these sizes. */
#include "cuda_programs.h"
#include "device/cuda/engine/worker.h"
#include "device/cuda/recurrence/recurrence.h"

static int compared, loops;

static void check_view(const rcvi_view *a, const rcvi_view *b) {
    assert_int_equal(a->offset, b->offset);
    assert_int_equal(a->stride, b->stride);
    assert_int_equal(a->outer, b->outer);
    assert_int_equal(a->row, b->row);
    assert_int_equal(a->slot, b->slot);
}

static void check_recurrence(const rcvi_recurrence *a, const rcvi_recurrence *b) {
    assert_int_equal(a->rows, b->rows);
    assert_int_equal(a->count, b->count);
    assert_int_equal(a->time.base, b->time.base);
    assert_int_equal(a->map.operand_count, b->map.operand_count);
    for (int v = 0; v < a->map.operand_count; v++) check_view(&a->map.operands[v], &b->map.operands[v]);
    compared++;
}

/* The worker's loops against those of the program at its sizes. */
static void check_loops(const rcvi_worker *w, const rcvi_program *program) {
    for (size_t i = 0; i < program->step_count; i++) {
        rcvi_pool pool;
        rcvi_recurrence *all = NULL;
        int count = 0;
        if (!w->recurrences[i]) continue;
        rcvi_pool_init(&pool, w->context);
        check_ok(rcvi_recurrences_find(&pool, program, i, &all, &count));
        assert_int_equal(count, w->engine->recurrences[i]->count);
        for (int n = 0; n < count; n++) check_recurrence(&w->recurrences[i][n], &all[n]);
        rcvi_pool_free(&pool);
    }
}

static size_t check_program(const problem *p, const rcvi_program *program) {
    static const rcvi_sizes others[] = {{2, 1}, {3, 3}, {4, 2}, {6, 3}, {9, 5}};
    rcvi_engine e = {.program = program, .context = p->context, .major = 9, .processors = 132, .shared = 232448};
    rcvi_sizing sizing;
    rcvi_pool_init(&e.pool, p->context);
    check_ok(rcvi_cuda_find_layout(&e));
    for (size_t i = 0; i < program->step_count; i++) {
        if (!rcvi_program_is_scan(program, i)) continue;
        loops++;
        check_ok(rcvi_cuda_recurrences_new(&e, i, &e.recurrences[i]));
    }
    check_ok(rcvi_program_sizing(&e.pool, program, rcvi_schedule_for(&program->rungs)->write, &sizing));
    if (rcvi_cuda_fit_loops(&e, &sizing))
        fail_msg("%s, %d steps of %d, %s%s%s%s: %s", p->c.cell, (int)p->c.steps, (int)p->c.batch,
                 program->options.schedule, p->c.lengths ? ", lengths" : "", p->c.resets ? ", resets" : "",
                 program->options.training ? ", training" : "", rcv_message());
    rcvi_worker w = {.engine = &e, .context = p->context};
    rcvi_pool_init(&w.pool, p->context);
    check_ok(rcvi_cuda_open_loops(&w));
    rcvi_instance *instance = rcvi_instance_make(program, rcvi_pool_new(&w.pool, rcvi_instance_bytes(program), 1));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (others[i].steps > p->c.steps || others[i].batch > p->c.batch) continue;
        rcvi_instance_resize(instance, &sizing, others[i]);
        rcvi_cuda_resize_loops(&w, others[i]);
        check_ok(rcvi_program_verify(&instance->program));
        check_loops(&w, &instance->program);
    }
    for (size_t i = 0; i < program->step_count; i++) rcvi_cuda_recurrences_free(p->context, e.recurrences[i]);
    rcvi_pool_free(&w.pool);
    rcvi_pool_free(&e.pool);
    return 1;
}

static void test_recurrences(void **state) {
    (void)state;
    static const char *const cells[] = {"indrnn", "sru",   "gru",       "qrnn_f",
                                        "lstm",   "slstm", "gilr_lstm", RCV_SOURCE_DIR "/tests/support/cells/lru.cell"};
    static const char *const plans[] = {"combine(steps=all)+fuse+pack+scan", "combine(steps=3)+fuse+scan",
                                        "combine+fuse+pack+scan"};
    static const rcvi_sizes most[] = {{3, 1}, {3, 4}, {6, 2}, {7, 5}, {11, 3}, {2, 2}, {1, 3}};
    enum { CELLS = sizeof cells / sizeof *cells, PLANS = 3, SIZES = sizeof most / sizeof *most };
    for (int i = 0; i < CELLS * PLANS * SIZES * 16; i++) {
        const rcvi_sizes *sizes = &most[i / 16 % SIZES];
        config c = {
            cells[i / (PLANS * SIZES * 16)],
            {.input = 4, .hidden = 8, .layers = 1 + (i & 1), .bidirectional = i & 8, .reverse = !(i & 8) && i % 3 == 0},
            sizes->steps,
            sizes->batch,
            i & 2,
            i & 4,
            true};
        if (!sample_takes((size_t)i)) continue;
        for (int training = 0; training < 2; training++) {
            problem p;
            rcvi_program program;
            open_problem(&p, &c, 1);
            if (write_program(&p, training, plans[i / (SIZES * 16) % PLANS], &program)) {
                check_program(&p, &program);
                rcvi_program_free(&program);
            }
            close_problem(&p);
        }
    }
    print_message("%d recurrences of %d loops at other sizes\n", compared, loops);
    assert_true(sample_is_partial() || compared > 1000);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_recurrences)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
