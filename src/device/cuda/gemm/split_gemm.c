/* Split-bf16 emulation of float32 products: layout of the parts, the library's products, and runs. */
#include "device/cuda/gemm/split_gemm.h"
#include "device/cuda/gemm/tuning.h"
#include "device/cuda/kernels/kernels.h"

static int64_t round_up(int64_t count) { return (count + RCVI_SPLIT_PIECE - 1) / RCVI_SPLIT_PIECE * RCVI_SPLIT_PIECE; }

/* ---- layout ---- */

/* `depth`: of a part; a multiple of RCVI_SPLIT_PIECE where it lies along rows. `along`: depth lies along rows. */
static rcvi_split split_of(int64_t length, int64_t stored_depth, int64_t depth, bool along, int64_t row, int parts,
                           bool blocks) {
    rcvi_split s = {.rows = along ? length : stored_depth,
                    .columns = along ? stored_depth : length,
                    .row = row,
                    .high = along ? length : depth,
                    .parts = parts};
    s.wide = round_up(s.columns);
    s.to_part = blocks ? s.high * s.wide : s.wide;
    s.to_row = blocks ? s.wide : parts * s.wide;
    return s;
}

static void add_product(rcvi_split_gemm_layout *l, const rcvi_cuda_gemm_shape *s, int64_t depth, int64_t a, int64_t b) {
    rcvi_cuda_gemm_shape *shape = &l->products[l->count].shape;
    *shape = *s;
    shape->a = shape->b = RCVI_BF16;
    shape->row_a = l->a.to_row;
    shape->row_b = l->b.to_row;
    shape->depth = depth;
    shape->accumulate = s->accumulate || l->count > 0;
    shape->starts = s->starts && l->count == 0;
    l->products[l->count].a = a * l->a.to_part;
    l->products[l->count++].b = b * l->b.to_part;
}

void rcvi_split_gemm_lay_out(const rcvi_cuda_gemm_shape *s, int parts, bool blocks, rcvi_split_gemm_layout *l) {
    bool along_a = !s->transpose_a, along_b = s->transpose_b;
    int64_t depth = along_a || along_b ? round_up(s->depth) : s->depth;
    *l = (rcvi_split_gemm_layout){.a = split_of(s->rows, s->depth, depth, along_a, s->row_a, parts, !along_a || blocks),
                                  .b = split_of(s->columns, s->depth, depth, along_b, s->row_b, parts, !along_b)};
    l->b.reversed = true;
    for (int sum = parts - 1; sum >= 0; sum--) { /* p + q of the parts that are multiplied */
        int64_t first = parts - 1 - sum;         /* place of part `sum` of b */
        if (!along_a || !blocks) add_product(l, s, (sum + 1) * depth, 0, first);
        for (int p = 0; p <= sum && along_a && blocks; p++) add_product(l, s, depth, p, first + p);
    }
}

bool rcvi_split_gemm_pays(const rcvi_cuda_gemm_shape *s) {
    return s->rows > 0 && s->columns > 0 && s->depth > 0 &&
           1 / (double)s->rows + 1 / (double)s->columns + 1 / (double)s->depth <= 1 / RCVI_TUNED_SPLIT_LENGTH;
}

/* ---- the library's products ---- */

struct rcvi_split_gemm {
    rcv_context *context;
    rcvi_cuda_gemm_shape shape;
    int parts;
    bool blocks;
    rcvi_split_gemm_layout layout;
    rcvi_cuda_gemm *gemms[RCVI_MAX_SPLIT_PRODUCTS]; /* NULL: the shape, and so the product, is that of the one before */
};

static bool same_shape(const rcvi_cuda_gemm_shape *a, const rcvi_cuda_gemm_shape *b) {
    return a->depth == b->depth && a->accumulate == b->accumulate &&
           a->starts == b->starts; /* all else is alike in one layout */
}

static rcv_status new_gemm(rcvi_cuda_blas *blas, const rcvi_cuda_gemm_shape *shape, int choice, rcvi_cuda_gemm **gemm) {
    rcv_status status = rcvi_cuda_gemm_new(blas, shape, choice, gemm);
    while (status == RCV_UNSUPPORTED && choice > 0) status = rcvi_cuda_gemm_new(blas, shape, --choice, gemm);
    return status;
}

rcv_status rcvi_split_gemm_new(rcv_context *context, rcvi_cuda_blas *blas, const rcvi_cuda_gemm_shape *shape, int parts,
                               bool blocks, int choice, rcvi_split_gemm **out) {
    *out = NULL;
    rcvi_split_gemm *made = rcvi_new(context, 1, sizeof *made);
    if (!made) return RCV_NO_MEMORY;
    made->context = context;
    made->shape = *shape;
    made->parts = parts;
    made->blocks = blocks;
    rcvi_split_gemm_layout *l = &made->layout;
    rcvi_split_gemm_lay_out(shape, parts, blocks, l);
    rcv_status status = RCV_OK;
    for (int i = 0; i < l->count && !status; i++) {
        if (i == 0 || !same_shape(&l->products[i].shape, &l->products[i - 1].shape))
            status = new_gemm(blas, &l->products[i].shape, choice, &made->gemms[i]);
    }
    if (status) {
        rcvi_split_gemm_free(made);
        return status;
    }
    *out = made;
    return RCV_OK;
}

void rcvi_split_gemm_free(rcvi_split_gemm *split) {
    if (!split) return;
    for (int i = 0; i < split->layout.count; i++) rcvi_cuda_gemm_free(split->gemms[i]);
    rcvi_free(split->context, split);
}

size_t rcvi_split_gemm_workspace(const rcvi_split_gemm *split) {
    size_t most = 0;
    for (int i = 0; i < split->layout.count; i++) {
        size_t bytes = split->gemms[i] ? rcvi_cuda_gemm_workspace(split->gemms[i]) : 0;
        if (bytes > most) most = bytes;
    }
    return most;
}

static size_t bytes_of(const rcvi_split *s) { return (size_t)s->parts * (size_t)(s->high * s->wide) * sizeof *s->to; }
size_t rcvi_split_gemm_bytes_a(const rcvi_split_gemm *split) { return bytes_of(&split->layout.a); }
size_t rcvi_split_gemm_bytes_b(const rcvi_split_gemm *split) { return bytes_of(&split->layout.b); }

/* ---- runs ---- */

static rcv_status split_operand(rcvi_split s, const void *from, void *to, cudaStream_t stream) {
    s.from = from;
    s.to = to;
    return rcvi_cuda_check(rcvi_cuda_split(stream, &s), "splitting an operand");
}

/* The layout of a run with this length. */
static rcvi_split_gemm_layout layout_of(const rcvi_split_gemm *split, int64_t length) {
    rcvi_cuda_gemm_shape shape = split->shape;
    rcvi_split_gemm_layout layout;
    if (!length) return split->layout;
    *(shape.transpose_a ? &shape.depth : &shape.rows) = length;
    rcvi_split_gemm_lay_out(&shape, split->parts, split->blocks, &layout);
    return layout;
}

rcv_status rcvi_split_gemm_split_a(const rcvi_split_gemm *split, int64_t length, const void *a, void *to,
                                   cudaStream_t stream) {
    return split_operand(layout_of(split, length).a, a, to, stream);
}

rcv_status rcvi_split_gemm_split_b(const rcvi_split_gemm *split, int64_t length, const void *b, void *to,
                                   cudaStream_t stream) {
    return split_operand(layout_of(split, length).b, b, to, stream);
}

rcv_status rcvi_split_gemm_run(const rcvi_split_gemm *split, int64_t length, const void *a, const void *b,
                               const void *start, bool stores, void *out, void *workspace, cudaStream_t stream) {
    const rcvi_split_gemm_layout l = layout_of(split, length);
    const rcvi_cuda_gemm *gemm = NULL;
    for (int i = 0; i < l.count; i++) {
        const uint16_t *left = (const uint16_t *)a + l.products[i].a, *right = (const uint16_t *)b + l.products[i].b;
        const rcvi_cuda_gemm_shape *shape = &l.products[i].shape;
        if (split->gemms[i]) gemm = split->gemms[i];
        RCVI_TRY(rcvi_cuda_gemm_run_length(gemm, shape->transpose_a ? shape->depth : shape->rows, left, right,
                                           shape->starts ? start : NULL, i == 0 && stores, out, workspace, stream));
    }
    return RCV_OK;
}
