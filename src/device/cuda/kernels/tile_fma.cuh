/* Products by fused multiply-adds, of float or double. Follows tile_pipeline.cuh. */
#if defined(TILE_F32) || defined(TILE_F64)

namespace tile {

/* Whether the sums of teams of 8 x `columns` threads fit in the memory of the stages. */
__device__ constexpr bool fits(int columns) {
    return CONSUMERS * 32 / (8 * columns) * TILE_ROWS * PITCH * SIZE <= STAGES * STAGE;
}

/* A team is R x C threads; one takes rows r + i R and columns c + j C, 16 bytes of depth at a time. A warp is 8 x 4 of
 * them, with lanes placed so that neighbours read the same operands. */
struct Multiplier {
    static constexpr int R = SIZE == 8 ? 16 : 8;
    static constexpr int C = SIZE == 8                              ? (SPAN == 8 ? 8 : 16)
                             : SPAN <= 32 && fits(4)                ? 4
                             : SPAN == 8 || (SPAN <= 64 && fits(8)) ? 8
                                                                    : 16;
    static constexpr int SPLIT = CONSUMERS * 32 / (R * C), TURNS = turns_of(SPLIT), PARTS = SPLIT / TURNS;
    static constexpr int HIGH = TILE_ROWS / R, WIDE = (SPAN + C - 1) / C;
    static constexpr bool DEFERRED = false;
    static_assert(PARTS <= 8, "a part of a chunk is a piece at least");
    struct __align__(16) Piece {
        REAL at[PIECE];
    };
    REAL sums[HIGH][WIDE];
    int r, c, team;

    TILE_FUNCTION Multiplier() : sums() {
        int lane = (int)(threadIdx.x % 32), warp = (int)(threadIdx.x / 32);
        r = (lane >> 1 & 1) + (lane >> 3 & 1) * 2 + (lane >> 4) * 4 + warp % (R / 8) * 8;
        c = (lane & 1) + (lane >> 2 & 1) * 2 + warp / (R / 8) % (C / 4) * 4;
        team = warp / (R / 8) / (C / 4);
    }
    TILE_FUNCTION int turn() const { return team / PARTS; }

    TILE_FUNCTION bool has(unsigned groups, int j) const { /* the same for all lanes of a warp */
        constexpr bool SURE = all_groups() && SPAN % C == 0;
        return SURE || (groups >> ((C > 8 ? c / 8 : 0) + j * C / 8) & 1);
    }

    TILE_FUNCTION void multiply(const unsigned char *stage, unsigned groups) {
#pragma unroll
        for (int i = 0; i < 8 / PARTS; ++i) {
            int piece = team % PARTS + i * PARTS;
            const unsigned char *left = stage + swizzled(r, piece), *rights = stage + TILE_ROWS * 128;
            unsigned right = swizzled(c, piece);
            Piece a[HIGH];
#pragma unroll
            for (int y = 0; y < HIGH; ++y) a[y] = *(const Piece *)(left + y * R * 128);
#pragma unroll
            for (int x = 0; x < WIDE; ++x) {
                if (!has(groups, x)) continue;
                /* with four columns, every other row of b has the swizzle of the row four further */
                Piece b = *(const Piece *)(rights + (right ^ (C == 4 ? x % 2 * 64 : 0)) + x * C * 128);
#pragma unroll
                for (int k = 0; k < PIECE; ++k)
#pragma unroll
                    for (int y = 0; y < HIGH; ++y) sums[y][x] = fma(a[y].at[k], b.at[k], sums[y][x]);
            }
        }
    }
    TILE_FUNCTION void end() {}

    TILE_FUNCTION void store(REAL *to) const {
#pragma unroll
        for (int y = 0; y < HIGH; ++y)
#pragma unroll
            for (int x = 0; x < WIDE; ++x)
                if (c + x * C < SPAN) to[(team * TILE_ROWS + r + y * R) * PITCH + c + x * C] = sums[y][x];
    }
};

} /* namespace tile */

#endif
