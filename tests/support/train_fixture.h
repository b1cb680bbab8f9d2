/* What the tests of training share: small data, settings as one line, parameters to compare. */
#ifndef RECURVE_TRAIN_FIXTURE_H
#define RECURVE_TRAIN_FIXTURE_H

#include "test.h"

#include "train/run/trainer.h"

typedef struct {
    test_allocator allocator;
    rcv_context *context;
    rcv_data *data[8];
    size_t count;
} train_fixture;

void train_fixture_open(train_fixture *fixture);
/* Frees the data; nothing else may be left, in memory or, but for what the test names with train_fixture_remove, in its folder. */
void train_fixture_close(train_fixture *fixture);
/* Deletes all files of the test's folder whose names begin so; answers how many there were. */
int train_fixture_remove(const char *prefix);

/* The text as a file `name` of the test's folder, opened; the train_fixture frees it. `like` may be NULL. */
const rcv_data *train_fixture_data(train_fixture *fixture, const char *name, rcv_data_kind kind, const char *text,
                                   const rcv_data *like);

/* "hidden=4 optimiser=sgd ..." on top of what every test has: level=word, one thread, plans by estimate, no checkpoints by time. */
rcv_settings *train_fixture_settings(const train_fixture *fixture, const char *line);
/* A trainer of settings `first` and then `second`, each as above. */
rcv_trainer *train_fixture_trainer(const train_fixture *fixture, const char *first, const char *second,
                                   const rcv_data *train, const rcv_data *valid);

/* Parameters in double, for free(). */
double *train_fixture_parameters(const rcv_trainer *trainer);
void train_fixture_set_parameters(rcv_trainer *trainer, const double *parameters);
double train_fixture_difference(const rcv_trainer *a, const rcv_trainer *b); /* largest of any parameter */
bool train_fixture_same(const rcv_trainer *a, const rcv_trainer *b);         /* parameters and moments, bit for bit */

/* A watcher as the `user` of rcv_trainer_options: losses and rates of updates, lines of the log; stops behind update `stop_at`. */
enum { WATCHED = 256 };
typedef struct {
    rcv_trainer *trainer;
    int64_t stop_at;
    int64_t updates; /* noted */
    double loss[WATCHED], rate[WATCHED];
    double validation[WATCHED]; /* NaN: null */
    bool best[WATCHED];
    int64_t validations;
    char end[32];             /* the reason */
    void (*each)(void *user); /* NULL, or called behind every update */
    void *user;
} watcher;

/* Runs the trainer under the watcher. The settings have log-every=1. */
rcv_status train_fixture_run(rcv_trainer *trainer, const char *output, watcher *watcher);

extern const char *const train_fixture_verse;    /* a few lines of words */
extern const char *const train_fixture_examples; /* classes, of two features; as values with another last number */
extern const char *const train_fixture_values;

#endif
