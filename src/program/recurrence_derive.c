/* How the next state of a recurrence follows from the state: as scale * state + offset where every operation on the way is affine in it,
 * else by its derivative. Both are instructions after those of the loop. */
#include "program/recurrence_parts.h"

/* What an instruction may read. */
typedef struct {
    int from, source;
    double number;
} value;

typedef struct {
    rcvi_recurrence *r;
    int count;             /* instructions of the loop itself */
    value *scale, *offset; /* [count] of those that depend on the state; or its derivative, in scale */
    bool *needed;          /* [count] by the next state */
    bool failed;           /* not affine */
} deriver;

static value number(double x) { return (value){.from = RCVI_FROM_NUMBER, .number = x}; }
static value in_register(int k) { return (value){.from = RCVI_FROM_REGISTER, .source = k}; }
static bool is_number(value x, double y) { return x.from == RCVI_FROM_NUMBER && x.number == y; }

static value argument(const rcvi_instruction *instruction, int a) {
    return (value){instruction->from[a], instruction->source[a], instruction->number[a]};
}

static value emit(deriver *d, rcvi_operation operation, value a, value b, value c) {
    const value values[3] = {a, b, c};
    rcvi_map *map = &d->r->map;
    rcvi_instruction to = {.operation = operation, .out = RCVI_NONE};
    for (int i = 0; i < rcvi_operations[operation].arguments; i++) {
        to.from[i] = values[i].from;
        to.source[i] = values[i].source;
        to.number[i] = values[i].number;
    }
    map->instructions[map->instruction_count] = to;
    rcvi_recurrence_find_dependence(d->r, map->instruction_count);
    return in_register(map->instruction_count++);
}

static value add(deriver *d, value a, value b) {
    if (is_number(a, 0)) return b;
    if (is_number(b, 0)) return a;
    return emit(d, RCVI_ADD, a, b, number(0));
}
static value negate(deriver *d, value a) {
    return a.from == RCVI_FROM_NUMBER ? number(-a.number) : emit(d, RCVI_NEGATE, a, number(0), number(0));
}
static value subtract(deriver *d, value a, value b) {
    if (is_number(b, 0)) return a;
    return is_number(a, 0) ? negate(d, b) : emit(d, RCVI_SUBTRACT, a, b, number(0));
}
static value multiply(deriver *d, value a, value b) {
    if (is_number(a, 0) || is_number(b, 1)) return a;
    if (is_number(b, 0) || is_number(a, 1)) return b;
    return emit(d, RCVI_MULTIPLY, a, b, number(0));
}
static value divide(deriver *d, value a, value b) {
    return is_number(a, 0) || is_number(b, 1) ? a : emit(d, RCVI_DIVIDE, a, b, number(0));
}
static value choose(deriver *d, value mask, value a, value b) {
    bool equal = a.from == b.from && (a.from == RCVI_FROM_NUMBER ? a.number == b.number : a.source == b.source);
    return equal ? a : emit(d, RCVI_SELECT, mask, a, b);
}

static bool is_state(const deriver *d, value x) {
    return x.from == RCVI_FROM_VIEW && rcvi_recurrence_carries(d->r, x.source);
}
static bool depends(const deriver *d, value x) {
    return is_state(d, x) || (x.from == RCVI_FROM_REGISTER && d->r->depends[x.source]);
}
static value scale_of(const deriver *d, value x) {
    if (!depends(d, x)) return number(0);
    return is_state(d, x) ? number(1) : d->scale[x.source];
}
static value offset_of(const deriver *d, value x) {
    if (!depends(d, x)) return x;
    return is_state(d, x) ? number(0) : d->offset[x.source];
}

/* ---- scale and offset ---- */

static void derive_affine(deriver *d, int k) {
    const rcvi_instruction *instruction = &d->r->map.instructions[k];
    value x = argument(instruction, 0), y = argument(instruction, 1), z = argument(instruction, 2);
    value *scale = &d->scale[k], *offset = &d->offset[k];
    switch (instruction->operation) {
    case RCVI_ADD:
        *scale = add(d, scale_of(d, x), scale_of(d, y));
        *offset = add(d, offset_of(d, x), offset_of(d, y));
        return;
    case RCVI_SUBTRACT:
        *scale = subtract(d, scale_of(d, x), scale_of(d, y));
        *offset = subtract(d, offset_of(d, x), offset_of(d, y));
        return;
    case RCVI_NEGATE:
        *scale = negate(d, scale_of(d, x));
        *offset = negate(d, offset_of(d, x));
        return;
    case RCVI_MULTIPLY:
        d->failed |= depends(d, x) && depends(d, y);
        if (depends(d, y)) { /* the factor first */
            value other = x;
            x = y;
            y = other;
        }
        *scale = multiply(d, y, scale_of(d, x));
        *offset = multiply(d, y, offset_of(d, x));
        return;
    case RCVI_DIVIDE:
        d->failed |= depends(d, y);
        *scale = divide(d, scale_of(d, x), y);
        *offset = divide(d, offset_of(d, x), y);
        return;
    case RCVI_SELECT:
        d->failed |= depends(d, x);
        *scale = choose(d, x, scale_of(d, y), scale_of(d, z));
        *offset = choose(d, x, offset_of(d, y), offset_of(d, z));
        return;
    default: d->failed = true;
    }
}

/* ---- the derivative ---- */

static void derive_slope(deriver *d, int k) {
    const rcvi_instruction *instruction = &d->r->map.instructions[k];
    value x = argument(instruction, 0), y = argument(instruction, 1), z = argument(instruction, 2), r = in_register(k);
    value dx = scale_of(d, x), dy = scale_of(d, y), dz = scale_of(d, z), none = number(0), *to = &d->scale[k];
    switch (instruction->operation) {
    case RCVI_ADD: *to = add(d, dx, dy); return;
    case RCVI_SUBTRACT: *to = subtract(d, dx, dy); return;
    case RCVI_NEGATE: *to = negate(d, dx); return;
    case RCVI_MULTIPLY: *to = add(d, multiply(d, dx, y), multiply(d, x, dy)); return;
    case RCVI_DIVIDE: *to = divide(d, subtract(d, dx, multiply(d, r, dy)), y); return;
    case RCVI_SIGMOID: *to = multiply(d, multiply(d, r, subtract(d, number(1), r)), dx); return;
    case RCVI_TANH: *to = multiply(d, subtract(d, number(1), multiply(d, r, r)), dx); return;
    case RCVI_RELU: *to = multiply(d, emit(d, RCVI_STEP, x, none, none), dx); return;
    case RCVI_EXP: *to = multiply(d, r, dx); return;
    case RCVI_LOG: *to = divide(d, dx, x); return;
    case RCVI_SOFTPLUS: *to = multiply(d, emit(d, RCVI_SIGMOID, x, none, none), dx); return;
    case RCVI_ABS: *to = multiply(d, emit(d, RCVI_SIGN, x, none, none), dx); return;
    case RCVI_SQRT: *to = divide(d, multiply(d, number(0.5), dx), r); return;
    case RCVI_MIN: *to = choose(d, emit(d, RCVI_STEP, subtract(d, y, x), none, none), dx, dy); return;
    case RCVI_MAX: *to = choose(d, emit(d, RCVI_STEP, subtract(d, x, y), none, none), dx, dy); return;
    case RCVI_SELECT: *to = choose(d, x, dy, dz); return;
    default: *to = none; /* steps are flat */
    }
}

static void find_needed(deriver *d, int next) {
    for (int k = 0; k < d->count; k++) d->needed[k] = k == next;
    for (int k = d->count; k-- > 0;) {
        const rcvi_instruction *instruction = &d->r->map.instructions[k];
        for (int a = 0; d->needed[k] && a < rcvi_operations[instruction->operation].arguments; a++) {
            if (instruction->from[a] == RCVI_FROM_REGISTER) d->needed[instruction->source[a]] = true;
        }
    }
}

/* Goes through the loop's instructions that lead from the state to the next one. */
static void derive(deriver *d, void (*one)(deriver *d, int k)) {
    for (int k = 0; k < d->count && !d->failed; k++) {
        if (d->r->depends[k] && d->needed[k]) one(d, k);
    }
}

static int in_a_register(deriver *d, value x) {
    return x.from == RCVI_FROM_REGISTER ? x.source : emit(d, RCVI_SELECT, number(1), x, number(0)).source;
}

void rcvi_recurrence_derive(rcvi_recurrence *r) {
    value scale[RCVI_MAX_LONG_INSTRUCTIONS], offset[RCVI_MAX_LONG_INSTRUCTIONS];
    bool needed[RCVI_MAX_LONG_INSTRUCTIONS];
    deriver d = {.r = r, .count = r->map.instruction_count, .scale = scale, .offset = offset, .needed = needed};
    value next = in_register(r->carried[r->state].source);
    if (d.count > RCVI_MAX_LONG_INSTRUCTIONS) return;
    find_needed(&d, next.source);
    derive(&d, derive_affine);
    if (!d.failed) {
        r->scale = in_a_register(&d, scale_of(&d, next));
        r->offset = in_a_register(&d, offset_of(&d, next));
        return;
    }
    r->map.instruction_count = d.count;
    d.failed = false;
    derive(&d, derive_slope);
    r->slope = in_a_register(&d, scale_of(&d, next));
}
