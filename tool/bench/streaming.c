/* Streaming: the latency of calls of a few steps, with the state carried from call to call. */
#include "bench/experiments.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALLS = 4000, WARM_CALLS = 200, TURN = 20 }; /* calls; TURN divides CALLS */

typedef struct {
    rcv_plan *plan;
    rcv_run *run;
    const call_tensors *tensors; /* x is read repeatedly */
    void **states[2];            /* [state count]: states before and after a call, swapped at each call */
    size_t state_count;
    void *y;
    int64_t chunk, steps, stride, at; /* steps a call and in x; elements of a step of x; the next step */
    int64_t calls;
} stream;

static rcv_status call(stream *stream) {
    if (stream->at + stream->chunk > stream->steps) {
        stream->at = 0;
    }
    const size_t size = rcv_dtype_bytes(stream->tensors->storage);
    void **before = stream->states[stream->calls % 2], **after = stream->states[(stream->calls + 1) % 2];
    const rcv_forward forward = RCV_INIT(
        rcv_forward, .parameters = stream->tensors->parameters,
        .x = (const char *)stream->tensors->x + (size_t)(stream->at * stream->stride) * size,
        .initial = (const void *const *)before, .final = after, .y = stream->y, .same_parameters = stream->calls > 0);
    stream->at += stream->chunk;
    stream->calls++;
    return rcv_run_forward(stream->run, &forward);
}

static double run(implementation *self, int64_t repeats) {
    const double start = now();
    for (int64_t i = 0; i < repeats; i++) {
        if (call(self->state) != RCV_OK) {
            implementation_refuse(self, "%s", rcv_message());
            return -1;
        }
    }
    return now() - start;
}

static void close_stream(implementation *self) {
    stream *stream = self->state;
    rcv_run_free(stream->run);
    rcv_plan_free(stream->plan);
    for (size_t i = 0; i < stream->state_count; i++) {
        free(stream->states[0][i]);
        free(stream->states[1][i]);
    }
    free(stream->states[0]);
    free(stream->states[1]);
    free(stream->y);
    free(stream);
}

static implementation *add_stream(comparison *comparison, const problem *problem, const call_tensors *tensors,
                                  int64_t chunk) {
    implementation *added = comparison_add(comparison, "stream");
    stream *stream = need(1, sizeof *stream);
    const size_t size = rcv_dtype_bytes(tensors->storage), batch = (size_t)problem->batch;
    added->state = stream;
    added->close = close_stream;
    added->run = run;
    stream->tensors = tensors;
    stream->chunk = chunk;
    stream->steps = problem->steps;
    stream->stride = problem->batch * rcv_net_get_options(problem->net)->input;
    stream->state_count = rcv_net_state_count(problem->net);
    stream->y = need((size_t)(chunk * rcv_net_output(problem->net)) * batch, size);
    for (int side = 0; side < 2; side++) {
        stream->states[side] = need(stream->state_count, sizeof(void *));
        for (size_t i = 0; i < stream->state_count; i++) {
            stream->states[side][i] = need((size_t)rcv_net_state(problem->net, i)->total * batch, size);
        }
    }
    rcv_plan_options options = problem_plan_options(problem, problem->schedule);
    options.steps = chunk;
    rcv_status status = rcv_plan_new(problem->net, &options, &stream->plan);
    if (status == RCV_OK) {
        status = rcv_run_new(stream->plan, &stream->run);
    }
    if (status != RCV_OK) {
        implementation_refuse(added, "%s", rcv_message());
    } else {
        added->measured.plan = text_of("%s", rcv_plan_string(stream->plan));
    }
    return added;
}

/* ---- the same by rcv_stream ---- */

typedef struct {
    rcv_model *model;
    rcv_stream *stream;
    const call_tensors *tensors;
    void *y;
    int64_t chunk, steps, stride, at; /* as above */
} opened;

static double run_opened(implementation *self, int64_t repeats) {
    opened *opened = self->state;
    const size_t size = rcv_dtype_bytes(opened->tensors->storage);
    const double start = now();
    for (int64_t i = 0; i < repeats; i++) {
        if (opened->at + opened->chunk > opened->steps) {
            opened->at = 0;
        }
        const char *x = (const char *)opened->tensors->x + (size_t)(opened->at * opened->stride) * size;
        opened->at += opened->chunk;
        if (rcv_stream_step(opened->stream, x, opened->chunk, opened->y) != RCV_OK) {
            implementation_refuse(self, "%s", rcv_message());
            return -1;
        }
    }
    return now() - start;
}

static void close_opened(implementation *self) {
    opened *opened = self->state;
    rcv_stream_free(opened->stream);
    rcv_model_free(opened->model);
    free(opened->y);
    free(opened);
}

static implementation *add_opened(comparison *comparison, const problem *problem, const call_tensors *tensors,
                                  int64_t chunk) {
    implementation *added = comparison_add(comparison, "rcv_stream");
    opened *opened = need(1, sizeof *opened);
    const size_t size = rcv_dtype_bytes(tensors->storage);
    added->state = opened;
    added->close = close_opened;
    added->run = run_opened;
    opened->tensors = tensors;
    opened->chunk = chunk;
    opened->steps = problem->steps;
    opened->stride = problem->batch * rcv_net_get_options(problem->net)->input;
    opened->y = need((size_t)(chunk * problem->batch * rcv_net_output(problem->net)), size);
    rcv_status status = rcv_model_new(problem->net, tensors->storage, 0, &opened->model);
    if (status == RCV_OK) {
        memcpy(rcv_model_parameters(opened->model), tensors->parameters, (size_t)tensors->parameter_count * size);
        const rcv_stream_options options =
            RCV_INIT(rcv_stream_options, .batch = problem->batch, .most = chunk, .dtype = problem->dtype,
                     .threads = problem->threads, .schedule = problem->schedule, .effort = (rcv_effort)problem->effort);
        status = rcv_stream_new_model(opened->model, &options, &opened->stream);
    }
    if (status != RCV_OK) {
        implementation_refuse(added, "%s", rcv_message());
    } else {
        added->measured.plan = text_of("%s", rcv_plan_string(rcv_stream_plan(opened->stream)));
    }
    return added;
}

static int ascending(const void *left, const void *right) {
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Times every call of a sequence of calls. */
static void measure_latency(implementation *implementation, streaming *streaming) {
    double *latencies = need(CALLS, sizeof(double));
    int64_t calls = 0;
    for (int64_t i = -WARM_CALLS; i < CALLS && stop_signal() == 0; i++) {
        const double start = now();
        if (call(implementation->state) != RCV_OK) {
            break;
        }
        if (i >= 0) {
            latencies[calls++] = now() - start;
        }
        if (i % 1000 == 0) {
            show_progress("streaming: call %lld of %d", (long long)i, CALLS);
        }
    }
    if (calls > 0) {
        qsort(latencies, (size_t)calls, sizeof(double), ascending);
        streaming->calls = calls;
        streaming->p50 = quantile(latencies, (size_t)calls, 0.5);
        streaming->p99 = quantile(latencies, (size_t)calls, 0.99);
        streaming->worst = latencies[calls - 1];
    }
    free(latencies);
}

/* p50 of a call of both streams, which run a few calls each in turns: other load on the machine slows both. */
static void measure_in_turns(implementation *by_hand, implementation *object, streaming *streaming) {
    double *latencies[2] = {need(CALLS, sizeof(double)), need(CALLS, sizeof(double))};
    implementation *const sides[2] = {by_hand, object};
    int64_t calls[2] = {0, 0};
    for (int64_t i = 0; i < 2 * CALLS && object->measured.refusal == NULL && stop_signal() == 0; i++) {
        const int side = (int)(i / TURN % 2);
        const double seconds = sides[side]->run(sides[side], 1);
        if (seconds < 0) {
            break;
        }
        latencies[side][calls[side]++] = seconds;
    }
    if (calls[0] == CALLS && calls[1] == CALLS) {
        streaming->object_p50 = median(latencies[1], CALLS);
        streaming->object_ratio = streaming->object_p50 / median(latencies[0], CALLS);
    }
    free(latencies[0]);
    free(latencies[1]);
}

/* The same plan with the input products computed step by step; NULL if that is the same plan. For free(). */
static char *without_hoisting(const char *plan) {
    const char *steps = plan != NULL ? strstr(plan, "combine(steps=") : NULL;
    const char *end = steps != NULL ? strchr(steps, ')') : NULL;
    return end == NULL ? NULL : text_of("%.*scombine%s", (int)(steps - plan), plan, end + 1);
}

static int64_t threads_of(const char *plan) {
    const char *threads = strstr(plan, "threads(");
    return threads != NULL ? strtoll(threads + strlen("threads("), NULL, 10) : 1;
}

/* Seconds of the products of all input matrices with `rows` rows, on as many threads as the plan has; 0: not known. */
static double input_products(const problem *problem, int64_t rows, const char *plan) {
    double total = 0;
    for (size_t i = 0; i < rcv_net_parameter_count(problem->net); i++) {
        const rcv_parameter *parameter = rcv_net_parameter(problem->net, i);
        if (strncmp(parameter->name, "weight_ih", 9) != 0 || parameter->dims != 2) {
            continue;
        }
        const rcv_gemm_options options =
            RCV_INIT(rcv_gemm_options, .dtype = problem->dtype, .transpose_b = true, .m = rows,
                     .n = parameter->shape[0], .k = parameter->shape[1], .threads = threads_of(plan), .packed_b = true);
        const size_t size = rcv_dtype_bytes(problem_storage(problem));
        void *a = need((size_t)(options.m * options.k), size), *b = need((size_t)(options.n * options.k), size),
             *c = need((size_t)(options.m * options.n), size);
        rcv_gemm *gemm = NULL;
        double seconds[15];
        size_t count = 0;
        if (rcv_gemm_new(problem->context, &options, &gemm) == RCV_OK && rcv_gemm_run(gemm, a, b, c) == RCV_OK) {
            const double once = now();
            rcv_gemm_run(gemm, a, b, c);
            const int repeats = 1 + (int)(1e-3 / (now() - once + 1e-7));
            for (; count < COUNT(seconds); count++) {
                const double start = now();
                for (int j = 0; j < repeats; j++) {
                    rcv_gemm_run(gemm, a, b, c);
                }
                seconds[count] = (now() - start) / repeats;
            }
        }
        rcv_gemm_free(gemm);
        free(a);
        free(b);
        free(c);
        total += median(seconds, count);
    }
    return total;
}

static double step_seconds(const implementation *implementation, int64_t steps) {
    return implementation != NULL && implementation->measured.refusal == NULL
               ? implementation->measured.median / (double)steps
               : 0;
}

void bench_streaming(const bench *bench, results *results) {
    problem problem = bench->problem;
    problem.training = 0;
    streaming *streaming = &results->streaming;
    streaming->done = true;
    streaming->chunk = bench->chunk;
    call_tensors tensors;
    comparison comparison = {.turn = 0.02};
    call_tensors_new(&tensors, &problem, problem.net, bench->seed);
    if (initialize_parameters(bench, problem.net, &tensors) == RCV_OK) {
        implementation *stream = add_stream(&comparison, &problem, &tensors, bench->chunk), *unhoisted = NULL;
        implementation *object = add_opened(&comparison, &problem, &tensors, bench->chunk);
        const implementation *whole = comparison_add_plan(&comparison, "whole sequence", &problem, problem.net,
                                                          &tensors, tensors.parameters, problem.schedule);
        char *pinned = without_hoisting(whole->measured.plan);
        if (pinned != NULL) {
            unhoisted = comparison_add_plan(&comparison, "input products a step", &problem, problem.net, &tensors,
                                            tensors.parameters, pinned);
            streaming->unhoisted_plan = pinned;
        }
        if (stream->measured.refusal != NULL) {
            streaming->refusal = text_of("%s", stream->measured.refusal);
        } else if (stop_signal() != 0) {
            streaming->refusal = text_of("not measured");
        } else {
            streaming->plan = text_of("%s", stream->measured.plan);
            streaming->object_plan = text_of("%s", object->measured.plan != NULL ? object->measured.plan : "");
            streaming->whole_plan = text_of("%s", whole->measured.plan != NULL ? whole->measured.plan : "");
            comparison_measure(&comparison, &problem, NULL, NULL, "streaming", bench->seconds / 2, 5);
            measure_latency(stream, streaming);
            measure_in_turns(stream, object, streaming);
            if (streaming->calls == 0) {
                streaming->refusal = text_of("not measured");
            }
            streaming->step = step_seconds(stream, bench->chunk);
            streaming->object_step = step_seconds(object, bench->chunk);
            streaming->whole_step = step_seconds(whole, problem.steps);
            streaming->unhoisted_step = step_seconds(unhoisted, problem.steps);
        }
        if (streaming->refusal == NULL && stop_signal() == 0) {
            streaming->input_alone =
                input_products(&problem, problem.batch * bench->chunk, streaming->plan) / (double)bench->chunk;
            streaming->input_hoisted =
                input_products(&problem, problem.batch * problem.steps, streaming->whole_plan) / (double)problem.steps;
        }
    }
    hide_progress();
    comparison_free(&comparison);
    call_tensors_free(&tensors);
}
