/* Buckets: the optimum against exhaustive search, greedy against the optimum, costs against values computed by hand. */
#include "test.h"

#include "base/random.h"
#include "data/data.h"

#include <math.h>

enum { LONGEST = 5000 };

typedef struct {
    test_allocator allocator;
    rcv_context *context;
    int64_t counts[LONGEST + 1];
    rcvi_histogram histogram;
} fixture;

static void open_fixture(fixture *f) {
    memset(f->counts, 0, sizeof f->counts);
    f->context = test_context(&f->allocator);
    f->histogram = (rcvi_histogram){.counts = f->counts};
}

static void put(fixture *f, int64_t length, int64_t count) {
    f->counts[length] += count;
    f->histogram.sequences += count;
    f->histogram.tokens += length * count;
    if (length > f->histogram.longest) f->histogram.longest = length;
}

/* `different` lengths up to `longest`, some more often than others. */
static void fill(fixture *f, uint64_t seed, int different, int64_t longest) {
    memset(f->counts, 0, sizeof f->counts);
    f->histogram = (rcvi_histogram){.counts = f->counts};
    for (int i = 0; i < different; i++) {
        int64_t length = 1 + (int64_t)(rcvi_hash_uniform(seed, (uint64_t)(2 * i)) * (double)longest);
        double uniform = rcvi_hash_uniform(seed, (uint64_t)(2 * i + 1));
        put(f, length, 1 + (int64_t)(200 * uniform * uniform * uniform));
    }
}

/* A step costs the more a sequence the smaller the batch, and every batch something. */
static double steps_and_more(void *user, int64_t steps, int64_t batch) {
    int *calls = user;
    (*calls)++;
    return 3 + (double)steps * (2 + sqrt((double)batch));
}

static void check_bounds(const fixture *f, const rcvi_bucket_options *options, const int64_t *bounds, size_t count) {
    assert_in_range(count, 1, options->most);
    for (size_t i = 1; i < count; i++) assert_true(bounds[i] > bounds[i - 1]);
    assert_int_equal(bounds[count - 1], f->histogram.longest);
}

/* The least cost of all ways to choose at most `most` of the different lengths. */
static double by_force(const fixture *f, const rcvi_bucket_options *options) {
    int64_t lengths[16], bounds[16];
    size_t different = 0;
    for (int64_t i = 1; i <= f->histogram.longest; i++) {
        if (f->counts[i] > 0) lengths[different++] = i;
    }
    double best = INFINITY;
    for (unsigned chosen = 0; chosen < 1u << (different - 1); chosen++) {
        size_t count = 0;
        for (size_t i = 0; i < different; i++) {
            if (i == different - 1 || (chosen >> i & 1)) bounds[count++] = lengths[i];
        }
        if (count > options->most) continue;
        double cost = rcvi_buckets_cost(&f->histogram, options, bounds, count);
        if (cost < best) best = cost;
    }
    return best;
}

static void test_cost(void **unused) {
    (void)unused;
    fixture f;
    open_fixture(&f);
    put(&f, 2, 5);
    put(&f, 3, 4);
    put(&f, 7, 1);
    const int64_t bounds[] = {3, 7};
    rcvi_bucket_options options = {.most = 2, .batch = 4};
    assert_true(rcvi_buckets_cost(&f.histogram, &options, bounds, 2) == 9 * 3 + 7);
    int calls = 0;
    options.cost = steps_and_more;
    options.user = &calls;
    /* One batch of 4 has the longest and 3 others, which leave 6 to 2 batches. */
    assert_true(fabs(rcvi_buckets_cost(&f.histogram, &options, bounds, 2) - (2 * (3 + 3 * 4) + 3 + 7 * 4)) < 1e-9);
    options.batch = 0;
    options.tokens = 14; /* 4 sequences of 3, 2 of 7 */
    double expected = 3 * (3 + 3 * 4) + 3 + 7 * (2 + sqrt(2));
    assert_true(fabs(rcvi_buckets_cost(&f.histogram, &options, bounds, 2) - expected) < 1e-9);
    test_context_end(&f.allocator, f.context);
}

static void test_optimum(void **unused) {
    (void)unused;
    fixture f;
    open_fixture(&f);
    int better = 0, calls = 0;
    for (uint64_t seed = 0; seed < 400; seed++) {
        const bool small = seed % 2 == 0;
        fill(&f, seed, small ? 2 + (int)(seed % 11) : 150, small ? 30 : 400);
        const rcvi_bucket_options options = {.most = 1 + seed % 7,
                                             .batch = 1 + (int64_t)seed % 20,
                                             .tokens = seed % 3 == 0 ? 200 : 0,
                                             .cost = seed % 4 < 2 ? steps_and_more : NULL,
                                             .user = &calls};
        int64_t greedy[8], best[8];
        size_t greedy_count = 0, best_count = 0;
        check_ok(rcvi_buckets_greedy(f.context, &f.histogram, &options, greedy, &greedy_count));
        check_ok(rcvi_buckets_best(f.context, &f.histogram, &options, best, &best_count));
        check_bounds(&f, &options, greedy, greedy_count);
        check_bounds(&f, &options, best, best_count);
        const double cost = rcvi_buckets_cost(&f.histogram, &options, best, best_count);
        const double other = rcvi_buckets_cost(&f.histogram, &options, greedy, greedy_count);
        assert_true(cost <= other * (1 + 1e-12));
        better += cost < other;
        if (small) assert_true(fabs(cost - by_force(&f, &options)) <= 1e-9 * cost);
    }
    assert_true(calls > 0);
    assert_true(better > 20); /* else greedy is the optimum, and nothing was compared */
    test_context_end(&f.allocator, f.context);
}

/* Merging 1 and 2 costs 10, 2 and 9 then 14 more, 9 and 10 only 3. */
static void test_greedy(void **unused) {
    (void)unused;
    static const int64_t lengths[] = {1, 2, 9, 10}, counts[] = {10, 2, 3, 50};
    static const int64_t expected[][3] = {{2, 10}, {1, 2, 10}};
    fixture f;
    open_fixture(&f);
    for (int i = 0; i < 4; i++) put(&f, lengths[i], counts[i]);
    for (size_t most = 2; most <= 3; most++) {
        int64_t bounds[3];
        size_t count = 0;
        check_ok(rcvi_buckets_greedy(f.context, &f.histogram, &(rcvi_bucket_options){.most = most}, bounds, &count));
        assert_int_equal(count, most);
        assert_memory_equal(bounds, expected[most - 2], most * sizeof *bounds);
    }
    test_context_end(&f.allocator, f.context);
}

/* More distinct lengths than groups. */
static void test_many_lengths(void **unused) {
    (void)unused;
    fixture f;
    open_fixture(&f);
    for (int64_t i = 1; i <= LONGEST; i++) put(&f, i, 1 + LONGEST / i);
    int64_t bounds[RCV_MOST_BUCKETS];
    size_t count = 0;
    rcvi_bucket_options options = {.most = RCV_MOST_BUCKETS};
    check_ok(rcvi_buckets_best(f.context, &f.histogram, &options, bounds, &count));
    check_bounds(&f, &options, bounds, count);
    assert_int_equal(count, RCV_MOST_BUCKETS);
    assert_true(rcvi_buckets_cost(&f.histogram, &options, bounds, count) < 1.05 * (double)f.histogram.tokens);
    check_ok(rcvi_buckets_greedy(f.context, &f.histogram, &options, bounds, &count));
    check_bounds(&f, &options, bounds, count);
    test_context_end(&f.allocator, f.context);
}

static void test_wrong(void **unused) {
    (void)unused;
    fixture f;
    open_fixture(&f);
    int64_t bounds[RCV_MOST_BUCKETS];
    size_t count;
    int calls = 0;
    rcvi_bucket_options options = {.most = 3};
    check_fails(rcvi_buckets_best(f.context, &f.histogram, &options, bounds, &count), RCV_INVALID, "no sequences");
    put(&f, 4, 2);
    check_ok(rcvi_buckets_best(f.context, &f.histogram, &options, bounds, &count));
    assert_int_equal(count, 1);
    options.cost = steps_and_more;
    options.user = &calls;
    check_fails(rcvi_buckets_best(f.context, &f.histogram, &options, bounds, &count), RCV_INVALID,
                "how many sequences");
    options.most = RCV_MOST_BUCKETS + 1;
    check_fails(rcvi_buckets_greedy(f.context, &f.histogram, &options, bounds, &count), RCV_INVALID, "65 buckets");
    test_context_end(&f.allocator, f.context);
}

static void test_no_memory(void **unused) {
    (void)unused;
    fixture f;
    open_fixture(&f);
    fill(&f, 1, 30, 100);
    const rcvi_bucket_options options = {.most = 4};
    int64_t bounds[4];
    size_t count = 0;
    for (int which = 0; which < 2; which++) {
        size_t tried = 0;
        for (rcv_status status = RCV_NO_MEMORY; status != RCV_OK;) {
            const size_t live = f.allocator.live, failed = f.allocator.failed;
            f.allocator.fail_at = ++tried;
            status =
                (which ? rcvi_buckets_best : rcvi_buckets_greedy)(f.context, &f.histogram, &options, bounds, &count);
            f.allocator.fail_at = 0;
            assert_int_equal(status, f.allocator.failed > failed ? RCV_NO_MEMORY : RCV_OK);
            assert_int_equal(f.allocator.live, live);
        }
        assert_true(tried > 2);
    }
    test_context_end(&f.allocator, f.context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cost),         cmocka_unit_test(test_greedy), cmocka_unit_test(test_optimum),
        cmocka_unit_test(test_many_lengths), cmocka_unit_test(test_wrong),  cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
