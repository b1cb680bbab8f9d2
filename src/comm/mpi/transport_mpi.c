/* The MPI transport, for the MPI that it is compiled with. It is a module of its own, opened at run time: the library itself does not need MPI. */
#include "comm/transport.h"

#include <mpi.h>
#if defined(OPEN_MPI)
#include <mpi-ext.h>
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rcvi_transport_comm {
    MPI_Comm comm;
};

_Static_assert(sizeof(MPI_Request) <= sizeof(uint64_t), "a request is kept in 64 bits");

static struct rcvi_transport_comm world = {MPI_COMM_NULL};
static MPI_Comm notices = MPI_COMM_NULL;

static MPI_Comm comm_of(const rcvi_transport_comm *comm) { return comm ? comm->comm : world.comm; }

static bool check(int error, char *why) {
    if (error == MPI_SUCCESS) return true;
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int length = 0;
    if (MPI_Error_string(error, text, &length) != MPI_SUCCESS) snprintf(text, sizeof text, "MPI error %d", error);
    snprintf(why, RCVI_TRANSPORT_REASON, "%.*s", RCVI_TRANSPORT_REASON - 1, text);
    return false;
}

/* ---- requests ---- */

static void store_request(rcvi_request *request, MPI_Request made) {
    request->handle = 0;
    memcpy(&request->handle, &made, sizeof made);
    request->active = made != MPI_REQUEST_NULL;
}

static MPI_Request load_request(const rcvi_request *request) {
    MPI_Request made;
    memcpy(&made, &request->handle, sizeof made);
    return made;
}

static bool send_message(rcvi_transport_comm *comm, int to, int tag, const void *bytes, size_t count,
                         rcvi_request *request, char *why) {
    MPI_Request made = MPI_REQUEST_NULL;
    if (!check(MPI_Isend(bytes, (int)count, MPI_BYTE, to, tag, comm_of(comm), &made), why)) return false;
    store_request(request, made);
    return true;
}

static bool receive_message(rcvi_transport_comm *comm, int from, int tag, void *bytes, size_t count,
                            rcvi_request *request, char *why) {
    MPI_Request made = MPI_REQUEST_NULL;
    if (!check(MPI_Irecv(bytes, (int)count, MPI_BYTE, from, tag, comm_of(comm), &made), why)) return false;
    store_request(request, made);
    return true;
}

static bool test(rcvi_request *request, bool *done, char *why) {
    MPI_Request made = load_request(request);
    int flag = 0;
    bool tested = check(MPI_Test(&made, &flag, MPI_STATUS_IGNORE), why);
    *done = tested && flag;
    store_request(request, tested ? made : MPI_REQUEST_NULL);
    return tested;
}

/* A receive is cancelled. MPI rarely cancels a send: its request is freed all the same. */
static void cancel(rcvi_request *request) {
    MPI_Request made = load_request(request);
    if (!request->active) return;
    MPI_Cancel(&made);
    MPI_Request_free(&made);
    request->active = false;
}

static bool send_notice(int to, const void *bytes, size_t count, rcvi_request *request, char *why) {
    MPI_Request made = MPI_REQUEST_NULL;
    if (!check(MPI_Isend(bytes, (int)count, MPI_BYTE, to, 0, notices, &made), why)) return false;
    store_request(request, made);
    return true;
}

static bool receive_notice(void *bytes, size_t room, size_t *count, char *why) {
    MPI_Status status;
    int flag = 0, length = 0;
    *count = 0;
    if (!check(MPI_Iprobe(MPI_ANY_SOURCE, 0, notices, &flag, &status), why)) return false;
    if (!flag) return true;
    if (!check(MPI_Recv(bytes, (int)room, MPI_BYTE, status.MPI_SOURCE, 0, notices, &status), why)) return false;
    if (!check(MPI_Get_count(&status, MPI_BYTE, &length), why)) return false;
    *count = (size_t)length;
    return true;
}

/* ---- communicators ---- */

static bool split(rcvi_transport_comm *parent, int colour, int key, rcvi_transport_comm **comm, char *why) {
    rcvi_transport_comm *made = malloc(sizeof *made);
    if (!made) {
        snprintf(why, RCVI_TRANSPORT_REASON, "there is no memory for a communicator");
        return false;
    }
    if (!check(MPI_Comm_split(comm_of(parent), colour, key, &made->comm), why)) {
        free(made);
        return false;
    }
    MPI_Comm_set_errhandler(made->comm, MPI_ERRORS_RETURN);
    *comm = made;
    return true;
}

static void release(rcvi_transport_comm *comm) {
    MPI_Comm_free(&comm->comm);
    free(comm);
}

/* ---- the world ---- */

/* Writes a short name such as "Open MPI 4.1.4", from the library's long version text. */
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

static bool count_local(int *local, char *why) {
    MPI_Comm machine;
    if (!check(MPI_Comm_split_type(world.comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine), why)) return false;
    MPI_Comm_size(machine, local);
    MPI_Comm_free(&machine);
    return true;
}

static bool accepts_device_memory(void) {
#if defined(MPIX_CUDA_AWARE_SUPPORT)
    return MPIX_Query_cuda_support() == 1;
#else
    return false;
#endif
}

/* Over TCP, Open MPI transfers most of a large message by reads that the receiver requests. The requests wait in a queue after the data of the other
 * direction, so a link that is used in both directions is busy half of the time. With this parameter the sender sends. A value that the user has
 * set is kept. */
static void tune_library(void) {
#if defined(OPEN_MPI)
    setenv("OMPI_MCA_btl_tcp_flags", "send,inplace", 0);
#endif
}

static bool open_world(rcvi_transport_facts *facts, char *why) {
    int threads = MPI_THREAD_SINGLE, begun = 0;
    MPI_Initialized(&begun);
    if (begun) {
        snprintf(why, RCVI_TRANSPORT_REASON, "MPI has already been initialised in this process");
        return false;
    }
    tune_library();
    if (!check(MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &threads), why)) return false;
    if (threads < MPI_THREAD_FUNNELED) {
        snprintf(why, RCVI_TRANSPORT_REASON, "this MPI cannot be used beside threads");
        return false;
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (!check(MPI_Comm_dup(MPI_COMM_WORLD, &world.comm), why)) return false;
    if (!check(MPI_Comm_dup(MPI_COMM_WORLD, &notices), why)) return false;
    MPI_Comm_set_errhandler(world.comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(notices, MPI_ERRORS_RETURN);
    MPI_Comm_rank(world.comm, &facts->rank);
    MPI_Comm_size(world.comm, &facts->size);
    facts->accepts_device_memory = accepts_device_memory();
    name_library(facts->name, sizeof facts->name);
    return count_local(&facts->local_size, why);
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
                                                                                  .send_notice = send_notice,
                                                                                  .receive_notice = receive_notice};
