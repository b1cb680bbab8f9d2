/* Line plots as SVG. Places are in percent of the plot's area; paths are in an inner SVG, which is stretched. */
#include "report/line_plot.h"

#include "report/drawing.h"

#include <math.h>
#include <string.h>

enum { WIDTH = 10000, HEIGHT = 3000 };          /* units of paths */
enum { NARROW = 270, MIDDLE = 520 };            /* width of the area in pixels, of a phone, and at least elsewhere */
enum { LETTER = 7, GAP = 14, MOST_TICKS = 12 }; /* pixels */

typedef struct {
    double x_least, x_most, y_least, y_most;
    const plot_style *style;
} plot_frame;

static bool is_drawn(const plot_style *style, double y) { return isfinite(y) && (!style->logarithmic || y > 0); }

/* ---- the frame ---- */

/* Adds margins above and below. A range of one value becomes a range around it. */
static void add_margins(plot_frame *frame) {
    const plot_style *style = frame->style;
    if (frame->x_most <= frame->x_least) {
        frame->x_least -= 1;
        frame->x_most += 1;
    }
    if (style->logarithmic) {
        const double room = fmax(pow(frame->y_most / frame->y_least, 0.05), 1.02);
        frame->y_least /= room;
        frame->y_most *= room;
        return;
    }
    frame->y_least = style->from_zero ? fmin(frame->y_least, 0) : frame->y_least;
    const double size = fmax(fabs(frame->y_least), fabs(frame->y_most));
    const double room = fmax((frame->y_most - frame->y_least) * 0.06, size > 0 ? size * 1e-3 : 1);
    frame->y_least -= style->from_zero && frame->y_least == 0 ? 0 : room;
    frame->y_most += room;
}

/* An x axis whose first point is near 0, by its length, begins at 0. */
static void begin_at_zero(plot_frame *frame) {
    if (frame->x_least > 0 && frame->x_least < 0.1 * frame->x_most) {
        frame->x_least = 0;
    }
}

/* Sets the ranges of the axes. False if there is no point to draw. */
static bool set_ranges(plot_frame *frame, const plot_line *lines, size_t count) {
    frame->x_least = frame->y_least = INFINITY;
    frame->x_most = frame->y_most = -INFINITY;
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < lines[i].count; j++) {
            const double x = lines[i].x[j], y = lines[i].y[j];
            if (isfinite(x) && is_drawn(frame->style, y)) {
                frame->x_least = fmin(frame->x_least, x);
                frame->x_most = fmax(frame->x_most, x);
                frame->y_least = fmin(frame->y_least, y);
                frame->y_most = fmax(frame->y_most, y);
            }
        }
    }
    if (frame->x_least > frame->x_most) {
        return false;
    }
    begin_at_zero(frame);
    add_margins(frame);
    return true;
}

/* Shares of the width from the left, and of the height from the top. */
static double share_x(const plot_frame *frame, double x) {
    return (x - frame->x_least) / (frame->x_most - frame->x_least);
}

static double share_y(const plot_frame *frame, double y) {
    return 1 - (frame->style->logarithmic ? log(y / frame->y_least) / log(frame->y_most / frame->y_least)
                                          : (y - frame->y_least) / (frame->y_most - frame->y_least));
}

/* ---- axes ---- */

typedef struct {
    double values[4 * MOST_TICKS];
    size_t count;
} ticks;

static void add_tick(ticks *ticks, double value) {
    if (ticks->count < COUNT(ticks->values)) {
        ticks->values[ticks->count++] = value;
    }
}

/* Multiples of the step in least..most. */
static ticks linear_ticks(double least, double most, double step) {
    ticks ticks = {.count = 0};
    for (double i = ceil(least / step - 1e-9); i * step <= most + step * 1e-9; i++) {
        add_tick(&ticks, i * step + 0.0); /* not -0 */
    }
    return ticks;
}

/* 1, 2 and 5 times powers of ten; powers alone where those are many. */
static ticks decade_ticks(double least, double most) {
    static const double factors[] = {1, 2, 5};
    const double decades = log10(most / least);
    ticks ticks = {.count = 0};
    const int skip = (int)ceil(decades / 8);
    for (int power = (int)floor(log10(least)); pow(10, power) <= most; power++) {
        for (size_t i = 0; i < (decades > 3 ? 1 : COUNT(factors)); i++) {
            const double value = factors[i] * pow(10, power);
            if (value >= least && value <= most && (skip < 2 || power % skip == 0)) {
                add_tick(&ticks, value);
            }
        }
    }
    return ticks;
}

static ticks y_ticks(const plot_frame *frame) {
    if (frame->style->logarithmic) {
        const ticks decades = decade_ticks(frame->y_least, frame->y_most);
        if (decades.count >= 3) {
            return decades;
        }
    }
    return linear_ticks(frame->y_least, frame->y_most, nice_step(frame->y_most - frame->y_least, 6));
}

static size_t longest_label(const ticks *ticks) {
    size_t longest = 1;
    char room[32];
    for (size_t i = 0; i < ticks->count; i++) {
        const size_t length = strlen(tick_number(ticks->values[i], room));
        longest = length > longest ? length : longest;
    }
    return longest;
}

static void draw_y_axis(FILE *out, const plot_frame *frame, const ticks *ticks) {
    char room[32];
    for (size_t i = 0; i < ticks->count; i++) {
        const double y = 100 * share_y(frame, ticks->values[i]);
        fprintf(out, "<line class=\"grid\" x1=\"0\" y1=\"%.2f%%\" x2=\"100%%\" y2=\"%.2f%%\"/>", y, y);
        fprintf(out, "<text class=\"tick\" x=\"-8\" y=\"%.2f%%\" dy=\".35em\" text-anchor=\"end\">%s</text>\n", y,
                tick_number(ticks->values[i], room));
    }
}

/* How many steps lie between labels that do not touch in an area of so many pixels. */
static int label_distance(const plot_frame *frame, double step, size_t letters, int pixels) {
    const double between = pixels * step / (frame->x_most - frame->x_least);
    return (int)ceil((double)(letters * LETTER + GAP) / between);
}

/* Labels that only a wide screen has room for have the class wide; those of a phone are some of them. */
static void draw_x_axis(FILE *out, const plot_frame *frame) {
    const double step = fmax(nice_step(frame->x_most - frame->x_least, MOST_TICKS), frame->style->whole ? 1 : 0);
    const ticks ticks = linear_ticks(frame->x_least, frame->x_most, step);
    const size_t letters = longest_label(&ticks);
    const int wide = label_distance(frame, step, letters, MIDDLE);
    const int narrow = (label_distance(frame, step, letters, NARROW) + wide - 1) / wide * wide;
    char room[32];
    for (size_t i = 0; i < ticks.count; i++) {
        const long long index = llround(ticks.values[i] / step);
        const double x = share_x(frame, ticks.values[i]);
        const bool last = x > 0.95; /* its label would leave the page: it ends at its place */
        if (index % wide == 0) {
            fprintf(out, "<text class=\"tick%s\" x=\"%.2f%%\" y=\"100%%\" dy=\"1.5em\" text-anchor=\"%s\">%s</text>",
                    index % narrow == 0 && !last ? "" : " wide", 100 * x, last ? "end" : "middle",
                    tick_number(ticks.values[i], room));
        }
    }
    fprintf(out, "\n<text class=\"axis\" x=\"50%%\" y=\"100%%\" dy=\"2.8em\" text-anchor=\"middle\">");
    put_text(out, frame->style->axis);
    fprintf(out, "</text>\n");
}

/* ---- lines ---- */

/* The end of the colour's class: "0" ... "7", or "n". */
static const char *colour_of(const plot_line *line) {
    static const char *const names[COLOURS] = {"0", "1", "2", "3", "4", "5", "6", "7"};
    return line->colour == NEUTRAL ? "n" : names[line->colour % COLOURS];
}

static long path_x(const plot_frame *frame, double x) { return lround(WIDTH * share_x(frame, x)); }

/* Bands may leave the range of the axis. */
static long path_y(const plot_frame *frame, double y) { return lround(HEIGHT * fmin(fmax(share_y(frame, y), 0), 1)); }

/* The points of a path, the first of a piece with M, and the others relative to the one before. */
typedef struct {
    FILE *out;
    long x, y;
    size_t points; /* of this piece */
} pen;

static void move(pen *pen, long x, long y) {
    const long right = x - pen->x, down = y - pen->y;
    if (pen->points == 0) {
        fprintf(pen->out, "M%ld %ld", x, y);
    } else {
        fprintf(pen->out, down < 0 ? "%s%ld%ld" : "%s%ld %ld",
                pen->points == 1 ? "l"
                : right < 0      ? ""
                                 : " ",
                right, down);
    }
    pen->x = x;
    pen->y = y;
    pen->points++;
}

static bool has_point(const plot_frame *frame, const plot_line *line, size_t i) {
    return isfinite(line->x[i]) && is_drawn(frame->style, line->y[i]);
}

static void draw_path(FILE *out, const plot_frame *frame, const plot_line *line) {
    pen pen = {.out = out};
    fprintf(out, "<path class=\"l%s", colour_of(line));
    if (line->dash > 0) {
        fprintf(out, " d%d", line->dash % DASHES);
    }
    fprintf(out, "\" d=\"");
    for (size_t i = 0; i < line->count; i++) {
        if (has_point(frame, line, i)) {
            move(&pen, path_x(frame, line->x[i]), path_y(frame, line->y[i]));
        } else {
            pen.points = 0;
        }
    }
    fprintf(out, "\"><title>");
    put_text(out, line->label);
    fprintf(out, "</title></path>\n");
}

/* The range of what a point stands for, along [from, to), and back. */
static void draw_band_piece(pen *pen, const plot_frame *frame, const plot_line *line, size_t from, size_t to) {
    for (size_t i = from; i < to; i++) {
        move(pen, path_x(frame, line->x[i]), path_y(frame, line->most[i]));
    }
    for (size_t i = to; i > from; i--) {
        move(pen, path_x(frame, line->x[i - 1]), path_y(frame, line->least[i - 1]));
    }
    fprintf(pen->out, "z");
    pen->points = 0;
}

static void draw_band(FILE *out, const plot_frame *frame, const plot_line *line) {
    pen pen = {.out = out};
    fprintf(out, "<path class=\"band c%s\" d=\"", colour_of(line));
    for (size_t i = 0, from = 0; i <= line->count; i++) {
        if (i == line->count || !has_point(frame, line, i)) {
            if (i > from + 1) {
                draw_band_piece(&pen, frame, line, from, i);
            }
            from = i + 1;
        }
    }
    fprintf(out, "\"/>\n");
}

/* Dots are round ends of lines without length: they stay round where the plot is stretched. */
static void draw_marks(FILE *out, const plot_frame *frame, const plot_line *line) {
    char x[32], y[32];
    if (!line->tips) {
        fprintf(out, "<path class=\"dot l%s\" d=\"", colour_of(line));
    }
    for (size_t i = 0; i < line->count; i++) {
        if (!has_point(frame, line, i)) {
            continue;
        }
        const long right = path_x(frame, line->x[i]), down = path_y(frame, line->y[i]);
        if (!line->tips) {
            fprintf(out, "M%ld %ldh0", right, down);
            continue;
        }
        fprintf(out, "<path class=\"dot l%s\" d=\"M%ld %ldh0\"><title>", colour_of(line), right, down);
        put_text(out, line->label);
        fprintf(out, ", ");
        put_text(out, frame->style->axis);
        fprintf(out, " %s: %s ", tick_number(line->x[i], x), tick_number(line->y[i], y));
        put_text(out, frame->style->unit);
        fprintf(out, "</title></path>\n");
    }
    if (!line->tips) {
        fprintf(out, "\"/>\n");
    }
}

/* Labels of many lines would cover each other: then only tooltips have them. */
static void draw_verticals(FILE *out, const plot_frame *frame) {
    const plot_style *style = frame->style;
    for (size_t i = 0; i < style->line_count; i++) {
        const double x = share_x(frame, style->lines[i]);
        if (!(x >= 0 && x <= 1)) {
            continue;
        }
        fprintf(out, "<line class=\"limit\" x1=\"%.2f%%\" y1=\"0\" x2=\"%.2f%%\" y2=\"100%%\"><title>", 100 * x,
                100 * x);
        put_text(out, style->line_label);
        fprintf(out, " %s</title></line>", style->line_names[i]);
        if (style->line_count <= 2) {
            fprintf(out, "<text class=\"limit\" x=\"%.2f%%\" y=\"0\" dx=\"%s\" dy=\"%.1fem\" text-anchor=\"%s\">",
                    100 * x, x < 0.5 ? "5" : "-5", 1.0 + 1.2 * (double)i, x < 0.5 ? "start" : "end");
            put_text(out, style->line_label);
            fprintf(out, " %s</text>\n", style->line_names[i]);
        }
    }
}

bool draw_plot(FILE *out, const plot_line *lines, size_t count, const plot_style *style) {
    plot_frame frame = {.style = style};
    if (!set_ranges(&frame, lines, count)) {
        return false;
    }
    const ticks ticks = y_ticks(&frame);
    fprintf(out, "<div class=\"chart %s\" style=\"--left:%zupx\"><p class=\"unit\">",
            style->class != NULL ? style->class : "", longest_label(&ticks) * LETTER + GAP);
    put_text(out, style->unit);
    fprintf(out, "</p>\n<svg class=\"area\" role=\"img\" aria-label=\"");
    put_text(out, style->title);
    fprintf(out, "\">\n");
    draw_y_axis(out, &frame, &ticks);
    draw_x_axis(out, &frame);
    draw_verticals(out, &frame);
    fprintf(
        out,
        "<svg class=\"lines\" viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" width=\"100%%\" height=\"100%%\">\n",
        WIDTH, HEIGHT);
    for (size_t i = 0; i < count; i++) {
        const plot_line *line = &lines[i];
        if (line->run >= 0) {
            fprintf(out, "<g class=\"r%d\">", line->run);
        }
        if (line->least != NULL && line->most != NULL) {
            draw_band(out, &frame, line);
        }
        draw_path(out, &frame, line);
        if (line->marks) {
            draw_marks(out, &frame, line);
        }
        fprintf(out, "%s", line->run >= 0 ? "</g>\n" : "");
    }
    fprintf(out, "</svg></svg></div>\n");
    return true;
}

void put_line_legend(FILE *out, const plot_line *lines, size_t count) {
    fprintf(out, "<p class=\"legend\">");
    for (size_t i = 0; i < count; i++) {
        const char *tag = lines[i].run >= 0 ? "label" : "span";
        fprintf(out, "<%s", tag);
        if (lines[i].run >= 0) {
            fprintf(out, " for=\"i%d\"", lines[i].run);
        }
        fprintf(
            out,
            "><svg class=\"sample\" viewBox=\"0 0 26 10\" aria-hidden=\"true\"><path class=\"l%s d%d\" d=\"M1 5h24\"/>",
            colour_of(&lines[i]), lines[i].dash % DASHES);
        if (lines[i].marks) {
            fprintf(out, "<path class=\"dot l%s\" d=\"M13 5h0\"/>", colour_of(&lines[i]));
        }
        fprintf(out, "</svg>");
        put_text(out, lines[i].label);
        fprintf(out, "</%s> ", tag);
    }
    fprintf(out, "</p>\n");
}
