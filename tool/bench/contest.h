/* Contestants that compute the same thing, timed turn by turn in one run. */
#ifndef TOOL_CONTEST_H
#define TOOL_CONTEST_H

#include "problem.h"

/* Where a plan's calls find the data. */
typedef struct {
    void *parameters, *x, *dy;
    void *y, *dx, *dparameters;
} arrays;

/* What goes in and comes out. Every contestant leaves y (and in training dparameters) in the same memory of the host,
 * where it is compared with what the first one left. Elements are float32 or float64. */
typedef struct data {
    rcv_dtype storage;
    bool training;
    int64_t x_count, y_count, parameter_count; /* [steps, batch, input], [steps, batch, output], flat */
    void *parameters, *x, *dy;
    void *y, *dx, *dparameters; /* dx and dparameters in training only */
    void *y_first, *dparameters_first;
    bool first_is_known;
    rcv_context *context;
    const char *device;
    bool is_away; /* the device has memory of its own */
    arrays there; /* in the device's memory, which data_send fills; where it has none, the arrays above */
} data;

void data_new(data *data, const problem *problem, const rcv_net *net, uint64_t seed);
void data_free(data *data);
/* To the device, the first time that it is called: everything but the results. */
rcv_status data_send(data *data);
/* The results become what no contestant would write. */
rcv_status data_poison(data *data);
/* Results from the device to the host; the gradients of the parameters where `gradients` and in training. */
rcv_status data_fetch(data *data, bool gradients);
/* Numbers of a fixed sequence, even in -scale..scale. */
void fill_random(rcv_dtype storage, void *values, int64_t count, double scale, uint64_t seed);
/* The largest difference of a and b, in units of the largest element of b. */
double relative_difference(rcv_dtype storage, const void *a, const void *b, int64_t count);

typedef struct contestant contestant;

struct contestant {
    char *name, *plan;        /* plan: its string, or NULL */
    const char *family;       /* of contestants of which the best counts; NULL: it stands for itself */
    char *refusal;            /* why it does not take part; NULL: it does */
    char *note;               /* a version, say; or NULL */
    bool gradients_compare;   /* its parameters are laid out as the first one's */
    bool lingers;             /* its threads stay busy for a while after a call */
    bool enqueues;            /* calls return early: only many of them, waited for once, show the time of one */
    double operations, bytes; /* of a call, of a run; 0: not known */
    double ratio;             /* median in units of the first one's; 0: not known */
    double median, minimum;   /* seconds a call; 0: not measured */
    double difference;        /* from the first one's results; NAN: not compared */
    double *samples;          /* [sample_count] seconds a call, one a round */
    size_t sample_count;

    /* Seconds that `repeats` calls took; below 0 after setting `refusal`. */
    double (*run)(contestant *self, int64_t repeats);
    /* Brings the latest results into the data where they are not there yet; may be NULL. */
    bool (*fetch)(contestant *self);
    void (*close)(contestant *self); /* may be NULL */
    void *state;
    int64_t repeats;
};

enum { MAXIMUM_CONTESTANTS = 24 };

typedef struct {
    contestant items[MAXIMUM_CONTESTANTS];
    size_t count;
    size_t rounds;
    double turn; /* seconds that a turn takes at least; 0: as long as the clock needs */
} contest;

/* One more, empty but for its name. */
contestant *contest_add(contest *contest, const char *name);
void contestant_refuse(contestant *contestant, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Without the one that was added last. */
void contest_drop(contest *contest);
/* Ends what is running; the numbers stay. */
void contest_close(contest *contest);
void contest_free(contest *contest);

/* The machine's limit, measured again and again while a contest goes on. */
typedef struct {
    double samples[256], spent; /* operations a second; seconds that measuring took */
    size_t count, most;         /* of the samples */
    char *refusal;
} peak;

/* `seconds` are those of each experiment. One sample is enough for a GPU, whose limit needs no repetition, and for an experiment
 * that takes less time than several samples would. */
void peak_begin(peak *peak, const problem *problem, double seconds);
void peak_sample(peak *peak, const problem *problem); /* nothing where there are `most` */
double peak_best(const peak *peak);                   /* other work only ever makes it less; 0: not known */

/* Warms up, compares results, then goes round until the seconds are used and at least `least` rounds are done, or a
 * signal asks to stop. `peak` may be NULL. */
void contest_measure(contest *contest, const problem *problem, data *data, peak *peak, const char *title,
                     double seconds, size_t least);

double median(double *values, size_t count); /* sorts them */
double quantile(const double *sorted, size_t count, double share);
/* A line on standard error that the next one overwrites; only where that is a terminal. NULL wipes it. */
void show_progress(const char *format, ...) __attribute__((format(printf, 1, 2)));
void hide_progress(void);

/* ---- the contestants ---- */

/* A plan of ours for this network; `parameters` are the host's; schedule NULL: the planner's choice. */
contestant *add_plan(contest *contest, const char *name, const problem *problem, const rcv_net *net, data *data,
                     const void *parameters, const char *schedule);
const rcv_plan *contestant_plan(const contestant *contestant); /* of add_plan; NULL where it was refused */
rcv_run *contestant_run(const contestant *contestant);

/* One hoisted input product a layer, one recurrent product a step by OpenBLAS, and one loop over the elements. */
contestant *add_openblas(contest *contest, const problem *problem, data *data);
void openblas_threads(int64_t threads); /* from now on */
/* torch.nn in a python3 that has it, on the problem's device. */
contestant *add_torch(contest *contest, const problem *problem, data *data);

#endif
