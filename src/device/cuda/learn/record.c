/* Repeated calls as one graph. The first time they run as they are, so that all that a first call does is done; the second time they are
 * captured; from then on the graph is launched. */
#include "device/cuda/learn/state.h"

static rcvi_learn_graph *find(rcvi_learn *learn, uint64_t key) {
    for (int i = 0; i < RCVI_MAX_LEARN_GRAPHS; i++) {
        rcvi_learn_graph *g = &learn->graphs[i];
        if (g->used && g->key == key) return g;
    }
    return NULL;
}

static void drop(rcvi_learn_graph *g) {
    if (g->graph) cudaGraphExecDestroy(g->graph);
    *g = (rcvi_learn_graph){0};
}

/* The key's entry: an existing one, a free one, or the least recently used one, which is dropped. */
static rcvi_learn_graph *find_entry(rcvi_learn *learn, uint64_t key) {
    rcvi_learn_graph *oldest = find(learn, key);
    for (int i = 0; i < RCVI_MAX_LEARN_GRAPHS && !oldest; i++) {
        if (!learn->graphs[i].used) oldest = &learn->graphs[i];
    }
    if (!oldest) {
        oldest = &learn->graphs[0];
        for (int i = 1; i < RCVI_MAX_LEARN_GRAPHS; i++) {
            if (learn->graphs[i].used < oldest->used) oldest = &learn->graphs[i];
        }
        drop(oldest);
    }
    oldest->key = key;
    oldest->used = ++learn->calls;
    return oldest;
}

rcv_status rcvi_cuda_replay(rcvi_learn *learn, uint64_t key, bool *done) {
    *done = false;
    if (learn->recording) return rcvi_fail(RCV_INVALID, "calls are being recorded: end them before others begin");
    rcvi_learn_graph *g = find(learn, key);
    if (!g || g->abandoned) return RCV_OK;
    g->used = ++learn->calls;
    if (g->graph) {
        RCVI_CUDA_TRY(cudaGraphLaunch(g->graph, learn->stream), "launching recorded calls");
        *done = true;
        return RCV_OK;
    }
    RCVI_CUDA_TRY(cudaStreamBeginCapture(learn->stream, cudaStreamCaptureModeThreadLocal), "recording calls");
    learn->recording = true;
    learn->key = key;
    return RCV_OK;
}

/* Ends the capture, whether it succeeded or not. */
static rcv_status end_capture(rcvi_learn *learn, cudaGraph_t *graph) {
    learn->recording = false;
    return rcvi_cuda_check(cudaStreamEndCapture(learn->stream, graph), "recording calls");
}

static rcv_status launch(rcvi_learn *learn, cudaGraph_t graph, cudaGraphExec_t *ready) {
    RCVI_CUDA_TRY(cudaGraphInstantiate(ready, graph, 0), "making a graph of calls");
    return rcvi_cuda_check(cudaGraphLaunch(*ready, learn->stream), "launching recorded calls");
}

rcv_status rcvi_cuda_recorded(rcvi_learn *learn, uint64_t key) {
    if (!learn->recording) {
        find_entry(learn, key);
        return RCV_OK;
    }
    cudaGraph_t graph = NULL;
    cudaGraphExec_t ready = NULL;
    bool same = learn->key == key;
    rcv_status status = end_capture(learn, &graph);
    if (!status && !same) status = rcvi_fail(RCV_INVALID, "calls were recorded under another key than they began with");
    if (!status) status = launch(learn, graph, &ready);
    if (graph) cudaGraphDestroy(graph);
    if (status) {
        if (ready) cudaGraphExecDestroy(ready);
        find_entry(learn, learn->key)->abandoned = true;
        return status;
    }
    find_entry(learn, key)->graph = ready;
    return RCV_OK;
}

void rcvi_cuda_abandon(rcvi_learn *learn, uint64_t key) {
    cudaGraph_t graph = NULL;
    if (learn->recording) {
        key = learn->key;
        learn->recording = false;
        cudaStreamEndCapture(learn->stream, &graph);
        if (graph) cudaGraphDestroy(graph);
        cudaGetLastError();
    }
    rcvi_learn_graph *g = find_entry(learn, key);
    if (g->graph) cudaGraphExecDestroy(g->graph);
    g->graph = NULL;
    g->abandoned = true;
}

void rcvi_cuda_drop_records(rcvi_learn *learn) {
    if (learn->recording) rcvi_cuda_abandon(learn, learn->key);
    for (int i = 0; i < RCVI_MAX_LEARN_GRAPHS; i++) drop(&learn->graphs[i]);
}
