/* The other libraries that a network is compared with. */
#include "bench/experiments.h"

#include <stdio.h>

static const struct {
    const char *name, *schedule;
} cudnn[] = {{"cuDNN standard", "vendor+graph"},
             {"cuDNN persist static", "vendor(algorithm=1)+graph"},
             {"cuDNN persist dynamic", "vendor(algorithm=2)+graph"},
             {"cuDNN persist static small", "vendor(algorithm=3)+graph"}};

static void comparison_add_onednn(comparison *comparison, const char *name, const problem *problem,
                                  call_tensors *tensors) {
    const long long threads = (long long)problem_threads(problem);
    char schedule[64];
    snprintf(schedule, sizeof schedule, threads > 1 ? "vendor+threads(%lld)" : "vendor", threads);
    comparison_add_plan(comparison, name, problem, problem->net, tensors, tensors->parameters, schedule)
        ->keeps_threads_busy = true;
}

void comparison_add_vendors(comparison *comparison, const problem *problem, call_tensors *tensors) {
    if (!problem_is_gpu(problem)) {
        comparison_add_onednn(comparison, vendor_name(problem), problem, tensors);
        return;
    }
    for (size_t i = 0; i < COUNT(cudnn); i++) {
        implementation *added = comparison_add_plan(comparison, cudnn[i].name, problem, problem->net, tensors,
                                                    tensors->parameters, cudnn[i].schedule);
        added->measured.family = vendor_name(problem);
    }
}

/* In bfloat16 the other libraries are also timed in float32: where memory limits the speed, bfloat16 must be faster than that. */
static void add_on_cpu(comparison *comparison, const bench *bench, call_tensors *tensors) {
    const problem *asked = &bench->problem;
    problem full = *asked;
    full.dtype = RCV_FLOAT32;
    const bool narrow = asked->dtype == RCV_BFLOAT16;
    if (!narrow) {
        comparison_add_openblas(comparison, asked, tensors);
    }
    if (!bench->no_torch) {
        comparison_add_torch(comparison, asked, tensors);
    }
    if (narrow) {
        comparison_add_onednn(comparison, "oneDNN float32", &full, tensors);
        comparison_add_openblas(comparison, &full, tensors);
    }
}

void comparison_add_anchors(comparison *comparison, const bench *bench, call_tensors *tensors) {
    comparison_add_vendors(comparison, &bench->problem, tensors);
    if (!problem_is_gpu(&bench->problem)) {
        add_on_cpu(comparison, bench, tensors);
    } else if (!bench->no_torch) {
        comparison_add_torch(comparison, &bench->problem, tensors);
    }
}
