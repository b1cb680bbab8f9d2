/* Whom a network is measured against. */
#include "bench/bench.h"

#include <stdio.h>

static const struct {
    const char *name, *schedule;
} cudnn[] = {{"cuDNN standard", "vendor+graph"},
             {"cuDNN persist static", "vendor(algorithm=1)+graph"},
             {"cuDNN persist dynamic", "vendor(algorithm=2)+graph"},
             {"cuDNN persist static small", "vendor(algorithm=3)+graph"}};

const char *vendor_name(const problem *problem) { return problem_is_gpu(problem) ? "cuDNN" : "oneDNN"; }

static void add_onednn(contest *contest, const char *name, const problem *problem, data *data) {
    const long long threads = (long long)problem_threads(problem);
    char schedule[64];
    snprintf(schedule, sizeof schedule, threads > 1 ? "vendor+threads(%lld)" : "vendor", threads);
    add_plan(contest, name, problem, problem->net, data, data->parameters, schedule)->lingers = true;
}

void add_vendors(contest *contest, const problem *problem, data *data) {
    if (!problem_is_gpu(problem)) {
        add_onednn(contest, vendor_name(problem), problem, data);
        return;
    }
    for (size_t i = 0; i < COUNT(cudnn); i++) {
        contestant *added =
            add_plan(contest, cudnn[i].name, problem, problem->net, data, data->parameters, cudnn[i].schedule);
        added->family = vendor_name(problem);
    }
}

/* bfloat16 also meets the others' float32: where bytes are the time, that is what it must beat. */
static void add_on_cpu(contest *contest, const bench *bench, data *data) {
    const problem *asked = &bench->problem;
    problem full = *asked;
    full.dtype = RCV_FLOAT32;
    const bool narrow = asked->dtype == RCV_BFLOAT16;
    if (!narrow) {
        add_openblas(contest, asked, data);
    }
    if (!bench->no_torch) {
        add_torch(contest, asked, data);
    }
    if (narrow) {
        add_onednn(contest, "oneDNN float32", &full, data);
        add_openblas(contest, &full, data);
    }
}

void add_anchors(contest *contest, const bench *bench, data *data) {
    add_vendors(contest, &bench->problem, data);
    if (!problem_is_gpu(&bench->problem)) {
        add_on_cpu(contest, bench, data);
    } else if (!bench->no_torch) {
        add_torch(contest, &bench->problem, data);
    }
}

const contestant *contest_speaker(const contest *contest, size_t index) {
    const contestant *best = &contest->items[index];
    if (best->family == NULL) {
        return best;
    }
    for (size_t i = 0; i < contest->count; i++) {
        const contestant *item = &contest->items[i];
        if (item->family != best->family) {
            continue;
        }
        if (i < index) {
            return NULL;
        }
        best = item->median > 0 && (best->median <= 0 || item->median < best->median) ? item : best;
    }
    return best;
}
