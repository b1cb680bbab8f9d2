/* A training run: where it stands, how its learning rate goes, what of it is kept. */
#ifndef RCVI_TRAINER_H
#define RCVI_TRAINER_H

#include "train/config/settings.h"
#include "train/step/work.h"

/* The settings that every update looks at. */
typedef struct {
    int64_t accumulate, epochs, steps, log_every, validate_every, patience, checkpoint_every, keep, nonmono;
    int64_t warmup, decay_after, decay_every, decay_patience;
    double seconds, checkpoint_seconds, clip, clip_value, learning_rate, weight_decay, momentum, beta1, beta2, epsilon;
    double decay_factor, final_rate;
    int decay;        /* its place among the choices */
    bool by_sequence; /* the loss is summed over time, and the mean over sequences */
    uint64_t seed;
} rcvi_train_options;

void rcvi_train_options_read(rcvi_train_options *options, const rcv_settings *settings);

/* Everything a run needs to go on as if it had never stopped, beside its arrays. */
typedef struct {
    int64_t step;       /* updates done */
    rcvi_position at;   /* in the data */
    uint64_t data_hash; /* of what it was in */
    int64_t seen;       /* tokens, or examples, that counted */
    double seconds;     /* of training so far */
    double factor;      /* of the learning rate, by plateaus */
    double best;        /* loss of the best validation; infinite before the first */
    int64_t best_step;
    int64_t bad;           /* validations since then */
    int64_t bad_for_decay; /* the same since the learning rate changed last */
    int64_t validations;
    int64_t averaged; /* updates in the average; 0: averaging has not begun */
    double scale;     /* of the loss, float16 */
    int64_t good;     /* updates since it changed */
    int64_t skipped;  /* updates whose gradient was no number */
} rcvi_run_state;

enum { RCVI_RUN_ID = 33 }; /* bytes of a run's name: 128 bits as digits */
enum {
    RCVI_PENDING_OUTCOMES = 64,
    RCVI_RECENT_LOSSES = 50
}; /* outcomes on the device; losses that the progress line shows the mean of */

/* What ranks must agree on behind every update, although one alone may see the need: to stop since a caller said so, to end or to write a
 * checkpoint since it is time, to fetch outcomes. */
typedef enum { RCVI_FLAG_STOP, RCVI_FLAG_END, RCVI_FLAG_SAVE, RCVI_FLAG_FETCH, RCVI_FLAGS } rcvi_control_flag;

typedef struct {
    int64_t counted;
    double rate;
    int64_t step;
} rcvi_expected; /* what the host knows of an outcome that is still to be fetched */

struct rcv_trainer {
    rcv_context *context;
    rcv_settings *settings;
    rcvi_train_options options;
    rcv_learner *learner;
    rcvi_topology topology; /* of a run of several ranks: its world is NULL where there is one alone */
    const rcv_data *train, *valid;
    rcvi_batcher *batcher, *validator;
    rcvi_work *work;
    size_t *windows; /* [buckets] of the batcher, then of the validator */
    size_t train_windows, valid_windows;
    void **
        pending_states; /* [states] of the host, of all layers and the whole batch, from a checkpoint, until there is a window; or NULL */
    char *plans;                   /* pinned by a checkpoint: a line a window; NULL: chosen */
    char *agreed;                  /* of units in training, by all ranks with these layers; NULL: not yet */
    rcvi_pipeline_result forecast; /* of an update, where it was forecast; else all 0 */
    /* The optimiser. */
    rcvi_update_kind kind;
    bool asgd;
    rcvi_update_part *parts; /* of an update */
    int part_count;
    /* Moments of the elements that are here, or of this replica's shares; the average; NULL where not used. */
    void *first, *second, *average;
    double *history; /* losses of validations, for the non-monotone trigger */
    size_t history_count, history_capacity;
    rcvi_run_state state;
    /* Outcomes. */
    rcvi_outcome *outcomes; /* the device's, [RCVI_PENDING_OUTCOMES] */
    rcvi_expected expected[RCVI_PENDING_OUTCOMES];
    int waiting; /* in the outcomes */
    double recent[RCVI_RECENT_LOSSES];
    int64_t recent_count;
    double last;                      /* loss of the last update */
    double norm, started, fetched;    /* the last norm; when this call began, and outcomes were last fetched */
    double before;                    /* seconds of earlier calls */
    int64_t seen_before, step_before; /* tokens and updates of them */
    double aside;                     /* seconds of this call that went into validations and checkpoints */
    double logged;                    /* when */
    int64_t logged_step;
    const rcv_trainer_options *call;
    rcv_progress progress;
    double flags[RCVI_FLAGS];    /* largest request of any rank, as all know */
    double requests[RCVI_FLAGS]; /* this rank's requests: all-reduced with the next update */
    rcvi_transfer *flags_sum;
    int64_t updates;        /* of this call */
    int64_t sent_before;    /* bytes, when an update began */
    double exchanged;       /* bytes that this rank has sent for updates */
    double sent[2];         /* in an update: by the rank that sends most, by all together; known at the end */
    double last_checkpoint; /* when */
    char *good;             /* path of the last one, written or resumed from; NULL: none */
    int64_t good_step;
    char run[RCVI_RUN_ID]; /* a random name, which its files have, and which it keeps when it goes on */
    bool adopts;           /* models without such a name are its own: it went on from one */
    rcvi_lock lock;        /* of the output, during a call */
};

/* The topology, or NULL. */
static inline const rcvi_topology *rcvi_trainer_topology(const rcv_trainer *t) {
    return t->topology.world ? &t->topology : NULL;
}

/* Into how many micro-batches a replica's part of a batch is cut, and a window of so many steps into chunks of time. */
rcv_status rcvi_units_check(const rcv_trainer *trainer, int replicas, int stages);
int64_t rcvi_units_micro(const rcv_trainer *trainer, int64_t batch);
int64_t rcvi_units_chunks(const rcv_trainer *trainer, int64_t steps);
/* What is not said is chosen by forecasts, on all ranks together; so is the plan of units. */
rcv_status rcvi_units_choose(rcv_trainer *trainer);

/* How the run's settings want its work, as one rank alone. */
rcvi_work_options rcvi_trainer_work_options(const rcv_trainer *trainer);
/* Makes plans and arrays, once. */
rcv_status rcvi_trainer_prepare(rcv_trainer *trainer, bool (*go_on)(void *user), void *user);

/* Lengths of the buckets, rising, at most RCV_MOST_BUCKETS, as the setting says: of the data's histogram, weighed by what the planner
 * measured, where that is automatic. `keep`: they become the setting, so that a run that resumes has the same batches. */
rcv_status rcvi_choose_bounds(rcv_trainer *trainer, const rcv_data *data, bool keep, int64_t *bounds, size_t *count);

/* The learning rate of update `step` (from 0), at `epoch` whole epochs; `length` updates are all there will be, 0: unknown. */
double rcvi_rate(const rcvi_train_options *options, int64_t step, int64_t epoch, int64_t length, double factor);

/* The same for the same text, or examples, read with the same words. */
rcv_status rcvi_data_identity(const rcv_data *data, uint64_t *identity);

/* The batcher and the carried states to where the run stands. */
rcv_status rcvi_trainer_place(rcv_trainer *trainer);
void rcvi_trainer_drop_pending_states(rcv_trainer *trainer);
/* An update of several ranks that is traced, for the log: from all ranks, counted from when all had come. */
rcv_status rcvi_timeline_begin(rcv_trainer *trainer);
rcv_status rcvi_timeline_end(rcv_trainer *trainer);
/* What the run stands at is in this file. */
rcv_status rcvi_trainer_note_good(rcv_trainer *trainer, const char *path);

/* ---- the log: nothing where the call wants none ---- */

void rcvi_log_start(const rcv_trainer *trainer);
void rcvi_log_progress(const rcv_trainer *trainer);
void rcvi_log_validation(const rcv_trainer *trainer, double loss, bool best);
void rcvi_log_checkpoint(const rcv_trainer *trainer, const char *path);
void rcvi_log_warning(const rcv_trainer *trainer, const char *message); /* the context's log has it too */
void rcvi_log_timeline(const rcv_trainer *trainer, int rank, const rcvi_trace_span *spans, size_t count);
void rcvi_log_end(const rcv_trainer *trainer, const char *reason);

/* ---- several ranks ---- */

/* Do all ranks have the same version, settings and data? The sentence says what differs, and where. */
rcv_status rcvi_ranks_agree(const rcv_trainer *trainer);
/* How many layers this rank has, and from which one on. */
rcv_status rcvi_ranks_split(rcv_trainer *trainer, int64_t *first, int64_t *count);
/* COUNT,COUNT,...: layers of each of the stages. */
rcv_status rcvi_read_split(const char *text, int layers, int stages, int *counts);
rcv_status rcvi_check_stages(int layers, int stages);
/* [stages] layers of each. */
rcv_status rcvi_ranks_counts(const rcv_trainer *trainer, int *counts);
/* All elements of an array of parameters, or of moments, in the host's memory, for rcvi_free: on rank 0; elsewhere NULL. */
rcv_status rcvi_ranks_collect(const rcv_trainer *trainer, const void *array, bool shares, void **host);
/* The other way: what of an array with all elements is here. */
rcv_status rcvi_ranks_take(const rcv_trainer *trainer, const void *host, bool shares, void *array);
/* The texts of the first replica's ranks, one behind the other: on rank 0, for rcvi_free; elsewhere NULL. */
rcv_status rcvi_ranks_collect_text(const rcv_trainer *trainer, const char *text, char **all);
/* Carried states of all layers and of the whole batch, [total, batch] by layer as a state tensor has them, of state s: on rank 0, else NULL. */
rcv_status rcvi_ranks_collect_state(const rcv_trainer *trainer, size_t state, void **host);
/* The other way, into the window that carries them. */
rcv_status rcvi_ranks_take_state(const rcv_trainer *trainer, size_t state, const void *host);
/* Threads that a rank has of the CPU: as the setting says, or its part of the cores. */
int64_t rcvi_ranks_threads(const rcv_trainer *trainer);
/* Elements of this replica's shares of moments. */
int64_t rcvi_ranks_share(const rcv_trainer *trainer);

/* ---- files ---- */

/* The whole run in one file. */
rcv_status rcvi_checkpoint_save(rcv_trainer *trainer, const char *path);
/* The model alone, with these parameters of the host. */
rcv_status rcvi_checkpoint_save_best(const rcv_trainer *trainer, const void *parameters, const char *path);
/* MODEL.safetensors and best: MODEL.best.safetensors. Free with rcvi_free; NULL where there is no memory. */
char *rcvi_sibling(rcv_context *context, const char *path, const char *word);

/* ---- whose files they are (outputs.c) ---- */

void rcvi_run_id_new(char id[RCVI_RUN_ID]);
/* What says that a file is this run's, of this update; and the run's name from a file, which stays as it is where there is none. */
rcv_status rcvi_run_to_tensors(const rcv_trainer *trainer, int64_t step, rcv_tensors *tensors);
void rcvi_run_from_tensors(rcv_trainer *trainer, const rcv_tensors *tensors);
/* Before a call writes to its output: may it? It is locked then, until it is released. Rank 0 asks for all. */
rcv_status rcvi_outputs_claim(rcv_trainer *trainer);
void rcvi_outputs_release(rcv_trainer *trainer);
/* Makes room for a new file at the output: what is there becomes path with .1 before its ending, and so on, as many as the run keeps. The path
 * itself stays where it is until something is renamed over it. A file that is not this run's is not replaced. */
rcv_status rcvi_outputs_rotate(const rcv_trainer *trainer);
/* The path of the best model, for rcvi_free, where it may be written. */
rcv_status rcvi_outputs_best(const rcv_trainer *trainer, char **path);

/* Mean loss over all batches of a batcher, from its start, with these parameters. `windows`: of its buckets, opened here and closed
 * behind it. */
rcv_status rcvi_evaluate(rcvi_work *work, rcvi_batcher *batcher, const size_t *windows, size_t count, double *loss,
                         int64_t *counted);

#endif
