/* The functions of vendor.h in a build without oneDNN. */
#include "device/cpu/onednn/vendor.h"

const char *rcvi_vendor_name(void) { return NULL; }

static rcv_status refuse(void) { return rcvi_fail(RCV_UNSUPPORTED, "this build has no oneDNN"); }

rcv_status rcvi_vendor_bytes(const rcvi_program *program, size_t *bytes) {
    (void)program;
    *bytes = 0;
    return refuse();
}

rcv_status rcvi_vendor_new(const rcvi_program *program, rcvi_sizes sizes, rcvi_vendor **vendor) {
    (void)sizes;
    (void)program;
    *vendor = NULL;
    return refuse();
}

void rcvi_vendor_free(rcvi_vendor *vendor) { (void)vendor; }

rcv_status rcvi_vendor_run(rcvi_vendor *vendor, bool backward, const rcvi_binding *binding) {
    (void)vendor;
    (void)backward;
    (void)binding;
    return refuse();
}
