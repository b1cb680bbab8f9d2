/* Mutated wisdom files, most of them with a checksum that fits: each is taken whole or refused whole, and what was taken is saved and taken
 * again. */
#include "fuzz.h"

#include "base/limits.h"
#include "plan/wisdom.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const pieces[] = {" : ",
                                     "\n",
                                     "cell=",
                                     "naive",
                                     "+",
                                     "fuse",
                                     "checksum ",
                                     " measured",
                                     "1e-3",
                                     "-1",
                                     "nan",
                                     "(",
                                     ")",
                                     "threads(",
                                     "steps=0)",
                                     "exhaustive",
                                     "vendor",
                                     "\xff",
                                     "\t",
                                     " ",
                                     "\r\n",
                                     "%s%n",
                                     "split=rows",
                                     "9999999999999999999999",
                                     "recurve-wisdom 1\n",
                                     NULL};

/* A last line with the hash of all before it. */
static void add_checksum(fuzz_input *input) {
    char line[64];
    uint64_t hash = rcvi_hash_bytes((const char *)input->bytes, input->length);
    int length = snprintf(line, sizeof line, "checksum %016" PRIx64 "\n", hash);
    if (input->length + (size_t)length > FUZZ_LIMIT) return;
    memcpy(input->bytes + input->length, line, (size_t)length);
    input->length += (size_t)length;
}

static bool seed(size_t index, fuzz_input *input) {
    static const char *const texts[] = {
        "recurve-wisdom 1\n"
        "cell=gru:0123456789abcdef input=3 hidden=4 layers=1 steps=5 batch=1 dtype=float32 threads=1 : naive : 1.5e-06 "
        "measured\n"
        "cell=lstm:00000000000000ff input=512 hidden=512 layers=4 steps=100 batch=64 dtype=float32 training threads=2 "
        ": "
        "combine(steps=all)+fuse+pack+threads(2,split=rows) : 0.3333333333333333 exhaustive\n"
        "cell=lstm:00000000000000ff input=512 hidden=513 threads=2 : "
        "fuse+pack+wavefront+recompute(every=10)+threads(2) : 2 measured\n",
        "recurve-wisdom 1\n"};
    if (index >= sizeof texts / sizeof *texts) return false;
    fuzz_text(texts[index], input);
    add_checksum(input);
    return true;
}

/* The last line of an input is its checksum, or was. */
static void repair(fuzz_input *input) {
    size_t end = input->length;
    if (end > 0 && input->bytes[end - 1] == '\n') end--;
    while (end > 0 && input->bytes[end - 1] != '\n') end--;
    if (end > 0) input->length = end;
    add_checksum(input);
}

/* Each line between the first and the last begins with a key that is known now. */
static void check_found(rcv_context *context, const char *text, size_t known) {
    size_t lines = 0;
    for (const char *line = strchr(text, '\n') + 1, *end; strncmp(line, "checksum ", 9) != 0;
         line = strchr(end, '\n') + 1) {
        rcvi_lesson lesson;
        char key[RCVI_LIMIT_WISDOM_LINE];
        end = strstr(line, " : ");
        fuzz_check(end && (size_t)(end - line) < sizeof key);
        snprintf(key, sizeof key, "%.*s", (int)(end - line), line);
        fuzz_check(rcvi_wisdom_find(context, key, false, &lesson) && lesson.seconds > 0);
        lines++;
    }
    fuzz_check(lines == known);
}

static bool read_wisdom(const uint8_t *bytes, size_t length) {
    static unsigned taken;
    rcv_context *context = NULL; /* of its own: wisdom stays in it */
    char *copy = malloc(length + 1);
    fuzz_check(copy != NULL && rcv_context_new(NULL, &context) == RCV_OK);
    memcpy(copy, bytes, length);
    rcv_status status = rcvi_wisdom_read(context, copy, length, "mutated");
    memcpy(copy, bytes, length);
    copy[length] = '\0';
    size_t known = rcv_wisdom_count(context);
    if (status) {
        fuzz_check_refusal(status, NULL);
        fuzz_check(status == RCV_FORMAT && known == 0 && strstr(rcv_message(), "mutated"));
    } else {
        check_found(context, copy, known);
        if (taken++ % 64 == 0) {
            const char *path = fuzz_path("saved");
            fuzz_check(rcv_wisdom_save(context, path) == RCV_OK);
            fuzz_check(rcv_wisdom_load(context, path) == RCV_OK && rcv_wisdom_count(context) == known);
        }
    }
    free(copy);
    rcv_context_free(context);
    return !status;
}

static const fuzz_target target = {
    .name = "wisdom", .count = 50000, .seed = seed, .pieces = pieces, .repair = repair, .read = read_wisdom};
FUZZ_PROGRAM(target)
