/* Functions of the public header on devices and their memory: rcv_device_describe, rcv_device_is_capturing, rcv_measure_device, rcv_memory_... */
#include "device/device.h"

#include <string.h>

rcv_status rcv_device_describe(rcv_context *context, const char *name, char **text) {
    const rcvi_device *device = NULL;
    int ordinal = 0;
    if (text) *text = NULL;
    RCVI_NEED(context, "context");
    RCVI_TRY(rcvi_device_find(name, &device, &ordinal));
    rcvi_text out;
    rcvi_text_init(&out, context);
    rcv_status status = device->print_info(context, ordinal, &out);
    if (!status && text) return rcvi_text_take(&out, text);
    rcvi_text_drop(&out);
    return status;
}

bool rcv_device_is_capturing(const char *name, void *stream) {
    const rcvi_device *device = NULL;
    int ordinal = 0;
    return stream && !rcvi_device_find(name, &device, &ordinal) && device->is_captured && device->is_captured(stream);
}

rcv_status rcv_measure_device(rcv_context *context, const char *name, rcv_dtype dtype, double *operations) {
    const rcvi_device *device = NULL;
    int ordinal = 0;
    RCVI_NEED(context, "context");
    RCVI_NEED(operations, "operations");
    RCVI_TRY(rcvi_device_find(name, &device, &ordinal));
    if (device->measure_peak) return device->measure_peak(context, ordinal, dtype, operations);
    return rcv_measure_peak(context, dtype, rcv_context_threads(context), operations);
}

rcv_status rcv_memory_new(rcv_context *context, const char *name, size_t bytes, void **memory) {
    const rcvi_device *device = NULL;
    int ordinal = 0;
    RCVI_NEED(context, "context");
    RCVI_NEED(memory, "memory");
    *memory = NULL;
    RCVI_TRY(rcvi_device_find(name, &device, &ordinal));
    if (device->memory) return device->memory->allocate(ordinal, bytes, memory);
    *memory = rcvi_new(context, bytes, 1);
    return *memory ? RCV_OK : RCV_NO_MEMORY;
}

void rcv_memory_free(rcv_context *context, const char *name, void *memory) {
    const rcvi_device *device = NULL;
    int ordinal = 0;
    if (!memory || rcvi_device_find(name, &device, &ordinal)) return;
    if (device->memory)
        device->memory->release(ordinal, memory);
    else
        rcvi_free(context, memory);
}

rcv_status rcv_memory_write(const char *name, void *to, const void *from, size_t bytes) {
    const rcvi_device *device = NULL;
    int ordinal = 0;
    RCVI_TRY(rcvi_device_find(name, &device, &ordinal));
    RCVI_NEED(to || !bytes, "to");
    RCVI_NEED(from || !bytes, "from");
    if (device->memory) return device->memory->write(ordinal, to, from, bytes);
    if (bytes) memmove(to, from, bytes);
    return RCV_OK;
}

rcv_status rcv_memory_read(const char *name, void *to, const void *from, size_t bytes) {
    const rcvi_device *device = NULL;
    int ordinal = 0;
    RCVI_TRY(rcvi_device_find(name, &device, &ordinal));
    RCVI_NEED(to || !bytes, "to");
    RCVI_NEED(from || !bytes, "from");
    if (device->memory) return device->memory->read(ordinal, to, from, bytes);
    if (bytes) memmove(to, from, bytes);
    return RCV_OK;
}
