/* Products on the tensor cores by mma.sync. Follows tile_pipeline.cuh. */
#if !defined(TILE_F32) && !defined(TILE_F64) && !TILE_WGMMA

namespace tile {

/* A team is DOWN x ACROSS warps; one takes HIGH x WIDE mma tiles of 16 rows x 8 columns. A step of depth is 32 bytes,
 * and a chunk has four: 16-bit and 32-bit operands lie in registers alike. */
struct Multiplier {
    static constexpr int DOWN = TILE_ROWS == 64 || (TILE_ROWS == 32 && SPAN >= 32) ? 2 : 1;
    static constexpr int ACROSS = GROUPS <= 5 ? 1 : GROUPS <= 10 || CONSUMERS < 8 ? 2 : 4;
    static constexpr int SPLIT = CONSUMERS / (DOWN * ACROSS), TURNS = turns_of(SPLIT), PARTS = SPLIT / TURNS;
    static constexpr int HIGH = TILE_ROWS / 16 / DOWN, WIDE = (GROUPS + ACROSS - 1) / ACROSS, PAIRS = (WIDE + 1) / 2;
    static constexpr bool DEFERRED = false;
    static_assert(PARTS <= 4, "a part of a chunk is a step at least");
    float sums[HIGH][WIDE][4];
    unsigned left, right[PAIRS]; /* the lane's address for ldmatrix in a stage, at step 0 */
    int tile_row, group, team;   /* first row and group of columns of the warp */

    TILE_FUNCTION Multiplier() : sums() {
        int lane = (int)(threadIdx.x % 32), warp = (int)(threadIdx.x / 32);
        tile_row = warp % DOWN * HIGH * 16;
        group = warp / DOWN % ACROSS * WIDE;
        team = warp / DOWN / ACROSS;
        left = swizzled(tile_row + lane % 16, lane / 16);
#pragma unroll
        for (int j = 0; j < PAIRS; ++j) /* the last pair may have only one group */
            right[j] =
                TILE_ROWS * 128 + swizzled(min(group + 2 * j + lane / 16, GROUPS - 1) * 8 + lane % 8, lane / 8 % 2);
    }
    TILE_FUNCTION int turn() const { return team / PARTS; }

    TILE_FUNCTION bool has(unsigned groups, int j) const { /* the same for all lanes of a warp */
        constexpr bool SURE = all_groups() && GROUPS % ACROSS == 0;
        return SURE || (groups >> (group + j) & 1);
    }

    TILE_FUNCTION static void round(unsigned (&bits)[4]) {
#if defined(TILE_TF32)
#pragma unroll
        for (int i = 0; i < 4; ++i) bits[i] = round_tf32(bits[i]);
#endif
    }

    TILE_FUNCTION void multiply(const unsigned char *stage_at, unsigned groups) {
        unsigned stage = shared_address(stage_at);
#pragma unroll
        for (int i = 0; i < 4 / PARTS; ++i) {
            unsigned step = (team % PARTS + i * PARTS) * 32;
            unsigned a[HIGH][4], b[PAIRS][4];
#pragma unroll
            for (int y = 0; y < HIGH; ++y) load_matrices(a[y], stage + (left ^ step) + y * 16 * 128);
#pragma unroll
            for (int j = 0; j < PAIRS; ++j) load_matrices(b[j], stage + (right[j] ^ step));
#pragma unroll
            for (int y = 0; y < HIGH; ++y) round(a[y]);
#pragma unroll
            for (int j = 0; j < PAIRS && !RIGHT_ROUNDED; ++j) round(b[j]);
#pragma unroll
            for (int x = 0; x < WIDE; ++x) {
                if (!has(groups, x)) continue;
#pragma unroll
                for (int y = 0; y < HIGH; ++y)
                    multiply_add(sums[y][x], a[y], b[x / 2][x % 2 * 2], b[x / 2][x % 2 * 2 + 1]);
            }
        }
    }
    TILE_FUNCTION void end() {}

    TILE_FUNCTION void store(REAL *to) const {
        int lane = (int)(threadIdx.x % 32);
        to += (team * TILE_ROWS + tile_row + lane / 4) * PITCH + group * 8 + lane % 4 * 2;
#pragma unroll
        for (int y = 0; y < HIGH; ++y)
#pragma unroll
            for (int x = 0; x < WIDE; ++x) {
                if (group + x >= GROUPS) continue;
                *(float2 *)(to + y * 16 * PITCH + x * 8) = make_float2(sums[y][x][0], sums[y][x][1]);
                *(float2 *)(to + (y * 16 + 8) * PITCH + x * 8) = make_float2(sums[y][x][2], sums[y][x][3]);
            }
    }
};

} /* namespace tile */

#endif
