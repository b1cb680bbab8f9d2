/* Scans by the shapes and the streams of calls. The list is guarded by the lock; a scan's calls are not. */
#include "call/scans.h"
#include "call/shared.h"

#include <stdio.h>
#include <stdlib.h>

enum { MOST_SCANS = 32 }; /* kept at most, of those that no call uses */

typedef struct kept {
    struct kept *next; /* the one used before it */
    rcvb_scan_shape shape;
    rcv_scan *scan;
    void *stream;
    bool captured; /* its calls are in a CUDA graph of the caller's, which refers to its memory */
    bool busy;
} kept;

static kept *scans; /* the one used last comes first */

static bool is_same_shape(const rcvb_scan_shape *a, const rcvb_scan_shape *b) {
    return a->steps == b->steps && a->batch == b->batch && a->channels == b->channels && a->dtype == b->dtype &&
           a->device == b->device && a->threads == b->threads && a->reverse == b->reverse && a->lengths == b->lengths &&
           a->resets == b->resets;
}

/* Takes the scan out of the list. A scan stays on the stream of its calls, so that they follow each other. */
static kept *take_kept(const rcvb_scan_shape *shape, const void *stream, bool captured) {
    for (kept **at = &scans; *at; at = &(*at)->next) {
        kept *k = *at;
        if (k->busy || k->captured != captured || k->stream != stream || !is_same_shape(&k->shape, shape)) continue;
        *at = k->next;
        return k;
    }
    return NULL;
}

static rcv_status make_kept(const rcvb_scan_shape *shape, const char *device, void *stream, kept **made) {
    rcv_context *context = NULL;
    rcv_scan_options options =
        RCV_INIT(rcv_scan_options, .steps = shape->steps, .batch = shape->batch, .channels = shape->channels,
                 .dtype = shape->dtype, .reverse = shape->reverse, .lengths = shape->lengths, .resets = shape->resets,
                 .threads = shape->threads, .device = device);
    rcv_status status = rcvb_context(&context);
    if (status) return status;
    kept *k = calloc(1, sizeof *k);
    if (!k) return rcvb_fail(RCV_NO_MEMORY, "there is no memory for a scan");
    k->shape = *shape;
    k->stream = stream;
    status = rcvb_pass(rcv_scan_new(context, &options, &k->scan));
    if (!status && stream) status = rcvb_pass(rcv_scan_set_stream(k->scan, stream));
    if (status) {
        rcv_scan_free(k->scan);
        free(k);
        return status;
    }
    *made = k;
    return RCV_OK;
}

/* Takes the scans out of the list that are too many. */
static kept *take_surplus(void) {
    int idle = 0;
    kept *surplus = NULL;
    for (kept **at = &scans; *at;) {
        kept *k = *at;
        bool stays = k->busy || k->captured || ++idle <= MOST_SCANS;
        if (stays) {
            at = &k->next;
            continue;
        }
        *at = k->next;
        k->next = surplus;
        surplus = k;
    }
    return surplus;
}

static void free_kept(kept *k) {
    for (kept *next = NULL; k; k = next) {
        next = k->next;
        rcv_scan_free(k->scan);
        free(k);
    }
}

rcv_status rcvb_acquire_scan(const rcvb_scan_shape *shape, void *stream, rcvb_scan_lease *lease) {
    char device[24] = "cpu";
    rcv_status status = RCV_OK;
    if (shape->device != RCVB_CPU) snprintf(device, sizeof device, "cuda:%d", shape->device);
    bool captured = rcv_device_is_capturing(device, stream);
    *lease = (rcvb_scan_lease){0};
    rcvb_lock();
    kept *k = take_kept(shape, stream, captured);
    rcvb_unlock();
    if (!k) status = make_kept(shape, device, stream, &k);
    if (!k) return status;
    rcvb_lock();
    k->busy = true;
    k->captured = captured;
    k->next = scans;
    scans = k;
    kept *surplus = take_surplus();
    rcvb_unlock();
    free_kept(surplus);
    *lease = (rcvb_scan_lease){.scan = k->scan, .kept = k};
    return RCV_OK;
}

void rcvb_release_scan(rcvb_scan_lease *lease) {
    kept *k = lease->kept;
    if (!k) return;
    rcvb_lock();
    k->busy = false;
    rcvb_unlock();
    *lease = (rcvb_scan_lease){0};
}
