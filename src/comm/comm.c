/* The world: opened, left, and what it says of itself. */
#include "comm/parts.h"

#include <stdio.h>
#include <string.h>

/* ---- groups of ranks ---- */

rcv_status rcvi_comm_fill(rcvi_comm *comm, rcvi_world *world, int rank, int size) {
    *comm = (rcvi_comm){.world = world, .rank = rank, .size = size};
    comm->ranks = rcvi_new(world->context, (size_t)size, sizeof *comm->ranks);
    comm->words = rcvi_new(world->context, (size_t)size, 2 * sizeof *comm->words);
    comm->word_starts = rcvi_new(world->context, (size_t)size + 1, sizeof *comm->word_starts);
    if (!comm->ranks || !comm->words || !comm->word_starts) return RCV_NO_MEMORY;
    for (int i = 0; i < size; i++) comm->ranks[i] = i;
    for (int i = 0; i <= size; i++) comm->word_starts[i] = i * (int64_t)(2 * sizeof *comm->words);
    return RCV_OK;
}

void rcvi_comm_empty(rcvi_comm *comm) {
    rcv_context *context = comm->world->context;
    if (!rcvi_world_is_foreign(comm->world)) rcvi_nccl_close(comm->nccl, atomic_load(&comm->world->broken));
    rcvi_free(context, comm->ranks);
    rcvi_free(context, comm->words);
    rcvi_free(context, comm->word_starts);
}

rcv_status rcvi_comm_tell_words(rcvi_comm *comm, int32_t first, int32_t second) {
    comm->words[2 * comm->rank] = first;
    comm->words[2 * comm->rank + 1] = second;
    rcvi_transfer_options gather = {.kind = RCVI_GATHER_ALL,
                                    .data = comm->words,
                                    .count = comm->word_starts[comm->size],
                                    .starts = comm->word_starts};
    return rcvi_comm_do(comm, &gather);
}

/* ---- the world ---- */

typedef enum { SELF, MPI, NCCL } choice;

static rcv_status choose(const char *asked, choice *chosen) {
    int rank, size;
    bool launched = rcvi_comm_launched(&rank, &size);
    *chosen = launched ? MPI : SELF;
    if (!asked) return RCV_OK;
    static const char *const names[] = {[SELF] = "self", [MPI] = "mpi", [NCCL] = "nccl"};
    size_t i = 0;
    while (i < 3 && strcmp(asked, names[i])) i++;
    if (i == 3) return rcvi_fail(RCV_INVALID, "there is no transport %s: it is self, mpi or nccl", asked);
    *chosen = (choice)i;
    if (*chosen == SELF && size > 1)
        return rcvi_fail(RCV_INVALID, "the transport self is for one rank, but %d were started", size);
    if (*chosen != SELF && !launched)
        return rcvi_fail(RCV_INVALID, "this process was not started by mpirun, which the transport %s needs", asked);
    return RCV_OK;
}

bool rcvi_world_is_foreign(const rcvi_world *w) { return w->transport && w->process != rcvi_process(); }

static void free_world(rcvi_world *w) {
    rcv_context *context = w->context;
    bool foreign = rcvi_world_is_foreign(w);
    if (!foreign) rcvi_staged_close(w);
    rcvi_comm_empty(&w->all);
    rcvi_watch_free(w);
    for (rcvi_scratch *scratch; (scratch = w->scratch);) {
        w->scratch = scratch->next;
        rcvi_free(context, scratch);
    }
    if (!foreign) { /* nobody would come who waits for a condition */
        pthread_mutex_destroy(&w->lock);
        pthread_cond_destroy(&w->wake);
        pthread_cond_destroy(&w->ended);
    }
    rcvi_free(context, w);
}

static rcv_status open_ranks(rcvi_world *w) {
    RCVI_TRY(rcvi_transport_open(&w->transport));
    rcv_status status = rcvi_courier_open(w);
    if (status) {
        w->transport = NULL; /* there is no courier to be left */
        return status;
    }
    snprintf(w->name, sizeof w->name, "mpi (%s)", w->facts.name);
    RCVI_TRY(rcvi_comm_fill(&w->all, w, w->facts.rank, w->facts.size));
    RCVI_TRY(rcvi_watch_new(w));
    rcvi_courier_begin(w);
    return RCV_OK;
}

static rcv_status fill_world(rcvi_world *w, const rcvi_comm_options *options, choice chosen) {
    w->timeout = options->timeout;
    w->wants_nccl = chosen == NCCL;
    w->may_use_nccl = chosen == NCCL || !options->transport;
    if (chosen != SELF) return open_ranks(w);
    w->facts = (rcvi_transport_facts){.size = 1, .here = 1};
    snprintf(w->name, sizeof w->name, "self");
    return rcvi_comm_fill(&w->all, w, 0, 1);
}

rcv_status rcvi_comm_open(rcv_context *context, const rcvi_comm_options *options, rcvi_comm **world) {
    choice chosen;
    *world = NULL;
    RCVI_TRY(choose(options->transport, &chosen));
    rcvi_world *w = rcvi_new(context, 1, sizeof *w);
    if (!w) return RCV_NO_MEMORY;
    w->context = context;
    w->process = rcvi_process();
    w->all.world = w;
    w->asked_end = &w->asked;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->wake, NULL);
    pthread_cond_init(&w->ended, NULL);
    rcv_status status = fill_world(w, options, chosen);
    *world = &w->all;
    if (!status) return RCV_OK;
    rcvi_comm_close(*world);
    *world = NULL;
    return status;
}

void rcvi_comm_close(rcvi_comm *world) {
    if (!world) return;
    rcvi_world *w = world->world;
    if (w->transport && !rcvi_world_is_foreign(w)) rcvi_courier_close(w);
    free_world(w);
}

int rcvi_comm_rank(const rcvi_comm *comm) { return comm->rank; }

int rcvi_comm_size(const rcvi_comm *comm) { return comm->size; }

int rcvi_comm_here(const rcvi_comm *world) { return world->world->facts.here; }

int64_t rcvi_comm_cores(const rcvi_comm *world, int64_t cores) {
    int64_t here = rcvi_comm_here(world), own = rcvi_own_cores();
    if (own < rcvi_cores()) return own < cores ? own : cores;
    return cores > here ? cores / here : 1;
}

const char *rcvi_comm_name(const rcvi_comm *comm) { return comm->world->name; }
