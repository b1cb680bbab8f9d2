/* Products by cuBLASLt: made, run and freed. */
#include "device/cuda/gemm/product.h"
#include "device/cuda/kernels/kernels.h"

rcv_status rcvi_gemm_make(rcvi_cuda_blas *blas, const rcvi_cuda_gemm_shape *shape, int choice, size_t room,
                          rcvi_cuda_gemm **gemm) {
    *gemm = NULL;
    rcvi_cuda_gemm *made = rcvi_new(blas->context, 1, sizeof *made);
    if (!made) return RCV_NO_MEMORY;
    made->blas = blas;
    made->shape = *shape;
    made->room = room;
    if (made->shape.batch < 1) made->shape.batch = 1;
    made->empty = shape->rows <= 0 || shape->columns <= 0 || shape->depth <= 0;
    rcv_status status = made->empty && choice > 0
                            ? rcvi_gemm_fail(shape, CUBLAS_STATUS_NOT_SUPPORTED, "has no further algorithm")
                            : RCV_OK;
    bool starts = !made->empty && !shape->accumulate && !shape->transpose_out && shape->a != RCVI_F64;
    if (shape->starts && !starts)
        status = rcvi_gemm_fail(shape, CUBLAS_STATUS_NOT_SUPPORTED, "does not start from a row");
    if (!made->empty) rcvi_gemm_copy_operands(made);
    if (!made->empty) rcvi_gemm_deepen(&made->shape);
    if (!made->empty) rcvi_gemm_put_aside(made);
    if (!made->empty && status == RCV_OK) status = rcvi_gemm_cut(blas, made);
    if (!made->empty && status == RCV_OK) status = rcvi_gemm_describe(made);
    if (!made->empty && status == RCV_OK) status = rcvi_gemm_choose(made, choice);
    if (status != RCV_OK) {
        rcvi_cuda_gemm_free(made);
        return status;
    }
    *gemm = made;
    return RCV_OK;
}

rcv_status rcvi_cuda_gemm_new(rcvi_cuda_blas *blas, const rcvi_cuda_gemm_shape *shape, int choice,
                              rcvi_cuda_gemm **gemm) {
    return rcvi_gemm_make(blas, shape, choice, rcvi_gemm_room(shape, RCVI_GEMM_WORKSPACE), gemm);
}

rcv_status rcvi_cuda_gemm_new_within(rcvi_cuda_blas *blas, const rcvi_cuda_gemm_shape *shape, int choice, size_t room,
                                     rcvi_cuda_gemm **gemm) {
    return rcvi_gemm_make(blas, shape, choice,
                          rcvi_gemm_room(shape, room < RCVI_GEMM_WORKSPACE ? room : RCVI_GEMM_WORKSPACE), gemm);
}

void rcvi_cuda_gemm_free(rcvi_cuda_gemm *gemm) {
    if (!gemm) return;
    cublasLtMatrixLayout_t layouts[] = {gemm->left, gemm->right, gemm->out};
    for (int i = 0; i < 3; i++) {
        if (layouts[i]) rcvi_cublaslt.call.MatrixLayoutDestroy(layouts[i]);
    }
    if (gemm->product) rcvi_cublaslt.call.MatmulDescDestroy(gemm->product);
    rcvi_cuda_gemm_free(gemm->rest);
    rcvi_free(gemm->blas->context, gemm);
}

size_t rcvi_cuda_gemm_workspace(const rcvi_cuda_gemm *gemm) {
    size_t own = gemm->strict.workspace > gemm->loose.workspace ? gemm->strict.workspace : gemm->loose.workspace;
    size_t rest = gemm->rest ? rcvi_cuda_gemm_workspace(gemm->rest) : 0;
    return gemm->copies[0].bytes + gemm->copies[1].bytes + gemm->aside + (own > rest ? own : rest);
}

/* ---- runs ---- */

/* Sums over nothing: zeros, or what is there. */
static rcv_status run_empty(const rcvi_cuda_gemm_shape *s, bool add, void *out, cudaStream_t stream) {
    rcvi_gemm_stored m = rcvi_gemm_stored_out(s);
    size_t bytes = rcvi_cuda_bytes(m.type);
    if (add || m.rows <= 0 || m.columns <= 0) return RCV_OK;
    size_t pitch = (size_t)(m.row > m.columns ? m.row : m.columns) * bytes;
    for (int64_t i = 0; i < s->batch; i++)
        RCVI_CUDA_TRY(cudaMemset2DAsync((char *)out + (size_t)(i * m.step) * bytes, pitch, 0, (size_t)m.columns * bytes,
                                        (size_t)m.rows, stream),
                      "a product of depth 0");
    return RCV_OK;
}

static bool is_aligned(const void *at, uint32_t alignment) { return (uintptr_t)at % alignment == 0; }

/* Arguments of a run. */
typedef struct {
    int64_t length; /* rows, or depth where a is transposed; 0: those of the shape */
    const void *a, *b, *start;
    bool add;
    void *out, *workspace;
    cudaStream_t stream;
} call;

/* The call of the rest of a product. */
static call rest_of(const rcvi_cuda_gemm *gemm, call c) {
    int64_t size = (int64_t)rcvi_cuda_bytes(gemm->shape.a), size_out = (int64_t)rcvi_cuda_bytes(gemm->shape.out);
    c.a = (const char *)c.a + gemm->rest_a * size;
    c.b = (const char *)c.b + gemm->rest_b * size;
    if (c.start) c.start = (const char *)c.start + gemm->rest_start * size_out;
    c.add |= gemm->rest_adds;
    c.out = (char *)c.out + gemm->rest_out * size_out;
    return c;
}

static cublasStatus_t call_library(const rcvi_cuda_gemm *gemm, const call *c, cublasLtMatrixLayout_t left_layout,
                                   cublasLtMatrixLayout_t right_layout, cublasLtMatrixLayout_t out_layout) {
    static const float float_zero = 0, float_one = 1;
    static const double double_zero = 0, double_one = 1;
    const rcvi_cuda_gemm_shape *s = &gemm->shape;
    bool is_double = s->a == RCVI_F64;
    const void *one = is_double ? (const void *)&double_one : &float_one;
    const void *zero = is_double ? (const void *)&double_zero : &float_zero;
    const void *left = s->transpose_out ? c->a : c->b, *right = s->transpose_out ? c->b : c->a;
    const uint32_t *needed = gemm->strict.alignment;
    bool strict = is_aligned(left, needed[0]) && is_aligned(right, needed[1]) && is_aligned(c->out, needed[2]);
    const rcvi_gemm_method *method = strict ? &gemm->strict : &gemm->loose;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (s->starts) {
        pthread_mutex_lock(&rcvi_cublaslt.lock);
        status = rcvi_gemm_set_start(gemm->product, c->start);
    }
    if (status == CUBLAS_STATUS_SUCCESS)
        status = rcvi_cublaslt.call.Matmul(gemm->blas->handle, gemm->product, one, left, left_layout, right,
                                           right_layout, c->add ? one : zero, c->out, out_layout, c->out, out_layout,
                                           &method->algorithm, c->workspace, method->workspace, c->stream);
    if (s->starts) pthread_mutex_unlock(&rcvi_cublaslt.lock);
    return status;
}

static rcv_status run(const rcvi_cuda_gemm *gemm, call c);

/* By another algorithm, for this length alone. */
static rcv_status run_anew(const rcvi_cuda_gemm *gemm, call c) {
    rcvi_cuda_gemm_shape shape = gemm->shape;
    rcvi_cuda_gemm *other = NULL;
    *rcvi_gemm_length(&shape) = c.length;
    size_t taken = gemm->copies[0].bytes + gemm->copies[1].bytes + gemm->aside;
    RCVI_TRY(rcvi_gemm_make(gemm->blas, &shape, 0, rcvi_cuda_gemm_workspace(gemm) - taken, &other));
    c.length = 0;
    rcv_status status = run(other, c);
    rcvi_cuda_gemm_free(other);
    return status;
}

static rcv_status multiply(const rcvi_cuda_gemm *gemm, call c) {
    rcvi_cuda_gemm_shape s = gemm->shape;
    int64_t *length = rcvi_gemm_length(&s);
    if (gemm->empty) {
        if (c.length) *length = c.length;
        return run_empty(&s, c.add, c.out, c.stream);
    }
    if (!c.length || c.length == *length) {
        cublasStatus_t status = call_library(gemm, &c, gemm->left, gemm->right, gemm->out);
        if (status != CUBLAS_STATUS_SUCCESS) return rcvi_gemm_fail(&s, status, "fails");
    } else {
        rcvi_gemm_layouts layouts;
        RCVI_TRY(rcvi_gemm_lay_out_length(gemm, c.length, &layouts));
        if (call_library(gemm, &c, &layouts.left, &layouts.right, &layouts.out) != CUBLAS_STATUS_SUCCESS)
            RCVI_TRY(run_anew(gemm, c));
    }
    return gemm->rest ? multiply(gemm->rest, rest_of(gemm, c)) : RCV_OK;
}

/* Copies operands to the workspace: `c` then has these, and what is left of the workspace. */
static rcv_status copy_operands(const rcvi_cuda_gemm *gemm, call *c) {
    const rcvi_cuda_gemm_shape *s = &gemm->shape;
    const void **operands[] = {&c->a, &c->b};
    const int64_t to_row[] = {s->row_a, s->row_b};
    for (int i = 0; i < 2; i++) {
        bool fewer = c->length && (i == 0 || s->transpose_a); /* rows of a, or depth of both */
        if (!gemm->copies[i].bytes) continue;
        RCVI_CUDA_TRY(rcvi_cuda_pad_rows(c->stream, fewer ? c->length : gemm->copies[i].rows, gemm->copies[i].columns,
                                         c->workspace, to_row[i], *operands[i], gemm->copies[i].row),
                      "copying an operand of a product");
        *operands[i] = c->workspace;
        c->workspace = (char *)c->workspace + gemm->copies[i].bytes;
    }
    return RCV_OK;
}

static rcv_status run(const rcvi_cuda_gemm *gemm, call c) {
    const rcvi_cuda_gemm_shape *s = &gemm->shape;
    RCVI_TRY(copy_operands(gemm, &c));
    if (!gemm->aside) return multiply(gemm, c);
    call aside = c;
    aside.start = NULL;
    aside.add = false;
    aside.out = c.workspace;
    aside.workspace = (char *)c.workspace + gemm->aside;
    RCVI_TRY(multiply(gemm, aside));
    int64_t rows = c.length && !s->transpose_a ? c.length : gemm->rows;
    return rcvi_cuda_check(
        rcvi_cuda_store_or_add(c.stream, rows, gemm->columns, c.add, c.out, gemm->row_out, c.workspace, s->row_out),
        "copying a product to its place");
}

rcv_status rcvi_cuda_gemm_run(const rcvi_cuda_gemm *gemm, const void *a, const void *b, const void *start, void *out,
                              void *workspace, cudaStream_t stream) {
    return run(gemm, (call){0, a, b, start, gemm->shape.accumulate, out, workspace, stream});
}

rcv_status rcvi_cuda_gemm_store(const rcvi_cuda_gemm *gemm, const void *a, const void *b, void *out, void *workspace,
                                cudaStream_t stream) {
    return run(gemm, (call){0, a, b, NULL, false, out, workspace, stream});
}

rcv_status rcvi_cuda_gemm_run_length(const rcvi_cuda_gemm *gemm, int64_t length, const void *a, const void *b,
                                     const void *start, bool stores, void *out, void *workspace, cudaStream_t stream) {
    return run(gemm, (call){length, a, b, start, !stores && gemm->shape.accumulate, out, workspace, stream});
}
