/* Where oneDNN's exceptions end. */
#ifndef RCVI_CPU_VENDOR_ONEDNN_GUARD_H
#define RCVI_CPU_VENDOR_ONEDNN_GUARD_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* False where work ended by an exception: oneDNN throws what it has no memory for. */
bool rcvi_onednn_guard(void (*work)(void *user), void *user);

#ifdef __cplusplus
}
#endif

#endif
