/* Loops of maps as recurrences. Every buffer is filled with random numbers; a loop's steps, one after the other, must leave the same in
 * all of them as the recurrence does, whose iterations are taken in any order from the values that are carried. */
#include "cuda_programs.h"
#include "generator.h"
#include "program/recurrence.h"
#include "sample.h"
#include "scratch.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const rcvi_program *program;
    double **buffers;
} memory;

static memory memory_new(const rcvi_program *program, const memory *like) {
    memory m = {program, calloc(program->buffer_count, sizeof *m.buffers)};
    for (size_t b = 0; b < program->buffer_count; b++) {
        size_t count = (size_t)program->buffers[b].count;
        m.buffers[b] = calloc(count ? count : 1, sizeof(double));
        if (like) memcpy(m.buffers[b], like->buffers[b], count * sizeof(double));
    }
    return m;
}

static void memory_free(memory *m) {
    for (size_t b = 0; b < m->program->buffer_count; b++) free(m->buffers[b]);
    free(m->buffers);
}

/* Masks are 0 or 1. */
static void fill_memory(memory *m, random_source *source) {
    for (size_t b = 0; b < m->program->buffer_count; b++) {
        const rcvi_buffer *buffer = &m->program->buffers[b];
        for (int64_t i = 0; i < buffer->count; i++) {
            double x = random_between(source, 0, 1);
            m->buffers[b][i] = buffer->element == RCVI_BYTE ? x < 0.3 : 2 * x - 1;
        }
    }
}

/* An iteration of the loops, and the step's time. */
typedef struct {
    int64_t inner, outer, time;
} moment;

static double *element(const memory *m, const rcvi_view *v, const moment *at, int64_t row, int64_t column) {
    int64_t start = rcvi_view_start(v, at->inner, at->outer, at->time);
    return m->buffers[v->buffer] + start + row * v->row + column * v->column;
}

static double apply(const rcvi_instruction *instruction, const double *x) {
    if (instruction->operation == RCVI_SELECT) return x[0] != 0 ? x[1] : x[2];
    return rcvi_operations[instruction->operation].evaluate(x[0], x[1]);
}

/* ---- steps, one after the other ---- */

static void run_map(const memory *m, const rcvi_map *map, const moment *at, int64_t row, int64_t column) {
    double registers[RCVI_MAX_LONG_INSTRUCTIONS] = {0};
    for (int k = 0; k < map->instruction_count; k++) {
        const rcvi_instruction *instruction = &map->instructions[k];
        double x[3] = {0};
        for (int a = 0; a < rcvi_operations[instruction->operation].arguments; a++) {
            x[a] = instruction->number[a];
            if (instruction->from[a] == RCVI_FROM_REGISTER) x[a] = registers[instruction->source[a]];
            if (instruction->from[a] == RCVI_FROM_VIEW)
                x[a] = *element(m, &map->operands[instruction->source[a]], at, row, column);
        }
        registers[k] = apply(instruction, x);
    }
    for (int k = 0; k < map->instruction_count; k++) {
        if (map->instructions[k].out != RCVI_NONE)
            *element(m, &map->operands[map->instructions[k].out], at, row, column) = registers[k];
    }
    for (int i = 0; i < map->store_count; i++)
        *element(m, &map->operands[map->stores[i].out], at, row, column) = registers[map->stores[i].source];
}

static void run_step(const memory *m, const rcvi_step *step, const moment *at) {
    for (int64_t i = 0; i < step->rows * step->columns; i++) {
        int64_t row = i / step->columns, column = i % step->columns;
        if (step->kind == RCVI_STEP_MAP) {
            run_map(m, step->map, at, row, column);
            continue;
        }
        bool first = step->kind != RCVI_STEP_SELECT || *element(m, &step->mask, at, row, 0) != 0;
        const rcvi_view *from = first ? &step->a : &step->b;
        double x = from->buffer == RCVI_NONE ? 0 : *element(m, from, at, row, column);
        *element(m, &step->out, at, row, column) = step->kind == RCVI_STEP_FILL ? step->fill.number : x;
    }
}

static void run_loop(const memory *m, size_t loop, int64_t outer) {
    const rcvi_step *step = &m->program->steps[loop];
    for (int64_t i = 0; i < step->loop.count; i++) {
        for (int s = 1; s <= step->loop.body; s++) {
            moment at = {i, outer, 0};
            int64_t span;
            if (rcvi_step_is_due(m->program, &step[s], i, outer, &at.time, &span)) run_step(m, &step[s], &at);
        }
    }
}

/* ---- the recurrence ---- */

typedef struct {
    const rcvi_recurrence *r;
    const memory *before;
    int64_t first, count, outer;
} scanner;

static moment moment_of(const scanner *s, int64_t position) {
    moment at = {s->first + position, s->outer, 0};
    at.time = s->r->time.base + at.inner * s->r->time.inner + at.outer * s->r->time.outer;
    return at;
}

/* All registers of a position, from what memory held before the loop and what is carried. */
static void find_registers(const scanner *s, int64_t position, int64_t row, int64_t column, const double *carried,
                           double *registers) {
    const rcvi_map *map = &s->r->map;
    moment at = moment_of(s, position);
    for (int k = 0; k < map->instruction_count; k++) {
        const rcvi_instruction *instruction = &map->instructions[k];
        double x[3] = {0};
        for (int a = 0; a < rcvi_operations[instruction->operation].arguments; a++) {
            x[a] = instruction->number[a];
            if (instruction->from[a] == RCVI_FROM_REGISTER) x[a] = registers[instruction->source[a]];
            if (instruction->from[a] != RCVI_FROM_VIEW) continue;
            x[a] = *element(s->before, &map->operands[instruction->source[a]], &at, row, column);
            for (int c = 0; c < s->r->carried_count; c++) {
                if (s->r->carried[c].read == instruction->source[a]) x[a] = carried[c];
            }
        }
        registers[k] = apply(instruction, x);
    }
}

/* Scale and offset sum in another order than the steps, in double, of a few numbers of about one. */
static void check_near(double got, double want, const char *what) {
    if (got == want || (isnan(got) && isnan(want))) return;
    if (!(fabs(got - want) <= 1e-9 * (1 + fabs(want)))) fail_msg("%s: %.17g, not %.17g", what, got, want);
}

/* The derivative of the next state, by the state: against a difference over 2e-6, which roundings and curvature leave good to 1e-3. */
static void check_slope(const scanner *s, int64_t position, int64_t row, int64_t column, const double *carried) {
    enum { MOST = RCVI_MAX_LONG_INSTRUCTIONS * 8 };
    const rcvi_carried *state = &s->r->carried[s->r->state];
    double *registers = calloc(MOST, sizeof *registers), moved[RCVI_MAX_CARRIED], next[2];
    const double small = 1e-6;
    for (int side = 0; side < 2; side++) {
        memcpy(moved, carried, sizeof moved);
        moved[s->r->state] += side ? small : -small;
        find_registers(s, position, row, column, moved, registers);
        next[side] = registers[state->source];
    }
    double mean = registers[s->r->slope];
    find_registers(s, position, row, column, carried, registers);
    double want = (next[1] - next[0]) / (2 * small), got = registers[s->r->slope];
    bool smooth = fabs(mean - got) < 1e-4 * (1 + fabs(got)); /* else a corner is near */
    if (smooth && isfinite(want) && fabs(got - want) > 1e-3 * (1 + fabs(want)))
        fail_msg("slope %.17g, not %.17g", got, want);
    free(registers);
}

/* Carried values before every position, [count + 1, carried]. */
static double *carry(const scanner *s, int64_t row, int64_t column) {
    enum { MOST = RCVI_MAX_LONG_INSTRUCTIONS * 8 };
    const rcvi_recurrence *r = s->r;
    size_t each = RCVI_MAX_CARRIED;
    double *all = calloc((size_t)(s->count + 1) * each, sizeof *all);
    double *registers = calloc(MOST, sizeof *registers);
    moment at = moment_of(s, 0);
    for (int c = 0; c < r->carried_count; c++)
        all[c] = *element(s->before, &r->map.operands[r->carried[c].read], &at, row, column);
    for (int64_t p = 0; p < s->count; p++) {
        double *now = all + (size_t)p * each;
        find_registers(s, p, row, column, now, registers);
        for (int c = 0; c < r->carried_count; c++) {
            const rcvi_carried *one = &r->carried[c];
            now[each + (size_t)c] = one->term == RCVI_NONE ? registers[one->source] : now[c] + registers[one->term];
        }
        if (r->slope != RCVI_NONE) check_slope(s, p, row, column, now);
        if (r->scale == RCVI_NONE) continue;
        assert_false(r->depends[r->scale] || r->depends[r->offset]);
        double next = registers[r->offset]; /* where nothing of the state is left, it does not matter what it was */
        if (registers[r->scale] != 0) next += registers[r->scale] * now[r->state];
        check_near(next, registers[r->carried[r->state].source], "scale * state + offset");
    }
    free(registers);
    return all;
}

static void store(const scanner *s, const memory *to, int64_t position, int64_t row, int64_t column,
                  const double *registers) {
    const rcvi_map *map = &s->r->map;
    moment at = moment_of(s, position);
    for (int i = 0; i < map->store_count; i++) {
        const rcvi_view *view = &map->operands[map->stores[i].out];
        int last = s->r->last[map->stores[i].out];
        if (last && position < s->count - last) continue;
        *element(to, view, &at, row, column) = registers[map->stores[i].source];
    }
}

/* Positions from the last to the first. */
static void run_recurrence(const scanner *s, const memory *to) {
    enum { MOST = RCVI_MAX_LONG_INSTRUCTIONS * 8 };
    double *registers = calloc(MOST, sizeof *registers);
    for (int64_t i = 0; i < s->r->rows * s->r->columns; i++) {
        int64_t row = i / s->r->columns, column = i % s->r->columns;
        double *carried = carry(s, row, column);
        for (int64_t p = s->count; p-- > 0;) {
            find_registers(s, p, row, column, carried + p * RCVI_MAX_CARRIED, registers);
            store(s, to, p, row, column, registers);
        }
        free(carried);
    }
    free(registers);
}

/* ---- loops of programs ---- */

typedef struct {
    size_t loops, recurrences; /* of which all parts are recurrences */
    size_t parts, maps, affine, sloped, sums, partly;
} tally;

static tally found;

static void count_recurrence(const rcvi_recurrence *r) {
    found.maps += !r->carried_count;
    found.affine += r->scale != RCVI_NONE;
    found.sloped += r->slope != RCVI_NONE;
    for (int c = 0; c < r->carried_count; c++) found.sums += r->carried[c].term != RCVI_NONE;
}

/* Marks the elements of a buffer that steps outside of the loop read. */
static void mark_read(const rcvi_program *program, size_t loop, int buffer, bool *marks) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    size_t end = loop + 1 + (size_t)program->steps[loop].loop.body, inside = 0;
    for (size_t i = 0; i < program->step_count; i++) {
        const rcvi_step *step = &program->steps[i];
        if (step->kind == RCVI_STEP_LOOP && i >= inside) inside = i + 1 + (size_t)step->loop.body;
        if (step->kind == RCVI_STEP_LOOP || (i >= loop && i < end)) continue;
        int count = rcvi_step_accesses(step, accesses);
        for (int k = 0; k < count; k++) {
            const rcvi_view *v = accesses[k].view;
            if (v->buffer != buffer || !accesses[k].read) continue;
            if (i < inside) memset(marks, true, (size_t)program->buffers[buffer].count);
            for (int64_t e = 0; e < accesses[k].rows * accesses[k].columns && i >= inside; e++)
                marks[v->offset + e / accesses[k].columns * v->row + e % accesses[k].columns * v->column] = true;
        }
    }
}

/* Where the recurrence stores the last iteration's alone, what others read of it; else all. */
static bool *marks_of(const rcvi_program *program, size_t loop, const rcvi_recurrence *all, int count, int buffer) {
    bool *marks = calloc((size_t)program->buffers[buffer].count + 1, sizeof *marks), partly = false;
    for (int n = 0; n < count; n++) {
        for (int i = 0; i < all[n].map.store_count; i++) {
            int out = all[n].map.stores[i].out;
            const rcvi_view *view = &all[n].map.operands[out];
            partly |= view->buffer == buffer && view->stride && all[n].last[out];
        }
    }
    if (partly)
        mark_read(program, loop, buffer, marks);
    else
        memset(marks, true, (size_t)program->buffers[buffer].count);
    found.partly += partly;
    return marks;
}

static void check_loop(const rcvi_program *program, size_t loop, const rcvi_recurrence *all, int count, int64_t outer,
                       random_source *source) {
    memory before = memory_new(program, NULL);
    fill_memory(&before, source);
    memory want = memory_new(program, &before), got = memory_new(program, &before);
    run_loop(&want, loop, outer);
    for (int n = count; n-- > 0;) {
        scanner s = {.r = &all[n], .before = &before, .outer = outer};
        s.count = rcvi_recurrence_due(program, &all[n], outer, &s.first);
        run_recurrence(&s, &got);
    }
    for (size_t b = 0; b < program->buffer_count; b++) {
        bool *marks = marks_of(program, loop, all, count, (int)b);
        for (int64_t i = 0; i < program->buffers[b].count; i++) {
            if (marks[i]) check_near(got.buffers[b][i], want.buffers[b][i], program->buffers[b].name);
        }
        free(marks);
    }
    memory_free(&before);
    memory_free(&want);
    memory_free(&got);
}

static void check_program(rcv_context *context, const rcvi_program *program, random_source *source) {
    size_t around = 0; /* the loop that this one is in, or 0; a program does not begin with one */
    for (size_t i = 0; i < program->step_count; i++) {
        const rcvi_step *step = &program->steps[i];
        if (step->kind != RCVI_STEP_LOOP) continue;
        bool holds = false;
        for (int s = 1; s <= step->loop.body; s++) holds |= step[s].kind == RCVI_STEP_LOOP || step[s].time.span > 1;
        if (holds) { /* it goes over chunks */
            around = i;
            continue;
        }
        bool inside = around && i <= around + (size_t)program->steps[around].loop.body;
        rcvi_pool pool;
        rcvi_recurrence *all = NULL;
        int count = 0;
        rcvi_pool_init(&pool, context);
        found.loops++;
        if (rcvi_recurrences_find(&pool, program, i, &all, &count) == RCV_OK) {
            found.recurrences++;
            found.parts += (size_t)count;
            for (int n = 0; n < count; n++) count_recurrence(&all[n]);
            int64_t outer = inside ? program->steps[around].loop.count : 1;
            for (int64_t o = 0; o < outer; o++) check_loop(program, i, all, count, o, source);
        }
        rcvi_pool_free(&pool);
    }
}

static const char *const plans[] = {"combine(steps=all)+fuse+pack+scan", "combine(steps=3)+fuse+scan",
                                    "combine(steps=2)+fuse+pack+scan+recompute(every=2)"};
enum { PLANS = sizeof plans / sizeof *plans };

static void check_cell(const char *cell, int options) {
    config c = {
        .cell = cell,
        .net = {.input = 6, .hidden = 6, .layers = 2, .bidirectional = options & 4, .zoneout = options & 8 ? 0.3 : 0},
        .steps = 7,
        .batch = 3,
        .lengths = options & 1,
        .resets = options & 2,
        .initial = true};
    random_source source = {.state = 7};
    for (int i = 0; i < PLANS * 2; i++) {
        problem p;
        rcvi_program program;
        open_problem(&p, &c, 1);
        rcv_plan_options o = options_of(&p, RCV_FLOAT32, i % 2, plans[i / 2]);
        if (write_with(p.net, &o, &program)) {
            check_program(p.context, &program, &source);
            rcvi_program_free(&program);
        }
        close_problem(&p);
    }
}

/* All loops of these are recurrences with one state, in which it is affine. */
static void scans(void **state) {
    (void)state;
    static const char *const cells[] = {
        "gilr_lstm", "sru",    "qrnn_f",  "qrnn_fo_w2",
        "qrnn_ifo",  "mingru", "minlstm", RCV_SOURCE_DIR "/tests/support/cells/lru.cell"};
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        for (int options = 0; options < 16; options++) {
            if (!sample_takes(16 * i + (size_t)options)) continue;
            found = (tally){0};
            check_cell(cells[i], options);
            assert_true(found.loops > 0);
            assert_int_equal(found.recurrences, found.loops);
            assert_int_equal(found.affine + found.maps, found.parts);
            assert_true((found.sums > 0) == ((options & 2) > 0));
            if (!strcmp(cells[i], "gilr_lstm")) assert_true(found.partly > 0); /* adjoints over time */
        }
    }
}

/* Forwards these have slopes; backwards they are affine. */
static void diagonal(void **state) {
    (void)state;
    static const char *const cells[] = {"indrnn", "sru2", "gru_diagonal",
                                        RCV_SOURCE_DIR "/tests/support/cells/bent.cell"};
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
        for (int options = 0; options < 16; options++) {
            if (!sample_takes(16 * i + (size_t)options)) continue;
            found = (tally){0};
            check_cell(cells[i], options);
            assert_int_equal(found.recurrences, found.loops);
            assert_int_equal(found.affine + found.sloped + found.maps, found.parts);
            assert_true(found.affine > 0 && found.sloped > 0);
        }
    }
}

/* An iteration that reads what the next one overwrites must come before it; places that overlap in part are no places. */
static void refused(void **state) {
    (void)state;
    static const struct {
        int64_t from, to, stride;
        bool good;
    } copies[] = {{4, 0, 4, false}, {0, 4, 4, true},  {0, 8, 4, false},
                  {8, 0, 4, false}, {2, 0, 4, false}, {0, 0, 4, true}};
    problem p;
    config c = {.cell = "indrnn", .net = {.input = 4, .hidden = 4, .layers = 1}, .steps = 5, .batch = 1};
    open_problem(&p, &c, 1);
    rcv_plan_options options = options_of(&p, RCV_FLOAT32, false, "combine+fuse+scan");
    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++) {
        rcvi_program program;
        rcvi_recurrence *all = NULL;
        rcvi_pool pool;
        int count = 0;
        rcvi_program_init(&program, p.net, &options, &(rcvi_rungs){.scan = true}, &(rcvi_machine){.gpu = true});
        int buffer = rcvi_program_buffer(&program, RCVI_ARENA, 0, RCVI_REAL, 64, "places");
        rcvi_view view = {.buffer = buffer, .stride = copies[i].stride, .row = 4, .column = 1};
        rcvi_step step = {.kind = RCVI_STEP_COPY, .rows = 1, .columns = 4, .out = view, .a = view};
        step.a.offset = copies[i].from;
        step.out.offset = copies[i].to;
        step.b = step.mask = rcvi_no_view();
        rcvi_program_loop(&program, 5);
        rcvi_program_step(&program, &step);
        rcvi_program_end_loop(&program);
        rcvi_pool_init(&pool, p.context);
        assert_int_equal(rcvi_recurrences_find(&pool, &program, 0, &all, &count),
                         copies[i].good ? RCV_OK : RCV_UNSUPPORTED);
        rcvi_pool_free(&pool);
        rcvi_program_free(&program);
    }
    close_problem(&p);
}

/* A loop with products is none. */
static void dense(void **state) {
    (void)state;
    found = (tally){0};
    check_cell("lstm", 3);
    assert_true(found.loops > found.recurrences);
}

static void random_cells(void **state) {
    (void)state;
    found = (tally){0};
    for (uint64_t seed = 0; seed < 60; seed++) {
        if (!sample_takes(seed)) continue;
        char path[512];
        snprintf(path, sizeof path, "%s", path_in("random.cell"));
        generate_cell_file(seed, path);
        check_cell(path, (int)(seed % 8));
        remove(path);
    }
    assert_true(found.recurrences > sample_least(100));
    if (!sample_is_partial()) assert_true(found.sloped > 10); /* they are rare; `diagonal` has them in every part */
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(scans), cmocka_unit_test(diagonal), cmocka_unit_test(refused),
                                       cmocka_unit_test(dense), cmocka_unit_test(random_cells)};
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}
