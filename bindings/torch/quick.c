/* Calls without derivatives, past PyTorch's dispatcher: the tensors' addresses come from PyTorch's DLPack exchange table. */
#include "torch/quick.h"
#include "call/shared.h"
#include "torch/operators.h"
#include "torch/python.h"
#include "torch/shim.h"

#include <dlfcn.h>
#include <string.h>

enum { MOST_TENSORS = 64, MOST_STATES = 16, GPU_ALIGNMENT = 16 };

/* ---- DLPack, as its version 1 lays it out ---- */

enum { DLPACK_MAJOR = 1, DLPACK_CPU = 1, DLPACK_CUDA = 2, DLPACK_FLOAT = 2, DLPACK_BFLOAT = 4 };

typedef struct {
    void *data;
    int32_t device, ordinal;
    int32_t dims;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
} dl_tensor;

typedef struct {
    uint32_t major, minor;
    const void *earlier;
    void *allocate, *from_object, *to_object;
    int (*borrow)(object tensor, dl_tensor *out);
    void *current_stream;
} dl_exchange;

static const dl_exchange *exchange;
static object (*wrap)(const void *tensor); /* a tensor as an object of Python, with a reference of its own */
static object *tensor_class, *parameter_class;

/* ---- arguments ---- */

typedef struct {
    const rcv_net *net;
    long long flags, frozen;
    dl_tensor x;
    rcv_array_type type; /* of all tensors but the parameters */
    rcvb_kind kind;
    int64_t steps, batch;
    void *stream;
    const void *tensors[MOST_TENSORS], *initial[MOST_STATES];
    bool has_states;
} call;

static rcv_array_type type_of(const dl_tensor *t) {
    if (t->lanes != 1) return RCV_AS_PLAN;
    if (t->code == DLPACK_FLOAT && t->bits == 32) return RCV_AS_FLOAT32;
    if (t->code == DLPACK_FLOAT && t->bits == 64) return RCV_AS_FLOAT64;
    if (t->code == DLPACK_FLOAT && t->bits == 16) return RCV_AS_FLOAT16;
    if (t->code == DLPACK_BFLOAT && t->bits == 16) return RCV_AS_BFLOAT16;
    return RCV_AS_PLAN;
}

static bool is_contiguous(const dl_tensor *t) {
    int64_t stride = 1;
    for (int d = t->dims; d-- > 0; stride *= t->shape[d]) {
        if (t->shape[d] != 1 && t->strides[d] != stride) return false;
    }
    return true;
}

static bool has_shape(const dl_tensor *t, const rcv_parameter *p) {
    if (t->dims != p->dims) return false;
    for (int d = 0; d < p->dims; d++) {
        if (t->shape[d] != p->shape[d]) return false;
    }
    return true;
}

/* A tensor as PyTorch itself makes it, whose memory can be read in place. */
static bool borrow(object o, dl_tensor *t) {
    object class = python.PyObject_Type(o);
    bool simple = class == *tensor_class || class == *parameter_class;
    python.Py_DecRef(class);
    if (!simple) return false;
    if (exchange->borrow(o, t)) {
        python.PyErr_Clear();
        return false;
    }
    t->data = (char *)t->data + t->byte_offset;
    bool aligned = t->device == DLPACK_CPU || (uintptr_t)t->data % GPU_ALIGNMENT == 0;
    return aligned && is_contiguous(t);
}

static bool is_beside(const call *c, const dl_tensor *t) {
    return t->device == c->x.device && t->ordinal == c->x.ordinal;
}

static bool read_input(call *c, object x) {
    if (!borrow(x, &c->x)) return false;
    c->type = type_of(&c->x);
    bool fits = c->x.dims == 3 && (c->x.device == DLPACK_CPU || c->x.device == DLPACK_CUDA) && c->type != RCV_AS_PLAN &&
                c->x.shape[2] == rcv_net_get_options(c->net)->input;
    if (!fits) return false;
    bool batch_first = (c->flags & RCVB_BATCH_FIRST) != 0;
    c->steps = c->x.shape[batch_first];
    c->batch = c->x.shape[!batch_first];
    return c->steps > 0 && c->batch > 0;
}

static bool read_parameters(call *c, object parameters, object names) {
    size_t count = rcv_net_parameter_count(c->net);
    if (python.PyTuple_Size(names) != (intptr_t)count || count > MOST_TENSORS) return false;
    for (size_t i = 0; i < count; i++) {
        dl_tensor t;
        object o = python.PyDict_GetItemWithError(parameters, python.PyTuple_GetItem(names, (intptr_t)i));
        if (!o || !borrow(o, &t) || !is_beside(c, &t)) return false;
        if (!has_shape(&t, rcv_net_parameter(c->net, i)) || type_of(&t) != c->type) return false;
        c->tensors[i] = t.data;
    }
    return true;
}

static bool read_states(call *c, object states) {
    intptr_t given = python.PySequence_Size(states), count = (intptr_t)rcv_net_state_count(c->net);
    if (count > MOST_STATES || (given != 0 && given != count)) return false;
    c->has_states = given != 0;
    for (intptr_t i = 0; i < given; i++) {
        dl_tensor t;
        const rcv_state *s = rcv_net_state(c->net, (size_t)i);
        object o = python.PySequence_GetItem(states, i);
        bool fits = o && borrow(o, &t) && is_beside(c, &t) && type_of(&t) == c->type && s->size && t.dims == 3 &&
                    t.shape[0] == s->total / s->size && t.shape[1] == c->batch && t.shape[2] == s->size;
        python.Py_DecRef(o); /* the caller's list keeps it */
        if (!fits) return false;
        c->initial[i] = t.data;
    }
    return true;
}

static rcv_dtype products_of(const call *c) {
    bool gpu = c->x.device == DLPACK_CUDA;
    switch (c->type) {
    case RCV_AS_FLOAT64: return RCV_FLOAT64;
    case RCV_AS_BFLOAT16: return RCV_BFLOAT16;
    case RCV_AS_FLOAT16: return gpu ? RCV_FLOAT16 : RCV_FLOAT32;
    default: return gpu && c->flags & RCVB_ALLOW_TF32 ? RCV_TFLOAT32 : RCV_FLOAT32;
    }
}

static bool find_place(call *c) {
    uint32_t threads = 1;
    c->kind = (rcvb_kind){.net = c->net,
                          .device = c->x.device == DLPACK_CPU ? RCVB_CPU : c->x.ordinal,
                          .dtype = products_of(c),
                          .data = c->type,
                          .states = c->type,
                          .parameters = c->type,
                          .effort = (rcv_effort)(c->flags >> RCVB_EFFORT_SHIFT & RCVB_EFFORT),
                          .batch_major = (c->flags & RCVB_BATCH_FIRST) != 0};
    if (c->kind.device != RCVB_CPU)
        return torch.aoti_torch_get_current_cuda_stream &&
               !torch.aoti_torch_get_current_cuda_stream(c->x.ordinal, &c->stream);
    torch.torch_get_num_threads(&threads);
    c->kind.threads = (int)threads;
    return true;
}

/* ---- results ---- */

typedef struct {
    tensor at[1 + MOST_STATES]; /* y and the final states */
    void *data[1 + MOST_STATES];
    size_t count;
} results;

static rcv_status new_tensor(const call *c, const int64_t sizes[3], results *r) {
    static const int32_t *const dtypes[] = {[RCV_AS_FLOAT32] = &torch.float32,
                                            [RCV_AS_FLOAT64] = &torch.float64,
                                            [RCV_AS_FLOAT16] = &torch.float16,
                                            [RCV_AS_BFLOAT16] = &torch.bfloat16};
    const int64_t strides[] = {sizes[1] * sizes[2], sizes[2], 1};
    tensor *t = &r->at[r->count];
    bool cpu = c->x.device == DLPACK_CPU;
    if (torch.aoti_torch_empty_strided(3, sizes, strides, *dtypes[c->type], cpu ? torch.cpu : torch.cuda,
                                       cpu ? -1 : c->x.ordinal, t))
        return rcvb_fail(RCV_NO_MEMORY, "PyTorch has no memory for the results");
    torch.aoti_torch_get_data_ptr(*t, &r->data[r->count++]);
    return RCV_OK;
}

static rcv_status new_results(const call *c, results *r) {
    const int64_t y[] = {c->x.shape[0], c->x.shape[1], rcv_net_output(c->net)};
    rcv_status status = new_tensor(c, y, r);
    for (size_t s = 0; s < rcv_net_state_count(c->net) && !status; s++) {
        const rcv_state *state = rcv_net_state(c->net, s);
        const int64_t sizes[] = {state->total / state->size, c->batch, state->size};
        status = new_tensor(c, sizes, r);
    }
    return status;
}

static rcv_status run(const call *c, const results *r) {
    rcvb_lease lease;
    rcv_status status = rcvb_acquire(&c->kind, c->steps, c->batch, c->stream, (uint64_t)c->frozen, &lease);
    if (!status) {
        rcv_forward data = RCV_INIT(rcv_forward, .tensors = c->tensors, .x = c->x.data, .y = r->data[0],
                                    .steps = c->steps, .batch = c->batch, .same_parameters = lease.same,
                                    .final = (void *const *)&r->data[1], .initial = c->has_states ? c->initial : NULL);
        status = rcvb_pass(rcv_run_forward(lease.run, &data));
    }
    rcvb_release(&lease, !status);
    return status;
}

/* A list of the results; NULL with an exception where Python has no memory. */
static object give(const results *r) {
    object list = python.PyList_New((intptr_t)r->count);
    for (size_t i = 0; i < r->count && list; i++) python.PyList_SetItem(list, (intptr_t)i, wrap(r->at[i]));
    return list;
}

static bool has_simple_states(const rcv_net *net) {
    for (size_t s = 0; s < rcv_net_state_count(net); s++) {
        if (!rcv_net_state(net, s)->size) return false;
    }
    return true;
}

static object none(void) {
    python.Py_IncRef(python.none);
    return python.none;
}

/* net, flags, frozen, x, parameters, names, states */
static object run_quickly(object self, object const *arguments, intptr_t count) {
    call c;
    results r = {.count = 0};
    (void)self;
    if (count != 7) return none();
    memset(&c.kind, 0, sizeof c.kind);
    c.net = (const rcv_net *)(intptr_t)python.PyLong_AsLongLong(arguments[0]);
    c.flags = python.PyLong_AsLongLong(arguments[1]);
    c.frozen = python.PyLong_AsLongLong(arguments[2]);
    c.stream = NULL;
    if (python.PyErr_Occurred()) return NULL;
    if (!has_simple_states(c.net) || !read_input(&c, arguments[3]) ||
        !read_parameters(&c, arguments[4], arguments[5]) || !read_states(&c, arguments[6]) || !find_place(&c)) {
        python.PyErr_Clear();
        return none();
    }
    rcv_status status = new_results(&c, &r);
    void *thread = python.PyEval_SaveThread();
    if (!status) status = run(&c, &r);
    python.PyEval_RestoreThread(thread);
    object list = status ? NULL : give(&r);
    for (size_t i = 0; i < r.count; i++) torch.aoti_torch_delete_tensor_object(r.at[i]);
    if (status)
        python.PyErr_SetString(status == RCV_NO_MEMORY ? python.memory_error : python.runtime_error, rcvb_message());
    return list;
}

/* ---- the function ---- */

static rcv_status find_wrap(void) {
    void *loaded = dlopen("libtorch_python.so", RTLD_NOW | RTLD_NOLOAD);
    void *found = loaded ? dlsym(loaded, "_Z16THPVariable_WrapRKN2at10TensorBaseE") : NULL;
    memcpy(&wrap, &found, sizeof found);
    tensor_class = loaded ? (object *)dlsym(loaded, "THPVariableClass") : NULL;
    parameter_class = loaded ? (object *)dlsym(loaded, "ParameterClass") : NULL;
    if (wrap && tensor_class && *tensor_class && parameter_class && *parameter_class) return RCV_OK;
    return rcvb_fail(RCV_UNSUPPORTED, "this PyTorch does not say how its tensors become objects of Python");
}

rcv_status rcvb_torch_quick(const void *table, void **function) {
    static method_definition definition = {"run", run_quickly, METHOD_IS_FAST,
                                           "Runs a network forwards without derivatives."};
    *function = NULL;
    exchange = table;
    if (!exchange || exchange->major != DLPACK_MAJOR || !exchange->borrow)
        return rcvb_fail(RCV_UNSUPPORTED, "this PyTorch has no DLPack exchange table of version %d", DLPACK_MAJOR);
    rcv_status status = rcvb_find_python();
    if (!status) status = find_wrap();
    if (status) return status;
    *function = python.PyCFunction_NewEx(&definition, NULL, NULL);
    return *function ? RCV_OK : rcvb_fail(RCV_NO_MEMORY, "Python has no memory for a function");
}
