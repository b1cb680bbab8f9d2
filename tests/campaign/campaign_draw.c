#include "campaign.h"
#include "generator.h"

static int below(campaign_case *k, int bound) { return random_below(&k->source, bound); }
static bool chance(campaign_case *k, int percent) { return below(k, 100) < percent; }
static bool is_gpu(const campaign_case *k) { return strcmp(k->device, "cpu") != 0; }

/* Mostly small; often next to the width of a vector, a panel or a tile. */
static int64_t draw_size(campaign_case *k, int most) {
    static const int widths[] = {4, 8, 16, 24, 32, 48, 64, 128, 256, 512};
    int kind = below(k, 10),
        beside = below(k, 3) - 1; /* a draw a statement: compilers take those of one in any order */
    int64_t size = kind < 4   ? 1 + below(k, 9)
                   : kind < 7 ? widths[below(k, 10)] + beside
                   : kind < 9 ? 1 + below(k, 40)
                              : 1 + below(k, most);
    return size > most ? 1 + size % most : size;
}

static bool parses(const char *text) {
    rcv_context *context = NULL;
    rcv_cell *cell = NULL;
    check_ok(rcv_context_new(NULL, &context));
    bool good = rcv_cell_parse(context, text, strlen(text), "random.cell", &cell) == RCV_OK;
    rcv_cell_free(cell);
    rcv_context_free(context);
    return good;
}

/* A wide cell may name one matrix with two shapes: then another one. */
static char *draw_text(campaign_case *k) {
    char *text = generate_wide_cell(&k->source);
    while (!parses(text)) {
        free(text);
        text = generate_wide_cell(&k->source);
    }
    return text;
}

static void draw_cell(campaign_case *k, bool large) {
    static const char *const dense[] = {"rnn_tanh", "lstm", "gru", "rnn_relu"};
    if (large && below(k, 3)) { /* matrices that a GPU keeps on the chip */
        snprintf(k->name, sizeof k->name, "%s", dense[below(k, 4)]);
    } else if (!large && below(k, 2)) {
        snprintf(k->name, sizeof k->name, "random-%llu-%lld.cell", (unsigned long long)k->seed, (long long)k->number);
        k->text = draw_text(k);
    } else {
        snprintf(k->name, sizeof k->name, "%s", rcv_builtin_name((size_t)below(k, (int)rcv_builtin_count())));
    }
    k->c.cell = k->name;
}

static void draw_shape(campaign_case *k) {
    rcv_net_options *net = &k->c.net;
    net->input = draw_size(k, is_gpu(k) ? 300 : 150);
    net->hidden = draw_size(k, is_gpu(k) ? 300 : 150);
    net->layers = 1 + below(k, below(k, 2) ? 4 : 2);
    k->c.steps = 1 + below(k, below(k, 3) ? 12 : is_gpu(k) ? 70 : 40);
    k->c.batch = chance(k, 20) ? 1 : draw_size(k, 130);
}

/* As users' networks are on a GPU: tiles in plenty, and, the large ones, layers that a processor does not hold. */
static void draw_full_shape(campaign_case *k, bool large) {
    rcv_net_options *net = &k->c.net;
    net->input = !large ? 8 + below(k, 57) : chance(k, 50) ? 32 + below(k, 969) : 1000;
    net->hidden = !large ? 33 + below(k, 128) : chance(k, 50) ? 64 + below(k, 637) : 650;
    net->layers = 1 + below(k, 4);
    k->c.steps = chance(k, 50) ? 61 : 20 + below(k, 50);
    k->c.batch = chance(k, 50) ? 37 : 8 + below(k, 122);
}

/* Sizes that the cell declares: heads must divide hidden. */
static void draw_sizes(campaign_case *k, const char *source) {
    rcv_net_options *net = &k->c.net;
    net->sizes = k->sizes;
    if (strstr(source, "size proj")) k->sizes[net->size_count++] = (rcv_size){"proj", draw_size(k, 64)};
    if (!strstr(source, "size heads")) return;
    int64_t heads = 1 + below(k, 4);
    if (net->hidden % heads) net->hidden += heads - net->hidden % heads;
    k->sizes[net->size_count++] = (rcv_size){"heads", heads};
}

static void draw_options(campaign_case *k) {
    rcv_net_options *net = &k->c.net;
    net->bidirectional = chance(k, 20);
    net->reverse = !net->bidirectional && chance(k, 20);
    net->no_bias = chance(k, 10);
    if (chance(k, 15)) net->dropout = chance(k, 10) ? 1 : 0.1 + 0.1 * below(k, 5);
    net->variational = net->dropout > 0 && chance(k, 50);
    if (chance(k, 12)) net->zoneout = 0.1 + 0.1 * below(k, 5);
    if (chance(k, 12)) net->rank = 1 + below(k, (int)net->hidden < 12 ? (int)net->hidden : 12);
    k->c.lengths = chance(k, 40);
    k->c.resets = chance(k, 25);
    k->c.initial = chance(k, 75);
    k->restart = k->c.resets && chance(k, 50);
    k->training = chance(k, 70);
    k->threads = 1 + below(k, 3);
    k->measured = chance(k, is_gpu(k) ? 25 : 4);
    if (!chance(k, 30)) return;
    k->left_out.dfinal = chance(k, 40);
    k->left_out.dx = chance(k, 40);
    k->left_out.dinitial = chance(k, 40);
    k->left_out.dparameters = chance(k, 15);
    k->left_out.final = chance(k, 40);
    k->left_out.dy = !k->left_out.dfinal && chance(k, 20);
    k->left_out.accumulate = !k->left_out.dparameters && chance(k, 40);
}

static void draw_dtype(campaign_case *k) {
    static const rcv_dtype cpu[] = {RCV_FLOAT64, RCV_FLOAT64, RCV_FLOAT32, RCV_BFLOAT16};
    static const rcv_dtype gpu[] = {RCV_BFLOAT16, RCV_BFLOAT16, RCV_FLOAT16, RCV_FLOAT32,
                                    RCV_FLOAT32,  RCV_FLOAT64,  RCV_FLOAT64, RCV_TFLOAT32};
    k->dtype = is_gpu(k) ? gpu[below(k, 8)] : cpu[below(k, 4)];
}

/* Multiply-adds that the oracle may take forwards; steps and sequences become fewer until it is so. */
static void limit_work(campaign_case *k, double most) {
    rcv_context *context = NULL;
    rcv_cell *cell = NULL;
    rcv_net *net = NULL;
    check_ok(rcv_context_new(NULL, &context));
    if (k->text)
        check_ok(rcv_cell_parse(context, k->text, strlen(k->text), k->name, &cell));
    else
        check_ok(rcv_cell_open(context, k->name, &cell));
    draw_sizes(k, rcv_cell_source(cell));
    k->c.net.size = sizeof k->c.net;
    check_ok(rcv_net_new(cell, &k->c.net, &net));
    double elements = (double)rcv_net_parameter_elements(net);
    while (elements * (double)k->c.steps * (double)k->c.batch > most && k->c.steps * k->c.batch > 1) {
        int64_t *larger = k->c.steps >= k->c.batch ? &k->c.steps : &k->c.batch;
        *larger = (*larger + 1) / 2;
    }
    rcv_net_free(net);
    rcv_cell_free(cell);
    rcv_context_free(context);
}

/* Of one plan in two, arrays in types of their own, or batch-major. */
static void draw_arrays(campaign_case *k) {
    if (chance(k, 50)) return;
    k->data_type = (rcv_array_type)below(k, RCV_AS_BFLOAT16 + 1);
    k->state_type = (rcv_array_type)below(k, RCV_AS_BFLOAT16 + 1);
    k->batch_major = chance(k, 50);
    /* The call in between takes the beginning of the arrays, which is other data than the oracle's; nothing may be added to its gradients. */
    if (k->batch_major && k->left_out.accumulate) k->between_steps = k->between_batch = 0;
}

/* The plan's own type where it has one of 16 bits, half of the time. */
static rcv_array_type draw_type_of_parameters(campaign_case *k) {
    bool own = (k->dtype == RCV_BFLOAT16 || k->dtype == RCV_FLOAT16) && chance(k, 50);
    rcv_array_type other = (rcv_array_type)below(k, RCV_AS_BFLOAT16 + 1);
    return own ? (rcv_array_type)(1 + k->dtype) : other;
}

/* Plans for more steps and sequences than calls have, or for as many; a call with fewer in between. */
static void draw_call_sizes(campaign_case *k) {
    const config *c = &k->c;
    int more_steps = below(k, 3), more_batch = below(k, 3); /* a draw a statement */
    k->most_steps = c->steps + (more_steps ? below(k, more_steps > 1 ? 20 : 3) : 0);
    k->most_batch = c->batch + (more_batch ? below(k, more_batch > 1 ? 40 : 3) : 0);
    if (!chance(k, 70)) return;
    k->between_steps = 1 + below(k, (int)c->steps);
    k->between_batch = 1 + below(k, (int)c->batch);
}

void draw_case(campaign_case *k, const char *device, uint64_t seed, int64_t number) {
    *k = (campaign_case){.device = device, .seed = seed, .number = number};
    random_source of_seed = {seed};
    k->source.state = random_bits(&of_seed) + (uint64_t)number * 0x9e3779b97f4a7c15u;
    random_bits(&k->source);
    int percent = below(k, 100);
    bool large = is_gpu(k) && percent < 10, full = is_gpu(k) && percent < 22;
    draw_cell(k, large);
    if (full)
        draw_full_shape(k, large);
    else
        draw_shape(k);
    draw_options(k);
    draw_dtype(k);
    if (full && chance(k, 70)) { /* what most are used for */
        k->training = true;
        k->dtype = RCV_BFLOAT16;
        k->c.lengths = chance(k, 70);
    }
    if (is_gpu(k))
        limit_work(k, percent < 6 ? 8.5e9 : large ? 1.5e9 : full ? 4e8 : percent < 40 ? 5e7 : 1e7);
    else
        limit_work(k, percent < 2 ? 5e7 : percent < 15 ? 5e6 : 4e5);
    draw_call_sizes(k);
    draw_arrays(k);
    k->separate = chance(k, 35);
    if (k->separate && chance(k, 40)) k->left_out.tensors = random_bits(&k->source) & random_bits(&k->source);
    if (chance(k, 40)) k->parameter_type = draw_type_of_parameters(k);
    k->device_lengths = k->c.lengths && chance(k, 50);
    if (chance(k, 40)) k->gradient_type = (rcv_array_type)below(k, RCV_AS_BFLOAT16 + 1);
}

void drop_case(campaign_case *k) { free(k->text); }

void describe_case(const campaign_case *k, char *text, size_t room) {
    const config *c = &k->c;
    const omission *o = &k->left_out;
    int length =
        snprintf(text, room, "%s, T %lld of %lld, B %lld of %lld, input %lld, hidden %lld, %lld layers", k->name,
                 (long long)c->steps, (long long)k->most_steps, (long long)c->batch, (long long)k->most_batch,
                 (long long)c->net.input, (long long)c->net.hidden, (long long)c->net.layers);
    for (size_t i = 0; i < c->net.size_count; i++)
        length +=
            snprintf(text + length, room - (size_t)length, ", %s %lld", k->sizes[i].name, (long long)k->sizes[i].value);
    if (c->net.rank) length += snprintf(text + length, room - (size_t)length, ", rank %lld", (long long)c->net.rank);
    if (c->net.dropout > 0) length += snprintf(text + length, room - (size_t)length, ", dropout %g", c->net.dropout);
    static const char *const arrays[] = {"data", "states", "parameters", "gradients"};
    const rcv_array_type types[] = {k->data_type, k->state_type, k->parameter_type, k->gradient_type};
    for (int i = 0; i < 4; i++) {
        if (types[i])
            length += snprintf(text + length, room - (size_t)length, ", %s in %s", arrays[i],
                               rcv_dtype_name((rcv_dtype)(types[i] - 1)));
    }
    if (k->batch_major) length += snprintf(text + length, room - (size_t)length, ", batch-major");
    if (c->net.zoneout > 0) length += snprintf(text + length, room - (size_t)length, ", zoneout %g", c->net.zoneout);
    snprintf(text + length, room - (size_t)length, ", %s, %s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s%s",
             rcv_dtype_name(k->dtype), k->training ? "training" : "inference",
             c->net.bidirectional ? ", bidirectional" : "", c->net.reverse ? ", reverse" : "",
             c->net.no_bias ? ", no bias" : "", c->net.variational ? ", variational" : "",
             c->lengths ? ", lengths" : "", k->device_lengths ? " on the device" : "", c->resets ? ", resets" : "",
             c->initial ? ", initial states" : "", k->restart ? ", restart states" : "", o->dy ? ", no dy" : "",
             o->dfinal ? ", no dfinal" : "", o->dx ? ", no dx" : "", o->dinitial ? ", no dinitial" : "",
             o->dparameters ? ", no dparameters" : "", o->final ? ", no final" : "",
             o->accumulate ? ", accumulate" : "", k->threads > 1 ? ", threads" : "",
             k->separate ? ", separate parameters" : "", o->tensors ? ", not all dtensors" : "");
}
