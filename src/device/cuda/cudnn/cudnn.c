/* A network by cuDNN's recurrent functions: descriptors, memory, and the layout of weights.
 *
 * All that a pass needs is one allocation of device memory: weights and their gradients in cuDNN's layout, its workspace and reserve,
 * tensors that are not the caller's, and the table that maps weights. */
#include "device/cuda/cudnn/cudnn.h"

enum { ALIGNMENT = 256, MATRIX_DIMS = 3 };
enum { WEIGHT_IH, WEIGHT_HH, BIAS_IH, BIAS_HH }; /* parameters of a layer and direction, in order */

static const struct {
    const char *name;
    int64_t gates;
} cells[] = {[RCVI_CUDNN_RELU] = {"rnn_relu", 1},
             [RCVI_CUDNN_TANH] = {"rnn_tanh", 1},
             [RCVI_CUDNN_LSTM] = {"lstm", 4},
             [RCVI_CUDNN_GRU] = {"gru", 3}};

static const char *const algorithms[RCVI_CUDNN_ALGORITHMS] = {"standard", "static persistent", "dynamic persistent",
                                                              "small static persistent"};

rcv_status rcvi_cudnn_check(const rcvi_cudnn *vendor, int status, const char *what) {
    if (status == RCVI_CUDNN_SUCCESS) return RCV_OK;
    bool memory = status == RCVI_CUDNN_NO_HOST_MEMORY || status == RCVI_CUDNN_NO_DEVICE_MEMORY;
    return rcvi_fail(memory ? RCV_NO_MEMORY : RCV_UNSUPPORTED, "%s refuses %s of this %s in %s by its %s algorithm: %s",
                     rcvi_cudnn_name(), what, cells[vendor->cell].name, rcv_dtype_name(vendor->program->options.dtype),
                     algorithms[vendor->program->rungs.algorithm], vendor->api->GetErrorString(status));
}

/* ---- descriptors ---- */

static const struct {
    int data, math;
    rcvi_cuda_type type;
} types[] = {[RCV_FLOAT32] = {RCVI_CUDNN_FLOAT, RCVI_CUDNN_FMA_MATH, RCVI_F32},
             [RCV_TFLOAT32] = {RCVI_CUDNN_FLOAT, RCVI_CUDNN_DEFAULT_MATH, RCVI_F32},
             [RCV_BFLOAT16] = {RCVI_CUDNN_BFLOAT16, RCVI_CUDNN_TENSOR_MATH, RCVI_BF16},
             [RCV_FLOAT16] = {RCVI_CUDNN_HALF, RCVI_CUDNN_TENSOR_MATH, RCVI_F16}};

static rcv_status create_descriptors(rcvi_cudnn *v) {
    const rcvi_cudnn_api *api = v->api;
    int status = api->CreateDropoutDescriptor(&v->dropout);
    if (!status) status = api->CreateRNNDescriptor(&v->rnn);
    if (!status) status = api->CreateRNNDataDescriptor(&v->x);
    if (!status) status = api->CreateRNNDataDescriptor(&v->y);
    if (!status) status = api->CreateTensorDescriptor(&v->state);
    if (!status) status = api->CreateTensorDescriptor(&v->matrix);
    if (!status) status = api->CreateTensorDescriptor(&v->bias);
    return rcvi_cudnn_check(v, status, "a descriptor");
}

static rcv_status describe_network(rcvi_cudnn *v) {
    const rcv_net *net = v->program->net;
    const rcv_plan_options *options = &v->program->options;
    int hidden = (int)net->options.hidden, algorithm = (int)v->program->rungs.algorithm;
    int status = v->api->SetDropoutDescriptor(v->dropout, v->handle, 0, NULL, 0, 0);
    RCVI_TRY(rcvi_cudnn_check(v, status, "the description"));
    status = v->api->SetRNNDescriptor_v8(
        v->rnn, algorithm, v->cell, net->options.no_bias ? RCVI_CUDNN_NO_BIAS : RCVI_CUDNN_DOUBLE_BIAS,
        net->directions == 2 ? RCVI_CUDNN_BOTH_DIRECTIONS : RCVI_CUDNN_ONE_DIRECTION, RCVI_CUDNN_LINEAR_INPUT,
        types[options->dtype].data, RCVI_CUDNN_FLOAT, types[options->dtype].math, (int)net->options.input, hidden,
        hidden, (int)net->options.layers, v->dropout, RCVI_CUDNN_UNPADDED);
    RCVI_TRY(rcvi_cudnn_check(v, status, "the description"));
    return RCV_OK;
}

/* Kernels of the dynamic algorithm are for one batch. */
bool rcvi_cudnn_must_compile(const rcvi_cudnn *v, rcvi_sizes sizes) {
    return v->program->rungs.algorithm == RCVI_CUDNN_DYNAMIC && v->sizes.batch != sizes.batch;
}

/* Sets the sizes of the sequences and states. */
static rcv_status describe_tensors(rcvi_cudnn *v, rcvi_sizes sizes) {
    const rcv_net *net = v->program->net;
    int steps = (int)sizes.steps, batch = (int)sizes.batch, *lengths = v->lengths;
    int hidden = (int)net->options.hidden, data = types[v->program->options.dtype].data;
    for (int b = 0; b < batch; b++) lengths[b] = steps; /* copied by the descriptors */
    if (rcvi_cudnn_must_compile(v, sizes))
        RCVI_TRY(rcvi_cudnn_check(v, v->api->BuildRNNDynamic(v->handle, v->rnn, batch), "the kernels"));
    int status = v->api->SetRNNDataDescriptor(v->x, data, RCVI_CUDNN_PACKED_STEPS, steps, batch,
                                              (int)net->options.input, lengths, NULL);
    if (!status) {
        status = v->api->SetRNNDataDescriptor(v->y, data, RCVI_CUDNN_PACKED_STEPS, steps, batch,
                                              (int)net->directions * hidden, lengths, NULL);
    }
    RCVI_TRY(rcvi_cudnn_check(v, status, "the sequences"));
    int shape[] = {(int)(net->options.layers * net->directions), batch, hidden};
    int strides[] = {batch * hidden, hidden, 1};
    return rcvi_cudnn_check(v, v->api->SetTensorNdDescriptor(v->state, data, 3, shape, strides), "the states");
}

/* ---- memory ---- */

static size_t reserve(rcvi_cudnn *v, size_t bytes) {
    size_t offset = v->bytes;
    v->bytes += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return offset;
}

static rcvi_cudnn_part part(rcvi_cudnn *v, size_t bytes) { return (rcvi_cudnn_part){reserve(v, bytes), bytes}; }

static int find_buffer(const rcvi_program *program, rcvi_role role, size_t state) {
    for (size_t i = 0; i < program->external_count; i++) {
        const rcvi_buffer *buffer = &program->buffers[program->externals[i]];
        if (buffer->role == role && buffer->index == state) return program->externals[i];
    }
    return RCVI_NONE;
}

/* Rows of every tensor. */
static void count_rows(rcvi_cudnn *v, rcvi_sizes sizes) {
    const rcv_net *net = v->program->net;
    for (int p = 0; p < RCVI_CUDNN_PORTS; p++) {
        int tensor = p % RCVI_CUDNN_DX;
        bool sequence = tensor == RCVI_CUDNN_X || tensor == RCVI_CUDNN_Y;
        v->ports[p].rows = (sequence ? sizes.steps : net->options.layers * net->directions) * sizes.batch;
    }
}

/* The type of a caller's array. */
static rcvi_cuda_type type_of(const rcvi_cudnn *v, rcvi_element element) {
    switch (element) {
    case RCVI_ACTIVATION: return v->type;
    case RCVI_AS_FLOAT64: return RCVI_F64;
    case RCVI_AS_FLOAT16: return RCVI_F16;
    case RCVI_AS_BFLOAT16: return RCVI_BF16;
    default: return RCVI_F32;
    }
}

/* The backward pass reads y, which the caller need not keep, and cuDNN needs a dx and a dy even where the caller has none. */
static void add_ports(rcvi_cudnn *v) {
    static const struct {
        rcvi_role role;
        size_t state;
    } ports[RCVI_CUDNN_PORTS] = {
        [RCVI_CUDNN_X] = {RCVI_X, 0},          [RCVI_CUDNN_Y] = {RCVI_Y, 0},
        [RCVI_CUDNN_H0] = {RCVI_INITIAL, 0},   [RCVI_CUDNN_C0] = {RCVI_INITIAL, 1},
        [RCVI_CUDNN_H1] = {RCVI_FINAL, 0},     [RCVI_CUDNN_C1] = {RCVI_FINAL, 1},
        [RCVI_CUDNN_DX] = {RCVI_DX, 0},        [RCVI_CUDNN_DY] = {RCVI_DY, 0},
        [RCVI_CUDNN_DH0] = {RCVI_DINITIAL, 0}, [RCVI_CUDNN_DC0] = {RCVI_DINITIAL, 1},
        [RCVI_CUDNN_DH1] = {RCVI_DFINAL, 0},   [RCVI_CUDNN_DC1] = {RCVI_DFINAL, 1},
    };
    const rcv_net *net = v->program->net;
    count_rows(v, v->sizes);
    for (int p = 0; p < RCVI_CUDNN_PORTS; p++) {
        rcvi_cudnn_port *port = &v->ports[p];
        int tensor = p % RCVI_CUDNN_DX;
        port->buffer = find_buffer(v->program, ports[p].role, ports[p].state);
        port->columns = tensor == RCVI_CUDNN_X   ? net->options.input
                        : tensor == RCVI_CUDNN_Y ? net->options.hidden * net->directions
                                                 : net->options.hidden;
        if (port->buffer == RCVI_NONE) continue;
        port->type = type_of(v, v->program->buffers[port->buffer].element);
        port->is_batch_major = v->program->buffers[port->buffer].is_batch_major;
        port->own = v->type != port->type || port->is_batch_major || (p == RCVI_CUDNN_Y && v->training);
        if (port->own || p == RCVI_CUDNN_DX || p == RCVI_CUDNN_DY)
            port->offset = reserve(v, (size_t)(port->rows * port->columns) * rcvi_cuda_bytes(v->type));
    }
}

static rcv_status find_tensors(rcvi_cudnn *v) {
    const rcvi_program *program = v->program;
    size_t count = program->options.separate_parameters ? program->net->parameter_count : 1;
    v->tensors = rcvi_new(v->context, count, sizeof *v->tensors);
    if (!v->tensors) return RCV_NO_MEMORY;
    v->tensor_count = count;
    for (size_t i = 0; i < count; i++) {
        v->tensors[i].parameters = find_buffer(program, RCVI_PARAMETERS, i);
        v->tensors[i].gradients = find_buffer(program, RCVI_DPARAMETERS, i);
    }
    return RCV_OK;
}

static int64_t most_pieces(const rcvi_cudnn *v) {
    const rcv_net *net = v->program->net;
    return net->options.layers * net->directions * 2 * v->gates * (net->options.no_bias ? 1 : 2);
}

static rcv_status add_parts(rcvi_cudnn *v) {
    size_t weights = 0, work = 0, kept = 0;
    RCVI_TRY(rcvi_cudnn_check(v, v->api->GetRNNWeightSpaceSize(v->handle, v->rnn, &weights), "the weights"));
    int mode = v->training ? RCVI_CUDNN_TRAINING : RCVI_CUDNN_INFERENCE;
    RCVI_TRY(rcvi_cudnn_check(v, v->api->GetRNNTempSpaceSizes(v->handle, v->rnn, mode, v->x, &work, &kept),
                              "the workspace"));
    v->weights = part(v, weights);
    v->dweights = part(v, v->training ? weights : 0);
    v->work = part(v, work);
    v->reserve = part(v, v->training ? kept : 0);
    v->pieces = part(v, (size_t)most_pieces(v) * sizeof(rcvi_weight_piece));
    add_ports(v);
    return RCV_OK;
}

/* ---- layout of weights ---- */

/* The offset of the matrix of gate `linear` of a layer and direction, or of its bias, in cuDNN's weights, in elements. Matrices of the input
 * come first, then those of the state, gates in our order. */
static rcv_status find_weights(rcvi_cudnn *v, int32_t pseudo, int32_t linear, bool bias, int64_t expected,
                               int64_t *offset) {
    unsigned char *start = rcvi_cudnn_at(v, v->weights);
    void *matrix_at = NULL, *bias_at = NULL;
    int type = 0, dims = 0, shape[MATRIX_DIMS] = {0}, strides[MATRIX_DIMS] = {0};
    int status = v->api->GetRNNWeightParams(v->handle, v->rnn, pseudo, v->weights.bytes, start, linear, v->matrix,
                                            &matrix_at, v->bias, &bias_at);
    if (!status) {
        status = v->api->GetTensorNdDescriptor(bias ? v->bias : v->matrix, MATRIX_DIMS, &type, &dims, shape, strides);
    }
    RCVI_TRY(rcvi_cudnn_check(v, status, "the weights"));
    unsigned char *at = bias ? bias_at : matrix_at;
    int64_t count = dims < 1 ? 0 : 1;
    for (int i = 0; i < dims && i < MATRIX_DIMS; i++) count *= shape[i];
    if (!at || count != expected) {
        return rcvi_fail(RCV_UNSUPPORTED, "%s lays out the weights of %s in a way that is not known here",
                         rcvi_cudnn_name(), cells[v->cell].name);
    }
    *offset = (int64_t)((size_t)(at - start) / rcvi_cuda_bytes(v->type));
    return RCV_OK;
}

static bool goes_on(const rcvi_weight_piece *piece, const rcvi_weight_piece *next) {
    return piece->flat + piece->count == next->flat && piece->space + piece->count == next->space;
}

/* A table of pieces being made: those of a tensor come one after another. */
typedef struct {
    rcvi_weight_piece *pieces;
    int64_t count;
} piece_table;

static void add_piece(piece_table *table, rcvi_weight_map *map, rcvi_weight_piece piece) {
    rcvi_weight_piece *last = map->count > 0 ? &table->pieces[table->count - 1] : NULL;
    if (last && goes_on(last, &piece)) {
        last->count += piece.count;
    } else {
        last = &table->pieces[table->count++];
        *last = piece;
        map->count++;
    }
    if (last->count > map->longest) map->longest = last->count;
}

/* The tensor of a parameter; `table` is where its pieces begin, if it has none yet. */
static rcvi_cudnn_tensor *open_tensor(rcvi_cudnn *v, const piece_table *table, size_t parameter) {
    rcvi_cudnn_tensor *tensor = &v->tensors[v->program->options.separate_parameters ? parameter : 0];
    if (tensor->map.count == 0)
        tensor->map.pieces = (const rcvi_weight_piece *)rcvi_cudnn_at(v, v->pieces) + table->count;
    return tensor;
}

static rcv_status map_layer(rcvi_cudnn *v, int64_t layer, int64_t direction, bool bias, piece_table *table) {
    const rcv_net *net = v->program->net;
    int64_t pseudo = layer * net->directions + direction, hidden = net->options.hidden;
    size_t first = (size_t)pseudo * (net->options.no_bias ? 2 : 4);
    for (int64_t linear = 0; linear < 2 * v->gates; linear++) {
        bool recurrent = linear >= v->gates;
        int64_t columns = bias ? 1 : recurrent ? hidden : net->layers[layer].input;
        size_t parameter = first + (bias ? BIAS_IH : WEIGHT_IH) + recurrent;
        int64_t start = v->program->options.separate_parameters ? 0 : net->parameters[parameter].offset;
        rcvi_weight_piece piece = {.flat = start + linear % v->gates * hidden * columns, .count = hidden * columns};
        RCVI_TRY(find_weights(v, (int32_t)pseudo, (int32_t)linear, bias, piece.count, &piece.space));
        add_piece(table, &open_tensor(v, table, parameter)->map, piece);
    }
    return RCV_OK;
}

/* Clears the weights, since gaps between them are zeros, and sends the table of pieces; both are done when it returns. The stream is its own:
 * the default stream waits for others, and may not be used while one of them is captured. */
static rcv_status send_pieces(rcvi_cudnn *v, const piece_table *table) {
    cudaStream_t stream = NULL;
    RCVI_TRY(rcvi_cuda_new_stream(&stream));
    cudaError_t error = cudaMemsetAsync(rcvi_cudnn_at(v, v->weights), 0, v->weights.bytes, stream);
    if (error == cudaSuccess)
        error = cudaMemcpyAsync(rcvi_cudnn_at(v, v->pieces), table->pieces,
                                (size_t)table->count * sizeof *table->pieces, cudaMemcpyHostToDevice, stream);
    cudaError_t last = cudaStreamSynchronize(stream);
    cudaStreamDestroy(stream);
    return rcvi_cuda_check(error != cudaSuccess ? error : last, "the table of weights for cuDNN");
}

static rcv_status map_weights(rcvi_cudnn *v, rcvi_weight_piece *pieces) {
    const rcv_net *net = v->program->net;
    piece_table table = {.pieces = pieces};
    for (size_t i = 0; i < v->tensor_count; i++) v->tensors[i].map = (rcvi_weight_map){.type = v->type};
    for (int bias = 0; bias < (net->options.no_bias ? 1 : 2); bias++) {
        for (int64_t l = 0; l < net->options.layers; l++)
            for (int64_t d = 0; d < net->directions; d++) RCVI_TRY(map_layer(v, l, d, bias, &table));
    }
    return send_pieces(v, &table);
}

static rcv_status new_memory(size_t bytes, const char *what, void **memory) {
    cudaError_t error = cudaMalloc(memory, bytes);
    if (error != cudaErrorMemoryAllocation) return rcvi_cuda_check(error, "allocating memory for cuDNN");
    cudaGetLastError(); /* clears the last error */
    *memory = NULL;
    return rcvi_fail(RCV_NO_MEMORY, "%s needs %zu bytes of GPU memory for %s, and there are not so many left",
                     rcvi_cudnn_name(), bytes, what);
}

size_t rcvi_cudnn_bytes(const rcvi_cudnn *v) { return v->bytes; }

rcv_status rcvi_cudnn_allocate(rcvi_cudnn *v) {
    void *memory = NULL;
    RCVI_TRY(new_memory(v->bytes, "this plan", &memory));
    v->base = memory;
    rcvi_weight_piece *pieces = rcvi_new(v->context, (size_t)most_pieces(v), sizeof *pieces);
    if (!pieces) return RCV_NO_MEMORY;
    rcv_status status = map_weights(v, pieces);
    rcvi_free(v->context, pieces);
    return status;
}

void rcvi_cudnn_release(rcvi_cudnn *v) {
    if (v->base) cudaFree(v->base);
    v->base = NULL;
}

/* ---- the network ---- */

/* The schedule guarantees that the cell is one of these, whatever its name: states and functions tell which. */
static int cell_of(const rcv_net *net) {
    const rcvi_graph *graph = &net->layers[0].forward;
    if (graph->state_count == 2) return RCVI_CUDNN_LSTM;
    bool relu = false, sigmoid = false;
    for (size_t i = 0; i < graph->value_count; i++) {
        relu |= graph->values[i].operation == RCVI_RELU;
        sigmoid |= graph->values[i].operation == RCVI_SIGMOID;
    }
    return sigmoid ? RCVI_CUDNN_GRU : relu ? RCVI_CUDNN_RELU : RCVI_CUDNN_TANH;
}

static rcv_status build(rcvi_cudnn *v) {
    int status = v->api->Create(&v->handle);
    if (status) {
        v->handle = NULL;
        return rcvi_fail(RCV_UNSUPPORTED, "%s finds no GPU that it can use: %s", rcvi_cudnn_name(),
                         v->api->GetErrorString(status));
    }
    RCVI_TRY(create_descriptors(v));
    RCVI_TRY(describe_network(v));
    RCVI_TRY(describe_tensors(v, v->program->sizes));
    v->sizes = v->program->sizes;
    return add_parts(v);
}

rcv_status rcvi_cudnn_resize(rcvi_cudnn *v, rcvi_sizes sizes) {
    size_t work = 0, kept = 0;
    int mode = v->training ? RCVI_CUDNN_TRAINING : RCVI_CUDNN_INFERENCE;
    if (v->sizes.steps == sizes.steps && v->sizes.batch == sizes.batch) return RCV_OK;
    rcv_status status = describe_tensors(v, sizes);
    v->sizes = (rcvi_sizes){0}; /* until it has succeeded: of a failure a part of the descriptors may be left */
    RCVI_TRY(status);
    RCVI_TRY(rcvi_cudnn_check(v, v->api->GetRNNTempSpaceSizes(v->handle, v->rnn, mode, v->x, &work, &kept),
                              "the workspace"));
    if (work > v->work.bytes || (v->training && kept > v->reserve.bytes))
        return rcvi_fail(RCV_UNSUPPORTED, "%s needs more memory for %lld steps of %lld sequences than for the most",
                         rcvi_cudnn_name(), (long long)sizes.steps, (long long)sizes.batch);
    count_rows(v, sizes);
    v->sizes = sizes;
    return RCV_OK;
}

rcv_status rcvi_cudnn_new(const rcvi_program *program, rcvi_cudnn **out) {
    *out = NULL;
    const rcvi_cudnn_api *api = rcvi_cudnn_open();
    if (!api) return RCV_UNSUPPORTED;
    rcvi_cudnn *v = rcvi_new(program->net->context, 1, sizeof *v);
    if (!v) return RCV_NO_MEMORY;
    v->api = api;
    v->program = program;
    v->context = program->net->context;
    v->cell = cell_of(program->net);
    v->gates = cells[v->cell].gates;
    v->type = types[program->options.dtype].type;
    v->training = program->options.training;
    v->lengths = rcvi_new(v->context, (size_t)program->options.batch, sizeof *v->lengths);
    rcv_status status = v->lengths ? find_tensors(v) : RCV_NO_MEMORY;
    if (!status) status = build(v);
    if (status) {
        rcvi_cudnn_free(v);
        return status;
    }
    *out = v;
    return RCV_OK;
}

void rcvi_cudnn_free(rcvi_cudnn *v) {
    if (!v) return;
    if (v->bias) v->api->DestroyTensorDescriptor(v->bias);
    if (v->matrix) v->api->DestroyTensorDescriptor(v->matrix);
    if (v->state) v->api->DestroyTensorDescriptor(v->state);
    if (v->y) v->api->DestroyRNNDataDescriptor(v->y);
    if (v->x) v->api->DestroyRNNDataDescriptor(v->x);
    if (v->rnn) v->api->DestroyRNNDescriptor(v->rnn);
    if (v->dropout) v->api->DestroyDropoutDescriptor(v->dropout);
    rcvi_cudnn_release(v);
    if (v->handle) v->api->Destroy(v->handle);
    rcvi_free(v->context, v->tensors);
    rcvi_free(v->context, v->lengths);
    rcvi_free(v->context, v);
}

/* ---- trial run ---- */

/* Binds the caller's arrays of one pass to `memory`, where that is given. Returns the bytes that they need. */
static size_t bind_arrays(const rcvi_program *program, unsigned char *memory, void **buffers) {
    size_t bytes = 0;
    for (size_t i = 0; i < program->external_count; i++) {
        const rcvi_buffer *buffer = &program->buffers[program->externals[i]];
        if (memory) buffers[program->externals[i]] = memory + bytes;
        bytes += ((size_t)buffer->count * sizeof(float) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    return bytes;
}

static rcv_status run_both(rcvi_cudnn *v, void **buffers, unsigned char *memory, size_t bytes, cudaStream_t stream) {
    rcvi_binding binding = {.program = v->program, .buffers = buffers, .overwrite = true};
    RCVI_CUDA_TRY(cudaMemsetAsync(memory, 0, bytes, stream), "clearing memory for cuDNN");
    RCVI_TRY(rcvi_cudnn_run(v, false, &binding, stream));
    if (v->training) RCVI_TRY(rcvi_cudnn_run(v, true, &binding, stream));
    return rcvi_cuda_check(cudaStreamSynchronize(stream), "a trial of cuDNN");
}

static rcv_status try_on(rcvi_cudnn *v, void **buffers) {
    size_t bytes = bind_arrays(v->program, NULL, NULL);
    void *memory = NULL;
    cudaStream_t stream = NULL;
    rcv_status status = new_memory(bytes, "a trial of this plan", &memory);
    if (!status) {
        bind_arrays(v->program, memory, buffers);
        status = rcvi_cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
    }
    if (!status) status = run_both(v, buffers, memory, bytes, stream);
    if (stream) {
        cudaStreamSynchronize(stream);
        v->api->SetStream(v->handle, NULL); /* the handle must not keep a destroyed stream */
        cudaStreamDestroy(stream);
    }
    if (memory) cudaFree(memory);
    return status;
}

rcv_status rcvi_cudnn_try(rcvi_cudnn *v) {
    void **buffers = rcvi_new(v->context, v->program->buffer_count, sizeof *buffers);
    rcv_status status = buffers ? rcvi_cudnn_allocate(v) : RCV_NO_MEMORY;
    if (!status) status = try_on(v, buffers);
    rcvi_cudnn_release(v);
    rcvi_free(v->context, buffers);
    return status;
}
