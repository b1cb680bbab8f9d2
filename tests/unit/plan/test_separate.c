/* Parameters and gradients as tensors apart (plan option separate_parameters): every plan gives the bits that it gives with flat arrays,
 * gradients that are not wanted are neither computed nor written, and calls that mix both forms are refused. */
#include "generator.h"
#include "memory_faults.h"
#include "planned.h"
#include "sample.h"

#include "plan/plan.h"

#include <math.h>

static const config lstm = {"lstm", {.input = 5, .hidden = 8, .layers = 2, .bidirectional = true}, 5, 3, 0, 0, true};

/* OpenBLAS and oneDNN keep their own order. */
static bool has_fixed_bits(const char *plan) { return !strstr(plan, "vendor") && !strstr(plan, "blas"); }

/* ---- the same results ---- */

/* A plan with flat arrays and with tensors, of calls with the most sizes and with fewer. */
static void compare_forms(problem *p, rcv_dtype dtype, const char *schedule, const results *want) {
    results flat = {.count = 0}, separate = {.count = 0};
    double worst = 0;
    p->separate = false;
    run_pinned(p, dtype, true, schedule, &flat);
    p->separate = true;
    run_pinned(p, dtype, true, schedule, &separate);
    p->separate = false;
    compare(p, dtype, schedule, &separate, want, &worst);
    if (has_fixed_bits(schedule)) check_same_bits(schedule, &flat, &separate);
    drop(&flat);
    drop(&separate);
}

/* All that the planner lists, and rungs that join parameters or leave them where they are. */
static size_t check_plans(problem *p, rcv_dtype dtype) {
    static const char *const more[] = {"combine",
                                       "combine(steps=all)",
                                       "combine(steps=3)+fuse",
                                       "combine(steps=all)+blas",
                                       "combine(steps=2)+fuse+transpose",
                                       "combine(steps=2)+fuse+pack+recompute(every=2)",
                                       "combine(steps=all)+fuse+pack+scan"};
    enum { MORE = sizeof more / sizeof *more };
    rcv_plan_options options = options_of(p, dtype, true, NULL);
    options.separate_parameters = true;
    options.effort = RCV_ESTIMATE;
    rcv_plan *plan = NULL;
    results want = {.count = 0};
    size_t count = 0;
    run_oracle(p, true, &want);
    check_ok(rcv_plan_new(p->net, &options, &plan));
    for (size_t i = 0; i < rcv_plan_candidate_count(plan); i++) {
        const rcv_candidate *c = rcv_plan_candidate(plan, i);
        if (c->status) continue;
        compare_forms(p, dtype, c->schedule, &want);
        count++;
    }
    for (int i = 0; i < MORE && dtype != RCV_BFLOAT16; i++) {
        if (lacks_openblas(more[i])) continue;
        compare_forms(p, dtype, more[i], &want);
        count++;
    }
    rcv_plan_free(plan);
    drop(&want);
    return count;
}

static void test_builtin_cells(void **state) {
    (void)state;
    size_t count = 0, index = 0;
    for (size_t i = 0; i < rcv_builtin_count(); i++) {
        static const rcv_dtype dtypes[] = {RCV_FLOAT32, RCV_FLOAT64, RCV_BFLOAT16};
        config c = {rcv_builtin_name(i), {.input = 6, .hidden = 6, .layers = 2}, 5, 3, i % 3 == 0, i % 4 == 1, true};
        problem p;
        if (!sample_takes(index++)) continue;
        c.net.bidirectional = i % 5 == 2;
        c.net.no_bias = i % 7 == 3;
        c.net.rank = i % 6 == 4 ? 2 : 0;
        open_problem(&p, &c, 2);
        count += check_plans(&p, dtypes[i % 3]);
        close_problem(&p);
    }
    assert_true(count > sample_least(120));
}

static void test_random_cells(void **state) {
    (void)state;
    enum { CELLS = 24 };
    static const rcv_size sizes[] = {{"proj", 3}, {"heads", 2}};
    size_t count = 0, index = 0;
    random_source source = {20261118};
    for (int i = 0; i < CELLS; i++) {
        char *text = generate_cell(&source);
        config c = {"random.cell", {.input = 4, .hidden = 6, .layers = 1 + i % 2}, 4, 2, i % 3 == 0, 0, true};
        rcv_size given[2];
        problem p;
        c.net.sizes = given;
        for (int s = 0; s < 2; s++) {
            char declared[32];
            snprintf(declared, sizeof declared, "size %s", sizes[s].name);
            if (strstr(text, declared)) given[c.net.size_count++] = sizes[s];
        }
        if (sample_takes(index++)) {
            open_problem_of(&p, &c, text, 1);
            count += check_plans(&p, i % 2 ? RCV_FLOAT64 : RCV_FLOAT32);
            close_problem(&p);
        }
        free(text);
    }
    assert_true(count > sample_least(200));
}

/* Trials run with tensors too. */
static void test_measured(void **state) {
    (void)state;
    problem p;
    results got = {.count = 0}, want = {.count = 0};
    double worst = 0;
    open_problem(&p, &lstm, 1);
    run_oracle(&p, true, &want);
    p.separate = true;
    rcv_plan_options options = options_of(&p, RCV_FLOAT32, true, NULL);
    rcv_plan *plan = NULL;
    check_ok(rcv_plan_new(p.net, &options, &plan));
    size_t timed = 0;
    for (size_t i = 0; i < rcv_plan_candidate_count(plan); i++) timed += rcv_plan_candidate(plan, i)->seconds > 0;
    assert_true(timed > 1);
    run_plan(&p, plan, RCV_FLOAT32, true, &got);
    compare(&p, RCV_FLOAT32, rcv_plan_string(plan), &got, &want, &worst);
    rcv_plan_free(plan);
    drop(&got);
    drop(&want);
    close_problem(&p);
}

/* ---- gradients that are not wanted, sums, sizes ---- */

typedef struct {
    uint64_t left_out; /* bit i: dtensors[i] is NULL */
    bool accumulate;   /* the second call adds */
    int64_t steps, batch;
} variant;

static const char *const schedules[] = {"naive",
                                        "combine",
                                        "combine(steps=all)+fuse+pack",
                                        "combine(steps=2)+fuse+pack+threads(2)",
                                        "combine(steps=2)+fuse+transpose",
                                        "vendor"};
enum { SCHEDULES = sizeof schedules / sizeof *schedules };

/* The same calls with tensors or with flat arrays. False where the plan does not apply: a build without oneDNN. */
static bool run_variant(problem *p, const char *schedule, bool separate, const variant *v, results *r) {
    rcv_plan *plan = NULL;
    rcv_run *run = NULL;
    data d;
    p->separate = separate;
    rcv_plan_options options = options_of(p, RCV_FLOAT32, true, schedule);
    rcv_status status = rcv_plan_new(p->net, &options, &plan);
    if (status == RCV_UNSUPPORTED) return false;
    check_ok(status);
    check_ok(rcv_run_new(plan, &run));
    open_data(&d, p, RCV_FLOAT32);
    for (size_t i = 0; separate && i < rcv_net_parameter_count(p->net); i++)
        if (v->left_out >> i & 1) d.dtensors[i] = NULL;
    for (int call = 0; call < 2; call++) {
        d.forward.same_parameters = call;
        d.backward.accumulate = call && v->accumulate;
        check_ok(call_at(&d, run, true, v->steps, v->batch));
    }
    rcv_run_free(run);
    rcv_plan_free(plan);
    close_data(&d, true, r);
    return true;
}

/* Sets to zero what was left out, after a check that it is still poison where it was apart. */
static void forget(const problem *p, results *r, uint64_t left_out, bool is_poison) {
    double *gradients = r->values[r->count - 1];
    assert_string_equal(r->names[r->count - 1], "dparameters");
    for (size_t i = 0; i < rcv_net_parameter_count(p->net); i++) {
        const rcv_parameter *parameter = rcv_net_parameter(p->net, i);
        for (int64_t k = parameter->offset; left_out >> i & 1 && k < parameter->offset + parameter->count; k++) {
            if (is_poison) assert_true(isnan(gradients[k]));
            gradients[k] = 0;
        }
        for (int64_t k = parameter->offset; k < parameter->offset + parameter->count; k++)
            assert_true(isfinite(gradients[k]));
    }
}

static void test_variants(void **state) {
    (void)state;
    problem p;
    open_problem(&p, &lstm, 2);
    uint64_t all = ((uint64_t)1 << rcv_net_parameter_count(p.net)) - 1;
    const variant variants[] = {{0, true, 5, 3},        {1, false, 5, 3},   {0x5a5a, true, 4, 2},
                                {all - 2, false, 1, 3}, {all, false, 5, 1}, {0xff00, false, 3, 3}};
    enum { VARIANTS = sizeof variants / sizeof *variants };
    size_t ran = 0;
    for (int s = 0; s < SCHEDULES; s++) {
        for (int i = 0; i < VARIANTS; i++) {
            results flat = {.count = 0}, separate = {.count = 0};
            if (!run_variant(&p, schedules[s], false, &variants[i], &flat)) continue;
            assert_true(run_variant(&p, schedules[s], true, &variants[i], &separate));
            forget(&p, &flat, variants[i].left_out, false);
            forget(&p, &separate, variants[i].left_out, true);
            check_same_bits(schedules[s], &flat, &separate); /* oneDNN's, too: the same calls */
            drop(&flat);
            drop(&separate);
            ran++;
        }
    }
    assert_true(ran >= (SCHEDULES - 1) * VARIANTS);
    close_problem(&p);
}

/* The steps that compute a gradient are dead where it is not wanted, and no others are. */
static void test_dead_steps(void **state) {
    (void)state;
    problem p;
    rcv_plan *plan = NULL;
    open_problem(&p, &lstm, 1);
    p.separate = true;
    rcv_plan_options options = options_of(&p, RCV_FLOAT32, true, "combine(steps=all)+fuse+pack");
    check_ok(rcv_plan_new(p.net, &options, &plan));
    const rcvi_program *program = &plan->program;
    void **buffers = calloc(program->buffer_count, sizeof *buffers);
    bool *needed = calloc(program->buffer_count, sizeof *needed), *dead = calloc(program->step_count, sizeof *dead);
    assert_true(buffers && needed && dead);
    size_t found = 0;
    for (size_t tensor = 0; tensor < rcv_net_parameter_count(p.net); tensor++) {
        for (size_t b = 0; b < program->buffer_count; b++) {
            const rcvi_buffer *buffer = &program->buffers[b];
            buffers[b] = buffer->role == RCVI_DPARAMETERS && buffer->index == tensor ? NULL : (void *)program;
        }
        rcvi_program_find_dead_steps(program, buffers, program->forward_count, program->step_count, needed, dead);
        for (size_t i = program->forward_count; i < program->step_count; i++) {
            int out = program->steps[i].kind == RCVI_STEP_MAP ? RCVI_NONE : program->steps[i].out.buffer;
            bool own = out != RCVI_NONE && program->buffers[out].role == RCVI_DPARAMETERS &&
                       program->buffers[out].index == tensor;
            assert_int_equal(dead[i], own);
            found += dead[i] && program->steps[i].when != RCVI_WHEN_OVERWRITING;
        }
    }
    assert_true(found >= rcv_net_parameter_count(p.net)); /* at least one step computes each */
    free(buffers);
    free(needed);
    free(dead);
    rcv_plan_free(plan);
    close_problem(&p);
}

static void test_empty_batch(void **state) {
    (void)state;
    problem p;
    data d;
    rcv_plan *plan = NULL;
    rcv_run *run = NULL;
    results r = {.count = 0};
    open_problem(&p, &lstm, 1);
    p.separate = true;
    rcv_plan_options options = options_of(&p, RCV_FLOAT32, true, "combine+fuse+pack");
    check_ok(rcv_plan_new(p.net, &options, &plan));
    check_ok(rcv_run_new(plan, &run));
    open_data(&d, &p, RCV_FLOAT32);
    d.forward.batch = RCV_EMPTY;
    d.dtensors[3] = NULL;
    check_ok(rcv_run_forward(run, &d.forward));
    check_ok(rcv_run_backward(run, &d.backward));
    close_data(&d, true, &r);
    for (int64_t k = 0; k < p.parameter_count; k++) {
        const rcv_parameter *absent = rcv_net_parameter(p.net, 3);
        bool is_absent = k >= absent->offset && k < absent->offset + absent->count;
        double value = r.values[r.count - 1][k];
        assert_true(is_absent ? isnan(value) : value == 0);
    }
    drop(&r);
    rcv_run_free(run);
    rcv_plan_free(plan);
    close_problem(&p);
}

/* A backward call of a forward call before the last one, which had one other tensor: its own tensors count. */
static void test_earlier_forward(void **state) {
    (void)state;
    enum { OTHER = 5 }; /* weight_hh_l0_reverse */
    problem p;
    open_problem(&p, &lstm, 1);
    p.separate = true;
    for (int s = 0; s < SCHEDULES - 1; s++) {
        results r[2] = {{.count = 0}, {.count = 0}};
        for (int between = 0; between < 2; between++) {
            data d;
            rcv_plan *plan = NULL;
            rcv_run *run = NULL;
            rcv_plan_options options = options_of(&p, RCV_FLOAT64, true, schedules[s]);
            options.reserve = true;
            check_ok(rcv_plan_new(p.net, &options, &plan));
            check_ok(rcv_run_new(plan, &run));
            open_data(&d, &p, RCV_FLOAT64);
            size_t count = rcv_net_parameter_count(p.net), bytes = rcv_plan_reserve_bytes(plan);
            const void **tensors = calloc(count, sizeof *tensors);
            double *other = calloc((size_t)rcv_net_parameter(p.net, OTHER)->count, sizeof *other);
            void *reserves[2] = {aligned_alloc(256, (bytes + 511) / 256 * 256),
                                 aligned_alloc(256, (bytes + 511) / 256 * 256)};
            assert_true(tensors && other && reserves[0] && reserves[1]);
            memcpy(tensors, d.tensors, count * sizeof *tensors);
            tensors[OTHER] = other;
            d.forward.reserve = reserves[0];
            check_ok(rcv_run_forward(run, &d.forward));
            rcv_forward later = d.forward;
            later.tensors = tensors;
            later.reserve = reserves[1];
            if (between) check_ok(rcv_run_forward(run, &later));
            if (between) check_ok(rcv_run_backward(run, &d.backward));
            d.backward.forward = &d.forward;
            check_ok(rcv_run_backward(run, &d.backward));
            rcv_run_free(run);
            rcv_plan_free(plan);
            close_data(&d, true, &r[between]);
            free(tensors);
            free(other);
            free(reserves[0]);
            free(reserves[1]);
        }
        for (int i = 0; i < r[0].count; i++) { /* outputs of the forward calls are those of the last one */
            if (!strcmp(r[0].names[i], "y") || !strcmp(r[0].names[i], "a final state")) r[0].counts[i] = 0;
        }
        check_same_bits(schedules[s], &r[0], &r[1]);
        drop(&r[0]);
        drop(&r[1]);
    }
    close_problem(&p);
}

/* ---- refusals ---- */

static void test_refusals(void **state) {
    (void)state;
    problem p;
    open_problem(&p, &lstm, 1);
    for (int separate = 0; separate < 2; separate++) {
        data d;
        rcv_plan *plan = NULL;
        rcv_run *run = NULL;
        p.separate = separate;
        rcv_plan_options options = options_of(&p, RCV_FLOAT32, true, "combine+fuse+pack");
        check_ok(rcv_plan_new(p.net, &options, &plan));
        check_ok(rcv_run_new(plan, &run));
        open_data(&d, &p, RCV_FLOAT32);
        rcv_forward forward = d.forward;
        rcv_backward backward = d.backward;
        if (separate) {
            forward.parameters = d.x;
            check_fails(rcv_run_forward(run, &forward), RCV_INVALID, "parameters are given, but the plan was made for");
            forward = d.forward;
            forward.tensors = NULL;
            check_fails(rcv_run_forward(run, &forward), RCV_INVALID, "data->tensors");
            void *kept = d.tensors[6];
            d.tensors[6] = NULL;
            check_fails(rcv_run_forward(run, &d.forward), RCV_INVALID,
                        "data->tensors[6], which is bias_ih_l0_reverse,");
            d.tensors[6] = kept;
            d.forward.y = d.tensors[1];
            check_fails(rcv_run_forward(run, &d.forward), RCV_INVALID, "y overlaps parameters.weight_hh_l0;");
            d.forward.y = d.y;
            check_ok(rcv_run_forward(run, &d.forward));
            backward.dparameters = d.dx;
            check_fails(rcv_run_backward(run, &backward), RCV_INVALID, "dparameters are given, but the plan was made");
            kept = d.dtensors[2];
            d.dtensors[2] = d.tensors[0];
            check_fails(rcv_run_backward(run, &d.backward), RCV_INVALID,
                        "dparameters.bias_ih_l0 overlaps parameters.weight_ih_l0;");
            d.dtensors[2] = d.dtensors[3];
            check_fails(rcv_run_backward(run, &d.backward), RCV_INVALID,
                        "dparameters.bias_ih_l0 overlaps dparameters.bias_hh_l0;");
            d.dtensors[2] = kept;
            check_ok(rcv_run_backward(run, &d.backward)); /* what is refused changes nothing */
        } else {
            void *const one[] = {d.x};
            forward.tensors = (const void *const *)one;
            check_fails(rcv_run_forward(run, &forward), RCV_INVALID,
                        "tensors are given, but the plan was made without");
            check_ok(rcv_run_forward(run, &d.forward));
            backward.dtensors = one;
            check_fails(rcv_run_backward(run, &backward), RCV_INVALID, "dtensors are given, but the plan was made");
            check_ok(rcv_run_backward(run, &d.backward));
        }
        close_data(&d, true, NULL);
        rcv_run_free(run);
        rcv_plan_free(plan);
    }
    p.separate = true;
    rcv_plan *plan = NULL;
    rcv_plan_options options = options_of(&p, RCV_FLOAT32, true, NULL);
    options.signals = true;
    check_fails(rcv_plan_new(p.net, &options, &plan), RCV_INVALID, "signals are for gradients in one flat array");
    close_problem(&p);
}

/* Parameters are inputs: two of them may be one tensor. */
static void test_tied_tensors(void **state) {
    (void)state;
    static const config tied = {"lstm", {.input = 8, .hidden = 8, .layers = 2}, 4, 2, 0, 0, false};
    problem p;
    open_problem(&p, &tied, 1);
    memcpy(p.parameters + rcv_net_parameter(p.net, 4)->offset, p.parameters,
           (size_t)rcv_net_parameter(p.net, 0)->count * sizeof *p.parameters);
    for (int s = 0; s < SCHEDULES - 1; s++) {
        results r[2] = {{.count = 0}, {.count = 0}};
        for (int same = 0; same < 2; same++) {
            data d;
            rcv_plan *plan = NULL;
            rcv_run *run = NULL;
            p.separate = true;
            rcv_plan_options options = options_of(&p, RCV_FLOAT64, true, schedules[s]);
            check_ok(rcv_plan_new(p.net, &options, &plan));
            check_ok(rcv_run_new(plan, &run));
            open_data(&d, &p, RCV_FLOAT64);
            if (same) d.tensors[4] = d.tensors[0];
            check_ok(rcv_run_forward(run, &d.forward));
            check_ok(rcv_run_backward(run, &d.backward));
            rcv_run_free(run);
            rcv_plan_free(plan);
            close_data(&d, true, &r[same]);
        }
        check_same_bits(schedules[s], &r[0], &r[1]);
        drop(&r[0]);
        drop(&r[1]);
    }
    close_problem(&p);
}

/* ---- memory ---- */

static void test_no_memory(void **state) {
    (void)state;
    static const config small = {"lstm", {.input = 2, .hidden = 3, .layers = 1}, 3, 2, 0, 0, false};
    static const char *const pinned[] = {"combine(steps=all)+fuse+pack", "vendor", NULL};
    for (int i = 0; i < 3; i++) {
        problem p;
        rcv_plan *plan = NULL;
        rcv_run *run = NULL;
        open_problem(&p, &small, 1);
        p.separate = true;
        rcv_plan_options options = options_of(&p, RCV_FLOAT32, true, pinned[i]);
        options.effort = RCV_ESTIMATE;
        size_t live = p.allocator.live;
        memory_faults_begin(&p.allocator);
        rcv_status status = rcv_plan_new(p.net, &options, &plan);
        if (!status) status = rcv_run_new(plan, &run);
        memory_faults_stop(&p.allocator);
        bool absent = status == RCV_UNSUPPORTED && !p.allocator.failed; /* a build without oneDNN */
        assert_int_equal(status, absent ? RCV_UNSUPPORTED : p.allocator.failed ? RCV_NO_MEMORY : RCV_OK);
        rcv_run_free(run);
        rcv_plan_free(plan);
        if (i < 2) assert_int_equal(p.allocator.live, live); /* a search may have added to the context's wisdom */
        assert_true(memory_faults_end(&p.allocator) > (absent ? 0 : sample_least(10)));
        close_problem(&p);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_builtin_cells),   cmocka_unit_test(test_random_cells), cmocka_unit_test(test_measured),
        cmocka_unit_test(test_variants),        cmocka_unit_test(test_dead_steps),   cmocka_unit_test(test_empty_batch),
        cmocka_unit_test(test_refusals),        cmocka_unit_test(test_tied_tensors), cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_earlier_forward),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
