/* Metrics of predictions, row by row: of classes the numbers of right and wrong ones; of values sums of errors. Rows of several ranks are summed. */
#ifndef RCVI_METRICS_H
#define RCVI_METRICS_H

#include "comm/comm.h"
#include "data/data.h"
#include "train/inference/auc.h"

/* Mean, and the sum of squares of the differences from it, of what should be predicted; the sum of squares of the errors. */
typedef struct {
    double mean, squares, errors;
} rcvi_value_sums;

typedef struct {
    rcv_context *context;
    rcv_data_kind kind;
    int64_t outputs;
    int64_t *confusion; /* [outputs, outputs] of the caller; NULL: it is not wanted */
    double *
        counts; /* [3, outputs] of classes: rows of the class that were predicted so, rows of it, rows that were predicted so */
    bool has_areas; /* scores are kept */
    rcvi_auc auc;
    rcvi_value_sums *values; /* [outputs] */
    double rows;             /* of values */
    double absolute, squares, naive_rows, naive_absolute, naive_squares;
} rcvi_metrics;

/* `kind` has classes or values. `confusion` may be NULL; it becomes zero. `has_areas`: the area under the ROC curve is wanted, which one rank alone can find. */
rcv_status rcvi_metrics_init(rcvi_metrics *metrics, rcv_context *context, rcv_data_kind kind, int64_t outputs,
                             int64_t *confusion, bool has_areas);
void rcvi_metrics_free(rcvi_metrics *metrics);
/* logits: [outputs]. */
rcv_status rcvi_metrics_add_class(rcvi_metrics *metrics, const double *logits, int32_t target);
/* [outputs] each, in the units of the data. `naive`: what the naive forecast has, NaN where it has none; NULL: there is no forecast. */
void rcvi_metrics_add_values(rcvi_metrics *metrics, const double *predicted, const double *wanted, const double *naive);
/* Adds those of all ranks. Collective. */
rcv_status rcvi_metrics_reduce(rcvi_metrics *metrics, rcvi_comm *world);
/* Writes all members but loss and counted. */
rcv_status rcvi_metrics_finish(const rcvi_metrics *metrics, rcv_evaluation *result);
/* No member applies. */
void rcvi_metrics_clear(rcv_evaluation *result);

#endif
