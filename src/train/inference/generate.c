/* Text from a language model, token by token, by a plan of one time step whose state is carried. */
#include "base/random.h"
#include "train/step/work.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    double weight;
    int32_t token;
} choice;

typedef struct {
    rcvi_work *work;
    size_t window;
    const rcv_generation *options;
    void *device_logits, *logits; /* [tokens], in the device's memory and in the host's */
    choice *choices;              /* [tokens] */
    rcvi_twister twister;
    int64_t eos, unk;
    bool line_begins; /* the next word is the first of its line: no space before it */
} writer;

static double logit(const writer *w, int64_t token) {
    return w->work->learner->real == RCV_FLOAT64 ? ((const double *)w->logits)[token]
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
    int64_t count = w->work->learner->shape.outputs;
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

static rcv_status read_token(writer *w, int64_t token) {
    int32_t id = (int32_t)token;
    w->line_begins = token == w->eos;
    return rcvi_work_step(w->work, w->window, &id);
}

static rcv_status read_word(writer *w, const char *word, size_t length) {
    const rcv_vocabulary *vocabulary = w->work->learner->vocabulary;
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
    const rcv_vocabulary *vocabulary = w->work->learner->vocabulary;
    const rcv_generation *o = w->options;
    bool bytes = rcv_vocabulary_level(vocabulary) == RCV_LEVEL_BYTE;
    if (!bytes || !o->prompt_bytes || w->work->learner->shape.kind == RCV_DATA_LINES) RCVI_TRY(read_token(w, w->eos));
    if (!bytes) return read_words(w, o->prompt, o->prompt_bytes);
    for (size_t i = 0; i < o->prompt_bytes; i++) RCVI_TRY(read_token(w, (uint8_t)o->prompt[i]));
    return RCV_OK;
}

static bool emit_token(writer *w, int32_t token, bool (*emit)(void *user, const char *text, size_t length),
                       void *user) {
    const rcv_vocabulary *vocabulary = w->work->learner->vocabulary;
    size_t length = 0;
    const char *text = rcv_vocabulary_token(vocabulary, token, &length);
    if (rcv_vocabulary_level(vocabulary) == RCV_LEVEL_BYTE) return emit(user, text, length);
    if (token == w->eos) return emit(user, "\n", 1);
    return (w->line_begins || emit(user, " ", 1)) && emit(user, text, length);
}

static rcv_status write_tokens(writer *w, bool (*emit)(void *user, const char *text, size_t length), void *user) {
    rcvi_work *work = w->work;
    const rcv_learner *l = work->learner;
    const rcvi_head head = {.rows = 1,
                            .y = work->windows[w->window].head_features,
                            .weight = rcvi_local_element_at(l, work->parameters, l->weight_offset),
                            .bias = rcvi_local_element_at(l, work->parameters, l->bias_offset)};
    for (int64_t i = 0; i < w->options->count; i++) {
        RCVI_TRY(work->ops->logits(work->learn, &head, w->device_logits));
        RCVI_TRY(
            work->ops->fetch(work->learn, w->logits, w->device_logits, (size_t)l->shape.outputs * rcvi_real_bytes(l)));
        int32_t token = draw(w);
        if (token < 0)
            return rcvi_fail(RCV_INVALID,
                             "the model gives no probabilities: its parameters are not all finite numbers");
        if (!emit_token(w, token, emit, user))
            return rcvi_fail(RCV_STOPPED, "generation was stopped after %lld tokens", (long long)i);
        RCVI_TRY(read_token(w, token));
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
    const rcvi_work_options options = {.rows = 1, .threads = w->options->threads, .effort = RCV_ESTIMATE};
    const rcvi_window_options window = {.steps = 1, .batch = 1, .carries = true};
    RCVI_TRY(rcvi_work_new(l, &options, &w->work));
    RCVI_TRY(rcvi_work_add_window(w->work, &window, &w->window));
    RCVI_TRY(rcvi_device_new(l, l->shape.outputs, rcvi_real_bytes(l), &w->device_logits));
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
    writer w = {.options = options};
    rcv_status status = open_writer(l, &w);
    if (!status) status = read_prompt(&w);
    if (!status) status = write_tokens(&w, emit, user);
    rcvi_device_free(l, w.device_logits);
    rcvi_free(l->context, w.logits);
    rcvi_free(l->context, w.choices);
    rcvi_work_free(w.work);
    return status;
}
