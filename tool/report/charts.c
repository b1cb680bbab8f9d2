/* HTML text, bar charts, and curves over a logarithmic axis. */
#include "report/drawing.h"

#include <math.h>
#include <string.h>

void put_text(FILE *out, const char *text) {
    for (; *text != '\0'; text++) {
        switch (*text) {
        case '&': fputs("&amp;", out); break;
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '"': fputs("&quot;", out); break;
        case '\'': fputs("&#39;", out); break;
        default: fputc(*text, out);
        }
    }
}

void put_plan(FILE *out, const char *plan) {
    for (; *plan != '\0'; plan++) {
        put_text(out, (const char[]){*plan, '\0'});
        if (*plan == '+') fputs("<wbr>", out);
    }
}

void group_digits(char *text, size_t room) {
    const size_t before = strcspn(text, "0123456789"), digits = strspn(text + before, "0123456789");
    const size_t length = strlen(text), commas = digits > 0 ? (digits - 1) / 3 : 0;
    if (length + commas >= room) {
        return;
    }
    char *from = text + before + digits, *to = from + commas;
    memmove(to, from, length - before - digits + 1);
    for (size_t i = 0; to > from; i++) {
        if (i > 0 && i % 3 == 0) {
            *--to = ',';
        }
        *--to = *--from;
    }
}

const char *grouped(char room[64], const char *format, double value) {
    snprintf(room, 64, format, value);
    group_digits(room, 64);
    return room;
}

const char *short_number(double value, char room[32]) {
    const int digits = value >= 99.95 || value <= 0 ? 0
                       : value >= 9.995             ? 1
                       : value >= 0.0995            ? 2
                       : value >= 0.00995           ? 3
                                                    : 4;
    snprintf(room, 32, "%.*f", digits, value);
    group_digits(room, 32);
    return room;
}

void put_legend(FILE *out, const char *const *labels, const int *colours, size_t count) {
    fprintf(out, "<p class=\"legend\">");
    for (size_t i = 0; i < count; i++) {
        if (colours[i] == NEUTRAL) {
            fprintf(out, "<span><i class=\"cn\"></i>");
        } else {
            fprintf(out, "<span><i class=\"c%d\"></i>", colours[i] % COLOURS);
        }
        put_text(out, labels[i]);
        fprintf(out, "</span> ");
    }
    fprintf(out, "</p>\n");
}

double nice_step(double most, int parts) {
    double step = pow(10, floor(log10(most / parts)));
    const double factors[] = {1, 2, 5, 10};
    for (size_t i = 0; i < COUNT(factors); i++) {
        if (most / (step * factors[i]) <= parts) {
            return step * factors[i];
        }
    }
    return step * 10;
}

const char *tick_number(double value, char room[32]) {
    const bool large = fabs(value) >= 999999.5 && fabs(value) < 1e15;
    snprintf(room, 32, large ? "%.0f" : "%.6g", value);
    group_digits(room, 32);
    return room;
}

void begin_svg(FILE *out, int width, int height, const char *title) {
    fprintf(out, "<div class=\"plot\"><svg viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\" aria-label=\"",
            width, height, width, height);
    put_text(out, title);
    fprintf(out, "\">\n");
}

/* ---- bars ---- */

enum { BAR_WIDTH = 1000, BAR_TOP = 8, BAR_BOTTOM = 44, VALUE_ROOM = 200, PLAN_ROOM = 420 };

typedef struct {
    int left, right, row, height; /* x of the plot; height of a row, and of a bar */
    double most;
} bar_frame;

static double bar_x(const bar_frame *frame, double value) {
    return frame->left + (frame->right - frame->left) * value / frame->most;
}

static void draw_bar_axis(FILE *out, const bar_frame *frame, const bar_style *style, int bottom) {
    const double step = nice_step(frame->most, 6);
    char room[32];
    for (double value = 0; value <= frame->most * 1.0001; value += step) {
        const double x = bar_x(frame, value);
        fprintf(out, "<line class=\"grid\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>", x, BAR_TOP, x, bottom);
        fprintf(out, "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", x, bottom + 16,
                tick_number(value, room));
    }
    fprintf(out, "<text class=\"axis\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">", (frame->left + frame->right) / 2,
            bottom + 36);
    put_text(out, style->unit);
    fprintf(out, "</text>\n");
}

static void draw_bar(FILE *out, const bar_frame *frame, const bar *bar, const bar_style *style, int top) {
    const int y = style->wide_labels ? top + 20 : top + (frame->row - frame->height) / 2;
    char room[32];
    if (style->wide_labels) {
        fprintf(out, "<text class=\"name\" x=\"%d\" y=\"%d\">", frame->left, top + 14);
    } else {
        fprintf(out, "<text class=\"name\" x=\"%d\" y=\"%d\" text-anchor=\"end\">", frame->left - 10,
                y + frame->height / 2 + 5);
    }
    put_text(out, bar->label);
    fprintf(out, "</text>");
    const double x = bar->value > 0 ? bar_x(frame, bar->value) : frame->left;
    if (bar->value > 0) {
        char colour[32] = "n";
        if (bar->colour != NEUTRAL) {
            snprintf(colour, sizeof colour, "%d", bar->colour % COLOURS);
        }
        fprintf(out, "<rect class=\"c%s\" x=\"%d\" y=\"%d\" width=\"%.1f\" height=\"%d\" rx=\"2\"><title>", colour,
                frame->left, y, fmax(x - frame->left, 1), frame->height);
        put_text(out, bar->label);
        fprintf(out, ": %s ", short_number(bar->value, room));
        put_text(out, style->unit);
        fprintf(out, "</title></rect>");
    }
    fprintf(out, "<text class=\"%s\" x=\"%.1f\" y=\"%d\">", bar->value > 0 ? "value" : "none", x + 7,
            y + frame->height / 2 + 5);
    if (bar->value > 0) {
        fprintf(out, "%s", short_number(bar->value, room));
    }
    if (bar->note != NULL) {
        fprintf(out, "<tspan class=\"%s\" dx=\"%d\">", bar->value > 0 ? "note" : "none", bar->value > 0 ? 8 : 0);
        char cut[140];
        snprintf(cut, sizeof cut, "%.120s%s", bar->note, strlen(bar->note) > 120 ? " ..." : "");
        put_text(out, cut);
        fprintf(out, "</tspan>");
    }
    fprintf(out, "</text>\n");
}

void draw_bars(FILE *out, const bar *bars, size_t count, const bar_style *style) {
    bar_frame frame = {.left = style->wide_labels ? 12 : 215,
                       .right = BAR_WIDTH - (style->long_notes ? PLAN_ROOM : VALUE_ROOM),
                       .row = style->wide_labels ? 46 : 32,
                       .height = style->wide_labels ? 18 : 20,
                       .most = style->limit};
    for (size_t i = 0; i < count; i++) {
        frame.most = fmax(frame.most, bars[i].value);
    }
    frame.most = frame.most > 0 ? frame.most : 1;
    const int bottom = BAR_TOP + (int)count * frame.row + (style->limit > 0 ? 20 : 0);
    begin_svg(out, BAR_WIDTH, bottom + BAR_BOTTOM, style->title);
    draw_bar_axis(out, &frame, style, bottom);
    for (size_t i = 0; i < count; i++) {
        draw_bar(out, &frame, &bars[i], style, BAR_TOP + (int)i * frame.row);
    }
    if (style->limit > 0) {
        const double x = bar_x(&frame, style->limit);
        fprintf(out, "<line class=\"limit\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>", x, BAR_TOP, x, bottom);
        fprintf(out, "<text class=\"limit\" x=\"%.1f\" y=\"%d\" text-anchor=\"end\">", x - 6, bottom - 6);
        put_text(out, style->limit_label);
        fprintf(out, "</text>\n");
    }
    fprintf(out, "</svg></div>\n");
}

/* ---- curves ---- */

typedef struct {
    int left, right, top, bottom;
    size_t sizes;
    const int64_t *places;
    const char *axis;
    double least, most; /* least 0: the y axis is linear; else logarithmic */
} curve_frame;

/* The x axis is logarithmic. A single position is in the middle. */
static double curve_x(const curve_frame *frame, size_t index) {
    const double first = (double)frame->places[0], last = (double)frame->places[frame->sizes - 1];
    const double share = frame->sizes > 1 ? log((double)frame->places[index] / first) / log(last / first) : 0.5;
    return frame->left + (frame->right - frame->left) * share;
}

static double curve_y(const curve_frame *frame, double value) {
    const double share =
        frame->least > 0 ? log(value / frame->least) / log(frame->most / frame->least) : value / frame->most;
    return frame->bottom - (frame->bottom - frame->top) * share;
}

/* "512", "64k", "16M" */
static const char *place_number(int64_t value, char room[32]) {
    const int64_t million = 1 << 20;
    const bool large = value >= million && value % million == 0, middle = value >= 1024 && value % 1024 == 0;
    snprintf(room, 32, "%lld%s",
             (long long)(large    ? value / million
                         : middle ? value / 1024
                                  : value),
             large    ? "M"
             : middle ? "k"
                      : "");
    return room;
}

static void draw_curve_axes(FILE *out, const curve_frame *frame, const curve_style *style) {
    const double step = nice_step(frame->most, 6);
    char room[32];
    for (double value = frame->least; value <= frame->most; value = frame->least > 0 ? value * 10 : value + step) {
        const double y = curve_y(frame, value);
        fprintf(out, "<line class=\"grid\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/>", frame->left, y, frame->right,
                y);
        fprintf(out, "<text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", frame->left - 8, y + 4,
                tick_number(value, room));
    }
    for (size_t i = 0; i < frame->sizes; i++) {
        fprintf(out, "<text class=\"tick\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>", curve_x(frame, i),
                frame->bottom + 18, place_number(frame->places[i], room));
    }
    fprintf(out, "\n<text class=\"axis\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>",
            (frame->left + frame->right) / 2, frame->bottom + 40, frame->axis);
    fprintf(out, "<text class=\"axis\" transform=\"translate(14 %d) rotate(-90)\" text-anchor=\"middle\">",
            (frame->top + frame->bottom) / 2);
    put_text(out, style->unit);
    fprintf(out, "</text>\n");
}

/* A line through positions [from, to). `name`: end of the colour's class. */
static void draw_line(FILE *out, const curve_frame *frame, const curve *curve, const char *name, size_t from,
                      size_t to) {
    bool drawing = false;
    fprintf(out, "<path class=\"l%s%s\" d=\"", name,
            to > curve->extrapolated && curve->extrapolated > 0 ? " guess" : "");
    for (size_t i = from; i < to; i++) {
        if (curve->values[i] > 0) {
            fprintf(out, "%s%.1f %.1f", drawing ? "L" : "M", curve_x(frame, i), curve_y(frame, curve->values[i]));
        }
        drawing = curve->values[i] > 0;
    }
    fprintf(out, "\"/>\n");
}

static void draw_curve(FILE *out, const curve_frame *frame, const curve *curve, const curve_style *style) {
    const size_t known = curve->extrapolated > 0 ? curve->extrapolated : frame->sizes;
    char name[32] = "n";
    if (curve->colour != NEUTRAL) {
        snprintf(name, sizeof name, "%d", curve->colour % COLOURS);
    }
    draw_line(out, frame, curve, name, 0, known);
    if (known < frame->sizes) {
        draw_line(out, frame, curve, name, known - 1, frame->sizes);
    }
    for (size_t i = 0; i < frame->sizes; i++) {
        char room[32];
        if (curve->values[i] > 0) {
            fprintf(out, "<circle class=\"%s%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"><title>", i < known ? "c" : "guess l",
                    name, curve_x(frame, i), curve_y(frame, curve->values[i]));
            put_text(out, curve->label);
            fprintf(out, ", %s %lld: %s ", frame->axis, (long long)frame->places[i],
                    short_number(curve->values[i], room));
            put_text(out, style->unit);
            fprintf(out, "%s</title></circle>", i < known ? "" : ", extrapolated");
        }
    }
    fprintf(out, "\n");
}

void draw_curves(FILE *out, const curve *curves, size_t count, const curve_style *style) {
    curve_frame frame = {.left = 66,
                         .right = style->width - 16,
                         .top = 24,
                         .bottom = 330,
                         .sizes = style->sizes,
                         .places = style->places != NULL ? style->places : batch_sizes,
                         .axis = style->axis != NULL ? style->axis : "batch size"};
    double least = INFINITY;
    for (size_t i = 0; i < COUNT(style->limits); i++) {
        frame.most = fmax(frame.most, style->limits[i]);
        least = style->limits[i] > 0 ? fmin(least, style->limits[i]) : least;
    }
    for (size_t i = 0; i < count * style->sizes; i++) {
        const double value = curves[i / style->sizes].values[i % style->sizes];
        frame.most = fmax(frame.most, value);
        least = value > 0 ? fmin(least, value) : least;
    }
    frame.most = frame.most > 0 ? frame.most * 1.08 : 1;
    if (style->logarithmic && least < frame.most) {
        frame.least = pow(10, floor(log10(least)));
        frame.most = fmax(frame.most, 10 * frame.least);
    }
    begin_svg(out, style->width, 380, style->title);
    draw_curve_axes(out, &frame, style);
    for (size_t i = 0; i < COUNT(style->limits); i++) {
        if (style->limits[i] > 0) {
            const double y = curve_y(&frame, style->limits[i]);
            fprintf(out, "<line class=\"limit\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/>", frame.left, y,
                    frame.right, y);
            fprintf(out, "<text class=\"limit\" x=\"%d\" y=\"%.1f\">", frame.left + 6, y - 6);
            put_text(out, style->limit_labels[i]);
            fprintf(out, "</text>\n");
        }
    }
    for (size_t i = 0; i < count; i++) {
        draw_curve(out, &frame, &curves[i], style);
    }
    fprintf(out, "</svg></div>\n");
}
