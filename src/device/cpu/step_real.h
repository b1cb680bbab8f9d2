/* The steps of a program in portable C. Included once per float type, with REAL, MATH, GEMM and TAKE_STEP defined. */
#include "base/random.h"
#include "device/cpu/cpu.h"
#include "device/cpu/gemm.h"

#include <math.h>
#include <string.h>

typedef struct {
    const rcvi_step *step;
    int64_t iteration;
    const rcvi_binding *binding;
} call;

static void *locate(const call *c, const rcvi_view *view, size_t bytes) {
    if (view->buffer == RCVI_NONE || !c->binding->buffers[view->buffer]) return NULL;
    return (char *)c->binding->buffers[view->buffer] + (size_t)(view->offset + c->iteration * view->stride) * bytes;
}

static REAL *real(const call *c, const rcvi_view *view) { return locate(c, view, sizeof(REAL)); }

/* ---- maps ---- */

enum { BLOCK = 128 };

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

/* An operand for a block of columns: where it lies, or gathered into `scratch` where it is a number or repeats a
 * column. */
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

static void map_rows(const call *c, REAL registers[][BLOCK]) {
    const rcvi_map *map = c->step->map;
    REAL *rows[RCVI_MAX_OPERANDS];
    int64_t row_count = c->step->rows, columns = c->step->columns;
    bool contiguous = true;
    for (int i = 0; i < map->operand_count; i++) {
        rows[i] = real(c, &map->operands[i]);
        if (!rows[i]) return;
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

static void take_fused_map(const call *c) {
    REAL registers[RCVI_MAX_INSTRUCTIONS][BLOCK];
    map_rows(c, registers);
}

static void take_map(const call *c) {
    if (c->step->map->instruction_count > 1) {
        take_fused_map(c);
    } else {
        map_rows(c, NULL);
    }
}

/* ---- the others ---- */

static void take_gemm(const call *c, REAL *out) {
    const rcvi_step *s = c->step;
    const REAL *a = real(c, &s->a), *b = real(c, &s->b);
    for (int64_t i = 0; i < s->gemm.batch; i++) {
        GEMM(s->gemm.transpose_a, s->gemm.transpose_b, s->rows, s->columns, s->gemm.depth, a + i * s->gemm.step_a,
             s->a.row, b + i * s->gemm.step_b, s->b.row, s->accumulate, out + i * s->gemm.step_out, s->out.row);
    }
}

static void take_reduce(const call *c, REAL *out) {
    const rcvi_step *s = c->step;
    const REAL *a = real(c, &s->a);
    int64_t outer = s->reduce.over_rows ? s->columns : s->rows, inner = s->reduce.over_rows ? s->rows : s->columns;
    int64_t move_out = s->reduce.over_rows ? s->out.column : s->out.row;
    int64_t move_outer = s->reduce.over_rows ? s->a.column : s->a.row,
            move_inner = s->reduce.over_rows ? s->a.row : s->a.column;
    for (int64_t i = 0; i < outer; i++) {
        REAL sum = 0;
        for (int64_t j = 0; j < inner; j++) sum += a[i * move_outer + j * move_inner];
        out[i * move_out] = s->accumulate ? out[i * move_out] + sum : sum;
    }
}

/* One row, `from` being NULL for zeros. Rows may coincide. */
static void copy_row(const call *c, REAL *out, const REAL *from, int64_t column) {
    if (!from) {
        for (int64_t i = 0; i < c->step->columns; i++) out[i] = 0;
    } else if (column) {
        memmove(out, from, (size_t)c->step->columns * sizeof *out);
    } else {
        for (int64_t i = 0; i < c->step->columns; i++) out[i] = *from;
    }
}

static void take_copy(const call *c, REAL *out) {
    const REAL *a = real(c, &c->step->a);
    for (int64_t r = 0; r < c->step->rows; r++) {
        copy_row(c, out + r * c->step->out.row, a ? a + r * c->step->a.row : NULL, c->step->a.column);
    }
}

static void take_fill(const call *c, REAL *out) {
    for (int64_t r = 0; r < c->step->rows; r++) {
        for (int64_t i = 0; i < c->step->columns; i++) out[r * c->step->out.row + i] = (REAL)c->step->fill.number;
    }
}

static void take_select(const call *c, REAL *out) {
    const rcvi_step *s = c->step;
    const REAL *a = real(c, &s->a), *b = real(c, &s->b);
    const uint8_t *mask = locate(c, &s->mask, 1);
    for (int64_t r = 0; r < s->rows; r++) {
        const REAL *from = mask[r * s->mask.row] ? (a ? a + r * s->a.row : NULL) : (b ? b + r * s->b.row : NULL);
        copy_row(c, out + r * s->out.row, from, mask[r * s->mask.row] ? s->a.column : s->b.column);
    }
}

/* The mask is a function of (seed, salt, element), so that the backward pass makes the same one. */
static void take_dropout(const call *c, REAL *out) {
    const rcvi_step *s = c->step;
    const REAL *a = real(c, &s->a);
    double keep = 1 - s->dropout.probability;
    uint64_t seed = c->binding->seed + s->dropout.salt * UINT64_C(0x9e3779b97f4a7c15);
    for (int64_t r = 0; r < s->rows; r++) {
        for (int64_t i = 0; i < s->columns; i++) {
            bool kept = rcvi_hash_uniform(seed, (uint64_t)(r * s->columns + i)) < keep;
            out[r * s->out.row + i] = kept ? (REAL)(a[r * s->a.row + i] / keep) : 0;
        }
    }
}

static void take_mask(const call *c) {
    const rcvi_step *s = c->step;
    uint8_t *out = locate(c, &s->out, 1);
    bool boundary = s->kind == RCVI_STEP_BOUNDARY;
    const uint8_t *resets = boundary ? locate(c, &s->a, 1) : NULL;
    const int64_t *lengths = locate(c, boundary ? &s->b : &s->a, sizeof(int64_t));
    for (int64_t t = 0; t < s->rows; t++) {
        for (int64_t b = 0; b < s->columns; b++) {
            bool live = !lengths || t < lengths[b];
            out[t * s->columns + b] = live && (!boundary || resets[t * s->columns + b]);
        }
    }
    if (boundary) memset(out + s->rows * s->columns, 0, (size_t)s->columns);
}

void TAKE_STEP(const rcvi_step *step, int64_t iteration, const rcvi_binding *binding) {
    call c = {step, iteration, binding};
    if (step->when == RCVI_WHEN_OVERWRITING && !binding->overwrite) return;
    if (step->when == RCVI_WHEN_RESTART_IS_INITIAL && !binding->restart_is_initial[step->state]) return;
    if (step->kind == RCVI_STEP_MAP) {
        take_map(&c);
        return;
    }
    if (step->kind == RCVI_STEP_LIVE || step->kind == RCVI_STEP_BOUNDARY) {
        take_mask(&c);
        return;
    }
    REAL *out = real(&c, &step->out);
    if (!out) return; /* an output the caller does not want */
    switch (step->kind) {
    case RCVI_STEP_GEMM: take_gemm(&c, out); break;
    case RCVI_STEP_REDUCE: take_reduce(&c, out); break;
    case RCVI_STEP_COPY: take_copy(&c, out); break;
    case RCVI_STEP_FILL: take_fill(&c, out); break;
    case RCVI_STEP_SELECT: take_select(&c, out); break;
    case RCVI_STEP_DROPOUT: take_dropout(&c, out); break;
    default: break;
    }
}
