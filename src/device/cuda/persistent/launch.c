/* Fills in the arguments of a persistent kernel and launches it. persistent.h describes the words. */
#include "device/cuda/engine/worker.h"
#include "device/cuda/kernels/kernels.h"
#include "device/cuda/persistent/internal.h"

#include <string.h>

typedef struct {
    const rcvi_worker *worker;
    const rcvi_engine *engine;
    const rcvi_persistent *p;
    char *scratch;
    uint64_t *words;
    rcvi_sizes sizes; /* of the call */
} argument_writer;

static void put_argument(uint64_t *at, char *buffer, const rcvi_view *view, size_t size) {
    int64_t bytes = (int64_t)size;
    at[0] = buffer ? (uint64_t)(uintptr_t)(buffer + view->offset * bytes) : 0;
    at[2] = (uint64_t)(view->stride * bytes);
    at[3] = view->wrap ? (uint64_t)(view->slot * bytes) << 2 | (uint64_t)(view->phase & 1) << 1 | 1 : 0;
}

static char *memory_of(const argument_writer *f, const rcvi_view *view) {
    return view->buffer == RCVI_NONE ? NULL : f->worker->buffers[view->buffer];
}

static char *rounded_copy_of(const argument_writer *f, const rcvi_view *view) {
    if (view->buffer == RCVI_NONE || !rcvi_cuda_has_rounded(f->engine, view->buffer)) return NULL;
    return rcvi_cuda_rounded_copy(f->worker, f->scratch, view->buffer);
}

enum { STATES = 2 }; /* time steps of a ring */

/* The iteration before which a store is dead: it is overwritten before it is read. */
static uint64_t find_first(const argument_writer *f, const rcvi_kernel_step *s, int v) {
    const rcvi_view *view = s->views[v];
    bool passes = view->buffer != RCVI_NONE && f->p->transient[view->buffer] && !view->stride &&
                  rcvi_persistent_source_of(s->shape.map, v) != RCVI_NONE;
    return passes && s->high > STATES ? (uint64_t)(s->high - STATES) : 0;
}

/* A store that nothing reads has address 0. */
static void put_views(const argument_writer *f, const rcvi_kernel_step *s, uint64_t *at) {
    const rcvi_engine *e = f->engine;
    uint64_t *rounded = at + RCVI_ARGUMENT_WORDS * s->view_count;
    for (int v = 0; v < s->view_count; v++, at += RCVI_ARGUMENT_WORDS) {
        const rcvi_view *view = s->views[v];
        bool narrowed = rcvi_cuda_is_narrowed(e, &s->shape, v, view), there = view->buffer != RCVI_NONE;
        char *memory = there && !f->p->unread[view->buffer] ? memory_of(f, view) : NULL;
        char *rounded_copy = there && !f->p->rounded_unread[view->buffer] ? rounded_copy_of(f, view) : NULL;
        put_argument(at, narrowed ? NULL : memory, view, rcvi_cuda_bytes((rcvi_cuda_type)s->shape.types[v]));
        at[1] = find_first(f, s, v);
        if (v >= s->shape.map->operand_count || !s->shape.has_rounded[v]) continue;
        put_argument(rounded, narrowed ? memory : rounded_copy, view, rcvi_cuda_bytes(e->narrow));
        rounded[1] = at[1];
        rounded += RCVI_ARGUMENT_WORDS;
    }
}

static void put_ports(const argument_writer *f, const rcvi_kernel_step *s, uint64_t *at) {
    const rcvi_persistent *p = f->p;
    int64_t tiles = (int64_t)p->slices * p->tiles;
    for (int u = 0; u < s->port_count; u++, at += 2 * RCVI_ARGUMENT_WORDS) {
        const rcvi_port *port = &s->ports[u];
        bool written = false;
        for (int n = 0; n < s->write_count; n++) written |= s->writes[n] == u;
        if (port->channel == RCVI_NONE) continue;
        const rcvi_channel *channel = &p->channels[port->channel];
        if (channel->flagged) {
            uint64_t phase = (uint64_t)rcvi_persistent_flag_phase(p, s, u);
            at[0] = (uint64_t)(uintptr_t)(f->scratch + f->engine->counters + 4 * channel->flag_words);
            at[3] = 1 << 2 | phase << 1 | 1;
            at[7] = written ? (uint64_t)INT32_MAX << 32 : (uint64_t)port->low | (uint64_t)port->high << 32;
            continue;
        }
        if (p->cluster && written) {
            at[0] = (uint64_t)rcvi_cluster_offset(p, channel);
            continue;
        }
        int64_t slot = rcvi_persistent_slot(p, channel);
        char *base = f->scratch + f->engine->exchange + p->exchange_offset + channel->offset;
        char *counters = f->scratch + f->engine->counters + 4 * p->first_counter[channel->counter_set];
        if (channel->operand) at[0] = (uint64_t)(uintptr_t)base + (uint64_t)((port->slot - channel->base) * slot);
        at[2] = (uint64_t)(port->step * slot);
        at[7] = (uint64_t)port->low | (uint64_t)port->high << 32;
        if ((written && !s->is_signaled[u]) || channel->task == RCVI_NONE || p->cluster) continue;
        at[4] = (uint64_t)(uintptr_t)counters + (uint64_t)((port->slot - channel->first) * tiles * 4);
        at[5] = (uint64_t)p->tasks[channel->task].blocks;
        at[6] = (uint64_t)(port->step * tiles * 4);
    }
}

/* How many rows have not ended at the time step that is computed, and their order. */
static void put_rows(const argument_writer *f, const rcvi_kernel_step *s, uint64_t *at) {
    const rcvi_engine *e = f->engine;
    const rcvi_time *time = &s->step->time;
    bool turned = s->step->direction != 0;
    int64_t first = turned ? f->sizes.steps - 1 - time->base : time->base, bytes = sizeof(int64_t);
    at[0] = (uint64_t)(uintptr_t)(f->worker->kept + e->alive) + (uint64_t)(first * bytes);
    at[2] = (uint64_t)((turned ? -time->inner : time->inner) * bytes);
    if (s->has_row_order) at[RCVI_ARGUMENT_WORDS] = (uint64_t)(uintptr_t)(f->worker->kept + e->rows_order);
}

static void put_step(const argument_writer *f, const rcvi_kernel_step *s) {
    const rcvi_time *time = &s->step->time;
    uint64_t *at = f->words + s->words;
    at[0] = (uint64_t)time->base;
    at[1] = (uint64_t)time->inner;
    at[2] = (uint64_t)s->low;
    at[3] = (uint64_t)s->high;
    put_views(f, s, at + RCVI_STEP_WORDS);
    put_ports(f, s, at + RCVI_STEP_WORDS + RCVI_ARGUMENT_WORDS * (s->view_count + s->rounded_count));
    if (s->has_row_arguments)
        put_rows(f, s, at + RCVI_STEP_WORDS + RCVI_ARGUMENT_WORDS * rcvi_kernel_step_row_argument(s));
}

/* Slots of an operand that are in memory before the loop. */
static rcvi_tiling tile_slots(const argument_writer *f, const rcvi_channel *channel, int64_t from, int64_t slots) {
    const rcvi_persistent *p = f->p;
    const rcvi_view *view = channel->view;
    int64_t batch = f->sizes.batch, block = batch * view->row;
    int64_t slot = rcvi_persistent_slot(p, channel);
    char *rounded_copy = rounded_copy_of(f, view), *memory = rounded_copy ? rounded_copy : memory_of(f, view);
    rcvi_cuda_type type = rounded_copy ? f->engine->narrow : rcvi_cuda_type_of(f->engine, view);
    int64_t element = view->wrap ? channel->column + from % 2 * view->slot : channel->column + from * block;
    return (rcvi_tiling){.from = memory + element * (int64_t)rcvi_cuda_bytes(type),
                         .from_type = type,
                         .type = p->operand,
                         .parts = p->parts,
                         .tensor = f->engine->tensor,
                         .row = view->row,
                         .slot = block,
                         .to_slot = slot,
                         .slots = slots,
                         .rows = batch,
                         .columns = channel->columns,
                         .chunks = channel->chunks,
                         .tile = p->tile,
                         .tiles = p->tiles,
                         .fold = p->depth_splits,
                         .slice = p->slice,
                         .to = f->scratch + f->engine->exchange + p->exchange_offset + channel->offset +
                               (from - channel->base) * slot};
}

/* Copies operands that are in memory before the loop into their channels, and clears counters. */
static rcv_status tile_operands(const argument_writer *f, cudaStream_t stream) {
    rcvi_tiling tilings[RCVI_MAX_TILINGS];
    int count = 0;
    for (int c = 0; c < f->p->channel_count; c++) {
        const rcvi_channel *channel = &f->p->channels[c];
        if (!channel->operand || channel->base > channel->top) continue;
        int64_t before = channel->written ? channel->first - channel->base : channel->top - channel->base + 1;
        int64_t behind = channel->written ? channel->top - channel->last : 0;
        int64_t each = channel->view->wrap ? 1 : INT64_MAX; /* slots that follow one another in memory */
        for (int64_t done = 0; done < before + behind;) {
            int64_t from = done < before ? channel->base + done : channel->last + 1 + done - before;
            int64_t slots = done < before ? before - done : before + behind - done;
            if (slots > each) slots = each;
            tilings[count++] = tile_slots(f, channel, from, slots);
            done += slots;
            if (count < RCVI_MAX_TILINGS) continue;
            RCVI_CUDA_TRY(rcvi_cuda_tile(stream, tilings, count, NULL, 0), "bringing operands");
            count = 0;
        }
    }
    unsigned *counters = (unsigned *)(void *)(f->scratch + f->engine->counters);
    return rcvi_cuda_check(rcvi_cuda_tile(stream, tilings, count, counters, f->p->counters),
                           "bringing operands and clearing counters");
}

rcv_status rcvi_persistent_launch(const rcvi_worker *worker, const rcvi_persistent *p, char *scratch, cudaEvent_t begun,
                                  cudaStream_t stream) {
    uint64_t words[RCVI_MAX_PERSISTENT_WORDS];
    argument_writer f = {worker, worker->engine, p, scratch, words, worker->program->sizes};
    int slices = (int)((f.sizes.batch + p->slice - 1) / p->slice), blocks = 0; /* those that have sequences */
    memset(words, 0, rcvi_persistent_parameter_words(p) * sizeof *words);
    words[0] = (uint64_t)p->iterations;
    words[1] = (uint64_t)f.sizes.batch;
    words[2] = (uint64_t)(uintptr_t)worker->fault;
    words[3] = (uint64_t)(uintptr_t)(scratch + worker->engine->exchange + p->exchange_offset + p->streamed_offset);
    words[4] = (uint64_t)p->task_count;
    for (int s = 0; s < p->task_count; s++) {
        const rcvi_task *task = &p->tasks[s];
        uint64_t *at = words + RCVI_HEADER_WORDS + RCVI_TASK_WORDS * s;
        at[0] = (uint64_t)blocks;
        blocks += task->blocks * slices;
        at[1] = (uint64_t)task->variant;
        for (int k = 0; k < task->step_count; k++) {
            const rcvi_kernel_step *step = &p->steps[task->steps[k]];
            at[2 + k] = (uint64_t)rcvi_kernel_step_arguments(step) << 32 | step->words;
        }
    }
    for (int i = 0; i < p->step_count; i++) put_step(&f, &p->steps[i]);
    RCVI_TRY(tile_operands(&f, stream));
    RCVI_CUDA_TRY(cudaEventRecord(begun, stream), "marking a stream");
    /* blocks of different clusters do not wait for each other; those of one cluster run at once */
    cudaLaunchAttribute together = {.id = cudaLaunchAttributeCooperative, .val = {.cooperative = 1}};
    if (p->cluster)
        together = (cudaLaunchAttribute){.id = cudaLaunchAttributeClusterDimension,
                                         .val = {.clusterDim = {(unsigned)p->cluster, 1, 1}}};
    cudaLaunchConfig_t launch = {.gridDim = {(unsigned)blocks, 1, 1},
                                 .blockDim = {p->cluster ? RCVI_CLUSTER_THREADS : RCVI_PERSISTENT_THREADS, 1, 1},
                                 .dynamicSmemBytes = p->shared_bytes,
                                 .stream = stream,
                                 .attrs = &together,
                                 .numAttrs = 1};
    void *arguments[] = {words};
    return rcvi_cuda_check(cudaLaunchKernelExC(&launch, (const void *)p->kernel, arguments),
                           "launching a persistent kernel");
}

rcv_status rcvi_cluster_check(const rcvi_persistent *p) {
    const int portable = 8;
    int count = 0;
    if (p->cluster > portable)
        RCVI_CUDA_TRY(cudaFuncSetAttribute((const void *)p->kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
                      "asking for a large cluster");
    cudaLaunchAttribute size = {.id = cudaLaunchAttributeClusterDimension,
                                .val = {.clusterDim = {(unsigned)p->cluster, 1, 1}}};
    cudaLaunchConfig_t launch = {.gridDim = {(unsigned)p->blocks, 1, 1},
                                 .blockDim = {RCVI_CLUSTER_THREADS, 1, 1},
                                 .dynamicSmemBytes = p->shared_bytes,
                                 .attrs = &size,
                                 .numAttrs = 1};
    RCVI_CUDA_TRY(cudaOccupancyMaxActiveClusters(&count, (const void *)p->kernel, &launch),
                  "asking how many clusters fit");
    if (count > 0) return RCV_OK;
    return rcvi_fail(RCV_UNSUPPORTED,
                     "a persistent kernel of this loop needs clusters of %d blocks, but the GPU runs none of that size",
                     p->cluster);
}
