/* Ranks must train the same run. */
#ifndef RCVI_AGREEMENT_H
#define RCVI_AGREEMENT_H

#include "base/base.h"

/* RCV_INVALID on all ranks where one has another version, setting, set of kernels or data than rank 0: the message says which. Collective. */
rcv_status rcvi_check_agreement(const rcv_trainer *trainer);

#endif
