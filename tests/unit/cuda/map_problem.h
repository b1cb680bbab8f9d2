/* Random maps with memory, and what they compute, in double: shared by the tests of generated source and of the interpreter. Both compile what
 * runs on a GPU for the host, between the lines below. */
#ifndef RECURVE_MAP_PROBLEM_H
#define RECURVE_MAP_PROBLEM_H

#include "device/cuda/codegen/source.h"
#include "probe.h"

#include <math.h>

enum { MAX_MEMORY = 128, MAX_MEMBERS = 3, POISON = 0xee };

/* What the text finds on a GPU. */
static const char host[] = "#include <math.h>\n#include <string.h>\n"
                           "#define __forceinline__ inline\n#define __global__\n#define __launch_bounds__(N)\n"
                           "#define __grid_constant__\n"
                           "struct Index { unsigned x, y, z; };\nstatic Index blockIdx, threadIdx, gridDim;\n";
/* The same, before the types. */
static const char before[] =
    "struct BFloat16;\nstruct Float16;\n"
    "static float bits_as_float(unsigned bits) { float x; memcpy(&x, &bits, 4); return x; }\n"
    "static REAL infinity() { return (REAL)INFINITY; }\n"
    "static float reciprocal(float x) { return x < 0x1p126f ? nextafterf(1 / x, 0) : 1 / x; }\n" /* as bad as allowed */
    "static float widen(Float16 x);\nstatic void narrow(float x, Float16 &y);\nstatic void narrow(float x, BFloat16 "
    "&y);\n";
/* After the types. */
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

static bool has_compiler(void) {
    if (system("${CXX:-c++} --version > /dev/null 2>&1") == 0) return true;
    print_message("skipped: there is no C++ compiler to run the text with\n");
    return false;
}

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
    double fraction;
    int exponent;
    switch (type) {
    case RCVI_F64: memcpy(to, &x, 8); return;
    case RCVI_F32: memcpy(to, &f32, 4); return;
    case RCVI_U8: *(unsigned char *)to = (unsigned char)x; return;
    case RCVI_I64: memcpy(to, &i64, 8); return;
    case RCVI_F16:
        fraction = frexp(fabs(x), &exponent);
        u16 = x == 0 ? 0 : (uint16_t)(((exponent + 14) << 10) + (int)(2048 * fraction) - 1024);
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
} map_config;

typedef struct {
    map_config c;
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
} map_problem;

static int draw(map_problem *p, int bound) { return random_below(&p->random, bound); }

static double draw_value(map_problem *p, rcvi_cuda_type type, bool wild) {
    static const double odd[] = {0, -0.0, 1, INFINITY, -INFINITY, NAN, 1e30, -1e30, 87, -87, 1e-30, 20, -20, -0.3};
    if (type == RCVI_U8 || type == RCVI_I64) return draw(p, 3);
    if (type == RCVI_BF16 || type == RCVI_F16) return draw(p, 257) / 64.0 - 2;
    if (wild && draw(p, 3) == 0) return rounded(type, odd[draw(p, sizeof odd / sizeof *odd)]);
    return rounded(type, random_between(&p->random, -2, 2));
}

/* A view on memory of its own; strides are multiples of the vector, with room between rows. */
static rcvi_view new_view(map_problem *p, rcvi_cuda_type type, int64_t rows, int64_t columns, int repeats, bool wild) {
    int m = p->memory_count++, vector = p->c.vector;
    assert_true(m < MAX_MEMORY);
    rcvi_view view = {.buffer = m, .row = repeats & 1 ? 0 : columns + vector * draw(p, 3), .column = !(repeats & 2)};
    p->memory[m].type = type;
    p->memory[m].count = rows * (columns + 2 * vector);
    p->memory[m].wild = wild;
    return view;
}

static int new_operand(map_problem *p, rcvi_cuda_type type, int repeats, bool wild) {
    int v = p->map.operand_count++;
    p->operands[v] = new_view(p, type, p->c.rows, p->c.columns, repeats, wild);
    p->types[v] = (unsigned char)type;
    return v;
}

static int new_output(map_problem *p) {
    rcvi_cuda_type type = draw(p, 4) ? p->c.real : draw(p, 2) ? RCVI_BF16 : RCVI_F16;
    if (p->c.real == RCVI_F64) type = RCVI_F64;
    int v = new_operand(p, type, 0, false);
    p->written[v] = true;
    p->rounded[v] = p->c.narrow != p->c.real && draw(p, 2);
    return v;
}

static rcvi_instruction *new_instruction(map_problem *p, rcvi_operation operation) {
    rcvi_instruction *i = &p->instructions[p->map.instruction_count++];
    *i = (rcvi_instruction){
        .operation = operation, .from = {RCVI_FROM_VIEW, RCVI_FROM_VIEW, RCVI_FROM_VIEW}, .out = RCVI_NONE};
    return i;
}

/* Left operands are shared: products have them in different orders. */
static void add_products(map_problem *p) {
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
static void add_instructions(map_problem *p) {
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

static void fill_memory(map_problem *p) {
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

static inline void open_map_problem(map_problem *p, const map_config *c, uint64_t seed) {
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

static void close_map_problem(map_problem *p) {
    for (int m = 0; m < p->memory_count; m++) {
        for (int i = 0; i < p->c.members; i++) {
            free(p->memory[m].at[i]);
            free(p->memory[m].rounded[i]);
            free(p->memory[m].first[i]);
        }
    }
}

/* ---- what is right ---- */

static double read_view(const map_problem *p, const rcvi_view *view, int member, int64_t row, int64_t column) {
    return get(p->memory[view->buffer].type, p->memory[view->buffer].first[member],
               row * view->row + column * view->column);
}

/* Products and registers of an element, in double rounded to the type after every operation. */
static void evaluate(map_problem *p, int member, int64_t row, int64_t column) {
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

static bool is_near_in(rcvi_cuda_type type, rcvi_cuda_type real, double got, double want) {
    double step = type == RCVI_BF16 ? 0x1p-8 : type == RCVI_F16 ? 0x1p-10 : 0;
    double near = real == RCVI_F64 ? 1e-13 : 1e-5;
    want = rounded(type, want);
    if (isnan(want) || isinf(want)) return isnan(want) ? isnan(got) : got == want;
    return fabs(got - want) <= (near + step) * (1 + fabs(want));
}

static void check_store(const map_problem *p, int view, double want, int member, int64_t row, int64_t column) {
    if (view == RCVI_NONE) return;
    const rcvi_view *v = &p->operands[view];
    rcvi_cuda_type type = p->memory[v->buffer].type;
    double got = get(type, p->memory[v->buffer].at[member], row * v->row + column);
    if (!is_near_in(type, p->c.real, got, want))
        fail_msg("view %d at %d, %d is %g, not %g", view, (int)row, (int)column, got, want);
    if (!p->rounded[view]) return;
    got = get(p->c.narrow, p->memory[v->buffer].rounded[member], row * v->row + column);
    if (!is_near_in(p->c.narrow, p->c.real, got, want))
        fail_msg("the rounded copy of view %d at %d, %d is %g, not %g", view, (int)row, (int)column, got, want);
}

/* Everything but the elements that are stored is as before. */
static void check_untouched(const map_problem *p, int view, int member, bool absent) {
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

static void check_results(map_problem *p, int absent) {
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

/* The words of all members; view `absent` has no address. */
static int write_words(const map_problem *p, const rcvi_map_shape *shape, int absent, uint64_t *words) {
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

#endif
