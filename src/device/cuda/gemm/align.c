/* Lengths and strides that are no multiples of 16 bytes.
 *
 * The library's fast algorithms need rows of operands whose length is a multiple of 16 bytes, though they may lie further apart:
 * 6000 x 700 x 1500 in bfloat16 took 98 microseconds on an H200, and 21 with a depth of 1,496. Where zeros follow the rows of both
 * operands, depth includes some of these. Where the output is small and b's rows are longer than its columns, some columns more are
 * computed aside. Else the last few elements are a product of their own, which takes 10 to 20 microseconds more.
 *
 * Operands in float32 whose rows begin anywhere, such as weights of 650 features where the caller has them, are copied to the workspace
 * first, with zeros after their rows: the copy of 2600 x 650 takes some 5 microseconds, and the product of 3264 such rows took 154.
 *
 * They need the same of the output, whose rows are the caller's. Where those begin anywhere, a product that is large enough is computed
 * in its workspace, which no product of another stream uses, and copied or added to its place: 2600 x 650 x 700 in bfloat16 took 26
 * microseconds straight to rows of 650 floats, 10 to rows of 656. */
#include "device/cuda/gemm/product.h"
#include "device/cuda/gemm/tuning.h"

static bool is_aligned_throughout(rcvi_gemm_stored m) { return rcvi_gemm_alignment(m, 1) == RCVI_GEMM_ALIGNMENT; }

static double multiply_adds(const rcvi_cuda_gemm_shape *s) {
    return (double)s->rows * (double)s->columns * (double)s->depth;
}

/* Whether it is one product on tensor cores, large enough to be worth a second launch. */
static bool is_worthwhile(const rcvi_cuda_gemm_shape *s) {
    if (s->batch > 1 || s->a == RCVI_F64 || (s->a == RCVI_F32 && !s->tensor)) return false;
    return multiply_adds(s) >= RCVI_TUNED_CUT;
}

/* The same where its operands have aligned rows, too. */
static bool is_large(const rcvi_cuda_gemm_shape *s) {
    if (!is_worthwhile(s)) return false;
    return is_aligned_throughout(rcvi_gemm_stored_a(s)) && is_aligned_throughout(rcvi_gemm_stored_b(s));
}

static int64_t whole_row(const rcvi_cuda_gemm_shape *s) {
    int64_t piece = RCVI_GEMM_ALIGNMENT / (int64_t)rcvi_cuda_bytes(s->a);
    return (s->columns + piece - 1) / piece * piece;
}

/* Whether its columns are no multiple of 16 bytes, b has the missing ones in memory, and the output is small enough to copy. */
static bool has_odd_columns(const rcvi_cuda_gemm_shape *s) {
    int64_t row = whole_row(s);
    return s->columns != row && s->whole_b && !s->transpose_b && s->row_b >= row &&
           (size_t)(s->rows * row) * rcvi_cuda_bytes(s->out) <= RCVI_TUNED_ASIDE_BYTES;
}

static int64_t round_up(int64_t x, int64_t to) { return (x + to - 1) / to * to; }

/* Bytes of a copy with aligned rows. */
static size_t copied_bytes(rcvi_gemm_stored m) {
    int64_t row = round_up(m.columns, RCVI_GEMM_ALIGNMENT / (int64_t)sizeof(float));
    return (size_t)round_up(m.rows * row * (int64_t)sizeof(float), 256);
}

/* Which operands should be copied: those whose rows are not aligned, or both, where both copies' zeros make the depth aligned. Answers the
 * bytes of all. */
static size_t find_copies(const rcvi_cuda_gemm_shape *s, bool copied[2]) {
    rcvi_gemm_stored stored[] = {rcvi_gemm_stored_a(s), rcvi_gemm_stored_b(s)};
    copied[0] = copied[1] = false;
    if (!is_worthwhile(s) || s->a != RCVI_F32) return 0;
    for (int i = 0; i < 2; i++) copied[i] = !is_aligned_throughout(stored[i]);
    bool any = copied[0] || copied[1], along = !s->transpose_a && s->transpose_b;
    if (any && along && !s->padded && s->depth % (RCVI_GEMM_ALIGNMENT / (int64_t)sizeof(float)))
        copied[0] = copied[1] = true;
    return (copied[0] ? copied_bytes(stored[0]) : 0) + (copied[1] ? copied_bytes(stored[1]) : 0);
}

void rcvi_gemm_copy_operands(rcvi_cuda_gemm *gemm) {
    rcvi_cuda_gemm_shape *s = &gemm->shape;
    rcvi_gemm_stored stored[] = {rcvi_gemm_stored_a(s), rcvi_gemm_stored_b(s)};
    int64_t *rows[] = {&s->row_a, &s->row_b};
    bool copied[2];
    size_t bytes = find_copies(s, copied);
    if (bytes == 0 || bytes + RCVI_TUNED_WORKSPACE > gemm->room) return;
    for (int i = 0; i < 2; i++) {
        if (!copied[i]) continue;
        gemm->copies[i].bytes = copied_bytes(stored[i]);
        gemm->copies[i].rows = stored[i].rows;
        gemm->copies[i].columns = stored[i].columns;
        gemm->copies[i].row = stored[i].row;
        *rows[i] = round_up(stored[i].columns, RCVI_GEMM_ALIGNMENT / (int64_t)sizeof(float));
    }
    gemm->room -= bytes;
    s->padded = (s->padded || copied[0]) && (s->padded || copied[1]);
    s->whole_b |= copied[1];
}

/* Bytes of an output that should be computed aside; 0: it should not. */
static size_t aside_bytes(const rcvi_cuda_gemm_shape *s) {
    if (!is_large(s) || s->transpose_out || s->starts || s->depth < RCVI_TUNED_ASIDE_DEPTH || s->out != RCVI_F32)
        return 0;
    if (is_aligned_throughout(rcvi_gemm_stored_out(s)) && !has_odd_columns(s)) return 0;
    return ((size_t)(s->rows * whole_row(s)) * rcvi_cuda_bytes(s->out) + 255) / 256 * 256;
}

/* Every stream of a plan has a workspace for the largest need of its products: those that take little time get little. */
size_t rcvi_gemm_room(const rcvi_cuda_gemm_shape *s, size_t room) {
    bool copied[2];
    size_t copies = find_copies(s, copied), enough = aside_bytes(s) + copies + RCVI_TUNED_WORKSPACE;
    return multiply_adds(s) < RCVI_TUNED_LARGE && room > enough ? enough : room;
}

/* Computes the output aside where its rows are not aligned. Its rows become multiples of 16 bytes; so do b's where they are in memory: the
 * columns more do not change the others, and are not copied. */
void rcvi_gemm_put_aside(rcvi_cuda_gemm *gemm) {
    rcvi_cuda_gemm_shape *s = &gemm->shape;
    int64_t row = whole_row(s);
    size_t bytes = aside_bytes(s);
    if (bytes == 0 || bytes + RCVI_TUNED_WORKSPACE > gemm->room) return;
    gemm->aside = bytes;
    gemm->room -= bytes;
    gemm->rows = s->rows;
    gemm->columns = s->columns;
    gemm->row_out = s->row_out;
    if (s->whole_b && !s->transpose_b && s->row_b >= row) s->columns = row;
    s->row_out = row;
}

/* The length that is cut to a multiple of 16 bytes, or NULL. */
static int64_t *find_cut(rcvi_cuda_gemm_shape *s) {
    int64_t piece = RCVI_GEMM_ALIGNMENT / (int64_t)rcvi_cuda_bytes(s->a);
    if (!is_large(s) || !is_aligned_throughout(rcvi_gemm_stored_out(s))) return NULL;
    int64_t *lengths[] = {s->transpose_a ? &s->rows : &s->depth, s->transpose_b ? &s->depth : &s->columns};
    int count = s->transpose_a && s->transpose_b ? 1 : 2; /* runs may have less depth where a is transposed */
    for (int i = 0; i < count; i++) {
        if (*lengths[i] % piece && *lengths[i] > piece) return lengths[i];
    }
    return NULL;
}

/* Includes zeros after the rows of both operands in the depth. */
void rcvi_gemm_deepen(rcvi_cuda_gemm_shape *s) {
    int64_t piece = RCVI_GEMM_ALIGNMENT / (int64_t)rcvi_cuda_bytes(s->a),
            depth = (s->depth + piece - 1) / piece * piece;
    bool along = !s->transpose_a && s->transpose_b && depth <= s->row_a && depth <= s->row_b;
    if (s->padded && along && is_large(s)) s->depth = depth;
}

/* Leaves the elements after the last multiple of 16 bytes to a product of its own. */
rcv_status rcvi_gemm_cut(rcvi_cuda_blas *blas, rcvi_cuda_gemm *gemm) {
    rcvi_cuda_gemm_shape *s = &gemm->shape, rest = *s;
    int64_t *length = find_cut(s);
    if (!length) return RCV_OK;
    int64_t piece = RCVI_GEMM_ALIGNMENT / (int64_t)rcvi_cuda_bytes(s->a), most = *length / piece * piece;
    bool rows = length == &s->rows, columns = length == &s->columns;
    gemm->rest_adds = !rows && !columns;
    gemm->rest_a = columns ? 0 : s->transpose_a == rows ? most : most * s->row_a;
    gemm->rest_b = rows ? 0 : s->transpose_b == columns ? most * s->row_b : most;
    gemm->rest_out = gemm->rest_adds ? 0 : rows == s->transpose_out ? most : most * s->row_out;
    gemm->rest_start = columns ? most : 0;
    rest.rows = rows ? s->rows - most : s->rows;
    rest.columns = columns ? s->columns - most : s->columns;
    rest.depth = gemm->rest_adds ? s->depth - most : s->depth;
    rest.starts &= !gemm->rest_adds;
    *length = most;
    return rcvi_gemm_make(blas, &rest, 0, gemm->room, &gemm->rest);
}
