/* Products of a persistent kernel in float32 as they are, by multiply-adds; stands before persistent.cuh in place of wgmma.
 *
 * A lane's 128 threads share out the 64 x 32 weights of a chunk: thread t has rows 4 (t / 8) + 0 .. 3 and of every row the four
 * numbers of piece t % 8, so the eight threads of a row read a line of 128 bytes together. Each has sums of its four rows with
 * all rows of the tile, number 4 n + r for row n; at the end the eight add theirs up, in a fixed order. */

#ifdef __CUDACC__ /* else a test compiles this text for the host, and has its own of this */
INLINE void read_four(unsigned at, float (&x)[4]) {
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x[0]), "=f"(x[1]), "=f"(x[2]), "=f"(x[3])
                 : "r"(at)
                 : "memory");
}
#endif

/* sums += a b^T for a piece of rows 0 .. N - 1 of a chunk that lies at `chunk`. */
template <int N> INLINE void multiply_add(float (&sums)[4 * N], const float (&a)[4][4], unsigned chunk, int piece) {
#pragma unroll
    for (int n = 0; n < N; n++) {
        float b[4];
        read_four(chunk + (unsigned)(n * 128 + ((piece ^ (n & 7)) << 4)), b);
#pragma unroll
        for (int r = 0; r < 4; r++) {
#pragma unroll
            for (int k = 0; k < 4; k++) sums[4 * n + r] = fmaf(a[r][k], b[k], sums[4 * n + r]);
        }
    }
}

/* Numbers 0 .. COUNT - 1 of eight threads side by side are added up: at each step a half of the threads takes on a half of the
 * numbers. Answers the first one that this thread then has, of COUNT / 8, or of one; -1: another has it. */
template <int COUNT, int APART = 4, int ALL> INLINE int add_up(float (&sums)[ALL], int piece) {
    if constexpr (APART == 0) {
        return 0;
    } else if constexpr (COUNT == 1) {
        sums[0] += __shfl_xor_sync(0xffffffffu, sums[0], APART);
        int first = add_up<1, APART / 2>(sums, piece);
        return piece & APART ? -1 : first;
    } else {
        constexpr int HALF = COUNT / 2;
        const bool upper = piece & APART;
#pragma unroll
        for (int i = 0; i < HALF; i++) {
            float mine = upper ? sums[HALF + i] : sums[i], other = upper ? sums[i] : sums[HALF + i];
            sums[i] = mine + __shfl_xor_sync(0xffffffffu, other, APART);
        }
        int first = add_up<HALF, APART / 2>(sums, piece);
        return first < 0 ? -1 : upper ? HALF + first : first;
    }
}
