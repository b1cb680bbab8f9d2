#include "device/device.h"

const rcvi_device *const rcvi_devices[] = {
    &rcvi_device_cpu,
};
const size_t rcvi_device_count = sizeof rcvi_devices / sizeof *rcvi_devices;
