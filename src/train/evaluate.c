/* The loss of a text that is read once, from left to right, as one sequence. */
#include "train/lm.h"

enum { WINDOW = 256 };

/* Predicts text[1 .. predictions], window by window with carried states. */
static rcv_status read_windows(const rcv_lm *lm, rcvi_window *window, const uint8_t *text, int64_t predictions,
                               double *sum) {
    for (int64_t at = 0; at < predictions; at += window->steps) {
        if (predictions - at < window->steps) {
            rcvi_window tail;
            rcv_status status = rcvi_window_new(lm, predictions - at, 1, false, &tail);
            if (status != RCV_OK) {
                return status;
            }
            rcvi_states_copy(lm->net, 1, tail.initial, window->initial);
            status = read_windows(lm, &tail, text + at, predictions - at, sum);
            rcvi_window_free(&tail);
            return status;
        }
        const rcv_status status = rcvi_window_forward(window, text + at, 0, 0);
        if (status != RCV_OK) {
            return status;
        }
        *sum += rcvi_window_loss(window, text + at, 0);
        rcvi_window_carry(window);
    }
    return RCV_OK;
}

rcv_status rcv_lm_evaluate(const rcv_lm *lm, const void *text, size_t bytes, double *loss, int64_t *predictions) {
    if (lm == NULL || text == NULL || loss == NULL) {
        return rcvi_fail(RCV_INVALID, "rcv_lm_evaluate needs a model, a text and a place for the loss");
    }
    if (bytes < 2 || bytes > INT64_MAX) {
        return rcvi_fail(RCV_INVALID, "the text has %zu bytes but at least 2 are needed to predict one from another",
                         bytes);
    }
    const int64_t count = (int64_t)bytes - 1;
    rcvi_window window;
    rcv_status status = rcvi_window_new(lm, count < WINDOW ? count : WINDOW, 1, false, &window);
    if (status != RCV_OK) {
        return status;
    }
    double sum = 0;
    status = read_windows(lm, &window, text, count, &sum);
    rcvi_window_free(&window);
    if (status == RCV_OK) {
        *loss = sum / (double)count;
        if (predictions != NULL) {
            *predictions = count;
        }
    }
    return status;
}
