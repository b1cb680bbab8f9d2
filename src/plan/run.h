#ifndef RCVI_RUN_H
#define RCVI_RUN_H

#include <stddef.h>

struct rcv_plan;
size_t rcvi_run_bytes(const struct rcv_plan *plan); /* what rcv_run_new will allocate */

#endif
