/* Scans of the public API (rcv_scan_new): kernels compiled once, called many times. */
#include "device/cuda/recurrence/scan.h"
#include "device/cuda/codegen/jit.h"
#include "device/cuda/engine/engine.h"
#include "device/cuda/kernels/kernels.h"
#include "device/cuda/recurrence/tuning.h"

#include <string.h>

static const char *const form_names[RCVI_SCAN_FORMS] = {"serial", "channels", "chained", "three", "waves"};

enum { ARRAYS = 3, ALIGNMENT = 16, MOST_KERNELS = 4 };

/* As struct LinearArgs of scan_linear.cuh. */
typedef struct {
    const void *a, *b, *h, *dh;
    void *out, *da, *db;
    const void *initial, *from;
    void *last, *sums;
    const int64_t *lengths;
    const uint8_t *resets;
    int64_t steps, batch, channels;
} arguments;

typedef struct {
    char *source;
    cudaLibrary_t code;
    cudaKernel_t kernels[MOST_KERNELS]; /* scan, or reduce, carry and expand; the last: sum */
} pass;

struct rcvi_scan {
    rcv_context *context;
    int ordinal, processors;
    rcv_scan_options options;
    rcvi_cuda_type data;
    size_t real_bytes;
    bool streamed, starts_early;
    rcvi_scan_cut cut;
    pass passes[2]; /* forward, backward */
    char *scratch;  /* device memory: the form's own, sums of tiles, lengths */
    size_t sums, lengths, bytes;
};

/* ---- preparing ---- */

static rcvi_cuda_type type_of(rcv_dtype dtype) {
    switch (dtype) {
    case RCV_FLOAT64: return RCVI_F64;
    case RCV_BFLOAT16: return RCVI_BF16;
    case RCV_FLOAT16: return RCVI_F16;
    default: return RCVI_F32;
    }
}

static rcv_status find_form(const rcv_scan_options *options, rcvi_scan_form *form) {
    *form = RCVI_SCAN_FORMS;
    for (int f = 0; options->form && f < RCVI_SCAN_FORMS; f++) {
        if (!strcmp(options->form, form_names[f])) *form = (rcvi_scan_form)f;
    }
    if (options->form && *form == RCVI_SCAN_FORMS)
        return rcvi_fail(RCV_INVALID,
                         "there is no form '%.32s' of a scan on a GPU; there are serial, channels, chained, three and "
                         "waves",
                         options->form);
    if (*form == RCVI_SCAN_CHAINED && options->dtype == RCV_FLOAT64)
        return rcvi_fail(RCV_UNSUPPORTED, "a chained scan passes states in words of 16 bytes, which hold no float64: "
                                          "use the form three");
    return RCV_OK;
}

static size_t up(size_t bytes) { return (bytes + 255) / 256 * 256; }

static rcvi_scan_cut cut_as(const rcvi_scan *s, rcvi_scan_form form) {
    return rcvi_scan_find_cut(form, s->data == RCVI_F64, s->options.steps, s->options.batch * s->options.channels,
                              s->options.channels, (int)rcvi_cuda_bytes(s->data), s->processors);
}

static rcv_status find_cut(rcvi_scan *s, bool has_waves) {
    rcvi_scan_form form = RCVI_SCAN_FORMS;
    RCVI_TRY(find_form(&s->options, &form));
    int64_t channels = s->options.batch * s->options.channels;
    s->cut = cut_as(s, form == RCVI_SCAN_FORMS && has_waves ? RCVI_SCAN_WAVES : form);
    if (form == RCVI_SCAN_WAVES && (!has_waves || s->cut.form != form))
        return rcvi_fail(RCV_UNSUPPORTED,
                         "a scan in waves takes float32, channels in multiples of 4, 32 of them to 32 a processor, and "
                         "a GPU of compute capability 9 or later that has 227 KiB of shared memory");
    if (form == RCVI_SCAN_FORMS && !rcvi_scan_waves_pay(&s->cut, s->processors)) s->cut = cut_as(s, form);
    int64_t tiles = 0;
    if (!rcvi_multiply(s->cut.chains, s->cut.tiles, &tiles) || tiles > INT32_MAX - 4096)
        return rcvi_fail(RCV_UNSUPPORTED, "a scan of %lld steps of %lld channels has more tiles than one launch takes",
                         (long long)s->options.steps, (long long)channels);
    s->sums = up(rcvi_scan_scratch(&s->cut, s->real_bytes));
    s->lengths = s->sums;
    if (s->options.resets) s->lengths += up((size_t)(s->cut.tiles * channels) * s->real_bytes);
    s->bytes = s->lengths + (s->options.lengths ? (size_t)s->options.batch * sizeof(int64_t) : 0);
    return RCV_OK;
}

static rcv_status write_sources(rcvi_scan *s) {
    for (int backward = 0; backward < 2; backward++) {
        rcvi_scan_shape shape = {.cut = s->cut,
                                 .data = s->data,
                                 .backward = backward,
                                 .reverse = s->options.reverse,
                                 .lengths = s->options.lengths,
                                 .resets = s->options.resets,
                                 .streamed = s->streamed};
        RCVI_TRY(rcvi_scan_source(s->context, &shape, &s->passes[backward].source));
    }
    return RCV_OK;
}

static rcv_status load_pass(rcvi_scan *s, pass *p, const void *code, bool backward) {
    static const char *const three[] = {"reduce_kernel", "carry_kernel", "expand_kernel"};
    bool is_three = s->cut.form == RCVI_SCAN_THREE;
    bool sums = backward && s->options.resets;
    size_t shared = rcvi_scan_find_pieces(&s->cut, backward).bytes;
    RCVI_TRY(rcvi_jit_load(code, is_three ? three[0] : "scan_kernel", shared, &p->code, &p->kernels[0]));
    for (int k = 1; is_three && k < 3; k++)
        RCVI_CUDA_TRY(cudaLibraryGetKernel(&p->kernels[k], p->code, three[k]), "preparing a scan");
    if (sums)
        RCVI_CUDA_TRY(cudaLibraryGetKernel(&p->kernels[MOST_KERNELS - 1], p->code, "sum_kernel"), "preparing a scan");
    return RCV_OK;
}

static rcv_status load(rcvi_scan *s, int major, int minor) {
    rcvi_jit_unit units[2] = {{.source = s->passes[0].source}, {.source = s->passes[1].source}};
    RCVI_TRY(rcvi_jit_compile(s->context, units, 2, major, minor));
    rcv_status status = RCV_OK;
    for (int i = 0; i < 2; i++) {
        if (!status) status = load_pass(s, &s->passes[i], units[i].code, i);
        rcvi_free(s->context, units[i].code);
    }
    return status;
}

/* By a stream of its own, and waits: the caller's streams do not wait for the default stream, where they are not of its blocking kind. */
static rcv_status clear(void *memory, size_t bytes) {
    cudaStream_t stream = NULL;
    RCVI_CUDA_TRY(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
    cudaError_t error = cudaMemsetAsync(memory, 0, bytes, stream);
    if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
    cudaStreamDestroy(stream);
    return rcvi_cuda_check(error, "clearing a scan's memory");
}

static rcv_status open(rcvi_scan *s) {
    struct cudaDeviceProp properties;
    RCVI_CUDA_TRY(cudaGetDeviceProperties(&properties, s->ordinal), "reading the device's properties");
    s->processors = properties.multiProcessorCount;
    s->starts_early = properties.major >= 9;
    RCVI_TRY(find_cut(s, rcvi_scan_has_waves(properties.major, properties.sharedMemPerBlockOptin)));
    double bytes = (double)s->options.steps * (double)s->options.batch * (double)s->options.channels *
                   (double)rcvi_cuda_bytes(s->data) * ARRAYS;
    s->streamed = (s->cut.window || s->cut.form == RCVI_SCAN_WAVES) &&
                  bytes > properties.l2CacheSize; /* no gain where chains are many */
    RCVI_TRY(write_sources(s));
    RCVI_TRY(load(s, properties.major, properties.minor));
    if (!s->bytes) return RCV_OK;
    RCVI_CUDA_TRY(cudaMalloc((void **)&s->scratch, s->bytes), "allocating a scan's memory");
    return clear(s->scratch, s->bytes);
}

static void close_device(rcvi_scan *s) {
    if (s->scratch) cudaFree(s->scratch);
    for (int i = 0; i < 2; i++) {
        if (s->passes[i].code) cudaLibraryUnload(s->passes[i].code);
    }
}

static void release(rcvi_scan *s) {
    int before = 0;
    if (!s) return;
    if (rcvi_cuda_enter(s->ordinal, &before) == RCV_OK) {
        close_device(s);
        rcvi_cuda_leave(before);
    }
    for (int i = 0; i < 2; i++) rcvi_free(s->context, s->passes[i].source);
    rcvi_free(s->context, s);
}

static rcv_status prepare(rcv_context *context, int ordinal, const rcv_scan_options *options, rcvi_scan **scan) {
    int before = 0;
    *scan = NULL;
    rcvi_machine machine;
    RCVI_TRY(rcvi_device_cuda.describe(context, ordinal, options->dtype, 1, &machine));
    rcvi_scan *s = rcvi_new(context, 1, sizeof *s);
    if (!s) return RCV_NO_MEMORY;
    s->context = context;
    s->ordinal = ordinal;
    s->options = *options;
    s->data = type_of(options->dtype);
    s->real_bytes = s->data == RCVI_F64 ? sizeof(double) : sizeof(float);
    rcv_status status = rcvi_cuda_enter(ordinal, &before);
    if (!status) {
        status = open(s);
        rcvi_cuda_leave(before);
    }
    if (status)
        release(s);
    else
        *scan = s;
    return status;
}

static const char *form_of(const rcvi_scan *s) { return form_names[s->cut.form]; }

/* ---- calls ---- */

/* Kernels wait for the one before themselves (begin_kernel), so programmatic stream serialization may start them while it ends. */
static rcv_status launch(const rcvi_scan *s, cudaKernel_t kernel, int64_t blocks, int threads, void **values,
                         cudaStream_t stream) {
    cudaLaunchAttribute early = {.id = cudaLaunchAttributeProgrammaticStreamSerialization,
                                 .val = {.programmaticStreamSerializationAllowed = 1}};
    cudaLaunchConfig_t config = {.gridDim = {(unsigned)blocks, 1, 1},
                                 .blockDim = {(unsigned)threads, 1, 1},
                                 .stream = stream,
                                 .attrs = &early,
                                 .numAttrs = s->starts_early ? 1 : 0};
    return rcvi_cuda_check(cudaLaunchKernelExC(&config, (const void *)kernel, values), "launching a scan");
}

static rcv_status launch_pass(rcvi_scan *s, int which, arguments *a, cudaStream_t stream) {
    const pass *p = &s->passes[which];
    const rcvi_scan_cut *cut = &s->cut;
    int64_t steps = s->options.steps, tiles = cut->tiles;
    int chains = (int)cut->chains;
    int64_t threads = cut->chains * cut->lanes, blocks = (threads + cut->threads - 1) / cut->threads;
    if (cut->form == RCVI_SCAN_SERIAL || cut->form == RCVI_SCAN_CHANNELS)
        return launch(s, p->kernels[0], blocks, cut->threads, (void *[]){a, &steps, &chains}, stream);
    int64_t all = cut->chains * tiles;
    if (cut->form == RCVI_SCAN_WAVES) {
        rcvi_scan_wave_pass wave = {.cut = cut,
                                    .steps = steps,
                                    .channels = s->options.batch * s->options.channels,
                                    .processors = s->processors,
                                    .backward = which,
                                    .early = {a->a, which ? a->dh : a->b},
                                    .late = a->da ? a->h : NULL,
                                    .arguments = a,
                                    .scratch = s->scratch};
        return rcvi_scan_launch_waves(p->kernels[0], &wave, stream);
    }
    if (cut->form == RCVI_SCAN_CHAINED) {
        char *head = s->scratch, *words = s->scratch + RCVI_SCAN_HEAD;
        int64_t most = (int64_t)s->processors * cut->blocks;
        return launch(s, p->kernels[0], cut->many && most < all ? most : all, cut->threads,
                      (void *[]){a, &steps, &chains, &tiles, &head, &words}, stream);
    }
    void *values[] = {a, &steps, &chains, &tiles, &s->scratch};
    RCVI_TRY(launch(s, p->kernels[0], all, cut->threads, values, stream));
    RCVI_TRY(launch(s, p->kernels[1], blocks, cut->threads, values, stream));
    return launch(s, p->kernels[2], all, cut->threads, values, stream);
}

static rcv_status launch_sums(rcvi_scan *s, void *to, cudaStream_t stream) {
    int64_t channels = s->options.batch * s->options.channels;
    bool whole = s->cut.form == RCVI_SCAN_SERIAL || s->cut.form == RCVI_SCAN_CHANNELS;
    int64_t tiles = whole ? 1 : s->cut.tiles;
    char *parts = s->scratch + s->sums;
    return launch(s, s->passes[1].kernels[MOST_KERNELS - 1],
                  (channels + RCVI_TUNED_SUM_THREADS - 1) / RCVI_TUNED_SUM_THREADS, RCVI_TUNED_SUM_THREADS,
                  (void *[]){&parts, &tiles, &channels, &to}, stream);
}

static rcv_status check_alignment(const void *const *pointers, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if ((uintptr_t)pointers[i] % ALIGNMENT)
            return rcvi_fail(RCV_INVALID, "on a GPU the arrays of a scan must begin at multiples of %d bytes",
                             ALIGNMENT);
    }
    return RCV_OK;
}

static rcv_status send_lengths(rcvi_scan *s, const rcv_scan_data *data, cudaStream_t stream, arguments *a) {
    if (!s->options.lengths) return RCV_OK;
    int64_t *to = (int64_t *)(void *)(s->scratch + s->lengths);
    a->lengths = to;
    return rcvi_cuda_check(rcvi_cuda_send_values(stream, data->lengths, s->options.batch, to), "sending the lengths");
}

static arguments common(const rcvi_scan *s, const rcv_scan_data *data) {
    return (arguments){.a = data->a,
                       .initial = data->initial,
                       .resets = data->resets,
                       .steps = s->options.steps,
                       .batch = s->options.batch,
                       .channels = s->options.channels};
}

static rcv_status run_forward(rcvi_scan *s, const rcv_scan_data *data, cudaStream_t stream) {
    arguments a = common(s, data);
    a.b = data->b;
    a.out = data->h;
    a.from = data->initial;
    a.last = data->final;
    RCVI_TRY(send_lengths(s, data, stream, &a));
    return launch_pass(s, 0, &a, stream);
}

static rcv_status run_backward(rcvi_scan *s, const rcv_scan_data *data, const rcv_scan_gradients *gradients,
                               cudaStream_t stream) {
    arguments a = common(s, data);
    a.h = data->h;
    a.dh = gradients->dh;
    a.da = gradients->da;
    a.db = gradients->db;
    a.from = gradients->dfinal;
    a.last = gradients->dinitial;
    a.sums = s->scratch ? s->scratch + s->sums : NULL;
    RCVI_TRY(send_lengths(s, data, stream, &a));
    RCVI_TRY(launch_pass(s, 1, &a, stream));
    return s->options.resets && gradients->dinitial ? launch_sums(s, gradients->dinitial, stream) : RCV_OK;
}

static rcv_status forward(rcvi_scan *s, const rcv_scan_data *data, void *stream) {
    int before = 0;
    const void *pointers[] = {data->a, data->b, data->h, data->initial, data->final};
    RCVI_TRY(check_alignment(pointers, sizeof pointers / sizeof *pointers));
    RCVI_TRY(rcvi_cuda_enter(s->ordinal, &before));
    rcv_status status = run_forward(s, data, stream);
    rcvi_cuda_leave(before);
    return status;
}

static rcv_status backward(rcvi_scan *s, const rcv_scan_data *data, const rcv_scan_gradients *gradients, void *stream) {
    int before = 0;
    const void *pointers[] = {data->a,           data->h,       data->initial, gradients->dh,
                              gradients->dfinal, gradients->da, gradients->db, gradients->dinitial};
    RCVI_TRY(check_alignment(pointers, sizeof pointers / sizeof *pointers));
    RCVI_TRY(rcvi_cuda_enter(s->ordinal, &before));
    rcv_status status = run_backward(s, data, gradients, stream);
    rcvi_cuda_leave(before);
    return status;
}

static rcv_status wait(rcvi_scan *s, void *stream) {
    int before = 0;
    RCVI_TRY(rcvi_cuda_enter(s->ordinal, &before));
    rcv_status status = rcvi_cuda_check(cudaStreamSynchronize(stream), "running a scan");
    rcvi_cuda_leave(before);
    return status;
}

const rcvi_scan_table rcvi_cuda_scan = {
    .prepare = prepare, .release = release, .form = form_of, .forward = forward, .backward = backward, .wait = wait};
