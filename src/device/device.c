/* The list of devices, and how a device is found by its name. */
#include "device/device.h"

#include <stdlib.h>
#include <string.h>

const rcvi_device *const rcvi_devices[] = {
    &rcvi_device_cpu,
#ifdef RCV_CUDA
    &rcvi_device_cuda,
#endif
};
const size_t rcvi_device_count = sizeof rcvi_devices / sizeof *rcvi_devices;

enum { MOST_ORDINALS = 1024 };

/* device = name [ ":" number ] */
rcv_status rcvi_device_find(const char *text, const rcvi_device **device, int *ordinal) {
    const char *name = text ? text : "cpu";
    size_t length = strcspn(name, ":");
    *ordinal = 0;
    for (size_t i = 0; i < rcvi_device_count; i++) {
        if (strlen(rcvi_devices[i]->name) != length || strncmp(rcvi_devices[i]->name, name, length)) continue;
        *device = rcvi_devices[i];
        if (!name[length]) return RCV_OK;
        char *end = NULL;
        long number = strtol(name + length + 1, &end, 10);
        bool digits = name[length + 1] >= '0' && name[length + 1] <= '9' && !*end;
        if (!digits || number >= MOST_ORDINALS || (number && !rcvi_devices[i]->memory))
            return rcvi_fail(RCV_INVALID, "there is no device '%.40s'; a GPU is cuda, cuda:1, and so on", name);
        *ordinal = (int)number;
        return RCV_OK;
    }
    if (length == 4 && !strncmp(name, "cuda", 4)) {
        return rcvi_fail(RCV_UNSUPPORTED,
                         "this build has no device cuda: install the CUDA toolkit (12.8 or later) and configure again");
    }
    return rcvi_fail(RCV_INVALID, "there is no device '%.40s'; there are cpu and cuda", name);
}
