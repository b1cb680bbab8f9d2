/* Calls as XLA makes them. */
#include "jax/frame.h"
#include "call/shared.h"

#include <string.h>

/* ---- failures ---- */

static xla_error *new_error(const xla_frame *frame, xla_error_code code, const char *sentence) {
    xla_new_error error = {.size = sizeof error, .message = sentence, .code = (int)code};
    return frame->api->new_error(&error);
}

/* With the sentence of rcvb_message(). */
static xla_error *error_of(const xla_frame *frame, rcv_status status) {
    switch (status) {
    case RCV_OK: return NULL;
    case RCV_NO_MEMORY: return new_error(frame, XLA_RESOURCE_EXHAUSTED, rcvb_message());
    case RCV_UNSUPPORTED: return new_error(frame, XLA_UNIMPLEMENTED, rcvb_message());
    case RCV_IO: return new_error(frame, XLA_INTERNAL, rcvb_message());
    default: return new_error(frame, XLA_INVALID_ARGUMENT, rcvb_message());
    }
}

static bool has_failed(const xla_frame *frame, xla_error *error) {
    xla_free_error release = {.size = sizeof release, .error = error};
    if (error) frame->api->free_error(&release);
    return error != NULL;
}

/* ---- the version ---- */

/* Says their version where it is known. XLA of version 0.1 does not give its functions with the question. */
static xla_error *answer_question(const xla_frame *frame, xla_metadata *metadata) {
    const xla_version *theirs = frame->api ? &frame->api->version : NULL;
    metadata->version.major = XLA_MAJOR;
    metadata->version.minor = !theirs ? XLA_OLDEST_MINOR : theirs->minor < XLA_MINOR ? theirs->minor : XLA_MINOR;
    metadata->traits = 0;
    if (!theirs || theirs->major == XLA_MAJOR) return NULL;
    return new_error(frame, XLA_UNIMPLEMENTED,
                     "recurve does not know this version of XLA's foreign function interface; install a newer recurve "
                     "or an older jaxlib");
}

xla_error *rcvb_answer(xla_frame *frame, rcvb_platform platform, rcvb_handler *run) {
    const xla_extension *e = frame->extensions;
    while (e && e->type != XLA_METADATA) e = e->next;
    return e ? answer_question(frame, ((const xla_metadata_request *)(const void *)e)->metadata)
             : error_of(frame, run(frame, platform));
}

/* ---- where a call runs ---- */

static rcv_status find_ordinal(const xla_frame *frame, int *device) {
    xla_get_ordinal question = {.size = sizeof question, .context = frame->context};
    bool can_ask = XLA_HAS(frame->api, xla_api, get_ordinal) && frame->api->get_ordinal;
    if (!can_ask || has_failed(frame, frame->api->get_ordinal(&question)))
        return rcvb_fail(RCV_UNSUPPORTED, "this jaxlib does not say on which GPU a call runs; install a newer one");
    *device = question.ordinal;
    return RCV_OK;
}

static rcv_status find_stream(const xla_frame *frame, void **stream) {
    xla_get_stream question = {.size = sizeof question, .context = frame->context};
    if (has_failed(frame, frame->api->get_stream(&question)))
        return rcvb_fail(RCV_UNSUPPORTED, "XLA has no CUDA stream for a call");
    *stream = question.stream;
    return RCV_OK;
}

rcv_status rcvb_begin_call(const xla_frame *frame, rcvb_platform platform, rcvb_call *call) {
    *call = (rcvb_call){.frame = frame, .device = RCVB_CPU};
    if (!XLA_HAS(frame, xla_frame, attributes))
        return rcvb_fail(RCV_UNSUPPORTED, "this jaxlib calls functions in a way that recurve does not know");
    if (platform == RCVB_ON_HOST) return RCV_OK;
    rcv_status status = find_ordinal(frame, &call->device);
    return status ? status : find_stream(frame, &call->stream);
}

/* ---- attributes ---- */

static const void *find_attribute(const rcvb_call *call, const char *name, int type) {
    const xla_attributes *a = &call->frame->attributes;
    for (int64_t i = 0; i < a->count; i++) {
        const xla_string *s = a->names[i];
        if (a->types[i] == type && s->length == strlen(name) && !memcmp(s->at, name, s->length)) return a->items[i];
    }
    return NULL;
}

rcv_status rcvb_read_integer(const rcvb_call *call, const char *name, int64_t *value) {
    const xla_scalar *s = find_attribute(call, name, XLA_IS_SCALAR);
    if (!s || s->type != XLA_INT64) return rcvb_fail(RCV_INVALID, "the call has no attribute '%s' of 64 bits", name);
    memcpy(value, s->at, sizeof *value);
    return RCV_OK;
}

rcv_status rcvb_read_text(const rcvb_call *call, const char *name, xla_string *value) {
    const xla_string *s = find_attribute(call, name, XLA_IS_STRING);
    if (!s) return rcvb_fail(RCV_INVALID, "the call has no text '%s'", name);
    *value = *s;
    return RCV_OK;
}

/* ---- arguments and results ---- */

static rcv_status find_buffer(const xla_buffers *list, int64_t index, const char *name, const xla_buffer **buffer) {
    if (index >= list->count || list->types[index] != XLA_IS_BUFFER)
        return rcvb_fail(RCV_INVALID, "the call has no array for %s", name);
    *buffer = list->items[index];
    return RCV_OK;
}

static rcv_status take(const xla_buffers *list, int64_t *next, xla_type type, int64_t elements, const char *name,
                       void **data) {
    const xla_buffer *b = NULL;
    int64_t count = 1;
    rcv_status status = find_buffer(list, *next, name, &b);
    if (!b) return status;
    for (int64_t d = 0; d < b->dims; d++) count *= b->sizes[d];
    if (b->type != (int)type) return rcvb_fail(RCV_INVALID, "%s has another type than the call says", name);
    if (count != elements)
        return rcvb_fail(RCV_INVALID, "%s has %lld elements, not %lld", name, (long long)count, (long long)elements);
    *data = b->data;
    ++*next;
    return RCV_OK;
}

rcv_status rcvb_take_argument(rcvb_call *call, xla_type type, int64_t elements, const char *name, void **data) {
    return take(&call->frame->arguments, &call->argument, type, elements, name, data);
}

rcv_status rcvb_take_result(rcvb_call *call, xla_type type, int64_t elements, const char *name, void **data) {
    return take(&call->frame->results, &call->result, type, elements, name, data);
}

rcv_status rcvb_see_argument(const rcvb_call *call, const char *name, const xla_buffer **buffer) {
    return find_buffer(&call->frame->arguments, call->argument, name, buffer);
}

rcv_status rcvb_check_all_taken(const rcvb_call *call) {
    if (call->argument == call->frame->arguments.count && call->result == call->frame->results.count) return RCV_OK;
    return rcvb_fail(RCV_INVALID, "the call has more arrays than its attributes say");
}
