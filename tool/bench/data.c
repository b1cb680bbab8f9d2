/* What goes into the contestants, and how what comes out is compared. */
#include "bench/contest.h"

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
    double largest = 0, farthest = 0;
    for (int64_t i = 0; i < count; i++) {
        const double x = element(storage, a, i), y = element(storage, b, i);
        if (isnan(x) || isnan(y)) {
            return INFINITY;
        }
        largest = fmax(largest, fabs(y));
        farthest = fmax(farthest, fabs(x - y));
    }
    return largest > 0 ? farthest / largest : farthest;
}

void data_new(data *data, const problem *problem, const rcv_net *net, uint64_t seed) {
    const int64_t rows = problem->steps * problem->batch;
    const size_t size = rcv_dtype_bytes(problem_storage(problem));
    *data = (struct data){.storage = problem_storage(problem),
                          .training = problem->training != 0,
                          .x_count = rows * rcv_net_get_options(net)->input,
                          .y_count = rows * rcv_net_output(net),
                          .parameter_count = rcv_net_parameter_elements(net),
                          .context = problem->context,
                          .device = problem->device,
                          .is_away = problem_is_gpu(problem)};
    data->parameters = need((size_t)data->parameter_count, size);
    data->x = need((size_t)data->x_count, size);
    data->y = need((size_t)data->y_count, size);
    data->y_first = need((size_t)data->y_count, size);
    data->dy = need((size_t)data->y_count, size);
    if (data->training) {
        data->dx = need((size_t)data->x_count, size);
        data->dparameters = need((size_t)data->parameter_count, size);
        data->dparameters_first = need((size_t)data->parameter_count, size);
    }
    fill_random(data->storage, data->x, data->x_count, 1, seed + 1);
    fill_random(data->storage, data->dy, data->y_count, 1, seed + 2);
    if (!data->is_away) {
        data->there = (arrays){data->parameters, data->x, data->dy, data->y, data->dx, data->dparameters};
    }
}

rcv_status data_send(data *data) {
    const struct {
        void **there;
        const void *here; /* NULL: not needed */
        int64_t count;
    } blocks[] = {
        {&data->there.parameters, data->parameters, data->parameter_count},
        {&data->there.x, data->x, data->x_count},
        {&data->there.dy, data->dy, data->y_count},
        {&data->there.y, data->y, data->y_count},
        {&data->there.dx, data->dx, data->x_count},
        {&data->there.dparameters, data->dparameters, data->parameter_count},
    };
    rcv_status status = RCV_OK;
    for (size_t i = 0; i < COUNT(blocks) && data->is_away && status == RCV_OK; i++) {
        const size_t bytes = (size_t)blocks[i].count * rcv_dtype_bytes(data->storage);
        if (blocks[i].here == NULL || *blocks[i].there != NULL) {
            continue;
        }
        void *memory = NULL;
        status = rcv_memory_new(data->context, data->device, bytes, &memory);
        if (status == RCV_OK) {
            status = rcv_memory_write(data->device, memory, blocks[i].here, bytes);
        }
        if (status != RCV_OK) {
            rcv_memory_free(data->context, data->device, memory);
        } else {
            *blocks[i].there = memory;
        }
    }
    return status;
}

rcv_status data_poison(data *data) {
    const size_t size = rcv_dtype_bytes(data->storage), y_bytes = (size_t)data->y_count * size;
    const size_t parameter_bytes = (size_t)data->parameter_count * size;
    memset(data->y, 0xff, y_bytes); /* not a number */
    if (data->training) {
        memset(data->dparameters, 0xff, parameter_bytes);
    }
    if (!data->is_away || data->there.y == NULL) {
        return RCV_OK;
    }
    const rcv_status status = rcv_memory_write(data->device, data->there.y, data->y, y_bytes);
    return status == RCV_OK && data->training && data->there.dparameters != NULL
               ? rcv_memory_write(data->device, data->there.dparameters, data->dparameters, parameter_bytes)
               : status;
}

rcv_status data_fetch(data *data, bool gradients) {
    const size_t size = rcv_dtype_bytes(data->storage);
    if (!data->is_away) {
        return RCV_OK;
    }
    const rcv_status status = rcv_memory_read(data->device, data->y, data->there.y, (size_t)data->y_count * size);
    return status == RCV_OK && gradients && data->training
               ? rcv_memory_read(data->device, data->dparameters, data->there.dparameters,
                                 (size_t)data->parameter_count * size)
               : status;
}

void data_free(data *data) {
    void *const away[] = {data->there.parameters, data->there.x,  data->there.dy,
                          data->there.y,          data->there.dx, data->there.dparameters};
    for (size_t i = 0; i < COUNT(away) && data->is_away; i++) {
        rcv_memory_free(data->context, data->device, away[i]);
    }
    void *const blocks[] = {data->parameters, data->x,  data->dy,          data->y,
                            data->y_first,    data->dx, data->dparameters, data->dparameters_first};
    for (size_t i = 0; i < COUNT(blocks); i++) {
        free(blocks[i]);
    }
}
