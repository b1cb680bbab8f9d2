/* A time loop executed step by step, in double: the reference for persistent kernels on the host. */
#ifndef PERSISTENT_REFERENCE_H
#define PERSISTENT_REFERENCE_H

#include "device/cuda/engine/ragged.h"
#include "persistent_subject.h"

typedef struct {
    const rcvi_engine *engine;
    const rcvi_program *program;
    double **buffers;
    int64_t *alive, *order; /* [steps] active rows; [batch] the caller's rows, where the engine sorts */
    int64_t iteration, time;
} oracle;

static double *element_of(const oracle *o, const rcvi_view *view, int64_t row, int64_t column) {
    if (o->engine->sorts && rcvi_cuda_is_by_row(&o->program->buffers[view->buffer])) row = o->order[row];
    return &o->buffers[view->buffer]
                      [rcvi_view_start(view, o->iteration, 0, o->time) + row * view->row + column * view->column];
}

static double product_of(const oracle *o, const rcvi_product *product, int64_t row, int64_t column) {
    double sum = product->start.buffer == RCVI_NONE ? 0 : *element_of(o, &product->start, row, column);
    for (int t = 0; t < product->term_count; t++) {
        int64_t depth = product->terms[t].depth;
        const double *b = element_of(o, &product->terms[t].b, 0, column * rcvi_round_up(depth, 8));
        for (int64_t k = 0; k < depth; k++) sum += *element_of(o, &product->terms[t].a, row, k) * b[k];
    }
    return sum;
}

/* Argument a of an instruction; `values`: of an element's products, then of its instructions. */
static double argument_of(const oracle *o, const rcvi_map *map, const rcvi_instruction *i, int a, int64_t row,
                          int64_t column, const double *values) {
    return i->from[a] == RCVI_FROM_VIEW       ? *element_of(o, &map->operands[i->source[a]], row, column)
           : i->from[a] == RCVI_FROM_REGISTER ? values[map->product_count + i->source[a]]
           : i->from[a] == RCVI_FROM_PRODUCT  ? values[i->source[a]]
                                              : i->number[a];
}

/* A row of a map; `values`: [columns, each] */
static void evaluate(const oracle *o, const rcvi_step *step, int64_t row, double *values, size_t each) {
    const rcvi_map *map = step->map;
    for (int k = -map->product_count; k < map->instruction_count; k++) {
        const rcvi_instruction *i = &map->instructions[k < 0 ? 0 : k];
        double sum = 0;
        for (int64_t c = 0; c < step->columns; c++) {
            double x[2] = {0, 0}, *own = values + (size_t)c * each;
            for (int a = 0; k >= 0 && a < rcvi_operations[i->operation].arguments; a++)
                x[a] = argument_of(o, map, i, a, row, c, own);
            sum += x[0];
            own[map->product_count + k] = k < 0 ? product_of(o, &map->products[map->product_count + k], row, c)
                                          : i->operation == RCVI_SUM
                                              ? 0
                                              : rcvi_operations[i->operation].evaluate(x[0], x[1]);
        }
        for (int64_t c = 0; k >= 0 && i->operation == RCVI_SUM && c < step->columns; c++)
            values[(size_t)c * each + (size_t)(map->product_count + k)] = sum;
    }
}

static void store(const oracle *o, const rcvi_map *map, int64_t row, int64_t column, const double *values) {
    for (int k = 0; k < map->product_count + map->instruction_count; k++) {
        int out = k < map->product_count ? map->products[k].out : map->instructions[k - map->product_count].out;
        if (out != RCVI_NONE) *element_of(o, &map->operands[out], row, column) = values[k];
    }
    for (int i = 0; i < map->store_count; i++)
        *element_of(o, &map->operands[map->stores[i].out], row, column) =
            values[map->stores[i].source + (map->stores[i].product ? 0 : map->product_count)];
}

static void take_map(const oracle *o, const rcvi_step *step, int64_t rows) {
    size_t each = (size_t)(step->map->product_count + step->map->instruction_count);
    double *values = calloc((size_t)(rows * step->columns) * each + 1, sizeof *values);
    assert_non_null(values);
    for (int64_t r = 0; r < rows; r++) evaluate(o, step, r, values + (size_t)(r * step->columns) * each, each);
    for (int64_t k = 0; k < rows * step->columns; k++)
        store(o, step->map, k / step->columns, k % step->columns, values + (size_t)k * each);
    free(values);
}

static double choice_of(const oracle *o, const rcvi_view *view, int64_t row, int64_t column) {
    return view->buffer == RCVI_NONE ? 0 : *element_of(o, view, row, column);
}

/* Executes a step for all rows, or, where it skips ended rows, for the active ones. */
static void take_step(const oracle *o, const rcvi_step *step) {
    int64_t rows = step->rows, last = o->program->sizes.steps - 1;
    if (o->engine->is_short[step - o->program->steps]) rows = o->alive[step->direction ? last - o->time : o->time];
    if (step->kind == RCVI_STEP_MAP) {
        take_map(o, step, rows);
        return;
    }
    assert_int_equal(step->kind, RCVI_STEP_SELECT);
    for (int64_t k = 0; k < rows * step->columns; k++) {
        int64_t row = k / step->columns, column = k % step->columns;
        bool chosen = *element_of(o, &step->mask, row, 0) != 0;
        *element_of(o, &step->out, row, column) = choice_of(o, chosen ? &step->a : &step->b, row, column);
    }
}

static void take_loop(oracle *o, size_t loop) {
    const rcvi_step *steps = o->program->steps;
    int64_t span;
    for (o->iteration = 0; o->iteration < steps[loop].loop.count; o->iteration++) {
        for (int k = 1; k <= steps[loop].loop.body; k++) {
            if (rcvi_step_is_due(o->program, &steps[loop + (size_t)k], o->iteration, 0, &o->time, &span))
                take_step(o, &steps[loop + (size_t)k]);
        }
    }
}

#endif
