/* JSON as text, whole or not at all. */
#ifndef RCVI_JSON_H
#define RCVI_JSON_H

#include "base/base.h"

#include <jansson.h>

/* As json_dumps does it, which leaves out a name of an object where there is no memory for it, and does not say so. Free with rcvi_free. NULL for
 * a value is no memory too. */
rcv_status rcvi_json_print(rcv_context *context, const json_t *value, size_t flags, char **text);

#endif
