/* Byte-pair encoding of a word. A heap has every pair of neighbours that can be merged, the lowest rank and then the leftmost pair first. A pair whose symbols were merged with
 * others in between stays in the heap and is skipped. */
#include "data/vocabulary/merge.h"

#include "data/vocabulary/unicode.h"

#include <string.h>

void rcvi_merger_init(rcvi_merger *m, const rcv_vocabulary *vocabulary, const char *name) {
    *m = (rcvi_merger){
        .context = vocabulary->context, .tokenizer = vocabulary->tokenizer, .words = &vocabulary->words, .name = name};
    rcvi_text_init(&m->spelling, m->context);
}

void rcvi_merger_free(rcvi_merger *m) {
    rcvi_free(m->context, m->symbols);
    rcvi_free(m->context, m->heap);
    rcvi_free(m->context, m->tokens);
    rcvi_text_drop(&m->spelling);
}

/* ---- symbols ---- */

static rcv_status add_symbol(rcvi_merger *m, int32_t token) {
    const size_t at = m->symbol_count;
    if (!rcvi_grow(m->context, &m->symbols, &m->symbol_capacity, at + 1, sizeof *m->symbols)) return RCV_NO_MEMORY;
    m->symbols[at] = (rcvi_piece){token, -1, (int32_t)at - 1};
    if (at > 0) m->symbols[at - 1].next = (int32_t)at;
    m->symbol_count++;
    return RCV_OK;
}

/* A symbol that the vocabulary does not have: its bytes, or the unknown token, which `*unknowns` counts until another symbol comes. */
static rcv_status add_unknown(rcvi_merger *m, const char *symbol, size_t length, size_t *unknowns) {
    const rcvi_tokenizer *t = m->tokenizer;
    bool has_bytes = t->byte_fallback;
    for (size_t i = 0; i < length && has_bytes; i++) has_bytes = t->byte_tokens[(unsigned char)symbol[i]] >= 0;
    if (has_bytes) {
        for (size_t i = 0; i < length; i++) RCVI_TRY(add_symbol(m, t->byte_tokens[(unsigned char)symbol[i]]));
        return RCV_OK;
    }
    if (t->unk < 0)
        return rcvi_fail(RCV_FORMAT, "%s has '%.*s', for which the tokenizer has no token, and it has no unk_token",
                         m->name, (int)length, symbol);
    if (*unknowns > 0 && t->fuse_unk) return RCV_OK;
    if (*unknowns > 0) return add_symbol(m, t->unk); /* the one before; this one waits */
    *unknowns = 1;
    return RCV_OK;
}

static rcv_status add_known(rcvi_merger *m, int32_t token, size_t *unknowns) {
    if (*unknowns > 0) RCVI_TRY(add_symbol(m, m->tokenizer->unk));
    *unknowns = 0;
    return add_symbol(m, token);
}

/* Appends a character as the vocabulary spells it. */
static void spell(rcvi_merger *m, const char *character, size_t length) {
    char bytes[4];
    if (m->tokenizer->byte_level)
        rcvi_text_add_bytes(&m->spelling, bytes,
                            rcvi_utf8_write(rcvi_byte_character((unsigned char)character[0]), bytes));
    else if (m->tokenizer->metaspace && character[0] == ' ')
        rcvi_text_add_bytes(&m->spelling, RCVI_METASPACE, strlen(RCVI_METASPACE));
    else
        rcvi_text_add_bytes(&m->spelling, character, length);
}

static rcv_status make_symbols(rcvi_merger *m, const char *word, size_t length) {
    const rcvi_tokenizer *t = m->tokenizer;
    size_t step = 1, unknowns = 0;
    m->symbol_count = 0;
    for (size_t at = 0; at < length; at += step) {
        if (!t->byte_level) (void)rcvi_utf8_next(word + at, &step);
        const bool is_last = at + step == length && t->suffix;
        int32_t token = t->byte_level && !is_last ? t->byte_tokens[(unsigned char)word[at]] : -1;
        if (token < 0) {
            m->spelling.length = 0;
            spell(m, word + at, step);
            if (is_last) rcvi_text_add_bytes(&m->spelling, t->suffix, strlen(t->suffix));
            if (m->spelling.failed) return rcvi_no_memory(step);
            token = rcvi_tokenizer_find(t, m->words, m->spelling.bytes, m->spelling.length);
        }
        RCVI_TRY(token >= 0 ? add_known(m, token, &unknowns)
                            : add_unknown(m, m->spelling.bytes, m->spelling.length, &unknowns));
    }
    return unknowns > 0 ? add_symbol(m, t->unk) : RCV_OK;
}

/* ---- the heap ---- */

static bool is_before(const rcvi_merge_candidate *a, const rcvi_merge_candidate *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

/* Adds the pair that begins at a symbol, if it can be merged. */
static rcv_status push(rcvi_merger *m, int32_t at) {
    const int32_t next = at < 0 ? -1 : m->symbols[at].next;
    if (next < 0) return RCV_OK;
    const rcvi_merge *merge = rcvi_tokenizer_merge(m->tokenizer, m->symbols[at].token, m->symbols[next].token);
    if (!merge) return RCV_OK;
    if (!rcvi_grow(m->context, &m->heap, &m->heap_capacity, m->heap_count + 1, sizeof *m->heap)) return RCV_NO_MEMORY;
    const rcvi_merge_candidate added = {merge->rank, at, merge->merged};
    size_t place = m->heap_count++;
    for (; place > 0 && is_before(&added, &m->heap[(place - 1) / 2]); place = (place - 1) / 2)
        m->heap[place] = m->heap[(place - 1) / 2];
    m->heap[place] = added;
    return RCV_OK;
}

static rcvi_merge_candidate pop(rcvi_merger *m) {
    const rcvi_merge_candidate first = m->heap[0], moved = m->heap[--m->heap_count];
    size_t place = 0;
    for (size_t child = 1; child < m->heap_count; child = 2 * place + 1) {
        if (child + 1 < m->heap_count && is_before(&m->heap[child + 1], &m->heap[child])) child++;
        if (!is_before(&m->heap[child], &moved)) break;
        m->heap[place] = m->heap[child];
        place = child;
    }
    m->heap[place] = moved;
    return first;
}

/* ---- merging ---- */

static rcv_status merge_symbols(rcvi_merger *m) {
    m->heap_count = 0;
    for (size_t i = 0; i + 1 < m->symbol_count; i++) RCVI_TRY(push(m, (int32_t)i));
    while (m->heap_count > 0) {
        const rcvi_merge_candidate c = pop(m);
        rcvi_piece *left = &m->symbols[c.at];
        if (left->token < 0 || left->next < 0) continue;
        rcvi_piece *right = &m->symbols[left->next];
        const rcvi_merge *merge = rcvi_tokenizer_merge(m->tokenizer, left->token, right->token);
        if (!merge || merge->merged != c.merged) continue;
        left->token = c.merged;
        left->next = right->next;
        right->token = -1;
        if (left->next >= 0) m->symbols[left->next].before = c.at;
        RCVI_TRY(push(m, left->before));
        RCVI_TRY(push(m, c.at));
    }
    return RCV_OK;
}

static rcv_status take_tokens(rcvi_merger *m) {
    m->token_count = 0;
    if (!rcvi_grow(m->context, &m->tokens, &m->token_capacity, m->symbol_count + 1, sizeof *m->tokens))
        return RCV_NO_MEMORY;
    for (int32_t at = m->symbol_count > 0 ? 0 : -1; at >= 0; at = m->symbols[at].next)
        m->tokens[m->token_count++] = m->symbols[at].token;
    return RCV_OK;
}

/* The token of the whole word; -1: none. */
static rcv_status find_whole(rcvi_merger *m, const char *word, size_t length, int32_t *token) {
    m->spelling.length = 0;
    for (size_t at = 0, step = 1; at < length; at += step) {
        if (!m->tokenizer->byte_level) (void)rcvi_utf8_next(word + at, &step);
        spell(m, word + at, step);
    }
    if (m->spelling.failed) return rcvi_no_memory(length);
    *token = rcvi_tokenizer_find(m->tokenizer, m->words, m->spelling.bytes, m->spelling.length);
    return RCV_OK;
}

rcv_status rcvi_merge_word(rcvi_merger *m, const char *word, size_t length) {
    int32_t whole = -1;
    if (m->tokenizer->ignore_merges) RCVI_TRY(find_whole(m, word, length, &whole));
    if (whole >= 0) {
        m->symbol_count = 0;
        RCVI_TRY(add_symbol(m, whole));
        return take_tokens(m);
    }
    RCVI_TRY(make_symbols(m, word, length));
    RCVI_TRY(merge_symbols(m));
    return take_tokens(m);
}
