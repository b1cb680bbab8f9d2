/* How steps are ordered for a GPU, without one: levels and groups, and rows that are left out where sequences have ended.
 * Programs are written as for a GPU. */
#include "device/cuda/ragged.h"
#include "planned.h"
#include "schedule/schedule.h"

/* ---- programs ---- */

static const char *const plans[] = {
    "naive",
    "combine+fuse",
    "combine+fuse+pack",
    "combine(steps=3)+fuse",
    "combine(steps=3)+fuse+pack",
    "combine(steps=3,forward=1)+fuse+pack",
    "combine(steps=all)+fuse",
    "combine(steps=all)+fuse+pack",
    "combine(steps=3)+fuse+pack+recompute(every=3)",
    "combine+fuse+wavefront",
    "combine+fuse+pack+merge",
    "combine+fuse+pack+wavefront+merge",
    "combine(steps=3)+fuse+pack+wavefront+merge",
    "combine+fuse+pack+wavefront+merge+streams(4)",
};

static const config configs[] = {
    {"lstm", {.input = 4, .hidden = 4, .layers = 3}, 7, 5, true, false, true},
    {"lstm", {.input = 3, .hidden = 4, .layers = 2, .bidirectional = true}, 7, 5, true, true, true},
    {"gru", {.input = 4, .hidden = 4, .layers = 3}, 7, 4, true, true, false},
    {"gru", {.input = 4, .hidden = 4, .layers = 2, .bidirectional = true, .dropout = 0.5}, 6, 4, true, false, true},
    {"lstm_layernorm", {.input = 4, .hidden = 4, .layers = 3}, 7, 4, true, false, true},
    {"lstm_layernorm", {.input = 5, .hidden = 4, .layers = 1, .bidirectional = true}, 5, 4, true, false, false},
    {"rnn_tanh", {.input = 4, .hidden = 4, .layers = 2, .rank = 2}, 7, 4, true, false, true},
    {"slstm", {.input = 4, .hidden = 4, .layers = 2}, 7, 4, true, true, true},
    {"qrnn_fo_w2", {.input = 4, .hidden = 4, .layers = 2}, 7, 4, true, false, true},
};
enum { PLANS = sizeof plans / sizeof *plans, CONFIGS = sizeof configs / sizeof *configs };

/* The program with these rungs as for a GPU; false where the plan is not for this network. */
static bool write_program(const problem *p, bool training, const char *plan, rcvi_program *program) {
    rcv_plan_options options = options_of(p, RCV_FLOAT32, training, plan);
    rcvi_machine machine = {
        .threads = 1, .panel = 1, .grain = 1, .group = 8, .kernels = "fake_90", .gpu = true, .sums = 1024};
    rcvi_rungs rungs;
    check_ok(rcvi_rungs_read(plan, &rungs));
    const rcvi_schedule *schedule = rcvi_schedule_for(&rungs);
    if (schedule->applies(p->net, &options, &rungs, &machine)) return false;
    rcvi_program_init(program, p->net, &options, &rungs, &machine);
    schedule->write(program);
    assert_false(program->failed);
    rcvi_program_narrow(program);
    check_ok(rcvi_program_lay_out(program));
    check_ok(rcvi_program_verify(program));
    return true;
}

/* Calls `check` for every program that there is; answers how many. */
static size_t each_program(size_t (*check)(const rcvi_program *program)) {
    size_t counted = 0;
    for (int i = 0; i < CONFIGS * PLANS * 4; i++) {
        config c = configs[i / (PLANS * 4)];
        c.lengths = i & 2;
        problem p;
        rcvi_program program;
        open_problem(&p, &c, 1);
        if (write_program(&p, i & 1, plans[i / 4 % PLANS], &program)) {
            counted += check(&program);
            rcvi_program_free(&program);
        }
        close_problem(&p);
    }
    return counted;
}

/* ---- levels and groups ---- */

static void make_ready(rcvi_engine *e, const rcvi_step *step, rcvi_cuda_ready *ready, int members) {
    static const bool none[RCVI_MAX_OPERANDS];
    static const unsigned char types[RCVI_MAX_VIEWS] = {RCVI_F32};
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
                            .has_twin = none,
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

/* The first step behind the segment that begins here. */
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

static void check_group(const rcvi_engine *e, const rcvi_cuda_group *group, int members) {
    const rcvi_step *lead = &e->program->steps[e->order[group->first]];
    bool map = lead->kind == RCVI_STEP_MAP, move = lead->kind == RCVI_STEP_COPY || lead->kind == RCVI_STEP_PACK;
    assert_true(group->count >= 1 && group->count <= (e->program->rungs.merge && map ? members : RCVI_MAX_MEMBERS));
    if (group->count > 1) assert_true(e->program->rungs.merge && (map || move));
    for (int i = 1; i < group->count; i++) {
        int index = e->order[group->first + i];
        const rcvi_step *step = &e->program->steps[index];
        if (map) {
            assert_int_equal(step->kind, RCVI_STEP_MAP);
            assert_int_equal(step->columns, lead->columns);
            assert_int_equal(e->ready[index].kernel, e->ready[e->order[group->first]].kernel);
        } else {
            assert_true(step->kind == RCVI_STEP_COPY || step->kind == RCVI_STEP_PACK);
        }
    }
}

/* Every step stands once, behind all that it must wait for; those of a level need not wait for each other. Answers the
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
        for (int k = first; k < i; k++) {
            bool waits = rcvi_steps_conflict(program, &program->steps[k], &program->steps[i]);
            if (waits && level_of[i - first] <= level_of[k - first])
                fail_msg("%s: step %d does not wait for step %d", program->options.schedule, i, k);
        }
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

static size_t check_orders(const rcvi_program *program) {
    check_order(program, RCVI_MAX_MEMBERS);
    if (program->rungs.merge) check_order(program, 2);
    return 1;
}

static void test_order(void **state) {
    (void)state;
    assert_true(each_program(check_orders) > 300);
}

/* The layers of a wavefront are one launch, or as many as it takes; without merging each is its own. */
static void test_wavefront(void **state) {
    (void)state;
    static const config deep = {"lstm", {.input = 8, .hidden = 8, .layers = 5}, 9, 4, false, false, false};
    for (int members = 0; members <= 6; members++) { /* 0: no merging */
        problem p;
        rcvi_program program;
        rcvi_engine e;
        open_problem(&p, &deep, 1);
        const char *plan = members ? "combine+fuse+pack+wavefront+merge" : "combine+fuse+pack+wavefront";
        assert_true(write_program(&p, false, plan, &program));
        open_engine(&e, &program, members ? members : 1);
        check_ok(rcvi_cuda_order(&e));
        int most = 0, launches = 0, most_members = members ? members : 1;
        for (size_t g = 0; g < e.group_count; g++) {
            const rcvi_step *step = &program.steps[e.order[e.groups[g].first]];
            if (step->kind != RCVI_STEP_MAP || !step->map->product_count) continue;
            launches++;
            if (e.groups[g].count > most) most = e.groups[g].count;
        }
        assert_int_equal(most, most_members < 5 ? most_members : 5);
        assert_int_equal(launches, (5 + most_members - 1) / most_members);
        close_engine(&e);
        rcvi_program_free(&program);
        close_problem(&p);
    }
}
/* ---- sequences of different lengths ---- */

/* What an element holds. */
enum { CLEARED, WRITTEN, STALE };

/* A program gone through with its rows left out, the longest sequence first, to see whether what is then stale goes
 * anywhere. */
typedef struct {
    const rcvi_engine *engine;
    const rcvi_program *program;
    rcvi_cuda_rows rows;
    unsigned char **held;   /* [buffers][elements] */
    unsigned char **values; /* the same of masks */
    const uint8_t *resets;
    int64_t inner, outer, time; /* of the step */
    size_t left_out;            /* elements that were not computed */
} simulation;

static int64_t index_of(const simulation *s, const rcvi_view *v, int64_t row, int64_t column) {
    return rcvi_view_start(v, s->inner, s->outer, s->time) + row * v->row + column * v->column;
}

static unsigned char *element(const simulation *s, const rcvi_view *v, int64_t row, int64_t column) {
    int64_t index = index_of(s, v, row, column);
    assert_true(index >= 0 && index < s->program->buffers[v->buffer].count);
    return &s->held[v->buffer][index];
}

static bool is_stale(const simulation *s, const rcvi_view *v, int64_t row, int64_t column) {
    return v->buffer != RCVI_NONE && *element(s, v, row, column) == STALE;
}

static void put(const simulation *s, const rcvi_view *v, int64_t row, int64_t column, bool stale) {
    if (v->buffer != RCVI_NONE) *element(s, v, row, column) = stale ? STALE : WRITTEN;
}

static void take_row(const simulation *s, const rcvi_step *step, int64_t row) {
    const rcvi_map *map = step->map;
    bool products[RCVI_MAX_PRODUCTS], registers[RCVI_MAX_LONG_INSTRUCTIONS][64];
    assert_true(step->columns <= 64);
    for (int i = -1; i < map->instruction_count; i++) {
        bool sum = false;
        for (int64_t c = 0; c < step->columns; c++) {
            for (int p = 0; p < map->product_count; p++) {
                products[p] = is_stale(s, &map->products[p].start, row, c);
                for (int t = 0; t < map->products[p].term_count; t++) {
                    for (int64_t k = 0; k < map->products[p].terms[t].depth; k++)
                        products[p] |= is_stale(s, &map->products[p].terms[t].a, row, k);
                }
                if (i < 0 && map->products[p].out != RCVI_NONE)
                    put(s, &map->operands[map->products[p].out], row, c, products[p]);
            }
            if (i < 0) continue;
            const rcvi_instruction *in = &map->instructions[i];
            bool stale = false;
            for (int a = 0; a < rcvi_operations[in->operation].arguments; a++) {
                int source = in->source[a];
                stale |= in->from[a] == RCVI_FROM_VIEW       ? is_stale(s, &map->operands[source], row, c)
                         : in->from[a] == RCVI_FROM_REGISTER ? registers[source][c]
                         : in->from[a] == RCVI_FROM_PRODUCT  ? products[source]
                                                             : false;
            }
            registers[i][c] = stale;
            sum |= stale;
        }
        for (int64_t c = 0; i >= 0 && c < step->columns; c++) {
            if (map->instructions[i].operation == RCVI_SUM) registers[i][c] = sum;
            if (map->instructions[i].out != RCVI_NONE)
                put(s, &map->operands[map->instructions[i].out], row, c, registers[i][c]);
        }
    }
}
