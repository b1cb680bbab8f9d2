/* A file in memory. What was read of it stays in the system's cache; the process gives its pages back after every 32 MB that it
 * touched, so that it holds no more of a file however large. */
#define _DEFAULT_SOURCE /* madvise */
#include "data/store.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

enum {
    HELD = 32 << 20,
    AROUND = 64 << 10 /* the system maps up to so many bytes around a page that is touched */
};

struct rcvi_map {
    rcv_context *context;
    void *at;
    size_t bytes;
    _Atomic int64_t touched; /* since pages were given back; an estimate from above */
};

rcv_status rcvi_map_new(rcv_context *context, int file, int64_t bytes, const char *path, rcvi_map **map) {
    *map = NULL;
    rcvi_map *made = rcvi_new(context, 1, sizeof *made);
    if (!made) return RCV_NO_MEMORY;
    made->context = context;
    made->bytes = (size_t)bytes;
    made->at = mmap(NULL, made->bytes, PROT_READ, MAP_SHARED, file, 0);
    if (made->at == MAP_FAILED) {
        rcvi_free(context, made);
        return rcvi_fail(RCV_IO, "cannot map %s into memory: %s", path, strerror(errno));
    }
    *map = made;
    return RCV_OK;
}

void rcvi_map_free(rcvi_map *map) {
    if (!map) return;
    munmap(map->at, map->bytes);
    rcvi_free(map->context, map);
}

const char *rcvi_map_at(const rcvi_map *map) { return map->at; }

void rcvi_map_touch(rcvi_map *map, int64_t bytes) {
    if (map->bytes <= HELD) return;
    int64_t more = bytes + AROUND, now = atomic_fetch_add(&map->touched, more) + more;
    if (now < HELD) return;
    atomic_store(&map->touched, 0);
    (void)madvise(map->at, map->bytes, MADV_DONTNEED); /* without it only memory is lost */
}
