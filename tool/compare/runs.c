/* The runs of a comparison and their files. */
#include "compare/compare.h"
#include "paths.h"
#include "tool.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- the list ---- */

static rcv_status make_run(const cell_comparison *comparison, compared_run *run, const compared_cell *cell,
                           int64_t first, int64_t seed) {
    char number[32];
    snprintf(number, sizeof number, "%lld", (long long)first + (long long)seed);
    run->cell = cell;
    run->name = seed == 0 ? text_of("%s", cell->name) : text_of("%s-seed%s", cell->name, number);
    run->model = text_of("%s/%s.safetensors", comparison->folder, run->name);
    run->log = text_of("%s/%s.jsonl", comparison->folder, run->name);
    run->result = (run_result){.loss = NAN, .final = NAN, .best = NAN, .metric = NAN};
    const rcv_status status = rcv_settings_copy(cell->settings, &run->settings);
    return status == RCV_OK ? rcv_settings_set(run->settings, "seed", number) : status;
}

rcv_status runs_make(cell_comparison *comparison, int64_t seeds) {
    const int64_t first = strtoll(rcv_settings_get(comparison->cells[0].settings, "seed"), NULL, 10);
    rcv_status status = RCV_OK;
    comparison->run_count = (size_t)seeds * comparison->cell_count;
    comparison->runs = need(comparison->run_count, sizeof *comparison->runs);
    for (size_t i = 0; i < comparison->run_count && status == RCV_OK; i++) {
        status = make_run(comparison, &comparison->runs[i], &comparison->cells[i % comparison->cell_count], first,
                          (int64_t)(i / comparison->cell_count));
    }
    return status;
}

void cell_comparison_free(cell_comparison *comparison) {
    for (size_t i = 0; i < comparison->run_count; i++) {
        compared_run *run = &comparison->runs[i];
        free(run->name);
        free(run->model);
        free(run->log);
        rcv_settings_free(run->settings);
    }
    for (size_t i = 0; i < comparison->cell_count; i++) {
        compared_cell *cell = &comparison->cells[i];
        free(cell->name);
        free(cell->equations);
        free(cell->shape);
        rcv_settings_free(cell->settings);
    }
    data_files_close(&comparison->files);
    free(comparison->runs);
    free(comparison->cells);
    free(comparison->record);
    free(comparison->page);
    json_decref(comparison->earlier);
}

/* ---- the files ---- */

static bool files_are_apart(const cell_comparison *comparison, const char *config) {
    const rcv_settings *settings = comparison->cells[0].settings;
    paths paths = {0};
    paths_add(&paths, PATH_READ, "--config", config);
    paths_add_data_files(&paths, &comparison->files, settings);
    for (size_t i = 0; i < comparison->cell_count; i++) {
        paths_add_cell(&paths, "the cell", comparison->cells[i].cell);
    }
    for (size_t i = 0; i < comparison->run_count; i++) {
        paths_add_model(&paths, comparison->runs[i].model, strtoll(rcv_settings_get(settings, "keep"), NULL, 10));
        paths_add(&paths, PATH_WRITTEN, "the log", comparison->runs[i].log);
    }
    paths_add(&paths, PATH_WRITTEN, "the record", comparison->record);
    paths_add(&paths, PATH_WRITTEN, "the page", comparison->page);
    paths_add(&paths, PATH_WRITTEN, "--wisdom", rcv_settings_get(settings, "wisdom"));
    return paths_are_apart(&paths);
}

/* May the run's log and model be written? Files that no record has are those of somebody else. */
static bool run_is_free(const cell_comparison *comparison, const compared_run *run) {
    const bool overwrite = comparison->overwrite || run->is_ours;
    const char *resumed = run->state == RUN_STOPPED ? run->model : NULL;
    if (run->state == RUN_FINISHED) {
        return true;
    }
    if (!output_is_free(run->log, OUTPUT_LOG)) {
        return false;
    }
    if (!overwrite && access(run->log, F_OK) == 0) {
        say("%s exists and is not a run of a comparison: choose another folder (--output), or replace it (--overwrite)",
            run->log);
        return false;
    }
    if (rcv_trainer_check_output(comparison->context, run->settings, resumed, run->model, overwrite) != RCV_OK) {
        say("%s", rcv_message());
        return false;
    }
    return true;
}

bool runs_check(cell_comparison *comparison, const char *config) {
    bool good =
        files_are_apart(comparison, config) && output_is_free(comparison->page, OUTPUT_PAGE) && record_read(comparison);
    for (size_t i = 0; i < comparison->run_count && good; i++) {
        good = record_find(comparison, &comparison->runs[i]) && run_is_free(comparison, &comparison->runs[i]);
    }
    return good;
}
