/* Every allocation of a run fails once: the status is RCV_NO_MEMORY, and nothing leaks. */
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

/* All that a run does, with a file in between. */
static rcv_status do_all(const case_of_need *c, rcv_trainer **trainers, rcv_learner **learner) {
    rcv_evaluation result = RCV_INIT(rcv_evaluation);
    const rcv_trainer_options options = RCV_INIT(rcv_trainer_options, .output = c->path, .overwrite = true);
    const rcv_generation generation = RCV_INIT(rcv_generation, .prompt = "the cat", .prompt_bytes = 7, .count = 3);
    RCVI_TRY(rcv_trainer_new(c->fixture->context, c->settings, c->data, c->data, &trainers[0]));
    RCVI_TRY(rcv_trainer_run(trainers[0], &options));
    RCVI_TRY(rcv_trainer_new(c->fixture->context, c->settings, c->data, c->data, &trainers[1]));
    RCVI_TRY(rcv_trainer_resume(trainers[1], c->path));
    RCVI_TRY(rcv_trainer_run(trainers[1], &options));
    RCVI_TRY(rcv_learner_load(c->fixture->context, c->path, NULL, RCV_FLOAT32, learner));
    RCVI_TRY(rcv_learner_evaluate(*learner, c->data, NULL, &result));
    return rcv_learner_kind(*learner) <= RCV_DATA_LINES ? rcv_learner_generate(*learner, &generation, ignore, NULL)
                                                        : RCV_OK;
}

/* `each`: every so-many-th allocation. */
static void check_need(const char *line, rcv_data_kind kind, const char *words, size_t each) {
    train_fixture s;
    char path[512];
    train_fixture_open(&s);
    rcv_settings *settings = train_fixture_settings(&s, line);
    snprintf(path, sizeof path, "%s", path_in("model"));
    const case_of_need c = {&s, settings, train_fixture_data(&s, "train", kind, words, NULL), path};
    rcv_status status = RCV_NO_MEMORY;
    size_t tried = 0, next = 1;
    while (status != RCV_OK) {
        const size_t live = s.allocator.live, failed = s.allocator.failed;
        rcv_trainer *trainers[2] = {NULL, NULL};
        rcv_learner *learner = NULL;
        s.allocator.fail_at = next;
        status = do_all(&c, trainers, &learner);
        const bool fired = s.allocator.failed > failed;
        s.allocator.fail_at = 0;
        rcv_learner_free(learner);
        rcv_trainer_free(trainers[1]);
        rcv_trainer_free(trainers[0]);
        assert_int_equal(s.allocator.live, live);
        if (status != (fired ? RCV_NO_MEMORY : RCV_OK))
            fail_msg("allocation %zu %s, and the status is %s: %s", next, fired ? "failed" : "was",
                     rcv_status_name(status), rcv_message());
        tried++;
        next += each;
    }
    assert_true(tried > 100);
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
