/* Recurve: training over several processes (ranks). The conventions are those of recurve.h. */
#ifndef RECURVE_DISTRIBUTED_H
#define RECURVE_DISTRIBUTED_H

#include "recurve.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- ranks ------------------------------------------------------------------------------------------------------- */

/* The ranks that mpirun, or a launcher like it, started together; one world per process. Rank 0 writes files. A rank
 * that cannot continue calls rcv_world_fail; every call of the other ranks then returns RCV_PEER. A rank that ends, or
 * makes no progress for longer than the timeout, is detected, and the others return RCV_PEER as well. One thread at a
 * time. */
typedef struct rcv_world rcv_world;

typedef struct {
    size_t size;
    const char *transport; /* "mpi"; "nccl" (NCCL for GPU memory, MPI for the rest); "self" (one process); NULL: what is
                              available */
    double timeout;        /* seconds without progress; 0: none */
} rcv_world_options;

/* Thread-safe. The number of processes started together, as the environment says, and in *rank which of them this is; 1
 * and 0 without a launcher. `rank` may be NULL. */
RCV_API int rcv_world_started(int *rank);
/* All ranks call it. `options` may be NULL: defaults. */
RCV_API rcv_status rcv_world_open(rcv_context *context, const rcv_world_options *options, rcv_world **world);
/* All ranks call it; after a failure each one alone, and the process should then exit: MPI may end it in this call.
 * NULL does nothing. */
RCV_API void rcv_world_close(rcv_world *world);
RCV_API int rcv_world_rank(const rcv_world *world);
RCV_API int rcv_world_size(const rcv_world *world);
RCV_API int rcv_world_local_size(const rcv_world *world);   /* ranks on this machine */
RCV_API const char *rcv_world_name(const rcv_world *world); /* for messages; valid as long as the world */
RCV_API int64_t rcv_world_sent(const rcv_world *world);     /* bytes that this rank has sent */
/* All ranks call it with their status. RCV_OK if all have RCV_OK. Otherwise the lowest rank with an error returns its
 * own status, the others RCV_PEER. */
RCV_API rcv_status rcv_world_agree(rcv_world *world, rcv_status status);
/* Ends the calls of all other ranks with RCV_PEER and this sentence, which is copied. */
RCV_API void rcv_world_fail(rcv_world *world, const char *sentence);
/* After a failure: should this rank print the reason? */
RCV_API bool rcv_world_reports_failure(const rcv_world *world);
RCV_API void rcv_world_report_progress(rcv_world *world); /* counts as progress, for work outside of the library */

/* ---- training ---------------------------------------------------------------------------------------------------- */

/* rcv_trainer_new as one rank of a world; all ranks call it, with the same settings and data, which is checked.
 * One thread at a time. `valid` may be NULL. `world` may be NULL: one process; otherwise it must outlive the trainer. The
 * setting `parallel` says how work is distributed. All ranks make all calls with the trainer; rank 0 writes files and
 * calls the callbacks. */
RCV_API rcv_status rcv_trainer_join(rcv_context *context, const rcv_settings *settings, const rcv_data *train,
                                    const rcv_data *valid, rcv_world *world, rcv_trainer **trainer);

/* ---- forecasts: what an update would take on many devices -------------------------------------------------------- */

typedef struct {
    size_t size;
    int devices;               /* of a machine whose devices are all like this one; 0: the ranks of this world */
    const char *parallel;      /* the distribution, as the setting `parallel`; NULL: "data" */
    double bandwidth, latency; /* of its links: bytes per second in each direction, and seconds */
} rcv_forecast_options;

/* Written by the library, as many bytes as `size` says. */
typedef struct {
    size_t size;
    int replicas, stages;
    int64_t micro_batches, time_chunks;
    char split[256];           /* layers of each stage: "2,1,1" */
    double bandwidth, latency; /* of a link, as given or as measured */
    double seconds;            /* of an update */
    double tokens_per_second;  /* with padding */
    double busy, bubble;       /* fractions of the time of all devices: computing, and waiting for each other */
    double exposed;            /* seconds of an update that communication adds */
    double exchange;           /* seconds of all communication, overlapped or not */
    double sent;               /* bytes sent by the device that sends most */
} rcv_forecast;

/* Measures stages on this machine, on all ranks if the trainer has a world, and simulates an update. Before or between
 * runs. What the settings leave open (split, units) is chosen. `options` may be NULL: defaults. One thread at a time
 * with the same trainer. */
RCV_API rcv_status rcv_trainer_forecast(rcv_trainer *trainer, const rcv_forecast_options *options,
                                        rcv_forecast *forecast);

/* ---- gradients that are complete before the backward pass ends --------------------------------------------------- */

/* For plans with option `signals`: signals[l], for l from 0 to the number of layers, becomes *value when the following
 * backward calls have written all gradients of layer l's parameters, so that they can be sent while the call goes on.
 * The last entry is for the first half of layer 0's parameters (up to the parameter boundary nearest to its middle).
 * The device reads *value in its memory and writes signals in host memory, which must be pinned on a GPU; both must
 * stay valid. NULL for both ends it. One thread at a time with the same run. */
RCV_API rcv_status rcv_run_set_signals(rcv_run *run, uint64_t *signals, const uint64_t *value);

#ifdef __cplusplus
}
#endif

#endif
