/* A sweep: the recurrence, or its composition, over a range of steps and columns, with lengths and resets. It is divided into segments
 * without a boundary inside, which the kernels compute. */
#include "device/cpu/scan/scan.h"

#include <string.h>

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

const char *rcvi_scan_initial_carry(const rcvi_scan *scan) {
    const void *given = scan->gradients ? scan->gradients->dfinal : scan->data->initial;
    return given ? given : scan->zeros;
}

void rcvi_scan_bounds(const rcvi_scan *scan, int64_t index, int64_t *first, int64_t *end) {
    int64_t chunk = scan->ascending ? index : scan->chunks - 1 - index;
    *first = chunk * scan->chunk;
    *end = chunk + 1 < scan->chunks ? *first + scan->chunk : scan->options.steps;
}

bool rcvi_scan_member_columns(const rcvi_scan *scan, int member, int64_t members, int64_t *column,
                              int64_t *column_end) {
    int64_t lines = (scan->columns + scan->line - 1) / scan->line;
    *column = lines * member / members * scan->line;
    *column_end = smaller(lines * (member + 1) / members * scan->line, scan->columns);
    return member < members && *column < *column_end;
}

void rcvi_scan_add_sums(const rcvi_scan *scan, int64_t column, int64_t column_end) {
    char *to = scan->gradients->dinitial;
    for (int64_t c = column; c < column_end; c++) {
        rcvi_scan_set_carry(scan, scan->sum, c, 0);
        for (int64_t i = 0; i < scan->chunks; i++) rcvi_scan_add_carry(scan, scan->sum, scan->sums + i * scan->row, c);
        rcvi_scan_add_carry(scan, to, scan->sum, c);
    }
}

rcvi_scan_strip rcvi_scan_strip_at(const rcvi_scan *scan, int64_t column, int64_t column_end) {
    const rcv_scan_data *data = scan->data;
    if (!data->lengths && !data->resets)
        return (rcvi_scan_strip){.column = column, .column_end = column_end, .length = scan->options.steps};
    int64_t channels = scan->options.channels, sequence = column / channels;
    return (rcvi_scan_strip){.sequence = sequence,
                             .column = column,
                             .column_end = smaller(column_end, (sequence + 1) * channels),
                             .length = data->lengths ? data->lengths[sequence] : scan->options.steps};
}

/* True if there is a boundary between steps t - 1 and t of the strip. */
static inline bool is_boundary(const rcvi_scan *scan, const rcvi_scan_strip *strip, int64_t t) {
    return scan->data->resets && t > 0 && t < strip->length &&
           scan->data->resets[t * scan->options.batch + strip->sequence];
}

/* Steps first .. end - 1 of a strip as arguments of the kernels. */
static rcvi_scan_segment segment_at(const rcvi_scan *scan, const rcvi_scan_strip *strip, int64_t first, int64_t end,
                                    int member) {
    const rcv_scan_data *data = scan->data;
    const rcv_scan_gradients *gradients = scan->gradients;
    int64_t at = ((scan->ascending ? first : end - 1) * scan->columns + strip->column) * scan->size;
    int64_t column = strip->column * scan->size, step = scan->ascending ? scan->columns : -scan->columns;
    rcvi_scan_segment segment = {.steps = end - first,
                                 .columns = strip->column_end - strip->column,
                                 .step = step,
                                 .tile = scan->tile,
                                 .a = (const char *)data->a + at,
                                 .streamed = scan->streams};
    if (!gradients) {
        segment.b = (const char *)data->b + at;
        segment.b_step = step;
        segment.h = (char *)data->h + at;
        return segment;
    }
    char *sink = scan->sink + member * scan->row;
    segment.b = gradients->dh ? (const char *)gradients->dh + at : scan->zeros + column;
    segment.b_step = gradients->dh ? step : 0;
    segment.states = (const char *)data->h + at;
    segment.da = gradients->da ? (char *)gradients->da + at : sink + column;
    segment.da_step = gradients->da ? step : 0;
    segment.db = gradients->db ? (char *)gradients->db + at : sink + column;
    segment.db_step = gradients->db ? step : 0;
    segment.streamed = scan->streams && gradients->da && gradients->db;
    /* The step visited last is the first of the sequence, or follows a boundary: the state before it is the initial one. */
    int64_t edge = scan->ascending ? end : first;
    if (edge == (scan->ascending ? strip->length : 0) || is_boundary(scan, strip, edge))
        segment.before = (data->initial ? (const char *)data->initial : scan->zeros) + strip->column * scan->carry;
    return segment;
}

/* At a boundary the state is the initial one again; in a backward call the carry is added to the gradient of the initial state. */
static void restart_carry(const rcvi_scan *scan, const rcvi_scan_strip *strip, const rcvi_scan_sweep_args *args) {
    int64_t at = strip->column * scan->carry, bytes = (strip->column_end - strip->column) * scan->carry;
    char *carry = args->chunk ? args->chunk->carried : args->carry;
    if (args->chunk) args->chunk->reach[strip->sequence] = RCVI_REACH_NONE;
    for (int64_t c = strip->column; scan->gradients && !args->chunk && c < strip->column_end; c++)
        rcvi_scan_add_carry(scan, args->sum, carry, c);
    memcpy(carry + at, (scan->gradients ? scan->zeros : rcvi_scan_initial_carry(scan)) + at, (size_t)bytes);
}

static void run_segment(const rcvi_scan *scan, const rcvi_scan_strip *strip, const rcvi_scan_segment *segment,
                        const rcvi_scan_sweep_args *args) {
    int64_t at = strip->column * scan->carry;
    const rcvi_scan_kernels *inner = scan->scan_kernels;
    const rcvi_scan_chunk *chunk = args->chunk;
    if (!chunk) {
        (scan->gradients ? inner->backward : inner->forward)(segment, args->carry + at);
        return;
    }
    if (chunk->reach[strip->sequence] == RCVI_REACH_ALL) chunk->reach[strip->sequence] = RCVI_REACH_SOME;
    (scan->gradients ? inner->compose_backward : inner->compose_forward)(segment, chunk->product + at,
                                                                         chunk->carried + at, chunk->largest + at);
}

static void sweep_strip(const rcvi_scan *scan, const rcvi_scan_strip *strip, int64_t first, int64_t end,
                        const rcvi_scan_sweep_args *args) {
    while (first < end) {
        int64_t from = first, to = end; /* the next segment ends at the next boundary */
        if (scan->data->resets && scan->ascending)
            for (to = from + 1; to < end && !is_boundary(scan, strip, to);) to++;
        else if (scan->data->resets)
            for (from = to - 1; from > first && !is_boundary(scan, strip, from);) from--;
        if (is_boundary(scan, strip, scan->ascending ? from : to)) restart_carry(scan, strip, args);
        rcvi_scan_segment segment = segment_at(scan, strip, from, to, args->member);
        run_segment(scan, strip, &segment, args);
        if (scan->ascending)
            first = to;
        else
            end = from;
    }
}

static void clear_steps(const rcvi_scan *scan, const rcvi_scan_strip *strip, int64_t first, int64_t end, void *to) {
    size_t bytes = (size_t)((strip->column_end - strip->column) * scan->size);
    for (int64_t t = first; to && t < end; t++)
        memset((char *)to + (t * scan->columns + strip->column) * scan->size, 0, bytes);
}

static void sweep_tile(const rcvi_scan *scan, int64_t first, int64_t end, int64_t column, int64_t column_end,
                       const rcvi_scan_sweep_args *args) {
    while (column < column_end) {
        rcvi_scan_strip strip = rcvi_scan_strip_at(scan, column, column_end);
        sweep_strip(scan, &strip, first, smaller(end, strip.length), args);
        int64_t past = larger(first, strip.length);
        if (!args->chunk && scan->gradients) {
            clear_steps(scan, &strip, past, end, scan->gradients->da);
            clear_steps(scan, &strip, past, end, scan->gradients->db);
        } else if (!args->chunk) {
            clear_steps(scan, &strip, past, end, scan->data->h);
        }
        column = strip.column_end;
    }
}

/* With lengths or resets, this function divides steps into tiles; otherwise the kernels do. */
void rcvi_scan_sweep(const rcvi_scan *scan, int64_t first, int64_t end, int64_t column, int64_t column_end,
                     const rcvi_scan_sweep_args *args) {
    const bool alike = !scan->data->lengths && !scan->data->resets;
    for (int64_t tile; first < end;) {
        tile = alike ? end - first : smaller(scan->tile, end - first);
        int64_t from = scan->ascending ? first : end - tile;
        sweep_tile(scan, from, from + tile, column, column_end, args);
        if (scan->ascending)
            first += tile;
        else
            end -= tile;
    }
}
