/* Broadcast, send and receive: a rank receives segments from its parent, keeps them, and forwards them to its children. A broadcast uses a binomial
 * tree of ranks. A send is a node with one child and no parent, a receive a node with a parent and no children. */
#include "comm/internal.h"

enum { MOST_CHILDREN = 31, TREE_SEGMENT = 1 << 20 };

typedef struct {
    int parent; /* -1: this rank has the data */
    int children[MOST_CHILDREN], child_count;
    int64_t segment, segments; /* elements of one; how many there are */
    /* Number of segments whose receive was posted; that arrived; whose sends to all children were posted; whose sends are complete. */
    int64_t posted, arrived, sent, done;
} tree;

/* ---- segments ---- */

static int64_t elements_of(const rcvi_transfer *t, int64_t segment) {
    const tree *r = t->state;
    int64_t left = t->options.count - segment * r->segment;
    return left < r->segment ? left : r->segment;
}

static void *data_of(const rcvi_transfer *t, int64_t segment) {
    const tree *r = t->state;
    return t->data + (size_t)(segment * r->segment) * rcvi_transfer_bytes(t->options.type);
}

/* The segment as it is sent: bfloat16 in scratch memory, or the data itself. */
static void *message_of(const rcvi_transfer *t, int64_t segment) {
    return t->options.as_bfloat16 ? t->scratch->slots[segment % RCVI_COMM_IN_FLIGHT] : data_of(t, segment);
}

static size_t bytes_of(const rcvi_transfer *t, int64_t segment) {
    size_t element = t->options.as_bfloat16 ? sizeof(uint16_t) : rcvi_transfer_bytes(t->options.type);
    return (size_t)elements_of(t, segment) * element;
}

/* The requests of a segment: [1 + child_count], its receive, then a send for every child. */
static rcvi_request *requests_of(const rcvi_transfer *t, int64_t segment) {
    const tree *r = t->state;
    return &t->requests[segment % RCVI_COMM_IN_FLIGHT * (1 + r->child_count)];
}

/* ---- the transfer ---- */

static void post_next(rcvi_transfer *t) {
    tree *r = t->state;
    rcvi_message_receive(t, r->parent, message_of(t, r->posted), bytes_of(t, r->posted), requests_of(t, r->posted));
    r->posted++;
}

static void store_next(rcvi_transfer *t) {
    tree *r = t->state;
    if (t->options.as_bfloat16)
        rcvi_from_bfloat16(data_of(t, r->arrived), message_of(t, r->arrived), elements_of(t, r->arrived));
    r->arrived++;
}

static void send_next(rcvi_transfer *t) {
    tree *r = t->state;
    void *data = data_of(t, r->sent);
    if (t->options.as_bfloat16 && r->parent < 0) {
        rcvi_to_bfloat16(message_of(t, r->sent), data, elements_of(t, r->sent));
        if (t->collective) rcvi_round_to_bfloat16(data, elements_of(t, r->sent)); /* the root ends with the same bits */
    }
    for (int i = 0; i < r->child_count; i++) {
        rcvi_message_send(t, r->children[i], message_of(t, r->sent), bytes_of(t, r->sent),
                          requests_of(t, r->sent) + 1 + i);
    }
    r->sent++;
}

static bool is_sent(rcvi_transfer *t, int64_t segment) {
    const tree *r = t->state;
    for (int i = 0; i < r->child_count; i++) {
        if (!rcvi_message_test(t, r->children[i], requests_of(t, segment) + 1 + i)) return false;
    }
    return !atomic_load(&t->comm->world->broken);
}

static bool advance(rcvi_transfer *t) {
    tree *r = t->state;
    while (r->done < r->sent && is_sent(t, r->done)) r->done++;
    while (r->arrived < r->posted && rcvi_message_test(t, r->parent, requests_of(t, r->arrived))) store_next(t);
    while (r->parent >= 0 && r->posted < r->segments && r->posted - r->done < RCVI_COMM_IN_FLIGHT) post_next(t);
    int64_t ready = r->parent >= 0 ? r->arrived : r->segments;
    while (r->sent < ready && r->sent - r->done < RCVI_COMM_IN_FLIGHT) send_next(t);
    t->all_posted = (r->parent < 0 || r->posted == r->segments) && (r->child_count == 0 || r->sent == r->segments);
    return r->done == r->segments;
}

/* With ranks numbered from the root, rank v receives from v without its lowest set bit, and sends to v plus every lower bit. */
static void build_tree(tree *r, int rank, int size, int root) {
    int v = (rank - root + size) % size, bit = 1;
    while (bit < size && !(v & bit)) bit <<= 1;
    r->parent = v ? (v - bit + root) % size : -1;
    for (bit >>= 1; bit; bit >>= 1) {
        if (v + bit < size) r->children[r->child_count++] = (v + bit + root) % size;
    }
}

static rcv_status prepare(rcvi_transfer *t) {
    size_t requests = (size_t)RCVI_COMM_IN_FLIGHT * (1 + MOST_CHILDREN);
    if (!t->collective) requests = (size_t)RCVI_COMM_IN_FLIGHT * 2;
    RCVI_TRY(rcvi_transfer_allocate(t, sizeof(tree), requests, t->options.as_bfloat16));
    tree *r = t->state;
    r->parent = t->options.kind == RCVI_RECEIVE ? t->options.peer : -1;
    if (t->options.kind == RCVI_SEND) r->children[r->child_count++] = t->options.peer;
    if (t->collective) build_tree(r, t->comm->rank, t->comm->size, t->options.peer);
    int64_t most = t->options.as_bfloat16 ? RCVI_COMM_SEGMENT : t->collective ? TREE_SEGMENT : RCVI_TRANSPORT_MAX_BYTES;
    r->segment = most / (int64_t)rcvi_transfer_bytes(t->options.type);
    r->segments = (t->options.count + r->segment - 1) / r->segment;
    return RCV_OK;
}

const rcvi_transfer_operations rcvi_broadcast_operations = {prepare, advance};
