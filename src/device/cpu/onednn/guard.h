/* Converts exceptions of oneDNN to a status. */
#ifndef RCVI_CPU_VENDOR_ONEDNN_GUARD_H
#define RCVI_CPU_VENDOR_ONEDNN_GUARD_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Runs work(user); false if it ended by an exception: oneDNN had no memory. */
bool rcvi_onednn_guard(void (*work)(void *user), void *user);

#ifdef __cplusplus
}
#endif

#endif
