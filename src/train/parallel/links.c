/* Links between the ranks that are here, timed as training uses them: by sums among replicas, and messages from stage to stage. */
#include "train/parallel/costs.h"

#include <math.h>

enum { FEW = 128, MANY = 1 << 21, TIMES = 7 }; /* elements: few, and more than caches hold */
static const double long_enough = 0.5;         /* seconds, over slow links */

/* A sum of the replicas, or a message from each stage to the next. */
static rcv_status exchange_once(const rcv_trainer *t, bool message, float *data, int64_t count) {
    const rcvi_topology *topology = &t->topology;
    rcvi_transfer *sent = NULL;
    rcvi_transfer_options o = {.kind = RCVI_SUM_ALL,
                               .type = RCVI_TRANSFER_FLOAT,
                               .data = data,
                               .count = count,
                               .on_device = t->learner->device->memory != NULL};
    if (!message) return rcvi_comm_do(topology->replicas, &o);
    o.kind = RCVI_SEND;
    o.peer = topology->stage + 1;
    if (o.peer < topology->stage_count) RCVI_TRY(rcvi_comm_start(topology->stages, &o, &sent));
    o.kind = RCVI_RECEIVE;
    o.peer = topology->stage - 1;
    o.data = data + MANY;
    rcv_status status = o.peer < 0 ? RCV_OK : rcvi_comm_do(topology->stages, &o);
    rcv_status ended = rcvi_comm_finish(sent, NULL);
    return status ? status : ended;
}

/* Seconds, the slowest rank's, behind a first one that counts only where it takes long. */
static rcv_status time_exchange(const rcv_trainer *t, bool message, float *data, int64_t count, double *seconds) {
    double samples[TIMES + 1], all = 0;
    int done = 0;
    do {
        RCVI_TRY(rcvi_comm_agree(t->topology.world, RCV_OK));
        double began = rcvi_now();
        RCVI_TRY(exchange_once(t, message, data, count));
        samples[done] = rcvi_now() - began;
        RCVI_TRY(rcvi_comm_combine(t->topology.world, RCVI_MAX_ALL, &samples[done], 1));
        all += samples[done++];
    } while (done <= TIMES && all < long_enough);
    *seconds = done > 1 ? rcvi_quantile(samples + 1, done - 1, 0.5) : samples[0];
    return RCV_OK;
}

static rcv_status measure_sums(const rcv_trainer *t, float *data, rcvi_links *links) {
    double others = t->topology.replica_count - 1, few, many;
    RCVI_TRY(time_exchange(t, false, data, FEW, &few));
    RCVI_TRY(time_exchange(t, false, data, MANY, &many));
    links->latency = few / (2 * others);
    links->bandwidth = 2 * others / (others + 1) * MANY * sizeof(float) / fmax(many - few, 1e-9);
    return RCV_OK;
}

static rcv_status measure_messages(const rcv_trainer *t, float *data, rcvi_links *links) {
    double few, many;
    RCVI_TRY(time_exchange(t, true, data, FEW, &few));
    RCVI_TRY(time_exchange(t, true, data, MANY, &many));
    links->message_latency = few;
    links->message_bandwidth = MANY * sizeof(float) / fmax(many - few, 1e-9);
    return RCV_OK;
}

/* By sums and messages of what lies where gradients do, all ranks at once. */
rcv_status rcvi_measure_links(const rcv_trainer *t, rcvi_links *links) {
    void *data = NULL;
    *links = (rcvi_links){.bandwidth = 1e18};
    if (rcvi_comm_size(t->topology.world) < 2) return RCV_OK;
    RCVI_TRY(rcvi_comm_agree(t->topology.world, rcvi_device_new(t->learner, 2 * MANY, sizeof(float), &data)));
    rcv_status status = t->topology.replica_count > 1 ? measure_sums(t, data, links) : RCV_OK;
    if (!status && t->topology.stage_count > 1) status = measure_messages(t, data, links);
    if (t->topology.replica_count == 1) {
        links->latency = links->message_latency;
        links->bandwidth = links->message_bandwidth;
    }
    rcvi_device_free(t->learner, data);
    return status;
}
