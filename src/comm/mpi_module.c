/* Finds and opens the module with the MPI transport; and finds out whether an MPI launcher started this process. */
#define _GNU_SOURCE /* dladdr */
#include "comm/internal.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__APPLE__)
#define MODULE "librecurve-mpi.dylib"
#else
#define MODULE "librecurve-mpi.so"
#endif

enum { PATH_ROOM = 4096 };

/* Environment variables that launchers set: the number of ranks, and this one. */
static const struct {
    const char *size, *rank;
} launchers[] = {
    {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"}, /* Open MPI */
    {"PMI_SIZE", "PMI_RANK"},                         /* MPICH, Intel MPI */
    {"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"},   /* MVAPICH */
    {"SLURM_NTASKS", "PMIX_RANK"},                    /* srun --mpi=pmix */
};

static bool read_number(const char *name, int *count) {
    const char *text = getenv(name);
    char *end = NULL;
    long number = text ? strtol(text, &end, 10) : -1;
    if (!text || end == text || *end || number < 0 || number > INT32_MAX) return false;
    *count = (int)number;
    return true;
}

bool rcvi_find_launcher(int *rank, int *size) {
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++) {
        if (read_number(launchers[i].size, size) && read_number(launchers[i].rank, rank) && *rank < *size) return true;
    }
    *rank = 0;
    *size = 1;
    return false;
}

int rcvi_comm_launched_size(int *rank) {
    int size;
    rcvi_find_launcher(rank, &size);
    return size;
}

/* Writes the folder of the library or program that holds this code, with a slash at its end; false where the loader does not know it. */
static bool find_folder(char *folder, size_t room) {
    static const char here = 0;
    Dl_info info;
    char path[PATH_ROOM];
    if (!dladdr(&here, &info) || !info.dli_fname || !realpath(info.dli_fname, path)) return false;
    char *slash = strrchr(path, '/');
    if (!slash || (size_t)(slash - path) + 2 > room) return false;
    slash[1] = '\0';
    memcpy(folder, path, strlen(path) + 1);
    return true;
}

/* Keeps the loader's first reason: the one for the folder where the module should be. */
static void *try_open(const char *path, char *reason, size_t room) {
    void *module = dlopen(path, RTLD_NOW | RTLD_GLOBAL); /* MPI opens modules of its own that need its symbols */
    const char *why = module ? NULL : dlerror();
    if (why && !*reason) snprintf(reason, room, "%s", why);
    return module;
}

static void *open_module(char *reason, size_t room) {
    static const char *const folders[] = {"", "../", "../lib/"};
    char folder[PATH_ROOM], path[PATH_ROOM + sizeof MODULE + 8];
    const char *given = getenv("RECURVE_MPI");
    if (given) return try_open(given, reason, room);
    void *module = NULL;
    bool known = find_folder(folder, sizeof folder);
    for (size_t i = 0; known && !module && i < sizeof folders / sizeof *folders; i++) {
        snprintf(path, sizeof path, "%s%s" MODULE, folder, folders[i]);
        module = try_open(path, reason, room);
    }
    return module ? module : try_open(MODULE, reason, room);
}

rcv_status rcvi_transport_open(const rcvi_transport **transport) {
    char reason[1024] = "";
    void *module = open_module(reason, sizeof reason); /* it stays open */
    *transport = NULL;
    if (!module && !getenv("RECURVE_MPI") && strstr(reason, MODULE ": cannot open shared object file: No such file"))
        return rcvi_fail(RCV_UNSUPPORTED, "MPI is not available: this build has no %s", MODULE);
    if (!module) return rcvi_fail(RCV_UNSUPPORTED, "MPI is not available: %s", reason);
    const rcvi_transport *found = dlsym(module, RCVI_TRANSPORT_SYMBOL);
    if (!found) return rcvi_fail(RCV_UNSUPPORTED, "MPI is not available: %s is not a module of Recurve", MODULE);
    if (found->abi != RCVI_TRANSPORT_ABI)
        return rcvi_fail(RCV_UNSUPPORTED, "MPI is not available: %s is of another version of Recurve (%d, not %d)",
                         MODULE, found->abi, RCVI_TRANSPORT_ABI);
    *transport = found;
    return RCV_OK;
}
