/* Where values lie: element types, rounded copies, transposed buffers, zeros after rows, and buffers that are the caller's arrays. All of it
 * follows from the program alone. */
#include "device/cuda/engine/engine.h"
#include "device/cuda/engine/ragged.h"

rcvi_cuda_type rcvi_cuda_type_of(const rcvi_engine *engine, const rcvi_view *view) {
    switch (engine->program->buffers[view->buffer].element) {
    case RCVI_REAL: return engine->real;
    case RCVI_PACKED:
    case RCVI_ACTIVATION: return engine->narrow;
    case RCVI_AS_FLOAT32: return RCVI_F32;
    case RCVI_AS_FLOAT64: return RCVI_F64;
    case RCVI_AS_FLOAT16: return RCVI_F16;
    case RCVI_AS_BFLOAT16: return RCVI_BF16;
    case RCVI_BYTE: return RCVI_U8;
    default: return RCVI_I64;
    }
}

/* ---- rounded copies ---- */

/* Products read 16-bit operands: a buffer of `real` elements that one reads has a rounded copy. Its place is set by the scratch layout. */
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

/* Whether a product outside of persistent kernels reads the buffer. */
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

/* The launch of a persistent kernel rounds its operands: an input that no other product reads needs no rounded copy. */
void rcvi_cuda_drop_rounded(rcvi_engine *e) {
    for (size_t b = 0; b < e->program->buffer_count; b++) {
        if (e->program->buffers[b].role == RCVI_X && !is_multiplied(e, (int)b)) e->rounded[b] = SIZE_MAX;
    }
}

/* ---- transposed buffers ---- */

/* Whether the access works on a transposed buffer: the output of a product that overwrites and starts from zeros, or a value that a map reads. */
static bool can_be_transposed(const rcvi_step *step, const rcvi_access *access, int64_t row) {
    bool product = step->kind == RCVI_STEP_GEMM && access->view == &step->out && !step->accumulate &&
                   !step->gemm.start && step->gemm.batch == 1;
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

/* ---- rows with zeros after them ---- */

/* Whether the step writes whole rows, all in one launch, by a kernel that can write zeros after them. */
static bool can_pad(const rcvi_engine *e, const rcvi_step *step, const rcvi_buffer *buffer) {
    const rcvi_view *out = &step->out;
    bool known = step->kind == RCVI_STEP_COPY || step->kind == RCVI_STEP_SELECT || step->kind == RCVI_STEP_DROPOUT;
    bool still =
        !step->time.timed && !out->stride && !out->outer && !out->wrap && !e->is_short[step - e->program->steps];
    return known && still && out->column == 1 && out->row > step->columns && out->offset % out->row == 0 &&
           buffer->count % out->row == 0;
}

/* A product whose depth is no multiple of 16 bytes can then include these zeros in its depth. */
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

/* ---- the caller's arrays in place of copies ---- */

static bool is_whole(const rcvi_program *program, const rcvi_step *step, const rcvi_view *view) {
    return view->offset == 0 && view->stride == 0 && view->outer == 0 && view->wrap == 0 && view->column == 1 &&
           (view->row == step->columns || step->rows == 1) &&
           program->buffers[view->buffer].count == step->rows * step->columns;
}

/* Whether no other step writes the buffer. */
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

/* A step that copies all of dy, or copies to all of dx, may be left out: nothing else touches these arrays, so the program's buffer may
 * be the caller's array itself. Not where sequences are sorted: the caller's rows then lie in another order. */
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
        bool alike = rcvi_cuda_type_of(e, &step->a) == rcvi_cuda_type_of(e, &step->out);
        if (buffer->role != RCVI_ARENA || !alike || rcvi_cuda_has_rounded(e, own)) continue;
        if (program->buffers[theirs].is_batch_major) continue;
        if (is_only_writer(program, step, from ? own : theirs)) e->stand_ins[own] = theirs;
    }
}

/* ---- all of it ---- */

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
    e->rounded_is_kept = rcvi_pool_new(&e->pool, program->buffer_count, sizeof *e->rounded_is_kept);
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
    e->covers = rcvi_program_covers_gradients(program);
    rcvi_cuda_find_split_products(e);
    return RCV_OK;
}
