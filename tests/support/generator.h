/* Random well-formed cells that use the whole language. */
#ifndef RECURVE_GENERATOR_H
#define RECURVE_GENERATOR_H

#include "probe.h"

/* The text of a cell, to be freed. It declares `size proj` and `size heads = 2` where it needs them, so hidden must be
 * even. What a state's next value depends on by its form, it depends on in numbers too for almost all parameters. */
char *generate_cell(random_source *source);

/* The same with values that are spread from one number, and with matrices times learned vectors. A few have no sizes that fit. */
char *generate_wide_cell(random_source *source);

/* generate_cell as a file; fails where it cannot be written. */
void generate_cell_file(uint64_t seed, const char *path);

#endif
