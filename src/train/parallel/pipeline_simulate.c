/* Simulation of a pipeline's update. The order of each stage is fixed and a link has one sender, so a task's times follow as soon as those of its
 * inputs are known: stages advance one after the other, each as far as it can, and no event queue is needed. */
#include "train/parallel/pipeline.h"

#include <limits.h>
#include <math.h>

/* A stage during the simulation. */
typedef struct {
    const rcvi_pipeline_stage *cost;
    int index;
    const rcvi_pipeline_task *tasks; /* [2 * units] */
    size_t done;                     /* of them */
    /* [units] forward and backward: when a unit's input from a neighbouring stage arrives; -1: not known yet */
    double *arrival[2];
    double link[2];    /* to the stage above, to the one below: when it becomes free */
    double begun, now; /* begin and end of its last computation */
    double summed;     /* when its all-reduces have ended, too */
    double busy, exchange, sent;
    rcvi_pipeline_event *event; /* the next one, or NULL */
} stage_run;

typedef struct {
    const rcvi_pipeline *pipeline;
    size_t units;
    stage_run *stages;         /* [stages] */
    rcvi_pipeline_task *tasks; /* [stages, 2, units] */
    double *there;             /* the same */
} simulation;

/* ---- events ---- */

static void note(stage_run *r, rcvi_pipeline_event_kind kind, int unit, double begin, double end) {
    if (r->event)
        *r->event++ = (rcvi_pipeline_event){.stage = r->index, .kind = kind, .unit = unit, .begin = begin, .end = end};
}

static void compute(stage_run *r, rcvi_pipeline_event_kind kind, int unit, double from, double seconds) {
    r->begun = fmax(r->now, from);
    r->now = r->begun + seconds;
    r->busy += seconds;
    note(r, kind, unit, r->begun, r->now);
}

/* Gives the end of the exchange. */
static double exchange(stage_run *r, rcvi_pipeline_event_kind kind, int segment, double from, double seconds,
                       double sent) {
    r->exchange += seconds;
    r->sent += sent;
    note(r, kind, segment, from, from + seconds);
    return from + seconds;
}

/* A ring over all replicas: one pass for an all-gather or a reduce-scatter, two for an all-reduce. */
static double exchange_in_ring(const rcvi_pipeline *pipeline, stage_run *r, rcvi_pipeline_event_kind kind, int segment,
                               double from, int passes, double bytes) {
    double others = pipeline->replicas - 1, sent = passes * others / pipeline->replicas * bytes;
    return exchange(r, kind, segment, from, passes * others * pipeline->latency + sent / pipeline->bandwidth, sent);
}

/* ---- units ---- */

/* Sends the output of the last task to the stage that needs it. */
static void send(simulation *sim, stage_run *r, rcvi_pipeline_task task) {
    int to = r->index + (task.backward ? -1 : 1), lower = task.backward ? to : r->index;
    if (to < 0 || to >= sim->pipeline->stages) return;
    double bytes = sim->pipeline->stage[lower].message, *link = &r->link[task.backward];
    const rcvi_pipeline *pipeline = sim->pipeline;
    double latency = pipeline->message_latency > 0 ? pipeline->message_latency : pipeline->latency;
    *link = fmax(*link, r->now) +
            bytes / (pipeline->message_bandwidth > 0 ? pipeline->message_bandwidth : pipeline->bandwidth);
    r->sent += bytes;
    sim->stages[to].arrival[task.backward][task.unit] = *link + latency;
}

/* Runs the stage's next task. False: its input is not known yet, or there is no task left. */
static bool advance(simulation *sim, stage_run *r) {
    if (r->done == 2 * sim->units) return false;
    const rcvi_pipeline_task task = r->tasks[r->done];
    const double there = r->arrival[task.backward][task.unit];
    if (there < 0) return false;
    if (task.backward)
        compute(r, RCVI_PIPELINE_BACKWARD, task.unit, there, r->cost->backward);
    else
        compute(r, RCVI_PIPELINE_FORWARD, task.unit, there, r->cost->forward);
    send(sim, r, task);
    r->done++;
    return true;
}

static void run_units(simulation *sim) {
    for (bool moved = true; moved;) {
        moved = false;
        for (int s = 0; s < sim->pipeline->stages; s++) {
            while (advance(sim, &sim->stages[s])) moved = true;
        }
    }
}

/* ---- gradients and update ---- */

static bool has_outcome(const rcvi_pipeline *pipeline) {
    return pipeline->outcome > 0 && (pipeline->stages > 1 || pipeline->replicas > 1);
}
static bool gathers(const rcvi_pipeline *pipeline, int stage) {
    return pipeline->replicas > 1 && pipeline->stage[stage].gathered > 0;
}

static void sum_gradients(const rcvi_pipeline *pipeline, stage_run *r) {
    const int passes = gathers(pipeline, r->index) ? 1 : 2;
    const double last = r->begun;
    compute(r, RCVI_PIPELINE_INPUTS, -1, 0, r->cost->inputs);
    double end = 0;
    for (int i = 0; pipeline->replicas > 1 && i < r->cost->segment_count; i++) {
        const rcvi_pipeline_segment *segment = &r->cost->segments[i];
        double ready = segment->at > 1 ? r->now : last + segment->at * r->cost->backward;
        end = exchange_in_ring(pipeline, r, RCVI_PIPELINE_SUM, i, fmax(end, ready), passes, segment->bytes);
    }
    r->summed = fmax(r->now, end);
}

static double outcome_seconds(const rcvi_pipeline *pipeline) {
    int rounds = 0;
    for (int64_t ranks = (int64_t)pipeline->stages * pipeline->replicas; ((int64_t)1 << rounds) < ranks;) rounds++;
    return 2 * rounds * pipeline->latency + 2 * pipeline->outcome / pipeline->bandwidth;
}

/* Begins when the last rank does. */
static void sum_outcome(simulation *sim) {
    const rcvi_pipeline *pipeline = sim->pipeline;
    double all = 0;
    for (int s = 0; s < pipeline->stages; s++) all = fmax(all, sim->stages[s].summed);
    for (int s = 0; s < pipeline->stages; s++) {
        stage_run *r = &sim->stages[s];
        r->summed = exchange(r, RCVI_PIPELINE_OUTCOME, -1, all, outcome_seconds(pipeline), 2 * pipeline->outcome);
    }
}

/* Gives the end of the stage's update. */
static double update(const rcvi_pipeline *pipeline, stage_run *r) {
    compute(r, RCVI_PIPELINE_UPDATE, -1, r->summed, r->cost->update);
    if (!gathers(pipeline, r->index)) return r->now;
    return exchange_in_ring(pipeline, r, RCVI_PIPELINE_GATHER, -1, r->now, 1, r->cost->gathered);
}

/* When the update would end if exchanges took no time. */
static double end_without_exchanges(const simulation *sim) {
    double all = 0, end = 0;
    for (int s = 0; has_outcome(sim->pipeline) && s < sim->pipeline->stages; s++) all = fmax(all, sim->stages[s].now);
    for (int s = 0; s < sim->pipeline->stages; s++)
        end = fmax(end, fmax(all, sim->stages[s].now) + sim->pipeline->stage[s].update);
    return end;
}

static void finish(simulation *sim, rcvi_pipeline_result *result) {
    const rcvi_pipeline *pipeline = sim->pipeline;
    double busy = 0;
    for (int s = 0; s < pipeline->stages; s++) sum_gradients(pipeline, &sim->stages[s]);
    const double shortest = end_without_exchanges(sim);
    if (has_outcome(pipeline)) sum_outcome(sim);
    *result = (rcvi_pipeline_result){0};
    for (int s = 0; s < pipeline->stages; s++) {
        stage_run *r = &sim->stages[s];
        result->seconds = fmax(result->seconds, update(pipeline, r));
        result->exchange = fmax(result->exchange, r->exchange);
        result->sent = fmax(result->sent, r->sent);
        busy += r->busy;
    }
    result->exposed = result->seconds - shortest;
    if (result->seconds > 0) result->bubble = fmax(shortest - busy / pipeline->stages, 0) / result->seconds;
}

/* ---- the whole update ---- */

static size_t count_events(const rcvi_pipeline *pipeline, int stage) {
    size_t count = 3 + 2 * (size_t)pipeline->micro * (size_t)pipeline->chunks; /* begin, inputs, update */
    if (pipeline->replicas > 1) count += (size_t)pipeline->stage[stage].segment_count;
    return count + has_outcome(pipeline) + gathers(pipeline, stage);
}

size_t rcvi_pipeline_event_count(const rcvi_pipeline *pipeline) {
    size_t count = 0;
    for (int s = 0; s < pipeline->stages; s++) count += count_events(pipeline, s);
    return count;
}

static bool is_cost(double cost) { return cost >= 0 && cost < INFINITY; }

static rcv_status check_stage(const rcvi_pipeline_stage *stage, int index) {
    bool costs = is_cost(stage->forward) && is_cost(stage->backward) && is_cost(stage->begin) &&
                 is_cost(stage->inputs) && is_cost(stage->update) && is_cost(stage->message) &&
                 is_cost(stage->gathered);
    for (int i = 0; i < stage->segment_count; i++)
        costs = costs && is_cost(stage->segments[i].bytes) && stage->segments[i].at >= 0;
    return costs ? RCV_OK
                 : rcvi_fail(RCV_INVALID, "stage %d has a cost that is not a number of seconds or bytes", index);
}

static rcv_status check(const rcvi_pipeline *pipeline) {
    if (pipeline->stages < 1 || pipeline->replicas < 1 || pipeline->micro < 1 || pipeline->chunks < 1 ||
        (int64_t)pipeline->micro * pipeline->chunks > INT_MAX)
        return rcvi_fail(RCV_INVALID, "%d stages of %d replicas with %d micro-batches of %d chunks are not a pipeline",
                         pipeline->stages, pipeline->replicas, pipeline->micro, pipeline->chunks);
    bool alone = pipeline->stages == 1 && pipeline->replicas == 1;
    if (!alone && !(pipeline->bandwidth > 0 && is_cost(pipeline->latency) && is_cost(pipeline->outcome)))
        return rcvi_fail(RCV_INVALID, "a link of %g seconds and %g bytes a second cannot sum %g bytes",
                         pipeline->latency, pipeline->bandwidth, pipeline->outcome);
    for (int s = 0; s < pipeline->stages; s++) RCVI_TRY(check_stage(&pipeline->stage[s], s));
    return RCV_OK;
}

static rcv_status allocate(rcv_context *context, simulation *sim) {
    const size_t stages = (size_t)sim->pipeline->stages;
    sim->stages = rcvi_new(context, stages, sizeof *sim->stages);
    if (sim->stages) sim->tasks = rcvi_new(context, stages, 2 * sim->units * sizeof *sim->tasks);
    if (sim->tasks) sim->there = rcvi_new(context, stages, 2 * sim->units * sizeof *sim->there);
    return sim->there ? RCV_OK : RCV_NO_MEMORY;
}

/* The first stage has its inputs from the beginning; the last one needs no gradient from above, since its forward units come earlier in its order. */
static void start(simulation *sim, rcvi_pipeline_event *events) {
    for (int s = 0; s < sim->pipeline->stages; s++) {
        const size_t place = 2 * (size_t)s * sim->units;
        stage_run *r = &sim->stages[s];
        rcvi_pipeline_order(sim->pipeline, s, sim->tasks + place);
        *r = (stage_run){.cost = &sim->pipeline->stage[s],
                         .index = s,
                         .tasks = sim->tasks + place,
                         .arrival = {sim->there + place, sim->there + place + sim->units},
                         .event = events};
        for (size_t u = 0; u < sim->units; u++) {
            r->arrival[0][u] = s == 0 ? 0 : -1;
            r->arrival[1][u] = s == sim->pipeline->stages - 1 ? 0 : -1;
        }
        compute(r, RCVI_PIPELINE_BEGIN, -1, 0, r->cost->begin);
        if (events) events += count_events(sim->pipeline, s);
    }
}

rcv_status rcvi_pipeline_simulate(rcv_context *context, const rcvi_pipeline *pipeline, rcvi_pipeline_event *events,
                                  rcvi_pipeline_result *result) {
    RCVI_TRY(check(pipeline));
    simulation sim = {.pipeline = pipeline, .units = (size_t)pipeline->micro * (size_t)pipeline->chunks};
    rcv_status status = allocate(context, &sim);
    if (!status) {
        start(&sim, events);
        run_units(&sim);
        finish(&sim, result);
    }
    rcvi_free(context, sim.there);
    rcvi_free(context, sim.tasks);
    rcvi_free(context, sim.stages);
    return status;
}
