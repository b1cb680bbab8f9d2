/* Persistent kernels run on the host: their texts are compiled with an emulation of the GPU (persistent_host.h), and the results of a loop are
 * compared with the loop executed step by step in double. GPUs with few processors and little shared memory make weights go to registers,
 * to shared memory, or be streamed. */
#include "device/cuda/engine/worker.h"
#include "device/cuda/kernels/kernels.h"
#include "persistent_reference.h"
#include "persistent_translate.h"
#include "sample.h"

#include <math.h>

/* The launch, with the host in place of the GPU. */
static cudaError_t tile_on_host(const rcvi_tiling *tilings, int count, unsigned *clear, int64_t words);
static cudaError_t launch_on_host(const cudaLaunchConfig_t *launch, void **arguments);
#define rcvi_cuda_tile(STREAM, ...) ((void)(STREAM), tile_on_host(__VA_ARGS__))
#define cudaLaunchKernelExC(LAUNCH, KERNEL, ARGUMENTS) launch_on_host(LAUNCH, ARGUMENTS)
#define cudaEventRecord(EVENT, STREAM) ((void)(EVENT), (void)(STREAM), cudaSuccess)
#define rcvi_persistent_launch launch_persistent_on_host
#include "device/cuda/persistent/launch.c"

/* ---- the launch ---- */

static float rounded(float x, rcvi_cuda_type type, bool tensor) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (type == RCVI_BF16) bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    if (tensor) bits = (bits + 0x1000) & 0xffffe000u;
    memcpy(&x, &bits, 4);
    return x;
}

static float get(rcvi_cuda_type type, const void *memory, int64_t at) {
    uint32_t bits = 0;
    float x;
    if (type == RCVI_F32) return ((const float *)memory)[at];
    if (type == RCVI_U8) return ((const unsigned char *)memory)[at];
    memcpy((char *)&bits + 2, (const char *)memory + 2 * at, 2);
    memcpy(&x, &bits, 4);
    return x;
}

static void put(rcvi_cuda_type type, void *memory, int64_t at, float x) {
    if (type == RCVI_U8) {
        ((unsigned char *)memory)[at] = x > 0;
        return;
    }
    float near = rounded(x, type, false);
    size_t size = rcvi_cuda_bytes(type);
    memcpy((char *)memory + at * (int64_t)size, (const char *)&near + 4 - size, size);
}

static void tile_element(const rcvi_tiling *m, int64_t slot, int64_t row, int64_t column) {
    int64_t size = (int64_t)rcvi_cuda_bytes(m->type), each = 128 / size, depth = m->chunks / m->parts * each;
    int64_t in_tile = row % m->slice % m->tile, line = column / depth * m->tile + in_tile;
    int64_t tile = row / m->slice * m->tiles + row % m->slice / m->tile,
            segment = (column % each * size / 16) ^ (in_tile & 7);
    float x = column < m->columns ? get(m->from_type, m->from, slot * m->slot + row * m->row + column) : 0;
    for (int64_t part = 0; part < m->parts; part++) {
        char *to = (char *)m->to + slot * m->to_slot +
                   ((tile * m->chunks + column % depth / each * m->parts + part) * m->tile * m->fold + line) * 128 +
                   segment * 16;
        float taken = rounded(x, m->type, m->tensor);
        put(m->type, to, column % (16 / size), taken);
        x -= taken;
    }
}

static cudaError_t tile_on_host(const rcvi_tiling *tilings, int count, unsigned *clear, int64_t words) {
    if (words) memset(clear, 0, (size_t)words * sizeof *clear);
    for (int n = 0; n < count; n++) {
        const rcvi_tiling *m = &tilings[n];
        int64_t columns = m->chunks / m->parts * m->fold * (128 / (int64_t)rcvi_cuda_bytes(m->type));
        for (int64_t k = 0; k < m->slots * m->rows * columns; k++)
            tile_element(m, k / columns / m->rows, k / columns % m->rows, k % columns);
    }
    return cudaSuccess;
}

static cudaError_t launch_on_host(const cudaLaunchConfig_t *launch, void **arguments) {
    if (launch->attrs[0].id == cudaLaunchAttributeClusterDimension) {
        assert_int_equal(launch->gridDim.x % launch->attrs[0].val.clusterDim.x, 0);
        assert_int_equal(launch->blockDim.x, RCVI_CLUSTER_THREADS);
    }
    return run_kernel(arguments[0], (int)launch->gridDim.x) ? cudaErrorLaunchTimeout : cudaSuccess;
}

/* ---- both ---- */

typedef struct {
    subject on;
    void **memory; /* [buffers] */
    oracle oracle;
    char *scratch;
} emulation;

typedef struct {
    const char *cell, *plan;
    rcv_dtype dtype;
    rcv_net_options net;
    int64_t steps, batch;
    int processors, shared;
    bool lengths, resets;
} trial;

static void open_emulation(emulation *s, const trial *t) {
    const config c = {t->cell, t->net, t->steps, t->batch, t->lengths, t->resets, true};
    memset(s, 0, sizeof *s);
    subject_data = t->dtype == RCV_BFLOAT16 && t->batch % 2 ? RCV_AS_BFLOAT16 : RCV_AS_PLAN;
    subject_parameters = t->dtype == RCV_BFLOAT16 && t->batch % 3 != 1 ? RCV_AS_BFLOAT16 : RCV_AS_PLAN;
    open_subject_on(&s->on, &c, t->dtype, true, t->plan, t->processors, t->shared);
    s->memory = calloc(s->on.program.buffer_count, sizeof *s->memory);
    s->oracle = (oracle){.engine = &s->on.engine,
                         .program = &s->on.program,
                         .buffers = calloc(s->on.program.buffer_count, sizeof(double *)),
                         .alive = calloc((size_t)t->steps, sizeof(int64_t)),
                         .order = calloc((size_t)t->batch, sizeof(int64_t))};
    assert_true(s->memory && s->oracle.buffers && s->oracle.alive && s->oracle.order);
    /* the longest first; the caller has them the other way round */
    for (int64_t k = 0; k < t->steps; k++) s->oracle.alive[k] = t->batch - t->batch * k / t->steps;
    for (int64_t k = 0; k < t->batch; k++) s->oracle.order[k] = t->batch - 1 - k;
}

static void close_emulation(emulation *s) {
    free(s->memory);
    free(s->oracle.buffers);
    free(s->oracle.alive);
    free(s->oracle.order);
    close_subject(&s->on);
}

static void *new_memory(size_t bytes) {
    size_t room = (bytes + 1023) / 1024 * 1024;
    void *memory = aligned_alloc(1024, room ? room : 1024);
    assert_non_null(memory);
    return memset(memory, 0, room ? room : 1024);
}

static rcvi_cuda_type type_of(const emulation *s, size_t buffer) {
    return rcvi_cuda_type_of(&s->on.engine, &(rcvi_view){.buffer = (int)buffer});
}

/* Do maps have one number of it for a row, such as the deviation that they divide by? */
static bool is_of_rows(const rcvi_program *program, size_t b) {
    bool found = false;
    for (size_t i = 0; i < program->step_count; i++) {
        const rcvi_step *step = &program->steps[i];
        for (int v = 0; step->kind == RCVI_STEP_MAP && v < step->map->operand_count; v++) {
            const rcvi_view *view = &step->map->operands[v];
            found |= view->buffer == (int)b && view->row && !view->column;
        }
    }
    return found;
}

/* A mask of active rows; else random numbers, and zeros in what is cleared. */
static float number_of(const emulation *s, size_t b, int64_t k, double scale) {
    const rcvi_buffer *buffer = &s->on.program.buffers[b];
    int64_t batch = s->on.program.options.batch;
    double x = 2.0 * rand() / ((double)RAND_MAX + 1) - 1;
    if (s->on.engine.sorts && buffer->element == RCVI_BYTE && !strcmp(buffer->name, "live"))
        return k % batch < s->oracle.alive[k / batch];
    return s->on.engine.cleared_before[b] != RCVI_NONE ? 0 : (float)(x * scale);
}

static void fill_buffer(emulation *s, size_t b, double scale) {
    int64_t count = s->on.program.buffers[b].count;
    bool divides = is_of_rows(&s->on.program, b);
    s->memory[b] = new_memory((size_t)count * 8);
    s->oracle.buffers[b] = new_memory((size_t)count * sizeof(double));
    if (s->on.program.buffers[b].element == RCVI_INDEX) return;
    for (int64_t k = 0; k < count; k++) {
        float number = number_of(s, b, k, scale);
        put(type_of(s, b), s->memory[b], k, divides ? 0.5f + fabsf(number) : number);
        float x = get(type_of(s, b), s->memory[b], k);
        s->oracle.buffers[b][k] = (double)x;
        if (s->on.engine.rounded[b] != SIZE_MAX) put(s->on.engine.narrow, s->scratch + s->on.engine.rounded[b], k, x);
    }
}

static size_t take(size_t *at, size_t bytes) {
    size_t argument = *at;
    *at += (bytes + 1023) / 1024 * 1024;
    return argument;
}

/* Numbers everywhere, and rounded of them. */
static void fill(emulation *s, rcvi_persistent *p) {
    const rcv_plan_options *o = &s->on.program.options;
    size_t at = 0;
    for (size_t b = 0; b < s->on.program.buffer_count; b++) {
        if (s->on.engine.rounded[b] != SIZE_MAX)
            s->on.engine.rounded[b] = take(&at, (size_t)s->on.program.buffers[b].count * 4);
    }
    s->on.engine.alive = take(&at, (size_t)o->steps * sizeof(int64_t));
    s->on.engine.rows_order = take(&at, (size_t)o->batch * sizeof(int64_t));
    s->on.engine.exchange = take(&at, p->exchange);
    s->on.engine.counters = take(&at, (size_t)p->counters * 4);
    s->scratch = new_memory(at);
    memcpy(s->scratch + s->on.engine.alive, s->oracle.alive, (size_t)o->steps * sizeof(int64_t));
    memcpy(s->scratch + s->on.engine.rows_order, s->oracle.order, (size_t)o->batch * sizeof(int64_t));
    for (size_t b = 0; b < s->on.program.buffer_count; b++)
        fill_buffer(s, b,
                    s->on.program.buffers[b].element == RCVI_PACKED ? 1 / sqrt((double)p->tasks[0].columns) : 0.8);
}

static void empty(emulation *s) {
    for (size_t b = 0; b < s->on.program.buffer_count; b++) {
        free(s->memory[b]);
        free(s->oracle.buffers[b]);
    }
    free(s->scratch);
}

/* Does the kernel store the buffer only as flagged words? */
static bool is_flagged_only(const rcvi_persistent *p, size_t buffer) {
    bool flagged_only = false;
    for (int n = 0; n < p->step_count; n++) {
        const rcvi_kernel_step *s = &p->steps[n];
        for (int v = 0; v < s->shape.map->operand_count; v++)
            flagged_only |= s->is_flagged_only[v] && s->views[v]->buffer == (int)buffer;
    }
    return flagged_only;
}

/* The largest error of a buffer, relative to its largest element; -1 where the loop has written nothing. */
static double compare_all(const emulation *s, const rcvi_persistent *p) {
    double worst = -1;
    for (size_t b = 0; b < s->on.program.buffer_count; b++) {
        double scale = 1e-3, error = 0;
        if (is_flagged_only(p, b) || p->unread[b] || s->on.program.buffers[b].element == RCVI_INDEX) continue;
        for (int64_t k = 0; k < s->on.program.buffers[b].count; k++) {
            double want = s->oracle.buffers[b][k], got = (double)get(type_of(s, b), s->memory[b], k);
            scale = fmax(scale, fabs(want));
            error = fmax(error, isfinite(got) ? fabs(got - want) : INFINITY);
        }
        if (error > 0) worst = fmax(worst, error / scale);
    }
    return worst;
}

enum {
    SPLIT_DEPTH,
    IN_SHARED,
    IN_SHARED_ALL, /* none of the weights in registers */
    STREAMING,
    RINGED,
    ALONE,
    TWO_TILES, /* room for two tiles */
    TILED,
    BY_ROWS,
    PAIRED,
    FLAGGED,
    FLAGGED_ONLY,
    SPLIT_DEPTH_PAIRED,
    SPLIT_DEPTH_EXACT,
    SPLIT_WARP_MMA, /* warp MMA, each warp with its own split */
    SKIPPING,
    EVEN,           /* both pipes have some of other operands, and of own ones */
    MAP_WARPGROUP,  /* a map warpgroup, */
    THIRD_WIDE,     /* with wgmma, */
    THIRD_WAITING,  /* and waits for values of other tasks, */
    THIRD_SKIPPING, /* or skips tiles */
    CLUSTERED,
    CLUSTERED_SPLIT_DEPTH,
    CLUSTERED_TILED,
    CLUSTERED_SLICED,
    CLUSTERED_IN_SHARED,
    CLUSTERED_TASKS,
    CLUSTERED_AT_ONCE,  /* the operand is read in the iteration in which it is sent */
    CLUSTERED_SHORT,    /* the last block has fewer columns */
    CLUSTERED_WARP_MMA, /* warp MMA, each warp with its own split */
    CLUSTERED_WIDE,     /* by both warpgroups */
    CLUSTERED_ODD,      /* of fewer blocks than the next power of two, which would leave some without columns */
    KINDS
};
static int seen[KINDS]; /* loops */

/* Has every pass chunks in both pipes? */
static bool has_both(const rcvi_persistent *p, const rcvi_task *task) {
    const rcvi_kernel_step *product_step = &p->steps[task->product_step];
    bool both = product_step->pass_count > 1;
    for (int q = 0; q < product_step->pass_count; q++)
        both &=
            task->pipe_split[q] > 0 && task->pipe_split[q] < rcvi_persistent_chunks(p, product_step->passes[q].depth);
    return both;
}

static void remember(const rcvi_persistent *p) {
    seen[SPLIT_DEPTH] += p->depth_splits > 1;
    seen[IN_SHARED] += p->shared_weight_chunks > 0;
    seen[STREAMING] += p->streamed_chunks > 0;
    seen[TILED] += p->tiles > 1;
    seen[BY_ROWS] += p->by_rows;
    seen[PAIRED] += p->paired;
    seen[SPLIT_DEPTH_EXACT] += p->exact && p->depth_splits > 1;
    seen[SPLIT_WARP_MMA] += !p->exact && p->depth_splits > 1 && p->tile == 8;
    seen[SPLIT_DEPTH_PAIRED] += p->paired && p->depth_splits > 1;
    seen[MAP_WARPGROUP] += p->has_map_warpgroup;
    seen[THIRD_WIDE] += p->has_map_warpgroup && p->tile > 8;
    seen[CLUSTERED] += p->cluster > 1;
    seen[CLUSTERED_SPLIT_DEPTH] += p->cluster && p->depth_splits > 2;
    seen[CLUSTERED_TILED] += p->cluster && p->tiles > 1;
    seen[CLUSTERED_SLICED] += p->cluster > 1 && p->slices > 1;
    seen[CLUSTERED_IN_SHARED] += p->cluster && p->shared_weight_chunks;
    seen[CLUSTERED_TASKS] += p->cluster && p->task_count > 1;
    seen[CLUSTERED_AT_ONCE] += p->cluster && !p->tasks[0].ahead;
    seen[CLUSTERED_WARP_MMA] += p->cluster && !p->exact && p->depth_splits > 2 && rcvi_persistent_uses_warp_mma(p);
    seen[CLUSTERED_WIDE] += p->cluster && !p->exact && !rcvi_persistent_uses_warp_mma(p);
    seen[CLUSTERED_ODD] += (p->cluster & (p->cluster - 1)) != 0;
    seen[CLUSTERED_SHORT] += p->cluster > 1 && p->tasks[0].columns % p->tasks[0].units;
    for (int c = 0; c < p->channel_count; c++) {
        seen[FLAGGED] += p->channels[c].flagged;
        seen[FLAGGED_ONLY] += is_flagged_only(p, (size_t)p->channels[c].buffer);
    }
    for (int n = 0; n < p->step_count; n++) {
        const rcvi_kernel_step *step = &p->steps[n];
        seen[SKIPPING] += step->by_rows && step->skips_ended;
        seen[THIRD_SKIPPING] += p->has_map_warpgroup && step->pass_count && step->skips_ended;
        seen[THIRD_WAITING] += p->has_map_warpgroup && step->pass_count && step->wait_count;
    }
    seen[EVEN] += has_both(p, &p->tasks[0]);
    for (int pipe = 0; pipe < RCVI_PIPES; pipe++) {
        const rcvi_task *task = &p->tasks[0];
        seen[IN_SHARED_ALL] += !task->in_registers[pipe] && task->in_shared[pipe];
        seen[RINGED] += task->ring[pipe] > 1 && task->group_count[pipe] > task->ring[pipe];
        seen[ALONE] += task->ring[pipe] == 1 && task->group_count[pipe] > 1;
        seen[TWO_TILES] += task->ring[pipe] > task->group_count[pipe];
    }
}

static double tolerance_of(rcv_dtype dtype, int parts) {
    if (dtype != RCV_FLOAT32) return dtype == RCV_TFLOAT32 ? 2e-3 : 3e-2;
    return parts == 2 ? 2e-5 : 1e-6;
}

static void check_loop(emulation *s, const trial *t, rcvi_persistent *p, void *library) {
    unsigned fault = 0;
    *(void **)&run_kernel = dlsym(library, "run_persistent");
    assert_non_null(run_kernel);
    fill(s, p);
    rcvi_worker worker = {.engine = &s->on.engine,
                          .kept = s->scratch,
                          .program = s->on.engine.program,
                          .buffers = s->memory,
                          .fault = &fault};
    if (launch_persistent_on_host(&worker, p, s->scratch, NULL, NULL))
        fail_msg("%s by %s of %d rows hangs", t->cell, t->plan, (int)t->batch);
    take_loop(&s->oracle, (size_t)p->loop);
    double worst = compare_all(s, p);
    const char *name = strrchr(t->cell, '/');
    print_message("%s, %s, %s, %d rows of %d%s%s: off by %.1e\n", name ? name + 1 : t->cell, t->plan,
                  rcv_dtype_name(t->dtype), (int)t->batch, (int)t->net.hidden, t->lengths ? ", some of which end" : "",
                  t->resets ? ", or are reset" : "", worst);
    if (!(worst > 0 && worst <= tolerance_of(t->dtype, p->parts))) fail_msg("that is too much");
    remember(p);
    empty(s);
    rcvi_persistent_free(s->on.context, p);
    dlclose(library);
}

static const char normal[] = RCV_SOURCE_DIR "/tests/support/cells/normal.cell",
                  many_values[] = RCV_SOURCE_DIR "/tests/support/cells/many_values.cell",
                  decay[] = RCV_SOURCE_DIR "/tests/support/cells/decay.cell";
static const char two[] = "combine+fuse+pack+persistent(parts=2)", three[] = "combine+fuse+pack+persistent",
                  one[] = "combine+fuse+pack+persistent(parts=1)",
                  together[] = "combine(steps=all)+fuse+pack+merge+persistent",
                  backwards[] = "combine(steps=all)+fuse+pack+merge+persistent", /* forwards it has no room */
    waves[] = "combine+fuse+pack+wavefront+merge+persistent",
                  exact_waves[] = "combine+fuse+pack+wavefront+merge+persistent(parts=1)",
                  forward_waves[] = "combine(steps=all,forward=1)+fuse+pack+wavefront(forward)+merge+persistent",
                  clusters[] = "combine(steps=all)+fuse+pack+persistent+cluster",
                  pairs_of_clusters[] = "combine(steps=all)+fuse+pack+merge+persistent+cluster",
                  clusters_of_two[] = "combine(steps=all)+fuse+pack+persistent(parts=2)+cluster",
                  exact_clusters[] = "combine(steps=all)+fuse+pack+persistent(parts=1)+cluster";
static const trial trials[] = {
    {"lstm", two, RCV_FLOAT32, {.input = 19, .hidden = 24, .layers = 1}, 3, 3, 132, 232448, false, false},
    {"lstm", two, RCV_FLOAT32, {.input = 8, .hidden = 72, .layers = 1}, 2, 30, 6, 96 << 10, false, false},
    {"lstm", two, RCV_FLOAT32, {.input = 40, .hidden = 130, .layers = 1}, 2, 8, 132, 70000, false, false},
    {"lstm", three, RCV_FLOAT32, {.input = 40, .hidden = 72, .layers = 1}, 2, 64, 6, 140000, false, false},
    {"lstm", one, RCV_FLOAT32, {.input = 40, .hidden = 130, .layers = 1}, 2, 8, 132, 60000, false, false},
    {"gru", one, RCV_FLOAT32, {.input = 19, .hidden = 45, .layers = 1}, 4, 1, 132, 232448, false, false},
    {"gru", one, RCV_FLOAT32, {.input = 19, .hidden = 24, .layers = 1}, 2, 20, 4, 232448, false, false},
    {"lstm", waves, RCV_FLOAT32, {.input = 24, .hidden = 24, .layers = 3}, 4, 5, 132, 232448, false, false},
    {"lstm", exact_waves, RCV_FLOAT32, {.input = 24, .hidden = 24, .layers = 2}, 4, 5, 132, 232448, false, false},
    {"lstm", forward_waves, RCV_FLOAT32, {.input = 24, .hidden = 24, .layers = 2}, 4, 5, 132, 232448, false, false},
    {"gru", forward_waves, RCV_BFLOAT16, {.input = 24, .hidden = 40, .layers = 2}, 4, 9, 132, 232448, true, true},
    {"lstm", waves, RCV_TFLOAT32, {.input = 24, .hidden = 24, .layers = 2}, 4, 5, 132, 232448, false, false},
    {"lstm", three, RCV_BFLOAT16, {.input = 40, .hidden = 72, .layers = 1}, 2, 70, 6, 100 << 10, false, false},
    {"lstm_layernorm", waves, RCV_BFLOAT16, {.input = 40, .hidden = 40, .layers = 2}, 4, 5, 132, 232448, false, false},
    {"lstm_layernorm", three, RCV_TFLOAT32, {.input = 19, .hidden = 45, .layers = 1}, 3, 11, 132, 232448, false, false},
    {"lstm_layernorm", three, RCV_FLOAT32, {.input = 24, .hidden = 24, .layers = 1}, 3, 11, 132, 232448, false, false},
    {"lstm_layernorm", one, RCV_FLOAT32, {.input = 24, .hidden = 24, .layers = 1}, 3, 11, 132, 232448, false, false},
    {"lstm_layernorm",
     three,
     RCV_BFLOAT16,
     {.input = 104, .hidden = 104, .layers = 1},
     2,
     3,
     132,
     232448,
     false,
     false},
    {"lstm", three, RCV_BFLOAT16, {.input = 40, .hidden = 130, .layers = 1}, 3, 5, 132, 232448, false, false},
    {"lstm", three, RCV_TFLOAT32, {.input = 8, .hidden = 72, .layers = 1}, 2, 64, 6, 70000, false, false},
    {"lstm", waves, RCV_BFLOAT16, {.input = 40, .hidden = 136, .layers = 2}, 3, 20, 60, 232448, false, false},
    {"lstm", waves, RCV_BFLOAT16, {.input = 72, .hidden = 72, .layers = 2}, 3, 20, 10, 232448, false, false},
    {"lstm", waves, RCV_BFLOAT16, {.input = 72, .hidden = 72, .layers = 2}, 4, 24, 10, 232448, true, true},
    {"lstm", backwards, RCV_BFLOAT16, {.input = 24, .hidden = 264, .layers = 1}, 3, 32, 9, 90000, false, false},
    {"lstm", one, RCV_FLOAT32, {.input = 40, .hidden = 192, .layers = 1}, 2, 3, 132, 232448, false, false},
    {normal, waves, RCV_BFLOAT16, {.input = 40, .hidden = 40, .layers = 2}, 4, 5, 132, 232448, false, false},
    {normal, three, RCV_TFLOAT32, {.input = 24, .hidden = 72, .layers = 1}, 3, 70, 3, 232448, false, false},
    {"lstm", waves, RCV_BFLOAT16, {.input = 40, .hidden = 40, .layers = 2}, 4, 9, 132, 232448, true, true},
    {"lstm_layernorm", three, RCV_BFLOAT16, {.input = 40, .hidden = 40, .layers = 1}, 3, 20, 3, 232448, true, false},
    {"lstm_layernorm", waves, RCV_TFLOAT32, {.input = 24, .hidden = 24, .layers = 2}, 4, 9, 132, 232448, true, true},
    {normal, three, RCV_BFLOAT16, {.input = 24, .hidden = 24, .layers = 1}, 4, 9, 132, 232448, true, false},
    {many_values, together, RCV_TFLOAT32, {.input = 24, .hidden = 24, .layers = 1}, 3, 9, 132, 232448, false, false},
    {decay, waves, RCV_BFLOAT16, {.input = 24, .hidden = 40, .layers = 2}, 4, 9, 132, 232448, true, true},
    {decay, clusters, RCV_BFLOAT16, {.input = 24, .hidden = 40, .layers = 1}, 4, 20, 132, 232448, false, false},
    {"lstm", together, RCV_BFLOAT16, {.input = 19, .hidden = 45, .layers = 1}, 4, 9, 132, 232448, false, false},
    {"gru", together, RCV_BFLOAT16, {.input = 24, .hidden = 24, .layers = 1}, 4, 20, 4, 232448, true, false},
    {"lstm", clusters, RCV_BFLOAT16, {.input = 24, .hidden = 72, .layers = 1}, 5, 20, 132, 232448, false, false},
    {"lstm", clusters, RCV_BFLOAT16, {.input = 24, .hidden = 272, .layers = 1}, 4, 1, 132, 232448, false, false},
    {"gru", clusters, RCV_TFLOAT32, {.input = 24, .hidden = 416, .layers = 1}, 3, 3, 132, 232448, false, false},
    {"gru", clusters, RCV_BFLOAT16, {.input = 19, .hidden = 136, .layers = 1}, 3, 2, 132, 232448, false, false},
    {"lstm", clusters, RCV_TFLOAT32, {.input = 19, .hidden = 72, .layers = 1}, 3, 1, 132, 232448, false, false},
    {"gru", clusters_of_two, RCV_FLOAT32, {.input = 19, .hidden = 45, .layers = 1}, 4, 11, 132, 232448, false, false},
    {"lstm", clusters, RCV_FLOAT32, {.input = 40, .hidden = 40, .layers = 1}, 4, 70, 132, 232448, false, false},
    {"lstm", exact_clusters, RCV_FLOAT32, {.input = 40, .hidden = 130, .layers = 1}, 4, 5, 132, 232448, false, false},
    {"lstm", exact_clusters, RCV_FLOAT32, {.input = 24, .hidden = 24, .layers = 1}, 4, 50, 3, 232448, false, false},
    {"lstm_peephole", clusters, RCV_BFLOAT16, {.input = 24, .hidden = 40, .layers = 1}, 4, 80, 2, 232448, false, false},
    {"lstm", clusters, RCV_BFLOAT16, {.input = 24, .hidden = 72, .layers = 1}, 5, 9, 132, 232448, true, false},
    {"gru", clusters, RCV_TFLOAT32, {.input = 24, .hidden = 40, .layers = 1}, 5, 20, 132, 232448, true, true},
    {"lstm", clusters, RCV_BFLOAT16, {.input = 3, .hidden = 6, .layers = 1}, 4, 2, 132, 232448, false, false},
    {"lstm", clusters, RCV_BFLOAT16, {.input = 19, .hidden = 77, .layers = 1}, 12, 3, 132, 232448, true, false},
    {"rnn_tanh", exact_clusters, RCV_FLOAT32, {.input = 3, .hidden = 37, .layers = 1}, 4, 40, 16, 232448, true, false},
    {"lstm",
     waves,
     RCV_BFLOAT16,
     {.input = 24, .hidden = 24, .layers = 2, .zoneout = 0.3},
     4,
     9,
     132,
     232448,
     true,
     true},
    {"gru",
     three,
     RCV_FLOAT32,
     {.input = 19, .hidden = 24, .layers = 1, .zoneout = 0.3},
     3,
     5,
     132,
     232448,
     false,
     false},
    {"lstm",
     clusters,
     RCV_BFLOAT16,
     {.input = 24, .hidden = 40, .layers = 1, .zoneout = 0.3},
     4,
     9,
     132,
     232448,
     false,
     false},
    {"lstm",
     pairs_of_clusters,
     RCV_BFLOAT16,
     {.input = 24, .hidden = 72, .layers = 1, .bidirectional = true},
     5,
     9,
     132,
     232448,
     false,
     false},
};

/* Kernels are compiled without sanitizers, whatever the test is. */
static void test_kernels(void **state) {
    (void)state;
    if (system("${CXX:-c++} --version > /dev/null 2>&1") != 0) {
        print_message("skipped: there is no C++ compiler to run the text with\n");
        skip();
    }
    gpu_alone = 1;
    for (int i = 0; i < (int)(sizeof trials / sizeof *trials); i++) {
        enum { LOOPS = 3 }; /* at most: one forwards, and one backwards or one a layer */
        rcvi_persistent *p[LOOPS];
        emulation s;
        int loops = 0, expected = trials[i].plan == forward_waves ? 1 + (int)trials[i].net.layers
                                  : trials[i].plan == backwards   ? 1
                                                                  : 2;
        if (!sample_takes((size_t)i)) continue;
        open_emulation(&s, &trials[i]);
        for (size_t loop = 0; next_loop(&s.on, &loop); loop++) {
            assert_true(loops < LOOPS);
            rcv_status status = rcvi_persistent_new(&s.on.engine, loop, &p[loops]);
            if (trials[i].plan == backwards && loop < s.on.program.forward_count) {
                assert_int_equal(status, RCV_UNSUPPORTED);
                continue;
            }
            check_ok(status);
            if (s.on.program.rungs.cluster && !p[loops]->cluster)
                fail_msg("not in clusters: %s", s.on.engine.not_clustered);
            write_for_host(p[loops]->source, LOOPS * i + loops);
            loops++;
        }
        assert_int_equal(loops, expected);
        compile_for_host(LOOPS * i, LOOPS * i + loops);
        for (int n = 0; n < loops; n++) check_loop(&s, &trials[i], p[n], open_for_host(LOOPS * i + n));
        close_emulation(&s);
    }
    for (int k = 0; k < KINDS; k++) {
        if (!seen[k] && !sample_is_partial()) fail_msg("no loop of kind %d", k);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kernels)};
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}
