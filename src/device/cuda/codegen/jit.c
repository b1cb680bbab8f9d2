/* NVRTC, opened when first needed; its compilations, and their code loaded into a device. */
#include "device/cuda/codegen/jit.h"
#include "base/library.h"
#include "device/cuda/codegen/cache.h"

#include <nvrtc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPTIONS = 4, MOST_THREADS = 16 };

typedef union {
    struct {
        const char *(*get_error_string)(nvrtcResult result);
        nvrtcResult (*version)(int *major, int *minor);
        nvrtcResult (*count_architectures)(int *count);
        nvrtcResult (*architectures)(int *list);
        nvrtcResult (*create)(nvrtcProgram *program, const char *source, const char *name, int headers,
                              const char *const *texts, const char *const *names);
        nvrtcResult (*destroy)(nvrtcProgram *program);
        nvrtcResult (*compile)(nvrtcProgram program, int count, const char *const *options);
        nvrtcResult (*log_size)(nvrtcProgram program, size_t *bytes);
        nvrtcResult (*log)(nvrtcProgram program, char *text);
        nvrtcResult (*cubin_size)(nvrtcProgram program, size_t *bytes);
        nvrtcResult (*cubin)(nvrtcProgram program, char *code);
        nvrtcResult (*ptx_size)(nvrtcProgram program, size_t *bytes);
        nvrtcResult (*ptx)(nvrtcProgram program, char *code);
    };
    void *pointers[13];
} functions;

static const char *const symbols[] = {
    "nvrtcGetErrorString",
    "nvrtcVersion",
    "nvrtcGetNumSupportedArchs",
    "nvrtcGetSupportedArchs",
    "nvrtcCreateProgram",
    "nvrtcDestroyProgram",
    "nvrtcCompileProgram",
    "nvrtcGetProgramLogSize",
    "nvrtcGetProgramLog",
    "nvrtcGetCUBINSize",
    "nvrtcGetCUBIN",
    "nvrtcGetPTXSize",
    "nvrtcGetPTX",
};
_Static_assert(sizeof symbols / sizeof *symbols == sizeof(functions) / sizeof(void *), "one symbol a function");

/* Written once, then only read. */
static struct {
    functions call;
    bool found;
    char name[64];    /* with its version */
    char reason[512]; /* a sentence that says why it was not found */
} nvrtc;
static pthread_once_t nvrtc_once = PTHREAD_ONCE_INIT;

static void open_nvrtc(void) {
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", NULL};
    int major = 0, minor = 0;
    size_t length = (size_t)snprintf(nvrtc.reason, sizeof nvrtc.reason, "kernels cannot be compiled without NVRTC: ");
    nvrtc.found = rcvi_library_open(names, symbols, nvrtc.call.pointers, sizeof symbols / sizeof *symbols,
                                    nvrtc.reason + length, sizeof nvrtc.reason - length);
    if (!nvrtc.found) return;
    nvrtc.call.version(&major, &minor);
    snprintf(nvrtc.name, sizeof nvrtc.name, "NVRTC %d.%d", major, minor);
}

const char *rcvi_jit_name(void) {
    pthread_once(&nvrtc_once, open_nvrtc);
    if (nvrtc.found) return nvrtc.name;
    rcvi_fail(RCV_UNSUPPORTED, "%s", nvrtc.reason);
    return NULL;
}

const char *rcvi_jit_absence(void) {
    pthread_once(&nvrtc_once, open_nvrtc);
    return nvrtc.found ? NULL : nvrtc.reason;
}

static rcv_status check_nvrtc(nvrtcResult result, const char *what) {
    if (result == NVRTC_SUCCESS) return RCV_OK;
    rcv_status status = result == NVRTC_ERROR_OUT_OF_MEMORY ? RCV_NO_MEMORY : RCV_UNSUPPORTED;
    return rcvi_fail(status, "%s failed in %s: %s", what, nvrtc.name, nvrtc.call.get_error_string(result));
}

/* What to compile for: machine code of the compute capability itself where NVRTC knows it, else PTX of the highest below it. */
typedef struct {
    bool machine;
    char option[48];
} target;

static rcv_status choose_target(rcv_context *context, int major, int minor, target *out) {
    int count = 0, wanted = major * 10 + minor, best = 0;
    RCVI_TRY(check_nvrtc(nvrtc.call.count_architectures(&count), "reading the list of architectures"));
    int *list = rcvi_new(context, (size_t)count, sizeof *list);
    if (!list) return RCV_NO_MEMORY;
    rcv_status status = check_nvrtc(nvrtc.call.architectures(list), "reading the list of architectures");
    for (int i = 0; i < count; i++) {
        if (list[i] <= wanted && list[i] > best) best = list[i];
    }
    rcvi_free(context, list);
    RCVI_TRY(status);
    if (best == 0)
        return rcvi_fail(RCV_UNSUPPORTED, "%s compiles no code for compute capability %d.%d: it is too old for it",
                         nvrtc.name, major, minor);
    out->machine = best == wanted;
    snprintf(out->option, sizeof out->option, "--gpu-architecture=%s_%d%s", out->machine ? "sm" : "compute", best,
             out->machine && best == 90 ? "a" : "");
    return RCV_OK;
}

/* Logs the compiler's log line by line; the sentence has its first line that reports an error, else its first line. */
static rcv_status report_log(rcv_context *context, nvrtcProgram program) {
    size_t bytes = 0;
    char *log = NULL;
    if (nvrtc.call.log_size(program, &bytes) == NVRTC_SUCCESS) log = rcvi_new(context, bytes + 1, 1);
    if (!log || nvrtc.call.log(program, log) != NVRTC_SUCCESS) {
        rcvi_free(context, log);
        return rcvi_fail(RCV_UNSUPPORTED, "%s cannot compile a kernel, and gives no log", nvrtc.name);
    }
    const char *first = NULL;
    for (char *line = log, *next; *line; line = next) {
        next = line + strcspn(line, "\n");
        if (*next) *next++ = '\0';
        rcvi_log(context, "%s: %s", nvrtc.name, line);
        if (!first || (!strstr(first, "error") && strstr(line, "error"))) first = line;
    }
    rcv_status status = rcvi_fail(RCV_UNSUPPORTED, "%s cannot compile a kernel: %s", nvrtc.name, first ? first : "");
    rcvi_free(context, log);
    return status;
}

static rcv_status read_code(rcv_context *context, nvrtcProgram program, bool machine, void **code, size_t *bytes) {
    nvrtcResult (*size)(nvrtcProgram, size_t *) = machine ? nvrtc.call.cubin_size : nvrtc.call.ptx_size;
    nvrtcResult (*get)(nvrtcProgram, char *) = machine ? nvrtc.call.cubin : nvrtc.call.ptx;
    RCVI_TRY(check_nvrtc(size(program, bytes), "reading a kernel's code"));
    *code = rcvi_new(context, *bytes, 1);
    if (!*code) return RCV_NO_MEMORY;
    rcv_status status = check_nvrtc(get(program, *code), "reading a kernel's code");
    if (status != RCV_OK) {
        rcvi_free(context, *code);
        *code = NULL;
    }
    return status;
}

/* ---- parallel compilation: threads only call the compiler ----
 *
 * NVRTC holds a lock of its own in its C++ front end, which is a twentieth of the time of a persistent kernel; its optimiser and assembler
 * run in parallel (docs/EXPERIMENTS.md). */

typedef struct compilation {
    rcvi_jit_unit *unit;
    rcvi_cache_entry entry;
    nvrtcProgram program;           /* NULL: its code was in the cache, or is that of `same` */
    const struct compilation *same; /* an earlier one of the same text */
    nvrtcResult result;
} compilation;

typedef struct {
    compilation *all;
    size_t count;
    compilation **order; /* those with programs, the longest text first */
    size_t program_count;
    const char *const *options; /* [OPTIONS] */
    atomic_size_t next;
    atomic_bool stopped;
    bool (*go_on)(void *user); /* NULL, or asked by the calling thread */
    void *user;
} compilations;

static void compile_next(compilations *c, bool asks) {
    for (size_t i; !atomic_load(&c->stopped) && (i = atomic_fetch_add(&c->next, 1)) < c->program_count;) {
        if (asks && c->go_on && !c->go_on(c->user))
            atomic_store(&c->stopped, true);
        else
            c->order[i]->result = nvrtc.call.compile(c->order[i]->program, OPTIONS, c->options);
    }
}

static void *compile_some(void *argument) {
    compile_next(argument, false);
    return NULL;
}

size_t rcvi_jit_count_threads(size_t programs, int64_t cores, bool beside_caller) {
    size_t most = (size_t)(beside_caller ? (cores + 1) / 2 : cores);
    if (most > MOST_THREADS) most = MOST_THREADS;
    return programs < most ? programs : most;
}

/* The calling thread is one of them. */
static void compile_all(compilations *c) {
    pthread_t threads[MOST_THREADS];
    size_t made = 0;
    size_t wanted = rcvi_jit_count_threads(c->program_count, rcvi_available_cores(), rcvi_cuda_is_searching());
    while (made + 1 < wanted && rcvi_thread_start(&threads[made], compile_some, c) == 0) made++;
    compile_next(c, true);
    while (made > 0) pthread_join(threads[--made], NULL);
}

static const compilation *find_same(const compilations *c, const compilation *own) {
    for (const compilation *other = c->all; other < own; other++) {
        if (other->program && !memcmp(other->entry.hash, own->entry.hash, sizeof own->entry.hash) &&
            !strcmp(other->unit->source, own->unit->source))
            return other;
    }
    return NULL;
}

static rcv_status find_entry(rcv_context *context, const char *source, const char *const *options,
                             rcvi_cache_entry *entry) {
    const char *key[OPTIONS + 3] = {nvrtc.name, source};
    for (int i = 0; i < OPTIONS; i++) key[2 + i] = options[i];
    return rcvi_cache_find(context, key, "", entry);
}

/* Finds the code in the cache, or creates a program that is to be compiled. */
static rcv_status begin(rcv_context *context, compilations *all, compilation *c) {
    RCVI_TRY(find_entry(context, c->unit->source, all->options, &c->entry));
    c->same = find_same(all, c);
    if (c->same) return RCV_OK;
    rcvi_kernel_cache_read(context, &c->entry, &c->unit->code, &c->unit->bytes);
    if (c->unit->code) return RCV_OK;
    RCVI_TRY(check_nvrtc(nvrtc.call.create(&c->program, c->unit->source, "map.cu", 0, NULL, NULL),
                         "reading a kernel's source"));
    all->order[all->program_count++] = c;
    return RCV_OK;
}

static rcv_status copy_code(rcv_context *context, compilation *c) {
    const rcvi_jit_unit *from = c->same->unit;
    c->unit->code = rcvi_new(context, from->bytes, 1);
    if (!c->unit->code) return RCV_NO_MEMORY;
    memcpy(c->unit->code, from->code, from->bytes);
    c->unit->bytes = from->bytes;
    return RCV_OK;
}

static rcv_status end(rcv_context *context, compilation *c, bool machine) {
    if (c->same) return copy_code(context, c);
    if (!c->program) return RCV_OK;
    if (c->result == NVRTC_ERROR_COMPILATION) return report_log(context, c->program);
    RCVI_TRY(check_nvrtc(c->result, "compiling a kernel"));
    RCVI_TRY(read_code(context, c->program, machine, &c->unit->code, &c->unit->bytes));
    rcvi_log(context, "%s compiled a kernel of %zu bytes", nvrtc.name, c->unit->bytes);
    rcvi_kernel_cache_write(context, &c->entry, c->unit->code, c->unit->bytes);
    return RCV_OK;
}

/* Long texts take longest: begun first, they do not end last. */
static int compare_lengths(const void *a, const void *b) {
    size_t x = (*(compilation *const *)a)->entry.key_bytes, y = (*(compilation *const *)b)->entry.key_bytes;
    return x < y ? 1 : x > y ? -1 : 0;
}

static rcv_status compile(rcv_context *context, compilations *c, bool machine) {
    for (size_t i = 0; i < c->count; i++) RCVI_TRY(begin(context, c, &c->all[i]));
    if (c->program_count > 0) {
        double before = rcvi_now();
        qsort(c->order, c->program_count, sizeof *c->order, compare_lengths);
        compile_all(c);
        rcvi_log(context, "%s took %.0f ms for %zu kernels", nvrtc.name, (rcvi_now() - before) * 1e3, c->program_count);
    }
    if (atomic_load(&c->stopped)) return rcvi_fail(RCV_STOPPED, "compiling kernels was stopped");
    for (size_t i = 0; i < c->count; i++) RCVI_TRY(end(context, &c->all[i], machine));
    return RCV_OK;
}

static void drop(rcv_context *context, compilations *c, bool failed) {
    for (size_t i = 0; c->all && i < c->count; i++) {
        if (c->all[i].program) nvrtc.call.destroy(&c->all[i].program);
        rcvi_cache_drop(context, &c->all[i].entry);
        if (!failed) continue;
        rcvi_free(context, c->all[i].unit->code);
        c->all[i].unit->code = NULL;
    }
    rcvi_free(context, c->order);
    rcvi_free(context, c->all);
}

/* Quotients within two units in the last place, square roots within one: a tenth of the instructions. */
static void set_options(const target *target, const char *options[OPTIONS]) {
    options[0] = target->option;
    options[1] = "--std=c++17";
    options[2] = "--prec-div=false";
    options[3] = "--prec-sqrt=false";
}

bool rcvi_jit_is_compiled(rcv_context *context, const rcvi_jit_unit *units, size_t count, int major, int minor) {
    target target = {.machine = false};
    const char *options[OPTIONS];
    if (count == 0) return true;
    if (!context->cache || !rcvi_jit_name() || choose_target(context, major, minor, &target)) return false;
    set_options(&target, options);
    bool compiled = true;
    for (size_t i = 0; i < count && compiled; i++) {
        rcvi_cache_entry entry;
        void *code = NULL;
        size_t bytes = 0;
        if (find_entry(context, units[i].source, options, &entry)) return false;
        rcvi_kernel_cache_read(context, &entry, &code, &bytes);
        compiled = code != NULL;
        rcvi_free(context, code);
        rcvi_cache_drop(context, &entry);
    }
    return compiled;
}

rcv_status rcvi_jit_compile_while(rcv_context *context, rcvi_jit_unit *units, size_t count, int major, int minor,
                                  bool (*go_on)(void *user), void *user) {
    target target = {.machine = false};
    for (size_t i = 0; i < count; i++) units[i].code = NULL;
    if (!rcvi_jit_name()) return RCV_UNSUPPORTED;
    RCVI_TRY(choose_target(context, major, minor, &target));
    const char *options[OPTIONS];
    set_options(&target, options);
    compilations c = {.count = count, .options = options, .go_on = go_on, .user = user};
    c.all = rcvi_new(context, count, sizeof *c.all);
    c.order = c.all ? rcvi_new(context, count, sizeof(compilation *)) : NULL;
    for (size_t i = 0; c.all && i < count; i++) c.all[i].unit = &units[i];
    rcv_status status = c.order ? compile(context, &c, target.machine) : RCV_NO_MEMORY;
    drop(context, &c, status != RCV_OK);
    return status;
}

rcv_status rcvi_jit_compile(rcv_context *context, rcvi_jit_unit *units, size_t count, int major, int minor) {
    return rcvi_jit_compile_while(context, units, count, major, minor, NULL, NULL);
}

rcv_status rcvi_jit_load(const void *code, const char *name, size_t shared_bytes, cudaLibrary_t *library,
                         cudaKernel_t *kernel) {
    enum { DEFAULT_SHARED = 48 << 10 }; /* bytes; more must be requested */
    *library = NULL;
    *kernel = NULL;
    RCVI_TRY(rcvi_cuda_check(cudaLibraryLoadData(library, code, NULL, NULL, 0, NULL, NULL, 0), "loading a kernel"));
    cudaError_t error = cudaLibraryGetKernel(kernel, *library, name);
    if (error == cudaSuccess && shared_bytes > DEFAULT_SHARED)
        error =
            cudaFuncSetAttribute((const void *)*kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared_bytes);
    rcv_status status = rcvi_cuda_check(error, "preparing a kernel");
    if (status != RCV_OK) {
        cudaLibraryUnload(*library);
        *library = NULL;
        *kernel = NULL;
    }
    return status;
}
