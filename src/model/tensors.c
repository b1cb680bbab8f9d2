/* Collections of named tensors with text metadata; they keep the order of insertion. */
#include "model/tensors.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

bool rcvi_shape_bytes(rcv_dtype dtype, int dims, const int64_t *shape, int64_t *elements, int64_t *bytes) {
    *elements = 1;
    for (int i = 0; i < dims; i++)
        if (!rcvi_multiply(*elements, shape[i], elements)) return false;
    return rcvi_multiply(*elements, (int64_t)rcv_dtype_bytes(dtype), bytes);
}

const char *rcvi_escape_name(const char *name, char out[RCVI_ESCAPED_NAME]) {
    size_t needed = rcv_escape(name, strlen(name), "", out, RCVI_ESCAPED_NAME - 3);
    if (needed >= RCVI_ESCAPED_NAME - 3) strcat(out, "...");
    return out;
}

const char *rcvi_shape_text(int dims, const int64_t *shape, char out[RCVI_SHAPE_TEXT]) {
    int length = snprintf(out, RCVI_SHAPE_TEXT, "[");
    for (int i = 0; i < dims; i++)
        length +=
            snprintf(out + length, RCVI_SHAPE_TEXT - (size_t)length, "%s%lld", i ? ", " : "", (long long)shape[i]);
    snprintf(out + length, RCVI_SHAPE_TEXT - (size_t)length, "]");
    return out;
}

rcv_status rcv_tensors_new(rcv_context *context, rcv_tensors **tensors) {
    RCVI_NEED(tensors, "tensors");
    *tensors = NULL;
    RCVI_NEED(context, "context");
    rcv_tensors *made = rcvi_new(context, 1, sizeof *made);
    if (!made) return RCV_NO_MEMORY;
    made->context = context;
    *tensors = made;
    return RCV_OK;
}

static void free_tensor(rcv_context *context, rcv_tensor *tensor) {
    if (!tensor) return;
    rcvi_free(context, (void *)tensor->name);
    rcvi_free(context, (void *)tensor->data);
    rcvi_free(context, tensor);
}

void rcv_tensors_free(rcv_tensors *tensors) {
    if (!tensors) return;
    rcv_context *context = tensors->context;
    for (size_t i = 0; i < tensors->count; i++) free_tensor(context, tensors->items[i]);
    for (size_t i = 0; i < tensors->metadata_count; i++) {
        rcvi_free(context, tensors->metadata[i].key);
        rcvi_free(context, tensors->metadata[i].value);
    }
    rcvi_free(context, tensors->items);
    rcvi_free(context, tensors->metadata);
    rcvi_free(context, tensors);
}

size_t rcv_tensors_count(const rcv_tensors *tensors) { return tensors ? tensors->count : 0; }

const rcv_tensor *rcv_tensors_at(const rcv_tensors *tensors, size_t index) {
    return tensors && index < tensors->count ? tensors->items[index] : NULL;
}

const rcv_tensor *rcv_tensors_find(const rcv_tensors *tensors, const char *name) {
    if (!tensors || !name) return NULL;
    for (size_t i = 0; i < tensors->count; i++)
        if (strcmp(tensors->items[i]->name, name) == 0) return tensors->items[i];
    return NULL;
}

rcv_status rcvi_tensors_append(rcv_tensors *tensors, const rcv_tensor *like, void **data) {
    rcv_context *context = tensors->context;
    if (!rcvi_grow(context, &tensors->items, &tensors->capacity, tensors->count + 1, sizeof *tensors->items))
        return RCV_NO_MEMORY;
    rcv_tensor *made = rcvi_new(context, 1, sizeof *made);
    if (!made) return RCV_NO_MEMORY;
    *made = *like;
    made->name = rcvi_copy_text(context, like->name, strlen(like->name));
    made->data = rcvi_new(context, like->bytes, 1);
    if (!made->name || !made->data) {
        free_tensor(context, made);
        return RCV_NO_MEMORY;
    }
    for (int i = made->dims; i < RCV_MAX_DIMS; i++) made->shape[i] = 0;
    tensors->items[tensors->count++] = made;
    *data = (void *)made->data;
    return RCV_OK;
}

/* JSON strings must be UTF-8. */
static rcv_status check_text(const char *what, const char *text) {
    json_t *string = json_string(text);
    if (!string) return rcvi_fail(RCV_INVALID, "%s must be valid UTF-8 text", what);
    json_decref(string);
    return RCV_OK;
}

rcv_status rcv_tensors_add(rcv_tensors *tensors, const rcv_tensor *tensor) {
    RCVI_NEED(tensors, "tensors");
    RCVI_NEED(tensor, "tensor");
    if (!tensor->name || tensor->name[0] == '\0')
        return rcvi_fail(RCV_INVALID, "rcv_tensors_add needs a tensor with a name");
    char shown[RCVI_ESCAPED_NAME], shape[RCVI_SHAPE_TEXT];
    rcvi_escape_name(tensor->name, shown);
    if (strcmp(tensor->name, "__metadata__") == 0)
        return rcvi_fail(RCV_INVALID, "a tensor cannot be named __metadata__; the file format reserves that name");
    rcv_status status = check_text("a tensor's name", tensor->name);
    if (status != RCV_OK) return status;
    if (rcv_dtype_bytes(tensor->dtype) == 0)
        return rcvi_fail(RCV_INVALID, "tensor %s has an unknown dtype %d", shown, (int)tensor->dtype);
    if (tensor->dims < 0 || tensor->dims > RCV_MAX_DIMS)
        return rcvi_fail(RCV_INVALID, "tensor %s has %d dimensions, it may have 0 to %d", shown, tensor->dims,
                         RCV_MAX_DIMS);
    int64_t elements, bytes;
    rcvi_shape_text(tensor->dims, tensor->shape, shape);
    if (!rcvi_shape_bytes(tensor->dtype, tensor->dims, tensor->shape, &elements, &bytes))
        return rcvi_fail(RCV_INVALID, "tensor %s has the shape %s, which is negative or too large", shown, shape);
    if ((uint64_t)bytes != tensor->bytes)
        return rcvi_fail(RCV_INVALID, "tensor %s has %zu bytes, its shape %s of %s needs %lld", shown, tensor->bytes,
                         shape, rcv_dtype_name(tensor->dtype), (long long)bytes);
    if (bytes > 0 && !tensor->data) return rcvi_fail(RCV_INVALID, "tensor %s has no data", shown);
    if (rcv_tensors_find(tensors, tensor->name))
        return rcvi_fail(RCV_INVALID, "there is already a tensor named %s", shown);
    void *data;
    status = rcvi_tensors_append(tensors, tensor, &data);
    if (status == RCV_OK && bytes > 0) memcpy(data, tensor->data, tensor->bytes);
    return status;
}

const char *rcv_tensors_metadata(const rcv_tensors *tensors, const char *key) {
    if (!tensors || !key) return NULL;
    for (size_t i = 0; i < tensors->metadata_count; i++)
        if (strcmp(tensors->metadata[i].key, key) == 0) return tensors->metadata[i].value;
    return NULL;
}

rcv_status rcvi_metadata_append(rcv_tensors *tensors, const char *key, const char *value) {
    rcv_context *context = tensors->context;
    if (!rcvi_grow(context, &tensors->metadata, &tensors->metadata_capacity, tensors->metadata_count + 1,
                   sizeof *tensors->metadata))
        return RCV_NO_MEMORY;
    rcvi_metadata entry = {rcvi_copy_text(context, key, strlen(key)), rcvi_copy_text(context, value, strlen(value))};
    if (!entry.key || !entry.value) {
        rcvi_free(context, entry.key);
        rcvi_free(context, entry.value);
        return RCV_NO_MEMORY;
    }
    tensors->metadata[tensors->metadata_count++] = entry;
    return RCV_OK;
}

rcv_status rcv_tensors_set_metadata(rcv_tensors *tensors, const char *key, const char *value) {
    RCVI_NEED(tensors, "tensors");
    RCVI_NEED(key, "key");
    RCVI_NEED(value, "value");
    if (strcmp(key, RCVI_CHECKSUM_KEY) == 0)
        return rcvi_fail(RCV_INVALID, "the metadata %s is written with every file and cannot be set", key);
    rcv_status status = check_text("a metadata key", key);
    if (status == RCV_OK) status = check_text("a metadata value", value);
    if (status != RCV_OK) return status;
    for (size_t i = 0; i < tensors->metadata_count; i++) {
        if (strcmp(tensors->metadata[i].key, key) != 0) continue;
        char *copy = rcvi_copy_text(tensors->context, value, strlen(value));
        if (!copy) return RCV_NO_MEMORY;
        rcvi_free(tensors->context, tensors->metadata[i].value);
        tensors->metadata[i].value = copy;
        return RCV_OK;
    }
    return rcvi_metadata_append(tensors, key, value);
}
