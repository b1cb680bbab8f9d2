/* Whether tests of a GPU can run here; otherwise it prints why not, and the program ends with SKIPPED. */
#ifndef RECURVE_GPU_H
#define RECURVE_GPU_H

#include "test.h"

enum { SKIPPED = 77 };

static inline bool has_gpu(void) {
    rcv_context *context = NULL;
    check_ok(rcv_context_new(NULL, &context));
    rcv_status status = rcv_device_describe(context, "cuda", NULL);
    if (status) print_message("skipped: %s\n", rcv_message());
    rcv_context_free(context);
#ifdef __SANITIZE_ADDRESS__
    if (!status) print_message("skipped: the address sanitizer and a GPU's driver do not go together\n");
    return false;
#endif
    return !status;
}

#endif
