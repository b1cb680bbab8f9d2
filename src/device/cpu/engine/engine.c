/* Prepares a program for the CPU (rcvi_engine_new), and runs the steps that are single kernel calls: gemm, pack and sums over
 * rows. */
#include "device/cpu/engine/engine.h"

#include <string.h>

enum {
    REDUCE_BYTES = 16384
}; /* scratch of a sum over rows: half for the sums, half for a row widened to float; fits L1 */

static rcvi_kernel_type type_of(rcv_dtype dtype) {
    return dtype == RCV_FLOAT64 ? RCVI_KERNEL_DOUBLE : dtype == RCV_BFLOAT16 ? RCVI_KERNEL_BFLOAT16 : RCVI_KERNEL_FLOAT;
}

/* Of packing bfloat16: the weights of a panel as floats. */
static size_t pack_scratch(const rcvi_engine *engine, const rcvi_step *step) {
    int64_t depth = step->pack.transposed ? step->rows : step->columns;
    if (!rcvi_view_is_narrow(engine, &step->a)) return 0;
    return (size_t)(engine->kernels->products[engine->type].panel * depth) * sizeof(float);
}

static rcv_status prepare_steps(rcvi_engine *engine) {
    const rcvi_program *program = engine->program;
    for (size_t i = 0; i < program->step_count; i++) {
        const rcvi_step *step = &program->steps[i];
        rcvi_prepared_step *prepared = &engine->prepared[i];
        size_t scratch = 0;
        engine->has_vendor |= step->kind == RCVI_STEP_VENDOR;
        if (step->kind == RCVI_STEP_MAP && !engine->is_reference) {
            prepared->compiled = rcvi_engine_compile(engine, step);
            if (!prepared->compiled) return RCV_NO_MEMORY;
            scratch = rcvi_map_scratch(engine, step, prepared->compiled);
        }
        if (step->kind == RCVI_STEP_GEMM && step->gemm.start && engine->members > 1)
            return rcvi_fail(RCV_UNSUPPORTED, "threads do not share products that start from a row: plan for one");
        if (step->kind == RCVI_STEP_GEMM && !engine->is_reference) scratch = rcvi_gemm_scratch(engine, step);
        if (rcvi_step_sums_rows(step) && !engine->is_reference) scratch = REDUCE_BYTES;
        if (step->kind == RCVI_STEP_PACK) scratch = pack_scratch(engine, step);
        if (scratch > engine->scratch) engine->scratch = scratch;
    }
    engine->scratch = (engine->scratch + 127) / 128 * 128;
    return RCV_OK;
}

bool rcvi_distant_buffers_exceed_cache(const rcvi_program *program) {
    int64_t bytes = 0;
    for (size_t i = 0; i < program->buffer_count; i++) {
        const rcvi_buffer *buffer = &program->buffers[i];
        if (buffer->distant) bytes += buffer->count * (int64_t)rcvi_element_bytes(program, buffer->element);
    }
    return bytes > program->machine.shared / 2;
}

rcv_status rcvi_engine_new(const rcvi_program *program, const rcvi_kernels *kernels, rcvi_engine **out) {
    rcv_context *context = program->pool.context;
    rcvi_engine *engine = rcvi_new(context, 1, sizeof *engine);
    *out = NULL;
    if (!engine) return RCV_NO_MEMORY;
    *engine = (rcvi_engine){.program = program,
                            .kernels = kernels,
                            .type = type_of(program->options.dtype),
                            .members = (int)program->rungs.threads};
    engine->is_reference = rcvi_rungs_are_naive(&program->rungs);
    engine->streams = rcvi_distant_buffers_exceed_cache(program);
    rcvi_pool_init(&engine->pool, context);
    engine->prepared = rcvi_pool_new(&engine->pool, program->step_count, sizeof *engine->prepared);
    rcv_status status = engine->prepared ? prepare_steps(engine) : RCV_NO_MEMORY;
    if (!status && engine->has_vendor) status = rcvi_vendor_bytes(program, &engine->vendor_bytes);
    if (status) {
        rcvi_engine_free(engine);
        return status;
    }
    rcvi_engine_group(engine);
    *out = engine;
    return RCV_OK;
}

void rcvi_engine_free(rcvi_engine *engine) {
    if (!engine) return;
    rcv_context *context = engine->pool.context;
    rcvi_pool_free(&engine->pool);
    rcvi_free(context, engine);
}

void *rcvi_locate_view(const rcvi_step_call *call, const rcvi_view *view) {
    if (view->buffer == RCVI_NONE) return NULL;
    char *buffer = call->binding->buffers[view->buffer];
    if (!buffer) return NULL;
    return buffer + rcvi_view_start(view, call->inner, call->outer, call->time) * rcvi_view_bytes(call->engine, view);
}

/* ---- gemm ---- */

static rcvi_matmul describe(const rcvi_engine *engine, const rcvi_step *step, int64_t rows, int64_t depth) {
    return (rcvi_matmul){.type = engine->type,
                         .narrow_a = rcvi_view_is_narrow(engine, &step->a),
                         .narrow_b = rcvi_view_is_narrow(engine, &step->b),
                         .transpose_a = step->gemm.transpose_a,
                         .transpose_b = step->gemm.transpose_b,
                         .accumulate = step->accumulate || step->gemm.start,
                         .m = rows,
                         .n = step->columns,
                         .k = depth,
                         .lda = step->a.row,
                         .ldb = step->b.row,
                         .ldc = step->out.row};
}

size_t rcvi_gemm_scratch(const rcvi_engine *engine, const rcvi_step *step) {
    rcvi_matmul matmul = describe(engine, step, step->rows, step->gemm.depth);
    return (size_t)rcvi_matmul_scratch(engine->kernels, &matmul, engine->members) + RCVI_MATMUL_ALIGN;
}

void rcvi_run_gemm(const rcvi_step_call *call) {
    const rcvi_engine *engine = call->engine;
    const rcvi_step *step = call->step;
    int64_t size_a = rcvi_view_bytes(engine, &step->a), size_b = rcvi_view_bytes(engine, &step->b);
    int64_t size = rcvi_view_bytes(engine, &step->out);
    char *a = rcvi_locate_view(call, &step->a), *b = rcvi_locate_view(call, &step->b),
         *c = rcvi_locate_view(call, &step->out);
    if (!c) return;
    bool mine = call->prepared->is_private; /* a product of the member's rows only */
    rcvi_matmul matmul = describe(engine, step, mine ? call->row_end - call->row : call->rows, call->depth);
    if (mine) {
        a += call->row * (step->gemm.transpose_a ? 1 : step->a.row) * size_a;
        c += call->row * step->out.row * size;
    }
    const char *start =
        step->gemm.start ? rcvi_locate_view(call, step->gemm.start) : NULL; /* the team has one member then */
    for (int64_t r = 0; start && r < matmul.m; r++)
        memcpy(c + r * step->out.row * size, start, (size_t)(step->columns * size));
    bool blas = engine->program->rungs.blas && rcvi_matmul_blas_fits(&matmul);
    for (int64_t i = 0; i < step->gemm.batch; i++) {
        const char *ai = a + i * step->gemm.step_a * size_a, *bi = b + i * step->gemm.step_b * size_b;
        char *ci = c + i * step->gemm.step_out * size;
        int member = mine ? 0 : call->member, members = mine ? 1 : call->members;
        if (blas)
            rcvi_matmul_blas_share(&matmul, ai, bi, ci, member, members);
        else
            rcvi_matmul_share(engine->kernels, &matmul, ai, bi, ci, member, members, call->scratch);
    }
}

/* A panel of weights that are stored in bfloat16: widened in the scratch, then packed as floats are. */
static void pack_narrow_panel(const rcvi_step_call *call, int64_t columns, int64_t depth, int64_t panel) {
    const rcvi_step *step = call->step;
    const rcvi_kernels *all = call->engine->kernels;
    const rcvi_product_kernels *kernels = &all->products[call->engine->type];
    bool transposed = step->pack.transposed;
    int64_t first = panel * kernels->panel, left = columns - first, group = kernels->group;
    int64_t width = left < kernels->panel ? left : kernels->panel;
    int64_t rows = transposed ? depth : width, length = transposed ? width : depth;
    const uint16_t *from = rcvi_locate_view(call, &step->a);
    float *wide = (float *)(void *)call->scratch;
    from += transposed ? first : first * step->a.row;
    for (int64_t r = 0; r < rows; r++) all->widen(length, from + r * step->a.row, wide + r * length);
    uint16_t *to = rcvi_locate_view(call, &step->out);
    to += first * ((depth + group - 1) / group * group);
    kernels->pack(width, depth, wide, transposed ? length : 1, transposed ? 1 : length, 0, 1, to);
}

void rcvi_run_pack(const rcvi_step_call *call) {
    const rcvi_step *step = call->step;
    const rcvi_product_kernels *kernels = &call->engine->kernels->products[call->engine->type];
    bool transposed = step->pack.transposed;
    /* b = W^T for W x, b = W for W^T x */
    int64_t columns = transposed ? step->columns : step->rows, depth = transposed ? step->rows : step->columns;
    int64_t panels = (columns + kernels->panel - 1) / kernels->panel;
    int64_t first = panels * call->member / call->members, end = panels * (call->member + 1) / call->members;
    if (rcvi_view_is_narrow(call->engine, &step->a)) {
        for (int64_t panel = first; panel < end; panel++) pack_narrow_panel(call, columns, depth, panel);
        return;
    }
    kernels->pack(columns, depth, rcvi_locate_view(call, &step->a), transposed ? step->a.row : 1,
                  transposed ? 1 : step->a.row, first, end, rcvi_locate_view(call, &step->out));
}

/* ---- sums over rows ---- */

bool rcvi_step_sums_rows(const rcvi_step *step) {
    return step->kind == RCVI_STEP_REDUCE && step->reduce.over_rows && step->a.column == 1;
}

/* Each sum in the order of the rows. */
void rcvi_run_reduce(const rcvi_step_call *call) {
    const rcvi_engine *engine = call->engine;
    const rcvi_step *step = call->step;
    bool is_double = engine->type == RCVI_KERNEL_DOUBLE;
    rcvi_map_kernel add = (is_double ? engine->kernels->map_double : engine->kernels->map_float)[RCVI_ADD];
    bool narrow = rcvi_view_is_narrow(engine, &step->a);
    int64_t size = is_double ? 8 : 4, block = REDUCE_BYTES / 2 / size;
    const char *a = rcvi_locate_view(call, &step->a);
    char *out = rcvi_locate_view(call, &step->out), *sums = call->scratch, *wide = sums + REDUCE_BYTES / 2;
    if (!out) return; /* an output that the caller left out */
    for (int64_t column = call->column; column < call->column_end; column += block) {
        int64_t left = call->column_end - column, n = left < block ? left : block;
        memset(sums, 0, (size_t)(n * size));
        for (int64_t r = 0; r < call->rows; r++) {
            const char *row = a + (r * step->a.row + column) * (narrow ? 2 : size);
            if (narrow) engine->kernels->widen(n, (const void *)row, (void *)wide);
            add(n, sums, narrow ? wide : row, sums);
        }
        char *to = out + column * size;
        if (step->accumulate)
            add(n, to, sums, to);
        else
            memcpy(to, sums, (size_t)(n * size));
    }
}
