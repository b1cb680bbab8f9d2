/* The monotonic clock. */
#include "base/base.h"

#include <time.h>

double rcvi_now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}
