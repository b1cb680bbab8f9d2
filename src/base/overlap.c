/* Check that output arrays of a call do not overlap other arguments. */
#include "base/base.h"

static bool do_overlap(const rcvi_range *a, const rcvi_range *b) {
    uintptr_t first = (uintptr_t)a->begin, second = (uintptr_t)b->begin;
    return first < second + b->bytes && second < first + a->bytes;
}

rcv_status rcvi_check_overlap(const char *function, const rcvi_range *ranges, size_t count) {
    for (size_t i = 0; i < count; i++) {
        const rcvi_range *out = &ranges[i];
        if (!out->written || !out->begin) continue;
        for (size_t j = 0; j < count; j++) {
            if (j == i || !ranges[j].begin || !do_overlap(out, &ranges[j])) continue;
            return rcvi_fail(RCV_INVALID, "%s: %s overlaps %s; give what is written memory of its own", function,
                             out->name, ranges[j].name);
        }
    }
    return RCV_OK;
}
