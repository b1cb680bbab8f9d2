/* Trials. Their data is random but cheap to make, and its memory is reused. In inference a run is timed with matrices that are already
 * packed; in training parameters change from call to call, so packing is part of every run. */
#include "plan/trial.h"
#include "plan/cost.h"
#include "plan/run.h"
#include "plan/search.h"

#include "base/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const double rest_factor = 4;  /* beside a caller: times the seconds of a trial: the pause after it */
static const size_t caller_share = 8; /* beside a caller: trials take at most one of so many parts of the free memory */
static const double long_run = 5e-3;  /* seconds; starting threads does not matter to longer runs */
static const double lower =
    0.25; /* quantile of the samples that counts: other work on the machine only makes them longer */
static const double longest_sleep = 0.01; /* seconds */
enum { PATTERN = 4093, STAGED = 256 * PATTERN, MOST_REPEATS = 64, ALIGN = 64, OPEN_SHARE = 4 };

static size_t physical_memory(void) {
    long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGE_SIZE);
    return pages > 0 && bytes > 0 ? (size_t)pages * (size_t)bytes : (size_t)1 << 30;
}

/* Bytes that trials may take at once: beside a caller search_memory, or a share of what is free. */
static size_t memory_of_trials(const rcvi_problem *problem) {
    const rcvi_memory *memory = problem->device->memory;
    if (!problem->in_background) return physical_memory() / 2;
    if (problem->options->search_memory) return problem->options->search_memory;
    return (memory && memory->count_free ? memory->count_free(problem->ordinal) : physical_memory()) / caller_share;
}

rcv_status rcvi_bench_begin(rcvi_bench *bench, const rcvi_problem *problem, rcvi_pool *pool) {
    const rcvi_memory *memory = problem->device->memory;
    *bench = (rcvi_bench){
        .problem = *problem, .context = problem->net->context, .pool = pool, .memory = memory_of_trials(problem)};
    return problem->in_background && memory && memory->new_stream ? memory->new_stream(problem->ordinal, &bench->stream)
                                                                  : RCV_OK;
}

double rcvi_bench_now(const rcvi_bench *bench) { return rcvi_now() - bench->rested; }

double rcvi_rest(const rcvi_problem *problem, double factor, double seconds) {
    double begin = rcvi_now(), left = factor * seconds;
    const rcv_plan_options *o = problem->options;
    if (!problem->in_background) return 0;
    while (left > 0 && (!o->go_on || o->go_on(o->user))) { /* the search asks again, and ends */
        double part = left < longest_sleep ? left : longest_sleep;
        nanosleep(&(struct timespec){.tv_nsec = (long)(part * 1e9)}, NULL);
        left -= part;
    }
    return rcvi_now() - begin;
}

static void free_data(rcvi_bench *bench) {
    const rcvi_memory *memory = bench->problem.device->memory;
    if (memory && bench->there) memory->release(bench->problem.ordinal, bench->there);
    rcvi_free(bench->context, bench->block);
    rcvi_free(bench->context, bench->lengths);
    bench->block = bench->there = NULL;
    rcvi_free(bench->context, bench->tensors);
    bench->lengths = NULL;
    bench->tensors = NULL;
    bench->resets = NULL;
    bench->steps = 0;
}

void rcvi_bench_end(rcvi_bench *bench) {
    free_data(bench);
    if (bench->stream) bench->problem.device->memory->free_stream(bench->problem.ordinal, bench->stream);
    bench->stream = NULL;
}

/* ---- data ---- */

/* Do calls give lengths in memory that is not the host's? */
static bool has_lengths_there(const rcvi_bench *bench) {
    return bench->problem.options->device_lengths && bench->problem.device->memory;
}

/* The type of an element of arrays that are declared so. */
static rcv_dtype type_of(const rcvi_bench *bench, rcv_array_type declared) {
    if (declared) return (rcv_dtype)(declared - 1);
    return bench->problem.options->dtype == RCV_FLOAT64 ? RCV_FLOAT64 : RCV_FLOAT32;
}

/* A number near this one in 16 bits. */
static uint16_t cut_to_half(rcv_dtype type, float number) {
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    if (type == RCV_BFLOAT16) return (uint16_t)(bits >> 16);
    return (uint16_t)((bits >> 16 & 0x8000) | ((bits & 0x7fffffff) - (112u << 23)) >> 13); /* normal numbers */
}

/* Numbers in (-range, range), none near zero, in a pattern of prime length: multiplying them costs what real data
 * costs. */
static void fill_with_pattern(rcv_dtype type, void *to, int64_t count, double range) {
    size_t bytes = rcv_dtype_bytes(type);
    rcvi_twister twister;
    rcvi_twister_seed(&twister, 1);
    int64_t drawn = count < PATTERN ? count : PATTERN;
    for (int64_t i = 0; i < drawn; i++) {
        double number = rcvi_uniform_double(&twister, 0.1, 1) * range * (rcvi_twister_next(&twister) & 1 ? 1 : -1);
        if (bytes == sizeof(double))
            ((double *)to)[i] = number;
        else if (bytes == sizeof(float))
            ((float *)to)[i] = (float)number;
        else
            ((uint16_t *)to)[i] = cut_to_half(type, (float)number);
    }
    for (int64_t i = drawn; i < count; i += drawn)
        memcpy((char *)to + (size_t)i * bytes, to, (size_t)(count - i < drawn ? count - i : drawn) * bytes);
}

typedef struct {
    void **place;
    int64_t count;
    double range; /* 0: written by calls, or resets, which are zeros */
    rcv_dtype type;
} array;

/* Writes to the device's memory, on the stream of the trials where they have one: a copy on the default stream waits for the caller's streams. */
static rcv_status write_there(const rcvi_bench *bench, void *to, const void *from, size_t bytes) {
    const rcvi_memory *memory = bench->problem.device->memory;
    return bench->stream ? memory->write_on(bench->problem.ordinal, to, from, bytes, bench->stream)
                         : memory->write(bench->problem.ordinal, to, from, bytes);
}

/* All arrays in one block of the device's own memory. Those that are read are copied there in blocks from a staging buffer of the host,
 * which is filled once for each array. */
static rcv_status make_there(rcvi_bench *bench, size_t total, const array *arrays, const size_t *offsets, int count) {
    const rcvi_memory *memory = bench->problem.device->memory;
    char *stage = rcvi_new(bench->context, STAGED, sizeof(double));
    rcv_status status = stage ? memory->allocate(bench->problem.ordinal, total, &bench->there) : RCV_NO_MEMORY;
    for (int i = 0; i < count && !status; i++) {
        if (arrays[i].range == 0 && arrays[i].place != &bench->resets) continue;
        int64_t piece = arrays[i].count < STAGED ? arrays[i].count : STAGED;
        size_t bytes = rcv_dtype_bytes(arrays[i].type);
        memset(stage, 0, (size_t)piece * bytes);
        if (arrays[i].range > 0) fill_with_pattern(arrays[i].type, stage, piece, arrays[i].range);
        for (int64_t at = 0; at < arrays[i].count && !status; at += piece) {
            int64_t left = arrays[i].count - at;
            char *to = (char *)bench->there + offsets[i] + (size_t)at * bytes;
            status = write_there(bench, to, stage, (size_t)(left < piece ? left : piece) * bytes);
        }
    }
    rcvi_free(bench->context, stage);
    return status;
}

static char *align(char *block) { return block + (ALIGN - (uintptr_t)block % ALIGN) % ALIGN; }

static rcv_status make_here(rcvi_bench *bench, size_t total, const array *arrays, const size_t *offsets, int count) {
    bench->block = rcvi_allocate(bench->context, total + ALIGN);
    if (!bench->block) return RCV_NO_MEMORY;
    for (int i = 0; i < count; i++) {
        char *at = align(bench->block) + offsets[i];
        if (arrays[i].range > 0)
            fill_with_pattern(arrays[i].type, at, arrays[i].count, arrays[i].range);
        else if (arrays[i].place == &bench->resets)
            memset(at, 0, (size_t)arrays[i].count);
    }
    return RCV_OK;
}

static int64_t align_elements(int64_t count) { return (count + ALIGN - 1) / ALIGN * ALIGN; }

/* Elements of parameters, or of their gradients: separate tensors begin at multiples of 64 elements. */
static int64_t count_parameters(const rcvi_bench *bench) {
    const rcv_net *net = bench->problem.net;
    int64_t count = 0;
    if (!bench->problem.options->separate_parameters) return net->parameter_elements;
    for (size_t i = 0; i < net->parameter_count; i++) count += align_elements(net->parameters[i].count);
    return count;
}

static void place_tensors(rcvi_bench *bench) {
    const rcv_net *net = bench->problem.net;
    const rcv_plan_options *o = bench->problem.options;
    size_t bytes[] = {rcv_dtype_bytes(type_of(bench, o->parameters)), rcv_dtype_bytes(type_of(bench, o->gradients))};
    size_t at = 0;
    for (size_t i = 0; bench->tensors && i < net->parameter_count; i++) {
        bench->tensors[i] = (char *)bench->parameters + at * bytes[0];
        bench->tensors[net->parameter_count + i] = (char *)bench->dparameters + at * bytes[1];
        at += (size_t)align_elements(net->parameters[i].count);
    }
}

/* Data for trials of up to this many steps. */
static rcv_status make_data(rcvi_bench *bench, int64_t steps) {
    if (steps <= bench->steps) return RCV_OK;
    free_data(bench);
    const rcv_plan_options *o = bench->problem.options;
    const rcv_net *net = bench->problem.net;
    int64_t rows = steps * o->batch, parameters = count_parameters(bench);
    int64_t x = rows * net->options.input, y = rows * rcv_net_output(net);
    double spread = 1; /* about 1 / sqrt(hidden): sums stay near 1 */
    while (spread * spread * (double)net->options.hidden > 1) spread /= 2;
    rcv_dtype data = type_of(bench, o->data);
    array arrays[] = {{&bench->parameters, parameters, spread, type_of(bench, o->parameters)},
                      {&bench->resets, o->resets ? rows : 0, 0, RCV_UINT8},
                      {&bench->lengths_there, has_lengths_there(bench) ? o->batch : 0, 0, RCV_INT64},
                      {&bench->x, x, 1, data},
                      {&bench->y, y, 0, data},
                      {&bench->dy, o->training ? y : 0, 1, data},
                      {&bench->dx, o->training ? x : 0, 0, data},
                      {&bench->dparameters, o->training ? parameters : 0, 0, type_of(bench, o->gradients)}};
    enum { ARRAYS = sizeof arrays / sizeof *arrays };
    size_t total = 0, offsets[ARRAYS];
    for (int i = 0; i < ARRAYS; i++) {
        offsets[i] = total;
        total += ((size_t)arrays[i].count * rcv_dtype_bytes(arrays[i].type) + ALIGN - 1) / ALIGN * ALIGN;
    }
    bench->lengths = o->lengths ? rcvi_new(bench->context, (size_t)o->batch, sizeof *bench->lengths) : NULL;
    if (o->lengths && !bench->lengths) return RCV_NO_MEMORY;
    if (o->separate_parameters) {
        bench->tensors = rcvi_new(bench->context, 2 * net->parameter_count, sizeof *bench->tensors);
        if (!bench->tensors) return RCV_NO_MEMORY;
    }
    bool there = bench->problem.device->memory != NULL;
    RCVI_TRY((there ? make_there : make_here)(bench, total, arrays, offsets, ARRAYS));
    char *block = there ? bench->there : align(bench->block);
    for (int i = 0; i < ARRAYS; i++) *arrays[i].place = block + offsets[i];
    place_tensors(bench);
    bench->steps = steps;
    return RCV_OK;
}

/* ---- trials ---- */

rcv_status rcvi_refuse(rcvi_pool *pool, rcvi_candidate *c, rcv_status status) {
    if (status == RCV_NO_MEMORY) return status;
    c->remaining = false;
    c->shown.status = status;
    c->shown.reason = rcvi_pool_text(pool, rcv_message(), strlen(rcv_message()));
    return c->shown.reason ? RCV_OK : RCV_NO_MEMORY;
}

rcv_status rcvi_trial_make(rcvi_bench *bench, rcvi_candidate *c, int64_t steps) {
    rcv_plan_options options = *bench->problem.options;
    options.steps = steps;
    rcvi_problem part = bench->problem;
    part.options = &options;
    if (c->plan && (c->plan->program.options.steps != steps || c->plan->net != part.net)) {
        rcvi_trial_close(bench, c);
        rcv_plan_free(c->plan);
        c->plan = NULL;
    }
    if (!c->plan) RCVI_TRY(rcvi_plan_write(&part, &c->rungs, &c->plan));
    RCVI_TRY(rcvi_plan_load(c->plan));
    c->estimate = rcvi_estimate(&c->plan->program);
    return RCV_OK;
}

/* Bytes of the data for trials of a plan. */
static double count_data_bytes(const rcvi_bench *bench, const rcv_plan *plan) {
    const rcv_plan_options *o = &plan->program.options;
    const rcv_net *net = bench->problem.net;
    double rows = (double)o->steps * (double)o->batch;
    double features = (double)net->options.input + (double)rcv_net_output(net);
    double parameters =
        (double)rcv_dtype_bytes(type_of(bench, o->parameters)) + (double)rcv_dtype_bytes(type_of(bench, o->gradients));
    return 2 * (double)rcv_dtype_bytes(type_of(bench, o->data)) * rows * features + 9 * rows +
           parameters * (double)net->parameter_elements;
}

/* On a CPU, trials beside a caller stay open up to a quarter of the memory (rcvi_trial_sample). */
bool rcvi_trial_fits(const rcvi_bench *bench, rcvi_candidate *c, double *fresh) {
    double own = (double)c->plan->run_bytes, data = count_data_bytes(bench, c->plan);
    double open = bench->problem.in_background && !bench->problem.machine.gpu ? (double)bench->memory / OPEN_SHARE : 0;
    *fresh = own + (c->plan->program.options.steps > bench->steps ? data : 0);
    c->is_too_large = own + data + open >= (double)bench->memory;
    return !c->is_too_large;
}

bool rcvi_trial_fits_beside(const rcvi_bench *bench, const rcvi_candidate *c) {
    double open = (double)bench->open_bytes, own = (double)c->plan->run_bytes;
    return open + own + count_data_bytes(bench, c->plan) < (double)bench->memory;
}

static rcv_status open_trial(rcvi_bench *bench, rcvi_candidate *c) {
    rcv_status status = make_data(bench, c->plan->program.options.steps);
    if (status == RCV_NO_MEMORY && c->plan->device->memory) { /* no device memory for a trial: it is not timed */
        free_data(bench);
        c->remaining = false;
        return RCV_OK;
    }
    if (status || c->run) return status;
    status = rcvi_run_new_with_reserve(c->plan, &c->run);
    if (status == RCV_NO_MEMORY && c->plan->device->memory) status = RCV_UNSUPPORTED; /* the device's, not the host's */
    if (status) return rcvi_refuse(bench->pool, c, status);
    rcvi_run_capture_at_once(c->run);
    if (bench->stream) RCVI_TRY(rcv_run_set_stream(c->run, bench->stream));
    bench->open_bytes += c->plan->run_bytes;
    return RCV_OK;
}

void rcvi_trial_close(rcvi_bench *bench, rcvi_candidate *c) {
    if (!c->run) return;
    bench->open_bytes -= c->plan->run_bytes;
    rcv_run_free(c->run);
    c->run = NULL;
    c->warm = false;
}

rcv_status rcvi_stop_planning(int64_t runs) {
    return rcvi_fail(RCV_STOPPED, "planning was stopped after %lld trial%s, before a plan was chosen", (long long)runs,
                     runs == 1 ? "" : "s");
}

rcv_status rcvi_ask_to_go_on(const rcv_plan_options *options, int64_t runs) {
    return !options->go_on || options->go_on(options->user) ? RCV_OK : rcvi_stop_planning(runs);
}

rcv_status rcvi_trial_run(rcvi_bench *bench, rcvi_candidate *c, double *seconds) {
    return rcvi_trial_repeat(bench, c, 1, seconds);
}

rcv_status rcvi_trial_repeat(rcvi_bench *bench, rcvi_candidate *c, int count, double *seconds) {
    const rcv_plan_options *o = bench->problem.options;
    *seconds = 0;
    RCVI_TRY(rcvi_ask_to_go_on(o, bench->runs));
    RCVI_TRY(open_trial(bench, c));
    if (!c->run) return RCV_OK;
    rcv_forward forward = RCV_INIT(rcv_forward, .parameters = bench->parameters, .x = bench->x, .y = bench->y,
                                   .lengths = bench->lengths, .resets = o->resets ? bench->resets : NULL, .seed = 1);
    rcv_backward backward = RCV_INIT(rcv_backward, .dy = bench->dy, .dx = bench->dx, .dparameters = bench->dparameters);
    if (bench->tensors) {
        forward.parameters = backward.dparameters = NULL;
        forward.tensors = (const void *const *)bench->tensors;
        backward.dtensors = bench->tensors + bench->problem.net->parameter_count;
    }
    for (int64_t b = 0; bench->lengths && b < o->batch; b++) bench->lengths[b] = c->plan->program.options.steps;
    if (has_lengths_there(bench)) {
        RCVI_TRY(write_there(bench, bench->lengths_there, bench->lengths, (size_t)o->batch * sizeof *bench->lengths));
        forward.lengths = bench->lengths_there;
    }
    double begin = rcvi_now();
    rcv_status status = RCV_OK;
    for (int i = 0; i < count && !status; i++, c->warm = true) {
        forward.same_parameters = c->warm && !o->training;
        status = rcv_run_forward(c->run, &forward);
        if (!status && o->training) status = rcv_run_backward(c->run, &backward);
    }
    if (!status) status = rcv_run_wait(c->run);
    double took = rcvi_now() - begin;
    if (!status) *seconds = took > 0 ? took : 1e-9;
    bench->runs += count;
    bench->rested += rcvi_rest(&bench->problem, rest_factor, took);
    if (!status || !c->plan->device->memory) return status;
    rcvi_trial_close(bench, c); /* what a GPU's library cannot do is its candidate's refusal */
    return rcvi_refuse(bench->pool, c, RCV_UNSUPPORTED);
}

static int compare_numbers(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* The number at this share of the way from the least to the largest, or the one below it. */
static double quantile(const double *numbers, int count, double share) {
    double sorted[MOST_REPEATS];
    memcpy(sorted, numbers, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, compare_numbers);
    return sorted[(int)(share * (count - 1))];
}

static void add_sample(rcvi_candidate *c, double seconds) {
    if (c->sample_count < RCVI_MAX_SAMPLES) c->samples[c->sample_count++] = seconds;
    c->shown.seconds = quantile(c->samples, c->sample_count, lower) * c->shown.estimate / c->estimate;
}

rcv_status rcvi_trial_sample(rcvi_bench *bench, rcvi_candidate *c, double enough) {
    double seconds = c->sample_count ? c->samples[c->sample_count - 1] : 0, runs[MOST_REPEATS] = {0};
    if (!c->warm || seconds <= 0) {
        /* The first run packs matrices, starts threads and finds cold caches; its time gives the number of repeats. */
        RCVI_TRY(rcvi_trial_run(bench, c, &seconds));
        if (!c->run) return RCV_OK;
        bool counts = bench->problem.options->training && seconds > long_run;
        if (counts || seconds * c->shown.estimate / c->estimate > enough) {
            add_sample(c, seconds);
            return RCV_OK;
        }
    }
    int repeats = seconds < bench->sample ? (int)(bench->sample / seconds) : 1;
    if (repeats > MOST_REPEATS) repeats = MOST_REPEATS;
    for (int i = 0; i < repeats; i++) RCVI_TRY(rcvi_trial_run(bench, c, &runs[i]));
    add_sample(c, quantile(runs, repeats, 0.5));
    if (bench->open_bytes > bench->memory / OPEN_SHARE) rcvi_trial_close(bench, c);
    return RCV_OK;
}

/* ---- two plans in turns ---- */

enum { MOST_TURNS = 7, LEAST_TURNS = 3 };
static const double turns_seconds = 0.5; /* for the trials of a plan; where runs are long there are LEAST_TURNS */

/* Does the device refuse one of the two? */
static bool is_refused(const double seconds[2], double *ratio) {
    if (seconds[0] <= 0 && seconds[1] > 0) *ratio = INFINITY;
    return seconds[0] <= 0 || seconds[1] <= 0;
}

static rcv_status run_turns(rcvi_bench *bench, rcvi_candidate both[2], double *ratio) {
    double ratios[MOST_TURNS], seconds[2] = {0};
    for (int i = 0; i < 2; i++) RCVI_TRY(rcvi_trial_run(bench, &both[i], &seconds[i])); /* packs, touches memory */
    if (is_refused(seconds, ratio)) return RCV_OK;
    int turns = (int)fmin(turns_seconds / seconds[1], MOST_TURNS);
    if (turns < LEAST_TURNS) turns = LEAST_TURNS;
    for (int n = 0; n < turns; n++) {
        for (int i = 0; i < 2; i++) RCVI_TRY(rcvi_trial_run(bench, &both[i], &seconds[i]));
        if (is_refused(seconds, ratio)) return RCV_OK;
        ratios[n] = seconds[0] / seconds[1];
    }
    *ratio = quantile(ratios, turns, 0.5);
    return RCV_OK;
}

rcv_status rcvi_compare_plans(const rcvi_problem *problem, rcv_plan *plan, rcv_plan *other, double *ratio) {
    rcvi_bench bench;
    rcvi_pool pool;
    rcvi_candidate both[2] = {{.rungs = plan->program.rungs, .plan = plan, .remaining = true},
                              {.rungs = other->program.rungs, .plan = other, .remaining = true}};
    *ratio = 0;
    rcvi_pool_init(&pool, problem->net->context);
    rcv_status status = rcvi_bench_begin(&bench, problem, &pool);
    bench.open_bytes = other->run_bytes; /* both are open at once */
    bool fits = !status && rcvi_trial_fits_beside(&bench, &both[0]);
    bench.open_bytes = 0;
    if (fits) status = run_turns(&bench, both, ratio);
    for (int i = 0; i < 2; i++) rcvi_trial_close(&bench, &both[i]);
    rcvi_bench_end(&bench);
    rcvi_pool_free(&pool);
    return status;
}
