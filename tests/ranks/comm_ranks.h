/* What the files of comm_ranks share: this rank's place, and checks that say where they failed. */
#ifndef RECURVE_COMM_RANKS_H
#define RECURVE_COMM_RANKS_H

#include "comm/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern rcv_context *context;
extern rcvi_comm *world;
extern int rank, size;

void give_up(const char *what, int line);

#define expect(what)                                                                                                   \
    do {                                                                                                               \
        if (!(what)) give_up(#what, __LINE__);                                                                         \
    } while (0)
#define expect_ok(call) expect((call) == RCV_OK)

void *room(int64_t bytes);
void expect_same(rcvi_comm *comm, const void *data, size_t bytes); /* on all ranks of the group */
/* Every kind of transfer with many counts; and that equals keep their order. */
void check_kinds(bool on_device);
void check_order(void);

#endif
