/* Splits a matrix into bfloat16 parts: split.h. `convert` rounds a float to the nearest bfloat16, and converts back. */
#ifndef RCVI_CUDA_SPLIT_CUH
#define RCVI_CUDA_SPLIT_CUH

#include "device/cuda/kernels/split.h"

namespace rcvi {

/* Elements column .. column + 7 of a row, zeros where there are none. */
__device__ inline void load_piece(const rcvi_split &m, int64_t row, int64_t column, float (&x)[RCVI_SPLIT_PIECE]) {
    const float *from = m.from + row * m.row + column;
#pragma unroll
    for (int i = 0; i < RCVI_SPLIT_PIECE; i++) x[i] = 0;
    if (row >= m.rows) return;
#pragma unroll
    for (int i = 0; i < RCVI_SPLIT_PIECE && m.by_four; i += 4) {
        if (column + i >= m.columns) continue;
        const float4 some = *reinterpret_cast<const float4 *>(from + i);
        x[i] = some.x, x[i + 1] = some.y, x[i + 2] = some.z, x[i + 3] = some.w;
    }
#pragma unroll
    for (int i = 0; i < RCVI_SPLIT_PIECE && !m.by_four; i++) {
        if (column + i < m.columns) x[i] = from[i];
    }
}

/* Pieces first, first + step, ... INDEX counts them: a division of 64 bits takes longer than all the rest. */
template <typename NARROW, typename INDEX>
__device__ inline void split_pieces(const rcvi_split &m, INDEX first, INDEX step) {
    const INDEX across = (INDEX)(m.wide / RCVI_SPLIT_PIECE), count = (INDEX)m.high * across;
    for (INDEX n = first; n < count; n += step) {
        const int64_t row = n / across, column = (int64_t)(n % across) * RCVI_SPLIT_PIECE;
        float x[RCVI_SPLIT_PIECE];
        load_piece(m, row, column, x);
        for (int part = 0; part < m.parts; part++) {
            alignas(16) NARROW element[RCVI_SPLIT_PIECE];
#pragma unroll
            for (int i = 0; i < RCVI_SPLIT_PIECE; i++) {
                float rounded;
                convert(x[i], element[i]);
                convert(element[i], rounded);
                x[i] -= rounded;
            }
            const int64_t place = m.reversed ? m.parts - 1 - part : part;
            __stwb(reinterpret_cast<uint4 *>(m.to + place * m.to_part + row * m.to_row + column),
                   *reinterpret_cast<const uint4 *>(element)); /* = may be split into smaller stores */
        }
    }
}

} // namespace rcvi

#endif
