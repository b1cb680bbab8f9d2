/* Construction of a network: sizes, one bound graph and adjoint per layer, layout of the parameters, list of states. */
#include "net/net.h"
#include "cell/distribute.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const int64_t LARGEST = (int64_t)1 << 40; /* of any one size; products of sizes are checked for overflow */

static rcv_status check_options(const rcv_net_options *o) {
    if (o->input < 1 || o->input > LARGEST)
        return rcvi_fail(RCV_INVALID, "input size %lld is not a positive number", (long long)o->input);
    if (o->hidden < 1 || o->hidden > LARGEST) {
        return rcvi_fail(RCV_INVALID, "hidden size %lld is not a positive number", (long long)o->hidden);
    }
    if (o->layers < 0 || o->layers > 1000)
        return rcvi_fail(RCV_INVALID, "%lld layers are not 1 to 1000", (long long)o->layers);
    if (!(o->dropout >= 0 && o->dropout <= 1)) return rcvi_fail(RCV_INVALID, "dropout %g is not in [0, 1]", o->dropout);
    if (!(o->zoneout >= 0 && o->zoneout < 1)) return rcvi_fail(RCV_INVALID, "zoneout %g is not in [0, 1)", o->zoneout);
    if (o->bidirectional && o->reverse)
        return rcvi_fail(RCV_INVALID, "bidirectional and reverse exclude each other: a bidirectional network has the "
                                      "reverse direction already");
    if (o->rank < 0) return rcvi_fail(RCV_INVALID, "rank %lld is negative; 0 means full matrices", (long long)o->rank);
    if (o->size_count && !o->sizes) return rcvi_fail(RCV_INVALID, "size_count is %zu but sizes is NULL", o->size_count);
    return RCV_OK;
}

enum { FIRST_DECLARED = RCVI_SIZE_HIDDEN + 1 };

/* Sets the sizes that the cell declares, with the caller's values, in the network's copy of the options. */
static rcv_status set_sizes(rcv_net *net, const rcv_net_options *options) {
    const rcvi_graph *graph = &net->cell->graph;
    size_t declared = graph->size_count - FIRST_DECLARED;
    rcv_size *sizes = rcvi_pool_new(&net->pool, declared, sizeof *sizes);
    const char **names = rcvi_pool_new(&net->pool, declared, sizeof *names);
    if (!sizes || !names) return RCV_NO_MEMORY;
    for (size_t i = 0; i < declared; i++) {
        names[i] = graph->sizes[FIRST_DECLARED + i].name;
        sizes[i] = (rcv_size){names[i], graph->sizes[FIRST_DECLARED + i].value};
    }
    for (size_t k = 0; k < options->size_count; k++) {
        const rcv_size *given = &options->sizes[k];
        if (!given->name) return rcvi_fail(RCV_INVALID, "a size is given without a name");
        size_t i = 0;
        while (i < declared && strcmp(given->name, names[i])) i++;
        if (i == declared) {
            const char *near = rcvi_nearest_name(given->name, names, declared);
            return rcvi_fail(RCV_INVALID, "cell %s has no size '%s'%s%s%s", net->cell->ast.name, given->name,
                             near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
        }
        if (given->value < 1 || given->value > LARGEST) {
            return rcvi_fail(RCV_INVALID, "size %s = %lld is not a positive number", given->name,
                             (long long)given->value);
        }
        sizes[i].value = given->value;
    }
    net->options.sizes = sizes;
    net->options.size_count = declared;
    return RCV_OK;
}

/* ---- layers ---- */

static rcv_status check_blocks(const rcvi_graph *graph) {
    for (size_t i = 0; i < graph->param_count; i++) {
        const rcvi_param *p = &graph->params[i];
        int64_t blocks = rcvi_features(graph, p->blocks), rows = rcvi_features(graph, p->rows),
                columns = rcvi_features(graph, p->columns);
        if (rows % blocks || columns % blocks) {
            return rcvi_fail(RCV_INVALID, "%s = %lld blocks of %s do not divide its %lld rows and %lld columns",
                             graph->sizes[p->blocks].name, (long long)blocks, p->symbol, (long long)rows,
                             (long long)columns);
        }
    }
    return RCV_OK;
}

/* The constants of a layer, the rest of its step, and the derivatives of both. */
static rcv_status split_constants(rcv_net *net, rcvi_layer *layer) {
    rcvi_graph *graphs[] = {&layer->constants, &layer->constants_adjoint, &layer->step, &layer->step_adjoint};
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) rcvi_graph_init(graphs[i], &net->pool);
    RCVI_TRY(rcvi_split_constants(&layer->forward, &layer->constants, &layer->step));
    if (!layer->constants.output_count) return RCV_OK;
    RCVI_TRY(rcvi_differentiate(&layer->constants, &layer->constants_adjoint, NULL));
    return rcvi_differentiate(&layer->step, &layer->step_adjoint, NULL);
}

static rcv_status new_layer(rcv_net *net, int64_t input, rcvi_layer *layer) {
    const rcvi_graph *graph = &net->cell->graph;
    int64_t *sizes = rcvi_pool_new(&net->pool, graph->size_count, sizeof *sizes);
    if (!sizes) return RCV_NO_MEMORY;
    sizes[RCVI_SIZE_ONE] = 1;
    sizes[RCVI_SIZE_INPUT] = input;
    sizes[RCVI_SIZE_HIDDEN] = net->options.hidden;
    for (size_t i = 0; i < net->options.size_count; i++) sizes[FIRST_DECLARED + i] = net->options.sizes[i].value;
    rcvi_graph_init(&layer->forward, &net->pool);
    rcvi_graph_init(&layer->adjoint, &net->pool);
    RCVI_TRY(rcvi_bind(graph, sizes, net->options.no_bias, net->options.rank, &layer->forward));
    if (net->options.zoneout > 0) RCVI_TRY(rcvi_add_zoneout(&layer->forward));
    RCVI_TRY(check_blocks(&layer->forward));
    RCVI_TRY(rcvi_differentiate(&layer->forward, &layer->adjoint, NULL));
    RCVI_TRY(split_constants(net, layer));
    rcvi_distribution parts;
    if (!rcvi_distribute(&net->pool, &layer->forward, true, &parts)) return RCV_NO_MEMORY;
    layer->parts = parts.count;
    for (int i = 0; i < parts.count; i++) {
        layer->has_elementwise |= parts.classes[i] == RCVI_SCAN || parts.classes[i] == RCVI_DIAGONAL;
        layer->has_diagonal |= parts.classes[i] == RCVI_DIAGONAL;
        layer->has_dense |= parts.classes[i] == RCVI_DENSE;
    }
    layer->input = input;
    layer->output = rcvi_features(&layer->forward, layer->forward.values[layer->forward.outputs[0].value].size);
    return RCV_OK;
}

/* ---- parameters ---- */

static rcv_status add_parameter(rcv_net *net, const rcvi_param *kind, const char *name, rcv_parameter parameter) {
    size_t capacity = net->parameter_capacity;
    if (!rcvi_grow(net->context, &net->parameters, &capacity, net->parameter_count + 1, sizeof *net->parameters))
        return RCV_NO_MEMORY;
    if (!rcvi_grow(net->context, (void *)&net->parameter_kinds, &net->parameter_capacity, net->parameter_count + 1,
                   sizeof *net->parameter_kinds)) {
        return RCV_NO_MEMORY;
    }
    if (!name) return RCV_NO_MEMORY;
    parameter.name = name;
    parameter.offset = net->parameter_elements;
    bool fits = true;
    parameter.count = 1;
    for (int i = 0; i < parameter.dims; i++)
        fits &= rcvi_multiply(parameter.count, parameter.shape[i], &parameter.count);
    fits = fits && rcvi_add(net->parameter_elements, parameter.count, &net->parameter_elements) &&
           net->parameter_elements < INT64_MAX / 64;
    if (!fits) return rcvi_fail(RCV_INVALID, "the network's parameters have more elements than 64 bits can count");
    net->parameter_kinds[net->parameter_count] = kind;
    net->parameters[net->parameter_count++] = parameter;
    return RCV_OK;
}

/* Parameters first .. end - 1 of the graph are stacked in one tensor. */
static rcv_status add_stack(rcv_net *net, int64_t index, int64_t direction, size_t first, size_t end) {
    rcvi_layer *layer = &net->layers[index];
    const rcvi_graph *graph = &layer->forward;
    const rcvi_param *kind = &graph->params[first];
    int64_t columns = rcvi_features(graph, kind->columns), blocks = rcvi_features(graph, kind->blocks), rows = 0;
    int64_t offset = net->parameter_elements;
    for (size_t i = first; i < end; i++) {
        int64_t own = rcvi_features(graph, graph->params[i].rows), elements = 0;
        if (!rcvi_multiply(own / blocks, columns, &elements) || !rcvi_add(offset, elements, &elements)) {
            return rcvi_fail(RCV_INVALID, "the network's parameters have more elements than 64 bits can count");
        }
        layer->layouts[direction][i] =
            (rcvi_param_layout){.offset = offset, .rows = own / blocks, .columns = columns / blocks, .blocks = blocks};
        offset = elements;
        rows += own;
    }
    rcv_parameter parameter = {.dims = kind->vector ? 1 : 2, .shape = {rows, columns, 0}};
    if (kind->blocks != RCVI_SIZE_ONE) {
        int64_t own = rcvi_features(graph, kind->rows);
        parameter = (rcv_parameter){.dims = 3, .shape = {rows / own * blocks, own / blocks, columns / blocks}};
    }
    const char *name = rcvi_pool_format(&net->pool, "%s_l%lld%s%s", kind->stored, (long long)index,
                                        direction ? "_reverse" : "", kind->suffix);
    return add_parameter(net, kind, name, parameter);
}

/* Places the constants of a layer in their row, after the layouts of its parameters. */
static rcv_status place_constants(rcvi_layer *layer, rcvi_param_layout *layouts) {
    const rcvi_graph *constants = &layer->constants;
    int64_t end = 0, unit = RCVI_CONSTANT_ALIGNMENT;
    for (size_t i = 0; i < constants->output_count; i++) {
        int64_t elements = rcvi_features(constants, constants->values[constants->outputs[i].value].size);
        layouts[layer->forward.param_count + i] =
            (rcvi_param_layout){.offset = end, .rows = elements, .columns = 1, .blocks = 1, .constant = true};
        if (!rcvi_add(end, (elements + unit - 1) / unit * unit, &end))
            return rcvi_fail(RCV_INVALID, "the network's constants have more elements than 64 bits can count");
    }
    layer->constant_elements = end;
    return RCV_OK;
}

static rcv_status add_parameters(rcv_net *net, int64_t index, int64_t direction) {
    rcvi_layer *layer = &net->layers[index];
    const rcvi_param *params = layer->forward.params;
    size_t count = layer->forward.param_count;
    layer->layouts[direction] =
        rcvi_pool_new(&net->pool, count + layer->constants.output_count, sizeof *layer->layouts[direction]);
    if (!layer->layouts[direction]) return RCV_NO_MEMORY;
    for (size_t first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count; end++) {
            if (strcmp(params[end].stored, params[first].stored) || strcmp(params[end].suffix, params[first].suffix))
                break;
        }
        RCVI_TRY(add_stack(net, index, direction, first, end));
    }
    return place_constants(layer, layer->layouts[direction]);
}

/* ---- states ---- */

static rcv_status list_states(rcv_net *net) {
    const rcvi_graph *first = &net->layers[0].forward;
    net->state_count = first->state_count;
    net->states = rcvi_pool_new(&net->pool, net->state_count, sizeof *net->states);
    if (!net->states) return RCV_NO_MEMORY;
    for (size_t s = 0; s < net->state_count; s++) {
        int64_t size = rcvi_features(first, first->states[s].size), total = 0;
        for (int64_t l = 0; l < net->options.layers; l++) {
            int64_t own = rcvi_features(&net->layers[l].forward, first->states[s].size);
            total += own * net->directions;
            if (own != size) size = 0;
        }
        net->states[s] = (rcv_state){first->states[s].name, size, total};
    }
    return RCV_OK;
}

int64_t rcvi_state_offset(const rcv_net *net, size_t state, int64_t layer, int64_t direction) {
    int64_t offset = 0;
    for (int64_t l = 0; l <= layer; l++) {
        int64_t size = rcvi_features(&net->layers[l].forward, net->layers[l].forward.states[state].size);
        offset += size * (l < layer ? net->directions : direction);
    }
    return offset;
}

size_t rcvi_net_tensor_at(const rcv_net *net, int64_t offset) {
    size_t low = 0, high = net->parameter_count; /* it is in low .. high - 1 */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (net->parameters[middle].offset <= offset)
            low = middle;
        else
            high = middle;
    }
    return low;
}

int64_t rcvi_first_layer_split(const rcv_net *net) {
    int64_t all = rcvi_layer_start(net, 1), best = 0;
    for (size_t i = 0; i < rcv_net_parameter_count(net) && best < all; i++) {
        const rcv_parameter *p = rcv_net_parameter(net, i);
        int64_t end = p->offset + p->count;
        if (end <= all && llabs(2 * end - all) < llabs(2 * best - all)) best = end;
    }
    return best ? best : all;
}

/* ---- public ---- */

static rcv_status build(rcv_net *net, const rcv_net_options *options) {
    RCVI_TRY(set_sizes(net, options));
    net->layers = rcvi_pool_new(&net->pool, (size_t)net->options.layers, sizeof *net->layers);
    if (!net->layers) return RCV_NO_MEMORY;
    int64_t input = net->options.input;
    for (int64_t l = 0; l < net->options.layers; l++) {
        RCVI_TRY(new_layer(net, input, &net->layers[l]));
        input = net->layers[l].output * net->directions;
        net->layers[l].start = net->parameter_elements;
        for (int64_t d = 0; d < net->directions; d++) RCVI_TRY(add_parameters(net, l, d));
    }
    return list_states(net);
}

rcv_status rcv_net_new(const rcv_cell *cell, const rcv_net_options *options, rcv_net **out) {
    RCVI_NEED(out, "net");
    *out = NULL;
    RCVI_NEED(cell, "cell");
    RCVI_NEED(options, "options");
    RCVI_READ(rcv_net_options, options, "options");
    RCVI_TRY(check_options(options));
    rcv_net *net = rcvi_new(cell->context, 1, sizeof *net);
    if (!net) return RCV_NO_MEMORY;
    net->context = cell->context;
    rcvi_pool_init(&net->pool, cell->context);
    net->cell = cell;
    net->options = *options;
    if (!net->options.layers) net->options.layers = 1;
    net->directions = options->bidirectional ? 2 : 1;
    rcv_status status = build(net, options);
    if (status) {
        rcv_net_free(net);
        return status;
    }
    *out = net;
    return RCV_OK;
}

rcv_status rcvi_net_slice(const rcv_net *net, int64_t first, int64_t count, rcv_net **slice) {
    rcv_net_options options = net->options;
    options.input = net->layers[first].input;
    options.layers = count;
    RCVI_TRY(rcv_net_new(net->cell, &options, slice));
    if (!*slice) return RCV_NO_MEMORY;
    (*slice)->first = net->first + first;
    return RCV_OK;
}

void rcv_net_free(rcv_net *net) {
    if (!net) return;
    for (int64_t l = 0; net->layers && l < net->options.layers; l++) {
        rcvi_layer *layer = &net->layers[l];
        rcvi_graph *graphs[] = {&layer->forward,           &layer->adjoint, &layer->constants,
                                &layer->constants_adjoint, &layer->step,    &layer->step_adjoint};
        for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) rcvi_graph_free(graphs[i]);
    }
    rcvi_free(net->context, net->parameters);
    rcvi_free(net->context, net->parameter_kinds);
    rcvi_pool_free(&net->pool);
    rcvi_free(net->context, net);
}

const rcv_net_options *rcv_net_get_options(const rcv_net *net) { return &net->options; }
const rcv_cell *rcv_net_cell(const rcv_net *net) { return net->cell; }
int64_t rcv_net_output(const rcv_net *net) { return net->layers[net->options.layers - 1].output * net->directions; }
size_t rcv_net_parameter_count(const rcv_net *net) { return net->parameter_count; }
int64_t rcv_net_parameter_elements(const rcv_net *net) { return net->parameter_elements; }
size_t rcv_net_state_count(const rcv_net *net) { return net->state_count; }

const rcv_parameter *rcv_net_parameter(const rcv_net *net, size_t index) {
    return index < net->parameter_count ? &net->parameters[index] : NULL;
}

const rcv_state *rcv_net_state(const rcv_net *net, size_t index) {
    return index < net->state_count ? &net->states[index] : NULL;
}

int64_t rcv_net_state_size(const rcv_net *net, size_t index, int64_t layer, bool reverse) {
    if (index >= net->state_count || layer < 0 || layer >= net->options.layers || (reverse && net->directions == 1))
        return 0;
    return rcvi_features(&net->layers[layer].forward, net->layers[layer].forward.states[index].size);
}
