/* Every setting of a training run, in one table. The tool's options and their help, configuration files, checkpoints and the trainer
 * all use it. Settings of a group are together. */
#include "train/config/settings.h"

#include <math.h>
#include <string.h>

static const char *const levels[] = {"word", "byte", "character", "piece", NULL};       /* as rcv_level */
static const char *const kinds[] = {"stream",       "lines",       "classes", "values", /* as rcv_data_kind */
                                    "step-classes", "step-values", "auto",    NULL};
static const char *const formats[] = {"auto",    "text", "csv", "tsv",         "jsonl", /* as rcv_file_format */
                                      "numbers", "npy",  "npz", "safetensors", NULL};
static const char *const missings[] = {"error", "previous", "mean", "zero", NULL}; /* as rcv_missing */
static const char *const parts[] = {"sequence", "time", "auto", NULL};             /* as rcv_part_by */
static const char *const embeddings[] = {"learned", "fixed", NULL};
static const char *const optimisers[] = {"sgd", "momentum", "adam", "adamw", "asgd", NULL};
static const char *const losses[] = {"token", "sequence", NULL};
static const char *const decays[] = {"none", "epoch", "plateau", "cosine", "step", NULL};
static const char *const dtypes[] = {"float32", "float64", "bfloat16", "float16", "tfloat32", NULL};
static const char *const leans[] = {"auto", "yes", "no", NULL};
static const char *const wires[] = {"exact", "bfloat16", NULL};
static const char *const transports[] = {"auto", "mpi", "nccl", NULL};
static const char *const efforts[] = {"measure", "estimate", "exhaustive", NULL}; /* as rcv_effort */

#define FLAG RCV_SETTING_FLAG
#define INTEGER RCV_SETTING_INTEGER
#define REAL RCV_SETTING_REAL
#define TEXT RCV_SETTING_TEXT
#define CHOICE RCV_SETTING_CHOICE
#define OUTPUT RCV_SETTING_OUTPUT

#define SIZE (1 << 24) /* most of a size in memory */
#define MANY 1e15      /* most of a count */
#define SHARE 0.999    /* most of a probability of dropout */

/* clang-format off */
static const rcv_setting table[] = {
    /* name, group, kind, default, minimum, maximum, choices, value, help */
    {"data", "data", TEXT, "", 0, 0, NULL, "PATH", "a file, or a folder with its train, valid and test"},
    {"valid", "data", TEXT, "", 0, 0, NULL, "FILE|P%", "data for validation, a part of DATA such as 10%, or none"},
    {"test", "data", TEXT, "", 0, 0, NULL, "FILE|P%", "the same for a test at the end"},
    {"split-by", "data", CHOICE, "auto", 0, 0, parts, "HOW", "parts of DATA: sequence, time (the last part), or auto"},
    {"format", "data", CHOICE, "auto", 0, 0, formats, "FORMAT", "of DATA: text, csv, tsv, jsonl, npz, ..., or auto"},
    {"level", "data", CHOICE, "byte", 0, 0, levels, "LEVEL", "tokens of a text: word, byte, character or piece"},
    {"kind", "data", CHOICE, "auto", 0, 0, kinds, "KIND", "what is predicted: stream, lines, classes, values, ..., auto"},
    {"features", "data", TEXT, "", 0, 0, NULL, "NAME,...", "columns of the input; else all other numbers"},
    {"target", "data", TEXT, "", 0, 0, NULL, "NAME,...", "columns that are predicted; else as the names suggest"},
    {"sequence", "data", TEXT, "", 0, 0, NULL, "NAME", "column whose value all rows of a sequence have"},
    {"time", "data", TEXT, "", 0, 0, NULL, "NAME", "column that rises within a sequence"},
    {"horizon", "data", INTEGER, "0", 0, SIZE, NULL, "N", "forecasts the target N time steps ahead; 0: none"},
    {"missing", "data", CHOICE, "error", 0, 0, missings, "HOW", "missing features: error, previous, mean or zero"},
    {"normalise", "data", FLAG, "false", 0, 0, NULL, NULL, "features, and values, of mean 0 and deviation 1"},
    {"class-weights", "data", TEXT, "", 0, 0, NULL, "W", "balanced, or NAME=X,...: weights of classes in the loss"},
    {"vocabulary", "data", TEXT, "", 0, 0, NULL, "FILE", "words, one per line, or a tokenizer.json; else of the text"},
    {"cache", "data", OUTPUT, "", 0, 0, NULL, "FOLDER", "folder for tokenised texts; else beside the texts"},
    {"batch", "data", INTEGER, "16", 1, SIZE, NULL, "N", "sequences per batch"},
    {"length", "data", INTEGER, "64", 1, SIZE, NULL, "N", "time steps of truncated back-propagation"},
    {"tokens", "data", INTEGER, "0", 0, SIZE, NULL, "N", "tokens per batch of sequences, instead of --batch"},
    {"buckets", "data", TEXT, "auto", 0, 0, NULL, "LENGTHS", "padded lengths: 10,20,40, auto, auto:K or none"},
    {"shuffle", "data", FLAG, "true", 0, 0, NULL, NULL, "a new order of sequences every epoch"},
    {"eval-batch", "data", INTEGER, "10", 1, SIZE, NULL, "N", "sequences per batch in validation; a test has 1"},

    {"cell", "model", TEXT, "lstm", 0, 0, NULL, "NAME|FILE", "a built-in cell, or a .cell file"},
    {"hidden", "model", INTEGER, "128", 1, SIZE, NULL, "N", "features of a state"},
    {"layers", "model", INTEGER, "1", 1, 4096, NULL, "N", "number of layers"},
    {"embedding", "model", INTEGER, "0", 0, SIZE, NULL, "N", "features of a token's embedding; 0: as --hidden"},
    {"embedding-kind", "model", CHOICE, "learned", 0, 0, embeddings, "KIND", "learned, or fixed at its initial values"},
    {"tied", "model", FLAG, "false", 0, 0, NULL, NULL, "one matrix for the embedding and the output layer"},
    {"rank", "model", INTEGER, "0", 0, SIZE, NULL, "R", "rank of low-rank weights; 0: full"},
    {"no-bias", "model", FLAG, "false", 0, 0, NULL, NULL, "no bias anywhere"},
    {"bidirectional", "model", FLAG, "false", 0, 0, NULL, NULL, "bidirectional network; for classes and values alone"},
    {"sizes", "model", TEXT, "", 0, 0, NULL, "NAME=N,...", "other sizes that the cell declares"},
    {"init", "model", REAL, "0", 0, INFINITY, NULL, "X", "initial parameters uniform in +-X; 0: as PyTorch does"},

    {"dropout", "regularisation", REAL, "0", 0, SHARE, NULL, "P", "dropout between layers"},
    {"dropout-input", "regularisation", REAL, "0", 0, SHARE, NULL, "P", "dropout of the network's input"},
    {"dropout-output", "regularisation", REAL, "0", 0, SHARE, NULL, "P", "dropout of the network's output"},
    {"dropout-embedding", "regularisation", REAL, "0", 0, SHARE, NULL, "P", "dropout of whole words"},
    {"variational", "regularisation", FLAG, "false", 0, 0, NULL, NULL, "the same dropout mask at every time step"},
    {"weight-drop", "regularisation", REAL, "0", 0, SHARE, NULL, "P", "dropout of recurrent weights"},
    {"zoneout", "regularisation", REAL, "0", 0, SHARE, NULL, "P", "probability that a state keeps its value"},
    {"weight-decay", "regularisation", REAL, "0", 0, INFINITY, NULL, "X", "L2 penalty; adamw: decoupled weight decay"},

    {"optimiser", "optimiser", CHOICE, "adam", 0, 0, optimisers, "NAME", "sgd, momentum, adam, adamw or asgd"},
    {"learning-rate", "optimiser", REAL, "0.003", 1e-12, 1e6, NULL, "X", "initial learning rate"},
    {"momentum", "optimiser", REAL, "0.9", 0, 0.999999, NULL, "X", "momentum of the optimiser momentum"},
    {"beta1", "optimiser", REAL, "0.9", 0, 0.999999, NULL, "X", "adam, adamw: decay of the mean"},
    {"beta2", "optimiser", REAL, "0.999", 0, 0.99999999, NULL, "X", "adam, adamw: decay of the mean square"},
    {"epsilon", "optimiser", REAL, "1e-08", 1e-30, 1, NULL, "X", "adam, adamw: added to the root"},
    {"clip", "optimiser", REAL, "1", 0, INFINITY, NULL, "X", "gradient clipping by norm; 0: none"},
    {"clip-value", "optimiser", REAL, "0", 0, INFINITY, NULL, "X", "gradient clipping by element; 0: none"},
    {"accumulate", "optimiser", INTEGER, "1", 1, SIZE, NULL, "N", "batches per update (gradient accumulation)"},
    {"loss", "optimiser", CHOICE, "token", 0, 0, losses, "MEAN", "mean over every token, or sequence: summed over time"},
    {"nonmono", "optimiser", INTEGER, "5", 1, SIZE, NULL, "N", "asgd: averages after N validations without a best loss"},
    {"loss-scale", "optimiser", REAL, "0", 0, INFINITY, NULL, "X", "float16: initial loss scale, then adapted; 0: 65536"},

    {"decay", "schedule", CHOICE, "none", 0, 0, decays, "WHEN", "learning-rate schedule: none, epoch, plateau, cosine or step"},
    {"decay-factor", "schedule", REAL, "0.5", 1e-06, 1, NULL, "X", "epoch, plateau, step: factor of the rate"},
    {"decay-after", "schedule", INTEGER, "4", 0, SIZE, NULL, "N", "epoch: decays every epoch after N epochs"},
    {"decay-every", "schedule", INTEGER, "1000", 1, MANY, NULL, "N", "step: decays every N updates"},
    {"decay-patience", "schedule", INTEGER, "1", 1, SIZE, NULL, "N", "plateau: decays after N validations without a best loss"},
    {"final-rate", "schedule", REAL, "0", 0, 1e6, NULL, "X", "cosine: the rate at the end of the run"},
    {"warmup", "schedule", INTEGER, "0", 0, MANY, NULL, "N", "updates of linear warmup from zero"},

    {"epochs", "run", INTEGER, "0", 0, MANY, NULL, "N", "most passes over the data; 0: no limit; 1 without any limit"},
    {"steps", "run", INTEGER, "0", 0, MANY, NULL, "N", "most updates; 0: no limit"},
    {"seconds", "run", REAL, "0", 0, 1e9, NULL, "X", "most seconds; 0: no limit"},
    {"validate-every", "run", INTEGER, "0", 0, MANY, NULL, "N", "updates between validations; 0: every epoch"},
    {"patience", "run", INTEGER, "0", 0, SIZE, NULL, "N", "ends after N validations without a best loss; 0: never"},
    {"checkpoint-every", "run", INTEGER, "0", 0, MANY, NULL, "N", "updates between checkpoints; 0: at validations"},
    {"checkpoint-seconds", "run", REAL, "600", 0, 1e9, NULL, "X", "most seconds between checkpoints; 0: no limit"},
    {"keep", "run", INTEGER, "2", 1, SIZE, NULL, "N", "number of checkpoints that are kept"},
    {"log", "run", OUTPUT, "", 0, 0, NULL, "FILE", "log file, one JSON object per line"},
    {"log-every", "run", INTEGER, "0", 0, MANY, NULL, "N", "updates between lines of the log; 0: one per second"},
    {"seed", "run", INTEGER, "0", 0, 9e18, NULL, "N", "of initial parameters, order and dropout"},

    {"device", "machine", TEXT, "cpu", 0, 0, NULL, "NAME", "cpu, cuda or cuda:N"},
    {"dtype", "machine", CHOICE, "float32", 0, 0, dtypes, "TYPE", "float32, float64, bfloat16, float16 or tfloat32"},
    {"threads", "machine", INTEGER, "0", 0, RCVI_MAX_THREADS, NULL, "N", "CPU threads; 0: one per core"},
    {"schedule", "machine", TEXT, "", 0, 0, NULL, "PLAN", "a plan string; else the planner chooses"},
    {"effort", "machine", CHOICE, "measure", 0, 0, efforts, "EFFORT", "of the planner: measure, estimate or exhaustive"},
    {"wisdom", "machine", OUTPUT, "", 0, 0, NULL, "FILE", "measured plans: read, and written at the end"},
    {"chunk", "machine", INTEGER, "0", 0, SIZE, NULL, "N", "rows of logits at once, or classes if lean; 0: automatic"},
    {"lean", "machine", CHOICE, "auto", 0, 0, leans, "WHEN", "never stores the output gradient: auto, yes or no"},

    {"parallel", "parallel", TEXT, "", 0, 0, NULL, "HOW", "data[:D], pipeline[:S], or both with a comma; with mpirun"},
    {"split", "parallel", TEXT, "", 0, 0, NULL, "COUNTS", "layers of a pipeline's stages, 2,1,1; else by their cost"},
    {"micro-batches", "parallel", INTEGER, "0", 0, 4096, NULL, "N", "of a pipeline; 0: by forecast"},
    {"time-chunks", "parallel", INTEGER, "0", 0, 4096, NULL, "N", "of a pipeline on a stream; 0: by forecast"},
    {"wire", "parallel", CHOICE, "exact", 0, 0, wires, "TYPE", "type of sent gradients: exact, or bfloat16"},
    {"share-optimiser", "parallel", FLAG, "false", 0, 0, NULL, NULL, "each replica has and updates a share of the moments"},
    {"transport", "parallel", CHOICE, "auto", 0, 0, transports, "NAME", "auto, mpi or nccl"},
    {"timeout", "parallel", REAL, "300", 0, 1e9, NULL, "X", "seconds without progress of a rank before all end; 0: never"},
};
/* clang-format on */

enum { COUNT = sizeof table / sizeof *table };

size_t rcv_setting_count(void) { return COUNT; }

const rcv_setting *rcv_setting_at(size_t index) { return index < COUNT ? &table[index] : NULL; }

size_t rcvi_setting_find(const char *name) {
    size_t i = 0;
    while (i < COUNT && strcmp(table[i].name, name) != 0) i++;
    return i;
}

const char *rcvi_setting_nearest(const char *name) {
    const char *names[COUNT];
    for (size_t i = 0; i < COUNT; i++) names[i] = table[i].name;
    return rcvi_nearest_name(name, names, COUNT);
}
