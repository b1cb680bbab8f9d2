/* Reserves on a GPU: backward calls repeated, and forward calls that precede theirs, in every kind of plan. */
#include "gpu.h"
#include "reserves.h"

static const config configs[] = {
    {"lstm", {.input = 40, .hidden = 72, .layers = 2}, 9, 20, false, false, true},
    {"lstm", {.input = 24, .hidden = 40, .layers = 2, .dropout = 0.4}, 7, 13, true, true, true},
    {"gru", {.input = 19, .hidden = 45, .layers = 2, .bidirectional = true}, 8, 9, true, false, true},
    {"sru", {.input = 32, .hidden = 64, .layers = 2}, 30, 6, false, true, true},
};
static const char *const plans[] = {"naive",
                                    "combine+fuse+pack+graph",
                                    "combine(steps=3)+fuse",
                                    "combine(steps=all)+fuse+pack+merge+streams(4)",
                                    "combine(steps=all)+fuse+pack+merge+persistent+graph",
                                    "combine(steps=all)+fuse+pack+persistent",
                                    "combine(steps=all)+fuse+pack+scan+graph",
                                    "combine(steps=all)+fuse+interpret+graph"};

static void test_reserves(void **state) {
    (void)state;
    static const rcv_dtype dtypes[] = {RCV_FLOAT32, RCV_BFLOAT16};
    enum { PLANS = sizeof plans / sizeof *plans, CONFIGS = sizeof configs / sizeof *configs };
    for (int i = 0; i < PLANS * CONFIGS * 2; i++) {
        problem p;
        open_problem(&p, &configs[i / (PLANS * 2)], 1);
        p.device = "cuda";
        rcv_plan *plan = NULL;
        rcv_plan_options options = options_of(&p, dtypes[i % 2], true, plans[i / 2 % PLANS]);
        rcv_status status = rcv_plan_new(p.net, &options, &plan);
        rcv_plan_free(plan);
        assert_true(status == RCV_OK || status == RCV_UNSUPPORTED);
        if (!status) check_reserves(&p, dtypes[i % 2], plans[i / 2 % PLANS]);
        close_problem(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_reserves)};
    return has_gpu() ? cmocka_run_group_tests(tests, NULL, NULL) : SKIPPED;
}
