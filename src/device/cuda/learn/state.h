/* The state of learning on a GPU, shared by learn.c, head.c, lean.c and record.c. It lives as long as the learner's device part.
 *
 * Types. Arrays hold `real`. Products of the output layer (head) read `narrow`: 16 bits in such a type, else real. The rounded copies of y
 * and of the weight have rows of `deep` elements, with zeros after `features`; the weight has `wide` rows, with zeros after `classes`.
 * Logits of `chunk` rows exist at once, `wide` elements from row to row, and so do their gradients: 16-bit ones beside them, others in
 * their place. */
#ifndef RCVI_CUDA_LEARN_STATE_H
#define RCVI_CUDA_LEARN_STATE_H

#include "device/cuda/engine/engine.h"
#include "device/learn.h"

/* The head's products: logits of a chunk; logits of all rows for the caller; dy; dweight without the last few classes, where the number of
 * classes is no multiple of 16 bytes; and dweight of these. A lean head has no rest. */
typedef enum { RCVI_TO_LOGITS, RCVI_TO_CALLER, RCVI_TO_DY, RCVI_TO_DWEIGHT, RCVI_TO_REST } rcvi_head_product;

enum { RCVI_MAX_LEARN_PRODUCTS = 48, RCVI_MAX_LEARN_GRAPHS = 64 };

typedef struct {
    rcvi_head_product product;
    int64_t rows, classes; /* classes: of a lean head, else 0 */
    rcvi_cuda_gemm *gemm;  /* NULL: the entry is free */
} rcvi_learn_product;

/* Captured calls, found by their key. */
typedef struct {
    uint64_t key;
    int64_t used;          /* number of the last call that used it; 0: the entry is free */
    bool abandoned;        /* not to be captured */
    cudaGraphExec_t graph; /* NULL: called once, and not captured yet */
} rcvi_learn_graph;

struct rcvi_learn {
    rcv_context *context;
    int ordinal, processors;
    rcvi_learn_shape shape;
    rcvi_cuda_type real, narrow;
    bool tensor;
    int64_t chunk, wide, deep;
    int64_t main;    /* classes of RCVI_TO_DWEIGHT */
    int64_t strip;   /* lean: classes of a strip; chunk, wide and main are then unused */
    rcvi_head taken; /* lean: the head whose numbers, losses and squares are in memory; rows -1: none */
    cudaStream_t stream;
    cudaStream_t side;  /* a second stream, beside loops of a run or products */
    cudaEvent_t forked; /* recorded on `stream`: the side stream may run beside what follows */
    cudaEvent_t joined; /* recorded after the last work on the side stream */
    /* Data to the GPU goes through a ring of pinned memory of two halves; one half may be in flight. */
    char *ring;
    cudaEvent_t left[2]; /* recorded after the last copy out of a half */
    bool was_left[2];
    int half;
    size_t filled; /* bytes of the current half in use */
    /* One block of device memory, and offsets in it; those of a lean head may be in spare memory (lean.c). */
    char *memory;
    size_t bytes, head_bytes;
    size_t norm, losses, numbers, logits, gradients, sums, workspace, y, weight;
    size_t dweight, dbias; /* lean: of a strip, rows of `deep` reals */
    size_t workspace_bytes;
    rcvi_cuda_blas *blas;
    rcvi_learn_product products[RCVI_MAX_LEARN_PRODUCTS];
    int next_product; /* the entry that is replaced next */
    rcvi_learn_graph graphs[RCVI_MAX_LEARN_GRAPHS];
    int64_t calls;
    bool recording;
    uint64_t key; /* of the calls that are being captured */
};

/* head.c. Sizes, products and offsets of the head; `at` counts bytes of the block. */
rcv_status rcvi_cuda_head_open(rcvi_learn *learn, size_t *at);
void rcvi_cuda_head_close(rcvi_learn *learn);
rcv_status rcvi_cuda_head(rcvi_learn *learn, const rcvi_head *head, const rcvi_control *control, rcvi_outcome *outcome);
rcv_status rcvi_cuda_head_weight(rcvi_learn *learn, const rcvi_head *head, cudaEvent_t beside);
rcv_status rcvi_cuda_head_rest(rcvi_learn *learn, const rcvi_head *head, cudaEvent_t beside);
rcv_status rcvi_cuda_logits(rcvi_learn *learn, const rcvi_head *head, void *out);
/* What is enqueued between these two goes to the side stream, beside all that was enqueued after the event; with a NULL event, to the main
 * stream. What is enqueued after the second waits for it. */
rcv_status rcvi_cuda_begin_side(rcvi_learn *learn, cudaEvent_t event, cudaStream_t *main);
rcv_status rcvi_cuda_end_side(rcvi_learn *learn, cudaStream_t main);
/* The product of this kind and size, created at the first use. Before the memory is allocated its workspace may have `room` bytes. */
rcv_status rcvi_cuda_find_product(rcvi_learn *learn, rcvi_learn_product wanted, const rcvi_cuda_gemm_shape *shape,
                                  size_t room, const rcvi_cuda_gemm **gemm);
/* to[rows, deep] of `narrow` = from[rows, features], with zeros after them. */
rcv_status rcvi_cuda_round_rows(rcvi_learn *learn, int64_t rows, const void *from, void *to);

/* lean.c: the same for lean learning, and the update of the head after the norm. */
rcv_status rcvi_cuda_lean_open(rcvi_learn *learn, size_t *at);
rcv_status rcvi_cuda_lean_head(rcvi_learn *learn, const rcvi_head *head, const rcvi_control *control,
                               rcvi_outcome *outcome);
rcv_status rcvi_cuda_lean_logits(rcvi_learn *learn, const rcvi_head *head, void *out);
rcv_status rcvi_cuda_lean_check(const rcvi_learn *learn, const rcvi_update *update);
rcv_status rcvi_cuda_lean_update(rcvi_learn *learn, const rcvi_head *head, const rcvi_control *control);

/* record.c */
rcv_status rcvi_cuda_replay(rcvi_learn *learn, uint64_t key, bool *done);
rcv_status rcvi_cuda_recorded(rcvi_learn *learn, uint64_t key);
void rcvi_cuda_abandon(rcvi_learn *learn, uint64_t key);
void rcvi_cuda_drop_records(rcvi_learn *learn);

/* The offset of so many bytes, a multiple of 256. */
static inline size_t rcvi_learn_reserve(size_t *at, size_t bytes) {
    size_t offset = *at;
    *at += (bytes + 255) / 256 * 256;
    return offset;
}

#endif
