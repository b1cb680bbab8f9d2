/* Graphs: a pass captured once for the caller's addresses and the sizes of the call, and launched as a whole. Capturing takes longer than
 * launching: a pass is launched step by step at first, and captured when it comes again soon. */
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

/* A free entry, or the least recently used one, which is destroyed. */
static rcvi_cuda_graph *find_free(rcvi_worker *w) {
    rcvi_cuda_graph *oldest = &w->graphs[0];
    for (int i = 0; i < RCVI_MAX_GRAPHS; i++) {
        if (!w->graphs[i].graph) return &w->graphs[i];
        if (w->graphs[i].used < oldest->used) oldest = &w->graphs[i];
    }
    cudaGraphExecDestroy(oldest->graph);
    oldest->graph = NULL;
    return oldest;
}

static rcv_status capture(rcvi_worker *w, size_t first, size_t end, const rcvi_binding *binding, char *scratch,
                          cudaGraphExec_t *out) {
    cudaGraph_t graph = NULL;
    RCVI_CUDA_TRY(cudaStreamBeginCapture(w->capturing, cudaStreamCaptureModeThreadLocal), "beginning a graph capture");
    rcv_status status = rcvi_cuda_launch(w, first, end, binding, scratch, w->capturing);
    cudaError_t ended = cudaStreamEndCapture(w->capturing, &graph);
    if (!status) status = rcvi_cuda_check(ended, "capturing a graph");
    if (!status) status = rcvi_cuda_check(cudaGraphInstantiate(out, graph, 0), "instantiating a graph");
    if (graph) cudaGraphDestroy(graph);
    return status;
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

rcv_status rcvi_cuda_launch_graph(rcvi_worker *w, size_t first, size_t end, const rcvi_binding *binding, char *scratch,
                                  cudaStream_t stream) {
    make_key(w, first, binding);
    bool seen = was_seen(w);
    rcvi_cuda_graph *g = find(w);
    if (!g && !seen && !binding->captures_at_once) return launch_steps(w, first, end, binding, scratch, stream);
    if (!g) {
        cudaGraphExec_t graph = NULL;
        RCVI_TRY(capture(w, first, end, binding, scratch, &graph));
        g = find_free(w);
        g->graph = graph;
        memcpy(g->key, w->key, w->key_count * sizeof *w->key);
    }
    g->used = ++w->calls;
    w->begun_count = 0;
    return rcvi_cuda_check(cudaGraphLaunch(g->graph, stream), "launching a graph");
}

void rcvi_cuda_drop_graphs(rcvi_worker *w) {
    for (int i = 0; i < RCVI_MAX_GRAPHS; i++) {
        if (w->graphs[i].graph) cudaGraphExecDestroy(w->graphs[i].graph);
        w->graphs[i].graph = NULL;
    }
}
