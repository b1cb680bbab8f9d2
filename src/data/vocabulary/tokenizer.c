/* Reading of a tokenizer.json: vocabulary, merges and added tokens. */
#include "data/vocabulary/tokenizer.h"

#include "data/vocabulary/unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint64_t EMPTY_PAIR = UINT64_MAX;
enum { MOST_GAPS = 1 << 16 }; /* of token numbers without a token, beside as many as there are tokens */

typedef struct {
    rcvi_tokenizer *t;
    rcvi_words *words;
    const char *name;   /* of the file */
    const char **names; /* [size] by number; NULL: there is no such token */
    int64_t size;
} reader;

/* ---- memory ---- */

rcvi_tokenizer *rcvi_tokenizer_share(rcvi_tokenizer *t) {
    if (t) atomic_fetch_add(&t->references, 1);
    return t;
}

void rcvi_tokenizer_free(rcvi_tokenizer *t) {
    if (!t || atomic_fetch_sub(&t->references, 1) > 1) return;
    rcvi_free(t->context, t->json);
    rcvi_free(t->context, t->kinds);
    rcvi_free(t->context, t->merges);
    rcvi_free(t->context, t->suffix);
    rcvi_free(t->context, t->decoder.suffix);
    for (size_t i = 0; i < t->added_count; i++) rcvi_free(t->context, t->added[i].content);
    rcvi_free(t->context, t->added);
    rcvi_free(t->context, t);
}

/* ---- bytes as characters ---- */

/* GPT-2's table: printable bytes of Latin-1 stand for themselves, the others for the characters from U+0100 on. */
static bool is_printable(int byte) {
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || (byte >= 0xae && byte <= 0xff);
}

uint32_t rcvi_byte_character(int byte) {
    if (is_printable(byte)) return (uint32_t)byte;
    uint32_t code = 256;
    for (int before = 0; before < byte; before++) code += !is_printable(before);
    return code;
}

int rcvi_character_byte(uint32_t code) {
    if (code < 256) return is_printable((int)code) ? (int)code : -1;
    for (int byte = 0; code < 256 + 68 && byte < 256; byte++)
        if (!is_printable(byte) && code-- == 256) return byte;
    return -1;
}

/* ---- numbers of tokens ---- */

/* Notes that `token` has this name; refuses a number that is out of range or taken. */
static rcv_status note_name(reader *r, const char *name, const json_t *number, uint8_t kind) {
    if (!json_is_integer(number) || json_integer_value(number) < 0 || json_integer_value(number) >= r->size)
        return rcvi_fail(RCV_FORMAT,
                         "%s: the token '%.60s' has no number from 0 to %lld, which the count of tokens allows",
                         r->name, name, (long long)r->size - 1);
    const json_int_t token = json_integer_value(number);
    if (r->names[token] && strcmp(r->names[token], name) != 0)
        return rcvi_fail(RCV_FORMAT, "%s: the tokens '%.60s' and '%.60s' have the same number %lld", r->name,
                         r->names[token], name, (long long)token);
    r->names[token] = name;
    r->t->kinds[token] |= kind;
    return RCV_OK;
}

static rcv_status note_vocabulary(reader *r, json_t *vocabulary) {
    const char *name;
    json_t *number;
    json_object_foreach(vocabulary, name, number) {
        if (!name[0]) return rcvi_fail(RCV_FORMAT, "%s: the vocabulary has an empty token", r->name);
        RCVI_TRY(note_name(r, name, number, RCVI_IN_MODEL));
    }
    return RCV_OK;
}

static rcv_status note_added(reader *r, const json_t *vocabulary, const json_t *added) {
    size_t i;
    json_t *entry;
    json_array_foreach(added, i, entry) {
        const char *content = json_string_value(json_object_get(entry, "content"));
        const json_t *number = json_object_get(entry, "id"), *own;
        if (!content || !content[0])
            return rcvi_fail(RCV_FORMAT, "%s: element %zu of added_tokens has no content", r->name, i);
        own = json_object_get(vocabulary, content);
        if (own && !json_equal(own, number))
            return rcvi_fail(RCV_FORMAT, "%s: the added token '%.60s' has another number in the vocabulary", r->name,
                             content);
        RCVI_TRY(note_name(r, content, number, RCVI_IS_ADDED));
    }
    return RCV_OK;
}

/* Numbers without a token have names that no text has. */
static rcv_status number_words(reader *r) {
    for (int64_t i = 0; i < r->size; i++) {
        char unused[24] = "";
        const int length = snprintf(unused + 1, sizeof unused - 1, "%lld", (long long)i);
        const char *name = r->names[i] ? r->names[i] : unused;
        int64_t number;
        RCVI_TRY(rcvi_words_count(r->words, name, r->names[i] ? strlen(name) : (size_t)length + 1, 0, &number));
        if (number != i)
            return rcvi_fail(RCV_FORMAT, "%s: the token '%.60s' has two numbers, %lld and %lld", r->name, name,
                             (long long)number, (long long)i);
    }
    return RCV_OK;
}

/* The numbers end behind the largest one. */
static int64_t count_numbers(json_t *vocabulary, const json_t *added) {
    json_int_t largest = -1;
    const char *name;
    json_t *value;
    size_t i;
    json_object_foreach(vocabulary, name, value) if (json_integer_value(value) > largest) largest =
        json_integer_value(value);
    json_array_foreach(added, i, value) {
        const json_int_t number = json_integer_value(json_object_get(value, "id"));
        if (number > largest) largest = number;
    }
    const int64_t known = (int64_t)(json_object_size(vocabulary) + json_array_size(added));
    return largest + 1 <= 2 * known + MOST_GAPS ? largest + 1 : 2 * known + MOST_GAPS;
}

static rcv_status read_tokens(reader *r, json_t *vocabulary, const json_t *added) {
    rcv_context *context = r->t->context;
    r->size = count_numbers(vocabulary, added);
    if (r->size <= 0 || json_object_size(vocabulary) == 0)
        return rcvi_fail(RCV_FORMAT, "%s: the vocabulary of the model is empty", r->name);
    r->names = rcvi_new(context, (size_t)r->size, sizeof *r->names);
    r->t->kinds = rcvi_new(context, (size_t)r->size, 1);
    if (!r->names || !r->t->kinds) return RCV_NO_MEMORY;
    RCVI_TRY(note_vocabulary(r, vocabulary));
    RCVI_TRY(note_added(r, vocabulary, added));
    return number_words(r);
}

int32_t rcvi_tokenizer_find(const rcvi_tokenizer *t, const rcvi_words *words, const char *name, size_t length) {
    const int64_t found = rcvi_words_find(words, name, length);
    return found >= 0 && t->kinds[found] & RCVI_IN_MODEL ? (int32_t)found : -1;
}

/* ---- merges ---- */

static size_t slot_of(const rcvi_tokenizer *t, uint64_t pair) {
    const uint64_t hash = (pair ^ pair >> 29) * UINT64_C(0x9e3779b97f4a7c15);
    size_t mask = t->merge_slots - 1, slot = (size_t)(hash >> 32) & mask;
    while (t->merges[slot].pair != EMPTY_PAIR && t->merges[slot].pair != pair) slot = (slot + 1) & mask;
    return slot;
}

const rcvi_merge *rcvi_tokenizer_merge(const rcvi_tokenizer *t, int32_t left, int32_t right) {
    if (t->merge_slots == 0) return NULL;
    const uint64_t pair = (uint64_t)left << 32 | (uint32_t)right;
    const rcvi_merge *merge = &t->merges[slot_of(t, pair)];
    return merge->pair == pair ? merge : NULL;
}

/* merge = "left right" | [left, right] */
static bool split_merge(const json_t *merge, const char **left, size_t *left_length, const char **right,
                        size_t *right_length) {
    if (json_is_array(merge) && json_array_size(merge) == 2) {
        *left = json_string_value(json_array_get(merge, 0));
        *right = json_string_value(json_array_get(merge, 1));
        *left_length = *left ? strlen(*left) : 0;
    } else {
        const char *text = json_string_value(merge), *space = text ? strchr(text, ' ') : NULL;
        if (!space || strchr(space + 1, ' ')) return false;
        *left = text;
        *left_length = (size_t)(space - text);
        *right = space + 1;
    }
    *right_length = *right ? strlen(*right) : 0;
    return *left_length > 0 && *right_length > 0;
}

static rcv_status read_merge(reader *r, const json_t *merge, size_t rank, rcvi_text *joined) {
    const char *left = NULL, *right = NULL;
    size_t left_length = 0, right_length = 0;
    if (!split_merge(merge, &left, &left_length, &right, &right_length))
        return rcvi_fail(RCV_FORMAT, "%s: merge %zu is neither \"LEFT RIGHT\" nor [\"LEFT\", \"RIGHT\"]", r->name,
                         rank);
    joined->length = 0;
    rcvi_text_add_bytes(joined, left, left_length);
    rcvi_text_add_bytes(joined, right, right_length);
    if (joined->failed) return RCV_NO_MEMORY;
    const int32_t a = rcvi_tokenizer_find(r->t, r->words, left, left_length),
                  b = rcvi_tokenizer_find(r->t, r->words, right, right_length),
                  both = rcvi_tokenizer_find(r->t, r->words, joined->bytes, joined->length);
    if (a < 0 || b < 0 || both < 0)
        return rcvi_fail(RCV_FORMAT, "%s: merge %zu of '%.*s' and '%.60s' has a token that is not in the vocabulary",
                         r->name, rank, (int)(left_length < 60 ? left_length : 60), left, right);
    const uint64_t pair = (uint64_t)a << 32 | (uint32_t)b;
    r->t->merges[slot_of(r->t, pair)] = (rcvi_merge){pair, (int32_t)rank, both};
    return RCV_OK;
}

static rcv_status read_merges(reader *r, const json_t *merges) {
    const size_t count = json_array_size(merges);
    rcvi_tokenizer *t = r->t;
    if (!json_is_array(merges)) return rcvi_fail(RCV_FORMAT, "%s: the model has no list of merges", r->name);
    if (count > INT32_MAX / 4) return rcvi_fail(RCV_UNSUPPORTED, "%s: the model has too many merges", r->name);
    size_t slots = count > 0 ? 4 : 0;
    while (slots < 2 * count) slots *= 2;
    t->merges = rcvi_new(t->context, slots, sizeof *t->merges);
    if (!t->merges) return RCV_NO_MEMORY;
    t->merge_slots = slots;
    for (size_t i = 0; i < slots; i++) t->merges[i].pair = EMPTY_PAIR;
    rcvi_text joined;
    rcvi_text_init(&joined, t->context);
    rcv_status status = RCV_OK;
    for (size_t i = 0; i < count && !status; i++) status = read_merge(r, json_array_get(merges, i), i, &joined);
    rcvi_text_drop(&joined);
    return status == RCV_NO_MEMORY ? rcvi_no_memory(0) : status;
}

/* ---- the model's other members ---- */

static bool is_empty_text(const json_t *value) {
    return !value || json_is_null(value) || (json_is_string(value) && !json_string_value(value)[0]);
}

static rcv_status read_unknown(reader *r, const json_t *model) {
    const char *unknown = json_string_value(json_object_get(model, "unk_token"));
    r->t->unk = unknown ? rcvi_tokenizer_find(r->t, r->words, unknown, strlen(unknown)) : -1;
    if (unknown && r->t->unk < 0)
        return rcvi_fail(RCV_FORMAT, "%s: the unk_token '%.60s' is not in the vocabulary", r->name, unknown);
    return RCV_OK;
}

static rcv_status read_options(reader *r, const json_t *model) {
    rcvi_tokenizer *t = r->t;
    if (json_number_value(json_object_get(model, "dropout")) != 0)
        return rcvi_fail(
            RCV_UNSUPPORTED,
            "%s: the model's dropout, which draws other tokens every time, is not supported; set it to null", r->name);
    if (!is_empty_text(json_object_get(model, "continuing_subword_prefix")))
        return rcvi_fail(RCV_UNSUPPORTED, "%s: continuing_subword_prefix is not supported", r->name);
    t->fuse_unk = json_is_true(json_object_get(model, "fuse_unk"));
    t->byte_fallback = json_is_true(json_object_get(model, "byte_fallback"));
    t->ignore_merges = json_is_true(json_object_get(model, "ignore_merges"));
    const json_t *suffix = json_object_get(model, "end_of_word_suffix");
    if (!is_empty_text(suffix)) {
        t->suffix = rcvi_copy_text(t->context, json_string_value(suffix), json_string_length(suffix));
        if (!t->suffix) return RCV_NO_MEMORY;
    }
    return read_unknown(r, model);
}

/* ---- added tokens ---- */

static int by_length(const void *a, const void *b) {
    const rcvi_added *x = a, *y = b;
    return (x->length < y->length) - (x->length > y->length);
}

static rcv_status read_added_token(reader *r, const json_t *entry, rcvi_added *added) {
    rcvi_tokenizer *t = r->t;
    const char *content = json_string_value(json_object_get(entry, "content"));
    if (json_is_true(json_object_get(entry, "single_word")))
        return rcvi_fail(RCV_UNSUPPORTED, "%s: the added token '%.60s' is a single_word, which is not supported",
                         r->name, content);
    const json_t *normalised = json_object_get(entry, "normalized");
    *added = (rcvi_added){.token = (int32_t)json_integer_value(json_object_get(entry, "id")),
                          .content = rcvi_copy_text(t->context, content, strlen(content)),
                          .length = strlen(content),
                          .pass = json_is_true(normalised) ? RCVI_ADDED_NORMALISED : RCVI_ADDED_RAW,
                          .left = json_is_true(json_object_get(entry, "lstrip")),
                          .right = json_is_true(json_object_get(entry, "rstrip"))};
    if (!added->content) return RCV_NO_MEMORY;
    t->first_bytes[(unsigned char)content[0]] |= (uint8_t)(1 << added->pass);
    t->has_left |= added->left;
    if (added->length > t->longest_added) t->longest_added = added->length;
    return RCV_OK;
}

static rcv_status read_added(reader *r, const json_t *list) {
    rcvi_tokenizer *t = r->t;
    if (list && !json_is_array(list)) return rcvi_fail(RCV_FORMAT, "%s: added_tokens must be a list", r->name);
    t->added = rcvi_new(t->context, json_array_size(list), sizeof *t->added);
    if (!t->added) return RCV_NO_MEMORY;
    for (size_t i = 0; i < json_array_size(list); i++) {
        t->added_count++;
        RCVI_TRY(read_added_token(r, json_array_get(list, i), &t->added[i]));
    }
    qsort(t->added, t->added_count, sizeof *t->added, by_length);
    return RCV_OK;
}

/* The token that ends a line: an added one with a name that is used for it. */
static int32_t find_end(const reader *r) {
    static const char *const names[] = {"<|endoftext|>", "</s>", "<|end_of_text|>", "<eos>", "<|eos|>", "[EOS]"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const int64_t found = rcvi_words_find(r->words, names[i], strlen(names[i]));
        if (found >= 0 && r->t->kinds[found] & RCVI_IS_ADDED) return (int32_t)found;
    }
    return r->t->newline;
}

/* ---- the file ---- */

/* The tokens of single bytes: their characters at byte level, or <0x00> to <0xFF>. */
static void find_bytes(reader *r) {
    rcvi_tokenizer *t = r->t;
    for (int byte = 0; byte < 256; byte++) {
        char name[8];
        size_t length = t->byte_level ? rcvi_utf8_write(rcvi_byte_character(byte), name)
                                      : (size_t)snprintf(name, sizeof name, "<0x%02X>", (unsigned)byte);
        t->byte_tokens[byte] = t->byte_level || t->byte_fallback ? rcvi_tokenizer_find(t, r->words, name, length) : -1;
    }
    const int32_t plain = t->byte_level ? -1 : rcvi_tokenizer_find(t, r->words, "\n", 1);
    t->newline = plain >= 0 ? plain : t->byte_tokens['\n'];
}

static rcv_status check_other_members(const reader *r, const json_t *file) {
    const json_t *truncation = json_object_get(file, "truncation"), *padding = json_object_get(file, "padding");
    if (truncation && !json_is_null(truncation))
        return rcvi_fail(RCV_UNSUPPORTED, "%s: truncation is not supported; set it to null (no_truncation())", r->name);
    if (padding && !json_is_null(padding))
        return rcvi_fail(RCV_UNSUPPORTED, "%s: padding is not supported; set it to null (no_padding())", r->name);
    return RCV_OK;
}

static rcv_status read_file(reader *r, const json_t *file) {
    const json_t *model = json_object_get(file, "model"), *added = json_object_get(file, "added_tokens");
    json_t *vocabulary = json_object_get(model, "vocab");
    const char *type = json_string_value(json_object_get(model, "type"));
    if (!json_is_object(model))
        return rcvi_fail(RCV_FORMAT,
                         "%s is JSON without a \"model\"; a vocabulary is a tokenizer.json, or a list of words",
                         r->name);
    if (type ? strcmp(type, "BPE") != 0 : !json_object_get(model, "merges"))
        return rcvi_fail(RCV_UNSUPPORTED, "%s: the model %.40s is not supported; only BPE (byte-pair encoding) is",
                         r->name, type ? type : "has no type and");
    if (!json_is_object(vocabulary)) return rcvi_fail(RCV_FORMAT, "%s: the model has no vocab", r->name);
    RCVI_TRY(check_other_members(r, file));
    RCVI_TRY(read_tokens(r, vocabulary, added));
    RCVI_TRY(read_merges(r, json_object_get(model, "merges")));
    RCVI_TRY(read_options(r, model));
    RCVI_TRY(rcvi_tokenizer_read_pipeline(r->t, file, r->name));
    if (r->t->byte_level && r->t->byte_fallback)
        return rcvi_fail(RCV_UNSUPPORTED, "%s: byte_fallback with the pre_tokenizer ByteLevel is not supported",
                         r->name);
    RCVI_TRY(read_added(r, added));
    find_bytes(r);
    r->t->eos = find_end(r);
    return RCV_OK;
}

bool rcvi_tokenizer_is_json(const char *text, size_t length) {
    size_t at = 0;
    while (at < length && strchr(" \t\r\n", text[at]) && text[at]) at++;
    if (at >= length || text[at++] != '{') return false;
    while (at < length && strchr(" \t\r\n", text[at]) && text[at]) at++;
    return at < length && text[at] == '"';
}

static rcv_status new_tokenizer(rcv_context *context, const json_t *file, rcvi_tokenizer **tokenizer) {
    rcvi_tokenizer *t = *tokenizer = rcvi_new(context, 1, sizeof *t);
    if (!t) return RCV_NO_MEMORY;
    t->context = context;
    atomic_init(&t->references, 1);
    return rcvi_json_print(context, file, JSON_COMPACT, &t->json);
}

rcv_status rcvi_tokenizer_parse(rcv_context *context, const char *text, size_t length, const char *name,
                                rcvi_words *words, bool *is_json, rcvi_tokenizer **tokenizer) {
    json_error_t error;
    *tokenizer = NULL;
    *is_json = true;
    json_t *file = rcvi_json_read(text, length, JSON_REJECT_DUPLICATES, &error);
    if (!file) {
        if (json_error_code(&error) == json_error_out_of_memory) return rcvi_no_memory(length);
        *is_json = false;
        return rcvi_fail(RCV_FORMAT, "%s: line %d, column %d: %s", name, error.line, error.column, error.text);
    }
    reader r = {.words = words, .name = name};
    rcv_status status = new_tokenizer(context, file, &r.t);
    if (!status) status = read_file(&r, file);
    rcvi_free(context, r.names);
    json_decref(file);
    if (status) {
        rcvi_tokenizer_free(r.t);
        return status;
    }
    *tokenizer = r.t;
    return RCV_OK;
}
