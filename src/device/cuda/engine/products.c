/* Products by cuBLASLt: the shape of a step's product, its algorithm and its workspace. */
#include "device/cuda/engine/engine.h"

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
    int choice = (int)e->program->rungs.choice; /* the last one, where the library proposes fewer */
    rcv_status status = rcvi_cuda_gemm_new(e->blas, &shape, choice, gemm);
    while (status == RCV_UNSUPPORTED && choice > 0) status = rcvi_cuda_gemm_new(e->blas, &shape, --choice, gemm);
    return status;
}

/* Products that run beside loops need no workspace on the first stream. */
static void grow_workspace(rcvi_engine *e, const rcvi_step *step, size_t bytes) {
    if (bytes > e->beside_bytes) e->beside_bytes = bytes;
    if (bytes > e->workspace_bytes && !rcvi_cuda_goes_beside(e, step)) e->workspace_bytes = bytes;
}

/* The product over the step's whole span of time. */
static rcv_status find_product(rcvi_engine *e, size_t index, int64_t span) {
    rcvi_cuda_ready *ready = &e->ready[index];
    const rcvi_step *step = &e->program->steps[index];
    if (ready->operand) {
        RCVI_TRY(rcvi_cuda_prepare_split(e, index));
        grow_workspace(e, step, rcvi_split_gemm_workspace(ready->split));
        return RCV_OK;
    }
    RCVI_TRY(find_gemm(e, index, span, &ready->gemm, &ready->owns_gemm));
    grow_workspace(e, step, rcvi_cuda_gemm_workspace(ready->gemm));
    return RCV_OK;
}

rcv_status rcvi_cuda_prepare_gemm(rcvi_engine *e, size_t index) {
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
    grow_workspace(e, step, rcvi_cuda_gemm_workspace(ready->last_gemm));
    return RCV_OK;
}
