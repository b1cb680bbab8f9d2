/* A file to learn from: opened through what is kept of it, and read from there. */
#include "data/store.h"

#include <string.h>

/* ---- opening ---- */

static rcv_status check_options(const rcv_data_options *options) {
    if ((unsigned)options->level > RCV_LEVEL_BYTE || (unsigned)options->kind > RCV_DATA_VALUES)
        return rcvi_fail(RCV_INVALID, "level %d and kind %d of data are not both known", (int)options->level,
                         (int)options->kind);
    const rcv_vocabulary *vocabulary = options->vocabulary;
    if (!vocabulary && options->like) vocabulary = options->like->vocabulary;
    if (vocabulary && vocabulary->level != options->level)
        return rcvi_fail(RCV_INVALID, "a vocabulary of %s cannot be used for a text at %s level",
                         vocabulary->level == RCV_LEVEL_BYTE ? "bytes" : "words",
                         options->level == RCV_LEVEL_BYTE ? "byte" : "word");
    if (options->like && options->like->kind != options->kind &&
        (options->kind == RCV_DATA_CLASSES || options->like->kind == RCV_DATA_CLASSES))
        return rcvi_fail(RCV_INVALID, "data with classes can only be like other data with classes");
    return RCV_OK;
}

/* The vocabulary to read with, where one is given or all texts have the same. */
static rcv_status take_vocabulary(const rcv_data_options *options, rcvi_reading *reading) {
    const rcv_vocabulary *given = options->vocabulary;
    if (!given && options->like) given = options->like->vocabulary;
    if (options->level == RCV_LEVEL_BYTE) return rcv_vocabulary_bytes(reading->context, &reading->vocabulary);
    if (!given) return RCV_OK;
    RCVI_TRY(rcvi_vocabulary_copy(given, &reading->vocabulary));
    reading->given_vocabulary = true;
    reading->names_hash = rcvi_vocabulary_hash(given);
    return RCV_OK;
}

static rcv_status take_classes(const rcv_data_options *options, rcvi_reading *reading) {
    rcvi_words_init(&reading->classes, reading->context);
    const rcvi_words *like = options->like ? &options->like->classes : NULL;
    int64_t count = options->classes ? (int64_t)options->class_count : like ? like->size : 0;
    if (options->kind != RCV_DATA_CLASSES || count == 0) return RCV_OK;
    reading->given_classes = true;
    for (int64_t i = 0; i < count; i++) {
        size_t length;
        const char *name = options->classes ? options->classes[i] : rcvi_words_at(like, i, &length);
        if (options->classes) length = name ? strlen(name) : 0;
        if (!name) return rcvi_fail(RCV_INVALID, "class %lld has NULL for a name", (long long)i);
        RCVI_TRY(rcvi_words_count(&reading->classes, name, length, 0, NULL));
        if (reading->classes.size != i + 1) return rcvi_fail(RCV_INVALID, "the class '%.60s' is named twice", name);
        reading->names_hash = rcvi_hash_piece(reading->names_hash, name, length);
    }
    return RCV_OK;
}

/* Words that were found when the file was written. */
static rcv_status take_kept_names(rcvi_reading *reading, const char *sections[RCVI_SECTIONS]) {
    const rcvi_totals *totals = &reading->totals;
    if (!reading->vocabulary && totals->bytes[RCVI_WORDS] > 0)
        RCVI_TRY(rcv_vocabulary_parse(reading->context, sections[RCVI_WORDS], (size_t)totals->bytes[RCVI_WORDS],
                                      reading->source.path, &reading->vocabulary));
    const char *name = sections[RCVI_CLASSES], *end = name + totals->bytes[RCVI_CLASSES];
    for (size_t length; reading->classes.size < totals->outputs && name < end; name += length + 1) {
        length = strlen(name);
        RCVI_TRY(rcvi_words_count(&reading->classes, name, length, 0, NULL));
    }
    return RCV_OK;
}

static rcv_status check_totals(const rcvi_reading *reading, const rcv_data *like) {
    static const char *const things[] = {"tokens", "tokens", "examples", "examples"};
    const rcvi_totals *totals = &reading->totals;
    const char *path = reading->source.path;
    if (totals->sequences == 0 || totals->tokens == 0)
        return rcvi_fail(RCV_FORMAT, "%s holds no %s", path, things[reading->kind]);
    if (reading->kind == RCV_DATA_STREAM && totals->tokens < 2)
        return rcvi_fail(RCV_FORMAT, "%s holds one token, where a stream needs two at least", path);
    if (like && reading->kind >= RCV_DATA_CLASSES && totals->features != like->totals.features)
        return rcvi_fail(RCV_FORMAT, "%s has %lld features where the data that it is to be like has %lld", path,
                         (long long)totals->features, (long long)like->totals.features);
    if (like && reading->kind == RCV_DATA_VALUES && totals->outputs != like->totals.outputs)
        return rcvi_fail(RCV_FORMAT, "%s has %lld values an example where the data that it is to be like has %lld",
                         path, (long long)totals->outputs, (long long)like->totals.outputs);
    return RCV_OK;
}

/* A stream of bytes is the text itself; everything else has its file. */
static rcv_status open_parts(rcvi_reading *reading, rcv_data *data) {
    const char *sections[RCVI_SECTIONS] = {NULL};
    bool text_has_tokens = reading->level == RCV_LEVEL_BYTE && reading->kind <= RCV_DATA_LINES;
    if (reading->source.bytes == 0) return RCV_OK; /* there is nothing to map */
    if (text_has_tokens)
        RCVI_TRY(rcvi_map_new(reading->context, reading->source.file, reading->source.bytes, reading->source.path,
                              &data->text));
    if (text_has_tokens && reading->kind == RCV_DATA_STREAM) {
        reading->totals =
            (rcvi_totals){.tokens = reading->source.bytes, .sequences = 1, .longest = reading->source.bytes};
    } else {
        RCVI_TRY(rcvi_store_open(reading, &data->store, sections));
        RCVI_TRY(take_kept_names(reading, sections));
    }
    data->token_map = text_has_tokens ? data->text : data->store;
    data->tokens = text_has_tokens ? rcvi_map_at(data->text) : sections[RCVI_TOKENS];
    if (text_has_tokens) reading->totals.token_bytes = 1;
    data->numbers = (const void *)sections[RCVI_NUMBERS];
    data->labels = (const void *)sections[RCVI_LABELS];
    data->values = (const void *)sections[RCVI_LABELS];
    data->spans = reading->kind == RCV_DATA_STREAM ? NULL : (const void *)sections[RCVI_SPANS];
    return RCV_OK;
}

static rcv_status read_into(rcvi_reading *reading, const rcv_data_options *options, rcv_data *data) {
    RCVI_TRY(take_vocabulary(options, reading));
    RCVI_TRY(take_classes(options, reading));
    RCVI_TRY(rcvi_source_hash(&reading->source, &reading->text_hash));
    RCVI_TRY(open_parts(reading, data));
    if (reading->kind <= RCV_DATA_LINES && reading->vocabulary)
        reading->totals.outputs = reading->vocabulary->words.size;
    RCVI_TRY(check_totals(reading, options->like));
    const uint64_t key[] = {reading->text_hash, reading->names_hash, (uint64_t)reading->source.bytes,
                            (uint64_t)reading->level, (uint64_t)reading->kind};
    data->hash = rcvi_hash_piece(0, key, sizeof key);
    return RCV_OK;
}

/* The data owns what the reading found, whether the reading was good or not. */
static void hand_over(rcvi_reading *reading, rcv_data *data) {
    rcvi_source_close(&reading->source);
    rcvi_words_free(&reading->counted);
    data->level = reading->level;
    data->kind = reading->kind;
    data->totals = reading->totals;
    data->vocabulary = reading->vocabulary;
    data->classes = reading->classes;
    if (data->totals.features > 0) {
        rcv_vocabulary_free(data->vocabulary);
        data->vocabulary = NULL;
    }
}

rcv_status rcv_data_open(rcv_context *context, const char *path, const rcv_data_options *options, rcv_data **data) {
    static const rcvi_reader *const readers[][4] = {
        [RCV_LEVEL_WORD] = {&rcvi_word_reader, &rcvi_word_reader, &rcvi_example_reader, &rcvi_example_reader},
        [RCV_LEVEL_BYTE] = {NULL, &rcvi_byte_line_reader, &rcvi_example_reader, &rcvi_example_reader},
    };
    static const rcv_data_options defaults = {0};
    if (!context || !path || !data)
        return rcvi_fail(RCV_INVALID, "rcv_data_open needs a context, a path and a place for the data, not NULL");
    *data = NULL;
    if (!options) options = &defaults;
    RCVI_TRY(check_options(options));
    rcvi_reading reading = {
        .context = context, .level = options->level, .kind = options->kind, .folder = options->cache};
    reading.reader = readers[options->level][options->kind];
    rcvi_words_init(&reading.counted, context);
    rcv_data *made = rcvi_new(context, 1, sizeof *made);
    if (!made) return RCV_NO_MEMORY;
    made->context = context;
    rcv_status status = rcvi_source_open(context, path, &reading.source);
    if (!status) status = read_into(&reading, options, made);
    hand_over(&reading, made);
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
    rcvi_map_free(data->text);
    rcvi_map_free(data->store);
    rcvi_free(data->context, data);
}

/* ---- asking ---- */

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

void rcvi_data_read(const rcv_data *data, int64_t from, int64_t count, int32_t *tokens) {
    const int64_t width = data->totals.token_bytes;
    const char *at = (const char *)data->tokens + from * width;
    if (width == 4) memcpy(tokens, at, (size_t)count * 4);
    for (int64_t i = 0; width == 2 && i < count; i++) tokens[i] = ((const uint16_t *)(const void *)at)[i];
    for (int64_t i = 0; width == 1 && i < count; i++) tokens[i] = ((const uint8_t *)at)[i];
    rcvi_map_touch(data->token_map, count * width);
}

rcvi_span rcvi_data_span(const rcv_data *data, int64_t sequence) {
    if (!data->spans) return (rcvi_span){0, data->totals.tokens};
    rcvi_span span = data->spans[sequence];
    rcvi_map_touch(data->store, (int64_t)sizeof span);
    return span;
}
