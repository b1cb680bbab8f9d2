/* What goes into the contestants, and how what comes out is compared. */
#include "contest.h"

#include <math.h>
#include <stdlib.h>

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
                          .parameter_count = rcv_net_parameter_elements(net)};
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
}

void data_free(data *data) {
    void *const blocks[] = {data->parameters, data->x,  data->dy,          data->y,
                            data->y_first,    data->dx, data->dparameters, data->dparameters_first};
    for (size_t i = 0; i < COUNT(blocks); i++) {
        free(blocks[i]);
    }
}
