/* Collectives in a build without NCCL's header: they are not available. */
#include "device/cuda/nccl/nccl.h"
#include "device/device.h"

static rcv_status refuse(void) { return rcvi_fail(RCV_UNSUPPORTED, "this build has no NCCL"); }

const rcvi_collectives rcvi_cuda_collectives = {.check_available = refuse};
