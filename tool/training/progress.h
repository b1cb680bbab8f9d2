/* The progress of a training run on standard error: on a terminal one line that is rewritten and fits the width; elsewhere plain lines, which
 * become rarer as the run goes on. */
#ifndef TOOL_TRAINING_PROGRESS_H
#define TOOL_TRAINING_PROGRESS_H

#include "training/loss_text.h"

typedef struct progress {
    bool is_shown;    /* one process, or rank 0; without --quiet */
    bool is_terminal; /* that can rewrite a line */
    bool is_unicode;  /* the locale is UTF-8 */
    metric_kind metric;
    const char *unit; /* of the speed: bytes, words, sequences, ... */
    char prefix[48];  /* before everything else: "2/4 gru: ", or "" */
    double limit;     /* seconds that the run may train; 0: no limit */
    /* clock readings, in seconds */
    double begun;             /* updates began; 0: not yet */
    double drawn;             /* the terminal's line */
    double printed;           /* the last plain line of progress */
    double last_validation;   /* the last line of a validation */
    double phase_begun;       /* the phase that is shown; 0: none */
    bool has_line;            /* the cursor is behind a line that will be rewritten */
    double validation;        /* the last one that was seen */
    bool has_validated;       /* one was under way since the last line of a validation */
    bool is_held;             /* a validation is still to be shown: the last one was shown just before */
    double best_metric;       /* of the best validation; NaN: none */
    rcv_progress held_report; /* that of the validation that is held */
} progress;

/* `data` is the training data; `prefix` is cut where it is long. */
void progress_begin(progress *progress, const rcv_settings *settings, const rcv_data *data, const char *prefix,
                    bool leads);
/* Plans are made, and updates begin. */
void progress_start(progress *progress);
/* Shows a new validation, and the rest from time to time. */
void progress_update(progress *progress, const rcv_progress *report);
/* Shows that something else is done, "validating" or "planning", on a terminal. `part`: how much of it; NaN: not known. */
void progress_phase(progress *progress, const char *what, double part);
/* The last validation, and the last line, which stays. */
void progress_end(progress *progress, const rcv_progress *report);
/* Removes the terminal's line, before anything else is printed. */
void progress_clear(progress *progress);
/* Columns of the terminal of standard error; 80: not known. */
size_t terminal_columns(void);

#endif
