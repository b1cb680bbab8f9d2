/* Files of a run: which are replaced and which are kept; with failing allocations, links, and second runs. */
#define _XOPEN_SOURCE 700
#define _DEFAULT_SOURCE /* syscall */

#include "scratch.h"
#include "train_fixture.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char small[] = "optimiser=adam batch=2 length=5 hidden=2";

/* ---- a file system that does not link ---- */

static bool no_links;
static int links_refused;

int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags) {
    if (!no_links) return (int)syscall(SYS_linkat, from_folder, from, to_folder, to, flags);
    links_refused++;
    errno = EPERM;
    return -1;
}

/* ---- memory of jansson that fails ---- */

static long allocations, fail_at;

static void *allocate(size_t bytes) { return ++allocations == fail_at ? NULL : malloc(bytes); }

/* ---- files ---- */

static char *in(const char *name, char path[512]) {
    snprintf(path, 512, "%s", path_in(name));
    return path;
}

static void put(const char *name, const char *text) {
    FILE *file = fopen(path_in(name), "wb");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static char *get(const char *name, size_t *length) {
    struct stat info;
    FILE *file = fopen(path_in(name), "rb");
    assert_non_null(file);
    assert_int_equal(fstat(fileno(file), &info), 0);
    char *bytes = calloc((size_t)info.st_size + 1, 1);
    assert_non_null(bytes);
    *length = fread(bytes, 1, (size_t)info.st_size, file);
    assert_int_equal(*length, info.st_size);
    fclose(file);
    return bytes;
}

static void check_text(const char *name, const char *text) {
    size_t length;
    char *bytes = get(name, &length);
    assert_string_equal(bytes, text);
    free(bytes);
}

static json_t *metadata_of(const train_fixture *s, const char *name, const char *key) {
    rcv_tensors *tensors;
    check_ok(rcv_tensors_load(s->context, path_in(name), &tensors));
    const char *text = rcv_tensors_metadata(tensors, key);
    json_t *object = text ? json_loads(text, 0, NULL) : NULL;
    rcv_tensors_free(tensors);
    assert_non_null(object);
    return object;
}

static int64_t step_of(const train_fixture *s, const char *name) {
    json_t *object = metadata_of(s, name, "recurve.run");
    const int64_t step = json_integer_value(json_object_get(object, "step"));
    json_decref(object);
    return step;
}

/* ---- runs ---- */

typedef struct {
    void (*at)(void *user, const rcv_progress *progress);
    void *user;
    int64_t stop_at;
    int warnings, missed;
    char warning[512];
} observer;

static bool on_progress(void *user, const rcv_progress *progress) {
    const observer *o = user;
    if (o->at && progress->step > 0) o->at(o->user, progress);
    return !o->stop_at || progress->step < o->stop_at;
}

static void on_log(void *user, const char *line) {
    observer *o = user;
    const long so_far = allocations, next = fail_at;
    fail_at = 0; /* not of what reads it here */
    json_t *object = json_loads(line, 0, NULL);
    if (object && !strcmp(json_string_value(json_object_get(object, "event")), "warning")) {
        o->warnings++;
        snprintf(o->warning, sizeof o->warning, "%s", json_string_value(json_object_get(object, "message")));
    }
    o->missed += !object;
    json_decref(object);
    allocations = so_far;
    fail_at = next;
}

static rcv_status run(rcv_trainer *t, const char *output, bool overwrite, observer *o) {
    const rcv_trainer_options options = RCV_INIT(rcv_trainer_options, .output = output, .overwrite = overwrite,
                                                 .progress = on_progress, .log = on_log, .user = o);
    return rcv_trainer_run(t, &options);
}

static rcv_trainer *new_trainer(const train_fixture *s, const rcv_data *data, const char *more) {
    return train_fixture_trainer(s, small, more, data, strstr(more, "validate") ? data : NULL);
}

static rcv_trainer *resumed(const train_fixture *s, const rcv_data *data, const char *more, const char *path) {
    rcv_trainer *t = new_trainer(s, data, more);
    check_ok(rcv_trainer_resume(t, path));
    return t;
}

/* ---- to which run files belong ---- */

static void test_other_runs(void **unused) {
    (void)unused;
    train_fixture s;
    char path[512], other[512];
    observer o = {0};
    size_t length;
    train_fixture_open(&s);
    const rcv_data *data = train_fixture_data(&s, "train", RCV_DATA_STREAM, train_fixture_verse, NULL);
    rcv_trainer *first = new_trainer(&s, data, "steps=4 keep=3 checkpoint-every=1");
    check_ok(run(first, in("model", path), false, &o));
    char *before = get("model", &length);

    rcv_trainer *second = new_trainer(&s, data, "steps=1 keep=3");
    check_fails(run(second, path, false, &o), RCV_IO, "is there already");
    assert_int_equal(rcv_trainer_progress(second)->written, -1);
    assert_int_equal(second->state.step, 0);
    size_t after_length;
    char *after = get("model", &after_length);
    assert_int_equal(after_length, length);
    assert_memory_equal(before, after, length);
    free(before);
    free(after);
    assert_int_equal(entries(scratch()), 2 + 3); /* the text and its tokens; no lock is left */

    /* What is left of the other run counts too. */
    assert_int_equal(unlink(path), 0);
    check_fails(run(second, path, false, &o), RCV_IO, "of another run");
    check_ok(run(second, path, true, &o));
    assert_int_equal(step_of(&s, "model"), 1);
    assert_int_equal(rcv_trainer_progress(second)->written, 1);

    /* What is no model is replaced at the output alone. */
    put("notes", "mine");
    check_fails(run(second, in("notes", other), false, &o), RCV_IO, "is no model");
    check_text("notes", "mine");
    put("other.1", "mine");
    check_fails(run(second, in("other", other), true, &o), RCV_IO, "other.1 is no model");
    check_text("other.1", "mine");
    assert_int_equal(o.warnings, 0);
    rcv_trainer_free(first);
    rcv_trainer_free(second);
    train_fixture_remove("model");
    train_fixture_remove("notes");
    train_fixture_remove("other");
    train_fixture_close(&s);
}

static void test_going_back(void **unused) {
    (void)unused;
    train_fixture s;
    char path[512], before[512];
    observer o = {.stop_at = 6};
    train_fixture_open(&s);
    const rcv_data *data = train_fixture_data(&s, "train", RCV_DATA_STREAM, train_fixture_verse, NULL);
    rcv_trainer *t = new_trainer(&s, data, "steps=8 keep=2 checkpoint-every=3");
    check_fails(run(t, in("model", path), false, &o), RCV_STOPPED, "6 updates");
    assert_int_equal(step_of(&s, "model.1"), 3);
    o.stop_at = 0;
    rcv_trainer *rest = resumed(&s, data, "steps=8 keep=2", path);
    assert_string_equal(rest->outputs.run_id, t->outputs.run_id);
    check_ok(run(rest, path, false, &o)); /* its own files, although it is another process */
    assert_int_equal(step_of(&s, "model"), 8);
    assert_int_equal(step_of(&s, "model.1"), 6);
    rcv_trainer *back = resumed(&s, data, "steps=7 keep=2", in("model.1", before));
    check_fails(run(back, path, false, &o), RCV_IO, "further on, at update 8");
    check_ok(run(back, path, true, &o));
    assert_int_equal(step_of(&s, "model"), 7);
    assert_int_equal(step_of(&s, "model.1"), 8);
    rcv_trainer_free(back);
    rcv_trainer_free(rest);
    rcv_trainer_free(t);
    train_fixture_remove("model");
    train_fixture_close(&s);
}

/* Checkpoints from before runs had ids: a run that is resumed from one may replace the others, too. */
static void test_without_name(void **unused) {
    (void)unused;
    train_fixture s;
    char path[512];
    observer o = {.stop_at = 6};
    train_fixture_open(&s);
    const rcv_data *data = train_fixture_data(&s, "train", RCV_DATA_STREAM, train_fixture_verse, NULL);
    rcv_trainer *t = new_trainer(&s, data, "steps=8 keep=2 checkpoint-every=3");
    check_fails(run(t, in("model", path), false, &o), RCV_STOPPED, "6 updates");
    static const char *const names[] = {"model", "model.1"};
    for (size_t i = 0; i < 2; i++) {
        rcv_tensors *tensors;
        check_ok(rcv_tensors_load(s.context, path_in(names[i]), &tensors));
        check_ok(rcv_tensors_set_metadata(tensors, "recurve.run", ""));
        check_ok(rcv_tensors_save(tensors, path_in(names[i])));
        rcv_tensors_free(tensors);
    }
    o.stop_at = 0;
    check_fails(run(t, path, false, &o), RCV_IO, "is there already");
    rcv_trainer *rest = resumed(&s, data, "steps=8 keep=2", path);
    check_ok(run(rest, path, false, &o));
    assert_int_equal(step_of(&s, "model"), 8);
    rcv_trainer_free(rest);
    rcv_trainer_free(t);
    train_fixture_remove("model");
    train_fixture_close(&s);
}

static void put_mine(void *user, const rcv_progress *progress) {
    if (progress->step == 2) put(user, "mine");
}

/* A file that appears during a run is not replaced; the newest checkpoint is still written. */
static void test_file_between(void **unused) {
    (void)unused;
    train_fixture s;
    char path[512];
    train_fixture_open(&s);
    const rcv_data *data = train_fixture_data(&s, "train", RCV_DATA_STREAM, train_fixture_verse, NULL);
    observer o = {.at = put_mine, .user = (void *)"model.1.x"};
    put("model.1.new.x", "mine too"); /* rotation had a name like this for itself */
    rcv_trainer *t = new_trainer(&s, data, "steps=5 keep=2 checkpoint-every=3");
    check_ok(run(t, in("model.x", path), false, &o));
    check_text("model.1.x", "mine");
    check_text("model.1.new.x", "mine too");
    assert_int_equal(step_of(&s, "model.x"), 5);
    assert_int_equal(o.warnings, 1);
    assert_non_null(strstr(o.warning, "model.1.x is no model"));
    rcv_trainer_free(t);
    train_fixture_remove("model");
    train_fixture_close(&s);
}

/* Behind a symbolic link the file is replaced, and the one before it is kept, not the link. */
static void test_linked_output(void **unused) {
    (void)unused;
    train_fixture s;
    char path[512], target[512];
    observer o = {.stop_at = 2};
    train_fixture_open(&s);
    const rcv_data *data = train_fixture_data(&s, "train", RCV_DATA_STREAM, train_fixture_verse, NULL);
    rcv_trainer *t = new_trainer(&s, data, "steps=4 keep=2");
    check_fails(run(t, in("model-target", target), false, &o), RCV_STOPPED, "2 updates");
    assert_int_equal(symlink("model-target", in("model", path)), 0);
    o.stop_at = 0;
    check_ok(run(t, path, false, &o));
    assert_int_equal(step_of(&s, "model-target"), 4);
    assert_int_equal(step_of(&s, "model.1"), 2);
    rcv_trainer_free(t);
    train_fixture_remove("model");
    train_fixture_close(&s);
}

static void test_no_links(void **unused) {
    (void)unused;
    train_fixture s;
    char path[512];
    observer o = {0};
    train_fixture_open(&s);
    const rcv_data *data = train_fixture_data(&s, "train", RCV_DATA_STREAM, train_fixture_verse, NULL);
    rcv_trainer *t = new_trainer(&s, data, "steps=9 keep=3 checkpoint-every=3");
    no_links = true;
    links_refused = 0;
    check_ok(run(t, in("model", path), false, &o));
    no_links = false;
    assert_true(links_refused >= 3);
    assert_int_equal(o.warnings, 0);
    assert_int_equal(step_of(&s, "model"), 9);
    assert_int_equal(step_of(&s, "model.1"), 6);
    assert_int_equal(step_of(&s, "model.2"), 3);
    rcv_trainer_free(t);
    assert_int_equal(train_fixture_remove("model"), 3);
    train_fixture_close(&s);
}

/* ---- the best ---- */

static void test_best_of_run(void **unused) {
    (void)unused;
    train_fixture s;
    char path[512], other[512], *best = NULL;
    observer o = {.stop_at = 4};
    train_fixture_open(&s);
    const rcv_data *data = train_fixture_data(&s, "train", RCV_DATA_STREAM, train_fixture_verse, NULL);
    rcv_trainer *t = new_trainer(&s, data, "steps=8 validate-every=2 keep=1");
    check_ok(rcv_trainer_best_model(t, in("model", path), &best));
    assert_null(best);
    check_fails(run(t, path, false, &o), RCV_STOPPED, "4 updates");
    check_ok(rcv_trainer_best_model(t, path, &best));
    assert_string_equal(best, path_in("model.best"));
    rcv_text_free(s.context, best);
    assert_int_equal(step_of(&s, "model.best"), t->state.best_step);

    rcv_trainer *rest = resumed(&s, data, "steps=8 validate-every=1000 keep=1", path);
    check_ok(rcv_trainer_best_model(rest, path, &best));
    assert_non_null(best); /* kept when the run is resumed */
    rcv_text_free(s.context, best);
    rest->state.best_step--; /* as if resumed from before that validation */
    check_ok(rcv_trainer_best_model(rest, path, &best));
    assert_null(best);

    rcv_trainer *stranger = new_trainer(&s, data, "steps=4 validate-every=2 keep=1");
    o.stop_at = 0;
    check_ok(run(stranger, in("other", other), false, &o));
    assert_int_equal(stranger->state.best_step, t->state.best_step);
    in("model.best", path);
    assert_int_equal(rename(path, in("other.best", other)), 0);
    check_ok(rcv_trainer_best_model(stranger, in("other", other), &best));
    assert_null(best);
    rcv_trainer_free(stranger);
    rcv_trainer_free(rest);
    rcv_trainer_free(t);
    train_fixture_remove("model");
    train_fixture_remove("other");
    train_fixture_close(&s);
}

/* ---- two at once ---- */

typedef struct {
    rcv_trainer *other;
    const char *path;
    int refused;
} rival;

static void try_too(void *user, const rcv_progress *progress) {
    rival *r = user;
    observer o = {0};
    if (progress->step != 2) return;
    check_fails(run(r->other, r->path, true, &o), RCV_IO, "another process writes");
    assert_int_equal(rcv_trainer_progress(r->other)->written, -1);
    r->refused++;
}

static void test_two_at_once(void **unused) {
    (void)unused;
    train_fixture s;
    char path[512], link[512];
    train_fixture_open(&s);
    const rcv_data *data = train_fixture_data(&s, "train", RCV_DATA_STREAM, train_fixture_verse, NULL);
    rcv_trainer *one = new_trainer(&s, data, "steps=3 keep=1"), *two = new_trainer(&s, data, "steps=3 keep=1");
    rival r = {two, in("model", path), 0};
    observer o = {.at = try_too, .user = &r};
    check_ok(run(one, path, false, &o));
    assert_int_equal(r.refused, 1);
    assert_int_equal(symlink("model", in("other", link)), 0); /* by another name */
    one->state.step = 0;
    r.path = link;
    check_ok(run(one, path, true, &o));
    assert_int_equal(r.refused, 2);
    check_ok(run(two, path, true, &(observer){0}));
    assert_int_equal(access(path_in("model.lock"), F_OK), -1);
    put("model.lock", "mine"); /* not a lock of ours */
    check_fails(run(two, path, true, &(observer){0}), RCV_IO, "model.lock exists and is not a lock file");
    check_text("model.lock", "mine");
    rcv_trainer_free(one);
    rcv_trainer_free(two);
    train_fixture_remove("model");
    train_fixture_remove("other");
    train_fixture_close(&s);
}

/* ---- failing memory ---- */

static const char *const state_keys[] = {
    "step",      "at.epoch", "at.batch",      "seen",        "seconds",           "factor", "best",
    "best_step", "bad",      "bad_for_decay", "validations", "averaged",          "scale",  "good",
    "skipped",   "data",     "batching",      "ranks",       "validations_losses"};

/* A checkpoint has all of its keys. */
static void check_whole(const train_fixture *s, const rcv_data *data, const char *name, const rcv_trainer *like) {
    json_t *object = metadata_of(s, name, "recurve.training");
    for (size_t i = 0; i < sizeof state_keys / sizeof *state_keys; i++)
        if (!json_object_get(object, state_keys[i])) fail_msg("the checkpoint lacks %s", state_keys[i]);
    assert_int_equal(json_array_size(json_object_get(object, "validations_losses")), like->state.loss_count);
    assert_true(json_array_size(json_object_get(object, "batching")) > 1);
    json_decref(object);
    rcv_trainer *t = resumed(s, data, "steps=4 validate-every=1 keep=1", path_in(name));
    assert_true(train_fixture_same(like, t));
    assert_int_equal(t->state.position.batch, like->state.position.batch);
    assert_string_equal(t->outputs.run_id, like->outputs.run_id);
    rcv_trainer_free(t);
}

/* Every allocation of jansson fails once while a checkpoint is written over another. */
static void test_no_json_memory(void **unused) {
    (void)unused;
    train_fixture s;
    char path[512];
    observer o = {.stop_at = 2};
    train_fixture_open(&s);
    const rcv_data *data = train_fixture_data(&s, "train", RCV_DATA_STREAM, train_fixture_verse, NULL);
    rcv_trainer *t = new_trainer(&s, data, "steps=4 validate-every=1 keep=1");
    check_fails(run(t, in("model", path), false, &o), RCV_STOPPED, "2 updates");
    size_t length, now;
    char *before = get("model", &length);
    o.stop_at = 3;
    check_fails(run(t, NULL, false, &o), RCV_STOPPED, "3 updates");
    json_set_alloc_funcs(allocate, free);
    long failed = 0;
    rcv_status status = RCV_NO_MEMORY;
    for (long next = 1; status != RCV_OK; next++) {
        allocations = 0;
        fail_at = next;
        status = rcv_trainer_save(t, path);
        const bool fired = allocations >= next;
        fail_at = 0;
        if (status == RCV_OK) {
            check_whole(&s, data, "model", t);
            if (fired) { /* where jansson does without: the old one again */
                rcv_tensors *old;
                check_ok(rcv_tensors_parse(s.context, before, length, "before", &old));
                rcv_tensors_free(old);
                FILE *file = fopen(path, "wb");
                assert_non_null(file);
                assert_int_equal(fwrite(before, 1, length, file), length);
                assert_int_equal(fclose(file), 0);
                status = RCV_NO_MEMORY;
            }
            continue;
        }
        failed++;
        char *after = get("model", &now);
        assert_int_equal(now, length);
        assert_memory_equal(before, after, length);
        free(after);
    }
    assert_true(failed > 100);
    assert_int_equal(entries(scratch()), 2 + 2); /* nothing half written */
    json_set_alloc_funcs(malloc, free);
    free(before);
    rcv_trainer_free(t);
    train_fixture_remove("model");
    train_fixture_close(&s);
}

/* The same in a whole run with its log, its best model and existing files: the run fails, or every line of the log is complete. */
static void test_no_json_memory_in_runs(void **unused) {
    (void)unused;
    train_fixture s;
    char path[512];
    train_fixture_open(&s);
    const rcv_data *data = train_fixture_data(&s, "train", RCV_DATA_STREAM, train_fixture_verse, NULL);
    rcv_trainer *base = new_trainer(&s, data, "steps=2 validate-every=1 keep=2");
    check_ok(run(base, in("model", path), false, &(observer){0}));
    json_set_alloc_funcs(allocate, free);
    int good = 0, bad = 0, warned = 0;
    for (long next = 1; next < 4000; next += 37) {
        observer o = {0};
        rcv_trainer *t = resumed(&s, data, "steps=3 validate-every=1 keep=2", path);
        t->state.step = 2;
        allocations = 0;
        fail_at = next;
        const rcv_status status = run(t, path, true, &o);
        const bool fired = allocations >= next;
        fail_at = 0;
        assert_int_equal(o.missed, 0);
        if (!fired && status != RCV_OK) fail_msg("allocation %ld did not fail: %s", next, rcv_message());
        good += status == RCV_OK;
        bad += status != RCV_OK;
        warned += o.warnings;
        rcv_trainer_free(t);
        rcv_trainer *again =
            resumed(&s, data, "steps=3 validate-every=1 keep=2", path); /* whatever is there is whole */
        rcv_trainer_free(again);
        if (!fired) break;
    }
    json_set_alloc_funcs(malloc, free);
    assert_true(good > 0 && bad > 0 && warned > 0);
    rcv_trainer_free(base);
    train_fixture_remove("model");
    train_fixture_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_other_runs),     cmocka_unit_test(test_going_back),
        cmocka_unit_test(test_without_name),   cmocka_unit_test(test_file_between),
        cmocka_unit_test(test_linked_output),  cmocka_unit_test(test_no_links),
        cmocka_unit_test(test_best_of_run),    cmocka_unit_test(test_two_at_once),
        cmocka_unit_test(test_no_json_memory), cmocka_unit_test(test_no_json_memory_in_runs),
    };
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}
