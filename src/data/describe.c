/* What was read, for people; names, and single examples. */
#include "data/internal.h"

#include <stdio.h>
#include <string.h>

static const char *const formats[] = {"text",         "text",          "table (CSV)",
                                      "table (TSV)",  "JSON lines",    "lines of numbers",
                                      "array (.npy)", "arrays (.npz)", "tensors (safetensors)"};

/* ---- description ---- */

/* 1234567 as "1,234,567". */
static void add_count(rcvi_text *text, int64_t count, const char *what, const char *many) {
    char digits[32];
    const int length = snprintf(digits, sizeof digits, "%lld", (long long)count);
    for (int i = 0; i < length; i++) rcvi_text_add(text, "%s%c", i > 0 && (length - i) % 3 == 0 ? "," : "", digits[i]);
    rcvi_text_add(text, " %s", count == 1 ? what : many);
}

static void add_targets(rcvi_text *text, const rcv_data *data) {
    const char *each = rcvi_kind_has_steps(data->kind) ? " at every time step" : "";
    if (rcvi_kind_has_classes(data->kind)) {
        add_count(text, data->totals.outputs, "class", "classes");
    } else {
        add_count(text, data->totals.outputs, "value", "values");
    }
    rcvi_text_add(text, "%s", each);
    if (data->target_names && data->target_names[0]) rcvi_text_add(text, " (%.80s)", data->target_names);
    if (data->schema.horizon > 0) rcvi_text_add(text, ", %lld steps ahead", (long long)data->schema.horizon);
}

static void describe_text(rcvi_text *text, const rcv_data *data) {
    static const char *const names[][2] = {
        {"word", "words"}, {"byte", "bytes"}, {"character", "characters"}, {"piece", "pieces"}};
    add_count(text, data->totals.tokens, names[data->level][0], names[data->level][1]);
    if (data->kind == RCV_DATA_LINES) {
        rcvi_text_add(text, " in ");
        add_count(text, data->totals.sequences, "line", "lines");
    }
}

static void describe_examples(rcvi_text *text, const rcv_data *data) {
    const rcvi_totals *t = &data->totals;
    rcvi_text_add(text, "%s, ", formats[data->format]);
    add_count(text, t->sequences, "sequence", "sequences");
    rcvi_text_add(text, " of ");
    if (t->tokens == t->longest * t->sequences)
        add_count(text, t->longest, "step", "steps");
    else {
        rcvi_text_add(text, "up to ");
        add_count(text, t->longest, "step", "steps");
    }
    if (t->features > 0) {
        rcvi_text_add(text, ", ");
        add_count(text, t->features, "feature", "features");
    } else {
        rcvi_text_add(text, ", texts");
    }
    rcvi_text_add(text, ", ");
    add_targets(text, data);
    if (t->left_out > 0) {
        rcvi_text_add(text, "; left out, since they have no target: ");
        add_count(text, t->left_out, "sequence", "sequences");
    }
}

rcv_status rcvi_data_describe(rcv_data *data) {
    rcvi_text text;
    const bool tables = !rcvi_kind_is_text(data->kind) && data->schema.context;
    rcvi_text_init(&text, data->context);
    rcvi_schema none;
    rcvi_schema_init(&none, data->context);
    const rcvi_schema *schema = tables && !data->schema.is_wide ? &data->schema : &none;
    rcvi_free(data->context, data->feature_names);
    rcvi_free(data->context, data->target_names);
    rcvi_free(data->context, data->description);
    data->feature_names = data->target_names = data->description = NULL;
    RCVI_TRY(rcvi_schema_names(schema, false, &data->feature_names));
    RCVI_TRY(rcvi_schema_names(tables ? &data->schema : &none, true, &data->target_names));
    if (rcvi_kind_is_text(data->kind))
        describe_text(&text, data);
    else
        describe_examples(&text, data);
    return rcvi_text_take(&text, &data->description);
}

const char *rcv_data_description(const rcv_data *data) { return data->description; }
const char *rcv_data_feature_names(const rcv_data *data) { return data->feature_names; }
const char *rcv_data_target_names(const rcv_data *data) { return data->target_names; }
const rcvi_schema *rcvi_data_schema(const rcv_data *data) { return &data->schema; }

/* ---- names ---- */

/* The whole sequence to which sequence `sequence` of the file belongs. */
static rcv_status find_group(const rcv_data *data, int64_t sequence, rcvi_group *group) {
    int64_t low = 0, high = data->totals.groups;
    RCVI_TRY(rcvi_data_read_group(data, 0, group));
    while (high - low > 1) {
        const int64_t middle = (low + high) / 2;
        rcvi_group found;
        RCVI_TRY(rcvi_data_read_group(data, middle, &found));
        if (found.first <= sequence) {
            low = middle;
            *group = found;
        } else {
            high = middle;
        }
    }
    return RCV_OK;
}

rcv_status rcv_data_example_name(const rcv_data *data, int64_t index, char *text, size_t room) {
    RCVI_NEED(data, "data");
    RCVI_NEED(text, "text");
    if (index < 0 || index >= data->totals.sequences || room == 0)
        return rcvi_fail(RCV_INVALID, "example %lld is none of the %lld of the data", (long long)index,
                         (long long)data->totals.sequences);
    const int64_t sequence = rcvi_data_sequence(data, index);
    const int64_t names = data->totals.bytes[RCVI_NAMES];
    snprintf(text, room, "%lld", (long long)sequence);
    if (data->totals.groups == 0 || names == 0) return RCV_OK;
    rcvi_group group;
    RCVI_TRY(find_group(data, sequence, &group));
    if (group.name < 0 || group.name >= names) return rcvi_data_file_fail_changed(data->cache);
    const int64_t left = names - group.name, bytes = left < (int64_t)room - 1 ? left : (int64_t)room - 1;
    memset(text, 0, room);
    return rcvi_data_file_read(data->cache, data->offsets[RCVI_NAMES] + group.name, text, (size_t)bytes);
}

/* ---- reading examples ---- */

static rcv_status read_tokens(const rcv_data *data, rcvi_span span, int64_t row, int64_t count, int64_t *tokens) {
    enum { BLOCK = 1024 };
    int32_t block[BLOCK];
    for (int64_t at = 0, part; at < span.length; at += part) {
        part = span.length - at < BLOCK ? span.length - at : BLOCK;
        RCVI_TRY(rcvi_data_read_tokens(data, span.start + at, part, block));
        for (int64_t i = 0; i < part; i++) tokens[(at + i) * count + row] = block[i];
    }
    return RCV_OK;
}

/* Lines begin with <eos>, as a language model reads them. */
static rcv_status read_text(const rcv_data *data, rcvi_span span, int64_t row, int64_t count, int64_t *tokens) {
    if (data->kind != RCV_DATA_LINES) return read_tokens(data, span, row, count, tokens);
    tokens[row] = data->vocabulary->eos;
    span.length--;
    return read_tokens(data, span, row, count, tokens + count);
}

/* Sequences that lie one behind the other are read at once, as many as fit into the buffer, but at least one. */
enum { BUFFER = 1 << 18 /* floats */ };

static rcv_status read_numbers(const rcv_data *data, const rcvi_span *spans, int64_t count, float *x) {
    const int64_t features = data->totals.features;
    float *numbers = NULL;
    size_t capacity = 0;
    rcv_status status = RCV_OK;
    for (int64_t from = 0, next; from < count && !status; from = next) {
        rcvi_span all = spans[from];
        for (next = from + 1; next < count && spans[next].start == all.start + all.length &&
                              (all.length + spans[next].length) * features <= BUFFER;
             next++)
            all.length += spans[next].length;
        if (!rcvi_grow(data->context, &numbers, &capacity, (size_t)(all.length * features), sizeof *numbers))
            status = RCV_NO_MEMORY;
        if (!status) status = rcvi_data_read_numbers(data, all, numbers);
        for (int64_t i = from; i < next && !status; i++) {
            const float *own = numbers + (spans[i].start - all.start) * features;
            for (int64_t t = 0; t < spans[i].length; t++)
                memcpy(x + (t * count + i) * features, own + t * features, (size_t)features * sizeof *x);
        }
    }
    rcvi_free(data->context, numbers);
    return status;
}

/* `spans`: [count] room. */
static rcv_status read_examples(const rcv_data *data, int64_t from, int64_t count, rcvi_span *spans, int64_t *lengths,
                                float *x, int64_t *tokens, int64_t room) {
    int64_t steps = 0, elements;
    RCVI_TRY(rcvi_data_read_spans(data, from, count, spans));
    for (int64_t i = 0; i < count; i++) {
        lengths[i] = spans[i].length;
        if (spans[i].length > steps) steps = spans[i].length;
    }
    const bool numbers = data->totals.features > 0;
    const int64_t each = numbers ? data->totals.features : 1;
    if (!x && !tokens) return RCV_OK;
    if (!rcvi_multiply(steps, count, &elements) || !rcvi_multiply(elements, each, &elements) || elements > room)
        return rcvi_fail(RCV_INVALID, "%lld examples of up to %lld steps need room for %lld elements, not %lld",
                         (long long)count, (long long)steps, (long long)elements, (long long)room);
    if (x && numbers) {
        memset(x, 0, (size_t)elements * sizeof *x);
        return read_numbers(data, spans, count, x);
    }
    if (!tokens || !data->vocabulary) return RCV_OK;
    memset(tokens, 0, (size_t)(steps * count) * sizeof *tokens);
    for (int64_t i = 0; i < count; i++) RCVI_TRY(read_text(data, spans[i], i, count, tokens));
    return RCV_OK;
}

rcv_status rcv_data_read(const rcv_data *data, int64_t from, int64_t count, int64_t *lengths, float *x, int64_t *tokens,
                         int64_t room) {
    RCVI_NEED(data, "data");
    RCVI_NEED(lengths, "lengths");
    if (data->kind == RCV_DATA_STREAM) return rcvi_fail(RCV_INVALID, "a stream has no examples; it is one text");
    if (from < 0 || count < 1 || count > data->totals.sequences - from)
        return rcvi_fail(RCV_INVALID, "examples %lld to %lld are not all among the %lld of the data", (long long)from,
                         (long long)from + count - 1, (long long)data->totals.sequences);
    rcvi_span *spans = rcvi_new(data->context, (size_t)count, sizeof *spans);
    if (!spans) return RCV_NO_MEMORY;
    const rcv_status status = read_examples(data, from, count, spans, lengths, x, tokens, room);
    rcvi_free(data->context, spans);
    return status;
}
