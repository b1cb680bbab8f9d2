#include "device/cuda/engine/engine.h"
#include "device/cuda/codegen/jit.h"
#include "device/cuda/engine/ragged.h"
#include "device/cuda/kernels/kernels.h"
#include "device/cuda/persistent/persistent.h"
#include "device/cuda/recurrence/recurrence.h"

#include <string.h>

enum { ALIGNMENT = 256, STAGES = 6, MANY_THREADS = 256, MOST_THREADS = 1024 };

static size_t round_up(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

rcv_status rcvi_cuda_enter(int ordinal, int *before) {
    RCVI_CUDA_TRY(cudaGetDevice(before), "asking for the current device");
    return *before == ordinal ? RCV_OK : rcvi_cuda_check(cudaSetDevice(ordinal), "choosing the device");
}

void rcvi_cuda_leave(int before) { cudaSetDevice(before); }

rcvi_cuda_type rcvi_cuda_type_of(const rcvi_engine *engine, const rcvi_view *view) {
    switch (engine->program->buffers[view->buffer].element) {
    case RCVI_REAL: return engine->real;
    case RCVI_PACKED:
    case RCVI_ACTIVATION: return engine->narrow;
    case RCVI_BYTE: return RCVI_U8;
    default: return RCVI_I64;
    }
}

/* ---- rounded copies and scratch ---- */

/* Steps that multiply read rounded copies of what is not narrow. */
static void find_rounded(rcvi_engine *e) {
    const rcvi_program *program = e->program;
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    for (size_t b = 0; b < program->buffer_count; b++) e->rounded[b] = SIZE_MAX;
    for (size_t i = 0; i < program->step_count && e->narrow != e->real; i++) {
        const rcvi_step *step = &program->steps[i];
        if (step->kind != RCVI_STEP_GEMM && step->kind != RCVI_STEP_MAP) continue;
        int count = rcvi_step_accesses(step, accesses);
        for (int k = 0; k < count; k++) {
            bool operand = accesses[k].use == RCVI_USE_OPERAND && accesses[k].read;
            int buffer = accesses[k].view->buffer;
            if (operand && program->buffers[buffer].element == RCVI_REAL) e->rounded[buffer] = 0;
        }
    }
}

/* ---- layout ---- */

/* Whether the access is one that can be made to a transposed buffer: a product that overwrites, or a map that reads. */
static bool can_be_transposed(const rcvi_step *step, const rcvi_access *access, int64_t row) {
    bool product =
        step->kind == RCVI_STEP_GEMM && access->view == &step->out && !step->accumulate && step->gemm.batch == 1;
    bool map = step->kind == RCVI_STEP_MAP && access->use == RCVI_USE_VALUE && !access->written;
    return (product || map) && access->view->row == row && access->view->column == 1;
}

static void find_transposed(rcvi_engine *e) {
    const rcvi_program *program = e->program;
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    if (!program->rungs.transpose) return;
    for (size_t i = 0; i < program->step_count; i++) {
        const rcvi_view *out = &program->steps[i].out;
        if (program->steps[i].kind != RCVI_STEP_GEMM || out->row <= 0 || rcvi_cuda_has_rounded(e, out->buffer))
            continue;
        const rcvi_buffer *buffer = &program->buffers[out->buffer];
        bool fits = buffer->role == RCVI_ARENA && buffer->count % out->row == 0;
        if (fits) e->transposed[out->buffer] = buffer->count / out->row;
    }
    for (size_t i = 0; i < program->step_count; i++) {
        int count = rcvi_step_accesses(&program->steps[i], accesses);
        for (int k = 0; k < count; k++) {
            int b = accesses[k].view->buffer;
            const rcvi_buffer *buffer = &program->buffers[b];
            int64_t rows = e->transposed[b];
            if (rows && !can_be_transposed(&program->steps[i], &accesses[k], buffer->count / rows))
                e->transposed[b] = 0;
        }
    }
}

/* ---- rows with zeros behind them ---- */

/* Does the step leave whole rows, all at once, by a kernel that can write zeros behind them? */
static bool can_pad(const rcvi_engine *e, const rcvi_step *step, const rcvi_buffer *buffer) {
    const rcvi_view *out = &step->out;
    bool known = step->kind == RCVI_STEP_COPY || step->kind == RCVI_STEP_SELECT || step->kind == RCVI_STEP_DROPOUT;
    bool still =
        !step->time.timed && !out->stride && !out->outer && !out->wrap && !e->is_short[step - e->program->steps];
    return known && still && out->column == 1 && out->row > step->columns && out->offset % out->row == 0 &&
           buffer->count % out->row == 0;
}

/* Products whose depth is no whole piece of 16 bytes can then be taken a little deeper. */
static void find_padded(rcvi_engine *e) {
    const rcvi_program *program = e->program;
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    for (size_t b = 0; b < program->buffer_count; b++)
        e->padded[b] = program->buffers[b].role == RCVI_ARENA && !rcvi_cuda_has_rounded(e, (int)b) && !e->transposed[b];
    for (size_t i = 0; i < program->step_count; i++) {
        int count = rcvi_step_accesses(&program->steps[i], accesses);
        for (int k = 0; k < count; k++) {
            int b = accesses[k].view->buffer;
            if (accesses[k].written && !can_pad(e, &program->steps[i], &program->buffers[b])) e->padded[b] = false;
        }
    }
}

/* ---- what is the caller's, in place ---- */

static bool is_whole(const rcvi_program *program, const rcvi_step *step, const rcvi_view *view) {
    return view->offset == 0 && view->stride == 0 && view->outer == 0 && view->wrap == 0 && view->column == 1 &&
           (view->row == step->columns || step->rows == 1) &&
           program->buffers[view->buffer].count == step->rows * step->columns;
}

/* Is the step the only one that writes the buffer? */
static bool is_only_writer(const rcvi_program *program, const rcvi_step *writer, int buffer) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    for (size_t i = 0; i < program->step_count; i++) {
        int count = rcvi_step_accesses(&program->steps[i], accesses);
        for (int k = 0; k < count; k++) {
            if (accesses[k].view->buffer == buffer && accesses[k].written && &program->steps[i] != writer) return false;
        }
    }
    return true;
}

/* Copies of all of dy, and to all of dx: nothing else touches those, so they may be read and written as what is copied. Where
 * sequences are sorted the caller's rows lie in another order. */
static void find_stand_ins(rcvi_engine *e) {
    const rcvi_program *program = e->program;
    for (size_t b = 0; b < program->buffer_count; b++) e->stand_ins[b] = RCVI_NONE;
    for (size_t i = 0; i < program->step_count && !e->sorts; i++) {
        const rcvi_step *step = &program->steps[i];
        if (step->kind != RCVI_STEP_COPY || step->when != RCVI_ALWAYS || step->time.timed) continue;
        bool from = program->buffers[step->a.buffer].role == RCVI_DY;
        bool to = program->buffers[step->out.buffer].role == RCVI_DX;
        if ((!from && !to) || !is_whole(program, step, &step->a) || !is_whole(program, step, &step->out)) continue;
        int own = from ? step->out.buffer : step->a.buffer, theirs = from ? step->a.buffer : step->out.buffer;
        const rcvi_buffer *buffer = &program->buffers[own];
        if (buffer->role != RCVI_ARENA || buffer->element != RCVI_REAL || rcvi_cuda_has_rounded(e, own)) continue;
        if (is_only_writer(program, step, from ? own : theirs)) e->stand_ins[own] = theirs;
    }
}

/* ---- gradients of parameters ---- */

/* What a step adds to the gradients, elements first .. end - 1; false where that is not one piece, or not a step outside of
 * loops. */
static bool find_piece(const rcvi_step *step, int64_t *first, int64_t *end) {
    const rcvi_view *out = &step->out;
    bool product = step->kind == RCVI_STEP_GEMM, sum = step->kind == RCVI_STEP_REDUCE && step->reduce.over_rows;
    if ((!product && !sum) || !step->accumulate || step->time.timed || step->when != RCVI_ALWAYS) return false;
    int64_t rows = product ? step->rows : 1, batch = product ? step->gemm.batch : 1, size = rows * step->columns;
    *first = out->offset;
    *end = out->offset + batch * size;
    return out->column == 1 && !out->stride && !out->outer && !out->wrap && (rows == 1 || out->row == step->columns) &&
           (batch == 1 || step->gemm.step_out == size);
}

/* Whether a call that overwrites the gradients needs no zeros in them first: every step that adds to them may store instead. */
static bool covers(const rcvi_program *program) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    int64_t left = program->net->parameter_elements, first, end, other_first, other_end;
    size_t loop_end = 0;
    for (size_t i = program->forward_count; i < program->step_count; i++) {
        const rcvi_step *step = &program->steps[i];
        if (step->kind == RCVI_STEP_LOOP && i >= loop_end) loop_end = i + 1 + (size_t)step->loop.body;
        int count = rcvi_step_accesses(step, accesses);
        bool touches = false;
        for (int k = 0; k < count; k++) touches |= program->buffers[accesses[k].view->buffer].role == RCVI_DPARAMETERS;
        if (!touches || step->when == RCVI_WHEN_OVERWRITING || step->kind == RCVI_STEP_COMMUNICATE) continue;
        if (i < loop_end || !find_piece(step, &first, &end)) return false;
        for (size_t j = program->forward_count; j < i; j++) {
            const rcvi_step *other = &program->steps[j];
            if (other->out.buffer != step->out.buffer || !find_piece(other, &other_first, &other_end)) continue;
            if (first < other_end && other_first < end) return false;
        }
        left -= end - first;
    }
    return left == 0;
}

static size_t take(size_t *at, size_t bytes) {
    size_t place = *at;
    *at += round_up(bytes);
    return place;
}

static void lay_out_scratch(rcvi_engine *e) {
    const rcvi_program *program = e->program;
    size_t at = 0;
    e->seed = take(&at, sizeof(uint64_t));
    e->lengths = take(&at, (size_t)program->options.batch * sizeof(int64_t));
    e->rows_order = take(&at, (size_t)program->options.batch * sizeof(int64_t));
    e->alive = take(&at, e->has_alive ? (size_t)program->options.steps * sizeof(int64_t) : 0);
    for (size_t b = 0; b < program->buffer_count; b++) {
        if (e->rounded[b] != SIZE_MAX)
            e->rounded[b] = take(&at, (size_t)program->buffers[b].count * rcvi_cuda_bytes(e->narrow));
    }
    e->workspace = take(&at, round_up(e->workspace_bytes) + (size_t)(e->streams - 1) * round_up(e->beside_bytes));
    e->sums = take(&at, (size_t)e->streams * round_up(e->sums_bytes));
    e->split_a = take(&at, (size_t)e->streams * round_up(e->split_a_bytes));
    e->split_b = take(&at, (size_t)e->streams * round_up(e->split_b_bytes));
    e->exchange = take(&at, e->exchange_bytes);
    e->counters = take(&at, e->counters_bytes);
    e->scans = take(&at, e->scans_bytes);
    e->scan_sums = take(&at, e->scan_sums_bytes);
    e->scratch = at;
}

/* ---- maps ---- */

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

/* Left operands in whole pieces of 16 bytes. */
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

/* Columns of every product that a block takes. On tensor cores wide tiles, which read left operands less often, are faster, but
 * there should be blocks for most processors, or, with few rows, where weights are what is read, for some. */
static int units_of(const rcvi_engine *e, const rcvi_step *step, int tile_rows, int members) {
    bool tensor = e->tensor || e->narrow != e->real;
    int products = step->map->product_count, span = tensor && tile_rows == 64 ? 128 : 64, units = span;
    int64_t row_blocks = (step->rows + tile_rows - 1) / tile_rows, fewest = tensor && tile_rows == 32 ? 1 : 3;
    while (units > 8 && products * units > span) units /= 2;
    for (; units > 8; units /= 2) {
        int64_t blocks = (step->columns + units - 1) / units * row_blocks * members;
        bool many = products * units > 64 && blocks > 2 * e->processors;
        if (!many && blocks * 4 >= fewest * e->processors) break;
    }
    return units;
}

/* A block takes a row, of at most MANY_THREADS threads where the row can be had so: two blocks then fit a processor. */
static rcv_status shape_rows(const rcvi_step *step, rcvi_map_shape *shape) {
    int widest = shape->vector;
    shape->vector = 1;
    while (shape->vector < widest && step->columns > (int64_t)MANY_THREADS * shape->vector) shape->vector *= 2;
    int64_t threads = (step->columns + shape->vector - 1) / shape->vector;
    if (threads > MOST_THREADS)
        return rcvi_fail(RCV_UNSUPPORTED, "%lld features are too many to be summed in a map: leave fuse out",
                         (long long)step->columns);
    shape->row_threads = 32;
    while (shape->row_threads < threads) shape->row_threads *= 2;
    return RCV_OK;
}

/* Whether two maps may turn out to be alike, so far as their shapes tell. */
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

/* Those of the steps that are like this one, itself among them: members of its launch at most, and mostly. `differs` becomes
 * true for operands whose elements are of another type in some of them. */
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
        ptrdiff_t operand = accesses[k].view - map->operands;
        bool own = accesses[k].view >= map->operands && operand < map->operand_count;
        if (!own || !accesses[k].written) continue;
        has_rounded[operand] = rcvi_cuda_has_rounded(e, accesses[k].view->buffer);
        /* What is only written, and not everywhere of one type, has both places, of which one may be absent: so the
         * kernel of a layer that hands activations on is that of the last one, too. */
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
                              .stages = STAGES};
    if (rcvi_map_has_sums(map)) RCVI_TRY(shape_rows(step, shape));
    while (shape->members > 1 && rcvi_map_words(shape) > RCVI_MAX_WORDS) shape->members--;
    if (rcvi_map_words(shape) > RCVI_MAX_WORDS)
        return rcvi_fail(RCV_UNSUPPORTED, "a map of this cell has more operands than a kernel takes");
    while (shape->vector > 1 && map->product_count && shape->tile_units % shape->vector) shape->vector /= 2;
    return RCV_OK;
}

static rcv_status load_kernel(rcvi_cuda_kernel *kernel, const void *code) {
    kernel->shared = kernel->shape.map->product_count ? rcvi_tile_shared(&kernel->shape) : 0;
    return rcvi_jit_load(code, "map_kernel", kernel->shared, &kernel->code, &kernel->kernel);
}

static rcv_status load_persistent(const rcvi_engine *e, rcvi_persistent *p, const void *code) {
    int blocks = 0;
    RCVI_TRY(rcvi_jit_load(code, "persistent_kernel", p->shared, &p->code, &p->kernel));
    if (p->cluster) return rcvi_cluster_check(p);
    RCVI_CUDA_TRY(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, (const void *)p->kernel,
                                                                RCVI_PERSISTENT_THREADS, p->shared),
                  "asking how many blocks fit");
    if ((int64_t)blocks * e->processors >= p->blocks) return RCV_OK;
    return rcvi_fail(RCV_UNSUPPORTED, "a persistent kernel of this loop has %d blocks, but the GPU takes %lld at once",
                     p->blocks, (long long)blocks * e->processors);
}

/* Texts of kernels of maps, then of those of whole loops. Answers how many. */
static size_t find_units(const rcvi_engine *e, rcvi_jit_unit *units) {
    size_t count = 0;
    for (size_t k = 0; k < e->kernel_count; k++) units[count++].source = e->kernels[k].source;
    for (size_t i = 0; i < e->program->step_count; i++) {
        const rcvi_cuda_recurrences *list = e->recurrences[i];
        if (e->persistent[i]) units[count++].source = e->persistent[i]->source;
        for (int n = 0; list && n < list->count; n++) units[count++].source = list->all[n].source;
    }
    return count;
}

static rcv_status load_units(rcvi_engine *e, const rcvi_jit_unit *units) {
    for (size_t k = 0; k < e->kernel_count; k++) RCVI_TRY(load_kernel(&e->kernels[k], (units++)->code));
    for (size_t i = 0; i < e->program->step_count; i++) {
        const rcvi_cuda_recurrences *list = e->recurrences[i];
        if (e->persistent[i]) RCVI_TRY(load_persistent(e, e->persistent[i], (units++)->code));
        for (int n = 0; list && n < list->count; n++)
            RCVI_TRY(rcvi_cuda_recurrence_load(&list->all[n], (units++)->code));
    }
    return RCV_OK;
}

static rcv_status load_kernels(rcvi_engine *e) {
    size_t most = e->kernel_count + e->program->step_count; /* a recurrence has a step of its own */
    rcvi_jit_unit *units = rcvi_new(e->context, most, sizeof *units);
    if (!units) return RCV_NO_MEMORY;
    size_t count = find_units(e, units);
    rcv_status status = rcvi_jit_compile(e->context, units, count, e->major, e->minor);
    if (!status) status = load_units(e, units);
    for (size_t k = 0; k < count; k++) rcvi_free(e->context, units[k].code);
    rcvi_free(e->context, units);
    return status;
}

/* Steps whose kernels have the same text share one. */
static rcv_status prepare_map(rcvi_engine *e, const rcvi_step *step, rcvi_cuda_ready *ready) {
    const rcvi_program *program = e->program;
    bool backward = (size_t)(step - program->steps) >= program->forward_count;
    const rcvi_step *first = program->steps + (backward ? program->forward_count : 0);
    size_t count = backward ? program->step_count - program->forward_count : program->forward_count;
    rcvi_map_shape shape;
    char *source = NULL;
    RCVI_TRY(rcvi_cuda_shape_map(e, step, first, count, ready, &shape));
    shape.counted = rcvi_cuda_is_counted(e, step);
    RCVI_TRY(rcvi_map_source(e->context, &shape, &source));
    for (size_t k = 0; k < e->kernel_count; k++) {
        if (strcmp(e->kernels[k].source, source)) continue;
        ready->kernel = (int)k;
        rcvi_free(e->context, source);
        return RCV_OK;
    }
    if (!rcvi_grow(e->context, &e->kernels, &e->kernel_capacity, e->kernel_count + 1, sizeof *e->kernels)) {
        rcvi_free(e->context, source);
        return RCV_NO_MEMORY;
    }
    e->kernels[e->kernel_count] = (rcvi_cuda_kernel){.shape = shape, .source = source};
    ready->kernel = (int)e->kernel_count++;
    return RCV_OK;
}

/* ---- products of their own ---- */

static bool is_in_loop(const rcvi_program *program, const rcvi_step *step) {
    bool found = false;
    for (const rcvi_step *s = program->steps; s < step && !found; s++)
        found = s->kind == RCVI_STEP_LOOP && step - s <= s->loop.body;
    return found;
}

bool rcvi_cuda_goes_beside(const rcvi_engine *e, const rcvi_step *step) {
    return e->streams > 1 && rcvi_step_is_deferrable(e->program, step) && !is_in_loop(e->program, step);
}

bool rcvi_cuda_same_shape(const rcvi_cuda_gemm_shape *a, const rcvi_cuda_gemm_shape *b) {
    return a->rows == b->rows && a->columns == b->columns && a->depth == b->depth && a->transpose_a == b->transpose_a &&
           a->transpose_b == b->transpose_b && a->accumulate == b->accumulate && a->starts == b->starts &&
           a->transpose_out == b->transpose_out && a->a == b->a && a->b == b->b && a->out == b->out &&
           a->row_a == b->row_a && a->row_b == b->row_b && a->row_out == b->row_out && a->batch == b->batch &&
           a->step_a == b->step_a && a->step_b == b->step_b && a->step_out == b->step_out && a->whole_b == b->whole_b &&
           a->padded == b->padded;
}

/* Whether all of the right operand's rows, as stored, lie in its buffer with what is between them. */
static bool has_whole_b(const rcvi_program *program, const rcvi_step *step) {
    const rcvi_view *b = &step->b;
    int64_t rows = step->gemm.transpose_b ? step->columns : step->gemm.depth;
    bool spans = step->time.timed && step->gemm.transpose_a;
    bool moves = spans || b->stride || b->outer || b->wrap || step->gemm.batch > 1;
    return !moves && b->offset + rows * b->row <= program->buffers[b->buffer].count;
}

rcvi_cuda_gemm_shape rcvi_cuda_shape_gemm(const rcvi_engine *e, const rcvi_step *step, int64_t span) {
    bool adds = e->ready[step - e->program->steps].adds_start;
    int64_t full = step->time.timed ? step->time.span : 1;
    bool over_depth = step->gemm.transpose_a;
    return (rcvi_cuda_gemm_shape){.rows = over_depth ? step->rows : step->rows / full * span,
                                  .columns = step->columns,
                                  .depth = over_depth ? step->gemm.depth / full * span : step->gemm.depth,
                                  .transpose_a = step->gemm.transpose_a,
                                  .transpose_b = step->gemm.transpose_b,
                                  .accumulate = step->accumulate || adds,
                                  .starts = step->gemm.start && !adds,
                                  .a = e->narrow,
                                  .b = e->narrow,
                                  .out = rcvi_cuda_type_of(e, &step->out),
                                  .tensor = e->tensor,
                                  .row_a = step->a.row,
                                  .row_b = step->b.row,
                                  .whole_b = has_whole_b(e->program, step),
                                  .padded = e->padded[step->a.buffer] && e->padded[step->b.buffer],
                                  .transpose_out = e->transposed[step->out.buffer] > 0,
                                  .row_out =
                                      e->transposed[step->out.buffer] ? e->transposed[step->out.buffer] : step->out.row,
                                  .batch = step->gemm.batch,
                                  .step_a = step->gemm.step_a,
                                  .step_b = step->gemm.step_b,
                                  .step_out = step->gemm.step_out};
}

/* An algorithm for the shape, shared with an earlier step of the same shape. */
static rcv_status find_gemm(rcvi_engine *e, size_t index, int64_t span, rcvi_cuda_gemm **gemm, bool *owns) {
    rcvi_cuda_gemm_shape shape = rcvi_cuda_shape_gemm(e, &e->program->steps[index], span);
    *owns = false;
    for (size_t i = 0; i < index; i++) {
        const rcvi_step *other = &e->program->steps[i];
        if (other->kind != RCVI_STEP_GEMM || !e->ready[i].gemm) continue;
        rcvi_cuda_gemm_shape theirs = rcvi_cuda_shape_gemm(e, other, other->time.timed ? other->time.span : 1);
        if (!rcvi_cuda_same_shape(&shape, &theirs)) continue;
        *gemm = e->ready[i].gemm;
        return RCV_OK;
    }
    *owns = true;
    int choice = (int)e->program->rungs.choice; /* where the library proposes fewer, the last of them */
    rcv_status status = rcvi_cuda_gemm_new(e->blas, &shape, choice, gemm);
    while (status == RCV_UNSUPPORTED && choice > 0) status = rcvi_cuda_gemm_new(e->blas, &shape, --choice, gemm);
    return status;
}

/* Products that go beside others need no room on the first stream. */
static void make_room(rcvi_engine *e, const rcvi_step *step, size_t bytes) {
    if (bytes > e->beside_bytes) e->beside_bytes = bytes;
    if (bytes > e->workspace_bytes && !rcvi_cuda_goes_beside(e, step)) e->workspace_bytes = bytes;
}

/* Of all of the step's time. */
static rcv_status find_product(rcvi_engine *e, size_t index, int64_t span) {
    rcvi_cuda_ready *ready = &e->ready[index];
    const rcvi_step *step = &e->program->steps[index];
    if (ready->operand) {
        RCVI_TRY(rcvi_cuda_prepare_parts(e, index));
        make_room(e, step, rcvi_cuda_parts_workspace(ready->parts));
        return RCV_OK;
    }
    RCVI_TRY(find_gemm(e, index, span, &ready->gemm, &ready->owns_gemm));
    make_room(e, step, rcvi_cuda_gemm_workspace(ready->gemm));
    return RCV_OK;
}

static rcv_status prepare_gemm(rcvi_engine *e, size_t index) {
    const rcvi_step *step = &e->program->steps[index];
    rcvi_cuda_ready *ready = &e->ready[index];
    int64_t span = step->time.timed ? step->time.span : 1, left = e->program->options.steps % span;
    if (!e->blas) RCVI_TRY(rcvi_cuda_blas_new(e->context, &e->blas));
    const rcvi_view *start = step->gemm.start;
    ready->adds_start = start && rcvi_cuda_type_of(e, start) != rcvi_cuda_type_of(e, &step->out);
    rcv_status status = find_product(e, index, span);
    if (status == RCV_UNSUPPORTED && start && !ready->adds_start) {
        ready->adds_start = true;
        status = find_product(e, index, span);
    }
    RCVI_TRY(status);
    if (!left) return RCV_OK;
    RCVI_TRY(find_gemm(e, index, left, &ready->last_gemm, &ready->owns_last));
    make_room(e, step, rcvi_cuda_gemm_workspace(ready->last_gemm));
    return RCV_OK;
}

static rcv_status prepare_vendor(rcvi_engine *e) {
    rcvi_cudnn *vendor = NULL;
    e->vendor = rcvi_pool_new(&e->pool, 1, sizeof *e->vendor);
    if (e->pool.failed) return RCV_NO_MEMORY;
    RCVI_TRY(rcvi_cudnn_new(e->program, &vendor));
    atomic_store(e->vendor, vendor);
    e->vendor_bytes = rcvi_cudnn_bytes(vendor);
    return e->program->rungs.algorithm ? rcvi_cudnn_try(vendor) : RCV_OK;
}

/* A loop that cannot be one kernel is launched step by step, unless that is so with all of them. */
static rcv_status try_persistent(rcvi_engine *e, size_t loop) {
    rcv_status status = rcvi_persistent_new(e, loop, &e->persistent[loop]);
    if (status != RCV_UNSUPPORTED) return status;
    if (!e->not_persistent) e->not_persistent = rcvi_pool_format(&e->pool, "%s", rcv_message());
    return e->pool.failed ? RCV_NO_MEMORY : RCV_OK;
}

/* As recurrences, else step by step. */
static rcv_status try_recurrences(rcvi_engine *e, size_t loop) {
    rcv_status status = rcvi_cuda_recurrences_new(e, loop, &e->recurrences[loop]);
    if (status == RCV_UNSUPPORTED) {
        if (!e->not_scanned) e->not_scanned = rcvi_pool_format(&e->pool, "%s", rcv_message());
        return e->pool.failed ? RCV_NO_MEMORY : RCV_OK;
    }
    for (int i = 0; !status && i < e->recurrences[loop]->count; i++) {
        const rcvi_cuda_recurrence *one = &e->recurrences[loop]->all[i];
        if (one->states > e->scans_bytes) e->scans_bytes = one->states;
        if (one->sums > e->scan_sums_bytes) e->scan_sums_bytes = one->sums;
    }
    return status;
}

static rcv_status check_persistent(const rcvi_engine *e) {
    bool some = false;
    bool clustered = false;
    for (size_t i = 0; i < e->program->step_count; i++) {
        some |= e->persistent[i] != NULL;
        clustered |= e->persistent[i] && e->persistent[i]->cluster;
    }
    if (e->program->rungs.cluster && some && !clustered) return rcvi_fail(RCV_UNSUPPORTED, "%s", e->not_clustered);
    if (!e->program->rungs.persistent || some) return RCV_OK;
    return rcvi_fail(RCV_UNSUPPORTED, "%s",
                     e->not_persistent ? e->not_persistent : "a persistent kernel needs a time loop with products");
}

static rcv_status prepare_steps(rcvi_engine *e) {
    for (size_t i = 0; i < e->program->step_count; i++) {
        const rcvi_step *step = &e->program->steps[i];
        if (rcvi_program_is_persistent(e->program, i)) RCVI_TRY(try_persistent(e, i));
        if (e->persistent[i]) {
            e->persistent[i]->exchange_place = e->exchange_bytes;
            e->exchange_bytes += round_up(e->persistent[i]->exchange);
            size_t counters = (size_t)e->persistent[i]->counters * 4;
            if (counters > e->counters_bytes) e->counters_bytes = counters;
            i += (size_t)step->loop.body;
            continue;
        }
        if (rcvi_program_is_scan(e->program, i)) RCVI_TRY(try_recurrences(e, i));
        if (e->recurrences[i]) {
            i += (size_t)step->loop.body;
            continue;
        }
        if (step->kind == RCVI_STEP_MAP) RCVI_TRY(prepare_map(e, step, &e->ready[i]));
        if (step->kind == RCVI_STEP_GEMM) RCVI_TRY(prepare_gemm(e, i));
        if (step->kind == RCVI_STEP_VENDOR && !e->vendor) RCVI_TRY(prepare_vendor(e));
    }
    return check_persistent(e);
}

/* Room for the sums over rows of a launch. */
static void find_sums_bytes(rcvi_engine *e) {
    for (size_t g = 0; g < e->group_count; g++) {
        const rcvi_step *step = &e->program->steps[e->order[e->groups[g].first]];
        if (step->kind != RCVI_STEP_REDUCE || !step->reduce.over_rows) continue;
        int64_t each = rcvi_cuda_reduce_rows_scratch(step->rows, step->columns);
        size_t bytes = (size_t)(e->groups[g].count * each) * rcvi_cuda_bytes(e->real);
        if (bytes > e->sums_bytes) e->sums_bytes = bytes;
    }
}

/* ---- the whole ---- */

static rcv_status ask_device(rcvi_engine *e) {
    const struct {
        enum cudaDeviceAttr which;
        int *to;
    } facts[] = {{cudaDevAttrComputeCapabilityMajor, &e->major},
                 {cudaDevAttrComputeCapabilityMinor, &e->minor},
                 {cudaDevAttrMultiProcessorCount, &e->processors},
                 {cudaDevAttrMaxSharedMemoryPerBlockOptin, &e->shared}};
    for (size_t i = 0; i < sizeof facts / sizeof *facts; i++)
        RCVI_CUDA_TRY(cudaDeviceGetAttribute(facts[i].to, facts[i].which, e->ordinal), "asking for the device's size");
    return RCV_OK;
}

rcv_status rcvi_cuda_find_layout(rcvi_engine *e) {
    const rcvi_program *program = e->program;
    rcv_dtype dtype = program->options.dtype;
    e->ordinal = program->machine.ordinal;
    e->real = dtype == RCV_FLOAT64 ? RCVI_F64 : RCVI_F32;
    e->narrow = dtype == RCV_BFLOAT16 ? RCVI_BF16 : dtype == RCV_FLOAT16 ? RCVI_F16 : e->real;
    e->tensor = dtype == RCV_TFLOAT32;
    e->streams = program->rungs.streams > 1 ? (int)program->rungs.streams : 1;
    e->ready = rcvi_pool_new(&e->pool, program->step_count, sizeof *e->ready);
    e->rounded = rcvi_pool_new(&e->pool, program->buffer_count, sizeof *e->rounded);
    e->transposed = rcvi_pool_new(&e->pool, program->buffer_count, sizeof *e->transposed);
    e->padded = rcvi_pool_new(&e->pool, program->buffer_count, sizeof *e->padded);
    e->stand_ins = rcvi_pool_new(&e->pool, program->buffer_count, sizeof *e->stand_ins);
    e->persistent = rcvi_pool_new(&e->pool, program->step_count, sizeof *e->persistent);
    e->recurrences = rcvi_pool_new(&e->pool, program->step_count, sizeof *e->recurrences);
    if (e->pool.failed) return RCV_NO_MEMORY;
    find_rounded(e);
    find_transposed(e);
    RCVI_TRY(rcvi_cuda_find_short(e));
    find_padded(e);
    find_stand_ins(e);
    e->covers = covers(program);
    rcvi_cuda_find_parts(e);
    return RCV_OK;
}

/* Does a step that is launched by itself multiply with the buffer? */
static bool is_multiplied(const rcvi_engine *e, int buffer) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    for (size_t i = 0; i < e->program->step_count; i++) {
        const rcvi_step *step = &e->program->steps[i];
        if (e->persistent[i]) {
            i += step->loop.body;
            continue;
        }
        int count = step->kind == RCVI_STEP_LOOP ? 0 : rcvi_step_accesses(step, accesses);
        for (int k = 0; k < count; k++) {
            if (accesses[k].view->buffer == buffer && accesses[k].use == RCVI_USE_OPERAND && accesses[k].read)
                return true;
        }
    }
    return false;
}

/* An input that only persistent loops multiply with is rounded on its way there. */
static void drop_rounded(rcvi_engine *e) {
    for (size_t b = 0; b < e->program->buffer_count; b++) {
        if (e->program->buffers[b].role == RCVI_X && !is_multiplied(e, (int)b)) e->rounded[b] = SIZE_MAX;
    }
}

static rcv_status build(rcvi_engine *e) {
    RCVI_TRY(rcvi_cuda_find_layout(e));
    RCVI_TRY(ask_device(e));
    RCVI_TRY(prepare_steps(e));
    drop_rounded(e);
    RCVI_TRY(rcvi_cuda_order(e));
    find_sums_bytes(e);
    lay_out_scratch(e);
    return RCV_OK;
}

rcv_status rcvi_cuda_engine_new(const rcvi_program *program, rcvi_engine **out) {
    rcv_context *context = program->pool.context;
    rcvi_engine *e = rcvi_new(context, 1, sizeof *e);
    *out = NULL;
    if (!e) return RCV_NO_MEMORY;
    e->program = program;
    e->context = context;
    rcvi_pool_init(&e->pool, context);
    int before = 0;
    rcv_status status = rcvi_cuda_enter(program->machine.ordinal, &before);
    if (!status) {
        status = build(e);
        rcvi_cuda_leave(before);
    }
    if (status) {
        rcvi_cuda_engine_free(e);
        return status;
    }
    *out = e;
    return RCV_OK;
}

rcv_status rcvi_cuda_engine_load(rcvi_engine *e) {
    int before = 0;
    RCVI_TRY(rcvi_cuda_enter(e->ordinal, &before));
    rcv_status status = load_kernels(e);
    rcvi_cuda_leave(before);
    return status;
}

void rcvi_cuda_engine_free(rcvi_engine *e) {
    int before = 0;
    if (!e) return;
    bool entered = !rcvi_cuda_enter(e->ordinal, &before);
    for (size_t k = 0; k < e->kernel_count; k++) {
        if (e->kernels[k].code) cudaLibraryUnload(e->kernels[k].code);
        rcvi_free(e->context, e->kernels[k].source);
    }
    for (size_t i = 0; e->persistent && i < e->program->step_count; i++)
        rcvi_persistent_free(e->context, e->persistent[i]);
    for (size_t i = 0; e->recurrences && i < e->program->step_count; i++)
        rcvi_cuda_recurrences_free(e->context, e->recurrences[i]);
    for (size_t i = 0; e->ready && i < e->program->step_count; i++) {
        if (e->ready[i].owns_gemm) rcvi_cuda_gemm_free(e->ready[i].gemm);
        if (e->ready[i].owns_last) rcvi_cuda_gemm_free(e->ready[i].last_gemm);
        if (e->ready[i].owns_parts) rcvi_cuda_parts_free(e->ready[i].parts);
    }
    if (e->vendor) rcvi_cudnn_free(atomic_load(e->vendor));
    rcvi_cuda_blas_free(e->blas);
    if (entered) rcvi_cuda_leave(before);
    rcvi_free(e->context, e->kernels);
    rcvi_free(e->context, e->groups);
    rcvi_pool_free(&e->pool);
    rcvi_free(e->context, e);
}
