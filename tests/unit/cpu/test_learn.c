/* Tests of embedding, output layer, loss and update on the CPU: all cases in every type with few and many threads, the same bits with
 * any number of threads, and the calls that are refused. */
#include "learn/learn_cases.h"
#include "sample.h"

#include "base/base.h"

static const int64_t threads[] = {1, 2, 5};
enum { THREADS = sizeof threads / sizeof *threads };

static void check_type(rcv_dtype dtype) {
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    for (int i = 0; i < THREADS; i++) {
        if (sample_is_partial() && i > 0 && !sample_takes((size_t)(THREADS * (int)dtype + i))) continue;
        learn_subject subject = {context, &rcvi_device_cpu, 0, dtype, threads[i], false, 0};
        learn_cases_run(&subject);
    }
    test_context_end(&counter, context);
}

static void in_double(void **state) {
    (void)state;
    check_type(RCV_FLOAT64);
}
static void in_float(void **state) {
    (void)state;
    check_type(RCV_FLOAT32);
}
static void in_bfloat16(void **state) {
    (void)state;
    check_type(RCV_BFLOAT16);
}

static void bits_do_not_depend_on_threads(void **state) {
    (void)state;
    static const rcv_dtype dtypes[] = {RCV_FLOAT64, RCV_FLOAT32, RCV_BFLOAT16};
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    for (int t = 0; t < 3; t++) {
        learn_subject subject = {context, &rcvi_device_cpu, 0, dtypes[t], 1, false, 0};
        uint64_t alone = learn_digest(&subject);
        for (int i = 1; i < THREADS; i++) {
            subject.threads = threads[i];
            assert_true(learn_digest(&subject) == alone);
        }
    }
    test_context_end(&counter, context);
}

/* ---- invalid arguments ---- */

static const rcvi_learn_shape good = {
    .dtype = RCV_FLOAT32, .threads = 2, .rows = 8, .features = 3, .classes = 5, .training = true};

static void memory_may_run_out(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    const rcvi_learn_table *calls = rcvi_device_cpu.learn;
    size_t live = counter.live, failures = 0;
    rcvi_learn *learn = NULL;
    for (size_t n = 1;; n++, failures++) {
        counter.fail_at = n;
        rcv_status status = calls->open(context, 0, &good, &learn);
        if (status == RCV_OK) break;
        assert_int_equal(status, RCV_NO_MEMORY);
        assert_null(learn);
        assert_int_equal(counter.live, live);
    }
    counter.fail_at = 0;
    assert_int_equal(counter.failed, failures);
    assert_int_equal(failures, 3);
    assert_true(calls->bytes(learn) > calls->head_bytes(learn));
    assert_null(calls->stream(learn));
    calls->close(learn);
    calls->close(NULL);
    test_context_end(&counter, context);
}

static void refuse(rcv_context *context, rcvi_learn_shape shape, rcv_status status, const char *fragment) {
    rcvi_learn *learn = NULL;
    check_fails(rcvi_device_cpu.learn->open(context, 0, &shape, &learn), status, fragment);
    assert_null(learn);
}

static void shapes_are_checked(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    rcvi_learn_shape shape = good;
    shape.threads = -1, refuse(context, shape, RCV_INVALID, "threads must be 1 to 1024, not -1");
    shape.threads = RCVI_MAX_THREADS + 1, refuse(context, shape, RCV_INVALID, "not 1025");
    shape = good, shape.dtype = RCV_FLOAT16, refuse(context, shape, RCV_INVALID, "float16");
    shape = good, shape.rows = 0, refuse(context, shape, RCV_INVALID, "at least 1");
    shape = good, shape.features = 0, refuse(context, shape, RCV_INVALID, "at least 1");
    shape = good, shape.classes = -5, refuse(context, shape, RCV_INVALID, "not 8, 3, -5, 0");
    shape = good, shape.chunk = -1, refuse(context, shape, RCV_INVALID, "a chunk 0 or more");
    shape = good, shape.rows = INT64_MAX, refuse(context, shape, RCV_INVALID, "too many to be counted");
    shape = good, shape.classes = INT64_MAX / 3, refuse(context, shape, RCV_INVALID, "too many to be counted");
    shape = good, shape.features = shape.classes = INT64_C(1) << 32;
    refuse(context, shape, RCV_INVALID, "too many to be counted");
    shape = good, shape.lean = true, refuse(context, shape, RCV_UNSUPPORTED, "lean learning is for GPUs");
    test_context_end(&counter, context);
}

static void calls_are_checked(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    const rcvi_learn_table *calls = rcvi_device_cpu.learn;
    rcvi_learn *learn = NULL;
    rcvi_learn_shape shape = good;
    shape.training = false;
    check_ok(calls->open(context, 0, &shape, &learn));
    float y[8 * 3] = {0}, weight[5 * 3] = {0}, out[1];
    int32_t targets[8] = {0};
    rcvi_control control = {.weight = 1, .scale = 1};
    rcvi_outcome outcome = {0};
    rcvi_head head = {.rows = 9, .y = y, .weight = weight, .targets = targets};
    check_fails(calls->head(learn, &head, &control, &outcome), RCV_INVALID, "9 rows");
    check_fails(calls->logits(learn, &head, out), RCV_INVALID, "9 rows");
    head.rows = 8;
    head.dy = y;
    check_fails(calls->head(learn, &head, &control, &outcome), RCV_INVALID, "not opened for training");
    head.dy = NULL;
    head.targets = NULL;
    check_fails(calls->head(learn, &head, &control, &outcome), RCV_INVALID, "targets or values");
    rcvi_update update = {.part_count = RCVI_MAX_UPDATE_PARTS + 1};
    check_fails(calls->update(learn, &update, &control, &outcome), RCV_INVALID, "at most 8 parts, not 9");
    update = (rcvi_update){.kind = RCVI_SGD, .head = &head};
    check_fails(calls->update(learn, &update, &control, &outcome), RCV_INVALID, "opened as lean");
    calls->close(learn);
    test_context_end(&counter, context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(in_double),          cmocka_unit_test(in_float),
        cmocka_unit_test(in_bfloat16),        cmocka_unit_test(bits_do_not_depend_on_threads),
        cmocka_unit_test(memory_may_run_out), cmocka_unit_test(shapes_are_checked),
        cmocka_unit_test(calls_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
