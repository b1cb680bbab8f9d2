/* Checks of a token cache before any of it is used: the hashes and, in the same pass, every number. A forged file may have correct hashes; an unchecked token, label or span
 * of it would index outside an array. */
#include "data/token_cache_file.h"

#include <math.h>
#include <string.h>

typedef struct {
    rcvi_import *import;
    const rcvi_token_cache_header *h;
    int file;
    rcv_vocabulary *vocabulary; /* of the file; NULL if it has none */
    rcvi_words classes;         /* of the file */
    int64_t words, class_count; /* sizes of the vocabulary and the classes, of the import or the file */
    int64_t at, steps, longest; /* of the spans so far */
    int64_t column;             /* of the values so far: outputs of the row that is not complete */
    bool row_is_missing;        /* the first of these is NaN */
    rcvi_group group;           /* the one before; -1, -1: there is none */
    char last;                  /* byte of the names */
    bool no_memory;             /* the check could not be completed */
} check;

/* ---- totals ---- */

static bool is_product(int64_t bytes, int64_t a, int64_t b, int64_t c) {
    int64_t product;
    return rcvi_multiply(a, b, &product) && rcvi_multiply(product, c, &product) && product == bytes;
}

static int64_t token_bytes(int64_t words) { return words <= 256 ? 1 : words <= 65536 ? 2 : 4; }

static bool totals_fit(const check *c) {
    const rcvi_totals *t = &c->h->totals;
    const rcv_data_kind kind = c->import->kind;
    const bool in_text = c->import->level == RCV_LEVEL_BYTE && kind <= RCV_DATA_LINES, stream = kind == RCV_DATA_STREAM;
    const bool examples = !rcvi_kind_is_text(kind), has_tokens = !in_text && t->features == 0;
    const int64_t labelled = rcvi_kind_has_steps(kind) ? t->tokens : t->sequences;
    int64_t labels = rcvi_kind_has_classes(kind) ? 1 : rcvi_kind_has_values(kind) ? t->outputs : 0;
    for (int i = 0; i < RCVI_SECTIONS; i++)
        if (t->bytes[i] != c->h->sections[i].bytes) return false;
    if (t->tokens < 0 || t->sequences < 0 || t->longest < 0 || t->features < 0 || t->outputs < 0) return false;
    if (t->longest > t->tokens || t->sequences > t->tokens) return false;
    if (t->features > 0 && !examples) return false;
    if (rcvi_kind_has_classes(kind) ? t->outputs != c->class_count : !rcvi_kind_has_values(kind) && t->outputs != 0)
        return false;
    if (rcvi_kind_has_values(kind) && t->sequences > 0 && t->outputs == 0) return false;
    if (stream && (t->sequences != 1 || t->longest != t->tokens)) return false;
    if (t->token_bytes != (has_tokens ? token_bytes(c->words) : 0)) return false;
    return is_product(t->bytes[RCVI_TOKENS], t->tokens, t->token_bytes, 1) &&
           is_product(t->bytes[RCVI_NUMBERS], t->tokens, t->features, (int64_t)sizeof(float)) &&
           is_product(t->bytes[RCVI_LABELS], labelled, labels, (int64_t)sizeof(float)) &&
           is_product(t->bytes[RCVI_SPANS], stream ? 0 : t->sequences, (int64_t)sizeof(rcvi_span), 1) &&
           t->groups >= 0 && t->groups <= t->sequences && t->left_out >= 0 &&
           is_product(t->bytes[RCVI_GROUPS], t->groups, (int64_t)sizeof(rcvi_group), 1);
}

/* ---- sections ---- */

static bool tokens_fit(check *c, const char *bytes, size_t length) {
    const int64_t width = c->h->totals.token_bytes;
    uint32_t largest = 0;
    if (width == 1)
        for (size_t i = 0; i < length; i++) largest = (uint8_t)bytes[i] > largest ? (uint8_t)bytes[i] : largest;
    if (width == 2) {
        const uint16_t *tokens = (const void *)bytes;
        uint16_t most = 0;
        for (size_t i = 0; i < length / 2; i++) most = tokens[i] > most ? tokens[i] : most;
        largest = most;
    }
    if (width == 4) {
        const uint32_t *tokens = (const void *)bytes;
        for (size_t i = 0; i < length / 4; i++) largest = tokens[i] > largest ? tokens[i] : largest;
    }
    return largest < c->words;
}

static bool numbers_fit(check *c, const char *bytes, size_t length) {
    const float *numbers = (const void *)bytes;
    bool finite = true, infinite = false;
    for (size_t i = 0; i < length / sizeof *numbers; i++) {
        finite &= isfinite(numbers[i]) != 0;
        infinite |= isinf(numbers[i]) != 0;
    }
    return c->import->schema.missing == RCV_MISSING_ERROR ? finite : !infinite;
}

/* All outputs of a row are missing, or none. */
static bool values_fit(check *c, const char *bytes, size_t length) {
    const float *values = (const void *)bytes;
    for (size_t i = 0; i < length / sizeof *values; i++) {
        if (c->column == 0) c->row_is_missing = isnan(values[i]) != 0;
        if (c->row_is_missing ? !isnan(values[i]) : !isfinite(values[i])) return false;
        if (++c->column == c->h->totals.outputs) c->column = 0;
    }
    return true;
}

static bool labels_fit(check *c, const char *bytes, size_t length) {
    if (rcvi_kind_has_values(c->import->kind)) return values_fit(c, bytes, length);
    const int32_t *labels = (const void *)bytes;
    int32_t least = 0, largest = -1;
    for (size_t i = 0; i < length / sizeof *labels; i++) {
        least = labels[i] < least ? labels[i] : least;
        largest = labels[i] > largest ? labels[i] : largest;
    }
    return least >= -1 && largest < c->class_count;
}

/* Sequences must be contiguous. Only lines of bytes, whose spans refer to the text, may have gaps: empty lines. */
static bool spans_fit(check *c, const char *bytes, size_t length) {
    const rcvi_span *spans = (const void *)bytes;
    const bool lines = c->import->kind == RCV_DATA_LINES, in_text = lines && c->import->level == RCV_LEVEL_BYTE;
    const int64_t end = in_text ? c->h->text_bytes + 1 : c->h->totals.tokens, least = lines ? 2 : 1;
    for (size_t i = 0; i < length / sizeof *spans; i++) {
        const rcvi_span span = spans[i];
        if (span.length < least || span.length > c->h->totals.longest || span.start < c->at ||
            (span.start > c->at && !in_text) || span.start > end || span.length > end - span.start)
            return false;
        c->at = span.start + span.length;
        c->steps += span.length;
        if (span.length > c->longest) c->longest = span.length;
    }
    return true;
}

/* First pieces and names of whole sequences rise, and lie within the sections. */
static bool groups_fit(check *c, const char *bytes, size_t length) {
    const rcvi_group *groups = (const void *)bytes;
    const int64_t names = c->h->sections[RCVI_NAMES].bytes;
    for (size_t i = 0; i < length / sizeof *groups; i++) {
        const rcvi_group group = groups[i];
        if (group.first <= c->group.first || group.first >= c->h->totals.sequences) return false;
        if (c->group.first < 0 && group.first != 0) return false;
        if (names > 0 ? group.name <= c->group.name || group.name >= names : group.name != 0) return false;
        c->group = group;
    }
    return true;
}

static bool bytes_fit(check *c, const char *bytes, size_t length) {
    c->last = bytes[length - 1];
    return true;
}

typedef bool fits(check *c, const char *bytes, size_t length);

static bool section_fits(check *c, int number, fits *fit) {
    const rcvi_section *s = &c->h->sections[number];
    char *buffer = c->import->source.buffer;
    uint64_t hash = 0;
    for (int64_t done = 0; done < s->bytes;) {
        size_t part = s->bytes - done < RCVI_FILE_CHUNK ? (size_t)(s->bytes - done) : RCVI_FILE_CHUNK;
        if (rcvi_read_at(c->file, c->import->source.path, s->offset + done, buffer, part)) return false;
        hash = rcvi_hash_chunk(hash, buffer, part);
        if (!fit(c, buffer, part)) return false;
        done += (int64_t)part;
    }
    return hash == s->hash;
}

/* Padding between sections must be zero. */
static bool gaps_fit(const check *c) {
    int64_t at = sizeof *c->h;
    for (int i = 0; i < RCVI_SECTIONS; i++) {
        char gap[RCVI_TOKEN_CACHE_ALIGNMENT] = {0};
        static const char zeros[RCVI_TOKEN_CACHE_ALIGNMENT];
        size_t bytes = (size_t)(c->h->sections[i].offset - at);
        if (rcvi_read_at(c->file, c->import->source.path, at, gap, bytes) || memcmp(gap, zeros, bytes) != 0)
            return false;
        at = c->h->sections[i].offset + c->h->sections[i].bytes;
    }
    return true;
}

/* ---- names ---- */

/* Whether a call succeeded; notes a failure for lack of memory. */
static bool succeeded(check *c, rcv_status status) {
    c->no_memory |= status == RCV_NO_MEMORY;
    return status == RCV_OK;
}

static bool add_classes(check *c, const char *names, int64_t bytes) {
    if (names[bytes - 1] != '\0') return false;
    for (const char *name = names; name < names + bytes; name += strlen(name) + 1) {
        int64_t before = c->classes.size;
        if (!name[0] || !succeeded(c, rcvi_words_count(&c->classes, name, strlen(name), 0, NULL)) ||
            c->classes.size == before)
            return false;
    }
    return true;
}

static bool names_fit(check *c, int number, bool wanted, int64_t limit) {
    rcv_context *context = c->import->context;
    const rcvi_section *s = &c->h->sections[number];
    if (s->bytes == 0 || !wanted || s->bytes > limit) return s->bytes == 0 && !wanted;
    char *names = rcvi_new(context, (size_t)s->bytes, 1);
    if (!names) return succeeded(c, RCV_NO_MEMORY);
    bool good = !rcvi_read_at(c->file, c->import->source.path, s->offset, names, (size_t)s->bytes);
    uint64_t hash = 0;
    for (int64_t done = 0; done < s->bytes; done += RCVI_FILE_CHUNK)
        hash = rcvi_hash_chunk(hash, names + done,
                               s->bytes - done < RCVI_FILE_CHUNK ? (size_t)(s->bytes - done) : RCVI_FILE_CHUNK);
    good = good && hash == s->hash;
    if (good && number == RCVI_WORDS)
        good = succeeded(
            c, rcv_vocabulary_parse(context, names, (size_t)s->bytes, c->import->source.path, &c->vocabulary));
    else if (good)
        good = add_classes(c, names, s->bytes);
    rcvi_free(context, names);
    return good;
}

/* Checks the vocabulary and the classes. A vocabulary of the text's own must have <eos>; one of pieces may have no end of a line where no line is a sequence. */
static bool all_names_fit(check *c) {
    const rcvi_import *r = c->import;
    const bool words = rcvi_level_is_counted(r->level) && !r->given_vocabulary && c->h->totals.features == 0;
    const bool classes = rcvi_kind_has_classes(r->kind) && !r->given_classes && c->h->totals.sequences > 0;
    if (!names_fit(c, RCVI_WORDS, words, RCVI_LIMIT_VOCABULARY) ||
        !names_fit(c, RCVI_CLASSES, classes, RCVI_LIMIT_CLASSES))
        return false;
    const rcv_vocabulary *vocabulary = c->vocabulary ? c->vocabulary : r->vocabulary;
    c->words = vocabulary ? vocabulary->words.size : 0;
    c->class_count = classes ? c->classes.size : r->classes.size;
    const bool needs_end = r->level != RCV_LEVEL_PIECE || r->kind == RCV_DATA_LINES;
    return c->h->totals.features > 0 ||
           (vocabulary && vocabulary->level == r->level && (vocabulary->eos >= 0 || !needs_end));
}

/* ---- all ---- */

static bool content_fits(check *c) {
    const rcvi_totals *t = &c->h->totals;
    if (!gaps_fit(c) || !all_names_fit(c) || !totals_fit(c)) return false;
    if (!section_fits(c, RCVI_TOKENS, tokens_fit) || !section_fits(c, RCVI_NUMBERS, numbers_fit) ||
        !section_fits(c, RCVI_LABELS, labels_fit) || !section_fits(c, RCVI_SPANS, spans_fit) ||
        !section_fits(c, RCVI_GROUPS, groups_fit) || !section_fits(c, RCVI_NAMES, bytes_fit) || c->last != '\0')
        return false;
    return c->import->kind == RCV_DATA_STREAM || (c->steps == t->tokens && c->longest == t->longest);
}

rcv_status rcvi_token_cache_check(rcvi_import *import, int file, const rcvi_token_cache_header *h, bool *good) {
    check c = {.import = import, .h = h, .file = file, .group = {-1, -1}};
    rcvi_words_init(&c.classes, import->context);
    *good = content_fits(&c);
    if (*good && c.vocabulary) {
        import->vocabulary = c.vocabulary;
        c.vocabulary = NULL;
    }
    if (*good && c.classes.size > 0) {
        rcvi_words_free(&import->classes);
        import->classes = c.classes;
        rcvi_words_init(&c.classes, import->context);
    }
    rcv_vocabulary_free(c.vocabulary);
    rcvi_words_free(&c.classes);
    return c.no_memory ? RCV_NO_MEMORY : RCV_OK;
}
