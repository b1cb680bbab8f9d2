/* Scans by the shapes of calls (rcv_scan): for adapters, whose callers have arrays and no such objects. Scans that were used last are kept.
 *
 * Thread-safe, all functions. Messages are those of rcvb_message(). */
#ifndef RCVB_SCANS_H
#define RCVB_SCANS_H

#include "call/call.h"

/* What a scan is made for. */
typedef struct {
    int64_t steps, batch, channels;
    rcv_dtype dtype; /* of a, b and h */
    int device;      /* the number of a GPU; RCVB_CPU */
    int threads;     /* at most this many; 0: the context's number */
    bool reverse, lengths, resets;
} rcvb_scan_shape;

/* A scan that a call has for itself until rcvb_release_scan. */
typedef struct {
    rcv_scan *scan;
    void *kept; /* private */
} rcvb_scan_lease;

/* A scan for a call of this shape on this stream (a GPU's). */
rcv_status rcvb_acquire_scan(const rcvb_scan_shape *shape, void *stream, rcvb_scan_lease *lease);
void rcvb_release_scan(rcvb_scan_lease *lease);

#endif
