/* Text from a model, byte by byte: a plan of one step whose state is carried. */
#include "train/lm.h"

#include "base/random.h"

#include <math.h>

static int likeliest(const float *logits) {
    int best = 0;
    for (int s = 1; s < RCVI_BYTES; s++) {
        best = logits[s] > logits[best] ? s : best;
    }
    return best;
}

/* A byte drawn with probability proportional to exp(logit / temperature); -1 where the logits are not numbers. */
static int draw(const float *logits, double temperature, rcvi_twister *twister) {
    const int best = likeliest(logits);
    if (temperature == 0) {
        return isfinite(logits[best]) ? best : -1;
    }
    double weight[RCVI_BYTES], sum = 0;
    for (int s = 0; s < RCVI_BYTES; s++) {
        weight[s] = exp(((double)logits[s] - (double)logits[best]) / temperature);
        sum += weight[s];
    }
    if (!isfinite(sum)) {
        return -1;
    }
    double left = rcvi_uniform_double(twister, 0, 1) * sum;
    for (int s = 0; s < RCVI_BYTES; s++) {
        left -= weight[s];
        if (left < 0) {
            return s;
        }
    }
    return best;
}

static rcv_status read_byte(rcvi_window *window, uint8_t byte) {
    const rcv_status status = rcvi_window_forward(window, &byte, 0, 0);
    if (status == RCV_OK) {
        rcvi_window_carry(window);
    }
    return status;
}

static rcv_status read_prompt(rcvi_window *window, const uint8_t *prompt, size_t bytes) {
    if (bytes == 0) {
        return read_byte(window, '\n'); /* a text begins as a line does */
    }
    for (size_t i = 0; i < bytes; i++) {
        const rcv_status status = read_byte(window, prompt[i]);
        if (status != RCV_OK) {
            return status;
        }
    }
    return RCV_OK;
}

static rcv_status emit_bytes(rcvi_window *window, size_t count, double temperature, uint64_t seed,
                             bool (*emit)(void *user, uint8_t byte), void *user) {
    const rcvi_decoder decoder = rcvi_lm_decoder(window->lm, NULL);
    rcvi_twister twister;
    rcvi_twister_seed(&twister, seed);
    for (size_t i = 0; i < count; i++) {
        rcvi_decoder_logits(&decoder, window->y, 1, window->logits);
        const int byte = draw(window->logits, temperature, &twister);
        if (byte < 0) {
            return rcvi_fail(RCV_INVALID,
                             "the model gives no probabilities: its parameters are not all finite numbers");
        }
        if (!emit(user, (uint8_t)byte)) {
            return rcvi_fail(RCV_STOPPED, "generation was stopped after %zu bytes", i);
        }
        const rcv_status status = i + 1 < count ? read_byte(window, (uint8_t)byte) : RCV_OK;
        if (status != RCV_OK) {
            return status;
        }
    }
    return RCV_OK;
}

rcv_status rcv_lm_generate(const rcv_lm *lm, const void *prompt, size_t prompt_bytes, size_t count, double temperature,
                           uint64_t seed, bool (*emit)(void *user, uint8_t byte), void *user) {
    if (lm == NULL || emit == NULL || (prompt == NULL && prompt_bytes > 0)) {
        return rcvi_fail(RCV_INVALID, "rcv_lm_generate needs a model, a prompt and a function that takes the bytes");
    }
    if (!(temperature >= 0) || !isfinite(temperature)) {
        return rcvi_fail(RCV_INVALID, "the temperature is %g but must be positive, or 0 for the likeliest byte",
                         temperature);
    }
    rcvi_window window;
    rcv_status status = rcvi_window_new(lm, 1, 1, false, &window);
    if (status != RCV_OK) {
        return status;
    }
    status = read_prompt(&window, prompt, prompt_bytes);
    if (status == RCV_OK) {
        status = emit_bytes(&window, count, temperature, seed, emit, user);
    }
    rcvi_window_free(&window);
    return status;
}
