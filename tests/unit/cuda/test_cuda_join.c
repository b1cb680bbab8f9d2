/* Steps of time loops merged into fewer maps, as persistent kernels execute them: they leave in memory what the program's steps leave.
 *
 * Values are not numbers but hashes of how they were computed, so that a value computed in another way is seen. Of every view the first element
 * is followed, of a sequence that may end early. */
#include "cuda_programs.h"
#include "device/cuda/persistent/internal.h"
#include "sample.h"

typedef struct {
    const rcvi_engine *e;
    int64_t length;          /* of the sequence */
    bool resets;             /* it is reset at every step */
    int64_t inner, time;     /* of the step */
    const char *masks;       /* [buffers] 'l': mask of active rows; 'r': mask of resets */
    uint64_t **in_registers; /* [buffers][elements] 0: what was there before the loop */
} memory;

static uint64_t mix(uint64_t a, uint64_t b) {
    uint64_t z = (a ^ (b + UINT64_C(0x9e3779b97f4a7c15) + (a << 6) + (a >> 2))) * UINT64_C(0xbf58476d1ce4e5b9);
    return (z ^ (z >> 31)) | 1;
}

static bool is_active(const memory *m, const rcvi_step *step) {
    return (step->direction ? m->e->program->options.steps - 1 - m->time : m->time) < m->length;
}

static char *find_masks(const rcvi_program *program) {
    char *masks = calloc(program->buffer_count, 1);
    for (size_t i = 0; i < program->step_count; i++) {
        const rcvi_step *step = &program->steps[i];
        if (step->kind == RCVI_STEP_LIVE) masks[step->out.buffer] = 'l';
        if (step->kind == RCVI_STEP_BOUNDARY) masks[step->out.buffer] = 'r';
    }
    return masks;
}

static uint64_t read_view(const memory *m, const rcvi_step *step, const rcvi_view *view) {
    if (view->buffer == RCVI_NONE) return mix(0, 0); /* zero */
    int64_t index = rcvi_view_start(view, m->inner, 0, m->time);
    assert_true(index >= 0 && index < m->e->program->buffers[view->buffer].count);
    if (m->masks[view->buffer]) return is_active(m, step) && (m->resets || m->masks[view->buffer] == 'l');
    uint64_t in_registers = m->in_registers[view->buffer][index];
    return in_registers ? in_registers : mix((uint64_t)view->buffer + 1, (uint64_t)index);
}

static void write_view(const memory *m, const rcvi_view *view, uint64_t value) {
    m->in_registers[view->buffer][rcvi_view_start(view, m->inner, 0, m->time)] = value;
}

static uint64_t product_of(const memory *m, const rcvi_step *step, const rcvi_product *product) {
    uint64_t value = read_view(m, step, &product->start);
    for (int t = 0; t < product->term_count; t++) {
        value = mix(value, read_view(m, step, &product->terms[t].a));
        value = mix(value, read_view(m, step, &product->terms[t].b));
    }
    return value;
}

/* is_short: [operands] or NULL; what is left out where the sequence has ended. */
static void take_map(const memory *m, const rcvi_step *step, const bool *is_short) {
    const rcvi_map *map = step->map;
    uint64_t products[RCVI_MAX_PRODUCTS], registers[RCVI_MAX_LONG_INSTRUCTIONS], *to;
    uint64_t *stored = calloc((size_t)map->operand_count, sizeof *stored);
    for (int p = 0; p < map->product_count; p++) products[p] = product_of(m, step, &map->products[p]);
    for (int k = 0; k < map->instruction_count; k++) {
        const rcvi_instruction *in = &map->instructions[k];
        uint64_t x[3] = {0};
        for (int a = 0; a < rcvi_operations[in->operation].arguments; a++) {
            if (in->from[a] == RCVI_FROM_VIEW) x[a] = read_view(m, step, &map->operands[in->source[a]]);
            if (in->from[a] == RCVI_FROM_REGISTER) x[a] = registers[in->source[a]];
            if (in->from[a] == RCVI_FROM_PRODUCT) x[a] = products[in->source[a]];
            if (in->from[a] == RCVI_FROM_NUMBER) x[a] = mix(0, (uint64_t)(in->number[a] * 1024));
        }
        registers[k] = mix(mix(mix((uint64_t)in->operation, x[0]), x[1]), x[2]);
        if (in->operation == RCVI_SELECT) registers[k] = x[0] ? x[1] : x[2];
        if (in->out != RCVI_NONE) stored[in->out] = registers[k];
    }
    for (int p = 0; p < map->product_count; p++) {
        if (map->products[p].out != RCVI_NONE) stored[map->products[p].out] = products[p];
    }
    for (int i = 0; i < map->store_count; i++) {
        to = &stored[map->stores[i].out];
        *to = (map->stores[i].product ? products : registers)[map->stores[i].source];
    }
    for (int v = 0; v < map->operand_count; v++) {
        bool left_out = is_short && is_short[v] && !is_active(m, step);
        if (stored[v] && !left_out) write_view(m, &map->operands[v], stored[v]);
    }
    free(stored);
}

static void take_step(const memory *m, const rcvi_step *step) {
    if (m->e->is_short[step - m->e->program->steps] && !is_active(m, step)) return;
    if (step->kind == RCVI_STEP_MAP) {
        take_map(m, step, NULL);
        return;
    }
    assert_int_equal(step->kind, RCVI_STEP_SELECT);
    write_view(m, &step->out, read_view(m, step, read_view(m, step, &step->mask) ? &step->a : &step->b));
}

static uint64_t **new_memory(const rcvi_program *program) {
    uint64_t **in_registers = calloc(program->buffer_count, sizeof *in_registers);
    for (size_t b = 0; b < program->buffer_count; b++)
        in_registers[b] = calloc((size_t)program->buffers[b].count, sizeof *in_registers[b]);
    return in_registers;
}

/* Goes through the loop by the program's steps, or by the merged ones. */
static void go_through(memory *m, const rcvi_persistent *p, bool merged) {
    const rcvi_step *loop = &m->e->program->steps[p->loop];
    int64_t span;
    for (m->inner = 0; m->inner < loop->loop.count; m->inner++) {
        for (int n = 0; n < (merged ? p->step_count : loop->loop.body); n++) {
            const rcvi_step *step = merged ? p->steps[n].step : &loop[1 + n];
            if (!rcvi_step_is_due(m->e->program, step, m->inner, 0, &m->time, &span)) continue;
            if (merged)
                take_map(m, step, p->steps[n].is_short);
            else
                take_step(m, step);
        }
    }
}

/* Answers how many elements differ. */
static size_t compare_orders(const rcvi_engine *e, const rcvi_persistent *p, int64_t length, bool resets) {
    const rcvi_program *program = e->program;
    memory m[2];
    size_t different = 0;
    char *masks = find_masks(program);
    for (int merged = 0; merged < 2; merged++) {
        m[merged] =
            (memory){.e = e, .length = length, .resets = resets, .masks = masks, .in_registers = new_memory(program)};
        go_through(&m[merged], p, merged);
    }
    for (size_t b = 0; b < program->buffer_count; b++) {
        for (int64_t i = 0; i < program->buffers[b].count; i++)
            different += m[0].in_registers[b][i] != m[1].in_registers[b][i];
        free(m[0].in_registers[b]);
        free(m[1].in_registers[b]);
    }
    free(m[0].in_registers);
    free(m[1].in_registers);
    free(masks);
    return different;
}

static size_t compare_all(const rcvi_engine *e, const rcvi_persistent *p) {
    size_t different = 0;
    int64_t steps = e->program->options.steps;
    for (int64_t length = e->sorts ? 1 : steps; length <= steps && !different; length++) {
        for (int resets = 0; resets < 2; resets++) different += compare_orders(e, p, length, resets);
    }
    return different;
}

static struct { int steps, merged, paired, replaced, spoilt, crooked; } seen;

static void remember(const rcvi_engine *e, const rcvi_persistent *p) {
    seen.steps += e->program->steps[p->loop].loop.body;
    seen.merged += p->step_count;
    for (int n = 0; n < p->step_count; n++) {
        const rcvi_kernel_step *s = &p->steps[n];
        int stores = 0;
        seen.paired += s->second_product > 0;
        for (int k = 0; k < s->step->map->instruction_count; k++) stores += s->step->map->instructions[k].out >= 0;
        for (int k = 0; k < s->member_count; k++) {
            const rcvi_step *part = &e->program->steps[s->members[k]];
            stores -= part->kind == RCVI_STEP_SELECT;
            for (int i = 0; part->kind == RCVI_STEP_MAP && i < part->map->instruction_count; i++)
                stores -= part->map->instructions[i].out >= 0;
        }
        seen.replaced -= stores;
    }
}

/* Every selection is reversed, one at a time; each time the comparison sees it. */
static void check_spoilt(const rcvi_engine *e, const rcvi_persistent *p) {
    for (int n = 0; n < p->step_count; n++) {
        for (int k = 0; k < p->steps[n].step->map->instruction_count; k++) {
            rcvi_instruction *in = &p->steps[n].step->map->instructions[k], before = *in;
            if (in->operation != RCVI_SELECT) continue;
            in->from[1] = before.from[2], in->source[1] = before.source[2];
            in->from[2] = before.from[1], in->source[2] = before.source[1];
            assert_true(compare_all(e, p) > 0);
            *in = before;
            seen.spoilt++;
        }
    }
}

enum { AS_IT_IS, SHORT_SELECTIONS, CROOKED };

/* Merges the steps of a loop and compares. `layout`: the engine of the program, whose layout takes longer to find than all else here.
 * SHORT_SELECTIONS: selections also skip rows that have ended, so no map for all rows may take their values from a register. */
static void check_loop(const rcvi_engine *layout, size_t loop, int way) {
    const rcvi_program *program = layout->program;
    rcvi_engine e = *layout;
    rcvi_persistent p = {.loop = (int)loop};
    rcvi_pool_init(&e.pool, e.context);
    e.is_short = rcvi_pool_new(&e.pool, program->step_count, sizeof *e.is_short);
    assert_non_null(e.is_short);
    for (size_t i = 0; i < program->step_count; i++) {
        bool selects = way == SHORT_SELECTIONS && e.sorts && program->steps[i].kind == RCVI_STEP_SELECT;
        e.is_short[i] = layout->is_short[i] || selects;
    }
    p.steps = rcvi_pool_new(&e.pool, (size_t)program->steps[loop].loop.body, sizeof *p.steps);
    check_ok(rcvi_persistent_merge_steps(&e, &p, way != SHORT_SELECTIONS));
    size_t different = compare_all(&e, &p);
    if (different)
        fail_msg("%s, step %zu, way %d: %zu elements differ", program->options.schedule, loop, way, different);
    if (way == AS_IT_IS) remember(&e, &p);
    if (way == AS_IT_IS) check_spoilt(&e, &p);
    rcvi_pool_free(&e.pool);
}

/* A selection that reads rows of another width than were written, beginning at the same element, must not be merged with their writer. */
static void check_crooked(const rcvi_engine *layout, rcvi_program *program, size_t loop) {
    for (int i = 1; i <= program->steps[loop].loop.body; i++) {
        rcvi_step *step = &program->steps[loop + (size_t)i];
        if (step->kind != RCVI_STEP_SELECT || step->a.buffer == RCVI_NONE) continue;
        step->a.row--;
        check_loop(layout, loop, CROOKED);
        step->a.row++;
        seen.crooked++;
    }
}

static bool is_joined(const rcvi_program *program, size_t loop) {
    bool simple = rcvi_program_is_persistent(program, loop);
    for (int i = 1; simple && i <= program->steps[loop].loop.body; i++) {
        rcvi_step_kind kind = program->steps[loop + (size_t)i].kind;
        simple = kind == RCVI_STEP_MAP || kind == RCVI_STEP_SELECT;
    }
    return simple;
}

static void test_join(void **state) {
    (void)state;
    static const char *const plans[] = {"combine+fuse+pack+persistent", "combine(steps=all)+fuse+pack+persistent",
                                        "combine+fuse+pack+wavefront+merge+persistent"};
    static const char *const cells[] = {"lstm",
                                        "gru",
                                        "gru_original",
                                        "lstm_proj",
                                        "slstm",
                                        "lstm_layernorm",
                                        RCV_SOURCE_DIR "/tests/support/cells/quotient.cell"};
    enum { CELLS = sizeof cells / sizeof *cells };
    for (int i = 0; i < CELLS * 3 * 3 * 2 * 2; i++) {
        config c = {cells[i / 36], {.input = 4, .hidden = 4, .layers = 2}, 5, 2, false, false, true};
        c.lengths = i / 4 % 3 < 2;
        c.resets = i / 4 % 3 > 0;
        c.net.bidirectional = i & 2;
        problem p;
        rcvi_program program;
        open_problem(&p, &c, 1);
        if (sample_takes((size_t)i) && write_program(&p, i & 1, plans[i / 12 % 3], &program)) {
            rcvi_engine layout = {.program = &program, .context = program.pool.context};
            rcvi_pool_init(&layout.pool, layout.context);
            check_ok(rcvi_cuda_find_layout(&layout));
            for (size_t loop = 0; loop < program.step_count; loop++) {
                if (!is_joined(&program, loop)) continue;
                check_loop(&layout, loop, AS_IT_IS);
                check_loop(&layout, loop, SHORT_SELECTIONS);
                check_crooked(&layout, &program, loop);
            }
            rcvi_pool_free(&layout.pool);
            rcvi_program_free(&program);
        }
        close_problem(&p);
    }
    print_message(
        "%d steps are merged to %d, of which %d multiply in pairs; %d stores are left out, %d selections spoilt "
        "and seen\n",
        seen.steps, seen.merged, seen.paired, seen.replaced, seen.spoilt);
    if (sample_is_partial()) return;
    assert_true(seen.merged < seen.steps / 2 && seen.paired > 0 && seen.replaced > 0 && seen.spoilt > 100 &&
                seen.crooked > 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_join)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
