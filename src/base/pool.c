/* A pool (arena) allocator: chunks of at least 4 KB in a list, freed together. */
#include "base/pool.h"

#include <stdio.h>
#include <string.h>

struct rcvi_pool_chunk {
    rcvi_pool_chunk *next;
    size_t used, capacity;
    max_align_t bytes[];
};

void rcvi_pool_init(rcvi_pool *pool, rcv_context *context) { *pool = (rcvi_pool){.context = context}; }

void rcvi_pool_free(rcvi_pool *pool) {
    while (pool->chunks) {
        rcvi_pool_chunk *next = pool->chunks->next;
        rcvi_free(pool->context, pool->chunks);
        pool->chunks = next;
    }
}

void *rcvi_pool_new(rcvi_pool *pool, size_t count, size_t size) {
    const size_t align = sizeof(max_align_t);
    if (size && count > (SIZE_MAX / 4) / size) {
        pool->failed = true;
        rcvi_no_memory(SIZE_MAX);
        return NULL;
    }
    size_t bytes = (count * size + align - 1) / align * align;
    rcvi_pool_chunk *chunk = pool->chunks;
    if (!chunk || chunk->capacity - chunk->used < bytes) {
        size_t capacity = bytes > 4096 ? bytes : 4096;
        chunk = rcvi_new(pool->context, 1, sizeof *chunk + capacity);
        if (!chunk) {
            pool->failed = true;
            return NULL;
        }
        chunk->capacity = capacity;
        chunk->next = pool->chunks;
        pool->chunks = chunk;
    }
    void *memory = (char *)chunk->bytes + chunk->used;
    chunk->used += bytes;
    return memory;
}

char *rcvi_pool_text(rcvi_pool *pool, const char *text, size_t length) {
    char *copy = rcvi_pool_new(pool, length + 1, 1);
    if (copy) memcpy(copy, text, length);
    return copy;
}

char *rcvi_pool_format(rcvi_pool *pool, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    if (length < 0) return NULL;
    char *text = rcvi_pool_new(pool, (size_t)length + 1, 1);
    if (!text) return NULL;
    va_start(arguments, format);
    vsnprintf(text, (size_t)length + 1, format, arguments);
    va_end(arguments);
    return text;
}
