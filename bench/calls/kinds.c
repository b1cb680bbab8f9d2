/* The networks that jobs begin with, and the device's first use. */
#include "calls/calls.h"

#include <stdlib.h>
#include <string.h>

enum { TEXT = 256 };

/* The shape of the first calls; a CPU's is one whose steps are short beside a search. */
static const shape on_gpu = {.cell = "lstm",
                             .steps = 100,
                             .batch = 64,
                             .input = 512,
                             .hidden = 512,
                             .layers = 2,
                             .training = true,
                             .effort = RCV_BACKGROUND},
                   on_cpu = {.cell = "lstm",
                             .steps = 50,
                             .batch = 32,
                             .input = 256,
                             .hidden = 256,
                             .layers = 2,
                             .training = true,
                             .effort = RCV_BACKGROUND};

static const kind kinds[] = {
    {"float32", "lstm", RCV_FLOAT32},
    {"bfloat16", "lstm", RCV_BFLOAT16},
    {"own", NULL, RCV_BFLOAT16},
};

const kind *find_kind(const char *name) {
    const kind *k = kinds;
    while (strcmp(k->name, name) != 0) k++;
    return k;
}

shape first_shape(const job *j, const kind *k) {
    shape s = is_gpu(j) ? on_gpu : on_cpu;
    s.cell = k->cell;
    s.dtype = k->dtype;
    return sized(j, s);
}

row name_row(const char *job_name, const kind *k, const char *name, const char *what, const char *unit, double target) {
    static char id[TEXT], text[TEXT];
    snprintf(id, sizeof id, "%s.%s.%s", job_name, k->name, name);
    snprintf(text, sizeof text, "%s%s: %s", k->cell ? "" : "own cell ", rcv_dtype_name(k->dtype), what);
    return (row){id, text, unit, target};
}

rcv_status bring_up(job *j, const char *job_name, const kind *k) {
    enum { BYTES = 1 << 20 };
    const char *device = j->options->device;
    void *memory = NULL, *bytes = need(calloc(1, BYTES));
    double begin = now();
    rcv_status status = rcv_memory_new(j->context, device, BYTES, &memory);
    if (!status) status = rcv_memory_write(device, memory, bytes, BYTES);
    if (!status) status = rcv_memory_read(device, bytes, memory, BYTES);
    double seconds = now() - begin;
    row r = name_row(job_name, k, "device", "the device is brought up", "ms", 0);
    if (status)
        row_failed(j, &r, status);
    else
        row_end(j, &r, 1e3 * seconds);
    rcv_memory_free(j->context, device, memory);
    free(bytes);
    return status;
}
