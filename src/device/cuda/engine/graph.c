/* Graphs: a pass captured once for the caller's addresses and the sizes of the call, and launched as a whole.
 *
 * Capturing and launching takes the host less time than launching step by step, but the GPU begins later. So a pass that is not captured yet is
 * launched step by step where the GPU has nothing to do, unless it comes again soon; where the call before is still running, it is captured.
 * The oldest graph of the pass is then changed, where it has the same launches, since that takes less time than a new one. */
#include "device/cuda/engine/tuning.h"
#include "device/cuda/engine/worker.h"

#include <string.h>

/* Words of a key beside the shard and the caller's addresses: flags, steps, batch, signals, signal, what is kept. */
enum { OWN_WORDS = 6, SHARD_WORDS = 3 };

size_t rcvi_cuda_key_count(const rcvi_program *program) { return OWN_WORDS + SHARD_WORDS + program->external_count; }

/* The key of a captured pass, all that its launches depend on: the pass, flags, the shard, and the caller's addresses. */
static void make_key(rcvi_worker *w, size_t first, const rcvi_binding *binding) {
    const rcvi_program *program = w->engine->program;
    size_t at = 0;
    uintptr_t flags = (first ? 1u : 0u) | (binding->overwrite ? 2u : 0u) | (binding->same_parameters ? 4u : 0u);
    for (size_t s = 0; s < program->net->state_count; s++) {
        flags = flags * 31 + 8;
        flags += binding->restart_is_initial[s];
    }
    const int64_t shard[SHARD_WORDS] = {binding->shard.time, binding->shard.first, binding->shard.total};
    w->key[at++] = (void *)flags;
    w->key[at++] = (void *)(uintptr_t)binding->program->sizes.steps;
    w->key[at++] = (void *)(uintptr_t)binding->program->sizes.batch;
    w->key[at++] = binding->signals;
    w->key[at++] = (void *)(uintptr_t)binding->signal;
    w->key[at++] = w->kept;
    for (size_t i = 0; i < SHARD_WORDS; i++) w->key[at++] = (void *)(uintptr_t)shard[i];
    for (size_t i = 0; i < program->external_count; i++) w->key[at++] = w->buffers[program->externals[i]];
}

static rcvi_cuda_graph *find(rcvi_worker *w) {
    for (int i = 0; i < RCVI_MAX_GRAPHS; i++) {
        rcvi_cuda_graph *g = &w->graphs[i];
        if (g->graph && !memcmp(g->key, w->key, w->key_count * sizeof *w->key)) return g;
    }
    return NULL;
}

static void free_graph(rcvi_worker *w, rcvi_cuda_graph *g) {
    if (g->graph) cudaGraphExecDestroy(g->graph);
    w->graph_nodes -= g->nodes;
    g->graph = NULL;
    g->nodes = 0;
}

/* The graph that was not used for the longest time; of one pass, or of both where `first` is SIZE_MAX. NULL: none. */
static rcvi_cuda_graph *find_oldest(rcvi_worker *w, size_t first) {
    rcvi_cuda_graph *oldest = NULL;
    for (int i = 0; i < RCVI_MAX_GRAPHS; i++) {
        rcvi_cuda_graph *g = &w->graphs[i];
        if (!g->graph || (first != SIZE_MAX && g->first != first)) continue;
        if (!oldest || g->used < oldest->used) oldest = g;
    }
    return oldest;
}

/* An entry for a graph of this pass with so many nodes: a free one; else the oldest one of the pass, which has its graph still and as many nodes; else
 * one that older graphs make room for. */
static rcvi_cuda_graph *find_place(rcvi_worker *w, size_t first, size_t nodes) {
    rcvi_cuda_graph *place = NULL, *same = find_oldest(w, first);
    for (int i = 0; i < RCVI_MAX_GRAPHS && !place; i++) {
        if (!w->graphs[i].graph) place = &w->graphs[i];
    }
    bool fits = w->graph_nodes + nodes <= RCVI_TUNED_GRAPH_NODES;
    if (same && same->nodes == nodes && (!place || !fits)) return same;
    for (rcvi_cuda_graph *oldest; (!place || !fits) && (oldest = find_oldest(w, SIZE_MAX)); place = oldest) {
        free_graph(w, oldest);
        fits = w->graph_nodes + nodes <= RCVI_TUNED_GRAPH_NODES;
    }
    return place;
}

static rcv_status capture(rcvi_worker *w, size_t first, size_t end, const rcvi_binding *binding, char *scratch,
                          cudaGraph_t *graph) {
    *graph = NULL;
    RCVI_CUDA_TRY(cudaStreamBeginCapture(w->capturing, cudaStreamCaptureModeThreadLocal), "beginning a graph capture");
    rcv_status status = rcvi_cuda_launch(w, first, end, binding, scratch, w->capturing);
    cudaError_t ended = cudaStreamEndCapture(w->capturing, graph);
    return status ? status : rcvi_cuda_check(ended, "capturing a graph");
}

/* Makes a graph that can be launched of one that was captured, in this place. */
static rcv_status place_graph(rcvi_worker *w, rcvi_cuda_graph *g, size_t nodes, cudaGraph_t graph) {
    cudaGraphExecUpdateResultInfo result;
    if (g->graph && g->nodes == nodes && cudaGraphExecUpdate(g->graph, graph, &result) == cudaSuccess) return RCV_OK;
    if (g->graph) (void)cudaGetLastError(); /* other launches: it is made anew */
    free_graph(w, g);
    RCVI_CUDA_TRY(cudaGraphInstantiate(&g->graph, graph, 0), "instantiating a graph");
    g->nodes = nodes;
    w->graph_nodes += nodes;
    return RCV_OK;
}

static rcv_status add_graph(rcvi_worker *w, size_t first, size_t end, const rcvi_binding *binding, char *scratch,
                            rcvi_cuda_graph **out) {
    cudaGraph_t graph = NULL;
    size_t nodes = 0;
    rcv_status status = capture(w, first, end, binding, scratch, &graph);
    if (!status) status = rcvi_cuda_check(cudaGraphGetNodes(graph, NULL, &nodes), "counting the launches of a graph");
    if (!status) {
        *out = find_place(w, first, nodes);
        status = place_graph(w, *out, nodes, graph);
    }
    if (graph) cudaGraphDestroy(graph);
    if (status) return status;
    (*out)->first = first;
    memcpy((*out)->key, w->key, w->key_count * sizeof *w->key);
    return RCV_OK;
}

/* Was one of the last passes the same? Notes this one as the latest. */
static bool was_seen(rcvi_worker *w) {
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    bool seen = false;
    for (size_t i = 0; i < w->key_count; i++) hash = (hash ^ (uint64_t)(uintptr_t)w->key[i]) * UINT64_C(0x100000001b3);
    for (int i = 0; i < RCVI_SEEN_PASSES; i++) seen |= w->seen[i] == hash;
    w->seen[w->next_seen++ % RCVI_SEEN_PASSES] = hash;
    return seen;
}

/* On one stream: waits between streams cost the host more than what streams save once. */
static rcv_status launch_steps(rcvi_worker *w, size_t first, size_t end, const rcvi_binding *binding, char *scratch,
                               cudaStream_t stream) {
    int streams = w->streams.count;
    w->streams.count = 1;
    rcv_status status = rcvi_cuda_launch(w, first, end, binding, scratch, stream);
    w->streams.count = streams;
    return status;
}

/* Is the call before still running? Asking must not break a capture of another thread. */
static bool is_running(const rcvi_worker *w) {
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    if (!w->called || cudaThreadExchangeStreamCaptureMode(&mode) != cudaSuccess) return false;
    bool running = cudaEventQuery(w->done) == cudaErrorNotReady;
    if (running) (void)cudaGetLastError();
    (void)cudaThreadExchangeStreamCaptureMode(&mode);
    return running;
}

rcv_status rcvi_cuda_launch_graph(rcvi_worker *w, size_t first, size_t end, const rcvi_binding *binding, char *scratch,
                                  cudaStream_t stream) {
    make_key(w, first, binding);
    bool seen = was_seen(w);
    rcvi_cuda_graph *g = find(w);
    if (!g && !seen && !binding->captures_at_once && !is_running(w))
        return launch_steps(w, first, end, binding, scratch, stream);
    if (!g) RCVI_TRY(add_graph(w, first, end, binding, scratch, &g));
    g->used = ++w->calls;
    w->begun_count = 0;
    return rcvi_cuda_check(cudaGraphLaunch(g->graph, stream), "launching a graph");
}

void rcvi_cuda_drop_graphs(rcvi_worker *w) {
    for (int i = 0; i < RCVI_MAX_GRAPHS; i++) free_graph(w, &w->graphs[i]);
}
