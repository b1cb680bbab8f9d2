/* Time in as many parts as there are threads, which take them side by side, each from a guess of what is carried before it: the
 * initial state, or backwards dL/dfinal. That is true of the first part alone. The others are then run again from what the
 * one before truly left, chunk by chunk, until a chunk leaves the carries that it had left before: from there on all is as
 * it would be written again, bit for bit. Gates that forget make that soon, whatever was guessed; where they do not forget,
 * the second run goes on to the end of the part. So bits are those of one step after the other, and only time depends
 * on the data. Columns that agree are left out, as far as they lie at either side of those that do not yet.
 *
 * How time is cut into chunks follows from the shape alone, and with it what boundaries add to dinitial. */
#include "device/cpu/scan/scan.h"

#include <string.h>

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* The carries behind the index-th chunk in the order of the visit. */
static char *end_of(const rcvi_scan *scan, int64_t index) { return scan->ends + index * scan->row; }

static int64_t first_chunk(const rcvi_scan *scan, int part) { return scan->chunks * part / scan->members; }

/* Runs a chunk's columns from `carry`, which is left as it is behind the chunk. */
static void run_chunk(const rcvi_scan *scan, int64_t index, int64_t column, int64_t column_end, char *carry,
                      int member) {
    int64_t first, end;
    rcvi_scan_bounds(scan, index, &first, &end);
    char *sum = scan->sums ? scan->sums + index * scan->row : NULL;
    if (sum) memset(sum + column * scan->carry, 0, (size_t)((column_end - column) * scan->carry));
    rcvi_scan_goal goal = {.carry = carry, .sum = sum, .member = member};
    rcvi_scan_sweep(scan, first, end, column, column_end, &goal);
}

static void guess_part(const rcvi_scan *scan, int member) {
    const char *carry = rcvi_scan_origin(scan);
    for (int64_t i = first_chunk(scan, member); i < first_chunk(scan, member + 1); i++) {
        memcpy(end_of(scan, i), carry, (size_t)(scan->columns * scan->carry));
        run_chunk(scan, i, 0, scan->columns, end_of(scan, i), member);
        carry = end_of(scan, i);
    }
}

/* What sequences left that ended behind step `after`, and at most at `step`, is what they leave behind all chunks from
 * index to last - 1. */
static void pass_ends(const rcvi_scan *scan, int64_t after, int64_t step, int64_t index, int64_t last, int64_t column,
                      int64_t column_end) {
    if (!scan->ascending || !scan->data->lengths) return;
    while (column < column_end) {
        rcvi_scan_strip strip = rcvi_scan_strip_at(scan, column, column_end);
        int64_t at = column * scan->carry;
        size_t bytes = (size_t)((strip.column_end - column) * scan->carry);
        for (int64_t i = index; strip.length > after && strip.length <= step && i < last; i++)
            memcpy(end_of(scan, i) + at, scan->state + at, bytes);
        column = strip.column_end;
    }
}

/* Leaves out columns whose carries agree with what the chunk had left, by cache lines. */
static void narrow(const rcvi_scan *scan, const char *end, int64_t *column, int64_t *column_end) {
    const int64_t size = scan->carry;
    int64_t first = *column, last = *column_end;
    while (first < last && !memcmp(scan->state + first * size, end + first * size, (size_t)size)) first++;
    while (first < last && !memcmp(scan->state + (last - 1) * size, end + (last - 1) * size, (size_t)size)) last--;
    *column = first < last ? first / scan->line * scan->line : *column_end;
    *column_end = smaller((last + scan->line - 1) / scan->line * scan->line, *column_end);
}

/* Runs a part again from what is carried behind the one before, which is true by now. */
static void mend_part(const rcvi_scan *scan, int part, int64_t column, int64_t column_end, int member) {
    int64_t index = first_chunk(scan, part), last = first_chunk(scan, part + 1), first, end;
    int64_t at = column * scan->carry;
    memcpy(scan->state + at, end_of(scan, index - 1) + at, (size_t)((column_end - column) * scan->carry));
    rcvi_scan_bounds(scan, index, &first, &end);
    pass_ends(scan, 0, first, index, last, column, column_end);
    for (; index < last && column < column_end; index++) {
        int64_t from = column * scan->carry;
        size_t bytes = (size_t)((column_end - column) * scan->carry);
        run_chunk(scan, index, column, column_end, scan->state, member);
        rcvi_scan_bounds(scan, index, &first, &end);
        pass_ends(scan, first, end, index, last, column, column_end);
        narrow(scan, end_of(scan, index), &column, &column_end);
        memcpy(end_of(scan, index) + from, scan->state + from, bytes);
    }
}

void rcvi_scan_guessed(rcvi_scan *scan, int member) {
    int64_t column, column_end;
    guess_part(scan, member);
    rcvi_team_barrier(scan->team, member);
    int64_t menders = smaller(scan->members, rcvi_scan_sharers(scan));
    if (!rcvi_scan_share(scan, member, menders, &column, &column_end)) return;
    for (int part = 1; part < scan->members; part++) mend_part(scan, part, column, column_end, member);
    char *last = scan->gradients ? scan->gradients->dinitial : scan->data->final;
    int64_t at = column * scan->carry;
    if (!last) return;
    memcpy(last + at, end_of(scan, scan->chunks - 1) + at, (size_t)((column_end - column) * scan->carry));
    if (scan->sums && scan->gradients) rcvi_scan_add_sums(scan, column, column_end);
}
