/* Line plots; the axes are chosen from the points.
 *
 * The lines are stretched to the width of the page, and the texts are not: a plot fits every screen, and its ticks have the same size on all. */
#ifndef TOOL_REPORT_LINE_PLOT_H
#define TOOL_REPORT_LINE_PLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { DASHES = 5 }; /* patterns of lines: classes d0 ... d4 */

typedef struct {
    const char *label;
    const double *x, *y;        /* [count]; x rises; a y that is not finite leaves a gap */
    const double *least, *most; /* [count]: a band around the line; or NULL */
    size_t count;
    int colour; /* or NEUTRAL */
    int dash;   /* below DASHES; 0: solid */
    bool marks; /* a dot for each point */
    bool tips;  /* with its value as a tooltip */
    int run;    /* the line belongs to class rN of the page; -1: to none */
} plot_line;

typedef struct {
    const char *title, *unit, *axis;
    const char *class;   /* of the whole plot; NULL: none */
    bool logarithmic;    /* y axis; points that are not positive are left out */
    bool from_zero;      /* a linear y axis begins at 0 */
    bool whole;          /* x is a count: ticks are whole numbers */
    const double *lines; /* x of vertical lines */
    size_t line_count;
    const char *line_label;
    const char *const *line_names; /* what is said of each beside the label */
} plot_style;

/* False if there is no point: then nothing is drawn. */
bool draw_plot(FILE *out, const plot_line *lines, size_t count, const plot_style *style);

/* A legend with a sample of each line. A line with a run is the label of the page's checkbox iN. */
void put_line_legend(FILE *out, const plot_line *lines, size_t count);

#endif
