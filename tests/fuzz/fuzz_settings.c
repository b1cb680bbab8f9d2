/* Mutated settings. What is accepted prints, and what was printed reads to the same settings; what is refused changes none. */
#include "fuzz.h"

#include <string.h>

static const char *const pieces[] = {"{",
                                     "}",
                                     "\"",
                                     ":",
                                     ",",
                                     "\"preset\": \"zaremba-small\",",
                                     "\"hidden\": 20,",
                                     "\"learning-rate\": 0.5,",
                                     "\"tied\": true,",
                                     "\"cell\": \"gru\",",
                                     "null",
                                     "[1]",
                                     "1e999",
                                     "\\u0000",
                                     "\\ud800",
                                     "\xff",
                                     "\"optimiser\": \"adam\",",
                                     "\"sizes\": ",
                                     "-1",
                                     "\"buckets\": \"auto\",",
                                     "\"dtype\": \"float64\",",
                                     " ",
                                     "\n",
                                     "true",
                                     "false",
                                     NULL};

static bool seed(size_t index, fuzz_input *input) {
    static const char *const texts[] = {
        "{\"preset\": \"zaremba-small\", \"hidden\": 650, \"tied\": true}", "{}",
        "{\"cell\": \"gru\", \"learning-rate\": 0.001, \"kind\": \"lines\", \"log-every\": 10, \"seed\": 7}"};
    if (index < sizeof texts / sizeof *texts) return fuzz_text(texts[index], input);
    if (index > sizeof texts / sizeof *texts) return false;
    rcv_settings *settings = NULL;
    char *json = NULL;
    if (rcv_settings_new(fuzz_context(), &settings) || rcv_settings_print(settings, &json)) return false;
    fuzz_text(json, input);
    rcv_text_free(fuzz_context(), json);
    rcv_settings_free(settings);
    return true;
}

static bool read_settings(const uint8_t *bytes, size_t length) {
    rcv_settings *settings = NULL, *copy = NULL;
    char *before = NULL, *after = NULL, *again = NULL;
    fuzz_check(rcv_settings_new(fuzz_context(), &settings) == RCV_OK);
    fuzz_check(rcv_settings_print(settings, &before) == RCV_OK);
    rcv_status status = rcv_settings_parse(settings, (const char *)bytes, length, "mutated");
    fuzz_check(rcv_settings_print(settings, &after) == RCV_OK);
    if (status) {
        fuzz_check_refusal(status, NULL);
        fuzz_check(strcmp(before, after) == 0);
    } else {
        fuzz_check(rcv_settings_new(fuzz_context(), &copy) == RCV_OK);
        fuzz_check(rcv_settings_parse(copy, after, strlen(after), "printed") == RCV_OK);
        fuzz_check(rcv_settings_print(copy, &again) == RCV_OK);
        fuzz_check(strcmp(after, again) == 0);
    }
    rcv_text_free(fuzz_context(), again);
    rcv_text_free(fuzz_context(), after);
    rcv_text_free(fuzz_context(), before);
    rcv_settings_free(copy);
    rcv_settings_free(settings);
    return !status;
}

static const fuzz_target target = {
    .name = "settings", .count = 6000, .seed = seed, .pieces = pieces, .read = read_settings};
FUZZ_PROGRAM(target)
