/* Reading JSON where memory may fail: jansson does not notice every allocation that fails, and may lose characters of a long token. */
#ifndef RCVI_BASE_JSON_H
#define RCVI_BASE_JSON_H

#include <jansson.h>
#include <stddef.h>

/* As json_loadb, with `error` set where it is not NULL. */
json_t *rcvi_json_read(const char *text, size_t length, size_t flags, json_error_t *error);

#endif
