/* How a batch is cut into units that flow through a pipeline. */
#include "train/trainer.h"

static int64_t wanted(const rcv_trainer *t, const char *name) {
    const rcvi_crew *crew = rcvi_trainer_crew(t);
    return crew && crew->stage_count > 1 ? rcvi_settings_integer(t->settings, name) : 1;
}

/* The largest number of parts, at most `most`, into which it divides. */
static int64_t divide(int64_t whole, int64_t most) {
    int64_t parts = most < whole ? most : whole;
    while (parts > 1 && whole % parts) parts--;
    return parts < 1 ? 1 : parts;
}

/* Time is cut where states go on from window to window; sequences in a batch end at different times. */
static bool cuts_time(const rcv_trainer *t) { return t->learner->shape.kind == RCV_DATA_STREAM; }

rcv_status rcvi_units_check(const rcv_trainer *t) {
    const rcvi_crew *crew = rcvi_trainer_crew(t);
    int64_t micro = wanted(t, "micro-batches"), chunks = wanted(t, "time-chunks");
    int64_t batch = rcvi_settings_integer(t->settings, "batch") / crew->replica_count;
    int64_t steps = rcvi_settings_integer(t->settings, "length");
    if (micro > 0 && batch % micro)
        return rcvi_fail(RCV_INVALID, "a replica's %lld sequences do not divide into %lld micro-batches",
                         (long long)batch, (long long)micro);
    if (chunks > 1 && !cuts_time(t))
        return rcvi_fail(RCV_INVALID,
                         "sequences of different lengths are not cut into chunks of time: use micro-batches");
    if (chunks > 0 && cuts_time(t) && steps % chunks)
        return rcvi_fail(RCV_INVALID, "a window of %lld steps does not divide into %lld chunks of time",
                         (long long)steps, (long long)chunks);
    return RCV_OK;
}

enum { USUAL_CHUNKS = 8, USUAL_MICRO = 4 };

int64_t rcvi_units_micro(const rcv_trainer *t, int64_t batch) {
    int64_t asked = wanted(t, "micro-batches");
    if (asked) return divide(batch, asked);
    return cuts_time(t) ? 1 : divide(batch, USUAL_MICRO);
}

int64_t rcvi_units_chunks(const rcv_trainer *t, int64_t steps) {
    int64_t asked = wanted(t, "time-chunks");
    if (!cuts_time(t)) return 1;
    return divide(steps, asked ? asked : USUAL_CHUNKS);
}
