/* Maps with products. A block of rows and columns at a time: its products into scratch, where the instructions find
 * them while they are still in a core's own cache; what is stored goes out once. */
#include "device/cpu/engine/map.h"

#include <string.h>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

enum { TILE = 4096, LEAST_ROWS = 24, MOST_ROWS = 192, FAR_COLUMNS = 256, ALIGN = 128 };

/* Rows and columns that a map takes at a time, so that sums stay in a core's cache. */
static int64_t row_block(const rcvi_engine *engine, const rcvi_step *step, const rcvi_compiled *compiled) {
    if (step->map->product_count == 0) return step->rows;
    int64_t rows = engine->program->machine.cache / 4 /
                   rcvi_larger(1, compiled->depth / step->map->product_count * rcvi_engine_element_bytes(engine));
    return rcvi_smaller(step->rows, rcvi_smaller(MOST_ROWS, rcvi_larger(LEAST_ROWS, rows)));
}

/* All columns where they fit, since rows that are whole need no copies; where matrices are `far`, not too many, so that
 * there are blocks to turn round at. */
static int64_t column_block(const rcvi_engine *engine, int64_t rows, int64_t columns, bool far) {
    int64_t panel = engine->kernels->products[engine->type].panel, most = TILE / rcvi_larger(1, rows);
    if (far) most = rcvi_smaller(most, FAR_COLUMNS);
    return columns <= most ? rcvi_round_up(columns, panel) : rcvi_larger(panel, most / panel * panel);
}

/* ---- scratch: slots, tiles of products, narrowed operands ---- */

/* Bytes from the start of the scratch. */
typedef struct {
    int64_t tiles;            /* of products; slots of instructions come first */
    int64_t turned, operands; /* a tile before it is transposed; left operands narrowed or packed */
    int64_t tile_bytes, end;
} areas;

static areas lay_out(const rcvi_engine *engine, const rcvi_step *step, const rcvi_compiled *c) {
    int64_t size = rcvi_engine_element_bytes(engine), rows = row_block(engine, step, c);
    bool bfloat16 = engine->type == RCVI_KERNEL_BFLOAT16, plain = rcvi_map_is_plain(step->map);
    /* fewer rows may come with wider tiles, but never with more than TILE elements or one panel */
    int64_t panel = engine->kernels->products[engine->type].panel;
    int64_t tile = rcvi_larger(TILE, rows * panel), operand_rows = plain ? rcvi_round_up(rows, panel) : rows;
    areas a = {.tile_bytes = rcvi_round_up(tile * size, ALIGN)};
    a.tiles = rcvi_round_up(c->slot_count * c->block * size, ALIGN);
    a.turned = a.tiles + a.tile_bytes * step->map->product_count;
    a.operands = a.turned + (plain ? a.tile_bytes : 0);
    a.end = a.operands;
    if (bfloat16 || plain || engine->kernels->products[engine->type].arrange)
        a.end += rcvi_round_up(operand_rows * c->operand_a_depth * (bfloat16 ? 2 : size), ALIGN);
    return a;
}

size_t rcvi_map_scratch(const rcvi_engine *engine, const rcvi_step *step, const rcvi_compiled *compiled) {
    return (size_t)lay_out(engine, step, compiled).end;
}

/* ---- between memory and scratch ---- */

static uint16_t *at_narrow(char *base, const rcvi_view *view, int64_t row, int64_t column) {
    return (uint16_t *)(void *)base + row * view->row + column * view->column;
}

static bool is_contiguous(const rcvi_view *view, int64_t rows, int64_t columns) {
    return view->column == 1 && (rows == 1 || view->row == columns);
}

void rcvi_map_gather(const rcvi_map_call *m, const rcvi_view *view, char *base, int64_t row, int64_t rows,
                     int64_t column, int64_t columns, char *to, int64_t to_row) {
    if (view->row == 0 && view->column && to_row == columns) { /* one row, doubled until there are enough */
        int64_t bytes = columns * m->size, all = rows * bytes;
        memcpy(to, rcvi_map_at(m, base, view, row, column), (size_t)bytes);
        for (int64_t done = bytes; done < all; done += done)
            memcpy(to + done, to, (size_t)rcvi_smaller(done, all - done));
        return;
    }
    for (int64_t r = 0; r < rows; r++, to += to_row * m->size) {
        const char *from = rcvi_map_at(m, base, view, row + r, column);
        if (view->column) {
            memcpy(to, from, (size_t)(columns * m->size));
        } else if (m->size == 4) {
            for (int64_t i = 0; i < columns; i++) ((float *)(void *)to)[i] = *(const float *)(const void *)from;
        } else {
            for (int64_t i = 0; i < columns; i++) ((double *)(void *)to)[i] = *(const double *)(const void *)from;
        }
    }
}

static void gather_narrow(const rcvi_map_call *m, const rcvi_view *view, char *base, int64_t row, int64_t rows,
                          int64_t column, int64_t columns, char *to) {
    const rcvi_kernels *kernels = m->call->engine->kernels;
    float *wide = (float *)(void *)to;
    const uint16_t *from = at_narrow(base, view, row, column);
    if (is_contiguous(view, rows, columns)) {
        kernels->widen(rows * columns, from, wide);
        return;
    }
    for (int64_t r = 0; r < rows; r++, from += view->row, wide += columns) {
        kernels->widen(view->column ? columns : 1, from, wide);
        for (int64_t i = 1; !view->column && i < columns; i++) wide[i] = *wide;
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

/* Rounded on the way. What is streamed goes through a block of its own. */
static void store_narrow(const rcvi_map_call *m, bool distant, int64_t n, const float *from, uint16_t *to) {
    const rcvi_kernels *kernels = m->call->engine->kernels;
#if defined(__SSE2__)
    enum { BLOCK = 512 };
    uint16_t block[BLOCK] __attribute__((aligned(64)));
    for (; distant && n > 0;) {
        int64_t count = rcvi_smaller(n, BLOCK);
        kernels->narrow(count, from, block);
        stream_row((char *)to, (const char *)block, count * 2);
        from += count;
        to += count;
        n -= count;
    }
#else
    (void)distant;
#endif
    if (n > 0) kernels->narrow(n, from, to);
}

/* Rows to view v. */
static void scatter(const rcvi_map_call *m, int v, int64_t row, int64_t rows, int64_t column, int64_t columns,
                    const char *from) {
    const rcvi_view *view = &m->map->operands[v];
    bool distant = m->call->engine->streams && m->call->engine->program->buffers[view->buffer].distant;
    if (is_contiguous(view, rows, columns)) {
        columns *= rows;
        rows = 1;
    }
    for (int64_t r = 0; r < rows; r++, from += columns * m->size) {
        if (m->compiled->is_narrow[v])
            store_narrow(m, distant, columns, (const void *)from, at_narrow(m->views[v], view, row + r, column));
        else if (distant)
            stream_row(rcvi_map_at(m, m->views[v], view, row + r, column), from, columns * m->size);
        else
            memcpy(rcvi_map_at(m, m->views[v], view, row + r, column), from, (size_t)(columns * m->size));
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
static void compute(const rcvi_map_call *m, places *p, int64_t row, int64_t rows, int64_t column, int64_t columns) {
    const rcvi_compiled *c = m->compiled;
    int64_t n = rows * columns;
    for (int v = 0; v < m->map->operand_count; v++) {
        const rcvi_view *view = &m->map->operands[v];
        bool direct = !c->is_narrow[v] && is_contiguous(view, rows, columns);
        p->views[v] = direct ? rcvi_map_at(m, m->views[v], view, row, column) : NULL;
        if (direct || c->view_slot[v] == RCVI_NONE) continue;
        p->views[v] = m->slots + c->view_slot[v] * c->block * m->size;
        if (c->is_narrow[v])
            gather_narrow(m, view, m->views[v], row, rows, column, columns, p->views[v]);
        else
            rcvi_map_gather(m, view, m->views[v], row, rows, column, columns, p->views[v], columns);
    }
    for (int k = 0; k < c->op_count; k++) {
        const rcvi_op *op = &c->ops[k];
        char *to = m->slots + op->slot * c->block * m->size;
        const int *stores = c->stores + op->first_store;
        bool direct = op->store_count > 0 && !c->is_narrow[stores[0]] &&
                      is_contiguous(&m->map->operands[stores[0]], rows, columns);
        if (direct) to = rcvi_map_at(m, m->views[stores[0]], &m->map->operands[stores[0]], row, column);
        op->kernel(n, find(p, op->a), find(p, op->b), to);
        p->slots[op->slot] = to;
        for (int s = direct; s < op->store_count; s++) scatter(m, stores[s], row, rows, column, columns, to);
    }
}

/* Does a product go straight to the one place that it has? */
static bool is_straight(const rcvi_map_call *m, int product) {
    const rcvi_compiled *c = m->compiled;
    return !c->product_is_used[product] && c->product_store_count[product] == 1 &&
           !c->is_narrow[c->stores[c->product_stores[product]]];
}

/* A block whose products are all in their tiles. */
static void finish(const rcvi_map_call *m, places *p, int64_t row, int64_t rows, int64_t column, int64_t columns) {
    const rcvi_compiled *c = m->compiled;
    for (int i = 0; i < m->map->product_count; i++) {
        if (is_straight(m, i)) continue;
        for (int s = 0; s < c->product_store_count[i]; s++)
            scatter(m, c->stores[c->product_stores[i] + s], row, rows, column, columns, m->tiles + i * m->tile_bytes);
    }
    if (c->op_count == 0) return;
    int64_t step = rcvi_smaller(rows, rcvi_larger(1, c->block / columns)), width = rcvi_smaller(columns, c->block);
    for (int64_t r = 0; r < rows; r += step) {
        int64_t count = rcvi_smaller(step, rows - r);
        for (int64_t x = 0; x < columns; x += width) {
            for (int i = 0; i < m->map->product_count; i++)
                p->products[i] = m->tiles + i * m->tile_bytes + (r * columns + x) * m->size;
            compute(m, p, row + r, count, column + x, rcvi_smaller(width, columns - x));
        }
    }
}

static void bring_rows(const char *from, int64_t row, int64_t rows, int64_t bytes) {
    enum { LINE = 64 };
    for (int64_t r = 0; r < rows; r++, from += row) {
        for (int64_t b = 0; b < bytes; b += LINE) __builtin_prefetch(from + b, 0, 2);
    }
}

/* Starts to bring near what a block reads besides matrices. */
static void bring_block(const rcvi_map_call *m, int64_t row, int64_t rows, int64_t column, int64_t columns) {
    for (int p = 0; p < m->map->product_count; p++) {
        const rcvi_view *start = &m->map->products[p].start;
        if (m->starts[p] && start->row)
            bring_rows(rcvi_map_at(m, m->starts[p], start, row, column), start->row * m->size, rows, columns * m->size);
    }
    for (int v = 0; v < m->map->operand_count; v++) {
        const rcvi_view *view = &m->map->operands[v];
        int64_t size = m->compiled->is_narrow[v] ? 2 : m->size;
        if (m->compiled->view_slot[v] == RCVI_NONE || view->row == 0) continue;
        const char *from = m->views[v] + (row * view->row + column * view->column) * size;
        bring_rows(from, view->row * size, rows, view->column ? columns * size : 1);
    }
}

static void take_block(const rcvi_map_call *m, places *p, int64_t row, int64_t rows, int64_t column, int64_t columns) {
    const rcvi_compiled *c = m->compiled;
    for (int i = 0; i < m->map->product_count; i++) {
        if (is_straight(m, i)) {
            int view = c->stores[c->product_stores[i]];
            const rcvi_view *out = &m->map->operands[view];
            rcvi_map_multiply(m, i, row, rows, column, columns, rcvi_map_at(m, m->views[view], out, row, column),
                              out->row);
        } else {
            rcvi_map_multiply(m, i, row, rows, column, columns, m->tiles + i * m->tile_bytes, columns);
        }
    }
    finish(m, p, row, rows, column, columns);
}

/* Numbers fill their slots for the whole call. */
static void fill_constants(const rcvi_map_call *m, places *p) {
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
static bool open_call(rcvi_map_call *m, const rcvi_call *call) {
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
    m->size = rcvi_engine_element_bytes(call->engine);
    int64_t matrices = m->compiled->depth * (call->column_end - call->column) * rcvi_packed_bytes(call->engine);
    m->far = matrices > call->engine->program->machine.cache / 2;
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

/* Where block i of the columns begins, i from 0: all but the first begin at panels, `wide` columns apart. */
static int64_t edge(const rcvi_map_call *m, int64_t wide, int64_t i) {
    int64_t panel = m->kernels->panel, first = (m->call->column + wide) / panel * panel;
    return i == 0 ? m->call->column : rcvi_smaller(m->call->column_end, first + (i - 1) * wide);
}

/* Rows row .. of all columns, from left to right or back. */
static void take_rows(rcvi_map_call *m, places *p, int64_t row, int64_t rows, bool back) {
    int64_t columns = m->call->column_end - m->call->column, count = 1;
    int64_t wide = m->map->product_count ? column_block(m->call->engine, rows, columns, m->far)
                                         : rcvi_round_up(columns, m->kernels->panel) + m->kernels->panel;
    if (m->map->product_count) rcvi_map_find_operands(m, row, rows);
    while (edge(m, wide, count) < m->call->column_end) count++;
    for (int64_t i = 0; i < count; i++) {
        int64_t block = back ? count - 1 - i : i, after = i == count - 1 ? block : back ? block - 1 : block + 1;
        int64_t column = edge(m, wide, block), end = edge(m, wide, block + 1);
        m->after = edge(m, wide, after);
        if (m->far && i == 0) bring_block(m, row, rows, column, end - column);
        if (m->far && i < count - 1) bring_block(m, row, rows, m->after, edge(m, wide, after + 1) - m->after);
        take_block(m, p, row, rows, column, end - column);
    }
}

/* Every other time the way through the columns goes back: it begins with the matrices that were used last, some of which
 * are still in the cache even if all of them do not fit there. */
void rcvi_take_map(const rcvi_call *call) {
    rcvi_map_call m;
    places p;
    if (call->row >= call->row_end || call->column >= call->column_end || !open_call(&m, call)) return;
    fill_constants(&m, &p);
    int64_t most = row_block(call->engine, call->step, m.compiled), count = call->row_end - call->row;
    int64_t blocks = (count + most - 1) / most;
    for (int64_t b = 0; b < blocks; b++) {
        int64_t row = call->row + count * b / blocks, rows = call->row + count * (b + 1) / blocks - row;
        take_rows(&m, &p, row, rows, (call->inner + call->outer + b) % 2);
    }
    end_streams();
}
