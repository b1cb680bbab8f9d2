/* Whole networks by the recurrent primitives of a library: oneDNN, where the build has it. */
#ifndef RCVI_CPU_VENDOR_H
#define RCVI_CPU_VENDOR_H

#include "device/device.h"

typedef struct rcvi_vendor
    rcvi_vendor; /* state of one run for calls of one size: primitives, converted weights, workspace */

const char *rcvi_vendor_name(void); /* with its version, such as "oneDNN 2.6.3"; NULL where this build has none */

/* The bytes that rcvi_vendor_new allocates for this program, or RCV_UNSUPPORTED where the library cannot run it on this
 * CPU. */
rcv_status rcvi_vendor_bytes(const rcvi_program *program, size_t *bytes);
rcv_status rcvi_vendor_new(const rcvi_program *program, rcvi_sizes sizes, rcvi_vendor **vendor);
void rcvi_vendor_free(rcvi_vendor *vendor);

/* Runs one pass. Where binding->same_parameters, the weights that the last forward pass converted are used again. If the library
 * fails (out of memory), all outputs are set to NaN. */
rcv_status rcvi_vendor_run(rcvi_vendor *vendor, bool backward, const rcvi_binding *binding);

#endif
