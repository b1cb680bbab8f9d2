/* A run in files: going on from one bit for bit, files that are refused, files that are kept. */
#define _XOPEN_SOURCE 700

#include "scratch.h"
#include "train_fixture.h"

#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char *model_path(const char *name, char path[512]) {
    snprintf(path, 512, "%s", path_in(name));
    return path;
}

static char *read_bytes(const char *path, size_t *length) {
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    struct stat info;
    assert_int_equal(fstat(fileno(file), &info), 0);
    *length = (size_t)info.st_size;
    char *bytes = malloc(*length + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *length, file), *length);
    fclose(file);
    return bytes;
}

static void write_bytes(const char *path, const char *bytes, size_t length) {
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, length, file), length);
    assert_int_equal(fclose(file), 0);
}

/* ---- going on ---- */

enum { TOTAL = 17 };

typedef struct {
    rcv_data_kind kind;
    const char *settings;
} resume_case;

static const resume_case resumes[] = {
    {RCV_DATA_STREAM, "optimiser=sgd batch=3 length=4"},
    {RCV_DATA_STREAM,
     "optimiser=adam batch=3 length=4 layers=2 dropout=0.3 dropout-embedding=0.2 weight-drop=0.3 zoneout=0.2"},
    {RCV_DATA_STREAM,
     "optimiser=momentum batch=2 length=5 accumulate=2 dropout-input=0.3 variational=true dtype=float64"},
    {RCV_DATA_STREAM,
     "optimiser=asgd batch=2 length=5 learning-rate=40 clip=0 nonmono=1 validate-every=2 dropout-output=0.3"},
    {RCV_DATA_STREAM, "optimiser=sgd batch=2 length=5 decay=plateau decay-patience=3 validate-every=1 learning-rate=40 "
                      "clip=0 tied=true"},
    {RCV_DATA_STREAM, "optimiser=sgd batch=2 length=5 decay=cosine warmup=3 effort=measure"},
    {RCV_DATA_LINES, "optimiser=adam batch=2 dropout-output=0.3 layers=2 dropout=0.2"},
    {RCV_DATA_LINES, "optimiser=momentum batch=2 accumulate=2 tokens=20 dropout-input=0.2 variational=true"},
    {RCV_DATA_LINES,
     "optimiser=asgd batch=3 nonmono=1 validate-every=1 learning-rate=40 clip=0 shuffle=false buckets=none"},
    {RCV_DATA_CLASSES, "optimiser=adamw weight-decay=0.1 batch=2 dropout-input=0.2 bidirectional=true"},
    {RCV_DATA_CLASSES, "optimiser=sgd batch=4 accumulate=2 buckets=2,3 dropout-output=0.3 dtype=float64"},
    {RCV_DATA_VALUES, "optimiser=momentum batch=2 validate-every=2 decay=epoch decay-after=1"},
    {RCV_DATA_STEP_CLASSES,
     "optimiser=adam batch=2 buckets=2,4 dropout-input=0.2 class-weights=balanced normalise=true"},
    {RCV_DATA_STEP_VALUES, "optimiser=adam batch=2 accumulate=2 validate-every=2 bidirectional=true"},
};
enum { RESUMES = sizeof resumes / sizeof *resumes };

static rcv_trainer *make_trainer(const train_fixture *s, const resume_case *c, const rcv_data *data) {
    char line[320];
    snprintf(line, sizeof line, "%s steps=%d seed=4 checkpoint-every=1000 %s", train_fixture_kind(c->kind), TOTAL,
             c->settings);
    return train_fixture_trainer(s, line, "", data, data);
}

static void check_state(const rcvi_run_state *a, const rcvi_run_state *b) {
    assert_int_equal(a->step, b->step);
    assert_true(a->position.epoch == b->position.epoch && a->position.batch == b->position.batch);
    assert_int_equal(a->tokens, b->tokens);
    assert_true(a->plateau_factor == b->plateau_factor && a->best_loss == b->best_loss && a->best_step == b->best_step);
    assert_true(a->bad_validations == b->bad_validations && a->bad_since_decay == b->bad_since_decay &&
                a->validations == b->validations);
    assert_int_equal(a->averaged_updates, b->averaged_updates);
}

/* k updates, a file, the others by a trainer that was not there before. */
static void check_resume(const train_fixture *s, const resume_case *c, const rcv_data *data, const rcv_trainer *whole,
                         const recorder *seen, int64_t k) {
    char path[512];
    rcv_trainer *part = make_trainer(s, c, data);
    recorder w = {.stop_at = k};
    check_fails(train_fixture_run(part, model_path("model", path), &w), RCV_STOPPED, "updates");
    assert_int_equal(part->state.step, k);
    rcv_trainer_free(part);
    rcv_trainer *rest = make_trainer(s, c, data);
    memset(rest->learner->parameters, 0, (size_t)rest->learner->elements * rcvi_real_bytes(rest->learner));
    check_ok(rcv_trainer_resume(rest, path));
    w.stop_at = 0;
    check_ok(train_fixture_run(rest, path, &w));
    if (!train_fixture_same(whole, rest))
        fail_msg("%s: from update %lld on it is another run", c->settings, (long long)k);
    check_state(&whole->state, &rest->state);
    assert_int_equal(w.updates, seen->updates);
    assert_int_equal(w.validations, seen->validations);
    for (int64_t i = 0; i < w.updates; i++) assert_true(w.loss[i] == seen->loss[i] && w.rate[i] == seen->rate[i]);
    for (int64_t i = 0; i < w.validations; i++) assert_true(w.validation[i] == seen->validation[i]);
    rcv_trainer_free(rest);
    train_fixture_remove("model");
}

static void test_resuming(void **unused) {
    (void)unused;
    const int64_t at[] = {1, 2, 5, 8, 11, 16};
    int64_t averaged = 0;
    for (size_t i = 0; i < RESUMES; i++) {
        train_fixture s;
        train_fixture_open(&s);
        const rcv_data *data =
            train_fixture_data(&s, "train", resumes[i].kind, train_fixture_text(resumes[i].kind), NULL);
        rcv_trainer *whole = make_trainer(&s, &resumes[i], data);
        recorder w = {0};
        if (strstr(resumes[i].settings, "measure")) { /* the plan of one is the plan of all */
            char path[512];
            check_ok(rcv_trainer_save(whole, model_path("model", path)));
            w.stop_at = 1;
            check_fails(train_fixture_run(whole, path, &w), RCV_STOPPED, "1 updates");
            w.stop_at = 0;
            check_ok(train_fixture_run(whole, NULL, &w));
            rcv_trainer *rest = make_trainer(&s, &resumes[i], data);
            recorder other = {0};
            check_ok(rcv_trainer_resume(rest, path));
            check_ok(train_fixture_run(rest, NULL, &other));
            assert_true(train_fixture_same(whole, rest));
            rcv_trainer_free(rest);
            train_fixture_remove("model");
        } else {
            check_ok(train_fixture_run(whole, NULL, &w));
            averaged += whole->state.averaged_updates;
            for (size_t k = 0; k < sizeof at / sizeof *at; k++) check_resume(&s, &resumes[i], data, whole, &w, at[k]);
        }
        rcv_trainer_free(whole);
        train_fixture_close(&s);
    }
    assert_true(averaged > 4); /* the average was there to be kept */
}

/* A run that was stopped in memory, saved without a file of its own, and gone on with twice. */
static void test_saving(void **unused) {
    (void)unused;
    train_fixture s;
    char path[512];
    train_fixture_open(&s);
    const rcv_data *data = train_fixture_data(&s, "train", RCV_DATA_STREAM, train_fixture_verse, NULL);
    rcv_trainer *a = make_trainer(&s, &resumes[1], data), *b = make_trainer(&s, &resumes[1], data);
    recorder w = {.stop_at = 6};
    check_fails(train_fixture_run(a, NULL, &w), RCV_STOPPED, "6 updates");
    check_ok(rcv_trainer_save(a, model_path("model", path)));
    check_ok(rcv_trainer_resume(b, path));
    check_ok(rcv_trainer_resume(b, path));
    char second[512];
    check_ok(rcv_trainer_save(b, model_path("second", second))); /* before it has run: states are on their way */
    rcv_trainer *c = make_trainer(&s, &resumes[1], data);
    check_ok(rcv_trainer_resume(c, second));
    w.stop_at = 0;
    check_ok(train_fixture_run(a, NULL, &w));
    check_ok(train_fixture_run(b, NULL, &w));
    check_ok(train_fixture_run(c, NULL, &w));
    assert_true(train_fixture_same(a, b));
    assert_true(train_fixture_same(a, c));
    check_fails(rcv_trainer_resume(a, path), RCV_INVALID, "before it has run");
    check_fails(rcv_trainer_save(a, "/nonexistent/folder/model"), RCV_IO, "/nonexistent");
    rcv_trainer_free(a);
    rcv_trainer_free(b);
    rcv_trainer_free(c);
    train_fixture_remove("model");
    train_fixture_remove("second");
    train_fixture_close(&s);
}

/* The same text with the checkpoint's vocabulary, as the tool reads it, is the same data. */
static void test_given_vocabulary(void **unused) {
    (void)unused;
    train_fixture s;
    char path[512];
    train_fixture_open(&s);
    const rcv_data *data = train_fixture_data(&s, "train", RCV_DATA_STREAM, train_fixture_verse, NULL);
    rcv_trainer *a = make_trainer(&s, &resumes[1], data);
    recorder w = {.stop_at = 6};
    check_fails(train_fixture_run(a, model_path("model", path), &w), RCV_STOPPED, "6 updates");
    rcv_vocabulary *vocabulary;
    rcv_data *again;
    check_ok(rcv_checkpoint_vocabulary(s.context, path, &vocabulary));
    const rcv_data_options options = RCV_INIT(rcv_data_options, .level = RCV_LEVEL_WORD, .vocabulary = vocabulary);
    check_ok(rcv_data_open(s.context, path_in("text-train"), &options, &again));
    rcv_vocabulary_free(vocabulary);
    rcv_trainer *b = make_trainer(&s, &resumes[1], again);
    check_ok(rcv_trainer_resume(b, path));
    assert_true(b->state.position.epoch == a->state.position.epoch &&
                b->state.position.batch == a->state.position.batch);
    assert_true(b->state.position.batch > 0);
    w.stop_at = 0;
    check_ok(train_fixture_run(a, NULL, &w));
    check_ok(train_fixture_run(b, NULL, &w));
    assert_true(train_fixture_same(a, b));
    rcv_trainer_free(b);
    rcv_data_free(again);
    rcv_trainer_free(a);
    train_fixture_remove("model");
    train_fixture_close(&s);
}

static void test_other_data(void **unused) {
    (void)unused;
    train_fixture s;
    char path[512];
    train_fixture_open(&s);
    const rcv_data *data = train_fixture_data(&s, "train", RCV_DATA_STREAM, train_fixture_verse, NULL);
    const rcv_data *other =
        train_fixture_data(&s, "other", RCV_DATA_STREAM, "a cat sat on a dog\na dog sat on a cat\nthe mat\n", data);
    const char *const line = "batch=2 length=3 optimiser=adam steps=12";
    rcv_trainer *a = train_fixture_trainer(&s, line, "", data, NULL),
                *b = train_fixture_trainer(&s, line, "", other, NULL),
                *c = train_fixture_trainer(&s, line, "length=4", data, NULL),
                *d = train_fixture_trainer(&s, line, "batch=3", data, NULL);
    recorder w = {.stop_at = 10};
    check_fails(train_fixture_run(a, model_path("model", path), &w), RCV_STOPPED, "10 updates");
    assert_true(a->state.position.epoch == 1 && a->state.position.batch > 0);
    check_ok(rcv_trainer_resume(b, path));
    assert_true(b->state.position.epoch == 0 && b->state.position.batch == 0 && b->state.step == 10);
    check_ok(rcv_trainer_resume(c, path)); /* other batches of the same data */
    check_ok(rcv_trainer_resume(d, path));
    assert_true(c->state.position.epoch == 1 && c->state.position.batch == 0);
    assert_true(d->state.position.epoch == 1 && d->state.position.batch == 0);
    w.stop_at = 0;
    check_ok(train_fixture_run(b, NULL, &w));
    check_ok(train_fixture_run(c, NULL, &w));
    check_ok(train_fixture_run(d, NULL, &w));
    assert_true(b->state.step == 12 && b->state.position.epoch == 1 && b->state.position.batch == 0);
    rcv_trainer *const all[] = {a, b, c, d};
    for (size_t i = 0; i < 4; i++) rcv_trainer_free(all[i]);
    train_fixture_remove("model");
    train_fixture_close(&s);
}

/* ---- refusals ---- */

/* A trainer that fails to resume, and a copy of it from before. */
typedef struct {
    rcv_trainer *trainer, *before;
} subject;

static subject make_subject(const train_fixture *s, const char *line, const rcv_data *data) {
    return (subject){train_fixture_trainer(s, line, "", data, NULL), train_fixture_trainer(s, line, "", data, NULL)};
}

static void check_unharmed(const subject *s) {
    assert_true(train_fixture_same(s->trainer, s->before));
    assert_true(s->trainer->state.step == 0 && s->trainer->state.position.batch == 0 &&
                s->trainer->state.loss_scale == 1);
    assert_true(!s->trainer->state.carried && !s->trainer->state.plans && s->trainer->state.loss_count == 0);
}

static void free_subject(subject *s) {
    rcv_trainer_free(s->trainer);
    rcv_trainer_free(s->before);
}

static const char small[] = "cell=gru hidden=2 batch=2 length=5 optimiser=adam steps=3 seed=9 keep=1";

static void write_small(const train_fixture *s, const rcv_data *data, const char *path) {
    rcv_trainer *t = train_fixture_trainer(s, small, "seed=1", data, NULL);
    recorder w = {0};
    check_ok(train_fixture_run(t, path, &w));
    rcv_trainer_free(t);
}

static void test_other_models(void **unused) {
    (void)unused;
    const struct {
        const char *settings, *sentence;
    } wrong[] = {
        {"cell=lstm", "its cell"},
        {"hidden=3", "its network"},
        {"layers=2", "its network"},
        {"tied=true", "its shape"},
        {"embedding=4", "its network"},
        {"no-bias=true", "its network"},
        {"embedding-kind=fixed", "shape"},
        {"optimiser=momentum momentum=0", NULL},
        {"dropout=0.3", NULL},
        {"zoneout=0.3 variational=true", NULL},
    };
    train_fixture s;
    char path[512];
    train_fixture_open(&s);
    const rcv_data *data = train_fixture_data(&s, "train", RCV_DATA_STREAM, train_fixture_verse, NULL);
    write_small(&s, data, model_path("model", path));
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char line[256];
        snprintf(line, sizeof line, "%s %s", small, wrong[i].settings);
        subject t = make_subject(&s, line, data);
        if (wrong[i].sentence) {
            check_fails(rcv_trainer_resume(t.trainer, path), RCV_FORMAT, wrong[i].sentence);
            assert_true(strstr(rcv_message(), path) != NULL);
            check_unharmed(&t);
        } else {
            check_ok(rcv_trainer_resume(t.trainer, path));
        }
        free_subject(&t);
    }
    /* As many words, but others. */
    char *words = strdup(train_fixture_verse);
    assert_non_null(words);
    memcpy(strstr(words, "saw the dog"), "was the dog", 11);
    memcpy(strstr(words, "saw a mat"), "was a mat", 9);
    const rcv_data *other = train_fixture_data(&s, "other", RCV_DATA_STREAM, words, NULL);
    subject t = make_subject(&s, small, other);
    assert_int_equal(rcv_data_outputs(data), rcv_data_outputs(other));
    check_fails(rcv_trainer_resume(t.trainer, path), RCV_FORMAT, "vocabulary");
    check_unharmed(&t);
    /* A model without a run; no model; no file. */
    check_ok(rcv_learner_save(t.before->learner, path));
    check_fails(rcv_trainer_resume(t.trainer, path), RCV_FORMAT, "without a training run");
    write_bytes(path, "this is text, and not a model", 29);
    check_fails(rcv_trainer_resume(t.trainer, path), RCV_FORMAT, path);
    assert_int_equal(train_fixture_remove("model"), 1);
    check_fails(rcv_trainer_resume(t.trainer, path), RCV_IO, path);
    check_unharmed(&t);
    free_subject(&t);
    free(words);
    train_fixture_close(&s);
}

static void test_truncated_files(void **unused) {
    (void)unused;
    train_fixture s;
    char path[512];
    size_t length;
    train_fixture_open(&s);
    const rcv_data *data = train_fixture_data(&s, "train", RCV_DATA_STREAM, train_fixture_verse, NULL);
    write_small(&s, data, model_path("model", path));
    char *bytes = read_bytes(path, &length);
    subject t = make_subject(&s, small, data);
    for (size_t cut = 0; cut < length; cut += cut < 64 ? 1 : 37) {
        write_bytes(path, bytes, cut);
        check_fails(rcv_trainer_resume(t.trainer, path), RCV_FORMAT, path);
        rcv_learner *learner;
        check_fails(rcv_learner_load(s.context, path, NULL, RCV_FLOAT32, &learner), RCV_FORMAT, path);
        rcv_settings *settings;
        check_fails(rcv_checkpoint_settings(s.context, path, &settings), RCV_FORMAT, path);
    }
    check_unharmed(&t);
    write_bytes(path, bytes, length);
    check_ok(rcv_trainer_resume(t.trainer, path));
    free(bytes);
    free_subject(&t);
    train_fixture_remove("model");
    train_fixture_close(&s);
}

/* Every flipped bit of the file is noticed. Files with wrong contents and a right checksum are in test_forged_checkpoints.c. */
static void test_flipped_bits(void **unused) {
    (void)unused;
    train_fixture s;
    char path[512];
    size_t length;
    train_fixture_open(&s);
    const rcv_data *data = train_fixture_data(&s, "train", RCV_DATA_STREAM, train_fixture_verse, NULL);
    write_small(&s, data, model_path("model", path));
    char *bytes = read_bytes(path, &length);
    assert_true(length > 2000);
    for (size_t at = 0; at < length; at += at < 16 ? 1 : 7) {
        rcv_tensors *tensors;
        bytes[at] = (char)(bytes[at] ^ 1 << at % 8);
        write_bytes(path, bytes, length);
        bytes[at] = (char)(bytes[at] ^ 1 << at % 8);
        check_fails(rcv_tensors_load(s.context, path, &tensors), RCV_FORMAT, path);
    }
    subject t = make_subject(&s, small, data);
    bytes[length - 2] ^= 0x40;
    write_bytes(path, bytes, length);
    check_fails(rcv_trainer_resume(t.trainer, path), RCV_FORMAT, "it is damaged");
    check_unharmed(&t);
    free_subject(&t);
    bytes[length - 2] ^= 0x40;
    write_bytes(path, bytes, length);
    rcv_tensors *tensors;
    check_ok(rcv_tensors_load(s.context, path, &tensors));
    assert_null(rcv_tensors_metadata(tensors, "recurve.checksum"));
    check_fails(rcv_tensors_set_metadata(tensors, "recurve.checksum", "0"), RCV_INVALID, "cannot be set");
    rcv_tensors_free(tensors);
    free(bytes);
    train_fixture_remove("model");
    train_fixture_close(&s);
}

/* Writes the file again without one tensor, or with one of another shape. */
static void spoil(const train_fixture *s, const rcv_tensors *good, const char *path, const char *name,
                  const rcv_tensor *replacement) {
    static const char *const keys[] = {"recurve.format",   "recurve.cell",     "recurve.network", "recurve.learner",
                                       "recurve.settings", "recurve.training", "recurve.plans",   "recurve.vocabulary"};
    rcv_tensors *bad;
    check_ok(rcv_tensors_new(s->context, &bad));
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        check_ok(rcv_tensors_set_metadata(bad, keys[i], rcv_tensors_metadata(good, keys[i])));
    for (size_t i = 0; i < rcv_tensors_count(good); i++)
        if (strcmp(rcv_tensors_at(good, i)->name, name)) check_ok(rcv_tensors_add(bad, rcv_tensors_at(good, i)));
    if (replacement) check_ok(rcv_tensors_add(bad, replacement));
    check_ok(rcv_tensors_save(bad, path));
    rcv_tensors_free(bad);
}

/* Impossible run states, in a file that is right otherwise. */
static void refuse_states(rcv_trainer *t, rcv_tensors *good, const char *path) {
    static const char *const members[][2] = {
        {"seconds", "-1"},  {"seconds", "null"}, {"scale", "0"},      {"scale", "null"},
        {"factor", "-0.5"}, {"factor", "1.5"},   {"factor", "\"1\""}, {"step", "-1"},
        {"step", "1.5"},    {"step", "null"},    {"skipped", "-1"},   {"seen", "9223372036854775807"},
        {"data", "\"12\""}, {"data", "12"},      {"best", "[]"},      {"validations_losses", "[0.5, \"0.5\"]"}};
    json_t *object = json_loads(rcv_tensors_metadata(good, "recurve.training"), 0, NULL);
    assert_non_null(object);
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        json_t *spoilt = json_deep_copy(object);
        assert_non_null(json_object_get(spoilt, members[i][0]));
        json_object_set_new(spoilt, members[i][0], json_loads(members[i][1], JSON_DECODE_ANY, NULL));
        char *text = json_dumps(spoilt, 0);
        check_ok(rcv_tensors_set_metadata(good, "recurve.training", text));
        check_ok(rcv_tensors_save(good, path));
        check_fails(rcv_trainer_resume(t, path), RCV_FORMAT, "recurve.training");
        free(text);
        json_decref(spoilt);
    }
    json_decref(object);
}

static void test_spoiled_tensors(void **unused) {
    (void)unused;
    static const char *const wanted[] = {"embedding.weight", "decoder.weight",       "decoder.bias",
                                         "rnn.weight_hh_l0", "first.rnn.bias_ih_l0", "second.decoder.bias",
                                         "state.h"};
    train_fixture s;
    char path[512];
    train_fixture_open(&s);
    const rcv_data *data = train_fixture_data(&s, "train", RCV_DATA_STREAM, train_fixture_verse, NULL);
    write_small(&s, data, model_path("model", path));
    rcv_tensors *good;
    check_ok(rcv_tensors_load(s.context, path, &good));
    subject t = make_subject(&s, small, data);
    const float zeros[4] = {0};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        spoil(&s, good, path, wanted[i], NULL);
        check_fails(rcv_trainer_resume(t.trainer, path), RCV_FORMAT, wanted[i]);
        const rcv_tensor wrong = {wanted[i], RCV_FLOAT32, 2, {1, 4}, zeros, sizeof zeros};
        spoil(&s, good, path, wanted[i], &wrong);
        check_fails(rcv_trainer_resume(t.trainer, path), RCV_FORMAT, wanted[i]);
        check_unharmed(&t);
    }
    refuse_states(t.trainer, good, path);
    static const char *const states[] = {"", "[]", "{\"step\": 1}", "{}", "{\"step\": -1"};
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        check_ok(rcv_tensors_set_metadata(good, "recurve.training", states[i]));
        check_ok(rcv_tensors_save(good, path));
        check_fails(rcv_trainer_resume(t.trainer, path), RCV_FORMAT, "recurve.training");
    }
    check_unharmed(&t);
    static const char *const shapes[] = {
        "", "[]", "{}", "{\"kind\": \"stream\", \"tokens\": 9000000000000000000}",
        "{\"kind\": \"stream\", \"tokens\": 9000000000000000000, \"features\": 0, "
        "\"embedding\": 9000000000000000000, \"outputs\": 14, \"tied\": false, \"fixed\": "
        "false}"};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        rcv_learner *learner = (rcv_learner *)good;
        check_ok(rcv_tensors_set_metadata(good, "recurve.learner", shapes[i]));
        check_ok(rcv_tensors_save(good, path));
        assert_true(rcv_learner_load(s.context, path, NULL, RCV_FLOAT32, &learner) != RCV_OK);
        assert_null(learner);
    }
    rcv_tensors_free(good);
    free_subject(&t);
    train_fixture_remove("model");
    train_fixture_close(&s);
}

/* ---- files that are kept ---- */

static int64_t step_of(const train_fixture *s, const char *name) {
    rcv_tensors *tensors;
    check_ok(rcv_tensors_load(s->context, path_in(name), &tensors));
    json_t *object = json_loads(rcv_tensors_metadata(tensors, "recurve.training"), 0, NULL);
    const int64_t step = json_integer_value(json_object_get(object, "step"));
    json_decref(object);
    rcv_tensors_free(tensors);
    return step;
}

static void test_rotation(void **unused) {
    (void)unused;
    train_fixture s;
    char path[512];
    train_fixture_open(&s);
    const rcv_data *data = train_fixture_data(&s, "train", RCV_DATA_STREAM, train_fixture_verse, NULL);
    rcv_trainer *t = train_fixture_trainer(&s, small, "steps=20 checkpoint-every=3 keep=3", data, NULL);
    recorder w = {0};
    check_ok(train_fixture_run(t, model_path("model.safetensors", path), &w));
    assert_int_equal(step_of(&s, "model.safetensors"), 20);
    assert_int_equal(step_of(&s, "model.1.safetensors"), 18);
    assert_int_equal(step_of(&s, "model.2.safetensors"), 15);
    assert_int_equal(train_fixture_remove("model"), 3);
    rcv_trainer_free(t);
    t = train_fixture_trainer(&s, small, "steps=4 checkpoint-every=1 keep=1", data, NULL);
    check_ok(train_fixture_run(t, model_path("model", path), &w));
    assert_int_equal(step_of(&s, "model"), 4);
    assert_int_equal(train_fixture_remove("model"), 1);
    rcv_trainer_free(t);
    train_fixture_close(&s);
}

static void test_best(void **unused) {
    (void)unused;
    train_fixture s;
    char path[512], *best;
    train_fixture_open(&s);
    const rcv_data *train = train_fixture_data(&s, "train", RCV_DATA_STREAM, train_fixture_verse, NULL);
    const rcv_data *valid =
        train_fixture_data(&s, "valid", RCV_DATA_STREAM, "the cat ran on a mat\na log saw the cat\n", train);
    rcv_trainer *t =
        train_fixture_trainer(&s, "dtype=float64 batch=2 length=5 optimiser=adam learning-rate=0.1 hidden=16",
                              "steps=40 validate-every=2 eval-batch=1", train, valid);
    recorder w = {0};
    check_ok(train_fixture_run(t, model_path("model.safetensors", path), &w));
    double least = INFINITY;
    for (int64_t i = 0; i < w.validations; i++) least = fmin(least, w.validation[i]);
    assert_true(least < w.validation[w.validations - 1]); /* it had begun to learn by heart */
    check_ok(rcv_trainer_best_path(s.context, path, &best));
    assert_string_equal(best, path_in("model.best.safetensors"));
    rcv_learner *learner;
    rcv_evaluation result = RCV_INIT(rcv_evaluation);
    check_ok(rcv_learner_load(s.context, best, NULL, RCV_FLOAT64, &learner));
    check_ok(rcv_learner_evaluate(learner, valid, NULL, &result));
    assert_true(fabs(result.loss - least) < 1e-11);
    assert_true(fabs(rcv_trainer_progress(t)->best - least) < 1e-11);
    rcv_learner_free(learner);
    rcv_text_free(s.context, best);
    rcv_trainer_free(t);
    assert_int_equal(train_fixture_remove("model"), 3); /* and the one before */
    train_fixture_close(&s);
}

/* A disk that takes no more: files may not grow beyond a thousand bytes. */
static void test_full_disk(void **unused) {
    (void)unused;
    train_fixture s;
    char path[512];
    size_t before_length, after_length;
    train_fixture_open(&s);
    const rcv_data *data = train_fixture_data(&s, "train", RCV_DATA_STREAM, train_fixture_verse, NULL);
    rcv_trainer *t = train_fixture_trainer(&s, small, "steps=20 checkpoint-every=2 keep=2", data, NULL);
    recorder w = {.stop_at = 4};
    check_fails(train_fixture_run(t, model_path("model", path), &w), RCV_STOPPED, "4 updates");
    char *before = read_bytes(path, &before_length);
    struct rlimit limit, less;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    less = limit;
    less.rlim_cur = 1000;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &less), 0);
    w.stop_at = 0;
    const rcv_status status = train_fixture_run(t, path, &w);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    signal(SIGXFSZ, SIG_DFL);
    check_fails(status, RCV_IO, path);
    char *after = read_bytes(path, &after_length);
    assert_int_equal(before_length, after_length);
    assert_memory_equal(before, after, before_length);
    assert_int_equal(step_of(&s, "model"), 4);
    check_ok(train_fixture_run(t, path, &w)); /* there is room again: the run continues */
    assert_int_equal(step_of(&s, "model"), 20);
    free(before);
    free(after);
    rcv_trainer_free(t);
    assert_int_equal(train_fixture_remove("model"), 2); /* nothing half written is left */
    train_fixture_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resuming),         cmocka_unit_test(test_saving),
        cmocka_unit_test(test_given_vocabulary), cmocka_unit_test(test_other_data),
        cmocka_unit_test(test_other_models),     cmocka_unit_test(test_truncated_files),
        cmocka_unit_test(test_flipped_bits),     cmocka_unit_test(test_spoiled_tensors),
        cmocka_unit_test(test_rotation),         cmocka_unit_test(test_best),
        cmocka_unit_test(test_full_disk),
    };
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}
