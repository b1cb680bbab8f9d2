/* The fastest of cuBLASLt's algorithms for a shape. Each is repeated in a graph, as plans run it; the median of several such rounds
 * counts. */
#include "device/cuda/gemm/gemm.h"
#include "device/cuda/gemm/tuning.h"

#include <math.h>

enum { SAMPLE_WORDS = 2048 };

/* Data and stream of the trials. */
typedef struct {
    rcvi_cuda_gemm_shape shape;
    cudaStream_t stream;
    cudaEvent_t start, stop;
    void *a, *b, *out, *workspace;
} bench;

/* ---- data ---- */

/* Random numbers of both signs and of magnitude about 1: products of zeros take less power, and so less time. */
static uint64_t draw(rcvi_cuda_type type, uint64_t *state) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    uint64_t bits = *state ^ *state >> 29;
    switch (type) { /* random signs and fractions, fixed exponents */
    case RCVI_F64: return (bits & UINT64_C(0x800fffffffffffff)) | UINT64_C(0x3fe0000000000000);
    case RCVI_F32: return (bits & UINT64_C(0x807fffff807fffff)) | UINT64_C(0x3f0000003f000000);
    case RCVI_BF16: return (bits & UINT64_C(0x807f807f807f807f)) | UINT64_C(0x3f003f003f003f00);
    default: return (bits & UINT64_C(0x83ff83ff83ff83ff)) | UINT64_C(0x3800380038003800);
    }
}

/* Memory of [rows, columns] with its batch, filled with repeated copies of a sample. */
static rcv_status make_data(const bench *bench, rcvi_cuda_type type, int64_t rows, int64_t columns, int64_t row,
                            int64_t step, void **data) {
    uint64_t sample[SAMPLE_WORDS], state = 88172645463325252u;
    int64_t count = (rows - 1) * row + columns + (bench->shape.batch - 1) * step;
    size_t bytes = (size_t)count * rcvi_cuda_bytes(type), have = bytes < sizeof sample ? bytes : sizeof sample;
    for (int i = 0; i < SAMPLE_WORDS; i++) sample[i] = draw(type, &state);
    RCVI_CUDA_TRY(cudaMalloc(data, bytes), "memory for trials of a product");
    RCVI_CUDA_TRY(cudaMemcpyAsync(*data, sample, have, cudaMemcpyHostToDevice, bench->stream), "filling an operand");
    RCVI_CUDA_TRY(cudaStreamSynchronize(bench->stream), "filling an operand"); /* the sample is on this stack */
    while (have < bytes) {
        size_t more = have < bytes - have ? have : bytes - have;
        RCVI_CUDA_TRY(cudaMemcpyAsync((char *)*data + have, *data, more, cudaMemcpyDeviceToDevice, bench->stream),
                      "filling an operand");
        have += more;
    }
    return RCV_OK;
}

static rcv_status set_up(bench *b) {
    const rcvi_cuda_gemm_shape *s = &b->shape;
    int64_t a_rows = s->transpose_a ? s->depth : s->rows, a_columns = s->transpose_a ? s->rows : s->depth;
    int64_t b_rows = s->transpose_b ? s->columns : s->depth, b_columns = s->transpose_b ? s->depth : s->columns;
    int64_t out_rows = s->transpose_out ? s->columns : s->rows, out_columns = s->transpose_out ? s->rows : s->columns;
    RCVI_CUDA_TRY(cudaStreamCreateWithFlags(&b->stream, cudaStreamNonBlocking), "a stream for trials");
    RCVI_CUDA_TRY(cudaEventCreate(&b->start), "an event for trials");
    RCVI_CUDA_TRY(cudaEventCreate(&b->stop), "an event for trials");
    RCVI_CUDA_TRY(cudaMalloc(&b->workspace, RCVI_GEMM_WORKSPACE), "memory for trials of a product");
    RCVI_TRY(make_data(b, s->a, a_rows, a_columns, s->row_a, s->step_a, &b->a));
    RCVI_TRY(make_data(b, s->b, b_rows, b_columns, s->row_b, s->step_b, &b->b));
    return make_data(b, s->out, out_rows, out_columns, s->row_out, s->step_out, &b->out);
}

static void tear_down(bench *b) {
    if (b->stream) (void)cudaStreamSynchronize(b->stream);
    void *memory[] = {b->a, b->b, b->out, b->workspace};
    for (int i = 0; i < 4; i++) (void)cudaFree(memory[i]);
    if (b->start) (void)cudaEventDestroy(b->start);
    if (b->stop) (void)cudaEventDestroy(b->stop);
    if (b->stream) (void)cudaStreamDestroy(b->stream);
    (void)cudaGetLastError();
}

/* ---- time ---- */

static rcv_status run_once(const bench *b, const rcvi_cuda_gemm *gemm) {
    return rcvi_cuda_gemm_run(gemm, b->a, b->b, NULL, b->out, b->workspace, b->stream);
}

/* Seconds from `start`, recorded before, to now. */
static rcv_status stop_clock(const bench *b, double *seconds) {
    float milliseconds = 0;
    RCVI_CUDA_TRY(cudaEventRecord(b->stop, b->stream), "a trial of a product");
    RCVI_CUDA_TRY(cudaEventSynchronize(b->stop), "a trial of a product");
    RCVI_CUDA_TRY(cudaEventElapsedTime(&milliseconds, b->start, b->stop), "a trial of a product");
    *seconds = (double)milliseconds * 1e-3;
    return RCV_OK;
}

/* `repeats` products as one graph. */
static rcv_status record(const bench *b, const rcvi_cuda_gemm *gemm, int repeats, cudaGraphExec_t *ready) {
    cudaGraph_t graph = NULL;
    rcv_status status = RCV_OK;
    RCVI_CUDA_TRY(cudaStreamBeginCapture(b->stream, cudaStreamCaptureModeThreadLocal), "a trial of a product");
    for (int i = 0; i < repeats && status == RCV_OK; i++) status = run_once(b, gemm);
    cudaError_t error = cudaStreamEndCapture(b->stream, &graph);
    if (status == RCV_OK) status = rcvi_cuda_check(error, "a trial of a product");
    if (status == RCV_OK) status = rcvi_cuda_check(cudaGraphInstantiate(ready, graph, 0), "a trial of a product");
    if (graph) (void)cudaGraphDestroy(graph);
    return status;
}

/* Median seconds of a round. */
static rcv_status time_rounds(const bench *b, cudaGraphExec_t graph, double *median) {
    double times[RCVI_TUNED_ROUNDS];
    RCVI_CUDA_TRY(cudaGraphLaunch(graph, b->stream), "a trial of a product");
    for (int i = 0; i < RCVI_TUNED_ROUNDS; i++) {
        double seconds = 0;
        RCVI_CUDA_TRY(cudaEventRecord(b->start, b->stream), "a trial of a product");
        RCVI_CUDA_TRY(cudaGraphLaunch(graph, b->stream), "a trial of a product");
        RCVI_TRY(stop_clock(b, &seconds));
        int k = i;
        for (; k > 0 && times[k - 1] > seconds; k--) times[k] = times[k - 1];
        times[k] = seconds;
    }
    *median = times[RCVI_TUNED_ROUNDS / 2];
    return RCV_OK;
}

/* Seconds of one product. */
static rcv_status time_one(const bench *b, const rcvi_cuda_gemm *gemm, double *seconds) {
    double once = 0;
    RCVI_TRY(run_once(b, gemm)); /* loads the kernel */
    RCVI_CUDA_TRY(cudaEventRecord(b->start, b->stream), "a trial of a product");
    RCVI_TRY(run_once(b, gemm));
    RCVI_TRY(stop_clock(b, &once));
    int repeats = once > 0 && RCVI_TUNED_ROUND_SECONDS / once < RCVI_TUNED_REPEATS
                      ? (int)(RCVI_TUNED_ROUND_SECONDS / once)
                      : RCVI_TUNED_REPEATS;
    if (repeats < 1) repeats = 1;
    cudaGraphExec_t graph = NULL;
    RCVI_TRY(record(b, gemm, repeats, &graph));
    rcv_status status = time_rounds(b, graph, seconds);
    (void)cudaGraphExecDestroy(graph);
    *seconds /= repeats;
    return status;
}

/* Replaces *best, algorithm 0, by the fastest of algorithms 1 .. choices - 1 where that is faster. One that fails is skipped. */
static void try_all(const bench *b, rcvi_cuda_blas *blas, int choices, double until, rcvi_cuda_gemm **best) {
    double fastest = INFINITY;
    if (time_one(b, *best, &fastest) != RCV_OK) fastest = INFINITY;
    for (int i = 1; i < choices && rcvi_now() < until; i++) {
        rcvi_cuda_gemm *next = NULL;
        double seconds = INFINITY;
        if (rcvi_cuda_gemm_new(blas, &b->shape, i, &next) != RCV_OK) return; /* there are no more */
        if (time_one(b, next, &seconds) == RCV_OK && seconds < fastest) {
            rcvi_cuda_gemm *slower = *best;
            *best = next;
            next = slower;
            fastest = seconds;
        }
        rcvi_cuda_gemm_free(next);
    }
}

rcv_status rcvi_cuda_gemm_tune(rcvi_cuda_blas *blas, const rcvi_cuda_gemm_shape *shape, int choices, double seconds,
                               rcvi_cuda_gemm **gemm) {
    double until = rcvi_now() + seconds;
    bench bench = {.shape = *shape};
    if (bench.shape.batch < 1) bench.shape.batch = 1;
    RCVI_TRY(rcvi_cuda_gemm_new(blas, shape, 0, gemm));
    if (choices < 2 || shape->rows <= 0 || shape->columns <= 0 || shape->depth <= 0) return RCV_OK;
    /* Without memory for trials the library's first choice is used. */
    if (set_up(&bench) == RCV_OK) try_all(&bench, blas, choices, until, gemm);
    tear_down(&bench);
    return RCV_OK;
}
