/* The traces of ranks: reading them, and the times that follow from them. */
#include "report/training/update_trace.h"

#include "report/training/training_log.h"
#include "tool.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *const span_names[SPAN_KINDS] = {"forward", "backward", "other", "wait", "exchange"};

/* ---- measures ---- */

static int by_begin(const void *left, const void *right) {
    const interval *a = left, *b = right;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

/* The union of the compute or of the exchange spans: increasing and disjoint. For free(). */
static interval *unite(const lane *lane, bool compute, size_t *count) {
    interval *all = need(lane->count + 1, sizeof *all);
    size_t taken = 0, kept = 0;
    for (size_t i = 0; i < lane->count; i++) {
        const span *span = &lane->spans[i];
        if (compute ? is_compute(span->kind) : span->kind == SPAN_EXCHANGE) {
            all[taken++] = (interval){span->begin, span->end};
        }
    }
    qsort(all, taken, sizeof *all, by_begin);
    for (size_t i = 0; i < taken; i++) {
        if (kept > 0 && all[i].begin <= all[kept - 1].end) {
            all[kept - 1].end = fmax(all[kept - 1].end, all[i].end);
        } else {
            all[kept++] = all[i];
        }
    }
    *count = kept;
    return all;
}

static double length_of(const interval *list, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += list[i].end - list[i].begin;
    }
    return sum;
}

/* The length of the intersection of two unions. */
static double overlap(const interval *a, size_t a_count, const interval *b, size_t b_count) {
    double sum = 0;
    for (size_t i = 0, j = 0; i < a_count && j < b_count;) {
        sum += fmax(0, fmin(a[i].end, b[j].end) - fmax(a[i].begin, b[j].begin));
        if (a[i].end < b[j].end) {
            i++;
        } else {
            j++;
        }
    }
    return sum;
}

static void measure(lane *lane) {
    size_t count;
    interval *computes = unite(lane, true, &count);
    lane->exchanges = unite(lane, false, &lane->exchange_count);
    lane->compute = length_of(computes, count);
    lane->exchange = length_of(lane->exchanges, lane->exchange_count);
    lane->hidden = overlap(computes, count, lane->exchanges, lane->exchange_count);
    free(computes);
}

double trace_balance(const trace *trace) {
    double sum = 0, most = 0;
    for (size_t i = 0; i < trace->count; i++) {
        sum += trace->lanes[i].compute;
        most = fmax(most, trace->lanes[i].compute);
    }
    return sum > 0 ? most * (double)trace->count / sum : NAN;
}

double trace_idle(const trace *trace) {
    double sum = 0;
    for (size_t i = 0; i < trace->count; i++) {
        sum += trace->lanes[i].compute;
    }
    return trace->seconds > 0 ? 1 - sum / (trace->seconds * (double)trace->count) : NAN;
}

/* ---- reading ---- */

/* [kind, unit, begin, end]. A span that began before all ranks had arrived begins at 0. */
static bool read_span(span *span, const json_t *value) {
    const char *name = json_string_value(json_array_get(value, 0));
    const json_t *unit = json_array_get(value, 1), *begin = json_array_get(value, 2), *end = json_array_get(value, 3);
    span->kind = SPAN_FORWARD;
    while (name != NULL && span->kind < SPAN_KINDS && strcmp(name, span_names[span->kind]) != 0) {
        span->kind++;
    }
    span->unit = (int)json_integer_value(unit);
    span->begin = fmax(json_number_value(begin), 0);
    span->end = json_number_value(end);
    return name != NULL && span->kind < SPAN_KINDS && json_is_integer(unit) && json_is_number(begin) &&
           json_is_number(end) && span->end >= span->begin;
}

static const char *read_lane(lane *lane, const json_t *line) {
    const char *const names[] = {"rank", "replica", "stage"};
    int *const places[] = {&lane->rank, &lane->replica, &lane->stage};
    for (size_t i = 0; i < COUNT(names); i++) {
        const double value = log_number(line, names[i]);
        if (!(value >= 0 && value < 1e6)) {
            return "a timeline needs a rank, a replica and a stage";
        }
        *places[i] = (int)value;
    }
    const json_t *spans = json_object_get(line, "spans");
    lane->spans = need(json_array_size(spans) + 1, sizeof *lane->spans);
    for (size_t i = 0; i < json_array_size(spans); i++) {
        if (!read_span(&lane->spans[lane->count++], json_array_get(spans, i))) {
            return "a span of a timeline is [kind, unit, begin, end]";
        }
    }
    return lane->count > 0 ? NULL : "a timeline needs spans";
}

static void lane_free(lane *lane) {
    free(lane->spans);
    free(lane->exchanges);
}

void trace_free(trace *all) {
    for (size_t i = 0; i < all->count; i++) {
        lane_free(&all->lanes[i]);
    }
    free(all->lanes);
    *all = (trace){0};
}

/* Inserts a lane in the order of ranks, or replaces the lane of its rank. */
static void keep_lane(trace *trace, const lane *added) {
    size_t at = 0;
    while (at < trace->count && trace->lanes[at].rank < added->rank) {
        at++;
    }
    if (at < trace->count && trace->lanes[at].rank == added->rank) {
        lane_free(&trace->lanes[at]);
        trace->lanes[at] = *added;
        return;
    }
    lane *more = need(trace->count + 1, sizeof *more);
    for (size_t i = 0; i < trace->count; i++) {
        more[i + (i >= at)] = trace->lanes[i];
    }
    more[at] = *added;
    free(trace->lanes);
    trace->lanes = more;
    trace->count++;
}

const char *trace_add(trace *trace, const json_t *line) {
    const double step = log_number(line, "step");
    lane added = {0};
    const char *wrong = read_lane(&added, line);
    if (wrong != NULL || (trace->count > 0 && step < trace->step)) {
        lane_free(&added);
        return wrong;
    }
    if (step > trace->step) {
        trace_free(trace);
    }
    trace->step = step;
    measure(&added);
    for (size_t i = 0; i < added.count; i++) {
        trace->seconds = fmax(trace->seconds, added.spans[i].end);
    }
    keep_lane(trace, &added);
    return NULL;
}
