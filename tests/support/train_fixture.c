#define _XOPEN_SOURCE 700

#include "train_fixture.h"

#include "scratch.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <unistd.h>

const char *const train_fixture_verse =
    "the cat sat on the mat\na dog sat on a log\nthe cat saw the dog\na log lay on the mat\n"
    "the dog ran\na cat ran on the log\non the mat lay a dog\nthe log saw a mat\n";
const char *const train_fixture_examples = "{\"x\": [[0.5, -1], [0.25, 2], [1, 0]], \"y\": \"a\"}\n"
                                           "{\"x\": [[-0.5, 1], [0.75, -2]], \"y\": \"b\"}\n"
                                           "{\"x\": [[1.5, 0.5], [-1, 1], [0.5, 0.5], [2, -1]], \"y\": \"c\"}\n"
                                           "{\"x\": [[-1, -1]], \"y\": \"a\"}\n"
                                           "{\"x\": [[0.5, 1], [0.25, 0.125]], \"y\": \"c\"}\n"
                                           "{\"x\": [[0.25, -0.5], [1, 1], [-2, 0.5]], \"y\": \"b\"}\n";
const char *const train_fixture_values = "{\"x\": [[0.5, -1], [0.25, 2], [1, 0]], \"y\": [0.5, 1]}\n"
                                         "{\"x\": [[-0.5, 1], [0.75, -2]], \"y\": [-1, 0.25]}\n"
                                         "{\"x\": [[1.5, 0.5], [-1, 1], [0.5, 0.5], [2, -1]], \"y\": [2, -0.5]}\n"
                                         "{\"x\": [[-1, -1]], \"y\": [0, 0.75]}\n"
                                         "{\"x\": [[0.25, -0.5], [1, 1], [-2, 0.5]], \"y\": [1, 1]}\n";

/* Of different lengths; the third has no target. */
static const char step_classes[] =
    "{\"x\": [[0.5, -1], [0.25, 2], [1, 0]], \"y\": [\"a\", null, \"b\"]}\n"
    "{\"x\": [[-0.5, 1], [0.75, -2]], \"y\": [\"b\", \"c\"]}\n"
    "{\"x\": [[1, -1]], \"y\": [null]}\n"
    "{\"x\": [[1.5, 0.5], [-1, 1], [0.5, 0.5], [2, -1]], \"y\": [null, \"c\", \"a\", \"a\"]}\n"
    "{\"x\": [[0.5, 1], [0.25, 0.125]], \"y\": [\"c\", null]}\n";
static const char step_values[] =
    "{\"x\": [[1, -1]], \"y\": [null]}\n"
    "{\"x\": [[0.5, -1], [0.25, 2], [1, 0]], \"y\": [[0.5, 1], null, [-1, 0.25]]}\n"
    "{\"x\": [[-0.5, 1], [0.75, -2]], \"y\": [[2, -0.5], [0, 0.75]]}\n"
    "{\"x\": [[1.5, 0.5], [-1, 1], [0.5, 0.5], [2, -1]], \"y\": [[null, 1], [1, 1], [0.5, 2], [-1, -1]]}\n"
    "{\"x\": [[0.5, 1], [0.25, 0.125]], \"y\": [[1, 0], null]}\n";

const char *train_fixture_text(rcv_data_kind kind) {
    const char *const texts[] = {train_fixture_verse,  train_fixture_verse, train_fixture_examples,
                                 train_fixture_values, step_classes,        step_values};
    return texts[kind];
}

const char *train_fixture_kind(rcv_data_kind kind) {
    static const char *const names[] = {"kind=stream", "kind=lines",        "kind=classes",
                                        "kind=values", "kind=step-classes", "kind=step-values"};
    return names[kind];
}

void train_fixture_open(train_fixture *w) {
    *w = (train_fixture){0};
    w->context = test_context(&w->allocator);
}

int train_fixture_remove(const char *prefix) {
    DIR *folder = opendir(scratch());
    assert_non_null(folder);
    int count = 0;
    for (const struct dirent *entry; (entry = readdir(folder));)
        if (entry->d_name[0] != '.' && !strncmp(entry->d_name, prefix, strlen(prefix)))
            count += unlink(path_in(entry->d_name)) == 0;
    closedir(folder);
    return count;
}

void train_fixture_close(train_fixture *w) {
    while (w->count) rcv_data_free(w->data[--w->count]);
    train_fixture_remove("text-");
    test_context_end(&w->allocator, w->context);
    assert_int_equal(entries(scratch()), 0);
}

const rcv_data *train_fixture_data(train_fixture *w, const char *name, rcv_data_kind kind, const char *text,
                                   const rcv_data *like) {
    char file[64];
    assert_true(w->count < sizeof w->data / sizeof *w->data);
    snprintf(file, sizeof file, "text-%s", name);
    FILE *out = fopen(path_in(file), "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(text, 1, strlen(text), out), strlen(text));
    assert_int_equal(fclose(out), 0);
    const rcv_data_options options = RCV_INIT(rcv_data_options, .level = RCV_LEVEL_WORD, .kind = kind, .like = like);
    check_ok(rcv_data_open(w->context, path_in(file), &options, &w->data[w->count]));
    return w->data[w->count++];
}

static void set_line(rcv_settings *settings, const char *line) {
    char *copy = strdup(line), *rest = copy;
    assert_non_null(copy);
    for (char *word; (word = strtok_r(rest, " ", &rest));) {
        char *value = strchr(word, '=');
        assert_non_null(value);
        *value++ = '\0';
        check_ok(rcv_settings_set(settings, word, value));
    }
    free(copy);
}

rcv_settings *train_fixture_settings(const train_fixture *w, const char *line) {
    rcv_settings *settings = NULL;
    check_ok(rcv_settings_new(w->context, &settings));
    set_line(settings, "level=word effort=estimate threads=1 checkpoint-seconds=0 log-every=1 hidden=3");
    set_line(settings, line);
    return settings;
}

rcv_trainer *train_fixture_trainer(const train_fixture *w, const char *first, const char *second, const rcv_data *train,
                                   const rcv_data *valid) {
    rcv_settings *settings = train_fixture_settings(w, first);
    rcv_trainer *trainer = NULL;
    set_line(settings, second);
    check_ok(rcv_trainer_new(w->context, settings, train, valid, &trainer));
    rcv_settings_free(settings);
    return trainer;
}

double *train_fixture_parameters(const rcv_trainer *t) {
    const rcv_learner *l = t->learner;
    double *values = calloc((size_t)l->elements, sizeof *values);
    assert_non_null(values);
    for (int64_t i = 0; i < l->elements; i++)
        values[i] =
            l->real == RCV_FLOAT64 ? ((const double *)l->parameters)[i] : (double)((const float *)l->parameters)[i];
    return values;
}

void train_fixture_set_parameters(rcv_trainer *t, const double *values) {
    rcv_learner *l = t->learner;
    for (int64_t i = 0; i < l->elements; i++) {
        if (l->real == RCV_FLOAT64)
            ((double *)l->parameters)[i] = values[i];
        else
            ((float *)l->parameters)[i] = (float)values[i];
    }
}

double train_fixture_difference(const rcv_trainer *a, const rcv_trainer *b) {
    double *x = train_fixture_parameters(a), *y = train_fixture_parameters(b), most = 0;
    assert_int_equal(a->learner->elements, b->learner->elements);
    for (int64_t i = 0; i < a->learner->elements; i++) {
        assert_true(isfinite(x[i]) && isfinite(y[i]));
        most = fmax(most, fabs(x[i] - y[i]));
    }
    free(x);
    free(y);
    return most;
}

static bool same_array(const rcv_trainer *a, const void *x, const void *y) {
    if (!x || !y) return x == y;
    return !memcmp(x, y, (size_t)a->learner->elements * rcvi_real_bytes(a->learner));
}

bool train_fixture_same(const rcv_trainer *a, const rcv_trainer *b) {
    return a->learner->elements == b->learner->elements &&
           same_array(a, a->learner->parameters, b->learner->parameters) &&
           same_array(a, a->optimiser.first, b->optimiser.first) &&
           same_array(a, a->optimiser.second, b->optimiser.second) &&
           same_array(a, a->optimiser.average, b->optimiser.average);
}

/* ---- recording ---- */

static void on_log(void *user, const char *line) {
    recorder *w = user;
    json_t *object = json_loads(line, 0, NULL);
    const char *event = json_string_value(json_object_get(object, "event"));
    assert_non_null(event);
    if (!strcmp(event, "progress") && w->updates < RECORDED) {
        w->loss[w->updates] = json_number_value(json_object_get(object, "update_loss"));
        w->rate[w->updates++] = json_number_value(json_object_get(object, "rate"));
    } else if (!strcmp(event, "validation") && w->validations < RECORDED) {
        w->best[w->validations] = json_is_true(json_object_get(object, "best"));
        const json_t *loss = json_object_get(object, "loss");
        w->validation[w->validations++] = json_is_null(loss) ? NAN : json_number_value(loss);
    } else if (!strcmp(event, "end")) {
        snprintf(w->end, sizeof w->end, "%s", json_string_value(json_object_get(object, "reason")));
    }
    json_decref(object);
}

static bool on_progress(void *user, const rcv_progress *progress) {
    const recorder *w = user;
    if (w->each && progress->step > 0) w->each(w->user);
    return !w->stop_at || progress->step < w->stop_at;
}

rcv_status train_fixture_run(rcv_trainer *trainer, const char *output, recorder *recorder) {
    const rcv_trainer_options options =
        RCV_INIT(rcv_trainer_options, .output = output, .progress = on_progress, .log = on_log, .user = recorder);
    recorder->trainer = trainer;
    return rcv_trainer_run(trainer, &options);
}
