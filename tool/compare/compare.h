/* Several cells trained in the same way. A comparison has a run for every cell and seed; its folder has the log and the model of each, a
 * record of all (comparison.json) and a page (comparison.html). */
#ifndef TOOL_COMPARE_H
#define TOOL_COMPARE_H

#include "data_files.h"
#include "json.h"
#include "recurve.h"
#include "training/loss_text.h"

typedef struct {
    const char *cell;       /* as it was given */
    char *name;             /* in the names of files: without folder and ending, different for every cell */
    char *equations;        /* as the library prints them: a cell whose file has changed is another cell */
    rcv_settings *settings; /* with the cell and its hidden size */
    char *shape;            /* "1 layer of 128" */
    int64_t parameters;
} compared_cell;

/* What is known of a run when it has ended. Losses are NaN where there are none. */
typedef struct {
    int64_t step;
    double seconds, speed; /* tokens (or sequences) a second */
    double loss;           /* of training, mean over the last updates */
    double final, best;    /* of the validations: the last and the best one */
    double metric;         /* of the best validation; without validation that of the loss */
} run_result;

typedef enum { RUN_NEW, RUN_STOPPED, RUN_FINISHED, RUN_FAILED } run_state;

typedef struct {
    const compared_cell *cell;
    char *name; /* gru; gru-seed1 for later seeds */
    char *model, *log;
    rcv_settings *settings; /* with the seed */
    run_state state;
    bool is_ours; /* its files may be replaced */
    run_result result;
} compared_run;

typedef struct {
    rcv_context *context;
    const char *folder;
    bool overwrite;
    data_files files;
    metric_kind metric;
    compared_cell *cells;
    size_t cell_count;
    compared_run *runs; /* [seeds, cells] */
    size_t run_count;
    json_t *earlier; /* the runs of the record that was there, by name; or NULL */
    char *record, *page;
} cell_comparison;

/* ---- cells.c ---- */

/* Opens every cell, and says what is wrong with each that cannot be used. */
bool cells_open(cell_comparison *comparison, const char *const *cells, size_t count);
/* Sets the settings of every cell, and counts its parameters. `parameters` > 0: the hidden size whose number of parameters is nearest. */
rcv_status cells_set_sizes(cell_comparison *comparison, const rcv_settings *settings, int64_t parameters);

/* ---- runs.c ---- */

/* Makes the list of runs; `seeds` of each cell, from the settings' seed on. */
rcv_status runs_make(cell_comparison *comparison, int64_t seeds);
/* Checks the files of all runs, and finds those that have finished before. False after saying what is wrong; nothing has changed then. */
bool runs_check(cell_comparison *comparison, const char *config);
void cell_comparison_free(cell_comparison *comparison);

/* ---- record.c ---- */

/* Reads the record of the folder, if there is one. False after saying what is wrong with it. */
bool record_read(cell_comparison *comparison);
/* Compares a run with the record, and sets its state and result. False: a run of this name has other settings, after saying which. */
bool record_find(const cell_comparison *comparison, compared_run *run);
/* Writes the record with the state of all runs. */
bool record_write(const cell_comparison *comparison);
/* All runs and the cells' means, as the record has it. */
json_t *record_object(const cell_comparison *comparison);

/* ---- train_run.c ---- */

/* Trains run `index`, from where it was stopped. Its state and result are set. RCV_STOPPED after a signal. */
rcv_status train_run(cell_comparison *comparison, size_t index);

/* ---- table.c ---- */

/* A cell's means over its finished runs. */
typedef struct {
    const compared_cell *cell;
    size_t runs, finished;
    run_result mean;
    double best_deviation, metric_deviation; /* NaN: fewer than two runs */
} cell_summary;

/* The summaries, the best first, for free(). */
cell_summary *summarise_cells(const cell_comparison *comparison);
bool has_validation(const cell_comparison *comparison);
void print_table(const cell_comparison *comparison);

#endif
