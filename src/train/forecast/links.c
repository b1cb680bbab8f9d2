/* Links between the ranks of a topology, timed as training uses them: by all-reduces among replicas and messages between stages. */
#include "train/forecast/costs.h"

#include <math.h>

enum { FEW = 128, MANY = 1 << 21, TIMES = 7 }; /* elements of a short message, and of one larger than caches; samples */
static const double long_enough = 0.5;         /* seconds after which no further sample is taken */

typedef enum { SUM, MESSAGE } exchange_kind;

typedef struct {
    const rcvi_topology *topology;
    bool on_device;
    float *data; /* [2 * MANY] where gradients are */
} probe;

/* An all-reduce among replicas, or a message from each stage to the next. */
static rcv_status exchange_once(const probe *p, exchange_kind kind, int64_t count) {
    const rcvi_topology *topology = p->topology;
    rcvi_transfer *sent = NULL;
    rcvi_transfer_options o = {.kind = RCVI_ALL_REDUCE_SUM,
                               .type = RCVI_TRANSFER_FLOAT,
                               .data = p->data,
                               .count = count,
                               .on_device = p->on_device};
    if (kind == SUM) return rcvi_transfer_run(topology->replicas, &o);
    o.kind = RCVI_SEND;
    o.peer = topology->stage + 1;
    if (o.peer < topology->stage_count) RCVI_TRY(rcvi_transfer_start(topology->stages, &o, &sent));
    o.kind = RCVI_RECEIVE;
    o.peer = topology->stage - 1;
    o.data = p->data + MANY;
    rcv_status status = o.peer < 0 ? RCV_OK : rcvi_transfer_run(topology->stages, &o);
    rcv_status ended = rcvi_transfer_wait(sent, NULL);
    return status ? status : ended;
}

/* Median seconds of the slowest rank. The first sample is a warm-up, and counts only where it alone takes long enough. */
static rcv_status time_exchange(const probe *p, exchange_kind kind, int64_t count, double *seconds) {
    rcvi_comm *world = p->topology->world;
    double samples[TIMES + 1], all = 0;
    int done = 0;
    do {
        RCVI_TRY(rcvi_comm_agree(world, RCV_OK));
        double began = rcvi_now();
        RCVI_TRY(exchange_once(p, kind, count));
        samples[done] = rcvi_now() - began;
        RCVI_TRY(rcvi_comm_all_reduce(world, RCVI_ALL_REDUCE_MAX, &samples[done], 1));
        all += samples[done++];
    } while (done <= TIMES && all < long_enough);
    *seconds = done > 1 ? rcvi_quantile(samples + 1, done - 1, 0.5) : samples[0];
    return RCV_OK;
}

static rcv_status measure_sums(const probe *p, rcvi_links *links) {
    double others = p->topology->replica_count - 1, few, many;
    RCVI_TRY(time_exchange(p, SUM, FEW, &few));
    RCVI_TRY(time_exchange(p, SUM, MANY, &many));
    links->latency = few / (2 * others);
    links->bandwidth = 2 * others / (others + 1) * MANY * sizeof(float) / fmax(many - few, 1e-9);
    return RCV_OK;
}

static rcv_status measure_messages(const probe *p, rcvi_links *links) {
    double few, many;
    RCVI_TRY(time_exchange(p, MESSAGE, FEW, &few));
    RCVI_TRY(time_exchange(p, MESSAGE, MANY, &many));
    links->message_latency = few;
    links->message_bandwidth = MANY * sizeof(float) / fmax(many - few, 1e-9);
    return RCV_OK;
}

/* All ranks at once. */
rcv_status rcvi_measure_links(const rcv_learner *learner, const rcvi_topology *topology, rcvi_links *links) {
    void *data = NULL;
    *links = (rcvi_links){.bandwidth = 1e18};
    if (rcvi_comm_size(topology->world) < 2) return RCV_OK;
    RCVI_TRY(rcvi_comm_agree(topology->world, rcvi_device_new(learner, 2 * MANY, sizeof(float), &data)));
    const probe p = {.topology = topology, .on_device = learner->device->memory != NULL, .data = data};
    rcv_status status = topology->replica_count > 1 ? measure_sums(&p, links) : RCV_OK;
    if (!status && topology->stage_count > 1) status = measure_messages(&p, links);
    if (topology->replica_count == 1) {
        links->latency = links->message_latency;
        links->bandwidth = links->message_bandwidth;
    }
    rcvi_device_free(learner, data);
    return status;
}
