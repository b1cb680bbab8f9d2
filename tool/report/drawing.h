/* What pages are made of: text, sections and cards as HTML; bars, curves and timelines as SVG. */
#ifndef TOOL_REPORT_DRAWING_H
#define TOOL_REPORT_DRAWING_H

#include "bench/results.h"

#include <stdio.h>

enum { COLOURS = 8 }; /* classes c0 ... c7 of the page; cn is neutral */
#define NEUTRAL (-1)

/* A page is collected in a temporary file, and written whole or not at all. */
typedef struct page {
    const char *path;
    FILE *file; /* temporary */
} page;

bool page_open(page *page, const char *path); /* false after saying why */
bool page_close(page *page);                  /* after the last section: writes the page */
/* Head and title; `head`: more for the head, as HTML, or NULL. Ends inside the paragraph that follows the title; the caller closes it. */
void begin_page(FILE *out, const char *what, const char *title, const char *head);
void put_section(FILE *out, const char *id, const char *title, const char *about); /* the caller closes it */
void put_card(FILE *out, const char *value, const char *meaning);

/* Text, with HTML's special characters escaped. */
void put_text(FILE *out, const char *text);
void put_plan(FILE *out, const char *plan); /* a plan string; a line may break after every rung */
/* "12,300", "123", "12.3", "1.23": at least three significant digits. */
const char *short_number(double value, char room[32]);
/* Puts commas between groups of three digits of the first number in the text, before its point: "12345.678 s" becomes "12,345.678 s". */
void group_digits(char *text, size_t room);
/* A value by a format, with its digits grouped; room for 64 bytes. */
const char *grouped(char room[64], const char *format, double value);

typedef struct {
    const char *label, *note; /* note: after the value; or NULL */
    double value;             /* 0 or less: no bar, and the note says why */
    int colour;
} bar;

typedef struct {
    const char *title, *unit;
    double limit; /* a vertical line; 0: none */
    const char *limit_label;
    bool wide_labels; /* labels are above their bars, not beside them */
    bool long_notes;  /* leave much room after the values */
} bar_style;

void draw_bars(FILE *out, const bar *bars, size_t count, const bar_style *style);

enum { PLACES = 10 }; /* positions on an axis, at most */

typedef struct {
    const char *label;
    double values[PLACES]; /* one a position; 0: none */
    int colour;
    size_t extrapolated; /* values from this position on are extrapolated; 0: none is */
} curve;

typedef struct {
    const char *title, *unit;
    const char *axis;      /* name of the x axis; NULL: batch size */
    const int64_t *places; /* positions on the x axis; NULL: batch_sizes */
    bool logarithmic;      /* y axis */
    int width;
    size_t sizes;     /* positions on the x axis */
    double limits[2]; /* horizontal lines; 0: none */
    const char *limit_labels[2];
} curve_style;

void draw_curves(FILE *out, const curve *curves, size_t count, const curve_style *style);

/* ---- helpers of drawings ---- */

void begin_svg(FILE *out, int width, int height, const char *title);
/* A step of 1, 2 or 5 times a power of ten that divides 0..most into at most `parts` parts. */
double nice_step(double most, int parts);
const char *tick_number(double value, char room[32]); /* six significant digits, grouped */

/* ---- sections of the page of recurve bench ---- */

/* The whole call, then the first steps enlarged. */
void draw_timeline(FILE *out, const timeline *timeline);
void put_legend(FILE *out, const char *const *labels, const int *colours, size_t count);

void put_scan(FILE *out, const results *results);
void put_lengths(FILE *out, const results *results);
/* The sections of optional experiments, and how the results were measured. */
void put_optional_sections(FILE *out, const bench *bench, const results *results);

extern const char report_style[]; /* CSS */

#endif
