/* JSON with checked memory: a result is complete, or there is an error. jansson alone does not report every allocation that fails. */
#ifndef RCVI_BASE_JSON_H
#define RCVI_BASE_JSON_H

#include "base/base.h"

#include <jansson.h>
#include <math.h>

/* As json_loadb, which may lose characters of a long token. `error` is set where it is not NULL. */
json_t *rcvi_json_read(const char *text, size_t length, size_t flags, json_error_t *error);

/* As json_dumps, which leaves out a name of an object where there is no memory for it. Free with rcvi_free. NULL for a value is
 * RCV_NO_MEMORY too. */
rcv_status rcvi_json_print(rcv_context *context, const json_t *value, size_t flags, char **text);

/* A number; null if it is infinite or not a number, which JSON does not have. */
static inline json_t *rcvi_json_number(double value) { return isfinite(value) ? json_real(value) : json_null(); }

/* Returns `value` if it was built completely (`good`); else releases it and returns NULL. */
static inline json_t *rcvi_json_if(bool good, json_t *value) {
    if (good) return value;
    json_decref(value);
    return NULL;
}

#endif
