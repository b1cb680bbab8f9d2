/* Builds a network of oneDNN's recurrent primitives.
 *
 * A block of layers is one primitive: all layers where the first one's input is as wide as the others', else the first layer and the
 * rest; one layer each with two directions. A port is a tensor of a primitive: the caller's array itself where the primitive reads it
 * as it is (plain float32), else memory of our own with a reorder between the two. Ports between blocks have no array of the caller.
 *
 * All memory that oneDNN needs, its scratchpad included, is one allocation; a pass allocates nothing. */
#define _GNU_SOURCE /* RTLD_DEFAULT */
#include "device/cpu/onednn/onednn.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

#define TEXT(number) #number
#define VERSION(major, minor, patch) TEXT(major) "." TEXT(minor) "." TEXT(patch)

const char *rcvi_vendor_name(void) {
    return "oneDNN " VERSION(DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, DNNL_VERSION_PATCH);
}

static const struct {
    const char *name;
    int64_t gates, bias_gates;
} cells[] = {[RCVI_ONEDNN_LSTM] = {"lstm", 4, 4},
             [RCVI_ONEDNN_GRU] = {"gru", 3, 4},
             [RCVI_ONEDNN_TANH] = {"rnn_tanh", 1, 1},
             [RCVI_ONEDNN_RELU] = {"rnn_relu", 1, 1}};

static rcv_status check_status(dnnl_status_t status, const char *what) {
    if (status == dnnl_success) return RCV_OK;
    if (status == dnnl_out_of_memory) return rcvi_fail(RCV_NO_MEMORY, "oneDNN has no memory for %s", what);
    return rcvi_fail(RCV_UNSUPPORTED, "oneDNN refused a %s with status %d", what, (int)status);
}

static rcv_status check_pass_status(const rcvi_vendor *vendor, dnnl_status_t status, const char *what) {
    if (status != dnnl_unimplemented) return check_status(status, what);
    return rcvi_fail(RCV_UNSUPPORTED, "%s has no %s of %s in %s for this CPU", rcvi_vendor_name(), what,
                     cells[vendor->kind.cell].name, rcv_dtype_name(vendor->program->options.dtype));
}

/* ---- memory ---- */

static size_t reserve(rcvi_vendor *vendor, size_t bytes) {
    size_t offset = vendor->bytes;
    vendor->bytes += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return offset;
}

static rcv_status add_memory(rcvi_vendor *vendor, rcvi_onednn_desc desc, bool own, size_t offset, dnnl_memory_t *out) {
    if (!rcvi_grow(vendor->context, &vendor->memories, &vendor->memory_capacity, vendor->memory_count + 1,
                   sizeof *vendor->memories)) {
        return RCV_NO_MEMORY;
    }
    RCVI_TRY(check_status(dnnl_memory_create(out, desc, vendor->kind.engine, DNNL_MEMORY_NONE), "tensor"));
    vendor->memories[vendor->memory_count++] = (rcvi_onednn_memory){*out, own, offset};
    return RCV_OK;
}

static rcv_status add_own_memory(rcvi_vendor *vendor, rcvi_onednn_desc desc, rcvi_onednn_port *out) {
    out->bytes = dnnl_memory_desc_get_size(desc);
    return add_memory(vendor, desc, true, reserve(vendor, out->bytes), &out->inside);
}

static rcv_status allocate(rcvi_vendor *vendor) {
    vendor->allocation = rcvi_new(vendor->context, vendor->bytes + ALIGNMENT, 1);
    if (!vendor->allocation) return RCV_NO_MEMORY;
    uintptr_t start = (uintptr_t)vendor->allocation;
    vendor->base = (unsigned char *)vendor->allocation + (ALIGNMENT - start % ALIGNMENT) % ALIGNMENT;
    for (size_t i = 0; i < vendor->memory_count; i++) {
        const rcvi_onednn_memory *m = &vendor->memories[i];
        if (m->own) RCVI_TRY(check_status(dnnl_memory_set_data_handle(m->memory, vendor->base + m->offset), "tensor"));
    }
    return RCV_OK;
}

/* ---- ports ---- */

static bool is_gradient(int p) { return p >= RCVI_PORT_GRADIENT && p < RCVI_PORT_COUNT; }

/* The tensor (0 to 8) of a port, or the tensor whose gradient it is. */
static int tensor_of(int p) {
    return p >= RCVI_PORT_BACKWARD_WEIGHTS ? p - RCVI_PORT_BACKWARD_WEIGHTS + RCVI_PORT_W : p % RCVI_PORT_GRADIENT;
}

static bool is_written(int p) { return is_gradient(p) != (tensor_of(p) >= RCVI_PORT_Y); }

static bool is_used(const rcvi_vendor *vendor, int p) {
    int tensor = tensor_of(p);
    if (p >= RCVI_PORT_GRADIENT && !vendor->training) return false;
    return vendor->kind.cell == RCVI_ONEDNN_LSTM || (tensor != RCVI_PORT_C0 && tensor != RCVI_PORT_C1);
}

static int argument_of(int p) {
    static const int arguments[RCVI_PORT_COUNT] = {
        DNNL_ARG_SRC_LAYER,          DNNL_ARG_SRC_ITER,          DNNL_ARG_SRC_ITER_C,
        DNNL_ARG_WEIGHTS_LAYER,      DNNL_ARG_WEIGHTS_ITER,      DNNL_ARG_BIAS,
        DNNL_ARG_DST_LAYER,          DNNL_ARG_DST_ITER,          DNNL_ARG_DST_ITER_C,
        DNNL_ARG_DIFF_SRC_LAYER,     DNNL_ARG_DIFF_SRC_ITER,     DNNL_ARG_DIFF_SRC_ITER_C,
        DNNL_ARG_DIFF_WEIGHTS_LAYER, DNNL_ARG_DIFF_WEIGHTS_ITER, DNNL_ARG_DIFF_BIAS,
        DNNL_ARG_DIFF_DST_LAYER,     DNNL_ARG_DIFF_DST_ITER,     DNNL_ARG_DIFF_DST_ITER_C,
    };
    return arguments[is_gradient(p) ? p : tensor_of(p)];
}

/* Creates the descriptor of a port: plain float32 as the caller's array, or as the primitive is asked to read it. */
static rcv_status create_desc(const rcvi_vendor *vendor, const rcvi_onednn_block *b, int p, bool plain,
                              dnnl_memory_desc_t *desc) {
    int64_t steps = vendor->steps, batch = vendor->batch, hidden = vendor->hidden, directions = vendor->directions;
    int tensor = tensor_of(p), dims = 4;
    int64_t shape[5] = {b->layers, directions, batch, hidden, 0};
    dnnl_format_tag_t tag = dnnl_ldnc;
    bool single = plain || is_gradient(p) || vendor->program->options.dtype == RCV_FLOAT32;
    if (tensor == RCVI_PORT_X || tensor == RCVI_PORT_Y) {
        int64_t features = tensor == RCVI_PORT_X ? b->input : directions * hidden;
        memcpy(shape, (int64_t[]){steps, batch, features}, 3 * sizeof *shape);
        dims = 3, tag = dnnl_tnc;
    } else if (tensor == RCVI_PORT_W || tensor == RCVI_PORT_U) {
        shape[2] = tensor == RCVI_PORT_W ? b->input : hidden;
        shape[3] = vendor->gates, shape[4] = hidden;
        dims = 5, tag = plain ? dnnl_ldgoi : dnnl_format_tag_any;
    } else if (tensor == RCVI_PORT_BIAS) {
        shape[2] = vendor->bias_gates;
        tag = dnnl_ldgo, single = true;
    } else if (tensor == RCVI_PORT_C0 || tensor == RCVI_PORT_C1) {
        single = true;
    }
    return check_status(rcvi_onednn_create_desc(desc, dims, shape, single ? dnnl_f32 : dnnl_bf16, tag), "tensor");
}

/* True if a port needs memory of its own although the layout of the caller's array would do: the backward pass reads what the
 * caller need not keep; gradients of weights are accumulated; an optional output must be written in any case. */
static bool needs_own_memory(const rcvi_vendor *vendor, const rcvi_onednn_block *b, int p) {
    switch (tensor_of(p)) {
    case RCVI_PORT_X: return false;
    case RCVI_PORT_Y: return !is_gradient(p) && vendor->training;
    case RCVI_PORT_W:
    case RCVI_PORT_U: return is_gradient(p) || !rcvi_onednn_weights_in_place(vendor, b);
    default: return is_written(p);
    }
}

static rcv_status add_reorder(rcvi_vendor *vendor, rcvi_onednn_desc from, rcvi_onednn_desc to, dnnl_primitive_t *out) {
    if (!rcvi_grow(vendor->context, (void *)&vendor->reorders, &vendor->reorder_capacity, vendor->reorder_count + 1,
                   sizeof *vendor->reorders)) {
        return RCV_NO_MEMORY;
    }
    dnnl_primitive_desc_t *desc = &vendor->reorder_desc;
    dnnl_engine_t engine = vendor->kind.engine;
    RCVI_TRY(check_status(dnnl_reorder_primitive_desc_create(desc, from, engine, to, engine, NULL), "reorder"));
    dnnl_status_t status = dnnl_primitive_create(out, *desc);
    dnnl_primitive_desc_destroy(*desc);
    *desc = NULL;
    RCVI_TRY(check_status(status, "reorder"));
    vendor->reorders[vendor->reorder_count++] = *out;
    return RCV_OK;
}

/* Creates a port to an array of the caller; `inside` is the layout that the primitive reads. */
static rcv_status create_port(rcvi_vendor *vendor, const rcvi_onednn_block *b, int p, rcvi_onednn_desc inside,
                              rcvi_onednn_port *out) {
    dnnl_memory_desc_t *owned = &vendor->plain_desc;
    memset(owned, 0, sizeof *owned);
    RCVI_TRY(create_desc(vendor, b, p, true, owned));
    rcvi_onednn_desc plain = rcvi_onednn_desc_of(owned);
    rcv_status status = add_memory(vendor, plain, false, 0, &out->outside);
    out->inside = out->outside;
    if (!status && (needs_own_memory(vendor, b, p) || !dnnl_memory_desc_equal(plain, inside))) {
        status = add_own_memory(vendor, inside, out);
        if (!status) {
            status = is_written(p) ? add_reorder(vendor, inside, plain, &out->reorder)
                                   : add_reorder(vendor, plain, inside, &out->reorder);
        }
    }
    rcvi_onednn_free_desc(owned);
    return status;
}

static rcv_status add_port(rcvi_vendor *vendor, size_t index, int p) {
    rcvi_onednn_block *b = &vendor->blocks[index];
    bool backward = p >= RCVI_PORT_GRADIENT, first = index == 0, last = index + 1 == vendor->block_count;
    rcvi_onednn_desc inside =
        dnnl_primitive_desc_query_md(b->passes[backward].desc, dnnl_query_exec_arg_md, argument_of(p));
    int tensor = tensor_of(p);
    if (tensor == RCVI_PORT_BIAS || (tensor == RCVI_PORT_X && is_gradient(p) && !first) ||
        (tensor == RCVI_PORT_Y && !is_gradient(p) && !last)) {
        return add_own_memory(vendor, inside, &b->ports[p]);
    }
    if (tensor == RCVI_PORT_X && !first) {
        b->ports[p].inside = vendor->blocks[index - 1].ports[RCVI_PORT_Y].inside;
        return RCV_OK;
    }
    if (tensor == RCVI_PORT_Y && is_gradient(p) && !last)
        return RCV_OK; /* it is the next block's dx: see set_arguments */
    return create_port(vendor, b, p, inside, &b->ports[p]);
}

/* ---- blocks ---- */

static void add_argument(rcvi_onednn_pass *s, int argument, dnnl_memory_t memory) {
    s->arguments[s->argument_count++] = (dnnl_exec_arg_t){argument, memory};
}

/* Sets the arguments of both passes, after all ports were created. */
static void set_arguments(rcvi_vendor *vendor, size_t index) {
    rcvi_onednn_block *b = &vendor->blocks[index];
    const int dy = RCVI_PORT_GRADIENT + RCVI_PORT_Y, dx = RCVI_PORT_GRADIENT + RCVI_PORT_X;
    if (vendor->training && index + 1 < vendor->block_count)
        b->ports[dy].inside = vendor->blocks[index + 1].ports[dx].inside;
    for (int p = 0; p < RCVI_PORT_TOTAL; p++) {
        if (!is_used(vendor, p)) continue;
        bool weights = p == RCVI_PORT_W || p == RCVI_PORT_U;
        if (p < RCVI_PORT_GRADIENT) add_argument(&b->passes[0], argument_of(p), b->ports[p].inside);
        if (vendor->training && !weights) add_argument(&b->passes[1], argument_of(p), b->ports[p].inside);
    }
}

static size_t size_of(const rcvi_onednn_pass *s, dnnl_query_t what) {
    rcvi_onednn_desc desc = dnnl_primitive_desc_query_md(s->desc, what, 0);
    return desc ? dnnl_memory_desc_get_size(desc) : 0;
}

/* Adds the workspace that both passes share, and the scratchpad that all primitives share. */
static rcv_status add_workspace(rcvi_vendor *vendor, rcvi_onednn_block *b) {
    rcvi_onednn_port workspace = {0};
    if (vendor->training && size_of(&b->passes[0], dnnl_query_workspace_md)) {
        RCVI_TRY(add_own_memory(vendor, dnnl_primitive_desc_query_md(b->passes[0].desc, dnnl_query_workspace_md, 0),
                                &workspace));
    }
    for (int i = 0; i < (vendor->training ? 2 : 1); i++) {
        if (workspace.inside) add_argument(&b->passes[i], DNNL_ARG_WORKSPACE, workspace.inside);
        if (!size_of(&b->passes[i], dnnl_query_scratchpad_md)) continue;
        dnnl_memory_t scratch = NULL;
        RCVI_TRY(add_memory(vendor, dnnl_primitive_desc_query_md(b->passes[i].desc, dnnl_query_scratchpad_md, 0), true,
                            vendor->scratch, &scratch));
        add_argument(&b->passes[i], DNNL_ARG_SCRATCHPAD, scratch);
    }
    return RCV_OK;
}

static rcv_status create_primitives(rcvi_vendor *vendor, rcvi_onednn_block *b) {
    for (int p = 0; p < RCVI_PORT_COUNT; p++)
        if (is_used(vendor, p)) RCVI_TRY(create_desc(vendor, b, p, false, &b->descs[p]));
    rcvi_onednn_pass *forward = &b->passes[0], *backward = &b->passes[1];
    dnnl_status_t status = rcvi_onednn_create_forward(&vendor->kind, vendor->training, b->descs, &forward->desc);
    RCVI_TRY(check_pass_status(vendor, status, "forward pass"));
    RCVI_TRY(check_pass_status(vendor, dnnl_primitive_create(&forward->primitive, forward->desc), "forward pass"));
    if (!vendor->training) return RCV_OK;
    status = rcvi_onednn_create_backward(&vendor->kind, b->descs, forward->desc, &backward->desc);
    RCVI_TRY(check_pass_status(vendor, status, "backward pass"));
    return check_pass_status(vendor, dnnl_primitive_create(&backward->primitive, backward->desc), "backward pass");
}

/* Divides the layers of the network into blocks. */
static rcv_status split_into_blocks(rcvi_vendor *vendor) {
    const rcv_net *net = vendor->program->net;
    int64_t layers = net->options.layers, input = net->options.input, first = 0;
    vendor->blocks = rcvi_new(vendor->context, (size_t)layers, sizeof *vendor->blocks);
    if (!vendor->blocks) return RCV_NO_MEMORY;
    while (first < layers) {
        bool together = vendor->directions == 1 && input == vendor->hidden;
        int64_t count = together ? layers - first : 1;
        rcvi_onednn_block *b = &vendor->blocks[vendor->block_count++];
        b->first = first, b->layers = count, b->input = input;
        first += count;
        input = vendor->directions * vendor->hidden;
    }
    return RCV_OK;
}

/* Reserves memory that blocks share: as much as the block that needs most. */
static void reserve_shared(rcvi_vendor *vendor) {
    int64_t layers = vendor->program->net->options.layers, rows = vendor->steps * vendor->batch, weights = 0;
    int64_t state = layers * vendor->directions * vendor->batch * vendor->hidden;
    int64_t output = vendor->training ? rows * vendor->directions * vendor->hidden : 0;
    size_t scratch = 0;
    for (size_t i = 0; i < vendor->block_count; i++) {
        const rcvi_onednn_block *b = &vendor->blocks[i];
        int64_t widest = b->input > vendor->hidden ? b->input : vendor->hidden;
        int64_t own = b->layers * vendor->directions * vendor->gates * vendor->hidden * widest;
        weights = own > weights ? own : weights;
        for (int k = 0; k < (vendor->training ? 2 : 1); k++) {
            size_t bytes = size_of(&b->passes[k], dnnl_query_scratchpad_md);
            scratch = bytes > scratch ? bytes : scratch;
        }
    }
    vendor->scratch = reserve(vendor, scratch);
    vendor->staging = reserve(vendor, (size_t)weights * sizeof(float));
    vendor->zeros = reserve(vendor, (size_t)(state > output ? state : output) * sizeof(float));
    if (vendor->training) vendor->sink = reserve(vendor, (size_t)(rows * vendor->blocks[0].input) * sizeof(float));
}

static rcv_status build(rcvi_vendor *vendor) {
    RCVI_TRY(check_status(dnnl_engine_create(&vendor->kind.engine, dnnl_cpu, 0), "engine"));
    RCVI_TRY(
        check_status(dnnl_stream_create(&vendor->stream, vendor->kind.engine, dnnl_stream_default_flags), "stream"));
    RCVI_TRY(check_status(dnnl_primitive_attr_create(&vendor->attributes), "attribute"));
    RCVI_TRY(check_status(dnnl_primitive_attr_set_scratchpad_mode(vendor->attributes, dnnl_scratchpad_mode_user),
                          "scratchpad mode"));
    vendor->kind.attributes = vendor->attributes;
    RCVI_TRY(split_into_blocks(vendor));
    for (size_t i = 0; i < vendor->block_count; i++) RCVI_TRY(create_primitives(vendor, &vendor->blocks[i]));
    reserve_shared(vendor);
    for (size_t i = 0; i < vendor->block_count; i++) {
        for (int p = 0; p < RCVI_PORT_TOTAL; p++)
            if (is_used(vendor, p)) RCVI_TRY(add_port(vendor, i, p));
    }
    for (size_t i = 0; i < vendor->block_count; i++) {
        set_arguments(vendor, i);
        RCVI_TRY(add_workspace(vendor, &vendor->blocks[i]));
    }
    return RCV_OK;
}

/* ---- the network ---- */

/* The schedule has checked that the cell is one of these, whatever its name: they differ in states, gates and operations. */
static rcvi_onednn_cell cell_of(const rcv_net *net) {
    const rcvi_graph *graph = &net->layers[0].forward;
    if (graph->state_count == 2) return RCVI_ONEDNN_LSTM;
    bool relu = false, sigmoid = false;
    for (size_t i = 0; i < graph->value_count; i++) {
        relu |= graph->values[i].operation == RCVI_RELU;
        sigmoid |= graph->values[i].operation == RCVI_SIGMOID;
    }
    return sigmoid ? RCVI_ONEDNN_GRU : relu ? RCVI_ONEDNN_RELU : RCVI_ONEDNN_TANH;
}

/* False without memory. */
static bool find_tensors(rcvi_vendor *vendor) {
    const rcvi_program *program = vendor->program;
    if (!program->options.separate_parameters) return true;
    for (int g = 0; g < 2; g++) {
        vendor->tensors[g] = rcvi_new(vendor->context, program->net->parameter_count, sizeof(int));
        if (!vendor->tensors[g]) return false;
        for (size_t i = 0; i < program->net->parameter_count; i++) vendor->tensors[g][i] = RCVI_NONE;
    }
    for (size_t i = 0; i < program->external_count; i++) {
        const rcvi_buffer *buffer = &program->buffers[program->externals[i]];
        if (buffer->role == RCVI_PARAMETERS) vendor->tensors[0][buffer->index] = program->externals[i];
        if (buffer->role == RCVI_DPARAMETERS) vendor->tensors[1][buffer->index] = program->externals[i];
    }
    return true;
}

static void find_buffers(rcvi_vendor *vendor) {
    for (int role = 0; role < RCVI_ROLE_COUNT; role++)
        for (int state = 0; state < 2; state++) vendor->buffers[role][state] = RCVI_NONE;
    const rcvi_program *program = vendor->program;
    for (size_t i = 0; i < program->external_count; i++) {
        const rcvi_buffer *buffer = &program->buffers[program->externals[i]];
        if (buffer->index < 2) vendor->buffers[buffer->role][buffer->index] = program->externals[i];
    }
}

/* oneDNN uses as many threads as OpenMP reports; with another runtime this has no effect. */
static void find_openmp_functions(rcvi_vendor *vendor) {
    void *get = dlsym(RTLD_DEFAULT, "omp_get_max_threads"), *set = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    if (!get || !set) return;
    memcpy(&vendor->get_threads, &get, sizeof get); /* POSIX: convert a data pointer to a function pointer */
    memcpy(&vendor->set_threads, &set, sizeof set);
}

/* A child of fork() does not have OpenMP's threads, and OpenMP would wait for them. */
static rcv_status check_threads(const rcvi_program *program) {
    if (!rcvi_is_forked() || program->rungs.threads <= 1) return RCV_OK;
    return rcvi_fail(RCV_UNSUPPORTED,
                     "oneDNN has one thread in a child of fork(), not %lld: OpenMP's do not survive it",
                     (long long)program->rungs.threads);
}

/* oneDNN 2.6 uses some small allocations without a check. So this checks first that 1 MB for each layer is available; a layer needs
 * about 100 KB. */
static rcv_status check_memory(const rcvi_vendor *vendor) {
    size_t bytes = (size_t)(vendor->program->net->options.layers + 1) << 20;
    void *there = malloc(bytes);
    free(there);
    return there ? RCV_OK : rcvi_no_memory(bytes);
}

typedef struct {
    rcvi_vendor *vendor;
    rcv_status status;
} building;

static void build_all(void *user) {
    building *b = user;
    b->status = build(b->vendor);
}

/* A primitive whose creation was interrupted stays in oneDNN's cache as one that is being created. */
static void clear_cache(void) {
    int capacity = 0;
    if (dnnl_get_primitive_cache_capacity(&capacity) == dnnl_success &&
        dnnl_set_primitive_cache_capacity(0) == dnnl_success)
        dnnl_set_primitive_cache_capacity(capacity);
}

rcv_status rcvi_onednn_call(rcvi_vendor *vendor, void (*work)(void *user), void *user) {
    RCVI_TRY(check_threads(vendor->program));
    int before = vendor->set_threads ? vendor->get_threads() : 0;
    if (vendor->set_threads) vendor->set_threads((int)vendor->program->rungs.threads);
    bool done = rcvi_onednn_guard(work, user);
    if (vendor->set_threads) vendor->set_threads(before);
    if (done) return RCV_OK;
    clear_cache();
    return rcvi_fail(RCV_NO_MEMORY, "oneDNN has no memory left");
}

/* Creates everything but the memory. Primitives are specialised for the number of threads at their creation. */
static rcv_status prepare(const rcvi_program *program, rcvi_sizes sizes, rcvi_vendor **out) {
    const rcv_net *net = program->net;
    *out = NULL;
    rcvi_vendor *vendor = rcvi_new(net->context, 1, sizeof *vendor);
    if (!vendor) return RCV_NO_MEMORY;
    rcvi_onednn_cell cell = cell_of(net);
    vendor->program = program;
    vendor->context = net->context;
    vendor->kind.cell = cell;
    vendor->kind.direction = net->directions == 2   ? dnnl_bidirectional_concat
                             : net->options.reverse ? dnnl_unidirectional_right2left
                                                    : dnnl_unidirectional_left2right;
    vendor->steps = sizes.steps;
    vendor->batch = sizes.batch;
    vendor->hidden = net->options.hidden;
    vendor->directions = net->directions;
    vendor->gates = cells[cell].gates;
    vendor->bias_gates = cells[cell].bias_gates;
    vendor->training = program->options.training;
    vendor->backward_stale = true;
    find_buffers(vendor);
    find_openmp_functions(vendor);
    building made = {.vendor = vendor};
    rcv_status status = find_tensors(vendor) ? check_memory(vendor) : RCV_NO_MEMORY;
    if (!status) status = rcvi_onednn_call(vendor, build_all, &made);
    if (!status) status = made.status;
    if (status) {
        rcvi_vendor_free(vendor);
        return status;
    }
    *out = vendor;
    return RCV_OK;
}

rcv_status rcvi_vendor_bytes(const rcvi_program *program, size_t *bytes) {
    *bytes = 0;
    rcvi_vendor *vendor = NULL;
    RCVI_TRY(prepare(program, program->sizes, &vendor));
    *bytes = vendor->bytes + ALIGNMENT;
    rcvi_vendor_free(vendor);
    return RCV_OK;
}

rcv_status rcvi_vendor_new(const rcvi_program *program, rcvi_sizes sizes, rcvi_vendor **out) {
    *out = NULL;
    rcvi_vendor *vendor = NULL;
    RCVI_TRY(prepare(program, sizes, &vendor));
    rcv_status status = allocate(vendor);
    if (status) {
        rcvi_vendor_free(vendor);
        return status;
    }
    *out = vendor;
    return RCV_OK;
}

void rcvi_vendor_free(rcvi_vendor *vendor) {
    if (!vendor) return;
    for (size_t i = 0; i < vendor->block_count; i++) {
        rcvi_onednn_block *b = &vendor->blocks[i];
        for (int k = 0; k < 2; k++) {
            if (b->passes[k].primitive) dnnl_primitive_destroy(b->passes[k].primitive);
            if (b->passes[k].desc) dnnl_primitive_desc_destroy(b->passes[k].desc);
        }
        for (int p = 0; p < RCVI_PORT_COUNT; p++) rcvi_onednn_free_desc(&b->descs[p]);
    }
    for (size_t i = 0; i < vendor->memory_count; i++) dnnl_memory_destroy(vendor->memories[i].memory);
    for (size_t i = 0; i < vendor->reorder_count; i++) dnnl_primitive_destroy(vendor->reorders[i]);
    if (vendor->reorder_desc) dnnl_primitive_desc_destroy(vendor->reorder_desc);
    rcvi_onednn_free_desc(&vendor->plain_desc);
    if (vendor->attributes) dnnl_primitive_attr_destroy(vendor->attributes);
    if (vendor->stream) dnnl_stream_destroy(vendor->stream);
    if (vendor->kind.engine) dnnl_engine_destroy(vendor->kind.engine);
    for (int g = 0; g < 2; g++) rcvi_free(vendor->context, vendor->tensors[g]);
    rcvi_free(vendor->context, vendor->reorders);
    rcvi_free(vendor->context, vendor->memories);
    rcvi_free(vendor->context, vendor->blocks);
    rcvi_free(vendor->context, vendor->allocation);
    rcvi_free(vendor->context, vendor);
}
