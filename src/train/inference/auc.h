/* Areas under ROC curves, of one class against the rest: the part of pairs of a row of the class and another row in which the first has the larger score,
 * where equal scores count half. Scores are kept as float; once they fill RCVI_AUC_BYTES, every row stays with probability one half, and so on: a random
 * sample of the rows, which a hash of their numbers draws, so that the same rows give the same area. Areas of 2 classes are exact for 4
 * million rows, of 10 classes for 1.2 million. */
#ifndef RCVI_AUC_H
#define RCVI_AUC_H

#include "base/base.h"

enum { RCVI_AUC_BYTES = 64 << 20 };

typedef struct {
    rcv_context *context;
    int64_t classes, columns; /* columns: scores of a row; one is enough for two classes */
    int64_t most;             /* rows in memory */
    int64_t seen, count;      /* rows so far, and those that are in memory */
    double limit;             /* rows whose draw is below it stay */
    bool broken;              /* a score was not finite: there are no areas */
    float *scores;            /* [count, columns] */
    int32_t *targets;         /* [count] */
    double *draws;            /* [count] */
    size_t score_capacity, target_capacity, draw_capacity;
} rcvi_auc;

/* `most`: rows in memory; 0: as many as RCVI_AUC_BYTES hold. */
void rcvi_auc_init(rcvi_auc *auc, rcv_context *context, int64_t classes, int64_t most);
void rcvi_auc_free(rcvi_auc *auc);
/* logits: [classes]. */
rcv_status rcvi_auc_add(rcvi_auc *auc, const double *logits, int32_t target);
/* The mean over the classes that some rows have and others have not; of two classes that of the second. NaN: there is none. */
rcv_status rcvi_auc_find(const rcvi_auc *auc, double *area);

#endif
