/* Copies of the host's arrays in a device's memory. See device_copies.h. */
#include "model/device_copies.h"

rcv_status rcvi_device_copies_open(rcv_context *context, const char *device, rcvi_device_copies *c) {
    *c = (rcvi_device_copies){.context = context};
    return rcvi_device_find(device, &c->device, &c->ordinal);
}

void rcvi_device_copies_close(rcvi_device_copies *c) {
    for (size_t i = 0; i < c->count; i++) c->device->memory->release(c->ordinal, c->items[i].there);
    rcvi_free(c->context, c->items);
    *c = (rcvi_device_copies){0};
}

static rcv_status add(rcvi_device_copies *c, rcvi_device_copy item, void **there) {
    if (!rcvi_grow(c->context, &c->items, &c->capacity, c->count + 1, sizeof *c->items))
        return rcvi_no_memory(sizeof *c->items);
    RCVI_TRY(c->device->memory->allocate(c->ordinal, item.bytes, &item.there));
    c->items[c->count++] = item;
    *there = item.there;
    return RCV_OK;
}

rcv_status rcvi_device_copies_send(rcvi_device_copies *c, const void *host, size_t bytes, const void **there) {
    void *made = NULL;
    *there = host;
    if (!host || !c->device->memory) return RCV_OK;
    RCVI_TRY(add(c, (rcvi_device_copy){.bytes = bytes}, &made));
    *there = made;
    return bytes ? c->device->memory->write(c->ordinal, made, host, bytes) : RCV_OK;
}

rcv_status rcvi_device_copies_result(rcvi_device_copies *c, void *host, size_t bytes, void **there) {
    *there = host;
    if (!host || !c->device->memory) return RCV_OK;
    return add(c, (rcvi_device_copy){.host = host, .bytes = bytes, .is_result = true}, there);
}

rcv_status rcvi_device_copies_fetch(const rcvi_device_copies *c) {
    for (size_t i = 0; i < c->count; i++) {
        const rcvi_device_copy *item = &c->items[i];
        if (item->is_result && item->bytes)
            RCVI_TRY(c->device->memory->read(c->ordinal, item->host, item->there, item->bytes));
    }
    return RCV_OK;
}
