/* Shared by the files of comm_ranks: the world, this rank, and checks that print where they failed. */
#ifndef RECURVE_COMM_RANKS_H
#define RECURVE_COMM_RANKS_H

#include "comm/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern rcv_context *context;
extern rcvi_comm *world;
extern int rank, size;

void fail_check(const char *what, int line);

#define expect(what)                                                                                                   \
    do {                                                                                                               \
        if (!(what)) fail_check(#what, __LINE__);                                                                      \
    } while (0)
#define expect_ok(call) expect((call) == RCV_OK)

void *allocate(int64_t bytes);
/* The bytes are the same on all ranks of the communicator. */
void expect_same(rcvi_comm *comm, const void *data, size_t bytes);
/* Every kind of transfer, with many counts; and the order of sends with the same tag. */
void check_kinds(bool on_device);
void check_order(void);
/* Transfers of a simulated device's memory, through staging buffers and by its collectives. */
void check_device(void);
void fail_collective(int failing); /* one collective succeeds; the next one fails on this rank, and breaks the world */

#endif
