/* Where programs run. A device need not know which schedule wrote a program. */
#ifndef RCVI_DEVICE_H
#define RCVI_DEVICE_H

#include "program/program.h"

/* What one call binds a program to. */
typedef struct {
    void *const *buffers;           /* [buffer_count]; NULL for what the caller left out */
    const bool *restart_is_initial; /* [state_count] */
    bool overwrite;                 /* gradients of the parameters, instead of adding to them */
    bool same_parameters;           /* as in the run's call before */
    uint64_t seed;                  /* of dropout */
    rcv_event *events;              /* where to record what was done when; NULL: nowhere */
    size_t event_capacity;
    size_t *event_count;
} rcvi_binding;

typedef struct rcvi_engine rcvi_engine; /* a device's own: a program made ready; shared by the runs of a plan */
typedef struct rcvi_worker rcvi_worker; /* a device's own: what one run needs beside its memory, such as threads */

typedef struct {
    const char *name;
    /* Facts for schedules, for plans of this type with at most `threads` threads. */
    rcv_status (*describe)(rcv_context *context, rcv_dtype dtype, int64_t threads, rcvi_machine *machine);
    /* Makes a verified program ready; the program outlives the engine. */
    rcv_status (*prepare)(const rcvi_program *program, rcvi_engine **engine);
    void (*release)(rcvi_engine *engine);
    size_t (*scratch)(const rcvi_engine *engine); /* bytes a run needs beside the arena */
    size_t (*outside)(const rcvi_engine *engine); /* bytes that `open` allocates itself */
    rcv_status (*open)(const rcvi_engine *engine, rcvi_worker **worker);
    void (*close)(rcvi_worker *worker);
    /* Runs steps first .. end - 1. `scratch` is 64-byte aligned. Allocates nothing and cannot fail: the program was
     * verified. */
    void (*run)(rcvi_worker *worker, size_t first, size_t end, const rcvi_binding *binding, void *scratch);
} rcvi_device;

extern const rcvi_device *const rcvi_devices[];
extern const size_t rcvi_device_count;

extern const rcvi_device rcvi_device_cpu;

#endif
