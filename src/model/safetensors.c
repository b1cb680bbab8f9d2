/* Reading and writing of tensor files in the safetensors format.
 *
 *   file   = length header data
 *   length = bytes of the header, 64 bits, little-endian
 *   header = a JSON object: name -> {"dtype", "shape", "data_offsets": [begin, end)}, and "__metadata__": name -> text
 *   data   = the tensors' elements, little-endian and row-major, without overlap and without holes
 *
 * Files are not trusted: no part of a file is used before its whole header was checked. Files written by this library have the metadata
 * recurve.checksum: 16 hexadecimal digits, the hash of the whole file with zeros in place of these digits. Files of other programs have none; if the key is
 * present, it must be correct. */
#include "base/json.h"
#include "model/foreign_files.h"
#include "model/tensors.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tensor files are little-endian, and this machine is not"
#endif

enum { LENGTH_BYTES = 8, CHECKSUM_DIGITS = 16 };

#define CHECKSUM_KEY RCVI_CHECKSUM_KEY

typedef struct {
    const char *name;
    rcv_dtype dtype;
} dtype_entry;

static const dtype_entry dtypes[] = {
    {"F32", RCV_FLOAT32}, {"F64", RCV_FLOAT64}, {"F16", RCV_FLOAT16}, {"BF16", RCV_BFLOAT16},
    {"I64", RCV_INT64},   {"I32", RCV_INT32},   {"U8", RCV_UINT8},    {"BOOL", RCV_BOOL},
};

static const char *dtype_tag(rcv_dtype dtype) {
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (dtypes[i].dtype == dtype) return dtypes[i].name;
    return NULL;
}

/* The file that is read: its name for messages, and its bytes in memory or, if `bytes` is NULL, a descriptor. */
typedef struct {
    const char *file;
    const char *bytes;
    int descriptor;
    int64_t length;                /* of the whole file */
    int64_t data_at, data_bytes;   /* the data follows the header */
    char *header;                  /* its text, NUL-terminated */
    char sum[CHECKSUM_DIGITS + 1]; /* checksum in the metadata; empty if there is none */
} source;

/* Byte range of a tensor in the data, and its index in the header. */
typedef struct {
    const char *name;
    int64_t begin, end;
    size_t index;
} range;

static rcv_status read_bytes(const source *from, int64_t at, void *to, size_t bytes) {
    if (!from->bytes) return rcvi_read_at(from->descriptor, from->file, at, to, bytes);
    if (bytes > 0) memcpy(to, from->bytes + at, bytes);
    return RCV_OK;
}

/* ---- the checksum ---- */

/* Updates `sum` chunk by chunk. */
static uint64_t hash_data(uint64_t sum, const char *data, size_t bytes) {
    for (size_t done = 0, part; done < bytes; done += part) {
        part = bytes - done < RCVI_FILE_CHUNK ? bytes - done : RCVI_FILE_CHUNK;
        sum = rcvi_hash_chunk(sum, data + done, part);
    }
    return sum;
}

/* Finds the digits of the checksum in the header. The text cannot occur elsewhere in JSON: quotes inside a string are escaped. */
static char *find_digits(char *header) {
    char *key = strstr(header, "\"" CHECKSUM_KEY "\":\"");
    return key ? key + strlen("\"" CHECKSUM_KEY "\":\"") : NULL;
}

/* Whether exactly one character differs from the key of the checksum: then the file is damaged there. */
static bool is_damaged_key(const char *key) {
    size_t differences = 0;
    if (strlen(key) != strlen(CHECKSUM_KEY)) return false;
    for (size_t i = 0; key[i] != '\0'; i++) differences += key[i] != CHECKSUM_KEY[i];
    return differences == 1;
}

static rcv_status fail_damaged(const source *from) {
    return rcvi_fail(RCV_FORMAT,
                     "%s: its content does not match its metadata %s: it is damaged, or another program changed it and "
                     "left that key; use another copy, or remove the key",
                     from->file, CHECKSUM_KEY);
}

/* Hash of the header with zeros in place of the digits. */
static rcv_status hash_header(source *from, uint64_t *sum) {
    char *digits = find_digits(from->header);
    if (!digits || strncmp(digits, from->sum, CHECKSUM_DIGITS) != 0) return fail_damaged(from);
    memset(digits, '0', CHECKSUM_DIGITS);
    *sum =
        rcvi_hash_chunk((uint64_t)(from->data_at - LENGTH_BYTES), from->header, (size_t)(from->data_at - LENGTH_BYTES));
    return RCV_OK;
}

static void write_digits(uint64_t sum, char digits[CHECKSUM_DIGITS + 1]) {
    snprintf(digits, CHECKSUM_DIGITS + 1, "%016" PRIx64, sum);
}

/* ---- reading ---- */

static rcv_status read_dtype(const source *from, const char *name, const json_t *value, rcv_dtype *dtype) {
    const char *tag = json_string_value(value);
    char shown[RCVI_ESCAPED_NAME];
    if (!tag) return rcvi_fail(RCV_FORMAT, "%s: tensor %s needs a text \"dtype\"", from->file, name);
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (strcmp(dtypes[i].name, tag) == 0) {
            *dtype = dtypes[i].dtype;
            return RCV_OK;
        }
    }
    return rcvi_fail(RCV_FORMAT,
                     "%s: tensor %s has dtype %s, only F32, F64, F16, BF16, I64, I32, U8 and BOOL can be read",
                     from->file, name, rcvi_escape_name(tag, shown));
}

static rcv_status read_shape(const source *from, const char *name, const json_t *value, rcv_tensor *tensor) {
    if (!json_is_array(value)) return rcvi_fail(RCV_FORMAT, "%s: tensor %s needs a list \"shape\"", from->file, name);
    size_t dims = json_array_size(value);
    if (dims > RCV_MAX_DIMS)
        return rcvi_fail(RCV_FORMAT, "%s: tensor %s has %zu dimensions, at most %d can be read", from->file, name, dims,
                         RCV_MAX_DIMS);
    tensor->dims = (int)dims;
    for (size_t i = 0; i < dims; i++) {
        const json_t *extent = json_array_get(value, i);
        if (!json_is_integer(extent) || json_integer_value(extent) < 0)
            return rcvi_fail(RCV_FORMAT, "%s: tensor %s has a shape that is not a list of integers from 0 on",
                             from->file, name);
        tensor->shape[i] = json_integer_value(extent);
    }
    return RCV_OK;
}

static rcv_status read_offsets(const source *from, const char *name, const json_t *value, range *place) {
    const json_t *begin = json_array_get(value, 0), *end = json_array_get(value, 1);
    if (json_array_size(value) != 2 || !json_is_integer(begin) || !json_is_integer(end))
        return rcvi_fail(RCV_FORMAT, "%s: tensor %s needs two integers \"data_offsets\"", from->file, name);
    place->begin = json_integer_value(begin);
    place->end = json_integer_value(end);
    if (place->begin < 0 || place->end < place->begin)
        return rcvi_fail(RCV_FORMAT, "%s: tensor %s has data_offsets [%lld, %lld], which run backwards or are negative",
                         from->file, name, (long long)place->begin, (long long)place->end);
    if (place->end > from->data_bytes)
        return rcvi_fail(RCV_FORMAT, "%s: tensor %s ends at byte %lld of the data, which has only %lld", from->file,
                         name, (long long)place->end, (long long)from->data_bytes);
    return RCV_OK;
}

static rcv_status read_tensor(const source *from, const char *key, const json_t *value, rcv_tensor *tensor,
                              range *place) {
    char name[RCVI_ESCAPED_NAME], shape[RCVI_SHAPE_TEXT];
    rcvi_escape_name(key, name);
    if (!json_is_object(value))
        return rcvi_fail(RCV_FORMAT, "%s: tensor %s is not described by an object", from->file, name);
    if (json_object_size(value) > 3)
        return rcvi_fail(RCV_FORMAT, "%s: tensor %s has keys besides dtype, shape and data_offsets", from->file, name);
    rcv_status status = read_dtype(from, name, json_object_get(value, "dtype"), &tensor->dtype);
    if (status == RCV_OK) status = read_shape(from, name, json_object_get(value, "shape"), tensor);
    if (status == RCV_OK) status = read_offsets(from, name, json_object_get(value, "data_offsets"), place);
    if (status != RCV_OK) return status;
    int64_t elements, bytes;
    rcvi_shape_text(tensor->dims, tensor->shape, shape);
    if (!rcvi_shape_bytes(tensor->dtype, tensor->dims, tensor->shape, &elements, &bytes))
        return rcvi_fail(RCV_FORMAT, "%s: tensor %s has the shape %s, which is too large", from->file, name, shape);
    if (bytes != place->end - place->begin)
        return rcvi_fail(RCV_FORMAT, "%s: tensor %s has %lld bytes of data, its shape %s of %s needs %lld", from->file,
                         name, (long long)(place->end - place->begin), shape, rcv_dtype_name(tensor->dtype),
                         (long long)bytes);
    tensor->name = key;
    tensor->bytes = (size_t)bytes;
    place->name = key;
    return RCV_OK;
}

static rcv_status read_sum(source *from, const char *value) {
    if (strlen(value) != CHECKSUM_DIGITS) return fail_damaged(from);
    strcpy(from->sum, value);
    return RCV_OK;
}

/* Files of format 2 must have a checksum. */
static rcv_status check_has_sum(const source *from, const rcv_tensors *tensors) {
    const char *format = rcv_tensors_metadata(tensors, RCVI_FORMAT_KEY);
    if (from->sum[0] || !format || strcmp(format, "1") == 0) return RCV_OK;
    return rcvi_fail(RCV_FORMAT, "%s: the metadata have %s but no %s, so the file is damaged", from->file,
                     RCVI_FORMAT_KEY, CHECKSUM_KEY);
}

static rcv_status read_metadata(source *from, json_t *object, rcv_tensors *tensors) {
    if (!json_is_object(object)) return rcvi_fail(RCV_FORMAT, "%s: __metadata__ is not an object of texts", from->file);
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        char shown[RCVI_ESCAPED_NAME];
        if (!json_is_string(value))
            return rcvi_fail(RCV_FORMAT, "%s: the metadata %s is not a text", from->file, rcvi_escape_name(key, shown));
        if (is_damaged_key(key)) return fail_damaged(from);
        rcv_status status = strcmp(key, CHECKSUM_KEY) == 0
                                ? read_sum(from, json_string_value(value))
                                : rcvi_metadata_append(tensors, key, json_string_value(value));
        if (status != RCV_OK) return status;
    }
    return check_has_sum(from, tensors);
}

static int compare_ranges(const void *a, const void *b) {
    const range *left = a, *right = b;
    if (left->begin != right->begin) return left->begin < right->begin ? -1 : 1;
    return left->end < right->end ? -1 : left->end > right->end;
}

/* Checks that the tensors cover the data without gaps and overlaps. */
static rcv_status check_coverage(const source *from, range *places, size_t count) {
    char name[RCVI_ESCAPED_NAME], before[RCVI_ESCAPED_NAME];
    int64_t end = 0;
    qsort(places, count, sizeof *places, compare_ranges);
    for (size_t i = 0; i < count; i++) {
        rcvi_escape_name(places[i].name, name);
        if (places[i].begin < end)
            return rcvi_fail(RCV_FORMAT, "%s: tensor %s overlaps tensor %s", from->file, name,
                             rcvi_escape_name(places[i - 1].name, before));
        if (places[i].begin > end)
            return rcvi_fail(RCV_FORMAT, "%s: %lld bytes before tensor %s belong to no tensor", from->file,
                             (long long)(places[i].begin - end), name);
        end = places[i].end;
    }
    if (end < from->data_bytes)
        return rcvi_fail(RCV_FORMAT, "%s: the last %lld bytes belong to no tensor", from->file,
                         (long long)(from->data_bytes - end));
    return RCV_OK;
}

/* Reads the data of every tensor in the order of the file, and checks the checksum. */
static rcv_status read_data(source *from, const range *places, size_t count, void *const *data) {
    uint64_t sum = 0;
    bool has_sum = from->sum[0] != '\0';
    if (has_sum) RCVI_TRY(hash_header(from, &sum));
    for (size_t i = 0; i < count; i++) {
        char *to = data[places[i].index];
        size_t bytes = (size_t)(places[i].end - places[i].begin);
        for (size_t done = 0, part; done < bytes; done += part) {
            part = bytes - done < RCVI_FILE_CHUNK ? bytes - done : RCVI_FILE_CHUNK;
            RCVI_TRY(read_bytes(from, from->data_at + places[i].begin + (int64_t)done, to + done, part));
            if (has_sum) sum = rcvi_hash_chunk(sum, to + done, part);
        }
    }
    char digits[CHECKSUM_DIGITS + 1];
    write_digits(sum, digits);
    return !has_sum || strcmp(digits, from->sum) == 0 ? RCV_OK : fail_damaged(from);
}

/* Allocates every tensor, in the order of the header. */
static rcv_status append_tensors(const source *from, json_t *header, rcv_tensors *tensors, void **data) {
    const char *key;
    json_t *value;
    json_object_foreach(header, key, value) {
        rcv_tensor tensor = {0};
        range place = {0};
        if (strcmp(key, "__metadata__") == 0) continue;
        RCVI_TRY(read_tensor(from, key, value, &tensor, &place));
        RCVI_TRY(rcvi_tensors_append(tensors, &tensor, data++));
    }
    return RCV_OK;
}

/* Refuses data larger than physical memory: with overcommit the allocation would succeed, and the system would kill the process later. */
static rcv_status check_memory(const source *from) {
    const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGE_SIZE);
    if (pages <= 0 || page <= 0 || from->data_bytes / page < pages) return RCV_OK;
    return rcvi_fail(RCV_NO_MEMORY, "%s has %lld bytes of tensors, more than the %lld bytes of this machine's memory",
                     from->file, (long long)from->data_bytes, (long long)pages * page);
}

/* Reads the entries of the header into `tensors`. places, data: [entries of the header] */
static rcv_status read_entries(source *from, json_t *header, range *places, void **data, rcv_tensors *tensors) {
    const char *key;
    json_t *value;
    size_t count = 0;
    json_object_foreach(header, key, value) {
        rcv_tensor ignored = {0};
        if (strcmp(key, "__metadata__") == 0) {
            RCVI_TRY(read_metadata(from, value, tensors));
        } else {
            RCVI_TRY(read_tensor(from, key, value, &ignored, &places[count]));
            places[count].index = count;
            count++;
        }
    }
    RCVI_TRY(check_coverage(from, places, count));
    RCVI_TRY(check_memory(from));
    RCVI_TRY(append_tensors(from, header, tensors, data));
    return read_data(from, places, count, data);
}

static rcv_status parse_header(const source *from, json_t **header) {
    const char *bytes = from->header;
    size_t length = (size_t)(from->data_at - LENGTH_BYTES);
    *header = NULL;
    if (length == 0 || bytes[0] != '{') return rcvi_fail(RCV_FORMAT, "%s: the header is not a JSON object", from->file);
    json_error_t error;
    char shown[RCVI_ESCAPED_NAME];
    *header = rcvi_json_read(bytes, length, JSON_REJECT_DUPLICATES, &error);
    if (!*header)
        return rcvi_fail(RCV_FORMAT, "%s: the header is not valid JSON at byte %d: %s", from->file, error.position,
                         rcvi_escape_name(error.text, shown));
    return RCV_OK;
}

/* After the header was refused: says more where the file is of another format. */
static rcv_status refuse(const source *from, rcv_status status) {
    unsigned char bytes[RCVI_FOREIGN_BYTES];
    size_t length = from->length < RCVI_FOREIGN_BYTES ? (size_t)from->length : RCVI_FOREIGN_BYTES;
    if (status != RCV_FORMAT) return status;
    if (length > 0) RCVI_TRY(read_bytes(from, 0, bytes, length));
    rcv_status foreign = rcvi_refuse_foreign_file(from->file, bytes, length);
    return foreign ? foreign : status;
}

/* Reads and checks the length of the header. */
static rcv_status measure_header(source *from) {
    if (from->length < LENGTH_BYTES)
        return rcvi_fail(RCV_FORMAT, "%s: %lld bytes are too few for a tensor file", from->file,
                         (long long)from->length);
    uint8_t bytes[LENGTH_BYTES];
    uint64_t header_bytes = 0;
    RCVI_TRY(read_bytes(from, 0, bytes, LENGTH_BYTES));
    for (int i = LENGTH_BYTES - 1; i >= 0; i--) header_bytes = header_bytes << 8 | bytes[i];
    if (header_bytes > RCVI_LIMIT_TENSOR_HEADER)
        return rcvi_fail(RCV_FORMAT, "%s: the header has %llu bytes; at most %d are allowed", from->file,
                         (unsigned long long)header_bytes, RCVI_LIMIT_TENSOR_HEADER);
    if ((int64_t)header_bytes > from->length - LENGTH_BYTES)
        return rcvi_fail(RCV_FORMAT, "%s: the header has %llu bytes, but only %lld bytes follow", from->file,
                         (unsigned long long)header_bytes, (long long)(from->length - LENGTH_BYTES));
    from->data_at = LENGTH_BYTES + (int64_t)header_bytes;
    from->data_bytes = from->length - from->data_at;
    return RCV_OK;
}

static rcv_status read_content(source *from, rcv_tensors *tensors) {
    json_t *header;
    RCVI_TRY(read_bytes(from, LENGTH_BYTES, from->header, (size_t)(from->data_at - LENGTH_BYTES)));
    rcv_status parsed = parse_header(from, &header);
    if (parsed) return refuse(from, parsed);
    size_t entries = json_object_size(header);
    range *places = rcvi_new(tensors->context, entries, sizeof *places);
    void **data = rcvi_new(tensors->context, entries, sizeof *data);
    rcv_status status = places && data ? read_entries(from, header, places, data, tensors) : RCV_NO_MEMORY;
    rcvi_free(tensors->context, data);
    rcvi_free(tensors->context, places);
    json_decref(header);
    return status;
}

static rcv_status read_source(rcv_context *context, source *from, rcv_tensors **tensors) {
    rcv_tensors *made;
    rcv_status measured = measure_header(from);
    if (measured) return refuse(from, measured);
    RCVI_TRY(rcv_tensors_new(context, &made));
    from->header = rcvi_new(context, (size_t)(from->data_at - LENGTH_BYTES) + 1, 1);
    rcv_status status = from->header ? read_content(from, made) : RCV_NO_MEMORY;
    rcvi_free(context, from->header);
    if (status == RCV_OK)
        *tensors = made;
    else
        rcv_tensors_free(made);
    return status;
}

rcv_status rcv_tensors_parse(rcv_context *context, const void *bytes, size_t length, const char *name,
                             rcv_tensors **tensors) {
    RCVI_NEED(tensors, "tensors");
    *tensors = NULL;
    RCVI_NEED(context, "context");
    RCVI_NEED(bytes || length == 0, "bytes");
    source from = {.file = name ? name : "tensors", .bytes = bytes, .length = (int64_t)length};
    return read_source(context, &from, tensors);
}

rcv_status rcv_tensors_load(rcv_context *context, const char *path, rcv_tensors **tensors) {
    RCVI_NEED(tensors, "tensors");
    *tensors = NULL;
    RCVI_NEED(context, "context");
    RCVI_NEED(path, "path");
    source from = {.file = path};
    RCVI_TRY(rcvi_open_regular(path, &from.descriptor, &from.length));
    rcv_status status = read_source(context, &from, tensors);
    close(from.descriptor);
    return status;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* Sets the order of the data: larger elements first, so that every tensor is aligned to its element size; else in order. parts[0] and parts[1] are for the
 * length and the header; offsets[i] receives the offset of tensor i. */
static void set_layout(const rcv_tensors *tensors, rcvi_bytes *parts, int64_t *offsets) {
    size_t part = 2;
    int64_t offset = 0;
    for (size_t size = 8; size > 0; size /= 2) {
        for (size_t i = 0; i < tensors->count; i++) {
            const rcv_tensor *tensor = tensors->items[i];
            if (rcv_dtype_bytes(tensor->dtype) != size) continue;
            parts[part++] = (rcvi_bytes){tensor->data, tensor->bytes};
            offsets[i] = offset;
            offset += (int64_t)tensor->bytes;
        }
    }
}

static json_t *describe_tensor(const rcv_tensor *tensor, int64_t offset) {
    json_t *shape = json_array();
    for (int i = 0; i < tensor->dims; i++)
        if (json_array_append_new(shape, json_integer(tensor->shape[i])) != 0) {
            json_decref(shape);
            return NULL;
        }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype_tag(tensor->dtype), "shape", shape, "data_offsets",
                     (json_int_t)offset, (json_int_t)offset + (json_int_t)tensor->bytes);
}

static bool describe_tensors(const rcv_tensors *tensors, const int64_t *offsets, json_t *header) {
    json_t *metadata = json_object();
    if (json_object_set_new(header, "__metadata__", metadata) != 0) return false;
    for (size_t i = 0; i < tensors->metadata_count; i++)
        if (json_object_set_new(metadata, tensors->metadata[i].key, json_string(tensors->metadata[i].value)) != 0)
            return false;
    if (json_object_set_new(metadata, CHECKSUM_KEY, json_string("0000000000000000")) != 0) return false;
    for (size_t i = 0; i < tensors->count; i++)
        if (json_object_set_new(header, tensors->items[i]->name, describe_tensor(tensors->items[i], offsets[i])) != 0)
            return false;
    return true;
}

/* Writes the header, padded with spaces so that the data begins at a multiple of 8. */
static rcv_status write_header(const rcv_tensors *tensors, const int64_t *offsets, rcvi_text *text) {
    json_t *header = json_object();
    char *dumped = NULL;
    bool whole = header && describe_tensors(tensors, offsets, header);
    rcv_status status = rcvi_json_print(tensors->context, whole ? header : NULL, JSON_COMPACT, &dumped);
    json_decref(header);
    RCVI_TRY(status);
    rcvi_text_add(text, "%s", dumped);
    rcvi_free(tensors->context, dumped);
    while (!text->failed && text->length % LENGTH_BYTES != 0) rcvi_text_add(text, " ");
    if (text->failed) return rcvi_no_memory(text->length);
    if (text->length > RCVI_LIMIT_TENSOR_HEADER)
        return rcvi_fail(RCV_INVALID, "the header of %zu tensors has %zu bytes, at most %d are allowed", tensors->count,
                         text->length, RCVI_LIMIT_TENSOR_HEADER);
    return RCV_OK;
}

/* Writes the hash of header and data in place of the zeros. */
static void write_checksum(char *header, size_t length, const rcvi_bytes *data, size_t count) {
    char digits[CHECKSUM_DIGITS + 1];
    uint64_t sum = rcvi_hash_chunk(length, header, length);
    for (size_t i = 0; i < count; i++) sum = hash_data(sum, data[i].bytes, data[i].length);
    write_digits(sum, digits);
    memcpy(find_digits(header), digits, CHECKSUM_DIGITS);
}

static rcv_status save_tensors(const rcv_tensors *tensors, const char *path, rcvi_bytes *parts, int64_t *offsets) {
    rcvi_text text;
    uint8_t length[LENGTH_BYTES];
    rcvi_text_init(&text, tensors->context);
    set_layout(tensors, parts, offsets);
    rcv_status status = write_header(tensors, offsets, &text);
    if (status == RCV_OK) {
        for (int i = 0; i < LENGTH_BYTES; i++) length[i] = (uint8_t)((uint64_t)text.length >> 8 * i);
        write_checksum(text.bytes, text.length, parts + 2, tensors->count);
        parts[0] = (rcvi_bytes){length, sizeof length};
        parts[1] = (rcvi_bytes){text.bytes, text.length};
        status = rcvi_write_file(tensors->context, path, parts, tensors->count + 2);
    }
    rcvi_text_drop(&text);
    return status;
}

rcv_status rcv_tensors_save(const rcv_tensors *tensors, const char *path) {
    RCVI_NEED(tensors, "tensors");
    RCVI_NEED(path, "path");
    rcv_context *context = tensors->context;
    rcvi_bytes *parts = rcvi_new(context, tensors->count + 2, sizeof *parts);
    int64_t *offsets = rcvi_new(context, tensors->count, sizeof *offsets);
    rcv_status status = parts && offsets ? save_tensors(tensors, path, parts, offsets) : RCV_NO_MEMORY;
    rcvi_free(context, offsets);
    rcvi_free(context, parts);
    return status;
}
