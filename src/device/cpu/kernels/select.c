/* Selects the set of kernels of a context: by its name, by RECURVE_KERNELS, or the best set. */
#include "device/cpu/kernels/select.h"

#include <stdlib.h>
#include <string.h>

enum { LIST_BYTES = 256, NAME_LIMIT = 32 };

/* "portable, neon and neon-bf16" */
static void list_sets(char *text) {
    size_t length = 0, count = rcvi_kernels_count();
    text[0] = '\0';
    for (size_t i = 0; i < count; i++) {
        const char *name = rcvi_kernels_at(i)->name, *joint = i == 0 ? "" : i + 1 < count ? ", " : " and ";
        if (length + strlen(joint) + strlen(name) >= LIST_BYTES) return;
        strcat(strcat(text, joint), name);
        length = strlen(text);
    }
}

const rcvi_kernels *rcvi_context_kernels(rcv_context *context) {
    const char *name = context->kernels, *from = "";
    if (!name) {
        name = getenv("RECURVE_KERNELS");
        from = " of RECURVE_KERNELS";
    }
    if (!name || !*name) return rcvi_kernels_at(rcvi_kernels_count() - 1);
    const rcvi_kernels *found = rcvi_kernels_find(name);
    if (found) return found;
    char sets[LIST_BYTES];
    list_sets(sets);
    rcvi_fail(RCV_INVALID, "this machine has no kernels '%.*s'%s; it has %s", NAME_LIMIT, name, from, sets);
    return NULL;
}

const char *rcv_context_kernels(const rcv_context *context) {
    const rcvi_kernels *kernels = rcvi_context_kernels((rcv_context *)context); /* which is not modified */
    return kernels ? kernels->name : NULL;
}
