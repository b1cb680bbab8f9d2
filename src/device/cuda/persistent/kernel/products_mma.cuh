/* Products of a tile by tensor cores: wgmma of a warpgroup, or, for tiles of 8 rows, mma.sync of each warp. Follows kernel/weights.cuh.
 *
 * A float32 may be PARTS bfloat16 whose sum is nearly that number: operands and weights then have a chunk for every part, and part p of an
 * operand is multiplied by the first PARTS - p parts of the weights. */

template <class Task, int PIPE> struct TileProducts : ProductInputs<Task, PIPE> {
    using Base = ProductInputs<Task, PIPE>;
    using Base::FIRST_IN_SHARED, Base::STARTED;
    using Base::GROUPS, Base::RING, Base::IN_REGISTERS, Base::IN_SHARED, Base::BEFORE, Base::FIRST_IN_REGISTERS;
    using Base::row_of, Base::recompute_addresses, Base::own_split, Base::chunk_at, Base::wait_for_group, Base::release,
        Base::is_in_registers;
    using Base::shared, Base::thread, Base::warp, Base::a, Base::starts, Base::ring, Base::bank_shift;
    using Weight = typename Base::Weight;

    INLINE TileProducts(const Block &block) : Base(block) {}

    /* Tiles of 8 rows are multiplied by warps if all rows of weights of a warp are of one depth split. Every element has four sums, so that
     * instructions do not wait for each other; they are added at the end. */
    static constexpr bool WARP_MMA = TILE_ROWS == 8 && (PIPE_SPLITS == 1 || Task::UNITS * Task::UNIT_ROWS % 16 == 0);
    static constexpr int SUMS = WARP_MMA ? 16 : PIPE_N / 2;

    /* Tensor cores truncate a sum, instead of rounding it, at each addition. So with three parts the small products have sums of their own. */
    struct Sums {
        float all[SUMS], small[PARTS > 2 ? SUMS : 1];
    };

    INLINE void begin(Sums &sums) const {
#pragma unroll
        for (int n = 0; n < SUMS; n++) {
            sums.all[n] = STARTED && (!WARP_MMA || n < 4) ? starts[n / 2 % 2] : 0;
            if constexpr (WARP_MMA && PARTS > 2) sums.small[n] = 0;
        }
    }

    /* Multiplies a chunk of the operand by the warp's rows of weights: `weights` loads those of 32 bytes of depth. */
    template <class F> INLINE void multiply_by_warp(float (&sums)[SUMS], unsigned chunk, F weights) const {
#pragma unroll
        for (int half = 0; half < 2; half++) {
            unsigned b[4];
            load_matrices(
                chunk + (unsigned)(own_split() * TILE_ROWS * 128) + swizzled(thread % 8, half * 4 + thread / 8), b);
#pragma unroll
            for (int j = half * 2; j < half * 2 + 2; j++) {
                unsigned w[4];
                weights(j, w);
                multiply_rows(sums + 4 * j % SUMS, w, b[j % 2 * 2], b[j % 2 * 2 + 1]);
            }
        }
    }

    /* The same with weights in shared memory. */
    INLINE void multiply_by_warp_shared(float (&sums)[SUMS], unsigned chunk, unsigned stored) const {
        const int row = warp * 16 + thread / 8 % 2 * 8 + thread % 8;
        multiply_by_warp(sums, chunk, [&](int j, unsigned(&w)[4]) {
            load_matrices(stored + swizzled(row, j * 2 + thread / 16), w);
        });
    }

    /* Multiplies chunk C of group G by chunk W of the weights, both counted in the group. `begun`: the sums are not new. */
    template <int G, int C, int W> INLINE void multiply_with(float (&sums)[SUMS], bool begun) {
        constexpr int CHUNK = Task::group_before(PIPE, G) + W;
        if constexpr (WARP_MMA && is_in_registers(CHUNK)) {
            multiply_by_warp(sums, chunk_at(G, C), [&](int j, unsigned(&w)[4]) {
#pragma unroll
                for (int r = 0; r < 4; r++) w[r] = a[(CHUNK - FIRST_IN_REGISTERS) * 4 + j][r];
            });
            return;
        } else if constexpr (WARP_MMA) {
            multiply_by_warp_shared(sums, chunk_at(G, C),
                                    CHUNK < IN_REGISTERS + IN_SHARED ? shared.weights(BEFORE + CHUNK - FIRST_IN_SHARED)
                                                                     : shared.copied_weights(PIPE, ring.slot(G), W));
            return;
        } else {
            const unsigned chunk = chunk_at(G, C);
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int more = begun || j > 0;
                const unsigned long long b = shared.descriptor(chunk, j);
                if constexpr (is_in_registers(CHUNK))
                    multiply(sums, a[(CHUNK - FIRST_IN_REGISTERS) * 4 + j], b, more);
                else if constexpr (CHUNK < IN_REGISTERS + IN_SHARED)
                    multiply(sums, shared.descriptor(shared.weights(BEFORE + CHUNK - FIRST_IN_SHARED), j), b, more);
                else
                    multiply(sums, shared.descriptor(shared.copied_weights(PIPE, ring.slot(G), W), j), b, more);
            }
        }
    }

    /* Multiplies part p of an operand by the first PARTS - p parts of the weights; other products are negligible. A group has all parts. */
    template <int G, int C, int P = 0> INLINE void multiply_chunk(Sums &sums) {
        if constexpr (C < Task::group_chunks(PIPE, G)) {
            constexpr int BEFORE_GROUP = Task::group_before(PIPE, G), PART = C % PARTS;
            static_assert(BEFORE_GROUP % PARTS == 0 && Task::group_chunks(PIPE, G) % PARTS == 0, "whole parts");
            if constexpr (PARTS > 2 && PART + P > 0)
                multiply_with<G, C, C - PART + P>(sums.small, BEFORE_GROUP + C > 0 || P > 1);
            else
                multiply_with<G, C, C - PART + P>(sums.all, STARTED || BEFORE_GROUP + C > 0 || P > 0);
            if constexpr (PART + P + 1 < PARTS)
                multiply_chunk<G, C, P + 1>(sums);
            else
                multiply_chunk<G, C + 1>(sums);
        }
    }

    /* The first group from which on all weights are streamed. One loop serves these, which takes less time to compile than unrolled code. */
    static INLINE constexpr int first_streamed() {
        int g = 1;
        while (g < GROUPS && Task::group_before(PIPE, g) < IN_REGISTERS + IN_SHARED) g++;
        return g;
    }
    static INLINE constexpr bool are_even() {
        for (int g = first_streamed(); g < GROUPS; g++)
            if (Task::group_chunks(PIPE, g) != GROUP) return false;
        return true;
    }

    /* As multiply_chunk, for slot n, a group of so many chunks. */
    template <int C, int P = 0> INLINE void multiply_streamed(Sums &sums, int n, int chunks) {
        if constexpr (C < GROUP) {
            constexpr int PART = C % PARTS;
            if (PART + P == 0 && C >= chunks) return;
            const unsigned chunk = shared.chunk(PIPE, n, C), stored = shared.copied_weights(PIPE, n, C - PART + P);
            if constexpr (WARP_MMA && PARTS > 2 && PART + P > 0) {
                multiply_by_warp_shared(sums.small, chunk, stored);
            } else if constexpr (WARP_MMA) {
                multiply_by_warp_shared(sums.all, chunk, stored);
            } else {
#pragma unroll
                for (int j = 0; j < 4; j++) {
                    const unsigned long long w = shared.descriptor(stored, j), b = shared.descriptor(chunk, j);
                    if constexpr (PARTS > 2 && PART + P > 0)
                        multiply(sums.small, w, b, 1);
                    else
                        multiply(sums.all, w, b, 1);
                }
            }
            if constexpr (PART + P + 1 < PARTS)
                multiply_streamed<C, P + 1>(sums, n, chunks);
            else
                multiply_streamed<C + 1>(sums, n, chunks);
        }
    }

    INLINE void multiply_streamed_groups(Sums &sums) {
#pragma unroll 1
        for (int g = first_streamed(); g < GROUPS; g++) {
            const int n = ring.slot(g);
            barrier_wait(shared.full(PIPE, n), ring.parity(g));
            if (!WARP_MMA) warpgroup_fence();
            multiply_streamed<0>(sums, n, are_even() ? GROUP : Task::group_chunks(PIPE, g));
            if (WARP_MMA) {
                __syncwarp();
                release(n);
                continue;
            }
            warpgroup_commit();
            if (RING > 1) {
                warpgroup_wait<1>();
                release(ring.slot(g - 1));
            } else if (g + 1 < GROUPS) {
                warpgroup_wait<0>();
                release(0);
            }
        }
    }

    template <int G> INLINE void multiply_group(Sums &sums) {
        if constexpr (G < GROUPS && G >= first_streamed()) {
            multiply_streamed_groups(sums);
        } else if constexpr (G < GROUPS) {
            recompute_addresses();
            if (G > 0) wait_for_group(G);
            if (!WARP_MMA) warpgroup_fence();
            multiply_chunk<G, 0>(sums);
            if (!WARP_MMA) warpgroup_commit();
            if constexpr (CLUSTER) {
                /* the whole operand has arrived, and nothing is overwritten */
            } else if constexpr (WARP_MMA) {
                __syncwarp();
                release(ring.slot(G));
            } else if constexpr (RING == 1 && G + 1 < GROUPS) { /* the next group needs this slot */
                warpgroup_wait<0>();
                release(0);
            } else if constexpr (RING > 1 && G > 0) {
                warpgroup_wait<1>();
                release(ring.slot(G - 1));
            }
            multiply_group<G + 1>(sums);
        }
    }

    INLINE void end(Sums &sums) {
        if constexpr (WARP_MMA) {
#pragma unroll
            for (int n = 0; n < 4; n++) {
                sums.all[n] = (sums.all[n] + sums.all[n + 4]) + (sums.all[n + 8] + sums.all[n + 12]);
                if constexpr (PARTS > 2)
                    sums.all[n] += (sums.small[n] + sums.small[n + 4]) + (sums.small[n + 8] + sums.small[n + 12]);
            }
            return;
        }
        warpgroup_wait<0>();
        release(ring.slot(GROUPS - 1));
#pragma unroll
        for (int n = 0; n < SUMS; n++) {
            asm volatile("" : "+f"(sums.all[n])::"memory");
            if constexpr (PARTS > 2) {
                asm volatile("" : "+f"(sums.small[n])::"memory");
                sums.all[n] += sums.small[n];
            }
        }
    }

    INLINE void write_sums(unsigned to, const Sums &sums) const {
        if (WARP_MMA) to += (unsigned)(own_split() * 2048);
#pragma unroll
        for (int j = 0; j < (WARP_MMA ? 1 : PIPE_N / 8); j++) {
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int n = thread % 4 * 2 + e % 2; /* plus 8 j: the bank shift has a period of 8 rows */
                unsigned at = to + (unsigned)((n * 64 + (row_of(e / 2) ^ bank_shift(n))) * 4) + (unsigned)(j * 2048);
                write_sum(at, sums.all[j * 4 + e],
                          PIPE_SPLITS == 1 || WARP_MMA || Weight(row_of(e / 2)).split == 8 * j / TILE_ROWS);
            }
        }
    }
};
