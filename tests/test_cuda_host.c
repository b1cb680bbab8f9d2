/* Persistent kernels run on the host: their texts are compiled behind stand-ins for what a GPU has (persistent_host.h), and
 * what a loop then computes is held against the loop taken step by step in double. Small chips make weights lie in registers,
 * in shared memory, or come every time. */
#include "device/cuda/kernels.h"
#include "device/cuda/persistent_parts.h"
#include "device/cuda/worker.h"
#include "planned.h"
#include "schedule/schedule.h"
#include "scratch.h"

#include <dlfcn.h>
#include <math.h>
#include <unistd.h>

/* The launch, with a host in place of the GPU. */
static cudaError_t tile_on_host(const rcvi_tiling *tilings, int count);
static cudaError_t launch_on_host(const cudaLaunchConfig_t *launch, void **arguments);
#define cudaMemsetAsync(TO, BYTE, BYTES, STREAM) (memset(TO, BYTE, BYTES), (void)(STREAM), cudaSuccess)
#define rcvi_cuda_tile(STREAM, TILINGS, COUNT) ((void)(STREAM), tile_on_host(TILINGS, COUNT))
#define cudaLaunchKernelExC(LAUNCH, KERNEL, ARGUMENTS) launch_on_host(LAUNCH, ARGUMENTS)
#define rcvi_persistent_launch launch_persistent_on_host
#include "device/cuda/persistent_launch.c"

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
    {"INLINE void read_piece(unsigned at, unsigned (&x)[4]) {", "get_shared(at, x); return;", false},
    {"INLINE void write_piece(unsigned at, const unsigned (&x)[4]) {", "put_shared(at, x); return;", false},
    {"INLINE void copy_bulk(unsigned to, unsigned long long from, int bytes, unsigned barrier) {",
     "copy_chunks(to, from, bytes, barrier); return;", false},
    {"INLINE void raise(unsigned long long counter) {", "raise_by_one(counter); return;", false},
    {"const unsigned (&a)[4], unsigned long long b, int more) {", "multiply_on_host(sums, a, 0, b, more); return;",
     true},
    {"unsigned long long a, unsigned long long b, int more) {", "multiply_on_host(sums, nullptr, a, b, more); return;",
     true},
    {"INLINE void write_sum(unsigned at, float x, bool there) {", "if (there) put_shared(at, x); return;", false},
    {"INLINE bool barrier_passed(unsigned at, unsigned parity) {", "return has_passed(at, parity);", false},
    {"INLINE void barrier_expect(unsigned at, int bytes) {", "arrive(at, bytes); return;", false},
    /* from here on in place of it, else behind it */
    {"(unsigned)__cvta_generic_to_shared(at)", "shared_number(at)", false},
    {"extern __shared__ __align__(1024) unsigned char shared_memory[];", "#define shared_memory (own_block().memory)",
     false},
    {"asm(\"cvt.rna.tf32.f32 %0, %1;\" : \"=r\"(y) : \"f\"(x));", "y = (__float_as_uint(x) + 0x1000) & 0xffffe000;",
     false},
    {"asm(\"tanh.approx.f32 %0, %1;\" : \"=f\"(y) : \"f\"(x));", "y = tanhf(x);", false},
    {"asm volatile(\"ld.acquire.gpu.global.u32 %0, [%1];\" : \"=r\"(x) : \"l\"(counter) : \"memory\");",
     "x = look_at(counter);", false},
    {"asm volatile(\"bar.sync 0;\" ::: \"memory\");", "meet_at(0, HOST_THREADS);", false},
    {"asm volatile(\"bar.sync 1, 256;\" ::: \"memory\");", "meet_at(1, 256);", false},
    {"asm volatile(\"bar.sync 4, 256;\" ::: \"memory\");", "meet_at(4, 256);", false},
    {"asm volatile(\"bar.sync %0, 128;\" ::\"n\"(2 + LANE) : \"memory\");", "meet_at(2 + LANE, 128);", false},
    {"asm volatile(\"ld.shared.b32 %0, [%1];\" : \"=r\"(a[c * 4 + j][r]) : \"r\"(at) : \"memory\");",
     "get_shared(at, a[c * 4 + j][r]);", false},
    {"asm volatile(\"st.shared.f32 [%0], %1;\" ::\"r\"(at), \"f\"(STARTED ? sums[i] + start : sums[i]) : \"memory\");",
     "put_shared(at, STARTED ? sums[i] + start : sums[i]);", false},
};
enum { REPLACED = sizeof replaced / sizeof *replaced, BEHIND = 13 };

/* Instructions that need nothing on the host, or stand behind what is done instead. */
static const char *const known[] = {"\"",           "cp.async.",   "fence.",   "wgmma.fence",   "wgmma.commit",
                                    "wgmma.wait",   "setmaxnreg.", "{\\n.reg", "mbarrier.init", "ld.shared.v4",
                                    "st.shared.v4", "red.release"};

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

static void *compile_for_host(const char *source) {
    static int number; /* a name is opened once */
    char name[40], path[600], library[600], command[1400];
    char *text = strdup(source);
    assert_non_null(text);
    for (size_t n = 0; n < REPLACED; n++) text = replace(text, n);
    check_known(text);
    const char *types = strstr(text, "/* Elements of views");
    assert_non_null(types);
    snprintf(name, sizeof name, "host%d.so", number++);
    snprintf(library, sizeof library, "%s", path_in(name));
    snprintf(path, sizeof path, "%s", path_in("host.cpp"));
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fwrite(text, 1, (size_t)(types - text), file); /* macros */
    fprintf(file, "#include \"%s/tests/persistent_host.h\"\n%s\n", RCV_SOURCE_DIR, types);
    fprintf(file, "#include \"%s/tests/persistent_host_run.h\"\n", RCV_SOURCE_DIR);
    assert_int_equal(fclose(file), 0);
    snprintf(command, sizeof command,
             "${CXX:-c++} -std=c++17 -D__device__= -O1 -w -fno-strict-aliasing -shared -fPIC -o %s %s", library, path);
    if (system(command) != 0) fail_msg("the host's compiler refuses the text");
    void *open = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!open) fail_msg("%s", dlerror());
    unlink(path);
    unlink(library);
    free(text);
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
    memcpy((char *)&bits + 2, (const char *)memory + 2 * at, 2);
    memcpy(&x, &bits, 4);
    return x;
}

static void put(rcvi_cuda_type type, void *memory, int64_t at, float x) {
    float near = rounded(x, type, false);
    size_t size = rcvi_cuda_bytes(type);
    memcpy((char *)memory + at * (int64_t)size, (const char *)&near + 4 - size, size);
}

static void tile_element(const rcvi_tiling *m, int64_t slot, int64_t row, int64_t column) {
    int64_t size = (int64_t)rcvi_cuda_bytes(m->type), each = 128 / size, depth = m->chunks / m->parts * each;
    int64_t line = column / depth * m->tile + row % m->slice % m->tile;
    int64_t tile = row / m->slice * m->tiles + row % m->slice / m->tile,
            piece = (column % each * size / 16) ^ (line & 7);
    float x = column < m->columns ? get(m->from_type, m->from, slot * m->slot + row * m->row + column) : 0;
    for (int64_t part = 0; part < m->parts; part++) {
        char *to = (char *)m->to + slot * m->to_slot +
                   ((tile * m->chunks + column % depth / each * m->parts + part) * m->tile * m->fold + line) * 128 +
                   piece * 16;
        float taken = rounded(x, m->type, m->tensor);
        put(m->type, to, column % (16 / size), taken);
        x -= taken;
    }
}

static cudaError_t tile_on_host(const rcvi_tiling *tilings, int count) {
    for (int n = 0; n < count; n++) {
        const rcvi_tiling *m = &tilings[n];
        int64_t columns = m->chunks / m->parts * m->fold * (128 / (int64_t)rcvi_cuda_bytes(m->type));
        for (int64_t k = 0; k < m->slots * m->rows * columns; k++)
            tile_element(m, k / columns / m->rows, k / columns % m->rows, k % columns);
    }
    return cudaSuccess;
}

static cudaError_t launch_on_host(const cudaLaunchConfig_t *launch, void **arguments) {
    return run_kernel(arguments[0], (int)launch->gridDim.x) ? cudaErrorLaunchTimeout : cudaSuccess;
}

/* ---- the loop step by step, in double ---- */

typedef struct {
    const rcvi_program *program;
    double **buffers;
    int64_t iteration, time;
} oracle;

static double *element_of(const oracle *o, const rcvi_view *view, int64_t row, int64_t column) {
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

/* `values`: of products, then of instructions. */
static void evaluate(const oracle *o, const rcvi_map *map, int64_t row, int64_t column, double *values) {
    for (int p = 0; p < map->product_count; p++) values[p] = product_of(o, &map->products[p], row, column);
    for (int k = 0; k < map->instruction_count; k++) {
        const rcvi_instruction *i = &map->instructions[k];
        double x[2] = {0, 0};
        for (int a = 0; a < rcvi_operations[i->operation].arguments; a++) {
            x[a] = i->from[a] == RCVI_FROM_VIEW       ? *element_of(o, &map->operands[i->source[a]], row, column)
                   : i->from[a] == RCVI_FROM_REGISTER ? values[map->product_count + i->source[a]]
                   : i->from[a] == RCVI_FROM_PRODUCT  ? values[i->source[a]]
                                                      : i->number[a];
        }
        values[map->product_count + k] = rcvi_operations[i->operation].evaluate(x[0], x[1]);
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

static void take_step(const oracle *o, const rcvi_step *step) {
    size_t each = (size_t)(step->map->product_count + step->map->instruction_count);
    int64_t count = step->rows * step->columns;
    double *values = calloc((size_t)count * each, sizeof *values);
    assert_non_null(values);
    for (int64_t k = 0; k < count; k++)
        evaluate(o, step->map, k / step->columns, k % step->columns, values + (size_t)k * each);
    for (int64_t k = 0; k < count; k++)
        store(o, step->map, k / step->columns, k % step->columns, values + (size_t)k * each);
    free(values);
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
    test_allocator allocator;
    rcv_context *context;
    rcv_cell *cell;
    rcv_net *net;
    rcvi_program program;
    rcvi_engine engine;
    void **memory; /* [buffers] */
    oracle oracle;
    char *scratch;
} subject;

typedef struct {
    const char *cell, *plan;
    rcv_dtype dtype;
    rcv_net_options net;
    int64_t steps, batch;
    int processors, shared;
} trial;

static void open_subject(subject *s, const trial *t) {
    rcv_plan_options options = {
        .steps = t->steps, .batch = t->batch, .schedule = t->plan, .training = true, .dtype = t->dtype};
    rcvi_machine machine = {
        .threads = 1, .panel = 1, .grain = 1, .group = 8, .kernels = "fake_90", .gpu = true, .sums = 1024};
    rcvi_rungs rungs;
    memset(s, 0, sizeof *s);
    s->context = test_context(&s->allocator);
    check_ok(rcv_cell_open(s->context, t->cell, &s->cell));
    check_ok(rcv_net_new(s->cell, &t->net, &s->net));
    check_ok(rcvi_rungs_read(t->plan, &rungs));
    const rcvi_schedule *schedule = rcvi_schedule_for(&rungs);
    check_ok(schedule->applies(s->net, &options, &rungs, &machine));
    rcvi_program_init(&s->program, s->net, &options, &rungs, &machine);
    schedule->write(&s->program);
    assert_false(s->program.failed);
    rcvi_program_narrow(&s->program);
    check_ok(rcvi_program_lay_out(&s->program));
    check_ok(rcvi_program_verify(&s->program));
    s->engine = (rcvi_engine){
        .program = &s->program, .context = s->context, .major = 9, .processors = t->processors, .shared = t->shared};
    rcvi_pool_init(&s->engine.pool, s->context);
    check_ok(rcvi_cuda_find_layout(&s->engine));
    s->memory = calloc(s->program.buffer_count, sizeof *s->memory);
    s->oracle = (oracle){.program = &s->program, .buffers = calloc(s->program.buffer_count, sizeof(double *))};
    assert_true(s->memory && s->oracle.buffers);
}

static void close_subject(subject *s) {
    free(s->memory);
    free(s->oracle.buffers);
    rcvi_pool_free(&s->engine.pool);
    rcvi_program_free(&s->program);
    rcv_net_free(s->net);
    rcv_cell_free(s->cell);
    test_context_end(&s->allocator, s->context);
}

static void *new_memory(size_t bytes) {
    size_t room = (bytes + 1023) / 1024 * 1024;
    void *memory = aligned_alloc(1024, room ? room : 1024);
    assert_non_null(memory);
    return memset(memory, 0, room ? room : 1024);
}

static rcvi_cuda_type type_of(const subject *s, size_t buffer) {
    return rcvi_cuda_type_of(&s->engine, &(rcvi_view){.buffer = (int)buffer});
}

/* Random numbers everywhere, and twins of them. */
static void fill(subject *s, rcvi_persistent *p) {
    size_t at = 0;
    for (size_t b = 0; b < s->program.buffer_count; b++) {
        if (s->engine.twins[b] == SIZE_MAX) continue;
        s->engine.twins[b] = at;
        at += ((size_t)s->program.buffers[b].count * 4 + 1023) / 1024 * 1024;
    }
    s->engine.exchange = at;
    s->engine.counters = at + (p->exchange + 1023) / 1024 * 1024;
    s->scratch = new_memory(s->engine.counters + (size_t)p->counters * 4);
    for (size_t b = 0; b < s->program.buffer_count; b++) {
        int64_t count = s->program.buffers[b].count;
        double scale = s->program.buffers[b].element == RCVI_PACKED ? 1 / sqrt((double)p->seats[0].columns) : 0.8;
        s->memory[b] = new_memory((size_t)count * 4);
        s->oracle.buffers[b] = new_memory((size_t)count * sizeof(double));
        for (int64_t k = 0; k < count; k++) {
            put(type_of(s, b), s->memory[b], k, (float)((2.0 * rand() / ((double)RAND_MAX + 1) - 1) * scale));
            float x = get(type_of(s, b), s->memory[b], k);
            s->oracle.buffers[b][k] = (double)x;
            if (s->engine.twins[b] != SIZE_MAX) put(s->engine.narrow, s->scratch + s->engine.twins[b], k, x);
        }
    }
}

static void empty(subject *s) {
    for (size_t b = 0; b < s->program.buffer_count; b++) {
        free(s->memory[b]);
        free(s->oracle.buffers[b]);
    }
    free(s->scratch);
}

/* The largest error of a buffer, relative to its largest element; -1 where the loop has written nothing. */
static double compare_all(const subject *s) {
    double worst = -1;
    for (size_t b = 0; b < s->program.buffer_count; b++) {
        double scale = 1e-3, error = 0;
        for (int64_t k = 0; k < s->program.buffers[b].count; k++) {
            double want = s->oracle.buffers[b][k], got = (double)get(type_of(s, b), s->memory[b], k);
            scale = fmax(scale, fabs(want));
            error = fmax(error, isfinite(got) ? fabs(got - want) : INFINITY);
        }
        if (error > 0) worst = fmax(worst, error / scale);
    }
    return worst;
}

enum { FOLDED, KEEPING, STREAMING, RINGED, ALONE, TILED, KINDS };
static int seen[KINDS]; /* loops */

static void remember(const rcvi_persistent *p) {
    seen[FOLDED] += p->fold > 1;
    seen[KEEPING] += p->weight_chunks > 0;
    seen[STREAMING] += p->stream_chunks > 0;
    seen[TILED] += p->tiles > 1;
    for (int lane = 0; lane < RCVI_LANES; lane++) {
        const rcvi_seat *seat = &p->seats[0];
        seen[RINGED] += seat->ring[lane] > 1 && seat->group_count[lane] > seat->ring[lane];
        seen[ALONE] += seat->ring[lane] == 1 && seat->group_count[lane] > 1;
    }
}

static double tolerance_of(rcv_dtype dtype, int parts) {
    if (dtype != RCV_FLOAT32) return dtype == RCV_TFLOAT32 ? 2e-3 : 3e-2;
    return parts == 2 ? 2e-5 : 1e-6;
}

static void check_loop(subject *s, const trial *t, size_t loop) {
    rcvi_persistent *p;
    unsigned fault = 0;
    check_ok(rcvi_persistent_new(&s->engine, loop, &p));
    void *library = compile_for_host(p->source);
    *(void **)&run_kernel = dlsym(library, "run_persistent");
    assert_non_null(run_kernel);
    fill(s, p);
    rcvi_worker worker = {.engine = &s->engine, .buffers = s->memory, .fault = &fault};
    if (launch_persistent_on_host(&worker, p, s->scratch, NULL))
        fail_msg("%s by %s of %d rows hangs", t->cell, t->plan, (int)t->batch);
    take_loop(&s->oracle, loop);
    double worst = compare_all(s);
    print_message("%s, %s, %s, %d rows of %d: off by %.1e\n", t->cell, t->plan, rcv_dtype_name(t->dtype), (int)t->batch,
                  (int)t->net.hidden, worst);
    if (!(worst > 0 && worst <= tolerance_of(t->dtype, p->parts))) fail_msg("that is too much");
    remember(p);
    empty(s);
    rcvi_persistent_free(s->context, p);
    dlclose(library);
}

static const char two[] = "combine+fuse+pack+persistent(parts=2)", three[] = "combine+fuse+pack+persistent",
                  one[] = "combine+fuse+pack+persistent(parts=1)",
                  waves[] = "combine+fuse+pack+wavefront+merge+persistent",
                  exact_waves[] = "combine+fuse+pack+wavefront+merge+persistent(parts=1)";
static const trial trials[] = {
    {"lstm", two, RCV_FLOAT32, {.input = 19, .hidden = 24, .layers = 1}, 3, 3, 132, 232448},
    {"lstm", two, RCV_FLOAT32, {.input = 8, .hidden = 72, .layers = 1}, 2, 30, 6, 96 << 10},
    {"lstm", two, RCV_FLOAT32, {.input = 40, .hidden = 130, .layers = 1}, 2, 8, 132, 70000},
    {"lstm", three, RCV_FLOAT32, {.input = 40, .hidden = 72, .layers = 1}, 2, 64, 6, 140000},
    {"lstm", one, RCV_FLOAT32, {.input = 40, .hidden = 130, .layers = 1}, 2, 8, 132, 60000},
    {"gru", one, RCV_FLOAT32, {.input = 19, .hidden = 45, .layers = 1}, 4, 1, 132, 232448},
    {"gru", one, RCV_FLOAT32, {.input = 19, .hidden = 24, .layers = 1}, 2, 20, 4, 232448},
    {"lstm", waves, RCV_FLOAT32, {.input = 24, .hidden = 24, .layers = 3}, 4, 5, 132, 232448},
    {"lstm", exact_waves, RCV_FLOAT32, {.input = 24, .hidden = 24, .layers = 2}, 4, 5, 132, 232448},
    {"lstm", waves, RCV_TFLOAT32, {.input = 24, .hidden = 24, .layers = 2}, 4, 5, 132, 232448},
    {"lstm", three, RCV_BFLOAT16, {.input = 40, .hidden = 72, .layers = 1}, 2, 70, 6, 100 << 10},
};

static void test_kernels(void **state) {
    (void)state;
    if (system("${CXX:-c++} --version > /dev/null 2>&1") != 0) {
        print_message("skipped: there is no C++ compiler to run the text with\n");
        skip();
    }
    for (size_t i = 0; i < sizeof trials / sizeof *trials; i++) {
        subject s;
        int loops = 0;
        open_subject(&s, &trials[i]);
        for (size_t loop = 0; loop < s.program.step_count; loop++) {
            if (!rcvi_program_is_persistent(&s.program, loop)) continue;
            check_loop(&s, &trials[i], loop);
            loops++;
        }
        assert_int_equal(loops, 2);
        close_subject(&s);
    }
    for (int k = 0; k < KINDS; k++) {
        if (!seen[k]) fail_msg("no loop of kind %d", k);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_kernels)};
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}
