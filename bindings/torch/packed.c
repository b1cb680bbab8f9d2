#include "torch/packed.h"

#include <stdlib.h>

int64_t rcvb_unpack(int64_t steps, int64_t batch, const int64_t *sizes, int64_t *source, int64_t *places,
                    int64_t *lengths) {
    int64_t rows = 0;
    for (int64_t b = 0; b < batch; b++) lengths[b] = 0;
    for (int64_t t = 0; t < steps; t++) {
        if (sizes[t] < 0 || sizes[t] > (t ? sizes[t - 1] : batch)) return -1;
        for (int64_t b = 0; b < batch; b++) {
            bool has_step = b < sizes[t];
            source[t * batch + b] = has_step ? rows : 0;
            if (!has_step) continue;
            lengths[b]++;
            places[rows++] = t * batch + b;
        }
    }
    return rows;
}

/* A step from which on there are fewer sequences, or the end. */
typedef struct {
    int64_t step, rows; /* of all calls that end here, at least */
    size_t begin;       /* of the last one of these */
} place;

static size_t find_places(int64_t steps, const int64_t *sizes, place *places) {
    size_t count = 0;
    for (int64_t t = 0; t <= steps; t++) {
        if (t == 0 || t == steps || sizes[t] != sizes[t - 1]) places[count++].step = t;
    }
    return count;
}

static void find_best(const int64_t *sizes, int64_t overhead, place *places, size_t end) {
    places[end].rows = INT64_MAX;
    for (size_t begin = 0; begin < end; begin++) {
        int64_t first = places[begin].step;
        int64_t rows = places[begin].rows + overhead + (places[end].step - first) * sizes[first];
        if (rows < places[end].rows) places[end].rows = rows, places[end].begin = begin;
    }
}

int64_t rcvb_cut(int64_t steps, const int64_t *sizes, int64_t overhead, int64_t *ends) {
    place *places = calloc((size_t)steps + 1, sizeof *places);
    if (!places) return 0;
    size_t last = find_places(steps, sizes, places) - 1;
    int64_t count = 0;
    for (size_t end = 1; end <= last; end++) find_best(sizes, overhead, places, end);
    for (size_t end = last; end > 0; end = places[end].begin) count++;
    for (size_t end = last, n = (size_t)count; end > 0; end = places[end].begin) ends[--n] = places[end].step;
    free(places);
    return count;
}
