/* recurve predict: what its parts share.
 *
 *   standard input -> blocks of whole lines (standard_input.c) -> a temporary file -> rcv_data
 *   rcv_data -> sequences.c (classes, values), series.c (step by step), texts.c (log-probabilities) -> rows (results.c) */
#ifndef TOOL_PREDICT_H
#define TOOL_PREDICT_H

#include "results.h"
#include "tool.h"

#include <stdio.h>

typedef struct {
    const char *model, *data, *output, *device, *cache;
    int64_t batch, threads;
    rcv_dtype dtype;
    int format;      /* a results_format, plus 1; 0: as the name of the output says */
    int data_format; /* a rcv_file_format */
    bool probabilities, last, tokens, keep_going, overwrite;
} predict_arguments;

typedef struct scorer scorer;

typedef struct {
    const predict_arguments *arguments;
    rcv_context *context;
    rcv_learner *learner;
    results results;
    bool is_text;             /* log-probabilities of tokens; otherwise classes or values */
    bool is_steps;            /* predicted at every time step */
    bool is_classes;          /* otherwise values */
    const char *sequence;     /* the column that names sequences; NULL: they are numbered */
    int64_t horizon;          /* of a forecast; else 0 */
    int64_t outputs;          /* classes, values or tokens */
    char **names;             /* [outputs] of classes or values; NULL for texts */
    char **probability_names; /* [outputs] of a table's columns; NULL where there are no classes */
    int64_t first;            /* number of the first sequence of the data, where standard input is cut into several */
    int64_t done, total;      /* sequences, or tokens of a text; total 0: not known */
    double begun, shown;      /* when the work began, and when progress was last shown */
    bool has_header;          /* it was written */
    scorer *scorer;           /* of texts */
} predictor;

/* Columns of an array. */
int64_t predictor_columns(const predictor *p);
/* Shows progress on a terminal. False when the work is to stop: after a signal, or when nobody reads the output any more. */
bool predictor_go_on(predictor *p);
void predictor_clear_progress(const predictor *p);
/* For rcv_prediction: true while no signal asks to stop. */
bool predictor_is_not_stopped(void *user);

/* ---- rows ---- */

/* The header of a table, if it was not yet written. */
void rows_write_header(predictor *p);
/* The prediction for a sequence, or for a time step of it. outputs: [outputs] of the learner's type. */
void rows_write(predictor *p, const char *sequence, int64_t step, const void *outputs);
/* In place of the prediction for sequence or line `number`, which failed. */
void rows_write_error(predictor *p, int64_t number, const char *message);
/* A line of a text, or a whole text: its tokens with a log-probability, and the sum of these. `line` -1: a whole text. */
void rows_write_text(predictor *p, int64_t line, int64_t tokens, double log_probability);
/* A token of a text; `log_probability` NULL: it has none, as the first of a text. */
void rows_write_token(predictor *p, int64_t line, int64_t position, int64_t token, const float *log_probability);
/* Rows that the data gives; -1: not known. */
int64_t rows_of(const predictor *p, const rcv_data *data);

/* ---- data ---- */

/* Predicts for all of the data. The caller has opened it with rcv_learner_open_data. */
/* The numbers 0 .. count - 1 by decreasing length, for free(). */
int64_t *order_by_length(const int64_t *lengths, int64_t count);
rcv_status predict_sequences(predictor *p, const rcv_data *data);
rcv_status predict_texts(predictor *p, const rcv_data *data);
/* The whole text has been read: its sum is written. */
void predict_texts_end(predictor *p);
void scorer_free(scorer *scorer);

/* Time steps that arrive in parts: a sequence may go on in the next data. */
typedef struct {
    rcv_stream *stream;
    char name[256]; /* of the current sequence */
    int64_t step;   /* its steps so far */
    bool is_begun;
} series;

rcv_status predict_series(predictor *p, series *series, const rcv_data *data);
void series_close(series *series);

/* Predicts for standard input, line by line. The exit status. */
int predict_standard_input(predictor *p);
/* Predicts for a file; `name` is what messages call it. The exit status. */
int predict_file(predictor *p, const char *path, const char *name);
/* The library's message with another name for a file, and with `offset` added to the number of its line where that is at least `first`; for free().
 * The number is stored; 0: there is none. */
char *message_about(const char *path, const char *name, int64_t first, int64_t offset, int64_t *line);

#endif
