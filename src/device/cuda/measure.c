/* The peak of a large product, and the bandwidth of a copy, of a GPU. */
#include "device/cuda/measure.h"
#include "device/cuda/engine/engine.h"
#include "device/cuda/kernels/kernels.h"

enum { SIZE = 8192, SIZE_DOUBLE = 4096, ROUNDS = 5, REPEATS = 4, CHOICES = 4 };

typedef struct {
    rcvi_cuda_blas *blas;
    rcvi_cuda_gemm *gemm;
    void *a, *b, *out, *workspace;
    cudaStream_t stream;
    cudaEvent_t begin, end;
} trial;

/* Numbers with many set bits: products of zeros are faster than those of data. */
static rcv_status fill_operands(const trial *t, const rcvi_cuda_gemm_shape *shape) {
    int64_t size = shape->rows;
    rcvi_matrix a = {.at = t->a, .row = size, .column = 1, .type = shape->a}, b = a;
    b.at = t->b;
    for (int64_t r = 0; r < size; r++) {
        rcvi_matrix row = a, other = b;
        row.at = (char *)a.at + r * size * (int64_t)rcvi_cuda_bytes(shape->a);
        other.at = (char *)b.at + r * size * (int64_t)rcvi_cuda_bytes(shape->a);
        double number = 0.37 + (double)(r * 7919 % 1009) / 1013;
        RCVI_CUDA_TRY(rcvi_cuda_fill(t->stream, 1, size, row, number), "filling a matrix");
        RCVI_CUDA_TRY(rcvi_cuda_fill(t->stream, 1, size, other, r % 2 ? -number : number), "filling a matrix");
    }
    return RCV_OK;
}

static rcv_status run_trial(trial *t, rcv_context *context, const rcvi_cuda_gemm_shape *shape, double *operations) {
    size_t bytes = (size_t)shape->rows * (size_t)shape->rows;
    RCVI_TRY(rcvi_cuda_blas_new(context, &t->blas));
    RCVI_TRY(rcvi_cuda_gemm_tune(t->blas, shape, CHOICES, 0.5, &t->gemm));
    RCVI_CUDA_TRY(cudaMalloc(&t->a, bytes * rcvi_cuda_bytes(shape->a)), "allocating a matrix");
    RCVI_CUDA_TRY(cudaMalloc(&t->b, bytes * rcvi_cuda_bytes(shape->b)), "allocating a matrix");
    RCVI_CUDA_TRY(cudaMalloc(&t->out, bytes * rcvi_cuda_bytes(shape->out)), "allocating a matrix");
    RCVI_CUDA_TRY(cudaMalloc(&t->workspace, RCVI_GEMM_WORKSPACE), "allocating a workspace");
    RCVI_CUDA_TRY(cudaStreamCreate(&t->stream), "creating a stream");
    RCVI_CUDA_TRY(cudaEventCreate(&t->begin), "creating an event");
    RCVI_CUDA_TRY(cudaEventCreate(&t->end), "creating an event");
    RCVI_TRY(fill_operands(t, shape));
    double size = (double)shape->rows, best = 0;
    for (int round = 0; round <= ROUNDS; round++) { /* the first round warms up */
        float took = 0;
        RCVI_CUDA_TRY(cudaEventRecord(t->begin, t->stream), "recording an event");
        for (int i = 0; i < REPEATS; i++)
            RCVI_TRY(rcvi_cuda_gemm_run(t->gemm, t->a, t->b, NULL, t->out, t->workspace, t->stream));
        RCVI_CUDA_TRY(cudaEventRecord(t->end, t->stream), "recording an event");
        RCVI_CUDA_TRY(cudaEventSynchronize(t->end), "running a product");
        RCVI_CUDA_TRY(cudaEventElapsedTime(&took, t->begin, t->end), "timing a product");
        double speed = 2 * size * size * size * REPEATS / (1e-3 * took);
        if (round > 0 && speed > best) best = speed;
    }
    *operations = best;
    return RCV_OK;
}

rcv_status rcvi_cuda_peak(rcv_context *context, int ordinal, rcv_dtype dtype, double *operations) {
    bool wide = dtype == RCV_FLOAT64;
    int64_t size = wide ? SIZE_DOUBLE : SIZE;
    rcvi_cuda_type real = wide ? RCVI_F64 : RCVI_F32;
    rcvi_cuda_type type = dtype == RCV_BFLOAT16 ? RCVI_BF16 : dtype == RCV_FLOAT16 ? RCVI_F16 : real;
    rcvi_cuda_gemm_shape shape = {.rows = size,
                                  .columns = size,
                                  .depth = size,
                                  .transpose_b = true,
                                  .a = type,
                                  .b = type,
                                  .out = real,
                                  .tensor = dtype == RCV_TFLOAT32,
                                  .row_a = size,
                                  .row_b = size,
                                  .row_out = size,
                                  .batch = 1};
    trial t = {0};
    int before = 0;
    rcvi_machine machine;
    *operations = 0;
    RCVI_TRY(rcvi_device_cuda.describe(context, ordinal, dtype, 1, &machine)); /* says what is missing */
    RCVI_TRY(rcvi_cuda_enter(ordinal, &before));
    rcv_status status = run_trial(&t, context, &shape, operations);
    void *const blocks[] = {t.a, t.b, t.out, t.workspace};
    if (t.stream) cudaStreamSynchronize(t.stream);
    for (int i = 0; i < 4; i++) cudaFree(blocks[i]);
    if (t.begin) cudaEventDestroy(t.begin);
    if (t.end) cudaEventDestroy(t.end);
    if (t.stream) cudaStreamDestroy(t.stream);
    rcvi_cuda_gemm_free(t.gemm);
    rcvi_cuda_blas_free(t.blas);
    rcvi_cuda_leave(before);
    return status;
}

/* ---- memory ---- */

enum { COPY_ROUNDS = 12 };

typedef struct {
    void *memory; /* a, b, c */
    cudaStream_t stream;
    cudaEvent_t begin, end;
} memory_trial;

static rcv_status run_memory(memory_trial *t, int reads, size_t bytes, double *bandwidth) {
    RCVI_CUDA_TRY(cudaMalloc(&t->memory, 3 * bytes), "allocating arrays");
    RCVI_CUDA_TRY(cudaMemset(t->memory, 0x3c, 3 * bytes), "filling arrays");
    RCVI_CUDA_TRY(cudaStreamCreate(&t->stream), "creating a stream");
    RCVI_CUDA_TRY(cudaEventCreate(&t->begin), "creating an event");
    RCVI_CUDA_TRY(cudaEventCreate(&t->end), "creating an event");
    char *a = t->memory, *b = reads == 2 ? a + bytes : NULL, *c = a + 2 * bytes;
    double best = 0;
    for (int round = 0; round <= COPY_ROUNDS; round++) { /* the first round warms up */
        float took = 0;
        RCVI_CUDA_TRY(cudaEventRecord(t->begin, t->stream), "recording an event");
        for (int i = 0; i < REPEATS; i++)
            RCVI_CUDA_TRY(rcvi_cuda_stream_copy(t->stream, bytes, a, b, c), "copying arrays");
        RCVI_CUDA_TRY(cudaEventRecord(t->end, t->stream), "recording an event");
        RCVI_CUDA_TRY(cudaEventSynchronize(t->end), "copying arrays");
        RCVI_CUDA_TRY(cudaEventElapsedTime(&took, t->begin, t->end), "timing a copy");
        double speed = (double)(reads + 1) * (double)bytes * REPEATS / (1e-3 * took);
        if (round > 0 && speed > best) best = speed;
    }
    *bandwidth = best;
    return RCV_OK;
}

rcv_status rcvi_cuda_bandwidth(rcv_context *context, int ordinal, int64_t threads, int reads, size_t bytes,
                               double *bandwidth) {
    (void)threads;
    int before = 0;
    rcvi_machine machine;
    RCVI_TRY(rcvi_device_cuda.describe(context, ordinal, RCV_FLOAT32, 1, &machine));
    RCVI_TRY(rcvi_cuda_enter(ordinal, &before));
    memory_trial t = {NULL, NULL, NULL, NULL};
    rcv_status status = run_memory(&t, reads, (bytes + 255) / 256 * 256, bandwidth);
    if (t.end) cudaEventDestroy(t.end);
    if (t.begin) cudaEventDestroy(t.begin);
    if (t.stream) cudaStreamDestroy(t.stream);
    if (t.memory) cudaFree(t.memory);
    rcvi_cuda_leave(before);
    return status;
}
