/* Choice of the lengths that sequences are padded to. The cost of a bucket depends on its bound, on its number of sequences and on the number of longer
 * sequences, but not on the other bounds. So dynamic programming over the distinct lengths finds the best K bounds; greedy merging of
 * neighbours finds good ones. */
#include "data/batches/batcher.h"

#include <math.h>

/* A group of neighbouring lengths. total: sequences of all groups up to this one; bound: its longest length; unit: cost of a batch of that length or, without a
 * cost function, of a sequence. */
typedef struct {
    int64_t total, bound;
    int64_t batch; /* sequences per batch; 0: `unit` is per sequence */
    double unit;
} group;

typedef struct {
    group *groups; /* [count + 1]; groups[0] is empty */
    size_t count;
    bool fills; /* rows that longer sequences leave empty are filled by this bucket; all batches have the same size */
} grouping;

/* Cost of a bucket with so many sequences. `longer` sequences are in other buckets; their last batch contains some sequences of this one. */
static double bucket_cost(int64_t sequences, int64_t longer, int64_t batch, double unit) {
    if (batch == 0) return (double)sequences * unit;
    return (double)(rcvi_bucket_batches(longer + sequences, batch) - rcvi_bucket_batches(longer, batch)) * unit;
}

/* Cost of a bucket with the groups from + 1 .. to. */
static double cost_of(const grouping *g, size_t from, size_t to) {
    const group *last = &g->groups[to];
    int64_t longer = g->fills ? g->groups[g->count].total - last->total : 0;
    return bucket_cost(last->total - g->groups[from].total, longer, last->batch, last->unit);
}

static group make_group(const rcvi_bucket_options *options, int64_t bound, int64_t total) {
    group made = {.total = total, .bound = bound, .unit = (double)bound};
    if (!options->cost) return made;
    made.batch = rcvi_bucket_batch(options->batch, options->tokens, bound);
    made.unit = options->cost(options->user, bound, made.batch);
    return made;
}

static rcv_status check_options(const rcvi_histogram *histogram, const rcvi_bucket_options *options) {
    if (options->most < 1 || options->most > RCV_MOST_BUCKETS)
        return rcvi_fail(RCV_INVALID, "%zu buckets are not 1 to %d", options->most, RCV_MOST_BUCKETS);
    if (options->cost && (options->batch < 0 || options->tokens < 0 || (options->batch == 0 && options->tokens == 0)))
        return rcvi_fail(RCV_INVALID, "a cost of batches needs to know how many sequences or tokens a batch has");
    if (histogram->sequences < 1) return rcvi_fail(RCV_INVALID, "there are no sequences to put into buckets");
    return RCV_OK;
}

static rcv_status group_lengths(rcv_context *context, const rcvi_histogram *histogram,
                                const rcvi_bucket_options *options, grouping *g) {
    *g = (grouping){.fills = options->tokens == 0};
    RCVI_TRY(check_options(histogram, options));
    int64_t different = 0, seen = 0, total = 0;
    for (int64_t i = 1; i <= histogram->longest; i++) different += histogram->counts[i] > 0;
    int64_t count = different < RCVI_BUCKET_GROUPS ? different : RCVI_BUCKET_GROUPS;
    if (count < 1) return rcvi_fail(RCV_INVALID, "there are no sequences to put into buckets");
    g->groups = rcvi_new(context, (size_t)count + 1, sizeof *g->groups);
    if (!g->groups) return RCV_NO_MEMORY;
    /* Group k ends with distinct length number k * n / count, of n. */
    for (int64_t i = 1; i <= histogram->longest; i++) {
        if (histogram->counts[i] == 0) continue;
        total += histogram->counts[i];
        if (++seen == ((int64_t)g->count + 1) * different / count)
            g->groups[++g->count] = make_group(options, i, total);
    }
    return RCV_OK;
}

/* ---- greedy ---- */

/* Finds the bucket whose merge with the next one adds the least cost. ends[0 .. count]: the last groups of buckets; ends[0] is 0. */
static size_t cheapest_merge(const grouping *g, const size_t *ends, size_t count, double *more) {
    size_t best = 1;
    *more = INFINITY;
    for (size_t i = 1; i < count; i++) {
        double separate = cost_of(g, ends[i - 1], ends[i]) + cost_of(g, ends[i], ends[i + 1]);
        double change = cost_of(g, ends[i - 1], ends[i + 1]) - separate;
        if (change < *more) {
            *more = change;
            best = i;
        }
    }
    return best;
}

rcv_status rcvi_buckets_greedy(rcv_context *context, const rcvi_histogram *histogram,
                               const rcvi_bucket_options *options, int64_t *bounds, size_t *count) {
    grouping g;
    RCVI_TRY(group_lengths(context, histogram, options, &g));
    size_t left = g.count, *ends = rcvi_new(context, g.count + 1, sizeof *ends);
    if (!ends) {
        rcvi_free(context, g.groups);
        return RCV_NO_MEMORY;
    }
    for (size_t i = 0; i <= g.count; i++) ends[i] = i;
    while (left > 1) {
        double more;
        size_t merged = cheapest_merge(&g, ends, left, &more);
        if (left <= options->most && !(more < 0)) break;
        for (size_t i = merged; i < left; i++) ends[i] = ends[i + 1];
        left--;
    }
    for (size_t i = 0; i < left; i++) bounds[i] = g.groups[ends[i + 1]].bound;
    *count = left;
    rcvi_free(context, ends);
    rcvi_free(context, g.groups);
    return RCV_OK;
}

/* ---- the optimum ---- */

/* best[j][k]: least cost of groups 1 .. j in at most k buckets; from[j][k]: the last group before the last of these buckets. Both are
 * [groups + 1, most + 1]. best[0][k] is 0; best[j][0] is infinite. */
static void find_best(const grouping *g, size_t most, double *best, uint16_t *from) {
    const size_t width = most + 1;
    for (size_t j = 1; j <= g->count; j++) {
        double *row = best + j * width;
        for (size_t k = 0; k <= most; k++) row[k] = INFINITY;
        for (size_t i = 0; i < j; i++) {
            const double cost = cost_of(g, i, j), *before = best + i * width;
            for (size_t k = 1; k <= most; k++) {
                if (!(before[k - 1] + cost < row[k])) continue;
                row[k] = before[k - 1] + cost;
                from[j * width + k] = (uint16_t)i;
            }
        }
    }
}

static void trace_bounds(const grouping *g, size_t most, const uint16_t *from, int64_t *bounds, size_t *count) {
    size_t ends[RCV_MOST_BUCKETS], found = 0;
    for (size_t at = g->count; at > 0; found++) {
        ends[found] = at;
        at = from[at * (most + 1) + most - found];
    }
    for (size_t i = 0; i < found; i++) bounds[i] = g->groups[ends[found - 1 - i]].bound;
    *count = found;
}

rcv_status rcvi_buckets_best(rcv_context *context, const rcvi_histogram *histogram, const rcvi_bucket_options *options,
                             int64_t *bounds, size_t *count) {
    grouping g;
    RCVI_TRY(group_lengths(context, histogram, options, &g));
    size_t entries = (g.count + 1) * (options->most + 1);
    double *best = rcvi_new(context, entries, sizeof *best);
    uint16_t *from = rcvi_new(context, entries, sizeof *from);
    rcv_status status = best && from ? RCV_OK : RCV_NO_MEMORY;
    if (!status) {
        find_best(&g, options->most, best, from);
        trace_bounds(&g, options->most, from, bounds, count);
    }
    rcvi_free(context, from);
    rcvi_free(context, best);
    rcvi_free(context, g.groups);
    return status;
}

double rcvi_buckets_cost(const rcvi_histogram *histogram, const rcvi_bucket_options *options, const int64_t *bounds,
                         size_t count) {
    double cost = 0;
    int64_t longer = 0, length = histogram->longest;
    for (size_t k = count; k > 0; k--) {
        int64_t sequences = 0, below = k > 1 ? bounds[k - 2] : 0;
        for (; length > below; length--) sequences += histogram->counts[length];
        group g = make_group(options, bounds[k - 1], sequences);
        cost += bucket_cost(sequences, longer, g.batch, g.unit);
        if (options->tokens == 0) longer += sequences;
    }
    return cost;
}

/* ---- public functions ---- */

rcv_status rcv_data_buckets(const rcv_data *data, size_t most, bool greedy, int64_t *bounds, size_t *count) {
    RCVI_NEED(data, "data");
    RCVI_NEED(bounds, "bounds");
    RCVI_NEED(count, "count");
    const rcvi_bucket_options options = {.most = most};
    rcvi_histogram histogram;
    RCVI_TRY(rcvi_histogram_new(data, &histogram));
    rcv_status status =
        (greedy ? rcvi_buckets_greedy : rcvi_buckets_best)(data->context, &histogram, &options, bounds, count);
    rcvi_histogram_free(data->context, &histogram);
    return status;
}

rcv_status rcv_data_padding(const rcv_data *data, const int64_t *bounds, size_t count, double *ratio) {
    RCVI_NEED(data, "data");
    RCVI_NEED(bounds, "bounds");
    RCVI_NEED(ratio, "ratio");
    if (count == 0) return rcvi_fail(RCV_INVALID, "rcv_data_padding needs at least one length in bounds");
    if (bounds[count - 1] < data->totals.longest)
        return rcvi_fail(RCV_INVALID,
                         "the longest sequence has %lld steps, and does not fit into the last bucket of %lld",
                         (long long)data->totals.longest, (long long)bounds[count - 1]);
    rcvi_histogram histogram;
    RCVI_TRY(rcvi_histogram_new(data, &histogram));
    *ratio = rcvi_buckets_cost(&histogram, &(rcvi_bucket_options){0}, bounds, count) / (double)histogram.tokens;
    rcvi_histogram_free(data->context, &histogram);
    return RCV_OK;
}
