/* The inputs of a call, copies between host and device, and the comparison of results. */
#include "bench/comparison.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double next_random(uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (double)(*state >> 11) * 0x1p-53;
}

void fill_random(rcv_dtype storage, void *values, int64_t count, double scale, uint64_t seed) {
    uint64_t state = seed * 2654435761u + 12345;
    for (int64_t i = 0; i < count; i++) {
        const double value = scale * (2 * next_random(&state) - 1);
        if (storage == RCV_FLOAT64) {
            ((double *)values)[i] = value;
        } else {
            ((float *)values)[i] = (float)value;
        }
    }
}

static double element(rcv_dtype storage, const void *values, int64_t index) {
    return storage == RCV_FLOAT64 ? ((const double *)values)[index] : (double)((const float *)values)[index];
}

double relative_difference(rcv_dtype storage, const void *a, const void *b, int64_t count) {
    double largest = 0, largest_difference = 0;
    for (int64_t i = 0; i < count; i++) {
        const double x = element(storage, a, i), y = element(storage, b, i);
        if (isnan(x) || isnan(y)) {
            return INFINITY;
        }
        largest = fmax(largest, fabs(y));
        largest_difference = fmax(largest_difference, fabs(x - y));
    }
    return largest > 0 ? largest_difference / largest : largest_difference;
}

void call_tensors_new(call_tensors *tensors, const problem *problem, const rcv_net *net, uint64_t seed) {
    const int64_t rows = problem->steps * problem->batch;
    const size_t size = rcv_dtype_bytes(problem_storage(problem));
    *tensors = (call_tensors){.storage = problem_storage(problem),
                              .training = problem->training != 0,
                              .x_count = rows * rcv_net_get_options(net)->input,
                              .y_count = rows * rcv_net_output(net),
                              .parameter_count = rcv_net_parameter_elements(net),
                              .context = problem->context,
                              .device = problem->device,
                              .has_device_memory = problem_is_gpu(problem)};
    tensors->parameters = need((size_t)tensors->parameter_count, size);
    tensors->x = need((size_t)tensors->x_count, size);
    tensors->y = need((size_t)tensors->y_count, size);
    tensors->y_first = need((size_t)tensors->y_count, size);
    tensors->dy = need((size_t)tensors->y_count, size);
    if (tensors->training) {
        tensors->dx = need((size_t)tensors->x_count, size);
        tensors->dparameters = need((size_t)tensors->parameter_count, size);
        tensors->dparameters_first = need((size_t)tensors->parameter_count, size);
    }
    fill_random(tensors->storage, tensors->x, tensors->x_count, 1, seed + 1);
    fill_random(tensors->storage, tensors->dy, tensors->y_count, 1, seed + 2);
    if (!tensors->has_device_memory) {
        tensors->on_device = (device_arrays){tensors->parameters, tensors->x,  tensors->dy,
                                             tensors->y,          tensors->dx, tensors->dparameters};
    }
}

rcv_status call_tensors_send(call_tensors *tensors) {
    const struct {
        void **there;
        const void *here; /* NULL: not needed */
        int64_t count;
    } blocks[] = {
        {&tensors->on_device.parameters, tensors->parameters, tensors->parameter_count},
        {&tensors->on_device.x, tensors->x, tensors->x_count},
        {&tensors->on_device.dy, tensors->dy, tensors->y_count},
        {&tensors->on_device.y, tensors->y, tensors->y_count},
        {&tensors->on_device.dx, tensors->dx, tensors->x_count},
        {&tensors->on_device.dparameters, tensors->dparameters, tensors->parameter_count},
    };
    rcv_status status = RCV_OK;
    for (size_t i = 0; i < COUNT(blocks) && tensors->has_device_memory && status == RCV_OK; i++) {
        const size_t bytes = (size_t)blocks[i].count * rcv_dtype_bytes(tensors->storage);
        if (blocks[i].here == NULL || *blocks[i].there != NULL) {
            continue;
        }
        void *memory = NULL;
        status = rcv_memory_new(tensors->context, tensors->device, bytes, &memory);
        if (status == RCV_OK) {
            status = rcv_memory_write(tensors->device, memory, blocks[i].here, bytes);
        }
        if (status != RCV_OK) {
            rcv_memory_free(tensors->context, tensors->device, memory);
        } else {
            *blocks[i].there = memory;
        }
    }
    return status;
}

rcv_status call_tensors_poison(call_tensors *tensors) {
    const size_t size = rcv_dtype_bytes(tensors->storage), y_bytes = (size_t)tensors->y_count * size;
    const size_t parameter_bytes = (size_t)tensors->parameter_count * size;
    memset(tensors->y, 0xff, y_bytes); /* not a number */
    if (tensors->training) {
        memset(tensors->dparameters, 0xff, parameter_bytes);
    }
    if (!tensors->has_device_memory || tensors->on_device.y == NULL) {
        return RCV_OK;
    }
    const rcv_status status = rcv_memory_write(tensors->device, tensors->on_device.y, tensors->y, y_bytes);
    return status == RCV_OK && tensors->training && tensors->on_device.dparameters != NULL
               ? rcv_memory_write(tensors->device, tensors->on_device.dparameters, tensors->dparameters,
                                  parameter_bytes)
               : status;
}

rcv_status call_tensors_fetch(call_tensors *tensors, bool gradients) {
    const size_t size = rcv_dtype_bytes(tensors->storage);
    if (!tensors->has_device_memory) {
        return RCV_OK;
    }
    const rcv_status status =
        rcv_memory_read(tensors->device, tensors->y, tensors->on_device.y, (size_t)tensors->y_count * size);
    return status == RCV_OK && gradients && tensors->training
               ? rcv_memory_read(tensors->device, tensors->dparameters, tensors->on_device.dparameters,
                                 (size_t)tensors->parameter_count * size)
               : status;
}

void call_tensors_free(call_tensors *tensors) {
    void *const away[] = {tensors->on_device.parameters, tensors->on_device.x,  tensors->on_device.dy,
                          tensors->on_device.y,          tensors->on_device.dx, tensors->on_device.dparameters};
    for (size_t i = 0; i < COUNT(away) && tensors->has_device_memory; i++) {
        rcv_memory_free(tensors->context, tensors->device, away[i]);
    }
    void *const blocks[] = {tensors->parameters, tensors->x,  tensors->dy,          tensors->y,
                            tensors->y_first,    tensors->dx, tensors->dparameters, tensors->dparameters_first};
    for (size_t i = 0; i < COUNT(blocks); i++) {
        free(blocks[i]);
    }
}
