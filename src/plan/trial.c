/* Trials. Their data is random but cheap to make, and its memory is reused. In inference a run is timed with matrices that are already
 * packed; in training parameters change from call to call, so packing is part of every run. */
#include "plan/trial.h"
#include "plan/cost.h"
#include "plan/search.h"

#include "base/random.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const double long_run = 5e-3; /* seconds; starting threads does not matter to longer runs */
static const double lower =
    0.25; /* quantile of the samples that counts: other work on the machine only makes them longer */
enum { PATTERN = 4093, STAGED = 256 * PATTERN, MOST_REPEATS = 64, ALIGN = 64 };

static size_t physical_memory(void) {
    long pages = sysconf(_SC_PHYS_PAGES), bytes = sysconf(_SC_PAGE_SIZE);
    return pages > 0 && bytes > 0 ? (size_t)pages * (size_t)bytes : (size_t)1 << 30;
}

void rcvi_bench_begin(rcvi_bench *bench, const rcvi_problem *problem, rcvi_pool *pool) {
    *bench = (rcvi_bench){
        .problem = *problem, .context = problem->net->context, .pool = pool, .memory = physical_memory() / 2};
}

void rcvi_bench_end(rcvi_bench *bench) {
    const rcvi_memory *memory = bench->problem.device->memory;
    if (memory && bench->there) memory->release(bench->problem.ordinal, bench->there);
    rcvi_free(bench->context, bench->block);
    rcvi_free(bench->context, bench->lengths);
    bench->block = bench->there = NULL;
    bench->lengths = NULL;
    bench->resets = NULL;
    bench->steps = 0;
}

/* ---- data ---- */

static size_t real_bytes(const rcvi_bench *bench) {
    return bench->problem.options->dtype == RCV_FLOAT64 ? sizeof(double) : sizeof(float);
}

/* Numbers in (-range, range), none near zero, in a pattern of prime length: multiplying them costs what real data
 * costs. */
static void fill_with_pattern(size_t bytes, void *to, int64_t count, double range) {
    rcvi_twister twister;
    rcvi_twister_seed(&twister, 1);
    int64_t drawn = count < PATTERN ? count : PATTERN;
    for (int64_t i = 0; i < drawn; i++) {
        double number = rcvi_uniform_double(&twister, 0.1, 1) * range * (rcvi_twister_next(&twister) & 1 ? 1 : -1);
        if (bytes == sizeof(double))
            ((double *)to)[i] = number;
        else
            ((float *)to)[i] = (float)number;
    }
    for (int64_t i = drawn; i < count; i += drawn)
        memcpy((char *)to + (size_t)i * bytes, to, (size_t)(count - i < drawn ? count - i : drawn) * bytes);
}

typedef struct {
    void **place;
    int64_t count;
    double range; /* 0: left at zero */
} array;

/* All arrays in one block of the device's own memory. Those that are read are copied there in blocks from a staging buffer of the host,
 * which is filled once for each array. */
static rcv_status make_there(rcvi_bench *bench, size_t total, const array *arrays, const size_t *offsets, int count) {
    const rcvi_memory *memory = bench->problem.device->memory;
    size_t real = real_bytes(bench);
    char *stage = rcvi_new(bench->context, STAGED, real);
    rcv_status status = stage ? memory->allocate(bench->problem.ordinal, total, &bench->there) : RCV_NO_MEMORY;
    for (int i = 0; i < count && !status; i++) {
        if (arrays[i].range == 0 && arrays[i].place != &bench->resets) continue;
        int64_t piece = arrays[i].count < STAGED ? arrays[i].count : STAGED;
        memset(stage, 0, (size_t)piece * real);
        if (arrays[i].range > 0) fill_with_pattern(real, stage, piece, arrays[i].range);
        for (int64_t at = 0; at < arrays[i].count && !status; at += piece) {
            int64_t left = arrays[i].count - at;
            char *to = (char *)bench->there + offsets[i] + (size_t)at * real;
            status = memory->write(bench->problem.ordinal, to, stage, (size_t)(left < piece ? left : piece) * real);
        }
    }
    rcvi_free(bench->context, stage);
    return status;
}

static char *align(char *block) { return block + (ALIGN - (uintptr_t)block % ALIGN) % ALIGN; }

static rcv_status make_here(rcvi_bench *bench, size_t total, const array *arrays, const size_t *offsets, int count) {
    bench->block = rcvi_new(bench->context, total + ALIGN, 1);
    if (!bench->block) return RCV_NO_MEMORY;
    for (int i = 0; i < count; i++) {
        if (arrays[i].range > 0)
            fill_with_pattern(real_bytes(bench), align(bench->block) + offsets[i], arrays[i].count, arrays[i].range);
    }
    return RCV_OK;
}

/* Data for trials of up to this many steps. */
static rcv_status make_data(rcvi_bench *bench, int64_t steps) {
    if (steps <= bench->steps) return RCV_OK;
    rcvi_bench_end(bench);
    const rcv_plan_options *o = bench->problem.options;
    const rcv_net *net = bench->problem.net;
    int64_t rows = steps * o->batch, parameters = net->parameter_elements;
    int64_t x = rows * net->options.input, y = rows * rcv_net_output(net);
    double spread = 1; /* about 1 / sqrt(hidden): sums stay near 1 */
    while (spread * spread * (double)net->options.hidden > 1) spread /= 2;
    size_t real = real_bytes(bench);
    int64_t masks = o->resets ? (rows + (int64_t)real - 1) / (int64_t)real : 0; /* bytes, counted in reals */
    array arrays[] = {{&bench->parameters, parameters, spread},
                      {&bench->resets, masks, 0},
                      {&bench->x, x, 1},
                      {&bench->y, y, 0},
                      {&bench->dy, o->training ? y : 0, 1},
                      {&bench->dx, o->training ? x : 0, 0},
                      {&bench->dparameters, o->training ? parameters : 0, 0}};
    enum { ARRAYS = sizeof arrays / sizeof *arrays };
    size_t total = 0, offsets[ARRAYS];
    for (int i = 0; i < ARRAYS; i++) {
        offsets[i] = total;
        total += ((size_t)arrays[i].count * real + ALIGN - 1) / ALIGN * ALIGN;
    }
    bench->lengths = o->lengths ? rcvi_new(bench->context, (size_t)o->batch, sizeof *bench->lengths) : NULL;
    if (o->lengths && !bench->lengths) return RCV_NO_MEMORY;
    bool there = bench->problem.device->memory != NULL;
    RCVI_TRY((there ? make_there : make_here)(bench, total, arrays, offsets, ARRAYS));
    char *data = there ? bench->there : align(bench->block);
    for (int i = 0; i < ARRAYS; i++) *arrays[i].place = data + offsets[i];
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
    if (!c->plan) RCVI_TRY(rcvi_plan_make(&part, &c->rungs, &c->plan));
    c->estimate = rcvi_estimate(&c->plan->program);
    return RCV_OK;
}

bool rcvi_trial_fits(const rcvi_bench *bench, const rcvi_candidate *c, double *fresh) {
    const rcv_plan_options *o = &c->plan->program.options;
    const rcv_net *net = bench->problem.net;
    double rows = (double)o->steps * (double)o->batch, own = (double)c->plan->run_bytes;
    double features = (double)net->options.input + (double)rcv_net_output(net);
    double data = 2 * (double)real_bytes(bench) * (rows * features + (double)net->parameter_elements) + 9 * rows;
    *fresh = own + (o->steps > bench->steps ? data : 0);
    return own + data < (double)bench->memory;
}

static rcv_status open_trial(rcvi_bench *bench, rcvi_candidate *c) {
    rcv_status status = make_data(bench, c->plan->program.options.steps);
    if (status == RCV_NO_MEMORY && c->plan->device->memory) { /* no device memory for a trial: it is not timed */
        rcvi_bench_end(bench);
        c->remaining = false;
        return RCV_OK;
    }
    if (status || c->run) return status;
    status = rcv_run_new(c->plan, &c->run);
    if (status == RCV_NO_MEMORY && c->plan->device->memory) status = RCV_UNSUPPORTED; /* the device's, not the host's */
    if (status) return rcvi_refuse(bench->pool, c, status);
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

rcv_status rcvi_ask_to_go_on(const rcv_plan_options *options, int64_t runs) {
    if (!options->go_on || options->go_on(options->user)) return RCV_OK;
    return rcvi_fail(RCV_STOPPED, "planning was stopped after %lld trial%s, before a plan was chosen", (long long)runs,
                     runs == 1 ? "" : "s");
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
    for (int64_t b = 0; bench->lengths && b < o->batch; b++) bench->lengths[b] = c->plan->program.options.steps;
    double begin = rcvi_now();
    rcv_status status = RCV_OK;
    for (int i = 0; i < count && !status; i++, c->warm = true) {
        forward.same_parameters = c->warm && !o->training;
        status = rcv_run_forward(c->run, &forward);
        if (!status && o->training) status = rcv_run_backward(c->run, &backward);
    }
    if (!status) status = rcv_run_wait(c->run);
    double took = rcvi_now() - begin;
    *seconds = took > 0 ? took : 1e-9;
    bench->runs += count;
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
    if (bench->open_bytes > bench->memory / 4) rcvi_trial_close(bench, c);
    return RCV_OK;
}
