/* Mutated examples. A line that is accepted is what it says: written as JSON again it gives the same numbers. Of a file everything that was
 * accepted can be read, and lies in range. */
#include "fuzz.h"

#include "data/example.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const pieces[] = {"{\"x\": [",
                                     "[[1, 2], [3, 4]]",
                                     "], \"y\": ",
                                     "}",
                                     "\n",
                                     "{\"text\": \"",
                                     "\", \"y\": \"",
                                     "1 0.5 0.25\n",
                                     "2,1,2,3\n",
                                     "[]",
                                     "[",
                                     "]",
                                     ",",
                                     "1e39",
                                     "-1e-50",
                                     "nan",
                                     "\"a\"",
                                     " ",
                                     "\\u0000",
                                     "\xff",
                                     "\xc3\xa9",
                                     "[0.5, 1]",
                                     "null",
                                     "true",
                                     "\r\n",
                                     "9007199254740993",
                                     NULL};

static bool seed(size_t index, fuzz_input *input) {
    static const char *const texts[] = {
        "{\"x\": [[0.5, -1], [0.25, 2], [1, 0]], \"y\": \"a\"}\n{\"x\": [[-0.5, 1]], \"y\": \"b\"}\n",
        "{\"x\": [1, 2, 3], \"y\": 4}\n\n{\"x\": [5], \"y\": 6}\n",
        "{\"text\": \"the cat sat\", \"y\": \"good\"}\n{\"text\": \"on a mat\", \"y\": \"bad\"}\n",
        "{\"x\": [1, 2, 3], \"y\": [\"a\", null, 4]}\n{\"x\": [5], \"y\": [\"b\"]}\n",
        "{\"x\": [1, 2], \"y\": [null, [1, 2]]}\n{\"x\": [5, 6], \"y\": [[1, 2], [3, 4]]}\n",
        "1 0.5 0.25 0.125\n2 1 2 3 4\n",
        "0,1.5,2.5\n1,3.5,4.5\n"};
    return index < sizeof texts / sizeof *texts && fuzz_text(texts[index], input);
}

/* ---- one line ---- */

static void print_example(const rcvi_example *e, rcvi_text *out) {
    rcvi_text_add(out, "{\"x\": [");
    for (int64_t t = 0; t < e->steps; t++) {
        rcvi_text_add(out, t ? ", [" : "[");
        for (int64_t f = 0; f < e->features; f++)
            rcvi_text_add(out, "%s%.9g", f ? ", " : "", (double)e->x[t * e->features + f]);
        rcvi_text_add(out, "]");
    }
    if (!rcvi_kind_has_steps(e->kind) && e->outputs == 0) {
        rcvi_text_add(out, "], \"y\": null}");
        return;
    }
    rcvi_text_add(out, "], \"y\": [");
    const bool steps = rcvi_kind_has_steps(e->kind);
    for (int64_t r = 0; r < (steps ? e->steps : 1); r++) {
        const float *row = e->values + r * e->outputs;
        rcvi_text_add(out, "%s%s", r ? ", " : "", !steps ? "" : e->outputs ? "[" : "null");
        for (int64_t i = 0; i < e->outputs; i++) {
            rcvi_text_add(out, "%s", i ? ", " : "");
            if (isnan(row[i]))
                rcvi_text_add(out, "null");
            else
                rcvi_text_add(out, "%.9g", (double)row[i]);
        }
        rcvi_text_add(out, "%s", steps && e->outputs ? "]" : "");
    }
    rcvi_text_add(out, "]}");
}

/* Numbers and values alone: names would need to be escaped. */
static void check_again(const rcvi_example *e) {
    rcvi_example again = {.context = e->context, .path = "printed", .kind = e->kind};
    rcvi_text out;
    char *line = NULL;
    rcvi_text_init(&out, e->context);
    print_example(e, &out);
    fuzz_check(rcvi_text_take(&out, &line) == RCV_OK);
    fuzz_check(rcvi_example_parse(&again, line, strlen(line)) == RCV_OK);
    fuzz_check(again.steps == e->steps && again.features == e->features && again.outputs == e->outputs);
    for (int64_t i = 0; i < e->steps * e->features; i++) fuzz_check(again.x[i] == e->x[i]); /* JSON's -0 is 0 */
    const int64_t rows = rcvi_kind_has_steps(e->kind) ? e->steps : 1;
    for (int64_t i = 0; i < rows * e->outputs; i++)
        fuzz_check(again.values[i] == e->values[i] || (isnan(again.values[i]) && isnan(e->values[i])));
    rcvi_free(e->context, line);
    rcvi_example_free(&again);
}

static bool read_line(rcvi_example *e, const char *line, size_t length) {
    rcv_status status = rcvi_example_parse(e, line, length);
    if (status) {
        fuzz_check_refusal(status, NULL);
        return false;
    }
    if (e->text) {
        fuzz_check(rcvi_utf8_prefix(e->text, e->text_length) == e->text_length);
    } else {
        fuzz_check(e->steps > 0 && e->features > 0);
        for (int64_t i = 0; i < e->steps * e->features; i++) fuzz_check(isfinite(e->x[i]));
    }
    if (rcvi_kind_has_steps(e->kind)) fuzz_check(!e->text);
    if (rcvi_kind_has_values(e->kind)) {
        for (int64_t i = 0; e->kind == RCV_DATA_VALUES && i < e->outputs; i++) fuzz_check(isfinite(e->values[i]));
        if (!e->text) check_again(e);
    } else if (rcvi_kind_has_steps(e->kind)) {
        int64_t names = 0;
        for (size_t at = 0; at < e->names_bytes; at += strlen(e->names + at) + 1) names++;
        fuzz_check(names == e->steps);
    } else {
        fuzz_check(e->label_length < sizeof e->label);
    }
    return true;
}

static bool read_lines(const char *bytes, size_t length, rcv_data_kind kind) {
    rcvi_example e = {.context = fuzz_context(), .path = "mutated", .kind = kind};
    bool all = true;
    for (size_t at = 0; at < length && all;) {
        const char *end = memchr(bytes + at, '\n', length - at);
        size_t own = end ? (size_t)(end - bytes) - at : length - at;
        e.line++;
        if (own > 0) all = read_line(&e, bytes + at, own);
        at += own + 1;
    }
    rcvi_example_free(&e);
    return all;
}

/* ---- a file ---- */

static void check_data(const rcv_data *data) {
    int64_t total = 0, longest = rcv_data_longest(data), *counts = calloc((size_t)longest + 1, sizeof *counts);
    fuzz_check(counts != NULL);
    fuzz_check(rcv_data_lengths(data, counts) == RCV_OK);
    for (int64_t i = 0; i <= longest; i++) total += counts[i];
    fuzz_check(total == rcv_data_sequences(data) && counts[0] == 0);
    free(counts);
    for (int64_t i = 0; rcvi_kind_has_classes(rcv_data_get_kind(data)) && i < rcv_data_outputs(data); i++) {
        size_t length;
        fuzz_check(rcv_data_class_name(data, i, &length) != NULL);
    }
}

static void read_file(const uint8_t *bytes, size_t length, rcv_data_kind kind) {
    rcv_data *data = NULL;
    const char *path = fuzz_path("examples");
    fuzz_write(path, bytes, length);
    const rcv_data_options options = RCV_INIT(rcv_data_options, .kind = kind);
    rcv_status status = rcv_data_open(fuzz_context(), path, &options, &data);
    if (status)
        fuzz_check_refusal(status, data);
    else
        check_data(data);
    rcv_data_free(data);
}

static bool read_examples(const uint8_t *bytes, size_t length) {
    static unsigned inputs;
    bool classes = read_lines((const char *)bytes, length, RCV_DATA_CLASSES);
    bool values = read_lines((const char *)bytes, length, RCV_DATA_VALUES);
    bool step_classes = read_lines((const char *)bytes, length, RCV_DATA_STEP_CLASSES);
    bool step_values = read_lines((const char *)bytes, length, RCV_DATA_STEP_VALUES);
    if (inputs++ % 64 == 0) read_file(bytes, length, (rcv_data_kind)(RCV_DATA_CLASSES + inputs / 64 % 4));
    return classes || values || step_classes || step_values;
}

static const fuzz_target target = {
    .name = "examples", .count = 100000, .seed = seed, .pieces = pieces, .read = read_examples};
FUZZ_PROGRAM(target)
