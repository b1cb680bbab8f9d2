/* recurve plan --parallel: a plan of training over many devices. */
#ifndef TOOL_PLAN_RANKS_H
#define TOOL_PLAN_RANKS_H

#include <stdbool.h>

bool plan_wants_ranks(int argc, char **argv); /* does the command line ask for one? */
int plan_ranks(int argc, char **argv);

#endif
