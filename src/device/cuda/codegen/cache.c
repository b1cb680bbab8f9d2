/* The cache of compiled kernels. A file is one line "recurve kernel 1 HASH KEYBYTES CODEBYTES CHECKSUM", then the code. */
#include "device/cuda/codegen/cache.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { LINE_BYTES = 160 };

/* The first line of a file with this code. */
static size_t write_line(const rcvi_cache_entry *entry, const void *code, size_t bytes, char line[LINE_BYTES]) {
    uint64_t sum[2];
    rcvi_cache_hash_begin(sum);
    rcvi_cache_hash(sum, code, bytes);
    return (size_t)snprintf(line, LINE_BYTES,
                            "recurve kernel 1 %016" PRIx64 "%016" PRIx64 " %zu %zu %016" PRIx64 "%016" PRIx64 "\n",
                            entry->hash[0], entry->hash[1], entry->key_bytes, bytes, sum[0], sum[1]);
}

void rcvi_kernel_cache_read(rcv_context *context, const rcvi_cache_entry *entry, void **code, size_t *bytes) {
    char *file = NULL, line[LINE_BYTES];
    size_t length = 0;
    *code = NULL;
    *bytes = 0;
    if (rcvi_cache_read(context, entry, RCVI_LIMIT_KERNEL, &file, &length) != RCV_OK) {
        rcvi_log(context, "a kernel is compiled again: %s", rcv_message());
        return;
    }
    if (!file) return;
    char *end = memchr(file, '\n', length);
    size_t begin = end ? (size_t)(end - file) + 1 : 0;
    size_t expected = end ? write_line(entry, file + begin, length - begin, line) : 0;
    if (!end || begin == length || expected != begin || memcmp(line, file, begin) != 0) {
        rcvi_log(context, "a kernel is compiled again: %s is damaged, or of another version", entry->path);
    } else {
        *code = rcvi_new(context, length - begin, 1);
        if (*code) memcpy(*code, file + begin, length - begin);
        if (*code) *bytes = length - begin;
    }
    rcvi_free(context, file);
}

void rcvi_kernel_cache_write(rcv_context *context, const rcvi_cache_entry *entry, const void *code, size_t bytes) {
    if (!entry->path) return;
    char line[LINE_BYTES];
    const rcvi_bytes parts[] = {{line, write_line(entry, code, bytes, line)}, {code, bytes}};
    rcvi_cache_write(context, entry, "a compiled kernel", parts, 2);
}
