/* Linear recurrences with random data, run on any device and held against a plain loop in double. */
#ifndef RECURVE_SCAN_CASES_H
#define RECURVE_SCAN_CASES_H

#include "test.h"

typedef enum {
    GATES_INSIDE,   /* in (0, 1) */
    GATES_NEAR_ONE, /* 1 less 2^-6 at most, to 1 */
    GATES_ONE,
    GATES_ZERO,     /* every third one, the others inside */
    GATES_NEGATIVE, /* in (-1, 1) */
    GATES_ABOVE,    /* to 2: states become infinite, and stay so or become NaN */
    GATES_SINK,     /* around 2^-12: products leave the normal numbers within a few steps, and b does too */
    GATES_SWING,    /* many steps of 1/4, then as many of 4: products sink below all numbers and come back */
    GATES_COUNT
} scan_gates;

/* Values are exactly those of the scan's dtype. */
typedef struct {
    rcv_scan_options options; /* batch filled in */
    double *a, *b, *dh;       /* [steps, batch, channels]; NaN past a sequence's length */
    double *initial, *dfinal; /* [batch, channels]; NULL: not given */
    int64_t *lengths;         /* [batch], or NULL */
    uint8_t *resets;          /* [steps, batch], or NULL */
    bool without_dh, without_da, without_db;
} scan_case;

/* As the device left it, and as numbers. */
typedef struct {
    size_t elements, states;
    size_t size, carry; /* bytes of an element, and of a state's */
    unsigned char *h, *da, *db, *final, *dinitial;
} scan_outcome;

scan_case scan_case_new(const rcv_scan_options *options, scan_gates gates, bool initial, uint64_t seed);
void scan_case_free(scan_case *self);

/* A new scan by at most `threads` threads: forward, and backward. */
scan_outcome scan_case_run(rcv_context *context, const scan_case *self, int64_t threads);
/* The same by a scan that is there already. */
scan_outcome scan_case_call(rcv_context *context, const scan_case *self, rcv_scan *scan);
void scan_outcome_free(scan_outcome *self);
bool scan_outcomes_equal(const scan_outcome *a, const scan_outcome *b);

/* Fails where a value is farther from the loop in double than roundings can take it. */
void scan_case_check(const scan_case *self, const scan_outcome *outcome, const char *what);

/* A scan in float32 of this form and device, of two channels and so many steps, in which something overflows or sinks at step `at`, so
 * that a composition of what lies around it would be wrong: fails where the states behind it, or the channel beside it, are not those of
 * the loop. */
void scan_check_overflow(rcv_context *context, const rcv_scan_options *options, int64_t at, int64_t threads);

/* The index-th number of an array of a dtype. */
double scan_number(const void *array, size_t index, rcv_dtype dtype);
rcv_dtype scan_carry_dtype(rcv_dtype dtype);
/* The nearest number of a dtype. */
double scan_rounded(double value, rcv_dtype dtype);

#endif
