/* A directory of a test program's own, to be left empty. */
#ifndef RECURVE_SCRATCH_H
#define RECURVE_SCRATCH_H

#include <stdbool.h>

bool scratch_begin(void);
bool scratch_end(void); /* false where a test left something behind */
const char *scratch(void);
const char *path_in(const char *name); /* a path in it, good until the next call */
int entries(const char *path);         /* of a directory */

/* The same for cmocka. */
int scratch_set_up(void **state);
int scratch_tear_down(void **state);

#endif
