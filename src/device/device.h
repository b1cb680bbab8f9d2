/* Devices: each is a table of functions that prepares programs and runs them. A device does not know which schedule wrote a program. */
#ifndef RCVI_DEVICE_H
#define RCVI_DEVICE_H

#include "base/random.h"
#include "program/sizes.h"
#include "recurve_bench.h"

/* The arguments of one call of a program. */
typedef struct {
    const rcvi_program *program;    /* the engine's program, at the sizes of the call */
    void *const *buffers;           /* [buffer_count]; NULL for data that the caller left out */
    void *kept;                     /* [kept_bytes] the device's part of the reserve */
    const bool *restart_is_initial; /* [state_count] */
    bool overwrite;                 /* the gradients of the parameters, instead of adding to them */
    bool only_prepares;             /* only steps that run when parameters have changed */
    bool same_parameters;           /* they have not changed since the run's last call */
    uint64_t seed;                  /* of dropout and zoneout */
    const uint64_t *seed_at;        /* in the device's memory: replaces `seed`; NULL: `seed` holds */
    rcvi_shard shard;       /* the part of a larger batch that this one is: masks are those of the larger batch */
    uint64_t *signals;      /* [layers] in the host's memory; communicate steps set them to *signal; NULL: none */
    const uint64_t *signal; /* in the device's memory */
    bool captures_at_once; /* on a GPU: a pass of a plan with graphs is captured in its first call, not in its second */
    void *stream;          /* on which a GPU's work is enqueued */
    rcv_event *events;     /* [event_capacity] where steps are recorded with their times; NULL: they are not */
    size_t event_capacity;
    size_t *event_count;
} rcvi_binding;

typedef struct rcvi_engine rcvi_engine; /* a device's own: a prepared program, shared by the runs of a plan */
typedef struct rcvi_worker rcvi_worker; /* a device's own: what one run needs beside its memory, such as threads */

typedef struct {
    const char *name;
    /* Writes facts for schedules, for plans of this type with at most `threads` threads. `ordinal` numbers devices of one kind. */
    rcv_status (*describe)(rcv_context *context, int ordinal, rcv_dtype dtype, int64_t threads, rcvi_machine *machine);
    /* Adds to `machine` what is slow to find, since libraries are opened: vendor, no_vendor, no_blas, no_compiler and libraries. A search for a
     * plan needs them; a plan that is given does without, unless it is the vendor's or has blas. NULL: `describe` wrote them. */
    void (*describe_libraries)(int ordinal, rcvi_machine *machine);
    /* A library of this device, by the name that rcv_library has: its name and version, or NULL with the reason, both static texts. */
    const char *(*find_library)(const char *name, const char **reason);
    /* Appends a description for users. */
    rcv_status (*print_info)(rcv_context *context, int ordinal, rcvi_text *text);
    /* Prepares a verified program, except for what `load` does. The program outlives the engine. */
    rcv_status (*prepare)(const rcvi_program *program, rcvi_engine **engine);
    /* Prepares for calls of other sizes than the program's own. NULL: nothing is to be done. `sizing` outlives the engine. */
    rcv_status (*serve_sizes)(rcvi_engine *engine, const rcvi_sizing *sizing);
    /* Does the slow part of preparing, such as compiling kernels; once, before the first `open`. NULL: there is none. */
    rcv_status (*load)(rcvi_engine *engine);
    /* Compiles ahead what `load` of these engines will need, all of it in parallel. What fails is left to `load`. False: go_on, which may be
     * NULL, said no. The function is NULL where it would not pay. */
    bool (*compile)(rcvi_engine *const *engines, size_t count, bool (*go_on)(void *user), void *user);
    /* Will `load` compile nothing? NULL: it never does. */
    bool (*is_compiled)(const rcvi_engine *engine);
    /* Prepares the calling thread for a search beside the caller's threads: its calls do not interfere with streams that those capture, and it
     * has a lower priority. NULL: there is nothing to do. */
    void (*begin_search)(void);
    /* Is the stream being captured? Any thread may ask. NULL on devices without streams. */
    bool (*is_captured)(void *stream);
    void (*release)(rcvi_engine *engine);
    /* Appends lines for users that say how the program will run; NULL: there is nothing to say. */
    void (*explain)(const rcvi_engine *engine, rcvi_text *text);
    size_t (*scratch_bytes)(const rcvi_engine *engine); /* that a run needs beside the arena */
    /* Bytes that a forward pass leaves for its backward pass beside the program's reserve; NULL: none. */
    size_t (*kept_bytes)(const rcvi_engine *engine);
    size_t (*extra_bytes)(const rcvi_engine *engine); /* that `open` allocates itself */
    rcv_status (*open)(const rcvi_engine *engine, rcvi_worker **worker);
    void (*close)(rcvi_worker *worker);
    /* Runs steps first .. end - 1, or enqueues them. `scratch` is aligned as the arena is. Allocates nothing. On the CPU it cannot fail,
     * since the program was verified. */
    rcv_status (*run)(rcvi_worker *worker, size_t first, size_t end, const rcvi_binding *binding, void *scratch);
    /* Clears memory of the caller's, in the order of the run's calls; a GPU enqueues it on the stream. `scratch` as for `run`. */
    rcv_status (*clear)(rcvi_worker *worker, void *to, size_t bytes, void *scratch, void *stream);
    /* Restores the scratch memory that calls rely on, after the caller has overwritten it. NULL where scratch memory holds nothing between calls
     * except packed parameters. */
    rcv_status (*reset_scratch)(rcvi_worker *worker, void *scratch, void *stream);
    /* Sends the lengths, which forward calls otherwise send from the host's memory: a call that is captured on the stream and replayed
     * reads them from where this put them. NULL where calls cannot be captured. */
    rcv_status (*send_lengths)(rcvi_worker *worker, const rcvi_binding *binding);
    /* Returns the device's event right before the first time loop of the pass enqueued last, or with `last` before its last time loop: work that waits
     * for this event runs concurrently with that loop. The event is valid until the next pass; NULL: there is none. The
     * function is NULL on devices without events. */
    void *(*loop_event)(const rcvi_worker *worker, bool last);
    /* Waits for enqueued work; NULL where `run` returns when the work is done. */
    rcv_status (*wait)(rcvi_worker *worker);
    /* Measures the operations per second of a large product; NULL: rcv_measure_peak does. */
    rcv_status (*measure_peak)(rcv_context *context, int ordinal, rcv_dtype dtype, double *operations);
    const struct rcvi_memory *memory;           /* for arenas and data; NULL: it is the context's */
    const struct rcvi_scan_table *scan;         /* linear recurrences without a cell; NULL: the device has none */
    const struct rcvi_learn_table *learn;       /* learn.h; NULL: the device cannot train */
    const struct rcvi_staging_table *staging;   /* NULL where the device's memory is the host's */
    const struct rcvi_collectives *collectives; /* NULL where no library has collectives for this device */
    /* As rcv_measure_memory; the arguments have been checked. */
    rcv_status (*measure_bandwidth)(rcv_context *context, int ordinal, int64_t threads, int reads, size_t bytes,
                                    double *bandwidth);
} rcvi_device;

/* ---- linear recurrences without a cell: rcv_scan of the public header ---- */

typedef struct rcvi_scan rcvi_scan; /* a device's own */

/* The arguments have been checked: sizes do not overflow, batch is at least 1, data that the options announce is given, lengths are in range. */
typedef struct rcvi_scan_table {
    rcv_status (*prepare)(rcv_context *context, int ordinal, const rcv_scan_options *options, rcvi_scan **scan);
    void (*release)(rcvi_scan *scan);
    const char *(*form)(const rcvi_scan *scan);
    rcv_status (*forward)(rcvi_scan *scan, const rcv_scan_data *data, void *stream);
    rcv_status (*backward)(rcvi_scan *scan, const rcv_scan_data *data, const rcv_scan_gradients *gradients,
                           void *stream);
    rcv_status (*wait)(rcvi_scan *scan, void *stream); /* NULL where calls return when the work is done */
} rcvi_scan_table;

/* ---- memory ---- */

typedef struct rcvi_memory {
    rcv_status (*allocate)(int ordinal, size_t bytes, void **memory); /* at a multiple of 256 bytes */
    void (*release)(int ordinal, void *memory);
    rcv_status (*write)(int ordinal, void *to, const void *from, size_t bytes); /* from the host */
    rcv_status (*read)(int ordinal, void *to, const void *from, size_t bytes);  /* to the host */
    /* A stream that no other stream waits for, for work of low priority; a copy on it, done when the call returns. */
    rcv_status (*new_stream)(int ordinal, void **stream);
    void (*free_stream)(int ordinal, void *stream);
    rcv_status (*write_on)(int ordinal, void *to, const void *from, size_t bytes, void *stream);
    size_t (*count_free)(int ordinal); /* bytes */
} rcvi_memory;

/* Asynchronous copies between the device's memory and a pinned staging buffer in the host's memory. They run on a stream of their own,
 * independent of all other enqueued work. Any thread may start and test them. */
typedef struct rcvi_staging rcvi_staging; /* a device's own: one staging buffer and its stream */

enum { RCVI_DEVICE_ID = 128 };

typedef struct rcvi_staging_table {
    rcv_status (*open)(rcv_context *context, int ordinal, size_t bytes, rcvi_staging **staging);
    void (*close)(rcvi_staging *staging);
    void *(*host_memory)(const rcvi_staging *staging); /* the buffer, [bytes] */
    /* Both enqueue a copy, after those enqueued before; `offset`: bytes from the beginning of the buffer. */
    rcv_status (*copy_to_host)(rcvi_staging *staging, size_t offset, const void *from, size_t bytes);
    rcv_status (*copy_to_device)(rcvi_staging *staging, void *to, size_t offset, size_t bytes);
    rcv_status (*test)(rcvi_staging *staging, bool *done); /* are all copies complete? */
    /* Makes the device the calling thread's current one, for libraries that are given pointers to its memory. */
    rcv_status (*set_current)(int ordinal);
    /* Writes the device's identity: host name and bus address, a text that no other device has. */
    rcv_status (*identify)(int ordinal, char id[RCVI_DEVICE_ID]);
    /* True when processes that share the device run in time slices, one at a time; false when their kernels run concurrently. */
    bool (*is_time_sliced)(int ordinal);
} rcvi_staging_table;

/* ---- collectives on the device's memory, by a library such as NCCL ---- */

typedef struct rcvi_collective_comm
    rcvi_collective_comm; /* a device's own: a communicator of the library, with a stream of its own */

enum { RCVI_COLLECTIVE_ID = 128 };

typedef enum {
    RCVI_COLLECTIVE_SUM,            /* all-reduce */
    RCVI_COLLECTIVE_MAX,            /* all-reduce */
    RCVI_COLLECTIVE_REDUCE_SCATTER, /* a sum; rank r receives elements starts[r] .. starts[r + 1] - 1 */
    RCVI_COLLECTIVE_ALL_GATHER,     /* rank r contributes these elements */
    RCVI_COLLECTIVE_BROADCAST       /* from rank `root` */
} rcvi_collective_kind;

typedef struct {
    rcvi_collective_kind kind;
    rcv_dtype dtype; /* RCV_FLOAT32, RCV_FLOAT64; RCV_UINT8 where nothing is reduced */
    void *data;      /* [count] in the device's memory, read and written in place */
    int64_t count;
    const int64_t *starts; /* [size + 1]; shares may differ in size, and be empty */
    int root;
} rcvi_collective;

typedef struct rcvi_collectives {
    rcv_status (*check_available)(void); /* RCV_UNSUPPORTED, with the reason, where the library cannot be used */
    const char *(*name)(void);           /* with its version, where it is available */
    /* Makes the id of a communicator, by one of its ranks, which sends it to the others. */
    rcv_status (*make_id)(char id[RCVI_COLLECTIVE_ID]);
    /* Starts to connect the ranks; they are connected when `test_ready` says so. On failure *comm may be set all the same: close it. */
    rcv_status (*open)(rcv_context *context, int ordinal, const char id[RCVI_COLLECTIVE_ID], int rank, int size,
                       rcvi_collective_comm **comm);
    rcv_status (*test_ready)(rcvi_collective_comm *comm, bool *ready);
    /* By all ranks together; with `abort` alone, without waiting for the others. */
    void (*close)(rcvi_collective_comm *comm, bool abort);
    /* Starts a collective and advances it: called again and again, with the same arguments, until *done. It does not block. `state`:
     * [state_bytes] of the collective, zeroed before the first call. All ranks start the same collectives in the same order. */
    size_t state_bytes;
    rcv_status (*advance)(rcvi_collective_comm *comm, const rcvi_collective *collective, void *state, bool *done);
} rcvi_collectives;

/* ---- the list ---- */

extern const rcvi_device *const rcvi_devices[];
extern const size_t rcvi_device_count;

extern const rcvi_device rcvi_device_cpu;
#ifdef RCV_CUDA
extern const rcvi_device rcvi_device_cuda;
#endif

/* Finds a device by its name: "cpu", "cuda", "cuda:1"; NULL is the CPU. */
rcv_status rcvi_device_find(const char *name, const rcvi_device **device, int *ordinal);

#endif
