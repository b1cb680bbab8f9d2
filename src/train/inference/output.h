/* What inference takes from callers and gives to them: tokens; logits, values or probabilities. */
#ifndef RCVI_OUTPUT_H
#define RCVI_OUTPUT_H

#include "train/learner/learner.h"

/* The form that `output` means for this learner; values are their own logits. RCV_INVALID where it has no such form. */
rcv_status rcvi_output_form(const rcv_learner *learner, rcv_output output, rcv_output *form);
/* Makes the form of logits, and the data's units of values, in place. out: [rows, outputs] on the host, in the learner's type. */
void rcvi_output_convert(const rcv_learner *learner, rcv_output form, int64_t rows, void *out);
/* RCV_INVALID where the vocabulary does not have the token; `step` and `row` are named. */
rcv_status rcvi_check_token(const rcv_learner *learner, int64_t token, int64_t step, int64_t row);
/* RCV_INVALID where a feature of x, [features], is missing (NaN) and the model fills in none. */
rcv_status rcvi_check_numbers(const rcv_learner *learner, const float *x, int64_t step, int64_t row);
/* The output layer as it is applied to features y, [rows, width] in the device's memory. */
rcvi_head rcvi_output_head(const rcv_learner *learner, int64_t rows, const void *y);

#endif
