/* The forms "chained" and "three": time in chunks that threads compute in parallel. A chunk is composed first: as a function of the
 * incoming carry it is product * carry + carried. So carries propagate from chunk to chunk quickly, and each chunk then runs the
 * recurrence itself from its own carry, which gives the results. The division of time depends on the shape alone, and so do all bits.
 *
 * A carry by composition differs from that of the recurrence by rounding, and by the contribution of a product that is not a normal
 * number, less than 2^20 times the least normal number times the carry. (Such a product counts as zero: the product of a chunk is
 * often subnormal, and subnormal numbers would make its steps many times slower.) The difference could be larger where something
 * overflows, or a product becomes subnormal and grows again: then the composition is not trusted, and the column's carry comes from
 * the recurrence. */
#include "device/cpu/scan/scan.h"

#include <math.h>
#include <string.h>

static void compose_chunk(const rcvi_scan *scan, int64_t index, const rcvi_scan_chunk *chunk, int member) {
    int64_t first, end;
    size_t bytes = (size_t)(scan->columns * scan->carry);
    rcvi_scan_bounds(scan, index, &first, &end);
    for (int64_t c = 0; c < scan->columns; c++) rcvi_scan_set_carry(scan, chunk->product, c, 1);
    memset(chunk->carried, 0, bytes);
    memset(chunk->largest, 0, bytes);
    memset(chunk->reach, RCVI_REACH_ALL, (size_t)scan->options.batch);
    rcvi_scan_sweep(scan, first, end, 0, scan->columns, &(rcvi_scan_sweep_args){.chunk = chunk, .member = member});
}

/* True if nothing overflowed, nor could overflow from this carry: the product was at most largest^steps, which is less than
 * e^growth, and a product that became subnormal could not grow again to where it matters. */
static bool is_trusted(const rcvi_scan *scan, const rcvi_scan_chunk *chunk, int64_t column, double carry) {
    const double growth = 13, limit = scan->carry == sizeof(double) ? 0x1p960 : 0x1p64;
    return isfinite(rcvi_scan_carry(scan, chunk->product, column)) &&
           isfinite(rcvi_scan_carry(scan, chunk->carried, column)) && fabs(carry) <= limit &&
           (rcvi_scan_carry(scan, chunk->largest, column) - 1) * (double)scan->chunk <= growth;
}

/* Updates the shared carry (scan->state) to the one after the chunk; chunk->incoming keeps the one before. */
static void propagate_carry(const rcvi_scan *scan, int64_t index, const rcvi_scan_chunk *chunk, int member) {
    int64_t first, end;
    rcvi_scan_bounds(scan, index, &first, &end);
    memcpy(chunk->incoming, scan->state, (size_t)(scan->columns * scan->carry));
    for (int64_t c = 0; c < scan->columns; c++) {
        bool alike = !scan->data->lengths && !scan->data->resets;
        int reach = chunk->reach[alike ? 0 : c / scan->options.channels];
        double carry = rcvi_scan_carry(scan, scan->state, c), carried = rcvi_scan_carry(scan, chunk->carried, c);
        if (reach == RCVI_REACH_NONE)
            rcvi_scan_set_carry(scan, scan->state, c, carried);
        else if (reach == RCVI_REACH_SOME && is_trusted(scan, chunk, c, carry))
            rcvi_scan_set_carry(scan, scan->state, c, rcvi_scan_carry(scan, chunk->product, c) * carry + carried);
        else if (reach == RCVI_REACH_SOME && !isnan(carry))
            rcvi_scan_sweep(scan, first, end, c, c + 1,
                            &(rcvi_scan_sweep_args){.carry = scan->state, .member = member});
    }
}

/* Runs the recurrence from the incoming carry. Where the chunk has the last visited step of a sequence, stores the final carry. */
static void run_chunk(const rcvi_scan *scan, int64_t index, const rcvi_scan_chunk *chunk, int member) {
    int64_t first, end, columns = scan->columns;
    rcvi_scan_bounds(scan, index, &first, &end);
    char *sum = scan->sums ? scan->sums + index * scan->row : NULL;
    if (sum) memset(sum, 0, (size_t)(columns * scan->carry));
    rcvi_scan_sweep_args args = {.carry = chunk->incoming, .sum = sum, .member = member};
    rcvi_scan_sweep(scan, first, end, 0, columns, &args);
    char *last = scan->gradients ? scan->gradients->dinitial : scan->data->final;
    for (int64_t column = 0; last && column < columns;) {
        rcvi_scan_strip strip = rcvi_scan_strip_at(scan, column, columns);
        int64_t at = column * scan->carry, step = scan->ascending ? strip.length - 1 : 0;
        if (step >= first && step < end)
            memcpy(last + at, chunk->incoming + at, (size_t)((strip.column_end - column) * scan->carry));
        column = strip.column_end;
    }
}

static void add_sums_of_chunks(rcvi_scan *scan, int member) {
    if (!scan->sums || !scan->gradients || !scan->gradients->dinitial) return;
    rcvi_team_barrier(scan->team, member);
    if (member == 0) rcvi_scan_add_sums(scan, 0, scan->columns);
}

/* A member composes a chunk, waits for the carry, propagates it, and runs the recurrence over the chunk, which its cache still
 * holds. */
void rcvi_scan_chained(rcvi_scan *scan, int member) {
    const rcvi_scan_chunk *chunk = &scan->compositions[member];
    for (int64_t i = member; i < scan->chunks; i += scan->members) {
        compose_chunk(scan, i, chunk, member);
        rcvi_team_wait_for(scan->team, &scan->carries_known, (unsigned)i);
        propagate_carry(scan, i, chunk, member);
        atomic_store_explicit(&scan->carries_known, (unsigned)i + 1, memory_order_release);
        run_chunk(scan, i, chunk, member);
    }
    add_sums_of_chunks(scan, member);
}

void rcvi_scan_three_passes(rcvi_scan *scan, int member) {
    int64_t first = scan->chunks * member / scan->members, end = scan->chunks * (member + 1) / scan->members;
    for (int64_t i = first; i < end; i++) compose_chunk(scan, i, &scan->compositions[i], member);
    rcvi_team_barrier(scan->team, member);
    for (int64_t i = 0; member == 0 && i < scan->chunks; i++) propagate_carry(scan, i, &scan->compositions[i], member);
    rcvi_team_barrier(scan->team, member);
    for (int64_t i = first; i < end; i++) run_chunk(scan, i, &scan->compositions[i], member);
    add_sums_of_chunks(scan, member);
}
