/* The network of a PyTorch state dict, which has no configuration: layers, directions and sizes are inferred from names and shapes. */
#include "model/model.h"
#include "model/tensors.h"

#include <stdio.h>
#include <string.h>

enum { MOST_GATES = 8 };

/* Properties that follow from the names. */
typedef struct {
    int64_t layers;
    bool reverse, bias;
} naming;

/* Parses the end "_l<k>" or "_l<k>_reverse" of a name; false if it has none, or if k is not below `most`. */
static bool read_layer(const char *name, int64_t most, int64_t *layer, bool *reverse) {
    static const char ending[] = "_reverse";
    size_t length = strlen(name), tail = sizeof ending - 1;
    *reverse = length > tail && strcmp(name + length - tail, ending) == 0;
    if (*reverse) length -= tail;
    size_t digits = length;
    while (digits > 0 && name[digits - 1] >= '0' && name[digits - 1] <= '9') digits--;
    if (digits == length || length - digits > 9 || digits < 2 || strncmp(name + digits - 2, "_l", 2) != 0) return false;
    *layer = 0;
    for (size_t i = digits; i < length; i++) *layer = *layer * 10 + (name[i] - '0');
    return *layer < most;
}

static naming read_names(const rcv_tensors *tensors, const char *prefix) {
    naming names = {.layers = 1};
    size_t length = strlen(prefix);
    for (size_t i = 0; i < tensors->count; i++) {
        const char *name = tensors->items[i]->name;
        int64_t layer;
        bool reverse;
        if (strncmp(name, prefix, length) != 0 || !read_layer(name + length, (int64_t)tensors->count, &layer, &reverse))
            continue;
        if (layer >= names.layers) names.layers = layer + 1;
        names.reverse |= reverse;
        names.bias |= strncmp(name + length, "bias_", 5) == 0;
    }
    return names;
}

/* Finds the matrix prefix + name; NULL if there is none. */
static const rcv_tensor *find_matrix(const rcv_tensors *tensors, const char *prefix, const char *name) {
    size_t length = strlen(prefix);
    for (size_t i = 0; i < tensors->count; i++) {
        const rcv_tensor *tensor = tensors->items[i];
        if (tensor->dims == 2 && strncmp(tensor->name, prefix, length) == 0 && strcmp(tensor->name + length, name) == 0)
            return tensor;
    }
    return NULL;
}

/* Makes the network with these options; fails if the tensors are not its parameters. */
static rcv_status try_network(const rcv_cell *cell, const rcv_net_options *options, const rcv_tensors *tensors,
                              const char *file, const char *prefix, rcv_net **net) {
    rcv_status status = rcv_net_new(cell, options, net);
    if (status == RCV_INVALID) return rcvi_fail(RCV_FORMAT, "%s: %s", file, rcv_message());
    if (status != RCV_OK) return status;
    status = rcvi_parameters_check(*net, tensors, file, prefix);
    if (status != RCV_OK) {
        rcv_net_free(*net);
        *net = NULL;
    }
    return status;
}

/* Tries the hidden sizes in order, the most likely first. If none fits, it returns the failure of the first. */
static rcv_status search_hidden(const rcv_cell *cell, rcv_net_options *options, const int64_t *candidates, size_t count,
                                const rcv_tensors *tensors, const char *file, const char *prefix, rcv_net **net) {
    char first[512] = "";
    rcv_status first_status = RCV_FORMAT;
    for (size_t i = 0; i < count; i++) {
        options->hidden = candidates[i];
        rcv_status status = try_network(cell, options, tensors, file, prefix, net);
        if (status == RCV_OK || status == RCV_NO_MEMORY) return status;
        if (i == 0) {
            snprintf(first, sizeof first, "%s", rcv_message());
            first_status = status;
        }
    }
    return rcvi_fail(first_status, "%s", first);
}

rcv_status rcvi_net_from_state_dict(const rcv_cell *cell, const rcv_tensors *tensors, const char *file,
                                    const char *prefix, rcv_net **net) {
    *net = NULL;
    const rcv_tensor *input = find_matrix(tensors, prefix, "weight_ih_l0");
    const rcv_tensor *recurrent = find_matrix(tensors, prefix, "weight_hh_l0");
    const rcv_tensor *projection = find_matrix(tensors, prefix, "weight_hr_l0");
    char shown[RCVI_ESCAPED_NAME];
    if (!input)
        return rcvi_fail(RCV_FORMAT, "%s: there is no matrix %sweight_ih_l0, from which the input size is read", file,
                         rcvi_escape_name(prefix, shown));
    naming names = read_names(tensors, prefix);
    rcv_net_options options = RCV_INIT(rcv_net_options, .input = input->shape[1], .layers = names.layers,
                                       .bidirectional = names.reverse, .no_bias = !names.bias);
    rcv_size proj = {"proj", 0};
    int64_t candidates[MOST_GATES + 1];
    size_t count = 0;
    if (projection) {
        proj.value = projection->shape[0];
        options.sizes = &proj;
        options.size_count = 1;
        candidates[count++] = projection->shape[1];
    } else {
        if (recurrent) candidates[count++] = recurrent->shape[1];
        for (int64_t gates = 1; gates <= MOST_GATES; gates++)
            if (input->shape[0] % gates == 0 && (!recurrent || input->shape[0] / gates != recurrent->shape[1]))
                candidates[count++] = input->shape[0] / gates;
    }
    return search_hidden(cell, &options, candidates, count, tensors, file, prefix, net);
}
