/* Fixture of the tests of training: small data, settings as one line, parameters to compare. */
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
/* Frees the data, and fails where memory is still allocated or the test's folder has files that train_fixture_remove has not deleted. */
void train_fixture_close(train_fixture *fixture);
/* Deletes all files of the test's folder whose names begin with `prefix`; gives their number. */
int train_fixture_remove(const char *prefix);

/* Writes the text to a file of the test's folder and opens it; the fixture frees it. `like` may be NULL. */
const rcv_data *train_fixture_data(train_fixture *fixture, const char *name, rcv_data_kind kind, const char *text,
                                   const rcv_data *like);

/* "hidden=4 optimiser=sgd ..." after the settings of every test: level=word, one thread, plans by estimate, no checkpoints by time. */
rcv_settings *train_fixture_settings(const train_fixture *fixture, const char *line);
/* A trainer of settings `first` and then `second`, each as above. */
rcv_trainer *train_fixture_trainer(const train_fixture *fixture, const char *first, const char *second,
                                   const rcv_data *train, const rcv_data *valid);

/* Parameters in double, for free(). */
double *train_fixture_parameters(const rcv_trainer *trainer);
void train_fixture_set_parameters(rcv_trainer *trainer, const double *parameters);
double train_fixture_difference(const rcv_trainer *a, const rcv_trainer *b); /* largest of any parameter */
bool train_fixture_same(const rcv_trainer *a, const rcv_trainer *b);         /* parameters and moments, bit for bit */

/* The `user` of rcv_trainer_options: records losses and rates of updates and of validations; stops after update `stop_at`. */
enum { RECORDED = 256 };
typedef struct {
    rcv_trainer *trainer;
    int64_t stop_at;
    int64_t updates; /* recorded */
    double loss[RECORDED], rate[RECORDED];
    double validation[RECORDED]; /* NaN: null */
    bool best[RECORDED];
    int64_t validations;
    char end[32];             /* the reason */
    void (*each)(void *user); /* NULL, or called after every update */
    void *user;
} recorder;

/* Runs the trainer with the recorder. Settings must have log-every=1. */
rcv_status train_fixture_run(rcv_trainer *trainer, const char *output, recorder *recorder);

/* One of these, or the same with targets at every step, of which some are missing. */
const char *train_fixture_text(rcv_data_kind kind);
const char *train_fixture_kind(rcv_data_kind kind); /* kind=... */
extern const char *const train_fixture_verse;       /* a few lines of words */
extern const char *const train_fixture_examples;    /* classes, of two features; as values with another last number */
extern const char *const train_fixture_values;

#endif
