/* Timing of a comparison: rounds, in each of which every implementation has one turn. */
#include "bench/comparison.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const double SHORTEST_TURN = 2e-3; /* seconds: the clock resolves a turn of this length */
static const double OTHERS_PAUSE = 0.03;  /* seconds until the threads of another library sleep */
static const double OWN_PAUSE = 0.0005;   /* seconds until the threads of recurve sleep */
static const double LONG_CALL = 0.25;     /* seconds: the time of a launch is negligible for such a call */

enum { MOST_ROUNDS = 5000 };
enum { LEAST_ENQUEUED = 3 }; /* calls of a turn on a GPU: the next one is launched while one runs */

/* ---- the list of implementations ---- */

implementation *comparison_add(comparison *comparison, const char *name) {
    if (comparison->count == MAXIMUM_IMPLEMENTATIONS) {
        say("more than %d implementations in one comparison", MAXIMUM_IMPLEMENTATIONS);
        exit(EXIT_FAILED);
    }
    implementation *added = &comparison->items[comparison->count++];
    *added = (implementation){.measured = {.name = text_of("%s", name), .difference = NAN}, .repeats = 1};
    return added;
}

void implementation_refuse(implementation *implementation, const char *format, ...) {
    char sentence[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    free(implementation->measured.refusal);
    implementation->measured.refusal = text_of("%s", sentence);
}

static void close_item(implementation *item) {
    if (item->close != NULL) {
        item->close(item);
    }
    item->close = NULL;
    item->state = NULL;
}

void comparison_end(comparison *comparison, measurements *measured) {
    for (size_t i = 0; i < comparison->count; i++) {
        close_item(&comparison->items[i]);
        measured->items[i] = comparison->items[i].measured;
    }
    measured->count = comparison->count;
    measured->rounds = comparison->rounds;
    comparison->count = 0;
}

void comparison_remove_last(comparison *comparison) {
    implementation *item = &comparison->items[--comparison->count];
    close_item(item);
    measurement_free(&item->measured);
}

void comparison_free(comparison *comparison) {
    while (comparison->count > 0) {
        comparison_remove_last(comparison);
    }
}

/* ---- numbers ---- */

static int ascending(const void *left, const void *right) {
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

double quantile(const double *sorted, size_t count, double share) {
    const double place = share * (double)(count - 1);
    const size_t below = (size_t)place, above = below + 1 < count ? below + 1 : below;
    return sorted[below] + (place - (double)below) * (sorted[above] - sorted[below]);
}

double median(double *values, size_t count) {
    if (count == 0) {
        return 0;
    }
    qsort(values, count, sizeof *values, ascending);
    return quantile(values, count, 0.5);
}

void peak_begin(peak *peak, const problem *problem, double seconds) {
    peak->most = problem_is_gpu(problem) || seconds < 0.5 ? 1 : COUNT(peak->samples);
}

void peak_sample(peak *peak, const problem *problem) {
    double operations;
    if (peak->refusal != NULL || peak->count >= peak->most) {
        return;
    }
    const double start = now();
    const rcv_status status =
        problem_is_gpu(problem)
            ? rcv_measure_device(problem->context, problem->device, problem->dtype, &operations)
            : rcv_measure_peak(problem->context, problem->dtype, problem_threads(problem), &operations);
    if (status == RCV_OK) {
        peak->samples[peak->count++] = operations;
    } else {
        peak->refusal = text_of("%s", rcv_message());
    }
    peak->spent += now() - start;
}

double peak_best(const peak *peak) {
    double best = 0;
    for (size_t i = 0; i < peak->count; i++) {
        best = fmax(best, peak->samples[i]);
    }
    return best;
}

static void add_sample(measurement *measured, double seconds) {
    const size_t count = measured->sample_count;
    if ((count & (count - 1)) == 0) { /* the room is a power of two, and full */
        double *samples = need(count == 0 ? 1 : 2 * count, sizeof(double));
        if (count > 0) {
            memcpy(samples, measured->samples, count * sizeof(double));
        }
        free(measured->samples);
        measured->samples = samples;
    }
    measured->samples[measured->sample_count++] = seconds;
}

/* ---- the progress line ---- */

static void put_progress(const char *text) {
    if (isatty(STDERR_FILENO) == 1) {
        fprintf(stderr, "\r%.110s\033[K", text);
        fflush(stderr);
    }
}

void hide_progress(void) { put_progress(""); }

void show_progress(const char *format, ...) {
    char line[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    put_progress(line);
}

/* ---- rounds ---- */

/* Keeps the results of the first implementation, and compares those of the others with them. */
static void compare_results(implementation *item, call_tensors *tensors) {
    const size_t size = rcv_dtype_bytes(tensors->storage);
    if (item->fetch != NULL && !item->fetch(item)) {
        return;
    }
    if (!tensors->first_is_known) {
        memcpy(tensors->y_first, tensors->y, (size_t)tensors->y_count * size);
        if (tensors->training) {
            memcpy(tensors->dparameters_first, tensors->dparameters, (size_t)tensors->parameter_count * size);
        }
        tensors->first_is_known = true;
        return;
    }
    double difference = relative_difference(tensors->storage, tensors->y, tensors->y_first, tensors->y_count);
    if (tensors->training && item->gradients_compare) {
        difference = fmax(difference, relative_difference(tensors->storage, tensors->dparameters,
                                                          tensors->dparameters_first, tensors->parameter_count));
    }
    item->measured.difference = difference;
}

static int64_t repeats_for(const implementation *item, double turn, double seconds) {
    const double least = item->is_asynchronous && seconds < LONG_CALL ? LEAST_ENQUEUED : 1;
    return (int64_t)fmin(fmax(ceil(fmax(turn, SHORTEST_TURN) / fmax(seconds, 1e-7)), least), 20000);
}

/* Seconds of a call on a GPU. The first calls compile kernels and capture graphs; a single call includes the wait. */
static double time_asynchronous(implementation *item, double turn) {
    double seconds = item->run(item, 2);
    if (seconds >= 0) {
        seconds = item->run(item, 1);
    }
    if (seconds < 0 || seconds >= LONG_CALL) {
        return seconds;
    }
    const int64_t repeats = repeats_for(item, turn, seconds);
    return item->run(item, repeats) / (double)repeats;
}

/* Runs the implementation, compares its results and sets `repeats`. A short call is timed again, since the first one also touches new
 * memory. */
static void warm_up(implementation *item, call_tensors *tensors, double turn) {
    if (tensors != NULL && call_tensors_poison(tensors) != RCV_OK) {
        implementation_refuse(item, "%s", rcv_message());
        return;
    }
    double seconds = item->run(item, 1);
    if (seconds >= 0 && tensors != NULL) {
        compare_results(item, tensors);
    }
    if (item->measured.refusal != NULL) {
        return;
    }
    if (seconds >= 0 && item->is_asynchronous) {
        seconds = time_asynchronous(item, turn);
    } else if (seconds >= 0 && seconds < 0.1) {
        seconds = item->run(item, 1);
    }
    if (seconds >= 0) {
        item->repeats = repeats_for(item, turn, seconds);
    }
}

static void pause_for(double seconds) {
    const struct timespec time = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - floor(seconds)) * 1e9)};
    nanosleep(&time, NULL);
}

/* One turn: waits until the threads of the previous implementation sleep, warms caches and threads, then times `repeats` calls. */
static void time_turn(implementation *item, double pause) {
    pause_for(pause);
    if (item->repeats > 1 && item->run(item, 1 + item->repeats / 8) < 0) {
        return;
    }
    const double seconds = item->run(item, item->repeats);
    if (seconds >= 0) {
        add_sample(&item->measured, seconds / (double)item->repeats);
    }
}

static void summarize(comparison *comparison) {
    const measurement *first = &comparison->items[0].measured;
    for (size_t i = 0; i < comparison->count; i++) {
        measurement *item = &comparison->items[i].measured;
        if (item->sample_count > 0) {
            double *copy = need(item->sample_count, sizeof(double));
            memcpy(copy, item->samples, item->sample_count * sizeof(double));
            item->median = median(copy, item->sample_count);
            item->minimum = copy[0];
            free(copy);
        }
        item->ratio = item->median > 0 && first->median > 0 ? item->median / first->median : 0;
    }
}

void comparison_measure(comparison *comparison, const problem *problem, call_tensors *tensors, peak *peak,
                        const char *title, double seconds, size_t least) {
    const bool pauses = !problem_is_gpu(problem) && problem_threads(problem) > 1;
    bool threads_are_busy = false;
    for (size_t i = 0; i < comparison->count && stop_signal() == 0; i++) {
        implementation *item = &comparison->items[i];
        show_progress("%s: warming up %s", title, item->measured.name);
        if (item->measured.refusal == NULL) {
            warm_up(item, tensors, comparison->turn);
            threads_are_busy = item->keeps_threads_busy;
        }
    }
    const double start = now();
    for (size_t round = 0; stop_signal() == 0 && round < MOST_ROUNDS; round++) {
        const double elapsed = now() - start;
        if (elapsed >= seconds && round >= least) {
            break;
        }
        if (peak != NULL && (peak->count < 5 || peak->spent < 0.15 * elapsed)) {
            peak_sample(peak, problem);
        }
        for (size_t turn = 0; turn < comparison->count && stop_signal() == 0; turn++) {
            implementation *item = &comparison->items[(turn + round) % comparison->count];
            if (item->measured.refusal == NULL) {
                show_progress("%s: round %zu, %.0f s of %.0f, %s", title, round + 1, elapsed, seconds,
                              item->measured.name);
                time_turn(item, !pauses ? 0 : threads_are_busy ? OTHERS_PAUSE : OWN_PAUSE);
                threads_are_busy = item->keeps_threads_busy;
            }
        }
        comparison->rounds = round + 1;
    }
    if (peak != NULL) {
        peak_sample(peak, problem);
    }
    summarize(comparison);
    hide_progress();
}
