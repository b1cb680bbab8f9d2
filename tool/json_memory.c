/* jansson 2.14 does not check every allocation: if one fails while it reads a long token, it writes past its buffer. So when malloc fails,
 * jansson gets memory from a reserve, and the tool continues until a checked allocation fails. When the reserve is used up, the tool ends. */
#include "json.h"

#include "tool.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

enum { RESERVE = 1 << 20 };
static alignas(max_align_t) char reserve[RESERVE];
static atomic_size_t used;

static void *allocate(size_t bytes) {
    void *memory = malloc(bytes);
    if (memory != NULL) {
        return memory;
    }
    const size_t unit = alignof(max_align_t),
                 aligned = bytes < RESERVE ? (bytes + unit - 1) / unit * unit : RESERVE + 1;
    const size_t at = aligned <= RESERVE ? atomic_fetch_add(&used, aligned) : RESERVE;
    if (aligned > RESERVE || at > RESERVE - aligned) {
        give_up(bytes);
    }
    return reserve + at;
}

static void release(void *memory) {
    if ((uintptr_t)memory < (uintptr_t)reserve || (uintptr_t)memory >= (uintptr_t)(reserve + RESERVE)) {
        free(memory);
    }
}

void reserve_json_memory(void) { json_set_alloc_funcs(allocate, release); }

char *json_text(const json_t *value, size_t flags) {
    const size_t length = value != NULL ? json_dumpb(value, NULL, 0, flags) : 0;
    char *text = need(length + 1, 1);
    json_dumpb(value, text, length, flags);
    return text;
}
