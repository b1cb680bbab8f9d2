/* The output layer and the loss, one chunk of logits at a time. The gradient overwrites the logits of a chunk, so the logits of all
 * rows never exist at once. A barrier separates the stages; within a stage no member reads what another one writes:
 *
 *   pack the weight | logits = y weight^T | rows: loss, gradient | dy = gradient weight, dweight += gradient^T y | ... */
#include "device/cpu/gemm/matmul.h"
#include "device/cpu/learn/learn.h"

/* ---- products ---- */

static rcvi_matmul logits_product(const rcvi_learn *learn, int64_t rows) {
    int64_t features = learn->shape.features, classes = learn->shape.classes;
    return (rcvi_matmul){.type = learn->type,
                         .transpose_b = true,
                         .m = rows,
                         .n = classes,
                         .k = features,
                         .lda = features,
                         .ldb = features,
                         .ldc = classes};
}

static rcvi_matmul dy_product(const rcvi_learn *learn, int64_t rows) {
    int64_t features = learn->shape.features, classes = learn->shape.classes;
    return (rcvi_matmul){
        .type = learn->type, .m = rows, .n = features, .k = classes, .lda = classes, .ldb = features, .ldc = features};
}

static rcvi_matmul dweight_product(const rcvi_learn *learn, int64_t rows, bool accumulate) {
    int64_t features = learn->shape.features, classes = learn->shape.classes;
    return (rcvi_matmul){.type = learn->type,
                         .transpose_a = true,
                         .accumulate = accumulate,
                         .m = classes,
                         .n = features,
                         .k = rows,
                         .lda = classes,
                         .ldb = features,
                         .ldc = features};
}

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

int64_t rcvi_learn_head_scratch(const rcvi_learn *learn) {
    int64_t rows = learn->shape.rows, most = 0;
    rcvi_matmul products[] = {logits_product(learn, rows), dy_product(learn, rows),
                              dweight_product(learn, rows, false)};
    for (size_t i = 0; i < sizeof products / sizeof *products; i++)
        most = larger(most, rcvi_matmul_scratch(learn->kernels, &products[i], (int)learn->shape.threads));
    return most;
}

int64_t rcvi_learn_logits_packed_bytes(const rcvi_learn *learn) {
    rcvi_matmul product = logits_product(learn, learn->shape.chunk);
    return rcvi_matmul_packed_bytes(learn->kernels, &product);
}

int64_t rcvi_learn_dy_packed_bytes(const rcvi_learn *learn) {
    rcvi_matmul product = dy_product(learn, learn->shape.chunk);
    return learn->shape.training ? rcvi_matmul_packed_bytes(learn->kernels, &product) : 0;
}

/* Computes the member's share of a product; `packed`: b packed before, or NULL. */
static void multiply(const rcvi_learn_share *share, const rcvi_matmul *product, const void *a, const void *b,
                     const void *packed, void *c) {
    const rcvi_learn *learn = share->learn;
    void *scratch = learn->scratch + share->member * learn->scratch_bytes;
    if (packed)
        rcvi_matmul_packed_share(learn->kernels, product, a, packed, c, share->member, share->members, scratch);
    else
        rcvi_matmul_share(learn->kernels, product, a, b, c, share->member, share->members, scratch);
}

static const char *row_of(const rcvi_learn *learn, const void *array, int64_t row, int64_t columns) {
    return (const char *)array + row * columns * learn->size;
}

/* ---- the head ---- */

typedef struct {
    const rcvi_head *head;
    double weight;
    rcvi_outcome *outcome;
    void *out; /* logits, of run_logits */
} head_job;

/* True if the weight is packed first: for few rows that does not pay. */
static bool is_packed(const rcvi_learn *learn, const rcvi_head *head) {
    return head->rows > learn->kernels->products[learn->type].panel;
}

static void pack_weight(const rcvi_learn_share *share, const rcvi_head *head) {
    const rcvi_learn *learn = share->learn;
    rcvi_matmul product = logits_product(learn, learn->shape.chunk);
    rcvi_matmul_pack_share(learn->kernels, &product, head->weight, share->member, share->members,
                           learn->packed_for_logits);
    product = dy_product(learn, learn->shape.chunk);
    if (head->dy)
        rcvi_matmul_pack_share(learn->kernels, &product, head->weight, share->member, share->members,
                               learn->packed_for_dy);
    rcvi_learn_barrier(share);
}

static void forward(const rcvi_learn_share *share, const rcvi_learn_chunk *chunk) {
    const rcvi_learn *learn = share->learn;
    const rcvi_head *head = chunk->head;
    rcvi_matmul product = logits_product(learn, chunk->rows);
    multiply(share, &product, row_of(learn, head->y, chunk->row, chunk->features), head->weight,
             is_packed(learn, head) ? learn->packed_for_logits : NULL, chunk->logits);
    rcvi_learn_barrier(share);
    (head->targets ? learn->real->softmax : learn->real->square)(share, chunk);
    rcvi_learn_barrier(share);
}

static void backward(const rcvi_learn_share *share, const rcvi_learn_chunk *chunk) {
    const rcvi_learn *learn = share->learn;
    const rcvi_head *head = chunk->head;
    rcvi_matmul product = dy_product(learn, chunk->rows);
    multiply(share, &product, chunk->logits, head->weight, is_packed(learn, head) ? learn->packed_for_dy : NULL,
             (char *)head->dy + chunk->row * chunk->features * learn->size);
    if (head->dweight) {
        product = dweight_product(learn, chunk->rows, head->accumulate || chunk->row > 0);
        multiply(share, &product, chunk->logits, row_of(learn, head->y, chunk->row, chunk->features), NULL,
                 head->dweight);
    }
    if (head->dbias) learn->real->sum_bias(share, chunk);
    rcvi_learn_barrier(share);
}

static void run_head(const rcvi_learn_share *share, const void *job) {
    const head_job *self = job;
    const rcvi_learn *learn = share->learn;
    rcvi_learn_chunk chunk = {.head = self->head,
                              .weight = self->weight,
                              .features = learn->shape.features,
                              .classes = learn->shape.classes,
                              .logits = learn->logits};
    if (is_packed(learn, self->head)) pack_weight(share, self->head);
    for (int64_t row = 0; row < self->head->rows; row += chunk.rows) {
        chunk.row = row;
        chunk.rows = smaller(learn->shape.chunk, self->head->rows - row);
        chunk.losses = learn->losses + row;
        forward(share, &chunk);
        if (self->head->dy) backward(share, &chunk);
    }
}

static rcv_status check_head(const rcvi_learn *learn, const rcvi_head *head) {
    if (head->rows >= 1 && head->rows <= learn->shape.rows) return RCV_OK;
    return rcvi_fail(RCV_INVALID, "a head of %lld rows, but what was opened is for 1 to %lld", (long long)head->rows,
                     (long long)learn->shape.rows);
}

static double operations(const rcvi_learn *learn, int64_t rows) {
    return 2.0 * (double)rows * (double)learn->shape.features * (double)learn->shape.classes;
}

rcv_status rcvi_learn_head(rcvi_learn *learn, const rcvi_head *head, const rcvi_control *control,
                           rcvi_outcome *outcome) {
    RCVI_TRY(check_head(learn, head));
    if (head->dy && !learn->shape.training)
        return rcvi_fail(RCV_INVALID, "gradients of a head that was not opened for training");
    if (!head->targets && !head->values) return rcvi_fail(RCV_INVALID, "a head needs targets or values, not neither");
    head_job job = {.head = head, .weight = control->weight, .outcome = outcome};
    RCVI_TRY(rcvi_learn_run(learn, operations(learn, head->rows), run_head, &job));
    double loss = head->adds_loss ? outcome->loss : 0;
    for (int64_t row = 0; row < head->rows; row++) loss += learn->losses[row];
    outcome->loss = loss;
    return RCV_OK;
}

/* ---- logits without a loss ---- */

static void run_logits(const rcvi_learn_share *share, const void *job) {
    const head_job *self = job;
    const rcvi_learn *learn = share->learn;
    rcvi_matmul product = logits_product(learn, self->head->rows);
    multiply(share, &product, self->head->y, self->head->weight, NULL, self->out);
    if (!self->head->bias) return;
    rcvi_learn_barrier(share);
    rcvi_learn_chunk all = {.head = self->head,
                            .rows = self->head->rows,
                            .features = learn->shape.features,
                            .classes = learn->shape.classes,
                            .logits = self->out};
    learn->real->add_bias(share, &all);
}

rcv_status rcvi_learn_logits(rcvi_learn *learn, const rcvi_head *head, void *out) {
    RCVI_TRY(check_head(learn, head));
    head_job job = {.head = head, .out = out};
    return rcvi_learn_run(learn, operations(learn, head->rows), run_logits, &job);
}
