/* The output layer: products by cuBLASLt, losses and gradients of rows by kernels, one chunk of rows after the other. */
#include "device/cuda/kernels/kernels.h"
#include "device/cuda/learn/kernels.h"
#include "device/cuda/learn/state.h"
#include "device/cuda/learn/tuning.h"

enum { PIECE = 8 }; /* 16-bit elements of 16 bytes */

static size_t real_bytes(const rcvi_learn *learn) { return rcvi_cuda_bytes(learn->real); }
static bool is_narrow(const rcvi_learn *learn) { return learn->narrow != learn->real; }
static int64_t round_up(int64_t n, int64_t piece) { return (n + piece - 1) / piece * piece; }

/* ---- products ---- */

static rcvi_cuda_gemm_shape shape_of(const rcvi_learn *l, rcvi_head_product product, int64_t rows) {
    int64_t features = l->shape.features, classes = l->shape.classes;
    bool narrow = is_narrow(l);
    rcvi_cuda_gemm_shape s = {.a = l->narrow, .b = l->narrow, .out = l->real, .tensor = l->tensor, .batch = 1};
    s.whole_b = narrow;
    s.row_b = l->deep;
    if (product == RCVI_TO_LOGITS || product == RCVI_TO_CALLER) { /* y weight^T */
        s.rows = rows;
        s.depth = l->deep;
        s.columns = narrow && product == RCVI_TO_LOGITS ? l->wide : classes;
        s.transpose_b = true;
        s.row_a = l->deep;
        s.row_out = product == RCVI_TO_LOGITS ? l->wide : classes;
        return s;
    }
    s.row_a = l->wide;
    s.columns = s.row_out = features;
    if (product == RCVI_TO_DY) { /* dlogits weight */
        s.rows = rows;
        s.depth = narrow ? l->wide : classes;
        return s;
    }
    s.rows = product == RCVI_TO_DWEIGHT ? l->main : classes - l->main; /* dlogits^T y */
    s.depth = rows;
    s.transpose_a = s.accumulate = true;
    return s;
}

rcv_status rcvi_cuda_find_product(rcvi_learn *l, rcvi_learn_product wanted, const rcvi_cuda_gemm_shape *shape,
                                  size_t room, const rcvi_cuda_gemm **gemm) {
    for (int i = 0; i < RCVI_MAX_LEARN_PRODUCTS; i++) {
        const rcvi_learn_product *p = &l->products[i];
        *gemm = p->gemm;
        if (p->gemm && p->product == wanted.product && p->rows == wanted.rows && p->classes == wanted.classes)
            return RCV_OK;
    }
    if (l->memory) room = l->workspace_bytes; /* before the memory is allocated, `room` limits the workspace */
    RCVI_TRY(rcvi_cuda_gemm_new_within(l->blas, shape, 0, room, &wanted.gemm));
    rcvi_learn_product *place = &l->products[l->next_product];
    l->next_product = (l->next_product + 1) % RCVI_MAX_LEARN_PRODUCTS;
    rcvi_cuda_gemm_free(place->gemm);
    *place = wanted;
    *gemm = wanted.gemm;
    return RCV_OK;
}

static rcv_status find(rcvi_learn *l, rcvi_head_product product, int64_t rows, const rcvi_cuda_gemm **gemm) {
    const rcvi_cuda_gemm_shape shape = shape_of(l, product, rows);
    return rcvi_cuda_find_product(l, (rcvi_learn_product){.product = product, .rows = rows}, &shape,
                                  RCVI_GEMM_WORKSPACE, gemm);
}

/* Creates the products of a chunk of so many rows. */
static rcv_status prepare(rcvi_learn *l, int64_t rows) {
    const rcvi_cuda_gemm *gemm;
    int last = l->shape.training ? RCVI_TO_REST : RCVI_TO_LOGITS;
    for (int p = RCVI_TO_LOGITS; p <= last && rows > 0; p++) {
        if (p == RCVI_TO_CALLER || (p == RCVI_TO_REST && l->main == l->shape.classes)) continue;
        RCVI_TRY(find(l, (rcvi_head_product)p, rows, &gemm));
        size_t needed = rcvi_cuda_gemm_workspace(gemm);
        if (needed > l->workspace_bytes) l->workspace_bytes = needed;
    }
    return RCV_OK;
}

/* ---- opening ---- */

static rcv_status find_sizes(rcvi_learn *l) {
    const rcvi_learn_shape *s = &l->shape;
    if (s->rows < 1 || s->features < 1 || s->classes < 1 || s->chunk < 0)
        return rcvi_fail(
            RCV_INVALID,
            "rows, features and classes must be at least 1, and a chunk 0 or more, not %lld, %lld, %lld, %lld",
            (long long)s->rows, (long long)s->features, (long long)s->classes, (long long)s->chunk);
    const int64_t most = INT64_MAX / 4096;
    int64_t elements = 0, weights = 0;
    bool narrow = is_narrow(l), counted = s->rows < most && s->features < most && s->classes < most;
    counted = counted && rcvi_multiply(s->rows, s->classes + PIECE, &elements) && elements < most;
    counted = counted && rcvi_multiply(s->features + PIECE, s->classes + PIECE, &weights) && weights < most;
    if (!counted)
        return rcvi_fail(RCV_INVALID, "%lld rows, %lld features and %lld classes are too many to be counted in bytes",
                         (long long)s->rows, (long long)s->features, (long long)s->classes);
    l->wide = round_up(s->classes, narrow ? PIECE : 16 / (int64_t)real_bytes(l));
    l->deep = narrow ? round_up(s->features, PIECE) : s->features;
    l->main = narrow && s->classes >= RCVI_TUNED_HEAD_FEW_CLASSES ? s->classes / PIECE * PIECE : s->classes;
    bool many = elements * (int64_t)sizeof(float) > RCVI_TUNED_HEAD_CHUNK;
    l->chunk = s->chunk > 0 ? s->chunk : many ? (s->rows + 3) / 4 : s->rows;
    if (l->chunk > s->rows) l->chunk = s->rows;
    return RCV_OK;
}

/* Slices never become fewer with more rows. */
static int64_t most_slices(const rcvi_learn *l) { return rcvi_cuda_head_slices(l->chunk, l->shape.classes); }

rcv_status rcvi_cuda_head_open(rcvi_learn *l, size_t *at) {
    const rcvi_learn_shape *s = &l->shape;
    size_t narrow = rcvi_cuda_bytes(l->narrow);
    RCVI_TRY(find_sizes(l));
    RCVI_TRY(rcvi_cuda_blas_new(l->context, &l->blas));
    if (s->lean) return rcvi_cuda_lean_open(l, at);
    RCVI_TRY(prepare(l, l->chunk));
    RCVI_TRY(prepare(l, s->rows % l->chunk));
    size_t elements = (size_t)(l->chunk * l->wide);
    l->head_bytes = (size_t)(l->chunk * s->classes) * (real_bytes(l) + (is_narrow(l) ? narrow : 0));
    l->losses = rcvi_learn_reserve(at, (size_t)s->rows * sizeof(double));
    l->numbers = rcvi_learn_reserve(at, (size_t)l->chunk * 2 * real_bytes(l));
    l->logits = l->gradients = rcvi_learn_reserve(at, elements * real_bytes(l));
    l->sums = rcvi_learn_reserve(at, (size_t)(most_slices(l) * s->classes) * real_bytes(l));
    l->workspace = rcvi_learn_reserve(at, l->workspace_bytes);
    if (!is_narrow(l)) return RCV_OK;
    l->gradients = rcvi_learn_reserve(at, elements * narrow);
    l->y = rcvi_learn_reserve(at, (size_t)(s->rows * l->deep) * narrow);
    l->weight = rcvi_learn_reserve(at, (size_t)(l->wide * l->deep) * narrow);
    return RCV_OK;
}

void rcvi_cuda_head_close(rcvi_learn *l) {
    for (int i = 0; i < RCVI_MAX_LEARN_PRODUCTS; i++) rcvi_cuda_gemm_free(l->products[i].gemm);
    rcvi_cuda_blas_free(l->blas);
}

/* ---- a call ---- */

/* The operands of products in a call. */
typedef struct {
    const char *y, *weight; /* [rows, deep], [classes, deep] of `narrow` */
} operands;

rcv_status rcvi_cuda_round_rows(rcvi_learn *l, int64_t rows, const void *from, void *to) {
    return rcvi_cuda_check(rcvi_cuda_round(l->stream, l->narrow, rows, l->shape.features, l->deep, from, to),
                           "rounding operands");
}

static rcv_status round_operands(rcvi_learn *l, const rcvi_head *head, operands *o) {
    *o = (operands){head->y, head->weight};
    if (!is_narrow(l)) return RCV_OK;
    char *y = l->memory + l->y, *weight = l->memory + l->weight;
    *o = (operands){y, weight};
    RCVI_TRY(rcvi_cuda_round_rows(l, head->rows, head->y, y));
    return head->rounded ? RCV_OK : rcvi_cuda_round_rows(l, l->shape.classes, head->weight, weight);
}

static rcv_status check(const rcvi_learn *l, const rcvi_head *head) {
    if (head->rows < 0 || head->rows > l->shape.rows)
        return rcvi_fail(RCV_INVALID, "%lld rows are not in 0 to %lld, for which learning was opened",
                         (long long)head->rows, (long long)l->shape.rows);
    return RCV_OK;
}

static rcv_status check_wanted(const rcvi_learn *l, const rcvi_head *head) {
    if (head->dy && !l->shape.training)
        return rcvi_fail(RCV_INVALID, "gradients are asked for, but learning was not opened for training");
    if (!head->targets && !head->values) return rcvi_fail(RCV_INVALID, "a head needs targets or values, not neither");
    return RCV_OK;
}

static rcv_status take_rows(rcvi_learn *l, const rcvi_head *head, const rcvi_control *control, int64_t first,
                            int64_t rows) {
    rcvi_head_rows a = {.rows = rows,
                        .classes = l->shape.classes,
                        .wide = l->wide,
                        .all = l->shape.classes,
                        .logits = l->memory + l->logits,
                        .bias = head->bias,
                        .targets = head->targets ? head->targets + first : NULL,
                        .class_weights = head->class_weights,
                        .losses = (double *)(void *)(l->memory + l->losses) + first,
                        .numbers = l->memory + l->numbers,
                        .gradients = head->dy ? l->memory + l->gradients : NULL,
                        .sums = head->dbias ? l->memory + l->sums : NULL,
                        .real = l->real,
                        .type = l->narrow,
                        .exact = !l->tensor && !is_narrow(l),
                        .control = control};
    if (!head->targets) a.values = (const char *)head->values + (size_t)(first * l->shape.classes) * real_bytes(l);
    return rcvi_cuda_check(rcvi_cuda_head_rows(l->stream, &a), "the loss");
}

/* dbias (+)= the sum over slices of a chunk's rows. */
static rcv_status sum_bias(rcvi_learn *l, const rcvi_head *head, int64_t rows, bool add) {
    int64_t classes = l->shape.classes;
    rcvi_sum sum = {.out = {.at = head->dbias, .row = classes, .column = 1, .type = l->real},
                    .a = {.at = l->memory + l->sums, .row = classes, .column = 1, .type = l->real}};
    return rcvi_cuda_check(
        rcvi_cuda_reduce_rows(l->stream, rcvi_cuda_head_slices(rows, classes), classes, add, &sum, 1, NULL),
        "the gradient of the bias");
}

static rcv_status sum_weight(rcvi_learn *l, rcvi_head_product product, const char *y, int64_t rows, bool add,
                             char *out) {
    const rcvi_cuda_gemm *gemm;
    const char *gradients = l->memory + l->gradients;
    char *workspace = l->memory + l->workspace;
    RCVI_TRY(find(l, product, rows, &gemm));
    if (product == RCVI_TO_REST) {
        gradients += (size_t)l->main * rcvi_cuda_bytes(l->narrow);
        out += (size_t)(l->main * l->shape.features) * real_bytes(l);
    }
    if (add) return rcvi_cuda_gemm_run(gemm, gradients, y, NULL, out, workspace, l->stream);
    return rcvi_cuda_gemm_store(gemm, gradients, y, out, workspace, l->stream);
}

/* Whether the gradients of weight and bias are left to `head_rest`: only with one chunk, since the next one overwrites its gradients. */
static bool waits(const rcvi_learn *l, const rcvi_head *head) { return head->later && head->rows <= l->chunk; }

static rcv_status sum_gradients(rcvi_learn *l, const rcvi_head *head, const char *y, int64_t rows, bool add) {
    if (head->dweight) RCVI_TRY(sum_weight(l, RCVI_TO_DWEIGHT, y, rows, add, head->dweight));
    if (head->dweight && l->main < l->shape.classes) RCVI_TRY(sum_weight(l, RCVI_TO_REST, y, rows, add, head->dweight));
    return head->dbias ? sum_bias(l, head, rows, add) : RCV_OK;
}

/* dy, dweight and dbias of a chunk, from the gradients of its logits. */
static rcv_status differentiate(rcvi_learn *l, const rcvi_head *head, const operands *o, int64_t first, int64_t rows) {
    const rcvi_cuda_gemm *gemm;
    const char *y = o->y + (size_t)(first * l->deep) * rcvi_cuda_bytes(l->narrow);
    char *dy = (char *)head->dy + (size_t)(first * l->shape.features) * real_bytes(l);
    RCVI_TRY(find(l, RCVI_TO_DY, rows, &gemm));
    RCVI_TRY(
        rcvi_cuda_gemm_run(gemm, l->memory + l->gradients, o->weight, NULL, dy, l->memory + l->workspace, l->stream));
    return waits(l, head) ? RCV_OK : sum_gradients(l, head, y, rows, head->accumulate || first > 0);
}

static rcv_status take_chunk(rcvi_learn *l, const rcvi_head *head, const operands *o, const rcvi_control *control,
                             int64_t first, int64_t rows) {
    const rcvi_cuda_gemm *gemm;
    const char *y = o->y + (size_t)(first * l->deep) * rcvi_cuda_bytes(l->narrow);
    RCVI_TRY(find(l, RCVI_TO_LOGITS, rows, &gemm));
    RCVI_TRY(rcvi_cuda_gemm_run(gemm, y, o->weight, NULL, l->memory + l->logits, l->memory + l->workspace, l->stream));
    RCVI_TRY(take_rows(l, head, control, first, rows));
    return head->dy ? differentiate(l, head, o, first, rows) : RCV_OK;
}

/* The results for no rows. */
static rcv_status clear_gradients(rcvi_learn *l, const rcvi_head *head) {
    size_t classes = (size_t)l->shape.classes, bytes = classes * (size_t)l->shape.features * real_bytes(l);
    if (!head->dy || head->accumulate) return RCV_OK;
    if (head->dweight) RCVI_CUDA_TRY(cudaMemsetAsync(head->dweight, 0, bytes, l->stream), "clearing a gradient");
    if (head->dbias)
        RCVI_CUDA_TRY(cudaMemsetAsync(head->dbias, 0, classes * real_bytes(l), l->stream), "clearing a gradient");
    return RCV_OK;
}

rcv_status rcvi_cuda_head(rcvi_learn *l, const rcvi_head *head, const rcvi_control *control, rcvi_outcome *outcome) {
    operands o = {NULL, NULL};
    RCVI_TRY(check(l, head));
    RCVI_TRY(check_wanted(l, head));
    if (l->shape.lean) return rcvi_cuda_lean_head(l, head, control, outcome);
    if (head->rows == 0) RCVI_TRY(clear_gradients(l, head));
    if (head->rows > 0) RCVI_TRY(round_operands(l, head, &o));
    for (int64_t first = 0; first < head->rows; first += l->chunk) {
        int64_t rows = head->rows - first < l->chunk ? head->rows - first : l->chunk;
        RCVI_TRY(take_chunk(l, head, &o, control, first, rows));
    }
    const double *losses = (const double *)(const void *)(l->memory + l->losses);
    return rcvi_cuda_check(rcvi_cuda_sum_losses(l->stream, head->rows, losses, head->adds_loss, outcome), "the loss");
}

/* ---- beside a run's loops ---- */

rcv_status rcvi_cuda_head_weight(rcvi_learn *l, const rcvi_head *head, cudaEvent_t beside) {
    cudaStream_t main;
    if (l->shape.lean || !is_narrow(l)) return RCV_OK;
    RCVI_TRY(rcvi_cuda_begin_side(l, beside, &main));
    rcv_status status = rcvi_cuda_round_rows(l, l->shape.classes, head->weight, l->memory + l->weight);
    rcv_status back = rcvi_cuda_end_side(l, main);
    return status ? status : back;
}

rcv_status rcvi_cuda_head_rest(rcvi_learn *l, const rcvi_head *head, cudaEvent_t beside) {
    cudaStream_t main;
    if (l->shape.lean || head->rows == 0 || !waits(l, head)) return RCV_OK;
    const char *y = is_narrow(l) ? l->memory + l->y : head->y;
    RCVI_TRY(rcvi_cuda_begin_side(l, beside, &main));
    rcv_status status = sum_gradients(l, head, y, head->rows, head->accumulate);
    rcv_status back = rcvi_cuda_end_side(l, main);
    return status ? status : back;
}

rcv_status rcvi_cuda_logits(rcvi_learn *l, const rcvi_head *head, void *out) {
    const rcvi_cuda_gemm *gemm;
    operands o;
    RCVI_TRY(check(l, head));
    if (head->rows == 0) return RCV_OK;
    if (l->shape.lean) return rcvi_cuda_lean_logits(l, head, out);
    RCVI_TRY(round_operands(l, head, &o));
    RCVI_TRY(find(l, RCVI_TO_CALLER, head->rows, &gemm));
    RCVI_TRY(rcvi_cuda_gemm_run(gemm, o.y, o.weight, NULL, out, l->memory + l->workspace, l->stream));
    if (!head->bias) return RCV_OK;
    return rcvi_cuda_check(rcvi_cuda_add_bias(l->stream, l->real, head->rows, l->shape.classes, head->bias, out),
                           "adding a bias");
}
