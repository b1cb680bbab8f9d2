/* Parts of data: a range of a stream's tokens, or some of the sequences. */
#include "data/internal.h"

#include "base/random.h"

#include <string.h>

static rcv_status check_options(const rcv_data *data, const rcv_part_options *o) {
    if (!(o->begin >= 0 && o->begin < o->end && o->end <= 1))
        return rcvi_fail(RCV_INVALID, "a part of the data from %g to %g is none of 0 to 1", o->begin, o->end);
    if (o->by != RCV_PART_SEQUENCES && o->by != RCV_PART_TIME)
        return rcvi_fail(RCV_INVALID, "%d is no way to divide data", (int)o->by);
    if (o->by == RCV_PART_SEQUENCES && data->kind == RCV_DATA_STREAM)
        return rcvi_fail(RCV_INVALID, "a text is one sequence, and is divided by time (--split-by time)");
    if (data->subset || data->first_token) return rcvi_fail(RCV_UNSUPPORTED, "a part of data cannot be divided again");
    return RCV_OK;
}

/* A share of `count` things as a number of them. Parts whose shares touch have no thing in common and leave none out. */
static int64_t place(double share, int64_t count) {
    const double at = share * (double)count + 0.5;
    return at < (double)count ? (int64_t)at : count;
}

static rcv_status fail_empty(void) {
    return rcvi_fail(RCV_INVALID, "a part of the data would have no sequence: choose a larger share");
}

/* ---- streams ---- */

static rcv_status take_tokens(const rcv_part_options *o, rcv_data *part) {
    const int64_t begin = place(o->begin, part->totals.tokens), end = place(o->end, part->totals.tokens);
    if (end - begin < 2) return rcvi_fail(RCV_INVALID, "a part of the text has less than two tokens");
    part->first_token = begin;
    part->totals.tokens = part->totals.longest = end - begin;
    return RCV_OK;
}

/* ---- sequences ---- */

/* marks[i]: sequence i of the file is in the part. */
static void mark_at_random(const rcv_part_options *o, uint32_t *order, int64_t groups, uint8_t *marks) {
    for (int64_t i = 0; i < groups; i++) order[i] = (uint32_t)i;
    for (int64_t i = groups - 1; i > 0; i--) {
        const int64_t other =
            (int64_t)(rcvi_hash_uniform(o->seed ^ UINT64_C(0x7061727473), (uint64_t)i) * (double)(i + 1));
        const uint32_t item = order[i];
        order[i] = order[other];
        order[other] = item;
    }
    for (int64_t i = place(o->begin, groups); i < place(o->end, groups); i++) marks[order[i]] = 1;
}

/* Whole sequences are drawn, with all their pieces. */
static rcv_status mark_groups(const rcv_data *data, const rcv_part_options *o, uint8_t *marks) {
    const int64_t sequences = data->totals.sequences, groups = data->totals.groups ? data->totals.groups : sequences;
    uint32_t *order = rcvi_new(data->context, (size_t)groups, sizeof *order);
    uint8_t *taken = rcvi_new(data->context, (size_t)groups, 1);
    rcv_status status = order && taken ? RCV_OK : RCV_NO_MEMORY;
    if (!status) mark_at_random(o, order, groups, taken);
    for (int64_t i = 0; i < groups && !status; i++) {
        rcvi_group group = {i, 0}, next = {i + 1, 0};
        if (data->totals.groups) status = rcvi_data_read_group(data, i, &group);
        if (data->totals.groups) next.first = sequences;
        if (data->totals.groups && i + 1 < groups && !status) status = rcvi_data_read_group(data, i + 1, &next);
        if (!status && taken[i]) memset(marks + group.first, 1, (size_t)(next.first - group.first));
    }
    rcvi_free(data->context, order);
    rcvi_free(data->context, taken);
    return status;
}

/* Of each whole sequence its pieces in order; where none is cut, the sequences in the order of the file. */
static rcv_status mark_times(const rcv_data *data, const rcv_part_options *o, uint8_t *marks) {
    const int64_t sequences = data->totals.sequences;
    const bool cut = data->totals.groups > 0 && data->totals.groups < sequences;
    int64_t first = 0;
    for (int64_t i = 1; i <= (cut ? data->totals.groups : 1); i++) {
        rcvi_group next = {sequences, 0};
        if (cut && i < data->totals.groups) RCVI_TRY(rcvi_data_read_group(data, i, &next));
        const int64_t begin = first + place(o->begin, next.first - first),
                      end = first + place(o->end, next.first - first);
        if (end > begin) memset(marks + begin, 1, (size_t)(end - begin));
        first = next.first;
    }
    return RCV_OK;
}

typedef struct {
    int64_t tokens, longest;
} lengths;

static void add_length(void *user, int64_t sequence, rcvi_span span) {
    lengths *l = user;
    (void)sequence;
    l->tokens += span.length;
    if (span.length > l->longest) l->longest = span.length;
}

static rcv_status take_marked(const uint8_t *marks, rcv_data *part) {
    const int64_t sequences = part->totals.sequences;
    int64_t count = 0;
    lengths l = {0};
    for (int64_t i = 0; i < sequences; i++) count += marks[i];
    if (count == 0) return fail_empty();
    part->subset = rcvi_new(part->context, (size_t)count, sizeof *part->subset);
    if (!part->subset) return RCV_NO_MEMORY;
    count = 0;
    for (int64_t i = 0; i < sequences; i++)
        if (marks[i]) part->subset[count++] = (uint32_t)i;
    part->totals.sequences = count;
    RCVI_TRY(rcvi_data_each_span(part, add_length, &l));
    part->totals.tokens = l.tokens;
    part->totals.longest = l.longest;
    return RCV_OK;
}

static rcv_status take_sequences(const rcv_data *data, const rcv_part_options *o, rcv_data *part) {
    if (data->totals.sequences > UINT32_MAX)
        return rcvi_fail(RCV_UNSUPPORTED, "%lld sequences are more than the %u that can be divided",
                         (long long)data->totals.sequences, UINT32_MAX);
    uint8_t *marks = rcvi_new(data->context, (size_t)data->totals.sequences, 1);
    rcv_status status = marks ? RCV_OK : RCV_NO_MEMORY;
    if (!status) status = o->by == RCV_PART_TIME ? mark_times(data, o, marks) : mark_groups(data, o, marks);
    if (!status) status = take_marked(marks, part);
    rcvi_free(data->context, marks);
    return status;
}

/* ---- the copy ---- */

static rcv_status copy_words(const rcvi_words *from, rcvi_words *to) {
    for (int64_t i = 0; i < from->size; i++) {
        size_t length;
        const char *word = rcvi_words_at(from, i, &length);
        RCVI_TRY(rcvi_words_count(to, word, length, from->counts[i], NULL));
    }
    return RCV_OK;
}

static rcv_status copy_data(const rcv_data *data, rcv_data *part) {
    *part = (rcv_data){.context = data->context,
                       .level = data->level,
                       .kind = data->kind,
                       .totals = data->totals,
                       .token_at = data->token_at,
                       .text_bytes = data->text_bytes,
                       .has_spans = data->has_spans,
                       .format = data->format,
                       .file_tokens = data->file_tokens};
    memcpy(part->offsets, data->offsets, sizeof part->offsets);
    rcvi_words_init(&part->classes, data->context);
    RCVI_TRY(rcvi_schema_copy(&data->schema, &part->schema));
    if (data->vocabulary) RCVI_TRY(rcvi_vocabulary_copy(data->vocabulary, &part->vocabulary));
    RCVI_TRY(copy_words(&data->classes, &part->classes));
    if (data->text) RCVI_TRY(rcvi_data_file_copy(data->text, &part->text));
    if (data->cache) RCVI_TRY(rcvi_data_file_copy(data->cache, &part->cache));
    part->tokens = data->tokens == data->text ? part->text : part->cache;
    return RCV_OK;
}

rcv_status rcv_data_part(const rcv_data *data, const rcv_part_options *options, rcv_data **part) {
    RCVI_NEED(data, "data");
    RCVI_NEED(part, "part");
    *part = NULL;
    RCVI_NEED(options, "options");
    RCVI_READ(rcv_part_options, options, "options");
    RCVI_TRY(check_options(data, options));
    rcv_data *made = rcvi_new(data->context, 1, sizeof *made);
    if (!made) return RCV_NO_MEMORY;
    rcv_status status = copy_data(data, made);
    if (!status)
        status = data->kind == RCV_DATA_STREAM ? take_tokens(options, made) : take_sequences(data, options, made);
    if (!status) {
        const uint64_t key[] = {data->hash,
                                (uint64_t)options->by,
                                options->seed,
                                (uint64_t)made->totals.tokens,
                                (uint64_t)made->totals.sequences,
                                (uint64_t)(options->begin * 0x1p32)};
        made->hash = rcvi_hash_chunk(0, key, sizeof key);
        made->totals.left_out = 0;
        status = rcvi_data_describe(made);
    }
    if (status) {
        rcv_data_free(made);
        return status;
    }
    *part = made;
    return RCV_OK;
}
