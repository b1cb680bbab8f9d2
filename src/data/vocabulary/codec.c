/* Tokens of a text in memory, and the text of a token. */
#include "data/vocabulary/encoder.h"
#include "data/vocabulary/tokenizer.h"

#include <string.h>

/* Tokens that are written as far as there is room. */
typedef struct {
    const rcv_vocabulary *vocabulary;
    int64_t *tokens; /* [room] */
    size_t room, count;
} list;

static void add_token(list *l, int64_t token) {
    if (l->count < l->room) l->tokens[l->count] = token;
    l->count++;
}

static rcv_status take(void *user, const int32_t *tokens, size_t count) {
    for (size_t i = 0; i < count; i++) add_token(user, tokens[i]);
    return RCV_OK;
}

static rcv_status encode_with(list *l, const char *text, size_t length) {
    enum { LONG = 1 << 16 };
    rcvi_encoder *encoder;
    size_t used;
    RCVI_TRY(rcvi_encoder_new(l->vocabulary, "the text", length > LONG, take, l, &encoder));
    const rcv_status status = rcvi_encoder_part(encoder, text, length, true, 0, &used);
    rcvi_encoder_free(encoder);
    return status;
}

static rcv_status encode_bytes(list *l, const char *text, size_t length) {
    for (size_t i = 0; i < length; i++) add_token(l, (unsigned char)text[i]);
    return RCV_OK;
}

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

static rcv_status add_word(list *l, const char *word, size_t length) {
    const rcv_vocabulary *v = l->vocabulary;
    int64_t token = word ? rcvi_words_find(&v->words, word, length) : v->eos;
    if (token < 0) token = v->unk;
    if (token < 0)
        return rcvi_fail(RCV_FORMAT, "the word '%.*s' is not in the vocabulary, which has no " RCVI_UNK,
                         word ? (int)(length < 60 ? length : 60) : (int)strlen(RCVI_EOS), word ? word : RCVI_EOS);
    add_token(l, token);
    return RCV_OK;
}

static rcv_status encode_words(list *l, const char *text, size_t length) {
    for (size_t at = 0, end; at < length; at = end + 1) {
        for (end = at; end < length && !is_space(text[end]);) end++;
        if (end > at) RCVI_TRY(add_word(l, text + at, end - at));
        if (end < length && text[end] == '\n') RCVI_TRY(add_word(l, NULL, 0));
    }
    return RCV_OK;
}

rcv_status rcv_vocabulary_encode(const rcv_vocabulary *vocabulary, const char *text, size_t length, int64_t *tokens,
                                 size_t room, size_t *count) {
    static rcv_status (*const encoders[])(list *, const char *, size_t) = {[RCV_LEVEL_WORD] = encode_words,
                                                                           [RCV_LEVEL_BYTE] = encode_bytes,
                                                                           [RCV_LEVEL_CHARACTER] = encode_with,
                                                                           [RCV_LEVEL_PIECE] = encode_with};
    RCVI_NEED(count, "count");
    *count = 0;
    RCVI_NEED(vocabulary, "vocabulary");
    RCVI_NEED(text || length == 0, "text");
    RCVI_NEED(tokens || room == 0, "tokens");
    list l = {.vocabulary = vocabulary, .tokens = tokens, .room = room};
    if (length > 0) RCVI_TRY(encoders[vocabulary->level](&l, text, length));
    *count = l.count;
    return RCV_OK;
}

/* Words have a space before them, but the first one of a line. */
static void decode_word(const rcv_vocabulary *v, int64_t before, int64_t token, rcvi_text *out) {
    size_t length;
    const char *word = rcvi_words_at(&v->words, token, &length);
    if (token == v->eos) {
        rcvi_text_add_bytes(out, "\n", 1);
        return;
    }
    if (before >= 0 && before != v->eos) rcvi_text_add_bytes(out, " ", 1);
    rcvi_text_add_bytes(out, word, length);
}

static void decode(const rcv_vocabulary *v, int64_t before, int64_t token, rcvi_text *out) {
    size_t length;
    const char *bytes = rcvi_words_at(&v->words, token, &length);
    if (v->level == RCV_LEVEL_WORD)
        decode_word(v, before, token, out);
    else if (v->level == RCV_LEVEL_PIECE)
        rcvi_tokenizer_decode(v->tokenizer, &v->words, before, token, out);
    else
        rcvi_text_add_bytes(out, bytes, length);
}

rcv_status rcv_vocabulary_decode(const rcv_vocabulary *vocabulary, int64_t before, int64_t token, char *text,
                                 size_t room, size_t *length) {
    RCVI_NEED(length, "length");
    *length = 0;
    RCVI_NEED(vocabulary, "vocabulary");
    RCVI_NEED(text || room == 0, "text");
    if (token < 0 || token >= vocabulary->words.size || before >= vocabulary->words.size)
        return rcvi_fail(RCV_INVALID, "token %lld is not in 0 to %lld, the vocabulary",
                         (long long)(token < 0 || token >= vocabulary->words.size ? token : before),
                         (long long)vocabulary->words.size - 1);
    rcvi_text out;
    rcvi_text_init(&out, vocabulary->context);
    decode(vocabulary, before, token, &out);
    const rcv_status status = out.failed ? rcvi_no_memory(out.length) : RCV_OK;
    if (!status && out.length > 0 && room > 0) memcpy(text, out.bytes, out.length < room ? out.length : room);
    if (!status) *length = out.length;
    rcvi_text_drop(&out);
    return status;
}
