/* Settings that every update reads, and what settings must not say together. */
#include "train/config/train_options.h"

#include "data/data.h"
#include "train/config/settings.h"

void rcvi_train_options_read(rcvi_train_options *o, const rcv_settings *s) {
    *o = (rcvi_train_options){.epochs = rcvi_settings_integer(s, "epochs"),
                              .steps = rcvi_settings_integer(s, "steps"),
                              .seconds = rcvi_settings_real(s, "seconds"),
                              .patience = rcvi_settings_integer(s, "patience"),
                              .log_every = rcvi_settings_integer(s, "log-every"),
                              .validate_every = rcvi_settings_integer(s, "validate-every"),
                              .checkpoint_every = rcvi_settings_integer(s, "checkpoint-every"),
                              .checkpoint_seconds = rcvi_settings_real(s, "checkpoint-seconds"),
                              .keep = rcvi_settings_integer(s, "keep"),
                              .accumulate = rcvi_settings_integer(s, "accumulate"),
                              .clip = rcvi_settings_real(s, "clip"),
                              .clip_value = rcvi_settings_real(s, "clip-value"),
                              .by_sequence = rcvi_settings_is(s, "loss", "sequence"),
                              .learning_rate = rcvi_settings_real(s, "learning-rate"),
                              .weight_decay = rcvi_settings_real(s, "weight-decay"),
                              .momentum = rcvi_settings_real(s, "momentum"),
                              .beta1 = rcvi_settings_real(s, "beta1"),
                              .beta2 = rcvi_settings_real(s, "beta2"),
                              .epsilon = rcvi_settings_real(s, "epsilon"),
                              .nonmono = rcvi_settings_integer(s, "nonmono"),
                              .decay = rcvi_settings_choice(s, "decay"),
                              .warmup = rcvi_settings_integer(s, "warmup"),
                              .decay_after = rcvi_settings_integer(s, "decay-after"),
                              .decay_every = rcvi_settings_integer(s, "decay-every"),
                              .decay_patience = rcvi_settings_integer(s, "decay-patience"),
                              .decay_factor = rcvi_settings_real(s, "decay-factor"),
                              .final_rate = rcvi_settings_real(s, "final-rate"),
                              .seed = (uint64_t)rcvi_settings_integer(s, "seed")};
}

const char *rcvi_settings_why_not_lean(const rcv_settings *s) {
    if (!rcvi_settings_is(s, "optimiser", "sgd")) return "the optimiser must be sgd";
    if (rcvi_settings_real(s, "weight-decay") != 0) return "weight-decay must be 0";
    if (rcvi_settings_integer(s, "accumulate") != 1) return "accumulate must be 1";
    if (rcvi_settings_flag(s, "tied")) return "the output layer must not be tied to the embedding";
    if (!rcvi_kind_is_text((rcv_data_kind)rcvi_settings_choice(s, "kind"))) return "the kind must be stream or lines";
    return NULL;
}

rcv_status rcv_settings_check(const rcv_settings *s) {
    RCVI_NEED(s, "settings");
    if (rcvi_settings_is(s, "decay", "cosine") && !rcvi_settings_integer(s, "epochs") &&
        !rcvi_settings_integer(s, "steps"))
        return rcvi_fail(RCV_INVALID, "decay=cosine needs the length of the run: set epochs or steps");
    const char *why = rcvi_settings_why_not_lean(s);
    if (why && rcvi_settings_is(s, "lean", "yes")) return rcvi_fail(RCV_INVALID, "lean cannot be yes here: %s", why);
    return RCV_OK;
}
