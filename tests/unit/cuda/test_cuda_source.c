/* Maps as CUDA source, run without a GPU: the text is compiled for the host, after a few lines that replace what
 * a GPU has, and what it computes is held against the operations in double. */
#include "device/cuda/codegen/source.h"
#include "probe.h"
#include "scratch.h"

#include <dlfcn.h>
#include <math.h>
#include <unistd.h>

enum { MAX_MEMORY = 128, MAX_MEMBERS = 3, POISON = 0xee };

/* What the text finds on a GPU. */
static const char before[] =
    "#include <math.h>\n#include <string.h>\n"
    "#define __forceinline__ inline\n#define __global__\n#define __launch_bounds__(N)\n"
    "#define __grid_constant__\n"
    "struct Index { unsigned x, y, z; };\nstatic Index blockIdx, threadIdx, gridDim;\n"
    "struct BFloat16;\nstruct Float16;\n"
    "static float bits_as_float(unsigned bits) { float x; memcpy(&x, &bits, 4); return x; }\n"
    "static REAL infinity() { return (REAL)INFINITY; }\n"
    "static float reciprocal(float x) { return x < 0x1p126f ? nextafterf(1 / x, 0) : 1 / x; }\n" /* as bad as allowed */
    "static float widen(Float16 x);\nstatic void narrow(float x, Float16 &y);\nstatic void narrow(float x, BFloat16 "
    "&y);\n";
/* The same, after the types. */
static const char behind[] =
    "static float widen(Float16 x) {\n"
    "    int e = x.bits >> 10 & 31, m = x.bits & 1023;\n"
    "    float y = e == 31 ? (m ? NAN : INFINITY) : e ? ldexpf(1024 + m, e - 25) : ldexpf(m, -24);\n"
    "    return x.bits & 0x8000 ? -y : y;\n}\n"
    "static void narrow(float x, Float16 &y) {\n"
    "    float a = fabsf(x);\n    int e, sign = signbit(x) ? 0x8000 : 0;\n    frexpf(a, &e);\n"
    "    if (isnan(x)) y.bits = 0x7fff;\n    else if (a >= 65520) y.bits = sign | 0x7c00;\n"
    "    else if (a < 0x1p-14f) y.bits = sign | (int)nearbyintf(ldexpf(a, 24));\n"
    "    else y.bits = sign | (((e + 13) << 10) + (int)nearbyintf(ldexpf(a, 11 - e)));\n}\n"
    "static void narrow(float x, BFloat16 &y) {\n    unsigned bits;\n    memcpy(&bits, &x, 4);\n"
    "    y.bits = isnan(x) ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;\n}\n";
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

/* ---- elements ---- */

static double rounded(rcvi_cuda_type type, double x) {
    int e;
    if (!isfinite(x) || x == 0) return x;
    switch (type) {
    case RCVI_F64: return x;
    case RCVI_U8:
    case RCVI_I64: return x;
    case RCVI_F32: return (double)(float)x;
    case RCVI_BF16: frexp(x, &e); return ldexp(nearbyint(ldexp(x, 8 - e)), e - 8);
    default: frexp(x, &e); return fabs(x) >= 65520 ? copysign(INFINITY, x) : ldexp(nearbyint(ldexp(x, 11 - e)), e - 11);
    }
}

static double half_as_double(unsigned bits) {
    int e = bits >> 10 & 31, m = bits & 1023;
    double x = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return bits & 0x8000 ? -x : x;
}

static double get(rcvi_cuda_type type, const void *memory, int64_t at) {
    const char *from = (const char *)memory + (size_t)at * rcvi_cuda_bytes(type);
    double f64;
    float f32;
    uint16_t u16;
    uint32_t u32;
    int64_t i64;
    switch (type) {
    case RCVI_F64: memcpy(&f64, from, 8); return f64;
    case RCVI_F32: memcpy(&f32, from, 4); return f32;
    case RCVI_U8: return *(const unsigned char *)from;
    case RCVI_I64: memcpy(&i64, from, 8); return (double)i64;
    case RCVI_F16: memcpy(&u16, from, 2); return half_as_double(u16);
    default:
        memcpy(&u16, from, 2);
        u32 = (uint32_t)u16 << 16;
        memcpy(&f32, &u32, 4);
        return f32;
    }
}

/* `x` is exact in the type, and in 16 bits it is a small multiple of 1/64. */
static void put(rcvi_cuda_type type, void *memory, int64_t at, double x) {
    char *to = (char *)memory + (size_t)at * rcvi_cuda_bytes(type);
    float f32 = (float)x;
    int64_t i64 = type == RCVI_I64 ? (int64_t)x : 0;
    uint32_t u32;
    uint16_t u16;
    switch (type) {
    case RCVI_F64: memcpy(to, &x, 8); return;
    case RCVI_F32: memcpy(to, &f32, 4); return;
    case RCVI_U8: *(unsigned char *)to = (unsigned char)x; return;
    case RCVI_I64: memcpy(to, &i64, 8); return;
    case RCVI_F16:
        for (u16 = 0; half_as_double(u16) < fabs(x); u16++) {
        }
        u16 = x < 0 ? u16 | 0x8000 : u16;
        break;
    default: memcpy(&u32, &f32, 4); u16 = (uint16_t)(u32 >> 16);
    }
    memcpy(to, &u16, 2);
}

/* ---- a map with memory ---- */

typedef struct {
    rcvi_cuda_type real, narrow;
    int vector, members, products;
    int64_t rows, columns;
} config;

typedef struct {
    config c;
    random_source random;
    rcvi_map map;
    rcvi_view operands[RCVI_MAX_OPERANDS];
    rcvi_product products[RCVI_MAX_PRODUCTS];
    rcvi_instruction instructions[RCVI_MAX_INSTRUCTIONS];
    rcvi_map_store stores[4];
    unsigned char types[RCVI_MAX_VIEWS];
    bool rounded[RCVI_MAX_OPERANDS], written[RCVI_MAX_OPERANDS];
    /* By the view's number of a buffer: every member has its own. */
    struct {
        rcvi_cuda_type type;
        int64_t count;
        bool wild;
        char *at[MAX_MEMBERS], *rounded[MAX_MEMBERS]; /* 64-byte aligned */
        char *first[MAX_MEMBERS];                     /* a copy from before */
    } memory[MAX_MEMORY];
    int memory_count;
    double registers[RCVI_MAX_INSTRUCTIONS], sums[RCVI_MAX_PRODUCTS];
} problem;

static int draw(problem *p, int bound) { return random_below(&p->random, bound); }

static double draw_value(problem *p, rcvi_cuda_type type, bool wild) {
    static const double odd[] = {0, -0.0, 1, INFINITY, -INFINITY, NAN, 1e30, -1e30, 87, -87, 1e-30, 20, -20, -0.3};
    if (type == RCVI_U8 || type == RCVI_I64) return draw(p, 3);
    if (type == RCVI_BF16 || type == RCVI_F16) return draw(p, 257) / 64.0 - 2;
    if (wild && draw(p, 3) == 0) return rounded(type, odd[draw(p, sizeof odd / sizeof *odd)]);
    return rounded(type, random_between(&p->random, -2, 2));
}

/* A view on memory of its own; strides are multiples of the vector, with room between rows. */
static rcvi_view new_view(problem *p, rcvi_cuda_type type, int64_t rows, int64_t columns, int repeats, bool wild) {
    int m = p->memory_count++, vector = p->c.vector;
    assert_true(m < MAX_MEMORY);
    rcvi_view view = {.buffer = m, .row = repeats & 1 ? 0 : columns + vector * draw(p, 3), .column = !(repeats & 2)};
    p->memory[m].type = type;
    p->memory[m].count = rows * (columns + 2 * vector);
    p->memory[m].wild = wild;
    return view;
}

static int new_operand(problem *p, rcvi_cuda_type type, int repeats, bool wild) {
    int v = p->map.operand_count++;
    p->operands[v] = new_view(p, type, p->c.rows, p->c.columns, repeats, wild);
    p->types[v] = (unsigned char)type;
    return v;
}

static int new_output(problem *p) {
    rcvi_cuda_type type = draw(p, 4) ? p->c.real : draw(p, 2) ? RCVI_BF16 : RCVI_F16;
    if (p->c.real == RCVI_F64) type = RCVI_F64;
    int v = new_operand(p, type, 0, false);
    p->written[v] = true;
    p->rounded[v] = p->c.narrow != p->c.real && draw(p, 2);
    return v;
}

static rcvi_instruction *new_instruction(problem *p, rcvi_operation operation) {
    rcvi_instruction *i = &p->instructions[p->map.instruction_count++];
    *i = (rcvi_instruction){
        .operation = operation, .from = {RCVI_FROM_VIEW, RCVI_FROM_VIEW, RCVI_FROM_VIEW}, .out = RCVI_NONE};
    return i;
}

/* Left operands are shared: products have them in different orders. */
static void add_products(problem *p) {
    rcvi_view left[3];
    int64_t depths[3] = {5, 8, 5};
    for (int i = 0; i < 3; i++) left[i] = new_view(p, p->c.narrow, p->c.rows, depths[i], 0, false);
    for (int i = 0; i < p->c.products; i++) {
        rcvi_product *product = &p->products[p->map.product_count++];
        int repeats = draw(p, 4);
        product->start =
            repeats == 3 ? rcvi_no_view() : new_view(p, p->c.real, p->c.rows, p->c.columns, repeats, false);
        product->term_count = 1 + draw(p, 3);
        product->out = draw(p, 2) ? new_output(p) : RCVI_NONE;
        for (int t = 0; t < product->term_count; t++) {
            int l = draw(p, 3);
            product->terms[t].a = left[l];
            product->terms[t].depth = depths[l];
            product->terms[t].b = new_view(p, p->c.narrow, p->c.columns, depths[l], 0, false);
        }
    }
}

/* Every operation on views with wild numbers, then a chain of tame ones. */
static void add_instructions(problem *p) {
    static const rcvi_operation tame[] = {RCVI_ADD,  RCVI_SUBTRACT, RCVI_MULTIPLY, RCVI_NEGATE,
                                          RCVI_TANH, RCVI_SIGMOID,  RCVI_SOFTPLUS, RCVI_ABS};
    static const double numbers[] = {0.1, 1, -2.5, -0.0, 3e-5};
    rcvi_cuda_type real = p->c.real;
    int a = new_operand(p, real, 0, true), b = new_operand(p, real, 0, true);
    int soft[] = {new_operand(p, real, 0, false),      new_operand(p, real, 1, false),
                  new_operand(p, real, 2, false),      new_operand(p, real, 3, false),
                  new_operand(p, RCVI_BF16, 0, false), new_operand(p, RCVI_F16, draw(p, 4), false),
                  new_operand(p, RCVI_U8, 2, false),   new_operand(p, RCVI_I64, 0, false)};
    for (int k = RCVI_ADD; k < RCVI_OPERATION_COUNT; k++) {
        rcvi_instruction *i = new_instruction(p, (rcvi_operation)k);
        i->source[0] = k == RCVI_SELECT ? soft[6] : a;
        i->source[1] = k == RCVI_SELECT ? a : b;
        i->source[2] = b;
        i->out = new_operand(p, real, 0, false);
        p->written[i->out] = true;
    }
    int first = p->map.instruction_count;
    for (int k = 0; k < 24; k++) {
        rcvi_instruction *i = new_instruction(p, tame[draw(p, 8)]);
        for (int o = 0; o < 2; o++) {
            int kind = draw(p, 4), own = p->map.instruction_count - 1;
            if (kind == 0 && p->c.products) {
                i->from[o] = RCVI_FROM_PRODUCT;
                i->source[o] = draw(p, p->c.products);
            } else if (kind == 1 && own > first) {
                i->from[o] = RCVI_FROM_REGISTER;
                i->source[o] = own - 1 - draw(p, own - first < 4 ? own - first : 4);
            } else if (kind == 2) {
                i->from[o] = RCVI_FROM_NUMBER;
                i->number[o] = numbers[draw(p, 5)];
            } else {
                i->source[o] = soft[draw(p, 8)];
            }
        }
        if (draw(p, 2)) i->out = new_output(p);
    }
    /* A view that is read and, later, stored to; second places. */
    rcvi_instruction *i = new_instruction(p, RCVI_ADD);
    i->source[0] = i->source[1] = i->out = soft[0];
    p->written[soft[0]] = true;
    p->stores[p->map.store_count++] = (rcvi_map_store){.source = first + 3, .out = new_output(p)};
    if (p->c.products)
        p->stores[p->map.store_count++] = (rcvi_map_store){.product = true, .source = 0, .out = new_output(p)};
}

static char *aligned(size_t bytes) {
    char *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(memory);
    memset(memory, POISON, (bytes + 63) / 64 * 64);
    return memory;
}

static void fill_memory(problem *p) {
    for (int m = 0; m < p->memory_count; m++) {
        size_t bytes = (size_t)p->memory[m].count * rcvi_cuda_bytes(p->memory[m].type);
        for (int i = 0; i < p->c.members; i++) {
            char *at = p->memory[m].at[i] = aligned(bytes);
            for (int64_t e = 0; e < p->memory[m].count; e++)
                put(p->memory[m].type, at, e, draw_value(p, p->memory[m].type, p->memory[m].wild));
            p->memory[m].first[i] = aligned(bytes);
            memcpy(p->memory[m].first[i], at, bytes);
            p->memory[m].rounded[i] = aligned((size_t)p->memory[m].count * 2);
        }
    }
}

static void open_problem(problem *p, const config *c, uint64_t seed) {
    memset(p, 0, sizeof *p);
    p->c = *c;
    p->random.state = seed;
    p->map = (rcvi_map){
        .products = p->products, .instructions = p->instructions, .stores = p->stores, .operands = p->operands};
    add_products(p);
    add_instructions(p);
    int view = p->map.operand_count;
    for (int i = 0; i < p->map.product_count; i++) {
        p->types[view++] = (unsigned char)c->real;
        for (int t = 0; t < 2 * p->products[i].term_count; t++) p->types[view++] = (unsigned char)c->narrow;
    }
    fill_memory(p);
}

static void close_problem(problem *p) {
    for (int m = 0; m < p->memory_count; m++) {
        for (int i = 0; i < p->c.members; i++) {
            free(p->memory[m].at[i]);
            free(p->memory[m].rounded[i]);
            free(p->memory[m].first[i]);
        }
    }
}

/* ---- what is right ---- */

static double read_view(const problem *p, const rcvi_view *view, int member, int64_t row, int64_t column) {
    return get(p->memory[view->buffer].type, p->memory[view->buffer].first[member],
               row * view->row + column * view->column);
}

/* Products and registers of an element, in double rounded to the type after every operation. */
static void evaluate(problem *p, int member, int64_t row, int64_t column) {
    for (int i = 0; i < p->map.product_count; i++) {
        const rcvi_product *product = &p->products[i];
        double sum = product->start.buffer == RCVI_NONE ? 0 : read_view(p, &product->start, member, row, column);
        for (int t = 0; t < product->term_count; t++) {
            for (int64_t k = 0; k < product->terms[t].depth; k++)
                sum += read_view(p, &product->terms[t].a, member, row, k) *
                       read_view(p, &product->terms[t].b, member, column, k);
        }
        p->sums[i] = rounded(p->c.real, sum);
    }
    for (int k = 0; k < p->map.instruction_count; k++) {
        const rcvi_instruction *i = &p->instructions[k];
        double values[3];
        for (int o = 0; o < 3; o++) {
            int source = i->source[o];
            values[o] = i->from[o] == RCVI_FROM_VIEW       ? read_view(p, &p->operands[source], member, row, column)
                        : i->from[o] == RCVI_FROM_REGISTER ? p->registers[source]
                        : i->from[o] == RCVI_FROM_PRODUCT  ? p->sums[source]
                                                           : rounded(p->c.real, i->number[o]);
        }
        p->registers[k] = i->operation == RCVI_SELECT
                              ? values[values[0] != 0 ? 1 : 2]
                              : rounded(p->c.real, rcvi_operations[i->operation].evaluate(values[0], values[1]));
    }
}

static bool is_near(rcvi_cuda_type type, rcvi_cuda_type real, double got, double want) {
    double step = type == RCVI_BF16 ? 0x1p-8 : type == RCVI_F16 ? 0x1p-10 : 0;
    double near = real == RCVI_F64 ? 1e-13 : 1e-5;
    want = rounded(type, want);
    if (isnan(want) || isinf(want)) return isnan(want) ? isnan(got) : got == want;
    return fabs(got - want) <= (near + step) * (1 + fabs(want));
}

static void check_store(const problem *p, int view, double want, int member, int64_t row, int64_t column) {
    if (view == RCVI_NONE) return;
    const rcvi_view *v = &p->operands[view];
    rcvi_cuda_type type = p->memory[v->buffer].type;
    double got = get(type, p->memory[v->buffer].at[member], row * v->row + column);
    if (!is_near(type, p->c.real, got, want))
        fail_msg("view %d at %d, %d is %g, not %g", view, (int)row, (int)column, got, want);
    if (!p->rounded[view]) return;
    got = get(p->c.narrow, p->memory[v->buffer].rounded[member], row * v->row + column);
    if (!is_near(p->c.narrow, p->c.real, got, want))
        fail_msg("the rounded copy of view %d at %d, %d is %g, not %g", view, (int)row, (int)column, got, want);
}

/* Everything but the elements that are stored is as before. */
static void check_untouched(const problem *p, int view, int member, bool absent) {
    const rcvi_view *v = &p->operands[view];
    size_t size = rcvi_cuda_bytes(p->memory[v->buffer].type);
    for (int64_t e = 0; e < p->memory[v->buffer].count; e++) {
        int64_t row = v->row ? e / v->row : 0, column = v->row ? e % v->row : e;
        bool inside = p->written[view] && !absent && row < p->c.rows && column < p->c.columns;
        size_t at = (size_t)e * size;
        if (!inside)
            assert_memory_equal(p->memory[v->buffer].at[member] + at, p->memory[v->buffer].first[member] + at, size);
        for (size_t b = 0; b < 2 && !(inside && p->rounded[view]); b++)
            assert_int_equal((unsigned char)p->memory[v->buffer].rounded[member][2 * e + (int64_t)b], POISON);
    }
}

static void check_results(problem *p, int absent) {
    for (int m = 0; m < p->c.members; m++) {
        for (int64_t row = 0; row < p->c.rows; row++) {
            for (int64_t column = 0; column < p->c.columns; column++) {
                evaluate(p, m, row, column);
                for (int i = 0; i < p->map.product_count; i++)
                    if (p->products[i].out != absent) check_store(p, p->products[i].out, p->sums[i], m, row, column);
                for (int k = 0; k < p->map.instruction_count; k++)
                    if (p->instructions[k].out != absent)
                        check_store(p, p->instructions[k].out, p->registers[k], m, row, column);
                for (int i = 0; i < p->map.store_count; i++)
                    check_store(p, p->stores[i].out,
                                p->stores[i].product ? p->sums[p->stores[i].source] : p->registers[p->stores[i].source],
                                m, row, column);
            }
        }
        for (int v = 0; v < p->map.operand_count; v++) check_untouched(p, v, m, v == absent);
    }
}

/* ---- running the text ---- */

typedef void runner(const uint64_t *words, int x, int y, int z);

static bool has_compiler(void) {
    if (system("${CXX:-c++} --version > /dev/null 2>&1") == 0) return true;
    print_message("skipped: there is no C++ compiler to run the text with\n");
    return false;
}

/* The text for the host: the kernel's place is taken by a loop. */
static void write_host_text(const char *path, const char *text, bool products) {
    const char *types = strstr(text, "#ifdef __CUDACC__"), *macros = strstr(text, "/* Elements of views");
    const char *tile = strstr(text, "/* Kernels with products:");
    assert_true(types && macros && (tile != NULL) == products);
    size_t length = tile ? (size_t)(tile - text) : strlen(text);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fwrite(text, 1, (size_t)(macros - text), file); /* REAL comes first */
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

/* The words of all members; view `absent` has no address. */
static int write_words(const problem *p, const rcvi_map_shape *shape, int absent, uint64_t *words) {
    const rcvi_view *views[RCVI_MAX_VIEWS];
    rcvi_pass passes[RCVI_MAX_PASSES];
    int count = 0, view_count = rcvi_map_views(&p->map, views), pass_count = rcvi_map_passes(&p->map, passes);
    words[count++] = (uint64_t)p->c.columns;
    for (int v = 0; v < view_count; v++) words[count++] = (uint64_t)views[v]->row;
    for (int i = 0; i < pass_count; i++) words[count++] = (uint64_t)passes[i].depth;
    for (int m = 0; m < shape->members; m++) {
        words[count++] = shape->counted ? (uint64_t)(uintptr_t)&p->c.rows : (uint64_t)p->c.rows;
        for (int v = 0; v < view_count; v++) {
            bool none = v == absent || views[v]->buffer == RCVI_NONE;
            words[count++] = none ? 0 : (uint64_t)(uintptr_t)p->memory[views[v]->buffer].at[m];
        }
        for (int v = 0; v < p->map.operand_count; v++) {
            if (p->rounded[v])
                words[count++] = v == absent ? 0 : (uint64_t)(uintptr_t)p->memory[views[v]->buffer].rounded[m];
        }
    }
    return count;
}

static void run_problem(rcv_context *context, problem *p) {
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
    static const config configs[] = {
        {RCVI_F32, RCVI_F32, 4, 1, 0, 19, 132}, {RCVI_F32, RCVI_BF16, 4, 2, 0, 9, 8},
        {RCVI_F32, RCVI_F16, 2, 3, 0, 5, 70},   {RCVI_F32, RCVI_BF16, 1, 1, 0, 17, 33},
        {RCVI_F64, RCVI_F64, 2, 2, 0, 9, 6},    {RCVI_F64, RCVI_F64, 1, 1, 0, 3, 37},
        {RCVI_F32, RCVI_BF16, 4, 2, 3, 5, 8},   {RCVI_F32, RCVI_F16, 2, 1, 4, 7, 6},
        {RCVI_F32, RCVI_F32, 1, 3, 2, 3, 5},    {RCVI_F64, RCVI_F64, 4, 1, 3, 4, 12},
    };
    if (!has_compiler()) skip();
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    problem *p = malloc(sizeof *p);
    assert_non_null(p);
    for (size_t i = 0; i < sizeof configs / sizeof *configs; i++) {
        open_problem(p, &configs[i], 77 + i);
        run_problem(context, p);
        close_problem(p);
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
