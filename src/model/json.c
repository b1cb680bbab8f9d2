#include "model/json.h"

static int add(const char *bytes, size_t length, void *user) {
    rcvi_text *text = user;
    rcvi_text_add_bytes(text, bytes, length);
    return text->failed ? -1 : 0;
}

rcv_status rcvi_json_print(rcv_context *context, const json_t *value, size_t flags, char **out) {
    rcvi_text text;
    *out = NULL;
    rcvi_text_init(&text, context);
    if (value && json_dump_callback(value, add, &text, flags) == 0) return rcvi_text_take(&text, out);
    rcvi_text_drop(&text);
    return rcvi_fail(RCV_NO_MEMORY, "no memory for a JSON text");
}
