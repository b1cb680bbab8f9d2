/* The 1F1B order of a stage.
 *
 * There is no deadlock: give micro-batch m on stage s of S the slot 2 m + s forward and 2 m + 2 S - 1 - s backward. What it waits for on a
 * neighbour has an earlier slot, and, with S - s micro-batches in flight, so has everything before it in its own stage's order. Where units
 * cost the same on all stages and messages nothing, the last stage never waits once it has begun, with any number of chunks. */
#include "train/parallel/pipeline.h"

int rcvi_pipeline_in_flight(const rcvi_pipeline *pipeline, int stage) {
    int above = pipeline->stages - stage;
    return above < pipeline->micro ? above : pipeline->micro;
}

/* Appends all chunks of a micro-batch; gives the next free task. */
static rcvi_pipeline_task *append(const rcvi_pipeline *pipeline, int micro, bool backward, rcvi_pipeline_task *tasks) {
    for (int k = 0; k < pipeline->chunks; k++) {
        int chunk = backward ? pipeline->chunks - 1 - k : k;
        *tasks++ = (rcvi_pipeline_task){.unit = micro * pipeline->chunks + chunk, .backward = backward};
    }
    return tasks;
}

void rcvi_pipeline_order(const rcvi_pipeline *pipeline, int stage, rcvi_pipeline_task *tasks) {
    int next = 0, in_flight = rcvi_pipeline_in_flight(pipeline, stage);
    while (next < in_flight) tasks = append(pipeline, next++, false, tasks);
    for (int m = 0; m < pipeline->micro; m++) {
        tasks = append(pipeline, m, true, tasks);
        if (next < pipeline->micro) tasks = append(pipeline, next++, false, tasks);
    }
}
