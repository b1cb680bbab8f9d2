/* Statuses with messages, and the names of statuses and element types. */
#include "base/base.h"

#include <stdio.h>
#include <string.h>

enum { MESSAGE_BYTES = 4096 };

/* Per thread, like errno: the only state outside a context. */
static _Thread_local char message[MESSAGE_BYTES];

typedef struct {
    const char *name;
    size_t bytes;
} dtype_entry;

static const dtype_entry dtypes[] = {
    [RCV_FLOAT32] = {"float32", 4},   [RCV_FLOAT64] = {"float64", 8}, [RCV_FLOAT16] = {"float16", 2},
    [RCV_BFLOAT16] = {"bfloat16", 2}, [RCV_INT64] = {"int64", 8},     [RCV_INT32] = {"int32", 4},
    [RCV_TFLOAT32] = {"tfloat32", 4}, [RCV_UINT8] = {"uint8", 1},     [RCV_BOOL] = {"bool", 1},
};

static const char *const status_names[] = {
    [RCV_OK] = "ok",
    [RCV_INVALID] = "invalid",
    [RCV_SYNTAX] = "syntax",
    [RCV_FORMAT] = "format",
    [RCV_IO] = "io",
    [RCV_NO_MEMORY] = "no memory",
    [RCV_UNSUPPORTED] = "unsupported",
    [RCV_STOPPED] = "stopped",
    [RCV_PEER] = "another rank",
};

rcv_status rcvi_fail(rcv_status status, const char *format, ...) {
    /* The arguments may point into the last message. */
    char text[MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (length < 0) text[0] = '\0';
    /* The message may quote a file. A syntax error of a cell has several lines. */
    rcv_escape(text, strlen(text), status == RCV_SYNTAX ? "\n\t" : "", message, sizeof message);
    return status;
}

rcv_status rcvi_fail_null(const char *function, const char *argument) {
    return rcvi_fail(RCV_INVALID, "%s needs %s, not NULL", function, argument);
}

rcv_status rcvi_no_memory(size_t bytes) { return rcvi_fail(RCV_NO_MEMORY, "no memory for %zu bytes", bytes); }

const char *rcv_version(void) { return RCV_VERSION; }

const char *rcv_message(void) { return message; }

const char *rcv_status_name(rcv_status status) {
    size_t index = (size_t)status;
    return index < sizeof status_names / sizeof *status_names ? status_names[index] : "unknown status";
}

const char *rcv_dtype_name(rcv_dtype dtype) {
    size_t index = (size_t)dtype;
    return index < sizeof dtypes / sizeof *dtypes ? dtypes[index].name : "unknown dtype";
}

bool rcv_dtype_find(const char *name, rcv_dtype *dtype) {
    for (size_t i = 0; name && dtype && i < sizeof dtypes / sizeof *dtypes; i++) {
        if (strcmp(dtypes[i].name, name) != 0) continue;
        *dtype = (rcv_dtype)i;
        return true;
    }
    return false;
}

size_t rcv_dtype_bytes(rcv_dtype dtype) {
    size_t index = (size_t)dtype;
    return index < sizeof dtypes / sizeof *dtypes ? dtypes[index].bytes : 0;
}
