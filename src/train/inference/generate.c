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
    int64_t eos, unk;
    int64_t next;     /* the token that the stream takes next; -1: none */
    bool line_begins; /* the next word is the first of its line: no space before it */
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
    w->line_begins = token == w->eos;
    return before < 0 ? RCV_OK : rcv_stream_step(w->stream, &before, 1, NULL);
}

static rcv_status read_word(writer *w, const char *word, size_t length) {
    const rcv_vocabulary *vocabulary = w->learner->vocabulary;
    int64_t token = rcv_vocabulary_find(vocabulary, word, length);
    return read_token(w, token < 0 ? w->unk : token);
}

static rcv_status read_words(writer *w, const char *text, size_t length) {
    for (size_t at = 0; at < length;) {
        size_t end = at;
        while (end < length && !strchr(" \t\r\v\f\n", text[end])) end++;
        if (end > at) RCVI_TRY(read_word(w, text + at, end - at));
        if (end < length && text[end] == '\n') RCVI_TRY(read_token(w, w->eos));
        at = end + 1;
    }
    return RCV_OK;
}

/* A text begins as a line does: after the end of another. */
static rcv_status read_prompt(writer *w) {
    const rcv_vocabulary *vocabulary = w->learner->vocabulary;
    const rcv_generation *o = w->options;
    bool bytes = rcv_vocabulary_level(vocabulary) == RCV_LEVEL_BYTE;
    if (!bytes || !o->prompt_bytes || w->learner->shape.kind == RCV_DATA_LINES) RCVI_TRY(read_token(w, w->eos));
    if (!bytes) return read_words(w, o->prompt, o->prompt_bytes);
    for (size_t i = 0; i < o->prompt_bytes; i++) RCVI_TRY(read_token(w, (uint8_t)o->prompt[i]));
    return RCV_OK;
}

static bool emit_token(writer *w, int32_t token, bool (*emit)(void *user, const char *text, size_t length),
                       void *user) {
    const rcv_vocabulary *vocabulary = w->learner->vocabulary;
    size_t length = 0;
    const char *text = rcv_vocabulary_token(vocabulary, token, &length);
    if (rcv_vocabulary_level(vocabulary) == RCV_LEVEL_BYTE) return emit(user, text, length);
    if (token == w->eos) return emit(user, "\n", 1);
    return (w->line_begins || emit(user, " ", 1)) && emit(user, text, length);
}

static rcv_status write_tokens(writer *w, bool (*emit)(void *user, const char *text, size_t length), void *user) {
    for (int64_t i = 0; i < w->options->count; i++) {
        RCVI_TRY(rcv_stream_step(w->stream, &w->next, 1, w->logits));
        int32_t token = draw(w);
        if (token < 0)
            return rcvi_fail(RCV_INVALID,
                             "the model gives no probabilities: its parameters are not all finite numbers");
        if (!emit_token(w, token, emit, user))
            return rcvi_fail(RCV_STOPPED, "generation was stopped after %lld tokens", (long long)i);
        w->next = token;
        w->line_begins = token == w->eos;
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
    bool bytes = rcv_vocabulary_level(l->vocabulary) == RCV_LEVEL_BYTE;
    w->eos = bytes ? '\n' : rcv_vocabulary_find(l->vocabulary, "<eos>", strlen("<eos>"));
    w->unk = rcv_vocabulary_find(l->vocabulary, "<unk>", strlen("<unk>"));
    return w->logits && w->choices ? RCV_OK : RCV_NO_MEMORY;
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
    writer w = {.learner = l, .options = options, .next = -1};
    rcv_status status = open_writer(l, &w);
    if (!status) status = read_prompt(&w);
    if (!status) status = write_tokens(&w, emit, user);
    rcvi_free(l->context, w.logits);
    rcvi_free(l->context, w.choices);
    rcv_stream_free(w.stream);
    return status;
}
