/* Where programs run. A device need not know which schedule wrote a program. */
#ifndef RCVI_DEVICE_H
#define RCVI_DEVICE_H

#include "base/random.h"
#include "program/program.h"

/* What one call binds a program to. */
typedef struct {
    void *const *buffers;           /* [buffer_count]; NULL for what the caller left out */
    const bool *restart_is_initial; /* [state_count] */
    bool overwrite;                 /* gradients of the parameters, instead of adding to them */
    bool same_parameters;           /* as in the run's call before */
    uint64_t seed;                  /* of dropout */
    const uint64_t *seed_at;        /* in the device's memory, and counts in its place; NULL: nowhere */
    rcvi_shard shard;               /* of the batch: what chance decides is that of the whole */
    uint64_t *signals;              /* [layers] of the host, which communicate steps set to *signal; NULL: to nothing */
    const uint64_t *signal;         /* in the device's memory */
    void *stream;                   /* on which a GPU's work is enqueued */
    rcv_event *events;              /* where to record what was done when; NULL: nowhere */
    size_t event_capacity;
    size_t *event_count;
} rcvi_binding;

typedef struct rcvi_engine rcvi_engine; /* a device's own: a program made ready; shared by the runs of a plan */
typedef struct rcvi_worker rcvi_worker; /* a device's own: what one run needs beside its memory, such as threads */

typedef struct {
    const char *name;
    /* Facts for schedules, for plans of this type with at most `threads` threads. A device of several has ordinals. */
    rcv_status (*describe)(rcv_context *context, int ordinal, rcv_dtype dtype, int64_t threads, rcvi_machine *machine);
    /* What there is, for people. */
    rcv_status (*tell)(rcv_context *context, int ordinal, rcvi_text *text);
    /* Makes a verified program ready, but for what `load` does; the program outlives the engine. */
    rcv_status (*prepare)(const rcvi_program *program, rcvi_engine **engine);
    /* Once, before the first `open`: what takes long, such as compiling kernels. NULL where nothing does. */
    rcv_status (*load)(rcvi_engine *engine);
    void (*release)(rcvi_engine *engine);
    void (*explain)(const rcvi_engine *engine,
                    rcvi_text *text);             /* how it will run, in lines for people; NULL: nothing to say */
    size_t (*scratch)(const rcvi_engine *engine); /* bytes a run needs beside the arena */
    size_t (*outside)(const rcvi_engine *engine); /* bytes that `open` allocates itself */
    rcv_status (*open)(const rcvi_engine *engine, rcvi_worker **worker);
    void (*close)(rcvi_worker *worker);
    /* Runs steps first .. end - 1, or enqueues them. `scratch` is aligned as the arena is. Allocates nothing; the CPU
     * cannot fail, since the program was verified. */
    rcv_status (*run)(rcvi_worker *worker, size_t first, size_t end, const rcvi_binding *binding, void *scratch);
    /* What a run keeps in its scratch from call to call has been overwritten. NULL where nothing is kept but packed parameters. */
    rcv_status (*renew)(rcvi_worker *worker, void *scratch, void *stream);
    /* Sends what forward calls send of the host's memory, the lengths, by itself: a call that was recorded on the stream, and is repeated,
     * has them from there. NULL where calls cannot be recorded. */
    rcv_status (*announce)(rcvi_worker *worker, const rcvi_binding *binding, void *scratch);
    /* An event of the device's that lies right before the first time loop of the pass enqueued last, or before its last one: what waits
     * for it goes beside that loop. NULL where there is none, until the next pass; itself NULL on devices without events. */
    void *(*beside)(const rcvi_worker *worker, bool last);
    /* Waits for what was enqueued; NULL where `run` does all there is to do. */
    rcv_status (*wait)(rcvi_worker *worker);
    /* Operations a second of a large product; NULL where rcv_measure_peak tells. */
    rcv_status (*peak)(rcv_context *context, int ordinal, rcv_dtype dtype, double *operations);
    /* The device's memory, for arenas and data; NULL where that is the context's. */
    const struct rcvi_memory *memory;
    const struct rcvi_scans *scans;
    const struct rcvi_learns *learns;   /* learn.h */
    const struct rcvi_ferries *ferries; /* NULL where the device's memory is the host's */
    /* As rcv_measure_memory, whose arguments are right. */
    rcv_status (*bandwidth)(rcv_context *context, int ordinal, int64_t threads, int reads, size_t bytes,
                            double *bandwidth);
} rcvi_device;

/* Linear recurrences by themselves, as in the public header. Arguments are right: sizes can be counted, batch is at least 1, what the
 * options promise is given, lengths are in range. */
typedef struct rcvi_scan rcvi_scan; /* a device's own */

typedef struct rcvi_scans {
    rcv_status (*prepare)(rcv_context *context, int ordinal, const rcv_scan_options *options, rcvi_scan **scan);
    void (*release)(rcvi_scan *scan);
    const char *(*form)(const rcvi_scan *scan);
    rcv_status (*forward)(rcvi_scan *scan, const rcv_scan_data *data, void *stream);
    rcv_status (*backward)(rcvi_scan *scan, const rcv_scan_data *data, const rcv_scan_gradients *gradients,
                           void *stream);
    rcv_status (*wait)(rcvi_scan *scan, void *stream); /* NULL where calls do all there is to do */
} rcvi_scans;

typedef struct rcvi_memory {
    rcv_status (*allocate)(int ordinal, size_t bytes, void **memory); /* at multiples of 256 bytes */
    void (*release)(int ordinal, void *memory);
    rcv_status (*write)(int ordinal, void *to, const void *from, size_t bytes);
    rcv_status (*read)(int ordinal, void *to, const void *from, size_t bytes);
} rcvi_memory;

/* Copies beside all that is enqueued, by whichever thread asks for them: between the device's memory and a block of the host's that the
 * device reaches by itself. */
typedef struct rcvi_ferry rcvi_ferry; /* a device's own */

enum { RCVI_PLACE = 128 };

typedef struct rcvi_ferries {
    rcv_status (*open)(rcv_context *context, int ordinal, size_t bytes, rcvi_ferry **ferry);
    void (*close)(rcvi_ferry *ferry);
    void *(*block)(const rcvi_ferry *ferry);
    /* Both begin, behind those before; `at`: bytes from the block's beginning. */
    rcv_status (*fetch)(rcvi_ferry *ferry, size_t at, const void *from, size_t bytes);
    rcv_status (*deliver)(rcvi_ferry *ferry, void *to, size_t at, size_t bytes);
    rcv_status (*test)(rcvi_ferry *ferry, bool *done); /* all that began */
    /* The calling thread's device from here on, for libraries that are given its memory. */
    rcv_status (*attend)(int ordinal);
    /* The machine and the device, as a text that no other device has. */
    rcv_status (*place)(int ordinal, char place[RCVI_PLACE]);
    /* Do processes that share the device take turns, so that one computes while the others wait? */
    bool (*takes_turns)(int ordinal);
} rcvi_ferries;

extern const rcvi_device *const rcvi_devices[];
extern const size_t rcvi_device_count;

extern const rcvi_device rcvi_device_cpu;
#ifdef RCV_CUDA
extern const rcvi_device rcvi_device_cuda;
#endif

/* "cpu", "cuda", "cuda:1"; NULL is the CPU. */
rcv_status rcvi_device_find(const char *name, const rcvi_device **device, int *ordinal);

#endif
