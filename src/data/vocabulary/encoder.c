/* Characters and pieces of a text that is given in parts. A part is cut at added tokens, then into pre-tokens by each stage in turn, and the pre-tokens of the last stage are words. */
#include "data/vocabulary/encoder.h"

#include "data/vocabulary/merge.h"
#include "data/vocabulary/unicode.h"

#include <string.h>

enum { KEPT_WORDS = 1 << 16, KEPT_BYTES = 30, KEPT_TOKENS = 8, ASCII = 128 };

/* The tokens of a word that was encoded. */
typedef struct {
    uint8_t length, count; /* length 0: free */
    char word[KEPT_BYTES];
    int32_t tokens[KEPT_TOKENS];
} kept_word;

struct rcvi_encoder {
    rcv_context *context;
    const rcv_vocabulary *vocabulary;
    const char *name;
    rcvi_take_tokens *take;
    void *user;
    /* characters */
    int32_t ascii[ASCII]; /* tokens */
    /* pieces */
    rcvi_merger merger;
    kept_word *kept;                         /* [KEPT_WORDS] at the hash of the word; NULL: none are kept */
    bool text_begins;                        /* nothing of the text was used so far */
    bool split_begins[RCVI_MOST_STAGES + 1]; /* of each stage: the next byte begins what it splits */
    rcvi_text prefixed[RCVI_MOST_STAGES];    /* what a stage splits, with a space before it */
    /* the normal form */
    uint8_t combining; /* class of the last character */
    int64_t checked;   /* offset in the file up to which characters are in the normal form */
};

/* ---- words ---- */

static rcv_status encode_word(rcvi_encoder *e, const char *word, size_t length) {
    rcvi_merger *m = &e->merger;
    e->text_begins = false;
    kept_word *kept = NULL;
    if (e->kept && length <= KEPT_BYTES) {
        kept = &e->kept[rcvi_hash_chunk(0, word, length) % KEPT_WORDS];
        if (kept->length == length && memcmp(kept->word, word, length) == 0)
            return e->take(e->user, kept->tokens, kept->count);
    }
    RCVI_TRY(rcvi_merge_word(m, word, length));
    if (kept && m->token_count <= KEPT_TOKENS) {
        kept->length = (uint8_t)length;
        kept->count = (uint8_t)m->token_count;
        memcpy(kept->word, word, length);
        memcpy(kept->tokens, m->tokens, m->token_count * sizeof *m->tokens);
    }
    return e->take(e->user, m->tokens, m->token_count);
}

/* ---- stages ---- */

static rcv_status run_stage(rcvi_encoder *e, size_t number, const char *text, size_t length, bool ends, size_t *used);

static rcv_status split(rcvi_encoder *e, size_t number, const char *text, size_t length, bool ends, size_t *used) {
    *used = 0;
    while (*used < length) {
        const rcvi_pretoken next =
            rcvi_pretoken_next(e->vocabulary->tokenizer->stages[number].split, text + *used, length - *used, ends);
        size_t done = next.bytes;
        if (next.bytes == 0) return RCV_OK;
        if (next.dropped)
            e->text_begins = false;
        else
            RCVI_TRY(run_stage(e, number + 1, text + *used, next.bytes, next.ends, &done));
        *used += done;
        if (!next.ends) return RCV_OK;
        e->split_begins[number + 1] = true;
    }
    return RCV_OK;
}

static bool needs_space(const rcvi_encoder *e, size_t number, const char *text, size_t length) {
    const rcvi_pretokenizer *stage = &e->vocabulary->tokenizer->stages[number];
    if (!e->split_begins[number] || stage->prefix == RCVI_PREFIX_NEVER) return false;
    if (stage->prefix == RCVI_PREFIX_FIRST && !e->text_begins) return false;
    const size_t mark = strlen(RCVI_METASPACE);
    const bool has_mark = stage->split == RCVI_SPLIT_METASPACE && length >= mark && !memcmp(text, RCVI_METASPACE, mark);
    return text[0] != ' ' && !has_mark;
}

static rcv_status run_stage(rcvi_encoder *e, size_t number, const char *text, size_t length, bool ends, size_t *used) {
    *used = 0;
    if (length == 0) return RCV_OK;
    if (number == e->vocabulary->tokenizer->stage_count) {
        *used = ends ? length : 0;
        return ends ? encode_word(e, text, length) : RCV_OK;
    }
    const bool begins = e->split_begins[number], has_space = needs_space(e, number, text, length);
    rcvi_text *copy = &e->prefixed[number];
    if (has_space) {
        copy->length = 0;
        rcvi_text_add_bytes(copy, " ", 1);
        rcvi_text_add_bytes(copy, text, length);
        if (copy->failed) return rcvi_no_memory(length);
    }
    if (begins) e->split_begins[number + 1] = true;
    RCVI_TRY(split(e, number, has_space ? copy->bytes : text, length + has_space, ends, used));
    if (*used > 0) e->split_begins[number] = false;
    if (*used > 0) *used -= has_space;
    return RCV_OK;
}

/* ---- added tokens ---- */

typedef struct {
    const rcvi_added *added; /* NULL: there is none before `from` */
    size_t from, to; /* white space that belongs to it is included. Without a token no token begins before `from` */
} match;

static bool is_space_at(const char *text, size_t at, size_t *step) {
    return rcvi_unicode_properties(rcvi_utf8_next(text + at, step)) & RCVI_UNICODE_SPACE;
}

/* Where the white space before `at` begins. */
static size_t skip_left(const char *text, size_t at) {
    while (at > 0) {
        size_t from = at - 1, step;
        while (from > 0 && ((unsigned char)text[from] & 0xc0) == 0x80) from--;
        if (!is_space_at(text, from, &step)) break;
        at = from;
    }
    return at;
}

static const rcvi_added *added_at(const rcvi_tokenizer *t, int pass, const char *text, size_t length) {
    for (size_t i = 0; i < t->added_count; i++) {
        const rcvi_added *added = &t->added[i];
        if (added->pass == pass && added->length <= length && memcmp(added->content, text, added->length) == 0)
            return added;
    }
    return NULL;
}

/* The first added token, at the same place the longest one. A place where a longer one may follow in the next part is as one behind the text. */
static match find_added(const rcvi_tokenizer *t, int pass, const char *text, size_t length, bool ends) {
    const uint8_t bit = (uint8_t)(1 << pass);
    const size_t safe = ends ? length : length >= t->longest_added ? length - t->longest_added + 1 : 0;
    match found = {.from = safe};
    for (size_t at = 0; at < safe; at++) {
        if (!(t->first_bytes[(unsigned char)text[at]] & bit)) continue;
        const rcvi_added *added = added_at(t, pass, text + at, length - at);
        if (!added) continue;
        size_t end = at + added->length, step;
        while (added->right && end < length && is_space_at(text, end, &step)) end += step;
        found.from = at;
        if (added->right && end == length && !ends) break; /* more white space may follow */
        found.added = added;
        found.to = end;
        if (added->left) found.from = skip_left(text, at);
        return found;
    }
    if (!ends && t->has_left) found.from = skip_left(text, found.from);
    while (!ends && found.from > 0 && found.from < length && ((unsigned char)text[found.from] & 0xc0) == 0x80)
        found.from--;
    return found;
}

static rcv_status cut_added(rcvi_encoder *e, int pass, const char *text, size_t length, bool ends, size_t *used) {
    const rcvi_tokenizer *t = e->vocabulary->tokenizer;
    *used = 0;
    if (pass == RCVI_ADDED_PASSES) return run_stage(e, 0, text, length, ends, used);
    if (t->added_count == 0) return cut_added(e, pass + 1, text, length, ends, used);
    while (*used < length) {
        const match next = find_added(t, pass, text + *used, length - *used, ends);
        size_t done;
        RCVI_TRY(cut_added(e, pass + 1, text + *used, next.from, next.added || ends, &done));
        *used += done;
        if (!next.added) return RCV_OK;
        RCVI_TRY(e->take(e->user, &next.added->token, 1));
        *used += next.to - next.from;
        e->text_begins = false;
        e->split_begins[0] = true;
    }
    return RCV_OK;
}

/* ---- the normal form NFC ---- */

/* Refuses characters that NFC may change: that would be another text than the file has. */
static rcv_status check_normal_form(rcvi_encoder *e, const char *bytes, size_t length, int64_t offset) {
    for (size_t at = e->checked > offset ? (size_t)(e->checked - offset) : 0, step; at < length; at += step) {
        const uint32_t code = rcvi_utf8_next(bytes + at, &step);
        const uint8_t before = e->combining;
        e->combining = 0;
        if (code < 0x300) continue;
        const rcvi_unicode_range *range = rcvi_unicode_find(code);
        e->combining = range->combining;
        if (!(range->properties & RCVI_UNICODE_MAY_CHANGE) && (range->combining == 0 || before <= range->combining))
            continue;
        return rcvi_fail(RCV_UNSUPPORTED,
                         "%s is not in the normal form NFC, or may not be, at byte %lld (U+%04X); this tokenizer needs "
                         "it: convert the text with unicodedata.normalize('NFC', text)",
                         e->name, (long long)offset + (long long)at, (unsigned)code);
    }
    if (offset + (int64_t)length > e->checked) e->checked = offset + (int64_t)length;
    return RCV_OK;
}

/* ---- characters ---- */

static rcv_status encode_characters(rcvi_encoder *e, const char *bytes, size_t length) {
    enum { BLOCK = 1024 };
    const rcv_vocabulary *v = e->vocabulary;
    int32_t tokens[BLOCK];
    size_t count = 0;
    for (size_t at = 0, step; at < length; at += step) {
        const uint32_t code = rcvi_utf8_next(bytes + at, &step);
        int64_t token = code < ASCII ? e->ascii[code] : rcvi_words_find(&v->words, bytes + at, step);
        if (token < 0) token = v->unk;
        if (token < 0)
            return rcvi_fail(RCV_FORMAT,
                             "%s has the character '%.*s', which is not in the vocabulary, which has no " RCVI_UNK,
                             e->name, (int)step, bytes + at);
        tokens[count++] = (int32_t)token;
        if (count == BLOCK) RCVI_TRY(e->take(e->user, tokens, count));
        if (count == BLOCK) count = 0;
    }
    return count > 0 ? e->take(e->user, tokens, count) : RCV_OK;
}

static void find_ascii(rcvi_encoder *e) {
    for (int code = 0; code < ASCII; code++) {
        const char byte = (char)code;
        e->ascii[code] = (int32_t)rcvi_words_find(&e->vocabulary->words, &byte, 1);
    }
}

/* ---- all ---- */

rcv_status rcvi_encoder_part(rcvi_encoder *e, const char *bytes, size_t length, bool ends, int64_t offset,
                             size_t *used) {
    size_t whole;
    *used = 0;
    RCVI_TRY(rcvi_utf8_whole(bytes, length, ends, e->name, offset, &whole));
    if (e->vocabulary->level == RCV_LEVEL_CHARACTER) {
        *used = whole;
        return encode_characters(e, bytes, whole);
    }
    if (e->vocabulary->tokenizer->normal_form) RCVI_TRY(check_normal_form(e, bytes, whole, offset));
    return cut_added(e, 0, bytes, whole, ends, used);
}

void rcvi_encoder_begin(rcvi_encoder *e) {
    e->text_begins = e->split_begins[0] = true;
    e->combining = 0;
    e->checked = 0;
}

rcv_status rcvi_encoder_new(const rcv_vocabulary *vocabulary, const char *name, bool is_long, rcvi_take_tokens *take,
                            void *user, rcvi_encoder **encoder) {
    const bool pieces = vocabulary->level == RCV_LEVEL_PIECE;
    rcvi_encoder *e = *encoder = rcvi_new(vocabulary->context, 1, sizeof *e);
    if (!e) return RCV_NO_MEMORY;
    e->context = vocabulary->context;
    e->vocabulary = vocabulary;
    e->name = name;
    e->take = take;
    e->user = user;
    rcvi_merger_init(&e->merger, vocabulary, name);
    for (size_t i = 0; i < RCVI_MOST_STAGES; i++) rcvi_text_init(&e->prefixed[i], e->context);
    rcvi_encoder_begin(e);
    find_ascii(e);
    if (pieces && is_long) e->kept = rcvi_new(e->context, KEPT_WORDS, sizeof *e->kept);
    if (!pieces || !is_long || e->kept) return RCV_OK;
    rcvi_encoder_free(e);
    *encoder = NULL;
    return RCV_NO_MEMORY;
}

void rcvi_encoder_free(rcvi_encoder *e) {
    if (!e) return;
    rcvi_merger_free(&e->merger);
    for (size_t i = 0; i < RCVI_MOST_STAGES; i++) rcvi_text_drop(&e->prefixed[i]);
    rcvi_free(e->context, e->kept);
    rcvi_free(e->context, e);
}
