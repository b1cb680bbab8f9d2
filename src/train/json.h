/* JSON that is written whole or not at all. */
#ifndef RCVI_TRAIN_JSON_H
#define RCVI_TRAIN_JSON_H

#include "model/json.h"

/* `value`, where all of it could be put together; else it is released, and NULL. */
static inline json_t *rcvi_json_if(bool good, json_t *value) {
    if (good) return value;
    json_decref(value);
    return NULL;
}

#endif
