/* The lean output layer, whose gradient is never stored as a whole. Logits of all rows exist for one strip of classes at a time, and are
 * computed three times: for the losses; then for dy and the norm; then, with the norm known, for the update. A strip's weight and bias
 * change only after their last use, so the logits of all three are the same bits. The last strip of a pass is not computed again: the
 * second pass goes from the last strip to the first, and dweight of the first strip is kept for the update.
 *
 * In 16 bits a strip's weight is rounded into a buffer, with zero rows up to a multiple of 16 bytes of classes. dweight of a strip has rows
 * of `deep` elements, as y has. So all lengths of all products are multiples of 16 bytes. */
#include "device/cuda/kernels/kernels.h"
#include "device/cuda/learn/kernels.h"
#include "device/cuda/learn/state.h"
#include "device/cuda/learn/tuning.h"

#include <string.h>

enum { PIECE = 8 }; /* 16-bit elements of 16 bytes */

static size_t real_bytes(const rcvi_learn *l) { return rcvi_cuda_bytes(l->real); }
static size_t narrow_bytes(const rcvi_learn *l) { return rcvi_cuda_bytes(l->narrow); }
static bool is_narrow(const rcvi_learn *l) { return l->narrow != l->real; }
static int64_t round_up(int64_t n, int64_t piece) { return (n + piece - 1) / piece * piece; }

/* Offsets in spare memory are counted from here on. */
static const size_t in_spare = SIZE_MAX / 2 + 1;
static void *address_of(const rcvi_learn *l, size_t at) {
    return at >= in_spare ? (char *)l->shape.spare + (at - in_spare) : l->memory + at;
}

/* Classes first .. first + count - 1; their logits have `wide` elements from row to row, a multiple of 16 bytes. */
typedef struct {
    int64_t first, count, wide;
} strip;

static strip strip_at(const rcvi_learn *l, int64_t first) {
    int64_t left = l->shape.classes - first;
    strip s = {first, left < l->strip ? left : l->strip, 0};
    s.wide = round_up(s.count, PIECE);
    return s;
}

/* ---- products ---- */

static rcvi_cuda_gemm_shape shape_of(const rcvi_learn *l, rcvi_head_product product, int64_t rows, const strip *s) {
    bool narrow = is_narrow(l);
    int64_t classes = narrow ? s->wide : s->count;
    rcvi_cuda_gemm_shape g = {.a = l->narrow, .b = l->narrow, .out = l->real, .tensor = l->tensor, .batch = 1};
    g.whole_b = narrow;
    g.row_b = l->deep;
    g.row_a = s->wide;
    if (product == RCVI_TO_LOGITS || product == RCVI_TO_CALLER) { /* y weight^T */
        g.rows = rows;
        g.depth = g.row_a = l->deep;
        g.columns = product == RCVI_TO_LOGITS ? classes : s->count;
        g.transpose_b = true;
        g.row_out = product == RCVI_TO_LOGITS ? s->wide : l->shape.classes;
    } else if (product == RCVI_TO_DY) { /* dlogits weight, over strips */
        g.rows = rows;
        g.depth = classes;
        g.columns = g.row_out = l->shape.features;
        g.accumulate = true;
    } else { /* dlogits^T y */
        g.rows = classes;
        g.depth = rows;
        g.columns = g.row_out = l->deep;
        g.transpose_a = true;
    }
    return g;
}

static rcv_status find(rcvi_learn *l, rcvi_head_product product, int64_t rows, const strip *s,
                       const rcvi_cuda_gemm **gemm) {
    const rcvi_cuda_gemm_shape shape = shape_of(l, product, rows, s);
    const rcvi_learn_product wanted = {.product = product, .rows = rows, .classes = s->count};
    return rcvi_cuda_find_product(l, wanted, &shape, RCVI_TUNED_LEAN_WORKSPACE, gemm);
}

static rcv_status prepare(rcvi_learn *l, const strip *s) {
    static const rcvi_head_product products[] = {RCVI_TO_LOGITS, RCVI_TO_DY, RCVI_TO_DWEIGHT};
    for (int i = 0; i < (l->shape.training ? 3 : 1); i++) {
        const rcvi_cuda_gemm *gemm;
        RCVI_TRY(find(l, products[i], l->shape.rows, s, &gemm));
        size_t needed = rcvi_cuda_gemm_workspace(gemm);
        if (needed > l->workspace_bytes) l->workspace_bytes = needed;
    }
    return RCV_OK;
}

/* ---- opening ---- */

/* Classes of a strip: strips of about the same size, as few as memory allows. */
static int64_t choose_strip(const rcvi_learn *l) {
    const rcvi_learn_shape *s = &l->shape;
    int64_t rows = (int64_t)(real_bytes(l) + (is_narrow(l) ? narrow_bytes(l) : 0)); /* bytes of a class and a row */
    int64_t weight = (int64_t)((is_narrow(l) ? narrow_bytes(l) : 0) + real_bytes(l)), most = s->chunk;
    int64_t spare = s->spare_bytes < RCVI_TUNED_STRIP_BYTES ? (int64_t)s->spare_bytes : RCVI_TUNED_STRIP_BYTES;
    if (most == 0)
        most = (RCVI_TUNED_STRIP_BYTES + spare) / (s->rows * rows + l->deep * weight) / RCVI_TUNED_STRIP *
               RCVI_TUNED_STRIP;
    if (most < RCVI_TUNED_STRIP) most = RCVI_TUNED_STRIP;
    if (s->chunk) return most >= s->classes ? round_up(s->classes, RCVI_TUNED_STRIP) : round_up(most, RCVI_TUNED_STRIP);
    int64_t strips = (s->classes + most - 1) / most;
    return round_up((s->classes + strips - 1) / strips, RCVI_TUNED_STRIP);
}

/* Elements of the sums over slices of rows, of the strip that has more of them. */
static int64_t sums_of(const rcvi_learn *l, const strip *a, const strip *b) {
    int64_t of_a = rcvi_cuda_head_slices(l->shape.rows, a->count) * a->count,
            of_b = rcvi_cuda_head_slices(l->shape.rows, b->count) * b->count;
    return of_a > of_b ? of_a : of_b;
}

/* The offset of data that is not needed between a head and its update: in spare memory where that has room. */
static size_t place_temporary(const rcvi_learn *l, size_t *at, size_t *spare, size_t bytes) {
    size_t after = *spare;
    (void)rcvi_learn_reserve(&after, bytes);
    return after <= l->shape.spare_bytes ? in_spare + rcvi_learn_reserve(spare, bytes) : rcvi_learn_reserve(at, bytes);
}

static void find_places(rcvi_learn *l, const strip *first, const strip *last, size_t *at) {
    const rcvi_learn_shape *s = &l->shape;
    size_t rows = (size_t)s->rows, wide = (size_t)first->wide, deep = (size_t)l->deep, real = real_bytes(l), spare = 0;
    l->head_bytes = rows * wide * (real + (is_narrow(l) ? narrow_bytes(l) : 0));
    l->losses = rcvi_learn_reserve(at, rows * sizeof(double));
    l->numbers = rcvi_learn_reserve(at, rows * 2 * real);
    l->logits = l->gradients = place_temporary(l, at, &spare, rows * wide * real);
    if (is_narrow(l)) {
        l->gradients = place_temporary(l, at, &spare, rows * wide * narrow_bytes(l));
        l->weight = place_temporary(l, at, &spare, wide * deep * narrow_bytes(l));
        l->y = rcvi_learn_reserve(at, rows * deep * narrow_bytes(l));
    }
    l->workspace = place_temporary(l, at, &spare, l->workspace_bytes);
    if (!s->training) return;
    l->sums = place_temporary(l, at, &spare, (size_t)sums_of(l, first, last) * real);
    l->dweight = rcvi_learn_reserve(at, wide * deep * real);
    l->dbias = rcvi_learn_reserve(at, wide * real);
}

rcv_status rcvi_cuda_lean_open(rcvi_learn *l, size_t *at) {
    l->taken.rows = -1;
    if (!l->shape.spare || (uintptr_t)l->shape.spare % 256) l->shape.spare_bytes = 0;
    l->strip = choose_strip(l);
    const strip first = strip_at(l, 0), last = strip_at(l, (l->shape.classes - 1) / l->strip * l->strip);
    RCVI_TRY(prepare(l, &first));
    RCVI_TRY(prepare(l, &last));
    find_places(l, &first, &last, at);
    return RCV_OK;
}

/* ---- a strip ---- */

static const char *y_of(const rcvi_learn *l, const rcvi_head *head) {
    return is_narrow(l) ? address_of(l, l->y) : (const char *)head->y;
}

static const char *given_weight(const rcvi_learn *l, const rcvi_head *head, const strip *s) {
    return (const char *)head->weight + (size_t)(s->first * l->shape.features) * real_bytes(l);
}

/* The operand of products for its weight, after it is rounded. */
static const char *weight_of(const rcvi_learn *l, const rcvi_head *head, const strip *s) {
    return is_narrow(l) ? address_of(l, l->weight) : given_weight(l, head, s);
}

/* Rows after the last class are zeros. */
static rcv_status round_weight(rcvi_learn *l, const rcvi_head *head, const strip *s) {
    if (!is_narrow(l)) return RCV_OK;
    char *to = address_of(l, l->weight);
    size_t row = (size_t)l->deep * narrow_bytes(l), padding = (size_t)(s->wide - s->count) * row;
    if (padding > 0)
        RCVI_CUDA_TRY(cudaMemsetAsync(to + (size_t)s->count * row, 0, padding, l->stream), "clearing rows of a weight");
    return rcvi_cuda_round_rows(l, s->count, given_weight(l, head, s), to);
}

static rcv_status take_logits(rcvi_learn *l, const rcvi_head *head, const strip *s) {
    const rcvi_cuda_gemm *gemm;
    RCVI_TRY(round_weight(l, head, s));
    RCVI_TRY(find(l, RCVI_TO_LOGITS, head->rows, s, &gemm));
    return rcvi_cuda_gemm_run(gemm, y_of(l, head), weight_of(l, head, s), NULL, address_of(l, l->logits),
                              address_of(l, l->workspace), l->stream);
}

/* Its part of numbers and losses, or, where these are complete, its gradients. */
static rcv_status take_rows(rcvi_learn *l, const rcvi_head *head, const rcvi_control *control, const strip *s,
                            bool known) {
    rcvi_head_rows a = {.rows = head->rows,
                        .classes = s->count,
                        .wide = s->wide,
                        .first = s->first,
                        .all = l->shape.classes,
                        .logits = address_of(l, l->logits),
                        .targets = head->targets,
                        .class_weights = head->class_weights,
                        .losses = known ? NULL : address_of(l, l->losses),
                        .numbers = address_of(l, l->numbers),
                        .gradients = known ? address_of(l, l->gradients) : NULL,
                        .sums = known && head->bias ? address_of(l, l->sums) : NULL,
                        .real = l->real,
                        .type = l->narrow,
                        .exact = !l->tensor && !is_narrow(l),
                        .control = control};
    if (head->bias) a.bias = (const char *)head->bias + (size_t)s->first * real_bytes(l);
    RCVI_CUDA_TRY(rcvi_cuda_head_rows(l->stream, &a), known ? "the gradients of logits" : "the loss");
    return known ? rcvi_cuda_check(cudaEventRecord(l->forked, l->stream), "marking a stream") : RCV_OK;
}

/* dweight of a strip, from the gradients of its logits. */
static rcv_status sum_weight(rcvi_learn *l, const rcvi_head *head, const strip *s) {
    const rcvi_cuda_gemm *gemm;
    RCVI_TRY(find(l, RCVI_TO_DWEIGHT, head->rows, s, &gemm));
    return rcvi_cuda_gemm_run(gemm, address_of(l, l->gradients), y_of(l, head), NULL, address_of(l, l->dweight),
                              address_of(l, l->workspace), l->stream);
}

/* Its dbias. */
static rcv_status sum_bias(rcvi_learn *l, const rcvi_head *head, const strip *s) {
    rcvi_sum sum = {.out = {.at = address_of(l, l->dbias), .row = s->count, .column = 1, .type = l->real},
                    .a = {.at = address_of(l, l->sums), .row = s->count, .column = 1, .type = l->real}};
    return rcvi_cuda_check(
        rcvi_cuda_reduce_rows(l->stream, rcvi_cuda_head_slices(head->rows, s->count), s->count, false, &sum, 1, NULL),
        "the gradient of the bias");
}

/* Updates the caller's parameters [rows, columns]. */
static rcv_status change(rcvi_learn *l, int64_t rows, int64_t columns, const void *given, int64_t at, size_t gradient,
                         const rcvi_control *control) {
    char *parameters;
    memcpy(&parameters, &given, sizeof given);
    return rcvi_cuda_check(rcvi_cuda_change_rows(l->stream, l->real, rows, columns,
                                                 parameters + (size_t)at * real_bytes(l), address_of(l, gradient),
                                                 l->deep, control, address_of(l, l->norm)),
                           "an update");
}

/* A strip's dbias and, with `changes`, the update of its bias, on the side stream beside all that was enqueued since its gradients. */
static rcv_status take_bias(rcvi_learn *l, const rcvi_head *head, const rcvi_control *control, const strip *s,
                            bool changes) {
    cudaStream_t main;
    if (!head->bias) return RCV_OK;
    RCVI_TRY(rcvi_cuda_begin_side(l, l->forked, &main));
    rcv_status status = sum_bias(l, head, s);
    if (!status && changes) status = change(l, 1, s->count, head->bias, s->first, l->dbias, control);
    rcv_status back = rcvi_cuda_end_side(l, main);
    return status ? status : back;
}

/* ---- a head ---- */

static rcv_status check(const rcvi_head *head) {
    if (!head->targets) return rcvi_fail(RCV_INVALID, "a lean head needs targets: it is for softmax alone");
    if (head->dweight || head->dbias)
        return rcvi_fail(RCV_INVALID, "a lean head stores no gradient of weight and bias: dweight and dbias are NULL");
    if (head->accumulate)
        return rcvi_fail(RCV_INVALID, "a lean head does not accumulate: every batch has an update of its own");
    return RCV_OK;
}

static rcv_status take_losses(rcvi_learn *l, const rcvi_head *head, const rcvi_control *control,
                              rcvi_outcome *outcome) {
    if (head->rows > 0 && is_narrow(l)) RCVI_TRY(rcvi_cuda_round_rows(l, head->rows, head->y, address_of(l, l->y)));
    for (int64_t first = 0; first < l->shape.classes && head->rows > 0; first += l->strip) {
        const strip s = strip_at(l, first);
        RCVI_TRY(take_logits(l, head, &s));
        RCVI_TRY(take_rows(l, head, control, &s, false));
    }
    return rcvi_cuda_check(
        rcvi_cuda_sum_losses(l->stream, head->rows, address_of(l, l->losses), head->adds_loss, outcome), "the loss");
}

/* dy (+)= gradients weight. */
static rcv_status add_to_dy(rcvi_learn *l, const rcvi_head *head, const strip *s, bool adds) {
    const rcvi_cuda_gemm *gemm;
    const void *gradients = address_of(l, l->gradients), *weight = weight_of(l, head, s);
    RCVI_TRY(find(l, RCVI_TO_DY, head->rows, s, &gemm));
    if (!adds) return rcvi_cuda_gemm_store(gemm, gradients, weight, head->dy, address_of(l, l->workspace), l->stream);
    return rcvi_cuda_gemm_run(gemm, gradients, weight, NULL, head->dy, address_of(l, l->workspace), l->stream);
}

/* the padding of dweight is 0, and adds nothing to sums */
static rcv_status add_squares(rcvi_learn *l, const rcvi_head *head, const rcvi_control *control, const strip *s,
                              bool adds) {
    const rcvi_update_part parts[] = {{.count = s->count * l->deep, .gradient = address_of(l, l->dweight)},
                                      {.count = head->bias ? s->count : 0, .gradient = address_of(l, l->dbias)}};
    return rcvi_cuda_check(rcvi_cuda_add_squares(l->stream, l->real, parts, 2, adds, control, address_of(l, l->norm)),
                           "the norm");
}

/* From the last strip on, whose logits are in memory. */
static rcv_status differentiate(rcvi_learn *l, const rcvi_head *head, const rcvi_control *control) {
    if (head->rows == 0)
        return rcvi_cuda_check(cudaMemsetAsync(address_of(l, l->norm), 0, RCVI_NORM_SUMS * sizeof(double), l->stream),
                               "clearing the norm");
    for (int64_t last = (l->shape.classes - 1) / l->strip * l->strip, first = last; first >= 0; first -= l->strip) {
        const strip s = strip_at(l, first);
        if (first < last) RCVI_TRY(take_logits(l, head, &s));
        RCVI_TRY(take_rows(l, head, control, &s, true));
        RCVI_TRY(add_to_dy(l, head, &s, first < last));
        RCVI_TRY(sum_weight(l, head, &s));
        RCVI_TRY(take_bias(l, head, control, &s, false));
        RCVI_TRY(add_squares(l, head, control, &s, first < last));
    }
    return RCV_OK;
}

rcv_status rcvi_cuda_lean_head(rcvi_learn *l, const rcvi_head *head, const rcvi_control *control,
                               rcvi_outcome *outcome) {
    RCVI_TRY(check(head));
    l->taken.rows = -1;
    RCVI_TRY(take_losses(l, head, control, outcome));
    if (!head->dy) return RCV_OK;
    RCVI_TRY(differentiate(l, head, control));
    l->taken = *head;
    return RCV_OK;
}

rcv_status rcvi_cuda_lean_logits(rcvi_learn *l, const rcvi_head *head, void *out) {
    l->taken.rows = -1; /* y is of another call */
    if (is_narrow(l)) RCVI_TRY(rcvi_cuda_round_rows(l, head->rows, head->y, address_of(l, l->y)));
    for (int64_t first = 0; first < l->shape.classes; first += l->strip) {
        const strip s = strip_at(l, first);
        const rcvi_cuda_gemm *gemm;
        RCVI_TRY(round_weight(l, head, &s));
        RCVI_TRY(find(l, RCVI_TO_CALLER, head->rows, &s, &gemm));
        RCVI_TRY(rcvi_cuda_gemm_run(gemm, y_of(l, head), weight_of(l, head, &s), NULL,
                                    (char *)out + (size_t)first * real_bytes(l), address_of(l, l->workspace),
                                    l->stream));
    }
    if (!head->bias) return RCV_OK;
    return rcvi_cuda_check(rcvi_cuda_add_bias(l->stream, l->real, head->rows, l->shape.classes, head->bias, out),
                           "adding a bias");
}

/* ---- the update ---- */

rcv_status rcvi_cuda_lean_check(const rcvi_learn *l, const rcvi_update *update) {
    const rcvi_head *a = update->head, *b = &l->taken;
    if (!l->shape.lean)
        return rcvi_fail(RCV_INVALID, "an update changes a head itself only where learning was opened as lean");
    if (update->kind != RCVI_SGD) return rcvi_fail(RCV_INVALID, "a lean head is updated by sgd and nothing else");
    if (a->rows != b->rows || a->y != b->y || a->weight != b->weight || a->bias != b->bias ||
        a->targets != b->targets || a->class_weights != b->class_weights)
        return rcvi_fail(RCV_INVALID, "the head of an update must be that of the call before it, with gradients");
    return RCV_OK;
}

/* dweight and dbias of the first strip are in memory. */
rcv_status rcvi_cuda_lean_update(rcvi_learn *l, const rcvi_head *head, const rcvi_control *control) {
    int64_t features = l->shape.features;
    l->taken.rows = -1;
    for (int64_t first = 0; first < l->shape.classes && head->rows > 0; first += l->strip) {
        const strip s = strip_at(l, first);
        if (first == 0 && head->bias) RCVI_TRY(change(l, 1, s.count, head->bias, first, l->dbias, control));
        if (first > 0) {
            RCVI_TRY(take_logits(l, head, &s));
            RCVI_TRY(take_rows(l, head, control, &s, true));
            RCVI_TRY(sum_weight(l, head, &s));
        }
        RCVI_TRY(change(l, s.count, features, head->weight, first * features, l->dweight, control));
        if (first > 0) RCVI_TRY(take_bias(l, head, control, &s, true));
    }
    return RCV_OK;
}
