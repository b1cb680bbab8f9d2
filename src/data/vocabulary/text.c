/* Readers of texts: words as one stream, words by line, bytes by line. */
#include "data/internal.h"

#include <string.h>

rcv_status rcvi_find_token(const rcvi_import *import, const char *word, size_t length, int64_t offset, int64_t *token) {
    const rcv_vocabulary *vocabulary = import->vocabulary;
    *token = word ? rcvi_words_find(&vocabulary->words, word, length) : vocabulary->eos;
    if (*token < 0 && word) *token = vocabulary->unk;
    if (*token >= 0) return RCV_OK;
    if (!word)
        return rcvi_fail(RCV_INVALID, "the vocabulary has no " RCVI_EOS ", which ends every line of %s",
                         import->source.path);
    return rcvi_fail(RCV_FORMAT, "%s: the word '%.*s' at byte %lld is not in the vocabulary, which has no " RCVI_UNK,
                     import->source.path, (int)(length < 60 ? length : 60), word, (long long)offset);
}

int64_t rcvi_token_bytes(const rcvi_import *import) {
    int64_t size = import->vocabulary->words.size;
    return size <= 256 ? 1 : size <= 65536 ? 2 : 4;
}

/* ---- words ---- */

typedef struct {
    rcvi_import *import;
    int64_t tokens, sequences, longest;
    int64_t on_line; /* words of this line so far */
} progress;

/* Whether the end of the line ends a sequence, or is an <eos> token; a line without words is not a sequence. */
static bool is_sequence(const progress *p) { return p->import->kind == RCV_DATA_LINES && p->on_line > 0; }
static bool is_token(const progress *p) { return p->import->kind == RCV_DATA_STREAM || p->on_line > 0; }

static void count_token(progress *p, bool line_ends) {
    if (!line_ends || is_token(p)) p->tokens++;
    if (!line_ends) {
        p->on_line++;
        return;
    }
    if (is_sequence(p)) {
        p->sequences++;
        if (p->on_line + 1 > p->longest) p->longest = p->on_line + 1;
    }
    p->on_line = 0;
}

static rcv_status count_word(void *user, const char *word, size_t length, int64_t offset) {
    progress *p = user;
    (void)offset;
    bool line_ends = !word;
    if (line_ends) {
        word = RCVI_EOS;
        length = strlen(RCVI_EOS);
    }
    if (!p->import->given_vocabulary) RCVI_TRY(rcvi_words_count(&p->import->counted, word, length, 1, NULL));
    count_token(p, line_ends);
    return RCV_OK;
}

static rcv_status write_word(void *user, const char *word, size_t length, int64_t offset) {
    progress *p = user;
    rcvi_import *import = p->import;
    if (!word && is_sequence(p)) RCVI_TRY(rcvi_write_span(import, p->tokens - p->on_line, p->on_line + 1));
    if (word || is_token(p)) {
        int64_t token;
        RCVI_TRY(rcvi_find_token(import, word, length, offset, &token));
        RCVI_TRY(rcvi_write_token(import, token));
    }
    count_token(p, !word);
    return RCV_OK;
}

static rcv_status count_words(rcvi_import *import) {
    progress p = {.import = import};
    RCVI_TRY(rcvi_text_file_words(&import->source, count_word, &p));
    if (!import->given_vocabulary) {
        RCVI_TRY(rcvi_vocabulary_rank(&import->counted, import->level, &import->vocabulary));
        rcvi_words_free(&import->counted);
    }
    rcvi_totals *totals = &import->totals;
    totals->token_bytes = rcvi_token_bytes(import);
    totals->tokens = p.tokens;
    totals->sequences = import->kind == RCV_DATA_STREAM ? 1 : p.sequences;
    totals->longest = import->kind == RCV_DATA_STREAM ? p.tokens : p.longest;
    totals->bytes[RCVI_TOKENS] = p.tokens * totals->token_bytes;
    totals->bytes[RCVI_SPANS] = p.sequences * (int64_t)sizeof(rcvi_span);
    return RCV_OK;
}

static rcv_status write_words(rcvi_import *import) {
    progress p = {.import = import};
    return rcvi_text_file_words(&import->source, write_word, &p);
}

const rcvi_data_reader rcvi_word_reader = {count_words, write_words};

/* ---- bytes by line ---- */

/* The tokens are the bytes of the text; the token cache has only the spans of the lines. */
typedef struct {
    rcvi_import *import;
    bool writes;
    int64_t from; /* of the line */
    int64_t tokens, sequences, longest;
} line_progress;

static rcv_status end_line(line_progress *p, int64_t end) {
    int64_t from = p->from, length = end - from + 1;
    p->from = end + 1;
    if (length == 1) return RCV_OK;
    p->tokens += length;
    p->sequences++;
    if (length > p->longest) p->longest = length;
    return p->writes ? rcvi_write_span(p->import, from, length) : RCV_OK;
}

static rcv_status find_lines(void *user, const char *bytes, size_t length, int64_t offset) {
    line_progress *p = user;
    for (const char *at = bytes, *end = bytes + length; at < end; at++) {
        at = memchr(at, '\n', (size_t)(end - at));
        if (!at) break;
        RCVI_TRY(end_line(p, offset + (at - bytes)));
    }
    return RCV_OK;
}

static rcv_status visit_lines(rcvi_import *import, line_progress *p) {
    RCVI_TRY(rcvi_text_file_chunks(&import->source, find_lines, p));
    return import->source.offset > p->from ? end_line(p, import->source.offset) : RCV_OK;
}

static rcv_status count_lines(rcvi_import *import) {
    line_progress p = {.import = import};
    RCVI_TRY(visit_lines(import, &p));
    import->totals.tokens = p.tokens;
    import->totals.sequences = p.sequences;
    import->totals.longest = p.longest;
    import->totals.bytes[RCVI_SPANS] = p.sequences * (int64_t)sizeof(rcvi_span);
    return RCV_OK;
}

static rcv_status write_lines(rcvi_import *import) {
    line_progress p = {.import = import, .writes = true};
    return visit_lines(import, &p);
}

const rcvi_data_reader rcvi_byte_line_reader = {count_lines, write_lines};
