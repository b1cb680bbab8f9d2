/* Collectives by NCCL, on a stream of its own. Its communicators do not block: what is not ready yet is asked for again. */
#include "comm/parts.h"

#include "device/cuda/engine/engine.h"

#include <nccl.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
#define FUNCTIONS(F)                                                                                                   \
    F(GetVersion) F(GetUniqueId) F(CommInitRankConfig) F(CommGetAsyncError) F(CommFinalize) F(CommDestroy)             \
    F(CommAbort) F(GetErrorString) F(AllReduce) F(Reduce) F(Broadcast) F(GroupStart) F(GroupEnd)
/* clang-format on */
#define MEMBER(NAME) __typeof__(nccl##NAME) *(NAME);
#define SYMBOL(NAME) "nccl" #NAME,

static const char *const symbols[] = {FUNCTIONS(SYMBOL)};
enum { SYMBOLS = sizeof symbols / sizeof *symbols };

/* Written once, before anybody reads it. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct { FUNCTIONS(MEMBER) } api;
static bool found;
static char name[32], reason[512];

static void open_library(void) {
    static const char *const names[] = {"libnccl.so.2", "libnccl.so", NULL};
    void *places[SYMBOLS] = {NULL};
    int version = 0;
    _Static_assert(sizeof places == sizeof api, "the table is function pointers and nothing else");
    if (!rcvi_library_open(names, symbols, places, SYMBOLS, reason, sizeof reason)) return;
    memcpy(&api, places, sizeof api);
    found = api.GetVersion(&version) == ncclSuccess;
    snprintf(name, sizeof name, "NCCL %d.%d.%d", version / 10000, version % 10000 / 100, version % 100);
    if (!found) snprintf(reason, sizeof reason, "NCCL does not tell its version");
}

rcv_status rcvi_nccl_there(void) {
    pthread_once(&once, open_library);
    return found ? RCV_OK : rcvi_fail(RCV_UNSUPPORTED, "NCCL is not there: %s", reason);
}

const char *rcvi_nccl_name(void) { return rcvi_nccl_there() ? NULL : name; }

static rcv_status check(ncclResult_t result, const char *what) {
    if (result == ncclSuccess || result == ncclInProgress) return RCV_OK;
    return rcvi_fail(RCV_UNSUPPORTED, "%s by NCCL failed: %s", what, api.GetErrorString(result));
}

/* ---- communicators ---- */

struct rcvi_nccl {
    rcv_context *context;
    int ordinal;
    ncclComm_t comm;
    cudaStream_t stream;
};

_Static_assert(sizeof(ncclUniqueId) == RCVI_NCCL_ID, "an id travels as it is");

rcv_status rcvi_nccl_make_id(char id[RCVI_NCCL_ID]) {
    ncclUniqueId made;
    RCVI_TRY(check(api.GetUniqueId(&made), "making an id"));
    memcpy(id, &made, sizeof made);
    return RCV_OK;
}

static rcv_status fill(rcvi_nccl *n, const char *id, int rank, int size) {
    ncclUniqueId made;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    memcpy(&made, id, sizeof made);
    RCVI_TRY(rcvi_cuda_first_stream(&n->stream));
    return check(api.CommInitRankConfig(&n->comm, size, made, rank, &config), "bringing ranks together");
}

rcv_status rcvi_nccl_open(rcv_context *context, int ordinal, const char id[RCVI_NCCL_ID], int rank, int size,
                          rcvi_nccl **nccl) {
    int before = 0;
    rcvi_nccl *n = *nccl = rcvi_new(context, 1, sizeof *n);
    if (!n) return RCV_NO_MEMORY;
    n->context = context;
    n->ordinal = ordinal;
    RCVI_TRY(rcvi_cuda_enter(ordinal, &before));
    rcv_status status = fill(n, id, rank, size);
    rcvi_cuda_leave(before);
    return status;
}

rcv_status rcvi_nccl_ready(rcvi_nccl *n, bool *ready) {
    ncclResult_t state = ncclSuccess, asked = api.CommGetAsyncError(n->comm, &state);
    *ready = asked == ncclSuccess && state == ncclSuccess;
    RCVI_TRY(check(asked, "a collective"));
    return check(state, "a collective");
}

/* All ranks leave together what is well. */
static void destroy(rcvi_nccl *n) {
    bool ready = false;
    api.CommFinalize(n->comm);
    while (!rcvi_nccl_ready(n, &ready) && !ready) rcvi_nap(1000000);
    api.CommDestroy(n->comm);
}

void rcvi_nccl_close(rcvi_nccl *n, bool broken) {
    if (!n) return;
    int before = 0;
    bool entered = !rcvi_cuda_enter(n->ordinal, &before);
    if (n->comm && broken) api.CommAbort(n->comm);
    if (n->comm && !broken) destroy(n);
    if (n->stream) cudaStreamDestroy(n->stream);
    if (entered) rcvi_cuda_leave(before);
    rcvi_free(n->context, n);
}

/* ---- the exchange ---- */

typedef struct {
    bool asked, recorded; /* of NCCL; behind what it enqueued */
    cudaEvent_t done;
} state;

static ncclDataType_t type_of(const rcvi_transfer *t) {
    static const ncclDataType_t types[] = {
        [RCVI_TRANSFER_BYTES] = ncclInt8, [RCVI_TRANSFER_FLOAT] = ncclFloat32, [RCVI_TRANSFER_DOUBLE] = ncclFloat64};
    return types[t->options.type];
}

/* Shares need not be equal: each goes to or from its rank by itself, and all at once. */
static ncclResult_t ask_shares(rcvi_transfer *t) {
    const rcvi_transfer_options *o = &t->options;
    const rcvi_nccl *n = t->comm->nccl;
    ncclResult_t result = api.GroupStart();
    for (int i = 0; i < t->comm->size && result == ncclSuccess; i++) {
        char *share = t->data + (size_t)o->starts[i] * rcvi_transfer_bytes(o->type);
        size_t count = (size_t)(o->starts[i + 1] - o->starts[i]);
        if (count == 0) continue;
        result = o->kind == RCVI_SUM_SHARES
                     ? api.Reduce(share, share, count, type_of(t), ncclSum, i, n->comm, n->stream)
                     : api.Broadcast(share, share, count, type_of(t), i, n->comm, n->stream);
    }
    ncclResult_t ended = api.GroupEnd();
    return result == ncclSuccess || result == ncclInProgress ? ended : result;
}

static ncclResult_t ask(rcvi_transfer *t) {
    const rcvi_transfer_options *o = &t->options;
    const rcvi_nccl *n = t->comm->nccl;
    size_t count = (size_t)o->count;
    if (o->kind == RCVI_BROADCAST)
        return api.Broadcast(t->data, t->data, count, type_of(t), o->peer, n->comm, n->stream);
    if (o->kind == RCVI_SUM_SHARES || o->kind == RCVI_GATHER_ALL) return ask_shares(t);
    ncclRedOp_t operation = o->kind == RCVI_MAX_ALL ? ncclMax : ncclSum;
    return api.AllReduce(t->data, t->data, count, type_of(t), operation, n->comm, n->stream);
}

static rcv_status go(rcvi_transfer *t, bool *done) {
    rcvi_nccl *n = t->comm->nccl;
    state *s = t->state;
    bool ready = false;
    RCVI_TRY(rcvi_nccl_ready(n, &ready));
    if (!s->asked && !ready) return RCV_OK; /* the one before is not enqueued yet */
    if (!s->asked) {
        s->asked = true;
        RCVI_TRY(check(ask(t), "a collective"));
        RCVI_TRY(rcvi_nccl_ready(n, &ready));
    }
    if (!s->recorded && !ready) return RCV_OK;
    if (!s->recorded) RCVI_CUDA_TRY(cudaEventRecord(s->done, n->stream), "recording an event");
    s->recorded = true;
    cudaError_t error = cudaEventQuery(s->done);
    *done = error == cudaSuccess;
    if (error != cudaErrorNotReady) return rcvi_cuda_check(error, "a collective");
    (void)cudaGetLastError(); /* not an error */
    return RCV_OK;
}

static bool advance(rcvi_transfer *t) {
    rcvi_world *w = t->comm->world;
    state *s = t->state;
    int before = 0;
    bool done = false;
    if (t->options.count == 0) return true;
    rcv_status status = rcvi_cuda_enter(w->ordinal, &before);
    if (status == RCV_OK) {
        if (!s->done)
            status = rcvi_cuda_check(cudaEventCreateWithFlags(&s->done, cudaEventDisableTiming), "making an event");
        if (!status) status = go(t, &done);
        if (done) cudaEventDestroy(s->done);
        rcvi_cuda_leave(before);
    }
    if (status) rcvi_world_break(w, true, false, "rank %d: %s", w->all.rank, rcv_message());
    return done;
}

static rcv_status prepare(rcvi_transfer *t) { return rcvi_transfer_room(t, sizeof(state), 0, false); }

const rcvi_exchange rcvi_exchange_nccl = {prepare, advance};
