/* Networks by description, and plans and runs by the sizes of a call: for adapters, whose callers have tensors and no such objects.
 *
 * A network is described by one text: a line of options, NAME=VALUE separated by spaces, and then the name of a built-in cell or a cell's text:
 *
 *     input=8 hidden=16 layers=2 dropout=0.5\nlstm
 *
 * Networks are kept for the life of the process, plans while they are among the last used. For every kind of call there is a list of plans; a call
 * takes one of them that is large enough, or a new one is made. The first calls of a kind use a plan that needs no search; then a thread looks
 * for a better one.
 *
 * A forward call with a reserve is given a ticket, which names the plan and its version. The ticket is stored as the size of the reserve's memory
 * (rcvb_reserve_bytes), so that whatever keeps the memory keeps the ticket, too. A ticket whose plan is gone is refused; then the forward
 * call must be repeated.
 *
 * Calls of a kind with a plan string need no tickets: a plan that is made again has the same reserve, so that every run of the kind and the
 * sizes can make the backward call.
 *
 * Thread-safe, all functions. */
#ifndef RCVB_CALL_H
#define RCVB_CALL_H

#include <recurve.h>

/* The kind of a call: all but its sizes. */
typedef struct {
    const rcv_net *net;
    int device; /* the number of a GPU; RCVB_CPU */
    rcv_dtype dtype;
    rcv_array_type data, states, parameters; /* gradients have the type of the parameters */
    rcv_effort effort;                       /* RCV_BACKGROUND: of all calls but the first few */
    int threads;
    bool training, lengths, device_lengths, resets, batch_major;
    const char *schedule; /* NULL, or a plan string: every call uses this plan, made for exactly its sizes. Copied */
} rcvb_kind;

enum { RCVB_CPU = -1 };

/* The process's context. */
RCV_API rcv_status rcvb_context(rcv_context **context);
/* One sentence about the last failure of a function of this header on the calling thread. */
RCV_API const char *rcvb_message(void);
/* The network of a description; RCV_INVALID where it is none. Valid for the life of the process. */
RCV_API rcv_status rcvb_net(const char *description, size_t length, const rcv_net **net);

/* A run that a call has for itself until rcvb_release. */
typedef struct {
    rcv_run *run;
    int64_t version;  /* of the plan; 0: the plan has no reserve */
    size_t reserve;   /* bytes of a reserve; 0: the plan is for inference */
    unsigned ticket;  /* of forward calls with this run */
    bool same;        /* a frozen call's parameters are those of the run's last call */
    void *plan, *use; /* private */
} rcvb_lease;

/* A run for a forward call of these sizes, on this stream (a GPU's), with the kind's newest plan. frozen: 0, or a number of the caller's
 * choice that stands for parameters that do not change: calls with this number pack them once. */
rcv_status rcvb_acquire(const rcvb_kind *kind, int64_t steps, int64_t batch, void *stream, uint64_t frozen,
                        rcvb_lease *lease);
/* A run for the backward call of a forward call that left a reserve in memory of so many bytes. *lease has no run where the ticket's plan is
 * gone or the memory is no such reserve. */
rcv_status rcvb_acquire_again(const rcvb_kind *kind, size_t reserve_bytes, void *stream, rcvb_lease *lease);
/* packed: the call succeeded, so that the next one with the same frozen parameters need not pack them. */
void rcvb_release(rcvb_lease *lease, bool packed);
/* The size of memory for the reserve of a lease. */
size_t rcvb_reserve_bytes(const rcvb_lease *lease);

/* Waits until all searches for better plans have ended; calls by other threads wait, too. */
RCV_API void rcvb_wait_for_searches(void);
/* Ends all searches for better plans, before the process ends: calls go on with the plans that are there. */
RCV_API void rcvb_stop_searches(void);
/* Frees the runs that have packed these parameters. */
RCV_API void rcvb_forget(uint64_t frozen);
/* A plan of the caller's own, for calls of this kind and these sizes with the kind's effort. Free with rcv_plan_free. */
RCV_API rcv_status rcvb_plan(const rcvb_kind *kind, int64_t steps, int64_t batch, rcv_plan **plan);

#endif
