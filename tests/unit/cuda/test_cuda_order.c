/* In what order steps are launched on a GPU, and which of them at once; without one. */
#include "cuda_programs.h"
#include "device/cuda/engine/engine.h"
#include "device/cuda/kernels/kernels.h"

/* ---- an engine of which only kernels are known ---- */

static void make_ready(rcvi_engine *e, const rcvi_step *step, rcvi_cuda_ready *ready, int members) {
    static const bool none[RCVI_MAX_OPERANDS];
    static const unsigned char types[RCVI_MAX_VIEWS]; /* RCVI_F32 */
    const rcvi_view *views[RCVI_MAX_VIEWS];
    rcvi_pass passes[RCVI_MAX_PASSES];
    ready->view_count = rcvi_map_views(step->map, views);
    ready->pass_count = rcvi_map_passes(step->map, passes);
    ready->views = rcvi_pool_new(&e->pool, (size_t)ready->view_count, sizeof *ready->views);
    ready->passes = rcvi_pool_new(&e->pool, (size_t)ready->pass_count, sizeof *ready->passes);
    assert_false(e->pool.failed);
    memcpy(ready->views, views, (size_t)ready->view_count * sizeof *views);
    memcpy(ready->passes, passes, (size_t)ready->pass_count * sizeof *passes);
    rcvi_map_shape shape = {.map = step->map,
                            .types = types,
                            .has_rounded = none,
                            .real = RCVI_F32,
                            .narrow = RCVI_F32,
                            .vector = 1,
                            .members = members,
                            .tile_rows = 16,
                            .tile_units = 8,
                            .stages = 4};
    for (int i = 0; i < step->map->instruction_count; i++) {
        if (step->map->instructions[i].operation == RCVI_SUM) shape.row_threads = 32;
    }
    char *source = NULL;
    check_ok(rcvi_map_source(e->context, &shape, &source));
    for (ready->kernel = 0; ready->kernel < (int)e->kernel_count; ready->kernel++) {
        if (!strcmp(e->kernels[ready->kernel].source, source)) break;
    }
    if (ready->kernel == (int)e->kernel_count) {
        assert_true(e->kernel_count < e->kernel_capacity);
        e->kernels[e->kernel_count++] = (rcvi_cuda_kernel){.shape = shape, .source = source};
    } else {
        rcvi_free(e->context, source);
    }
}

/* Kernels are those of the same text. */
static void open_engine(rcvi_engine *e, const rcvi_program *program, int members) {
    *e = (rcvi_engine){
        .program = program, .context = program->pool.context, .kernel_capacity = program->step_count, .streams = 1};
    rcvi_pool_init(&e->pool, e->context);
    e->ready = rcvi_pool_new(&e->pool, program->step_count, sizeof *e->ready);
    e->kernels = rcvi_pool_new(&e->pool, program->step_count, sizeof *e->kernels);
    e->persistent = rcvi_pool_new(&e->pool, program->step_count, sizeof *e->persistent);
    e->recurrences = rcvi_pool_new(&e->pool, program->step_count, sizeof *e->recurrences);
    assert_false(e->pool.failed);
    for (size_t i = 0; i < program->step_count; i++) {
        if (program->steps[i].kind == RCVI_STEP_MAP) make_ready(e, &program->steps[i], &e->ready[i], members);
    }
}

static void close_engine(rcvi_engine *e) {
    for (size_t k = 0; k < e->kernel_count; k++) rcvi_free(e->context, e->kernels[k].source);
    rcvi_free(e->context, e->groups);
    rcvi_pool_free(&e->pool);
}

static bool is_loop(const rcvi_program *program, int step) { return program->steps[step].kind == RCVI_STEP_LOOP; }

/* How often a step is taken, so far as loops say. */
static int64_t times_of(const rcvi_program *program, int step) {
    int64_t times = 1;
    for (int i = 0; i < step; i++) {
        if (is_loop(program, i) && step <= i + program->steps[i].loop.body) times *= program->steps[i].loop.count;
    }
    return times;
}

/* The first step after the segment that begins here. */
static int segment_end(const rcvi_program *program, int first) {
    int end = first < (int)program->forward_count ? (int)program->forward_count : (int)program->step_count;
    for (int i = 0; i < first; i++) {
        int behind = i + 1 + program->steps[i].loop.body;
        if (is_loop(program, i) && behind > first && behind < end) end = behind;
    }
    for (int i = first; i < end; i++) {
        if (is_loop(program, i)) end = i;
    }
    return end;
}

static bool is_move(const rcvi_step *step) {
    if (step->accumulate) return false;
    bool zeros = step->kind == RCVI_STEP_FILL && step->fill.number == 0;
    return step->kind == RCVI_STEP_COPY || step->kind == RCVI_STEP_PACK || zeros;
}

static void check_group(const rcvi_engine *e, const rcvi_cuda_group *group, int members) {
    const rcvi_step *lead = &e->program->steps[e->order[group->first]];
    bool map = lead->kind == RCVI_STEP_MAP, move = is_move(lead);
    bool sum = lead->kind == RCVI_STEP_REDUCE && lead->reduce.over_rows && !lead->time.timed;
    int most = sum ? RCVI_MAX_SUMS : move ? RCVI_MAX_MOVES : e->program->rungs.merge ? members : RCVI_MAX_MEMBERS;
    assert_true(group->count >= 1 && group->count <= most);
    if (group->count > 1) assert_true(e->program->rungs.merge && (map || move || sum));
    for (int i = 1; i < group->count; i++) {
        int index = e->order[group->first + i];
        const rcvi_step *step = &e->program->steps[index];
        if (map) {
            assert_int_equal(step->kind, RCVI_STEP_MAP);
            assert_int_equal(step->columns, lead->columns);
            assert_int_equal(e->ready[index].kernel, e->ready[e->order[group->first]].kernel);
        } else if (sum) {
            assert_true(step->kind == RCVI_STEP_REDUCE && step->reduce.over_rows && !step->time.timed);
            assert_true(step->rows == lead->rows && step->columns == lead->columns);
            assert_int_equal(step->accumulate, lead->accumulate);
            assert_int_equal(rcvi_cuda_type_of(e, &step->a), rcvi_cuda_type_of(e, &lead->a));
            const rcvi_buffer *buffers = e->program->buffers; /* gradients may be stored where others are added */
            assert_int_equal(rcvi_buffer_is_gradient(&buffers[step->out.buffer]),
                             rcvi_buffer_is_gradient(&buffers[lead->out.buffer]));
        } else {
            assert_true(is_move(step));
        }
    }
}

/* Every step is there once, after all that it depends on; steps of a level do not depend on each other. Returns the
 * launches of one iteration. */
static int64_t check_segment(const rcvi_engine *e, int first, int end, int members) {
    enum { MOST_STEPS = 2000 };
    const rcvi_program *program = e->program;
    int level_of[MOST_STEPS], level = -1, place = 0;
    int64_t launches = 0;
    assert_true(end - first <= MOST_STEPS);
    for (int i = first; i < end; i++) level_of[i - first] = RCVI_NONE;
    for (int at = first; at < end; launches++) {
        assert_true(e->group_of[at] >= 0 && e->group_of[at] < (int)e->group_count);
        const rcvi_cuda_group *group = &e->groups[e->group_of[at]];
        assert_int_equal(group->first, at);
        place = group->place ? place + 1 : 0;
        level += place == 0;
        assert_int_equal(group->place, place);
        check_group(e, group, members);
        for (int i = at; i < at + group->count; i++) {
            assert_true(i < end && e->order[i] >= first && e->order[i] < end);
            assert_int_equal(level_of[e->order[i] - first], RCVI_NONE);
            level_of[e->order[i] - first] = level;
            if (i > at) assert_int_equal(e->group_of[i], RCVI_NONE);
        }
        at += group->count;
    }
    for (int i = first; i < end; i++) {
        int highest = -1; /* of those that it waits for */
        for (int k = first; k < i; k++) {
            if (!rcvi_steps_conflict(program, &program->steps[k], &program->steps[i])) continue;
            if (level_of[k - first] > highest) highest = level_of[k - first];
        }
        assert_int_equal(level_of[i - first], highest + 1);
    }
    return launches;
}

static void check_order(const rcvi_program *program, int members) {
    rcvi_engine e;
    int64_t launches = 0;
    open_engine(&e, program, members);
    check_ok(rcvi_cuda_order(&e));
    for (int i = 0; i < (int)program->step_count;) {
        if (is_loop(program, i)) {
            assert_int_equal(e.order[i], i);
            assert_int_equal(e.group_of[i++], RCVI_NONE);
            continue;
        }
        int end = segment_end(program, i);
        launches += check_segment(&e, i, end, members) * times_of(program, i);
        i = end;
    }
    assert_int_equal(e.launches, launches);
    close_engine(&e);
}

static size_t check_orders(const problem *p, const rcvi_program *program) {
    (void)p;
    check_order(program, RCVI_MAX_MEMBERS);
    if (program->rungs.merge) check_order(program, 2);
    return 1;
}

static void test_order(void **state) {
    (void)state;
    assert_true(each_program(check_orders) > sample_least(300));
}

/* Makes the maps of every second layer unlike the others in one thing. */
static void tamper(rcvi_engine *e, rcvi_program *program, int thing) {
    assert_true(e->kernel_count < e->kernel_capacity);
    e->kernels[e->kernel_count] = (rcvi_cuda_kernel){.shape = e->kernels[0].shape};
    for (size_t i = 0; i < program->step_count; i++) {
        rcvi_step *step = &program->steps[i];
        rcvi_cuda_ready *ready = &e->ready[i];
        if (step->kind != RCVI_STEP_MAP || !step->map->product_count || step->layer % 2 == 0) continue;
        rcvi_view *other = rcvi_pool_new(&e->pool, 1, sizeof *other);
        assert_non_null(other);
        *other = *ready->views[0];
        if (thing == 1) ready->kernel = (int)e->kernel_count;
        if (thing == 2) step->columns--;
        if (thing == 3) ready->passes[0].depth--;
        if (thing == 4) other->row++;
        if (thing == 5) other->buffer = RCVI_NONE;
        ready->views[0] = other;
    }
}

/* Maps with products by launch: the most that share one, and how many launches there are. */
static void count_products(const rcvi_engine *e, int *most, int *launches) {
    *most = *launches = 0;
    for (size_t g = 0; g < e->group_count; g++) {
        const rcvi_step *step = &e->program->steps[e->order[e->groups[g].first]];
        if (step->kind != RCVI_STEP_MAP || !step->map->product_count) continue;
        ++*launches;
        if (e->groups[g].count > *most) *most = e->groups[g].count;
    }
}

/* The layers of a wavefront are one launch, or as many as it takes, if they are alike in all that a launch has once. */
static void test_wavefront(void **state) {
    (void)state;
    static const config deep = {"lstm", {.input = 8, .hidden = 8, .layers = 5}, 9, 4, false, false, false};
    for (int i = 0; i < 36; i++) {
        int most, launches, members = 1 + i % 6, thing = i / 6, layers = thing ? 3 : 5; /* 3 and 2 where unlike */
        problem p;
        rcvi_program program;
        rcvi_engine e;
        open_problem(&p, &deep, 1);
        assert_true(write_program(&p, false, "combine+fuse+pack+wavefront+merge", &program));
        open_engine(&e, &program, members);
        tamper(&e, &program, thing);
        check_ok(rcvi_cuda_order(&e));
        count_products(&e, &most, &launches);
        assert_int_equal(most, members < layers ? members : layers);
        assert_int_equal(launches, (layers + members - 1) / members + (5 - layers + members - 1) / members);
        close_engine(&e);
        rcvi_program_free(&program);
        close_problem(&p);
    }
}

/* A step of a wavefront with sums over features is two launches in each direction, and one more where inputs are not as wide
 * as states; gradients of vectors, 14 a layer here, are summed by few launches. */
static void check_sums(int64_t input) {
    config normal = {"lstm_layernorm", {.input = input, .hidden = 8, .layers = 3}, 5, 4, false, false, false};
    problem p;
    rcvi_program program;
    rcvi_engine e;
    int steps = 0, launches = 0, timed[2] = {0}, most = input == 8 ? 2 : 3;
    open_problem(&p, &normal, 1);
    assert_true(write_program(&p, true, "combine+fuse+pack+wavefront+merge", &program));
    open_engine(&e, &program, RCVI_MAX_MEMBERS);
    check_ok(rcvi_cuda_order(&e));
    for (size_t g = 0; g < e.group_count; g++) {
        const rcvi_step *step = &program.steps[e.order[e.groups[g].first]];
        timed[step >= program.steps + program.forward_count] += step->kind == RCVI_STEP_MAP && step->time.timed;
        if (step->kind != RCVI_STEP_REDUCE) continue;
        steps += e.groups[g].count;
        launches++;
    }
    assert_true(timed[0] == most && timed[1] == most);
    assert_int_equal(steps, 3 * 14);
    assert_int_equal(launches, (3 * 14 + RCVI_MAX_SUMS - 1) / RCVI_MAX_SUMS);
    close_engine(&e);
    rcvi_program_free(&program);
    close_problem(&p);
}

static void test_sums(void **state) {
    (void)state;
    check_sums(8);
    check_sums(5);
}

/* What is made of the parameters alone, of layers that run one after the other: forwards two launches, of 24 matrices and of
 * 12 sums of two vectors; backwards, where there is nothing to add, one. */
static void test_prepared(void **state) {
    (void)state;
    static const config deep = {"lstm", {.input = 8, .hidden = 8, .layers = 3}, 9, 4, false, false, false};
    problem p;
    rcvi_program program;
    rcvi_engine e;
    int launches[2] = {0, 0}, steps[2] = {0, 0};
    open_problem(&p, &deep, 1);
    assert_true(write_program(&p, true, "combine(steps=all)+fuse+pack+merge", &program));
    open_engine(&e, &program, RCVI_MAX_MEMBERS);
    check_ok(rcvi_cuda_order(&e));
    for (size_t g = 0; g < e.group_count; g++) {
        const rcvi_step *step = &program.steps[e.order[e.groups[g].first]];
        bool backward = step >= program.steps + program.forward_count;
        if (step->when != RCVI_WHEN_PARAMETERS_CHANGED) continue;
        launches[backward]++;
        for (int i = 0; i < e.groups[g].count; i++) { /* copies of states may be among them */
            const rcvi_step *member = &program.steps[e.order[e.groups[g].first + i]];
            steps[backward] += member->when == RCVI_WHEN_PARAMETERS_CHANGED;
        }
    }
    assert_int_equal(launches[0], 2);
    assert_int_equal(steps[0], 24 + 12);
    assert_int_equal(launches[1], 1);
    assert_int_equal(steps[1], 24);
    close_engine(&e);
    rcvi_program_free(&program);
    close_problem(&p);
}

/* Large products of the whole sequence are one step a layer and pass: of all gates, from their biases; of all gates' adjoints.
 * Both passes read one copy of the weights. */
static void check_large(rcv_dtype dtype) {
    static const config deep = {"lstm", {.input = 8, .hidden = 8, .layers = 3}, 9, 4, false, false, false};
    problem p;
    rcvi_program program;
    int forward = 0, backward = 0, copies = 0;
    open_problem(&p, &deep, 1);
    rcv_plan_options options = options_of(&p, dtype, true, "combine(steps=all)+fuse+pack+merge");
    gpu_alone = 9 * 4 * 8 * 8;
    assert_true(write_with(p.net, &options, &program));
    gpu_alone = 0;
    for (size_t i = 0; i < program.step_count; i++) {
        const rcvi_step *step = &program.steps[i];
        bool first = i < program.forward_count;
        copies += step->kind == RCVI_STEP_COPY && step->when == RCVI_WHEN_PARAMETERS_CHANGED;
        if (step->kind != RCVI_STEP_GEMM || step->gemm.transpose_a) continue;
        forward += first && step->gemm.start && step->columns == 4 * 8 && step->gemm.depth == 8;
        backward += !first && !step->gemm.start && step->columns == 8 && step->gemm.depth == 4 * 8;
        assert_int_equal(step->rows, 9 * 4);
        assert_false(step->accumulate);
    }
    assert_true(forward == 3 && backward == 3);
    assert_int_equal(copies, rcvi_dtype_is_narrow(dtype) ? 3 : 0);
    rcvi_program_free(&program);
    close_problem(&p);
}

static void test_large(void **state) {
    (void)state;
    check_large(RCV_BFLOAT16);
    check_large(RCV_TFLOAT32);
    check_large(RCV_FLOAT32);
}

/* The steps that read parameters of the plan's 16-bit type: large products in place where rows are multiples of 16 bytes, else from a copy whose
 * rows are; packing; and sums of biases. No rounded copy is made. */
static void check_own_type(rcv_dtype dtype, int64_t input, rcv_array_type declared, int want) {
    config deep = {"lstm", {.input = input, .hidden = 8, .layers = 1}, 9, 4, false, false, false};
    problem p;
    rcvi_program program;
    int copies = 0, products = 0, in_place = 0;
    open_problem(&p, &deep, 1);
    p.parameter_type = declared;
    p.gradient_type = declared;
    rcv_plan_options options = options_of(&p, dtype, true, "combine(steps=all)+fuse+pack+merge");
    gpu_alone = 9 * 4 * 8;
    assert_true(write_with(p.net, &options, &program));
    gpu_alone = 0;
    rcvi_engine e = {.program = &program, .context = program.pool.context};
    rcvi_pool_init(&e.pool, e.context);
    check_ok(rcvi_cuda_find_layout(&e));
    assert_true(e.covers);
    for (size_t i = 0; i < program.step_count; i++) {
        const rcvi_step *step = &program.steps[i];
        copies += step->kind == RCVI_STEP_COPY && step->when == RCVI_WHEN_PARAMETERS_CHANGED;
        if (step->kind != RCVI_STEP_GEMM || step->gemm.transpose_a) continue;
        products++;
        in_place += program.buffers[step->b.buffer].role == RCVI_PARAMETERS;
    }
    for (size_t b = 0; b < program.buffer_count; b++) {
        bool given = program.buffers[b].role == RCVI_PARAMETERS || program.buffers[b].replaces == RCVI_PARAMETERS;
        if (given && program.buffers[b].element != RCVI_REAL) assert_false(rcvi_cuda_has_rounded(&e, (int)b));
    }
    assert_true(products > 0);
    assert_int_equal(copies, want);
    assert_int_equal(in_place, want ? 0 : products);
    rcvi_pool_free(&e.pool);
    rcvi_program_free(&program);
    close_problem(&p);
}

static void test_own_type(void **state) {
    (void)state;
    check_own_type(RCV_BFLOAT16, 8, RCV_AS_BFLOAT16, 0);
    check_own_type(RCV_FLOAT16, 16, RCV_AS_FLOAT16, 0);
    check_own_type(RCV_BFLOAT16, 12, RCV_AS_BFLOAT16, 1); /* with rows of 16 */
    check_own_type(RCV_BFLOAT16, 8, RCV_AS_FLOAT16, 2);   /* the same, and one of all that is packed and added */
}

/* Rows of 12 with room for 16: what copies and dropout alone write has zeros after them, so the products of x, of what is dropped and
 * of the weights' copies may be deeper than their operands; what a loop writes has not. */
static void check_padded(bool drops, bool lengths, rcv_dtype dtype) {
    config deep = {"lstm", {.input = 12, .hidden = 12, .layers = 3, .dropout = drops ? 0.5 : 0}, 9, 4, lengths, 0,
                   true};
    problem p;
    rcvi_program program;
    int padded = 0, products = 0;
    open_problem(&p, &deep, 1);
    rcv_plan_options options = options_of(&p, dtype, true, "combine(steps=all)+fuse+pack+merge+persistent");
    gpu_alone = 1;
    assert_true(write_with(p.net, &options, &program));
    gpu_alone = 0;
    rcvi_engine e = {.program = &program, .context = program.pool.context};
    rcvi_pool_init(&e.pool, e.context);
    check_ok(rcvi_cuda_find_layout(&e));
    for (size_t b = 0; b < program.buffer_count; b++) {
        const char *name = program.buffers[b].name;
        bool copy = !strncmp(name, "x.", 2) || strstr(name, ".weights.") || (drops && !strncmp(name, "dropped", 7));
        assert_int_equal(e.padded[b], copy && rcvi_dtype_is_narrow(dtype));
    }
    for (size_t i = 0; i < program.forward_count; i++) {
        if (program.steps[i].kind != RCVI_STEP_GEMM) continue;
        padded += rcvi_cuda_shape_gemm(&e, &program.steps[i], 9).padded;
        products++;
    }
    assert_int_equal(products, 3);
    assert_int_equal(padded, !rcvi_dtype_is_narrow(dtype) ? 0 : drops ? 3 : 1);
    rcvi_pool_free(&e.pool);
    rcvi_program_free(&program);
    close_problem(&p);
}

static void test_padded(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) check_padded(i & 1, i & 2, RCV_BFLOAT16);
    check_padded(true, false, RCV_FLOAT16);
    check_padded(true, false, RCV_TFLOAT32);
}

/* ---- gradients that are stored, not added ---- */

/* Does the step write gradients as they are computed? Clearing them, and storing the sums of another type, is more. */
static bool computes_gradients(const rcvi_step *step) {
    bool clears = step->when == RCVI_WHEN_OVERWRITING || step->when == RCVI_WHEN_ADDING;
    return !clears && !(step->kind == RCVI_STEP_COPY && step->accumulate);
}

/* Counts how often a call writes every gradient; answers whether it is once, by steps outside of loops. */
static bool writes_once(const rcvi_program *program) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    int64_t elements = program->net->parameter_elements;
    unsigned char *times = calloc((size_t)elements, 1);
    bool once = true;
    assert_non_null(times);
    for (int i = (int)program->forward_count; i < (int)program->step_count; i++) {
        const rcvi_step *step = &program->steps[i];
        int count = computes_gradients(step) ? rcvi_step_accesses(step, accesses) : 0;
        for (int k = 0; k < count; k++) {
            const rcvi_view *v = accesses[k].view;
            const rcvi_buffer *buffer = &program->buffers[v->buffer];
            if (!rcvi_buffer_is_gradient(buffer)) continue;
            if (buffer->replaces) buffer = &program->buffers[buffer->theirs];
            once &= times_of(program, i) == 1 && !step->time.timed;
            int64_t batch = step->kind == RCVI_STEP_GEMM ? step->gemm.batch : 1, first = v->offset;
            if (program->options.separate_parameters) first += program->net->parameters[buffer->index].offset;
            for (int64_t e = 0; once && e < batch * accesses[k].rows * accesses[k].columns; e++) {
                int64_t block = e / (accesses[k].rows * accesses[k].columns),
                        rest = e % (accesses[k].rows * accesses[k].columns);
                int64_t move = batch > 1 ? block * step->gemm.step_out : 0;
                times[first + move + rest / accesses[k].columns * v->row + rest % accesses[k].columns]++;
            }
        }
    }
    for (int64_t e = 0; e < elements; e++) once &= times[e] == 1;
    free(times);
    return once;
}

static size_t check_covers(const problem *p, const rcvi_program *program) {
    (void)p;
    rcvi_engine e = {.program = program, .context = program->pool.context};
    rcvi_pool_init(&e.pool, e.context);
    check_ok(rcvi_cuda_find_layout(&e));
    bool covers = e.covers;
    rcvi_pool_free(&e.pool);
    if (!program->options.training) return 0;
    assert_int_equal(covers, writes_once(program));
    return covers;
}

static void test_covers(void **state) {
    (void)state;
    assert_true(each_program(check_covers) > sample_least(150));
}

/* ---- dead-step elimination ---- */

static size_t count_accesses(const rcvi_program *program, int buffer, bool written) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    size_t found = 0;
    for (size_t i = 0; i < program->step_count; i++) {
        int count = rcvi_step_accesses(&program->steps[i], accesses);
        for (int k = 0; k < count; k++)
            found += accesses[k].view->buffer == buffer && (written ? accesses[k].written : accesses[k].read);
    }
    return found;
}

/* Does the step touch the buffer, by writing or by reading it? */
static bool touches(const rcvi_step *step, int buffer, bool written) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    int count = rcvi_step_accesses(step, accesses);
    bool found = false;
    for (int k = 0; k < count; k++)
        found |= accesses[k].view->buffer == buffer && (written ? accesses[k].written : accesses[k].read);
    return found;
}

/* Of a pass for which the caller left out `role` (RCVI_ARENA: nothing), what idle steps write nobody reads behind them, and it is nothing of the
 * caller's. Answers how many are idle. */
static size_t count_idle(const rcvi_program *program, bool backward, rcvi_role role) {
    static char there;
    size_t first = backward ? program->forward_count : 0, end = backward ? program->step_count : program->forward_count;
    size_t found = 0;
    void **buffers = calloc(program->buffer_count, sizeof *buffers);
    bool *wanted = calloc(program->buffer_count, sizeof *wanted), *idle = calloc(program->step_count, sizeof *idle);
    assert_true(buffers && wanted && idle);
    for (size_t b = 0; b < program->buffer_count; b++)
        buffers[b] = role != RCVI_ARENA && program->buffers[b].role == role ? NULL : &there;
    rcvi_program_find_dead_steps(program, buffers, first, end, wanted, idle);
    for (size_t i = 0; i < program->step_count; i++) {
        if (!idle[i]) continue;
        assert_true(i >= first && i < end && times_of(program, (int)i) == 1 && !is_loop(program, (int)i));
        found++;
        for (size_t b = 0; b < program->buffer_count; b++) {
            if (!touches(&program->steps[i], (int)b, true)) continue;
            assert_true(!buffers[b] || program->buffers[b].role == RCVI_ARENA);
            for (size_t k = i + 1; k < program->step_count; k++)
                assert_true(idle[k] || !touches(&program->steps[k], (int)b, false));
        }
    }
    free(buffers);
    free(wanted);
    free(idle);
    return found;
}

static size_t check_idle(const problem *p, const rcvi_program *program) {
    (void)p;
    assert_int_equal(count_idle(program, false, RCVI_ARENA), 0);
    assert_true(count_idle(program, false, RCVI_FINAL) > 0);
    if (!program->options.training) return 0;
    assert_int_equal(count_idle(program, true, RCVI_ARENA), 0);
    size_t copies = 0, idle = count_idle(program, true, RCVI_DINITIAL);
    for (size_t b = 0; b < program->buffer_count; b++)
        copies += program->buffers[b].role == RCVI_DINITIAL ? count_accesses(program, (int)b, true) : 0;
    assert_true(idle >= copies);
    return idle > copies;
}

/* All that is asked for is computed; of what is not, not only the last copy is left out, where loops do not have it besides. */
static void test_idle(void **state) {
    (void)state;
    assert_true(each_program(check_idle) > sample_least(20));
}

/* ---- what is the caller's, in place ---- */

static size_t check_stand_ins(const problem *p, const rcvi_program *program) {
    (void)p;
    rcvi_engine e = {.program = program, .context = program->pool.context};
    bool dy = false;
    size_t dx = 0;
    rcvi_pool_init(&e.pool, e.context);
    check_ok(rcvi_cuda_find_layout(&e));
    for (size_t b = 0; b < program->buffer_count; b++) {
        if (e.stand_ins[b] == RCVI_NONE) continue;
        const rcvi_buffer *own = &program->buffers[b], *theirs = &program->buffers[e.stand_ins[b]];
        assert_false(program->options.lengths);
        assert_true(own->role == RCVI_ARENA && own->count == theirs->count && own->element == theirs->element);
        dy |= theirs->role == RCVI_DY;
        dx += theirs->role == RCVI_DX;
        if (theirs->role == RCVI_DY) assert_int_equal(count_accesses(program, (int)b, true), 1);
        assert_int_equal(count_accesses(program, e.stand_ins[b], theirs->role == RCVI_DX), 1);
        assert_int_equal(count_accesses(program, e.stand_ins[b], theirs->role != RCVI_DX), 0);
    }
    assert_int_equal(dy, program->options.training && !program->options.lengths);
    rcvi_pool_free(&e.pool);
    return dx;
}

/* dy always, dx where no step writes past its end. */
static void test_stand_ins(void **state) {
    (void)state;
    assert_true(each_program(check_stand_ins) > sample_least(50));
}

/* ---- transposed buffers ---- */

/* Counts transposed buffers, and products that start from a row: such a product is stored as it is, since the library adds a row only there. */
static void count_transposed(const rcvi_program *program, size_t *transposed, size_t *starts) {
    rcvi_engine e = {.program = program, .context = program->pool.context};
    rcvi_pool_init(&e.pool, e.context);
    check_ok(rcvi_cuda_find_layout(&e));
    for (size_t b = 0; b < program->buffer_count; b++) *transposed += e.transposed[b] > 0;
    for (size_t i = 0; i < program->step_count; i++) {
        const rcvi_step *step = &program->steps[i];
        if (step->kind != RCVI_STEP_GEMM || !step->gemm.start) continue;
        if (e.transposed[step->out.buffer])
            fail_msg("%s: step %zu starts from a row and is transposed", program->options.schedule, i);
        ++*starts;
    }
    rcvi_pool_free(&e.pool);
}

static void test_transposed(void **state) {
    (void)state;
    static const char *const some_plans[] = {"combine+fuse+transpose+interpret",
                                             "combine(steps=3)+fuse+transpose+interpret",
                                             "combine(steps=all)+fuse+transpose+interpret", "combine+fuse+transpose"};
    enum { PLANS = sizeof some_plans / sizeof *some_plans };
    size_t transposed = 0, starts = 0;
    for (size_t i = 0; i < rcv_builtin_count() * PLANS * 2; i++) {
        const config c = {
            rcv_builtin_name(i / (2 * PLANS)), {.input = 8, .hidden = 8, .layers = 2}, 6, 4, false, false, true};
        problem p;
        rcvi_program program;
        open_problem(&p, &c, 1);
        if (write_program(&p, i % 2, some_plans[i / 2 % PLANS], &program)) {
            count_transposed(&program, &transposed, &starts);
            rcvi_program_free(&program);
        }
        close_problem(&p);
    }
    print_message("%zu transposed buffers, %zu products that start from a row\n", transposed, starts);
    assert_true(transposed > 20 && starts > 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_transposed), cmocka_unit_test(test_order),    cmocka_unit_test(test_wavefront),
        cmocka_unit_test(test_sums),       cmocka_unit_test(test_prepared), cmocka_unit_test(test_padded),
        cmocka_unit_test(test_large),      cmocka_unit_test(test_covers),   cmocka_unit_test(test_idle),
        cmocka_unit_test(test_stand_ins),  cmocka_unit_test(test_own_type)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
