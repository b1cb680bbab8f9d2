/* Programs: what the verifier refuses, what the layout saves, that a program's length does not depend on the
 * sequence's. */
#include "plan/plan.h"
#include "test.h"

#include <math.h>
#include <string.h>

typedef struct {
    test_allocator allocator;
    rcv_context *context;
    rcv_cell *cell;
    rcv_net *net;
    rcv_plan *plan;
    rcvi_program program; /* a copy whose steps and buffers may be spoilt */
} fixture;

static void open_plan_of(fixture *f, const char *schedule, int64_t steps, bool options) {
    f->context = test_context(&f->allocator);
    check_ok(rcv_cell_open(f->context, "lstm_layernorm", &f->cell));
    check_ok(rcv_net_new(
        f->cell,
        &RCV_INIT(rcv_net_options, .input = 3, .hidden = 4, .layers = 2, .bidirectional = true, .dropout = 0.5),
        &f->net));
    rcv_plan_options o = RCV_INIT(rcv_plan_options, .steps = steps, .batch = 2, .training = true, .lengths = options,
                                  .resets = options, .schedule = schedule);
    check_ok(rcv_plan_new(f->net, &o, &f->plan));
    f->program = f->plan->program;
    f->program.steps = malloc(f->program.step_count * sizeof(rcvi_step));
    f->program.buffers = malloc(f->program.buffer_count * sizeof(rcvi_buffer));
    memcpy(f->program.steps, f->plan->program.steps, f->program.step_count * sizeof(rcvi_step));
    memcpy(f->program.buffers, f->plan->program.buffers, f->program.buffer_count * sizeof(rcvi_buffer));
}

static void open_plan(fixture *f, int64_t steps, bool options) { open_plan_of(f, "naive", steps, options); }

static void close_plan(fixture *f) {
    free(f->program.steps);
    free(f->program.buffers);
    rcv_plan_free(f->plan);
    rcv_net_free(f->net);
    rcv_cell_free(f->cell);
    test_context_end(&f->allocator, f->context);
}

static rcvi_step *find_step(fixture *f, rcvi_step_kind kind, bool in_loop) {
    int body_end = -1;
    for (int i = 0; i < (int)f->program.step_count; i++) {
        rcvi_step *step = &f->program.steps[i];
        if (step->kind == RCVI_STEP_LOOP) body_end = i + step->loop.body;
        if (step->kind == kind && (i <= body_end) == (in_loop || kind == RCVI_STEP_LOOP)) return step;
    }
    fail_msg("the program has no %s step", rcvi_step_names[kind]);
    return NULL;
}

/* One defect in an otherwise good program. */
typedef void spoil(fixture *f);

static void outside_buffer(fixture *f) { find_step(f, RCVI_STEP_GEMM, true)->out.offset += 1000000; }
static void outside_in_last_iteration(fixture *f) { find_step(f, RCVI_STEP_GEMM, true)->a.stride += 1000; }
static void negative_offset(fixture *f) { find_step(f, RCVI_STEP_GEMM, true)->b.offset = -1; }
static void too_many_rows(fixture *f) { find_step(f, RCVI_STEP_COPY, true)->rows = 1000; }
static void empty_view(fixture *f) { find_step(f, RCVI_STEP_COPY, true)->columns = 0; }
static void writes_parameters(fixture *f) {
    rcvi_step *step = find_step(f, RCVI_STEP_GEMM, true);
    step->out = step->b;
}
static void other_type(fixture *f) {
    rcvi_step *step = find_step(f, RCVI_STEP_SELECT, true);
    step->mask.buffer = step->out.buffer;
}
static void repeated_rows(fixture *f) { find_step(f, RCVI_STEP_GEMM, true)->out.row = 0; }
static void strided_columns(fixture *f) { find_step(f, RCVI_STEP_GEMM, true)->a.column = 2; }
static void loop_past_end(fixture *f) { find_step(f, RCVI_STEP_LOOP, false)->loop.body = 100000; }
static void empty_loop(fixture *f) { find_step(f, RCVI_STEP_LOOP, false)->loop.body = 0; }
static void nested_loop(fixture *f) { /* a third loop in a second one in the first */
    rcvi_step *loop = find_step(f, RCVI_STEP_LOOP, false);
    loop[1].kind = loop[2].kind = RCVI_STEP_LOOP;
    loop[1].loop.count = loop[2].loop.count = 1;
    loop[1].loop.body = 3;
    loop[2].loop.body = 1;
}
static void crossing_loops(fixture *f) { /* the inner one ends after the outer one */
    rcvi_step *loop = find_step(f, RCVI_STEP_LOOP, false);
    loop[1].kind = RCVI_STEP_LOOP;
    loop[1].loop.count = 1;
    loop[1].loop.body = loop->loop.body;
}
static void future_register(fixture *f) {
    rcvi_map *map = find_step(f, RCVI_STEP_MAP, true)->map;
    map->instructions[0].from[0] = RCVI_FROM_REGISTER;
    map->instructions[0].source[0] = 0;
}
static void not_elementwise(fixture *f) {
    find_step(f, RCVI_STEP_MAP, true)->map->instructions[0].operation = RCVI_SUM;
}
static void computes_with_optional(fixture *f) {
    rcvi_step *step = find_step(f, RCVI_STEP_DROPOUT, false);
    step->a = (rcvi_view){.buffer = rcvi_program_external(&f->plan->program, RCVI_DFINAL, 0), .row = 1, .column = 1};
    step->rows = step->columns = 1;
}
static void repeats_no_part(fixture *f) { find_step(f, RCVI_STEP_DROPOUT, false)->dropout.period = 4; }
static void stores_nothing(fixture *f) { find_step(f, RCVI_STEP_MAP, true)->map->instructions[0].out = RCVI_NONE; }
static void same_offset(fixture *f) {
    for (size_t b = 0; b < f->program.buffer_count; b++) f->program.buffers[b].arena_offset = 0;
}
static void reads_unwritten(fixture *f) { /* the first step to write a buffer that a later one reads is gone */
    rcvi_step *step = find_step(f, RCVI_STEP_LIVE, false);
    *step = (rcvi_step){.kind = RCVI_STEP_FILL,
                        .rows = 1,
                        .columns = 1,
                        .a = rcvi_no_view(),
                        .b = rcvi_no_view(),
                        .mask = rcvi_no_view()};
    for (size_t b = 0; b < f->program.buffer_count; b++) {
        if (f->program.buffers[b].role == RCVI_ARENA && f->program.buffers[b].element == RCVI_REAL) {
            step->out = (rcvi_view){.buffer = (int)b, .row = 1, .column = 1};
            break;
        }
    }
}

static void test_verifier(void **state) {
    (void)state;
    static const struct {
        spoil *spoil;
        const char *message;
    } defects[] = {
        {outside_buffer, "reaches outside"},
        {outside_in_last_iteration, "reaches outside"},
        {negative_offset, "reaches outside"},
        {too_many_rows, "reaches outside"},
        {empty_view, "empty view"},
        {writes_parameters, "writes the caller's parameters"},
        {other_type, "another element type"},
        {repeated_rows, "writes rows twice"},
        {strided_columns, "contiguous columns"},
        {loop_past_end, "body outside"},
        {empty_loop, "body outside"},
        {crossing_loops, "body outside"},
        {nested_loop, "lies inside"},
        {future_register, "has not computed"},
        {not_elementwise, "element by element"},
        {computes_with_optional, "may copy only"},
        {repeats_no_part, "repeats its mask after what is no part"},
        {stores_nothing, "does not store"},
        {same_offset, "overlap in the arena"},
        {reads_unwritten, "reads before it is written"},
    };
    for (size_t i = 0; i < sizeof defects / sizeof *defects; i++) {
        fixture f;
        open_plan(&f, 5, true);
        check_ok(rcvi_program_verify(&f.program));
        defects[i].spoil(&f);
        check_fails(rcvi_program_verify(&f.program), RCV_INVALID, defects[i].message);
        close_plan(&f);
    }
}

/* ---- what products read ---- */

static rcvi_view *operand_of_map(fixture *f) {
    for (size_t i = 0; i < f->program.step_count; i++) {
        rcvi_step *step = &f->program.steps[i];
        if (step->kind == RCVI_STEP_MAP && step->map->product_count && step->rows > 1)
            return &step->map->products[0].terms[0].a;
    }
    fail_msg("no map of the program has a product");
    return NULL;
}

static void repeated_operand(fixture *f) { operand_of_map(f)->column = 0; }
static void one_row_for_all(fixture *f) { operand_of_map(f)->row = 0; }
static void rows_that_overlap(fixture *f) { operand_of_map(f)->row = 1; }
static void gemm_of_one_column(fixture *f) { find_step(f, RCVI_STEP_GEMM, true)->a.column = 0; }
static void gemm_of_one_row(fixture *f) { find_step(f, RCVI_STEP_GEMM, true)->a.row = 0; }

/* Kernels take columns of stride one, and libraries no leading dimension below the columns: a program that has products of anything else
 * must not get as far as a device. */
static void test_operands(void **state) {
    (void)state;
    static const struct {
        spoil *spoil;
        const char *schedule, *message;
    } defects[] = {
        {repeated_operand, "combine+fuse+pack", "contiguous columns"},
        {repeated_operand, "combine+fuse+transpose", "contiguous columns"},
        {one_row_for_all, "combine+fuse+pack", "rows that lie apart"},
        {one_row_for_all, "combine+fuse+transpose", "rows that lie apart"},
        {rows_that_overlap, "combine+fuse+pack", "rows that lie apart"},
        {gemm_of_one_column, "naive", "contiguous columns"},
        {gemm_of_one_row, "naive", "rows that lie apart"},
    };
    for (size_t i = 0; i < sizeof defects / sizeof *defects; i++) {
        fixture f;
        open_plan_of(&f, defects[i].schedule, 5, false);
        check_ok(rcvi_program_verify(&f.program));
        defects[i].spoil(&f);
        check_fails(rcvi_program_verify(&f.program), RCV_INVALID, defects[i].message);
        close_plan(&f);
    }
}

static void test_layout(void **state) {
    (void)state;
    fixture f;
    open_plan(&f, 5, true);
    size_t sum = 0;
    for (size_t b = 0; b < f.program.buffer_count; b++) {
        const rcvi_buffer *buffer = &f.program.buffers[b];
        if (buffer->role == RCVI_ARENA) sum += (size_t)buffer->count * rcvi_element_bytes(&f.program, buffer->element);
        assert_true(buffer->arena_offset % 64 == 0);
    }
    assert_true(f.program.arena_bytes > 0 && f.program.arena_bytes < sum); /* buffers share places */
    close_plan(&f);
}

static void test_length(void **state) {
    (void)state;
    fixture few, many;
    open_plan(&few, 2, false);
    open_plan(&many, 2000, false);
    assert_int_equal(few.program.step_count, many.program.step_count);
    char *text = NULL;
    check_ok(rcv_plan_print(many.plan, &text));
    assert_non_null(strstr(text, "loop     2000 times"));
    assert_non_null(strstr(text, "backward\n"));
    rcv_text_free(many.context, text);
    check_ok(rcv_plan_explain(many.plan, &text)); /* the CPU has nothing to say */
    assert_string_equal(text, "");
    rcv_text_free(many.context, text);
    check_fails(rcv_plan_explain(many.plan, NULL), RCV_INVALID, "needs text");
    close_plan(&few);
    close_plan(&many);
}

/* ---- activations in bfloat16 ---- */

/* A program of one step that touches buffers `a`, `b` and `out` in turn, each of 16 elements that may be rounded so. */
static void narrow_one(const rcvi_step *step, rcvi_rounding rounding, rcv_dtype dtype, rcvi_element *elements) {
    rcvi_step steps[1] = {*step};
    rcvi_buffer buffers[4] = {{.name = "a"}, {.name = "b"}, {.name = "out"}, {.name = "packed"}};
    for (int i = 0; i < 3; i++) buffers[i] = (rcvi_buffer){.count = 16, .rounding = rounding};
    buffers[3].element = RCVI_PACKED;
    rcvi_program program = {
        .steps = steps, .step_count = 1, .buffers = buffers, .buffer_count = 4, .options = {.dtype = dtype}};
    rcvi_program_narrow(&program);
    assert_int_equal(buffers[3].element, RCVI_PACKED);
    for (int i = 0; i < 3; i++) elements[i] = buffers[i].element;
}

/* Which of a, b and out become activations, by the kind of step and what may be rounded. */
static void test_narrow(void **state) {
    (void)state;
    rcvi_view views[] = {{.buffer = 0, .row = 4, .column = 1},
                         {.buffer = 1, .row = 4, .column = 1},
                         {.buffer = 2, .row = 4, .column = 1}};
    rcvi_product product = {
        .start = views[1], .terms = {{.a = views[0], .b = {.buffer = 3, .row = 16}, .depth = 4}}, .term_count = 1};
    rcvi_instruction add = {RCVI_ADD, {RCVI_FROM_VIEW, RCVI_FROM_VIEW}, {0, 1}, {0, 0}, 2};
    rcvi_map multiply = {.products = &product, .product_count = 1, .operands = &views[2], .operand_count = 1};
    rcvi_map sum = {.instructions = &add, .instruction_count = 1, .operands = views, .operand_count = 3};
    const struct {
        rcvi_step step;
        bool rounded[3], as_operand[3];
    } cases[] = {
        {{.kind = RCVI_STEP_GEMM, .gemm = {.depth = 4, .batch = 1}}, {true, true, false}, {true, true, false}},
        {{.kind = RCVI_STEP_COPY}, {true, true, true}, {false, false, true}},
        {{.kind = RCVI_STEP_REDUCE, .reduce = {true}}, {true, true, false}, {true, true, false}},
        {{.kind = RCVI_STEP_REDUCE, .reduce = {false}}, {true, true, false}, {false, true, false}},
        {{.kind = RCVI_STEP_PACK}, {true, true, false}, {true, true, false}}, /* which rounds, as products do */
        {{.kind = RCVI_STEP_MAP, .map = &sum}, {true, true, true}, {false, false, true}},
        {{.kind = RCVI_STEP_MAP, .map = &multiply}, {true, false, true}, {true, false, true}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rcvi_step step = cases[i].step;
        rcvi_element elements[3];
        step.rows = step.columns = 4;
        step.a = views[0];
        step.b = views[1];
        step.out = views[2];
        step.mask = rcvi_no_view();
        product.out = 0;
        for (int k = 0; k < 3; k++) {
            narrow_one(&step, RCVI_ROUNDED, RCV_BFLOAT16, elements);
            assert_int_equal(elements[k] == RCVI_ACTIVATION, cases[i].rounded[k]);
            narrow_one(&step, RCVI_ROUNDED_AS_OPERAND, RCV_BFLOAT16, elements);
            assert_int_equal(elements[k] == RCVI_ACTIVATION, cases[i].as_operand[k]);
            narrow_one(&step, RCVI_EXACT, RCV_BFLOAT16, elements);
            assert_int_equal(elements[k], RCVI_REAL);
            narrow_one(&step, RCVI_ROUNDED, RCV_FLOAT32, elements);
            assert_int_equal(elements[k], RCVI_REAL);
        }
    }
}

static void open_training(fixture *f, const char *cell, rcv_dtype dtype, const char *schedule, rcv_plan **plan) {
    rcv_cell *opened = NULL;
    check_ok(rcv_cell_open(f->context, cell, &opened));
    rcv_net *net = NULL;
    check_ok(rcv_net_new(opened, &RCV_INIT(rcv_net_options, .input = 32, .hidden = 64, .layers = 2), &net));
    rcv_plan_options o =
        RCV_INIT(rcv_plan_options, .steps = 12, .batch = 4, .training = true, .dtype = dtype, .schedule = schedule);
    check_ok(rcv_plan_new(net, &o, plan));
    f->cell = opened;
    f->net = net;
}

/* What a bfloat16 training plan holds in two bytes an element, and the bytes that this saves against float. */
static void test_activation_bytes(void **state) {
    (void)state;
    enum { STEPS = 12, BATCH = 4, HIDDEN = 64, LAYERS = 2 };
    size_t bytes[2], arena[2], saved = 0, kept = 0, between = 0, factors = 0;
    for (int i = 0; i < 2; i++) {
        fixture f;
        rcv_plan *plan = NULL;
        f.context = test_context(&f.allocator);
        open_training(&f, "lstm", i ? RCV_BFLOAT16 : RCV_FLOAT32, "combine(steps=all)+fuse+pack", &plan);
        const rcvi_program *program = &plan->program;
        bytes[i] = 0;
        arena[i] = program->arena_bytes;
        for (size_t b = 0; b < program->buffer_count; b++) {
            const rcvi_buffer *buffer = &program->buffers[b];
            bool activation = buffer->element == RCVI_ACTIVATION;
            size_t count = (size_t)buffer->count;
            if (buffer->role != RCVI_ARENA) assert_false(activation);
            if (strstr(buffer->name, "state.") || strstr(buffer->name, "adjoint.") || strstr(buffer->name, "early."))
                assert_false(activation);
            if (buffer->element == RCVI_PACKED) continue; /* sized by the kernels */
            bytes[i] += count * rcvi_element_bytes(program, buffer->element);
            if (!activation) continue;
            assert_int_equal(i, 1);
            saved += count * (sizeof(float) - 2);
            if (strstr(buffer->name, "kept.")) kept += count;
            if (!strcmp(buffer->name, "y0")) between += count;
            if (strstr(buffer->name, "factors.")) factors += count;
        }
        rcv_plan_free(plan);
        rcv_net_free(f.net);
        rcv_cell_free(f.cell);
        test_context_end(&f.allocator, f.context);
    }
    const size_t tensor = STEPS * BATCH * HIDDEN;
    assert_int_equal(kept, LAYERS * 4 * tensor);    /* the gates; the cell state's tanh follows from it */
    assert_int_equal(between, tensor);              /* what the upper layer reads */
    assert_int_equal(factors, LAYERS * 4 * tensor); /* the gates' adjoints */
    assert_int_equal(bytes[0] - bytes[1], saved);
    assert_true(saved >= 2 * (kept + between + factors));
    assert_true(arena[0] - arena[1] >= 2 * (kept + between)); /* which are all live at the end of the forward pass */
}

/* A sum cannot start from activations, end in them or go on in them. */
static void test_verify_activations(void **state) {
    (void)state;
    fixture f;
    f.context = test_context(&f.allocator);
    open_training(&f, "lstm", RCV_BFLOAT16, "combine(steps=4)+fuse+pack", &f.plan);
    rcvi_program *program = &f.plan->program;
    check_ok(rcvi_program_verify(program));
    int spoilt = 0;
    for (size_t b = 0; b < program->buffer_count; b++) {
        rcvi_buffer *buffer = &program->buffers[b];
        bool start = strstr(buffer->name, "early.") != NULL, gradients = buffer->role == RCVI_DPARAMETERS;
        if (!start && !gradients) continue;
        buffer->element = RCVI_ACTIVATION;
        check_fails(rcvi_program_verify(program), RCV_INVALID, "needs more than activations hold in");
        buffer->element = RCVI_REAL;
        spoilt += start ? 1 : 100;
    }
    assert_true(spoilt > 100);
    check_ok(rcvi_program_verify(program));
    rcv_plan_free(f.plan);
    rcv_net_free(f.net);
    rcv_cell_free(f.cell);
    test_context_end(&f.allocator, f.context);
}

/* Runs one step over buffers of doubles: by the reference code, or by kernels as two threads. */
static void run_step(rcvi_step *step, size_t buffer_count, void *const *buffers, bool naive) {
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    rcvi_buffer kinds[8] = {{.role = RCVI_Y}}; /* the caller's, of reals */
    rcvi_program program = {.steps = step,
                            .step_count = 1,
                            .forward_count = 1,
                            .buffers = kinds,
                            .buffer_count = buffer_count,
                            .options = {.dtype = RCV_FLOAT64, .steps = 1, .batch = 1},
                            .rungs = {.fuse = !naive, .threads = naive ? 1 : 2}};
    for (int i = 0; i < 8; i++) kinds[i].role = RCVI_Y;
    rcvi_pool_init(&program.pool, context);
    rcvi_engine *engine = NULL;
    rcvi_worker *worker = NULL;
    check_ok(rcvi_device_cpu.describe(context, 0, RCV_FLOAT64, program.rungs.threads, &program.machine));
    check_ok(rcvi_device_cpu.prepare(&program, &engine));
    check_ok(rcvi_device_cpu.open(engine, &worker));
    void *scratch = aligned_alloc(128, rcvi_device_cpu.scratch_bytes(engine) + 128);
    assert_non_null(scratch);
    check_ok(rcvi_device_cpu.run(worker, 0, 1, &(rcvi_binding){.program = &program, .buffers = buffers}, scratch));
    free(scratch);
    rcvi_device_cpu.close(worker);
    rcvi_device_cpu.release(engine);
    rcvi_pool_free(&program.pool);
    test_context_end(&allocator, context);
}

/* A map of several instructions, which the naive schedule never writes: registers, numbers, a repeated row, a repeated
 * column, an intermediate value stored on the way, more columns than a block. */
static void check_fused_map(bool naive) {
    enum { ROWS = 3, COLUMNS = 300 };
    rcvi_instruction instructions[] = {
        {RCVI_MULTIPLY, {RCVI_FROM_VIEW, RCVI_FROM_VIEW}, {0, 1}, {0, 0}, RCVI_NONE}, /* a * row */
        {RCVI_ADD, {RCVI_FROM_REGISTER, RCVI_FROM_NUMBER}, {0, 0}, {0, 0.5}, 3},      /* + 0.5, stored */
        {RCVI_TANH, {RCVI_FROM_REGISTER, RCVI_FROM_NUMBER}, {1, 0}, {0, 0}, RCVI_NONE},
        {RCVI_SUBTRACT, {RCVI_FROM_VIEW, RCVI_FROM_REGISTER}, {2, 2}, {0, 0}, 4}, /* column - tanh */
    };
    rcvi_view operands[] = {{.buffer = 0, .row = COLUMNS, .column = 1},
                            {.buffer = 1, .row = 0, .column = 1},
                            {.buffer = 2, .row = 1, .column = 0},
                            {.buffer = 3, .row = COLUMNS, .column = 1},
                            {.buffer = 4, .row = COLUMNS, .column = 1}};
    rcvi_map map = {.instructions = instructions, .instruction_count = 4, .operands = operands, .operand_count = 5};
    rcvi_step step = {.kind = RCVI_STEP_MAP, .rows = ROWS, .columns = COLUMNS, .map = &map};
    step.out = step.a = step.b = step.mask = rcvi_no_view();
    static double a[ROWS * COLUMNS], row[COLUMNS], column[ROWS] = {-1, 2, 3}, middle[ROWS * COLUMNS],
                                                   out[ROWS * COLUMNS];
    for (int i = 0; i < ROWS * COLUMNS; i++) a[i] = 0.01 * (i % 97) - 0.4;
    for (int i = 0; i < COLUMNS; i++) row[i] = 0.02 * (i % 31) - 0.3;
    void *buffers[] = {a, row, column, middle, out};
    run_step(&step, 5, buffers, naive);
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        double expected = a[i] * row[i % COLUMNS] + 0.5;
        assert_true(middle[i] == expected);
        assert_true(out[i] == column[i / COLUMNS] - tanh(expected));
    }
}

static void test_fused_map(void **state) {
    (void)state;
    check_fused_map(true);
    check_fused_map(false);
}

/* What the log callback hears of a plan. */
static void keep_line(void *user, const char *line) { snprintf(user, 200, "%s", line); }

static void test_log(void **state) {
    (void)state;
    char line[200] = "";
    rcv_context *context = NULL;
    rcv_cell *cell = NULL;
    rcv_net *net = NULL;
    rcv_plan *plan = NULL;
    check_ok(rcv_context_new(&RCV_INIT(rcv_context_options, .log = keep_line, .log_user = line), &context));
    check_ok(rcv_cell_open(context, "gru", &cell));
    check_ok(rcv_net_new(cell, &RCV_INIT(rcv_net_options, .input = 3, .hidden = 4), &net));
    check_ok(rcv_plan_new(net, &RCV_INIT(rcv_plan_options, .steps = 7, .batch = 2, .schedule = "naive"), &plan));
    char bytes[40];
    snprintf(bytes, sizeof bytes, "%zu bytes", rcv_plan_bytes(plan));
    assert_non_null(strstr(line, "plan of gru, 7 steps of 2 in float32: schedule naive on device cpu"));
    assert_non_null(strstr(line, bytes));
    rcv_plan_free(plan);
    rcv_net_free(net);
    rcv_cell_free(cell);
    rcv_context_free(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_verifier),
                                       cmocka_unit_test(test_operands),
                                       cmocka_unit_test(test_layout),
                                       cmocka_unit_test(test_length),
                                       cmocka_unit_test(test_narrow),
                                       cmocka_unit_test(test_activation_bytes),
                                       cmocka_unit_test(test_verify_activations),
                                       cmocka_unit_test(test_fused_map),
                                       cmocka_unit_test(test_log)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
