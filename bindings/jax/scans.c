/* Scans: forward and backward calls. */
#include "call/scans.h"
#include "call/shared.h"
#include "jax/frame.h"
#include "jax/handlers.h"

enum { HALVES = 2 };

/* What is known of a call. */
typedef struct {
    rcvb_call of;
    rcvb_scan_shape shape;
    xla_type type, state_type;
    xla_string given;
    size_t next; /* of `given` */
    rcv_scan_data data;
} scan_call;

static bool next_is_given(scan_call *c) { return c->next < c->given.length && c->given.at[c->next++] == '1'; }

static rcv_status find_type(scan_call *c, int64_t flags) {
    c->shape.dtype = (rcv_dtype)(flags & RCVB_JAX_TYPE);
    c->state_type = c->shape.dtype == RCV_FLOAT64 ? XLA_FLOAT64 : XLA_FLOAT32;
    switch (c->shape.dtype) {
    case RCV_FLOAT32: c->type = XLA_FLOAT32; return RCV_OK;
    case RCV_FLOAT64: c->type = XLA_FLOAT64; return RCV_OK;
    case RCV_FLOAT16: c->type = XLA_FLOAT16; return RCV_OK;
    case RCV_BFLOAT16: c->type = XLA_BFLOAT16; return RCV_OK;
    default: return rcvb_fail(RCV_INVALID, "the call's flags name no type of arrays");
    }
}

static rcv_status begin_scan(const xla_frame *frame, rcvb_platform platform, scan_call *c) {
    const xla_buffer *a = NULL;
    int64_t flags = 0;
    rcv_status status = rcvb_begin_call(frame, platform, &c->of);
    if (!status) status = rcvb_read_integer(&c->of, "flags", &flags);
    if (!status) status = rcvb_read_text(&c->of, "given", &c->given);
    if (!status) status = find_type(c, flags);
    if (!status) status = rcvb_see_argument(&c->of, "a", &a);
    if (status) return status;
    if (a->dims != 3) return rcvb_fail(RCV_INVALID, "a does not have three dimensions");
    if ((flags & RCVB_JAX_SCAN_LENGTHS) && c->of.device != RCVB_CPU) /* the library reads them on the host */
        return rcvb_fail(RCV_INVALID, "the scan was traced for the CPU and runs on a GPU: make the GPU the default "
                                      "device where it is traced");
    c->shape.steps = a->sizes[0];
    c->shape.batch = a->sizes[1];
    c->shape.channels = a->sizes[2];
    c->shape.device = c->of.device;
    c->shape.reverse = (flags & RCVB_JAX_SCAN_REVERSE) != 0;
    c->shape.lengths = (flags & RCVB_JAX_SCAN_LENGTHS) != 0;
    c->shape.resets = (flags & RCVB_JAX_SCAN_RESETS) != 0;
    return RCV_OK;
}

static int64_t elements_of(const scan_call *c) { return c->shape.steps * c->shape.batch * c->shape.channels; }
static int64_t state_elements(const scan_call *c) { return c->shape.batch * c->shape.channels; }

static rcv_status take_inputs(scan_call *c, void **second, const char *second_name) {
    void *a = NULL, *initial = NULL, *lengths = NULL, *resets = NULL;
    rcv_status status = rcvb_take_argument(&c->of, c->type, elements_of(c), "a", &a);
    if (!status) status = rcvb_take_argument(&c->of, c->type, elements_of(c), second_name, second);
    if (!status && next_is_given(c))
        status = rcvb_take_argument(&c->of, c->state_type, state_elements(c), "the initial state", &initial);
    if (!status && c->shape.lengths)
        status = rcvb_take_argument(&c->of, XLA_INT32, HALVES * c->shape.batch, "lengths", &lengths);
    if (!status && c->shape.resets)
        status = rcvb_take_argument(&c->of, XLA_BOOL, c->shape.steps * c->shape.batch, "resets", &resets);
    c->data = RCV_INIT(rcv_scan_data, .a = a, .initial = initial, .lengths = lengths, .resets = resets);
    return status;
}

static rcv_status forward(const xla_frame *frame, rcvb_platform platform) {
    scan_call c = {0};
    rcvb_scan_lease lease = {0};
    void *b = NULL;
    rcv_status status = begin_scan(frame, platform, &c);
    if (!status) status = take_inputs(&c, &b, "b");
    c.data.b = b;
    if (!status) status = rcvb_take_result(&c.of, c.type, elements_of(&c), "h", &c.data.h);
    if (!status) status = rcvb_check_all_taken(&c.of);
    if (!status) status = rcvb_acquire_scan(&c.shape, c.of.stream, &lease);
    if (!status) status = rcvb_pass(rcv_scan_forward(lease.scan, &c.data));
    rcvb_release_scan(&lease);
    return status;
}

static rcv_status take_wanted(scan_call *c, rcv_scan_gradients *g) {
    c->next = 0;
    rcv_status status = rcvb_read_text(&c->of, "wanted", &c->given);
    if (!status && next_is_given(c))
        status = rcvb_take_result(&c->of, c->type, elements_of(c), "the gradient of a", &g->da);
    if (!status && next_is_given(c))
        status = rcvb_take_result(&c->of, c->type, elements_of(c), "the gradient of b", &g->db);
    if (!status && next_is_given(c))
        status = rcvb_take_result(&c->of, c->state_type, state_elements(c), "the gradient of the initial state",
                                  &g->dinitial);
    return status;
}

static rcv_status backward(const xla_frame *frame, rcvb_platform platform) {
    scan_call c = {0};
    rcvb_scan_lease lease = {0};
    void *h = NULL, *dh = NULL;
    rcv_status status = begin_scan(frame, platform, &c);
    if (!status) status = take_inputs(&c, &h, "h");
    c.data.h = h;
    if (!status) status = rcvb_take_argument(&c.of, c.type, elements_of(&c), "the gradient of h", &dh);
    rcv_scan_gradients gradients = RCV_INIT(rcv_scan_gradients, .dh = dh);
    if (!status) status = take_wanted(&c, &gradients);
    if (!status) status = rcvb_check_all_taken(&c.of);
    if (!status) status = rcvb_acquire_scan(&c.shape, c.of.stream, &lease);
    if (!status) status = rcvb_pass(rcv_scan_backward(lease.scan, &c.data, &gradients));
    rcvb_release_scan(&lease);
    return status;
}

xla_error *rcvb_jax_scan_cpu(xla_frame *frame) { return rcvb_answer(frame, RCVB_ON_HOST, forward); }
xla_error *rcvb_jax_scan_cuda(xla_frame *frame) { return rcvb_answer(frame, RCVB_ON_CUDA, forward); }
xla_error *rcvb_jax_scan_backward_cpu(xla_frame *frame) { return rcvb_answer(frame, RCVB_ON_HOST, backward); }
xla_error *rcvb_jax_scan_backward_cuda(xla_frame *frame) { return rcvb_answer(frame, RCVB_ON_CUDA, backward); }
