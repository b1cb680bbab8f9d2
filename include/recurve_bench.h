/* Recurve: measuring. The speed of the machine, single products, and timelines of runs, for benchmarks. The conventions
 * are those of recurve.h. */
#ifndef RECURVE_BENCH_H
#define RECURVE_BENCH_H

#include "recurve.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what this machine has ---------------------------------------------------------------------------------------- */

/* A library that this one uses where it is there: opened at run time, but for oneDNN, which is linked. */
typedef struct {
    size_t size;
    const char *name, *use; /* "OpenBLAS"; what it is for */
    const char *version;    /* its name and version; NULL: it cannot be used */
    const char *reason;     /* why not; NULL where it can */
    bool
        absent; /* it is not installed, or this build does not use it; else, without a version, it is there and cannot be opened */
} rcv_library;

/* Thread-safe, both. Opens the library. Texts are valid until the process ends. RCV_INVALID past the end. */
RCV_API size_t rcv_library_count(void);
RCV_API rcv_status rcv_library_describe(size_t index, rcv_library *library);

/* The folder on disk for wisdom and compiled GPU kernels. */
typedef struct {
    size_t size;
    int64_t files, bytes; /* in it */
    int64_t most_bytes;   /* it is trimmed to so many */
    int64_t untrusted;    /* files that are not used, since other users could have written them */
    bool writable;        /* also where it is to be made */
} rcv_cache;

/* Thread-safe. *folder is NULL where nothing is cached; *problem is a sentence on the first untrusted file, or on a folder
 * that cannot be written, or NULL. Free both with rcv_text_free. */
RCV_API rcv_status rcv_cache_describe(rcv_context *context, rcv_cache *cache, char **folder, char **problem);

/* ---- the machine ------------------------------------------------------------------------------------------------- */

/* Thread-safe, all of them; each keeps the measured threads or device busy for up to a second. `device` may be NULL:
 * "cpu". `threads` 0: the context's number. */

/* Peak throughput: fused multiply-adds on registers, in operations per second; an upper limit for everything on these
 * threads. For RCV_BFLOAT16 by the bfloat16 unit if the kernels use one. */
RCV_API rcv_status rcv_measure_peak(rcv_context *context, rcv_dtype dtype, int64_t threads, double *operations);
/* The same of a GPU, reached by its library with large matrices; for the CPU, rcv_measure_peak with all threads. */
RCV_API rcv_status rcv_measure_device(rcv_context *context, const char *device, rcv_dtype dtype, double *operations);
/* Memory bandwidth in bytes per second of c[i] = a[i] (`reads` 1) or c[i] = a[i] + b[i] (`reads` 2) over arrays of
 * `bytes` bytes each. Reads and the write count; the fastest of several runs; on the CPU with non-temporal stores. */
RCV_API rcv_status rcv_measure_memory(rcv_context *context, const char *device, int64_t threads, int reads,
                                      size_t bytes, double *bandwidth);
/* Mean seconds of a barrier, from the arrival of the last thread to the departure of the last thread. */
RCV_API rcv_status rcv_measure_barrier(rcv_context *context, int64_t threads, double *seconds);

/* ---- matrix products --------------------------------------------------------------------------------------------- */

/* c[m, n] (+)= op(a) op(b) on the CPU, row-major; a is [m, k] ([k, m] if transposed), b is [k, n] ([n, k]). All float32
 * or float64; for RCV_BFLOAT16 all are float32, and a and b are rounded to bfloat16. */
typedef struct {
    size_t size;
    rcv_dtype dtype;
    bool transpose_a, transpose_b, accumulate;
    int64_t m, n, k;
    int64_t lda, ldb, ldc; /* elements from row to row; 0: rows are contiguous */
    int64_t threads;       /* 0: the context's number */
    bool packed_b;         /* b is packed by the first call and used again; see rcv_gemm_run */
} rcv_gemm_options;

/* Threads and scratch memory of one product, which is computed many times. One thread at a time, all functions with the
 * same object. */
typedef struct rcv_gemm rcv_gemm;
RCV_API rcv_status rcv_gemm_new(rcv_context *context, const rcv_gemm_options *options, rcv_gemm **gemm);
/* With packed_b, b is read by the first call and by the first call after rcv_gemm_repack, and may be NULL in others. c
 * overlaps neither a nor b, but they may be columns of one larger matrix. */
RCV_API rcv_status rcv_gemm_run(rcv_gemm *gemm, const void *a, const void *b, void *c);
RCV_API void rcv_gemm_repack(rcv_gemm *gemm);
RCV_API void rcv_gemm_free(rcv_gemm *gemm); /* NULL does nothing */

/* OpenBLAS as the library uses it, to compare with: c = alpha op(a) op(b) + beta c. The values are those of CBLAS. */
typedef enum { RCV_BLAS_ROW_MAJOR = 101 } rcv_blas_order;
typedef enum { RCV_BLAS_AS_STORED = 111, RCV_BLAS_TRANSPOSED = 112 } rcv_blas_operation;

typedef struct {
    size_t size;
    const char *config, *core; /* version and build; the processor that it chose its kernels for. Static texts */
    void (*set_threads)(int threads);
    int (*get_threads)(void);
    void (*sgemm)(rcv_blas_order order, rcv_blas_operation op_a, rcv_blas_operation op_b, int m, int n, int k,
                  float alpha, const float *a, int lda, const float *b, int ldb, float beta, float *c, int ldc);
    void (*dgemm)(rcv_blas_order order, rcv_blas_operation op_a, rcv_blas_operation op_b, int m, int n, int k,
                  double alpha, const double *a, int lda, const double *b, int ldb, double beta, double *c, int ldc);
} rcv_openblas;

/* Thread-safe. RCV_UNSUPPORTED, with the reason, where no OpenBLAS with 32-bit integers is found. RECURVE_OPENBLAS of the
 * environment is the path of one, or "off". The functions are valid until the process ends. */
RCV_API rcv_status rcv_openblas_open(rcv_openblas *openblas);

/* ---- timelines --------------------------------------------------------------------------------------------------- */

/* One piece of work of a call. */
typedef struct {
    int worker;        /* thread, from 0 */
    int layer;         /* -1: not of one layer */
    bool reverse;      /* the layer's reverse direction */
    bool backward;     /* pass */
    int64_t iteration; /* time step in the order of the direction; -1 outside of the recurrence */
    const char *what;  /* kind of work: gemm, map, ... Static text */
    double begin, end; /* seconds since the call began */
} rcv_event;

/* One thread at a time with the same run. Following calls record at most `capacity` events into `events`, which must
 * stay valid until then; NULL ends recording. */
RCV_API rcv_status rcv_run_trace(rcv_run *run, rcv_event *events, size_t capacity);
RCV_API size_t rcv_run_trace_count(const rcv_run *run); /* events recorded, at most the capacity */

#ifdef __cplusplus
}
#endif

#endif
