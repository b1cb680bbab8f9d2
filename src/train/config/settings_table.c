/* Every setting of a training run. This table is all there is to a setting: the tool's options and their help, configuration
 * files, what checkpoints store and what the trainer asks for follow from it. Settings of a group stand together. */
#include "train/config/settings.h"

#include <math.h>
#include <string.h>

static const char *const levels[] = {"word", "byte", NULL};                        /* as rcv_level */
static const char *const kinds[] = {"stream", "lines", "classes", "values", NULL}; /* as rcv_data_kind */
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

#define SIZE (1 << 24) /* of what lies in memory */
#define MANY 1e15      /* of what is only counted */
#define SHARE 0.999    /* of what is dropped */

/* clang-format off */
static const rcv_setting table[] = {
    /* name, group, kind, default, minimum, maximum, choices, value, help */
    {"data", "data", TEXT, "", 0, 0, NULL, "PATH", "a file, or a folder with its train, valid and test"},
    {"valid", "data", TEXT, "", 0, 0, NULL, "FILE", "what validation reads, or none"},
    {"test", "data", TEXT, "", 0, 0, NULL, "FILE", "what is read once, at the end, or none"},
    {"level", "data", CHOICE, "byte", 0, 0, levels, "LEVEL", "tokens of a text: word or byte"},
    {"kind", "data", CHOICE, "stream", 0, 0, kinds, "KIND", "stream, lines, classes or values"},
    {"vocabulary", "data", TEXT, "", 0, 0, NULL, "FILE", "the words, one a line; else those of the text"},
    {"cache", "data", OUTPUT, "", 0, 0, NULL, "FOLDER", "where tokenised texts are kept; else beside them"},
    {"batch", "data", INTEGER, "16", 1, SIZE, NULL, "N", "sequences side by side"},
    {"length", "data", INTEGER, "64", 1, SIZE, NULL, "N", "steps of truncated back-propagation"},
    {"tokens", "data", INTEGER, "0", 0, SIZE, NULL, "N", "tokens of a batch of sequences, instead of --batch"},
    {"buckets", "data", TEXT, "auto", 0, 0, NULL, "LENGTHS", "10,20,40, auto, auto:K or none: sequences of like length"},
    {"shuffle", "data", FLAG, "true", 0, 0, NULL, NULL, "sequences in another order every epoch"},
    {"eval-batch", "data", INTEGER, "10", 1, SIZE, NULL, "N", "sequences side by side in validation; the test has one"},

    {"cell", "model", TEXT, "lstm", 0, 0, NULL, "NAME|FILE", "a built-in cell, or a .cell file"},
    {"hidden", "model", INTEGER, "128", 1, SIZE, NULL, "N", "features of a state"},
    {"layers", "model", INTEGER, "1", 1, 4096, NULL, "N", "layers"},
    {"embedding", "model", INTEGER, "0", 0, SIZE, NULL, "N", "features of a token's embedding; 0: as --hidden"},
    {"embedding-kind", "model", CHOICE, "learned", 0, 0, embeddings, "KIND", "learned, or fixed at its first values"},
    {"tied", "model", FLAG, "false", 0, 0, NULL, NULL, "one matrix for the embedding and the output layer"},
    {"rank", "model", INTEGER, "0", 0, SIZE, NULL, "R", "weights as products of this rank; 0: full"},
    {"no-bias", "model", FLAG, "false", 0, 0, NULL, NULL, "leave out every bias"},
    {"bidirectional", "model", FLAG, "false", 0, 0, NULL, NULL, "read both ways; for classes and values alone"},
    {"sizes", "model", TEXT, "", 0, 0, NULL, "NAME=N,...", "other sizes that the cell declares"},
    {"init", "model", REAL, "0", 0, INFINITY, NULL, "X", "first parameters uniform in +-X; 0: as PyTorch does"},

    {"dropout", "regularisation", REAL, "0", 0, SHARE, NULL, "P", "between layers"},
    {"dropout-input", "regularisation", REAL, "0", 0, SHARE, NULL, "P", "of what enters the network"},
    {"dropout-output", "regularisation", REAL, "0", 0, SHARE, NULL, "P", "of what leaves it"},
    {"dropout-embedding", "regularisation", REAL, "0", 0, SHARE, NULL, "P", "of whole words"},
    {"variational", "regularisation", FLAG, "false", 0, 0, NULL, NULL, "what is dropped stays so over time"},
    {"weight-drop", "regularisation", REAL, "0", 0, SHARE, NULL, "P", "of recurrent matrices"},
    {"zoneout", "regularisation", REAL, "0", 0, SHARE, NULL, "P", "of states, which stay as they were"},
    {"weight-decay", "regularisation", REAL, "0", 0, INFINITY, NULL, "X", "how much parameters are drawn to zero"},

    {"optimiser", "optimiser", CHOICE, "adam", 0, 0, optimisers, "NAME", "sgd, momentum, adam, adamw or asgd"},
    {"learning-rate", "optimiser", REAL, "0.003", 1e-12, 1e6, NULL, "X", "first of the schedule"},
    {"momentum", "optimiser", REAL, "0.9", 0, 0.999999, NULL, "X", "of momentum"},
    {"beta1", "optimiser", REAL, "0.9", 0, 0.999999, NULL, "X", "of adam and adamw: the mean's decay"},
    {"beta2", "optimiser", REAL, "0.999", 0, 0.99999999, NULL, "X", "of adam and adamw: the square's decay"},
    {"epsilon", "optimiser", REAL, "1e-08", 1e-30, 1, NULL, "X", "of adam and adamw: added to the root"},
    {"clip", "optimiser", REAL, "1", 0, INFINITY, NULL, "X", "largest norm of the gradient; 0: any"},
    {"clip-value", "optimiser", REAL, "0", 0, INFINITY, NULL, "X", "largest element of the gradient; 0: any"},
    {"accumulate", "optimiser", INTEGER, "1", 1, SIZE, NULL, "N", "batches of an update"},
    {"loss", "optimiser", CHOICE, "token", 0, 0, losses, "MEAN", "mean over every token, or sequence: summed over time"},
    {"nonmono", "optimiser", INTEGER, "5", 1, SIZE, NULL, "N", "of asgd: averaging begins after N validations without a best"},
    {"loss-scale", "optimiser", REAL, "0", 0, INFINITY, NULL, "X", "first of float16, then adapted; 0: 65536"},

    {"decay", "schedule", CHOICE, "none", 0, 0, decays, "WHEN", "of the rate: none, epoch, plateau, cosine or step"},
    {"decay-factor", "schedule", REAL, "0.5", 1e-06, 1, NULL, "X", "by which epoch, plateau and step multiply the rate"},
    {"decay-after", "schedule", INTEGER, "4", 0, SIZE, NULL, "N", "epoch: every epoch after so many"},
    {"decay-every", "schedule", INTEGER, "1000", 1, MANY, NULL, "N", "step: every so many updates"},
    {"decay-patience", "schedule", INTEGER, "1", 1, SIZE, NULL, "N", "plateau: after so many validations without a best"},
    {"final-rate", "schedule", REAL, "0", 0, 1e6, NULL, "X", "cosine: the rate at the end of the run"},
    {"warmup", "schedule", INTEGER, "0", 0, MANY, NULL, "N", "updates in which the rate rises from zero"},

    {"epochs", "run", INTEGER, "0", 0, MANY, NULL, "N", "passes over the data; 0: no limit; 1 where nothing limits"},
    {"steps", "run", INTEGER, "0", 0, MANY, NULL, "N", "updates at most; 0: no limit"},
    {"seconds", "run", REAL, "0", 0, 1e9, NULL, "X", "time at most; 0: no limit"},
    {"validate-every", "run", INTEGER, "0", 0, MANY, NULL, "N", "updates from validation to validation; 0: every epoch"},
    {"patience", "run", INTEGER, "0", 0, SIZE, NULL, "N", "ends after N validations without a best; 0: never"},
    {"checkpoint-every", "run", INTEGER, "0", 0, MANY, NULL, "N", "updates from one to the next; 0: at validations"},
    {"checkpoint-seconds", "run", REAL, "600", 0, 1e9, NULL, "X", "and at least so often; 0: not by time"},
    {"keep", "run", INTEGER, "2", 1, SIZE, NULL, "N", "checkpoints that are kept"},
    {"log", "run", OUTPUT, "", 0, 0, NULL, "FILE", "what happened, a JSON object a line"},
    {"log-every", "run", INTEGER, "0", 0, MANY, NULL, "N", "updates; 0: once a second"},
    {"seed", "run", INTEGER, "0", 0, 9e18, NULL, "N", "of first parameters, order and dropout"},

    {"device", "machine", TEXT, "cpu", 0, 0, NULL, "NAME", "cpu, cuda or cuda:N"},
    {"dtype", "machine", CHOICE, "float32", 0, 0, dtypes, "TYPE", "float32, float64, bfloat16, float16 or tfloat32"},
    {"threads", "machine", INTEGER, "0", 0, RCVI_MAX_THREADS, NULL, "N", "of the CPU; 0: one a core"},
    {"schedule", "machine", TEXT, "", 0, 0, NULL, "PLAN", "a plan string; else the planner chooses"},
    {"effort", "machine", CHOICE, "measure", 0, 0, efforts, "EFFORT", "of the planner: measure, estimate or exhaustive"},
    {"wisdom", "machine", OUTPUT, "", 0, 0, NULL, "FILE", "what planners have learnt: read, and written at the end"},
    {"chunk", "machine", INTEGER, "0", 0, SIZE, NULL, "N", "rows of logits at once, or classes if lean; 0: as fits"},
    {"lean", "machine", CHOICE, "auto", 0, 0, leans, "WHEN", "no stored gradient of the output layer: auto, yes or no"},

    {"parallel", "parallel", TEXT, "", 0, 0, NULL, "HOW", "data[:D], pipeline[:S] or both with a comma; under mpirun"},
    {"split", "parallel", TEXT, "", 0, 0, NULL, "COUNTS", "layers of a pipeline's stages, 2,1,1; else by their cost"},
    {"micro-batches", "parallel", INTEGER, "0", 0, 4096, NULL, "N", "of a pipeline's batch; 0: as many as pay"},
    {"time-chunks", "parallel", INTEGER, "0", 0, 4096, NULL, "N", "of a pipeline's window of a stream; 0: as many as pay"},
    {"wire", "parallel", CHOICE, "exact", 0, 0, wires, "TYPE", "gradients on their way: exact, or as bfloat16"},
    {"share-optimiser", "parallel", FLAG, "false", 0, 0, NULL, NULL, "replicas have and update shares of the moments"},
    {"transport", "parallel", CHOICE, "auto", 0, 0, transports, "NAME", "auto, mpi or nccl"},
    {"timeout", "parallel", REAL, "300", 0, 1e9, NULL, "X", "seconds a rank may stand still before all end; 0: any"},
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
    return rcvi_nearest(name, names, COUNT);
}
