/* Recurve: recurrent networks from a cell's equations.
 *
 * Conventions
 *   - Every call that can fail returns rcv_status. Outputs come last and are NULL (or untouched) on failure.
 *   - rcv_message() is one sentence about the last failure on the calling thread, as errno is the last error number.
 *   - The library never prints, exits or aborts on a caller's mistake.
 *   - NULL for an argument that is not said to be optional is RCV_INVALID in every function that returns a status, and the sentence has the
 *     argument's name. Functions that return a value need their object.
 *   - An array that a call writes overlaps no other array of that call, unless it says so: that is RCV_INVALID, with both names.
 *   - `new`/`free` pairs; free(NULL) is harmless. An object may be freed before the objects it was made from only where
 *     it says so: free in the reverse order of creation.
 *   - Cells, networks and plans are immutable once made and may be shared between threads; a run, a tensor collection,
 *     settings, a model, a learner and a trainer belong to one thread at a time.
 *   - Data is time-major and row-major: x is [steps, batch, input].
 *   - A child of fork() may go on with what its parent had, as long as no other thread of the parent was using it: threads are started anew.
 *     Not so a GPU, the ranks of a world, and oneDNN with more than one thread: those calls fail with a sentence.
 */
#ifndef RECURVE_H
#define RECURVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(RCV_BUILD_SHARED) || defined(__GNUC__)
#define RCV_API __attribute__((visibility("default")))
#else
#define RCV_API
#endif

/* ---- status ------------------------------------------------------------------------------------------------------ */

typedef enum {
    RCV_OK = 0,
    RCV_INVALID,     /* an argument, option, shape or name is wrong */
    RCV_SYNTAX,      /* a cell's text is wrong */
    RCV_FORMAT,      /* a file's content is wrong */
    RCV_IO,          /* the operating system refused a file */
    RCV_NO_MEMORY,   /* an allocation failed */
    RCV_UNSUPPORTED, /* well-formed, but not something this build or this schedule does */
    RCV_STOPPED,     /* the caller's callback asked to stop; the call says what is kept */
    RCV_PEER         /* another rank failed, and says so itself; the sentence names it */
} rcv_status;

typedef enum {
    RCV_FLOAT32 = 0,
    RCV_FLOAT64,
    RCV_FLOAT16, /* in files: read and widened. In plans, on a GPU: as RCV_BFLOAT16 */
    RCV_BFLOAT16, /* in files: read and widened. In plans: products of operands rounded to bfloat16, summed in float32, and
                   * activations held so; states, parameters, gradients and the caller's data are float32 */
    RCV_INT64,
    RCV_INT32,
    RCV_UINT8,
    RCV_BOOL,
    RCV_TFLOAT32 /* plans on a GPU only: float32, but products of operands rounded to 10 bits of mantissa (tf32) */
} rcv_dtype;

RCV_API const char *rcv_version(void);
RCV_API const char *rcv_message(void);
RCV_API const char *rcv_status_name(rcv_status status);
RCV_API const char *rcv_dtype_name(rcv_dtype dtype); /* "float32", ... */
RCV_API bool rcv_dtype_find(const char *name, rcv_dtype *dtype); /* false: no type has this name */
RCV_API size_t rcv_dtype_bytes(rcv_dtype dtype);

/* ---- context ----------------------------------------------------------------------------------------------------- */

typedef struct rcv_context rcv_context;

typedef struct {
    void *(*allocate)(void *user, size_t bytes); /* aligned as malloc aligns; NULL when there is no memory */
    void (*release)(void *user, void *memory);   /* never called with NULL */
    void *user;
} rcv_allocator;

typedef struct {
    const rcv_allocator *allocator;            /* NULL: of the C library, large blocks in large pages. Copied. */
    void (*log)(void *user, const char *line); /* NULL: silence */
    void *log_user;
    int64_t threads;     /* that a plan uses unless it says otherwise; 0: one a core */
    const char *kernels; /* a set of CPU kernels by name; NULL: RECURVE_KERNELS of the environment, or the best */
} rcv_context_options;

RCV_API rcv_status rcv_context_new(const rcv_context_options *options, rcv_context **context); /* options may be NULL */
RCV_API void rcv_context_free(rcv_context *context);
RCV_API int64_t rcv_context_threads(const rcv_context *context);
RCV_API const char *rcv_context_kernels(const rcv_context *context); /* the set in use; NULL: there is none so named */

/* The sets of kernels this CPU can run, from the portable one to the best. */
RCV_API size_t rcv_kernels_count(void);
RCV_API const char *rcv_kernels_name(size_t index); /* NULL past the end */

/* Frees a text that the library handed out. */
RCV_API void rcv_text_free(rcv_context *context, char *text);
/* Writes a whole file, or leaves what was there as it was: beside the path, synced, renamed. */
RCV_API rcv_status rcv_file_save(rcv_context *context, const char *path, const void *bytes, size_t length);
/* Text of a file made fit for a terminal: control characters of any encoding, characters that are not seen but turn the text around them, and
 * bytes that are not UTF-8 become \xNN or \u{N}, but for the characters in `keep` ("\n\t"; NULL: none). Writes what fits, with a NUL
 * behind it, into `room` bytes; returns the bytes of the whole without the NUL, as snprintf does. What rcv_message() and the log of
 * a context say went through it. */
RCV_API size_t rcv_escape(const char *bytes, size_t length, const char *keep, char *out, size_t room);

/* ---- devices ----------------------------------------------------------------------------------------------------- */

/* A device has a name: "cpu", or "cuda" (the first GPU), "cuda:1", ... NULL means "cpu". A CUDA plan's data lies in that
 * GPU's memory (lengths alone are the host's). Who has no runtime of his own to manage such memory may use these. */

/* RCV_OK where the device can be used; else the sentence says what is missing. The text tells its name, memory, and the
 * libraries that were found; `text` may be NULL. */
RCV_API rcv_status rcv_device_describe(rcv_context *context, const char *device, char **text);
RCV_API rcv_status rcv_memory_new(rcv_context *context, const char *device, size_t bytes, void **memory);
RCV_API void rcv_memory_free(rcv_context *context, const char *device, void *memory);
/* In the host's memory the two may overlap. */
RCV_API rcv_status rcv_memory_write(const char *device, void *to, const void *from, size_t bytes); /* from the host */
RCV_API rcv_status rcv_memory_read(const char *device, void *to, const void *from, size_t bytes);  /* to the host */

/* ---- cells ------------------------------------------------------------------------------------------------------- */

typedef struct rcv_cell rcv_cell;

typedef enum {
    RCV_DESCRIBE_FORWARD = 0,
    RCV_DESCRIBE_BACKWARD = 1, /* the adjoint recurrence as well */
    RCV_DESCRIBE_JSON = 2      /* machine-readable */
} rcv_describe_flags;

/* `file` is the name used in messages, NULL: "cell"; the text is copied and need not end in NUL. */
RCV_API rcv_status rcv_cell_parse(rcv_context *context, const char *text, size_t length, const char *file,
                                  rcv_cell **cell);
/* A built-in cell's name, or the path of a .cell file. A path has a '/' or ends in ".cell". */
RCV_API rcv_status rcv_cell_open(rcv_context *context, const char *name_or_path, rcv_cell **cell);
RCV_API void rcv_cell_free(rcv_cell *cell);

RCV_API size_t rcv_builtin_count(void);
RCV_API const char *rcv_builtin_name(size_t index);    /* NULL past the end; sorted */
RCV_API const char *rcv_builtin_summary(size_t index); /* the first comment line of the cell's text */

RCV_API const char *rcv_cell_name(const rcv_cell *cell);
RCV_API const char *rcv_cell_source(const rcv_cell *cell); /* the text it was parsed from */
/* The equations in canonical form; parsing them again gives the same cell. */
RCV_API rcv_status rcv_cell_print(const rcv_cell *cell, char **text);
/* Equations, parameters with shapes, stages with class and reason, what is kept for the derivative. */
RCV_API rcv_status rcv_cell_describe(const rcv_cell *cell, unsigned flags, char **text);

/* ---- networks ---------------------------------------------------------------------------------------------------- */

typedef struct rcv_net rcv_net;

typedef struct {
    const char *name; /* a size declared in the cell, such as proj or heads */
    int64_t value;
} rcv_size;

typedef struct {
    int64_t input;  /* features of x */
    int64_t hidden; /* features of a state, unless the cell says otherwise */
    int64_t layers; /* 0 means 1 */
    bool bidirectional;
    bool no_bias;     /* leave out every vector stored as bias_* */
    double dropout;   /* between layers, in training, in [0, 1) */
    bool variational; /* what dropout takes away of a sequence, it takes away at every step of it */
    double zoneout;   /* in training an element of a state keeps its value of the step before with this probability, in
                       * [0, 1), and otherwise takes the mean of both; lags do not. y is made of what the states became */
    int64_t rank;     /* 0: full matrices; else each matrix of more than `rank` rows and columns is A B of this rank */
    const rcv_size *sizes; /* overrides of the cell's declared sizes */
    size_t size_count;
} rcv_net_options;

RCV_API rcv_status rcv_net_new(const rcv_cell *cell, const rcv_net_options *options, rcv_net **net);
RCV_API void rcv_net_free(rcv_net *net);
RCV_API const rcv_net_options *rcv_net_get_options(const rcv_net *net); /* sizes: every declared one with its value */
RCV_API const rcv_cell *rcv_net_cell(const rcv_net *net);
RCV_API int64_t rcv_net_output(const rcv_net *net); /* features of y, both directions together */

/* All parameters lie in one flat array, tensor after tensor, in PyTorch's order. */
typedef struct {
    const char *name; /* weight_ih_l0, bias_hh_l1_reverse, ... */
    int dims;         /* 1 to 3 */
    int64_t shape[3];
    int64_t offset; /* elements from the start of the flat array */
    int64_t count;  /* elements */
} rcv_parameter;

RCV_API size_t rcv_net_parameter_count(const rcv_net *net);
RCV_API const rcv_parameter *rcv_net_parameter(const rcv_net *net, size_t index); /* NULL past the end */
RCV_API int64_t rcv_net_parameter_elements(const rcv_net *net);
/* As PyTorch initialises: uniform in +-1/sqrt(hidden), or the constant the cell declares; for cells that PyTorch has,
 * the very numbers of torch.manual_seed(seed). */
RCV_API rcv_status rcv_net_initialize(const rcv_net *net, uint64_t seed, rcv_dtype dtype, void *parameters);

/* A state's values over the whole network are blocks [batch, size], one for layer 0 forward, layer 0 reverse, layer 1
 * forward, and so on; where the size is the same everywhere, that is [layers * directions, batch, size]. The lag x[t-1]
 * of a cell is a state too. */
typedef struct {
    const char *name;
    int64_t size;  /* the same in every layer, or 0 where it differs */
    int64_t total; /* sum of the sizes over layers and directions: a state tensor has total * batch elements */
} rcv_state;

RCV_API size_t rcv_net_state_count(const rcv_net *net);
RCV_API const rcv_state *rcv_net_state(const rcv_net *net, size_t index); /* NULL past the end */
RCV_API int64_t rcv_net_state_size(const rcv_net *net, size_t index, int64_t layer, bool reverse);

/* ---- plans and runs ---------------------------------------------------------------------------------------------- */

typedef struct rcv_plan rcv_plan;
typedef struct rcv_run rcv_run;

/* A plan string names the rungs of a plan, joined by '+':
 *   naive                              one product a gate and operand, step by step, in plain C; or alone with threads
 *   kernels                            the same by the CPU's kernels, which every rung below uses
 *   combine, combine(steps=K|all)      the gates' products as one; input products of K time steps as one
 *   combine(steps=K|all,forward=F)     the same in training, but of F time steps in the forward pass
 *   fuse                               pointwise work as one pass, behind packed products without memory in between
 *   pack | transpose                   weights packed once (Y = X W^T), or as they lie (Y^T = W X^T)
 *   wavefront                          layers side by side, each a step or chunk behind the one below
 *   wavefront(forward)                 the same in the forward pass of training alone; backwards layer after layer
 *   scan                               recurrences of a cell that come one after the other in loops of their own: products
 *                                      with what one has computed need not wait for the next
 *   blas                               large products by OpenBLAS
 *   recompute(every=K)                 training keeps every K-th state and computes the rest again
 *   vendor                             the whole network by oneDNN, with threads only; on a GPU by cuDNN, with graph only
 *   vendor(algorithm=K)                cuDNN's persistent algorithms: 1 static, 2 dynamic, 3 static for small layers
 *   threads(N), threads(N,split=rows|columns)   sharing out sequences or features; the default is columns
 * and, on a GPU, where kernels, blas and threads have no meaning (and transpose leaves weights to the library's products, whose
 * results it stores feature after feature):
 *   merge                              like steps that do not wait for each other as one launch
 *   persistent                         a time loop as one kernel that keeps its weights on the chip; in float32 a number is
 *                                      multiplied as three of bfloat16 (products within 2^-23), there and in large
 *                                      products around the loops
 *   persistent(parts=N)                the same as 2 (within 2^-14, mostly 2^-17), or as it is (1)
 *   cluster                            with persistent: clusters of processors that have a layer's weights and some of the
 *                                      batch each, and pass what they compute through shared memory, not through memory
 *   streams(N)                         steps that do not wait for each other on N streams
 *   gemm(choice=K)                     the K-th other algorithm that cuBLASLt proposes for products of its own
 *   graph                              a pass is captured once and launched as a whole; without it, launch by launch
 * such as combine(steps=8)+fuse+pack+threads(2), or combine+fuse+pack+wavefront+merge+graph. */

/* How hard the planner looks for the fastest plan. */
typedef enum {
    RCV_MEASURE = 0, /* times the promising candidates, within a second or two */
    RCV_ESTIMATE,    /* believes its model of the machine; runs nothing */
    RCV_EXHAUSTIVE   /* times every candidate on the whole problem */
} rcv_effort;

typedef struct {
    int64_t steps;
    int64_t batch;
    rcv_dtype dtype;      /* RCV_FLOAT32, RCV_FLOAT64 or RCV_BFLOAT16; on a GPU also RCV_TFLOAT32 and RCV_FLOAT16. The
                           * caller's data is float32 in all but RCV_FLOAT64 */
    bool training;        /* keep what the derivative needs; backward may be called; dropout and zoneout act */
    bool lengths;         /* sequences of different lengths will be given */
    bool resets;          /* a reset mask will be given */
    bool signals;         /* in training: the backward pass tells when gradients are whole; see rcv_run_set_signals */
    const char *schedule; /* a plan string to pin, or NULL to let the planner choose */
    rcv_effort effort;    /* of the planner */
    int64_t threads;      /* at most this many; 0: as many as the context says */
    size_t memory;        /* bytes that a run may take; 0: any */
    const char *device;   /* NULL: "cpu" */
    bool (*go_on)(void *user); /* NULL, or asked before each candidate and trial, and after the last: false stops */
    void *user;
} rcv_plan_options;

/* RCV_STOPPED when the callback stopped it: there is no plan then, and nothing was learnt. The callback is called on this
 * thread, and not at all where the plan is pinned or known from wisdom. */
RCV_API rcv_status rcv_plan_new(const rcv_net *net, const rcv_plan_options *options, rcv_plan **plan);
RCV_API void rcv_plan_free(rcv_plan *plan);
RCV_API const char *rcv_plan_string(const rcv_plan *plan); /* pins this plan again */
RCV_API size_t rcv_plan_bytes(const rcv_plan *plan); /* what a run of it allocates for data, known before it does */
RCV_API rcv_status rcv_plan_print(const rcv_plan *plan, char **text); /* its program */
/* What the device has to say of the plan, in lines: on a GPU where the weights of persistent kernels live. May be empty. */
RCV_API rcv_status rcv_plan_explain(const rcv_plan *plan, char **text);

/* What the planner considered; one candidate where the plan was pinned. */
typedef struct {
    const char *schedule; /* its plan string */
    rcv_status status;    /* RCV_OK, or why it cannot be used */
    const char *reason;   /* the sentence then, else NULL */
    double estimate;      /* seconds of forward, and of backward in training, by the model */
    double seconds;       /* the same, measured (scaled up where a shorter sequence was timed); 0: not timed */
    size_t bytes;         /* of a run; 0 where it does not apply */
    bool chosen;
} rcv_candidate;

RCV_API size_t rcv_plan_candidate_count(const rcv_plan *plan);
RCV_API const rcv_candidate *rcv_plan_candidate(const rcv_plan *plan, size_t index); /* NULL past the end */
RCV_API double rcv_plan_seconds(const rcv_plan *plan);                               /* that planning took */
RCV_API bool rcv_plan_from_wisdom(const rcv_plan *plan); /* chosen from wisdom, without timing */

/* What planners of this context have learnt: one line a problem. A file is taken whole or refused whole. */
RCV_API rcv_status rcv_wisdom_load(rcv_context *context, const char *path);
RCV_API rcv_status rcv_wisdom_save(const rcv_context *context, const char *path);
RCV_API size_t rcv_wisdom_count(const rcv_context *context);

RCV_API rcv_status rcv_run_new(const rcv_plan *plan, rcv_run **run);
RCV_API void rcv_run_free(rcv_run *run);
RCV_API size_t rcv_run_bytes(const rcv_run *run); /* bytes of data actually allocated */
/* On a GPU, calls are enqueued on this stream (a cudaStream_t; NULL, the default, is the device's default stream) and
 * return before the work is done; on the CPU there are no streams, and any but NULL is refused. */
RCV_API rcv_status rcv_run_set_stream(rcv_run *run, void *stream);
RCV_API rcv_status rcv_run_wait(rcv_run *run); /* until what this run enqueued is done */

/* Every pointer is to elements of the plan's dtype unless typed otherwise. An array over states has
 * rcv_net_state_count() entries, each NULL or a state tensor; the array itself may be NULL. Inputs may overlap each other. y and final
 * overlap nothing: who carries a state on keeps two tensors, and swaps them from call to call. */
typedef struct {
    const void *parameters;
    const void *x;          /* [steps, batch, input] */
    const int64_t *lengths; /* [batch], each in 1..steps; with plan option lengths */
    const uint8_t *resets;  /* [steps, batch], nonzero: a new episode begins at this step; with plan option resets */
    const void *const *initial; /* states before the first step; NULL: zeros */
    const void *const *restart; /* where a reset returns to; NULL: to the initial state */
    void *y;                    /* [steps, batch, output]; zero past a sequence's length */
    void *const *final;         /* states after each sequence's last step */
    uint64_t seed;              /* of dropout and zoneout */
    bool same_parameters; /* they have not changed since this run's last forward call: what was packed is used again */
} rcv_forward;

/* Gradients of a loss L, given dL/dy and dL/dfinal. Inputs of the forward call must still be in place, its outputs need not. What is
 * written here overlaps none of those inputs, nor dy, dfinal and each other; it may overlap y and final of the forward call. */
typedef struct {
    const void *dy;            /* NULL: zeros */
    const void *const *dfinal; /* NULL: zeros */
    void *dx;                  /* NULL where not wanted, here and below */
    void *const *dinitial;
    void *const *drestart;
    void *dparameters;
    bool accumulate; /* add to dparameters instead of overwriting it */
} rcv_backward;

RCV_API rcv_status rcv_run_forward(rcv_run *run, const rcv_forward *data);
/* Training plans only. Each backward call uses up what the forward call before it kept. */
RCV_API rcv_status rcv_run_backward(rcv_run *run, const rcv_backward *data);

/* Where the plan has signals: signals[l], of one more than the network has layers, becomes *value when a backward call that follows has
 * written all gradients of the parameters of layer l, before the call is done, so that others may take them from there on. The last one
 * is of those parameters of layer 0 that lie before the boundary of parameters nearest to the layer's middle. The device reads *value, in its
 * memory, and writes signals, in the host's, which on a GPU must be pinned. NULL ends it. */
RCV_API rcv_status rcv_run_set_signals(rcv_run *run, uint64_t *signals, const uint64_t *value);

/* Who did what when: the calls that follow record up to `capacity` events. NULL ends it. */
typedef struct {
    int worker;        /* thread, from 0 */
    int layer;         /* -1: no layer's own work */
    bool reverse;      /* the layer's reverse direction */
    bool backward;     /* pass */
    int64_t iteration; /* time step in the order of the direction; -1 outside of the recurrence */
    const char *what;  /* kind of work: gemm, map, ... */
    double begin, end; /* seconds since the call began */
} rcv_event;

RCV_API rcv_status rcv_run_trace(rcv_run *run, rcv_event *events, size_t capacity);
RCV_API size_t rcv_run_trace_count(const rcv_run *run); /* events recorded, at most the capacity */

/* ---- linear recurrences by themselves ---------------------------------------------------------------------------- */

/* h[t] = a[t] * h[t-1] + b[t], channel by channel, for those who want just that. */
typedef struct {
    int64_t steps, channels;
    int64_t batch; /* sequences side by side: everything is [steps, batch, channels]; 0 means 1 */
    rcv_dtype
        dtype;    /* of a, b, h and their gradients: RCV_FLOAT32, RCV_FLOAT64, RCV_BFLOAT16 or RCV_FLOAT16. Carries, and
                           * initial and final states, are float64 for RCV_FLOAT64, else float32 */
    bool reverse; /* from the last step to the first: h[t] = a[t] * h[t+1] + b[t] */
    bool lengths; /* sequences of different lengths will be given */
    bool resets;  /* a reset mask will be given */
    const char
        *form; /* NULL: what is fastest here; "serial": one step after the other, channels side by side in vectors or
                           * threads; "channels": the same, streamed; "guessed", on the CPU: parts of time side by side, each from a
                           * guess of the state before it, and again from the true one until both agree, which gates that forget make
                           * soon; "chained": tiles of time side by side, each waiting for the state behind the one before it;
                           * "three": the tiles in three passes over memory; "waves", on a GPU of compute capability 9 or later, float32:
                           * tiles of which each finds out for itself what all before it do */
    int64_t threads;    /* at most this many; 0: as many as the context says */
    const char *device; /* NULL: "cpu" */
} rcv_scan_options;

/* On the CPU the bits of a form do not depend on the number of threads. "serial", "channels" and "guessed" have the same ones, but of
 * dinitial where there are resets, which "guessed" sums in another order; and two calls with the state carried on have those
 * of one. "chained" and "three" have the same ones; how they cut time follows from the shape alone. Each step is the recurrence
 * itself there too, but the state before a tile may differ by roundings, and by what a product of gates below the normal
 * numbers would have kept. Whatever is infinite or NaN is so in every form. */
typedef struct rcv_scan rcv_scan; /* one shape, with its threads or kernels and scratch, to be called many times */

/* Pointers are to elements of the scan's dtype, in the device's memory, unless typed or said otherwise. h and final overlap nothing. */
typedef struct {
    const void *a, *b;      /* [steps, batch, channels]; may be anything past a sequence's length */
    const void *initial;    /* [batch, channels] the state before the first step; NULL: zeros */
    const int64_t *lengths; /* [batch], each in 1..steps; the host's. A reverse scan begins at the last step of each */
    const uint8_t *resets;  /* [steps, batch], nonzero: between t-1 and t the state is the initial one again */
    void *h;                /* [steps, batch, channels]; zero past a sequence's length */
    void *final;            /* [batch, channels] the state behind the last step; NULL where not wanted */
} rcv_scan_data;

/* Gradients of a loss L, given dL/dh and dL/dfinal. da is of h as it was stored. What is written overlaps nothing but b and final of the
 * forward call. */
typedef struct {
    const void *dh;     /* NULL: zeros */
    const void *dfinal; /* NULL: zeros */
    void *da, *db;  /* [steps, batch, channels]; zero past a sequence's length; NULL where not wanted, here and below */
    void *dinitial; /* [batch, channels], of the state that resets return to, too */
} rcv_scan_gradients;

RCV_API rcv_status rcv_scan_new(rcv_context *context, const rcv_scan_options *options, rcv_scan **scan);
RCV_API void rcv_scan_free(rcv_scan *scan);
RCV_API const char *rcv_scan_form(const rcv_scan *scan); /* the one that it has */
/* On a GPU, calls are enqueued on this stream, as with rcv_run_set_stream. */
RCV_API rcv_status rcv_scan_set_stream(rcv_scan *scan, void *stream);
RCV_API rcv_status rcv_scan_wait(rcv_scan *scan);
RCV_API rcv_status rcv_scan_forward(rcv_scan *scan, const rcv_scan_data *data);
/* `data` is that of the forward call, with h as that call left it; b may be NULL, and final does not matter. */
RCV_API rcv_status rcv_scan_backward(rcv_scan *scan, const rcv_scan_data *data, const rcv_scan_gradients *gradients);

/* ---- the machine ------------------------------------------------------------------------------------------------- */

/* Fused multiply-adds from registers, in operations a second: nothing on these threads can be faster. For
 * RCV_BFLOAT16, by the bfloat16 unit where the kernels use one. */
RCV_API rcv_status rcv_measure_peak(rcv_context *context, rcv_dtype dtype, int64_t threads, double *operations);
/* The same of a GPU, as its own library of products reaches it with large matrices; for the CPU rcv_measure_peak with all
 * threads. */
RCV_API rcv_status rcv_measure_device(rcv_context *context, const char *device, rcv_dtype dtype, double *operations);
/* Bytes a second of c[i] = a[i] (`reads` 1) or c[i] = a[i] + b[i] (`reads` 2) over arrays of so many bytes each, all reads and the
 * write counted, the fastest of several runs; on the CPU written past the caches, by this many threads (0: as many as the context says). */
RCV_API rcv_status rcv_measure_memory(rcv_context *context, const char *device, int64_t threads, int reads,
                                      size_t bytes, double *bandwidth);
/* Seconds from the last thread's arrival at a barrier to the last one's departure, on average. */
RCV_API rcv_status rcv_measure_barrier(rcv_context *context, int64_t threads, double *seconds);

/* c[m, n] (+)= op(a) op(b), row-major; a is [m, k] ([k, m] where transposed), b [k, n] ([n, k]). All float32 or float64;
 * for RCV_BFLOAT16 all are float32, a and b rounded to bfloat16. */
typedef struct {
    rcv_dtype dtype;
    bool transpose_a, transpose_b, accumulate;
    int64_t m, n, k;
    int64_t lda, ldb, ldc; /* elements from row to row; 0: rows are contiguous */
    int64_t threads;       /* 0: as many as the context says */
    bool packed_b;         /* b is packed before the clock starts: see rcv_gemm_new */
} rcv_gemm_options;

typedef struct rcv_gemm rcv_gemm; /* threads and scratch for one product, to be called many times */
RCV_API rcv_status rcv_gemm_new(rcv_context *context, const rcv_gemm_options *options, rcv_gemm **gemm);
/* With packed_b, b is read by the first call and by calls after rcv_gemm_repack alone, and may be NULL in others. c overlaps neither a nor b;
 * they may lie side by side in the rows of one larger matrix. */
RCV_API rcv_status rcv_gemm_run(rcv_gemm *gemm, const void *a, const void *b, void *c);
RCV_API void rcv_gemm_repack(rcv_gemm *gemm);
RCV_API void rcv_gemm_free(rcv_gemm *gemm);

/* ---- tensor files (safetensors) ---------------------------------------------------------------------------------- */

typedef struct rcv_tensors rcv_tensors; /* named tensors in order, and text metadata */

enum { RCV_MAX_DIMS = 8 };

typedef struct {
    const char *name;
    rcv_dtype dtype;
    int dims;
    int64_t shape[RCV_MAX_DIMS];
    const void *data;
    size_t bytes;
} rcv_tensor;

RCV_API rcv_status rcv_tensors_new(rcv_context *context, rcv_tensors **tensors);
RCV_API rcv_status rcv_tensors_load(rcv_context *context, const char *path, rcv_tensors **tensors);
/* The content of a file in memory; copied. `name` is used in messages; NULL: "tensors". */
RCV_API rcv_status rcv_tensors_parse(rcv_context *context, const void *bytes, size_t length, const char *name,
                                     rcv_tensors **tensors);
/* Whole or not at all: written beside the path, synced and renamed over it. */
RCV_API rcv_status rcv_tensors_save(const rcv_tensors *tensors, const char *path);
RCV_API void rcv_tensors_free(rcv_tensors *tensors);

RCV_API size_t rcv_tensors_count(const rcv_tensors *tensors);
RCV_API const rcv_tensor *rcv_tensors_at(const rcv_tensors *tensors, size_t index);       /* NULL past the end */
RCV_API const rcv_tensor *rcv_tensors_find(const rcv_tensors *tensors, const char *name); /* NULL if absent */
RCV_API rcv_status rcv_tensors_add(rcv_tensors *tensors, const rcv_tensor *tensor); /* copies; the name must be new */
RCV_API const char *rcv_tensors_metadata(const rcv_tensors *tensors, const char *key); /* NULL if absent */
RCV_API rcv_status rcv_tensors_set_metadata(rcv_tensors *tensors, const char *key, const char *value);
/* The tensor's elements converted to dtype (float types to float types, integers to integers; exact or widened, except
 * float64 to float32), `count` of them into `out`, which does not overlap the tensor's data. */
RCV_API rcv_status rcv_tensor_convert(const rcv_tensor *tensor, rcv_dtype dtype, size_t count, void *out);

/* ---- models: a network and its parameters ------------------------------------------------------------------------ */

typedef struct rcv_model rcv_model;

typedef struct {
    rcv_dtype dtype;    /* of the parameters in memory: RCV_FLOAT32 or RCV_FLOAT64 */
    const char *cell;   /* NULL: the file says; else the tensors are read as a PyTorch state dict of this cell */
    const char *prefix; /* NULL: found; else tensors are named prefix + parameter name */
} rcv_model_options;

RCV_API rcv_status rcv_model_new(const rcv_net *net, rcv_dtype dtype, uint64_t seed,
                                 rcv_model **model); /* keeps the net */
/* options may be NULL: float32, and what the file says. */
RCV_API rcv_status rcv_model_load(rcv_context *context, const char *path, const rcv_model_options *options,
                                  rcv_model **model);
RCV_API rcv_status rcv_model_save(const rcv_model *model, const char *path);
/* The same network with every matrix replaced by its best approximation of this rank; it may outlive the model. */
RCV_API rcv_status rcv_model_low_rank(const rcv_model *model, int64_t rank, rcv_model **approximation);
RCV_API void rcv_model_free(rcv_model *model);
RCV_API const rcv_net *rcv_model_net(const rcv_model *model);
RCV_API rcv_dtype rcv_model_dtype(const rcv_model *model);
RCV_API void *rcv_model_parameters(rcv_model *model); /* the flat array */

/* Runs tensors through a model: what `recurve run` does. For a cell with states h and c:
 *   in   x; optionally lengths, resets, h, c, h.restart, c.restart; with gradients dy, optionally h.final.grad, ...
 *   out  y, h.final, c.final; with gradients dx, h.grad, c.grad, grad.<parameter>, and h.restart.grad where given
 * A state whose size differs by layer has one tensor per layer and direction: NAME.l0, NAME.l0_reverse, ... */
RCV_API rcv_status rcv_model_run(const rcv_model *model, const rcv_tensors *in, bool gradients, rcv_tensors **out);

/* ---- data to learn from ------------------------------------------------------------------------------------------ */

typedef enum {
    RCV_LEVEL_WORD = 0, /* tokens are what white space separates, and <eos> at the end of every line */
    RCV_LEVEL_BYTE      /* tokens are bytes */
} rcv_level;

/* Tokens by number, from 0 on: the 256 bytes, or words. */
typedef struct rcv_vocabulary rcv_vocabulary;

RCV_API rcv_status rcv_vocabulary_bytes(rcv_context *context, rcv_vocabulary **vocabulary);
/* One word a line; `name` is used in messages. */
RCV_API rcv_status rcv_vocabulary_parse(rcv_context *context, const char *text, size_t length, const char *name,
                                        rcv_vocabulary **vocabulary);
RCV_API rcv_status rcv_vocabulary_load(rcv_context *context, const char *path, rcv_vocabulary **vocabulary);
RCV_API void rcv_vocabulary_free(rcv_vocabulary *vocabulary);
RCV_API rcv_level rcv_vocabulary_level(const rcv_vocabulary *vocabulary);
RCV_API int64_t rcv_vocabulary_size(const rcv_vocabulary *vocabulary);
/* A token's bytes, which need not end in NUL; NULL past the end. */
RCV_API const char *rcv_vocabulary_token(const rcv_vocabulary *vocabulary, int64_t token, size_t *length);
RCV_API int64_t rcv_vocabulary_find(const rcv_vocabulary *vocabulary, const char *word, size_t length); /* -1: absent */
RCV_API rcv_status rcv_vocabulary_print(const rcv_vocabulary *vocabulary, char **text); /* one word a line */

/* A file to learn from, tokenised once and read in parts. What was read of a text is kept in the file TEXT.recurve-tokens, or under
 * $XDG_CACHE_HOME/recurve (~/.cache/recurve), and used as long as the text and the names it was read with stay the same, and nobody else can have written it. A text or a kept file that
 * changes while it is read is RCV_IO where a batch of it is asked for. */
typedef struct rcv_data rcv_data;

/* Examples are lines: a JSON object {"x": [1, 2, ...], "y": ...}, {"x": [[1, 2], [3, 4], ...], "y": ...} (time steps of features) or
 * {"text": "...", "y": ...}; or numbers with white space or commas between them, of which the first is the class or value, and the rest time
 * steps of one feature. A class is a whole number or a text; values are a number or a list of them. Blank lines do not count. */
typedef enum {
    RCV_DATA_STREAM = 0, /* a text as one sequence of tokens */
    RCV_DATA_LINES,      /* a text whose lines are sequences: <eos> and the words in, the words and <eos> to be told */
    RCV_DATA_CLASSES,    /* examples with a class each */
    RCV_DATA_VALUES      /* examples with one or more numbers each */
} rcv_data_kind;

typedef struct {
    rcv_level level;
    rcv_data_kind kind;
    const rcv_vocabulary *vocabulary; /* to read with; NULL: made from this text. Copied. */
    const char *const *
        classes; /* names in the order of their numbers; NULL: those of this file, sorted, numbers as numbers. Copied. */
    size_t class_count;
    const rcv_data
        *like; /* NULL, or data whose vocabulary and classes are taken where none are given; features must agree */
    const char *
        cache; /* folder of the tokenised text; NULL: the text's own, or, where that cannot be written, the user's; "": only the user's */
} rcv_data_options;

/* options may be NULL: a stream of words. */
RCV_API rcv_status rcv_data_open(rcv_context *context, const char *path, const rcv_data_options *options,
                                 rcv_data **data);
RCV_API void rcv_data_free(rcv_data *data);
RCV_API const rcv_vocabulary *rcv_data_vocabulary(const rcv_data *data); /* NULL where examples are numbers */
RCV_API int64_t rcv_data_tokens(const rcv_data *data);                   /* or time steps of all examples */
RCV_API int64_t rcv_data_sequences(const rcv_data *data);                /* 1 for a stream */
RCV_API int64_t rcv_data_longest(const rcv_data *data);                  /* of them */
RCV_API int64_t rcv_data_features(const rcv_data *data); /* of a time step where examples are numbers, else 0 */
RCV_API int64_t rcv_data_outputs(const rcv_data *data);  /* tokens, classes, or values of an example */
RCV_API rcv_level rcv_data_level(const rcv_data *data);
RCV_API rcv_data_kind rcv_data_get_kind(const rcv_data *data);

/* Lengths, of all but streams; a line of n tokens has n + 1. counts[length], up to the longest, sequences of each. */
RCV_API rcv_status rcv_data_lengths(const rcv_data *data, int64_t *counts);
enum { RCV_MOST_BUCKETS = 64, RCV_AUTO_BUCKETS = 32 }; /* as many as there can be, and what `auto` asks for */
/* At most `most` rising lengths to pad sequences to, the last one the longest, with the least padding; greedy: quickly, and nearly so. */
RCV_API rcv_status rcv_data_buckets(const rcv_data *data, size_t most, bool greedy, int64_t *bounds, size_t *count);
/* Tokens with padding to these lengths, divided by tokens without. */
RCV_API rcv_status rcv_data_padding(const rcv_data *data, const int64_t *bounds, size_t count, double *ratio);

/* Ends in NUL at its length; NULL past the end, and where there are no classes. `length` may be NULL. */
RCV_API const char *rcv_data_class_name(const rcv_data *data, int64_t index, size_t *length);

/* ---- settings of a training run ---------------------------------------------------------------------------------- */

/* Every choice of a run by name, as text; what was not set has its default. The tool's options, configuration files and
 * checkpoints are all made of them. */
typedef struct rcv_settings rcv_settings;

typedef enum {
    RCV_SETTING_FLAG = 0, /* true or false */
    RCV_SETTING_INTEGER,  /* in minimum..maximum */
    RCV_SETTING_REAL,     /* the same; an infinite maximum: any finite number */
    RCV_SETTING_TEXT,     /* UTF-8 without control characters; may be empty */
    RCV_SETTING_CHOICE,   /* one of the choices */
    RCV_SETTING_OUTPUT    /* the path of what a run writes; may be empty. It is not taken from checkpoints */
} rcv_setting_kind;

typedef struct {
    const char *name;  /* hidden, learning-rate, ... */
    const char *group; /* data, model, ...; settings of a group follow one another */
    rcv_setting_kind kind;
    const char *default_value;
    double minimum, maximum;
    const char *const *choices; /* ends in NULL; NULL for other kinds */
    const char *value;          /* placeholder in help; NULL for a flag */
    const char *help;           /* a line */
} rcv_setting;

RCV_API size_t rcv_setting_count(void);
RCV_API const rcv_setting *rcv_setting_at(size_t index); /* NULL past the end */

RCV_API rcv_status rcv_settings_new(rcv_context *context, rcv_settings **settings);
RCV_API rcv_status rcv_settings_copy(const rcv_settings *settings, rcv_settings **copy);
RCV_API void rcv_settings_free(rcv_settings *settings);

/* A value as text: true, 20, 0.5, adam. A call that fails changes nothing, here and below. */
RCV_API rcv_status rcv_settings_set(rcv_settings *settings, const char *name, const char *value);
/* Sets what the preset names, and leaves the rest as it is. */
RCV_API rcv_status rcv_settings_preset(rcv_settings *settings, const char *preset);
RCV_API size_t rcv_preset_count(void);
RCV_API const char *rcv_preset_name(size_t index); /* NULL past the end */
RCV_API const char *rcv_preset_summary(size_t index);
/* A JSON object such as {"preset": "zaremba-small", "hidden": 650, "tied": true}; the preset comes first wherever it
 * stands. `file` is used in messages. */
RCV_API rcv_status rcv_settings_parse(rcv_settings *settings, const char *json, size_t length, const char *file);
RCV_API rcv_status rcv_settings_load(rcv_settings *settings, const char *path);
/* All of them as such an object; reading it gives the same settings. */
RCV_API rcv_status rcv_settings_print(const rcv_settings *settings, char **json);
/* Do they agree with each other, as far as can be told without data? A trainer asks the same. */
RCV_API rcv_status rcv_settings_check(const rcv_settings *settings);

/* As text; NULL where there is no such setting. Good until it is set again. */
RCV_API const char *rcv_settings_get(const rcv_settings *settings, const char *name);
/* Was it set, by name, preset or file, whatever the value? */
RCV_API bool rcv_settings_given(const rcv_settings *settings, const char *name);

/* ---- learners: an embedding, a network, an output layer ---------------------------------------------------------- */

/* Tells the next token of a text, or the class or the values of a sequence. Its parameters lie in its device's memory. */
typedef struct rcv_learner rcv_learner;

/* With fresh parameters, of the shape that the settings (group model, device, dtype, init, seed) and the data (vocabulary, classes,
 * features) ask for. */
RCV_API rcv_status rcv_learner_new(rcv_context *context, const rcv_settings *settings, const rcv_data *data,
                                   rcv_learner **learner);
/* From a file that rcv_learner_save or a trainer wrote, with the average of the parameters where the run keeps one. device NULL: "cpu". */
RCV_API rcv_status rcv_learner_load(rcv_context *context, const char *path, const char *device, rcv_dtype dtype,
                                    rcv_learner **learner);
/* The model alone: safetensors with the names of a PyTorch module that has `embedding`, `rnn` and `decoder`. */
RCV_API rcv_status rcv_learner_save(const rcv_learner *learner, const char *path);
RCV_API void rcv_learner_free(rcv_learner *learner);
RCV_API const rcv_net *rcv_learner_net(const rcv_learner *learner);
RCV_API rcv_data_kind rcv_learner_kind(const rcv_learner *learner);
RCV_API const rcv_vocabulary *rcv_learner_vocabulary(const rcv_learner *learner); /* NULL where inputs are numbers */
RCV_API const char *rcv_learner_device(const rcv_learner *learner);
RCV_API const char *const *rcv_learner_classes(const rcv_learner *learner, size_t *count); /* names; NULL: none */
RCV_API int64_t rcv_learner_parameter_elements(const rcv_learner *learner);

typedef struct {
    int64_t
        batch; /* columns of a text, or sequences, side by side; 0: 1, so that every token has all before it as context */
    int64_t threads;           /* 0: as many as the context says */
    bool (*go_on)(void *user); /* NULL, or asked after every batch: false stops */
    void *user;
} rcv_evaluation_options;

typedef struct {
    double loss;     /* mean, in nats (or squares) */
    int64_t counted; /* tokens or examples that it is the mean of */
    double accuracy; /* of classes: the part that was told right */
} rcv_evaluation;

/* options may be NULL: zeros. */
RCV_API rcv_status rcv_learner_evaluate(rcv_learner *learner, const rcv_data *data,
                                        const rcv_evaluation_options *options, rcv_evaluation *result);

typedef struct {
    const char *prompt; /* what the text begins with: read, not emitted */
    size_t prompt_bytes;
    int64_t count;      /* tokens to write */
    double temperature; /* 0: always the likeliest */
    int64_t top_k;      /* of the likeliest so many; 0: of all */
    double top_p;       /* of the likeliest that together have this probability; 0: of all */
    uint64_t seed;
    int64_t threads;
} rcv_generation;

/* Emits token by token, as text: words with the space before them, <eos> as a line's end. `emit` false stops: RCV_STOPPED. */
RCV_API rcv_status rcv_learner_generate(rcv_learner *learner, const rcv_generation *options,
                                        bool (*emit)(void *user, const char *text, size_t length), void *user);

/* ---- many processes ---------------------------------------------------------------------------------------------- */

/* The ranks that mpirun, or what does its work, started together; rank 0 is the one that writes files. One a process. Who cannot go on says
 * so with rcv_world_fail: whatever the others do with the world then ends with RCV_PEER. A rank that dies, or stands still for longer than the
 * timeout, is found out, and ends the others the same way. */
typedef struct rcv_world rcv_world;

typedef struct {
    const char
        *transport; /* "mpi", "nccl" (and MPI for all that is not in a GPU's memory), "self"; NULL: what is there */
    double timeout; /* seconds; 0: for ever */
} rcv_world_options;

/* How many processes were started together, and which of them this is, as far as the environment says; 1 and 0 where it is alone. The
 * place may be NULL. */
RCV_API int rcv_world_started(int *rank);
/* options may be NULL: zeros. */
RCV_API rcv_status rcv_world_open(rcv_context *context, const rcv_world_options *options, rcv_world **world);
/* All ranks together, or, where one has failed, each by itself: then the process is to end, and may be ended by this call. */
RCV_API void rcv_world_close(rcv_world *world);
RCV_API int rcv_world_rank(const rcv_world *world);
RCV_API int rcv_world_size(const rcv_world *world);
RCV_API int rcv_world_here(const rcv_world *world);         /* ranks on this machine */
RCV_API const char *rcv_world_name(const rcv_world *world); /* for people */
RCV_API int64_t rcv_world_sent(const rcv_world *world);     /* bytes that this rank has sent */
/* All ranks call it. RCV_OK where all came with that; else the lowest that did not gets its own status back, the others RCV_PEER. */
RCV_API rcv_status rcv_world_agree(rcv_world *world, rcv_status status);
RCV_API void rcv_world_fail(rcv_world *world, const char *sentence);
RCV_API bool rcv_world_speaks(const rcv_world *world); /* behind a failure: is this the rank that is to say why? */
RCV_API void rcv_world_alive(rcv_world *world);        /* it does not stand still, whatever it does */

/* ---- training ---------------------------------------------------------------------------------------------------- */

typedef struct rcv_trainer rcv_trainer;

typedef struct {
    int64_t step;             /* updates done, of this run and those it resumed */
    int64_t steps;            /* that there will be; 0: unknown */
    int64_t epoch;            /* whole ones */
    double epochs;            /* with the part of the current one */
    double loss;              /* nats a token (or an example's loss), mean over the last updates */
    double rate;              /* learning rate of the last update */
    double norm;              /* of its gradient, before clipping */
    double tokens_per_second; /* of this call, examples where there are no tokens */
    double seconds;           /* of training, all calls */
    double left;              /* seconds to the nearest limit, as far as it can be told; -1: unknown */
    double validation;        /* loss of the last validation; 0 before the first, infinite if it is not a number */
    double best;              /* of the best; 0 before the first */
    int64_t written;          /* updates in the last checkpoint that this call of rcv_trainer_run wrote; -1: none */
} rcv_progress;

typedef struct {
    const char *output;                                         /* where checkpoints go; NULL: nowhere */
    bool overwrite;                                             /* also over models of other runs */
    bool (*progress)(void *user, const rcv_progress *progress); /* false: checkpoint and stop. May be NULL. */
    void (*log)(void *user, const char *line);                  /* a JSON object a line. May be NULL. */
    void *user;
} rcv_trainer_options;

/* A run at its start: a new learner, or the one given (which then is the trainer's), on data that outlives it. valid may be NULL. */
RCV_API rcv_status rcv_trainer_new(rcv_context *context, const rcv_settings *settings, const rcv_data *train,
                                   const rcv_data *valid, rcv_trainer **trainer);
/* The same as one rank of a world, NULL: alone; all ranks call it, with the same settings and data, which is checked. The setting `parallel`
 * says who does what. All calls with the trainer are then made by all ranks; rank 0 alone writes files, and its log and progress are the run's. */
RCV_API rcv_status rcv_trainer_join(rcv_context *context, const rcv_settings *settings, const rcv_data *train,
                                    const rcv_data *valid, rcv_world *world, rcv_trainer **trainer);
/* Goes on from a checkpoint of the same model: parameters, optimiser, random numbers, place in the data, plans. The next update is, bit
 * for bit, what it would have been. On other data it begins a new epoch. A file that is refused changes nothing. */
RCV_API rcv_status rcv_trainer_resume(rcv_trainer *trainer, const char *path);
RCV_API void rcv_trainer_free(rcv_trainer *trainer);
RCV_API rcv_learner *rcv_trainer_learner(rcv_trainer *trainer); /* the trainer's, as of the last update */
RCV_API size_t rcv_trainer_bytes(const rcv_trainer *trainer);   /* of the device's memory; 0 before it has run */
/* The output, the checkpoints before it (OUTPUT.1, ...) and the best model (OUTPUT.best) replace files of the same run alone, with
 * `overwrite` those of other runs too; what is no model is replaced at the output alone. Else, or where another process writes there
 * (OUTPUT.lock is locked), it is RCV_IO, and nothing was changed.
 * Until a limit of the settings: RCV_OK; until the callback stops it: RCV_STOPPED, the checkpoint written. A loss that is no
 * number ends it with RCV_INVALID; the sentence names the update and the last good checkpoint. */
/* options may be NULL: zeros. */
RCV_API rcv_status rcv_trainer_run(rcv_trainer *trainer, const rcv_trainer_options *options);
/* What an update takes over many devices: stages are measured here, on every rank where the trainer has a world, and the step is simulated. */
typedef struct {
    int devices;               /* of a machine that is not here, all as this one; 0: the ranks that are */
    const char *parallel;      /* how they are arranged, as the setting; NULL: "data" */
    double bandwidth, latency; /* of its links: bytes a second each way, and seconds */
} rcv_forecast_options;

typedef struct {
    int replicas, stages;
    int64_t micro_batches, time_chunks;
    char split[256];           /* layers of each stage: "2,1,1" */
    double bandwidth, latency; /* of a link, as said or as measured */
    double seconds;            /* of an update */
    double tokens_per_second;  /* with padding */
    double busy, bubble;       /* parts of all devices' time: computing, and waiting for each other */
    double exposed;            /* seconds of an update that exchanges add to it */
    double exchange;           /* seconds of all exchanges, hidden or not */
    double sent;               /* bytes, by the device that sends most */
} rcv_forecast;

/* Before or between runs. What settings leave open, the split and the units, is chosen. */
RCV_API rcv_status rcv_trainer_forecast(rcv_trainer *trainer, const rcv_forecast_options *options,
                                        rcv_forecast *forecast);
RCV_API rcv_status rcv_trainer_save(rcv_trainer *trainer, const char *path);
RCV_API const rcv_progress *rcv_trainer_progress(const rcv_trainer *trainer);
/* The path beside `path` where the best model by validation is kept: MODEL.best.safetensors. Free with rcv_text_free. */
RCV_API rcv_status rcv_trainer_best_path(rcv_context *context, const char *path, char **best);
/* The same where that file is the best model of this run, as its last validation left it; else NULL. */
RCV_API rcv_status rcv_trainer_best_model(const rcv_trainer *trainer, const char *output, char **path);
/* Would rcv_trainer_run write to this output, of a run that begins (resume NULL) or goes on from this checkpoint? It changes nothing. */
RCV_API rcv_status rcv_trainer_check_output(rcv_context *context, const rcv_settings *settings, const char *resume,
                                            const char *output, bool overwrite);

/* The settings and the vocabulary that a checkpoint holds; *vocabulary NULL where it has none. Paths of what a run writes
 * (RCV_SETTING_OUTPUT) have their defaults: a file from elsewhere does not choose them. */
RCV_API rcv_status rcv_checkpoint_settings(rcv_context *context, const char *path, rcv_settings **settings);
RCV_API rcv_status rcv_checkpoint_vocabulary(rcv_context *context, const char *path, rcv_vocabulary **vocabulary);

#ifdef __cplusplus
}
#endif

#endif
