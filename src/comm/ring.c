/* Ring algorithms of all-reduce, reduce-scatter and all-gather: every rank sends the least number of bytes, and all links work at once.
 *
 * The data has one share per rank. Rank r sends to r + 1 and receives from r - 1, one share per step: at step s it sends share r - 1 - s
 * (modulo size), and receives the share that it sends at step s + 1. In the first size - 1 steps (reduce-scatter) a received share is added to
 * the local one. After them rank r has the sum of share r; the ranks r + 1, r + 2, ... were added in this order. In the next size - 1
 * steps (all-gather) a received share replaces the local one. An all-reduce has both halves.
 *
 * Shares are cut into segments, so that one is summed while others are in flight: a segment may be sent as soon as it was received and added. */
#include "comm/internal.h"

/* The position of the next message, in the sequence of messages that is sent or received. */
typedef struct {
    int step;
    int64_t segment;
    int64_t count; /* messages before it */
} position;

typedef struct {
    const int64_t *starts;   /* [size + 1] */
    int end;                 /* number of steps */
    int64_t segment;         /* elements */
    position sent, done;     /* next message to send; next send to complete */
    position posted, stored; /* next receive to post; next message to add or store */
    int64_t equal_shares[];  /* [size + 1], where the caller gave no shares */
} ring;

/* ---- which elements a message has ---- */

static int share_at(const rcvi_transfer *t, int step) {
    int size = t->comm->size;
    return (t->comm->rank - 1 - step + 2 * size) % size;
}

/* The number of elements of a segment of the share that is sent at this step; *first is the first of them. */
static int64_t segment_at(const rcvi_transfer *t, int step, int64_t segment, int64_t *first) {
    const ring *r = t->state;
    int share = share_at(t, step);
    int64_t left = r->starts[share + 1] - r->starts[share] - segment * r->segment;
    *first = r->starts[share] + segment * r->segment;
    return left < r->segment ? left : r->segment;
}

/* Moves to the next message that has elements, from p on. `ahead`: 0 for sent messages, 1 for received ones. */
static void skip_empty(const rcvi_transfer *t, position *p, int ahead) {
    const ring *r = t->state;
    int64_t first;
    for (; p->step < r->end && segment_at(t, p->step + ahead, p->segment, &first) <= 0; p->segment = 0) p->step++;
}

static void move_on(const rcvi_transfer *t, position *p, int ahead) {
    p->segment++;
    p->count++;
    skip_empty(t, p, ahead);
}

static bool is_past(const position *p, int step, int64_t segment) {
    return p->step > step || (p->step == step && p->segment > segment);
}

/* ---- messages ---- */

static rcvi_request *send_request(const rcvi_transfer *t, const position *p) {
    return &t->requests[p->count % RCVI_COMM_IN_FLIGHT];
}

static rcvi_request *receive_request(const rcvi_transfer *t, const position *p) {
    return &t->requests[RCVI_COMM_IN_FLIGHT + p->count % RCVI_COMM_IN_FLIGHT];
}

static void *send_slot(const rcvi_transfer *t, const position *p) {
    return t->scratch->slots[p->count % RCVI_COMM_IN_FLIGHT];
}

static void *receive_slot(const rcvi_transfer *t, const position *p) {
    return t->scratch->slots[RCVI_COMM_IN_FLIGHT + p->count % RCVI_COMM_IN_FLIGHT];
}

/* Does the step belong to the reduce-scatter half? */
static bool is_reduced(const rcvi_transfer *t, int step) { return step < t->comm->size - 1; }

static void send_next(rcvi_transfer *t) {
    ring *r = t->state;
    int64_t first, count = segment_at(t, r->sent.step, r->sent.segment, &first);
    size_t bytes = rcvi_transfer_bytes(t->options.type);
    void *data = t->data + (size_t)first * bytes;
    if (t->options.as_bfloat16) {
        rcvi_to_bfloat16(send_slot(t, &r->sent), data, count);
        if (r->sent.step == t->comm->size - 1)
            rcvi_round_to_bfloat16(data, count); /* its own share: same bits everywhere */
        data = send_slot(t, &r->sent);
        bytes = sizeof(uint16_t);
    }
    rcvi_message_send(t, (t->comm->rank + 1) % t->comm->size, data, (size_t)count * bytes, send_request(t, &r->sent));
    move_on(t, &r->sent, 0);
}

static void post_next(rcvi_transfer *t) {
    ring *r = t->state;
    int64_t first, count = segment_at(t, r->posted.step + 1, r->posted.segment, &first);
    size_t bytes = rcvi_transfer_bytes(t->options.type);
    void *to = t->data + (size_t)first * bytes;
    if (t->options.as_bfloat16) bytes = sizeof(uint16_t);
    if (t->options.as_bfloat16 || is_reduced(t, r->posted.step)) to = receive_slot(t, &r->posted);
    int left = (t->comm->rank + t->comm->size - 1) % t->comm->size;
    rcvi_message_receive(t, left, to, (size_t)count * bytes, receive_request(t, &r->posted));
    move_on(t, &r->posted, 1);
}

static void store_bfloat16(rcvi_transfer *t, float *data, const uint16_t *slot, int64_t count) {
    const ring *r = t->state;
    float wide[256];
    for (int64_t at = 0; at < count; at += 256) {
        int64_t some = count - at < 256 ? count - at : 256;
        rcvi_from_bfloat16(is_reduced(t, r->stored.step) ? wide : data + at, slot + at, some);
        if (is_reduced(t, r->stored.step))
            rcvi_transfer_reduce(t->options.kind, t->options.type, data + at, wide, some);
    }
    if (r->stored.step == t->comm->size - 2) rcvi_round_to_bfloat16(data, count);
}

static void store_next(rcvi_transfer *t) {
    ring *r = t->state;
    int64_t first, count = segment_at(t, r->stored.step + 1, r->stored.segment, &first);
    void *data = t->data + (size_t)first * rcvi_transfer_bytes(t->options.type);
    const void *slot = receive_slot(t, &r->stored);
    if (t->options.as_bfloat16) {
        store_bfloat16(t, data, slot, count);
    } else if (is_reduced(t, r->stored.step)) {
        rcvi_transfer_reduce(t->options.kind, t->options.type, data, slot, count);
    }
    move_on(t, &r->stored, 1);
}

/* ---- the transfer ---- */

/* A segment is received in place only when the send of its old content, size - 1 steps before, is complete. */
static bool may_post(const rcvi_transfer *t) {
    const ring *r = t->state;
    int before = r->posted.step - (t->comm->size - 1);
    if (r->posted.step >= r->end || r->posted.count - r->stored.count >= RCVI_COMM_IN_FLIGHT) return false;
    return before < 0 || is_past(&r->done, before, r->posted.segment);
}

/* The first step sends local data; later steps send what the step before received. */
static bool may_send(const rcvi_transfer *t) {
    const ring *r = t->state;
    bool is_first = t->options.kind == RCVI_ALL_GATHER ? r->sent.step == t->comm->size - 1 : r->sent.step == 0;
    if (r->sent.step >= r->end || r->sent.count - r->done.count >= RCVI_COMM_IN_FLIGHT) return false;
    return is_first || is_past(&r->stored, r->sent.step - 1, r->sent.segment);
}

static bool advance(rcvi_transfer *t) {
    ring *r = t->state;
    int size = t->comm->size, right = (t->comm->rank + 1) % size, left = (t->comm->rank + size - 1) % size;
    while (r->done.count < r->sent.count && rcvi_message_test(t, right, send_request(t, &r->done)))
        move_on(t, &r->done, 0);
    while (r->stored.count < r->posted.count && rcvi_message_test(t, left, receive_request(t, &r->stored)))
        store_next(t);
    while (may_post(t)) post_next(t);
    while (may_send(t)) send_next(t);
    return r->stored.step >= r->end && r->done.step >= r->end;
}

static void share_equally(int64_t *starts, int64_t count, int size) {
    for (int i = 0; i <= size; i++) {
        starts[i] = count / size * i + (i < count % size ? i : count % size);
    }
}

static rcv_status prepare(rcvi_transfer *t) {
    int size = t->comm->size;
    size_t bytes = sizeof(ring) + (size_t)(size + 1) * sizeof(int64_t);
    RCVI_TRY(rcvi_transfer_allocate(t, bytes, 2 * RCVI_COMM_IN_FLIGHT, true));
    ring *r = t->state;
    bool reduces = t->options.kind != RCVI_ALL_GATHER, gathers = t->options.kind != RCVI_REDUCE_SCATTER;
    r->starts = t->options.starts;
    if (t->options.kind == RCVI_ALL_REDUCE_SUM || t->options.kind == RCVI_ALL_REDUCE_MAX) {
        share_equally(r->equal_shares, t->options.count, size);
        r->starts = r->equal_shares;
    }
    r->segment = RCVI_COMM_SEGMENT / (int64_t)rcvi_transfer_bytes(t->options.type);
    r->end = (gathers ? 2 : 1) * (size - 1);
    r->sent.step = r->posted.step = reduces ? 0 : size - 1;
    skip_empty(t, &r->sent, 0);
    skip_empty(t, &r->posted, 1);
    r->done = r->sent;
    r->stored = r->posted;
    return RCV_OK;
}

const rcvi_transfer_operations rcvi_ring_operations = {prepare, advance};
