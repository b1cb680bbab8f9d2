/* The options that describe a network. */
#include "tool.h"

#include <string.h>

option_group network_group(network *network, bool required) {
    *network = (struct network){.cell = required ? NULL : "lstm", .net = {.hidden = required ? 0 : 128, .layers = 1}};
    const double most = 1 << 24;
    const option options[NETWORK_OPTIONS] = {
        {"cell", OPTION_TEXT, &network->cell, .value = "NAME|FILE", .help = "a built-in cell, or a .cell file",
         .required = required},
        {"hidden", OPTION_INTEGER, &network->net.hidden, 1, most, .value = "N", .help = "features of a state",
         .required = required},
        {"layers", OPTION_INTEGER, &network->net.layers, 1, 4096, .value = "N", .help = "layers"},
        {"no-bias", OPTION_FLAG, &network->net.no_bias, .help = "no biases"},
        {"dropout", OPTION_REAL, &network->net.dropout, 0, 1, .value = "P",
         .help = "dropout between layers in training"},
        {"rank", OPTION_INTEGER, &network->net.rank, 0, most, .value = "R",
         .help = "factorize weights with this rank; 0: full"},
        {"size", OPTION_SIZES, &network->sizes, .value = "NAME=VALUE",
         .help = "another size of the cell; may be repeated"},
    };
    memcpy(network->options, options, sizeof options);
    return (option_group){"Network", network->options, NETWORK_OPTIONS};
}

rcv_status network_open(network *network, rcv_context *context, rcv_cell **cell) {
    network->net.size = sizeof network->net;
    network->net.sizes = network->sizes.sizes;
    network->net.size_count = network->sizes.count;
    return rcv_cell_open(context, network->cell, cell);
}
