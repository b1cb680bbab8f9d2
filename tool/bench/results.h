/* What `recurve bench` was asked to measure, and what it measured. The text, the JSON file and the page are written from these structures.
 * Times are in seconds, speeds in floating-point operations a second, sizes in bytes. */
#ifndef TOOL_BENCH_RESULTS_H
#define TOOL_BENCH_RESULTS_H

#include "problem.h"
#include "recurve_bench.h"

/* What was asked for: the options of the verb. */
typedef struct {
    problem problem;
    bool ladder, anchors, no_torch, batches, gemm, streaming, planner;
    bool scan;                   /* measure linear recurrences, and no network */
    int64_t elements;            /* of an array of --scan, at most */
    const char *lengths, *cells; /* lists; or NULL */
    double longest;              /* in --lengths: the LSTM is measured while one call should take no longer than this */
    const char *ranks, *json, *report;
    int64_t chunk;  /* steps of a call in --streaming */
    double seconds; /* of each experiment */
    uint64_t seed;
    char *command; /* the command line */
} bench;

typedef struct {
    char *cpu, *system, *kernels, *date, *version, *commit;
    char *device; /* description of the GPU; NULL: the CPU was measured */
    int64_t cores, threads;
    double barrier; /* seconds of a barrier of all threads; 0: one thread, or not known */
} machine;

/* The unit in which speeds are shown: GFLOP/s for a CPU, TFLOP/s for a GPU. */
typedef struct {
    const char *name;
    double scale; /* from operations a second */
    int digits;   /* after the decimal point */
} speed_unit;

/* One implementation of a computation, as it was measured. */
typedef struct {
    char *name, *plan;        /* plan: its string; or NULL */
    const char *family;       /* a table shows the fastest implementation of a family; NULL: it is in none */
    char *refusal;            /* why it was not measured; NULL: it was */
    char *note;               /* such as a version; or NULL */
    double operations, bytes; /* operations of a call, memory of a run; 0: not known */
    double ratio;             /* its median over that of the first implementation; 0: not known */
    double median, minimum;   /* seconds of a call; 0: not measured */
    double difference;        /* of its results from those of the first implementation; NAN: not compared */
    double *samples;          /* [sample_count] seconds of a call, one sample a round */
    size_t sample_count;
} measurement;

enum { MAXIMUM_IMPLEMENTATIONS = 24 };

/* Implementations of the same computation, timed in turns. */
typedef struct {
    measurement items[MAXIMUM_IMPLEMENTATIONS];
    size_t count, rounds;
} measurements;

/* The highest speed of the machine, sampled repeatedly during a comparison. */
typedef struct {
    double samples[256], spent; /* operations a second; seconds spent on sampling */
    size_t count, most;         /* samples taken, and how many are wanted at most */
    char *refusal;
} peak;

/* A plan that the planner considered. */
typedef struct {
    char *schedule, *reason;
    double estimate, seconds, bytes;
    bool chosen;
} considered_plan;

typedef struct {
    int64_t batch;
    char *plan;
    double seconds, speed, vendor_speed, peak; /* 0: not known */
} batch_point;

enum { BATCH_SIZES = 10, CPU_BATCH_SIZES = 9, GEMM_VARIANTS = 3 };
enum { GEMM_FLOAT, GEMM_BFLOAT, GEMM_OPENBLAS, GEMM_IMPLEMENTATIONS };
extern const int64_t batch_sizes[BATCH_SIZES];         /* 1, 2, 4, ..., 512; on a CPU up to 256 */
extern const char *const gemm_variants[GEMM_VARIANTS]; /* NT, NN, TN */
extern const char *const gemm_meanings[GEMM_VARIANTS];
extern const char *const gemm_implementations[GEMM_IMPLEMENTATIONS];

typedef struct {
    double speed[GEMM_VARIANTS][GEMM_IMPLEMENTATIONS][CPU_BATCH_SIZES]; /* 0: not measured */
    double difference; /* the largest difference of recurve's float32 results from those of OpenBLAS; NAN without it */
    double peak[2];    /* float32, bfloat16 */
    char *refusal;
    bool done;
} gemm_curve;

enum { MAXIMUM_RANKS = 12 };

/* A network whose matrices are approximated with a lower rank. */
typedef struct {
    int64_t rank; /* 0: the full matrices */
    char *plan, *refusal;
    double seconds, speedup, parameters;
    double error_fresh, error_decaying; /* of y; NAN: not known */
} rank_point;

typedef struct {
    bool done;
    char *refusal, *plan, *object_plan, *whole_plan, *unhoisted_plan;
    int64_t chunk, calls;
    double object_p50, object_ratio; /* of a call by rcv_stream_step, seconds and over one by hand; 0: not known */
    double p50, p99, worst;          /* seconds of a call */
    double step, object_step, whole_step,
        unhoisted_step; /* seconds of a step, timed in turns: by rcv_run_forward, by rcv_stream_step, ...; 0: not known */
    double input_alone,
        input_hoisted; /* seconds of a step's input products: computed for one step, and for all steps at once */
} streaming;

enum { EFFORTS = 3 };

/* What the planner chose with one effort. */
typedef struct {
    const char *effort;
    char *plan, *refusal; /* plan NULL: nothing was chosen */
    size_t candidates;    /* that were considered */
    double choosing;      /* seconds until the plan was chosen */
    double seconds;       /* of a call; 0: not measured */
    double ratio;         /* over the exhaustive choice's seconds; 0: not known */
} choice;

enum { SCAN_STEPS = 10, SCAN_CHANNELS = 8, MAXIMUM_SCANS = SCAN_STEPS * SCAN_CHANNELS + 8, MAXIMUM_TARGETS = 48 };
extern const int64_t scan_steps[SCAN_STEPS];       /* 64, 256, ..., 16777216 */
extern const int64_t scan_channels[SCAN_CHANNELS]; /* 1, 8, 32, 64, 128, 512, 4096, 16384 */

/* One pass of a linear recurrence. */
typedef struct {
    double seconds, minimum; /* of a call: median and minimum; 0: not measured */
    double serial; /* of a call of the form `serial`; 0: not measured, for example because it takes over a second */
} scan_pass;

/* How many arrays [steps, batch, channels] each pass reads or writes. */
enum { FORWARD_ARRAYS = 3, BACKWARD_ARRAYS = 5 };

typedef struct {
    int64_t steps, batch, channels;
    double bytes; /* of an array */
    double copy;  /* bandwidth of a copy, bytes a second; 0: not known */
    char *form, *refusal;
    scan_pass forward, backward;
} scan_point;

/* A value that a shape should reach. */
typedef struct {
    const scan_point *point;
    const char *what, *unit;
    double target, measured; /* measured 0: not known */
    bool at_most;            /* lower is better */
    const char *source;      /* of a target that was measured elsewhere; or NULL */
} scan_target;

typedef struct {
    bool done;
    scan_point points[MAXIMUM_SCANS]; /* the grid, and some shapes that have targets */
    size_t count;
    scan_target targets[MAXIMUM_TARGETS];
    size_t target_count;
    int reads;             /* arrays that the copy reads */
    double serial_seconds; /* spent on timing the form `serial` outside of the comparisons */
} scans;

enum { MAXIMUM_LENGTHS = 10, MAXIMUM_CELLS = 8, PASSES = 2 }; /* forward, training step */

/* One pass of a cell over a number of steps. */
typedef struct {
    char *plan, *refusal;
    int64_t planned;         /* the number of steps for which the plan was chosen; 0: it was pinned */
    bool estimated;          /* chosen by the planner's cost model alone */
    double bytes;            /* of a run */
    double seconds, minimum; /* of a call: median and minimum; 0: not measured */
    size_t rounds;
    double lstm;       /* seconds of a call of the LSTM; 0: not known, as for the LSTM itself */
    bool extrapolated; /* the LSTM's seconds are scaled from fewer steps */
} length_pass;

typedef struct {
    int64_t steps;
    length_pass passes[PASSES];
} length_point;

typedef struct {
    bool done;
    int64_t steps[MAXIMUM_LENGTHS]; /* increasing */
    size_t count;
    char *cells[MAXIMUM_CELLS], *left_out; /* left_out: default cells that this build does not have; or NULL */
    size_t cell_count;
    length_point points[MAXIMUM_CELLS][MAXIMUM_LENGTHS];
    length_point lstm[MAXIMUM_LENGTHS]; /* medians over the comparisons with the cells */
} lengths;

/* Which thread executed which step when, in one call of a plan. */
typedef struct {
    char *plan;
    rcv_event *events;
    size_t count;
    double forward_seconds; /* the backward pass begins here */
} timeline;

typedef struct {
    machine machine;
    speed_unit unit;
    char *title;
    measurements main;   /* the network by recurve, then by other libraries */
    measurements ladder; /* naive, each rung alone, rungs added one after the other, the planner's choice */
    size_t ladder_alone; /* items [1, ladder_alone] of the ladder are rungs alone */
    peak peak;
    double peak_speed; /* the best sample */
    double planning_seconds;
    bool from_wisdom;
    considered_plan *options;
    size_t option_count;
    batch_point batches[BATCH_SIZES];
    size_t batch_count;
    gemm_curve gemm;
    rank_point ranks[MAXIMUM_RANKS];
    size_t rank_count;
    streaming streaming;
    choice choices[EFFORTS]; /* estimate, measure, exhaustive */
    size_t choice_count;
    scans scans;
    lengths lengths;
    timeline chosen, wavefront; /* plan NULL: not recorded */
} results;

void measurement_free(measurement *measurement);
void measurements_free(measurements *all);
void results_free(results *results);

/* The library of the device's vendor: oneDNN or cuDNN. */
const char *vendor_name(const problem *problem);
/* The measurement that a table shows for item `index`: the item itself, or the fastest of its family; NULL where an earlier item represents
 * the family. */
const measurement *family_best(const measurements *all, size_t index);

double scan_bandwidth(const scan_point *point, bool backward); /* bytes a second; 0: not known */
double scan_share(const scan_point *point, bool backward);     /* of a copy's bandwidth; 0: not known */
double scan_speedup(const scan_pass *pass);                    /* over serial; 0: not known */
bool target_is_met(const scan_target *target);

extern const char *const length_passes[PASSES];             /* "forward", "training step" */
double length_rate(const length_point *point, size_t pass); /* steps a second; 0: not known */
double length_speedup(const length_pass *pass);             /* over the LSTM; 0: not known */
/* How its plan was chosen, where it was not chosen for this number of steps with the effort asked for; else an empty text. */
const char *length_origin(const length_point *point, size_t pass, char room[64]);

#endif
