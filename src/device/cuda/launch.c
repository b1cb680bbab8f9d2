/* Goes through a program's loops on the host and launches what is due. */
#include "device/cuda/kernels.h"
#include "device/cuda/persistent.h"
#include "device/cuda/recurrence.h"
#include "device/cuda/worker.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_BLOCKS = 65535, MAP_ROWS = 8, MAP_THREADS = 32, THREADS = 256 };
enum { MOST_STEPS = RCVI_MAX_MOVES }; /* of a launch */
_Static_assert((int)MOST_STEPS >= (int)RCVI_MAX_MEMBERS && (int)MOST_STEPS >= (int)RCVI_MAX_SUMS, "maps and sums too");

typedef struct {
    rcvi_worker *worker;
    const rcvi_engine *engine;
    const rcvi_binding *binding;
    char *scratch;
    int *held; /* [streams] numbers of the operands whose parts are in the slots; 0: none */
    int64_t inner, outer;
    bool products; /* all else is left out */
} pass;

/* A step of the program at one iteration. */
typedef struct {
    const rcvi_step *step;
    const rcvi_cuda_ready *ready;
    int64_t time, span, rows;
} due;

/* The caller's step that is computed. */
static int64_t step_of(const pass *p, const due *d) {
    return d->step->direction ? p->engine->program->options.steps - 1 - d->time : d->time;
}

/* Where a kernel reads how many rows there are; NULL: it is told. */
static const int64_t *counted_of(const pass *p, const due *d) {
    if (!rcvi_cuda_is_counted(p->engine, d->step)) return NULL;
    return (const int64_t *)(const void *)(p->scratch + p->engine->alive) + step_of(p, d);
}

/* A copy between a buffer and what stands in for it. */
static bool is_in_place(const pass *p, const rcvi_step *step) {
    const int *stand_ins = p->engine->stand_ins;
    if (step->kind != RCVI_STEP_COPY || step->a.buffer == RCVI_NONE) return false;
    bool stands = stand_ins[step->out.buffer] == step->a.buffer || stand_ins[step->a.buffer] == step->out.buffer;
    return stands && p->worker->buffers[step->a.buffer] == p->worker->buffers[step->out.buffer];
}

static bool is_due(const pass *p, int index, due *d) {
    const rcvi_step *step = &p->engine->program->steps[index];
    const rcvi_binding *binding = p->binding;
    d->step = step;
    d->ready = &p->engine->ready[index];
    if (step->when == RCVI_WHEN_OVERWRITING && (!binding->overwrite || p->engine->covers)) return false;
    if (step->when == RCVI_WHEN_RESTART_IS_INITIAL && !binding->restart_is_initial[step->state]) return false;
    if (step->when == RCVI_WHEN_PARAMETERS_CHANGED && binding->same_parameters) return false;
    if (is_in_place(p, step) || p->worker->idle[index]) return false;
    if (!rcvi_step_is_due(p->engine->program, step, p->inner, p->outer, &d->time, &d->span)) return false;
    bool over_depth = step->kind == RCVI_STEP_GEMM && step->gemm.transpose_a;
    d->rows = over_depth || !step->time.timed ? step->rows : step->rows / step->time.span * d->span;
    if (p->engine->is_short[index] && !p->engine->counts) d->rows = p->worker->rows.alive[step_of(p, d)];
    return d->rows > 0;
}

/* ---- addresses ---- */

static void *address(const pass *p, const due *d, const rcvi_view *view) {
    if (view->buffer == RCVI_NONE || !p->worker->buffers[view->buffer]) return NULL;
    int64_t start = rcvi_view_start(view, p->inner, p->outer, d->time), turned = p->engine->turned[view->buffer];
    if (turned && view->row) start = start % view->row * turned + start / view->row;
    return (char *)p->worker->buffers[view->buffer] +
           start * (int64_t)rcvi_cuda_bytes(rcvi_cuda_type_of(p->engine, view));
}

static void *twin(const pass *p, const due *d, const rcvi_view *view) {
    if (!rcvi_cuda_has_twin(p->engine, view->buffer)) return NULL;
    int64_t start = rcvi_view_start(view, p->inner, p->outer, d->time);
    return p->scratch + p->engine->twins[view->buffer] + start * (int64_t)rcvi_cuda_bytes(p->engine->narrow);
}

/* What products read: the twin, where there is one. */
static void *operand(const pass *p, const due *d, const rcvi_view *view) {
    return rcvi_cuda_has_twin(p->engine, view->buffer) ? twin(p, d, view) : address(p, d, view);
}

/* Of the caller's rows, where the run sorts. */
static rcvi_order order_of(const pass *p) {
    const int64_t *of = (const int64_t *)(const void *)(p->scratch + p->engine->rows_order);
    return (rcvi_order){p->engine->sorts ? of : NULL, p->engine->program->options.batch};
}

static rcvi_matrix matrix(const pass *p, const due *d, const rcvi_view *view, bool written) {
    rcvi_matrix m = {.row = view->row, .column = view->column};
    if (view->buffer == RCVI_NONE) return m;
    m.at = address(p, d, view);
    m.type = rcvi_cuda_type_of(p->engine, view);
    m.twin_type = p->engine->narrow;
    if (p->engine->sorts && rcvi_cuda_is_by_row(&p->engine->program->buffers[view->buffer])) m.order = order_of(p);
    if (written && m.at) m.twin = twin(p, d, view);
    return m;
}

/* ---- lanes ---- */

/* Groups of a level go to different lanes; what stands for a chunk of time goes beside the steps of others. */
static int lane_of(const pass *p, const rcvi_cuda_group *group, const rcvi_step *step) {
    int streams = p->engine->streams;
    return streams < 2 ? 0 : (group->place + (step->time.span > 1 ? streams / 2 : 0)) % streams;
}

static char *of_lane(const pass *p, size_t place, size_t bytes, int lane) {
    return p->scratch + place + (size_t)lane * ((bytes + 255) / 256 * 256);
}

/* Where the parts of a product's `a` lie. */
static int slot_of(const pass *p, const due *d) { return (d->ready->operand - 1) % p->engine->streams; }
static char *slot(const pass *p, const due *d) {
    return of_lane(p, p->engine->split_a, p->engine->split_a_bytes, slot_of(p, d));
}
static bool is_held(const pass *p, const due *d) { return p->held[slot_of(p, d)] == d->ready->operand; }

/* The bytes that a step touches; a twin is touched with its buffer. Answers how many. */
static size_t find_touches(const pass *p, const due *d, rcvi_touch *touches, size_t room) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    int count = rcvi_step_accesses(d->step, accesses);
    size_t found = 0;
    for (int k = 0; k < count && found < room; k++) {
        const rcvi_view *v = accesses[k].view;
        char *base = p->worker->buffers[v->buffer];
        if (!base) continue;
        int64_t size = (int64_t)rcvi_cuda_bytes(rcvi_cuda_type_of(p->engine, v)), rows = accesses[k].rows;
        if (accesses[k].spans && d->step->time.timed) rows = rows / d->step->time.span * d->span;
        int64_t start = rcvi_view_start(v, p->inner, p->outer, d->time), length = (rows - 1) * v->row;
        if (d->step->kind == RCVI_STEP_GEMM) {
            int64_t move = v == &d->step->out ? d->step->gemm.step_out
                           : v == &d->step->a ? d->step->gemm.step_a
                                              : d->step->gemm.step_b;
            length += (d->step->gemm.batch - 1) * move;
        }
        length += (accesses[k].columns - 1) * v->column + 1;
        if (p->engine->turned[v->buffer]) { /* rows lie scattered: all of it */
            start = 0;
            length = p->engine->program->buffers[v->buffer].count;
        }
        touches[found++] = (rcvi_touch){.low = (uintptr_t)(base + start * size),
                                        .high = (uintptr_t)(base + (start + length) * size),
                                        .written = accesses[k].written};
    }
    if (d->ready->operand && found < room) {
        uintptr_t at = (uintptr_t)slot(p, d);
        touches[found++] = (rcvi_touch){.low = at, .high = at + p->engine->split_a_bytes, .written = !is_held(p, d)};
    }
    return found;
}

static rcv_status enter(const pass *p, int lane, const due *members, int count) {
    if (p->engine->streams < 2) return RCV_OK;
    rcvi_touch touches[RCVI_MAX_TOUCHES]; /* of all members at once: they are one launch */
    size_t found = 0;
    for (int m = 0; m < count; m++) found += find_touches(p, &members[m], touches + found, RCVI_MAX_TOUCHES - found);
    return rcvi_lanes_enter(&p->worker->lanes, lane, touches, found);
}

/* ---- maps ---- */

static int64_t parts(int64_t count, int64_t each) { return (count + each - 1) / each; }

/* Arguments as source.h says, for rows from `row` on, at most `most` of them; answers the rows of the longest member. */
static int64_t fill_words(const pass *p, const due *members, int count, int64_t row, int64_t most, uint64_t *words) {
    const rcvi_cuda_ready *ready = members[0].ready;
    const rcvi_cuda_kernel *kernel = &p->engine->kernels[ready->kernel];
    const rcvi_map *map = kernel->shape.map;
    size_t at = 0;
    int64_t longest = 0;
    words[at++] = (uint64_t)members[0].step->columns;
    for (int v = 0; v < ready->view_count; v++) {
        const rcvi_view *view = ready->views[v];
        int64_t turned = view->buffer == RCVI_NONE ? 0 : p->engine->turned[view->buffer];
        words[at++] = (uint64_t)(turned ? turned : view->row);
    }
    for (int q = 0; q < ready->pass_count; q++) {
        int64_t group = p->engine->program->machine.group, depth = ready->passes[q].depth;
        for (int k = 0; k < map->product_count; k++) { /* a packed matrix is one row for the program, and many here */
            int b = ready->passes[q].b[k];
            if (b != RCVI_NONE) words[1 + b] = (uint64_t)((depth + group - 1) / group * group);
        }
        words[at++] = (uint64_t)depth;
    }
    for (int m = 0; m < count; m++) {
        const due *d = &members[m];
        int64_t rows = d->rows - row < most ? d->rows - row : most;
        bool is_left[RCVI_MAX_VIEWS] = {false};
        for (int q = 0; q < ready->pass_count; q++) is_left[d->ready->passes[q].a] = true;
        const int64_t *counted = counted_of(p, d);
        words[at++] = counted ? (uint64_t)(uintptr_t)counted : (uint64_t)(rows > 0 ? rows : 0);
        if (rows > longest) longest = rows;
        for (int v = 0; v < ready->view_count; v++) {
            const rcvi_view *view = d->ready->views[v];
            char *where = is_left[v] ? operand(p, d, view) : address(p, d, view);
            rcvi_cuda_type type = (rcvi_cuda_type)kernel->shape.types[v];
            if (rcvi_cuda_is_narrowed(p->engine, &kernel->shape, v, view)) where = NULL;
            bool moves = where && view->row && row; /* turned views are read by maps without tiles, from row 0 */
            words[at++] =
                (uint64_t)(uintptr_t)(moves ? where + row * view->row * (int64_t)rcvi_cuda_bytes(type) : where);
        }
        for (int v = 0; v < map->operand_count; v++) {
            if (!kernel->shape.has_twin[v]) continue;
            const rcvi_view *view = d->ready->views[v];
            char *where =
                rcvi_cuda_is_narrowed(p->engine, &kernel->shape, v, view) ? address(p, d, view) : twin(p, d, view);
            if (where) where += row * view->row * (int64_t)rcvi_cuda_bytes(p->engine->narrow);
            words[at++] = (uint64_t)(uintptr_t)where;
        }
    }
    return longest;
}

static rcv_status launch_map(const pass *p, const due *members, int count, cudaStream_t stream) {
    const rcvi_cuda_kernel *kernel = &p->engine->kernels[members[0].ready->kernel];
    const rcvi_map_shape *shape = &kernel->shape;
    bool tiled = shape->map->product_count > 0;
    int threads = tiled ? rcvi_tile_threads(shape) : shape->row_threads ? shape->row_threads : THREADS;
    dim3 block = {.x = (unsigned)threads, .y = 1, .z = 1};
    int64_t columns = members[0].step->columns, most = tiled ? (int64_t)MOST_BLOCKS * shape->tile_rows : INT64_MAX;
    uint64_t words[RCVI_MAX_WORDS] = {0};
    void *arguments[] = {words};
    for (int64_t row = 0;; row += most) {
        int64_t rows = fill_words(p, members, count, row, most, words);
        if (rows <= 0) return RCV_OK;
        int64_t across = parts(columns, tiled ? shape->tile_units : MAP_THREADS * shape->vector);
        int64_t down = parts(rows, tiled ? shape->tile_rows : MAP_ROWS);
        dim3 grid = {
            .x = (unsigned)across, .y = (unsigned)(down < MOST_BLOCKS ? down : MOST_BLOCKS), .z = (unsigned)count};
        if (shape->row_threads) grid = (dim3){.x = (unsigned)(rows < INT32_MAX ? rows : INT32_MAX), 1, (unsigned)count};
        RCVI_CUDA_TRY(cudaLaunchKernel((const void *)kernel->kernel, grid, block, arguments, kernel->shared, stream),
                      "launching a map");
        if (!tiled) return RCV_OK;
    }
}

/* ---- all others ---- */

/* Does the step add to what is there? Where a call overwrites gradients that are one step's each, it stores them. */
static bool adds(const pass *p, const rcvi_step *step) {
    bool gradient = p->engine->program->buffers[step->out.buffer].role == RCVI_DPARAMETERS;
    return step->accumulate && !(gradient && p->engine->covers && p->binding->overwrite);
}

static rcv_status launch_parts(const pass *p, const due *d, const void *start, bool stores, void *out, int lane,
                               cudaStream_t stream) {
    const rcvi_engine *e = p->engine;
    const rcvi_cuda_parts *parts = d->ready->parts;
    char *a = slot(p, d), *b = of_lane(p, e->split_b, e->split_b_bytes, lane);
    if (!is_held(p, d)) RCVI_TRY(rcvi_cuda_parts_split_a(parts, address(p, d, &d->step->a), a, stream));
    p->held[slot_of(p, d)] = d->ready->operand;
    RCVI_TRY(rcvi_cuda_parts_split_b(parts, address(p, d, &d->step->b), b, stream));
    return rcvi_cuda_parts_run(parts, a, b, start, stores, out, of_lane(p, e->workspace, e->workspace_bytes, lane),
                               stream);
}

static rcv_status launch_gemm(const pass *p, const due *d, int lane, cudaStream_t stream) {
    const rcvi_step *s = d->step;
    void *out = address(p, d, &s->out);
    if (!out) return RCV_OK; /* a gradient the caller does not want */
    bool last = s->time.timed && d->span < s->time.span;
    char *workspace = of_lane(p, p->engine->workspace, p->engine->workspace_bytes, lane);
    const void *start = s->gemm.start ? address(p, d, s->gemm.start) : NULL;
    if (s->gemm.start && d->ready->adds_start)
        RCVI_CUDA_TRY(rcvi_cuda_copy(stream, d->rows, s->columns, matrix(p, d, &s->out, false),
                                     matrix(p, d, s->gemm.start, false)),
                      "starting a product");
    bool stores = s->accumulate && !adds(p, s);
    if (d->ready->parts) return launch_parts(p, d, start, stores, out, lane, stream);
    const rcvi_cuda_gemm *gemm = last ? d->ready->last_gemm : d->ready->gemm;
    const void *a = operand(p, d, &s->a), *b = operand(p, d, &s->b);
    RCVI_TRY(stores ? rcvi_cuda_gemm_store(gemm, a, b, out, workspace, stream)
                    : rcvi_cuda_gemm_run(gemm, a, b, start, out, workspace, stream));
    if (!rcvi_cuda_has_twin(p->engine, s->out.buffer)) return RCV_OK;
    for (int64_t b = 0; b < s->gemm.batch; b++) {
        rcvi_matrix from = matrix(p, d, &s->out, false), to = from;
        from.at = (char *)from.at + b * s->gemm.step_out * (int64_t)rcvi_cuda_bytes(from.type);
        to.at = (char *)twin(p, d, &s->out) + b * s->gemm.step_out * (int64_t)rcvi_cuda_bytes(p->engine->narrow);
        to.type = p->engine->narrow;
        RCVI_CUDA_TRY(rcvi_cuda_copy(stream, d->rows, s->columns, to, from), "rounding a product");
    }
    return RCV_OK;
}

static rcv_status launch_columns(const pass *p, const due *d, cudaStream_t stream) {
    const rcvi_step *s = d->step;
    rcvi_matrix out = matrix(p, d, &s->out, true);
    if (!out.at) return RCV_OK; /* an output the caller does not want */
    return rcvi_cuda_check(rcvi_cuda_reduce_columns(stream, d->rows, counted_of(p, d), s->columns, s->accumulate, out,
                                                    matrix(p, d, &s->a, false)),
                           "a sum");
}

/* Sums over rows, of as many rows and columns each. */
static rcv_status launch_sums(const pass *p, const due *members, int count, int lane, cudaStream_t stream) {
    const rcvi_step *s = members[0].step;
    rcvi_sum sums[RCVI_MAX_SUMS];
    int found = 0;
    for (int i = 0; i < count; i++) {
        rcvi_matrix out = matrix(p, &members[i], &members[i].step->out, true);
        if (out.at) sums[found++] = (rcvi_sum){out, matrix(p, &members[i], &members[i].step->a, false)};
    }
    char *scratch = of_lane(p, p->engine->sums, p->engine->sums_bytes, lane);
    return rcvi_cuda_check(rcvi_cuda_reduce_rows(stream, members[0].rows, s->columns, adds(p, s), sums, found, scratch),
                           "a sum");
}

/* Copies, zeros and matrices to be packed, by one launch. */
static rcv_status launch_moves(const pass *p, const due *members, int count, cudaStream_t stream) {
    rcvi_move moves[RCVI_MAX_MOVES];
    int64_t group = p->engine->program->machine.group;
    int found = 0;
    for (int i = 0; i < count; i++) {
        const rcvi_step *s = members[i].step;
        rcvi_move *m = &moves[found];
        *m = (rcvi_move){.rows = members[i].rows,
                         .columns = s->columns,
                         .wide = s->columns,
                         .out = matrix(p, &members[i], &s->out, true),
                         .a = matrix(p, &members[i], &s->a, false)};
        if (!m->out.at) continue; /* an output the caller does not want */
        found++;
        if (s->kind == RCVI_STEP_FILL)
            m->a = (rcvi_matrix){.row = m->out.row, .column = m->out.column, .type = m->out.type};
        if (s->kind != RCVI_STEP_PACK) continue;
        m->transposed = s->pack.transposed;
        m->rows = m->transposed ? s->columns : s->rows;
        m->columns = m->transposed ? s->rows : s->columns;
        m->wide = m->out.row = (m->columns + group - 1) / group * group;
    }
    return rcvi_cuda_check(rcvi_cuda_move(stream, moves, found), "moving matrices");
}

static cudaError_t launch_mask(const pass *p, const due *d, cudaStream_t stream) {
    const rcvi_step *s = d->step;
    if (s->kind == RCVI_STEP_LIVE)
        return rcvi_cuda_live(stream, s->rows, s->columns, address(p, d, &s->a), address(p, d, &s->out));
    return rcvi_cuda_boundary(stream, s->rows, s->columns, address(p, d, &s->a), order_of(p), address(p, d, &s->b),
                              address(p, d, &s->out));
}

static rcv_status launch_plain(const pass *p, const due *d, cudaStream_t stream) {
    const rcvi_step *s = d->step;
    rcvi_matrix out = matrix(p, d, &s->out, true);
    cudaError_t error = cudaSuccess;
    if (s->kind == RCVI_STEP_LIVE || s->kind == RCVI_STEP_BOUNDARY)
        return rcvi_cuda_check(launch_mask(p, d, stream), "making a mask");
    if (!out.at) return RCV_OK; /* an output the caller does not want */
    switch (s->kind) {
    case RCVI_STEP_COPY: error = rcvi_cuda_copy(stream, d->rows, s->columns, out, matrix(p, d, &s->a, false)); break;
    case RCVI_STEP_FILL: error = rcvi_cuda_fill(stream, d->rows, s->columns, out, s->fill.number); break;
    case RCVI_STEP_SELECT:
        error = rcvi_cuda_select(stream, d->rows, s->columns, address(p, d, &s->mask), s->mask.row, out,
                                 matrix(p, d, &s->a, false), matrix(p, d, &s->b, false));
        break;
    case RCVI_STEP_DROPOUT:
        error = rcvi_cuda_dropout(stream, d->rows, s->columns, s->dropout.probability, s->dropout.salt,
                                  s->dropout.period, (const uint64_t *)(void *)(p->scratch + p->engine->seed),
                                  order_of(p), out, matrix(p, d, &s->a, false));
        break;
    default: break;
    }
    return rcvi_cuda_check(error, rcvi_step_names[s->kind]);
}

static rcv_status launch_one(const pass *p, const due *d, int lane, cudaStream_t stream) {
    switch (d->step->kind) {
    case RCVI_STEP_GEMM: return launch_gemm(p, d, lane, stream);
    case RCVI_STEP_REDUCE:
        return d->step->reduce.over_rows ? launch_sums(p, d, 1, lane, stream) : launch_columns(p, d, stream);
    case RCVI_STEP_PACK: return launch_moves(p, d, 1, stream);
    case RCVI_STEP_VENDOR: {
        rcvi_binding binding = *p->binding;
        binding.buffers = p->worker->buffers;
        return rcvi_cudnn_run(p->worker->vendor, d->step->vendor.backward, &binding, stream);
    }
    default: return launch_plain(p, d, stream);
    }
}

static rcv_status launch_members(const pass *p, const due *members, int count, int lane, cudaStream_t stream) {
    int kind = members[0].step->kind;
    if (kind == RCVI_STEP_MAP) return launch_map(p, members, count, stream);
    if (count == 1) return launch_one(p, &members[0], lane, stream);
    if (kind == RCVI_STEP_REDUCE) return launch_sums(p, members, count, lane, stream);
    return launch_moves(p, members, count, stream);
}

static bool has_products(const rcvi_step *step) {
    return step->kind == RCVI_STEP_GEMM || (step->kind == RCVI_STEP_MAP && step->map->product_count > 0);
}

static rcv_status launch_group(const pass *p, const rcvi_cuda_group *group) {
    due members[MOST_STEPS];
    int count = 0;
    if (p->products && !has_products(&p->engine->program->steps[p->engine->order[group->first]])) return RCV_OK;
    for (int i = 0; i < group->count; i++) count += is_due(p, p->engine->order[group->first + i], &members[count]);
    if (count == 0) return RCV_OK;
    int lane = lane_of(p, group, members[0].step);
    RCVI_TRY(enter(p, lane, members, count));
    return launch_members(p, members, count, lane, p->worker->lanes.streams[lane]);
}

/* Buffers whose life begins with this loop, and of which steps in it leave rows out. */
static rcv_status clear(const pass *p, size_t loop) {
    const rcvi_engine *e = p->engine;
    for (size_t b = 0; b < e->program->buffer_count; b++) {
        const rcvi_buffer *buffer = &e->program->buffers[b];
        if (!e->is_cleared[b] || buffer->first != (int)loop) continue;
        size_t bytes = (size_t)buffer->count * rcvi_element_bytes(e->program, buffer->element);
        uintptr_t at = (uintptr_t)p->worker->buffers[b];
        cudaStream_t stream = p->worker->lanes.streams[0];
        RCVI_TRY(
            rcvi_lanes_enter(&p->worker->lanes, 0, &(rcvi_touch){.low = at, .high = at + bytes, .written = true}, 1));
        RCVI_CUDA_TRY(cudaMemsetAsync(p->worker->buffers[b], 0, bytes, stream), "clearing a buffer");
        if (!rcvi_cuda_has_twin(e, (int)b)) continue;
        RCVI_CUDA_TRY(
            cudaMemsetAsync(p->scratch + e->twins[b], 0, (size_t)buffer->count * rcvi_cuda_bytes(e->narrow), stream),
            "clearing a twin");
    }
    return RCV_OK;
}

/* A loop as one kernel, or a few: it waits for all that came before, and all that comes waits for it. `around`: the iteration of the
 * loop that it is in. */
static rcv_status launch_loop(const pass *p, size_t loop, int64_t around) {
    const rcvi_engine *e = p->engine;
    if (p->products && e->recurrences[loop]) return RCV_OK;
    rcvi_touch all = {.low = 0, .high = UINTPTR_MAX, .written = true};
    cudaStream_t stream = p->worker->lanes.streams[0];
    RCVI_TRY(rcvi_lanes_enter(&p->worker->lanes, 0, &all, 1));
    if (e->persistent[loop]) return rcvi_persistent_launch(p->worker, e->persistent[loop], p->scratch, stream);
    return rcvi_cuda_recurrences_launch(p->worker, e->recurrences[loop], around, p->scratch, stream);
}

static rcv_status launch_steps(pass *p, size_t first, size_t end) {
    const rcvi_engine *e = p->engine;
    int64_t around = p->inner;
    for (size_t i = first; i < end;) {
        const rcvi_step *step = &e->program->steps[i];
        if (step->kind != RCVI_STEP_LOOP) {
            const rcvi_cuda_group *group = &e->groups[e->group_of[i]];
            RCVI_TRY(launch_group(p, group));
            i += (size_t)group->count;
            continue;
        }
        size_t body_end = i + 1 + (size_t)step->loop.body;
        if (e->sorts) RCVI_TRY(clear(p, i));
        if (e->persistent[i] || e->recurrences[i]) {
            RCVI_TRY(launch_loop(p, i, around));
            i = body_end;
            continue;
        }
        for (int64_t k = 0; k < step->loop.count; k++) {
            p->outer = around;
            p->inner = k;
            RCVI_TRY(launch_steps(p, i + 1, body_end));
        }
        p->inner = around;
        p->outer = 0;
        i = body_end;
    }
    return RCV_OK;
}

/* Twins of what is the caller's. */
static rcv_status round_inputs(const pass *p, cudaStream_t stream) {
    const rcvi_program *program = p->engine->program;
    for (size_t b = 0; b < program->buffer_count; b++) {
        const rcvi_buffer *buffer = &program->buffers[b];
        bool given = buffer->role == RCVI_X || buffer->role == RCVI_PARAMETERS;
        if (!given || !rcvi_cuda_has_twin(p->engine, (int)b)) continue;
        if (buffer->role == RCVI_PARAMETERS && p->binding->same_parameters) continue;
        rcvi_matrix from = {.at = p->worker->buffers[b], .row = buffer->count, .column = 1, .type = p->engine->real};
        rcvi_matrix to = from;
        to.at = p->scratch + p->engine->twins[b];
        to.type = p->engine->narrow;
        RCVI_CUDA_TRY(rcvi_cuda_copy(stream, 1, buffer->count, to, from), "rounding the input");
    }
    return RCV_OK;
}

rcv_status rcvi_cuda_launch(rcvi_worker *worker, size_t first, size_t end, const rcvi_binding *binding, char *scratch,
                            cudaStream_t stream) {
    int held[RCVI_MAX_STREAMS] = {0};
    const char *only = getenv("RECURVE_ONLY"); /* for measuring: what is computed then means nothing */
    pass p = {.worker = worker,
              .engine = worker->engine,
              .binding = binding,
              .scratch = scratch,
              .held = held,
              .products = only && !strcmp(only, "products")};
    rcvi_program_find_idle(worker->engine->program, worker->buffers, first, end, worker->wanted, worker->idle);
    if (first == 0) RCVI_TRY(round_inputs(&p, stream));
    RCVI_TRY(rcvi_lanes_begin(&worker->lanes, stream));
    rcv_status status = launch_steps(&p, first, end);
    rcv_status ended = rcvi_lanes_end(&worker->lanes);
    return status ? status : ended;
}
