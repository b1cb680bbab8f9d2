/* Curves of training logs: values over updates, over time and over epochs, of which the reader of the page chooses one. */
#ifndef TOOL_REPORT_CURVES_H
#define TOOL_REPORT_CURVES_H

#include "report/line_plot.h"
#include "report/training/training_log.h"

typedef enum { AXIS_UPDATES, AXIS_TIME, AXIS_EPOCHS, AXES } x_axis;

/* The x axes of a page; an axis that no log has is not offered. */
typedef struct {
    bool shown[AXES];
    double unit;      /* seconds of the time axis' unit */
    const char *name; /* of the time axis */
} page_axes;

page_axes axes_of(const training_log *const *logs, size_t count);
/* The radio inputs, before the first section. */
void put_axis_choice(FILE *out, const page_axes *axes);

typedef struct {
    const char *label;
    const log_series *series;
    log_value value;
    int colour, dash; /* as of a plot_line */
    int run;          /* as of a plot_line */
    bool marks;       /* dots where there are few points */
    bool band;        /* show the range of the points that are drawn as one */
} value_curve;

typedef struct {
    const char *title, *unit;
    bool logarithmic, from_zero;
    size_t most_points;        /* of a curve: more are drawn as means of neighbours */
    const log_series *resumes; /* vertical lines; NULL: none */
} curves_style;

/* Does a curve have a value? */
bool curves_have_values(const value_curve *curves, size_t count);
/* Are all values positive, and the largest more than 100 times the smallest? */
bool curves_need_logarithm(const value_curve *curves, size_t count);
/* A legend if there are several curves, and a plot for each axis. */
void put_curves(FILE *out, const value_curve *curves, size_t count, const curves_style *style, const page_axes *axes);

#endif
