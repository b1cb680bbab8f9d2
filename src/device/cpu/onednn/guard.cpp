/* Converts exceptions of oneDNN to a status: its C interface throws where it cannot allocate, and only C++ can catch that. This is the
 * only C++ file of the library. The C functions in between, compiled with -fexceptions, are left at once; they own nothing that the
 * rcvi_vendor does not know. */
#include "device/cpu/onednn/guard.h"

bool rcvi_onednn_guard(void (*work)(void *), void *user) {
    try {
        work(user);
        return true;
    } catch (...) { /* std::bad_alloc, or the exception of oneDNN's code generator */
        return false;
    }
}
