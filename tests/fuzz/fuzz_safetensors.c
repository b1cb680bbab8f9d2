/* Mutated tensor files: refused with a sentence, or read so that every byte is there, and a file that was saved from them reads the same. */
#include "fuzz.h"

#include <stdio.h>
#include <string.h>

static const char *const pieces[] = {"{",
                                     "}",
                                     "[",
                                     "]",
                                     ",",
                                     "\"",
                                     ":",
                                     "\\u0000",
                                     "\\ud800",
                                     "\xff",
                                     " ",
                                     "\n",
                                     "\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},",
                                     "\"__metadata__\":{\"a\":\"b\"},",
                                     "F64",
                                     "BF16",
                                     "I64",
                                     "BOOL",
                                     "data_offsets",
                                     NULL};

static bool make(const char *header, size_t data, fuzz_input *input) {
    uint64_t length = strlen(header);
    memcpy(input->bytes, &length, sizeof length);
    memcpy(input->bytes + 8, header, length);
    for (size_t i = 0; i < data; i++) input->bytes[8 + length + i] = (uint8_t)(i * 37 % 2);
    input->length = 8 + length + data;
    return true;
}

static bool seed(size_t index, fuzz_input *input) {
    static const struct {
        const char *header;
        size_t data;
    } files[] = {{"{\"x\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}", 24},
                 {"{\"__metadata__\":{\"recurve.note\":\"1\",\"note\":\"a \\u00e9\"},"
                  "\"a\":{\"dtype\":\"F64\",\"shape\":[4],\"data_offsets\":[0,32]},"
                  "\"b\":{\"dtype\":\"I64\",\"shape\":[1,2],\"data_offsets\":[32,48]},"
                  "\"c\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[48,51]}}     ",
                  51},
                 {"{\"h\":{\"dtype\":\"F16\",\"shape\":[2,2,1],\"data_offsets\":[8,16]},"
                  "\"w\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[0,8]},"
                  "\"e\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[16,16]},"
                  "\"i\":{\"dtype\":\"I32\",\"shape\":[],\"data_offsets\":[16,20]}}",
                  20},
                 {"{}", 0}};
    return index < sizeof files / sizeof *files && make(files[index].header, files[index].data, input);
}

/* Adds a tensor whose bytes are those of others, or behind them. */
static void add_tensor(fuzz_input *input, uint64_t *random) {
    char text[96];
    size_t begin = fuzz_below(random, 52), count = fuzz_below(random, 9);
    int length = snprintf(text, sizeof text, "\"more\":{\"dtype\":\"U8\",\"shape\":[%zu],\"data_offsets\":[%zu,%zu]},",
                          count, begin, begin + count);
    if (input->length > 9) fuzz_splice(input, 9, 0, text, (size_t)length);
}

/* Moves the offsets of a tensor; of one in four the length changes, too. */
static void move_tensor(fuzz_input *input, uint64_t *random) {
    static const char word[] = "\"data_offsets\":[";
    size_t places[8], count = 0, letters = sizeof word - 1;
    for (size_t at = 8; at + letters < input->length && count < 8; at++)
        if (!memcmp(input->bytes + at, word, letters)) places[count++] = at + letters;
    if (count == 0) return;
    size_t at = places[fuzz_below(random, count)], rest = input->length - at;
    char text[64] = "";
    memcpy(text, input->bytes + at, rest < sizeof text ? rest : sizeof text - 1);
    long long begin, end, shift = (long long)fuzz_below(random, 65) - 32, more = fuzz_below(random, 4) ? 0 : shift;
    int old = 0;
    if (sscanf(text, "%lld,%lld%n", &begin, &end, &old) != 2 || begin > FUZZ_LIMIT || end > FUZZ_LIMIT) return;
    if (begin < -FUZZ_LIMIT || end < -FUZZ_LIMIT) return;
    int length = snprintf(text, sizeof text, "%lld,%lld", begin + shift, end + shift + more);
    fuzz_splice(input, at, (size_t)old, text, (size_t)length);
}

static void edit(fuzz_input *input, uint64_t *random) {
    if (fuzz_below(random, 2))
        add_tensor(input, random);
    else
        move_tensor(input, random);
}

/* The header ends where its last bracket closes. */
static void repair(fuzz_input *input) {
    size_t end = 8, depth = 0;
    bool quoted = false;
    for (size_t at = 8; at < input->length; at++) {
        uint8_t c = input->bytes[at];
        if (c == '"' && input->bytes[at - 1] != '\\') quoted = !quoted;
        if (!quoted && c == '{') depth++;
        if (!quoted && c == '}' && depth > 0 && --depth == 0) {
            end = at + 1;
            break;
        }
    }
    uint64_t length = end - 8;
    if (end > 8) memcpy(input->bytes, &length, sizeof length);
}

static bool are_same(const rcv_tensor *a, const rcv_tensor *b) {
    return a && b && a->dtype == b->dtype && a->dims == b->dims &&
           !memcmp(a->shape, b->shape, (size_t)a->dims * sizeof *a->shape) && a->bytes == b->bytes &&
           (a->bytes == 0 || !memcmp(a->data, b->data, a->bytes));
}

static void check_again(const rcv_tensors *tensors) {
    rcv_tensors *again = NULL;
    const char *path = fuzz_path("saved");
    fuzz_check(rcv_tensors_save(tensors, path) == RCV_OK);
    fuzz_check(rcv_tensors_load(fuzz_context(), path, &again) == RCV_OK);
    fuzz_check(rcv_tensors_count(again) == rcv_tensors_count(tensors));
    for (size_t i = 0; i < rcv_tensors_count(tensors); i++) {
        const rcv_tensor *tensor = rcv_tensors_at(tensors, i);
        fuzz_check(are_same(tensor, rcv_tensors_find(again, tensor->name)));
    }
    rcv_tensors_free(again);
}

static bool read_tensors(const uint8_t *bytes, size_t length) {
    static unsigned taken;
    rcv_tensors *tensors = NULL;
    rcv_status status = rcv_tensors_parse(fuzz_context(), bytes, length, "mutated", &tensors);
    if (status) {
        fuzz_check(status == RCV_FORMAT);
        fuzz_check_refusal(status, tensors);
        fuzz_check(strncmp(rcv_message(), "mutated: ", 9) == 0 || strncmp(rcv_message(), "mutated is ", 11) == 0);
        return false;
    }
    uint64_t header = 0, total = 0;
    memcpy(&header, bytes, sizeof header);
    uint64_t sum = 0;
    for (size_t i = 0; i < rcv_tensors_count(tensors); i++) {
        const rcv_tensor *tensor = rcv_tensors_at(tensors, i);
        const uint8_t *data = tensor->data;
        for (size_t k = 0; k < tensor->bytes; k++) sum += data[k];
        total += tensor->bytes;
        fuzz_check(rcv_tensors_find(tensors, tensor->name) == tensor);
    }
    fuzz_check(sum <= 255 * length);
    fuzz_check(sizeof header + header + total == length); /* each byte is one tensor's */
    if (taken++ % 64 == 0) check_again(tensors);
    rcv_tensors_free(tensors);
    return true;
}

static const fuzz_target target = {.name = "safetensors",
                                   .count = 100000,
                                   .seed = seed,
                                   .pieces = pieces,
                                   .edit = edit,
                                   .repair = repair,
                                   .read = read_tensors};
FUZZ_PROGRAM(target)
