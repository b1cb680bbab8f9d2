/* Settings from the literature, each a list of values that replace defaults. */
#include "model/tensors.h"
#include "train/config/settings.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    const char *name, *value;
} assignment;

/* clang-format off */

/* Zaremba, Sutskever and Vinyals 2014, "Recurrent neural network regularization": three sizes on the Penn Treebank. */
static const assignment zaremba_small[] = {
    {"level", "word"}, {"batch", "20"}, {"length", "20"},
    {"cell", "lstm"}, {"hidden", "200"}, {"layers", "2"}, {"embedding", "200"}, {"init", "0.1"},
    {"dropout", "0"}, {"dropout-input", "0"}, {"dropout-output", "0"},
    {"optimiser", "sgd"}, {"learning-rate", "1"}, {"loss", "sequence"}, {"clip", "5"},
    {"decay", "epoch"}, {"decay-factor", "0.5"}, {"decay-after", "4"}, {"epochs", "13"},
    {NULL, NULL},
};
static const assignment zaremba_medium[] = {
    {"level", "word"}, {"batch", "20"}, {"length", "35"},
    {"cell", "lstm"}, {"hidden", "650"}, {"layers", "2"}, {"embedding", "650"}, {"init", "0.05"},
    {"dropout", "0.5"}, {"dropout-input", "0.5"}, {"dropout-output", "0.5"},
    {"optimiser", "sgd"}, {"learning-rate", "1"}, {"loss", "sequence"}, {"clip", "5"},
    {"decay", "epoch"}, {"decay-factor", "0.8"}, {"decay-after", "6"}, {"epochs", "39"},
    {NULL, NULL},
};
static const assignment zaremba_large[] = {
    {"level", "word"}, {"batch", "20"}, {"length", "35"},
    {"cell", "lstm"}, {"hidden", "1500"}, {"layers", "2"}, {"embedding", "1500"}, {"init", "0.04"},
    {"dropout", "0.65"}, {"dropout-input", "0.65"}, {"dropout-output", "0.65"},
    {"optimiser", "sgd"}, {"learning-rate", "1"}, {"loss", "sequence"}, {"clip", "10"},
    {"decay", "epoch"}, {"decay-factor", "0.8695652173913044" /* 1 / 1.15 */}, {"decay-after", "14"}, {"epochs", "55"},
    {NULL, NULL},
};

/* Merity, Keskar and Socher 2017, "Regularizing and optimizing LSTM language models": the Penn Treebank. */
static const assignment awd_lstm[] = {
    {"level", "word"}, {"batch", "20"}, {"length", "70"},
    {"cell", "lstm"}, {"hidden", "1150"}, {"layers", "3"}, {"embedding", "400"}, {"tied", "false"},
    {"dropout", "0.25"}, {"dropout-input", "0.4"}, {"dropout-output", "0.4"}, {"dropout-embedding", "0.1"},
    {"variational", "true"}, {"weight-drop", "0.5"}, {"weight-decay", "1.2e-06"},
    {"optimiser", "asgd"}, {"nonmono", "5"}, {"learning-rate", "30"}, {"loss", "token"}, {"clip", "0.25"},
    {"epochs", "500"},
    {NULL, NULL},
};

static const assignment char_lstm[] = {
    {"level", "byte"}, {"batch", "64"}, {"length", "128"},
    {"cell", "lstm"}, {"hidden", "512"}, {"layers", "2"}, {"embedding", "128"},
    {"dropout", "0.2"},
    {"optimiser", "adam"}, {"learning-rate", "0.002"}, {"clip", "1"},
    {"decay", "cosine"}, {"epochs", "20"},
    {NULL, NULL},
};

/* clang-format on */

static const struct {
    const char *name, *summary;
    const assignment *assignments;
} presets[] = {
    {"zaremba-small", "words, 2 layers of 200, no dropout (Zaremba et al. 2014)", zaremba_small},
    {"zaremba-medium", "words, 2 layers of 650, dropout 0.5 (Zaremba et al. 2014)", zaremba_medium},
    {"zaremba-large", "words, 2 layers of 1500, dropout 0.65 (Zaremba et al. 2014)", zaremba_large},
    {"awd-lstm", "words, 3 layers of 1150, averaged SGD, dropped weights (Merity et al. 2017)", awd_lstm},
    {"char-lstm", "bytes, 2 layers of 512, Adam with a cosine", char_lstm},
};

enum { COUNT = sizeof presets / sizeof *presets };

size_t rcv_preset_count(void) { return COUNT; }
const char *rcv_preset_name(size_t index) { return index < COUNT ? presets[index].name : NULL; }
const char *rcv_preset_summary(size_t index) { return index < COUNT ? presets[index].summary : NULL; }

static rcv_status unknown_preset(const char *preset) {
    const char *names[COUNT];
    char all[512] = "";
    for (size_t i = 0; i < COUNT; i++) {
        names[i] = presets[i].name;
        const size_t used = strlen(all);
        snprintf(all + used, sizeof all - used, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    char shown[RCVI_ESCAPED_NAME];
    rcvi_escape_name(preset, shown);
    const char *near = rcvi_nearest_name(preset, names, COUNT);
    if (near) return rcvi_fail(RCV_INVALID, "there is no preset '%s'; did you mean %s?", shown, near);
    return rcvi_fail(RCV_INVALID, "there is no preset '%s'; those known are %s", shown, all);
}

rcv_status rcv_settings_preset(rcv_settings *settings, const char *preset) {
    RCVI_NEED(settings, "settings");
    RCVI_NEED(preset, "preset");
    size_t i = 0;
    while (i < COUNT && strcmp(presets[i].name, preset) != 0) i++;
    if (i == COUNT) return unknown_preset(preset);
    rcv_settings *draft;
    RCVI_TRY(rcv_settings_copy(settings, &draft));
    rcv_status status = RCV_OK;
    for (const assignment *at = presets[i].assignments; at->name && status == RCV_OK; at++)
        status = rcv_settings_set(draft, at->name, at->value);
    if (status == RCV_OK) rcvi_settings_swap(settings, draft);
    rcv_settings_free(draft);
    return status;
}
