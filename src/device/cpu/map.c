/* Maps with products. A block of rows and columns at a time: its products into scratch, where the instructions find
 * them while they are still in a core's own cache; what is stored goes out once. */
#include "device/cpu/engine.h"

#include <string.h>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

enum { TILE = 4096, LEAST_ROWS = 24, MOST_ROWS = 192, ALIGN = 128 };

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t round_up(int64_t a, int64_t multiple) { return (a + multiple - 1) / multiple * multiple; }
static int64_t real_bytes(const rcvi_engine *engine) { return engine->type == RCVI_KERNEL_DOUBLE ? 8 : 4; }

/* Rows and columns that a map takes at a time, so that sums stay in a core's cache. */
static int64_t row_block(const rcvi_engine *engine, const rcvi_step *step, const rcvi_compiled *compiled) {
    if (step->map->product_count == 0) return step->rows;
    int64_t rows =
        engine->program->machine.cache / 4 / larger(1, compiled->depth / step->map->product_count * real_bytes(engine));
    return smaller(step->rows, smaller(MOST_ROWS, larger(LEAST_ROWS, rows)));
}

static int64_t column_block(const rcvi_engine *engine, int64_t rows, int64_t columns) {
    int64_t panel = engine->kernels->products[engine->type].panel;
    return smaller(round_up(columns, panel), larger(panel, TILE / larger(1, rows) / panel * panel));
}

/* Are its products taken with the weights as they lie in memory? All of a map are, or none. */
static bool is_plain(const rcvi_map *map) { return map->product_count > 0 && map->products[0].terms[0].plain; }

/* ---- scratch: slots, tiles of products, narrowed operands ---- */

/* Bytes from the start of the scratch. */
typedef struct {
    int64_t tiles;            /* of products; slots of instructions come first */
    int64_t turned, operands; /* a tile before it is transposed; left operands narrowed or packed */
    int64_t tile_bytes, end;
} areas;

static areas lay_out(const rcvi_engine *engine, const rcvi_step *step, const rcvi_compiled *c) {
    int64_t size = real_bytes(engine), rows = row_block(engine, step, c);
    bool bfloat16 = engine->type == RCVI_KERNEL_BFLOAT16, plain = is_plain(step->map);
    /* fewer rows may come with wider tiles, but never with more than TILE elements or one panel */
    int64_t panel = engine->kernels->products[engine->type].panel;
    int64_t tile = larger(TILE, rows * panel), operand_rows = plain ? round_up(rows, panel) : rows;
    areas a = {.tile_bytes = round_up(tile * size, ALIGN)};
    a.tiles = round_up(c->slot_count * c->block * size, ALIGN);
    a.turned = a.tiles + a.tile_bytes * step->map->product_count;
    a.operands = a.turned + (plain ? a.tile_bytes : 0);
    a.end = a.operands;
    if (bfloat16 || plain) a.end += round_up(operand_rows * c->operand_a_depth * (bfloat16 ? 2 : size), ALIGN);
    return a;
}

size_t rcvi_map_scratch(const rcvi_engine *engine, const rcvi_step *step, const rcvi_compiled *compiled) {
    return (size_t)lay_out(engine, step, compiled).end;
}

/* ---- one call ---- */

typedef struct {
    const rcvi_call *call;
    const rcvi_map *map;
    const rcvi_compiled *compiled;
    const rcvi_product_kernels *kernels;
    char *slots, *tiles, *turned, *operands; /* areas of the scratch */
    int64_t tile_bytes;
    int64_t size; /* bytes of an element */
    char *views[RCVI_MAX_OPERANDS];
    char *starts[RCVI_MAX_PRODUCTS];
    const char *left[RCVI_MAX_PRODUCTS * RCVI_MAX_TERMS]; /* a of terms */
    int64_t left_row[RCVI_MAX_PRODUCTS * RCVI_MAX_TERMS];
    const char *packed[RCVI_MAX_PRODUCTS * RCVI_MAX_TERMS];
} map_call;

static char *at(const map_call *m, char *base, const rcvi_view *view, int64_t row, int64_t column) {
    return base + (row * view->row + column * view->column) * m->size;
}

/* Rows of a view, or its repeated row or column, side by side. */
static void gather(const map_call *m, const rcvi_view *view, char *base, int64_t row, int64_t rows, int64_t column,
                   int64_t columns, char *to, int64_t to_row) {
    if (view->row == 0 && view->column && to_row == columns) { /* one row, doubled until there are enough */
        int64_t bytes = columns * m->size, all = rows * bytes;
        memcpy(to, at(m, base, view, row, column), (size_t)bytes);
        for (int64_t done = bytes; done < all; done += done) memcpy(to + done, to, (size_t)smaller(done, all - done));
        return;
    }
    for (int64_t r = 0; r < rows; r++, to += to_row * m->size) {
        const char *from = at(m, base, view, row + r, column);
        if (view->column) {
            memcpy(to, from, (size_t)(columns * m->size));
        } else if (m->size == 4) {
            for (int64_t i = 0; i < columns; i++) ((float *)(void *)to)[i] = *(const float *)(const void *)from;
        } else {
            for (int64_t i = 0; i < columns; i++) ((double *)(void *)to)[i] = *(const double *)(const void *)from;
        }
    }
}

/* Past the caches, where the machine can: else every line would be read before it is overwritten. */
static void stream_row(char *to, const char *from, int64_t bytes) {
#if defined(__SSE2__)
    if (((uintptr_t)to | (uintptr_t)bytes) % 64 == 0) {
        for (int64_t i = 0; i < bytes; i += 16) _mm_stream_ps((void *)(to + i), _mm_loadu_ps((const void *)(from + i)));
        return;
    }
#endif
    memcpy(to, from, (size_t)bytes);
}

/* What was streamed is seen by others after this. */
static void end_streams(void) {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

static void scatter(const map_call *m, const rcvi_view *view, char *base, int64_t row, int64_t rows, int64_t column,
                    int64_t columns, const char *from) {
    bool distant = m->call->engine->program->buffers[view->buffer].distant;
    for (int64_t r = 0; r < rows; r++, from += columns * m->size) {
        char *to = at(m, base, view, row + r, column);
        if (distant)
            stream_row(to, from, columns * m->size);
        else
            memcpy(to, from, (size_t)(columns * m->size));
    }
}

static bool is_contiguous(const rcvi_view *view, int64_t rows, int64_t columns) {
    return view->column == 1 && (rows == 1 || view->row == columns);
}

/* ---- products ---- */

/* Left operands rounded to bfloat16, rows row .. row + rows - 1. */
static void narrow_operands(map_call *m, int64_t row, int64_t rows) {
    const rcvi_compiled *c = m->compiled;
    uint16_t *to = (uint16_t *)m->operands;
    const uint16_t *places[RCVI_MAX_PRODUCTS * RCVI_MAX_TERMS];
    for (int i = 0; i < c->operand_a_count; i++) places[i] = NULL;
    for (int p = 0; p < m->map->product_count; p++) {
        for (int t = 0; t < m->map->products[p].term_count; t++) {
            int index = p * RCVI_MAX_TERMS + t, operand = c->operand_of[index];
            int64_t depth = m->map->products[p].terms[t].depth, wide = rcvi_narrow_row(depth, m->kernels->group);
            if (!places[operand]) {
                const rcvi_view *a = &m->map->products[p].terms[t].a;
                const float *from = rcvi_call_locate(m->call, a);
                places[operand] = to;
                for (int64_t r = 0; r < rows; r++, to += wide) {
                    m->call->engine->kernels->narrow(depth, from + (row + r) * a->row, to);
                    memset(to + depth, 0, (size_t)(wide - depth) * sizeof *to);
                }
            }
            m->left[index] = (const char *)places[operand];
            m->left_row[index] = wide;
        }
    }
}

/* Left operands packed as right ones: x^T for W x^T. */
static void pack_operands(map_call *m, int64_t row, int64_t rows) {
    const rcvi_compiled *c = m->compiled;
    int64_t panel = m->kernels->panel, panels = (rows + panel - 1) / panel;
    const char *places[RCVI_MAX_PRODUCTS * RCVI_MAX_TERMS];
    char *to = m->operands;
    for (int i = 0; i < c->operand_a_count; i++) places[i] = NULL;
    for (int p = 0; p < m->map->product_count; p++) {
        for (int t = 0; t < m->map->products[p].term_count; t++) {
            int index = p * RCVI_MAX_TERMS + t, operand = c->operand_of[index];
            const rcvi_view *a = &m->map->products[p].terms[t].a;
            int64_t depth = m->map->products[p].terms[t].depth;
            if (!places[operand]) {
                m->kernels->pack(rows, depth, at(m, rcvi_call_locate(m->call, a), a, row, 0), 1, a->row, 0, panels, to);
                places[operand] = to;
                to += panels * panel * depth * m->size;
            }
            m->left[index] = places[operand];
        }
    }
}

static void find_operands(map_call *m, int64_t row, int64_t rows) {
    if (is_plain(m->map)) {
        pack_operands(m, row, rows);
        return;
    }
    if (m->call->engine->type == RCVI_KERNEL_BFLOAT16) {
        narrow_operands(m, row, rows);
        return;
    }
    for (int p = 0; p < m->map->product_count; p++) {
        for (int t = 0; t < m->map->products[p].term_count; t++) {
            const rcvi_view *a = &m->map->products[p].terms[t].a;
            int index = p * RCVI_MAX_TERMS + t;
            m->left[index] = at(m, rcvi_call_locate(m->call, a), a, row, 0);
            m->left_row[index] = a->row;
        }
    }
}

/* to[columns, rows] = from[rows, columns]^T. */
static void turn(const map_call *m, const char *from, int64_t from_row, int64_t rows, int64_t columns, char *to,
                 int64_t to_row) {
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

/* Product p over a block as the transpose of weights times packed operands, a panel of the weights' rows at a time so
 * that what is turned fits its place. Sums start and run as in the other layout, so their bits are the same. */
static void multiply_plain(const map_call *m, int p, int64_t row, int64_t rows, int64_t column, int64_t columns,
                           char *to, int64_t to_row) {
    const rcvi_product *product = &m->map->products[p];
    int64_t panel = m->kernels->panel;
    bool started = m->starts[p] != NULL;
    if (started) gather(m, &product->start, m->starts[p], row, rows, column, columns, to, to_row);
    for (int64_t c = 0; c < columns; c += panel) {
        int64_t count = smaller(panel, columns - c), first = column + c;
        if (started) turn(m, to + c * m->size, to_row, rows, count, m->turned, rows);
        for (int t = 0; t < product->term_count; t++) {
            int index = p * RCVI_MAX_TERMS + t;
            int64_t depth = product->terms[t].depth, weights_row = product->terms[t].b.row;
            const char *weights = m->packed[index];
            for (int64_t b = 0; b < rows; b += panel) {
                int64_t width = smaller(panel, rows - b);
                const char *operand = m->left[index] + b * depth * m->size;
                char *sums = m->turned + b * m->size;
                if (product->terms[t].transposed)
                    m->kernels->product_transposed(count, width, depth, weights + first * m->size, weights_row, operand,
                                                   0, started || t > 0, sums, rows, NULL);
                else
                    m->kernels->product(count, width, depth, weights + first * weights_row * m->size, weights_row,
                                        operand, 0, started || t > 0, sums, rows, NULL);
            }
        }
        turn(m, m->turned, rows, count, rows, to + c * m->size, to_row);
    }
}

/* What will be read of the packed matrices after term t of product p at column c: the next term, the next panel of the
 * block, the next product's first. */
static const char *next_panel(const map_call *m, int p, int t, int64_t c, int64_t column, int64_t end) {
    int64_t panel = m->kernels->panel, bytes = m->call->engine->type == RCVI_KERNEL_BFLOAT16 ? 2 : m->size;
    if (++t >= m->map->products[p].term_count) {
        t = 0;
        c = (c / panel + 1) * panel;
        if (c >= end) {
            if (++p >= m->map->product_count) p = 0;
            c = p ? column : end;
        }
    }
    if (c >= m->call->step->columns) c = 0; /* the next row block, or time step */
    int64_t wide = round_up(m->map->products[p].terms[t].depth, m->kernels->group);
    return m->packed[p * RCVI_MAX_TERMS + t] + c / panel * panel * wide * bytes;
}

/* Product p over a block: into `to`, whose rows are `to_row` elements apart. */
static void multiply(const map_call *m, int p, int64_t row, int64_t rows, int64_t column, int64_t columns, char *to,
                     int64_t to_row) {
    if (is_plain(m->map)) {
        multiply_plain(m, p, row, rows, column, columns, to, to_row);
        return;
    }
    const rcvi_product *product = &m->map->products[p];
    int64_t panel = m->kernels->panel, packed_bytes = m->call->engine->type == RCVI_KERNEL_BFLOAT16 ? 2 : m->size;
    bool started = m->starts[p] != NULL;
    if (started) gather(m, &product->start, m->starts[p], row, rows, column, columns, to, to_row);
    for (int64_t c = column; c < column + columns;) {
        int64_t first = c % panel, width = smaller(panel - first, column + columns - c);
        for (int t = 0; t < product->term_count; t++) {
            int index = p * RCVI_MAX_TERMS + t;
            int64_t depth = product->terms[t].depth, wide = round_up(depth, m->kernels->group);
            m->kernels->product(rows, width, depth, m->left[index], m->left_row[index],
                                m->packed[index] + c / panel * panel * wide * packed_bytes, first, started || t > 0,
                                to + (c - column) * m->size, to_row, next_panel(m, p, t, c, column, column + columns));
        }
        c += width;
    }
}

/* ---- instructions ---- */

typedef struct {
    char *slots[3 * RCVI_MAX_INSTRUCTIONS + 1];
    char *views[RCVI_MAX_OPERANDS];
    char *products[RCVI_MAX_PRODUCTS];
} places;

static const char *find(const places *p, rcvi_source source) {
    switch (source.kind) {
    case RCVI_IN_SLOT: return p->slots[source.index];
    case RCVI_IN_VIEW: return p->views[source.index];
    default: return p->products[source.index];
    }
}

/* The instructions over a block that fits a slot; the products' tiles stand at its first element. */
static void compute(const map_call *m, places *p, int64_t row, int64_t rows, int64_t column, int64_t columns) {
    const rcvi_compiled *c = m->compiled;
    int64_t n = rows * columns;
    for (int v = 0; v < m->map->operand_count; v++) {
        const rcvi_view *view = &m->map->operands[v];
        bool direct = is_contiguous(view, rows, columns);
        p->views[v] = direct ? at(m, m->views[v], view, row, column) : NULL;
        if (direct || c->view_slot[v] == RCVI_NONE) continue;
        p->views[v] = m->slots + c->view_slot[v] * c->block * m->size;
        gather(m, view, m->views[v], row, rows, column, columns, p->views[v], columns);
    }
    for (int k = 0; k < c->op_count; k++) {
        const rcvi_op *op = &c->ops[k];
        char *to = m->slots + op->slot * c->block * m->size;
        const int *stores = c->stores + op->first_store;
        bool direct = op->store_count > 0 && is_contiguous(&m->map->operands[stores[0]], rows, columns);
        if (direct) to = at(m, m->views[stores[0]], &m->map->operands[stores[0]], row, column);
        op->kernel(n, find(p, op->a), find(p, op->b), to);
        p->slots[op->slot] = to;
        for (int s = direct; s < op->store_count; s++)
            scatter(m, &m->map->operands[stores[s]], m->views[stores[s]], row, rows, column, columns, to);
    }
}

/* A block whose products are all in their tiles. */
static void finish(const map_call *m, places *p, int64_t row, int64_t rows, int64_t column, int64_t columns) {
    const rcvi_compiled *c = m->compiled;
    for (int i = 0; i < m->map->product_count; i++) {
        if (!c->product_is_used[i] && c->product_store_count[i] == 1) continue; /* it went straight to its place */
        char *tile = m->tiles + i * m->tile_bytes;
        for (int s = 0; s < c->product_store_count[i]; s++) {
            int view = c->stores[c->product_stores[i] + s];
            scatter(m, &m->map->operands[view], m->views[view], row, rows, column, columns, tile);
        }
    }
    if (c->op_count == 0) return;
    int64_t step = smaller(rows, larger(1, c->block / columns)), width = smaller(columns, c->block);
    for (int64_t r = 0; r < rows; r += step) {
        int64_t count = smaller(step, rows - r);
        for (int64_t x = 0; x < columns; x += width) {
            for (int i = 0; i < m->map->product_count; i++)
                p->products[i] = m->tiles + i * m->tile_bytes + (r * columns + x) * m->size;
            compute(m, p, row + r, count, column + x, smaller(width, columns - x));
        }
    }
}

static void take_block(const map_call *m, places *p, int64_t row, int64_t rows, int64_t column, int64_t columns) {
    const rcvi_compiled *c = m->compiled;
    for (int i = 0; i < m->map->product_count; i++) {
        if (!c->product_is_used[i] && c->product_store_count[i] == 1) {
            int view = c->stores[c->product_stores[i]];
            const rcvi_view *out = &m->map->operands[view];
            multiply(m, i, row, rows, column, columns, at(m, m->views[view], out, row, column), out->row);
        } else {
            multiply(m, i, row, rows, column, columns, m->tiles + i * m->tile_bytes, columns);
        }
    }
    finish(m, p, row, rows, column, columns);
}

/* Numbers fill their slots for the whole call. */
static void fill_constants(const map_call *m, places *p) {
    const rcvi_compiled *c = m->compiled;
    for (int i = 0; i < c->constant_count; i++) {
        int slot = c->constants[i].slot;
        char *to = p->slots[slot] = m->slots + slot * c->block * m->size;
        for (int64_t e = 0; e < c->block; e++) {
            if (m->size == 4)
                ((float *)(void *)to)[e] = (float)c->constants[i].number;
            else
                ((double *)(void *)to)[e] = c->constants[i].number;
        }
    }
}

/* False where an output is not wanted. */
static bool open_call(map_call *m, const rcvi_call *call) {
    areas a = lay_out(call->engine, call->step, call->ready->compiled);
    m->call = call; /* field by field: clearing the tables would take as long as a small step */
    m->map = call->step->map;
    m->compiled = call->ready->compiled;
    m->kernels = &call->engine->kernels->products[call->engine->type];
    m->slots = call->scratch;
    m->tiles = call->scratch + a.tiles;
    m->turned = call->scratch + a.turned;
    m->operands = call->scratch + a.operands;
    m->tile_bytes = a.tile_bytes;
    m->size = real_bytes(call->engine);
    for (int v = 0; v < m->map->operand_count; v++) {
        m->views[v] = rcvi_call_locate(call, &m->map->operands[v]);
        if (!m->views[v]) return false;
    }
    for (int p = 0; p < m->map->product_count; p++) {
        const rcvi_product *product = &m->map->products[p];
        m->starts[p] = product->start.buffer == RCVI_NONE ? NULL : rcvi_call_locate(call, &product->start);
        for (int t = 0; t < product->term_count; t++)
            m->packed[p * RCVI_MAX_TERMS + t] = rcvi_call_locate(call, &product->terms[t].b);
    }
    return true;
}

void rcvi_take_map(const rcvi_call *call) {
    map_call m;
    places p;
    if (call->row >= call->row_end || call->column >= call->column_end || !open_call(&m, call)) return;
    fill_constants(&m, &p);
    int64_t most = row_block(call->engine, call->step, m.compiled), count = call->row_end - call->row;
    int64_t blocks = (count + most - 1) / most;
    for (int64_t b = 0; b < blocks; b++) {
        int64_t row = call->row + count * b / blocks, rows = call->row + count * (b + 1) / blocks - row;
        int64_t wide = m.map->product_count ? column_block(call->engine, rows, call->column_end - call->column)
                                            : call->column_end - call->column;
        if (m.map->product_count) find_operands(&m, row, rows);
        for (int64_t column = call->column; column < call->column_end;) {
            /* blocks end at panels */
            int64_t end = smaller(call->column_end, (column + wide) / m.kernels->panel * m.kernels->panel);
            if (end <= column) end = smaller(call->column_end, column + wide);
            take_block(&m, &p, row, rows, column, end - column);
            column = end;
        }
    }
    end_streams();
}
