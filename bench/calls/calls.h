/* What the files of bench_calls share. The program starts itself anew for every job (jobs.c), so that each has a process and a cache of its
 * own and one that fails leaves the results of the others. A job prints its results as rows of JSON, one a line, to its standard output. */
#ifndef BENCH_CALLS_H
#define BENCH_CALLS_H

#include <recurve.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

typedef struct {
    const char *device;
    const char *data;  /* folder with ptb.train.txt, or NULL */
    const char *parts; /* names with commas between, or NULL: all */
    const char *json;  /* file or folder, or NULL */
    double seconds;    /* of all parts together, at most */
    int64_t limit;     /* most batches of sentences; 0: all */
    bool tiny;         /* small networks, to test the program */
    bool files_read;   /* the files of the device's libraries were read before: they lie in the page cache */
} options;

/* ---- jobs -------------------------------------------------------------------------------------------------------- */

typedef struct {
    const options *options;
    rcv_context *context;
    const char *part;
    double until; /* it should end before, in seconds of CLOCK_MONOTONIC */
    bool failed;
    FILE *details; /* of the next row; NULL: none yet */
    char *details_text;
    size_t details_length;
} job;

/* Where a job is done: on the device of the options; on the CPU, whatever device the options name; on a GPU or not at all. */
typedef enum { ON_DEVICE, ON_CPU, ON_GPU } place;

typedef struct {
    const char *name, *part;
    void (*measure)(job *j, const char *argument);
    const char *argument; /* NULL: none */
    const char *cache;    /* the folder of its cache: jobs with the same name share it, in the order of the table */
    double weight;        /* share of the time, about the seconds that it takes on a GPU */
    place place;
} job_entry;

extern const job_entry jobs[];
extern const size_t job_count;

void read_libraries(job *j, const char *unused);
void measure_first(job *j, const char *type);
void measure_again(job *j, const char *type);
void measure_next_shapes(job *j, const char *type);
void measure_planning(job *j, const char *type);
void measure_new_shapes(job *j, const char *unused);
void measure_sizes(job *j, const char *unused);
void measure_types(job *j, const char *unused);
void check_backward(job *j, const char *unused);
void measure_stream(job *j, const char *unused);
void measure_sentences(job *j, const char *unused);

bool is_gpu(const job *j);
double now(void); /* seconds of CLOCK_MONOTONIC */
bool time_is_left(const job *j);
double spend(const job *j, double seconds); /* a measurement's; a twentieth with --tiny */
void show(const job *j, const char *format, ...) __attribute__((format(printf, 2, 3))); /* progress, on stderr */

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* Members of `details` of the next row. */
void detail_number(job *j, const char *key, double value);
void detail_text(job *j, const char *key, const char *value);
void detail_pairs(job *j, const char *key, const int64_t *pairs, size_t count); /* [count, 2] */

typedef struct {
    const char *id;   /* what readers of the file find it by */
    const char *what; /* one line */
    const char *unit;
    double target; /* at most; 0: none */
} row;

void row_end(job *j, const row *r, double measured);
void row_check(job *j, const row *r, bool equal);
/* No time was left, or the sentence says what else is missing. */
void row_left_out(job *j, const row *r, const char *reason);
/* What the row asks for did not happen, so that there is no number: the target is missed. */
void row_missed(job *j, const row *r, const char *reason);
/* The library refused; the sentence is rcv_message(). The job fails. */
void row_failed(job *j, const row *r, rcv_status status);
/* The same with another sentence. */
void row_wrong(job *j, const row *r, const char *reason);
void print_json_text(FILE *out, const char *text);

/* ---- numbers ----------------------------------------------------------------------------------------------------- */

double median(double *values, size_t count);                /* sorts them */
double quantile(double *values, size_t count, double part); /* the same */
double mean(const double *values, size_t count);
uint64_t draw(uint64_t *state); /* splitmix64 */
void *need(void *memory);       /* exits where it is NULL */

/* ---- networks ---------------------------------------------------------------------------------------------------- */

typedef struct {
    const char *cell; /* a built-in cell; NULL: the program's own */
    int64_t steps, batch, input, hidden, layers;
    bool bidirectional;
    rcv_dtype dtype;
    bool training, lengths, reserve;
    rcv_effort effort;
    const char *schedule;      /* NULL: the planner chooses */
    rcv_array_type data;       /* of x, y, dx, dy */
    rcv_array_type parameters; /* of parameters and gradients */
    int64_t small_batch;       /* calls of so many sequences have a plan of their own; 0: none have */
} shape;

/* A network with one plan, one run and arrays in the device's memory. Its address must not change while it is open. */
typedef struct {
    const job *job;
    shape shape;
    rcv_cell *cell;
    rcv_net *net;
    rcv_plan *plan;
    rcv_run *run;
    void *x, *y, *dx, *dy;          /* [steps, batch, input or output] */
    void *parameters, *dparameters; /* [rcv_net_parameter_elements()] */
    size_t x_bytes, y_bytes, parameter_bytes;
    int64_t *lengths;                                            /* [batch], on the host */
    double net_seconds, plan_seconds, run_seconds, step_seconds; /* of making them, and of the first step */
    double plan_began;
    char first_plan[256]; /* its string before any search replaced it */
    bool from_wisdom;     /* that plan was */
    /* The search beside the caller. Times are those of now(); 0: it has not happened. */
    _Atomic double search_began, replaced, search_ended;
    bool is_watched;
    pthread_t watcher;
    rcv_status search_status; /* once it has ended, and its message */
    char search_message[512];
} network;

/* A tenth of the steps, and so on, with --tiny. */
shape sized(const job *j, shape s);
/* Makes the objects and arrays and times net, plan and run. On failure there is nothing to close. */
rcv_status network_open(job *j, const shape *s, network *n);
/* The same and a first step, which is timed too. */
rcv_status network_open_and_step(job *j, const shape *s, network *n);
void network_close(network *n);
/* A thread waits for the end of the search and notes it in search_ended. On a CPU a search begins with the first call or
 * the first wait: this is called after the first step. */
rcv_status network_watch_search(network *n);
void network_end_search(network *n);      /* where it has not ended */
rcv_status network_renew_run(network *n); /* another run of the plan, which has seen no call */
/* A forward call, and in training a backward call with all gradients. Sizes 0: the plan's. */
rcv_status network_enqueue(network *n, int64_t steps, int64_t batch);
/* Each alone; `backward` is of the last forward call. */
rcv_status network_forward(network *n, int64_t steps, int64_t batch);
rcv_status network_backward(network *n);
/* network_enqueue until it is done. */
rcv_status network_step(network *n, int64_t steps, int64_t batch);
/* Steps for `seconds`, but at least `least` while time is left, and at most `most`; *count are written to `times`. */
rcv_status network_time(network *n, double seconds, size_t least, size_t most, double *times, size_t *count);
double first_call_seconds(const network *n); /* net, plan, run and step */
void detail_first_call(job *j, const network *n);

typedef struct {
    network *network;
    int64_t steps, batch;
} timed;
/* Times networks in turns for `seconds`, at least LEAST_ROUNDS rounds; a sample is several steps where they are short. Writes the median seconds
 * of a step of each. RCV_STOPPED: no time was left for so many rounds. */
enum { LEAST_ROUNDS = 3 };
rcv_status time_in_turns(const timed *each, size_t count, double seconds, double *medians);

/* ---- the networks that jobs begin with --------------------------------------------------------------------------- */

typedef struct {
    const char *name, *cell;
    rcv_dtype dtype;
} kind;

const kind *find_kind(const char *name);
shape first_shape(const job *j, const kind *k);
/* A row whose id is JOB.KIND.NAME and whose text is KIND: WHAT. The texts are static: of one row at a time. */
row name_row(const char *job_name, const kind *k, const char *name, const char *what, const char *unit, double target);
/* Uses the device for the first time, in a row of its own: its driver and its context are no part of a first call. */
rcv_status bring_up(job *j, const char *job_name, const kind *k);

#endif
