/* What ranks divide: a batch whose parts have the masks of the whole batch, a network in slices, and signals when gradients of a layer are complete. */
#include "probe.h"
#include "recurve_distributed.h"

#include "base/random.h"
#include "net/net.h"
#include "plan/plan.h"
#include "plan/run.h"

enum { STEPS = 6, BATCH = 4, INPUT = 5, HIDDEN = 8, MOST = 4096 };

typedef struct {
    test_allocator allocator;
    rcv_context *context;
    rcv_cell *cell;
    rcv_net *net;
    double parameters[MOST], x[MOST];
} world;

static void open_world(world *w, const char *cell, rcv_net_options options) {
    options.size = sizeof options; /* tables leave it out */
    random_source source = {7};
    w->context = test_context(&w->allocator);
    w->cell = NULL;
    w->net = NULL;
    options.input = INPUT;
    options.hidden = HIDDEN;
    check_ok(rcv_cell_open(w->context, cell, &w->cell));
    check_ok(rcv_net_new(w->cell, &options, &w->net));
    assert_true(rcv_net_parameter_elements(w->net) <= MOST);
    check_ok(rcv_net_initialize(w->net, 3, RCV_FLOAT64, w->parameters));
    for (int i = 0; i < STEPS * BATCH * INPUT; i++) w->x[i] = random_between(&source, -1, 1);
}

static void close_world(world *w) {
    rcv_net_free(w->net);
    rcv_cell_free(w->cell);
    test_context_end(&w->allocator, w->context);
}

static void open_run(const rcv_net *net, int64_t steps, int64_t batch, const char *schedule, rcv_plan **plan,
                     rcv_run **run) {
    const rcv_plan_options o = RCV_INIT(rcv_plan_options, .steps = steps, .batch = batch, .dtype = RCV_FLOAT64,
                                        .training = true, .schedule = schedule);
    check_ok(rcv_plan_new(net, &o, plan));
    check_ok(rcv_run_new(*plan, run));
}

/* One part of the batch: its rows of x in, its rows of y out; states go on where it begins later. */
static void run_part(const world *w, const char *schedule, const rcvi_shard *shard, int64_t steps, int64_t batch,
                     double state[2][MOST], double *y) {
    rcv_plan *plan = NULL;
    rcv_run *run = NULL;
    static double x[MOST], out[MOST], last[2][MOST];
    int64_t total = shard->total ? shard->total : batch, width = rcv_net_output(w->net);
    open_run(w->net, steps, batch, schedule, &plan, &run);
    rcvi_run_set_shard(run, shard);
    for (int64_t r = 0; r < steps * batch; r++) {
        int64_t row = (shard->time + r / batch) * total + shard->first + r % batch;
        memcpy(x + r * INPUT, w->x + row * INPUT, INPUT * sizeof *x);
    }
    const void *initial[] = {state[0], state[1]};
    void *final[] = {last[0], last[1]};
    const rcv_forward data = RCV_INIT(rcv_forward, .parameters = w->parameters, .x = x,
                                      .initial = shard->time ? initial : NULL, .y = out, .final = final, .seed = 11);
    check_ok(rcv_run_forward(run, &data));
    memcpy(state, last, sizeof last);
    for (int64_t r = 0; r < steps * batch; r++) {
        int64_t row = (shard->time + r / batch) * total + shard->first + r % batch;
        memcpy(y + row * width, out + r * width, (size_t)width * sizeof *y);
    }
    rcv_run_free(run);
    rcv_plan_free(plan);
}

static const rcv_net_options kinds[] = {
    {.layers = 2, .dropout = 0.4},
    {.layers = 2, .dropout = 0.4, .variational = true},
    {.layers = 2, .zoneout = 0.3},
    {.layers = 3, .dropout = 0.3, .zoneout = 0.2},
};
static const char *const schedules[] = {"naive", "combine(steps=2)+fuse+pack", "combine(steps=all)+fuse+transpose",
                                        "fuse+pack+threads(2)"};

/* Rows, then steps, then both: the bits of y are those of the whole batch, and other masks would show. */
static void test_shards(void **state) {
    (void)state;
    static world w;
    static double whole[MOST], parts[MOST], states[2][MOST];
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        open_world(&w, "lstm", kinds[k]);
        size_t bytes = STEPS * BATCH * HIDDEN * sizeof *whole;
        for (size_t s = 0; s < sizeof schedules / sizeof *schedules; s++) {
            run_part(&w, schedules[s], &(rcvi_shard){0}, STEPS, BATCH, states, whole);
            for (int cut = 1; cut < 4; cut++) {
                int64_t columns = cut & 1 ? 2 : 1, times = cut & 2 ? 3 : 1;
                for (int64_t c = 0; c < columns; c++) {
                    for (int64_t t = 0; t < times; t++)
                        run_part(&w, schedules[s], &(rcvi_shard){t * STEPS / times, c * BATCH / columns, BATCH},
                                 STEPS / times, BATCH / columns, states, parts);
                }
                if (memcmp(whole, parts, bytes) != 0)
                    fail_msg("kind %zu by %s: %lld by %lld parts are not the whole", k, schedules[s],
                             (long long)columns, (long long)times);
            }
        }
        run_part(&w, "naive", &(rcvi_shard){0, 1, BATCH + 1}, STEPS, BATCH - 1, states, parts);
        assert_memory_not_equal(whole, parts, bytes);
        close_world(&w);
    }
}

/* Each layer as a network; the test applies the dropout between them. */
static void test_slices(void **state) {
    (void)state;
    static world w;
    static double whole[MOST], x[MOST], y[MOST], states[2][MOST];
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        open_world(&w, "lstm", kinds[k]);
        const rcv_net_options *o = rcv_net_get_options(w.net);
        run_part(&w, "naive", &(rcvi_shard){0}, STEPS, BATCH, states, whole);
        memcpy(x, w.x, sizeof x);
        for (int64_t l = 0; l < o->layers; l++) {
            rcv_net *slice = NULL;
            rcv_plan *plan = NULL;
            rcv_run *run = NULL;
            check_ok(rcvi_net_slice(w.net, l, 1, &slice));
            open_run(slice, STEPS, BATCH, "naive", &plan, &run);
            assert_int_equal(rcv_net_parameter_elements(slice),
                             rcvi_layer_start(w.net, l + 1) - rcvi_layer_start(w.net, l));
            const rcv_forward data = RCV_INIT(rcv_forward, .parameters = w.parameters + rcvi_layer_start(w.net, l),
                                              .x = x, .y = y, .seed = 11);
            check_ok(rcv_run_forward(run, &data));
            for (int64_t i = 0; i < STEPS * BATCH * HIDDEN && l + 1 < o->layers; i++) {
                int64_t element = o->variational ? i % (BATCH * HIDDEN) : i;
                uint64_t seed = 11 + (uint64_t)(l + 1) * UINT64_C(0x9e3779b97f4a7c15);
                bool kept = rcvi_hash_uniform(seed, (uint64_t)element) < 1 - o->dropout;
                x[i] = kept ? y[i] / (1 - o->dropout) : 0;
            }
            rcv_run_free(run);
            rcv_plan_free(plan);
            rcv_net_free(slice);
        }
        assert_memory_equal(whole, y, STEPS * BATCH * HIDDEN * sizeof *y);
        close_world(&w);
    }
}

/* ---- signals of complete gradients ---- */

/* Every layer once, and the lead of the first; nothing writes to its gradients behind it, and what stands right before it does, or is another's. */
static void check_places(const rcvi_program *program, const char *schedule) {
    int64_t layers = program->net->options.layers, seen = 0;
    size_t loop_end = 0;
    for (size_t i = program->forward_count; i < program->step_count; i++) {
        const rcvi_step *step = &program->steps[i];
        if (step->kind == RCVI_STEP_LOOP && i >= loop_end) loop_end = i + 1 + (size_t)step->loop.body;
        if (step->kind != RCVI_STEP_COMMUNICATE) continue;
        seen += INT64_C(1) << step->communicate.signal;
        bool late = false, early = false;
        size_t first = i;
        while (first > program->forward_count && !early) {
            first--;
            early = rcvi_steps_conflict(program, step, &program->steps[first]) ||
                    program->steps[first].kind == RCVI_STEP_VENDOR;
        }
        for (size_t k = i + 1; k < program->step_count; k++)
            late |= program->steps[k].kind != RCVI_STEP_COMMUNICATE &&
                    rcvi_steps_conflict(program, step, &program->steps[k]);
        if (late || !early || i < loop_end)
            fail_msg("%s: the gradient of layer %d is not whole at step %zu", schedule, step->layer, i);
        for (size_t k = first + 1, end = 0; k < i; k++) { /* only the rest of a loop, and other layers' */
            if (program->steps[k].kind == RCVI_STEP_LOOP) end = k + (size_t)program->steps[k].loop.body;
            bool rest = program->steps[k].kind == RCVI_STEP_COMMUNICATE || loop_end > k || end >= k;
            if (!rest) fail_msg("%s: layer %d could have been signalled before step %zu", schedule, step->layer, k);
        }
    }
    assert_int_equal(seen, (INT64_C(2) << layers) - 1);
}

/* False: the plan is not for this network. */
static bool check_signals(const world *w, const char *schedule, double *gradient, bool signals) {
    static double y[MOST], dy[MOST];
    uint64_t signalled[5] = {0}, value = 41;
    rcv_plan *plan = NULL;
    rcv_run *run = NULL;
    const rcv_plan_options o = RCV_INIT(rcv_plan_options, .steps = STEPS, .batch = BATCH, .dtype = RCV_FLOAT64,
                                        .training = true, .signals = signals, .schedule = schedule);
    rcv_status status = rcv_plan_new(w->net, &o, &plan);
    if (status == RCV_UNSUPPORTED) return false;
    check_ok(status);
    check_ok(rcv_run_new(plan, &run));
    if (signals) check_places(&plan->program, schedule);
    if (signals)
        check_ok(rcv_run_set_signals(run, signalled, &value));
    else
        check_fails(rcv_run_set_signals(run, signalled, &value), RCV_INVALID, "without signals");
    for (int i = 0; i < STEPS * BATCH * 2 * HIDDEN; i++) dy[i] = i % 7 - 3;
    for (int call = 0; call < 2; call++) {
        value++;
        check_ok(
            rcv_run_forward(run, &RCV_INIT(rcv_forward, .parameters = w->parameters, .x = w->x, .y = y, .seed = 11)));
        check_ok(rcv_run_backward(run, &RCV_INIT(rcv_backward, .dy = dy, .dparameters = gradient)));
        for (int64_t l = 0; l <= rcv_net_get_options(w->net)->layers; l++)
            assert_int_equal(signalled[l], signals ? value : 0);
    }
    rcv_run_free(run);
    rcv_plan_free(plan);
    return true;
}

static void test_signals(void **state) {
    (void)state;
    int ran = 0;
    static world w;
    static double with[MOST], without[MOST];
    static const char *const plans[] = {"naive",
                                        "combine(steps=2)+fuse+pack",
                                        "combine(steps=all)+fuse+transpose",
                                        "fuse+pack+wavefront+threads(2)",
                                        "combine+fuse+pack+recompute(every=2)+threads(2)",
                                        "combine(steps=3)+fuse+pack+scan"};
    static const rcv_net_options nets[] = {
        {.layers = 3}, {.layers = 2, .bidirectional = true}, {.layers = 2, .dropout = 0.2, .rank = 3}};
    static const char *const cells[] = {"lstm",           "gru",       "sru",        "indrnn", "lstm_peephole",
                                        "lstm_layernorm", "gilr_lstm", "qrnn_ifo_w2"};
    enum { CELLS = sizeof cells / sizeof *cells };
    for (size_t i = 0; i < sizeof nets / sizeof *nets * CELLS; i++) {
        open_world(&w, cells[i % CELLS], nets[i / CELLS]);
        for (size_t p = 0; p < sizeof plans / sizeof *plans; p++) {
            if (!check_signals(&w, plans[p], without, false)) continue;
            check_signals(&w, plans[p], with, true);
            ran++;
            assert_memory_equal(with, without, (size_t)rcv_net_parameter_elements(w.net) * sizeof *with);
        }
        close_world(&w);
    }
    assert_true(ran >= 100);
}

/* The gradients of the layers are completed one by one, from the last layer to the first, so that their exchange can overlap with computation. */
static void test_signals_come_early(void **state) {
    (void)state;
    static world w;
    rcv_plan *plan = NULL;
    open_world(&w, "lstm", RCV_INIT(rcv_net_options, .layers = 4));
    const rcv_plan_options o = RCV_INIT(rcv_plan_options, .steps = STEPS, .batch = BATCH, .training = true,
                                        .signals = true, .schedule = "combine(steps=all)+fuse+pack");
    check_ok(rcv_plan_new(w.net, &o, &plan));
    const rcvi_program *program = &plan->program;
    int layer = 4;
    bool led = false; /* the lead of the first, with half of its parameters, and a product before the rest */
    for (size_t i = program->forward_count; i < program->step_count; i++) {
        if (program->steps[i].kind != RCVI_STEP_COMMUNICATE) continue;
        if (program->steps[i].communicate.signal == 4) {
            assert_int_equal(program->steps[i].columns, rcv_net_parameter(w.net, 0)->count);
            assert_int_equal(program->steps[i + 1].kind, RCVI_STEP_GEMM);
            assert_int_equal(layer, 1);
            led = true;
            continue;
        }
        assert_int_equal(program->steps[i].layer, --layer);
        int loops = 0; /* of lower layers, still to come */
        for (size_t k = i; k < program->step_count; k++) loops += program->steps[k].kind == RCVI_STEP_LOOP;
        assert_true(loops >= layer);
    }
    assert_int_equal(layer, 0);
    assert_true(led);
    rcv_plan_free(plan);
    close_world(&w);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shards), cmocka_unit_test(test_slices),
                                       cmocka_unit_test(test_signals), cmocka_unit_test(test_signals_come_early)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
