/* Loops that go element by element: threads take their columns through them without waiting for each other, but not where a step
 * reads a column that another thread writes. */
#include "device/cpu/engine/engine.h"
#include "plan/plan.h"
#include "test.h"

typedef struct {
    test_allocator allocator;
    rcv_context *context;
    rcv_cell *cell;
    rcv_net *net;
    rcv_plan *plan;
} fixture;

static void open_plan(fixture *f, const char *cell, const char *schedule) {
    f->context = test_context(&f->allocator);
    check_ok(rcv_cell_open(f->context, cell, &f->cell));
    check_ok(rcv_net_new(f->cell, &RCV_INIT(rcv_net_options, .input = 8, .hidden = 16), &f->net));
    rcv_plan_options o =
        RCV_INIT(rcv_plan_options, .steps = 6, .batch = 2, .training = true, .schedule = schedule, .threads = 2);
    check_ok(rcv_plan_new(f->net, &o, &f->plan));
}

static void close_plan(fixture *f) {
    rcv_plan_free(f->plan);
    rcv_net_free(f->net);
    rcv_cell_free(f->cell);
    test_context_end(&f->allocator, f->context);
}

/* Loops of the program, and how many of them are private. */
static int count_private(const rcvi_program *program, int *loops) {
    rcvi_engine *engine = NULL;
    int found = 0;
    *loops = 0;
    check_ok(rcvi_device_cpu.prepare(program, &engine));
    for (size_t i = 0; i < program->step_count; i++) {
        if (program->steps[i].kind != RCVI_STEP_LOOP) continue;
        ++*loops;
        found += engine->prepared[i].is_private;
    }
    rcvi_device_cpu.release(engine);
    return found;
}

static void elementwise_loops_are_private(void **state) {
    (void)state;
    fixture f;
    int loops = 0;
    open_plan(&f, "gilr_lstm", "combine(steps=all)+fuse+pack+scan+threads(2)");
    assert_int_equal(count_private(&f.plan->program, &loops), 4);
    assert_int_equal(loops, 4);
    close_plan(&f);
    open_plan(&f, "lstm", "combine(steps=all)+fuse+pack+threads(2)");
    assert_int_equal(count_private(&f.plan->program, &loops), 0); /* products mix columns */
    assert_int_equal(loops, 2);
    close_plan(&f);
}

/* A view of the first loop's map that is read, of a buffer that the map writes. */
static rcvi_view *find_read(const rcvi_program *program) {
    for (size_t i = 0; i < program->step_count; i++) {
        if (program->steps[i].kind != RCVI_STEP_LOOP) continue;
        rcvi_map *map = program->steps[i + 1].map;
        for (int k = 0; k < map->instruction_count; k++) {
            const rcvi_instruction *instruction = &map->instructions[k];
            for (int a = 0; a < 2; a++) {
                if (instruction->from[a] != RCVI_FROM_VIEW || rcvi_operations[instruction->operation].arguments <= a)
                    continue;
                rcvi_view *view = &map->operands[instruction->source[a]];
                for (int o = 0; o < map->instruction_count; o++) {
                    int out = map->instructions[o].out;
                    if (out != RCVI_NONE && map->operands[out].buffer == view->buffer) return view;
                }
            }
        }
    }
    fail_msg("no map reads what it writes");
    return NULL;
}

static void neighbours_wait(void **state) {
    (void)state;
    fixture f;
    int loops = 0;
    open_plan(&f, "sru", "combine(steps=all)+fuse+pack+threads(2)");
    int all = count_private(&f.plan->program, &loops);
    assert_int_equal(all, loops);
    rcvi_view *view = find_read(&f.plan->program), before = *view;
    view->row = 2 * before.row; /* rows of the batch as if they were one: columns of another place */
    view->stride = 0;
    assert_int_equal(count_private(&f.plan->program, &loops), all - 1);
    *view = before;
    view->offset += 1; /* the column beside it */
    assert_int_equal(count_private(&f.plan->program, &loops), all - 1);
    *view = before;
    view->stride = before.row / 2; /* another column at another time */
    assert_int_equal(count_private(&f.plan->program, &loops), all - 1);
    *view = before;
    view->column = 0; /* one column for all */
    assert_int_equal(count_private(&f.plan->program, &loops), all - 1);
    *view = before;
    assert_int_equal(count_private(&f.plan->program, &loops), all);
    close_plan(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(elementwise_loops_are_private),
                                       cmocka_unit_test(neighbours_wait)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
