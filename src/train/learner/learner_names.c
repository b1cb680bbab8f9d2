/* The words of a vocabulary and the names of classes in a model file. They are metadata, JSON as text, so that the file's tensors are those of the
 * module alone and PyTorch loads them strictly:
 *
 *   recurve.vocabulary = {"level": "word", "tokens": [name, ...]}, or {"level": "character" or "piece", "text": as rcv_vocabulary_print gives it}
 *   recurve.classes    = [name, ...]
 *   name               = a text, or the list of its bytes where these are not UTF-8
 *
 * The format allows a header of 100 MB. Names that would need half of it are a tensor of bytes instead, `vocabulary` or `classes`, one a line; files of
 * earlier versions have that for all names. */
#include "base/json.h"
#include "model/model.h"
#include "model/tensors.h"
#include "train/learner/learner.h"

#include <string.h>

static const struct {
    const char *key, *tensor, *what;
} places[] = {[RCVI_NAMES_VOCABULARY] = {"recurve.vocabulary", "vocabulary", "vocabulary"},
              [RCVI_NAMES_CLASSES] = {"recurve.classes", "classes", "list of classes"}};

/* Names of levels; NULL: bytes, which need no vocabulary. */
static const char *const levels[] = {[RCV_LEVEL_WORD] = "word",
                                     [RCV_LEVEL_BYTE] = NULL,
                                     [RCV_LEVEL_CHARACTER] = "character",
                                     [RCV_LEVEL_PIECE] = "piece"};
enum { LEVELS = sizeof levels / sizeof *levels };

/* ---- writing ---- */

/* At most the bytes of a name in the header, where it is JSON within JSON: a quote becomes \\\", a byte 255, and a control character \\u001f */
static int64_t count_header_bytes(const char *name, size_t length) {
    int64_t bytes = 5, each = 1;
    for (size_t i = 0; i < length; i++) each = (unsigned char)name[i] >= 0x80 ? 4 : each;
    for (size_t i = 0; i < length; i++) {
        bool escaped = (unsigned char)name[i] < ' ' || name[i] == '"' || name[i] == '\\' || name[i] == 127;
        bytes += escaped ? 7 : each;
    }
    return bytes;
}

/* NULL where there is no memory. */
static json_t *describe_name(const char *name, size_t length) {
    json_t *text = memchr(name, 0, length) ? NULL : json_stringn(name, length);
    if (text) return text;
    bool good = true;
    json_t *bytes = json_array();
    for (size_t i = 0; i < length && good; i++)
        good = json_array_append_new(bytes, json_integer((unsigned char)name[i])) == 0;
    return rcvi_json_if(good, bytes);
}

/* `names`: count names, each followed by a newline. */
static json_t *describe_names(const char *names, size_t length) {
    json_t *list = json_array();
    bool good = list != NULL;
    for (const char *at = names, *end; good && at < names + length; at = end + 1) {
        end = memchr(at, '\n', (size_t)(names + length - at));
        if (!end) end = names + length;
        good = json_array_append_new(list, describe_name(at, (size_t)(end - at))) == 0;
    }
    return rcvi_json_if(good, list);
}

static bool fits_header(const char *names, size_t length) {
    int64_t bytes = 0;
    for (const char *at = names, *end; at < names + length && bytes <= RCVI_LIMIT_NAMES; at = end + 1) {
        end = memchr(at, '\n', (size_t)(names + length - at));
        if (!end) end = names + length;
        bytes += count_header_bytes(at, (size_t)(end - at));
    }
    return bytes <= RCVI_LIMIT_NAMES;
}

static rcv_status add_metadata(rcvi_names_kind kind, json_t *value, rcv_tensors *tensors) {
    char *text = NULL;
    rcv_status status = rcvi_json_print(tensors->context, value, JSON_COMPACT, &text);
    json_decref(value);
    if (!status) status = rcv_tensors_set_metadata(tensors, places[kind].key, text);
    rcvi_free(tensors->context, text);
    return status;
}

static rcv_status add_tensor(rcvi_names_kind kind, const char *names, size_t length, rcv_tensors *tensors) {
    const rcv_tensor tensor = {.name = places[kind].tensor,
                               .dtype = RCV_UINT8,
                               .dims = 1,
                               .shape = {(int64_t)length},
                               .data = names,
                               .bytes = length};
    return rcv_tensors_add(tensors, &tensor);
}

static json_t *describe_vocabulary(rcv_level level, const char *text, size_t length) {
    if (level != RCV_LEVEL_WORD) return json_pack("{s:s, s:s}", "level", levels[level], "text", text);
    json_t *list = describe_names(text, length);
    return list ? json_pack("{s:s, s:o}", "level", levels[level], "tokens", list) : NULL;
}

rcv_status rcvi_names_to_tensors(const rcv_learner *l, rcv_tensors *tensors) {
    if (l->classes) {
        size_t length = strlen(l->classes);
        RCVI_TRY(fits_header(l->classes, length)
                     ? add_metadata(RCVI_NAMES_CLASSES, describe_names(l->classes, length), tensors)
                     : add_tensor(RCVI_NAMES_CLASSES, l->classes, length, tensors));
    }
    rcv_level level = l->vocabulary ? rcv_vocabulary_level(l->vocabulary) : RCV_LEVEL_BYTE;
    if (level == RCV_LEVEL_BYTE) return RCV_OK;
    char *text = NULL;
    RCVI_TRY(rcv_vocabulary_print(l->vocabulary, &text));
    size_t length = strlen(text);
    rcv_status status = fits_header(text, length)
                            ? add_metadata(RCVI_NAMES_VOCABULARY, describe_vocabulary(level, text, length), tensors)
                            : add_tensor(RCVI_NAMES_VOCABULARY, text, length, tensors);
    rcv_text_free(l->context, text);
    return status;
}

/* ---- reading ---- */

static rcv_status wrong_name(rcvi_names_kind kind, size_t index, const char *file) {
    return rcvi_fail(RCV_FORMAT, "%s: name %zu of %s must be a text or a list of bytes, not empty, without line breaks",
                     file, index, places[kind].key);
}

static rcv_status read_bytes(rcvi_names_kind kind, const json_t *list, size_t index, const char *file, rcvi_text *out) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *value = json_array_get(list, i);
        json_int_t byte = json_integer_value(value);
        bool allowed = byte >= 0 && byte <= 255 && byte != '\n' && (byte != 0 || kind != RCVI_NAMES_CLASSES);
        if (!json_is_integer(value) || !allowed) return wrong_name(kind, index, file);
        rcvi_text_add_bytes(out, (char[]){(char)byte}, 1);
    }
    return json_array_size(list) ? RCV_OK : wrong_name(kind, index, file);
}

/* Appends the names, each with a newline after it. */
static rcv_status read_list(rcvi_names_kind kind, const json_t *list, const char *file, rcvi_text *out) {
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *name = json_array_get(list, i);
        const char *text = json_string_value(name);
        if (!text) {
            RCVI_TRY(read_bytes(kind, name, i, file, out));
        } else if (!*text || strchr(text, '\n')) {
            return wrong_name(kind, i, file);
        } else {
            rcvi_text_add_bytes(out, text, json_string_length(name));
        }
        rcvi_text_add_bytes(out, "\n", 1);
    }
    return RCV_OK;
}

static rcv_status read_classes(const json_t *value, const char *file, rcvi_text *out) {
    if (json_is_array(value)) return read_list(RCVI_NAMES_CLASSES, value, file, out);
    return rcvi_fail(RCV_FORMAT, "%s: recurve.classes must be a list of names", file);
}

static rcv_status read_vocabulary(json_t *value, const char *file, rcvi_text *out) {
    const char *level = NULL, *text = NULL;
    json_t *tokens = NULL;
    size_t found = 0;
    if (json_unpack(value, "{s:s, s?o, s?s !}", "level", &level, "tokens", &tokens, "text", &text)) level = "";
    while (found < LEVELS && !(levels[found] && !strcmp(levels[found], level))) found++;
    if (found == RCV_LEVEL_WORD && json_is_array(tokens) && !text)
        return read_list(RCVI_NAMES_VOCABULARY, tokens, file, out);
    if (found < LEVELS && found != RCV_LEVEL_WORD && text && !tokens) {
        rcvi_text_add_bytes(out, text, strlen(text));
        return RCV_OK;
    }
    return rcvi_fail(RCV_FORMAT,
                     "%s: recurve.vocabulary must be an object with level and tokens (of words) or text (of characters "
                     "and pieces)",
                     file);
}

static rcv_status read_metadata(rcv_context *context, rcvi_names_kind kind, const char *text, const char *file,
                                rcvi_names *names) {
    json_error_t error;
    json_t *value = rcvi_json_read(text, strlen(text), JSON_REJECT_DUPLICATES, &error);
    if (!value) return rcvi_fail(RCV_FORMAT, "%s: %s is not JSON: %s", file, places[kind].key, error.text);
    rcvi_text out;
    rcvi_text_init(&out, context);
    rcv_status status =
        kind == RCVI_NAMES_CLASSES ? read_classes(value, file, &out) : read_vocabulary(value, file, &out);
    json_decref(value);
    names->length = out.length;
    if (!status) return rcvi_text_take(&out, &names->text);
    rcvi_text_drop(&out);
    return status;
}

rcv_status rcvi_names_from_tensors(rcv_context *context, rcvi_names_kind kind, const rcv_tensors *tensors,
                                   const char *file, rcvi_names *names) {
    *names = (rcvi_names){0};
    const char *text = rcv_tensors_metadata(tensors, places[kind].key);
    if (text) return read_metadata(context, kind, text, file, names);
    const rcv_tensor *tensor = rcv_tensors_find(tensors, places[kind].tensor);
    if (!tensor) return RCV_OK;
    if (tensor->dtype != RCV_UINT8)
        return rcvi_fail(RCV_FORMAT, "%s: the tensor %s is %s, it must be bytes", file, places[kind].tensor,
                         rcv_dtype_name(tensor->dtype));
    names->length = tensor->bytes;
    names->text = rcvi_copy_text(context, tensor->data, tensor->bytes);
    return names->text ? RCV_OK : RCV_NO_MEMORY;
}

rcv_status rcvi_names_differ(rcv_context *context, const rcv_tensors *a, const rcv_tensors *b, const char *file,
                             const char **what) {
    *what = NULL;
    for (rcvi_names_kind kind = 0; kind < RCVI_NAMES_KINDS && !*what; kind++) {
        rcvi_names x, y;
        RCVI_TRY(rcvi_names_from_tensors(context, kind, a, "this run's model", &x));
        rcv_status status = rcvi_names_from_tensors(context, kind, b, file, &y);
        bool same =
            !x.text || !y.text ? x.text == y.text : x.length == y.length && memcmp(x.text, y.text, x.length) == 0;
        if (!status && !same) *what = places[kind].what;
        rcvi_free(context, x.text);
        rcvi_free(context, y.text);
        RCVI_TRY(status);
    }
    return RCV_OK;
}
