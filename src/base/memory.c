/* The context, and memory from its allocator. */
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *default_allocate(void *user, size_t bytes) {
    (void)user;
    return malloc(bytes);
}

static void default_release(void *user, void *memory) {
    (void)user;
    free(memory);
}

rcv_status rcv_context_new(const rcv_context_options *options, rcv_context **context) {
    if (!context) return rcvi_fail(RCV_INVALID, "rcv_context_new needs a place for the context, not NULL");
    *context = NULL;
    rcv_allocator allocator = {default_allocate, default_release, NULL};
    if (options && options->allocator) {
        allocator = *options->allocator;
        if (!allocator.allocate || !allocator.release)
            return rcvi_fail(RCV_INVALID, "an allocator needs both allocate and release");
    }
    rcv_context *made = allocator.allocate(allocator.user, sizeof *made);
    if (!made) return rcvi_no_memory(sizeof *made);
    memset(made, 0, sizeof *made);
    made->allocator = allocator;
    if (options) {
        made->log = options->log;
        made->log_user = options->log_user;
    }
    *context = made;
    return RCV_OK;
}

void rcv_context_free(rcv_context *context) {
    if (!context) return;
    rcv_allocator allocator = context->allocator;
    allocator.release(allocator.user, context);
}

void rcv_text_free(rcv_context *context, char *text) { rcvi_free(context, text); }

void *rcvi_new(rcv_context *context, size_t count, size_t size) {
    if (size != 0 && count > SIZE_MAX / size) {
        rcvi_fail(RCV_NO_MEMORY, "no memory for %zu elements of %zu bytes", count, size);
        return NULL;
    }
    size_t bytes = count * size;
    if (bytes == 0) bytes = 1;
    void *memory = context->allocator.allocate(context->allocator.user, bytes);
    if (!memory) {
        rcvi_no_memory(bytes);
        return NULL;
    }
    return memset(memory, 0, bytes);
}

void rcvi_free(rcv_context *context, void *memory) {
    if (memory) context->allocator.release(context->allocator.user, memory);
}

bool rcvi_grow(rcv_context *context, void *array_pointer, size_t *capacity, size_t needed, size_t size) {
    if (needed <= *capacity) return true;
    size_t wanted = *capacity > SIZE_MAX / 2 ? SIZE_MAX : *capacity * 2;
    if (wanted < 8) wanted = 8;
    if (wanted < needed) wanted = needed;
    void *bigger = rcvi_new(context, wanted, size);
    if (!bigger) return false;
    /* array_pointer is the address of a pointer of any type, so it is read and written as bytes. */
    void *old;
    memcpy(&old, array_pointer, sizeof old);
    if (old) memcpy(bigger, old, *capacity * size);
    memcpy(array_pointer, &bigger, sizeof bigger);
    *capacity = wanted;
    rcvi_free(context, old);
    return true;
}

char *rcvi_copy_text(rcv_context *context, const char *text, size_t length) {
    if (length == SIZE_MAX) {
        rcvi_no_memory(length);
        return NULL;
    }
    char *copy = rcvi_new(context, length + 1, 1);
    if (copy && length > 0) memcpy(copy, text, length);
    return copy;
}

void rcvi_log(rcv_context *context, const char *format, ...) {
    if (!context->log) return;
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    if (length >= 0) context->log(context->log_user, line);
}
