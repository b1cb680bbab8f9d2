/* Drawing into a page: bars, curves, and the timeline, as SVG. */
#ifndef TOOL_REPORT_H
#define TOOL_REPORT_H

#include "bench/bench.h"

#include <stdio.h>

enum { COLOURS = 8 }; /* classes c0 ... c7 of the page; cn is neutral */
#define NEUTRAL (-1)

/* A page is one file, nothing fetched, no script; it is collected in a temporary file, and written whole or not at all. */
typedef struct page {
    const char *path;
    FILE *file; /* temporary */
} page;

bool page_open(page *page, const char *path); /* says why not */
bool page_close(page *page);                  /* behind the last section */
/* Up to the beginning of the paragraph behind the title. */
void begin_page(FILE *out, const char *what, const char *title);
void put_section(FILE *out, const char *id, const char *title, const char *about); /* the caller closes it */
void put_card(FILE *out, const char *value, const char *meaning);

/* Text with the five characters of HTML that must be escaped. */
void put_text(FILE *out, const char *text);
void put_plan(FILE *out, const char *plan); /* may be broken behind every rung */
/* "123", "12.3", "1.23": three digits that count. */
const char *short_number(double value, char room[32]);

typedef struct {
    const char *label, *note; /* note: behind the value; or NULL */
    double value;             /* below or equal 0: none, and the note says why */
    int colour;
} bar;

typedef struct {
    const char *title, *unit;
    double limit; /* a vertical line; 0: none */
    const char *limit_label;
    bool wide_labels; /* labels lie above their bars instead of beside them */
    bool long_notes;  /* much room behind the values */
} bar_style;

void draw_bars(FILE *out, const bar *bars, size_t count, const bar_style *style);

enum { PLACES = 10 }; /* that an axis has, at most */

typedef struct {
    const char *label;
    double values[PLACES]; /* over the places; 0: none */
    int colour;
    size_t guessed; /* from this place on values follow from those before; 0: none does */
} curve;

typedef struct {
    const char *title, *unit;
    const char *axis;      /* what the places are; NULL: batch size */
    const int64_t *places; /* NULL: batch_sizes */
    bool logarithmic;      /* values, which then are drawn as powers of ten */
    int width;
    size_t sizes;     /* how many places the axis has */
    double limits[2]; /* horizontal lines; 0: none */
    const char *limit_labels[2];
} curve_style;

void draw_curves(FILE *out, const curve *curves, size_t count, const curve_style *style);

/* What drawings share. */
void begin_svg(FILE *out, int width, int height, const char *title);
/* A step of 1, 2 or 5 times a power of ten that divides 0..most into at most `parts`. */
double nice_step(double most, int parts);
const char *tick_number(double value, char room[32]);

/* The whole call, then its beginning enlarged. */
void draw_timeline(FILE *out, const timeline *timeline);
void put_legend(FILE *out, const char *const *labels, const int *colours, size_t count);

void put_scan(FILE *out, const results *results);
void put_lengths(FILE *out, const results *results);
/* The sections that only some runs have, and how it was measured. */
void put_more(FILE *out, const bench *bench, const results *results);

extern const char report_style[]; /* CSS */

#endif
