/* Lines of a run's log: a JSON object each. */
#include "base/json.h"
#include "train/run/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Hands the line over, and releases the object. One for which there was no memory is missed. */
static void say(const rcv_trainer *t, json_t *object) {
    static const char missed[] = "{\"event\":\"warning\",\"message\":\"no memory for a line of the log\"}";
    char *line;
    rcv_status status = rcvi_json_print(t->context, object, JSON_COMPACT | JSON_REAL_PRECISION(12), &line);
    t->call->log(t->call->user, status ? missed : line);
    rcvi_free(t->context, line);
    json_decref(object);
}

/* Nats and what they mean, in tokens; of numbers the loss alone. */
static bool add_loss(const rcv_trainer *t, json_t *object, double loss) {
    if (json_object_set_new(object, "loss", rcvi_json_number(loss))) return false;
    bool bytes = t->learner->vocabulary && rcv_vocabulary_level(t->learner->vocabulary) == RCV_LEVEL_BYTE;
    if (t->learner->shape.kind > RCV_DATA_LINES) return true;
    double perplexity = loss < 700 || !isfinite(loss) ? exp(loss) : 1e300;
    return !(bytes ? json_object_set_new(object, "bits_per_byte", rcvi_json_number(loss / log(2)))
                   : json_object_set_new(object, "perplexity", rcvi_json_number(perplexity)));
}

/* One a bucket. */
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
    for (size_t i = 0; i < t->train_windows + t->valid_windows && good; i++)
        good = !json_array_append_new(plans, json_string(rcv_plan_string(t->work->windows[t->windows[i]].plan)));
    return rcvi_json_if(good, plans);
}

/* Who does what; NULL where there is one rank. */
static json_t *ranks_of(const rcv_trainer *t) {
    const rcvi_topology *topology = rcvi_trainer_topology(t);
    if (!topology) return NULL;
    const rcvi_window *v = &t->work->windows[t->windows[0]];
    const char *split = rcv_settings_get(t->settings, "split");
    json_t *expected = t->forecast.seconds > 0 ? json_pack("{s:f, s:f, s:f, s:f, s:f}", "seconds", t->forecast.seconds,
                                                           "bubble", t->forecast.bubble, "exposed", t->forecast.exposed,
                                                           "exchange", t->forecast.exchange, "sent", t->forecast.sent)
                                               : NULL;
    return json_pack("{s:i, s:i, s:I, s:I, s:s, s:b, s:b, s:s, s:o*}", "replicas", topology->replica_count, "stages",
                     topology->stage_count, "micro_batches", (json_int_t)v->micro, "time_chunks", (json_int_t)v->chunks,
                     "split", split, "bfloat16", (int)topology->bfloat16_gradients, "shares",
                     (int)topology->shares_optimiser, "transport", rcvi_comm_name(topology->world), "expected",
                     expected);
}

void rcvi_log_start(const rcv_trainer *t) {
    if (!t->call->log) return;
    char date[32] = "", *settings = NULL;
    time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc)) strftime(date, sizeof date, "%Y-%m-%d %H:%M UTC", &utc);
    if (rcv_settings_print(t->settings, &settings)) {
        say(t, NULL);
        return;
    }
    say(t, json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o*}", "event",
                     t->state.step ? "resume" : "start", "version", rcv_version(), "date", date, "device",
                     t->learner->device_name, "step", (json_int_t)t->state.step, "parameters",
                     (json_int_t)rcv_learner_parameter_elements(t->learner), "tokens",
                     (json_int_t)rcv_data_tokens(t->train), "batches", (json_int_t)rcvi_batcher_count(t->batcher),
                     "bytes", (json_int_t)rcv_trainer_bytes(t), "shapes", shapes_of(t), "plans", plans_of(t),
                     "settings", rcvi_json_read(settings, strlen(settings), 0, NULL), "ranks", ranks_of(t)));
    rcv_text_free(t->context, settings);
}

void rcvi_log_progress(const rcv_trainer *t) {
    if (!t->call->log) return;
    const rcv_progress *p = &t->progress;
    json_t *object = json_pack("{s:s, s:I, s:f, s:f, s:f, s:f, s:f}", "event", "progress", "step", (json_int_t)p->step,
                               "epoch", p->epochs, "rate", p->rate, "norm", p->norm, "tokens_per_second",
                               p->tokens_per_second, "seconds", p->seconds);
    bool good = !json_object_set_new(object, "update_loss", json_real(t->last));
    say(t, rcvi_json_if(good && add_loss(t, object, p->loss), object));
}

void rcvi_log_validation(const rcv_trainer *t, double loss, bool best) {
    if (!t->call->log) return;
    json_t *object = json_pack("{s:s, s:I, s:f, s:b, s:f}", "event", "validation", "step", (json_int_t)t->progress.step,
                               "epoch", t->progress.epochs, "best", (int)best, "seconds", t->progress.seconds);
    say(t, rcvi_json_if(add_loss(t, object, loss), object));
}

void rcvi_log_checkpoint(const rcv_trainer *t, const char *path) {
    if (!t->call->log) return;
    say(t, json_pack("{s:s, s:I, s:s}", "event", "checkpoint", "step", (json_int_t)t->state.step, "path", path));
}

void rcvi_log_warning(const rcv_trainer *t, const char *message) {
    rcvi_log(t->context, "checkpoint: %s", message);
    if (!t->call->log) return;
    say(t, json_pack("{s:s, s:I, s:s}", "event", "warning", "step", (json_int_t)t->state.step, "message", message));
}

void rcvi_log_timeline(const rcv_trainer *t, int rank, const rcvi_trace_span *spans, size_t count) {
    if (!t->call->log) return;
    json_t *list = json_array();
    bool good = list != NULL;
    for (size_t i = 0; i < count && good; i++)
        good = !json_array_append_new(list, json_pack("[s, i, f, f]", rcvi_trace_names[spans[i].kind], spans[i].unit,
                                                      spans[i].begin, spans[i].end));
    list = rcvi_json_if(good, list);
    say(t, json_pack("{s:s, s:I, s:i, s:i, s:i, s:o}", "event", "timeline", "step", (json_int_t)t->state.step, "rank",
                     rank, "replica", rank / t->topology.stage_count, "stage", rank % t->topology.stage_count, "spans",
                     list));
}

void rcvi_log_end(const rcv_trainer *t, const char *reason) {
    if (!t->call->log) return;
    const rcv_progress *p = &t->progress;
    json_t *object =
        json_pack("{s:s, s:s, s:I, s:f, s:f, s:f}", "event", "end", "reason", reason, "step", (json_int_t)p->step,
                  "epoch", p->epochs, "seconds", p->seconds, "tokens_per_second", p->tokens_per_second);
    bool good = object != NULL;
    if (t->topology.world &&
        t->updates > 0) { /* bytes that a rank sends in an update: the one that sends most, and all together */
        good = !json_object_set_new(object, "sent_most", json_real(t->sent[0])) &&
               !json_object_set_new(object, "sent_all", json_real(t->sent[1]));
    }
    say(t, rcvi_json_if(good && add_loss(t, object, p->loss), object));
}
