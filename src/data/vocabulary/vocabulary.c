/* Vocabularies: the 256 bytes, words, characters or pieces, numbered from 0. */
#include "data/vocabulary/encoder.h"
#include "data/vocabulary/tokenizer.h"

#include <string.h>

static rcv_status new_vocabulary(rcv_context *context, rcv_level level, rcv_vocabulary **vocabulary) {
    *vocabulary = rcvi_new(context, 1, sizeof **vocabulary);
    if (!*vocabulary) return RCV_NO_MEMORY;
    (*vocabulary)->context = context;
    (*vocabulary)->level = level;
    rcvi_words_init(&(*vocabulary)->words, context);
    return RCV_OK;
}

/* Last step of construction: finds <eos> and <unk>; frees the vocabulary after a failure. */
static rcv_status finish_vocabulary(rcv_status status, rcv_vocabulary **vocabulary) {
    rcv_vocabulary *made = *vocabulary;
    if (status) {
        rcv_vocabulary_free(made);
        *vocabulary = NULL;
        return status;
    }
    const char *eos = made->level == RCV_LEVEL_WORD ? RCVI_EOS : "\n";
    made->eos = made->tokenizer ? made->tokenizer->eos : rcvi_words_find(&made->words, eos, strlen(eos));
    made->unk = made->tokenizer ? made->tokenizer->unk : rcvi_words_find(&made->words, RCVI_UNK, strlen(RCVI_UNK));
    return RCV_OK;
}

static rcv_status add_bytes(rcvi_words *words) {
    for (int i = 0; i < 256; i++) {
        char byte = (char)i;
        RCVI_TRY(rcvi_words_count(words, &byte, 1, 0, NULL));
    }
    return RCV_OK;
}

rcv_status rcv_vocabulary_bytes(rcv_context *context, rcv_vocabulary **vocabulary) {
    RCVI_NEED(context, "context");
    RCVI_NEED(vocabulary, "vocabulary");
    RCVI_TRY(new_vocabulary(context, RCV_LEVEL_BYTE, vocabulary));
    return finish_vocabulary(add_bytes(&(*vocabulary)->words), vocabulary);
}

typedef struct {
    rcvi_words *words;
    const char *name;
    int64_t line, on_line; /* words of this line so far */
} listing;

/* line = word newline */
static rcv_status list_word(void *user, const char *word, size_t length, int64_t offset) {
    listing *list = user;
    (void)offset;
    if (!word) {
        if (list->on_line != 1)
            return rcvi_fail(RCV_FORMAT, "%s: line %lld has %s; a vocabulary has one word per line", list->name,
                             (long long)list->line, list->on_line ? "several words" : "no word");
        list->line++;
        list->on_line = 0;
        return RCV_OK;
    }
    int64_t before = list->words->size, number;
    RCVI_TRY(rcvi_words_count(list->words, word, length, 0, &number));
    if (number < before)
        return rcvi_fail(RCV_FORMAT, "%s: line %lld repeats the word '%.*s' of line %lld", list->name,
                         (long long)list->line, (int)(length < 60 ? length : 60), word, (long long)number + 1);
    list->on_line++;
    return RCV_OK;
}

static rcv_status parse_words(rcvi_words *words, const char *text, size_t length, const char *name) {
    listing list = {.words = words, .name = name, .line = 1};
    RCVI_TRY(rcvi_text_words(text, length, name, list_word, &list));
    return words->size ? RCV_OK : rcvi_fail(RCV_FORMAT, "%s holds no words; a vocabulary has one word per line", name);
}

/* A tokenizer.json, or words if the text is not JSON in spite of its beginning. The message is that of the more likely format. */
static rcv_status parse_json(rcv_vocabulary *vocabulary, const char *text, size_t length, const char *name) {
    bool is_json;
    rcv_status status = rcvi_tokenizer_parse(vocabulary->context, text, length, name, &vocabulary->words, &is_json,
                                             &vocabulary->tokenizer);
    if (!status) vocabulary->level = RCV_LEVEL_PIECE;
    if (!status || status == RCV_NO_MEMORY || is_json) return status;
    if (memchr(text, '\0', length) == NULL && !parse_words(&vocabulary->words, text, length, name)) return RCV_OK;
    rcvi_words_free(&vocabulary->words);
    return rcvi_tokenizer_parse(vocabulary->context, text, length, name, &vocabulary->words, &is_json,
                                &vocabulary->tokenizer);
}

static rcv_status parse_any(rcv_vocabulary *vocabulary, const char *text, size_t length, const char *name) {
    if (rcvi_tokenizer_is_json(text, length)) return parse_json(vocabulary, text, length, name);
    if (!rcvi_characters_are(text, length)) return parse_words(&vocabulary->words, text, length, name);
    vocabulary->level = RCV_LEVEL_CHARACTER;
    return rcvi_characters_parse(text, length, name, &vocabulary->words);
}

rcv_status rcv_vocabulary_parse(rcv_context *context, const char *text, size_t length, const char *name,
                                rcv_vocabulary **vocabulary) {
    RCVI_NEED(vocabulary, "vocabulary");
    *vocabulary = NULL;
    RCVI_NEED(context, "context");
    RCVI_NEED(text || length == 0, "text");
    RCVI_NEED(name, "name");
    RCVI_TRY(new_vocabulary(context, RCV_LEVEL_WORD, vocabulary));
    return finish_vocabulary(parse_any(*vocabulary, text, length, name), vocabulary);
}

rcv_status rcv_vocabulary_load(rcv_context *context, const char *path, rcv_vocabulary **vocabulary) {
    RCVI_NEED(context, "context");
    RCVI_NEED(path, "path");
    RCVI_NEED(vocabulary, "vocabulary");
    *vocabulary = NULL;
    char *text;
    size_t length;
    RCVI_TRY(rcvi_read_file(context, path, RCVI_LIMIT_VOCABULARY, &text, &length));
    rcv_status status = rcv_vocabulary_parse(context, text, length, path, vocabulary);
    rcvi_free(context, text);
    return status;
}

static rcv_status copy_words(const rcvi_words *from, rcvi_words *to) {
    for (int64_t i = 0; i < from->size; i++) {
        size_t length;
        const char *word = rcvi_words_at(from, i, &length);
        RCVI_TRY(rcvi_words_count(to, word, length, from->counts[i], NULL));
    }
    return RCV_OK;
}

rcv_status rcvi_vocabulary_copy(const rcv_vocabulary *from, rcv_vocabulary **vocabulary) {
    RCVI_TRY(new_vocabulary(from->context, from->level, vocabulary));
    (*vocabulary)->tokenizer = rcvi_tokenizer_share(from->tokenizer);
    return finish_vocabulary(copy_words(&from->words, &(*vocabulary)->words), vocabulary);
}

static bool is_more_frequent(const rcvi_words *words, int64_t a, int64_t b) {
    if (words->counts[a] != words->counts[b]) return words->counts[a] > words->counts[b];
    return rcvi_words_compare(words, a, b) < 0;
}

static rcv_status rank_words(const rcvi_words *counted, rcvi_words *words) {
    RCVI_TRY(rcvi_words_sort(counted, is_more_frequent, words));
    return rcvi_words_count(words, RCVI_UNK, strlen(RCVI_UNK), 0, NULL);
}

rcv_status rcvi_vocabulary_rank(const rcvi_words *counted, rcv_level level, rcv_vocabulary **vocabulary) {
    RCVI_TRY(new_vocabulary(counted->context, level, vocabulary));
    rcvi_words *words = &(*vocabulary)->words;
    return finish_vocabulary(
        level == RCV_LEVEL_CHARACTER ? rcvi_characters_rank(counted, words) : rank_words(counted, words), vocabulary);
}

bool rcvi_level_is_counted(rcv_level level) { return level == RCV_LEVEL_WORD || level == RCV_LEVEL_CHARACTER; }

void rcv_vocabulary_free(rcv_vocabulary *vocabulary) {
    if (!vocabulary) return;
    rcvi_words_free(&vocabulary->words);
    rcvi_tokenizer_free(vocabulary->tokenizer);
    rcvi_free(vocabulary->context, vocabulary);
}

rcv_level rcv_vocabulary_level(const rcv_vocabulary *vocabulary) { return vocabulary->level; }
int64_t rcv_vocabulary_size(const rcv_vocabulary *vocabulary) { return vocabulary->words.size; }

int64_t rcv_vocabulary_line_end(const rcv_vocabulary *vocabulary) { return vocabulary->eos; }

const char *rcv_vocabulary_token(const rcv_vocabulary *vocabulary, int64_t token, size_t *length) {
    size_t bytes;
    const char *word = rcvi_words_at(&vocabulary->words, token, &bytes);
    if (length) *length = bytes;
    return word;
}

int64_t rcv_vocabulary_find(const rcv_vocabulary *vocabulary, const char *word, size_t length) {
    return word ? rcvi_words_find(&vocabulary->words, word, length) : -1;
}

static void print_words(const rcvi_words *words, rcvi_text *out) {
    for (int64_t i = 0; i < words->size; i++) {
        size_t length;
        const char *word = rcvi_words_at(words, i, &length);
        rcvi_text_add_bytes(out, word, length);
        rcvi_text_add_bytes(out, "\n", 1);
    }
}

rcv_status rcv_vocabulary_print(const rcv_vocabulary *vocabulary, char **text) {
    RCVI_NEED(text, "text");
    *text = NULL;
    RCVI_NEED(vocabulary, "vocabulary");
    if (vocabulary->level == RCV_LEVEL_BYTE)
        return rcvi_fail(RCV_INVALID, "a vocabulary of bytes has no words to print");
    rcvi_text out;
    rcvi_text_init(&out, vocabulary->context);
    if (vocabulary->tokenizer) {
        rcvi_text_add(&out, "%s", vocabulary->tokenizer->json);
    } else if (vocabulary->level == RCV_LEVEL_CHARACTER) {
        rcvi_characters_print(&vocabulary->words, &out);
    } else {
        print_words(&vocabulary->words, &out);
    }
    return rcvi_text_take(&out, text);
}

uint64_t rcvi_vocabulary_hash(const rcv_vocabulary *vocabulary) {
    uint64_t hash = 1 + (uint64_t)vocabulary->level;
    const char *json = vocabulary->tokenizer ? vocabulary->tokenizer->json : NULL;
    if (json) return rcvi_hash_chunk(hash, json, strlen(json));
    for (int64_t i = 0; i < vocabulary->words.size; i++) {
        size_t length;
        const char *word = rcvi_words_at(&vocabulary->words, i, &length);
        hash = rcvi_hash_chunk(hash, word, length);
    }
    return hash;
}
