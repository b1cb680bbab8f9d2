/* Wisdom in the cache on disk: a file for each problem, with the key in its name as a hash and in its content as text. It has the form of a
 * wisdom file with one line (wisdom.h), so a file that is damaged, of another version or of another problem is recognised; it is ignored, and
 * replaced when the problem has been measured. */
#include "base/cache.h"
#include "plan/wisdom.h"

static rcv_status find_entry(rcv_context *context, const char *key, rcvi_cache_entry *entry) {
    const char *const strings[] = {key, NULL};
    return rcvi_cache_find(context, strings, ".wisdom", entry);
}

/* Reads the lesson of an entry; RCV_NO_MEMORY is the only failure. */
static rcv_status read_entry(rcv_context *context, const rcvi_cache_entry *entry, const char *key, rcvi_lesson *lesson,
                             bool *found) {
    char *text = NULL;
    size_t length = 0;
    *found = false;
    rcv_status status = rcvi_cache_read(context, entry, RCVI_LIMIT_WISDOM, &text, &length);
    if (!status && text) status = rcvi_wisdom_read_lesson(context, text, length, entry->path, key, lesson);
    *found = !status && text;
    rcvi_free(context, text);
    if (status == RCV_NO_MEMORY) return status;
    if (status) rcvi_log(context, "cached wisdom is not used: %s", rcv_message());
    return RCV_OK;
}

rcv_status rcvi_wisdom_recall(rcv_context *context, const char *key, bool exhaustive, rcvi_lesson *lesson,
                              bool *found) {
    rcvi_cache_entry entry;
    rcvi_lesson read;
    *found = rcvi_wisdom_find(context, key, exhaustive, lesson);
    if (*found || !context->reads_wisdom) return RCV_OK;
    RCVI_TRY(find_entry(context, key, &entry));
    rcv_status status = read_entry(context, &entry, key, &read, found);
    rcvi_cache_drop(context, &entry);
    *found = !status && *found && (read.exhaustive || !exhaustive);
    if (!*found) return status;
    *lesson = read;
    return rcvi_wisdom_remember(context, key, lesson);
}

static void write_entry(rcv_context *context, const rcvi_cache_entry *entry, const char *key,
                        const rcvi_lesson *lesson) {
    rcvi_text text;
    rcvi_text_init(&text, context);
    rcvi_wisdom_print_lesson(key, lesson, &text);
    const rcvi_bytes part = {text.bytes, text.length};
    if (!text.failed) rcvi_cache_write(context, entry, "a measured plan", &part, 1);
    rcvi_text_drop(&text);
}

rcv_status rcvi_wisdom_learn(rcv_context *context, const char *key, const rcvi_lesson *lesson) {
    rcvi_cache_entry entry;
    rcvi_lesson known;
    bool found = false;
    RCVI_TRY(rcvi_wisdom_remember(context, key, lesson));
    if (!context->writes_wisdom) return RCV_OK;
    RCVI_TRY(find_entry(context, key, &entry));
    rcv_status status = lesson->exhaustive ? RCV_OK : read_entry(context, &entry, key, &known, &found);
    if (!status && !(found && known.exhaustive)) write_entry(context, &entry, key, lesson);
    rcvi_cache_drop(context, &entry);
    return status;
}
