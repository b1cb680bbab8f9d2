/* Numbers of products by cuBLASLt that were found by measurement.
 *
 * Measured on one NVIDIA H200 with cuBLASLt 12 and 13. To measure again: `scripts/bench-cuda.sh 'medium|large'` (35 steps, 20 sequences
 * of 650 and 1,500 features, whose products have odd lengths), and `scripts/bench-layers.sh`, which times the products alone with
 * RECURVE_ONLY=products. */
#ifndef RCVI_CUDA_GEMM_TUNING_H
#define RCVI_CUDA_GEMM_TUNING_H

/* Multiply-adds from which on a product is cut, or its output computed aside: a second launch costs some microseconds. */
static const double RCVI_TUNED_CUT = 1 << 28;
/* Multiply-adds from which on algorithms may take all of the workspace, not only RCVI_TUNED_WORKSPACE. */
static const double RCVI_TUNED_LARGE = 1U << 31;
/* The harmonic mean of a product's three lengths, a third of it, from which on split-bf16 emulation is faster than multiply-adds of
 * float32: bytes moved for a multiply-add fall with it. */
static const double RCVI_TUNED_SPLIT_LENGTH = 100;

enum {
    RCVI_TUNED_ASIDE_DEPTH = 256,     /* least depth of a product whose output is computed aside */
    RCVI_TUNED_ASIDE_BYTES = 8 << 20, /* most bytes of an output that is computed aside for the sake of a few columns */
    RCVI_TUNED_WORKSPACE = 4 << 20    /* bytes of workspace of an algorithm of a product that is not large */
};

/* Timing of algorithms: tune.c. */
enum {
    RCVI_TUNED_ROUNDS = 5,  /* of which the median counts */
    RCVI_TUNED_REPEATS = 16 /* most products of a round */
};
static const double RCVI_TUNED_ROUND_SECONDS = 300e-6; /* that a round should take */

#endif
