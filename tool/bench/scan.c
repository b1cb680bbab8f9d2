/* Linear recurrences without a network: bandwidth compared with a copy, and time compared with the serial form. */
#include "bench/experiments.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double LONGEST_SERIAL = 1;  /* seconds: a longer call of the form `serial` is not timed */
static const double SHORT_SERIAL = 0.02; /* seconds: a shorter call of it is timed in turns with the others */
static const double OVERTIME = 6;        /* times the seconds asked for: then no further shape is measured */
static const size_t COPY_BYTES = (size_t)256 << 20; /* of the arrays that a GPU copies */

/* Arrays [steps, batch, channels] of the largest shape, in the device's memory. */
typedef struct {
    void *a, *b, *h, *dh, *da, *db;
} scan_arrays;

/* ---- inputs ---- */

/* Random numbers in 0.5..1: a fixed exponent and random mantissa bits. With `signs` half of them are negative. */
static void fill_block(rcv_dtype dtype, void *block, int64_t count, bool signs, uint64_t seed) {
    uint64_t state = seed;
    for (int64_t i = 0; i < count; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const uint64_t sign = signs ? state >> 63 : 0, bits = state >> 11;
        if (dtype == RCV_FLOAT64) {
            ((uint64_t *)block)[i] = sign << 63 | 0x3fe0000000000000u | (bits >> 1);
        } else if (dtype == RCV_FLOAT32) {
            ((uint32_t *)block)[i] = (uint32_t)(sign << 31 | 0x3f000000u | bits >> 30);
        } else if (dtype == RCV_BFLOAT16) {
            ((uint16_t *)block)[i] = (uint16_t)(sign << 15 | 0x3f00u | bits >> 46);
        } else {
            ((uint16_t *)block)[i] = (uint16_t)(sign << 15 | 0x3800u | bits >> 43);
        }
    }
}

static rcv_status new_array(const problem *problem, int64_t elements, void **array) {
    const size_t bytes = (size_t)elements * rcv_dtype_bytes(problem->dtype);
    return rcv_memory_new(problem->context, problem->device, bytes, array);
}

/* Fills the array with copies of one block of random numbers. */
static rcv_status fill_array(const problem *problem, int64_t elements, bool signs, uint64_t seed, void *array) {
    enum { BLOCK = 1 << 20 };
    const size_t size = rcv_dtype_bytes(problem->dtype);
    void *block = need(BLOCK, size);
    rcv_status status = RCV_OK;
    fill_block(problem->dtype, block, BLOCK, signs, seed);
    for (int64_t i = 0; i < elements && status == RCV_OK; i += BLOCK) {
        const int64_t some = elements - i < BLOCK ? elements - i : BLOCK;
        status = rcv_memory_write(problem->device, (char *)array + (size_t)i * size, block, (size_t)some * size);
    }
    free(block);
    return status;
}

static rcv_status arrays_new(const problem *problem, int64_t elements, uint64_t seed, scan_arrays *arrays) {
    void **const all[] = {&arrays->a, &arrays->b, &arrays->dh, &arrays->h, &arrays->da, &arrays->db};
    rcv_status status = RCV_OK;
    for (size_t i = 0; i < COUNT(all) && status == RCV_OK; i++) {
        status = new_array(problem, elements, all[i]);
    }
    for (size_t i = 0; i < 3 && status == RCV_OK; i++) {
        status = fill_array(problem, elements, i > 0, seed + i, *all[i]);
    }
    return status;
}

static void arrays_free(const problem *problem, const scan_arrays *arrays) {
    void *const all[] = {arrays->a, arrays->b, arrays->h, arrays->dh, arrays->da, arrays->db};
    for (size_t i = 0; i < COUNT(all); i++) {
        rcv_memory_free(problem->context, problem->device, all[i]);
    }
}

/* ---- a shape ---- */

typedef struct {
    rcv_scan *scan; /* both passes of a form share it */
    const scan_arrays *arrays;
    bool backward;
} scan_call;

static double run_calls(implementation *self, int64_t repeats) {
    const scan_call *call = self->state;
    const scan_arrays *arrays = call->arrays;
    const rcv_scan_data data = RCV_INIT(rcv_scan_data, .a = arrays->a, .b = arrays->b, .h = arrays->h);
    const rcv_scan_gradients gradients =
        RCV_INIT(rcv_scan_gradients, .dh = arrays->dh, .da = arrays->da, .db = arrays->db);
    const double start = now();
    rcv_status status = RCV_OK;
    for (int64_t i = 0; i < repeats && status == RCV_OK; i++) {
        status =
            call->backward ? rcv_scan_backward(call->scan, &data, &gradients) : rcv_scan_forward(call->scan, &data);
    }
    if (status == RCV_OK) {
        status = rcv_scan_wait(call->scan);
    }
    if (status != RCV_OK) {
        implementation_refuse(self, "%s", rcv_message());
        return -1;
    }
    return now() - start;
}

static void add_call(comparison *comparison, const problem *problem, scan_call *call, const char *name) {
    implementation *added = comparison_add(comparison, name);
    added->state = call;
    added->run = run_calls;
    added->is_asynchronous = problem_is_gpu(problem);
}

static rcv_status scan_open(const problem *problem, const scan_point *point, const char *form, rcv_scan **scan) {
    const rcv_scan_options options =
        RCV_INIT(rcv_scan_options, .steps = point->steps, .batch = point->batch, .channels = point->channels,
                 .dtype = problem->dtype, .form = form, .threads = problem->threads, .device = problem->device);
    return rcv_scan_new(problem->context, &options, scan);
}

static int64_t width_of(const scan_point *point) { return point->batch * point->channels; }

/* Expected seconds of the form `serial`, scaled from the longest shorter shape of the same width; 0: not known. */
static double expected_serial(const scans *scans, const scan_point *point, bool backward) {
    double seconds = 0;
    int64_t longest = 0;
    for (size_t i = 0; i < scans->count; i++) {
        const scan_point *other = &scans->points[i];
        const scan_pass *pass = backward ? &other->backward : &other->forward;
        if (width_of(other) == width_of(point) && other->steps < point->steps && other->steps > longest &&
            pass->seconds > 0) {
            longest = other->steps;
            seconds = pass->serial > 0 ? pass->serial * (double)point->steps / (double)other->steps : INFINITY;
        }
    }
    return seconds;
}

/* Seconds of a call that may be long: of the second call, since the first one also warms up; of the first if that takes too long. */
static double time_second_call(implementation *serial) {
    const double first = serial->run(serial, 1);
    return first < 0 || first > 4 * LONGEST_SERIAL || stop_signal() != 0 ? first : serial->run(serial, 1);
}

/* The median of a few long calls; of a very long one a single call. */
static double time_long(implementation *serial, double expected) {
    double samples[3];
    const size_t count = expected > 0.1 * LONGEST_SERIAL ? 1 : COUNT(samples);
    for (size_t i = 0; i < count; i++) {
        samples[i] = stop_signal() == 0 ? serial->run(serial, 1) : -1;
        if (samples[i] < 0 || samples[i] > LONGEST_SERIAL) {
            return 0;
        }
    }
    return median(samples, count);
}

enum { OURS_FORWARD, OURS_BACKWARD, SERIAL_FORWARD, SERIAL_BACKWARD, CALLS };

/* Times the form `serial` alone if it is long. Returns whether it is short enough to be timed in turns with the others. */
static bool is_timed_in_turns(scans *scans, const scan_point *point, implementation *serial, scan_pass *pass,
                              bool backward) {
    const double start = now();
    double expected = expected_serial(scans, point, backward);
    expected = expected > 0 ? expected : time_second_call(serial);
    if (expected > SHORT_SERIAL && expected <= LONGEST_SERIAL) {
        pass->serial = time_long(serial, expected);
    }
    scans->serial_seconds += now() - start;
    return expected >= 0 && expected <= SHORT_SERIAL;
}

static void measure_point(const bench *bench, scans *scans, scan_point *point, const scan_arrays *arrays,
                          rcv_scan *ours, rcv_scan *serial, double seconds) {
    static const char *const names[CALLS] = {"forward", "backward", "serial forward", "serial backward"};
    const problem *problem = &bench->problem;
    scan_pass *const passes[] = {&point->forward, &point->backward};
    scan_call calls[CALLS];
    comparison comparison = {.count = 0};
    for (int i = 0; i < (serial != NULL ? CALLS : SERIAL_FORWARD); i++) {
        calls[i] = (scan_call){i < SERIAL_FORWARD ? ours : serial, arrays, i % 2 != 0};
        add_call(&comparison, problem, &calls[i], names[i]);
        implementation *added = &comparison.items[comparison.count - 1];
        if (i >= SERIAL_FORWARD && !is_timed_in_turns(scans, point, added, passes[i % 2], i % 2 != 0)) {
            implementation_refuse(added, "too long to be timed in turns");
        }
    }
    char title[96];
    snprintf(title, sizeof title, "scan [%lld, %lld]", (long long)point->steps, (long long)width_of(point));
    comparison_measure(&comparison, problem, NULL, NULL, title, seconds, 5);
    for (size_t i = 0; i < comparison.count; i++) {
        const measurement *item = &comparison.items[i].measured;
        scan_pass *pass = passes[i % 2];
        if (i < SERIAL_FORWARD) {
            pass->seconds = item->median;
            pass->minimum = item->minimum;
            if (item->refusal != NULL && point->refusal == NULL) {
                point->refusal = text_of("%s", item->refusal);
            }
        } else if (item->median > 0) {
            pass->serial = item->median;
        }
    }
    comparison_free(&comparison);
}

/* Bandwidth of a copy. On the CPU, where caches matter, it has as many reads as the forward pass and arrays of the same size. */
static double copy_bandwidth(const problem *problem, const scans *scans, const scan_point *point) {
    for (size_t i = 0; i < scans->count; i++) {
        const scan_point *other = &scans->points[i];
        if (other->copy > 0 && (problem_is_gpu(problem) || other->bytes == point->bytes)) {
            return other->copy;
        }
    }
    double bandwidth = 0;
    const size_t bytes = problem_is_gpu(problem) ? COPY_BYTES : (size_t)point->bytes;
    show_progress("scan: copying arrays of %zu bytes", bytes);
    const rcv_status status =
        rcv_measure_memory(problem->context, problem->device, problem->threads, scans->reads, bytes, &bandwidth);
    return status == RCV_OK ? bandwidth : 0;
}

static void bench_point(const bench *bench, scans *scans, scan_point *point, const scan_arrays *arrays,
                        double seconds) {
    rcv_scan *ours = NULL, *serial = NULL;
    point->copy = copy_bandwidth(&bench->problem, scans, point);
    if (scan_open(&bench->problem, point, NULL, &ours) != RCV_OK) {
        point->refusal = text_of("%s", rcv_message());
        return;
    }
    point->form = text_of("%s", rcv_scan_form(ours));
    if (scan_open(&bench->problem, point, "serial", &serial) != RCV_OK) {
        serial = NULL;
    }
    measure_point(bench, scans, point, arrays, ours, serial, seconds);
    rcv_scan_free(serial);
    rcv_scan_free(ours);
}

/* ---- the shapes and their targets ---- */

static void add_point(scans *scans, const problem *problem, int64_t most, int64_t steps, int64_t batch,
                      int64_t channels) {
    const int64_t elements = steps * batch * channels;
    if (elements > most) {
        return;
    }
    for (size_t i = 0; i < scans->count; i++) {
        const scan_point *other = &scans->points[i];
        if (other->steps == steps && other->batch == batch && other->channels == channels) {
            return;
        }
    }
    const double bytes = (double)elements * (double)rcv_dtype_bytes(problem->dtype);
    scans->points[scans->count++] = (scan_point){.steps = steps, .batch = batch, .channels = channels, .bytes = bytes};
}

typedef enum { FORWARD_TIME, BOTH_TIME, FORWARD_SPEEDUP } target_kind;

/* Targets for a GPU like an H200 in float32. */
static const struct {
    int64_t steps, batch, channels;
    target_kind kind;
    double target; /* milliseconds, or times */
    const char *source;
} named[] = {
    {524288, 1, 128, FORWARD_TIME, 0.22, NULL},
    {524288, 1, 128, BOTH_TIME, 0.60, NULL},
    {65536, 1, 128, FORWARD_TIME, 0.035, NULL},
    {65536, 1, 128, FORWARD_SPEEDUP, 50, NULL},
    {4096, 8, 1536, FORWARD_TIME, 0.160, "accelerated-scan, measured elsewhere"},
    {1024, 64, 512, FORWARD_TIME, 0.132 / 1.3, "accelerated-scan, measured elsewhere, / 1.3"},
};

static const double FORWARD_SHARE = 0.90,
                    BACKWARD_SHARE = 0.85; /* targets as shares of a copy's bandwidth, for the shapes below */
static const double LARGE_ELEMENTS = 64 << 20;
static const int64_t WIDE_CHANNELS = 32;

static void list_points(const bench *bench, scans *scans) {
    const problem *problem = &bench->problem;
    for (size_t c = 0; c < SCAN_CHANNELS; c++) {
        for (size_t t = 0; t < SCAN_STEPS; t++) {
            add_point(scans, problem, bench->elements, scan_steps[t], 1, scan_channels[c]);
        }
    }
    for (size_t i = 0; i < COUNT(named) && problem_is_gpu(problem); i++) {
        add_point(scans, problem, bench->elements, named[i].steps, named[i].batch, named[i].channels);
    }
}

static void add_target(scans *scans, scan_target target) {
    if (scans->target_count < MAXIMUM_TARGETS && target.point->forward.seconds > 0) {
        scans->targets[scans->target_count++] = target;
    }
}

static void add_named_targets(scans *scans, const scan_point *point) {
    const double forward = point->forward.seconds * 1e3, backward = point->backward.seconds * 1e3;
    for (size_t i = 0; i < COUNT(named); i++) {
        if (named[i].steps != point->steps || named[i].batch != point->batch || named[i].channels != point->channels) {
            continue;
        }
        scan_target target = {.point = point,
                              .what = "forward",
                              .unit = "ms",
                              .target = named[i].target,
                              .measured = forward,
                              .at_most = true,
                              .source = named[i].source};
        if (named[i].kind == BOTH_TIME) {
            target.what = "forward and backward";
            target.measured = backward > 0 ? forward + backward : 0;
        } else if (named[i].kind == FORWARD_SPEEDUP) {
            target.what = "forward over serial";
            target.unit = "x";
            target.measured = scan_speedup(&point->forward);
            target.at_most = false;
        }
        add_target(scans, target);
    }
}

static void list_targets(const problem *problem, scans *scans) {
    for (size_t i = 0; i < scans->count; i++) {
        const scan_point *point = &scans->points[i];
        if (problem_is_gpu(problem) && problem->dtype == RCV_FLOAT32) {
            add_named_targets(scans, point);
        }
        const double elements = (double)point->steps * (double)width_of(point);
        if (elements >= LARGE_ELEMENTS && width_of(point) >= WIDE_CHANNELS) {
            add_target(scans, (scan_target){.point = point,
                                            .what = "forward, of a copy",
                                            .unit = "%",
                                            .target = 100 * FORWARD_SHARE,
                                            .measured = 100 * scan_share(point, false)});
            add_target(scans, (scan_target){.point = point,
                                            .what = "backward, of a copy",
                                            .unit = "%",
                                            .target = 100 * BACKWARD_SHARE,
                                            .measured = 100 * scan_share(point, true)});
        }
    }
}

static bool is_named(const scan_point *point) {
    for (size_t i = 0; i < COUNT(named); i++) {
        if (named[i].steps == point->steps && named[i].batch == point->batch && named[i].channels == point->channels) {
            return true;
        }
    }
    return false;
}

/* Shapes with targets first, then by size: when the time is up, the largest are missing. */
static int by_order(const void *left, const void *right) {
    const scan_point *a = *(const scan_point *const *)left, *b = *(const scan_point *const *)right;
    if (is_named(a) != is_named(b)) {
        return is_named(a) ? -1 : 1;
    }
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static void measure_points(const bench *bench, scans *scans, const scan_arrays *arrays) {
    scan_point *order[MAXIMUM_SCANS] = {NULL};
    for (size_t i = 0; i < scans->count; i++) {
        order[i] = &scans->points[i];
    }
    qsort(order, scans->count, sizeof *order, by_order);
    const double start = now();
    for (size_t i = 0; i < scans->count && stop_signal() == 0; i++) {
        const double spent = now() - start - scans->serial_seconds;
        if (bench->seconds > 0 && spent > OVERTIME * bench->seconds) {
            order[i]->refusal = text_of("not measured: the time is up");
        } else {
            bench_point(bench, scans, order[i], arrays, bench->seconds / (double)scans->count);
        }
    }
}

rcv_status bench_scan(const bench *bench, results *results) {
    const problem *problem = &bench->problem;
    scans *scans = &results->scans;
    scan_arrays arrays = {0};
    int64_t most = 0;
    scans->reads = problem_is_gpu(problem) ? 1 : 2;
    list_points(bench, scans);
    for (size_t i = 0; i < scans->count; i++) {
        const int64_t elements = scans->points[i].steps * width_of(&scans->points[i]);
        most = elements > most ? elements : most;
    }
    show_progress("scan: filling arrays of %lld elements", (long long)most);
    rcv_status status = arrays_new(problem, most, bench->seed, &arrays);
    if (status == RCV_OK) { /* finds errors that concern every shape before the first one is measured */
        rcv_scan *scan = NULL;
        status = scan_open(problem, &scans->points[0], NULL, &scan);
        rcv_scan_free(scan);
    }
    if (status == RCV_OK) {
        measure_points(bench, scans, &arrays);
    }
    hide_progress();
    arrays_free(problem, &arrays);
    list_targets(problem, scans);
    scans->done = status == RCV_OK;
    return status;
}
