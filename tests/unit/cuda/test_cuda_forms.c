/* What a time loop becomes as a persistent kernel, without a GPU: refusals, roles of warpgroups, texts that compile, dead stores. */
#include "device/cuda/codegen/jit.h"
#include "persistent_subject.h"
#include "sample.h"

/* ---- refusals ---- */

static void test_refusals(void **state) {
    (void)state;
    const config large = {"lstm", {.input = 4096, .hidden = 4096, .layers = 4}, 7, 64, false, false, true};
    const struct {
        const config *c;
        rcv_dtype dtype;
        const char *plan;
        int major;
        const char *fragment;
    } cases[] = {
        {&large, RCV_BFLOAT16, by_wave, 9, "needs 1024 processors at once; this GPU has 132"},
        {&deep, RCV_FLOAT64, by_step, 9, "tfloat32 or float32, not float64"},
        {&deep, RCV_BFLOAT16, by_two, 9, "parts of persistent are those of a float32"},
        {&deep, RCV_BFLOAT16, by_step, 8, "needs compute capability 9.0; this GPU has 8.0"},
        {&deep, RCV_BFLOAT16, by_step, 9, "takes maps and selections, but this plan's time loop has a fill"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        subject s;
        size_t loop = 0;
        rcvi_persistent *p;
        open_subject(&s, cases[i].c, cases[i].dtype, false, cases[i].plan);
        s.engine.major = cases[i].major;
        assert_true(next_loop(&s, &loop));
        if (strstr(cases[i].fragment, "fill")) s.program.steps[loop + 1].kind = RCVI_STEP_FILL;
        check_fails(rcvi_persistent_new(&s.engine, loop, &p), RCV_UNSUPPORTED, cases[i].fragment);
        assert_null(p);
        close_subject(&s);
    }
}

/* Loops that cannot have clusters say why, and are kernels without them. */
static void test_no_clusters(void **state) {
    (void)state;
    const config one = {"lstm", {.input = 512, .hidden = 512, .layers = 1}, 7, 1, false, false, true};
    const config large = {"lstm", {.input = 64, .hidden = 1024, .layers = 1}, 7, 1, false, false, true};
    const config twice = {"gru_original", {.input = 64, .hidden = 64, .layers = 1}, 7, 1, false, false, true};
    const config normal = {"lstm_layernorm", {.input = 64, .hidden = 64, .layers = 1}, 7, 1, false, false, true};
    const struct {
        const config *c;
        rcv_dtype dtype;
        const char *plan, *fragment;
    } cases[] = {
        {&one, RCV_BFLOAT16, in_clusters, NULL},
        {&one, RCV_FLOAT32, "combine(steps=all)+fuse+pack+persistent(parts=1)+cluster", NULL},
        {&one, RCV_FLOAT32, in_clusters, "in registers and shared memory"},
        {&one, RCV_BFLOAT16, "combine+fuse+pack+persistent+cluster", "give combine steps=all"},
        {&large, RCV_BFLOAT16, in_clusters, "a cluster of 16 processors keeps the weights of a layer"},
        {&deep, RCV_BFLOAT16, "combine+fuse+pack+wavefront+merge+persistent+cluster", "leave wavefront out"},
        {&twice, RCV_BFLOAT16, in_clusters, "a cluster does not wait for values of another one"},
        {&normal, RCV_BFLOAT16, in_clusters, "sums over features"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        subject s;
        size_t loop = 0;
        rcvi_persistent *p;
        int clustered = 0, loops = 0;
        open_subject(&s, cases[i].c, cases[i].dtype, true, cases[i].plan);
        for (; next_loop(&s, &loop); loop++, loops++) {
            s.engine.not_clustered = NULL;
            check_ok(rcvi_persistent_new(&s.engine, loop, &p));
            if (p->cluster) assert_int_equal(p->counters, 0);
            if (!p->cluster) assert_non_null(s.engine.not_clustered);
            if (loops == 0) assert_int_equal(!p->cluster, cases[i].fragment != NULL);
            if (loops == 0 && !p->cluster) assert_non_null(strstr(s.engine.not_clustered, cases[i].fragment));
            clustered += p->cluster == 16;
            rcvi_persistent_free(s.context, p);
        }
        assert_true(loops == 2 && (cases[i].fragment || clustered == loops));
        close_subject(&s);
    }
}

/* ---- roles of warpgroups ---- */

/* Both pipes have half of every operand where some are of other tasks; one pipe has these where many blocks would poll. A map warpgroup
 * computes maps where tiles alternate and depth is split. */
static void test_shares(void **state) {
    (void)state;
    const config high = {"lstm", {.input = 512, .hidden = 512, .layers = 4}, 7, 64, false, false, true};
    const config one = {"lstm", {.input = 512, .hidden = 512, .layers = 1}, 7, 64, false, false, true};
    const config few = {"lstm", {.input = 768, .hidden = 768, .layers = 1}, 7, 16, false, false, true};
    const config many = {"lstm", {.input = 1024, .hidden = 1024, .layers = 1}, 7, 8, false, false, true};
    const config large = {"lstm", {.input = 1500, .hidden = 1500, .layers = 2}, 7, 20, false, false, true};
    enum { HALVES, APART };
    const struct {
        const config *c;
        rcv_dtype dtype;
        const char *plan;
        int forward;    /* how the first loop's pipes share operands, or RCVI_NONE: there is but one */
        bool thirds[2]; /* of the first and the last loop */
    } cases[] = {
        {&high, RCV_BFLOAT16, by_wave, HALVES, {false, false}},
        {&high, RCV_FLOAT32, by_wave, HALVES, {false, false}},
        {&one, RCV_BFLOAT16, by_step, HALVES, {false, false}},
        {&few, RCV_BFLOAT16, by_step, HALVES, {false, false}},
        {&many, RCV_BFLOAT16, by_step, APART, {false, false}},
        {&large, RCV_BFLOAT16, at_once, RCVI_NONE, {false, true}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        subject s;
        int loops = 0;
        bool has_map_warpgroup = false;
        open_subject(&s, cases[i].c, cases[i].dtype, true, cases[i].plan);
        for (size_t loop = 0; next_loop(&s, &loop); loop++, loops++) {
            rcvi_persistent *p;
            check_ok(rcvi_persistent_new(&s.engine, loop, &p));
            const rcvi_task *task = &p->tasks[0];
            has_map_warpgroup = p->has_map_warpgroup;
            if (loops == 0) assert_int_equal(has_map_warpgroup, cases[i].thirds[0]);
            for (int q = 0; loops == 0 && cases[i].forward != RCVI_NONE && q < p->steps[task->product_step].pass_count;
                 q++) {
                int chunks = rcvi_persistent_chunks(p, p->steps[task->product_step].passes[q].depth),
                    pipe = task->pipe_split[q];
                if (cases[i].forward == HALVES) assert_int_equal(2 * pipe, chunks);
                if (cases[i].forward == APART) assert_true(pipe == 0 || pipe == chunks);
            }
            rcvi_persistent_free(s.context, p);
        }
        assert_int_equal(has_map_warpgroup, cases[i].thirds[1]);
        assert_true(loops > 1);
        close_subject(&s);
    }
}

/* ---- texts ---- */

static size_t compiled; /* texts so far; a part of a sweep compiles some of them */

/* Texts of all loops of a program compile; similar tasks, such as layers, share one of so many variants. */
static void check_texts(const config *c, rcv_dtype dtype, bool training, const char *plan, int classes) {
    subject s;
    int loops = 0;
    open_subject(&s, c, dtype, training, plan);
    for (size_t loop = 0; next_loop(&s, &loop); loop++, loops++) {
        rcvi_persistent *p;
        check_ok(rcvi_persistent_new(&s.engine, loop, &p));
        assert_int_equal(p->variant_count, classes);
        rcvi_jit_unit unit = {.source = p->source};
        if (rcvi_jit_name() && sample_takes(compiled++)) {
            check_ok(rcvi_jit_compile(s.context, &unit, 1, 9, 0));
            assert_true(unit.bytes > 1000);
            rcv_text_free(s.context, unit.code);
        }
        rcvi_persistent_free(s.context, p);
    }
    assert_int_equal(loops, training ? 2 : 1);
    close_subject(&s);
}

static bool never(void *user) {
    ++*(int *)user;
    return false;
}

/* Kernels of several engines are compiled at once, ahead of loading: each engine has the code of its own loops, in their order, as if they were
 * compiled alone. */
static void test_ahead(void **state) {
    (void)state;
    if (!rcvi_jit_name()) skip();
    assert_int_equal(setenv("RECURVE_CACHE", "off", 1), 0);
    subject s;
    open_subject(&s, &deep, RCV_BFLOAT16, true, by_wave);
    size_t steps = s.program.step_count, loop = 0, found = 0;
    rcvi_persistent **both = rcvi_pool_new(&s.engine.pool, steps, sizeof *both),
                    **last = rcvi_pool_new(&s.engine.pool, steps, sizeof *last), *loops[2] = {NULL};
    assert_true(both && last);
    for (; next_loop(&s, &loop) && found < 2; loop++, found++) {
        check_ok(rcvi_persistent_new(&s.engine, loop, &both[loop]));
        loops[found] = both[loop];
        if (found == 1) last[loop] = both[loop];
    }
    assert_int_equal(found, 2);
    s.engine.recurrences = rcvi_pool_new(&s.engine.pool, steps, sizeof *s.engine.recurrences);
    s.engine.persistent = both;
    rcvi_engine other = s.engine, *const engines[] = {&s.engine, &other};
    other.persistent = last;

    int asked = 0;
    size_t live = s.allocator.live;
    assert_false(rcvi_cuda_engines_compile(engines, 2, never, &asked));
    assert_int_equal(asked, 1);
    assert_true(!s.engine.compiled && !other.compiled && s.allocator.live == live);
    assert_true(rcvi_cuda_engines_compile(engines, 2, NULL, NULL));
    assert_int_equal(s.engine.compiled_count, 2);
    assert_int_equal(other.compiled_count, 1);
    for (int i = 0; i < 2; i++) {
        rcvi_jit_unit alone = {.source = loops[i]->source}, *own = &s.engine.compiled[i], *third = &other.compiled[0];
        check_ok(rcvi_jit_compile(s.context, &alone, 1, 9, 0));
        assert_int_equal(own->bytes, alone.bytes);
        assert_memory_equal(own->code, alone.code, alone.bytes);
        if (i == 1) {
            assert_int_equal(third->bytes, alone.bytes);
            assert_memory_equal(third->code, alone.code, alone.bytes);
            assert_ptr_not_equal(third->code, own->code);
        }
        rcv_text_free(s.context, alone.code);
    }
    rcvi_cuda_engine_drop_compiled(&s.engine);
    rcvi_cuda_engine_drop_compiled(&other);
    assert_int_equal(s.allocator.live, live);
    for (int i = 0; i < 2; i++) rcvi_persistent_free(s.context, loops[i]);
    close_subject(&s);
}

static void test_texts(void **state) {
    (void)state;
    config high = {"lstm", {.input = 512, .hidden = 512, .layers = 4}, 7, 64, false, false, true};
    config odd = {"gru", {.input = 19, .hidden = 45, .layers = 1}, 7, 20, false, false, true};
    const config one = {"lstm", {.input = 512, .hidden = 512, .layers = 1}, 7, 1, false, false, true};
    config both = {"lstm_proj", {.input = 9, .hidden = 24, .bidirectional = true}, 6, 300, false, false, true};
    const config normal = {"lstm_layernorm", {.input = 512, .hidden = 512, .layers = 4}, 7, 64, false, false, true};
    config narrow = {"lstm_layernorm", {.input = 19, .hidden = 301, .layers = 1}, 7, 20, false, false, true};
    if (!rcvi_jit_name()) print_message("not compiled: %s\n", rcv_message());
    assert_int_equal(setenv("RECURVE_CACHE", "", 1), 0);
    check_texts(&deep, RCV_BFLOAT16, true, by_wave, 1);
    check_texts(&high, RCV_BFLOAT16, true, by_wave, 1);
    check_texts(&odd, RCV_TFLOAT32, true, at_once, 1);
    check_texts(&both, RCV_FLOAT16, false, by_step, 2);
    check_texts(&high, RCV_FLOAT32, true, by_wave, 1);
    check_texts(&high, RCV_FLOAT32, false, by_two, 1);
    check_texts(&odd, RCV_FLOAT32, true, "combine(steps=all)+fuse+pack+persistent(parts=1)", 1);
    check_texts(&one, RCV_FLOAT32, true, exactly, 1);
    check_texts(&normal, RCV_BFLOAT16, false, by_wave, 1);
    check_texts(&narrow, RCV_TFLOAT32, false, by_step, 1);
    check_texts(&narrow, RCV_FLOAT16, false, at_once, 1);
    check_texts(&one, RCV_BFLOAT16, true, in_clusters, 1);
    check_texts(&one, RCV_FLOAT32, true, "combine(steps=all)+fuse+pack+persistent(parts=1)+cluster", 1);
    check_texts(&odd, RCV_FLOAT16, true, in_clusters, 1);
    high.lengths = odd.lengths = odd.resets = both.lengths = narrow.lengths = narrow.resets = true;
    check_texts(&high, RCV_BFLOAT16, true, by_wave, 1);
    check_texts(&odd, RCV_TFLOAT32, true, at_once, 1);
    check_texts(&both, RCV_FLOAT16, false, by_step, 2);
    check_texts(&narrow, RCV_BFLOAT16, false, by_step, 1);
    check_texts(&odd, RCV_TFLOAT32, true, in_clusters, 1);
}

/* ---- what is not stored ---- */

/* Of the buffers that a loop writes: those that nothing reads, rounded copies that nothing reads, states that only products or the threads that
 * carry them read before the loop ends. */
typedef struct {
    int unread, rounded_unread, transient, channels; /* channels: of operands */
    int carried;                                     /* values that threads carry */
} unstored;

static unstored count_unstored(const subject *s, const rcvi_persistent *p) {
    unstored found = {0, 0, 0, 0, 0};
    const rcvi_step *loop = &s->program.steps[p->loop];
    for (int c = 0; c < p->channel_count; c++) found.channels += p->channels[c].operand;
    for (int i = 0; i < p->step_count; i++) {
        for (int v = 0; v < p->steps[i].shape.map->operand_count; v++)
            found.carried += rcvi_persistent_carried(&s->engine, p, i, v) != RCVI_NONE;
    }
    for (size_t b = 0; b < s->program.buffer_count; b++) {
        rcvi_access accesses[RCVI_MAX_ACCESSES];
        bool written = false, single_step = true;
        for (int i = 1; i <= (int)loop->loop.body; i++) {
            int count = rcvi_step_accesses(&loop[i], accesses);
            for (int k = 0; k < count; k++) {
                if (accesses[k].view->buffer != (int)b || !accesses[k].written) continue;
                written = true;
                single_step &= accesses[k].view->stride == 0;
            }
        }
        found.unread += written && p->unread[b];
        found.rounded_unread += written && s->engine.rounded[b] != SIZE_MAX && p->rounded_unread[b];
        found.transient += written && single_step && p->transient[b];
    }
    return found;
}

/* All texts of a plan's loops, one after the other. Freed by the caller. */
static char *texts_of(const char *plan, bool training, int64_t steps, int64_t layers) {
    config c = {"lstm", {.input = 64, .hidden = 64, .layers = layers}, steps, 16, false, false, true};
    subject s;
    size_t length = 0, loops = 0;
    char *all = calloc(1, 1);
    open_subject(&s, &c, RCV_BFLOAT16, training, plan);
    for (size_t loop = 0; next_loop(&s, &loop); loop++, loops++) {
        rcvi_persistent *p = NULL;
        check_ok(rcvi_persistent_new(&s.engine, loop, &p));
        if (!strstr(all, p->source)) { /* of loops with the same text one is enough */
            all = realloc(all, length + strlen(p->source) + 1);
            assert_non_null(all);
            strcpy(all + length, p->source);
            length += strlen(p->source);
        }
        rcvi_persistent_free(s.context, p);
    }
    assert_true(loops > 0);
    close_subject(&s);
    return all;
}

/* Loops that differ in steps or layers alone are one kernel. */
static void test_sizes(void **state) {
    (void)state;
    static const char *const plans[] = {by_wave, at_once, in_clusters};
    for (int i = 0; i < 6; i++) {
        char *all = texts_of(plans[i / 2], i % 2, 9, 3);
        char *steps = texts_of(plans[i / 2], i % 2, 30, 3);
        char *layers = texts_of(plans[i / 2], i % 2, 9, 4);
        assert_true(strlen(all) > 1000);
        if (strcmp(all, steps)) fail_msg("%s has other kernels for other numbers of steps", plans[i / 2]);
        if (strcmp(all, layers)) fail_msg("%s has other kernels for other numbers of layers", plans[i / 2]);
        free(all);
        free(steps);
        free(layers);
    }
}

/* h goes through one channel to its layer and to the one above it. In inference that is all of a layer's output; of the caller's buffers, and in
 * training, nothing is left out that is read after the loop. A thread carries c, and in a GRU h, unless sequences end or it has several
 * tiles. */
static void test_unread(void **state) {
    (void)state;
    const config lstm = {"lstm", {.input = 20, .hidden = 40, .layers = 3}, 7, 20, false, false, true};
    const config gru = {"gru", {.input = 20, .hidden = 40, .layers = 3}, 7, 20, false, false, true};
    const config left = {"lstm", {.input = 20, .hidden = 40, .layers = 3}, 7, 20, true, false, true};
    const config turns = {"lstm", {.input = 20, .hidden = 1024, .layers = 1}, 7, 128, false, false, true};
    const struct {
        const config *c;
        rcv_dtype dtype;
        bool training;
        const char *plan;
        unstored want;
    } cases[] = {{&lstm, RCV_BFLOAT16, false, by_wave, {2, 3, 6, 4, 3}},
                 {&gru, RCV_BFLOAT16, false, by_wave, {2, 3, 3, 4, 3}},
                 {&lstm, RCV_FLOAT32, false, by_wave, {2, 0, 6, 4, 3}},
                 {&lstm, RCV_BFLOAT16, true, by_wave, {0, 0, 0, 4, 3}},
                 {&lstm, RCV_BFLOAT16, false, at_once, {0, 1, 2, 1, 1}},
                 {&gru, RCV_FLOAT32, true, at_once, {0, 0, 0, 1, 1}},
                 {&left, RCV_BFLOAT16, false, at_once, {0, 1, 0, 1, 0}},
                 {&turns, RCV_BFLOAT16, false, at_once, {0, 1, 1, 1, 0}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        subject s;
        rcvi_persistent *p = NULL;
        size_t loop = 0;
        open_subject(&s, cases[i].c, cases[i].dtype, cases[i].training, cases[i].plan);
        assert_true(next_loop(&s, &loop));
        check_ok(rcvi_persistent_new(&s.engine, loop, &p));
        unstored found = count_unstored(&s, p);
        print_message(
            "%s by %s%s: %d buffers and %d rounded are not stored, %d states at the end, %d channels, %d values "
            "in_shared\n",
            cases[i].c->cell, cases[i].plan, cases[i].training ? ", training" : "", found.unread, found.rounded_unread,
            found.transient, found.channels, found.carried);
        assert_memory_equal(&found, &cases[i].want, sizeof found);
        rcvi_persistent_free(s.context, p);
        close_subject(&s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_refusals), cmocka_unit_test(test_no_clusters),
                                       cmocka_unit_test(test_sizes),    cmocka_unit_test(test_shares),
                                       cmocka_unit_test(test_texts),    cmocka_unit_test(test_ahead),
                                       cmocka_unit_test(test_unread)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
