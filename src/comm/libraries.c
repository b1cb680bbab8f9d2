/* rcv_library_describe: which libraries there are beside this one, those of the devices and MPI. */
#include "comm/internal.h"

#include "base/library.h"
#include "recurve_bench.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* A device's library is asked of the device; MPI of its module. */
static const struct {
    const char *name, *use, *device;
} libraries[] = {
    {"OpenBLAS", "matrix products on the CPU", "cpu"}, {"oneDNN", "the plan vendor on the CPU", "cpu"},
    {"cuBLASLt", "matrix products on a GPU", "cuda"},  {"NVRTC", "kernels compiled for a GPU", "cuda"},
    {"cuDNN", "the plan vendor on a GPU", "cuda"},     {"NCCL", "sums between GPUs", "cuda"},
    {"MPI", "training by several processes", NULL},
};
enum { COUNT = sizeof libraries / sizeof *libraries };

/* The answer for MPI, written once. */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct {
    const char *version;
    char reason[1024];
} mpi;

static void open_mpi(void) {
    const rcvi_transport *transport;
    if (rcvi_transport_open(&transport) == RCV_OK)
        mpi.version = "MPI";
    else
        snprintf(mpi.reason, sizeof mpi.reason, "%s", rcv_message());
}

static const rcvi_device *find_device(const char *name) {
    for (size_t i = 0; i < rcvi_device_count; i++) {
        if (!strcmp(rcvi_devices[i]->name, name)) return rcvi_devices[i];
    }
    return NULL;
}

size_t rcv_library_count(void) { return COUNT; }

rcv_status rcv_library_describe(size_t index, rcv_library *library) {
    RCVI_NEED(library, "library");
    RCVI_TRY(rcvi_struct_check(__func__, "library", "rcv_library", library));
    if (index >= COUNT)
        return rcvi_fail(RCV_INVALID, "there is no library %zu; rcv_library_count() gives %d", index, (int)COUNT);
    rcv_library found = {.size = sizeof found, .name = libraries[index].name, .use = libraries[index].use};
    const char *device_name = libraries[index].device;
    if (!device_name) {
        pthread_once(&once, open_mpi);
        found.version = mpi.version;
        found.reason = mpi.version ? NULL : mpi.reason;
    } else {
        const rcvi_device *device = find_device(device_name);
        if (device)
            found.version = device->find_library(found.name, &found.reason);
        else
            found.reason = "this build has no device cuda";
    }
    if (found.version) found.reason = NULL;
    found.absent = found.reason && rcvi_library_is_absent(found.reason);
    rcvi_struct_write(library, &found, sizeof found);
    return RCV_OK;
}
