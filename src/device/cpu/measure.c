/* Measures the machine's limits: multiply-adds from registers, memory bandwidth, and the time of a barrier of the team. */
#include "device/cpu/measure.h"
#include "recurve_bench.h"

#include "device/cpu/engine/team.h"
#include "device/cpu/kernels/select.h"

#include <stdlib.h>

enum { ROUNDS = 7 };                                              /* the median of these counts */
static const double peak_seconds = 0.02, barrier_seconds = 0.002; /* seconds of a round, at least */

typedef struct {
    rcvi_team *team;
    const rcvi_kernels *kernels;
    rcvi_kernel_type type;
    int64_t repeats;
    double operations[RCVI_MAX_THREADS], begin[RCVI_MAX_THREADS], end[RCVI_MAX_THREADS]; /* [member] */
} measurement;

rcv_status rcvi_check_product_type(rcv_dtype dtype, rcvi_kernel_type *type) {
    switch (dtype) {
    case RCV_FLOAT32: *type = RCVI_KERNEL_FLOAT; return RCV_OK;
    case RCV_FLOAT64: *type = RCVI_KERNEL_DOUBLE; return RCV_OK;
    case RCV_BFLOAT16: *type = RCVI_KERNEL_BFLOAT16; return RCV_OK;
    default:
        return rcvi_fail(RCV_INVALID, "products are of float32, float64 or bfloat16, not of %s", rcv_dtype_name(dtype));
    }
}

rcv_status rcvi_check_threads(int64_t threads) {
    if (threads >= 1 && threads <= RCVI_MAX_THREADS) return RCV_OK;
    return rcvi_fail(RCV_INVALID, "threads must be 1 to %d, not %lld", RCVI_MAX_THREADS, (long long)threads);
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void run_multiply_adds(void *user, int member) {
    measurement *self = user;
    if (self->kernels->begin) self->kernels->begin();
    rcvi_team_barrier(self->team, member);
    self->begin[member] = rcvi_now();
    self->operations[member] = self->kernels->peak[self->type](self->repeats);
    self->end[member] = rcvi_now();
    if (self->kernels->end) self->kernels->end();
}

static void run_barriers(void *user, int member) {
    measurement *self = user;
    rcvi_team_barrier(self->team, member);
    self->begin[member] = rcvi_now();
    for (int64_t i = 0; i < self->repeats; i++) rcvi_team_barrier(self->team, member);
    self->end[member] = rcvi_now();
}

/* Seconds from the first begin to the last end of all members. */
static double time_round(measurement *self, void (*work)(void *, int)) {
    (void)rcvi_team_call(self->team, work, self); /* a team of this process does not fail */
    double begin = self->begin[0], end = self->end[0];
    for (int i = 1; i < rcvi_team_threads(self->team); i++) {
        if (self->begin[i] < begin) begin = self->begin[i];
        if (self->end[i] > end) end = self->end[i];
    }
    return end - begin;
}

/* Seconds of one repeat: the median over rounds of at least `seconds` each. */
static double seconds_per_repeat(measurement *self, void (*work)(void *, int), double seconds) {
    for (double took; (took = time_round(self, work)) < seconds && self->repeats < INT64_MAX / 16;)
        self->repeats *= took < seconds / 16 ? 16 : 2;
    double rounds[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) rounds[i] = time_round(self, work);
    qsort(rounds, ROUNDS, sizeof *rounds, compare_doubles);
    return rounds[ROUNDS / 2] / (double)self->repeats;
}

static rcv_status measure(rcv_context *context, const measurement *what, int64_t threads, void (*work)(void *, int),
                          double least, double *seconds, double *operations) {
    RCVI_TRY(rcvi_check_threads(threads));
    measurement *self = rcvi_new(context, 1, sizeof *self);
    if (!self) return RCV_NO_MEMORY;
    *self = *what;
    self->repeats = 16;
    rcv_status status = rcvi_team_new(context, (int)threads, &self->team);
    if (!status) {
        *seconds = seconds_per_repeat(self, work, least);
        for (int64_t i = 0; i < threads; i++) *operations += self->operations[i] / (double)self->repeats;
    }
    rcvi_team_free(self->team);
    rcvi_free(context, self);
    return status;
}

rcv_status rcv_measure_peak(rcv_context *context, rcv_dtype dtype, int64_t threads, double *operations) {
    RCVI_NEED(context, "context");
    RCVI_NEED(operations, "operations");
    measurement what = {.repeats = 0};
    RCVI_TRY(rcvi_check_product_type(dtype, &what.type));
    what.kernels = rcvi_context_kernels(context);
    if (!what.kernels) return RCV_INVALID;
    double seconds = 0, count = 0;
    RCVI_TRY(measure(context, &what, threads, run_multiply_adds, peak_seconds, &seconds, &count));
    *operations = count / seconds;
    return RCV_OK;
}

rcv_status rcv_measure_barrier(rcv_context *context, int64_t threads, double *seconds) {
    RCVI_NEED(context, "context");
    RCVI_NEED(seconds, "seconds");
    double took = 0, none = 0;
    RCVI_TRY(measure(context, &(measurement){.repeats = 0}, threads, run_barriers, barrier_seconds, &took, &none));
    *seconds = took;
    return RCV_OK;
}

/* ---- memory ---- */

enum { MEMORY_ROUNDS = 5, MEMORY_ALIGN = 64 };

typedef struct {
    rcvi_team *team;
    const rcvi_kernels *kernels;
    float *a, *b, *c; /* [elements]; b may be NULL */
    int64_t elements;
    bool first_touch; /* write the arrays first, so that each page is allocated near the thread that uses it */
} stream_job;

static void run_stream(void *user, int member) {
    const stream_job *self = user;
    const int64_t unit = 4096, units = (self->elements + unit - 1) / unit;
    int members = rcvi_team_threads(self->team);
    int64_t first = units * member / members * unit, end = units * (member + 1) / members * unit;
    if (end > self->elements) end = self->elements;
    if (first >= end) return;
    for (int64_t i = first; self->first_touch && i < end; i++) {
        self->a[i] = 1;
        if (self->b) self->b[i] = 2;
    }
    self->kernels->stream_sum(end - first, self->a + first, self->b ? self->b + first : NULL, self->c + first);
}

rcv_status rcvi_measure_bandwidth(rcv_context *context, int ordinal, int64_t threads, int reads, size_t bytes,
                                  double *bandwidth) {
    (void)ordinal;
    stream_job self = {
        .kernels = rcvi_context_kernels(context), .elements = (int64_t)(bytes / sizeof(float)), .first_touch = true};
    if (!self.kernels) return RCV_INVALID;
    size_t each = (bytes + MEMORY_ALIGN - 1) / MEMORY_ALIGN * MEMORY_ALIGN;
    RCVI_TRY(rcvi_check_threads(threads));
    char *memory = rcvi_new(context, (size_t)reads + 1, each + MEMORY_ALIGN);
    if (!memory) return RCV_NO_MEMORY;
    char *first = memory + (-(uintptr_t)memory & (MEMORY_ALIGN - 1));
    self.c = (void *)first;
    self.a = (void *)(first + each);
    self.b = reads > 1 ? (void *)(first + 2 * each) : NULL;
    rcv_status status = rcvi_team_new(context, (int)threads, &self.team);
    double best = 0;
    for (int i = 0; !status && i <= MEMORY_ROUNDS; i++) {
        double begin = rcvi_now();
        status = rcvi_team_call(self.team, run_stream, &self);
        double took = rcvi_now() - begin;
        if (!self.first_touch && (best == 0 || took < best)) best = took;
        self.first_touch = false;
    }
    rcvi_team_free(self.team);
    rcvi_free(context, memory);
    if (status) return status;
    *bandwidth = (double)(self.elements * (int64_t)sizeof(float) * (reads + 1)) / best;
    return RCV_OK;
}
