#define _POSIX_C_SOURCE 200809L /* clock_gettime */

#include "task.h"

#include "initial.h"
#include "random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double seconds_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

void *allocate(size_t count, size_t size) {
    void *memory = calloc(count > 0 ? count : 1, size);
    if (memory == NULL) {
        fprintf(stderr, "memory_task: no memory for %zu x %zu bytes\n", count, size);
        exit(1);
    }
    return memory;
}

/* ---- elements in storage ---- */

static double get(const task *task, const void *values, int64_t index) {
    return task->storage == RCV_FLOAT64 ? ((const double *)values)[index] : (double)((const float *)values)[index];
}

static void put(const task *task, void *values, int64_t index, double value) {
    if (task->storage == RCV_FLOAT64) {
        ((double *)values)[index] = value;
    } else {
        ((float *)values)[index] = (float)value;
    }
}

/* ---- one iteration ---- */

/* Each number drawn gives 64 signs. */
static void draw_sequences(task *task) {
    const int64_t signs = task->options->length * task->options->batch;
    for (int64_t i = 0; i < signs; i += 64) {
        const uint64_t bits = draw_bits(&task->random);
        for (int64_t k = 0; k < 64 && i + k < signs; k++) {
            put(task, task->x, i + k, (bits >> k & 1) != 0 ? 1 : -1);
        }
    }
}

static rcv_status send_inputs(task *task) {
    const size_t signs = (size_t)(task->options->length * task->options->batch);
    for (int64_t i = 0; i < task->network_count; i++) {
        put(task, task->buffer, i, task->parameters[i]);
    }
    const rcv_status status = rcv_memory_write(task->options->device, task->device.parameters, task->buffer,
                                               (size_t)task->network_count * task->size);
    for (int64_t i = 0; i < task->options->batch; i++) {
        task->labels[i] = get(task, task->x, i) > 0;
    }
    return status == RCV_OK ? rcv_memory_write(task->options->device, task->device.x, task->x, signs * task->size)
                            : status;
}

/* The logit of "+1" is w y + b. Replaces y [batch, output] in `buffer` by its gradient, and sets the gradient of w and b. */
static void compute_loss(task *task, outcome *outcome) {
    const double *w = task->parameters + task->network_count, *b = w + task->output;
    double *dw = task->gradient + task->network_count, *db = dw + task->output;
    const double share = 1 / (double)task->options->batch;
    memset(dw, 0, (size_t)(task->output + 1) * sizeof *dw);
    for (int64_t i = 0; i < task->options->batch; i++) {
        const int64_t first = i * task->output;
        double logit = *b;
        for (int64_t k = 0; k < task->output; k++) {
            logit += w[k] * get(task, task->buffer, first + k);
        }
        const double sign = task->labels[i] ? 1 : -1, margin = sign * logit;
        outcome->loss += share * (margin > 0 ? log1p(exp(-margin)) : log1p(exp(margin)) - margin);
        outcome->correct += margin > 0;
        const double dlogit = -share * sign / (1 + exp(margin));
        *db += dlogit;
        for (int64_t k = 0; k < task->output; k++) {
            dw[k] += dlogit * get(task, task->buffer, first + k);
            put(task, task->buffer, first + k, dlogit * w[k]);
        }
    }
}

/* Reads y of the last step, and writes its gradient. */
static rcv_status exchange_output(task *task, outcome *outcome) {
    const size_t bytes = (size_t)(task->options->batch * task->output) * task->size;
    const size_t before = (size_t)(task->options->length - 1) * bytes;
    const rcv_status status =
        rcv_memory_read(task->options->device, task->buffer, (const char *)task->device.y + before, bytes);
    if (status != RCV_OK) {
        return status;
    }
    compute_loss(task, outcome);
    return rcv_memory_write(task->options->device, (char *)task->device.dy + before, task->buffer, bytes);
}

/* Forward and backward pass. A GPU works asynchronously: the next sequences are drawn while it computes the backward pass. */
static rcv_status run_network(task *task, outcome *outcome) {
    const bool is_gpu = strncmp(task->options->device, "cuda", 4) == 0;
    const rcv_forward forward =
        RCV_INIT(rcv_forward, .parameters = task->device.parameters, .x = task->device.x, .y = task->device.y);
    const rcv_backward backward = RCV_INIT(rcv_backward, .dy = task->device.dy, .dparameters = task->device.gradient);
    const double start = seconds_now();
    rcv_status status = rcv_run_forward(task->run, &forward);
    if (status == RCV_OK) {
        status = rcv_run_wait(task->run);
    }
    if (status == RCV_OK) {
        status = exchange_output(task, outcome);
    }
    if (status == RCV_OK) {
        status = rcv_run_backward(task->run, &backward);
    }
    const double enqueued = seconds_now();
    draw_sequences(task);
    const double drawn = seconds_now();
    if (status == RCV_OK) {
        status = rcv_run_wait(task->run);
    }
    outcome->network = seconds_now() - start - (is_gpu ? 0 : drawn - enqueued);
    return status;
}

rcv_status task_iterate(task *task, outcome *result) {
    const double start = seconds_now();
    *result = (outcome){0};
    rcv_status status = send_inputs(task);
    if (status == RCV_OK) {
        status = run_network(task, result);
    }
    if (status == RCV_OK) {
        status = rcv_memory_read(task->options->device, task->buffer, task->device.gradient,
                                 (size_t)task->network_count * task->size);
    }
    if (status != RCV_OK) {
        return status;
    }
    for (int64_t i = 0; i < task->network_count; i++) {
        task->gradient[i] = get(task, task->buffer, i);
    }
    adam_update(&task->adam, task->parameters, task->gradient);
    result->seconds = seconds_now() - start;
    return RCV_OK;
}

/* ---- opening ---- */

static rcv_status open_network(task *task) {
    const options *options = task->options;
    const rcv_context_options context = RCV_INIT(rcv_context_options, .threads = options->threads);
    const rcv_net_options net =
        RCV_INIT(rcv_net_options, .input = 1, .hidden = options->hidden, .layers = options->layers);
    const rcv_plan_options plan = RCV_INIT(rcv_plan_options, .steps = options->length, .batch = options->batch,
                                           .dtype = options->dtype, .training = true, .threads = options->threads,
                                           .device = options->device, .schedule = options->schedule);
    rcv_status status = rcv_context_new(&context, &task->context);
    if (status == RCV_OK) {
        status = rcv_cell_open(task->context, options->cell, &task->cell);
    }
    if (status == RCV_OK) {
        status = rcv_net_new(task->cell, &net, &task->net);
    }
    if (status == RCV_OK) {
        status = rcv_plan_new(task->net, &plan, &task->plan);
    }
    return status == RCV_OK ? rcv_run_new(task->plan, &task->run) : status;
}

static rcv_status initialize(task *task) {
    const rcv_status status = rcv_net_initialize(task->net, task->options->seed, task->storage, task->buffer);
    if (status != RCV_OK) {
        return status;
    }
    for (int64_t i = 0; i < task->network_count; i++) {
        task->parameters[i] = get(task, task->buffer, i);
    }
    const double scale = 1 / sqrt((double)task->output);
    for (int64_t i = 0; i < task->output; i++) {
        task->parameters[task->network_count + i] = draw_uniform(&task->random, -scale, scale);
    }
    set_lasting_values(task->net, rcv_cell_name(task->cell), (initial_values)task->options->initial,
                       task->options->length, task->parameters, &task->random);
    draw_sequences(task);
    return RCV_OK;
}

/* Writes zeros to dy, a buffer at a time. */
static rcv_status clear_dy(const task *task, int64_t elements, int64_t buffered) {
    rcv_status status = RCV_OK;
    for (int64_t i = 0; i < elements && status == RCV_OK; i += buffered) {
        const int64_t some = elements - i < buffered ? elements - i : buffered;
        status = rcv_memory_write(task->options->device, (char *)task->device.dy + (size_t)i * task->size, task->buffer,
                                  (size_t)some * task->size);
    }
    return status;
}

rcv_status task_open(task *task, const options *options) {
    *task = (struct task){.options = options, .random = options->seed};
    rcv_status status = open_network(task);
    if (status != RCV_OK) {
        return status;
    }
    const int64_t signs = options->length * options->batch;
    task->storage = options->dtype == RCV_FLOAT64 ? RCV_FLOAT64 : RCV_FLOAT32;
    task->size = rcv_dtype_bytes(task->storage);
    task->output = rcv_net_output(task->net);
    task->network_count = rcv_net_parameter_elements(task->net);
    task->count = task->network_count + task->output + 1;
    const int64_t row = options->batch * task->output;
    const int64_t buffered = row > task->network_count ? row : task->network_count;
    task->parameters = allocate((size_t)task->count, sizeof(double));
    task->gradient = allocate((size_t)task->count, sizeof(double));
    task->x = allocate((size_t)signs, task->size);
    task->buffer = allocate((size_t)buffered, task->size);
    task->labels = allocate((size_t)options->batch, sizeof *task->labels);
    task->adam = (adam){.rate = options->learning_rate,
                        .clip = options->clip,
                        .count = task->count,
                        .mean = allocate((size_t)task->count, sizeof(double)),
                        .square = allocate((size_t)task->count, sizeof(double))};
    const struct {
        void **memory;
        int64_t elements;
    } blocks[] = {{&task->device.parameters, task->network_count},
                  {&task->device.gradient, task->network_count},
                  {&task->device.x, signs},
                  {&task->device.y, signs * task->output},
                  {&task->device.dy, signs * task->output}};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks && status == RCV_OK; i++) {
        status =
            rcv_memory_new(task->context, options->device, (size_t)blocks[i].elements * task->size, blocks[i].memory);
    }
    if (status == RCV_OK) {
        status = clear_dy(task, signs * task->output, buffered);
    }
    return status == RCV_OK ? initialize(task) : status;
}

void task_close(task *task) {
    void *const on_device[] = {task->device.parameters, task->device.gradient, task->device.x, task->device.y,
                               task->device.dy};
    for (size_t i = 0; i < sizeof on_device / sizeof *on_device; i++) {
        rcv_memory_free(task->context, task->options->device, on_device[i]);
    }
    void *const on_host[] = {task->parameters, task->gradient, task->adam.mean, task->adam.square,
                             task->x,          task->buffer,   task->labels};
    for (size_t i = 0; i < sizeof on_host / sizeof *on_host; i++) {
        free(on_host[i]);
    }
    rcv_run_free(task->run);
    rcv_plan_free(task->plan);
    rcv_net_free(task->net);
    rcv_cell_free(task->cell);
    rcv_context_free(task->context);
}
