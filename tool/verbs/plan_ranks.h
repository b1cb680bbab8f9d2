/* recurve plan --parallel: a forecast of training over many devices. */
#ifndef TOOL_PLAN_RANKS_H
#define TOOL_PLAN_RANKS_H

#include <stdbool.h>

bool plan_is_parallel(int argc, char **argv); /* is --parallel given? */
int plan_ranks(int argc, char **argv);

#endif
