/* Arrays in files: see arrays.h. Headers are checked against the size of the file before an element is read. */
#include "data/table/arrays.h"

#include "base/json.h"

#include <string.h>
#include <unistd.h>

/* ---- elements ---- */

static double from_half(uint16_t bits) {
    const double sign = bits & 0x8000 ? -1 : 1;
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    if (exponent == 31) return fraction ? NAN : sign * INFINITY;
    return sign * (exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24));
}

static double from_bfloat(uint16_t bits) {
    const uint32_t wide = (uint32_t)bits << 16;
    float number;
    memcpy(&number, &wide, sizeof number);
    return (double)number;
}

static double element_at(const rcvi_array *a, const char *bytes) {
    uint64_t bits = 0;
    memcpy(&bits, bytes, (size_t)a->item); /* little endian, as the file and this machine have it */
    float single;
    double wide;
    switch (a->type) {
    case RCVI_ARRAY_FLOAT:
        if (a->item == 2) return from_half((uint16_t)bits);
        memcpy(&single, bytes, sizeof single);
        if (a->item == 4) return (double)single;
        memcpy(&wide, bytes, sizeof wide);
        return wide;
    case RCVI_ARRAY_BFLOAT: return from_bfloat((uint16_t)bits);
    case RCVI_ARRAY_SIGNED: {
        const int shift = 64 - 8 * (int)a->item;
        return (double)((int64_t)(bits << shift) >> shift);
    }
    default: return (double)bits;
    }
}

rcv_status rcvi_array_read(const rcvi_arrays *arrays, const rcvi_array *a, int64_t first, int64_t count, void *buffer,
                           double *numbers) {
    RCVI_TRY(rcvi_read_at(a->file, arrays->path, a->offset + first * a->item, buffer, (size_t)(count * a->item)));
    for (int64_t i = 0; i < count; i++) numbers[i] = element_at(a, (const char *)buffer + i * a->item);
    return RCV_OK;
}

static size_t put_utf8(uint32_t code, char *to) {
    if (code < 0x80) {
        to[0] = (char)code;
        return 1;
    }
    const size_t bytes = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = bytes - 1; i > 0; i--, code >>= 6) to[i] = (char)(0x80 | (code & 0x3f));
    to[0] = (char)(code | (bytes == 2 ? 0xc0 : bytes == 3 ? 0xe0 : 0xf0));
    return bytes;
}

rcv_status rcvi_array_read_text(const rcvi_arrays *arrays, const rcvi_array *a, int64_t index, char *text,
                                size_t room) {
    size_t used = 0;
    for (int64_t i = 0; i < a->item / 4; i++) {
        uint32_t code;
        RCVI_TRY(rcvi_read_at(a->file, arrays->path, a->offset + index * a->item + 4 * i, &code, sizeof code));
        if (code == 0) break;
        if (code > 0x10ffff || used + 5 > room || code == '\n')
            return rcvi_fail(RCV_FORMAT, "%s: text %lld of %s is no line of at most %zu bytes", arrays->path,
                             (long long)index, a->name, room - 1);
        used += put_utf8(code, text + used);
    }
    text[used] = '\0';
    return RCV_OK;
}

/* ---- checks ---- */

/* Whether the elements lie in the file before `end`. */
static rcv_status check_extent(const rcvi_arrays *arrays, const rcvi_array *a, int64_t end) {
    int64_t count = a->item, last;
    bool good = a->item > 0 && a->offset >= 0;
    for (int d = 0; d < a->dims && good; d++) good = rcvi_multiply(count, a->shape[d], &count);
    if (good && rcvi_add(a->offset, count, &last) && last <= end) return RCV_OK;
    return rcvi_fail(RCV_FORMAT, "%s: the array %s is cut off, or its shape is wrong", arrays->path, a->name);
}

/* ---- safetensors ---- */

static const struct {
    const char *name;
    rcvi_array_type type;
    int64_t item;
} dtypes[] = {{"F64", RCVI_ARRAY_FLOAT, 8},    {"F32", RCVI_ARRAY_FLOAT, 4},    {"F16", RCVI_ARRAY_FLOAT, 2},
              {"BF16", RCVI_ARRAY_BFLOAT, 2},  {"I64", RCVI_ARRAY_SIGNED, 8},   {"I32", RCVI_ARRAY_SIGNED, 4},
              {"I16", RCVI_ARRAY_SIGNED, 2},   {"I8", RCVI_ARRAY_SIGNED, 1},    {"U64", RCVI_ARRAY_UNSIGNED, 8},
              {"U32", RCVI_ARRAY_UNSIGNED, 4}, {"U16", RCVI_ARRAY_UNSIGNED, 2}, {"U8", RCVI_ARRAY_UNSIGNED, 1},
              {"BOOL", RCVI_ARRAY_UNSIGNED, 1}};

static rcv_status add_tensor(rcvi_arrays *arrays, int file, const char *name, const json_t *entry, int64_t data,
                             int64_t end) {
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    const json_t *shape = json_object_get(entry, "shape"), *offsets = json_object_get(entry, "data_offsets");
    size_t kind = 0, count = sizeof dtypes / sizeof *dtypes;
    rcvi_array a = {.file = file};
    while (dtype && kind < count && strcmp(dtypes[kind].name, dtype) != 0) kind++;
    if (!dtype || kind == count || json_array_size(shape) > RCVI_ARRAY_DIMS || json_array_size(offsets) != 2 ||
        strlen(name) >= sizeof a.name)
        return rcvi_fail(RCV_FORMAT, "%s: the tensor '%.60s' has a type or shape that data cannot have", arrays->path,
                         name);
    strcpy(a.name, name);
    a.type = dtypes[kind].type;
    a.item = dtypes[kind].item;
    a.dims = (int)json_array_size(shape);
    for (int d = 0; d < a.dims; d++) a.shape[d] = json_integer_value(json_array_get(shape, (size_t)d));
    if (!rcvi_add(data, json_integer_value(json_array_get(offsets, 0)), &a.offset)) a.offset = -1;
    RCVI_TRY(check_extent(arrays, &a, end));
    arrays->arrays[arrays->count++] = a;
    return RCV_OK;
}

static rcv_status read_tensors(rcvi_arrays *arrays, int file, int64_t bytes) {
    uint64_t header = UINT64_MAX;
    if (bytes >= 8) RCVI_TRY(rcvi_read_at(file, arrays->path, 0, &header, sizeof header));
    if (header > RCVI_LIMIT_TENSOR_HEADER || (int64_t)header > bytes - 8)
        return rcvi_fail(RCV_FORMAT, "%s is not a safetensors file: its header is longer than the file", arrays->path);
    char *text = rcvi_new(arrays->context, (size_t)header + 1, 1);
    if (!text) return RCV_NO_MEMORY;
    rcv_status status = rcvi_read_at(file, arrays->path, 8, text, (size_t)header);
    json_error_t error;
    json_t *object = status ? NULL : rcvi_json_read(text, (size_t)header, JSON_REJECT_DUPLICATES, &error);
    if (!status && !json_is_object(object))
        status = rcvi_fail(RCV_FORMAT, "%s is not a safetensors file: its header is no JSON object", arrays->path);
    const char *name;
    json_t *entry;
    json_object_foreach(object, name, entry) {
        if (!strcmp(name, "__metadata__")) continue;
        if (!status && arrays->count == RCVI_MOST_ARRAYS)
            status = rcvi_fail(RCV_FORMAT, "%s has more than %d tensors; data has x, y and lengths", arrays->path,
                               RCVI_MOST_ARRAYS);
        if (!status) status = add_tensor(arrays, file, name, entry, 8 + (int64_t)header, bytes);
    }
    json_decref(object);
    rcvi_free(arrays->context, text);
    return status;
}

/* ---- opening ---- */

rcv_status rcvi_arrays_open(rcv_context *context, int file, int64_t bytes, const char *path, rcv_file_format format,
                            rcvi_arrays *arrays) {
    *arrays = (rcvi_arrays){.context = context, .path = path};
    rcv_status status = RCV_OK;
    if (format == RCV_FORMAT_SAFETENSORS) {
        status = read_tensors(arrays, file, bytes);
    } else if (format == RCV_FORMAT_NPZ) {
        status = rcvi_npz_read(arrays, file, bytes);
    } else {
        strcpy(arrays->arrays[0].name, "x");
        status = rcvi_npy_read(arrays, file, 0, bytes, &arrays->arrays[0]);
        arrays->count = 1;
    }
    if (status) rcvi_arrays_close(arrays);
    return status;
}

void rcvi_arrays_close(rcvi_arrays *arrays) {
    for (size_t i = 0; i < arrays->count; i++)
        if (arrays->arrays[i].owns_file) close(arrays->arrays[i].file);
    arrays->count = 0;
}

const rcvi_array *rcvi_arrays_find(const rcvi_arrays *arrays, const char *name) {
    for (size_t i = 0; i < arrays->count; i++)
        if (strcmp(arrays->arrays[i].name, name) == 0) return &arrays->arrays[i];
    return NULL;
}
