/* The log of a run: one JSON object per line, handed to the caller. */
#ifndef RCVI_RUN_LOG_H
#define RCVI_RUN_LOG_H

#include "train/run/report/evaluation_json.h"
#include "train/run/report/progress.h"
#include "train/step/trace.h"

typedef struct {
    rcv_context *context;
    void (*write)(void *user, const char *line); /* NULL: the call has no log, and the functions below do nothing */
    void *user;
    rcvi_loss_form form;
} rcvi_run_log;

/* The first line, of a trainer that is prepared: settings, shapes, plans, ranks. */
void rcvi_log_start(const rcv_trainer *trainer);
void rcvi_log_progress(const rcvi_run_log *log, const rcvi_progress *progress);
void rcvi_log_validation(const rcvi_run_log *log, const rcvi_progress *progress, const rcv_learner *learner,
                         const rcv_evaluation *result, bool is_best);
void rcvi_log_checkpoint(const rcvi_run_log *log, int64_t step, const char *path);
void rcvi_log_warning(const rcvi_run_log *log, int64_t step, const char *message); /* to the context's log, too */
/* One rank's spans of a traced update. */
void rcvi_log_timeline(const rcvi_run_log *log, int64_t step, const rcvi_topology *topology, int rank,
                       const rcvi_trace_span *spans, size_t count);
/* `topology` NULL: one rank, which sends nothing. */
void rcvi_log_end(const rcvi_run_log *log, const rcvi_progress *progress, const rcvi_topology *topology,
                  const char *reason);

#endif
