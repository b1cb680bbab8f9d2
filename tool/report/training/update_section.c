/* The section about one update of several ranks: a row for each rank with its computation, and below that a strip with its exchange. */
#include "report/training/sections.h"

#include <math.h>

enum { WIDTH = 1000, LEFT = 132, RIGHT = 990, TOP = 8, LANE = 36, COMPUTE = 25, STRIP = 8, GAP = 8 };

static const int colours[SPAN_KINDS] = {[SPAN_FORWARD] = 0, [SPAN_BACKWARD] = 1, [SPAN_OTHER] = 2, [SPAN_EXCHANGE] = 7};

static double x_of(const trace *trace, double seconds) { return LEFT + (RIGHT - LEFT) * seconds / trace->seconds; }
static int lane_y(size_t index) { return TOP + (int)index * (LANE + GAP); }

/* ---- lanes ---- */

static void draw_axis(FILE *out, const trace *trace) {
    const int bottom = lane_y(trace->count) - GAP;
    const double span = trace->seconds * 1e3, step = nice_step(span, 10);
    char room[32];
    for (double i = 0; i * step <= span; i++) {
        const double x = x_of(trace, i * step * 1e-3);
        fprintf(out, "<line class=\"grid\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>", x, TOP, x, bottom + 4);
        fprintf(out, "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", x, bottom + 20,
                tick_number(i * step, room));
    }
    fprintf(out, "<text class=\"axis\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">time, ms</text>\n", (LEFT + RIGHT) / 2,
            bottom + 42);
}

static void draw_lane_name(FILE *out, const lane *lane, int y) {
    fprintf(out, "<text class=\"name\" x=\"%d\" y=\"%d\" text-anchor=\"end\">rank %d</text>", LEFT - 10, y + 15,
            lane->rank);
    fprintf(out, "<text class=\"tick\" x=\"%d\" y=\"%d\" text-anchor=\"end\">replica %d, stage %d</text>\n", LEFT - 10,
            y + 31, lane->replica, lane->stage);
}

/* Consecutive spans of one kind that are narrower than a pixel, drawn as one. */
typedef struct {
    span whole;
    size_t count; /* 0: none yet */
} bundle;

static void draw_bundle(FILE *out, const trace *trace, const bundle *bundle, int y, bool units) {
    if (bundle->count == 0) {
        return;
    }
    const span *span = &bundle->whole;
    const double from = x_of(trace, span->begin), to = x_of(trace, span->end);
    const bool one = bundle->count == 1 && span->unit >= 0 && units;
    fprintf(out, "<rect class=\"c%d\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\"><title>%s", colours[span->kind],
            from, y, fmax(to - from - (to - from > 3 ? 0.5 : 0), 0.3), COMPUTE, span_names[span->kind]);
    if (one) {
        fprintf(out, " of unit %d", span->unit);
    }
    fprintf(out, ", %.4f to %.4f ms</title></rect>\n", span->begin * 1e3, span->end * 1e3);
    if (one && to - from > 18) {
        fprintf(out, "<text class=\"inside\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%d</text>\n", (from + to) / 2,
                y + COMPUTE / 2 + 4, span->unit);
    }
}

static void draw_compute(FILE *out, const trace *trace, const lane *lane, int y, bool units) {
    const double point = trace->seconds / (RIGHT - LEFT);
    bundle bundle = {0};
    for (size_t i = 0; i < lane->count; i++) {
        const span *span = &lane->spans[i];
        if (!is_compute(span->kind)) {
            continue;
        }
        if (bundle.count > 0 && span->kind == bundle.whole.kind && span->end - bundle.whole.begin < point) {
            bundle.whole.end = span->end;
            bundle.count++;
        } else {
            draw_bundle(out, trace, &bundle, y, units);
            bundle.whole = *span;
            bundle.count = 1;
        }
    }
    draw_bundle(out, trace, &bundle, y, units);
}

static void draw_exchange(FILE *out, const trace *trace, const lane *lane, int y) {
    for (size_t i = 0; i < lane->exchange_count; i++) {
        const interval *part = &lane->exchanges[i];
        const double from = x_of(trace, part->begin), to = x_of(trace, part->end);
        fprintf(out,
                "<rect class=\"c%d\" x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\"><title>exchange, %.4f to %.4f "
                "ms</title></rect>\n",
                colours[SPAN_EXCHANGE], from, y + LANE - STRIP, fmax(to - from, 0.3), STRIP, part->begin * 1e3,
                part->end * 1e3);
    }
}

/* Is the batch split into units? Then their numbers are shown. */
static bool has_units(const trace *trace) {
    for (size_t i = 0; i < trace->count; i++) {
        for (size_t j = 0; j < trace->lanes[i].count; j++) {
            if (trace->lanes[i].spans[j].unit > 0) {
                return true;
            }
        }
    }
    return false;
}

static void draw_lanes(FILE *out, const trace *trace) {
    const bool units = has_units(trace);
    begin_svg(out, WIDTH, lane_y(trace->count) - GAP + 50, "Timeline of one update");
    for (size_t i = 0; i < trace->count; i++) {
        fprintf(out, "<rect class=\"lane\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>", LEFT, lane_y(i),
                RIGHT - LEFT, LANE);
        draw_lane_name(out, &trace->lanes[i], lane_y(i));
    }
    draw_axis(out, trace);
    for (size_t i = 0; i < trace->count; i++) {
        draw_compute(out, trace, &trace->lanes[i], lane_y(i), units);
        draw_exchange(out, trace, &trace->lanes[i], lane_y(i));
    }
    fprintf(out, "</svg></div>\n");
}

/* ---- numbers ---- */

static void put_lane(FILE *out, const trace *trace, const lane *lane) {
    fprintf(out, "<tr><td>%d</td><td>%d</td><td>%d</td>", lane->rank, lane->replica, lane->stage);
    put_number(out, lane->compute * 1e3, "%.3f");
    put_number(out, lane->exchange * 1e3, "%.3f");
    put_number(out, (trace->seconds - lane->compute) * 1e3, "%.3f");
    put_number(out, lane->exchange > 0 ? 100 * lane->hidden / lane->exchange : NAN, "%.1f%%");
    fprintf(out, "</tr>\n");
}

static void put_lanes(FILE *out, const trace *trace) {
    fprintf(out, "<div class=\"table\"><table><thead><tr><th>rank</th><th>replica</th><th>stage</th><th>compute ms</th>"
                 "<th>exchange ms</th><th>idle ms</th><th>exchange hidden</th></tr></thead><tbody>\n");
    for (size_t i = 0; i < trace->count; i++) {
        put_lane(out, trace, &trace->lanes[i]);
    }
    fprintf(out, "</tbody></table></div>\n");
}

bool trace_is_drawn(const trace *trace) { return trace->count > 0 && trace->seconds > 0; }

void begin_traces(FILE *out) {
    static const char *const labels[] = {"forward", "backward", "other work", "exchange, in parallel"};
    static const int kinds[] = {SPAN_FORWARD, SPAN_BACKWARD, SPAN_OTHER, SPAN_EXCHANGE};
    int shown[COUNT(kinds)];
    for (size_t i = 0; i < COUNT(kinds); i++) {
        shown[i] = colours[kinds[i]];
    }
    put_section(out, "ranks", "Timeline of one update",
                "The last update that was traced. An empty part of a row is waiting time. An exchange lasts from when "
                "a rank can "
                "send or receive until it is done, and so includes waiting for other ranks; hidden is its share during "
                "which the "
                "same rank computes. Numbers are units of the batch.");
    put_legend(out, labels, shown, COUNT(labels));
}

void put_trace(FILE *out, const trace *trace) {
    fprintf(out, "<p>Update %.0f took %.3f ms; its ranks were idle for %.1f%% of that.</p>\n", trace->step,
            trace->seconds * 1e3, 100 * trace_idle(trace));
    draw_lanes(out, trace);
    put_lanes(out, trace);
}
