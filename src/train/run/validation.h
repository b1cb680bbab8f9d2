/* Validation of a run. */
#ifndef RCVI_VALIDATION_H
#define RCVI_VALIDATION_H

#include "base/base.h"

/* The loss of the validation data, with averaged parameters where there are any. The best model so far is written, the state counts the
 * validation, and the log has a line. Collective. */
rcv_status rcvi_validate(rcv_trainer *trainer);

#endif
