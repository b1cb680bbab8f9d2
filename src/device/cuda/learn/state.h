/* What the files of learning on a GPU share: learn.c, learn/head.c, learn/lean.c, learn/record.c.
 *
 * Types. Arrays hold `real`. What products of the head read is `narrow`: 16 bits in such a type, else real. Copies of y and of the
 * weight in 16 bits have rows of `deep` elements, zeros behind `features`, and `wide` rows of the weight, zeros behind `classes`.
 * Logits of `chunk` rows exist at once, `wide` from row to row, and so do their gradients: of 16 bits beside them, else in their place. */
#ifndef RCVI_CUDA_LEARN_STATE_H
#define RCVI_CUDA_LEARN_STATE_H

#include "device/cuda/engine/engine.h"
#include "device/learn.h"

/* The head's products: logits of a chunk, or of all rows to the caller; dy; dweight, but for the last few classes, where those are
 * no whole piece of 16 bytes; and these. A lean head has no rest. */
typedef enum { RCVI_TO_LOGITS, RCVI_TO_CALLER, RCVI_TO_DY, RCVI_TO_DWEIGHT, RCVI_TO_REST } rcvi_head_product;

enum { RCVI_MAX_LEARN_PRODUCTS = 48, RCVI_MAX_LEARN_GRAPHS = 64 };

typedef struct {
    rcvi_head_product product;
    int64_t rows, classes; /* classes: of a lean head, else 0 */
    rcvi_cuda_gemm *gemm;  /* NULL: the place is free */
} rcvi_learn_product;

/* Calls by their key. */
typedef struct {
    uint64_t key;
    int64_t used;          /* when, in calls; 0: the place is free */
    bool abandoned;        /* they are not to be recorded */
    cudaGraphExec_t graph; /* NULL: they were made once, and not recorded */
} rcvi_learn_graph;

struct rcvi_learn {
    rcv_context *context;
    int ordinal, processors;
    rcvi_learn_shape shape;
    rcvi_cuda_type real, narrow;
    bool tensor;
    int64_t chunk, wide, deep;
    int64_t main;    /* classes of RCVI_TO_DWEIGHT */
    int64_t strip;   /* lean: classes that are taken at once; chunk, wide and main mean nothing then */
    rcvi_head taken; /* lean: the head whose numbers, losses and squares are there; rows -1: none */
    cudaStream_t stream;
    cudaStream_t side;  /* beside loops of a run, or products */
    cudaEvent_t forked; /* of the stream: what lies behind it may have the side beside it */
    cudaEvent_t joined; /* behind what was enqueued there last */
    /* What is sent goes through two halves of the host's memory, one of which may be under way. */
    char *ring;
    cudaEvent_t left[2]; /* the last copy out of a half */
    bool was_left[2];
    int half;
    size_t filled; /* bytes of it */
    /* One block of device memory, and places in it; of a lean head some in spare memory, as learn/lean.c counts them. */
    char *memory;
    size_t bytes, head_bytes;
    size_t norm, losses, numbers, logits, gradients, sums, workspace, y, weight;
    size_t dweight, dbias; /* lean: of a strip, rows of `deep` reals */
    size_t workspace_bytes;
    rcvi_cuda_blas *blas;
    rcvi_learn_product products[RCVI_MAX_LEARN_PRODUCTS];
    int next_product; /* the place that is taken next */
    rcvi_learn_graph graphs[RCVI_MAX_LEARN_GRAPHS];
    int64_t calls;
    bool recording;
    uint64_t key; /* of what is recorded */
};

/* learn/head.c. Sizes, products and places of the head; `at` counts bytes of the block. */
rcv_status rcvi_cuda_head_open(rcvi_learn *learn, size_t *at);
void rcvi_cuda_head_close(rcvi_learn *learn);
rcv_status rcvi_cuda_head(rcvi_learn *learn, const rcvi_head *head, const rcvi_control *control, rcvi_outcome *outcome);
rcv_status rcvi_cuda_head_weight(rcvi_learn *learn, const rcvi_head *head, cudaEvent_t beside);
rcv_status rcvi_cuda_head_rest(rcvi_learn *learn, const rcvi_head *head, cudaEvent_t beside);
rcv_status rcvi_cuda_logits(rcvi_learn *learn, const rcvi_head *head, void *out);
/* Between the two, what is enqueued goes beside all that lies behind the event; a NULL event: where it would go anyway. What is enqueued behind
 * the second waits for it. */
rcv_status rcvi_cuda_turn_aside(rcvi_learn *learn, cudaEvent_t event, cudaStream_t *main);
rcv_status rcvi_cuda_turn_back(rcvi_learn *learn, cudaStream_t main);
/* The product of this kind and size, made where it is not there; before there is memory with `room` bytes for its workspace. */
rcv_status rcvi_cuda_find_product(rcvi_learn *learn, rcvi_learn_product wanted, const rcvi_cuda_gemm_shape *shape,
                                  size_t room, const rcvi_cuda_gemm **gemm);
/* to[rows, deep] of `narrow` = from[rows, features], zeros behind. */
rcv_status rcvi_cuda_round_rows(rcvi_learn *learn, int64_t rows, const void *from, void *to);

/* learn/lean.c: the same where learning is lean, and what an update does to the head behind its norm. */
rcv_status rcvi_cuda_lean_open(rcvi_learn *learn, size_t *at);
rcv_status rcvi_cuda_lean_head(rcvi_learn *learn, const rcvi_head *head, const rcvi_control *control,
                               rcvi_outcome *outcome);
rcv_status rcvi_cuda_lean_logits(rcvi_learn *learn, const rcvi_head *head, void *out);
rcv_status rcvi_cuda_lean_check(const rcvi_learn *learn, const rcvi_update *update);
rcv_status rcvi_cuda_lean_update(rcvi_learn *learn, const rcvi_head *head, const rcvi_control *control);

/* learn/record.c */
rcv_status rcvi_cuda_replay(rcvi_learn *learn, uint64_t key, bool *done);
rcv_status rcvi_cuda_recorded(rcvi_learn *learn, uint64_t key);
void rcvi_cuda_abandon(rcvi_learn *learn, uint64_t key);
void rcvi_cuda_drop_records(rcvi_learn *learn);

/* A place of so many bytes, at a multiple of 256. */
static inline size_t rcvi_learn_place(size_t *at, size_t bytes) {
    size_t place = *at;
    *at += (bytes + 255) / 256 * 256;
    return place;
}

#endif
