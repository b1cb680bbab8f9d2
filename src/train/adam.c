/* Adam, and the norm that clipping looks at. */
#include "train/lm.h"

#include <math.h>

double rcvi_norm(const float *values, int64_t count) {
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        sum += (double)values[i] * (double)values[i];
    }
    return sqrt(sum);
}

void rcvi_adam(int64_t step, double learning_rate, double scale, int64_t count, const float *gradient, float *first,
               float *second, float *parameters) {
    /* 1 - 0.999f is not 0.001f: each complement is rounded on its own. */
    const float keep1 = 0.9f, take1 = 0.1f, keep2 = 0.999f, take2 = 0.001f, epsilon = 1e-8f;
    /* rate * (m / c1) / (sqrt(v / c2) + epsilon), with c = 1 - beta^step */
    const float rate = (float)(learning_rate / (1 - pow(0.9, (double)step)));
    const float root = (float)(1 / sqrt(1 - pow(0.999, (double)step)));
    const float factor = (float)scale;
    for (int64_t i = 0; i < count; i++) {
        const float g = gradient[i] * factor;
        const float m = keep1 * first[i] + take1 * g;
        const float v = keep2 * second[i] + take2 * g * g;
        first[i] = m;
        second[i] = v;
        parameters[i] -= rate * m / (sqrtf(v) * root + epsilon);
    }
}
