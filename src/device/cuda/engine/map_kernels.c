/* Maps: the shape of a step's kernel (types, vectors, tile, members of a launch), and its source, or its table. */
#include "device/cuda/engine/engine.h"
#include "device/cuda/engine/tuning.h"

#include <string.h>

enum { MOST_THREADS = 1024 }; /* of a block */

/* Elements of a row that a thread takes in one access: 4, 2 or 1. */
static int vector_of(const rcvi_engine *e, const rcvi_step *step) {
    for (int vector = 4; vector > 1; vector /= 2) {
        bool good = step->columns % vector == 0;
        for (int i = 0; good && i < step->map->operand_count; i++) {
            const rcvi_view *v = &step->map->operands[i];
            good = v->column == 0 || e->transposed[v->buffer] || rcvi_cuda_is_multiple(v, vector);
        }
        for (int p = 0; good && p < step->map->product_count; p++) {
            const rcvi_view *v = &step->map->products[p].start;
            good = v->buffer == RCVI_NONE || v->column == 0 || rcvi_cuda_is_multiple(v, vector);
        }
        if (good) return vector;
    }
    return 1;
}

/* Whether rows and depths of all left operands are multiples of 16 bytes. */
static bool is_aligned(const rcvi_engine *e, const rcvi_step *step) {
    int64_t each = 16 / (int64_t)rcvi_cuda_bytes(e->narrow);
    for (int p = 0; p < step->map->product_count; p++) {
        for (int t = 0; t < step->map->products[p].term_count; t++) {
            if (step->map->products[p].terms[t].depth % each) return false;
            if (!rcvi_cuda_is_multiple(&step->map->products[p].terms[t].a, each)) return false;
        }
    }
    return true;
}

/* Columns of every product in a tile. On tensor cores wide tiles are faster, since they read left operands less often. But there should
 * be blocks for most multiprocessors; with few rows, where the time is that of reading weights, for some of them. */
static int units_of(const rcvi_engine *e, const rcvi_step *step, int tile_rows, int members) {
    bool tensor = e->tensor || e->narrow != e->real;
    int products = step->map->product_count,
        span = tensor && tile_rows == 64 ? RCVI_TUNED_TILE_COLUMNS_WIDE : RCVI_TUNED_TILE_COLUMNS, units = span;
    int64_t row_blocks = (step->rows + tile_rows - 1) / tile_rows,
            fewest = tensor && tile_rows == 32 ? RCVI_TUNED_LEAST_BLOCKS_FEW_ROWS : RCVI_TUNED_LEAST_BLOCKS;
    while (units > 8 && products * units > span) units /= 2;
    for (; units > 8; units /= 2) {
        int64_t blocks = (step->columns + units - 1) / units * row_blocks * members;
        bool many = products * units > RCVI_TUNED_TILE_COLUMNS && blocks > 2 * e->processors;
        if (!many && blocks * 4 >= fewest * e->processors) break;
    }
    return units;
}

/* A block takes a row. A thread takes as few elements as a block of RCVI_TUNED_ROW_THREADS threads allows, else up to MOST_THREADS. */
static rcv_status shape_rows(const rcvi_step *step, rcvi_map_shape *shape) {
    int widest = shape->vector;
    shape->vector = 1;
    while (shape->vector < widest && step->columns > (int64_t)RCVI_TUNED_ROW_THREADS * shape->vector)
        shape->vector *= 2;
    int64_t threads = (step->columns + shape->vector - 1) / shape->vector;
    if (threads > MOST_THREADS)
        return rcvi_fail(RCV_UNSUPPORTED, "%lld features are too many to be summed in a map: leave fuse out",
                         (long long)step->columns);
    shape->row_threads = 32;
    while (shape->row_threads < threads) shape->row_threads *= 2;
    return RCV_OK;
}

/* Whether two maps may have one kernel, by their sizes alone. */
static bool look_alike(const rcvi_step *x, const rcvi_step *y) {
    const rcvi_map *a = x->map, *b = y->map;
    if (x->rows != y->rows || x->columns != y->columns || a->product_count != b->product_count ||
        a->instruction_count != b->instruction_count || a->operand_count != b->operand_count)
        return false;
    for (int p = 0; p < a->product_count; p++) {
        if (a->products[p].term_count != b->products[p].term_count) return false;
        if (a->products[p].terms[0].depth != b->products[p].terms[0].depth) return false;
    }
    return true;
}

/* The number of steps that look like this one, itself included: the most members that its launch can have. `differs`: [operands]
 * becomes true where the element types of these steps differ. */
static int members_of(const rcvi_engine *e, const rcvi_step *step, const rcvi_step *steps, size_t step_count,
                      bool *differs) {
    bool alone = !e->program->rungs.merge || step->layer == RCVI_NONE;
    int count = 0;
    for (size_t i = 0; i < step_count; i++) {
        const rcvi_step *other = &steps[i];
        if ((alone && other != step) || other->kind != RCVI_STEP_MAP || !look_alike(step, other)) continue;
        count++;
        for (int v = 0; v < step->map->operand_count; v++) {
            const rcvi_view *a = &step->map->operands[v], *b = &other->map->operands[v];
            differs[v] |= rcvi_cuda_type_of(e, a) != rcvi_cuda_type_of(e, b);
        }
    }
    return count < RCVI_MAX_MEMBERS ? count : RCVI_MAX_MEMBERS;
}

rcv_status rcvi_cuda_shape_map(rcvi_engine *e, const rcvi_step *step, const rcvi_step *steps, size_t step_count,
                               rcvi_cuda_ready *ready, rcvi_map_shape *shape) {
    const rcvi_map *map = step->map;
    const rcvi_view *views[RCVI_MAX_VIEWS];
    rcvi_pass passes[RCVI_MAX_PASSES];
    ready->view_count = rcvi_map_views(map, views);
    ready->pass_count = rcvi_map_passes(map, passes);
    if (ready->pass_count < 0)
        return rcvi_fail(RCV_UNSUPPORTED, "a map of this cell multiplies more than %d values: leave pack out",
                         RCVI_MAX_PASSES);
    ready->views = rcvi_pool_new(&e->pool, (size_t)ready->view_count, sizeof *ready->views);
    ready->passes = rcvi_pool_new(&e->pool, (size_t)ready->pass_count, sizeof *ready->passes);
    unsigned char *types = rcvi_pool_new(&e->pool, (size_t)ready->view_count, 1);
    bool *has_rounded = rcvi_pool_new(&e->pool, (size_t)map->operand_count, sizeof *has_rounded);
    bool *transposed = rcvi_pool_new(&e->pool, (size_t)map->operand_count, sizeof *transposed);
    if (e->pool.failed) return RCV_NO_MEMORY;
    memcpy(ready->views, views, (size_t)ready->view_count * sizeof *views);
    memcpy(ready->passes, passes, (size_t)ready->pass_count * sizeof *passes);
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    bool differs[RCVI_MAX_OPERANDS] = {false};
    int count = rcvi_step_accesses(step, accesses), members = members_of(e, step, steps, step_count, differs);
    for (int v = 0; v < ready->view_count; v++)
        types[v] = views[v]->buffer == RCVI_NONE ? e->real : (unsigned char)rcvi_cuda_type_of(e, views[v]);
    for (int v = map->operand_count, p = 0; p < map->product_count; v += 1 + 2 * map->products[p++].term_count) {
        for (int t = 0; t < map->products[p].term_count; t++) types[v + 1 + 2 * t] = (unsigned char)e->narrow;
    }
    for (int k = 0; k < count; k++) {
        bool own = accesses[k].view >= map->operands && accesses[k].view < map->operands + map->operand_count;
        if (!own || !accesses[k].written) continue;
        ptrdiff_t operand = accesses[k].view - map->operands;
        has_rounded[operand] = rcvi_cuda_has_rounded(e, accesses[k].view->buffer);
        /* An operand that is only written, with different types in different layers, is written to both places, of which one may be
         * absent. So layers whose output is activations share the kernel of the last layer, whose output is real. */
        if (accesses[k].read || e->narrow == e->real || !differs[operand]) continue;
        has_rounded[operand] = true;
        types[operand] = (unsigned char)e->real;
    }
    for (int v = 0; v < map->operand_count; v++) transposed[v] = e->transposed[map->operands[v].buffer] > 0;
    int tile_rows = step->rows <= 16 ? 16 : step->rows <= 32 ? 32 : 64;
    *shape = (rcvi_map_shape){.map = map,
                              .types = types,
                              .has_rounded = has_rounded,
                              .transposed = transposed,
                              .real = e->real,
                              .narrow = e->narrow,
                              .tensor = e->tensor,
                              .vector = vector_of(e, step),
                              .widest = vector_of(e, step),
                              .members = members,
                              .aligned = is_aligned(e, step),
                              .tile_rows = tile_rows,
                              .tile_units = units_of(e, step, tile_rows, members),
                              .stages = RCVI_TUNED_STAGES};
    if (rcvi_map_has_sums(map) && !e->program->rungs.interpret) RCVI_TRY(shape_rows(step, shape));
    while (shape->members > 1 && rcvi_map_words(shape) > RCVI_MAX_WORDS) shape->members--;
    if (rcvi_map_words(shape) > RCVI_MAX_WORDS)
        return rcvi_fail(RCV_UNSUPPORTED, "a map of this cell has more operands than a kernel takes");
    while (shape->vector > 1 && map->product_count && shape->tile_units % shape->vector) shape->vector /= 2;
    return RCV_OK;
}

/* Whether two steps may have this kernel: by source, or by table. */
static bool are_equal(const rcvi_cuda_kernel *a, const rcvi_cuda_kernel *b) {
    if (a->source) return b->source && !strcmp(a->source, b->source);
    return !b->source && a->shape.members == b->shape.members && rcvi_map_tables_equal(&a->table, &b->table);
}

/* The step's kernel. Steps whose kernels are equal share one. */
rcv_status rcvi_cuda_prepare_map(rcvi_engine *e, const rcvi_step *step, rcvi_cuda_ready *ready) {
    const rcvi_program *program = e->program;
    bool backward = (size_t)(step - program->steps) >= program->forward_count;
    const rcvi_step *first = program->steps + (backward ? program->forward_count : 0);
    size_t count = backward ? program->step_count - program->forward_count : program->forward_count, k = 0;
    rcvi_cuda_kernel kernel = {.source = NULL};
    RCVI_TRY(rcvi_cuda_shape_map(e, step, first, count, ready, &kernel.shape));
    kernel.shape.counted = rcvi_cuda_is_counted(e, (size_t)(step - program->steps));
    if (program->rungs.interpret)
        RCVI_TRY(rcvi_map_table_new(e->context, &kernel.shape, &kernel.table));
    else
        RCVI_TRY(rcvi_map_source(e->context, &kernel.shape, &kernel.source));
    while (k < e->kernel_count && !are_equal(&e->kernels[k], &kernel)) k++;
    ready->kernel = (int)k;
    bool grown =
        k < e->kernel_count || rcvi_grow(e->context, &e->kernels, &e->kernel_capacity, k + 1, sizeof *e->kernels);
    if (k < e->kernel_count || !grown) {
        rcvi_free(e->context, kernel.source);
        rcvi_free(e->context, kernel.table.table);
        return grown ? RCV_OK : RCV_NO_MEMORY;
    }
    e->kernels[e->kernel_count++] = kernel;
    return RCV_OK;
}
