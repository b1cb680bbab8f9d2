/* Plan strings: what is read is printed again, in one form; what is wrong is named. */
#include "schedule/schedule.h"
#include "test.h"

typedef struct {
    test_allocator allocator;
    rcv_context *context;
} fixture;

static int set_up(void **state) {
    static fixture self;
    self.context = test_context(&self.allocator);
    *state = &self;
    return 0;
}

static int tear_down(void **state) {
    fixture *self = *state;
    test_context_end(&self->allocator, self->context);
    return 0;
}

static char *printed(fixture *self, const rcvi_rungs *rungs) {
    rcvi_text text;
    char *out = NULL;
    rcvi_text_init(&text, self->context);
    rcvi_rungs_print(rungs, &text);
    check_ok(rcvi_text_take(&text, &out));
    assert_int_equal(strlen(out), strcspn(out, "\n"));
    return out;
}

static void check_string(fixture *self, const char *text, const char *expected) {
    rcvi_rungs rungs;
    check_ok(rcvi_rungs_read(text, &rungs));
    char *out = printed(self, &rungs);
    if (strcmp(out, expected)) fail_msg("'%s' is printed as '%s', not '%s'", text, out, expected);
    rcv_text_free(self->context, out);
}

static void test_strings(void **state) {
    static const struct {
        const char *text, *expected;
    } strings[] = {
        {"naive", "naive"},
        {"naive+threads(2)", "naive+threads(2)"},
        {"threads(3)", "naive+threads(3)"},
        {"threads(1)", "naive"},
        {"threads(1,split=rows)", "naive"},
        {"threads(2,split=columns)", "naive+threads(2)"},
        {"threads(1024,split=rows)", "naive+threads(1024,split=rows)"},
        {"combine", "combine"},
        {"combine(steps=1)", "combine"},
        {"combine(steps=16)", "combine(steps=16)"},
        {"combine(steps=all)", "combine(steps=all)"},
        {"combine(steps=8,forward=1)", "combine(steps=8,forward=1)"},
        {"combine(steps=all,forward=4)", "combine(steps=all,forward=4)"},
        {"combine(steps=1,forward=4)", "combine(steps=1,forward=4)"},
        {"combine(steps=8,forward=8)", "combine(steps=8)"},
        {"naive+fuse", "fuse"},
        {"fuse+naive+pack", "fuse+pack"},
        {"pack", "pack"},
        {"wavefront+combine+fuse", "combine+fuse+wavefront"},
        {"wavefront(forward)+pack", "pack+wavefront(forward)"},
        {"blas", "blas"},
        {"transpose+fuse", "fuse+transpose"},
        {"recompute(every=10)", "recompute(every=10)"},
        {"recompute(every=1000000000)", "recompute(every=1000000000)"},
        {"vendor+threads(2)", "vendor+threads(2)"},
        {"persistent+pack", "pack+persistent"},
        {"pack+persistent(parts=1)", "pack+persistent(parts=1)"},
        {"pack+persistent(parts=2)+graph", "pack+persistent(parts=2)+graph"},
        {"pack+persistent(parts=3)+graph", "pack+persistent+graph"},
        {"graph+cluster+pack+persistent(parts=1)", "pack+persistent(parts=1)+cluster+graph"},
        {"graph+interpret+streams(2)+fuse+merge", "fuse+merge+interpret+streams(2)+graph"},
        {"interpret", "naive+interpret"},
        {"threads(2,split=rows)+vendor+recompute(every=3)+blas+wavefront+pack+fuse+combine(steps=all)",
         "combine(steps=all)+fuse+pack+wavefront+blas+recompute(every=3)+vendor+threads(2,split=rows)"},
    };
    for (size_t i = 0; i < sizeof strings / sizeof *strings; i++) {
        check_string(*state, strings[i].text, strings[i].expected);
        check_string(*state, strings[i].expected, strings[i].expected);
    }
}

/* One thread has nothing to share out. */
static void test_one_thread(void **state) {
    (void)state;
    rcvi_rungs rungs;
    check_ok(rcvi_rungs_read("threads(1,split=rows)", &rungs));
    assert_false(rungs.split_rows);
    check_ok(rcvi_rungs_read("threads(2,split=rows)", &rungs));
    assert_true(rungs.split_rows);
}

/* Every combination survives being printed and read. */
static void test_round_trip(void **state) {
    fixture *self = *state;
    static const int64_t steps[] = {0, 1, 7}, every[] = {0, 1, 12}, threads[] = {1, 2};
    for (int bits = 0; bits < 1 << 9; bits++) {
        for (int k = 0; k < 3 * 3 * 2; k++) {
            rcvi_rungs in = {.combine = bits & 1,
                             .fuse = bits & 2,
                             .pack = bits & 4,
                             .wavefront = bits & 8,
                             .forward_wave = bits & 8 && bits & 256,
                             .blas = bits & 16,
                             .vendor = bits & 32,
                             .split_rows = bits & 64,
                             .steps = steps[k % 3],
                             .forward = bits & 128 ? 3 : 0,
                             .recompute = every[k / 3 % 3],
                             .threads = threads[k / 9]},
                       out;
            if (!in.combine) in.steps = 1;
            if (!in.combine) in.forward = 0;
            if (in.threads == 1) in.split_rows = false;
            char *text = printed(self, &in);
            check_ok(rcvi_rungs_read(text, &out));
            rcv_text_free(self->context, text);
            assert_true(in.combine == out.combine && in.steps == out.steps && in.forward == out.forward &&
                        in.fuse == out.fuse && in.pack == out.pack && in.wavefront == out.wavefront &&
                        in.forward_wave == out.forward_wave && in.blas == out.blas && in.recompute == out.recompute &&
                        in.vendor == out.vendor && in.threads == out.threads && in.split_rows == out.split_rows);
            assert_true(rcvi_rungs_equal(&in, &out));
        }
    }
}

static void test_refusals(void **state) {
    (void)state;
    static const struct {
        const char *text, *fragment;
    } wrong[] = {
        {"", "missing"},
        {"+", "missing"},
        {"fuse+", "missing"},
        {"+fuse", "missing"},
        {"fuse++pack", "missing"},
        {"naiv", "'naive'"},
        {"persistent(parts=4)", "from 1 to 3"},
        {"persistent(3)", "'(parts=' is expected"},
        {"persistent(parts=3", "')' is expected"},
        {"persistent+cluster(16)", "'(16)' behind cluster"},
        {"persistent+clusters", "'cluster'"},
        {"interpret(1)", "'(1)' behind interpret"},
        {"interpreted", "'interpret'"},
        {"fuze", "'fuse'"},
        {"wavefornt", "'wavefront'"},
        {"wavefront(", "'(forward)' is expected"},
        {"wavefront(backward)", "'(forward)' is expected"},
        {"wavefront(forward=1)", "'(forward)' is expected"},
        {"wavefront(forward)x", "'x' behind wavefront"},
        {"wavefront+wavefront(forward)", "wavefront twice"},
        {"Fuse", "'fuse'"},
        {"fuse pack", "'fuse pack'"},
        {" fuse", "did you mean 'fuse'"},
        {"quantum", "there are naive, kernels, combine"},
        {"fuse+fuse", "fuse twice"},
        {"naive+naive", "naive twice"},
        {"threads(2)+threads(2)", "threads twice"},
        {"combine+combine(steps=2)", "combine twice"},
        {"fuse(2)", "'(2)' behind fuse"},
        {"combine(", "(steps="},
        {"combine()", "(steps="},
        {"combine(2)", "(steps="},
        {"combine(steps=)", "steps of combine ''"},
        {"combine(steps=0)", "'0'"},
        {"combine(steps=-1)", "'-1'"},
        {"combine(steps=2.5)", "'2.5'"},
        {"combine(steps=alle)", "'alle'"},
        {"combine(steps=99999999999999999999)", "'99999999999999999999'"},
        {"combine(steps=1000000001)", "1 to 1000000000"},
        {"combine(steps=2", "')'"},
        {"combine(steps=2)x", "'x' behind combine"},
        {"combine(steps=2,split=rows)", "',split=rows)'"},
        {"combine(steps=2,forward=)", "forward of combine ''"},
        {"combine(steps=2,forward=all)", "'all'"},
        {"combine(steps=2,forward=0)", "'0'"},
        {"combine(forward=2)", "(steps="},
        {"recompute", "recompute(every=10)"},
        {"recompute(every=0)", "'0'"},
        {"recompute(every=all)", "'all'"},
        {"threads", "threads(2)"},
        {"threads()", "number of threads ''"},
        {"threads(0)", "'0'"},
        {"threads(1025)", "1 to 1024"},
        {"threads(two)", "'two'"},
        {"threads(2,)", ",split="},
        {"threads(2,split=)", "neither rows nor columns"},
        {"threads(2,split=row)", "'row'"},
        {"threads(2,split=rows", "')'"},
        {"fuse\n", "fuse"},
        {"\xff\x01", "there is no rung"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        rcvi_rungs rungs = {.threads = 77};
        check_fails(rcvi_rungs_read(wrong[i].text, &rungs), RCV_INVALID, wrong[i].fragment);
        assert_int_equal(rungs.threads, 77); /* untouched */
    }
}

/* A plan string of every rung, in the order in which rungs are printed. */
static const char *const every_rung[] = {
    "naive",  "kernels", "combine",    "fuse",    "pack",      "transpose", "wavefront", "scan",  "blas",   "recompute",
    "vendor", "merge",   "persistent", "cluster", "interpret", "streams",   "gemm",      "graph", "threads"};
enum { EVERY_RUNG = sizeof every_rung / sizeof *every_rung };

/* The message about an unknown rung lists all rungs. */
static void test_list(void **state) {
    (void)state;
    rcvi_rungs rungs;
    check_fails(rcvi_rungs_read("quantum", &rungs), RCV_INVALID, "there is no rung 'quantum'");
    const char *list = strstr(rcv_message(), "there are ");
    assert_non_null(list);
    for (size_t i = 0; i < EVERY_RUNG; i++) {
        const char *found = strstr(list, every_rung[i]);
        if (!found) fail_msg("'%s' is not in '%s'", every_rung[i], list);
        list = found;
    }
}

/* One change of every member is a difference, and each is printed and read. */
static void test_equality(void **state) {
    fixture *self = *state;
    static const char *const plans[] = {"naive",
                                        "kernels",
                                        "combine",
                                        "combine(steps=2)",
                                        "combine(steps=all)",
                                        "combine(steps=2,forward=3)",
                                        "fuse",
                                        "pack",
                                        "transpose",
                                        "wavefront",
                                        "wavefront(forward)",
                                        "scan",
                                        "scan(newton)",
                                        "blas",
                                        "recompute(every=2)",
                                        "recompute(every=3)",
                                        "vendor",
                                        "vendor(algorithm=1)",
                                        "naive+merge",
                                        "naive+streams(2)",
                                        "naive+streams(3)",
                                        "naive+gemm(choice=1)",
                                        "naive+persistent",
                                        "naive+persistent(parts=1)",
                                        "naive+cluster",
                                        "naive+interpret",
                                        "naive+graph",
                                        "naive+threads(2)",
                                        "naive+threads(2,split=rows)"};
    enum { PLANS = sizeof plans / sizeof *plans };
    rcvi_rungs rungs[PLANS];
    for (size_t i = 0; i < PLANS; i++) {
        check_ok(rcvi_rungs_read(plans[i], &rungs[i]));
        check_string(self, plans[i], plans[i]);
        assert_true(rcvi_rungs_are_naive(&rungs[i]) == !strncmp(plans[i], "naive", 5));
        for (size_t k = 0; k <= i; k++) assert_true(rcvi_rungs_equal(&rungs[i], &rungs[k]) == (i == k));
    }
}

/* Which device has a rung. */
static void test_devices(void **state) {
    (void)state;
    static const struct {
        const char *plan, *cpu, *gpu; /* fragments of refusals; NULL: it is for the device */
    } rungs[] = {{"kernels", NULL, "kernels is for the CPU"},
                 {"blas", NULL, "blas is for the CPU; this plan is for a GPU"},
                 {"threads(2)", NULL, "threads is for the CPU"},
                 {"merge", "merge is for a GPU; this plan is for the CPU", NULL},
                 {"persistent", "persistent is for a GPU", NULL},
                 {"cluster", "cluster is for a GPU", NULL},
                 {"interpret", "interpret is for a GPU; this plan is for the CPU", NULL},
                 {"streams(2)", "streams is for a GPU", NULL},
                 {"streams(1)", NULL, NULL},
                 {"gemm(choice=1)", "gemm is for a GPU", NULL},
                 {"graph", "graph is for a GPU", NULL},
                 {"scan", NULL, NULL},
                 {"scan(newton)", "newton of scan is for a GPU", NULL},
                 {"combine(steps=2)+fuse+pack+transpose+wavefront(forward)+recompute(every=2)+vendor", NULL, NULL}};
    for (size_t i = 0; i < sizeof rungs / sizeof *rungs; i++) {
        for (int gpu = 0; gpu < 2; gpu++) {
            rcvi_rungs read;
            const char *refusal = gpu ? rungs[i].gpu : rungs[i].cpu;
            check_ok(rcvi_rungs_read(rungs[i].plan, &read));
            if (refusal)
                check_fails(rcvi_rungs_check_device(&read, gpu), RCV_UNSUPPORTED, refusal);
            else
                check_ok(rcvi_rungs_check_device(&read, gpu));
        }
    }
}

/* interpret takes the rungs that need no kernel of their own, and refuses each of the others by name, naive or not. */
static void test_interpret(void **state) {
    (void)state;
    static const char *const taken[] = {"combine",    "fuse",  "transpose",      "wavefront",  "recompute(every=2)",
                                        "streams(2)", "graph", "gemm(choice=1)", "fuse+merge", "combine(steps=2)"};
    static const char *const refused[] = {"pack", "scan", "combine+fuse+pack+persistent", "pack+merge+fuse",
                                          "combine+scan"};
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++) {
        rcvi_rungs rungs;
        char plan[64];
        snprintf(plan, sizeof plan, "interpret+%s", taken[i]);
        check_ok(rcvi_rungs_read(plan, &rungs));
        check_ok(rcvi_rungs_check_combination(&rungs));
    }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        rcvi_rungs rungs;
        char plan[64];
        snprintf(plan, sizeof plan, "%s+interpret", refused[i]);
        check_ok(rcvi_rungs_read(plan, &rungs));
        check_fails(rcvi_rungs_check_combination(&rungs), RCV_UNSUPPORTED, "interpret compiles no kernels");
    }
    const rcvi_machine machine = {.gpu = true, .threads = 1};
    const rcv_plan_options options = RCV_INIT(rcv_plan_options, .steps = 3, .batch = 2);
    rcvi_rungs rungs;
    check_ok(rcvi_rungs_read("interpret+persistent", &rungs));
    assert_true(rcvi_schedule_for(&rungs) == &rcvi_schedule_naive);
    check_fails(rcvi_schedule_naive.applies(NULL, &options, &rungs, &machine), RCV_UNSUPPORTED, "persistent");
}

/* Every rung but those that the library takes is refused beside vendor, by its name. */
static void test_vendor_alone(void **state) {
    (void)state;
    static const char *const others[] = {
        "combine", "fuse",       "pack",    "transpose",  "wavefront",      "scan",     "blas", "recompute(every=2)",
        "merge",   "persistent", "cluster", "streams(2)", "gemm(choice=1)", "interpret"};
    for (int gpu = 0; gpu < 2; gpu++) {
        const rcvi_machine machine = {.gpu = gpu, .vendor = "a library", .threads = 2};
        const rcv_plan_options options = RCV_INIT(rcv_plan_options, .steps = 3, .batch = 2, .dtype = RCV_FLOAT64);
        const char *own = gpu ? "graph" : "threads(2)", *not_own = gpu ? "threads(2)" : "graph";
        for (size_t i = 0; i < sizeof others / sizeof *others + 2; i++) {
            bool is_own = i == sizeof others / sizeof *others;
            const char *other = is_own ? own : i < sizeof others / sizeof *others ? others[i] : not_own;
            char plan[64], name[32];
            rcvi_rungs rungs;
            snprintf(plan, sizeof plan, "vendor+%s", other);
            snprintf(name, sizeof name, "but not %.*s", (int)strcspn(other, "("), other);
            check_ok(rcvi_rungs_read(plan, &rungs));
            check_fails(rcvi_schedule_vendor.applies(NULL, &options, &rungs, &machine), RCV_UNSUPPORTED,
                        is_own ? "not in float64" : name);
        }
    }
}

/* A megabyte of anything is refused in a sentence of ordinary length. */
static void test_long(void **state) {
    (void)state;
    enum { LENGTH = 1 << 20 };
    char *text = malloc(LENGTH + 1);
    assert_non_null(text);
    static const char fillers[] = "a+(9,=";
    for (const char *filler = fillers; *filler; filler++) {
        memset(text, *filler, LENGTH);
        text[LENGTH] = '\0';
        rcvi_rungs rungs;
        check_fails(rcvi_rungs_read(text, &rungs), RCV_INVALID, "");
        assert_true(strlen(rcv_message()) < 400);
        memcpy(text, "threads(", 8);
        check_fails(rcvi_rungs_read(text, &rungs), RCV_INVALID, "");
        assert_true(strlen(rcv_message()) < 400);
    }
    free(text);
}

/* Printing into memory that fails is remembered by the text. */
static void test_no_memory(void **state) {
    fixture *self = *state;
    rcvi_rungs rungs = {.fuse = true, .threads = 2};
    rcvi_text text;
    char *out = NULL;
    rcvi_text_init(&text, self->context);
    self->allocator.fail_at = 1;
    rcvi_rungs_print(&rungs, &text);
    check_fails(rcvi_text_take(&text, &out), RCV_NO_MEMORY, "no memory");
    assert_null(out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strings),      cmocka_unit_test(test_one_thread), cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_refusals),     cmocka_unit_test(test_long),       cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_list),         cmocka_unit_test(test_equality),   cmocka_unit_test(test_devices),
        cmocka_unit_test(test_vendor_alone), cmocka_unit_test(test_interpret)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
