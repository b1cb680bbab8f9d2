/* exp_sum of one type: exponentials of a row and their sum, for softmax. Included after kernels/map.h, with what that expects. */

/* Computes row_vectors vectors of to = exp(from - less), and adds them to the sums. */
enum { NAME(row_vectors) = 4, NAME(row_elements) = 4 * MAP_BYTES / sizeof(SCALAR) };

static inline void NAME(exp_step)(const SCALAR *from, SCALAR less, SCALAR *to, NAME(map_vector) * sums) {
    const int lanes = MAP_BYTES / sizeof(SCALAR);
    NAME(map_vector) x[NAME(row_vectors)];
    for (int i = 0; i < NAME(row_vectors); i++) x[i] = *(const NAME(loose_map_vector) *)(from + i * lanes) - less;
#if defined(MANY_MATH)
    MANY_MATH(exp)((float32x4_t *)x);
#else
    for (int i = 0; i < NAME(row_vectors); i++) x[i] = MATH(exp)(x[i]);
#endif
    for (int i = 0; i < NAME(row_vectors); i++) {
        *(NAME(loose_map_vector) *)(to + i * lanes) = x[i];
        sums[i] += x[i];
    }
}

static double NAME(exp_sum)(int64_t n, double less, const void *a, void *out) {
    const SCALAR *from = a;
    SCALAR *to = out, rest[NAME(row_elements)];
    NAME(map_vector) sums[NAME(row_vectors)] = {{0}};
    size_t left = (size_t)n;
    for (; left >= NAME(row_elements); left -= NAME(row_elements)) {
        NAME(exp_step)(from, (SCALAR)less, to, sums);
        from += NAME(row_elements);
        to += NAME(row_elements);
    }
    if (left > 0) { /* padded with -infinity, whose exponential is zero */
        for (int i = 0; i < NAME(row_elements); i++) rest[i] = (size_t)i < left ? from[i] : -(SCALAR)INFINITY;
        NAME(exp_step)(rest, (SCALAR)less, rest, sums);
        memcpy(to, rest, left * sizeof(SCALAR));
    }
    double sum = 0;
    for (int i = 1; i < NAME(row_vectors); i++) sums[0] += sums[i];
    for (size_t i = 0; i < MAP_BYTES / sizeof(SCALAR); i++) sum += (double)sums[0][i];
    return sum;
}
