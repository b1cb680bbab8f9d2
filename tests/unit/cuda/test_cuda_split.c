/* Products of float32 as several of bfloat16, without a GPU: the kernel that splits operands is compiled for the host, the library's
 * products are plain C in double, and which steps of programs are taken so is looked at. */
#include "cuda_programs.h"
#include "device/cuda/engine/engine.h"
#include "scratch.h"

#include <dlfcn.h>
#include <math.h>
#include <unistd.h>

/* What the kernel finds on a GPU; numbers of bfloat16 are rounded to the nearest, to even in the middle. */
static const char text[] =
    "#include <cstdint>\n#include <cstring>\n#define __device__\n"
    "struct float4 { float x, y, z, w; };\nstruct uint4 { unsigned x, y, z, w; };\nstruct BFloat16 { uint16_t bits; "
    "};\n"
    "static void convert(float from, BFloat16 &to) {\n    unsigned bits;\n    memcpy(&bits, &from, 4);\n"
    "    to.bits = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);\n}\n"
    "static void convert(BFloat16 from, float &to) {\n    unsigned bits = (unsigned)from.bits << 16;\n"
    "    memcpy(&to, &bits, 4);\n}\n"
    "static void __stwb(uint4 *to, uint4 x) { *to = x; }\n"
    "#include \"device/cuda/kernels/split.cuh\"\n"
    "extern \"C\" void split_all(const rcvi_split *m) {\n"
    "    for (unsigned n = 0; n < 3; n++) rcvi::split_pieces<BFloat16>(*m, n, 3u);\n}\n";

typedef void splitter(const rcvi_split *m);

static void *compile_for_host(void) {
    char path[600], library[600], command[2000];
    snprintf(library, sizeof library, "%s", path_in("split.so"));
    snprintf(path, sizeof path, "%s", path_in("split.cpp"));
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
    snprintf(command, sizeof command,
             "${CXX:-c++} -std=c++17 -O1 -w -fno-strict-aliasing -shared -fPIC -I%s/src -o %s %s", RCV_SOURCE_DIR,
             library, path);
    if (system(command) != 0) fail_msg("the host's compiler refuses the kernel");
    void *open = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!open) fail_msg("%s", dlerror());
    unlink(path);
    unlink(library);
    return open;
}

/* ---- one product ---- */

static random_source source = {41};

static float *random_matrix(int64_t rows, int64_t row) {
    float *made = malloc((size_t)(rows * row) * sizeof *made);
    assert_non_null(made);
    for (int64_t i = 0; i < rows * row; i++)
        made[i] = (float)ldexp(random_between(&source, -1, 1), (int)random_below(&source, 9) - 4);
    return made;
}

static double number(uint16_t bits) {
    uint32_t wide = (uint32_t)bits << 16;
    float x;
    memcpy(&x, &wide, sizeof x);
    return x;
}

/* The parts of an operand in memory that was filled with NaN, with guard bytes after it. */
static uint16_t *split(splitter *all, rcvi_split m, const float *from) {
    enum { GUARD = 16 };
    size_t count = (size_t)(m.parts * m.high * m.wide);
    void *made = NULL;
    assert_int_equal(posix_memalign(&made, 16, (count + GUARD) * 2), 0);
    memset(made, 0xff, (count + GUARD) * 2);
    m.from = from;
    m.to = made;
    m.by_four = m.columns % 4 == 0 && m.row % 4 == 0;
    all(&m);
    for (size_t i = 0; i < count; i++) assert_int_not_equal(m.to[i], 0xffff);
    for (size_t i = count; i < count + GUARD; i++) assert_int_equal(m.to[i], 0xffff);
    return made;
}

/* out (+)= one of the library's products. */
static void multiply(const rcvi_cuda_gemm_shape *s, const uint16_t *a, const uint16_t *b, const double *start,
                     double *out) {
    for (int64_t r = 0; r < s->rows; r++) {
        for (int64_t c = 0; c < s->columns; c++) {
            double sum = s->accumulate ? out[r * s->columns + c] : s->starts ? start[c] : 0;
            for (int64_t k = 0; k < s->depth; k++)
                sum += number(a[s->transpose_a ? k * s->row_a + r : r * s->row_a + k]) *
                       number(b[s->transpose_b ? c * s->row_b + k : k * s->row_b + c]);
            out[r * s->columns + c] = sum;
        }
    }
}

static double check_product(splitter *all, rcvi_cuda_gemm_shape s, int parts, bool blocks) {
    static const double near[] = {0, 0, 3 * 0x1p-16, 0x1.01p-23};
    enum { MOST = 64 };
    double out[MOST * MOST], start[MOST], worst = 0;
    float *a = random_matrix(s.transpose_a ? s.depth : s.rows, s.row_a);
    float *b = random_matrix(s.transpose_b ? s.columns : s.depth, s.row_b);
    for (int i = 0; i < MOST * MOST; i++) out[i] = 0.25;
    for (int i = 0; i < MOST; i++) start[i] = i;
    rcvi_split_gemm_layout l;
    rcvi_split_gemm_lay_out(&s, parts, blocks, &l);
    assert_int_equal(l.count, blocks && !s.transpose_a ? parts * (parts + 1) / 2 : parts);
    uint16_t *a_parts = split(all, l.a, a), *b_parts = split(all, l.b, b);
    for (int i = 0; i < l.count; i++)
        multiply(&l.products[i].shape, a_parts + l.products[i].a, b_parts + l.products[i].b, start, out);
    for (int64_t n = 0; n < s.rows * s.columns; n++) {
        int64_t r = n / s.columns, c = n % s.columns;
        double want = s.accumulate ? 0.25 : s.starts ? start[c] : 0, scale = 0;
        for (int64_t k = 0; k < s.depth; k++) {
            double x = a[s.transpose_a ? k * s.row_a + r : r * s.row_a + k];
            double y = b[s.transpose_b ? c * s.row_b + k : k * s.row_b + c];
            want += x * y;
            scale += fabs(x * y);
        }
        worst = fmax(worst, fabs(out[n] - want) / scale);
        if (!(fabs(out[n] - want) <= near[parts] * scale + 1e-14)) fail_msg("a sum is %g, not %g", out[n], want);
    }
    free(a_parts);
    free(b_parts);
    free(a);
    free(b);
    return worst;
}

static void test_products(void **state) {
    (void)state;
    static const int64_t sizes[][3] = {{16, 24, 32}, {5, 7, 9}, {1, 33, 64}, {40, 8, 13}, {17, 1, 100}, {3, 3, 1}};
    enum { SIZES = sizeof sizes / sizeof *sizes };
    double worst[RCVI_MAX_SPLIT + 1] = {0};
    if (system("${CXX:-c++} --version > /dev/null 2>&1") != 0) {
        print_message("skipped: there is no C++ compiler to run the kernel with\n");
        skip();
    }
    void *library = compile_for_host();
    splitter *all;
    *(void **)&all = dlsym(library, "split_all");
    assert_non_null(all);
    for (int i = 0; i < SIZES * 2 * 2 * 2 * 3 * 2 * 2; i++) {
        const int64_t *size = sizes[i % SIZES];
        int bits = i / SIZES, gap = bits >> 5 & 1 ? 3 : 0, start = bits >> 3 & 3;
        bool turn_a = bits & 1, turn_b = bits & 2, blocks = bits & 4;
        rcvi_cuda_gemm_shape s = {.rows = size[0],
                                  .columns = size[1],
                                  .depth = size[2],
                                  .transpose_a = turn_a,
                                  .transpose_b = turn_b,
                                  .accumulate = start == 1,
                                  .starts = start == 2,
                                  .row_a = (turn_a ? size[0] : size[2]) + gap,
                                  .row_b = (turn_b ? size[2] : size[1]) + gap,
                                  .row_out = size[1],
                                  .batch = 1};
        for (int parts = 2; parts <= RCVI_MAX_SPLIT; parts++)
            worst[parts] = fmax(worst[parts], check_product(all, s, parts, blocks));
    }
    print_message("sums off by 2^%.1f of their terms in two parts, 2^%.1f in three\n", log2(worst[2]), log2(worst[3]));
    dlclose(library);
}

/* ---- programs ---- */

enum { STEPS = 12, ROWS = 64, SIZE = 160, LAYERS = 3 };
typedef struct {
    int products, operands;
} taken;

static taken find_taken(const char *plan, rcv_dtype dtype, const rcv_net_options *net, int64_t steps) {
    config c = {"lstm", *net, steps, ROWS, false, false, true};
    problem p;
    rcvi_program program;
    taken found = {0, 0};
    open_problem(&p, &c, 1);
    rcv_plan_options options = options_of(&p, dtype, true, plan);
    assert_true(write_with(p.net, &options, &program));
    rcvi_engine e = {.program = &program, .context = program.pool.context};
    rcvi_pool_init(&e.pool, e.context);
    check_ok(rcvi_cuda_find_layout(&e));
    for (size_t i = 0; i < program.step_count; i++) {
        found.products += e.ready[i].operand > 0;
        assert_true(!e.ready[i].operand || program.steps[i].kind == RCVI_STEP_GEMM);
    }
    found.operands = e.operand_count;
    rcvi_pool_free(&e.pool);
    rcvi_program_free(&program);
    close_problem(&p);
    return found;
}

/* Of an LSTM's layer the gates' adjoints are the operand of two products of gradients, and of the one that gives dx where that is
 * outside of the loop; W x of the whole sequence has its own. */
static void test_programs(void **state) {
    (void)state;
    static const rcv_net_options net = {
        .size = sizeof(rcv_net_options), .input = SIZE, .hidden = SIZE, .layers = LAYERS};
    static const char wave[] = "combine+fuse+pack+wavefront+merge+persistent",
                      both[] = "combine(steps=all,forward=1)+fuse+pack+wavefront(forward)+merge+persistent+streams(4)",
                      all[] = "combine(steps=all)+fuse+pack+merge+persistent(parts=2)+graph";
    static const struct {
        const char *plan;
        rcv_dtype dtype;
        int products, operands;
    } expected[] = {
        {wave, RCV_FLOAT32, 2 * LAYERS, LAYERS},
        {both, RCV_FLOAT32, 3 * LAYERS, LAYERS},
        {all, RCV_FLOAT32, 4 * LAYERS, 2 * LAYERS},
        {"combine+fuse+pack+wavefront+merge+persistent(parts=1)", RCV_FLOAT32, 0, 0},
        {"combine(steps=all)+fuse+pack+merge+graph", RCV_FLOAT32, 0, 0},
        {both, RCV_TFLOAT32, 0, 0},
        {both, RCV_BFLOAT16, 0, 0},
    };
    gpu_alone = 1 << 20;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        taken found = find_taken(expected[i].plan, expected[i].dtype, &net, STEPS);
        if (found.products != expected[i].products || found.operands != expected[i].operands)
            fail_msg("%s: %d products in parts, of %d operands", expected[i].plan, found.products, found.operands);
    }
    rcv_net_options thin = RCV_INIT(rcv_net_options, .input = SIZE, .hidden = 24,
                                    .layers = LAYERS); /* bytes take longer than multiply-adds */
    assert_int_equal(find_taken(both, RCV_FLOAT32, &thin, STEPS).products, 0);
    gpu_alone = 1 << 30; /* all are small */
    assert_int_equal(find_taken(both, RCV_FLOAT32, &net, STEPS).products, 0);
    gpu_alone = 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_products), cmocka_unit_test(test_programs)};
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}
