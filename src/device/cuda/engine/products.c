/* Products by cuBLASLt: the shape of a step's product, its algorithm and its workspace. */
#include "device/cuda/engine/engine.h"

static bool is_in_loop(const rcvi_program *program, size_t step) {
    bool found = false;
    for (size_t i = 0; i < step && !found; i++)
        found = program->steps[i].kind == RCVI_STEP_LOOP && step - i <= (size_t)program->steps[i].loop.body;
    return found;
}

bool rcvi_cuda_goes_beside(const rcvi_engine *e, size_t step) {
    return e->streams > 1 && rcvi_step_is_deferrable(e->program, &e->program->steps[step]) &&
           !is_in_loop(e->program, step);
}

bool rcvi_cuda_same_shape(const rcvi_cuda_gemm_shape *a, const rcvi_cuda_gemm_shape *b) {
    return a->rows == b->rows && a->columns == b->columns && a->depth == b->depth && a->transpose_a == b->transpose_a &&
           a->transpose_b == b->transpose_b && a->accumulate == b->accumulate && a->starts == b->starts &&
           a->transpose_out == b->transpose_out && a->a == b->a && a->b == b->b && a->out == b->out &&
           a->row_a == b->row_a && a->row_b == b->row_b && a->row_out == b->row_out && a->batch == b->batch &&
           a->step_a == b->step_a && a->step_b == b->step_b && a->step_out == b->step_out && a->whole_b == b->whole_b &&
           a->padded == b->padded;
}

/* Whether the whole stride of every row of the right operand, as stored, lies in its buffer. */
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

/* The length of class `k`: a quarter of that of the class before. */
static int64_t class_length(int64_t length, int k) {
    int64_t own = length >> 2 * k;
    return own > 1 ? own : 1;
}

static rcvi_cuda_gemm_shape class_shape(const rcvi_engine *e, const rcvi_step *step, int k) {
    rcvi_cuda_gemm_shape shape = rcvi_cuda_shape_gemm(e, step, step->time.timed ? step->time.span : 1);
    int64_t *length = shape.transpose_a ? &shape.depth : &shape.rows;
    *length = class_length(*length, k);
    return shape;
}

const rcvi_cuda_gemm *rcvi_cuda_gemm_for(const rcvi_cuda_ready *ready, const rcvi_step *planned, int64_t length) {
    int64_t most = planned->gemm.transpose_a ? planned->gemm.depth : planned->rows;
    int k = RCVI_LENGTH_CLASSES - 1;
    while (k > 0 && (!ready->gemms[k] || class_length(most, k) < length)) k--;
    return ready->gemms[k];
}

/* An algorithm for the step's length of this class, shared with an earlier step of the same shape. */
static rcv_status find_gemm(rcvi_engine *e, size_t index, int k) {
    rcvi_cuda_gemm_shape shape = class_shape(e, &e->program->steps[index], k);
    rcvi_cuda_ready *ready = &e->ready[index];
    ready->owns_gemm[k] = false;
    for (size_t i = 0; i < index; i++) {
        const rcvi_step *other = &e->program->steps[i];
        if (other->kind != RCVI_STEP_GEMM || !e->ready[i].gemms[k]) continue;
        rcvi_cuda_gemm_shape theirs = class_shape(e, other, k);
        if (!rcvi_cuda_same_shape(&shape, &theirs)) continue;
        ready->gemms[k] = e->ready[i].gemms[k];
        return RCV_OK;
    }
    int choice = (int)e->program->rungs.choice; /* the last one, where the library proposes fewer */
    rcv_status status = rcvi_cuda_gemm_new(e->blas, &shape, choice, &ready->gemms[k]);
    while (status == RCV_UNSUPPORTED && choice > 0)
        status = rcvi_cuda_gemm_new(e->blas, &shape, --choice, &ready->gemms[k]);
    ready->owns_gemm[k] = !status;
    return status;
}

/* Products that run beside loops need no workspace on the first stream. */
static void grow_workspace(rcvi_engine *e, size_t step, size_t bytes) {
    if (bytes > e->beside_bytes) e->beside_bytes = bytes;
    if (bytes > e->workspace_bytes && !rcvi_cuda_goes_beside(e, step)) e->workspace_bytes = bytes;
}

/* The product over the step's whole span of time. */
static rcv_status find_product(rcvi_engine *e, size_t index) {
    rcvi_cuda_ready *ready = &e->ready[index];
    if (ready->operand) {
        RCVI_TRY(rcvi_cuda_prepare_split(e, index));
        grow_workspace(e, index, rcvi_split_gemm_workspace(ready->split));
        return RCV_OK;
    }
    RCVI_TRY(find_gemm(e, index, 0));
    grow_workspace(e, index, rcvi_cuda_gemm_workspace(ready->gemms[0]));
    return RCV_OK;
}

rcv_status rcvi_cuda_prepare_gemm(rcvi_engine *e, size_t index) {
    const rcvi_step *step = &e->program->steps[index];
    rcvi_cuda_ready *ready = &e->ready[index];
    if (!e->blas) RCVI_TRY(rcvi_cuda_blas_new(e->context, &e->blas));
    const rcvi_view *start = step->gemm.start;
    ready->adds_start = start && rcvi_cuda_type_of(e, start) != rcvi_cuda_type_of(e, &step->out);
    rcv_status status = find_product(e, index);
    if (status == RCV_UNSUPPORTED && start && !ready->adds_start) {
        ready->adds_start = true;
        status = find_product(e, index);
    }
    return status;
}

rcv_status rcvi_cuda_prepare_short_gemms(rcvi_engine *e) {
    for (size_t i = 0; i < e->program->step_count; i++) {
        const rcvi_step *step = &e->program->steps[i];
        rcvi_cuda_ready *ready = &e->ready[i];
        bool changes = step->kind == RCVI_STEP_GEMM && step->when != RCVI_WHEN_PARAMETERS_CHANGED;
        if (!changes || !ready->gemms[0]) continue;
        size_t room = rcvi_cuda_goes_beside(e, i) ? e->beside_bytes : e->workspace_bytes;
        for (int k = 1; k < RCVI_LENGTH_CLASSES; k++) {
            rcv_status status = find_gemm(e, i, k);
            if (status == RCV_NO_MEMORY) return status;
            bool fits = !status && rcvi_cuda_gemm_workspace(ready->gemms[k]) <= room;
            if (fits) continue;
            if (!status && ready->owns_gemm[k]) rcvi_cuda_gemm_free(ready->gemms[k]);
            ready->gemms[k] = NULL; /* calls take the class before */
            ready->owns_gemm[k] = false;
        }
    }
    return RCV_OK;
}
