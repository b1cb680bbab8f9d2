/* The launch of each kind of step. */
#include "device/cuda/engine/pass.h"

enum { MOST_BLOCKS = 65535, MAP_ROWS = 8, MAP_THREADS = 32, THREADS = 256 };

/* Where the kernel reads the number of rows; NULL: it is an argument. */
static const int64_t *counted_of(const rcvi_cuda_pass *p, const rcvi_cuda_due *d) {
    if (!rcvi_cuda_is_counted(p->engine, d->index)) return NULL;
    return (const int64_t *)(const void *)(p->worker->kept + p->engine->alive) + rcvi_cuda_step_of(p, d);
}

/* ---- addresses ---- */

static void *address(const rcvi_cuda_pass *p, const rcvi_cuda_due *d, const rcvi_view *view) {
    if (view->buffer == RCVI_NONE || !p->worker->buffers[view->buffer]) return NULL;
    int64_t start = rcvi_view_start(view, p->inner, p->outer, d->time),
            transposed = p->engine->transposed[view->buffer];
    if (transposed && view->row) start = start % view->row * transposed + start / view->row;
    return (char *)p->worker->buffers[view->buffer] +
           start * (int64_t)rcvi_cuda_bytes(rcvi_cuda_type_of(p->engine, view));
}

static void *rounded(const rcvi_cuda_pass *p, const rcvi_cuda_due *d, const rcvi_view *view) {
    if (!rcvi_cuda_has_rounded(p->engine, view->buffer)) return NULL;
    int64_t start = rcvi_view_start(view, p->inner, p->outer, d->time);
    return rcvi_cuda_rounded_copy(p->worker, p->scratch, view->buffer) +
           start * (int64_t)rcvi_cuda_bytes(p->engine->narrow);
}

/* What products read: the rounded copy, where there is one. */
static void *operand(const rcvi_cuda_pass *p, const rcvi_cuda_due *d, const rcvi_view *view) {
    return rcvi_cuda_has_rounded(p->engine, view->buffer) ? rounded(p, d, view) : address(p, d, view);
}

/* The order of the caller's rows, where the run sorts sequences. */
static rcvi_order order_of(const rcvi_cuda_pass *p) {
    const int64_t *of = (const int64_t *)(const void *)(p->worker->kept + p->engine->rows_order);
    return (rcvi_order){.of = p->engine->sorts ? of : NULL, .batch = p->program->sizes.batch};
}

/* The order of the rows of one of the caller's arrays. */
static rcvi_order order_in(const rcvi_cuda_pass *p, const rcvi_view *view) {
    rcvi_order order = order_of(p);
    if (p->program->buffers[view->buffer].is_batch_major) order.steps = p->program->sizes.steps;
    return order;
}

static rcvi_matrix matrix(const rcvi_cuda_pass *p, const rcvi_cuda_due *d, const rcvi_view *view, bool written) {
    rcvi_matrix m = {.row = view->row, .column = view->column};
    if (view->buffer == RCVI_NONE) return m;
    m.at = address(p, d, view);
    m.type = rcvi_cuda_type_of(p->engine, view);
    m.rounded_type = p->engine->narrow;
    if (rcvi_cuda_is_by_row(&p->engine->program->buffers[view->buffer])) m.order = order_in(p, view);
    if (written && m.at) m.rounded = rounded(p, d, view);
    if (written && p->engine->padded[view->buffer]) m.wide = view->row;
    return m;
}

/* ---- maps ---- */

static int64_t divide_up(int64_t count, int64_t each) { return (count + each - 1) / each; }

/* Arguments as in source.h, for at most `most` rows from `row` on. Returns the rows of the longest member. */
static int64_t fill_words(const rcvi_cuda_pass *p, const rcvi_cuda_due *members, int count, int64_t row, int64_t most,
                          uint64_t *words) {
    const rcvi_cuda_ready *ready = members[0].ready;
    const rcvi_cuda_kernel *kernel = &p->engine->kernels[ready->kernel];
    const rcvi_map *map = kernel->shape.map;
    size_t at = 0;
    int64_t longest = 0;
    words[at++] = (uint64_t)members[0].step->columns;
    for (int v = 0; v < ready->view_count; v++) {
        const rcvi_view *view = members[0].views[v];
        int64_t transposed = view->buffer == RCVI_NONE ? 0 : p->engine->transposed[view->buffer];
        words[at++] = (uint64_t)(transposed ? transposed : view->row);
    }
    for (int q = 0; q < ready->pass_count; q++) {
        int64_t group = p->engine->program->machine.group, depth = ready->passes[q].depth;
        for (int k = 0; k < map->product_count;
             k++) { /* a packed matrix is one row in the program, and a matrix for the kernel */
            int b = ready->passes[q].b[k];
            if (b != RCVI_NONE) words[1 + b] = (uint64_t)((depth + group - 1) / group * group);
        }
        words[at++] = (uint64_t)depth;
    }
    for (int m = 0; m < count; m++) {
        const rcvi_cuda_due *d = &members[m];
        int64_t rows = d->rows - row < most ? d->rows - row : most;
        bool is_left[RCVI_MAX_VIEWS] = {false};
        for (int q = 0; q < ready->pass_count; q++) is_left[d->ready->passes[q].a] = true;
        const int64_t *counted = counted_of(p, d);
        words[at++] = counted ? (uint64_t)(uintptr_t)counted : (uint64_t)(rows > 0 ? rows : 0);
        if (rows > longest) longest = rows;
        for (int v = 0; v < ready->view_count; v++) {
            const rcvi_view *view = d->views[v];
            char *where = is_left[v] ? operand(p, d, view) : address(p, d, view);
            rcvi_cuda_type type = (rcvi_cuda_type)kernel->shape.types[v];
            if (rcvi_cuda_is_narrowed(p->engine, &kernel->shape, v, view)) where = NULL;
            bool moves =
                where && view->row && row; /* maps with tiles read no transposed views, and others begin at row 0 */
            words[at++] =
                (uint64_t)(uintptr_t)(moves ? where + row * view->row * (int64_t)rcvi_cuda_bytes(type) : where);
        }
        for (int v = 0; v < map->operand_count; v++) {
            if (!kernel->shape.has_rounded[v]) continue;
            const rcvi_view *view = d->views[v];
            char *where =
                rcvi_cuda_is_narrowed(p->engine, &kernel->shape, v, view) ? address(p, d, view) : rounded(p, d, view);
            if (where) where += row * view->row * (int64_t)rcvi_cuda_bytes(p->engine->narrow);
            words[at++] = (uint64_t)(uintptr_t)where;
        }
    }
    return longest;
}

/* The kernels of the interpreter have the same arguments as generated ones, and the table. */
static rcv_status launch_interpreted(const rcvi_cuda_pass *p, const rcvi_cuda_due *members, int count,
                                     cudaStream_t stream) {
    _Static_assert((int)RCVI_MAX_WORDS <= (int)RCVI_INTERPRET_WORDS, "the kernel takes all arguments");
    const rcvi_map_table *table = &p->engine->kernels[members[0].ready->kernel].table;
    int64_t columns = members[0].step->columns, each = RCVI_INTERPRET_BYTES / (table->head.is_double ? 8 : 4);
    uint64_t words[RCVI_MAX_WORDS] = {0};
    rcvi_interpreted head = table->head;
    void *arguments[] = {words, &head};
    int64_t rows = fill_words(p, members, count, 0, INT64_MAX, words);
    if (rows <= 0) return RCV_OK;
    rcvi_interpret_launch launch = rcvi_map_table_launch(table, columns, rows * count, p->engine->processors);
    int down = launch.threads / launch.lanes;
    int64_t across = divide_up(divide_up(columns, each), launch.lanes), below = divide_up(rows, down);
    dim3 block = {.x = (unsigned)launch.lanes, .y = (unsigned)down, .z = 1};
    dim3 grid = {
        .x = (unsigned)across, .y = (unsigned)(below < MOST_BLOCKS ? below : MOST_BLOCKS), .z = (unsigned)count};
    if (table->has_sums) grid = (dim3){.x = (unsigned)(rows < INT32_MAX ? rows : INT32_MAX), 1, (unsigned)count};
    int used = 1 + head.view_count + count * (1 + head.view_count + head.rounded_count);
    const void *kernel = rcvi_interpret_kernel(head.is_double, table->has_sums, used);
    return rcvi_cuda_check(cudaLaunchKernel(kernel, grid, block, arguments, (size_t)launch.shared, stream),
                           "launching an interpreted map");
}

static rcv_status launch_map(const rcvi_cuda_pass *p, const rcvi_cuda_due *members, int count, cudaStream_t stream) {
    const rcvi_cuda_kernel *kernel = &p->engine->kernels[members[0].ready->kernel];
    const rcvi_map_shape *shape = &kernel->shape;
    if (!kernel->source) return launch_interpreted(p, members, count, stream);
    bool tiled = shape->map->product_count > 0;
    int threads = tiled ? rcvi_tile_threads(shape) : shape->row_threads ? shape->row_threads : THREADS;
    dim3 block = {.x = (unsigned)threads, .y = 1, .z = 1};
    int64_t columns = members[0].step->columns, most = tiled ? (int64_t)MOST_BLOCKS * shape->tile_rows : INT64_MAX;
    uint64_t words[RCVI_MAX_WORDS] = {0};
    void *arguments[] = {words};
    for (int64_t row = 0;; row += most) {
        int64_t rows = fill_words(p, members, count, row, most, words);
        if (rows <= 0) return RCV_OK;
        int64_t across = divide_up(columns, tiled ? shape->tile_units : MAP_THREADS * shape->vector);
        int64_t down = divide_up(rows, tiled ? shape->tile_rows : MAP_ROWS);
        dim3 grid = {
            .x = (unsigned)across, .y = (unsigned)(down < MOST_BLOCKS ? down : MOST_BLOCKS), .z = (unsigned)count};
        if (shape->row_threads) grid = (dim3){.x = (unsigned)(rows < INT32_MAX ? rows : INT32_MAX), 1, (unsigned)count};
        RCVI_CUDA_TRY(cudaLaunchKernel((const void *)kernel->kernel, grid, block, arguments, kernel->shared, stream),
                      "launching a map");
        if (!tiled) return RCV_OK;
    }
}

/* ---- other steps ---- */

/* Whether the step adds to its output. It stores gradients that it alone writes where the call overwrites them, or where they are sums that
 * every call begins again. */
static bool adds(const rcvi_cuda_pass *p, const rcvi_step *step) {
    const rcvi_buffer *out = &p->engine->program->buffers[step->out.buffer];
    bool overwrites = p->binding->overwrite || out->replaces == RCVI_DPARAMETERS;
    return step->accumulate && !(rcvi_buffer_is_gradient(out) && p->engine->covers && overwrites);
}

static rcv_status launch_split(const rcvi_cuda_pass *p, const rcvi_cuda_due *d, const void *start, bool stores,
                               void *out, int stream_index, cudaStream_t stream) {
    const rcvi_engine *e = p->engine;
    const rcvi_split_gemm *split = d->ready->split;
    char *a = rcvi_cuda_slot(p, d), *b = rcvi_cuda_of_stream(p, e->split_b, e->split_b_bytes, stream_index);
    int64_t length = rcvi_cuda_product_length(d);
    if (!rcvi_cuda_is_in_slot(p, d))
        RCVI_TRY(rcvi_split_gemm_split_a(split, length, address(p, d, &d->step->a), a, stream));
    p->slots[rcvi_cuda_slot_of(p, d)] = d->ready->operand;
    RCVI_TRY(rcvi_split_gemm_split_b(split, length, address(p, d, &d->step->b), b, stream));
    return rcvi_split_gemm_run(split, length, a, b, start, stores, out, rcvi_cuda_workspace(p, stream_index), stream);
}

static rcv_status launch_gemm(const rcvi_cuda_pass *p, const rcvi_cuda_due *d, int stream_index, cudaStream_t stream) {
    const rcvi_step *s = d->step;
    void *out = address(p, d, &s->out);
    if (!out) return RCV_OK; /* the caller left the gradient out */
    char *workspace = rcvi_cuda_workspace(p, stream_index);
    const void *start = s->gemm.start ? address(p, d, s->gemm.start) : NULL;
    if (s->gemm.start && d->ready->adds_start)
        RCVI_CUDA_TRY(rcvi_cuda_copy(stream, d->rows, s->columns, matrix(p, d, &s->out, false),
                                     matrix(p, d, s->gemm.start, false)),
                      "starting a product");
    bool stores = s->accumulate && !adds(p, s);
    if (d->ready->split) return launch_split(p, d, start, stores, out, stream_index, stream);
    int64_t length = rcvi_cuda_product_length(d);
    const rcvi_cuda_gemm *gemm = rcvi_cuda_gemm_for(d->ready, &p->engine->program->steps[d->index], length);
    const void *a = operand(p, d, &s->a), *b = operand(p, d, &s->b);
    RCVI_TRY(rcvi_cuda_gemm_run_length(gemm, length, a, b, start, stores, out, workspace, stream));
    if (!rcvi_cuda_has_rounded(p->engine, s->out.buffer)) return RCV_OK;
    for (int64_t b = 0; b < s->gemm.batch; b++) {
        rcvi_matrix from = matrix(p, d, &s->out, false), to = from;
        from.at = (char *)from.at + b * s->gemm.step_out * (int64_t)rcvi_cuda_bytes(from.type);
        to.at = (char *)rounded(p, d, &s->out) + b * s->gemm.step_out * (int64_t)rcvi_cuda_bytes(p->engine->narrow);
        to.type = p->engine->narrow;
        RCVI_CUDA_TRY(rcvi_cuda_copy(stream, d->rows, s->columns, to, from), "rounding a product");
    }
    return RCV_OK;
}

static rcv_status launch_columns(const rcvi_cuda_pass *p, const rcvi_cuda_due *d, cudaStream_t stream) {
    const rcvi_step *s = d->step;
    rcvi_matrix out = matrix(p, d, &s->out, true);
    if (!out.at) return RCV_OK; /* the caller left the output out */
    return rcvi_cuda_check(rcvi_cuda_reduce_columns(stream, d->rows, counted_of(p, d), s->columns, s->accumulate, out,
                                                    matrix(p, d, &s->a, false)),
                           "a sum");
}

/* Sums over rows of matrices of one size. */
static rcv_status launch_sums(const rcvi_cuda_pass *p, const rcvi_cuda_due *members, int count, int stream_index,
                              cudaStream_t stream) {
    const rcvi_step *s = members[0].step;
    rcvi_sum sums[RCVI_MAX_SUMS];
    int found = 0;
    for (int i = 0; i < count; i++) {
        rcvi_matrix out = matrix(p, &members[i], &members[i].step->out, true);
        if (out.at) sums[found++] = (rcvi_sum){out, matrix(p, &members[i], &members[i].step->a, false)};
    }
    char *scratch = rcvi_cuda_of_stream(p, p->engine->sums, p->engine->sums_bytes, stream_index);
    return rcvi_cuda_check(rcvi_cuda_reduce_rows(stream, members[0].rows, s->columns, adds(p, s), sums, found, scratch),
                           "a sum");
}

/* Copies, fills with zeros and packed matrices, in one launch. */
static rcv_status launch_moves(const rcvi_cuda_pass *p, const rcvi_cuda_due *members, int count, cudaStream_t stream) {
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
        if (!m->out.at) continue; /* the caller left the output out */
        if (m->out.wide) m->wide = m->out.wide;
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

static cudaError_t launch_mask(const rcvi_cuda_pass *p, const rcvi_cuda_due *d, cudaStream_t stream) {
    const rcvi_step *s = d->step;
    if (s->kind == RCVI_STEP_LIVE)
        return rcvi_cuda_mark_live(stream, s->rows, s->columns, address(p, d, &s->a), address(p, d, &s->out));
    return rcvi_cuda_mark_boundaries(stream, s->rows, s->columns, address(p, d, &s->a), order_in(p, &s->a),
                                     address(p, d, &s->b), address(p, d, &s->out));
}

static rcv_status launch_plain(const rcvi_cuda_pass *p, const rcvi_cuda_due *d, cudaStream_t stream) {
    const rcvi_step *s = d->step;
    rcvi_matrix out = matrix(p, d, &s->out, true);
    cudaError_t error = cudaSuccess;
    if (s->kind == RCVI_STEP_LIVE || s->kind == RCVI_STEP_BOUNDARY)
        return rcvi_cuda_check(launch_mask(p, d, stream), "making a mask");
    if (!out.at) return RCV_OK; /* the caller left the output out */
    switch (s->kind) {
    case RCVI_STEP_COPY:
        error = s->accumulate && !p->binding->overwrite
                    ? rcvi_cuda_add(stream, d->rows, s->columns, out, matrix(p, d, &s->a, false))
                    : rcvi_cuda_copy(stream, d->rows, s->columns, out, matrix(p, d, &s->a, false));
        break;
    case RCVI_STEP_FILL: error = rcvi_cuda_fill(stream, d->rows, s->columns, out, s->fill.number); break;
    case RCVI_STEP_SELECT:
        error = rcvi_cuda_select(stream, d->rows, s->columns, address(p, d, &s->mask), s->mask.row, out,
                                 matrix(p, d, &s->a, false), matrix(p, d, &s->b, false));
        break;
    case RCVI_STEP_DROPOUT:
        error = rcvi_cuda_dropout(stream, d->rows, s->columns, s->dropout.probability, s->dropout.salt,
                                  s->dropout.period, p->program->sizes.batch, &p->binding->shard,
                                  (const uint64_t *)(void *)(p->worker->kept + p->engine->seed), order_of(p), out,
                                  matrix(p, d, &s->a, false));
        break;
    case RCVI_STEP_COMMUNICATE:
        if (p->binding->signals)
            error = cudaMemcpyAsync(&p->binding->signals[s->communicate.signal], p->binding->signal,
                                    sizeof *p->binding->signal, cudaMemcpyDeviceToHost, stream);
        break;
    default: break;
    }
    return rcvi_cuda_check(error, rcvi_step_names[s->kind]);
}

static rcv_status launch_one(const rcvi_cuda_pass *p, const rcvi_cuda_due *d, int stream_index, cudaStream_t stream) {
    switch (d->step->kind) {
    case RCVI_STEP_GEMM: return launch_gemm(p, d, stream_index, stream);
    case RCVI_STEP_REDUCE:
        return d->step->reduce.over_rows ? launch_sums(p, d, 1, stream_index, stream) : launch_columns(p, d, stream);
    case RCVI_STEP_PACK: return launch_moves(p, d, 1, stream);
    case RCVI_STEP_VENDOR: {
        rcvi_binding binding = *p->binding;
        binding.buffers = p->worker->buffers;
        return rcvi_cudnn_run(p->worker->vendor, d->step->vendor.backward, &binding, stream);
    }
    default: return launch_plain(p, d, stream);
    }
}

rcv_status rcvi_cuda_launch_members(const rcvi_cuda_pass *p, const rcvi_cuda_due *members, int count, int stream_index,
                                    cudaStream_t stream) {
    int kind = members[0].step->kind;
    if (kind == RCVI_STEP_MAP) return launch_map(p, members, count, stream);
    if (count == 1) return launch_one(p, &members[0], stream_index, stream);
    if (kind == RCVI_STEP_REDUCE) return launch_sums(p, members, count, stream_index, stream);
    return launch_moves(p, members, count, stream);
}

rcv_status rcvi_cuda_round_inputs(const rcvi_cuda_pass *p, cudaStream_t stream) {
    const rcvi_program *program = p->program;
    for (size_t b = 0; b < program->buffer_count; b++) {
        const rcvi_buffer *buffer = &program->buffers[b];
        bool given = buffer->role == RCVI_X || buffer->role == RCVI_PARAMETERS;
        if (!given || !rcvi_cuda_has_rounded(p->engine, (int)b)) continue;
        if (buffer->role == RCVI_PARAMETERS && p->binding->same_parameters) continue;
        if (buffer->role == RCVI_X && p->binding->only_prepares) continue;
        rcvi_matrix from = {.at = p->worker->buffers[b], .row = buffer->count, .column = 1, .type = p->engine->real};
        rcvi_matrix to = from;
        to.at = rcvi_cuda_rounded_copy(p->worker, p->scratch, (int)b);
        to.type = p->engine->narrow;
        RCVI_CUDA_TRY(rcvi_cuda_copy(stream, 1, buffer->count, to, from), "rounding the input");
    }
    return RCV_OK;
}
