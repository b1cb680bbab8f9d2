/* Wisdom: the table of a context, and its file. */
#include "plan/wisdom.h"

#include <stdlib.h>
#include <string.h>

#define SIGNATURE "recurve-wisdom 1\n"
#define CHECKSUM "checksum "
enum { DIGITS = 16, FOOTER = sizeof CHECKSUM - 1 + DIGITS + 1 };

typedef struct {
    char *key;
    rcvi_lesson lesson;
} entry;

typedef struct {
    entry *entries; /* sorted by key */
    size_t count, capacity;
} wisdom;

static const char *const efforts[] = {"measured", "exhaustive"}; /* by lesson.exhaustive */

/* ---- the table; callers hold the lock ---- */

static void clear(rcv_context *context, wisdom *w) {
    for (size_t i = 0; i < w->count; i++) rcvi_free(context, w->entries[i].key);
    rcvi_free(context, w->entries);
    *w = (wisdom){0};
}

static void free_wisdom(rcv_context *context, void *memory) {
    clear(context, memory);
    rcvi_free(context, memory);
}

/* The context's table, made by the first call; NULL without memory. */
static wisdom *wisdom_of(rcv_context *context) {
    if (!context->wisdom) {
        context->wisdom = rcvi_new(context, 1, sizeof(wisdom));
        context->free_wisdom = free_wisdom;
    }
    return context->wisdom;
}

/* Where the key is, or would be. */
static size_t find_position(const wisdom *w, const char *key, bool *found) {
    size_t low = 0, high = w->count;
    *found = false;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(w->entries[middle].key, key);
        if (order == 0) *found = true;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void update_lesson(entry *known, const rcvi_lesson *lesson) {
    if (lesson->exhaustive || !known->lesson.exhaustive) known->lesson = *lesson;
}

bool rcvi_wisdom_find(rcv_context *context, const char *key, bool exhaustive, rcvi_lesson *lesson) {
    bool found = false;
    rcvi_global_lock();
    const wisdom *w = context->wisdom;
    size_t at = w ? find_position(w, key, &found) : 0;
    if (found) *lesson = w->entries[at].lesson;
    rcvi_global_unlock();
    return found && (lesson->exhaustive || !exhaustive);
}

static rcv_status remember(rcv_context *context, const char *key, const rcvi_lesson *lesson) {
    wisdom *w = wisdom_of(context);
    if (!w) return RCV_NO_MEMORY;
    bool found;
    size_t at = find_position(w, key, &found);
    if (found) {
        update_lesson(&w->entries[at], lesson);
        return RCV_OK;
    }
    char *copy = rcvi_copy_text(context, key, strlen(key));
    if (!copy) return RCV_NO_MEMORY;
    if (!rcvi_grow(context, &w->entries, &w->capacity, w->count + 1, sizeof *w->entries)) {
        rcvi_free(context, copy);
        return RCV_NO_MEMORY;
    }
    memmove(&w->entries[at + 1], &w->entries[at], (w->count - at) * sizeof *w->entries);
    w->entries[at] = (entry){copy, *lesson};
    w->count++;
    return RCV_OK;
}

rcv_status rcvi_wisdom_remember(rcv_context *context, const char *key, const rcvi_lesson *lesson) {
    rcvi_global_lock();
    rcv_status status = remember(context, key, lesson);
    rcvi_global_unlock();
    return status;
}

/* ---- reading ---- */

typedef struct {
    rcv_context *context;
    const char *path; /* for messages */
    char *text;       /* cut into lines while it is read */
    size_t length;
    size_t line; /* number of the line being read */
} file;

static rcv_status damaged(const file *f, const char *what) {
    return rcvi_fail(RCV_FORMAT, "%s: line %zu of this wisdom %s", f->path, f->line, what);
}

/* Signature, text and checksum: whether it is a wisdom file, and whole. */
static rcv_status check_frame(const file *f) {
    size_t signature = strlen(SIGNATURE);
    if (f->length < signature || memcmp(f->text, SIGNATURE, signature)) {
        return rcvi_fail(RCV_FORMAT, "%s is no wisdom of this version: its first line is not '%.*s'", f->path,
                         (int)signature - 1, SIGNATURE);
    }
    for (size_t i = 0; i < f->length; i++) {
        unsigned char c = (unsigned char)f->text[i];
        if ((c < ' ' || c > '~') && c != '\n')
            return rcvi_fail(RCV_FORMAT, "%s: byte %zu of this wisdom is not text", f->path, i);
    }
    bool room = f->length >= signature + FOOTER;
    const char *footer = f->text + (room ? f->length - FOOTER : 0);
    if (!room || footer[-1] != '\n' || memcmp(footer, CHECKSUM, strlen(CHECKSUM)))
        return rcvi_fail(RCV_FORMAT, "%s: this wisdom does not end in its checksum; the file is cut off", f->path);
    static const char hexadecimal[] = "0123456789abcdef";
    uint64_t hash = rcvi_hash_bytes(f->text, f->length - FOOTER);
    bool same = footer[FOOTER - 1] == '\n';
    for (int i = 0; i < DIGITS; i++)
        same &= footer[strlen(CHECKSUM) + (size_t)i] == hexadecimal[hash >> (60 - 4 * i) & 15];
    if (!same) return rcvi_fail(RCV_FORMAT, "%s: this wisdom does not match its checksum; it was changed", f->path);
    return RCV_OK;
}

/* Ends the text at " : ", and returns what follows; NULL where there is none. */
static char *split_off(char *text) {
    char *joint = strstr(text, " : ");
    if (!joint) return NULL;
    *joint = '\0';
    return joint + 3;
}

/* plan: one that can be read, in the form in which it is printed */
static rcv_status read_plan(const file *f, const char *plan, rcvi_rungs *rungs) {
    if (rcvi_rungs_read(plan, rungs)) {
        char why[256];
        strncpy(why, rcv_message(), sizeof why - 1);
        why[sizeof why - 1] = '\0';
        return rcvi_fail(RCV_FORMAT, "%s: line %zu of this wisdom has a wrong plan: %s", f->path, f->line, why);
    }
    rcvi_text printed;
    rcvi_text_init(&printed, f->context);
    rcvi_rungs_print(rungs, &printed);
    bool failed = printed.failed, same = !failed && !strcmp(printed.bytes, plan);
    rcvi_text_drop(&printed);
    if (failed) return rcvi_no_memory(strlen(plan));
    return same ? RCV_OK : damaged(f, "has a plan that is not written as plans are printed");
}

/* key " : " plan " : " seconds " " effort */
static rcv_status read_line(file *f, char *line, entry *out) {
    if (strlen(line) > RCVI_LIMIT_WISDOM_LINE) return damaged(f, "is too long");
    char *plan = split_off(line), *number = plan ? split_off(plan) : NULL,
         *effort = number ? strchr(number, ' ') : NULL;
    if (!effort || strncmp(line, "cell=", 5)) return damaged(f, "is not a key, a plan, seconds and an effort");
    *effort++ = '\0';
    RCVI_TRY(read_plan(f, plan, &out->lesson.rungs));
    if (number[strspn(number, "0123456789.e-+")] || !rcvi_read_number(number, &out->lesson.seconds) ||
        !(out->lesson.seconds > 0 && out->lesson.seconds < 1e12)) {
        return damaged(f, "has seconds that are not a positive number");
    }
    out->lesson.exhaustive = !strcmp(effort, efforts[1]);
    if (strcmp(effort, efforts[out->lesson.exhaustive])) return damaged(f, "has an effort of another name");
    out->key = rcvi_copy_text(f->context, line, strlen(line));
    return out->key ? RCV_OK : RCV_NO_MEMORY;
}

static int compare_keys(const void *a, const void *b) {
    return strcmp(((const entry *)a)->key, ((const entry *)b)->key);
}

static rcv_status read_lines(file *f, wisdom *out) {
    char *line = f->text + strlen(SIGNATURE), *end = f->text + f->length - FOOTER;
    for (f->line = 2; line < end; f->line++) {
        char *next = strchr(line, '\n');
        *next++ = '\0';
        if (!rcvi_grow(f->context, &out->entries, &out->capacity, out->count + 1, sizeof *out->entries))
            return RCV_NO_MEMORY;
        RCVI_TRY(read_line(f, line, &out->entries[out->count]));
        out->count++;
        line = next;
    }
    if (out->count > 0) qsort(out->entries, out->count, sizeof *out->entries, compare_keys);
    for (size_t i = 1; i < out->count; i++) {
        if (!strcmp(out->entries[i].key, out->entries[i - 1].key))
            return rcvi_fail(RCV_FORMAT, "%s: this wisdom has two lines for one problem", f->path);
    }
    return RCV_OK;
}

/* Merges two sorted tables into `known`; `read` is left empty. */
static rcv_status merge(rcv_context *context, wisdom *known, wisdom *read) {
    wisdom both = {0};
    if (!rcvi_grow(context, &both.entries, &both.capacity, known->count + read->count, sizeof *both.entries))
        return RCV_NO_MEMORY;
    size_t i = 0, j = 0;
    while (i < known->count || j < read->count) {
        int order = i == known->count ? 1 : j == read->count ? -1 : compare_keys(&known->entries[i], &read->entries[j]);
        both.entries[both.count] = order <= 0 ? known->entries[i] : read->entries[j];
        if (order == 0) {
            update_lesson(&both.entries[both.count], &read->entries[j].lesson);
            rcvi_free(context, read->entries[j].key);
        }
        both.count++;
        i += order <= 0;
        j += order >= 0;
    }
    rcvi_free(context, known->entries);
    *known = both;
    read->count = 0;
    return RCV_OK;
}

static rcv_status merge_into_context(rcv_context *context, wisdom *read) {
    if (read->count == 0) return RCV_OK;
    rcvi_global_lock();
    wisdom *known = wisdom_of(context);
    rcv_status status = known ? merge(context, known, read) : RCV_NO_MEMORY;
    rcvi_global_unlock();
    return status;
}

rcv_status rcvi_wisdom_read(rcv_context *context, char *text, size_t length, const char *name) {
    file f = {.context = context, .path = name, .text = text, .length = length};
    wisdom read = {0};
    rcv_status status = check_frame(&f);
    if (!status) status = read_lines(&f, &read);
    if (!status) status = merge_into_context(context, &read);
    clear(context, &read);
    return status;
}

rcv_status rcvi_wisdom_read_lesson(rcv_context *context, char *text, size_t length, const char *name, const char *key,
                                   rcvi_lesson *lesson) {
    file f = {.context = context, .path = name, .text = text, .length = length};
    wisdom read = {0};
    rcv_status status = check_frame(&f);
    if (!status) status = read_lines(&f, &read);
    if (!status && (read.count != 1 || strcmp(read.entries[0].key, key) != 0))
        status = rcvi_fail(RCV_FORMAT, "%s: this wisdom is that of another problem", name);
    if (!status) *lesson = read.entries[0].lesson;
    clear(context, &read);
    return status;
}

rcv_status rcv_wisdom_load(rcv_context *context, const char *path) {
    RCVI_NEED(context, "context");
    RCVI_NEED(path, "path");
    char *text = NULL;
    size_t length = 0;
    RCVI_TRY(rcvi_read_file(context, path, RCVI_LIMIT_WISDOM, &text, &length));
    rcv_status status = rcvi_wisdom_read(context, text, length, path);
    rcvi_free(context, text);
    return status;
}

/* ---- writing ---- */

static void print_entry(const char *key, const rcvi_lesson *lesson, rcvi_text *out) {
    rcvi_text_add(out, "%s : ", key);
    rcvi_rungs_print(&lesson->rungs, out);
    rcvi_text_add(out, " : ");
    rcvi_text_add_number(out, lesson->seconds);
    rcvi_text_add(out, " %s\n", efforts[lesson->exhaustive]);
}

static void print_checksum(rcvi_text *out) {
    if (!out->failed)
        rcvi_text_add(out, CHECKSUM "%016llx\n", (unsigned long long)rcvi_hash_bytes(out->bytes, out->length));
}

void rcvi_wisdom_print_lesson(const char *key, const rcvi_lesson *lesson, rcvi_text *out) {
    rcvi_text_add(out, SIGNATURE);
    print_entry(key, lesson, out);
    print_checksum(out);
}

rcv_status rcv_wisdom_save(const rcv_context *context, const char *path) {
    RCVI_NEED(context, "context");
    RCVI_NEED(path, "path");
    rcv_context *owner = (rcv_context *)context; /* for its allocator */
    rcvi_text out;
    rcvi_text_init(&out, owner);
    rcvi_text_add(&out, SIGNATURE);
    rcvi_global_lock();
    const wisdom *w = context->wisdom;
    for (size_t i = 0; w && i < w->count; i++) print_entry(w->entries[i].key, &w->entries[i].lesson, &out);
    rcvi_global_unlock();
    print_checksum(&out);
    char *text = NULL;
    size_t length = out.length;
    RCVI_TRY(rcvi_text_take(&out, &text));
    rcv_status status = rcvi_write_file(owner, path, &(rcvi_bytes){text, length}, 1);
    rcvi_free(owner, text);
    return status;
}

size_t rcv_wisdom_count(const rcv_context *context) {
    if (!context) return 0;
    rcvi_global_lock();
    const wisdom *w = context->wisdom;
    size_t count = w ? w->count : 0;
    rcvi_global_unlock();
    return count;
}
