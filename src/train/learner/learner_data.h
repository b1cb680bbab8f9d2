/* What a learner knows of the data that it was trained on: how its columns were read, means and scales of its features and values, weights of its
 * classes. A file has it as JSON in recurve.data:
 *   {"schema": {...}, "scaling": {"missing": ..., "normalise": ..., "mean": [...], "scale": [...], "target_mean": [...], "target_scale": [...]},
 *    "class_weights": [...]}
 * where each of the three may be absent. */
#ifndef RCVI_LEARNER_DATA_H
#define RCVI_LEARNER_DATA_H

#include "train/learner/learner.h"

/* As settings say (normalise, missing, class-weights), of the training data. */
rcv_status rcvi_learner_measure(rcv_learner *learner, const rcv_settings *settings, const rcv_data *data);
rcv_status rcvi_learner_data_to_tensors(const rcv_learner *learner, rcv_tensors *tensors);
/* Of a new learner. RCV_FORMAT where it does not fit the learner. */
rcv_status rcvi_learner_data_from_tensors(rcv_learner *learner, const rcv_tensors *tensors, const char *file);
/* The scaling alone, for rcvi_scaling_delete; NULL: the file has none. */
rcv_status rcvi_learner_read_scaling(const rcv_learner *learner, const rcv_tensors *tensors, const char *file,
                                     rcvi_scaling **scaling);
void rcvi_learner_data_free(rcv_learner *learner);

#endif
