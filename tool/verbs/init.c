#include "paths.h"
#include "tool.h"

static rcv_status write_model(network *network, rcv_dtype dtype, uint64_t seed, const char *path) {
    rcv_context *context = NULL;
    rcv_cell *cell = NULL;
    rcv_net *net = NULL;
    rcv_model *model = NULL;
    rcv_status status = rcv_context_new(NULL, &context);
    if (status == RCV_OK) {
        status = network_open(network, context, &cell);
    }
    if (status == RCV_OK) {
        status = rcv_net_new(cell, &network->net, &net);
    }
    if (status == RCV_OK) {
        status = rcv_model_new(net, dtype, seed, &model);
    }
    if (status == RCV_OK) {
        status = rcv_model_save(model, path);
    }
    rcv_model_free(model);
    rcv_net_free(net);
    rcv_cell_free(cell);
    rcv_context_free(context);
    return status;
}

int verb_init(int argc, char **argv) {
    const char *path;
    bool overwrite = false;
    uint64_t seed = 0;
    rcv_dtype dtype = RCV_FLOAT32;
    network network;
    const option_group shape = network_group(&network, true);
    option options[] = {
        {"input", OPTION_INTEGER, &network.net.input, 1, 1 << 24, .value = "N", .help = "features of the input",
         .required = true},
        {"bidirectional", OPTION_FLAG, &network.net.bidirectional, .help = "one direction each way through time"},
        {"seed", OPTION_SEED, &seed, .value = "N", .help = "of the random parameters"},
        {"dtype", OPTION_DTYPE, &dtype, .value = "TYPE", .help = "float32 or float64"},
        {"overwrite", OPTION_FLAG, &overwrite, .help = "replace an existing file"},
    };
    const operand operands[] = {{"MODEL", "the model file to write", &path}};
    const option_group groups[] = {shape, {"Options", options, COUNT(options)}};
    const command command = {.verb = "init",
                             .summary = "Writes a model with initial parameters, drawn as in PyTorch",
                             .operands = operands,
                             .operand_count = COUNT(operands),
                             .groups = groups,
                             .group_count = COUNT(groups)};
    const parsed next = command_parse(&command, argc, argv);
    if (next != PARSED_GO) {
        return next == PARSED_HELP ? EXIT_DONE : EXIT_USAGE;
    }
    paths paths = {0};
    paths_add_cell(&paths, "--cell", network.cell);
    paths_add(&paths, PATH_WRITTEN, "MODEL", path);
    if (!paths_are_apart(&paths) || !model_is_free(path, overwrite)) {
        return EXIT_FAILED;
    }
    const rcv_status status = write_model(&network, dtype, seed, path);
    return status == RCV_OK ? EXIT_DONE : fail(status);
}
