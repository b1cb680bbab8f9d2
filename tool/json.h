/* Helpers for JSON. Times are in seconds, sizes in bytes; null: not known. */
#ifndef TOOL_JSON_H
#define TOOL_JSON_H

#include <jansson.h>
#include <math.h>
#include <stdbool.h>

static inline json_t *number(double value) { return isfinite(value) ? json_real(value) : json_null(); }
static inline json_t *positive(double value) { return value > 0 ? number(value) : json_null(); }
static inline json_t *text(const char *value) { return value != NULL ? json_string(value) : json_null(); }

/* The JSON text, for free(). (The text of json_dumps may be in the reserve of json_memory.c.) */
char *json_text(const json_t *value, size_t flags);
/* Writes the file whole or not at all, and releases `value`. False after saying what went wrong. NULL: there was no memory for it. */
bool save_json(const char *path, json_t *value);

#endif
