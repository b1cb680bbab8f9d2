/* The three matrix products of a recurrent layer over batch sizes: recurve in two types, and OpenBLAS. */
#include "bench/experiments.h"
#include "bench/openblas/openblas.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct {
    rcv_gemm *gemm; /* NULL: OpenBLAS */
    rcv_gemm_options options;
    const float *a, *b;
    float *c;
} product;

static double run_product(implementation *self, int64_t repeats) {
    product *product = self->state;
    const rcv_gemm_options *options = &product->options;
    if (product->gemm == NULL) {
        openblas()->set_threads((int)options->threads);
    }
    const double start = now();
    for (int64_t i = 0; i < repeats; i++) {
        if (product->gemm == NULL) {
            openblas()->sgemm(RCV_BLAS_ROW_MAJOR, options->transpose_a ? RCV_BLAS_TRANSPOSED : RCV_BLAS_AS_STORED,
                              options->transpose_b ? RCV_BLAS_TRANSPOSED : RCV_BLAS_AS_STORED, (int)options->m,
                              (int)options->n, (int)options->k, 1, product->a,
                              (int)(options->transpose_a ? options->m : options->k), product->b,
                              (int)(options->transpose_b ? options->k : options->n), 0, product->c, (int)options->n);
        } else if (rcv_gemm_run(product->gemm, product->a, product->b, product->c) != RCV_OK) {
            implementation_refuse(self, "%s", rcv_message());
            return -1;
        }
    }
    const double seconds = now() - start;
    if (product->gemm == NULL) {
        openblas()->set_threads(1);
    }
    return seconds;
}

static void close_product(implementation *self) {
    product *product = self->state;
    rcv_gemm_free(product->gemm);
    free(product->c);
    free(product);
}

static rcv_gemm_options shape_of(const problem *problem, int variant, int64_t batch) {
    const int64_t h = problem->network.net.hidden, g = 4 * h;
    rcv_gemm_options options =
        RCV_INIT(rcv_gemm_options, .m = batch, .threads = problem_threads(problem), .packed_b = variant != 2);
    options.n = variant == 0 ? g : h;
    options.k = variant == 0 ? h : g;
    if (variant == 2) {
        options.m = g;
        options.k = batch;
    }
    options.transpose_a = variant == 2;
    options.transpose_b = variant == 0;
    return options;
}

static void add_product(comparison *comparison, const problem *problem, int variant, int64_t batch, int who,
                        const float *a, const float *b) {
    implementation *added = comparison_add(comparison, gemm_implementations[who]);
    product *product = need(1, sizeof *product);
    product->options = shape_of(problem, variant, batch);
    product->options.dtype = who == GEMM_BFLOAT ? RCV_BFLOAT16 : RCV_FLOAT32;
    product->a = a;
    product->b = b;
    product->c = need((size_t)(product->options.m * product->options.n), sizeof(float));
    added->state = product;
    added->run = run_product;
    added->close = close_product;
    added->keeps_threads_busy = who == GEMM_OPENBLAS;
    added->measured.operations =
        2. * (double)product->options.m * (double)product->options.n * (double)product->options.k;
    bool there = who == GEMM_OPENBLAS ? openblas() != NULL
                                      : rcv_gemm_new(problem->context, &product->options, &product->gemm) == RCV_OK;
    if (!there) {
        implementation_refuse(added, "%s", rcv_message());
    }
}

static const float *result_of(const comparison *comparison, int who) {
    return ((const product *)comparison->items[who].state)->c;
}

static void measure_point(const bench *bench, gemm_curve *curve, int variant, int size, const float *w, const float *x,
                          const float *d) {
    const problem *problem = &bench->problem;
    const float *const left[] = {x, d, d}, *const right[] = {w, w, x};
    comparison comparison = {.count = 0};
    for (int who = 0; who < GEMM_IMPLEMENTATIONS; who++) {
        add_product(&comparison, problem, variant, batch_sizes[size], who, left[variant], right[variant]);
    }
    char title[64];
    snprintf(title, sizeof title, "gemm %s, batch size %lld", gemm_variants[variant], (long long)batch_sizes[size]);
    comparison_measure(&comparison, problem, NULL, NULL, title, bench->seconds / (CPU_BATCH_SIZES * GEMM_VARIANTS), 5);
    for (int who = 0; who < GEMM_IMPLEMENTATIONS; who++) {
        const measurement *item = &comparison.items[who].measured;
        curve->speed[variant][who][size] = item->median > 0 ? item->operations / item->median : 0;
        if (item->refusal != NULL && curve->refusal == NULL) {
            curve->refusal = text_of("%s: %s", item->name, item->refusal);
        }
    }
    if (comparison.items[GEMM_FLOAT].measured.median > 0 && comparison.items[GEMM_OPENBLAS].measured.median > 0) {
        const rcv_gemm_options options = shape_of(problem, variant, batch_sizes[size]);
        curve->difference =
            fmax(curve->difference, relative_difference(RCV_FLOAT32, result_of(&comparison, GEMM_FLOAT),
                                                        result_of(&comparison, GEMM_OPENBLAS), options.m * options.n));
    }
    comparison_free(&comparison);
}

void bench_gemm(const bench *bench, results *results) {
    const int64_t hidden = bench->problem.network.net.hidden, most = batch_sizes[CPU_BATCH_SIZES - 1];
    float *w = need((size_t)(4 * hidden * hidden), sizeof(float)), *x = need((size_t)(most * hidden), sizeof(float)),
          *d = need((size_t)(most * 4 * hidden), sizeof(float));
    fill_random(RCV_FLOAT32, w, 4 * hidden * hidden, 1, bench->seed + 1);
    fill_random(RCV_FLOAT32, x, most * hidden, 1, bench->seed + 2);
    fill_random(RCV_FLOAT32, d, most * 4 * hidden, 1, bench->seed + 3);
    results->gemm.difference = NAN;
    const rcv_dtype types[] = {RCV_FLOAT32, RCV_BFLOAT16};
    for (size_t i = 0; i < COUNT(types); i++) {
        if (rcv_measure_peak(bench->problem.context, types[i], problem_threads(&bench->problem),
                             &results->gemm.peak[i]) != RCV_OK) {
            results->gemm.peak[i] = 0;
        }
    }
    for (int variant = 0; variant < GEMM_VARIANTS; variant++) {
        for (int size = 0; size < CPU_BATCH_SIZES && stop_signal() == 0; size++) {
            measure_point(bench, &results->gemm, variant, size, w, x, d);
        }
    }
    results->gemm.done = true;
    free(w);
    free(x);
    free(d);
}
