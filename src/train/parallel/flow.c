/* The order in which a stage takes its units.
 *
 * Nobody waits for ever: give micro-batch m on stage s of S the slot 2 m + s forwards and 2 m + 2 S - 1 - s backwards. What it waits
 * for on a neighbour has an earlier slot, and, with S - s micro-batches held, so has all that stands before it in its own stage's order.
 * Where units cost the same on all stages and messages nothing, the last stage never waits once it has begun, however time is cut. */
#include "train/parallel/flow.h"

int rcvi_flow_held(const rcvi_flow *flow, int stage) {
    int above = flow->stages - stage;
    return above < flow->micro ? above : flow->micro;
}

/* All chunks of a micro-batch; gives the place behind them. */
static rcvi_task *put(const rcvi_flow *flow, int micro, bool backward, rcvi_task *tasks) {
    for (int k = 0; k < flow->chunks; k++) {
        int chunk = backward ? flow->chunks - 1 - k : k;
        *tasks++ = (rcvi_task){.unit = micro * flow->chunks + chunk, .backward = backward};
    }
    return tasks;
}

void rcvi_flow_order(const rcvi_flow *flow, int stage, rcvi_task *tasks) {
    int next = 0, held = rcvi_flow_held(flow, stage);
    while (next < held) tasks = put(flow, next++, false, tasks);
    for (int m = 0; m < flow->micro; m++) {
        tasks = put(flow, m, true, tasks);
        if (next < flow->micro) tasks = put(flow, next++, false, tasks);
    }
}
