/* The world: opening, closing, and its properties. */
#include "comm/internal.h"

#include <stdio.h>
#include <string.h>

/* ---- communicators ---- */

rcv_status rcvi_comm_init(rcvi_comm *comm, rcvi_world *world, int rank, int size) {
    *comm = (rcvi_comm){.world = world, .rank = rank, .size = size};
    comm->ranks = rcvi_new(world->context, (size_t)size, sizeof *comm->ranks);
    comm->words = rcvi_new(world->context, (size_t)size, 2 * sizeof *comm->words);
    comm->word_starts = rcvi_new(world->context, (size_t)size + 1, sizeof *comm->word_starts);
    if (!comm->ranks || !comm->words || !comm->word_starts) return RCV_NO_MEMORY;
    for (int i = 0; i < size; i++) comm->ranks[i] = i;
    for (int i = 0; i <= size; i++) comm->word_starts[i] = i * (int64_t)(2 * sizeof *comm->words);
    return RCV_OK;
}

void rcvi_comm_release(rcvi_comm *comm) {
    rcvi_world *w = comm->world;
    if (comm->device_comm && !rcvi_world_is_foreign(w))
        w->device->collectives->close(comm->device_comm, atomic_load(&w->broken));
    rcvi_free(w->context, comm->ranks);
    rcvi_free(w->context, comm->words);
    rcvi_free(w->context, comm->word_starts);
}

rcv_status rcvi_comm_all_gather_words(rcvi_comm *comm, int32_t first, int32_t second) {
    comm->words[2 * comm->rank] = first;
    comm->words[2 * comm->rank + 1] = second;
    rcvi_transfer_options gather = {.kind = RCVI_ALL_GATHER,
                                    .data = comm->words,
                                    .count = comm->word_starts[comm->size],
                                    .starts = comm->word_starts};
    return rcvi_transfer_run(comm, &gather);
}

/* ---- the world ---- */

typedef enum { SELF, MPI, NCCL } transport_kind;

static rcv_status choose_transport(const char *name, transport_kind *kind) {
    int rank, size;
    bool launched = rcvi_find_launcher(&rank, &size);
    *kind = launched ? MPI : SELF;
    if (!name) return RCV_OK;
    static const char *const names[] = {[SELF] = "self", [MPI] = "mpi", [NCCL] = "nccl"};
    size_t i = 0;
    while (i < 3 && strcmp(name, names[i])) i++;
    if (i == 3) return rcvi_fail(RCV_INVALID, "there is no transport %s: it is self, mpi or nccl", name);
    *kind = (transport_kind)i;
    if (*kind == SELF && size > 1)
        return rcvi_fail(RCV_INVALID, "the transport self is for one rank, but %d were started", size);
    if (*kind != SELF && !launched)
        return rcvi_fail(RCV_INVALID, "this process was not started by mpirun, which the transport %s needs", name);
    return RCV_OK;
}

bool rcvi_world_is_foreign(const rcvi_world *w) { return w->transport && w->process != rcvi_fork_generation(); }

static void free_world(rcvi_world *w) {
    rcv_context *context = w->context;
    bool foreign = rcvi_world_is_foreign(w);
    if (!foreign) rcvi_staging_close(w);
    rcvi_comm_release(&w->all);
    rcvi_heartbeat_free(w);
    for (rcvi_scratch *scratch; (scratch = w->free_scratch);) {
        w->free_scratch = scratch->next;
        rcvi_free(context, scratch);
    }
    if (!foreign) { /* in a child of fork() destroying a condition could wait for threads that it does not have */
        pthread_mutex_destroy(&w->lock);
        pthread_cond_destroy(&w->wake);
        pthread_cond_destroy(&w->completed);
    }
    rcvi_free(context, w);
}

static rcv_status open_transport(rcvi_world *w) {
    RCVI_TRY(rcvi_transport_open(&w->transport));
    rcv_status status = rcvi_progress_thread_open(w);
    if (status) {
        w->transport = NULL; /* there is no progress thread to close */
        return status;
    }
    snprintf(w->name, sizeof w->name, "mpi (%s)", w->facts.name);
    RCVI_TRY(rcvi_comm_init(&w->all, w, w->facts.rank, w->facts.size));
    RCVI_TRY(rcvi_heartbeat_new(w));
    rcvi_progress_thread_begin(w);
    return RCV_OK;
}

static rcv_status init_world(rcvi_world *w, const rcvi_comm_options *options, transport_kind kind) {
    w->timeout = options->timeout;
    w->requires_collectives = kind == NCCL;
    w->may_use_collectives = kind == NCCL || !options->transport;
    if (kind != SELF) return open_transport(w);
    w->facts = (rcvi_transport_facts){.size = 1, .local_size = 1};
    snprintf(w->name, sizeof w->name, "self");
    return rcvi_comm_init(&w->all, w, 0, 1);
}

rcv_status rcvi_comm_open(rcv_context *context, const rcvi_comm_options *options, rcvi_comm **world) {
    transport_kind kind;
    *world = NULL;
    RCVI_TRY(choose_transport(options->transport, &kind));
    rcvi_world *w = rcvi_new(context, 1, sizeof *w);
    if (!w) return RCV_NO_MEMORY;
    w->context = context;
    w->process = rcvi_fork_generation();
    w->all.world = w;
    w->submitted_end = &w->submitted;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    pthread_cond_init(&w->completed, NULL);
    rcv_status status = init_world(w, options, kind);
    *world = &w->all;
    if (!status) return RCV_OK;
    rcvi_comm_close(*world);
    *world = NULL;
    return status;
}

void rcvi_comm_close(rcvi_comm *world) {
    if (!world) return;
    rcvi_world *w = world->world;
    if (w->transport && !rcvi_world_is_foreign(w)) rcvi_progress_thread_close(w);
    free_world(w);
}

int rcvi_comm_rank(const rcvi_comm *comm) { return comm->rank; }

int rcvi_comm_size(const rcvi_comm *comm) { return comm->size; }

int rcvi_comm_local_size(const rcvi_comm *world) { return world->world->facts.local_size; }

int64_t rcvi_comm_cores(const rcvi_comm *world, int64_t cores) {
    int64_t ranks = rcvi_comm_local_size(world), own = rcvi_available_cores();
    if (own < rcvi_cores()) return own < cores ? own : cores;
    return cores > ranks ? cores / ranks : 1;
}

const char *rcvi_comm_name(const rcvi_comm *comm) { return comm->world->name; }
