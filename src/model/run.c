/* Runs a model on named tensors. Name, type and shape of every input are checked before anything is computed.
 *
 * A state that has the same size in all layers is one tensor NAME [layers * directions, batch, size]. A state whose size differs by layer is one
 * tensor per layer and direction: NAME.l0, NAME.l0_reverse, ... [batch, size]. For each state tensor T, the inputs are T, T.restart and
 * T.final.grad; the outputs are T.final, T.grad and T.restart.grad. */
#include "model/device_copies.h"
#include "model/model.h"
#include "model/tensors.h"
#include "net/net.h"

#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 256 };

typedef struct {
    const rcv_model *model;
    rcv_context *context;
    const rcv_net *net;
    rcv_net
        *owned_net; /* for gradients of a network with dropout or zoneout: the network without randomness; else NULL */
    const rcv_tensors *in;
    const rcv_model_run_options *options;
    bool gradients;
    int64_t steps, batch;
    size_t states;
    rcv_plan *plan;
    rcv_run *run;
    void *x, *y, *dy, *dx, *dparameters;                                  /* elements of the model's dtype, as below */
    int64_t *lengths;                                                     /* [batch] */
    uint8_t *resets;                                                      /* [steps, batch] */
    void **initial, **restart, **final, **dfinal, **dinitial, **drestart; /* [states], each a state tensor or NULL */
    rcvi_device_copies copies;                                            /* of these on the device */
    void **there; /* [6, states] copies of the state tensors, in the order above */
} job;

typedef struct {
    char name[NAME_BYTES];
    int dims;
    int64_t shape[3];
    int64_t offset, count; /* elements of the state */
} state_tensor;

static int64_t blocks_of(const rcv_net *net) {
    const rcv_net_options *options = rcv_net_get_options(net);
    return (options->layers ? options->layers : 1) * (options->bidirectional ? 2 : 1);
}

static int64_t tensors_of_state(const job *work, size_t state) {
    return rcv_net_state(work->net, state)->size ? 1 : blocks_of(work->net);
}

static int64_t block_size(const job *work, size_t state, int64_t block) {
    bool both = rcv_net_get_options(work->net)->bidirectional;
    return rcv_net_state_size(work->net, state, both ? block / 2 : block, both && block % 2);
}

static state_tensor state_tensor_at(const job *work, size_t state, int64_t index) {
    const rcv_state *info = rcv_net_state(work->net, state);
    state_tensor made = {.dims = 2};
    if (info->size) {
        made.dims = 3;
        made.shape[0] = blocks_of(work->net);
        made.shape[1] = work->batch;
        made.shape[2] = info->size;
        made.count = info->total * work->batch;
        snprintf(made.name, sizeof made.name, "%s", info->name);
        return made;
    }
    for (int64_t block = 0; block < index; block++) made.offset += block_size(work, state, block) * work->batch;
    made.shape[0] = work->batch;
    made.shape[1] = block_size(work, state, index);
    made.count = made.shape[0] * made.shape[1];
    bool both = rcv_net_get_options(work->net)->bidirectional;
    snprintf(made.name, sizeof made.name, "%s.l%lld%s", info->name, (long long)(both ? index / 2 : index),
             both && index % 2 ? "_reverse" : "");
    return made;
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static const char *const plain_names[] = {"x", "lengths", "resets", "dy"};
static const char *const state_endings[] = {"", ".restart", ".final.grad"};

enum { PLAIN_NAMES = sizeof plain_names / sizeof *plain_names, ENDINGS = sizeof state_endings / sizeof *state_endings };

/* Lists the names of all possible inputs. The caller frees the names of state tensors. */
static rcv_status list_names(const job *work, char **names, size_t *count) {
    for (size_t i = 0; i < PLAIN_NAMES; i++) names[(*count)++] = (char *)plain_names[i];
    for (size_t state = 0; state < work->states; state++) {
        for (int64_t index = 0; index < tensors_of_state(work, state); index++) {
            for (size_t ending = 0; ending < ENDINGS; ending++) {
                state_tensor part = state_tensor_at(work, state, index);
                rcvi_text text;
                rcvi_text_init(&text, work->context);
                rcvi_text_add(&text, "%s%s", part.name, state_endings[ending]);
                rcv_status status = rcvi_text_take(&text, &names[*count]);
                if (status != RCV_OK) return status;
                (*count)++;
            }
        }
    }
    return RCV_OK;
}

static rcv_status check_known(const rcv_tensors *in, char **names, size_t count) {
    char shown[RCVI_ESCAPED_NAME];
    for (size_t i = 0; i < rcv_tensors_count(in); i++) {
        const char *name = rcv_tensors_at(in, i)->name;
        size_t known = 0;
        while (known < count && strcmp(names[known], name) != 0) known++;
        if (known < count) continue;
        const char *nearest = rcvi_nearest_name(name, (const char *const *)names, count);
        if (nearest)
            return rcvi_fail(RCV_INVALID, "the tensor %s is not an input of the model; did you mean %s?",
                             rcvi_escape_name(name, shown), nearest);
        return rcvi_fail(RCV_INVALID, "the tensor %s is not an input of the model", rcvi_escape_name(name, shown));
    }
    return RCV_OK;
}

static rcv_status check_names(job *work) {
    size_t room = PLAIN_NAMES, count = 0;
    for (size_t state = 0; state < work->states; state++) {
        const char *name = rcv_net_state(work->net, state)->name;
        for (size_t i = 0; i < PLAIN_NAMES; i++)
            if (strcmp(name, plain_names[i]) == 0)
                return rcvi_fail(RCV_UNSUPPORTED, "the cell has a state %s, which is also the name of another tensor",
                                 name);
        room += (size_t)tensors_of_state(work, state) * ENDINGS;
    }
    char **names = rcvi_new(work->context, room, sizeof *names);
    if (!names) return RCV_NO_MEMORY;
    rcv_status status = list_names(work, names, &count);
    if (status == RCV_OK) status = check_known(work->in, names, count);
    for (size_t i = PLAIN_NAMES; i < count; i++) rcvi_free(work->context, names[i]);
    rcvi_free(work->context, names);
    return status;
}

static bool is_float(rcv_dtype dtype) {
    return dtype == RCV_FLOAT32 || dtype == RCV_FLOAT64 || dtype == RCV_FLOAT16 || dtype == RCV_BFLOAT16;
}

static bool has_shape(const rcv_tensor *tensor, int dims, const int64_t *shape) {
    if (tensor->dims != dims) return false;
    for (int d = 0; d < dims; d++)
        if (tensor->shape[d] != shape[d]) return false;
    return true;
}

static rcv_status check_float(const rcv_tensor *tensor, const char *meaning, int dims, const int64_t *shape) {
    char shown[RCVI_ESCAPED_NAME], wanted[RCVI_SHAPE_TEXT], got[RCVI_SHAPE_TEXT];
    if (is_float(tensor->dtype) && has_shape(tensor, dims, shape)) return RCV_OK;
    return rcvi_fail(RCV_INVALID, "%s must be a float tensor %s = %s, not %s %s", rcvi_escape_name(tensor->name, shown),
                     meaning, rcvi_shape_text(dims, shape, wanted), rcv_dtype_name(tensor->dtype),
                     rcvi_shape_text(tensor->dims, tensor->shape, got));
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */

static rcv_status new_elements(const job *work, int64_t a, int64_t b, int64_t c, void **out) {
    int64_t count, bytes;
    *out = NULL;
    if (!rcvi_multiply(a, b, &count) || !rcvi_multiply(count, c, &count) ||
        !rcvi_multiply(count, (int64_t)rcv_dtype_bytes(work->model->dtype), &bytes))
        return rcvi_fail(RCV_INVALID, "a tensor of %lld x %lld x %lld elements is too large", (long long)a,
                         (long long)b, (long long)c);
    *out = rcvi_new(work->context, (size_t)bytes, 1);
    return *out ? RCV_OK : RCV_NO_MEMORY;
}

static rcv_status read_float(const job *work, const rcv_tensor *tensor, void **out) {
    int64_t elements, bytes;
    rcvi_shape_bytes(tensor->dtype, tensor->dims, tensor->shape, &elements, &bytes);
    rcv_status status = new_elements(work, elements, 1, 1, out);
    return status == RCV_OK ? rcv_tensor_convert(tensor, work->model->dtype, (size_t)elements, *out) : status;
}

static rcv_status read_x(job *work) {
    const rcv_tensor *x = rcv_tensors_find(work->in, "x");
    int64_t input = rcv_net_get_options(work->net)->input;
    if (!x) return rcvi_fail(RCV_INVALID, "there is no tensor x [steps, batch, %lld] to run", (long long)input);
    int64_t shape[3] = {x->dims > 0 ? x->shape[0] : 0, x->dims > 1 ? x->shape[1] : 0, input};
    rcv_status status = check_float(x, "[steps, batch, input]", 3, shape);
    if (status != RCV_OK) return status;
    if (shape[0] == 0 || shape[1] == 0)
        return rcvi_fail(RCV_INVALID, "x has %lld steps and a batch of %lld, at least 1 of each is needed",
                         (long long)shape[0], (long long)shape[1]);
    work->steps = shape[0];
    work->batch = shape[1];
    return read_float(work, x, &work->x);
}

static rcv_status read_lengths(job *work) {
    const rcv_tensor *lengths = rcv_tensors_find(work->in, "lengths");
    char got[RCVI_SHAPE_TEXT];
    if (!lengths) return RCV_OK;
    if (lengths->dtype != RCV_INT64 || !has_shape(lengths, 1, &work->batch))
        return rcvi_fail(RCV_INVALID, "lengths must be int64 [batch] = [%lld], not %s %s", (long long)work->batch,
                         rcv_dtype_name(lengths->dtype), rcvi_shape_text(lengths->dims, lengths->shape, got));
    work->lengths = rcvi_new(work->context, (size_t)work->batch, sizeof *work->lengths);
    if (!work->lengths) return RCV_NO_MEMORY;
    rcv_status status = rcv_tensor_convert(lengths, RCV_INT64, (size_t)work->batch, work->lengths);
    for (int64_t b = 0; b < work->batch && status == RCV_OK; b++)
        if (work->lengths[b] < 1 || work->lengths[b] > work->steps)
            status = rcvi_fail(RCV_INVALID, "lengths[%lld] is %lld, a length must be in 1..%lld, the steps of x",
                               (long long)b, (long long)work->lengths[b], (long long)work->steps);
    return status;
}

static rcv_status read_resets(job *work) {
    const rcv_tensor *resets = rcv_tensors_find(work->in, "resets");
    int64_t shape[2] = {work->steps, work->batch};
    char got[RCVI_SHAPE_TEXT], wanted[RCVI_SHAPE_TEXT];
    if (!resets) return RCV_OK;
    if ((resets->dtype != RCV_UINT8 && resets->dtype != RCV_BOOL) || !has_shape(resets, 2, shape))
        return rcvi_fail(RCV_INVALID, "resets must be uint8 or bool [steps, batch] = %s, not %s %s",
                         rcvi_shape_text(2, shape, wanted), rcv_dtype_name(resets->dtype),
                         rcvi_shape_text(resets->dims, resets->shape, got));
    work->resets = rcvi_new(work->context, resets->bytes, 1);
    return work->resets ? rcv_tensor_convert(resets, RCV_UINT8, resets->bytes, work->resets) : RCV_NO_MEMORY;
}

static rcv_status read_dy(job *work) {
    const rcv_tensor *dy = rcv_tensors_find(work->in, "dy");
    int64_t shape[3] = {work->steps, work->batch, rcv_net_output(work->net)};
    char wanted[RCVI_SHAPE_TEXT];
    if (!work->gradients) return RCV_OK;
    if (!dy)
        return rcvi_fail(RCV_INVALID, "gradients need the tensor dy [steps, batch, output] = %s",
                         rcvi_shape_text(3, shape, wanted));
    rcv_status status = check_float(dy, "[steps, batch, output]", 3, shape);
    return status == RCV_OK ? read_float(work, dy, &work->dy) : status;
}

/* Reads the tensors NAME + ending of one state: all of them, or none. */
static rcv_status read_state(const job *work, size_t state, const char *ending, void **out) {
    int64_t count = tensors_of_state(work, state), found = 0;
    char name[NAME_BYTES + 16], missing[NAME_BYTES + 16] = "";
    rcv_status status = RCV_OK;
    for (int64_t index = 0; index < count && status == RCV_OK; index++) {
        state_tensor part = state_tensor_at(work, state, index);
        snprintf(name, sizeof name, "%s%s", part.name, ending);
        const rcv_tensor *tensor = rcv_tensors_find(work->in, name);
        if (!tensor) {
            memcpy(missing, name, sizeof missing);
            continue;
        }
        status = check_float(tensor, part.dims == 3 ? "[layers * directions, batch, size]" : "[batch, size]", part.dims,
                             part.shape);
        if (status == RCV_OK && found++ == 0)
            status = new_elements(work, rcv_net_state(work->net, state)->total, work->batch, 1, out);
        if (status == RCV_OK)
            status = rcv_tensor_convert(tensor, work->model->dtype, (size_t)part.count,
                                        (char *)*out + (size_t)part.offset * rcv_dtype_bytes(work->model->dtype));
    }
    if (status == RCV_OK && found > 0 && found < count)
        return rcvi_fail(RCV_INVALID, "the tensor %s is missing, a state is given for every layer or for none",
                         missing);
    return status;
}

static rcv_status read_states(job *work) {
    rcv_status status = RCV_OK;
    for (size_t state = 0; state < work->states && status == RCV_OK; state++) {
        status = read_state(work, state, "", &work->initial[state]);
        if (status == RCV_OK) status = read_state(work, state, ".restart", &work->restart[state]);
        if (status == RCV_OK && work->gradients) status = read_state(work, state, ".final.grad", &work->dfinal[state]);
    }
    return status;
}

/* ---- computing --------------------------------------------------------------------------------------------------- */

/* Gradients are those of the `y` of inference: for a network with randomness, a copy without dropout and with the expected value of
 * zoneout. */
static rcv_status choose_net(job *work) {
    rcv_net_options options = *rcv_net_get_options(work->model->net);
    work->net = work->model->net;
    if (!work->gradients || !rcvi_net_is_random(work->net)) return RCV_OK;
    options.dropout = 0;
    options.expected_zoneout = true;
    RCVI_TRY(rcv_net_new(rcv_net_cell(work->net), &options, &work->owned_net));
    work->net = work->owned_net;
    return RCV_OK;
}

static rcv_status make_state_lists(job *work) {
    void ***lists[] = {&work->initial, &work->restart, &work->final, &work->dfinal, &work->dinitial, &work->drestart};
    work->states = rcv_net_state_count(work->net);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        *lists[i] = rcvi_new(work->context, work->states, sizeof **lists[i]);
        if (!*lists[i]) return RCV_NO_MEMORY;
    }
    work->there = rcvi_new(work->context, sizeof lists / sizeof *lists * work->states, sizeof *work->there);
    return work->there ? RCV_OK : RCV_NO_MEMORY;
}

static rcv_status make_outputs(job *work) {
    int64_t output = rcv_net_output(work->net);
    rcv_status status = new_elements(work, work->steps, work->batch, output, &work->y);
    if (status == RCV_OK && work->gradients) {
        status = new_elements(work, work->steps, work->batch, rcv_net_get_options(work->net)->input, &work->dx);
        if (status == RCV_OK)
            status = new_elements(work, rcv_net_parameter_elements(work->net), 1, 1, &work->dparameters);
    }
    for (size_t state = 0; state < work->states && status == RCV_OK; state++) {
        int64_t total = rcv_net_state(work->net, state)->total;
        status = new_elements(work, total, work->batch, 1, &work->final[state]);
        if (status == RCV_OK && work->gradients)
            status = new_elements(work, total, work->batch, 1, &work->dinitial[state]);
        if (status == RCV_OK && work->gradients && work->restart[state])
            status = new_elements(work, total, work->batch, 1, &work->drestart[state]);
    }
    return status;
}

static size_t bytes_of(const job *work, int64_t elements) {
    return (size_t)elements * rcv_dtype_bytes(work->model->dtype);
}

/* The tensors of every state on the device, list `index` of `there`. */
static rcv_status place_states(job *work, int index, void **host, bool is_result, void ***there) {
    *there = work->there + (size_t)index * work->states;
    for (size_t state = 0; state < work->states; state++) {
        size_t bytes = bytes_of(work, rcv_net_state(work->net, state)->total * work->batch);
        void **to = &(*there)[state];
        const void *input = NULL;
        if (is_result) {
            RCVI_TRY(rcvi_device_copies_result(&work->copies, host[state], bytes, to));
        } else {
            RCVI_TRY(rcvi_device_copies_send(&work->copies, host[state], bytes, &input));
            memcpy(to, &input, sizeof input);
        }
    }
    return RCV_OK;
}

static rcv_status run_forward(job *work) {
    const rcv_net *net = work->net;
    int64_t rows = work->steps * work->batch;
    void **initial, **restart, **final, *y;
    const void *parameters, *x, *resets;
    RCVI_TRY(rcvi_device_copies_send(&work->copies, work->model->parameters,
                                     bytes_of(work, rcv_net_parameter_elements(net)), &parameters));
    RCVI_TRY(
        rcvi_device_copies_send(&work->copies, work->x, bytes_of(work, rows * rcv_net_get_options(net)->input), &x));
    RCVI_TRY(rcvi_device_copies_send(&work->copies, work->resets, (size_t)rows, &resets));
    RCVI_TRY(place_states(work, 0, work->initial, false, &initial));
    RCVI_TRY(place_states(work, 1, work->restart, false, &restart));
    RCVI_TRY(place_states(work, 2, work->final, true, &final));
    RCVI_TRY(rcvi_device_copies_result(&work->copies, work->y, bytes_of(work, rows * rcv_net_output(net)), &y));
    const rcv_forward forward =
        RCV_INIT(rcv_forward, .parameters = parameters, .x = x, .lengths = work->lengths, .resets = resets,
                 .initial = (const void *const *)initial, .restart = work->resets ? (const void *const *)restart : NULL,
                 .y = y, .final = final);
    return rcv_run_forward(work->run, &forward);
}

static rcv_status run_backward(job *work) {
    const rcv_net *net = work->net;
    int64_t rows = work->steps * work->batch;
    void **dfinal, **dinitial, **drestart, *dx, *dparameters;
    const void *dy;
    RCVI_TRY(rcvi_device_copies_send(&work->copies, work->dy, bytes_of(work, rows * rcv_net_output(net)), &dy));
    RCVI_TRY(place_states(work, 3, work->dfinal, false, &dfinal));
    RCVI_TRY(place_states(work, 4, work->dinitial, true, &dinitial));
    RCVI_TRY(place_states(work, 5, work->drestart, true, &drestart));
    RCVI_TRY(rcvi_device_copies_result(&work->copies, work->dx, bytes_of(work, rows * rcv_net_get_options(net)->input),
                                       &dx));
    RCVI_TRY(rcvi_device_copies_result(&work->copies, work->dparameters,
                                       bytes_of(work, rcv_net_parameter_elements(net)), &dparameters));
    const rcv_backward backward =
        RCV_INIT(rcv_backward, .dy = dy, .dfinal = (const void *const *)dfinal, .dx = dx, .dinitial = dinitial,
                 .drestart = work->resets ? drestart : NULL, .dparameters = dparameters);
    return rcv_run_backward(work->run, &backward);
}

static rcv_status compute(job *work) {
    rcv_plan_options options =
        RCV_INIT(rcv_plan_options,
                 .effort = RCV_ESTIMATE, /* not measured: the plan, and so every bit of the result, is reproducible */
                 .steps = work->steps, .batch = work->batch, .dtype = work->model->dtype, .training = work->gradients,
                 .lengths = work->lengths != NULL, .resets = work->resets != NULL, .device = work->options->device,
                 .threads = work->options->threads);
    RCVI_TRY(rcv_plan_new(work->net, &options, &work->plan));
    RCVI_TRY(rcv_run_new(work->plan, &work->run));
    RCVI_TRY(make_outputs(work));
    RCVI_TRY(run_forward(work));
    if (work->gradients) RCVI_TRY(run_backward(work));
    RCVI_TRY(rcv_run_wait(work->run));
    return rcvi_device_copies_fetch(&work->copies);
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static rcv_status add_tensor(const job *work, rcv_tensors *out, const char *name, const char *ending, int dims,
                             const int64_t *shape, const void *data) {
    rcvi_text text;
    char *full;
    rcvi_text_init(&text, work->context);
    rcvi_text_add(&text, "%s%s", name, ending);
    rcv_status status = rcvi_text_take(&text, &full);
    if (status != RCV_OK) return status;
    rcv_tensor tensor = {.name = full, .dtype = work->model->dtype, .dims = dims, .data = data};
    int64_t elements, bytes;
    memcpy(tensor.shape, shape, (size_t)dims * sizeof *shape);
    rcvi_shape_bytes(tensor.dtype, dims, shape, &elements, &bytes);
    tensor.bytes = (size_t)bytes;
    status = rcv_tensors_add(out, &tensor);
    rcvi_free(work->context, full);
    return status;
}

static rcv_status add_state(const job *work, rcv_tensors *out, size_t state, const char *ending, const void *data) {
    rcv_status status = RCV_OK;
    for (int64_t index = 0; data && index < tensors_of_state(work, state) && status == RCV_OK; index++) {
        state_tensor part = state_tensor_at(work, state, index);
        status = add_tensor(work, out, part.name, ending, part.dims, part.shape,
                            (const char *)data + (size_t)part.offset * rcv_dtype_bytes(work->model->dtype));
    }
    return status;
}

static rcv_status add_gradients(const job *work, rcv_tensors *out) {
    const char *values = work->dparameters;
    int64_t shape[3] = {work->steps, work->batch, rcv_net_get_options(work->net)->input};
    rcv_status status = add_tensor(work, out, "dx", "", 3, shape, work->dx);
    for (size_t state = 0; state < work->states && status == RCV_OK; state++) {
        status = add_state(work, out, state, ".grad", work->dinitial[state]);
        if (status == RCV_OK) status = add_state(work, out, state, ".restart.grad", work->drestart[state]);
    }
    for (size_t i = 0; i < rcv_net_parameter_count(work->net) && status == RCV_OK; i++) {
        const rcv_parameter *parameter = rcv_net_parameter(work->net, i);
        status = add_tensor(work, out, "grad.", parameter->name, parameter->dims, parameter->shape,
                            values + (size_t)parameter->offset * rcv_dtype_bytes(work->model->dtype));
    }
    return status;
}

static rcv_status add_outputs(const job *work, rcv_tensors *out) {
    int64_t shape[3] = {work->steps, work->batch, rcv_net_output(work->net)};
    rcv_status status = add_tensor(work, out, "y", "", 3, shape, work->y);
    for (size_t state = 0; state < work->states && status == RCV_OK; state++)
        status = add_state(work, out, state, ".final", work->final[state]);
    return status == RCV_OK && work->gradients ? add_gradients(work, out) : status;
}

static void free_job(job *work) {
    void **lists[] = {work->initial, work->restart, work->final, work->dfinal, work->dinitial, work->drestart};
    void *blocks[] = {work->x, work->y, work->dy, work->dx, work->dparameters, work->lengths, work->resets};
    rcv_run_free(work->run);
    rcv_plan_free(work->plan);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        for (size_t state = 0; lists[i] && state < work->states; state++) rcvi_free(work->context, lists[i][state]);
        rcvi_free(work->context, lists[i]);
    }
    for (size_t i = 0; i < sizeof blocks / sizeof *blocks; i++) rcvi_free(work->context, blocks[i]);
    rcvi_device_copies_close(&work->copies);
    rcvi_free(work->context, work->there);
    rcv_net_free(work->owned_net);
}

static rcv_status run_job(job *work) {
    static rcv_status (*const parts[])(job *) = {choose_net,  make_state_lists, check_names, read_x, read_lengths,
                                                 read_resets, read_dy,          read_states, compute};
    rcv_status status = RCV_OK;
    for (size_t i = 0; i < sizeof parts / sizeof *parts && status == RCV_OK; i++) status = parts[i](work);
    return status;
}

rcv_status rcv_model_run(const rcv_model *model, const rcv_tensors *in, const rcv_model_run_options *options,
                         rcv_tensors **out) {
    RCVI_NEED(out, "out");
    *out = NULL;
    RCVI_NEED(model, "model");
    RCVI_NEED(in, "in");
    RCVI_READ(rcv_model_run_options, options, "options");
    job work = {
        .model = model, .context = model->context, .in = in, .options = options, .gradients = options->gradients};
    rcv_tensors *made = NULL;
    RCVI_TRY(rcvi_device_copies_open(work.context, options->device, &work.copies));
    rcv_status status = run_job(&work);
    if (status == RCV_OK) status = rcv_tensors_new(work.context, &made);
    if (status == RCV_OK) status = add_outputs(&work, made);
    free_job(&work);
    if (status != RCV_OK) {
        rcv_tensors_free(made);
        return status;
    }
    *out = made;
    return RCV_OK;
}
