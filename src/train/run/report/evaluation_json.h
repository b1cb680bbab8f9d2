/* Losses and metrics as members of JSON objects: lines of logs. */
#ifndef RCVI_EVALUATION_JSON_H
#define RCVI_EVALUATION_JSON_H

#include "base/json.h"
#include "train/learner/learner.h"

/* What a loss in nats per token is also given as. */
typedef enum { RCVI_LOSS_ALONE, RCVI_LOSS_AND_PERPLEXITY, RCVI_LOSS_AND_BITS_PER_BYTE } rcvi_loss_form;

rcvi_loss_form rcvi_loss_form_of(const rcv_learner *learner);

/* "loss", and what it is also given as. False: there was no memory. */
bool rcvi_json_add_loss(json_t *object, rcvi_loss_form form, double loss);
/* "metrics": those that this kind has, null where one is not known; nothing for texts. False: there was no memory. */
bool rcvi_json_add_metrics(json_t *object, rcv_data_kind kind, const rcv_evaluation *result);

#endif
