/* Products of a tile in float32, by multiply-adds of threads. Follows kernel/weights.cuh in place of kernel/products_mma.cuh where EXACT;
 * kernel/fma.cuh has the multiply-adds themselves. */

template <class Task, int PIPE> struct TileProducts : ProductInputs<Task, PIPE> {
    using Base = ProductInputs<Task, PIPE>;
    using Base::FIRST_IN_SHARED, Base::STARTED;
    using Base::GROUPS, Base::RING, Base::IN_REGISTERS, Base::IN_SHARED, Base::BEFORE, Base::FIRST_IN_REGISTERS;
    using Base::row_of, Base::own_split, Base::chunk_at, Base::wait_for_group, Base::release, Base::is_in_registers;
    using Base::shared, Base::thread, Base::warp, Base::a, Base::starts, Base::ring, Base::bank_shift;

    INLINE TileProducts(const Block &block) : Base(block) {}

    using Sums = float[4 * EXACT_ROWS];

    INLINE void begin(Sums &sums) const {
#pragma unroll
        for (int n = 0; n < 4 * EXACT_ROWS; n++) sums[n] = 0;
    }

    template <int G, int C> INLINE void multiply_chunk(Sums &sums) {
        if constexpr (C < Task::group_chunks(PIPE, G)) {
            constexpr int CHUNK = Task::group_before(PIPE, G) + C;
            const unsigned stored = CHUNK < IN_REGISTERS + IN_SHARED ? shared.weights(BEFORE + CHUNK - FIRST_IN_SHARED)
                                                                     : shared.copied_weights(PIPE, ring.slot(G), C);
            float w[4][4];
#pragma unroll
            for (int r = 0; r < 4; r++) {
                if constexpr (is_in_registers(CHUNK)) {
#pragma unroll
                    for (int k = 0; k < 4; k++) w[r][k] = __uint_as_float(a[(CHUNK - FIRST_IN_REGISTERS) * 4 + r][k]);
                } else {
                    read_four(stored + swizzled(row_of(r), thread % 8), w[r]);
                }
            }
            multiply_add<EXACT_ROWS>(sums, w, chunk_at(G, C) + (unsigned)(own_split() * TILE_ROWS * 128), thread % 8);
            multiply_chunk<G, C + 1>(sums);
        }
    }

    template <int G> INLINE void multiply_group(Sums &sums) {
        if constexpr (G < GROUPS) {
            if (G > 0) wait_for_group(G);
            multiply_chunk<G, 0>(sums);
            __syncwarp();
            release(ring.slot(G));
            multiply_group<G + 1>(sums);
        }
    }

    INLINE void end(Sums &) const {}

    INLINE void write_sums(unsigned to, Sums &sums) const {
        constexpr int COUNT = EXACT_ROWS > 2 ? EXACT_ROWS / 2 : 1;
        const int first = add_up<4 * EXACT_ROWS>(sums, thread % 8);
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            const int n = (first + i) / 4, r = (first + i) % 4;
            const float start = r == 0 ? starts[0] : r == 1 ? starts[1] : r == 2 ? starts[2] : starts[3];
            const int row = own_split() * TILE_ROWS + n;
            const unsigned at = to + (unsigned)((row * 64 + (row_of(r) ^ bank_shift(row))) * 4);
            if (first < 0) continue;
            asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(STARTED ? sums[i] + start : sums[i]) : "memory");
        }
    }
};
