/* What `recurve bench` was asked for and what it found. Text, JSON and the page are written from the same results. */
#ifndef TOOL_BENCH_H
#define TOOL_BENCH_H

#include "bench/contest.h"

typedef struct {
    problem problem;
    bool ladder, anchors, no_torch, batches, gemm, streaming, planner;
    bool scan;                   /* linear recurrences, and no network */
    int64_t elements;            /* of an array of --scan, at most */
    const char *lengths, *cells; /* lists, or NULL */
    double longest;              /* seconds that a call of the LSTM may be expected to take in --lengths */
    const char *ranks, *json, *report;
    int64_t chunk; /* steps a call of --streaming */
    double seconds;
    uint64_t seed;
    char *command; /* the command line */
} bench;

typedef struct {
    char *cpu, *system, *kernels, *date, *version, *commit;
    char *device; /* a GPU, in words; NULL: it was the CPU */
    int64_t cores, threads;
    double barrier; /* seconds; 0: one thread, or not known */
} machine;

/* In which speeds are told: GFLOP/s of a CPU, TFLOP/s of a GPU. */
typedef struct {
    const char *name;
    double scale; /* from operations a second */
    int digits;   /* behind the point */
} speed_unit;

/* A copy of what the planner considered. */
typedef struct {
    char *schedule, *reason;
    double estimate, seconds, bytes;
    bool chosen;
} option_considered;

typedef struct {
    int64_t batch;
    char *plan;
    double seconds, speed, vendor_speed, peak; /* speeds in operations a second; 0: not known */
} batch_point;

enum { BATCH_SIZES = 10, CPU_BATCH_SIZES = 9, GEMM_VARIANTS = 3, GEMM_CONTESTANTS = 3 };
extern const int64_t batch_sizes[BATCH_SIZES];         /* 1, 2, 4, ..., 512; a CPU has them up to 256 */
extern const char *const gemm_variants[GEMM_VARIANTS]; /* NT, NN, TN */
extern const char *const gemm_meanings[GEMM_VARIANTS];
extern const char *const gemm_contestants[GEMM_CONTESTANTS];

typedef struct {
    double speed[GEMM_VARIANTS][GEMM_CONTESTANTS][CPU_BATCH_SIZES]; /* operations a second; 0: not measured */
    double difference;                                              /* the largest of ours in float32 from OpenBLAS's */
    double peak[2];                                                 /* float32, bfloat16 */
    char *refusal;
    bool done;
} gemm_curve;

enum { MAXIMUM_RANKS = 12 };

typedef struct {
    int64_t rank; /* 0: the full matrices */
    char *plan, *refusal;
    double seconds, speedup, parameters;
    double error_fresh, error_decaying; /* of y; NAN: not known */
} rank_point;

typedef struct {
    bool done;
    char *refusal, *plan, *whole_plan, *unhoisted_plan;
    int64_t chunk, calls;
    double p50, p99, worst;                  /* seconds a call */
    double step, whole_step, unhoisted_step; /* seconds a step, in turns with each other; 0: not known */
    double input_alone, input_hoisted;       /* seconds a step of the input products, one step and all steps at once */
} streaming;

enum { EFFORTS = 3 };

/* What the planner chose with one effort. */
typedef struct {
    const char *effort;
    char *plan, *refusal; /* plan NULL: nothing was chosen */
    size_t candidates;    /* that were considered; one that wisdom knows would be the only one */
    double choosing;      /* seconds until it was chosen */
    double seconds;       /* of a call; 0: not measured */
    double ratio;         /* in units of the exhaustive choice's; 0: not known */
} choice;

enum { SCAN_STEPS = 10, SCAN_CHANNELS = 8, MAXIMUM_SCANS = SCAN_STEPS * SCAN_CHANNELS + 8, MAXIMUM_TARGETS = 48 };
extern const int64_t scan_steps[SCAN_STEPS];       /* 64, 256, ..., 16777216 */
extern const int64_t scan_channels[SCAN_CHANNELS]; /* 1, 8, 32, 64, 128, 512, 4096, 16384 */

/* One direction of a linear recurrence. */
typedef struct {
    double seconds, minimum; /* of a call, the median and the least; 0: not measured */
    double serial;           /* of a call of the form `serial`; 0: not measured, as where it would take a second */
} scan_pass;

/* Passes of the array [steps, batch, channels] that the forward and the backward pass read or write. */
enum { FORWARD_ARRAYS = 3, BACKWARD_ARRAYS = 5 };

typedef struct {
    int64_t steps, batch, channels;
    double bytes; /* of an array */
    double copy;  /* bytes a second of a copy; 0: not known */
    char *form, *refusal;
    scan_pass forward, backward;
} scan_point;

/* What a shape should reach. */
typedef struct {
    const scan_point *point;
    const char *what, *unit;
    double target, measured; /* measured 0: not known */
    bool at_most;            /* the less the better */
    const char *source;      /* of a time that was measured elsewhere, or NULL */
} scan_target;

typedef struct {
    bool done;
    scan_point points[MAXIMUM_SCANS]; /* the grid, and a few shapes that have targets */
    size_t count;
    scan_target targets[MAXIMUM_TARGETS];
    size_t target_count;
    int reads;             /* arrays that the copy reads */
    double serial_seconds; /* that the form `serial` took by itself */
} scans;

enum { MAXIMUM_LENGTHS = 10, MAXIMUM_CELLS = 8, PASSES = 2 }; /* forward, training step */

/* One pass of a cell over so many steps. */
typedef struct {
    char *plan, *refusal;
    int64_t planned;         /* the steps that the plan was chosen for; 0: it was pinned */
    bool estimated;          /* chosen by the planner's model alone */
    double bytes;            /* of a run */
    double seconds, minimum; /* of a call, the median and the least; 0: not measured */
    size_t rounds;
    double lstm;       /* seconds of a call of the LSTM; 0: not known, as for the LSTM itself */
    bool extrapolated; /* the LSTM's seconds follow from fewer steps */
} length_pass;

typedef struct {
    int64_t steps;
    length_pass passes[PASSES];
} length_point;

typedef struct {
    bool done;
    int64_t steps[MAXIMUM_LENGTHS]; /* increasing */
    size_t count;
    char *cells[MAXIMUM_CELLS], *left_out; /* left_out: cells that this build does not have; or NULL */
    size_t cell_count;
    length_point points[MAXIMUM_CELLS][MAXIMUM_LENGTHS];
    length_point lstm[MAXIMUM_LENGTHS]; /* medians over the turns with the cells */
} lengths;

/* Who did what in one call of a plan. */
typedef struct {
    char *plan;
    rcv_event *events;
    size_t count;
    double forward_seconds; /* when the backward pass begins */
} timeline;

typedef struct {
    machine machine;
    speed_unit unit;
    char *title;
    contest main, ladder;
    size_t
        ladder_alone; /* contestants [1, ladder_alone] of the ladder are rungs alone, then come the cumulative ones */
    peak peak;
    double peak_speed; /* median */
    double planning_seconds;
    bool from_wisdom;
    option_considered *options;
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
    timeline chosen, wavefront; /* without a plan: not recorded */
} results;

/* Each does one experiment and leaves its numbers in the results. */
void machine_describe(machine *machine, const problem *problem);
void machine_free(machine *machine);
rcv_status bench_main(bench *bench, results *results);
void bench_ladder(const bench *bench, results *results);
void bench_batches(const bench *bench, results *results);
void bench_gemm(const bench *bench, results *results);
rcv_status bench_ranks(const bench *bench, results *results);
void bench_streaming(const bench *bench, results *results);
rcv_status bench_planner(const bench *bench, results *results);
rcv_status bench_scan(const bench *bench, results *results);
rcv_status bench_lengths(const bench *bench, results *results);
/* Are the lists of --lengths and --cells such? Says what is wrong. */
bool lengths_are_clear(const bench *bench);
void lengths_free(lengths *lengths);

/* Runs a contestant of add_plan once more and records it. */
void record_timeline(timeline *timeline, contestant *contestant);

/* Parameters of a network, initialised; in the data. */
rcv_status fill_parameters(const bench *bench, const rcv_net *net, data *data);
/* The vendor's library as a plan of ours: oneDNN, or each algorithm of cuDNN as one of a family. */
void add_vendors(contest *contest, const problem *problem, data *data);
/* The vendor's library and others, as far as they are there for the device. */
void add_anchors(contest *contest, const bench *bench, data *data);
const char *vendor_name(const problem *problem);
/* Who stands for the contestant in a table: itself, or the best of its family; NULL where one before it brings that. */
const contestant *contest_speaker(const contest *contest, size_t index);

/* On x86-64 an older OpenBLAS may not know a newer CPU and run its slowest code: starts the program again with the
 * setting that helps. Returns where nothing is to be done. */
void help_openblas(char **argv);

void print_head(const bench *bench, const results *results);
void print_machine(const results *results); /* title, machine, version */
void print_contest(const results *results);
void print_ladder(const results *results);
void print_batches(const bench *bench, const results *results);
void print_gemm(const results *results);
void print_ranks(const results *results);
void print_streaming(const results *results);
void print_planner(const results *results);
void print_scan(const results *results);
void print_lengths(const results *results);

double scan_bandwidth(const scan_point *point, bool backward); /* bytes a second; 0: not known */
double scan_share(const scan_point *point, bool backward);     /* of a copy's; 0: not known */
double scan_speedup(const scan_pass *pass);                    /* over serial; 0: not known */
bool target_is_met(const scan_target *target);

extern const char *const length_passes[PASSES];             /* "forward", "training step" */
double length_rate(const length_point *point, size_t pass); /* steps a second; 0: not known */
double length_speedup(const length_pass *pass);             /* over the LSTM; 0: not known */
/* How its plan came about, where that was not for these steps by the effort asked for; else an empty text. */
const char *length_origin(const length_point *point, size_t pass, char room[64]);

/* Written beside the path and renamed; says what went wrong. */
bool write_json(const bench *bench, const results *results);
bool write_report(const bench *bench, const results *results);

void results_free(results *results);

#endif
