/* The test at the end of a training run. */
#ifndef TOOL_TRAINING_TEST_RESULT_H
#define TOOL_TRAINING_TEST_RESULT_H

#include "training/progress.h"

typedef struct {
    rcv_evaluation evaluation;
    int64_t *confusion; /* [classes, classes]; NULL: no classes, or too many */
    size_t classes;
} test_result;

/* Tests the model, shows that it does, and prints the result: for classes one by one, for values beside the naive forecast. RCV_STOPPED after a
 * signal. Free with test_result_free. */
rcv_status test_model(rcv_learner *learner, const rcv_data *data, const char *path, progress *progress,
                      test_result *result);
void test_result_free(test_result *result);

#endif
