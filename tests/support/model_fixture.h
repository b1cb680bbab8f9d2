/* Fixture of the tests of models: a model on a counting allocator, tensors with values. */
#ifndef RECURVE_MODEL_FIXTURE_H
#define RECURVE_MODEL_FIXTURE_H

#include "scratch.h"
#include "test.h"

#include <math.h>
#include <unistd.h>

typedef struct {
    test_allocator counting;
    rcv_context *context;
    rcv_cell *cell;
    rcv_net *net;
    rcv_model *model;
} model_fixture;

static inline void model_fixture_open(model_fixture *self, const char *cell, const rcv_net_options *options,
                                      rcv_dtype dtype) {
    rcv_net_options sized = *options; /* tables of tests leave the size out */
    sized.size = sizeof sized;
    options = &sized;
    self->context = test_context(&self->counting);
    check_ok(rcv_cell_open(self->context, cell, &self->cell));
    check_ok(rcv_net_new(self->cell, options, &self->net));
    check_ok(rcv_model_new(self->net, dtype, 11, &self->model));
}

static inline void model_fixture_close(model_fixture *self) {
    rcv_model_free(self->model);
    rcv_net_free(self->net);
    rcv_cell_free(self->cell);
    test_context_end(&self->counting, self->context);
}

static inline void add_tensor(rcv_tensors *tensors, const char *name, rcv_dtype dtype, int dims, const int64_t *shape,
                              const void *data) {
    rcv_tensor tensor = {.name = name, .dtype = dtype, .dims = dims, .data = data, .bytes = rcv_dtype_bytes(dtype)};
    for (int d = 0; d < dims; d++) {
        tensor.shape[d] = shape[d];
        tensor.bytes *= (size_t)shape[d];
    }
    check_ok(rcv_tensors_add(tensors, &tensor));
}

/* Doubles that are all different, small and reproducible. */
static inline void add_wave(rcv_tensors *tensors, const char *name, int dims, const int64_t *shape, double phase) {
    size_t count = 1;
    for (int d = 0; d < dims; d++) count *= (size_t)shape[d];
    double *values = malloc((count + 1) * sizeof *values);
    for (size_t i = 0; i < count; i++) values[i] = 0.7 * sin(phase + 1.3 * (double)i);
    add_tensor(tensors, name, RCV_FLOAT64, dims, shape, values);
    free(values);
}

#endif
