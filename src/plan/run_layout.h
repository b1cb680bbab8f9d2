/* Inside of a run: its struct, and where everything lies in its memory. Included by run.c, call.c and run_layout.c alone. */
#ifndef RCVI_RUN_LAYOUT_H
#define RCVI_RUN_LAYOUT_H

#include "plan/background.h"
#include "plan/run.h"
#include "recurve_distributed.h"

/* Bytes at whose multiples parts of a run's memory begin; the caller's reserves, whose buffers need no more. */
enum { RCVI_RUN_ALIGNMENT = 256, RCVI_RESERVE_ALIGNMENT = 64 };

/* Whose the reserve is. */
typedef enum { RCVI_OF_CALLS, RCVI_OF_RUN } rcvi_reserve_owner;

struct rcv_run {
    const rcv_plan *plan;
    rcv_run *small;  /* does the calls of few sequences; NULL: this run does all calls */
    rcv_run *recent; /* of these two, the one that did the last forward call */
    /* Of a plan by RCV_BACKGROUND: */
    const rcv_plan *first_plan; /* the one that the caller made; NULL: it is not by RCV_BACKGROUND */
    rcvi_watched watched;
    int64_t version; /* of `plan` */
    rcv_run *newer;  /* does the calls since the plan was replaced; NULL: this one does */
    rcv_run *last;   /* did the last forward call */
    bool stays;      /* it does not take a newer version by itself */
    /* Of the last forward call: */
    bool last_is_empty;      /* it had no sequences */
    char *last_reserve;      /* its reserve */
    bool forward_done;       /* there was one */
    bool is_empty;           /* the call whose data is bound, which a backward call may name, had no sequences */
    rcv_run *packer;         /* the run whose packed parameters it uses: itself, or another one of the plan */
    bool parameters_seen;    /* by a forward call: they are packed; valid in the packer, as is the next */
    bool backward_is_stale;  /* parameters have changed since the last backward call */
    const void **parameters; /* [rcvi_run_array_count] of the last forward call; valid in the packer */
    uint64_t seed;
    const uint64_t *seed_at; /* in the device's memory: of calls that do not say where theirs is; or NULL */
    rcvi_shard shard;
    uint64_t *signals;      /* counters of the host; NULL: signals are not raised */
    const uint64_t *signal; /* in the device's memory */
    bool captures_at_once;
    void *stream;
    const uint64_t *call_seed_at; /* of the last forward call: in the device's memory, or NULL */
    rcvi_worker *worker;
    rcvi_instance *instance; /* the plan's program at the sizes of the last forward call */
    rcvi_sizes packed;       /* sizes at which the parameters were packed; valid in the packer */
    rcv_event *events;
    size_t event_capacity, event_count;
    rcvi_range *
        ranges; /* [external_count + 1] the caller's arrays, the last one its reserve, as the call that is being checked gives them */
    bool forward_is_checked;  /* `ranges` are those of a forward call, and do not overlap */
    bool *restart_is_initial; /* [state_count] */
    bool borrows;             /* its arena is another run's */
    char *arena;
    void *host_block; /* with its arena, where that is in the host's memory */
    int64_t *lengths; /* [batch] those of the call in range: on the host, with plan option device_lengths; else NULL */
    const int64_t *given_lengths; /* the caller's, then */
    rcvi_reserve_owner owner;
    char *reserve;   /* of the calls that follow: the beginning of the arena, or the caller's */
    void *buffers[]; /* [buffer_count] */
};

/* ---- run_layout.c: bytes and offsets ---- */

size_t rcvi_run_round_up(size_t bytes);
size_t rcvi_run_array_count(const rcv_plan *plan); /* arrays in which calls give parameters */
/* Lengths that are not checked are copied, where the device does not copy them. */
bool rcvi_run_copies_lengths(const rcv_plan *plan);
size_t rcvi_run_lengths_bytes(const rcv_plan *plan);
/* Of the run itself, and of all that it has in the host's memory. */
size_t rcvi_run_header_bytes(const rcv_plan *plan);
size_t rcvi_run_host_bytes(const rcv_plan *plan, rcvi_reserve_owner owner, bool borrows);
/* Of a reserve; where in it the device's part begins, and on the host the seed. */
size_t rcvi_run_needs_reserve(const rcv_plan *plan);
size_t rcvi_run_kept_offset(const rcv_plan *plan);
bool rcvi_run_keeps_seed(const rcv_plan *plan);
size_t rcvi_run_seed_offset(const rcv_plan *plan);
rcvi_reserve_owner rcvi_run_owner(const rcv_plan *plan);
/* Of the arena; where in it the device's scratch begins, and a buffer that is not kept. */
size_t rcvi_run_arena_bytes(const rcv_plan *plan, rcvi_reserve_owner owner);
void *rcvi_run_scratch(const rcv_run *run);
void *rcvi_run_arena_place(const rcv_run *run, const rcvi_buffer *buffer);
/* Kept buffers of the calls that follow are in this reserve. */
void rcvi_run_use_reserve(rcv_run *run, char *reserve);
/* Sets sizes and names of the caller's arrays. */
void rcvi_run_describe_ranges(rcv_run *run);

/* ---- run.c: versions of a plan ---- */

/* Parameters that were packed are packed again in the next forward call. */
void rcvi_run_forget_parameters(rcv_run *run);

/* Notes whether the stream is captured: a run whose calls are captured stays, since the caller's graph refers to its memory. */
void rcvi_run_note_capture(rcv_run *run);
/* Does the run take another version before the next forward call? Notes captures. */
bool rcvi_run_will_follow(rcv_run *run);
/* Takes the newest version, and frees the memory of the other. Without memory for it the run stays as it is. */
void rcvi_run_follow_plan(rcv_run *run);
/* The run that makes a call of this version; 0: the present one. */
rcv_status rcvi_run_find_version(rcv_run *run, int64_t version, rcv_run **found);

#endif
