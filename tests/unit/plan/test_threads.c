/* One plan, several threads: each has its own run and its own message. */
#include "probe.h"

#include <pthread.h>

enum { THREADS = 4, ROUNDS = 30, STEPS = 6, BATCH = 3, INPUT = 5, HIDDEN = 8 };

typedef struct {
    const rcv_plan *plan;
    int64_t output, elements;
    const double *parameters;
    double x[STEPS * BATCH * INPUT], dy[STEPS * BATCH * HIDDEN];
    double *y, *gradient; /* of the last round */
    double *first_y, *first_gradient;
    bool failed;
} worker;

static void *work(void *user) {
    worker *w = user;
    rcv_run *run = NULL;
    size_t y_bytes = (size_t)(STEPS * BATCH * w->output) * sizeof(double), bytes = (size_t)w->elements * sizeof(double);
    w->failed = rcv_run_new(w->plan, &run) != RCV_OK;
    for (int round = 0; round < ROUNDS && !w->failed; round++) {
        memset(w->y, 0xff, y_bytes);
        memset(w->gradient, 0xff, bytes);
        rcv_forward forward = RCV_INIT(rcv_forward, .parameters = w->parameters, .x = w->x, .y = w->y);
        rcv_backward backward = RCV_INIT(rcv_backward, .dy = w->dy, .dparameters = w->gradient);
        w->failed = rcv_run_forward(run, &forward) != RCV_OK || rcv_run_backward(run, &backward) != RCV_OK;
        if (round == 0) {
            memcpy(w->first_y, w->y, y_bytes);
            memcpy(w->first_gradient, w->gradient, bytes);
        }
        w->failed |= memcmp(w->y, w->first_y, y_bytes) || memcmp(w->gradient, w->first_gradient, bytes);
    }
    rcv_run_free(run);
    return NULL;
}

static double *numbers(int64_t count) {
    double *memory = calloc((size_t)count, sizeof *memory);
    assert_non_null(memory);
    return memory;
}

static void test_shared_plan(void **state) {
    (void)state;
    rcv_context *context = NULL;
    rcv_cell *cell = NULL;
    rcv_net *net = NULL;
    rcv_plan *plan = NULL;
    check_ok(rcv_context_new(NULL, &context));
    check_ok(rcv_cell_open(context, "lstm", &cell));
    check_ok(rcv_net_new(cell, &RCV_INIT(rcv_net_options, .input = INPUT, .hidden = HIDDEN, .layers = 2), &net));
    check_ok(rcv_plan_new(
        net, &RCV_INIT(rcv_plan_options, .steps = STEPS, .batch = BATCH, .dtype = RCV_FLOAT64, .training = true),
        &plan));
    int64_t elements = rcv_net_parameter_elements(net), output = STEPS * BATCH * HIDDEN;
    double *parameters = numbers(elements);
    check_ok(rcv_net_initialize(net, 3, RCV_FLOAT64, parameters));
    static worker workers[THREADS], serial[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        random_source source = {(uint64_t)i};
        worker w = {.plan = plan, .output = HIDDEN, .elements = elements, .parameters = parameters};
        for (size_t k = 0; k < sizeof w.x / sizeof *w.x; k++) w.x[k] = random_between(&source, -1, 1);
        for (size_t k = 0; k < sizeof w.dy / sizeof *w.dy; k++) w.dy[k] = random_between(&source, -1, 1);
        for (int copy = 0; copy < 2; copy++) {
            w.y = numbers(output);
            w.first_y = numbers(output);
            w.gradient = numbers(elements);
            w.first_gradient = numbers(elements);
            *(copy ? &serial[i] : &workers[i]) = w;
        }
        work(&serial[i]);
        assert_false(serial[i].failed);
    }
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (int i = 0; i < THREADS; i++) {
        assert_false(workers[i].failed);
        assert_memory_equal(workers[i].y, serial[i].y, (size_t)output * sizeof(double));
        assert_memory_equal(workers[i].gradient, serial[i].gradient, (size_t)elements * sizeof(double));
        assert_memory_not_equal(workers[i].y, serial[(i + 1) % THREADS].y, (size_t)output * sizeof(double));
        for (int copy = 0; copy < 2; copy++) {
            worker *w = copy ? &serial[i] : &workers[i];
            free(w->y);
            free(w->first_y);
            free(w->gradient);
            free(w->first_gradient);
        }
    }
    free(parameters);
    rcv_plan_free(plan);
    rcv_net_free(net);
    rcv_cell_free(cell);
    rcv_context_free(context);
}

/* Another thread's failure leaves this one's message alone. */
static void *fail_elsewhere(void *user) {
    rcv_cell *cell = NULL;
    bool *seen = user;
    *seen = rcv_cell_open(NULL, NULL, &cell) == RCV_INVALID && strstr(rcv_message(), "rcv_cell_open needs") != NULL;
    return NULL;
}

static void test_messages(void **state) {
    (void)state;
    pthread_t thread;
    bool seen = false;
    check_fails(rcv_plan_new(NULL, NULL, &(rcv_plan *){NULL}), RCV_INVALID, "rcv_plan_new needs");
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, &seen), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(seen);
    assert_non_null(strstr(rcv_message(), "rcv_plan_new needs"));
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_shared_plan), cmocka_unit_test(test_messages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
