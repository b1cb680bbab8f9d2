/* Which data a run reads. */
#ifndef RCVI_IDENTITY_H
#define RCVI_IDENTITY_H

#include "data/data.h"

/* Equal for the same text or examples, read with the same vocabulary. */
rcv_status rcvi_data_identity(const rcv_data *data, uint64_t *identity);

#endif
