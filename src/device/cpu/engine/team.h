/* A team of threads that run one call together. They sleep between calls and spin within one: a barrier spins first, and yields
 * the core only when that takes long (more threads than cores). */
#ifndef RCVI_TEAM_H
#define RCVI_TEAM_H

#include "base/base.h"

#include <stdatomic.h>

typedef struct rcvi_team rcvi_team;

/* Creates a team of `threads` members (1 to RCVI_MAX_THREADS). Member 0 is the caller of rcvi_team_call. */
rcv_status rcvi_team_new(rcv_context *context, int threads, rcvi_team **team);
void rcvi_team_free(rcvi_team *team);
int rcvi_team_threads(const rcvi_team *team);
size_t rcvi_team_bytes(int threads); /* bytes that rcvi_team_new allocates */

/* Every member runs work(user, member); returns when all have finished. All members see what the caller wrote before the call,
 * and the caller sees what they wrote. In a child of fork() the first call starts new threads: only that may fail, and then
 * nothing was run. */
rcv_status rcvi_team_call(rcvi_team *team, void (*work)(void *user, int member), void *user);

/* A barrier: every member calls it inside a call, and none returns before all have called it. Writes before it are visible
 * after it. */
void rcvi_team_barrier(rcvi_team *team, int member);

/* Waits, inside a call, until another member has raised `counter` to at least `count` with a release store. Writes of that
 * member before its store are visible after this. */
void rcvi_team_wait_for(const rcvi_team *team, const atomic_uint *counter, unsigned count);

#endif
