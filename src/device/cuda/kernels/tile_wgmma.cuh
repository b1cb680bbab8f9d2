/* Products on the tensor cores by wgmma (sm_90a), for tiles of 64 rows. Follows tile_pipeline.cuh. */
#if TILE_WGMMA

namespace tile {

/* ---- warpgroup instructions */

/* Orders earlier accesses to registers and shared memory before wgmma; copies go through another proxy. */
TILE_FUNCTION void warpgroup_fence() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
/* Keeps the compiler from moving accesses to these registers across this point. */
TILE_FUNCTION void hold(float (&x)[4]) { asm volatile("" : "+f"(x[0]), "+f"(x[1]), "+f"(x[2]), "+f"(x[3])::"memory"); }
TILE_FUNCTION void hold(unsigned (&x)[4]) {
    asm volatile("" : "+r"(x[0]), "+r"(x[1]), "+r"(x[2]), "+r"(x[3])::"memory");
}
TILE_FUNCTION void warpgroup_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
/* Waits until all but the last PENDING groups are done. */
template <int PENDING> TILE_FUNCTION void warpgroup_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(PENDING) : "memory");
}

#if defined(TILE_BF16)
#define TILE_WGMMA_OF(COLUMNS) "wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32.bf16.bf16 "
#elif defined(TILE_F16)
#define TILE_WGMMA_OF(COLUMNS) "wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k16.f32.f16.f16 "
#else
#define TILE_WGMMA_OF(COLUMNS) "wgmma.mma_async.sync.aligned.m64n" #COLUMNS "k8.f32.tf32.tf32 "
#endif

/* Sums are operands 0 .. 4 N - 1; then a (a descriptor, or four registers of tf32), then b's descriptor. */
/* clang-format off */
#define TILE_R4(A, B, C, D) "%" #A ", %" #B ", %" #C ", %" #D
#define TILE_R8 TILE_R4(0, 1, 2, 3)
#define TILE_R16 TILE_R8 ", " TILE_R4(4, 5, 6, 7)
#define TILE_R32 TILE_R16 ", " TILE_R4(8, 9, 10, 11) ", " TILE_R4(12, 13, 14, 15)
#define TILE_R64 TILE_R32 ", " TILE_R4(16, 17, 18, 19) ", " TILE_R4(20, 21, 22, 23) ", " TILE_R4(24, 25, 26, 27) \
    ", " TILE_R4(28, 29, 30, 31)
#define TILE_R128 TILE_R64 ", " TILE_R4(32, 33, 34, 35) ", " TILE_R4(36, 37, 38, 39) ", " TILE_R4(40, 41, 42, 43) \
    ", " TILE_R4(44, 45, 46, 47) ", " TILE_R4(48, 49, 50, 51) ", " TILE_R4(52, 53, 54, 55) \
    ", " TILE_R4(56, 57, 58, 59) ", " TILE_R4(60, 61, 62, 63)
/* clang-format on */
#define TILE_S1(I) "+f"(sums[G + I][0]), "+f"(sums[G + I][1]), "+f"(sums[G + I][2]), "+f"(sums[G + I][3])
#define TILE_S2(I) TILE_S1(I), TILE_S1(I + 1)
#define TILE_S4(I) TILE_S2(I), TILE_S2(I + 2)
#define TILE_S8(I) TILE_S4(I), TILE_S4(I + 4)
#define TILE_S16(I) TILE_S8(I), TILE_S8(I + 8)

#if defined(TILE_TF32)
using Left = const unsigned (&)[4];
#define TILE_ISSUE(COLUMNS, N, A0, A1, A2, A3, B)                                                                      \
    asm volatile("{\n.reg .pred p;\nsetp.eq.u32 p, 0, 0;\n" TILE_WGMMA_OF(COLUMNS) "{" TILE_R##COLUMNS                 \
                 "}, {%" #A0 ", %" #A1 ", %" #A2 ", %" #A3 "}, %" #B ", p, 1, 1;\n}"                                   \
                 : TILE_S##N(0)                                                                                        \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)                                                  \
                 : "memory")
#else
using Left = unsigned long long;
#define TILE_ISSUE(COLUMNS, N, A0, A1, A2, A3, B)                                                                      \
    asm volatile("{\n.reg .pred p;\nsetp.eq.u32 p, 0, 0;\n" TILE_WGMMA_OF(COLUMNS) "{" TILE_R##COLUMNS                 \
                 "}, %" #A0 ", %" #A1 ", p, 1, 1, 0, 0;\n}"                                                            \
                 : TILE_S##N(0)                                                                                        \
                 : "l"(a), "l"(b)                                                                                      \
                 : "memory")
#endif

/* sums[64, groups G .. G + N - 1] += a[64, 32 bytes] b[8 N, 32 bytes]^T */
template <int N, int G> TILE_FUNCTION void warpgroup_multiply(float (&sums)[GROUPS][4], Left a, unsigned long long b) {
    if constexpr (N == 1) TILE_ISSUE(8, 1, 4, 5, 6, 7, 8);
    if constexpr (N == 2) TILE_ISSUE(16, 2, 8, 9, 10, 11, 12);
    if constexpr (N == 4) TILE_ISSUE(32, 4, 16, 17, 18, 19, 20);
    if constexpr (N == 8) TILE_ISSUE(64, 8, 32, 33, 34, 35, 36);
    if constexpr (N == 16) TILE_ISSUE(128, 16, 64, 65, 66, 67, 68);
}

/* ---- products by warpgroups */

/* The descriptor of rows of 128 bytes in the 128-byte swizzle, in groups of eight rows: address and bytes from group to group, in units of
 * 16 bytes, and the number of the swizzle. Adding to a descriptor adds to the address. */
TILE_FUNCTION unsigned long long descriptor(unsigned at) {
    return (unsigned long long)(1u << 30 | 1024 >> 4) << 32 | 1u << 16 | (at & 0x3ffff) >> 4;
}

/* How many groups one instruction takes from group g on: the highest power of two that all have terms. */
__device__ constexpr int run_of(unsigned groups, int g) {
    int length = 0;
    while (g + length < GROUPS && (groups >> (g + length) & 1)) ++length;
    int run = length > 0;
    while (run > 0 && run * 2 <= length && run < 16) run *= 2;
    return run;
}

/* A team is a warpgroup of four warps; a warp has 16 rows and all columns. Teams alternate over chunks. */
struct Multiplier {
    static constexpr int SPLIT = CONSUMERS / 4, TURNS = SPLIT, LAST = PASSES - 1;
#if defined(TILE_TF32)
    static constexpr bool DEFERRED = false;
#else
    static constexpr bool DEFERRED = all_groups();
#endif
    static_assert(TURNS <= STAGES - (DEFERRED ? TURNS : 0), "stages for all turns");
    float sums[GROUPS][4];
    int team, warp, lane;

    TILE_FUNCTION Multiplier() : sums() {
        lane = (int)(threadIdx.x % 32);
        warp = (int)(threadIdx.x / 32 % 4);
        team = (int)(threadIdx.x / 128);
    }
    TILE_FUNCTION int turn() const { return team; }

    template <unsigned BITS, int G = 0> TILE_FUNCTION void step(Left a, unsigned long long b) {
        if constexpr (G < GROUPS) {
            constexpr int RUN = run_of(BITS, G);
            if constexpr (RUN > 0) warpgroup_multiply<RUN, G>(sums, a, b + G * (1024 >> 4));
            step<BITS, G + (RUN > 0 ? RUN : 1)>(a, b);
        }
    }

    TILE_FUNCTION void hold_sums() {
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) hold(sums[g]);
    }

    template <unsigned BITS> TILE_FUNCTION void chunk(unsigned stage) {
        hold_sums();
        unsigned long long b = descriptor(stage + TILE_ROWS * 128);
#if defined(TILE_TF32)
        unsigned a[4][4], left = swizzled(warp * 16 + lane % 16, lane / 16);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            load_matrices(a[i], stage + (left ^ i * 32));
#pragma unroll
            for (int j = 0; j < 4; ++j) a[i][j] = round_tf32(a[i][j]);
            hold(a[i]);
        }
        warpgroup_fence();
#pragma unroll
        for (int i = 0; i < 4; ++i) step<BITS>(a[i], b + i * (32 >> 4));
#else
        unsigned long long a = descriptor(stage);
        warpgroup_fence();
#pragma unroll
        for (int i = 0; i < 4; ++i) step<BITS>(a + i * (32 >> 4), b + i * (32 >> 4));
#endif
        warpgroup_commit();
        warpgroup_wait<DEFERRED ? 1 : 0>();
    }

    template <int Q = 0> TILE_FUNCTION void choose(unsigned stage, unsigned groups) {
        if constexpr (Q < LAST && !all_groups()) {
            if (groups != pass_groups(Q)) return choose<Q + 1>(stage, groups);
        }
        chunk<pass_groups(Q)>(stage);
    }

    TILE_FUNCTION void multiply(const unsigned char *stage, unsigned groups) { choose(shared_address(stage), groups); }
    TILE_FUNCTION void end() {
        warpgroup_wait<0>();
        hold_sums();
    }

    TILE_FUNCTION void store(REAL *to) const {
        to += (team * TILE_ROWS + warp * 16 + lane / 4) * PITCH + lane % 4 * 2;
#pragma unroll
        for (int g = 0; g < GROUPS; ++g) {
            *(float2 *)(to + g * 8) = make_float2(sums[g][0], sums[g][1]);
            *(float2 *)(to + 8 * PITCH + g * 8) = make_float2(sums[g][2], sums[g][3]);
        }
    }
};

} /* namespace tile */

#endif
