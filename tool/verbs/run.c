#include "paths.h"
#include "tool.h"

typedef struct {
    const char *model, *input, *output;
    rcv_model_options options;
    rcv_model_run_options run;
    int64_t rank;
} arguments;

static rcv_status run(const arguments *arguments) {
    rcv_context *context = NULL;
    rcv_model *loaded = NULL, *approximation = NULL;
    rcv_tensors *in = NULL, *out = NULL;
    rcv_status status = rcv_context_new(NULL, &context);
    if (status == RCV_OK) {
        status = rcv_model_load(context, arguments->model, &arguments->options, &loaded);
    }
    if (status == RCV_OK && arguments->rank > 0) {
        status = rcv_model_low_rank(loaded, arguments->rank, &approximation);
    }
    if (status == RCV_OK) {
        status = rcv_tensors_load(context, arguments->input, &in);
    }
    if (status == RCV_OK) {
        status = rcv_model_run(approximation != NULL ? approximation : loaded, in, &arguments->run, &out);
    }
    if (status == RCV_OK) {
        status = rcv_tensors_save(out, arguments->output);
    }
    rcv_tensors_free(out);
    rcv_tensors_free(in);
    rcv_model_free(approximation);
    rcv_model_free(loaded);
    rcv_context_free(context);
    return status;
}

int verb_run(int argc, char **argv) {
    arguments arguments = {.options = {.size = sizeof(rcv_model_options), .dtype = RCV_FLOAT32},
                           .run = {.size = sizeof(rcv_model_run_options)}};
    option options[] = {
        {"input", OPTION_TEXT, &arguments.input, .value = "FILE", .help = "safetensors to read", .required = true},
        {"output", OPTION_TEXT, &arguments.output, .value = "FILE", .help = "safetensors to write", .required = true},
        {"grad", OPTION_FLAG, &arguments.run.gradients, .help = "also write gradients; needs dy in the input"},
        {"dtype", OPTION_DTYPE, &arguments.options.dtype, .value = "TYPE", .help = "compute in float32 or float64"},
        {"cell", OPTION_TEXT, &arguments.options.cell, .value = "NAME|FILE",
         .help = "read MODEL as a PyTorch state dict of this cell"},
        {"prefix", OPTION_TEXT, &arguments.options.prefix, .value = "TEXT",
         .help = "prefix of the parameters' names in MODEL"},
        {"rank", OPTION_INTEGER, &arguments.rank, 0, 1 << 24, .value = "R",
         .help = "run the best approximation of this rank; 0: full"},
        {"device", OPTION_TEXT, &arguments.run.device, .value = "NAME", .help = "cpu, cuda, cuda:1, ..."},
        {"threads", OPTION_INTEGER, &arguments.run.threads, 0, 1024, .value = "N",
         .help = "at most; 0: one for each core"},
    };
    const operand operands[] = {{"MODEL", "a model of recurve, or a PyTorch state dict with --cell", &arguments.model}};
    const option_group groups[] = {{"Options", options, COUNT(options)}};
    const command command = {.verb = "run",
                             .summary = "Runs tensors through a model",
                             .details =
                                 "The input has x [steps, batch, input] and optionally lengths (int64 [batch]),\n"
                                 "resets (uint8 [steps, batch]), a tensor for each state by its name in the cell\n"
                                 "([layers * directions, batch, size]: h, c, ...) and, with --grad, dy.\n\n"
                                 "A reset at step t begins a new sequence: the states are set to the given\n"
                                 "ones, or to h.restart, c.restart, ... where those are given.\n\n"
                                 "The output has y, the final states (h.final, ...) and, with --grad, dx, the\n"
                                 "initial states' gradients (h.grad, ...) and grad.PARAMETER for every parameter.",
                             .operands = operands,
                             .operand_count = COUNT(operands),
                             .groups = groups,
                             .group_count = COUNT(groups)};
    const parsed next = command_parse(&command, argc, argv);
    if (next != PARSED_GO) {
        return next == PARSED_HELP ? EXIT_DONE : EXIT_USAGE;
    }
    paths paths = {0};
    paths_add(&paths, PATH_READ, "MODEL", arguments.model);
    paths_add(&paths, PATH_READ, "--input", arguments.input);
    paths_add_cell(&paths, "--cell", arguments.options.cell);
    paths_add(&paths, PATH_WRITTEN, "--output", arguments.output);
    if (!paths_are_apart(&paths) || !output_is_free(arguments.output, OUTPUT_TENSORS)) {
        return EXIT_FAILED;
    }
    const rcv_status status = run(&arguments);
    return status == RCV_OK ? EXIT_DONE : fail(status);
}
