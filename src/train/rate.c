/* How the learning rate goes. */
#include "train/trainer.h"

#include <math.h>

typedef struct {
    int64_t step, epoch, length;
    double factor; /* of plateaus */
} moment;

static double constant(const rcv_settings *s, const moment *m) {
    (void)s, (void)m;
    return 1;
}

/* Zaremba's: multiplied once an epoch, from the epoch after `decay-after` on. */
static double by_epoch(const rcv_settings *s, const moment *m) {
    int64_t past = m->epoch + 1 - rcvi_settings_integer(s, "decay-after");
    return pow(rcvi_settings_real(s, "decay-factor"), past > 0 ? (double)past : 0);
}

static double by_plateau(const rcv_settings *s, const moment *m) {
    (void)s;
    return m->factor;
}

static double by_cosine(const rcv_settings *s, const moment *m) {
    int64_t warm = rcvi_settings_integer(s, "warmup"), length = m->length - warm;
    if (length < 1 || m->step < warm) return 1;
    double part = fmin(1, (double)(m->step - warm) / (double)length);
    double last = rcvi_settings_real(s, "final-rate") / rcvi_settings_real(s, "learning-rate");
    return last + (1 - last) * 0.5 * (1 + cos(acos(-1) * part));
}

static double by_step(const rcv_settings *s, const moment *m) {
    return pow(rcvi_settings_real(s, "decay-factor"), (double)(m->step / rcvi_settings_integer(s, "decay-every")));
}

/* In the order of the setting's choices. */
static double (*const decays[])(const rcv_settings *s, const moment *m) = {constant, by_epoch, by_plateau, by_cosine,
                                                                           by_step};

double rcvi_rate(const rcv_settings *s, int64_t step, int64_t epoch, int64_t length, double factor) {
    const moment m = {step, epoch, length, factor};
    double rate = rcvi_settings_real(s, "learning-rate") * decays[rcvi_settings_choice(s, "decay")](s, &m);
    int64_t warm = rcvi_settings_integer(s, "warmup");
    return step < warm ? rate * (double)(step + 1) / (double)warm : rate;
}
