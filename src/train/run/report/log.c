/* Lines of a run's log, one JSON object each: see log.h. */
#include "train/run/report/log.h"

#include "train/run/report/evaluation_json.h"
#include "train/run/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Writes the object as a line and releases it. NULL: there was no memory for it, and a warning is written instead. */
static void write_line(const rcvi_run_log *log, json_t *object) {
    static const char missed[] = "{\"event\":\"warning\",\"message\":\"no memory for a line of the log\"}";
    char *line;
    rcv_status status = rcvi_json_print(log->context, object, JSON_COMPACT | JSON_REAL_PRECISION(12), &line);
    log->write(log->user, status ? missed : line);
    rcvi_free(log->context, line);
    json_decref(object);
}

static bool add_loss(const rcvi_run_log *run_log, json_t *object, double loss) {
    return rcvi_json_add_loss(object, run_log->form, loss);
}

/* One entry per bucket. */
static json_t *shapes_of(const rcv_trainer *t) {
    json_t *shapes = json_array();
    bool good = shapes != NULL;
    int64_t steps, batch, batches;
    for (size_t i = 0; good && rcvi_batcher_shape(t->batcher, i, &steps, &batch, &batches); i++)
        good = !json_array_append_new(shapes, json_pack("{s:I, s:I, s:I}", "steps", (json_int_t)steps, "batch",
                                                        (json_int_t)batch, "batches", (json_int_t)batches));
    return rcvi_json_if(good, shapes);
}

static json_t *plans_of(const rcv_trainer *t) {
    json_t *plans = json_array();
    bool good = plans != NULL;
    for (size_t i = 0; i < t->windows.train_count + t->windows.valid_count && good; i++)
        good = !json_array_append_new(plans, json_string(rcv_plan_string(rcvi_trainer_window(t, i)->plan)));
    return rcvi_json_if(good, plans);
}

/* The topology and its forecast; NULL with one rank. */
static json_t *ranks_of(const rcv_trainer *t) {
    const rcvi_topology *topology = rcvi_trainer_topology(t);
    if (!topology) return NULL;
    const rcvi_window *v = rcvi_trainer_window(t, 0);
    const char *split = rcv_settings_get(t->settings, "split");
    json_t *expected = t->windows.forecast.seconds > 0
                           ? json_pack("{s:f, s:f, s:f, s:f, s:f}", "seconds", t->windows.forecast.seconds, "bubble",
                                       t->windows.forecast.bubble, "exposed", t->windows.forecast.exposed, "exchange",
                                       t->windows.forecast.exchange, "sent", t->windows.forecast.sent)
                           : NULL;
    return json_pack("{s:i, s:i, s:I, s:I, s:s, s:b, s:b, s:s, s:o*}", "replicas", topology->replica_count, "stages",
                     topology->stage_count, "micro_batches", (json_int_t)v->micro, "time_chunks", (json_int_t)v->chunks,
                     "split", split, "bfloat16", (int)topology->bfloat16_gradients, "shares",
                     (int)topology->shares_optimiser, "transport", rcvi_comm_name(topology->world), "expected",
                     expected);
}

/* The training data. */
static json_t *data_of(const rcv_trainer *t) {
    const rcv_data *data = t->train;
    const char *description = rcv_data_description(data);
    const bool classes = rcvi_kind_has_classes(t->learner->shape.kind);
    return json_pack("{s:s*, s:s, s:I, s:I, s:I, s:I, s:o*}", "description", description, "kind",
                     rcvi_kind_name(t->learner->shape.kind), "sequences", (json_int_t)rcv_data_sequences(data), "steps",
                     (json_int_t)rcv_data_tokens(data), "features", (json_int_t)rcv_data_features(data), "outputs",
                     (json_int_t)rcv_data_outputs(data), "classes",
                     classes ? json_integer((json_int_t)rcv_data_outputs(data)) : NULL);
}

void rcvi_log_start(const rcv_trainer *t) {
    if (!t->log.write) return;
    char date[32] = "", *settings = NULL;
    time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc)) strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", &utc);
    if (rcv_settings_print(t->settings, &settings)) {
        write_line(&t->log, NULL);
        return;
    }
    write_line(&t->log, json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o*}", "event",
                                  t->state.step ? "resume" : "start", "version", rcv_version(), "date", date, "device",
                                  t->learner->device_name, "step", (json_int_t)t->state.step, "parameters",
                                  (json_int_t)rcv_learner_parameter_elements(t->learner), "tokens",
                                  (json_int_t)rcv_data_tokens(t->train), "batches",
                                  (json_int_t)rcvi_batcher_count(t->batcher), "bytes", (json_int_t)rcv_trainer_bytes(t),
                                  "data", data_of(t), "shapes", shapes_of(t), "plans", plans_of(t), "settings",
                                  rcvi_json_read(settings, strlen(settings), 0, NULL), "ranks", ranks_of(t)));
    rcv_text_free(t->context, settings);
}

void rcvi_log_progress(const rcvi_run_log *log, const rcvi_progress *progress) {
    if (!log->write) return;
    const rcv_progress *p = &progress->report;
    json_t *object = json_pack("{s:s, s:I, s:f, s:f, s:f, s:f, s:f}", "event", "progress", "step", (json_int_t)p->step,
                               "epoch", p->epochs, "rate", p->rate, "norm", p->norm, "tokens_per_second",
                               p->tokens_per_second, "seconds", p->seconds);
    bool good = !json_object_set_new(object, "update_loss", json_real(progress->last_loss));
    write_line(log, rcvi_json_if(good && add_loss(log, object, p->loss), object));
}

void rcvi_log_validation(const rcvi_run_log *log, const rcvi_progress *progress, const rcv_learner *learner,
                         const rcv_evaluation *result, bool is_best) {
    if (!log->write) return;
    const rcv_progress *p = &progress->report;
    json_t *object = json_pack("{s:s, s:I, s:f, s:b, s:f}", "event", "validation", "step", (json_int_t)p->step, "epoch",
                               p->epochs, "best", (int)is_best, "seconds", p->seconds);
    bool good = add_loss(log, object, result->loss) && rcvi_json_add_metrics(object, learner->shape.kind, result);
    write_line(log, rcvi_json_if(good, object));
}

void rcvi_log_checkpoint(const rcvi_run_log *log, int64_t step, const char *path) {
    if (!log->write) return;
    write_line(log, json_pack("{s:s, s:I, s:s}", "event", "checkpoint", "step", (json_int_t)step, "path", path));
}

void rcvi_log_warning(const rcvi_run_log *log, int64_t step, const char *message) {
    rcvi_log(log->context, "checkpoint: %s", message);
    if (!log->write) return;
    write_line(log, json_pack("{s:s, s:I, s:s}", "event", "warning", "step", (json_int_t)step, "message", message));
}

void rcvi_log_timeline(const rcvi_run_log *log, int64_t step, const rcvi_topology *topology, int rank,
                       const rcvi_trace_span *spans, size_t count) {
    if (!log->write) return;
    json_t *list = json_array();
    bool good = list != NULL;
    for (size_t i = 0; i < count && good; i++)
        good = !json_array_append_new(list, json_pack("[s, i, f, f]", rcvi_trace_names[spans[i].kind], spans[i].unit,
                                                      spans[i].begin, spans[i].end));
    list = rcvi_json_if(good, list);
    write_line(log, json_pack("{s:s, s:I, s:i, s:i, s:i, s:o}", "event", "timeline", "step", (json_int_t)step, "rank",
                              rank, "replica", rank / topology->stage_count, "stage", rank % topology->stage_count,
                              "spans", list));
}

void rcvi_log_end(const rcvi_run_log *log, const rcvi_progress *progress, const rcvi_topology *topology,
                  const char *reason) {
    if (!log->write) return;
    const rcv_progress *p = &progress->report;
    json_t *object =
        json_pack("{s:s, s:s, s:I, s:f, s:f, s:f}", "event", "end", "reason", reason, "step", (json_int_t)p->step,
                  "epoch", p->epochs, "seconds", p->seconds, "tokens_per_second", p->tokens_per_second);
    bool good = object != NULL;
    if (topology && progress->updates > 0)
        good = !json_object_set_new(object, "sent_most", json_real(progress->sent_most)) &&
               !json_object_set_new(object, "sent_all", json_real(progress->sent_all));
    write_line(log, rcvi_json_if(good && add_loss(log, object, p->loss), object));
}
