#include "learn/learn_fixture.h"

#include <math.h>

/* ---- precision ---- */

precision fixture_precision(const learn_fixture *self) {
    switch (self->subject->dtype) {
    case RCV_FLOAT64: return (precision){0x1p-53, 0, 0};
    case RCV_FLOAT32: return (precision){0x1p-24, 0, 0};
    case RCV_BFLOAT16: return (precision){0x1p-24, 0x1p-8, 0};
    case RCV_TFLOAT32: return (precision){0x1p-24, 0x1p-11, 0};
    default: return (precision){0x1p-24, 0x1p-11, 0x1p-25};
    }
}

double roundings(int64_t n) { return 4 * sqrt((double)n) + 4; }

/* ---- opening and closing ---- */

static void *allocate(learn_fixture *self, size_t bytes);

void fixture_open(learn_fixture *self, const learn_subject *subject, int64_t rows, int64_t features, int64_t classes,
                  int64_t chunk, uint64_t seed) {
    *self = (learn_fixture){.subject = subject, .calls = subject->device->learn, .random = {seed}};
    rcvi_learn_shape shape = {.dtype = subject->dtype,
                              .threads = subject->threads,
                              .rows = rows,
                              .features = features,
                              .classes = classes,
                              .chunk = chunk,
                              .training = true,
                              .lean = subject->lean};
    shape.spare_bytes = (size_t)subject->spare * fixture_real(self);
    if (subject->spare) shape.spare = self->spare = allocate(self, shape.spare_bytes);
    check_ok(self->calls->open(subject->context, subject->ordinal, &shape, &self->learn));
    if (subject->spare) self->poison = fixture_poison(self, subject->spare);
    assert_true(self->calls->bytes(self->learn) >= self->calls->head_bytes(self->learn));
    if (chunk > 0 && !subject->lean) /* chunks are as large as was asked for, at most */
        assert_true(self->calls->head_bytes(self->learn) <= (size_t)(chunk * classes) * sizeof(double));
}

void fixture_close(learn_fixture *self) {
    const rcvi_memory *memory = self->subject->device->memory;
    check_ok(self->calls->wait(self->learn));
    self->calls->close(self->learn);
    for (int i = 0; i < self->block_count; i++) {
        if (memory)
            memory->release(self->subject->ordinal, self->blocks[i]);
        else
            free(self->blocks[i]);
    }
}

static void *allocate(learn_fixture *self, size_t bytes) {
    const rcvi_memory *memory = self->subject->device->memory;
    void *made = NULL;
    assert_true(self->block_count < FIXTURE_BLOCKS);
    if (memory)
        check_ok(memory->allocate(self->subject->ordinal, bytes, &made));
    else
        made = malloc(bytes);
    assert_non_null(made);
    self->blocks[self->block_count++] = made;
    return made;
}

size_t fixture_real(const learn_fixture *self) {
    return self->subject->dtype == RCV_FLOAT64 ? sizeof(double) : sizeof(float);
}

/* ---- arrays ---- */

double *host_new(int64_t count) {
    double *made = calloc((size_t)count + 1, sizeof *made);
    assert_non_null(made);
    return made;
}

double *host_draw(learn_fixture *self, int64_t count, double from, double to) {
    double *made = host_new(count);
    for (int64_t i = 0; i < count; i++) made[i] = random_between(&self->random, from, to);
    return made;
}

void *fixture_put_bytes(learn_fixture *self, const void *from, size_t bytes) {
    void *made = allocate(self, bytes);
    check_ok(self->calls->send(self->learn, made, from, bytes));
    return made;
}

void *fixture_put(learn_fixture *self, double *values, int64_t count) {
    if (self->subject->dtype == RCV_FLOAT64) return fixture_put_bytes(self, values, (size_t)count * sizeof *values);
    float *narrow = malloc((size_t)count * sizeof *narrow);
    assert_non_null(narrow);
    for (int64_t i = 0; i < count; i++) values[i] = (double)(narrow[i] = (float)values[i]);
    void *made = fixture_put_bytes(self, narrow, (size_t)count * sizeof *narrow);
    free(narrow); /* send promises that it may be used again at once */
    return made;
}

void *fixture_put_ids(learn_fixture *self, const int32_t *ids, int64_t count) {
    return fixture_put_bytes(self, ids, (size_t)count * sizeof *ids);
}

void *fixture_poison(learn_fixture *self, int64_t count) {
    double *values = host_new(count);
    for (int64_t i = 0; i < count; i++) values[i] = NAN;
    void *made = fixture_put(self, values, count);
    free(values);
    return made;
}

void *fixture_control(learn_fixture *self, const rcvi_control *control) {
    return fixture_put_bytes(self, control, sizeof *control);
}

void *fixture_outcome(learn_fixture *self, double loss, double norm) {
    return fixture_put_bytes(self, &(rcvi_outcome){loss, norm}, sizeof(rcvi_outcome));
}

rcvi_outcome fixture_get_outcome(learn_fixture *self, const void *from) {
    rcvi_outcome outcome;
    check_ok(self->calls->fetch(self->learn, &outcome, from, sizeof outcome));
    return outcome;
}

void *fixture_get_bits(learn_fixture *self, const void *from, int64_t count) {
    void *made = malloc((size_t)count * fixture_real(self));
    assert_non_null(made);
    check_ok(self->calls->fetch(self->learn, made, from, (size_t)count * fixture_real(self)));
    return made;
}

double *fixture_get(learn_fixture *self, const void *from, int64_t count) {
    void *bits = fixture_get_bits(self, from, count);
    if (self->subject->dtype == RCV_FLOAT64) return bits;
    double *made = host_new(count);
    for (int64_t i = 0; i < count; i++) made[i] = (double)((const float *)bits)[i];
    free(bits);
    return made;
}

void check_near(const char *what, int64_t count, const double *got, const double *want, const double *bounds) {
    for (int64_t i = 0; i < count; i++) {
        if (isnan(want[i]) ? isnan(got[i]) : fabs(got[i] - want[i]) <= bounds[i]) continue;
        fail_msg("%s[%lld] of %lld is %.17g, not %.17g within %.3g", what, (long long)i, (long long)count, got[i],
                 want[i], bounds[i]);
    }
}
