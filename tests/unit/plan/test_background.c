/* Plans that are replaced: the plan before the search has ended, what runs do when it has found one, what keeps a version. */
#include "gated_plans.h"

#include <sys/wait.h>
#include <unistd.h>

/* ---- through the public header ---- */

/* The first plan is there before the search ends, and right; so is what replaces it; wisdom has it for the next plan. */
static void test_public(void **state) {
    (void)state;
    for (int training = 0; training < 2; training++) {
        problem p;
        gate g = {.open = false};
        rcv_plan *plan = NULL, *again = NULL;
        results oracle, first, newest;
        double worst = 0;
        open_problem(&p, &middle, 2);
        run_oracle(&p, training, &oracle);
        rcv_plan_options options = gated(&p, training, &g);
        check_ok(rcv_plan_new(p.net, &options, &plan));
        assert_false(rcv_plan_from_wisdom(plan));
        char *string = strdup(rcv_plan_string(plan));
        run_plan(&p, plan, RCV_FLOAT32, training, &first);
        compare(&p, RCV_FLOAT32, string, &first, &oracle, &worst);
        assert_string_equal(rcv_plan_string(plan), string);
        atomic_store(&g.open, true);
        check_ok(rcv_plan_wait(plan));
        assert_true(atomic_load(&g.asked) > 0);
        assert_int_equal(atomic_load(&g.replaced), strcmp(rcv_plan_string(plan), string) != 0);
        run_plan(&p, plan, RCV_FLOAT32, training, &newest);
        compare(&p, RCV_FLOAT32, rcv_plan_string(plan), &newest, &oracle, &worst);
        int asked = atomic_load(&g.asked);
        bool learnt = rcv_wisdom_count(p.context) > 0; /* not where a busy machine left time for one trial alone */
        check_ok(rcv_plan_new(p.net, &options, &again));
        check_ok(rcv_plan_wait(again));
        assert_int_equal(rcv_plan_from_wisdom(again), learnt);
        if (learnt) assert_int_equal(atomic_load(&g.asked), asked);
        if (learnt) assert_string_equal(rcv_plan_string(again), rcv_plan_string(plan));
        rcv_plan_free(again);
        rcv_plan_free(plan);
        free(string);
        drop(&oracle);
        drop(&first);
        drop(&newest);
        close_problem(&p);
    }
}

/* Plan strings that are given never change, and nothing searches. */
static void test_pinned(void **state) {
    (void)state;
    problem p;
    gate g = {.open = true};
    rcv_plan *plan = NULL;
    open_problem(&p, &middle, 1);
    rcv_plan_options options = gated(&p, true, &g);
    options.schedule = "naive";
    check_ok(rcv_plan_new(p.net, &options, &plan));
    check_ok(rcv_plan_wait(plan));
    assert_null(plan->background);
    assert_int_equal(atomic_load(&g.asked), 0);
    assert_string_equal(rcv_plan_string(plan), "naive");
    rcv_plan_free(plan);
    close_problem(&p);
}

/* First plans of cells and types that differ: small, with sums over features, with scans, of one step, with little memory. */
static void test_first_plans(void **state) {
    (void)state;
    static const config configs[] = {
        {"gru", {.input = 3, .hidden = 4}, 1, 1, false, false, false},
        {"lstm_layernorm", {.input = 5, .hidden = 9, .layers = 2, .bidirectional = true}, 7, 3, true, true, true},
        {"sru", {.input = 8, .hidden = 8, .layers = 3}, 30, 2, false, true, false},
        {"slstm", {.input = 8, .hidden = 8}, 9, 4, false, false, true}};
    static const rcv_dtype dtypes[] = {RCV_FLOAT32, RCV_FLOAT64, RCV_BFLOAT16};
    for (size_t i = 0; i < 3 * sizeof configs / sizeof *configs; i++) {
        problem p;
        gate g = {.open = false};
        rcv_plan *plan = NULL;
        results oracle, got;
        double worst = 0;
        open_problem(&p, &configs[i / 3], 2);
        run_oracle(&p, true, &oracle);
        rcv_plan_options options = gated(&p, true, &g);
        options.dtype = dtypes[i % 3];
        check_ok(rcv_plan_new(p.net, &options, &plan));
        run_plan(&p, plan, options.dtype, true, &got);
        compare(&p, options.dtype, rcv_plan_string(plan), &got, &oracle, &worst);
        size_t bytes = rcv_plan_bytes(plan);
        options.effort = RCV_FIRST;
        rcv_plan *alone = NULL;
        check_ok(rcv_plan_new(p.net, &options, &alone)); /* the same plan, and no search */
        assert_string_equal(rcv_plan_string(alone), rcv_plan_string(plan));
        assert_null(alone->background);
        rcv_plan_free(alone);
        options.effort = RCV_BACKGROUND;
        atomic_store(&g.open, true);
        rcv_plan_free(plan);
        options.memory = bytes / 100;
        check_fails(rcv_plan_new(p.net, &options, &plan), RCV_UNSUPPORTED, "no plan keeps to");
        drop(&oracle);
        drop(&got);
        close_problem(&p);
    }
}

/* ---- versions ---- */

/* A backward call belongs to the plan of its forward call; the next forward call takes the plan that was found. */
static void test_replaced_between_calls(void **state) {
    (void)state;
    problem p;
    gate g = {.open = false};
    results before, after, got;
    rcv_run *run = NULL, *later = NULL;
    data d;
    open_problem(&p, &middle, 2);
    rcv_plan_options options = gated(&p, true, &g);
    rcv_plan *plan = start(&p, &options);
    run_pinned(&p, RCV_FLOAT32, true, "naive", &before);
    check_ok(rcv_run_new(plan, &run));
    size_t bytes = rcv_run_bytes(run);
    assert_int_equal(bytes, rcv_plan_bytes(plan));
    open_data(&d, &p, RCV_FLOAT32);
    check_ok(rcv_run_forward(run, &d.forward));
    atomic_store(&g.open, true);
    check_ok(rcv_plan_wait(plan));
    assert_int_equal(atomic_load(&g.replaced), 1);
    assert_string_not_equal(rcv_plan_string(plan), "naive");
    assert_int_equal(rcv_run_version(run), 1);
    check_ok(rcv_run_backward(run, &d.backward));
    check_ok(rcv_run_backward(run, &d.backward));
    close_data(&d, true, &got);
    check_same_bits("naive", &before, &got);
    drop(&got);

    run_pinned(&p, RCV_FLOAT32, true, rcv_plan_string(plan), &after);
    for (int i = 0; i < 2; i++) {
        open_data(&d, &p, RCV_FLOAT32);
        d.forward.same_parameters = i > 0;
        call(run, &d);
        close_data(&d, true, &got);
        check_same_bits(rcv_plan_string(plan), &after, &got);
        drop(&got);
        assert_int_equal(rcv_run_version(run), 2);
    }
    assert_true(rcv_run_bytes(run) < rcv_plan_bytes(plan) + bytes / 2); /* the arena of version 1 is freed */
    check_ok(rcv_run_new(plan, &later));
    open_data(&d, &p, RCV_FLOAT32);
    call(later, &d);
    assert_int_equal(rcv_run_version(later), 2);
    close_data(&d, true, &got);
    check_same_bits(rcv_plan_string(plan), &after, &got);
    drop(&got);
    drop(&before);
    drop(&after);
    rcv_run_free(later);
    rcv_run_free(run);
    rcv_plan_free(plan);
    close_problem(&p);
}

/* A run that is told to take the newest plan between a forward call and its backward call. */
static void test_update(void **state) {
    (void)state;
    problem p;
    gate g = {.open = false};
    results want, got;
    rcv_run *run = NULL;
    data d;
    open_problem(&p, &middle, 1);
    rcv_plan_options options = gated(&p, true, &g);
    rcv_plan *plan = start(&p, &options);
    run_pinned(&p, RCV_FLOAT32, true, "naive", &want);
    check_ok(rcv_run_new(plan, &run));
    check_ok(rcv_run_update(run));
    assert_int_equal(rcv_run_version(run), 1);
    open_data(&d, &p, RCV_FLOAT32);
    check_ok(rcv_run_forward(run, &d.forward));
    atomic_store(&g.open, true);
    check_ok(rcv_plan_wait(plan));
    check_ok(rcv_run_update(run));
    assert_int_equal(rcv_run_version(run), 2);
    size_t both = rcv_run_bytes(run);
    d.backward.forward = &d.forward;
    check_ok(rcv_run_backward(run, &d.backward));
    d.backward.forward = NULL;
    check_ok(rcv_run_backward(run, &d.backward));
    close_data(&d, true, &got);
    check_same_bits("naive", &want, &got);
    open_data(&d, &p, RCV_FLOAT32);
    call(run, &d);
    assert_true(rcv_run_bytes(run) < both);
    close_data(&d, true, NULL);
    drop(&want);
    drop(&got);
    rcv_run_free(run);
    rcv_plan_free(plan);
    close_problem(&p);
}

/* Forward calls of both versions, each with a reserve of its own, then all backward calls from the last to the first. */
static void test_reserves(void **state) {
    (void)state;
    enum { CALLS = 6, SECOND = 3 };
    problem p;
    gate g = {.open = false};
    results want[2][RESERVE_CALLS], got;
    reserved_call calls[CALLS];
    rcv_run *run = NULL;
    open_problem(&p, &middle, 2);
    rcv_plan_options options = gated(&p, true, &g);
    options.reserve = true;
    rcv_plan *plan = start(&p, &options);
    check_ok(rcv_run_new(plan, &run));
    assert_int_equal(rcv_run_reserve_bytes(run), rcv_plan_reserve_bytes(plan));
    run_one_by_one(&p, RCV_FLOAT32, "naive", want[0]);
    for (int k = 0; k < CALLS; k++) {
        if (k == SECOND) {
            size_t first = rcv_run_reserve_bytes(run);
            atomic_store(&g.open, true);
            check_ok(rcv_plan_wait(plan));
            assert_true(rcv_plan_reserve_bytes(plan) >= first);
            open_call(&calls[k], &p, RCV_FLOAT32, plan, k);
            check_ok(rcv_run_forward(run, &calls[k].d.forward)); /* still the first version */
            assert_int_equal(rcv_run_version(run), 1);
            close_call(&calls[k], NULL);
            check_ok(rcv_run_update(run));
            assert_int_equal(rcv_run_version(run), 2);
            assert_true(rcv_plan_reserve_bytes(plan) >= rcv_run_reserve_bytes(run));
        }
        open_call(&calls[k], &p, RCV_FLOAT32, plan, k);
        calls[k].d.forward.version = k % 2 ? rcv_run_version(run) : 0;
        check_ok(rcv_run_forward(run, &calls[k].d.forward));
        calls[k].d.forward.version = rcv_run_version(run);
    }
    reserved_call *last = &calls[CALLS - 1];
    last->d.forward.version = 3;
    check_fails(rcv_run_forward(run, &last->d.forward), RCV_INVALID, "version 3");
    last->d.forward.version = 2;
    run_one_by_one(&p, RCV_FLOAT32, rcv_plan_string(plan), want[1]);
    for (int k = CALLS; k-- > 0;) {
        calls[k].d.backward.forward = &calls[k].d.forward;
        check_ok(rcv_run_backward(run, &calls[k].d.backward));
    }
    for (int k = 0; k < CALLS; k++) {
        close_call(&calls[k], &got);
        check_equal(k < SECOND ? "naive" : rcv_plan_string(plan), k, &want[k >= SECOND][k], &got);
        drop(&got);
    }
    for (int k = 0; k < 2 * RESERVE_CALLS; k++) drop(&want[k / RESERVE_CALLS][k % RESERVE_CALLS]);
    size_t bytes = rcv_run_reserve_bytes(run);
    rcv_run_free(run);
    check_ok(rcv_run_new(plan, &run)); /* a run that is made later begins with version 1 as well */
    assert_int_equal(rcv_run_version(run), 1);
    check_ok(rcv_run_update(run));
    assert_int_equal(rcv_run_version(run), 2);
    assert_int_equal(rcv_run_reserve_bytes(run), bytes);
    rcv_run_free(run);
    rcv_plan_free(plan);
    close_problem(&p);
}

/* Parameters that change between forward calls of two versions: what the other version has packed is not used again. */
static void test_same_parameters(void **state) {
    (void)state;
    static const char packs[] = "combine(steps=4)+fuse+pack";
    problem p;
    gate g = {.open = true};
    results got[2];
    rcv_run *run = NULL;
    rcv_plan *plan = NULL, *pinned = NULL;
    open_problem(&p, &middle, 1);
    rcv_plan_options options = gated(&p, true, &g), pinning = options_of(&p, RCV_FLOAT32, true, packs);
    options.reserve = true;
    rcvi_problem q = {.net = p.net, .options = &options, .device = &rcvi_device_cpu};
    check_ok(rcvi_device_cpu.describe(p.context, 0, options.dtype, 1, &q.machine));
    rcvi_device_cpu.describe_libraries(0, &q.machine);
    check_ok(rcv_plan_new(p.net, &pinning, &pinned));
    check_ok(rcvi_plan_remember(&q, pinned, 1));
    rcv_plan_free(pinned);
    for (int versions = 0; versions < 2; versions++) {
        reserved_call c;
        plan = start(&p, &options);
        check_ok(rcv_plan_wait(plan));
        assert_string_equal(rcv_plan_string(plan), packs);
        check_ok(rcv_run_new(plan, &run));
        check_ok(rcv_run_update(run));
        open_call(&c, &p, RCV_FLOAT32, plan, 0);
        if (versions) check_ok(rcv_run_forward(run, &c.d.forward));
        for (int64_t i = 0; i < p.parameter_count; i++) ((float *)c.d.parameters)[i] *= 0.5f;
        c.d.forward.version = 1;
        if (versions) check_ok(rcv_run_forward(run, &c.d.forward));
        c.d.forward.version = 2;
        c.d.forward.same_parameters = true;
        check_ok(rcv_run_forward(run, &c.d.forward));
        check_ok(rcv_run_backward(run, &c.d.backward));
        for (int64_t i = 0; i < p.parameter_count; i++) ((float *)c.d.parameters)[i] *= 2;
        close_call(&c, &got[versions]);
        rcv_run_free(run);
        rcv_plan_free(plan);
    }
    check_same_bits("calls of both versions", &got[0], &got[1]);
    drop(&got[0]);
    drop(&got[1]);
    close_problem(&p);
}

/* ---- what keeps a version ---- */

/* A run with a limit of memory that leaves no room for both versions keeps the first. */
static void test_limit(void **state) {
    (void)state;
    problem p;
    gate g = {.open = true};
    results want, got;
    rcv_run *run = NULL;
    data d;
    open_problem(&p, &middle, 1);
    rcv_plan_options options = gated(&p, true, &g);
    run_pinned(&p, RCV_FLOAT32, true, "naive", &want);
    rcv_plan *plan = start(&p, &options);
    size_t first = rcv_plan_bytes(plan);
    check_ok(rcv_plan_wait(plan));
    rcvi_problem q = {.net = p.net, .options = &options, .device = &rcvi_device_cpu};
    check_ok(rcvi_device_cpu.describe(p.context, 0, options.dtype, 1, &q.machine));
    rcvi_device_cpu.describe_libraries(0, &q.machine);
    check_ok(rcvi_plan_remember(&q, rcvi_plan_newest(plan), 1)); /* so that it is found again */
    options.memory = first + rcv_plan_bytes(plan) - 1;
    rcv_plan_free(plan);
    plan = start(&p, &options);
    check_ok(rcv_run_new(plan, &run));
    check_ok(rcv_plan_wait(plan));
    assert_string_not_equal(rcv_plan_string(plan), "naive");
    check_fails(rcv_run_update(run), RCV_UNSUPPORTED, "both versions of the plan need");
    open_data(&d, &p, RCV_FLOAT32);
    call(run, &d);
    assert_int_equal(rcv_run_version(run), 1);
    assert_int_equal(rcv_run_bytes(run), first);
    close_data(&d, true, &got);
    check_same_bits("naive", &want, &got);
    drop(&want);
    drop(&got);
    rcv_run_free(run);
    rcv_plan_free(plan);
    close_problem(&p);
}

/* A call that is refused does not end version 1: the backward call of the call before it can still be made. */
static void test_refused_between_versions(void **state) {
    (void)state;
    problem p;
    gate g = {.open = false};
    results want, got;
    rcv_run *run = NULL;
    data d;
    open_problem(&p, &middle, 1);
    rcv_plan_options options = gated(&p, true, &g);
    run_pinned(&p, RCV_FLOAT32, true, "naive", &want);
    rcv_plan *plan = start(&p, &options);
    check_ok(rcv_run_new(plan, &run));
    open_data(&d, &p, RCV_FLOAT32);
    check_ok(rcv_run_forward(run, &d.forward));
    atomic_store(&g.open, true);
    check_ok(rcv_plan_wait(plan));
    rcv_forward refused = d.forward;
    refused.y = d.x;
    refused.batch = 2;
    check_fails(rcv_run_forward(run, &refused), RCV_INVALID, "overlap");
    assert_int_equal(rcv_run_version(run), 1);
    check_ok(rcv_run_backward(run, &d.backward));
    close_data(&d, true, &got);
    check_same_bits("naive", &want, &got);
    open_data(&d, &p, RCV_FLOAT32);
    call(run, &d);
    close_data(&d, true, NULL);
    assert_int_equal(rcv_run_version(run), 2);
    drop(&want);
    drop(&got);
    rcv_run_free(run);
    rcv_plan_free(plan);
    close_problem(&p);
}

/* An allocation fails in the first plan, in the search, or in a run that takes the plan that was found: a status, and the first plan stays. */
static void test_failing_allocations(void **state) {
    (void)state;
    problem p;
    gate g = {.open = true};
    results want;
    data d;
    size_t stops = 0, searches = 0, fell = 0;
    rcv_plan_options options;
    for (size_t n = 1; n < 4000; n += 1 + n / 3) {
        rcv_plan *plan = NULL;
        open_problem(&p, &middle, 1);
        options = gated(&p, true, &g);
        p.allocator.fail_at = n;
        rcv_status status = rcv_plan_new(p.net, &options, &plan);
        if (!status) status = rcv_plan_wait(plan);
        assert_true(status == RCV_OK || status == RCV_NO_MEMORY);
        if (status) assert_true(p.allocator.failed > 0);
        stops += status != RCV_OK && !plan;
        searches += status != RCV_OK && plan;
        p.allocator.fail_at = 0;
        rcv_plan_free(plan);
        close_problem(&p);
    }
    assert_true(stops > 2 && searches > 2);
    open_problem(&p, &middle, 1);
    options = gated(&p, true, &g);
    run_pinned(&p, RCV_FLOAT32, true, "naive", &want);
    rcv_plan *plan = NULL;
    rcv_run *run = NULL;
    for (size_t n = 1; n < 100; n++) {
        results got;
        atomic_store(&g.open, false);
        plan = start(&p, &options);
        check_ok(rcv_run_new(plan, &run));
        atomic_store(&g.open, true);
        check_ok(rcv_plan_wait(plan));
        open_data(&d, &p, RCV_FLOAT32);
        p.allocator.fail_at = n;
        p.allocator.failed = 0;
        call(run, &d);
        p.allocator.fail_at = 0;
        bool failed = p.allocator.failed > 0;
        fell += failed;
        if (failed) call(run, &d); /* it is not tried again */
        assert_int_equal(rcv_run_version(run), failed ? 1 : 2);
        close_data(&d, true, &got);
        if (failed) check_same_bits("naive", &want, &got);
        drop(&got);
        rcv_run_free(run);
        rcv_plan_free(plan);
        if (!failed) break;
    }
    assert_true(fell > 1);
    drop(&want);
    close_problem(&p);
}

/* A child of fork() has no search: its plan stays, and says so. */
static void test_fork(void **state) {
    (void)state;
    problem p;
    gate g = {.open = false};
    rcv_run *run = NULL;
    data d;
    open_problem(&p, &middle, 1);
    rcv_plan_options options = gated(&p, true, &g);
    rcv_plan *plan = start(&p, &options);
    check_ok(rcv_run_new(plan, &run));
    open_data(&d, &p, RCV_FLOAT32);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(20);
        bool good = rcv_plan_wait(plan) == RCV_UNSUPPORTED && strstr(rcv_message(), "parent");
        good &= !rcv_run_forward(run, &d.forward) && !rcv_run_backward(run, &d.backward);
        good &= !strcmp(rcv_plan_string(plan), "naive") && !rcv_plan_stay(plan);
        rcv_run_free(run);
        rcv_plan_free(plan);
        _exit(good ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    atomic_store(&g.open, true);
    check_ok(rcv_plan_wait(plan));
    close_data(&d, true, NULL);
    rcv_run_free(run);
    rcv_plan_free(plan);
    close_problem(&p);
}

/* Runs call while the plan is replaced: every call has the bits of one of the two plans. */
static void test_calls_meanwhile(void **state) {
    (void)state;
    problem p;
    gate g = {.open = true};
    results first, second, got;
    rcv_run *run = NULL;
    data d;
    open_problem(&p, &middle, 1);
    rcv_plan_options options = gated(&p, true, &g);
    run_pinned(&p, RCV_FLOAT32, true, "naive", &first);
    rcv_plan *plan = start(&p, &options);
    check_ok(rcv_run_new(plan, &run));
    int calls[2] = {0, 0};
    for (int after = 0; after < 3; after += rcv_run_version(run) == 2) {
        open_data(&d, &p, RCV_FLOAT32);
        call(run, &d);
        close_data(&d, true, &got);
        calls[rcv_run_version(run) - 1]++;
        if (rcv_run_version(run) == 1) {
            check_same_bits("naive", &first, &got);
        } else {
            if (calls[1] == 1) run_pinned(&p, RCV_FLOAT32, true, rcv_plan_string(plan), &second);
            check_same_bits(rcv_plan_string(plan), &second, &got);
        }
        drop(&got);
    }
    assert_true(calls[0] > 0);
    drop(&first);
    drop(&second);
    rcv_run_free(run);
    rcv_plan_free(plan);
    close_problem(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_public),
                                       cmocka_unit_test(test_pinned),
                                       cmocka_unit_test(test_first_plans),
                                       cmocka_unit_test(test_replaced_between_calls),
                                       cmocka_unit_test(test_update),
                                       cmocka_unit_test(test_reserves),
                                       cmocka_unit_test(test_same_parameters),
                                       cmocka_unit_test(test_limit),
                                       cmocka_unit_test(test_refused_between_versions),
                                       cmocka_unit_test(test_failing_allocations),
                                       cmocka_unit_test(test_fork),
                                       cmocka_unit_test(test_calls_meanwhile)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
