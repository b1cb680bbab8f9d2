/* One run of a comparison. */
#include "compare/compare.h"
#include "tool.h"
#include "training/progress.h"
#include "verbs/train_log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    train_log log;
    progress progress;
    bool has_started;
} running;

/* ---- what the trainer calls ---- */

static bool on_progress(void *user, const rcv_progress *report) {
    progress_update(&((running *)user)->progress, report);
    return stop_signal() == 0;
}

static void on_validating(void *user, double part) { progress_phase(&((running *)user)->progress, "validating", part); }

/* The first line comes when plans are made. */
static void on_log(void *user, const char *line) {
    running *running = user;
    if (!running->has_started) {
        running->has_started = true;
        progress_start(&running->progress);
    }
    if (!train_log_line(&running->log, line)) {
        progress_clear(&running->progress);
        train_log_failure(&running->log);
    }
}

/* ---- the run ---- */

/* "2/4 gru:" */
static char *prefix_of(const cell_comparison *comparison, size_t index) {
    const compared_run *run = &comparison->runs[index];
    return text_of("%zu/%zu %.24s:", index + 1, comparison->run_count, run->name);
}

/* Of a run that is continued, the limit in seconds is what is left of it. */
static rcv_status settings_of(const compared_run *run, rcv_settings **settings) {
    const double seconds = strtod(rcv_settings_get(run->settings, "seconds"), NULL), least = 0.001;
    rcv_status status = rcv_settings_copy(run->settings, settings);
    if (status == RCV_OK && seconds > 0 && run->state == RUN_STOPPED && run->result.seconds > 0) {
        char left[32];
        snprintf(left, sizeof left, "%.3f", fmax(seconds - run->result.seconds, least));
        status = rcv_settings_set(*settings, "seconds", left);
    }
    return status;
}

static run_result result_of(metric_kind kind, const rcv_progress *report, double best_metric) {
    const bool is_validated = report->validation != 0;
    return (run_result){.step = report->step,
                        .seconds = report->seconds,
                        .speed = report->tokens_per_second,
                        .loss = report->step > 0 ? report->loss : NAN,
                        .final = is_validated ? report->validation : NAN,
                        .best = report->best != 0 ? report->best : NAN,
                        .metric = is_validated ? best_metric : metric_value(kind, report->loss, NAN)};
}

static rcv_status train(const cell_comparison *comparison, compared_run *run, running *running, rcv_trainer *trainer) {
    const bool resumes = run->state == RUN_STOPPED;
    const rcv_trainer_options options =
        RCV_INIT(rcv_trainer_options, .output = run->model, .overwrite = comparison->overwrite || run->is_ours,
                 .progress = on_progress, .log = on_log, .user = running, .validating = on_validating);
    const double best_before = resumes ? run->result.metric : NAN;
    rcv_status status = resumes ? rcv_trainer_resume(trainer, run->model) : RCV_OK;
    if (status != RCV_OK) {
        return status;
    }
    status = rcv_trainer_run(trainer, &options);
    const rcv_progress *report = rcv_trainer_progress(trainer);
    progress_end(&running->progress, report);
    const double best_now = running->progress.best_metric;
    run->result = result_of(comparison->metric, report, isfinite(best_now) ? best_now : best_before);
    run->state = status == RCV_OK                                ? RUN_FINISHED
                 : status == RCV_STOPPED && report->written >= 0 ? RUN_STOPPED
                 : status == RCV_STOPPED                         ? RUN_NEW
                                                                 : RUN_FAILED;
    return status;
}

rcv_status train_run(cell_comparison *comparison, size_t index) {
    compared_run *run = &comparison->runs[index];
    running running = {.has_started = false};
    rcv_settings *settings = NULL;
    rcv_trainer *trainer = NULL;
    const data_files *files = &comparison->files;
    char *prefix = prefix_of(comparison, index);
    rcv_status status = settings_of(run, &settings);
    if (status == RCV_OK) {
        train_log_begin(&running.log, settings, run->model, run->state == RUN_STOPPED);
        progress_begin(&running.progress, settings, files->data[PART_TRAIN], prefix, true);
        status =
            rcv_trainer_new(comparison->context, settings, files->data[PART_TRAIN], files->data[PART_VALID], &trainer);
    }
    if (status == RCV_OK) {
        status = train(comparison, run, &running, trainer);
    } else {
        run->state = RUN_FAILED;
    }
    progress_clear(&running.progress);
    run->is_ours = true;
    rcv_trainer_free(trainer);
    if (!train_log_end(&running.log) && status == RCV_OK) {
        run->state = RUN_FAILED;
    }
    rcv_settings_free(settings);
    free(prefix);
    return status;
}
