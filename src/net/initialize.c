/* Initial values of the parameters: same order, distribution and generator as PyTorch. */
#include "base/random.h"
#include "net/net.h"

#include <math.h>

rcv_status rcv_net_initialize(const rcv_net *net, uint64_t seed, rcv_dtype dtype, void *parameters) {
    RCVI_NEED(net, "net");
    RCVI_NEED(parameters, "parameters");
    if (dtype != RCV_FLOAT32 && dtype != RCV_FLOAT64) {
        return rcvi_fail(RCV_INVALID, "parameters are float32 or float64, not %s", rcv_dtype_name(dtype));
    }
    rcvi_twister *twister = rcvi_new(net->context, 1, sizeof *twister);
    if (!twister) return RCV_NO_MEMORY;
    rcvi_twister_seed(twister, seed);
    double bound = 1 / sqrt((double)net->options.hidden);
    for (size_t i = 0; i < net->parameter_count; i++) {
        const rcv_parameter *p = &net->parameters[i];
        const rcvi_param *kind = net->parameter_kinds[i];
        for (int64_t k = p->offset; k < p->offset + p->count; k++) {
            if (dtype == RCV_FLOAT32) {
                ((float *)parameters)[k] =
                    kind->constant ? (float)kind->initial : rcvi_uniform_float(twister, -bound, bound);
            } else {
                ((double *)parameters)[k] =
                    kind->constant ? kind->initial : rcvi_uniform_double(twister, -bound, bound);
            }
        }
    }
    rcvi_free(net->context, twister);
    return RCV_OK;
}
