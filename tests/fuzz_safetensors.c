/* Mutated tensor files through the reader: `fuzz_safetensors [COUNT [SEED]]`. Each is accepted or refused with a
 * sentence; of an accepted one every byte is read. Memory errors are the sanitizers' to find. */
#include "recurve.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEEDS = 4, FILE_LIMIT = 4096 };

typedef struct {
    uint8_t bytes[FILE_LIMIT];
    size_t length;
} file;

static uint64_t next(uint64_t *state) {
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static size_t below(uint64_t *state, size_t bound) { return bound ? (size_t)(next(state) % bound) : 0; }

static void set_length(file *to, uint64_t length) {
    for (int i = 0; i < 8; i++) to->bytes[i] = (uint8_t)(length >> 8 * i);
}

static size_t header_bytes(const file *from) {
    uint64_t length = 0;
    for (int i = 7; i >= 0; i--) length = length << 8 | from->bytes[i];
    return length > from->length - 8 ? from->length - 8 : (size_t)length;
}

static void make(file *to, const char *header, size_t data) {
    size_t length = strlen(header);
    to->length = 8 + length + data;
    set_length(to, length);
    memcpy(to->bytes + 8, header, length);
    for (size_t i = 0; i < data; i++) to->bytes[8 + length + i] = (uint8_t)(i * 37);
}

static void make_seeds(file *seeds) {
    make(&seeds[0], "{\"x\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}", 24);
    make(&seeds[1],
         "{\"__metadata__\":{\"recurve.format\":\"1\",\"note\":\"a \\u00e9\"},"
         "\"a\":{\"dtype\":\"F64\",\"shape\":[4],\"data_offsets\":[0,32]},"
         "\"b\":{\"dtype\":\"I64\",\"shape\":[1,2],\"data_offsets\":[32,48]},"
         "\"c\":{\"dtype\":\"BOOL\",\"shape\":[3],\"data_offsets\":[48,51]}}     ",
         51);
    make(&seeds[2],
         "{\"h\":{\"dtype\":\"F16\",\"shape\":[2,2,1],\"data_offsets\":[8,16]},"
         "\"w\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[0,8]},"
         "\"e\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[16,16]},"
         "\"i\":{\"dtype\":\"I32\",\"shape\":[],\"data_offsets\":[16,20]}}",
         20);
    make(&seeds[3], "{}", 0);
}

/* Removes `removed` bytes at `at` and puts `added` there; the header's length follows where `honest`. */
static void splice(file *to, size_t at, size_t removed, const void *added, size_t count, int honest) {
    if (at > to->length || removed > to->length - at || to->length - removed + count > FILE_LIMIT) return;
    size_t header = header_bytes(to);
    memmove(to->bytes + at + count, to->bytes + at + removed, to->length - at - removed);
    memcpy(to->bytes + at, added, count);
    to->length += count - removed;
    if (honest) set_length(to, header + count - removed);
}

static void flip_bytes(file *to, uint64_t *random) {
    for (size_t n = 1 + below(random, 4); n > 0 && to->length > 0; n--)
        to->bytes[below(random, to->length)] ^= (uint8_t)(1u << below(random, 8));
}

static void flip_data(file *to, uint64_t *random) {
    size_t start = 8 + header_bytes(to);
    if (start < to->length) to->bytes[start + below(random, to->length - start)] = (uint8_t)next(random);
}

static void truncate_file(file *to, uint64_t *random) { to->length = 8 + below(random, to->length - 7); }

static void lie_about_length(file *to, uint64_t *random) {
    static const uint64_t lies[] = {0,         1,         7, 8, 99999999, 100000000, 100000001, UINT64_C(1) << 32,
                                    INT64_MAX, UINT64_MAX};
    size_t kind = below(random, 12);
    set_length(to, kind < 10 ? lies[kind] : header_bytes(to) + below(random, 9) - 4);
}

/* Replaces one number of the header. */
static void edit_number(file *to, uint64_t *random) {
    static const char *const numbers[] = {"0",
                                          "1",
                                          "2",
                                          "-1",
                                          "3.0",
                                          "1e9",
                                          "24",
                                          "16",
                                          "4294967296",
                                          "9223372036854775807",
                                          "9223372036854775808",
                                          "18446744073709551616",
                                          "null",
                                          "[]",
                                          "\"4\"",
                                          "true"};
    size_t end = 8 + header_bytes(to), starts[64], count = 0;
    for (size_t i = 9; i < end && count < 64; i++)
        if (to->bytes[i] >= '0' && to->bytes[i] <= '9' && (to->bytes[i - 1] == '[' || to->bytes[i - 1] == ','))
            starts[count++] = i;
    if (count == 0) return;
    size_t at = starts[below(random, count)], length = 0;
    while (at + length < end && to->bytes[at + length] >= '0' && to->bytes[at + length] <= '9') length++;
    const char *number = numbers[below(random, sizeof numbers / sizeof *numbers)];
    splice(to, at, length, number, strlen(number), 1);
}

/* Inserts a piece of JSON, or of the file itself. */
static void insert_piece(file *to, uint64_t *random) {
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
                                         "\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"};
    size_t at = 8 + below(random, header_bytes(to) + 1);
    if (below(random, 4) > 0) {
        const char *piece = pieces[below(random, sizeof pieces / sizeof *pieces)];
        splice(to, at, 0, piece, strlen(piece), below(random, 4) > 0);
        return;
    }
    uint8_t copy[64];
    size_t from = below(random, to->length), count = below(random, sizeof copy);
    if (count > to->length - from) count = to->length - from;
    memcpy(copy, to->bytes + from, count);
    splice(to, at, 0, copy, count, below(random, 2) > 0);
}

static void remove_piece(file *to, uint64_t *random) {
    size_t header = header_bytes(to), at = 8 + below(random, header + 1);
    size_t count = below(random, 12);
    if (at + count <= 8 + header) splice(to, at, count, "", 0, below(random, 4) > 0);
}

/* Puts the header of one file before the data of another. */
static void cross(file *to, const file *other) {
    size_t at = 8 + header_bytes(to), from = 8 + header_bytes(other), count = other->length - from;
    if (at + count <= FILE_LIMIT) {
        memcpy(to->bytes + at, other->bytes + from, count);
        to->length = at + count;
    }
}

static void mutate(file *to, const file *seeds, uint64_t *random) {
    static void (*const kinds[])(file *, uint64_t *) = {flip_bytes,  flip_data,    truncate_file, lie_about_length,
                                                        edit_number, insert_piece, remove_piece};
    for (size_t n = 1 + below(random, 3); n > 0; n--) {
        size_t kind = below(random, sizeof kinds / sizeof *kinds + 1);
        if (to->length < 8) return;
        if (kind == sizeof kinds / sizeof *kinds)
            cross(to, &seeds[below(random, SEEDS)]);
        else
            kinds[kind](to, random);
    }
}

/* A sum over every byte that the collection hands out. */
static uint64_t read_all(const rcv_tensors *tensors) {
    uint64_t sum = 0;
    for (size_t i = 0; i < rcv_tensors_count(tensors); i++) {
        const rcv_tensor *tensor = rcv_tensors_at(tensors, i);
        const uint8_t *data = tensor->data;
        for (size_t k = 0; k < tensor->bytes; k++) sum += data[k];
        sum += strlen(tensor->name) + (rcv_tensors_find(tensors, tensor->name) == tensor);
    }
    return sum;
}

int main(int argc, char **argv) {
    uint64_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 100000, accepted = 0, refused = 0, sum = 0;
    uint64_t random = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    static file seeds[SEEDS], mutated;
    rcv_context *context;
    if (rcv_context_new(NULL, &context) != RCV_OK) return 1;
    make_seeds(seeds);
    for (uint64_t i = 0; i < count; i++) {
        rcv_tensors *tensors;
        mutated = seeds[below(&random, SEEDS)];
        mutate(&mutated, seeds, &random);
        /* A block of exactly this size, so that a read past its end is seen. */
        uint8_t *copy = malloc(mutated.length + !mutated.length);
        if (!copy) return 1;
        memcpy(copy, mutated.bytes, mutated.length);
        rcv_status status = rcv_tensors_parse(context, copy, mutated.length, "mutated", &tensors);
        free(copy);
        if (status == RCV_OK) {
            accepted++;
            sum += read_all(tensors);
            rcv_tensors_free(tensors);
        } else if (status == RCV_FORMAT && !tensors && strncmp(rcv_message(), "mutated: ", 9) == 0) {
            refused++;
        } else {
            fprintf(stderr, "file %" PRIu64 ": status %s: %s\n", i, rcv_status_name(status), rcv_message());
            return 1;
        }
    }
    rcv_context_free(context);
    printf("%" PRIu64 " files: %" PRIu64 " accepted, %" PRIu64 " refused, sum %" PRIu64 "\n", count, accepted, refused,
           sum);
    return accepted == 0 || refused == 0;
}
