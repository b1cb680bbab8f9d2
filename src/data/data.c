/* Opening of a data file through its token cache, and reading of tokens, spans, numbers and labels. */
#include "data/internal.h"
#include "data/recognise.h"
#include "data/table/array_reader.h"
#include "data/table/table.h"

#include <string.h>

/* ---- opening ---- */

static rcv_status check_options(const rcv_data_options *options) {
    if ((unsigned)options->missing > RCV_MISSING_ZERO)
        return rcvi_fail(RCV_INVALID, "%d is none of the ways to treat missing features", (int)options->missing);
    if ((unsigned)options->level > RCV_LEVEL_PIECE || (unsigned)options->kind > RCV_DATA_STEP_VALUES)
        return rcvi_fail(RCV_INVALID, "level %d and kind %d of data are not both known", (int)options->level,
                         (int)options->kind);
    const rcv_vocabulary *vocabulary = options->vocabulary;
    if (!vocabulary && options->like) vocabulary = options->like->vocabulary;
    static const char *const levels[] = {"word", "byte", "character", "piece"}; /* as rcv_level */
    if (vocabulary && vocabulary->level != options->level)
        return rcvi_fail(RCV_INVALID, "a vocabulary of %ss cannot be used for a text at %s level",
                         levels[vocabulary->level], levels[options->level]);
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
    if (!given && options->level == RCV_LEVEL_PIECE)
        return rcvi_fail(RCV_INVALID, "a text at piece level needs a tokenizer.json as its vocabulary");
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
    if (totals->outputs == 0 && !import->unlabelled)
        return rcvi_fail(RCV_FORMAT, "%s holds no targets: every one is missing", path);
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

static const rcvi_data_reader *reader_of(const rcvi_import *import) {
    static const rcvi_data_reader *const text_readers[][2] = {
        [RCV_LEVEL_WORD] = {&rcvi_word_reader, &rcvi_word_reader},
        [RCV_LEVEL_BYTE] = {NULL, &rcvi_byte_line_reader},
        [RCV_LEVEL_CHARACTER] = {&rcvi_token_reader, &rcvi_token_reader},
        [RCV_LEVEL_PIECE] = {&rcvi_token_reader, &rcvi_token_reader},
    };
    static const rcvi_data_reader *const readers[] = {
        [RCV_FORMAT_TEXT] = &rcvi_example_reader,    [RCV_FORMAT_CSV] = &rcvi_table_reader,
        [RCV_FORMAT_TSV] = &rcvi_table_reader,       [RCV_FORMAT_JSON_LINES] = &rcvi_example_reader,
        [RCV_FORMAT_NUMBERS] = &rcvi_example_reader, [RCV_FORMAT_NPY] = &rcvi_array_reader,
        [RCV_FORMAT_NPZ] = &rcvi_array_reader,       [RCV_FORMAT_SAFETENSORS] = &rcvi_array_reader};
    return rcvi_kind_is_text(import->kind) ? text_readers[import->level][import->kind] : readers[import->format];
}

/* Sets the format, the schema, and what the reader needs. `known`: a schema to use, or NULL. */
static rcv_status recognise(rcvi_import *import, const rcv_data_options *options, const rcvi_schema *known,
                            rcvi_recognised *r) {
    const bool named = known && known->feature_count > 0;
    RCVI_TRY(rcvi_recognise_begin(import->context, import->source.file, import->source.bytes, import->source.path,
                                  options, (int)import->kind, r));
    RCVI_TRY(rcvi_recognise_format(r));
    if (named && r->format == RCV_FORMAT_NUMBERS && options->format == RCV_FORMAT_AUTO) r->format = RCV_FORMAT_CSV;
    import->format = r->format;
    const bool table = r->format == RCV_FORMAT_CSV || r->format == RCV_FORMAT_TSV;
    /* JSON lines with the usual keys have no names either. */
    if (known && known->inputs == 0 && (named ? !table && r->format != RCV_FORMAT_JSON_LINES : table))
        return rcvi_fail(RCV_FORMAT, "%s has another format than the data that it must match", import->source.path);
    const bool usual =
        r->format == RCV_FORMAT_JSON_LINES && !rcvi_names_columns(options); /* keys that every line is read with */
    if (!known && usual) {
        import->schema.missing = options->missing;
    } else if (!known || (table && !named)) {
        RCVI_TRY(rcvi_recognise_content(r));
        RCVI_TRY(rcvi_schema_copy(&r->schema, &import->schema));
    } else {
        RCVI_TRY(rcvi_schema_copy(known, &import->schema));
    }
    import->separator = r->format == RCV_FORMAT_TSV ? '\t'
                        : table                     ? rcvi_csv_separator(r->text, strcspn(r->text, "\n"))
                                                    : 0;
    if (table && !import->separator) import->separator = ',';
    return RCV_OK;
}

/* Finds out how the file is read. Texts are read as they are. */
static rcv_status set_format(rcvi_import *import, const rcv_data_options *options, const rcvi_schema *known) {
    rcvi_schema_init(&import->schema, import->context);
    import->schema.missing = options->missing;
    import->format = RCV_FORMAT_TEXT;
    if (!known && options->like && !rcvi_names_columns(options)) known = &options->like->schema;
    if (known) import->schema.missing = known->missing;
    if (import->source.bytes == 0) return RCV_OK;
    if (rcvi_kind_is_text(import->kind)) {
        if (options->format <= RCV_FORMAT_TEXT) return RCV_OK;
        return rcvi_fail(RCV_INVALID, "%s: a text is read as it is (--format text); the kind stream or lines needs it",
                         import->source.path);
    }
    if (options->format == RCV_FORMAT_TEXT)
        return rcvi_fail(RCV_INVALID, "%s: a text is of the kind stream or lines", import->source.path);
    rcvi_recognised r = {0};
    const rcv_status status = recognise(import, options, known, &r);
    rcvi_recognise_end(&r);
    return status;
}

/* Another schema, or another treatment of what is missing, makes other tokens of a file. */
static void hash_schema(rcvi_import *import) {
    const uint64_t key[] = {rcvi_schema_hash(&import->schema), (uint64_t)import->format, import->unlabelled};
    if (!rcvi_kind_is_text(import->kind)) import->names_hash ^= rcvi_hash_chunk(0, key, sizeof key);
}

static rcv_status import_data(rcvi_import *import, const rcv_data_options *options, const rcvi_schema *known,
                              rcv_data *data) {
    RCVI_TRY(set_format(import, options, known));
    import->reader = reader_of(import);
    RCVI_TRY(set_vocabulary(options, import));
    RCVI_TRY(set_classes(options, import));
    hash_schema(import);
    RCVI_TRY(rcvi_text_file_hash(&import->source, &import->text_hash));
    import->text_bytes = import->source.bytes;
    RCVI_TRY(open_files(import, data));
    if (rcvi_kind_is_text(import->kind) && import->vocabulary) import->totals.outputs = import->vocabulary->words.size;
    RCVI_TRY(check_totals(import, options->like));
    import->schema.inputs = import->totals.features;
    import->schema.outputs = rcvi_kind_has_values(import->kind) ? import->totals.outputs : 0;
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
    data->format = import->format;
    data->schema = import->schema;
    data->totals = import->totals;
    data->file_tokens = import->totals.tokens;
    data->text_bytes = import->text_bytes;
    data->vocabulary = import->vocabulary;
    data->classes = import->classes;
    if (data->totals.features > 0) {
        rcv_vocabulary_free(data->vocabulary);
        data->vocabulary = NULL;
    }
}

rcv_status rcvi_data_open_with(rcv_context *context, const char *path, const rcv_data_options *options,
                               const rcvi_schema *schema, rcv_data **data) {
    RCVI_TRY(check_options(options));
    rcvi_import import = {.context = context,
                          .level = options->level,
                          .kind = options->kind,
                          .unlabelled = options->unlabelled,
                          .folder = options->cache};
    rcvi_words_init(&import.counted, context);
    rcv_data *made = rcvi_new(context, 1, sizeof *made);
    if (!made) return RCV_NO_MEMORY;
    made->context = context;
    rcv_status status = rcvi_text_file_open(context, path, &import.source);
    if (!status) status = import_data(&import, options, schema, made);
    move_results(&import, made);
    if (!status) status = rcvi_data_describe(made);
    if (status) {
        rcv_data_free(made);
        return status;
    }
    *data = made;
    return RCV_OK;
}

rcv_status rcv_data_open(rcv_context *context, const char *path, const rcv_data_options *options, rcv_data **data) {
    RCVI_NEED(context, "context");
    RCVI_NEED(path, "path");
    RCVI_NEED(data, "data");
    *data = NULL;
    RCVI_READ(rcv_data_options, options, "options");
    return rcvi_data_open_with(context, path, options, NULL, data);
}

void rcv_data_free(rcv_data *data) {
    if (!data) return;
    rcv_vocabulary_free(data->vocabulary);
    rcvi_words_free(&data->classes);
    rcvi_data_file_free(data->text);
    rcvi_data_file_free(data->cache);
    rcvi_schema_free(&data->schema);
    void *const blocks[] = {data->description, data->feature_names, data->target_names, data->subset};
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) rcvi_free(data->context, blocks[i]);
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
rcv_missing rcvi_data_missing(const rcv_data *data) { return data->schema.missing; }

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
    RCVI_TRY(rcvi_data_file_read(data->tokens, data->token_at + (data->first_token + from) * width,
                                 (char *)tokens + count * (4 - width), (size_t)(count * width)));
    return widen_tokens(tokens, count, width) < data->vocabulary->words.size
               ? RCV_OK
               : rcvi_data_file_fail_changed(data->tokens);
}

/* Spans `first` .. `first` + `count` - 1 of the file. */
static rcv_status read_file_spans(const rcv_data *data, int64_t first, int64_t count, rcvi_span *spans) {
    return rcvi_data_file_read(data->cache, data->offsets[RCVI_SPANS] + first * (int64_t)sizeof *spans, spans,
                               (size_t)count * sizeof *spans);
}

rcv_status rcvi_data_read_spans(const rcv_data *data, int64_t first, int64_t count, rcvi_span *spans) {
    const rcvi_totals *t = &data->totals;
    /* Spans of byte lines are offsets in the text, other spans are indices of tokens or steps. */
    const bool in_text = data->kind == RCV_DATA_LINES && data->text;
    const int64_t end = in_text ? data->text_bytes + 1 : data->file_tokens;
    for (int64_t at = 0, run = count; at < count; at += run) {
        const int64_t from = rcvi_data_sequence(data, first + at);
        for (run = data->subset ? 1 : count;
             at + run < count && data->subset && data->subset[first + at + run] == from + run;)
            run++;
        RCVI_TRY(read_file_spans(data, from, run, spans + at));
    }
    for (int64_t i = 0; i < count; i++)
        if (spans[i].length < 1 || spans[i].length > t->longest || spans[i].start < 0 || spans[i].start > end ||
            spans[i].length > end - spans[i].start)
            return rcvi_data_file_fail_changed(data->cache);
    return RCV_OK;
}

rcv_status rcvi_data_read_group(const rcv_data *data, int64_t index, rcvi_group *group) {
    return rcvi_data_file_read(data->cache, data->offsets[RCVI_GROUPS] + index * (int64_t)sizeof *group, group,
                               sizeof *group);
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
    return read_labels(data, rcvi_data_sequence(data, sequence), 1, label);
}

rcv_status rcvi_data_read_labels(const rcv_data *data, rcvi_span span, void *labels) {
    return read_labels(data, span.start, span.length, labels);
}

rcv_status rcvi_data_check(const rcv_data *data) {
    if (data->text) RCVI_TRY(rcvi_data_file_check(data->text));
    return data->cache ? rcvi_data_file_check(data->cache) : RCV_OK;
}
