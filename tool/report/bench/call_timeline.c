/* The timeline of one call: a row for each worker, then a row for each layer; colours are layers. */
#include "recurve_bench.h"
#include "report/drawing.h"

#include <math.h>
#include <stdlib.h>

enum { WIDTH = 1000, LEFT = 90, RIGHT = 990, LANE = 26, GAP = 4, TOP = 22, COLUMNS = RIGHT - LEFT };
enum { MOST_DRAWN = 2500, STEPS_SHOWN = 8, MOST_LAYERS = 64 };

typedef struct {
    const timeline *timeline;
    double begin, end; /* seconds shown */
    int workers, layers;
} view;

static double x_of(const view *view, double seconds) {
    return LEFT + COLUMNS * (seconds - view->begin) / (view->end - view->begin);
}

static int lane_of_layer(const view *view, int layer) { return view->workers + (layer < 0 ? view->layers : layer); }
static int lane_y(const view *view, int lane) { return TOP + lane * (LANE + GAP) + (lane >= view->workers ? 14 : 0); }

static void put_class(FILE *out, int layer) {
    if (layer < 0) {
        fprintf(out, "class=\"cn\"");
    } else {
        fprintf(out, "class=\"c%d\"", layer % COLOURS);
    }
}

/* Is there work that belongs to no layer? It gets a row of its own. */
static bool has_other(const view *view) {
    for (size_t i = 0; i < view->timeline->count; i++) {
        if (view->timeline->events[i].layer < 0) {
            return true;
        }
    }
    return false;
}

static const char *tick(double time, double step, char room[32]) {
    const int digits = step < 0.999 ? (int)ceil(-log10(step) - 1e-9) : 0;
    snprintf(room, 32, "%.*f", digits, time);
    return room;
}

static int draw_frame(FILE *out, const view *view, const char *title) {
    const int lanes = view->workers + view->layers + (has_other(view) ? 1 : 0);
    const int bottom = lane_y(view, lanes - 1) + LANE;
    fprintf(
        out,
        "<div class=\"plot\"><svg viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\" aria-label=\"%s\">\n",
        WIDTH, bottom + 48, WIDTH, bottom + 48, title);
    for (int lane = 0; lane < lanes; lane++) {
        const int y = lane_y(view, lane);
        fprintf(out, "<rect class=\"lane\" x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>", LEFT, y, COLUMNS, LANE);
        fprintf(out, "<text class=\"name\" x=\"%d\" y=\"%d\" text-anchor=\"end\">", LEFT - 8, y + 18);
        if (lane < view->workers) {
            fprintf(out, "worker %d</text>\n", lane);
        } else if (lane < view->workers + view->layers) {
            fprintf(out, "layer %d</text>\n", lane - view->workers);
        } else {
            fprintf(out, "other</text>\n");
        }
    }
    const double span = (view->end - view->begin) * 1e3, first = view->begin * 1e3;
    double step = pow(10, floor(log10(span / 5)));
    step *= span / step > 25 ? 5 : span / step > 12 ? 2 : 1;
    for (double time = ceil(first / step) * step; time <= first + span; time += step) {
        char room[32];
        const double x = x_of(view, time * 1e-3);
        fprintf(out, "<line class=\"grid\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>", x, TOP, x, bottom + 4);
        fprintf(out, "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", x, bottom + 20,
                tick(time, step, room));
    }
    fprintf(out, "<text class=\"axis\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">time, ms</text>\n", (LEFT + RIGHT) / 2,
            bottom + 42);
    return bottom;
}

static void end_frame(FILE *out, const view *view, int bottom) {
    const double boundary = view->timeline->forward_seconds;
    bool backward = false;
    for (size_t i = 0; i < view->timeline->count; i++) {
        backward = backward || view->timeline->events[i].backward;
    }
    if (backward && boundary > view->begin && boundary < view->end) {
        const double x = x_of(view, boundary);
        fprintf(out, "<line class=\"limit\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>", x, TOP - 6, x, bottom);
        fprintf(out, "<text class=\"limit\" x=\"%.1f\" y=\"%d\" text-anchor=\"end\">forward</text>", x - 6, TOP - 6);
        fprintf(out, "<text class=\"limit\" x=\"%.1f\" y=\"%d\">backward</text>\n", x + 6, TOP - 6);
    }
    fprintf(out, "</svg></div>\n");
}

/* ---- the whole call: each column shows the layer on which a row spent most of the time ---- */

/* Adds an event to spent: [layers + 1][COLUMNS] seconds; the last row is for no layer. */
static void add_event(const view *view, const rcv_event *event, double *spent) {
    const double column = (view->end - view->begin) / COLUMNS;
    const int row = event->layer < 0 || event->layer > view->layers ? view->layers : event->layer;
    const int first = (int)fmax(0, (event->begin - view->begin) / column);
    for (int i = first; i < COLUMNS && view->begin + i * column < event->end; i++) {
        const double from = fmax(event->begin, view->begin + i * column);
        const double to = fmin(event->end, view->begin + (i + 1) * column);
        spent[row * COLUMNS + i] += to - from;
    }
}

/* The layer with most time in a column, or -1 if less than 30% of it was busy. */
static int busiest(const view *view, const double *spent, int column) {
    double total = 0;
    int best = -1;
    for (int row = 0; row <= view->layers; row++) {
        const double seconds = spent[row * COLUMNS + column];
        total += seconds;
        if (seconds > 0 && (best < 0 || seconds > spent[best * COLUMNS + column])) {
            best = row;
        }
    }
    return total > 0.3 * (view->end - view->begin) / COLUMNS ? best : -1;
}

static void draw_lane(FILE *out, const view *view, int lane, const double *spent) {
    for (int i = 0; i < COLUMNS;) {
        const int row = busiest(view, spent, i);
        int end = i + 1;
        while (end < COLUMNS && busiest(view, spent, end) == row) {
            end++;
        }
        if (row >= 0) {
            fprintf(out, "<rect ");
            put_class(out, row == view->layers ? -1 : row);
            fprintf(out, " x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\"/>", LEFT + i, lane_y(view, lane), end - i,
                    LANE);
        }
        i = end;
    }
    fprintf(out, "\n");
}

static void draw_overview(FILE *out, const view *view) {
    const int bottom = draw_frame(out, view, "The whole call");
    const int lanes = view->workers + view->layers + 1;
    for (int lane = 0; lane < lanes; lane++) {
        double *spent = need((size_t)(view->layers + 1) * COLUMNS, sizeof(double));
        for (size_t i = 0; i < view->timeline->count; i++) {
            const rcv_event *event = &view->timeline->events[i];
            if (lane == event->worker || lane == lane_of_layer(view, event->layer)) {
                add_event(view, event, spent);
            }
        }
        draw_lane(out, view, lane, spent);
        free(spent);
    }
    end_frame(out, view, bottom);
}

/* ---- a part of the call, event by event ---- */

static void draw_event(FILE *out, const view *view, const rcv_event *event, int lane, bool by_layer) {
    const double from = x_of(view, fmax(event->begin, view->begin)), to = x_of(view, fmin(event->end, view->end));
    const int slot = by_layer ? LANE / view->workers : LANE; /* workers share the row of a layer */
    const int y = lane_y(view, lane) + (by_layer ? event->worker * slot : 0);
    fprintf(out, "<rect ");
    put_class(out, event->layer);
    fprintf(out, " x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\"><title>worker %d, ", from, y,
            fmax(to - from - 0.4, 0.4), slot > 1 ? slot - 1 : 1, event->worker);
    if (event->layer >= 0) {
        fprintf(out, "layer %d%s, ", event->layer, event->reverse ? " reverse" : "");
    }
    if (event->iteration >= 0) {
        fprintf(out, "step %lld, ", (long long)event->iteration);
    }
    put_text(out, event->what);
    fprintf(out, ", %.1f us</title></rect>", (event->end - event->begin) * 1e6);
    if (event->iteration >= 0 && to - from > 26 && slot >= 12) {
        fprintf(out, "<text class=\"inside\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%lld</text>", (from + to) / 2,
                y + slot / 2 + 4, (long long)event->iteration);
    }
}

static void draw_detail(FILE *out, const view *view) {
    const int bottom = draw_frame(out, view, "The first steps of the recurrence");
    size_t drawn = 0;
    for (size_t i = 0; i < view->timeline->count && drawn < MOST_DRAWN; i++) {
        const rcv_event *event = &view->timeline->events[i];
        if (event->end <= view->begin || event->begin >= view->end || event->worker >= view->workers ||
            event->layer >= view->layers) {
            continue;
        }
        draw_event(out, view, event, event->worker, false);
        draw_event(out, view, event, lane_of_layer(view, event->layer), true);
        fprintf(out, "\n");
        drawn++;
    }
    end_frame(out, view, bottom);
}

/* Shows the time from the first step of the recurrence to the end of step STEPS_SHOWN of layer 0. */
static void show_first_steps(view *view) {
    const timeline *timeline = view->timeline;
    double begin = INFINITY, end = 0;
    for (size_t i = 0; i < timeline->count; i++) {
        const rcv_event *event = &timeline->events[i];
        if (event->iteration >= 0 && !event->backward && event->begin < begin) {
            begin = event->begin;
        }
    }
    for (size_t i = 0; i < timeline->count; i++) {
        const rcv_event *event = &timeline->events[i];
        if (event->iteration >= 0 && event->iteration < STEPS_SHOWN && event->layer == 0 && !event->backward &&
            !event->reverse) {
            end = fmax(end, event->end);
        }
    }
    if (begin < end) {
        view->begin = begin;
        view->end = end;
    }
}

void draw_timeline(FILE *out, const timeline *timeline) {
    view view = {.timeline = timeline, .workers = 1, .layers = 1};
    for (size_t i = 0; i < timeline->count; i++) {
        const rcv_event *event = &timeline->events[i];
        view.end = fmax(view.end, event->end);
        view.workers = event->worker >= view.workers ? event->worker + 1 : view.workers;
        view.layers = event->layer >= view.layers && event->layer < MOST_LAYERS ? event->layer + 1 : view.layers;
    }
    if (view.end <= 0) {
        fprintf(out, "<p>No events were recorded.</p>\n");
        return;
    }
    fprintf(out, "<h3>The whole call, <code>");
    put_plan(out, timeline->plan);
    fprintf(out, "</code></h3>\n");
    draw_overview(out, &view);
    show_first_steps(&view);
    fprintf(out, "<h3>The first steps of the recurrence</h3>\n");
    draw_detail(out, &view);
}
