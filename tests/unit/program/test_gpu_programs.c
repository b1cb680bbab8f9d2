/* Programs of random cells as they are written for a GPU, where values of size one are computed in maps of more columns. No GPU is needed:
 * the verifier must find each of them sound, and a program that is not sound must not pass it. */
#include "cuda_programs.h"
#include "generator.h"

static const char *const some_plans[] = {"combine+fuse+pack", "combine(steps=all)+fuse+pack",
                                         "combine+fuse+pack+wavefront+merge", "combine(steps=2)+fuse"};
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

static void test_random_cells(void **state) {
    (void)state;
    size_t written = 0;
    for (uint64_t seed = 0; seed < CELLS; seed++) {
        random_source source = {seed};
        char *text = generate_wide_cell(&source);
        config c = draw_config(&source, text);
        problem p;
        open_problem_of(&p, &c, text, 1);
        for (int i = 0; i < 2 * SOME_PLANS; i++) {
            rcvi_program program;
            if (!write_program(&p, i % 2, some_plans[i / 2], &program)) continue; /* runs the verifier */
            rcvi_program_free(&program);
            written++;
        }
        close_problem(&p);
        free(text);
    }
    print_message("%zu programs of %d cells\n", written, CELLS);
    assert_true(written > CELLS * SOME_PLANS);
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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_cells), cmocka_unit_test(test_nowhere)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
