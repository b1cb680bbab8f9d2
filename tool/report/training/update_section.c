/* The section about one update of several ranks: a row for each rank with its computation, and below that a strip with its exchange. Places on the
 * time axis are in percent: the rows have the width of the page, and texts keep their size. */
#include "report/training/sections.h"

#include <math.h>

enum { NAME = 20, COMPUTE = 25, STRIP = 8, LANE = COMPUTE + STRIP + 3, GAP = 10, AXIS = 46 }; /* pixels */
enum { PIXELS = 1000 }; /* the width that spans are bundled for */

static const int colours[SPAN_KINDS] = {[SPAN_FORWARD] = 0, [SPAN_BACKWARD] = 1, [SPAN_OTHER] = 2, [SPAN_EXCHANGE] = 7};

static double percent(const trace *trace, double seconds) { return 100 * seconds / trace->seconds; }
/* Of the row; the rank's name is above it. */
static int lane_y(size_t index) { return NAME + (int)index * (NAME + LANE + GAP); }

/* ---- lanes ---- */

static void draw_axis(FILE *out, const trace *trace) {
    const int bottom = lane_y(trace->count - 1) + LANE;
    const double span = trace->seconds * 1e3, step = nice_step(span, 10);
    char room[32];
    for (long i = 0; (double)i * step <= span * (1 + 1e-9); i++) {
        const double x = percent(trace, (double)i * step * 1e-3);
        fprintf(out, "<line class=\"grid\" x1=\"%.2f%%\" y1=\"%d\" x2=\"%.2f%%\" y2=\"%d\"/>", x, NAME, x, bottom + 4);
        fprintf(out, "<text class=\"tick%s\" x=\"%.2f%%\" y=\"%d\" text-anchor=\"%s\">%s</text>\n",
                i % 2 == 0 && x < 95 ? "" : " wide", x, bottom + 20,
                i == 0   ? "start"
                : x > 95 ? "end"
                         : "middle",
                tick_number((double)i * step, room));
    }
    fprintf(out, "<text class=\"axis\" x=\"50%%\" y=\"%d\" text-anchor=\"middle\">time, ms</text>\n", bottom + 40);
}

static void draw_lane_name(FILE *out, const lane *lane, int y) {
    fprintf(out,
            "<text class=\"name\" x=\"0\" y=\"%d\">rank %d<tspan class=\"tick\" dx=\"10\">replica %d, stage "
            "%d</tspan></text>\n",
            y - 6, lane->rank, lane->replica, lane->stage);
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
    const double from = percent(trace, span->begin), to = percent(trace, span->end);
    const bool one = bundle->count == 1 && span->unit >= 0 && units;
    fprintf(out, "<rect class=\"c%d\" x=\"%.3f%%\" y=\"%d\" width=\"%.3f%%\" height=\"%d\"><title>%s",
            colours[span->kind], from, y, fmax(to - from - (to - from > 0.3 ? 0.05 : 0), 0.03), COMPUTE,
            span_names[span->kind]);
    if (one) {
        fprintf(out, " of unit %d", span->unit);
    }
    fprintf(out, ", %.4f to %.4f ms</title></rect>\n", span->begin * 1e3, span->end * 1e3);
    if (one && to - from > 2) {
        fprintf(out, "<text class=\"inside%s\" x=\"%.2f%%\" y=\"%d\" text-anchor=\"middle\">%d</text>\n",
                to - from > 6 ? "" : " wide", (from + to) / 2, y + COMPUTE / 2 + 4, span->unit);
    }
}

static void draw_compute(FILE *out, const trace *trace, const lane *lane, int y, bool units) {
    const double point = trace->seconds / PIXELS;
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
        const double from = percent(trace, part->begin), to = percent(trace, part->end);
        fprintf(
            out,
            "<rect class=\"c%d\" x=\"%.3f%%\" y=\"%d\" width=\"%.3f%%\" height=\"%d\"><title>exchange, %.4f to %.4f "
            "ms</title></rect>\n",
            colours[SPAN_EXCHANGE], from, y + LANE - STRIP, fmax(to - from, 0.03), STRIP, part->begin * 1e3,
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
    fprintf(out, "<svg class=\"rows\" style=\"height:%dpx\" role=\"img\" aria-label=\"Timeline of one update\">\n",
            lane_y(trace->count - 1) + LANE + AXIS);
    for (size_t i = 0; i < trace->count; i++) {
        fprintf(out, "<rect class=\"lane\" x=\"0\" y=\"%d\" width=\"100%%\" height=\"%d\"/>", lane_y(i), LANE);
        draw_lane_name(out, &trace->lanes[i], lane_y(i));
    }
    draw_axis(out, trace);
    for (size_t i = 0; i < trace->count; i++) {
        draw_compute(out, trace, &trace->lanes[i], lane_y(i), units);
        draw_exchange(out, trace, &trace->lanes[i], lane_y(i));
    }
    fprintf(out, "</svg>\n");
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
