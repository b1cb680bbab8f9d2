/* Mutated tables and arrays. The first byte chooses format, kind and options, the rest is the file. Of a file that is accepted every example can be
 * read, lies in range, and is the same from the token cache. */
#include "fuzz.h"

#include "data/internal.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const pieces[] = {",",
                                     "\n",
                                     "\r\n",
                                     "\"",
                                     "\"\"",
                                     ";",
                                     "\t",
                                     "|",
                                     "a,b,y\n",
                                     "id,t,a,y\n",
                                     "1,2,p\n",
                                     "s,0,1,p\n",
                                     "NA",
                                     "nan",
                                     "inf",
                                     "1e39",
                                     "-0.5",
                                     "0x10",
                                     "\xef\xbb\xbf",
                                     "\xff",
                                     "y",
                                     "{'descr': '<f4', ",
                                     "'shape': (2, 3), ",
                                     "'fortran_order': False, ",
                                     "\"shape\":[1,3],",
                                     "\"data_offsets\":[0,12]",
                                     "PK\1\2",
                                     "PK\3\4",
                                     "PK\5\6",
                                     "x.npy",
                                     "\x93NUMPY\1",
                                     NULL};

enum { FORMATS = 4 };
static const rcv_file_format formats[FORMATS] = {RCV_FORMAT_CSV, RCV_FORMAT_NPY, RCV_FORMAT_NPZ,
                                                 RCV_FORMAT_SAFETENSORS};

/* ---- files to begin with ---- */

static size_t put_npy(char *to, const char *shape, size_t elements) {
    char header[128];
    const int length =
        snprintf(header, sizeof header, "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }\n", shape);
    memcpy(to, "\x93NUMPY\1\0", 8);
    to[8] = (char)length;
    to[9] = 0;
    memcpy(to + 10, header, (size_t)length);
    memset(to + 10 + length, 0, 4 * elements);
    return 10 + (size_t)length + 4 * elements;
}

static size_t put_npz(char *to) {
    char member[256];
    const size_t length = put_npy(member, "(2, 2, 1)", 4);
    const uint32_t size = (uint32_t)length, at = 0, directory = (uint32_t)(35 + length), bytes = 46 + 5;
    memset(to, 0, 512);
    memcpy(to, "PK\3\4", 4);
    to[26] = 5;
    memcpy(to + 30, "x.npy", 5);
    memcpy(to + 35, member, length);
    char *entry = to + directory, *end = entry + bytes;
    memcpy(entry, "PK\1\2", 4);
    memcpy(entry + 20, &size, 4);
    memcpy(entry + 24, &size, 4);
    entry[28] = 5;
    memcpy(entry + 42, &at, 4);
    memcpy(entry + 46, "x.npy", 5);
    memcpy(end, "PK\5\6", 4);
    end[8] = end[10] = 1;
    memcpy(end + 12, &bytes, 4);
    memcpy(end + 16, &directory, 4);
    return directory + bytes + 22;
}

static size_t put_tensors(char *to) {
    static const char header[] = "{\"x\":{\"dtype\":\"F32\",\"shape\":[1,3],\"data_offsets\":[0,12]},"
                                 "\"y\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[12,13]}}";
    const uint64_t length = strlen(header);
    memcpy(to, &length, 8);
    memcpy(to + 8, header, length);
    memset(to + 8 + length, 1, 13);
    return 21 + length;
}

static bool seed(size_t index, fuzz_input *input) {
    static const char *const tables[] = {"a,b,label\n1,2,x\n3,4.5,y\n", "id,t,a,y\ns,0,1,p\ns,1,2,p\nu,0,3,q\n",
                                         "a;b;y\n1,5;2;3\n;2;4\n4;1;\n", "text,y\n\"the, \"\"cat\"\"\nsat\",1\non,2\n",
                                         "a\ty\n1\t2\n2\t3\n3\t4\n4\t5\n"};
    enum { TABLES = sizeof tables / sizeof *tables };
    char file[1024];
    size_t length;
    if (index < TABLES) {
        static const char choices[TABLES] = {0, 0, 4 + 16, 4, 8 + 32 + 64 + 4};
        file[0] = choices[index];
        strcpy(file + 1, tables[index]);
        length = 1 + strlen(tables[index]);
    } else {
        file[0] = (char)(index - TABLES + 1 + (index < TABLES + 2 ? 128 : 0)); /* without y */
        if (index == TABLES)
            length = 1 + put_npy(file + 1, "(3, 2)", 6);
        else if (index == TABLES + 1)
            length = 1 + put_npz(file + 1);
        else if (index == TABLES + 2)
            length = 1 + put_tensors(file + 1);
        else
            return false;
    }
    memcpy(input->bytes, file, length);
    input->length = length;
    return true;
}

/* ---- data ---- */

static uint64_t read_all(const rcv_data *data) {
    uint64_t hash = 0;
    for (int64_t i = 0; i < rcv_data_sequences(data); i++) {
        rcvi_span span;
        char name[64];
        fuzz_check(rcvi_data_read_spans(data, i, 1, &span) == RCV_OK);
        fuzz_check(span.length >= 1 && span.length <= rcv_data_longest(data));
        fuzz_check(rcv_data_example_name(data, i, name, sizeof name) == RCV_OK);
        const int64_t features = rcv_data_features(data), each = features > 0 ? features : 1;
        float *x = calloc((size_t)(span.length * each), sizeof *x);
        int64_t *tokens = calloc((size_t)span.length, sizeof *tokens), length = 0;
        fuzz_check(x && tokens);
        fuzz_check(rcv_data_read(data, i, 1, &length, x, tokens, span.length * each) == RCV_OK &&
                   length == span.length);
        for (int64_t k = 0; k < span.length * features; k++) fuzz_check(!isinf(x[k]));
        if (features > 0) hash = rcvi_hash_chunk(hash, x, (size_t)(span.length * features) * sizeof *x);
        hash = rcvi_hash_chunk(hash, name, strlen(name));
        free(x);
        free(tokens);
    }
    return hash;
}

static rcv_data_options options_of(uint8_t choice) {
    return RCV_INIT(
        rcv_data_options, .level = RCV_LEVEL_BYTE, .kind = (rcv_data_kind)(RCV_DATA_CLASSES + (choice >> 2) % 4),
        .format = formats[choice % FORMATS], .missing = choice & 16 ? RCV_MISSING_ZERO : RCV_MISSING_ERROR,
        .horizon = choice & 8 && choice & 32 ? 1 : 0, .piece = choice & 64 ? 2 : 0, .unlabelled = (choice & 128) != 0);
}

static bool read_table(const uint8_t *bytes, size_t length) {
    rcv_data *data = NULL, *again = NULL;
    if (length < 1) return false;
    const char *path = fuzz_path("table");
    const rcv_data_options options = options_of(bytes[0]);
    rcv_guess guess = RCV_INIT(rcv_guess);
    fuzz_write(path, bytes + 1, length - 1);
    const rcv_data_options any = RCV_INIT(rcv_data_options, .horizon = options.horizon);
    (void)rcv_data_recognise(fuzz_context(), path, &any, &guess, NULL);
    rcv_status status = rcv_data_open(fuzz_context(), path, &options, &data);
    if (status) {
        fuzz_check_refusal(status, data);
        return false;
    }
    const uint64_t hash = read_all(data);
    fuzz_check(rcv_data_open(fuzz_context(), path, &options, &again) == RCV_OK);
    fuzz_check(read_all(again) == hash && rcvi_data_hash(again) == rcvi_data_hash(data));
    rcv_data_free(again);
    if (rcv_data_sequences(data) > 1) {
        const rcv_part_options half = RCV_INIT(rcv_part_options, .begin = 0, .end = 0.5, .seed = length);
        fuzz_check(rcv_data_part(data, &half, &again) == RCV_OK || again == NULL);
        if (again) read_all(again);
        rcv_data_free(again);
    }
    rcv_data_free(data);
    return true;
}

static const fuzz_target target = {.name = "tables", .count = 6000, .seed = seed, .pieces = pieces, .read = read_table};
FUZZ_PROGRAM(target)
