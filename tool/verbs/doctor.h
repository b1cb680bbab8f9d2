/* What recurve doctor found, as JSON, and as text. */
#ifndef TOOL_DOCTOR_H
#define TOOL_DOCTOR_H

#include "json.h"
#include "tool.h"

/* {version, commit, cpu, memory, gpus, gpu_absence, libraries, python, cache, missing, broken}; `missing` and `broken` are lists of {what, reason,
 * command}. NULL after saying what went wrong. */
json_t *doctor_examine(rcv_context *context, bool with_python);
void doctor_print(const json_t *found);

#endif
