/* What the tests of training share: small data, settings as one line, parameters to compare. */
#ifndef RECURVE_SCHOOL_H
#define RECURVE_SCHOOL_H

#include "test.h"

#include "train/run/trainer.h"

typedef struct {
    test_allocator allocator;
    rcv_context *context;
    rcv_data *data[8];
    size_t count;
} school;

void school_open(school *school);
/* Frees the data; nothing else may be left, in memory or, but for what the test names with school_remove, in its folder. */
void school_close(school *school);
/* Deletes all files of the test's folder whose names begin so; answers how many there were. */
int school_remove(const char *prefix);

/* The text as a file `name` of the test's folder, opened; the school frees it. `like` may be NULL. */
const rcv_data *school_data(school *school, const char *name, rcv_data_kind kind, const char *text,
                            const rcv_data *like);

/* "hidden=4 optimiser=sgd ..." on top of what every test has: level=word, one thread, plans by estimate, no checkpoints by time. */
rcv_settings *school_settings(const school *school, const char *line);
/* A trainer of settings `first` and then `second`, each as above. */
rcv_trainer *school_trainer(const school *school, const char *first, const char *second, const rcv_data *train,
                            const rcv_data *valid);

/* Parameters in double, for free(). */
double *school_parameters(const rcv_trainer *trainer);
void school_set_parameters(rcv_trainer *trainer, const double *parameters);
double school_difference(const rcv_trainer *a, const rcv_trainer *b); /* largest of any parameter */
bool school_same(const rcv_trainer *a, const rcv_trainer *b);         /* parameters and moments, bit for bit */

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
rcv_status school_run(rcv_trainer *trainer, const char *output, watcher *watcher);

extern const char *const school_verse;    /* a few lines of words */
extern const char *const school_examples; /* classes, of two features; as values with another last number */
extern const char *const school_values;

#endif
