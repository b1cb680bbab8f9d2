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

typedef struct {
    float y[ROWS * HIDDEN], dx[ROWS * INPUT];
} outcome;

static const int64_t full[BATCH] = {5, 3, 4};

static outcome both_calls(subject *self, rcv_run *run, rcv_forward *forward, uint64_t *seed_at, uint64_t later) {
    outcome o = {.y = {0}};
    float dy[ROWS * HIDDEN];
    for (int i = 0; i < ROWS * HIDDEN; i++) dy[i] = (float)(i % 7) - 3;
    forward->parameters = self->parameters;
    forward->x = self->x;
    forward->y = o.y;
    forward->lengths = full;
    forward->seed_at = seed_at;
    rcv_backward backward = RCV_INIT(rcv_backward, .dy = dy, .dx = o.dx);
    check_ok(rcv_run_forward(run, forward));
    if (seed_at) *seed_at = later;
    check_ok(rcv_run_backward(run, &backward));
    return o;
}

/* A forward call reads the seed where it lies; the backward call uses what was read. */
static void seed_of_a_call(void **state) {
    (void)state;
    subject self;
    open_subject(&self);
    rcv_forward forward = RCV_INIT(rcv_forward, .seed = 11);
    uint64_t there = 11, other = 99;
    outcome want = both_calls(&self, self.run, &forward, NULL, 0);
    forward.seed = 12;
    outcome twelve = both_calls(&self, self.run, &forward, NULL, 0);
    assert_memory_not_equal(want.dx, twelve.dx, sizeof want.dx);
    outcome got = both_calls(&self, self.run, &forward, &there, 12);
    assert_memory_equal(&got, &want, sizeof want);
    rcvi_run_set_seed_at(self.run, &other); /* for calls that do not say where */
    there = 11;
    got = both_calls(&self, self.run, &forward, &there, 12);
    assert_memory_equal(&got, &want, sizeof want);
    other = 12;
    forward.seed = 3;
    got = both_calls(&self, self.run, &forward, NULL, 0);
    assert_memory_equal(&got, &twelve, sizeof want);
    rcvi_run_set_seed_at(self.run, NULL);
    there = 11; /* a backward call that names the forward call, after the seed has changed */
    got = both_calls(&self, self.run, &forward, &there, 12);
    float dy[ROWS * HIDDEN], again[ROWS * INPUT] = {0};
    for (int i = 0; i < ROWS * HIDDEN; i++) dy[i] = (float)(i % 7) - 3;
    rcv_backward named = RCV_INIT(rcv_backward, .dy = dy, .dx = again, .forward = &forward);
    forward.y = self.y;
    check_ok(rcv_run_backward(self.run, &named));
    assert_memory_equal(again, want.dx, sizeof want.dx);
    forward.y = &there;
    check_fails(rcv_run_forward(self.run, &forward), RCV_INVALID, "y overlaps seed_at");
    forward.y = self.y;
    forward.seed_at = (const uint64_t *)(const void *)((const char *)self.x + 4);
    check_fails(rcv_run_forward(self.run, &forward), RCV_INVALID, "multiple of 8 bytes");
    close_subject(&self);
}

/* Each reserve keeps the seed of its forward call. */
static void seeds_of_reserves(void **state) {
    (void)state;
    enum { CALLS = 3 };
    subject self;
    rcv_plan *plan = NULL;
    rcv_run *run = NULL;
    open_subject(&self);
    rcv_plan_options options = RCV_INIT(rcv_plan_options, .steps = STEPS, .batch = BATCH, .training = true,
                                        .lengths = true, .reserve = true, .schedule = "combine+fuse+pack");
    check_ok(rcv_plan_new(self.net, &options, &plan));
    check_ok(rcv_run_new(plan, &run));
    outcome want[CALLS], got[CALLS];
    rcv_forward forward[CALLS];
    char *reserves[CALLS];
    float dy[ROWS * HIDDEN];
    uint64_t there;
    memset(got, 0, sizeof got);
    for (int i = 0; i < ROWS * HIDDEN; i++) dy[i] = (float)(i % 7) - 3;
    for (int c = 0; c < CALLS; c++) {
        size_t bytes = rcv_plan_reserve_bytes(plan);
        forward[c] = RCV_INIT(rcv_forward, .seed = 20 + (uint64_t)c);
        want[c] = both_calls(&self, self.run, &forward[c], NULL, 0);
        reserves[c] = aligned_alloc(256, bytes + 256);
        assert_non_null(reserves[c]);
        memset(reserves[c] + bytes, 0x5a, 256);
        there = 20 + (uint64_t)c;
        forward[c].seed = 7;
        forward[c].seed_at = &there;
        forward[c].reserve = reserves[c];
        forward[c].y = got[c].y;
        check_ok(rcv_run_forward(run, &forward[c]));
    }
    for (int c = CALLS; c-- > 0;) {
        rcv_backward backward = RCV_INIT(rcv_backward, .dy = dy, .dx = got[c].dx, .forward = &forward[c]);
        check_ok(rcv_run_backward(run, &backward));
        assert_memory_equal(&got[c], &want[c], sizeof want[c]);
        for (int i = 0; i < 256; i++) assert_int_equal(reserves[c][rcv_plan_reserve_bytes(plan) + (size_t)i], 0x5a);
        free(reserves[c]);
    }
    rcv_run_free(run);
    rcv_plan_free(plan);
    close_subject(&self);
}

/* Lengths that are not checked count as the nearest of 1 .. steps; what is the caller's stays as it is. */
static void lengths_in_its_memory(void **state) {
    (void)state;
    subject self;
    rcv_plan *plan = NULL;
    rcv_run *run = NULL;
    open_subject(&self);
    rcv_plan_options options = RCV_INIT(rcv_plan_options, .steps = STEPS, .batch = BATCH, .training = true,
                                        .device_lengths = true, .schedule = "combine+fuse+pack");
    check_fails(rcv_plan_new(self.net, &options, &plan), RCV_INVALID, "set lengths, too");
    options.lengths = true;
    check_ok(rcv_plan_new(self.net, &options, &plan));
    check_ok(rcv_run_new(plan, &run));
    assert_int_equal(rcv_run_bytes(run), rcv_plan_bytes(plan));
    int64_t given[][BATCH] = {{5, 3, 1}, {9, 3, 0}, {INT64_MAX, 3, INT64_MIN}, {6, 3, -1}}, four[BATCH] = {4, 3, 1};
    float want[2][ROWS * INPUT] = {{0}}, dx[ROWS * INPUT], y[ROWS * HIDDEN], dy[ROWS * HIDDEN];
    for (int i = 0; i < ROWS * HIDDEN; i++) dy[i] = (float)(i % 5) - 2;
    for (int i = 0; i < 8; i++) {
        int64_t *lengths = given[i % 4], before[BATCH], steps = i < 4 ? STEPS : STEPS - 1;
        memcpy(before, lengths, sizeof before);
        rcv_forward forward = RCV_INIT(rcv_forward, .parameters = self.parameters, .x = self.x, .y = y, .seed = 4,
                                       .lengths = i % 4 ? lengths
                                                  : i   ? four
                                                        : given[0],
                                       .steps = steps);
        rcv_backward backward = RCV_INIT(rcv_backward, .dy = dy, .dx = dx);
        memset(dx, 0, sizeof dx);
        check_ok(rcv_run_forward(i % 4 ? run : self.run, &forward));
        if (i % 2) backward.forward = &forward;
        check_ok(rcv_run_backward(i % 4 ? run : self.run, &backward));
        if (i % 4 == 0) memcpy(want[i / 4], dx, sizeof dx);
        assert_memory_equal(dx, want[i / 4], sizeof dx);
        assert_memory_equal(lengths, before, sizeof before);
        if (i % 4 == 0) continue;
        backward.dx = lengths;
        check_fails(rcv_run_backward(run, &backward), RCV_INVALID, "dx overlaps lengths");
        forward.y = lengths;
        check_fails(rcv_run_forward(run, &forward), RCV_INVALID, "y overlaps lengths");
        if (i == 1) check_fails(rcv_run_forward(self.run, &forward), RCV_INVALID, "not in 1 to 5");
    }
    assert_memory_not_equal(want[0], want[1], sizeof want[0]);
    rcv_run_free(run);
    rcv_plan_free(plan);
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
    const struct CMUnitTest tests[] = {cmocka_unit_test(where_they_lie), cmocka_unit_test(seed_of_a_call),
                                       cmocka_unit_test(seeds_of_reserves), cmocka_unit_test(lengths_in_its_memory),
                                       cmocka_unit_test(in_the_memory_of_another)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
