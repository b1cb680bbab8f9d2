/* libtorch's C interface, in the libraries that the process has loaded. */
#include "torch/shim.h"
#include "call/shared.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

rcvb_shim torch;

static rcv_status find_functions(void *loaded) {
    void *found = NULL;
#define FIND(result, name, arguments)                                                                                  \
    found = dlsym(loaded, #name);                                                                                      \
    if (!found)                                                                                                        \
        return rcvb_fail(RCV_UNSUPPORTED, "recurve needs PyTorch 2.10 or later: this one has no function %s", #name);  \
    memcpy(&torch.name, &found, sizeof found);
    SHIM_FUNCTIONS(FIND)
#undef FIND
    return RCV_OK;
}

static void find_cuda(void) {
    void *loaded = dlopen("libtorch_cuda.so", RTLD_NOW | RTLD_NOLOAD);
    void *found = loaded ? dlsym(loaded, "aoti_torch_get_current_cuda_stream") : NULL;
    memcpy(&torch.aoti_torch_get_current_cuda_stream, &found, sizeof found);
}

rcv_status rcvb_find_torch(void) {
    void *loaded = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD);
    if (!loaded) return rcvb_fail(RCV_UNSUPPORTED, "PyTorch is not loaded: import torch first");
    rcv_status status = find_functions(loaded);
    if (status) return status;
    find_cuda();
    torch.cpu = torch.aoti_torch_device_type_cpu();
    torch.cuda = torch.aoti_torch_device_type_cuda();
    torch.float32 = torch.aoti_torch_dtype_float32();
    torch.float64 = torch.aoti_torch_dtype_float64();
    torch.float16 = torch.aoti_torch_dtype_float16();
    torch.bfloat16 = torch.aoti_torch_dtype_bfloat16();
    torch.int64 = torch.aoti_torch_dtype_int64();
    torch.uint8 = torch.aoti_torch_dtype_uint8();
    torch.boolean = torch.aoti_torch_dtype_bool();
    return RCV_OK;
}
