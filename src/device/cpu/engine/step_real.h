/* The steps of a program in portable C: the reference code for all kinds of steps. Included once per float type, with REAL,
 * MATH, GEMM and RUN_STEP defined. Each function computes the member's rows and columns of its step. */
#include "base/random.h"
#include "device/cpu/engine/engine.h"
#include "device/cpu/gemm/gemm.h"
#include "device/cpu/kernels/float16.h"

#include <math.h>
#include <string.h>

static REAL *real(const rcvi_step_call *c, const rcvi_view *view) { return rcvi_locate_view(c, view); }

/* An array of REAL (its type is that of REAL), or of another type: activations, or an array that the caller declared so. base is NULL where
 * the caller left it out. */
typedef struct {
    char *base;
    rcvi_number_type type;
} array;

static const rcvi_number_type own_type = sizeof(REAL) == sizeof(double) ? RCVI_NUMBER_DOUBLE : RCVI_NUMBER_FLOAT;

static array locate(const rcvi_step_call *c, const rcvi_view *view) {
    char *base = rcvi_locate_view(c, view);
    return (array){base, base ? rcvi_view_type(c->engine, view) : own_type};
}

/* Where row r of a view lies, in elements. */
static int64_t row_start(const rcvi_step_call *c, const rcvi_view *view, int64_t r) {
    if (!c->engine->program->buffers[view->buffer].is_batch_major) return r * view->row;
    const rcvi_sizes *sizes = &c->binding->program->sizes;
    return (r % sizes->batch * sizes->steps + r / sizes->batch) * view->row;
}

/* `n` elements from element i on, as REAL. */
static void load_many(array from, int64_t i, int64_t n, REAL *restrict to) {
    const uint16_t *half = (const uint16_t *)(void *)from.base + i;
    const float *single = (const float *)(void *)from.base + i;
    const double *wide = (const double *)(void *)from.base + i;
    switch (from.type) {
    case RCVI_NUMBER_FLOAT:
        for (int64_t k = 0; k < n; k++) to[k] = (REAL)single[k];
        break;
    case RCVI_NUMBER_DOUBLE:
        for (int64_t k = 0; k < n; k++) to[k] = (REAL)wide[k];
        break;
    case RCVI_NUMBER_BFLOAT16:
        for (int64_t k = 0; k < n; k++) to[k] = (REAL)float_of_bits((uint32_t)half[k] << 16);
        break;
    case RCVI_NUMBER_FLOAT16:
        for (int64_t k = 0; k < n; k++) to[k] = (REAL)widen_float16(half[k]);
        break;
    }
}

/* A double that is to be rounded to 16 bits, as a float: where it has more bits than a float, cut off, with the last bit set. Then the
 * second rounding is that of the double. */
static inline float float_to_round(REAL value) {
    float single = (float)value;
    uint32_t bits = bits_of_float(single);
    bool exact = (REAL)single == value || (bits & 0x7fffffff) >= 0x7f800000;
    if (sizeof(REAL) == sizeof(float) || exact || (bits & 1)) return single;
    return float_of_bits(MATH(fabs)((REAL)single) < MATH(fabs)(value) ? bits + 1 : bits - 1);
}

static void store_many(array to, int64_t i, int64_t n, const REAL *restrict from) {
    uint16_t *half = (uint16_t *)(void *)to.base + i;
    float *single = (float *)(void *)to.base + i;
    double *wide = (double *)(void *)to.base + i;
    switch (to.type) {
    case RCVI_NUMBER_FLOAT:
        for (int64_t k = 0; k < n; k++) single[k] = (float)from[k];
        break;
    case RCVI_NUMBER_DOUBLE:
        for (int64_t k = 0; k < n; k++) wide[k] = (double)from[k];
        break;
    case RCVI_NUMBER_BFLOAT16:
        for (int64_t k = 0; k < n; k++) half[k] = round_bfloat16(float_to_round(from[k]));
        break;
    case RCVI_NUMBER_FLOAT16:
        for (int64_t k = 0; k < n; k++) half[k] = round_float16(float_to_round(from[k]));
        break;
    }
}

static inline REAL load(array from, int64_t i) {
    REAL value = 0;
    if (from.type == own_type) return ((const REAL *)(void *)from.base)[i];
    load_many(from, i, 1, &value);
    return value;
}
static inline void store(array to, int64_t i, REAL value) {
    if (to.type == own_type)
        ((REAL *)(void *)to.base)[i] = value;
    else
        store_many(to, i, 1, &value);
}

/* ---- maps ---- */

enum { BLOCK = 128 }; /* elements of a block: registers of a map stay in L1; not tuned, this is the reference */

/* Defines a loop over a block for an operation of one or two operands. */
#define ONE(name, expression)                                                                                          \
    static void name(int64_t n, const REAL *a, const REAL *b, REAL *out) {                                             \
        (void)b;                                                                                                       \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            REAL x = a[i];                                                                                             \
            out[i] = expression;                                                                                       \
        }                                                                                                              \
    }
#define TWO(name, expression)                                                                                          \
    static void name(int64_t n, const REAL *a, const REAL *b, REAL *out) {                                             \
        for (int64_t i = 0; i < n; i++) {                                                                              \
            REAL x = a[i], y = b[i];                                                                                   \
            out[i] = expression;                                                                                       \
        }                                                                                                              \
    }

TWO(add, x + y)
TWO(subtract, x - y)
TWO(multiply, x *y)
TWO(divide, x / y)
TWO(minimum, x < y ? x : y)
TWO(maximum, x > y ? x : y)
ONE(negate, -x)
ONE(sigmoid, 1 / (1 + MATH(exp)(-x)))
ONE(tangent, MATH(tanh)(x))
ONE(relu, x > 0 ? x : 0)
ONE(exponential, MATH(exp)(x))
ONE(logarithm, MATH(log)(x))
ONE(softplus, x > 0 ? x + MATH(log1p)(MATH(exp)(-x)) : MATH(log1p)(MATH(exp)(x)))
ONE(absolute, MATH(fabs)(x))
ONE(root, MATH(sqrt)(x))
ONE(unit_step, x > 0)
ONE(sign, (REAL)((x > 0) - (x < 0)))

static void (*const kernels[RCVI_OPERATION_COUNT])(int64_t, const REAL *, const REAL *, REAL *) = {
    [RCVI_ADD] = add,         [RCVI_SUBTRACT] = subtract, [RCVI_MULTIPLY] = multiply, [RCVI_DIVIDE] = divide,
    [RCVI_NEGATE] = negate,   [RCVI_SIGMOID] = sigmoid,   [RCVI_TANH] = tangent,      [RCVI_RELU] = relu,
    [RCVI_EXP] = exponential, [RCVI_LOG] = logarithm,     [RCVI_SOFTPLUS] = softplus, [RCVI_ABS] = absolute,
    [RCVI_SQRT] = root,       [RCVI_MIN] = minimum,       [RCVI_MAX] = maximum,       [RCVI_STEP] = unit_step,
    [RCVI_SIGN] = sign,
};

/* An operand for a block of n columns: its address, or `scratch` filled with a constant or a broadcast column. */
static const REAL *operand(const rcvi_instruction *instruction, int a, const rcvi_map *map, REAL *const *rows,
                           REAL registers[][BLOCK], int64_t column, int64_t n, REAL *scratch) {
    REAL value = (REAL)instruction->number[a];
    if (instruction->from[a] == RCVI_FROM_REGISTER) return registers[instruction->source[a]];
    if (instruction->from[a] == RCVI_FROM_VIEW) {
        if (map->operands[instruction->source[a]].column) return rows[instruction->source[a]] + column;
        value = *rows[instruction->source[a]];
    }
    for (int64_t i = 0; i < n; i++) scratch[i] = value;
    return scratch;
}

static void map_block(const rcvi_map *map, REAL *const *rows, int64_t column, int64_t n, REAL registers[][BLOCK]) {
    REAL scratch[2][BLOCK];
    for (int k = 0; k < map->instruction_count; k++) {
        const rcvi_instruction *instruction = &map->instructions[k];
        bool two = rcvi_operations[instruction->operation].arguments == 2;
        const REAL *a = operand(instruction, 0, map, rows, registers, column, n, scratch[0]);
        const REAL *b = two ? operand(instruction, 1, map, rows, registers, column, n, scratch[1]) : NULL;
        bool last = k + 1 == map->instruction_count && instruction->out != RCVI_NONE; /* no register needed */
        REAL *to = last ? rows[instruction->out] + column : registers[k];
        kernels[instruction->operation](n, a, b, to);
        if (!last && instruction->out != RCVI_NONE) memcpy(rows[instruction->out] + column, to, (size_t)n * sizeof *to);
    }
}

static void run_map(const rcvi_step_call *c) {
    REAL registers[RCVI_MAX_INSTRUCTIONS][BLOCK];
    const rcvi_map *map = c->step->map;
    REAL *rows[RCVI_MAX_OPERANDS];
    int64_t row_count = c->row_end - c->row, columns = c->step->columns;
    bool contiguous = true;
    for (int i = 0; i < map->operand_count; i++) {
        rows[i] = real(c, &map->operands[i]);
        if (!rows[i]) return;
        rows[i] += c->row * map->operands[i].row;
        contiguous &= map->operands[i].row == columns && map->operands[i].column == 1;
    }
    if (contiguous) { /* one long row */
        columns *= row_count;
        row_count = 1;
    }
    for (int64_t r = 0; r < row_count; r++) {
        for (int64_t column = 0; column < columns; column += BLOCK) {
            int64_t left = columns - column;
            map_block(map, rows, column, left < BLOCK ? left : BLOCK, registers);
        }
        for (int i = 0; i < map->operand_count; i++) rows[i] += map->operands[i].row;
    }
}

/* ---- all other steps ---- */

static void run_gemm(const rcvi_step_call *c, REAL *out) {
    const rcvi_step *s = c->step;
    const REAL *a = real(c, &s->a) + c->row * (s->gemm.transpose_a ? 1 : s->a.row), *b = real(c, &s->b);
    const REAL *start = s->gemm.start ? real(c, s->gemm.start) : NULL;
    for (int64_t r = c->row; start && r < c->row_end; r++)
        memcpy(out + r * s->out.row, start, (size_t)s->columns * sizeof(REAL));
    for (int64_t i = 0; i < s->gemm.batch; i++) {
        GEMM(s->gemm.transpose_a, s->gemm.transpose_b, c->row_end - c->row, s->columns, c->depth,
             a + i * s->gemm.step_a, s->a.row, b + i * s->gemm.step_b, s->b.row, s->accumulate || start,
             out + i * s->gemm.step_out + c->row * s->out.row, s->out.row);
    }
}

/* Sums over rows, for a block of columns at a time; each sum in the order of the rows. */
static void reduce_rows(const rcvi_step_call *c, array a, REAL *out) {
    const rcvi_step *s = c->step;
    REAL sums[BLOCK];
    for (int64_t column = c->column; column < c->column_end; column += BLOCK) {
        int64_t n = c->column_end - column < BLOCK ? c->column_end - column : BLOCK;
        for (int64_t i = 0; i < n; i++) sums[i] = 0;
        for (int64_t r = 0; r < c->rows; r++) {
            for (int64_t i = 0; i < n; i++) sums[i] += load(a, r * s->a.row + (column + i) * s->a.column);
        }
        for (int64_t i = 0; i < n; i++) {
            REAL *to = out + (column + i) * s->out.column;
            *to = s->accumulate ? *to + sums[i] : sums[i];
        }
    }
}

static void run_reduce(const rcvi_step_call *c, REAL *out) {
    const rcvi_step *s = c->step;
    array a = locate(c, &s->a);
    if (s->reduce.over_rows) {
        reduce_rows(c, a, out);
        return;
    }
    for (int64_t r = c->row; r < c->row_end; r++) {
        REAL sum = 0, *to = out + r * s->out.row;
        for (int64_t i = 0; i < s->columns; i++) sum += load(a, r * s->a.row + i * s->a.column);
        *to = s->accumulate ? *to + sum : sum;
    }
}

/* Copies the member's columns of row r of `view`, which begins at `from` (zeros where that is absent), to row r of `out`.
 * The two rows may be the same memory. */
static void copy_row(const rcvi_step_call *c, array out, int64_t r, array from, const rcvi_view *view) {
    int64_t first = c->column, end = c->column_end, to = row_start(c, &c->step->out, r);
    int64_t start = from.base ? row_start(c, view, r) : 0;
    if (from.base && view->column && from.type == out.type) {
        size_t size = rcvi_number_bytes[out.type];
        memmove(out.base + (size_t)(to + first) * size, from.base + (size_t)(start + first) * size,
                (size_t)(end - first) * size);
        return;
    }
    REAL block[BLOCK] = {0}, value = from.base && !view->column ? load(from, start) : 0;
    for (int64_t i = 0; i < BLOCK && (!from.base || !view->column); i++) block[i] = value;
    for (int64_t i = first; i < end; i += BLOCK) {
        int64_t n = end - i < BLOCK ? end - i : BLOCK;
        if (from.base && view->column) load_many(from, start + i, n, block);
        store_many(out, to + i, n, block);
    }
}

/* Adds the member's columns of a row, in the wider of the two types. */
static void add_row(const rcvi_step_call *c, array out, int64_t r, array from) {
    int64_t to = r * c->step->out.row, start = r * c->step->a.row;
    for (int64_t i = c->column; i < c->column_end; i += BLOCK) {
        int64_t n = c->column_end - i < BLOCK ? c->column_end - i : BLOCK;
        REAL there[BLOCK], block[BLOCK];
        load_many(from, start + i, n, block);
        if (out.type == RCVI_NUMBER_DOUBLE) {
            double *wide = (double *)(void *)out.base + to + i;
            for (int64_t k = 0; k < n; k++) wide[k] += (double)block[k];
            continue;
        }
        load_many(out, to + i, n, there);
        for (int64_t k = 0; k < n; k++) there[k] += block[k];
        store_many(out, to + i, n, there);
    }
}

static void run_copy(const rcvi_step_call *c, array out) {
    array a = locate(c, &c->step->a);
    if (c->step->accumulate && !c->binding->overwrite) {
        for (int64_t r = c->row; r < c->row_end; r++) add_row(c, out, r, a);
        return;
    }
    for (int64_t r = c->row; r < c->row_end; r++) copy_row(c, out, r, a, &c->step->a);
}

static void run_fill(const rcvi_step_call *c, array out) {
    for (int64_t r = c->row; r < c->row_end; r++) {
        for (int64_t i = c->column; i < c->column_end; i++)
            store(out, r * c->step->out.row + i, (REAL)c->step->fill.number); /* never batch-major */
    }
}

static void run_select(const rcvi_step_call *c, array out) {
    const rcvi_step *s = c->step;
    array a = locate(c, &s->a), b = locate(c, &s->b);
    const uint8_t *mask = rcvi_locate_view(c, &s->mask);
    for (int64_t r = c->row; r < c->row_end; r++) {
        bool first = mask[r * s->mask.row];
        copy_row(c, out, r, first ? a : b, first ? &s->a : &s->b);
    }
}

/* The mask is a function of (seed, salt, element), so that the backward pass computes the same mask. With a period, row r has
 * the mask of row r % period. Elements are counted in the whole batch of which this one may be a shard. */
static void run_dropout(const rcvi_step_call *c, array out) {
    const rcvi_step *s = c->step;
    array a = locate(c, &s->a);
    double keep = 1 - s->dropout.probability;
    uint64_t seed = c->binding->seed + s->dropout.salt * UINT64_C(0x9e3779b97f4a7c15);
    int64_t period = s->dropout.period, batch = c->binding->program->sizes.batch;
    const rcvi_shard *shard = &c->binding->shard;
    for (int64_t r = c->row; r < c->row_end; r++) {
        int64_t first = (period ? shard->first + r % period : rcvi_shard_row(shard, batch, r)) * s->columns;
        for (int64_t i = 0; i < s->columns; i++) {
            bool kept = rcvi_hash_uniform(seed, (uint64_t)(first + i)) < keep;
            REAL value = kept ? 1 : 0; /* nothing is divided where keep is 0 */
            if (kept && a.base) value = (REAL)(load(a, r * s->a.row + i) / keep);
            store(out, r * s->out.row + i, value);
        }
    }
}

static void run_mask(const rcvi_step_call *c) {
    const rcvi_step *s = c->step;
    uint8_t *out = rcvi_locate_view(c, &s->out);
    bool boundary = s->kind == RCVI_STEP_BOUNDARY;
    const uint8_t *resets = boundary ? rcvi_locate_view(c, &s->a) : NULL;
    const int64_t *lengths = rcvi_locate_view(c, boundary ? &s->b : &s->a);
    bool batch_major = c->engine->program->buffers[s->a.buffer].is_batch_major;
    for (int64_t t = 0; t < s->rows; t++) {
        for (int64_t b = 0; b < s->columns; b++) {
            bool active = !lengths || t < lengths[b];
            int64_t at = batch_major ? b * s->rows + t : t * s->columns + b;
            out[t * s->columns + b] = active && (!boundary || resets[at]);
        }
    }
    if (boundary) memset(out + s->rows * s->columns, 0, (size_t)s->columns);
}

void RUN_STEP(const rcvi_step_call *c) {
    const rcvi_step *step = c->step;
    if (step->kind == RCVI_STEP_MAP) {
        run_map(c);
        return;
    }
    if (step->kind == RCVI_STEP_LIVE || step->kind == RCVI_STEP_BOUNDARY) {
        run_mask(c);
        return;
    }
    array out = locate(c, &step->out);
    if (!out.base) return; /* an output that the caller left out */
    switch (step->kind) {
    case RCVI_STEP_GEMM: run_gemm(c, real(c, &step->out)); break;
    case RCVI_STEP_REDUCE: run_reduce(c, real(c, &step->out)); break;
    case RCVI_STEP_COPY: run_copy(c, out); break;
    case RCVI_STEP_FILL: run_fill(c, out); break;
    case RCVI_STEP_SELECT: run_select(c, out); break;
    case RCVI_STEP_DROPOUT: run_dropout(c, out); break;
    default: break;
    }
}
