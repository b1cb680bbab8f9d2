/* Types and order of the caller's arrays: with data, states and parameters that every type has, results are those of the plan without
 * declared types, rounded once to the type of the array that they are written to, bit for bit; so in the batch-major order. */
#include "memory_faults.h"
#include "plan/plan.h"
#include "planned.h"
#include "sample.h"

#include <math.h>

static const config configs[] = {
    {"lstm", {.input = 5, .hidden = 8, .layers = 2}, 6, 3, false, false, true},
    {"gru", {.input = 7, .hidden = 6, .layers = 1, .bidirectional = true}, 5, 4, true, true, true},
    {"lstm_proj", {.input = 4, .hidden = 9, .layers = 2, .reverse = true}, 7, 2, false, true, true},
    {"sru", {.input = 8, .hidden = 8, .layers = 2, .dropout = 0.3}, 6, 5, true, false, true},
    {"qrnn_fo_w2", {.input = 6, .hidden = 7, .layers = 2}, 8, 3, false, false, false},
};
enum { CONFIGS = sizeof configs / sizeof *configs, TYPES = RCV_AS_BFLOAT16 + 1 };

static const char *const plans[] = {"naive",
                                    "naive+threads(2)",
                                    "kernels",
                                    "combine(steps=3)+fuse",
                                    "combine+fuse+pack",
                                    "combine(steps=all)+fuse+pack",
                                    "combine(steps=all)+fuse+pack+threads(2)",
                                    "combine(steps=2)+fuse+pack+threads(2,split=rows)",
                                    "combine(steps=2)+fuse+transpose+threads(2)",
                                    "combine(steps=2)+fuse+pack+wavefront+threads(2)",
                                    "combine(steps=all,forward=1)+fuse+pack+wavefront(forward)",
                                    "combine(steps=2)+fuse+pack+recompute(every=2)",
                                    "combine(steps=3)+fuse+pack+scan",
                                    "combine(steps=all)+fuse+pack+blas"};
enum { PLANS = sizeof plans / sizeof *plans };

/* Numbers of few bits, which every type has. */
static void simplify(double *values, int64_t count) {
    for (int64_t i = 0; i < count; i++) values[i] = rint(values[i] * 64) / 64;
}

static void open_simple(problem *p, const config *c) {
    open_problem(p, c, 2);
    p->restart = c->resets;
    simplify(p->parameters, p->parameter_count);
    simplify(p->x, p->x_count);
    simplify(p->dy, p->y_count);
    for (size_t s = 0; s < p->states; s++) {
        simplify(p->initial[s], p->state_counts[s]);
        simplify(p->dfinal[s], p->state_counts[s]);
        simplify(p->again[s], p->state_counts[s]);
    }
}

static rcv_dtype type_of(rcv_array_type declared, rcv_dtype dtype) {
    if (declared) return (rcv_dtype)(declared - 1);
    return dtype == RCV_FLOAT64 ? RCV_FLOAT64 : RCV_FLOAT32;
}

static void round_results(const problem *p, rcv_dtype dtype, results *r) {
    for (int i = 0; i < r->count; i++) {
        bool data = !strcmp(r->names[i], "y") || !strcmp(r->names[i], "dx");
        bool gradients = !strcmp(r->names[i], "dparameters");
        rcv_dtype type = type_of(gradients ? p->gradient_type : data ? p->data_type : p->state_type, dtype);
        for (int64_t k = 0; k < r->counts[i]; k++) r->values[i][k] = round_to(type, r->values[i][k]);
    }
}

/* Whether the plan applies; then runs it with these types and compares. `base`: its results without declared types. */
static void check_types(problem *p, rcv_dtype dtype, bool training, const char *plan, const results *base) {
    results got, want = {.count = base->count};
    for (int i = 0; i < base->count; i++) {
        want.names[i] = base->names[i];
        want.counts[i] = base->counts[i];
        want.values[i] = malloc((size_t)base->counts[i] * sizeof(double) + 1);
        assert_non_null(want.values[i]);
        memcpy(want.values[i], base->values[i], (size_t)base->counts[i] * sizeof(double));
    }
    round_results(p, dtype, &want);
    run_pinned(p, dtype, training, plan, &got);
    char sentence[512];
    if (!has_same_bits(plan, &got, &want, sentence, sizeof sentence))
        fail_msg("%s, %s, data %d, states %d, parameters %d, gradients %d, %s, %s, %s: %s", p->c.cell,
                 rcv_dtype_name(dtype), (int)p->data_type, (int)p->state_type, (int)p->parameter_type,
                 (int)p->gradient_type, p->separate ? "separate" : "flat",
                 p->batch_major ? "batch-major" : "time-major", training ? "training" : "inference", sentence);
    drop(&got);
    drop(&want);
}

static bool applies(const problem *p, rcv_dtype dtype, bool training, const char *plan) {
    rcv_plan_options options = options_of(p, dtype, training, plan);
    rcv_plan *made = NULL;
    rcv_status status = rcv_plan_new(p->net, &options, &made);
    rcv_plan_free(made);
    assert_true(status == RCV_OK || status == RCV_UNSUPPORTED);
    return status == RCV_OK;
}

/* Of problem i = ((configuration * PLANS + plan) * 3 + type) * 2 + training: the sum of these four, so that the arrays' types, of which each problem
 * takes a part, meet every value of every one of them. */
static size_t turn_of(size_t i) { return i / 6 / PLANS + i / 6 % PLANS + i / 2 % 3 + i % 2; }

static void test_types(void **state) {
    (void)state;
    static const rcv_dtype dtypes[] = {RCV_FLOAT64, RCV_FLOAT32, RCV_BFLOAT16};
    size_t checked = 0;
    for (size_t i = 0; i < CONFIGS * PLANS * 3 * 2; i++) {
        problem p;
        results base;
        bool training = i % 2;
        rcv_dtype dtype = dtypes[i / 2 % 3];
        const char *plan = plans[i / 6 % PLANS];
        if (!sample_takes(i)) continue;
        open_simple(&p, &configs[i / (6 * PLANS)]);
        if (i % 3 == 0) { /* calls with fewer steps and sequences than the plan's */
            p.most_steps = p.c.steps + 3;
            p.most_batch = p.c.batch + 2;
        }
        if (applies(&p, dtype, training, plan)) {
            run_pinned(&p, dtype, training, plan, &base);
            for (size_t k = 0; k < 2 * TYPES; k++) {
                if (!sample_pairs(3, turn_of(i), k)) continue;
                p.data_type = (rcv_array_type)(k % TYPES);
                p.state_type = (rcv_array_type)((k + i / 2) % TYPES);
                p.batch_major = k >= TYPES;
                check_types(&p, dtype, training, plan, &base);
                checked++;
            }
            drop(&base);
        }
        close_problem(&p);
    }
    print_message("%zu combinations of types\n", checked);
    assert_true(checked > sample_least(900));
}

/* ---- parameters and their gradients ---- */

static const rcv_size heads[] = {{"heads", 2}}; /* matrices of blocks */
static const config learned[] = {
    {"lstm", {.input = 5, .hidden = 8, .layers = 2}, 6, 3, false, false, true},
    {"gru", {.input = 7, .hidden = 20, .layers = 1, .bidirectional = true}, 5, 4, true, true, true},
    {"lstm_layernorm", {.input = 4, .hidden = 6, .layers = 2, .reverse = true}, 5, 3, true, false, true},
    {RCV_SOURCE_DIR "/tests/support/cells/constants.cell",
     {.input = 5, .hidden = 4, .layers = 2},
     7,
     4,
     true,
     true,
     true},
    {"lstm", {.input = 6, .hidden = 9, .layers = 1, .rank = 2}, 4, 3, false, false, false},
    {"rnn_tanh",
     {.input = 3, .hidden = 150, .layers = 2, .no_bias = true},
     3,
     2,
     false,
     false,
     false}, /* some panels */
    {"lstm_proj", {.input = 4, .hidden = 9, .layers = 2}, 5, 2, false, true, true},
    {"sru", {.input = 8, .hidden = 8, .layers = 2}, 6, 5, true, false, true},
    {"slstm", {.input = 4, .hidden = 8, .layers = 2, .sizes = heads, .size_count = 1}, 5, 2, false, false, true},
};
enum { LEARNED = sizeof learned / sizeof *learned };

static void test_parameters(void **state) {
    (void)state;
    static const rcv_dtype dtypes[] = {RCV_FLOAT64, RCV_FLOAT32, RCV_BFLOAT16};
    size_t checked = 0, index = 0;
    for (size_t i = 0; i < LEARNED * PLANS * 3 * 2; i++) {
        problem p;
        results base;
        bool training = i % 2;
        rcv_dtype dtype = dtypes[i / 2 % 3];
        const char *plan = plans[i / 6 % PLANS];
        if (!sample_pairs(2, turn_of(i), 0) || !sample_takes(index++)) continue;
        open_simple(&p, &learned[i / (6 * PLANS)]);
        p.device_lengths = p.c.lengths && i / 2 % 2; /* which are the same, where they are in range */
        if (i % 4 == 1) {                            /* calls with fewer steps and sequences than the plan's */
            p.most_steps = p.c.steps + 3;
            p.most_batch = p.c.batch + 2;
        }
        if (applies(&p, dtype, training, plan)) {
            run_pinned(&p, dtype, training, plan, &base);
            for (size_t k = 0; k < TYPES; k++) {
                if (!sample_pairs(3, turn_of(i), k)) continue;
                p.parameter_type = (rcv_array_type)k;
                p.gradient_type = (rcv_array_type)((2 * k + i / 2) % TYPES);
                p.separate = (k + i / 2) % 2;
                p.data_type = (rcv_array_type)(k == 3 ? (i / 2) % TYPES : 0);
                check_types(&p, dtype, training, plan, &base);
                checked++;
            }
            drop(&base);
        }
        close_problem(&p);
    }
    print_message("%zu combinations of types\n", checked);
    assert_true(checked > sample_least(400));
}

/* ---- sums of gradients ---- */

enum { CALLS = 5 };
typedef struct {
    bool accumulate, same_parameters, again; /* again: only the backward call, once more */
    int64_t fewer;                           /* steps, and sequences, than the problem has */
} sum_call;
static const sum_call calls[CALLS] = {{false, false, false, 0},
                                      {true, true, false, 1},
                                      {true, true, true, 0},
                                      {true, false, false, 0},
                                      {true, true, false, 2}};

static double at_of(const void *values, rcv_dtype dtype, int64_t i) {
    if (dtype == RCV_FLOAT64) return ((const double *)values)[i];
    return (double)((const float *)values)[i];
}

/* The sums that single calls of the plan without declared types give: [CALLS][parameters]; without `sums`, what calls that add give in r. */
static void run_sums(problem *p, rcv_dtype dtype, const char *plan_string, double **sums, results *r) {
    rcv_plan *plan = NULL;
    rcv_run *run = NULL;
    data d;
    rcv_plan_options options = options_of(p, dtype, true, plan_string);
    check_ok(rcv_plan_new(p->net, &options, &plan));
    check_ok(rcv_run_new(plan, &run));
    open_data(&d, p, dtype);
    for (int c = 0; c < CALLS; c++) {
        d.forward.same_parameters = calls[c].same_parameters;
        d.backward.accumulate = !sums && calls[c].accumulate;
        if (calls[c].again)
            check_ok(rcv_run_backward(run, &d.backward));
        else
            check_ok(call_at(&d, run, true, p->c.steps - calls[c].fewer, p->c.batch - calls[c].fewer));
        for (int64_t i = 0; sums && i < p->parameter_count; i++) sums[c][i] = at_of(d.dparameters, d.gradient_dtype, i);
    }
    rcv_run_free(run);
    rcv_plan_free(plan);
    close_data(&d, true, r);
}

/* What is there, and the sum, in the wider of the two types; then rounded to that of the array. */
static double add_rounded(rcv_dtype dtype, rcv_dtype type, double there, double sum) {
    bool wide = dtype == RCV_FLOAT64 || type == RCV_FLOAT64;
    return round_to(type, wide ? there + sum : (double)((float)there + (float)sum));
}

static void test_sums(void **state) {
    (void)state;
    static const rcv_dtype dtypes[] = {RCV_FLOAT64, RCV_FLOAT32, RCV_BFLOAT16};
    size_t checked = 0, index = 0;
    for (size_t i = 0; i < LEARNED * PLANS * 3; i++) {
        problem p;
        rcv_dtype dtype = dtypes[i % 3];
        const char *plan = plans[i / 3 % PLANS];
        if (!sample_pairs(3, turn_of(2 * i), 0) || !sample_takes(index++)) continue;
        open_simple(&p, &learned[i / (3 * PLANS)]);
        rcv_dtype plain = type_of(RCV_AS_PLAN, dtype);
        double *sums[CALLS];
        for (int c = 0; c < CALLS; c++) {
            sums[c] = malloc((size_t)p.parameter_count * sizeof(double));
            assert_non_null(sums[c]);
        }
        if (applies(&p, dtype, true, plan)) {
            run_sums(&p, dtype, plan, sums, NULL);
            for (int k = 1; k < TYPES; k++) {
                results got = {.count = 0};
                p.gradient_type = (rcv_array_type)k;
                p.parameter_type = (rcv_array_type)((i + 2 * (size_t)k) % TYPES);
                p.separate = (i + (size_t)k / 2) % 2;
                rcv_dtype type = type_of(p.gradient_type, dtype);
                if (type == plain) continue; /* steps add one by one, as they always did */
                if (!sample_pairs(2, turn_of(2 * i), (size_t)k)) continue;
                run_sums(&p, dtype, plan, NULL, &got);
                const double *values = got.values[got.count - 1];
                for (int64_t n = 0; n < p.parameter_count; n++) {
                    double want = round_to(type, sums[0][n]);
                    for (int c = 1; c < CALLS; c++) want = add_rounded(dtype, type, want, sums[c][n]);
                    if (values[n] != want)
                        fail_msg("%s, %s in %s, gradients %d, element %lld: %.17g, not %.17g", p.c.cell, plan,
                                 rcv_dtype_name(dtype), k, (long long)n, values[n], want);
                }
                drop(&got);
                checked++;
            }
        }
        for (int c = 0; c < CALLS; c++) free(sums[c]);
        p.gradient_type = p.parameter_type = RCV_AS_PLAN;
        close_problem(&p);
    }
    print_message("%zu sums of combinations of types\n", checked);
    assert_true(checked > sample_least(130));
}

/* Gradients that are not wanted are not written, nor computed; those of an empty batch are zeros of their type. */
static void test_left_out(void **state) {
    (void)state;
    for (int i = 0; i < 2 * TYPES; i++) {
        problem p;
        data d;
        rcv_plan *plan = NULL;
        rcv_run *run = NULL;
        results r = {.count = 0};
        bool empty = i >= TYPES;
        open_simple(&p, &learned[0]);
        p.separate = i % 2;
        p.gradient_type = (rcv_array_type)(i % TYPES);
        p.parameter_type = (rcv_array_type)(i * 2 % TYPES);
        rcv_plan_options options = options_of(&p, RCV_FLOAT32, true, plans[i % PLANS]);
        check_ok(rcv_plan_new(p.net, &options, &plan));
        check_ok(rcv_run_new(plan, &run));
        open_data(&d, &p, RCV_FLOAT32);
        if (empty) d.forward.batch = RCV_EMPTY;
        if (p.separate) d.dtensors[3] = NULL;
        check_ok(rcv_run_forward(run, &d.forward));
        if (!p.separate) d.backward.dparameters = NULL;
        check_ok(rcv_run_backward(run, &d.backward));
        d.backward.dparameters = d.dparameters;
        if (!p.separate && empty) check_ok(rcv_run_backward(run, &d.backward));
        close_data(&d, true, &r);
        const rcv_parameter *absent = rcv_net_parameter(p.net, 3);
        for (int64_t k = 0; k < p.parameter_count; k++) {
            bool is_absent = p.separate ? k >= absent->offset && k < absent->offset + absent->count : !empty;
            double value = r.values[r.count - 1][k];
            assert_true(is_absent ? isnan(value) : empty ? value == 0 : isfinite(value));
        }
        drop(&r);
        rcv_run_free(run);
        rcv_plan_free(plan);
        close_problem(&p);
    }
}

/* Zeros in the place of the parameters are not seen by a call that is told that parameters are the same. */
static void check_conversion(const problem *p, rcv_dtype dtype, const char *schedule) {
    rcv_plan *plan = NULL;
    rcv_run *run = NULL;
    data d;
    rcv_plan_options options = options_of(p, dtype, false, schedule);
    check_ok(rcv_plan_new(p->net, &options, &plan));
    check_ok(rcv_run_new(plan, &run));
    open_data(&d, p, dtype);
    check_ok(rcv_run_forward(run, &d.forward));
    size_t bytes = (size_t)p->y_count * sizeof(float);
    size_t all = (size_t)p->parameter_count * rcv_dtype_bytes(d.parameter_dtype);
    float *first = malloc(bytes);
    void *kept = malloc(all);
    assert_true(first && kept);
    memcpy(first, d.y, bytes);
    memcpy(kept, d.parameters, all);
    memset(d.parameters, 0, all);
    d.forward.same_parameters = true; /* a lie: what was converted or packed is used again */
    check_ok(rcv_run_forward(run, &d.forward));
    assert_memory_equal(first, d.y, bytes);
    d.forward.same_parameters = false;
    check_ok(rcv_run_forward(run, &d.forward));
    assert_true(memcmp(first, d.y, bytes) != 0);
    memcpy(d.parameters, kept, all);
    check_ok(rcv_run_forward(run, &d.forward));
    assert_memory_equal(first, d.y, bytes);
    free(first);
    free(kept);
    rcv_run_free(run);
    rcv_plan_free(plan);
    close_data(&d, false, NULL);
}

/* Parameters of another type are converted when they have changed, and only then; those of the plan's 16-bit type have no copy. */
static void test_conversion(void **state) {
    (void)state;
    problem p;
    open_simple(&p, &learned[0]);
    for (int k = 0; k < TYPES; k++) {
        rcv_plan *plan = NULL;
        p.parameter_type = (rcv_array_type)k;
        rcv_plan_options options = options_of(&p, RCV_BFLOAT16, false, "combine+fuse+pack");
        check_ok(rcv_plan_new(p.net, &options, &plan));
        size_t copies = 0;
        for (size_t b = 0; b < plan->program.buffer_count; b++)
            copies += plan->program.buffers[b].replaces == RCVI_PARAMETERS;
        bool plain = k == RCV_AS_PLAN || k == RCV_AS_FLOAT32;
        assert_int_equal(copies > 0, !plain && k != RCV_AS_BFLOAT16);
        rcv_plan_free(plan);
        check_conversion(&p, RCV_BFLOAT16, "combine+fuse+pack");
        if (!plain) check_conversion(&p, RCV_FLOAT32, "combine+fuse"); /* products read what is converted */
    }
    close_problem(&p);
}

/* With reserves of the caller's: backward calls of earlier forward calls, with other parameters than the last call's. */
static void test_reserves(void **state) {
    (void)state;
    problem p;
    open_simple(&p, &learned[0]);
    for (int i = 0; i < 3 * TYPES; i++) {
        static const rcv_dtype dtypes[] = {RCV_FLOAT64, RCV_FLOAT32, RCV_BFLOAT16};
        rcv_dtype dtype = dtypes[i % 3];
        results want[2] = {{.count = 0}, {.count = 0}}, got[2] = {{.count = 0}, {.count = 0}};
        double *values = p.parameters, *halves = malloc((size_t)p.parameter_count * sizeof *halves);
        assert_non_null(halves);
        for (int64_t k = 0; k < p.parameter_count; k++) halves[k] = values[k] / 2;
        p.parameter_type = (rcv_array_type)(i / 3);
        p.gradient_type = (rcv_array_type)((i / 3 + i) % TYPES);
        rcv_plan *plan = NULL;
        rcv_run *run = NULL;
        rcv_plan_options options = options_of(&p, dtype, true, "combine(steps=2)+fuse+pack");
        options.reserve = true;
        for (int c = 0; c < 2; c++) {
            p.parameters = c ? halves : values;
            run_pinned(&p, dtype, true, "combine(steps=2)+fuse+pack", &want[c]);
        }
        check_ok(rcv_plan_new(p.net, &options, &plan));
        check_ok(rcv_run_new(plan, &run));
        data d[2];
        problem own[2] = {p, p};
        void *reserves[2];
        for (int c = 0; c < 2; c++) {
            own[c].parameters = c ? halves : values;
            open_data(&d[c], &own[c], dtype);
            reserves[c] = aligned_alloc(256, (rcv_plan_reserve_bytes(plan) + 255) / 256 * 256);
            assert_non_null(reserves[c]);
            d[c].forward.reserve = reserves[c];
            check_ok(rcv_run_forward(run, &d[c].forward));
        }
        for (int c = 0; c < 2; c++) {
            d[c].backward.forward = &d[c].forward;
            check_ok(rcv_run_backward(run, &d[c].backward));
        }
        for (int c = 0; c < 2; c++) {
            close_data(&d[c], true, &got[c]);
            check_same_bits("with reserves", &got[c], &want[c]);
            drop(&got[c]);
            drop(&want[c]);
            free(reserves[c]);
        }
        rcv_run_free(run);
        rcv_plan_free(plan);
        p.parameters = values;
        free(halves);
    }
    p.parameter_type = p.gradient_type = RCV_AS_PLAN;
    close_problem(&p);
}

/* Results in types that round data are near the oracle's, for data of all bits, for a plan that the planner times, too. */
static void test_rounded_data(void **state) {
    (void)state;
    for (int k = 0; k < 2 * TYPES; k++) {
        problem p;
        results want, got;
        double worst = 0;
        rcv_plan *plan = NULL;
        open_problem(&p, &configs[k % CONFIGS], 2);
        run_oracle(&p, true, &want);
        p.data_type = (rcv_array_type)(k % TYPES);
        p.state_type = (rcv_array_type)(k * 2 % TYPES);
        p.batch_major = k >= TYPES;
        p.separate = k % 3 == 0;
        p.parameter_type = (rcv_array_type)((k * 3 + 1) % TYPES);
        p.gradient_type = (rcv_array_type)((k + 3) % TYPES);
        rcv_plan_options options = options_of(&p, k % 2 ? RCV_FLOAT32 : RCV_BFLOAT16, true, NULL);
        check_ok(rcv_plan_new(p.net, &options, &plan));
        run_plan(&p, plan, options.dtype, true, &got);
        compare(&p, options.dtype, rcv_plan_string(plan), &got, &want, &worst);
        drop(&got);
        drop(&want);
        rcv_plan_free(plan);
        close_problem(&p);
    }
}

static void test_no_memory(void **state) {
    (void)state;
    static const config small = {"lstm", {.input = 2, .hidden = 3, .layers = 1}, 3, 2, true, false, false};
    for (int i = 0; i < 2; i++) {
        problem p;
        rcv_plan *plan = NULL;
        rcv_run *run = NULL;
        open_problem(&p, &small, 1);
        p.separate = i;
        p.parameter_type = RCV_AS_FLOAT16;
        p.gradient_type = RCV_AS_FLOAT64;
        p.device_lengths = true;
        rcv_plan_options options = options_of(&p, RCV_FLOAT32, true, "combine(steps=all)+fuse+pack");
        size_t live = p.allocator.live;
        memory_faults_begin(&p.allocator);
        rcv_status status = rcv_plan_new(p.net, &options, &plan);
        if (!status) status = rcv_run_new(plan, &run);
        memory_faults_stop(&p.allocator);
        assert_int_equal(status, p.allocator.failed ? RCV_NO_MEMORY : RCV_OK);
        rcv_run_free(run);
        rcv_plan_free(plan);
        assert_int_equal(p.allocator.live, live);
        assert_true(memory_faults_end(&p.allocator) > sample_least(10));
        close_problem(&p);
    }
}

/* Arrays are as long as their types say: one may begin where another ends, and not before. */
static void test_overlap(void **state) {
    (void)state;
    problem p;
    rcv_plan *plan = NULL;
    rcv_run *run = NULL;
    open_problem(&p, &configs[0], 1);
    rcv_plan_options options =
        RCV_INIT(rcv_plan_options, .steps = p.c.steps, .batch = p.c.batch, .schedule = "combine+fuse+pack",
                 .data = RCV_AS_FLOAT16, .states = RCV_AS_BFLOAT16, .parameters = RCV_AS_FLOAT16,
                 .gradients = RCV_AS_FLOAT64, .training = true);
    check_ok(rcv_plan_new(p.net, &options, &plan));
    check_ok(rcv_run_new(plan, &run));
    size_t count = (size_t)p.parameter_count, x = (size_t)p.x_count, y = (size_t)p.y_count,
           h = (size_t)p.state_counts[0];
    uint16_t *block = calloc(x + y + h, sizeof *block);
    uint16_t *parameters = calloc(count + y, sizeof *parameters);
    double *gradients = calloc(count + x, sizeof *gradients); /* and dx behind them */
    assert_true(block && parameters && gradients);
    void *final[2] = {block + x + y, NULL};
    rcv_forward data = RCV_INIT(rcv_forward, .parameters = parameters, .x = block, .y = block + x, .final = final);
    check_ok(rcv_run_forward(run, &data));
    data.y = block + x - 1;
    check_fails(rcv_run_forward(run, &data), RCV_INVALID, "overlap");
    data.y = block + x;
    final[0] = block + x + y - 1;
    check_fails(rcv_run_forward(run, &data), RCV_INVALID, "overlap");
    data.final = NULL;
    data.y = parameters + count - 1;
    check_fails(rcv_run_forward(run, &data), RCV_INVALID, "y overlaps parameters");
    data.y = parameters + count;
    check_ok(rcv_run_forward(run, &data));
    rcv_backward backward = RCV_INIT(rcv_backward, .dparameters = gradients, .dx = gradients + count);
    check_ok(rcv_run_backward(run, &backward));
    backward.dx = (uint16_t *)(void *)(gradients + count) - 1;
    check_fails(rcv_run_backward(run, &backward), RCV_INVALID, "dparameters overlaps dx");
    free(block);
    free(gradients);
    free(parameters);
    rcv_run_free(run);
    rcv_plan_free(plan);
    options.data = (rcv_array_type)(TYPES);
    check_fails(rcv_plan_new(p.net, &options, &plan), RCV_INVALID, "data 5 is no type of arrays");
    options.data = RCV_AS_PLAN;
    options.states = (rcv_array_type)(-1);
    check_fails(rcv_plan_new(p.net, &options, &plan), RCV_INVALID, "states -1 is no type of arrays");
    options.states = RCV_AS_PLAN;
    options.parameters = (rcv_array_type)(TYPES);
    check_fails(rcv_plan_new(p.net, &options, &plan), RCV_INVALID, "parameters 5 is no type of arrays");
    options.parameters = RCV_AS_PLAN;
    options.gradients = (rcv_array_type)(-2);
    check_fails(rcv_plan_new(p.net, &options, &plan), RCV_INVALID, "gradients -2 is no type of arrays");
    options.gradients = RCV_AS_BFLOAT16;
    options.training = options.signals = true;
    check_fails(rcv_plan_new(p.net, &options, &plan), RCV_INVALID, "signals are for gradients in the plan's own type");
    options.gradients = RCV_AS_FLOAT32;
    check_ok(rcv_plan_new(p.net, &options, &plan));
    rcv_plan_free(plan);
    close_problem(&p);
}

/* oneDNN, where it is there, takes data as it always was. */
static void test_vendor(void **state) {
    (void)state;
    problem p;
    rcv_plan *plan = NULL;
    open_problem(&p, &configs[0], 1);
    rcv_plan_options options = RCV_INIT(rcv_plan_options, .steps = 4, .batch = 2, .schedule = "vendor");
    if (!rcv_plan_new(p.net, &options, &plan)) {
        rcv_plan_free(plan);
        options.batch_major = true;
        check_fails(rcv_plan_new(p.net, &options, &plan), RCV_UNSUPPORTED, "time-major data only");
        options.batch_major = false;
        options.states = RCV_AS_FLOAT16;
        check_fails(rcv_plan_new(p.net, &options, &plan), RCV_UNSUPPORTED, "in float32 only");
        options.states = RCV_AS_PLAN;
        options.parameters = RCV_AS_BFLOAT16;
        check_fails(rcv_plan_new(p.net, &options, &plan), RCV_UNSUPPORTED, "parameters and gradients in float32 only");
        options.parameters = RCV_AS_PLAN;
        options.gradients = RCV_AS_FLOAT16;
        check_fails(rcv_plan_new(p.net, &options, &plan), RCV_UNSUPPORTED, "parameters and gradients in float32 only");
    }
    close_problem(&p);
}

/* A choice that was measured for one kind of arrays, or one direction, is not used for another. */
static void test_wisdom(void **state) {
    (void)state;
    problem p;
    rcv_net *reverse = NULL;
    open_problem(&p, &(config){"lstm", {.input = 2, .hidden = 3, .layers = 1}, 3, 2, false, false, true}, 1);
    check_ok(rcv_net_new(p.cell, &RCV_INIT(rcv_net_options, .input = 2, .hidden = 3, .reverse = true), &reverse));
    for (size_t i = 0; i < 11; i++) {
        rcv_plan *plan = NULL;
        rcv_plan_options options = RCV_INIT(rcv_plan_options, .steps = 3, .batch = 2);
        if (i == 1 || i == 2) options.data = i == 1 ? RCV_AS_BFLOAT16 : RCV_AS_FLOAT16;
        if (i == 3) options.states = RCV_AS_BFLOAT16;
        options.batch_major = i == 4;
        options.lengths = i >= 9;
        options.device_lengths = i == 10;
        if (i == 6 || i == 8) options.parameters = RCV_AS_BFLOAT16;
        if (i == 7 || i == 8) options.gradients = RCV_AS_BFLOAT16;
        for (int again = 0; again < 2; again++) {
            check_ok(rcv_plan_new(i == 5 ? reverse : p.net, &options, &plan));
            assert_int_equal(rcv_plan_from_wisdom(plan), again);
            rcv_plan_free(plan);
        }
        assert_int_equal(rcv_wisdom_count(p.context), i + 1);
    }
    rcv_net_free(reverse);
    close_problem(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),    cmocka_unit_test(test_rounded_data), cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_sums),     cmocka_unit_test(test_left_out),     cmocka_unit_test(test_conversion),
        cmocka_unit_test(test_reserves), cmocka_unit_test(test_no_memory),    cmocka_unit_test(test_overlap),
        cmocka_unit_test(test_vendor),   cmocka_unit_test(test_wisdom)};
    return cmocka_run_group_tests_name("types", tests, NULL, NULL);
}
