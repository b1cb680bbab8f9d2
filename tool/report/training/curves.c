/* Curves over each x axis. A page has no scripts: it has a plot for each axis, and a style sheet shows that of the chosen radio input. */
#include "report/training/curves.h"

#include "report/drawing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_MARKS = 200, ALL_MARKS = 400, MOST_TIPS = 400 }; /* of a curve; of a plot; of a curve */

static const char *const axis_classes[AXES] = {"x0", "x1", "x2"};
static const log_value axis_values[AXES] = {VALUE_STEP, VALUE_SECONDS, VALUE_EPOCH};

/* ---- axes ---- */

static bool log_has(const training_log *log, log_value value) {
    return series_has(&log->progress, value) || series_has(&log->validations, value);
}

page_axes axes_of(const training_log *const *logs, size_t count) {
    page_axes axes = {.shown = {[AXIS_UPDATES] = true}, .unit = 1, .name = "seconds"};
    double seconds = 0;
    for (size_t i = 0; i < count; i++) {
        axes.shown[AXIS_TIME] = axes.shown[AXIS_TIME] || log_has(logs[i], VALUE_SECONDS);
        axes.shown[AXIS_EPOCHS] = axes.shown[AXIS_EPOCHS] || log_has(logs[i], VALUE_EPOCH);
        seconds = fmax(seconds, series_last(&logs[i]->progress, VALUE_SECONDS));
        seconds = fmax(seconds, series_last(&logs[i]->validations, VALUE_SECONDS));
    }
    if (seconds >= 3 * 3600) {
        axes.unit = 3600;
        axes.name = "hours";
    } else if (seconds >= 300) {
        axes.unit = 60;
        axes.name = "minutes";
    }
    return axes;
}

static const char *axis_name(const page_axes *axes, x_axis axis) {
    static const char *const names[AXES] = {[AXIS_UPDATES] = "updates", [AXIS_EPOCHS] = "epochs"};
    return axis == AXIS_TIME ? axes->name : names[axis];
}

void put_axis_choice(FILE *out, const page_axes *axes) {
    static const char *const labels[AXES] = {"updates", "time", "epochs"};
    if (!axes->shown[AXIS_TIME] && !axes->shown[AXIS_EPOCHS]) {
        return;
    }
    fprintf(out, "<span class=\"soft choices\">Curves over</span>\n");
    for (size_t i = 0; i < AXES; i++) {
        if (axes->shown[i]) {
            fprintf(out,
                    "<input type=\"radio\" class=\"hidden\" name=\"x\" id=\"%s\"%s>"
                    "<label class=\"choice\" for=\"%s\">%s</label>\n",
                    axis_classes[i], i == AXIS_UPDATES ? " checked" : "", axis_classes[i], labels[i]);
        }
    }
}

/* ---- points ---- */

/* What is drawn of a curve: each point stands for one or several neighbours. */
typedef struct {
    double *x[AXES], *y, *least, *most; /* [count] */
    size_t count, together;
} points;

/* Seconds that begin again, as those of runs of the same log may, go on from the last. */
typedef struct {
    double before, last;
} elapsed;

static double seconds_since_start(elapsed *elapsed, double seconds) {
    if (!isfinite(seconds)) {
        return NAN;
    }
    if (elapsed->before + seconds < elapsed->last) {
        elapsed->before = elapsed->last;
    }
    elapsed->last = elapsed->before + seconds;
    return elapsed->last;
}

/* Sums over neighbours. */
typedef struct {
    double x[AXES], x_count[AXES], y, count, least, most;
} sums;

static void add_to_sums(sums *sums, const value_curve *curve, size_t index, elapsed *elapsed, bool logarithmic) {
    for (size_t axis = 0; axis < AXES; axis++) {
        double x = series_value(curve->series, axis_values[axis], index);
        x = axis == AXIS_TIME ? seconds_since_start(elapsed, x) : x;
        if (isfinite(x)) {
            sums->x[axis] += x;
            sums->x_count[axis]++;
        }
    }
    const double y = series_value(curve->series, curve->value, index);
    if (isfinite(y) && (!logarithmic || y > 0)) {
        sums->y += logarithmic ? log(y) : y;
        sums->count++;
        sums->least = sums->count == 1 ? y : fmin(sums->least, y);
        sums->most = sums->count == 1 ? y : fmax(sums->most, y);
    }
}

static void put_sums(points *points, const sums *sums, const page_axes *axes, bool logarithmic) {
    const size_t at = points->count++;
    for (size_t axis = 0; axis < AXES; axis++) {
        const double x = sums->x_count[axis] > 0 ? sums->x[axis] / sums->x_count[axis] : NAN;
        points->x[axis][at] = axis == AXIS_TIME ? x / axes->unit : x;
    }
    const double y = sums->count > 0 ? sums->y / sums->count : NAN;
    points->y[at] = logarithmic ? exp(y) : y;
    points->least[at] = sums->count > 0 ? sums->least : NAN;
    points->most[at] = sums->count > 0 ? sums->most : NAN;
}

static points points_of(const value_curve *curve, const curves_style *style, const page_axes *axes) {
    const size_t count = curve->series->count, together = (count + style->most_points - 1) / style->most_points;
    points points = {.together = together};
    for (size_t axis = 0; axis < AXES; axis++) {
        points.x[axis] = need(style->most_points + 1, sizeof(double));
    }
    points.y = need(style->most_points + 1, sizeof(double));
    points.least = need(style->most_points + 1, sizeof(double));
    points.most = need(style->most_points + 1, sizeof(double));
    elapsed elapsed = {0};
    for (size_t i = 0; i < count; i += together) {
        sums sums = {.y = 0};
        for (size_t j = i; j < count && j < i + together; j++) {
            add_to_sums(&sums, curve, j, &elapsed, style->logarithmic);
        }
        put_sums(&points, &sums, axes, style->logarithmic);
    }
    return points;
}

static void free_points(points *points) {
    for (size_t axis = 0; axis < AXES; axis++) {
        free(points->x[axis]);
    }
    free(points->y);
    free(points->least);
    free(points->most);
}

bool curves_have_values(const value_curve *curves, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (series_has(curves[i].series, curves[i].value)) {
            return true;
        }
    }
    return false;
}

bool curves_need_logarithm(const value_curve *curves, size_t count) {
    double least = INFINITY, most = 0;
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j < curves[i].series->count; j++) {
            const double value = series_value(curves[i].series, curves[i].value, j);
            least = isfinite(value) ? fmin(least, value) : least;
            most = isfinite(value) ? fmax(most, value) : most;
        }
    }
    return least > 0 && most > 100 * least;
}

/* ---- plots ---- */

/* Where runs were resumed, on an axis: the place of the last point before. */
typedef struct {
    double *places;
    char (*labels)[64];
    const char **names;
} marks;

/* A place of a resume on the axis; the lines of resumes have no seconds. */
static double resume_place(const points *points, x_axis axis, double step) {
    double place = NAN;
    for (size_t i = 0; i < points->count && (points->x[AXIS_UPDATES][i] <= step || i == 0); i++) {
        place = points->x[axis][i];
    }
    return axis == AXIS_UPDATES ? step : place;
}

static marks marks_of(const log_series *resumes, const points *points, x_axis axis) {
    const size_t count = resumes != NULL ? resumes->count : 0;
    marks marks = {need(count, sizeof *marks.places), need(count, sizeof *marks.labels),
                   need(count, sizeof *marks.names)};
    for (size_t i = 0; i < count; i++) {
        const double step = series_value(resumes, VALUE_STEP, i);
        marks.places[i] = resume_place(points, axis, step);
        marks.names[i] = grouped(marks.labels[i], "%.0f", step);
    }
    return marks;
}

/* Of one of `count` curves. */
static plot_line line_of(const value_curve *curve, const points *points, x_axis axis, size_t count) {
    const bool single = points->count == 1;
    return (plot_line){.label = curve->label,
                       .x = points->x[axis],
                       .y = points->y,
                       .least = curve->band && points->together > 1 ? points->least : NULL,
                       .most = points->most,
                       .count = points->count,
                       .colour = curve->colour,
                       .dash = curve->dash,
                       .run = curve->run,
                       .marks = single ||
                                (curve->marks && points->count <= MOST_MARKS && points->count * count <= ALL_MARKS),
                       .tips = curve->run < 0 && points->count <= MOST_TIPS};
}

void put_curves(FILE *out, const value_curve *curves, size_t count, const curves_style *style, const page_axes *axes) {
    points *points = need(count, sizeof *points);
    plot_line *lines = need(count, sizeof *lines);
    for (size_t i = 0; i < count; i++) {
        points[i] = points_of(&curves[i], style, axes);
        lines[i] = line_of(&curves[i], &points[i], AXIS_UPDATES, count);
    }
    if (count > 1) {
        put_line_legend(out, lines, count);
    }
    for (x_axis axis = AXIS_UPDATES; axis < AXES; axis++) {
        if (!axes->shown[axis]) {
            continue;
        }
        marks marks = marks_of(style->resumes, &points[0], axis);
        const plot_style plot = {.title = style->title,
                                 .unit = style->unit,
                                 .axis = axis_name(axes, axis),
                                 .class = axis_classes[axis],
                                 .logarithmic = style->logarithmic,
                                 .from_zero = style->from_zero,
                                 .whole = axis == AXIS_UPDATES,
                                 .lines = marks.places,
                                 .line_count = style->resumes != NULL ? style->resumes->count : 0,
                                 .line_label = "resumed at",
                                 .line_names = marks.names};
        for (size_t i = 0; i < count; i++) {
            lines[i] = line_of(&curves[i], &points[i], axis, count);
        }
        if (!draw_plot(out, lines, count, &plot)) {
            fprintf(out, "<p class=\"%s soft\">The lines of these values have no %s.</p>\n", axis_classes[axis],
                    axis_name(axes, axis));
        }
        free(marks.places);
        free(marks.labels);
        free(marks.names);
    }
    for (size_t i = 0; i < count; i++) {
        free_points(&points[i]);
    }
    free(points);
    free(lines);
}
