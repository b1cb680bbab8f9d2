/* The section about linear recurrences. */
#include "report/drawing.h"

/* A plot over the number of steps, with a curve for each number of channels. */
typedef struct {
    const char *title, *unit;
    double (*value)(const scan_point *point);
    bool logarithmic;
    double limit;
} scan_plot;

static double forward_share(const scan_point *point) { return 100 * scan_share(point, false); }
static double backward_share(const scan_point *point) { return 100 * scan_share(point, true); }
static double forward_speedup(const scan_point *point) { return scan_speedup(&point->forward); }
static double backward_speedup(const scan_point *point) { return scan_speedup(&point->backward); }

static const scan_plot plots[] = {
    {"Bandwidth of the forward pass", "% of a copy's bandwidth", forward_share, false, 100},
    {"Bandwidth of the backward pass", "% of a copy's bandwidth", backward_share, false, 100},
    {"Speed-up of the forward pass over the serial form", "speed-up over serial", forward_speedup, true, 0},
    {"Speed-up of the backward pass over the serial form", "speed-up over serial", backward_speedup, true, 0},
};

/* The shape of the grid with these steps and channels, or NULL if it was too large. */
static const scan_point *point_at(const scans *scans, int64_t steps, int64_t channels) {
    for (size_t i = 0; i < scans->count; i++) {
        const scan_point *point = &scans->points[i];
        if (point->steps == steps && point->batch == 1 && point->channels == channels) {
            return point;
        }
    }
    return NULL;
}

static void draw_plot(FILE *out, const scans *scans, const scan_plot *plot, char labels[SCAN_CHANNELS][32]) {
    curve curves[SCAN_CHANNELS];
    for (size_t c = 0; c < SCAN_CHANNELS; c++) {
        curves[c] = (curve){.label = labels[c], .colour = (int)c};
        for (size_t t = 0; t < SCAN_STEPS; t++) {
            const scan_point *point = point_at(scans, scan_steps[t], scan_channels[c]);
            curves[c].values[t] = point != NULL ? plot->value(point) : 0;
        }
    }
    const curve_style style = {.title = plot->title,
                               .unit = plot->unit,
                               .axis = "steps",
                               .places = scan_steps,
                               .width = 1000,
                               .sizes = SCAN_STEPS,
                               .logarithmic = plot->logarithmic,
                               .limits = {plot->limit},
                               .limit_labels = {"a copy"}};
    fprintf(out, "<h3>%s</h3>\n", plot->title);
    draw_curves(out, curves, SCAN_CHANNELS, &style);
}

static void put_targets(FILE *out, const scans *scans) {
    fprintf(out, "<h3>Targets</h3>\n<div class=\"table\"><table><thead><tr><th>steps</th><th>channels</th>"
                 "<th class=\"left\">what</th><th>target</th><th>measured</th><th class=\"left\"></th></tr></thead>"
                 "<tbody>\n");
    for (size_t i = 0; i < scans->target_count; i++) {
        const scan_target *target = &scans->targets[i];
        const long long channels = target->point->batch * target->point->channels;
        char room[32];
        fprintf(out, "<tr><td>%lld</td><td>%lld</td><td class=\"left\">%s</td><td>%s %g %s</td><td>%s %s</td>",
                (long long)target->point->steps, channels, target->what, target->at_most ? "&le;" : "&ge;",
                target->target, target->unit, target->measured > 0 ? short_number(target->measured, room) : "",
                target->unit);
        fprintf(out, "<td class=\"left\">%s%s%s</td></tr>\n", target_is_met(target) ? "met" : "not met",
                target->source != NULL ? "; target: " : "", target->source != NULL ? target->source : "");
    }
    fprintf(out, "</tbody></table></div>\n");
}

void put_scan(FILE *out, const results *results) {
    const scans *scans = &results->scans;
    char names[SCAN_CHANNELS][32];
    const char *labels[SCAN_CHANNELS];
    int colours[SCAN_CHANNELS];
    for (size_t c = 0; c < SCAN_CHANNELS; c++) {
        snprintf(names[c], sizeof names[c], "%lld channel%s", (long long)scan_channels[c],
                 scan_channels[c] == 1 ? "" : "s");
        labels[c] = names[c];
        colours[c] = (int)c;
    }
    fprintf(
        out,
        "<section id=\"scan\"><h2>Linear recurrences</h2>\n<p class=\"soft\">h[t] = a[t] h[t-1] + b[t], channel by "
        "channel. Forward reads a and b and writes h; backward reads a, h and dh and writes da and db. The copy %s, "
        "measured in the same run. Arrays that fit into a cache may be faster than the copy.</p>\n",
        scans->reads == 1 ? "is c[i] = a[i] over 256 MiB" : "is c[i] = a[i] + b[i] over arrays as large");
    put_legend(out, labels, colours, SCAN_CHANNELS);
    for (size_t i = 0; i < COUNT(plots); i++) {
        draw_plot(out, scans, &plots[i], names);
    }
    if (scans->target_count > 0) {
        put_targets(out, scans);
    }
    fprintf(out, "</section>\n");
}
