/* Products of float32 in persistent kernels, without a GPU: their texts are compiled for the host with a few lines of emulation. In parts: parts
 * are where copy threads read them, their sum is nearly the number, and their products nearly the product. Exact: eight neighbouring threads
 * have every sum once. */
#include "scratch.h"
#include "test.h"

#include <dlfcn.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern const char rcvi_map_element_text[], rcvi_persistent_base_text[], rcvi_persistent_fma_text[];

enum { COLUMNS = 100, MOST_PARTS = 3, ROW_BYTES = 128, WEIGHT_ROWS = 64, DEPTH = 32 };

/* What the texts find on a GPU; numbers of bfloat16 are rounded to the nearest, to even in the middle. */
static const char before[] =
    "#include <math.h>\n#include <pthread.h>\n#include <string.h>\n"
    "#define __forceinline__ inline\n#define asm\n#define volatile(...)\n#define __shared__\n#define __align__(...)\n"
    "struct BFloat16;\nstruct Float16;\nstruct uint2 { unsigned x, y; };\nstruct uint4 { unsigned x, y, z, w; };\n"
    "static uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }\n"
    "static uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }\n"
    "static float bits_as_float(unsigned bits) { float x; memcpy(&x, &bits, 4); return x; }\n"
    "static unsigned __float_as_uint(float x) { unsigned bits; memcpy(&bits, &x, 4); return bits; }\n"
    "static float infinity() { return INFINITY; }\nstatic float reciprocal(float x) { return 1 / x; }\n"
    "static float widen(Float16 x);\nstatic void narrow(float x, Float16 &y);\n"
    "static void narrow(float x, BFloat16 &y);\nstatic void __threadfence_system() {}\n"
    "static bool __any_sync(unsigned, bool x) { return x; }\n"
    "static const char *shared;\n"
    "static void read_four(unsigned at, float (&x)[4]) { memcpy(x, shared + at, 16); }\n"
    "static thread_local int self;\nstatic float passed[8];\nstatic pthread_barrier_t meeting;\n"
    "static float __shfl_xor_sync(unsigned, float x, int second_product) {\n"
    "    passed[self] = x;\n    pthread_barrier_wait(&meeting);\n    float y = passed[self ^ second_product];\n"
    "    pthread_barrier_wait(&meeting);\n    return y;\n}\n";
static const char behind[] =
    "static void narrow(float x, BFloat16 &y) {\n    unsigned bits = __float_as_uint(x);\n"
    "    y.bits = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;\n}\n"
    "extern \"C\" void publish_row(const float *x, int tile, int n, void *to) {\n"
    "    unsigned long long arguments[] = {(unsigned long long)to};\n    Frame f = {arguments, tile, n, true, true};\n"
    "    for (int column = 0; column + VECTOR <= 100; column += VECTOR) {\n        REAL some[VECTOR];\n"
    "        for (int i = 0; i < VECTOR; i++) some[i] = x[column + i];\n"
    "        publish<BFloat16, 2 * PARTS>(f, 0, column, some);\n    }\n}\n"
    "struct Work { int group, segment; float *out; int *written; };\n"
    "static void *work(void *data) {\n    Work &w = *(Work *)data;\n    float sums[4 * ROWS] = {}, a[4][4];\n"
    "    self = w.segment;\n    for (int r = 0; r < 4; r++) {\n        int m = 4 * w.group + r;\n"
    "        read_four(m * 128 + ((w.segment ^ (m & 7)) << 4), a[r]);\n    }\n"
    "    multiply_add<ROWS>(sums, a, 64 * 128, w.segment);\n    int first = add_up<4 * ROWS>(sums, w.segment);\n"
    "    for (int i = 0; first >= 0 && i < (ROWS > 2 ? ROWS / 2 : 1); i++) {\n"
    "        int at = (first + i) / 4 * 64 + 4 * w.group + (first + i) % 4;\n        w.out[at] = sums[i];\n"
    "        w.written[at]++;\n    }\n    return 0;\n}\n"
    "extern \"C\" void multiply_all(const void *memory, float *out, int *written) {\n"
    "    shared = (const char *)memory;\n    pthread_barrier_init(&meeting, 0, 8);\n"
    "    for (int group = 0; group < 16; group++) {\n        pthread_t threads[8];\n        Work all[8];\n"
    "        for (int t = 0; t < 8; t++) {\n            all[t] = {group, t, out, written};\n"
    "            pthread_create(&threads[t], 0, work, &all[t]);\n        }\n"
    "        for (int t = 0; t < 8; t++) pthread_join(threads[t], 0);\n    }\n}\n";

static bool has_compiler(void) {
    if (system("${CXX:-c++} --version > /dev/null 2>&1") == 0) return true;
    print_message("skipped: there is no C++ compiler to run the text with\n");
    return false;
}

typedef void publisher(const float *x, int tile, int n, void *to);
typedef void multiplier(const void *memory, float *out, int *written);

static void *compile_for_host(int parts, int vector, int tile, int rows) {
    static int number; /* a name is expected once */
    char name[40], path[600], library[600], command[1400];
    snprintf(name, sizeof name, "parts%d.so", number++);
    snprintf(library, sizeof library, "%s", path_in(name));
    snprintf(path, sizeof path, "%s", path_in("parts.cpp"));
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file,
            "#define REAL float\n#define PERSISTENT 1\n#define REAL_IS_DOUBLE 0\n#define ROW_THREADS 0\n"
            "#define ROUNDED 0\n#define WORDS 8\n#define TILE_TF32 0\n#define PARTS %d\n#define VECTOR %d\n"
            "#define SPLITS 1\n#define TILE_N %d\n#define TILE_ROWS TILE_N\n#define ROWS %d\n",
            parts, vector, tile, rows);
    fprintf(file, "%s%s%s%s%s", before, rcvi_map_element_text, rcvi_persistent_base_text, rcvi_persistent_fma_text,
            behind);
    assert_int_equal(fclose(file), 0);
    snprintf(command, sizeof command,
             "${CXX:-c++} -std=c++17 -D__device__= -O1 -w -fno-strict-aliasing -pthread -shared -fPIC -o %s %s",
             library, path);
    if (system(command) != 0) fail_msg("the host's compiler refuses the text");
    void *open = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!open) fail_msg("%s", dlerror());
    unlink(path);
    unlink(library);
    return open;
}

/* Uniform in [-1, 1), and of all sizes. */
static float random_number(void) {
    double x = 2.0 * rand() / ((double)RAND_MAX + 1) - 1;
    return (float)ldexp(x, rand() % 40 - 20);
}

/* ---- parts ---- */

static float part_at(const unsigned char *memory, int parts, int tile_rows, int tile, int n, int column, int part) {
    int chunk = column / 64 * parts + part, segment = column % 64 / 8 ^ (n & 7);
    size_t at = ((size_t)(tile * 2 * parts + chunk) * (size_t)tile_rows + (size_t)n) * ROW_BYTES +
                (size_t)(segment * 16 + column % 8 * 2);
    uint32_t bits = (uint32_t)(memory[at] | memory[at + 1] << 8) << 16;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

/* The sum of products that are taken. */
static double multiply_parts(const float *a, const float *b, int parts) {
    double sum = 0;
    for (int i = 0; i < parts; i++) {
        for (int k = 0; i + k < parts; k++) sum += (double)a[i] * (double)b[k];
    }
    return sum;
}

static void check_parts(int parts, int vector) {
    enum { TILE = 16, TILES = 2 };
    const double near[] = {0, 0x1p-8, 0x1p-16, 0}, near_product[] = {0, 0x1.01p-7, 3 * 0x1p-16, 0x1.01p-23};
    static float x[TILES * TILE][COLUMNS];
    void *library = compile_for_host(parts, vector, TILE, 1);
    publisher *publish;
    *(void **)&publish = dlsym(library, "publish_row");
    assert_non_null(publish);
    size_t bytes = (size_t)(TILES * 2 * parts * TILE * ROW_BYTES);
    unsigned char *memory = calloc(bytes, 1);
    assert_non_null(memory);
    for (int row = 0; row < TILES * TILE; row++) {
        for (int c = 0; c < COLUMNS; c++) x[row][c] = random_number();
        publish(x[row], row / TILE, row % TILE, memory);
    }
    double worst = 0, before_part[MOST_PARTS] = {0};
    for (int k = 0; k < TILES * TILE * COLUMNS; k++) {
        int row = k / COLUMNS, c = k % COLUMNS;
        float part[MOST_PARTS], last[MOST_PARTS];
        double sum = 0, number = x[row][c], other = x[row][c ? c - 1 : 0];
        for (int p = 0; p < parts; p++) {
            part[p] = part_at(memory, parts, TILE, row / TILE, row % TILE, c, p);
            last[p] = part_at(memory, parts, TILE, row / TILE, row % TILE, c ? c - 1 : 0, p);
            sum += (double)part[p];
            before_part[p] += fabs((double)part[p]);
        }
        if (!(fabs(sum - number) <= near[parts] * fabs(number))) fail_msg("%g in parts is %g", number, sum);
        double error = fabs(multiply_parts(part, last, parts) - number * other) / fabs(number * other);
        worst = fmax(worst, error);
        if (!(error <= near_product[parts])) fail_msg("a product in %d parts is off by %g", parts, error);
    }
    for (int p = 0; p < parts; p++) assert_true(before_part[p] > 0);
    print_message("%d parts, %d at once: products off by 2^%.1f at most\n", parts, vector, log2(worst));
    free(memory);
    dlclose(library);
}

static void test_parts(void **state) {
    (void)state;
    if (!has_compiler()) skip();
    for (int parts = 1; parts <= MOST_PARTS; parts++) {
        for (int vector = 1; vector <= 4; vector *= 2) check_parts(parts, vector);
    }
}

/* ---- exact ---- */

static void put_number(unsigned char *memory, int row, int k, float x) {
    memcpy(memory + row * ROW_BYTES + ((k / 4 ^ (row & 7)) << 4) + k % 4 * 4, &x, 4);
}

static void check_exact(int rows) {
    static float a[WEIGHT_ROWS][DEPTH], b[8][DEPTH], out[8 * WEIGHT_ROWS];
    static int written[8 * WEIGHT_ROWS];
    static unsigned char memory[(WEIGHT_ROWS + 8) * ROW_BYTES];
    void *library = compile_for_host(1, 1, 8, rows);
    multiplier *multiply;
    *(void **)&multiply = dlsym(library, "multiply_all");
    assert_non_null(multiply);
    memset(written, 0, sizeof written);
    for (int k = 0; k < DEPTH; k++) {
        for (int m = 0; m < WEIGHT_ROWS; m++) put_number(memory, m, k, a[m][k] = random_number());
        for (int n = 0; n < 8; n++) put_number(memory + WEIGHT_ROWS * ROW_BYTES, n, k, b[n][k] = random_number());
    }
    multiply(memory, out, written);
    for (int n = 0; n < 8; n++) {
        for (int m = 0; m < WEIGHT_ROWS; m++) {
            double want = 0, scale = 0;
            for (int k = 0; k < DEPTH; k++) {
                want += (double)a[m][k] * (double)b[n][k];
                scale += fabs((double)a[m][k] * (double)b[n][k]);
            }
            assert_int_equal(written[n * WEIGHT_ROWS + m], n < rows);
            if (n < rows && !(fabs((double)out[n * WEIGHT_ROWS + m] - want) <= 4 * 0x1p-24 * scale))
                fail_msg("the sum of row %d with row %d is %g, not %g", m, n, (double)out[n * WEIGHT_ROWS + m], want);
        }
    }
    dlclose(library);
}

static void test_exact(void **state) {
    (void)state;
    if (!has_compiler()) skip();
    for (int rows = 1; rows <= 8; rows *= 2) check_exact(rows);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_parts), cmocka_unit_test(test_exact)};
    return cmocka_run_group_tests(tests, scratch_set_up, scratch_tear_down);
}
