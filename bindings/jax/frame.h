/* Calls as XLA makes them: attributes, arguments and results in their order, where the call runs, and its failure. */
#ifndef RCVB_FRAME_H
#define RCVB_FRAME_H

#include "call/call.h"
#include "jax/xla.h"

/* Where a handler runs, as it was registered. */
typedef enum { RCVB_ON_HOST, RCVB_ON_CUDA } rcvb_platform;

/* A call that is being read. */
typedef struct {
    const xla_frame *frame;
    int device; /* the number of the GPU; RCVB_CPU */
    void *stream;
    int64_t argument, result; /* the next ones */
} rcvb_call;

/* What a handler does for a call. */
typedef rcv_status rcvb_handler(const xla_frame *frame, rcvb_platform platform);
/* Runs it, or answers XLA's question for the version of the interface. NULL: it succeeded. */
xla_error *rcvb_answer(xla_frame *frame, rcvb_platform platform, rcvb_handler *run);

/* Refuses an XLA whose structs are other ones. */
rcv_status rcvb_begin_call(const xla_frame *frame, rcvb_platform platform, rcvb_call *call);

rcv_status rcvb_read_integer(const rcvb_call *call, const char *name, int64_t *value);
/* Not ended by NUL. */
rcv_status rcvb_read_text(const rcvb_call *call, const char *name, xla_string *value);

/* Takes the next argument or result, with so many elements of this type; `name` is used in messages. */
rcv_status rcvb_take_argument(rcvb_call *call, xla_type type, int64_t elements, const char *name, void **data);
rcv_status rcvb_take_result(rcvb_call *call, xla_type type, int64_t elements, const char *name, void **data);
/* The next argument, which stays the next. */
rcv_status rcvb_see_argument(const rcvb_call *call, const char *name, const xla_buffer **buffer);
/* Were all arguments and results taken? */
rcv_status rcvb_check_all_taken(const rcvb_call *call);

#endif
