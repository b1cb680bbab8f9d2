/* Text from a language model, token by token, by a stream of one row. */
#include "base/random.h"
#include "train/learner/learner.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    double weight;
    int32_t token;
} choice;

typedef struct {
    const rcv_learner *learner;
    rcv_stream *stream;
    const rcv_generation *options;
    void *logits;    /* [tokens] */
    choice *choices; /* [tokens] */
    rcvi_twister twister;
    int64_t eos;        /* ends a line; -1: none */
    bool has_line_ends; /* eos is the end of a line, not a newline of the text */
    int64_t next;       /* the token that the stream takes next; -1: none */
    int64_t before;     /* the last token of the text; -1: it begins, or a line does */
    char *text;         /* of a token */
    size_t text_capacity;
} writer;

static double logit(const writer *w, int64_t token) {
    return w->learner->real == RCV_FLOAT64 ? ((const double *)w->logits)[token]
                                           : (double)((const float *)w->logits)[token];
}

static int by_weight(const void *a, const void *b) {
    const choice *x = a, *y = b;
    if (x->weight != y->weight) return x->weight > y->weight ? -1 : 1;
    return x->token < y->token ? -1 : 1;
}

/* Moves the likeliest `top_k` tokens to the front, and of these the fewest that reach a probability of `top_p`; gives how many these are. */
static int64_t narrow(const writer *w, int64_t count, double sum) {
    const rcv_generation *o = w->options;
    if (!o->top_k && !(o->top_p > 0 && o->top_p < 1)) return count;
    qsort(w->choices, (size_t)count, sizeof *w->choices, by_weight);
    if (o->top_k && o->top_k < count) count = o->top_k;
    if (!(o->top_p > 0 && o->top_p < 1)) return count;
    double reached = 0;
    int64_t kept = 0;
    while (kept < count && reached < o->top_p * sum) reached += w->choices[kept++].weight;
    return kept;
}

/* Draws a token as the options say; -1 where the logits are not finite. */
static int32_t draw(writer *w) {
    int64_t count = w->learner->shape.outputs;
    int32_t best = 0;
    for (int64_t t = 1; t < count; t++) best = logit(w, t) > logit(w, best) ? (int32_t)t : best;
    if (!isfinite(logit(w, best))) return -1;
    if (w->options->temperature == 0) return best;
    double sum = 0;
    for (int64_t t = 0; t < count; t++) {
        w->choices[t] = (choice){exp((logit(w, t) - logit(w, best)) / w->options->temperature), (int32_t)t};
        sum += w->choices[t].weight;
    }
    if (!isfinite(sum)) return -1;
    int64_t kept = narrow(w, count, sum);
    double left = 0;
    for (int64_t i = 0; i < kept; i++) left += w->choices[i].weight;
    left *= rcvi_uniform_double(&w->twister, 0, 1);
    for (int64_t i = 0; i < kept; i++) {
        left -= w->choices[i].weight;
        if (left < 0) return w->choices[i].token;
    }
    return best;
}

/* ---- text to tokens and back ---- */

/* The logits are needed after the last token that is read alone, so the stream takes a token when the next one is known. */
static rcv_status read_token(writer *w, int64_t token) {
    int64_t before = w->next;
    w->next = token;
    return before < 0 ? RCV_OK : rcv_stream_step(w->stream, &before, 1, NULL);
}

static rcv_status read_text(writer *w, const char *text, size_t length, size_t *count) {
    const rcv_vocabulary *vocabulary = w->learner->vocabulary;
    RCVI_TRY(rcv_vocabulary_encode(vocabulary, text, length, NULL, 0, count));
    int64_t *tokens = rcvi_new(w->learner->context, *count, sizeof *tokens);
    if (!tokens) return RCV_NO_MEMORY;
    rcv_status status = rcv_vocabulary_encode(vocabulary, text, length, tokens, *count, count);
    for (size_t i = 0; i < *count && !status; i++) status = read_token(w, tokens[i]);
    rcvi_free(w->learner->context, tokens);
    return status;
}

/* The end of another line: its token where lines are sequences, and of words; a newline in other texts. */
static rcv_status read_line_end(writer *w) {
    size_t count = 0;
    if (!w->has_line_ends) RCVI_TRY(read_text(w, "\n", 1, &count));
    if (count > 0) return RCV_OK;
    if (w->eos < 0)
        return rcvi_fail(RCV_INVALID,
                         "the model's tokenizer has no token for the end of a line, after which a text would "
                         "begin; give a prompt");
    return read_token(w, w->eos);
}

/* A text begins as a line does. Only a model of words reads the end of a line before a prompt, too. */
static rcv_status read_prompt(writer *w) {
    const rcv_generation *o = w->options;
    size_t count = 0;
    if (o->prompt_bytes == 0 || w->has_line_ends) RCVI_TRY(read_line_end(w));
    if (o->prompt_bytes > 0) RCVI_TRY(read_text(w, o->prompt, o->prompt_bytes, &count));
    w->before = count > 0 ? w->next : -1;
    return w->next >= 0 ? RCV_OK : read_line_end(w); /* the prompt has no token */
}

/* The text of a token; w->text holds it. */
static rcv_status decode_token(writer *w, int32_t token, size_t *length) {
    const rcv_vocabulary *vocabulary = w->learner->vocabulary;
    const bool ends_line = w->has_line_ends && token == w->eos;
    const int64_t before = w->before;
    w->before = ends_line ? -1 : token;
    if (ends_line) {
        w->text[0] = '\n';
        *length = 1;
        return RCV_OK;
    }
    RCVI_TRY(rcv_vocabulary_decode(vocabulary, before, token, w->text, w->text_capacity, length));
    if (*length <= w->text_capacity) return RCV_OK;
    if (!rcvi_grow(w->learner->context, &w->text, &w->text_capacity, *length, 1)) return RCV_NO_MEMORY;
    return rcv_vocabulary_decode(vocabulary, before, token, w->text, w->text_capacity, length);
}

static rcv_status write_tokens(writer *w, bool (*emit)(void *user, const char *text, size_t length), void *user) {
    for (int64_t i = 0; i < w->options->count; i++) {
        RCVI_TRY(rcv_stream_step(w->stream, &w->next, 1, w->logits));
        int32_t token = draw(w);
        if (token < 0)
            return rcvi_fail(RCV_INVALID,
                             "the model gives no probabilities: its parameters are not all finite numbers");
        size_t length;
        RCVI_TRY(decode_token(w, token, &length));
        if (!emit(user, w->text, length))
            return rcvi_fail(RCV_STOPPED, "generation was stopped after %lld tokens", (long long)i);
        w->next = token;
    }
    return RCV_OK;
}

/* ---- the call ---- */

static rcv_status check(const rcv_learner *l, const rcv_generation *o) {
    if (l->shape.kind != RCV_DATA_STREAM && l->shape.kind != RCV_DATA_LINES)
        return rcvi_fail(RCV_INVALID, "this model predicts classes or values of sequences, so it cannot write text");
    if (!(o->temperature >= 0) || !isfinite(o->temperature))
        return rcvi_fail(RCV_INVALID, "the temperature is %g but must be positive, or 0 for the likeliest token",
                         o->temperature);
    if (o->count < 0 || o->top_k < 0 || !(o->top_p >= 0 && o->top_p <= 1))
        return rcvi_fail(RCV_INVALID, "count and top_k must not be negative, and top_p lies between 0 and 1");
    return RCV_OK;
}

static rcv_status open_writer(rcv_learner *l, writer *w) {
    const rcv_stream_options options =
        RCV_INIT(rcv_stream_options, .threads = w->options->threads,
                 .effort = RCV_ESTIMATE, /* not measured: the plan, and so the text, is reproducible */
                 .output = RCV_OUTPUT_LOGITS);
    RCVI_TRY(rcv_stream_new_learner(l, &options, &w->stream));
    w->logits = rcvi_new(l->context, (size_t)l->shape.outputs, rcvi_real_bytes(l));
    w->choices = rcvi_new(l->context, (size_t)l->shape.outputs, sizeof *w->choices);
    rcvi_twister_seed(&w->twister, w->options->seed);
    w->eos = rcv_vocabulary_line_end(l->vocabulary);
    w->has_line_ends = l->shape.kind == RCV_DATA_LINES || rcv_vocabulary_level(l->vocabulary) == RCV_LEVEL_WORD;
    const bool has_text = rcvi_grow(l->context, &w->text, &w->text_capacity, 64, 1);
    return w->logits && w->choices && has_text ? RCV_OK : RCV_NO_MEMORY;
}

rcv_status rcv_learner_generate(rcv_learner *l, const rcv_generation *options,
                                bool (*emit)(void *user, const char *text, size_t length), void *user) {
    RCVI_NEED(l, "learner");
    RCVI_NEED(options, "options");
    RCVI_NEED(emit, "emit");
    RCVI_READ(rcv_generation, options, "options");
    RCVI_NEED(options->prompt || !options->prompt_bytes, "options->prompt");
    RCVI_TRY(rcvi_learner_is_whole(l));
    RCVI_TRY(check(l, options));
    writer w = {.learner = l, .options = options, .next = -1, .before = -1};
    rcv_status status = open_writer(l, &w);
    if (!status) status = read_prompt(&w);
    if (!status) status = write_tokens(&w, emit, user);
    rcvi_free(l->context, w.logits);
    rcvi_free(l->context, w.choices);
    rcvi_free(l->context, w.text);
    rcv_stream_free(w.stream);
    return status;
}
