/* Sums and gathers around a ring, which send as few bytes as can be, through all links at once.
 *
 * The data has a share a rank. Rank r sends to r + 1 and receives from r - 1, in steps of a share each: at step s it sends share
 * r - 1 - s (modulo the ranks), and receives the one that it will send at step s + 1. In the first size - 1 steps what is received is added
 * to what is there: after them rank r has the sum of share r, to which the ranks r + 1, r + 2, ... were added in this order. In the
 * size - 1 steps that follow it replaces what is there. A sum to all takes both halves, shares the first, a gather the second.
 *
 * Shares are cut into pieces, so that one is summed while others are on the wire: a piece may be sent as soon as it has been received. */
#include "comm/parts.h"

/* The next message of a kind. */
typedef struct {
    int step;
    int64_t piece;
    int64_t count; /* messages before it */
} place;

typedef struct {
    const int64_t *starts; /* [size + 1] */
    int end;               /* steps */
    int64_t piece;         /* elements */
    place sent, done;      /* messages given to the transport; that are out of our hands */
    place posted, taken;   /* messages asked for; that arrived and were put where they belong */
    int64_t even[];        /* [size + 1], where the caller gave no shares */
} ring;

/* ---- which message is what ---- */

static int share_at(const rcvi_transfer *t, int step) {
    int size = t->comm->size;
    return (t->comm->rank - 1 - step + 2 * size) % size;
}

/* Elements of a piece of the share that is sent at this step; *first is where they begin. */
static int64_t piece_at(const rcvi_transfer *t, int step, int64_t piece, int64_t *first) {
    const ring *r = t->state;
    int share = share_at(t, step);
    int64_t left = r->starts[share + 1] - r->starts[share] - piece * r->piece;
    *first = r->starts[share] + piece * r->piece;
    return left < r->piece ? left : r->piece;
}

/* To the next message that has elements. `ahead`: 0 for what is sent, 1 for what is received. */
static void settle(const rcvi_transfer *t, place *p, int ahead) {
    const ring *r = t->state;
    int64_t first;
    for (; p->step < r->end && piece_at(t, p->step + ahead, p->piece, &first) <= 0; p->piece = 0) p->step++;
}

static void next(const rcvi_transfer *t, place *p, int ahead) {
    p->piece++;
    p->count++;
    settle(t, p, ahead);
}

static bool is_past(const place *p, int step, int64_t piece) {
    return p->step > step || (p->step == step && p->piece > piece);
}

/* ---- messages ---- */

static rcvi_request *sending(const rcvi_transfer *t, const place *p) {
    return &t->requests[p->count % RCVI_COMM_WINDOW];
}

static rcvi_request *receiving(const rcvi_transfer *t, const place *p) {
    return &t->requests[RCVI_COMM_WINDOW + p->count % RCVI_COMM_WINDOW];
}

static void *sending_slot(const rcvi_transfer *t, const place *p) {
    return t->scratch->slots[p->count % RCVI_COMM_WINDOW];
}

static void *receiving_slot(const rcvi_transfer *t, const place *p) {
    return t->scratch->slots[RCVI_COMM_WINDOW + p->count % RCVI_COMM_WINDOW];
}

static bool is_summed(const rcvi_transfer *t, int step) { return step < t->comm->size - 1; }

static void send_next(rcvi_transfer *t) {
    ring *r = t->state;
    int64_t first, count = piece_at(t, r->sent.step, r->sent.piece, &first);
    size_t bytes = rcvi_transfer_bytes(t->options.type);
    void *data = t->data + (size_t)first * bytes;
    if (t->options.narrow) {
        rcvi_narrow(sending_slot(t, &r->sent), data, count);
        if (r->sent.step == t->comm->size - 1) rcvi_round(data, count); /* its own share: as all others see it */
        data = sending_slot(t, &r->sent);
        bytes = sizeof(uint16_t);
    }
    rcvi_send(t, (t->comm->rank + 1) % t->comm->size, data, (size_t)count * bytes, sending(t, &r->sent));
    next(t, &r->sent, 0);
}

static void post_next(rcvi_transfer *t) {
    ring *r = t->state;
    int64_t first, count = piece_at(t, r->posted.step + 1, r->posted.piece, &first);
    size_t bytes = rcvi_transfer_bytes(t->options.type);
    void *to = t->data + (size_t)first * bytes;
    if (t->options.narrow) bytes = sizeof(uint16_t);
    if (t->options.narrow || is_summed(t, r->posted.step)) to = receiving_slot(t, &r->posted);
    int left = (t->comm->rank + t->comm->size - 1) % t->comm->size;
    rcvi_receive(t, left, to, (size_t)count * bytes, receiving(t, &r->posted));
    next(t, &r->posted, 1);
}

static void take_narrow(rcvi_transfer *t, float *data, const uint16_t *slot, int64_t count) {
    const ring *r = t->state;
    float wide[256];
    for (int64_t at = 0; at < count; at += 256) {
        int64_t some = count - at < 256 ? count - at : 256;
        rcvi_widen(is_summed(t, r->taken.step) ? wide : data + at, slot + at, some);
        if (is_summed(t, r->taken.step)) rcvi_transfer_combine(t->options.kind, t->options.type, data + at, wide, some);
    }
    if (r->taken.step == t->comm->size - 2) rcvi_round(data, count);
}

static void take_next(rcvi_transfer *t) {
    ring *r = t->state;
    int64_t first, count = piece_at(t, r->taken.step + 1, r->taken.piece, &first);
    void *data = t->data + (size_t)first * rcvi_transfer_bytes(t->options.type);
    const void *slot = receiving_slot(t, &r->taken);
    if (t->options.narrow) {
        take_narrow(t, data, slot, count);
    } else if (is_summed(t, r->taken.step)) {
        rcvi_transfer_combine(t->options.kind, t->options.type, data, slot, count);
    }
    next(t, &r->taken, 1);
}

/* ---- the exchange ---- */

/* What is received in place must not meet what of the same piece is still being sent from there. */
static bool may_post(const rcvi_transfer *t) {
    const ring *r = t->state;
    int before = r->posted.step - (t->comm->size - 1);
    if (r->posted.step >= r->end || r->posted.count - r->taken.count >= RCVI_COMM_WINDOW) return false;
    return before < 0 || is_past(&r->done, before, r->posted.piece);
}

static bool may_send(const rcvi_transfer *t) {
    const ring *r = t->state;
    bool from_start = t->options.kind == RCVI_GATHER_ALL ? r->sent.step == t->comm->size - 1 : r->sent.step == 0;
    if (r->sent.step >= r->end || r->sent.count - r->done.count >= RCVI_COMM_WINDOW) return false;
    return from_start || is_past(&r->taken, r->sent.step - 1, r->sent.piece);
}

static bool advance(rcvi_transfer *t) {
    ring *r = t->state;
    int size = t->comm->size, right = (t->comm->rank + 1) % size, left = (t->comm->rank + size - 1) % size;
    while (r->done.count < r->sent.count && rcvi_arrived(t, right, sending(t, &r->done))) next(t, &r->done, 0);
    while (r->taken.count < r->posted.count && rcvi_arrived(t, left, receiving(t, &r->taken))) take_next(t);
    while (may_post(t)) post_next(t);
    while (may_send(t)) send_next(t);
    return r->taken.step >= r->end && r->done.step >= r->end;
}

static void share_evenly(int64_t *starts, int64_t count, int size) {
    for (int i = 0; i <= size; i++) {
        starts[i] = count / size * i + (i < count % size ? i : count % size);
    }
}

static rcv_status prepare(rcvi_transfer *t) {
    int size = t->comm->size;
    size_t bytes = sizeof(ring) + (size_t)(size + 1) * sizeof(int64_t);
    RCVI_TRY(rcvi_transfer_room(t, bytes, 2 * RCVI_COMM_WINDOW, true));
    ring *r = t->state;
    bool sums = t->options.kind != RCVI_GATHER_ALL, gathers = t->options.kind != RCVI_SUM_SHARES;
    r->starts = t->options.starts;
    if (t->options.kind == RCVI_SUM_ALL || t->options.kind == RCVI_MAX_ALL) {
        share_evenly(r->even, t->options.count, size);
        r->starts = r->even;
    }
    r->piece = RCVI_COMM_PIECE / (int64_t)rcvi_transfer_bytes(t->options.type);
    r->end = (gathers ? 2 : 1) * (size - 1);
    r->sent.step = r->posted.step = sums ? 0 : size - 1;
    settle(t, &r->sent, 0);
    settle(t, &r->posted, 1);
    r->done = r->sent;
    r->taken = r->posted;
    return RCV_OK;
}

const rcvi_exchange rcvi_exchange_ring = {prepare, advance};
