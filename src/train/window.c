/* The network over a window of a text: bytes in, outputs and carried states out, gradients back. */
#include "train/lm.h"

#include <string.h>

rcv_status rcvi_states_new(rcv_context *context, const rcv_net *net, int64_t batch, float ***states) {
    *states = NULL;
    const size_t count = rcv_net_state_count(net);
    float **made = rcvi_new(context, count, sizeof *made);
    if (made == NULL) {
        return RCV_NO_MEMORY;
    }
    for (size_t s = 0; s < count; s++) {
        int64_t elements;
        if (!rcvi_multiply(rcv_net_state(net, s)->total, batch, &elements)) {
            rcvi_states_free(context, net, made);
            return rcvi_fail(RCV_INVALID, "a batch of %lld is too large for this network's states", (long long)batch);
        }
        made[s] = rcvi_new(context, (size_t)elements, sizeof *made[s]);
        if (made[s] == NULL) {
            rcvi_states_free(context, net, made);
            return RCV_NO_MEMORY;
        }
    }
    *states = made;
    return RCV_OK;
}

void rcvi_states_free(rcv_context *context, const rcv_net *net, float **states) {
    for (size_t s = 0; states != NULL && s < rcv_net_state_count(net); s++) {
        rcvi_free(context, states[s]);
    }
    rcvi_free(context, states);
}

void rcvi_states_copy(const rcv_net *net, int64_t batch, float **to, float *const *from) {
    for (size_t s = 0; s < rcv_net_state_count(net); s++) {
        const size_t bytes = (size_t)(rcv_net_state(net, s)->total * batch) * sizeof(float);
        if (from != NULL) {
            memcpy(to[s], from[s], bytes);
        } else {
            memset(to[s], 0, bytes);
        }
    }
}

static rcv_status make_buffers(rcvi_window *window) {
    const rcv_lm *lm = window->lm;
    rcv_context *context = lm->context;
    int64_t rows, inputs, outputs;
    if (!rcvi_multiply(window->steps, window->batch, &rows) || !rcvi_multiply(rows, lm->embedding, &inputs) ||
        !rcvi_multiply(rows, lm->output, &outputs)) {
        return rcvi_fail(RCV_INVALID, "%lld sequences of %lld steps are more than memory can address; use fewer",
                         (long long)window->batch, (long long)window->steps);
    }
    rcv_status status = rcvi_states_new(context, lm->net, window->batch, &window->initial);
    if (status == RCV_OK) {
        status = rcvi_states_new(context, lm->net, window->batch, &window->final);
    }
    if (status != RCV_OK) {
        return status;
    }
    window->x = rcvi_new(context, (size_t)inputs, sizeof(float));
    window->y = rcvi_new(context, (size_t)outputs, sizeof(float));
    window->logits = rcvi_new(context, RCVI_LOSS_ROWS * RCVI_BYTES, sizeof(float));
    window->targets = rcvi_new(context, (size_t)rows, 1);
    if (window->x == NULL || window->y == NULL || window->logits == NULL || window->targets == NULL) {
        return RCV_NO_MEMORY;
    }
    if (window->training) {
        window->dx = rcvi_new(context, (size_t)inputs, sizeof(float));
        window->dy = rcvi_new(context, (size_t)outputs, sizeof(float));
        if (window->dx == NULL || window->dy == NULL) {
            return RCV_NO_MEMORY;
        }
    }
    return RCV_OK;
}

rcv_status rcvi_window_new(const rcv_lm *lm, int64_t steps, int64_t batch, bool training, rcvi_window *window) {
    *window = (rcvi_window){.lm = lm, .steps = steps, .batch = batch, .training = training};
    const rcv_plan_options options = {.steps = steps,
                                      .batch = batch,
                                      .dtype = RCV_FLOAT32,
                                      .training = training,
                                      .effort = RCV_ESTIMATE}; /* the same plan when a run is resumed */
    rcv_status status = rcv_plan_new(lm->net, &options, &window->plan);
    if (status == RCV_OK) {
        status = rcv_run_new(window->plan, &window->run);
    }
    if (status == RCV_OK) {
        status = make_buffers(window);
    }
    if (status != RCV_OK) {
        rcvi_window_free(window);
    }
    return status;
}

void rcvi_window_free(rcvi_window *window) {
    if (window->lm == NULL) {
        return;
    }
    rcv_context *context = window->lm->context;
    rcvi_free(context, window->x);
    rcvi_free(context, window->y);
    rcvi_free(context, window->dx);
    rcvi_free(context, window->dy);
    rcvi_free(context, window->logits);
    rcvi_free(context, window->targets);
    rcvi_states_free(context, window->lm->net, window->initial);
    rcvi_states_free(context, window->lm->net, window->final);
    rcv_run_free(window->run);
    rcv_plan_free(window->plan);
    *window = (rcvi_window){0};
}

rcv_status rcvi_window_forward(rcvi_window *window, const uint8_t *text, int64_t stride, uint64_t seed) {
    const rcv_lm *lm = window->lm;
    const size_t row = (size_t)lm->embedding * sizeof(float);
    for (int64_t t = 0; t < window->steps; t++) {
        for (int64_t b = 0; b < window->batch; b++) {
            const uint8_t byte = text[b * stride + t];
            memcpy(window->x + (t * window->batch + b) * lm->embedding, lm->parameters + byte * lm->embedding, row);
        }
    }
    const rcv_forward data = {.parameters = lm->parameters + lm->at_net,
                              .x = window->x,
                              .initial = (const void *const *)window->initial,
                              .y = window->y,
                              .final = (void *const *)window->final,
                              .seed = seed};
    return rcv_run_forward(window->run, &data);
}

static void read_targets(rcvi_window *window, const uint8_t *text, int64_t stride) {
    for (int64_t t = 0; t < window->steps; t++) {
        for (int64_t b = 0; b < window->batch; b++) {
            window->targets[t * window->batch + b] = text[b * stride + t + 1];
        }
    }
}

double rcvi_window_loss(rcvi_window *window, const uint8_t *text, int64_t stride) {
    const rcvi_decoder decoder = rcvi_lm_decoder(window->lm, NULL);
    read_targets(window, text, stride);
    return rcvi_decoder_loss(&decoder, window->y, window->targets, window->steps * window->batch, 1, window->logits,
                             NULL);
}

/* Each row of dx belongs to the byte that was read there. */
static void add_embedding_gradient(const rcvi_window *window, const uint8_t *text, int64_t stride, float *gradient) {
    const int64_t features = window->lm->embedding;
    for (int64_t t = 0; t < window->steps; t++) {
        for (int64_t b = 0; b < window->batch; b++) {
            const float *from = window->dx + (t * window->batch + b) * features;
            float *to = gradient + text[b * stride + t] * features;
            for (int64_t e = 0; e < features; e++) {
                to[e] += from[e];
            }
        }
    }
}

rcv_status rcvi_window_gradient(rcvi_window *window, const uint8_t *text, int64_t stride, uint64_t seed,
                                float *gradient, double *loss) {
    const rcv_lm *lm = window->lm;
    rcv_status status = rcvi_window_forward(window, text, stride, seed);
    if (status != RCV_OK) {
        return status;
    }
    memset(gradient, 0, (size_t)lm->elements * sizeof *gradient);
    const rcvi_decoder decoder = rcvi_lm_decoder(lm, gradient);
    const int64_t rows = window->steps * window->batch;
    read_targets(window, text, stride);
    *loss =
        rcvi_decoder_loss(&decoder, window->y, window->targets, rows, 1 / (double)rows, window->logits, window->dy) /
        (double)rows;
    const rcv_backward data = {.dy = window->dy, .dx = window->dx, .dparameters = gradient + lm->at_net};
    status = rcv_run_backward(window->run, &data);
    if (status == RCV_OK) {
        add_embedding_gradient(window, text, stride, gradient);
    }
    return status;
}

void rcvi_window_carry(rcvi_window *window) {
    float **states = window->initial;
    window->initial = window->final;
    window->final = states;
}
