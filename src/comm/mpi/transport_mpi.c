/* Messages by MPI, whichever this is compiled with: a module of its own, so that only those need an MPI who ask for it. */
#include "comm/transport.h"

#include <mpi.h>
#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rcvi_transport_group {
    MPI_Comm comm;
};

_Static_assert(sizeof(MPI_Request) <= sizeof(uint64_t), "a request travels in 64 bits");

static struct rcvi_transport_group world = {MPI_COMM_NULL};
static MPI_Comm notices = MPI_COMM_NULL;

static MPI_Comm comm_of(const rcvi_transport_group *group) { return group ? group->comm : world.comm; }

static bool good(int error, char *why) {
    if (error == MPI_SUCCESS) return true;
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int length = 0;
    if (MPI_Error_string(error, text, &length) != MPI_SUCCESS) snprintf(text, sizeof text, "MPI error %d", error);
    snprintf(why, RCVI_TRANSPORT_WHY, "%.*s", RCVI_TRANSPORT_WHY - 1, text);
    return false;
}

/* ---- requests ---- */

static void keep(rcvi_request *request, MPI_Request made) {
    request->handle = 0;
    memcpy(&request->handle, &made, sizeof made);
    request->active = made != MPI_REQUEST_NULL;
}

static MPI_Request made_of(const rcvi_request *request) {
    MPI_Request made;
    memcpy(&made, &request->handle, sizeof made);
    return made;
}

static bool send_message(rcvi_transport_group *group, int to, int tag, const void *bytes, size_t count,
                         rcvi_request *request, char *why) {
    MPI_Request made = MPI_REQUEST_NULL;
    if (!good(MPI_Isend(bytes, (int)count, MPI_BYTE, to, tag, comm_of(group), &made), why)) return false;
    keep(request, made);
    return true;
}

static bool receive_message(rcvi_transport_group *group, int from, int tag, void *bytes, size_t count,
                            rcvi_request *request, char *why) {
    MPI_Request made = MPI_REQUEST_NULL;
    if (!good(MPI_Irecv(bytes, (int)count, MPI_BYTE, from, tag, comm_of(group), &made), why)) return false;
    keep(request, made);
    return true;
}

static bool test(rcvi_request *request, bool *done, char *why) {
    MPI_Request made = made_of(request);
    int flag = 0;
    bool tested = good(MPI_Test(&made, &flag, MPI_STATUS_IGNORE), why);
    *done = tested && flag;
    keep(request, tested ? made : MPI_REQUEST_NULL);
    return tested;
}

/* A receive is withdrawn; a send can rarely be, and is let go. */
static void cancel(rcvi_request *request) {
    MPI_Request made = made_of(request);
    if (!request->active) return;
    MPI_Cancel(&made);
    MPI_Request_free(&made);
    request->active = false;
}

static bool notify(int to, const void *bytes, size_t count, rcvi_request *request, char *why) {
    MPI_Request made = MPI_REQUEST_NULL;
    if (!good(MPI_Isend(bytes, (int)count, MPI_BYTE, to, 0, notices, &made), why)) return false;
    keep(request, made);
    return true;
}

static bool hear(void *bytes, size_t room, size_t *count, char *why) {
    MPI_Status status;
    int flag = 0, length = 0;
    *count = 0;
    if (!good(MPI_Iprobe(MPI_ANY_SOURCE, 0, notices, &flag, &status), why)) return false;
    if (!flag) return true;
    if (!good(MPI_Recv(bytes, (int)room, MPI_BYTE, status.MPI_SOURCE, 0, notices, &status), why)) return false;
    if (!good(MPI_Get_count(&status, MPI_BYTE, &length), why)) return false;
    *count = (size_t)length;
    return true;
}

/* ---- groups ---- */

static bool split(rcvi_transport_group *of, int colour, int key, rcvi_transport_group **part, char *why) {
    rcvi_transport_group *made = malloc(sizeof *made);
    if (!made) {
        snprintf(why, RCVI_TRANSPORT_WHY, "there is no memory for a group");
        return false;
    }
    if (!good(MPI_Comm_split(comm_of(of), colour, key, &made->comm), why)) {
        free(made);
        return false;
    }
    MPI_Comm_set_errhandler(made->comm, MPI_ERRORS_RETURN);
    *part = made;
    return true;
}

static void release(rcvi_transport_group *part) {
    MPI_Comm_free(&part->comm);
    free(part);
}

/* ---- the world ---- */

/* "Open MPI 4.1.4", of what the library says at length. */
static void name_library(char *name, size_t room) {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0, major = 0, minor = 0;
    MPI_Get_library_version(text, &length);
    MPI_Get_version(&major, &minor);
    const char *open_mpi = strstr(text, "Open MPI v"), *mpich = strstr(text, "MPICH Version:");
    if (open_mpi) {
        snprintf(name, room, "Open MPI %.*s", (int)strcspn(open_mpi + 10, ", \n"), open_mpi + 10);
    } else if (mpich) {
        mpich += strlen("MPICH Version:");
        mpich += strspn(mpich, " \t");
        snprintf(name, room, "MPICH %.*s", (int)strcspn(mpich, " \t\n"), mpich);
    } else {
        snprintf(name, room, "MPI %d.%d", major, minor);
    }
}

static bool count_here(int *here, char *why) {
    MPI_Comm machine;
    if (!good(MPI_Comm_split_type(world.comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine), why)) return false;
    MPI_Comm_size(machine, here);
    MPI_Comm_free(&machine);
    return true;
}

static bool takes_devices(void) {
#if defined(MPIX_CUDA_AWARE_SUPPORT)
    return MPIX_Query_cuda_support() == 1;
#else
    return false;
#endif
}

/* Over TCP Open MPI asks for most of a large message by notes that wait behind what goes the other way: a link that both ends fill is
 * busy half of the time. Without this it sends it. Who sets the same parameter is heard. */
static void tune_library(void) {
#if defined(OPEN_MPI)
    setenv("OMPI_MCA_btl_tcp_flags", "send,inplace", 0);
#endif
}

static bool open_world(rcvi_transport_facts *facts, char *why) {
    int threads = MPI_THREAD_SINGLE, begun = 0;
    MPI_Initialized(&begun);
    if (begun) {
        snprintf(why, RCVI_TRANSPORT_WHY, "MPI has been initialised by somebody else");
        return false;
    }
    tune_library();
    if (!good(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &threads), why)) return false;
    if (threads < MPI_THREAD_FUNNELED) {
        snprintf(why, RCVI_TRANSPORT_WHY, "this MPI cannot be used beside threads");
        return false;
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (!good(MPI_Comm_dup(MPI_COMM_WORLD, &world.comm), why)) return false;
    if (!good(MPI_Comm_dup(MPI_COMM_WORLD, &notices), why)) return false;
    MPI_Comm_set_errhandler(world.comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(notices, MPI_ERRORS_RETURN);
    MPI_Comm_rank(world.comm, &facts->rank);
    MPI_Comm_size(world.comm, &facts->size);
    facts->takes_devices = takes_devices();
    name_library(facts->name, sizeof facts->name);
    return count_here(&facts->here, why);
}

static void close_world(void) {
    MPI_Comm_free(&notices);
    MPI_Comm_free(&world.comm);
    MPI_Finalize();
}

static void abort_world(void) { MPI_Abort(MPI_COMM_WORLD, 1); }

__attribute__((visibility("default"))) const rcvi_transport rcvi_transport_mpi = {.abi = RCVI_TRANSPORT_ABI,
                                                                                  .open = open_world,
                                                                                  .close = close_world,
                                                                                  .abort = abort_world,
                                                                                  .split = split,
                                                                                  .release = release,
                                                                                  .send = send_message,
                                                                                  .receive = receive_message,
                                                                                  .test = test,
                                                                                  .cancel = cancel,
                                                                                  .notify = notify,
                                                                                  .hear = hear};
