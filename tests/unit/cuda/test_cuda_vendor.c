/* Calls of other sizes by cuDNN, with fake functions in its place: a resize that fails is repeated. */
#include "cuda_programs.h"
#include "device/cuda/cudnn/cudnn.h"

static struct {
    int calls, fail_at;      /* the call that fails, from 1; 0: none */
    int steps, batch, shape; /* of the descriptors: steps and batch of x, batch of the states */
    int built, builds;       /* the batch for which kernels were built last; how often */
    size_t work;             /* that the sizes need */
} fake;

static int may_fail(void) { return ++fake.calls == fake.fail_at; }

static int build(void *handle, void *rnn, int batch) {
    (void)handle, (void)rnn;
    if (may_fail()) return 1;
    fake.built = batch;
    fake.builds++;
    return 0;
}

static int describe_data(void *data, int type, int layout, int steps, int batch, int features, const int *lengths,
                         void *padding) {
    (void)data, (void)type, (void)layout, (void)features, (void)padding;
    assert_int_equal(lengths[batch - 1], steps);
    if (may_fail()) return 1;
    fake.steps = steps;
    fake.batch = batch;
    return 0;
}

static int describe_states(void *tensor, int type, int dims, const int *shape, const int *strides) {
    (void)tensor, (void)type, (void)strides;
    assert_int_equal(dims, 3);
    if (may_fail()) return 1;
    fake.shape = shape[1];
    return 0;
}

static int count_bytes(void *handle, void *rnn, int mode, void *x, size_t *work, size_t *reserve) {
    (void)handle, (void)rnn, (void)mode, (void)x;
    if (may_fail()) return 1;
    *work = *reserve = fake.work;
    return 0;
}

static const char *name_error(int status) { return status ? "this one fails" : "none"; }

static const rcvi_cudnn_api api = {.BuildRNNDynamic = build,
                                   .SetRNNDataDescriptor = describe_data,
                                   .SetTensorNdDescriptor = describe_states,
                                   .GetRNNTempSpaceSizes = count_bytes,
                                   .GetErrorString = name_error};

static void check_sizes(rcvi_cudnn *v, rcvi_sizes sizes) {
    int builds = fake.builds;
    bool compiles = rcvi_cudnn_must_compile(v, sizes);
    check_ok(rcvi_cudnn_resize(v, sizes));
    assert_int_equal(fake.builds - builds, compiles);
    assert_true(fake.steps == sizes.steps && fake.batch == sizes.batch && fake.shape == sizes.batch);
    assert_int_equal(fake.built, sizes.batch);
    assert_int_equal(v->ports[RCVI_CUDNN_X].rows, sizes.steps * sizes.batch);
}

/* Whichever function fails, a call with the new sizes, or again with those before, sets all of them. */
static void test_failed_resize(void **state) {
    (void)state;
    static const config c = {"lstm", {.input = 4, .hidden = 4, .layers = 1}, 9, 6, false, false, true};
    const rcvi_sizes most = {9, 6}, fewer = {5, 2};
    problem p;
    rcvi_program program;
    open_problem(&p, &c, 1);
    assert_true(write_program(&p, true, "naive", &program));
    program.rungs.algorithm = RCVI_CUDNN_DYNAMIC;
    for (int n = 0; n < 12; n++) {
        int lengths[6];
        rcvi_cudnn v = {
            .api = &api, .program = &program, .cell = RCVI_CUDNN_LSTM, .training = true, .lengths = lengths};
        v.work.bytes = v.reserve.bytes = 100;
        memset(&fake, 0, sizeof fake);
        fake.work = 100;
        check_sizes(&v, most);
        int calls = fake.calls;
        check_ok(rcvi_cudnn_resize(&v, most));
        assert_int_equal(fake.calls, calls); /* the sizes that it has */
        fake.fail_at = calls + 1 + n / 2;
        if (n / 2 == 5) fake.work = 101; /* more than there is */
        check_fails(rcvi_cudnn_resize(&v, fewer), RCV_UNSUPPORTED, "");
        fake.fail_at = 0;
        if (n / 2 == 5) check_fails(rcvi_cudnn_resize(&v, fewer), RCV_UNSUPPORTED, "more memory");
        fake.work = 100;
        check_sizes(&v, n % 2 ? most : fewer);
    }
    rcvi_program_free(&program);
    close_problem(&p);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_failed_resize)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
