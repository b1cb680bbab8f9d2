/* Programs as they are written for a GPU, on a machine that need not have one: shared by tests of what the device `cuda` makes
 * of them. */
#ifndef RECURVE_CUDA_PROGRAMS_H
#define RECURVE_CUDA_PROGRAMS_H

#include "planned.h"
#include "sample.h"
#include "schedule/schedule.h"

static const char *const gpu_plans[] = {
    "naive",
    "combine+fuse",
    "combine+fuse+pack",
    "combine(steps=3)+fuse",
    "combine(steps=3)+fuse+pack",
    "combine(steps=3,forward=1)+fuse+pack",
    "combine(steps=all)+fuse",
    "combine(steps=all)+fuse+pack",
    "combine(steps=3)+fuse+pack+recompute(every=3)",
    "combine+fuse+wavefront",
    "combine+fuse+pack+merge",
    "combine(steps=all)+fuse+pack+merge",
    "combine+fuse+pack+wavefront+merge",
    "combine(steps=3)+fuse+pack+wavefront+merge",
    "combine+fuse+pack+wavefront+merge+streams(4)",
    "combine(steps=all,forward=1)+fuse+pack+wavefront(forward)+merge",
    "naive+interpret",
    "combine+fuse+interpret",
    "combine(steps=all)+fuse+interpret",
    "combine+fuse+wavefront+merge+interpret",
    "naive+graph",
    "combine+fuse+pack+graph",
    "combine+fuse+pack+wavefront+merge+graph",
    "combine(steps=3)+fuse+pack+wavefront+merge+graph",
};

static const config gpu_configs[] = {
    {"lstm", {.input = 4, .hidden = 4, .layers = 3}, 7, 5, true, false, true},
    {"lstm", {.input = 3, .hidden = 4, .layers = 2, .bidirectional = true}, 7, 5, true, true, true},
    {"gru", {.input = 4, .hidden = 4, .layers = 3}, 7, 4, true, true, false},
    {"gru", {.input = 4, .hidden = 4, .layers = 2, .bidirectional = true, .dropout = 0.5}, 6, 4, true, false, true},
    {"gru", {.input = 4, .hidden = 4, .layers = 2, .dropout = 0.5, .variational = true}, 6, 4, true, false, true},
    {"lstm", {.input = 4, .hidden = 4, .layers = 2, .zoneout = 0.3}, 6, 4, true, false, true},
    {"sru", {.input = 4, .hidden = 4, .layers = 2, .zoneout = 0.3}, 6, 4, true, false, true},
    {"lstm_layernorm", {.input = 4, .hidden = 4, .layers = 3}, 7, 4, true, false, true},
    {"lstm_layernorm", {.input = 5, .hidden = 4, .layers = 1, .bidirectional = true}, 5, 4, true, false, false},
    {"rnn_tanh", {.input = 4, .hidden = 4, .layers = 2, .rank = 2}, 7, 4, true, false, true},
    {"slstm", {.input = 4, .hidden = 4, .layers = 2}, 7, 4, true, true, true},
    {RCV_SOURCE_DIR "/tests/support/cells/quotient.cell",
     {.input = 5, .hidden = 4, .layers = 2},
     7,
     4,
     true,
     false,
     true},
    {"qrnn_fo_w2", {.input = 4, .hidden = 4, .layers = 2}, 7, 4, true, false, true},
    {RCV_SOURCE_DIR "/tests/support/cells/constants.cell",
     {.input = 5, .hidden = 4, .layers = 2},
     7,
     4,
     true,
     true,
     true},
};
enum { GPU_PLANS = sizeof gpu_plans / sizeof *gpu_plans, GPU_CONFIGS = sizeof gpu_configs / sizeof *gpu_configs };

/* Multiply-adds from which on the GPU's library is asked for a product outside of loops; 0: never. */
static int64_t gpu_alone;

/* The program of these options' schedule as for a GPU; false where it is not for this network. */
static inline bool write_with(const rcv_net *net, const rcv_plan_options *options, rcvi_program *program) {
    rcvi_machine machine = {.threads = 1,
                            .panel = 1,
                            .grain = 1,
                            .group = 8,
                            .kernels = "fake_90",
                            .gpu = true,
                            .max_sum_columns = 1024,
                            .min_library_product = gpu_alone,
                            .gemm_writes_activations = true};
    rcvi_rungs rungs;
    check_ok(rcvi_rungs_read(options->schedule, &rungs));
    const rcvi_schedule *schedule = rcvi_schedule_for(&rungs);
    if (schedule->applies(net, options, &rungs, &machine)) return false;
    rcvi_program_init(program, net, options, &rungs, &machine);
    schedule->write(program);
    rcvi_program_convert(program);
    assert_false(program->failed);
    rcvi_program_narrow(program);
    check_ok(rcvi_program_lay_out(program));
    check_ok(rcvi_program_verify(program));
    return true;
}

static inline bool write_program(const problem *p, bool training, const char *plan, rcvi_program *program) {
    rcv_plan_options options = options_of(p, RCV_FLOAT32, training, plan);
    return write_with(p->net, &options, program);
}

/* Calls `check` for every program that there is (of a part: sample.h), with and without a library where it matters, a third of them with
 * separate parameters, a third with parameters or gradients in types of their own; answers how many. */
static inline size_t each_program(size_t (*check)(const problem *p, const rcvi_program *program)) {
    size_t counted = 0, index = 0;
    for (int i = 0; i < GPU_CONFIGS * GPU_PLANS * 8; i++) {
        config c = gpu_configs[i / (GPU_PLANS * 8)];
        const char *plan = gpu_plans[i / 8 % GPU_PLANS];
        c.lengths = i & 2;
        gpu_alone = i / 4 % 2;
        if (gpu_alone && !(strstr(plan, "steps=all") && strstr(plan, "pack"))) continue;
        if (!sample_takes(index++)) continue;
        problem p;
        rcvi_program program;
        open_problem(&p, &c, 1);
        p.separate = i % 3 == 2;
        if (i % 5 < 2) p.parameter_type = (rcv_array_type)(i / 5 % (RCV_AS_BFLOAT16 + 1));
        if (i % 5 < 2) p.gradient_type = (rcv_array_type)(i / 25 % (RCV_AS_BFLOAT16 + 1));
        if (write_program(&p, i & 1, plan, &program)) {
            counted += check(&p, &program);
            rcvi_program_free(&program);
        }
        close_problem(&p);
    }
    gpu_alone = 0;
    return counted;
}

#endif
