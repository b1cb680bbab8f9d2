/* Searches beside the caller (RCV_BACKGROUND): a plan that needs little planning is used at once, while a thread looks for a better one. Runs
 * take the better plan between two calls. One search of a context runs at a time; the others wait for it. */
#ifndef RCVI_BACKGROUND_H
#define RCVI_BACKGROUND_H

#include "plan/plan.h"

typedef struct rcvi_background rcvi_background;

/* A run of the plan, and the stream of its calls: trials wait while the caller captures it. */
typedef struct rcvi_watched {
    void *stream; /* NULL: cannot be captured */
    struct rcvi_watched *next;
} rcvi_watched;

/* Starts the search for a plan that replaces `plan`. The options' texts are copied. */
rcv_status rcvi_background_start(const rcvi_problem *problem, rcv_plan *plan);
/* Stops the search, waits for its thread and frees what it found. NULL does nothing. */
void rcvi_background_free(rcvi_background *background);

/* The plan that calls use from now on: the one that was found, or the plan itself. */
const rcv_plan *rcvi_plan_newest(const rcv_plan *plan);

/* A call of the plan begins; a call, in training with its backward call, is done. On a CPU the search begins after the first one, which it would
 * slow down. */
void rcvi_background_note_begin(rcvi_background *background);
void rcvi_background_note_end(rcvi_background *background);

void rcvi_background_watch(rcvi_background *background, rcvi_watched *run);
void rcvi_background_unwatch(rcvi_background *background, rcvi_watched *run);
void rcvi_background_set_stream(rcvi_background *background, rcvi_watched *run, void *stream);

#endif
