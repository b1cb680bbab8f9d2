/* The products of a map: prepares the left operands and calls the product kernels, panel by panel. */
#include "device/cpu/engine/map.h"
#include "device/cpu/engine/tuning.h"

#include <string.h>

/* Layout in which the kernels read left operands. */
typedef enum {
    IN_PLACE,
    PACKED_A, /* in the kernels' own order, where many panels are multiplied with them */
    ROUNDED,  /* rounded to bfloat16, rows rcvi_narrow_row apart */
    PACKED    /* packed as a right operand: c^T = W x^T with unpacked weights W */
} layout;

static layout choose_layout(const rcvi_map_call *m, int64_t rows) {
    int64_t columns = m->call->column_end - m->call->column;
    if (rcvi_map_is_plain(m->map)) return PACKED;
    if (m->call->engine->type == RCVI_KERNEL_BFLOAT16) return ROUNDED;
    return m->kernels->pack_a && rows >= PACK_MIN_ROWS && columns >= PACK_MIN_PANELS * m->kernels->panel ? PACKED_A
                                                                                                         : IN_PLACE;
}

/* Writes the rows in bfloat16, `wide` elements apart and padded with zeros; returns the end of what was written. */
static char *round_operand(const rcvi_map_call *m, const rcvi_view *a, int64_t depth, int64_t row, int64_t rows,
                           uint16_t *to, int64_t wide) {
    const rcvi_engine *engine = m->call->engine;
    const void *from = rcvi_locate_view(m->call, a);
    bool prepared = rcvi_view_is_narrow(engine, a);
    for (int64_t r = row; r < row + rows; r++, to += wide) {
        if (prepared)
            memcpy(to, (const uint16_t *)from + r * a->row, (size_t)depth * sizeof *to);
        else
            engine->kernels->narrow(depth, (const float *)from + r * a->row, to);
        memset(to + depth, 0, (size_t)(wide - depth) * sizeof *to);
    }
    return (char *)to;
}

/* Writes rows of a left operand to `to` in this layout; returns the end of what was written. */
static char *prepare_operand(const rcvi_map_call *m, layout layout, const rcvi_view *a, int64_t depth, int64_t row,
                             int64_t rows, char *to) {
    int64_t wide = rcvi_narrow_row(depth, m->kernels->group), panel = m->kernels->panel;
    int64_t panels = (rows + panel - 1) / panel;
    if (layout == ROUNDED) return round_operand(m, a, depth, row, rows, (uint16_t *)(void *)to, wide);
    const char *from = rcvi_map_address(m, rcvi_locate_view(m->call, a), a, row, 0);
    if (layout == PACKED_A) {
        m->kernels->pack_a(rows, depth, from, a->row, to);
        return to + rows * wide * m->size;
    }
    m->kernels->pack(rows, depth, from, 1, a->row, 0, panels, to);
    return to + panels * panel * depth * m->size;
}

void rcvi_map_prepare_operands(rcvi_map_call *m, int64_t row, int64_t rows) {
    const rcvi_compiled_map *c = m->compiled;
    layout layout = choose_layout(m, rows);
    const char *addresses[RCVI_MAX_PRODUCTS * RCVI_MAX_TERMS];
    char *to = m->operands;
    for (int i = 0; i < c->operand_a_count; i++) addresses[i] = NULL;
    for (int p = 0; p < m->map->product_count; p++) {
        for (int t = 0; t < m->map->products[p].term_count; t++) {
            int index = p * RCVI_MAX_TERMS + t, operand = c->operand_of[index];
            const rcvi_view *a = &m->map->products[p].terms[t].a;
            int64_t depth = m->map->products[p].terms[t].depth;
            if (!addresses[operand] && layout == IN_PLACE)
                addresses[operand] = rcvi_map_address(m, rcvi_locate_view(m->call, a), a, row, 0);
            if (!addresses[operand]) {
                addresses[operand] = to;
                to = prepare_operand(m, layout, a, depth, row, rows, to);
            }
            m->left[index] = addresses[operand];
            m->left_row[index] = layout == PACKED_A  ? RCVI_PACKED_A
                                 : layout == ROUNDED ? rcvi_narrow_row(depth, m->kernels->group)
                                                     : a->row;
        }
    }
}

/* to[columns, rows] = from[rows, columns]^T. */
static void transpose(const rcvi_map_call *m, const char *from, int64_t from_row, int64_t rows, int64_t columns,
                      char *to, int64_t to_row) {
    if (m->size == 4) {
        const float *x = (const void *)from;
        float *y = (void *)to;
        for (int64_t c = 0; c < columns; c++) {
            for (int64_t r = 0; r < rows; r++) y[c * to_row + r] = x[r * from_row + c];
        }
    } else {
        const double *x = (const void *)from;
        double *y = (void *)to;
        for (int64_t c = 0; c < columns; c++) {
            for (int64_t r = 0; r < rows; r++) y[c * to_row + r] = x[r * from_row + c];
        }
    }
}

/* Product p of a block with unpacked weights: the transpose of (weights times packed left operand), for one panel of the
 * weights' rows at a time, so that the transposed result fits m->transposed. Sums have the same order as with packed weights,
 * so their bits are the same. */
static void multiply_unpacked(const rcvi_map_call *m, int p, int64_t row, int64_t rows, int64_t column, int64_t columns,
                              char *to, int64_t to_row) {
    const rcvi_product *product = &m->map->products[p];
    int64_t panel = m->kernels->panel;
    bool started = m->starts[p] != NULL;
    if (started) rcvi_map_gather(m, &product->start, m->starts[p], row, rows, column, columns, to, to_row);
    for (int64_t c = 0; c < columns; c += panel) {
        int64_t count = rcvi_min(panel, columns - c), first = column + c;
        if (started) transpose(m, to + c * m->size, to_row, rows, count, m->transposed, rows);
        for (int t = 0; t < product->term_count; t++) {
            int index = p * RCVI_MAX_TERMS + t;
            int64_t depth = product->terms[t].depth, weights_row = product->terms[t].b.row;
            const char *weights = m->packed[index];
            for (int64_t b = 0; b < rows; b += panel) {
                int64_t width = rcvi_min(panel, rows - b);
                const char *operand = m->left[index] + b * depth * m->size;
                char *sums = m->transposed + b * m->size;
                const char *start = started || t > 0 ? sums : NULL;
                if (product->terms[t].transposed)
                    m->kernels->product_transposed(count, width, depth, weights + first * m->size, weights_row, operand,
                                                   0, start, rows, sums, rows, NULL);
                else
                    m->kernels->product(count, width, depth, weights + first * weights_row * m->size, weights_row,
                                        operand, 0, start, rows, sums, rows, NULL);
            }
        }
        transpose(m, m->transposed, rows, count, rows, to + c * m->size, to_row);
    }
}

/* The operands of term t of product p, with the panel that holds column c. */
static rcvi_product_term term_at(const rcvi_map_call *m, int p, int t, int64_t c) {
    int index = p * RCVI_MAX_TERMS + t;
    int64_t depth = m->map->products[p].terms[t].depth, panel = m->kernels->panel;
    int64_t bytes = panel * rcvi_round_up(depth, m->kernels->group) * rcvi_engine_packed_bytes(m->call->engine);
    return (rcvi_product_term){depth, m->left[index], m->left_row[index], m->packed[index] + c / panel * bytes};
}

/* The panel that is read after term t of product p at column c, to be prefetched: of the next term, else the next panel of
 * the block, else the first panel of the next product. */
static const char *next_panel(const rcvi_map_call *m, int p, int t, int64_t c, int64_t column, int64_t end) {
    int64_t panel = m->kernels->panel;
    if (++t >= m->map->products[p].term_count) {
        t = 0;
        c = (c / panel + 1) * panel;
        if (c >= end) {
            p = (p + 1) % m->map->product_count;
            c = p ? column : m->next_column;
        }
    }
    return term_at(m, p, t, c).panel;
}

/* Computes all terms of product p with one kernel call, for columns c .. c + width - 1 of one panel. */
static void multiply_terms(const rcvi_map_call *m, int p, int64_t row, int64_t rows, int64_t c, int64_t width, char *to,
                           int64_t to_row) {
    const rcvi_product *product = &m->map->products[p];
    rcvi_product_term terms[RCVI_MAX_TERMS];
    for (int t = 0; t < product->term_count; t++) terms[t] = term_at(m, p, t, c);
    const char *start = m->starts[p] ? rcvi_map_address(m, m->starts[p], &product->start, row, c) : NULL;
    m->kernels->product_terms(rows, width, terms, product->term_count, c % m->kernels->panel, start, product->start.row,
                              to, to_row);
}

void rcvi_map_multiply(const rcvi_map_call *m, int p, int64_t row, int64_t rows, int64_t column, int64_t columns,
                       char *to, int64_t to_row) {
    if (rcvi_map_is_plain(m->map)) {
        multiply_unpacked(m, p, row, rows, column, columns, to, to_row);
        return;
    }
    const rcvi_product *product = &m->map->products[p];
    int64_t panel = m->kernels->panel;
    bool repeated = m->starts[p] && !product->start.column; /* one number for all columns, broadcast to `to` */
    if (repeated) rcvi_map_gather(m, &product->start, m->starts[p], row, rows, column, columns, to, to_row);
    for (int64_t c = column, width; c < column + columns; c += width, to += width * m->size) {
        width = rcvi_min(panel - c % panel, column + columns - c);
        if (m->kernels->product_terms && !repeated) {
            multiply_terms(m, p, row, rows, c, width, to, to_row);
            continue;
        }
        const char *start = repeated       ? to
                            : m->starts[p] ? rcvi_map_address(m, m->starts[p], &product->start, row, c)
                                           : NULL;
        int64_t start_row = repeated ? to_row : product->start.row;
        for (int t = 0; t < product->term_count; t++, start = to, start_row = to_row) {
            rcvi_product_term f = term_at(m, p, t, c);
            m->kernels->product(rows, width, f.depth, f.a, f.a_row, f.panel, c % panel, start, start_row, to, to_row,
                                next_panel(m, p, t, c, column, column + columns));
        }
    }
}
