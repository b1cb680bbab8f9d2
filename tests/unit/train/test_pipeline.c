/* The pipeline schedule: orders without deadlock, simulated times against times computed by hand, and splits of layers
 * against all there are. */
#include "base/random.h"
#include "test.h"
#include "train/parallel/pipeline.h"

#include <math.h>

enum { STAGES = 6, MICRO = 6, CHUNKS = 5, UNITS = MICRO * CHUNKS, EVENTS = STAGES * (2 * UNITS + 8) };

/* No tolerance but for rounding. */
#define check_near(value, expected)                                                                                    \
    do {                                                                                                               \
        double value_ = (value), expected_ = (expected);                                                               \
        if (!(fabs(value_ - expected_) <= 1e-12 * fabs(expected_)))                                                    \
            fail_msg("%s is %.17g, not %.17g", #value, value_, expected_);                                             \
    } while (0)

#define for_each_pipeline(stages_, micro_, chunks_)                                                                    \
    for (int stages_ = 1; stages_ <= STAGES; stages_++)                                                                \
        for (int micro_ = 1; micro_ <= MICRO; micro_++)                                                                \
            for (int chunks_ = 1; chunks_ <= CHUNKS; chunks_++)

typedef struct {
    test_allocator allocator;
    rcv_context *context;
    rcvi_pipeline pipeline;
    rcvi_pipeline_stage stage[STAGES];
    rcvi_pipeline_result result;
    rcvi_pipeline_event events[EVENTS + 1];
    size_t count;
} fixture;

/* Stages that are alike, with links that take no time. */
static void open_fixture(fixture *f, int stages, double forward, double backward) {
    memset(f, 0, sizeof *f);
    f->context = test_context(&f->allocator);
    f->pipeline = (rcvi_pipeline){
        .stages = stages, .replicas = 1, .micro = 1, .chunks = 1, .stage = f->stage, .bandwidth = INFINITY};
    for (int s = 0; s < stages; s++) f->stage[s] = (rcvi_pipeline_stage){.forward = forward, .backward = backward};
}

static void close_fixture(fixture *f) { test_context_end(&f->allocator, f->context); }

/* The result is the same with and without events, there are exactly rcvi_pipeline_event_count events, and the times of stages add up. */
static void simulate(fixture *f) {
    rcvi_pipeline_result without;
    f->count = rcvi_pipeline_event_count(&f->pipeline);
    assert_in_range(f->count, 1, EVENTS);
    memset(f->events, 0xff, sizeof f->events);
    check_ok(rcvi_pipeline_simulate(f->context, &f->pipeline, NULL, &without));
    check_ok(rcvi_pipeline_simulate(f->context, &f->pipeline, f->events, &f->result));
    assert_memory_equal(&without, &f->result, sizeof without);
    double busy = 0, end = 0;
    for (size_t i = 0; i < f->count; i++) {
        const rcvi_pipeline_event *e = &f->events[i];
        assert_in_range(e->stage, i ? f->events[i - 1].stage : 0, f->pipeline.stages - 1);
        assert_true(e->begin >= 0 && e->end >= e->begin);
        bool exchange =
            e->kind == RCVI_PIPELINE_SUM || e->kind == RCVI_PIPELINE_OUTCOME || e->kind == RCVI_PIPELINE_GATHER;
        if (!exchange) busy += e->end - e->begin;
        end = fmax(end, e->end);
    }
    assert_int_equal(f->events[f->count].stage, -1);
    assert_true(f->result.seconds == end);
    check_near(busy + f->pipeline.stages * (f->result.bubble * end + f->result.exposed), f->pipeline.stages * end);
}

/* ---- orders ---- */

typedef struct {
    rcvi_pipeline pipeline;
    int units;
    rcvi_pipeline_task tasks[STAGES][2 * UNITS];
    int done[STAGES];
    bool forward[STAGES][UNITS], backward[STAGES][UNITS];
} tokens;

static void open_tokens(tokens *t, int stages, int micro, int chunks) {
    memset(t, 0, sizeof *t);
    t->pipeline = (rcvi_pipeline){.stages = stages, .replicas = 1, .micro = micro, .chunks = chunks};
    t->units = micro * chunks;
    for (int s = 0; s < stages; s++) rcvi_pipeline_order(&t->pipeline, s, t->tasks[s]);
}

/* The dependences of a unit, as in pipeline.h. */
static bool may_go(const tokens *t, int s, rcvi_pipeline_task task) {
    int chunks = t->pipeline.chunks, u = task.unit, k = u % chunks, last = u - k + chunks - 1;
    if (!task.backward) return (k == 0 || t->forward[s][u - 1]) && (s == 0 || t->forward[s - 1][u]);
    if (u != last && !t->backward[s][u + 1]) return false;
    return s == t->pipeline.stages - 1 ? t->forward[s][last] : t->backward[s + 1][u];
}

static int held_by(const tokens *t, int s) {
    int held = 0;
    for (int m = 0; m < t->pipeline.micro; m++) {
        int first = m * t->pipeline.chunks; /* first forwards, last backwards */
        held += t->forward[s][first] && !t->backward[s][first];
    }
    return held;
}

static bool go(tokens *t, int s) {
    rcvi_pipeline_task task = t->tasks[s][t->done[s]];
    assert_in_range(task.unit, 0, t->units - 1);
    if (!may_go(t, s, task)) return false;
    bool *done = task.backward ? &t->backward[s][task.unit] : &t->forward[s][task.unit];
    assert_false(*done);
    *done = true;
    t->done[s]++;
    assert_in_range(held_by(t, s), 0, rcvi_pipeline_in_flight(&t->pipeline, s));
    return true;
}

static void test_orders(void **unused) {
    (void)unused;
    static tokens t;
    for_each_pipeline(stages, micro, chunks) {
        open_tokens(&t, stages, micro, chunks);
        for (bool moved = true; moved;) {
            moved = false;
            for (int s = 0; s < stages; s++) {
                while (t.done[s] < 2 * t.units && go(&t, s)) moved = true;
            }
        }
        for (int s = 0; s < stages; s++) {
            assert_int_equal(t.done[s], 2 * t.units);
            assert_int_equal(rcvi_pipeline_in_flight(&t.pipeline, s), stages - s < micro ? stages - s : micro);
        }
    }
}

/* A stage receives units in the order in which its neighbour sends them: all stages have the same order. */
static void check_sequence(const tokens *t, const rcvi_pipeline_task *tasks, bool backward) {
    int chunks = t->pipeline.chunks, found = 0;
    for (int i = 0; i < 2 * t->units; i++) {
        if (tasks[i].backward != backward) continue;
        int k = found % chunks, first = found - k;
        assert_int_equal(tasks[i].unit, first + (backward ? chunks - 1 - k : k));
        found++;
    }
    assert_int_equal(found, t->units);
}

static void test_sequences(void **unused) {
    (void)unused;
    static tokens t;
    for_each_pipeline(stages, micro, chunks) {
        open_tokens(&t, stages, micro, chunks);
        for (int s = 0; s < stages; s++) {
            check_sequence(&t, t.tasks[s], false);
            check_sequence(&t, t.tasks[s], true);
        }
        for (int i = 0; i < 2 * t.units; i++) /* the last stage turns round at once */
            assert_int_equal(t.tasks[stages - 1][i].backward, i / chunks % 2);
    }
}

/* ---- times ---- */

/* The last stage is never idle between its first and last unit, whatever time is cut into. */
static void test_closed_forms(void **unused) {
    (void)unused;
    static const double costs[][2] = {{1, 2}, {1, 1}, {0.7, 0.3}, {0.1, 1.3}};
    static fixture f;
    for (int c = 0; c < 4; c++) {
        for_each_pipeline(stages, micro, chunks) {
            open_fixture(&f, stages, costs[c][0], costs[c][1]);
            f.pipeline.micro = micro;
            f.pipeline.chunks = chunks;
            simulate(&f);
            const int units = micro * chunks;
            check_near(f.result.seconds, (units + stages - 1) * (costs[c][0] + costs[c][1]));
            check_near(f.result.bubble, (stages - 1.0) / (units + stages - 1));
            assert_true(f.result.exposed == 0 && f.result.exchange == 0 && f.result.sent == 0);
            close_fixture(&f);
        }
    }
}

/* Stage s takes chunk k while stage s + 1 takes chunk k - 1. */
static void test_wavefront(void **unused) {
    (void)unused;
    static fixture f;
    open_fixture(&f, 4, 1, 2);
    f.pipeline.chunks = 5;
    simulate(&f);
    int found = 0;
    for (size_t i = 0; i < f.count; i++) {
        const rcvi_pipeline_event *e = &f.events[i];
        if (e->kind == RCVI_PIPELINE_FORWARD) check_near(e->begin, e->stage + e->unit);
        if (e->kind == RCVI_PIPELINE_BACKWARD) check_near(e->begin, 4 - 1 + 5 + 2 * (4 - 1 - e->stage + 4 - e->unit));
        found += e->kind == RCVI_PIPELINE_FORWARD || e->kind == RCVI_PIPELINE_BACKWARD;
    }
    assert_int_equal(found, 2 * 4 * 5);
    close_fixture(&f);
}

static void test_one_stage(void **unused) {
    (void)unused;
    static fixture f;
    const rcvi_pipeline_segment segment = {.bytes = 100, .at = 0.5};
    open_fixture(&f, 1, 0, 0);
    f.pipeline.micro = 2;
    f.pipeline.chunks = 3;
    f.pipeline.bandwidth = 0; /* a rank alone has no link, and exchanges nothing */
    f.pipeline.outcome = 8;
    f.stage[0] = (rcvi_pipeline_stage){.forward = 0.2,
                                       .backward = 0.3,
                                       .begin = 1,
                                       .inputs = 4,
                                       .update = 16,
                                       .gathered = 10,
                                       .segments = &segment,
                                       .segment_count = 1};
    simulate(&f);
    check_near(f.result.seconds, 1 + 6 * 0.5 + 4 + 16);
    assert_true(f.result.bubble == 0 && f.result.exposed == 0 && f.result.exchange == 0 && f.result.sent == 0);
    assert_int_equal(f.count, 12 + 3);
    close_fixture(&f);
}

/* Work before the first and after the last unit, of each stage on its own. */
static void test_around_units(void **unused) {
    (void)unused;
    static fixture f;
    open_fixture(&f, 2, 1, 1);
    f.stage[0].begin = 0.5;
    f.stage[1].begin = 2; /* until 2, while the first unit is there at 1.5 */
    f.stage[0].inputs = 0.25;
    f.stage[1].update = 3; /* 4 to 7: it need not wait for the other one */
    f.stage[0].update = 1; /* 5.25 to 6.25 */
    simulate(&f);
    check_near(f.result.seconds, 7);
    check_near(f.result.bubble, (14 - (0.5 + 2 + 0.25 + 1) - (2 + 2 + 3)) / 14);
    f.pipeline.outcome = 1; /* now it must */
    simulate(&f);
    check_near(f.result.seconds, 5.25 + 3);
    assert_true(f.result.exposed == 0);
    close_fixture(&f);
}

/* ---- messages ---- */

static void test_latency(void **unused) {
    (void)unused;
    static fixture f;
    for (int stages = 1; stages <= STAGES; stages++) {
        open_fixture(&f, stages, 1, 2);
        f.pipeline.chunks = 4;
        f.pipeline.latency = 0.25;
        simulate(&f);
        check_near(f.result.seconds, (4 + stages - 1) * 3 + 2 * (stages - 1) * 0.25);
        close_fixture(&f);
    }
}

/* Messages of 2 s after units of 1 s: they are sent by the first stage at 1, 3, 5 and arrive at 3.5, 5.5, 7.5; backward they are sent at
 * 9.5, 11.5, 13.5 and are there at 12, 14, 16. */
static void test_slow_link(void **unused) {
    (void)unused;
    static fixture f;
    static const double begins[2][6] = {{0, 1, 2, 12, 14, 16}, {3.5, 5.5, 7.5, 8.5, 9.5, 10.5}};
    open_fixture(&f, 2, 1, 1);
    f.pipeline.chunks = 3;
    f.pipeline.latency = 0.5;
    f.pipeline.bandwidth = 3;
    f.stage[0].message = 6;
    f.stage[1].message = 1e9; /* of the last it means nothing */
    simulate(&f);
    assert_int_equal(f.count, 2 * (6 + 3));
    for (int s = 0; s < 2; s++) {
        for (int i = 0; i < 6; i++) check_near(f.events[9 * s + 1 + i].begin, begins[s][i]);
    }
    check_near(f.result.seconds, 17);
    check_near(f.result.bubble, (34.0 - 12) / 34);
    check_near(f.result.sent, 18);
    close_fixture(&f);
}

static void test_message_of_each_link(void **unused) {
    (void)unused;
    static fixture f;
    open_fixture(&f, 3, 1, 2);
    f.pipeline.latency = 0.125;
    f.pipeline.bandwidth = 4;
    f.stage[0].message = 2;
    f.stage[1].message = 3;
    simulate(&f);
    check_near(f.result.seconds, 9 + 2 * (2 + 3) / 4.0 + 4 * 0.125);
    check_near(f.result.sent, 5); /* by the stage between */
    close_fixture(&f);
}

/* Messages that take another way than sums have its speed, and sums keep theirs. */
static void test_message_of_its_own_way(void **unused) {
    (void)unused;
    static fixture f;
    open_fixture(&f, 3, 1, 2);
    f.pipeline.latency = 100;
    f.pipeline.bandwidth = 1e-3;
    f.pipeline.message_latency = 0.125;
    f.pipeline.message_bandwidth = 4;
    f.stage[0].message = 2;
    f.stage[1].message = 3;
    simulate(&f);
    check_near(f.result.seconds, 9 + 2 * (2 + 3) / 4.0 + 4 * 0.125);
    f.pipeline.outcome = 1;
    simulate(&f);
    check_near(f.result.seconds, 9 + 2 * (2 + 3) / 4.0 + 4 * 0.125 + 2 * 2 * 100 + 2e3);
    close_fixture(&f);
}

/* Everything begins exactly when the later of its stage and its message is there. */
static void check_begins(const fixture *f, const rcvi_pipeline_event *own, const rcvi_pipeline_event *from,
                         bool backward, double bytes) {
    const int tasks = 2 * f->pipeline.micro * f->pipeline.chunks;
    const rcvi_pipeline_event_kind kind = backward ? RCVI_PIPELINE_BACKWARD : RCVI_PIPELINE_FORWARD;
    double link = 0;
    for (int i = 1, at = 1; i <= tasks; i++) {
        if (own[i].kind != kind) continue;
        double there = 0;
        if (from) {
            while (from[at].kind != kind) at++;
            assert_int_equal(from[at].unit, own[i].unit);
            link = fmax(link, from[at++].end) + bytes / f->pipeline.bandwidth;
            there = link + f->pipeline.latency;
        }
        check_near(own[i].begin, fmax(own[i - 1].end, there));
    }
}

static void test_begins(void **unused) {
    (void)unused;
    static fixture f;
    for (uint64_t seed = 0; seed < 300; seed++) {
        uint64_t drawn = 0;
#define DRAW (rcvi_hash_uniform(seed, drawn++))
        open_fixture(&f, 1 + (int)(STAGES * DRAW), 0, 0);
        f.pipeline.micro = 1 + (int)(MICRO * DRAW);
        f.pipeline.chunks = 1 + (int)(CHUNKS * DRAW);
        f.pipeline.latency = DRAW;
        f.pipeline.bandwidth = 3 * DRAW;
        for (int s = 0; s < f.pipeline.stages; s++) { /* one after the other: an initialiser has no order */
            f.stage[s] = (rcvi_pipeline_stage){.forward = DRAW};
            f.stage[s].backward = DRAW;
            f.stage[s].begin = DRAW;
            f.stage[s].message = 2 * DRAW;
        }
#undef DRAW
        simulate(&f);
        const int each = (int)f.count / f.pipeline.stages;
        for (int s = 0; s < f.pipeline.stages; s++) {
            const rcvi_pipeline_event *own = f.events + s * each;
            const rcvi_pipeline_event *below = s > 0 ? own - each : NULL,
                                      *above = s < f.pipeline.stages - 1 ? own + each : NULL;
            check_begins(&f, own, below, false, below ? f.stage[s - 1].message : 0);
            check_begins(&f, own, above, true, f.stage[s].message);
        }
        close_fixture(&f);
    }
}

/* ---- exchanges ---- */

/* Two replicas sum a segment in its bytes / bandwidth. */
static void test_exposed_sum(void **unused) {
    (void)unused;
    static fixture f;
    rcvi_pipeline_segment segment = {.bytes = 8, .at = 0.5};
    open_fixture(&f, 1, 1, 1);
    f.pipeline.replicas = 2;
    f.pipeline.bandwidth = 10;
    f.stage[0].segments = &segment;
    f.stage[0].segment_count = 1;
    f.stage[0].update = 0.25;
    simulate(&f);
    check_near(f.result.exposed, 0.3);
    check_near(f.result.seconds, 2 + 0.3 + 0.25);
    check_near(f.result.exchange, 0.8);
    check_near(f.result.sent, 8);
    segment.bytes = 4;
    simulate(&f);
    assert_true(f.result.exposed == 0);
    check_near(f.result.exchange, 0.4);
    f.pipeline.latency = 0.1; /* twice: 0.1 s longer than the time that is left to overlap with */
    simulate(&f);
    check_near(f.result.exposed, 0.1);
    segment.at = 1;
    simulate(&f);
    check_near(f.result.exposed, 0.6);
    f.stage[0].inputs = 0.5; /* beside it, but for 0.1 s */
    simulate(&f);
    check_near(f.result.exposed, 0.1);
    segment.at = 1.5; /* after the inputs */
    simulate(&f);
    check_near(f.result.exposed, 0.6);
    close_fixture(&f);
}

/* One at a time, in their order, after the last backward unit has begun, for any number of units. */
static void test_segments(void **unused) {
    (void)unused;
    static fixture f;
    static const rcvi_pipeline_segment segments[] = {
        {.bytes = 2, .at = 0}, {.bytes = 6, .at = 0.25}, {.bytes = 2, .at = 2}};
    static const double begins[] = {7, 8, 12}, ends[] = {8, 11, 13};
    open_fixture(&f, 1, 1, 2);
    f.pipeline.replicas = 4;
    f.pipeline.micro = 3;
    f.pipeline.bandwidth = 3;
    f.stage[0].segments = segments;
    f.stage[0].segment_count = 3;
    f.stage[0].inputs = 3;
    simulate(&f); /* backwards from 7 to 9, inputs until 12 */
    for (int i = 0; i < 3; i++) {
        const rcvi_pipeline_event *e = &f.events[6 + 2 + i];
        assert_int_equal(e->kind, RCVI_PIPELINE_SUM);
        assert_int_equal(e->unit, i);
        check_near(e->begin, begins[i]);
        check_near(e->end, ends[i]);
    }
    check_near(f.result.exposed, 1);
    check_near(f.result.exchange, 5);
    check_near(f.result.sent, 2 * 0.75 * 10);
    close_fixture(&f);
}

/* All-reduces of the last stage overlap with computing of the first one. */
static void test_sum_beside_stages(void **unused) {
    (void)unused;
    static fixture f;
    const rcvi_pipeline_segment segment = {.bytes = 1.5, .at = 1};
    open_fixture(&f, 2, 1, 2);
    f.pipeline.replicas = 2;
    f.pipeline.bandwidth = 1;
    f.stage[1].segments = &segment;
    f.stage[1].segment_count = 1;
    simulate(&f);
    check_near(f.result.seconds, 6);
    assert_true(f.result.exposed == 0);
    check_near(f.result.bubble, 0.5);
    f.pipeline.bandwidth = 0.5; /* until 4 + 3 */
    simulate(&f);
    check_near(f.result.seconds, 7);
    check_near(f.result.exposed, 1);
    check_near(f.result.bubble, 3.0 / 7);
    close_fixture(&f);
}

static void test_shares(void **unused) {
    (void)unused;
    static fixture f;
    const rcvi_pipeline_segment segment = {.bytes = 8, .at = 1};
    open_fixture(&f, 1, 1, 1);
    f.pipeline.replicas = 4;
    f.pipeline.latency = 0.125;
    f.pipeline.bandwidth = 4;
    f.stage[0].segments = &segment;
    f.stage[0].segment_count = 1;
    f.stage[0].update = 0.5;
    simulate(&f);
    check_near(f.result.seconds, 2 + (6 * 0.125 + 1.5 * 8 / 4) + 0.5);
    check_near(f.result.sent, 12);
    f.stage[0].gathered = 6;
    simulate(&f);
    const double sum = 3 * 0.125 + 0.75 * 8 / 4, gather = 3 * 0.125 + 0.75 * 6 / 4;
    check_near(f.result.seconds, 2 + sum + 0.5 + gather);
    check_near(f.result.exposed, sum + gather);
    check_near(f.result.exchange, sum + gather);
    check_near(f.result.sent, 0.75 * 14);
    const rcvi_pipeline_event *last = &f.events[f.count - 1];
    assert_int_equal(last->kind, RCVI_PIPELINE_GATHER);
    check_near(last->begin, 2 + sum + 0.5);
    close_fixture(&f);
}

static void test_outcome(void **unused) {
    (void)unused;
    static const int rounds[] = {0, 0, 1, 2, 2, 3, 3, 3, 3, 4}; /* of so many ranks */
    static fixture f;
    for (int stages = 1; stages <= 3; stages++) {
        for (int replicas = 1; replicas <= 3; replicas++) {
            open_fixture(&f, stages, 1, 2);
            f.pipeline.replicas = replicas;
            f.pipeline.latency = 0.5;
            f.pipeline.bandwidth = 4;
            f.pipeline.outcome = 8;
            f.stage[stages - 1].update = 0.25;
            simulate(&f);
            const int ranks = stages * replicas;
            const double sum = ranks > 1 ? 2 * rounds[ranks] * 0.5 + 2 * 8 / 4.0 : 0;
            const double computed = 3 * stages + 2 * (stages - 1) * 0.5;
            check_near(f.result.seconds, computed + sum + 0.25);
            check_near(f.result.exposed, sum);
            check_near(f.result.exchange, sum);
            check_near(f.result.sent, ranks > 1 ? 16 : 0);
            int found = 0;
            for (size_t i = 0; i < f.count; i++) {
                if (f.events[i].kind != RCVI_PIPELINE_OUTCOME) continue;
                check_near(f.events[i].begin, computed);
                found++;
            }
            assert_int_equal(found, ranks > 1 ? stages : 0);
            close_fixture(&f);
        }
    }
}

/* The sums of one stage hold up the other one's update where there is an outcome. */
static void test_outcome_behind_sums(void **unused) {
    (void)unused;
    static fixture f;
    const rcvi_pipeline_segment segment = {.bytes = 5, .at = 1};
    open_fixture(&f, 2, 1, 1);
    f.pipeline.replicas = 2;
    f.pipeline.bandwidth = 1;
    f.pipeline.outcome = 0.5;
    f.stage[1].segments = &segment;
    f.stage[1].segment_count = 1; /* from 3 to 8, where the other stage has computed at 4 */
    f.stage[0].update = 2;
    simulate(&f);
    check_near(f.result.seconds, 8 + 1 + 2);
    check_near(f.result.exposed, 4 + 1);
    check_near(f.result.bubble, (2 * 6 - 6) / 22.0);
    close_fixture(&f);
}

/* ---- splitting ---- */

typedef struct {
    const double *layer;
    int layers, stages;
    double first, last;
    double slowest, squares; /* of the best so far */
} search;

static void weigh(const search *p, const int *counts, double *slowest, double *squares) {
    *slowest = *squares = 0;
    for (int s = 0, i = 0; s < p->stages; s++) {
        double seconds = (s == 0 ? p->first : 0) + (s == p->stages - 1 ? p->last : 0);
        for (int end = i + counts[s]; i < end; i++) seconds += p->layer[i];
        *slowest = fmax(*slowest, seconds);
        *squares += seconds * seconds;
    }
}

/* All ways to give the layers that are left to stages s.. */
static void try_all(search *p, int s, int left, int *counts) {
    if (s < p->stages - 1) {
        for (counts[s] = 1; counts[s] <= left - (p->stages - 1 - s); counts[s]++)
            try_all(p, s + 1, left - counts[s], counts);
        return;
    }
    counts[s] = left;
    double slowest, squares;
    weigh(p, counts, &slowest, &squares);
    bool better = slowest < p->slowest * (1 - 1e-12);
    bool equal = !better && slowest <= p->slowest * (1 + 1e-12);
    if (better || (equal && squares < p->squares)) {
        p->slowest = slowest;
        p->squares = squares;
    }
}

static void test_split(void **unused) {
    (void)unused;
    static fixture f;
    double layer[10];
    int counts[10], scratch[10], uneven = 0;
    open_fixture(&f, 1, 1, 1);
    for (uint64_t seed = 0; seed < 2000; seed++) {
        search p = {.layer = layer, .slowest = INFINITY};
        p.layers = 1 + (int)(seed % 10);
        p.stages = 1 + (int)(seed / 10 % (uint64_t)p.layers);
        for (int i = 0; i < p.layers; i++) { /* of every three: any, many that are equal, all equal */
            double any = rcvi_hash_uniform(seed, (uint64_t)i);
            layer[i] = seed % 3 == 0 ? any : seed % 3 == 1 ? ceil(3 * any) / 8 : 0.1;
        }
        p.first = seed % 4 == 1 ? 2 * rcvi_hash_uniform(seed, 90) : 0;
        p.last = seed % 4 >= 2 ? 2 * rcvi_hash_uniform(seed, 91) : 0;
        try_all(&p, 0, p.layers, scratch);
        check_ok(rcvi_pipeline_split(f.context, layer, p.layers, p.first, p.last, p.stages, counts));
        int sum = 0;
        for (int s = 0; s < p.stages; sum += counts[s++]) assert_in_range(counts[s], 1, p.layers);
        assert_int_equal(sum, p.layers);
        double slowest, squares;
        weigh(&p, counts, &slowest, &squares);
        check_near(slowest, p.slowest);
        check_near(squares, p.squares);
        uneven += counts[0] < counts[p.stages - 1];
    }
    assert_true(uneven > 100);
    close_fixture(&f);
}

/* Of equal ones, fewer layers first; a slow end has fewer. Tenths are no binary numbers: rounding must decide nothing. */
static void test_split_ties(void **unused) {
    (void)unused;
    static const double equal[] = {0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1}, other[] = {0.2, 0.1, 0.6, 0.4, 0.3, 0.2};
    static const struct {
        const double *layer;
        int layers, stages;
        double first, last;
        int counts[4];
    } cases[] = {{equal, 7, 3, 0, 0, {2, 2, 3}}, {equal, 7, 3, 0, 0.1, {2, 3, 2}}, {equal, 7, 3, 0.2, 0.2, {1, 4, 2}},
                 {equal, 7, 3, 0, 9, {3, 3, 1}}, {equal, 7, 3, 9, 0, {1, 3, 3}},   {equal, 6, 4, 0, 0, {1, 1, 2, 2}},
                 {other, 6, 3, 0, 0, {3, 1, 2}}}; /* 0.9 0.4 0.5, not 0.3 0.6 0.9 */
    static fixture f;
    open_fixture(&f, 1, 1, 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int counts[4] = {0};
        check_ok(rcvi_pipeline_split(f.context, cases[i].layer, cases[i].layers, cases[i].first, cases[i].last,
                                     cases[i].stages, counts));
        assert_memory_equal(counts, cases[i].counts, sizeof counts);
    }
    close_fixture(&f);
}

/* ---- invalid arguments ---- */

static void test_wrong(void **unused) {
    (void)unused;
    static fixture f;
    int counts[3];
    double layer[] = {1, 2, 3};
    open_fixture(&f, 2, 1, 1);
    f.pipeline.bandwidth = 0;
    check_fails(rcvi_pipeline_simulate(f.context, &f.pipeline, NULL, &f.result), RCV_INVALID, "0 bytes a second");
    f.pipeline.bandwidth = 1;
    f.stage[1].inputs = -1;
    check_fails(rcvi_pipeline_simulate(f.context, &f.pipeline, NULL, &f.result), RCV_INVALID, "stage 1 has a cost");
    f.stage[1].inputs = NAN;
    check_fails(rcvi_pipeline_simulate(f.context, &f.pipeline, NULL, &f.result), RCV_INVALID, "stage 1 has a cost");
    f.stage[1].inputs = 0;
    f.pipeline.micro = 0;
    check_fails(rcvi_pipeline_simulate(f.context, &f.pipeline, NULL, &f.result), RCV_INVALID, "0 micro-batches");
    f.pipeline.micro = f.pipeline.chunks = 1 << 16;
    check_fails(rcvi_pipeline_simulate(f.context, &f.pipeline, NULL, &f.result), RCV_INVALID, "65536 chunks");
    check_fails(rcvi_pipeline_split(f.context, layer, 3, 0, 0, 4, counts), RCV_INVALID, "3 layers");
    check_fails(rcvi_pipeline_split(f.context, layer, 3, 0, -1, 2, counts), RCV_INVALID, "not a number of seconds");
    layer[1] = INFINITY;
    check_fails(rcvi_pipeline_split(f.context, layer, 3, 0, 0, 2, counts), RCV_INVALID, "not a number of seconds");
    close_fixture(&f);
}

static void test_no_memory(void **unused) {
    (void)unused;
    static fixture f;
    static const double layer[] = {1, 2, 3};
    int counts[2];
    open_fixture(&f, 2, 1, 1);
    for (int which = 0; which < 2; which++) {
        size_t tried = 0;
        for (rcv_status status = RCV_NO_MEMORY; status != RCV_OK;) {
            const size_t live = f.allocator.live, failed = f.allocator.failed;
            f.allocator.fail_at = ++tried;
            status = which ? rcvi_pipeline_split(f.context, layer, 3, 0, 0, 2, counts)
                           : rcvi_pipeline_simulate(f.context, &f.pipeline, NULL, &f.result);
            f.allocator.fail_at = 0;
            assert_int_equal(status, f.allocator.failed > failed ? RCV_NO_MEMORY : RCV_OK);
            assert_int_equal(f.allocator.live, live);
        }
        assert_true(tried > 2);
    }
    close_fixture(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_orders),
        cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_closed_forms),
        cmocka_unit_test(test_wavefront),
        cmocka_unit_test(test_one_stage),
        cmocka_unit_test(test_around_units),
        cmocka_unit_test(test_latency),
        cmocka_unit_test(test_message_of_its_own_way),
        cmocka_unit_test(test_slow_link),
        cmocka_unit_test(test_message_of_each_link),
        cmocka_unit_test(test_begins),
        cmocka_unit_test(test_exposed_sum),
        cmocka_unit_test(test_segments),
        cmocka_unit_test(test_sum_beside_stages),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_outcome),
        cmocka_unit_test(test_outcome_behind_sums),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_split_ties),
        cmocka_unit_test(test_wrong),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
