/* The measuring: everybody's turn in every round, so that a slow moment of the machine is everybody's. */
#include "bench/contest.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const double SHORTEST = 2e-3; /* seconds a turn takes at least, for the clock to resolve */
static const double PAUSE = 0.03;    /* seconds until another library's threads go to sleep */
static const double REST = 0.0005;   /* the same for ours */

enum { MOST_ROUNDS = 5000 };
enum { LEAST_ENQUEUED = 3 };     /* calls of a turn on a GPU: while one runs, the next is launched */
static const double LONG = 0.25; /* seconds of a call beside which a launch does not count */

/* ---- the list ---- */

contestant *contest_add(contest *contest, const char *name) {
    if (contest->count == MAXIMUM_CONTESTANTS) {
        say("more than %d contestants in one run", MAXIMUM_CONTESTANTS);
        exit(EXIT_FAILED);
    }
    contestant *added = &contest->items[contest->count++];
    *added = (contestant){.name = text_of("%s", name), .difference = NAN, .repeats = 1};
    return added;
}

void contestant_refuse(contestant *contestant, const char *format, ...) {
    char sentence[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    free(contestant->refusal);
    contestant->refusal = text_of("%s", sentence);
}

static void close_item(contestant *item) {
    if (item->close != NULL) {
        item->close(item);
    }
    item->close = NULL;
    item->state = NULL;
}

void contest_close(contest *contest) {
    for (size_t i = 0; i < contest->count; i++) {
        close_item(&contest->items[i]);
    }
}

void contest_drop(contest *contest) {
    contestant *item = &contest->items[--contest->count];
    close_item(item);
    free(item->name);
    free(item->plan);
    free(item->refusal);
    free(item->note);
    free(item->samples);
}

void contest_free(contest *contest) {
    while (contest->count > 0) {
        contest_drop(contest);
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

static void add_sample(contestant *contestant, double seconds) {
    if ((contestant->sample_count & (contestant->sample_count - 1)) == 0) { /* room for a power of two */
        const size_t room = contestant->sample_count == 0 ? 1 : 2 * contestant->sample_count;
        double *samples = need(room, sizeof(double));
        if (contestant->sample_count > 0) {
            memcpy(samples, contestant->samples, contestant->sample_count * sizeof(double));
        }
        free(contestant->samples);
        contestant->samples = samples;
    }
    contestant->samples[contestant->sample_count++] = seconds;
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

/* The first contestant's results are kept, the others' compared with them. */
static void compare(contestant *contestant, data *data) {
    const size_t size = rcv_dtype_bytes(data->storage);
    if (contestant->fetch != NULL && !contestant->fetch(contestant)) {
        return;
    }
    if (!data->first_is_known) {
        memcpy(data->y_first, data->y, (size_t)data->y_count * size);
        if (data->training) {
            memcpy(data->dparameters_first, data->dparameters, (size_t)data->parameter_count * size);
        }
        data->first_is_known = true;
        return;
    }
    contestant->difference = relative_difference(data->storage, data->y, data->y_first, data->y_count);
    if (data->training && contestant->gradients_compare) {
        contestant->difference =
            fmax(contestant->difference,
                 relative_difference(data->storage, data->dparameters, data->dparameters_first, data->parameter_count));
    }
}

static int64_t repeats_for(const contestant *contestant, double turn, double seconds) {
    const double least = contestant->enqueues && seconds < LONG ? LEAST_ENQUEUED : 1;
    return (int64_t)fmin(fmax(ceil(fmax(turn, SHORTEST) / fmax(seconds, 1e-7)), least), 20000);
}

/* Seconds of a call: the first ones also compile and capture, and one alone also waits. */
static double time_enqueued(contestant *contestant, double turn) {
    double seconds = contestant->run(contestant, 2);
    if (seconds >= 0) {
        seconds = contestant->run(contestant, 1);
    }
    if (seconds < 0 || seconds >= LONG) {
        return seconds;
    }
    const int64_t repeats = repeats_for(contestant, turn, seconds);
    return contestant->run(contestant, repeats) / (double)repeats;
}

/* Twice where the first time was short: it also touched the memory. */
static void warm_up(contestant *contestant, data *data, double turn) {
    if (data != NULL && data_poison(data) != RCV_OK) {
        contestant_refuse(contestant, "%s", rcv_message());
        return;
    }
    double seconds = contestant->run(contestant, 1);
    if (seconds >= 0 && data != NULL) {
        compare(contestant, data);
    }
    if (contestant->refusal != NULL) {
        return;
    }
    if (seconds >= 0 && contestant->enqueues) {
        seconds = time_enqueued(contestant, turn);
    } else if (seconds >= 0 && seconds < 0.1) {
        seconds = contestant->run(contestant, 1);
    }
    if (seconds >= 0) {
        contestant->repeats = repeats_for(contestant, turn, seconds);
    }
}

static void pause_for(double seconds) {
    const struct timespec time = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - floor(seconds)) * 1e9)};
    nanosleep(&time, NULL);
}

/* The threads of whoever came before are left to sleep; then caches and threads are warmed again. */
static void take_turn(contestant *contestant, double pause) {
    pause_for(pause);
    if (contestant->repeats > 1 && contestant->run(contestant, 1 + contestant->repeats / 8) < 0) {
        return;
    }
    const double seconds = contestant->run(contestant, contestant->repeats);
    if (seconds >= 0) {
        add_sample(contestant, seconds / (double)contestant->repeats);
    }
}

static void summarize(contest *contest) {
    const contestant *first = &contest->items[0];
    for (size_t i = 0; i < contest->count; i++) {
        contestant *item = &contest->items[i];
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

void contest_measure(contest *contest, const problem *problem, data *data, peak *peak, const char *title,
                     double seconds, size_t least) {
    const bool rests = !problem_is_gpu(problem) && problem_threads(problem) > 1;
    bool lingering = false;
    for (size_t i = 0; i < contest->count && stop_signal() == 0; i++) {
        show_progress("%s: warming up %s", title, contest->items[i].name);
        if (contest->items[i].refusal == NULL) {
            warm_up(&contest->items[i], data, contest->turn);
            lingering = contest->items[i].lingers;
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
        for (size_t turn = 0; turn < contest->count && stop_signal() == 0; turn++) {
            contestant *item = &contest->items[(turn + round) % contest->count];
            if (item->refusal == NULL) {
                show_progress("%s: round %zu, %.0f s of %.0f, %s", title, round + 1, elapsed, seconds, item->name);
                take_turn(item, !rests ? 0 : lingering ? PAUSE : REST);
                lingering = item->lingers;
            }
        }
        contest->rounds = round + 1;
    }
    if (peak != NULL) {
        peak_sample(peak, problem);
    }
    summarize(contest);
    hide_progress();
}
