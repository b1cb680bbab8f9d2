/* NVRTC, opened when first needed; its compilations, and their code loaded into a device. */
#include "device/cuda/codegen/jit.h"
#include "device/cuda/codegen/cache.h"

#include <nvrtc.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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
    char reason[512]; /* why it was not found */
} nvrtc;
static pthread_once_t nvrtc_once = PTHREAD_ONCE_INIT;

static void open_nvrtc(void) {
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", NULL};
    int major = 0, minor = 0;
    nvrtc.found = rcvi_library_open(names, symbols, nvrtc.call.pointers, sizeof symbols / sizeof *symbols, nvrtc.reason,
                                    sizeof nvrtc.reason);
    if (!nvrtc.found) return;
    nvrtc.call.version(&major, &minor);
    snprintf(nvrtc.name, sizeof nvrtc.name, "NVRTC %d.%d", major, minor);
}

const char *rcvi_jit_name(void) {
    pthread_once(&nvrtc_once, open_nvrtc);
    if (nvrtc.found) return nvrtc.name;
    rcvi_fail(RCV_UNSUPPORTED, "kernels cannot be compiled without NVRTC: %s", nvrtc.reason);
    return NULL;
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

/* ---- parallel compilation: threads only call the compiler ---- */

typedef struct {
    rcvi_jit_unit *unit;
    rcvi_cache_entry entry;
    nvrtcProgram program; /* NULL: its code was in the cache */
    nvrtcResult result;
} compilation;

typedef struct {
    compilation *all;
    size_t count;
    const char *const *options; /* [OPTIONS] */
    atomic_size_t next;
} compilations;

static void *compile_some(void *argument) {
    compilations *c = argument;
    for (size_t i; (i = atomic_fetch_add(&c->next, 1)) < c->count;) {
        if (c->all[i].program) c->all[i].result = nvrtc.call.compile(c->all[i].program, OPTIONS, c->options);
    }
    return NULL;
}

/* One thread for every program, at most one for every core; the caller's is one of them. */
static void compile_all(compilations *c, size_t programs) {
    pthread_t threads[MOST_THREADS];
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    size_t wanted = programs < MOST_THREADS ? programs : MOST_THREADS, made = 0;
    if (cores > 0 && wanted > (size_t)cores) wanted = (size_t)cores;
    while (made + 1 < wanted && pthread_create(&threads[made], NULL, compile_some, c) == 0) made++;
    compile_some(c);
    while (made > 0) pthread_join(threads[--made], NULL);
}

/* Finds the code in the cache, or creates a program that is to be compiled. */
static rcv_status begin(rcv_context *context, compilation *c, const char *const *options) {
    const char *key[OPTIONS + 3] = {nvrtc.name, c->unit->source};
    for (int i = 0; i < OPTIONS; i++) key[2 + i] = options[i];
    RCVI_TRY(rcvi_cache_find(context, key, &c->entry));
    rcvi_cache_read(context, &c->entry, &c->unit->code, &c->unit->bytes);
    if (c->unit->code) return RCV_OK;
    return check_nvrtc(nvrtc.call.create(&c->program, c->unit->source, "map.cu", 0, NULL, NULL),
                       "reading a kernel's source");
}

static rcv_status end(rcv_context *context, compilation *c, bool machine) {
    if (!c->program) return RCV_OK;
    if (c->result == NVRTC_ERROR_COMPILATION) return report_log(context, c->program);
    RCVI_TRY(check_nvrtc(c->result, "compiling a kernel"));
    RCVI_TRY(read_code(context, c->program, machine, &c->unit->code, &c->unit->bytes));
    rcvi_log(context, "%s compiled a kernel of %zu bytes", nvrtc.name, c->unit->bytes);
    rcvi_cache_write(context, &c->entry, c->unit->code, c->unit->bytes);
    return RCV_OK;
}

static rcv_status compile(rcv_context *context, compilations *c, bool machine) {
    size_t programs = 0;
    for (size_t i = 0; i < c->count; i++) {
        RCVI_TRY(begin(context, &c->all[i], c->options));
        programs += c->all[i].program != NULL;
    }
    double before = rcvi_now();
    compile_all(c, programs);
    if (programs) rcvi_log(context, "%s took %.0f ms", nvrtc.name, (rcvi_now() - before) * 1e3);
    for (size_t i = 0; i < c->count; i++) RCVI_TRY(end(context, &c->all[i], machine));
    return RCV_OK;
}

static void drop(rcv_context *context, compilations *c, bool failed) {
    for (size_t i = 0; i < c->count; i++) {
        if (c->all[i].program) nvrtc.call.destroy(&c->all[i].program);
        rcvi_cache_drop(context, &c->all[i].entry);
        if (!failed) continue;
        rcvi_free(context, c->all[i].unit->code);
        c->all[i].unit->code = NULL;
    }
    rcvi_free(context, c->all);
}

rcv_status rcvi_jit_compile(rcv_context *context, rcvi_jit_unit *units, size_t count, int major, int minor) {
    target target = {.machine = false};
    for (size_t i = 0; i < count; i++) units[i].code = NULL;
    if (!rcvi_jit_name()) return RCV_UNSUPPORTED;
    RCVI_TRY(choose_target(context, major, minor, &target));
    /* Quotients within two units in the last place, square roots within one: a tenth of the instructions. */
    const char *const options[OPTIONS] = {target.option, "--std=c++17", "--prec-div=false", "--prec-sqrt=false"};
    compilations c = {.count = count, .options = options};
    c.all = rcvi_new(context, count, sizeof *c.all);
    if (!c.all) return RCV_NO_MEMORY;
    for (size_t i = 0; i < count; i++) c.all[i].unit = &units[i];
    rcv_status status = compile(context, &c, target.machine);
    drop(context, &c, status != RCV_OK);
    return status;
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
