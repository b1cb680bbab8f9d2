/* Layers of stages, by dynamic programming from the last stage down: first the least time of the slowest stage; then, among splits whose stages
 * take no longer than that, the least sum of squares. (Both criteria in one pass would be wrong: a suffix that is best for itself need not
 * belong to the best split, where an earlier stage is the slowest.) */
#include "train/parallel/pipeline.h"

#include <math.h>

static const double rounding = 1e-12; /* sums whose relative difference is smaller count as equal */

typedef struct {
    const double *layer; /* [layers] */
    double first, last;
    int layers, stages;
    double *best; /* [stages + 1, layers + 1]: of stages s.. that have layers i.. */
    int *count;   /* [stages, layers + 1]: layers of stage s in that */
} split;

static double larger(double stage, double rest) { return fmax(stage, rest); }
static double add_square(double stage, double rest) { return stage * stage + rest; }

/* The number of layers from layer i on that stage s has, if no stage may take longer than `limit`; among equal ones the smallest. */
static void choose(split *p, int s, int i, double limit, double (*join)(double, double)) {
    const size_t width = (size_t)p->layers + 1, at = (size_t)s * width + (size_t)i;
    double seconds = (s == 0 ? p->first : 0) + (s == p->stages - 1 ? p->last : 0);
    p->best[at] = INFINITY;
    for (int count = 1; count <= p->layers - i; count++) {
        seconds += p->layer[i + count - 1];
        if (seconds > limit) break;
        double cost = join(seconds, p->best[at + width + (size_t)count]);
        if (!(cost < p->best[at] * (1 - rounding))) continue;
        p->best[at] = cost;
        p->count[at] = count;
    }
}

static double solve(split *p, double limit, double (*join)(double, double)) {
    const size_t width = (size_t)p->layers + 1;
    for (int i = 0; i <= p->layers; i++) p->best[(size_t)p->stages * width + (size_t)i] = i < p->layers ? INFINITY : 0;
    for (int s = p->stages - 1; s >= 0; s--) {
        for (int i = 0; i <= p->layers; i++) choose(p, s, i, limit, join);
    }
    return p->best[0];
}

static void read_counts(const split *p, int *counts) {
    for (int s = 0, i = 0; s < p->stages; i += counts[s++])
        counts[s] = p->count[(size_t)s * ((size_t)p->layers + 1) + (size_t)i];
}

static rcv_status check(const split *p) {
    if (p->stages < 1 || p->layers < p->stages)
        return rcvi_fail(RCV_INVALID, "%d layers cannot be split into %d stages with a layer each", p->layers,
                         p->stages);
    double sum = p->first + p->last;
    bool costs = p->first >= 0 && p->last >= 0;
    for (int i = 0; i < p->layers; i++) {
        sum += p->layer[i];
        costs = costs && p->layer[i] >= 0;
    }
    if (!costs || !isfinite(sum * sum)) return rcvi_fail(RCV_INVALID, "the cost of a layer is not a number of seconds");
    return RCV_OK;
}

rcv_status rcvi_pipeline_split(rcv_context *context, const double *layer, int layers, double first, double last,
                               int stages, int *counts) {
    split p = {.layer = layer, .layers = layers, .first = first, .last = last, .stages = stages};
    RCVI_TRY(check(&p));
    const size_t places = ((size_t)stages + 1) * ((size_t)layers + 1);
    p.best = rcvi_new(context, places, sizeof *p.best);
    p.count = p.best ? rcvi_new(context, places, sizeof *p.count) : NULL;
    if (p.count) {
        double slowest = solve(&p, INFINITY, larger);
        solve(&p, slowest * (1 + rounding), add_square);
        read_counts(&p, counts);
    }
    rcv_status status = p.count ? RCV_OK : RCV_NO_MEMORY;
    rcvi_free(context, p.count);
    rcvi_free(context, p.best);
    return status;
}
