/* What the output layer gives for the rows of batches, as metrics. */
#ifndef RCVI_SCORE_H
#define RCVI_SCORE_H

#include "train/inference/metrics.h"
#include "train/step/work.h"

typedef struct {
    rcvi_work *work;
    rcvi_metrics metrics;
    int64_t room;               /* rows in memory at once */
    void *device_outputs;       /* [room, outputs] */
    void *outputs;              /* the same on the host */
    double *predicted, *wanted; /* [outputs] of a row */
    double *naive;              /* [outputs]; NULL: there is no forecast whose present value is known */
    int64_t *present;           /* [outputs] features with the present values of the outputs; -1: it is not known */
    float *raw, *values;        /* [features], [outputs] of a row, in the data's units */
} rcvi_scorer;

/* Whether a learner has any metrics beside its loss: texts have none. */
static inline bool rcvi_has_metrics(const rcv_learner *l) { return !rcvi_kind_is_text(l->shape.kind); }
/* `confusion` may be NULL. The work may be of one stage among several; stages without the output layer add nothing. */
rcv_status rcvi_scorer_init(rcvi_scorer *scorer, rcvi_work *work, int64_t *confusion);
void rcvi_scorer_free(rcvi_scorer *scorer);
/* The rows of a batch that rcvi_work_evaluate has read last, by a window of one unit. */
rcv_status rcvi_scorer_add(rcvi_scorer *scorer, size_t window, const rcvi_batch *batch);
/* All members but loss and counted. Collective. */
rcv_status rcvi_scorer_finish(rcvi_scorer *scorer, rcv_evaluation *result);

#endif
