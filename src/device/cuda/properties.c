/* What GPUs there are: compute capability, memory, versions of driver and libraries. */
#include "device/cuda/codegen/jit.h"
#include "device/cuda/cudnn/vendor.h"
#include "device/cuda/engine/tuning.h"
#include "device/cuda/gemm/gemm.h"
#include "device/cuda/nccl/nccl.h"
#include "device/device.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MOST_DEVICES = 16, NAME_BYTES = 320, LEAST_MAJOR = 8 };

/* Of one device: read at the first use, and constant from then on; `libraries` by rcvi_cuda_describe_libraries. */
typedef struct {
    bool known, libraries_known;
    char processor[NAME_BYTES], libraries[NAME_BYTES], architecture[16];
    struct cudaDeviceProp device;
    int driver, runtime;
} properties;

static properties devices[MOST_DEVICES];
static pthread_mutex_t devices_lock = PTHREAD_MUTEX_INITIALIZER;

static rcv_status count_devices(int *count) {
    cudaError_t error = cudaGetDeviceCount(count);
    if (error == cudaErrorInsufficientDriver)
        return rcvi_fail(RCV_UNSUPPORTED,
                         "the NVIDIA driver is too old for CUDA %d.%d, or there is none: install a newer one",
                         CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    if (error == cudaErrorNoDevice || (!error && *count == 0))
        return rcvi_fail(RCV_UNSUPPORTED, "there is no NVIDIA GPU on this machine: use the device cpu");
    return rcvi_cuda_check(error, "looking for GPUs");
}

/* The version of the driver's kernel module, such as 580.65.06; empty where Linux does not tell. */
static void read_module_version(char version[32]) {
    FILE *file = fopen("/sys/module/nvidia/version", "r");
    version[0] = '\0';
    if (!file) return;
    if (!fgets(version, 32, file)) version[0] = '\0';
    version[strcspn(version, "\n")] = '\0';
    fclose(file);
}

/* All whose update may change which of two plans is faster. */
static void name_libraries(properties *p, const char *compiler) {
    const char *blas = rcvi_cuda_blas_name();
    char module[32];
    read_module_version(module);
    snprintf(p->libraries, sizeof p->libraries, "driver %d.%d %s runtime %d.%d %s %s", p->driver / 1000,
             p->driver % 1000 / 10, module, p->runtime / 1000, p->runtime % 1000 / 10, blas ? blas : "no cuBLASLt",
             compiler ? compiler : "no NVRTC");
}

static rcv_status read_properties(int ordinal, properties *p) {
    RCVI_CUDA_TRY(cudaGetDeviceProperties(&p->device, ordinal), "reading the device's properties");
    RCVI_CUDA_TRY(cudaDriverGetVersion(&p->driver), "reading the driver's version");
    RCVI_CUDA_TRY(cudaRuntimeGetVersion(&p->runtime), "reading the runtime's version");
    char name[sizeof p->device.name];
    memcpy(name, p->device.name, sizeof name);
    /* MIG and MPS give a process a part of the multiprocessors. */
    snprintf(p->processor, sizeof p->processor, "%.200s %d multiprocessors", name, p->device.multiProcessorCount);
    snprintf(p->architecture, sizeof p->architecture, "sm_%d%d", p->device.major, p->device.minor);
    p->known = true;
    return RCV_OK;
}

static rcv_status find_properties(int ordinal, const properties **out) {
    int count = 0;
    *out = &devices[0];
    RCVI_TRY(count_devices(&count));
    if (ordinal >= count || ordinal >= MOST_DEVICES)
        return rcvi_fail(RCV_INVALID, "there is no device cuda:%d: this machine has %d GPU%s", ordinal, count,
                         count == 1 ? "" : "s");
    properties *p = &devices[ordinal];
    *out = p;
    pthread_mutex_lock(&devices_lock);
    rcv_status status = p->known ? RCV_OK : read_properties(ordinal, p);
    pthread_mutex_unlock(&devices_lock);
    if (!status && p->device.major < LEAST_MAJOR)
        return rcvi_fail(RCV_UNSUPPORTED, "%s has compute capability %d.%d; %d.0 is the least that can be used",
                         p->device.name, p->device.major, p->device.minor, LEAST_MAJOR);
    return status;
}

rcv_status rcvi_cuda_check_device(int ordinal) {
    const properties *p = NULL;
    return find_properties(ordinal, &p);
}

rcv_status rcvi_cuda_describe(rcv_context *context, int ordinal, rcv_dtype dtype, int64_t threads,
                              rcvi_machine *machine) {
    (void)context;
    (void)dtype;
    (void)threads;
    const properties *p = NULL;
    RCVI_TRY(find_properties(ordinal, &p));
    *machine = (rcvi_machine){.threads = 1,
                              .cache = p->device.l2CacheSize,
                              .panel = 1,
                              .grain = 1,
                              .group = 8,
                              .kernels = p->architecture,
                              .processor = p->processor,
                              .gpu = true,
                              .max_sum_columns = 1024,
                              .min_library_product = RCVI_TUNED_LIBRARY_PRODUCT,
                              .gemm_writes_activations = true,
                              .ordinal = ordinal};
    return RCV_OK;
}

void rcvi_cuda_describe_libraries(int ordinal, rcvi_machine *machine) {
    properties *p = &devices[ordinal];
    const char *compiler = rcvi_jit_name();
    pthread_mutex_lock(&devices_lock);
    if (!p->libraries_known) name_libraries(p, compiler);
    p->libraries_known = true;
    pthread_mutex_unlock(&devices_lock);
    machine->libraries = p->libraries;
    machine->no_compiler = rcvi_jit_absence();
    machine->vendor = rcvi_cudnn_name();
    if (!machine->vendor) machine->no_vendor = rcvi_cudnn_absence();
}

static const char *find_nccl(void) {
    return rcvi_cuda_collectives.check_available() == RCV_OK ? rcvi_cuda_collectives.name() : NULL;
}

/* Each `find` gives name and version, or NULL and the message of the call. Reasons are written once, under the lock. */
static struct {
    const char *name, *(*find)(void);
    char reason[512];
} libraries[] = {{"cuBLASLt", rcvi_cuda_blas_name, ""},
                 {"NVRTC", rcvi_jit_name, ""},
                 {"cuDNN", rcvi_cudnn_name, ""},
                 {"NCCL", find_nccl, ""}};

const char *rcvi_cuda_find_library(const char *name, const char **reason) {
    const char *version = NULL;
    *reason = "this build has no such library";
    for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++) {
        if (strcmp(libraries[i].name, name) != 0) continue;
        version = libraries[i].find();
        pthread_mutex_lock(&devices_lock);
        if (!version && !libraries[i].reason[0])
            snprintf(libraries[i].reason, sizeof libraries[i].reason, "%s", rcv_message());
        pthread_mutex_unlock(&devices_lock);
        *reason = version ? NULL : libraries[i].reason;
    }
    return version;
}

rcv_status rcvi_cuda_print_info(rcv_context *context, int ordinal, rcvi_text *text) {
    (void)context;
    const properties *p = NULL;
    RCVI_TRY(find_properties(ordinal, &p));
    rcvi_text_add(text,
                  "%s, compute capability %d.%d, %d multiprocessors, %.1f GiB, driver for CUDA %d.%d, runtime %d.%d",
                  p->device.name, p->device.major, p->device.minor, p->device.multiProcessorCount,
                  (double)p->device.totalGlobalMem / (1 << 30), p->driver / 1000, p->driver % 1000 / 10,
                  p->runtime / 1000, p->runtime % 1000 / 10);
    const char *libraries[] = {rcvi_cuda_blas_name(), rcvi_jit_name(), rcvi_cudnn_name()};
    const char *missing[] = {"no cuBLASLt", "no NVRTC", "no cuDNN 9"};
    for (int i = 0; i < 3; i++) rcvi_text_add(text, ", %s", libraries[i] ? libraries[i] : missing[i]);
    return RCV_OK;
}
