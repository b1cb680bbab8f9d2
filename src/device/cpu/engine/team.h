/* Threads that work on one call together. They sleep between calls and stay awake within one: a barrier spins first,
 * and gives the core away only when that takes long (more threads than cores). */
#ifndef RCVI_TEAM_H
#define RCVI_TEAM_H

#include "base/base.h"

#include <stdatomic.h>

typedef struct rcvi_team rcvi_team;

/* A team of `threads` members, one of them the caller of rcvi_team_call. */
rcv_status rcvi_team_new(rcv_context *context, int threads, rcvi_team **team);
void rcvi_team_free(rcvi_team *team);
int rcvi_team_threads(const rcvi_team *team);
size_t rcvi_team_bytes(int threads); /* that a team allocates */

/* Every member, the caller being member 0, runs work(user, member); returns when all are done. What the caller wrote
 * before is seen by all; what they wrote is seen by the caller after. A child of fork() starts threads of its own with its first call:
 * that alone may fail, and then nothing was run. */
rcv_status rcvi_team_call(rcvi_team *team, void (*work)(void *user, int member), void *user);

/* Called by every member inside of a call: none goes on before all have come. What was written before is seen after. */
void rcvi_team_barrier(rcvi_team *team, int member);

/* Called by a member inside of a call: until another one has counted up to `count`. What that one wrote before is seen. */
void rcvi_team_await(const rcvi_team *team, const atomic_uint *counter, unsigned count);

#endif
