/* What tests of persistent kernels share: a network's program, and an engine that knows a GPU by its numbers alone. */
#ifndef PERSISTENT_SUBJECT_H
#define PERSISTENT_SUBJECT_H

#include "cuda_programs.h"
#include "device/cuda/persistent/internal.h"

enum { PROCESSORS = 132, SHARED = 232448, CHUNK_BYTES = 128, WEIGHT_ROWS = 64 };

typedef struct {
    test_allocator allocator;
    rcv_context *context;
    rcv_cell *cell;
    rcv_net *net;
    rcvi_program program;
    rcvi_engine engine;
} subject;

/* On a GPU with this number of processors and bytes of shared memory a block. */
static rcv_array_type subject_data, subject_parameters, subject_gradients; /* that the next subjects declare */

static inline void open_subject_on(subject *s, const config *c, rcv_dtype dtype, bool training, const char *plan,
                                   int processors, int shared) {
    static const rcv_size proj[] = {{"proj", 24}};
    rcv_plan_options options = RCV_INIT(rcv_plan_options, .steps = c->steps, .batch = c->batch, .lengths = c->lengths,
                                        .resets = c->resets, .schedule = plan);
    rcv_net_options net = c->net;
    net.size = sizeof net;
    options.dtype = dtype;
    options.training = training;
    options.data = subject_data;
    options.parameters = subject_parameters;
    options.gradients = subject_gradients;
    if (!strcmp(c->cell, "lstm_proj")) net.sizes = proj, net.size_count = 1;
    memset(s, 0, sizeof *s);
    s->context = test_context(&s->allocator);
    check_ok(rcv_cell_open(s->context, c->cell, &s->cell));
    check_ok(rcv_net_new(s->cell, &net, &s->net));
    assert_true(write_with(s->net, &options, &s->program));
    s->engine = (rcvi_engine){
        .program = &s->program, .context = s->context, .major = 9, .processors = processors, .shared = shared};
    rcvi_pool_init(&s->engine.pool, s->context);
    check_ok(rcvi_cuda_find_layout(&s->engine));
}

static inline void open_subject(subject *s, const config *c, rcv_dtype dtype, bool training, const char *plan) {
    open_subject_on(s, c, dtype, training, plan, PROCESSORS, SHARED);
}

static inline void close_subject(subject *s) {
    rcvi_pool_free(&s->engine.pool);
    rcvi_program_free(&s->program);
    rcv_net_free(s->net);
    rcv_cell_free(s->cell);
    test_context_end(&s->allocator, s->context);
}

/* Finds the next loop from this step on that is to be one kernel; false if there is none. */
static inline bool next_loop(const subject *s, size_t *loop) {
    while (*loop < s->program.step_count && !rcvi_program_is_persistent(s->engine.program, *loop)) ++*loop;
    return *loop < s->program.step_count;
}

static const char by_step[] = "combine+fuse+pack+persistent+graph";
static const char at_once[] = "combine(steps=all)+fuse+pack+persistent+graph";
static const char by_wave[] = "combine+fuse+pack+wavefront+merge+persistent+graph";
static const char by_two[] = "combine+fuse+pack+wavefront+merge+persistent(parts=2)+graph";
static const char forward_wave[] = "combine(steps=all,forward=1)+fuse+pack+wavefront(forward)+merge+persistent+graph";
static const char mixed[] = "combine(steps=all,forward=1)+fuse+pack+merge+persistent+graph";
static const char exactly[] = "combine+fuse+pack+persistent(parts=1)+graph";
static const char in_clusters[] = "combine(steps=all)+fuse+pack+merge+persistent+cluster+graph";
static const config deep = {"lstm", {.input = 40, .hidden = 40, .layers = 3}, 7, 20, false, false, true};

#endif
