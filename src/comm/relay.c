/* What goes on as it is: a rank receives pieces from one other, keeps them, and sends them to some. A broadcast is a binomial tree of such
 * ranks; a send is one that receives nothing, a receive one that sends nothing. */
#include "comm/parts.h"

enum { MOST_CHILDREN = 31, TREE_PIECE = 1 << 20 };

typedef struct {
    int parent; /* -1: the data is its own */
    int children[MOST_CHILDREN], child_count;
    int64_t piece, pieces; /* elements of one; how many there are */
    /* Pieces asked for; that arrived; that were given to the transport for all children; that are out of our hands. */
    int64_t posted, arrived, sent, done;
} relay;

/* ---- pieces ---- */

static int64_t elements_of(const rcvi_transfer *t, int64_t piece) {
    const relay *r = t->state;
    int64_t left = t->options.count - piece * r->piece;
    return left < r->piece ? left : r->piece;
}

static void *data_of(const rcvi_transfer *t, int64_t piece) {
    const relay *r = t->state;
    return t->data + (size_t)(piece * r->piece) * rcvi_transfer_bytes(t->options.type);
}

/* As it travels. */
static void *message_of(const rcvi_transfer *t, int64_t piece) {
    return t->options.narrow ? t->scratch->slots[piece % RCVI_COMM_WINDOW] : data_of(t, piece);
}

static size_t bytes_of(const rcvi_transfer *t, int64_t piece) {
    size_t element = t->options.narrow ? sizeof(uint16_t) : rcvi_transfer_bytes(t->options.type);
    return (size_t)elements_of(t, piece) * element;
}

/* The requests of a piece: its receive, then a send for every child. */
static rcvi_request *requests_of(const rcvi_transfer *t, int64_t piece) {
    const relay *r = t->state;
    return &t->requests[piece % RCVI_COMM_WINDOW * (1 + r->child_count)];
}

/* ---- the exchange ---- */

static void post_next(rcvi_transfer *t) {
    relay *r = t->state;
    rcvi_receive(t, r->parent, message_of(t, r->posted), bytes_of(t, r->posted), requests_of(t, r->posted));
    r->posted++;
}

static void take_next(rcvi_transfer *t) {
    relay *r = t->state;
    if (t->options.narrow) rcvi_widen(data_of(t, r->arrived), message_of(t, r->arrived), elements_of(t, r->arrived));
    r->arrived++;
}

static void send_next(rcvi_transfer *t) {
    relay *r = t->state;
    void *data = data_of(t, r->sent);
    if (t->options.narrow && r->parent < 0) {
        rcvi_narrow(message_of(t, r->sent), data, elements_of(t, r->sent));
        if (t->collective) rcvi_round(data, elements_of(t, r->sent)); /* as all others see it */
    }
    for (int i = 0; i < r->child_count; i++) {
        rcvi_send(t, r->children[i], message_of(t, r->sent), bytes_of(t, r->sent), requests_of(t, r->sent) + 1 + i);
    }
    r->sent++;
}

static bool is_out(rcvi_transfer *t, int64_t piece) {
    const relay *r = t->state;
    for (int i = 0; i < r->child_count; i++) {
        if (!rcvi_arrived(t, r->children[i], requests_of(t, piece) + 1 + i)) return false;
    }
    return !atomic_load(&t->comm->world->broken);
}

static bool advance(rcvi_transfer *t) {
    relay *r = t->state;
    while (r->done < r->sent && is_out(t, r->done)) r->done++;
    while (r->arrived < r->posted && rcvi_arrived(t, r->parent, requests_of(t, r->arrived))) take_next(t);
    while (r->parent >= 0 && r->posted < r->pieces && r->posted - r->done < RCVI_COMM_WINDOW) post_next(t);
    int64_t ready = r->parent >= 0 ? r->arrived : r->pieces;
    while (r->sent < ready && r->sent - r->done < RCVI_COMM_WINDOW) send_next(t);
    t->posted = (r->parent < 0 || r->posted == r->pieces) && (r->child_count == 0 || r->sent == r->pieces);
    return r->done == r->pieces;
}

/* Counted from the root, rank v receives from v without its lowest bit, and sends to v with one bit below that one. */
static void plant(relay *r, int rank, int size, int root) {
    int v = (rank - root + size) % size, bit = 1;
    while (bit < size && !(v & bit)) bit <<= 1;
    r->parent = v ? (v - bit + root) % size : -1;
    for (bit >>= 1; bit; bit >>= 1) {
        if (v + bit < size) r->children[r->child_count++] = (v + bit + root) % size;
    }
}

static rcv_status prepare(rcvi_transfer *t) {
    size_t requests = (size_t)RCVI_COMM_WINDOW * (1 + MOST_CHILDREN);
    if (!t->collective) requests = (size_t)RCVI_COMM_WINDOW * 2;
    RCVI_TRY(rcvi_transfer_room(t, sizeof(relay), requests, t->options.narrow));
    relay *r = t->state;
    r->parent = t->options.kind == RCVI_RECEIVE ? t->options.peer : -1;
    if (t->options.kind == RCVI_SEND) r->children[r->child_count++] = t->options.peer;
    if (t->collective) plant(r, t->comm->rank, t->comm->size, t->options.peer);
    int64_t most = t->options.narrow ? RCVI_COMM_PIECE : t->collective ? TREE_PIECE : RCVI_TRANSPORT_MOST;
    r->piece = most / (int64_t)rcvi_transfer_bytes(t->options.type);
    r->pieces = (t->options.count + r->piece - 1) / r->piece;
    return RCV_OK;
}

const rcvi_exchange rcvi_exchange_relay = {prepare, advance};
