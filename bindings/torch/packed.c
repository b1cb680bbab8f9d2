#include "torch/packed.h"

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
