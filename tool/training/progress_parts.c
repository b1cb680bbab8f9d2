#include "training/progress_parts.h"

#include "tool.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { SHORTEST_BAR = 8, LONGEST_BAR = 32, GAP = 2 }; /* columns; the gap is between parts */

static line_part *add(part_line *line, int rank) {
    line_part *part = &line->parts[line->count < MOST_PARTS ? line->count++ : MOST_PARTS - 1];
    *part = (line_part){.rank = rank};
    return part;
}

void parts_add(part_line *line, int rank, const char *format, ...) {
    line_part *part = add(line, rank);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(part->text, sizeof part->text, format, arguments);
    va_end(arguments);
}

void parts_add_bar(part_line *line, int rank) { add(line, rank)->is_bar = true; }

/* ---- the width ---- */

static size_t width_of(const part_line *line) {
    size_t width = 0;
    for (size_t i = 0; i < line->count; i++) {
        const line_part *part = &line->parts[i];
        if (!part->is_left_out) {
            width += (width > 0 ? GAP : 0) + (part->is_bar ? SHORTEST_BAR : strlen(part->text));
        }
    }
    return width;
}

/* Leaves out the part of the highest rank. False: none is left that may be left out. */
static bool leave_out(part_line *line) {
    line_part *worst = NULL;
    for (size_t i = 0; i < line->count; i++) {
        line_part *part = &line->parts[i];
        if (!part->is_left_out && part->rank > (worst != NULL ? worst->rank : 0)) {
            worst = part;
        }
    }
    if (worst != NULL) {
        worst->is_left_out = true;
    }
    return worst != NULL;
}

/* ---- the bar ---- */

/* Writes a bar of so many columns to `text`; a block of Unicode has three bytes. Its length in bytes. */
static size_t print_bar(char *text, double done, size_t columns, bool is_unicode) {
    static const char *const eighths[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"};
    const double part = done > 1 ? 1 : done > 0 ? done : 0;
    const size_t inside = is_unicode ? columns : columns - 2;
    const size_t filled = (size_t)(part * (double)inside * 8); /* in eighths of a column */
    char *at = text;
    if (!is_unicode) {
        *at++ = '[';
    }
    for (size_t i = 0; i < inside; i++) {
        const size_t here = filled > 8 * i ? filled - 8 * i : 0;
        const char *cell = is_unicode ? eighths[here < 8 ? here : 8] : here >= 8 ? "#" : ".";
        while (*cell != '\0') {
            *at++ = *cell++;
        }
    }
    if (!is_unicode) {
        *at++ = ']';
    }
    return (size_t)(at - text);
}

char *parts_print(part_line *line, size_t columns, bool is_unicode) {
    size_t width = width_of(line);
    while (width > columns && leave_out(line)) {
        width = width_of(line);
    }
    const size_t more = columns > width ? columns - width : 0, longest = LONGEST_BAR - SHORTEST_BAR;
    const size_t bar = SHORTEST_BAR + (more < longest ? more : longest);
    char *text = need(MOST_PARTS * (PART_BYTES + GAP) + 3 * LONGEST_BAR + 3, 1), *at = text;
    for (size_t i = 0; i < line->count; i++) {
        const line_part *part = &line->parts[i];
        if (part->is_left_out) {
            continue;
        }
        if (at > text) {
            memset(at, ' ', GAP);
            at += GAP;
        }
        if (part->is_bar) {
            at += print_bar(at, line->done, bar, is_unicode);
        } else {
            memcpy(at, part->text, strlen(part->text));
            at += strlen(part->text);
        }
    }
    if (width > columns) { /* what may not be left out is too long: it is ASCII */
        text[columns] = '\0';
    }
    return text;
}
