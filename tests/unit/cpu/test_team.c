/* Tests of the thread team: no member passes a barrier early, writes before a barrier are visible after it, and nothing leaks. */
#include "recurve_bench.h"
#include "test.h"

#include "device/cpu/engine/team.h"

#include <fenv.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

enum { MOST = 8 };

typedef struct {
    rcvi_team *team;
    int rounds;
    int slot[MOST]; /* plain memory: only the barrier makes it visible */
    int wrong[MOST];
    int calls[MOST];
} shared;

static void sleep_for(long nanoseconds) { nanosleep(&(struct timespec){.tv_nsec = nanoseconds}, NULL); }

/* In each round every member writes its slot, and after the barrier reads all slots. */
static void write_and_read(void *user, int member) {
    shared *self = user;
    int threads = rcvi_team_threads(self->team);
    for (int round = 1; round <= self->rounds; round++) {
        self->slot[member] = round;
        rcvi_team_barrier(self->team, member);
        for (int i = 0; i < threads; i++) self->wrong[member] += self->slot[i] != round;
        rcvi_team_barrier(self->team, member);
    }
}

static void barrier_keeps_rounds_apart(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    for (int threads = 1; threads <= MOST; threads++) {
        shared self = {.rounds = threads <= 2 ? 20000 : 500};
        check_ok(rcvi_team_new(context, threads, &self.team));
        assert_int_equal(rcvi_team_threads(self.team), threads);
        rcvi_team_call(self.team, write_and_read, &self);
        for (int i = 0; i < threads; i++) {
            assert_int_equal(self.wrong[i], 0);
            assert_int_equal(self.slot[i], self.rounds);
        }
        rcvi_team_free(self.team);
    }
    test_context_end(&counter, context);
}

/* One member after another arrives late: the others wait longer than they spin, and sleep. */
static void arrive_late(void *user, int member) {
    shared *self = user;
    int threads = rcvi_team_threads(self->team);
    for (int round = 1; round <= self->rounds; round++) {
        if (round % threads == member) sleep_for(round % 4 == 0 ? 3000000 : 200000);
        self->slot[member] = round;
        rcvi_team_barrier(self->team, member);
        for (int i = 0; i < threads; i++) self->wrong[member] += self->slot[i] != round;
        rcvi_team_barrier(self->team, member);
    }
}

static void barrier_waits_for_late_members(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    for (int threads = 2; threads <= 5; threads += 3) {
        shared self = {.rounds = 40};
        check_ok(rcvi_team_new(context, threads, &self.team));
        rcvi_team_call(self.team, arrive_late, &self);
        for (int i = 0; i < threads; i++) assert_int_equal(self.wrong[i], 0);
        rcvi_team_free(self.team);
    }
    test_context_end(&counter, context);
}

static void count_call(void *user, int member) {
    shared *self = user;
    self->wrong[member] += self->calls[member] != self->rounds; /* written by the caller before the call */
    self->calls[member]++;
}

/* Calls in quick succession, and calls while the members sleep. */
static void calls_reach_all_members(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    for (int threads = 1; threads <= MOST; threads++) {
        shared self = {.rounds = 0};
        check_ok(rcvi_team_new(context, threads, &self.team));
        int calls = threads <= 2 ? 20000 : 300;
        for (int call = 0; call < calls; call++) {
            self.rounds = call;
            rcvi_team_call(self.team, count_call, &self);
            for (int i = 0; i < threads; i++) assert_int_equal(self.calls[i], call + 1);
            if (call % (calls / 20) == 0) sleep_for(400000);
            if (call % (calls / 20) == 1)
                sleep_for(90000 + 1000 * (call % 29)); /* about as long as members spin before they sleep */
        }
        for (int i = 0; i < threads; i++) assert_int_equal(self.wrong[i], 0);
        rcvi_team_free(self.team);
    }
    test_context_end(&counter, context);
}

static void teams_are_created_and_freed(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    for (int i = 0; i < 300; i++) {
        shared self = {.rounds = 2};
        check_ok(rcvi_team_new(context, 1 + i % 4, &self.team));
        if (i % 3 != 0) rcvi_team_call(self.team, write_and_read, &self);
        if (i % 50 == 0) sleep_for(300000);
        rcvi_team_free(self.team);
    }
    rcvi_team_free(NULL);
    test_context_end(&counter, context);
}

typedef struct {
    int rounding[MOST];
    int blocked[MOST];
} environment;

static void read_environment(void *user, int member) {
    environment *self = user;
    sigset_t signals;
    pthread_sigmask(SIG_SETMASK, NULL, &signals);
    self->rounding[member] = fegetround();
    self->blocked[member] = sigismember(&signals, SIGINT) && sigismember(&signals, SIGALRM);
}

static void members_round_as_the_caller_and_take_no_signals(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    rcvi_team *team;
    check_ok(rcvi_team_new(context, 3, &team));
    environment self;
    const int modes[] = {FE_UPWARD, FE_TONEAREST};
    for (int i = 0; i < 2; i++) {
        fesetround(modes[i]);
        rcvi_team_call(team, read_environment, &self);
        fesetround(FE_TONEAREST);
        for (int member = 0; member < 3; member++) assert_int_equal(self.rounding[member], modes[i]);
    }
    assert_int_equal(self.blocked[0], 0); /* the caller's signal mask is unchanged */
    assert_int_equal(self.blocked[1], 1);
    assert_int_equal(self.blocked[2], 1);
    rcvi_team_free(team);
    test_context_end(&counter, context);
}

static void failures_do_not_leak(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    rcvi_team *team = (void *)&counter;
    check_fails(rcvi_team_new(context, 0, &team), RCV_INVALID, "1 to 1024, not 0");
    assert_null(team);
    check_fails(rcvi_team_new(context, 1025, &team), RCV_INVALID, "1 to 1024, not 1025");
    counter.fail_at = 1;
    check_fails(rcvi_team_new(context, 2, &team), RCV_NO_MEMORY, "no memory");
    assert_int_equal(counter.failed, 1);
    assert_null(team);
    test_context_end(&counter, context);
}

/* In a process whose address space is limited, the system refuses threads after the first few. */
static int limit_address_space(void) {
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    struct rlimit limit;
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = (rlim_t)400 << 20;
    if (setrlimit(RLIMIT_AS, &limit) != 0) return 1;
    rcvi_team *team;
    if (rcvi_team_new(context, 256, &team) != RCV_NO_MEMORY || team) return 2;
    if (!strstr(rcv_message(), "the system refused thread ")) return 3;
    if (counter.live != 1) return 4; /* the context */
    rcv_context_free(context);
    return 0;
}

static void refused_threads_give_a_message(void **state) {
    (void)state;
    if (SANITIZED) skip();
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(limit_address_space());
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void the_machine_is_measured(void **state) {
    (void)state;
    test_allocator counter;
    rcv_context *context = test_context(&counter);
    double value = -1;
    check_fails(rcv_measure_barrier(NULL, 1, &value), RCV_INVALID, "not NULL");
    check_fails(rcv_measure_barrier(context, 1, NULL), RCV_INVALID, "not NULL");
    check_fails(rcv_measure_barrier(context, 0, &value), RCV_INVALID, "1 to 1024, not 0");
    check_fails(rcv_measure_peak(NULL, RCV_FLOAT32, 1, &value), RCV_INVALID, "not NULL");
    check_fails(rcv_measure_peak(context, RCV_FLOAT32, 1, NULL), RCV_INVALID, "not NULL");
    check_fails(rcv_measure_peak(context, RCV_FLOAT32, 1025, &value), RCV_INVALID, "1 to 1024, not 1025");
    check_fails(rcv_measure_peak(context, RCV_INT32, 1, &value), RCV_INVALID, "not of int32");
    check_fails(rcv_measure_peak(context, RCV_FLOAT16, 1, &value), RCV_INVALID, "not of float16");
    assert_true(value == -1);
    for (size_t at = 1; at <= 2; at++) {
        counter.fail_at = at;
        check_fails(rcv_measure_barrier(context, 2, &value), RCV_NO_MEMORY, "no memory");
        assert_int_equal(counter.failed, at);
        assert_int_equal(counter.live, 1);
    }
    for (int threads = 1; threads <= 3; threads++) {
        check_ok(rcv_measure_barrier(context, threads, &value));
        assert_true(value > 0 && value < 1);
    }
    const rcv_dtype types[] = {RCV_FLOAT32, RCV_FLOAT64, RCV_BFLOAT16};
    for (int i = 0; i < 3; i++) {
        check_ok(rcv_measure_peak(context, types[i], 1 + i % 2, &value));
        assert_true(value > 1e6 && value < 1e16);
    }
    test_context_end(&counter, context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(barrier_keeps_rounds_apart),
        cmocka_unit_test(barrier_waits_for_late_members),
        cmocka_unit_test(calls_reach_all_members),
        cmocka_unit_test(teams_are_created_and_freed),
        cmocka_unit_test(members_round_as_the_caller_and_take_no_signals),
        cmocka_unit_test(failures_do_not_leak),
        cmocka_unit_test(refused_threads_give_a_message),
        cmocka_unit_test(the_machine_is_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
