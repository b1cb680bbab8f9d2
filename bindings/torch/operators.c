/* PyTorch operators that run a network. The derivative of the first, which calls the others, is in python/recurve/nn/_operators.py.
 *
 *   recurve::network(str net, Tensor x, Tensor[] parameters, Tensor[] initial, Tensor[] restart, Tensor[] lengths, Tensor[] resets,
 *                    Tensor[] seed, int flags, int frozen) -> Tensor[]
 *   recurve::forward(...)    the same without derivatives
 *   recurve::backward(str net, Tensor[] dy, Tensor[] dfinal, Tensor x, Tensor[] parameters, Tensor[] initial, Tensor[] restart,
 *                     Tensor[] lengths, Tensor[] resets, Tensor[] seed, Tensor reserve, int flags, str wanted) -> Tensor[]
 *
 * A list stands for an optional tensor (lengths, resets, seed, dy: none or one) or for one a state (initial, restart, dfinal: none or all; an
 * empty tensor is none). Forward returns y, the final states and, with TRAINING, a reserve (call.c).
 * `wanted` has a '1' for each gradient that is returned, in this order: x, initial, restart, and each parameter; the gradients come in the order x,
 * parameters, initial, restart. */
#include "torch/operators.h"
#include "call/shared.h"
#include "torch/call.h"
#include "torch/scan.h"

#include <stdlib.h>
#include <string.h>

/* ---- arguments ---- */

enum { PARAMETERS, INITIAL, RESTART, LENGTHS, RESETS, SEED, FORWARD_LISTS, DY = FORWARD_LISTS, DFINAL, LISTS };

/* The tensors that a kernel owns, and what is known of those in lists. */
typedef struct {
    tensor x, reserve; /* forward: reserve is NULL */
    tensors lists[LISTS];
    about *known;
    char *wanted;
} arguments;

static void delete_arguments(arguments *a) {
    rcvb_delete_tensor(a->x);
    rcvb_delete_tensor(a->reserve);
    for (size_t i = 0; i < LISTS; i++) rcvb_delete_tensors(&a->lists[i]);
    free(a->known);
    free(a->wanted);
}

static tensor take_tensor(value v) {
    tensor t;
    memcpy(&t, &v, sizeof t);
    return t;
}

static rcv_status take_net(value v, const rcv_net **net) {
    string s;
    size_t length = 0;
    const char *text = NULL;
    memcpy(&s, &v, sizeof s);
    torch.torch_string_length(s, &length);
    torch.torch_string_c_str(s, &text);
    rcv_status status = rcvb_net(text, length, net);
    torch.torch_delete_string(s);
    return status;
}

static rcv_status take_wanted(value v, char **wanted) {
    string s;
    const char *text = NULL;
    memcpy(&s, &v, sizeof s);
    torch.torch_string_c_str(s, &text);
    *wanted = text ? strdup(text) : NULL;
    torch.torch_delete_string(s);
    return *wanted ? RCV_OK : rcvb_fail(RCV_NO_MEMORY, "there is no memory for a call");
}

/* Takes all of these lists, also where one of them is refused. */
static rcv_status take_lists(const value *stack, tensors *lists, size_t count) {
    rcv_status status = RCV_OK;
    for (size_t i = 0; i < count; i++) {
        rcv_status taken = rcvb_take_list(stack[i], &lists[i]);
        if (taken) status = taken;
    }
    return status;
}

/* A seed is read where it is, wherever it begins. */
static rcv_status read_list(tensors *list, bool is_seed, about *known) {
    rcv_status status = RCV_OK;
    for (size_t i = 0; i < list->count && !status; i++) {
        if (is_seed)
            known[i] = rcvb_about(list->at[i]);
        else
            status = rcvb_read(&list->at[i], &known[i]);
    }
    return status;
}

static rcv_status read_tensors(arguments *a, call *c, gradients *g) {
    abouts *const lists[] = {&c->parameters, &c->initial, &c->restart, &c->lengths,
                             &c->resets,     &c->seed,    &g->dy,      &g->dfinal};
    size_t count = 0, next = 0;
    for (size_t i = 0; i < LISTS; i++) count += a->lists[i].count;
    a->known = calloc(count + 1, sizeof *a->known);
    rcv_status status = a->known ? rcvb_read(&a->x, &c->x) : rcvb_fail(RCV_NO_MEMORY, "there is no memory for a call");
    for (size_t i = 0; i < LISTS && !status; i++) {
        status = read_list(&a->lists[i], i == SEED, &a->known[next]);
        *lists[i] = (abouts){&a->known[next], a->lists[i].count};
        next += a->lists[i].count;
    }
    return status;
}

/* ---- kernels ---- */

static void forward_kernel(value *stack, uint64_t inputs, uint64_t outputs) {
    call c = {.flags = (int64_t)stack[8]};
    gradients none = {0};
    arguments a = {.x = take_tensor(stack[1])};
    tensors out = {0};
    (void)inputs;
    (void)outputs;
    rcv_status status = take_lists(stack + 2, a.lists, FORWARD_LISTS);
    rcv_status named = take_net(stack[0], &c.net);
    if (!status) status = named;
    if (!status) status = read_tensors(&a, &c, &none);
    if (!status) status = rcvb_check_call(&c);
    if (!status) status = rcvb_run_forward(&c, stack[9], &out);
    delete_arguments(&a);
    if (status) rcvb_delete_tensors(&out);
    rcvb_raise(status);
    stack[0] = rcvb_give_list(&out);
}

static rcv_status read_gradients(arguments *a, call *c, gradients *g) {
    rcv_status status = read_tensors(a, c, g);
    g->wanted = a->wanted;
    g->reserve = rcvb_about(a->reserve);
    torch.aoti_torch_get_storage_size(a->reserve, &g->reserve_bytes);
    return status;
}

static void backward_kernel(value *stack, uint64_t inputs, uint64_t outputs) {
    call c = {.flags = (int64_t)stack[11]};
    gradients g = {0};
    arguments a = {.x = take_tensor(stack[3]), .reserve = take_tensor(stack[10])};
    tensors out = {0};
    (void)inputs;
    (void)outputs;
    rcv_status status = take_lists(stack + 4, a.lists, FORWARD_LISTS);
    const rcv_status others[] = {take_lists(stack + 1, &a.lists[DY], LISTS - FORWARD_LISTS), take_net(stack[0], &c.net),
                                 take_wanted(stack[12], &a.wanted)};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (!status) status = others[i];
    }
    if (!status) status = read_gradients(&a, &c, &g);
    if (!status) status = rcvb_check_call(&c);
    if (!status) status = rcvb_run_backward(&c, &g, &out);
    delete_arguments(&a);
    if (status) rcvb_delete_tensors(&out);
    rcvb_raise(status);
    stack[0] = rcvb_give_list(&out);
}

/* ---- registration ---- */

/* The version of libtorch's C interface that this file was written for: 2.10. */
static const uint64_t interface_version = UINT64_C(2) << 56 | UINT64_C(10) << 48;

#define FORWARD_ARGUMENTS                                                                                              \
    "(str net, Tensor x, Tensor[] parameters, Tensor[] initial, Tensor[] restart, Tensor[] lengths, Tensor[] resets, " \
    "Tensor[] seed, int flags, int frozen) -> Tensor[]"

static const struct {
    const char *schema, *name;
    operator_kernel kernel;
} operators[] = {
    {"network" FORWARD_ARGUMENTS, "network", forward_kernel},
    {"forward" FORWARD_ARGUMENTS, "forward", forward_kernel},
    {"backward(str net, Tensor[] dy, Tensor[] dfinal, Tensor x, Tensor[] parameters, Tensor[] initial, Tensor[] "
     "restart, "
     "Tensor[] lengths, Tensor[] resets, Tensor[] seed, Tensor reserve, int flags, str wanted) -> Tensor[]",
     "backward", backward_kernel},
    {"scan(Tensor a, Tensor b, Tensor[] initial, Tensor[] lengths, Tensor[] resets, bool reverse) -> Tensor", "scan",
     rcvb_scan_kernel},
    {"scan_backward(Tensor dh, Tensor a, Tensor h, Tensor[] initial, Tensor[] lengths, Tensor[] resets, bool reverse) "
     "-> Tensor[]",
     "scan_backward", rcvb_scan_backward_kernel},
};

rcv_status rcvb_torch_register(void) {
    static const char *const keys[] = {"CPU", "CUDA"};
    library l = NULL;
    rcv_status status = rcvb_find_torch();
    if (status) return status;
    failure failed = torch.aoti_torch_library_init_fragment("recurve", "recurve", 0, &l);
    for (size_t i = 0; i < sizeof operators / sizeof *operators && !failed; i++)
        failed = torch.aoti_torch_library_def(l, operators[i].schema);
    for (size_t k = 0; k < sizeof keys / sizeof *keys && !failed; k++) {
        failed = torch.aoti_torch_library_init_impl("recurve", keys[k], "recurve", 0, &l);
        for (size_t i = 0; i < sizeof operators / sizeof *operators && !failed; i++)
            failed = torch.torch_library_impl(l, operators[i].name, operators[i].kernel, interface_version);
    }
    return failed ? rcvb_fail(RCV_UNSUPPORTED, "PyTorch refused to register the operators of recurve") : RCV_OK;
}
