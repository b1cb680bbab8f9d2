/* Predictions at every time step, of sequences that arrive in parts: the states are carried from part to part. */
#include "predict.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STEPS = 64 }; /* of a call */

void series_close(series *series) {
    rcv_stream_free(series->stream);
    series->stream = NULL;
}

static rcv_status open_stream(const predictor *p, series *series) {
    const rcv_stream_options options =
        RCV_INIT(rcv_stream_options, .most = MOST_STEPS, .threads = p->arguments->threads, .effort = RCV_ESTIMATE);
    return rcv_stream_new_learner(p->learner, &options, &series->stream);
}

/* Sequences without a name are one. */
static rcv_status begin_sequence(const predictor *p, series *series, const rcv_data *data, int64_t index) {
    char name[sizeof series->name] = "0";
    rcv_status status = p->sequence != NULL ? rcv_data_example_name(data, index, name, sizeof name) : RCV_OK;
    if (status != RCV_OK || (series->is_begun && strcmp(name, series->name) == 0)) {
        return status;
    }
    memcpy(series->name, name, sizeof name);
    series->step = 0;
    series->is_begun = true;
    return rcv_stream_reset(series->stream, NULL);
}

/* x: [steps, features] */
static rcv_status predict_steps(predictor *p, series *series, const float *x, int64_t steps) {
    const size_t bytes = (size_t)p->outputs * rcv_dtype_bytes(rcv_learner_dtype(p->learner));
    char *out = need((size_t)MOST_STEPS, bytes);
    rcv_status status = RCV_OK;
    for (int64_t at = 0, count; at < steps && status == RCV_OK; at += count) {
        count = steps - at < MOST_STEPS ? steps - at : MOST_STEPS;
        status = rcv_stream_step(series->stream, x + at * rcv_learner_features(p->learner), count, out);
        for (int64_t t = 0; t < count && status == RCV_OK; t++) {
            rows_write(p, series->name, series->step++, out + (size_t)t * bytes);
        }
        if (!predictor_go_on(p)) {
            status = RCV_STOPPED;
        }
    }
    free(out);
    return status;
}

rcv_status predict_series(predictor *p, series *series, const rcv_data *data) {
    const int64_t sequences = rcv_data_sequences(data), features = rcv_learner_features(p->learner);
    rcv_status status = series->stream == NULL ? open_stream(p, series) : RCV_OK;
    for (int64_t i = 0; i < sequences && status == RCV_OK; i++) {
        int64_t length = 0;
        status = rcv_data_read(data, i, 1, &length, NULL, NULL, 0);
        float *x = need((size_t)(length * features), sizeof *x);
        if (status == RCV_OK) {
            status = rcv_data_read(data, i, 1, &length, x, NULL, length * features);
        }
        if (status == RCV_OK) {
            status = begin_sequence(p, series, data, i);
        }
        if (status == RCV_OK) {
            status = predict_steps(p, series, x, length);
        }
        free(x);
    }
    return status;
}
