/* Mutated training logs through the reader of `recurve report`: refused with a sentence, or read into series that rise. What its scanner reads
 * of a line is what jansson reads. */
#include "fuzz.h"

#include "report/training/training_log.h"
#include "tool.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const pieces[] = {"{\"event\":\"progress\",\"step\":",
                                     "{\"event\":\"start\"",
                                     "{\"event\":\"resume\",\"step\":1",
                                     "{\"event\":\"validation\",\"step\":3,\"loss\":1.5}\n",
                                     "{\"event\":\"end\"}\n",
                                     "\"loss\":",
                                     ",",
                                     "{\"event\":\"checkpoint\"}\n",
                                     "\n",
                                     "{",
                                     "}",
                                     "[",
                                     "]",
                                     "\"",
                                     "null",
                                     "1e999",
                                     "-1",
                                     "\\u0000",
                                     "\xff",
                                     "{\"event\":\"timeline\",\"rank\":0,",
                                     "\"spans\":[[\"forward\",0,0.1,0.2]]",
                                     "\"seconds\":1",
                                     "\"metrics\":{\"accuracy\":0.5,\"f1\":",
                                     "123456789012345678901234567890",
                                     "1.2345678901234567890123",
                                     "18446744073709551616.0",
                                     "1e-23",
                                     "true",
                                     NULL};

static bool seed(size_t index, fuzz_input *input) {
    static const char *const texts[] = {
        "{\"event\":\"start\",\"recurve\":\"0.1.0\",\"settings\":{\"hidden\":4,\"cell\":\"lstm\"},\"parameters\":100}\n"
        "{\"event\":\"progress\",\"step\":1,\"epoch\":0.1,\"loss\":2.5,\"rate\":0.1,\"norm\":0.5,\"tokens_per_second\":"
        "100,\"seconds\":0.1}\n"
        "{\"event\":\"progress\",\"step\":2,\"epoch\":0.2,\"loss\":2.25,\"rate\":0.1,\"norm\":0.5,\"tokens_per_"
        "second\":100,\"seconds\":0.2}\n"
        "{\"event\":\"validation\",\"step\":2,\"loss\":2.75,\"perplexity\":15.6,\"best\":true,\"seconds\":0.3}\n"
        "{\"event\":\"checkpoint\",\"step\":2}\n"
        "{\"event\":\"resume\",\"step\":2,\"settings\":{\"hidden\":4}}\n"
        "{\"event\":\"progress\",\"step\":3,\"epoch\":0.3,\"loss\":2,\"seconds\":0.5}\n"
        "{\"event\":\"end\",\"reason\":\"steps\",\"tokens_per_second\":99}\n",
        "{\"event\":\"start\"}\n"
        "{\"event\":\"timeline\",\"step\":5,\"rank\":0,\"replica\":0,\"stage\":0,\"seconds\":1,\"spans\":[[\"forward\","
        "0,0.1,0.2],[\"backward\",0,0.2,0.5]]}\n"
        "{\"event\":\"timeline\",\"step\":5,\"rank\":1,\"replica\":0,\"stage\":1,\"seconds\":1,\"spans\":[["
        "\"exchange\",0,0.1,0.2],[\"wait\",-1,0.2,0.5]]}\n",
        "{\"event\":\"progress\",\"step\":1,\"loss\":1}\n{\"event\":\"progress\",\"step\":2,\"lo",
        "{\"event\": \"validation\", \"step\": 4, \"loss\": 0.000123456789012345678, \"best\": false, \"metrics\": "
        "{\"accuracy\": "
        "0.93, \"mae\": null, \"r2\": "
        "-0.5e-3}}\n{\"event\":\"test\",\"loss\":1,\"classes\":[\"a\",\"b\"],\"confusion\":[[1,2],[3,4]"
        "]}\n"};
    return index < sizeof texts / sizeof *texts && fuzz_text(texts[index], input);
}

static void check_series(const log_series *series) {
    for (size_t i = 0; i < series->count; i++) {
        fuzz_check(isfinite(series_value(series, VALUE_STEP, i)));
        fuzz_check(i == 0 || series_value(series, VALUE_STEP, i) > series_value(series, VALUE_STEP, i - 1));
    }
}

/* A value that the scanner read is that of jansson: bit for bit, or both have none. */
static void check_value(double scanned, const json_t *object, const char *key) {
    const double wanted = log_number(object, key);
    fuzz_check((isnan(scanned) && isnan(wanted)) || scanned == wanted);
}

static void check_line(const char *line, size_t length, line_shape *shape) {
    char *copy = calloc(length + 1 + SCAN_PADDING, 1);
    log_row row;
    fuzz_check(copy != NULL);
    memcpy(copy, line, length);
    copy[length] = '\n';
    const scanned event = scan_line(copy, copy + length, &row, shape);
    if (event != SCANNED_NOTHING) {
        json_t *object = json_loadb(line, length, 0, NULL);
        fuzz_check(object != NULL);
        fuzz_check(strcmp(log_text(object, "event"), event == SCANNED_PROGRESS ? "progress" : "validation") == 0);
        for (size_t i = 0; i < LOG_VALUES; i++)
            check_value(row.values[i], i < FIRST_METRIC ? object : json_object_get(object, "metrics"),
                        log_values[i].key);
        json_decref(object);
    }
    free(copy);
}

/* The scanner accepts a part of JSON, with the same values. */
static void check_scanner(const char *text, size_t length) {
    line_shape shape = {0};
    for (size_t at = 0; at < length;) {
        const char *end = memchr(text + at, '\n', length - at);
        const size_t line = end != NULL ? (size_t)(end - text) - at : length - at;
        check_line(text + at, line, &shape);
        at += line + 1;
    }
}

static bool read_log(const uint8_t *bytes, size_t length) {
    static const training_log nothing;
    training_log log;
    check_scanner((const char *)bytes, length);
    hold_messages(true);
    bool good = log_read(&log, fuzz_file(bytes, length));
    if (!good) {
        fuzz_check(held_message() != NULL && strlen(held_message()) > 10);
        fuzz_check(memcmp(&log, &nothing, sizeof log) == 0);
        return false;
    }
    check_series(&log.progress);
    check_series(&log.validations);
    const size_t best = log_best(&log);
    for (size_t i = 0; best != NO_POINT && i < log.validations.count; i++)
        fuzz_check(!(series_value(&log.validations, VALUE_LOSS, i) < series_value(&log.validations, VALUE_LOSS, best)));
    (void)log_speed(&log);
    for (size_t i = 0; i < log.trace.count; i++) {
        const lane *lane = &log.trace.lanes[i];
        fuzz_check(i == 0 || lane->rank > log.trace.lanes[i - 1].rank);
        for (size_t k = 0; k < lane->count; k++) fuzz_check(lane->spans[k].end >= lane->spans[k].begin);
    }
    (void)trace_balance(&log.trace);
    (void)trace_idle(&log.trace);
    log_free(&log);
    return true;
}

static void end(void) { hold_messages(false); }

static const fuzz_target target = {
    .name = "log", .count = 50000, .seed = seed, .pieces = pieces, .read = read_log, .end = end};
FUZZ_PROGRAM(target)
