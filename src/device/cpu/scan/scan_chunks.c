/* Time in chunks that threads take side by side. A chunk is composed first: what it makes of any incoming carry is
 * product * carry + carried. So carries go from chunk to chunk at once, and each chunk then runs the recurrence itself from
 * its own, which is what is written. How time is cut follows from the shape alone, and with it every bit.
 *
 * A carry by composition differs from that of the recurrence by roundings, and by what a product too small for a normal
 * number would have kept, less than 2^20 times the least normal number times the carry. (Such a product counts as zero: a chunk's
 * product often sinks that far, and numbers that are not normal would make its steps many times slower.) It could differ by
 * more where something overflows, or a product sinks and grows again: then the chunk is not trusted, and the column's carry
 * comes from the recurrence. */
#include "device/cpu/scan/scan.h"

#include <math.h>
#include <string.h>

enum {
    NONE,
    SOME,
    ALL
}; /* of the incoming carry: does it reach the end of the chunk? NONE: a boundary is in between;
                           * ALL: the sequence has no step in the chunk */

static void compose(const rcvi_scan *scan, int64_t index, const rcvi_scan_chunk *chunk, int member) {
    int64_t first, end;
    size_t bytes = (size_t)(scan->columns * scan->carry);
    rcvi_scan_bounds(scan, index, &first, &end);
    for (int64_t c = 0; c < scan->columns; c++) rcvi_scan_set_carry(scan, chunk->product, c, 1);
    memset(chunk->carried, 0, bytes);
    memset(chunk->largest, 0, bytes);
    memset(chunk->reach, RCVI_REACH_ALL, (size_t)scan->options.batch);
    rcvi_scan_sweep(scan, first, end, 0, scan->columns, &(rcvi_scan_goal){.chunk = chunk, .member = member});
}

/* Nothing overflowed, nor could it on the way from this carry: the product never was more than largest^steps, which is less
 * than e^growth, and a product that sank below normal numbers could not come back to where it counts. */
static bool is_trusted(const rcvi_scan *scan, const rcvi_scan_chunk *part, int64_t column, double carry) {
    const double growth = 13, limit = scan->carry == sizeof(double) ? 0x1p960 : 0x1p64;
    return isfinite(rcvi_scan_carry(scan, part->product, column)) &&
           isfinite(rcvi_scan_carry(scan, part->carried, column)) && fabs(carry) <= limit &&
           (rcvi_scan_carry(scan, part->largest, column) - 1) * (double)scan->chunk <= growth;
}

/* The shared carry is taken behind the chunk; `incoming` keeps what it was. */
static void pass_on(const rcvi_scan *scan, int64_t index, const rcvi_scan_chunk *part, int member) {
    int64_t first, end;
    rcvi_scan_bounds(scan, index, &first, &end);
    memcpy(part->incoming, scan->state, (size_t)(scan->columns * scan->carry));
    for (int64_t c = 0; c < scan->columns; c++) {
        bool alike = !scan->data->lengths && !scan->data->resets;
        int reach = part->reach[alike ? 0 : c / scan->options.channels];
        double carry = rcvi_scan_carry(scan, scan->state, c), carried = rcvi_scan_carry(scan, part->carried, c);
        if (reach == RCVI_REACH_NONE)
            rcvi_scan_set_carry(scan, scan->state, c, carried);
        else if (reach == RCVI_REACH_SOME && is_trusted(scan, part, c, carry))
            rcvi_scan_set_carry(scan, scan->state, c, rcvi_scan_carry(scan, part->product, c) * carry + carried);
        else if (reach == RCVI_REACH_SOME && !isnan(carry))
            rcvi_scan_sweep(scan, first, end, c, c + 1, &(rcvi_scan_goal){.carry = scan->state, .member = member});
    }
}

/* The recurrence from the incoming carry. Where it ends a sequence, its carry is what is left of that. */
static void expand(const rcvi_scan *scan, int64_t index, const rcvi_scan_chunk *part, int member) {
    int64_t first, end, columns = scan->columns;
    rcvi_scan_bounds(scan, index, &first, &end);
    char *sum = scan->sums ? scan->sums + index * scan->row : NULL;
    if (sum) memset(sum, 0, (size_t)(columns * scan->carry));
    rcvi_scan_goal goal = {.carry = part->incoming, .sum = sum, .member = member};
    rcvi_scan_sweep(scan, first, end, 0, columns, &goal);
    char *last = scan->gradients ? scan->gradients->dinitial : scan->data->final;
    for (int64_t column = 0; last && column < columns;) {
        rcvi_scan_strip strip = rcvi_scan_strip_at(scan, column, columns);
        int64_t at = column * scan->carry, step = scan->ascending ? strip.length - 1 : 0;
        if (step >= first && step < end)
            memcpy(last + at, part->incoming + at, (size_t)((strip.column_end - column) * scan->carry));
        column = strip.column_end;
    }
}

static void end_sums(rcvi_scan *scan, int member) {
    if (!scan->sums || !scan->gradients || !scan->gradients->dinitial) return;
    rcvi_team_barrier(scan->team, member);
    if (member == 0) rcvi_scan_add_sums(scan, 0, scan->columns);
}

/* A member composes a chunk, waits for the carry, hands it on and runs the recurrence over what its cache still holds. */
void rcvi_scan_chained(rcvi_scan *scan, int member) {
    const rcvi_scan_chunk *part = &scan->parts[member];
    for (int64_t i = member; i < scan->chunks; i += scan->members) {
        compose(scan, i, part, member);
        rcvi_team_wait_for(scan->team, &scan->linked, (unsigned)i);
        pass_on(scan, i, part, member);
        atomic_store_explicit(&scan->linked, (unsigned)i + 1, memory_order_release);
        expand(scan, i, part, member);
    }
    end_sums(scan, member);
}

void rcvi_scan_three(rcvi_scan *scan, int member) {
    int64_t first = scan->chunks * member / scan->members, end = scan->chunks * (member + 1) / scan->members;
    for (int64_t i = first; i < end; i++) compose(scan, i, &scan->parts[i], member);
    rcvi_team_barrier(scan->team, member);
    for (int64_t i = 0; member == 0 && i < scan->chunks; i++) pass_on(scan, i, &scan->parts[i], member);
    rcvi_team_barrier(scan->team, member);
    for (int64_t i = first; i < end; i++) expand(scan, i, &scan->parts[i], member);
    end_sums(scan, member);
}
