/* Runs that read their seed from an address instead of the call's data, and runs that share the arena of another. */
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
    rcv_net_options net = RCV_INIT(rcv_net_options, .input = INPUT, .hidden = HIDDEN, .layers = 2, .dropout = 0.5);
    rcv_plan_options options = RCV_INIT(rcv_plan_options, .steps = STEPS, .batch = BATCH, .training = true,
                                        .lengths = true, .schedule = "combine+fuse+pack");
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
    rcv_forward forward = RCV_INIT(rcv_forward, .parameters = self->parameters, .x = self->x, .y = self->y,
                                   .seed = seed, .lengths = lengths);
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
    check_ok(rcvi_run_set_lengths(self.run, some)); /* which calls on the CPU do not need */
    check_ok(call(&self, 12, some));
    assert_memory_equal(self.y, want, sizeof want);
    seed = 12;
    check_ok(call(&self, 11, some)); /* what is stored there now */
    assert_memory_not_equal(self.y, want, sizeof want);
    rcvi_run_set_seed_at(self.run, NULL);
    check_ok(call(&self, 11, some));
    assert_memory_equal(self.y, want, sizeof want);
    close_subject(&self);
}

/* Forward and backward calls of a shorter run; dx comes back. */
static void call_short(subject *self, rcv_run *run, float dx[ROWS * INPUT]) {
    const int64_t lengths[BATCH] = {2, 3, 1};
    float y[ROWS * HIDDEN] = {0}, dy[ROWS * HIDDEN];
    for (int i = 0; i < ROWS * HIDDEN; i++) dy[i] = (float)(i % 7) - 3;
    rcv_forward forward =
        RCV_INIT(rcv_forward, .parameters = self->parameters, .x = self->x, .y = y, .seed = 4, .lengths = lengths);
    rcv_backward backward = RCV_INIT(rcv_backward, .dy = dy, .dx = dx);
    check_ok(rcv_run_forward(run, &forward));
    check_ok(rcv_run_backward(run, &backward));
}

static void in_the_memory_of_another(void **state) {
    (void)state;
    const int64_t lengths[BATCH] = {5, 2, 4};
    subject self;
    open_subject(&self);
    rcv_plan_options options = RCV_INIT(rcv_plan_options, .steps = 3, .batch = BATCH, .training = true, .lengths = true,
                                        .schedule = "combine+fuse+pack");
    rcv_plan *plan;
    rcv_run *alone, *guest, *larger;
    check_ok(rcv_plan_new(self.net, &options, &plan));
    check_ok(rcv_run_new(plan, &alone));
    check_ok(rcvi_run_new_sharing_arena(plan, self.run, &guest));
    assert_true(rcv_run_bytes(guest) < rcv_run_bytes(alone) / 2);
    check_ok(rcvi_run_new_sharing_arena(self.plan, alone, &larger)); /* does not fit, so it has memory of its own */
    assert_int_equal(rcv_run_bytes(larger), rcv_run_bytes(self.run));
    rcv_run_free(larger);
    float want[ROWS * INPUT] = {0}, got[ROWS * INPUT] = {0}, y[ROWS * HIDDEN];
    call_short(&self, alone, want);
    check_ok(call(&self, 9, lengths));
    memcpy(y, self.y, sizeof y);
    for (int i = 0; i < 3; i++) { /* in turns */
        check_ok(rcvi_run_reset(guest));
        memset(got, 0, sizeof got);
        call_short(&self, guest, got);
        assert_memory_equal(got, want, sizeof want);
        check_ok(rcvi_run_reset(self.run));
        check_ok(call(&self, 9, lengths));
        assert_memory_equal(self.y, y, sizeof y);
    }
    rcv_backward backward = RCV_INIT(rcv_backward, .dy = y);
    check_ok(rcvi_run_reset(self.run)); /* what the forward call kept is not to be relied on */
    check_fails(rcv_run_backward(self.run, &backward), RCV_INVALID, "needs a forward call before it");
    rcv_run_free(guest);
    rcv_run_free(alone);
    rcv_plan_free(plan);
    close_subject(&self);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(where_they_lie), cmocka_unit_test(in_the_memory_of_another)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
