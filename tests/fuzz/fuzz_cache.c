/* Mutated token caches beside their texts, three of four forged: with the key and the hashes of a good one. Data opens in any case, since a
 * cache that is not believed is written again; and whatever was believed lies in range, batch by batch. */
#include "fuzz.h"

#include "data/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if __has_include("data/token_cache_file.h")
#include "data/token_cache_file.h"
#define FORGED 1 /* the form of the file is known here, and its reader checks what it holds */
#endif

static const char *const pieces[] = {"\n", "a\nb\n", "<eos>\n", "<unk>\n", "x", "\xff\xff\xff\xff",
                                     "\1", "good",   "bad",     NULL};

static const struct {
    const char *name, *text;
    rcv_data_kind kind;
} texts[] = {
    {"stream", "the cat sat on the mat\na dog sat on a log\nthe cat saw the dog\n", RCV_DATA_STREAM},
    {"lines", "the cat sat\na dog sat on a log\nthe cat saw the dog\n", RCV_DATA_LINES},
    {"classes", "{\"x\": [[1, 2], [3, 4]], \"y\": \"a\"}\n{\"x\": [[5, 6]], \"y\": \"b\"}\n", RCV_DATA_CLASSES},
    {"texts", "{\"text\": \"a b c\", \"y\": \"good\"}\n{\"text\": \"c a\", \"y\": \"bad\"}\n", RCV_DATA_CLASSES},
    {"values", "{\"x\": [1, 2, 3], \"y\": [4, 5]}\n{\"x\": [5], \"y\": [6, 7]}\n", RCV_DATA_VALUES},
    {"step-classes", "{\"x\": [1, 2, 3], \"y\": [\"a\", null, \"b\"]}\n{\"x\": [5], \"y\": [\"b\"]}\n",
     RCV_DATA_STEP_CLASSES},
    {"step-values", "{\"x\": [1, 2, 3], \"y\": [[1, 2], null, [3, 4]]}\n{\"x\": [5], \"y\": [[5, 6]]}\n",
     RCV_DATA_STEP_VALUES}};
enum { TEXTS = sizeof texts / sizeof *texts };

static const char *text_path(size_t index) { return fuzz_path(texts[index].name); }

static const char *cache_path(size_t index) {
    char name[64];
    snprintf(name, sizeof name, "%s.recurve-tokens", texts[index].name);
    return fuzz_path(name);
}

static rcv_data *open_data(size_t index) {
    rcv_data *data = NULL;
    const rcv_data_options options = RCV_INIT(rcv_data_options, .kind = texts[index].kind);
    fuzz_check(rcv_data_open(fuzz_context(), text_path(index), &options, &data) == RCV_OK);
    return data;
}

static uint64_t text_hashes[TEXTS];

static uint64_t text_hash_of(const uint8_t *bytes, size_t length) { /* behind the signature */
    uint64_t hash = 0;
    if (length >= 2 * sizeof hash) memcpy(&hash, bytes + sizeof hash, sizeof hash);
    return hash;
}

/* Which text the cache is of: the one whose hash it has, or any. */
static size_t text_of_cache(const uint8_t *bytes, size_t length) {
    for (size_t i = 0; i < TEXTS; i++) {
        if (text_hash_of(bytes, length) == text_hashes[i]) return i;
    }
    return length % TEXTS;
}

#ifdef FORGED
static rcvi_token_cache_header keys[TEXTS];

/* Changes a number of one section; each section is as likely, however small it is. */
static void edit(fuzz_input *input, uint64_t *random) {
    static const uint32_t numbers[] = {0, 1, 2, 3, 255, 65535, INT32_MAX, INT32_MAX + 1u, UINT32_MAX};
    rcvi_token_cache_header h;
    if (input->length < sizeof h) return;
    memcpy(&h, input->bytes, sizeof h);
    const rcvi_section *s = &h.sections[fuzz_below(random, RCVI_SECTIONS)];
    uint32_t number = numbers[fuzz_below(random, sizeof numbers / sizeof *numbers)];
    size_t width = (size_t)1 << fuzz_below(random, 3);
    const int64_t length = (int64_t)input->length;
    if (s->offset < 0 || s->offset > length || s->bytes < (int64_t)width || s->bytes > length - s->offset) return;
    memcpy(input->bytes + s->offset + fuzz_below(random, (size_t)s->bytes / width) * width, &number, width);
}

/* The key of its text, the file's size, and hashes that fit. */
static void repair(fuzz_input *input) {
    rcvi_token_cache_header h;
    if (input->length < sizeof h) return;
    memcpy(&h, input->bytes, sizeof h);
    memcpy(&h, &keys[text_of_cache(input->bytes, input->length)], offsetof(rcvi_token_cache_header, totals));
    int64_t at = sizeof h, length = (int64_t)input->length;
    for (int i = 0; i < RCVI_SECTIONS; i++) {
        rcvi_section *s = &h.sections[i];
        at = (at + RCVI_TOKEN_CACHE_ALIGNMENT - 1) / RCVI_TOKEN_CACHE_ALIGNMENT * RCVI_TOKEN_CACHE_ALIGNMENT;
        if (at > length) return;
        s->offset = at;
        if (s->bytes < 0 || s->bytes > length - at) s->bytes = length - at;
        s->hash = s->bytes ? rcvi_hash_chunk(0, input->bytes + at, (size_t)s->bytes) : 0;
        at += s->bytes;
    }
    input->length = (size_t)at;
    h.bytes = at;
    h.hash = rcvi_hash_chunk(0, &h, offsetof(rcvi_token_cache_header, hash));
    memcpy(input->bytes, &h, sizeof h);
}
#endif

static bool seed(size_t index, fuzz_input *input) {
    if (index >= TEXTS) return false;
    fuzz_write(text_path(index), texts[index].text, strlen(texts[index].text));
    rcv_data_free(open_data(index));
    if (!fuzz_read(cache_path(index), input)) return false;
    text_hashes[index] = text_hash_of(input->bytes, input->length);
#ifdef FORGED
    memcpy(&keys[index], input->bytes, sizeof keys[index]);
#endif
    return true;
}

/* ---- what was believed ---- */

static void check_batch(const rcv_data *data, const rcvi_batch *batch) {
    const rcv_vocabulary *vocabulary = rcv_data_vocabulary(data);
    int64_t rows = batch->steps * batch->batch, tokens = vocabulary ? rcv_vocabulary_size(vocabulary) : 0;
    const rcv_data_kind kind = rcv_data_get_kind(data);
    bool classes = rcvi_kind_has_classes(kind), values = rcvi_kind_has_values(kind);
    int64_t labels = rcvi_kind_has_steps(kind) ? rows : batch->batch, outputs = rcv_data_outputs(data);
    int64_t targets = values ? 0 : labels, most = classes ? outputs : tokens;
    for (int64_t i = 0; values && i < labels * outputs; i++)
        fuzz_check(isfinite(batch->values[i]) || isnan(batch->values[i / outputs * outputs]));
    for (int64_t b = 0; batch->lengths && b < batch->batch; b++)
        fuzz_check(batch->lengths[b] >= 1 && batch->lengths[b] <= batch->steps);
    for (int64_t i = 0; batch->inputs && i < rows; i++) fuzz_check(batch->inputs[i] >= 0 && batch->inputs[i] < tokens);
    for (int64_t i = 0; i < targets; i++) fuzz_check(batch->targets[i] >= -1 && batch->targets[i] < most);
}

static void check_data(const rcv_data *data) {
    rcvi_batcher *batcher = NULL;
    bool stream = rcv_data_get_kind(data) == RCV_DATA_STREAM;
    int64_t bounds[] = {rcv_data_longest(data)};
    fuzz_check(rcv_data_tokens(data) > 0 && rcv_data_sequences(data) > 0 && rcv_data_longest(data) > 0);
    for (int64_t i = 0; rcvi_kind_has_classes(rcv_data_get_kind(data)) && i < rcv_data_outputs(data); i++)
        fuzz_check(rcv_data_class_name(data, i, NULL) != NULL);
    const rcvi_batcher_options options = {
        .how = stream ? RCVI_ALL : RCVI_SEQUENCES, .batch = 2, .steps = 3, .bounds = bounds, .bound_count = 1};
    fuzz_check(rcvi_batcher_new(data, &options, &batcher) == RCV_OK);
    for (int64_t i = 0; i < rcvi_batcher_count(batcher); i++) {
        rcvi_batch batch;
        fuzz_check(rcvi_batcher_next(batcher, &batch) == RCV_OK);
        check_batch(data, &batch);
    }
    rcvi_batcher_free(batcher);
}

static bool read_cache(const uint8_t *bytes, size_t length) {
    static fuzz_input after;
    size_t index = text_of_cache(bytes, length);
    const char *path = cache_path(index);
    fuzz_write(path, bytes, length);
    rcv_data *data = open_data(index);
    check_data(data);
    rcv_data_free(data);
    return fuzz_read(path, &after) && after.length == length && !memcmp(after.bytes, bytes, length);
}

static const fuzz_target target = {.name = "cache",
                                   .count = 3000,
                                   .seed = seed,
                                   .pieces = pieces,
#ifdef FORGED
                                   .edit = edit,
                                   .repair = repair,
#endif
                                   .read = read_cache};
FUZZ_PROGRAM(target)
