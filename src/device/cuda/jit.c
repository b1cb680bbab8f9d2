/* NVRTC, loaded when first needed, and its results loaded into a device. */
#include "device/cuda/jit.h"
#include "device/cuda/cache.h"

#include <nvrtc.h>
#include <stdio.h>
#include <string.h>

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
    void *places[13];
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

/* Filled once, then read only. */
static struct {
    functions call;
    bool found;
    char name[64];    /* with its version */
    char reason[512]; /* why there is none */
} nvrtc;
static pthread_once_t nvrtc_once = PTHREAD_ONCE_INIT;

static void open_nvrtc(void) {
    static const char *const names[] = {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", NULL};
    int major = 0, minor = 0;
    nvrtc.found = rcvi_library_open(names, symbols, nvrtc.call.places, sizeof symbols / sizeof *symbols, nvrtc.reason,
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

/* What to compile for: machine code of the capability itself where NVRTC knows it, else PTX of the highest below it. */
typedef struct {
    bool machine;
    char option[48];
} target;

static rcv_status choose_target(rcv_context *context, int major, int minor, target *out) {
    int count = 0, wanted = major * 10 + minor, best = 0;
    RCVI_TRY(check_nvrtc(nvrtc.call.count_architectures(&count), "asking for architectures"));
    int *list = rcvi_new(context, (size_t)count, sizeof *list);
    if (!list) return RCV_NO_MEMORY;
    rcv_status status = check_nvrtc(nvrtc.call.architectures(list), "asking for architectures");
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

/* The whole log, line by line, and its first line (of an error, where one is marked so) in the sentence. */
static rcv_status tell_log(rcv_context *context, nvrtcProgram program) {
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

static rcv_status take_code(rcv_context *context, nvrtcProgram program, bool machine, void **code, size_t *bytes) {
    nvrtcResult (*size)(nvrtcProgram, size_t *) = machine ? nvrtc.call.cubin_size : nvrtc.call.ptx_size;
    nvrtcResult (*get)(nvrtcProgram, char *) = machine ? nvrtc.call.cubin : nvrtc.call.ptx;
    RCVI_TRY(check_nvrtc(size(program, bytes), "taking a kernel's code"));
    *code = rcvi_new(context, *bytes, 1);
    if (!*code) return RCV_NO_MEMORY;
    rcv_status status = check_nvrtc(get(program, *code), "taking a kernel's code");
    if (status != RCV_OK) {
        rcvi_free(context, *code);
        *code = NULL;
    }
    return status;
}

static rcv_status build(rcv_context *context, const char *source, const target *target, const char *const *options,
                        int option_count, void **code, size_t *bytes) {
    nvrtcProgram program = NULL;
    RCVI_TRY(check_nvrtc(nvrtc.call.create(&program, source, "map.cu", 0, NULL, NULL), "reading a kernel's source"));
    nvrtcResult result = nvrtc.call.compile(program, option_count, options);
    rcv_status status;
    if (result == NVRTC_ERROR_COMPILATION)
        status = tell_log(context, program);
    else
        status = check_nvrtc(result, "compiling a kernel");
    if (status == RCV_OK) status = take_code(context, program, target->machine, code, bytes);
    nvrtc.call.destroy(&program);
    return status;
}

rcv_status rcvi_jit_compile(rcv_context *context, const char *source, int major, int minor, void **code,
                            size_t *bytes) {
    target target;
    *code = NULL;
    *bytes = 0;
    if (!rcvi_jit_name()) return RCV_UNSUPPORTED;
    RCVI_TRY(choose_target(context, major, minor, &target));
    /* Quotients within two units of the last place, square roots within one: a tenth of the instructions. */
    const char *const key[] = {nvrtc.name,          source, target.option, "--std=c++17", "--prec-div=false",
                               "--prec-sqrt=false", NULL};
    const char *const *options = key + 2;
    enum { OPTIONS = sizeof key / sizeof *key - 3 };
    rcvi_cache_entry entry;
    RCVI_TRY(rcvi_cache_find(context, key, &entry));
    rcvi_cache_read(context, &entry, code, bytes);
    if (*code) {
        rcvi_cache_drop(context, &entry);
        return RCV_OK;
    }
    double before = rcvi_now();
    rcv_status status = build(context, source, &target, options, OPTIONS, code, bytes);
    if (status == RCV_OK) {
        rcvi_log(context, "%s compiled a kernel of %zu bytes in %.0f ms", nvrtc.name, *bytes,
                 (rcvi_now() - before) * 1e3);
        rcvi_cache_write(context, &entry, *code, *bytes);
    }
    rcvi_cache_drop(context, &entry);
    return status;
}

rcv_status rcvi_jit_load(const void *code, const char *name, size_t shared_bytes, cudaLibrary_t *library,
                         cudaKernel_t *kernel) {
    enum { SHARED_WITHOUT_ASKING = 48 << 10 };
    *library = NULL;
    *kernel = NULL;
    RCVI_TRY(rcvi_cuda_check(cudaLibraryLoadData(library, code, NULL, NULL, 0, NULL, NULL, 0), "loading a kernel"));
    cudaError_t error = cudaLibraryGetKernel(kernel, *library, name);
    if (error == cudaSuccess && shared_bytes > SHARED_WITHOUT_ASKING)
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
