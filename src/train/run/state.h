/* The state of a run beside its arrays: with them, all that a run needs to go on as if it had never stopped. A checkpoint stores it. */
#ifndef RCVI_RUN_STATE_H
#define RCVI_RUN_STATE_H

#include "base/json.h"
#include "data/data.h"
#include "train/config/train_options.h"

typedef struct {
    int64_t step;           /* updates done */
    rcvi_position position; /* in the training data: epoch and batch */
    uint64_t data_hash;     /* of the training data: a position has a meaning in this data alone */
    int64_t tokens;         /* tokens, or examples, that counted in losses */
    double seconds;         /* of training so far */
    /* validation */
    double best_loss; /* infinite before the first validation */
    int64_t best_step;
    int64_t validations;
    int64_t validated_step;    /* update of the last one */
    double validation_seconds; /* that the last one took; 0: not known */
    int64_t bad_validations;   /* since the best one */
    double *validation_losses; /* [loss_count], for the trigger of averaged SGD */
    size_t loss_count, loss_capacity;
    /* optimiser */
    double plateau_factor;    /* of the learning rate, by plateaus */
    int64_t bad_since_decay;  /* validations without a better loss since the learning rate changed last */
    int64_t averaged_updates; /* in the average; 0: averaging has not begun */
    /* float16: the loss is multiplied by loss_scale before it is differentiated */
    double loss_scale;
    int64_t clean_updates;   /* without overflow since loss_scale changed */
    int64_t skipped_updates; /* whose gradient overflowed */
    /* from a checkpoint, until plans and windows are made */
    char *plans;    /* plan strings, one line per window; NULL: the planner chooses */
    void **carried; /* [carried_count] states of all layers and the whole batch, in the host's memory; NULL: none */
    size_t carried_count;
} rcvi_run_state;

void rcvi_run_state_init(rcvi_run_state *state, uint64_t data_hash, double loss_scale);
void rcvi_run_state_free(rcvi_run_state *state, rcv_context *context);
void rcvi_run_state_drop_carried(rcvi_run_state *state, rcv_context *context);

/* The scalars and the losses of validations as a JSON object; NULL without memory. `batching` and `ranks` become its values of these names, whatever
 * the result. */
json_t *rcvi_run_state_to_json(const rcvi_run_state *state, json_t *batching, json_t *ranks);
/* RCV_FORMAT where the object is not of a run; `file` is for the message. */
rcv_status rcvi_run_state_from_json(rcv_context *context, const json_t *object, const char *file,
                                    rcvi_run_state *state);

/* Counts an update of so many tokens. */
void rcvi_run_state_count_update(rcvi_run_state *state, int64_t tokens);
/* float16: a gradient that overflowed (a norm that is not finite) halves the scale and takes the update back; 2000 updates without one double it. */
void rcvi_run_state_adapt_scale(rcvi_run_state *state, double norm);
/* Counts a validation; a scheduled one decays the learning rate on a plateau. `is_best`: the loss is below best_loss. */
void rcvi_run_state_count_validation(rcvi_run_state *state, const rcvi_train_options *options, double loss,
                                     bool is_best, bool scheduled);
/* Appends the loss of a validation. With `averages` (averaged SGD), averaging begins when the loss is above the least of all but the last
 * `nonmono` losses. */
rcv_status rcvi_run_state_add_loss(rcvi_run_state *state, rcv_context *context, bool averages, int64_t nonmono,
                                   double loss);

#endif
