/* The section about the time of cells over the number of steps. */
#include "report/drawing.h"

enum { LINES = MAXIMUM_CELLS + 1 }; /* the LSTM comes first */

typedef struct {
    const char *title, *unit;
    size_t pass;
    bool speedup; /* over the LSTM, else the time */
} length_plot;

static const length_plot plots[] = {
    {"Time, forward", "ms a call", 0, false},
    {"Time, training step", "ms a call", 1, false},
    {"Speed-up over the LSTM, forward", "speed-up over the LSTM", 0, true},
    {"Speed-up over the LSTM, training step", "speed-up over the LSTM", 1, true},
};

static const char *line_name(const lengths *lengths, size_t line) {
    return line == 0 ? "lstm" : lengths->cells[line - 1];
}

static const length_point *line_points(const lengths *lengths, size_t line) {
    return line == 0 ? lengths->lstm : lengths->points[line - 1];
}

static int line_colour(size_t line) { return line == 0 ? NEUTRAL : (int)line - 1; }

/* A speed-up over an extrapolated time is extrapolated too. The first length is always measured. */
static curve line_curve(const lengths *lengths, size_t line, const length_plot *plot) {
    const length_point *points = line_points(lengths, line);
    curve curve = {.label = line_name(lengths, line), .colour = line_colour(line)};
    for (size_t i = 0; i < lengths->count; i++) {
        const length_pass *pass = &points[i].passes[plot->pass];
        curve.values[i] = plot->speedup ? length_speedup(pass) : pass->seconds * 1e3;
        const bool is_extrapolated = pass->extrapolated && (plot->speedup || line == 0);
        curve.extrapolated = is_extrapolated && curve.extrapolated == 0 ? i : curve.extrapolated;
    }
    return curve;
}

static void draw_plot(FILE *out, const lengths *lengths, const length_plot *plot) {
    const size_t first = plot->speedup ? 1 : 0; /* there the LSTM is a horizontal line */
    curve curves[LINES];
    for (size_t line = first; line <= lengths->cell_count; line++) {
        curves[line - first] = line_curve(lengths, line, plot);
    }
    const curve_style style = {.title = plot->title,
                               .unit = plot->unit,
                               .axis = "steps",
                               .places = lengths->steps,
                               .width = 1000,
                               .sizes = lengths->count,
                               .logarithmic = true,
                               .limits = {plot->speedup ? 1 : 0},
                               .limit_labels = {"the LSTM"}};
    fprintf(out, "<h3>%s</h3>\n", plot->title);
    draw_curves(out, curves, lengths->cell_count + 1 - first, &style);
}

static void put_row(FILE *out, const char *cell, const length_point *point, size_t index) {
    const length_pass *pass = &point->passes[index];
    char time[32], rate[32], speedup[32];
    fprintf(out, "<tr><td>");
    put_text(out, cell);
    fprintf(out, "</td><td>%lld</td><td class=\"left\">%s</td>", (long long)point->steps, length_passes[index]);
    if (pass->seconds <= 0) {
        fprintf(out, "<td class=\"wrap\" colspan=\"4\">");
        put_text(out, pass->refusal != NULL ? pass->refusal : "not measured");
        fprintf(out, "</td></tr>\n");
        return;
    }
    const bool own = pass->lstm <= 0 && pass->extrapolated;
    const double times = length_speedup(pass);
    fprintf(out, "<td>%s%s</td><td>%s%s</td><td>%s%s%s</td>", own ? "~" : "", short_number(pass->seconds * 1e3, time),
            own ? "~" : "", short_number(length_rate(point, index) * 1e-6, rate),
            times > 0 && pass->extrapolated ? "~" : "", times > 0 ? short_number(times, speedup) : "",
            times > 0 ? "x" : "");
    fprintf(out, "<td class=\"wrap\">");
    if (own) {
        fprintf(out, "extrapolated: ");
        put_text(out, pass->refusal != NULL ? pass->refusal : "not measured");
    } else if (pass->plan != NULL) {
        char room[64];
        const char *origin = length_origin(point, index, room);
        fprintf(out, "<code>");
        put_plan(out, pass->plan);
        fprintf(out, "</code>%s%s", origin[0] != '\0' ? ", " : "", origin);
    }
    fprintf(out, "</td></tr>\n");
}

static void put_table(FILE *out, const lengths *lengths) {
    fprintf(out, "<div class=\"table\"><table><thead><tr><th>cell</th><th>steps</th><th class=\"left\">pass</th>"
                 "<th>ms a call</th><th>million steps/s</th><th>x LSTM</th><th class=\"left\">plan</th></tr></thead>"
                 "<tbody>\n");
    for (size_t line = 0; line <= lengths->cell_count; line++) {
        for (size_t i = 0; i < lengths->count * PASSES; i++) {
            put_row(out, line_name(lengths, line), &line_points(lengths, line)[i / PASSES], i % PASSES);
        }
    }
    fprintf(out, "</tbody></table></div>\n");
}

void put_lengths(FILE *out, const results *results) {
    const lengths *lengths = &results->lengths;
    const char *labels[LINES];
    int colours[LINES];
    for (size_t line = 0; line <= lengths->cell_count; line++) {
        labels[line] = line_name(lengths, line);
        colours[line] = line_colour(line);
    }
    fprintf(out,
            "<section id=\"lengths\"><h2>Time over the number of steps</h2>\n<p class=\"soft\">Each cell is timed in "
            "turns with the LSTM of the same size. Where a call of the LSTM would take too long, its time is "
            "extrapolated from fewer steps: dashed lines and hollow points.</p>\n");
    if (lengths->left_out != NULL) {
        fprintf(out, "<p class=\"soft\">Not built in: ");
        put_text(out, lengths->left_out);
        fprintf(out, "</p>\n");
    }
    put_legend(out, labels, colours, lengths->cell_count + 1);
    for (size_t i = 0; i < COUNT(plots); i++) {
        draw_plot(out, lengths, &plots[i]);
    }
    put_table(out, lengths);
    fprintf(out, "</section>\n");
}
