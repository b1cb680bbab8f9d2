/* Trains a recurrent network to remember: it reads random signs, and names the first one at the end of the sequence. The whole program
 * uses recurve.h alone:
 *
 *   cc *.c $(pkg-config --cflags --libs recurve) -lm -o memory_task
 *   ./memory_task --length 4096
 */
#define _POSIX_C_SOURCE 200809L /* sigaction */

#include "task.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The task is learnt when this many minibatches in a row, and this many sequences in a row, are correct. Guessing reaches that once in
 * 2^40 times. */
enum { CORRECT_MINIBATCHES = 5, CORRECT_SEQUENCES = 40 };

static volatile sig_atomic_t interrupted;

static void on_interrupt(int number) {
    (void)number;
    interrupted = 1;
}

typedef struct {
    outcome *outcomes; /* [count] */
    int64_t count, capacity, in_a_row;
    double seconds; /* since the first iteration began */
    bool is_learnt;
} history;

static void add_outcome(history *history, const outcome *outcome, int64_t batch) {
    if (history->count == history->capacity) {
        history->capacity = history->capacity * 2 + 64;
        history->outcomes = realloc(history->outcomes, (size_t)history->capacity * sizeof *outcome);
        if (history->outcomes == NULL) {
            fprintf(stderr, "memory_task: no memory for %lld iterations\n", (long long)history->capacity);
            exit(1);
        }
    }
    history->outcomes[history->count++] = *outcome;
    history->in_a_row = outcome->correct == batch ? history->in_a_row + 1 : 0;
    history->is_learnt = history->in_a_row >= CORRECT_MINIBATCHES && history->in_a_row * batch >= CORRECT_SEQUENCES;
}

static void print_progress(const history *history, int64_t batch) {
    const outcome *last = &history->outcomes[history->count - 1];
    fprintf(stderr, "iteration %lld  loss %.4f nats  %lld of %lld correct  %.1f ms  %.1f s\n",
            (long long)history->count, last->loss, (long long)last->correct, (long long)batch, last->seconds * 1e3,
            history->seconds);
}

/* Until the task is learnt, a limit is reached, the loss is not a number, or Ctrl-C. */
static rcv_status train(task *task, history *history) {
    const options *options = task->options;
    const double start = seconds_now();
    double shown = 0;
    rcv_status status = RCV_OK;
    bool is_finite = true;
    while (status == RCV_OK && is_finite && !history->is_learnt && !interrupted &&
           (options->iterations == 0 || history->count < options->iterations) &&
           (options->seconds <= 0 || seconds_now() - start < options->seconds)) {
        outcome outcome;
        status = task_iterate(task, &outcome);
        if (status != RCV_OK) {
            break;
        }
        add_outcome(history, &outcome, options->batch);
        history->seconds = seconds_now() - start;
        is_finite = isfinite(outcome.loss);
        if (history->count == 1 || history->seconds - shown >= 5) {
            print_progress(history, options->batch);
            shown = history->seconds;
        }
    }
    if (history->count > 1 && history->seconds > shown) {
        print_progress(history, options->batch);
    }
    return status;
}

/* ---- results ---- */

static int ascending(const void *left, const void *right) {
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

static double median(const history *history, bool network) {
    double *values = allocate((size_t)history->count, sizeof(double));
    for (int64_t i = 0; i < history->count; i++) {
        values[i] = network ? history->outcomes[i].network : history->outcomes[i].seconds;
    }
    qsort(values, (size_t)history->count, sizeof(double), ascending);
    const double middle = (values[(history->count - 1) / 2] + values[history->count / 2]) / 2;
    free(values);
    return middle;
}

static void print_result(const task *task, const history *history) {
    printf("Plan:       %s\n", rcv_plan_string(task->plan));
    printf("Memory:     %zu bytes\n", rcv_plan_bytes(task->plan));
    printf("Learnt:     %s\n", history->is_learnt ? "yes" : "no");
    printf("Iterations: %lld\n", (long long)history->count);
    printf("Seconds:    %.3f\n", history->seconds);
    printf("Iteration:  %.3f ms (median), of which the network takes %.3f ms\n", median(history, false) * 1e3,
           median(history, true) * 1e3);
    fflush(stdout);
}

/* A JSON string: quotes and backslashes are escaped, control characters are left out. */
static void put_string(FILE *file, const char *text) {
    fputc('"', file);
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\') {
            fputc('\\', file);
        }
        if ((unsigned char)*text >= ' ') {
            fputc(*text, file);
        }
    }
    fputc('"', file);
}

static bool write_json(const task *task, const history *history, int argc, char **argv) {
    const options *options = task->options;
    FILE *file = fopen(options->json, "w");
    if (file == NULL) {
        fprintf(stderr, "memory_task: cannot write %s\n", options->json);
        return false;
    }
    char *device = NULL;
    if (rcv_device_describe(task->context, options->device, &device) != RCV_OK) {
        device = NULL;
    }
    fprintf(file, "{\n \"command\": \"memory_task");
    for (int i = 1; i < argc; i++) {
        fputc(' ', file);
        for (const char *at = argv[i]; *at != '\0'; at++) {
            fputc(strchr("\"\\", *at) != NULL || (unsigned char)*at < ' ' ? '?' : *at, file);
        }
    }
    fprintf(file, "\",\n \"version\": \"%s\",\n \"machine\": ", rcv_version());
    put_string(file, device != NULL ? device : options->device);
    fprintf(file, ",\n \"problem\": {\"cell\": \"%s\", \"steps\": %lld, \"batch\": %lld, \"hidden\": %lld, ",
            rcv_cell_name(task->cell), (long long)options->length, (long long)options->batch,
            (long long)options->hidden);
    fprintf(file, "\"layers\": %lld, \"dtype\": \"%s\", \"device\": ", (long long)options->layers,
            rcv_dtype_name(options->dtype));
    put_string(file, options->device);
    fprintf(file, "},\n \"plan\": \"%s\",\n \"planning_seconds\": %.9g,\n", rcv_plan_string(task->plan),
            rcv_plan_seconds(task->plan));
    fprintf(file, " \"learning_rate\": %.9g,\n \"clip\": %.9g,\n \"initial\": \"%s\",\n \"seed\": %llu,\n",
            options->learning_rate, options->clip, initial_names[options->initial], (unsigned long long)options->seed);
    fprintf(file, " \"learnt\": %s,\n \"iterations\": %lld,\n \"seconds\": %.9g,\n",
            history->is_learnt ? "true" : "false", (long long)history->count, history->seconds);
    fprintf(file, " \"iteration_seconds\": %.9g,\n \"network_seconds\": %.9g,\n \"bytes\": %zu,\n \"losses\": [",
            median(history, false), median(history, true), rcv_plan_bytes(task->plan));
    for (int64_t i = 0; i < history->count; i++) {
        const double loss = history->outcomes[i].loss;
        fprintf(file, isfinite(loss) ? "%s%.9g" : "%snull", i > 0 ? ", " : "", loss);
    }
    fprintf(file, "],\n \"right\": [");
    for (int64_t i = 0; i < history->count; i++) {
        fprintf(file, "%s%lld", i > 0 ? ", " : "", (long long)history->outcomes[i].correct);
    }
    fprintf(file, "]\n}\n");
    if (device != NULL) {
        rcv_text_free(task->context, device);
    }
    const bool is_written = !ferror(file);
    if (fclose(file) != 0 || !is_written) {
        fprintf(stderr, "memory_task: cannot write all of %s\n", options->json);
        return false;
    }
    return true;
}

/* The exit status, after saying why the task is not learnt. */
static int conclude(const history *history) {
    if (history->is_learnt) {
        return 0;
    }
    if (interrupted) {
        fprintf(stderr, "memory_task: stopped after %lld iterations, before the task was learnt\n",
                (long long)history->count);
        return 128 + SIGINT;
    }
    if (history->count > 0 && !isfinite(history->outcomes[history->count - 1].loss)) {
        fprintf(stderr, "memory_task: the loss of iteration %lld is not finite; try a lower --learning-rate\n",
                (long long)history->count);
    } else {
        fprintf(stderr, "memory_task: not learnt within %lld iterations and %.1f s\n", (long long)history->count,
                history->seconds);
    }
    return 1;
}

int main(int argc, char **argv) {
    options options;
    const parsed parsed = parse_options(&options, argc, argv);
    if (parsed != PARSED) {
        return parsed == PARSED_HELP ? 0 : 2;
    }
    struct sigaction action = {.sa_handler = on_interrupt};
    action.sa_flags = (int)SA_RESETHAND; /* a second Ctrl-C ends the program at once */
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);

    task task;
    history history = {0};
    rcv_status status = task_open(&task, &options);
    if (status == RCV_OK) {
        status = train(&task, &history);
    }
    int result = 1;
    if (status != RCV_OK) {
        fprintf(stderr, "memory_task: %s\n", rcv_message());
    } else {
        result = conclude(&history);
    }
    if (status == RCV_OK && history.count > 0) {
        print_result(&task, &history);
        if (options.json != NULL && !write_json(&task, &history, argc, argv)) {
            result = 1;
        }
    }
    free(history.outcomes);
    task_close(&task);
    return result;
}
