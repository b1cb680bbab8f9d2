/* Transfers as the caller sees them: what is asked for is checked, given to the courier, and waited for. */
#include "comm/parts.h"

#include <sched.h>
#include <stdio.h>

/* ---- checks ---- */

static const char *const kind_names[] = {
    [RCVI_SUM_ALL] = "a sum",       [RCVI_MAX_ALL] = "a maximum",     [RCVI_SUM_SHARES] = "a sum of shares",
    [RCVI_GATHER_ALL] = "a gather", [RCVI_BROADCAST] = "a broadcast", [RCVI_SEND] = "a send",
    [RCVI_RECEIVE] = "a receive",
};

static bool is_summed(const rcvi_transfer_options *o) {
    return o->kind == RCVI_SUM_ALL || o->kind == RCVI_MAX_ALL || o->kind == RCVI_SUM_SHARES;
}

static bool is_paired(const rcvi_transfer_options *o) { return o->kind == RCVI_SEND || o->kind == RCVI_RECEIVE; }

static rcv_status check_peer(const rcvi_comm *comm, const rcvi_transfer_options *o) {
    if (!is_paired(o) && o->kind != RCVI_BROADCAST) return RCV_OK;
    if (o->peer < 0 || o->peer >= comm->size)
        return rcvi_fail(RCV_INVALID, "%s with rank %d, in a group of %d", kind_names[o->kind], o->peer, comm->size);
    if (is_paired(o) && o->peer == comm->rank)
        return rcvi_fail(RCV_INVALID, "rank %d exchanges nothing with itself", comm->rank);
    if (is_paired(o) && (o->tag < 0 || o->tag >= RCVI_COMM_TAGS))
        return rcvi_fail(RCV_INVALID, "tag %d is not 0 to %d", o->tag, RCVI_COMM_TAGS - 1);
    return RCV_OK;
}

static rcv_status check_shares(const rcvi_comm *comm, const rcvi_transfer_options *o) {
    if (o->kind != RCVI_SUM_SHARES && o->kind != RCVI_GATHER_ALL) return RCV_OK;
    if (!o->starts) return rcvi_fail(RCV_INVALID, "%s needs to know where shares begin", kind_names[o->kind]);
    bool rising = o->starts[0] == 0 && o->starts[comm->size] == o->count;
    for (int i = 0; i < comm->size; i++) rising &= o->starts[i] <= o->starts[i + 1];
    if (!rising)
        return rcvi_fail(RCV_INVALID, "shares do not rise from 0 to %lld in %d parts", (long long)o->count, comm->size);
    return RCV_OK;
}

static rcv_status check(const rcvi_comm *comm, const rcvi_transfer_options *o) {
    if ((unsigned)o->kind > RCVI_RECEIVE || (unsigned)o->type > RCVI_TRANSFER_DOUBLE)
        return rcvi_fail(RCV_INVALID, "there is no transfer of kind %d and type %d", (int)o->kind, (int)o->type);
    int64_t bytes;
    if (!rcvi_multiply(o->count, (int64_t)rcvi_transfer_bytes(o->type), &bytes))
        return rcvi_fail(RCV_INVALID, "%s of %lld elements", kind_names[o->kind], (long long)o->count);
    if (o->count > 0 && !o->data) return rcvi_fail(RCV_INVALID, "%s needs data, not NULL", kind_names[o->kind]);
    if (is_summed(o) && o->type == RCVI_TRANSFER_BYTES)
        return rcvi_fail(RCV_INVALID, "%s is of floats or doubles, not of bytes", kind_names[o->kind]);
    if (o->narrow && o->type != RCVI_TRANSFER_FLOAT) return rcvi_fail(RCV_INVALID, "only floats travel as bfloat16");
    RCVI_TRY(check_peer(comm, o));
    return check_shares(comm, o);
}

/* ---- memory ---- */

static rcvi_scratch *borrow(rcvi_world *w) {
    pthread_mutex_lock(&w->lock);
    rcvi_scratch *scratch = w->scratch;
    if (scratch) w->scratch = scratch->next;
    pthread_mutex_unlock(&w->lock);
    return scratch ? scratch : rcvi_new(w->context, 1, sizeof *scratch);
}

static void give_back(rcvi_world *w, rcvi_scratch *scratch, rcvi_berth *berth) {
    pthread_mutex_lock(&w->lock);
    if (scratch) {
        scratch->next = w->scratch;
        w->scratch = scratch;
    }
    if (berth) {
        berth->next = w->berths;
        w->berths = berth;
    }
    pthread_mutex_unlock(&w->lock);
}

rcv_status rcvi_transfer_room(rcvi_transfer *t, size_t state_bytes, size_t requests, bool scratch) {
    rcvi_world *w = t->comm->world;
    t->state = rcvi_new(w->context, 1, state_bytes);
    t->requests = rcvi_new(w->context, requests, sizeof *t->requests);
    t->request_count = t->requests ? requests : 0;
    if (!t->state || !t->requests) return RCV_NO_MEMORY;
    if (scratch) t->scratch = borrow(w);
    return scratch && !t->scratch ? RCV_NO_MEMORY : RCV_OK;
}

static void drop(rcvi_transfer *t) {
    rcv_context *context = t->comm->world->context;
    give_back(t->comm->world, t->scratch, t->berth);
    rcvi_free(context, t->state);
    rcvi_free(context, t->requests);
    rcvi_free(context, t);
}

/* ---- a rank alone: nothing to exchange, and no courier ---- */

static rcv_status do_alone(rcvi_transfer *t) {
    const rcvi_transfer_options *o = &t->options;
    t->times.begun = rcvi_now();
    rcv_status status = RCV_OK;
    if (o->narrow && o->on_device) {
        status = rcvi_staged_round(t->comm, o);
    } else if (o->narrow) {
        rcvi_round(o->data, o->count);
    }
    t->times.ended = rcvi_now();
    t->ended = true;
    return status;
}

static rcv_status start_alone(rcvi_transfer *t) { return rcvi_counted(&t->options) ? do_alone(t) : RCV_OK; }

static rcv_status finish_alone(rcvi_transfer *t) {
    while (!rcvi_counted(&t->options)) {
        if (atomic_load(&t->comm->world->broken)) return rcvi_world_broken(t->comm->world);
        rcvi_nap(40000);
    }
    return t->ended ? RCV_OK : do_alone(t);
}

/* ---- start and finish ---- */

static const rcvi_exchange *exchange_for(const rcvi_transfer_options *o) {
    if (is_paired(o) || o->kind == RCVI_BROADCAST) return &rcvi_exchange_relay;
    bool whole = o->kind == RCVI_SUM_ALL || o->kind == RCVI_MAX_ALL;
    return whole && o->count <= RCVI_COMM_FEW && !o->narrow ? &rcvi_exchange_few : &rcvi_exchange_ring;
}

static void give(rcvi_world *w, rcvi_transfer *t) {
    pthread_mutex_lock(&w->lock);
    *w->asked_end = t;
    w->asked_end = &t->next;
    pthread_cond_signal(&w->wake);
    pthread_mutex_unlock(&w->lock);
}

static rcv_status refuse_child(void) {
    return rcvi_fail(RCV_UNSUPPORTED,
                     "a child of fork() is no rank: only the process that opened the world can use it");
}

rcv_status rcvi_transfer_ask(rcvi_comm *comm, const rcvi_transfer_options *o, const rcvi_exchange *exchange,
                             rcvi_transfer **transfer) {
    rcvi_world *w = comm->world;
    *transfer = NULL;
    if (rcvi_world_is_foreign(w)) return refuse_child();
    atomic_fetch_add(&w->progress, 1);
    if (atomic_load(&w->broken)) return rcvi_world_broken(w);
    rcvi_transfer *t = rcvi_new(w->context, 1, sizeof *t);
    if (!t) return RCV_NO_MEMORY;
    *t = (rcvi_transfer){.comm = comm, .options = *o, .exchange = exchange, .data = o->data};
    t->times.asked = rcvi_now();
    t->collective = !is_paired(o);
    rcv_status status = RCV_OK;
    if (exchange) {
        if (o->on_device) status = rcvi_staged_prepare(t);
        if (!status && t->exchange->prepare) status = t->exchange->prepare(t);
    } else {
        status = start_alone(t);
    }
    if (status) {
        drop(t);
        return status;
    }
    if (t->collective) t->sequence = comm->sequence++;
    *transfer = t;
    if (exchange) give(w, t);
    return RCV_OK;
}

/* One rank has nothing to exchange; unless NCCL was asked for by its name, which then has its part all the same. */
static bool is_alone(const rcvi_comm *comm, const rcvi_transfer_options *o) {
    const rcvi_world *w = comm->world;
    return comm->size == 1 && !(w->wants_nccl && w->uses_nccl && o->on_device && !o->narrow && !is_paired(o));
}

rcv_status rcvi_comm_start(rcvi_comm *comm, const rcvi_transfer_options *o, rcvi_transfer **transfer) {
    *transfer = NULL;
    RCVI_TRY(check(comm, o));
    return rcvi_transfer_ask(comm, o, is_alone(comm, o) ? NULL : exchange_for(o), transfer);
}

static void linger(const rcvi_transfer *t) {
    const rcvi_world *w = t->comm->world;
    double begun = rcvi_now();
    while (atomic_load(&w->polls) && !atomic_load(&t->ended) && rcvi_may_yield(w, rcvi_now() - begun)) sched_yield();
}

static rcv_status await(rcvi_transfer *t) {
    rcvi_world *w = t->comm->world;
    atomic_fetch_add(&w->waiting, 1);
    linger(t);
    pthread_mutex_lock(&w->lock);
    w->awaited = t;
    while (!t->ended) pthread_cond_wait(&w->ended, &w->lock);
    w->awaited = NULL;
    pthread_mutex_unlock(&w->lock);
    atomic_fetch_sub(&w->waiting, 1);
    return t->status ? rcvi_world_broken(w) : RCV_OK;
}

rcv_status rcvi_comm_finish(rcvi_transfer *t, rcvi_transfer_times *times) {
    if (!t) return RCV_OK;
    if (rcvi_world_is_foreign(t->comm->world)) return refuse_child(); /* the transfer is the parent's */
    atomic_fetch_add(&t->comm->world->progress, 1);
    rcv_status status = t->exchange ? await(t) : finish_alone(t);
    atomic_fetch_add(&t->comm->world->progress, 1);
    if (times) *times = t->times;
    drop(t);
    return status;
}

rcv_status rcvi_comm_do(rcvi_comm *comm, const rcvi_transfer_options *options) {
    rcvi_transfer *transfer = NULL;
    RCVI_TRY(rcvi_comm_start(comm, options, &transfer));
    return rcvi_comm_finish(transfer, NULL);
}

rcv_status rcvi_comm_combine(rcvi_comm *comm, rcvi_transfer_kind kind, double *numbers, int64_t count) {
    const rcvi_transfer_options o = {.kind = kind, .type = RCVI_TRANSFER_DOUBLE, .data = numbers, .count = count};
    return rcvi_comm_do(comm, &o);
}

rcv_status rcvi_comm_pass(rcvi_comm *comm, rcvi_transfer_kind kind, int peer, void *data, size_t bytes) {
    const rcvi_transfer_options o = {
        .kind = kind, .type = RCVI_TRANSFER_BYTES, .data = data, .count = (int64_t)bytes, .peer = peer};
    return rcvi_comm_do(comm, &o);
}

rcvi_comm_tally rcvi_comm_count(const rcvi_comm *world) {
    const rcvi_world *w = world->world;
    return (rcvi_comm_tally){atomic_load(&w->transfers), atomic_load(&w->bytes)};
}
