/* Line plots as SVG. */
#include "report/line_plot.h"

#include "report/drawing.h"

#include <math.h>

enum { WIDTH = 1000, HEIGHT = 380, LEFT = 74, RIGHT = WIDTH - 16, TOP = 24, BOTTOM = 330, MOST_POINTS = 1000 };

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

/* Sets the ranges of the axes. False if there is no point to draw. */
static bool set_ranges(plot_frame *frame, const plot_line *lines, size_t count) {
    frame->x_least = frame->y_least = INFINITY;
    frame->x_most = frame->y_most = -INFINITY;
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < lines[i].count; j++) {
            const plot_point *point = &lines[i].points[j];
            if (is_drawn(frame->style, point->y)) {
                frame->x_least = fmin(frame->x_least, point->x);
                frame->x_most = fmax(frame->x_most, point->x);
                frame->y_least = fmin(frame->y_least, point->y);
                frame->y_most = fmax(frame->y_most, point->y);
            }
        }
    }
    if (frame->x_least > frame->x_most) {
        return false;
    }
    add_margins(frame);
    return true;
}

static double place_x(const plot_frame *frame, double x) {
    return LEFT + (RIGHT - LEFT) * (x - frame->x_least) / (frame->x_most - frame->x_least);
}

static double place_y(const plot_frame *frame, double y) {
    const double share = frame->style->logarithmic ? log(y / frame->y_least) / log(frame->y_most / frame->y_least)
                                                   : (y - frame->y_least) / (frame->y_most - frame->y_least);
    return BOTTOM - (BOTTOM - TOP) * share;
}

/* ---- axes ---- */

static void draw_tick(FILE *out, const plot_frame *frame, double value) {
    char room[32];
    const double y = place_y(frame, value);
    fprintf(out, "<line class=\"grid\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/>", LEFT, y, RIGHT, y);
    fprintf(out, "<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", LEFT - 8, y + 4,
            tick_number(value, room));
}

/* Ticks at 1, 2 and 5 times powers of ten: returns how many are in range, and draws them if `out` is not NULL. */
static int decade_ticks(FILE *out, const plot_frame *frame) {
    const double factors[] = {1, 2, 5};
    int count = 0;
    for (int power = (int)floor(log10(frame->y_least)); pow(10, power) <= frame->y_most; power++) {
        for (size_t i = 0; i < COUNT(factors); i++) {
            const double value = factors[i] * pow(10, power);
            if (value >= frame->y_least && value <= frame->y_most) {
                count++;
                if (out != NULL) {
                    draw_tick(out, frame, value);
                }
            }
        }
    }
    return count;
}

static void draw_y_axis(FILE *out, const plot_frame *frame) {
    if (frame->style->logarithmic && decade_ticks(NULL, frame) >= 3) {
        decade_ticks(out, frame);
    } else {
        const double step = nice_step(frame->y_most - frame->y_least, 6);
        for (double i = ceil(frame->y_least / step); i * step <= frame->y_most; i++) {
            draw_tick(out, frame, i * step);
        }
    }
    fprintf(out, "<text class=\"axis\" transform=\"translate(14 %d) rotate(-90)\" text-anchor=\"middle\">",
            (TOP + BOTTOM) / 2);
    put_text(out, frame->style->unit);
    fprintf(out, "</text>\n");
}

static void draw_x_axis(FILE *out, const plot_frame *frame) {
    const double step = fmax(nice_step(frame->x_most - frame->x_least, 8), frame->style->whole ? 1 : 0);
    for (double i = ceil(frame->x_least / step); i * step <= frame->x_most; i++) {
        fprintf(out, "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.12g</text>",
                place_x(frame, i * step), BOTTOM + 18, i * step);
    }
    fprintf(out, "\n<text class=\"axis\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">", (LEFT + RIGHT) / 2, BOTTOM + 40);
    put_text(out, frame->style->axis);
    fprintf(out, "</text>\n");
}

/* ---- lines ---- */

/* The mean of `count` points; on a logarithmic axis the mean of logarithms. */
static plot_point mean_of(const plot_frame *frame, const plot_point *first, size_t count) {
    double x = 0, y = 0, drawn = 0;
    for (size_t i = 0; i < count; i++) {
        x += first[i].x;
        if (is_drawn(frame->style, first[i].y)) {
            y += frame->style->logarithmic ? log(first[i].y) : first[i].y;
            drawn++;
        }
    }
    y = drawn > 0 ? y / drawn : NAN;
    return (plot_point){x / (double)count, frame->style->logarithmic ? exp(y) : y};
}

/* The end of the colour's class: "0" ... "7", or "n". */
static const char *colour_of(const plot_line *line) {
    static const char *const names[COLOURS] = {"0", "1", "2", "3", "4", "5", "6", "7"};
    return line->colour == NEUTRAL ? "n" : names[line->colour % COLOURS];
}

static void draw_path(FILE *out, const plot_frame *frame, const plot_line *line) {
    const size_t together = line->marks ? 1 : (line->count + MOST_POINTS - 1) / MOST_POINTS;
    bool drawing = false;
    fprintf(out, "<path class=\"l%s%s\" d=\"", colour_of(line), line->dashed ? " guess" : "");
    for (size_t i = 0; i < line->count; i += together) {
        const size_t left = line->count - i;
        const plot_point point = mean_of(frame, &line->points[i], left < together ? left : together);
        const bool drawn = is_drawn(frame->style, point.y);
        if (drawn) {
            fprintf(out, "%s%.1f %.1f", drawing ? "L" : "M", place_x(frame, point.x), place_y(frame, point.y));
        }
        drawing = drawn;
    }
    fprintf(out, "\"/>\n");
}

static void draw_marks(FILE *out, const plot_frame *frame, const plot_line *line) {
    for (size_t i = 0; i < line->count; i++) {
        const plot_point *point = &line->points[i];
        if (is_drawn(frame->style, point->y)) {
            fprintf(out, "<circle class=\"c%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"><title>", colour_of(line),
                    place_x(frame, point->x), place_y(frame, point->y));
            put_text(out, line->label);
            fprintf(out, ", ");
            put_text(out, frame->style->axis);
            fprintf(out, " %.12g: %.6g ", point->x, point->y);
            put_text(out, frame->style->unit);
            fprintf(out, "</title></circle>\n");
        }
    }
}

static void draw_verticals(FILE *out, const plot_frame *frame) {
    const plot_style *style = frame->style;
    for (size_t i = 0; i < style->line_count; i++) {
        const double x = place_x(frame, style->lines[i]);
        if (x < LEFT || x > RIGHT) {
            continue;
        }
        fprintf(out, "<line class=\"limit\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"><title>", x, TOP, x, BOTTOM);
        put_text(out, style->line_label);
        fprintf(out, " %.12g</title></line>", style->lines[i]);
        fprintf(out, "<text class=\"limit\" x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">", x, TOP - 8,
                x < (LEFT + RIGHT) / 2.0 ? "start" : "end");
        put_text(out, style->line_label);
        fprintf(out, " %.12g</text>\n", style->lines[i]);
    }
}

void draw_plot(FILE *out, const plot_line *lines, size_t count, const plot_style *style) {
    plot_frame frame = {.style = style};
    if (!set_ranges(&frame, lines, count)) {
        return;
    }
    begin_svg(out, WIDTH, HEIGHT, style->title);
    draw_y_axis(out, &frame);
    draw_x_axis(out, &frame);
    draw_verticals(out, &frame);
    for (size_t i = 0; i < count; i++) {
        draw_path(out, &frame, &lines[i]);
        if (lines[i].marks) {
            draw_marks(out, &frame, &lines[i]);
        }
    }
    fprintf(out, "</svg></div>\n");
}
