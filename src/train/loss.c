/* Softmax cross-entropy of the next byte. Rows pass through in chunks, so that the probabilities of all steps never
 * exist at once; a chunk's logits turn in place into its gradient. */
#include "train/lm.h"

#include "device/cpu/gemm.h"

#include <math.h>

void rcvi_decoder_logits(const rcvi_decoder *decoder, const float *y, int64_t rows, float *logits) {
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t s = 0; s < RCVI_BYTES; s++) {
            logits[r * RCVI_BYTES + s] = decoder->bias[s];
        }
    }
    rcvi_gemm_f32(false, true, rows, RCVI_BYTES, decoder->features, y, decoder->features, decoder->weight,
                  decoder->features, true, logits, RCVI_BYTES);
}

/* -log softmax(row)[target]; the row becomes its gradient times `scale`. */
static double row_loss(float *row, uint8_t target, double scale) {
    float largest = row[0];
    for (int s = 1; s < RCVI_BYTES; s++) {
        largest = row[s] > largest ? row[s] : largest;
    }
    const double at_target = (double)row[target] - (double)largest;
    double sum = 0;
    for (int s = 0; s < RCVI_BYTES; s++) {
        row[s] = expf(row[s] - largest);
        sum += (double)row[s];
    }
    const float factor = (float)(scale / sum);
    for (int s = 0; s < RCVI_BYTES; s++) {
        row[s] *= factor;
    }
    row[target] -= (float)scale;
    return log(sum) - at_target;
}

static void chunk_gradient(const rcvi_decoder *decoder, const float *y, int64_t rows, const float *dlogits, float *dy) {
    const int64_t features = decoder->features;
    rcvi_gemm_f32(false, false, rows, features, RCVI_BYTES, dlogits, RCVI_BYTES, decoder->weight, features, false, dy,
                  features);
    rcvi_gemm_f32(true, false, RCVI_BYTES, features, rows, dlogits, RCVI_BYTES, y, features, true, decoder->dweight,
                  features);
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t s = 0; s < RCVI_BYTES; s++) {
            decoder->dbias[s] += dlogits[r * RCVI_BYTES + s];
        }
    }
}

double rcvi_decoder_loss(const rcvi_decoder *decoder, const float *y, const uint8_t *targets, int64_t rows,
                         double scale, float *logits, float *dy) {
    double loss = 0;
    for (int64_t from = 0; from < rows; from += RCVI_LOSS_ROWS) {
        const int64_t chunk = rows - from < RCVI_LOSS_ROWS ? rows - from : RCVI_LOSS_ROWS;
        const float *part = y + from * decoder->features;
        rcvi_decoder_logits(decoder, part, chunk, logits);
        for (int64_t r = 0; r < chunk; r++) {
            loss += row_loss(logits + r * RCVI_BYTES, targets[from + r], scale);
        }
        if (dy != NULL) {
            chunk_gradient(decoder, part, chunk, logits, dy + from * decoder->features);
        }
    }
    return loss;
}

rcvi_decoder rcvi_lm_decoder(const rcv_lm *lm, float *gradient) {
    rcvi_decoder decoder = {
        .features = lm->output, .weight = lm->parameters + lm->at_weight, .bias = lm->parameters + lm->at_bias};
    if (gradient != NULL) {
        decoder.dweight = gradient + lm->at_weight;
        decoder.dbias = gradient + lm->at_bias;
    }
    return decoder;
}
