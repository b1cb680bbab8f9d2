/* Seeds that a run reads where it was told they lie, in the place of those of the call. */
#include "plan/run.h"
#include "test.h"

enum { STEPS = 5, BATCH = 3, INPUT = 4, HIDDEN = 8, ROWS = STEPS * BATCH };

typedef struct {
    test_allocator counter;
    rcv_context *context;
    rcv_cell *cell;
    rcv_net *net;
    rcv_plan *plan;
    rcv_run *run;
    float *parameters, x[ROWS * INPUT], y[ROWS * HIDDEN];
} subject;

static void open_subject(subject *self) {
    self->context = test_context(&self->counter);
    rcv_net_options net = {.input = INPUT, .hidden = HIDDEN, .layers = 2, .dropout = 0.5};
    rcv_plan_options options = {
        .steps = STEPS, .batch = BATCH, .training = true, .lengths = true, .schedule = "combine+fuse+pack"};
    check_ok(rcv_cell_open(self->context, "gru", &self->cell));
    check_ok(rcv_net_new(self->cell, &net, &self->net));
    check_ok(rcv_plan_new(self->net, &options, &self->plan));
    check_ok(rcv_run_new(self->plan, &self->run));
    int64_t count = rcv_net_parameter_elements(self->net);
    self->parameters = malloc((size_t)count * sizeof(float));
    assert_non_null(self->parameters);
    for (int64_t i = 0; i < count; i++) self->parameters[i] = (float)(i * 7 % 13 - 6) / 16;
    for (int i = 0; i < ROWS * INPUT; i++) self->x[i] = (float)(i * 5 % 11 - 5) / 8;
}

static void close_subject(subject *self) {
    free(self->parameters);
    rcv_run_free(self->run);
    rcv_plan_free(self->plan);
    rcv_net_free(self->net);
    rcv_cell_free(self->cell);
    test_context_end(&self->counter, self->context);
}

static rcv_status call(subject *self, uint64_t seed, const int64_t *lengths) {
    rcv_forward forward = {
        .parameters = self->parameters, .x = self->x, .y = self->y, .seed = seed, .lengths = lengths};
    return rcv_run_forward(self->run, &forward);
}

static void where_they_lie(void **state) {
    (void)state;
    const int64_t all[BATCH] = {5, 5, 5};
    int64_t some[BATCH] = {5, 2, 4};
    uint64_t seed = 11;
    float want[ROWS * HIDDEN];
    subject self;
    open_subject(&self);
    check_ok(call(&self, seed, some));
    memcpy(want, self.y, sizeof want);
    check_ok(call(&self, 12, some));
    assert_memory_not_equal(self.y, want, sizeof want);
    check_ok(call(&self, seed, all));
    assert_memory_not_equal(self.y, want, sizeof want);
    rcvi_run_set_seed_at(self.run, &seed);
    check_ok(rcvi_run_announce(self.run, some)); /* which calls on the CPU do not need */
    check_ok(call(&self, 12, some));
    assert_memory_equal(self.y, want, sizeof want);
    seed = 12;
    check_ok(call(&self, 11, some)); /* what lies there now */
    assert_memory_not_equal(self.y, want, sizeof want);
    rcvi_run_set_seed_at(self.run, NULL);
    check_ok(call(&self, 11, some));
    assert_memory_equal(self.y, want, sizeof want);
    close_subject(&self);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(where_they_lie)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
