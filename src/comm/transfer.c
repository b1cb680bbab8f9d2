/* Transfers as the caller sees them: checked, submitted to the progress thread, waited for. */
#include "comm/internal.h"

#include <sched.h>
#include <stdio.h>

/* ---- checks ---- */

static const char *const kind_names[] = {
    [RCVI_ALL_REDUCE_SUM] = "an all-reduce",
    [RCVI_ALL_REDUCE_MAX] = "an all-reduce (maximum)",
    [RCVI_REDUCE_SCATTER] = "a reduce-scatter",
    [RCVI_ALL_GATHER] = "an all-gather",
    [RCVI_BROADCAST] = "a broadcast",
    [RCVI_SEND] = "a send",
    [RCVI_RECEIVE] = "a receive",
};

static bool is_reduced(const rcvi_transfer_options *o) {
    return o->kind == RCVI_ALL_REDUCE_SUM || o->kind == RCVI_ALL_REDUCE_MAX || o->kind == RCVI_REDUCE_SCATTER;
}

static bool is_point_to_point(const rcvi_transfer_options *o) {
    return o->kind == RCVI_SEND || o->kind == RCVI_RECEIVE;
}

static rcv_status check_peer(const rcvi_comm *comm, const rcvi_transfer_options *o) {
    if (!is_point_to_point(o) && o->kind != RCVI_BROADCAST) return RCV_OK;
    if (o->peer < 0 || o->peer >= comm->size)
        return rcvi_fail(RCV_INVALID, "%s with rank %d, in a communicator of %d", kind_names[o->kind], o->peer,
                         comm->size);
    if (is_point_to_point(o) && o->peer == comm->rank)
        return rcvi_fail(RCV_INVALID, "rank %d cannot send to itself or receive from itself", comm->rank);
    if (is_point_to_point(o) && (o->tag < 0 || o->tag >= RCVI_COMM_TAGS))
        return rcvi_fail(RCV_INVALID, "tag %d is not 0 to %d", o->tag, RCVI_COMM_TAGS - 1);
    return RCV_OK;
}

static rcv_status check_shares(const rcvi_comm *comm, const rcvi_transfer_options *o) {
    if (o->kind != RCVI_REDUCE_SCATTER && o->kind != RCVI_ALL_GATHER) return RCV_OK;
    if (!o->starts) return rcvi_fail(RCV_INVALID, "%s needs the starts of its shares, not NULL", kind_names[o->kind]);
    bool rising = o->starts[0] == 0 && o->starts[comm->size] == o->count;
    for (int i = 0; i < comm->size; i++) rising &= o->starts[i] <= o->starts[i + 1];
    if (!rising)
        return rcvi_fail(RCV_INVALID, "the starts of %d shares do not rise from 0 to %lld", comm->size,
                         (long long)o->count);
    return RCV_OK;
}

static rcv_status check(const rcvi_comm *comm, const rcvi_transfer_options *o) {
    if ((unsigned)o->kind > RCVI_RECEIVE || (unsigned)o->type > RCVI_TRANSFER_DOUBLE)
        return rcvi_fail(RCV_INVALID, "there is no transfer of kind %d and type %d", (int)o->kind, (int)o->type);
    int64_t bytes;
    if (!rcvi_multiply(o->count, (int64_t)rcvi_transfer_bytes(o->type), &bytes))
        return rcvi_fail(RCV_INVALID, "%s of %lld elements", kind_names[o->kind], (long long)o->count);
    if (o->count > 0 && !o->data) return rcvi_fail(RCV_INVALID, "%s needs data, not NULL", kind_names[o->kind]);
    if (is_reduced(o) && o->type == RCVI_TRANSFER_BYTES)
        return rcvi_fail(RCV_INVALID, "%s is of floats or doubles, not of bytes", kind_names[o->kind]);
    if (o->as_bfloat16 && o->type != RCVI_TRANSFER_FLOAT)
        return rcvi_fail(RCV_INVALID, "only floats can be sent as bfloat16");
    RCVI_TRY(check_peer(comm, o));
    return check_shares(comm, o);
}

/* ---- memory ---- */

static rcvi_scratch *borrow_scratch(rcvi_world *w) {
    pthread_mutex_lock(&w->lock);
    rcvi_scratch *scratch = w->free_scratch;
    if (scratch) w->free_scratch = scratch->next;
    pthread_mutex_unlock(&w->lock);
    return scratch ? scratch : rcvi_new(w->context, 1, sizeof *scratch);
}

static void return_buffers(rcvi_world *w, rcvi_scratch *scratch, rcvi_staging_buffer *staging) {
    pthread_mutex_lock(&w->lock);
    if (scratch) {
        scratch->next = w->free_scratch;
        w->free_scratch = scratch;
    }
    if (staging) {
        staging->next = w->free_staging;
        w->free_staging = staging;
    }
    pthread_mutex_unlock(&w->lock);
}

rcv_status rcvi_transfer_allocate(rcvi_transfer *t, size_t state_bytes, size_t requests, bool scratch) {
    rcvi_world *w = t->comm->world;
    t->state = rcvi_new(w->context, 1, state_bytes);
    t->requests = rcvi_new(w->context, requests, sizeof *t->requests);
    t->request_count = t->requests ? requests : 0;
    if (!t->state || !t->requests) return RCV_NO_MEMORY;
    if (scratch) t->scratch = borrow_scratch(w);
    return scratch && !t->scratch ? RCV_NO_MEMORY : RCV_OK;
}

static void free_transfer(rcvi_transfer *t) {
    rcv_context *context = t->comm->world->context;
    return_buffers(t->comm->world, t->scratch, t->staging);
    rcvi_free(context, t->state);
    rcvi_free(context, t->requests);
    rcvi_free(context, t);
}

/* ---- a rank alone: nothing is sent, and there is no progress thread ---- */

bool rcvi_transfer_is_ready(const rcvi_transfer_options *o) {
    return !o->counter || atomic_load_explicit(o->counter, memory_order_acquire) >= o->ready;
}

static rcv_status run_alone(rcvi_transfer *t) {
    const rcvi_transfer_options *o = &t->options;
    t->times.started = rcvi_now();
    rcv_status status = RCV_OK;
    if (o->as_bfloat16 && o->on_device) {
        status = rcvi_staging_round(t->comm, o);
    } else if (o->as_bfloat16) {
        rcvi_round_to_bfloat16(o->data, o->count);
    }
    t->times.completed = rcvi_now();
    t->completed = true;
    return status;
}

static rcv_status start_alone(rcvi_transfer *t) { return rcvi_transfer_is_ready(&t->options) ? run_alone(t) : RCV_OK; }

static rcv_status wait_alone(rcvi_transfer *t) {
    while (!rcvi_transfer_is_ready(&t->options)) {
        if (atomic_load(&t->comm->world->broken)) return rcvi_world_broken(t->comm->world);
        rcvi_sleep(40000);
    }
    return t->completed ? RCV_OK : run_alone(t);
}

/* ---- start and wait ---- */

static const rcvi_transfer_operations *operations_for(const rcvi_transfer_options *o) {
    if (is_point_to_point(o) || o->kind == RCVI_BROADCAST) return &rcvi_broadcast_operations;
    bool all_reduce = o->kind == RCVI_ALL_REDUCE_SUM || o->kind == RCVI_ALL_REDUCE_MAX;
    return all_reduce && o->count <= RCVI_COMM_SMALL && !o->as_bfloat16 ? &rcvi_small_all_reduce_operations
                                                                        : &rcvi_ring_operations;
}

static void submit(rcvi_world *w, rcvi_transfer *t) {
    pthread_mutex_lock(&w->lock);
    *w->submitted_end = t;
    w->submitted_end = &t->next;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

static rcv_status refuse_child(void) {
    return rcvi_fail(RCV_UNSUPPORTED,
                     "a child of fork() is not a rank: only the process that opened the world can use it");
}

rcv_status rcvi_transfer_submit(rcvi_comm *comm, const rcvi_transfer_options *o,
                                const rcvi_transfer_operations *operations, rcvi_transfer **transfer) {
    rcvi_world *w = comm->world;
    *transfer = NULL;
    if (rcvi_world_is_foreign(w)) return refuse_child();
    atomic_fetch_add(&w->progress, 1);
    if (atomic_load(&w->broken)) return rcvi_world_broken(w);
    rcvi_transfer *t = rcvi_new(w->context, 1, sizeof *t);
    if (!t) return RCV_NO_MEMORY;
    *t = (rcvi_transfer){.comm = comm, .options = *o, .operations = operations, .data = o->data};
    t->times.queued = rcvi_now();
    t->collective = !is_point_to_point(o);
    rcv_status status = RCV_OK;
    if (operations) {
        if (o->on_device) status = rcvi_staging_prepare(t);
        if (!status && t->operations->prepare) status = t->operations->prepare(t);
    } else {
        status = start_alone(t);
    }
    if (status) {
        free_transfer(t);
        return status;
    }
    if (t->collective) t->sequence = comm->sequence++;
    *transfer = t;
    if (operations) submit(w, t);
    return RCV_OK;
}

/* One rank has nothing to transfer. But where NCCL is requested by name, its collectives run all the same. */
static bool is_alone(const rcvi_comm *comm, const rcvi_transfer_options *o) {
    const rcvi_world *w = comm->world;
    return comm->size == 1 && !(w->requires_collectives && w->uses_collectives && o->on_device && !o->as_bfloat16 &&
                                !is_point_to_point(o));
}

rcv_status rcvi_transfer_start(rcvi_comm *comm, const rcvi_transfer_options *o, rcvi_transfer **transfer) {
    *transfer = NULL;
    RCVI_TRY(check(comm, o));
    return rcvi_transfer_submit(comm, o, is_alone(comm, o) ? NULL : operations_for(o), transfer);
}

/* Polls for a limited time, where a GPU computes and the rank has a core to spare. */
static void poll_completion(const rcvi_transfer *t) {
    const rcvi_world *w = t->comm->world;
    double begun = rcvi_now();
    while (atomic_load(&w->polls) && !atomic_load(&t->completed) && rcvi_may_poll(w, rcvi_now() - begun)) sched_yield();
}

static rcv_status wait_completion(rcvi_transfer *t) {
    rcvi_world *w = t->comm->world;
    atomic_fetch_add(&w->waiting, 1);
    poll_completion(t);
    pthread_mutex_lock(&w->lock);
    w->waited_for = t;
    while (!t->completed) pthread_cond_wait(&w->completed, &w->lock);
    w->waited_for = NULL;
    pthread_mutex_unlock(&w->lock);
    atomic_fetch_sub(&w->waiting, 1);
    return t->status ? rcvi_world_broken(w) : RCV_OK;
}

rcv_status rcvi_transfer_wait(rcvi_transfer *t, rcvi_transfer_times *times) {
    if (!t) return RCV_OK;
    if (rcvi_world_is_foreign(t->comm->world)) return refuse_child(); /* the transfer is the parent's */
    atomic_fetch_add(&t->comm->world->progress, 1);
    rcv_status status = t->operations ? wait_completion(t) : wait_alone(t);
    atomic_fetch_add(&t->comm->world->progress, 1);
    if (times) *times = t->times;
    free_transfer(t);
    return status;
}

rcv_status rcvi_transfer_run(rcvi_comm *comm, const rcvi_transfer_options *options) {
    rcvi_transfer *transfer = NULL;
    RCVI_TRY(rcvi_transfer_start(comm, options, &transfer));
    return rcvi_transfer_wait(transfer, NULL);
}

rcv_status rcvi_comm_all_reduce(rcvi_comm *comm, rcvi_transfer_kind kind, double *numbers, int64_t count) {
    const rcvi_transfer_options o = {.kind = kind, .type = RCVI_TRANSFER_DOUBLE, .data = numbers, .count = count};
    return rcvi_transfer_run(comm, &o);
}

rcv_status rcvi_comm_transfer_bytes(rcvi_comm *comm, rcvi_transfer_kind kind, int peer, void *data, size_t bytes) {
    const rcvi_transfer_options o = {
        .kind = kind, .type = RCVI_TRANSFER_BYTES, .data = data, .count = (int64_t)bytes, .peer = peer};
    return rcvi_transfer_run(comm, &o);
}

rcvi_comm_statistics rcvi_comm_get_statistics(const rcvi_comm *world) {
    const rcvi_world *w = world->world;
    return (rcvi_comm_statistics){atomic_load(&w->transfers), atomic_load(&w->bytes)};
}
