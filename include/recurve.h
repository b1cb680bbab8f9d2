/* Recurve: recurrent networks from a cell's equations.
 *
 * Other headers: recurve_distributed.h (training over several processes), recurve_bench.h (measuring, timelines).
 *
 * Conventions
 *   Errors    A function that can fail returns rcv_status. Its outputs come last; on failure they are NULL or
 *             unchanged. rcv_message() is one sentence about the last failure on the calling thread, as errno is the
 *             last error number. The library does not print, exit or abort.
 *   NULL      An argument may be NULL only where its comment says so. Otherwise NULL is RCV_INVALID, and the sentence
 *             names the argument. Functions that return a value and not a status require their object.
 *   Lifetime  Objects come in pairs of new and free; free(NULL) does nothing. An object must stay alive as long as the
 *             objects made from it: free in the reverse order of creation, the context last. What is copied instead
 *             says "copied". A returned `const` pointer is valid until its object is freed or changed.
 *   Threads   "Thread-safe": any thread may call it at any time, with the same objects too. "One thread at a time":
 *             calls with the same object must not run at the same time; different objects do not affect each other.
 *   Structs   A struct with a member `size` is passed to the library. Set `size` to sizeof the struct, as RCV_INIT
 *             does, and leave members that you do not use zero. Then a program compiled with an older header keeps
 *             working. Size 0 is RCV_INVALID. The library reads the struct during the call only, and copies the texts
 *             that it needs later.
 *   Overlap   An array that a call writes must not overlap another array of the call, unless its comment allows it:
 *             RCV_INVALID, with both names.
 *   Layout    Data is row-major, and time-major unless a plan says otherwise: x is [steps, batch, input].
 *   fork()    A child may use its parent's CPU objects if no other thread of the parent was using them; threads are
 *             started again. GPU objects, worlds, and plans by oneDNN with several threads fail in the child.
 */
#ifndef RECURVE_H
#define RECURVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define RCV_API __attribute__((visibility("default")))
#else
#define RCV_API
#endif

/* The version of this header; rcv_version() is that of the library. While the major version is 0, a new minor version
 * may change the binary interface, and has another soname. */
#define RCV_VERSION_MAJOR 0
#define RCV_VERSION_MINOR 1
#define RCV_VERSION_PATCH 0
#define RCV_VERSION "0.1.0"
#define RCV_VERSION_NUMBER (RCV_VERSION_MAJOR * 1000000 + RCV_VERSION_MINOR * 1000 + RCV_VERSION_PATCH)

/* A struct with its size set: rcv_plan_options o = RCV_INIT(rcv_plan_options, .steps = 100, .batch = 32). What is not
 * named is zero. In C++ it needs C++20; earlier versions set the members one by one after `rcv_plan_options o{}; o.size
 * = sizeof o;`. */
#ifdef __cplusplus
#define RCV_INIT(type, ...) (type{.size = sizeof(type), ##__VA_ARGS__})
#else
#define RCV_INIT(type, ...) ((type){.size = sizeof(type), __VA_ARGS__})
#endif

/* ---- 1. statuses and element types ------------------------------------------------------------------------------- */

typedef enum {
    RCV_OK = 0,
    RCV_INVALID,     /* an argument, option, shape or name is wrong */
    RCV_SYNTAX,      /* the text of a cell is wrong */
    RCV_FORMAT,      /* the content of a file is wrong */
    RCV_IO,          /* the operating system refused a file operation */
    RCV_NO_MEMORY,   /* an allocation failed */
    RCV_UNSUPPORTED, /* valid, but this build, device or schedule does not support it */
    RCV_STOPPED,     /* the caller's callback asked to stop; the function says what is kept */
    RCV_PEER         /* another rank failed and reports the reason; the sentence names the rank */
} rcv_status;

typedef enum {
    RCV_FLOAT32 = 0,
    RCV_FLOAT64,
    RCV_FLOAT16,  /* in files: converted to float32 when read. In plans, on a GPU only: as RCV_BFLOAT16 */
    RCV_BFLOAT16, /* in files: converted to float32 when read. In plans: operands of products are rounded to bfloat16,
                   * products are summed in float32, and activations are stored in bfloat16. States, parameters,
                   * gradients and the caller's data are float32 */
    RCV_INT64,
    RCV_INT32,
    RCV_UINT8,
    RCV_BOOL,
    RCV_TFLOAT32 /* in plans, on a GPU only: float32 data; operands of products are rounded to 10 mantissa bits (tf32)
                  */
} rcv_dtype;

/* Thread-safe. Static texts. */
RCV_API const char *rcv_version(void); /* of the library: "0.1.0" */
RCV_API const char *rcv_status_name(rcv_status status);
RCV_API const char *rcv_dtype_name(rcv_dtype dtype);             /* "float32", ... */
RCV_API bool rcv_dtype_find(const char *name, rcv_dtype *dtype); /* false: no type has this name */
RCV_API size_t rcv_dtype_bytes(rcv_dtype dtype);
/* Thread-safe: each thread has its own message. Never NULL; valid until the thread's next call that fails. */
RCV_API const char *rcv_message(void);

/* ---- 2. context -------------------------------------------------------------------------------------------------- */

/* Allocator, log, default number of threads, and wisdom. Every other object belongs to a context. A context may be used
 * by several threads at once. */
typedef struct rcv_context rcv_context;

/* Called by any thread that uses the context. */
typedef struct {
    void *(*allocate)(void *user, size_t bytes); /* aligned as malloc aligns; NULL when there is no memory */
    void (*release)(void *user, void *memory);   /* never called with NULL */
    void *user;
} rcv_allocator;

typedef struct {
    size_t size;
    const rcv_allocator *
        allocator; /* NULL: the C library's, with large blocks in huge pages. Copied; `user` must outlive the context */
    void (*log)(void *user, const char *line); /* NULL: no log. Called by any thread that uses the context */
    void *log_user;                            /* may be NULL */
    int64_t threads;                           /* default of plans; 0: one per core */
    const char
        *kernels; /* name of a set of CPU kernels. NULL: RECURVE_KERNELS of the environment, or the best one. Copied */
    const char *cache; /* folder for wisdom and compiled GPU kernels, which later processes use again. "off": none.
                          NULL: RECURVE_CACHE of the environment, or recurve below XDG_CACHE_HOME or ~/.cache. Copied */
    bool replan;       /* do not read wisdom from that folder: measure, and write the choice there */
} rcv_context_options;

/* Thread-safe. `options` may be NULL: defaults. */
RCV_API rcv_status rcv_context_new(const rcv_context_options *options, rcv_context **context);
/* One thread, after all objects of the context were freed. NULL does nothing. */
RCV_API void rcv_context_free(rcv_context *context);
/* Thread-safe. The kernels in use; NULL if the CPU has no set of the name that was given. */
RCV_API int64_t rcv_context_threads(const rcv_context *context);
RCV_API const char *rcv_context_kernels(const rcv_context *context);

/* Thread-safe. The sets of kernels this CPU can run, from the portable one to the best; NULL past the end. Static
 * texts. */
RCV_API size_t rcv_kernels_count(void);
RCV_API const char *rcv_kernels_name(size_t index);

/* Thread-safe. Frees a text that a function of this library returned through a `char **`. NULL does nothing. */
RCV_API void rcv_text_free(rcv_context *context, char *text);
/* Thread-safe. Writes a whole file, or leaves the old one unchanged: writes beside the path, syncs, renames. */
RCV_API rcv_status rcv_file_save(rcv_context *context, const char *path, const void *bytes, size_t length);
/* Thread-safe. Makes text of unknown origin safe for a terminal: control characters, invisible and bidirectional
 * characters and bytes that are not UTF-8 become \xNN or \u{N}, except for the characters in `keep` ("\n\t"; NULL:
 * none). Writes at most `room` bytes with a final NUL into `out`; returns the length of the whole without the NUL, as
 * snprintf does. rcv_message() and log lines are escaped already. */
RCV_API size_t rcv_escape(const char *bytes, size_t length, const char *keep, char *out, size_t room);

/* ---- 3. devices and their memory --------------------------------------------------------------------------------- */

/* A device is named "cpu", "cuda" (the first GPU), "cuda:1", ... Wherever a device is asked for, NULL means "cpu". The
 * data of a plan for a GPU lies in that GPU's memory, except for lengths. Programs without a CUDA runtime of their own
 * can allocate and copy with these functions. Thread-safe, all of them. */

/* RCV_OK if the device can be used; otherwise the sentence says what is missing. `text` may be NULL; it receives the
 * device's name, memory and libraries. Free with rcv_text_free. */
RCV_API rcv_status rcv_device_describe(rcv_context *context, const char *device, char **text);
/* Folders, separated by ':', in which libraries that are opened at run time (cuBLASLt, NVRTC, cuDNN, NCCL, OpenBLAS) are
 * looked for: after those that the process has loaded, before the system's. Copied; replaces earlier folders; NULL: none.
 * Call it before the first plan: a library is looked for once. RCV_INVALID if the list has 16384 characters or more. */
RCV_API rcv_status rcv_libraries_set_folders(const char *folders);
/* Free with rcv_memory_free, with the same device. */
RCV_API rcv_status rcv_memory_new(rcv_context *context, const char *device, size_t bytes, void **memory);
RCV_API void rcv_memory_free(rcv_context *context, const char *device, void *memory); /* NULL memory does nothing */
/* Is this stream of the device (a cudaStream_t) being captured in a CUDA graph now? False on the CPU and for the stream
 * NULL. */
RCV_API bool rcv_device_is_capturing(const char *device, void *stream);
/* Copy from the host to the device, and from the device to the host; done when the call returns. On the CPU the two may
 * overlap. */
RCV_API rcv_status rcv_memory_write(const char *device, void *to, const void *from, size_t bytes);
RCV_API rcv_status rcv_memory_read(const char *device, void *to, const void *from, size_t bytes);

/* ---- 4. cells: the equations of one time step ---------------------------------------------------------------------
 */

/* Immutable; may be shared between threads. */
typedef struct rcv_cell rcv_cell;

typedef enum {
    RCV_DESCRIBE_FORWARD = 0,
    RCV_DESCRIBE_BACKWARD = 1, /* the adjoint recurrence as well */
    RCV_DESCRIBE_JSON = 2      /* machine-readable */
} rcv_describe_flags;

/* Thread-safe, all functions of this section. */

/* Copies the text, which need not end in NUL. `file` is the name in messages; NULL: "cell". */
RCV_API rcv_status rcv_cell_parse(rcv_context *context, const char *text, size_t length, const char *file,
                                  rcv_cell **cell);
/* The name of a built-in cell, or the path of a .cell file. A path contains '/' or ends in ".cell". */
RCV_API rcv_status rcv_cell_open(rcv_context *context, const char *name_or_path, rcv_cell **cell);
RCV_API void rcv_cell_free(rcv_cell *cell); /* NULL does nothing. Free its networks before */

/* Built-in cells, sorted by name; NULL past the end. The summary is the first comment line of the cell's text. Static
 * texts. */
RCV_API size_t rcv_builtin_count(void);
RCV_API const char *rcv_builtin_name(size_t index);
RCV_API const char *rcv_builtin_summary(size_t index);

/* Valid as long as the cell. The source is the text that was parsed. */
RCV_API const char *rcv_cell_name(const rcv_cell *cell);
RCV_API const char *rcv_cell_source(const rcv_cell *cell);
/* The equations in canonical form; parsing them gives the same cell. Free with rcv_text_free. */
RCV_API rcv_status rcv_cell_print(const rcv_cell *cell, char **text);
/* Equations, parameters with shapes, stages with class and reason, values stored for the backward pass. `flags` are of
 * rcv_describe_flags. Free with rcv_text_free. */
RCV_API rcv_status rcv_cell_describe(const rcv_cell *cell, unsigned flags, char **text);

/* ---- 5. networks: layers of one cell --------------------------------------------------------------------------------
 */

/* Immutable; may be shared between threads. Its cell must outlive it. */
typedef struct rcv_net rcv_net;

typedef struct {
    const char *name; /* a size that the cell declares, such as proj or heads */
    int64_t value;
} rcv_size;

typedef struct {
    size_t size;
    int64_t input;  /* features of x */
    int64_t hidden; /* features of a state, unless the cell declares another size */
    int64_t layers; /* 0 means 1 */
    bool bidirectional;
    bool no_bias;     /* leave out every vector stored as bias_* */
    double dropout;   /* probability in [0, 1], between layers, in training; 1: layers above the first read zeros */
    bool variational; /* dropout uses one mask for all time steps of a sequence */
    double
        zoneout; /* probability in [0, 1) that an element of a state keeps its previous value, in training; in inference
                  * the expected value is used. Lags have none. y is computed from the states after zoneout */
    int64_t rank; /* 0: full matrices; otherwise each matrix with more rows and columns than `rank` is a product A B of
                     this rank */
    const rcv_size *sizes; /* overrides sizes that the cell declares; NULL with size_count 0. Copied */
    size_t size_count;
    bool
        reverse; /* all layers go from the last step to the first; with lengths, from each sequence's last step. Results
                   * are those of the network without it on sequences in the reverse order. Parameters keep their names,
                   * without _reverse; not with bidirectional */
    bool expected_zoneout; /* plans for training take the expected value of zoneout, as in inference */
} rcv_net_options;

/* Thread-safe, all functions of this section. Returned pointers are valid as long as the network. */

RCV_API rcv_status rcv_net_new(const rcv_cell *cell, const rcv_net_options *options, rcv_net **net);
RCV_API void rcv_net_free(rcv_net *net); /* NULL does nothing. Free its plans and models before */
RCV_API const rcv_net_options *rcv_net_get_options(const rcv_net *net); /* with every declared size and its value */
RCV_API const rcv_cell *rcv_net_cell(const rcv_net *net);
RCV_API int64_t rcv_net_output(const rcv_net *net); /* features of y, both directions together */

/* All parameters lie in one flat array, tensor after tensor, in PyTorch's order. With plan option separate_parameters
 * each tensor has an address of its own. */
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
/* Initialises as PyTorch does: uniform in +-1/sqrt(hidden), or the constant that the cell declares; for cells that
 * PyTorch has, the same numbers as after torch.manual_seed(seed). `parameters`: rcv_net_parameter_elements() elements
 * of `dtype`, on the host. */
RCV_API rcv_status rcv_net_initialize(const rcv_net *net, uint64_t seed, rcv_dtype dtype, void *parameters);

/* The values of a state over the whole network are blocks [batch, size]: layer 0 forward, layer 0 reverse, layer 1
 * forward, and so on; with one size everywhere that is [layers * directions, batch, size]. A lag such as x[t-1] is a
 * state too. */
typedef struct {
    const char *name;
    int64_t size;  /* the same in every layer, or 0 where it differs */
    int64_t total; /* sum of the sizes over layers and directions: a state tensor has total * batch elements */
} rcv_state;

RCV_API size_t rcv_net_state_count(const rcv_net *net);
RCV_API const rcv_state *rcv_net_state(const rcv_net *net, size_t index); /* NULL past the end */
/* reverse: of the second direction of a bidirectional network. */
RCV_API int64_t rcv_net_state_size(const rcv_net *net, size_t index, int64_t layer, bool reverse);

/* ---- 6. plans: how a network runs ----------------------------------------------------------------------------------
 */

/* Immutable; may be shared between threads. Its network must outlive it. */
typedef struct rcv_plan rcv_plan;

/* A plan string names the optimisations ("rungs") of a plan, joined by '+':
 *   naive                           one product per gate and operand, step by step, in plain C; with threads at most
 *   kernels                         the same with the CPU's vector kernels, which every rung below uses
 *   combine, combine(steps=K|all)   the products of all gates as one; input products of K time steps as one
 *   combine(steps=K|all,forward=F)  the same in training, with F time steps in the forward pass
 *   fuse                            pointwise operations as one pass; with pack, as the epilogue of products
 *   pack | transpose                weights packed once (Y = X W^T), or used in place (Y^T = W X^T)
 *   wavefront                       layers run concurrently, each a step or a chunk behind the layer below
 *   wavefront(forward)              the same in the forward pass of training only
 *   scan                            the recurrences of a cell in loops of their own (loop distribution), so that
 *                                   products of one recurrence's results leave the time loop; on a GPU, recurrences of
 *                                   elements as parallel scans
 *   scan(newton)                    on a GPU: nonlinear recurrences of elements by Newton iterations over scans
 *   blas                            large products by OpenBLAS
 *   recompute(every=K)              training stores every K-th state and recomputes the others
 *   vendor                          the whole network by oneDNN, with threads only; on a GPU by cuDNN, with graph only
 *   vendor(algorithm=K)             cuDNN's persistent algorithms: 1 static, 2 dynamic, 3 static for small layers
 *   threads(N)                      N threads, each with a part of the features of a layer (columns)
 *   threads(N,split=rows|columns)   the same, with a part of the sequences (rows) or of the features
 * and on a GPU, where kernels, blas and threads do not apply (and transpose leaves weights to cuBLASLt's products,
 * whose results are stored feature by feature):
 *   merge                           independent steps of one kind as one launch
 *   persistent                      a time loop as one kernel that keeps its weights on the chip. In float32 each
 *                                   operand is split into three bfloat16 numbers (products within 2^-23), there and in
 *                                   large products around the loops
 *   persistent(parts=N)             the same with 2 numbers (within 2^-14, mostly 2^-17), or unsplit (1)
 *   cluster                         with persistent: thread block clusters, each with the weights of a layer and a part
 *                                   of the batch, that exchange values through distributed shared memory
 *   interpret                       maps by a kernel that was compiled ahead of time and reads a map's operations as
 *                                   data: nothing is compiled for a cell. Not with pack, scan and persistent
 *   streams(N)                      independent steps on N CUDA streams
 *   gemm(choice=K)                  the K-th alternative algorithm that cuBLASLt proposes
 *   graph                           a pass is captured once as a CUDA graph and launched as a whole
 * Examples: combine(steps=8)+fuse+pack+threads(2), combine+fuse+pack+wavefront+merge+graph. */

/* How much time the planner spends. */
typedef enum {
    RCV_MEASURE = 0, /* times the promising candidates; a second or two on a CPU */
    RCV_ESTIMATE,    /* uses the cost model only; runs nothing */
    RCV_EXHAUSTIVE,  /* times every candidate on the whole problem */
    RCV_BACKGROUND,  /* returns at once with a plan that needs neither trials nor compiled kernels; a thread then does
                      * what RCV_MEASURE does, and calls use what it finds: see rcv_plan_wait */
    RCV_FIRST        /* the plan that RCV_BACKGROUND begins with, and no search: for few calls */
} rcv_effort;

/* Element types of the caller's arrays. Values are converted as they are read and written, to the nearest. Arrays of a
 * plan's own 16-bit type are read and written without a copy. */
typedef enum {
    RCV_AS_PLAN = 0, /* float64 for a plan of RCV_FLOAT64, otherwise float32 */
    RCV_AS_FLOAT32 = 1 + RCV_FLOAT32,
    RCV_AS_FLOAT64 = 1 + RCV_FLOAT64,
    RCV_AS_FLOAT16 = 1 + RCV_FLOAT16,
    RCV_AS_BFLOAT16 = 1 + RCV_BFLOAT16
} rcv_array_type;

typedef struct {
    size_t size;
    int64_t steps;   /* most time steps of a call */
    int64_t batch;   /* most sequences of a call; calls with fewer of either cost what they compute */
    rcv_dtype dtype; /* RCV_FLOAT32, RCV_FLOAT64 or RCV_BFLOAT16; on a GPU also RCV_TFLOAT32 and RCV_FLOAT16 */
    bool training;   /* store what the backward pass needs; apply dropout and zoneout */
    bool lengths;    /* calls give sequence lengths */
    bool resets;     /* calls give a reset mask */
    bool reserve;    /* in training: calls give the memory of what the backward pass needs; see rcv_forward */
    bool signals;    /* in training: the backward pass signals when gradients are complete; see recurve_distributed.h */
    const char *schedule;      /* a plan string to use; NULL: the planner chooses */
    rcv_effort effort;         /* of the planner */
    int64_t threads;           /* at most this many; 0: the context's number */
    size_t memory;             /* most bytes that a run may allocate; 0: no limit */
    const char *device;        /* NULL: "cpu" */
    bool (*go_on)(void *user); /* NULL, or called before each candidate and each trial and after the last one, and
                                  while kernels are compiled; false stops planning */
    void *user;                /* of go_on; may be NULL */
    rcv_array_type data;       /* of x, y, dx and dy */
    rcv_array_type states;     /* of initial, restart and final states and their gradients */
    bool batch_major;          /* x, y, dx and dy are [batch, steps, features], resets [batch, steps]; states stay as
                                  they are */
    bool separate_parameters;  /* calls give parameters and their gradients as arrays of pointers, one a tensor, in the
                                  order of rcv_net_parameter(); not with signals */
    void (*replaced)(void *user); /* NULL, or with RCV_BACKGROUND called by its thread when a better plan was found. It
                                     must not free the plan or wait for it; it may call rcv_plan_stay */
    size_t search_memory; /* with RCV_BACKGROUND: most bytes that trials take at once; 0: an eighth of the memory, on a
                             GPU of its free memory */
    rcv_array_type parameters; /* flat or separate. What a plan cannot use as it is, is converted once when parameters
                                  have changed, as packed weights are */
    rcv_array_type gradients;  /* of the gradients of the parameters. They are summed in the plan's type and rounded
                                  once; rcv_backward.accumulate adds the sum to what is there. Not with signals */
    bool device_lengths;       /* with `lengths`: they lie in the device's memory, as x does, and are read when the call
                                  runs. They are not checked: values outside of 1..steps count as the nearest of these */
    /* Calls of at most so many sequences are made by a plan of their own, which is found like the other: what is fastest
     * for 64 sequences may take one twice as long as need be. Below `batch`; 0: there is none. Not with signals. */
    int64_t small_batch;
    const char *small_schedule; /* with `schedule`: the plan string of that plan; NULL: the same */
    bool no_vendor; /* plans by oneDNN and cuDNN are not used: for programs whose own threads call these libraries */
} rcv_plan_options;

/* Thread-safe, all functions of this section. Returned pointers are valid as long as the plan. */

/* RCV_STOPPED if the callback stopped it: there is no plan then, and wisdom is unchanged. The callback runs on the
 * calling thread; it is not called where `schedule` is given or the plan comes from wisdom. */
RCV_API rcv_status rcv_plan_new(const rcv_net *net, const rcv_plan_options *options, rcv_plan **plan);
RCV_API void rcv_plan_free(rcv_plan *plan);                  /* NULL does nothing. Free its runs before */
RCV_API const char *rcv_plan_string(const rcv_plan *plan);   /* with it as `schedule`, the same plan is made again */
RCV_API size_t rcv_plan_bytes(const rcv_plan *plan);         /* that a run of the plan allocates */
RCV_API size_t rcv_plan_reserve_bytes(const rcv_plan *plan); /* of a reserve; 0: the plan is for inference */
/* With small_batch: the plan of calls of few sequences, for these functions and those below; NULL: there is none. It
 * belongs to `plan`, and the others describe `plan` alone, except that rcv_plan_bytes() counts both, a reserve is large
 * enough for either, and rcv_plan_wait and rcv_plan_stay are for both. On a GPU calls of the two follow each other in
 * the order of their stream alone, and each plan has a first call on a stream. */
RCV_API const rcv_plan *rcv_plan_small(const rcv_plan *plan);
/* RCV_BACKGROUND. The first plan is returned in milliseconds: from wisdom if its kernels are compiled, else one that
 * needs no search. Otherwise a thread times other plans, one search of a context at a time. What it finds is the plan
 * from then on: rcv_plan_string() and the functions below describe it, and runs take it between two calls, before a
 * forward call. A run whose calls the caller captured in a CUDA graph keeps its plan; so does one whose plan has a limit
 * of memory that is too small for both versions at once; and a run of a plan with option reserve, until rcv_run_update.
 * Results of two plans differ by rounding: for the same bits at all times give a plan string, or call rcv_plan_stay.
 * Trials use a stream and memory of their own (search_memory), pause between one another, and wait while the stream of a
 * run of this plan is captured. The callback go_on is called by the thread, also in pauses, and `user` must be valid
 * until the search has ended. rcv_plan_free stops the search and waits for it: at most for a trial, on a GPU for the
 * kernels that are being compiled. Wisdom gets the plan when it has been run in turns with the first one. */
/* Waits for the end of the search. Not RCV_OK where it ended without a plan, and why; the first plan stays. RCV_INVALID
 * while the stream of a run of the plan is captured, and in a callback of the search. Returns at once for other plans. */
RCV_API rcv_status rcv_plan_wait(const rcv_plan *plan);
/* Ends the search: the plan that rcv_plan_string() names then is the plan for good. */
RCV_API rcv_status rcv_plan_stay(rcv_plan *plan);
/* The program, step by step. Free with rcv_text_free. */
RCV_API rcv_status rcv_plan_print(const rcv_plan *plan, char **text);
/* Notes of the device in lines, which may be none: on a GPU, where persistent kernels keep their weights. Free with
 * rcv_text_free. */
RCV_API rcv_status rcv_plan_explain(const rcv_plan *plan, char **text);

/* A plan that the planner considered. */
typedef struct {
    const char *schedule; /* plan string */
    rcv_status status;    /* RCV_OK, or why it cannot be used */
    const char *reason;   /* the sentence then, otherwise NULL */
    double estimate;      /* seconds of a forward call, in training with its backward call, by the cost model */
    double seconds;       /* the same, measured (scaled up where a shorter sequence was timed); 0: not timed */
    size_t bytes;         /* of a run; 0 where it cannot be used */
    bool chosen;
} rcv_candidate;

/* One candidate where `schedule` was given. NULL past the end. */
RCV_API size_t rcv_plan_candidate_count(const rcv_plan *plan);
RCV_API const rcv_candidate *rcv_plan_candidate(const rcv_plan *plan, size_t index);
RCV_API double rcv_plan_seconds(const rcv_plan *plan);   /* that planning took */
RCV_API bool rcv_plan_from_wisdom(const rcv_plan *plan); /* chosen from wisdom, without timing */

/* Wisdom, as FFTW calls it: the choices that planners of this context made, one line per problem. A file is read
 * completely or refused.
 *
 * What was measured is also written to the cache folder (rcv_context_options), and a context that does not know a
 * problem looks there. A choice is used only for the same cell, sizes, types, threads, processor, driver, libraries and
 * version of Recurve; an exhaustive search takes only what was measured exhaustively; a pinned `schedule` neither reads
 * nor writes wisdom. Many processes may use one folder at once. A file that is damaged, or that another user may have
 * written, is ignored and replaced. Where the folder cannot be used, planning goes on without it and the log has one
 * line. The folder is trimmed to 512 MiB and 16384 files; the least recently used go first. RECURVE_CACHE=off in the
 * environment turns off both wisdom and kernels on disk, RECURVE_WISDOM=off wisdom alone. */
RCV_API rcv_status rcv_wisdom_load(rcv_context *context, const char *path);
RCV_API rcv_status rcv_wisdom_save(const rcv_context *context, const char *path);
RCV_API size_t rcv_wisdom_count(const rcv_context *context);

/* ---- 7. runs: forward and backward calls ----------------------------------------------------------------------------
 */

/* The memory and threads of one plan. Its plan must outlive it. One thread at a time, all functions of this section
 * with the same run; several runs of one plan may run at the same time. */
typedef struct rcv_run rcv_run;

RCV_API rcv_status rcv_run_new(const rcv_plan *plan, rcv_run **run);
RCV_API void rcv_run_free(rcv_run *run);          /* NULL does nothing. Waits for what it enqueued */
RCV_API size_t rcv_run_bytes(const rcv_run *run); /* bytes of data that it allocated */
/* On a GPU, calls are enqueued on this stream (a cudaStream_t; NULL, the default, is the device's default stream) and
 * return before the work is done. The stream must outlive the run. On the CPU only NULL is accepted. */
RCV_API rcv_status rcv_run_set_stream(rcv_run *run, void *stream);
RCV_API rcv_status rcv_run_wait(rcv_run *run); /* until everything that this run enqueued is done */

/* Of a plan by RCV_BACKGROUND. Calls of a run use one version of the plan: 1 is the first plan, 2 the one that the search
 * found; of other plans it is always 1. A run takes version 2 by itself before a forward call, or in rcv_run_update.
 * With plan option reserve every run begins with version 1 and takes version 2 only there, since the size of a reserve
 * depends on the version; forward calls of version 1 may then still precede their backward calls (rcv_forward.version).
 */
RCV_API rcv_status rcv_run_update(rcv_run *run); /* takes the newest version; RCV_OK also where there is no newer one */
RCV_API int64_t rcv_run_version(const rcv_run *run);
/* of a reserve of the run's version; 0: the plan is for inference */
RCV_API size_t rcv_run_reserve_bytes(const rcv_run *run);

/* Pointers are to elements of the types that the plan's options say, in the device's memory. An array over
 * states has rcv_net_state_count() entries, each NULL or a state tensor; the array itself may be NULL. Inputs may
 * overlap each other. y and final overlap nothing: to carry a state from call to call, use two tensors and swap them.
 * On a GPU the arrays begin at multiples of 16 bytes, and must stay valid until the work is done. */
typedef struct {
    size_t size;
    const void *parameters;     /* [rcv_net_parameter_elements()]; NULL with plan option separate_parameters */
    const void *x;              /* [steps, batch, input] */
    const int64_t *lengths;     /* [batch], each in 1..steps, on the host unless the plan has device_lengths; with plan
                                   option lengths, otherwise NULL */
    const uint8_t *resets;      /* [steps, batch], nonzero: a new episode begins at this step; with plan option resets,
                                   otherwise NULL */
    const void *const *initial; /* states before the first step; NULL: zeros */
    const void *const *restart; /* states after a reset; NULL: the initial states */
    void *y;                    /* [steps, batch, output]; zero past a sequence's length */
    void *const *final;         /* states after each sequence's last step; NULL: not wanted */
    uint64_t seed;              /* of dropout and zoneout */
    bool same_parameters;       /* parameters are those of the last forward call: packed weights are used again */
    void *reserve;              /* with plan option reserve: rcv_plan_reserve_bytes() bytes in the device's memory, at a
                                   multiple of 64 bytes; written, and read by the backward call of this call.
                                   Otherwise NULL: the run has one */
    int64_t steps;              /* of this call, at most the plan's; 0: the plan's. All arrays have these sizes */
    int64_t batch;              /* sequences of this call, at most the plan's; 0: the plan's; RCV_EMPTY: none */
    const void *const *tensors; /* [rcv_net_parameter_count()] parameters, none NULL; with plan option
                                   separate_parameters, otherwise NULL */
    int64_t version;            /* with plan option reserve: of the plan, as rcv_run_version() says it; 0: the run's. In
                        rcv_backward.forward that of the forward call. Otherwise 0 */
    const uint64_t *seed_at; /* in the device's memory: the seed, in place of `seed`; NULL: `seed`. It is read when the
                                call runs, so a captured call is replayed with the seed that is there then. The backward
                                call of this call uses what was read, whatever is there later */
} rcv_forward;

/* A batch of no sequences: y and states are empty, gradients of parameters zero. Not with plan option signals. */
enum { RCV_EMPTY = -1 };

/* Gradients of a loss L, given dL/dy and dL/dfinal. Sizes are those of the forward call. The inputs of the forward call
 * must be unchanged, its outputs need not exist. What is written here overlaps neither those inputs nor dy, dfinal or
 * each other; it may overlap y and final of the forward call. */
typedef struct {
    size_t size;
    const void *dy;            /* [steps, batch, output]; NULL: zeros */
    const void *const *dfinal; /* NULL: zeros */
    void *dx;                  /* [steps, batch, input]; NULL: not wanted, here and below */
    void *const *dinitial;
    void *const *drestart;
    void *dparameters;          /* [rcv_net_parameter_elements()]; NULL with plan option separate_parameters */
    bool accumulate;            /* add to the gradients of the parameters instead of overwriting them */
    const rcv_forward *forward; /* the data of its forward call: of the run's last one, or with plan option reserve of
                                   any earlier one, also of another run of the plan. Its arrays are unchanged. NULL:
                                   the last one; RCV_INVALID where the backward call before named another one */
    void *const *dtensors; /* [rcv_net_parameter_count()] gradients of the parameters; the array or entries may be NULL:
                              not wanted, and not computed. With plan option separate_parameters, otherwise NULL */
} rcv_backward;

/* A call that is refused for its arguments changes nothing of the run. */
RCV_API rcv_status rcv_run_forward(rcv_run *run, const rcv_forward *data);
/* For plans with `training`. A backward call leaves what its forward call stored, and may be repeated. With plan option
 * reserve several forward calls may precede their backward calls, in any order, each with a reserve of its own. */
RCV_API rcv_status rcv_run_backward(rcv_run *run, const rcv_backward *data);

/* ---- 8. linear recurrences without a cell ------------------------------------------------------------------------ */

/* h[t] = a[t] * h[t-1] + b[t] for every channel. A scan holds threads or kernels and scratch memory for one shape, and
 * is called many times. One thread at a time, all functions with the same scan. */
typedef struct rcv_scan rcv_scan;

typedef struct {
    size_t size;
    int64_t steps, channels;
    int64_t batch;    /* sequences: arrays are [steps, batch, channels]; 0 means 1 */
    rcv_dtype dtype;  /* of a, b, h and their gradients: RCV_FLOAT32, RCV_FLOAT64, RCV_BFLOAT16 or RCV_FLOAT16. Initial
                       * and final states are float64 for RCV_FLOAT64, otherwise float32 */
    bool reverse;     /* from the last step to the first: h[t] = a[t] * h[t+1] + b[t] */
    bool lengths;     /* calls give sequence lengths */
    bool resets;      /* calls give a reset mask */
    const char *form; /* the algorithm, by its name below; NULL: the fastest here */
    int64_t threads;  /* at most this many; 0: the context's number */
    const char *device; /* NULL: "cpu" */
} rcv_scan_options;

/* Forms:
 *   serial    step by step, channels in vectors or threads
 *   channels  the same with non-temporal (streaming) access
 *   guessed   CPU: parts of time in parallel, each from a guessed state, repeated from the true state until both agree,
 *             which is soon where gates forget
 *   chained   tiles of time in parallel, each waits for the state before it
 *   three     tiles of time in three passes over memory
 *   waves     GPU of compute capability 9 or later, float32: each tile computes the effect of all tiles before it
 * On the CPU the bits of a form do not depend on the number of threads. serial, channels and guessed give the same
 * bits, except for dinitial with resets, which guessed sums in another order; and two calls with a carried state give
 * the bits of one call. chained and three give the same bits; the tiles follow from the shape. There each step is the
 * recurrence itself, but the state before a tile may differ by rounding, and by what a product of gates below the
 * normal numbers would contribute. Infinities and NaN appear in every form alike. */

/* Pointers are to elements of the scan's data type, in the device's memory, unless typed or said otherwise. h and final
 * overlap nothing. */
typedef struct {
    size_t size;
    const void *a, *b;      /* [steps, batch, channels]; values past a sequence's length are not used */
    const void *initial;    /* [batch, channels] state before the first step; NULL: zeros */
    const int64_t *lengths; /* [batch], each in 1..steps, on the host; a reverse scan starts at each sequence's last
                               step; NULL without the option */
    const uint8_t *resets;  /* [steps, batch], nonzero: the state before step t is the initial state again; NULL without
                               the option */
    void *h;                /* [steps, batch, channels]; zero past a sequence's length */
    void *final;            /* [batch, channels] state after the last step; NULL: not wanted */
} rcv_scan_data;

/* Gradients of a loss L, given dL/dh and dL/dfinal. da uses h as stored. What is written may overlap b and final of the
 * forward call only. */
typedef struct {
    size_t size;
    const void *dh;     /* NULL: zeros */
    const void *dfinal; /* NULL: zeros */
    void *da, *db;      /* [steps, batch, channels]; zero past a sequence's length; NULL: not wanted, here and below */
    void *dinitial;     /* [batch, channels], with the part of the states after resets */
} rcv_scan_gradients;

RCV_API rcv_status rcv_scan_new(rcv_context *context, const rcv_scan_options *options, rcv_scan **scan);
RCV_API void rcv_scan_free(rcv_scan *scan);              /* NULL does nothing */
RCV_API const char *rcv_scan_form(const rcv_scan *scan); /* the form in use. Static text */
/* As rcv_run_set_stream and rcv_run_wait. `stream` may be NULL. */
RCV_API rcv_status rcv_scan_set_stream(rcv_scan *scan, void *stream);
RCV_API rcv_status rcv_scan_wait(rcv_scan *scan);
RCV_API rcv_status rcv_scan_forward(rcv_scan *scan, const rcv_scan_data *data);
/* `data` is that of the forward call, with its h; its b may be NULL, and final is not used. */
RCV_API rcv_status rcv_scan_backward(rcv_scan *scan, const rcv_scan_data *data, const rcv_scan_gradients *gradients);

/* ---- 9. tensor files (safetensors) ------------------------------------------------------------------------------- */

/* Named tensors in order, with text metadata. Thread-safe while no thread changes the collection; one thread at a time
 * otherwise. */
typedef struct rcv_tensors rcv_tensors;

enum { RCV_MAX_DIMS = 8 };

typedef struct {
    const char *name;
    rcv_dtype dtype;
    int dims;
    int64_t shape[RCV_MAX_DIMS];
    const void *data; /* on the host */
    size_t bytes;
} rcv_tensor;

RCV_API rcv_status rcv_tensors_new(rcv_context *context, rcv_tensors **tensors);
RCV_API rcv_status rcv_tensors_load(rcv_context *context, const char *path, rcv_tensors **tensors);
/* From the content of a file in memory, which is copied. `name` is used in messages; NULL: "tensors". */
RCV_API rcv_status rcv_tensors_parse(rcv_context *context, const void *bytes, size_t length, const char *name,
                                     rcv_tensors **tensors);
/* Writes the whole file or leaves the old one unchanged: writes beside the path, syncs, renames. */
RCV_API rcv_status rcv_tensors_save(const rcv_tensors *tensors, const char *path);
RCV_API void rcv_tensors_free(rcv_tensors *tensors); /* NULL does nothing */

/* Pointers are valid until the collection is changed or freed; NULL past the end, and where there is no such name. */
RCV_API size_t rcv_tensors_count(const rcv_tensors *tensors);
RCV_API const rcv_tensor *rcv_tensors_at(const rcv_tensors *tensors, size_t index);
RCV_API const rcv_tensor *rcv_tensors_find(const rcv_tensors *tensors, const char *name);
RCV_API const char *rcv_tensors_metadata(const rcv_tensors *tensors, const char *key);
/* Both copy. The tensor's name must be new; a key's old value is replaced. */
RCV_API rcv_status rcv_tensors_add(rcv_tensors *tensors, const rcv_tensor *tensor);
RCV_API rcv_status rcv_tensors_set_metadata(rcv_tensors *tensors, const char *key, const char *value);
/* Thread-safe. Converts `count` elements into `out`, which does not overlap the tensor: float types to float types,
 * integers to integers; exact except for float64 to float32. */
RCV_API rcv_status rcv_tensor_convert(const rcv_tensor *tensor, rcv_dtype dtype, size_t count, void *out);

/* ---- 10. models: a network with its parameters ------------------------------------------------------------------- */

/* One thread at a time while parameters are written; thread-safe otherwise. */
typedef struct rcv_model rcv_model;

typedef struct {
    size_t size;
    rcv_dtype dtype;    /* of the parameters in memory: RCV_FLOAT32 or RCV_FLOAT64 */
    const char *cell;   /* NULL: as the file says; otherwise the tensors are a PyTorch state dict of this cell */
    const char *prefix; /* NULL: found in the file; otherwise tensors are named prefix + parameter name */
} rcv_model_options;

/* With initialised parameters (rcv_net_initialize). The network must outlive the model. */
RCV_API rcv_status rcv_model_new(const rcv_net *net, rcv_dtype dtype, uint64_t seed, rcv_model **model);
/* The model owns its network. `options` may be NULL: float32, and what the file says. */
RCV_API rcv_status rcv_model_load(rcv_context *context, const char *path, const rcv_model_options *options,
                                  rcv_model **model);
RCV_API rcv_status rcv_model_save(const rcv_model *model, const char *path);
/* The same network with every matrix replaced by its best approximation of this rank. The new model may outlive the old
 * one. */
RCV_API rcv_status rcv_model_low_rank(const rcv_model *model, int64_t rank, rcv_model **approximation);
RCV_API void rcv_model_free(rcv_model *model); /* NULL does nothing */
/* Valid as long as the model. `parameters` is the flat array, on the host, and may be written. */
RCV_API const rcv_net *rcv_model_net(const rcv_model *model);
RCV_API rcv_dtype rcv_model_dtype(const rcv_model *model);
RCV_API void *rcv_model_parameters(rcv_model *model);

typedef struct {
    size_t size;
    bool gradients;     /* compute them, too */
    const char *device; /* NULL: "cpu". Tensors and parameters stay on the host, and are copied for the call */
    int64_t threads;    /* at most this many; 0: the context's number */
} rcv_model_run_options;

/* Runs a model on tensors, as `recurve run` does. For a cell with states h and c:
 *   in   x; optionally lengths, resets, h, c, h.restart, c.restart; with gradients dy, optionally h.final.grad, ...
 *   out  y, h.final, c.final; with gradients dx, h.grad, c.grad, grad.<parameter>, and h.restart.grad where given
 * A state whose size differs between layers has one tensor per layer and direction: NAME.l0, NAME.l0_reverse, ...
 * `options` may be NULL: y and final states, on the CPU. */
RCV_API rcv_status rcv_model_run(const rcv_model *model, const rcv_tensors *in, const rcv_model_run_options *options,
                                 rcv_tensors **out);

/* ---- 11. streams: a model or a learner, step by step ------------------------------------------------------------- */

/* A batch of sequences (rows) whose time steps (frames) arrive call by call. A stream owns its plan, its run and the
 * states of its rows, which begin at zero. T calls of one step give the bits of one call of T steps, and rows do not
 * affect each other. It runs forwards: a bidirectional or reverse network is RCV_UNSUPPORTED. A step allocates nothing. The
 * model or learner must outlive its streams. One thread at a time, all functions of this section with the same stream;
 * several streams of a model or learner may run at the same time. (The streams of rcv_run_set_stream are CUDA's.) */
typedef struct rcv_stream rcv_stream;

/* What the output layer of a learner gives. */
typedef enum {
    RCV_OUTPUT_DEFAULT = 0,      /* classes: probabilities; values: the values; tokens: logits */
    RCV_OUTPUT_LOGITS,           /* of classes or tokens, before the softmax, here and below */
    RCV_OUTPUT_PROBABILITIES,    /* after the softmax */
    RCV_OUTPUT_LOG_PROBABILITIES /* their logarithms */
} rcv_output;

typedef struct {
    size_t size;
    int64_t batch;      /* rows; 0 means 1 */
    int64_t most;       /* steps of a call, at most; 0 means 1 */
    const char *device; /* of a model; NULL: "cpu". A learner's stream runs on the learner's device: NULL */
    rcv_dtype dtype; /* of a model's products, as in plans; 0 (RCV_FLOAT32): the type of its parameters. Of a learner:
                         * 0, it has its own */
    int64_t threads; /* at most this many; 0: the context's number */
    const char *schedule; /* a plan string to use; NULL: the planner chooses */
    rcv_effort effort;    /* of the planner, but not RCV_BACKGROUND; wisdom is used and extended as by rcv_plan_new */
    bool on_device;       /* of a model on a GPU: frames and out lie in its memory, and calls are enqueued and return
                           * before the work is done. Otherwise both lie on the host, and calls return when it is done */
    void *cuda_stream;    /* with on_device: a cudaStream_t to enqueue on; NULL: the device's default stream */
    rcv_output output;    /* of a learner */
} rcv_stream_options;

/* `options` may be NULL: one row, one step a call, on the CPU. */
RCV_API rcv_status rcv_stream_new_model(const rcv_model *model, const rcv_stream_options *options, rcv_stream **stream);
RCV_API void rcv_stream_free(rcv_stream *stream); /* NULL does nothing. Waits for what it enqueued */
/* Takes `steps` frames, 1 to `most`, and moves the states on.
 *   model    frames [steps, batch, input], out [steps, batch, output of rcv_net_output()]; elements are float64 where
 *            the parameters are, otherwise float32
 *   learner  frames are int64_t tokens [steps, batch], or float numbers [steps, batch, features]; out is [steps, batch,
 *            rcv_learner_outputs()] in the learner's type (rcv_learner_dtype): at every step what the learner predicts
 *            of the frames so far
 * `out` may be NULL: the states move on, nothing is given back. A call that is refused changes nothing. */
RCV_API rcv_status rcv_stream_step(rcv_stream *stream, const void *frames, int64_t steps, void *out);
/* Sets the states of rows to zero: those with rows[row] nonzero, [batch]; `rows` may be NULL: all. */
RCV_API rcv_status rcv_stream_reset(rcv_stream *stream, const uint8_t *rows);
/* Elements of the states of one row: of each state of rcv_net_state() in turn, of each layer in turn, its size. */
RCV_API int64_t rcv_stream_state_elements(const rcv_stream *stream);
/* Copies the states of a row out or in: [rcv_stream_state_elements()] on the host, float64 where the parameters are,
 * otherwise float32. Row -1 means all: [batch, rcv_stream_state_elements()]. States may be set in another stream of the
 * same network and type. */
RCV_API rcv_status rcv_stream_get_states(rcv_stream *stream, int64_t row, void *states);
RCV_API rcv_status rcv_stream_set_states(rcv_stream *stream, int64_t row, const void *states);
/* Makes the stream use the parameters that its model or learner has now; states stay. It is called after parameters were
 * changed and before the next step. */
RCV_API rcv_status rcv_stream_reload(rcv_stream *stream);
RCV_API rcv_status rcv_stream_wait(rcv_stream *stream);            /* with on_device: until everything is done */
RCV_API const rcv_plan *rcv_stream_plan(const rcv_stream *stream); /* for `most` steps; valid as long as the stream */

/* ---- 12. training data ------------------------------------------------------------------------------------------- */

typedef enum {
    RCV_LEVEL_WORD = 0,  /* tokens are words between white space, and <eos> at the end of every line */
    RCV_LEVEL_BYTE,      /* tokens are bytes */
    RCV_LEVEL_CHARACTER, /* tokens are characters of a text in UTF-8 */
    RCV_LEVEL_PIECE      /* tokens are the pieces of words of a byte-pair encoding, which a tokenizer.json describes */
} rcv_level;

/* Numbered tokens: the 256 bytes, words, characters or pieces. Immutable; may be shared between threads. */
typedef struct rcv_vocabulary rcv_vocabulary;

/* Thread-safe, all functions with vocabularies. Returned pointers are valid as long as the vocabulary. */
RCV_API rcv_status rcv_vocabulary_bytes(rcv_context *context, rcv_vocabulary **vocabulary);
/* A list of words, one per line; a list of characters as rcv_vocabulary_print gives it; or a tokenizer.json. The text
 * decides the level. `name` is used in messages. Copied. */
RCV_API rcv_status rcv_vocabulary_parse(rcv_context *context, const char *text, size_t length, const char *name,
                                        rcv_vocabulary **vocabulary);
RCV_API rcv_status rcv_vocabulary_load(rcv_context *context, const char *path, rcv_vocabulary **vocabulary);
RCV_API void rcv_vocabulary_free(rcv_vocabulary *vocabulary); /* NULL does nothing */
RCV_API rcv_level rcv_vocabulary_level(const rcv_vocabulary *vocabulary);
RCV_API int64_t rcv_vocabulary_size(const rcv_vocabulary *vocabulary);
/* The bytes of a token, which need not end in NUL; of a piece its name in the tokenizer.json. NULL past the end. */
RCV_API const char *rcv_vocabulary_token(const rcv_vocabulary *vocabulary, int64_t token, size_t *length);
RCV_API int64_t rcv_vocabulary_find(const rcv_vocabulary *vocabulary, const char *word, size_t length); /* -1: absent */
/* The token that ends a line where lines are sequences: <eos> of words, the newline of bytes and characters, of pieces an
 * added token such as <|endoftext|> or else the newline; -1: none. */
RCV_API int64_t rcv_vocabulary_line_end(const rcv_vocabulary *vocabulary);
/* As a text that rcv_vocabulary_parse reads: one word per line; one character per line, escaped, below the line "recurve
 * characters"; or the tokenizer.json. Not of bytes. Free with rcv_text_free. */
RCV_API rcv_status rcv_vocabulary_print(const rcv_vocabulary *vocabulary, char **text);
/* The tokens of a text as training reads them in a stream; at word level every newline is <eos>, and the text's end is
 * none. *count is their number; at most `room` of them are written to `tokens`. RCV_FORMAT where the text has something
 * for which there is no token, not even an unknown one. */
RCV_API rcv_status rcv_vocabulary_encode(const rcv_vocabulary *vocabulary, const char *text, size_t length,
                                         int64_t *tokens, size_t room, size_t *count);
/* What a token adds to a text whose last token is `before` (-1: the text begins): a space before a word, say. It need not
 * be whole characters: pieces may be bytes. *length is its size in bytes; at most `room` of them are written. */
RCV_API rcv_status rcv_vocabulary_decode(const rcv_vocabulary *vocabulary, int64_t before, int64_t token, char *text,
                                         size_t room, size_t *length);

/* A tokenised file. The tokens are cached in TEXT.recurve-tokens, or in $XDG_CACHE_HOME/recurve (~/.cache/recurve). A
 * cache is used while the text and the options are the same, if no other user can have written it. A file that changes
 * while it is read is RCV_IO. Immutable; may be shared between threads. */
typedef struct rcv_data rcv_data;

/* What is predicted. A class is a whole number or a text; values are a number or a list of numbers. docs/DATA.md says
 * how files hold them. */
typedef enum {
    RCV_DATA_STREAM = 0, /* a text as one sequence of tokens */
    RCV_DATA_LINES, /* a text whose lines are sequences: inputs are <eos> and the words, targets the words and <eos> */
    RCV_DATA_CLASSES,      /* sequences with a class each */
    RCV_DATA_VALUES,       /* sequences with one or more numbers each */
    RCV_DATA_STEP_CLASSES, /* sequences with a class at every time step */
    RCV_DATA_STEP_VALUES   /* sequences with one or more numbers at every time step; forecasts */
} rcv_data_kind;

/* How a file holds examples. Texts are files of the kinds stream and lines. */
typedef enum {
    RCV_FORMAT_AUTO = 0,   /* recognised by its content and its name */
    RCV_FORMAT_TEXT,       /* a text */
    RCV_FORMAT_CSV,        /* a table with a header: columns between commas or semicolons */
    RCV_FORMAT_TSV,        /* the same with tabs */
    RCV_FORMAT_JSON_LINES, /* a JSON object a line */
    RCV_FORMAT_NUMBERS,    /* lines of numbers: the class or value first, then time steps of one feature */
    RCV_FORMAT_NPY,        /* an array of NumPy */
    RCV_FORMAT_NPZ,        /* arrays x, y and lengths of NumPy */
    RCV_FORMAT_SAFETENSORS /* tensors x, y and lengths */
} rcv_file_format;

/* What becomes of a feature that is missing: an empty field, NaN, NA or null. A target that is missing at a time step
 * does not count; a sequence whose only target is missing is left out. */
typedef enum {
    RCV_MISSING_ERROR = 0, /* the file is refused, with line and column */
    RCV_MISSING_PREVIOUS,  /* the value of the time step before, or the mean where there is none */
    RCV_MISSING_MEAN,      /* the mean over the training data */
    RCV_MISSING_ZERO
} rcv_missing;

typedef struct rcv_learner rcv_learner; /* section 14 */

typedef struct {
    size_t size;
    rcv_level level;
    rcv_data_kind kind;
    const rcv_vocabulary *vocabulary; /* NULL: made from this text. Copied */
    const char *const *
        classes; /* names in the order of their numbers; NULL: those of this file, sorted, numbers as numbers. Copied */
    size_t class_count;
    const rcv_data *like; /* NULL, or data whose vocabulary and classes are used where none are given; its number of
                             features must be the same */
    const char *cache; /* folder of the cache; NULL: the text's folder, or the user's cache if that cannot be written;
                          "": the user's only */
    rcv_file_format format;
    /* Columns of a table, or keys of JSON objects, by name; NAME,NAME for several. NULL, or "": `like`'s, or as the file
     * suggests (rcv_data_recognise). Of arrays: not used. */
    const char *features; /* of the input */
    const char *target;   /* what is predicted */
    const char *sequence; /* rows with the same value here are the time steps of a sequence; they must be together */
    const char *time;     /* rises within a sequence, and is no feature */
    int64_t horizon;      /* a forecast: the target is its value so many time steps later; 0: none */
    int64_t
        piece; /* sequences with targets at every time step are cut into pieces of at most so many; 0: they are not */
    rcv_missing missing;
    bool unlabelled; /* there need be no targets, and those that are there are not read: for predictions */
} rcv_data_options;

/* What a file seems to be. Written by the library, as many bytes as `size` says. */
typedef struct {
    size_t size;
    rcv_file_format format;
    rcv_data_kind kind;
    rcv_level level;
} rcv_guess;

/* Thread-safe, all functions with data. Returned pointers are valid as long as the data. */

/* `options` may be NULL: a stream of words. */
RCV_API rcv_status rcv_data_open(rcv_context *context, const char *path, const rcv_data_options *options,
                                 rcv_data **data);
/* Looks at the beginning of a file. What `options` give (a format, columns, a horizon) is taken as it is; `options` may
 * be NULL. *sentence says what was recognised, and by what; free with rcv_text_free; may be NULL. */
RCV_API rcv_status rcv_data_recognise(rcv_context *context, const char *path, const rcv_data_options *options,
                                      rcv_guess *guess, char **sentence);
RCV_API void rcv_data_free(rcv_data *data); /* NULL does nothing */

typedef enum {
    RCV_PART_SEQUENCES = 0, /* whole sequences, drawn by the seed; not for streams */
    RCV_PART_TIME           /* in the order of the file: of a stream its tokens, of pieces those of each sequence */
} rcv_part_by;

typedef struct {
    size_t size;
    double begin, end; /* shares of the data, 0 <= begin < end <= 1 */
    rcv_part_by by;
    uint64_t seed; /* the same for all parts of the data */
} rcv_part_options;

/* A part of the data: parts whose shares do not overlap have no example in common. It may outlive the data. */
RCV_API rcv_status rcv_data_part(const rcv_data *data, const rcv_part_options *options, rcv_data **part);
/* What was read, for people: format, columns, what is predicted. Valid as long as the data. */
RCV_API const char *rcv_data_description(const rcv_data *data);
/* Names of the columns or keys that were read, NAME,NAME; "" where they have none. Valid as long as the data. */
RCV_API const char *rcv_data_feature_names(const rcv_data *data);
RCV_API const char *rcv_data_target_names(const rcv_data *data);
/* The examples from..from + count - 1: lengths [count]; x [steps, count, features] or tokens [steps, count], where steps is the
 * longest of these lengths, zero past a length; `x` and `tokens` have room for `room` elements (RCV_INVALID where that is
 * too small). NULL arrays are not written. */
RCV_API rcv_status rcv_data_read(const rcv_data *data, int64_t from, int64_t count, int64_t *lengths, float *x,
                                 int64_t *tokens, int64_t room);
/* Tokens from..from + count - 1 of a text, in the order of the file. */
RCV_API rcv_status rcv_data_read_tokens(const rcv_data *data, int64_t from, int64_t count, int64_t *tokens);
/* The name of example `index` in the file, such as its sequence's id; its number from 0 where it has none. `text` has room for
 * `room` bytes, including the NUL; longer names are cut. */
RCV_API rcv_status rcv_data_example_name(const rcv_data *data, int64_t index, char *text, size_t room);
RCV_API const rcv_vocabulary *rcv_data_vocabulary(const rcv_data *data); /* NULL where examples are numbers */
RCV_API int64_t rcv_data_tokens(const rcv_data *data);                   /* or time steps of all examples */
RCV_API int64_t rcv_data_sequences(const rcv_data *data);                /* 1 for a stream */
RCV_API int64_t rcv_data_longest(const rcv_data *data);                  /* length of the longest sequence */
RCV_API int64_t rcv_data_features(const rcv_data *data); /* of a time step where examples are numbers, otherwise 0 */
RCV_API int64_t rcv_data_outputs(const rcv_data *data);  /* tokens, classes, or values per example */
RCV_API rcv_level rcv_data_level(const rcv_data *data);
RCV_API rcv_data_kind rcv_data_get_kind(const rcv_data *data);
/* Ends in NUL at its length; NULL past the end and where there are no classes. `length` may be NULL. */
RCV_API const char *rcv_data_class_name(const rcv_data *data, int64_t index, size_t *length);

/* counts: [rcv_data_outputs()] examples, or time steps, of each class. RCV_INVALID where there are no classes. */
RCV_API rcv_status rcv_data_count_classes(const rcv_data *data, int64_t *counts);
/* Not for streams. counts[length], for lengths up to rcv_data_longest(): number of sequences. A line of n tokens has
 * length n + 1. */
RCV_API rcv_status rcv_data_lengths(const rcv_data *data, int64_t *counts);
enum { RCV_MOST_BUCKETS = 64, RCV_AUTO_BUCKETS = 32 }; /* the limit, and what the setting `auto` uses */
/* At most `most` increasing lengths to pad sequences to, with the least padding; the last one is the longest sequence.
 * `greedy`: faster, nearly optimal. `bounds` has room for `most`. */
RCV_API rcv_status rcv_data_buckets(const rcv_data *data, size_t most, bool greedy, int64_t *bounds, size_t *count);
/* Tokens with padding to these lengths, divided by tokens without. */
RCV_API rcv_status rcv_data_padding(const rcv_data *data, const int64_t *bounds, size_t count, double *ratio);

/* ---- 13. settings of a training run ------------------------------------------------------------------------------ */

/* Every option of a training run by name, as text. The tool's options, configuration files and checkpoints use the same
 * table. One thread at a time while settings are changed; thread-safe otherwise. */
typedef struct rcv_settings rcv_settings;

typedef enum {
    RCV_SETTING_FLAG = 0, /* true or false */
    RCV_SETTING_INTEGER,  /* in minimum..maximum */
    RCV_SETTING_REAL,     /* the same; with an infinite maximum, any finite number */
    RCV_SETTING_TEXT,     /* UTF-8 without control characters; may be empty */
    RCV_SETTING_CHOICE,   /* one of the choices */
    RCV_SETTING_OUTPUT    /* a path that a run writes; may be empty. Not read from checkpoints */
} rcv_setting_kind;

typedef struct {
    const char *name;  /* hidden, learning-rate, ... */
    const char *group; /* data, model, ...; settings of a group follow one another */
    rcv_setting_kind kind;
    const char *default_value;
    double minimum, maximum;
    const char *const *choices; /* ends in NULL; NULL for other kinds */
    const char *value;          /* placeholder in help; NULL for a flag */
    const char *help;           /* one line */
} rcv_setting;

/* Thread-safe. The table of settings; NULL past the end. Static. */
RCV_API size_t rcv_setting_count(void);
RCV_API const rcv_setting *rcv_setting_at(size_t index);

RCV_API rcv_status rcv_settings_new(rcv_context *context, rcv_settings **settings);
RCV_API rcv_status rcv_settings_copy(const rcv_settings *settings, rcv_settings **copy);
RCV_API void rcv_settings_free(rcv_settings *settings); /* NULL does nothing */

/* A value as text: true, 20, 0.5, adam. Copied. A call that fails changes nothing, here and below. */
RCV_API rcv_status rcv_settings_set(rcv_settings *settings, const char *name, const char *value);
/* Sets the values of a preset and leaves all others. */
RCV_API rcv_status rcv_settings_preset(rcv_settings *settings, const char *preset);
/* Thread-safe. NULL past the end. Static texts. */
RCV_API size_t rcv_preset_count(void);
RCV_API const char *rcv_preset_name(size_t index);
RCV_API const char *rcv_preset_summary(size_t index);
/* A JSON object such as {"preset": "zaremba-small", "hidden": 650, "tied": true}. A preset is applied first. `file` is
 * used in messages. */
RCV_API rcv_status rcv_settings_parse(rcv_settings *settings, const char *json, size_t length, const char *file);
RCV_API rcv_status rcv_settings_load(rcv_settings *settings, const char *path);
/* All settings as such an object. Free with rcv_text_free. */
RCV_API rcv_status rcv_settings_print(const rcv_settings *settings, char **json);
/* Checks that the settings fit each other, as far as that needs no data. A trainer does the same. */
RCV_API rcv_status rcv_settings_check(const rcv_settings *settings);

/* As text, valid until it is set again; NULL where there is no such setting. */
RCV_API const char *rcv_settings_get(const rcv_settings *settings, const char *name);
/* True if it was set by name, preset or file, to whatever value. */
RCV_API bool rcv_settings_given(const rcv_settings *settings, const char *name);

/* The data of a training run. */
enum { RCV_TRAIN = 0, RCV_VALID, RCV_TEST, RCV_DATA_PARTS };

typedef struct {
    size_t size;
    const char
        *paths[RCV_DATA_PARTS];     /* of train, valid and test; NULL: none, or the part of the training data that the
                                          settings valid and test give ("10%") */
    bool elsewhere[RCV_DATA_PARTS]; /* tokens are cached in the user's cache folder, not beside the file, if the setting
                                       cache names no folder */
    const rcv_vocabulary *vocabulary; /* NULL, or used in place of the one that settings name: that of a checkpoint */
    bool without_test;                /* the test data is opened later, by a call that has it alone */
} rcv_training_files;

/* Opens files as the settings of group data say. A kind that is `auto` is recognised and set in `settings`, as is the
 * level of a vocabulary that they name, unless a level was given. data [RCV_DATA_PARTS]: NULL where there is none; free
 * each with rcv_data_free. *sentence says what was recognised and how to change it, NULL where nothing was; free with
 * rcv_text_free; may be NULL. */
RCV_API rcv_status rcv_training_data_open(rcv_context *context, rcv_settings *settings, const rcv_training_files *files,
                                          rcv_data **data, char **sentence);

/* ---- 14. learners: embedding, network and output layer ----------------------------------------------------------- */

/* Predicts the next token of a text, or the class or values of a sequence or of each of its time steps. Its parameters
 * lie in its device's memory. Inputs that are numbers are given as the data has them: the learner fills in what is
 * missing (NaN) and normalises as its training did, and values that it predicts are in the data's units. One thread at a
 * time. */

/* With initialised parameters. Shape and type follow from the settings (group model, and device, dtype, init, seed) and
 * the data (vocabulary, classes, features), of which it keeps copies. */
RCV_API rcv_status rcv_learner_new(rcv_context *context, const rcv_settings *settings, const rcv_data *data,
                                   rcv_learner **learner);
/* From a file of rcv_learner_save or of a trainer; with averaged parameters if the run has them. `device` may be NULL:
 * "cpu". */
RCV_API rcv_status rcv_learner_load(rcv_context *context, const char *path, const char *device, rcv_dtype dtype,
                                    rcv_learner **learner);
/* The model without a run: safetensors with the names of a PyTorch module with `embedding`, `rnn` and `decoder`. */
RCV_API rcv_status rcv_learner_save(const rcv_learner *learner, const char *path);
RCV_API void rcv_learner_free(rcv_learner *learner); /* NULL does nothing */
/* Valid as long as the learner. */
RCV_API const rcv_net *rcv_learner_net(const rcv_learner *learner);
RCV_API rcv_data_kind rcv_learner_kind(const rcv_learner *learner);
RCV_API const rcv_vocabulary *rcv_learner_vocabulary(const rcv_learner *learner); /* NULL where inputs are numbers */
RCV_API const char *rcv_learner_device(const rcv_learner *learner);
RCV_API const char *const *rcv_learner_classes(const rcv_learner *learner, size_t *count); /* names; NULL: none */
RCV_API int64_t rcv_learner_parameter_elements(const rcv_learner *learner);
RCV_API rcv_dtype rcv_learner_dtype(const rcv_learner *learner);     /* of its arrays: RCV_FLOAT32 or RCV_FLOAT64 */
RCV_API int64_t rcv_learner_features(const rcv_learner *learner);    /* of a time step; 0 where inputs are tokens */
RCV_API int64_t rcv_learner_outputs(const rcv_learner *learner);     /* tokens, classes or values */
RCV_API bool rcv_learner_predicts_steps(const rcv_learner *learner); /* at every time step, not once a sequence */
/* Names of the columns of the data it was trained on, NAME,NAME; "" where these had none. */
RCV_API const char *rcv_learner_feature_names(const rcv_learner *learner);
RCV_API const char *rcv_learner_target_names(const rcv_learner *learner);
/* The column of a table that names sequences; NULL: there is none, and they are numbered. */
RCV_API const char *rcv_learner_sequence_name(const rcv_learner *learner);
/* Rows of a table with the same name there are the time steps of a sequence; otherwise every row is a sequence. */
RCV_API bool rcv_learner_groups_rows(const rcv_learner *learner);
RCV_API int64_t rcv_learner_horizon(const rcv_learner *learner); /* time steps that it forecasts; 0: it does not */
/* Opens data as the learner reads it: level, kind, vocabulary, classes, columns, horizon and treatment of missing values
 * are those of its training. Of `options`, which may be NULL, cache, format and unlabelled are used. */
RCV_API rcv_status rcv_learner_open_data(const rcv_learner *learner, const char *path, const rcv_data_options *options,
                                         rcv_data **data);

typedef struct {
    size_t size;
    int64_t batch;   /* columns of a text, or sequences, processed at once; 0: of a text 1, so that every token has the
                        whole text before it as context, and sequences in batches of similar lengths */
    int64_t threads; /* 0: the context's number */
    bool (*go_on)(void *user); /* NULL, or called after every batch; false stops */
    void *user;                /* of go_on; may be NULL */
    int64_t
        *confusion; /* NULL, or [classes, classes]: examples (or time steps) of class `row` that were taken for class
                           `column` */
} rcv_evaluation_options;

/* Written by the library, as many bytes as `size` says. A metric that does not apply is NaN. */
typedef struct {
    size_t size;
    double loss;     /* mean, in nats (values: squared error, of normalised values where the learner normalises) */
    int64_t counted; /* tokens, examples or time steps in the mean */
    double accuracy; /* classes: the correct part, 0 to 1; 0 of other kinds */
    double precision, recall, f1; /* classes: means over the classes that occur */
    double auc; /* classes: area under the ROC curve; of more than two the mean of one class against the others; of
                   millions of examples that of a random sample */
    double mae, rmse;             /* values: in the data's units, over all outputs */
    double r2;                    /* values: the explained part of the variance, mean over outputs */
    double naive_mae, naive_rmse; /* forecasts: the same of the last known value, as the naive forecast has it */
} rcv_evaluation;

/* `options` may be NULL: defaults. RCV_STOPPED if the callback stopped it. */
RCV_API rcv_status rcv_learner_evaluate(rcv_learner *learner, const rcv_data *data,
                                        const rcv_evaluation_options *options, rcv_evaluation *result);

/* An evaluation as a line of a run's log, one JSON object: {"event":"test","loss":...,"counted":...,"metrics":{...},
 * "classes":[...],"confusion":[[...]]}. `confusion`: that of the options, or NULL; of more than 50 classes names and
 * confusion are left out. Free with rcv_text_free. */
RCV_API rcv_status rcv_evaluation_print(rcv_context *context, const rcv_learner *learner,
                                        const rcv_evaluation *evaluation, const int64_t *confusion, char **json);

typedef struct {
    size_t size;
    const char *prompt; /* read before the first token and not emitted; NULL with prompt_bytes 0 */
    size_t prompt_bytes;
    int64_t count;      /* tokens to generate */
    double temperature; /* 0: always the likeliest token */
    int64_t top_k;      /* sample from the k likeliest; 0: from all */
    double top_p;       /* sample from the likeliest that together have this probability; 0: from all */
    uint64_t seed;
    int64_t threads; /* 0: the context's number */
} rcv_generation;

/* Calls `emit` for every token, as text: words with the space before them, <eos> as the end of a line. If `emit`
 * returns false the result is RCV_STOPPED. `user` may be NULL. */
RCV_API rcv_status rcv_learner_generate(rcv_learner *learner, const rcv_generation *options,
                                        bool (*emit)(void *user, const char *text, size_t length), void *user);

/* A stream of the learner (section 11), which must outlive it. `options` may be NULL. */
RCV_API rcv_status rcv_stream_new_learner(rcv_learner *learner, const rcv_stream_options *options, rcv_stream **stream);

/* Sequences to predict from. All arrays lie on the host; for a learner on a GPU they are copied. Values past a
 * sequence's length are not read. */
typedef struct {
    size_t size;
    int64_t steps, batch;   /* of the arrays: any number of sequences, of any length; batch 0 gives nothing */
    const float *x;         /* [steps, batch, features] where inputs are numbers, otherwise NULL */
    int64_t features;       /* of x, which must be rcv_learner_features(); 0: they are */
    const int64_t *tokens;  /* [steps, batch] where inputs are tokens, otherwise NULL */
    const int64_t *lengths; /* [batch], each in 1..steps; NULL: all have `steps` */
    rcv_output output;
    bool last;       /* of a model that predicts steps: the last step of each sequence only */
    void *out;       /* [batch, rcv_learner_outputs()]; where rcv_learner_predicts_steps, without `last`: [steps,
                      * batch, rcv_learner_outputs()], zero past a sequence's length. In the learner's type
                      * (rcv_learner_dtype) */
    int64_t threads; /* 0: the context's number */
    bool (*go_on)(void *user); /* NULL, or called after every batch; false stops */
    void *user;                /* of go_on; may be NULL */
} rcv_prediction;

/* For sequences without targets: probabilities of classes, values, or logits of tokens, as rcv_learner_evaluate computes
 * them. Plans and memory are kept in the learner for later calls. RCV_STOPPED if the callback stopped it: `out` is
 * written in part. */
RCV_API rcv_status rcv_learner_predict(rcv_learner *learner, const rcv_prediction *data);

/* ---- 15. training ------------------------------------------------------------------------------------------------ */

/* A training run: a learner, its optimiser, its place in the data, its files. One thread at a time. */
typedef struct rcv_trainer rcv_trainer;

typedef struct {
    int64_t step;             /* updates done, of this run and of those it resumed */
    int64_t steps;            /* updates in total; 0: unknown */
    int64_t epoch;            /* complete ones */
    double epochs;            /* with the fraction of the current one */
    double loss;              /* nats per token (or the loss of an example), mean over the last updates */
    double rate;              /* learning rate of the last update */
    double norm;              /* of its gradient, before clipping */
    double tokens_per_second; /* of this call; examples per second where there are no tokens */
    double seconds;           /* of training, all calls */
    double left;              /* estimated seconds to the nearest limit; -1: unknown */
    double validation;        /* loss of the last validation; 0 before the first, infinite if it is not a number */
    double best;              /* loss of the best validation; 0 before the first */
    int64_t written;          /* updates in the last checkpoint that this call of rcv_trainer_run wrote; -1: none */
    double
        metric; /* of the last validation: accuracy of classes, RMSE of values; NaN before the first, and of tokens */
} rcv_progress;

typedef struct {
    size_t size;
    const char *output; /* path of checkpoints; NULL: none are written */
    bool overwrite;     /* also replace models of other runs */
    bool (*progress)(void *user,
                     const rcv_progress *progress); /* called after updates; false: checkpoint and stop. May be NULL */
    void (*log)(void *user, const char *line);      /* called with one JSON object per line. May be NULL */
    void *user;                                     /* of all three; may be NULL */
    /* called before every batch of a validation with the part of it that is done, from 0 on. May be NULL */
    void (*validating)(void *user, double part);
} rcv_trainer_options;

/* A new run. The settings are copied; the data must outlive the trainer. `valid` may be NULL. To train over several
 * processes use rcv_trainer_join of recurve_distributed.h. */
RCV_API rcv_status rcv_trainer_new(rcv_context *context, const rcv_settings *settings, const rcv_data *train,
                                   const rcv_data *valid, rcv_trainer **trainer);
/* Continues from a checkpoint of the same model: parameters, optimiser, random numbers, position in the data, plans.
 * The next update has the same bits as without the interruption. With other data it starts a new epoch. A file that is
 * refused changes nothing. */
RCV_API rcv_status rcv_trainer_resume(rcv_trainer *trainer, const char *path);
RCV_API void rcv_trainer_free(rcv_trainer *trainer); /* NULL does nothing */
/* The trainer's own learner, with the parameters of the last update; valid as long as the trainer. */
RCV_API rcv_learner *rcv_trainer_learner(rcv_trainer *trainer);
RCV_API size_t rcv_trainer_bytes(const rcv_trainer *trainer); /* of device memory; 0 before the first run */
/* Trains until a limit of the settings (RCV_OK) or until the progress callback stops it (RCV_STOPPED, after writing a
 * checkpoint). A loss that is not a number ends it with RCV_INVALID; the sentence names the update and the last good
 * checkpoint. `options` may be NULL: defaults. The output, the checkpoints before it (OUTPUT.1, ...) and the best model
 * (OUTPUT.best) replace files of the same run; with `overwrite` also files of other runs. A file that is not a model is
 * replaced at the output only. Otherwise, or if another process trains to this output (OUTPUT.lock is locked), the
 * result is RCV_IO and nothing has changed. */
RCV_API rcv_status rcv_trainer_run(rcv_trainer *trainer, const rcv_trainer_options *options);
RCV_API rcv_status rcv_trainer_save(rcv_trainer *trainer, const char *path);  /* a checkpoint, now */
RCV_API const rcv_progress *rcv_trainer_progress(const rcv_trainer *trainer); /* valid until the next run */
/* Thread-safe. The path of the best model by validation beside `path`: MODEL.best.safetensors. Free with rcv_text_free.
 */
RCV_API rcv_status rcv_trainer_best_path(rcv_context *context, const char *path, char **best);
/* The same if that file is the best model of this run, as its last validation wrote it; otherwise *path is NULL. Free
 * with rcv_text_free. */
RCV_API rcv_status rcv_trainer_best_model(const rcv_trainer *trainer, const char *output, char **path);
/* Thread-safe. Checks that rcv_trainer_run could write to this output, for a new run (`resume` NULL) or one resumed
 * from that checkpoint. Changes nothing. */
RCV_API rcv_status rcv_trainer_check_output(rcv_context *context, const rcv_settings *settings, const char *resume,
                                            const char *output, bool overwrite);

/* Thread-safe. The settings and the vocabulary of a checkpoint; *vocabulary is NULL if it has none. Paths that a run
 * writes (RCV_SETTING_OUTPUT) have their defaults: a file from elsewhere does not choose them. */
RCV_API rcv_status rcv_checkpoint_settings(rcv_context *context, const char *path, rcv_settings **settings);
RCV_API rcv_status rcv_checkpoint_vocabulary(rcv_context *context, const char *path, rcv_vocabulary **vocabulary);

#ifdef __cplusplus
}
#endif

#endif
