/* Reading and printing of JSON with jansson; failed allocations are always reported. */
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

/* An upper bound of the bytes of the longest token, by a simple scan. */
static size_t longest_token(const char *text, size_t length) {
    bool quoted = false;
    size_t longest = 0;
    for (size_t i = 0, token = 0; i < length; i++) {
        const char c = text[i];
        if (quoted && c == '\\') {
            i++, token += 2;
        } else if (c == '"') {
            token = quoted ? 0 : 1;
            quoted = !quoted;
        } else {
            token = !quoted && strchr(",:[]{} \t\r\n", c) ? 0 : token + 1;
        }
        if (token > longest) longest = token;
    }
    return longest;
}

/* jansson drops characters of a token if an allocation fails while it reads it. A token of more than 16 bytes needs at most three times its bytes, so
 * that much memory is allocated and freed first; then the text is parsed twice and the results are compared, to detect an allocation that
 * failed nevertheless. */
json_t *rcvi_json_read(const char *text, size_t length, size_t flags, json_error_t *error) {
    enum { ROOM = 12 };
    size_t longest = longest_token(text, length);
    if (longest <= ROOM) return json_loadb(text, length, flags, error);
    void *room = malloc(4 * longest);
    free(room);
    json_t *first = room ? json_loadb(text, length, flags, error) : NULL;
    json_t *second = first ? json_loadb(text, length, flags, error) : NULL;
    const bool same = second && json_equal(first, second);
    json_decref(second);
    if (same || (room && !first)) return first;
    json_decref(first);
    if (error) {
        *error = (json_error_t){.line = -1, .column = -1, .text = "there is no memory to read it"};
        error->text[JSON_ERROR_TEXT_LENGTH - 1] = json_error_out_of_memory; /* where json_error_code() finds it */
    }
    return NULL;
}

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
