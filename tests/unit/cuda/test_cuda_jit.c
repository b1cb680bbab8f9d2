/* Kernels as text and as code, without a GPU: every map of every cell compiles for the architectures of the build, and
 * what is kept on disk is trusted only where it is whole. */
#include "device/cuda/codegen/jit.h"
#include "device/cuda/codegen/source.h"
#include "plan/plan.h"
#include "sample.h"
#include "scratch.h"
#include "test.h"

#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_TEXTS = 4096, EACH = 10 }; /* every so-many-th text of a kind is compiled; a whole ladder takes minutes */

typedef struct {
    test_allocator allocator;
    rcv_context *context;
    int compiled, again, not_cached; /* lines of the log that say so */
} fixture;

static void count_lines(void *user, const char *line) {
    fixture *f = user;
    f->compiled += strstr(line, "compiled a kernel") != NULL;
    f->again += strstr(line, "compiled again") != NULL;
    f->not_cached += strstr(line, "is not cached") != NULL;
}

static void open_fixture(fixture *f, const char *cache) {
    memset(f, 0, sizeof *f);
    test_allocator_init(&f->allocator);
    rcv_context_options options = RCV_INIT(rcv_context_options, .allocator = &f->allocator.allocator,
                                           .log = count_lines, .log_user = f, .threads = 1, .cache = cache);
    check_ok(rcv_context_new(&options, &f->context));
}

static void close_fixture(fixture *f) { test_context_end(&f->allocator, f->context); }

static bool is_there(void) {
    if (rcvi_jit_name()) return true;
    print_message("skipped: %s\n", rcv_message());
    return false;
}

/* ---- every map ---- */

typedef struct {
    fixture f;
    char *texts[MAX_TEXTS];
    bool with_products[MAX_TEXTS];
    int count;
} gathering;

static void gather_text(gathering *g, const rcvi_map_shape *shape) {
    char *text;
    check_ok(rcvi_map_source(g->f.context, shape, &text));
    for (int i = 0; i < g->count; i++) {
        if (strcmp(text, g->texts[i]) != 0) continue;
        rcv_text_free(g->f.context, text);
        return;
    }
    assert_true(g->count < MAX_TEXTS);
    g->with_products[g->count] = shape->map->product_count > 0;
    g->texts[g->count++] = text;
}

static void mark_written(const rcvi_map *map, bool *written) {
    for (int k = 0; k < map->instruction_count; k++) {
        if (map->instructions[k].out != RCVI_NONE) written[map->instructions[k].out] = true;
    }
    for (int p = 0; p < map->product_count; p++) {
        if (map->products[p].out != RCVI_NONE) written[map->products[p].out] = true;
    }
    for (int i = 0; i < map->store_count; i++) written[map->stores[i].out] = true;
}

/* The map in one of several types; with 16-bit operands of products all that is written has a rounded copy. */
static void gather_map(gathering *g, const rcvi_map *map) {
    static const struct {
        rcvi_cuda_type real, narrow;
        bool tensor, aligned;
        int vector, tile_rows, tile_units;
    } kinds[] = {
        {RCVI_F32, RCVI_F32, false, true, 4, 32, 16},  {RCVI_F32, RCVI_BF16, true, true, 4, 64, 16},
        {RCVI_F32, RCVI_F16, true, false, 1, 32, 32},  {RCVI_F32, RCVI_F32, true, true, 2, 64, 16},
        {RCVI_F64, RCVI_F64, false, false, 1, 32, 16},
    };
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        unsigned char types[RCVI_MAX_VIEWS];
        bool rounded[RCVI_MAX_OPERANDS] = {false};
        const rcvi_view *views[RCVI_MAX_VIEWS];
        int count = rcvi_map_views(map, views), view = map->operand_count;
        for (int v = 0; v < count; v++) types[v] = (unsigned char)kinds[k].real;
        for (int p = 0; p < map->product_count; p++, view++) {
            for (int t = 0; t < 2 * map->products[p].term_count; t++) types[++view] = (unsigned char)kinds[k].narrow;
        }
        if (kinds[k].narrow != kinds[k].real) mark_written(map, rounded);
        rcvi_map_shape shape = {.map = map,
                                .types = types,
                                .has_rounded = rounded,
                                .real = kinds[k].real,
                                .narrow = kinds[k].narrow,
                                .tensor = kinds[k].tensor,
                                .vector = kinds[k].vector,
                                .members = 1 + (int)k,
                                .counted = k % 2,
                                .aligned = kinds[k].aligned,
                                .tile_rows = kinds[k].tile_rows,
                                .tile_units = map->product_count * kinds[k].tile_units > 128 ? 8 : kinds[k].tile_units,
                                .stages = 4};
        gather_text(g, &shape);
    }
}

static void gather_cell(gathering *g, const char *name, const char *schedule, bool training) {
    rcv_cell *cell;
    rcv_net *net;
    rcv_plan *plan;
    check_ok(rcv_cell_open(g->f.context, name, &cell));
    check_ok(rcv_net_new(cell, &RCV_INIT(rcv_net_options, .input = 8, .hidden = 8, .layers = 2), &net));
    rcv_plan_options options =
        RCV_INIT(rcv_plan_options, .steps = 5, .batch = 3, .training = training, .schedule = schedule);
    check_ok(rcv_plan_new(net, &options, &plan));
    for (size_t s = 0; s < plan->program.step_count; s++) {
        if (plan->program.steps[s].kind == RCVI_STEP_MAP) gather_map(g, plan->program.steps[s].map);
    }
    rcv_plan_free(plan);
    rcv_net_free(net);
    rcv_cell_free(cell);
}

static void test_every_map_compiles(void **state) {
    (void)state;
    static const char *const schedules[] = {"naive", "combine+fuse", "combine+fuse+pack"};
    gathering *g = calloc(1, sizeof *g);
    assert_non_null(g);
    open_fixture(&g->f, "");
    for (size_t c = 0; c < rcv_builtin_count(); c++) {
        for (size_t s = 0; s < sizeof schedules / sizeof *schedules; s++) {
            gather_cell(g, rcv_builtin_name(c), schedules[s], false);
            gather_cell(g, rcv_builtin_name(c), schedules[s], true);
        }
    }
    assert_true(g->count > 100);
    rcvi_jit_unit units[2][MAX_TEXTS / EACH + 1];
    int seen[2] = {0}, compiled[2] = {0}, unit_count[2] = {0};
    bool compiles = is_there();
    size_t chosen = 0;
    for (int i = 0; i < g->count && compiles; i++) {
        bool products = g->with_products[i];
        if (seen[products]++ % EACH || !sample_takes(chosen++)) continue;
        int kind = compiled[products]++ % 2;
        units[kind][unit_count[kind]++].source = g->texts[i];
    }
    for (int kind = 0; kind < 2; kind++) {
        check_ok(rcvi_jit_compile(g->f.context, units[kind], (size_t)unit_count[kind], 8 + kind, 0));
        for (int i = 0; i < unit_count[kind]; i++) {
            assert_true(units[kind][i].bytes > 100);
            rcv_text_free(g->f.context, units[kind][i].code);
        }
    }
    for (int i = 0; i < g->count; i++) rcv_text_free(g->f.context, g->texts[i]);
    print_message("%d texts; %d with products and %d without were compiled\n", g->count, compiled[1], compiled[0]);
    close_fixture(&g->f);
    free(g);
}

/* ---- the cache ---- */

static const char source[] = "extern \"C\" __global__ void map_kernel(float *x) { x[threadIdx.x] += 1; }\n";

typedef struct {
    char *bytes;
    size_t count;
} code;

static code compile(fixture *f, const char *text) {
    rcvi_jit_unit unit = {.source = text};
    check_ok(rcvi_jit_compile(f->context, &unit, 1, 9, 0));
    return (code){unit.code, unit.bytes};
}

/* Compiles the source and checks that it is the code; frees what it gets. */
static void check_same(fixture *f, const code *want) {
    code got = compile(f, source);
    assert_int_equal(got.count, want->count);
    assert_memory_equal(got.bytes, want->bytes, want->count);
    rcv_text_free(f->context, got.bytes);
}

/* The first file of the folder. */
static void find_file(const char *folder, char path[600]) {
    char command[600];
    snprintf(command, sizeof command, "ls %s/*", folder);
    FILE *list = popen(command, "r");
    assert_non_null(list);
    assert_non_null(fgets(path, 600, list));
    path[strcspn(path, "\n")] = '\0';
    pclose(list);
}

static void flip(const char *path, long at) {
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    fseek(file, at, at < 0 ? SEEK_END : SEEK_SET);
    int byte = fgetc(file);
    fseek(file, -1, SEEK_CUR);
    fputc(byte ^ 4, file);
    fclose(file);
}

static long size_of(const char *path) {
    struct stat info;
    assert_int_equal(stat(path, &info), 0);
    return (long)info.st_size;
}

static void test_cache(void **state) {
    (void)state;
    if (!is_there()) skip();
    fixture f;
    char folder[400], path[600];
    snprintf(folder, sizeof folder, "%s", path_in("a/b"));
    open_fixture(&f, folder);
    code want = compile(&f, source);
    assert_int_equal(f.compiled, 1);
    check_same(&f, &want);
    assert_int_equal(f.compiled, 1); /* from disk */
    assert_int_equal(f.again, 0);
    find_file(folder, path);
    long size = size_of(path);
    long cuts[] = {0, 10, size - (long)want.count, size - 1};
    int built = 1;
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        assert_int_equal(truncate(path, cuts[i]), 0);
        check_same(&f, &want);
        assert_int_equal(f.compiled, ++built);
        assert_int_equal(size_of(path), size);
        check_same(&f, &want);
    }
    long places[] = {1, 15, 20, 60, size / 2, -1};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        flip(path, places[i]);
        check_same(&f, &want);
        assert_int_equal(f.compiled, ++built);
    }
    /* Whole, but others can write it. */
    struct stat info;
    assert_true(stat(path, &info) == 0 && (info.st_mode & 0777) == 0600);
    static const mode_t modes[] = {0620, 0602, 0666};
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        assert_int_equal(chmod(path, modes[i]), 0);
        check_same(&f, &want);
        assert_int_equal(f.compiled, ++built);
        assert_true(stat(path, &info) == 0 && (info.st_mode & 0777) == 0600);
    }
    assert_int_equal(f.again, built - 1);
    assert_int_equal(f.not_cached, 0);
    assert_int_equal(entries(folder), 1);
    rcv_text_free(f.context, want.bytes);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(rmdir(path_in("a")), 0);
    close_fixture(&f);
}

/* A folder that cannot be made, and none at all. */
static void test_without_cache(void **state) {
    (void)state;
    if (!is_there()) skip();
    fixture f, off;
    open_fixture(&f, "/dev/null/nowhere");
    code want = compile(&f, source);
    assert_int_equal(f.compiled, 1);
    assert_int_equal(f.not_cached, 1);
    check_same(&f, &want);
    assert_int_equal(f.compiled, 2);
    assert_int_equal(f.not_cached, 1); /* said once */
    static const char *const none[] = {"", "off"};
    for (int i = 0; i < 2; i++) {
        open_fixture(&off, none[i]);
        check_same(&off, &want);
        check_same(&off, &want);
        assert_int_equal(off.compiled, 2);
        assert_int_equal(off.not_cached, 0);
        close_fixture(&off);
    }
    rcv_text_free(f.context, want.bytes);
    close_fixture(&f);
}

static void test_wrong_source(void **state) {
    (void)state;
    if (!is_there()) skip();
    fixture f;
    open_fixture(&f, "");
    rcvi_jit_unit units[] = {{.source = source}, {.source = "__global__ void f() { int x = y; }"}, {.source = source}};
    check_fails(rcvi_jit_compile(f.context, units, 3, 9, 0), RCV_UNSUPPORTED, "\"y\" is undefined");
    for (int i = 0; i < 3; i++) assert_null(units[i].code);
    check_fails(rcvi_jit_compile(f.context, units, 1, 1, 0), RCV_UNSUPPORTED, "capability 1.0");
    check_ok(rcvi_jit_compile(f.context, units, 1, 99, 0)); /* PTX of the newest that is known */
    assert_non_null(strstr(units[0].code, ".entry map_kernel"));
    rcv_text_free(f.context, units[0].code);
    close_fixture(&f);
}

/* Several at once, more than there are threads for, some of them alike: each gets the code it gets alone. */
static void test_many(void **state) {
    (void)state;
    enum { MANY = 40, KINDS = 5 };
    if (!is_there()) skip();
    fixture alone, f;
    char folder[400], texts[KINDS][128];
    code want[KINDS];
    snprintf(folder, sizeof folder, "%s", path_in("many"));
    open_fixture(&alone, "off");
    for (int k = 0; k < KINDS; k++) {
        snprintf(texts[k], sizeof texts[k],
                 "extern \"C\" __global__ void map_kernel(float *x) { x[threadIdx.x] += %d; }\n", k);
        want[k] = compile(&alone, texts[k]);
    }
    open_fixture(&f, folder);
    for (int turn = 0; turn < 2; turn++) { /* compiled, then from disk */
        rcvi_jit_unit units[MANY];
        int before = f.compiled;
        for (int i = 0; i < MANY; i++) units[i].source = texts[i % KINDS];
        check_ok(rcvi_jit_compile(f.context, units, MANY, 9, 0));
        assert_int_equal(f.compiled - before, turn ? 0 : KINDS); /* those that are alike once */
        for (int i = 0; i < MANY; i++) {
            assert_int_equal(units[i].bytes, want[i % KINDS].count);
            assert_memory_equal(units[i].code, want[i % KINDS].bytes, units[i].bytes);
            rcv_text_free(f.context, units[i].code);
        }
    }
    assert_int_equal(entries(folder), KINDS);
    for (int k = 0; k < KINDS; k++) {
        char path[600];
        find_file(folder, path);
        assert_int_equal(unlink(path), 0);
        rcv_text_free(alone.context, want[k].bytes);
    }
    assert_int_equal(rmdir(folder), 0);
    close_fixture(&f);
    close_fixture(&alone);
}

static void *count_beside(void *threads) {
    *(size_t *)threads = rcvi_jit_count_threads(100, 8, rcvi_cuda_is_searching());
    rcvi_cuda_begin_search();
    ((size_t *)threads)[1] = rcvi_jit_count_threads(100, 8, rcvi_cuda_is_searching());
    return NULL;
}

/* A thread for every text, at most one for every core; while a search runs beside its caller, at most half of the cores. */
static void test_threads(void **state) {
    (void)state;
    pthread_t thread;
    size_t threads[2] = {0, 0};
    assert_int_equal(rcvi_jit_count_threads(3, 8, false), 3);
    assert_int_equal(rcvi_jit_count_threads(100, 8, false), 8);
    assert_int_equal(rcvi_jit_count_threads(100, 200, false), 16);
    assert_int_equal(rcvi_jit_count_threads(3, 8, true), 3);
    assert_int_equal(rcvi_jit_count_threads(100, 8, true), 4);
    assert_int_equal(rcvi_jit_count_threads(100, 3, true), 2);
    assert_int_equal(rcvi_jit_count_threads(100, 1, true), 1);
    assert_int_equal(rcvi_jit_count_threads(100, 16, true), 8);
    assert_int_equal(rcvi_jit_count_threads(0, 4, true), 0);
    assert_int_equal(pthread_create(&thread, NULL, count_beside, threads), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_true(threads[0] == 8 && threads[1] == 4);
    assert_false(rcvi_cuda_is_searching());
}

static bool count_down(void *user) {
    int *left = user;
    return (*left)-- > 0;
}

/* A no before a kernel stops all: a status, no code, and the units can be compiled later. */
static void test_stopped(void **state) {
    (void)state;
    enum { MANY = 6 };
    if (!is_there()) skip();
    fixture f;
    char texts[MANY][128];
    rcvi_jit_unit units[MANY];
    open_fixture(&f, "off");
    for (int i = 0; i < MANY; i++) {
        snprintf(texts[i], sizeof texts[i],
                 "extern \"C\" __global__ void map_kernel(float *x) { x[threadIdx.x] *= %d; }\n", i);
        units[i].source = texts[i];
    }
    int none = 0, all = MANY;
    check_fails(rcvi_jit_compile_while(f.context, units, MANY, 9, 0, count_down, &none), RCV_STOPPED, "stopped");
    assert_int_equal(none, -1); /* not asked again */
    assert_int_equal(f.compiled, 0);
    for (int i = 0; i < MANY; i++) assert_null(units[i].code);
    check_ok(rcvi_jit_compile_while(f.context, units, MANY, 9, 0, count_down, &all));
    assert_int_equal(f.compiled, MANY);
    for (int i = 0; i < MANY; i++) {
        code want = compile(&f, texts[i]);
        assert_int_equal(units[i].bytes, want.count);
        assert_memory_equal(units[i].code, want.bytes, want.count);
        rcv_text_free(f.context, want.bytes);
        rcv_text_free(f.context, units[i].code);
    }
    close_fixture(&f);
}

/* Every failed allocation is a status, without leaks. */
static void test_no_memory(void **state) {
    (void)state;
    if (!is_there()) skip();
    fixture f;
    open_fixture(&f, "");
    bool done = false;
    static const char other[] = "extern \"C\" __global__ void map_kernel(float *x) { x[threadIdx.x] = 7; }\n";
    for (size_t n = 1; n < 100 && !done; n++) {
        rcvi_jit_unit units[] = {{.source = source}, {.source = source}, {.source = other}};
        size_t live = f.allocator.live;
        f.allocator.fail_at = n;
        rcv_status status = rcvi_jit_compile(f.context, units, 3, 9, 0);
        done = f.allocator.fail_at != 0;
        f.allocator.fail_at = 0;
        assert_int_equal(status, done ? RCV_OK : RCV_NO_MEMORY);
        for (int i = 0; i < 3; i++) rcv_text_free(f.context, units[i].code);
        assert_int_equal(f.allocator.live, live);
    }
    assert_true(done);
    close_fixture(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_map_compiles), cmocka_unit_test(test_cache),   cmocka_unit_test(test_without_cache),
        cmocka_unit_test(test_wrong_source),       cmocka_unit_test(test_many),    cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_no_memory),          cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}
