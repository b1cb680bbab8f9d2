/* What the verbs that write JSON share. Times are in seconds, sizes in bytes; null is what is not known. */
#ifndef TOOL_JSON_H
#define TOOL_JSON_H

#include "bench/bench.h"

#include <jansson.h>
#include <math.h>

static inline json_t *number(double value) { return isfinite(value) ? json_real(value) : json_null(); }
static inline json_t *positive(double value) { return value > 0 ? number(value) : json_null(); }
static inline json_t *text(const char *value) { return value != NULL ? json_string(value) : json_null(); }

/* As JSON, for free(); what json_dumps returns may be of the reserve. */
char *json_text(const json_t *value, size_t flags);
json_t *problem_json(const problem *problem);
json_t *machine_json(const machine *machine);
/* Written whole or not at all, and released; says what went wrong. NULL: there was no memory for it. */
bool save_json(const char *path, json_t *value);

#endif
