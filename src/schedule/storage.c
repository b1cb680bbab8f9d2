/* Views of stored values: see storage.h. */
#include "schedule/storage.h"

rcvi_time_map rcvi_time_map_new(int64_t steps, int64_t batch, int64_t chunk, int64_t delay, bool backward) {
    int64_t chunks = (steps + chunk - 1) / chunk, sign = backward ? -1 : 1;
    rcvi_time_map time_map = {.steps = steps,
                              .batch = batch,
                              .chunk = chunk,
                              .step = {.timed = true, .span = 1, .inner = sign},
                              .span = {.timed = true, .span = chunk},
                              .local_base = backward ? chunk - 1 : 0,
                              .local_inner = sign};
    if (chunks > 1) {
        time_map.span.base = backward ? (chunks - 1 + delay) * chunk : -delay * chunk;
        time_map.span.inner = sign * chunk;
    }
    time_map.step.base = time_map.span.base + (backward ? chunk - 1 : 0);
    if (chunks > 1 && chunk > 1) time_map.step.outer = sign * chunk;
    return time_map;
}

static int64_t slot_of(const rcvi_time_map *time_map, const rcvi_storage *storage) {
    return time_map->batch * storage->row;
}

static rcvi_view ring_view(const rcvi_time_map *time_map, const rcvi_storage *storage) {
    int64_t slot = slot_of(time_map, storage);
    return (rcvi_view){.buffer = storage->buffer,
                       .offset = 0,
                       .row = storage->row,
                       .column = 1,
                       .slot = slot,
                       .wrap = 2,
                       .phase = storage->offset / slot};
}

rcvi_view rcvi_storage_at_step(const rcvi_time_map *time_map, const rcvi_storage *storage) {
    int64_t slot = slot_of(time_map, storage);
    rcvi_view view = {.buffer = storage->buffer, .offset = storage->offset, .row = storage->row, .column = 1};
    switch (storage->kind) {
    case RCVI_OVER_TIME:
        view.offset += time_map->step.base * slot;
        view.stride = time_map->step.inner * slot;
        view.outer = time_map->step.outer * slot;
        break;
    case RCVI_OVER_TIME_REVERSED:
        view.offset += (time_map->steps - 1 - time_map->step.base) * slot;
        view.stride = -time_map->step.inner * slot;
        view.outer = -time_map->step.outer * slot;
        break;
    case RCVI_OVER_CHUNK:
        view.offset += time_map->local_base * slot;
        view.stride = time_map->local_inner * slot;
        break;
    case RCVI_FIXED: break;
    case RCVI_RING: return ring_view(time_map, storage);
    case RCVI_NOT_STORED: return rcvi_no_view();
    }
    return view;
}

rcvi_view rcvi_storage_over_chunk(const rcvi_time_map *time_map, const rcvi_storage *storage) {
    int64_t slot = slot_of(time_map, storage);
    rcvi_view view = {.buffer = storage->buffer, .offset = storage->offset, .row = storage->row, .column = 1};
    if (storage->kind == RCVI_RING) return ring_view(time_map, storage);
    if (storage->kind == RCVI_OVER_TIME) {
        view.offset += time_map->span.base * slot;
        view.stride = time_map->span.inner * slot;
    }
    return view;
}

rcvi_view rcvi_storage_over_all(const rcvi_storage *storage) {
    return (rcvi_view){.buffer = storage->buffer, .offset = storage->offset, .row = storage->row, .column = 1};
}

rcvi_view rcvi_storage_ring_slot(const rcvi_storage *storage, int64_t batch, int64_t t) {
    return (rcvi_view){.buffer = storage->buffer,
                       .row = storage->row,
                       .column = 1,
                       .slot = batch * storage->row,
                       .wrap = 2,
                       .phase = t};
}

rcvi_storage rcvi_storage_later(const rcvi_time_map *time_map, rcvi_storage storage) {
    int64_t slot = slot_of(time_map, &storage);
    storage.offset += storage.kind == RCVI_OVER_TIME_REVERSED ? -slot : slot;
    return storage;
}
