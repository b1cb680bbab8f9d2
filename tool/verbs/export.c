/* recurve export: the model of a checkpoint without the training state, with PyTorch's tensor names. */
#include "paths.h"
#include "tool.h"

static rcv_status export_model(const char *from, const char *to) {
    rcv_context *context = NULL;
    rcv_learner *learner = NULL;
    rcv_status status = rcv_context_new(NULL, &context);
    if (status == RCV_OK) {
        status = rcv_learner_load(context, from, NULL, RCV_FLOAT32, &learner);
    }
    if (status == RCV_OK) {
        status = rcv_learner_save(learner, to);
    }
    rcv_learner_free(learner);
    rcv_context_free(context);
    return status;
}

int verb_export(int argc, char **argv) {
    const char *model, *output;
    bool overwrite = false;
    option options[] = {{"overwrite", OPTION_FLAG, &overwrite, .help = "replace an existing file"}};
    const option_group groups[] = {{"Options", options, COUNT(options)}};
    const operand operands[] = {
        {"MODEL", "a model or checkpoint that recurve train wrote", &model},
        {"FILE", "the safetensors file to write", &output},
    };
    const command command = {
        .verb = "export",
        .summary = "Writes the model of a checkpoint as safetensors with PyTorch's names",
        .details = "Tensors are embedding.weight, rnn.weight_ih_l0, ..., decoder.weight and decoder.bias:\n"
                   "the state dict of a module with an Embedding, an LSTM (or another cell) and a Linear of\n"
                   "these names, which load_state_dict loads strictly. Vocabulary and classes are JSON in\n"
                   "the file's metadata, recurve.vocabulary and recurve.classes.",
        .operands = operands,
        .operand_count = COUNT(operands),
        .groups = groups,
        .group_count = COUNT(groups)};
    const parsed next = command_parse(&command, argc, argv);
    if (next != PARSED_GO) {
        return next == PARSED_HELP ? EXIT_DONE : EXIT_USAGE;
    }
    paths paths = {0};
    paths_add(&paths, PATH_READ, "MODEL", model);
    paths_add(&paths, PATH_WRITTEN, "FILE", output);
    if (!paths_are_apart(&paths) || !model_is_free(output, overwrite)) {
        return EXIT_FAILED;
    }
    const rcv_status status = export_model(model, output);
    return status == RCV_OK ? EXIT_DONE : fail(status);
}
