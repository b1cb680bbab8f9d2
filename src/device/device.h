/* Where programs run. A device need not know which schedule wrote a program. */
#ifndef RCVI_DEVICE_H
#define RCVI_DEVICE_H

#include "program/program.h"

/* What one call binds a program to. */
typedef struct {
    void *const *buffers;           /* [buffer_count]; NULL for what the caller left out */
    const bool *restart_is_initial; /* [state_count] */
    bool overwrite;                 /* gradients of the parameters, instead of adding to them */
    uint64_t seed;                  /* of dropout */
} rcvi_binding;

typedef struct {
    const char *name;
    /* Runs steps first .. end - 1. Allocates nothing and cannot fail: the program was verified. */
    void (*run)(const rcvi_program *program, size_t first, size_t end, const rcvi_binding *binding);
} rcvi_device;

extern const rcvi_device *const rcvi_devices[];
extern const size_t rcvi_device_count;

extern const rcvi_device rcvi_device_cpu;

#endif
