/* Functions of several ranks that need only one: topologies, splits of layers, segments of the gradient and their shares, forecasts for machines
 * that are not here. tests/ranks/parallel.sh runs several ranks. */
#include "recurve_distributed.h"
#include "scratch.h"
#include "train_fixture.h"

#include "train/forecast/costs.h"
#include "train/parallel/gradient_segments.h"

#include <math.h>

/* ---- arrangements ---- */

static void test_arrangements(void **state) {
    (void)state;
    static const struct {
        const char *text;
        int ranks, replicas, stages;
    } good[] = {{"data", 4, 4, 1},
                {"data:4", 4, 4, 1},
                {"pipeline", 3, 1, 3},
                {"pipeline:3", 3, 1, 3},
                {"data:2,pipeline:3", 6, 2, 3},
                {"pipeline:3,data:2", 6, 2, 3},
                {"data,pipeline:2", 8, 4, 2},
                {"data:2,pipeline", 8, 2, 4},
                {"data", 1, 1, 1}};
    int replicas, stages;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        check_ok(rcvi_topology_parse(good[i].text, good[i].ranks, &replicas, &stages));
        assert_int_equal(replicas, good[i].replicas);
        assert_int_equal(stages, good[i].stages);
    }
    static const char *const bad[] = {"",       "date",        "data:",         "data:0",
                                      "data:x", "data,",       "data,pipeline", "data:2,data:2",
                                      ",data",  "pipeline:-1", "data:2x",       "data pipeline"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        check_fails(rcvi_topology_parse(bad[i], 4, &replicas, &stages), RCV_INVALID, "is none of");
    check_fails(rcvi_topology_parse("data:3", 4, &replicas, &stages), RCV_INVALID, "needs 3 ranks, but 4 were started");
    check_fails(rcvi_topology_parse("data:2,pipeline:3", 4, &replicas, &stages), RCV_INVALID, "needs 6 ranks");
    check_fails(rcvi_topology_parse("data,pipeline:3", 4, &replicas, &stages), RCV_INVALID, "4 were started");
}

static void test_splits(void **state) {
    (void)state;
    int counts[4];
    check_ok(rcvi_read_split("2,1,3", 6, 3, counts));
    assert_int_equal(counts[0], 2);
    assert_int_equal(counts[1], 1);
    assert_int_equal(counts[2], 3);
    static const char *const bad[] = {"2,1",   "2,1,2",  "2,1,3,1", "2,,4", "2,1,3,",
                                      "0,3,3", "-1,4,3", "2;1;3",   "6",    "a"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        check_fails(rcvi_read_split(bad[i], 6, 3, counts), RCV_INVALID, "does not divide 6 layers among 3 stages");
    check_fails(rcvi_check_stages(3, 4), RCV_INVALID, "3 layers cannot be divided among 4 stages");
}

/* ---- segments ---- */

/* Shares follow one another from 0 to the end, at multiples of 16, as even as these let them be. */
static void test_shares(void **state) {
    (void)state;
    for (int64_t count = 0; count < 700; count += 7) {
        for (int replicas = 1; replicas < 9; replicas++) {
            assert_int_equal(rcvi_share_start(count, 0, replicas), 0);
            assert_int_equal(rcvi_share_start(count, replicas, replicas), count);
            for (int r = 0; r < replicas; r++) {
                int64_t start = rcvi_share_start(count, r, replicas), end = rcvi_share_start(count, r + 1, replicas);
                assert_true(start <= end && start % 16 == 0 && end - start < count / replicas + 32);
            }
        }
    }
}

/* Every trained element is in exactly one segment of one stage; a sparse or fixed embedding is in none. */
static void check_segments(rcv_learner *l, const int *counts, int stages, bool sparse) {
    int *seen = calloc((size_t)l->elements, sizeof *seen);
    assert_non_null(seen);
    for (int s = 0, first = 0; s < stages; first += counts[s++]) {
        rcv_learner part;
        size_t count;
        check_ok(rcvi_learner_describe_slice(l, first, counts[s], &part));
        rcvi_gradient_segment *segments = rcvi_gradient_segments_new(&part, sparse, &count);
        assert_non_null(segments);
        for (size_t i = 0; i < count; i++) {
            assert_true(segments[i].first >= part.first_element &&
                        segments[i].first + segments[i].count <= part.end_element);
            for (int64_t e = 0; e < segments[i].count; e++) seen[segments[i].first + e]++;
        }
        rcvi_free(l->context, segments);
        rcvi_learner_drop_slice(&part);
    }
    for (size_t i = 0; i < rcvi_learner_tensor_count(l); i++) {
        rcvi_tensor_place place;
        rcvi_learner_tensor_at(l, i, &place);
        bool table = place.offset == 0 && place.count == l->shape.tokens * l->shape.embedding;
        int expected = table && (sparse || l->shape.fixed) ? 0 : 1;
        for (int64_t e = place.offset; e < place.offset + place.count; e++) assert_int_equal(seen[e], expected);
    }
    free(seen);
}

static void test_segments(void **state) {
    (void)state;
    train_fixture s;
    train_fixture_open(&s);
    const rcv_data *train = train_fixture_data(&s, "train", RCV_DATA_STREAM, train_fixture_verse, NULL);
    static const char *const lines[] = {"", "tied=true embedding=5", "embedding-kind=fixed",
                                        "no-bias=true embedding=9"};
    static const int splits[][3] = {{3, 0, 0}, {1, 2, 0}, {2, 1, 0}, {1, 1, 1}};
    for (int i = 0; i < 4; i++) {
        rcv_trainer *t = train_fixture_trainer(&s, "hidden=5 layers=3 batch=2 length=3", lines[i], train, NULL);
        for (int k = 0; k < (i == 1 ? 1 : 4); k++) {
            int stages = splits[k][1] ? splits[k][2] ? 3 : 2 : 1;
            check_segments(t->learner, splits[k], stages, false);
            if (!t->learner->shape.tied) check_segments(t->learner, splits[k], stages, true);
        }
        rcv_trainer_free(t);
    }
    train_fixture_close(&s);
}

/* ---- forecasts ---- */

static void check_forecast(rcv_trainer *t, int devices, const char *parallel, double bandwidth, double latency,
                           rcv_forecast *forecast) {
    const rcv_forecast_options o = RCV_INIT(rcv_forecast_options, .devices = devices, .parallel = parallel,
                                            .bandwidth = bandwidth, .latency = latency);
    check_ok(rcv_trainer_forecast(t, &o, forecast));
    assert_true(forecast->seconds > 0 && forecast->busy > 0 && forecast->busy <= 1 + 1e-9);
    assert_true(forecast->bubble >= 0 && forecast->exposed >= -1e-12 && forecast->exchange >= 0);
}

/* Bytes: an all-reduce sends 2 (R - 1) / R of the gradient; stages send activations and their gradients. */
static void test_forecast(void **state) {
    (void)state;
    train_fixture s;
    rcv_forecast f = RCV_INIT(rcv_forecast), slow = RCV_INIT(rcv_forecast);
    train_fixture_open(&s);
    const rcv_data *train = train_fixture_data(&s, "train", RCV_DATA_STREAM, train_fixture_verse, NULL);
    rcv_trainer *t = train_fixture_trainer(&s, "hidden=8 layers=4 batch=4 length=4 optimiser=adam", "", train, NULL);
    double gradient = (double)rcv_learner_parameter_elements(t->learner) * sizeof(float);
    check_forecast(t, 4, "data", 1e30, 0, &f);
    assert_int_equal(f.replicas, 4);
    assert_true(fabs(f.sent - 1.5 * gradient) < 1e-6 * gradient);
    assert_true(f.exposed < 1e-9 && f.bubble < 1e-9);
    check_forecast(t, 4, "data", 1e30, 1, &slow); /* a second a message */
    assert_true(slow.exposed > 6 && slow.seconds > slow.exposed);
    check_forecast(t, 2, "pipeline", 1e30, 0, &f);
    assert_string_equal(f.split, "2,2");
    assert_true(fabs(f.sent - (4 * 4 * 8 * sizeof(float) + 16)) < 1e-6); /* and the norm */
    assert_true(f.bubble > 0);
    check_forecast(t, 8, "data:2,pipeline:4", 1e9, 1e-6, &f);
    assert_int_equal(f.replicas, 2);
    assert_int_equal(f.stages, 4);
    assert_string_equal(f.split, "1,1,1,1");
    check_forecast(t, 0, NULL, 0, 0, &f); /* this one */
    assert_int_equal(f.replicas * f.stages, 1);
    rcv_forecast_options bad[] = {{.devices = 3, .parallel = "data", .bandwidth = 1},
                                  {.devices = 5, .parallel = "pipeline", .bandwidth = 1},
                                  {.devices = 2, .parallel = "data", .bandwidth = 0},
                                  {.devices = 2, .parallel = "data", .bandwidth = 1, .latency = -1}};
    static const char *const why[] = {"does not divide among 3", "4 layers cannot", "bandwidth above 0", "0 or more"};
    for (int i = 0; i < 4; i++) {
        bad[i].size = sizeof bad[i];
        check_fails(rcv_trainer_forecast(t, &bad[i], &f), RCV_INVALID, why[i]);
    }
    check_fails(rcv_trainer_forecast(NULL, NULL, &f), RCV_INVALID, "needs trainer");
    recorder w = {0}; /* a forecast does not change the run */
    rcv_trainer *other =
        train_fixture_trainer(&s, "hidden=8 layers=4 batch=4 length=4 optimiser=adam steps=3", "", train, NULL);
    rcv_trainer *same =
        train_fixture_trainer(&s, "hidden=8 layers=4 batch=4 length=4 optimiser=adam steps=3", "", train, NULL);
    check_forecast(same, 2, "pipeline", 1e30, 0, &f);
    check_ok(train_fixture_run(other, NULL, &w));
    w = (recorder){0};
    check_ok(train_fixture_run(same, NULL, &w));
    assert_true(train_fixture_same(other, same));
    rcv_trainer_free(same);
    rcv_trainer_free(other);
    rcv_trainer_free(t);
    train_fixture_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_arrangements), cmocka_unit_test(test_splits),
                                       cmocka_unit_test(test_shares), cmocka_unit_test(test_segments),
                                       cmocka_unit_test(test_forecast)};
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}
