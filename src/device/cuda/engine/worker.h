/* A run on a GPU: its streams and captured graphs, and the launching of a program's steps.
 *
 * A worker belongs to one run; its engine outlives it. Its memory of the GPU is the run's scratch, which the caller owns. */
#ifndef RCVI_CUDA_WORKER_H
#define RCVI_CUDA_WORKER_H

#include "device/cuda/engine/ragged.h"
#include "device/cuda/engine/streams.h"
#include "program/recurrence.h"

enum { RCVI_MAX_GRAPHS = 32, RCVI_SEEN_PASSES = 32 };

/* A pass as captured for these addresses and flags. */
typedef struct {
    cudaGraphExec_t graph; /* NULL: none */
    size_t nodes;          /* launches and copies of it; 0: none */
    size_t first;          /* step of the pass */
    void **key;            /* [key_count] */
    int64_t used;          /* number of the last call that used it */
} rcvi_cuda_graph;

/* Which of the caller's arrays were left out in the last forward or backward pass. */
typedef struct {
    bool *externals; /* [externals of the program] */
    bool is_known;
} rcvi_cuda_absent;

struct rcvi_worker {
    const rcvi_engine *engine;
    rcv_context *context;
    rcvi_streams streams;
    rcvi_cudnn *vendor;
    rcvi_cuda_rows rows;    /* of the last forward call, where the engine sorts on the host */
    cudaStream_t capturing; /* the stream on which graphs are captured */
    cudaEvent_t done;       /* recorded after the last call */
    cudaStream_t last;      /* stream of the last call */
    cudaEvent_t
        begun[2]; /* recorded in the last pass before the first persistent loop, and before the latest of the others */
    int begun_count;   /* persistent loops of that pass; 0 where it was a graph of its own */
    bool called;       /* there was a call */
    bool lengths_sent; /* lengths are sent before every call: captured calls read them there */
    bool captured;     /* the caller has captured a call and may launch it at any time: `done` does not cover that */
    unsigned *fault;   /* pinned memory: not 0 after a persistent kernel gave up waiting; NULL: there is none */
    rcvi_pool pool;    /* of the run's loops: */
    rcvi_persistent **persistent;  /* [steps] copies of the engine's, at the sizes of the call */
    rcvi_recurrence **recurrences; /* [steps] the same */
    int64_t ***loop_numbers;       /* [steps] their numbers that depend on sizes */
    rcvi_sizes loop_sizes;         /* that they have now */
    char *kept;                    /* of the call: what its forward pass leaves for its backward pass */
    const rcvi_program *program;   /* of the run, at the sizes of the last call; NULL before the first */
    const rcvi_view **view_table;  /* views of all maps of it, */
    const rcvi_view ***views;      /* [steps] those of each */
    void **buffers;                /* [buffers] of the call: the caller's arrays, but lengths in device memory */
    bool *needed;                  /* [buffers] scratch of dead-step elimination */
    bool *dead[2];                 /* [steps] dead steps of the last forward and backward pass */
    rcvi_cuda_absent absent[2];    /* of the last forward and backward pass */
    void **key;                    /* [key_count] of the call's graph */
    size_t key_count;
    rcvi_cuda_graph graphs[RCVI_MAX_GRAPHS];
    size_t graph_nodes;              /* of all graphs */
    int64_t calls;                   /* of graphs */
    uint64_t seen[RCVI_SEEN_PASSES]; /* hashes of the keys of the last passes */
    unsigned next_seen;
};

/* Where a buffer's rounded copy is. */
static inline char *rcvi_cuda_rounded_copy(const rcvi_worker *worker, char *scratch, int buffer) {
    const rcvi_engine *e = worker->engine;
    return (e->rounded_is_kept[buffer] ? worker->kept : scratch) + e->rounded[buffer];
}

/* sizes.c: the run's own copies of its loops, and their numbers set to the sizes of a call. */
rcv_status rcvi_cuda_open_loops(rcvi_worker *worker);
void rcvi_cuda_resize_loops(rcvi_worker *worker, rcvi_sizes sizes);

/* worker.c */
rcv_status rcvi_cuda_worker_open(const rcvi_engine *engine, rcvi_worker **worker);
void rcvi_cuda_worker_close(rcvi_worker *worker);
/* Waits for all calls; where the caller has captured one, for the whole device. */
cudaError_t rcvi_cuda_finish(const rcvi_worker *worker);

/* run.c: as rcvi_device has them. */
rcv_status rcvi_cuda_run(rcvi_worker *worker, size_t first, size_t end, const rcvi_binding *binding, void *scratch);
rcv_status rcvi_cuda_clear(rcvi_worker *worker, void *to, size_t bytes, void *scratch, void *stream);
rcv_status rcvi_cuda_reset_scratch(rcvi_worker *worker, void *scratch, void *stream);
rcv_status rcvi_cuda_send_lengths(rcvi_worker *worker, const rcvi_binding *binding);
void *rcvi_cuda_loop_event(const rcvi_worker *worker, bool last);
bool rcvi_cuda_is_captured(void *stream);
rcv_status rcvi_cuda_wait(rcvi_worker *worker);

/* pass.c: launches steps first .. end - 1; they begin and end on this stream. `scratch` is laid out by the engine, and
 * worker->buffers are bound. */
rcv_status rcvi_cuda_launch(rcvi_worker *worker, size_t first, size_t end, const rcvi_binding *binding, char *scratch,
                            cudaStream_t stream);
/* graph.c: the same as one graph, where the worker has one for these addresses, one of the last passes was the same, or the call before is still
 * running. */
rcv_status rcvi_cuda_launch_graph(rcvi_worker *worker, size_t first, size_t end, const rcvi_binding *binding,
                                  char *scratch, cudaStream_t stream);
void rcvi_cuda_drop_graphs(rcvi_worker *worker);
size_t rcvi_cuda_key_count(const rcvi_program *program);

#endif
