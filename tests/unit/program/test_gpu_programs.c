/* Programs of random cells as they are written for a GPU, where values of size one are computed in maps of more columns. No GPU is needed:
 * the verifier must find each of them sound, and a program that is not sound must not pass it. */
#include "cuda_programs.h"
#include "generator.h"

static const char *const some_plans[] = {
    "combine+fuse+pack",     "combine(steps=all)+fuse+pack",      "combine+fuse+pack+wavefront+merge",
    "combine(steps=2)+fuse", "combine(steps=all)+fuse+interpret", "combine+fuse+wavefront+interpret"};
enum { CELLS = 150, SOME_PLANS = sizeof some_plans / sizeof *some_plans };

/* Sizes of one, which sums are not over. */
static config draw_config(random_source *source, const char *text) {
    config c = {.cell = "random.cell", .steps = 5, .batch = 3, .lengths = random_below(source, 2) > 0, .initial = true};
    c.resets = random_below(source, 2) > 0;
    c.net.input = 1 + random_below(source, 2);
    c.net.hidden = strstr(text, "size heads") ? 2 : 1 + random_below(source, 2);
    c.net.layers = 1 + random_below(source, 2);
    return c;
}

/* Are these gradients written by the steps that compute them? */
static bool is_direct(const rcvi_program *program, int gradients) {
    bool sums = false;
    for (size_t b = 0; b < program->buffer_count; b++)
        sums |= program->buffers[b].replaces == RCVI_DPARAMETERS && program->buffers[b].theirs == gradients;
    return !sums && program->buffers[gradients].element == RCVI_ACTIVATION && program->buffers[gradients].count > 0;
}

static int direct; /* gradients of all programs that are */

/* Parameters are converted once and then last; what a plan converts of a type that it has is what only sums in full start from. Every gradient
 * of another type is written once: at the end, or by the one step that computes it. */
static void check_conversions(const rcvi_program *program) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    size_t stores = 0, gradients = 0;
    for (size_t i = 0; i < program->step_count; i++) {
        const rcvi_step *step = &program->steps[i];
        bool stores_gradients = step->kind == RCVI_STEP_COPY && step->accumulate;
        int count = rcvi_step_accesses(step, accesses);
        for (int k = 0; k < count; k++) {
            const rcvi_buffer *buffer = &program->buffers[accesses[k].view->buffer];
            bool declared = buffer->element != RCVI_REAL, written = accesses[k].written;
            bool computes =
                (step->kind == RCVI_STEP_GEMM || step->kind == RCVI_STEP_REDUCE) && accesses[k].view == &step->out;
            bool clears = step->kind == RCVI_STEP_FILL && step->when == RCVI_WHEN_OVERWRITING;
            if (buffer->role == RCVI_DPARAMETERS && is_direct(program, accesses[k].view->buffer))
                assert_true((computes && step->accumulate) || clears);
            else if (buffer->role == RCVI_DPARAMETERS && declared)
                assert_true(stores_gradients);
            if (buffer->replaces == RCVI_DPARAMETERS && accesses[k].read && !written) assert_true(stores_gradients);
            if (buffer->replaces == RCVI_PARAMETERS && written)
                assert_true(i < program->forward_count && step->when == RCVI_WHEN_PARAMETERS_CHANGED);
            if (buffer->role == RCVI_PARAMETERS && declared && buffer->element != RCVI_ACTIVATION)
                assert_true(step->kind == RCVI_STEP_COPY && step->when == RCVI_WHEN_PARAMETERS_CHANGED);
        }
        stores += stores_gradients;
    }
    for (size_t b = 0; b < program->buffer_count; b++) {
        const rcvi_buffer *buffer = &program->buffers[b];
        bool other = buffer->role == RCVI_DPARAMETERS && buffer->element != RCVI_REAL && buffer->count;
        bool own = other && is_direct(program, (int)b);
        gradients += other && !own;
        direct += own;
        if (own) assert_true(rcvi_program_covers_gradients(program));
        if (buffer->replaces == RCVI_PARAMETERS) assert_true(buffer->lasting && !buffer->kept);
    }
    assert_int_equal(stores, gradients);
}

static void test_random_cells(void **state) {
    (void)state;
    static const rcv_dtype dtypes[] = {RCV_FLOAT32, RCV_BFLOAT16, RCV_FLOAT16, RCV_FLOAT64};
    size_t written = 0;
    for (uint64_t seed = 0; seed < CELLS; seed++) {
        random_source source = {seed};
        char *text = generate_wide_cell(&source);
        config c = draw_config(&source, text);
        problem p;
        open_problem_of(&p, &c, text, 1);
        for (int i = 0; i < 2 * SOME_PLANS; i++) {
            for (int separate = 0; separate < 2; separate++) {
                rcvi_program program;
                p.separate = separate;
                p.parameter_type = (rcv_array_type)random_below(&source, RCV_AS_BFLOAT16 + 1);
                p.gradient_type = (rcv_array_type)random_below(&source, RCV_AS_BFLOAT16 + 1);
                rcv_dtype dtype = dtypes[random_below(&source, 4)];
                rcv_plan_options options = options_of(&p, dtype, i % 2, some_plans[i / 2]);
                if (!write_with(p.net, &options, &program)) continue; /* runs the verifier */
                check_conversions(&program);
                rcvi_program_free(&program);
                written++;
            }
        }
        close_problem(&p);
        free(text);
    }
    print_message("%zu programs of %d cells\n", written, CELLS);
    assert_true(written > 2 * CELLS * SOME_PLANS && direct > 0);
}

/* A map that reads, or multiplies, a view without a buffer: a GPU would read address 0. */
static void test_nowhere(void **state) {
    (void)state;
    const config c = {"lstm_layernorm", {.input = 4, .hidden = 4, .layers = 1}, 5, 3, false, false, true};
    problem p;
    rcvi_program program;
    size_t spoilt = 0;
    open_problem(&p, &c, 1);
    assert_true(write_program(&p, true, "combine+fuse+pack", &program));
    for (size_t i = 0; i < program.step_count; i++) {
        rcvi_map *map = program.steps[i].map;
        if (program.steps[i].kind != RCVI_STEP_MAP) continue;
        rcvi_view *views[] = {map->operand_count ? &map->operands[0] : NULL,
                              map->product_count ? &map->products[0].terms[0].a : NULL,
                              map->product_count ? &map->products[0].terms[0].b : NULL};
        for (size_t v = 0; v < sizeof views / sizeof *views; v++) {
            if (!views[v]) continue;
            int buffer = views[v]->buffer;
            views[v]->buffer = RCVI_NONE;
            check_fails(rcvi_program_verify(&program), RCV_INVALID, "no buffer");
            views[v]->buffer = buffer;
            spoilt++;
        }
    }
    check_ok(rcvi_program_verify(&program));
    assert_true(spoilt > 6);
    rcvi_program_free(&program);
    close_problem(&p);
}

/* Where maps are interpreted all products are gemm steps, as few as parameters and operands in memory allow: a time step of these cells is one
 * product and one map, forwards and backwards. */
static void test_few_steps(void **state) {
    (void)state;
    static const char *const cells[] = {"lstm", "rnn_tanh", "rnn_relu", "lstm_layernorm"};
    for (size_t i = 0; i < 4 * sizeof cells / sizeof *cells; i++) {
        const config c = {cells[i / 4], {.input = 8, .hidden = 8, .layers = 2}, 6, 4, false, false, true};
        problem p;
        rcvi_program program;
        size_t loops = 0;
        open_problem(&p, &c, 1);
        p.separate = i / 2 % 2;
        assert_true(write_program(&p, i % 2, "combine(steps=all)+fuse+interpret", &program));
        for (size_t k = 0; k < program.step_count; k++) {
            const rcvi_step *step = &program.steps[k];
            assert_int_not_equal(step->kind, RCVI_STEP_PACK);
            if (step->kind == RCVI_STEP_MAP) assert_int_equal(step->map->product_count, 0);
            if (step->kind != RCVI_STEP_LOOP) continue;
            loops++;
            size_t gemms = 0, maps = 0;
            for (int n = 1; n <= step->loop.body; n++) {
                gemms += step[n].kind == RCVI_STEP_GEMM;
                maps += step[n].kind == RCVI_STEP_MAP;
            }
            /* With an array for each parameter the gates' products cannot be one. */
            if (!p.separate) assert_true(gemms == 1 && maps == 1 && step->loop.body == 2);
            assert_true(gemms >= 1 && maps >= 1);
        }
        assert_int_equal(loops, i % 2 ? 4 : 2);
        rcvi_program_free(&program);
        close_problem(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_cells), cmocka_unit_test(test_nowhere),
                                       cmocka_unit_test(test_few_steps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
