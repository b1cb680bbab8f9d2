/* fork() in a process whose plans, products and scans have threads. In the child the objects of the parent still work, with new threads, and can be
 * freed; a new context plans and computes; calls that cannot work fail with a message. An alarm ends a child that waits for threads that do not
 * exist. */
#define _GNU_SOURCE
#include "probe.h"
#include "recurve_bench.h"

#include "device/cpu/engine/team.h"
#include "device/cpu/onednn/vendor.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- threads that the system refuses ---- */

static bool refused;

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*begin)(void *), void *user) {
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    void *found = dlsym(RTLD_NEXT, "pthread_create");
    memcpy(&real, &found, sizeof real);
    return refused ? EAGAIN : real(thread, attributes, begin, user);
}

enum { STEPS = 12, BATCH = 8, SIZE = 48, HANG_SECONDS = 60 };

typedef struct {
    rcv_context *context;
    rcv_cell *cell;
    rcv_net *net;
    rcv_plan *plan;
    rcv_run *run;
    float *parameters, *x, *y, *gradient; /* y and gradient: of the last call */
} work;

static float *numbers(int64_t count) {
    float *memory = calloc((size_t)count, sizeof *memory);
    assert_non_null(memory);
    return memory;
}

static size_t y_bytes(void) { return (size_t)(STEPS * BATCH * SIZE) * sizeof(float); }
static size_t gradient_bytes(const work *w) { return (size_t)rcv_net_parameter_elements(w->net) * sizeof(float); }

static void open_work(work *w, const char *schedule) {
    random_source source = {7};
    *w = (work){0};
    check_ok(rcv_context_new(&RCV_INIT(rcv_context_options, .threads = 2), &w->context));
    check_ok(rcv_cell_open(w->context, "lstm", &w->cell));
    check_ok(rcv_net_new(w->cell, &RCV_INIT(rcv_net_options, .input = SIZE, .hidden = SIZE, .layers = 2), &w->net));
    const rcv_plan_options options =
        RCV_INIT(rcv_plan_options, .steps = STEPS, .batch = BATCH, .training = true, .schedule = schedule);
    check_ok(rcv_plan_new(w->net, &options, &w->plan));
    check_ok(rcv_run_new(w->plan, &w->run));
    w->parameters = numbers(rcv_net_parameter_elements(w->net));
    w->gradient = numbers(rcv_net_parameter_elements(w->net));
    w->x = numbers(STEPS * BATCH * SIZE);
    w->y = numbers(STEPS * BATCH * SIZE);
    check_ok(rcv_net_initialize(w->net, 3, RCV_FLOAT32, w->parameters));
    for (int i = 0; i < STEPS * BATCH * SIZE; i++) w->x[i] = (float)random_between(&source, -1, 1);
}

static rcv_status compute(work *w) {
    memset(w->y, 0xff, y_bytes());
    memset(w->gradient, 0xff, gradient_bytes(w));
    rcv_status status =
        rcv_run_forward(w->run, &RCV_INIT(rcv_forward, .parameters = w->parameters, .x = w->x, .y = w->y));
    if (!status) status = rcv_run_backward(w->run, &RCV_INIT(rcv_backward, .dy = w->x, .dparameters = w->gradient));
    return status;
}

static void close_work(work *w) {
    free(w->y);
    free(w->x);
    free(w->gradient);
    free(w->parameters);
    rcv_run_free(w->run);
    rcv_plan_free(w->plan);
    rcv_net_free(w->net);
    rcv_cell_free(w->cell);
    rcv_context_free(w->context);
}

/* Runs `body` in a child, which exits with 0 on success; an alarm limits its time. */
static void in_child(int (*body)(void *), void *user) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(HANG_SECONDS);
        _exit(body(user));
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status)) fail_msg("the child ended by signal %d", WTERMSIG(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- plans ---- */

static int repeat(void *user) {
    work *w = user;
    float *y = malloc(y_bytes()), *gradient = malloc(gradient_bytes(w));
    if (!y || !gradient) return 1;
    memcpy(y, w->y, y_bytes());
    memcpy(gradient, w->gradient, gradient_bytes(w));
    for (int i = 0; i < 3; i++) {
        if (compute(w)) return 2;
        if (memcmp(y, w->y, y_bytes()) || memcmp(gradient, w->gradient, gradient_bytes(w))) return 3;
    }
    free(y);
    free(gradient);
    close_work(w); /* with threads of the child, or of the parent */
    return 0;
}

static int only_free(void *user) {
    close_work(user);
    return 0;
}

static int begin_anew(void *user) {
    const work *parent = user;
    work w;
    open_work(&w, rcv_plan_string(parent->plan));
    if (compute(&w)) return 2;
    if (memcmp(parent->y, w.y, y_bytes()) || memcmp(parent->gradient, w.gradient, gradient_bytes(&w))) return 3;
    close_work(&w);
    return 0;
}

static int plan_anew(void *user) {
    const work *parent = user;
    rcv_plan *plan = NULL;
    const rcv_plan_options options =
        RCV_INIT(rcv_plan_options, .steps = STEPS, .batch = BATCH, .training = true, .threads = 2);
    if (rcv_plan_new(parent->net, &options, &plan)) return 1; /* with the parent's context; trials have threads */
    rcv_plan_free(plan);
    return 0;
}

/* A child of a child works in the same way. */
static int fork_again(void *user) {
    work *w = user;
    if (compute(w)) return 1;
    in_child(repeat, w);
    return repeat(w);
}

static void test_plans(void **state) {
    (void)state;
    static const char *const schedules[] = {"naive+threads(2)", "combine+fuse+pack+threads(2)",
                                            "combine(steps=all)+fuse+pack+blas+threads(2)",
                                            "combine+fuse+pack+wavefront+threads(2,split=rows)"};
    static int (*const bodies[])(void *) = {repeat, only_free, begin_anew, plan_anew, fork_again};
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
        if (strstr(schedules[i], "blas") && rcv_openblas_open(&RCV_INIT(rcv_openblas))) continue;
        work w;
        open_work(&w, schedules[i]);
        check_ok(compute(&w));
        for (size_t k = 0; k < sizeof bodies / sizeof *bodies; k++) in_child(bodies[k], &w);
        check_ok(compute(&w)); /* the threads of the parent still work */
        close_work(&w);
    }
}

/* ---- oneDNN: OpenMP's threads do not survive ---- */

static int refuses(void *user) {
    work *w = user;
    if (compute(w) != RCV_UNSUPPORTED) return 1;
    if (!strstr(rcv_message(), "oneDNN has one thread in a child of fork()")) return 2;
    if (plan_anew(w)) return 3; /* the planner does not use oneDNN then */
    rcv_plan *plan = NULL;
    const rcv_plan_options alone = RCV_INIT(rcv_plan_options, .steps = STEPS, .batch = BATCH, .training = true,
                                            .schedule = "vendor", .threads = 1);
    if (rcv_plan_new(w->net, &alone, &plan)) return 4; /* with one thread OpenMP starts none */
    rcv_run_free(w->run);
    rcv_plan_free(w->plan);
    w->plan = plan;
    w->run = NULL;
    if (rcv_run_new(plan, &w->run) || compute(w)) return 5;
    close_work(w);
    return 0;
}

static void test_vendor(void **state) {
    (void)state;
    if (!rcvi_vendor_name()) skip();
    work w;
    open_work(&w, "vendor+threads(2)");
    check_ok(compute(&w));
    in_child(refuses, &w);
    in_child(only_free, &w);
    check_ok(compute(&w));
    close_work(&w);
}

/* ---- products and scans ---- */

typedef struct {
    rcv_context *context;
    rcv_gemm *gemm;
    rcv_scan *scan;
    float *a, *b, *product, *states;
} tools;

enum { SIDE = 96, LONG = 2048, CHANNELS = 64 };

static rcv_status use_tools(tools *t) {
    rcv_status status = rcv_gemm_run(t->gemm, t->a, t->b, t->product);
    return status ? status : rcv_scan_forward(t->scan, &RCV_INIT(rcv_scan_data, .a = t->a, .b = t->b, .h = t->states));
}

static void free_tools(tools *t) {
    rcv_scan_free(t->scan);
    rcv_gemm_free(t->gemm);
    rcv_context_free(t->context);
    free(t->a);
    free(t->b);
    free(t->product);
    free(t->states);
}

static int use_tools_again(void *user) {
    tools *t = user;
    size_t product = SIDE * SIDE * sizeof(float), states = (size_t)LONG * CHANNELS * sizeof(float);
    float *product_before = malloc(product), *states_before = malloc(states);
    int verdict = !product_before || !states_before;
    if (!verdict) {
        memcpy(product_before, t->product, product);
        memcpy(states_before, t->states, states);
        memset(t->product, 0xff, product);
        memset(t->states, 0xff, states);
        verdict = use_tools(t)                                                                              ? 2
                  : memcmp(product_before, t->product, product) || memcmp(states_before, t->states, states) ? 3
                                                                                                            : 0;
    }
    free(product_before);
    free(states_before);
    free_tools(t);
    return verdict;
}

static void test_tools(void **state) {
    (void)state;
    tools t = {.a = numbers(LONG * CHANNELS),
               .b = numbers(LONG * CHANNELS),
               .product = numbers(SIDE * SIDE),
               .states = numbers(LONG * CHANNELS)};
    random_source source = {3};
    for (int i = 0; i < LONG * CHANNELS; i++) {
        t.a[i] = (float)random_between(&source, 0, 1);
        t.b[i] = (float)random_between(&source, -1, 1);
    }
    check_ok(rcv_context_new(NULL, &t.context));
    check_ok(
        rcv_gemm_new(t.context, &RCV_INIT(rcv_gemm_options, .m = SIDE, .n = SIDE, .k = SIDE, .threads = 2), &t.gemm));
    check_ok(rcv_scan_new(t.context, &RCV_INIT(rcv_scan_options, .steps = LONG, .channels = CHANNELS, .threads = 2),
                          &t.scan));
    check_ok(use_tools(&t));
    in_child(use_tools_again, &t);
    check_ok(use_tools(&t));
    free_tools(&t);
}

/* ---- a fork while other threads use the library ---- */

static void *plan_on(void *user) {
    const work *w = user;
    for (int i = 0; i < 40; i++) {
        rcv_plan *plan = NULL;
        const rcv_plan_options options = RCV_INIT(rcv_plan_options, .steps = 1 + i, .batch = 1, .effort = RCV_ESTIMATE,
                                                  .threads = 1); /* looked up, and remembered */
        if (rcv_plan_new(w->net, &options, &plan)) return user;
        rcv_plan_free(plan);
        if (rcv_wisdom_count(w->context) > 1000) return user;
    }
    return NULL;
}

static int count_wisdom(void *user) {
    const work *w = user;
    rcv_plan *plan = NULL;
    for (int i = 0; i < 20; i++) rcv_wisdom_count(w->context);
    if (rcv_plan_new(w->net, &RCV_INIT(rcv_plan_options, .steps = 3, .batch = 1, .effort = RCV_ESTIMATE), &plan))
        return 1;
    rcv_plan_free(plan);
    return 0;
}

static void test_busy(void **state) {
    (void)state;
#if defined(__SANITIZE_ADDRESS__)
    skip(); /* its own allocator is not ready for a fork while another thread allocates */
#endif
    work w;
    pthread_t thread;
    void *wrong = NULL;
    open_work(&w, "naive+threads(2)");
    assert_int_equal(pthread_create(&thread, NULL, plan_on, &w), 0);
    for (int i = 0; i < 20; i++) in_child(count_wisdom, &w);
    assert_int_equal(pthread_join(thread, &wrong), 0);
    assert_null(wrong);
    close_work(&w);
}

/* ---- the child gets no threads ---- */

static void nothing(void *user, int member) { ((int *)user)[member]++; }

static int run_without_threads(void *user) {
    rcvi_team *team = user;
    int counts[2] = {0};
    refused = true;
    if (rcvi_team_call(team, nothing, counts) != RCV_NO_MEMORY) return 1;
    if (!strstr(rcv_message(), "the system refused thread 2 of 2")) return 2;
    if (counts[0] || counts[1]) return 3;
    refused = false;
    if (rcvi_team_call(team, nothing, counts)) return 4;
    if (counts[0] != 1 || counts[1] != 1) return 5;
    rcvi_team_free(team);
    return 0;
}

static void test_no_threads(void **state) {
    (void)state;
    rcv_context *context = NULL;
    rcvi_team *team = NULL;
    check_ok(rcv_context_new(NULL, &context));
    check_ok(rcvi_team_new(context, 2, &team));
    in_child(run_without_threads, team);
    rcvi_team_free(team);
    rcv_context_free(context);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_plans), cmocka_unit_test(test_vendor),
                                       cmocka_unit_test(test_tools), cmocka_unit_test(test_busy),
                                       cmocka_unit_test(test_no_threads)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
