/* Tensor files in the safetensors format.
 *
 *   file   = length header data
 *   length = bytes of the header, 64 bits, little-endian
 *   header = a JSON object: name -> {"dtype", "shape", "data_offsets": [begin, end)}, and "__metadata__": name -> text
 *   data   = the tensors' elements, little-endian and row-major, without overlap and without holes
 *
 * A file is distrusted whole: nothing of it is used before all of its header was checked. */
#include "base/json.h"
#include "model/json.h"
#include "model/tensors.h"

#include <stdlib.h>
#include <string.h>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tensor files are little-endian, and this machine is not"
#endif

enum { LENGTH_BYTES = 8, HEADER_LIMIT = 100000000 };

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

/* What is being read: the file's name for messages and its data behind the header. */
typedef struct {
    const char *file;
    const char *data;
    int64_t data_bytes;
} source;

/* A tensor's place in the data. */
typedef struct {
    const char *name;
    int64_t begin, end;
} range;

static rcv_status read_dtype(const source *from, const char *name, const json_t *value, rcv_dtype *dtype) {
    const char *tag = json_string_value(value);
    char shown[RCVI_SHOWN];
    if (!tag) return rcvi_fail(RCV_FORMAT, "%s: tensor %s needs a text \"dtype\"", from->file, name);
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (strcmp(dtypes[i].name, tag) == 0) {
            *dtype = dtypes[i].dtype;
            return RCV_OK;
        }
    }
    return rcvi_fail(RCV_FORMAT,
                     "%s: tensor %s has dtype %s, only F32, F64, F16, BF16, I64, I32, U8 and BOOL can be read",
                     from->file, name, rcvi_shown(tag, shown));
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
    char name[RCVI_SHOWN], shape[RCVI_SHAPE_TEXT];
    rcvi_shown(key, name);
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

static rcv_status read_metadata(const source *from, json_t *object, rcv_tensors *tensors) {
    if (!json_is_object(object)) return rcvi_fail(RCV_FORMAT, "%s: __metadata__ is not an object of texts", from->file);
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        char shown[RCVI_SHOWN];
        if (!json_is_string(value))
            return rcvi_fail(RCV_FORMAT, "%s: the metadata %s is not a text", from->file, rcvi_shown(key, shown));
        rcv_status status = rcvi_metadata_append(tensors, key, json_string_value(value));
        if (status != RCV_OK) return status;
    }
    return RCV_OK;
}

static int compare_ranges(const void *a, const void *b) {
    const range *left = a, *right = b;
    if (left->begin != right->begin) return left->begin < right->begin ? -1 : 1;
    return left->end < right->end ? -1 : left->end > right->end;
}

/* The tensors lie one after another from the first byte of the data to the last. */
static rcv_status check_cover(const source *from, range *places, size_t count) {
    char name[RCVI_SHOWN], before[RCVI_SHOWN];
    int64_t end = 0;
    qsort(places, count, sizeof *places, compare_ranges);
    for (size_t i = 0; i < count; i++) {
        rcvi_shown(places[i].name, name);
        if (places[i].begin < end)
            return rcvi_fail(RCV_FORMAT, "%s: tensor %s overlaps tensor %s", from->file, name,
                             rcvi_shown(places[i - 1].name, before));
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

/* Reads the header's entries into `tensors`; `places` has room for all of them. */
static rcv_status read_entries(const source *from, json_t *header, range *places, rcv_tensors *tensors) {
    const char *key;
    json_t *value;
    size_t count = 0;
    rcv_status status = RCV_OK;
    json_object_foreach(header, key, value) {
        rcv_tensor ignored = {0};
        if (strcmp(key, "__metadata__") == 0)
            status = read_metadata(from, value, tensors);
        else
            status = read_tensor(from, key, value, &ignored, &places[count++]);
        if (status != RCV_OK) return status;
    }
    status = check_cover(from, places, count);
    if (status != RCV_OK) return status;
    json_object_foreach(header, key, value) {
        rcv_tensor tensor = {0};
        range place = {0};
        void *data = NULL;
        if (strcmp(key, "__metadata__") == 0) continue;
        status = read_tensor(from, key, value, &tensor, &place);
        if (status == RCV_OK) status = rcvi_tensors_append(tensors, &tensor, &data);
        if (status != RCV_OK) return status;
        if (tensor.bytes > 0) memcpy(data, from->data + place.begin, tensor.bytes);
    }
    return RCV_OK;
}

static rcv_status parse_header(const source *from, const char *bytes, size_t length, json_t **header) {
    *header = NULL;
    if (length == 0 || bytes[0] != '{') return rcvi_fail(RCV_FORMAT, "%s: the header is not a JSON object", from->file);
    json_error_t error;
    char shown[RCVI_SHOWN];
    *header = rcvi_json_read(bytes, length, JSON_REJECT_DUPLICATES, &error);
    if (!*header)
        return rcvi_fail(RCV_FORMAT, "%s: the header is not valid JSON at byte %d: %s", from->file, error.position,
                         rcvi_shown(error.text, shown));
    return RCV_OK;
}

static rcv_status parse(rcv_tensors *tensors, const char *bytes, size_t length, const char *name) {
    if (length < LENGTH_BYTES)
        return rcvi_fail(RCV_FORMAT, "%s: %zu bytes are too few for a tensor file", name, length);
    uint64_t header_bytes = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--) header_bytes = header_bytes << 8 | (uint8_t)bytes[i];
    if (header_bytes > HEADER_LIMIT)
        return rcvi_fail(RCV_FORMAT, "%s: a header of %llu bytes is announced, at most %d are allowed", name,
                         (unsigned long long)header_bytes, HEADER_LIMIT);
    if (header_bytes > length - LENGTH_BYTES)
        return rcvi_fail(RCV_FORMAT, "%s: a header of %llu bytes is announced, only %zu bytes follow", name,
                         (unsigned long long)header_bytes, length - LENGTH_BYTES);
    size_t data_at = LENGTH_BYTES + (size_t)header_bytes;
    source from = {name, bytes + data_at, (int64_t)(length - data_at)};
    json_t *header;
    rcv_status status = parse_header(&from, bytes + LENGTH_BYTES, (size_t)header_bytes, &header);
    if (status != RCV_OK) return status;
    range *places = rcvi_new(tensors->context, json_object_size(header), sizeof *places);
    status = places ? read_entries(&from, header, places, tensors) : RCV_NO_MEMORY;
    rcvi_free(tensors->context, places);
    json_decref(header);
    return status;
}

rcv_status rcv_tensors_parse(rcv_context *context, const void *bytes, size_t length, const char *name,
                             rcv_tensors **tensors) {
    rcv_tensors *made;
    if (!tensors) return rcvi_fail(RCV_INVALID, "rcv_tensors_parse needs a place for the tensors, not NULL");
    *tensors = NULL;
    if (!bytes && length > 0) return rcvi_fail(RCV_INVALID, "rcv_tensors_parse needs bytes, not NULL");
    rcv_status status = rcv_tensors_new(context, &made);
    if (status != RCV_OK) return status;
    status = parse(made, bytes, length, name ? name : "tensors");
    if (status != RCV_OK) {
        rcv_tensors_free(made);
        return status;
    }
    *tensors = made;
    return RCV_OK;
}

rcv_status rcv_tensors_load(rcv_context *context, const char *path, rcv_tensors **tensors) {
    if (!tensors) return rcvi_fail(RCV_INVALID, "rcv_tensors_load needs a place for the tensors, not NULL");
    *tensors = NULL;
    if (!context || !path) return rcvi_fail(RCV_INVALID, "rcv_tensors_load needs a context and a path");
    char *bytes;
    size_t length;
    rcv_status status = rcvi_read_file(context, path, PTRDIFF_MAX, &bytes, &length);
    if (status != RCV_OK) return status;
    status = rcv_tensors_parse(context, bytes, length, path, tensors);
    rcvi_free(context, bytes);
    return status;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* Larger elements first, so that every tensor is aligned to its element; else in order. `pieces` begins with the length
 * and the header; offsets[i] is where tensor i begins. */
static void lay_out(const rcv_tensors *tensors, rcvi_piece *pieces, int64_t *offsets) {
    size_t piece = 2;
    int64_t offset = 0;
    for (size_t size = 8; size > 0; size /= 2) {
        for (size_t i = 0; i < tensors->count; i++) {
            const rcv_tensor *tensor = tensors->items[i];
            if (rcv_dtype_bytes(tensor->dtype) != size) continue;
            pieces[piece++] = (rcvi_piece){tensor->data, tensor->bytes};
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

static bool describe(const rcv_tensors *tensors, const int64_t *offsets, json_t *header) {
    if (tensors->metadata_count > 0) {
        json_t *metadata = json_object();
        if (json_object_set_new(header, "__metadata__", metadata) != 0) return false;
        for (size_t i = 0; i < tensors->metadata_count; i++)
            if (json_object_set_new(metadata, tensors->metadata[i].key, json_string(tensors->metadata[i].value)) != 0)
                return false;
    }
    for (size_t i = 0; i < tensors->count; i++)
        if (json_object_set_new(header, tensors->items[i]->name, describe_tensor(tensors->items[i], offsets[i])) != 0)
            return false;
    return true;
}

/* The header's text, padded with spaces so that the data begins at a multiple of 8. */
static rcv_status write_header(const rcv_tensors *tensors, const int64_t *offsets, rcvi_text *text) {
    json_t *header = json_object();
    char *dumped = NULL;
    bool whole = header && describe(tensors, offsets, header);
    rcv_status status = rcvi_json_print(tensors->context, whole ? header : NULL, JSON_COMPACT, &dumped);
    json_decref(header);
    RCVI_TRY(status);
    rcvi_text_add(text, "%s", dumped);
    rcvi_free(tensors->context, dumped);
    while (!text->failed && text->length % LENGTH_BYTES != 0) rcvi_text_add(text, " ");
    if (text->failed) return rcvi_no_memory(text->length);
    if (text->length > HEADER_LIMIT)
        return rcvi_fail(RCV_INVALID, "the header of %zu tensors has %zu bytes, at most %d are allowed", tensors->count,
                         text->length, HEADER_LIMIT);
    return RCV_OK;
}

static rcv_status save(const rcv_tensors *tensors, const char *path, rcvi_piece *pieces, int64_t *offsets) {
    rcvi_text text;
    uint8_t length[LENGTH_BYTES];
    rcvi_text_init(&text, tensors->context);
    lay_out(tensors, pieces, offsets);
    rcv_status status = write_header(tensors, offsets, &text);
    if (status == RCV_OK) {
        for (int i = 0; i < LENGTH_BYTES; i++) length[i] = (uint8_t)((uint64_t)text.length >> 8 * i);
        pieces[0] = (rcvi_piece){length, sizeof length};
        pieces[1] = (rcvi_piece){text.bytes, text.length};
        status = rcvi_write_file(tensors->context, path, pieces, tensors->count + 2);
    }
    rcvi_text_drop(&text);
    return status;
}

rcv_status rcv_tensors_save(const rcv_tensors *tensors, const char *path) {
    if (!tensors || !path) return rcvi_fail(RCV_INVALID, "rcv_tensors_save needs tensors and a path");
    rcv_context *context = tensors->context;
    rcvi_piece *pieces = rcvi_new(context, tensors->count + 2, sizeof *pieces);
    int64_t *offsets = rcvi_new(context, tensors->count, sizeof *offsets);
    rcv_status status = pieces && offsets ? save(tensors, path, pieces, offsets) : RCV_NO_MEMORY;
    rcvi_free(context, offsets);
    rcvi_free(context, pieces);
    return status;
}
