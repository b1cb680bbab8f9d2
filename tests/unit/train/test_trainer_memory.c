/* Every allocation of a run fails once: the status is RCV_NO_MEMORY, and nothing leaks. */
#include "memory_faults.h"
#include "scratch.h"
#include "train_fixture.h"

static bool ignore(void *user, const char *text, size_t length) {
    (void)user, (void)text, (void)length;
    return true;
}

typedef struct {
    train_fixture *fixture;
    const rcv_settings *settings;
    const rcv_data *data;
    const char *path;
} case_of_need;

typedef struct {
    rcv_trainer *trainers[2];
    rcv_learner *learner;
} run_objects;

static void free_objects(run_objects *o) {
    rcv_learner_free(o->learner);
    rcv_trainer_free(o->trainers[1]);
    rcv_trainer_free(o->trainers[0]);
}

enum { PHASES = 8 };

/* All that a run does, with a file in between, in PHASES calls. */
static rcv_status do_phase(const case_of_need *c, int phase, run_objects *o) {
    rcv_evaluation result = RCV_INIT(rcv_evaluation);
    rcv_context *context = c->fixture->context;
    const rcv_trainer_options options = RCV_INIT(rcv_trainer_options, .output = c->path, .overwrite = true);
    const rcv_generation generation = RCV_INIT(rcv_generation, .prompt = "the cat", .prompt_bytes = 7, .count = 3);
    switch (phase) {
    case 0: return rcv_trainer_new(context, c->settings, c->data, c->data, &o->trainers[0]);
    case 1: return rcv_trainer_run(o->trainers[0], &options);
    case 2: return rcv_trainer_new(context, c->settings, c->data, c->data, &o->trainers[1]);
    case 3: return rcv_trainer_resume(o->trainers[1], c->path);
    case 4: return rcv_trainer_run(o->trainers[1], &options);
    case 5: return rcv_learner_load(context, c->path, NULL, RCV_FLOAT32, &o->learner);
    case 6: return rcv_learner_evaluate(o->learner, c->data, NULL, &result);
    default:
        return rcv_learner_kind(o->learner) <= RCV_DATA_LINES
                   ? rcv_learner_generate(o->learner, &generation, ignore, NULL)
                   : RCV_OK;
    }
}

/* In a child: the phase with its nth allocation failing, and what is left of it. Every 16th then does all phases again on the same context.
 * Exits with NOT_FIRED where there is no nth allocation. */
enum { NOT_FIRED = 3, AGAIN = 16 };

static void fail_allocation(const case_of_need *c, int phase, size_t nth, run_objects *o, size_t live) {
    test_allocator *allocator = &c->fixture->allocator;
    allocator->fail_at = nth;
    rcv_status status = do_phase(c, phase, o);
    const bool fired = allocator->failed > 0;
    allocator->fail_at = 0;
    if (status != (fired ? RCV_NO_MEMORY : RCV_OK))
        fail_msg("phase %d: allocation %zu %s, and the status is %s: %s", phase, nth, fired ? "failed" : "was",
                 rcv_status_name(status), rcv_message());
    free_objects(o);
    assert_int_equal(allocator->live, live);
    if (fired && nth % AGAIN == 0) {
        run_objects again = {{NULL, NULL}, NULL};
        for (int i = 0; i < PHASES; i++) check_ok(do_phase(c, i, &again));
        free_objects(&again);
        assert_int_equal(allocator->live, live);
    }
    fflush(NULL);
    _exit(fired ? 0 : NOT_FIRED);
}

/* `each`: every so-many-th allocation of a phase. A child of fork() begins at the phase, so that those before it are not done again. */
static void check_need(const char *line, rcv_data_kind kind, const char *words, size_t each) {
    train_fixture s;
    char path[512];
    train_fixture_open(&s);
    rcv_settings *settings = train_fixture_settings(&s, line);
    snprintf(path, sizeof path, "%s", path_in("model"));
    const case_of_need c = {&s, settings, train_fixture_data(&s, "train", kind, words, NULL), path};
    const size_t live = s.allocator.live;
    size_t tried = 0, index = 0;
    run_objects o = {{NULL, NULL}, NULL};
    assert_int_equal(s.allocator.failed, 0);
    for (int phase = 0; phase < PHASES; phase++) {
        for (size_t nth = 1;; nth += each) {
            if (!sample_takes(index++)) continue;
            pid_t child = memory_fault_fork();
            if (child == 0) fail_allocation(&c, phase, nth, &o, live);
            int status = memory_fault_wait(child, nth);
            if (status == NOT_FIRED) break;
            if (status != 0) fail_msg("phase %d: allocation %zu failed, and the child's checks too", phase, nth);
            tried++;
        }
        check_ok(do_phase(&c, phase, &o));
    }
    free_objects(&o);
    assert_int_equal(s.allocator.live, live);
    assert_true(tried > sample_least(100));
    print_message("%zu allocations failed\n", tried);
    rcv_settings_free(settings);
    train_fixture_remove("model");
    train_fixture_close(&s);
}

static void test_no_memory(void **unused) {
    (void)unused;
    check_need("cell=gru hidden=2 batch=2 length=1 steps=2 optimiser=adam schedule=naive", RCV_DATA_STREAM,
               "the cat sat on the mat a dog\n", 1);
    check_need(
        "kind=lines cell=gru hidden=2 batch=2 steps=2 optimiser=asgd schedule=naive buckets=auto dropout-input=0.2 "
        "weight-drop=0.2",
        RCV_DATA_LINES, "the cat\na dog sat\n", 3);
    check_need("kind=classes cell=gru hidden=2 batch=2 steps=2 optimiser=sgd schedule=naive buckets=none",
               RCV_DATA_CLASSES, train_fixture_examples, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_no_memory)};
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}
