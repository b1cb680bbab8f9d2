/* The learning-rate schedule: factors of the first rate, by the setting `decay`. */
#include "train/run/rate.h"

#include <math.h>

typedef struct {
    int64_t step, epoch, length;
    double plateau_factor;
} moment;

static double constant(const rcvi_train_options *r, const moment *m) {
    (void)r, (void)m;
    return 1;
}

/* As Zaremba et al. do: multiplied by decay-factor every epoch from epoch decay-after + 1 on. */
static double by_epoch(const rcvi_train_options *r, const moment *m) {
    int64_t past = m->epoch + 1 - r->decay_after;
    return pow(r->decay_factor, past > 0 ? (double)past : 0);
}

static double by_plateau(const rcvi_train_options *r, const moment *m) {
    (void)r;
    return m->plateau_factor;
}

static double by_cosine(const rcvi_train_options *r, const moment *m) {
    int64_t length = m->length - r->warmup;
    if (length < 1 || m->step < r->warmup) return 1;
    double part = fmin(1, (double)(m->step - r->warmup) / (double)length), last = r->final_rate / r->learning_rate;
    return last + (1 - last) * 0.5 * (1 + cos(acos(-1) * part));
}

static double by_step(const rcvi_train_options *r, const moment *m) {
    int64_t times = m->step / r->decay_every;
    return pow(r->decay_factor, (double)times);
}

/* In the order of the choices of `decay`. */
static double (*const decays[])(const rcvi_train_options *r, const moment *m) = {constant, by_epoch, by_plateau,
                                                                                 by_cosine, by_step};

double rcvi_rate(const rcvi_train_options *r, int64_t step, int64_t epoch, int64_t length, double plateau_factor) {
    const moment m = {step, epoch, length, plateau_factor};
    double rate = r->learning_rate * decays[r->decay](r, &m);
    return step < r->warmup ? rate * (double)(step + 1) / (double)r->warmup : rate;
}
