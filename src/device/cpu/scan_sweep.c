/* The recurrence itself over some steps of some columns, with lengths and resets: stretches between boundaries, for which
 * there are kernels. */
#include "device/cpu/scan.h"

#include <string.h>

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

const char *rcvi_scan_origin(const rcvi_scan *scan) {
    const void *given = scan->gradients ? scan->gradients->dfinal : scan->data->initial;
    return given ? given : scan->zeros;
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

rcvi_scan_stretch rcvi_scan_stretch_of(const rcvi_scan *scan, const rcvi_scan_strip *strip, int64_t first, int64_t end,
                                       int member) {
    const rcv_scan_data *data = scan->data;
    const rcv_scan_gradients *gradients = scan->gradients;
    int64_t at = ((scan->ascending ? first : end - 1) * scan->columns + strip->column) * scan->size;
    int64_t column = strip->column * scan->size, step = scan->ascending ? scan->columns : -scan->columns;
    rcvi_scan_stretch stretch = {.steps = end - first,
                                 .columns = strip->column_end - strip->column,
                                 .step = step,
                                 .a = (const char *)data->a + at,
                                 .streamed = scan->streams};
    if (!gradients) {
        stretch.b = (const char *)data->b + at;
        stretch.b_step = step;
        stretch.h = (char *)data->h + at;
        return stretch;
    }
    char *sink = scan->sink + member * scan->row;
    stretch.b = gradients->dh ? (const char *)gradients->dh + at : scan->zeros + column;
    stretch.b_step = gradients->dh ? step : 0;
    stretch.states = (const char *)data->h + at;
    stretch.da = gradients->da ? (char *)gradients->da + at : sink + column;
    stretch.da_step = gradients->da ? step : 0;
    stretch.db = gradients->db ? (char *)gradients->db + at : sink + column;
    stretch.db_step = gradients->db ? step : 0;
    stretch.streamed = scan->streams && gradients->da && gradients->db;
    /* The step visited last began the sequence, or stood behind a boundary: the state before it was the initial one. */
    int64_t edge = scan->ascending ? end : first;
    if (edge == (scan->ascending ? strip->length : 0) || rcvi_scan_boundary(scan, strip, edge))
        stretch.before = (data->initial ? (const char *)data->initial : scan->zeros) + strip->column * scan->carry;
    return stretch;
}

/* At a boundary the state is the initial one again; backwards, the initial state gets what is carried. */
static void start_anew(const rcvi_scan *scan, const rcvi_scan_strip *strip, char *carry, char *sum) {
    int64_t at = strip->column * scan->carry, bytes = (strip->column_end - strip->column) * scan->carry;
    if (!scan->gradients) {
        memcpy(carry + at, rcvi_scan_origin(scan) + at, (size_t)bytes);
        return;
    }
    for (int64_t i = at; i < at + bytes; i += scan->carry) {
        if (scan->carry == sizeof(double))
            *(double *)(sum + i) += *(const double *)(carry + i);
        else
            *(float *)(sum + i) += *(const float *)(carry + i);
    }
    memset(carry + at, 0, (size_t)bytes);
}

static void clear(const rcvi_scan *scan, const rcvi_scan_strip *strip, int64_t first, int64_t end, void *to) {
    size_t bytes = (size_t)((strip->column_end - strip->column) * scan->size);
    for (int64_t t = first; to && t < end; t++)
        memset((char *)to + (t * scan->columns + strip->column) * scan->size, 0, bytes);
}

static void sweep_strip(const rcvi_scan *scan, const rcvi_scan_strip *strip, int64_t first, int64_t end, char *carry,
                        char *sum, int member) {
    char *mine = carry + strip->column * scan->carry;
    while (first < end) {
        int64_t from = first, to = end; /* of the next stretch, which ends at the next boundary inside */
        if (!scan->data->resets) {
        } else if (scan->ascending) {
            for (to = from + 1; to < end && !rcvi_scan_boundary(scan, strip, to);) to++;
        } else {
            for (from = to - 1; from > first && !rcvi_scan_boundary(scan, strip, from);) from--;
        }
        if (rcvi_scan_boundary(scan, strip, scan->ascending ? from : to)) start_anew(scan, strip, carry, sum);
        rcvi_scan_stretch stretch = rcvi_scan_stretch_of(scan, strip, from, to, member);
        if (scan->gradients)
            scan->inner->backward(&stretch, mine);
        else
            scan->inner->forward(&stretch, mine);
        if (scan->ascending)
            first = to;
        else
            end = from;
    }
}

void rcvi_scan_sweep(const rcvi_scan *scan, int64_t first, int64_t end, int64_t column, int64_t column_end, char *carry,
                     char *sum, int member) {
    while (column < column_end) {
        rcvi_scan_strip strip = rcvi_scan_strip_at(scan, column, column_end);
        sweep_strip(scan, &strip, first, smaller(end, strip.length), carry, sum, member);
        if (scan->gradients) {
            clear(scan, &strip, larger(first, strip.length), end, scan->gradients->da);
            clear(scan, &strip, larger(first, strip.length), end, scan->gradients->db);
        } else {
            clear(scan, &strip, larger(first, strip.length), end, scan->data->h);
        }
        column = strip.column_end;
    }
}
