/* Validation of a run. */
#ifndef RCVI_VALIDATION_H
#define RCVI_VALIDATION_H

#include "base/base.h"

/* The loss of the validation data, with averaged parameters where there are any. The best model so far is written, the state counts the
 * validation, and the log has a line. `scheduled`: else it is the one at the end of a run, which counts for the best model and changes nothing that
 * later updates depend on. Collective. */
rcv_status rcvi_validate(rcv_trainer *trainer, bool scheduled);

#endif
