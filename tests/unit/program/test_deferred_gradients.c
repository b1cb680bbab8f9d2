/* On a GPU, gradients of parameters are summed over the whole sequence after all loops, and large products of the whole sequence are gemm
 * steps. Here such programs, written for a machine that claims to be a GPU, run on the CPU and are compared with the naive schedule in
 * double. */
#include "cuda_programs.h"
#include "generator.h"
#include "plan/plan.h"
#include "planned.h"
#include "sample.h"

static const rcv_size proj[] = {{"proj", 5}}, heads[] = {{"heads", 2}};

static const config configs[] = {
    {NULL, {.input = 5, .hidden = 6, .layers = 3}, 7, 3, false, false, true},
    {NULL, {.input = 4, .hidden = 6, .layers = 2}, 8, 3, true, true, true},
    {NULL, {.input = 3, .hidden = 6, .layers = 2, .bidirectional = true}, 7, 2, false, false, false},
    {NULL, {.input = 6, .hidden = 6, .layers = 2, .bidirectional = true, .dropout = 0.3}, 6, 3, true, true, true},
    {NULL, {.input = 6, .hidden = 8, .layers = 2, .dropout = 0.3, .variational = true}, 7, 5, true, false, true},
    {NULL, {.input = 5, .hidden = 6, .layers = 2, .zoneout = 0.3}, 7, 3, false, false, true},
    {NULL, {.input = 4, .hidden = 8, .layers = 2, .bidirectional = true, .zoneout = 0.3}, 7, 5, true, true, true},
    {NULL, {.input = 9, .hidden = 8, .layers = 2, .rank = 2, .no_bias = true}, 7, 3, false, false, true},
    {NULL, {.input = 3, .hidden = 4, .layers = 2}, 1, 2, false, false, true},
    {NULL, {.input = 5, .hidden = 6, .layers = 3, .reverse = true}, 7, 3, false, false, true},
    {NULL, {.input = 5, .hidden = 6, .layers = 2, .dropout = 0.3, .reverse = true}, 7, 3, true, true, true},
};

static const char *const plans[] = {
    "combine",
    "combine(steps=3)",
    "combine+fuse",
    "combine(steps=3)+fuse",
    "combine(steps=all)+fuse",
    "combine+fuse+wavefront",
    "combine+pack",
    "combine+fuse+pack",
    "combine(steps=3)+fuse+pack",
    "combine(steps=3,forward=1)+fuse+pack",
    "combine(steps=all)+fuse+pack",
    "combine(steps=all,forward=2)+fuse+pack",
    "combine+fuse+pack+wavefront",
    "combine(steps=3)+fuse+pack+wavefront",
    "combine+fuse+wavefront(forward)",
    "combine(steps=all,forward=1)+fuse+pack+wavefront(forward)",
    "combine(steps=2,forward=3)+fuse+pack+wavefront(forward)",
    "combine+fuse+pack+scan",
    "combine(steps=3)+fuse+scan",
    "combine(steps=3)+fuse+pack+scan",
    "combine(steps=all)+fuse+pack+scan",
    "combine(steps=2)+fuse+pack+scan+recompute(every=2)",
    "combine(steps=2)+fuse+pack+recompute(every=2)",
    "combine(steps=2)+fuse+pack+wavefront(forward)+recompute(every=2)",
    "combine+fuse+interpret",
    "combine(steps=all)+fuse+interpret",
    "combine(steps=3)+fuse+wavefront+interpret",
    "combine(steps=all,forward=2)+fuse+transpose+interpret",
    "combine(steps=2)+fuse+recompute(every=2)+interpret",
};

/* What the CPU says it is; as a GPU whose library is asked, every product outside of loops is large. */
typedef enum { AS_CPU, AS_GPU, AS_GPU_WITH_LIBRARY } machine_kind;

static rcv_status make(const problem *p, const rcv_plan_options *options, machine_kind kind, rcv_plan **plan) {
    rcvi_problem asked = {.net = p->net, .options = options, .device = &rcvi_device_cpu};
    rcvi_rungs rungs;
    check_ok(rcvi_rungs_read(options->schedule, &rungs));
    check_ok(rcvi_device_cpu.describe(p->context, 0, options->dtype, 1, &asked.machine));
    rcvi_device_cpu.describe_libraries(0, &asked.machine);
    asked.machine.gpu = kind != AS_CPU;
    asked.machine.min_library_product = kind == AS_GPU_WITH_LIBRARY;
    return rcvi_plan_make(&asked, &rungs, plan);
}

static bool sums_gradients(const rcvi_program *program, const rcvi_step *step) {
    return step->out.buffer != RCVI_NONE && program->buffers[step->out.buffer].role == RCVI_DPARAMETERS &&
           (step->kind == RCVI_STEP_GEMM || step->kind == RCVI_STEP_REDUCE);
}

/* Rows begin at multiples of 16 bytes, so far as they are not the caller's. */
static bool is_aligned(const rcvi_program *program, const rcvi_view *view) {
    const rcvi_buffer *buffer = &program->buffers[view->buffer];
    size_t bytes =
        rcvi_element_bytes(program, RCVI_ACTIVATION); /* of what products read: the buffer or its rounded copy */
    return buffer->role != RCVI_ARENA || (size_t)view->row * bytes % 16 == 0;
}

/* Does the step add the gradient of one row, by the chain rule through the constants of its layer? */
static bool is_of_constants(const rcvi_program *program, const rcvi_step *step, int64_t depth) {
    return depth == 1 && sums_gradients(program, step) && step->layer != RCVI_NONE &&
           program->net->layers[step->layer].constants.output_count > 0;
}

/* Every sum over rows stands outside of loops and goes over the whole sequence. */
static size_t check_deferred(const rcvi_program *program) {
    const rcv_plan_options *o = &program->options;
    size_t found = 0, inside = 0; /* the first step after the outermost loop */
    for (size_t i = program->forward_count; i < program->step_count; i++) {
        const rcvi_step *step = &program->steps[i];
        if (step->kind == RCVI_STEP_LOOP && i >= inside) inside = i + 1 + (size_t)step->loop.body;
        bool sums = (step->kind == RCVI_STEP_GEMM && step->gemm.transpose_a) ||
                    (step->kind == RCVI_STEP_REDUCE && step->reduce.over_rows);
        assert_true(sums || !sums_gradients(program, step));
        if (!sums) continue;
        int64_t depth = step->kind == RCVI_STEP_GEMM ? step->gemm.depth : step->rows;
        if (i < inside || step->time.timed)
            fail_msg("%s: step %zu sums gradients inside of a loop", program->options.schedule, i);
        if (is_of_constants(program, step, depth)) continue;
        assert_int_equal(depth, o->steps * o->batch);
        if (step->kind == RCVI_STEP_GEMM) assert_true(is_aligned(program, &step->a) && is_aligned(program, &step->b));
        found++;
    }
    return found;
}

/* Steps of their own where plans without a library have maps, and how many of them. */
static size_t count_large(const rcvi_program *program) {
    size_t found = 0;
    for (size_t i = 0; i < program->step_count; i++) {
        const rcvi_step *step = &program->steps[i];
        found += step->kind == RCVI_STEP_GEMM && !step->gemm.transpose_a && step->gemm.batch == 1;
    }
    return found;
}

/* A third of the plans, another one from problem to problem: every plan meets every cell and every configuration. */
static size_t check_plans(const problem *p, size_t number, rcv_dtype dtype, machine_kind kind, const results *want,
                          double *worst, size_t *large) {
    size_t run = 0;
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        if (!sample_pairs(3, number, i)) continue;
        rcv_plan_options options = options_of(p, dtype, true, plans[i]);
        rcv_plan *plan = NULL;
        if (dtype == RCV_BFLOAT16 && !strstr(plans[i], "pack")) continue; /* the CPU has no such product */
        if (kind == AS_CPU && strstr(plans[i], "interpret")) continue;    /* it is for a GPU */
        bool at_once = strstr(plans[i], "steps=all") && strstr(plans[i], "pack");
        if (kind == AS_GPU_WITH_LIBRARY && !at_once) continue;
        rcv_status status = make(p, &options, kind, &plan);
        if (status == RCV_UNSUPPORTED && strstr(plans[i], "wavefront")) continue;
        check_ok(status);
        if (kind == AS_GPU_WITH_LIBRARY) *large += count_large(&plan->program);
        if (kind != AS_CPU && !plan->program.rungs.recompute) assert_true(check_deferred(&plan->program) > 0);
        results got;
        run_plan(p, plan, dtype, true, &got);
        compare(p, dtype, plans[i], &got, want, worst);
        drop(&got);
        rcv_plan_free(plan);
        run++;
    }
    return run;
}

static void test_cells(void **state) {
    (void)state;
    static const rcv_dtype dtypes[] = {RCV_FLOAT64, RCV_BFLOAT16};
    size_t run = 0, large = 0;
    double worst[2] = {0};
    for (size_t i = 0; i < rcv_builtin_count() * (sizeof configs / sizeof *configs); i++) {
        if (!sample_takes(i)) continue;
        config c = configs[i % (sizeof configs / sizeof *configs)];
        c.cell = rcv_builtin_name(i / (sizeof configs / sizeof *configs));
        bool has_proj = !strcmp(c.cell, "lstm_proj"), has_heads = !strcmp(c.cell, "slstm");
        c.net.sizes = has_proj ? proj : has_heads ? heads : NULL;
        c.net.size_count = has_proj || has_heads;
        problem p;
        results want;
        open_problem(&p, &c, 1);
        run_oracle(&p, true, &want);
        for (int d = 0; d < 2; d++) {
            /* A norm over so few features divides by next to nothing at times: bfloat16 is too coarse for that. */
            if (d > 0 && strstr(c.cell, "norm")) continue;
            run += check_plans(&p, i, dtypes[d], AS_GPU, &want, &worst[d], &large);
            run += check_plans(&p, i, dtypes[d], AS_GPU_WITH_LIBRARY, &want, &worst[d], &large);
        }
        drop(&want);
        close_problem(&p);
    }
    print_message("%zu plans, %zu large products; largest relative error in double %.1e, bfloat16 %.1e\n", run, large,
                  worst[0], worst[1]);
    assert_true(run > sample_least(2000) && large > sample_least(1000));
}

/* Random cells, as for a GPU and as for the CPU; the last ones with values that are spread from one number and matrices
 * times learned vectors. */
static void test_random_cells(void **state) {
    (void)state;
    enum { CELLS = 40, WIDE = 24 };
    size_t run = 0, large = 0;
    double worst = 0;
    for (uint64_t seed = 0; seed < CELLS + WIDE; seed++) {
        if (!sample_takes(seed)) continue;
        random_source source = {seed};
        char *text = seed < CELLS ? generate_cell(&source) : generate_wide_cell(&source);
        config c = configs[seed % (sizeof configs / sizeof *configs)];
        c.cell = "random.cell";
        problem p;
        results want;
        open_problem_of(&p, &c, text, 1);
        run_oracle(&p, true, &want);
        for (int kind = AS_CPU; kind <= AS_GPU_WITH_LIBRARY; kind++)
            run += check_plans(&p, seed, RCV_FLOAT64, (machine_kind)kind, &want, &worst, &large);
        drop(&want);
        close_problem(&p);
        free(text);
    }
    print_message("%zu plans of %d random cells; largest relative error %.1e\n", run, CELLS + WIDE, worst);
    assert_true(run > sample_least(14 * (CELLS + WIDE)));
}

/* Where maps hold sums over their columns, as a GPU's do and the CPU's do not, programs of such cells are good too: nothing that a product
 * reads is one number that is repeated. */
static void test_sums_in_maps(void **state) {
    (void)state;
    enum { CELLS = 40 };
    static const rcv_dtype dtypes[] = {RCV_FLOAT32, RCV_BFLOAT16};
    size_t written = 0;
    for (uint64_t seed = 0; seed < CELLS; seed++) {
        if (!sample_takes(seed)) continue;
        random_source source = {seed};
        char *text = generate_wide_cell(&source);
        problem p;
        config c = configs[seed % (sizeof configs / sizeof *configs)];
        c.cell = "random.cell";
        open_problem_of(&p, &c, text, 1);
        for (size_t i = 0; i < 8 * (size_t)GPU_PLANS; i++) {
            if (!sample_pairs(3, seed, i)) continue;
            rcvi_program program;
            rcv_plan_options options = options_of(&p, dtypes[i & 1], i & 2, gpu_plans[i / 8]);
            gpu_alone = i & 4 ? 1 : 0;
            if (!write_with(p.net, &options, &program)) continue;
            rcvi_program_free(&program);
            written++;
        }
        close_problem(&p);
        free(text);
    }
    gpu_alone = 0;
    print_message("%zu programs\n", written);
    assert_true(written > sample_least(40 * CELLS));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_cells), cmocka_unit_test(test_random_cells),
                                       cmocka_unit_test(test_sums_in_maps)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
