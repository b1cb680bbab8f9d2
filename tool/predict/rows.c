/* What a row of predictions consists of. */
#include "predict.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double output_at(const predictor *p, const void *outputs, int64_t at) {
    return rcv_learner_dtype(p->learner) == RCV_FLOAT64 ? ((const double *)outputs)[at]
                                                        : (double)((const float *)outputs)[at];
}

int64_t predictor_columns(const predictor *p) { return p->is_text ? 1 : p->outputs; }

int64_t rows_of(const predictor *p, const rcv_data *data) {
    if (p->is_text) {
        return rcv_data_get_kind(data) == RCV_DATA_LINES && !p->arguments->tokens ? rcv_data_sequences(data)
               : p->arguments->tokens                                             ? rcv_data_tokens(data)
                                                                                  : 1;
    }
    return p->is_steps && !p->arguments->last ? rcv_data_tokens(data) : rcv_data_sequences(data);
}

/* ---- classes and values ---- */

/* Of the row of a header, and of one without a prediction, `outputs` is NULL. */
static void write_outputs(predictor *p, char *const *names, const void *outputs) {
    for (int64_t i = 0; i < p->outputs; i++) {
        const float value = outputs != NULL ? (float)output_at(p, outputs, i) : 0;
        results_number(&p->results, names[i], outputs != NULL ? &value : NULL);
    }
}

static void write_class(predictor *p, const void *outputs) {
    results *r = &p->results;
    int64_t best = 0;
    for (int64_t i = 1; i < p->outputs && outputs != NULL; i++) {
        best = output_at(p, outputs, i) > output_at(p, outputs, best) ? i : best;
    }
    const float probability = outputs != NULL ? (float)output_at(p, outputs, best) : 0;
    if (outputs != NULL) {
        results_text(r, "class", p->names[best], strlen(p->names[best]));
    } else {
        results_nothing(r, "class");
    }
    results_number_beside(r, "probability", outputs != NULL ? &probability : NULL);
    if (p->arguments->probabilities || r->format == RESULTS_NPY) {
        results_open(r, "probabilities");
        write_outputs(p, r->format == RESULTS_CSV ? p->probability_names : p->names, outputs);
        results_close(r);
    }
}

/* The fields that say what was predicted. */
static void write_prediction(predictor *p, const void *outputs) {
    if (p->is_classes) {
        write_class(p, outputs);
    } else {
        results_open(&p->results, "values");
        write_outputs(p, p->names, outputs);
        results_close(&p->results);
    }
}

void rows_write(predictor *p, const char *sequence, int64_t step, const void *outputs) {
    results *r = &p->results;
    results_begin_row(r, false);
    results_name(r, "sequence", sequence);
    if (p->is_steps) {
        results_integer(r, "step", step + p->horizon);
    }
    write_prediction(p, outputs);
    results_end_row(r);
}

/* ---- texts ---- */

static bool has_lines(const predictor *p) { return rcv_learner_kind(p->learner) == RCV_DATA_LINES; }

/* The fields of a text: its tokens, and the sum of their log-probabilities; `sum` NULL: there is no prediction. */
static void write_sum(predictor *p, int64_t tokens, const double *sum) {
    results *r = &p->results;
    const bool is_bytes = rcv_vocabulary_level(rcv_learner_vocabulary(p->learner)) == RCV_LEVEL_BYTE;
    const double mean = sum != NULL && tokens > 0 ? *sum / (double)tokens : 0;
    const float numbers[] = {sum != NULL ? (float)*sum : 0, (float)mean,
                             (float)(is_bytes ? -mean / log(2) : perplexity_of(-mean))};
    const bool has_mean = sum != NULL && tokens > 0;
    if (sum != NULL) {
        results_integer(r, "tokens", tokens);
    } else {
        results_nothing(r, "tokens");
    }
    results_number(r, "log_probability", sum != NULL ? &numbers[0] : NULL);
    results_number_beside(r, "mean_log_probability", has_mean ? &numbers[1] : NULL);
    results_number_beside(r, is_bytes ? "bits_per_byte" : "perplexity", has_mean ? &numbers[2] : NULL);
}

void rows_write_text(predictor *p, int64_t line, int64_t tokens, double sum) {
    results_begin_row(&p->results, false);
    if (has_lines(p)) {
        results_integer(&p->results, "line", line);
    }
    write_sum(p, tokens, &sum);
    results_end_row(&p->results);
}

void rows_write_token(predictor *p, int64_t line, int64_t position, int64_t token, const float *log_probability) {
    results *r = &p->results;
    size_t length = 0;
    const char *bytes = rcv_vocabulary_token(rcv_learner_vocabulary(p->learner), token, &length);
    char *text = safe_text(bytes != NULL ? bytes : "", length, NULL);
    results_begin_row(r, false);
    if (has_lines(p)) {
        results_integer(r, "line", line);
    }
    results_integer(r, "position", position);
    results_text(r, "token", text, strlen(text));
    results_number(r, "log_probability", log_probability);
    results_end_row(r);
    free(text);
}

/* ---- headers and errors ---- */

/* A row without a prediction. */
static void write_empty_row(predictor *p, bool is_header, int64_t number, const char *message) {
    results *r = &p->results;
    results_begin_row(r, is_header);
    if (!p->is_text || has_lines(p)) {
        results_integer(r, p->is_text ? "line" : "sequence", number);
    }
    if (message != NULL && r->format == RESULTS_JSON) {
        results_text(r, "error", message, strlen(message));
        results_end_row(r);
        return;
    }
    if (!p->is_text) {
        if (p->is_steps) {
            results_nothing(r, "step");
        }
        write_prediction(p, NULL);
    } else if (p->arguments->tokens) {
        results_nothing(r, "position");
        results_nothing(r, "token");
        results_number(r, "log_probability", NULL);
    } else {
        write_sum(p, 0, NULL);
    }
    results_end_row(r);
}

void rows_write_header(predictor *p) {
    if (p->results.format == RESULTS_CSV && !p->has_header) {
        write_empty_row(p, true, 0, NULL);
    }
    p->has_header = true;
}

void rows_write_error(predictor *p, int64_t number, const char *message) {
    rows_write_header(p);
    write_empty_row(p, false, number, message);
}
