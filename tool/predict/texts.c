/* Log-probabilities of the tokens of texts. A text that is one sequence is read in windows, with the states carried from window to window. Lines are read side by
 * side, each from the initial state. */
#include "predict.h"

#include <stdlib.h>
#include <string.h>

enum {
    MOST_ROWS = 64,   /* lines side by side */
    MOST_STEPS = 128, /* of a window */
    MOST_LINES = 4096 /* of a block */
};
static const int64_t MOST_LOGITS = 1 << 22; /* at once, unless one step has more */

struct scorer {
    rcv_stream *stream;
    int64_t rows, most; /* of the stream: lines side by side, steps of a window */
    int64_t *frames;    /* [most, rows] */
    char *logits;       /* [most, rows, outputs], of the learner's type */
    int64_t before;     /* of a text: the token before; -1: there is none */
    int64_t position;   /* of a text: tokens so far */
    double sum;         /* of a text: of all log-probabilities so far */
};

void scorer_free(scorer *s) {
    if (s != NULL) {
        rcv_stream_free(s->stream);
        free(s->frames);
        free(s->logits);
        free(s);
    }
}

/* The scorer for so many sequences at once; the present one if it has as many. */
static rcv_status open_scorer(predictor *p, int64_t rows) {
    if (p->scorer != NULL && p->scorer->rows == rows) {
        return rcv_stream_reset(p->scorer->stream, NULL);
    }
    scorer_free(p->scorer);
    scorer *s = p->scorer = need(1, sizeof *s);
    const int64_t fitting = MOST_LOGITS / (rows * p->outputs);
    s->rows = rows;
    s->most = fitting < 1 ? 1 : fitting < MOST_STEPS ? fitting : MOST_STEPS;
    s->before = -1;
    s->frames = need((size_t)(s->most * rows), sizeof *s->frames);
    s->logits = need((size_t)(s->most * rows * p->outputs), rcv_dtype_bytes(rcv_learner_dtype(p->learner)));
    const rcv_stream_options options =
        RCV_INIT(rcv_stream_options, .batch = rows, .most = s->most, .threads = p->arguments->threads,
                 .effort = RCV_ESTIMATE, .output = RCV_OUTPUT_LOGITS);
    return rcv_stream_new_learner(p->learner, &options, &s->stream);
}

/* ---- the logarithm of a softmax ---- */

enum { LANES = 16 };

/* exp(x) for -87 <= x <= 0, with a relative error below 1e-7: 2^n times the series of exp on +-log(2)/2. */
static inline float exp_of(float x) {
    const float shifted = x * 1.44269504f + 12582912.0f, n = shifted - 12582912.0f; /* rounds to a whole number */
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    const float series =
        1 + r * (1 + r * (0.5f + r * (1.6666667e-1f + r * (4.1666669e-2f + r * (8.3333340e-3f + r * 1.3888889e-3f)))));
    int32_t bits;
    memcpy(&bits, &series, sizeof bits);
    bits += (int32_t)n * (1 << 23);
    float result;
    memcpy(&result, &bits, sizeof result);
    return result;
}

static double log_softmax_float(const float *logits, int64_t count, int64_t at) {
    float largest = logits[0], sums[LANES] = {0};
    for (int64_t i = 1; i < count; i++) {
        largest = logits[i] > largest ? logits[i] : largest;
    }
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        for (int lane = 0; lane < LANES; lane++) {
            const float x = logits[i + lane] - largest;
            sums[lane] += exp_of(x > -87 ? x : -87);
        }
    }
    double sum = 0;
    for (int lane = 0; lane < LANES; lane++) {
        sum += (double)sums[lane];
    }
    for (; i < count; i++) {
        sum += exp((double)(logits[i] - largest));
    }
    return (double)(logits[at] - largest) - log(sum);
}

static double log_softmax_double(const double *logits, int64_t count, int64_t at) {
    double largest = logits[0], sum = 0;
    for (int64_t i = 1; i < count; i++) {
        largest = logits[i] > largest ? logits[i] : largest;
    }
    for (int64_t i = 0; i < count; i++) {
        sum += exp(logits[i] - largest);
    }
    return logits[at] - largest - log(sum);
}

/* The log-probability of a token after row `row` of the window. */
static double log_probability(const predictor *p, int64_t row, int64_t token) {
    const void *logits = p->scorer->logits;
    return rcv_learner_dtype(p->learner) == RCV_FLOAT64
               ? log_softmax_double((const double *)logits + row * p->outputs, p->outputs, token)
               : log_softmax_float((const float *)logits + row * p->outputs, p->outputs, token);
}

/* ---- a text as one sequence ---- */

/* The next tokens of the text, at most `most`. */
static rcv_status score_window(predictor *p, const int64_t *tokens, int64_t count) {
    scorer *s = p->scorer;
    int64_t steps = 0;
    for (int64_t i = s->before < 0 ? 1 : 0; i < count; i++) {
        s->frames[steps++] = i > 0 ? tokens[i - 1] : s->before;
    }
    const rcv_status status = steps > 0 ? rcv_stream_step(s->stream, s->frames, steps, s->logits) : RCV_OK;
    for (int64_t i = 0; i < count && status == RCV_OK; i++) {
        const int64_t row = i - (count - steps);
        const double own = row >= 0 ? log_probability(p, row, tokens[i]) : 0;
        const float number = (float)own;
        s->sum += own;
        if (p->arguments->tokens) {
            rows_write_token(p, 0, s->position + i, tokens[i], row >= 0 ? &number : NULL);
        }
    }
    s->before = tokens[count - 1];
    s->position += count;
    return status;
}

static rcv_status score_text(predictor *p, const rcv_data *data) {
    rcv_status status = p->scorer == NULL ? open_scorer(p, 1) : RCV_OK;
    int64_t tokens[MOST_STEPS];
    const int64_t all = rcv_data_tokens(data);
    for (int64_t at = 0, count; at < all && status == RCV_OK; at += count) {
        count = all - at < p->scorer->most ? all - at : p->scorer->most;
        status = rcv_data_read_tokens(data, at, count, tokens);
        if (status == RCV_OK) {
            status = score_window(p, tokens, count);
        }
        p->done += count;
        if (!predictor_go_on(p)) {
            return RCV_STOPPED;
        }
    }
    return status;
}

void predict_texts_end(predictor *p) {
    const scorer *s = p->scorer;
    if (rcv_learner_kind(p->learner) == RCV_DATA_STREAM && !p->arguments->tokens) {
        rows_write_text(p, -1, s != NULL && s->position > 0 ? s->position - 1 : 0, s != NULL ? s->sum : 0);
    }
}

/* ---- lines ---- */

typedef struct {
    int64_t from, count, steps;
    int64_t *lengths, *tokens; /* [count], and [steps, count]: <eos> and the words of each line */
    float *scores;             /* [count, steps] */
} lines;

/* What comes after step `t` of a line: the next word, or <eos>, with which the line begins. */
static int64_t target_of(const lines *l, int64_t line, int64_t t) {
    return l->tokens[(t + 1 < l->lengths[line] ? t + 1 : 0) * l->count + line];
}

/* Up to `rows` lines, side by side. */
static rcv_status score_side_by_side(predictor *p, lines *l, const int64_t *order, int64_t count) {
    scorer *s = p->scorer;
    int64_t longest = 0;
    rcv_status status = rcv_stream_reset(s->stream, NULL);
    for (int64_t i = 0; i < count; i++) {
        longest = l->lengths[order[i]] > longest ? l->lengths[order[i]] : longest;
    }
    for (int64_t begin = 0, steps; begin < longest && status == RCV_OK; begin += steps) {
        steps = longest - begin < s->most ? longest - begin : s->most;
        memset(s->frames, 0, (size_t)(steps * s->rows) * sizeof *s->frames);
        for (int64_t i = 0; i < count; i++) {
            for (int64_t t = begin; t < begin + steps && t < l->lengths[order[i]]; t++) {
                s->frames[(t - begin) * s->rows + i] = l->tokens[t * l->count + order[i]];
            }
        }
        status = rcv_stream_step(s->stream, s->frames, steps, s->logits);
        for (int64_t i = 0; i < count && status == RCV_OK; i++) {
            for (int64_t t = begin; t < begin + steps && t < l->lengths[order[i]]; t++) {
                l->scores[order[i] * l->steps + t] =
                    (float)log_probability(p, (t - begin) * s->rows + i, target_of(l, order[i], t));
            }
        }
        if (!predictor_go_on(p)) {
            return RCV_STOPPED;
        }
    }
    return status;
}

static rcv_status read_lines(const rcv_data *data, lines *l) {
    const int64_t left = rcv_data_sequences(data) - l->from;
    l->count = left < MOST_LINES ? left : MOST_LINES;
    l->lengths = need((size_t)l->count, sizeof *l->lengths);
    rcv_status status = rcv_data_read(data, l->from, l->count, l->lengths, NULL, NULL, 0);
    int64_t fitting = 0;
    for (int64_t steps = 1; fitting < l->count && status == RCV_OK; fitting++) {
        steps = l->lengths[fitting] > steps ? l->lengths[fitting] : steps;
        if (fitting > 0 && steps * (fitting + 1) > MOST_LOGITS) {
            break;
        }
        l->steps = steps;
    }
    l->count = fitting;
    l->tokens = need((size_t)(l->steps * l->count), sizeof *l->tokens);
    l->scores = need((size_t)(l->steps * l->count), sizeof *l->scores);
    return status == RCV_OK ? rcv_data_read(data, l->from, l->count, l->lengths, NULL, l->tokens, l->steps * l->count)
                            : status;
}

static void write_lines(predictor *p, const lines *l) {
    for (int64_t i = 0; i < l->count; i++) {
        const int64_t line = p->first + l->from + i + 1;
        double sum = 0;
        for (int64_t t = 0; t < l->lengths[i]; t++) {
            const float *score = &l->scores[i * l->steps + t];
            sum += (double)*score;
            if (p->arguments->tokens) {
                rows_write_token(p, line, t, target_of(l, i, t), score);
            }
        }
        if (!p->arguments->tokens) {
            rows_write_text(p, line, l->lengths[i], sum);
        }
    }
}

static rcv_status score_lines(predictor *p, lines *l) {
    int64_t *order = order_by_length(l->lengths, l->count);
    rcv_status status = RCV_OK;
    for (int64_t at = 0; at < l->count && status == RCV_OK; at += p->scorer->rows) {
        const int64_t left = l->count - at;
        status = score_side_by_side(p, l, order + at, left < p->scorer->rows ? left : p->scorer->rows);
    }
    free(order);
    return status;
}

static rcv_status score_all_lines(predictor *p, const rcv_data *data) {
    const int64_t all = rcv_data_sequences(data), given = p->arguments->batch;
    int64_t rows = 1;
    while (rows < all && rows < (given > 0 ? given : MOST_ROWS)) {
        rows *= 2;
    }
    rcv_status status = open_scorer(p, rows);
    for (int64_t from = 0; from < all && status == RCV_OK;) {
        lines l = {.from = from};
        status = read_lines(data, &l);
        if (status == RCV_OK) {
            status = score_lines(p, &l);
        }
        if (status == RCV_OK) {
            write_lines(p, &l);
        }
        from += l.count;
        p->done += l.count;
        free(l.lengths);
        free(l.tokens);
        free(l.scores);
    }
    return status;
}

rcv_status predict_texts(predictor *p, const rcv_data *data) {
    return rcv_data_get_kind(data) == RCV_DATA_STREAM ? score_text(p, data) : score_all_lines(p, data);
}
