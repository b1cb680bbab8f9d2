/* When what is done. The order of each stage is fixed and a link has one sender, so a task's time follows as soon as those of what it
 * needs are known: stages advance in turn, each as far as it can, and no queue of events is needed. */
#include "train/parallel/flow.h"

#include <limits.h>
#include <math.h>

/* A stage on its way through a step. */
typedef struct {
    const rcvi_flow_stage *cost;
    int index;
    const rcvi_task *tasks; /* [2 * units] */
    size_t done;            /* of them */
    /* [units], forwards and backwards: when what a unit needs of the stage below or above is there; -1: not known yet */
    double *there[2];
    double link[2];    /* to the stage above, to the one below: free from then on */
    double begun, now; /* what it computed last began and ended then */
    double summed;     /* when it has its sums too */
    double busy, exchange, sent;
    rcvi_flow_event *event; /* the next one, or NULL */
} lane;

typedef struct {
    const rcvi_flow *flow;
    size_t units;
    lane *lanes;      /* [stages] */
    rcvi_task *tasks; /* [stages, 2, units] */
    double *there;    /* the same */
} simulation;

/* ---- what happens ---- */

static void note(lane *l, rcvi_flow_kind kind, int unit, double begin, double end) {
    if (l->event)
        *l->event++ = (rcvi_flow_event){.stage = l->index, .kind = kind, .unit = unit, .begin = begin, .end = end};
}

static void compute(lane *l, rcvi_flow_kind kind, int unit, double from, double seconds) {
    l->begun = fmax(l->now, from);
    l->now = l->begun + seconds;
    l->busy += seconds;
    note(l, kind, unit, l->begun, l->now);
}

/* Gives its end. */
static double exchange(lane *l, rcvi_flow_kind kind, int bucket, double from, double seconds, double sent) {
    l->exchange += seconds;
    l->sent += sent;
    note(l, kind, bucket, from, from + seconds);
    return from + seconds;
}

/* In a ring of all replicas everything passes by once, which gathers shares or sums them, or twice, for a sum that all have. */
static double exchange_in_ring(const rcvi_flow *flow, lane *l, rcvi_flow_kind kind, int bucket, double from, int passes,
                               double bytes) {
    double others = flow->replicas - 1, sent = passes * others / flow->replicas * bytes;
    return exchange(l, kind, bucket, from, passes * others * flow->latency + sent / flow->bandwidth, sent);
}

/* ---- units ---- */

/* What the last task made, to the stage that needs it. */
static void send(simulation *sim, lane *l, rcvi_task task) {
    int to = l->index + (task.backward ? -1 : 1), lower = task.backward ? to : l->index;
    if (to < 0 || to >= sim->flow->stages) return;
    double bytes = sim->flow->stage[lower].message, *link = &l->link[task.backward];
    const rcvi_flow *flow = sim->flow;
    double latency = flow->message_latency > 0 ? flow->message_latency : flow->latency;
    *link = fmax(*link, l->now) + bytes / (flow->message_bandwidth > 0 ? flow->message_bandwidth : flow->bandwidth);
    l->sent += bytes;
    sim->lanes[to].there[task.backward][task.unit] = *link + latency;
}

/* False: what the next task needs is not known yet, or there is none. */
static bool advance(simulation *sim, lane *l) {
    if (l->done == 2 * sim->units) return false;
    const rcvi_task task = l->tasks[l->done];
    const double there = l->there[task.backward][task.unit];
    if (there < 0) return false;
    if (task.backward)
        compute(l, RCVI_FLOW_BACKWARD, task.unit, there, l->cost->backward);
    else
        compute(l, RCVI_FLOW_FORWARD, task.unit, there, l->cost->forward);
    send(sim, l, task);
    l->done++;
    return true;
}

static void run_units(simulation *sim) {
    for (bool moved = true; moved;) {
        moved = false;
        for (int s = 0; s < sim->flow->stages; s++) {
            while (advance(sim, &sim->lanes[s])) moved = true;
        }
    }
}

/* ---- what follows ---- */

static bool has_outcome(const rcvi_flow *flow) { return flow->outcome > 0 && (flow->stages > 1 || flow->replicas > 1); }
static bool gathers(const rcvi_flow *flow, int stage) { return flow->replicas > 1 && flow->stage[stage].gathered > 0; }

static void sum_gradients(const rcvi_flow *flow, lane *l) {
    const int passes = gathers(flow, l->index) ? 1 : 2;
    const double last = l->begun;
    compute(l, RCVI_FLOW_INPUTS, -1, 0, l->cost->inputs);
    double end = 0;
    for (int i = 0; flow->replicas > 1 && i < l->cost->bucket_count; i++) {
        const rcvi_flow_bucket *bucket = &l->cost->buckets[i];
        double ready = bucket->at > 1 ? l->now : last + bucket->at * l->cost->backward;
        end = exchange_in_ring(flow, l, RCVI_FLOW_SUM, i, fmax(end, ready), passes, bucket->bytes);
    }
    l->summed = fmax(l->now, end);
}

static double outcome_seconds(const rcvi_flow *flow) {
    int rounds = 0;
    for (int64_t ranks = (int64_t)flow->stages * flow->replicas; ((int64_t)1 << rounds) < ranks;) rounds++;
    return 2 * rounds * flow->latency + 2 * flow->outcome / flow->bandwidth;
}

/* All ranks wait for the last one. */
static void sum_outcome(simulation *sim) {
    const rcvi_flow *flow = sim->flow;
    double all = 0;
    for (int s = 0; s < flow->stages; s++) all = fmax(all, sim->lanes[s].summed);
    for (int s = 0; s < flow->stages; s++) {
        lane *l = &sim->lanes[s];
        l->summed = exchange(l, RCVI_FLOW_OUTCOME, -1, all, outcome_seconds(flow), 2 * flow->outcome);
    }
}

/* Gives the end of the stage's step. */
static double update(const rcvi_flow *flow, lane *l) {
    compute(l, RCVI_FLOW_UPDATE, -1, l->summed, l->cost->update);
    if (!gathers(flow, l->index)) return l->now;
    return exchange_in_ring(flow, l, RCVI_FLOW_GATHER, -1, l->now, 1, l->cost->gathered);
}

/* When the step would end if exchanges took no time: all stages have computed, but for the update. */
static double end_without_exchanges(const simulation *sim) {
    double all = 0, end = 0;
    for (int s = 0; has_outcome(sim->flow) && s < sim->flow->stages; s++) all = fmax(all, sim->lanes[s].now);
    for (int s = 0; s < sim->flow->stages; s++)
        end = fmax(end, fmax(all, sim->lanes[s].now) + sim->flow->stage[s].update);
    return end;
}

static void finish(simulation *sim, rcvi_flow_result *result) {
    const rcvi_flow *flow = sim->flow;
    double busy = 0;
    for (int s = 0; s < flow->stages; s++) sum_gradients(flow, &sim->lanes[s]);
    const double shortest = end_without_exchanges(sim);
    if (has_outcome(flow)) sum_outcome(sim);
    *result = (rcvi_flow_result){0};
    for (int s = 0; s < flow->stages; s++) {
        lane *l = &sim->lanes[s];
        result->seconds = fmax(result->seconds, update(flow, l));
        result->exchange = fmax(result->exchange, l->exchange);
        result->sent = fmax(result->sent, l->sent);
        busy += l->busy;
    }
    result->exposed = result->seconds - shortest;
    if (result->seconds > 0) result->bubble = fmax(shortest - busy / flow->stages, 0) / result->seconds;
}

/* ---- around it ---- */

static size_t count_events(const rcvi_flow *flow, int stage) {
    size_t count = 3 + 2 * (size_t)flow->micro * (size_t)flow->chunks; /* begin, inputs, update */
    if (flow->replicas > 1) count += (size_t)flow->stage[stage].bucket_count;
    return count + has_outcome(flow) + gathers(flow, stage);
}

size_t rcvi_flow_event_count(const rcvi_flow *flow) {
    size_t count = 0;
    for (int s = 0; s < flow->stages; s++) count += count_events(flow, s);
    return count;
}

static bool is_cost(double cost) { return cost >= 0 && cost < INFINITY; }

static rcv_status check_stage(const rcvi_flow_stage *stage, int index) {
    bool costs = is_cost(stage->forward) && is_cost(stage->backward) && is_cost(stage->begin) &&
                 is_cost(stage->inputs) && is_cost(stage->update) && is_cost(stage->message) &&
                 is_cost(stage->gathered);
    for (int i = 0; i < stage->bucket_count; i++)
        costs = costs && is_cost(stage->buckets[i].bytes) && stage->buckets[i].at >= 0;
    return costs ? RCV_OK : rcvi_fail(RCV_INVALID, "stage %d has a cost that is no number of seconds or bytes", index);
}

static rcv_status check(const rcvi_flow *flow) {
    if (flow->stages < 1 || flow->replicas < 1 || flow->micro < 1 || flow->chunks < 1 ||
        (int64_t)flow->micro * flow->chunks > INT_MAX)
        return rcvi_fail(RCV_INVALID, "%d stages of %d replicas with %d micro-batches of %d chunks are no flow",
                         flow->stages, flow->replicas, flow->micro, flow->chunks);
    bool alone = flow->stages == 1 && flow->replicas == 1;
    if (!alone && !(flow->bandwidth > 0 && is_cost(flow->latency) && is_cost(flow->outcome)))
        return rcvi_fail(RCV_INVALID, "a link of %g seconds and %g bytes a second cannot sum %g bytes", flow->latency,
                         flow->bandwidth, flow->outcome);
    for (int s = 0; s < flow->stages; s++) RCVI_TRY(check_stage(&flow->stage[s], s));
    return RCV_OK;
}

static rcv_status allocate(rcv_context *context, simulation *sim) {
    const size_t stages = (size_t)sim->flow->stages;
    sim->lanes = rcvi_new(context, stages, sizeof *sim->lanes);
    if (sim->lanes) sim->tasks = rcvi_new(context, stages, 2 * sim->units * sizeof *sim->tasks);
    if (sim->tasks) sim->there = rcvi_new(context, stages, 2 * sim->units * sizeof *sim->there);
    return sim->there ? RCV_OK : RCV_NO_MEMORY;
}

/* The first stage has its inputs, and the last one needs nothing to turn round: what it waits for stands before it in its order. */
static void start(simulation *sim, rcvi_flow_event *events) {
    for (int s = 0; s < sim->flow->stages; s++) {
        const size_t place = 2 * (size_t)s * sim->units;
        lane *l = &sim->lanes[s];
        rcvi_flow_order(sim->flow, s, sim->tasks + place);
        *l = (lane){.cost = &sim->flow->stage[s],
                    .index = s,
                    .tasks = sim->tasks + place,
                    .there = {sim->there + place, sim->there + place + sim->units},
                    .event = events};
        for (size_t u = 0; u < sim->units; u++) {
            l->there[0][u] = s == 0 ? 0 : -1;
            l->there[1][u] = s == sim->flow->stages - 1 ? 0 : -1;
        }
        compute(l, RCVI_FLOW_BEGIN, -1, 0, l->cost->begin);
        if (events) events += count_events(sim->flow, s);
    }
}

rcv_status rcvi_flow_simulate(rcv_context *context, const rcvi_flow *flow, rcvi_flow_event *events,
                              rcvi_flow_result *result) {
    RCVI_TRY(check(flow));
    simulation sim = {.flow = flow, .units = (size_t)flow->micro * (size_t)flow->chunks};
    rcv_status status = allocate(context, &sim);
    if (!status) {
        start(&sim, events);
        run_units(&sim);
        finish(&sim, result);
    }
    rcvi_free(context, sim.there);
    rcvi_free(context, sim.tasks);
    rcvi_free(context, sim.lanes);
    return status;
}
