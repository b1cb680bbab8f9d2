/* Maps as CUDA source, run without a GPU: the text is compiled for the host, after a few lines that replace what
 * a GPU has, and what it computes is held against the operations in double. */
#include "map_problem.h"
#include "scratch.h"

#include <dlfcn.h>
#include <math.h>
#include <unistd.h>

static const char run_map[] =
    "extern \"C\" void run(const unsigned long long *words, int x, int y, int z) {\n"
    "    gridDim = {(unsigned)x, (unsigned)y, (unsigned)z};\n"
    "    for (unsigned b = 0; b < gridDim.x * gridDim.y * gridDim.z; b++)\n        for (unsigned t = 0; t < 256; t++) "
    "{\n"
    "            blockIdx = {b % x, b / x % y, b / x / y};\n            threadIdx = {t, 0, 0};\n"
    "            map_kernel(*(const Words *)words);\n        }\n}\n";
/* In place of the tiles. */
static const char run_products[] =
    "#if defined(TILE_BF16)\ntypedef BFloat16 Operand;\n#elif defined(TILE_F16)\ntypedef Float16 Operand;\n"
    "#else\ntypedef REAL Operand;\n#endif\n"
    "extern \"C\" void run(const unsigned long long *words, int, int, int members) {\n"
    "    const Words &c = *(const Words *)words;\n"
    "    for (int m = 0; m < members; m++)\n        for (long long row = 0; row < ROWS_OF(c, m); row++)\n"
    "            for (int column = 0; column < COLUMNS_OF(c); column += VECTOR) {\n"
    "                REAL sums[PRODUCTS][VECTOR] = {};\n"
    "                for (int q = 0; q < PASSES; q++)\n"
    "                    for (int p = 0; p < PRODUCTS; p++) {\n"
    "                        int a = PASS_A[q], b = PASS_B[q][p];\n                        if (b < 0) continue;\n"
    "                        for (int i = 0; i < VECTOR; i++)\n"
    "                            for (unsigned long long k = 0; k < c.w[1 + VIEWS + q]; k++)\n"
    "                                sums[p][i] +=\n"
    "                                    (REAL)widen(((Operand *)ADDRESS_OF(c, m, a))[row * STRIDE_OF(c, a) + k]) *\n"
    "                                    (REAL)widen(((Operand *)ADDRESS_OF(c, m, b))[(column + i) * STRIDE_OF(c, b) + "
    "k]);\n"
    "                    }\n"
    "                apply(c, m, row, column, sums);\n            }\n}\n";

/* ---- running the text ---- */

typedef void runner(const uint64_t *words, int x, int y, int z);

/* The text for the host: the kernel's place is taken by a loop. */
static void write_host_text(const char *path, const char *text, bool products) {
    const char *types = strstr(text, "#ifdef __CUDACC__"), *macros = strstr(text, "/* Elements of views");
    const char *tile = strstr(text, "/* Kernels with products:");
    assert_true(types && macros && (tile != NULL) == products);
    size_t length = tile ? (size_t)(tile - text) : strlen(text);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fwrite(text, 1, (size_t)(macros - text), file); /* REAL comes first */
    fputs(host, file);
    fputs(before, file);
    fwrite(macros, 1, (size_t)(types - macros), file);
    fputs(behind, file);
    fwrite(types, 1, length - (size_t)(types - text), file);
    fputs(products ? run_products : run_map, file);
    assert_int_equal(fclose(file), 0);
}

static void *compile_for_host(const char *text, bool products) {
    static int number; /* a name is opened once: the loader would answer with the library of before */
    char name[40], path[600], library[600], command[1400];
    snprintf(name, sizeof name, "map%d.so", number++);
    snprintf(library, sizeof library, "%s", path_in(name));
    snprintf(path, sizeof path, "%s", path_in("map.cpp"));
    write_host_text(path, text, products);
    snprintf(command, sizeof command,
             "${CXX:-c++} -std=c++17 -D__device__= -O1 -w -fno-strict-aliasing -shared -fPIC -o %s %s", library, path);
    if (system(command) != 0) fail_msg("the host's compiler refuses the text");
    void *open = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!open) fail_msg("%s", dlerror());
    unlink(path);
    unlink(library);
    return open;
}

static void run_problem(rcv_context *context, map_problem *p) {
    int absent = p->instructions[0].out;
    rcvi_map_shape shape = {.map = &p->map,
                            .types = p->types,
                            .has_rounded = p->rounded,
                            .real = p->c.real,
                            .narrow = p->c.narrow,
                            .vector = p->c.vector,
                            .members = p->c.members,
                            .counted = p->c.rows % 2,
                            .aligned = true,
                            .tile_rows = 32,
                            .tile_units = 8,
                            .stages = 4};
    char *text;
    check_ok(rcvi_map_source(context, &shape, &text));
    void *library = compile_for_host(text, p->c.products > 0);
    runner *run;
    *(void **)&run = dlsym(library, "run");
    assert_non_null(run);
    uint64_t words[4096];
    int count = rcvi_map_words(&shape);
    assert_true(count <= 4096);
    assert_int_equal(write_words(p, &shape, absent, words), count);
    int64_t across = 32 * p->c.vector;
    run(words, (int)((p->c.columns + across - 1) / across), 1,
        p->c.members); /* one row of blocks: it takes the others */
    check_results(p, absent);
    dlclose(library);
    rcv_text_free(context, text);
}

static void test_maps(void **state) {
    (void)state;
    static const map_config configs[] = {
        {RCVI_F32, RCVI_F32, 4, 1, 0, 19, 132}, {RCVI_F32, RCVI_BF16, 4, 2, 0, 9, 8},
        {RCVI_F32, RCVI_F16, 2, 3, 0, 5, 70},   {RCVI_F32, RCVI_BF16, 1, 1, 0, 17, 33},
        {RCVI_F64, RCVI_F64, 2, 2, 0, 9, 6},    {RCVI_F64, RCVI_F64, 1, 1, 0, 3, 37},
        {RCVI_F32, RCVI_BF16, 4, 2, 3, 5, 8},   {RCVI_F32, RCVI_F16, 2, 1, 4, 7, 6},
        {RCVI_F32, RCVI_F32, 1, 3, 2, 3, 5},    {RCVI_F64, RCVI_F64, 4, 1, 3, 4, 12},
    };
    if (!has_compiler()) skip();
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    map_problem *p = malloc(sizeof *p);
    assert_non_null(p);
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        open_map_problem(p, &configs[i], 77 + i);
        run_problem(context, p);
        close_map_problem(p);
    }
    free(p);
    test_context_end(&allocator, context);
}

/* ---- how near functions are ---- */

enum { SWEEP = 1 << 20 };

static double sweep_error(rcv_context *context, rcvi_operation operation, float from, float to) {
    rcvi_view views[2] = {{.buffer = 0, .row = SWEEP, .column = 1}, {.buffer = 1, .row = SWEEP, .column = 1}};
    rcvi_instruction instruction = {.operation = operation, .from = {RCVI_FROM_VIEW, RCVI_FROM_VIEW}, .out = 1};
    rcvi_map map = {.operands = views, .operand_count = 2, .instructions = &instruction, .instruction_count = 1};
    rcvi_map_shape shape = {.map = &map,
                            .types = (unsigned char[]){RCVI_F32, RCVI_F32},
                            .has_rounded = (bool[]){false, false},
                            .vector = 4,
                            .members = 1};
    float *x = (float *)(void *)aligned(SWEEP * 4), *y = (float *)(void *)aligned(SWEEP * 4);
    for (int i = 0; i < SWEEP; i++) x[i] = from + (to - from) * (float)i / SWEEP;
    char *text;
    check_ok(rcvi_map_source(context, &shape, &text));
    void *library = compile_for_host(text, false);
    runner *run;
    *(void **)&run = dlsym(library, "run");
    uint64_t words[] = {SWEEP, SWEEP, SWEEP, 1, (uint64_t)(uintptr_t)x, (uint64_t)(uintptr_t)y};
    assert_int_equal(rcvi_map_words(&shape), 6);
    run(words, SWEEP / 128, 1, 1);
    double worst = 0;
    for (int i = 0; i < SWEEP; i++) {
        double want = rcvi_operations[operation].evaluate(x[i], 0);
        double unit = ldexp(1, ilogb(want == 0 ? 1 : want) - 23);
        worst = fmax(worst, fabs(y[i] - want) / fmax(unit, 0x1p-149));
    }
    dlclose(library);
    rcv_text_free(context, text);
    free(x);
    free(y);
    return worst;
}

static void test_functions_are_near(void **state) {
    (void)state;
    static const struct {
        rcvi_operation operation;
        float from, to;
    } sweeps[] = {{RCVI_TANH, -1, 1},    {RCVI_TANH, -12, 12},     {RCVI_TANH, -1e-3f, 1e-3f}, {RCVI_SIGMOID, -80, 80},
                  {RCVI_SIGMOID, -4, 4}, {RCVI_SOFTPLUS, -80, 80}, {RCVI_SOFTPLUS, -2, 2},     {RCVI_EXP, -80, 80}};
    if (!has_compiler()) skip();
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    for (size_t i = 0; i < sizeof sweeps / sizeof *sweeps; i++) {
        double error = sweep_error(context, sweeps[i].operation, sweeps[i].from, sweeps[i].to);
        print_message("%s from %g to %g: %.2f units of the last place\n", rcvi_operations[sweeps[i].operation].name,
                      (double)sweeps[i].from, (double)sweeps[i].to, error);
        assert_true(error < 4);
    }
    test_context_end(&allocator, context);
}

/* ---- passes, and what is refused ---- */

typedef struct {
    rcvi_product products[RCVI_MAX_PRODUCTS];
    rcvi_map map;
} products;

/* Products of terms with left operands named by letters, such as "AB" and "BA". */
static void name_terms(products *p, const char *const *terms) {
    memset(p, 0, sizeof *p);
    p->map.products = p->products;
    for (; *terms; terms++) {
        rcvi_product *product = &p->products[p->map.product_count++];
        product->start = rcvi_no_view();
        product->out = RCVI_NONE;
        for (const char *t = *terms; *t; t++) {
            product->terms[product->term_count].a = (rcvi_view){.buffer = *t, .row = 8, .column = 1};
            product->terms[product->term_count].b = (rcvi_view){.buffer = 1, .row = 64, .column = 1};
            product->terms[product->term_count++].depth = 8;
        }
    }
}

static void test_passes(void **state) {
    (void)state;
    products p;
    rcvi_pass passes[RCVI_MAX_PASSES];
    name_terms(&p, (const char *const[]){"AB", "BA", "AA", NULL});
    /* Views: product 0: start 0, a b 1 .. 4; product 1: start 5, 6 .. 9; product 2: start 10, 11 .. 14. */
    assert_int_equal(rcvi_map_passes(&p.map, passes), 3);
    static const int want[3][4] = {{1, 2, -1, 12}, {3, 4, 7, -1}, {8, -1, 9, 14}};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(passes[i].a, want[i][0]);
        assert_int_equal(passes[i].depth, 8);
        for (int k = 0; k < 3; k++) assert_int_equal(passes[i].b[k], want[i][1 + k]);
    }
    p.products[1].terms[0].depth = 7; /* not the same sum any more */
    assert_int_equal(rcvi_map_passes(&p.map, passes), 4);
    /* What only one product has comes in front of what both have: start 0, a b 1 .. 6; start 7, 8 .. 13. */
    name_terms(&p, (const char *const[]){"CAB", "DAB", NULL});
    assert_int_equal(rcvi_map_passes(&p.map, passes), 4);
    static const int front[4][3] = {{8, -1, 9}, {1, 2, -1}, {3, 4, 11}, {5, 6, 13}};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(passes[i].a, front[i][0]);
        for (int k = 0; k < 2; k++) assert_int_equal(passes[i].b[k], front[i][1 + k]);
    }
    name_terms(&p, (const char *const[]){"ABCDEFGH", "IJKLMNOP", NULL});
    assert_int_equal(rcvi_map_passes(&p.map, passes), 16);
    name_terms(&p, (const char *const[]){"ABCDEFGH", "IJKLMNOP", "Q", NULL});
    assert_int_equal(rcvi_map_passes(&p.map, passes), -1);
}

static void test_refusals(void **state) {
    (void)state;
    products p;
    unsigned char types[RCVI_MAX_VIEWS] = {0};
    bool rounded[1] = {false};
    char *text;
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    rcvi_map_shape shape = {.map = &p.map,
                            .types = types,
                            .has_rounded = rounded,
                            .vector = 1,
                            .members = 1,
                            .tile_rows = 32,
                            .tile_units = 8,
                            .stages = 4};
    name_terms(&p, (const char *const[]){"ABCDEFGH", "IJKLMNOP", "Q", NULL});
    check_fails(rcvi_map_source(context, &shape, &text), RCV_UNSUPPORTED, "more than 16 left operands");
    name_terms(&p, (const char *const[]){"A", NULL});
    check_ok(rcvi_map_source(context, &shape, &text));
    rcv_text_free(context, text);
    shape.members = 1100;
    check_fails(rcvi_map_source(context, &shape, &text), RCV_UNSUPPORTED, "bytes of arguments");
    shape.members = 1;
    shape.tile_units = 256;
    check_fails(rcvi_map_source(context, &shape, &text), RCV_UNSUPPORTED, "256 columns");
    shape.tile_units = 8;
    types[2] = RCVI_BF16;
    check_fails(rcvi_map_source(context, &shape, &text), RCV_UNSUPPORTED,
                "float and BFloat16 where both must be float");
    types[2] = RCVI_F32;
    p.products[0].terms[0].plain = p.products[0].terms[0].transposed = true;
    check_fails(rcvi_map_source(context, &shape, &text), RCV_UNSUPPORTED, "packed");
    assert_null(text);
    test_context_end(&allocator, context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_maps),
        cmocka_unit_test(test_functions_are_near),
        cmocka_unit_test(test_passes),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}
