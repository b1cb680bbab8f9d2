/* Which products outside of loops are computed by split-bf16 emulation (gemm/split_gemm.h), and which of them share a left operand that
 * is split once.
 *
 * A shared left operand `a` is the gates' adjoints of a layer, which three products of its backward pass read. The scratch has a slot
 * for a split `a` for every stream. A product whose operand is not in its slot splits it first; slots are tracked like other memory
 * between streams. `b` is split for every product. */
#include "device/cuda/engine/engine.h"

/* bfloat16 parts of a float32; 0: products are not split. */
static int parts_of(const rcvi_program *program) {
    const rcvi_rungs *g = &program->rungs;
    if (!g->persistent || program->options.dtype != RCV_FLOAT32 || g->parts == 1) return 0;
    return g->parts ? (int)g->parts : RCVI_USUAL_PARTS;
}

static bool is_plain(const rcvi_engine *e, const rcvi_view *view) {
    return view->column == 1 && view->wrap == 0 && rcvi_cuda_type_of(e, view) == RCVI_F32 &&
           !e->transposed[view->buffer];
}

/* Whether it is a large product over the whole sequence, of plain float32 matrices. */
static bool is_splittable(const rcvi_engine *e, size_t index) {
    const rcvi_program *program = e->program;
    const rcvi_step *step = &program->steps[index];
    if (step->kind != RCVI_STEP_GEMM || step->gemm.batch != 1 || e->is_short[index]) return false;
    if (step->time.timed && step->time.span != program->options.steps) return false;
    if (!is_plain(e, &step->a) || !is_plain(e, &step->b) || !is_plain(e, &step->out)) return false;
    rcvi_cuda_gemm_shape shape = rcvi_cuda_shape_gemm(e, step, step->time.timed ? step->time.span : 1);
    double work = (double)shape.rows * (double)shape.columns * (double)shape.depth;
    return work >= (double)program->machine.min_library_product && rcvi_split_gemm_pays(&shape);
}

static bool is_written(const rcvi_program *program, size_t first, size_t end, int buffer) {
    rcvi_access accesses[RCVI_MAX_ACCESSES];
    for (size_t i = first; i < end; i++) {
        int count = program->steps[i].kind == RCVI_STEP_LOOP ? 0 : rcvi_step_accesses(&program->steps[i], accesses);
        for (int k = 0; k < count; k++) {
            if (accesses[k].written && accesses[k].view->buffer == buffer) return true;
        }
    }
    return false;
}

/* Whether both steps, the first before the second, read the same matrix as `a`, with nothing written to it in between. Not where depth
 * lies along the rows of one operand alone: its padding would differ. */
static bool share_operand(const rcvi_program *program, size_t first, size_t second) {
    const rcvi_step *x = &program->steps[first], *y = &program->steps[second];
    bool same_pass = (first < program->forward_count) == (second < program->forward_count);
    bool transposed_x = x->gemm.transpose_a, transposed_y = y->gemm.transpose_a;
    if (!same_pass || (transposed_x && x->gemm.transpose_b) || (transposed_y && y->gemm.transpose_b)) return false;
    int64_t rows_x = transposed_x ? x->gemm.depth : x->rows, columns_x = transposed_x ? x->rows : x->gemm.depth;
    int64_t rows_y = transposed_y ? y->gemm.depth : y->rows, columns_y = transposed_y ? y->rows : y->gemm.depth;
    return rows_x == rows_y && columns_x == columns_y && rcvi_view_equal(&x->a, &y->a) &&
           !is_written(program, first + 1, second, x->a.buffer);
}

void rcvi_cuda_find_split_products(rcvi_engine *e) {
    const rcvi_program *program = e->program;
    if (!parts_of(program)) return;
    size_t loop_end = 0; /* of the last outermost loop */
    for (size_t i = 0; i < program->step_count; i++) {
        rcvi_cuda_ready *ready = &e->ready[i];
        if (program->steps[i].kind == RCVI_STEP_LOOP && i >= loop_end)
            loop_end = i + 1 + (size_t)program->steps[i].loop.body;
        if (i < loop_end || !is_splittable(e, i)) continue;
        for (size_t j = 0; j < i && !ready->operand; j++) {
            if (e->ready[j].operand && share_operand(program, j, i)) ready->operand = e->ready[j].operand;
        }
        if (!ready->operand) ready->operand = ++e->operand_count;
    }
}

/* Whether the parts of the operand are blocks of rows: some product reads it transposed. */
static bool has_blocks(const rcvi_engine *e, int operand) {
    for (size_t i = 0; i < e->program->step_count; i++) {
        if (e->ready[i].operand == operand && e->program->steps[i].gemm.transpose_a) return true;
    }
    return false;
}

static void grow(size_t *bytes, size_t needed) {
    if (needed > *bytes) *bytes = needed;
}

rcv_status rcvi_cuda_prepare_split(rcvi_engine *e, size_t index) {
    const rcvi_step *step = &e->program->steps[index];
    rcvi_cuda_ready *ready = &e->ready[index];
    rcvi_cuda_gemm_shape shape = rcvi_cuda_shape_gemm(e, step, step->time.timed ? step->time.span : 1);
    bool blocks = has_blocks(e, ready->operand);
    for (size_t i = 0; i < index; i++) {
        const rcvi_step *other = &e->program->steps[i];
        if (!e->ready[i].split || has_blocks(e, e->ready[i].operand) != blocks) continue;
        rcvi_cuda_gemm_shape theirs = rcvi_cuda_shape_gemm(e, other, other->time.timed ? other->time.span : 1);
        if (!rcvi_cuda_same_shape(&shape, &theirs)) continue;
        ready->split = e->ready[i].split;
        return RCV_OK;
    }
    RCVI_TRY(rcvi_split_gemm_new(e->context, e->blas, &shape, parts_of(e->program), blocks,
                                 (int)e->program->rungs.choice, &ready->split));
    ready->owns_split = true;
    grow(&e->split_a_bytes, rcvi_split_gemm_bytes_a(ready->split));
    grow(&e->split_b_bytes, rcvi_split_gemm_bytes_b(ready->split));
    return RCV_OK;
}
