/* Mutated training logs through the reader of `recurve report`: refused with a sentence, or read into series that rise. */
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
        "{\"event\":\"progress\",\"step\":1,\"loss\":1}\n{\"event\":\"progress\",\"step\":2,\"lo"};
    return index < sizeof texts / sizeof *texts && fuzz_text(texts[index], input);
}

static void check_series(const log_series *series) {
    for (size_t i = 0; i < series->count; i++) {
        fuzz_check(isfinite(series->points[i].step));
        fuzz_check(i == 0 || series->points[i].step > series->points[i - 1].step);
    }
}

static bool read_log(const uint8_t *bytes, size_t length) {
    static const training_log nothing;
    training_log log;
    hold_messages(true);
    bool good = log_read(&log, fuzz_file(bytes, length));
    if (!good) {
        fuzz_check(held_message() != NULL && strlen(held_message()) > 10);
        fuzz_check(memcmp(&log, &nothing, sizeof log) == 0);
        return false;
    }
    check_series(&log.progress);
    check_series(&log.validations);
    const log_point *best = log_best(&log);
    for (size_t i = 0; best && i < log.validations.count; i++)
        fuzz_check(!(log.validations.points[i].loss < best->loss));
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
