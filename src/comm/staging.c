/* Transfers of a device's memory. Where the transport or the device's collectives accept it, it is transferred directly. Else it is copied to a
 * staging buffer in the host's memory, transferred there, and copied back. The progress thread starts these phases one after the other, and
 * waits for none of them. */
#include "comm/internal.h"

#include <stdio.h>
#include <string.h>

/* NULL: the device's memory is the host's. */
static const rcvi_staging_table *staging_of(const rcvi_world *w) { return w->device ? w->device->staging : NULL; }

static bool is_reduced(const rcvi_transfer_options *o) {
    return o->kind == RCVI_ALL_REDUCE_SUM || o->kind == RCVI_ALL_REDUCE_MAX || o->kind == RCVI_REDUCE_SCATTER;
}

/* ---- which elements are copied ---- */

typedef struct {
    int64_t first, count;
} range;

static range share_of(const rcvi_transfer *t) {
    const int64_t *starts = t->options.starts + t->comm->rank;
    return (range){starts[0], starts[1] - starts[0]};
}

static range range_to_host(const rcvi_transfer *t) {
    bool is_target =
        t->options.kind == RCVI_RECEIVE || (t->options.kind == RCVI_BROADCAST && t->options.peer != t->comm->rank);
    if (t->options.kind == RCVI_ALL_GATHER) return share_of(t);
    return (range){0, is_target ? 0 : t->options.count};
}

static range range_to_device(const rcvi_transfer *t) {
    bool is_source = t->options.kind == RCVI_SEND ||
                     (t->options.kind == RCVI_BROADCAST && !t->options.as_bfloat16 && t->options.peer == t->comm->rank);
    if (t->options.kind == RCVI_REDUCE_SCATTER) return share_of(t);
    return (range){0, is_source ? 0 : t->options.count};
}

/* ---- staging buffers ---- */

/* A free buffer that is large enough, else the last free one, else a new entry without memory. NULL: no memory. */
static rcvi_staging_buffer *borrow_buffer(rcvi_world *w, size_t bytes) {
    pthread_mutex_lock(&w->lock);
    rcvi_staging_buffer **link = &w->free_staging;
    while (*link && (*link)->bytes < bytes && (*link)->next) link = &(*link)->next;
    rcvi_staging_buffer *buffer = *link;
    if (buffer) *link = buffer->next;
    pthread_mutex_unlock(&w->lock);
    return buffer ? buffer : rcvi_new(w->context, 1, sizeof *buffer);
}

/* Gives the transfer a buffer of at least so many bytes. After a failure too the transfer owns what it borrowed. */
static rcv_status attach_buffer(rcvi_transfer *t, size_t bytes) {
    rcvi_world *w = t->comm->world;
    rcvi_staging_buffer *buffer = t->staging = borrow_buffer(w, bytes);
    if (!buffer) return RCV_NO_MEMORY;
    if (buffer->staging && buffer->bytes >= bytes) return RCV_OK;
    if (buffer->staging) w->device->staging->close(buffer->staging);
    buffer->staging = NULL;
    buffer->bytes = 0;
    RCVI_TRY(w->device->staging->open(w->context, w->ordinal, bytes, &buffer->staging));
    buffer->bytes = bytes;
    return RCV_OK;
}

void rcvi_staging_close(rcvi_world *w) {
    for (rcvi_staging_buffer *buffer; (buffer = w->free_staging);) {
        w->free_staging = buffer->next;
        if (buffer->staging) w->device->staging->close(buffer->staging);
        rcvi_free(w->context, buffer);
    }
}

/* ---- the transfer ---- */

rcv_status rcvi_staging_prepare(rcvi_transfer *t) {
    rcvi_world *w = t->comm->world;
    const rcvi_transfer_options *o = &t->options;
    const rcvi_staging_table *staging = staging_of(w);
    if (!staging) return RCV_OK;
    if (w->uses_collectives && t->collective && !o->as_bfloat16) {
        t->operations = &rcvi_device_collective_operations;
        return t->comm->device_comm ? RCV_OK : rcvi_device_comm_open(t->comm);
    }
    if (w->facts.accepts_device_memory && !o->as_bfloat16 && !is_reduced(o)) return RCV_OK;
    RCVI_TRY(attach_buffer(t, (size_t)o->count * rcvi_transfer_bytes(o->type)));
    t->data = staging->host_memory(t->staging->staging);
    t->phase = RCVI_STAGING_TO_HOST;
    return RCV_OK;
}

static void break_world(rcvi_world *w) {
    rcvi_world_break(w, RCVI_BREAK_REPORT, "rank %d: %s", w->all.rank, rcv_message());
}

void rcvi_staging_start(rcvi_transfer *t) {
    rcvi_world *w = t->comm->world;
    if (t->options.on_device && staging_of(w) && staging_of(w)->set_current(w->ordinal)) break_world(w);
}

typedef enum { TO_HOST, TO_DEVICE } direction;

/* Starts the copy, or tests it. True: the elements have been copied. */
static bool advance_copy(rcvi_transfer *t, range r, direction direction) {
    rcvi_world *w = t->comm->world;
    const rcvi_staging_table *staging = staging_of(w);
    size_t element = rcvi_transfer_bytes(t->options.type), offset = (size_t)r.first * element;
    size_t bytes = (size_t)r.count * element;
    char *data = t->options.data;
    bool done = true;
    rcv_status status = RCV_OK;
    if (bytes == 0) return true;
    if (!t->copy_started && direction == TO_HOST)
        status = staging->copy_to_host(t->staging->staging, offset, data + offset, bytes);
    if (!t->copy_started && direction == TO_DEVICE)
        status = staging->copy_to_device(t->staging->staging, data + offset, offset, bytes);
    t->copy_started = true;
    if (!status) status = staging->test(t->staging->staging, &done);
    if (status) {
        break_world(w);
        return false;
    }
    if (done) t->copy_started = false;
    return done;
}

bool rcvi_staging_advance(rcvi_transfer *t) {
    if (t->phase == RCVI_STAGING_TO_HOST && advance_copy(t, range_to_host(t), TO_HOST))
        t->phase = RCVI_STAGING_TRANSFER;
    if (t->phase == RCVI_STAGING_TRANSFER && t->operations->advance(t)) t->phase = RCVI_STAGING_TO_DEVICE;
    return t->phase == RCVI_STAGING_TO_DEVICE && advance_copy(t, range_to_device(t), TO_DEVICE);
}

rcv_status rcvi_staging_round(rcvi_comm *comm, const rcvi_transfer_options *o) {
    rcvi_world *w = comm->world;
    const rcvi_memory *memory = w->device ? w->device->memory : NULL;
    size_t bytes = (size_t)o->count * sizeof(float);
    if (!memory) {
        rcvi_round_to_bfloat16(o->data, o->count);
        return RCV_OK;
    }
    float *numbers = rcvi_new(w->context, (size_t)o->count, sizeof *numbers);
    if (!numbers) return RCV_NO_MEMORY;
    rcv_status status = memory->read(w->ordinal, numbers, o->data, bytes);
    rcvi_round_to_bfloat16(numbers, o->count);
    if (!status) status = memory->write(w->ordinal, o->data, numbers, bytes);
    rcvi_free(w->context, numbers);
    return status;
}
