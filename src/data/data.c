/* Opening of a data file through its token cache, and reading of tokens, spans, numbers and labels. */
#include "data/internal.h"

#include <string.h>

/* ---- opening ---- */

static rcv_status check_options(const rcv_data_options *options) {
    if ((unsigned)options->missing > RCV_MISSING_ZERO)
        return rcvi_fail(RCV_INVALID, "%d is none of the ways to treat missing features", (int)options->missing);
    if ((unsigned)options->level > RCV_LEVEL_BYTE || (unsigned)options->kind > RCV_DATA_STEP_VALUES)
        return rcvi_fail(RCV_INVALID, "level %d and kind %d of data are not both known", (int)options->level,
                         (int)options->kind);
    const rcv_vocabulary *vocabulary = options->vocabulary;
    if (!vocabulary && options->like) vocabulary = options->like->vocabulary;
    if (vocabulary && vocabulary->level != options->level)
        return rcvi_fail(RCV_INVALID, "a vocabulary of %s cannot be used for a text at %s level",
                         vocabulary->level == RCV_LEVEL_BYTE ? "bytes" : "words",
                         options->level == RCV_LEVEL_BYTE ? "byte" : "word");
    if (options->like && options->like->kind != options->kind &&
        (rcvi_kind_has_classes(options->kind) || rcvi_kind_has_classes(options->like->kind)))
        return rcvi_fail(RCV_INVALID, "data with classes can only be like other data with classes");
    return RCV_OK;
}

/* Sets the vocabulary, if one is given or if the level is bytes. */
static rcv_status set_vocabulary(const rcv_data_options *options, rcvi_import *import) {
    const rcv_vocabulary *given = options->vocabulary;
    if (!given && options->like) given = options->like->vocabulary;
    if (options->level == RCV_LEVEL_BYTE) return rcv_vocabulary_bytes(import->context, &import->vocabulary);
    if (!given) return RCV_OK;
    RCVI_TRY(rcvi_vocabulary_copy(given, &import->vocabulary));
    import->given_vocabulary = true;
    import->names_hash = rcvi_vocabulary_hash(given);
    return RCV_OK;
}

static rcv_status set_classes(const rcv_data_options *options, rcvi_import *import) {
    rcvi_words_init(&import->classes, import->context);
    const rcvi_words *like = options->like ? &options->like->classes : NULL;
    int64_t count = options->classes ? (int64_t)options->class_count : like ? like->size : 0;
    if (!rcvi_kind_has_classes(options->kind) || count == 0) return RCV_OK;
    import->given_classes = true;
    for (int64_t i = 0; i < count; i++) {
        size_t length;
        const char *name = options->classes ? options->classes[i] : rcvi_words_at(like, i, &length);
        if (options->classes) length = name ? strlen(name) : 0;
        if (!name) return rcvi_fail(RCV_INVALID, "class %lld has NULL for a name", (long long)i);
        RCVI_TRY(rcvi_words_count(&import->classes, name, length, 0, NULL));
        if (import->classes.size != i + 1) return rcvi_fail(RCV_INVALID, "the class '%.60s' is given twice", name);
        import->names_hash = rcvi_hash_chunk(import->names_hash, name, length);
    }
    return RCV_OK;
}

static rcv_status check_totals(const rcvi_import *import, const rcv_data *like) {
    static const char *const things[] = {"tokens", "tokens", "examples", "examples", "examples", "examples"};
    const rcvi_totals *totals = &import->totals;
    const char *path = import->source.path;
    if (totals->sequences == 0 || totals->tokens == 0)
        return rcvi_fail(RCV_FORMAT, "%s holds no %s", path, things[import->kind]);
    if (import->kind == RCV_DATA_STREAM && totals->tokens < 2)
        return rcvi_fail(RCV_FORMAT, "%s holds one token, where a stream needs two at least", path);
    if (totals->outputs == 0) return rcvi_fail(RCV_FORMAT, "%s holds no targets: every \"y\" is null", path);
    if (like && !rcvi_kind_is_text(import->kind) && totals->features != like->totals.features)
        return rcvi_fail(RCV_FORMAT, "%s has %lld features; the data that it must match has %lld", path,
                         (long long)totals->features, (long long)like->totals.features);
    if (like && rcvi_kind_has_values(import->kind) && totals->outputs != like->totals.outputs)
        return rcvi_fail(RCV_FORMAT, "%s has %lld values per example; the data that it must match has %lld", path,
                         (long long)totals->outputs, (long long)like->totals.outputs);
    return RCV_OK;
}

/* Opens the text (bytes) or the token cache (everything else), or both (lines of bytes). */
static rcv_status open_files(rcvi_import *import, rcv_data *data) {
    bool text_has_tokens = import->level == RCV_LEVEL_BYTE && rcvi_kind_is_text(import->kind);
    if (import->source.bytes == 0) return RCV_OK; /* an empty file; check_totals reports it */
    if (text_has_tokens)
        RCVI_TRY(rcvi_data_file_new(import->context, import->source.file, import->source.path, &import->source.stamp,
                                    &data->text));
    if (text_has_tokens && import->kind == RCV_DATA_STREAM)
        import->totals = (rcvi_totals){.tokens = import->source.bytes, .sequences = 1, .longest = import->source.bytes};
    else
        RCVI_TRY(rcvi_token_cache_open(import, &data->cache, data->offsets));
    data->tokens = text_has_tokens ? data->text : data->cache;
    data->token_at = text_has_tokens ? 0 : data->offsets[RCVI_TOKENS];
    if (text_has_tokens) import->totals.token_bytes = 1;
    data->has_spans = import->kind != RCV_DATA_STREAM;
    return RCV_OK;
}

static rcv_status import_data(rcvi_import *import, const rcv_data_options *options, rcv_data *data) {
    RCVI_TRY(set_vocabulary(options, import));
    RCVI_TRY(set_classes(options, import));
    if (import->missing != RCV_MISSING_ERROR) /* the cache may have missing features */
        import->names_hash = rcvi_hash_chunk(import->names_hash, "missing", strlen("missing"));
    RCVI_TRY(rcvi_text_file_hash(&import->source, &import->text_hash));
    import->text_bytes = import->source.bytes;
    RCVI_TRY(open_files(import, data));
    if (rcvi_kind_is_text(import->kind) && import->vocabulary) import->totals.outputs = import->vocabulary->words.size;
    RCVI_TRY(check_totals(import, options->like));
    const uint64_t key[] = {import->text_hash, import->names_hash, (uint64_t)import->source.bytes,
                            (uint64_t)import->level, (uint64_t)import->kind};
    data->hash = rcvi_hash_chunk(0, key, sizeof key);
    return RCV_OK;
}

/* Moves ownership from the import to the data, also after a failure. */
static void move_results(rcvi_import *import, rcv_data *data) {
    rcvi_text_file_close(&import->source);
    rcvi_words_free(&import->counted);
    data->level = import->level;
    data->kind = import->kind;
    data->totals = import->totals;
    data->text_bytes = import->text_bytes;
    data->vocabulary = import->vocabulary;
    data->classes = import->classes;
    if (data->totals.features > 0) {
        rcv_vocabulary_free(data->vocabulary);
        data->vocabulary = NULL;
    }
}

rcv_status rcv_data_open(rcv_context *context, const char *path, const rcv_data_options *options, rcv_data **data) {
    static const rcvi_data_reader *const text_readers[][2] = {
        [RCV_LEVEL_WORD] = {&rcvi_word_reader, &rcvi_word_reader},
        [RCV_LEVEL_BYTE] = {NULL, &rcvi_byte_line_reader},
    };
    RCVI_NEED(context, "context");
    RCVI_NEED(path, "path");
    RCVI_NEED(data, "data");
    *data = NULL;
    RCVI_READ(rcv_data_options, options, "options");
    RCVI_TRY(check_options(options));
    rcvi_import import = {.context = context,
                          .level = options->level,
                          .kind = options->kind,
                          .missing = options->missing,
                          .folder = options->cache};
    import.reader =
        rcvi_kind_is_text(options->kind) ? text_readers[options->level][options->kind] : &rcvi_example_reader;
    rcvi_words_init(&import.counted, context);
    rcv_data *made = rcvi_new(context, 1, sizeof *made);
    if (!made) return RCV_NO_MEMORY;
    made->context = context;
    rcv_status status = rcvi_text_file_open(context, path, &import.source);
    if (!status) status = import_data(&import, options, made);
    move_results(&import, made);
    if (status) {
        rcv_data_free(made);
        return status;
    }
    *data = made;
    return RCV_OK;
}

void rcv_data_free(rcv_data *data) {
    if (!data) return;
    rcv_vocabulary_free(data->vocabulary);
    rcvi_words_free(&data->classes);
    rcvi_data_file_free(data->text);
    rcvi_data_file_free(data->cache);
    rcvi_free(data->context, data);
}

/* ---- properties ---- */

const rcv_vocabulary *rcv_data_vocabulary(const rcv_data *data) { return data->vocabulary; }
rcv_level rcv_data_level(const rcv_data *data) { return data->level; }
rcv_data_kind rcv_data_get_kind(const rcv_data *data) { return data->kind; }
int64_t rcv_data_tokens(const rcv_data *data) { return data->totals.tokens; }
int64_t rcv_data_sequences(const rcv_data *data) { return data->totals.sequences; }
int64_t rcv_data_longest(const rcv_data *data) { return data->totals.longest; }
int64_t rcv_data_features(const rcv_data *data) { return data->totals.features; }
int64_t rcv_data_outputs(const rcv_data *data) { return data->totals.outputs; }
uint64_t rcvi_data_hash(const rcv_data *data) { return data->hash; }

const char *rcv_data_class_name(const rcv_data *data, int64_t index, size_t *length) {
    size_t bytes;
    const char *name = rcvi_words_at(&data->classes, index, &bytes);
    if (length) *length = bytes;
    return name;
}

/* ---- reading ---- */

/* Widens numbers of `width` bytes, stored at the end of the array, in place to int32. Returns the largest, or -1 if there are none. */
static int64_t widen_tokens(int32_t *tokens, int64_t count, int64_t width) {
    const char *from = (const char *)tokens + count * (4 - width);
    int64_t largest = -1;
    for (int64_t i = 0; i < count; i++) {
        uint32_t token = 0;
        if (width == 1) {
            token = (unsigned char)from[i];
        } else if (width == 2) {
            uint16_t half;
            memcpy(&half, from + 2 * i, sizeof half);
            token = half;
        } else {
            memcpy(&token, from + 4 * i, sizeof token);
        }
        tokens[i] = (int32_t)token;
        largest = token > largest ? (int64_t)token : largest;
    }
    return largest;
}

rcv_status rcvi_data_read_tokens(const rcv_data *data, int64_t from, int64_t count, int32_t *tokens) {
    const int64_t width = data->totals.token_bytes;
    RCVI_TRY(rcvi_data_file_read(data->tokens, data->token_at + from * width, (char *)tokens + count * (4 - width),
                                 (size_t)(count * width)));
    return widen_tokens(tokens, count, width) < data->vocabulary->words.size
               ? RCV_OK
               : rcvi_data_file_fail_changed(data->tokens);
}

rcv_status rcvi_data_read_spans(const rcv_data *data, int64_t first, int64_t count, rcvi_span *spans) {
    const rcvi_totals *t = &data->totals;
    /* Spans of byte lines are offsets in the text, other spans are indices of tokens or steps. */
    const bool in_text = data->kind == RCV_DATA_LINES && data->text;
    RCVI_TRY(rcvi_data_file_read(data->cache, data->offsets[RCVI_SPANS] + first * (int64_t)sizeof *spans, spans,
                                 (size_t)count * sizeof *spans));
    const int64_t end = in_text ? data->text_bytes + 1 : t->tokens;
    for (int64_t i = 0; i < count; i++)
        if (spans[i].length < 1 || spans[i].length > t->longest || spans[i].start < 0 || spans[i].start > end ||
            spans[i].length > end - spans[i].start)
            return rcvi_data_file_fail_changed(data->cache);
    return RCV_OK;
}

rcv_status rcvi_data_each_span(const rcv_data *data, rcvi_visit_span *visit, void *user) {
    enum { PART = 256 };
    rcvi_span spans[PART];
    for (int64_t at = 0, count; at < data->totals.sequences; at += count) {
        count = data->totals.sequences - at < PART ? data->totals.sequences - at : PART;
        RCVI_TRY(rcvi_data_read_spans(data, at, count, spans));
        for (int64_t i = 0; i < count; i++) visit(user, at + i, spans[i]);
    }
    return RCV_OK;
}

rcv_status rcvi_data_read_numbers(const rcv_data *data, rcvi_span span, float *numbers) {
    const int64_t step = data->totals.features * (int64_t)sizeof *numbers;
    return rcvi_data_file_read(data->cache, data->offsets[RCVI_NUMBERS] + span.start * step, numbers,
                               (size_t)(span.length * step));
}

/* Labels `first` .. `first` + `count` - 1: of sequences or of time steps, whichever have them. */
static rcv_status read_labels(const rcv_data *data, int64_t first, int64_t count, void *labels) {
    const bool classes = rcvi_kind_has_classes(data->kind);
    const int64_t bytes = (classes ? 1 : data->totals.outputs) * (int64_t)sizeof(float);
    RCVI_TRY(
        rcvi_data_file_read(data->cache, data->offsets[RCVI_LABELS] + first * bytes, labels, (size_t)(count * bytes)));
    const int32_t *numbers = labels;
    for (int64_t i = 0; classes && i < count; i++)
        if (numbers[i] < -1 || numbers[i] >= data->totals.outputs) return rcvi_data_file_fail_changed(data->cache);
    return RCV_OK;
}

rcv_status rcvi_data_read_label(const rcv_data *data, int64_t sequence, void *label) {
    return read_labels(data, sequence, 1, label);
}

rcv_status rcvi_data_read_labels(const rcv_data *data, rcvi_span span, void *labels) {
    return read_labels(data, span.start, span.length, labels);
}

rcv_status rcvi_data_check(const rcv_data *data) {
    if (data->text) RCVI_TRY(rcvi_data_file_check(data->text));
    return data->cache ? rcvi_data_file_check(data->cache) : RCV_OK;
}
