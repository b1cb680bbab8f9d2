/* A verb that runs as several ranks: which one prints, and how all end when one fails. */
#ifndef TOOL_RANKS_H
#define TOOL_RANKS_H

#include "recurve_distributed.h"
#include "settings_options.h"

typedef struct ranks_of_verb {
    rcv_world *world; /* NULL: one process */
    bool leads;       /* one process, or rank 0 */
} ranks;

/* Connects the ranks as the settings say. Called before anything else is read, so that an error on one rank ends all of them with one message.
 * With several ranks messages are held from here on. EXIT_DONE, or the exit status. */
int ranks_open(ranks *ranks, rcv_context *context, const settings_arguments *arguments, const char *verb);
void ranks_close(ranks *ranks);
/* EXIT_DONE if every rank calls this with EXIT_DONE; else the exit status. */
int ranks_agree(const ranks *ranks, int result);
/* Ends all ranks: the rank that failed sends its message, and one rank prints it. The exit status. */
int ranks_fail(const ranks *ranks, rcv_status status);

#endif
