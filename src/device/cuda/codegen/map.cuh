/* A map without products: a thread takes VECTOR elements of a row, a block 8 rows of 32 * VECTOR elements. Follows
 * the text that is written from the map. */
extern "C" __global__ void __launch_bounds__(256) map_kernel(const __grid_constant__ Words c) {
    int member = blockIdx.z;
    long long rows = ROWS_OF(c, member), step = (long long)gridDim.y * 8;
    long long column = ((long long)blockIdx.x * 32 + threadIdx.x % 32) * VECTOR;
    if (column >= COLUMNS_OF(c)) return;
    for (long long row = (long long)blockIdx.y * 8 + threadIdx.x / 32; row < rows; row += step)
        apply(c, member, row, (int)column);
}
