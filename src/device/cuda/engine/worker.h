/* A run on a GPU: streams, captured graphs, and the launching of a program's steps. */
#ifndef RCVI_CUDA_WORKER_H
#define RCVI_CUDA_WORKER_H

#include "device/cuda/engine/ragged.h"
#include "device/cuda/engine/streams.h"

enum { RCVI_MAX_GRAPHS = 8 };

/* A pass as captured for these addresses and flags. */
typedef struct {
    cudaGraphExec_t graph; /* NULL: none */
    void **key;            /* [key_count] */
    int64_t used;          /* when, in calls */
} rcvi_cuda_graph;

struct rcvi_worker {
    const rcvi_engine *engine;
    rcv_context *context;
    rcvi_streams streams;
    rcvi_cudnn *vendor;
    rcvi_cuda_rows rows;    /* of the last forward call, where the engine sorts */
    cudaStream_t capturing; /* on which graphs are captured */
    cudaEvent_t done;       /* behind the last call */
    cudaEvent_t
        begun[2];    /* before the first time loop of the last pass that is one kernel, and before the last of others */
    int begun_count; /* how many such loops it had; 0 where it was a graph of its own */
    cudaStream_t last; /* of it */
    bool called;
    bool announced;  /* lengths were sent by themselves: recorded calls have them from there */
    bool recorded;   /* a call was recorded by the caller, who may repeat it at any time: `done` does not tell of it */
    unsigned *fault; /* the host's: not 0 where a persistent kernel has waited in vain; NULL: the engine has none */
    void **buffers;  /* [buffers] of the call: the caller's, but lengths in device memory */
    bool *wanted, *idle; /* [buffers], [steps]: of the pass that is launched, what nobody wants */
    void **key;          /* [key_count] of the call */
    size_t key_count;
    rcvi_cuda_graph graphs[RCVI_MAX_GRAPHS];
    int64_t calls;
};

/* Launches steps first .. end - 1 from this stream and back to it; `scratch` as laid out by the engine. worker->buffers are
 * bound. */
rcv_status rcvi_cuda_launch(rcvi_worker *worker, size_t first, size_t end, const rcvi_binding *binding, char *scratch,
                            cudaStream_t stream);
/* The same as one graph, captured where the worker has none for these addresses. */
rcv_status rcvi_cuda_launch_graph(rcvi_worker *worker, size_t first, size_t end, const rcvi_binding *binding,
                                  char *scratch, cudaStream_t stream);
void rcvi_cuda_drop_graphs(rcvi_worker *worker);

#endif
