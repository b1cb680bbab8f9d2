/* Line plots; the axes are chosen from the points. */
#ifndef TOOL_REPORT_LINE_PLOT_H
#define TOOL_REPORT_LINE_PLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

typedef struct {
    double x, y; /* a y that is not finite leaves a gap */
} plot_point;

typedef struct {
    const char *label;
    const plot_point *points; /* x rises */
    size_t count;
    int colour; /* or NEUTRAL */
    bool marks; /* a dot for each point, with its value as a tooltip */
    bool dashed;
} plot_line;

typedef struct {
    const char *title, *unit, *axis;
    bool logarithmic;    /* y axis; points that are not positive are left out */
    bool from_zero;      /* a linear y axis begins at 0 */
    bool whole;          /* x is a count: ticks are whole numbers */
    const double *lines; /* x of vertical lines */
    size_t line_count;
    const char *line_label;
} plot_style;

/* A line with more than 1000 points is drawn through means of neighbours. */
void draw_plot(FILE *out, const plot_line *lines, size_t count, const plot_style *style);

#endif
