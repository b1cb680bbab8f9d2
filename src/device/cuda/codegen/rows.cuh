/* Kernel of a map with sums over its columns: a block has a whole row, a thread VECTOR columns of it. Threads beyond the
 * columns compute with the first ones, add nothing to sums and store nothing. */
extern "C" __global__ void __launch_bounds__(ROW_THREADS, ROW_THREADS < 512 ? 512 / ROW_THREADS : 1)
    map_kernel(const __grid_constant__ Words c) {
    const int member = (int)blockIdx.z, column = (int)threadIdx.x * VECTOR;
    const bool active = column < COLUMNS_OF(c);
    const long long rows = ROWS_OF(c, member);
    for (long long row = blockIdx.x; row < rows; row += gridDim.x) {
        apply(c, member, row, active ? column : 0, active);
        __syncthreads(); /* the next row's sums use the same memory */
    }
}
