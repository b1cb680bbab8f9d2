/* Adds up the sums of tiles, [tiles, channels], in order. Follows scan.cuh. */

#if FORM_SUM
extern "C" __global__ void sum_kernel(const REAL *parts, long long tiles, long long channels, REAL *sum) {
    begin_kernel();
    long long c = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= channels) return;
    REAL x = sum[c];
    for (long long tile = 0; tile < tiles; tile++) x += parts[tile * channels + c];
    sum[c] = x;
}
#endif
