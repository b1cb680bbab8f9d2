/* Sequences of different lengths as a GPU takes them, without one: programs are gone through with the rows left out that are
 * left out there, to see that what those hold then goes nowhere. */
#include "cuda_programs.h"
#include "device/cuda/engine/ragged.h"
#include "device/cuda/kernels/sort_lengths.h"

/* What is known of an element. Of a sequence that has ended, what was cleared is no more than a finite number, and so is what
 * is computed of it; but zero it is, and stays zero in products. */
enum { COMPUTED = 0, ZERO = 1, FINITE = 2, CLEARED = ZERO | FINITE, STALE = 4 };
enum { MOST_COLUMNS = 64 };

static unsigned all_of(unsigned a, unsigned b) { return ((a | b) & (FINITE | STALE)) | (a & b & ZERO); }

/* Zero as it should be stays so, whatever it is multiplied with. */
static unsigned product_of(unsigned a, unsigned b) {
    if ((a | b) & STALE) return STALE;
    if (a == ZERO || b == ZERO) return ZERO;
    return a | b;
}

static unsigned operation_of(rcvi_operation operation, const unsigned *x) {
    switch (operation) {
    case RCVI_ADD:
    case RCVI_SUBTRACT: return all_of(x[0], x[1]);
    case RCVI_NEGATE: return x[0];
    case RCVI_MULTIPLY: return product_of(x[0], x[1]);
    case RCVI_DIVIDE: return x[1] & (FINITE | ZERO) ? STALE : x[0] | x[1]; /* by zero, or by anything */
    case RCVI_EXP:
    case RCVI_LOG:
    case RCVI_SQRT: return x[0] & FINITE ? STALE : x[0] & STALE;
    default: return (x[0] | (rcvi_operations[operation].arguments > 1 ? x[1] : 0u)) & (FINITE | STALE);
    }
}

/* A program gone through with its rows left out, the longest sequence first, to see whether what is then stale goes
 * anywhere. */
typedef struct {
    const rcvi_engine *engine;
    const rcvi_program *program;
    rcvi_cuda_rows rows;
    unsigned char **held;  /* [buffers][elements] */
    unsigned char **masks; /* the same: their values */
    const uint8_t *resets;
    int64_t inner, outer, time; /* of the step */
    size_t left_out;            /* elements that were not computed */
} simulation;

static int64_t element_count(const simulation *s, int buffer) { return s->program->buffers[buffer].count; }

static int64_t index_of(const simulation *s, const rcvi_view *v, int64_t row, int64_t column) {
    return rcvi_view_start(v, s->inner, s->outer, s->time) + row * v->row + column * v->column;
}

static unsigned char *element(const simulation *s, const rcvi_view *v, int64_t row, int64_t column) {
    int64_t index = index_of(s, v, row, column);
    assert_true(index >= 0 && index < element_count(s, v->buffer));
    return &s->held[v->buffer][index];
}

static unsigned known_of(const simulation *s, const rcvi_view *v, int64_t row, int64_t column) {
    return v->buffer == RCVI_NONE ? ZERO : *element(s, v, row, column);
}

static void put(const simulation *s, const rcvi_view *v, int64_t row, int64_t column, unsigned known) {
    if (v->buffer != RCVI_NONE) *element(s, v, row, column) = (unsigned char)known;
}

static unsigned known_of_product(const simulation *s, const rcvi_product *product, int64_t row, int64_t column) {
    unsigned known = known_of(s, &product->start, row, column);
    for (int t = 0; t < product->term_count; t++) {
        for (int64_t k = 0; k < product->terms[t].depth; k++)
            known = all_of(known, known_of(s, &product->terms[t].a, row, k));
    }
    return known;
}

static void take_map_row(const simulation *s, const rcvi_step *step, int64_t row) {
    static unsigned products[RCVI_MAX_PRODUCTS][MOST_COLUMNS], registers[RCVI_MAX_LONG_INSTRUCTIONS][MOST_COLUMNS];
    const rcvi_map *map = step->map;
    assert_true(step->columns <= MOST_COLUMNS);
    for (int p = 0; p < map->product_count; p++) {
        for (int64_t c = 0; c < step->columns; c++) products[p][c] = known_of_product(s, &map->products[p], row, c);
    }
    for (int i = 0; i < map->instruction_count; i++) {
        const rcvi_instruction *in = &map->instructions[i];
        unsigned sum = ZERO;
        for (int64_t c = 0; c < step->columns; c++) {
            unsigned x[3] = {COMPUTED};
            for (int a = 0; a < rcvi_operations[in->operation].arguments; a++) {
                int from = in->source[a];
                if (in->from[a] == RCVI_FROM_VIEW) x[a] = known_of(s, &map->operands[from], row, c);
                if (in->from[a] == RCVI_FROM_REGISTER) x[a] = registers[from][c];
                if (in->from[a] == RCVI_FROM_PRODUCT) x[a] = products[from][c];
            }
            registers[i][c] = operation_of(in->operation, x);
            sum = all_of(sum, x[0]);
        }
        for (int64_t c = 0; c < step->columns && in->operation == RCVI_SUM; c++) registers[i][c] = sum;
    }
    for (int64_t c = 0; c < step->columns; c++) {
        for (int p = 0; p < map->product_count; p++) {
            if (map->products[p].out != RCVI_NONE) put(s, &map->operands[map->products[p].out], row, c, products[p][c]);
        }
        for (int i = 0; i < map->instruction_count; i++) {
            int out = map->instructions[i].out;
            if (out != RCVI_NONE) put(s, &map->operands[out], row, c, registers[i][c]);
        }
        for (int i = 0; i < map->store_count; i++) {
            const rcvi_map_store *store = &map->stores[i];
            put(s, &map->operands[store->out], row, c, (store->product ? products : registers)[store->source][c]);
        }
    }
}

static void take_gemm(const simulation *s, const rcvi_step *step, int64_t rows, int64_t span) {
    int64_t depth = step->gemm.depth;
    if (step->gemm.transpose_a && step->time.timed) depth = depth / step->time.span * span;
    rcvi_view out = step->out, a = step->a, b = step->b;
    for (int64_t n = 0; n < step->gemm.batch; n++) {
        for (int64_t r = 0; r < rows; r++) {
            for (int64_t c = 0; c < step->columns; c++) {
                unsigned known = step->accumulate ? known_of(s, &out, r, c) : ZERO;
                if (step->gemm.start) known = known_of(s, step->gemm.start, 0, c);
                for (int64_t k = 0; k < depth; k++) {
                    unsigned x = step->gemm.transpose_a ? known_of(s, &a, k, r) : known_of(s, &a, r, k);
                    unsigned y = step->gemm.transpose_b ? known_of(s, &b, c, k) : known_of(s, &b, k, c);
                    unsigned z = product_of(x, y);
                    if (step->gemm.transpose_a && (z & ZERO)) z = ZERO; /* a gradient: ended sequences add nothing */
                    known = all_of(known, z);
                }
                put(s, &out, r, c, known);
            }
        }
        out.offset += step->gemm.step_out;
        a.offset += step->gemm.step_a;
        b.offset += step->gemm.step_b;
    }
}

static void take_reduce(const simulation *s, const rcvi_step *step, int64_t rows) {
    bool over_rows = step->reduce.over_rows;
    for (int64_t i = 0; i < (over_rows ? step->columns : rows); i++) {
        int64_t to_row = over_rows ? 0 : i, to_column = over_rows ? i : 0;
        unsigned known = step->accumulate ? known_of(s, &step->out, to_row, to_column) : ZERO;
        for (int64_t k = 0; k < (over_rows ? rows : step->columns); k++) {
            unsigned x = known_of(s, &step->a, over_rows ? k : i, over_rows ? i : k);
            known = all_of(known, over_rows && (x & ZERO) ? ZERO : x);
        }
        put(s, &step->out, to_row, to_column, known);
    }
}

static void take_mask(const simulation *s, const rcvi_step *step) {
    bool boundary = step->kind == RCVI_STEP_BOUNDARY;
    for (int64_t t = 0; t < step->rows + boundary; t++) {
        for (int64_t b = 0; b < step->columns; b++) {
            bool on = t < step->rows && t < s->rows.lengths[b] && (!boundary || s->resets[t * step->columns + b]);
            s->masks[step->out.buffer][index_of(s, &step->out, t, b)] = on;
            put(s, &step->out, t, b, COMPUTED);
        }
    }
}

/* Copies and their like, element by element. */
static void take_plain(const simulation *s, const rcvi_step *step, int64_t rows) {
    for (int64_t r = 0; r < rows; r++) {
        const rcvi_view *from = &step->a;
        bool selects = step->kind == RCVI_STEP_SELECT, fills = step->kind == RCVI_STEP_FILL;
        unsigned filled = fills && step->fill.number == 0 ? ZERO : COMPUTED;
        if (selects && !s->masks[step->mask.buffer][index_of(s, &step->mask, r, 0)]) from = &step->b;
        for (int64_t c = 0; c < step->columns; c++) put(s, &step->out, r, c, fills ? filled : known_of(s, from, r, c));
    }
}

/* What a buffer holds that was cleared. Operands of late products (schedule/retime.h) are adjoints, which are zero in steps that a sequence
 * does not have; the program itself fills the place behind the last step of these with zeros. */
static unsigned char cleared(const simulation *s, int buffer) {
    bool late = s->program->steps[s->program->buffers[buffer].first].kind == RCVI_STEP_FILL;
    return late ? ZERO : CLEARED;
}

/* Rows that a step leaves out keep what they hold. */
static void leave_out(simulation *s, const rcvi_step *step, int64_t first) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    int count = rcvi_step_accesses(step, accesses);
    for (int k = 0; k < count; k++) {
        for (int64_t i = 0; accesses[k].written && i < (step->rows - first) * accesses[k].columns; i++) {
            unsigned char *held =
                element(s, accesses[k].view, first + i / accesses[k].columns, i % accesses[k].columns);
            int buffer = accesses[k].view->buffer;
            if (s->engine->cleared_before[buffer] == RCVI_NONE || *held != cleared(s, buffer)) *held = STALE;
            s->left_out++;
        }
    }
}

static void take_step(simulation *s, size_t index) {
    const rcvi_step *step = &s->program->steps[index];
    int64_t span, rows = step->rows, last = s->program->options.steps - 1;
    if (!rcvi_step_is_due(s->program, step, s->inner, s->outer, &s->time, &span)) return;
    bool over_depth = step->kind == RCVI_STEP_GEMM && step->gemm.transpose_a;
    if (step->time.timed && !over_depth) rows = rows / step->time.span * span;
    if (s->engine->is_short[index]) {
        rows = s->rows.alive[step->direction ? last - s->time : s->time];
        leave_out(s, step, rows);
    }
    switch (step->kind) {
    case RCVI_STEP_MAP:
        for (int64_t r = 0; r < rows; r++) take_map_row(s, step, r);
        break;
    case RCVI_STEP_GEMM: take_gemm(s, step, rows, span); break;
    case RCVI_STEP_REDUCE: take_reduce(s, step, rows); break;
    case RCVI_STEP_LIVE:
    case RCVI_STEP_BOUNDARY: take_mask(s, step); break;
    case RCVI_STEP_PACK: memset(s->held[step->out.buffer], COMPUTED, (size_t)element_count(s, step->out.buffer)); break;
    default: take_plain(s, step, rows);
    }
}

static void take_steps(simulation *s, size_t first, size_t end) {
    int64_t around = s->inner;
    for (size_t i = first; i < end; i++) {
        const rcvi_step *step = &s->program->steps[i];
        if (step->kind != RCVI_STEP_LOOP) {
            take_step(s, i);
            continue;
        }
        for (size_t b = 0; b < s->program->buffer_count; b++) {
            if (s->engine->cleared_before[b] == (int)i)
                memset(s->held[b], cleared(s, (int)b), (size_t)element_count(s, (int)b));
        }
        for (int64_t k = 0; k < step->loop.count; k++) {
            s->outer = around;
            s->inner = k;
            take_steps(s, i + 1, i + 1 + (size_t)step->loop.body);
        }
        s->inner = around;
        s->outer = 0;
        i += (size_t)step->loop.body;
    }
}

/* Goes through both passes; nothing of the caller's may then hold what is stale. Answers the elements left out. */
static size_t simulate(const rcvi_engine *e, const problem *p, const int64_t *lengths) {
    const rcvi_program *program = e->program;
    simulation s = {.engine = e, .program = program, .resets = p->resets};
    s.held = calloc(program->buffer_count, sizeof *s.held);
    s.masks = calloc(program->buffer_count, sizeof *s.masks);
    check_ok(rcvi_cuda_rows_open(e->context, program, &s.rows));
    rcvi_cuda_rows_sort(&s.rows, program->sizes, lengths);
    for (size_t b = 0; b < program->buffer_count; b++) {
        const rcvi_buffer *buffer = &program->buffers[b];
        bool given = buffer->role != RCVI_ARENA && !rcvi_roles[buffer->role].written;
        s.held[b] = malloc((size_t)buffer->count);
        s.masks[b] = calloc((size_t)buffer->count, 1);
        memset(s.held[b], given ? COMPUTED : STALE, (size_t)buffer->count);
    }
    take_steps(&s, 0, program->forward_count);
    take_steps(&s, program->forward_count, program->step_count);
    for (size_t b = 0; b < program->buffer_count; b++) {
        const rcvi_buffer *buffer = &program->buffers[b];
        for (int64_t i = 0; i < buffer->count && buffer->role != RCVI_ARENA; i++) {
            if (s.held[b][i] & STALE || s.held[b][i] == FINITE)
                fail_msg("%s of %s: %s holds what is %s", program->options.schedule, p->c.cell, buffer->name,
                         s.held[b][i] & STALE ? "stale" : "no result");
        }
        free(s.held[b]);
        free(s.masks[b]);
    }
    rcvi_cuda_rows_close(e->context, &s.rows);
    free(s.held);
    free(s.masks);
    return s.left_out;
}

/* Nothing stale gets out, whatever the lengths. Answers whether rows are left out. */
static size_t check_short(const problem *p, const rcvi_program *program) {
    rcvi_engine e = {.program = program, .context = program->pool.context};
    rcvi_pool_init(&e.pool, e.context);
    check_ok(rcvi_cuda_find_short(&e));
    size_t steps = 0, maps = 0, left_out = 0; /* maps: those of one step of time */
    for (size_t i = 0; i < program->step_count; i++) {
        const rcvi_step *step = &program->steps[i];
        steps += e.is_short[i];
        maps += step->kind == RCVI_STEP_MAP && step->time.timed && step->time.span == 1;
    }
    assert_int_equal(e.sorts, program->options.lengths);
    assert_int_equal(e.counts, e.sorts && program->rungs.graph);
    if (!e.sorts) assert_int_equal(steps, 0);
    bool simple = !strncmp(p->c.cell, "lstm", 4) || !strcmp(p->c.cell, "gru");
    if (simple && e.sorts && program->rungs.fuse && !program->options.training) assert_true(steps >= maps);
    random_source random = {random_seed_of(program->options.schedule)};
    for (int n = 0; e.sorts && n < 3; n++) {
        int64_t lengths[16], batch = program->options.batch, most = program->options.steps;
        for (int64_t b = 0; b < batch; b++) lengths[b] = 1 + random_below(&random, (int)(n ? most : most - 2));
        left_out += simulate(&e, p, lengths);
    }
    assert_int_equal(left_out > 0, steps > 0);
    rcvi_pool_free(&e.pool);
    return steps > 0;
}

static void test_short(void **state) {
    (void)state;
    size_t found = each_program(check_short);
    print_message("%zu programs leave rows out\n", found);
    assert_true(found > sample_least(50));
}

static void test_sort(void **state) {
    (void)state;
    random_source random = {1};
    for (int n = 0; n < 2000; n++) {
        int64_t lengths[40], steps = 1 + random_below(&random, 12), batch = 1 + random_below(&random, 40);
        int64_t order[40], in_order[40], alive[13];
        bool seen[40] = {false};
        rcvi_cuda_rows rows = {.order = order, .lengths = in_order, .alive = alive};
        for (int64_t b = 0; b < batch; b++) lengths[b] = 1 + random_below(&random, (int)steps);
        rcvi_cuda_rows_sort(&rows, (rcvi_sizes){steps, batch}, lengths);
        for (int64_t r = 0; r < batch; r++) {
            assert_true(order[r] >= 0 && order[r] < batch && !seen[order[r]]);
            seen[order[r]] = true;
            assert_int_equal(in_order[r], lengths[order[r]]);
            if (r == 0) continue;
            assert_true(in_order[r] <= in_order[r - 1]);
            assert_true(in_order[r] < in_order[r - 1] || order[r] > order[r - 1]);
        }
        for (int64_t t = 0; t < steps; t++) {
            int64_t longer = 0;
            for (int64_t b = 0; b < batch; b++) longer += lengths[b] > t;
            assert_int_equal(alive[t], longer);
        }
    }
}

/* ---- the same on the device ---- */

/* Runs a phase of the kernel's threads in an order of its own: none depends on what another thread of the phase does. */
#define EACH_THREAD(RANDOM, CALL)                                                                                      \
    do {                                                                                                               \
        int first_ = random_below(RANDOM, RCVI_SORT_THREADS), step_ = 1 + 2 * random_below(RANDOM, 64);                \
        for (int i_ = 0; i_ < RCVI_SORT_THREADS; i_++) {                                                               \
            int thread = (first_ + i_ * step_) % RCVI_SORT_THREADS;                                                    \
            CALL;                                                                                                      \
        }                                                                                                              \
    } while (0)

static void count_alive(random_source *random, const rcvi_sorting *s, rcvi_sort_shared *shared) {
    EACH_THREAD(random, rcvi_sort_clear(s, thread));
    EACH_THREAD(random, rcvi_sort_count(s, thread));
    EACH_THREAD(random, rcvi_sort_sum_parts(s, shared, thread));
    EACH_THREAD(random, rcvi_sort_sum(s, shared, thread));
}

/* The kernel of sort_lengths.cu: its phases in their order. */
static void sort_on_device(random_source *random, const rcvi_sorting *s) {
    static rcvi_sort_shared shared;
    int64_t tiles = (s->batch + RCVI_SORT_THREADS - 1) / RCVI_SORT_THREADS;
    memset(&shared, 0x5a, sizeof shared);
    count_alive(random, s, &shared);
    for (int64_t tile = tiles; tile-- > 0;) {
        EACH_THREAD(random, rcvi_sort_load(s, &shared, tile * RCVI_SORT_THREADS, thread));
        EACH_THREAD(random, rcvi_sort_place(s, &shared, tile * RCVI_SORT_THREADS, thread));
    }
    count_alive(random, s, &shared);
}

/* Lengths of a few values, with ties, or of many; some of them out of range. */
static int64_t draw_length(random_source *random, int64_t steps, bool few) {
    static const int64_t outside[] = {0, -1, INT64_MIN, INT64_MAX};
    int kind = random_below(random, 8);
    if (kind == 0) return outside[random_below(random, 4)];
    if (kind == 1) return steps + random_below(random, 3);
    return 1 + random_below(random, (int)(few && steps > 3 ? 3 : steps));
}

static void test_device_sort(void **state) {
    (void)state;
    enum { MOST_BATCH = 1100, MOST_STEPS = 700 };
    static int64_t given[MOST_BATCH], clamped[MOST_BATCH], numbers[2][2 * MOST_BATCH + MOST_STEPS + 1];
    random_source random = {7};
    for (int n = 0; n < 600; n++) {
        bool few = n % 2;
        int64_t steps = 1 + random_below(&random, n % 5 ? 40 : MOST_STEPS);
        int64_t batch = 1 + random_below(&random, n % 7 ? 60 : MOST_BATCH);
        if (n % 11 == 0) batch = RCVI_SORT_THREADS * (1 + n % 3) + n % 3 - 1;
        for (int64_t b = 0; b < batch; b++) {
            given[b] = draw_length(&random, steps, few);
            clamped[b] = given[b] < 1 ? 1 : given[b] > steps ? steps : given[b];
        }
        memset(numbers, 0x5a, sizeof numbers);
        rcvi_cuda_rows rows = {numbers[0], numbers[0] + MOST_BATCH, numbers[0] + 2 * MOST_BATCH};
        rcvi_cuda_rows_sort(&rows, (rcvi_sizes){steps, batch}, clamped);
        rows.alive[steps] = numbers[1][2 * MOST_BATCH + steps]; /* one more, for the host alone */
        rcvi_sorting s = {.steps = steps,
                          .batch = batch,
                          .given = given,
                          .order = numbers[1],
                          .lengths = numbers[1] + MOST_BATCH,
                          .alive = numbers[1] + 2 * MOST_BATCH};
        sort_on_device(&random, &s);
        assert_memory_equal(numbers[0], numbers[1], sizeof numbers[0]); /* and nothing behind them */
        s.order = NULL;
        memset(numbers[1], 0x5a, sizeof numbers[1]);
        for (int64_t b = 0; b < (batch + RCVI_SORT_THREADS - 1) / RCVI_SORT_THREADS * RCVI_SORT_THREADS; b++)
            rcvi_sort_copy(&s, b);
        assert_memory_equal(s.lengths, clamped, (size_t)batch * sizeof *clamped);
        if (batch < MOST_BATCH) assert_int_equal(s.lengths[batch], numbers[1][0]);
    }
}

/* Where the host does not know the lengths, kernels read the number of rows, with a graph or without. */
static void test_counted(void **state) {
    (void)state;
    static const char *const some[] = {"combine+fuse+pack", "combine+fuse+pack+graph", "naive",
                                       "combine(steps=all)+fuse+pack+scan"};
    size_t counted = 0;
    for (int i = 0; i < 8; i++) {
        problem p;
        rcvi_program program;
        config c = gpu_configs[0];
        const char *plan = some[i / 2];
        open_problem(&p, &c, 1);
        p.device_lengths = i % 2;
        if (write_program(&p, true, plan, &program)) {
            rcvi_engine e = {.program = &program, .context = program.pool.context};
            rcvi_pool_init(&e.pool, e.context);
            check_ok(rcvi_cuda_find_layout(&e));
            bool graph = strstr(plan, "graph") != NULL;
            assert_int_equal(e.counts, e.sorts && (p.device_lengths || graph));
            assert_int_equal(e.has_alive, e.counts);
            for (size_t k = 0; k < program.step_count; k++) counted += rcvi_cuda_is_counted(&e, k) && !graph;
            rcvi_pool_free(&e.pool);
            rcvi_program_free(&program);
        }
        close_problem(&p);
    }
    assert_true(counted > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_short), cmocka_unit_test(test_sort),
                                       cmocka_unit_test(test_device_sort), cmocka_unit_test(test_counted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
