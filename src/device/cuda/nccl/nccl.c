/* Collectives by NCCL. Every communicator has a stream of its own. Communicators are non-blocking: a call returns before NCCL has enqueued its
 * work, and CommGetAsyncError says when it has. NCCL is opened at run time, when it is first asked for. */
#include "device/cuda/nccl/nccl.h"
#include "base/library.h"
#include "device/cuda/engine/engine.h"

#include <nccl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* clang-format off */
#define FUNCTIONS(F)                                                                                                   \
    F(GetVersion) F(GetUniqueId) F(CommInitRankConfig) F(CommGetAsyncError) F(CommFinalize) F(CommDestroy)             \
    F(CommAbort) F(GetErrorString) F(AllReduce) F(Reduce) F(Broadcast) F(GroupStart) F(GroupEnd)
/* clang-format on */
#define MEMBER(NAME) __typeof__(nccl##NAME) *(NAME);
#define SYMBOL(NAME) "nccl" #NAME,

static const char *const symbols[] = {FUNCTIONS(SYMBOL)};
enum { SYMBOLS = sizeof symbols / sizeof *symbols };

/* ---- the library ---- */

/* Written once, by open_library; read after that. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct { FUNCTIONS(MEMBER) } api;
static bool found;
static char name[32], reason[512];

static void open_library(void) {
    static const char *const names[] = {"libnccl.so.2", "libnccl.so", NULL};
    void *functions[SYMBOLS] = {NULL};
    int version = 0;
    _Static_assert(sizeof functions == sizeof api, "the table is function pointers and nothing else");
    if (!rcvi_library_open(names, symbols, functions, SYMBOLS, reason, sizeof reason)) return;
    memcpy(&api, functions, sizeof api);
    found = api.GetVersion(&version) == ncclSuccess;
    snprintf(name, sizeof name, "NCCL %d.%d.%d", version / 10000, version % 10000 / 100, version % 100);
    if (!found) snprintf(reason, sizeof reason, "NCCL does not report its version");
}

static rcv_status check_available(void) {
    pthread_once(&once, open_library);
    return found ? RCV_OK : rcvi_fail(RCV_UNSUPPORTED, "NCCL is not there: %s", reason);
}

static const char *library_name(void) { return check_available() ? NULL : name; }

static rcv_status check(ncclResult_t result, const char *what) {
    if (result == ncclSuccess || result == ncclInProgress) return RCV_OK;
    return rcvi_fail(RCV_UNSUPPORTED, "%s by NCCL failed: %s", what, api.GetErrorString(result));
}

/* ---- communicators ---- */

struct rcvi_collective_comm {
    rcv_context *context;
    int ordinal, size;
    ncclComm_t comm;
    cudaStream_t stream;
};

_Static_assert(sizeof(ncclUniqueId) == RCVI_COLLECTIVE_ID, "an id is sent as its bytes");

static rcv_status make_id(char id[RCVI_COLLECTIVE_ID]) {
    ncclUniqueId made;
    RCVI_TRY(check(api.GetUniqueId(&made), "making an id"));
    memcpy(id, &made, sizeof made);
    return RCV_OK;
}

static rcv_status connect_ranks(rcvi_collective_comm *c, const char *id, int rank, int size) {
    ncclUniqueId made;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    memcpy(&made, id, sizeof made);
    RCVI_TRY(rcvi_cuda_new_stream(&c->stream));
    return check(api.CommInitRankConfig(&c->comm, size, made, rank, &config), "bringing ranks together");
}

static rcv_status open_comm(rcv_context *context, int ordinal, const char id[RCVI_COLLECTIVE_ID], int rank, int size,
                            rcvi_collective_comm **comm) {
    int before = 0;
    rcvi_collective_comm *c = *comm = rcvi_new(context, 1, sizeof *c);
    if (!c) return RCV_NO_MEMORY;
    c->context = context;
    c->ordinal = ordinal;
    c->size = size;
    RCVI_TRY(rcvi_cuda_enter(ordinal, &before));
    rcv_status status = connect_ranks(c, id, rank, size);
    rcvi_cuda_leave(before);
    return status;
}

static rcv_status test_ready(rcvi_collective_comm *c, bool *ready) {
    ncclResult_t state = ncclSuccess, queried = api.CommGetAsyncError(c->comm, &state);
    *ready = queried == ncclSuccess && state == ncclSuccess;
    RCVI_TRY(check(queried, "a collective"));
    return check(state, "a collective");
}

/* By all ranks together. */
static void destroy(rcvi_collective_comm *c) {
    bool ready = false;
    api.CommFinalize(c->comm);
    while (!test_ready(c, &ready) && !ready) nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    api.CommDestroy(c->comm);
}

static void close_comm(rcvi_collective_comm *c, bool abort) {
    if (!c) return;
    int before = 0;
    bool entered = !rcvi_cuda_enter(c->ordinal, &before);
    if (c->comm && abort) api.CommAbort(c->comm);
    if (c->comm && !abort) destroy(c);
    if (c->stream) cudaStreamDestroy(c->stream);
    if (entered) rcvi_cuda_leave(before);
    rcvi_free(c->context, c);
}

/* ---- a collective ---- */

typedef struct {
    bool started, recorded; /* the call to NCCL; the event after the work that it enqueued */
    cudaEvent_t done;
} state;

static ncclDataType_t type_of(const rcvi_collective *o) {
    return o->dtype == RCV_FLOAT32 ? ncclFloat32 : o->dtype == RCV_FLOAT64 ? ncclFloat64 : ncclInt8;
}

/* ncclReduceScatter and ncclAllGather need equal shares. Shares of any sizes: one reduction to each rank, or one broadcast from each, as one group. */
static ncclResult_t start_shares(const rcvi_collective_comm *c, const rcvi_collective *o) {
    ncclResult_t result = api.GroupStart();
    for (int i = 0; i < c->size && result == ncclSuccess; i++) {
        char *share = (char *)o->data + (size_t)o->starts[i] * rcv_dtype_bytes(o->dtype);
        size_t count = (size_t)(o->starts[i + 1] - o->starts[i]);
        if (count == 0) continue;
        result = o->kind == RCVI_COLLECTIVE_REDUCE_SCATTER
                     ? api.Reduce(share, share, count, type_of(o), ncclSum, i, c->comm, c->stream)
                     : api.Broadcast(share, share, count, type_of(o), i, c->comm, c->stream);
    }
    ncclResult_t ended = api.GroupEnd();
    return result == ncclSuccess || result == ncclInProgress ? ended : result;
}

static ncclResult_t start(const rcvi_collective_comm *c, const rcvi_collective *o) {
    size_t count = (size_t)o->count;
    if (o->kind == RCVI_COLLECTIVE_BROADCAST)
        return api.Broadcast(o->data, o->data, count, type_of(o), o->root, c->comm, c->stream);
    if (o->kind == RCVI_COLLECTIVE_REDUCE_SCATTER || o->kind == RCVI_COLLECTIVE_ALL_GATHER) return start_shares(c, o);
    ncclRedOp_t operation = o->kind == RCVI_COLLECTIVE_MAX ? ncclMax : ncclSum;
    return api.AllReduce(o->data, o->data, count, type_of(o), operation, c->comm, c->stream);
}

static rcv_status advance_on_device(rcvi_collective_comm *c, const rcvi_collective *o, state *s, bool *done) {
    bool ready = false;
    if (!s->done) RCVI_CUDA_TRY(cudaEventCreateWithFlags(&s->done, cudaEventDisableTiming), "making an event");
    RCVI_TRY(test_ready(c, &ready));
    if (!s->started && !ready) return RCV_OK; /* NCCL has not enqueued the previous collective yet */
    if (!s->started) {
        s->started = true;
        RCVI_TRY(check(start(c, o), "a collective"));
        RCVI_TRY(test_ready(c, &ready));
    }
    if (!s->recorded && !ready) return RCV_OK;
    if (!s->recorded) RCVI_CUDA_TRY(cudaEventRecord(s->done, c->stream), "recording an event");
    s->recorded = true;
    cudaError_t error = cudaEventQuery(s->done);
    *done = error == cudaSuccess;
    if (error != cudaErrorNotReady) return rcvi_cuda_check(error, "a collective");
    (void)cudaGetLastError(); /* cudaErrorNotReady is no error here */
    return RCV_OK;
}

static rcv_status advance(rcvi_collective_comm *c, const rcvi_collective *o, void *memory, bool *done) {
    state *s = memory;
    int before = 0;
    *done = false;
    RCVI_TRY(rcvi_cuda_enter(c->ordinal, &before));
    rcv_status status = advance_on_device(c, o, s, done);
    if (*done) cudaEventDestroy(s->done);
    rcvi_cuda_leave(before);
    return status;
}

const rcvi_collectives rcvi_cuda_collectives = {.check_available = check_available,
                                                .name = library_name,
                                                .make_id = make_id,
                                                .open = open_comm,
                                                .test_ready = test_ready,
                                                .close = close_comm,
                                                .state_bytes = sizeof(state),
                                                .advance = advance};
