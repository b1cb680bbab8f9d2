/* Tests of oneDNN without memory, from planning to the backward call: each allocation by operator new fails once, and the address space is
 * limited to any size. Every call returns RCV_NO_MEMORY or succeeds, and the next call succeeds. */
#define _GNU_SOURCE
#include "test.h"

#include "device/cpu/onednn/vendor.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- allocations that fail: oneDNN calls those of this program ---- */

static size_t calls, fail_at, failed; /* the nth allocation from now on fails; 0: none */

static bool is_to_fail(void) {
    calls++;
    if (fail_at == 0 || --fail_at != 0) return false;
    failed++;
    return true;
}

#pragma GCC visibility push(default) /* found by oneDNN's library */
__attribute__((weak)) void
_ZSt17__throw_bad_allocv(void); /* std::__throw_bad_alloc(); a build without oneDNN has none */
void *_Znwm(size_t bytes);      /* operator new(size_t) */
void *_Znam(size_t bytes);      /* operator new[](size_t) */
void _ZdlPv(void *memory);      /* operator delete(void *) */
void _ZdaPv(void *memory);
void _ZdlPvm(void *memory, size_t bytes);
void _ZdaPvm(void *memory, size_t bytes);

void *_Znwm(size_t bytes) {
    void *memory = is_to_fail() ? NULL : malloc(bytes ? bytes : 1);
    if (!memory) _ZSt17__throw_bad_allocv();
    return memory;
}
void *_Znam(size_t bytes) { return _Znwm(bytes); }
void _ZdlPv(void *memory) { free(memory); }
void _ZdaPv(void *memory) { free(memory); }
void _ZdlPvm(void *memory, size_t bytes) { (void)bytes, free(memory); }
void _ZdaPvm(void *memory, size_t bytes) { (void)bytes, free(memory); }
#pragma GCC visibility pop

/* oneDNN leaks its own objects when it throws; none of them belongs to Recurve. */
const char *__lsan_default_suppressions(void);
__attribute__((visibility("default"))) const char *__lsan_default_suppressions(void) { return "leak:libdnnl\n"; }

/* ---- a network ---- */

#if defined(__SANITIZE_ADDRESS__)
enum { STRIDE = 3, AGAIN = 10 };
#else
enum { STRIDE = 1, AGAIN = 5 };
#endif

enum { STEPS = 3, BATCH = 2, INPUT = 5, HIDDEN = 4 };

typedef struct {
    rcv_context *context;
    rcv_cell *cell;
    rcv_net *net;
    float *parameters, *gradient, x[STEPS * BATCH * INPUT], y[STEPS * BATCH * HIDDEN], dx[STEPS * BATCH * INPUT];
} subject;

static rcv_status run_once(subject *s) {
    rcv_plan *plan = NULL;
    rcv_run *run = NULL;
    const rcv_plan_options options =
        RCV_INIT(rcv_plan_options, .steps = STEPS, .batch = BATCH, .training = true, .schedule = "vendor");
    memset(s->y, 0xff, sizeof s->y);
    rcv_status status = rcv_plan_new(s->net, &options, &plan);
    if (!status) status = rcv_run_new(plan, &run);
    if (!status)
        status = rcv_run_forward(run, &RCV_INIT(rcv_forward, .parameters = s->parameters, .x = s->x, .y = s->y));
    if (!status)
        status = rcv_run_backward(run, &RCV_INIT(rcv_backward, .dy = s->y, .dx = s->dx, .dparameters = s->gradient));
    rcv_run_free(run);
    rcv_plan_free(plan);
    return status;
}

static size_t parameter_bytes(const subject *s) { return (size_t)rcv_net_parameter_elements(s->net) * sizeof(float); }

static void open_subject(subject *s, const char *name) {
    *s = (subject){0};
    check_ok(rcv_context_new(NULL, &s->context));
    check_ok(rcv_cell_open(s->context, name, &s->cell));
    check_ok(rcv_net_new(s->cell, &RCV_INIT(rcv_net_options, .input = INPUT, .hidden = HIDDEN, .layers = 2), &s->net));
    s->parameters = malloc(parameter_bytes(s));
    s->gradient = malloc(parameter_bytes(s));
    assert_true(s->parameters && s->gradient);
    check_ok(rcv_net_initialize(s->net, 1, RCV_FLOAT32, s->parameters));
    for (size_t i = 0; i < sizeof s->x / sizeof *s->x; i++) s->x[i] = (float)(i % 7) / 7;
}

static void close_subject(subject *s) {
    free(s->gradient);
    free(s->parameters);
    rcv_net_free(s->net);
    rcv_cell_free(s->cell);
    rcv_context_free(s->context);
}

static void check_cell(const char *name) {
    subject s;
    open_subject(&s, name);
    size_t bytes = parameter_bytes(&s);
    float *gradient = malloc(bytes), y[STEPS * BATCH * HIDDEN];
    assert_non_null(gradient);
    check_ok(run_once(&s)); /* oneDNN has allocated its own tables now */
    calls = 0;
    check_ok(run_once(&s));
    size_t total = calls, survived = 0;
    memcpy(y, s.y, sizeof y);
    memcpy(gradient, s.gradient, bytes);
    assert_true(total > 100);
    for (size_t at = 1; at <= total; at += STRIDE) {
        fail_at = at;
        failed = 0;
        rcv_status status = run_once(&s);
        fail_at = 0;
        if (failed != 1) continue; /* fewer allocations than before: something was kept */
        if (status == RCV_NO_MEMORY)
            assert_non_null(strstr(rcv_message(), "oneDNN has no memory"));
        else
            check_ok(status); /* oneDNN succeeded without the allocation */
        if (!status) assert_memory_equal(y, s.y, sizeof y);
        survived++;
        if (at % AGAIN != 0) continue;
        check_ok(run_once(&s));
        assert_memory_equal(y, s.y, sizeof y);
        assert_memory_equal(gradient, s.gradient, bytes);
    }
    printf("%s: %zu allocations failed, all survived\n", name, survived);
    assert_true(survived > total / STRIDE / 2);
    free(gradient);
    close_subject(&s);
}

static void test_lstm(void **state) {
    (void)state;
    if (!rcvi_vendor_name()) skip();
    check_cell("lstm");
}

static void test_gru(void **state) {
    (void)state;
    if (!rcvi_vendor_name()) skip();
    check_cell("gru");
}

/* ---- a limited address space ---- */

/* Bytes of the address space that the process uses. */
static size_t address_space(void) {
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%zu", &pages) != 1) pages = 0;
    if (file) fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* Runs in a child whose address space may grow by so many bytes: 0 success, 1 RCV_NO_MEMORY, 2 anything else. */
static int run_within(subject *s, size_t more) {
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        struct rlimit limit = {address_space() + more, RLIM_INFINITY};
        if (setrlimit(RLIMIT_AS, &limit)) _exit(2);
        rcv_status status = run_once(s);
        _exit(status == RCV_OK ? 0 : status == RCV_NO_MEMORY ? 1 : 2);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status)) fail_msg("with %zu bytes more the child ended by signal %d", more, WTERMSIG(status));
    return WEXITSTATUS(status);
}

static void test_address_space(void **state) {
    (void)state;
#if defined(__SANITIZE_ADDRESS__)
    skip(); /* the sanitizer's shadow memory exceeds any limit */
#endif
    if (!rcvi_vendor_name() || !address_space()) skip();
    subject s;
    open_subject(&s, "lstm");
    int outcomes[3] = {0};
    for (size_t more = 0; more <= 8 << 20; more += 128 << 10) outcomes[run_within(&s, more)]++;
    printf("address space that ends: %d did their work, %d had no memory\n", outcomes[0], outcomes[1]);
    assert_int_equal(outcomes[2], 0);
    assert_true(outcomes[0] > 5 && outcomes[1] > 5);
    close_subject(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lstm), cmocka_unit_test(test_gru),
                                       cmocka_unit_test(test_address_space)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
