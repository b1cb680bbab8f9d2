/* Time loops as persistent kernels, without a GPU: blocks wait for what the program says that they read, and for nothing that is never
 * written; nothing is overwritten too early; everything fits on the chip.
 *
 * The reference is the program itself, executed step by step (persistent_replay.h). Checkers (persistent_checks.h) count faults, so that
 * test_cuda_damaged.c can damage a loop and see that they find it. */
#include "device/cuda/engine/worker.h"
#include "persistent_checks.h"
#include "sample.h"

/* ---- every loop ---- */

enum {
    BUILT,
    SPLIT_DEPTH,
    TILED,
    RINGED,
    IN_SHARED,
    STREAMING,
    WAITING,
    SINGLE_STEP,
    IN_PARTS,
    EXACT,
    BY_ROWS,
    PAIRED,
    FLAGGED,
    FLAGGED_ONLY,
    KINDS
};
static int seen[KINDS]; /* loops */

static void remember(const rcvi_persistent *p) {
    bool kinds[KINDS] = {[BUILT] = true,
                         [SPLIT_DEPTH] = p->depth_splits > 1,
                         [TILED] = p->tiles > 1,
                         [IN_SHARED] = p->shared_weight_chunks > 0,
                         [STREAMING] = p->streamed_chunks > 0,
                         [IN_PARTS] = p->parts > 1,
                         [EXACT] = p->exact,
                         [BY_ROWS] = p->by_rows,
                         [PAIRED] = p->paired};
    for (int s = 0; s < p->task_count; s++) kinds[RINGED] |= p->tasks[s].group_count[0] > p->tasks[s].ring[0];
    for (int n = 0; n < p->step_count; n++) kinds[WAITING] |= p->steps[n].wait_count > 0;
    for (int c = 0; c < p->channel_count; c++) {
        kinds[SINGLE_STEP] |= p->channels[c].single_step;
        kinds[FLAGGED] |= p->channels[c].flagged && !p->channels[c].single_step;
        kinds[FLAGGED_ONLY] |= is_flagged_only(p, p->channels[c].buffer);
    }
    for (int k = 0; k < KINDS; k++) seen[k] += kinds[k];
}

static void check_faultless(const subject *s, const config *c, const rcvi_persistent *p) {
    const rcv_plan_options *o = &s->program.options;
    int faults[CHECKERS] = {0};
    add_faults(&s->engine, p, (1u << CHECKERS) - 1, faults);
    for (int k = 0; k < CHECKERS; k++) {
        if (faults[k])
            fail_msg("%s, hidden %d, layers %d, type %d, training %d, %s, step %d: %d faults found by checker %d",
                     c->cell, (int)c->net.hidden, (int)c->net.layers, (int)o->dtype, o->training, o->schedule, p->loop,
                     faults[k], k);
    }
}

static int resized; /* loops at other sizes */

/* The loops of a program whose calls have other sizes: the kernels are the same, and their numbers are without a fault, too. */
static void check_other_sizes(subject *s, const config *c) {
    static const rcvi_sizes others[] = {{1, 1}, {2, 3}, {3, 1}, {1, 2}, {5, 2}, {4, 17}};
    const rcv_plan_options *o = &s->program.options;
    rcvi_sizing sizing;
    rcvi_worker w = {.engine = &s->engine, .context = s->context};
    check_ok(rcvi_program_sizing(&s->engine.pool, &s->program, rcvi_schedule_for(&s->program.rungs)->write, &sizing));
    if (rcvi_cuda_fit_loops(&s->engine, &sizing))
        fail_msg("%s, %d steps of %d, training %d, %s: %s", c->cell, (int)o->steps, (int)o->batch, o->training,
                 o->schedule, rcv_message());
    rcvi_pool_init(&w.pool, s->context);
    check_ok(rcvi_cuda_open_loops(&w));
    rcvi_instance *instance =
        rcvi_instance_make(&s->program, rcvi_pool_new(&w.pool, rcvi_instance_bytes(&s->program), 1));
    subject sized = *s;
    sized.engine.program = &instance->program;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (others[i].steps > o->steps || others[i].batch > o->batch) continue;
        rcvi_instance_resize(instance, &sizing, others[i]);
        rcvi_cuda_resize_loops(&w, others[i]);
        check_ok(rcvi_program_verify(&instance->program));
        for (size_t loop = 0; loop < s->program.step_count; loop++) {
            if (!w.persistent[loop]) continue;
            check_faultless(&sized, c, w.persistent[loop]);
            resized++;
        }
    }
    rcvi_pool_free(&w.pool);
}

/* Every loop of the program becomes one kernel without a fault; or, if `refused`, is refused. */
static void check_loops(const config *c, rcv_dtype dtype, bool training, const char *plan, bool refused,
                        void (*remember)(const rcvi_persistent *p)) {
    subject s;
    size_t loop = 0;
    open_subject(&s, c, dtype, training, plan);
    for (assert_true(next_loop(&s, &loop)); next_loop(&s, &loop); loop++) {
        rcvi_persistent *p;
        rcv_status status = rcvi_persistent_new(&s.engine, loop, &p);
        if (refused) check_fails(status, RCV_UNSUPPORTED, "cannot pass on a value that");
        if (refused) continue;
        if (status) fail_msg("%s, training %d, %s, step %zu: %s", c->cell, training, plan, loop, rcv_message());
        check_faultless(&s, c, p);
        remember(p);
        s.engine.persistent[loop] = p;
    }
    if (!refused) check_other_sizes(&s, c);
    for (size_t i = 0; i < s.program.step_count; i++) rcvi_persistent_free(s.context, s.engine.persistent[i]);
    close_subject(&s);
}

static int count_gradient_copies(const rcvi_program *program) {
    int count = 0;
    for (size_t i = program->forward_count; i < program->step_count; i++) {
        const rcvi_step *step = &program->steps[i];
        count += step->kind == RCVI_STEP_COPY && program->buffers[step->out.buffer].role == RCVI_DPARAMETERS;
    }
    return count;
}

/* Layers of a wavefront are one text, whatever type the caller's data have. Gradients of the plan's 16-bit type are stored by the products. */
static void test_data_types(void **state) {
    (void)state;
    static const rcv_array_type types[] = {RCV_AS_PLAN, RCV_AS_BFLOAT16, RCV_AS_FLOAT16};
    for (size_t i = 0; i < 2 * sizeof types / sizeof *types; i++) {
        subject s;
        size_t loop = 0;
        subject_data = types[i / 2];
        subject_parameters = subject_gradients = i % 2 ? types[i / 2] : RCV_AS_PLAN;
        open_subject(&s, &deep, RCV_BFLOAT16, true, by_wave);
        int loops = 0;
        for (; next_loop(&s, &loop); loop++, loops++) {
            rcvi_persistent *p;
            check_ok(rcvi_persistent_new(&s.engine, loop, &p));
            assert_true(p->task_count == 3 && p->variant_count == 1);
            rcvi_persistent_free(s.context, p);
        }
        assert_int_equal(loops, 2);
        assert_int_equal(count_gradient_copies(&s.program), subject_gradients == RCV_AS_FLOAT16);
        close_subject(&s);
    }
    subject_data = subject_parameters = subject_gradients = RCV_AS_PLAN;
}

static void test_loops(void **state) {
    (void)state;
    static const char *const plans[] = {by_step, at_once, by_wave, by_two, forward_wave, exactly, mixed};
    static const char *const cells[] = {"lstm",
                                        "gru",
                                        "gru_original",
                                        "lstm_proj",
                                        "lstm_peephole",
                                        "lstm_cifg",
                                        "rnn_tanh",
                                        "rnn_relu",
                                        RCV_SOURCE_DIR "/tests/support/cells/quotient.cell",
                                        "lstm_layernorm",
                                        RCV_SOURCE_DIR "/tests/support/cells/normal.cell",
                                        RCV_SOURCE_DIR "/tests/support/cells/decay.cell"};
    static const rcv_dtype dtypes[] = {RCV_FLOAT32, RCV_BFLOAT16, RCV_TFLOAT32, RCV_FLOAT16};
    const config shapes[] = {
        deep,
        {NULL, {.input = 19, .hidden = 45, .layers = 2}, 7, 20, false, false, true},
        {NULL, {.input = 32, .hidden = 64, .layers = 1}, 5, 70, false, false, true},
        {NULL, {.input = 24, .hidden = 24, .layers = 2, .bidirectional = true}, 6, 3, false, false, true},
        {NULL, {.input = 40, .hidden = 40, .layers = 2, .no_bias = true}, 1, 1, false, false, true},
        {NULL, {.input = 100, .hidden = 256, .layers = 3}, 5, 300, false, false, true},
        {NULL, {.input = 512, .hidden = 512, .layers = 4}, 4, 64, false, false, true},
        {NULL, {.input = 24, .hidden = 40, .layers = 3, .reverse = true}, 6, 20, false, false, true},
    };
    size_t index = 0;
    enum { PLANS = 7, CELLS = sizeof cells / sizeof *cells, DTYPES = 4, SHAPES = sizeof shapes / sizeof *shapes };
    for (int i = 0; i < CELLS * SHAPES * PLANS * DTYPES * 2; i++) {
        config c = shapes[i / (PLANS * DTYPES * 2) % SHAPES];
        const char *plan = plans[i / (DTYPES * 2) % PLANS];
        c.cell = cells[i / (SHAPES * PLANS * DTYPES * 2)];
        rcv_dtype dtype = dtypes[i / 2 % DTYPES];
        bool waves = plan == by_wave || plan == by_two || plan == forward_wave,
             parts = plan == by_two || plan == exactly;
        if (waves && (c.net.bidirectional || c.net.layers == 1 || c.steps == 1)) continue;
        if ((plan == forward_wave || plan == mixed) && i % 2 == 0) continue; /* for training */
        if (parts && dtype != RCV_FLOAT32) continue;
        /* Data and parameters in the plan's 16-bit type, which loops read and write themselves, and in another one. */
        subject_parameters = i / 3 % 4 == 0 ? RCV_AS_BFLOAT16 : i / 3 % 4 == 1 ? RCV_AS_FLOAT64 : RCV_AS_PLAN;
        subject_data = i % 3 == 0 ? RCV_AS_BFLOAT16 : i % 3 == 1 ? RCV_AS_FLOAT16 : RCV_AS_PLAN;
        if (sample_takes(index++)) check_loops(&c, dtype, i % 2, plan, false, remember);
    }
    subject_data = subject_parameters = RCV_AS_PLAN;
    print_message("%d loops are one kernel; %d with depth splits, %d with streamed weights\n", seen[BUILT],
                  seen[SPLIT_DEPTH], seen[STREAMING]);
    print_message("%d loops at other sizes\n", resized);
    assert_true(sample_is_partial() || (seen[BUILT] > 2000 && resized > 4000));
    for (int k = 0; k < KINDS; k++) assert_true(sample_is_partial() || seen[k] > 0);
}

/* ---- sequences with lengths and resets ---- */

enum { JOINED, SKIPPING, ORDERED, WAITING_ALONE, RAGGED_KINDS };
static int seen_ragged[RAGGED_KINDS]; /* steps */

static void remember_ragged(const rcvi_persistent *p) {
    for (int n = 0; n < p->step_count; n++) {
        const rcvi_kernel_step *s = &p->steps[n];
        bool kinds[RAGGED_KINDS] = {s->member_count > 1, s->skips_ended, s->has_row_order,
                                    !s->pass_count && s->wait_count};
        for (int k = 0; k < RAGGED_KINDS; k++) seen_ragged[k] += kinds[k];
    }
}

static void test_ragged(void **state) {
    (void)state;
    static const char *const plans[] = {by_step, at_once, by_wave, forward_wave};
    static const char *const cells[] = {"lstm",
                                        "gru",
                                        "gru_original",
                                        "lstm_proj",
                                        "lstm_peephole",
                                        "lstm_cifg",
                                        "rnn_tanh",
                                        "slstm",
                                        RCV_SOURCE_DIR "/tests/support/cells/quotient.cell",
                                        "lstm_layernorm",
                                        RCV_SOURCE_DIR "/tests/support/cells/normal.cell",
                                        RCV_SOURCE_DIR "/tests/support/cells/decay.cell"};
    const config shapes[] = {
        {NULL, {.input = 40, .hidden = 40, .layers = 3}, 7, 20, false, false, true},
        {NULL, {.input = 24, .hidden = 24, .layers = 2, .bidirectional = true}, 6, 3, false, false, true},
        {NULL, {.input = 19, .hidden = 45, .layers = 2}, 4, 300, false, false, true},
        {NULL, {.input = 8, .hidden = 8, .layers = 1}, 3, 1, false, false, true},
        {NULL, {.input = 8, .hidden = 8, .layers = 1, .bidirectional = true}, 2, 4, false, false, true},
        {NULL, {.input = 24, .hidden = 24, .layers = 2, .reverse = true}, 6, 3, false, false, true},
    };
    size_t index = 0;
    enum { PLANS = 4, CELLS = sizeof cells / sizeof *cells, SHAPES = sizeof shapes / sizeof *shapes };
    for (int i = 0; i < CELLS * SHAPES * PLANS * 3 * 2; i++) {
        config c = shapes[i / (PLANS * 3 * 2) % SHAPES];
        const char *plan = plans[i / (3 * 2) % PLANS];
        c.cell = cells[i / (SHAPES * PLANS * 3 * 2)];
        c.lengths = i / 2 % 3 < 2;
        c.resets = i / 2 % 3 > 0;
        bool waves = plan == by_wave || plan == forward_wave;
        if ((waves && (c.net.bidirectional || c.net.layers == 1)) || (plan == forward_wave && i % 2 == 0)) continue;
        /* Its output depends on products that nothing of the loop delays, so they could run ahead; training keeps all of them. */
        bool ahead = strstr(c.cell, "normal") && i % 2 == 0 && c.lengths != c.resets;
        if (sample_takes(index++))
            check_loops(&c, i % 5 ? RCV_BFLOAT16 : RCV_TFLOAT32, i % 2, plan, ahead, remember_ragged);
    }
    print_message("of their steps %d are merged, %d skip tiles, %d write in the caller's order, %d wait without "
                  "products\n",
                  seen_ragged[JOINED], seen_ragged[SKIPPING], seen_ragged[ORDERED], seen_ragged[WAITING_ALONE]);
    for (int k = 0; k < RAGGED_KINDS; k++) assert_true(sample_is_partial() || seen_ragged[k] > 0);
}

/* Some of the steps that could skip ended rows compute all rows, as where a cell divides: then others must not skip tiles, or the loop is
 * refused. */
static void test_mixed(void **state) {
    (void)state;
    static const char *const plans[] = {by_step, at_once, by_wave};
    static const char *const cells[] = {"lstm", "gru", "gru_original", "lstm_proj", "slstm"};
    random_source random = {7};
    int taken = 0, refused = 0;
    for (int i = 0; i < 5 * 3 * 2 * 6; i++) {
        config c = {cells[i / 36], {.input = 24, .hidden = 24, .layers = 3}, 6, 9, true, i & 2, true};
        subject s;
        open_subject(&s, &c, RCV_BFLOAT16, i & 1, plans[i / 12 % 3]);
        for (size_t n = 0; n < s.program.step_count; n++) s.engine.is_short[n] &= random_below(&random, 3) > 0;
        for (size_t loop = 0; sample_takes((size_t)i) && next_loop(&s, &loop); loop++) {
            rcvi_persistent *p;
            if (rcvi_persistent_new(&s.engine, loop, &p)) {
                assert_non_null(strstr(rcv_message(), "may be overwritten before it is read"));
                refused++;
                continue;
            }
            check_faultless(&s, &c, p);
            taken++;
            rcvi_persistent_free(s.context, p);
        }
        close_subject(&s);
    }
    print_message("%d loops with some steps for all rows are one kernel, %d are refused\n", taken, refused);
    assert_true(sample_is_partial() || (taken > 100 && refused > 0));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_data_types), cmocka_unit_test(test_loops),
                                       cmocka_unit_test(test_ragged), cmocka_unit_test(test_mixed)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
