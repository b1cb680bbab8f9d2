/* The CPU as a device: what it reports about itself, and the run of a program's steps by a team of threads. */
#include "device/cpu/engine/engine.h"
#include "device/cpu/engine/pages.h"
#include "device/cpu/gemm/openblas.h"
#include "device/cpu/kernels/select.h"
#include "device/cpu/learn/learn.h"
#include "device/cpu/measure.h"
#include "device/cpu/scan/scan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_VENDORS = 16, LARGE_BUFFER = 4 << 20 };

/* The vendor's library for calls of one size. */
typedef struct {
    rcvi_vendor *vendor; /* NULL: none */
    rcvi_sizes sizes;
    int64_t converted; /* number of the parameters that it has converted */
    int64_t used;      /* number of the last call that used it */
} sized_vendor;

struct rcvi_worker {
    const rcvi_engine *engine;
    rcv_context *context;
    rcvi_team *team;                    /* NULL: one thread */
    sized_vendor vendors[MOST_VENDORS]; /* the first one is for the plan's own sizes, and stays */
    int64_t vendor_calls, parameters;   /* calls of them; changes of the parameters */
    int64_t touched[2];                 /* steps times sequences of the largest forward and backward pass */
};

/* ---- properties ---- */

/* Bytes of the cache of this level (2 or 3), as Linux reports them; 0 where it does not. */
static int64_t cache_bytes(int level) {
    char path[64], text[32] = "";
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", level);
    FILE *file = fopen(path, "r");
    int64_t bytes = 0;
    if (file) {
        if (fgets(text, sizeof text, file)) {
            char *unit = NULL;
            bytes = strtoll(text, &unit, 10);
            bytes *= *unit == 'K' ? 1024 : *unit == 'M' ? 1024 * 1024 : 1;
        }
        fclose(file);
    }
    return bytes;
}

static int64_t l2_bytes(void) {
    int64_t bytes = cache_bytes(2);
    return bytes >= 64 * 1024 ? bytes : 1024 * 1024;
}

static rcv_status describe(rcv_context *context, int ordinal, rcv_dtype dtype, int64_t threads, rcvi_machine *machine) {
    (void)ordinal;
    if (dtype == RCV_TFLOAT32 || dtype == RCV_FLOAT16)
        return rcvi_fail(RCV_UNSUPPORTED, "plans in %s need a GPU; the CPU computes in float32, float64 and bfloat16",
                         rcv_dtype_name(dtype));
    const rcvi_kernels *kernels = rcvi_context_kernels(context);
    if (!kernels) return RCV_INVALID;
    rcvi_kernel_type type = dtype == RCV_FLOAT64    ? RCVI_KERNEL_DOUBLE
                            : dtype == RCV_BFLOAT16 ? RCVI_KERNEL_BFLOAT16
                                                    : RCVI_KERNEL_FLOAT;
    const rcvi_product_kernels *products = &kernels->products[type];
    *machine = (rcvi_machine){.threads = threads,
                              .cache = l2_bytes(),
                              .shared = cache_bytes(3),
                              .panel = products->panel,
                              .grain = products->grain,
                              .group = products->group,
                              .vendor = rcvi_vendor_name(),
                              .kernels = kernels->name};
    return RCV_OK;
}

static void describe_libraries(int ordinal, rcvi_machine *machine) {
    (void)ordinal;
    machine->libraries = rcvi_openblas() ? rcvi_openblas()->config : NULL;
    machine->no_blas = rcvi_openblas_absence();
}

static const char *find_library(const char *name, const char **reason) {
    *reason = NULL;
    if (!strcmp(name, "OpenBLAS")) {
        *reason = rcvi_openblas_absence();
        return *reason ? NULL : rcvi_openblas()->config;
    }
    if (!strcmp(name, "oneDNN") && rcvi_vendor_name()) return rcvi_vendor_name();
    *reason = "this build has no oneDNN";
    return NULL;
}

static rcv_status print_info(rcv_context *context, int ordinal, rcvi_text *text) {
    (void)ordinal;
    const rcvi_kernels *kernels = rcvi_context_kernels(context);
    if (!kernels) return RCV_INVALID;
    rcvi_text_add(text, "%lld cores, kernels %s, %s", (long long)rcvi_cores(), kernels->name,
                  rcvi_vendor_name() ? rcvi_vendor_name() : "no oneDNN");
    return RCV_OK;
}

static rcv_status prepare(const rcvi_program *program, rcvi_engine **engine) {
    const rcvi_kernels *kernels = rcvi_kernels_find(program->machine.kernels);
    if (!kernels) return rcvi_fail(RCV_INVALID, "this machine has no kernels '%s'", program->machine.kernels);
    return rcvi_engine_new(program, kernels, engine);
}

static size_t scratch_bytes(const rcvi_engine *engine) { return engine->scratch * (size_t)engine->members; }

static bool has_team(const rcvi_engine *engine) { return engine->members > 1 && !engine->has_vendor; }

static size_t worker_bytes(const rcvi_engine *engine) {
    return sizeof(rcvi_worker) + engine->vendor_bytes + (has_team(engine) ? rcvi_team_bytes(engine->members) : 0);
}

static void close_worker(rcvi_worker *worker) {
    if (!worker) return;
    rcvi_team_free(worker->team);
    for (int i = 0; i < MOST_VENDORS; i++) rcvi_vendor_free(worker->vendors[i].vendor);
    rcvi_free(worker->context, worker);
}

static rcv_status open_worker(const rcvi_engine *engine, rcvi_worker **out) {
    rcv_context *context = engine->pool.context;
    rcvi_worker *worker = rcvi_new(context, 1, sizeof *worker);
    *out = NULL;
    if (!worker) return RCV_NO_MEMORY;
    worker->engine = engine;
    worker->context = context;
    rcv_status status = RCV_OK;
    if (has_team(engine)) status = rcvi_team_new(context, engine->members, &worker->team);
    if (!status && engine->has_vendor) {
        worker->vendors[0].sizes = engine->program->sizes;
        status = rcvi_vendor_new(engine->program, engine->program->sizes, &worker->vendors[0].vendor);
    }
    if (status) {
        close_worker(worker);
        return status;
    }
    *out = worker;
    return RCV_OK;
}

/* ---- one run ---- */

typedef struct {
    rcvi_worker *worker;
    const rcvi_binding *binding;
    size_t first, end;
    char *scratch;
    double begin;
    rcv_status status; /* status of the vendor's library */
} run_call;

/* Finds the vendor's library for the sizes of the call, and makes it where there is none: in the place of the one that was used
 * the longest time ago. */
static rcv_status find_vendor(rcvi_worker *worker, rcvi_sizes sizes, sized_vendor **found) {
    sized_vendor *oldest = &worker->vendors[1];
    for (int i = 0; i < MOST_VENDORS; i++) {
        sized_vendor *v = &worker->vendors[i];
        *found = v;
        if (v->vendor && v->sizes.steps == sizes.steps && v->sizes.batch == sizes.batch) return RCV_OK;
        if (i > 0 && v->used < oldest->used) oldest = v;
    }
    rcvi_vendor_free(oldest->vendor);
    *oldest = (sized_vendor){.sizes = sizes};
    *found = oldest;
    return rcvi_vendor_new(worker->engine->program, sizes, &oldest->vendor);
}

static rcv_status run_vendor(rcvi_worker *worker, bool backward, const rcvi_binding *binding) {
    sized_vendor *v = NULL;
    rcvi_binding own = *binding;
    RCVI_TRY(find_vendor(worker, binding->program->sizes, &v));
    if (!backward && !binding->same_parameters) worker->parameters++;
    own.same_parameters = v->converted == worker->parameters;
    v->used = ++worker->vendor_calls;
    RCVI_TRY(rcvi_vendor_run(v->vendor, backward, &own));
    if (!backward) v->converted = worker->parameters;
    return RCV_OK;
}

static void record_event(run_call *run, const rcvi_step_call *call, double begin, bool looped) {
    const rcvi_binding *binding = run->binding;
    size_t index = __atomic_fetch_add(binding->event_count, 1, __ATOMIC_RELAXED);
    if (index >= binding->event_capacity) return;
    const rcvi_step *step = call->step;
    const rcvi_program *program = binding->program;
    binding->events[index] = (rcv_event){.worker = call->member,
                                         .layer = step->layer,
                                         .reverse = step->direction > 0,
                                         .backward = (size_t)(step - program->steps) >= program->forward_count,
                                         .iteration = looped && step->time.span == 1 ? call->time : -1,
                                         .what = rcvi_step_names[step->kind],
                                         .begin = begin - run->begin,
                                         .end = rcvi_now() - run->begin};
}

static void run_step(run_call *run, rcvi_step_call *call, bool looped) {
    double begin = run->binding->events ? rcvi_now() : 0;
    bool reference = call->engine->is_reference;
    switch (call->step->kind) {
    case RCVI_STEP_PACK: rcvi_run_pack(call); break;
    case RCVI_STEP_VENDOR:
        if (call->member == 0) run->status = run_vendor(run->worker, call->step->vendor.backward, run->binding);
        break;
    case RCVI_STEP_COMMUNICATE:
        if (run->binding->signals)
            __atomic_store_n(&run->binding->signals[call->step->communicate.signal], *run->binding->signal,
                             __ATOMIC_RELEASE);
        break;
    default:
        if (call->step->kind == RCVI_STEP_MAP && !reference)
            rcvi_run_map(call);
        else if (call->step->kind == RCVI_STEP_GEMM && !reference)
            rcvi_run_gemm(call);
        else if (rcvi_step_sums_rows(call->step) && !reference)
            rcvi_run_reduce(call);
        else if (call->engine->type == RCVI_KERNEL_DOUBLE)
            rcvi_run_step_double(call);
        else
            rcvi_run_step_float(call);
    }
    if (run->binding->events) record_event(run, call, begin, looped);
}

/* True if the step runs in this iteration; then sets call->rows and call->depth for the time steps that are due. */
static bool begin_step(const rcvi_binding *binding, rcvi_step_call *call) {
    const rcvi_step *step = call->step;
    int64_t span;
    if (step->when == RCVI_WHEN_OVERWRITING && !binding->overwrite) return false;
    if (step->when == RCVI_WHEN_RESTART_IS_INITIAL && !binding->restart_is_initial[step->state]) return false;
    if (step->when == RCVI_WHEN_PARAMETERS_CHANGED && binding->same_parameters) return false;
    if (step->when != RCVI_WHEN_PARAMETERS_CHANGED && binding->only_prepares) return false;
    if (!rcvi_step_is_due(binding->program, step, call->inner, call->outer, &call->time, &span)) return false;
    bool over_depth = step->kind == RCVI_STEP_GEMM && step->gemm.transpose_a;
    int64_t full = step->time.timed ? step->time.span : 1;
    call->rows = over_depth ? step->rows : step->rows / full * span;
    call->depth = step->kind != RCVI_STEP_GEMM ? 0 : over_depth ? step->gemm.depth / full * span : step->gemm.depth;
    return true;
}

/* How the step is divided in this call. */
static rcvi_partition partition_of(const rcvi_step_call *call) {
    if (!call->prepared->by_rows_or_columns) return call->prepared->partition;
    return call->rows >= call->members ? RCVI_PARTITION_ROWS : RCVI_PARTITION_COLUMNS;
}

/* Work of one row or column of a step, in multiply-adds. */
static double cost_of(const rcvi_step_call *call) {
    int64_t across = partition_of(call) == RCVI_PARTITION_ROWS ? call->step->columns : call->rows;
    return call->prepared->cost * (double)across;
}

/* Number of units of a step: a member computes whole units, each of *grain rows or columns. */
static int64_t units_of(const rcvi_step_call *call, int64_t *grain) {
    bool columns = partition_of(call) == RCVI_PARTITION_COLUMNS;
    *grain =
        columns && call->step->kind == RCVI_STEP_MAP ? call->engine->kernels->products[call->engine->type].grain : 1;
    return ((columns ? call->step->columns : call->rows) + *grain - 1) / *grain;
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Sets the member's rows or columns of a step whose work begins at `before` of the `total` work of its group. */
static void assign_share(rcvi_step_call *call, double before, double total) {
    int64_t grain, units = units_of(call, &grain), bounds[2];
    rcvi_partition partition = partition_of(call);
    double each = cost_of(call) * (double)grain;
    for (int i = 0; i < 2; i++) {
        double mark = total * (call->member + i) / call->members - before;
        double unit = mark / each + 0.5;
        bounds[i] = mark <= 0 ? 0 : unit >= (double)units ? units : (int64_t)unit;
    }
    if (call->member + 1 == call->members) bounds[1] = units;
    call->row = call->column = 0;
    call->row_end = call->rows;
    call->column_end = call->step->columns;
    if (partition == RCVI_PARTITION_COLUMNS) {
        call->column = smaller(bounds[0] * grain, call->column_end);
        call->column_end = smaller(bounds[1] * grain, call->column_end);
    } else if (partition == RCVI_PARTITION_ROWS) {
        call->row = bounds[0];
        call->row_end = bounds[1];
    } else if (partition == RCVI_PARTITION_NONE && call->member > 0) {
        call->row_end = 0;
    }
}

static double work_of(const rcvi_step_call *call) {
    int64_t grain, units = units_of(call, &grain);
    return cost_of(call) * (double)(units * grain);
}

/* Runs a group of steps, then synchronises. There is no barrier after a group of which no step is due, nor after the last group:
 * rcvi_team_call waits for all members at its end. */
static void run_group(run_call *run, rcvi_step_call *call, size_t first, size_t end, bool looped) {
    const rcvi_engine *engine = call->engine;
    double total = 0, before = 0;
    bool due = false;
    for (size_t i = first; i < end; i++) {
        call->step = &run->binding->program->steps[i];
        call->prepared = &engine->prepared[i];
        if (!begin_step(run->binding, call)) continue;
        total += work_of(call);
        due = true;
    }
    for (size_t i = first; i < end; i++) {
        call->step = &run->binding->program->steps[i];
        call->prepared = &engine->prepared[i];
        if (!begin_step(run->binding, call)) continue;
        assign_share(call, before, total);
        before += work_of(call);
        bool whole =
            call->prepared->partition == RCVI_PARTITION_PANELS || call->prepared->partition == RCVI_PARTITION_MATMUL;
        if (whole || (call->row < call->row_end && call->column < call->column_end)) run_step(run, call, looped);
    }
    if (call->members > 1 && due && (looped || end < run->end)) rcvi_team_barrier(run->worker->team, call->member);
}

/* Runs a step of a private loop: the member's rows of the batch, or its columns, in units of GRAIN columns (a cache line of
 * floats). */
static void run_private(run_call *run, rcvi_step_call *call, size_t index) {
    enum { GRAIN = 16 };
    call->step = &run->binding->program->steps[index];
    call->prepared = &call->engine->prepared[index];
    if (!begin_step(run->binding, call)) return;
    bool columns = call->prepared->partition == RCVI_PARTITION_COLUMNS;
    int64_t units = columns ? (call->step->columns + GRAIN - 1) / GRAIN : call->rows;
    int64_t first = units * call->member / call->members, end = units * (call->member + 1) / call->members;
    call->row = columns ? 0 : first;
    call->row_end = columns ? call->rows : end;
    call->column = columns ? smaller(first * GRAIN, call->step->columns) : 0;
    call->column_end = columns ? smaller(end * GRAIN, call->step->columns) : call->step->columns;
    if (call->row < call->row_end && call->column < call->column_end) run_step(run, call, true);
}

static void run_range(run_call *run, rcvi_step_call *call, size_t first, size_t end, int depth) {
    const rcvi_engine *engine = call->engine;
    int64_t outer = call->inner;
    for (size_t i = first; i < end;) {
        const rcvi_step *step = &run->binding->program->steps[i];
        if (step->kind != RCVI_STEP_LOOP) {
            if (engine->prepared[i].is_private)
                run_private(run, call, i);
            else
                run_group(run, call, i, (size_t)engine->prepared[i].group_end, depth > 0);
            i = (size_t)engine->prepared[i].group_end;
            continue;
        }
        size_t body_end = i + 1 + (size_t)step->loop.body;
        for (int64_t k = 0; k < step->loop.count && !run->binding->only_prepares; k++) {
            call->outer = outer;
            call->inner = k;
            run_range(run, call, i + 1, body_end, depth + 1);
        }
        call->inner = outer;
        call->outer = 0;
        if (engine->prepared[i].is_private) rcvi_team_barrier(run->worker->team, call->member);
        i = body_end;
    }
}

static void run_member(void *user, int member) {
    run_call *run = user;
    const rcvi_engine *engine = run->worker->engine;
    rcvi_step_call call = {.engine = engine,
                           .binding = run->binding,
                           .member = member,
                           .members = run->worker->team ? engine->members : 1,
                           .streams = engine->streams && rcvi_distant_buffers_exceed_cache(run->binding->program),
                           .scratch = run->scratch + (size_t)member * engine->scratch};
    if (engine->kernels->begin) engine->kernels->begin();
    run_range(run, &call, run->first, run->end, 0);
    if (engine->kernels->end) engine->kernels->end();
}

/* ---- memory that a pass uses for the first time ---- */

/* Bytes of a large buffer of the pass, at the sizes of the call; 0: it is another one. */
static size_t large_bytes(const run_call *run, size_t b) {
    const rcvi_program *program = run->binding->program;
    const rcvi_buffer *buffer = &program->buffers[b];
    bool used = buffer->role == RCVI_ARENA && run->binding->buffers[b] && buffer->last >= (int)run->first &&
                buffer->first < (int)run->end;
    size_t bytes = used ? (size_t)buffer->count * rcvi_element_bytes(program, buffer->element) : 0;
    return bytes < LARGE_BUFFER ? 0 : bytes;
}

static void touch_member(void *user, int member) {
    const run_call *run = user;
    for (size_t b = 0; b < run->binding->program->buffer_count; b++) {
        size_t bytes = large_bytes(run, b);
        if (bytes) rcvi_touch_pages(run->binding->buffers[b], bytes, member, run->worker->engine->members);
    }
}

/* Before a pass that is larger than those before, the team touches its memory, each member other pages: the steps of the pass divide it
 * otherwise. */
static rcv_status touch_memory(run_call *run) {
    const rcvi_sizes *sizes = &run->binding->program->sizes;
    int64_t *touched = &run->worker->touched[run->first > 0], rows = sizes->steps * sizes->batch;
    size_t large = 0;
    if (!run->worker->team || run->binding->only_prepares || rows <= *touched) return RCV_OK;
    *touched = rows;
    for (size_t b = 0; b < run->binding->program->buffer_count; b++) large += large_bytes(run, b);
    return large ? rcvi_team_call(run->worker->team, touch_member, run) : RCV_OK;
}

static rcv_status run_steps(rcvi_worker *worker, size_t first, size_t end, const rcvi_binding *binding, void *scratch) {
    run_call run = {.worker = worker, .binding = binding, .first = first, .end = end, .scratch = scratch};
    if (binding->events) run.begin = rcvi_now();
    bool blas = worker->engine->program->rungs.blas;
    RCVI_TRY(touch_memory(&run));
    if (blas) rcvi_blas_begin();
    rcv_status status = RCV_OK;
    if (worker->team)
        status = rcvi_team_call(worker->team, run_member, &run);
    else
        run_member(&run, 0);
    if (blas) rcvi_blas_end();
    if (binding->events && *binding->event_count > binding->event_capacity)
        *binding->event_count = binding->event_capacity;
    return status ? status : run.status;
}

static rcv_status clear(rcvi_worker *worker, void *to, size_t bytes, void *scratch, void *stream) {
    (void)worker, (void)scratch, (void)stream;
    memset(to, 0, bytes);
    return RCV_OK;
}

const rcvi_device rcvi_device_cpu = {.name = "cpu",
                                     .describe = describe,
                                     .describe_libraries = describe_libraries,
                                     .find_library = find_library,
                                     .print_info = print_info,
                                     .prepare = prepare,
                                     .release = rcvi_engine_free,
                                     .scratch_bytes = scratch_bytes,
                                     .extra_bytes = worker_bytes,
                                     .open = open_worker,
                                     .close = close_worker,
                                     .run = run_steps,
                                     .clear = clear,
                                     .scan = &rcvi_cpu_scan,
                                     .learn = &rcvi_cpu_learn,
                                     .measure_bandwidth = rcvi_measure_bandwidth};
