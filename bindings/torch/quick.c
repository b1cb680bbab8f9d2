/* Calls past PyTorch's dispatcher: the tensors' addresses come from PyTorch's DLPack exchange table. */
#include "torch/quick.h"
#include "call/shared.h"
#include "torch/call.h"
#include "torch/operators.h"
#include "torch/python.h"

#include <dlfcn.h>
#include <string.h>

enum { MOST_TENSORS = 128, GPU_ALIGNMENT = 16 };

/* ---- DLPack, as its version 1 lays it out ---- */

enum { DLPACK_MAJOR = 1, DLPACK_CPU = 1, DLPACK_CUDA = 2 };
enum { DLPACK_INT = 0, DLPACK_UINT = 1, DLPACK_FLOAT = 2, DLPACK_BFLOAT = 4, DLPACK_BOOL = 6 };

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
static object is_neg, untyped_storage, nbytes; /* names of methods */

/* ---- tensors ---- */

static bool find_dtype(const dl_tensor *t, int32_t *dtype) {
    static const struct {
        uint8_t code, bits;
        const int32_t *dtype;
    } dtypes[] = {{DLPACK_FLOAT, 32, &torch.float32}, {DLPACK_FLOAT, 64, &torch.float64},
                  {DLPACK_FLOAT, 16, &torch.float16}, {DLPACK_BFLOAT, 16, &torch.bfloat16},
                  {DLPACK_INT, 64, &torch.int64},     {DLPACK_UINT, 8, &torch.uint8},
                  {DLPACK_BOOL, 8, &torch.boolean}};
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (t->code == dtypes[i].code && t->bits == dtypes[i].bits) {
            *dtype = *dtypes[i].dtype;
            return t->lanes == 1;
        }
    }
    return false;
}

static bool describe(const dl_tensor *t, about *a) {
    int64_t elements = 1;
    bool cpu = t->device == DLPACK_CPU;
    for (int d = t->dims; d-- > 0; elements *= t->shape[d]) {
        if (t->shape[d] != 1 && t->strides[d] != elements) return false;
    }
    *a = (about){.dims = t->dims,
                 .sizes = t->shape,
                 .elements = elements,
                 .device = cpu ? torch.cpu : torch.cuda,
                 .ordinal = cpu ? -1 : t->ordinal,
                 .data = (char *)t->data + t->byte_offset};
    bool aligned = cpu || (t->device == DLPACK_CUDA && (uintptr_t)a->data % GPU_ALIGNMENT == 0);
    return aligned && find_dtype(t, &a->dtype);
}

/* Whether PyTorch reads the tensor's numbers with the other sign, as it does the imaginary part of a conjugate. */
static bool has_other_sign(object o) {
    object found = python.PyObject_CallMethodObjArgs(o, is_neg, NULL);
    bool other = found != python.no;
    python.Py_DecRef(found);
    return other;
}

/* A tensor as PyTorch itself makes it, whose memory can be read in place. */
static bool borrow(object o, about *a) {
    dl_tensor t;
    object class = python.PyObject_Type(o);
    bool is_parameter = class == *parameter_class, simple = is_parameter || class == *tensor_class;
    python.Py_DecRef(class);
    if (!simple || exchange->borrow(o, &t)) return false;
    bool stored = t.data != NULL; /* not so: zeros without memory */
    return stored && describe(&t, a) && (is_parameter || !has_other_sign(o));
}

/* ---- arguments ---- */

typedef struct {
    call call;
    gradients gradients;
    intptr_t place;    /* of x among the arguments that have gradients */
    about *next, *end; /* room for what is known of the tensors */
} reading;

/* Items of a tuple or list, which keeps them. */
static bool read_items(reading *r, object sequence, intptr_t from, intptr_t count, abouts *out) {
    bool fits = count >= 0 && count <= r->end - r->next;
    *out = (abouts){r->next, fits ? (size_t)count : 0};
    for (intptr_t i = from; i < from + count && fits; i++) {
        object o = python.PySequence_GetItem(sequence, i);
        fits = o && borrow(o, r->next++);
        python.Py_DecRef(o);
    }
    return fits;
}

/* The tensors of a tuple or list. */
static bool read_all(reading *r, object sequence, abouts *out) {
    object class = python.PyObject_Type(sequence);
    bool keeps =
        class == python.tuple_class || class == python.list_class; /* another sequence may make its items anew */
    python.Py_DecRef(class);
    return keeps && read_items(r, sequence, 0, python.PySequence_Size(sequence), out);
}

static bool read_item(object sequence, intptr_t i, about *out) {
    object o = python.PySequence_GetItem(sequence, i);
    bool fits = o && borrow(o, out);
    python.Py_DecRef(o);
    return fits;
}

static long long read_integer(object o) { return python.PyLong_AsLongLong(o); }

static void read_net(reading *r, object const *arguments) {
    r->call.net = (const rcv_net *)(intptr_t)read_integer(arguments[0]);
    r->call.flags = read_integer(arguments[1]);
}

/* The parameters, the initial and the restart states are items `from` to `end` of the tuple. */
static bool read_tensors(reading *r, object tuple, intptr_t from, intptr_t end, object const *counts) {
    call *c = &r->call;
    intptr_t initial = from + read_integer(counts[0]), restart = initial + read_integer(counts[1]);
    return read_items(r, tuple, from, initial - from, &c->parameters) &&
           read_items(r, tuple, initial, restart - initial, &c->initial) &&
           read_items(r, tuple, restart, end - restart, &c->restart);
}

/* ---- calls ---- */

static object none(void) {
    python.Py_IncRef(python.none);
    return python.none;
}

/* None, without an exception. */
static object refuse(void) {
    python.PyErr_Clear();
    return none();
}

/* Sets the next items of a tuple: the next results, or None. false, with an exception: Python has no memory. */
static bool set_items(object tuple, intptr_t *next, size_t count, bool wanted, const tensor **results) {
    for (size_t i = 0; i < count; i++) {
        object o = wanted ? wrap(*(*results)++) : none();
        if (!o || python.PyTuple_SetItem(tuple, (*next)++, o)) return false;
    }
    return true;
}

static object give_results(const tensors *out) {
    intptr_t next = 0;
    const tensor *results = out->at;
    object tuple = python.PyTuple_New((intptr_t)out->count);
    if (tuple && set_items(tuple, &next, out->count, true, &results)) return tuple;
    python.Py_DecRef(tuple);
    return NULL;
}

static object run_forward(call *c, uint64_t frozen) {
    tensors out = {0};
    void *thread = python.PyEval_SaveThread();
    rcv_status status = rcvb_check_call(c);
    if (!status) status = rcvb_run_forward(c, frozen, &out);
    python.PyEval_RestoreThread(thread);
    object found = status ? refuse() : give_results(&out);
    rcvb_delete_tensors(&out);
    return found;
}

/* ---- without derivatives ---- */

static bool read_parameters(reading *r, object parameters, object names) {
    intptr_t count = python.PyTuple_Size(names);
    bool fits = count >= 0 && count <= r->end - r->next;
    r->call.parameters = (abouts){r->next, fits ? (size_t)count : 0};
    for (intptr_t i = 0; i < count && fits; i++) {
        object o = python.PyDict_GetItemWithError(parameters, python.PyTuple_GetItem(names, i));
        fits = o && borrow(o, r->next) && r->next->dtype == r->call.x.dtype;
        r->next++;
    }
    return fits;
}

/* What the modules check before they call an operator. */
static bool have_shapes(const abouts *states, const rcv_net *net, int64_t batch) {
    if (states->count > rcv_net_state_count(net)) return false;
    for (size_t i = 0; i < states->count; i++) {
        const rcv_state *s = rcv_net_state(net, i);
        const about *a = &states->at[i];
        bool fits = s->size && a->dims == 3 && a->sizes[0] == s->total / s->size && a->sizes[1] == batch &&
                    a->sizes[2] == s->size;
        if (!fits) return false;
    }
    return true;
}

static rcv_dtype products_of(const call *c) {
    bool gpu = c->x.device == torch.cuda;
    if (c->x.dtype == torch.float64) return RCV_FLOAT64;
    if (c->x.dtype == torch.bfloat16) return RCV_BFLOAT16;
    if (c->x.dtype == torch.float16) return gpu ? RCV_FLOAT16 : RCV_FLOAT32;
    return gpu && c->flags & RCVB_ALLOW_TF32 ? RCV_TFLOAT32 : RCV_FLOAT32;
}

/* net, flags, frozen, x, parameters, names, states */
static bool read_inference(reading *r, object const *arguments) {
    call *c = &r->call;
    read_net(r, arguments);
    if (!borrow(arguments[3], &c->x) || c->x.dims != 3) return false;
    if (!read_parameters(r, arguments[4], arguments[5]) || !read_all(r, arguments[6], &c->initial)) return false;
    int64_t batch = c->x.sizes[c->flags & RCVB_BATCH_FIRST ? 0 : 1];
    c->flags = (c->flags & ~(int64_t)(RCVB_ALLOW_TF32 | RCVB_DTYPE)) | (int64_t)products_of(c);
    return batch > 0 && have_shapes(&c->initial, c->net, batch);
}

static object infer_quickly(object self, object const *arguments, intptr_t count) {
    about room[MOST_TENSORS];
    reading r = {.next = room, .end = room + MOST_TENSORS};
    (void)self;
    if (count != 7 || !read_inference(&r, arguments)) return refuse();
    long long frozen = read_integer(arguments[2]);
    return python.PyErr_Occurred() ? refuse() : run_forward(&r.call, (uint64_t)frozen);
}

/* ---- in training ---- */

/* net, flags, parameter_count, initial_count, lengths, resets, seed, x, tensors */
static bool read_forward(reading *r, object const *arguments) {
    call *c = &r->call;
    read_net(r, arguments);
    return borrow(arguments[7], &c->x) &&
           read_tensors(r, arguments[8], 0, python.PySequence_Size(arguments[8]), &arguments[2]) &&
           read_all(r, arguments[4], &c->lengths) && read_all(r, arguments[5], &c->resets) &&
           read_all(r, arguments[6], &c->seed) && !python.PyErr_Occurred();
}

static object forward_quickly(object self, object const *arguments, intptr_t count) {
    about room[MOST_TENSORS];
    reading r = {.next = room, .end = room + MOST_TENSORS};
    (void)self;
    return count == 9 && read_forward(&r, arguments) ? run_forward(&r.call, 0) : refuse();
}

/* One about each final state: without elements where there is no gradient; none at all where there is none of any state. */
static bool read_final(reading *r, object grads, intptr_t states) {
    bool any = false;
    about *first = r->next;
    if (states < 0 || states > r->end - r->next) return false;
    for (intptr_t i = 0; i < states; i++, r->next++) {
        object o = python.PyTuple_GetItem(grads, 1 + i);
        bool given = o != python.none;
        if (!given)
            *r->next = (about){.dtype = r->call.x.dtype, .device = r->call.x.device, .ordinal = r->call.x.ordinal};
        else if (!o || !borrow(o, r->next))
            return false;
        any = any || given;
    }
    r->gradients.dfinal = (abouts){first, any ? (size_t)states : 0};
    return true;
}

static bool read_grads(reading *r, object grads) {
    intptr_t states = (intptr_t)rcv_net_state_count(r->call.net);
    if (python.PyTuple_Size(grads) < 1 + states) return false;
    bool given = python.PyTuple_GetItem(grads, 0) != python.none;
    return read_items(r, grads, 0, given, &r->gradients.dy) && read_final(r, grads, states);
}

/* Whether any of so many gradients is needed. */
static bool is_needed(object needs, intptr_t *next, size_t count) {
    bool needed = false;
    for (size_t i = 0; i < count; i++) needed |= python.PyTuple_GetItem(needs, (*next)++) != python.no;
    return needed;
}

/* Writes `wanted`. */
static bool read_needs(const reading *r, object needs, char *wanted) {
    const call *c = &r->call;
    const size_t parameters = c->parameters.count, initial = c->initial.count, restart = c->restart.count;
    intptr_t next = r->place;
    if (next < 0 || python.PyTuple_Size(needs) != next + (intptr_t)(1 + parameters + initial + restart)) return false;
    wanted[RCVB_WANT_X] = is_needed(needs, &next, 1) ? '1' : '0';
    for (size_t i = 0; i < parameters; i++) wanted[RCVB_WANT_PARAMETERS + i] = is_needed(needs, &next, 1) ? '1' : '0';
    wanted[RCVB_WANT_PARAMETERS + parameters] = 0;
    wanted[RCVB_WANT_INITIAL] = is_needed(needs, &next, initial) ? '1' : '0';
    wanted[RCVB_WANT_RESTART] = is_needed(needs, &next, restart) ? '1' : '0';
    return true;
}

/* The size of a tensor's storage. */
static bool read_storage(object o, int64_t *bytes) {
    object storage = python.PyObject_CallMethodObjArgs(o, untyped_storage, NULL);
    object size = storage ? python.PyObject_CallMethodObjArgs(storage, nbytes, NULL) : NULL;
    if (size) *bytes = read_integer(size);
    python.Py_DecRef(storage);
    python.Py_DecRef(size);
    return size && *bytes > 0;
}

static bool read_reserve(reading *r, object saved, intptr_t i) {
    gradients *g = &r->gradients;
    return read_item(saved, i, &g->reserve) && read_storage(python.PyTuple_GetItem(saved, i), &g->reserve_bytes);
}

/* net, flags, parameter_count, initial_count, tensor_count, length_count, reset_count, place, saved, needs, grads */
static bool read_backward(reading *r, object const *arguments, char *wanted) {
    call *c = &r->call;
    object saved = arguments[8];
    intptr_t last = python.PyTuple_Size(saved) - 1, lengths = 1 + read_integer(arguments[4]),
             resets = lengths + read_integer(arguments[5]), seed = resets + read_integer(arguments[6]);
    read_net(r, arguments);
    r->place = read_integer(arguments[7]);
    r->gradients.wanted = wanted;
    return read_item(saved, 0, &c->x) && read_grads(r, arguments[10]) &&
           read_tensors(r, saved, 1, lengths, &arguments[2]) &&
           read_items(r, saved, lengths, resets - lengths, &c->lengths) &&
           read_items(r, saved, resets, seed - resets, &c->resets) &&
           read_items(r, saved, seed, last - seed, &c->seed) && read_reserve(r, saved, last) &&
           read_needs(r, arguments[9], wanted) && !python.PyErr_Occurred();
}

static object give_gradients(const reading *r, const tensors *out) {
    const call *c = &r->call;
    const char *wanted = r->gradients.wanted;
    const tensor *results = out->at;
    intptr_t next = 0, count = r->place + 1 + (intptr_t)(c->parameters.count + c->initial.count + c->restart.count);
    object tuple = python.PyTuple_New(count);
    bool done = tuple && set_items(tuple, &next, (size_t)r->place, false, &results) &&
                set_items(tuple, &next, 1, wanted[RCVB_WANT_X] == '1', &results);
    for (size_t i = 0; i < c->parameters.count && done; i++)
        done = set_items(tuple, &next, 1, wanted[RCVB_WANT_PARAMETERS + i] == '1', &results);
    done = done && set_items(tuple, &next, c->initial.count, wanted[RCVB_WANT_INITIAL] == '1', &results) &&
           set_items(tuple, &next, c->restart.count, wanted[RCVB_WANT_RESTART] == '1', &results);
    if (done) return tuple;
    python.Py_DecRef(tuple);
    return NULL;
}

static object run_backward(reading *r) {
    tensors out = {0};
    void *thread = python.PyEval_SaveThread();
    rcv_status status = rcvb_check_call(&r->call);
    if (!status) status = rcvb_run_backward(&r->call, &r->gradients, &out);
    python.PyEval_RestoreThread(thread);
    object found = status ? refuse() : give_gradients(r, &out);
    rcvb_delete_tensors(&out);
    return found;
}

static object backward_quickly(object self, object const *arguments, intptr_t count) {
    about room[MOST_TENSORS];
    char wanted[RCVB_WANT_PARAMETERS + MOST_TENSORS + 1];
    reading r = {.next = room, .end = room + MOST_TENSORS};
    (void)self;
    return count == 11 && read_backward(&r, arguments, wanted) ? run_backward(&r) : refuse();
}

/* ---- the functions ---- */

static rcv_status find_wrap(void) {
    void *loaded = dlopen("libtorch_python.so", RTLD_NOW | RTLD_NOLOAD);
    void *found = loaded ? dlsym(loaded, "_Z16THPVariable_WrapRKN2at10TensorBaseE") : NULL;
    memcpy(&wrap, &found, sizeof found);
    tensor_class = loaded ? (object *)dlsym(loaded, "THPVariableClass") : NULL;
    parameter_class = loaded ? (object *)dlsym(loaded, "ParameterClass") : NULL;
    if (wrap && tensor_class && *tensor_class && parameter_class && *parameter_class) return RCV_OK;
    return rcvb_fail(RCV_UNSUPPORTED, "this PyTorch does not say how its tensors become objects of Python");
}

static rcv_status make_names(void) {
    is_neg = python.PyUnicode_InternFromString("is_neg");
    untyped_storage = python.PyUnicode_InternFromString("untyped_storage");
    nbytes = python.PyUnicode_InternFromString("nbytes");
    bool complete = is_neg && untyped_storage && nbytes;
    return complete ? RCV_OK : rcvb_fail(RCV_NO_MEMORY, "Python has no memory for names");
}

static object make_functions(void) {
    static method_definition definitions[] = {
        {"infer", infer_quickly, METHOD_IS_FAST, "Runs a network forwards without derivatives."},
        {"forward", forward_quickly, METHOD_IS_FAST, "Runs a network forwards in training."},
        {"backward", backward_quickly, METHOD_IS_FAST, "Runs a network backwards."},
    };
    enum { FUNCTIONS = sizeof definitions / sizeof *definitions };
    object tuple = python.PyTuple_New(FUNCTIONS);
    for (intptr_t i = 0; i < FUNCTIONS && tuple; i++)
        python.PyTuple_SetItem(tuple, i, python.PyCFunction_NewEx(&definitions[i], NULL, NULL));
    return tuple;
}

rcv_status rcvb_torch_quick(const void *table, void **functions) {
    *functions = NULL;
    exchange = table;
    if (!exchange || exchange->major != DLPACK_MAJOR || !exchange->borrow)
        return rcvb_fail(RCV_UNSUPPORTED, "this PyTorch has no DLPack exchange table of version %d", DLPACK_MAJOR);
    rcv_status status = rcvb_find_python();
    if (!status) status = find_wrap();
    if (!status) status = make_names();
    if (status) return status;
    *functions = make_functions();
    return *functions ? RCV_OK : rcvb_fail(RCV_NO_MEMORY, "Python has no memory for functions");
}
