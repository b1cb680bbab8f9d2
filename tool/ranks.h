/* A verb as one of several processes that were started together: who prints, and how all end when one fails. */
#ifndef TOOL_RANKS_H
#define TOOL_RANKS_H

#include "settings_options.h"

typedef struct ranks_of_verb {
    rcv_world *world; /* NULL: alone */
    bool leads;       /* alone, or rank 0 */
} ranks;

/* As settings say how processes work together; before anything else is read, so that all that goes wrong on one of them ends all, with one
 * sentence. Messages are held from here on where there are several. EXIT_DONE, or what the process ends with. */
int ranks_open(ranks *ranks, rcv_context *context, const settings_arguments *arguments, const char *verb);
void ranks_close(ranks *ranks);
/* Does every rank come here with EXIT_DONE? Else the result is what the process ends with. */
int ranks_agree(const ranks *ranks, int result);
/* The one that knows says why, for all, and the others learn that there is no going on. What the process ends with. */
int ranks_fail(const ranks *ranks, rcv_status status);

#endif
