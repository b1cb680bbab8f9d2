/* Reading of a tokenizer.json: what is done to a text before its words are split into tokens, and how tokens become text again. */
#include "data/vocabulary/tokenizer.h"

#include "data/vocabulary/unicode.h"

#include <string.h>

typedef struct {
    rcvi_tokenizer *t;
    const char *name; /* of the file */
} reader;

typedef rcv_status read_component(reader *r, const json_t *component);

typedef struct {
    const char *type;
    read_component *read;
} component;

static rcv_status unsupported(const reader *r, const char *what, const char *type) {
    return rcvi_fail(RCV_UNSUPPORTED, "%s: the %s %.60s is not supported", r->name, what,
                     type ? type : "without a type");
}

static bool is(const json_t *object, const char *key, const char *value) {
    const char *text = json_string_value(json_object_get(object, key));
    return text && strcmp(text, value) == 0;
}

/* A member that is true where it is missing. */
static bool is_not_false(const json_t *object, const char *key) { return !json_is_false(json_object_get(object, key)); }

/* A component by the table; of type Sequence its elements, which the member `list` has. */
static rcv_status read_one(reader *r, const json_t *value, const char *what, const char *list, const component *table,
                           size_t count) {
    const char *type = json_string_value(json_object_get(value, "type"));
    if (!value || json_is_null(value)) return RCV_OK;
    if (type && strcmp(type, "Sequence") == 0) {
        const json_t *elements = json_object_get(value, list);
        for (size_t i = 0; i < json_array_size(elements); i++) {
            const json_t *element = json_array_get(elements, i);
            if (is(element, "type", "Sequence")) return unsupported(r, what, "Sequence in a Sequence");
            RCVI_TRY(read_one(r, element, what, list, table, count));
        }
        return RCV_OK;
    }
    for (size_t i = 0; i < count && type; i++)
        if (strcmp(type, table[i].type) == 0) return table[i].read ? table[i].read(r, value) : RCV_OK;
    return unsupported(r, what, type);
}

/* ---- normalizer ---- */

static rcv_status read_nfc(reader *r, const json_t *value) {
    (void)value;
    r->t->normal_form = true;
    return RCV_OK;
}

static const component normalizers[] = {{"NFC", read_nfc}};

/* ---- pre_tokenizer ---- */

static rcv_status add_stage(reader *r, rcvi_text_split split, rcvi_prefix prefix) {
    rcvi_tokenizer *t = r->t;
    if (t->byte_level || t->metaspace)
        return unsupported(r, "pre_tokenizer", t->byte_level ? "behind ByteLevel" : "behind Metaspace");
    if (t->stage_count == RCVI_MOST_STAGES) return unsupported(r, "pre_tokenizer", "Sequence of more than 8");
    t->stages[t->stage_count++] = (rcvi_pretokenizer){split, prefix};
    return RCV_OK;
}

static rcv_status read_byte_level(reader *r, const json_t *value) {
    RCVI_TRY(add_stage(r, is_not_false(value, "use_regex") ? RCVI_SPLIT_GPT2 : RCVI_SPLIT_NONE,
                       is_not_false(value, "add_prefix_space") ? RCVI_PREFIX_ALWAYS : RCVI_PREFIX_NEVER));
    r->t->byte_level = true;
    return RCV_OK;
}

static rcv_status read_words(reader *r, const json_t *value) {
    (void)value;
    return add_stage(r, RCVI_SPLIT_WORDS, RCVI_PREFIX_NEVER);
}

static rcv_status read_white_space(reader *r, const json_t *value) {
    (void)value;
    return add_stage(r, RCVI_SPLIT_WHITE_SPACE, RCVI_PREFIX_NEVER);
}

static rcv_status read_digits(reader *r, const json_t *value) {
    const bool single = json_is_true(json_object_get(value, "individual_digits"));
    return add_stage(r, single ? RCVI_SPLIT_DIGITS : RCVI_SPLIT_NUMBERS, RCVI_PREFIX_NEVER);
}

/* The replacement and when a space is put before a text, of a pre_tokenizer and of a decoder. */
static rcv_status metaspace_prefix(const reader *r, const json_t *value, rcvi_prefix *prefix) {
    static const char *const schemes[] = {
        [RCVI_PREFIX_NEVER] = "never", [RCVI_PREFIX_FIRST] = "first", [RCVI_PREFIX_ALWAYS] = "always"};
    const json_t *scheme = json_object_get(value, "prepend_scheme");
    if (!is(value, "replacement", RCVI_METASPACE))
        return unsupported(r, "Metaspace", "with another replacement than U+2581");
    if (!scheme) {
        *prefix = is_not_false(value, "add_prefix_space") ? RCVI_PREFIX_ALWAYS : RCVI_PREFIX_NEVER;
        return RCV_OK;
    }
    for (int i = 0; i <= RCVI_PREFIX_ALWAYS; i++) {
        *prefix = (rcvi_prefix)i;
        if (is(value, "prepend_scheme", schemes[i])) return RCV_OK;
    }
    return unsupported(r, "prepend_scheme of Metaspace,", json_string_value(scheme));
}

static rcv_status read_metaspace(reader *r, const json_t *value) {
    rcvi_prefix prefix = RCVI_PREFIX_NEVER;
    RCVI_TRY(metaspace_prefix(r, value, &prefix));
    if (!is_not_false(value, "split"))
        return unsupported(r, "pre_tokenizer", "Metaspace with \"split\": false, which makes one word of a text,");
    RCVI_TRY(add_stage(r, RCVI_SPLIT_METASPACE, prefix));
    r->t->metaspace = true;
    return RCV_OK;
}

/* The patterns match every text as a whole, so their matches are the pre-tokens, and nothing lies between. */
static rcv_status read_split(reader *r, const json_t *value) {
    const char *pattern = json_string_value(json_object_get(json_object_get(value, "pattern"), "Regex"));
    const bool removed = is(value, "behavior", "Removed"), inverted = json_is_true(json_object_get(value, "invert"));
    const rcvi_text_split split = pattern ? rcvi_split_of_pattern(pattern) : RCVI_SPLIT_NONE;
    if (split == RCVI_SPLIT_NONE)
        return rcvi_fail(
            RCV_UNSUPPORTED,
            "%s: the pre_tokenizer Split has a pattern that is none of GPT-2, GPT-4, Llama 3 and Qwen 2; no "
            "other is supported",
            r->name);
    if (removed ? !inverted : !is(value, "behavior", "Isolated"))
        return unsupported(r, "pre_tokenizer", "Split with this behavior");
    return add_stage(r, split, RCVI_PREFIX_NEVER);
}

static const component pre_tokenizers[] = {
    {"ByteLevel", read_byte_level}, {"Whitespace", read_words}, {"WhitespaceSplit", read_white_space},
    {"Metaspace", read_metaspace},  {"Split", read_split},      {"Digits", read_digits},
};

static rcv_status check_stages(const reader *r) {
    for (size_t i = 0; i < r->t->stage_count; i++)
        if (r->t->stages[i].split != RCVI_SPLIT_NONE) return RCV_OK;
    return rcvi_fail(RCV_UNSUPPORTED,
                     "%s: there is no pre_tokenizer that splits a text into words; one word a text is not supported",
                     r->name);
}

/* ---- decoder ---- */

static rcv_status decode_byte_level(reader *r, const json_t *value) {
    (void)value;
    r->t->decoder.byte_level = true;
    return RCV_OK;
}

static rcv_status decode_byte_fallback(reader *r, const json_t *value) {
    (void)value;
    r->t->decoder.byte_fallback = true;
    return RCV_OK;
}

static rcv_status decode_metaspace(reader *r, const json_t *value) {
    rcvi_prefix prefix = RCVI_PREFIX_NEVER;
    RCVI_TRY(metaspace_prefix(r, value, &prefix));
    r->t->decoder.metaspace = true;
    r->t->decoder.strips_first = prefix != RCVI_PREFIX_NEVER;
    return RCV_OK;
}

static rcv_status decode_words(reader *r, const json_t *value) {
    rcvi_decoder *d = &r->t->decoder;
    const json_t *suffix = json_object_get(value, "suffix");
    if (!json_string_length(suffix)) return unsupported(r, "decoder", "BPEDecoder without a suffix");
    rcvi_free(r->t->context, d->suffix);
    d->suffix = rcvi_copy_text(r->t->context, json_string_value(suffix), json_string_length(suffix));
    return d->suffix ? RCV_OK : RCV_NO_MEMORY;
}

static rcv_status decode_replace(reader *r, const json_t *value) {
    if (!is(json_object_get(value, "pattern"), "String", RCVI_METASPACE) || !is(value, "content", " "))
        return unsupported(r, "decoder", "Replace of something other than U+2581");
    r->t->decoder.metaspace = true;
    return RCV_OK;
}

static rcv_status decode_strip(reader *r, const json_t *value) {
    if (!is(value, "content", " ") || json_integer_value(json_object_get(value, "start")) != 1 ||
        json_integer_value(json_object_get(value, "stop")) != 0)
        return unsupported(r, "decoder", "Strip of something other than one space at the beginning");
    r->t->decoder.strips_first = true;
    return RCV_OK;
}

static const component decoders[] = {
    {"ByteLevel", decode_byte_level},
    {"Metaspace", decode_metaspace},
    {"BPEDecoder", decode_words},
    {"Replace", decode_replace},
    {"Strip", decode_strip},
    {"ByteFallback", decode_byte_fallback},
    {"Fuse", NULL},
};

/* Where the file has no decoder, that of the pre_tokenizer. */
static void choose_decoder(rcvi_tokenizer *t) {
    t->decoder.byte_level = t->byte_level;
    t->decoder.metaspace = t->decoder.strips_first = t->metaspace;
    if (t->metaspace) t->decoder.strips_first = t->stages[t->stage_count - 1].prefix != RCVI_PREFIX_NEVER;
    t->decoder.byte_fallback = t->byte_fallback;
    t->decoder.joins = !t->byte_level && !t->metaspace;
}

#define READ(r, file, what, list, table)                                                                               \
    read_one(r, json_object_get(file, what), what, list, table, sizeof(table) / sizeof *(table))

rcv_status rcvi_tokenizer_read_pipeline(rcvi_tokenizer *t, const json_t *file, const char *name) {
    reader r = {t, name};
    const json_t *decoder = json_object_get(file, "decoder");
    RCVI_TRY(READ(&r, file, "normalizer", "normalizers", normalizers));
    RCVI_TRY(READ(&r, file, "pre_tokenizer", "pretokenizers", pre_tokenizers));
    RCVI_TRY(check_stages(&r));
    if (decoder && !json_is_null(decoder)) return READ(&r, file, "decoder", "decoders", decoders);
    choose_decoder(t);
    return RCV_OK;
}

/* ---- text of a token ---- */

static bool add_as_bytes(const char *name, size_t length, rcvi_text *out) {
    for (size_t at = 0, step; at < length; at += step)
        if (rcvi_character_byte(rcvi_utf8_next(name + at, &step)) < 0) return false;
    for (size_t at = 0, step; at < length; at += step) {
        const char byte = (char)rcvi_character_byte(rcvi_utf8_next(name + at, &step));
        rcvi_text_add_bytes(out, &byte, 1);
    }
    return true;
}

static int hexadecimal(char c) {
    const char *found = c ? strchr("0123456789ABCDEF", c) : NULL;
    return found ? (int)(found - "0123456789ABCDEF") : -1;
}

/* name = <0xHH> */
static bool add_fallback(const char *name, size_t length, rcvi_text *out) {
    if (length != 6 || memcmp(name, "<0x", 3) != 0 || name[5] != '>') return false;
    const int high = hexadecimal(name[3]), low = hexadecimal(name[4]);
    if (high < 0 || low < 0) return false;
    const char byte = (char)(high << 4 | low);
    rcvi_text_add_bytes(out, &byte, 1);
    return true;
}

/* The name with spaces for U+2581, without the suffix of a word's end. */
static void add_characters(const rcvi_decoder *d, const char *name, size_t length, bool is_first, rcvi_text *out) {
    const size_t mark = strlen(RCVI_METASPACE), suffix = d->suffix ? strlen(d->suffix) : 0;
    for (size_t at = 0, step; at < length; at += step) {
        const bool is_space = d->metaspace && length - at >= mark && memcmp(name + at, RCVI_METASPACE, mark) == 0;
        const bool is_suffix = suffix > 0 && length - at >= suffix && memcmp(name + at, d->suffix, suffix) == 0;
        step = is_space ? mark : is_suffix ? suffix : 1;
        if (is_suffix ? at + step < length : is_space && (at > 0 || !is_first || !d->strips_first))
            rcvi_text_add_bytes(out, " ", 1);
        else if (!is_suffix && !is_space)
            rcvi_text_add_bytes(out, name + at, 1);
    }
}

static bool ends_word(const rcvi_decoder *d, const rcvi_words *words, int64_t token) {
    size_t length, suffix = d->suffix ? strlen(d->suffix) : 0;
    const char *name = rcvi_words_at(words, token, &length);
    return name && suffix > 0 && length >= suffix && memcmp(name + length - suffix, d->suffix, suffix) == 0;
}

void rcvi_tokenizer_decode(const rcvi_tokenizer *t, const rcvi_words *words, int64_t before, int64_t token,
                           rcvi_text *out) {
    const rcvi_decoder *d = &t->decoder;
    size_t length;
    const char *name = rcvi_words_at(words, token, &length);
    if (!name || !t->kinds[token]) return; /* a number without a token */
    if (before >= 0 && (d->joins || ends_word(d, words, before))) rcvi_text_add_bytes(out, " ", 1);
    if (d->byte_level && add_as_bytes(name, length, out)) return;
    if (d->byte_fallback && add_fallback(name, length, out)) return;
    add_characters(d, name, length, before < 0, out);
}
