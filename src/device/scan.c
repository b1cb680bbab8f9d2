/* rcv_scan of the public header, linear recurrences without a cell, and rcv_measure_memory: the arguments are checked here, the device computes. */
#include "device/device.h"

#include <string.h>

struct rcv_scan {
    rcv_context *context;
    const rcvi_device *device;
    rcv_scan_options options; /* batch is at least 1; form and device are NULL, since they are the caller's */
    rcvi_scan *scan;
    void *stream;
};

static rcv_status check_options(const rcv_scan_options *options) {
    const int64_t limit = INT64_MAX / 64; /* elements: their bytes, and those of a few more rows, do not overflow */
    int64_t columns, elements;
    if (options->steps < 1 || options->channels < 1)
        return rcvi_fail(RCV_INVALID, "a scan has at least 1 step and 1 channel, not %lld and %lld",
                         (long long)options->steps, (long long)options->channels);
    if (options->batch < 0)
        return rcvi_fail(RCV_INVALID, "a scan's batch is at least 0, not %lld", (long long)options->batch);
    if (!rcvi_multiply(options->batch ? options->batch : 1, options->channels, &columns) ||
        !rcvi_multiply(options->steps, columns, &elements) || elements > limit)
        return rcvi_fail(
            RCV_INVALID, "a scan of %lld steps, %lld sequences and %lld channels is too large to be counted in bytes",
            (long long)options->steps, (long long)(options->batch ? options->batch : 1), (long long)options->channels);
    rcv_dtype dtype = options->dtype;
    if (dtype != RCV_FLOAT32 && dtype != RCV_FLOAT64 && dtype != RCV_BFLOAT16 && dtype != RCV_FLOAT16)
        return rcvi_fail(RCV_INVALID, "scans are of float32, float64, bfloat16 or float16, not of %s",
                         rcv_dtype_name(dtype));
    return RCV_OK;
}

rcv_status rcv_scan_new(rcv_context *context, const rcv_scan_options *options, rcv_scan **scan) {
    if (scan) *scan = NULL;
    RCVI_NEED(context, "context");
    RCVI_NEED(options, "options");
    RCVI_NEED(scan, "scan");
    RCVI_READ(rcv_scan_options, options, "options");
    const rcvi_device *device = NULL;
    int ordinal = 0;
    RCVI_TRY(check_options(options));
    RCVI_TRY(rcvi_device_find(options->device, &device, &ordinal));
    if (!device->scan) return rcvi_fail(RCV_UNSUPPORTED, "device %s has no scans", device->name);
    rcv_scan *made = rcvi_new(context, 1, sizeof *made);
    if (!made) return RCV_NO_MEMORY;
    made->context = context;
    made->device = device;
    made->options = *options;
    if (made->options.batch == 0) made->options.batch = 1;
    rcv_status status = device->scan->prepare(context, ordinal, &made->options, &made->scan);
    made->options.form = made->options.device = NULL; /* the caller may free them */
    if (status) {
        rcv_scan_free(made);
        return status;
    }
    *scan = made;
    return RCV_OK;
}

void rcv_scan_free(rcv_scan *scan) {
    if (!scan) return;
    if (scan->scan) scan->device->scan->release(scan->scan);
    rcvi_free(scan->context, scan);
}

const char *rcv_scan_form(const rcv_scan *scan) { return scan ? scan->device->scan->form(scan->scan) : NULL; }

rcv_status rcv_scan_set_stream(rcv_scan *scan, void *stream) {
    RCVI_NEED(scan, "scan");
    if (stream && !scan->device->scan->wait)
        return rcvi_fail(RCV_UNSUPPORTED, "device %s has no streams", scan->device->name);
    scan->stream = stream;
    return RCV_OK;
}

rcv_status rcv_scan_wait(rcv_scan *scan) {
    RCVI_NEED(scan, "scan");
    return scan->device->scan->wait ? scan->device->scan->wait(scan->scan, scan->stream) : RCV_OK;
}

static rcv_status check_data(const rcv_scan *scan, const rcv_scan_data *data) {
    const rcv_scan_options *options = &scan->options;
    if (options->lengths != (data->lengths != NULL))
        return rcvi_fail(RCV_INVALID, options->lengths ? "the scan was made for lengths, but none are given"
                                                       : "lengths are given, but the scan was made without them");
    if (options->resets != (data->resets != NULL))
        return rcvi_fail(RCV_INVALID, options->resets ? "the scan was made for resets, but none are given"
                                                      : "resets are given, but the scan was made without them");
    for (int64_t i = 0; data->lengths && i < options->batch; i++) {
        if (data->lengths[i] < 1 || data->lengths[i] > options->steps)
            return rcvi_fail(RCV_INVALID, "length %lld of sequence %lld is not in 1 to %lld",
                             (long long)data->lengths[i], (long long)i, (long long)options->steps);
    }
    return RCV_OK;
}

/* Bytes of an array [steps, batch, channels], and of a state [batch, channels]. */
static size_t array_bytes(const rcv_scan *scan) {
    const rcv_scan_options *o = &scan->options;
    return (size_t)(o->steps * o->batch * o->channels) * rcv_dtype_bytes(o->dtype);
}

static size_t state_bytes(const rcv_scan *scan) {
    const rcv_scan_options *o = &scan->options;
    return (size_t)(o->batch * o->channels) * (o->dtype == RCV_FLOAT64 ? sizeof(double) : sizeof(float));
}

static rcv_status check_forward(const rcv_scan *scan, const rcv_scan_data *d) {
    size_t array = array_bytes(scan), state = state_bytes(scan), batch = (size_t)scan->options.batch;
    const rcvi_range ranges[] = {{d->h, array, "h", true},
                                 {d->final, state, "final", true},
                                 {d->a, array, "a", false},
                                 {d->b, array, "b", false},
                                 {d->initial, state, "initial", false},
                                 {d->lengths, batch * sizeof *d->lengths, "lengths", false},
                                 {d->resets, (size_t)scan->options.steps * batch, "resets", false}};
    return rcvi_check_overlap("rcv_scan_forward", ranges, sizeof ranges / sizeof *ranges);
}

static rcv_status check_backward(const rcv_scan *scan, const rcv_scan_data *d, const rcv_scan_gradients *g) {
    size_t array = array_bytes(scan), state = state_bytes(scan), batch = (size_t)scan->options.batch;
    const rcvi_range ranges[] = {{g->da, array, "da", true},
                                 {g->db, array, "db", true},
                                 {g->dinitial, state, "dinitial", true},
                                 {g->dh, array, "dh", false},
                                 {g->dfinal, state, "dfinal", false},
                                 {d->a, array, "a", false},
                                 {d->h, array, "h", false},
                                 {d->initial, state, "initial", false},
                                 {d->lengths, batch * sizeof *d->lengths, "lengths", false},
                                 {d->resets, (size_t)scan->options.steps * batch, "resets", false}};
    return rcvi_check_overlap("rcv_scan_backward", ranges, sizeof ranges / sizeof *ranges);
}

rcv_status rcv_scan_forward(rcv_scan *scan, const rcv_scan_data *data) {
    RCVI_NEED(scan, "scan");
    RCVI_NEED(data, "data");
    RCVI_READ(rcv_scan_data, data, "data");
    RCVI_NEED(data->a, "data->a");
    RCVI_NEED(data->b, "data->b");
    RCVI_NEED(data->h, "data->h");
    RCVI_TRY(check_data(scan, data));
    RCVI_TRY(check_forward(scan, data));
    return scan->device->scan->forward(scan->scan, data, scan->stream);
}

rcv_status rcv_scan_backward(rcv_scan *scan, const rcv_scan_data *data, const rcv_scan_gradients *gradients) {
    RCVI_NEED(scan, "scan");
    RCVI_NEED(data, "data");
    RCVI_NEED(gradients, "gradients");
    RCVI_READ(rcv_scan_data, data, "data");
    RCVI_READ(rcv_scan_gradients, gradients, "gradients");
    RCVI_NEED(data->a, "data->a");
    RCVI_NEED(data->h, "data->h");
    RCVI_TRY(check_data(scan, data));
    RCVI_TRY(check_backward(scan, data, gradients));
    return scan->device->scan->backward(scan->scan, data, gradients, scan->stream);
}

rcv_status rcv_measure_memory(rcv_context *context, const char *name, int64_t threads, int reads, size_t bytes,
                              double *bandwidth) {
    const rcvi_device *device = NULL;
    int ordinal = 0;
    RCVI_NEED(context, "context");
    RCVI_NEED(bandwidth, "bandwidth");
    if (reads != 1 && reads != 2) return rcvi_fail(RCV_INVALID, "memory is measured with 1 or 2 reads, not %d", reads);
    if (bytes < sizeof(float) || bytes > SIZE_MAX / 8)
        return rcvi_fail(RCV_INVALID, "arrays of %zu bytes cannot be measured", bytes);
    RCVI_TRY(rcvi_device_find(name, &device, &ordinal));
    if (!device->measure_bandwidth)
        return rcvi_fail(RCV_UNSUPPORTED, "device %s does not measure its memory", device->name);
    if (threads == 0) threads = rcv_context_threads(context);
    return device->measure_bandwidth(context, ordinal, threads, reads, bytes, bandwidth);
}
