/* Examples: written later. */
#include "data/store.h"

static rcv_status not_yet(rcvi_reading *reading) {
    return rcvi_fail(RCV_UNSUPPORTED, "%s: examples are not read yet", reading->source.path);
}

const rcvi_reader rcvi_example_reader = {not_yet, not_yet};
