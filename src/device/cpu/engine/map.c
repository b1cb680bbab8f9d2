/* Maps with products: matrix products with a fused elementwise epilogue. The map is computed in blocks of rows and columns. The
 * products of a block go to scratch, the instructions (the epilogue) read them while a core's own cache still holds them, and
 * results are stored once. */
#include "device/cpu/engine/map.h"
#include "device/cpu/engine/tuning.h"

#include <string.h>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

/* Rows of a block: the left operands of a block take about a quarter of a core's cache. */
static int64_t row_block(const rcvi_engine *engine, const rcvi_step *step, const rcvi_compiled_map *compiled) {
    if (step->map->product_count == 0) return step->rows;
    int64_t rows = engine->program->machine.cache / 4 /
                   rcvi_max(1, compiled->depth / step->map->product_count * rcvi_engine_element_bytes(engine));
    return rcvi_min(step->rows, rcvi_min(MAX_ROWS, rcvi_max(MIN_ROWS, rows)));
}

/* Columns of a block: all columns where they fit, because contiguous rows need no copy. Where the matrices exceed the cache,
 * fewer, so that there are several blocks whose order alternates (compute_rows). */
static int64_t column_block(const rcvi_engine *engine, int64_t rows, int64_t columns, bool exceeds_cache) {
    int64_t panel = engine->kernels->products[engine->type].panel, limit = TILE_ELEMENTS / rcvi_max(1, rows);
    if (exceeds_cache) limit = rcvi_min(limit, MAX_COLUMNS_BEYOND_CACHE);
    return columns <= limit ? rcvi_round_up(columns, panel) : rcvi_max(panel, limit / panel * panel);
}

/* ---- scratch: slots, tiles of products, left operands ---- */

/* Offsets in bytes from the start of the scratch. Slots of instructions begin at 0. */
typedef struct {
    int64_t tiles;      /* results of products, tile_bytes each */
    int64_t transposed; /* the transpose of a tile, for unpacked weights */
    int64_t operands;   /* left operands rounded or packed */
    int64_t tile_bytes, end;
} scratch_layout;

static scratch_layout lay_out(const rcvi_engine *engine, const rcvi_step *step, const rcvi_compiled_map *c) {
    int64_t size = rcvi_engine_element_bytes(engine), rows = row_block(engine, step, c);
    bool bfloat16 = engine->type == RCVI_KERNEL_BFLOAT16, plain = rcvi_map_is_plain(step->map);
    /* A block of fewer rows may be wider, but has at most TILE_ELEMENTS elements, or one panel of columns. */
    int64_t panel = engine->kernels->products[engine->type].panel;
    int64_t tile = rcvi_max(TILE_ELEMENTS, rows * panel), operand_rows = plain ? rcvi_round_up(rows, panel) : rows;
    scratch_layout a = {.tile_bytes = rcvi_round_up(tile * size, SCRATCH_ALIGN)};
    a.tiles = rcvi_round_up(c->slot_count * c->block * size, SCRATCH_ALIGN);
    a.transposed = a.tiles + a.tile_bytes * step->map->product_count;
    a.operands = a.transposed + (plain ? a.tile_bytes : 0);
    a.end = a.operands;
    if (bfloat16 || plain || engine->kernels->products[engine->type].pack_a)
        a.end += rcvi_round_up(operand_rows * c->operand_a_depth * (bfloat16 ? 2 : size), SCRATCH_ALIGN);
    return a;
}

size_t rcvi_map_scratch(const rcvi_engine *engine, const rcvi_step *step, const rcvi_compiled_map *compiled) {
    return (size_t)lay_out(engine, step, compiled).end;
}

/* ---- between memory and scratch ---- */

static uint16_t *narrow_address(char *base, const rcvi_view *view, int64_t row, int64_t column) {
    return (uint16_t *)(void *)base + row * view->row + column * view->column;
}

static bool is_contiguous(const rcvi_view *view, int64_t rows, int64_t columns) {
    return view->column == 1 && (rows == 1 || view->row == columns);
}

void rcvi_map_gather(const rcvi_map_call *m, const rcvi_view *view, char *base, int64_t row, int64_t rows,
                     int64_t column, int64_t columns, char *to, int64_t to_row) {
    if (view->row == 0 && view->column &&
        to_row == columns) { /* one row, copied repeatedly, twice as many rows each time */
        int64_t bytes = columns * m->size, all = rows * bytes;
        memcpy(to, rcvi_map_address(m, base, view, row, column), (size_t)bytes);
        for (int64_t done = bytes; done < all; done += done) memcpy(to + done, to, (size_t)rcvi_min(done, all - done));
        return;
    }
    for (int64_t r = 0; r < rows; r++, to += to_row * m->size) {
        const char *from = rcvi_map_address(m, base, view, row + r, column);
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
    const uint16_t *from = narrow_address(base, view, row, column);
    if (is_contiguous(view, rows, columns)) {
        kernels->widen(rows * columns, from, wide);
        return;
    }
    for (int64_t r = 0; r < rows; r++, from += view->row, wide += columns) {
        kernels->widen(view->column ? columns : 1, from, wide);
        for (int64_t i = 1; !view->column && i < columns; i++) wide[i] = *wide;
    }
}

/* Copies with non-temporal stores where the machine has them: other stores read each cache line before they overwrite it. */
static void stream_row(char *to, const char *from, int64_t bytes) {
#if defined(__SSE2__)
    if (((uintptr_t)to | (uintptr_t)bytes) % 64 == 0) {
        for (int64_t i = 0; i < bytes; i += 16) _mm_stream_ps((void *)(to + i), _mm_loadu_ps((const void *)(from + i)));
        return;
    }
#endif
    memcpy(to, from, (size_t)bytes);
}

/* Orders non-temporal stores before all later stores, so that other threads see them. */
static void fence_streams(void) {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

/* Rounds to bfloat16. For non-temporal stores the rounded elements go through a small buffer. */
static void store_narrow(const rcvi_map_call *m, bool distant, int64_t n, const float *from, uint16_t *to) {
    const rcvi_kernels *kernels = m->call->engine->kernels;
#if defined(__SSE2__)
    enum { BLOCK = 512 };
    uint16_t block[BLOCK] __attribute__((aligned(64)));
    for (; distant && n > 0;) {
        int64_t count = rcvi_min(n, BLOCK);
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

/* Stores contiguous rows of `from` to a block of view v. */
static void scatter(const rcvi_map_call *m, int v, int64_t row, int64_t rows, int64_t column, int64_t columns,
                    const char *from) {
    const rcvi_view *view = &m->map->operands[v];
    bool distant = m->call->streams && m->call->engine->program->buffers[view->buffer].distant;
    if (is_contiguous(view, rows, columns)) {
        columns *= rows;
        rows = 1;
    }
    for (int64_t r = 0; r < rows; r++, from += columns * m->size) {
        if (m->compiled->is_narrow[v])
            store_narrow(m, distant, columns, (const void *)from, narrow_address(m->views[v], view, row + r, column));
        else if (distant)
            stream_row(rcvi_map_address(m, m->views[v], view, row + r, column), from, columns * m->size);
        else
            memcpy(rcvi_map_address(m, m->views[v], view, row + r, column), from, (size_t)(columns * m->size));
    }
}

/* ---- instructions ---- */

typedef struct {
    char *slots[3 * RCVI_MAX_INSTRUCTIONS + 1];
    char *views[RCVI_MAX_OPERANDS];
    char *products[RCVI_MAX_PRODUCTS];
} addresses;

static const char *address_of(const addresses *p, rcvi_op_input source) {
    switch (source.kind) {
    case RCVI_IN_SLOT: return p->slots[source.index];
    case RCVI_IN_VIEW: return p->views[source.index];
    default: return p->products[source.index];
    }
}

/* Runs the instructions over a block of at most `block` elements (a slot); p->products point to its first element. */
static void run_instructions(const rcvi_map_call *m, addresses *p, int64_t row, int64_t rows, int64_t column,
                             int64_t columns) {
    const rcvi_compiled_map *c = m->compiled;
    int64_t n = rows * columns;
    for (int v = 0; v < m->map->operand_count; v++) {
        const rcvi_view *view = &m->map->operands[v];
        bool direct = !c->is_narrow[v] && is_contiguous(view, rows, columns);
        p->views[v] = direct ? rcvi_map_address(m, m->views[v], view, row, column) : NULL;
        if (direct || c->view_slot[v] == RCVI_NONE) continue;
        p->views[v] = m->slots + c->view_slot[v] * c->block * m->size;
        if (c->is_narrow[v])
            gather_narrow(m, view, m->views[v], row, rows, column, columns, p->views[v]);
        else
            rcvi_map_gather(m, view, m->views[v], row, rows, column, columns, p->views[v], columns);
    }
    for (int k = 0; k < c->op_count; k++) {
        const rcvi_compiled_op *op = &c->ops[k];
        char *to = m->slots + op->slot * c->block * m->size;
        const int *stores = c->stores + op->first_store;
        bool direct = op->store_count > 0 && !c->is_narrow[stores[0]] &&
                      is_contiguous(&m->map->operands[stores[0]], rows, columns);
        if (direct) to = rcvi_map_address(m, m->views[stores[0]], &m->map->operands[stores[0]], row, column);
        op->kernel(n, address_of(p, op->a), address_of(p, op->b), to);
        p->slots[op->slot] = to;
        for (int s = direct; s < op->store_count; s++) scatter(m, stores[s], row, rows, column, columns, to);
    }
}

/* True if a product is stored to one view of full precision and no instruction reads it: it needs no tile. */
static bool is_stored_directly(const rcvi_map_call *m, int product) {
    const rcvi_compiled_map *c = m->compiled;
    return !c->product_is_used[product] && c->product_store_count[product] == 1 &&
           !c->is_narrow[c->stores[c->product_stores[product]]];
}

/* Stores products and runs the instructions for a block whose products are complete, in pieces that fit a slot. */
static void apply_epilogue(const rcvi_map_call *m, addresses *p, int64_t row, int64_t rows, int64_t column,
                           int64_t columns) {
    const rcvi_compiled_map *c = m->compiled;
    for (int i = 0; i < m->map->product_count; i++) {
        if (is_stored_directly(m, i)) continue;
        for (int s = 0; s < c->product_store_count[i]; s++)
            scatter(m, c->stores[c->product_stores[i] + s], row, rows, column, columns, m->tiles + i * m->tile_bytes);
    }
    if (c->op_count == 0) return;
    int64_t step = rcvi_min(rows, rcvi_max(1, c->block / columns)), width = rcvi_min(columns, c->block);
    for (int64_t r = 0; r < rows; r += step) {
        int64_t count = rcvi_min(step, rows - r);
        for (int64_t x = 0; x < columns; x += width) {
            for (int i = 0; i < m->map->product_count; i++)
                p->products[i] = m->tiles + i * m->tile_bytes + (r * columns + x) * m->size;
            run_instructions(m, p, row + r, count, column + x, rcvi_min(width, columns - x));
        }
    }
}

static void prefetch_rows(const char *from, int64_t row, int64_t rows, int64_t bytes) {
    enum { LINE = 64 };
    for (int64_t r = 0; r < rows; r++, from += row) {
        for (int64_t b = 0; b < bytes; b += LINE) __builtin_prefetch(from + b, 0, 2);
    }
}

/* Prefetches what a block reads besides the matrices: initial values of sums and views. */
static void prefetch_block(const rcvi_map_call *m, int64_t row, int64_t rows, int64_t column, int64_t columns) {
    for (int p = 0; p < m->map->product_count; p++) {
        const rcvi_view *start = &m->map->products[p].start;
        if (m->starts[p] && start->row)
            prefetch_rows(rcvi_map_address(m, m->starts[p], start, row, column), start->row * m->size, rows,
                          columns * m->size);
    }
    for (int v = 0; v < m->map->operand_count; v++) {
        const rcvi_view *view = &m->map->operands[v];
        int64_t size = m->compiled->is_narrow[v] ? 2 : m->size;
        if (m->compiled->view_slot[v] == RCVI_NONE || view->row == 0) continue;
        const char *from = m->views[v] + (row * view->row + column * view->column) * size;
        prefetch_rows(from, view->row * size, rows, view->column ? columns * size : 1);
    }
}

static void compute_block(const rcvi_map_call *m, addresses *p, int64_t row, int64_t rows, int64_t column,
                          int64_t columns) {
    const rcvi_compiled_map *c = m->compiled;
    for (int i = 0; i < m->map->product_count; i++) {
        if (is_stored_directly(m, i)) {
            int view = c->stores[c->product_stores[i]];
            const rcvi_view *out = &m->map->operands[view];
            rcvi_map_multiply(m, i, row, rows, column, columns, rcvi_map_address(m, m->views[view], out, row, column),
                              out->row);
        } else {
            rcvi_map_multiply(m, i, row, rows, column, columns, m->tiles + i * m->tile_bytes, columns);
        }
    }
    apply_epilogue(m, p, row, rows, column, columns);
}

/* Fills the slots of constants, once a call. */
static void fill_constants(const rcvi_map_call *m, addresses *p) {
    const rcvi_compiled_map *c = m->compiled;
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

/* False if the caller left out an output: then there is nothing to compute. */
static bool init_call(rcvi_map_call *m, const rcvi_step_call *call) {
    scratch_layout a = lay_out(call->engine, call->step, call->prepared->compiled);
    m->call = call; /* field by field: to clear the arrays would take as long as a small step */
    m->map = call->step->map;
    m->compiled = call->prepared->compiled;
    m->kernels = &call->engine->kernels->products[call->engine->type];
    m->slots = call->scratch;
    m->tiles = call->scratch + a.tiles;
    m->transposed = call->scratch + a.transposed;
    m->operands = call->scratch + a.operands;
    m->tile_bytes = a.tile_bytes;
    m->size = rcvi_engine_element_bytes(call->engine);
    int64_t matrices = m->compiled->depth * (call->column_end - call->column) * rcvi_engine_packed_bytes(call->engine);
    m->exceeds_cache = matrices > call->engine->program->machine.cache / 2;
    for (int v = 0; v < m->map->operand_count; v++) {
        m->views[v] = rcvi_locate_view(call, &m->map->operands[v]);
        if (!m->views[v]) return false;
    }
    for (int p = 0; p < m->map->product_count; p++) {
        const rcvi_product *product = &m->map->products[p];
        m->starts[p] = product->start.buffer == RCVI_NONE ? NULL : rcvi_locate_view(call, &product->start);
        for (int t = 0; t < product->term_count; t++)
            m->packed[p * RCVI_MAX_TERMS + t] = rcvi_locate_view(call, &product->terms[t].b);
    }
    return true;
}

/* First column of block i, i from 0: all but the first begin at a panel, block_columns apart. */
static int64_t block_start(const rcvi_map_call *m, int64_t block_columns, int64_t i) {
    int64_t panel = m->kernels->panel, first = (m->call->column + block_columns) / panel * panel;
    return i == 0 ? m->call->column : rcvi_min(m->call->column_end, first + (i - 1) * block_columns);
}

/* Computes rows row .. row + rows - 1 of all columns, block by block from left to right, or from right to left. */
static void compute_rows(rcvi_map_call *m, addresses *p, int64_t row, int64_t rows, bool backward) {
    int64_t columns = m->call->column_end - m->call->column, count = 1;
    int64_t block_columns = m->map->product_count ? column_block(m->call->engine, rows, columns, m->exceeds_cache)
                                                  : rcvi_round_up(columns, m->kernels->panel) + m->kernels->panel;
    if (m->map->product_count) rcvi_map_prepare_operands(m, row, rows);
    while (block_start(m, block_columns, count) < m->call->column_end) count++;
    for (int64_t i = 0; i < count; i++) {
        int64_t block = backward ? count - 1 - i : i, after = i == count - 1 ? block : backward ? block - 1 : block + 1;
        int64_t column = block_start(m, block_columns, block), end = block_start(m, block_columns, block + 1);
        m->next_column = block_start(m, block_columns, after);
        if (m->exceeds_cache && i == 0) prefetch_block(m, row, rows, column, end - column);
        if (m->exceeds_cache && i < count - 1)
            prefetch_block(m, row, rows, m->next_column, block_start(m, block_columns, after + 1) - m->next_column);
        compute_block(m, p, row, rows, column, end - column);
    }
}

/* The order of the column blocks alternates from call to call: each call begins with the panels that were used last, which are
 * still in the cache even if the matrices as a whole exceed it. */
void rcvi_run_map(const rcvi_step_call *call) {
    rcvi_map_call m;
    addresses p;
    if (call->row >= call->row_end || call->column >= call->column_end || !init_call(&m, call)) return;
    fill_constants(&m, &p);
    int64_t limit = row_block(call->engine, call->step, m.compiled), count = call->row_end - call->row;
    int64_t blocks = (count + limit - 1) / limit;
    for (int64_t b = 0; b < blocks; b++) {
        int64_t row = call->row + count * b / blocks, rows = call->row + count * (b + 1) / blocks - row;
        compute_rows(&m, &p, row, rows, (call->inner + call->outer + b) % 2);
    }
    fence_streams();
}
