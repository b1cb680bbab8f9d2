/* The interpreter of maps, run without a GPU: its kernels are compiled for the host, the threads of a block as fibers, and what they compute
 * is held against the operations in double. Copies into shared memory arrive as late as they may: when they are waited for. */
#include "cuda_programs.h"
#include "device/cuda/engine/engine.h"
#include "map_problem.h"
#include "scratch.h"

#include <dlfcn.h>
#include <unistd.h>

static const char machine[] =
    "#include <stdint.h>\n#include <stdio.h>\n#include <stdlib.h>\n#include <ucontext.h>\n"
    "#define __device__\nstruct uint4 { unsigned x, y, z, w; };\nstatic Index blockDim;\n"
    "enum { MOST = 256, STACK = 1 << 16, COPIES = 4096 };\n"
    "static ucontext_t scheduler, fibers[MOST];\nstatic char stacks[MOST][STACK];\nstatic bool ended[MOST];\n"
    "static int current, waiting;\n"
    "struct Copy { void *to; unsigned long long from; int bytes; };\n"
    "static Copy copies[MOST][COPIES];\nstatic int copy_count[MOST];\n"
    "template <int BYTES> static void copy_async(void *to, unsigned long long from) {\n"
    "    if (from % BYTES || (uintptr_t)to % BYTES || copy_count[current] == COPIES) abort();\n"
    "    copies[current][copy_count[current]++] = {to, from, BYTES};\n}\n"
    "static void wait_for_copies() {\n"
    "    for (int i = 0; i < copy_count[current]; i++)\n"
    "        memcpy(copies[current][i].to, (const void *)copies[current][i].from, copies[current][i].bytes);\n"
    "    copy_count[current] = 0;\n}\n"
    "static void __syncthreads() {\n    waiting++;\n    swapcontext(&fibers[current], &scheduler);\n}\n";

static const char runners[] =
    "static const unsigned long long *given;\nstatic const rcvi_interpreted *table;\nstatic int kind;\n"
    "static unsigned char *shared;\n"
    "static void thread() {\n"
    "    if (kind == 0) float32::run_map(*(const float32::Arguments<500> *)given, *table, shared);\n"
    "    if (kind == 1) float32::run_rows(*(const float32::Arguments<500> *)given, *table, shared);\n"
    "    if (kind == 2) float64::run_map(*(const float64::Arguments<500> *)given, *table, shared);\n"
    "    if (kind == 3) float64::run_rows(*(const float64::Arguments<500> *)given, *table, shared);\n"
    "    ended[current] = true;\n    swapcontext(&fibers[current], &scheduler);\n}\n"
    /* A barrier that some threads reach while others end, and copies that are never waited for, are errors. */
    "static bool run_block(int threads) {\n    int left = threads;\n"
    "    for (int t = 0; t < threads; t++) {\n"
    "        getcontext(&fibers[t]);\n        fibers[t].uc_stack.ss_sp = stacks[t];\n"
    "        fibers[t].uc_stack.ss_size = STACK;\n        makecontext(&fibers[t], thread, 0);\n"
    "        ended[t] = false;\n        copy_count[t] = 0;\n    }\n"
    "    while (left > 0) {\n        int ends = 0;\n        waiting = 0;\n"
    "        for (int t = 0; t < threads; t++) {\n            if (ended[t]) continue;\n            current = t;\n"
    "            threadIdx = {t % blockDim.x, t / blockDim.x, 0};\n            swapcontext(&scheduler, &fibers[t]);\n"
    "            ends += ended[t];\n            if (ended[t] && copy_count[t]) return false;\n        }\n"
    "        left -= ends;\n        if (ends && waiting) return false;\n    }\n    return true;\n}\n"
    "extern \"C\" bool run(const unsigned long long *words, const rcvi_interpreted *m, int sums, int bx, int by,\n"
    "                    int bytes, int gx, int gy, int gz) {\n"
    "    given = words;\n    table = m;\n    kind = (m->is_double ? 2 : 0) + (sums ? 1 : 0);\n"
    "    shared = (unsigned char *)aligned_alloc(64, bytes / 64 * 64 + 128);\n"
    "    gridDim = {(unsigned)gx, (unsigned)gy, (unsigned)gz};\n    blockDim = {(unsigned)bx, (unsigned)by, 1};\n"
    "    bool good = true;\n    for (int b = 0; b < gx * gy * gz && good; b++) {\n"
    "        memset(shared, 0xee, bytes / 64 * 64 + 128);\n"
    "        blockIdx = {(unsigned)(b % gx), (unsigned)(b / gx % gy), (unsigned)(b / gx / gy)};\n"
    "        good = run_block(bx * by);\n"
    "        for (int i = bytes; i < bytes / 64 * 64 + 128; i++) good = good && shared[i] == 0xee;\n"
    "    }\n    free(shared);\n    return good;\n}\n";

typedef bool runner(const uint64_t *words, const rcvi_interpreted *head, int sums, int bx, int by, int bytes, int gx,
                    int gy, int gz);

static void *library;
static runner *run;

static int compile_interpreter(void **state) {
    char path[600], name[600], command[2400];
    if (scratch_set_up(state)) return 1;
    if (!has_compiler()) return 0;
    snprintf(name, sizeof name, "%s", path_in("interpret.so"));
    snprintf(path, sizeof path, "%s", path_in("interpret.cpp"));
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "%s%s#include \"device/cuda/kernels/interpret.h\"\n", host, machine);
    for (int real = 0; real < 2; real++)
        fprintf(file,
                "namespace float%d {\n#define REAL %s\n#define REAL_IS_DOUBLE %d\n%s"
                "#include \"device/cuda/kernels/interpret.cuh\"\n%s#undef REAL\n#undef REAL_IS_DOUBLE\n}\n",
                real ? 64 : 32, real ? "double" : "float", real, before, behind);
    fputs(runners, file);
    assert_int_equal(fclose(file), 0);
    snprintf(command, sizeof command,
             "${CXX:-c++} -std=c++17 -O1 -w -fno-strict-aliasing -I%s/src -shared -fPIC -o %s %s", RCV_SOURCE_DIR, name,
             path);
    if (system(command) != 0) fail_msg("the host's compiler refuses the interpreter");
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) fail_msg("%s", dlerror());
    *(void **)&run = dlsym(library, "run");
    unlink(path);
    unlink(name);
    return run ? 0 : 1;
}

static int drop_interpreter(void **state) {
    if (library) dlclose(library);
    return scratch_tear_down(state);
}

/* As engine/launch.c launches it; few blocks: they take several rows each. */
static void launch(const rcvi_map_table *table, const uint64_t *words, int64_t columns, int64_t rows, int members,
                   int64_t blocks) {
    rcvi_interpreted head = table->head;
    rcvi_interpret_launch l = rcvi_map_table_launch(table, columns, rows, blocks);
    int64_t each = RCVI_INTERPRET_BYTES / (head.is_double ? 8 : 4), across = (columns + each - 1) / each;
    head.table = table->table;
    assert_true(l.shared <= RCVI_INTERPRET_SHARED && l.threads % l.lanes == 0);
    across = table->has_sums ? 1 + rows / 2 : (across + l.lanes - 1) / l.lanes;
    if (!run(words, &head, table->has_sums, l.lanes, l.threads / l.lanes, l.shared, (int)across, 1, members))
        fail_msg("threads do not meet at a barrier, do not wait for a copy, or leave their shared memory");
}

/* ---- maps without sums: those of test_cuda_source ---- */

static rcvi_map_shape shape_of(const map_problem *p, int widest) {
    return (rcvi_map_shape){.map = &p->map,
                            .types = p->types,
                            .has_rounded = p->rounded,
                            .real = p->c.real,
                            .narrow = p->c.narrow,
                            .vector = widest,
                            .widest = widest,
                            .members = p->c.members,
                            .counted = p->c.rows % 2};
}

static void run_problem(rcv_context *context, map_problem *p, int widest, int64_t blocks) {
    int absent = p->instructions[0].out;
    rcvi_map_shape shape = shape_of(p, widest);
    rcvi_map_table table;
    uint64_t words[4096];
    check_ok(rcvi_map_table_new(context, &shape, &table));
    assert_false(table.has_sums);
    assert_int_equal(write_words(p, &shape, absent, words), rcvi_map_words(&shape));
    launch(&table, words, p->c.columns, p->c.rows, p->c.members, blocks);
    check_results(p, absent);
    rcvi_free(context, table.table);
}

static const map_config configs[] = {
    {RCVI_F32, RCVI_F32, 4, 1, 0, 19, 132},  {RCVI_F32, RCVI_BF16, 4, 2, 0, 9, 8},
    {RCVI_F32, RCVI_F16, 2, 3, 0, 5, 70},    {RCVI_F32, RCVI_BF16, 1, 1, 0, 17, 33},
    {RCVI_F64, RCVI_F64, 2, 2, 0, 9, 6},     {RCVI_F64, RCVI_F64, 1, 1, 0, 3, 37},
    {RCVI_F64, RCVI_F64, 4, 3, 0, 6, 12},    {RCVI_F32, RCVI_F16, 4, 3, 0, 301, 4},
    {RCVI_F32, RCVI_F32, 1, 1, 0, 1, 1},     {RCVI_F64, RCVI_F64, 1, 2, 0, 40, 1},
    {RCVI_F32, RCVI_BF16, 4, 1, 0, 2, 1028},
};
enum { CONFIGS = sizeof configs / sizeof *configs };

static void test_maps(void **state) {
    (void)state;
    if (!run) skip();
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    map_problem *p = malloc(sizeof *p);
    assert_non_null(p);
    for (int i = 0; i < 4 * CONFIGS; i++) {
        open_map_problem(p, &configs[i % CONFIGS], 177 + (uint64_t)i);
        run_problem(context, p, i % 2 ? p->c.vector : 1, i % 3 ? 1 : 100);
        close_map_problem(p);
    }
    free(p);
    test_context_end(&allocator, context);
}

/* The same bits whatever the width of accesses and the size of blocks. */
static void test_bits(void **state) {
    (void)state;
    if (!run) skip();
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    map_problem *a = malloc(sizeof *a), *b = malloc(sizeof *b);
    assert_true(a && b);
    for (int i = 0; i < CONFIGS; i++) {
        open_map_problem(a, &configs[i], 500 + (uint64_t)i);
        open_map_problem(b, &configs[i], 500 + (uint64_t)i);
        run_problem(context, a, a->c.vector, 1);
        run_problem(context, b, 1, 1000);
        for (int m = 0; m < a->memory_count; m++) {
            size_t bytes = (size_t)a->memory[m].count * rcvi_cuda_bytes(a->memory[m].type);
            for (int k = 0; k < a->c.members; k++) assert_memory_equal(a->memory[m].at[k], b->memory[m].at[k], bytes);
        }
        close_map_problem(a);
        close_map_problem(b);
    }
    free(a);
    free(b);
    test_context_end(&allocator, context);
}

/* ---- maps with sums over columns, and other maps of one's own ---- */

enum { MOST_ROWS = 3, ROOM = 4 }; /* elements between rows */

/* Views of one number an element, or a row, or transposed. */
typedef struct {
    rcvi_map map;
    rcvi_view operands[64];
    rcvi_instruction instructions[RCVI_MAX_LONG_INSTRUCTIONS];
    unsigned char types[64];
    bool rounded[64], transposed[64];
    double *memory[64]; /* [rows, columns] what the view has before the map */
    char *at[64];
    bool is_alias[64]; /* of another view's memory */
    rcvi_cuda_type real;
    int64_t rows, columns, row;
} own_map;

typedef enum { EACH, ONCE, TRANSPOSED } own_view;

static own_map *open_map(rcvi_cuda_type real, int64_t rows, int64_t columns) {
    own_map *m = calloc(1, sizeof *m);
    assert_non_null(m);
    m->real = real;
    m->rows = rows;
    m->columns = columns;
    m->row = columns + ROOM;
    m->map = (rcvi_map){.operands = m->operands, .instructions = m->instructions};
    return m;
}

static int add_view(own_map *m, own_view kind) {
    int v = m->map.operand_count++;
    assert_true(v < 64);
    m->types[v] = (unsigned char)m->real;
    m->transposed[v] = kind == TRANSPOSED;
    m->operands[v] = (rcvi_view){.buffer = v, .row = kind == ONCE ? 3 : m->row, .column = kind != ONCE};
    m->memory[v] = calloc((size_t)(m->rows * m->columns), sizeof(double));
    m->at[v] = aligned((size_t)((m->rows + 1) * (m->columns + ROOM) * 8));
    for (int64_t e = 0; e < m->rows * m->columns; e++) m->memory[v][e] = NAN;
    return v;
}

/* Where an element of a view lies. A transposed one has a column of rows + 1 after the other. */
static int64_t place_of(const own_map *m, int v, int64_t row, int64_t column) {
    if (m->transposed[v]) return column * (m->rows + 1) + row;
    return row * m->operands[v].row + column * m->operands[v].column;
}

static int add_input(own_map *m, own_view kind, random_source *random) {
    int v = add_view(m, kind);
    for (int64_t r = 0; r < m->rows; r++) {
        for (int64_t c = 0; c < m->columns; c++) {
            double x = rounded(m->real, random_between(random, -1, 2));
            if (kind == ONCE && c > 0) x = m->memory[v][r * m->columns];
            m->memory[v][r * m->columns + c] = x;
            put(m->real, m->at[v], place_of(m, v, r, c), x);
        }
    }
    return v;
}

static rcvi_instruction *add_operation(own_map *m, rcvi_operation operation) {
    rcvi_instruction *i = &m->instructions[m->map.instruction_count++];
    *i = (rcvi_instruction){.operation = operation, .out = RCVI_NONE};
    return i;
}

static int apply(own_map *m, rcvi_operation operation, int a, int b) {
    rcvi_instruction *i = add_operation(m, operation);
    i->source[0] = a;
    i->source[1] = b;
    return m->map.instruction_count - 1;
}

static int apply_view(own_map *m, rcvi_operation operation, int view, int b) {
    int k = apply(m, operation, view, b);
    m->instructions[k].from[0] = RCVI_FROM_VIEW;
    return k;
}

static int apply_number(own_map *m, rcvi_operation operation, int a, double number) {
    int k = apply(m, operation, a, 0);
    m->instructions[k].from[1] = RCVI_FROM_NUMBER;
    m->instructions[k].number[1] = number;
    return k;
}

/* Instruction k overwrites what another view reads. */
static void store_over(own_map *m, int k, int view) {
    int v = m->map.operand_count++;
    assert_true(v < 64 && !m->transposed[view]);
    m->types[v] = m->types[view];
    m->operands[v] = m->operands[view];
    m->memory[v] = m->memory[view];
    m->at[v] = m->at[view];
    m->is_alias[v] = true;
    m->instructions[k].out = v;
}

static void store_to(own_map *m, int k, own_view kind) { m->instructions[k].out = add_view(m, kind); }

/* What every instruction gives, in double: [instructions][columns] of a row. */
static void evaluate_row(own_map *m, int64_t row, double *values) {
    for (int k = 0; k < m->map.instruction_count; k++) {
        const rcvi_instruction *i = &m->instructions[k];
        double sum = 0;
        for (int64_t c = 0; c < m->columns; c++) {
            double x[2] = {0};
            for (int a = 0; a < rcvi_operations[i->operation].arguments; a++)
                x[a] = i->from[a] == RCVI_FROM_VIEW     ? m->memory[i->source[a]][row * m->columns + c]
                       : i->from[a] == RCVI_FROM_NUMBER ? i->number[a]
                                                        : values[(size_t)i->source[a] * (size_t)m->columns + (size_t)c];
            double y = i->operation == RCVI_SUM ? 0 : rcvi_operations[i->operation].evaluate(x[0], x[1]);
            values[k * m->columns + c] = y;
            sum += x[0];
        }
        for (int64_t c = 0; i->operation == RCVI_SUM && c < m->columns; c++) values[k * m->columns + c] = sum;
    }
}

static void check_map(own_map *m, bool is_wide) {
    double *values = calloc((size_t)(m->map.instruction_count * m->columns), sizeof *values);
    double near = m->real == RCVI_F64 ? 1e-11 : 2e-4;
    for (int64_t r = 0; r < m->rows; r++) {
        evaluate_row(m, r, values);
        for (int k = 0; k < m->map.instruction_count; k++) {
            int v = m->instructions[k].out;
            for (int64_t c = 0; v != RCVI_NONE && c < (m->operands[v].column ? m->columns : 1); c++) {
                double want = values[k * m->columns + c], got = get(m->real, m->at[v], place_of(m, v, r, c));
                if (!(fabs(got - want) <= near * (1 + fabs(want))))
                    fail_msg("instruction %d at %d, %d of %d columns (%s) is %g, not %g", k, (int)r, (int)c,
                             (int)m->columns, is_wide ? "wide" : "one by one", got, want);
            }
            /* Nothing after the columns. */
            size_t size = rcvi_cuda_bytes(m->real);
            for (size_t b = 0; v != RCVI_NONE && m->operands[v].column && b < ROOM * size; b++)
                assert_int_equal((unsigned char)m->at[v][(size_t)(r * m->row + m->columns) * size + b], POISON);
        }
    }
    free(values);
}

static rcvi_map_table table_of(rcv_context *context, own_map *m, int widest) {
    rcvi_map_shape shape = {.map = &m->map,
                            .types = m->types,
                            .has_rounded = m->rounded,
                            .transposed = m->transposed,
                            .real = m->real,
                            .narrow = m->real,
                            .vector = widest,
                            .widest = widest,
                            .members = 1};
    rcvi_map_table table;
    check_ok(rcvi_map_table_new(context, &shape, &table));
    return table;
}

/* Runs the map; `wide` where columns allow it. */
static rcvi_map_table run_map(rcv_context *context, own_map *m, bool is_wide) {
    uint64_t words[RCVI_INTERPRET_WORDS];
    int count = 0, widest = is_wide && m->columns % 4 == 0 ? 4 : 1;
    rcvi_map_table table = table_of(context, m, widest);
    words[count++] = (uint64_t)m->columns;
    for (int v = 0; v < m->map.operand_count; v++)
        words[count++] = (uint64_t)(m->transposed[v] ? m->rows + 1 : m->operands[v].row);
    words[count++] = (uint64_t)m->rows;
    for (int v = 0; v < m->map.operand_count; v++) words[count++] = (uint64_t)(uintptr_t)m->at[v];
    launch(&table, words, m->columns, m->rows, 1, 1);
    check_map(m, is_wide);
    return table;
}

static void close_map(own_map *m) {
    for (int v = 0; v < m->map.operand_count; v++) {
        if (m->is_alias[v]) continue;
        free(m->memory[v]);
        free(m->at[v]);
    }
    free(m);
}

/* Normalisation: two sums, one after the other; what is stored of them; a row's own number, which is overwritten; many sums that are ready at
 * once. */
static own_map *make_sums(rcvi_cuda_type real, int64_t rows, int64_t columns, int many) {
    random_source random = {(uint64_t)columns};
    own_map *m = open_map(real, rows, columns);
    int x = add_input(m, EACH, &random), y = add_input(m, EACH, &random), scale = add_input(m, ONCE, &random),
        turned = add_input(m, TRANSPOSED, &random);
    int sum = apply_view(m, RCVI_SUM, x, 0), mean = apply_number(m, RCVI_MULTIPLY, sum, 1.0 / (double)columns);
    int centred = apply(m, RCVI_SUBTRACT, x, mean);
    m->instructions[centred].from[0] = RCVI_FROM_VIEW;
    int squares = apply(m, RCVI_MULTIPLY, centred, centred), variance = apply(m, RCVI_SUM, squares, 0);
    int width = apply(m, RCVI_SQRT, apply_number(m, RCVI_ADD, variance, 1e-3), 0);
    int out = apply(m, RCVI_DIVIDE, centred, width);
    int scaled = apply(m, RCVI_MULTIPLY, out, scale);
    m->instructions[scaled].from[1] = RCVI_FROM_VIEW;
    store_to(m, sum, ONCE);
    store_over(m, width, scale);
    store_to(m, scaled, EACH);
    int total = apply_view(m, RCVI_ABS, turned, 0);
    for (int n = 0; n < many; n++) {
        int term = apply_number(m, RCVI_MULTIPLY, apply_view(m, RCVI_TANH, n % 2 ? x : y, 0), 0.125 * n);
        total = apply(m, RCVI_ADD, total, apply(m, RCVI_SUM, term, 0));
    }
    int ones = apply_number(m, RCVI_SUM, 0, 0);
    m->instructions[ones].from[0] = RCVI_FROM_NUMBER;
    m->instructions[ones].number[0] = 1;
    store_to(m, apply(m, RCVI_DIVIDE, total, ones), EACH);
    int unused = apply_view(m, RCVI_SUM, y, 0); /* nothing reads it */
    (void)unused;
    return m;
}

static void test_sums(void **state) {
    (void)state;
    if (!run) skip();
    static const int64_t widths[] = {1, 5, 32, 131, 600, 1024, 2500};
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    for (size_t i = 0; i < 2 * sizeof widths / sizeof *widths; i++) {
        for (int many = i % 4 < 2 ? 40 : 0; many <= 40; many += 20) {
            rcvi_cuda_type real = i % 2 ? RCVI_F64 : RCVI_F32;
            own_map *a = make_sums(real, 1 + (int64_t)i % MOST_ROWS, widths[i / 2], many);
            own_map *b = make_sums(real, 1 + (int64_t)i % MOST_ROWS, widths[i / 2], many);
            rcvi_map_table wide = run_map(context, a, true), narrow = run_map(context, b, false);
            assert_true(wide.has_sums);
            assert_int_equal(wide.head.sum_count, 3 + many);
            assert_int_equal(wide.head.phase_count, 3 + (many == 40)); /* 16 sums at once */
            for (int v = 0; v < a->map.operand_count; v++) {           /* the same bits */
                size_t bytes = (size_t)((a->rows + 1) * (a->columns + ROOM) * 8);
                assert_memory_equal(a->at[v], b->at[v], bytes);
            }
            rcvi_free(context, wide.table);
            rcvi_free(context, narrow.table);
            close_map(a);
            close_map(b);
        }
    }
    test_context_end(&allocator, context);
}

/* Values that all live to the end: slots for them leave room for smaller blocks only, at last of few threads. */
static void test_many_values(void **state) {
    (void)state;
    if (!run) skip();
    static const int counts[] = {3, 30, 60, 120, 230};
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    int before_this = RCVI_INTERPRET_THREADS + 1;
    for (size_t i = 0; i < 2 * sizeof counts / sizeof *counts; i++) {
        random_source random = {i};
        own_map *m = open_map(i % 2 ? RCVI_F64 : RCVI_F32, 5, 37);
        int x = add_input(m, EACH, &random), count = counts[i / 2], first = 0;
        for (int k = 0; k < count; k++) {
            apply_view(m, RCVI_ADD, x, 0);
            m->instructions[k].from[1] = RCVI_FROM_NUMBER;
            m->instructions[k].number[1] = k * 0.001;
        }
        for (int k = count; k-- > 0;) first = apply(m, RCVI_MAX, k == count - 1 ? k : first, k);
        store_to(m, first, EACH);
        rcvi_map_table table = run_map(context, m, false);
        assert_in_range(table.head.slot_count, count, count + 2);
        int threads = rcvi_map_table_launch(&table, 4000, 500, 1).threads;
        if (i % 2 == 0) assert_true(threads < before_this || threads == 128);
        if (i % 2 == 0) before_this = threads;
        rcvi_free(context, table.table);
        close_map(m);
    }
    assert_true(before_this <= 8);
    test_context_end(&allocator, context);
}

/* Many views that are used late: loaded all at once they would leave room for small blocks only, so each is loaded when it is used. */
static void test_late_loads(void **state) {
    (void)state;
    if (!run) skip();
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    random_source random = {5};
    own_map *m = open_map(RCVI_F32, 5, 40);
    int sum = apply_view(m, RCVI_TANH, add_input(m, EACH, &random), 0);
    for (int k = 0; k < 50; k++) {
        sum = apply(m, RCVI_ADD, sum, add_input(m, k % 10 == 9 ? TRANSPOSED : EACH, &random));
        m->instructions[sum].from[1] = RCVI_FROM_VIEW;
    }
    store_over(m, 3, m->instructions[sum - 1].source[1]); /* which is read last but one */
    store_over(m, 9, m->instructions[5].source[1]);
    store_to(m, sum, EACH);
    rcvi_map_table table = run_map(context, m, true);
    assert_in_range(table.head.slot_count, 2, 4);
    assert_int_equal(rcvi_map_table_launch(&table, 4000, 500, 1).threads, RCVI_INTERPRET_THREADS);
    rcvi_free(context, table.table);
    close_map(m);
    test_context_end(&allocator, context);
}

/* ---- maps of programs: views of one buffer, states that are overwritten, values of size one ---- */

/* A program's buffers as the kernel reads them, and as they should be afterwards. */
typedef struct {
    const rcvi_program *program;
    rcvi_cuda_type real;
    char **at;       /* [buffers] */
    double **values; /* [buffers] */
    int64_t inner, time;
} buffers;

static void fill_buffers(buffers *b, random_source *random) {
    for (size_t i = 0; i < b->program->buffer_count; i++) {
        for (int64_t e = 0; e < b->program->buffers[i].count; e++) {
            b->values[i][e] = rounded(b->real, random_between(random, 0.1, 1));
            put(b->real, b->at[i], e, b->values[i][e]);
        }
    }
}

static void open_buffers(buffers *b, const rcvi_program *program, rcvi_cuda_type real) {
    *b = (buffers){.program = program, .real = real};
    b->at = calloc(program->buffer_count, sizeof *b->at);
    b->values = calloc(program->buffer_count, sizeof *b->values);
    assert_true(b->at && b->values);
    for (size_t i = 0; i < program->buffer_count; i++) {
        size_t count = (size_t)program->buffers[i].count + 1;
        b->at[i] = aligned(count * 8);
        b->values[i] = calloc(count, sizeof **b->values);
        assert_non_null(b->values[i]);
    }
}

static void close_buffers(buffers *b) {
    for (size_t i = 0; i < b->program->buffer_count; i++) {
        free(b->at[i]);
        free(b->values[i]);
    }
    free(b->at);
    free(b->values);
}

static int64_t element_of(const buffers *b, const rcvi_view *v, int64_t row, int64_t column) {
    return rcvi_view_start(v, b->inner, 0, b->time) + row * v->row + column * v->column;
}

/* The first iteration in which the step is due, in the loop around it. */
static bool find_due(buffers *b, const rcvi_step *step) {
    int64_t span;
    for (b->inner = 0; b->inner < 12; b->inner++) {
        if (rcvi_step_is_due(b->program, step, b->inner, 0, &b->time, &span)) return true;
    }
    return false;
}

/* What the map should leave in the buffers: everything is read before anything is written. */
static void evaluate_map(const buffers *b, const rcvi_step *step) {
    const rcvi_map *map = step->map;
    size_t columns = (size_t)step->columns, rows = (size_t)step->rows, count = (size_t)map->instruction_count;
    double *values = calloc(rows * count * columns, sizeof *values);
    assert_non_null(values);
    for (size_t r = 0; r < rows; r++) {
        double *own = values + r * count * columns;
        for (size_t k = 0; k < count; k++) {
            const rcvi_instruction *i = &map->instructions[k];
            double sum = 0;
            for (size_t c = 0; c < columns; c++) {
                double x[3] = {0};
                for (int a = 0; a < rcvi_operations[i->operation].arguments; a++) {
                    const rcvi_view *v = i->from[a] == RCVI_FROM_VIEW ? &map->operands[i->source[a]] : NULL;
                    x[a] = v ? b->values[v->buffer][element_of(b, v, (int64_t)r, (int64_t)c)]
                           : i->from[a] == RCVI_FROM_NUMBER ? i->number[a]
                                                            : own[(size_t)i->source[a] * columns + c];
                }
                own[k * columns + c] = i->operation == RCVI_SUM ? 0
                                       : i->operation == RCVI_SELECT
                                           ? x[x[0] != 0 ? 1 : 2]
                                           : rcvi_operations[i->operation].evaluate(x[0], x[1]);
                sum += x[0];
            }
            for (size_t c = 0; i->operation == RCVI_SUM && c < columns; c++) own[k * columns + c] = sum;
        }
    }
    for (size_t r = 0; r < rows; r++) {
        for (size_t k = 0; k < count; k++) {
            for (int n = -1; n < map->store_count; n++) {
                int out = n < 0                             ? map->instructions[k].out
                          : map->stores[n].source == (int)k ? map->stores[n].out
                                                            : RCVI_NONE;
                for (size_t c = 0; out != RCVI_NONE && c < (map->operands[out].column ? columns : 1); c++) {
                    const rcvi_view *v = &map->operands[out];
                    b->values[v->buffer][element_of(b, v, (int64_t)r, (int64_t)c)] =
                        values[(r * count + k) * columns + c];
                }
            }
        }
    }
    free(values);
}

static void check_buffers(const buffers *b, size_t step) {
    double near = b->real == RCVI_F64 ? 1e-10 : 1e-3;
    for (size_t i = 0; i < b->program->buffer_count; i++) {
        for (int64_t e = 0; e < b->program->buffers[i].count; e++) {
            double want = b->values[i][e], got = get(b->real, b->at[i], e);
            bool good = isnan(want) ? isnan(got) : fabs(got - want) <= near * (1 + fabs(want));
            if (!good)
                fail_msg("step %d, %s[%d] is %g, not %g", (int)step, b->program->buffers[i].name, (int)e, got, want);
        }
    }
}

static bool allows_wide(const rcvi_step *step, int64_t each) {
    bool wide = step->columns % each == 0;
    for (int v = 0; v < step->map->operand_count; v++)
        wide &= step->map->operands[v].column == 0 || rcvi_cuda_is_multiple(&step->map->operands[v], each);
    return wide;
}

static bool run_step(rcv_context *context, buffers *b, size_t index) {
    const rcvi_step *step = &b->program->steps[index];
    const rcvi_map *map = step->map;
    unsigned char types[RCVI_MAX_OPERANDS];
    static const bool has_rounded[RCVI_MAX_OPERANDS];
    uint64_t words[RCVI_INTERPRET_WORDS];
    int count = 0;
    rcvi_map_table table;
    memset(types, b->real, sizeof types);
    rcvi_map_shape shape = {.map = map,
                            .types = types,
                            .has_rounded = has_rounded,
                            .real = b->real,
                            .narrow = b->real,
                            .widest = allows_wide(step, 4) ? 4 : 1,
                            .members = 1};
    check_ok(rcvi_map_table_new(context, &shape, &table));
    words[count++] = (uint64_t)step->columns;
    for (int v = 0; v < map->operand_count; v++) words[count++] = (uint64_t)map->operands[v].row;
    words[count++] = (uint64_t)step->rows;
    for (int v = 0; v < map->operand_count; v++) {
        const rcvi_view *view = &map->operands[v];
        words[count++] =
            (uint64_t)(uintptr_t)(b->at[view->buffer] + (size_t)element_of(b, view, 0, 0) * rcvi_cuda_bytes(b->real));
    }
    assert_true(count <= RCVI_INTERPRET_WORDS);
    evaluate_map(b, step);
    launch(&table, words, step->columns, step->rows, 1, 1);
    check_buffers(b, index);
    rcvi_free(context, table.table);
    return table.has_sums;
}

/* Every map of every program of a GPU that compiles nothing. */
static void test_programs(void **state) {
    (void)state;
    static const char *const plans[] = {"naive+interpret", "combine+fuse+interpret",
                                        "combine(steps=all)+fuse+interpret", "combine+fuse+wavefront+merge+interpret"};
    enum { PLANS = sizeof plans / sizeof *plans };
    size_t taken = 0, maps = 0, sums = 0, index = 0;
    if (!run) skip();
    for (int i = 0; i < GPU_CONFIGS * PLANS * 2; i++) {
        problem p;
        rcvi_program program;
        buffers b;
        if (!sample_takes(index++)) continue;
        random_source random = {(uint64_t)i};
        open_problem(&p, &gpu_configs[i / (2 * PLANS)], 1);
        if (write_program(&p, i % 2, plans[i / 2 % PLANS], &program)) {
            open_buffers(&b, &program, i % 3 ? RCVI_F32 : RCVI_F64);
            for (size_t k = 0; k < program.step_count; k++) {
                if (program.steps[k].kind != RCVI_STEP_MAP || !find_due(&b, &program.steps[k])) continue;
                assert_int_equal(program.steps[k].map->product_count, 0);
                fill_buffers(&b, &random);
                sums += run_step(p.context, &b, k);
                maps++;
            }
            close_buffers(&b);
            rcvi_program_free(&program);
            taken++;
        }
        close_problem(&p);
    }
    print_message("%zu maps of %zu programs, %zu of them with sums\n", maps, taken, sums);
    assert_true(maps > sample_least(1000) && (sums > 3 || sample_is_partial()));
}

/* ---- engines ---- */

static bool is_open(const char *library_name) {
    char line[600];
    bool found = false;
    FILE *file = fopen("/proc/self/maps", "r");
    while (file && fgets(line, sizeof line, file)) found |= strstr(line, library_name) != NULL;
    if (file) fclose(file);
    return found;
}

static void open_engine(rcvi_engine *e, const rcvi_program *program) {
    *e = (rcvi_engine){.program = program, .context = program->pool.context, .processors = 132};
    rcvi_pool_init(&e->pool, e->context);
    check_ok(rcvi_cuda_find_layout(e));
    for (size_t i = 0; i < program->step_count; i++) {
        if (program->steps[i].kind == RCVI_STEP_MAP)
            check_ok(rcvi_cuda_prepare_map(e, &program->steps[i], &e->ready[i]));
    }
    check_ok(rcvi_cuda_order(e));
}

/* Steps that share a kernel are alike in all that its table does not say: operands, rounded copies, types. */
static size_t check_engine(const rcvi_engine *e) {
    size_t maps = 0;
    for (size_t i = 0; i < e->program->step_count; i++) {
        const rcvi_step *step = &e->program->steps[i];
        if (step->kind != RCVI_STEP_MAP) continue;
        const rcvi_cuda_kernel *kernel = &e->kernels[e->ready[i].kernel];
        assert_null(kernel->source);
        assert_non_null(kernel->table.table);
        assert_int_equal(kernel->table.head.view_count, e->ready[i].view_count);
        assert_int_equal(kernel->table.head.view_count, step->map->operand_count);
        assert_int_equal(kernel->table.head.is_double, e->real == RCVI_F64);
        assert_int_equal(kernel->table.has_sums, rcvi_map_has_sums(step->map));
        assert_true(rcvi_map_words(&kernel->shape) <= RCVI_INTERPRET_WORDS);
        maps++;
    }
    for (size_t k = 0; k < e->kernel_count; k++) {
        for (size_t n = 0; n < k; n++)
            assert_true(e->kernels[k].shape.members != e->kernels[n].shape.members ||
                        !rcvi_map_tables_equal(&e->kernels[k].table, &e->kernels[n].table));
    }
    return maps;
}

static size_t most_members(const rcvi_engine *e) {
    size_t most = 0;
    for (size_t g = 0; g < e->group_count; g++) {
        bool map = e->program->steps[e->order[e->groups[g].first]].kind == RCVI_STEP_MAP;
        if (map && (size_t)e->groups[g].count > most) most = (size_t)e->groups[g].count;
    }
    return most;
}

static void close_engine(rcvi_engine *e) {
    for (size_t k = 0; k < e->kernel_count; k++) rcvi_free(e->context, e->kernels[k].table.table);
    rcvi_free(e->context, e->kernels);
    rcvi_free(e->context, e->groups);
    rcvi_pool_free(&e->pool);
}

/* An engine has a table for each map, layers share them and, merged, launches; what would be compiled is nothing, so that NVRTC is not even opened. */
static void test_engines(void **state) {
    (void)state;
    static const rcv_dtype dtypes[] = {RCV_FLOAT32, RCV_BFLOAT16, RCV_FLOAT64, RCV_FLOAT16, RCV_TFLOAT32};
    static const char *const plans[] = {"naive+interpret", "combine+fuse+wavefront+merge+interpret",
                                        "combine(steps=all)+fuse+transpose+interpret+graph"};
    size_t maps = 0, kernels = 0, members = 0, index = 0;
    for (int i = 0; i < GPU_CONFIGS * 3 * 5 * 2; i++) {
        problem p;
        rcvi_program program;
        rcvi_engine e, *list = &e;
        if (!sample_takes(index++)) continue;
        open_problem(&p, &gpu_configs[i / 30], 1);
        rcv_plan_options options = options_of(&p, dtypes[i / 2 % 5], i % 2, plans[i / 10 % 3]);
        if (write_with(p.net, &options, &program)) {
            open_engine(&e, &program);
            maps += check_engine(&e);
            kernels += e.kernel_count;
            if (most_members(&e) > members) members = most_members(&e);
            assert_true(rcvi_cuda_engines_compile(&list, 1, NULL, NULL));
            assert_null(e.compiled);
            close_engine(&e);
            rcvi_program_free(&program);
        }
        close_problem(&p);
    }
    print_message("%zu maps, %zu kernels, up to %zu members\n", maps, kernels, members);
    assert_true(maps > 2 * kernels && (members >= 3 || sample_is_partial()));
    assert_false(is_open("libnvrtc"));
}

/* ---- which maps share a table, launches, refusals, memory ---- */

static void test_equality(void **state) {
    (void)state;
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    own_map *a = make_sums(RCVI_F32, 2, 8, 2), *b = make_sums(RCVI_F32, 3, 12, 2);
    rcvi_map_table x = table_of(context, a, 4), y = table_of(context, b, 4), z = table_of(context, b, 1);
    assert_false(rcvi_map_tables_equal(&x, &y)); /* 1 / columns is a number of the map */
    assert_false(rcvi_map_tables_equal(&y, &z));
    rcvi_free(context, y.table);
    b->instructions[1].number[1] = a->instructions[1].number[1];
    y = table_of(context, b, 4);
    assert_true(rcvi_map_tables_equal(&x, &y)); /* sizes and addresses are arguments */
    rcvi_free(context, y.table);
    b->types[0] = RCVI_F64;
    y = table_of(context, b, 4);
    assert_false(rcvi_map_tables_equal(&x, &y));
    rcvi_free(context, x.table);
    rcvi_free(context, y.table);
    rcvi_free(context, z.table);
    close_map(a);
    close_map(b);
    test_context_end(&allocator, context);
}

/* The order of sums depends on the columns: a block with sums has as many threads whatever the rows. Without sums blocks become smaller until
 * there are enough of them. */
static void test_launches(void **state) {
    (void)state;
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    random_source random = {1};
    own_map *m = make_sums(RCVI_F32, 2, 8, 2), *plain = open_map(RCVI_F32, 2, 8);
    store_to(plain, apply_view(plain, RCVI_TANH, add_input(plain, EACH, &random), 0), EACH);
    rcvi_map_table sums = table_of(context, m, 4), none = table_of(context, plain, 4);
    for (int64_t rows = 1; rows < 5000; rows *= 7) {
        assert_int_equal(rcvi_map_table_launch(&sums, 512, rows, 132).threads, 128);
        assert_int_equal(rcvi_map_table_launch(&sums, 20, rows, 132).threads, 32);
    }
    assert_int_equal(rcvi_map_table_launch(&sums, 1024, 1, 1).threads, 256);
    assert_int_equal(rcvi_map_table_launch(&none, 512, 64, 132).threads, 32);
    assert_int_equal(rcvi_map_table_launch(&none, 512, 6400, 132).threads, 128);
    assert_int_equal(rcvi_map_table_launch(&none, 512, 64, 132).lanes, 32);
    assert_int_equal(rcvi_map_table_launch(&none, 9, 64, 1).lanes, 4);
    assert_int_equal(rcvi_map_table_launch(&none, 1, 64, 1).lanes, 1);
    rcvi_free(context, sums.table);
    rcvi_free(context, none.table);
    close_map(m);
    close_map(plain);
    test_context_end(&allocator, context);
}

static void test_refusals(void **state) {
    (void)state;
    test_allocator allocator;
    rcv_context *context = test_context(&allocator);
    map_problem *p = malloc(sizeof *p);
    static const map_config c = {RCVI_F32, RCVI_F32, 4, 1, 2, 3, 8};
    rcvi_map_table table;
    open_map_problem(p, &c, 1);
    rcvi_map_shape shape = shape_of(p, 4);
    check_fails(rcvi_map_table_new(context, &shape, &table), RCV_UNSUPPORTED, "no products");
    assert_null(table.table);
    close_map_problem(p);
    free(p);
    own_map *m = make_sums(RCVI_F32, 2, 8, 20);
    shape = (rcvi_map_shape){.map = &m->map, .types = m->types, .has_rounded = m->rounded, .members = 1};
    for (size_t k = 1;; k++) { /* every allocation may fail */
        allocator.fail_at = k;
        rcv_status status = rcvi_map_table_new(context, &shape, &table);
        allocator.fail_at = 0;
        if (!status) break;
        assert_int_equal(status, RCV_NO_MEMORY);
        assert_null(table.table);
        assert_true(k < 1000);
    }
    rcvi_free(context, table.table);
    close_map(m);
    test_context_end(&allocator, context);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_maps),       cmocka_unit_test(test_bits),     cmocka_unit_test(test_sums),
        cmocka_unit_test(test_programs),   cmocka_unit_test(test_engines),  cmocka_unit_test(test_many_values),
        cmocka_unit_test(test_late_loads), cmocka_unit_test(test_equality), cmocka_unit_test(test_launches),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, compile_interpreter, drop_interpreter);
}
