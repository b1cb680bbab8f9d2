/* Fixture of learn_cases*.c: an opened rcvi_learn with arrays in its device's memory. */
#ifndef RECURVE_LEARN_FIXTURE_H
#define RECURVE_LEARN_FIXTURE_H

#include "learn/learn_cases.h"
#include "probe.h"

enum { FIXTURE_BLOCKS = 256 };

typedef struct {
    const learn_subject *subject;
    const rcvi_learn_table *calls;
    rcvi_learn *learn;
    random_source random;
    void *blocks[FIXTURE_BLOCKS]; /* of the device's memory, until fixture_close */
    int block_count;
    void *spare, *poison; /* memory that is lent to the device, and as many NaN; or NULL */
} learn_fixture;

/* Bounds of rounding: `unit`, relative, of stored values; `operand`, relative, of operands of products, and
 * `tiny`, absolute, where the operand type underflows early. */
typedef struct {
    double unit, operand, tiny;
} precision;

precision fixture_precision(const learn_fixture *self);
/* Roundings of a sum of n numbers, in units of the sum of their magnitudes: those of a random walk, four times over. */
double roundings(int64_t n);

void fixture_open(learn_fixture *self, const learn_subject *subject, int64_t rows, int64_t features, int64_t classes,
                  int64_t chunk, uint64_t seed);
void fixture_close(learn_fixture *self);

size_t fixture_real(const learn_fixture *self); /* bytes of an element */
/* Arrays of the device; those of numbers hold the nearest ones to `values`, which are changed to them. */
void *fixture_put_bytes(learn_fixture *self, const void *from, size_t bytes);
void *fixture_put(learn_fixture *self, double *values, int64_t count);
void *fixture_put_ids(learn_fixture *self, const int32_t *ids, int64_t count);
void *fixture_poison(learn_fixture *self, int64_t count); /* NaN, to be overwritten */
void *fixture_control(learn_fixture *self, const rcvi_control *control);
void *fixture_outcome(learn_fixture *self, double loss, double norm);
rcvi_outcome fixture_get_outcome(learn_fixture *self, const void *from);
/* Copies for the host, to be freed with free. */
double *fixture_get(learn_fixture *self, const void *from, int64_t count);
void *fixture_get_bits(learn_fixture *self, const void *from, int64_t count);

double *host_new(int64_t count);
double *host_draw(learn_fixture *self, int64_t count, double from, double to);

/* Each |got - want| <= bound, or both are NaN. */
void check_near(const char *what, int64_t count, const double *got, const double *want, const double *bounds);

void check_head_softmax(const learn_subject *subject);
void check_head_squares(const learn_subject *subject);
void check_head_differences(const learn_subject *subject);
void check_head_nan(const learn_subject *subject);
void check_logits(const learn_subject *subject);
void check_updates(const learn_subject *subject);
void check_update_sparse(const learn_subject *subject);
void check_update_not_finite(const learn_subject *subject);

#endif
