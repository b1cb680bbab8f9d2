/* oneDNN throws what it cannot allocate through its C interface. Only C++ can catch it: the one file of the library that is not C. What
 * lies between, C compiled with -fexceptions, is left at once: it owns nothing that the vendor does not know of. */
#include "device/cpu/onednn/guard.h"

bool rcvi_onednn_guard(void (*work)(void *), void *user) {
    try {
        work(user);
        return true;
    } catch (...) { /* std::bad_alloc, or what its generator of code throws in its place */
        return false;
    }
}
