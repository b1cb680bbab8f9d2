/* Arrays of the whole model from all ranks, and to all: see collect.h. */
#include "train/step/collect.h"

#include "net/net.h"
#include "train/parallel/gradient_segments.h"

#include <string.h>

/* ---- ranges ---- */

typedef struct {
    int64_t first, count; /* elements of the whole array */
} range;

/* What a rank has of an array: ranges of the whole, and their elements one after the other in the host's memory. */
typedef struct {
    range *ranges;
    int64_t count, elements;
    void *data;
} local_part;

static void free_part(rcv_context *context, local_part *p) {
    rcvi_free(context, p->ranges);
    rcvi_free(context, p->data);
    *p = (local_part){0};
}

static rcv_status make_ranges(rcv_context *context, int64_t count, local_part *p) {
    *p = (local_part){0};
    p->ranges = rcvi_new(context, (size_t)count, sizeof *p->ranges);
    return p->ranges ? RCV_OK : RCV_NO_MEMORY;
}

static void add_range(local_part *p, int64_t first, int64_t count) {
    p->ranges[p->count++] = (range){first, count};
    p->elements += count;
}

/* The ranges that an array of this kind has here. */
static rcv_status find_ranges(const rcv_learner *l, const rcvi_topology *topology, rcvi_array_kind kind,
                              local_part *p) {
    size_t count = 0;
    if (!topology || !topology->shares_optimiser || kind != RCVI_OF_SHARES) {
        RCVI_TRY(make_ranges(l->context, 1, p));
        add_range(p, l->first_element, l->end_element - l->first_element);
        return RCV_OK;
    }
    rcvi_gradient_segment *segments = rcvi_gradient_segments_new(l, false, &count);
    rcv_status status = segments ? make_ranges(l->context, (int64_t)count, p) : RCV_NO_MEMORY;
    for (size_t i = 0; i < count && !status; i++) {
        int64_t start = rcvi_share_start(segments[i].count, topology->replica, topology->replica_count);
        int64_t end = rcvi_share_start(segments[i].count, topology->replica + 1, topology->replica_count);
        add_range(p, segments[i].first + start, end - start);
    }
    rcvi_free(l->context, segments);
    return status;
}

static rcv_status allocate_data(const rcv_learner *l, local_part *p) {
    p->data = rcvi_new(l->context, (size_t)p->elements, rcvi_real_bytes(l));
    return p->data ? RCV_OK : RCV_NO_MEMORY;
}

int64_t rcvi_share_elements(const rcv_learner *l, const rcvi_topology *topology) {
    if (!topology || !topology->shares_optimiser) return l->end_element - l->first_element;
    local_part p = {0};
    int64_t elements = find_ranges(l, topology, RCVI_OF_SHARES, &p) ? -1 : p.elements;
    free_part(l->context, &p);
    return elements;
}

/* ---- messages to rank 0 ---- */

static rcv_status send_part(const rcv_learner *l, rcvi_comm *world, local_part *p) {
    int64_t sizes[2] = {p->count, p->elements};
    RCVI_TRY(rcvi_comm_transfer_bytes(world, RCVI_SEND, 0, sizes, sizeof sizes));
    RCVI_TRY(rcvi_comm_transfer_bytes(world, RCVI_SEND, 0, p->ranges, (size_t)p->count * sizeof *p->ranges));
    return rcvi_comm_transfer_bytes(world, RCVI_SEND, 0, p->data, (size_t)p->elements * rcvi_real_bytes(l));
}

static rcv_status receive_part(const rcv_learner *l, rcvi_comm *world, int rank, local_part *p) {
    int64_t sizes[2];
    RCVI_TRY(rcvi_comm_transfer_bytes(world, RCVI_RECEIVE, rank, sizes, sizeof sizes));
    RCVI_TRY(make_ranges(l->context, sizes[0], p));
    p->count = sizes[0];
    p->elements = sizes[1];
    RCVI_TRY(allocate_data(l, p));
    RCVI_TRY(rcvi_comm_transfer_bytes(world, RCVI_RECEIVE, rank, p->ranges, (size_t)p->count * sizeof *p->ranges));
    return rcvi_comm_transfer_bytes(world, RCVI_RECEIVE, rank, p->data, (size_t)p->elements * rcvi_real_bytes(l));
}

typedef enum { TO_WHOLE, FROM_WHOLE } direction;

/* Copies between the part's data and an array of all elements, both in the host's memory. */
static void copy_ranges(const rcv_learner *l, const local_part *p, void *whole, direction way) {
    int64_t at = 0;
    for (int64_t i = 0; i < p->count; at += p->ranges[i++].count) {
        void *there = rcvi_element_at(l, whole, p->ranges[i].first), *here = rcvi_element_at(l, p->data, at);
        size_t bytes = (size_t)p->ranges[i].count * rcvi_real_bytes(l);
        if (bytes) memcpy(way == TO_WHOLE ? there : here, way == TO_WHOLE ? here : there, bytes);
    }
}

/* Rank 0 puts together its own part and those of ranks 1 .. senders - 1; these send theirs. */
static rcv_status assemble(const rcv_learner *l, const rcvi_topology *topology, local_part *p, int senders,
                           int64_t elements, void **host) {
    int rank = topology ? rcvi_comm_rank(topology->world) : 0;
    if (rank > 0) return rank < senders ? send_part(l, topology->world, p) : RCV_OK;
    *host = rcvi_new(l->context, (size_t)elements, rcvi_real_bytes(l));
    rcv_status status = *host ? RCV_OK : RCV_NO_MEMORY;
    if (*host) copy_ranges(l, p, *host, TO_WHOLE);
    for (int r = 1; r < senders && !status; r++) {
        local_part other = {0};
        status = receive_part(l, topology->world, r, &other);
        if (!status) copy_ranges(l, &other, *host, TO_WHOLE);
        free_part(l->context, &other);
    }
    if (!status) return RCV_OK;
    rcvi_free(l->context, *host);
    *host = NULL;
    return status;
}

static int world_size(const rcvi_topology *topology) { return topology ? rcvi_comm_size(topology->world) : 1; }

/* ---- parameters and moments ---- */

rcv_status rcvi_collect_array(const rcv_learner *l, const rcvi_topology *topology, const void *array,
                              rcvi_array_kind kind, void **host) {
    local_part p = {0};
    *host = NULL;
    rcv_status status = find_ranges(l, topology, kind, &p);
    if (!status) status = allocate_data(l, &p);
    if (!status) status = rcvi_device_read(l, p.data, array, (size_t)p.elements * rcvi_real_bytes(l));
    bool shares = topology && topology->shares_optimiser && kind == RCVI_OF_SHARES;
    int senders = shares ? world_size(topology) : rcvi_topology_stages(topology);
    if (!status) status = assemble(l, topology, &p, senders, l->elements, host);
    free_part(l->context, &p);
    return status;
}

rcv_status rcvi_distribute_array(const rcv_learner *l, const rcvi_topology *topology, const void *host,
                                 rcvi_array_kind kind, void *array) {
    local_part p = {0};
    rcv_status status = find_ranges(l, topology, kind, &p);
    if (!status) status = allocate_data(l, &p);
    if (!status) {
        copy_ranges(l, &p, (void *)(uintptr_t)host, FROM_WHOLE);
        status = rcvi_device_write(l, array, p.data, (size_t)p.elements * rcvi_real_bytes(l));
    }
    free_part(l->context, &p);
    return status;
}

/* ---- texts ---- */

static rcv_status receive_text(rcv_context *context, rcvi_comm *world, int rank, rcvi_text *all) {
    int64_t bytes;
    RCVI_TRY(rcvi_comm_transfer_bytes(world, RCVI_RECEIVE, rank, &bytes, sizeof bytes));
    char *text = rcvi_new(context, (size_t)bytes, 1);
    if (!text) return RCV_NO_MEMORY;
    rcv_status status = rcvi_comm_transfer_bytes(world, RCVI_RECEIVE, rank, text, (size_t)bytes);
    if (!status) rcvi_text_add_bytes(all, text, (size_t)bytes);
    rcvi_free(context, text);
    return status;
}

rcv_status rcvi_collect_text(rcv_context *context, const rcvi_topology *topology, const char *text, char **all) {
    int rank = topology ? rcvi_comm_rank(topology->world) : 0, senders = rcvi_topology_stages(topology);
    int64_t bytes = (int64_t)strlen(text);
    *all = NULL;
    if (rank >= senders) return RCV_OK;
    if (rank > 0) {
        RCVI_TRY(rcvi_comm_transfer_bytes(topology->world, RCVI_SEND, 0, &bytes, sizeof bytes));
        return rcvi_comm_transfer_bytes(topology->world, RCVI_SEND, 0, (void *)(uintptr_t)text, (size_t)bytes);
    }
    rcvi_text out;
    rcvi_text_init(&out, context);
    rcvi_text_add_bytes(&out, text, (size_t)bytes);
    rcv_status status = RCV_OK;
    for (int r = 1; r < senders && !status; r++) status = receive_text(context, topology->world, r, &out);
    if (!status) return rcvi_text_take(&out, all);
    rcvi_text_drop(&out);
    return status;
}

/* ---- carried states ---- */

/* A block for each layer and direction, and within it the sequences of each micro-batch: in the order in which the states of one
 * micro-batch after the other have them. */
static rcv_status find_state_ranges(const rcvi_work *w, const rcvi_window *v, size_t state, local_part *p) {
    const rcv_learner *l = w->learner;
    const rcv_net *net = l->net, *part = l->slice;
    RCVI_TRY(make_ranges(l->context, v->micro * part->options.layers * part->directions, p));
    for (int64_t m = 0; m < v->micro; m++) {
        for (int64_t i = 0; i < part->options.layers; i++) {
            for (int64_t d = 0; d < part->directions; d++) {
                int64_t size = rcv_net_state_size(part, state, i, d > 0);
                int64_t block = rcvi_state_offset(net, state, part->first + i, d) * v->whole;
                add_range(p, block + (v->first + m * v->batch) * size, v->batch * size);
            }
        }
    }
    return allocate_data(l, p);
}

typedef enum { FROM_WINDOW, TO_WINDOW } state_direction;

/* Copies between the window, micro-batch after micro-batch, and the part's data. */
static rcv_status copy_state(const rcvi_work *w, const rcvi_window *v, size_t state, const local_part *p,
                             state_direction way) {
    size_t count = rcv_net_state_count(w->learner->slice), bytes = rcvi_window_state_bytes(w, v, state);
    for (int64_t m = 0; m < v->micro; m++) {
        void *there = rcvi_window_states(v, count, m, 0)[state], *here = (char *)p->data + (size_t)m * bytes;
        RCVI_TRY(way == FROM_WINDOW ? w->ops->fetch(w->learn, here, there, bytes)
                                    : w->ops->send(w->learn, there, here, bytes));
    }
    return RCV_OK;
}

rcv_status rcvi_collect_state(const rcvi_work *w, const rcvi_window *v, size_t state, void **host) {
    const rcvi_topology *topology = w->options.topology;
    int64_t elements = rcv_net_state(w->learner->net, state)->total * v->whole;
    local_part p = {0};
    *host = NULL;
    rcv_status status = find_state_ranges(w, v, state, &p);
    if (!status) status = copy_state(w, v, state, &p, FROM_WINDOW);
    if (!status) status = assemble(w->learner, topology, &p, world_size(topology), elements, host);
    free_part(w->learner->context, &p);
    return status;
}

rcv_status rcvi_distribute_state(const rcvi_work *w, const rcvi_window *v, size_t state, const void *host) {
    local_part p = {0};
    rcv_status status = find_state_ranges(w, v, state, &p);
    if (!status) {
        copy_ranges(w->learner, &p, (void *)(uintptr_t)host, FROM_WHOLE);
        status = copy_state(w, v, state, &p, TO_WINDOW);
    }
    free_part(w->learner->context, &p);
    return status;
}
