/* Training by truncated back-propagation. The text is cut into `batch` columns of equal length, each read from its
 * start in windows of `length` bytes; states are carried from window to window. Where a column has no whole window left
 * a new epoch begins, at the columns' start and with zero states. A model remembers its place in a text: the next call
 * with the same text and batch goes on from there, as if there had been one call. */
#include "train/lm.h"

#include <math.h>
#include <string.h>

enum { RECENT = 32 }; /* updates over which the reported loss is a mean */

typedef struct {
    rcv_lm *lm;
    const rcv_lm_training *options;
    const uint8_t *text;
    int64_t column; /* bytes to predict in a column */
    int64_t position;
    rcvi_window window;
    float *gradient; /* [elements] */
    double started;
    double recent[RECENT];
    rcv_lm_progress progress;
} trainer;

uint64_t rcvi_text_hash(const uint8_t *text, size_t bytes) {
    uint64_t hash = 0xCBF29CE484222325u ^ bytes;
    for (size_t i = 0; i < bytes;) {
        uint64_t word = 0;
        const size_t part = bytes - i < sizeof word ? bytes - i : sizeof word;
        for (size_t j = 0; j < part; j++) {
            word |= (uint64_t)text[i + j] << (8 * j);
        }
        hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 29;
        i += part;
    }
    return hash;
}

static rcv_status check(size_t bytes, const rcv_lm_training *options) {
    if (options->batch < 1 || options->length < 1) {
        return rcvi_fail(RCV_INVALID, "batch is %lld and length is %lld, but both must be at least 1",
                         (long long)options->batch, (long long)options->length);
    }
    if (options->steps < 0 || !(options->seconds >= 0) || (options->steps == 0 && options->seconds == 0)) {
        return rcvi_fail(RCV_INVALID,
                         "training needs a limit: steps or seconds must be positive, and neither negative");
    }
    if (!(options->learning_rate > 0) || !isfinite(options->learning_rate)) {
        return rcvi_fail(RCV_INVALID, "the learning rate is %g but must be positive and finite",
                         options->learning_rate);
    }
    if (!(options->clip >= 0)) {
        return rcvi_fail(RCV_INVALID, "clip is %g but must be positive, or 0 for no clipping", options->clip);
    }
    int64_t needed;
    if (!rcvi_multiply(options->batch, options->length, &needed) || !rcvi_add(needed, 1, &needed)) {
        return rcvi_fail(RCV_INVALID, "a batch of %lld times a length of %lld is too large", (long long)options->batch,
                         (long long)options->length);
    }
    if (bytes > INT64_MAX || (int64_t)bytes < needed) {
        return rcvi_fail(
            RCV_INVALID,
            "the text has %zu bytes but a batch of %lld with a length of %lld needs at least %lld: give more "
            "text, or a smaller batch or length",
            bytes, (long long)options->batch, (long long)options->length, (long long)needed);
    }
    return RCV_OK;
}

/* Where this text and batch were left, or the start with zero states. */
static rcv_status find_place(trainer *trainer, size_t bytes) {
    rcv_lm *lm = trainer->lm;
    rcvi_place *place = &lm->place;
    const int64_t batch = trainer->options->batch;
    const uint64_t hash = rcvi_text_hash(trainer->text, bytes);
    if (place->batch == batch && place->bytes == bytes && place->hash == hash) {
        trainer->position = place->position;
        rcvi_states_copy(lm->net, batch, trainer->window.initial, place->states);
        return RCV_OK;
    }
    float **states;
    const rcv_status status = rcvi_states_new(lm->context, lm->net, batch, &states);
    if (status != RCV_OK) {
        return status;
    }
    rcvi_states_free(lm->context, lm->net, place->states);
    *place = (rcvi_place){.batch = batch, .bytes = bytes, .hash = hash, .states = states};
    return RCV_OK;
}

static rcv_status begin(trainer *trainer, size_t bytes) {
    rcv_lm *lm = trainer->lm;
    rcv_status status = rcvi_window_new(lm, trainer->options->length, trainer->options->batch, true, &trainer->window);
    if (status == RCV_OK) {
        status = rcvi_lm_moments(lm);
    }
    if (status == RCV_OK) {
        trainer->gradient = rcvi_new(lm->context, (size_t)lm->elements, sizeof *trainer->gradient);
        status = trainer->gradient != NULL ? RCV_OK : RCV_NO_MEMORY;
    }
    return status == RCV_OK ? find_place(trainer, bytes) : status;
}

static void report(trainer *trainer, double loss, double norm) {
    rcv_lm_progress *progress = &trainer->progress;
    trainer->recent[progress->step % RECENT] = loss;
    progress->step++;
    const int64_t count = progress->step < RECENT ? progress->step : RECENT;
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        sum += trainer->recent[i];
    }
    progress->steps = trainer->options->steps;
    progress->loss = sum / (double)count;
    progress->gradient_norm = norm;
    progress->seconds = rcvi_now() - trainer->started;
    const double bytes = (double)progress->step * (double)trainer->options->batch * (double)trainer->options->length;
    progress->bytes_per_second = progress->seconds > 0 ? bytes / progress->seconds : 0;
}

/* One window. The model changes only after everything that can fail has been done. */
static rcv_status update(trainer *trainer) {
    rcv_lm *lm = trainer->lm;
    const rcv_lm_training *options = trainer->options;
    if (options->length > trainer->column - trainer->position) {
        trainer->position = 0;
        rcvi_states_copy(lm->net, options->batch, trainer->window.initial, NULL);
    }
    const uint64_t seed = options->seed + 0xD1B54A32D192ED03u * (uint64_t)(lm->step + 1); /* masks of its own */
    double loss;
    const rcv_status status = rcvi_window_gradient(&trainer->window, trainer->text + trainer->position, trainer->column,
                                                   seed, trainer->gradient, &loss);
    if (status != RCV_OK) {
        return status;
    }
    const double norm = rcvi_norm(trainer->gradient, lm->elements);
    if (!isfinite(loss) || !isfinite(norm)) {
        return rcvi_fail(
            RCV_INVALID,
            "the %s is no longer finite after %lld updates: use a smaller learning rate or clip the gradient",
            isfinite(loss) ? "gradient" : "loss", (long long)lm->step);
    }
    const double scale = options->clip > 0 && norm > options->clip ? options->clip / norm : 1;
    lm->step++;
    rcvi_adam(lm->step, options->learning_rate, scale, lm->elements, trainer->gradient, lm->first, lm->second,
              lm->parameters);
    rcvi_window_carry(&trainer->window);
    trainer->position += options->length;
    report(trainer, loss, norm);
    return RCV_OK;
}

static rcv_status train(trainer *trainer) {
    const rcv_lm_training *options = trainer->options;
    trainer->started = rcvi_now();
    while ((options->steps == 0 || trainer->progress.step < options->steps) &&
           (options->seconds == 0 || rcvi_now() - trainer->started < options->seconds)) {
        const rcv_status status = update(trainer);
        if (status != RCV_OK) {
            return status;
        }
        if (options->progress != NULL && !options->progress(options->user, &trainer->progress)) {
            return rcvi_fail(RCV_STOPPED, "training was stopped after %lld updates", (long long)trainer->lm->step);
        }
    }
    return RCV_OK;
}

rcv_status rcv_lm_train(rcv_lm *lm, const void *text, size_t bytes, const rcv_lm_training *options) {
    if (lm == NULL || options == NULL || text == NULL) {
        return rcvi_fail(RCV_INVALID, "rcv_lm_train needs a model, a text and options");
    }
    rcv_status status = check(bytes, options);
    if (status != RCV_OK) {
        return status;
    }
    trainer trainer = {.lm = lm, .options = options, .text = text};
    trainer.column = ((int64_t)bytes - 1) / options->batch;
    status = begin(&trainer, bytes);
    if (status == RCV_OK) {
        status = train(&trainer);
        lm->place.position = trainer.position;
        rcvi_states_copy(lm->net, options->batch, lm->place.states, trainer.window.initial);
    }
    rcvi_free(lm->context, trainer.gradient);
    rcvi_window_free(&trainer.window);
    return status;
}
