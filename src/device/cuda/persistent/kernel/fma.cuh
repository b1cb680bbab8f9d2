/* Multiply-adds of float32 for kernel/products_fma.cuh. Comes before the texts of the tasks.
 *
 * The 128 threads of a pipe share out the 64 x 32 weights of a chunk: thread t has rows 4 (t / 8) .. 4 (t / 8) + 3 and of every row the four
 * numbers of segment t % 8, so the eight threads of a row read a line of 128 bytes together. Each has sums of its four rows with all rows of
 * the tile, number 4 n + r for row n; at the end the eight threads add theirs up, in a fixed order. */

#ifdef __CUDACC__ /* a test that compiles this text for the host has its own */
INLINE void read_four(unsigned at, float (&x)[4]) {
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
                 : "r"(at)
                 : "memory");
}
#endif

/* sums += a b^T for one segment of rows 0 .. N - 1 of the chunk at `chunk`. */
template <int N> INLINE void multiply_add(float (&sums)[4 * N], const float (&a)[4][4], unsigned chunk, int segment) {
#pragma unroll
    for (int n = 0; n < N; n++) {
        float b[4];
        read_four(chunk + (unsigned)(n * 128 + ((segment ^ (n & 7)) << 4)), b);
#pragma unroll
        for (int r = 0; r < 4; r++) {
#pragma unroll
            for (int k = 0; k < 4; k++) sums[4 * n + r] = fmaf(a[r][k], b[k], sums[4 * n + r]);
        }
    }
}

/* Adds up numbers 0 .. COUNT - 1 of eight neighbouring threads: in each step one half of the threads takes one half of the numbers. Answers
 * the first number that this thread then has, of COUNT / 8, or of one; -1: another thread has it. */
template <int COUNT, int DISTANCE = 4, int ALL> INLINE int add_up(float (&sums)[ALL], int segment) {
    if constexpr (DISTANCE == 0) {
        return 0;
    } else if constexpr (COUNT == 1) {
        sums[0] += __shfl_xor_sync(0xffffffffu, sums[0], DISTANCE);
        int first = add_up<1, DISTANCE / 2>(sums, segment);
        return segment & DISTANCE ? -1 : first;
    } else {
        constexpr int HALF = COUNT / 2;
        const bool upper = segment & DISTANCE;
#pragma unroll
        for (int i = 0; i < HALF; i++) {
            float mine = upper ? sums[HALF + i] : sums[i], other = upper ? sums[i] : sums[HALF + i];
            sums[i] = mine + __shfl_xor_sync(0xffffffffu, other, DISTANCE);
        }
        int first = add_up<HALF, DISTANCE / 2>(sums, segment);
        return first < 0 ? -1 : upper ? HALF + first : first;
    }
}
