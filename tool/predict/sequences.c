/* Classes or values of sequences, or of their time steps.
 *
 * Sequences are read in blocks. Where their lengths differ they are computed in order of their length, so that few steps are padding; rows are written in the
 * order of the data. */
#include "predict.h"

#include <stdlib.h>
#include <string.h>

enum {
    GROUP = 256,               /* sequences of similar length, computed at once */
    MOST_SEQUENCES = 9 * GROUP /* of a block */
};
static const int64_t MOST_NUMBERS = 1 << 23; /* of a block, unless one sequence has more */

typedef struct {
    predictor *predictor;
    const rcv_data *data;
    int64_t from, count, steps; /* sequences of the block; length of the longest */
    int64_t *lengths;           /* [count] */
    float *x;                   /* [steps, count, features]; NULL: inputs are tokens */
    int64_t *tokens;            /* [steps, count] */
    char *out;                  /* [count, outputs], or [steps, count, outputs], of the learner's type */
} block;

static bool is_stepwise(const predictor *p) { return p->is_steps && !p->arguments->last; }
static size_t real_bytes(const predictor *p) { return rcv_dtype_bytes(rcv_learner_dtype(p->learner)); }

static void free_block(block *b) {
    free(b->lengths);
    free(b->x);
    free(b->tokens);
    free(b->out);
}

/* ---- reading ---- */

/* As many sequences as fit. */
static rcv_status read_block(block *b) {
    const predictor *p = b->predictor;
    const int64_t left = rcv_data_sequences(b->data) - b->from, features = rcv_learner_features(p->learner);
    const int64_t numbers = (features > 0 ? features : 2) + (is_stepwise(p) ? p->outputs : 0);
    b->count = left < MOST_SEQUENCES ? left : MOST_SEQUENCES;
    b->lengths = need((size_t)b->count, sizeof *b->lengths);
    rcv_status status = rcv_data_read(b->data, b->from, b->count, b->lengths, NULL, NULL, 0);
    int64_t fitting = 0;
    for (int64_t steps = 1; fitting < b->count && status == RCV_OK; fitting++) {
        steps = b->lengths[fitting] > steps ? b->lengths[fitting] : steps;
        if (fitting > 0 && steps * (fitting + 1) > MOST_NUMBERS / numbers) {
            break;
        }
        b->steps = steps;
    }
    b->count = fitting;
    const int64_t room = b->steps * b->count * (features > 0 ? features : 1);
    if (status == RCV_OK && features > 0) {
        b->x = need((size_t)room, sizeof *b->x);
    } else if (status == RCV_OK) {
        b->tokens = need((size_t)room, sizeof *b->tokens);
    }
    return status == RCV_OK ? rcv_data_read(b->data, b->from, b->count, b->lengths, b->x, b->tokens, room) : status;
}

/* ---- computing ---- */

static rcv_status compute(const block *b) {
    const predict_arguments *arguments = b->predictor->arguments;
    const rcv_prediction prediction = RCV_INIT(
        rcv_prediction, .steps = b->steps, .batch = b->count, .x = b->x, .tokens = b->tokens, .lengths = b->lengths,
        .out = b->out, .threads = arguments->threads, .last = arguments->last, .go_on = predictor_is_not_stopped);
    return rcv_learner_predict(b->predictor->learner, &prediction);
}

static void make_out(block *b) {
    const predictor *p = b->predictor;
    b->out = need((size_t)((is_stepwise(p) ? b->steps : 1) * b->count * p->outputs), real_bytes(p));
}

/* Copies columns of an array [steps, columns, bytes] from or to places of another one. */
static void copy_columns(char *to, int64_t to_columns, int64_t to_column, const char *from, int64_t from_columns,
                         int64_t from_column, int64_t steps, size_t bytes) {
    for (int64_t t = 0; t < steps; t++) {
        memcpy(to + (size_t)(t * to_columns + to_column) * bytes,
               from + (size_t)(t * from_columns + from_column) * bytes, bytes);
    }
}

/* The sequences order[0 .. count - 1] of the block. */
static rcv_status compute_group(const block *b, const int64_t *order, int64_t count) {
    const predictor *p = b->predictor;
    const size_t features = (size_t)rcv_learner_features(p->learner), x_bytes = features * sizeof *b->x,
                 out_bytes = (size_t)p->outputs * real_bytes(p);
    block group = {.predictor = b->predictor, .count = count};
    group.lengths = need((size_t)count, sizeof *group.lengths);
    for (int64_t i = 0; i < count; i++) {
        group.lengths[i] = b->lengths[order[i]];
        group.steps = group.lengths[i] > group.steps ? group.lengths[i] : group.steps;
    }
    const size_t rows = (size_t)(group.steps * count);
    group.x = b->x != NULL ? need(rows * features, sizeof *group.x) : NULL;
    group.tokens = b->tokens != NULL ? need(rows, sizeof *group.tokens) : NULL;
    make_out(&group);
    for (int64_t i = 0; i < count; i++) {
        if (b->x != NULL) {
            copy_columns((char *)group.x, count, i, (const char *)b->x, b->count, order[i], group.lengths[i], x_bytes);
        } else {
            copy_columns((char *)group.tokens, count, i, (const char *)b->tokens, b->count, order[i], group.lengths[i],
                         sizeof *b->tokens);
        }
    }
    const rcv_status status = compute(&group);
    for (int64_t i = 0; i < count && status == RCV_OK; i++) {
        copy_columns(b->out, b->count, order[i], group.out, count, i, is_stepwise(p) ? group.lengths[i] : 1, out_bytes);
    }
    free_block(&group);
    return status;
}

typedef struct {
    int64_t length, number;
} ranked;

static int compare_lengths(const void *a, const void *b) {
    const ranked *first = a, *second = b;
    if (first->length != second->length) {
        return first->length > second->length ? -1 : 1;
    }
    return first->number < second->number ? -1 : 1;
}

int64_t *order_by_length(const int64_t *lengths, int64_t count) {
    ranked *all = need((size_t)count, sizeof *all);
    int64_t *order = need((size_t)count, sizeof *order);
    for (int64_t i = 0; i < count; i++) {
        all[i] = (ranked){lengths[i], i};
    }
    qsort(all, (size_t)count, sizeof *all, compare_lengths);
    for (int64_t i = 0; i < count; i++) {
        order[i] = all[i].number;
    }
    free(all);
    return order;
}

static bool is_uniform(const block *b) {
    for (int64_t i = 0; i < b->count; i++) {
        if (b->lengths[i] != b->steps) {
            return false;
        }
    }
    return true;
}

static rcv_status compute_block(block *b) {
    const int64_t most = b->predictor->arguments->batch, group = most > 0 ? most : GROUP;
    rcv_status status = RCV_OK;
    make_out(b);
    if (is_uniform(b) && (most == 0 || b->count <= most)) {
        return compute(b);
    }
    int64_t *order = order_by_length(b->lengths, b->count);
    for (int64_t at = 0; at < b->count && status == RCV_OK; at += group) {
        status = compute_group(b, order + at, b->count - at < group ? b->count - at : group);
    }
    free(order);
    return status;
}

/* ---- writing ---- */

static rcv_status write_block(const block *b) {
    predictor *p = b->predictor;
    const int64_t bytes = p->outputs * (int64_t)real_bytes(p);
    rcv_status status = RCV_OK;
    for (int64_t i = 0; i < b->count && status == RCV_OK; i++) {
        const int64_t number = p->first + b->from + i;
        char name[256];
        if (p->sequence != NULL) {
            status = rcv_data_example_name(b->data, b->from + i, name, sizeof name);
        } else {
            snprintf(name, sizeof name, "%lld", (long long)number);
        }
        const int64_t last = b->lengths[i] - 1;
        for (int64_t t = is_stepwise(p) ? 0 : last; t <= last && status == RCV_OK; t++) {
            rows_write(p, name, t, b->out + (is_stepwise(p) ? t * b->count + i : i) * bytes);
        }
    }
    return status;
}

rcv_status predict_sequences(predictor *p, const rcv_data *data) {
    rcv_status status = RCV_OK;
    for (int64_t from = 0; from < rcv_data_sequences(data) && status == RCV_OK;) {
        block b = {.predictor = p, .data = data, .from = from};
        status = read_block(&b);
        if (status == RCV_OK) {
            status = compute_block(&b);
        }
        if (status == RCV_OK) {
            status = write_block(&b);
        }
        from += b.count;
        p->done += b.count;
        free_block(&b);
        if (!predictor_go_on(p)) {
            return RCV_STOPPED;
        }
    }
    return status;
}
