/* Lines through points, on axes that follow from them. */
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
    bool marks; /* a dot a point, which shows its value */
    bool dashed;
} plot_line;

typedef struct {
    const char *title, *unit, *axis;
    bool logarithmic;    /* y; what is not positive is left out */
    bool from_zero;      /* the axis of y, where it is not logarithmic */
    bool whole;          /* x counts something: ticks are whole numbers */
    const double *lines; /* x of vertical lines */
    size_t line_count;
    const char *line_label;
} plot_style;

/* Lines with very many points are drawn through the means of neighbours. */
void draw_plot(FILE *out, const plot_line *lines, size_t count, const plot_style *style);

#endif
