/* Persistent kernels run on the host: their texts are compiled behind stand-ins for what a GPU has (persistent_host.h), and
 * what a loop then computes is in_registers against the loop taken step by step in double. Small chips make weights lie in registers,
 * in shared memory, or come every time. */
#include "device/cuda/engine/ragged.h"
#include "device/cuda/engine/worker.h"
#include "device/cuda/kernels/kernels.h"
#include "persistent_subject.h"
#include "sample.h"
#include "scratch.h"

#include <dlfcn.h>
#include <math.h>
#include <unistd.h>

/* The launch, with a host in argument of the GPU. */
static cudaError_t tile_on_host(const rcvi_tiling *tilings, int count, unsigned *clear, int64_t words);
static cudaError_t launch_on_host(const cudaLaunchConfig_t *launch, void **arguments);
#define rcvi_cuda_tile(STREAM, ...) ((void)(STREAM), tile_on_host(__VA_ARGS__))
#define cudaLaunchKernelExC(LAUNCH, KERNEL, ARGUMENTS) launch_on_host(LAUNCH, ARGUMENTS)
#define cudaEventRecord(EVENT, STREAM) ((void)(EVENT), (void)(STREAM), cudaSuccess)
#define rcvi_persistent_launch launch_persistent_on_host
#include "device/cuda/persistent/launch.c"

/* ---- the text ---- */

/* What stands in the text, and what stands there for the host. */
static const struct {
    const char *from, *to;
    bool optional;
} replaced[] = {
    {"INLINE void barrier_make(unsigned at, int count) {", "make_barrier(at, count); return;", false},
    {"INLINE void barrier_arrive(unsigned at) {", "arrive(at, 0); return;", false},
    {"INLINE void barrier_wait(unsigned at, unsigned parity) {", "wait_phase(at, parity); return;", false},
    {"INLINE void copy_async(unsigned to, unsigned long long from, int bytes) {",
     "copy_piece(to, from, bytes); return;", false},
    {"INLINE void copies_commit() {", "commit_copies(); return;", false},
    {"template <int PENDING> INLINE void copies_wait() {", "wait_for_copies(PENDING); return;", false},
    {"INLINE void read_segment(unsigned at, unsigned (&x)[4]) {", "get_shared(at, x); return;", false},
    {"INLINE void write_segment(unsigned at, const unsigned (&x)[4]) {", "put_shared(at, x); return;", false},
    {"INLINE void copy_bulk(unsigned to, unsigned long long from, int bytes, unsigned barrier) {",
     "copy_chunks(to, from, bytes, barrier); return;", false},
    {"INLINE void increment_counter(unsigned long long counter) {", "increment_on_host(counter); return;", false},
    {"INLINE void store_words(unsigned long long at, const unsigned (&words)[VECTOR]) {",
     "put_words(at, words); return;", false},
    {"INLINE void load_relaxed(unsigned long long at, int wanted, Group<float> &x) {",
     "get_words(at, wanted, x.at, sizeof x.at); return;", false},
    {"const unsigned (&a)[4], unsigned long long b, int more) {", "multiply_on_host(sums, a, 0, b, more); return;",
     true},
    {"unsigned long long a, unsigned long long b, int more) {", "multiply_on_host(sums, nullptr, a, b, more); return;",
     true},
    {"INLINE void write_sum(unsigned at, float x, bool there) {", "if (there) put_shared(at, x); return;", false},
    {"INLINE void load_matrices(unsigned at, unsigned (&x)[4]) {", "load_on_host(at, x); return;", false},
    {"INLINE void multiply_rows(float *sums, const unsigned (&a)[4], unsigned low, unsigned high) {",
     "multiply_rows_on_host(sums, a, low, high); return;", false},
    {"INLINE bool barrier_passed(unsigned at, unsigned parity) {", "return has_passed(at, parity);", false},
    {"INLINE void barrier_expect(unsigned at, int bytes) {", "arrive(at, bytes); return;", false},
    {"INLINE void send_segment(unsigned to, const unsigned (&x)[4], unsigned barrier) {",
     "send_to(to, x, barrier); return;", true},
    {"INLINE void sync_cluster() {", "meet_all(); return;", true},
    {"INLINE void wait_for_peers(const Words &c, unsigned barrier, unsigned parity) {",
     "wait_phase(barrier, parity); return;", true},
    /* from here on in argument of it, else behind it */
    {"asm(\"mapa.shared::cluster.u32 %0, %1, %2;\" : \"=r\"(there) : \"r\"(at), \"r\"(peer));",
     "there = address_in(at, peer);", true},
    {"(unsigned)__cvta_generic_to_shared(at)", "shared_number(at)", false},
    {"extern __shared__ __align__(1024) unsigned char shared_memory[];", "#define shared_memory (own_block().memory)",
     false},
    {"asm(\"cvt.rna.tf32.f32 %0, %1;\" : \"=r\"(y) : \"f\"(x));", "y = (__float_as_uint(x) + 0x1000) & 0xffffe000;",
     false},
    {"asm(\"tanh.approx.f32 %0, %1;\" : \"=f\"(y) : \"f\"(x));", "y = tanhf(x);", false},
    {"asm volatile(\"ld.acquire.gpu.global.u32 %0, [%1];\" : \"=r\"(x) : \"l\"(counter) : \"memory\");",
     "x = look_at(counter);", false},
    {"asm volatile(\"bar.sync 0;\" ::: \"memory\");", "meet_at(0, HOST_THREADS);", false},
    {"asm volatile(\"bar.sync 1, %0;\" ::\"n\"((int)MAP_THREADS) : \"memory\");", "meet_at(1, MAP_THREADS);", false},
    {"asm volatile(\"bar.sync 1, 256;\" ::: \"memory\");", "meet_at(1, 256);", true},
    {"asm volatile(\"bar.sync 4, 256;\" ::: \"memory\");", "meet_at(4, 256);", false},
    {"asm volatile(\"bar.sync %0, 128;\" ::\"n\"(2 + PIPE) : \"memory\");", "meet_at(2 + PIPE, 128);", false},
    {"asm volatile(\"ld.shared.b32 %0, [%1];\" : \"=r\"(a[c * 4 + j][r]) : \"r\"(at) : \"memory\");",
     "get_shared(at, a[c * 4 + j][r]);", false},
    {"asm volatile(\"st.shared.f32 [%0], %1;\" ::\"r\"(at), \"f\"(STARTED ? sums[i] + start : sums[i]) : \"memory\");",
     "put_shared(at, STARTED ? sums[i] + start : sums[i]);", true},
};
enum { REPLACED = sizeof replaced / sizeof *replaced, BEHIND = 22 };

/* Instructions that need nothing on the host, or stand behind what is done instead. */
static const char *const known[] = {"\"",           "cp.async.",   "fence.",    "wgmma.fence",   "wgmma.commit",
                                    "wgmma.wait",   "setmaxnreg.", "{\\n.reg",  "mbarrier.init", "ld.shared.v4",
                                    "st.shared.v4", "red.release", "ldmatrix.", "st.relaxed",    "barrier.cluster"};

static char *replace(char *text, size_t n) {
    const char *from = replaced[n].from, *to = replaced[n].to;
    size_t length = strlen(from), keep = n < BEHIND ? length : 0, count = 0;
    for (char *at = strstr(text, from); at; at = strstr(at + length, from)) count++;
    if (!count && !replaced[n].optional) fail_msg("the kernel's text has no '%s'", from);
    char *out = malloc(strlen(text) + count * (strlen(to) + length) + 1), *end = out;
    assert_non_null(out);
    for (char *at = text;;) {
        char *next = strstr(at, from);
        size_t before = next ? (size_t)(next - at) + keep : strlen(at);
        memcpy(end, at, before);
        end += before;
        if (!next) break;
        end += sprintf(end, "%s", to);
        at = next + length;
    }
    *end = '\0';
    free(text);
    return out;
}

static void check_known(const char *text) {
    static const char mark[] = "asm volatile(\"";
    for (const char *at = strstr(text, mark); at; at = strstr(at + 1, mark)) {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            found |= !strncmp(at + strlen(mark), known[i], strlen(known[i]));
        if (!found) fail_msg("the host does not know %.60s", at);
    }
}

typedef int runner(const void *words, int blocks);
static runner *run_kernel;

/* A file of this kind for kernel `number`: a name is expected once. */
static const char *file_of(int number, const char *kind) {
    char name[40];
    snprintf(name, sizeof name, "host%d.%s", number, kind);
    return path_in(name);
}

static void write_for_host(const char *source, int number) {
    char *text = strdup(source);
    assert_non_null(text);
    for (size_t n = 0; n < REPLACED; n++) text = replace(text, n);
    check_known(text);
    const char *types = strstr(text, "/* Elements of views");
    assert_non_null(types);
    FILE *file = fopen(file_of(number, "cpp"), "w");
    assert_non_null(file);
    fwrite(text, 1, (size_t)(types - text), file); /* macros */
    fprintf(file, "#include \"%s/tests/unit/cuda/persistent_host.h\"\n%s\n", RCV_SOURCE_DIR, types);
    fprintf(file, "#include \"%s/tests/unit/cuda/persistent_host_run.h\"\n", RCV_SOURCE_DIR);
    assert_int_equal(fclose(file), 0);
    free(text);
}

/* All at once. */
static void compile_for_host(int first, int end) {
    char command[4000];
    int at = 0;
    for (int n = first; n < end; n++) {
        at += snprintf(command + at, sizeof command - (size_t)at,
                       "${CXX:-c++} -std=c++17 -D__device__= -O0 -w -fno-strict-aliasing -shared -fPIC -o %s",
                       file_of(n, "so"));
        at += snprintf(command + at, sizeof command - (size_t)at, " %s & ", file_of(n, "cpp"));
        assert_true((size_t)at < sizeof command - 10);
    }
    strcpy(command + at, "wait");
    assert_int_equal(system(command), 0);
}

static void *open_for_host(int number) {
    void *open = dlopen(file_of(number, "so"), RTLD_NOW | RTLD_LOCAL);
    if (!open) fail_msg("the host's compiler refuses the text: %s", dlerror());
    unlink(file_of(number, "cpp"));
    unlink(file_of(number, "so"));
    return open;
}

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

/* ---- the loop step by step, in double ---- */

typedef struct {
    const rcvi_engine *engine;
    const rcvi_program *program;
    double **buffers;
    int64_t *alive, *order; /* [steps], [batch]: rows that go on, and the caller's rows, where the engine sorts */
    int64_t iteration, time;
} oracle;

static double *element_of(const oracle *o, const rcvi_view *view, int64_t row, int64_t column) {
    if (o->engine->sorts && rcvi_cuda_is_by_row(&o->program->buffers[view->buffer])) row = o->order[row];
    return &o->buffers[view->buffer]
                      [rcvi_view_start(view, o->iteration, 0, o->time) + row * view->row + column * view->column];
}

static double product_of(const oracle *o, const rcvi_product *product, int64_t row, int64_t column) {
    double sum = product->start.buffer == RCVI_NONE ? 0 : *element_of(o, &product->start, row, column);
    for (int t = 0; t < product->term_count; t++) {
        int64_t depth = product->terms[t].depth;
        const double *b = element_of(o, &product->terms[t].b, 0, column * rcvi_round_up(depth, 8));
        for (int64_t k = 0; k < depth; k++) sum += *element_of(o, &product->terms[t].a, row, k) * b[k];
    }
    return sum;
}

/* Argument a of an instruction; `values`: of an element's products, then of its instructions. */
static double argument_of(const oracle *o, const rcvi_map *map, const rcvi_instruction *i, int a, int64_t row,
                          int64_t column, const double *values) {
    return i->from[a] == RCVI_FROM_VIEW       ? *element_of(o, &map->operands[i->source[a]], row, column)
           : i->from[a] == RCVI_FROM_REGISTER ? values[map->product_count + i->source[a]]
           : i->from[a] == RCVI_FROM_PRODUCT  ? values[i->source[a]]
                                              : i->number[a];
}

/* A row of a map; `values`: [columns, each] */
static void evaluate(const oracle *o, const rcvi_step *step, int64_t row, double *values, size_t each) {
    const rcvi_map *map = step->map;
    for (int k = -map->product_count; k < map->instruction_count; k++) {
        const rcvi_instruction *i = &map->instructions[k < 0 ? 0 : k];
        double sum = 0;
        for (int64_t c = 0; c < step->columns; c++) {
            double x[2] = {0, 0}, *own = values + (size_t)c * each;
            for (int a = 0; k >= 0 && a < rcvi_operations[i->operation].arguments; a++)
                x[a] = argument_of(o, map, i, a, row, c, own);
            sum += x[0];
            own[map->product_count + k] = k < 0 ? product_of(o, &map->products[map->product_count + k], row, c)
                                          : i->operation == RCVI_SUM
                                              ? 0
                                              : rcvi_operations[i->operation].evaluate(x[0], x[1]);
        }
        for (int64_t c = 0; k >= 0 && i->operation == RCVI_SUM && c < step->columns; c++)
            values[(size_t)c * each + (size_t)(map->product_count + k)] = sum;
    }
}

static void store(const oracle *o, const rcvi_map *map, int64_t row, int64_t column, const double *values) {
    for (int k = 0; k < map->product_count + map->instruction_count; k++) {
        int out = k < map->product_count ? map->products[k].out : map->instructions[k - map->product_count].out;
        if (out != RCVI_NONE) *element_of(o, &map->operands[out], row, column) = values[k];
    }
    for (int i = 0; i < map->store_count; i++)
        *element_of(o, &map->operands[map->stores[i].out], row, column) =
            values[map->stores[i].source + (map->stores[i].product ? 0 : map->product_count)];
}

static void take_map(const oracle *o, const rcvi_step *step, int64_t rows) {
    size_t each = (size_t)(step->map->product_count + step->map->instruction_count);
    double *values = calloc((size_t)(rows * step->columns) * each + 1, sizeof *values);
    assert_non_null(values);
    for (int64_t r = 0; r < rows; r++) evaluate(o, step, r, values + (size_t)(r * step->columns) * each, each);
    for (int64_t k = 0; k < rows * step->columns; k++)
        store(o, step->map, k / step->columns, k % step->columns, values + (size_t)k * each);
    free(values);
}

static double choice_of(const oracle *o, const rcvi_view *view, int64_t row, int64_t column) {
    return view->buffer == RCVI_NONE ? 0 : *element_of(o, view, row, column);
}

/* Where the step skips_ended out rows that have ended, those that go on. */
static void take_step(const oracle *o, const rcvi_step *step) {
    int64_t rows = step->rows, last = o->program->options.steps - 1;
    if (o->engine->is_short[step - o->program->steps]) rows = o->alive[step->direction ? last - o->time : o->time];
    if (step->kind == RCVI_STEP_MAP) {
        take_map(o, step, rows);
        return;
    }
    assert_int_equal(step->kind, RCVI_STEP_SELECT);
    for (int64_t k = 0; k < rows * step->columns; k++) {
        int64_t row = k / step->columns, column = k % step->columns;
        bool chosen = *element_of(o, &step->mask, row, 0) != 0;
        *element_of(o, &step->out, row, column) = choice_of(o, chosen ? &step->a : &step->b, row, column);
    }
}

static void take_loop(oracle *o, size_t loop) {
    const rcvi_step *steps = o->program->steps;
    int64_t span;
    for (o->iteration = 0; o->iteration < steps[loop].loop.count; o->iteration++) {
        for (int k = 1; k <= steps[loop].loop.body; k++) {
            if (rcvi_step_is_due(o->program, &steps[loop + (size_t)k], o->iteration, 0, &o->time, &span))
                take_step(o, &steps[loop + (size_t)k]);
        }
    }
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

/* Whether rows go on; else random numbers, and zeros in what is cleared. */
static float number_of(const emulation *s, size_t b, int64_t k, double scale) {
    const rcvi_buffer *buffer = &s->on.program.buffers[b];
    int64_t batch = s->on.program.options.batch;
    double x = 2.0 * rand() / ((double)RAND_MAX + 1) - 1;
    if (s->on.engine.sorts && buffer->element == RCVI_BYTE && !strcmp(buffer->name, "live"))
        return k % batch < s->oracle.alive[k / batch];
    return s->on.engine.is_cleared[b] ? 0 : (float)(x * scale);
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

/* Does the kernel store the buffer with flag_words alone? */
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
    FOLDED,
    KEEPING,
    KEEPING_ALL, /* none of the weights in registers */
    STREAMING,
    RINGED,
    ALONE,
    TURNING, /* room for two tiles */
    TILED,
    BY_ROWS,
    PAIRED,
    FLAGGED,
    FLAGGED_ONLY,
    FOLDED_PAIRED,
    FOLDED_EXACT,
    SPLIT_WARP_MMA, /* by warps, each its own depth_splits */
    LEAVING,
    EVEN,          /* both pipes have some of what comes from elsewhere, and of the task's own */
    MAP_WARPGROUP, /* a has_map_warpgroup warpgroup takes maps, */
    THIRD_WIDE,    /* of products by warpgroups, */
    THIRD_WAITING, /* and waits for values of other tasks, */
    THIRD_LEAVING, /* or rests where no row goes on */
    CLUSTERED,
    CLUSTERED_FOLDED,
    CLUSTERED_TILED,
    CLUSTERED_SLICED,
    CLUSTERED_KEEPING,
    CLUSTERED_TASKS,
    CLUSTERED_AT_ONCE,  /* what is sent is read in the same iteration */
    CLUSTERED_SHORT,    /* of the last block's columns some are not there */
    CLUSTERED_WARP_MMA, /* by warps, each its own depth_splits */
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
    seen[FOLDED] += p->depth_splits > 1;
    seen[KEEPING] += p->shared_weight_chunks > 0;
    seen[STREAMING] += p->streamed_chunks > 0;
    seen[TILED] += p->tiles > 1;
    seen[BY_ROWS] += p->by_rows;
    seen[PAIRED] += p->paired;
    seen[FOLDED_EXACT] += p->exact && p->depth_splits > 1;
    seen[SPLIT_WARP_MMA] += !p->exact && p->depth_splits > 1 && p->tile == 8;
    seen[FOLDED_PAIRED] += p->paired && p->depth_splits > 1;
    seen[MAP_WARPGROUP] += p->has_map_warpgroup;
    seen[THIRD_WIDE] += p->has_map_warpgroup && p->tile > 8;
    seen[CLUSTERED] += p->cluster > 1;
    seen[CLUSTERED_FOLDED] += p->cluster && p->depth_splits > 2;
    seen[CLUSTERED_TILED] += p->cluster && p->tiles > 1;
    seen[CLUSTERED_SLICED] += p->cluster > 1 && p->slices > 1;
    seen[CLUSTERED_KEEPING] += p->cluster && p->shared_weight_chunks;
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
        seen[LEAVING] += step->by_rows && step->skips_ended;
        seen[THIRD_LEAVING] += p->has_map_warpgroup && step->pass_count && step->skips_ended;
        seen[THIRD_WAITING] += p->has_map_warpgroup && step->pass_count && step->wait_count;
    }
    seen[EVEN] += has_both(p, &p->tasks[0]);
    for (int pipe = 0; pipe < RCVI_PIPES; pipe++) {
        const rcvi_task *task = &p->tasks[0];
        seen[KEEPING_ALL] += !task->in_registers[pipe] && task->in_shared[pipe];
        seen[RINGED] += task->ring[pipe] > 1 && task->group_count[pipe] > task->ring[pipe];
        seen[ALONE] += task->ring[pipe] == 1 && task->group_count[pipe] > 1;
        seen[TURNING] += task->ring[pipe] > task->group_count[pipe];
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
    rcvi_worker worker = {.engine = &s->on.engine, .buffers = s->memory, .fault = &fault};
    if (launch_persistent_on_host(&worker, p, s->scratch, NULL, NULL))
        fail_msg("%s by %s of %d rows hangs", t->cell, t->plan, (int)t->batch);
    take_loop(&s->oracle, (size_t)p->loop);
    double worst = compare_all(s, p);
    const char *name = strrchr(t->cell, '/');
    print_message("%s, %s, %s, %d rows of %d%s%s: off by %.1e\n", name ? name + 1 : t->cell, t->plan,
                  rcv_dtype_name(t->dtype), (int)t->batch, (int)t->net.hidden, t->lengths ? ", some of which end" : "",
                  t->resets ? ", or begin anew" : "", worst);
    if (!(worst > 0 && worst <= tolerance_of(t->dtype, p->parts))) fail_msg("that is too much");
    remember(p);
    empty(s);
    rcvi_persistent_free(s->on.context, p);
    dlclose(library);
}

static const char normal[] = RCV_SOURCE_DIR "/tests/support/cells/normal.cell",
                  many_values[] = RCV_SOURCE_DIR "/tests/support/cells/many_values.cell";
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
