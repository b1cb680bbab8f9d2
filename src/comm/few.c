/* Sums and maxima of few elements, where what counts is how often ranks wait for each other: everybody sends to everybody, once, and reduces
 * all in the order of the ranks. */
#include "comm/parts.h"

#include <string.h>

typedef struct {
    bool begun;
    _Alignas(16) char rows[]; /* [size, count] */
} few;

static size_t row_bytes(const rcvi_transfer *t) {
    return (size_t)t->options.count * rcvi_transfer_bytes(t->options.type);
}

static void begin(rcvi_transfer *t) {
    few *f = t->state;
    size_t bytes = row_bytes(t);
    int size = t->comm->size;
    for (int i = 1; i < size; i++) { /* not all to the same one at once */
        int from = (t->comm->rank + size - i) % size, to = (t->comm->rank + i) % size;
        rcvi_receive(t, from, f->rows + (size_t)from * bytes, bytes, &t->requests[from]);
        rcvi_send(t, to, t->data, bytes, &t->requests[size + to]);
    }
    f->begun = true;
}

static void reduce(rcvi_transfer *t) {
    few *f = t->state;
    size_t bytes = row_bytes(t);
    memcpy(f->rows + (size_t)t->comm->rank * bytes, t->data, bytes);
    memcpy(t->data, f->rows, bytes);
    for (int i = 1; i < t->comm->size; i++)
        rcvi_transfer_combine(t->options.kind, t->options.type, t->data, f->rows + (size_t)i * bytes, t->options.count);
}

static bool advance(rcvi_transfer *t) {
    const few *f = t->state;
    int size = t->comm->size;
    if (t->options.count == 0) return true;
    if (!f->begun) begin(t);
    for (int i = 0; i < 2 * size; i++) {
        if (!rcvi_arrived(t, i % size, &t->requests[i])) return false;
    }
    reduce(t);
    return true;
}

static rcv_status prepare(rcvi_transfer *t) {
    size_t size = (size_t)t->comm->size;
    return rcvi_transfer_room(t, sizeof(few) + size * row_bytes(t), 2 * size, false);
}

const rcvi_exchange rcvi_exchange_few = {prepare, advance};
