/* An opened learn with arrays in its device's memory: what the files of learn_cases share. */
#ifndef RECURVE_LEARN_WORLD_H
#define RECURVE_LEARN_WORLD_H

#include "learn_cases.h"
#include "probe.h"

enum { WORLD_BLOCKS = 256 };

typedef struct {
    const learn_subject *subject;
    const rcvi_learns *calls;
    rcvi_learn *learn;
    random_source random;
    void *blocks[WORLD_BLOCKS]; /* of the device's memory, until world_close */
    int block_count;
    void *spare, *poison; /* what was lent, and as many NaN, or NULL */
} world;

/* How far an operation may be from its exact value: `unit` of what is stored, relative; `operand` of what products multiply, relative, and
 * `tiny`, absolute, where that type sinks early. */
typedef struct {
    double unit, operand, tiny;
} precision;

precision world_precision(const world *self);
/* Roundings of a sum of n numbers, in units of the sum of their magnitudes: those of a random walk, four times over. */
double roundings(int64_t n);

void world_open(world *self, const learn_subject *subject, int64_t rows, int64_t features, int64_t classes,
                int64_t chunk, uint64_t seed);
void world_close(world *self);

size_t world_real(const world *self); /* bytes of an element */
/* Arrays of the device; those of numbers hold the nearest ones to `values`, which are changed to them. */
void *world_put_bytes(world *self, const void *from, size_t bytes);
void *world_put(world *self, double *values, int64_t count);
void *world_put_ids(world *self, const int32_t *ids, int64_t count);
void *world_poison(world *self, int64_t count); /* NaN, to be overwritten */
void *world_control(world *self, const rcvi_control *control);
void *world_outcome(world *self, double loss, double norm);
rcvi_outcome world_get_outcome(world *self, const void *from);
/* Copies for the host, to be freed with free. */
double *world_get(world *self, const void *from, int64_t count);
void *world_get_bits(world *self, const void *from, int64_t count);

double *host_new(int64_t count);
double *host_draw(world *self, int64_t count, double from, double to);

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
