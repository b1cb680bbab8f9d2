/* A byte-level language model: embedding, network, softmax over the next byte. Everything is float32. */
#ifndef RCVI_LM_H
#define RCVI_LM_H

#include "base/base.h"

enum {
    RCVI_BYTES = 256,    /* symbols */
    RCVI_LOSS_ROWS = 64, /* rows of logits that exist at once */
};

/* Where training stands in a text, so that the next call (or the next process) goes on from there. */
typedef struct {
    int64_t batch;        /* columns; 0: nowhere */
    int64_t position;     /* bytes of every column that were read */
    uint64_t bytes, hash; /* of the text */
    float **states;       /* per state of the network: [total * batch] */
} rcvi_place;

struct rcv_lm {
    rcv_context *context;
    rcv_cell *cell; /* owned where it came from a file, else NULL */
    rcv_net *net;
    int64_t embedding, output; /* features into and out of the network */
    int64_t elements;
    int64_t at_net, at_weight, at_bias; /* offsets in `parameters` */
    /* embedding.weight [256, embedding], the network's, decoder.weight [256, output], decoder.bias [256] */
    float *parameters;
    float *first, *second; /* Adam's moments, [elements] each; NULL before any training */
    int64_t step;          /* updates done */
    rcvi_place place;
};

/* A tensor within an array of `elements`. */
typedef struct {
    char name[160];
    int dims;
    int64_t shape[3];
    int64_t offset, count;
} rcvi_lm_tensor;

size_t rcvi_lm_tensor_count(const rcv_lm *lm);
void rcvi_lm_tensor_at(const rcv_lm *lm, size_t index, rcvi_lm_tensor *tensor);

/* A model around `net`, which it owns from here on where RCV_OK is returned; no parameters yet. */
rcv_status rcvi_lm_shell(rcv_net *net, rcv_lm **lm);
rcv_status rcvi_lm_parameters(rcv_lm *lm); /* makes them, zero */
rcv_status rcvi_lm_moments(rcv_lm *lm);    /* makes them, zero, where they are missing */

/* One array [total * batch] of zeros per state. */
rcv_status rcvi_states_new(rcv_context *context, const rcv_net *net, int64_t batch, float ***states);
void rcvi_states_free(rcv_context *context, const rcv_net *net, float **states);
void rcvi_states_copy(const rcv_net *net, int64_t batch, float **to, float *const *from); /* from NULL: zeros */

/* ---- the network over a window of a text ---- */

typedef struct {
    const rcv_lm *lm;
    int64_t steps, batch;
    bool training;
    rcv_plan *plan;
    rcv_run *run;
    float *x, *y;             /* [steps, batch, embedding], [steps, batch, output] */
    float *dx, *dy;           /* the same; training only */
    float **initial, **final; /* states before and after the window */
    float *logits;            /* [RCVI_LOSS_ROWS, 256] */
    uint8_t *targets;         /* [steps, batch] */
} rcvi_window;

rcv_status rcvi_window_new(const rcv_lm *lm, int64_t steps, int64_t batch, bool training, rcvi_window *window);
void rcvi_window_free(rcvi_window *window); /* harmless on a zeroed window */
/* Column b reads the bytes text[b * stride + 0 .. steps). Leaves y and the final states. */
rcv_status rcvi_window_forward(rcvi_window *window, const uint8_t *text, int64_t stride, uint64_t seed);
/* The sum of nats with which the window after a forward call predicts each next byte, text[b * stride + 1 .. steps]. */
double rcvi_window_loss(rcvi_window *window, const uint8_t *text, int64_t stride);
/* Forward and backward: the mean of nats, and its gradient over all parameters (overwritten). */
rcv_status rcvi_window_gradient(rcvi_window *window, const uint8_t *text, int64_t stride, uint64_t seed,
                                float *gradient, double *loss);
/* The final states become the initial ones. */
void rcvi_window_carry(rcvi_window *window);

/* ---- softmax cross-entropy ---- */

typedef struct {
    int64_t features;
    const float *weight, *bias; /* [256, features], [256] */
    float *dweight, *dbias;     /* added to */
} rcvi_decoder;

void rcvi_decoder_logits(const rcvi_decoder *decoder, const float *y, int64_t rows, float *logits);
/* Sum over rows of -log p(target). y: [rows, features]; logits: scratch, [RCVI_LOSS_ROWS, 256]. With dy not NULL also
 * its gradient times `scale`: dy is overwritten, dweight and dbias are added to. */
double rcvi_decoder_loss(const rcvi_decoder *decoder, const float *y, const uint8_t *targets, int64_t rows,
                         double scale, float *logits, float *dy);
rcvi_decoder rcvi_lm_decoder(const rcv_lm *lm, float *gradient); /* gradient: [elements], or NULL for the loss alone */

/* ---- Adam ---- */

double rcvi_norm(const float *values, int64_t count);
/* Update number `step` (from 1) with gradient * scale. */
void rcvi_adam(int64_t step, double learning_rate, double scale, int64_t count, const float *gradient, float *first,
               float *second, float *parameters);

uint64_t rcvi_text_hash(const uint8_t *text, size_t bytes);

#endif
