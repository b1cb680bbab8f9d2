/* The form "guessed": time in as many parts as there are threads, computed in parallel, each from a guess of the carry before it
 * (the initial state, or dL/dfinal in a backward call). The guess is right for the first part only. All other parts are then run
 * again from the true carry after the part before, chunk by chunk, until a chunk ends with the same carry as in the first run: from
 * there on all results would be the same, bit for bit. Gates that forget make that happen soon, whatever the guess; gates that do
 * not forget make the second run go on to the end of the part. So the bits are those of the sequential recurrence, and only the time
 * depends on the data. Columns that agree are left out of the second run, at either side of those that do not agree yet.
 *
 * The division of time into chunks depends on the shape alone, and with it what boundaries add to dinitial. */
#include "device/cpu/scan/scan.h"

#include <string.h>

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* The carries after the index-th chunk in the order of the visit. */
static char *carry_after(const rcvi_scan *scan, int64_t index) { return scan->chunk_carries + index * scan->row; }

static int64_t first_chunk(const rcvi_scan *scan, int part) { return scan->chunks * part / scan->members; }

/* Runs columns of a chunk from `carry`, which is updated to the carry after the chunk. */
static void run_chunk(const rcvi_scan *scan, int64_t index, int64_t column, int64_t column_end, char *carry,
                      int member) {
    int64_t first, end;
    rcvi_scan_bounds(scan, index, &first, &end);
    char *sum = scan->sums ? scan->sums + index * scan->row : NULL;
    if (sum) memset(sum + column * scan->carry, 0, (size_t)((column_end - column) * scan->carry));
    rcvi_scan_sweep_args args = {.carry = carry, .sum = sum, .member = member};
    rcvi_scan_sweep(scan, first, end, column, column_end, &args);
}

static void run_part_from_guess(const rcvi_scan *scan, int member) {
    const char *carry = rcvi_scan_initial_carry(scan);
    for (int64_t i = first_chunk(scan, member); i < first_chunk(scan, member + 1); i++) {
        memcpy(carry_after(scan, i), carry, (size_t)(scan->columns * scan->carry));
        run_chunk(scan, i, 0, scan->columns, carry_after(scan, i), member);
        carry = carry_after(scan, i);
    }
}

/* Sequences whose length is greater than `after` and at most `step` have ended: their carry (scan->state) is also the carry after
 * chunks index to last - 1. */
static void propagate_ended(const rcvi_scan *scan, int64_t after, int64_t step, int64_t index, int64_t last,
                            int64_t column, int64_t column_end) {
    if (!scan->ascending || !scan->data->lengths) return;
    while (column < column_end) {
        rcvi_scan_strip strip = rcvi_scan_strip_at(scan, column, column_end);
        int64_t at = column * scan->carry;
        size_t bytes = (size_t)((strip.column_end - column) * scan->carry);
        for (int64_t i = index; strip.length > after && strip.length <= step && i < last; i++)
            memcpy(carry_after(scan, i) + at, scan->state + at, bytes);
        column = strip.column_end;
    }
}

/* Removes, by cache lines, columns at either side whose carries agree with those of the first run. */
static void trim_columns(const rcvi_scan *scan, const char *end, int64_t *column, int64_t *column_end) {
    const int64_t size = scan->carry;
    int64_t first = *column, last = *column_end;
    while (first < last && !memcmp(scan->state + first * size, end + first * size, (size_t)size)) first++;
    while (first < last && !memcmp(scan->state + (last - 1) * size, end + (last - 1) * size, (size_t)size)) last--;
    *column = first < last ? first / scan->line * scan->line : *column_end;
    *column_end = smaller((last + scan->line - 1) / scan->line * scan->line, *column_end);
}

/* Runs a part again from the carry after the part before, which is correct by now. */
static void correct_part(const rcvi_scan *scan, int part, int64_t column, int64_t column_end, int member) {
    int64_t index = first_chunk(scan, part), last = first_chunk(scan, part + 1), first, end;
    int64_t at = column * scan->carry;
    memcpy(scan->state + at, carry_after(scan, index - 1) + at, (size_t)((column_end - column) * scan->carry));
    rcvi_scan_bounds(scan, index, &first, &end);
    propagate_ended(scan, 0, first, index, last, column, column_end);
    for (; index < last && column < column_end; index++) {
        int64_t from = column * scan->carry;
        size_t bytes = (size_t)((column_end - column) * scan->carry);
        run_chunk(scan, index, column, column_end, scan->state, member);
        rcvi_scan_bounds(scan, index, &first, &end);
        propagate_ended(scan, first, end, index, last, column, column_end);
        trim_columns(scan, carry_after(scan, index), &column, &column_end);
        memcpy(carry_after(scan, index) + from, scan->state + from, bytes);
    }
}

void rcvi_scan_guessed(rcvi_scan *scan, int member) {
    int64_t column, column_end;
    run_part_from_guess(scan, member);
    rcvi_team_barrier(scan->team, member);
    int64_t threads = smaller(scan->members, rcvi_scan_column_threads(scan));
    if (!rcvi_scan_member_columns(scan, member, threads, &column, &column_end)) return;
    for (int part = 1; part < scan->members; part++) correct_part(scan, part, column, column_end, member);
    char *last = scan->gradients ? scan->gradients->dinitial : scan->data->final;
    int64_t at = column * scan->carry;
    if (!last) return;
    memcpy(last + at, carry_after(scan, scan->chunks - 1) + at, (size_t)((column_end - column) * scan->carry));
    if (scan->sums && scan->gradients) rcvi_scan_add_sums(scan, column, column_end);
}
