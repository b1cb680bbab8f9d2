/* All-reduce of few elements, where latency dominates: every rank sends its data to every other rank, once, and reduces the data of all
 * ranks in the order of the ranks. So all ranks compute the same bits. */
#include "comm/internal.h"

#include <string.h>

typedef struct {
    bool started;
    _Alignas(16) char rows[]; /* [size, count]: the data of every rank */
} exchange;

static size_t row_bytes(const rcvi_transfer *t) {
    return (size_t)t->options.count * rcvi_transfer_bytes(t->options.type);
}

/* Requests: [size] receives, then [size] sends; those of this rank stay inactive. */
static void start(rcvi_transfer *t) {
    exchange *x = t->state;
    size_t bytes = row_bytes(t);
    int size = t->comm->size;
    for (int i = 1; i < size; i++) { /* each rank begins with a different peer, which spreads the load */
        int from = (t->comm->rank + size - i) % size, to = (t->comm->rank + i) % size;
        rcvi_message_receive(t, from, x->rows + (size_t)from * bytes, bytes, &t->requests[from]);
        rcvi_message_send(t, to, t->data, bytes, &t->requests[size + to]);
    }
    x->started = true;
}

static void reduce(rcvi_transfer *t) {
    exchange *x = t->state;
    size_t bytes = row_bytes(t);
    memcpy(x->rows + (size_t)t->comm->rank * bytes, t->data, bytes);
    memcpy(t->data, x->rows, bytes);
    for (int i = 1; i < t->comm->size; i++)
        rcvi_transfer_reduce(t->options.kind, t->options.type, t->data, x->rows + (size_t)i * bytes, t->options.count);
}

static bool advance(rcvi_transfer *t) {
    const exchange *x = t->state;
    int size = t->comm->size;
    if (t->options.count == 0) return true;
    if (!x->started) start(t);
    for (int i = 0; i < 2 * size; i++) {
        if (!rcvi_message_test(t, i % size, &t->requests[i])) return false;
    }
    reduce(t);
    return true;
}

static rcv_status prepare(rcvi_transfer *t) {
    size_t size = (size_t)t->comm->size;
    return rcvi_transfer_allocate(t, sizeof(exchange) + size * row_bytes(t), 2 * size, false);
}

const rcvi_transfer_operations rcvi_small_all_reduce_operations = {prepare, advance};
