/* The network in the metadata of a file: the text of the cell and a JSON object of options. */
#include "base/json.h"
#include "model/model.h"
#include "model/tensors.h"

#include <string.h>

static const char FORMAT_KEY[] = RCVI_FORMAT_KEY, CELL_KEY[] = "recurve.cell", NETWORK_KEY[] = "recurve.network";
static const char FORMAT[] = "2", FORMAT_WITHOUT_SUM[] = "1"; /* both are read; the first is written */

rcv_status rcvi_network_to_json(const rcv_net *net, char **text) {
    const rcv_net_options *options = rcv_net_get_options(net);
    *text = NULL;
    json_t *sizes = json_object();
    bool good = sizes != NULL;
    for (size_t i = 0; i < options->size_count && good; i++)
        good = json_object_set_new(sizes, options->sizes[i].name, json_integer(options->sizes[i].value)) == 0;
    if (!good) json_decref(sizes);
    json_t *object =
        !good ? NULL
              : json_pack("{s:I, s:I, s:I, s:b, s:b, s:f, s:I, s:o}", "input", (json_int_t)options->input, "hidden",
                          (json_int_t)options->hidden, "layers", (json_int_t)(options->layers ? options->layers : 1),
                          "bidirectional", (int)options->bidirectional, "no_bias", (int)options->no_bias, "dropout",
                          options->dropout, "rank", (json_int_t)options->rank, "sizes", sizes);
    if (object && options->variational) good = json_object_set_new(object, "variational", json_true()) == 0;
    if (object && options->reverse) good = json_object_set_new(object, "reverse", json_true()) == 0 && good;
    if (object && options->zoneout > 0)
        good = json_object_set_new(object, "zoneout", json_real(options->zoneout)) == 0 && good;
    rcv_status status = rcvi_json_print(rcvi_net_context(net), good ? object : NULL, JSON_COMPACT, text);
    json_decref(object);
    return status;
}

rcv_status rcvi_network_to_tensors(const rcv_net *net, rcv_tensors *tensors) {
    char *text;
    rcv_status status = rcvi_network_to_json(net, &text);
    if (status == RCV_OK) status = rcv_tensors_set_metadata(tensors, FORMAT_KEY, FORMAT);
    if (status == RCV_OK) status = rcv_tensors_set_metadata(tensors, CELL_KEY, rcv_cell_source(rcv_net_cell(net)));
    if (status == RCV_OK) status = rcv_tensors_set_metadata(tensors, NETWORK_KEY, text);
    rcvi_free(rcvi_net_context(net), text);
    return status;
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

enum { INTEGER, NUMBER, BOOLEAN, OBJECT };

typedef struct {
    const char *name;
    int kind;
    const char *wanted;
    bool optional; /* if absent: false, or 0 */
} option_key;

static const option_key keys[] = {
    {"input", INTEGER, "an integer", false},         {"hidden", INTEGER, "an integer", false},
    {"layers", INTEGER, "an integer", false},        {"bidirectional", BOOLEAN, "true or false", false},
    {"no_bias", BOOLEAN, "true or false", false},    {"dropout", NUMBER, "a number", false},
    {"variational", BOOLEAN, "true or false", true}, {"zoneout", NUMBER, "a number", true},
    {"rank", INTEGER, "an integer", false},          {"sizes", OBJECT, "an object of integers", false},
    {"reverse", BOOLEAN, "true or false", true},
};

static bool has_kind(const json_t *value, int kind) {
    switch (kind) {
    case INTEGER: return json_is_integer(value);
    case NUMBER: return json_is_number(value);
    case BOOLEAN: return json_is_boolean(value);
    default: return json_is_object(value);
    }
}

/* Checks that the object has the keys of the table, with values of their kinds, and no others. */
static rcv_status check_keys(json_t *object, const char *file) {
    char shown[RCVI_ESCAPED_NAME];
    const char *key;
    json_t *value;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *found = json_object_get(object, keys[i].name);
        if (!found && keys[i].optional) continue;
        if (!found || !has_kind(found, keys[i].kind))
            return rcvi_fail(RCV_FORMAT, "%s: %s needs the key %s with %s", file, NETWORK_KEY, keys[i].name,
                             keys[i].wanted);
    }
    json_object_foreach(object, key, value) {
        size_t i = 0;
        while (i < sizeof keys / sizeof *keys && strcmp(keys[i].name, key) != 0) i++;
        if (i == sizeof keys / sizeof *keys)
            return rcvi_fail(RCV_FORMAT, "%s: %s has the unknown key %s", file, NETWORK_KEY,
                             rcvi_escape_name(key, shown));
    }
    json_object_foreach(json_object_get(object, "sizes"), key, value) if (!json_is_integer(value)) return rcvi_fail(
        RCV_FORMAT, "%s: the size %s in %s is not an integer", file, rcvi_escape_name(key, shown), NETWORK_KEY);
    return RCV_OK;
}

static int64_t integer(const json_t *object, const char *key) {
    return json_integer_value(json_object_get(object, key));
}

static rcv_status make_net(rcv_context *context, const rcv_cell *cell, json_t *object, const char *file,
                           rcv_net **net) {
    json_t *sizes = json_object_get(object, "sizes");
    rcv_size *list = rcvi_new(context, json_object_size(sizes), sizeof *list);
    if (!list) return RCV_NO_MEMORY;
    rcv_net_options options = RCV_INIT(
        rcv_net_options, .input = integer(object, "input"), .hidden = integer(object, "hidden"),
        .layers = integer(object, "layers"), .bidirectional = json_is_true(json_object_get(object, "bidirectional")),
        .no_bias = json_is_true(json_object_get(object, "no_bias")),
        .dropout = json_number_value(json_object_get(object, "dropout")),
        .variational = json_is_true(json_object_get(object, "variational")),
        .zoneout = json_number_value(json_object_get(object, "zoneout")), .rank = integer(object, "rank"),
        .sizes = list, .reverse = json_is_true(json_object_get(object, "reverse")));
    const char *key;
    json_t *value;
    json_object_foreach(sizes, key, value) list[options.size_count++] = (rcv_size){key, json_integer_value(value)};
    rcv_status status = rcv_net_new(cell, &options, net);
    rcvi_free(context, list);
    if (status != RCV_OK && status != RCV_NO_MEMORY) return rcvi_fail(RCV_FORMAT, "%s: %s", file, rcv_message());
    return status;
}

/* A layer has parameters, so a valid file cannot have many more layers than tensors. This bounds memory for a forged file. */
static rcv_status check_layers(const json_t *object, const rcv_tensors *tensors, const char *file) {
    int64_t layers = integer(object, "layers");
    if (layers < 1 || layers > (int64_t)rcv_tensors_count(tensors) + 1024)
        return rcvi_fail(RCV_FORMAT, "%s: %s has %lld layers, which does not match the %zu tensors of the file", file,
                         NETWORK_KEY, (long long)layers, rcv_tensors_count(tensors));
    return RCV_OK;
}

static rcv_status parse_cell(rcv_context *context, const char *text, const char *file, rcv_cell **cell) {
    rcvi_text name;
    char *taken;
    rcvi_text_init(&name, context);
    rcvi_text_add(&name, "%s (%s)", file, CELL_KEY);
    rcv_status status = rcvi_text_take(&name, &taken);
    if (status == RCV_OK) status = rcv_cell_parse(context, text, strlen(text), taken, cell);
    rcvi_free(context, taken);
    return status;
}

rcv_status rcvi_network_from_tensors(rcv_context *context, const rcv_tensors *tensors, const char *file,
                                     rcv_cell **cell, rcv_net **net) {
    *cell = NULL;
    *net = NULL;
    const char *format = rcv_tensors_metadata(tensors, FORMAT_KEY), *source = rcv_tensors_metadata(tensors, CELL_KEY);
    const char *network = rcv_tensors_metadata(tensors, NETWORK_KEY);
    char shown[RCVI_ESCAPED_NAME];
    if (!format || !source || !network)
        return rcvi_fail(RCV_FORMAT,
                         "%s: the metadata have no %s, so this is not a Recurve model; for a PyTorch state dict name "
                         "the cell",
                         file,
                         !format   ? FORMAT_KEY
                         : !source ? CELL_KEY
                                   : NETWORK_KEY);
    if (strcmp(format, FORMAT) != 0 && strcmp(format, FORMAT_WITHOUT_SUM) != 0)
        return rcvi_fail(RCV_FORMAT, "%s: %s is %s, this version reads %s and %s", file, FORMAT_KEY,
                         rcvi_escape_name(format, shown), FORMAT_WITHOUT_SUM, FORMAT);
    json_error_t error;
    json_t *object = rcvi_json_read(network, strlen(network), JSON_REJECT_DUPLICATES, &error);
    rcv_status status = RCV_OK;
    if (!json_is_object(object)) status = rcvi_fail(RCV_FORMAT, "%s: %s is not a JSON object", file, NETWORK_KEY);
    if (status == RCV_OK) status = check_keys(object, file);
    if (status == RCV_OK) status = check_layers(object, tensors, file);
    if (status == RCV_OK) status = parse_cell(context, source, file, cell);
    if (status == RCV_OK) status = make_net(context, *cell, object, file, net);
    json_decref(object);
    if (status != RCV_OK) {
        rcv_cell_free(*cell);
        *cell = NULL;
        *net = NULL;
    }
    return status;
}
