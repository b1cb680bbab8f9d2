/* Arrays of the host and their copies in a device's memory, for one call. Where the device's memory is the host's, there are no copies. */
#ifndef RCVI_DEVICE_COPIES_H
#define RCVI_DEVICE_COPIES_H

#include "device/device.h"

typedef struct {
    void *host, *there;
    size_t bytes;
    bool is_result;
} rcvi_device_copy;

typedef struct {
    rcv_context *context;
    const rcvi_device *device;
    int ordinal;
    rcvi_device_copy *items;
    size_t count, capacity;
} rcvi_device_copies;

/* `device` may be NULL: "cpu". */
rcv_status rcvi_device_copies_open(rcv_context *context, const char *device, rcvi_device_copies *copies);
void rcvi_device_copies_close(rcvi_device_copies *copies);
/* *there is where the device reads the array. NULL stays NULL. */
rcv_status rcvi_device_copies_send(rcvi_device_copies *copies, const void *host, size_t bytes, const void **there);
/* *there is where the device writes the array; rcvi_device_copies_fetch copies all such arrays to the host. NULL stays NULL. */
rcv_status rcvi_device_copies_result(rcvi_device_copies *copies, void *host, size_t bytes, void **there);
rcv_status rcvi_device_copies_fetch(const rcvi_device_copies *copies);

#endif
